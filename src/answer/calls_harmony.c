/* Harmony, the format of gpt-oss: an answer is a sequence of messages, each with a
 * header.
 *
 *   <|channel|>NAME to=RECIPIENT <|constrain|>json<|message|>TEXT<|end|>
 *   <|start|>assistant<|channel|>..
 *
 * A message to functions.NAME is a call; the channel `analysis` is reasoning, all others
 * are content. A newline joins two texts of one kind. */
#include "answer/call_reader.h"

enum { HEADER, TEXT, CALL, AFTER };
enum { PLAIN, REASONING, CONTENT }; /* kind of a message's text */
enum { HEADER_BYTES = 1024 };

static const uint32_t header_roles = ROLE(MESSAGE) | ROLE(CHANNEL) | ROLE(CONSTRAIN) | ROLE(START),
                      body_roles = ROLE(MESSAGE_END) | ROLE(START),
                      after_roles = ROLE(START) | ROLE(CHANNEL) | ROLE(MESSAGE) | ROLE(MESSAGE_END);

static quire_err calls_harmony_begin(call_reader *r) {
    r->u.h = (harmony_messages){.state = HEADER, .is_first = true};
    r->held.max = 0; /* HEADER_BYTES limits a header instead */
    return QUIRE_OK;
}

/* ---- headers ---- */

/* The word after `what` in the header, up to white space or a mark; empty: none. */
static str word_behind(str header, const char *what) {
    size_t n = strlen(what);
    for (size_t i = 0; i + n <= header.n; i++) {
        if (memcmp(header.p + i, what, n) != 0) {
            continue;
        }
        str word = {header.p + i + n, 0};
        while (i + n + word.n < header.n && !call_space(word.p[word.n]) && word.p[word.n] != '<') {
            word.n++;
        }
        return word;
    }
    return (str){NULL, 0};
}

static quire_err begin_text(call_reader *r, uint8_t kind) {
    harmony_messages *h = &r->u.h;
    h->state = TEXT;
    if (h->last_kind == kind) {
        h->waits_newline = true;
    }
    h->kind = kind;
    return QUIRE_OK;
}

static quire_err begin_message(call_reader *r) {
    str header = call_str(&r->text), to = word_behind(header, "to="),
        channel = word_behind(header, "<|channel|>");
    bool is_function = str_begins(to, "functions.");
    str name = is_function ? (str){to.p + strlen("functions."), to.n - strlen("functions.")} : to;
    bool is_call = r->options->choice != OUTPUT_CHOICE_NONE && call_is_name(name) &&
                   (is_function ? r->options->n_tools > 0 : call_is_offered(r, name));
    r->u.h.is_first = false;
    if (is_call) {
        TRY(call_set(&r->name, name));
        r->json = (json_stream){0};
        r->u.h.state = CALL;
        TRY(call_begin(r));
    } else {
        TRY(begin_text(r, str_is(channel, "analysis") ? REASONING : CONTENT));
    }
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

/* Whether the text may begin a header that has no mark: " to=functions..". */
static bool may_be_header(str s) {
    static const char to[] = "to=";
    while (s.n > 0 && call_space(s.p[0])) {
        s.p++;
        s.n--;
    }
    return memcmp(s.p, to, s.n < 3 ? s.n : 3) == 0;
}

/* ---- texts ---- */

static quire_err text_bytes(call_reader *r, const char *p, size_t n) {
    harmony_messages *h = &r->u.h;
    if (n == 0) {
        return QUIRE_OK;
    }
    output_kind kind = h->kind == REASONING ? OUTPUT_REASONING : OUTPUT_CONTENT;
    if (h->waits_newline) {
        TRY(call_text(r, kind, "\n", 1));
    }
    h->waits_newline = false;
    h->last_kind = h->kind;
    return call_text(r, kind, p, n);
}

/* Makes text without any header content. */
static quire_err plain_text(call_reader *r) {
    r->u.h.is_first = false;
    TRY(begin_text(r, CONTENT));
    TRY(text_bytes(r, r->text.p, r->text.n));
    strbuf_clear(&r->text);
    return QUIRE_OK;
}

/* Completes a call's arguments; a call without any gets an empty object. */
static quire_err close_arguments(call_reader *r) {
    bool has_begun = !json_stream_wants_value(&r->json) || r->json.depth > 0;
    return has_begun ? json_stream_close(&r->json, &r->arguments) : strbuf_add_str(&r->arguments, "{}");
}

static quire_err break_call(call_reader *r, char c) {
    TRY(close_arguments(r));
    TRY(call_end(r));
    TRY(begin_text(r, CONTENT));
    return text_bytes(r, &c, 1);
}

static quire_err call_byte(call_reader *r, char c) {
    json_stream_result result;
    if (c == MARK_BEGIN || c == MARK_END) {
        return QUIRE_OK;
    }
    if (call_space(c) && r->json.depth == 0) {
        return QUIRE_OK;
    }
    if (json_stream_wants_value(&r->json) && r->json.depth == 0 && c != '{') {
        return break_call(r, c);
    }
    TRY(json_stream_push(&r->json, c, &r->arguments, &result));
    if (result == JSON_STREAM_MORE || result == JSON_STREAM_DONE) {
        return call_flush_arguments(r);
    }
    return break_call(r, c);
}

static quire_err end_message(call_reader *r, bool cut_off) {
    harmony_messages *h = &r->u.h;
    if (h->state == CALL) {
        if (!cut_off) {
            TRY(close_arguments(r));
        }
        TRY(call_end(r));
    }
    h->waits_newline = false;
    h->state = AFTER;
    return QUIRE_OK;
}

/* ---- the machine ---- */

static quire_err calls_harmony_at_mark(call_reader *r, const mark *m) {
    harmony_messages *h = &r->u.h;
    if (h->state == TEXT || h->state == CALL) {
        TRY(end_message(r, false));
    }
    if (h->state == AFTER || m->role == ROLE_START) { /* a new header begins */
        strbuf_clear(&r->text);
    }
    switch ((mark_role)m->role) {
    case ROLE_MESSAGE:
        return begin_message(r);
    case ROLE_MESSAGE_END:
        return QUIRE_OK;
    default:
        h->state = HEADER;
        h->is_first = false;
        for (uint8_t i = 0; i < m->n; i++) {
            if (m->text[i] != MARK_BEGIN && m->text[i] != MARK_END) {
                TRY(strbuf_add_char(&r->text, m->text[i]));
            }
        }
        return QUIRE_OK;
    }
}

static quire_err calls_harmony_text_byte(call_reader *r, char c) {
    harmony_messages *h = &r->u.h;
    switch (h->state) {
    case TEXT:
        return text_bytes(r, &c, 1);
    case CALL:
        return call_byte(r, c);
    case AFTER:
        if (call_space(c)) {
            return QUIRE_OK;
        }
        TRY(begin_text(r, CONTENT));
        return text_bytes(r, &c, 1);
    default:
        TRY(strbuf_add_char(&r->text, c));
        bool fits = h->is_first ? may_be_header(call_str(&r->text)) : r->text.n < HEADER_BYTES;
        return fits && r->text.n < HEADER_BYTES ? QUIRE_OK : plain_text(r);
    }
}

static quire_err calls_harmony_byte(call_reader *r, char c) {
    char text[MARK_BYTES];
    size_t n;
    uint8_t state = r->u.h.state;
    uint32_t roles = state == HEADER ? header_roles : state == AFTER ? after_roles : body_roles;
    strbuf_clear(&r->held); /* harmony has no attempts: text is emitted as it arrives */
    int found = mark_push(&r->match, &r->marks, call_roles(roles, 0), c, text, &n);
    for (size_t i = 0; i < n; i++) {
        TRY(calls_harmony_text_byte(r, text[i]));
    }
    return found >= 0 ? calls_harmony_at_mark(r, &r->marks.marks[found]) : QUIRE_OK;
}

static quire_err calls_harmony_end(call_reader *r, bool cut_off) {
    char text[MARK_BYTES];
    size_t n = mark_take(&r->match, text);
    for (size_t i = 0; i < n; i++) {
        TRY(calls_harmony_text_byte(r, text[i]));
    }
    strbuf_clear(&r->held);
    if (r->u.h.state == HEADER && r->u.h.is_first) {
        TRY(plain_text(r));
    }
    return end_message(r, cut_off);
}

const call_machine harmony_machine = {calls_harmony_begin, calls_harmony_byte, calls_harmony_end, false};

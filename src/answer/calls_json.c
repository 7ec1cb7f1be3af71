/* Calls as JSON: {"name": .., "arguments": {..}}, lists of these, {name: arguments}, and
 * a head with the name before the arguments alone.
 *
 * Members may come in any order, unless call_names_first. Arguments before the name are
 * held until the name comes. Arguments may be JSON inside a string. */
#include "answer/call_reader.h"

enum {
    HEAD,
    BODY,
    ITEM,
    AFTER_ITEM,
    NAME,
    AFTER_NAME,
    MEMBER,
    NAME_VALUE,
    SKIPPED,
    ARGUMENTS,
    ARGUMENTS_TEXT,
    AFTER_MEMBER
};
enum { HEAD_BYTES = 512 };

static quire_err calls_json_begin(call_reader *r) {
    r->u.j = (json_calls){.state = (r->flags & FORMAT_HEAD) != 0 ? HEAD : BODY};
    r->json = (json_stream){0};
    return QUIRE_OK;
}

static bool is_forced_by_name(const call_reader *r) {
    return r->options->choice == OUTPUT_CHOICE_NAMED && (r->flags & FORMAT_FORCED_JSON) != 0;
}

/* ---- arguments ---- */

/* Begins a call once its name and the start of its arguments are read. */
static quire_err calls_json_start_call(call_reader *r) {
    return r->in_call ? QUIRE_OK : call_begin(r);
}

/* Emits the complete arguments and ends the call; next: the state after it. */
static quire_err finish_arguments(call_reader *r, uint8_t next) {
    r->u.j.has_arguments = true;
    r->u.j.state = next;
    return r->in_call ? call_end(r) : QUIRE_OK;
}

/* Abandons arguments that c makes invalid; if their call has begun, completes them
 * first. */
static quire_err break_arguments(call_reader *r, char c) {
    if (r->in_call) {
        TRY(json_stream_close(&r->json, &r->arguments));
        TRY(call_end(r));
    }
    return call_reject(r, &c, 1);
}

/* Reads a byte of the arguments, decoded inside a string. *result as json_stream_push. */
static quire_err push_arguments(call_reader *r, char c, json_stream_result *result) {
    TRY(json_stream_push(&r->json, c, &r->arguments, result));
    return r->in_call ? call_flush_arguments(r) : QUIRE_OK;
}

static quire_err in_arguments(call_reader *r, char c) {
    json_stream_result result;
    TRY(push_arguments(r, c, &result));
    if (result == JSON_STREAM_MORE) {
        return QUIRE_OK;
    }
    if (result != JSON_STREAM_DONE) {
        return break_arguments(r, c);
    }
    TRY(finish_arguments(r, AFTER_MEMBER));
    if (r->u.j.is_bare) {
        call_leave(r);
    }
    return QUIRE_OK;
}

/* Reads decoded text of arguments inside a string. *fits false: it is not an object. */
static quire_err push_decoded(call_reader *r, const char *p, size_t n, bool *fits) {
    *fits = true;
    for (size_t i = 0; i < n && *fits; i++) {
        json_stream_result result = JSON_STREAM_MORE;
        bool is_first = json_stream_wants_value(&r->json) && r->json.depth == 0;
        if (call_space(p[i]) && (is_first || r->u.j.text_is_whole)) {
            continue;
        }
        if (is_first && p[i] != '{') {
            *fits = false;
            return QUIRE_OK;
        }
        if (is_first && r->u.j.has_name) {
            TRY(calls_json_start_call(r));
        }
        TRY(push_arguments(r, p[i], &result));
        *fits = result == JSON_STREAM_MORE || result == JSON_STREAM_DONE;
        r->u.j.text_is_whole = result == JSON_STREAM_DONE; /* from now on only white space may follow */
    }
    return QUIRE_OK;
}

static quire_err in_arguments_text(call_reader *r, char c) {
    char text[UNESCAPE_BYTES];
    unescape *u = &r->u.j.skipped.escape;
    bool fits;
    if (c != '"' || unescape_is_open(u)) {
        TRY(push_decoded(r, text, unescape_push(u, ESCAPE_JSON, c, text), &fits));
        return fits ? QUIRE_OK : break_arguments(r, c);
    }
    TRY(push_decoded(r, text, unescape_end(u, text), &fits));
    if (!fits) {
        return break_arguments(r, c);
    }
    if (json_stream_wants_value(&r->json) && r->json.depth == 0) { /* an empty string */
        if (r->u.j.has_name) {
            TRY(calls_json_start_call(r));
        }
        TRY(strbuf_add_str(&r->arguments, "{}"));
    } else if (!r->u.j.text_is_whole) {
        TRY(json_stream_close(&r->json, &r->arguments));
    }
    TRY(finish_arguments(r, AFTER_MEMBER));
    if (r->u.j.is_bare) {
        call_leave(r);
    }
    return QUIRE_OK;
}

/* ---- members ---- */

static bool is_arguments(str key) {
    return str_is(key, "arguments") || str_is(key, "parameters");
}

static quire_err begin_arguments(call_reader *r, char c) {
    json_stream_result result;
    r->json = (json_stream){0};
    r->u.j.skipped = (json_stream){0};
    r->u.j.text_is_whole = false;
    strbuf_clear(&r->arguments);
    if (c == '"') {
        r->u.j.state = ARGUMENTS_TEXT;
        return QUIRE_OK;
    }
    if (c != '{') {
        return call_reject(r, &c, 1);
    }
    r->u.j.state = ARGUMENTS;
    if (r->u.j.has_name) {
        TRY(calls_json_start_call(r));
    }
    return push_arguments(r, c, &result);
}

static quire_err begin_member(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    json_stream_result result;
    str key = call_str(&r->text);
    if ((r->flags & FORMAT_KEYED) != 0) {
        TRY(call_set(&r->name, key));
        j->has_name = call_is_name(key);
        return j->has_name && c == '{' ? begin_arguments(r, c) : call_reject(r, &c, 1);
    }
    if (call_names_first(r) && !j->has_name && !str_is(key, "name")) {
        return call_reject(r, &c, 1);
    }
    /* {"type": "function", "function": {"name": ..}} */
    if (str_is(key, "function") && c == '{' && !j->in_function) {
        j->in_function = true;
        j->state = NAME;
        return QUIRE_OK;
    }
    if (is_arguments(key) && !j->has_arguments && c != 'n') {
        return begin_arguments(r, c);
    }
    j->is_name_key = (str_is(key, "name") || str_is(key, "tool_name")) && !j->has_name;
    j->has_other |=
        !j->is_name_key && c != 'n' && !str_is(key, "id") && !str_is(key, "type") && !str_is(key, "index");
    j->is_escaped = false;
    j->state = SKIPPED;
    j->skipped = (json_stream){0};
    if (is_arguments(key) && !j->has_arguments) { /* null means no arguments */
        TRY(strbuf_add_str(&r->arguments, "{}"));
        if (j->has_name) {
            TRY(call_begin(r));
        }
        TRY(finish_arguments(r, SKIPPED));
    }
    strbuf_clear(&r->text);
    if (j->is_name_key && c != '"') {
        return call_reject(r, &c, 1);
    }
    TRY(json_stream_push(&j->skipped, c, &r->text, &result));
    return result == JSON_STREAM_MORE ? QUIRE_OK : call_reject(r, &c, 1);
}

/* Takes the name, a JSON string in r->text, and emits arguments that came before it. A
 * grammar of calls writes names without escapes, so an escaped name was written without
 * one and is not accepted. */
static quire_err take_name(call_reader *r) {
    str quoted = call_str(&r->text), name = {quoted.p + 1, quoted.n - 2};
    TRY(call_set(&r->name, name));
    r->u.j.has_name =
        !r->u.j.is_escaped && call_is_name(name) && (!call_names_first(r) || call_is_offered(r, name));
    if (!r->u.j.has_name) {
        return call_reject(r, NULL, 0);
    }
    if (r->u.j.has_arguments) {
        TRY(call_begin(r));
        return call_end(r);
    }
    return QUIRE_OK;
}

static quire_err calls_json_byte(call_reader *r, char c);

static quire_err in_skipped(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    json_stream_result result;
    if (!j->is_name_key) {
        strbuf_clear(&r->text);
    }
    j->is_escaped |= c == '\\';
    TRY(json_stream_push(&j->skipped, c, &r->text, &result));
    if (result == JSON_STREAM_MORE) {
        return QUIRE_OK;
    }
    if (result == JSON_STREAM_BROKEN) {
        return call_reject(r, &c, 1);
    }
    j->state = AFTER_MEMBER;
    if (j->is_name_key) {
        TRY(take_name(r));
    }
    return result == JSON_STREAM_BEFORE ? calls_json_byte(r, c) : QUIRE_OK;
}

/* ---- objects and lists ---- */

static quire_err begin_object(call_reader *r) {
    json_calls *j = &r->u.j;
    *j = (json_calls){.state = NAME, .in_list = j->in_list};
    r->json = (json_stream){0};
    strbuf_clear(&r->name);
    strbuf_clear(&r->id);
    strbuf_clear(&r->arguments);
    return QUIRE_OK;
}

static quire_err end_object(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    if (j->in_function) {
        j->in_function = false;
        j->state = AFTER_MEMBER;
        return QUIRE_OK;
    }
    bool is_done = (j->has_name && j->has_arguments) || (r->flags & FORMAT_KEYED) != 0;
    if (!is_done) { /* a name alone is a call, without arguments, of an offered function */
        if (!j->has_name || j->has_other || (r->flags & FORMAT_BARE) != 0 ||
            !call_is_offered(r, call_str(&r->name))) {
            return call_reject(r, &c, 1);
        }
        TRY(call_begin(r));
        TRY(strbuf_add_str(&r->arguments, "{}"));
        TRY(call_end(r));
    }
    if (j->in_list) {
        j->state = AFTER_ITEM;
        return QUIRE_OK;
    }
    call_leave(r);
    return QUIRE_OK;
}

static quire_err begin_body(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    if (c == '[' && !j->in_list) {
        j->in_list = true;
        j->state = ITEM;
        return QUIRE_OK;
    }
    if (c == ']' && j->in_list && !call_is_empty_list(r)) {
        call_leave(r);
        return QUIRE_OK;
    }
    if (c != '{') {
        return call_reject(r, &c, 1);
    }
    /* the answer is the arguments of the forced function */
    if (is_forced_by_name(r) && !j->in_list && r->held.n == 1) {
        TRY(call_set(&r->name, r->options->named));
        j->has_name = j->is_bare = true;
        return begin_arguments(r, c);
    }
    return begin_object(r);
}

static quire_err calls_json_in_name(call_reader *r, char c) {
    json_stream_result result;
    r->u.j.is_escaped |= c == '\\';
    TRY(json_stream_push(&r->u.j.skipped, c, &r->text, &result));
    if (result == JSON_STREAM_DONE) { /* removes the quotes; a member with escapes has no known name */
        str key = {r->text.p + 1, r->u.j.is_escaped ? 0 : r->text.n - 2};
        memmove(r->text.p, key.p, key.n);
        r->text.n = key.n;
        r->u.j.state = AFTER_NAME;
    }
    return QUIRE_OK;
}

static quire_err calls_json_between(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    switch (j->state) {
    case BODY:
    case ITEM:
        return begin_body(r, c);
    case AFTER_ITEM:
        if (c == ']') {
            call_leave(r);
            return QUIRE_OK;
        }
        j->state = ITEM;
        return c == ',' ? QUIRE_OK : call_reject(r, &c, 1);
    case NAME:
        if (c == '}') {
            return end_object(r, c);
        }
        j->state = MEMBER;
        j->is_escaped = false;
        j->skipped = (json_stream){0};
        strbuf_clear(&r->text);
        return c == '"' ? calls_json_in_name(r, c) : call_reject(r, &c, 1);
    case AFTER_NAME:
        j->state = NAME_VALUE;
        return c == ':' ? QUIRE_OK : call_reject(r, &c, 1);
    case NAME_VALUE:
        return begin_member(r, c);
    default: /* AFTER_MEMBER */
        j->state = NAME;
        return c == ',' ? QUIRE_OK : c == '}' ? end_object(r, c) : call_reject(r, &c, 1);
    }
}

/* ---- heads ---- */

/* What head_read found in a head. */
typedef struct head_parts {
    str rest, name, id;
    bool has_mark, begins; /* the head has a mark; it begins with one and continues after it */
} head_parts;

/* Whether a literal of a writing is a mark. Others, like Kimi's "functions.", belong to
 * the name. */
static bool head_is_mark(str literal) {
    size_t n = 0;
    while (n < literal.n && strchr("<>[]`", literal.p[n]) == NULL) {
        n++;
    }
    return n < literal.n;
}

/* Stores the value of a hole, up to the fence of a code block. */
static void head_take(head_parts *h, char hole, str value) {
    str *to = hole == HOLE_NAME ? &h->name : hole == HOLE_ID ? &h->id : NULL;
    size_t n = 0;
    while (n < value.n && !str_begins((str){value.p + n, value.n - n}, "```")) {
        n++;
    }
    if (to != NULL) {
        *to = call_trim((str){value.p, n});
    }
}

/* Takes the hole's text up to the mark `edge`, or all text if the mark is missing. False:
 * there is text that no hole takes. */
static bool head_upto(head_parts *h, char hole, str edge) {
    for (size_t i = 0; i + edge.n <= h->rest.n; i++) {
        if (memcmp(h->rest.p + i, edge.p, edge.n) == 0) {
            bool is_first = !h->has_mark && hole == 0;
            head_take(h, hole, (str){h->rest.p, i});
            h->has_mark = true;
            h->rest = call_trim((str){h->rest.p + i + edge.n, h->rest.n - i - edge.n});
            h->begins = h->begins || (is_first && i == 0 && h->rest.n > 0);
            return !is_first || i == 0;
        }
    }
    head_take(h, hole, h->rest);
    h->rest.n = 0;
    return hole != 0;
}

/* Reads a head in the form of a writing's text; it may end early. False: it has no
 * name. */
static bool head_read(str head, str text, head_parts *h) {
    str literal;
    char hole = 0, next;
    *h = (head_parts){.rest = call_trim(head)};
    while (writing_next(&text, &literal, &next)) {
        str edge = call_trim(literal);
        if (next != 0) {
            hole = next == HOLE_SPACE || next == HOLE_LINE || next == HOLE_NUMBER ? hole : next;
        } else if (head_is_mark(edge)) {
            if (h->rest.n > 0 && !head_upto(h, hole, edge)) {
                return h->name.n > 0;
            }
            hole = 0;
        }
    }
    head_take(h, hole, h->rest);
    return h->name.n > 0;
}

/* Splits "functions.NAME:3", which becomes the call's id, and removes "functions." before
 * the name of an offered function. */
static quire_err take_numbered(call_reader *r, str *name) {
    size_t n = name->n, prefix = str_begins(*name, "functions.") ? strlen("functions.") : 0;
    str bare = {name->p + prefix, name->n - prefix};
    while (n > 0 && name->p[n - 1] >= '0' && name->p[n - 1] <= '9') {
        n--;
    }
    if (n == 0 || n == name->n || name->p[n - 1] != ':') {
        *name = call_is_offered(r, bare) ? bare : *name;
        return QUIRE_OK;
    }
    TRY(call_set(&r->id, *name));
    *name = (str){bare.p, n - 1 - prefix};
    return QUIRE_OK;
}

/* Finds the name and id of the head in r->text, by the first writing that yields a name.
 * *marked: the head has a mark. */
static quire_err read_head(call_reader *r, bool *marked) {
    str head = call_str(&r->text), name = {"", 0};
    call_writing w;
    head_parts h = {0};
    *marked = false;
    for (size_t i = 0; !call_is_name(name) && !h.begins && call_writing_at(r->format, i, &w); i++) {
        if (w.is_head && head_read(head, w.head, &h)) {
            name = h.name;
            *marked = h.has_mark;
            TRY(call_set(&r->id, h.id));
        }
    }
    TRY(take_numbered(r, &name));
    return call_set(&r->name, name);
}

static quire_err calls_json_in_head(call_reader *r, char c) {
    json_calls *j = &r->u.j;
    bool is_json = (r->flags & FORMAT_LISTED) != 0 && call_trim(call_str(&r->text)).n == 0;
    bool marked;
    if (is_json && (c == '[' || c == '{')) {
        return begin_body(r, c);
    }
    if (c == '\n' && (r->flags & FORMAT_HEAD_FIRST) != 0 && str_is(call_str(&r->text), "all")) {
        call_leave(r);
        return QUIRE_OK;
    }
    if (c != '{' && c != '"') {
        return r->text.n < HEAD_BYTES ? strbuf_add_char(&r->text, c) : call_reject(r, &c, 1);
    }
    TRY(read_head(r, &marked));
    j->has_name = call_is_name(call_str(&r->name));
    j->is_bare = true;
    return j->has_name ? begin_arguments(r, c) : call_reject(r, &c, 1);
}

/* ---- the machine ---- */

static quire_err calls_json_byte(call_reader *r, char c) {
    switch (r->u.j.state) {
    case HEAD:
        return calls_json_in_head(r, c);
    case MEMBER:
        return calls_json_in_name(r, c);
    case SKIPPED:
        return in_skipped(r, c);
    case ARGUMENTS:
        return in_arguments(r, c);
    case ARGUMENTS_TEXT:
        return in_arguments_text(r, c);
    default:
        return call_space(c) ? QUIRE_OK : calls_json_between(r, c);
    }
}

static quire_err calls_json_end(call_reader *r, bool cut_off) {
    bool marked;
    if (r->in_call) {
        if (!cut_off) {
            TRY(json_stream_close(&r->json, &r->arguments));
        }
        return call_end(r);
    }
    if (r->u.j.state != HEAD || cut_off) {
        return QUIRE_OK;
    }
    TRY(read_head(r, &marked)); /* the head of a call without arguments */
    if (marked && call_is_name(call_str(&r->name))) {
        TRY(call_begin(r));
        TRY(strbuf_add_str(&r->arguments, "{}"));
        return call_end(r);
    }
    return QUIRE_OK;
}

const call_machine json_machine = {calls_json_begin, calls_json_byte, calls_json_end, true};

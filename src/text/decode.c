#include "text/decode.h"

#include <assert.h>

#include "base/mem.h"
#include "text/chars.h"

void decoder_deinit(decoder *d) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n; i++) {
        mem_free(d->steps[i].content);
        mem_free(d->steps[i].unknown);
        mem_free(d->steps[i].delimiter);
        matcher_deinit(&d->steps[i].match);
    }
    *d = (decoder){0};
}

void decoder_link(decoder *d) {
    assert(d != NULL);
    bool late = false;
    for (int32_t i = 0; i < d->n; i++) {
        d->steps[i].late = late;
        late = late || d->steps[i].kind == DECODE_FUSE || d->steps[i].kind == DECODE_BYTE_LEVEL;
    }
}

void decode_begin(decode_state *s, const decoder *d, decode_mode mode) {
    *s = (decode_state){.decoder = d, .mode = mode};
}

static void reset(decode_state *s) {
    for (int32_t i = 0; i < DECODE_MAX_STEPS; i++) {
        strbuf_clear(&s->held[i].text);
        s->held[i] = (decode_held){.text = s->held[i].text};
    }
}

void decode_deinit(decode_state *s) {
    for (int32_t i = 0; i < DECODE_MAX_STEPS; i++) {
        strbuf_deinit(&s->held[i].text);
        strbuf_deinit(&s->work[i]);
    }
    strbuf_deinit(&s->spare);
    regex_scratch_deinit(&s->scratch);
}

static inline quire_err decode_put(decode_state *s, int32_t i, str part, bool begins);

/* Length of the longest prefix of text that is whole characters. */
static size_t whole_chars(str text) {
    size_t n = 0, len;
    while (n < text.n && utf8_decode(text.p + n, text.n - n, &len) >= 0) {
        n += len;
    }
    return n;
}

/* Passes on a part of the token into which the step joins several. */
static quire_err put_part(decode_state *s, int32_t i, str part) {
    bool begins = !s->held[i].begun;
    s->held[i].begun = true;
    return decode_put(s, i + 1, part, begins);
}

/* Outputs the withheld bytes: whole characters, and U+FFFD for each invalid part
 * (each_byte: for each of its bytes). Unless `all` is set, keeps a tail that may still
 * become a character. */
static quire_err put_bytes(decode_state *s, int32_t i, bool all, bool each_byte) {
    strbuf *t = &s->held[i].text, *w = &s->work[i];
    size_t n = t->n, done = whole_chars((str){t->p, n}), len;
    if (done == n) { /* nearly always */
        t->n = 0;
        return n == 0 ? QUIRE_OK : put_part(s, i, (str){t->p, n});
    }
    strbuf_clear(w);
    TRY(strbuf_add(w, t->p, done));
    while (done < n) {
        if (utf8_decode(t->p + done, n - done, &len) >= 0) {
            TRY(strbuf_add(w, t->p + done, len));
        } else if (!all && utf8_is_unfinished(t->p + done, n - done)) {
            break;
        } else {
            for (size_t k = 0; k < (each_byte ? len : 1); k++) {
                TRY(strbuf_add_str(w, UTF8_REPLACEMENT));
            }
        }
        done += len;
    }
    if (done > 0) {
        memmove(t->p, t->p + done, n - done);
        t->n = n - done;
    }
    return w->n == 0 ? QUIRE_OK : put_part(s, i, (str){w->p, w->n});
}

/* Whether the token is like <0xAB>. */
static bool is_byte_token(str token, uint8_t *byte) {
    if (token.n != 6 || memcmp(token.p, "<0x", 3) != 0 || token.p[5] != '>') {
        return false;
    }
    int high = hex_digit(token.p[3]), low = hex_digit(token.p[4]);
    *byte = (uint8_t)(high * 16 + low);
    return high >= 0 && low >= 0;
}

/* Whether a run of byte tokens outputs characters as they arrive. A step that needs
 * single tokens waits for the whole run. */
static bool is_eager(const decode_state *s, int32_t i) {
    const decoder *d = s->decoder;
    return s->mode == DECODE_STREAM && (i + 1 == d->n || d->steps[i + 1].kind == DECODE_FUSE);
}

/* Ends a run of byte tokens: one token, or if it is not valid UTF-8 a U+FFFD for each. */
static quire_err end_fallback(decode_state *s, int32_t i) {
    decode_held *h = &s->held[i];
    quire_err e = QUIRE_OK;
    if (is_eager(s, i) || utf8_is_valid((str){h->text.p, h->text.n})) {
        e = put_bytes(s, i, true, true);
    }
    for (; h->text.n > 0 && e == QUIRE_OK; h->text.n--) {
        e = decode_put(s, i + 1, str_of(UTF8_REPLACEMENT), true);
    }
    h->begun = false;
    return e;
}

static quire_err decode_put_fallback(decode_state *s, int32_t i, str part) {
    uint8_t byte;
    strbuf *t = &s->held[i].text;
    if (is_byte_token(part, &byte)) {
        TRY(strbuf_add_char(t, (char)byte));
        return is_eager(s, i) ? put_bytes(s, i, false, true) : QUIRE_OK;
    }
    if (t->n > 0 || s->held[i].begun) {
        TRY(end_fallback(s, i));
    }
    return decode_put(s, i + 1, part, true);
}

static quire_err put_replaced(decode_state *s, int32_t i, const matcher *m, str part, str by, bool begins) {
    strbuf_clear(&s->work[i]);
    TRY(matcher_replace(m, &s->scratch, part, by, &s->work[i]));
    return decode_put(s, i + 1, (str){s->work[i].p, s->work[i].n}, begins);
}

static quire_err put_strip(decode_state *s, int32_t i, str part, bool begins) {
    const decode_step *step = &s->decoder->steps[i];
    decode_held *h = &s->held[i];
    strbuf *w = &s->work[i];
    if (begins) { /* a new token: drop what was withheld at the previous one's end */
        strbuf_clear(&h->text);
        h->n_cut = h->n_back = 0;
        h->leading = true;
    }
    strbuf_clear(w);
    size_t n = step->n_content;
    while (part.n > 0) {
        bool match = part.n >= n && memcmp(part.p, step->content, n) == 0;
        size_t len = n;
        if (match && h->leading && h->n_cut < step->start) {
            h->n_cut++;
        } else if (match && step->stop > 0) {
            h->leading = false;
            TRY(strbuf_add(&h->text, part.p, n));
            if (++h->n_back > step->stop) { /* only the last step->stop ones may be cut */
                TRY(strbuf_add(w, step->content, n));
                h->text.n -= n;
                h->n_back--;
            }
        } else {
            h->leading = false;
            TRY(strbuf_add(w, h->text.p, h->text.n));
            strbuf_clear(&h->text);
            h->n_back = 0;
            (void)utf8_decode(part.p, part.n, &len);
            TRY(strbuf_add(w, part.p, len));
        }
        part = (str){part.p + len, part.n - len};
    }
    return decode_put(s, i + 1, (str){w->p, w->n}, begins);
}

/* Turns a token's suffix into a space, or at the end of the text into nothing. So text
 * that may end with it is withheld until the next token: from the suffix on, or the whole
 * token if a later step needs it whole. */
static quire_err put_suffix(decode_state *s, int32_t i, str token) {
    const decode_step *step = &s->decoder->steps[i];
    matcher literal = {.literal = step->content, .n_literal = step->n_content};
    strbuf *held = &s->held[i].text, *w = &s->work[i];
    bool is_last = i + 1 == s->decoder->n;
    strbuf_clear(w);
    if (held->n > 0) { /* the withheld text was not the last */
        TRY(matcher_replace(&literal, &s->scratch, (str){held->p, held->n}, (str){" ", 1}, w));
        TRY(decode_put(s, i + 1, (str){w->p, w->n}, !is_last));
    }
    match_iter it = {.subject = token};
    bool found;
    TRY(matcher_next(&literal, &s->scratch, &it, &found));
    size_t settled = !found ? token.n : is_last ? it.start : 0;
    strbuf_clear(held);
    TRY(strbuf_add(held, token.p + settled, token.n - settled));
    return settled < token.n && !is_last ? QUIRE_OK : decode_put(s, i + 1, (str){token.p, settled}, true);
}

static void swap(strbuf *a, strbuf *b) {
    strbuf swapped = *a;
    *a = *b;
    *b = swapped;
}

/* The clean-up of tokenization spaces in transformers, within one token. */
static quire_err clean_up(decode_state *s, strbuf *text, strbuf *tmp) {
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        char literal[16];
        size_t n = strlen(pairs[k][0]);
        memcpy(literal, pairs[k][0], n);
        matcher m = {.literal = literal, .n_literal = n};
        strbuf_clear(tmp);
        TRY(matcher_replace(&m, &s->scratch, (str){text->p, text->n}, str_of(pairs[k][1]), tmp));
        swap(text, tmp);
    }
    return QUIRE_OK;
}

static quire_err put_wordpiece(decode_state *s, int32_t i, str token, bool first) {
    const decode_step *step = &s->decoder->steps[i];
    strbuf *w = &s->work[i];
    bool marked = token.n >= step->n_content && memcmp(token.p, step->content, step->n_content) == 0;
    bool is_name = str_begins(token, "[") && str_ends(token, "]"); /* a special word such as "[SEP]" */
    bool continues = step->marks_words ? !marked && !is_name : marked;
    strbuf_clear(w);
    if (marked && (step->marks_words || !first)) {
        token = (str){token.p + step->n_content, token.n - step->n_content};
    }
    if (!first && !continues) {
        TRY(strbuf_add_char(w, ' '));
    }
    /* as in a vocabulary that marks continuations */
    if (first && continues && step->marks_words) {
        TRY(strbuf_add_str(w, "##"));
    }
    TRY(strbuf_add(w, token.p, token.n));
    if (step->cleanup) {
        TRY(clean_up(s, w, &s->held[i].text));
    }
    return decode_put(s, i + 1, (str){w->p, w->n}, true);
}

static quire_err put_ctc(decode_state *s, int32_t i, str token) {
    const decode_step *step = &s->decoder->steps[i];
    strbuf *last = &s->held[i].text, *w = &s->work[i];
    if (s->held[i].begun && str_eq((str){last->p, last->n}, token)) {
        return QUIRE_OK;
    }
    s->held[i].begun = true;
    strbuf_clear(last);
    strbuf_clear(w);
    TRY(strbuf_add(last, token.p, token.n));
    matcher pad = {.literal = step->content, .n_literal = step->n_content};
    TRY(matcher_replace(&pad, &s->scratch, token, (str){"", 0}, w));
    if (step->cleanup) {
        TRY(clean_up(s, w, &s->spare));
        strbuf_clear(&s->spare);
        matcher delimiter = {.literal = step->delimiter, .n_literal = step->n_delimiter};
        TRY(matcher_replace(&delimiter, &s->scratch, (str){w->p, w->n}, (str){" ", 1}, &s->spare));
        swap(w, &s->spare);
    }
    return w->n == 0 ? QUIRE_OK : decode_put(s, i + 1, (str){w->p, w->n}, true);
}

/* Passes a part of a token to step i, late or not. */
static quire_err decode_run(decode_state *s, int32_t i, str part, bool begins) {
    const decode_step *step = &s->decoder->steps[i];
    decode_held *h = &s->held[i];
    bool first = h->n_tokens == 0 || step->late;
    h->n_tokens += begins;
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        TRY(byte_level_add_bytes(&h->text, part));
        return put_bytes(s, i, false, false);
    case DECODE_BYTE_FALLBACK:
        return decode_put_fallback(s, i, part);
    case DECODE_REPLACE:
        return put_replaced(s, i, &step->match, part, (str){step->content, step->n_content}, begins);
    case DECODE_METASPACE:
        return put_replaced(s, i, &(matcher){.literal = step->content, .n_literal = step->n_content}, part,
                            first && !step->keep_first ? (str){"", 0} : (str){" ", 1}, begins);
    case DECODE_FUSE:
        return put_part(s, i, part);
    case DECODE_STRIP:
        return put_strip(s, i, part, begins);
    case DECODE_SUFFIX:
        return put_suffix(s, i, part);
    case DECODE_CTC:
        return put_ctc(s, i, part);
    case DECODE_WORDPIECE:
        return begins ? put_wordpiece(s, i, part, first) : decode_put(s, i + 1, part, false);
    case DECODE_SPACED:
        if (!first && begins) {
            TRY(decode_put(s, i + 1, (str){" ", 1}, true));
        }
        return decode_put(s, i + 1, part, begins);
    default:
        return strbuf_add(s->out, part.p, part.n);
    }
}

/* ---- late steps: after a step that joins all tokens into one ---- */

enum { BYTE_TOKEN = 6 }; /* length of "<0xAB>" */

/* The literal that the step replaces, and its replacement. False if it replaces none. */
static bool literal_of(const decode_step *step, matcher *m, str *by) {
    bool replaces = step->kind == DECODE_REPLACE;
    *m = replaces ? step->match : (matcher){.literal = step->content, .n_literal = step->n_content};
    *by = replaces ? (str){step->content, step->n_content}
                   : (str){"", 0}; /* SUFFIX: the joined token is the last one */
    return (replaces || step->kind == DECODE_SUFFIX) && m->re == NULL && m->n_literal > 0;
}

/* Replaces complete literals, and withholds text that may begin one. */
static quire_err put_literal(decode_state *s, int32_t i, str part, const matcher *m, str by) {
    strbuf *held = &s->held[i].text, *w = &s->work[i];
    TRY(strbuf_add(held, part.p, part.n));
    if (held->n == 0) {
        return QUIRE_OK;
    }
    match_iter it = {.subject = {held->p, held->n}};
    size_t done = 0;
    bool found;
    strbuf_clear(w);
    for (;;) {
        TRY(matcher_next(m, &s->scratch, &it, &found));
        if (!found) {
            break;
        }
        TRY(strbuf_add(w, held->p + done, it.start - done));
        TRY(strbuf_add(w, by.p, by.n));
        done = it.end;
    }
    size_t upto = held->n - done >= m->n_literal ? held->n - (m->n_literal - 1) : done;
    while (upto > done && upto < held->n && ((uint8_t)held->p[upto] & 0xC0) == 0x80) {
        upto--;
    }
    TRY(strbuf_add(w, held->p + done, upto - done));
    memmove(held->p, held->p + upto, held->n - upto);
    held->n -= upto;
    return put_part(s, i, (str){w->p, w->n});
}

/* The joined token may be a single byte token: withholds text until it is longer. */
static quire_err decode_late_put_fallback(decode_state *s, int32_t i, str part) {
    strbuf *held = &s->held[i].text;
    if (s->held[i].begun) {
        return put_part(s, i, part);
    }
    TRY(strbuf_add(held, part.p, part.n));
    if (held->n <= BYTE_TOKEN) {
        return QUIRE_OK;
    }
    TRY(put_part(s, i, (str){held->p, held->n}));
    strbuf_clear(held);
    return QUIRE_OK;
}

/* Passes a part of the joined token to a late step. Withholds what later parts may
 * change: a few bytes for literals, else everything. */
static quire_err decode_put_late(decode_state *s, int32_t i, str part, bool begins) {
    const decode_step *step = &s->decoder->steps[i];
    matcher m;
    str by;
    if (literal_of(step, &m, &by)) {
        return put_literal(s, i, part, &m, by);
    }
    switch (step->kind) {
    case DECODE_FUSE:
    case DECODE_STRIP:
    case DECODE_METASPACE:
        return decode_run(s, i, part, begins);
    case DECODE_BYTE_FALLBACK:
        return decode_late_put_fallback(s, i, part);
    case DECODE_WORDPIECE:
        if (!step->cleanup) {
            return decode_put(s, i + 1, part, begins);
        }
        break;
    default:
        break;
    }
    return strbuf_add(&s->held[i].text, part.p, part.n);
}

/* Passes on the withheld text. */
static quire_err decode_finish_late(decode_state *s, int32_t i) {
    const decode_step *step = &s->decoder->steps[i];
    matcher m;
    str by;
    bool holds = step->kind != DECODE_FUSE && step->kind != DECODE_STRIP && step->kind != DECODE_METASPACE;
    if (!holds || s->held[i].text.n == 0) {
        return QUIRE_OK;
    }
    strbuf whole = s->held[i].text;
    s->held[i].text = s->spare;
    s->spare = whole;
    strbuf_clear(&s->held[i].text);
    str text = {whole.p, whole.n};
    return literal_of(step, &m, &by) ? put_part(s, i, text) : decode_run(s, i, text, true);
}

static inline quire_err decode_put(decode_state *s, int32_t i, str part, bool begins) {
    if (i == s->decoder->n) {
        return strbuf_add(s->out, part.p, part.n);
    }
    return s->decoder->steps[i].late ? decode_put_late(s, i, part, begins) : decode_run(s, i, part, begins);
}

/* All of SentencePiece's decoder, since it depends on the tokens' classes. */
static quire_err add_sentencepiece(decode_state *s, str token, piece_class class) {
    const decode_step *step = &s->decoder->steps[0];
    decode_held *h = &s->held[0];
    uint8_t byte;
    if (class == PIECE_BYTE && is_byte_token(token, &byte)) {
        TRY(strbuf_add_char(&h->text, (char)byte));
        h->n_tokens++;
        return put_bytes(s, 0, false, true);
    }
    TRY(put_bytes(s, 0, true, true));
    if (class == PIECE_CONTROL) {
        return QUIRE_OK;
    }
    bool first = h->n_tokens == 0;
    h->n_tokens++;
    if (class == PIECE_UNKNOWN) {
        h->n_tokens -= step->unknown != NULL && step->n_unknown == 0;
        return step->unknown != NULL ? strbuf_add(s->out, step->unknown, step->n_unknown)
                                     : strbuf_add_str(s->out, " \xE2\x81\x87 ");
    }
    size_t n = step->n_content;
    if (first && step->strip_first && token.n >= n && memcmp(token.p, step->content, n) == 0) {
        token = (str){token.p + n, token.n - n};
        h->n_tokens -= step->strip_all && token.n == 0; /* strip_all: still at the first text */
    }
    if (!utf8_is_valid(token)) {
        return utf8_add_lossy(s->out, token);
    }
    matcher mark = {.literal = step->content, .n_literal = n};
    return matcher_replace(&mark, &s->scratch, token, (str){" ", 1}, s->out);
}

quire_err decode_add(decode_state *s, str token, piece_class class, strbuf *out) {
    assert(s != NULL);
    s->out = out;
    if (s->decoder->n > 0 && s->decoder->steps[0].kind == DECODE_SENTENCEPIECE) {
        return add_sentencepiece(s, token, class);
    }
    return decode_put(s, 0, token, true);
}

static quire_err finish_step(decode_state *s, int32_t i) {
    const decode_step *step = &s->decoder->steps[i];
    strbuf *held = &s->held[i].text;
    if (step->late) {
        TRY(decode_finish_late(s, i));
    }
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        return put_bytes(s, i, true, false);
    case DECODE_SENTENCEPIECE:
        return put_bytes(s, i, true, true);
    case DECODE_BYTE_FALLBACK:
        return held->n > 0 ? end_fallback(s, i) : QUIRE_OK;
    case DECODE_SUFFIX: {
        matcher literal = {.literal = step->content, .n_literal = step->n_content};
        return held->n == 0 ? QUIRE_OK
                            : put_replaced(s, i, &literal, (str){held->p, held->n}, (str){"", 0},
                                           i + 1 < s->decoder->n);
    }
    default:
        return QUIRE_OK;
    }
}

quire_err decode_finish(decode_state *s, strbuf *out) {
    assert(s != NULL);
    s->out = out;
    for (int32_t i = 0; i < s->decoder->n; i++) {
        TRY(finish_step(s, i));
    }
    reset(s);
    return QUIRE_OK;
}

/* Whether the literal is one character, which never lies in two tokens. Byte tokens that
 * spell it are ignored: a model that writes the mark of a space that way does not mean a
 * space. */
static bool is_within_tokens(const char *literal, size_t n) {
    size_t len;
    return n > 0 && utf8_decode(literal, n, &len) >= 0 && len == n;
}

/* The property of step s because of which texts do not add up, as a phrase; NULL:
 * none. */
static const char *step_obstacle(const decode_step *s, bool is_bytes) {
    bool joins = s->late || is_bytes;
    switch (s->kind) {
    case DECODE_CTC:
        return "CTC, which drops repeated tokens";
    case DECODE_SUFFIX:
        return "BPEDecoder, where the end of a word is a space unless it is the last";
    case DECODE_REPLACE:
        return joins && (s->match.re != NULL || !is_within_tokens(s->match.literal, s->match.n_literal))
                   ? "Replace after a step that joins tokens"
                   : NULL;
    case DECODE_METASPACE:
        return joins && !is_within_tokens(s->content, s->n_content)
                   ? "Metaspace after a step that joins bytes"
                   : NULL;
    case DECODE_STRIP:
        return s->late && (s->stop > 0 || s->start > 1)
                   ? "Strip of more of the whole text than its first character"
               : is_bytes && !s->late ? "Strip after ByteFallback"
                                      : NULL;
    case DECODE_BYTE_FALLBACK:
        return s->late ? "ByteFallback after a step that joins tokens" : NULL;
    case DECODE_WORDPIECE:
        return joins && s->cleanup ? "WordPiece's cleanup after a step that joins tokens" : NULL;
    default:
        return NULL;
    }
}

const char *decoder_sum_obstacle(const decoder *d) {
    assert(d != NULL);
    bool is_bytes = false;
    for (int32_t i = 0; i < d->n; i++) {
        const char *obstacle = step_obstacle(&d->steps[i], is_bytes);
        if (obstacle != NULL) {
            return obstacle;
        }
        is_bytes =
            is_bytes || d->steps[i].kind == DECODE_BYTE_FALLBACK || d->steps[i].kind == DECODE_BYTE_LEVEL;
    }
    return NULL;
}

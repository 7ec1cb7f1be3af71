#include "text/decode.h"

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/chars.h"

void decoder_deinit(decoder *d) {
    for (int32_t i = 0; i < d->n; i++) {
        mem_free(d->steps[i].content);
        mem_free(d->steps[i].unknown);
        matcher_deinit(&d->steps[i].match);
    }
    *d = (decoder){0};
}

const char *decoder_check(const decoder *d) {
    bool fused = false;
    for (int32_t i = 0; i < d->n; i++) {
        decode_kind k = d->steps[i].kind;
        if (i > 0 && d->steps[i - 1].kind == DECODE_BYTE_LEVEL && k != DECODE_FUSE) {
            return "a decoder step after ByteLevel";
        }
        if (fused && k != DECODE_STRIP && k != DECODE_FUSE) {
            return "a decoder step that needs single tokens, after they are fused";
        }
        fused = fused || k == DECODE_FUSE;
    }
    return NULL;
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
    regex_scratch_deinit(&s->scratch);
}

/* A part of a token; begins: its first one. Parts of one token may be empty. */
static quire_err put(decode_state *s, int32_t i, str part, bool begins);

/* ---- bytes ---- */

/* How many of text's first bytes are whole characters. */
static size_t whole_chars(str text) {
    size_t n = 0, len;
    while (n < text.n && utf8_decode(text.p + n, text.n - n, &len) >= 0) {
        n += len;
    }
    return n;
}

/* Outputs the withheld bytes: whole characters, U+FFFD for each invalid part. Keeps a tail that may still become a character, unless all is
 * set. each_byte: U+FFFD for each byte of an invalid part. */
static quire_err put_bytes(decode_state *s, int32_t i, bool all, bool each_byte) {
    strbuf *t = &s->held[i].text, *w = &s->work[i];
    size_t n = t->n, done = whole_chars((str){t->p, n}), len;
    if (done == n) { /* as almost always */
        t->n = 0;
        return n == 0 ? QUIRE_OK : put(s, i + 1, (str){t->p, n}, true);
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
    return w->n == 0 ? QUIRE_OK : put(s, i + 1, (str){w->p, w->n}, true);
}

/* True for "<0xAB>". */
static bool is_byte_token(str token, uint8_t *byte) {
    if (token.n != 6 || memcmp(token.p, "<0x", 3) != 0 || token.p[5] != '>') {
        return false;
    }
    int high = hex_digit(token.p[3]), low = hex_digit(token.p[4]);
    *byte = (uint8_t)(high * 16 + low);
    return high >= 0 && low >= 0;
}

/* Ends a run of byte tokens. */
static quire_err end_fallback(decode_state *s, int32_t i) {
    strbuf *t = &s->held[i].text;
    if (s->mode == DECODE_STREAM || utf8_is_valid((str){t->p, t->n})) {
        return put_bytes(s, i, true, true);
    }
    strbuf *w = &s->work[i];
    strbuf_clear(w);
    for (size_t k = 0; k < t->n; k++) {
        TRY(strbuf_add_str(w, UTF8_REPLACEMENT));
    }
    t->n = 0;
    return put(s, i + 1, (str){w->p, w->n}, true);
}

static quire_err put_fallback(decode_state *s, int32_t i, str part) {
    uint8_t byte;
    strbuf *t = &s->held[i].text;
    if (is_byte_token(part, &byte)) {
        TRY(strbuf_add_char(t, (char)byte));
        return s->mode == DECODE_STREAM ? put_bytes(s, i, false, true) : QUIRE_OK;
    }
    if (t->n > 0) {
        TRY(end_fallback(s, i));
    }
    return put(s, i + 1, part, true);
}

/* ---- texts ---- */

static quire_err put_replaced(decode_state *s, int32_t i, const matcher *m, str part, str by, bool begins) {
    strbuf_clear(&s->work[i]);
    TRY(matcher_replace(m, &s->scratch, part, by, &s->work[i]));
    return put(s, i + 1, (str){s->work[i].p, s->work[i].n}, begins);
}

static quire_err put_strip(decode_state *s, int32_t i, str part, bool begins) {
    const decode_step *step = &s->decoder->steps[i];
    decode_held *h = &s->held[i];
    strbuf *w = &s->work[i];
    if (begins) { /* text withheld from the token before was its end: dropped */
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
            if (++h->n_back > step->stop) { /* only the last ones may be cut */
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
    return put(s, i + 1, (str){w->p, w->n}, begins);
}

/* A token's suffix is a space, and nothing at the end of all. So what may end in one is withheld until the next token comes: the text from
 * the suffix on, or all of the token where a later step is to see it whole. */
static quire_err put_suffix(decode_state *s, int32_t i, str token) {
    const decode_step *step = &s->decoder->steps[i];
    matcher literal = {.literal = step->content, .n_literal = step->n_content};
    strbuf *held = &s->held[i].text, *w = &s->work[i];
    bool is_last = i + 1 == s->decoder->n;
    strbuf_clear(w);
    if (held->n > 0) { /* the withheld text was not the last */
        TRY(matcher_replace(&literal, &s->scratch, (str){held->p, held->n}, (str){" ", 1}, w));
        TRY(put(s, i + 1, (str){w->p, w->n}, !is_last));
    }
    match_iter it = {.subject = token};
    bool found;
    TRY(matcher_next(&literal, &s->scratch, &it, &found));
    size_t settled = !found ? token.n : is_last ? it.start : 0;
    strbuf_clear(held);
    TRY(strbuf_add(held, token.p + settled, token.n - settled));
    return settled < token.n && !is_last ? QUIRE_OK : put(s, i + 1, (str){token.p, settled}, true);
}

/* transformers' clean-up of tokenization spaces, within one token. */
static quire_err clean_up(decode_state *s, strbuf *text, strbuf *tmp) {
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        char literal[16];
        size_t n = strlen(pairs[k][0]);
        memcpy(literal, pairs[k][0], n);
        matcher m = {.literal = literal, .n_literal = n};
        strbuf_clear(tmp);
        TRY(matcher_replace(&m, &s->scratch, (str){text->p, text->n}, str_of(pairs[k][1]), tmp));
        strbuf swapped = *text;
        *text = *tmp;
        *tmp = swapped;
    }
    return QUIRE_OK;
}

static quire_err put_wordpiece(decode_state *s, int32_t i, str token, bool first) {
    const decode_step *step = &s->decoder->steps[i];
    strbuf *w = &s->work[i];
    bool marked = token.n >= step->n_content && memcmp(token.p, step->content, step->n_content) == 0;
    bool is_name = str_begins(token, "[") && str_ends(token, "]"); /* "[SEP]": a word by itself */
    bool continues = step->marks_words ? !marked && !is_name : marked;
    strbuf_clear(w);
    if (marked && (step->marks_words || !first)) {
        token = (str){token.p + step->n_content, token.n - step->n_content};
    }
    TRY(!first && !continues ? strbuf_add_char(w, ' ') : QUIRE_OK);
    TRY(strbuf_add(w, token.p, token.n));
    if (step->cleanup) {
        TRY(clean_up(s, w, &s->held[i].text));
    }
    return put(s, i + 1, (str){w->p, w->n}, true);
}

static quire_err put(decode_state *s, int32_t i, str part, bool begins) {
    if (i == s->decoder->n) {
        return strbuf_add(s->out, part.p, part.n);
    }
    const decode_step *step = &s->decoder->steps[i];
    decode_held *h = &s->held[i];
    bool first = h->n_tokens == 0;
    h->n_tokens += begins;
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        TRY(byte_level_add_bytes(&h->text, part));
        return put_bytes(s, i, false, false);
    case DECODE_BYTE_FALLBACK:
        return put_fallback(s, i, part);
    case DECODE_REPLACE:
        return put_replaced(s, i, &step->match, part, (str){step->content, step->n_content}, begins);
    case DECODE_METASPACE:
        return put_replaced(s, i, &(matcher){.literal = step->content, .n_literal = step->n_content}, part,
                            first && !step->keep_first ? (str){"", 0} : (str){" ", 1}, begins);
    case DECODE_FUSE:
        return put(s, i + 1, part, first);
    case DECODE_STRIP:
        return put_strip(s, i, part, begins);
    case DECODE_SUFFIX:
        return put_suffix(s, i, part);
    case DECODE_WORDPIECE:
        return begins ? put_wordpiece(s, i, part, first) : put(s, i + 1, part, false);
    case DECODE_SPACED:
        if (!first && begins) {
            TRY(put(s, i + 1, (str){" ", 1}, true));
        }
        return put(s, i + 1, part, begins);
    default:
        return strbuf_add(s->out, part.p, part.n);
    }
}

/* SentencePiece decides by a token's class, so this is the only step of its decoder. */
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
        return step->unknown != NULL ? strbuf_add(s->out, step->unknown, step->n_unknown) : strbuf_add_str(s->out, " \xE2\x81\x87 ");
    }
    size_t n = step->n_content;
    if (first && step->strip_first && token.n >= n && memcmp(token.p, step->content, n) == 0) {
        token = (str){token.p + n, token.n - n};
        h->n_tokens -= step->strip_all && token.n == 0; /* nothing was shown */
    }
    if (!utf8_is_valid(token)) {
        return utf8_add_lossy(s->out, token);
    }
    matcher mark = {.literal = step->content, .n_literal = n};
    return matcher_replace(&mark, &s->scratch, token, (str){" ", 1}, s->out);
}

quire_err decode_add(decode_state *s, str token, piece_class class, strbuf *out) {
    s->out = out;
    if (s->decoder->n > 0 && s->decoder->steps[0].kind == DECODE_SENTENCEPIECE) {
        return add_sentencepiece(s, token, class);
    }
    return put(s, 0, token, true);
}

static quire_err finish_step(decode_state *s, int32_t i) {
    const decode_step *step = &s->decoder->steps[i];
    strbuf *held = &s->held[i].text;
    switch (step->kind) {
    case DECODE_BYTE_LEVEL:
        return put_bytes(s, i, true, false);
    case DECODE_SENTENCEPIECE:
        return put_bytes(s, i, true, true);
    case DECODE_BYTE_FALLBACK:
        return held->n > 0 ? end_fallback(s, i) : QUIRE_OK;
    case DECODE_SUFFIX: {
        matcher literal = {.literal = step->content, .n_literal = step->n_content};
        return held->n == 0 ? QUIRE_OK : put_replaced(s, i, &literal, (str){held->p, held->n}, (str){"", 0}, i + 1 < s->decoder->n);
    }
    default:
        return QUIRE_OK;
    }
}

quire_err decode_finish(decode_state *s, strbuf *out) {
    s->out = out;
    for (int32_t i = 0; i < s->decoder->n; i++) {
        TRY(finish_step(s, i));
    }
    reset(s);
    return QUIRE_OK;
}

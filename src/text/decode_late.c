/* Decoder steps after one that makes one token of all: that token comes to them in
 * parts. */
#include "text/chars.h"
#include "text/decode_steps.h"

enum { BYTE_TOKEN = 6 }; /* bytes of "<0xAB>" */

/* What the step replaces as a literal, and by what. False: it does not. */
static bool literal_of(const decode_step *step, matcher *m, str *by) {
    bool replaces = step->kind == DECODE_REPLACE;
    *m = replaces ? step->match : (matcher){.literal = step->content, .n_literal = step->n_content};
    *by = replaces ? (str){step->content, step->n_content}
                   : (str){"", 0}; /* SUFFIX: the one token is the last */
    return (replaces || step->kind == DECODE_SUFFIX) && m->re == NULL && m->n_literal > 0;
}

static quire_err pass_on(decode_state *s, int32_t i, str part) {
    bool begins = !s->held[i].begun;
    s->held[i].begun = true;
    return decode_put(s, i + 1, part, begins);
}

/* Replaces a literal where it is whole, and withholds what may be the beginning of
 * one. */
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
    return pass_on(s, i, (str){w->p, w->n});
}

/* A byte token is the whole text, or there is none. */
static quire_err decode_late_put_fallback(decode_state *s, int32_t i, str part) {
    strbuf *held = &s->held[i].text;
    if (s->held[i].begun) {
        return pass_on(s, i, part);
    }
    TRY(strbuf_add(held, part.p, part.n));
    if (held->n <= BYTE_TOKEN) {
        return QUIRE_OK;
    }
    TRY(pass_on(s, i, (str){held->p, held->n}));
    strbuf_clear(held);
    return QUIRE_OK;
}

quire_err decode_put_late(decode_state *s, int32_t i, str part, bool begins) {
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

quire_err decode_finish_late(decode_state *s, int32_t i) {
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
    return literal_of(step, &m, &by) ? pass_on(s, i, text) : decode_run(s, i, text, true);
}

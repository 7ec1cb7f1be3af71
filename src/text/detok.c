#include "text/detok.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/chars.h"
#include "text/tokenizer_impl.h"

struct detok {
    const tokenizer *t;
    bool skip_special;
    decode_state state;
    strbuf piece;  /* text of the last token */
    bool holds;    /* U+FFFD at the end is withheld */
    size_t n_held; /* number of U+FFFD withheld */
};

quire_err detok_open(const tokenizer *t, bool skip_special, detok **out) {
    detok *d = mem_new(1, sizeof *d);
    TRY(mem_check(d));
    d->t = t;
    d->skip_special = skip_special;
    decode_begin(&d->state, &t->decoder, DECODE_STREAM);
    *out = d;
    return QUIRE_OK;
}

void detok_close(detok *d) {
    if (d != NULL) {
        decode_deinit(&d->state);
        strbuf_deinit(&d->piece);
        mem_free(d);
    }
}

void detok_hold_replacements(detok *d) {
    d->holds = true;
}

/* Appends the withheld replacement characters. */
static quire_err give_held(detok *d, strbuf *out) {
    for (; d->n_held > 0; d->n_held--) {
        TRY(strbuf_add_str(out, UTF8_REPLACEMENT));
    }
    return QUIRE_OK;
}

/* Appends d->piece to *out. If U+FFFD is to be withheld, withholds those at its end. */
static quire_err detok_give_piece(detok *d, strbuf *out) {
    size_t n = d->piece.n, n_tail = 0, width = strlen(UTF8_REPLACEMENT);
    while (d->holds && n >= width && memcmp(d->piece.p + n - width, UTF8_REPLACEMENT, width) == 0) {
        n -= width;
        n_tail++;
    }
    if (n > 0) {
        TRY(give_held(d, out));
        TRY(strbuf_add(out, d->piece.p, n));
    }
    d->n_held += n_tail;
    return QUIRE_OK;
}

quire_err detok_prime(detok *d, const int32_t *ids, size_t n) {
    strbuf dropped = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        strbuf_clear(&dropped);
        e = detok_add(d, ids[i], &dropped);
    }
    strbuf_deinit(&dropped);
    return e;
}

quire_err detok_add(detok *d, int32_t id, strbuf *out) {
    assert(d != NULL);
    str text;
    piece_class class;
    if (!tokenizer_decodes(d->t, id, d->skip_special, &text, &class)) {
        return QUIRE_OK;
    }
    strbuf_clear(&d->piece);
    TRY(decode_add(&d->state, text, class, &d->piece));
    return detok_give_piece(d, out);
}

quire_err detok_flush(detok *d, strbuf *out) {
    TRY(give_held(d, out));
    return decode_finish(&d->state, out);
}

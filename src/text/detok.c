#include "text/detok.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_impl.h"

#define REPLACEMENT "\xef\xbf\xbd"

struct detok {
    const tokenizer *t;
    bool skip_special;
    decode_state state;
    strbuf piece;   /* what the last token gave */
    size_t n_held;  /* U+FFFD at the end of what was decoded, not yet given out */
};

quire_err detok_open(const tokenizer *t, bool skip_special, detok **out) {
    detok *d = mem_new(1, sizeof *d);
    if (d == NULL) {
        return QUIRE_NO_MEMORY;
    }
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

/* Gives out the replacement characters that were held back. */
static quire_err give_held(detok *d, strbuf *out) {
    for (; d->n_held > 0; d->n_held--) {
        TRY(strbuf_add_str(out, REPLACEMENT));
    }
    return QUIRE_OK;
}

/* Appends d->piece to *out but for replacement characters at its end: bytes that make no character may be the beginning of one whose rest is
 * still to come, and the tokenizers library's stream waits for the next character before it says that they are not. */
static quire_err give_piece(detok *d, strbuf *out) {
    size_t n = d->piece.n, n_tail = 0, width = strlen(REPLACEMENT);
    while (n >= width && memcmp(d->piece.p + n - width, REPLACEMENT, width) == 0) {
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
    str surface = tokenizer_piece(d->t, id);
    if (surface.n == 0 || (d->skip_special && tokenizer_is_special(d->t, id))) {
        return QUIRE_OK;
    }
    strbuf_clear(&d->piece);
    TRY(decode_add(&d->state, surface, tokenizer_class(d->t, id), &d->piece));
    return give_piece(d, out);
}

quire_err detok_flush(detok *d, strbuf *out) {
    TRY(give_held(d, out));
    return decode_finish(&d->state, out);
}

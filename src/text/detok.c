#include "text/detok.h"

#include "base/mem.h"
#include "text/tokenizer_impl.h"

struct detok {
    const tokenizer *t;
    bool skip_special;
    decode_state state;
    strbuf dropped; /* what priming gives */
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
        strbuf_deinit(&d->dropped);
        mem_free(d);
    }
}

quire_err detok_prime(detok *d, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        strbuf_clear(&d->dropped);
        TRY(detok_add(d, ids[i], &d->dropped));
    }
    return QUIRE_OK;
}

quire_err detok_add(detok *d, int32_t id, strbuf *out) {
    str piece = tokenizer_piece(d->t, id);
    if (piece.n == 0 || (d->skip_special && tokenizer_is_special(d->t, id))) {
        return QUIRE_OK;
    }
    return decode_add(&d->state, piece, tokenizer_class(d->t, id), out);
}

quire_err detok_flush(detok *d, strbuf *out) {
    return decode_finish(&d->state, out);
}

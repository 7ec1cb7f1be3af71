/* Tokenizers without a model: quire_tokenizer of quire.h. */
#include "base/mem.h"
#include "quire.h"
#include "setup/engine_config.h"
#include "text/tokenizer.h"

struct quire_tokenizer {
    model_file *f; /* t may use its tables in place */
    tokenizer *t;
};

quire_err quire_tokenizer_open(const char *path, quire_tokenizer **out, quire_error *err) {
    size_t n = 0;
    const void *bytes = options_builtin_model(path, &n);
    quire_tokenizer *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "a tokenizer", err));
    quire_err e = bytes != NULL ? model_file_open_memory(bytes, n, path, &t->f, err)
                                : model_file_open_vocabulary(path, &t->f, err);
    e = e == QUIRE_OK ? tokenizer_open(model_file_vocab(t->f), &t->t, err) : e;
    if (e != QUIRE_OK) {
        quire_tokenizer_close(t);
        return e;
    }
    *out = t;
    return QUIRE_OK;
}

void quire_tokenizer_close(quire_tokenizer *t) {
    if (t != NULL) {
        tokenizer_close(t->t);
        model_file_close(t->f);
        mem_free(t);
    }
}

quire_err quire_tokenizer_encode(const quire_tokenizer *t, const char *text, size_t n, bool add_special,
                                 int32_t **ids, size_t *n_ids, quire_error *err) {
    token_list l = {0};
    encode_options o = {.special = ENCODE_PARSE, .add_special = add_special};
    quire_err e = tokenizer_encode(t->t, (str){text, n}, o, &l, err);
    if (e != QUIRE_OK) {
        token_list_deinit(&l);
        return e;
    }
    *ids = l.ids;
    *n_ids = l.n;
    return QUIRE_OK;
}

quire_err quire_tokenizer_decode(const quire_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                                 char **text, size_t *n_text, quire_error *err) {
    strbuf b = {0};
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_n_tokens(t->t)) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "token id %d is out of the vocabulary's range 0..%d",
                           (int)ids[i], (int)tokenizer_n_tokens(t->t) - 1);
        }
    }
    quire_err e = tokenizer_decode(t->t, ids, n, skip_special, &b);
    e = e != QUIRE_OK ? e : strbuf_add(&b, "", 0);
    if (e != QUIRE_OK) {
        strbuf_deinit(&b);
        return err_set(err, e, -1, "%zu tokens could not be decoded: %s", n, quire_err_text(e));
    }
    *text = b.p;
    *n_text = b.n;
    return QUIRE_OK;
}

const char *quire_tokenizer_piece(const quire_tokenizer *t, int32_t id, size_t *n) {
    str piece = tokenizer_piece(t->t, id);
    *n = piece.n;
    return piece.p;
}

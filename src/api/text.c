/* The text functions of quire.h. */
#include <assert.h>
#include <string.h>

#include "api/quire_engine.h"
#include "base/mem.h"
#include "quire.h"
#include "setup/engine_config.h"
#include "text/token_texts.h"
#include "text/tokenizer.h"

static quire_err no_vocabulary(const quire_engine *e, quire_error *err) {
    const char *why = e->parts.text_error.code == QUIRE_UNSUPPORTED ? e->parts.text_error.message
                                                                    : "the model has no vocabulary";
    return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: text cannot be used; token ids can", why);
}

static quire_err check_id(const quire_engine *e, int32_t id, quire_error *err) {
    int32_t n_vocab = e->parts.info.n_vocab;
    return id >= 0 && id < n_vocab
               ? QUIRE_OK
               : err_set(err, QUIRE_BAD_REQUEST, -1, "token id %d is out of the vocabulary's range 0..%d",
                         (int)id, (int)n_vocab - 1);
}

quire_err quire_tokenize(const quire_engine *e, const char *text, size_t n, bool add_special, int32_t **ids,
                         size_t *n_ids, quire_error *err) {
    token_list l = {0};
    if (!e->parts.tokenizer) {
        return no_vocabulary(e, err);
    }
    quire_err r =
        tokenizer_encode(e->parts.tokenizer, (str){text, n},
                         (encode_options){.special = ENCODE_PARSE, .add_special = add_special}, &l, err);
    if (r != QUIRE_OK) {
        token_list_deinit(&l);
        return r;
    }
    *ids = l.ids;
    *n_ids = l.n;
    return QUIRE_OK;
}

quire_err quire_tokenize_pair(const quire_engine *e, const char *text, size_t n_text, const char *pair,
                              size_t n_pair, int32_t **ids, int32_t **types, size_t *n, quire_error *err) {
    token_list l = {0}, kinds = {0};
    bool has_types = e->streams.context.n_token_types > 1;
    if (!e->parts.tokenizer) {
        return no_vocabulary(e, err);
    }
    quire_err r = tokenizer_encode_pair(e->parts.tokenizer, (str){text, n_text}, &(str){pair, n_pair},
                                        ENCODE_PLAIN, &l, has_types ? &kinds : NULL, err);
    if (r != QUIRE_OK) {
        token_list_deinit(&l);
        token_list_deinit(&kinds);
        return r;
    }
    *ids = l.ids;
    *types = kinds.ids;
    *n = l.n;
    return QUIRE_OK;
}

quire_err quire_detokenize(const quire_engine *e, const int32_t *ids, size_t n, bool skip_special,
                           char **text, size_t *n_text, quire_error *err) {
    strbuf b = {0};
    if (!e->parts.tokenizer) {
        return no_vocabulary(e, err);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(check_id(e, ids[i], err));
    }
    quire_err r = tokenizer_decode(e->parts.tokenizer, ids, n, skip_special, &b);
    TRY_DONE(r, strbuf_add(&b, "", 0));
done:
    if (r != QUIRE_OK) {
        strbuf_deinit(&b);
        return err_set(err, r, -1, "%zu tokens could not be decoded: %s", n, quire_err_text(r));
    }
    *text = b.p;
    *n_text = b.n;
    return QUIRE_OK;
}

quire_err quire_token_bytes(const quire_engine *e, int32_t id, char **bytes, size_t *n, quire_error *err) {
    strbuf b = {0};
    if (!e->parts.tokenizer) {
        return no_vocabulary(e, err);
    }
    TRY(check_id(e, id, err));
    quire_err r = token_bytes_add_one(e->parts.tokenizer, id, &b);
    TRY_DONE(r, strbuf_add(&b, "", 0));
done:
    if (r != QUIRE_OK) {
        strbuf_deinit(&b);
        return err_set(err, r, -1, "token %d could not be decoded: %s", (int)id, quire_err_text(r));
    }
    *bytes = b.p;
    *n = b.n;
    return QUIRE_OK;
}

const char *quire_token_piece(const quire_engine *e, int32_t id, size_t *n) {
    assert(e != NULL);
    str piece = e->parts.tokenizer ? tokenizer_piece(e->parts.tokenizer, id) : (str){"", 0};
    *n = piece.n;
    return piece.p ? piece.p : "";
}

const char *quire_engine_chat_template(const quire_engine *e, size_t *n) {
    assert(e != NULL);
    const chat_template *t = e->parts.tokenizer ? e->parts.chat.template : NULL;
    str source = t != NULL ? chat_template_source(t) : (str){"", 0};
    *n = source.n;
    return source.n > 0 ? source.p : "";
}

void *quire_alloc(size_t n) {
    return mem_new(n, 1);
}

void quire_free(void *p) {
    mem_free(p);
}

/* ---- tokenizers without a model ---- */

struct quire_tokenizer {
    model_file *f; /* owned: t may use its tables in place */
    tokenizer *t;
};

quire_err quire_tokenizer_open(const char *path, quire_tokenizer **out, quire_error *err) {
    size_t n = 0;
    const void *bytes = options_builtin_model(path, &n);
    quire_tokenizer *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "a tokenizer", err));
    quire_err e = bytes != NULL ? model_file_open_memory(bytes, n, path, &t->f, err)
                                : model_file_open_vocabulary(path, &t->f, err);
    TRY_DONE(e, tokenizer_open(model_file_vocab(t->f), &t->t, err));
done:
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
    TRY_DONE(e, strbuf_add(&b, "", 0));
done:
    if (e != QUIRE_OK) {
        strbuf_deinit(&b);
        return err_set(err, e, -1, "%zu tokens could not be decoded: %s", n, quire_err_text(e));
    }
    *text = b.p;
    *n_text = b.n;
    return QUIRE_OK;
}

const char *quire_tokenizer_piece(const quire_tokenizer *t, int32_t id, size_t *n) {
    assert(t != NULL);
    str piece = tokenizer_piece(t->t, id);
    *n = piece.n;
    return piece.p;
}

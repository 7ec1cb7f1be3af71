#include "lab/bench/score_text.h"

#include "base/err.h"
#include "model/model.h"

static quire_err score_text_encode(const score_text *s, const model_file *f, token_list *ids,
                                   quire_error *err) {
    tokenizer *t;
    quire_error why;
    quire_err e = tokenizer_open(model_file_vocab(f), &t, &why);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1,
                       "%s: the model's vocabulary cannot be used (%s); give the text as ids with --ids-file",
                       s->name, e == QUIRE_NOT_FOUND ? "it has none" : why.message);
    }
    e = tokenizer_encode(t, s->text, (encode_options){.special = ENCODE_PARSE, .add_special = true}, ids,
                         err);
    tokenizer_close(t);
    return e;
}

static quire_err score_text_copy_ids(const score_text *s, const model_desc *d, token_list *ids,
                                     quire_error *err) {
    for (size_t i = 0; i < s->n_ids; i++) {
        if (s->ids[i] < 0 || s->ids[i] >= d->n_vocab) {
            return err_set(err, QUIRE_INVALID, (int64_t)i,
                           "%s: id %d at place %zu; the model has tokens 0 to %d", s->name, (int)s->ids[i], i,
                           (int)d->n_vocab - 1);
        }
        TRY(token_list_add(ids, s->ids[i]) == QUIRE_OK
                ? QUIRE_OK
                : err_set(err, QUIRE_NO_MEMORY, -1, "%s: out of memory", s->name));
    }
    return QUIRE_OK;
}

quire_err score_text_read(const score_text *t, const model_file *f, model_desc *d, token_list *ids,
                          quire_error *err) {
    TRY(model_describe(f, d, err));
    if (!desc_gives_tokens(d)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s gives rows, no tokens: it predicts no text", d->name);
    }
    return t->ids != NULL ? score_text_copy_ids(t, d, ids, err) : score_text_encode(t, f, ids, err);
}

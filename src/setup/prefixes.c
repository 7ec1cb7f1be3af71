#include "setup/prefixes.h"

#include "base/mem.h"

/* Appends the ids of one prefix to the empty *out. */
static quire_err read_ids(const quire_prefix *p, const tokenizer *t, token_list *out, quire_error *err) {
    if (!p->ids) {
        if (!t) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "this model has no vocabulary that this build can use; give the public prefix as token ids");
        }
        return tokenizer_encode(t, (str){p->text, p->n_text}, (encode_options){.special = ENCODE_PARSE, .add_special = true}, out, err);
    }
    quire_err e = token_list_add_all(out, p->ids, p->n_ids);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a public prefix");
}

static quire_err check_ids(const token_list *l, int32_t page_tokens, int32_t n_vocab, quire_error *err) {
    if (l->n < (size_t)page_tokens || l->n > INT32_MAX) {
        return err_set(err, QUIRE_INVALID, -1, "the public prefix has %zu tokens; only whole pages are shared, so it must have at least %d",
                       l->n, (int)page_tokens);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (l->ids[i] < 0 || l->ids[i] >= n_vocab) {
            return err_set(err, QUIRE_INVALID, -1, "the public prefix has token id %d; the vocabulary has %d ids", (int)l->ids[i],
                           (int)n_vocab);
        }
    }
    return QUIRE_OK;
}

quire_err prefixes_read(const quire_options *o, const tokenizer *t, int32_t n_vocab, prefix_list *out, quire_error *err) {
    *out = (prefix_list){0};
    if (o->n_public_prefixes == 0) {
        return QUIRE_OK;
    }
    out->ids = mem_new((size_t)o->n_public_prefixes, sizeof *out->ids);
    out->list = mem_new((size_t)o->n_public_prefixes, sizeof *out->list);
    if (!out->ids || !out->list) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for public prefixes");
    }
    for (int32_t i = 0; i < o->n_public_prefixes; i++) {
        token_list *ids = &out->ids[out->n++];
        TRY(read_ids(&o->public_prefixes[i], t, ids, err));
        TRY(check_ids(ids, o->page_tokens, n_vocab, err));
        out->list[i] = (engine_prefix){ids->ids, (int32_t)ids->n};
    }
    return QUIRE_OK;
}

void prefixes_free(prefix_list *l) {
    for (int32_t i = 0; i < l->n; i++) {
        token_list_deinit(&l->ids[i]);
    }
    mem_free(l->ids);
    mem_free(l->list);
    *l = (prefix_list){0};
}

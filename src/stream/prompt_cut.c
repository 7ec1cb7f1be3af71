#include "stream/prompt_cut.h"

#include <assert.h>

/* The tokens that g's prompt may have at most. */
static size_t prompt_cut_limit(const generation *g, int32_t max_model_len) {
    bool gives_rows = dialect_of(g)->gives_rows;
    int32_t max_tokens = g->sampling.max_tokens, reserved = gives_rows ? 0
                                                            : max_tokens > 0 && max_tokens < max_model_len
                                                                ? max_tokens
                                                                : 1;
    return (size_t)(g->truncate_prompt_tokens >= 0 ? g->truncate_prompt_tokens : max_model_len - reserved);
}

/* Counts the special tokens at both ends of ids: those that an empty text has too. */
static quire_err count_ends(const generation *g, const tokenizer *t, const token_list *ids, size_t *head,
                            size_t *tail, quire_error *err) {
    token_list ends = {0};
    quire_err e = tokenizer_encode(
        t, (str){"", 0}, (encode_options){.add_special = g->add_special, .add_bos = g->add_bos}, &ends, err);
    *head = *tail = 0;
    while (e == QUIRE_OK && *head < ends.n && *head < ids->n && ends.ids[*head] == ids->ids[*head]) {
        (*head)++;
    }
    while (e == QUIRE_OK && *head + *tail < ends.n && *head + *tail < ids->n &&
           ends.ids[ends.n - 1 - *tail] == ids->ids[ids->n - 1 - *tail]) {
        (*tail)++;
    }
    token_list_deinit(&ends);
    return e;
}

/* Removes n elements from index `from` on, and the memory that a long text took. */
static quire_err prompt_cut_remove(token_list *l, size_t from, size_t n, quire_error *err) {
    token_list left = {0};
    if (l->n == 0) {
        return QUIRE_OK;
    }
    assert(from + n <= l->n);
    quire_err e = token_list_add_all(&left, l->ids, from);
    e = e == QUIRE_OK ? token_list_add_all(&left, l->ids + from + n, l->n - from - n) : e;
    if (e != QUIRE_OK) {
        token_list_deinit(&left);
        return err_set(err, e, -1, "out of memory for a prompt");
    }
    token_list_deinit(l);
    *l = left;
    return QUIRE_OK;
}

quire_err prompt_cut(const generation *g, int32_t max_model_len, const tokenizer *t, bool is_text,
                     token_list *ids, token_list *types, bool *is_cut, quire_error *err) {
    size_t head = 0, tail = 0;
    *is_cut = false;
    if (g->truncate_prompt_tokens == GENERATION_UNCUT || ids->n <= prompt_cut_limit(g, max_model_len)) {
        return QUIRE_OK;
    }
    size_t n_over = ids->n - prompt_cut_limit(g, max_model_len);
    bool keeps_end = g->keeps_end >= 0 ? g->keeps_end > 0 : !dialect_of(g)->gives_rows;
    if (is_text) {
        TRY(count_ends(g, t, ids, &head, &tail, err));
    }
    if (head + tail + n_over > ids->n) {
        head = tail = 0;
    }
    size_t from = keeps_end ? head : ids->n - tail - n_over;
    TRY(prompt_cut_remove(ids, from, n_over, err));
    TRY(prompt_cut_remove(types, from, n_over, err));
    *is_cut = true;
    return QUIRE_OK;
}

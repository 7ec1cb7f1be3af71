/* Whether a request's own rules let a budget of reasoning write the closing mark. */
#include <string.h>

#include "api/thinking_budget.h"
#include "core/sampling_lists.h"
#include "sample/end_tokens.h"

static bool has_bad_word(const token_seqs *words, const int32_t *mark, int32_t n) {
    for (int32_t i = 0; i < words->n; i++) {
        int32_t length = words->starts[i + 1] - words->starts[i];
        for (int32_t at = 0; at + length <= n; at++) {
            if (memcmp(mark + at, words->tokens + words->starts[i], (size_t)length * sizeof *mark) == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool has_all(const int32_t *allowed, int32_t n_allowed, const int32_t *mark, int32_t n) {
    int32_t i = 0;
    while (i < n && end_token_is_one_of(mark[i], allowed, n_allowed)) {
        i++;
    }
    return i == n;
}

quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d, quire_error *err) {
    int32_t n;
    const int32_t *mark = thinking_budget_mark(c, &n);
    for (int32_t i = 0; i + 1 < n; i++) { /* the last one may end the answer */
        end_kind end = end_token_kind(p, d, mark[i]);
        if (end != END_NONE) {
            return err_set_param(err, QUIRE_BAD_REQUEST, end == END_EOS ? "thinking_token_budget" : "stop_token_ids",
                                 "token %d ends the answer inside the mark that ends the reasoning at its thinking_token_budget",
                                 (int)mark[i]);
        }
    }
    if (p->lists != NULL && has_bad_word(&p->lists->bad_words, mark, n)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "bad_words",
                             "a bad word is in the mark that ends the reasoning at its thinking_token_budget");
    }
    if (p->lists != NULL && p->lists->has_allowed && !has_all(p->lists->allowed, p->lists->n_allowed, mark, n)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "allowed_token_ids",
                             "the mark that ends the reasoning at its thinking_token_budget has a token that is not allowed");
    }
    return QUIRE_OK;
}

/* Whether a request's own rules let a budget of reasoning write the closing mark. */
#include <stdalign.h>
#include <string.h>

#include "answer/thinking_budget.h"
#include "core/params.h"
#include "sample/constraint.h"

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

/* Whether the answer may end after the mark. A rule that does not take the mark first
 * thing is asked when it comes. */
static bool may_end(const constraint *inner, const int32_t *mark, int32_t n) {
    alignas(max_align_t) uint8_t state[CONSTRAINT_MAX_STATE_BYTES];
    if (inner == NULL) {
        return true;
    }
    inner->ops->init(inner, state);
    for (int32_t i = 0; i < n; i++) {
        if (inner->ops->accept(inner, state, mark[i]) != QUIRE_OK) {
            return true;
        }
    }
    return inner->ops->is_final(inner, state);
}

quire_err thinking_budget_check(const constraint *c, const sampling_params *p, const model_desc *d,
                                quire_error *err) {
    int32_t n;
    const int32_t *mark = thinking_budget_mark(c, &n);
    for (int32_t i = 0; i + 1 < n; i++) { /* the last one may end the answer */
        end_kind end = end_token_kind(p, d, mark[i]);
        if (end != END_NONE) {
            return err_set_param(err, QUIRE_BAD_REQUEST,
                                 end == END_EOS ? "thinking_token_budget" : "stop_token_ids",
                                 "token %d ends the answer inside the mark that ends the reasoning at its "
                                 "thinking_token_budget",
                                 (int)mark[i]);
        }
    }
    if (end_token_kind(p, d, mark[n - 1]) != END_NONE && !may_end(thinking_budget_inner(c), mark, n)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "stop_token_ids",
                             "token %d ends the answer with the reasoning, at its thinking_token_budget, "
                             "before what its rule wants",
                             (int)mark[n - 1]);
    }
    if (p->lists != NULL && has_bad_word(&p->lists->bad_words, mark, n)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "bad_words",
            "a bad word is in the mark that ends the reasoning at its thinking_token_budget");
    }
    if (p->lists != NULL && p->lists->has_allowed &&
        !has_all(p->lists->allowed, p->lists->n_allowed, mark, n)) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "allowed_token_ids",
            "the mark that ends the reasoning at its thinking_token_budget has a token that is not allowed");
    }
    return QUIRE_OK;
}

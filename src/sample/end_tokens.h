/* End tokens complete a sequence: the model's end-of-sequence tokens, unless the request
 * ignores them, and the request's own stop tokens. Pure. */
#ifndef SAMPLE_END_TOKENS_H
#define SAMPLE_END_TOKENS_H

#include "core/model_desc.h"
#include "core/params.h"

typedef enum end_kind { END_NONE, END_EOS, END_STOP_TOKEN } end_kind;

static inline bool end_token_is_one_of(int32_t token, const int32_t *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i] == token) {
            return true;
        }
    }
    return false;
}

/* The kind of token under these parameters; an ignored end-of-sequence token is END_NONE.
 * O(end tokens). */
static inline end_kind end_token_kind(const sampling_params *p, const model_desc *d, int32_t token) {
    if (!p->ignore_eos && end_token_is_one_of(token, d->eos, d->n_eos)) {
        return END_EOS;
    }
    return end_token_is_one_of(token, p->stop_tokens, p->n_stop_tokens) ? END_STOP_TOKEN : END_NONE;
}
/* Whether min_tokens bans token at first: it bans end tokens, ignored ones too. */
bool end_token_is_delayed(const sampling_params *p, const model_desc *d, int32_t token);
/* Lists the end tokens and returns how many there are. NULL: only counts them. */
int32_t end_tokens_list(const sampling_params *p, const model_desc *d, int32_t *out);

#endif

#include "sample/constraint.h"

#include <assert.h>

bool end_token_is_delayed(const sampling_params *p, const model_desc *d, int32_t token) {
    return p->min_tokens > 0 && (end_token_is_one_of(token, d->eos, d->n_eos) ||
                                 end_token_is_one_of(token, p->stop_tokens, p->n_stop_tokens));
}

int32_t end_tokens_list(const sampling_params *p, const model_desc *d, int32_t *out) {
    assert(p != NULL);
    int32_t n_eos = p->ignore_eos ? 0 : d->n_eos;
    for (int32_t i = 0; out != NULL && i < n_eos + p->n_stop_tokens; i++) {
        out[i] = i < n_eos ? d->eos[i] : p->stop_tokens[i - n_eos];
    }
    return n_eos + p->n_stop_tokens;
}

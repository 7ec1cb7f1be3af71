#include "sample/end_tokens.h"

static bool is_one_of(int32_t token, const int32_t *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i] == token) {
            return true;
        }
    }
    return false;
}

end_kind end_token_kind(const sampling_params *p, const model_desc *d, int32_t token) {
    if (!p->ignore_eos && is_one_of(token, d->eos, d->n_eos)) {
        return END_EOS;
    }
    return is_one_of(token, p->stop_tokens, p->n_stop_tokens) ? END_STOP_TOKEN : END_NONE;
}

bool end_token_is_delayed(const sampling_params *p, const model_desc *d, int32_t token) {
    return p->min_tokens > 0 && (is_one_of(token, d->eos, d->n_eos) || is_one_of(token, p->stop_tokens, p->n_stop_tokens));
}

int32_t end_tokens_count(const sampling_params *p, const model_desc *d) {
    return (p->ignore_eos ? 0 : d->n_eos) + p->n_stop_tokens;
}

void end_tokens_list(const sampling_params *p, const model_desc *d, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_eos && !p->ignore_eos; i++) {
        out[n++] = d->eos[i];
    }
    for (int32_t i = 0; i < p->n_stop_tokens; i++) {
        out[n++] = p->stop_tokens[i];
    }
}

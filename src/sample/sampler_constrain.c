/* The first stage of sampling: a constraint's mask (constraint.h), with the end tokens that the constraint does not know. */
#include "sample/end_tokens.h"
#include "sample/sampler_parts.h"

static bool is_end(const sample_context *c, int32_t token) {
    return (!c->params->ignore_eos && end_token_is_one_of(token, c->eos, c->n_eos)) ||
           end_token_is_one_of(token, c->params->stop_tokens, c->params->n_stop_tokens);
}

quire_err sample_accept(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    if (k == NULL) {
        return QUIRE_OK;
    }
    if (is_end(c, token)) {
        return k->ops->is_final(k, c->constraint_state) ? QUIRE_OK : QUIRE_INVALID;
    }
    return k->ops->accept(k, c->constraint_state, token);
}

static void set_bits(uint64_t *bits, const int32_t *tokens, int32_t n, bool allowed) {
    for (int32_t i = 0; i < n; i++) {
        uint64_t bit = (uint64_t)1 << (tokens[i] % 64);
        bits[tokens[i] / 64] = allowed ? bits[tokens[i] / 64] | bit : bits[tokens[i] / 64] & ~bit;
    }
}

static void set_ends(uint64_t *bits, const sample_context *c, bool allowed) {
    set_bits(bits, c->eos, c->params->ignore_eos ? 0 : c->n_eos, allowed);
    set_bits(bits, c->params->stop_tokens, c->params->n_stop_tokens, allowed);
}

static bool has_bits(const uint64_t *bits, int32_t n) {
    uint64_t last = n % 64 > 0 ? bits[n / 64] & (((uint64_t)1 << n % 64) - 1) : 0;
    for (int32_t i = 0; i < n / 64; i++) {
        last |= bits[i];
    }
    return last != 0;
}

quire_err sampler_constrain(sampler *s, const sample_context *c) {
    const constraint *k = c->constraint;
    TRY(k->ops->mask(k, c->constraint_state, s->bits));
    set_ends(s->bits, c, false);
    s->is_final = k->ops->is_final(k, c->constraint_state);
    s->goes_on = has_bits(s->bits, s->n_vocab);
    set_ends(s->bits, c, s->is_final);
    return QUIRE_OK;
}

bool sampler_is_over(const sampler *s, const sample_context *c) {
    return c->constraint != NULL && s->is_final && !has_bits(s->bits, s->n_vocab);
}

/* The first stage of sampling: a constraint's mask (constraint.h), and the end tokens that may complete what it wants. */
#include <stdalign.h>
#include <string.h>

#include "sample/end_tokens.h"
#include "sample/sampler_parts.h"

static bool is_end(const sample_context *c, int32_t token) {
    return (!c->params->ignore_eos && end_token_is_one_of(token, c->eos, c->n_eos)) ||
           end_token_is_one_of(token, c->params->stop_tokens, c->params->n_stop_tokens);
}

/* Whether the output may end with a token that the constraint takes for its last one. The state stays as it is. */
static quire_err accept_last(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    alignas(max_align_t) uint8_t trial[CONSTRAINT_MAX_STATE_BYTES];
    memcpy(trial, c->constraint_state, k->state_bytes);
    TRY(k->ops->accept(k, trial, token));
    return k->ops->is_final(k, trial) ? QUIRE_OK : QUIRE_INVALID;
}

quire_err sample_accept(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    if (k == NULL) {
        return QUIRE_OK;
    }
    if (is_end(c, token)) {
        return k->ops->is_final(k, c->constraint_state) ? QUIRE_OK : accept_last(c, token);
    }
    return k->ops->accept(k, c->constraint_state, token);
}

/* Sets the bits of end tokens: all where the output may end, else those that the constraint takes for its last one. */
static quire_err set_ends(uint64_t *bits, const sample_context *c, bool is_final, const int32_t *ends, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        uint64_t bit = (uint64_t)1 << (ends[i] % 64), *word = &bits[ends[i] / 64];
        quire_err e = is_final ? QUIRE_OK : (*word & bit) != 0 ? accept_last(c, ends[i]) : QUIRE_INVALID;
        if (e != QUIRE_OK && e != QUIRE_INVALID) {
            return e;
        }
        *word = e == QUIRE_OK ? *word | bit : *word & ~bit;
    }
    return QUIRE_OK;
}

/* Whether there is a bit of a token that is no end token. */
static bool has_others(const uint64_t *bits, int32_t n, const sample_context *c) {
    for (int32_t i = 0; i < constraint_words(n); i++) {
        for (uint64_t rest = bits[i]; rest != 0; rest &= rest - 1) {
            int32_t token = 64 * i + __builtin_ctzll(rest);
            if (token < n && !is_end(c, token)) {
                return true;
            }
        }
    }
    return false;
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
    s->is_final = k->ops->is_final(k, c->constraint_state);
    TRY(set_ends(s->bits, c, s->is_final, c->eos, c->params->ignore_eos ? 0 : c->n_eos));
    TRY(set_ends(s->bits, c, s->is_final, c->params->stop_tokens, c->params->n_stop_tokens));
    s->goes_on = has_others(s->bits, s->n_vocab, c);
    return QUIRE_OK;
}

bool sampler_is_over(const sampler *s, const sample_context *c) {
    return c->constraint != NULL && s->is_final && !has_bits(s->bits, s->n_vocab);
}

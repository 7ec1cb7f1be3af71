/* The first stage of sampling: a constraint's mask (constraint.h), and the end tokens
 * that may complete its output. */
#include <stdalign.h>
#include <string.h>

#include "sample/constraint.h"
#include "sample/sampler_parts.h"

static bool sampler_constrain_is_end(const sample_context *c, int32_t token) {
    return (!c->params->ignore_eos && end_token_is_one_of(token, c->eos, c->n_eos)) ||
           end_token_is_one_of(token, c->params->stop_tokens, c->params->n_stop_tokens);
}

/* Whether the output may end with a token that the constraint takes for its last one. The
 * state stays as it is. */
static quire_err accept_last(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    alignas(max_align_t) uint8_t trial[CONSTRAINT_MAX_STATE_BYTES];
    memcpy(trial, c->constraint_state, k->state_bytes);
    TRY(k->ops->accept(k, trial, token));
    return k->ops->is_final(k, trial) ? QUIRE_OK : QUIRE_INVALID;
}

static bool has_bit(const uint64_t *bits, const constraint *k, int32_t token) {
    return token >= 0 && token < k->n_vocab && (bits[token / 64] >> (token % 64) & 1) != 0;
}

/* Takes a token by the prepared rule. */
static quire_err accept_prepared(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    sample_rule *r = c->rule;
    if (!has_bit(r->bits, k, token)) {
        return QUIRE_INVALID;
    }
    if (sampler_constrain_is_end(c, token)) {
        return QUIRE_OK;
    }
    quire_err e = k->ops->accept(k, c->constraint_state, token);
    if (e == QUIRE_BUSY) {
        r->pending = token;
        e = QUIRE_OK;
    }
    r->is_ready = e != QUIRE_OK && r->is_ready;
    return e;
}

quire_err sample_accept(const sample_context *c, int32_t token) {
    const constraint *k = c->constraint;
    if (k == NULL) {
        return QUIRE_OK;
    }
    if (c->rule != NULL && c->rule->is_ready) {
        return accept_prepared(c, token);
    }
    if (c->rule != NULL && c->rule->pending != SAMPLE_NONE_PENDING) {
        return QUIRE_BUSY;
    }
    if (sampler_constrain_is_end(c, token)) {
        return k->ops->is_final(k, c->constraint_state) ? QUIRE_OK : accept_last(c, token);
    }
    return k->ops->accept(k, c->constraint_state, token);
}

/* Sets the bits of end tokens: all where the output may end, else those that the
 * constraint takes for its last one. */
static quire_err set_ends(uint64_t *bits, const sample_context *c, bool is_final, const int32_t *ends,
                          int32_t n) {
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

/* Whether there is a bit of a token that is not an end token. */
static bool has_others(const uint64_t *bits, int32_t n, const sample_context *c) {
    for (int32_t i = 0; i < constraint_words(n); i++) {
        for (uint64_t rest = bits[i]; rest != 0; rest &= rest - 1) {
            int32_t token = 64 * i + __builtin_ctzll(rest);
            if (token < n && !sampler_constrain_is_end(c, token)) {
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

/* Writes the mask after c's state. */
static quire_err find_allowed(const sample_context *c, uint64_t *bits, bool *is_final, bool *goes_on) {
    const constraint *k = c->constraint;
    TRY(k->ops->mask(k, c->constraint_state, bits));
    *is_final = k->ops->is_final(k, c->constraint_state);
    TRY(set_ends(bits, c, *is_final, c->eos, c->params->ignore_eos ? 0 : c->n_eos));
    TRY(set_ends(bits, c, *is_final, c->params->stop_tokens, c->params->n_stop_tokens));
    *goes_on = has_others(bits, k->n_vocab, c);
    return QUIRE_OK;
}

quire_err sample_prepare(const sample_context *c) {
    const constraint *k = c->constraint;
    sample_rule *r = c->rule;
    if (r->is_ready) {
        return QUIRE_OK;
    }
    if (r->pending != SAMPLE_NONE_PENDING) {
        TRY(k->ops->accept(k, c->constraint_state, r->pending));
        r->pending = SAMPLE_NONE_PENDING;
    }
    TRY(find_allowed(c, r->bits, &r->is_final, &r->goes_on));
    r->is_ready = true;
    return QUIRE_OK;
}

void sample_rule_copy(const sample_context *from, const sample_context *to) {
    uint64_t *bits = to->rule->bits;
    memcpy(bits, from->rule->bits, (size_t)constraint_words(from->constraint->n_vocab) * sizeof *bits);
    *to->rule = *from->rule;
    to->rule->bits = bits;
}

quire_err sampler_constrain(sampler *s, const sample_context *c) {
    const sample_rule *r = c->rule;
    if (r == NULL || !r->is_ready) {
        return find_allowed(c, s->bits, &s->is_final, &s->goes_on);
    }
    memcpy(s->bits, r->bits, (size_t)constraint_words(c->constraint->n_vocab) * sizeof *s->bits);
    s->is_final = r->is_final;
    s->goes_on = r->goes_on;
    return QUIRE_OK;
}

bool sampler_is_over(const sampler *s, const sample_context *c) {
    return c->constraint != NULL && s->is_final && !has_bits(s->bits, s->n_vocab);
}

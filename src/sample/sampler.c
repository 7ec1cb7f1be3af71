#include "sample/sampler.h"

#include <assert.h>
#include <math.h>
#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/constraint.h"
#include "sample/sampler_parts.h"

#define GREEDY_BELOW 1e-5f

quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out) {
    assert(n_vocab >= 0 && max_tokens >= 0);
    sampler *s = mem_new(1, sizeof *s);
    TRY(mem_check(s));
    size_t n = (size_t)n_vocab;
    const sampler_rows *all[SAMPLER_ROWS_MOST];
    s->rows = all[sampler_rows_here(all) - 1];
    s->n_vocab = n_vocab;
    s->weights = mem_new(n + PAST_END > BLOCK ? n + PAST_END : BLOCK, sizeof *s->weights);
    s->ids = mem_new(n + PAST_END, sizeof *s->ids);
    s->n_groups = (n + GROUP - 1) / GROUP;
    size_t n_blocks = (n + BLOCK - 1) / BLOCK;
    s->largest = mem_new(n_blocks * (BLOCK / GROUP), sizeof *s->largest);
    s->bases = mem_new(n_blocks, sizeof *s->bases);
    s->sums = mem_new(s->n_groups, sizeof *s->sums);
    s->keys = mem_new(n, sizeof *s->keys);
    s->inside = mem_new(n + PAST_END, sizeof *s->inside);
    s->marks = mem_new(n, sizeof *s->marks);
    s->counts = mem_new(n, sizeof *s->counts);
    s->repeats = mem_new((size_t)max_tokens + 1, sizeof *s->repeats);
    s->bits = mem_new(s->n_groups, sizeof *s->bits);
    if (!s->weights || !s->ids || !s->largest || !s->bases || !s->sums || !s->keys || !s->inside ||
        !s->marks || !s->counts || !s->repeats || !s->bits) {
        sampler_close(s);
        return QUIRE_NO_MEMORY;
    }
    *out = s;
    return QUIRE_OK;
}

void sampler_close(sampler *s) {
    if (s) {
        void *blocks[] = {s->weights, s->ids,   s->largest, s->bases,   s->sums, s->keys,
                          s->inside,  s->marks, s->counts,  s->repeats, s->bits, s};
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
            mem_free(blocks[i]);
        }
    }
}

/* purposes of random numbers besides sample_purpose: part of the counter */
enum { NOISE_TOKEN = 1, NOISE_XTC = 2 };

static float sample_sampler_draw(sample_key key, uint32_t purpose) {
    uint32_t counter[4] = {key.position, key.sample_index, purpose, 0}, words[4];
    uint32_t seed[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
    rng_philox(counter, seed, words);
    return rng_uniform(words[0]);
}

sample_noise sample_noise_of(sample_key key) {
    return (sample_noise){.token = sample_sampler_draw(key, NOISE_TOKEN),
                          .xtc = sample_sampler_draw(key, NOISE_XTC)};
}

float sample_uniform(sample_key key, sample_purpose purpose) {
    return sample_sampler_draw(key, (uint32_t)purpose);
}

/* The lowest id with the largest logit. Only after a scan. */
static int32_t find_max(const sampler *s, const float *logits) {
    int32_t g = 0;
    while (s->largest[g] != s->max) {
        g++;
    }
    int32_t id = g * GROUP;
    while (logits[id] != s->max) {
        id++;
    }
    return id;
}

/* Scans the row; with scale > 0, computes the sums of blocks too. */
static quire_err sampler_look(sampler *s, const float *logits, float scale) {
    return (scale > 0.0f ? s->rows->scan_masses(s, logits, scale) : s->rows->scan(s, logits)) ? QUIRE_OK
                                                                                              : QUIRE_NUMERIC;
}

static quire_err adjust(sampler *s, float *logits, const sample_context *c, float scale) {
    bool is_masked = c->constraint != NULL;
    if (is_masked) {
        TRY(sampler_constrain(s, c));
        if (!s->rows->scan_kept(s, logits)) {
            TRY(QUIRE_NUMERIC);
        }
    } else {
        TRY(sampler_look(s, logits, scale));
        s->given_max = s->max;
    }
    bool changed = sampler_change(s, logits, c) || (is_masked && scale > 0.0f);
    /* a tiny repetition penalty can produce infinities */
    return changed ? sampler_look(s, logits, scale) : QUIRE_OK;
}

quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c) {
    return adjust(s, logits, c, 0.0f);
}

/* Reduces the row to the tokens that may be drawn (sampler_parts.h). n_kept 0: the output
 * is complete. */
static quire_err distribute(sampler *s, float *logits, const sample_context *c) {
    const sampling_params *p = c->params;
    bool ordered = p->order[0] != SAMPLING_END;
    bool masses = sampler_wants_masses(p), dynamic = p->dynatemp_range > 0.0f && !ordered;
    s->is_greedy = p->temperature < GREEDY_BELOW;
    s->scale = ordered ? LOG2_E : LOG2_E / p->temperature;
    TRY(adjust(s, logits, c, masses && !dynamic && !s->is_greedy ? s->scale : 0.0f));
    if (s->max == -INFINITY && s->given_max > -INFINITY && sampler_is_over(s, c)) {
        s->n_kept = 0;
        s->is_whole = false;
        return QUIRE_OK;
    }
    if (s->max == -INFINITY) {
        return s->given_max == -INFINITY ? QUIRE_NUMERIC : QUIRE_BAD_REQUEST;
    }
    if (!s->is_greedy && dynamic) {
        float temperature = sampler_temperature(s, logits, p);
        s->is_greedy = temperature < GREEDY_BELOW; /* with dynatemp the temperature may become 0 */
        s->scale = LOG2_E / temperature;
        if (masses && !s->is_greedy) {
            TRY(sampler_look(s, logits, s->scale));
        }
    }
    if (s->is_greedy) {
        s->is_whole = false;
        s->n_kept = 1;
        s->ids[0] = find_max(s, logits);
        s->weights[0] = 1.0f;
    } else {
        sampler_cut(s, logits, c);
    }
    return QUIRE_OK;
}

/* Whether there is nothing left to draw, after distribute. */
static bool sample_sampler_is_over(const sampler *s) {
    return !s->is_whole && s->n_kept == 0;
}

bool sampler_takes_argmax(const sampling_params *p, int32_t n_output) {
    return p->temperature < GREEDY_BELOW && !sampler_may_change(p, n_output);
}

quire_err sampler_sample(sampler *s, float *logits, const sample_context *c, int32_t *token) {
    TRY(distribute(s, logits, c));
    if (sample_sampler_is_over(s)) {
        *token = SAMPLE_OVER;
        return QUIRE_OK;
    }
    *token = s->is_greedy ? s->ids[0]
             : c->params->mirostat != MIROSTAT_OFF
                 ? sampler_mirostat(s, c->params, c->noise.token, c->mirostat_mu)
                 : sampler_draw(s, logits, c->noise.token);
    quire_err accepted = sample_accept(c, *token);
    return accepted == QUIRE_INVALID ? QUIRE_INTERNAL : accepted;
}

quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, float **probs) {
    TRY(distribute(s, logits, c));
    if (sample_sampler_is_over(s)) {
        return QUIRE_BAD_REQUEST;
    }
    if (s->is_whole) {
        sampler_keep_all(s, logits);
    }
    double total = s->rows->sum_blocks(s->weights, s->n_kept, s->sums);
    memset(s->weights + s->n_kept, 0, (size_t)(s->n_vocab - s->n_kept) * sizeof *s->weights);
    /* ids[i] >= i: going from the last down, no source is overwritten */
    for (int32_t i = s->n_kept - 1; i >= 0; i--) {
        float prob = (float)((double)s->weights[i] / total);
        s->weights[i] = 0.0f;
        s->weights[s->ids[i]] = prob;
    }
    *probs = s->weights;
    return QUIRE_OK;
}

/* ---- the first stage: the constraint's mask, and end tokens ---- */

static bool sampler_constrain_is_end(const sample_context *c, int32_t token) {
    return (!c->params->ignore_eos && end_token_is_one_of(token, c->eos, c->n_eos)) ||
           end_token_is_one_of(token, c->params->stop_tokens, c->params->n_stop_tokens);
}

/* Whether the constraint accepts the token and the output may end after it: then
 * QUIRE_OK. Leaves the state unchanged. */
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

/* Accepts a token that the prepared rule allows. */
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

/* Sets the bits of end tokens: all if the output may end, otherwise those that the
 * constraint accepts as its last token. */
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

/* Whether any token other than an end token is set. */
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

/* Writes the mask of c's state, with end tokens. */
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

/* fewer logits in total are sampled faster than workers wake up */
enum { WORTH_IT = 1 << 14 };

quire_err sample_pool_open(int32_t n_vocab, int32_t max_tokens, int32_t n_workers, sample_run run,
                           void *threads, sample_pool *out) {
    assert(n_vocab >= 0 && max_tokens >= 0 && (n_workers <= 1 || run != NULL));
    *out = (sample_pool){.n_vocab = n_vocab, .n_workers = n_workers, .run = run, .threads = threads};
    out->samplers = mem_new((size_t)n_workers, sizeof(sampler *));
    TRY(mem_check(out->samplers));
    for (int32_t i = 0; i < n_workers; i++) {
        TRY(sampler_open(n_vocab, max_tokens, &out->samplers[i]));
    }
    return QUIRE_OK;
}

void sample_pool_close(sample_pool *p) {
    assert(p != NULL);
    for (int32_t i = 0; p->samplers && i < p->n_workers; i++) {
        sampler_close(p->samplers[i]);
    }
    mem_free((void *)p->samplers);
}

/* State shared by the workers. */
typedef struct sample_job {
    const sample_pool *pool;
    sample_row *rows;
} sample_job;

void sample_on(const sample_pool *p, int32_t worker, sample_row *r) {
    assert(worker >= 0 && worker < p->n_workers);
    sampler *s = p->samplers[worker];
    sample_context *c = &r->context;
    /* greedy: no random numbers */
    c->noise = c->params->temperature > 0.0f ? sample_noise_of(sample_key_of(c)) : (sample_noise){0};
    switch (r->goal) {
    case SAMPLE_TOKEN:
        if (r->knows_argmax && sample_accept(c, r->argmax) == QUIRE_OK) {
            r->result->token = r->argmax;
        } else {
            r->result->error = sampler_sample(s, r->logits, c, &r->result->token);
        }
        break;
    case SAMPLE_DISTRIBUTION:
        r->result->error = sampler_distribution(s, r->logits, c, &r->probs);
        break;
    case SAMPLE_ADJUST:
        r->result->error = sampler_adjust(s, r->logits, c);
        break;
    }
}

static void sample_one(void *context, int32_t task, int32_t worker) {
    const sample_job *job = context;
    sample_on(job->pool, worker, &job->rows[task]);
}

void sample_tasks(const sample_pool *p, thread_pool_fn fn, void *context, int32_t n) {
    assert(n >= 0);
    if (p->n_workers > 1 && n > 1 && (int64_t)n * p->n_vocab >= WORTH_IT) {
        p->run(p->threads, fn, context, n);
        return;
    }
    for (int32_t task = 0; task < n; task++) {
        fn(context, task, 0);
    }
}

void sample_batch(const sample_pool *p, sample_row *rows, int32_t n) {
    assert(n >= 0);
    sample_tasks(p, sample_one, &(sample_job){p, rows}, n);
}

/* A sampler samples a token from a row of logits.
 *
 * Order: the constraint, allowed ids, bad words, repeated n-grams, min_tokens, bias,
 * repetition, frequency and presence penalties, DRY; then greedy, or temperature,
 * top-n-sigma, min-p, top-k, typical-p, top-p, XTC. This is vLLM's order, with the
 * further stages of llama.cpp and transformers inserted. Mirostat replaces all stages
 * after the temperature. A request may name another order of the stages after the greedy
 * choice (sampling_params.order), in which each works on what the earlier ones left, as
 * in llama.cpp. Of equal logits the lowest id counts as the largest. The draw walks the
 * kept tokens in id order against one uniform number from a counter-based generator with
 * the key (seed, sample, position, purpose). So a token depends on its own row, history
 * and key only. The vocabulary is never sorted, and most tokens need no weight: a cut
 * considers only the few tokens that may be kept, which it finds by counting in buckets
 * of the keys' leading bits. One thread per sampler.
 *
 * Sources: typical-p Meister et al. 2023; top-p Holtzman et al. 2020; repetition penalty
 * Keskar et al. 2019; mirostat Basu et al. 2021; min-p Nguyen et al. 2024; top-n-sigma
 * Tang et al. 2024; DRY and XTC as llama.cpp defines them. */
#ifndef SAMPLE_SAMPLER_H
#define SAMPLE_SAMPLER_H

#include "base/thread_pool.h"
#include "core/params.h"
#include "sample/constraint.h"

typedef struct sampler sampler;

/* Opens a sampler for rows of n_vocab logits and histories of at most max_tokens. */
quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out);
void sampler_close(sampler *s);

/* The key of the noise for one sample. */
typedef struct sample_key {
    uint64_t seed;
    uint32_t sample_index, position;
} sample_key;

/* Uniform numbers in (0, 1), one for each purpose. */
typedef struct sample_noise {
    float token, xtc;
} sample_noise;

sample_noise sample_noise_of(sample_key key);

/* Further purposes of a uniform number, for rejection sampling: to draw a draft, and to
 * accept it. */
typedef enum sample_purpose { SAMPLE_DRAFT = 3, SAMPLE_ACCEPT = 4 } sample_purpose;

/* Another uniform number in (0, 1), independent of those above. */
float sample_uniform(sample_key key, sample_purpose purpose);

#define SAMPLE_NONE_PENDING (-1)

/* The tokens that may come next under a sequence's constraint, prepared ahead of the
 * sample (sample_prepare), which then only reads them. */
typedef struct sample_rule {
    uint64_t *bits; /* [constraint_words] the mask, with end tokens set if they may come */
    bool is_ready;  /* valid for the constraint's present state; otherwise the other members are undefined */
    bool is_final;  /* the output may end */
    bool goes_on;   /* there is a token that is not an end token */
    /* an accepted token that is not in the constraint's state yet, or
     * SAMPLE_NONE_PENDING */
    int32_t pending;
} sample_rule;

/* The inputs of one sample besides the row. */
typedef struct sample_context {
    const sampling_params *params;
    const int32_t *tokens; /* prompt and output so far */
    int32_t n_tokens, n_prompt;
    uint32_t sample_index; /* which sample of the request this is: part of the noise's key */
    const int32_t *eos;    /* the model's end tokens; min_tokens bans them like the request's stop tokens */
    int32_t n_eos;
    sample_noise noise;
    float *mirostat_mu; /* the sequence's state, initially 2 tau; not NULL where params->mirostat is on */
    const constraint *constraint; /* NULL: none */
    void *constraint_state;       /* the sequence's, after its generated tokens; a sample appends its token */
    sample_rule *rule;            /* mask and guesses of that state; NULL: masks are made when needed */
} sample_context;

/* Returned in place of a token: the constraint is complete and nothing may follow, not
 * even an end token. */
#define SAMPLE_OVER (-2)

/* The key of the noise of the sample after c's tokens. */
static inline sample_key sample_key_of(const sample_context *c) {
    return (sample_key){c->params->seed, c->sample_index, (uint32_t)c->n_tokens};
}

/* Appends a token to the state of c's constraint, if it has one. An end token is allowed
 * if the output may end before it, or after it if the constraint accepts it; it leaves
 * the state unchanged. QUIRE_INVALID: the token is forbidden; other errors are the
 * constraint's. The state is unchanged after an error. With a rule that is ready, an
 * allowed token is always accepted; if the constraint has no room for it now, it is
 * pending. */
quire_err sample_accept(const sample_context *c, int32_t token);
/* Makes c->rule ready, after it has appended a pending token. Errors are the
 * constraint's; QUIRE_BUSY: not all of it fits into the thread's work_room; the part that
 * was done is kept. */
quire_err sample_prepare(const sample_context *c);
/* Copies the rule of `from` to `to`, whose constraint has a copy of the same state. */
void sample_rule_copy(const sample_context *from, const sample_context *to);

/* Whether sampler_sample takes the argmax of the logits as they are, after n_output
 * generated tokens, if all logits are finite and no constraint forbids it. */
bool sampler_takes_argmax(const sampling_params *p, int32_t n_output);

/* Runs the stages up to DRY, which change logits [n_vocab] in place by the request's
 * options and the history. QUIRE_NUMERIC when a logit is NaN or +inf before or after. */
quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c);

/* Samples from logits [n_vocab], which are changed in place, and appends the token to the
 * constraint's state. *token may be SAMPLE_OVER. QUIRE_NUMERIC when a logit is NaN or
 * +inf, or all are -inf; QUIRE_BAD_REQUEST when the request's own rules leave no token;
 * QUIRE_INTERNAL when a constraint refuses what its mask allows, and a constraint's own
 * errors. Allocates nothing. */
quire_err sampler_sample(sampler *s, float *logits, const sample_context *c, int32_t *token);

/* The probabilities [n_vocab] from which a sample without mirostat is drawn: zero for
 * tokens that are cut; greedy has one 1. Rejection sampling, logprobs and tests use it.
 * Errors as sampler_sample, and QUIRE_BAD_REQUEST where that gives SAMPLE_OVER. The
 * constraint's state is unchanged. *probs is valid until the next call, and may be
 * modified. */
quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, float **probs);

/* Samples from many rows of logits at once, on several threads. The only interface to
 * samplers; a single row is also a batch.
 *
 * A result depends on its row, history and key only, so the number of threads changes
 * none. Owner: one thread, which makes all calls and is worker 0 of the pool. */

/* Runs fn for every task in 0..n_tasks on the workers of `threads`, the caller included,
 * as thread_pool_run does. */
typedef void (*sample_run)(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks);

/* A sampler for each worker. */
typedef struct sample_pool {
    int32_t n_vocab, n_workers;
    sampler **samplers; /* [n_workers] */
    sample_run run;
    void *threads;
} sample_pool;

/* Opens samplers for rows of n_vocab logits and histories of at most max_tokens. run and
 * `threads` are needed for more than one worker; `threads` outlives the pool. After a
 * failure sample_pool_close frees everything. */
quire_err sample_pool_open(int32_t n_vocab, int32_t max_tokens, int32_t n_workers, sample_run run,
                           void *threads, sample_pool *out);
/* Closes a pool; a zeroed one is allowed. */
void sample_pool_close(sample_pool *p);

/* What is done with a row. */
typedef enum sample_goal {
    SAMPLE_TOKEN,        /* sampler_sample */
    SAMPLE_DISTRIBUTION, /* sampler_distribution; of one row only */
    SAMPLE_ADJUST        /* sampler_adjust */
} sample_goal;

typedef struct sample_result {
    int32_t token; /* SAMPLE_TOKEN without an error: the token, or SAMPLE_OVER; otherwise unchanged */
    quire_err error;
} sample_result;

/* The result of a row that is not sampled yet. */
#define NOT_SAMPLED ((sample_result){-1, QUIRE_OK})

typedef struct sample_row {
    sample_goal goal;
    float *logits;          /* [n_vocab], changed in place */
    sample_context context; /* its noise is set from its key */
    sample_result *result;
    /* SAMPLE_TOKEN: sampler_takes_argmax holds, and this is the row's, which is chosen
     * unless the constraint forbids it */
    bool knows_argmax;
    int32_t argmax;
    /* SAMPLE_DISTRIBUTION: [n_vocab] of the sampler, valid until the next call; may be
     * changed */
    float *probs;
} sample_row;

/* Processes rows[0..n) and sets their results. Allocates nothing. */
void sample_batch(const sample_pool *p, sample_row *rows, int32_t n);

/* For samples that depend on each other: runs fn for every task in 0..n, on the workers
 * if that is worthwhile. A task samples with sample_on. */
void sample_tasks(const sample_pool *p, thread_pool_fn fn, void *context, int32_t n);
/* Processes a row with the sampler of `worker`, on that worker's thread. */
void sample_on(const sample_pool *p, int32_t worker, sample_row *row);

#endif

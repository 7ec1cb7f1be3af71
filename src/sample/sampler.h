/* A sampler draws a token from a row of logits.
 *
 * Order: the constraint, allowed ids, bad words, repeated n-grams, min_tokens, bias,
 * repetition, frequency and presence penalties, DRY; then greedy, or temperature,
 * top-n-sigma, min-p, top-k, typical-p, top-p, XTC. This is vLLM's order, with further
 * stages of llama.cpp and transformers added. Mirostat replaces all stages after the
 * temperature. sampling_params.order may reorder the stages after the greedy choice; then
 * each works on what the earlier ones left, as in llama.cpp. Of equal logits, the lowest
 * id counts as the largest.
 *
 * The draw goes through the kept tokens in id order, with one uniform number from a
 * counter-based generator with the key (seed, sample, position, purpose). So a token
 * depends only on its own row, history and key. The vocabulary is never sorted, and most
 * tokens need no weight: a cut finds the few candidates by counting in buckets of leading
 * bits. One thread per sampler.
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

/* Opens a sampler for [n_vocab] logits, histories of max_tokens. QUIRE_NO_MEMORY. */
quire_err sampler_open(int32_t n_vocab, int32_t max_tokens, sampler **out);
void sampler_close(sampler *s);

/* The key of a sample's random numbers. */
typedef struct sample_key {
    uint64_t seed;
    uint32_t sample_index, position;
} sample_key;

/* A sample's random numbers, uniform in (0, 1), one per purpose. */
typedef struct sample_noise {
    float token, xtc;
} sample_noise;

sample_noise sample_noise_of(sample_key key);

/* More purposes of random numbers, for rejection sampling: to draw a draft, to accept
 * it. */
typedef enum sample_purpose { SAMPLE_DRAFT = 3, SAMPLE_ACCEPT = 4 } sample_purpose;

/* One more random number, uniform in (0, 1) and independent of those in sample_noise. */
float sample_uniform(sample_key key, sample_purpose purpose);

#define SAMPLE_NONE_PENDING (-1)

/* The tokens that a sequence's constraint allows next. sample_prepare computes them ahead
 * of the sample. */
typedef struct sample_rule {
    uint64_t *bits; /* [constraint_words] the mask, with those end tokens that may come */
    bool is_ready;  /* the members are valid for the constraint's present state; false: undefined */
    bool is_final;  /* the output may end */
    bool goes_on;   /* some token other than an end token is allowed */
    /* a token that was accepted but not yet applied to the constraint's state; else
     * SAMPLE_NONE_PENDING */
    int32_t pending;
} sample_rule;

/* The inputs of a sample, without its row. */
typedef struct sample_context {
    const sampling_params *params;
    const int32_t *tokens; /* prompt and output so far */
    int32_t n_tokens, n_prompt;
    uint32_t sample_index; /* number of this sample in the request: part of the key of its random numbers */
    const int32_t *eos;    /* the model's end tokens, which min_tokens bans like the request's stop tokens */
    int32_t n_eos;
    sample_noise noise;
    /* the sequence's mirostat state, initially 2 tau; not NULL if params->mirostat is
     * on */
    float *mirostat_mu;
    const constraint *constraint; /* NULL: none */
    /* its state after the sequence's generated tokens; a sample advances it by its
     * token */
    void *constraint_state;
    sample_rule *rule; /* mask and guesses for that state; NULL: masks are made when needed */
} sample_context;

/* Returned instead of a token: the constraint is complete and no token may follow, not
 * even an end token. */
#define SAMPLE_OVER (-2)

/* The key for the sample that follows c's tokens. */
static inline sample_key sample_key_of(const sample_context *c) {
    return (sample_key){c->params->seed, c->sample_index, (uint32_t)c->n_tokens};
}

/* Advances the state of c's constraint, if any, by a token. An end token is allowed if
 * the output may end before it, or if the constraint accepts it and may end after it; it
 * leaves the state unchanged. QUIRE_INVALID: forbidden token; other errors are the
 * constraint's. Errors leave the state unchanged. With c->rule ready, every allowed token
 * is accepted; if the constraint has no room for it now, it becomes pending. */
quire_err sample_accept(const sample_context *c, int32_t token);
/* Applies a pending token, and makes c->rule ready. Errors are the constraint's.
 * QUIRE_BUSY: it did not all fit into the thread's work_room; what was done is kept. */
quire_err sample_prepare(const sample_context *c);
/* Copies from's rule to `to`, whose constraint is in a copy of the same state. */
void sample_rule_copy(const sample_context *from, const sample_context *to);

/* Whether sampler_sample, after n_output generated tokens, takes the argmax of the
 * unchanged logits, if they are finite and no constraint forbids it. */
bool sampler_takes_argmax(const sampling_params *p, int32_t n_output);

/* Runs the stages up to DRY, which change logits [n_vocab] in place by the request's
 * options and the history. QUIRE_NUMERIC: a logit is NaN or +inf, before or after. */
quire_err sampler_adjust(sampler *s, float *logits, const sample_context *c);

/* Draws a token from logits [n_vocab], which change in place, and advances the
 * constraint's state. *token may be SAMPLE_OVER. QUIRE_NUMERIC: a logit is NaN or +inf,
 * or all are -inf. QUIRE_BAD_REQUEST: the request's own rules leave no token.
 * QUIRE_INTERNAL: a constraint refuses what its mask allows. Else the constraint's
 * errors. Allocates nothing. */
quire_err sampler_sample(sampler *s, float *logits, const sample_context *c, int32_t *token);

/* The probabilities [n_vocab] from which a sample without mirostat is drawn; 0 for tokens
 * that are cut; greedy: a single 1. For rejection sampling, logprobs and tests. Errors as
 * in sampler_sample, and QUIRE_BAD_REQUEST for SAMPLE_OVER. Leaves the constraint's state
 * unchanged. The caller may modify *probs, which is valid until the next call. */
quire_err sampler_distribution(sampler *s, float *logits, const sample_context *c, float **probs);

/* Samples from many rows of logits at once, on several threads. The only interface to
 * samplers: a single row is a batch too.
 *
 * A result depends only on its row, history and key, so the number of threads does not
 * affect it. Owner: one thread, which makes all calls and is worker 0 of the pool. */

/* Runs fn for every task in 0..n_tasks on the workers of `threads`, caller included, like
 * thread_pool_run. */
typedef void (*sample_run)(void *threads, thread_pool_fn fn, void *context, int32_t n_tasks);

/* A sampler for each worker. */
typedef struct sample_pool {
    int32_t n_vocab, n_workers;
    sampler **samplers; /* [n_workers] */
    sample_run run;
    void *threads;
} sample_pool;

/* Opens one sampler per worker, for rows of n_vocab logits and histories of up to
 * max_tokens. More than one worker needs run and `threads`, which must outlive the pool.
 * QUIRE_NO_MEMORY: call sample_pool_close then too. */
quire_err sample_pool_open(int32_t n_vocab, int32_t max_tokens, int32_t n_workers, sample_run run,
                           void *threads, sample_pool *out);
/* Closes a pool; a zeroed one is allowed. */
void sample_pool_close(sample_pool *p);

/* What to do with a row. */
typedef enum sample_goal {
    SAMPLE_TOKEN,        /* draw a token: sampler_sample */
    SAMPLE_DISTRIBUTION, /* compute the distribution: sampler_distribution; only for batches of one row */
    SAMPLE_ADJUST        /* change the logits: sampler_adjust */
} sample_goal;

typedef struct sample_result {
    int32_t token; /* SAMPLE_TOKEN: the token, or SAMPLE_OVER; unchanged on error */
    quire_err error;
} sample_result;

/* A row's result before it is sampled. */
#define NOT_SAMPLED ((sample_result){-1, QUIRE_OK})

typedef struct sample_row {
    sample_goal goal;
    float *logits;          /* [n_vocab] changed in place */
    sample_context context; /* `noise` is derived from its key */
    sample_result *result;
    /* SAMPLE_TOKEN: sampler_takes_argmax holds and `argmax` is known; it is chosen unless
     * the constraint forbids it */
    bool knows_argmax;
    int32_t argmax;
    /* SAMPLE_DISTRIBUTION: [n_vocab] in the sampler's memory, valid until the next call;
     * may be modified */
    float *probs;
} sample_row;

/* Processes rows[0..n) and sets their results. Allocates nothing. */
void sample_batch(const sample_pool *p, sample_row *rows, int32_t n);

/* For samples that depend on one another: runs fn for every task in 0..n, on the workers
 * if worthwhile. Tasks call sample_on. */
void sample_tasks(const sample_pool *p, thread_pool_fn fn, void *context, int32_t n);
/* Processes a row with the sampler of `worker`, on that worker's thread. */
void sample_on(const sample_pool *p, int32_t worker, sample_row *row);

#endif

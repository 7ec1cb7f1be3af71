/* Samples from many rows of logits at once, on several threads. The only way to a
 * sampler; one row is a batch too.
 *
 * A result depends on its row, history and key only, so the number of threads changes
 * none. Owner: one thread, which makes all calls and is worker 0 of the pool. */
#ifndef SAMPLE_SAMPLE_BATCH_H
#define SAMPLE_SAMPLE_BATCH_H

#include "base/thread_pool.h"
#include "sample/sampler.h"

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

/* Opens samplers for rows of n_vocab logits and histories of at most max_tokens. run,
 * with `threads`: needed for more than one worker; the caller's, and outlives the pool.
 * On failure sample_pool_close frees what there is. */
quire_err sample_pool_open(int32_t n_vocab, int32_t max_tokens, int32_t n_workers, sample_run run,
                           void *threads, sample_pool *out);
/* Closes a pool, also one of zero bytes. */
void sample_pool_close(sample_pool *p);

/* What is done with a row. */
typedef enum sample_goal {
    SAMPLE_TOKEN,        /* sampler_sample */
    SAMPLE_DISTRIBUTION, /* sampler_distribution; of one row only */
    SAMPLE_ADJUST        /* sampler_adjust */
} sample_goal;

typedef struct sample_result {
    int32_t token; /* SAMPLE_TOKEN without an error: it, or SAMPLE_OVER; else it is unchanged */
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

/* Does what rows[0..n) want, and sets their results. Allocates nothing. */
void sample_batch(const sample_pool *p, sample_row *rows, int32_t n);

/* For samples that follow each other: runs fn for every task in 0..n, on the workers
 * where that is worth it. A task samples with sample_on. */
void sample_tasks(const sample_pool *p, thread_pool_fn fn, void *context, int32_t n);
/* Does what a row needs, with the sampler of `worker`, on that worker's thread. */
void sample_on(const sample_pool *p, int32_t worker, sample_row *row);

#endif

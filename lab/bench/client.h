/* A client thread that sends prompts of ids to an engine and records when tokens arrive;
 * used by the serving benchmarks. */
#ifndef LAB_BENCH_CLIENT_H
#define LAB_BENCH_CLIENT_H

#include "engine/ablations.h"
#include "lab/bench/figures.h"
#include "quire.h"

typedef struct client {
    quire_engine *engine;
    quire_queue *queue;
    const quire_info *info;
    quire_error failure;       /* error of the first failed request; code QUIRE_OK: none */
    int32_t n_failed, n_looks; /* n_looks: calls of client_receive that found events */
} client;

/* A request and its result. */
typedef struct sent {
    quire_stream *stream;
    int32_t *ids;      /* [n_output] the tokens; NULL: they are only counted */
    int64_t *times_us; /* [n_output] arrival time of each token; NULL: first and last only */
    int32_t *looks;    /* [n_output] with times_us: number of the look that found each token; or NULL */
    int64_t first_us, last_us;
    /* tokens requested, tokens received; prompt tokens found in the cache */
    int32_t n_output, n_seen, n_cached;
    /* tokens in the first delivery; looks that found tokens after it; number of the last
     * such look */
    int32_t n_first, n_looks, look;
    bool done;
} sent;

/* A request field with its JSON value; a list ends with name NULL. */
typedef struct client_field {
    const char *name, *value;
} client_field;

/* One run; *speed as from client_decode_speed. */
typedef quire_err client_run(void *context, double *speed, quire_error *err);

/* host: opens the engine beside this one; NULL: by itself. */
quire_err client_open(const quire_options *o, engine_ablations off, const client *host, client *out,
                      quire_error *err);
void client_close(client *c);
/* Sends prompt ids[0..n) with these fields, for at most n_output tokens. *s must not move
 * until the request is done. */
quire_err client_send_fields(client *c, const int32_t *ids, int32_t n, int32_t n_output,
                             const client_field *fields, sent *s, quire_error *err);
/* Sends a prompt for exactly n_output tokens, sampled greedily. */
quire_err client_send(client *c, const int32_t *ids, int32_t n, int32_t n_output, sent *s, quire_error *err);
/* Like client_send, with a prompt of n random ids from the generator state *draw, so that
 * all prompts differ. */
quire_err client_send_random(client *c, uint64_t *draw, int32_t n, int32_t n_output, sent *s,
                             quire_error *err);
/* Tokens per second while all n requests decode: from when each has more than its first
 * `from` tokens until the first of them has all. 0: they never all decoded together, or
 * have no tokens after the first `from`. NAN: this thread read too late, so that many of
 * the engine's n_steps steps arrived at once and times are useless; run again. Requires
 * times_us and looks. */
double client_decode_speed(const sent *requests, int32_t n, int32_t from, int64_t n_steps);
/* Steps of the engine since it was opened. */
int64_t client_steps(const client *c);
/* Measures the speed in n_runs calls of once(context, speed, err). A call that returns
 * NAN (see above) is repeated up to three times per run. Runs without a speed, or with 0,
 * are left out; mean NAN: none is left. */
quire_err client_measure(client_run *once, void *context, int32_t n_runs, figure *out, quire_error *err);
/* Reads the events that have arrived, or waits for one for at most wait_us (-1: no
 * limit). Returns how many requests ended. */
int32_t client_receive(client *c, int64_t wait_us);
/* Reads events until n more requests have ended. Returns the first failure so far. */
quire_err client_await(client *c, int32_t n, quire_error *err);

/* Pages that sequences take in a pool. A model's layers may be in several groups, and a
 * token takes room in a page of each; in a group with a window a sequence keeps only its
 * last pages. Counts only; any thread. */

/* The most pages, over all groups, that a sequence of n_tokens holds in an open engine.
 * o: the options of that engine. */
int64_t pool_size_sequence(const quire_options *o, const quire_engine *e, int64_t n_tokens);

/* The number of pages that n_seqs sequences of n_tokens each need in an engine with these
 * options. Reads only the model's description. INVALID: more than a pool can have; err
 * begins with `flags`, the flags that ask for so many. */
quire_err pool_size_sequences(const quire_options *o, const char *flags, int64_t n_seqs, int64_t n_tokens,
                              int32_t *out, quire_error *err);

#endif

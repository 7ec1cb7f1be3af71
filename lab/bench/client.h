/* One thread that sends prompts of ids to an engine and records when tokens come; used by
 * the benchmarks of serving. */
#ifndef LAB_BENCH_CLIENT_H
#define LAB_BENCH_CLIENT_H

#include "engine/ablations.h"
#include "lab/bench/figures.h"
#include "quire.h"

typedef struct client {
    quire_engine *engine;
    quire_queue *queue;
    const quire_info *info;
    quire_error failure;       /* error of the first failed request; code QUIRE_OK: none failed */
    int32_t n_failed, n_looks; /* looks: calls of client_receive that found something */
} client;

/* A request and its result. */
typedef struct sent {
    quire_stream *stream;
    int32_t *ids;      /* [n_output] the tokens, or NULL: they are only counted */
    int64_t *times_us; /* [n_output] when each token came, or NULL: first and last only */
    int32_t *looks;    /* [n_output] by which look at the queue, with times_us; or NULL */
    int64_t first_us, last_us;
    /* tokens requested and received; prompt tokens found in the cache */
    int32_t n_output, n_seen, n_cached;
    /* tokens that came first, together; looks at the queue that found tokens after those,
     * and the latest of them */
    int32_t n_first, n_looks, look;
    int32_t n_answer; /* tokens of the answer as the engine counts them, once it is done */
    bool done;
} sent;

/* A field of a request in JSON; a list of them ends with a name of NULL. */
typedef struct client_field {
    const char *name, *value;
} client_field;

/* One run: *speed as client_decode_speed. */
typedef quire_err client_run(void *context, double *speed, quire_error *err);

quire_err client_open(const quire_options *o, engine_ablations off, client *out, quire_error *err);
/* The same, for an engine beside another one. */
quire_err client_open_beside(const client *host, const quire_options *o, client *out, quire_error *err);
void client_close(client *c);
/* Sends ids[0..n) for at most n_output tokens, with these fields; *s stays where it is
 * until it is done. */
quire_err client_send_fields(client *c, const int32_t *ids, int32_t n, int32_t n_output,
                             const client_field *fields, sent *s, quire_error *err);
/* The same for exactly n_output tokens, greedily. */
quire_err client_send(client *c, const int32_t *ids, int32_t n, int32_t n_output, sent *s, quire_error *err);
/* The same with a prompt of n ids drawn from *draw, a generator's state, so that all
 * prompts differ. */
quire_err client_send_random(client *c, uint64_t *draw, int32_t n, int32_t n_output, sent *s,
                             quire_error *err);
/* Tokens per second while all n requests decode: from the moment when each has more than
 * its first `from` tokens until the first of them has all. 0: they never all decoded
 * together, or have no more tokens than that. NAN: this thread read too late, so that
 * tokens of many of the engine's n_steps reached it at once and their times are useless:
 * run it again. Requires times_us and looks. */
double client_decode_speed(const sent *requests, int32_t n, int32_t from, int64_t n_steps);
/* Steps that the engine has done since it was opened. */
int64_t client_steps(const client *c);
/* The speeds that n_runs calls of once(context, speed, err) find. A call that returns NAN
 * (see above) is repeated, at most three times per run. Values that were never measured,
 * or are 0, are left out; a mean of NAN means that nothing is left. */
quire_err client_measure(client_run *once, void *context, int32_t n_runs, figure *out, quire_error *err);
/* Reads arrived events, waiting for at most wait_us (-1: for ever) if there are none;
 * returns how many requests ended. */
int32_t client_receive(client *c, int64_t wait_us);
/* Reads events until n more requests have ended. Returns the first failure so far. */
quire_err client_await(client *c, int32_t n, quire_error *err);

/* Pages of a pool, by the tokens of its sequences: a model's layers may be in several
 * groups, and a token takes room in a page of each; a group with a window keeps only the
 * last of a sequence's pages. Counts only; any thread. */

/* The most pages that a sequence of n_tokens holds in an open engine, in all groups; o:
 * what it was opened with. */
int64_t pool_size_sequence(const quire_options *o, const quire_engine *e, int64_t n_tokens);

/* The pages in which n_seqs sequences of n_tokens each have room in an engine of these
 * options, which name a model; only its description is read. INVALID: more than a pool
 * can have; err begins with `flags`, the flags that ask for so many. */
quire_err pool_size_sequences(const quire_options *o, const char *flags, int64_t n_seqs, int64_t n_tokens,
                              int32_t *out, quire_error *err);

#endif

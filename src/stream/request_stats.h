/* Request statistics: what the requests of an engine were and how they ended, as their
 * readers saw it. Any thread. */
#ifndef STREAM_REQUEST_STATS_H
#define STREAM_REQUEST_STATS_H

#include <pthread.h>

#include "quire.h"

typedef struct request_stats {
    pthread_mutex_t lock; /* guards the others: a reader sees each completion whole */
    int64_t finished[4];  /* completions, by quire_finish - 1 */
    int64_t refused;
    quire_histogram histograms[QUIRE_N_REQUEST_HISTOGRAMS];
} request_stats;

/* A completion that is over. Times by clock_us. */
typedef struct request_times {
    int64_t submitted_us, tokenise_us;             /* the second: how long it took until the engine had it */
    int64_t admitted_us, first_token_us, ended_us; /* 0 in the first two: never */
} request_times;

typedef struct request_numbers {
    int32_t n_prompt, n_computed, n_completion, n_preempted;
    int32_t max_tokens;
} request_numbers;

/* QUIRE_NO_MEMORY. */
quire_err request_stats_open(request_stats **out);
/* NULL does nothing. */
void request_stats_close(request_stats *s);

/* A first token has come, us after the request was submitted. */
void request_stats_first_token(request_stats *s, int64_t us);
/* A completion is over, with which its prompt has n_samples completions, the longest of
 * `longest` tokens; n_samples 0: not all of them are over. */
void request_stats_over(request_stats *s, quire_finish finish, const request_times *t,
                        const request_numbers *n, int32_t n_samples, int32_t longest);
/* A request was refused since the engine was full. */
void request_stats_refused(request_stats *s);
/* Writes the numbers that are the requests' to *out. */
void request_stats_read(request_stats *s, quire_stats *out);

#endif

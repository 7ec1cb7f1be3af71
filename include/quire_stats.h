/* The counters and gauges of an engine. Plain data. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports what is declared here, and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The statistics of one tier, which stores pages that left the pool. */
typedef struct quire_tier_stats {
    bool is_open;
    int64_t hits, misses;  /* fetches of pages: found; missing, damaged or too late */
    int64_t puts, dropped; /* pages stored; not stored for lack of room */
    /* failed transfers and damaged records; bytes stored now, in Redis by this process */
    int64_t errors, bytes;
} quire_tier_stats;

/* The snapshots of recurrent states in the pool (docs/kv.md). All 0 for models without
 * states, and without a prefix cache. */
typedef struct quire_snapshot_stats {
    size_t size; /* of this struct in the caller's quire_stats.h: set before the call */
    int64_t n_snapshots, max_snapshots; /* there now; at most */
    int64_t bytes, max_bytes;           /* bytes of pages in them: now, and at most */
    /* totals since start: kept, or fetched from a tier; evicted, replaced by others or
     * written on by their sequence; continued from */
    int64_t taken, dropped, restored;
} quire_snapshot_stats;

/* The memory of KV pages. A draft model's pages, and those of engines beside each other,
 * take it from one budget (docs/kv.md); else the pool has all of it. */
typedef struct quire_page_memory {
    size_t size;                   /* of this struct in the caller's quire_stats.h: set before the call */
    int64_t used_bytes, max_bytes; /* bytes of pages that have memory; at most, in all pools */
    int64_t draft_bytes;           /* part of used_bytes for the draft model's pages */
    int64_t n_pages_absent;        /* pages of the pool without memory */
    int64_t own_bytes;             /* part of used_bytes for the engine's own pages */
    int64_t sure_bytes;            /* bytes of pages that the engine can always have, whatever others hold */
    int64_t model_bytes;           /* memory that weights and buffers of the models beside the first take */
} quire_page_memory;

/* What parks hold (quire.h): pages of sequences that have ended. */
typedef struct quire_parked_stats {
    size_t size;              /* of this struct in the caller's quire_stats.h: set before the call */
    int64_t n_parks;          /* that hold something */
    int64_t n_pages;          /* held by them, each once */
    int64_t bytes, max_bytes; /* bytes of these pages; at most */
    /* totals since start: sequences parked; parks emptied, or sequences not parked, by a
     * bound */
    int64_t parked, bounded;
} quire_parked_stats;

/* What a histogram of the statistics is of. Those of a completion (one choice of a
 * request) count when it is over, however it ended: under QUIRE_HISTOGRAM_E2E there are
 * as many as in requests_finished. */
typedef enum quire_histogram_kind {
    /* seconds, from the times of submission, first admission, first token and end */
    QUIRE_HISTOGRAM_FIRST_TOKEN, /* submission to first token; counts at the first token */
    QUIRE_HISTOGRAM_E2E,         /* submission to end */
    /* until its admission, or its end if it was never admitted; without tokenising */
    QUIRE_HISTOGRAM_QUEUE,
    QUIRE_HISTOGRAM_PREFILL,    /* admission to first token, if there is one */
    QUIRE_HISTOGRAM_DECODE,     /* first token to end, if there is one */
    QUIRE_HISTOGRAM_INFERENCE,  /* admission to end, if it was admitted */
    QUIRE_HISTOGRAM_TOKEN_TIME, /* decode time per token after the first, if there are two tokens */
    /* numbers */
    QUIRE_HISTOGRAM_PROMPT_TOKENS,
    QUIRE_HISTOGRAM_COMPUTED_TOKENS, /* prompt tokens neither cached nor shared */
    QUIRE_HISTOGRAM_COMPLETION_TOKENS,
    QUIRE_HISTOGRAM_MAX_TOKENS, /* the most that it might have had */
    QUIRE_HISTOGRAM_PREEMPTIONS,
    /* numbers of a prompt with all its completions, which count with the last of them */
    QUIRE_HISTOGRAM_LONGEST, /* tokens of the longest completion */
    QUIRE_HISTOGRAM_SAMPLES, /* completions that were requested */
    /* of the engine */
    QUIRE_HISTOGRAM_TOKEN_GAP,   /* seconds between two tokens of a sequence */
    QUIRE_HISTOGRAM_STEP_TOKENS, /* tokens that a step computes */
    QUIRE_N_HISTOGRAMS
} quire_histogram_kind;

#define QUIRE_N_REQUEST_HISTOGRAMS QUIRE_HISTOGRAM_TOKEN_GAP
#define QUIRE_HISTOGRAM_BUCKETS    23 /* the most that one has */

/* A histogram. Times are in microseconds, the others are numbers. */
typedef struct quire_histogram {
    /* values up to the bucket's bound and over the one before: not cumulated */
    int64_t buckets[QUIRE_HISTOGRAM_BUCKETS];
    int64_t sum, count;
} quire_histogram;

/* The upper bounds of a histogram's buckets, ascending, in its unit: *n of them; one more
 * bucket, the last, has no bound. Constant. */
const int64_t *quire_histogram_bounds(quire_histogram_kind kind, int32_t *n);
/* Whether it is of times. */
bool quire_histogram_is_time(quire_histogram_kind kind);

/* Counters and gauges, read together. */
typedef struct quire_stats {
    int64_t n_requests_running, n_requests_waiting;
    int64_t n_pages, n_pages_free, n_pages_held, n_pages_cached;
    int64_t prompt_tokens, generation_tokens; /* totals since start */
    /* by quire_finish - 1: stop, length, cancelled, error */
    int64_t requests_finished[4];
    int64_t steps, step_rows, step_us;
    int64_t preemptions;
    int64_t deadlines_refused; /* requests whose first token would have come too late */
    /* preempted sequences: swapped out to host memory, and in again */
    int64_t swapped_out, swapped_in;
    int64_t swapped_pages, swap_us; /* pages copied out and in, and the time that took */
    /* drafts verified (one a sequence and step), their tokens, and those accepted */
    int64_t drafts, draft_tokens, draft_accepted;
    int64_t draft_accepted_at[32]; /* accepted tokens by their depth in the draft */
    /* memory that the states of rules take, and may take */
    int64_t rule_bytes, max_rule_bytes;
    /* masks made by text threads, while their sequences sat out */
    int64_t rules_outside;
    int64_t jump_forward_tokens; /* tokens not sampled since only one was possible */
    /* tokens whose pages came back into the pool from a tier */
    int64_t promoted_tokens;
    quire_tier_stats tiers[3]; /* host memory, file, Redis */
    /* prompt tokens looked up in the prefix cache, and found there */
    int64_t prefix_queries, prefix_hits;
    /* the same for preempted requests that are admitted again; separate counts */
    int64_t preempted_queries, preempted_hits;
    /* part of prompt_tokens that was not computed: cached, or shared by samples */
    int64_t prompt_tokens_cached;
    /* waiting requests that wait for pages that others compute or a tier fetches */
    int64_t n_requests_deferred;
    int64_t requests_refused; /* since as many wait or run as the engine takes */
    quire_histogram histograms[QUIRE_N_HISTOGRAMS];
} quire_stats;

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif

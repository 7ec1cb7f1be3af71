/* The counters and gauges of an engine. Plain data. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include <stdbool.h>
#include <stdint.h>

/* The statistics of one tier, which stores pages that left the pool. */
typedef struct quire_tier_stats {
    bool is_open;
    int64_t hits, misses;  /* fetches of pages: found; missing, damaged or too late */
    int64_t puts, dropped; /* pages stored; not stored for lack of room */
    int64_t errors, bytes; /* failed transfers and damaged records; bytes stored now, in Redis by this process */
} quire_tier_stats;

/* Counters and gauges, read together. */
typedef struct quire_stats {
    int64_t n_requests_running, n_requests_waiting;
    int64_t n_pages, n_pages_free, n_pages_held, n_pages_cached;
    int64_t prompt_tokens, generation_tokens;           /* totals since start */
    int64_t requests_finished[4];                        /* by quire_finish - 1: stop, length, cancelled, error */
    int64_t steps, step_rows, step_us;
    int64_t preemptions;
    int64_t deadlines_refused; /* requests whose first token would have come too late */
    int64_t swapped_out, swapped_in;                     /* preempted sequences: swapped out to host memory, and in again */
    int64_t swapped_pages, swap_us;                      /* pages copied out and in, and the time that took */
    int64_t drafts, draft_tokens, draft_accepted;        /* drafts verified (one a sequence and step), their tokens, and those accepted */
    int64_t draft_accepted_at[32];                       /* accepted tokens by their depth in the draft */
    int64_t jump_forward_tokens;                         /* tokens not sampled since only one was possible */
    int64_t promoted_tokens;                             /* tokens whose pages came back into the pool from a tier */
    quire_tier_stats tiers[3];                           /* host memory, file, Redis */
    int64_t prefix_queries, prefix_hits;                 /* prompt tokens looked up in the prefix cache, and found there */
    int64_t preempted_queries, preempted_hits;           /* the same for preempted requests that are admitted again; separate counts */
    /* Cumulative histograms, seconds; bounds in quire_stats_bounds. */
    int64_t ttft_buckets[16], gap_buckets[16], e2e_buckets[16];
    double ttft_sum, gap_sum, e2e_sum;
    int64_t ttft_count, gap_count, e2e_count;
} quire_stats;

#endif

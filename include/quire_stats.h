/* Counters and gauges of an engine. Plain data. */
#ifndef QUIRE_STATS_H
#define QUIRE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library exports the declarations below and nothing else. */
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Statistics of one tier, which stores pages evicted from the pool. */
typedef struct quire_tier_stats {
    bool is_open;
    int64_t hits, misses;  /* page fetches: found; missing, damaged or too late */
    int64_t puts, dropped; /* pages stored; pages not stored for lack of room */
    /* failed transfers and damaged records; bytes stored now (Redis: by this process) */
    int64_t errors, bytes;
} quire_tier_stats;

/* Snapshots of recurrent states in the pool (docs/kv.md). All 0 for models without states
 * and without a prefix cache. */
typedef struct quire_snapshot_stats {
    size_t size; /* sizeof this struct in the caller's quire_stats.h; set before the call */
    int64_t n_snapshots, max_snapshots; /* now, and the limit */
    int64_t bytes, max_bytes;           /* bytes of their pages: now, and the limit */
    /* totals: taken or fetched from a tier; evicted, replaced or overwritten by their own
     * sequence; used to resume */
    int64_t taken, dropped, restored;
} quire_snapshot_stats;

/* Memory of KV pages. A draft model and engines beside each other share one memory budget
 * (docs/kv.md); otherwise the pool has all of it. */
typedef struct quire_page_memory {
    size_t size;                   /* sizeof this struct in the caller's quire_stats.h; set before the call */
    int64_t used_bytes, max_bytes; /* bytes of pages backed by memory, over all pools; the limit */
    int64_t draft_bytes;           /* part of used_bytes: the draft model's pages */
    int64_t n_pages_absent;        /* pages of this engine's pool without memory */
    int64_t own_bytes;             /* part of used_bytes: this engine's own pages */
    int64_t sure_bytes;            /* bytes of pages guaranteed to this engine, whatever others hold */
    int64_t model_bytes;           /* weights and buffers of the other models in the budget */
} quire_page_memory;

/* Parked pages (quire_park in quire.h): pages of sequences that have ended. */
typedef struct quire_parked_stats {
    size_t size;              /* sizeof this struct in the caller's quire_stats.h; set before the call */
    int64_t n_parks;          /* parks that are not empty */
    int64_t n_pages;          /* pages they hold, each counted once */
    int64_t bytes, max_bytes; /* bytes of these pages; the limit */
    /* totals: sequences parked; parks emptied and sequences refused because of a limit */
    int64_t parked, bounded;
} quire_parked_stats;

/* Histograms. Those of a completion (one choice of a request) are recorded when it ends,
 * for whatever reason: E2E has as many entries as requests_finished. */
typedef enum quire_histogram_kind {
    /* seconds; measured between submission, first admission, first token and end */
    QUIRE_HISTOGRAM_FIRST_TOKEN, /* submission to first token; recorded at the first token */
    QUIRE_HISTOGRAM_E2E,         /* submission to end */
    /* submission, after tokenising, to admission, or to the end if never admitted */
    QUIRE_HISTOGRAM_QUEUE,
    QUIRE_HISTOGRAM_PREFILL,    /* admission to first token, if there is one */
    QUIRE_HISTOGRAM_DECODE,     /* first token to end, if there is one */
    QUIRE_HISTOGRAM_INFERENCE,  /* admission to end, if it was admitted */
    QUIRE_HISTOGRAM_TOKEN_TIME, /* decode time per token after the first; only with two or more tokens */
    /* counts */
    QUIRE_HISTOGRAM_PROMPT_TOKENS,
    QUIRE_HISTOGRAM_COMPUTED_TOKENS, /* prompt tokens neither cached nor shared */
    QUIRE_HISTOGRAM_COMPLETION_TOKENS,
    QUIRE_HISTOGRAM_MAX_TOKENS, /* most tokens that the completion may have */
    QUIRE_HISTOGRAM_PREEMPTIONS,
    /* counts per prompt, recorded when its last completion ends */
    QUIRE_HISTOGRAM_LONGEST, /* tokens of the longest completion */
    QUIRE_HISTOGRAM_SAMPLES, /* completions requested */
    /* of the engine */
    QUIRE_HISTOGRAM_TOKEN_GAP,   /* seconds between two tokens of a sequence */
    QUIRE_HISTOGRAM_STEP_TOKENS, /* rows computed in a step */
    QUIRE_N_HISTOGRAMS
} quire_histogram_kind;

#define QUIRE_N_REQUEST_HISTOGRAMS QUIRE_HISTOGRAM_TOKEN_GAP
#define QUIRE_HISTOGRAM_BUCKETS    23 /* most bounds of any histogram */

/* A histogram. Times are in microseconds, others are counts. */
typedef struct quire_histogram {
    /* number of values in each bucket: up to its bound and over the previous one; not
     * cumulative */
    int64_t buckets[QUIRE_HISTOGRAM_BUCKETS];
    int64_t sum, count;
} quire_histogram;

/* The upper bounds of a histogram's buckets, ascending, in its unit: *n of them. One more
 * bucket, the last, has no bound. Static. */
const int64_t *quire_histogram_bounds(quire_histogram_kind kind, int32_t *n);
/* Whether a histogram is of times. */
bool quire_histogram_is_time(quire_histogram_kind kind);

/* Counters and gauges, read together. */
typedef struct quire_stats {
    int64_t n_requests_running, n_requests_waiting;
    int64_t n_pages, n_pages_free, n_pages_held, n_pages_cached;
    int64_t prompt_tokens, generation_tokens; /* totals since start */
    /* indexed by quire_finish - 1: stop, length, cancelled, error */
    int64_t requests_finished[4];
    int64_t steps, step_rows, step_us;
    int64_t preemptions;
    /* requests refused because their first token would have come after
     * ttft_deadline_ms */
    int64_t deadlines_refused;
    /* preempted sequences swapped out to host memory, and back in */
    int64_t swapped_out, swapped_in;
    int64_t swapped_pages, swap_us; /* pages copied out and in; time of the copies */
    /* drafts verified (at most one per sequence and step); their tokens; tokens
     * accepted */
    int64_t drafts, draft_tokens, draft_accepted;
    int64_t draft_accepted_at[32]; /* accepted tokens by depth in the draft */
    /* memory of constraint states: now, and the limit */
    int64_t rule_bytes, max_rule_bytes;
    /* masks computed on text threads while their sequences skipped steps */
    int64_t rules_outside;
    int64_t jump_forward_tokens; /* tokens not sampled because only one was possible */
    /* tokens whose pages were fetched from a tier into the pool */
    int64_t promoted_tokens;
    quire_tier_stats tiers[3]; /* host memory, file, Redis */
    /* prompt tokens looked up in the prefix cache; tokens found */
    int64_t prefix_queries, prefix_hits;
    /* the same for preempted requests that are admitted again, not included above */
    int64_t preempted_queries, preempted_hits;
    /* part of prompt_tokens that was not computed: cached, or shared by samples */
    int64_t prompt_tokens_cached;
    /* waiting requests held back for pages that others compute or a tier fetches */
    int64_t n_requests_deferred;
    int64_t requests_refused; /* refused because the engine was full */
    quire_histogram histograms[QUIRE_N_HISTOGRAMS];
} quire_stats;

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif

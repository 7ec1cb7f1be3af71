/* Replays a trace through the real page pool, block tables, radix index and eviction,
 * without a model: what a cache of that many pages would have found.
 *
 * Requests are processed in order of arrival. Each matches all but the last token of its
 * prompt, takes pages for the rest of the prompt and its answer, evicting if necessary,
 * and publishes its full pages. It stays open while at most `concurrency` are; then it
 * publishes its part-filled last page and releases its pages. These are the engine's
 * calls in the engine's order. A request that could never fit is refused and hits
 * nothing. The index is told the trace's time, but no request waits for it. */
#ifndef LAB_SIM_REPLAY_H
#define LAB_SIM_REPLAY_H

#include "kv/index.h"
#include "lab/sim/trace_read.h"

/* KV_EVICT_CALLER is Belady's rule here (lab/sim/replay.c). */
#define REPLAY_N_POLICIES (KV_EVICT_CALLER + 1)
extern const char *const replay_policy_names[REPLAY_N_POLICIES];

typedef struct replay_options {
    kv_policy policy;
    /* 0: enough so that nothing is evicted */
    int32_t n_pages;
    int32_t page_tokens;        /* 1..512 */
    int32_t concurrency;        /* most open requests, >= 1 */
    kv_granularity granularity; /* granularity of reuse */
    /* check every invariant after every request; slow, for tests */
    bool checks;
    /* called periodically; may be NULL */
    void (*progress)(int32_t n_done, int32_t n_requests, void *context);
    void *context;
} replay_options;

typedef struct replay_result {
    int32_t n_pages; /* size of the pool */
    int32_t n_requests, n_refused;
    int64_t prompt_tokens, hit_tokens;
    int64_t evictions;  /* pages evicted for others */
    int32_t peak_pages; /* most pages in use at once, by open requests and the cache */
    int32_t peak_held;  /* most pages held by open requests */
    double seconds;     /* time of the replay, without reading the trace */
} replay_result;

/* QUIRE_NO_MEMORY; QUIRE_INVALID: an option is out of range; with checks,
 * QUIRE_INTERNAL. */
quire_err replay_run(const trace *t, const replay_options *o, replay_result *out, quire_error *err);

#endif

/* Plan of the page pool: how many pages there are, and for people how that number came
 * about. Plain data. */
#ifndef SETUP_POOL_PLAN_H
#define SETUP_POOL_PLAN_H

#include "kv/most_pages.h"
#include "quire.h"
#include "setup/memory_limits.h"

#define POOL_MAX_PAGES ((int64_t)1 << 30)

typedef struct pool_plan {
    memory_room room; /* of it, what weights and buffers take already */
    int64_t weight_bytes;
    /* of the weights, what has no place in memory: of a mapped model that is larger than
     * it; else 0 */
    int64_t dropped_bytes;
    int64_t buffer_bytes;  /* 0: not known, since the model is not loaded */
    int64_t aside_bytes;   /* of the room: swap space and host tier */
    int64_t adapter_bytes; /* what adapters may take (adapter_options.h) */
    int64_t rule_bytes;  /* --rule-memory-bytes; pool_plan_rules computes what is subtracted from the room */
    int64_t given_pages; /* --kv-pages; 0: as many as fit */
    /* of an encoder, which computes each input in one step and keeps nothing: what a step
     * has at most. 0 rows: another model */
    int32_t step_rows, step_seqs;
    bool is_shared; /* with the pages of a draft model (kv/budget.h) */
    double utilization;
} pool_plan;

/* The plan by options, with room, weights and buffers still to be set. */
pool_plan pool_plan_of(const quire_options *o);
/* Plans for an encoder where d is one, with steps of max_rows rows. */
void pool_plan_encoder(pool_plan *p, const quire_options *o, const model_desc *d, int32_t max_rows);
/* Of the weights of a packed model, what the plan leaves in memory: all of them, but at
 * most seven eighths of the room. The kernel drops what exceeds that and reads it from
 * the file again where it is used, as most experts of a mixture seldom are. room: without
 * weights taken off; unknown, or a limit of the process, in which mapped files have their
 * place already: all. */
int64_t pool_plan_kept(const memory_room *room, int64_t weight_bytes);
/* Memory for the states of requests' rules: what is given, but at most a sixteenth of the
 * room, or 1 MB where that is less. None for an encoder. */
int64_t pool_plan_rules(const pool_plan *p);
/* The number of pages: the given one, or what fits into the plan's part of the room, for
 * an encoder only what one step needs. -1: the room is unknown and none is given. */
int64_t pool_plan_pages(const pool_plan *p, const kv_layout *l);
/* The same, for an engine whose sequences hold no more than `most`. NO_MEMORY when they
 * do not hold one sequence of least_tokens, INVALID when their number is unknown; err
 * says what to do. */
quire_err pool_plan_resolve(const pool_plan *p, const kv_layout *l, const kv_most *most, int32_t least_tokens,
                            int32_t *n_pages, quire_error *err);
/* Appends why there are so many: "50% (--memory-utilization, 0.5 by default) of the 21.3
 * GB that .. beside weights (2.9 MB)". Errors of strbuf_add. */
quire_err pool_plan_explain(const pool_plan *p, strbuf *out);

#endif

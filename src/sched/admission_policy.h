/* Who is admitted first: the order of waiting requests by policy. Pure but for `shares`, which the engine thread owns.
 *
 *   fcfs      first come, first served
 *   priority  the lower number first (vLLM's meaning), then by arrival
 *   prefix    most matched tokens + lambda x seconds waited: what is cached is used while it is there; since waiting counts without end, nobody starves
 *   fair      the tenant that was served fewest weighted tokens first, by virtual counters (Sheng et al. 2024, "Fairness in Serving Large Language Models"),
 *             within a tenant by arrival. A tenant that was away comes back at the least counter of those that wait or run: it saves no credit up. */
#ifndef SCHED_ADMISSION_POLICY_H
#define SCHED_ADMISSION_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum order_policy { ORDER_FCFS, ORDER_PRIORITY, ORDER_PREFIX, ORDER_FAIR } order_policy;

#define ORDER_LAMBDA 500.0 /* tokens a second: two seconds of waiting are worth a thousand cached tokens */

/* prefix: the larger goes first. */
double order_prefix_score(int32_t n_matched, int64_t waited_us, double lambda);

/* A tenant's share: tokens served to it, and requests of it that wait or run. */
typedef struct share {
    uint64_t tenant; /* a hash of its name */
    double served;
    int32_t n_active; /* 0: the slot may be used for another */
    bool is_used;
} share;

typedef struct shares {
    share *slots; /* [n + 1]: the last is common to all tenants that find no other */
    int32_t n;
} shares;

#define SHARE_NONE (-1) /* not entered yet */

/* A computed token of a prompt weighs 1; one that was produced weighs 2, since it takes a pass of its own. */
#define SHARE_PROMPT_WEIGHT 1.0
#define SHARE_OUTPUT_WEIGHT 2.0

quire_err shares_open(shares *s, int32_t n);
void shares_close(shares *s);
/* A request of that tenant stands: the tenant's slot, or n where as many other tenants stand: those share a counter as if they were one. O(slots). */
int32_t shares_enter(shares *s, const void *tenant, size_t n);
void shares_leave(shares *s, int32_t slot);
void shares_serve(shares *s, int32_t slot, double weighted_tokens);
double shares_served(const shares *s, int32_t slot);

#endif

/* Who is admitted first: the order of waiting requests by policy. Pure but for `service`, which the engine thread owns.
 *
 *   fcfs      first come, first served
 *   priority  the lower number first (vLLM's meaning), then by arrival
 *   prefix    most matched tokens + lambda x seconds waited: what is cached is used while it is there; since waiting counts without end,
 * nobody starves fair      the tenant that was served fewest weighted tokens first, by virtual counters (Sheng et al. 2024, "Fairness in
 * Serving Large Language Models"), within a tenant by arrival. A tenant that was away comes back at the least counter of those that wait or
 * run: it saves no credit up. */
#ifndef SCHED_ADMISSION_POLICY_H
#define SCHED_ADMISSION_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum admission_policy { ADMISSION_FCFS, ADMISSION_PRIORITY, ADMISSION_PREFIX, ADMISSION_FAIR } admission_policy;

#define ADMISSION_LAMBDA 500.0 /* tokens a second: two seconds of waiting are worth a thousand cached tokens */

/* prefix: the larger goes first. */
double admission_prefix_score(int32_t n_matched, int64_t waited_us, double lambda);

/* A tenant's share: tokens served to it, and requests of it that wait or run. */
typedef struct tenant_slot {
    uint64_t tenant; /* a hash of its name */
    double served;
    int32_t n_active; /* 0: the slot may be used for another */
    bool is_used;
} tenant_slot;

typedef struct service {
    tenant_slot *slots; /* [n + 1]: the last is common to all tenants that find no other */
    int32_t n;
} service;

#define TENANT_NONE (-1) /* not entered yet */

/* A computed token of a prompt weighs 1; one that was produced weighs 2, since it takes a pass of its own. */
#define SERVICE_PROMPT_WEIGHT 1.0
#define SERVICE_OUTPUT_WEIGHT 2.0

quire_err service_counters_open(service *s, int32_t n);
void service_counters_close(service *s);
/* A request of that tenant stands: the tenant's slot, or n where as many other tenants stand: those share a counter as if they were one.
 * O(slots). */
int32_t service_counters_enter(service *s, const void *tenant, size_t n);
void service_counters_leave(service *s, int32_t slot);
void service_counters_add(service *s, int32_t slot, double weighted_tokens);
double service_counters_of(const service *s, int32_t slot);

#endif

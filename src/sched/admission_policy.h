/* The admission policy: the order in which waiting requests are admitted. Pure, except
 * for `service_counters`, which the engine thread owns.
 *
 *   fcfs      first come, first served
 *   priority  the lower number first (vLLM's meaning), then by arrival
 *   prefix    most matched tokens + lambda x seconds waited: so cached tokens are used in
 *             time. The term for waiting grows without bound, so every request is
 *             admitted in the end
 *   fair      the tenant with the lowest service counter first, within a tenant by
 *             arrival (Sheng et al. 2024, "Fairness in Serving Large Language Models"). A
 *             tenant that becomes active again gets at least the lowest counter of the
 *             active ones: it saves up no credit
 *
 * Steps of a program exchange turns with each other: the deepest goes first, so that a
 * branch of the program's tree is finished and its pages are free before the next one
 * begins. Other requests do not wait longer because of that. */
#ifndef SCHED_ADMISSION_POLICY_H
#define SCHED_ADMISSION_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum admission_policy {
    ADMISSION_FCFS,
    ADMISSION_PRIORITY,
    ADMISSION_PREFIX,
    ADMISSION_FAIR
} admission_policy;

/* The score of a request under the prefix policy: the largest goes first. */
double admission_prefix_score(int32_t n_matched, int64_t waited_us, double lambda);

/* Whether a step goes before another one of its program: it is deeper, or it is equally
 * deep and came earlier. */
bool admission_goes_deeper(int32_t depth, uint64_t arrival, int32_t other_depth, uint64_t other_arrival);

/* A tenant's slot: its service counter, and how many of its requests wait or run. */
typedef struct tenant_slot {
    uint64_t tenant; /* a hash of its name */
    double served;
    int32_t n_active; /* 0: the slot can be given to another tenant */
    bool is_used;
    double queued; /* scratch of candidates_ahead */
} tenant_slot;

typedef struct service_counters {
    tenant_slot *slots; /* [n + 1]: the last slot is shared by all tenants that find no free one */
    int32_t n;
} service_counters;

#define TENANT_NONE (-1) /* the task is not entered */

/* The service counters of n tenants: weighted tokens served to each. A computed token
 * that was given, in a prompt or a steer, has weight 1, once however often it is
 * computed; a generated token has weight 2, since it takes a forward pass of its own. */
#define SERVICE_PROMPT_WEIGHT 1.0
#define SERVICE_OUTPUT_WEIGHT 2.0

quire_err service_counters_open(service_counters *s, int32_t n);
void service_counters_close(service_counters *s);
/* Counts a request of that tenant as active until service_counters_leave. Returns the
 * tenant's slot, or n if n other tenants are active; such tenants share one counter.
 * O(slots). */
int32_t service_counters_enter(service_counters *s, const void *tenant, size_t n);
void service_counters_leave(service_counters *s, int32_t slot);
void service_counters_add(service_counters *s, int32_t slot, double weighted_tokens);
double service_counters_of(const service_counters *s, int32_t slot);

#endif

/* The admission policy: the order in which waiting requests are admitted. Pure, except
 * for `service_counters`, which belongs to the engine thread.
 *
 *   fcfs      first come, first served
 *   priority  lowest number first, as in vLLM, then by arrival
 *   prefix    most cached tokens + lambda x seconds waited: cached prefixes are used
 *             before they are evicted. Waiting counts without bound, so every request is
 *             admitted in the end
 *   fair      the tenant with the lowest service counter first, within a tenant by
 *             arrival (Sheng et al. 2024, "Fairness in Serving Large Language Models"). A
 *             tenant that becomes active again starts at least at the lowest counter of
 *             the active ones, so that it cannot save up credit
 *
 * Steps of one program swap turns among themselves: the deepest step goes first, so that
 * a branch of the program's tree is finished and frees its pages before the next one
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

/* The score of a request under the prefix policy; the largest is admitted first. */
double admission_prefix_score(int32_t n_matched, int64_t waited_us, double lambda);

/* Whether a step of a program goes before another: deeper, or equally deep and
 * earlier. */
bool admission_goes_deeper(int32_t depth, uint64_t arrival, int32_t other_depth, uint64_t other_arrival);

/* A tenant's entry: its service counter, and how many of its requests wait or run. */
typedef struct tenant_slot {
    uint64_t tenant; /* a hash of its name */
    double served;
    int32_t n_active; /* 0: the entry may be given to another tenant */
    bool is_used;
    double queued; /* scratch of candidates_ahead */
} tenant_slot;

typedef struct service_counters {
    tenant_slot *slots; /* [n + 1] the last entry is shared by all tenants that find no free one */
    int32_t n;
} service_counters;

#define TENANT_NONE (-1) /* the task is not counted for any tenant */

/* The service counters of up to n tenants: weighted tokens served to each. A given token
 * (of a prompt or a steer) has weight 1 when it is first computed. A generated token has
 * weight 2, since it takes a forward pass of its own. */
#define SERVICE_PROMPT_WEIGHT 1.0
#define SERVICE_OUTPUT_WEIGHT 2.0

quire_err service_counters_open(service_counters *s, int32_t n);
void service_counters_close(service_counters *s);
/* Counts a request of this tenant as active until service_counters_leave. Returns the
 * tenant's entry; n if n other tenants are active, since all further ones share that
 * counter. O(n). */
int32_t service_counters_enter(service_counters *s, const void *tenant, size_t n);
void service_counters_leave(service_counters *s, int32_t slot);
void service_counters_add(service_counters *s, int32_t slot, double weighted_tokens);
double service_counters_of(const service_counters *s, int32_t slot);

#endif

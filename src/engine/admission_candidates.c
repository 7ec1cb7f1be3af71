#include "engine/admission_candidates.h"

#include <math.h>

#include "base/clock.h"
#include "engine/cache.h"
#include "engine/prefix_wait.h"

#define MAX_ADMIT     16 /* most candidates of a plan: each is looked up in the prefix cache first */

/* The sort key of a waiting sequence: the least is first. */
static double key_of(const engine *e, const sequence *s, int64_t now_us) {
    int32_t n_held;
    if (s->task.n_preempted >= e->limits.max_preemptions) {
        return -INFINITY; /* it waits for all pages that it may need, which become free together only if no sequence overtakes it */
    }
    switch (e->options.schedule) {
    case ADMISSION_PREFIX:
        return -admission_prefix_score(cache_peek(e, s, &n_held), now_us - s->task.submitted_us, e->options.schedule_lambda);
    case ADMISSION_FAIR:
        return service_counters_of(&e->service, s->task.tenant_slot);
    case ADMISSION_PRIORITY: /* the list is in that order */
    case ADMISSION_FCFS:
        break;
    }
    return 0.0;
}

/* The index of the least key among the first n, the oldest of equals; n when all were taken (NAN). None is less than `bound`. */
static int32_t least_of(const double *keys, int32_t n, double bound) {
    int32_t least = n;
    for (int32_t i = 0; i < n; i++) {
        if (keys[i] == keys[i] && (least == n || keys[i] < keys[least])) {
            least = i;
            if (keys[i] <= bound) {
                break;
            }
        }
    }
    return least;
}

int32_t candidates_order_begin(engine *e) {
    bool by_prefix = e->options.schedule == ADMISSION_PREFIX; /* looks each one up, so only the oldest of them, whose scores grow */
    int32_t n = by_prefix && e->n_waiting > CANDIDATES_EXAMINED ? CANDIDATES_EXAMINED : e->n_waiting;
    int64_t now_us = clock_us();
    e->step.last_key = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        e->step.keys[i] = key_of(e, e->waiting[i], now_us);
    }
    return n;
}

int32_t candidates_order_next(engine *e, int32_t n) {
    int32_t i = least_of(e->step.keys, n, e->step.last_key);
    if (i < n) {
        e->step.last_key = e->step.keys[i]; /* keys only grow */
        e->step.keys[i] = NAN;
    }
    return i;
}

void candidates_order_served(engine *e, int32_t n, const sequence *s) {
    for (int32_t i = 0; i < n && e->options.schedule == ADMISSION_FAIR; i++) {
        e->step.keys[i] += e->waiting[i]->task.tenant_slot == s->task.tenant_slot
                               ? SERVICE_PROMPT_WEIGHT * (double)(s->task.n_known - s->task.kv.n_computed)
                               : 0.0;
    }
}

int32_t admission_candidates_find(engine *e) {
    int32_t n_candidates = 0, places = e->limits.max_seqs - e->n_running, most = places < MAX_ADMIT ? places : MAX_ADMIT;
    if (most <= 0) {
        return 0;
    }
    int32_t n = candidates_order_begin(e);
    int64_t now_us = atomic_load(&e->step_started_us);
    for (int32_t i = 0; i < n; i++) {
        e->step.keys[i] = prefix_wait_blocks(e, e->waiting[i]) ? NAN : e->step.keys[i];
    }
    for (int32_t looked_at = 0; n_candidates < most && looked_at < CANDIDATES_EXAMINED; looked_at++) {
        int32_t i = candidates_order_next(e, n);
        if (i == n) {
            break;
        }
        sequence *s = e->waiting[i];
        if (!kv_tiering_waits(e->tiering, &s->task.kv, s->task.tokens, task_reusable(&s->task), now_us, e->options.tiers.wait_us)) {
            e->step.candidates[n_candidates++] = s;
            candidates_order_served(e, n, s);
        }
    }
    return n_candidates;
}

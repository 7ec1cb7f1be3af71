#include "engine/features.h"

#include <string.h>

#include "base/clock.h"
#include "engine/beam.h"
#include "engine/cache.h"
#include "engine/draft_step.h"
#include "engine/explain.h"
#include "engine/fork.h"
#include "engine/output.h"
#include "engine/rule_step.h"

/* ---- service counters: what each tenant was served ---- */

/* The tenant's name is the namespace's name up to its first zero byte. */
static void service_entered(engine *e, sequence *s) {
    const uint8_t *end = s->n_namespace > 0 ? memchr(s->namespace, 0, s->n_namespace) : NULL;
    size_t n = end != NULL ? (size_t)(end - s->namespace) : s->n_namespace;
    s->task.tenant_slot = service_counters_enter(&e->sched.service, s->namespace, n);
    s->task.priority = e->options.schedule == ADMISSION_PRIORITY ? s->task.priority : 0;
}

/* Adds computed given tokens (of a prompt or a steer) to the tenant's counter. Tokens
 * computed again after a preemption are not counted twice. */
static void service_computed(engine *e, sequence *s, int32_t n) {
    if (s->task.n_known != s->n_given) {
        return;
    }
    int32_t end = s->task.kv.n_computed, from = end - n > s->n_charged ? end - n : s->n_charged;
    if (end > from) {
        service_counters_add(&e->sched.service, s->task.tenant_slot,
                             SERVICE_PROMPT_WEIGHT * (double)(end - from));
        s->n_charged = end;
    }
}

static void service_token(engine *e, sequence *s, int64_t now_us) {
    (void)now_us;
    service_counters_add(&e->sched.service, s->task.tenant_slot, SERVICE_OUTPUT_WEIGHT);
}

static void service_ended(engine *e, sequence *s) {
    service_counters_leave(&e->sched.service, s->task.tenant_slot);
}

/* ---- tiers ---- */

static void tiers_polled(engine *e) {
    if (e->tiering != NULL) {
        kv_tiering_poll(e->tiering, clock_us());
    }
}

static void tiers_forgotten(engine *e, sequence *s) {
    kv_tiering_forget(e->tiering, &s->task.kv);
}

/* ---- adapters ---- */

/* Records for metrics which adapters run and which ones requests wait for. */
static void adapters_planned(engine *e) {
    int64_t now = e->stats.steps + 1;
    for (int32_t i = 0; i < e->sched.n_running && e->options.max_adapters > 0; i++) {
        adapter_ref *a = running_at(e, i)->adapter;
        if (a != NULL) {
            atomic_store_explicit(&a->ran_at, now, memory_order_relaxed);
        }
    }
    for (int32_t i = 0; i < e->sched.n_waiting && e->options.max_adapters > 0; i++) {
        adapter_ref *a = waiting_at(e, i)->adapter;
        if (a != NULL) {
            atomic_store_explicit(&a->waited_at, now, memory_order_relaxed);
        }
    }
}

/* Call once no later batch can have a row of s. */
static void adapters_ended(engine *e, sequence *s) {
    (void)e;
    adapter_ref_drop(s->adapter);
    s->adapter = NULL;
}

/* ---- the table ---- */

/* The handlers of an event, in the order in which they are called. */
#define HANDLERS(event, ...) static void (*const event##_handlers[])(__VA_ARGS__)

HANDLERS(polled, engine *e) = {tiers_polled};
HANDLERS(planning, engine *e) = {beam_resume, rule_step_planning, draft_step_propose};
HANDLERS(planned, engine *e) = {explain_waiting, adapters_planned};
HANDLERS(entered, engine *e, sequence *s) = {explain_entered, service_entered};
HANDLERS(admitted, engine *e, sequence *s) = {explain_admitted, swap_in, fork_answer};
HANDLERS(preempted, engine *e, sequence *s) = {explain_preempted, swap_out, tiers_forgotten,
                                               draft_step_preempted};
HANDLERS(computed, engine *e, sequence *s, int32_t n) = {explain_computed, service_computed, stats_computed,
                                                         out_progress};
HANDLERS(token, engine *e, sequence *s, int64_t now_us) = {explain_token, service_token, stats_token};
HANDLERS(ended, engine *e, sequence *s) = {explain_ended, fork_hand_on,    tiers_forgotten, draft_step_ended,
                                           service_ended, rule_step_ended, adapters_ended};

#define RAISE(event, ...)                                                                                    \
    for (size_t i = 0; i < sizeof event##_handlers / sizeof *event##_handlers; i++) {                        \
        event##_handlers[i](__VA_ARGS__);                                                                    \
    }

void event_polled(engine *e) {
    RAISE(polled, e)
}

void event_planning(engine *e) {
    RAISE(planning, e)
}

void event_planned(engine *e) {
    RAISE(planned, e)
}

void event_entered(engine *e, sequence *s) {
    RAISE(entered, e, s)
}

void event_admitted(engine *e, sequence *s) {
    RAISE(admitted, e, s)
}

void event_preempted(engine *e, sequence *s) {
    RAISE(preempted, e, s)
}

void event_computed(engine *e, sequence *s, int32_t n) {
    RAISE(computed, e, s, n)
}

void event_token(engine *e, sequence *s, int64_t now_us) {
    RAISE(token, e, s, now_us)
}

void event_ended(engine *e, sequence *s) {
    RAISE(ended, e, s)
}

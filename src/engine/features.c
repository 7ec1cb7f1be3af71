#include "engine/features.h"

#include <string.h>

#include "base/clock.h"
#include "engine/beam.h"
#include "engine/draft.h"
#include "engine/explain.h"
#include "engine/fork.h"
#include "engine/swap.h"

/* ---- service counters: what each tenant was served ---- */

/* The tenant's name is the part of the namespace's name before a zero byte. */
static void service_entered(engine *e, sequence *s) {
    const uint8_t *end = s->n_namespace > 0 ? memchr(s->namespace, 0, s->n_namespace) : NULL;
    size_t n = end != NULL ? (size_t)(end - s->namespace) : s->n_namespace;
    s->task.tenant_slot = service_counters_enter(&e->sched.service, s->namespace, n);
    s->task.priority = e->options.schedule == ADMISSION_PRIORITY ? s->task.priority : 0;
}

/* Tokens that preemption repeats do not count again. */
static void service_computed(engine *e, sequence *s, int32_t n) {
    if (s->task.n_known == s->task.n_prompt) {
        service_counters_add(&e->sched.service, s->task.tenant_slot, SERVICE_PROMPT_WEIGHT * (double)n);
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

/* ---- drafts ---- */

static void draft_preempted(engine *e, sequence *s) {
    draft_forget(e, s, false);
}

static void draft_ended(engine *e, sequence *s) {
    draft_forget(e, s, true);
}

/* ---- the table ---- */

typedef struct feature {
    void (*polled)(engine *e);
    void (*planning)(engine *e);
    void (*planned)(engine *e);
    void (*entered)(engine *e, sequence *s);
    void (*admitted)(engine *e, sequence *s);
    void (*preempted)(engine *e, sequence *s);
    void (*computed)(engine *e, sequence *s, int32_t n);
    void (*token)(engine *e, sequence *s, int64_t now_us);
    void (*ended)(engine *e, sequence *s);
} feature;

/* In the order in which they handle an event. */
static const feature FEATURES[] = {
    {.planned = explain_waiting,
     .entered = explain_entered,
     .admitted = explain_admitted,
     .preempted = explain_preempted,
     .computed = explain_computed,
     .token = explain_token,
     .ended = explain_ended},
    {.ended = fork_hand_on},
    {.admitted = swap_in, .preempted = swap_out},
    {.polled = tiers_polled, .preempted = tiers_forgotten, .ended = tiers_forgotten},
    {.planning = beam_resume},
    {.planning = draft_propose, .preempted = draft_preempted, .ended = draft_ended},
    {.entered = service_entered, .computed = service_computed, .token = service_token, .ended = service_ended},
    {.token = stats_token, .ended = stats_ended},
};

#define RAISE(event, ...)                                                       \
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++) {           \
        if (FEATURES[i].event != NULL) {                                        \
            FEATURES[i].event(__VA_ARGS__);                                     \
        }                                                                       \
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

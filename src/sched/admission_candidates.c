#include "sched/admission_candidates.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "sched/adapter_slots.h"
#include "sched/prefix_wait.h"

#define MAX_ADMIT 16 /* most candidates of a plan; each is looked up in the prefix cache first */

/* The sort key of a waiting task; the smallest is admitted first. */
static double admission_candidates_key_of(const scheduler *s, const sched_task *t) {
    kv_held held;
    if (t->n_preempted >= s->limits.max_preemptions) {
        /* it waits for all pages that it may ever need; they become free together only if
         * no other task overtakes it */
        return -INFINITY;
    }
    if (t->is_first) {
        return -DBL_MAX; /* room was made for it */
    }
    switch (s->options.policy) {
    case ADMISSION_PREFIX: {
        int32_t n_cached = s->kv != NULL ? kv_seq_peek(s->kv, &t->kv, t->tokens, task_reusable(t), &held) : 0;
        return -admission_prefix_score(n_cached, s->now_us - t->submitted_us, s->options.lambda);
    }
    case ADMISSION_FAIR:
        return service_counters_of(&s->service, t->tenant_slot);
    case ADMISSION_PRIORITY: /* the queue is sorted by priority already */
    case ADMISSION_FCFS:
        break;
    }
    return 0.0;
}

/* The index of the smallest key in keys[0..n), the oldest of equals; n if all were taken
 * (NAN). No key is below `bound`, so the search stops there. */
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

int32_t candidates_order_begin(scheduler *s) {
    /* each is looked up in the cache, so only the oldest are ordered; the others' scores
     * grow */
    bool by_prefix = s->options.policy == ADMISSION_PREFIX;
    int32_t n = by_prefix && s->n_waiting > CANDIDATES_EXAMINED ? CANDIDATES_EXAMINED : s->n_waiting;
    s->last_key = -INFINITY;
    for (int32_t i = 0; i < s->n_waiting; i++) {
        s->ordered[i] = s->waiting[i];
    }
    for (int32_t i = 0; i < n; i++) {
        s->keys[i] = admission_candidates_key_of(s, s->waiting[i]);
    }
    return n;
}

/* Whether two of the ordered tasks are steps of one program, so that they may swap
 * turns. */
static bool share_turns(const scheduler *s, int32_t i, int32_t k) {
    const sched_task *a = s->ordered[i], *b = s->ordered[k];
    return a->tree != 0 && a->tree == b->tree && a->tenant_slot == b->tenant_slot &&
           a->priority == b->priority && s->keys[i] == s->keys[k];
}

static bool candidates_go_deeper(const sched_task *a, const sched_task *b) {
    return admission_goes_deeper(a->depth, a->arrival, b->depth, b->arrival);
}

/* Swaps ordered[i], the first remaining step of its program, with the deepest step of
 * that program. */
static void candidates_put_deepest(scheduler *s, int32_t n, int32_t i) {
    int32_t deepest = i;
    for (int32_t k = i + 1; k < n && s->ordered[i]->tree != 0; k++) {
        bool is_deeper = candidates_go_deeper(s->ordered[k], s->ordered[deepest]);
        deepest = is_deeper && share_turns(s, i, k) ? k : deepest;
    }
    sched_task *t = s->ordered[i];
    s->ordered[i] = s->ordered[deepest];
    s->ordered[deepest] = t;
}

int32_t candidates_order_next(scheduler *s, int32_t n) {
    assert(n >= 0);
    int32_t i = least_of(s->keys, n, s->last_key);
    if (i < n) {
        candidates_put_deepest(s, n, i);
        s->last_key = s->keys[i]; /* keys never decrease */
        s->keys[i] = NAN;
    }
    return i;
}

/* How much the admission of t adds to its tenant's service counter. */
static double admission_candidates_service(const sched_task *t) {
    return SERVICE_PROMPT_WEIGHT * (double)(t->n_known - t->kv.n_computed);
}

void candidates_order_served(scheduler *s, int32_t n, const sched_task *t) {
    assert(n >= 0);
    for (int32_t i = 0; i < n && s->options.policy == ADMISSION_FAIR; i++) {
        bool same = s->ordered[i]->tenant_slot == t->tenant_slot;
        s->keys[i] += same ? admission_candidates_service(t) : 0.0;
    }
}

/* Adds to each key the service that earlier tasks of the same tenant will get. A tenant's
 * tasks are in queue order, except for those with the lowest keys. */
static void admission_candidates_add_service(scheduler *s, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        s->service.slots[s->ordered[i]->tenant_slot].queued = 0.0;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < n; i++) {
            const sched_task *t = s->ordered[i];
            double *queued = &s->service.slots[t->tenant_slot].queued;
            if ((s->keys[i] <= -DBL_MAX) == (pass == 0)) {
                s->keys[i] += *queued;
                *queued += admission_candidates_service(t);
            }
        }
    }
}

int32_t candidates_ahead(scheduler *s, const sched_task *t) {
    int32_t n = candidates_order_begin(s), own = 0, n_ahead = 0;
    for (int32_t i = 0; i < n; i++) {
        candidates_put_deepest(s, n, i);
    }
    while (s->ordered[own] != t) {
        own++;
    }
    if (own >= n) {
        return own;
    }
    if (s->options.policy == ADMISSION_FAIR) {
        admission_candidates_add_service(s, n);
    }
    for (int32_t i = 0; i < n; i++) {
        n_ahead += s->keys[i] < s->keys[own] || (s->keys[i] == s->keys[own] && i < own);
    }
    return n_ahead;
}

/* ---- adapter slots ---- */

static adapter_slots slots_of_running(const scheduler *s) {
    adapter_slots slots = {.most = s->limits.max_adapters};
    for (int32_t i = 0; i < s->n_running; i++) {
        adapter_slots_take(&slots, s->running[i]->adapter);
    }
    return slots;
}

bool candidates_have_slot(const scheduler *s, const sched_task *t) {
    if (t->adapter == 0) {
        return true;
    }
    const adapter_slots slots = slots_of_running(s);
    return adapter_slots_fit(&slots, t->adapter);
}

/* Removes the keys of those of the first n waiting tasks that get no adapter slot. */
static void drop_slotless(scheduler *s, int32_t n, const adapter_slots *slots) {
    for (int32_t i = 0; i < n; i++) {
        s->keys[i] = adapter_slots_fit(slots, s->ordered[i]->adapter) ? s->keys[i] : NAN;
    }
}

/* Marks the waiting tasks for whose adapters the running ones leave no slot, and those
 * that give way to an older task that has waited long. Removes the keys of those among
 * the first n. */
static void candidates_mark_slots(scheduler *s, int32_t n, const adapter_slots *slots) {
    uint64_t oldest = UINT64_MAX;
    if (slots->most == 0) {
        return;
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        sched_task *t = s->waiting[i];
        t->lacks_slot = !adapter_slots_fit(slots, t->adapter);
        bool is_patient = s->now_us - t->submitted_us < ADAPTER_PATIENCE_US;
        oldest = t->lacks_slot && !is_patient && t->arrival < oldest ? t->arrival : oldest;
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        sched_task *t = s->waiting[i];
        t->lacks_slot = t->lacks_slot || (t->adapter != 0 && t->arrival > oldest);
        if (i < n && t->lacks_slot) {
            s->keys[i] = NAN;
        }
    }
}

int32_t admission_candidates_find(scheduler *s) {
    const sched_hooks *hooks = s->options.hooks;
    int32_t n_candidates = 0, places = s->limits.max_seqs - s->n_running,
            most = places < MAX_ADMIT ? places : MAX_ADMIT;
    if (most <= 0) {
        return 0;
    }
    int32_t n = candidates_order_begin(s);
    for (int32_t i = 0; i < n; i++) {
        s->keys[i] = prefix_wait_blocks(s, s->waiting[i]) ? NAN : s->keys[i];
    }
    adapter_slots slots = slots_of_running(s);
    candidates_mark_slots(s, n, &slots);
    for (int32_t looked_at = 0; n_candidates < most && looked_at < CANDIDATES_EXAMINED; looked_at++) {
        int32_t i = candidates_order_next(s, n);
        if (i == n) {
            break;
        }
        sched_task *t = s->ordered[i];
        if (hooks->is_ready == NULL || hooks->is_ready(s->options.context, t)) {
            s->candidates[n_candidates++] = t;
            candidates_order_served(s, n, t);
            adapter_slots_take(&slots, t->adapter);
            if (t->adapter != 0) {
                drop_slotless(s, n, &slots);
            }
        }
    }
    return n_candidates;
}

#define MEASURED  8 /* number of steps after which measured costs are used */
#define LONGEST_S 3600

double deadline_foretell_us(const sched_limits *l, const deadline_load *load) {
    double work_us = load->rows * l->cost.row_us + load->pairs * l->cost.pair_us + load->program_us;
    double beside_us =
        sched_predict_us(&l->cost, load->n_decodes, load->decode_pairs) + load->decode_program_us;
    double n_steps = ceil(load->rows / fmax(1.0, l->max_rows - load->n_decodes));
    if (l->target_us > 0.0 && load->n_decodes > 0 && beside_us > 0.0) {
        n_steps = fmax(n_steps, ceil(work_us / fmax(l->target_us - beside_us, beside_us)));
    }
    return work_us + n_steps * beside_us;
}

/* The time that t's attention program adds per pair; 0 if it has none. */
static double added_pair_us(const scheduler *s, const sched_task *t) {
    return t->program != 0 ? program_pair_us(&s->programs, t->program) : 0.0;
}

static void add_prompt(const scheduler *s, deadline_load *load, const sched_task *t, double n_done) {
    double n = (double)t->n_known - n_done, pairs = n * (n_done + (n + 1.0) / 2.0);
    load->rows += n;
    load->pairs += pairs;
    load->program_us += pairs * added_pair_us(s, t);
}

static deadline_load load_of_running(const scheduler *s) {
    deadline_load load = {0};
    for (int32_t i = 0; i < s->n_running; i++) {
        const sched_task *t = s->running[i];
        if (t->n_known - t->kv.n_computed == 1) {
            load.n_decodes++;
            load.decode_pairs += t->n_known;
            load.decode_program_us += t->n_known * added_pair_us(s, t);
        } else {
            add_prompt(s, &load, t, t->kv.n_computed);
        }
    }
    return load;
}

static bool any_deadline(const scheduler *s) {
    for (int32_t i = 0; i < s->n_waiting; i++) {
        if (s->waiting[i]->deadline_us > 0) {
            return true;
        }
    }
    return false;
}

/* Adds t's prompt to the load ahead of later tasks. If t itself would be late, refuses it
 * instead and returns false. A task that was admitted before is finished even if late. */
static bool deadline_pass(scheduler *s, const sched_limits *l, deadline_load *load, sched_task *t,
                          int64_t now_us) {
    deadline_load with = *load;
    add_prompt(s, &with, t, t->n_found);
    double late_us = (double)(now_us - t->deadline_us) + deadline_foretell_us(l, &with);
    if (t->deadline_us > 0 && t->n_admitted == 0 && late_us > 0.0) {
        s->options.hooks->refuse(s->options.context, t,
                                 (int32_t)fmin(LONGEST_S, fmax(1.0, ceil(late_us * 1e-6))));
        return false;
    }
    *load = with;
    return true;
}

int32_t deadline_check(scheduler *s, int64_t now_us) {
    assert(s != NULL);
    int32_t n_refused = 0;
    if (s->step_cost.n_steps < MEASURED || !any_deadline(s)) {
        return 0;
    }
    s->now_us = now_us;
    sched_limits l = s->limits;
    l.cost = step_cost_fit(&s->step_cost);
    deadline_load load = load_of_running(s);
    int32_t n = candidates_order_begin(s);
    for (int32_t k = 0, i; k < CANDIDATES_EXAMINED && (i = candidates_order_next(s, n)) < n; k++) {
        if (deadline_pass(s, &l, &load, s->ordered[i], now_us)) {
            candidates_order_served(s, n, s->ordered[i]);
        } else {
            n_refused++;
        }
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        if (i >= n || s->keys[i] == s->keys[i]) { /* not visited by the loop above (visited keys are NAN) */
            n_refused += !deadline_pass(s, &l, &load, s->ordered[i], now_us);
        }
    }
    return n_refused;
}

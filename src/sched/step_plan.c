/* step_plan decides what a step computes:
 *
 *   candidates, in the order of the admission policy -> describe -> plan (sched.h)
 *   -> preempt -> admit -> reserve pages
 *
 * The engine calls it before each forward pass; the simulator (lab/sim/serving.h) calls
 * it with a clock of its own. */
#include <math.h>
#include <string.h>

#include "sched/admission_candidates.h"
#include "sched/prefix_wait.h"
#include "sched/scheduler.h"

/* Fairness between running tenants under ADMISSION_FAIR: a tenant that floods the server
 * gives places in the batch, pages and rows back to one that runs less. So another
 * tenant's request is computed almost as soon as on an idle server.
 *
 * A task has is_first if it is the first waiting task that can be admitted and another
 * tenant runs more tasks than its own runs besides it. It keeps is_first until its prompt
 * is computed. The service counters order the waiting tasks. A task that the counters
 * pass over takes a place only if its tenant then runs no more tasks than some tenant
 * with more requests: a tenant with slow rows, because of its rules, is served little
 * however many places it holds. A task with is_first takes places and pages of the tenant
 * that runs most: its newest tasks are preempted until there is room. The task is
 * admitted, and its prefill gets rows, before others. A preempted task never gets
 * is_first, so tenants do not preempt each other in turns; one that was preempted often
 * has aged (sched.h) and keeps its pages. */

/* How many tasks of a tenant run besides t. */
static int32_t count_running(const scheduler *s, int32_t slot, const sched_task *t) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        n += s->running[i] != t && s->running[i]->tenant_slot == slot;
    }
    return n;
}

static int32_t count_active(const scheduler *s, int32_t slot) {
    return s->service.slots[slot].n_active;
}

/* The newest preemptible task of the tenant that runs most, among tenants that have more
 * requests than t's and run over `ahead` more tasks than t's does besides t. NULL if
 * none. */
static const sched_task *fair_preempt_victim_for(const scheduler *s, const sched_task *t, int32_t ahead) {
    const sched_task *victim = NULL;
    int32_t most = count_running(s, t->tenant_slot, t) + ahead, examined = t->tenant_slot;
    for (int32_t i = s->n_running - 1; i >= 0; i--) {
        const sched_task *r = s->running[i];
        bool is_busier =
            r->tenant_slot != examined && count_active(s, r->tenant_slot) > count_active(s, t->tenant_slot);
        if (!is_busier || r->is_first || r->n_preempted >= s->limits.max_preemptions) {
            continue;
        }
        examined = r->tenant_slot; /* counts a tenant's tasks once */
        int32_t n = count_running(s, r->tenant_slot, NULL);
        if (n > most) {
            most = n;
            victim = r;
        }
    }
    return victim;
}

static bool may_take_places(const sched_task *t) {
    return t->n_preempted == 0 && t->group == 0;
}

/* Whether t may be admitted: it waits for no prefix, no adapter slot and no tier. The
 * hook starts to fetch missing pages. */
static bool fair_preempt_may_go(scheduler *s, sched_task *t) {
    const sched_hooks *hooks = s->options.hooks;
    return !prefix_wait_blocks(s, t) && candidates_have_slot(s, t) &&
           (hooks->is_ready == NULL || hooks->is_ready(s->options.context, t));
}

/* Whether one more task may run. */
static bool has_place(const scheduler *s) {
    return s->n_running < s->limits.max_seqs;
}

/* The waiting task that takes the next place; NULL if none may. *is_passed: the service
 * counters favour other tenants, which were served less (perhaps because their rows are
 * slow). Then the task takes a place only if its tenant then runs no more tasks than the
 * one that gives it up, or than one that could. */
static sched_task *head_of_waiting(scheduler *s, bool *is_passed) {
    int32_t n = candidates_order_begin(s);
    *is_passed = false;
    for (int32_t k = 0, i; k < CANDIDATES_EXAMINED && (i = candidates_order_next(s, n)) < n; k++) {
        sched_task *t = s->ordered[i];
        bool gives_nobody = fair_preempt_victim_for(s, t, *is_passed && !has_place(s)) == NULL;
        if (!gives_nobody && may_take_places(t) && fair_preempt_may_go(s, t)) {
            return t;
        }
        if (gives_nobody || !may_take_places(t)) {
            *is_passed = *is_passed || !prefix_wait_blocks(s, t);
        }
        /* the other tasks of t's tenant cannot take it either */
        for (int32_t j = 0; j < n && gives_nobody; j++) {
            s->keys[j] = s->ordered[j]->tenant_slot == t->tenant_slot ? NAN : s->keys[j];
        }
    }
    return NULL;
}

/* Pages that t still has to allocate for its known tokens and the next one. */
static int64_t pages_lacking(const scheduler *s, const sched_task *t) {
    sched_seq d = {.n_groups = s->options.n_groups,
                   .n_pages = kv_seq_pages(&t->kv),
                   .n_passed = kv_seq_passed(s->kv, &t->kv)};
    if (t->state == TASK_WAITING) {
        kv_held held;
        (void)kv_seq_peek(s->kv, &t->kv, t->tokens, task_reusable(t), &held);
        d.n_pages = held.n_entries;
        d.n_passed = held.n_entries - held.n_full;
    }
    return sched_pages_claimed(&s->limits, &d, t->n_known + 1);
}

/* Sets t->is_first if another tenant runs more, and makes room for t. *promised: pages
 * promised to tasks with is_first, in total. */
static void put_first(scheduler *s, sched_task *t, bool is_passed, int64_t *promised) {
    int32_t n_places = t->state == TASK_WAITING ? 1 : 0;
    int64_t n_pages = *promised + (s->kv != NULL ? pages_lacking(s, t) : 0);
    t->is_first = may_take_places(t) && fair_preempt_victim_for(s, t, is_passed && !has_place(s)) != NULL;
    const sched_task *victim = t->is_first ? fair_preempt_victim_for(s, t, is_passed) : NULL;
    while (victim != NULL && (s->n_running + n_places > s->limits.max_seqs ||
                              (s->kv != NULL && n_pages > kv_cache_available(s->kv)))) {
        scheduler_preempt_group(s, victim, NULL);
        victim = fair_preempt_victim_for(s, t, is_passed);
    }
    *promised = t->is_first ? n_pages : *promised;
}

/* Sets is_first of the running tasks and of the first waiting one, and makes room for
 * them by preemption, before a step is planned. Does nothing under other policies.
 * O(waiting + running^2). */
static void fair_preempt(scheduler *s) {
    if (s->options.policy != ADMISSION_FAIR) {
        return;
    }
    int32_t n = 0;
    int64_t promised = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        s->running[i]->is_first = false;
        if (s->running[i]->state == TASK_PREFILL) {
            s->candidates[n++] = s->running[i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (s->candidates[i]->state == TASK_PREFILL) { /* not preempted for an earlier one */
            put_first(s, s->candidates[i], false, &promised);
        }
    }
    for (int32_t i = 0; i < s->n_waiting; i++) {
        s->waiting[i]->is_first = false;
    }
    bool is_passed = false;
    sched_task *head = s->n_running > 0 ? head_of_waiting(s, &is_passed) : NULL;
    if (head != NULL) {
        put_first(s, head, is_passed, &promised);
    }
}

/* Describes t to the planner. Fills *d in place, since copying a struct would stall on
 * the stores just made. */
static void step_plan_describe(const scheduler *s, const sched_task *t, sched_seq *d) {
    memset(d, 0, sizeof *d);
    d->n_known = t->n_known;
    d->n_computed = t->kv.n_computed;
    d->n_groups = s->options.n_groups;
    d->n_most = t->n_max;
    d->n_preempted = t->n_preempted;
    d->group = t->group;
    d->is_first = t->is_first;
    d->sits_out = t->sits_out && t->state != TASK_WAITING;
    d->adapter = t->adapter;
    d->no_logits = t->no_logits;
    d->wants_logits = task_wants_logits(t);
    if (t->program != 0) {
        d->has_program = true;
        d->program_pair_us = program_pair_us(&s->programs, t->program);
        d->program_pairs = program_most_pairs(&s->programs, t->program);
    }
    d->n_pages = kv_seq_pages(&t->kv);
    if (s->kv != NULL && t->group == 0) {
        d->n_pages -= kv_seq_copied(s->kv, &t->kv); /* excluded, since pages for their copies are reserved */
    }
    if (s->limits.most.n_caps > 0 && (t->is_first || t->n_preempted >= s->limits.max_preemptions)) {
        d->n_passed = kv_seq_passed(s->kv, &t->kv);
    }
    if (s->options.hooks->describe != NULL) {
        s->options.hooks->describe(s->options.context, t, d);
    }
}

/* Number of t's pages that preempting it does not free, since others hold them too. A
 * shared last page is left out if t copies it for its next token. */
static int32_t step_plan_shared_pages(const scheduler *s, const sched_task *t, const sched_seq *d) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->kv->n_token_groups; g++) {
        const kv_table *table = &t->kv.tables[g];
        int32_t n_kept = table->n_pages - kv_table_copies_tail(s->kv->pool, table, s->limits.page_tokens);
        for (int32_t i = 0; i < n_kept; i++) {
            n += kv_seq_holders(s->kv, &t->kv, g, i) != 1;
        }
    }
    return n < d->n_pages ? n : d->n_pages;
}

/* If pages are so scarce that a task may be preempted, counts how many each running task
 * would free. */
static void step_plan_describe_shares(scheduler *s) {
    int32_t n_growing = s->limits.max_rows / s->limits.page_tokens + 2 * (s->n_running + s->n_candidates + 1);
    if (s->kv == NULL ||
        kv_cache_available(s->kv) >= n_growing * (s->options.n_groups + s->kv->n_state_pages)) {
        return;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        if (s->running[i]->group == 0) {
            s->running_seqs[i].n_shared = step_plan_shared_pages(s, s->running[i], &s->running_seqs[i]);
        }
    }
}

static void describe_candidate(scheduler *s, int32_t i) {
    sched_task *t = s->candidates[i];
    sched_seq *d = &s->waiting_seqs[i];
    step_plan_describe(s, t, d);
    if (s->kv != NULL) {
        kv_held held;
        d->n_computed = kv_seq_peek(s->kv, &t->kv, t->tokens, task_reusable(t), &held);
        d->n_pages = held.n_entries;
        d->n_passed = held.n_entries - held.n_full;
        d->n_computed = kv_seq_swap_peek(s->kv, &t->kv, d->n_computed);
        prefix_wait_find(s, i);
    }
}

/* Adapts the item of t, just admitted, to t's tokens. More of them may be cached than
 * when the step was planned, since evictions for earlier tasks expose entries. If its
 * rows now reach the last known token, it takes one more row of logits, or if none is
 * left gets one row less. False: no row is left for it in this step. */
static bool fit_admitted(scheduler *s, const sched_task *t, sched_item *item) {
    if (t->state == TASK_DONE) {
        return false;
    }
    int32_t n_left = t->n_known - t->kv.n_computed;
    item->n_rows = item->n_rows < n_left ? item->n_rows : n_left;
    if (item->n_rows < n_left || item->n_out > 0 || t->no_logits) {
        return true;
    }
    if (s->plan.n_out < s->limits.max_out) {
        item->n_out = 1;
        s->plan.n_out++;
    } else {
        item->n_rows--;
    }
    return item->n_rows > 0;
}

/* Moves the candidates with an item to the running queue. */
static void admit_planned(scheduler *s) {
    sched_plan *plan = &s->plan;
    int32_t n_items = plan->n_items - plan->n_admitted, kept = 0;
    for (int32_t i = n_items; i < plan->n_items; i++) {
        sched_task *t = s->tasks[i];
        scheduler_admit(s, t);
        if (s->options.hooks->admitted != NULL) {
            s->options.hooks->admitted(s->options.context, t);
        }
        if (fit_admitted(s, t, &plan->items[i])) {
            plan->items[n_items] = plan->items[i];
            s->tasks[n_items++] = t;
        }
        scheduler_run(s, t);
    }
    plan->n_items = n_items;
    for (int32_t i = 0; i < s->n_waiting; i++) {
        if (s->waiting[i]->state == TASK_WAITING) {
            s->waiting[kept++] = s->waiting[i];
        }
    }
    s->n_waiting = kept;
}

/* tokens that it has computed itself are not dropped */
static bool drop_tail(scheduler *s, sched_task *t) {
    int32_t keep = t->kv.n_computed - t->kv.n_computed % s->limits.page_tokens;
    bool is_reused = t->kv.n_computed == t->n_reused; /* tokens that it computed itself are kept */
    if (!t->kv.has_path || keep == t->kv.n_computed || !is_reused ||
        !kv_seq_can_truncate(s->kv, &t->kv, keep)) {
        return false;
    }
    scheduler_keep_whole_pages(s, t);
    return true;
}

/* Reserves pages for copies of the planned items' states: one after each row that a draft
 * follows, so that any draft can be rejected, and one where a snapshot is due. Drafts
 * without such pages are dropped. */
static void copy_states(scheduler *s) {
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        sched_item *item = &s->plan.items[i];
        kv_seq *kv = &s->tasks[i]->kv;
        int32_t end = kv->n_computed + item->n_rows, known = end - item->n_drafts;
        if (item->n_drafts == 0) {
            kv_seq_copy_due(s->kv, kv, item->n_rows);
            continue;
        }
        int32_t n_left_out = item->n_drafts - kv_seq_copy_states(s->kv, kv, known, end);
        if (n_left_out > 0) {
            item->n_drafts -= n_left_out;
            item->n_rows -= n_left_out;
            kv_seq_give_back(s->kv, kv, end - n_left_out);
        }
    }
}

/* Evicts cached pages until the planned items' pages are free, as far as possible. */
static void make_free(scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        n += (int32_t)kv_seq_needs(s->kv, &s->tasks[i]->kv, s->plan.items[i].n_rows);
    }
    kv_cache_make_free(s->kv, n);
}

/* Reserves pages for n more tokens of t in every group, or in none. */
static quire_err step_plan_reserve(scheduler *s, sched_task *t, int32_t n) {
    bool is_noted = s->options.hooks->reserved != NULL;
    int32_t n_pages = is_noted ? (int32_t)kv_seq_needs(s->kv, &t->kv, n) : 0;
    TRY(kv_seq_reserve(s->kv, &t->kv, n, &s->copies));
    if (is_noted) {
        s->options.hooks->reserved(s->options.context, t, n, n_pages);
    }
    return QUIRE_OK;
}

/* Reserves pages for one item. If they are short, drops its drafts, or the shared page
 * that it would have to copy. */
static quire_err reserve_item(scheduler *s, sched_task *t, sched_item *item) {
    quire_err r = step_plan_reserve(s, t, item->n_rows);
    if (r == QUIRE_NO_ROOM && item->n_drafts > 0) {
        item->n_rows -= item->n_drafts;
        item->n_drafts = 0;
        r = step_plan_reserve(s, t, item->n_rows);
    }
    if (r == QUIRE_NO_ROOM && drop_tail(s, t)) {
        make_free(s);
        r = step_plan_reserve(s, t, item->n_rows);
    }
    if (r == QUIRE_NO_ROOM && kv_seq_take_over(s->kv, &t->kv)) {
        r = step_plan_reserve(s, t, item->n_rows);
    }
    return r;
}

/* Reserves pages for every planned item. An item that finds none is left out, and planned
 * again in the next step. */
static void reserve_planned(scheduler *s) {
    int32_t kept = 0;
    s->copies.n = 0;
    if (s->kv == NULL) {
        return;
    }
    make_free(s);
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        if (reserve_item(s, s->tasks[i], &s->plan.items[i]) == QUIRE_OK) {
            s->plan.items[kept] = s->plan.items[i];
            s->tasks[kept++] = s->tasks[i];
        }
    }
    s->plan.n_items = kept;
    if (s->kv->n_state_pages > 0) {
        copy_states(s);
    }
}

static void step_plan_settle(scheduler *s) {
    if (s->options.hooks->settle != NULL) {
        s->options.hooks->settle(s->options.context);
    }
}

/* Preempts the newest task but never the oldest, so that in the end a step has rows. If
 * all belong to the oldest one's group, preempts all: recomputed on its own, the group
 * fits. */
static void preempt_newest(scheduler *s) {
    for (int32_t i = s->n_running - 1; i > 0 && s->plan.n_preempted == 0; i--) {
        scheduler_preempt_group(s, s->running[i], s->running[0]);
    }
    if (s->plan.n_preempted == 0) {
        scheduler_preempt_group(s, s->running[0], NULL);
    }
    step_plan_settle(s);
}

bool scheduler_yield(scheduler *s) {
    if (s->n_running == 0) {
        return false;
    }
    scheduler_preempt_group(s, s->running[s->n_running - 1], NULL);
    step_plan_settle(s);
    return true;
}

/* Whether a running task waits for something other than pages, or ended at admission. */
static bool some_sit_out(const scheduler *s) {
    bool some = false;
    for (int32_t i = 0; i < s->n_running && !some; i++) {
        some = s->running[i]->sits_out || s->running[i]->state == TASK_DONE;
    }
    return some;
}

/* Makes room for the next step, since nothing runs in this one. A task that runs alone
 * takes over pages that it shares with the index (the plan counts them as pages to copy);
 * if that does not help, the owner releases pages that it holds outside of tasks. */
static void step_plan_make_room(scheduler *s) {
    bool is_alone = s->n_running == 1 && s->kv != NULL;
    if (s->n_running > 1) {
        preempt_newest(s);
    } else if (!(is_alone && kv_seq_take_over(s->kv, &s->running[0]->kv)) &&
               s->n_running + s->n_candidates > 0 && s->options.hooks->yield != NULL) {
        s->options.hooks->yield(s->options.context);
    }
}

static void step_plan_add_work(scheduler *s, uint64_t program, double pairs) {
    for (int32_t i = 0; i < s->n_work; i++) {
        if (s->work[i].program == program) {
            s->work[i].pairs += pairs;
            return;
        }
    }
    s->work[s->n_work++] = (program_work){program, pairs};
}

/* Adds up what the planned items compute with attention programs. */
static void count_work(scheduler *s) {
    s->n_work = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        const sched_task *t = s->tasks[i];
        if (t->program != 0) {
            double n = s->plan.items[i].n_rows;
            step_plan_add_work(s, t->program, n * ((double)t->kv.n_computed + (n + 1.0) / 2.0));
        }
    }
}

void scheduler_note_us(scheduler *s, double us) {
    const sched_plan *plan = &s->plan;
    if (s->n_work == 0) {
        step_cost_note(&s->step_cost, plan->n_rows, plan->n_pairs, us);
        return;
    }
    sched_cost cost = step_cost_fit(&s->step_cost);
    program_costs_note(&s->programs, s->work, s->n_work,
                       us - sched_predict_us(&cost, plan->n_rows, plan->n_pairs));
}

static void plan_step(scheduler *s) {
    fair_preempt(s);
    s->n_candidates = admission_candidates_find(s);
    for (int32_t i = 0; i < s->n_running; i++) {
        step_plan_describe(s, s->running[i], &s->running_seqs[i]);
    }
    step_plan_describe_shares(s);
    for (int32_t i = 0; i < s->n_candidates; i++) {
        describe_candidate(s, i);
    }
    s->limits.cost = step_cost_fit(&s->step_cost);
    int32_t n_free = s->kv != NULL ? kv_cache_available(s->kv) : INT32_MAX / 2;
    sched_make_plan(&s->limits, s->running_seqs, s->n_running, s->waiting_seqs, s->n_candidates, n_free,
                    &s->plan);
    s->limits.program_turn += (uint32_t)s->plan.n_program_decodes;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        int32_t k = s->plan.items[i].seq;
        s->tasks[i] = k < s->n_running ? s->running[k] : s->candidates[k - s->n_running];
    }
}

bool step_plan(scheduler *s, int64_t now_us) {
    s->now_us = now_us;
    plan_step(s);
    scheduler_preempt_marked(s);
    step_plan_settle(s);
    admit_planned(s);
    reserve_planned(s);
    count_work(s);
    if (s->plan.n_items == 0 && s->plan.n_preempted == 0 && !some_sit_out(s)) {
        step_plan_make_room(s);
    }
    return s->plan.n_items > 0;
}

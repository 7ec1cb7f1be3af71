/* The scheduler over a KV cache, without a model: tasks arrive, run, are preempted and
 * end; after every step pages and queues agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "sched/admission_candidates.h"
#include "sched/prefix_wait.h"
#include "test.h"

enum { PAGE = 4, MAX_TASKS = 64, MAX_LEN = 120, MAX_SEQS = 6 };

typedef struct world {
    scheduler sched;
    kv_cache kv;
    sched_task tasks[MAX_TASKS];
    int32_t tokens[MAX_TASKS][MAX_LEN];
    int32_t n_tasks, n_admitted, n_preempted, n_refused, after_s;
    const sched_task *unready; /* the hook says no to this one */
    sched_task *uncovered;     /* the first admission lets the cache find all of it */
    kv_seq held;               /* pages of no task, which the hook gives up */
    int32_t n_yields;
} world;

static bool is_ready(void *context, sched_task *t) {
    return t != ((world *)context)->unready;
}

/* Puts the pages of t's prompt into the cache. */
static void uncover(world *w, const sched_task *t) {
    kv_copies none = {0};
    int32_t tenant = 1;
    kv_seq s;
    assert_int_equal(kv_seq_init(&s, 1, (int32_t)kv_pages_for(MAX_LEN, PAGE)), QUIRE_OK);
    assert_int_equal(kv_seq_open(&w->kv, &s, NULL, 0, &tenant, sizeof tenant, t->tokens, t->n_prompt),
                     QUIRE_OK);
    assert_int_equal(kv_seq_reserve(&w->kv, &s, t->n_prompt, &none), QUIRE_OK);
    kv_seq_advance(&s, t->n_prompt);
    kv_seq_release(&w->kv, &s, t->tokens, KV_KEEP);
    kv_seq_close(&w->kv, &s);
    kv_seq_deinit(&s);
}

static void admitted(void *context, sched_task *t) {
    world *w = context;
    if (w->n_admitted++ == 0 && w->uncovered != NULL) {
        uncover(w, w->uncovered);
    }
    assert_int_equal(t->state, TASK_WAITING);
}

static bool preempt(void *context, sched_task *t) {
    ((world *)context)->n_preempted++;
    /* one that was just admitted may have found no page */
    assert_true(kv_seq_pages(&t->kv) > 0 || t->kv.n_computed == 0);
    return false;
}

static void refuse(void *context, sched_task *t, int32_t after_s) {
    world *w = context;
    w->n_refused++;
    w->after_s = after_s;
    t->state = TASK_DONE;
}

/* The plan that it reads names no task that has ended since: its owner may have freed
 * that. */
static void settle(void *context) {
    const scheduler *s = &((const world *)context)->sched;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        assert_int_not_equal(s->tasks[i]->state, TASK_DONE);
    }
}

static void yield_held(void *context) {
    world *w = context;
    w->n_yields++;
    kv_seq_release(&w->kv, &w->held, NULL, KV_DROP);
}

static const sched_hooks HOOKS = {.is_ready = is_ready,
                                  .admitted = admitted,
                                  .preempt = preempt,
                                  .settle = settle,
                                  .refuse = refuse,
                                  .yield = yield_held};

static void open_world(world *w, int32_t n_pages, admission_policy policy) {
    memset(w, 0, sizeof *w);
    kv_cache_options k = {.n_pages = n_pages,
                          .page_tokens = PAGE,
                          .n_groups = 1,
                          .max_namespaces = 4,
                          .seed = 1,
                          .granularity = KV_GRANULARITY_TOKEN};
    assert_int_equal(kv_cache_open(&k, &w->kv), QUIRE_OK);
    scheduler_options o = {.limits = {.max_rows = 24,
                                      .max_out = MAX_SEQS,
                                      .max_seqs = MAX_SEQS,
                                      .max_chunk = 16,
                                      .page_tokens = PAGE,
                                      .max_preemptions = SCHED_MAX_PREEMPTIONS},
                           .policy = policy,
                           .lambda = 500.0,
                           .n_groups = 1,
                           .max_tasks = MAX_TASKS,
                           .max_tenants = 4,
                           .kv = &w->kv,
                           .hooks = &HOOKS,
                           .context = w};
    assert_int_equal(scheduler_open(&o, &w->sched), QUIRE_OK);
}

static void close_world(world *w) {
    for (int32_t i = 0; i < w->n_tasks; i++) {
        sched_task *t = &w->tasks[i];
        kv_seq_release(&w->kv, &t->kv, t->tokens, KV_DROP);
        kv_seq_close(&w->kv, &t->kv);
        kv_seq_deinit(&t->kv);
    }
    kv_seq_release(&w->kv, &w->held, NULL, KV_DROP);
    kv_seq_deinit(&w->held);
    scheduler_close(&w->sched);
    kv_cache_close(&w->kv);
}

/* Takes n pages that no task has. */
static void hold_pages(world *w, int32_t n) {
    kv_copies none = {0};
    assert_int_equal(kv_seq_init(&w->held, 1, n), QUIRE_OK);
    kv_cache_make_free(&w->kv, n);
    assert_int_equal(kv_seq_reserve(&w->kv, &w->held, n * PAGE, &none), QUIRE_OK);
    kv_seq_advance(&w->held, n * PAGE);
}

/* Pool, index and tables agree, and every task is in the queue of its state. */
static void check(const world *w) {
    const kv_table *tables[MAX_SEQS + 1];
    quire_error err = {0};
    int32_t n = kv_seq_list_tables(&w->held, tables);
    for (int32_t i = 0; i < w->sched.n_running; i++) {
        n += kv_seq_list_tables(&w->sched.running[i]->kv, tables + n);
        assert_true(w->sched.running[i]->state == TASK_PREFILL || w->sched.running[i]->state == TASK_DECODE);
        assert_int_equal(kv_seq_check(&w->kv, &w->sched.running[i]->kv, &err), QUIRE_OK);
    }
    for (int32_t i = 0; i < w->sched.n_waiting; i++) {
        assert_int_equal(w->sched.waiting[i]->state, TASK_WAITING);
        assert_int_equal(kv_seq_pages(&w->sched.waiting[i]->kv), 0);
    }
    if (kv_cache_check(&w->kv, tables, n, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* A task of n_prompt tokens, the first n_shared of which all tasks of its tenant have. */
static sched_task *arrive(world *w, int32_t tenant, int32_t n_prompt, int32_t n_shared, int32_t n_out) {
    int32_t i = w->n_tasks++;
    sched_task *t = &w->tasks[i];
    *t = (sched_task){.tokens = w->tokens[i],
                      .n_prompt = n_prompt,
                      .n_known = n_prompt,
                      .n_max = n_prompt + n_out,
                      .arrival = (uint64_t)i};
    for (int32_t k = 0; k < n_prompt; k++) {
        t->tokens[k] = k < n_shared ? k : 1000 * (i + 1) + k;
    }
    t->tenant_slot = service_counters_enter(&w->sched.service, &tenant, sizeof tenant);
    assert_int_equal(kv_seq_init(&t->kv, 1, (int32_t)kv_pages_for(MAX_LEN, PAGE)), QUIRE_OK);
    assert_int_equal(kv_seq_open(&w->kv, &t->kv, NULL, 0, &tenant, sizeof tenant, t->tokens, n_prompt),
                     QUIRE_OK);
    scheduler_wait(&w->sched, t);
    return t;
}

static void end(world *w, sched_task *t) {
    kv_seq_release(&w->kv, &t->kv, t->tokens, KV_KEEP);
    scheduler_stop(&w->sched, t);
    service_counters_leave(&w->sched.service, t->tenant_slot);
    t->state = TASK_DONE;
}

/* Planned rows whose logits are wanted: those of last known tokens. */
static int32_t wanted_rows(const scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        n += s->tasks[i]->kv.n_computed + s->plan.items[i].n_rows == s->tasks[i]->n_known;
    }
    return n;
}

/* Plans a step and computes it. Returns how many tasks took part. */
static int32_t step(world *w, int64_t now_us) {
    scheduler *s = &w->sched;
    bool has_items = step_plan(s, now_us);
    check(w);
    assert_int_equal(has_items, s->plan.n_items > 0);
    assert_true(wanted_rows(s) <= s->plan.n_out && s->plan.n_out <= s->limits.max_out);
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        sched_task *t = s->tasks[i];
        assert_true(t->kv.tables[0].n_tokens == t->kv.n_computed + s->plan.items[i].n_rows);
        kv_seq_advance(&t->kv, s->plan.items[i].n_rows);
        bool is_prompt = t->n_known == t->n_prompt;
        service_counters_add(&s->service, t->tenant_slot,
                             is_prompt ? SERVICE_PROMPT_WEIGHT * s->plan.items[i].n_rows : 0.0);
        kv_seq_publish(&w->kv, &t->kv, t->tokens);
        if (t->kv.n_computed == t->n_known) {
            t->state = TASK_DECODE;
            t->tokens[t->n_known++] = (int32_t)t->arrival;
            service_counters_add(&s->service, t->tenant_slot, SERVICE_OUTPUT_WEIGHT);
            if (t->n_known == t->n_max) {
                end(w, t);
            }
        }
        check(w);
    }
    return s->plan.n_items;
}

TEST(what_is_not_ready_is_passed_over) {
    static world w;
    open_world(&w, 64, ADMISSION_FCFS);
    sched_task *first = arrive(&w, 0, 8, 0, 4), *second = arrive(&w, 0, 8, 0, 4);
    w.unready = first;
    assert_int_equal(step(&w, 1), 1);
    assert_ptr_equal(w.sched.tasks[0], second);
    assert_int_equal(first->state, TASK_WAITING);
    w.unready = NULL;
    assert_int_equal(step(&w, 2), 2);
    assert_int_equal(w.n_admitted, 2);
    close_world(&w);
}

TEST(a_prefix_that_another_computes_is_waited_for) {
    static world w;
    open_world(&w, 64, ADMISSION_FCFS);
    arrive(&w, 0, 40, 32, 4);
    sched_task *second = arrive(&w, 0, 40, 32, 4);
    assert_int_equal(step(&w, 1), 1); /* sixteen rows of the first */
    assert_int_equal(second->state, TASK_WAITING);
    assert_true(prefix_wait_blocks(&w.sched, second));
    for (int64_t now = 2; second->state == TASK_WAITING; now++) {
        assert_true(now < 10 && step(&w, now) > 0);
    }
    assert_int_equal(second->n_reused, 32);
    assert_int_equal(w.sched.counts.prompt_tokens_reused, 32);
    close_world(&w);
}

TEST(what_an_admission_finds_beyond_the_plan_is_not_computed_again) {
    world w;
    open_world(&w, 20, ADMISSION_FCFS);
    sched_task *a = arrive(&w, 1, 6, 0, 3), *b = arrive(&w, 1, 10, 0, 3);
    w.uncovered = b;
    assert_int_equal(step(&w, 1), 2);
    assert_int_equal(a->n_known, 7);
    assert_int_equal(b->n_cached, 9);
    assert_int_equal(b->n_known, 11);
    assert_int_equal(b->kv.n_computed, 10);
    while (a->state != TASK_DONE || b->state != TASK_DONE) {
        assert_true(step(&w, 2) > 0);
    }
    close_world(&w);
}

/* A task that is planned not to reach its end reaches it after all, where every row of
 * logits is taken: it waits for the next step. */
TEST(what_an_admission_finds_beyond_the_plan_takes_no_row_of_logits_that_there_is_not) {
    static world w;
    open_world(&w, 20, ADMISSION_FCFS);
    w.sched.limits.max_out = 1;
    sched_task *decode = arrive(&w, 1, 2, 0, 5);
    assert_int_equal(step(&w, 1), 1);
    sched_task *a = arrive(&w, 1, 6, 0, 3), *b = arrive(&w, 1, 10, 0, 3);
    w.n_admitted = 0;
    w.uncovered = b;
    assert_int_equal(step(&w, 2), 2);
    assert_int_equal(a->kv.n_computed, 5);
    assert_int_equal(b->kv.n_computed, 9);
    assert_int_equal(b->n_known, 10);
    assert_int_equal(b->state, TASK_DECODE);
    while (decode->state != TASK_DONE || a->state != TASK_DONE || b->state != TASK_DONE) {
        assert_true(step(&w, 3) > 0);
    }
    close_world(&w);
}

/* The same with a row of logits to spare. */
TEST(what_an_admission_finds_beyond_the_plan_takes_a_row_of_logits_that_is_left) {
    static world w;
    open_world(&w, 40, ADMISSION_FCFS);
    sched_task *a = arrive(&w, 1, 6, 0, 3), *b = arrive(&w, 1, 70, 0, 3);
    w.uncovered = b;
    assert_int_equal(step(&w, 1), 2);
    assert_int_equal(w.sched.plan.n_out, 2); /* sixteen rows of b were planned, none of them its last */
    assert_int_equal(a->n_known, 7);
    assert_int_equal(b->n_known, 71);
    close_world(&w);
}

TEST(the_oldest_goes_on_when_nobody_finds_pages) {
    static world w;
    open_world(&w, 8, ADMISSION_FCFS);
    for (int32_t i = 0; i < 4; i++) {
        arrive(&w, 0, 4, 0, 24);
    }
    for (int64_t now = 1; w.sched.n_running + w.sched.n_waiting > 0; now++) {
        assert_true(now < 1000);
        (void)step(&w, now);
        assert_true(w.tasks[0].state == TASK_DONE || w.tasks[0].n_preempted == 0);
    }
    assert_true(w.n_preempted > 0);
    assert_int_equal(w.n_preempted, w.sched.counts.preemptions);
    int32_t sum = 0;
    for (int32_t i = 0; i < w.n_tasks; i++) {
        sum += w.tasks[i].n_preempted;
    }
    assert_int_equal(sum, w.n_preempted);
    close_world(&w);
}

/* Pages that the owner holds besides tasks are given up where nothing could run
 * otherwise, be it a task that waits or the only one that runs, and no sooner. */
TEST(what_is_held_besides_tasks_yields_where_nothing_runs) {
    static world w;
    open_world(&w, 8, ADMISSION_FCFS);
    hold_pages(&w, 6);
    sched_task *small = arrive(&w, 0, 3, 0, 4), *large = arrive(&w, 0, 20, 0, 4);
    for (int64_t now = 1; small->state != TASK_DONE; now++) {
        assert_true(now < 20 && step(&w, now) > 0);
        assert_int_equal(large->state, TASK_WAITING);
        assert_int_equal(w.n_yields, 0);
    }
    assert_int_equal(step(&w, 20), 0);
    assert_int_equal(w.n_yields, 1);
    while (large->state != TASK_DONE) {
        assert_true(step(&w, 21) > 0);
    }
    kv_seq_deinit(&w.held);
    hold_pages(&w, 5);
    sched_task *grows = arrive(&w, 1, 8, 0, 20);
    for (int64_t now = 22; grows->state != TASK_DONE; now++) {
        assert_true(now < 100);
        (void)step(&w, now);
        assert_true(w.n_yields == 1 || grows->n_known > 12); /* its three pages are full by then */
    }
    assert_int_equal(w.n_yields, 2);
    assert_int_equal(w.n_preempted, 0);
    close_world(&w);
}

TEST(a_group_goes_together_but_for_what_is_spared) {
    static world w;
    open_world(&w, 64, ADMISSION_FCFS);
    for (int32_t i = 0; i < 4; i++) {
        arrive(&w, 0, 4, 0, 8)->group = i < 2 ? 7 : 0;
    }
    while (w.sched.n_running < 4) {
        assert_true(step(&w, 1) > 0);
    }
    scheduler_preempt_group(&w.sched, &w.tasks[1], &w.tasks[0]); /* its own group */
    check(&w);
    assert_int_equal(w.n_preempted, 0);
    scheduler_preempt_group(&w.sched, &w.tasks[3], &w.tasks[0]); /* alone: no group is not one */
    check(&w);
    assert_int_equal(w.n_preempted, 1);
    assert_int_equal(w.tasks[3].state, TASK_WAITING);
    scheduler_preempt_group(&w.sched, &w.tasks[1], &w.tasks[2]);
    check(&w);
    assert_int_equal(w.n_preempted, 3);
    assert_int_equal(w.sched.n_running, 1);
    assert_ptr_equal(w.sched.running[0], &w.tasks[2]);
    close_world(&w);
}

/* Both were promised pages that there are not, and neither may be preempted for the
 * other. */
TEST(a_group_alone_that_finds_no_pages_begins_again) {
    static world w;
    open_world(&w, 8, ADMISSION_FCFS);
    sched_task *a = arrive(&w, 0, 15, 0, 6), *b = arrive(&w, 0, 15, 0, 6);
    a->group = b->group = 7;
    while (a->n_known < 17 || b->n_known < 17) { /* four pages each, full */
        assert_true(step(&w, 1) > 0);
    }
    a->n_preempted = b->n_preempted = SCHED_MAX_PREEMPTIONS;
    assert_int_equal(step(&w, 2), 0);
    assert_int_equal(w.n_preempted, 2);
    for (int64_t now = 3; a->state != TASK_DONE || b->state != TASK_DONE; now++) {
        assert_true(now < 100);
        (void)step(&w, now);
    }
    close_world(&w);
}

/* Six tasks of a tenant that run, as many as may. */
static void open_flood(world *w, int32_t n_pages, int32_t n_out_of_first) {
    open_world(w, n_pages, ADMISSION_FAIR);
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        arrive(w, 0, 4, 0, i == 0 ? n_out_of_first : 20);
    }
    assert_int_equal(step(w, 1), MAX_SEQS);
}

/* A task ends; in the next step some are preempted for another tenant, before that step
 * is planned. */
TEST(what_belongs_together_is_settled_by_the_plan_of_the_step) {
    static world w;
    open_flood(&w, 16, 2);
    assert_int_equal(step(&w, 2), MAX_SEQS);
    assert_int_equal(w.tasks[0].state, TASK_DONE);
    arrive(&w, 1, 40, 0, 2);
    assert_true(step(&w, 3) > 0); /* settle looks at the plan */
    assert_true(w.n_preempted > 0);
    for (int64_t now = 4; w.sched.n_running + w.sched.n_waiting > 0; now++) {
        assert_true(now < 1000);
        (void)step(&w, now);
    }
    close_world(&w);
}

TEST(nobody_is_preempted_for_one_that_is_not_ready) {
    static world w;
    open_flood(&w, 64, 20);
    sched_task *t = arrive(&w, 1, 4, 0, 2);
    w.unready = t;
    for (int64_t now = 2; now < 8; now++) {
        assert_int_equal(step(&w, now), MAX_SEQS);
    }
    assert_int_equal(w.n_preempted, 0);
    w.unready = NULL;
    assert_int_equal(step(&w, 8), MAX_SEQS);
    assert_int_equal(w.n_preempted, 1);
    assert_int_equal(t->n_known, 5);
    close_world(&w);
}

/* Its tenant's turn is over, or its pages have to be fetched again. */
TEST(who_no_longer_heads_the_waiting_is_not_first) {
    static world w;
    open_flood(&w, 64, 20);
    sched_task *t = arrive(&w, 1, 4, 0, 2);
    t->is_first = true;
    w.unready = t;
    assert_int_equal(step(&w, 2), MAX_SEQS);
    assert_false(t->is_first);
    close_world(&w);
}

/* A tenant whose rows come slowly is served little, so the service counters put all that
 * it sends before other tenants. */
TEST(a_tenant_that_holds_all_places_gives_one_back_however_little_it_was_served) {
    static world w;
    open_flood(&w, 256, 20);
    for (int32_t i = 0; i < 40; i++) {
        arrive(&w, 0, 4, 0, 20);
    }
    sched_task *t = arrive(&w, 1, 4, 0, 20), *second = arrive(&w, 1, 4, 0, 20);
    service_counters_add(&w.sched.service, t->tenant_slot, 1e6);
    assert_int_equal(step(&w, 2), MAX_SEQS);
    assert_int_equal(w.n_preempted, 1);
    assert_int_equal(t->n_known, 5);
    assert_int_equal(step(&w, 3), MAX_SEQS);
    assert_int_equal(second->n_known, 5);
    for (int64_t now = 4; now < 8; now++) { /* the tenants hold as many: they do not take turns */
        sched_task *more = arrive(&w, 1, 4, 0, 20);
        assert_int_equal(step(&w, now), MAX_SEQS);
        assert_int_equal(w.n_preempted, 3);
        assert_int_equal(more->n_known, now == 4 ? 5 : 4);
    }
    for (int64_t now = 8; now < 40; now++) { /* nor where one of them ends */
        service_counters_add(&w.sched.service, t->tenant_slot, 1e6);
        assert_int_equal(step(&w, now), MAX_SEQS);
        assert_int_equal(w.n_preempted, 3);
    }
    close_world(&w);
}

TEST(a_late_task_is_refused_with_a_time) {
    static world w;
    open_world(&w, 64, ADMISSION_FCFS);
    arrive(&w, 0, 100, 0, 4);
    sched_task *late = arrive(&w, 0, 8, 0, 4);
    late->deadline_us = 1000;
    assert_int_equal(deadline_check(&w.sched, 10), 0); /* nothing was measured yet */
    for (int i = 0; i < 20; i++) {
        step_cost_note(&w.sched.step_cost, 1 + i, 10, 1e6 * (1 + i));
    }
    assert_int_equal(deadline_check(&w.sched, 10), 1);
    assert_int_equal(w.n_refused, 1);
    assert_in_range(w.after_s, 50, 200); /* 108 rows of a second each */
    assert_int_equal(late->state, TASK_DONE);
    close_world(&w);
}

/* How many times as many rounds a long run takes. */
static int longer(void) {
    return getenv("QUIRE_TEST_LONG") != NULL ? 10 : 1;
}

TEST(every_task_ends_under_every_policy_however_few_pages_there_are) {
    static world w;
    uint64_t seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    int32_t n_preempted = 0;
    for (int round = 0; round < 20 * longer(); round++) {
        open_world(&w, 31 + (int32_t)(rng_next(&seed) % 30), (admission_policy)(round % 4));
        for (int64_t now = 1; w.n_tasks < MAX_TASKS || w.sched.n_running + w.sched.n_waiting > 0; now++) {
            assert_true(now < 10000);
            while (w.n_tasks < MAX_TASKS && rng_next(&seed) % 3 == 0) {
                int32_t n_prompt = 1 + (int32_t)(rng_next(&seed) % 70),
                        n_shared = (int32_t)(rng_next(&seed) % 50);
                sched_task *t = arrive(&w, (int32_t)(rng_next(&seed) % 3), n_prompt, n_shared,
                                       1 + (int32_t)(rng_next(&seed) % 40));
                t->submitted_us = now;
            }
            if (w.sched.n_running + w.sched.n_waiting > 0) {
                (void)step(&w, now);
            }
        }
        n_preempted += w.n_preempted;
        close_world(&w);
    }
    assert_true(n_preempted > 0);
}

/* Steps until the first token of a tenant's request of n_prompt tokens, which comes after
 * n_before steps beside n_flood of another's. */
static int32_t steps_to_first_token(world *w, uint64_t *seed, int32_t n_pages, int32_t n_flood,
                                    int32_t n_before, int32_t n_prompt) {
    int64_t now = 1;
    open_world(w, n_pages, ADMISSION_FAIR);
    for (int32_t i = 0; i < n_flood; i++) {
        int32_t n = 1 + (int32_t)(rng_next(seed) % 70);
        arrive(w, 0, n, 0, 1 + (int32_t)(rng_next(seed) % (uint64_t)(MAX_LEN - n)));
    }
    for (; now <= n_before; now++) {
        (void)step(w, now);
    }
    const sched_task *t = arrive(w, 1, n_prompt, 0, 5);
    int32_t n_steps = 0;
    for (; t->n_known == n_prompt; n_steps++, now++) {
        assert_true(n_steps < 1000);
        (void)step(w, now);
    }
    for (; w->sched.n_running + w->sched.n_waiting > 0; now++) { /* and nobody waits for ever */
        assert_true(now < 10000);
        (void)step(w, now);
    }
    close_world(w);
    return n_steps;
}

TEST(a_request_behind_another_tenants_flood_waits_two_steps_more_than_alone) {
    static world w;
    uint64_t seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 60 * longer(); round++) {
        /* with fewer pages the flood preempts its own until some have aged, which keep
         * theirs */
        int32_t n_pages = 100 + (int32_t)(rng_next(&seed) % 160),
                n_prompt = 1 + (int32_t)(rng_next(&seed) % 90);
        int32_t n_before = (int32_t)(rng_next(&seed) % 60);
        int32_t alone = steps_to_first_token(&w, &seed, n_pages, 0, 0, n_prompt);
        int32_t beside = steps_to_first_token(&w, &seed, n_pages, MAX_TASKS - 1, n_before, n_prompt);
        if (beside > alone + 2) {
            fail_msg("%d steps, alone %d: %d pages, %d tokens, after %d steps", (int)beside, (int)alone,
                     (int)n_pages, (int)n_prompt, (int)n_before);
        }
    }
}

TEST_MAIN(NULL, NULL)

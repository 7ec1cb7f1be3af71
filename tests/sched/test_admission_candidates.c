/* The place of a waiting task: as many as the walk through the waiting tasks gives before
 * it, in every order. */
#include <stdio.h>

#include "sched/admission_candidates.h"
#include "seed.h"

enum { MAX_TASKS = 200, TENANTS = 5 };

/* How many the walk gives before t, each being admitted. */
static int32_t walk_to(scheduler *s, const sched_task *t) {
    int32_t n = candidates_order_begin(s), n_before = 0;
    for (int32_t i; (i = candidates_order_next(s, n)) < n && s->ordered[i] != t; n_before++) {
        candidates_order_served(s, n, s->ordered[i]);
    }
    return n_before;
}

static void open_scheduler(scheduler *s, admission_policy policy) {
    static const sched_hooks none = {0};
    scheduler_options o = {.limits = {.max_rows = 16, .max_out = 4, .max_seqs = 4, .page_tokens = 4},
                           .policy = policy,
                           .lambda = 500.0,
                           .n_groups = 1,
                           .max_tasks = MAX_TASKS,
                           .max_tenants = TENANTS,
                           .hooks = &none};
    assert_int_equal(scheduler_open(&o, s), QUIRE_OK);
    s->limits.max_preemptions = 3;
}

static void add(scheduler *s, sched_task *t, uint64_t arrival) {
    int32_t tenant = (int32_t)(rng_next(&seed) % TENANTS);
    *t = (sched_task){.n_prompt = 1 + (int32_t)(rng_next(&seed) % 50),
                      .arrival = arrival,
                      .submitted_us = (int64_t)arrival * 1000,
                      .n_preempted = rng_next(&seed) % 20 == 0 ? 3 : 0};
    t->n_known = t->n_prompt;
    t->tree = rng_next(&seed) % 3 == 0 ? 0 : 1 + rng_next(&seed) % 3;
    t->depth = (int32_t)(rng_next(&seed) % 4);
    t->priority = s->options.policy == ADMISSION_PRIORITY ? (int32_t)(rng_next(&seed) % 3) : 0;
    t->tenant_slot = service_counters_enter(&s->service, &tenant, sizeof tenant);
    service_counters_add(&s->service, t->tenant_slot, (double)(rng_next(&seed) % 100));
    scheduler_wait(s, t);
    t->is_first = rng_next(&seed) % 20 == 0;
}

TEST(the_place_of_a_task_is_where_the_walk_comes_to_it) {
    static const admission_policy policies[] = {ADMISSION_FCFS, ADMISSION_PRIORITY, ADMISSION_PREFIX,
                                                ADMISSION_FAIR};
    static sched_task tasks[MAX_TASKS];
    for (int round = 0; round < 40; round++) {
        scheduler s;
        open_scheduler(&s, policies[round % 4]);
        /* under ADMISSION_PREFIX the walk orders so many */
        int32_t n = policies[round % 4] == ADMISSION_PREFIX ? CANDIDATES_EXAMINED : MAX_TASKS;
        n = 1 + (int32_t)(rng_next(&seed) % (uint64_t)n);
        for (int32_t i = 0; i < n; i++) {
            add(&s, &tasks[i], (uint64_t)i);
        }
        s.now_us = n * 1000;
        for (int32_t i = 0; i < n; i++) {
            assert_int_equal(candidates_ahead(&s, &tasks[i]), walk_to(&s, &tasks[i]));
        }
        scheduler_close(&s);
    }
}

/* The walk of the same tasks as if none were a step of a program. */
static int32_t walk_without_trees(scheduler *s, sched_task *tasks, int32_t n, const sched_task **out) {
    uint64_t trees[MAX_TASKS];
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        trees[i] = tasks[i].tree;
        tasks[i].tree = 0;
    }
    int32_t n_ordered = candidates_order_begin(s);
    for (int32_t i; (i = candidates_order_next(s, n_ordered)) < n_ordered;) {
        out[n_out++] = s->ordered[i];
    }
    for (int32_t i = 0; i < n; i++) {
        tasks[i].tree = trees[i];
    }
    return n_out;
}

/* Whether t may take the turn of `turn`: both are steps of one program, and neither goes
 * before all others. */
static bool may_take_turn(const scheduler *s, const sched_task *t, const sched_task *turn) {
    bool same_class =
        (t->n_preempted >= s->limits.max_preemptions) == (turn->n_preempted >= s->limits.max_preemptions) &&
        (t->n_preempted >= s->limits.max_preemptions || t->is_first == turn->is_first);
    return t == turn || (t->tree != 0 && t->tree == turn->tree && t->tenant_slot == turn->tenant_slot &&
                         t->priority == turn->priority && same_class);
}

TEST(steps_of_a_program_take_its_turns_the_deepest_first) {
    static const admission_policy policies[] = {ADMISSION_FCFS, ADMISSION_PRIORITY, ADMISSION_FAIR};
    static sched_task tasks[MAX_TASKS];
    for (int round = 0; round < 60; round++) {
        scheduler s;
        const sched_task *turns[MAX_TASKS];
        bool taken[MAX_TASKS] = {false};
        open_scheduler(&s, policies[round % 3]);
        int32_t n = 1 + (int32_t)(rng_next(&seed) % MAX_TASKS);
        for (int32_t i = 0; i < n; i++) {
            add(&s, &tasks[i], (uint64_t)i);
        }
        assert_int_equal(walk_without_trees(&s, tasks, n, turns), n);
        assert_int_equal(candidates_order_begin(&s), n);
        for (int32_t k = 0; k < n; k++) {
            const sched_task *expected = NULL;
            for (int32_t i = 0; i < n; i++) {
                bool is_next = !taken[i] && may_take_turn(&s, &tasks[i], turns[k]) &&
                               (expected == NULL || tasks[i].depth > expected->depth);
                expected = is_next ? &tasks[i] : expected;
            }
            assert_ptr_equal(s.ordered[candidates_order_next(&s, n)], expected);
            taken[expected - tasks] = true;
        }
        assert_int_equal(candidates_order_next(&s, n), n);
        scheduler_close(&s);
    }
}

/* Another's request that came between two steps is not overtaken by more of them than
 * without their depths. */
TEST(a_step_takes_no_turn_of_another_request) {
    static sched_task tasks[4];
    static const struct {
        uint64_t tree;
        int32_t depth, place;
    } cases[] = {{1, 0, 3}, {0, 0, 1}, {1, 1, 2}, {1, 2, 0}};
    scheduler s;
    open_scheduler(&s, ADMISSION_FCFS);
    for (int32_t i = 0; i < 4; i++) {
        tasks[i] = (sched_task){.arrival = (uint64_t)i, .tree = cases[i].tree, .depth = cases[i].depth};
        scheduler_wait(&s, &tasks[i]);
    }
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(walk_to(&s, &tasks[i]), cases[i].place);
        assert_int_equal(candidates_ahead(&s, &tasks[i]), cases[i].place);
    }
    scheduler_close(&s);
}

TEST(a_task_that_is_not_ordered_is_after_all_older_ones) {
    static sched_task tasks[MAX_TASKS];
    scheduler s;
    open_scheduler(&s, ADMISSION_PREFIX);
    for (int32_t i = 0; i < MAX_TASKS; i++) {
        add(&s, &tasks[i], (uint64_t)i);
    }
    assert_int_equal(candidates_ahead(&s, &tasks[MAX_TASKS - 1]), MAX_TASKS - 1);
    scheduler_close(&s);
}

TEST_MAIN_SEEDED(NULL, NULL)

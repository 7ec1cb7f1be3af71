/* The place of a waiting task: as many as the walk through the waiting tasks gives before
 * it, in every order. */
#include <stdio.h>

#include "base/rng.h"
#include "sched/admission_candidates.h"
#include "test.h"

enum { MAX_TASKS = 200, TENANTS = 5 };

static uint64_t seed;

/* How many the walk gives before t, each being admitted. */
static int32_t walk_to(scheduler *s, const sched_task *t) {
    int32_t n = candidates_order_begin(s), n_before = 0;
    for (int32_t i; (i = candidates_order_next(s, n)) < n && s->waiting[i] != t; n_before++) {
        candidates_order_served(s, n, s->waiting[i]);
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

int main(void) {
    seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_of_a_task_is_where_the_walk_comes_to_it),
        cmocka_unit_test(a_task_that_is_not_ordered_is_after_all_older_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

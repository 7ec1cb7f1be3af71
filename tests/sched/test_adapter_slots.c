/* Slots of adapters: how many different ones run at once, who waits for one, and that
 * nobody waits for ever. */
#include <string.h>

#include "sched/adapter_slots.h"
#include "sched/admission_candidates.h"
#include "test.h"

enum { MAX_TASKS = 300, MAX_SEQS = 8 };

static const sched_limits limits = {.max_rows = 64,
                                    .max_out = 64,
                                    .max_seqs = MAX_SEQS,
                                    .max_chunk = 8,
                                    .max_adapters = 2,
                                    .page_tokens = 4,
                                    .max_preemptions = 8};

static sched_seq seq_of(int32_t n_known, int32_t n_computed, uint64_t adapter) {
    return (sched_seq){.n_known = n_known,
                       .n_computed = n_computed,
                       .n_pages = (n_computed + 3) / 4,
                       .n_groups = 1,
                       .n_most = n_known + 8,
                       .adapter = adapter};
}

/* Plans, and returns the indices of the waiting ones that are admitted as bits. */
static unsigned admitted(const sched_seq *running, int32_t n_running, const sched_seq *waiting,
                         int32_t n_waiting) {
    sched_item items[MAX_SEQS];
    uint8_t decisions[MAX_SEQS];
    sched_plan p = {.items = items, .decisions = decisions};
    sched_make_plan(&limits, running, n_running, waiting, n_waiting, 100, &p);
    unsigned bits = 0;
    for (int32_t i = p.n_items - p.n_admitted; i < p.n_items; i++) {
        bits |= 1u << (items[i].seq - n_running);
    }
    return bits;
}

TEST(one_whose_adapter_finds_no_slot_waits_and_delays_nobody) {
    sched_seq running[] = {seq_of(5, 4, 7), seq_of(5, 4, 0), seq_of(5, 4, 7)};
    sched_seq waiting[] = {seq_of(3, 0, 8), seq_of(3, 0, 9), seq_of(3, 0, 0), seq_of(3, 0, 7),
                           seq_of(3, 0, 8)};
    assert_int_equal(admitted(running, 3, waiting, 5), 0x1d); /* all but the one under 9 */
    assert_int_equal(admitted(running, 3, waiting + 1, 4), 0x7);
    assert_int_equal(admitted(NULL, 0, waiting, 5), 0x17); /* 8 and 9 have both slots: 7 waits */
}

/* ---- the waiting tasks of a scheduler ---- */

static scheduler s;
static sched_task tasks[MAX_TASKS];

static void open_slots(admission_policy policy) {
    static const sched_hooks none = {0};
    scheduler_options o = {.limits = limits,
                           .policy = policy,
                           .lambda = 500.0,
                           .n_groups = 1,
                           .max_tasks = MAX_TASKS,
                           .max_tenants = 4,
                           .hooks = &none};
    assert_int_equal(scheduler_open(&o, &s), QUIRE_OK);
    memset(tasks, 0, sizeof tasks);
}

static sched_task *add(int32_t i, uint64_t adapter, int64_t submitted_us) {
    sched_task *t = &tasks[i];
    *t = (sched_task){.n_prompt = 3,
                      .n_known = 3,
                      .n_max = 20,
                      .arrival = (uint64_t)i,
                      .submitted_us = submitted_us,
                      .adapter = adapter};
    t->tenant_slot = service_counters_enter(&s.service, "t", 1);
    scheduler_wait(&s, t);
    return t;
}

static void run_at_once(int32_t i, uint64_t adapter) {
    sched_task *t = add(i, adapter, 0);
    s.n_waiting--; /* the newest is the last */
    t->kv.n_computed = 2;
    scheduler_run(&s, t);
}

static bool is_candidate(const sched_task *t) {
    bool is = false;
    for (int32_t i = 0; i < s.n_candidates && !is; i++) {
        is = s.candidates[i] == t;
    }
    return is;
}

TEST(hundreds_that_lack_a_slot_hide_nobody_behind_them) {
    open_slots(ADMISSION_FCFS);
    run_at_once(0, 1);
    run_at_once(1, 2);
    for (int32_t i = 2; i < 290; i++) {
        add(i, 3 + (uint64_t)(i % 50), 1000);
    }
    const sched_task *base = add(290, 0, 1000), *same = add(291, 2, 1000);
    s.now_us = 2000;
    s.n_candidates = admission_candidates_find(&s);
    assert_true(is_candidate(base) && is_candidate(same));
    assert_int_equal(s.n_candidates, 2);
    assert_true(tasks[2].lacks_slot && !base->lacks_slot && !same->lacks_slot);
    scheduler_close(&s);
}

TEST(one_that_has_waited_long_goes_before_younger_ones_under_adapters_that_run) {
    open_slots(ADMISSION_FCFS);
    run_at_once(0, 1);
    run_at_once(1, 2);
    const sched_task *older = add(2, 1, 0), *patient = add(3, 9, 0), *same = add(4, 2, 0),
                     *base = add(5, 0, 0);
    s.now_us = ADAPTER_PATIENCE_US - 1;
    s.n_candidates = admission_candidates_find(&s);
    assert_true(is_candidate(older) && is_candidate(same) && is_candidate(base) && !is_candidate(patient));
    s.now_us = ADAPTER_PATIENCE_US;
    s.n_candidates = admission_candidates_find(&s);
    assert_true(is_candidate(older) && is_candidate(base) && !is_candidate(patient) && !is_candidate(same));
    assert_true(same->lacks_slot && patient->lacks_slot && !older->lacks_slot);
    scheduler_stop(&s, s.running[1]); /* adapter 2 ends: the slot is the patient one's */
    s.n_candidates = admission_candidates_find(&s);
    assert_true(is_candidate(patient));
    scheduler_close(&s);
}

/* A stream of requests under two adapters that would keep both slots for ever, and one
 * under a third. */
TEST(a_flood_under_running_adapters_starves_no_other) {
    for (int policy = ADMISSION_FCFS; policy <= ADMISSION_FAIR; policy++) {
        open_slots((admission_policy)policy);
        sched_task *rare = NULL;
        int32_t n_added = 0, ended_at = -1;
        for (int32_t step = 0; step < 4000 && ended_at < 0; step++) {
            int64_t now_us = step * 10000;
            while (n_added < MAX_TASKS && s.n_waiting < 6) {
                add(n_added, 1 + (uint64_t)(n_added % 2), now_us);
                rare = n_added == 20 ? &tasks[n_added] : rare;
                tasks[n_added].adapter = n_added == 20 ? 3 : tasks[n_added].adapter;
                n_added++;
            }
            (void)step_plan(&s, now_us);
            for (int32_t i = s.n_running - 1; i >= 0; i--) {
                sched_task *t = s.running[i];
                t->kv.n_computed = t->n_known++;
                t->state = TASK_DECODE;
                if (t->n_known == t->n_max) {
                    ended_at = t == rare ? step : ended_at;
                    scheduler_stop(&s, t);
                    n_added = n_added == MAX_TASKS ? 21 : n_added; /* their structs serve again */
                }
            }
        }
        if (ended_at < 0) {
            fail_msg("policy %d: the request under the third adapter never ran", policy);
        }
        scheduler_close(&s);
    }
}

TEST_MAIN(NULL, NULL)

/* Worked examples 25 to 27, and the planner driven without a model: every invariant after
 * every step. */

#include "base/rng.h"
#include "core/kv_layout.h"
#include "lab/bench/baseline.h"
#include "lab/bench/dry_run.h"
#include "test.h"

enum { MAX_REQUESTS = 24 };

static void open_run(const sched_limits *l, int32_t n_pages, const dry_request *requests, int32_t n,
                     dry_run *d) {
    quire_error err = {.message = ""};
    if (dry_run_open(l, n_pages, requests, n, d, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* To the end, with a proof after each step and the planner's promises: rows and sequences
 * within their limits. */
static void finish(dry_run *d) {
    quire_err e;
    quire_error err = {.message = ""};
    while (dry_run_step(d, &e)) {
        assert_int_equal(e, QUIRE_OK);
        if (dry_run_check(d, &err) != QUIRE_OK) {
            fail_msg("step %d: %s", (int)d->step, err.message);
        }
        int32_t rows = 0, n = 0;
        for (int32_t i = 0; i < d->n; i++) {
            rows += d->seqs[i].n_rows;
            n += d->seqs[i].n_rows > 0;
        }
        assert_int_equal(rows, d->plan.n_rows);
        assert_true(rows <= d->limits.max_rows && n <= d->limits.max_seqs);
        assert_true(d->step < 100000);
    }
    assert_int_equal(d->n_done, d->n);
    assert_int_equal(kv_pool_counts(d->cache.pool).n_held, 0);
}

/* Worked example 25. */
TEST(a_left_padded_batch_has_10_pads_of_28_slots) {
    static const int32_t prompts[] = {4, 6, 1, 7};
    assert_int_equal(baseline_pads(prompts, 4), 10);
}

/* Worked example 26. */
TEST(a_static_batch_of_four_takes_199_steps_and_433_of_796_slots_are_useful) {
    static const int32_t lengths[] = {10, 199, 25, 199};
    int64_t ends[4], useful = 0;
    assert_int_equal(baseline_static(lengths, 4, 4, ends), 199);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ends[i], 199);
        useful += lengths[i];
    }
    assert_int_equal(useful, 433);
}

/* Worked example 27: static by count, continuous by the engine's planner. */
TEST(continuous_batching_ends_each_request_at_its_own_step) {
    static const int32_t lengths[] = {9, 1269, 24, 443, 23, 1592, 2, 913},
                         expected[] = {9, 1269, 24, 443, 32, 1616, 34, 947};
    int64_t ends[8];
    assert_int_equal(baseline_static(lengths, 8, 4, ends), 2861);
    dry_request requests[8];
    for (int i = 0; i < 8; i++) {
        requests[i] = (dry_request){1, lengths[i], 0};
        assert_int_equal(ends[i], i < 4 ? 1269 : 2861);
    }
    sched_limits l = {
        .max_rows = 4, .max_out = 4, .max_seqs = 4, .max_chunk = 4, .page_tokens = 16, .max_preemptions = 8};
    dry_run d;
    open_run(&l, 300, requests, 8, &d);
    finish(&d);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(d.seqs[i].ended, expected[i]);
        assert_int_equal(d.seqs[i].n_preempted, 0);
    }
    assert_int_equal(d.step, 1616);
    dry_run_close(&d);
}

TEST(every_reservation_holds_the_tokens_and_the_later_ones_hold_less) {
    reserved_seq s = {.n_prompt = 100, .n_output = 25, .n_now = 80};
    /* worked example 7: 1,968 of them dead */
    assert_int_equal(reservation_slots(RESERVE_MAX, &s, 2048, 16), 2048);
    /* as for Orca (Pow2): 25 tokens reserve 32 */
    assert_int_equal(reservation_slots(RESERVE_POW2, &s, 2048, 16), 132);
    assert_int_equal(reservation_slots(RESERVE_ORACLE, &s, 2048, 16), 125);
    assert_int_equal(reservation_slots(RESERVE_GROWING, &s, 2048, 16), 80);
    assert_int_equal(reservation_slots(RESERVE_PAGED, &s, 2048, 16), 80);
    s.n_now = 81;
    assert_int_equal(reservation_slots(RESERVE_PAGED, &s, 2048, 16), 96);
}

/* Pools down to what the longest request needs: preempted or not, each gets all its
 * tokens, none before its time. */
TEST(every_request_gets_its_tokens_however_few_the_pages) {
    uint64_t seed = rng_os_seed(), first_seed = seed;
    int64_t n_preempted = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 60; round++) {
        dry_request requests[MAX_REQUESTS];
        int32_t n = 1 + (int32_t)(rng_next(&seed) % MAX_REQUESTS), longest = 0, arrival = 0;
        for (int32_t i = 0; i < n; i++) {
            arrival += (int32_t)(rng_next(&seed) % 4);
            requests[i] = (dry_request){1 + (int32_t)(rng_next(&seed) % 60),
                                        1 + (int32_t)(rng_next(&seed) % 40), arrival};
            longest = requests[i].n_prompt + requests[i].n_output > longest
                          ? requests[i].n_prompt + requests[i].n_output
                          : longest;
        }
        int32_t seqs = 1 + (int32_t)(rng_next(&seed) % 8), page = 1 << rng_next(&seed) % 5;
        sched_limits l = {.max_rows = seqs + (int32_t)(rng_next(&seed) % 32),
                          .max_out = seqs,
                          .max_seqs = seqs,
                          .max_chunk = 1 + (int32_t)(rng_next(&seed) % 40),
                          .page_tokens = page,
                          .max_preemptions = 8};
        dry_run d;
        open_run(&l, (longest + page - 1) / page + (int32_t)(rng_next(&seed) % 30), requests, n, &d);
        finish(&d);
        for (int32_t i = 0; i < n; i++) {
            const dry_seq *s = &d.seqs[i];
            assert_int_equal(s->n_known, s->request.n_prompt + s->request.n_output);
            assert_true(s->ended - s->first >= s->request.n_output - 1 && s->first >= s->started &&
                        s->started > s->request.arrival);
            assert_true(s->n_preempted <= 8);
            n_preempted += s->n_preempted;
        }
        dry_run_close(&d);
    }
    if (n_preempted == 0) {
        fail_msg("seed %llu: nothing was ever preempted", (unsigned long long)first_seed);
    }
}

TEST(what_can_never_fit_is_refused) {
    sched_limits l = {
        .max_rows = 4, .max_out = 4, .max_seqs = 4, .max_chunk = 4, .page_tokens = 16, .max_preemptions = 8};
    dry_request long_one = {60, 5, 0}, empty = {0, 5, 0}, backwards[] = {{1, 1, 3}, {1, 1, 2}};
    quire_error err;
    dry_run d;
    assert_int_equal(dry_run_open(&l, 4, &long_one, 1, &d, &err), QUIRE_INVALID);
    assert_int_equal(dry_run_open(&l, 4, &empty, 1, &d, &err), QUIRE_INVALID);
    assert_int_equal(dry_run_open(&l, 4, backwards, 2, &d, &err), QUIRE_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_left_padded_batch_has_10_pads_of_28_slots),
        cmocka_unit_test(a_static_batch_of_four_takes_199_steps_and_433_of_796_slots_are_useful),
        cmocka_unit_test(continuous_batching_ends_each_request_at_its_own_step),
        cmocka_unit_test(every_reservation_holds_the_tokens_and_the_later_ones_hold_less),
        cmocka_unit_test(every_request_gets_its_tokens_however_few_the_pages),
        cmocka_unit_test(what_can_never_fit_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Padding, static batches and reservations by hand: worked examples 25 to 27. */

#include "lab/bench/baseline.h"
#include "test.h"

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

/* Worked example 27, static; continuous is in tests/lab/sim/test_serving.c. */
TEST(static_batches_end_with_their_longest) {
    static const int32_t lengths[] = {9, 1269, 24, 443, 23, 1592, 2, 913};
    int64_t ends[8];
    assert_int_equal(baseline_static(lengths, 8, 4, ends), 2861);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ends[i], i < 4 ? 1269 : 2861);
    }
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_left_padded_batch_has_10_pads_of_28_slots),
        cmocka_unit_test(a_static_batch_of_four_takes_199_steps_and_433_of_796_slots_are_useful),
        cmocka_unit_test(static_batches_end_with_their_longest),
        cmocka_unit_test(every_reservation_holds_the_tokens_and_the_later_ones_hold_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

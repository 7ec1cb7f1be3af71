/* Limits of the machine: every way to read reads all of the memory, rates are of what they say, and what cannot be measured is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "bench/peak.h"
#include "bench/roofline.h"

static const char *const isas[] = {"plain", "auto"};
static const roofline_effort little = {.megabytes = 1, .milliseconds = 1};

static void every_way_to_read_reads_every_word_once(void **state) {
    (void)state;
    enum { N = 1024 * 8 };
    uint64_t *words = mem_new(N, 1);
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        backend *b;
        quire_error err;
        assert_int_equal(backend_cpu_open(&(backend_options){.isa = isas[isa], .n_threads = 1}, &b, &err), QUIRE_OK);
        const peak_kernels *k = peak_of(b);
        for (int32_t streams = 1; streams <= 8; streams *= 2) {
            for (int32_t ahead = 0; ahead <= 512; ahead += 512) {
                for (size_t i = 0; i < N / sizeof *words; i++) {
                    words[i] = i * i;
                }
                uint64_t sum = 0;
                for (size_t i = 0; i < N / sizeof *words; i++) {
                    sum += words[i];
                }
                assert_true(k->read((const uint8_t *)words, N, &(peak_way){streams, ahead}) == sum);
            }
        }
        b->ops->close(b);
    }
    mem_free(words);
}

static void a_round_of_a_loop_does_the_operations_that_it_counts(void **state) {
    (void)state;
    const peak_kernels *k = &peak_plain;
    /* a[i] = a[i] * 5 + 3 for 8 sums that start at 0..7: after a round 5 * 28 + 24 */
    assert_true(k->int8.run(1) == 164.0f);
    assert_int_equal(k->int8.ops, 8 * 2);
    assert_true(k->f32.run(1) == 0.75f * 28 + 0.5f * 8);
    assert_int_equal(k->f32.ops, 8 * 2);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        assert_true(peak_avx2.f32.run(1) == 0.75f * 66 + 0.5f * 12); /* lane 0 of 12 sums that start at 0..11 */
        assert_int_equal(peak_avx2.f32.ops, 12 * 8 * 2);
        assert_int_equal(peak_avx2.int8.ops, 8 * 16 * 2);
        assert_int_equal(peak_avx2.int8_small.ops, 4 * 8 * 32 * 2);
    }
#endif
}

static void rates_are_there_for_every_kind_and_the_best_way_to_read_counts(void **state) {
    (void)state;
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        roofline r;
        quire_error err;
        assert_int_equal(roofline_measure(isas[isa], 2, NULL, &little, &r, &err), QUIRE_OK);
        assert_int_equal(r.n_threads, 2);
        assert_true(r.f32 > 1e6 && r.bf16 >= r.f32 && r.int8 > 1e6 && r.int8_small > 1e6 && r.read > 1e6);
        bool found = false;
        for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
            assert_true(r.reads[i] > 0 && r.reads[i] <= r.read);
            found |= r.reads[i] == r.read && strcmp(r.read_by, bandwidth_names[i]) == 0;
        }
        assert_true(found);
    }
}

static void of_two_measurements_each_rate_is_the_better_one(void **state) {
    (void)state;
    roofline r = {.reads = {3, 1}, .read = 3, .read_by = "a", .f32 = 10, .bf16 = 20, .int8 = 30, .int8_small = 40};
    roofline later = {.reads = {2, 5}, .read = 5, .read_by = "b", .f32 = 9, .bf16 = 21, .int8 = 29, .int8_small = 41};
    r.f32_by = r.bf16_by = r.int8_by = r.int8_small_by = "a";
    later.f32_by = later.bf16_by = later.int8_by = later.int8_small_by = "b";
    roofline_raise(&r, &later);
    assert_true(r.reads[0] == 3 && r.reads[1] == 5 && r.read == 5 && r.f32 == 10 && r.bf16 == 21 && r.int8 == 30 && r.int8_small == 41);
    assert_string_equal(r.read_by, "b");
    assert_string_equal(r.f32_by, "a");
    assert_string_equal(r.bf16_by, "b");
    assert_string_equal(r.int8_by, "a");
    assert_string_equal(r.int8_small_by, "b");
}

static void an_instruction_set_that_nobody_has_is_refused(void **state) {
    (void)state;
    roofline r;
    quire_error err;
    assert_int_equal(roofline_measure("abacus", 1, NULL, &little, &r, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "abacus"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_to_read_reads_every_word_once),
        cmocka_unit_test(a_round_of_a_loop_does_the_operations_that_it_counts),
        cmocka_unit_test(rates_are_there_for_every_kind_and_the_best_way_to_read_counts),
        cmocka_unit_test(of_two_measurements_each_rate_is_the_better_one),
        cmocka_unit_test(an_instruction_set_that_nobody_has_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

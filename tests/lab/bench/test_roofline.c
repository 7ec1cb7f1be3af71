/* Measured limits of the machine: every kernel reads all of the memory, rates have the
 * right unit, and what cannot be measured is refused. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "lab/bench/peak.h"
#include "lab/bench/roofline.h"
#include "test.h"

static const char *const isas[] = {"plain", "avx2", "avxvnni", "avx512", "amx", "avx512bf16", "auto"};
static const roofline_effort little = {.megabytes = 1, .milliseconds = 1};

/* NULL when this processor (or build) lacks the instruction set. */
static backend *open_isa(const char *isa) {
    backend *b = NULL;
    quire_error err;
    quire_err e = backend_cpu_open(&(backend_options){.isa = isa, .n_threads = 1}, &b, &err);
    assert_true(e == QUIRE_OK || (e == QUIRE_UNSUPPORTED && strcmp(isa, "auto") != 0));
    if (e != QUIRE_OK) {
        print_message("SKIP %s: not on this machine\n", isa);
    }
    return b;
}

TEST(every_way_to_read_reads_every_word_once) {
    enum { N = 1024 * 8 };
    uint64_t *words = mem_new(N, 1);
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        backend *b = open_isa(isas[isa]);
        if (b == NULL) {
            continue;
        }
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

TEST(a_round_of_a_loop_does_the_operations_that_it_counts) {
    const peak_kernels *k = &peak_plain;
    /* a[i] = a[i] * 5 + 3 for 8 sums that start at 0..7: after a round 5 * 28 + 24 */
    assert_true(k->int8.run(1) == 164.0f);
    assert_int_equal(k->int8.ops, 8 * 2);
    assert_true(k->f32.run(1) == 0.75f * 28 + 0.5f * 8);
    assert_int_equal(k->f32.ops, 8 * 2);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        /* lane 0 of 12 sums that start at 0..11 */
        assert_true(peak_avx2.f32.run(1) == 0.75f * 66 + 0.5f * 12);
        assert_int_equal(peak_avx2.f32.ops, 12 * 8 * 2);
        assert_int_equal(peak_avx2.int8.ops, 8 * 32 * 2);
        /* sums that start at 0..7 and 0..3; a round adds 4 products of 5 and 3 to each of
         * their 8 lanes, which are summed two a word, or 32 */
        const uint64_t both_lanes = 4 * (((uint64_t)1 << 32) + 1);
        assert_true(peak_avx2.int8.run(1) == (float)(both_lanes * (28 + 8 * 60)));
        assert_true(peak_avx2.int8_small.run(1) == (float)(both_lanes * (6 + 4 * 480)));
        assert_int_equal(peak_avx2.int8_small.ops, 4 * 8 * 32 * 2);
    }
    /* 16 sums of 16 lanes that start at 0..15; vdpbf16ps adds two products of 1 and 0.5
     * to each */
    const float start = 16 * 120;
    backend *b = open_isa("avx512");
    if (b != NULL) {
        assert_true(peak_of(b) == &peak_avx512 && peak_avx512.bf16.run == NULL);
        assert_true(peak_avx512.f32.run(1) == 0.75f * start + 0.5f * 256);
        assert_int_equal(peak_avx512.f32.ops, 16 * 16 * 2);
        b->ops->close(b);
    }
    b = open_isa("avx512bf16");
    if (b != NULL) {
        assert_true(peak_of(b) == &peak_avx512bf16 && peak_avx512bf16.f32.run == peak_avx512.f32.run);
        assert_true(peak_avx512bf16.bf16.run(1) == start + 256);
        assert_int_equal(peak_avx512bf16.bf16.ops, 16 * 32 * 2);
        b->ops->close(b);
    }
#endif
}

TEST(rates_are_there_for_every_kind_and_the_best_way_to_read_counts) {
    for (size_t isa = 0; isa < sizeof isas / sizeof *isas; isa++) {
        roofline r;
        quire_error err;
        backend *b = open_isa(isas[isa]);
        if (b == NULL) {
            continue;
        }
        b->ops->close(b);
        assert_int_equal(roofline_measure(isas[isa], 2, NULL, &little, &r, &err), QUIRE_OK);
        assert_int_equal(r.n_threads, 2);
        for (size_t i = 0; i < ROOFLINE_RATES; i++) {
            assert_true(r.rates[i].mean > 1e6 && r.rates[i].best >= r.rates[i].mean);
        }
        assert_true(r.n_measurements == 1);
        /* its dot instruction can be slow: auto leaves it then */
        bool is_named = strcmp(isas[isa], "avx512bf16") == 0;
        assert_true(is_named || r.bf16.best >= r.f32.best);
        bool found = false;
        for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
            assert_true(r.reads[i].mean > 0 && r.reads[i].best >= r.reads[i].mean &&
                        r.reads[i].best <= r.read.best);
            found |= r.reads[i].best == r.read.best && r.read.by == r.reads[i].by;
        }
        assert_true(found);
    }
}

TEST(measurements_join_to_the_best_and_the_mean_of_all) {
    roofline r = {.n_measurements = 2,
                  .read = {30, 20, "a"},
                  .f32 = {10, 9, "a"},
                  .int8 = {7, 7, "a"},
                  .int8_small = {40, 10, "a"}};
    roofline later = {.n_measurements = 1,
                      .read = {50, 35, "b"},
                      .f32 = {9, 6, "b"},
                      .int8 = {7, 7, "b"},
                      .int8_small = {41, 40, "b"}};
    r.reads[1] = (roofline_rate){30, 20, "a"};
    later.reads[1] = (roofline_rate){25, 23, "a"};
    roofline_join(&r, &later);
    assert_int_equal(r.n_measurements, 3);
    assert_true(r.read.best == 50 && fabs(r.read.mean - 25) < 1e-9 && strcmp(r.read.by, "b") == 0);
    assert_true(r.f32.best == 10 && fabs(r.f32.mean - 8) < 1e-9 && strcmp(r.f32.by, "a") == 0);
    assert_true(r.int8.best == 7 && r.int8.mean == 7 && strcmp(r.int8.by, "a") == 0);
    assert_true(r.int8_small.best == 41 && fabs(r.int8_small.mean - 20) < 1e-9 &&
                strcmp(r.int8_small.by, "b") == 0);
    assert_true(r.reads[1].best == 30 && fabs(r.reads[1].mean - 21) < 1e-9);
}

TEST(an_instruction_set_that_nobody_has_is_refused) {
    roofline r;
    quire_error err;
    assert_int_equal(roofline_measure("abacus", 1, NULL, &little, &r, &err), QUIRE_INVALID);
    assert_non_null(strstr(err.message, "abacus"));
}

TEST_MAIN(NULL, NULL)

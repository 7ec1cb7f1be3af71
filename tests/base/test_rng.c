#include "base/rng.h"
#include "test.h"

/* The known answers that the generator's authors publish with it (Random123,
 * kat_vectors). */
TEST(philox_gives_the_published_known_answers) {
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        rng_philox(cases[i].counter, cases[i].key, out);
        assert_memory_equal(out, cases[i].expected, sizeof out);
    }
}

TEST(uniforms_are_never_0_nor_1) {
    assert_true(rng_uniform(0) > 0.0f);
    assert_true(rng_uniform(UINT32_MAX) < 1.0f);
    assert_true(rng_uniform(0x80000000u) > 0.5f);
    assert_true(rng_uniform(0x7fffffffu) < 0.5f);
}

TEST(uniforms_have_the_mean_and_spread_of_uniforms) {
    double sum = 0, squares = 0;
    const uint32_t n = 100000;
    for (uint32_t i = 0; i < n / 4; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0}, key[2] = {1, 2};
        uint32_t out[4];
        rng_philox(counter, key, out);
        for (int j = 0; j < 4; j++) {
            double u = (double)rng_uniform(out[j]);
            sum += u;
            squares += u * u;
        }
    }
    double mean = sum / n, variance = squares / n - mean * mean;
    assert_true(mean > 0.495 && mean < 0.505);
    assert_true(variance > 0.082 && variance < 0.0847);
}

/* SplitMix64's first outputs from state 1234567, as its author's program prints them. */
TEST(splitmix_gives_its_known_sequence) {
    uint64_t s = 1234567;
    assert_true(rng_next(&s) == 6457827717110365317u);
    assert_true(rng_next(&s) == 3203168211198807973u);
    assert_true(rng_next(&s) == 9817491932198370423u);
}

TEST(two_seeds_of_the_system_differ) {
    assert_true(rng_os_seed() != rng_os_seed());
}

TEST_MAIN(NULL, NULL)

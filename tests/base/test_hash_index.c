/* The index of hashes, against a search of the whole array. */
#include "test.h"

#include "base/hash_index.h"
#include "base/rng.h"

enum { N = 5000 };

TEST(every_entry_is_found_by_its_hash_and_no_other_is) {
    uint64_t seed = rng_os_seed(), random = seed;
    print_message("seed %llu\n", (unsigned long long)seed);
    static uint32_t hashes[N];
    hash_index x = {0};
    for (uint32_t i = 0; i < N; i++) {
        hashes[i] = (uint32_t)(rng_next(&random) % (i % 2 == 0 ? 64 : UINT32_MAX)); /* many are equal */
        assert_int_equal(QUIRE_OK, hash_index_add(&x, hashes[i], i));
    }
    for (uint32_t i = 0; i < N; i += 7) {
        uint32_t found = 0, equal = 0;
        HASH_INDEX_EACH(&x, hashes[i], k) {
            assert_int_equal(hashes[i], hashes[k]);
            found++;
        }
        for (uint32_t k = 0; k < N; k++) {
            equal += hashes[k] == hashes[i];
        }
        assert_int_equal(equal, found);
    }
    hash_index_deinit(&x);
}

TEST(an_empty_index_finds_nothing) {
    hash_index x = {0};
    HASH_INDEX_EACH(&x, 0, i) {
        fail();
    }
    hash_index_deinit(&x);
}

TEST(hashes_that_share_low_or_high_bits_stay_apart) {
    for (uint32_t shift = 0; shift <= 16; shift += 16) {
        hash_index x = {0};
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(QUIRE_OK, hash_index_add(&x, i << shift, i));
        }
        uint64_t steps = 0;
        for (uint32_t i = 0; i < N; i++) {
            uint32_t at = hash_index_first(&x, i << shift), first = at;
            assert_int_equal(i, hash_index_next(&x, i << shift, &at));
            steps += at - first;
        }
        assert_true(steps < 40 * (uint64_t)N); /* about 1.5 a search are expected */
        hash_index_deinit(&x);
    }
}

TEST_MAIN(NULL, NULL)

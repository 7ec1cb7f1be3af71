/* The seed of a file's random tests. main draws it and prints it. */
#ifndef TESTS_SEED_H
#define TESTS_SEED_H

#include <stdio.h>

#include "base/rng.h"
#include "test.h"

static uint64_t seed;

/* Returns a random number from 0 to n - 1. */
static inline int32_t any(int32_t n) {
    return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

static inline void draw_seed(void) {
    seed = rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
}

#define TEST_MAIN_SEEDED(set_up, tear_down)                                                                  \
    int main(void) {                                                                                         \
        draw_seed();                                                                                         \
        return tests_run(set_up, tear_down);                                                                 \
    }

#endif

/* Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random
 * numbers: as easy as 1, 2, 3").
 *
 * Stateless: the same key and counter give the same words on every machine, so a sample
 * does not depend on what was drawn before it. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* out[0..4) = Philox4x32-10(counter, key). */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A uniform number in (0, 1): the middle of one of 2^23 equal intervals, so exact, and
 * never 0 or 1 (with 24 bits the middle of the last one would round up to 1). */
static inline float rng_uniform(uint32_t word) {
    return ((float)(word >> 9) + 0.5f) * 0x1p-23f;
}

/* SplitMix64: a sequential generator for tests and for making seeds. Advances *state. */
uint64_t rng_next(uint64_t *state);
/* 64 bits from the operating system. */
uint64_t rng_os_seed(void);

#endif

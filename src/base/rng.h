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

/* Returns a uniform number in (0, 1): the exact middle of one of 2^23 equal intervals.
 * With 2^24, the middle of the last one would round to 1. */
static inline float rng_uniform(uint32_t word) {
    return ((float)(word >> 9) + 0.5f) * 0x1p-23f;
}

/* SplitMix64: a sequential generator for tests and for making seeds. Advances *state. */
uint64_t rng_next(uint64_t *state);
/* Returns 64 random bits from the operating system; without a random device, bits of the
 * clocks and the process id. Any thread. */
uint64_t rng_os_seed(void);

#endif

/* For tests of the CPU backend: the instruction sets of this processor, comparison of
 * bits, and hashes. */
#ifndef TESTS_BACKEND_ISAS_H
#define TESTS_BACKEND_ISAS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"
#include "base/rng.h"
#include "test.h"

/* The first N_MATH_ISAS have kernels of their own for other ops than products. The rest
 * use the last one's, except that avxvnni uses those of avx2 (test_math.c). */
#if defined(__aarch64__)
static const char *const ISAS[] = {"plain", "neon", "i8mm"};
#define N_TEST_ISAS 3
#define N_MATH_ISAS 2
#else
static const char *const ISAS[] = {"plain", "avx2", "avx512", "avxvnni", "amx", "avx512bf16"};
#define N_TEST_ISAS 6
#define N_MATH_ISAS 3
#endif

/* Opens a backend. NULL: this processor or build lacks the instruction set. */
static inline backend *open_isa(const char *isa, int32_t n_threads) {
    backend *b = NULL;
    quire_error err;
    backend_options o = {.compute = COMPUTE_F32,
                         .isa = isa,
                         .n_threads = getenv("QUIRE_TEST_EMULATED") != NULL ? 1 : n_threads};
    quire_err e = backend_cpu_open(&o, &b, &err);
    assert_true(e == QUIRE_OK || e == QUIRE_UNSUPPORTED);
    return e == QUIRE_OK ? b : NULL;
}

/* Whether tests of an instruction set can run. */
static inline bool isa_is_here(const char *isa) {
    backend *b = open_isa(isa, 1);
    if (b != NULL) {
        b->ops->close(b);
    }
    return b != NULL;
}

static inline void note_isas(void) {
    for (int i = 0; i < N_TEST_ISAS; i++) {
        if (!isa_is_here(ISAS[i])) {
            printf("SKIP: no %s here (make test runs AVX-512 through SIMDe)\n", ISAS[i]);
        }
    }
}

/* Defines main for a file whose tests run on each instruction set. */
#define TEST_MAIN_ISAS                                                                                       \
    int main(void) {                                                                                         \
        note_isas();                                                                                         \
        return tests_run(NULL, NULL);                                                                        \
    }

static inline uint64_t hash_bytes(uint64_t hash, const void *p, size_t n) {
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    }
    return hash;
}
#define HASH_START 0xcbf29ce484222325u

/* Whether all floats have equal bits; any NaN equals any other. */
static inline bool same_floats(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(a[i] != a[i] && b[i] != b[i])) {
            printf("element %zu: %a, not %a\n", i, (double)a[i], (double)b[i]);
            return false;
        }
    }
    return true;
}

/* Returns an approximately normal number of mean 0 and variance 1. */
static inline float random_normal(uint64_t *state) {
    float sum = 0.0f;
    for (int i = 0; i < 12; i++) {
        sum += rng_uniform((uint32_t)(rng_next(state) >> 32));
    }
    return sum - 6.0f;
}

#endif

/* The loops in plain C, and which table goes with a backend. */
#include "backend/cpu/cpu.h"
#include "lab/bench/peak.h"

#define INDEPENDENT 8 /* sums at once */

static uint64_t read_plain(const uint8_t *p, size_t n, const peak_way *way) {
    uint64_t sums[INDEPENDENT] = {0}, sum = 0;
    size_t streams = (size_t)way->n_streams, share = n / streams;
    for (size_t at = 0; at < share; at += INDEPENDENT * sizeof(uint64_t)) {
        for (size_t s = 0; s < streams; s++) {
            const uint64_t *words = (const uint64_t *)(const void *)(p + s * share + at);
            if (way->ahead_bytes > 0) {
                __builtin_prefetch((const uint8_t *)words + way->ahead_bytes);
            }
            for (size_t i = 0; i < INDEPENDENT; i++) {
                sums[i] += words[i];
            }
        }
    }
    for (size_t i = 0; i < INDEPENDENT; i++) {
        sum += sums[i];
    }
    return sum;
}

static float f32_plain(int32_t n) {
    float a[INDEPENDENT], sum = 0;
    for (int i = 0; i < INDEPENDENT; i++) {
        a[i] = (float)i;
    }
    for (int32_t r = 0; r < n; r++) {
        for (int i = 0; i < INDEPENDENT; i++) {
            a[i] = a[i] * 0.75f + 0.5f;
        }
    }
    for (int i = 0; i < INDEPENDENT; i++) {
        sum += a[i];
    }
    return sum;
}

static float int8_plain(int32_t n) {
    uint32_t a[INDEPENDENT], sum = 0;
    for (uint32_t i = 0; i < INDEPENDENT; i++) {
        a[i] = i;
    }
    for (int32_t r = 0; r < n; r++) {
        for (int i = 0; i < INDEPENDENT; i++) {
            a[i] = a[i] * 5 + 3;
        }
    }
    for (int i = 0; i < INDEPENDENT; i++) {
        sum += a[i];
    }
    return (float)sum;
}

const peak_kernels peak_plain = {
    .read = read_plain,
    .f32 = {"a multiplication and an addition", f32_plain, 2 * INDEPENDENT},
    .int8 = {"a multiplication and an addition of 32 bits", int8_plain, 2 * INDEPENDENT},
    .int8_small = {"a multiplication and an addition of 32 bits", int8_plain, 2 * INDEPENDENT},
};

const peak_kernels *peak_of(const backend *b) {
#if defined(__x86_64__)
    switch (((const cpu_backend *)b)->isa) {
    case ISA_AVX512_BF16:
        return &peak_avx512bf16;
#if defined(QUIRE_AMX)
    case ISA_AMX:
        return &peak_amx;
#endif
    case ISA_AVX512:
        return &peak_avx512;
#if defined(QUIRE_AVXVNNI)
    case ISA_AVXVNNI:
        return &peak_avxvnni;
#endif
    case ISA_AVX2:
    case ISA_AMX_MODEL:
        return &peak_avx2;
    default:
        return &peak_plain;
    }
#else
    (void)b;
    return &peak_plain;
#endif
}

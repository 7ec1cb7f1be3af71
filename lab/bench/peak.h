/* The fastest loops of each instruction set: what a processor's units and its memory can
 * do when nothing else limits them.
 *
 * One table per instruction set of the CPU backend (backend/cpu/cpu.h). Loops keep
 * everything in registers, and no result waits for the one before it, so a unit's rate is
 * the only limit. Any thread. */
#ifndef LAB_BENCH_PEAK_H
#define LAB_BENCH_PEAK_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

typedef struct peak_loop {
    const char *by; /* names of the instructions; NULL: the set has none of this kind */
    /* runs n rounds; the value is meaningless but prevents the work from being optimised
     * away */
    float (*run)(int32_t n);
    int32_t ops; /* operations per round; a multiplication and an addition are two */
} peak_loop;

/* A way to read: n_streams at once through each stretch of memory, each prefetching
 * ahead_bytes ahead (0: not). */
typedef struct peak_way {
    int32_t n_streams, ahead_bytes;
} peak_way;

typedef struct peak_kernels {
    /* n: a multiple of 1,024 * n_streams; n_streams 1, 2, 4 or 8 */
    uint64_t (*read)(const uint8_t *p, size_t n, const peak_way *way);
    peak_loop f32, bf16;
    peak_loop int8; /* exact for any two int8: for int8 weights */
    /* exact if one factor is unsigned and small (4 bits): for 4-bit weights */
    peak_loop int8_small;
} peak_kernels;

extern const peak_kernels peak_plain, peak_avx2, peak_avxvnni, peak_avx512, peak_avx512bf16, peak_amx;

/* The loops of the instruction set that a CPU backend uses. */
const peak_kernels *peak_of(const backend *b);

#endif

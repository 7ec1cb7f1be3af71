/* Overflow-checked sizes, for all products and sums of numbers from outside the
 * program. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b, or a + b. False: it overflows, and *out is unchanged. */
static inline bool size_mul(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

static inline bool size_add(size_t a, size_t b, size_t *out) {
    if (a > SIZE_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

/* Rounds v up to a multiple of align, a power of two. The caller rules out overflow. */
static inline size_t size_align(size_t v, size_t align) {
    return (v + align - 1) & ~(align - 1);
}

static inline int32_t least_i32(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/* The least power of two that is at least n; n is at most half the address space. */
static inline size_t size_power_of_two(size_t n) {
    size_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

#endif

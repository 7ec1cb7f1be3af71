/* What each instruction of an attention program computes in one lane: the definition that
 * every runner, the compiler and the tests share.
 *
 * log, sin, cos and pow are computed in double by the formulas here and rounded to float,
 * so results do not depend on the processor or the C library. Errors are below 1 ulp of a
 * float, except for sin and cos beyond 10^9, where 2 pi as a double is too coarse. */
#ifndef CORE_ATTN_OPS_H
#define CORE_ATTN_OPS_H

#include <math.h>
#include <stdint.h>

static inline int64_t attn_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t attn_sub(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t attn_mul(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
/* Division by 0 gives 0; the caller records the fault. The lowest number divided by -1
 * wraps to itself. */
static inline int64_t attn_div(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? attn_sub(0, a) : a / b;
}
static inline int64_t attn_mod(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b;
}
static inline int64_t attn_shl(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a << ((uint64_t)b & 63u));
}
/* Arithmetic shift: fills from the left with copies of the sign bit. */
static inline int64_t attn_shr(int64_t a, int64_t b) {
    uint64_t n = (uint64_t)b & 63u;
    return a < 0 ? (int64_t) ~(~(uint64_t)a >> n) : (int64_t)((uint64_t)a >> n);
}
static inline int64_t attn_abs(int64_t a) {
    return a < 0 ? attn_sub(0, a) : a;
}
/* Returns the second operand if either is NaN. */
static inline float attn_fmin(float a, float b) {
    return a < b ? a : b;
}
static inline float attn_fmax(float a, float b) {
    return a > b ? a : b;
}

float attn_log(float x);
float attn_sin(float x);
float attn_cos(float x);
/* Special values as in C's pow. */
float attn_pow(float x, float y);

#endif

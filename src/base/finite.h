/* Whether numbers are finite: a pass over an array without a branch for each. Pure. */
#ifndef BASE_FINITE_H
#define BASE_FINITE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether every value of v[0..n) is from `least` to the largest finite number; NaN is
 * not. With -FLT_MAX: whether all are finite; with -INFINITY that is allowed too.
 * O(n). */
bool finite_from(const float *v, int32_t n, float least);

#endif

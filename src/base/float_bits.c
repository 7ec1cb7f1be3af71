#include "base/float_bits.h"

#include <assert.h>
#include <float.h>
#include <string.h>

/* SOME values, which one iteration of the vectorised loop tests. */
typedef float some_floats __attribute__((vector_size(16)));
typedef int32_t some_flags __attribute__((vector_size(16)));
enum { SOME = sizeof(some_floats) / sizeof(float) };

bool finite_from(const float *v, int32_t n, float least) {
    assert(n >= 0);
    some_flags hold = {-1, -1, -1, -1};
    bool all = true;
    int32_t i = 0;
    for (; i + SOME <= n; i += SOME) {
        some_floats x;
        memcpy(&x, v + i, sizeof x);
        hold &= (x >= least) & (x <= FLT_MAX);
    }
    for (; i < n; i++) {
        all = all && v[i] >= least && v[i] <= FLT_MAX;
    }
    return all && (hold[0] & hold[1] & hold[2] & hold[3]) != 0;
}

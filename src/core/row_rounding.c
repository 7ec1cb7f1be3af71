#include "core/row_rounding.h"

#include <math.h>

#include "core/float8.h"

/* The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the even code. */
static float to_e2m1(float x) {
    static const float values[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    float magnitude = fabsf(x);
    int code = 0;
    while (code < 7) {
        float middle = (values[code] + values[code + 1]) / 2.0f;
        if (magnitude < middle || (magnitude == middle && code % 2 == 0)) {
            break;
        }
        code++;
    }
    return copysignf(values[code], x);
}

/* The largest magnitude; NaN where one is not finite. */
static float row_rounding_largest_of(const float *x, int32_t n) {
    float largest = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return NAN;
        }
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    return largest;
}

static float row_rounding_scale_of(const row_rounding *r, float largest) {
    const float most = r->to == ROUND_E4M3 ? 448.0f : 6.0f;
    int exponent;
    float fraction;
    switch (r->scale) {
    case ROUND_LARGEST:
        return largest / most;
    case ROUND_POWER:
        fraction = frexpf(largest, &exponent); /* in 0.5 .. 1 */
        return ldexpf(1.0f, exponent - 1 + (fraction >= 0.875f) - (r->to == ROUND_E4M3 ? 8 : 2));
    case ROUND_SCALED: {
        float scale = e4m3_to_f32(f32_to_e4m3(largest / most / r->fixed));
        return (scale == 0.0f ? r->least : scale) * r->fixed;
    }
    default:
        return r->fixed;
    }
}

static void row_rounding_round_group(const row_rounding *r, float *x, int32_t n) {
    float largest = row_rounding_largest_of(x, n),
          scale = largest > 0.0f ? row_rounding_scale_of(r, largest) : largest;
    for (int32_t i = 0; i < n; i++) {
        float q = scale > 0.0f ? x[i] / scale : scale;
        x[i] = (r->to == ROUND_E4M3 ? e4m3_to_f32(f32_to_e4m3(q)) : to_e2m1(q)) * scale;
    }
}

void row_round(const row_rounding *r, float *x, int32_t n) {
    const int32_t group = r->group > 0 ? r->group : n;
    for (int32_t i = 0; i < n && r->to != ROUND_NOTHING; i += group) {
        row_rounding_round_group(r, x + i, n - i < group ? n - i : group);
    }
}

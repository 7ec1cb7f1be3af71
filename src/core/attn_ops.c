#include "core/attn_ops.h"

#include <stdbool.h>

/* Constants split into sums of doubles. The leading terms have so few bits that their
 * product with an integer below 2^30 is exact. */
#define LN2_HI      0x1.62e42fef00000p-1 /* 33 bits */
#define LN2_LO      0x1.473de6af278edp-34
#define HALF_PI_HI  0x1.921fb40000000p0 /* 23 bits */
#define HALF_PI_MID 0x1.4442d00000000p-24
#define HALF_PI_LO  0x1.8469898cc5170p-48
#define FEW_TURNS   1e9 /* angles up to here are less than 2^30 right angles */

/* ln of a positive finite number m 2^e with m in sqrt(1/2)..sqrt(2), where ln m = 2
 * atanh((m - 1) / (m + 1)). */
static double log_positive(double x) {
    int e;
    double m = frexp(x, &e), sum = 0.0;
    if (m < 0.70710678118654752440) {
        m *= 2.0;
        e--;
    }
    double t = (m - 1.0) / (m + 1.0), u = t * t;
    for (int k = 21; k >= 1; k -= 2) {
        sum = sum * u + 1.0 / k;
    }
    return e * LN2_HI + (2.0 * t * sum + e * LN2_LO);
}

/* e^x = 2^n e^r for |x| below 700; e^r by its series. */
static double exp_near(double x) {
    double n = floor(x / (LN2_HI + LN2_LO) + 0.5), r = (x - n * LN2_HI) - n * LN2_LO, sum = 1.0;
    for (int k = 13; k >= 1; k--) {
        sum = sum * r / k + 1.0;
    }
    return ldexp(sum, (int)n);
}

/* sin of an angle in -pi/4..pi/4. */
static double sin_near(double r) {
    double u = r * r, sum = 1.0;
    for (int k = 15; k >= 3; k -= 2) {
        sum = 1.0 - u / (k * (k - 1)) * sum;
    }
    return r * sum;
}

static double cos_near(double r) {
    double u = r * r, sum = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        sum = 1.0 - u / (k * (k - 1)) * sum;
    }
    return sum;
}

/* sin of x plus `quarter` right angles. */
static float sin_of(float x, int quarter) {
    double a = x;
    if (!isfinite(x)) {
        return NAN;
    }
    if (fabs(a) > FEW_TURNS) {
        a = fmod(a, 4.0 * (HALF_PI_HI + HALF_PI_MID + HALF_PI_LO));
    }
    double n = floor(a / (HALF_PI_HI + HALF_PI_MID) + 0.5);
    double r = ((a - n * HALF_PI_HI) - n * HALF_PI_MID) - n * HALF_PI_LO;
    int turn = (int)(((int64_t)n + quarter) & 3);
    double s = turn % 2 == 0 ? sin_near(r) : cos_near(r);
    return (float)(turn < 2 ? s : -s);
}

float attn_log(float x) {
    if (!(x > 0.0f) || isinf(x)) {
        return x == 0.0f ? -INFINITY : x > 0.0f ? INFINITY : NAN;
    }
    return (float)log_positive(x);
}

float attn_sin(float x) {
    return x == 0.0f ? x : sin_of(x, 0);
}

float attn_cos(float x) {
    return sin_of(x, 1);
}

/* Computes |x|^y; x is neither 0 nor infinite nor 1. */
static float power(double x, double y) {
    double p = y * log_positive(x);
    return p > 200.0 ? INFINITY : p < -200.0 ? 0.0f : (float)exp_near(p);
}

float attn_pow(float x, float y) {
    bool whole = floorf(y) == y, odd = whole && fabsf(y) < 16777216.0f && fmodf(y, 2.0f) != 0.0f;
    float a = fabsf(x);
    if (y == 0.0f || x == 1.0f) {
        return 1.0f;
    }
    if (isnan(x) || isnan(y)) {
        return NAN;
    }
    if (isinf(y)) {
        return a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f;
    }
    if (x < 0.0f && !whole && !isinf(x)) {
        return NAN;
    }
    float p = a == 0.0f || isinf(a) ? ((a == 0.0f) == (y < 0.0f) ? INFINITY : 0.0f)
              : a == 1.0f           ? 1.0f
                                    : power(a, y);
    return odd && signbit(x) ? -p : p;
}

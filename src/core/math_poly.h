/* Coefficients of minimax polynomials, in ascending order and rounded to float. Evaluated
 * by Horner's rule with fma. */
#ifndef CORE_MATH_POLY_H
#define CORE_MATH_POLY_H

/* exp(r) = 1 + r + r^2 P(r) for |r| <= ln(2) / 2. */
#define EXP_DEGREE 5
static const float EXP_POLY[EXP_DEGREE + 1] = {0x1p-1f,        0x1.555556p-3f,  0x1.555478p-5f,
                                               0x1.11107ap-7f, 0x1.6d9e3ep-10f, 0x1.a1bd58p-13f};
#define EXP_LOWEST  (-104.0f) /* exp(x) rounds to 0 for x at or below this */
#define EXP_HIGHEST 89.0f     /* exp(x) is infinite for x at or above this */
#define EXP_NORMAL  (-86.0f)  /* from here to 0, exp's results and factors are all normal numbers */
#define EXP_LOG2E   0x1.715476p+0f
#define EXP_LN2_HI  0x1.63p-1f /* 9 bits, so n * EXP_LN2_HI is exact */
#define EXP_LN2_LO  (-0x1.bd0106p-13f)
#define EXP_ROUND   0x1.8p23f /* adding this leaves the nearest integer in the low bits */

/* tanh(x) = x + x u P(u), u = x^2, for |x| < TANH_SMALL; else 1 - 2 / (exp(2x) + 1). */
#define TANH_DEGREE 4
static const float TANH_POLY[TANH_DEGREE + 1] = {-0x1.555534p-2f, 0x1.110768p-3f, -0x1.b84448p-5f,
                                                 0x1.5256cep-6f, -0x1.76abf4p-8f};
#define TANH_SMALL 0.625f

/* The upper tail of the normal distribution: 1/2 erfc(a / sqrt(2)) = exp(P(a)) for 0 <= a
 * < GELU_HIGHEST, and 0 beyond. */
#define GELU_DEGREE 9
static const float GELU_POLY[GELU_DEGREE + 1] = {
    -0x1.62e43p-1f,  -0x1.988488p-1f,  -0x1.45eebp-2f, -0x1.2a308cp-5f,  0x1.415f8ep-8f,
    -0x1.6dab3p-14f, -0x1.2b06dap-13f, 0x1.235f9p-15f, -0x1.fa1fc4p-19f, 0x1.5fb192p-23f};
#define GELU_HIGHEST 6.0f

/* ln(1 + e) = 2 (s + s u P(u)), s = e / (2 + e), u = s^2, for 0 <= e <= 1. */
#define LOG1P_DEGREE 4
static const float LOG1P_POLY[LOG1P_DEGREE + 1] = {0x1.555556p-2f, 0x1.9998d4p-3f, 0x1.24c926p-3f,
                                                   0x1.bc8cf8p-4f, 0x1.dba25ep-4f};

/* exp(x) - 1 - x = x^2 P(x) for XIELU_SMALL < x <= 0, with exp's P. */
#define XIELU_SMALL (-0.34375f)

#define GELU_CUBE  0.044715f
#define GELU_SCALE 0x1.988454p-1f /* sqrt(2 / pi) */
#define GELU_QUICK 1.702f

#endif

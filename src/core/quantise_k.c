/* Quantises to the types of 256 elements, Q4_K, Q5_K, Q6_K and IQ4_XS, and to IQ4_NL: a
 * scale is searched for in every group, then the groups' scales are rounded to codes of
 * the block's scale. A code's neighbours are tried too, for rounding changes which is the
 * best. */
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/quant.h"
#include "core/quantise_fit.h"
#include "core/quantise_parts.h"

#define MOST_GROUPS 16

static const fit_codes codes_q4_k = {.top = 15.0f, .has_min = true},
                       codes_q5_k = {.top = 31.0f, .has_min = true};
static const fit_codes codes_q6_k = {.low = 32.0f, .top = 31.0f},
                       codes_iq4 = {.low = 127.0f, .top = 113.0f, .is_table = true};

/* A block of groups: what each is rounded to. */
typedef struct k_block {
    const fit_codes *codes;
    const float *x;
    float weights[QUANT_SUPER], numbers[QUANT_SUPER];
    int group;                                  /* elements of each */
    float least, most;                          /* codes of scales */
    float d, dmin;                              /* their units, as halves */
    float scale[MOST_GROUPS], min[MOST_GROUPS]; /* codes of each group */
} k_block;

/* x as a half. */
static float half_of(float x) {
    return f16_to_f32(f32_to_f16(x));
}

static float ratio(float x, float unit) {
    return unit != 0.0f ? x / unit : 0.0f;
}

/* Tries one pair of codes for group g. */
static void try_codes(k_block *k, int g, float scale, float min, float *least_error) {
    float numbers[FIT_MOST];
    const int at = g * k->group;
    const fit f = {k->d * scale, k->dmin * min};
    const float error = fit_round(k->codes, &f, k->x + at, k->weights + at, k->group, numbers);
    if (error < *least_error) {
        *least_error = error;
        k->scale[g] = scale;
        k->min[g] = min;
        memcpy(k->numbers + at, numbers, (size_t)k->group * sizeof *numbers);
    }
}

/* Chooses group g's codes among those next to the scale and min that were found for
 * it. */
static void quantise_k_round_group(k_block *k, int g, const fit *found) {
    const float scale = fit_nearest(ratio(found->scale, k->d), k->least, k->most),
                min = fit_nearest(ratio(found->min, k->dmin), 0.0f, 63.0f);
    const int min_steps = k->codes->has_min ? 1 : 0;
    float error = INFINITY;
    k->scale[g] = k->min[g] = 0.0f;
    memset(k->numbers + g * k->group, 0, (size_t)k->group * sizeof *k->numbers);
    for (int i = -1; i <= 1; i++) {
        for (int j = -min_steps; j <= min_steps; j++) {
            const float s = scale + (float)i, m = min + (float)j;
            if (s >= k->least && s <= k->most && m >= 0.0f && m <= 63.0f) {
                try_codes(k, g, s, m, &error);
            }
        }
    }
}

/* Quantises the block at x: fills k's units, codes and numbers. The group of the largest
 * scale gets the code at the end of the range that reaches further: `most` where least is
 * 0, else `least`. */
static void fit_block(k_block *k, const fit_codes *codes, const float *x, int group, float least,
                      float most) {
    fit found[MOST_GROUPS];
    float scale = 0.0f, min = 0.0f;
    const int n_groups = QUANT_SUPER / group;
    k->codes = codes;
    k->x = x;
    k->group = group;
    k->least = least;
    k->most = most;
    fit_weigh(x, QUANT_SUPER, k->weights);
    for (int g = 0; g < n_groups; g++) {
        found[g] = fit_find(codes, x + g * group, k->weights + g * group, group);
        scale = fabsf(found[g].scale) > fabsf(scale) ? found[g].scale : scale;
        min = found[g].min > min ? found[g].min : min;
    }
    k->d = half_of(scale / (least < 0.0f ? least : most));
    k->dmin = half_of(min / 63.0f);
    for (int g = 0; g < n_groups; g++) {
        quantise_k_round_group(k, g, &found[g]);
    }
}

/* n numbers plus zero, as codes. */
static void to_codes(const float *numbers, int zero, int *out) {
    for (int i = 0; i < QUANT_SUPER; i++) {
        out[i] = (int)numbers[i] + zero;
    }
}

/* ---- Q4_K, Q5_K ---- */

/* Bits 4.. of codes of 6 bits go where quant_k.c's split_q45_k reads them. */
static void quantise_k_put_scales(const k_block *k, uint8_t *b) {
    memset(b, 0, 12);
    for (int i = 0; i < 8; i++) {
        const unsigned scale = (unsigned)k->scale[i], min = (unsigned)k->min[i];
        if (i < 4) {
            b[i] = (uint8_t)scale;
            b[4 + i] = (uint8_t)min;
        } else {
            b[4 + i] = (uint8_t)((scale & 15) | (min & 15) << 4);
            b[i - 4] = (uint8_t)(b[i - 4] | scale >> 4 << 6);
            b[i] = (uint8_t)(b[i] | min >> 4 << 6);
        }
    }
}

static void to_q45_k(const fit_codes *codes, const float *x, uint8_t *b) {
    k_block k;
    int q[QUANT_SUPER];
    const int is_five = codes == &codes_q5_k;
    uint8_t *fifth = b + 16, *nibbles = b + (is_five ? 48 : 16);
    fit_block(&k, codes, x, 32, 0.0f, 63.0f);
    to_codes(k.numbers, 0, q);
    quant_put_u16(b, f32_to_f16(k.d));
    quant_put_u16(b + 2, f32_to_f16(k.dmin));
    quantise_k_put_scales(&k, b + 4);
    for (int i = 0; i < QUANT_SUPER / 2; i++) {
        const int *pair = q + i / 32 * 64 + i % 32;
        nibbles[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
    for (int i = 0; i < 32 && is_five; i++) {
        unsigned bits = 0;
        for (int row = 0; row < 8; row++) {
            bits |= ((unsigned)q[32 * row + i] >> 4 & 1u) << row;
        }
        fifth[i] = (uint8_t)bits;
    }
}

void quant_to_q4_k(const float *x, uint8_t *b) {
    to_q45_k(&codes_q4_k, x, b);
}

void quant_to_q5_k(const float *x, uint8_t *b) {
    to_q45_k(&codes_q5_k, x, b);
}

/* ---- Q6_K ---- */

void quant_to_q6_k(const float *x, uint8_t *b) {
    k_block k;
    int q[QUANT_SUPER];
    fit_block(&k, &codes_q6_k, x, 16, -128.0f, 127.0f);
    to_codes(k.numbers, 32, q);
    for (int half = 0; half < 2; half++) {
        const int *row = q + 128 * half;
        for (int i = 0; i < 32; i++) {
            b[64 * half + i] = (uint8_t)((row[i] & 15) | (row[64 + i] & 15) << 4);
            b[64 * half + 32 + i] = (uint8_t)((row[32 + i] & 15) | (row[96 + i] & 15) << 4);
            b[128 + 32 * half + i] = (uint8_t)(row[i] >> 4 | row[32 + i] >> 4 << 2 | row[64 + i] >> 4 << 4 |
                                               row[96 + i] >> 4 << 6);
        }
    }
    for (int g = 0; g < 16; g++) {
        b[192 + g] = (uint8_t)(int8_t)k.scale[g];
    }
    quant_put_u16(b + 208, f32_to_f16(k.d));
}

/* ---- IQ4 ---- */

/* The codes of 32 numbers of the table. */
static void table_codes(const float *numbers, int *out) {
    for (int i = 0; i < 32; i++) {
        out[i] = 0;
        while (out[i] < 15 && (float)quant_tables[TABLE_IQ4][out[i]] < numbers[i]) {
            out[i]++;
        }
    }
}

void quant_to_iq4_xs(const float *x, uint8_t *b) {
    k_block k;
    int q[32];
    unsigned high = 0;
    fit_block(&k, &codes_iq4, x, 32, -32.0f, 31.0f);
    memset(b, 0, 8);
    quant_put_u16(b, f32_to_f16(k.d));
    for (int g = 0; g < 8; g++) {
        const unsigned scale = (unsigned)((int)k.scale[g] + 32);
        b[4 + g / 2] = (uint8_t)(b[4 + g / 2] | (scale & 15) << (4 * (g % 2)));
        high |= scale >> 4 << (2 * g);
        table_codes(k.numbers + 32 * g, q);
        quant_put_nibbles(b + 8 + 16 * g, q);
    }
    quant_put_u16(b + 2, (uint16_t)high);
}

void quant_to_iq4_nl(const float *x, uint8_t *b) {
    float weights[32], numbers[32];
    int q[32];
    fit_weigh(x, 32, weights);
    fit f = fit_find(&codes_iq4, x, weights, 32);
    f.scale = half_of(f.scale);
    (void)fit_round(&codes_iq4, &f, x, weights, 32, numbers);
    table_codes(numbers, q);
    quant_put_u16(b, f32_to_f16(f.scale));
    quant_put_nibbles(b + 2, q);
}

/* Quantises to Q4_K, Q5_K, Q6_K and IQ4_XS (256 elements) and to IQ4_NL. Searches for a
 * scale for each group, then rounds these scales to codes of the block's scale. Codes
 * next to the rounded one are tried too, since rounding changes which is best. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/half.h"
#include "core/quant.h"
#include "core/quantise.h"

/* Searches for the scale of a group of elements that minimises the weighted square error
 * of the rounded group.
 *
 * A few scales around the one that uses the whole range of codes are tried. Each gives
 * codes, for which least squares give the best scale (one step of Lloyd's alternation);
 * the best pair wins. Large elements count more: the weight of x is |x| plus the root
 * mean square of the block.
 *
 * Sums use FIT_LANES lanes, added in a fixed order, so the bits are the same on every
 * machine. */

#define FIT_MOST  32 /* most elements of a group; a multiple of FIT_LANES */
#define FIT_LANES 8

/* The range of numbers: 0..top with a min, -low..top, or those in
 * quant_tables[TABLE_IQ4]. */
typedef struct fit_codes {
    float low, top;
    bool has_min, is_table;
} fit_codes;

/* value = scale * number - min */
typedef struct fit {
    float scale, min;
} fit;

/* Rounds to the nearest integer, ties to even, clamped to least..most; NaN gives
 * least. */
static inline float fit_nearest(float x, float least, float most) {
    x = x > least ? x : least;
    x = x < most ? x : most;
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* Relative variance below which numbers count as equal; then the min is undetermined. */
#define EQUAL 1e-5f

static float add_lanes(const float a[FIT_LANES]) {
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* Sets weights[0..n) for a block of n elements, a multiple of FIT_LANES. */
static void fit_weigh(const float *x, int n, float *weights) {
    float squares[FIT_LANES] = {0};
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            squares[k] += x[i + k] * x[i + k];
        }
    }
    const float root = sqrtf(add_lanes(squares) / (float)n);
    for (int i = 0; i < n; i++) {
        weights[i] = root + fabsf(x[i]);
    }
}

/* The table's number nearest to each x / scale, found by counting the midpoints below
 * it. */
static void look_up(const float *x, float inverse, int n, float *numbers) {
    static const float middles[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                      7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
    static const float steps[15] = {23.0f, 21.0f, 18.0f, 16.0f, 14.0f, 13.0f, 12.0f, 11.0f,
                                    12.0f, 12.0f, 13.0f, 15.0f, 16.0f, 20.0f, 24.0f};
    for (int i = 0; i < n; i += FIT_LANES) {
        float sums[FIT_LANES], scaled[FIT_LANES];
        for (int k = 0; k < FIT_LANES; k++) {
            scaled[k] = x[i + k] * inverse;
            sums[k] = -127.0f;
        }
        for (int t = 0; t < 15; t++) {
            for (int k = 0; k < FIT_LANES; k++) {
                sums[k] += scaled[k] > middles[t] ? steps[t] : 0.0f;
            }
        }
        memcpy(numbers + i, sums, sizeof sums);
    }
}

/* Rounds n elements to numbers, under the scale 1 / inverse. */
static void quantise_fit_round_all(const fit_codes *c, float inverse, float min, const float *x, int n,
                                   float *numbers) {
    if (c->is_table) {
        look_up(x, inverse, n, numbers);
        return;
    }
    for (int i = 0; i < n; i++) {
        numbers[i] = fit_nearest((x[i] + min) * inverse, -c->low, c->top);
    }
}

static float inverse_of(float scale) {
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

/* Rounds n elements to numbers under f and returns the weighted square error. With scale
 * 0, all get the number nearest to 0. */
static float fit_round(const fit_codes *c, const fit *f, const float *x, const float *weights, int n,
                       float *numbers) {
    float errors[FIT_LANES] = {0};
    quantise_fit_round_all(c, inverse_of(f->scale), f->min, x, n, numbers);
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            const float error = f->scale * numbers[i + k] - f->min - x[i + k];
            errors[k] += weights[i + k] * error * error;
        }
    }
    return add_lanes(errors);
}

/* Weighted sums over a group: of 1, x, number, number^2, x * number. */
typedef struct fit_sums {
    float w, x, q, qq, xq;
} fit_sums;

static fit_sums sum_all(const float *x, const float *weights, const float *numbers, int n) {
    float w[FIT_LANES] = {0}, wx[FIT_LANES] = {0}, q[FIT_LANES] = {0}, qq[FIT_LANES] = {0},
          xq[FIT_LANES] = {0};
    for (int i = 0; i < n; i += FIT_LANES) {
        for (int k = 0; k < FIT_LANES; k++) {
            const float weighted = weights[i + k] * numbers[i + k];
            w[k] += weights[i + k];
            wx[k] += weights[i + k] * x[i + k];
            q[k] += weighted;
            qq[k] += weighted * numbers[i + k];
            xq[k] += weighted * x[i + k];
        }
    }
    return (fit_sums){add_lanes(w), add_lanes(wx), add_lanes(q), add_lanes(qq), add_lanes(xq)};
}

/* The best scale, and min if the form has one, for given numbers; only a min if all are
 * 0. */
static fit solve(const fit_codes *c, const fit_sums *s) {
    const float whole = s->w * s->qq, determinant = whole - s->q * s->q;
    if (c->has_min && s->qq == 0.0f && s->x < 0.0f) {
        return (fit){0.0f, -s->x / s->w};
    }
    if (c->has_min && determinant > EQUAL * whole) {
        const float min = (s->q * s->xq - s->qq * s->x) / determinant;
        if (min > 0.0f) {
            return (fit){(s->w * s->xq - s->x * s->q) / determinant, min};
        }
    }
    return (fit){s->qq > 0.0f ? s->xq / s->qq : 0.0f, 0.0f};
}

typedef struct search {
    const fit_codes *c;
    const float *x, *weights;
    int n;
    fit best;
    float gain;
} search;

/* Tries the numbers of a first guess with the scale that suits them best. The error is
 * then the weighted squares of x minus `gain`. */
static void try_guess(search *s, float inverse, float min) {
    float numbers[FIT_MOST];
    quantise_fit_round_all(s->c, inverse, min, s->x, s->n, numbers);
    const fit_sums sums = sum_all(s->x, s->weights, numbers, s->n);
    const fit found = solve(s->c, &sums);
    const float gain = found.scale * sums.xq - found.min * sums.x;
    if (gain > s->gain && (found.scale >= 0.0f || !s->c->has_min)) {
        s->best = found;
        s->gain = gain;
    }
}

/* The least and the greatest of the elements and 0. */
static void find_range(const float *x, int n, float *least, float *greatest) {
    *least = *greatest = 0.0f;
    for (int i = 0; i < n; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *greatest = x[i] > *greatest ? x[i] : *greatest;
    }
}

/* Changes of the range's end that are tried, in codes; for a table, in units of 16. */
static const float stretches[] = {-0.9f, -0.6f, -0.3f, 0.0f, 0.3f, 0.6f, 0.9f, 1.2f};

#define N_STRETCHES (sizeof stretches / sizeof *stretches)

/* The best unrounded scale (and min, at least 0) for n elements. Without a min, the scale
 * may be negative. If all are 0, the scale is 0. */
static fit fit_find(const fit_codes *c, const float *x, const float *weights, int n) {
    float least, greatest;
    find_range(x, n, &least, &greatest);
    const float extreme = greatest > -least ? greatest : least;
    search s = {.c = c, .x = x, .weights = weights, .n = n};
    if (!(greatest - least > 0.0f)) {
        return s.best;
    }
    for (size_t i = 0; i < N_STRETCHES; i++) {
        if (c->has_min) {
            try_guess(&s, (c->top + stretches[i]) / (greatest - least), -least);
        } else {
            const float unit = c->is_table ? 16.0f : 1.0f;
            try_guess(&s, -(c->low + unit * stretches[i]) / extreme, 0.0f);
        }
    }
    return s.best;
}

#define MOST_GROUPS 16

static const fit_codes codes_q4_k = {.top = 15.0f, .has_min = true},
                       codes_q5_k = {.top = 31.0f, .has_min = true};
static const fit_codes codes_q6_k = {.low = 32.0f, .top = 31.0f},
                       codes_iq4 = {.low = 127.0f, .top = 113.0f, .is_table = true};

/* A block's groups, and the codes they are rounded to. */
typedef struct k_block {
    const fit_codes *codes;
    const float *x;
    float weights[QUANT_SUPER], numbers[QUANT_SUPER];
    int group;                                  /* elements per group */
    float least, most;                          /* range of scale codes */
    float d, dmin;                              /* units of scale and min codes, as 16-bit floats */
    float scale[MOST_GROUPS], min[MOST_GROUPS]; /* codes of each group's scale and min */
} k_block;

/* x rounded to a 16-bit float. */
static float half_of(float x) {
    return f16_to_f32(f32_to_f16(x));
}

static float ratio(float x, float unit) {
    return unit != 0.0f ? x / unit : 0.0f;
}

/* Tries codes of scale and min for group g, and keeps them if they are better. */
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

/* Chooses group g's codes among those nearest to the scale and min that were found for
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

/* Quantises the block at x: sets k's units, codes and numbers. The group with the largest
 * scale gets the code at the longer end of the range: `most` if least is 0, else
 * `least`. */
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

/* Codes of n numbers: number + zero. */
static void to_codes(const float *numbers, int zero, int *out) {
    for (int i = 0; i < QUANT_SUPER; i++) {
        out[i] = (int)numbers[i] + zero;
    }
}

/* ---- Q4_K, Q5_K ---- */

/* Packs scale and min codes into b[0..12), as split_q45_k of quant.c reads them. */
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

/* The codes of 32 numbers of the table IQ4. */
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

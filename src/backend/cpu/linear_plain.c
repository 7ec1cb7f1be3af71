/* Products in plain C: the reference. The SIMD kernels give the same bits, except bf16
 * with the dot instruction of AVX512_BF16. Clear before fast. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear.h"
#include "backend/cpu/pack_read.h"
#include "core/half.h"

#define LANES PACK_LANES

/* ---- rows ---- */

static void quantise_f32(const float *x, int32_t k, void *row) {
    memcpy(row, x, (size_t)k * sizeof *x);
}

/* Stored as the f32 of equal value. */
static void quantise_bf16(const float *x, int32_t k, void *row) {
    float *out = row;
    for (int32_t i = 0; i < k; i++) {
        out[i] = bf16_to_f32(f32_to_bf16(x[i]));
    }
    if (k % 2 != 0) {
        out[k] = 0.0f;
    }
}

/* Returns the scale; *sum is the sum of q. */
static float quantise(const float *x, int32_t n, int8_t *q, int32_t *sum) {
    uint32_t largest = 0;
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    float a;
    memcpy(&a, &largest, sizeof a);
    *sum = 0;
    if (!isfinite(a) || a < ROWS_TINY) {
        for (int32_t i = 0; i < n; i++) {
            q[i] = 0;
        }
        return isfinite(a) ? 0.0f : NAN;
    }
    float inverse = 127.0f / a;
    for (int32_t i = 0; i < n; i++) {
        q[i] = (int8_t)rintf(x[i] * inverse);
        *sum += q[i];
    }
    return a / 127.0f;
}

static void quantise_token(const float *x, int32_t k, void *row) {
    int8_t *q = row;
    int32_t padded = linear_pad(k, PACK_GROUP), sum;
    float scale = quantise(x, k, q, &sum);
    memset(q + k, 0, (size_t)(padded - k));
    memcpy(q + padded, &scale, sizeof scale);
    memcpy(q + padded + sizeof scale, &sum, sizeof sum);
}

static void quantise_groups(const float *x, int32_t k, void *row) {
    row_group *to = row;
    for (int32_t g = 0; g < k / PACK_GROUP; g++) {
        int32_t sum, first = 0;
        to[g].scale = quantise(x + g * PACK_GROUP, PACK_GROUP, to[g].q, &sum);
        for (int i = 0; i < PACK_GROUP / 2; i++) {
            first += to[g].q[i];
        }
        row_group_sums(&to[g], first, sum - first);
    }
}

/* ---- one block of columns with one row ---- */

static float widened(const linear *w, const uint8_t *block, int32_t k, int c) {
    if (w->layout.kind == PACK_F32) {
        return ((const float *)(const void *)block)[(size_t)k * LANES + (size_t)c];
    }
    const uint16_t *h = (const uint16_t *)(const void *)block;
    if (w->layout.kind == PACK_F16) {
        return f16_to_f32(h[(size_t)k * LANES + (size_t)c]);
    }
    return bf16_to_f32(h[(size_t)(k / 2) * 2 * LANES + (size_t)(2 * c + k % 2)]);
}

static void product_floats(const linear *w, const uint8_t *block, row_view x, int32_t n_rows, float *y,
                           int32_t y_stride) {
    int32_t k_end = linear_k_end(w);
    for (int32_t r = 0; r < n_rows; r++) {
        memset(y + (size_t)r * (size_t)y_stride, 0, LANES * sizeof *y);
    }
    for (int32_t k = 0; k < k_end; k++) {
        float wide[LANES];
        for (int c = 0; c < LANES; c++) {
            wide[c] = widened(w, block, k, c);
        }
        for (int32_t r = 0; r < n_rows; r++) {
            float *acc = y + (size_t)r * (size_t)y_stride;
            float xk = ((const float *)(const void *)(x.data + (size_t)r * x.stride))[k];
            for (int c = 0; c < LANES; c++) {
                acc[c] = fmaf(xk, wide[c], acc[c]);
            }
        }
    }
}

/* ---- floats with scales ---- */

static float float_at(const uint8_t *area, size_t i) {
    float f;
    memcpy(&f, area + sizeof f * i, sizeof f);
    return f;
}

static float scaled_number(const linear *w, const uint8_t *block, int32_t k, int c) {
    if (!pack_is_fours(w->layout.kind)) {
        return f16_to_f32(e4m3_to_f16_bits(block[(k / 2 * LANES + c) * 2 + k % 2]));
    }
    const int32_t byte = block[(k / 8 * LANES + c) * 4 + k % 8 / 2];
    return w->numbers[byte >> (4 * (k % 2)) & 15];
}

static float nested_scale(const linear *w, const uint8_t *block, size_t stretch, size_t c) {
    const uint8_t *supers = block + w->layout.supers_at;
    int32_t outer = 0;
    for (int32_t i = 1; i < w->layout.n_outer; i++) {
        outer += float_at(supers, c) > (float)(i * NESTED_BLOCK - 1 - (int32_t)stretch);
    }
    const float inner = w->numbers[16 + block[w->layout.scales_at + stretch * LANES + c]];
    return inner * float_at(supers, (size_t)(1 + outer) * LANES + c) + w->numbers[16 + 256];
}

static float stretch_scale(const linear *w, const uint8_t *block, size_t stretch, size_t c) {
    const uint8_t *scales = block + w->layout.scales_at;
    switch (w->layout.kind) {
    case PACK_T4_FLOAT:
        return float_at(scales, stretch * LANES + c);
    case PACK_T4_NESTED:
        return nested_scale(w, block, stretch, c);
    case PACK_E4M3_TILE:
        return float_at(scales, stretch) * 256.0f;
    case PACK_E4M3_E8M0:
        return float_of_bits(scales[stretch * LANES + c] == 0 ? 0x00400000u
                                                              : (uint32_t)scales[stretch * LANES + c] << 23) *
               256.0f;
    default:
        return float_at(scales, stretch * LANES + c) * 256.0f;
    }
}

void linear_scaled_row(const linear *w, int32_t row, float *out) {
    const uint8_t *block = linear_block(w, row / LANES);
    const int32_t stretch = pack_stretch(&w->layout);
    const int c = row % LANES;
    /* NaN if the row has a NaN code */
    const float start =
        pack_is_fours(w->layout.kind) ? 0.0f : float_at(block + w->layout.supers_at, (size_t)c);
    for (int32_t k = 0; k < w->layout.n_in; k++) {
        const float scale = stretch_scale(w, block, (size_t)(k / stretch), (size_t)c);
        out[k] = scaled_number(w, block, k, c) * scale + start;
    }
}

static float stretch_sum(const linear *w, const uint8_t *block, const float *x, int32_t k, int32_t end,
                         int c) {
    float sum = 0.0f;
    for (; k < end; k++) {
        sum = fmaf(x[k], scaled_number(w, block, k, c), sum);
    }
    return sum;
}

static void product_scaled(const linear *w, const uint8_t *block, const float *x, float *y) {
    const int32_t stretch = pack_stretch(&w->layout), k_end = linear_k_end(w);
    for (int c = 0; c < LANES; c++) {
        float acc = pack_is_fours(w->layout.kind) ? 0.0f : float_at(block + w->layout.supers_at, (size_t)c);
        for (int32_t k = 0, g = 0, end; k < k_end; k = end, g++) {
            end = k_end - k < stretch ? k_end : k + stretch;
            acc =
                fmaf(stretch_sum(w, block, x, k, end, c), stretch_scale(w, block, (size_t)g, (size_t)c), acc);
        }
        y[c] = acc;
    }
}

static void product_token(const linear *w, const uint8_t *block, const float *scales, const uint8_t *row,
                          float *y) {
    const int8_t *q = (const int8_t *)block, *x = (const int8_t *)row;
    int32_t sums[LANES] = {0};
    for (int32_t k = 0; k < w->layout.k_padded; k++) {
        for (int c = 0; c < LANES; c++) {
            sums[c] += x[k] * q[(size_t)(k / 4) * 4 * LANES + (size_t)(4 * c + k % 4)];
        }
    }
    for (int c = 0; c < LANES; c++) {
        y[c] = (float)sums[c] * (row_scales(row, w->layout.n_in)[0] * scales[c]);
    }
}

/* ---- grouped weights: a group of 32 of k, read from its planes ---- */

typedef struct plain_group {
    int32_t q[PACK_GROUP][LANES];         /* codes less their zero */
    float scale[2][LANES], min[2][LANES]; /* per 16, or for all 32 */
} plain_group;

/* Code i of column c in a group whose planes start at p. */
static int32_t code_at(int bits, const uint8_t *p, int i, int c) {
    int quad = i / 4, at = 4 * c + i % 4, value = 0;
    if (bits == 8) {
        return (int8_t)p[quad * 64 + at];
    }
    if (bits == 3 && quad < 6) {
        return p[quad / 2 * 64 + at] >> (4 * (quad % 2)) & 7;
    }
    if (bits == 3) {
        const int bit = 4 * (quad % 2) + 3;
        return (p[at] >> bit & 1) | (p[64 + at] >> bit & 1) << 1 | (p[128 + at] >> bit & 1) << 2;
    }
    if (bits >= 4) {
        value = p[quad % 4 * 64 + at] >> (4 * (quad / 4)) & 15;
        p += 4 * 64;
    }
    if (bits == 2 || bits == 6) {
        value |= (p[quad / 4 * 64 + at] >> (2 * (quad % 4)) & 3) << (bits == 6 ? 4 : 0);
        p += 2 * 64;
    }
    if (bits % 2 == 1) {
        value |= (p[at] >> quad & 1) << pack_single_bit(bits);
    }
    return value;
}

static float half_at(const uint8_t *area, size_t i) {
    uint16_t h;
    memcpy(&h, area + 2 * i, sizeof h);
    return f16_to_f32(h);
}

/* Index of the row of f16 scales that a group shares with others. */
static size_t shared_row(const linear *w, size_t g) {
    return g >> w->layout.rule.shift;
}

static int zero_at(const linear *w, const uint8_t *block, size_t g, int c) {
    const quant_format *f = pack_format(w->layout.kind);
    const int width = pack_zero_bits(f->bits);
    const size_t row = shared_row(w, g), a_byte = (size_t)(8 / width);
    if (f->coding != SCALE_F16_ZERO) {
        return f->zero;
    }
    const uint8_t byte = block[w->layout.supers_at + row / a_byte * LANES + (size_t)c];
    const int stored = width == 8 ? (int8_t)byte : byte >> (width * (int)(row % a_byte)) & ((1 << width) - 1);
    return stored + w->layout.rule.least;
}

/* The scale (and min) of part `part` of group g of 32 elements. n: number of f->group
 * groups before it. spare: the scale's code with SCALE_ODD_SPARE. */
static void part_scale(const linear *w, const uint8_t *block, size_t g, size_t part, int c, unsigned spare,
                       float *scale, float *min) {
    const uint8_t *scales = block + w->layout.scales_at, *supers = block + w->layout.supers_at;
    const quant_format *f = pack_format(w->layout.kind);
    const size_t super = g / 8, lane = (size_t)c, n = f->group == PACK_GROUP ? g : 2 * g + part;
    const uint8_t *code = scales + n * LANES + c;
    switch (f->coding) {
    case SCALE_F16:
    case SCALE_F16_ZERO:
        *scale = half_at(scales, shared_row(w, g) * LANES + lane);
        break;
    case SCALE_F16_MIN:
        *scale = half_at(scales, 2 * g * LANES + lane);
        *min = half_at(scales, (2 * g + 1) * LANES + lane);
        break;
    case SCALE_FOUR:
        *scale = half_at(supers, 2 * super * LANES + lane) * (float)(*code & 15);
        *min = -half_at(supers, (2 * super + 1) * LANES + lane) * (float)(*code >> 4);
        break;
    case SCALE_SIX:
        *scale = half_at(supers, super * LANES + lane) *
                 (float)(pack_six_at(scales + n / 4 * 3 * LANES, (int)(n % 4), c) - 32);
        break;
    case SCALE_SIX_MIN:
        *scale = half_at(supers, 2 * super * LANES + lane) *
                 (float)pack_six_at(scales + g / 2 * 3 * LANES, (int)(g % 2), c);
        *min = -half_at(supers, (2 * super + 1) * LANES + lane) *
               (float)pack_six_at(scales + g / 2 * 3 * LANES, 2 + (int)(g % 2), c);
        break;
    case SCALE_ODD:
        *scale = half_at(supers, super * LANES + lane) * w->layout.rule.unit *
                 (float)(2 * (scales[n / 2 * LANES + lane] >> (4 * (n % 2)) & 15) + 1);
        break;
    case SCALE_ODD_SPARE:
        *scale = half_at(supers, super * LANES + lane) * w->layout.rule.unit * (float)(2 * spare + 1);
        break;
    case SCALE_E8M0:
        *scale = float_of_bits(*code < 2 ? 0x00200000u << *code : (uint32_t)(*code - 1) << 23);
        break;
    case SCALE_E4M3:
        *scale = float_of_bits((uint32_t)*code << 20) * 0x1p116f;
        break;
    default:
        *scale = half_at(supers, super * LANES + lane) * (float)(int8_t)*code;
    }
}

static void group_read(const linear *w, const uint8_t *block, int32_t group, plain_group *out) {
    const quant_format *f = pack_format(w->layout.kind);
    const uint8_t *planes = block + (size_t)group * pack_group_bytes(f);
    for (int c = 0; c < LANES; c++) {
        const int zero = zero_at(w, block, (size_t)group, c);
        uint8_t rows[PACK_GROUP];
        const unsigned spare = f->run > 1 ? pack_read_rows(w->layout.rule.form, planes, c, rows) : 0;
        for (int i = 0; i < PACK_GROUP; i++) {
            const int32_t code = f->run > 1 ? rows[i] : code_at(f->bits, planes, i, c);
            out->q[i][c] = f->has_table ? quant_tables[w->layout.rule.table][code] : code - zero;
        }
        for (size_t part = 0; part < 2; part++) {
            part_scale(w, block, (size_t)group, part, c, spare, &out->scale[part][c], &out->min[part][c]);
        }
    }
}

static void group_add(const quant_format *f, const plain_group *g, const row_group *x, float *acc) {
    bool has_min = f->coding == SCALE_F16_MIN || f->coding == SCALE_FOUR || f->coding == SCALE_SIX_MIN;
    for (int part = 0; part < PACK_GROUP / f->group; part++) {
        float x_sum = f->group == PACK_GROUP ? x->sum : x->sums[part];
        int32_t sums[LANES] = {0};
        for (int i = part * f->group; i < (part + 1) * f->group; i++) {
            for (int c = 0; c < LANES; c++) {
                sums[c] += x->q[i] * g->q[i][c];
            }
        }
        for (int c = 0; c < LANES; c++) {
            acc[c] = fmaf((float)sums[c], g->scale[part][c] * x->scale, acc[c]);
            if (has_min) {
                acc[c] = fmaf(g->min[part][c], x_sum, acc[c]);
            }
        }
    }
}

static void product_groups(const linear *w, const uint8_t *block, row_view x, int32_t n_rows, float *y,
                           int32_t y_stride) {
    int32_t n_in = w->layout.n_in;
    plain_group group;
    for (int32_t r = 0; r < n_rows; r++) {
        memset(y + (size_t)r * (size_t)y_stride, 0, LANES * sizeof *y);
    }
    for (int32_t g = 0; g < n_in / PACK_GROUP; g++) {
        group_read(w, block, g, &group);
        for (int32_t r = 0; r < n_rows; r++) {
            const row_group *row = (const row_group *)(const void *)(x.data + (size_t)r * x.stride);
            group_add(pack_format(w->layout.kind), &group, row + g, y + (size_t)r * (size_t)y_stride);
        }
    }
}

static void product(const linear_part *part, row_view x, int32_t n_rows, float *y, int32_t y_stride,
                    void *scratch) {
    (void)scratch;
    const linear *w = part->w;
    for (int32_t i = 0; i < part->n_blocks; i++) {
        const uint8_t *block = linear_block(w, part->block0 + i);
        float *out = y + i * LANES;
        if (w->format == ROWS_GROUPS) {
            product_groups(w, block, x, n_rows, out, y_stride);
        } else if (w->format == ROWS_TOKEN) {
            for (int32_t r = 0; r < n_rows; r++) {
                product_token(w, block, w->scales + (part->block0 + i) * LANES, x.data + (size_t)r * x.stride,
                              out + (size_t)r * (size_t)y_stride);
            }
        } else if (pack_is_scaled(w->layout.kind)) {
            for (int32_t r = 0; r < n_rows; r++) {
                product_scaled(w, block, (const float *)(const void *)(x.data + (size_t)r * x.stride),
                               out + (size_t)r * (size_t)y_stride);
            }
        } else {
            product_floats(w, block, x, n_rows, out, y_stride);
        }
    }
}

const linear_kernels linear_plain = {
    .quantise = {[ROWS_F32] = quantise_f32,
                 [ROWS_BF16] = quantise_bf16,
                 [ROWS_TOKEN] = quantise_token,
                 [ROWS_GROUPS] = quantise_groups},
    .product = product,
};

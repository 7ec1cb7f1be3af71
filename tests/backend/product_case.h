/* A matrix and the rows that it is multiplied with, for tests of product kernels:
 * products in tiles of any size, and a reference that computes in double. */
#ifndef TESTS_PRODUCT_CASE_H
#define TESTS_PRODUCT_CASE_H

#include <math.h>

#include "backend/cpu/linear_ops.h"
#include "backend/linear_cases.h"
#include "base/mem.h"
#include "core/half.h"
#include "test.h"

#define MAX_ROWS LINEAR_TILE_ROWS

/* A matrix, its packed form, and input rows. */
typedef struct product_case {
    dtype type;
    int32_t n_out, n_in;
    uint8_t *source; /* the weights in blocks of `type`; NULL: `codes` or `floats` has them */
    const pack_source *codes;
    const scaled_source *floats;
    linear w;
    float *x; /* [MAX_ROWS, n_in] */
} product_case;

static inline void case_free(product_case *c) {
    mem_free(c->w.data);
    mem_free(c->w.scales);
    mem_free(c->w.numbers);
    free(c->source);
    free(c->x);
}

static inline void quantise(const linear_kernels *k, const product_case *c, uint8_t *rows) {
    size_t stride = linear_row_bytes(c->w.format, c->n_in);
    for (size_t r = 0; r < MAX_ROWS; r++) {
        k->quantise[c->w.format](c->x + r * (size_t)c->n_in, c->n_in, rows + r * stride);
    }
}

/* Computes y [n_rows][n_blocks * 16] for the rows from row0 on, in tiles of tile_rows
 * rows and tile_blocks blocks. If tile_rows is odd, tiles are written directly to y. */
static inline void multiply(const linear_kernels *k, const product_case *c, int32_t row0, int32_t n_rows,
                            int32_t tile_rows, int32_t tile_blocks, float *y) {
    size_t stride = linear_row_bytes(c->w.format, c->n_in);
    int32_t n_blocks = c->w.layout.n_blocks, width = n_blocks * PACK_LANES;
    uint8_t *rows = mem_new(MAX_ROWS, stride);
    float *tile = mem_new((size_t)tile_rows * (size_t)tile_blocks, PACK_LANES * sizeof *tile);
    void *scratch = mem_new(1, LINEAR_SCRATCH_BYTES);
    memset(scratch, 0xff, LINEAR_SCRATCH_BYTES); /* NaNs, so that a read before a write shows */
    quantise(k, c, rows);
    for (int32_t r = 0; r < n_rows; r += tile_rows) {
        int32_t n = n_rows - r < tile_rows ? n_rows - r : tile_rows;
        for (int32_t b = 0; b < n_blocks; b += tile_blocks) {
            int32_t m = n_blocks - b < tile_blocks ? n_blocks - b : tile_blocks;
            const row_view x = {rows + (size_t)(row0 + r) * stride, stride};
            const linear_part part = {.w = &c->w,
                                      .block0 = b,
                                      .n_blocks = m,
                                      .next = (b / tile_blocks) % 2 == 0 ? linear_block(&c->w, 0) : NULL};
            if (tile_rows % 2 == 1) {
                k->product(&part, x, n, y + r * width + b * PACK_LANES, width, scratch);
                continue;
            }
            k->product(&part, x, n, tile, m * PACK_LANES, scratch);
            for (int32_t i = 0; i < n; i++) {
                memcpy(y + (r + i) * width + b * PACK_LANES, tile + i * m * PACK_LANES,
                       sizeof *y * PACK_LANES * (size_t)m);
            }
        }
    }
    mem_free(scratch);
    mem_free(tile);
    mem_free(rows);
}

/* ---- the reference, in double ---- */

static inline void reference_quantise(const float *x, int32_t n, double *out) {
    float a = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        a = fmaxf(a, fabsf(x[i]));
    }
    for (int32_t i = 0; i < n; i++) {
        out[i] = a > 0.0f ? (double)rintf(x[i] * (127.0f / a)) * (double)(a / 127.0f) : 0.0;
    }
}

static inline void reference_row(row_format format, const float *x, int32_t k, double *out) {
    for (int32_t i = 0; i < k; i++) {
        out[i] = format == ROWS_BF16 ? (double)bf16_to_f32(f32_to_bf16(x[i])) : (double)x[i];
    }
    if (format == ROWS_TOKEN) {
        reference_quantise(x, k, out);
    }
    for (int32_t i = 0; format == ROWS_GROUPS && i < k; i += 32) {
        reference_quantise(x + i, 32, out + i);
    }
}

static inline float float_of_code(const product_case *c, uint8_t code) {
    return pack_is_fours(c->w.layout.kind) ? c->floats->table[code] : e4m3_to_f32(code);
}

/* Dequantises a column of c->floats. */
static inline void reference_floats(const product_case *c, int32_t column, double *out) {
    for (int32_t k = 0; k < c->n_in; k++) {
        uint8_t code;
        c->floats->codes(c->floats->context, column, k, 1, &code);
        const float scale = c->floats->scale(c->floats->context, column, k - k % pack_stretch(&c->w.layout));
        out[k] = (double)float_of_code(c, code) * (double)scale;
    }
}

/* Computes a column of the weights as the compute mode rounds them. */
static inline void reference_column(const product_case *c, int32_t column, double *out) {
    if (c->floats != NULL) {
        reference_floats(c, column, out);
        return;
    }
    size_t k = (size_t)c->n_in,
           row_bytes = k / (size_t)dtype_block_elements(c->type) * (size_t)dtype_block_bytes(c->type);
    float *w = malloc(k * sizeof *w), a = 0.0f;
    for (int32_t i = 0; c->codes != NULL && i < c->n_in; i += QUANT_SUPER) {
        const int32_t n = c->n_in - i < QUANT_SUPER ? c->n_in - i : QUANT_SUPER;
        quant_codes codes = {.q = {0}};
        c->codes->read(c->codes->context, column, i, n, &codes);
        quant_values(&c->w.layout.rule, &codes, (size_t)n, w + i);
    }
    if (c->codes == NULL) {
        assert_int_equal(quant_dequantise(c->type, c->source + (size_t)column * row_bytes, k, w), QUIRE_OK);
    }
    for (size_t i = 0; i < k; i++) {
        a = fmaxf(a, fabsf(w[i]));
    }
    for (size_t i = 0; i < k; i++) {
        out[i] = c->w.format == ROWS_BF16 ? (double)bf16_to_f32(f32_to_bf16(w[i])) : (double)w[i];
        if (c->w.layout.kind == PACK_INT8) {
            out[i] = (double)rintf(w[i] / (a / 127.0f)) * (double)(a / 127.0f);
        }
    }
    free(w);
}

static inline void expect_near_reference(const product_case *c, const float *y, int32_t n_rows,
                                         const char *isa) {
    size_t k = (size_t)c->n_in;
    double *w = malloc(k * sizeof *w), *x = malloc(k * sizeof *x);
    for (int32_t column = 0; column < c->n_out; column++) {
        reference_column(c, column, w);
        for (int32_t r = 0; r < n_rows; r++) {
            double sum = 0.0, size = 0.0;
            reference_row(c->w.format, c->x + (size_t)r * k, c->n_in, x);
            for (size_t i = 0; i < k; i++) {
                sum += x[i] * w[i];
                size += fabs(x[i] * w[i]);
            }
            float got = y[r * c->w.layout.n_blocks * PACK_LANES + column];
            if (!(fabs((double)got - sum) <= 4e-6 * size + 1e-30)) {
                fail_msg("%s %s format %d, %d x %d: row %d column %d is %.9g, not %.9g", isa,
                         dtype_name(c->type), (int)c->w.format, c->n_out, c->n_in, r, column, (double)got,
                         sum);
            }
        }
    }
    free(w);
    free(x);
}

static inline void expect_same_columns(const product_case *c, const float *a, const float *b, int32_t n_rows,
                                       const char *what) {
    int32_t width = c->w.layout.n_blocks * PACK_LANES;
    for (int32_t r = 0; r < n_rows; r++) {
        if (memcmp(a + r * width, b + r * width, sizeof *a * (size_t)c->n_out) != 0) {
            fail_msg("%s: %s format %d, %d x %d: row %d of %d has other bits", what, dtype_name(c->type),
                     (int)c->w.format, c->n_out, c->n_in, r, n_rows);
        }
    }
}

static inline uint32_t mixed(uint32_t row, uint32_t i, uint32_t what) {
    uint64_t seed = ((uint64_t)row << 32) + i * 4 + what;
    return (uint32_t)(rng_next(&seed) >> 32);
}

#endif

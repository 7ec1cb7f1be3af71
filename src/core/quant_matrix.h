/* A quantised matrix whose codes, scales and zero points are separate tensors of a
 * checkpoint (GPTQ, AWQ, FP8, NVFP4, ..).
 *
 * One form with parameters describes all of these formats:
 *   value(row, i) = decode(code(row, i)) * (scale(row, group of i) * factor)
 * decode subtracts a zero point from an integer, widens an 8-bit float, or looks a code
 * up in a table of 16. The methods in src/model (quant_method.h) describe a linear
 * layer's tensors in this form; backends read the rows.
 *
 * Everything is borrowed. scales, zeros, table and group_of are aligned for their type,
 * the rest need not be. Immutable while in use; any thread. */
#ifndef CORE_QUANT_MATRIX_H
#define CORE_QUANT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the code of (row, i) lies. Words are little-endian u32. Except with
 * CODES_WORDS_DOWN, a word holds 32 / bits codes. */
typedef enum code_place {
    CODES_BYTES,        /* byte [row][i] */
    CODES_BYTES_DOWN,   /* byte [i][row] */
    CODES_NIBBLES,      /* byte [row][i / 2], the even element in the low half */
    CODES_NIBBLES_HIGH, /* byte [row][i / 2], the even element in the high half */
    CODES_NIBBLES_DOWN, /* byte [i / 2][row], the even element in the low half */
    CODES_WORDS,        /* word [row][i / (32 / bits)], the first element in the lowest bits */
    /* bits i * bits .. of word column [..][row]; a code may straddle two words */
    CODES_WORDS_DOWN,
    CODES_WORDS_AWQ /* 4 bits: word [i][row / 8], whose nibbles hold rows 0 2 4 6 1 3 5 7 of each 8 */
} code_place;

typedef enum code_kind {
    CODE_INTEGER, /* an unsigned integer, minus the zero point */
    CODE_E4M3,
    CODE_TABLE /* an index into a table of 16 values */
} code_kind;

#define NESTED_BLOCK 256

/* Scales that are quantised themselves: scale i is table[codes[i]] * outer[i /
 * NESTED_BLOCK] + offset, rounded twice. */
typedef struct nested_scales {
    const uint8_t *codes;
    const float *table; /* [256] */
    const float *outer;
    float offset;
} nested_scales;

typedef struct quant_matrix {
    code_place place;
    code_kind kind;
    int32_t bits; /* bits of a code: 2, 3, 4 or 8 */
    const uint8_t *codes;
    int64_t n_rows, n_in; /* the size of the whole stored matrix */
    const float *table;   /* CODE_TABLE: [16] the values of the codes */
    /* [n_rows / scale_rows][n_groups]; stored row r has the scales of row r /
     * scale_rows */
    const float *scales;
    const nested_scales *nested; /* if not NULL, the scales are read from here instead of `scales` */
    const int16_t *zeros;        /* CODE_INTEGER: zero points, laid out as scales; NULL: all are `zero` */
    int32_t zero, scale_rows, n_groups;
    int32_t group; /* consecutive inputs that share a scale */
    /* [n_in] the group of each input, below n_groups; NULL: i / group */
    const int32_t *group_of;
    bool runs_on; /* groups continue across rows: (row, i) is in group (row * n_in + i) / group */
    float factor;
    /* The stored rows that form this matrix, as in weight_part (loader.h): row r is
     * stored row first + r / block * step + r % block. */
    int64_t first, block, step;
} quant_matrix;

/* The stored row that is row r of the matrix. */
static inline int64_t quant_matrix_row(const quant_matrix *m, int64_t r) {
    return m->first + r / m->block * m->step + r % m->block;
}

/* out[0..n) = the codes of elements i .. i + n of row r, as stored. */
void quant_matrix_codes(const quant_matrix *m, int64_t r, int64_t i, int64_t n, uint8_t *out);
/* The code of the stored row `row` at input i. */
uint32_t quant_matrix_code(const quant_matrix *m, int64_t row, int64_t i);

/* out[0..n) = the values of elements i .. i + n of row r. Each is the rounded product of
 * the decoded code and the rounded product of scale and factor; NaN if the scale or the
 * code is NaN. */
void quant_matrix_read(const quant_matrix *m, int64_t r, int64_t i, int64_t n, float *out);

/* ---- rounding of activations ---- */

/* How a checkpoint rounds the input rows of a quantised layer: to floats of 8 or 4 bits,
 * with a scale per group of inputs. */

typedef enum round_to {
    ROUND_NOTHING, /* no rounding */
    ROUND_E4M3,
    ROUND_E2M1
} round_to;

typedef enum round_scale {
    ROUND_FIXED,   /* the scale is `fixed` */
    ROUND_LARGEST, /* the group's largest magnitude divided by the type's largest number */
    /* power of two of the largest magnitude, over that of the type's largest number (OCP
     * MX); twice that if the mantissa is 1.75 or more */
    ROUND_POWER,
    ROUND_SCALED /* `fixed` times an E4M3 number, or times `least` if that number is 0 (NVFP4) */
} round_scale;

typedef struct row_rounding {
    round_to to;
    round_scale scale;
    int32_t group; /* inputs that share a scale; 0: the whole row */
    float fixed, least;
} row_rounding;

/* Rounds x[0..n) in place. Larger magnitudes than the type's largest are clamped to it. A
 * group with an infinity or a NaN becomes all NaN. */
void row_round(const row_rounding *r, float *x, int32_t n);

#endif

/* A quantised matrix whose codes, scales and zero points are separate tensors of a
 * checkpoint (GPTQ, AWQ, FP8, NVFP4, ..).
 *
 * All of these formats are one form with parameters:
 *   value(row, i) = decode(code(row, i)) * (scale(row, group of i) * factor)
 * where decode subtracts a zero point from an integer, widens an 8-bit float, or looks a
 * code up in a table of 16. The methods in src/model (quant_method.h) describe a linear
 * layer's tensors in this form; backends read its rows.
 *
 * Everything is borrowed; nothing needs alignment but scales, zeros, table and group_of.
 * Constant while it is read, by any thread. */
#ifndef CORE_QUANT_MATRIX_H
#define CORE_QUANT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the code of (row, i) lies. Words are little-endian u32, and hold 32 / bits codes
 * each, except for CODES_WORDS_DOWN. */
typedef enum code_place {
    CODES_BYTES,        /* byte [row][i] */
    CODES_NIBBLES,      /* byte [row][i / 2], the even element in the low half */
    CODES_NIBBLES_HIGH, /* the same, the even element in the high half */
    CODES_WORDS,        /* word [row][i / (32 / bits)], the first element in the lowest bits */
    /* bits i * bits .. of the column of words [..][row]; a code may straddle two words */
    CODES_WORDS_DOWN,
    CODES_WORDS_AWQ /* 4 bits: word [i][row / 8], whose nibbles hold rows 0 2 4 6 1 3 5 7 of each 8 */
} code_place;

typedef enum code_kind {
    CODE_INTEGER, /* unsigned, minus the zero point */
    CODE_E4M3,
    CODE_TABLE /* of 16 values */
} code_kind;

#define NESTED_BLOCK 256

/* Scales that are themselves quantised: scale i is table[codes[i]] * outer[i /
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
    int32_t bits; /* of a code: 2, 3, 4 or 8 */
    const uint8_t *codes;
    int64_t n_rows, n_in; /* of everything that `codes` hold */
    const float *table;   /* [16] of CODE_TABLE */
    /* [rows of scales][n_groups]; row r of the matrix has the scales of row r /
     * scale_rows */
    const float *scales;
    const nested_scales *nested; /* the source of `scales`, or NULL */
    const int16_t *zeros;        /* of CODE_INTEGER, laid out as scales; NULL: `zero` everywhere */
    int32_t zero, scale_rows, n_groups;
    int32_t group; /* the number of consecutive inputs that share a scale */
    /* [n_in]: the group of each input, below n_groups, in place of i / group; or NULL */
    const int32_t *group_of;
    bool runs_on; /* groups continue across rows: (row, i) is in group (row * n_in + i) / group */
    float factor;
    /* The stored rows that belong to it, as in weight_part (loader.h): row r is first + r
     * / block * step + r % block. */
    int64_t first, block, step;
} quant_matrix;

/* The stored row of the matrix's row r. */
static inline int64_t quant_matrix_row(const quant_matrix *m, int64_t r) {
    return m->first + r / m->block * m->step + r % m->block;
}

/* out[0..n) = the codes of elements i .. i + n of row r, as stored. */
void quant_matrix_codes(const quant_matrix *m, int64_t r, int64_t i, int64_t n, uint8_t *out);
/* The code of the stored row `row` at input i. */
uint32_t quant_matrix_code(const quant_matrix *m, int64_t row, int64_t i);

/* out[0..n) = the values of elements i .. i + n of row r. Each is one rounded product of
 * the decoded code with the rounded product of scale and factor. NaN if the scale or the
 * code is. */
void quant_matrix_read(const quant_matrix *m, int64_t r, int64_t i, int64_t n, float *out);

/* ---- how rows are rounded ---- */

/* How a checkpoint rounds the input rows of a quantised layer: to floats of 8 or 4 bits
 * with a scale for each group of inputs. */

typedef enum round_to {
    ROUND_NOTHING, /* rows stay as they are */
    ROUND_E4M3,
    ROUND_E2M1
} round_to;

typedef enum round_scale {
    ROUND_FIXED,   /* `fixed`, whatever the row */
    ROUND_LARGEST, /* the largest magnitude divided by the type's largest number */
    /* the largest magnitude's power of two, as in the OCP MX formats; for a mantissa of
     * 1.75 or more the next */
    ROUND_POWER,
    ROUND_SCALED /* `fixed` times an E4M3 number, or times `least` if that is 0 (NVFP4) */
} round_scale;

typedef struct row_rounding {
    round_to to;
    round_scale scale;
    int32_t group; /* the number of inputs that share a scale; 0: the whole row */
    float fixed, least;
} row_rounding;

/* Rounds x[0..n) in place. Magnitudes beyond the type's largest are clamped to it. A
 * group with an infinity or NaN becomes NaN. */
void row_round(const row_rounding *r, float *x, int32_t n);

#endif

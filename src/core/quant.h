/* Quantised weights: the forms that kernels support, which form each file type has, and
 * dequantisation with the bits of gguf-py (multiply and add are rounded separately, in
 * its order). */
#ifndef CORE_QUANT_H
#define CORE_QUANT_H

#include "base/err.h"
#include "core/dtype.h"
#include <stddef.h>
#include <stdint.h>

#define QUANT_SUPER 256 /* elements of a super-block: the K types, IQ, TQ */
#define QUANT_GROUP 32  /* elements of the smallest group that has a scale of 16 bits */

/* How the scales of groups are stored. The super-block's scales are 16-bit floats.
 *   F16        a 16-bit float; ZERO: and an integer to subtract; MIN: and a 16-bit float
 *              to add
 *   FOUR       codes of 4 bits for scale and min, times the super-block's two scales
 *   SIX        codes of 6 bits, offset by 32, times the super-block's scale; MIN: codes
 *              of 6 bits for scale and min, times its two scales
 *   EIGHT      signed codes of 8 bits, times the super-block's scale
 *   ODD        codes c of 4 bits that mean 2c + 1, times the super-block's scale and a
 *              unit; SPARE: stored in bits that the signs leave free
 *   E8M0       a byte e: 2^(e - 128)
 *   E4M3       half the value of an 8-bit float: 4 bits of exponent, 3 of mantissa */
typedef enum quant_scale {
    SCALE_NONE,
    SCALE_F16,
    SCALE_F16_ZERO,
    SCALE_F16_MIN,
    SCALE_FOUR,
    SCALE_SIX,
    SCALE_SIX_MIN,
    SCALE_EIGHT,
    SCALE_ODD,
    SCALE_ODD_SPARE,
    SCALE_E8M0,
    SCALE_E4M3
} quant_scale;

/* The forms: value = scale * number, plus or minus a min if the form has one. The number
 * of a code is code - zero; for 8 bits the signed byte; for 1 bit 0 or 2; with a table,
 * table[code]. Kernels multiply number + zero, as an unsigned integer, or signed for 8
 * bits. In a grid form a code selects a row of 4 or 8 magnitudes. The smallest grid forms
 * have an even number of minus signs in every 8 elements, so they store 7.
 *
 * X(name, elements of a group, bits of a code, 1: has a table, 2: of a grid, zero, bits
 * of what is multiplied, how scales are stored, elements per code) */
#define FORM_LIST(X)                                                                                         \
    X(W1, 32, 1, 0, 1, 2, SCALE_F16, 1)                                                                      \
    X(W2, 32, 2, 0, 2, 2, SCALE_F16, 1)                                                                      \
    X(W3, 32, 3, 0, 4, 3, SCALE_F16, 1)                                                                      \
    X(W4, 32, 4, 0, 8, 4, SCALE_F16, 1)                                                                      \
    X(W5, 32, 5, 0, 16, 5, SCALE_F16, 1)                                                                     \
    X(W8, 32, 8, 0, 0, 8, SCALE_F16, 1)                                                                      \
    X(W2_ZERO, 32, 2, 0, 0, 2, SCALE_F16_ZERO, 1)                                                            \
    X(W3_ZERO, 32, 3, 0, 0, 3, SCALE_F16_ZERO, 1)                                                            \
    X(W4_ZERO, 32, 4, 0, 0, 4, SCALE_F16_ZERO, 1)                                                            \
    X(W8_ZERO, 32, 8, 0, 0, 8, SCALE_F16_ZERO, 1)                                                            \
    X(W4_MIN, 32, 4, 0, 0, 4, SCALE_F16_MIN, 1)                                                              \
    X(W5_MIN, 32, 5, 0, 0, 5, SCALE_F16_MIN, 1)                                                              \
    X(W2_FOUR, 16, 2, 0, 0, 2, SCALE_FOUR, 1)                                                                \
    X(W3_SIX, 16, 3, 0, 4, 3, SCALE_SIX, 1)                                                                  \
    X(W4_SIX_MIN, 32, 4, 0, 0, 4, SCALE_SIX_MIN, 1)                                                          \
    X(W5_SIX_MIN, 32, 5, 0, 0, 5, SCALE_SIX_MIN, 1)                                                          \
    X(W6_EIGHT, 16, 6, 0, 32, 6, SCALE_EIGHT, 1)                                                             \
    X(T4, 32, 4, 1, 0, 8, SCALE_F16, 1)                                                                      \
    X(T4_SIX, 32, 4, 1, 0, 8, SCALE_SIX, 1)                                                                  \
    X(T4_E8M0, 32, 4, 1, 16, 5, SCALE_E8M0, 1)                                                               \
    X(T4_E4M3, 16, 4, 1, 32, 6, SCALE_E4M3, 1)                                                               \
    X(T4_ODD, 32, 4, 1, 16, 5, SCALE_ODD, 1)                                                                 \
    X(T4_WIDE_ODD, 32, 4, 1, 32, 6, SCALE_ODD, 1)                                                            \
    X(T3_ODD, 32, 3, 1, 64, 7, SCALE_ODD, 1)                                                                 \
    X(T3_SHORT_ODD, 16, 3, 1, 64, 7, SCALE_ODD, 1)                                                           \
    X(GRID8_8, 32, 8, 2, 64, 7, SCALE_ODD_SPARE, 8)                                                          \
    X(GRID8_9, 16, 9, 2, 64, 7, SCALE_ODD, 8)                                                                \
    X(GRID8_10, 16, 10, 2, 64, 7, SCALE_ODD, 8)                                                              \
    X(GRID4_8, 32, 8, 2, 32, 6, SCALE_ODD_SPARE, 4)                                                          \
    X(GRID4_9, 32, 9, 2, 16, 5, SCALE_ODD, 4)

typedef enum quant_form {
#define FORM_NAME(name, group, bits, table, zero, dot, scale, run) FORM_##name,
    FORM_LIST(FORM_NAME)
#undef FORM_NAME
        N_FORMS
} quant_form;

typedef struct quant_format {
    int group, bits;
    bool has_table;
    int zero, dot_bits;
    quant_scale coding;
    int run; /* elements per code */
} quant_format;

extern const quant_format quant_formats[N_FORMS];

/* Whether a grid form stores 7 signs for every 8 elements. */
static inline bool quant_has_even_signs(const quant_format *f) {
    return f->run == 8 ? f->bits < 10 : f->bits < 9;
}

/* The table form to which a grid's rows are unpacked, for processors with slow table
 * look-ups. Other forms map to themselves. */
quant_form quant_unpacked(quant_form form);

/* Tables of the numbers of codes. Entries 0..7 of IQ2 and IQ1 are a grid's numbers,
 * negated where bit 2 is set; entries of IQ3 likewise with bit 3. E2M1 is doubled,
 * IQ3_XXS halved. */
typedef enum quant_table {
    TABLE_NONE,
    TABLE_IQ4,
    TABLE_E2M1,
    TABLE_IQ1,
    TABLE_IQ2,
    TABLE_IQ3_XXS,
    TABLE_IQ3_S,
    N_TABLES
} quant_table;

extern const int8_t quant_tables[N_TABLES][16];

/* A matrix's form and its parameters.
 *   table    numbers of the form's codes
 *   unit     SCALE_ODD: a power of two
 *   shift    SCALE_F16, SCALE_F16_ZERO: 2^shift groups of QUANT_GROUP share a scale (and
 *            zero); 31: the whole row does
 *   least    SCALE_F16_ZERO: 0 or 1, added to stored zeros
 *   stretch  the backend's floats with scales: elements that share one; 0: the row */
typedef struct quant_rule {
    quant_form form;
    quant_table table;
    float unit;
    int32_t shift, least, stretch;
} quant_rule;

/* File types and their forms. X(type, form, table, unit, shift) */
#define QUANT_LIST(X)                                                                                        \
    X(Q4_0, W4, NONE, 1.0f, 0)                                                                               \
    X(Q4_1, W4_MIN, NONE, 1.0f, 0)                                                                           \
    X(Q5_0, W5, NONE, 1.0f, 0)                                                                               \
    X(Q5_1, W5_MIN, NONE, 1.0f, 0)                                                                           \
    X(Q8_0, W8, NONE, 1.0f, 0)                                                                               \
    X(Q2_K, W2_FOUR, NONE, 1.0f, 0)                                                                          \
    X(Q3_K, W3_SIX, NONE, 1.0f, 0)                                                                           \
    X(Q4_K, W4_SIX_MIN, NONE, 1.0f, 0)                                                                       \
    X(Q5_K, W5_SIX_MIN, NONE, 1.0f, 0)                                                                       \
    X(Q6_K, W6_EIGHT, NONE, 1.0f, 0)                                                                         \
    X(IQ4_NL, T4, IQ4, 1.0f, 0)                                                                              \
    X(IQ4_XS, T4_SIX, IQ4, 1.0f, 0)                                                                          \
    X(MXFP4, T4_E8M0, E2M1, 1.0f, 0)                                                                         \
    X(NVFP4, T4_E4M3, E2M1, 1.0f, 0)                                                                         \
    X(IQ3_S, GRID4_9, IQ3_S, 1.0f, 0)                                                                        \
    X(IQ3_XXS, GRID4_8, IQ3_XXS, 0.5f, 0)                                                                    \
    X(IQ2_S, GRID8_10, IQ2, 0.125f, 0)                                                                       \
    X(IQ2_XS, GRID8_9, IQ2, 0.125f, 0)                                                                       \
    X(IQ2_XXS, GRID8_8, IQ2, 0.125f, 0)                                                                      \
    X(IQ1_M, T3_SHORT_ODD, IQ1, 0.125f, 0)                                                                   \
    X(IQ1_S, T3_ODD, IQ1, 0.125f, 0)                                                                         \
    X(TQ1_0, W2_ZERO, NONE, 1.0f, 3)                                                                         \
    X(TQ2_0, W2_ZERO, NONE, 1.0f, 3)                                                                         \
    X(Q2_0, W2_ZERO, NONE, 1.0f, 1)                                                                          \
    X(Q1_0, W1, NONE, 1.0f, 2)

/* The rule of a type in QUANT_LIST; NULL for other types. */
const quant_rule *quant_rule_of(dtype t);

/* Up to QUANT_SUPER elements as codes. q: as the format stores them (zero not subtracted;
 * int8 as bytes). scale and min: codes of each group. zero: one per 32 elements, only
 * with SCALE_F16_ZERO; signed for codes of 8 bits. d and m: with SCALE_F16* one 16-bit
 * float per 32 elements, repeated if several groups share it; else one for all. */
typedef struct quant_codes {
    uint8_t q[QUANT_SUPER];
    uint8_t scale[16], min[16], zero[8];
    uint16_t d[8], m[8];
} quant_codes;

/* Splits n elements of type t, which is in QUANT_LIST, into codes. n is a multiple of the
 * type's block, at most QUANT_SUPER. Any thread. */
void quant_split(dtype t, const uint8_t *blocks, size_t n, quant_codes *out);

/* 256 elements of a grid type: row numbers and signs. Bit j of sign[i] is the sign of
 * element 8i + j. */
typedef struct quant_rows {
    uint16_t row[QUANT_SUPER / 4];
    uint8_t sign[QUANT_SUPER / 8];
} quant_rows;

/* The rows of a form's grid: 8 numbers of 2 bits or 4 of 4 bits each, element 0 in the
 * lowest bits. */
const uint16_t *quant_grid(quant_form form);

/* q[0..run) = the codes of one row of the form's grid; bit i of `signs` is for q[i]. */
void quant_row_codes(quant_form form, unsigned row, unsigned signs, uint8_t *q);

/* out[0..n) = the values of n codes; n: a multiple of 16, up to QUANT_SUPER. Any
 * thread. */
void quant_values(const quant_rule *rule, const quant_codes *c, size_t n, float *out);

/* out[0..n) = the values of n elements of type t; n is a multiple of the type's block.
 * Types: F32, F16, BF16, 8-bit floats and every quantised type; QUIRE_UNSUPPORTED for
 * integer types. blocks needs no alignment. Any thread. */
quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out);

/* Codes packed into 32-bit words, as in the weights of quantised checkpoints. */

/* A column of little-endian u32, `stride` words apart. The lowest `used` bits of each
 * hold codes of `bits` (1 to 8), lowest first; a code may straddle two words. Borrowed;
 * needs no alignment. */
typedef struct quant_words {
    const uint8_t *words;
    size_t stride;
    uint32_t bits, used;
} quant_words;

/* Word number `index`, at any alignment. */
static inline uint32_t quant_word(const uint8_t *words, size_t index) {
    const uint8_t *p = words + 4 * index;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* out[0..n) = codes i .. i + n. Reads only words that hold them. */
void quant_words_read(const quant_words *w, size_t i, size_t n, uint8_t *out);

#endif

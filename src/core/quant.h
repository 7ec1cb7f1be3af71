/* Quantised weights: the forms that kernels support, the mapping of file types to forms,
 * and their dequantisation, bit-identical to gguf-py's (separate multiply and add, in its
 * order). */
#ifndef CORE_QUANT_H
#define CORE_QUANT_H

#include "base/err.h"
#include "core/dtype.h"
#include <stddef.h>
#include <stdint.h>

#define QUANT_SUPER 256 /* elements of a K block */
#define QUANT_GROUP 32  /* elements of the smallest group with its own half-precision scale */

/* How the scales of groups are stored:
 *   F16        a half; with ZERO also a whole number that is subtracted, with MIN another
 *              half that is added
 *   FOUR       codes of 4 bits for scale and min, times two halves of the K block
 *   SIX        codes of 6 bits plus 32, times a half of the K block; MIN: codes of 6 bits
 *              for scale and min, times two halves
 *   EIGHT      signed codes of 8 bits, times a half of the K block
 *   ODD        codes c of 4 bits that mean 2c + 1, times a half of the K block and a
 *              unit; SPARE: kept where signs leave a bit free
 *   E8M0       a byte e: 2^(e - 128)
 *   E4M3       a byte of 4 bits of exponent and 3 of mantissa, without sign: half its
 *              value */
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

/* The forms: value = scale * number, plus or minus a min where there is one. A code's
 * number is code - zero, that of a code of 8 bits the signed byte, or table[code]; a code
 * of 1 bit is 0 or 2. What is multiplied is number + zero: so many bits without sign, or
 * 8 with it. In a grid, a code stands for a row of 4 or 8 magnitudes; of the forms with
 * the fewest bits, every 8 elements have an even number of minus signs, so 7 are stored.
 *
 * X(name, elements of a group, bits of a code, 1: has a table, 2: of a grid, zero, bits
 * of what is multiplied, how scales are stored, elements that a code stands for) */
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
    int run; /* elements that a code stands for */
} quant_format;

extern const quant_format quant_formats[N_FORMS];

/* Whether a grid's form stores 7 signs for 8 elements. */
static inline bool quant_has_even_signs(const quant_format *f) {
    return f->run == 8 ? f->bits < 10 : f->bits < 9;
}

/* The form to which a grid's rows are unpacked as codes of a table, for processors whose
 * table look-ups are slow. Other forms map to themselves. */
quant_form quant_unpacked(quant_form form);

/* Tables of a form's codes. IQ2 and IQ1 have 8 codes: a grid's number, negated where bit
 * 2 is set; IQ3 the same with bit 3. E2M1: doubled, IQ3_XXS: halved. */
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

/* A matrix's form and its parameters. table: of its codes. unit: of SCALE_ODD, a power of
 * two. shift: one scale (and zero) serves 2^shift groups of QUANT_GROUP, in forms of
 * SCALE_F16 and SCALE_F16_ZERO; 31: the whole row. least: 0 or 1, added to the stored
 * zeros of SCALE_F16_ZERO. stretch: only for the backend's floats with scales, the number
 * of elements that share one; 0: the whole row. */
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

/* The rule of a type of QUANT_LIST; NULL for others. */
const quant_rule *quant_rule_of(dtype t);

/* Up to QUANT_SUPER elements as codes, not values: numbers as the format stores them
 * (before zero is subtracted; int8 as bytes). scale and min: the codes of each group.
 * zero: one per 32 elements (SCALE_F16_ZERO; a signed byte for codes of 8 bits). d and m:
 * one half per 32 elements (SCALE_F16*), repeated if several share it, or one for all
 * (the others). */
typedef struct quant_codes {
    uint8_t q[QUANT_SUPER];
    uint8_t scale[16], min[16], zero[8];
    uint16_t d[8], m[8];
} quant_codes;

/* Splits the n elements at `blocks`, of a type of QUANT_LIST, into codes. n: a multiple
 * of the type's block, at most QUANT_SUPER. Any thread. */
void quant_split(dtype t, const uint8_t *blocks, size_t n, quant_codes *out);

/* 256 elements of a grid type: row numbers, and signs: bit j of sign[i] is the sign of
 * element 8i + j. */
typedef struct quant_rows {
    uint16_t row[QUANT_SUPER / 4];
    uint8_t sign[QUANT_SUPER / 8];
} quant_rows;

/* The rows of a form's grid: 8 numbers of 2 bits or 4 of 4 bits each, element 0 in the
 * lowest bits. */
const uint16_t *quant_grid(quant_form form);

/* q[0..run) = the codes of a row of a form's grid, with signs from bit 0 of `signs`
 * on. */
void quant_row_codes(quant_form form, unsigned row, unsigned signs, uint8_t *q);

/* out[0..n) = the values of n codes, a multiple of 16 and at most QUANT_SUPER. Any
 * thread. */
void quant_values(const quant_rule *rule, const quant_codes *c, size_t n, float *out);

/* out[0..n) = the values of n elements of type t at blocks; n is a multiple of the type's
 * block. Types: F32 F16 BF16, 8-bit floats, every quantised type. QUIRE_UNSUPPORTED for
 * the integer types. blocks needs no alignment. Any thread. */
quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out);

/* Codes of a few bits packed into words, as in the weights and zero points of quantised
 * checkpoints. */

/* A column of little-endian u32, `stride` words apart. The lowest `used` bits of each
 * hold codes of `bits` (1 to 8), which may straddle words, the first in the lowest bits.
 * Borrowed; needs no alignment. */
typedef struct quant_words {
    const uint8_t *words;
    size_t stride;
    uint32_t bits, used;
} quant_words;

/* The word at index, in words. */
static inline uint32_t quant_word(const uint8_t *words, size_t index) {
    const uint8_t *p = words + 4 * index;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* out[0..n) = codes i .. i + n. Reads only the words that hold them. */
void quant_words_read(const quant_words *w, size_t i, size_t n, uint8_t *out);

#endif

/* Packs quantised matrices of checkpoints (core/quant_matrix.h) into the forms of
 * pack_weights.h. Codes, scales and zero points are kept as they are if a packed kind can
 * represent them exactly. */
#ifndef CPU_PACK_MATRIX_H
#define CPU_PACK_MATRIX_H

#include "backend/cpu/pack_weights.h"
#include "core/quant_matrix.h"

/* How a matrix is packed. value = factor * (value by rule), exact except for the rounding
 * of that product. */
typedef struct matrix_plan {
    const quant_matrix *m;
    pack_kind kind;
    quant_rule rule;
    float scale_by; /* stored scales are multiplied by this power of two */
    float factor;
    /* [n_in] input at each place, if groups are not of consecutive inputs (act-order);
     * else NULL. Free it */
    int32_t *order;
} matrix_plan;

/* Chooses how to pack m, n_out rows of n_in inputs. False: no kind is exact, and
 * out->order is NULL. Exact are:
 *   integers of 2, 3, 4 or 8 bits with groups of a multiple of 32 inputs, or whole rows,
 *   whose scales are f16 times one power of two (act-order too if all groups have as many
 *   inputs: they are permuted to be adjacent);
 *   E2M1 in groups of 32 with powers of two, or of 16 with E4M3 scales;
 *   E4M3 and other tables of floats with a scale per row or per group of inputs, whose
 *   size (E4M3: even; tables: a multiple of 8) is at most 1024 or has such a divisor. */
bool pack_matrix_plan(const quant_matrix *m, int32_t n_out, int32_t n_in, matrix_plan *out);
/* Reads the codes of a grouped plan. One thread. */
typedef struct matrix_reader {
    const matrix_plan *plan;
    /* with an order: [PACK_LANES][n_in] codes that pack_matrix_rows fills; else NULL */
    uint8_t *codes;
    int32_t row0; /* first row in codes */
} matrix_reader;

/* With an order, reads n rows, at most PACK_LANES, from row0 on ahead: whole rows are
 * read faster than single codes. */
void pack_matrix_rows(matrix_reader *r, int32_t row0, int32_t n);
/* Callback of pack_block_of that reads codes from a matrix_reader; with an order, only of
 * rows read ahead. */
void pack_matrix_read(const void *reader, int32_t row, int32_t k, int32_t n, quant_codes *out);
/* The source for pack_block_scaled. plan is borrowed. */
scaled_source pack_matrix_source(const matrix_plan *plan);

#endif

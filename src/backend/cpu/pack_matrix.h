/* Quantised matrices of checkpoints (core/quant_matrix.h) in the packed forms of
 * pack_weights.h: their codes, scales and zero points as they are, where a kind has them
 * exactly. */
#ifndef CPU_PACK_MATRIX_H
#define CPU_PACK_MATRIX_H

#include "backend/cpu/pack_weights.h"
#include "core/quant_matrix.h"

/* How a matrix is packed. value = factor * (value by rule), exact but for the rounding of
 * that product. */
typedef struct matrix_plan {
    const quant_matrix *m;
    pack_kind kind;
    quant_rule rule;
    float scale_by; /* a power of two: scales times it are stored */
    float factor;
    /* [n_in]: the input at each place, where groups are not of consecutive inputs; else
     * NULL. Freed by the caller */
    int32_t *order;
} matrix_plan;

/* Finds the kind of m, which has n_out rows of n_in inputs. false: none is exact. Those
 * are integers of 2, 3, 4 or 8 bits in groups of a multiple of 32 inputs, or whole rows,
 * whose scales are halves times one power of two (act-order too: where all groups have as
 * many inputs, these are put side by side); E2M1 in groups of 32 with powers of two, or
 * of 16 with E4M3; E4M3 and other tables of floats with
 * a scale for the row, or for some inputs: an even number from 8 on, or a multiple of 8,
 * that is at most 1024 or has such a part. On false out->order is NULL. */
bool pack_matrix_plan(const quant_matrix *m, int32_t n_out, int32_t n_in, matrix_plan *out);
/* Reads the codes of a plan of a grouped kind. Those of one thread. */
typedef struct matrix_reader {
    const matrix_plan *plan;
    /* where the plan has an order, room for PACK_LANES rows of n_in codes, which
     * pack_matrix_rows fills; else NULL */
    uint8_t *codes;
    int32_t row0; /* the first of them */
} matrix_reader;

/* Reads n rows from row0 on ahead, at most PACK_LANES, where the plan has an order: whole
 * rows are read faster than one code at a time. */
void pack_matrix_rows(matrix_reader *r, int32_t row0, int32_t n);
/* The codes of a matrix_reader, for pack_block_of; where the plan has an order, of rows
 * that were read ahead. */
void pack_matrix_read(const void *reader, int32_t row, int32_t k, int32_t n, quant_codes *out);
/* Those of a scaled kind, for pack_block_scaled. plan is borrowed. */
scaled_source pack_matrix_source(const matrix_plan *plan);

#endif

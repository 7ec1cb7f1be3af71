/* Quantised matrices of checkpoints (core/quant_matrix.h) in the packed forms of pack_weights.h: their codes, scales and zero points as
 * they are, where a kind has them exactly. */
#ifndef CPU_PACK_MATRIX_H
#define CPU_PACK_MATRIX_H

#include "backend/cpu/pack_weights.h"
#include "core/quant_matrix.h"

/* How a matrix is packed. value = factor * (value by rule), exact but for the rounding of that product. */
typedef struct matrix_plan {
    const quant_matrix *m;
    pack_kind kind;
    quant_rule rule;
    float scale_by; /* a power of two: scales times it are stored */
    float factor;
    int32_t *order; /* [n_in]: the input at each place, where groups are not of consecutive inputs; else NULL. Freed by the caller */
} matrix_plan;

/* Finds the kind of m, which has n_out rows of n_in inputs. false: none is exact. Those are integers of 2, 3, 4 or 8 bits in groups of a
 * multiple of 32 inputs, or whole rows, whose scales are halves times one power of two (act-order
 * too: where all groups have as many inputs, these are put side by side); E2M1 in groups of 32 with powers of two, or of 16
 * with E4M3; E4M3 and other tables of floats with a scale for 32, 64, .. 1024 inputs, or for the row. On false out->order is NULL. */
bool pack_matrix_plan(const quant_matrix *m, int32_t n_out, int32_t n_in, matrix_plan *out);
/* The codes of a matrix_plan of a grouped kind, for pack_block_of. */
void pack_matrix_read(const void *plan, int32_t row, int32_t k, int32_t n, quant_codes *out);
/* Those of a scaled kind, for pack_block_scaled. plan is borrowed. */
scaled_source pack_matrix_source(const matrix_plan *plan);

#endif

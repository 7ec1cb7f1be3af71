/* The block in which row_pooling.h gathers a sequence's rows, allocated with the
 * sequence, so that a step allocates nothing. */
#ifndef ENGINE_ROW_POOLING_BLOCK_H
#define ENGINE_ROW_POOLING_BLOCK_H

#include "base/mem.h"
#include "core/params.h"

typedef struct row_pooling {
    pooling_params params;
    int32_t n_gathered; /* rows 0..n_gathered were taken */
    int32_t width;      /* elements of the result */
    /* [desc_pooled_width] mem_new'd; the engine thread's until the end is published,
     * then the reader's */
    float *result;
    float *row;     /* [d_model] the pooled row; it points into this block, as sum does */
    double *sum;    /* [d_model] of a mean: over the rows that were taken */
    int32_t *types; /* [n_prompt] the tokens' types, mem_new'd, or NULL: all are of type 0 */
} row_pooling;

/* NULL does nothing. */
static inline void row_pooling_free(row_pooling *p) {
    if (p != NULL) {
        mem_free(p->result);
        mem_free(p->types);
        mem_free(p);
    }
}

#endif

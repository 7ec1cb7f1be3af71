/* The types of weights whose products are measured, and random weights of them. */
#ifndef LAB_BENCH_KERNEL_TYPES_H
#define LAB_BENCH_KERNEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/tensor.h"

#define KERNEL_TYPES "q4_0,q8_0,q4_k,int8,bf16,f16,f32"
/* Taken too, but not measured unasked. */
#define KERNEL_TYPES_MORE                                                                                    \
    ",iq4_xs,mxfp4,nvfp4,iq3_s,iq3_xxs,iq2_s,iq2_xs,iq2_xxs,iq1_s,tq2_0,q1_0,fp8,nf4,int4"

typedef struct kernel_type {
    const char *name;
    dtype from; /* of the weights before they are packed; of fp8, nf4 and int4 their codes' */
    compute_mode compute;
} kernel_type;

/* The next type of a list of names with commas, which is moved after it; NULL for a name
 * that is not a type. */
const kernel_type *kernel_type_next(const char **list);

/* INVALID names --types, whose list has another name. */
quire_err kernel_types_check(const char *list, quire_error *err);

/* n elements of type t: any numbers, but plain ones where a block has its scales. NULL
 * when out of memory; freed with mem_free. */
void *kernel_type_weights(dtype t, size_t n);

/* The weights as a matrix. m: what they are where they are codes with scales for 128 x
 * 128 (fp8), or for 64 of a row (nf4); it must stay as long as the view is used. */
tensor_view kernel_type_matrix(dtype t, const void *weights, int32_t n_out, int32_t n_in, quant_matrix *m);

/* Even in -1..1. */
float kernel_type_float(uint64_t *seed);

#endif

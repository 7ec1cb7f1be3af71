/* Quantising while loading (--quantization): which type each matrix of a model of floats
 * gets, and the making of its blocks, one tensor at a time. The backend then reads them
 * as those of a GGUF file of that type; FP8 as a checkpoint's with a scale for each
 * channel.
 *
 * Norms, biases, routers, positions and other tables that llama.cpp's llama-quantize
 * leaves alone stay as they are. */
#ifndef MODEL_QUANTISE_LOAD_H
#define MODEL_QUANTISE_LOAD_H

#include "model/find_weight.h"

/* The use of a matrix in the model. */
typedef enum matrix_use {
    MATRIX_PRODUCT, /* of a linear layer */
    MATRIX_HEAD,    /* of the head: a type of more bits */
    MATRIX_TABLE,   /* token embeddings, whose rows are read one by one: the same */
    MATRIX_KEPT     /* stays as it is */
} matrix_use;

/* Sets d->quantise_to by --quantization (model_file_quantise), once d says of what the
 * weights are. names, root: as left_out.h has them. QUIRE_INVALID: the file is of another
 * kind than the flag says, or quantised already. */
quire_err quantise_describe(const model_file *f, const arch_names *names, const char *root, model_desc *d,
                            quire_error *err);

/* The type in which a matrix of type `from`, with rows of n elements, is loaded under
 * model_desc.quantise_to; `from` itself: it stays as it is. Where rows are not whole
 * blocks of the type, one of smaller blocks takes its place, as in llama.cpp. */
dtype quantise_type(dtype to, matrix_use use, dtype from, int64_t n);

/* What a file's tensor is by its name. names, root: as left_out.h has them. */
matrix_use quantise_use_of(const model_file *f, const arch_names *names, const char *root,
                           const tensor_view *t);
/* Bytes that t's elements take in a type; I8 and F8_E4M3 include a scale for each row. */
int64_t quantise_bytes(const tensor_view *t, dtype type);

/* A matrix that was quantised while it was loaded. */
typedef struct quantised {
    dtype type; /* its type now; unchanged if it is not quantised */
    /* memory of its blocks, or codes and scales, freed with mem_free; NULL: not
     * quantised */
    void *memory;
    quant_matrix m;        /* of F8_E4M3 */
    row_rounding rounding; /* of the rows that it is multiplied with, under fp8 compute */
} quantised;

/* Quantises w, a matrix [n_out, n_in] of floats row by row, to the type that
 * l->quantise_to gives such a use, on the backend's threads. *w is then the view of the
 * blocks, or of out->m, valid as long as *out. Where the matrix stays as it is w is
 * unchanged. QUIRE_BAD_FILE names the tensor and a row with an element that is not
 * finite, or too large for scales; nothing is to be freed then. */
quire_err quantise_matrix(loader *l, matrix_use use, tensor_view *w, quantised *out);

#endif

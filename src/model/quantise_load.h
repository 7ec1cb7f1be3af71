/* Quantises while loading (--quantization): chooses the type of each matrix of a float
 * model and makes its blocks, one tensor at a time. The backend reads them like a GGUF
 * file's of that type; FP8 like a checkpoint's with a scale per channel.
 *
 * Norms, biases, routers, positions and other tables that llama.cpp's llama-quantize
 * leaves alone are not quantised. */
#ifndef MODEL_QUANTISE_LOAD_H
#define MODEL_QUANTISE_LOAD_H

#include "model/find_weight.h"

/* How a matrix is used in the model. */
typedef enum matrix_use {
    MATRIX_PRODUCT, /* in a linear layer */
    MATRIX_HEAD,    /* as the head, which gets a type of more bits */
    MATRIX_TABLE,   /* as token embeddings, read row by row: the head's type */
    MATRIX_KEPT     /* is not quantised */
} matrix_use;

/* Sets d->quantise_to from --quantization (model_file_quantise) once d has the weights'
 * type. names, root: as in left_out.h. QUIRE_INVALID: the file is of another kind than
 * the flag says, or already quantised. */
quire_err quantise_describe(const model_file *f, const arch_names *names, const char *root, model_desc *d,
                            quire_error *err);

/* The type to which a matrix of type `from`, with rows of n elements, is quantised under
 * model_desc.quantise_to; `from`: it is not. If rows are not whole blocks of a type, a
 * type of smaller blocks replaces it, as in llama.cpp. */
dtype quantise_type(dtype to, matrix_use use, dtype from, int64_t n);

/* The use of a file's tensor, by its name. names, root: as in left_out.h. */
matrix_use quantise_use_of(const model_file *f, const arch_names *names, const char *root,
                           const tensor_view *t);
/* Bytes of t's elements in a type; I8 and F8_E4M3 include a scale per row. */
int64_t quantise_bytes(const tensor_view *t, dtype type);

/* A matrix that was quantised while loading. */
typedef struct quantised {
    dtype type; /* its new type; unchanged if it is not quantised */
    /* memory of its blocks, or codes and scales; free it with mem_free; NULL: not
     * quantised here: I8 is left to the backend */
    void *memory;
    quant_matrix m;        /* F8_E4M3: the matrix */
    row_rounding rounding; /* how the rows that it multiplies are rounded, under fp8 compute */
} quantised;

/* Quantises w, a row-major float matrix [n_out, n_in], to the type that l->quantise_to
 * gives this use, on the backend's threads. *w is then a view of the blocks, or of
 * out->m, valid as long as *out; unchanged if the matrix is not quantised.
 * QUIRE_BAD_FILE: an element is not finite or too large for the scales; err names the
 * tensor and row, and nothing needs to be freed. */
quire_err quantise_matrix(loader *l, matrix_use use, tensor_view *w, quantised *out);

#endif

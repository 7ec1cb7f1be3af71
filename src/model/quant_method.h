/* Methods of quantisation: how Hugging Face checkpoints keep the weights of a linear
 * layer in several tensors. The smallest are in quant_methods.c, each other in a file of
 * its own.
 *
 * A method names those tensors, checks their types and shapes, and describes them as one
 * quant_matrix. The loader takes a layer for quantised where the file has the tensor that
 * holds the codes: what a configuration leaves out, and layers of another method beside
 * them, need no list. Models know nothing of it. */
#ifndef MODEL_QUANT_METHOD_H
#define MODEL_QUANT_METHOD_H

#include "model/find_weight.h"

#define QUANT_CONFIG        "quantization_config"
#define QUANT_LINEAR_BLOCKS 6
#define QUANT_GROUPS        16 /* config groups of compressed-tensors that are looked at */
#define QUANT_KEY_BYTES     160

/* The weights of a linear layer while they are loaded. */
typedef struct quant_linear {
    loader *l;
    weight_name name;
    int32_t layer;
    const weight_part *part;
    int64_t n_out, n_in;      /* of the whole matrix, or of one slab of it */
    const tensor_view *whole; /* the tensor of the codes */
    quant_matrix m;
    nested_scales nested;              /* m.nested, if it has one */
    row_rounding rounding;             /* of the rows that the checkpoint's layer reads, under fp8 compute */
    void *memory[QUANT_LINEAR_BLOCKS]; /* what m needs besides the file */
    int n_memory;
} quant_linear;

/* One form of a layer's tensors. */
typedef struct quant_method {
    const char *suffix; /* of the tensor that holds the codes, after the layer's name */
    dtype type;         /* of it */
    /* the suffix of a tensor that is there too; NULL: none tells this form from others */
    const char *beside;
    bool has_groups;      /* `beside` has several columns */
    const char *only_for; /* the configuration's quant_method; NULL: any */
    quire_err (*read)(quant_linear *q);
} quant_method;

/* Checks the configuration: QUIRE_UNSUPPORTED, with err on the first setting of another
 * form than these. Files without one, and GGUF files, pass. */
quire_err quant_check(const model_file *f, quire_error *err);
/* Whether the file is a Hugging Face checkpoint that says that it is quantised. */
bool quant_is(const model_file *f);
/* Whether weights of a file whose codes are mostly of this type are small integers times
 * scales, which int8 compute multiplies as they are: those of 4 bits but NF4, and
 * integers. */
bool quant_is_integers(const model_file *f, dtype codes);
/* Whether the checkpoint's configuration says that keys and values are kept as FP8:
 * kv_cache_scheme, or hf_quant_config.json's kv_cache_quant_algo. */
bool quant_has_fp8_kv(const model_file *f);
/* The number of weights in a tensor: of codes the matrix's, of scales and the like
 * none, of others the elements. */
int64_t quant_n_weights(const model_file *f, const tensor_view *t);
/* Whether the file has the layer's weight in a quantised form. Marks nothing. */
bool quant_linear_is(const loader *l, weight_name name, int32_t layer);
/* Describes the weight `name` as a quantised matrix. *found false: the file has it in no
 * quantised form. part, n_out, n_in: as loader_linear has them. After a success with
 * *found, quant_linear_deinit frees what it needs; the file's tensors are marked used. */
quire_err quant_linear_find(loader *l, weight_name name, int32_t layer, const weight_part *part,
                            int64_t n_out, int64_t n_in, quant_linear *out, bool *found);
void quant_linear_deinit(quant_linear *q);
/* Reads the row scales of int8 weights w that are multiplied as they are: weight_scale, one
 * for each row or one for all, or bitsandbytes' SCB, which is 127 times the scale. *out: a
 * float for each of n_out rows, freed with mem_free; NULL: w has no scales. name, layer,
 * part: of w, as for loader_linear. */
quire_err quant_row_scales(loader *l, const tensor_view *w, weight_name name, int32_t layer,
                           const weight_part *part, int64_t n_out, float **out);

/* ---- for the methods; each error names the tensor and what it must be ---- */

quire_err quant_error(const quant_linear *q, const char *suffix, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The tensor of the layer with this suffix, or of the slab that is meant: the first
 * dimension is then gone. NULL in *out's data: none. */
quire_err quant_find(quant_linear *q, const char *suffix, tensor_view *out);
/* The same; it must be there, of the type, [rows, columns]. columns 0: a vector of
 * rows. */
quire_err quant_need(quant_linear *q, const char *suffix, dtype type, int64_t rows, int64_t columns,
                     tensor_view *out);
/* Reads a tensor of floats, [rows, columns], into m.scales; down: it is stored [columns,
 * rows]. */
quire_err quant_scales(quant_linear *q, const char *suffix, const tensor_view *t, int64_t rows,
                       int64_t columns, bool down);
/* One float: the value of a tensor with one element; QUIRE_OK without a change where the
 * file has none. */
quire_err quant_factor(quant_linear *q, const char *suffix, float *out);
/* The shape of a matrix that a tensor of two integers holds. False: t is none. */
bool quant_written_shape(const tensor_view *t, int64_t dims[2]);
/* Sets m.group for n_groups groups of n_in: the configuration's group size if that
 * gives so many, else equal groups. */
quire_err quant_groups(quant_linear *q, const char *suffix, int64_t n_groups);
/* Sets m.group_of from a tensor of the layer, [n_in] I32, unless it is absent or says
 * i / group. */
quire_err quant_group_index(quant_linear *q, const char *suffix);
/* Memory of the layer, zeroed; NULL: the error is set. */
void *quant_memory(quant_linear *q, size_t n, size_t size);
/* The path of a key of compressed-tensors' config group i, in memory of path. */
const char *quant_group_key(int i, const char *key, char path[QUANT_KEY_BYTES]);
/* Whether some config group of compressed-tensors has weights of so many bits, or the
 * configuration says nothing of them. */
bool quant_says_bits(const quant_linear *q, int32_t bits);
/* Whether the configuration rounds the rows that layers of such weights read to floats:
 * of compressed-tensors the first config group whose weights are of this type, "float" or
 * "int", and so many bits; of other methods always. */
bool quant_rounds_rows(const quant_linear *q, const char *type, int32_t bits);

/* The values of the 4-bit float E2M1, by code. */
extern const float quant_e2m1[16];

extern const quant_method quant_gptq, quant_awq, quant_int_packed, quant_int_groups, quant_int_zeros,
    quant_nvfp4_packed, quant_mxfp4_packed, quant_mxfp4_quark, quant_fp8, quant_nvfp4_modelopt,
    quant_bitsandbytes, quant_mxfp4_stacked, quant_fp8_stacked;

#endif

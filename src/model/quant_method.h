/* Quantisation methods: how Hugging Face checkpoints store the weights of a linear layer
 * in several tensors. The smallest are in quant_methods.c, the others in a file each.
 *
 * A method names those tensors, checks their types and shapes, and describes them as a
 * quant_matrix. A layer is quantised if the file has its tensor of codes. So layers that
 * a configuration excludes, or that use another method, need no list. Models know nothing
 * of methods. */
#ifndef MODEL_QUANT_METHOD_H
#define MODEL_QUANT_METHOD_H

#include "model/find_weight.h"

struct quant_words;

#define QUANT_CONFIG        "quantization_config"
#define QUANT_LINEAR_BLOCKS 6
#define QUANT_GROUPS        16 /* most config groups of compressed-tensors that are read */
#define QUANT_KEY_BYTES     160

/* The weights of a linear layer while it is loaded. */
typedef struct quant_linear {
    loader *l;
    weight_name name;
    int32_t layer;
    const weight_part *part;
    int64_t n_out, n_in;      /* size of the whole matrix, or of one slab */
    const tensor_view *whole; /* tensor of the codes */
    quant_matrix m;
    nested_scales nested;  /* m.nested points to it, if used */
    row_rounding rounding; /* how the checkpoint's layer rounds its input rows, under fp8 compute */
    void *memory[QUANT_LINEAR_BLOCKS]; /* memory that m needs besides the file */
    int n_memory;
} quant_linear;

/* One form of a layer's tensors. */
typedef struct quant_method {
    const char *suffix; /* suffix of the tensor of codes, after the layer's name */
    dtype type;         /* the type of its elements */
    /* suffix of another tensor that identifies this form; NULL: not needed */
    const char *beside;
    bool has_groups;      /* `beside` has several columns */
    const char *only_for; /* only if the configuration's quant_method is this; NULL: any */
    quire_err (*read)(quant_linear *q);
} quant_method;

/* Checks the configuration. QUIRE_UNSUPPORTED: err names the first setting that no method
 * handles. Files without a configuration, and GGUF files, pass. */
quire_err quant_check(const model_file *f, quire_error *err);
/* Whether the file is a Hugging Face checkpoint that says it is quantised. */
bool quant_is(const model_file *f);
/* Whether a file's weights, mostly codes of this type, are small integers times scales,
 * which int8 compute multiplies directly: 4-bit types except NF4, and integers. */
bool quant_is_integers(const model_file *f, dtype codes);
/* Whether the checkpoint's configuration stores keys and values as FP8: kv_cache_scheme,
 * or hf_quant_config.json's kv_cache_quant_algo. */
bool quant_has_fp8_kv(const model_file *f);
/* Number of weights in a tensor: for codes, those of the matrix; for scales and the like,
 * 0; otherwise its elements. */
int64_t quant_n_weights(const model_file *f, const tensor_view *t);
/* Whether the file has the layer's weight in a quantised form. Marks nothing. */
bool quant_linear_is(const loader *l, weight_name name, int32_t layer);
/* Describes the weight `name` as a quantised matrix and marks its tensors used. *found
 * false: it is not quantised. part, n_out, n_in: as for loader_linear. If *found, free
 * *out with quant_linear_deinit. */
quire_err quant_linear_find(loader *l, weight_name name, int32_t layer, const weight_part *part,
                            int64_t n_out, int64_t n_in, quant_linear *out, bool *found);
void quant_linear_deinit(quant_linear *q);
/* Reads the row scales of int8 weights w that are multiplied directly: weight_scale, one
 * per row or one for all, or bitsandbytes' SCB, which is 127 times the scale. *out: n_out
 * floats; free it with mem_free; NULL: w has no scales. name, layer, part: of w, as for
 * loader_linear. */
quire_err quant_row_scales(loader *l, const tensor_view *w, weight_name name, int32_t layer,
                           const weight_part *part, int64_t n_out, float **out);

/* ---- for the methods; errors name the tensor and what it must be ---- */

quire_err quant_error(const quant_linear *q, const char *suffix, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Finds the layer's tensor with this suffix; with slabs, the layer's slab without the
 * first dimension. out->data NULL: absent. */
quire_err quant_find(quant_linear *q, const char *suffix, tensor_view *out);
/* The same for a required tensor of this type, [rows, columns]. columns 0: a vector of
 * rows. */
quire_err quant_need(quant_linear *q, const char *suffix, dtype type, int64_t rows, int64_t columns,
                     tensor_view *out);
/* Reads a float tensor [rows, columns] into m.scales; down: it is stored as [columns,
 * rows]. */
quire_err quant_scales(quant_linear *q, const char *suffix, const tensor_view *t, int64_t rows,
                       int64_t columns, bool down);
/* Reads a tensor of one float; *out is unchanged if it is absent. */
quire_err quant_factor(quant_linear *q, const char *suffix, float *out);
/* Reads a matrix shape stored as a tensor of two integers. False: t is not one. */
bool quant_written_shape(const tensor_view *t, int64_t dims[2]);
/* Sets where m's codes are and what they mean. */
void quant_set_codes(quant_linear *q, code_place place, code_kind kind, int32_t bits, const void *codes);
/* Reads zero points packed along the outputs into m.zeros, each plus `added`. first: the
 * words of the first group; the next group's begin `step` bytes later. */
quire_err quant_zeros(quant_linear *q, const struct quant_words *first, size_t step, int64_t n_groups,
                      int32_t added);
/* Sets m.group for n_groups groups of n_in: the configuration's group size if it gives
 * that many, else equal groups. */
quire_err quant_groups(quant_linear *q, const char *suffix, int64_t n_groups);
/* Sets m.group_of from a tensor of the layer, [n_in] I32, unless it is absent or equals i
 * / group. */
quire_err quant_group_index(quant_linear *q, const char *suffix);
/* Zeroed memory of the layer; NULL: err is set. */
void *quant_memory(quant_linear *q, size_t n, size_t size);
/* The path of a key in config group i of compressed-tensors; written to `path`. */
const char *quant_group_key(int i, const char *key, char path[QUANT_KEY_BYTES]);
/* Whether a config group of compressed-tensors has weights of this many bits, or the
 * configuration does not say. */
bool quant_says_bits(const quant_linear *q, int32_t bits);
/* Whether the configuration rounds the input rows of layers with such weights to floats.
 * compressed-tensors: by the first config group with weights of this type ("float" or
 * "int") and bits; other methods: always. */
bool quant_rounds_rows(const quant_linear *q, const char *type, int32_t bits);

/* The values of the 4-bit float E2M1, by code. */
extern const float quant_e2m1[16];

extern const quant_method quant_gptq, quant_awq, quant_int_packed, quant_int_groups, quant_int_zeros,
    quant_nvfp4_packed, quant_mxfp4_packed, quant_mxfp4_quark, quant_fp8, quant_nvfp4_modelopt,
    quant_bitsandbytes, quant_mxfp4_stacked, quant_fp8_stacked, quant_nvfp4_stacked;

#endif

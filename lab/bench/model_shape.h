/* The published shape of a model: a table of sizes, and of the metadata keys and tensors
 * that a GGUF file of its architecture has, each by the sizes that it is made of.
 * synthetic_open makes such a file with random weights; the ordinary loader reads it.
 *
 * Constant data; any thread. */
#ifndef LAB_BENCH_MODEL_SHAPE_H
#define LAB_BENCH_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"
#include "lab/bench/roofline.h"
#include "quire.h"

/* What a Llama-shaped model costs, by arithmetic alone: weights, operations and bytes of
 * a token. Figures of a bench are held against these, so they are the published ones: a
 * type's own bits, whatever a kernel makes of them.
 *
 * "Operations" counts a multiplication and an addition as two. Those of attention are not
 * among them: they depend on the context. */

typedef struct llama_shape {
    const char *name;
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, max_positions;
} llama_shape;

/* A type of weights in a bench: what the file has, how products are computed, and which
 * type's bits a token reads. */
typedef struct speed_type {
    const char *name; /* "q4_0" */
    dtype file;
    compute_mode compute;
    dtype published;
} speed_type;

/* The engine's option for how its products are computed. */
quire_compute speed_type_compute(const speed_type *t);

enum { N_SPEED_TYPES = 7 };
/* q4_0 q8_0 q4_k mxfp4 int8 bf16 f32; int8 is per channel, made of bf16 while loading */
extern const speed_type speed_types[N_SPEED_TYPES];
/* By name[0..n); NULL: there is none. */
const speed_type *speed_type_find(const char *name, size_t n);

/* Weights that products of the layers read a token, and those of the head. The embedding
 * is no product. */
int64_t shape_layer_weights(const llama_shape *s);
int64_t shape_head_weights(const llama_shape *s);
/* Operations of a prompt of n tokens, whose last row alone goes through the head; and of
 * a generated token. */
double shape_prompt_operations(const llama_shape *s, int32_t n);
double shape_token_operations(const llama_shape *s);
/* Bytes of weights that a step reads, in published bits. */
double shape_weight_bytes(const llama_shape *s, const speed_type *t);
/* Bytes of keys and values that a token leaves. */
double shape_kv_bytes(const llama_shape *s, dtype kv);

/* Operations a second that the machine's units give products of weights of a type under a
 * compute mode, and which rate of the roofline that is. */
double products_peak(const roofline *r, compute_mode compute, dtype weights, const char **by);

/* The most tokens a second, and what bounds them: "bytes", or as products_peak says. */
typedef struct speed_limit {
    double value;
    const char *by;
} speed_limit;

/* A prompt of n tokens: its operations, and the weights once. */
speed_limit shape_prefill_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n);
/* n_seqs sequences that decode with `context` tokens each after them, in pages of type
 * kv. */
speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n_seqs,
                               double context, dtype kv);

enum { SHAPE_PACE_POINTS = 10 };

/* How long a byte of weights takes in a pass (lab/commands/bench_shapes.c): microseconds
 * a byte at operations a byte, ascending. */
typedef struct shape_pace {
    int32_t n;
    double intensity[SHAPE_PACE_POINTS], us_per_byte[SHAPE_PACE_POINTS];
} shape_pace;

/* g(intensity): on the line between two points; below the first as there, above the last
 * as if operations alone counted. */
double shape_pace_at(const shape_pace *p, double intensity);

/* What the sizes of a shape are. SIZE_NONE ends a tensor's dimensions. */
typedef enum shape_size {
    SIZE_NONE,
    SIZE_LAYERS,
    SIZE_MODEL, /* of the residual */
    SIZE_HEADS,
    SIZE_KV_HEADS,
    SIZE_HEAD, /* elements of a head */
    SIZE_FF,   /* of the feed-forward part, or of an expert */
    SIZE_VOCABULARY,
    SIZE_POSITIONS,
    SIZE_TRAINED, /* positions that YaRN stretches */
    SIZE_WINDOW,
    SIZE_EXPERTS,
    SIZE_USED,  /* experts a row */
    SIZE_TYPES, /* rows of the table of token types */
    N_GIVEN_SIZES,
    SIZE_QUERIES = N_GIVEN_SIZES, /* heads times their width */
    SIZE_KEYS                     /* KV heads times their width */
} shape_size;

/* A metadata key without its architecture's prefix. Its value is text where there is one,
 * else a size, else a real number. */
typedef struct shape_key {
    const char *name; /* NULL: the list ends */
    shape_size size;
    float real;
    const char *text;
} shape_key;

/* A tensor. A name with %d stands for one in each layer. Dimensions as a matrix [n_out,
 * n_in], or a stack [n, n_out, n_in], or a vector. */
typedef struct shape_tensor {
    const char *name; /* NULL: the list ends */
    shape_size dims[3];
    bool f32; /* never in the weights' own type */
} shape_tensor;

enum { FORM_LISTS = 5 };

typedef struct shape_form {
    const char *architecture;
    const shape_key *keys[FORM_LISTS];       /* lists, up to a NULL */
    const shape_tensor *tensors[FORM_LISTS]; /* likewise */
    bool no_tokens;                          /* an encoder: it gives rows and no logits */
} shape_form;

typedef struct model_shape {
    const char *name;
    const char *what; /* for people: where the shape is from, and what was cut off */
    const shape_form *form;
    int32_t sizes[N_GIVEN_SIZES];
} model_shape;

extern const model_shape model_shapes[];
extern const int32_t n_model_shapes;
/* The names, for people: "1.1b,qwen3-0.6b,..". */
#define MODEL_SHAPES "1.1b,qwen3-0.6b,gemma-3-1b,mixtral,gpt-oss,bert-base"

/* Llama's shape, which all others are held against: the first of them. */
#define model_shape_llama (&model_shapes[0])
/* The built-in model's shape with 131,072 positions in place of 2,048; not among the
 * published ones. */
extern const model_shape model_shape_builtin;

/* By name[0..n); NULL: there is none. */
const model_shape *model_shape_find(const char *name, size_t n);
/* The same form at sizes of a few hundred thousand weights. */
model_shape model_shape_small(const model_shape *s);
/* The numbers of a shape whose layers are like Llama's, for arithmetic. */
llama_shape model_shape_costs(const model_shape *s);

/* A model of random weights, made in memory: speed does not depend on what the weights
 * say, so a bench needs no file.
 *
 * It is a GGUF file without a vocabulary (prompts are ids) in an anonymous file of this
 * process, which any opener of models finds under its path. Blocks are random bits under
 * sane scales, so that activations stay finite: weights have a deviation of about
 * 1/sqrt(inputs). */

typedef struct synthetic {
    char path[64]; /* in this process, while it is open */
    int fd;
    int64_t n_bytes;
} synthetic;

/* type: of the matrices: Q4_0, Q8_0, Q4_K, MXFP4, BF16 or F32. UNSUPPORTED when the
 * shape's rows are no whole blocks of it.
 * NO_MEMORY when the machine could not hold it beside the copy that an engine makes of
 * it: err says how much that takes. Equal shapes and types give equal bytes, and a shape
 * has the same numbers in Q4_0 and MXFP4, so that its experts get the same rows. */
quire_err synthetic_open(const model_shape *shape, dtype type, synthetic *out, quire_error *err);
/* The same of a published shape and a type of weights by name, as --shape and --type give
 * them; e's model and compute become those. INVALID: there is none of that name. */
quire_err synthetic_open_named(const char *shape, const char *type, quire_options *e, synthetic *out,
                               quire_error *err);
/* If e's model is "builtin", replaces it by its shape with 131,072 positions; else opens
 * nothing. */
quire_err synthetic_open_builtin(quire_options *e, synthetic *out, quire_error *err);
/* Frees its memory once no model has it open. */
void synthetic_close(synthetic *s);

#endif

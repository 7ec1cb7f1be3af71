/* Published shapes of models: a table of sizes, and of the metadata keys and tensors that
 * a GGUF file of the architecture has, expressed in those sizes. synthetic_open makes
 * such a file with random weights, which the ordinary loader reads.
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

/* What a Llama-shaped model costs, by arithmetic alone, in a type's published bits.
 * "Operations" counts a multiplication and an addition as two, without attention's, which
 * depend on the context. */

typedef struct llama_shape {
    const char *name;
    int32_t n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff, n_vocab, max_positions;
} llama_shape;

/* A type of weights in a bench: the type in the file, how products are computed, and the
 * type whose bits a token reads. */
typedef struct speed_type {
    const char *name; /* "q4_0" */
    dtype file;
    compute_mode compute;
    dtype published;
} speed_type;

/* The engine's option for how its products are computed. */
quire_compute speed_type_compute(const speed_type *t);

enum { N_SPEED_TYPES = 7 };
/* q4_0 q8_0 q4_k mxfp4 int8 bf16 f32; int8 is per channel, made from bf16 at load */
extern const speed_type speed_types[N_SPEED_TYPES];
/* The type name[0..n); NULL: none. */
const speed_type *speed_type_find(const char *name, size_t n);

/* Number of weights that a token's products read, in the layers and in the head. The
 * embedding is not a product. */
int64_t shape_layer_weights(const llama_shape *s);
int64_t shape_head_weights(const llama_shape *s);
/* Operations of a prompt of n tokens, of which only the last row goes through the head;
 * and of a generated token. */
double shape_prompt_operations(const llama_shape *s, int32_t n);
double shape_token_operations(const llama_shape *s);
/* Bytes of weights that a step reads, in published bits. */
double shape_weight_bytes(const llama_shape *s, const speed_type *t);
/* Bytes of keys and values per token. */
double shape_kv_bytes(const llama_shape *s, dtype kv);

/* Operations per second that the machine can reach in products of weights of a type under
 * a compute mode. *by: which rate of the roofline that is. */
double products_peak(const roofline *r, compute_mode compute, dtype weights, const char **by);

/* The highest rate in tokens per second, and what limits it: "bytes", or as for
 * products_peak. */
typedef struct speed_limit {
    double value;
    const char *by;
} speed_limit;

/* The limit of a prompt of n tokens: its operations, and the weights read once. */
speed_limit shape_prefill_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n);
/* The limit of n_seqs decoding sequences of `context` tokens, in pages of type kv. */
speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n_seqs,
                               double context, dtype kv);

enum { SHAPE_PACE_POINTS = 10 };

/* Time per byte of weights in a pass (lab/commands/bench_shapes.c): microseconds per byte
 * at ascending operations per byte. */
typedef struct shape_pace {
    int32_t n;
    double intensity[SHAPE_PACE_POINTS], us_per_byte[SHAPE_PACE_POINTS];
} shape_pace;

/* Interpolates linearly between points. Below the first, its value; above the last,
 * proportional to operations. */
double shape_pace_at(const shape_pace *p, double intensity);

/* The sizes of a shape. SIZE_NONE ends a tensor's dimensions. */
typedef enum shape_size {
    SIZE_NONE,
    SIZE_LAYERS,
    SIZE_MODEL, /* width of the residual */
    SIZE_HEADS,
    SIZE_KV_HEADS,
    SIZE_HEAD, /* elements of a head */
    SIZE_FF,   /* width of the feed-forward part, or of an expert */
    SIZE_VOCABULARY,
    SIZE_POSITIONS,
    SIZE_TRAINED, /* positions before scaling by YaRN */
    SIZE_WINDOW,
    SIZE_EXPERTS,
    SIZE_USED,  /* experts per row */
    SIZE_TYPES, /* rows of the table of token types */
    N_GIVEN_SIZES,
    SIZE_QUERIES = N_GIVEN_SIZES, /* heads times their width */
    SIZE_KEYS                     /* KV heads times their width */
} shape_size;

/* A metadata key without its architecture's prefix. Its value is text if not NULL, else a
 * size, else a real number. */
typedef struct shape_key {
    const char *name; /* NULL ends the list */
    shape_size size;
    float real;
    const char *text;
} shape_key;

/* A tensor. %d in its name: one per layer. Its dimensions are a matrix [n_out, n_in], a
 * stack [n, n_out, n_in] or a vector. */
typedef struct shape_tensor {
    const char *name; /* NULL ends the list */
    shape_size dims[3];
    bool f32; /* always F32, not the type of weights */
} shape_tensor;

enum { FORM_LISTS = 5 };

typedef struct shape_form {
    const char *architecture;
    const shape_key *keys[FORM_LISTS];       /* lists, up to a NULL */
    const shape_tensor *tensors[FORM_LISTS]; /* lists, up to a NULL */
    bool no_tokens;                          /* an encoder: it gives rows and no logits */
} shape_form;

typedef struct model_shape {
    const char *name;
    const char *what; /* for people: where the shape is from, and what was left out */
    const shape_form *form;
    int32_t sizes[N_GIVEN_SIZES];
} model_shape;

enum { N_MODEL_SHAPES = 6 };
extern const model_shape model_shapes[N_MODEL_SHAPES];
/* The names, for people: "1.1b,qwen3-0.6b,..". */
#define MODEL_SHAPES "1.1b,qwen3-0.6b,gemma-3-1b,mixtral,gpt-oss,bert-base"

/* Llama's shape, with which all others are compared: the first one. */
#define model_shape_llama (&model_shapes[0])
/* The built-in model's shape with 131,072 positions instead of 2,048; not in the list of
 * published ones. */
extern const model_shape model_shape_builtin;

/* The shape name[0..n); NULL: none. */
const model_shape *model_shape_find(const char *name, size_t n);
/* The same form with a few hundred thousand weights. */
model_shape model_shape_small(const model_shape *s);
/* The sizes of a shape whose layers are like Llama's, for arithmetic. */
llama_shape model_shape_costs(const model_shape *s);

/* A model with random weights: a GGUF file without a vocabulary (prompts are ids) in
 * memory. Blocks are random bits with plausible scales, so that activations stay finite:
 * weights have a standard deviation of about 1/sqrt(inputs). */
typedef struct synthetic {
    char path[64]; /* valid in this process, while it is open */
    int fd;
    int64_t n_bytes;
} synthetic;

/* type: of the matrices: Q4_0, Q8_0, Q4_K, MXFP4, BF16 or F32. UNSUPPORTED: the shape's
 * rows are not whole blocks of it. NO_MEMORY: the machine could not hold it together with
 * the copy that an engine makes; err says how much that takes. Equal shapes and types
 * give equal bytes, and a shape has the same numbers in Q4_0 and MXFP4, so that its
 * experts get the same rows. */
quire_err synthetic_open(const model_shape *shape, dtype type, synthetic *out, quire_error *err);
/* The same for names of a published shape and a type, as given to --shape and --type;
 * sets e's model and compute. INVALID: unknown name. */
quire_err synthetic_open_named(const char *shape, const char *type, quire_options *e, synthetic *out,
                               quire_error *err);
/* If e's model is "builtin", replaces it by its shape with 131,072 positions; otherwise
 * opens nothing. */
quire_err synthetic_open_builtin(quire_options *e, synthetic *out, quire_error *err);
/* Frees its memory; no model may have it open. */
void synthetic_close(synthetic *s);

#endif

/* What a Llama-shaped model costs, by arithmetic alone: weights, operations and bytes of
 * a token. Figures of a bench are held against these, so they are the published ones: a
 * type's own bits, whatever a kernel makes of them.
 *
 * "Operations" counts a multiplication and an addition as two. Those of attention are not
 * among them: they depend on the context. */
#ifndef LAB_BENCH_SHAPE_H
#define LAB_BENCH_SHAPE_H

#include "core/dtype.h"
#include "lab/bench/roofline.h"
#include "quire.h"

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

enum { N_SPEED_TYPES = 6 };
/* q4_0 q8_0 q4_k int8 bf16 f32; int8 is per channel, made of bf16 while loading */
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
/* batch sequences that decode with `context` tokens each behind them, in pages of type
 * kv. */
speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t batch,
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

#endif

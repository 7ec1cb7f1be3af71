/* What the decoders share: weights by role, buffers, and a forward pass over blocks. An
 * architecture's file describes what is its own.
 *
 * x: [M, d_model], the residual; q: [M, H E]; k, v: [M, G E]; a: [M, H E], attention's
 * result; h: [M, F]. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/arch.h"

/* One mixture of experts. */
typedef struct moe_block {
    linear *router;
    experts *experts;
    routing how;
    float *correction;                                             /* [n_experts], owned */
    linear *shared_gate, *shared_up, *shared_down, *shared_router; /* NULL: there is none */
} moe_block;

typedef struct decoder_layer {
    norm *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm; /* NULL: there is none */
    norm *q_norm, *k_norm, *v_norm;
    /* k and v NULL: another layer writes the cache; v NULL: values are the keys */
    linear *q, *k, *v, *o;
    linear *gate, *up, *down;   /* gate NULL: ungated; up NULL: no dense part */
    moe_block moe;              /* experts NULL: none */
    float *sinks;               /* [H], owned, or NULL */
    float *k_scales, *v_scales; /* [G] of keys and values kept as FP8, owned; NULL: the checkpoint has none */
    buffer q_rows, k_rows, v_rows, a_rows, h_rows;
    bool writes_cache; /* else an earlier layer has written its cache */
} decoder_layer;

/* Buffers by what they hold and how wide they are: layers of one width share one. */
typedef enum buffer_role {
    BUFFER_X,
    BUFFER_Y,
    BUFFER_Z,
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_A,
    BUFFER_H,
    BUFFER_SHARED,
    BUFFER_ROUTER,
    BUFFER_GATE,
    BUFFER_INPUTS,
    BUFFER_PROJECTED,
    BUFFER_EMBEDDING
} buffer_role;

#define DECODER_MAX_BUFFERS 48

typedef struct decoder {
    embedding *tokens, *positions, *types; /* positions, types NULL: there are none */
    norm *embed_norm, *out_norm;
    linear *embed_in, *embed_out; /* NULL: embeddings are as wide as the model */
    linear *head;
    rope *ropes[DESC_MAX_ROPES];
    float *slopes; /* [H], owned, or NULL */
    struct {
        buffer_role role;
        int32_t width;
        buffer id;
    } buffers[DECODER_MAX_BUFFERS];
    int32_t n_buffers, n_layers;
    buffer x, y, z; /* the residual, and two rows of its width */
    buffer narrow;  /* rows of the embeddings' width, with embed_in */
    buffer shared, router, gate;
    decoder_layer layers[];
} decoder;

/* One forward pass. */
typedef struct pass {
    backend *b;
    const backend_ops *op;
    const model_desc *d;
    const decoder *w;
} pass;

/* The buffer of a role and width: a new one, or that of an earlier call. */
quire_err decoder_buffer(loader *l, decoder *w, buffer_role role, int32_t width, buffer *out);
/* A norm of the model's kind over rows of `width` elements; NULL where the architecture
 * has no such weight. */
quire_err decoder_norm(loader *l, const model_desc *d, const arch_names *names, weight_role role,
                       int32_t layer, int32_t width, norm **out);
/* w of a role, whole or with its kind of storage. */
quire_err decoder_linear(loader *l, const model_desc *d, const arch_names *names, weight_role role,
                         int32_t layer, int64_t n_out, int64_t n_in, linear **out);
/* Two weights [n_out, n_in] that lie in one tensor, the second behind the first. */
quire_err decoder_pair(loader *l, const arch_names *names, weight_role role, int32_t layer, int64_t n_out,
                       int64_t n_in, linear **first, linear **second);

/* ---- blocks_attention.c ---- */
quire_err attention_load(loader *l, const model_desc *d, const arch_names *names, int32_t layer, decoder *w);
/* x += attention(nm(in)), through the layer's norm behind it. nm NULL: none. */
void attention_run(const pass *p, int32_t layer, buffer in, const norm *nm);

/* ---- blocks_mlp.c ---- */
quire_err mlp_load(loader *l, const model_desc *d, const arch_names *names, int32_t layer, decoder *w);
/* x += feed_forward(nm(in)): the layer's dense part or its experts, through the layer's
 * norm behind it. */
void mlp_run(const pass *p, int32_t layer, buffer in, const norm *nm);
/* x += scale * post(a W^T). post NULL: none. */
void branch_add(const pass *p, buffer a, const linear *w, const norm *post);

/* ---- blocks_moe.c ---- */
quire_err moe_load(loader *l, const model_desc *d, const arch_names *names, int32_t layer, decoder *w);
void moe_run(const pass *p, int32_t layer, buffer in, const norm *nm);

/* ---- decoder.c ---- */
quire_err decoder_load(loader *l, const model_desc *d, const arch_names *names, void **weights);
void decoder_forward(const model *m, const batch *rows);
/* The parts of a forward pass before its first layer and behind its last. */
void decoder_begin(const pass *p, const batch *rows);
void decoder_end(const pass *p, const batch *rows);
buffer decoder_hidden(const model *m);
void decoder_close(void *weights);

#endif

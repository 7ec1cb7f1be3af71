/* A decoder, the common form of every architecture. Loading binds the steps of its layers
 * (steps.h) to weights and buffers. The result is one list of ops, which a forward pass
 * runs between the embeddings and the head.
 *
 * x: [M, d_model], the residual; q: [M, H E]; k, v: [M, G E]; a: [M, H E], attention's
 * result; h: [M, F]. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/arch.h"

typedef struct decoder decoder;

/* One forward pass. */
typedef struct pass {
    backend *b;
    const backend_ops *op;
    const model_desc *d;
    const decoder *w;
} pass;

/* One op of a forward pass. What it computes depends on `run`; members that it does not
 * read are 0. */
typedef struct decoder_op decoder_op;
struct decoder_op {
    void (*run)(const pass *p, const decoder_op *o);
    buffer in, out;
    const norm *nm; /* the op reads norm(in); NULL: in */
    const linear *w;
    float scale;
    const void *own; /* weights of its block */
};

/* Buffers by content. Layers share a buffer of the same content and width. */
typedef enum buffer_role {
    BUFFER_ROW_X, /* rows of lists of steps: X, A, B */
    BUFFER_ROW_A,
    BUFFER_ROW_B,
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_A,
    BUFFER_ATTN_GATE,
    BUFFER_LATENT, /* latent attention: [M, L], [M, q_rank], [M, H L], [M, H rank] */
    BUFFER_Q_LATENT,
    BUFFER_Q_WIDE, /* the queries' latent, normed and not */
    BUFFER_ABSORBED,
    BUFFER_WEIGHED,
    BUFFER_INDEX_K,
    BUFFER_INDEX_Q,
    BUFFER_INDEX_WEIGHTS,
    BUFFER_INDEX_GATE,
    BUFFER_H,
    BUFFER_SHARED,
    BUFFER_ROUTER,
    BUFFER_GATE,
    BUFFER_INPUTS,
    BUFFER_PROJECTED,
    BUFFER_EMBEDDING,
    BUFFER_LOW,
    BUFFER_MODES, /* streams: input of the coefficients, and the coefficients */
    BUFFER_COEFFICIENTS,
    BUFFER_MAGNITUDE,
    BUFFER_STREAMS,        /* all streams side by side */
    BUFFER_STREAMS_NORMED, /* the same, normed; and their gates */
    BUFFER_STREAM_GATES,
    BUFFER_STREAM_WEIGHTS,
    BUFFER_NGRAMS,
    BUFFER_NGRAM_VALUES,
    BUFFER_STREAM,                                        /* one per stream */
    BUFFER_PREDICTION = BUFFER_STREAM + DESC_MAX_STREAMS, /* the streams' predictions */
    BUFFER_AFTER_STREAMS = BUFFER_PREDICTION + DESC_MAX_STREAMS,
    BUFFER_CONV_B, /* gated short convolution: its two gates and its input */
    BUFFER_CONV_C,
    BUFFER_CONV_X,
    BUFFER_DELTA, /* linear attention: the first of delta_piece */
    BUFFER_DELTA_LAST = BUFFER_DELTA + 7,
    BUFFER_MAMBA_Z, /* Mamba's mixer */
    BUFFER_MAMBA_X,
    BUFFER_MAMBA_B,
    BUFFER_MAMBA_C,
    BUFFER_MAMBA_STEP,
    BUFFER_MAMBA_TIME, /* Mamba-1: the time step of each channel */
    BUFFER_UP,         /* for a feed-forward part with a scaled gate */
    BUFFER_NARROW,     /* rows that experts read and write */
    BUFFER_NARROW_SUM,
    BUFFER_WIDE,  /* a row concatenated with the embeddings' row */
    BUFFER_INNER, /* result of a shared block */
    BUFFER_RANK,  /* low-rank rows of adapters */
    BUFFER_LRU_X, /* gated linear recurrence */
    BUFFER_LRU_Y,
    BUFFER_LRU_OUT
} buffer_role;

#define DECODER_MAX_BUFFERS 96

struct decoder {
    embedding *tokens, *positions, *types; /* positions, types NULL: the model has none */
    norm *embed_norm, *out_norm;
    linear *embed_in, *embed_out; /* NULL: embeddings are as wide as the model */
    linear *head;
    rope *ropes[DESC_MAX_ROPES];
    float *slopes; /* ALiBi: [H]; or NULL */
    struct {
        buffer_role role;
        int32_t width;
        buffer id;
    } buffers[DECODER_MAX_BUFFERS];
    int32_t n_buffers;
    buffer x;      /* the residual */
    buffer narrow; /* with embed_in: rows of the embeddings' width */
    buffer inputs; /* additional inputs of all layers */
    decoder_op *ops;
    size_t n_ops, cap_ops;
    void **memory; /* memory that lives as long as the decoder */
    size_t n_memory, cap_memory;
};

/* What a row of a list of steps holds while the list is bound. A pending norm or product
 * is left to the row's reader, so that both become one op. */
typedef struct row_value {
    buffer at;
    const norm *nm;        /* the row is norm(at); NULL: at */
    const linear *product; /* the row is at W^T; NULL: at. Never together with nm */
    float scale;           /* with product: the row is scale times it; 0 means 1 */
} row_value;

/* State of binding the steps of a decoder's layers to ops. */
typedef struct binding {
    loader *l;
    const model_desc *d;
    decoder *w;
    int32_t layer;   /* the current layer, or NO_LAYER */
    int32_t n_mixes; /* STEP_MIX steps of the layer so far */
    int32_t n_sums;  /* sums to the residual so far */
    row_value rows[N_STEP_ROWS];
    struct shared_block *blocks[DESC_MAX_SHARED_BLOCKS]; /* blocks that are loaded */
} binding;

/* ---- decoder_layers.c ---- */
/* Binds the steps of all layers, and what precedes the first layer. */
quire_err decoder_bind_layers(binding *b);
/* Finds what a block's op should read for a row: a buffer and, if one is pending, a norm
 * that the op computes itself. */
quire_err binding_read(binding *b, step_row row, row_value *out);
/* Queues all pending work of a row, so that its buffer holds it. */
quire_err binding_settle(binding *b, step_row row);
/* The buffer of a row. */
quire_err binding_row(binding *b, step_row row, buffer *out);
quire_err binding_emit(binding *b, decoder_op op);
/* Sets *out to n zeroed elements that live as long as the decoder. */
quire_err binding_new(binding *b, size_t n, size_t size, void *out);
/* Makes a mem_new block live as long as the decoder; on failure frees it. */
quire_err binding_keep(binding *b, void *block);
/* The buffer of a role and width, created on the first call. */
quire_err binding_buffer(binding *b, buffer_role role, int32_t width, buffer *out);

/* The current layer's weights of a role. */
weight_name binding_name(const binding *b, weight_role role);
bool binding_has(const binding *b, weight_role role);
bool binding_is_gguf(const binding *b);
/* Loads a norm of the model's kind over rows of its width. replaces: as in norm_spec. */
quire_err binding_norm(binding *b, weight_role role, bool replaces, norm **out);
quire_err binding_linear(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out);
/* Loads two weights [n_out, n_in] that are in one tensor, the second after the first. */
quire_err binding_pair(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **first,
                       linear **second);
/* Loads a matrix [n_out, n_in] whose product is computed in f32 in every mode. Its
 * checkpoint name is a full name. */
quire_err binding_exact(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out);
/* Loads a vector that the layer requires; the decoder owns it. suffix: of its name in a
 * GGUF file. what: for errors, as in "attention sinks". */
quire_err binding_vector(binding *b, weight_role role, const char *suffix, const char *what, int64_t n,
                         float **out);

/* Whether an earlier layer writes the cache that the layer attends to. */
bool binding_shares_cache(const binding *b);

/* Refuses a model if the backend lacks an op. what: as in "short convolutions". */
quire_err binding_need_op(const binding *b, bool has, const char *what);

/* ---- blocks_*.c: steps ---- */
quire_err attention_bind(binding *b, const layer_step *s);
quire_err latent_bind(binding *b, const layer_step *s);
quire_err mlp_bind(binding *b, const layer_step *s);
quire_err moe_bind(binding *b, const layer_step *s);
quire_err input_bind(binding *b, const layer_step *s);
quire_err conv_bind(binding *b, const layer_step *s);
quire_err delta_bind(binding *b, const layer_step *s);
quire_err mamba_bind(binding *b, const layer_step *s);
quire_err shared_bind(binding *b, const layer_step *s);
quire_err lru_bind(binding *b, const layer_step *s);
/* Called before the first layer: computes the additional inputs of all layers. */
quire_err inputs_bind(binding *b);

/* ---- blocks_index.c ---- */
typedef struct index_block index_block;
/* Binds what selects the layer's keys; NULL: the layer does not select keys. */
quire_err index_bind(binding *b, index_block **out);
/* The product of the queries' latent that index_run needs; the caller runs it. w NULL:
 * none. x may be NULL. */
linear_use index_of_latent(const index_block *x);
/* Stores the row's index key and selects keys; does nothing if x is NULL. The row is
 * nm(in); nm NULL: in. */
void index_run(const pass *p, const index_block *x, buffer in, const norm *nm);

/* ---- blocks_hyper.c: streams with coefficients ---- */
quire_err streams_read_bind(binding *b, const layer_step *s);
quire_err streams_write_bind(binding *b, const layer_step *s);
quire_err ngrams_bind(binding *b, const layer_step *s);
quire_err gate_bind(binding *b, const layer_step *s);
quire_err hyper_bind(binding *b);
quire_err hyper_bind_end(binding *b);

/* ---- blocks_streams.c ---- */
quire_err laurel_bind(binding *b, const layer_step *s);
quire_err blend_bind(binding *b, const layer_step *s);
quire_err join_bind(binding *b, const layer_step *s);
quire_err predict_bind(binding *b, const layer_step *s);
quire_err correct_bind(binding *b, const layer_step *s);
quire_err spread_bind(binding *b, const layer_step *s);
/* Before the first layer: make the streams from the residual; after the last: make the
 * residual from them. */
quire_err streams_bind(binding *b);
quire_err streams_bind_end(binding *b);

/* ---- decoder.c ---- */
quire_err decoder_load(loader *l, const model_desc *d, decoder **out);
void decoder_forward(const decoder *w, const model_desc *d, backend *b, const batch *rows);
/* NULL is allowed. */
void decoder_close(decoder *w);

#endif

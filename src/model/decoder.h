/* A decoder, the common form of every architecture. Loading binds the steps of its layers
 * (steps.h) to weights and buffers; the result is one list of ops, which a forward pass
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

/* One op of a forward pass. What it computes depends on run; members that run does not
 * read are 0. */
typedef struct decoder_op decoder_op;
struct decoder_op {
    void (*run)(const pass *p, const decoder_op *o);
    buffer in, out;
    const norm *nm; /* it reads norm(in); NULL: in */
    const linear *w;
    float scale;
    const void *own; /* weights of a block */
};

/* Buffers by content. Layers of the same width share a buffer. */
typedef enum buffer_role {
    BUFFER_ROW_X, /* rows of lists: X, A, B */
    BUFFER_ROW_A,
    BUFFER_ROW_B,
    BUFFER_Q,
    BUFFER_K,
    BUFFER_V,
    BUFFER_A,
    BUFFER_ATTN_GATE,
    BUFFER_LATENT, /* latent attention: [M, L], [M, q_rank], [M, H L], [M, H rank] */
    BUFFER_Q_LATENT,
    BUFFER_Q_WIDE, /* the queries' latent normed, and as it is */
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
    BUFFER_MODES, /* of streams: what coefficients are made of, and they */
    BUFFER_COEFFICIENTS,
    BUFFER_MAGNITUDE,
    BUFFER_STREAMS,        /* all, side by side */
    BUFFER_STREAMS_NORMED, /* the same, normed, and gates of them */
    BUFFER_STREAM_GATES,
    BUFFER_STREAM_WEIGHTS,
    BUFFER_NGRAMS,
    BUFFER_NGRAM_VALUES,
    BUFFER_STREAM,                                        /* each of several, */
    BUFFER_PREDICTION = BUFFER_STREAM + DESC_MAX_STREAMS, /* and what is predicted of it */
    BUFFER_BEHIND_STREAMS = BUFFER_PREDICTION + DESC_MAX_STREAMS,
    BUFFER_CONV_B, /* of a gated short convolution: its two gates and its input */
    BUFFER_CONV_C,
    BUFFER_CONV_X,
    BUFFER_DELTA, /* of linear attention: the first of delta_piece */
    BUFFER_DELTA_LAST = BUFFER_DELTA + 7,
    BUFFER_MAMBA_Z, /* of Mamba's mixer */
    BUFFER_MAMBA_X,
    BUFFER_MAMBA_B,
    BUFFER_MAMBA_C,
    BUFFER_MAMBA_STEP,
    BUFFER_MAMBA_TIME, /* Mamba-1: the time step of each channel */
    BUFFER_UP,         /* of a feed-forward part whose gate is scaled */
    BUFFER_NARROW,     /* rows that experts read and write */
    BUFFER_NARROW_SUM,
    BUFFER_WIDE,  /* a row beside that of embeddings */
    BUFFER_INNER, /* what a shared block gives */
    BUFFER_RANK,  /* of adapters */
    BUFFER_LRU_X, /* of a gated linear recurrence */
    BUFFER_LRU_Y,
    BUFFER_LRU_OUT
} buffer_role;

#define DECODER_MAX_BUFFERS 96

struct decoder {
    embedding *tokens, *positions, *types; /* positions, types NULL: there are none */
    norm *embed_norm, *out_norm;
    linear *embed_in, *embed_out; /* NULL: embeddings are as wide as the model */
    linear *head;
    rope *ropes[DESC_MAX_ROPES];
    float *slopes; /* of ALiBi, [H], or NULL */
    struct {
        buffer_role role;
        int32_t width;
        buffer id;
    } buffers[DECODER_MAX_BUFFERS];
    int32_t n_buffers;
    buffer x;      /* the residual */
    buffer narrow; /* rows of the embeddings' width, with embed_in */
    buffer inputs; /* rows of all layers' inputs */
    decoder_op *ops;
    size_t n_ops, cap_ops;
    void **memory; /* what lives as long as the decoder */
    size_t n_memory, cap_memory;
};

/* What a row of a list of steps holds while the list is bound. Pending work is left to
 * its reader, so that both are one op. */
typedef struct row_value {
    buffer at;
    const norm *nm;        /* the row is norm(at); NULL: at */
    const linear *product; /* the row is at W^T; NULL: at. Never beside nm */
    float scale;           /* with product: the row is that times scale; 0: 1 */
} row_value;

/* The steps of a decoder's layers on their way to ops. */
typedef struct binding {
    loader *l;
    const model_desc *d;
    decoder *w;
    int32_t layer;   /* or NO_LAYER */
    int32_t n_mixes; /* steps of the layer that mix, so far */
    int32_t n_sums;  /* to the residual, so far */
    row_value rows[N_STEP_ROWS];
    struct shared_block *blocks[DESC_MAX_SHARED_BLOCKS]; /* that are loaded */
} binding;

/* ---- decoder_layers.c ---- */
/* Binds the steps of all layers, and what comes before the first. */
quire_err decoder_bind_layers(binding *b);
/* What a block reads: the row itself, or a norm of it, which the block's op computes. */
quire_err binding_read(binding *b, step_row row, row_value *out);
/* Queues all pending work of a row: its buffer then holds it. */
quire_err binding_settle(binding *b, step_row row);
/* The buffer in which a row is kept. */
quire_err binding_row(binding *b, step_row row, buffer *out);
quire_err binding_emit(binding *b, decoder_op op);
/* Memory that lives as long as the decoder: n zeroed elements; or a block of mem_new,
 * which is freed where this fails. */
quire_err binding_new(binding *b, size_t n, size_t size, void *out);
quire_err binding_keep(binding *b, void *block);
/* The buffer of a role and width: a new one, or that of an earlier call. */
quire_err binding_buffer(binding *b, buffer_role role, int32_t width, buffer *out);

/* Weights of the layer by role. */
weight_name binding_name(const binding *b, weight_role role);
bool binding_has(const binding *b, weight_role role);
bool binding_is_gguf(const binding *b);
/* A norm of the model's kind over rows of its width. replaces: as in norm_spec. */
quire_err binding_norm(binding *b, weight_role role, bool replaces, norm **out);
quire_err binding_linear(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out);
/* Two weights [n_out, n_in] that lie in one tensor, the second after the first. */
quire_err binding_pair(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **first,
                       linear **second);
/* A product in f32 under every compute mode, of a matrix [n_out, n_in] whose name in a
 * checkpoint is whole. */
quire_err binding_exact(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out);
/* A vector that the layer requires. suffix: of its name in a GGUF file. The decoder owns
 * it. what: "attention sinks". */
quire_err binding_vector(binding *b, weight_role role, const char *suffix, const char *what, int64_t n,
                         float **out);

/* Whether an earlier layer writes what the layer attends to. */
bool binding_shares_cache(const binding *b);

/* Refuses a model with an op that the backend does not have. what: "short
 * convolutions". */
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
/* Before the first layer: makes the inputs that each layer has of its own. */
quire_err inputs_bind(binding *b);

/* ---- blocks_index.c ---- */
typedef struct index_block index_block;
/* What chooses the keys of the layer; NULL: it does not choose. */
quire_err index_bind(binding *b, index_block **out);
/* The product of the queries' latent that index_run needs, whose caller runs it; w NULL:
 * none. x may be NULL. */
linear_use index_of_latent(const index_block *x);
/* Stores the row's index key and chooses; nothing where x is NULL. The row is nm(in); nm
 * NULL: in. */
void index_run(const pass *p, const index_block *x, buffer in, const norm *nm);

/* ---- blocks_hyper.c: streams that are read and written by coefficients ---- */
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
/* Before the first layer: makes the streams of the residual; after the last: makes it of
 * them. */
quire_err streams_bind(binding *b);
quire_err streams_bind_end(binding *b);

/* ---- decoder.c ---- */
quire_err decoder_load(loader *l, const model_desc *d, decoder **out);
void decoder_forward(const decoder *w, const model_desc *d, backend *b, const batch *rows);
/* NULL is allowed. */
void decoder_close(decoder *w);

#endif

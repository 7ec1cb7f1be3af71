/* The op contract: the operations that a device implements, with the shape of every operand.
 *
 * A model (src/model) is written over these ops and does not depend on a device. A backend implements the table `backend_ops`.
 * Activations are opaque: a model reserves named buffers (`buffer`) once at open and passes them to the ops. The weights
 * of a product choose the format in which it reads its rows (f32, bf16, int8 a token, int8 per 32); the op converts them. That is why ops
 * are fused: norm with the products that read it, a product with its residual, gate with up and the activation function.
 *
 * Owner: the engine thread, which makes all calls but the loading calls. Those run before the first step. Ops may be queued; their results
 * are ready after step_wait(). Row counts are (reserved at open, actual in the batch). step_open() sizes everything: an op allocates
 * nothing.
 *
 * Law (docs/design.md, Determinism): what an op writes for a row depends only on that row's own inputs, bit for bit, never on n_rows,
 * threads, pages or work list.
 *
 * Letters: M rows of the batch, D d_model, H heads, G kv heads, E d_head, F d_ff, V vocabulary. Activations are row-major [M, width]. */
#ifndef BACKEND_H
#define BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread_pool.h"
#include "core/batch.h"
#include "core/dtype.h"
#include "core/kv_layout.h"
#include "core/model_desc.h"
#include "core/tensor.h"

typedef struct backend backend;
typedef struct linear linear;       /* packed weights [n_out, n_in] with optional bias; owned by the backend */
typedef struct norm norm;           /* a norm's weight and kind */
typedef struct embedding embedding; /* token rows [V, D] */
typedef struct rope rope;           /* a rotary table or its frequencies */

/* An activation buffer, reserved at open. */
typedef struct buffer {
    int32_t id;
} buffer;
#define BUFFER_NONE ((buffer){-1})

typedef enum norm_kind { NORM_RMS, NORM_LAYER } norm_kind;

/* One product out of a fused set: out = x W^T (+ bias). */
typedef struct linear_use {
    const linear *w;
    buffer out;
} linear_use;

/* The attention mask and score changes, as data. A zeroed struct with causal = true and scale set describes a plain decoder. */
typedef struct attn_spec {
    float scale;              /* multiplies q . k */
    bool causal;              /* key j visible to row i iff j <= i */
    int32_t window;           /* 0: none; else also i - j < window */
    float soft_cap;           /* 0: none; else s = cap * tanh(s / cap) */
    const float *sinks;       /* [H] extra logit in the softmax's sum, unscaled, or NULL */
    const float *alibi_slopes; /* [H], s += slope * (j - i), or NULL */
} attn_spec;

/* q and k norms over each head before (or after) rotary; NULL: none. */
typedef struct qk_norms {
    const norm *q, *k;
    bool after_rope;
} qk_norms;

/* One copy of a whole page inside the pool: dst = src. */
typedef struct kv_copy_pair {
    int32_t src, dst;
} kv_copy_pair;

/* Moves one token inside a group: dst slot = src slot, in every plane. Accepted nodes of a draft tree are moved in this way. */
typedef struct kv_move_pair {
    kv_slot src, dst;
    int32_t group;
} kv_move_pair;

/* Limits that buffers are sized for. */
typedef struct step_limits {
    int32_t max_rows, max_seqs, max_out, max_partials;
} step_limits;

/* How to open a backend: the numeric configuration and the machine. */
typedef struct backend_options {
    compute_mode compute;
    const char *isa;   /* "auto", "plain", "avx2", "avx512", "avx512bf16", "neon", "i8mm" */
    int32_t n_threads; /* 0: one for each core that the process may use */
    const char *cpu_bind; /* "auto", "none" (or NULL), or processors to which threads are bound: "0-3,8" */
} backend_options;

/* The kinds of op in a trace. */
typedef enum op_kind { OP_EMBED, OP_NORM_LINEARS, OP_ROPE_STORE, OP_ATTENTION, OP_LINEAR_ADD, OP_GATE_UP, OP_HEAD, N_OPS } op_kind;

/* One op that ran. bytes is the least that it has to read: weights as packed, and pages as in the work list (shared pages once). operations
 * counts the multiplications and additions of products and attention. Both are 0 for ops that only touch activations. */
typedef struct op_time {
    op_kind kind;
    int32_t n_rows;
    int64_t start_ns, ns; /* clock_ns() when it began, and how long it took */
    int64_t rows_ns;      /* the share of ns that its input rows took: norm and conversion */
    int64_t bytes, operations;
} op_time;

/* Records ops in the order in which they run. A layer is the same few ops in every forward pass. Owned by the caller, which resets n. Ops
 * past cap are left out. */
typedef struct op_trace {
    op_time *ops;
    int32_t n, cap;
} op_trace;

typedef struct backend_ops {
    const char *name; /* "cpu" */
    uint32_t packing; /* the version of the layout of linear_packed */
    void (*close)(backend *b);
    /* A line for people: "cpu, avx2, 2 threads bound to 0-1". Valid as long as the backend. */
    const char *(*describe)(const backend *b);

    /* ---- loading: each call makes an object that the backend owns until close. The tensor's bytes may be freed afterwards, unless its
     * view says that they stay ---- */
    /* weight [n_out, n_in]; bias [n_out] or NULL. Packs into the layout for the compute mode and the weight's type. I8 weights have one
     * scale a row; in int8 both are kept unchanged. A weight that is packed already (linear_packed, under the same mode) is used in
     * place. */
    quire_err (*linear_load)(backend *b, const tensor_view *weight, const tensor_view *bias, linear **out, quire_error *err);
    /* The loaded weights in the form that linear_load accepts, without the bias: *n_bytes at a multiple of 64, in the layout of version
     * *packing. */
    const void *(*linear_packed)(const linear *l, size_t *n_bytes, uint32_t *packing);
    /* weight [width]; bias [width] or NULL (layer norm). add_one: the weight is 1 + w. width is the row length that the norm works on (E
     * for qk norms). */
    quire_err (*norm_load)(backend *b, norm_kind kind, const tensor_view *weight, const tensor_view *bias, float eps, bool add_one,
                           norm **out, quire_error *err);
    quire_err (*embedding_load)(backend *b, const tensor_view *weight, embedding **out, quire_error *err);
    /* max_positions: the length of the tables. */
    quire_err (*rope_load)(backend *b, const rope_desc *d, int32_t max_positions, rope **out, quire_error *err);
    /* Bytes of device memory that the loaded weights take. */
    int64_t (*weight_bytes)(const backend *b);

    /* ---- memory ---- */
    /* Reserves an activation of max_rows rows (from the later step_open) by width f32 elements. */
    buffer (*buffer_reserve)(backend *b, int32_t width);
    /* Sizes every buffer. Called once, after the model reserved its activations. vocab 0: no logits. */
    quire_err (*step_open)(backend *b, const step_limits *limits, const kv_layout *layout, int32_t n_vocab, quire_error *err);
    /* Bytes that step_open took, without KV memory. */
    int64_t (*step_bytes)(const backend *b);
    /* Reserves n_pages pages of KV memory in the layout given to step_open. Their contents start undefined. */
    quire_err (*kv_open)(backend *b, int32_t n_pages, quire_error *err);

    /* ---- pages ---- */
    /* The contents of n pages from `first` on are needed no more and become undefined: their memory goes back to the system, until they are
     * written. False: the system keeps them as they are. NULL: memory of this device stays with it. */
    bool (*kv_discard)(backend *b, int32_t first, int32_t n);
    void (*kv_copy)(backend *b, const kv_copy_pair *pairs, int32_t n);
    void (*kv_move)(backend *b, const kv_move_pair *pairs, int32_t n);
    /* Copies K and V of positions 0..n_tokens to the host arrays k and v [n_tokens, G, E], as f32, exactly as the pages hold them. pages is
     * the sequence's block table for the layer's group. */
    void (*kv_gather)(backend *b, int32_t layer, const int32_t *pages, int32_t n_tokens, float *k, float *v);
    /* Copy a page's bytes (page_bytes of the layout) to and from host memory, for swapping, tiers and transfer. */
    void (*kv_read_page)(backend *b, int32_t page, void *host);
    void (*kv_write_page)(backend *b, int32_t page, const void *host);

    /* ---- a step: begin, ops, wait ---- */
    /* The batch stays unchanged and alive until step_wait returns. Earlier contents of buffers are lost: debug builds overwrite them with
     * NaN. */
    void (*step_begin)(backend *b, const batch *batch);
    void (*step_wait)(backend *b);

    /* x [M, D] = rows of e by token id, times scale. External rows are copied unchanged. */
    void (*embed)(backend *b, const embedding *e, float scale, buffer x);
    /* n products of the same rows: h = norm(x) [M, D] (nm NULL: h = x), then out_i = h W_i^T. */
    void (*norm_linears)(backend *b, buffer x, const norm *nm, const linear_use *uses, int32_t n);
    /* Norms and rotates q [M, H E] and k [M, G E] in place (r NULL: no rotary). Writes k and v to the layer's pages at the batch's
     * slots. */
    void (*qk_norm_rope_store)(backend *b, int32_t layer, buffer q, buffer k, buffer v, const qk_norms *norms, const rope *r);
    /* out [M, H E] = softmax(scale q K^T, masked) V over the layer's pages, by the batch's work list. */
    void (*attention)(backend *b, int32_t layer, buffer q, const attn_spec *spec, buffer out);
    /* x [M, D] += scale * (a W^T + bias). */
    void (*linear_add)(backend *b, buffer a, const linear_use *w, float scale, buffer x);
    /* h [M, F] = f(norm(x) gate^T) * (norm(x) up^T). Of the uses only w is read. reader: the weights of the one linear_add that
     * reads h. h may then be stored in their format, and nothing else can read it. NULL: h is f32. */
    void (*norm_gate_up)(backend *b, buffer x, const norm *nm, const linear_use *gate, const linear_use *up, activation f, buffer h,
                         const linear *reader);
    /* Logits [n_out, V] of the batch's out_rows: scale * norm(x) W^T, soft-capped when cap > 0. Written to the backend's own logits
     * buffer. */
    void (*head)(backend *b, buffer x, const norm *nm, const linear *w, float scale, float soft_cap);

    /* ---- results, after step_wait ---- */
    /* Row i of the logits, host memory [V], valid until the next step_begin. The caller may change it in place. */
    float *(*logits)(backend *b, int32_t i);
    /* The id of the largest logit of row i, of equal ones the lowest id. head() finds it, so this call does not read the row again. -1: a
     * logit is NaN or infinite. NULL: the backend does not compute it. */
    int32_t (*argmax)(const backend *b, int32_t i);
    /* Host copy of rows row0..row0+n of an activation, f32 [n, width]: hidden states for drafters, pooling and tests. */
    void (*buffer_read)(backend *b, buffer a, int32_t row0, int32_t n, float *out);
    /* Writes rows of an activation from the host, for tests and external inputs. */
    void (*buffer_write)(backend *b, buffer a, int32_t row0, int32_t n, const float *in);
    /* Runs fn for every task on the backend's n_workers compute threads, which are idle between steps. Both are NULL where the backend has
     * no such threads. */
    void (*run_tasks)(backend *b, thread_pool_fn fn, void *context, int32_t n_tasks);
    int32_t (*n_workers)(const backend *b);
    /* Mark the calling thread as a compute thread from enter to leave: it is bound to a processor if the others are. The thread that runs
     * the steps calls enter. Both are NULL where run_tasks is. */
    void (*enter)(backend *b);
    void (*leave)(backend *b);
    /* Starts a trace: every op is timed and recorded in *to, until a call with NULL. Called between steps. Costs nothing while it is off. A
     * model reads the op table (b->ops) in each pass, so this takes effect with the next one. */
    void (*trace)(backend *b, op_trace *to);
} backend_ops;

/* The first member of every backend's own struct. */
struct backend {
    const backend_ops *ops;
    compute_mode compute;
};

/* An op that a backend does not implement is NULL in the table. A model that needs it is refused at load. */

/* Opens the CPU backend. QUIRE_UNSUPPORTED when this processor lacks the instruction set options->isa; QUIRE_INVALID for an unknown
 * name. */
quire_err backend_cpu_open(const backend_options *options, backend **out, quire_error *err);

#endif

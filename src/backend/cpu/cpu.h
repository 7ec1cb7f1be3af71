/* The CPU backend's own struct, shared by its op files.
 *
 * One file per op. Each kernel has a plain C twin and SIMD versions compiled from one
 * source for AVX2, AVX-512 and NEON (simd.h). `math` is the table of kernels chosen at
 * open. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include <assert.h>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/thread_pool.h"

/* An activation buffer: f32 [limits.max_rows, width]. */
typedef struct cpu_buffer {
    int32_t width;
    float *rows;
    /* rows are stored as ROWS_GROUPS (linear.h) for the product that reads them */
    bool is_quantised;
} cpu_buffer;

#define CPU_MAX_BUFFERS 64

/* Rows prepared for a head, or copied for a convolution, at a time: few enough to stay in
 * L1 together with the columns of a state. */
#define STATE_ROWS 8
/* Floats of worker scratch per 16 floats of the largest unit (states.h): q, k, a and a k
 * of STATE_ROWS rows. */
#define STATE_SCRATCH (4 * STATE_ROWS)

typedef struct cpu_backend {
    backend base; /* first: a backend* is a cpu_backend* */
    cpu_isa isa;
    const math_kernels *math;
    const linear_kernels *linear;
    thread_pool *thread_pool;
    int64_t near_bytes; /* bytes of a core's L2 cache; 0: unknown */
    uint64_t nodes;     /* NUMA nodes over which memory is spread; 0: left to the kernel */
    char description[160];

    int32_t n_acts;
    cpu_buffer buffers[CPU_MAX_BUFFERS];
    step_limits limits;
    /* most lists per row, and keys per list, of choose(); 0: not used */
    int32_t most_choices, most_chosen;
    kv_layout layout;
    int32_t n_vocab;
    uint8_t *kv; /* n_pages * layout.page_bytes */
    int32_t n_pages;
    float *logits;      /* [limits.max_out, n_vocab] */
    const batch *batch; /* of the current step */
    bool has_adapted;   /* some row of the step has an adapter */
    int64_t weight_bytes, step_bytes;
    int32_t n_objects; /* loaded linears, norms and embeddings; the next one's id */

    /* [workers][scratch_stride]: a row per worker, as wide as the widest buffer */
    float *scratch_rows;
    size_t scratch_stride;

    int64_t step; /* number of steps so far; marks results as computed for this step */

    /* [workers][state_stride]: scratch of recurrences; NULL: the model has no states */
    float *state_scratch;
    size_t state_stride, state_copies; /* state_copies: offset of the copies of cpu_state_copies */

    struct cpu_linear_state *linear_state;       /* linear_ops.c: scratch and the list of loaded weights */
    struct cpu_experts_state *experts_state;     /* experts.c: scratch and the step's choice of experts */
    struct cpu_attention_state *attention_state; /* attention.c: scratch and partials */
    struct cpu_adapter_state *adapter_state;     /* adapter.h: scratch of adapted rows */
    rope *ropes;                                 /* list of loaded ropes */
    struct cpu_owned *owned;                     /* memory blocks of cpu_own */
    uint8_t *slab;                               /* address of the next medium-sized block */
    size_t slab_left;                            /* zeroed bytes left there */
    size_t slab_bytes;                           /* size of such a region */

    op_trace *trace;             /* NULL: ops are not timed */
    const backend_ops *untraced; /* with a trace: the ops that `traced` calls */
    backend_ops traced;
    int64_t rows_ns; /* with a trace: time of the current op's rows */
} cpu_backend;

/* ---- implemented in owned.c ---- */
/* Like mem_new_huge, with the pages spread over the NUMA nodes. Free with mem_free. */
void *cpu_new_spread(const cpu_backend *b, size_t n_bytes);
/* Allocates n * size zeroed bytes, aligned to 64, that live until the backend closes;
 * NULL: out of memory or overflow. Only while loading and in step_open. */
void *cpu_own(cpu_backend *b, size_t n, size_t size);
/* Frees all blocks of cpu_own. */
void cpu_own_free(cpu_backend *b);

static inline float *cpu_act_row(const cpu_backend *b, buffer a, int32_t row) {
    assert(!b->buffers[a.id].is_quantised);
    return b->buffers[a.id].rows + (int64_t)row * b->buffers[a.id].width;
}

/* The worker's scratch row, as wide as any buffer. Its content is lost after the task. */
static inline float *cpu_scratch_row(const cpu_backend *b, int32_t worker) {
    return b->scratch_rows + (size_t)worker * b->scratch_stride;
}

/* up to so many rows are processed by the caller, which is cheaper than waking the thread
 * pool */
#define CPU_SERIAL_ROWS 4

/* Runs fn for each of n_rows rows, on the thread pool unless they are few. */
void cpu_run_rows(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_rows);

/* The same, always on the thread pool. A task has up to 16 adjacent rows, since adjacent
 * tokens share cache lines of keys in pages. */
void cpu_share_rows(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_rows);

/* ---- implemented in linear_ops*.c ---- */
quire_err cpu_linear_load(backend *b, const linear_spec *spec, linear **out, quire_error *err);
void cpu_linear_row(const backend *b, const linear *w, int32_t r, float *out);
const void *cpu_linear_packed(const linear *l, size_t *n_bytes, uint32_t *packing);
void cpu_linear_close(cpu_backend *b);
/* Allocates scratch for max_rows rows of the widest loaded weights and adds its bytes to
 * b->step_bytes. Called by step_open. */
quire_err cpu_linear_step_open(cpu_backend *b);
void cpu_norm_linears(backend *b, buffer x, const norm *nm, const linear_use *uses, int32_t n);
void cpu_linear_add(backend *b, buffer a, const linear_use *w, float scale, buffer x);
void cpu_feed_forward(backend *b, const feed_forward_use *use);
void cpu_head(backend *b, buffer x, const norm *nm, const linear *w, float scale, float soft_cap);
int32_t cpu_argmax(const backend *b, int32_t i);

/* ---- implemented in head_products.c ---- */
quire_err cpu_head_linears_load(backend *b, linear *const *w, int32_t n_heads, head_linears **out,
                                quire_error *err);
void cpu_head_products(backend *b, const head_products_use *use);

/* ---- implemented in route.c ---- */
void cpu_route(backend *b, const routing *r, buffer logits);

/* ---- implemented in experts_load.c and experts.c ---- */
quire_err cpu_experts_load(backend *b, const experts_weights *w, experts **out, quire_error *err);
/* Allocates scratch for max_rows rows of the loaded mixtures. Call after
 * cpu_linear_step_open. */
quire_err cpu_experts_step_open(cpu_backend *b);
void cpu_experts(backend *b, const experts_use *use);

/* ---- implemented in norm.c ---- */
/* Loaded weights and bias are f32, with 1 + w applied; a norm without weight has ones.
 * Adds to b->weight_bytes. */
quire_err cpu_norm_load(backend *b, const norm_spec *spec, norm **out, quire_error *err);
bool cpu_norm_replaces(const norm *nm);
int32_t cpu_norm_id(const norm *nm);
/* Whether a can replace b: same kind and shape. */
bool cpu_norm_is_alike(const norm *a, const norm *b);
/* Norms each group of x[0..width): a head, or the row. out may be x. Any thread. */
void cpu_norm_row(const cpu_backend *b, const norm *nm, const float *x, int32_t width, float *out);

/* ---- implemented in adapter_load.c ---- */
quire_err cpu_adapter_load(backend *b, const adapter_change *changes, int32_t n, adapter **out,
                           quire_error *err);
quire_err cpu_adapter_blend(backend *b, const adapter *const *parts, const float *scales, int32_t n,
                            adapter **out, quire_error *err);
void cpu_adapter_free(backend *b, adapter *a);
int64_t cpu_adapter_bytes(const adapter *a);

/* ---- implemented in adapter_rows.c ---- */
/* Allocates scratch of adapted rows, if limits.max_adapters is not 0. Call after
 * cpu_experts_step_open. */
quire_err cpu_adapter_step_open(cpu_backend *b);
/* Groups the rows of a new batch by adapter. */
void cpu_adapter_begin(cpu_backend *b);

/* ---- implemented in row_ops.c ---- */
void cpu_norm_add(backend *b, buffer y, const norm *nm, float scale, buffer x);
void cpu_norm_rows(backend *b, buffer x, const norm *nm, buffer out);
void cpu_multiply(backend *b, const multiply_use *use);
void cpu_place(backend *b, buffer x, int32_t column, buffer out);
void cpu_scale_rows(backend *b, float scale, buffer x);

/* ---- implemented in embed.c ---- */
quire_err cpu_embedding_load(backend *b, const tensor_view *weight, embedding **out, quire_error *err);
quire_err cpu_embedding_of(backend *b, const linear *w, dtype type, embedding **out);
const void *cpu_embedding_rows(const embedding *e, size_t *n_bytes);
/* Sets the number of the table's rows and their width. */
void cpu_embedding_shape(const embedding *e, int64_t *n_rows, int32_t *width);
int32_t cpu_embedding_id(const embedding *e);
void cpu_embed(backend *b, const embed_use *use);
/* out[0..width) = row `id` as f32, changed by the adapter of the batch's row `row`.
 * Called during a step, on the worker's thread. */
void cpu_embedding_row(const cpu_backend *b, const embedding *e, int64_t id, int32_t row, int32_t worker,
                       float *out);

/* ---- implemented in rope.c ---- */
quire_err cpu_rope_load(backend *b, const rope_desc *d, int32_t max_positions, rope **out, quire_error *err);
/* Allocates the tables of all loaded ropes for max_rows rows. */
quire_err cpu_rope_step_open(cpu_backend *b);
/* Rotates the heads of d_head elements in x[0..width), an activation of batch row `row`.
 * One thread at a time per row. */
void cpu_rope_row(const cpu_backend *b, const rope *r, int32_t row, int32_t d_head, float *x, int32_t width);

/* ---- implemented in pages.c ---- */
quire_err cpu_kv_open(backend *b, int32_t n_pages, quire_error *err);
bool cpu_kv_discard(backend *b, int32_t first, int32_t n);
void cpu_kv_copy(backend *b, const kv_copy_pair *pairs, int32_t n);
void cpu_kv_move(backend *b, const kv_move_pair *pairs, int32_t n);
void cpu_kv_gather(backend *b, int32_t cache, const int32_t *pages, int32_t n_tokens, float *k, float *v);
void cpu_kv_read_page(backend *b, int32_t page, void *host);
void cpu_kv_write_page(backend *b, int32_t page, const void *host);
void cpu_kv_store(backend *b, const kv_store_use *use);

/* ---- implemented in conv.c, linear_attention.c and scan.c ---- */
quire_err cpu_conv_load(backend *b, const tensor_view *weight, const tensor_view *bias, conv_taps **out,
                        quire_error *err);
void cpu_conv(backend *b, const conv_use *use);
void cpu_linear_attention(backend *b, const linear_attention_use *use);
void cpu_scan(backend *b, const scan_use *use);
/* ---- implemented in latent.c ---- */
void cpu_latent_store(backend *b, const latent_store_use *use);

/* ---- implemented in lru.c ---- */
void cpu_lru(backend *b, const lru_use *use);

/* ---- implemented in key_pools.c ---- */
void cpu_pool(backend *b, const pool_use *use);
void cpu_ngrams(backend *b, const ngram_use *use);

/* ---- implemented in residual_streams.c ---- */
void cpu_hyper_weights(backend *b, const hyper_use *use);
void cpu_streams_read(backend *b, const streams_read_use *use);
void cpu_streams_write(backend *b, const streams_write_use *use);
void cpu_stream_gates(backend *b, const stream_gates_use *use);

/* ---- implemented in op_trace.c ---- */
void cpu_trace(backend *b, op_trace *to);

/* ---- implemented in attention.c ---- */
/* Allocates scratch and partial results; does nothing for a layout without heads. */
quire_err cpu_attention_step_open(cpu_backend *b);
/* Evaluates the masks of a new batch. */
void cpu_attention_begin(cpu_backend *b);
void cpu_attention(backend *b, int32_t cache, buffer q, const attn_spec *spec, buffer out);

/* ---- implemented in attention_chosen.c ---- */
void cpu_choose_reserve(backend *b, int32_t n_lists, int32_t room);
void cpu_choose(backend *b, const choose_use *use);

#endif

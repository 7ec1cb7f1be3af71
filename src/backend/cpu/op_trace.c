/* Op traces: wrappers that time the backend's own ops. While a trace is on, the backend's
 * table is a copy with these wrappers, so untraced ops check nothing. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/linear_ops.h"
#include "base/clock.h"

static op_time begin(cpu_backend *b, op_kind kind, int32_t n_rows) {
    b->rows_ns = 0;
    return (op_time){.kind = kind, .n_rows = n_rows, .start_ns = clock_ns()};
}

static void end(cpu_backend *b, op_time *op) {
    op_trace *t = b->trace;
    op->ns = clock_ns() - op->start_ns;
    op->rows_ns = b->rows_ns;
    if (t->n < t->cap) {
        t->ops[t->n++] = *op;
    }
}

static void count_rows(op_time *op, const linear *w, int32_t n_rows) {
    op->bytes += (int64_t)w->layout.block_bytes * w->layout.n_blocks;
    op->bytes += w->scales != NULL ? (int64_t)w->layout.n_out * (int64_t)sizeof *w->scales : 0;
    op->operations += (int64_t)2 * w->layout.n_out * w->layout.n_in * n_rows;
}

/* Counts the keys and values that each sequence's rows see, once, and shared ones once
 * for all. With a window, counts its length plus the rows at most, as if nothing were
 * shared. */
static void count_attention(op_time *op, const cpu_backend *b, int32_t cache, buffer q, const attn_spec *spec,
                            buffer out) {
    int64_t token_bytes = kv_planes_token_bytes(&b->layout.caches[cache]);
    for (int32_t i = 0; i < b->batch->n_seqs; i++) {
        const batch_seq *s = &b->batch->seqs[i];
        int64_t most = spec->window > 0 && spec->window < s->n_tokens ? spec->window : s->n_tokens,
                first = s->n_tokens - s->n_rows, seen = 0;
        for (int64_t r = 0; r < s->n_rows; r++) {
            int64_t visible = spec->causal ? first + r + 1 : s->n_tokens;
            seen += visible < most ? visible : most;
        }
        int64_t reach = most + s->n_rows - 1;
        op->bytes += spec->window > 0 ? token_bytes * (reach < s->n_tokens ? reach : s->n_tokens) : 0;
        op->operations += 2 * seen * (b->buffers[q.id].width + b->buffers[out.id].width);
    }
    op->bytes += spec->window > 0 ? 0 : token_bytes * batch_read_tokens(b->batch);
}

/* The body of a wrapper: runs `counted`, then the op, timed. */
#define TRACED(kind, n_rows, counted, call)                                                                  \
    cpu_backend *b = (cpu_backend *)base;                                                                    \
    op_time op = begin(b, kind, n_rows);                                                                     \
    counted;                                                                                                 \
    b->untraced->call;                                                                                       \
    end(b, &op)

static void count_products(op_time *op, const linear_use *uses, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        count_rows(op, uses[i].w, op->n_rows);
    }
}

static void count_heads(op_time *op, const head_products_use *use) {
    for (int32_t head = 0; head < use->w->n_heads; head++) {
        count_rows(op, use->w->w[head], op->n_rows);
    }
}

static void count_feed_forward(op_time *op, const feed_forward_use *use) {
    if (use->gate != NULL) {
        count_rows(op, use->gate, op->n_rows);
    }
    count_rows(op, use->up, op->n_rows);
}

static void traced_embed(backend *base, const embed_use *use) {
    TRACED(OP_EMBED, b->batch->n_rows, (void)0, embed(base, use));
}

static void traced_norm_linears(backend *base, buffer x, const norm *nm, const linear_use *uses, int32_t n) {
    TRACED(OP_NORM_LINEARS, b->batch->n_rows, count_products(&op, uses, n),
           norm_linears(base, x, nm, uses, n));
}

static void traced_kv_store(backend *base, const kv_store_use *use) {
    TRACED(OP_ROPE_STORE, b->batch->n_rows, (void)0, kv_store(base, use));
}

static void traced_latent_store(backend *base, const latent_store_use *use) {
    TRACED(OP_ROPE_STORE, b->batch->n_rows, (void)0, latent_store(base, use));
}

static void traced_attention(backend *base, int32_t cache, buffer q, const attn_spec *spec, buffer out) {
    TRACED(OP_ATTENTION, b->batch->n_rows, count_attention(&op, b, cache, q, spec, out),
           attention(base, cache, q, spec, out));
}

static void traced_linear_add(backend *base, buffer a, const linear_use *w, float scale, buffer x) {
    TRACED(OP_LINEAR_ADD, b->batch->n_rows, count_products(&op, w, 1), linear_add(base, a, w, scale, x));
}

static void traced_feed_forward(backend *base, const feed_forward_use *use) {
    TRACED(OP_FEED_FORWARD, b->batch->n_rows, count_feed_forward(&op, use), feed_forward(base, use));
}

static void traced_norm_add(backend *base, buffer y, const norm *nm, float scale, buffer x) {
    TRACED(OP_NORM_ADD, b->batch->n_rows, (void)0, norm_add(base, y, nm, scale, x));
}

static void traced_norm_rows(backend *base, buffer x, const norm *nm, buffer out) {
    TRACED(OP_NORM_ROWS, b->batch->n_rows, (void)0, norm_rows(base, x, nm, out));
}

static void traced_multiply(backend *base, const multiply_use *use) {
    TRACED(OP_MULTIPLY, b->batch->n_rows, (void)0, multiply(base, use));
}

static void traced_scale_rows(backend *base, float scale, buffer x) {
    TRACED(OP_SCALE_ROWS, b->batch->n_rows, (void)0, scale_rows(base, scale, x));
}

static void traced_route(backend *base, const routing *r, buffer logits) {
    TRACED(OP_ROUTE, b->batch->n_rows, (void)0, route(base, r, logits));
}

/* Counts only the experts that have rows. */
static void traced_experts(backend *base, const experts_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const cpu_experts_state *s = b->experts_state;
    op_time op = begin(b, OP_EXPERTS, b->batch->n_rows);
    b->untraced->experts(base, use);
    for (int32_t i = 0; i < s->n_active; i++) {
        int32_t e = s->active[i], n_rows = s->first[e + 1] - s->first[e];
        if (use->w->gate != NULL) {
            count_rows(&op, use->w->gate[e], n_rows);
        }
        count_rows(&op, use->w->up[e], n_rows);
        count_rows(&op, use->w->down[e], n_rows);
    }
    end(b, &op);
}

/* Counts n_units units of a cache per sequence, read and written. */
static void count_states(op_time *op, const cpu_backend *b, int32_t cache, int64_t n_units,
                         int64_t row_operations) {
    op->bytes += 2 * n_units * b->layout.caches[cache].state.unit_bytes * b->batch->n_seqs;
    op->operations += row_operations * b->batch->n_rows;
}

/* Number of inputs per channel in a convolution's state. */
static int64_t conv_inputs(const cpu_backend *b, int32_t cache) {
    const kv_state_place *p = &b->layout.caches[cache].state;
    return p->unit_bytes / p->element_bytes / CONV_UNIT;
}

static void traced_conv(backend *base, const conv_use *use) {
    const int64_t n_channels = ((cpu_backend *)base)->buffers[use->x.id].width;
    TRACED(OP_CONV, b->batch->n_rows,
           count_states(&op, b, use->cache, conv_units((int32_t)n_channels),
                        2 * n_channels * (conv_inputs(b, use->cache) + 1)),
           conv(base, use));
}

/* Operations per element of the state: its decay, and a product and sum each for the
 * update and the output; with the delta rule, also for the key. */
static void traced_linear_attention(backend *base, const linear_attention_use *use) {
    const int64_t element = use->beta.id != BUFFER_NONE.id ? 7 : 5;
    TRACED(OP_LINEAR_ATTENTION, b->batch->n_rows,
           count_states(&op, b, use->cache, use->n_heads, element * use->n_heads * use->d_key * use->d_value),
           linear_attention(base, use));
}

static void traced_scan(backend *base, const scan_use *use) {
    TRACED(OP_SCAN, b->batch->n_rows,
           count_states(&op, b, use->cache, (use->n_channels + STATE_LANES - 1) / STATE_LANES,
                        (int64_t)7 * use->n_channels * use->n_states),
           scan(base, use));
}

static void traced_choose(backend *base, const choose_use *use) {
    TRACED(OP_CHOOSE, b->batch->n_rows, (void)0, choose(base, use));
}

static void traced_head_products(backend *base, const head_products_use *use) {
    TRACED(OP_HEAD_PRODUCTS, b->batch->n_rows, count_heads(&op, use), head_products(base, use));
}

/* Products of the gates, and the state, read and written. */
static void traced_lru(backend *base, const lru_use *use) {
    const int64_t width = use->n_channels / use->n_blocks, n_gates = 2 * width * use->n_channels;
    TRACED(OP_LRU, b->batch->n_rows,
           (op.bytes = (n_gates + 2 * (int64_t)b->batch->n_seqs * use->n_channels) * (int64_t)sizeof(float),
            op.operations = 2 * n_gates * b->batch->n_rows),
           lru(base, use));
}

static void traced_place(backend *base, buffer x, int32_t column, buffer out) {
    TRACED(OP_PLACE, b->batch->n_rows, (void)0, place(base, x, column, out));
}

static void traced_pool(backend *base, const pool_use *use) {
    const int64_t n_channels = ((cpu_backend *)base)->buffers[use->x.id].width;
    TRACED(OP_POOL, b->batch->n_rows,
           count_states(&op, b, use->cache, conv_units((int32_t)n_channels), 3 * n_channels),
           pool(base, use));
}

static void traced_ngrams(backend *base, const ngram_use *use) {
    TRACED(OP_NGRAMS, b->batch->n_rows, (void)0, ngrams(base, use));
}

static void traced_hyper_weights(backend *base, const hyper_use *use) {
    TRACED(OP_HYPER_WEIGHTS, b->batch->n_rows, (void)0, hyper_weights(base, use));
}

static void traced_streams_read(backend *base, const streams_read_use *use) {
    TRACED(OP_STREAMS_READ, b->batch->n_rows, (void)0, streams_read(base, use));
}

static void traced_streams_write(backend *base, const streams_write_use *use) {
    TRACED(OP_STREAMS_WRITE, b->batch->n_rows, (void)0, streams_write(base, use));
}

static void traced_stream_gates(backend *base, const stream_gates_use *use) {
    TRACED(OP_STREAM_GATES, b->batch->n_rows, (void)0, stream_gates(base, use));
}

static void traced_head(backend *base, buffer x, const norm *nm, const linear *w, float scale,
                        float soft_cap) {
    TRACED(OP_HEAD, b->batch->n_out, count_rows(&op, w, op.n_rows), head(base, x, nm, w, scale, soft_cap));
}

void cpu_trace(backend *base, op_trace *to) {
    cpu_backend *b = (cpu_backend *)base;
    if (to != NULL && b->trace == NULL) {
        b->untraced = base->ops;
        b->traced = *base->ops;
        b->traced.embed = traced_embed;
        b->traced.norm_linears = traced_norm_linears;
        b->traced.kv_store = traced_kv_store;
        b->traced.latent_store = traced_latent_store;
        b->traced.head_products = traced_head_products;
        b->traced.choose = traced_choose;
        b->traced.attention = traced_attention;
        b->traced.linear_add = traced_linear_add;
        b->traced.feed_forward = traced_feed_forward;
        b->traced.norm_add = traced_norm_add;
        b->traced.norm_rows = traced_norm_rows;
        b->traced.multiply = traced_multiply;
        b->traced.scale_rows = traced_scale_rows;
        b->traced.route = traced_route;
        b->traced.experts = traced_experts;
        b->traced.conv = traced_conv;
        b->traced.linear_attention = traced_linear_attention;
        b->traced.scan = traced_scan;
        b->traced.lru = traced_lru;
        b->traced.place = traced_place;
        b->traced.pool = traced_pool;
        b->traced.ngrams = traced_ngrams;
        b->traced.hyper_weights = traced_hyper_weights;
        b->traced.streams_read = traced_streams_read;
        b->traced.streams_write = traced_streams_write;
        b->traced.stream_gates = traced_stream_gates;
        b->traced.head = traced_head;
        base->ops = &b->traced;
    } else if (to == NULL && b->trace != NULL) {
        base->ops = b->untraced;
    }
    b->trace = to;
}

#include "lab/bench/baseline_kv.h"

#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"

enum { READ_AHEAD = 64 };

/* Keys and values of one sequence in one layer. k: [kv heads][blocks of 16][d_head][16], v: [kv heads][cap][d_head]. */
typedef struct piece {
    uint8_t *k, *v;
    int32_t n, cap;
} piece;

typedef struct worker {
    attn_tile tile;
    attn_state states[ATTN_TILE];
    int32_t end[ATTN_TILE]; /* positions each query sees */
} worker;

struct baseline_kv {
    backend_ops ops; /* first: the attached backend's ops point here */
    const backend_ops *own;
    backend *b;
    baseline_kv_way way;
    int32_t max_seqs, max_len;
    int32_t acc_stride;
    piece *pieces;   /* [layers][max_seqs] growing; [max_seqs] padded; [1] gathered */
    worker *workers; /* [thread pool] */
    float *scratch;
    int64_t copied_bytes, bytes;
    quire_err error;
};

/* One call of an op: what the thread pool's parts read. */
typedef struct job {
    baseline_kv *k;
    cpu_backend *c;
    const attn_spec *spec;
    buffer q, key, value, out;
    int32_t layer, seq; /* seq: the only one, or -1: all */
    int32_t longest;    /* padded: positions computed for each */
} job;

/* The planes of every cache: the models measured have layers that are all alike. */
static const kv_planes *planes_of(const cpu_backend *c) {
    return &c->layout.caches[0];
}

static int32_t blocks_of(int32_t n) {
    return (n + CPU_KV_BLOCK - 1) / CPU_KV_BLOCK;
}

static size_t k_bytes(const cpu_backend *c, int32_t n) {
    return cpu_kv_element_bytes(planes_of(c)) * (size_t)planes_of(c)->n_heads * (size_t)planes_of(c)->key.width *
           (size_t)(blocks_of(n) * CPU_KV_BLOCK);
}

static size_t v_bytes(const cpu_backend *c, int32_t n) {
    return cpu_kv_element_bytes(planes_of(c)) * (size_t)planes_of(c)->n_heads * (size_t)planes_of(c)->key.width * (size_t)n;
}

static piece *piece_of(const baseline_kv *k, int32_t layer, int32_t seq) {
    return &k->pieces[k->way == BASELINE_GROWING ? layer * k->max_seqs + seq : k->way == BASELINE_PADDED ? seq : 0];
}

/* ---- growing ---- */

static bool piece_new(const cpu_backend *c, int32_t cap, piece *out) {
    out->k = mem_new(k_bytes(c, cap) + READ_AHEAD, 1);
    out->v = mem_new(v_bytes(c, cap) + READ_AHEAD, 1);
    out->cap = cap;
    out->n = 0;
    return out->k != NULL && out->v != NULL;
}

static void piece_free(piece *p) {
    mem_free(p->k);
    mem_free(p->v);
    *p = (piece){0};
}

/* All that p holds into a larger one, head by head. */
static void copy_piece(const cpu_backend *c, const piece *from, const piece *to) {
    size_t row = cpu_kv_element_bytes(planes_of(c)) * (size_t)planes_of(c)->key.width;
    for (size_t head = 0; head < (size_t)planes_of(c)->n_heads; head++) {
        size_t from_block = row * CPU_KV_BLOCK * (size_t)blocks_of(from->cap), to_block = row * CPU_KV_BLOCK * (size_t)blocks_of(to->cap);
        memcpy(to->k + head * to_block, from->k + head * from_block, row * CPU_KV_BLOCK * (size_t)blocks_of(from->n));
        memcpy(to->v + head * row * (size_t)to->cap, from->v + head * row * (size_t)from->cap, row * (size_t)from->n);
    }
}

static quire_err grow(baseline_kv *k, const cpu_backend *c, piece *p, int32_t n_more) {
    piece larger = {0};
    if (!piece_new(c, p->n + n_more, &larger)) {
        piece_free(&larger);
        return QUIRE_NO_MEMORY;
    }
    if (p->n > 0) {
        copy_piece(c, p, &larger);
        k->copied_bytes += (int64_t)(2 * v_bytes(c, p->n));
    }
    larger.n = p->n;
    k->bytes +=
        (int64_t)(k_bytes(c, larger.cap) + v_bytes(c, larger.cap)) - (int64_t)(p->cap > 0 ? k_bytes(c, p->cap) + v_bytes(c, p->cap) : 0);
    piece_free(p);
    *p = larger;
    return QUIRE_OK;
}

/* x[0..n) to elements index, index + stride, ..., rounded to the layout's type. */
static void write_row(dtype type, void *plane, size_t index, size_t stride, const float *x, int32_t n) {
    for (size_t e = 0; e < (size_t)n; e++) {
        if (type == DTYPE_F32) {
            ((float *)plane)[index + e * stride] = x[e];
        } else {
            ((uint16_t *)plane)[index + e * stride] = type == DTYPE_BF16 ? f32_to_bf16(x[e]) : f32_to_f16(x[e]);
        }
    }
}

static void store_token(const cpu_backend *c, piece *p, const float *key, const float *value) {
    const kv_planes *l = planes_of(c);
    size_t d = (size_t)l->key.width, at = (size_t)p->n;
    for (size_t head = 0; head < (size_t)l->n_heads; head++) {
        size_t block = head * (size_t)blocks_of(p->cap) + at / CPU_KV_BLOCK;
        write_row(l->key.type, p->k, block * d * CPU_KV_BLOCK + at % CPU_KV_BLOCK, CPU_KV_BLOCK, key + head * d, l->key.width);
        write_row(l->key.type, p->v, (head * (size_t)p->cap + at) * d, 1, value + head * d, l->key.width);
    }
    p->n++;
}

/* Norms and rotates as always, with nothing stored in pages (the rows have no slots); then every sequence's piece grows by its rows. */
static void store_growing(backend *b, const kv_store_use *use) {
    baseline_kv *k = (baseline_kv *)(uintptr_t)b->ops;
    cpu_backend *c = (cpu_backend *)b;
    k->own->kv_store(b, use);
    for (int32_t s = 0; s < c->batch->n_seqs; s++) {
        const batch_seq *seq = &c->batch->seqs[s];
        piece *p = piece_of(k, use->cache, s);
        if (p->n != seq->n_tokens - seq->n_rows || grow(k, c, p, seq->n_rows) != QUIRE_OK) {
            k->error = p->n != seq->n_tokens - seq->n_rows ? QUIRE_INVALID : QUIRE_NO_MEMORY;
            return;
        }
        for (int32_t i = 0; i < seq->n_rows; i++) {
            store_token(c, p, cpu_act_row(c, use->k, seq->row0 + i), cpu_act_row(c, use->v, seq->row0 + i));
        }
    }
}

/* ---- gathering ---- */

/* One kv head of one sequence: its pages into its piece. */
static void gather_head(const job *j, int32_t s, int32_t head) {
    const cpu_backend *c = j->c;
    const kv_planes *l = planes_of(c);
    const batch_seq *seq = &c->batch->seqs[s];
    piece *p = piece_of(j->k, j->layer, s);
    size_t size = cpu_kv_element_bytes(l), row = size * (size_t)l->key.width;
    for (int32_t at = 0; at < seq->n_tokens; at += l->page_tokens) {
        int32_t page = seq->pages[0][at / l->page_tokens], n = seq->n_tokens - at < l->page_tokens ? seq->n_tokens - at : l->page_tokens;
        const uint8_t *keys = cpu_kv_plane(c, page, j->layer, KV_PLANE_K), *values = cpu_kv_plane(c, page, j->layer, KV_PLANE_V);
        size_t to = row * (size_t)((head * blocks_of(p->cap) + at / CPU_KV_BLOCK) * CPU_KV_BLOCK);
        memcpy(p->k + to, keys + size * (size_t)cpu_k_index(l, head, 0), row * (size_t)(blocks_of(n) * CPU_KV_BLOCK));
        memcpy(p->v + row * ((size_t)head * (size_t)p->cap + (size_t)at), values + size * (size_t)cpu_v_index(l, head, 0), row * (size_t)n);
    }
}

static void gather_task(void *context, int32_t task, int32_t thread) {
    (void)thread;
    const job *j = context;
    int32_t heads = planes_of(j->c)->n_heads;
    gather_head(j, j->seq >= 0 ? j->seq : task / heads, task % heads);
}

/* ---- attention over a piece ---- */

static void set_queries(const job *j, const batch_seq *seq, int32_t head, int32_t from, int32_t n, int32_t group, worker *w) {
    w->tile.n_queries = n;
    for (int32_t t = 0; t < n; t++) {
        int32_t row = seq->row0 + (from + t) / group;
        w->tile.q[t] = cpu_act_row(j->c, j->q, row) + (size_t)(head * group + (from + t) % group) * (size_t)w->tile.d_head;
        w->end[t] = j->c->batch->positions[row] + 1;
        w->states[t].sum = 0.0f;
    }
}

static int32_t clamp(int32_t v, int32_t high) {
    return v < 0 ? 0 : v > high ? high : v;
}

/* Positions base .. base + ATTN_CHUNK of the piece against the tile's queries, of which query t sees those from first to end[t]. */
static void compute_chunk(const job *j, const piece *p, int32_t head, int32_t base, int32_t first, const int32_t *end, worker *w) {
    const kv_planes *l = planes_of(j->c);
    size_t row = cpu_kv_element_bytes(l) * (size_t)l->key.width;
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        w->tile.first[t] = clamp(first - base, ATTN_CHUNK);
        w->tile.end[t] = clamp(end[t] - base, ATTN_CHUNK);
    }
    for (int32_t i = 0; i < ATTN_BLOCKS && base / CPU_KV_BLOCK + i < blocks_of(p->cap); i++) {
        w->tile.k_blocks[i] = p->k + row * (size_t)((head * blocks_of(p->cap) + base / CPU_KV_BLOCK + i) * CPU_KV_BLOCK);
        w->tile.v_blocks[i] = p->v + row * ((size_t)head * (size_t)p->cap + (size_t)(base + i * CPU_KV_BLOCK));
    }
    j->c->math->attention_tile(&w->tile);
}

static void finish_queries(const job *j, const batch_seq *seq, int32_t head, int32_t from, int32_t group, worker *w) {
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        float *out = cpu_act_row(j->c, j->out, seq->row0 + (from + t) / group);
        j->c->math->attention_finish(&w->states[t], NULL, w->tile.d_head,
                                     out + (size_t)(head * group + (from + t) % group) * (size_t)w->tile.d_head);
    }
}

/* What padding costs: the positions behind the sequence's own, up to the batch's longest, computed and dropped. */
static void compute_padding(const job *j, const piece *p, int32_t head, int32_t from, worker *w) {
    int32_t ends[ATTN_TILE];
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        ends[t] = j->longest;
    }
    for (int32_t base = from / ATTN_CHUNK * ATTN_CHUNK; base < j->longest; base += ATTN_CHUNK) {
        compute_chunk(j, p, head, base, from, ends, w);
    }
}

static void attend(const job *j, int32_t s, int32_t head, worker *w) {
    const cpu_backend *c = j->c;
    const batch_seq *seq = &c->batch->seqs[s];
    const piece *p = piece_of(j->k, j->layer, s);
    int32_t group = c->buffers[j->q.id].width / planes_of(c)->key.width / planes_of(c)->n_heads, n_queries = seq->n_rows * group;
    w->tile.scale = j->spec->scale;
    for (int32_t from = 0; from < n_queries; from += ATTN_TILE) {
        set_queries(j, seq, head, from, n_queries - from < ATTN_TILE ? n_queries - from : ATTN_TILE, group, w);
        int32_t end = w->end[w->tile.n_queries - 1];
        for (int32_t base = 0; base < end; base += ATTN_CHUNK) {
            compute_chunk(j, p, head, base, 0, w->end, w);
            for (int32_t t = 0; t < w->tile.n_queries; t++) {
                attn_state now = {w->tile.max[t], w->tile.sum[t], w->tile.acc + (size_t)t * (size_t)j->k->acc_stride};
                c->math->attention_merge(&w->states[t], &now, j->k->acc_stride);
            }
        }
        if (j->longest > seq->n_tokens) {
            compute_padding(j, p, head, seq->n_tokens, w);
        }
        finish_queries(j, seq, head, from, group, w);
    }
}

static void attend_task(void *context, int32_t task, int32_t thread) {
    const job *j = context;
    int32_t heads = planes_of(j->c)->n_heads;
    attend(j, j->seq >= 0 ? j->seq : task / heads, task % heads, &j->k->workers[thread]);
}

static void attention_one_by_one(job *j) {
    int32_t heads = planes_of(j->c)->n_heads;
    for (j->seq = 0; j->seq < j->c->batch->n_seqs; j->seq++) {
        if (j->k->way == BASELINE_GATHERED) {
            j->k->copied_bytes += (int64_t)(2 * v_bytes(j->c, j->c->batch->seqs[j->seq].n_tokens));
            thread_pool_run(j->c->thread_pool, gather_task, j, heads);
        }
        thread_pool_run(j->c->thread_pool, attend_task, j, heads);
    }
}

static void attention_padded(job *j) {
    int32_t parts = j->c->batch->n_seqs * planes_of(j->c)->n_heads;
    j->seq = -1;
    for (int32_t s = 0; s < j->c->batch->n_seqs; s++) {
        int32_t n = j->c->batch->seqs[s].n_tokens;
        j->longest = n > j->longest ? n : j->longest;
        j->k->copied_bytes += (int64_t)(2 * v_bytes(j->c, n));
    }
    thread_pool_run(j->c->thread_pool, gather_task, j, parts);
    thread_pool_run(j->c->thread_pool, attend_task, j, parts);
}

static void baseline_attention(backend *b, int32_t layer, buffer q, const attn_spec *spec, buffer out) {
    baseline_kv *k = (baseline_kv *)(uintptr_t)b->ops;
    job j = {.k = k, .c = (cpu_backend *)b, .spec = spec, .q = q, .out = out, .layer = layer};
    if (k->error != QUIRE_OK) {
        return;
    }
    if (k->way == BASELINE_PADDED) {
        attention_padded(&j);
    } else {
        attention_one_by_one(&j);
    }
}

/* ---- attach and detach ---- */

static quire_err open_workers(baseline_kv *k, const cpu_backend *c) {
    size_t n = (size_t)thread_pool_size(c->thread_pool), acc = (size_t)ATTN_TILE * (size_t)k->acc_stride,
           each = ATTN_TILE * ATTN_CHUNK + 2 * ATTN_TILE + 2 * acc;
    k->workers = mem_new(n, sizeof *k->workers);
    k->scratch = mem_new(n * each, sizeof *k->scratch);
    if (k->workers == NULL || k->scratch == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        worker *w = &k->workers[i];
        float *at = k->scratch + i * each;
        w->tile = (attn_tile){.d_head = planes_of(c)->key.width, .acc_stride = k->acc_stride, .type = planes_of(c)->key.type, .scores = at};
        w->tile.max = at + ATTN_TILE * ATTN_CHUNK;
        w->tile.sum = w->tile.max + ATTN_TILE;
        w->tile.acc = w->tile.sum + ATTN_TILE;
        for (size_t t = 0; t < ATTN_TILE; t++) {
            w->states[t].acc = w->tile.acc + acc + t * (size_t)k->acc_stride;
        }
    }
    return QUIRE_OK;
}

/* The arrays that pages are gathered into have room for the longest from the start. */
static quire_err open_pieces(baseline_kv *k, const cpu_backend *c) {
    size_t n = k->way == BASELINE_GROWING  ? (size_t)c->layout.n_caches * (size_t)k->max_seqs
               : k->way == BASELINE_PADDED ? (size_t)k->max_seqs
                                           : 1;
    k->pieces = mem_new(n, sizeof *k->pieces);
    if (k->pieces == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (size_t i = 0; k->way != BASELINE_GROWING && i < n; i++) {
        if (!piece_new(c, k->max_len, &k->pieces[i])) {
            return QUIRE_NO_MEMORY;
        }
        k->bytes += (int64_t)(k_bytes(c, k->max_len) + v_bytes(c, k->max_len));
    }
    return QUIRE_OK;
}

quire_err baseline_kv_attach(backend *b, baseline_kv_way way, int32_t max_seqs, int32_t max_len, baseline_kv **out) {
    const cpu_backend *c = (const cpu_backend *)b;
    if (c->layout.n_groups != 1 || planes_of(c)->key.type == DTYPE_I8 ||
        (way != BASELINE_GROWING && c->layout.page_tokens < CPU_KV_BLOCK)) {
        return QUIRE_UNSUPPORTED;
    }
    baseline_kv *k = mem_new(1, sizeof *k);
    if (k == NULL) {
        return QUIRE_NO_MEMORY;
    }
    k->ops = *b->ops;
    k->own = b->ops;
    k->b = b;
    k->way = way;
    k->max_seqs = max_seqs;
    k->max_len = (int32_t)size_align((size_t)max_len, (size_t)c->layout.page_tokens);
    k->acc_stride = (int32_t)size_align((size_t)planes_of(c)->key.width, 16);
    b->ops = &k->ops;
    quire_err e = open_workers(k, c);
    e = e == QUIRE_OK ? open_pieces(k, c) : e;
    if (e != QUIRE_OK) {
        baseline_kv_detach(k);
        return e;
    }
    k->ops.attention = baseline_attention;
    k->ops.kv_store = way == BASELINE_GROWING ? store_growing : k->own->kv_store;
    *out = k;
    return QUIRE_OK;
}

static size_t n_pieces(const baseline_kv *k) {
    return k->way == BASELINE_GROWING  ? (size_t)((const cpu_backend *)k->b)->layout.n_caches * (size_t)k->max_seqs
           : k->way == BASELINE_PADDED ? (size_t)k->max_seqs
                                       : 1;
}

void baseline_kv_clear(baseline_kv *k) {
    for (size_t i = 0; k->way == BASELINE_GROWING && i < n_pieces(k); i++) {
        piece_free(&k->pieces[i]);
    }
    k->bytes = k->way == BASELINE_GROWING ? 0 : k->bytes;
}

void baseline_kv_detach(baseline_kv *k) {
    if (k == NULL) {
        return;
    }
    k->b->ops = k->own;
    for (size_t i = 0; k->pieces != NULL && i < n_pieces(k); i++) {
        piece_free(&k->pieces[i]);
    }
    mem_free(k->pieces);
    mem_free(k->workers);
    mem_free(k->scratch);
    mem_free(k);
}

int64_t baseline_kv_copied_bytes(const baseline_kv *k) {
    return k->copied_bytes;
}

int64_t baseline_kv_bytes(const baseline_kv *k) {
    return k->bytes;
}

quire_err baseline_kv_error(const baseline_kv *k) {
    return k->error;
}

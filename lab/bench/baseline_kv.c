#include "lab/bench/baseline_kv.h"

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/math.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"

/* Keys and values of one sequence in one cache, contiguous, which baselines use instead
 * of pages.
 *
 * The blocks have the CPU backend's layout (backend/cpu/pages.h), so that the engine's
 * own kernels can read them. Elements are f32, f16 or bf16. */

/* k: [kv heads][blocks of 16][d_head][16], v: [kv heads][cap][d_head], in the arena. */
typedef struct kv_piece {
    uint8_t *k, *v;
    int32_t n, cap; /* tokens held, capacity in tokens */
} kv_piece;

static inline int32_t kv_piece_blocks(int32_t n) {
    return (n + CPU_KV_BLOCK - 1) / CPU_KV_BLOCK;
}

enum { READ_AHEAD = 64 }; /* bytes that kernels read after the last value */

static size_t row_bytes(const kv_planes *l) {
    return (size_t)l->key.row_bytes;
}

static size_t k_bytes(const kv_planes *l, int32_t cap) {
    return row_bytes(l) * (size_t)l->n_heads * (size_t)(kv_piece_blocks(cap) * CPU_KV_BLOCK);
}

static size_t v_bytes(const kv_planes *l, int32_t cap) {
    return row_bytes(l) * (size_t)l->n_heads * (size_t)cap;
}

/* Bytes that kv_piece_in needs for a piece, a multiple of 64. */
static size_t kv_piece_room(const kv_planes *l, int32_t cap) {
    return size_align(k_bytes(l, cap) + READ_AHEAD, READ_AHEAD) +
           size_align(v_bytes(l, cap) + READ_AHEAD, READ_AHEAD);
}

/* Makes an empty piece in memory[0..kv_piece_room), which must outlive it. */
static kv_piece kv_piece_in(const kv_planes *l, int32_t cap, uint8_t *memory) {
    return (kv_piece){
        .k = memory, .v = memory + size_align(k_bytes(l, cap) + READ_AHEAD, READ_AHEAD), .cap = cap};
}

/* Writes x[0..n) to elements index, index + stride, ..., rounded to the cache's type. */
static void baseline_kv_write_row(dtype type, void *plane, size_t index, size_t stride, const float *x,
                                  int32_t n) {
    for (size_t e = 0; e < (size_t)n; e++) {
        if (type == DTYPE_F32) {
            ((float *)plane)[index + e * stride] = x[e];
        } else {
            ((uint16_t *)plane)[index + e * stride] =
                type == DTYPE_BF16 ? f32_to_bf16(x[e]) : f32_to_f16(x[e]);
        }
    }
}

/* Appends a token, for which there must be room: key and value of every head as f32,
 * rounded to the cache's type. */
static void kv_piece_store(const kv_planes *l, kv_piece *p, const float *key, const float *value) {
    size_t d = (size_t)l->key.width, at = (size_t)p->n;
    for (size_t head = 0; head < (size_t)l->n_heads; head++) {
        size_t block = head * (size_t)kv_piece_blocks(p->cap) + at / CPU_KV_BLOCK;
        baseline_kv_write_row(l->key.type, p->k, block * d * CPU_KV_BLOCK + at % CPU_KV_BLOCK, CPU_KV_BLOCK,
                              key + head * d, l->key.width);
        baseline_kv_write_row(l->key.type, p->v, (head * (size_t)p->cap + at) * d, 1, value + head * d,
                              l->key.width);
    }
    p->n++;
}

/* Points the tile's blocks to a head's positions from base, a multiple of a block, on. */
static void kv_piece_find(const kv_planes *l, const kv_piece *p, int32_t head, int32_t base,
                          attn_tile *tile) {
    size_t row = row_bytes(l), n_blocks = (size_t)l->n_heads * (size_t)kv_piece_blocks(p->cap);
    tile->fetch_k_bytes = tile->fetch_v_bytes = (int32_t)row * CPU_KV_BLOCK;
    for (int32_t i = 0; i < ATTN_BLOCKS && base / CPU_KV_BLOCK + i < kv_piece_blocks(p->cap); i++) {
        size_t block = (size_t)head * (size_t)kv_piece_blocks(p->cap) + (size_t)(base / CPU_KV_BLOCK + i);
        tile->k_blocks[i] = p->k + row * CPU_KV_BLOCK * block;
        tile->v_blocks[i] = p->v + row * ((size_t)head * (size_t)p->cap + (size_t)(base + i * CPU_KV_BLOCK));
        /* as over pages (attn_pages_fetch_next): its own values, then the keys a chunk
         * ahead; after the last chunk, the next head's keys */
        size_t ahead = block + ATTN_BLOCKS < n_blocks ? block + ATTN_BLOCKS : block;
        tile->fetch_k[i] = tile->v_blocks[i];
        tile->fetch_v[i] = p->k + row * CPU_KV_BLOCK * ahead;
    }
}

struct baseline_kv {
    backend_ops ops; /* first member: the attached backend's op table */
    const backend_ops *own;
    backend *b;
    int32_t max_seqs, max_len;
    int32_t acc_stride;    /* that of the widest cache */
    kv_piece *pieces;      /* [caches][max_seqs] */
    attn_scratch *workers; /* [thread pool] */
    float *scratch;
    uint8_t *arena; /* memory of the pieces */
    quire_err error;
};

/* One call of an op, as the thread pool's tasks read it. */
typedef struct job {
    attn_job op; /* for the engine's own attention, without a work list */
    baseline_kv *k;
    cpu_backend *c;
    int32_t seq;
} job;

static kv_piece *piece_of(const baseline_kv *k, int32_t cache, int32_t seq) {
    return &k->pieces[cache * k->max_seqs + seq];
}

/* Norms and rotates as usual without storing to pages (rows have no slots), then appends
 * the rows to their sequences' pieces. */
static void store_in_pieces(backend *b, const kv_store_use *use) {
    baseline_kv *k = (baseline_kv *)(uintptr_t)b->ops;
    cpu_backend *c = (cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[use->cache];
    k->own->kv_store(b, use);
    for (int32_t s = 0; use->k.id >= 0 && s < c->batch->n_seqs; s++) {
        const batch_seq *seq = &c->batch->seqs[s];
        kv_piece *p = piece_of(k, use->cache, s);
        if (p->n != seq->n_tokens - seq->n_rows || seq->n_tokens > k->max_len) {
            k->error = QUIRE_INVALID;
            return;
        }
        for (int32_t i = 0; i < seq->n_rows; i++) {
            kv_piece_store(l, p, cpu_act_row(c, use->k, seq->row0 + i),
                           cpu_act_row(c, use->v, seq->row0 + i));
        }
    }
}

/* ---- attention over a piece ---- */

static int32_t baseline_kv_clamp(int32_t v, int32_t high) {
    return v < 0 ? 0 : v > high ? high : v;
}

/* Computes attention of the tile's queries to positions base .. base + ATTN_CHUNK of the
 * piece. False: no query sees any of them. */
static bool compute_chunk(const job *j, const kv_piece *p, int32_t head, int32_t base, attn_scratch *w) {
    bool any = false;
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        w->tile.first[t] = baseline_kv_clamp(w->first[t] - base, ATTN_CHUNK);
        w->tile.end[t] = baseline_kv_clamp(w->end[t] - base, ATTN_CHUNK);
        any = any || w->tile.first[t] < w->tile.end[t];
    }
    if (!any) {
        return false;
    }
    kv_piece_find(j->op.planes, p, head, base, &w->tile);
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        w->tile.position[t] -= base;
    }
    j->c->math->attention_tile(&w->tile);
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        w->tile.position[t] += base;
    }
    return true;
}

static void finish_queries(const job *j, attn_scratch *w) {
    const float *sinks = j->op.spec->sinks;
    for (int32_t t = 0; t < w->tile.n_queries; t++) {
        int64_t head = w->row_head[t] % j->op.max_heads;
        j->c->math->attention_finish(&w->states[t], sinks != NULL ? sinks + head : NULL, w->tile.d_value,
                                     w->out[t]);
    }
}

/* Task: one kv head of the job's sequence. */
static void attend_task(void *context, int32_t head, int32_t thread) {
    const job *j = context;
    attn_scratch *w = &j->k->workers[thread];
    const batch_seq *seq = &j->c->batch->seqs[j->seq];
    const kv_piece *p = piece_of(j->k, j->op.cache, j->seq);
    attn_item item = {.seq = j->seq, .row0 = seq->row0, .n_rows = seq->n_rows};
    int32_t n_queries = seq->n_rows * j->op.group_size;
    attn_tile_begin(&j->op, &w->tile);
    for (int32_t from = 0; from < n_queries; from += ATTN_TILE) {
        attn_set_queries(&j->op, &item, head, from,
                         n_queries - from < ATTN_TILE ? n_queries - from : ATTN_TILE, w);
        for (int32_t base = 0; base < seq->n_tokens; base += ATTN_CHUNK) {
            bool any = compute_chunk(j, p, head, base, w);
            for (int32_t t = 0; any && t < w->tile.n_queries; t++) {
                attn_state now = {w->tile.max[t], w->tile.sum[t],
                                  w->tile.acc + (size_t)t * (size_t)w->tile.acc_stride};
                j->c->math->attention_merge(&w->states[t], &now, 1, w->tile.acc_stride);
            }
        }
        finish_queries(j, w);
    }
}

static void baseline_attention(backend *b, int32_t cache, buffer q, const attn_spec *spec, buffer out) {
    baseline_kv *k = (baseline_kv *)(uintptr_t)b->ops;
    cpu_backend *c = (cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[cache];
    int32_t n_heads = c->buffers[q.id].width / l->key.width;
    job j = {.k = k, .c = c};
    j.op = (attn_job){.b = c,
                      .spec = spec,
                      .planes = l,
                      .cache = cache,
                      .n_heads = n_heads,
                      .max_heads = n_heads,
                      .group_size = n_heads / l->n_heads,
                      .d_value = l->value.width,
                      .q = q,
                      .out = out};
    if (k->error != QUIRE_OK) {
        return;
    }
    for (; j.seq < c->batch->n_seqs; j.seq++) {
        thread_pool_run(c->thread_pool, attend_task, &j, l->n_heads);
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
        attn_scratch *w = &k->workers[i];
        float *at = k->scratch + i * each;
        w->tile.scores = at;
        w->tile.max = at + ATTN_TILE * ATTN_CHUNK;
        w->tile.sum = w->tile.max + ATTN_TILE;
        w->tile.acc = w->tile.sum + ATTN_TILE;
        for (size_t t = 0; t < ATTN_TILE; t++) {
            w->states[t].acc = w->tile.acc + acc + t * (size_t)k->acc_stride;
        }
    }
    return QUIRE_OK;
}

static size_t n_pieces(const baseline_kv *k) {
    return (size_t)((const cpu_backend *)k->b)->layout.n_caches * (size_t)k->max_seqs;
}

/* Allocates the pieces contiguously in huge pages, like the pool's pages. */
static quire_err open_pieces(baseline_kv *k, const cpu_backend *c) {
    size_t room = 0, at = 0;
    k->pieces = mem_new(n_pieces(k), sizeof *k->pieces);
    for (size_t i = 0; i < n_pieces(k); i++) {
        room += kv_piece_room(&c->layout.caches[i / (size_t)k->max_seqs], k->max_len);
    }
    k->arena = mem_new_huge(room, 1);
    if (k->pieces == NULL || k->arena == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (size_t i = 0; i < n_pieces(k); i++) {
        const kv_planes *l = &c->layout.caches[i / (size_t)k->max_seqs];
        k->pieces[i] = kv_piece_in(l, k->max_len, k->arena + at);
        at += kv_piece_room(l, k->max_len);
    }
    return QUIRE_OK;
}

static bool can_attach(const kv_layout *l) {
    bool can = l->n_caches > 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        const kv_planes *p = &l->caches[i];
        can = can && (p->kind == LAYER_FULL || p->kind == LAYER_WINDOW) && p->key.scale_bytes == 0 &&
              p->key.type == p->value.type && p->key.width == p->value.width;
    }
    return can;
}

static int32_t widest_head(const kv_layout *l) {
    int32_t widest = 0;
    for (int32_t i = 0; i < l->n_caches; i++) {
        widest = l->caches[i].key.width > widest ? l->caches[i].key.width : widest;
    }
    return widest;
}

quire_err baseline_kv_attach(backend *b, int32_t max_seqs, int32_t max_len, baseline_kv **out) {
    const cpu_backend *c = (const cpu_backend *)b;
    if (!can_attach(&c->layout)) {
        return QUIRE_UNSUPPORTED;
    }
    baseline_kv *k = mem_new(1, sizeof *k);
    if (k == NULL) {
        return QUIRE_NO_MEMORY;
    }
    k->ops = *b->ops;
    k->own = b->ops;
    k->b = b;
    k->max_seqs = max_seqs;
    k->max_len = (int32_t)size_align((size_t)max_len, (size_t)c->layout.page_tokens);
    k->acc_stride = (int32_t)size_align((size_t)widest_head(&c->layout), 16);
    b->ops = &k->ops;
    quire_err e = open_workers(k, c);
    TRY_DONE(e, open_pieces(k, c));
done:
    if (e != QUIRE_OK) {
        baseline_kv_detach(k);
        return e;
    }
    k->ops.attention = baseline_attention;
    k->ops.kv_store = store_in_pieces;
    *out = k;
    return QUIRE_OK;
}

void baseline_kv_clear(baseline_kv *k) {
    for (size_t i = 0; i < n_pieces(k); i++) {
        k->pieces[i].n = 0;
    }
}

void baseline_kv_detach(baseline_kv *k) {
    if (k == NULL) {
        return;
    }
    k->b->ops = k->own;
    mem_free(k->pieces);
    mem_free(k->arena);
    mem_free(k->workers);
    mem_free(k->scratch);
    mem_free(k);
}

quire_err baseline_kv_error(const baseline_kv *k) {
    return k->error;
}

/* KV pages in memory: writes keys and values at slots, reads them back, copies and moves them. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"

#define READ_AHEAD_BYTES 64 /* attention reads whole vectors, past the last value row */

quire_err cpu_kv_open(backend *b, int32_t n_pages, quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    size_t bytes;
    if (n_pages < 1 || !size_mul((size_t)n_pages, (size_t)c->layout.page_bytes, &bytes) || !size_add(bytes, READ_AHEAD_BYTES, &bytes)) {
        return err_set(err, QUIRE_INVALID, -1, "%d KV pages of %lld bytes", n_pages, (long long)c->layout.page_bytes);
    }
    uint8_t *kv = cpu_new_spread(c, bytes);
    if (kv == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for %d KV pages of %lld bytes; lower --kv-pages or --memory-utilization",
                       n_pages, (long long)c->layout.page_bytes);
    }
    mem_free(c->kv);
    c->kv = kv;
    c->n_pages = n_pages;
    return QUIRE_OK;
}

bool cpu_kv_discard(backend *b, int32_t first, int32_t n) {
    cpu_backend *c = (cpu_backend *)b;
    assert(first >= 0 && n >= 0 && n <= c->n_pages - first);
    return mem_give_back(c->kv + (int64_t)first * c->layout.page_bytes, (size_t)n * (size_t)c->layout.page_bytes);
}

void cpu_kv_copy(backend *b, const kv_copy_pair *pairs, int32_t n) {
    cpu_backend *c = (cpu_backend *)b;
    for (int32_t i = 0; i < n; i++) {
        cpu_kv_read_page(b, pairs[i].src, c->kv + (int64_t)pairs[i].dst * c->layout.page_bytes);
    }
}

void cpu_kv_read_page(backend *b, int32_t page, void *host) {
    cpu_backend *c = (cpu_backend *)b;
    assert(page >= 0 && page < c->n_pages);
    memcpy(host, c->kv + (int64_t)page * c->layout.page_bytes, (size_t)c->layout.page_bytes);
}

void cpu_kv_write_page(backend *b, int32_t page, const void *host) {
    cpu_backend *c = (cpu_backend *)b;
    assert(page >= 0 && page < c->n_pages);
    memcpy(c->kv + (int64_t)page * c->layout.page_bytes, host, (size_t)c->layout.page_bytes);
}

/* One head's key and value of one token, from slot to slot. */
static void move_head(const cpu_backend *b, int32_t cache, int32_t head, kv_slot src, kv_slot dst) {
    const kv_planes *l = &b->layout.caches[cache];
    size_t size = cpu_kv_element_bytes(l);
    size_t stride = size * (size_t)cpu_kv_block(l);
    int32_t src_page = (int32_t)(src.v / l->page_tokens), dst_page = (int32_t)(dst.v / l->page_tokens);
    int32_t src_offset = (int32_t)(src.v % l->page_tokens), dst_offset = (int32_t)(dst.v % l->page_tokens);
    const uint8_t *k_src = cpu_kv_plane(b, src_page, cache, KV_PLANE_K) + size * (size_t)cpu_k_index(l, head, src_offset);
    uint8_t *k_dst = cpu_kv_plane(b, dst_page, cache, KV_PLANE_K) + size * (size_t)cpu_k_index(l, head, dst_offset);
    for (size_t e = 0; e < (size_t)l->key.width; e++) {
        memcpy(k_dst + e * stride, k_src + e * stride, size);
    }
    memmove(cpu_kv_plane(b, dst_page, cache, KV_PLANE_V) + size * (size_t)cpu_v_index(l, head, dst_offset),
            cpu_kv_plane(b, src_page, cache, KV_PLANE_V) + size * (size_t)cpu_v_index(l, head, src_offset), size * (size_t)l->key.width);
}

static void move_token(const cpu_backend *b, int32_t cache, kv_slot src, kv_slot dst) {
    for (int32_t head = 0; head < b->layout.caches[cache].n_heads; head++) {
        if (b->layout.type == DTYPE_I8) {
            cpu_int8_move(b, cache, head, src, dst);
        } else {
            move_head(b, cache, head, src, dst);
        }
    }
}

void cpu_kv_move(backend *b, const kv_move_pair *pairs, int32_t n) {
    cpu_backend *c = (cpu_backend *)b;
    const kv_layout *l = &c->layout;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t cache = 0; cache < l->n_caches && pairs[i].src.v != pairs[i].dst.v; cache++) {
            if (l->caches[cache].group == pairs[i].group) {
                move_token(c, cache, pairs[i].src, pairs[i].dst);
            }
        }
    }
}

static float read_element(dtype type, const uint8_t *plane, int64_t index) {
    if (type == DTYPE_F32) {
        return ((const float *)(const void *)plane)[index];
    }
    uint16_t half = ((const uint16_t *)(const void *)plane)[index];
    return type == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* Writes one head's x[0..n) to elements index, index + stride, ... of a plane, rounded to its type. */
static void write_head(const cpu_backend *b, uint8_t *plane, int64_t index, int32_t stride, const float *x, int32_t n) {
    if (b->layout.type == DTYPE_F32) {
        float *to = (float *)(void *)plane + index;
        for (int32_t e = 0; e < n; e++) {
            to[(int64_t)e * stride] = x[e];
        }
        return;
    }
    uint16_t halves[DESC_MAX_HEAD], *to = (uint16_t *)(void *)plane + index;
    b->math->narrow(b->layout.type, x, n, halves);
    for (int32_t e = 0; e < n; e++) {
        to[(int64_t)e * stride] = halves[e];
    }
}

void cpu_kv_gather(backend *b, int32_t cache, const int32_t *pages, int32_t n_tokens, float *k, float *v) {
    const cpu_backend *c = (const cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[cache];
    int32_t block = cpu_kv_block(l);
    for (int32_t t = 0; t < n_tokens; t++) {
        int32_t page = pages[t / l->page_tokens], offset = t % l->page_tokens;
        const uint8_t *k_plane = cpu_kv_plane(c, page, cache, KV_PLANE_K), *v_plane = cpu_kv_plane(c, page, cache, KV_PLANE_V);
        for (int32_t head = 0; head < l->n_heads; head++) {
            int64_t row = ((int64_t)t * l->n_heads + head) * l->key.width;
            if (l->key.type == DTYPE_I8) {
                cpu_int8_read(c, cache, head, (kv_slot){(int64_t)page * l->page_tokens + offset}, k + row, v + row);
                continue;
            }
            for (int32_t e = 0; e < l->key.width; e++) {
                k[row + e] = read_element(l->key.type, k_plane, cpu_k_index(l, head, offset) + (int64_t)e * block);
                v[row + e] = read_element(l->key.type, v_plane, cpu_v_index(l, head, offset) + e);
            }
        }
    }
}

typedef struct store_job {
    const cpu_backend *b;
    const kv_store_use *use;
    const kv_planes *planes;
} store_job;

/* What a row is multiplied by for its position. */
static float position_scale(const store_job *job, int32_t row) {
    const kv_store_use *use = job->use;
    const batch *step = job->b->batch;
    int64_t position = (int64_t)step->positions[(int64_t)row * step->n_axes] + use->scale_offset;
    return 1.0f + use->scale_slope * (float)log(1.0 + (double)(position / use->scale_length));
}

/* Norms, clips and rotates one activation row of queries or keys, in place. */
static void prepare_row(const store_job *job, buffer a, const norm *nm, const rope *r, bool after, int32_t row) {
    float *x = cpu_act_row(job->b, a, row);
    int32_t width = job->b->buffers[a.id].width, d_head = job->planes->key.width;
    float clip = job->use->clip;
    if (nm != NULL && !after) {
        cpu_norm_row(job->b, nm, x, width, x);
    }
    for (int32_t i = 0; clip > 0.0f && i < width; i++) {
        x[i] = x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
    }
    if (r != NULL) {
        cpu_rope_row(job->b, r, row, d_head, x, width);
    }
    if (nm != NULL && after) {
        cpu_norm_row(job->b, nm, x, width, x);
    }
}

static void scale_row(const store_job *job, int32_t row) {
    float *q = cpu_act_row(job->b, job->use->q, row), scale = position_scale(job, row);
    for (int32_t i = 0; i < job->b->buffers[job->use->q.id].width; i++) {
        q[i] *= scale;
    }
}

static void write_row(const store_job *job, int32_t row, int64_t slot) {
    const cpu_backend *b = job->b;
    const kv_planes *l = job->planes;
    int32_t cache = job->use->cache, width = l->key.width;
    const float *k = cpu_act_row(b, job->use->k, row), *v = cpu_act_row(b, job->use->v, row);
    int32_t page = (int32_t)(slot / l->page_tokens), offset = (int32_t)(slot % l->page_tokens);
    assert(page < b->n_pages);
    uint8_t *k_plane = cpu_kv_plane(b, page, cache, KV_PLANE_K), *v_plane = cpu_kv_plane(b, page, cache, KV_PLANE_V);
    for (int32_t head = 0; head < l->n_heads; head++, k += width, v += width) {
        if (l->key.type == DTYPE_I8) {
            cpu_int8_store(b, cache, head, (kv_slot){slot}, k, v);
        } else {
            write_head(b, k_plane, cpu_k_index(l, head, offset), cpu_kv_block(l), k, width);
            write_head(b, v_plane, cpu_v_index(l, head, offset), 1, v, width);
        }
    }
}

static void store_row(void *context, int32_t row, int32_t worker) {
    const store_job *job = context;
    const kv_store_use *use = job->use;
    (void)worker;
    prepare_row(job, use->q, use->q_norm, use->rope, use->norm_after_rope, row);
    if (use->scale_slope != 0.0f) {
        scale_row(job, row);
    }
    if (use->k.id == BUFFER_NONE.id) {
        return;
    }
    prepare_row(job, use->k, use->k_norm, use->rope, use->norm_after_rope, row);
    prepare_row(job, use->v, use->v_norm, NULL, false, row);
    int64_t slot = job->b->batch->slots[job->planes->group][row].v;
    if (slot >= 0) {
        write_row(job, row, slot);
    }
}

void cpu_kv_store(backend *b, const kv_store_use *use) {
    cpu_backend *c = (cpu_backend *)b;
    store_job job = {c, use, &c->layout.caches[use->cache]};
    cpu_share_rows(c, store_row, &job, c->batch->n_rows); /* successive tokens of a page share its cache lines of keys */
}

/* KV pages in memory: writes keys and values to slots, reads them back, and copies and
 * moves them. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "backend/cpu/adapter.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"

#define READ_AHEAD_BYTES 64 /* attention reads whole vectors past the last value row */

quire_err cpu_kv_open(backend *b, int32_t n_pages, quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    size_t bytes;
    if (n_pages < 1 || !size_mul((size_t)n_pages, (size_t)c->layout.page_bytes, &bytes) ||
        !size_add(bytes, READ_AHEAD_BYTES, &bytes)) {
        return err_set(err, QUIRE_INVALID, -1, "%d KV pages of %lld bytes", n_pages,
                       (long long)c->layout.page_bytes);
    }
    uint8_t *kv = cpu_new_spread(c, bytes);
    if (kv == NULL) {
        return err_set(
            err, QUIRE_NO_MEMORY, -1,
            "out of memory for %d KV pages of %lld bytes; lower --kv-pages or --memory-utilization", n_pages,
            (long long)c->layout.page_bytes);
    }
    mem_free(c->kv);
    c->kv = kv;
    c->n_pages = n_pages;
    return QUIRE_OK;
}

bool cpu_kv_discard(backend *b, int32_t first, int32_t n) {
    cpu_backend *c = (cpu_backend *)b;
    assert(first >= 0 && n >= 0 && n <= c->n_pages - first);
    return mem_give_back(c->kv + (int64_t)first * c->layout.page_bytes,
                         (size_t)n * (size_t)c->layout.page_bytes);
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

/* A head's row in a slot, and its scale. */
static cpu_row row_at(const cpu_backend *b, int32_t cache, kv_plane_kind kind, int32_t head, kv_slot slot,
                      float **scale) {
    const kv_planes *l = &b->layout.caches[cache];
    const kv_plane *plane = cpu_plane_of(l, kind);
    const int32_t page = (int32_t)(slot.v / l->page_tokens), offset = (int32_t)(slot.v % l->page_tokens);
    uint8_t *bytes = cpu_kv_plane(b, page, cache, kind);
    float *scales = cpu_kv_scales(l, kind, bytes, head);
    *scale = scales != NULL ? scales + offset : NULL;
    return cpu_row_at(plane->type, kind, plane->row_bytes, l->page_tokens, bytes + cpu_kv_head(l, kind, head),
                      offset);
}

static void move_row(const cpu_backend *b, int32_t cache, kv_plane_kind kind, int32_t head, kv_slot src,
                     kv_slot dst) {
    float *from_scale, *to_scale;
    const cpu_row from = row_at(b, cache, kind, head, src, &from_scale),
                  to = row_at(b, cache, kind, head, dst, &to_scale);
    cpu_row_copy(from, to, 1);
    if (to_scale != NULL) {
        *to_scale = *from_scale;
    }
}

static void move_token(const cpu_backend *b, int32_t cache, kv_slot src, kv_slot dst) {
    const kv_planes *l = &b->layout.caches[cache];
    for (int32_t head = 0; head < l->n_heads; head++) {
        move_row(b, cache, KV_PLANE_K, head, src, dst);
        if (l->kind != LAYER_LATENT) {
            move_row(b, cache, KV_PLANE_V, head, src, dst);
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

static void decode_row(const kv_plane *plane, const uint8_t *bytes, float scale, float *x) {
    int8_t integers[CPU_MAX_ROW];
    if (plane->type == DTYPE_I4) {
        cpu_int4_decode(bytes, plane->width, integers);
    }
    for (int32_t e = 0; e < plane->width; e++) {
        uint16_t half;
        switch (plane->type) {
        case DTYPE_F32:
            memcpy(&x[e], bytes + 4 * e, sizeof *x);
            break;
        case DTYPE_F8_E4M3:
            x[e] = f16_to_f32(e4m3_to_f16_bits(bytes[e])) * scale;
            break;
        case DTYPE_I8:
            x[e] = (float)(int8_t)bytes[e] * scale;
            break;
        case DTYPE_I4:
            x[e] = (float)integers[e] * scale;
            break;
        default:
            memcpy(&half, bytes + 2 * e, sizeof half);
            x[e] = plane->type == DTYPE_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
        }
    }
}

static void pages_read_row(const cpu_backend *b, int32_t cache, kv_plane_kind kind, int32_t head,
                           kv_slot slot, float *x) {
    _Alignas(float) uint8_t bytes[CPU_MAX_ROW];
    float *scale;
    cpu_row_get(row_at(b, cache, kind, head, slot, &scale), bytes);
    decode_row(cpu_plane_of(&b->layout.caches[cache], kind), bytes, scale != NULL ? *scale : 1.0f, x);
}

void cpu_kv_gather(backend *b, int32_t cache, const int32_t *pages, int32_t n_tokens, float *k, float *v) {
    const cpu_backend *c = (const cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[cache];
    for (int32_t t = 0; t < n_tokens; t++) {
        const kv_slot slot = {(int64_t)pages[t / l->page_tokens] * l->page_tokens + t % l->page_tokens};
        for (int32_t head = 0; head < l->n_heads; head++) {
            const int64_t row = (int64_t)t * l->n_heads + head;
            pages_read_row(c, cache, KV_PLANE_K, head, slot, k + row * l->key.width);
            if (l->kind != LAYER_LATENT) {
                pages_read_row(c, cache, KV_PLANE_V, head, slot, v + row * l->value.width);
            }
        }
    }
}

typedef struct store_job {
    const cpu_backend *b;
    const kv_store_use *use;
    const kv_planes *planes;
} store_job;

/* The scaling factor that all heads share. */
static float shared_query_scale(const query_scale *s, int64_t position) {
    if (s->power != 0.0f) {
        return (float)exp((double)s->power * log1p((double)position / (double)s->length));
    }
    return 1.0f + s->slope * (float)log(1.0 + (double)(position / s->length));
}

void cpu_scale_queries(const cpu_backend *b, const query_scale *s, int32_t row, int32_t n_heads, float *q,
                       int32_t width) {
    if (s->slopes == NULL && s->slope == 0.0f && s->power == 0.0f) {
        return;
    }
    const int64_t position = b->batch->positions[(int64_t)row * b->batch->n_axes];
    const int32_t d_head = width / n_heads;
    const float grown =
        s->slopes != NULL ? (float)log((double)(position + 1)) : shared_query_scale(s, position + s->offset);
    for (int32_t h = 0; h < n_heads; h++) {
        const float scale = s->slopes != NULL ? s->slopes[h] * grown + s->biases[h] : grown;
        for (int32_t i = 0; i < d_head; i++) {
            q[h * d_head + i] *= scale;
        }
    }
}

/* Norms, clips and rotates one row of queries or keys in place. */
static void prepare_row(const store_job *job, buffer a, const norm *nm, const rope *r, bool after,
                        int32_t row) {
    float *x = cpu_act_row(job->b, a, row);
    int32_t width = job->b->buffers[a.id].width, d_head = job->planes->key.width;
    float clip = job->use->clip;
    if (nm != NULL && !after) {
        cpu_norm_row(job->b, adapter_norm_of(job->b, nm, row), x, width, x);
    }
    for (int32_t i = 0; clip > 0.0f && i < width; i++) {
        x[i] = x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
    }
    if (r != NULL) {
        cpu_rope_row(job->b, r, row, d_head, x, width);
    }
    if (nm != NULL && after) {
        cpu_norm_row(job->b, adapter_norm_of(job->b, nm, row), x, width, x);
    }
}

/* Rounds x[0..width) to the plane's type. Returns the row's scale: NaN if some x is not
 * finite; 0 for types without scales. fixed: a given scale for fp8_e4m3; 0: computed from
 * the row. */
static float encode_row(const cpu_backend *b, const kv_plane *plane, const float *x, float fixed,
                        uint8_t *bytes) {
    int32_t n = plane->width, sum;
    switch (plane->type) {
    case DTYPE_F32:
        memcpy(bytes, x, sizeof *x * (size_t)n);
        return 0.0f;
    case DTYPE_F8_E4M3:
        return cpu_fp8_encode(x, n, fixed, bytes);
    case DTYPE_I8:
        memset(bytes + n, 0, (size_t)(plane->row_bytes - n));
        return b->math->narrow_int8(x, n, (int8_t *)bytes, &sum);
    case DTYPE_I4:
        return cpu_int4_encode(plane, x, bytes);
    default:
        b->math->narrow(plane->type, x, n, (uint16_t *)(void *)bytes);
        return 0.0f;
    }
}

bool cpu_kv_write_row(const cpu_backend *b, int32_t cache, kv_plane_kind kind, int32_t head, kv_slot slot,
                      const float *x, float fixed) {
    _Alignas(float) uint8_t bytes[CPU_MAX_ROW];
    float *scale;
    const cpu_row to = row_at(b, cache, kind, head, slot, &scale);
    const float rounded = encode_row(b, cpu_plane_of(&b->layout.caches[cache], kind), x, fixed, bytes);
    cpu_row_put(to, bytes);
    if (scale != NULL) {
        *scale = rounded;
    }
    return !isnan(rounded);
}

/* Makes a token's key for one head not finite. */
static void poison_key(const store_job *job, int32_t head, kv_slot slot) {
    float *scale;
    const cpu_row to = row_at(job->b, job->use->cache, KV_PLANE_K, head, slot, &scale);
    if (scale != NULL) {
        *scale = NAN;
        return;
    }
    for (int32_t i = 0; i < to.n; i++) {
        memset(to.at + i * to.stride, 0xff, (size_t)to.unit);
    }
}

static void write_token(const store_job *job, int32_t row, kv_slot slot) {
    const kv_planes *l = job->planes;
    const float *k = cpu_act_row(job->b, job->use->k, row), *v = cpu_act_row(job->b, job->use->v, row);
    const kv_store_use *use = job->use;
    assert(slot.v / l->page_tokens < job->b->n_pages);
    for (int32_t head = 0; head < l->n_heads; head++, k += l->key.width, v += l->value.width) {
        cpu_kv_write_row(job->b, use->cache, KV_PLANE_K, head, slot, k,
                         use->k_scales != NULL ? use->k_scales[head] : 0.0f);
        if (!cpu_kv_write_row(job->b, use->cache, KV_PLANE_V, head, slot, v,
                              use->v_scales != NULL ? use->v_scales[head] : 0.0f)) {
            poison_key(job, head, slot);
        }
    }
}

static void store_row(void *context, int32_t row, int32_t worker) {
    const store_job *job = context;
    const kv_store_use *use = job->use;
    (void)worker;
    prepare_row(job, use->q, use->q_norm, use->rope, use->norm_after_rope, row);
    const int32_t width = job->b->buffers[use->q.id].width;
    cpu_scale_queries(job->b, &use->scale, row, width / job->planes->key.width,
                      cpu_act_row(job->b, use->q, row), width);
    if (use->k.id == BUFFER_NONE.id) {
        return;
    }
    prepare_row(job, use->k, use->k_norm, use->rope, use->norm_after_rope, row);
    prepare_row(job, use->v, use->v_norm, NULL, false, row);
    const kv_slot slot = job->b->batch->slots[job->planes->group][row];
    if (slot.v >= 0) {
        write_token(job, row, slot);
    }
}

void cpu_kv_store(backend *b, const kv_store_use *use) {
    cpu_backend *c = (cpu_backend *)b;
    store_job job = {c, use, &c->layout.caches[use->cache]};
    /* adjacent tokens of a page share cache lines of keys */
    cpu_share_rows(c, store_row, &job, c->batch->n_rows);
}

#include "lab/bench/kv_piece.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"

enum { READ_AHEAD = 64 }; /* bytes that kernels read past the last value */

static size_t row_bytes(const kv_planes *l) {
    return (size_t)l->key.row_bytes;
}

static size_t k_bytes(const kv_planes *l, int32_t cap) {
    return row_bytes(l) * (size_t)l->n_heads * (size_t)(kv_piece_blocks(cap) * CPU_KV_BLOCK);
}

static size_t v_bytes(const kv_planes *l, int32_t cap) {
    return row_bytes(l) * (size_t)l->n_heads * (size_t)cap;
}

bool kv_piece_new(const kv_planes *l, int32_t cap, kv_piece *out) {
    out->k = mem_new(k_bytes(l, cap) + READ_AHEAD, 1);
    out->v = mem_new(v_bytes(l, cap) + READ_AHEAD, 1);
    out->cap = cap;
    out->n = 0;
    return out->k != NULL && out->v != NULL;
}

size_t kv_piece_room(const kv_planes *l, int32_t cap) {
    return size_align(k_bytes(l, cap) + READ_AHEAD, READ_AHEAD) +
           size_align(v_bytes(l, cap) + READ_AHEAD, READ_AHEAD);
}

kv_piece kv_piece_in(const kv_planes *l, int32_t cap, uint8_t *memory) {
    return (kv_piece){.k = memory,
                      .v = memory + size_align(k_bytes(l, cap) + READ_AHEAD, READ_AHEAD),
                      .cap = cap,
                      .borrowed = true};
}

void kv_piece_free(kv_piece *p) {
    if (!p->borrowed) {
        mem_free(p->k);
        mem_free(p->v);
    }
    *p = (kv_piece){0};
}

int64_t kv_piece_bytes(const kv_planes *l, int32_t cap) {
    return (int64_t)(k_bytes(l, cap) + v_bytes(l, cap));
}

int64_t kv_piece_token_bytes(const kv_planes *l, int32_t n) {
    return (int64_t)(2 * v_bytes(l, n));
}

void kv_piece_copy(const kv_planes *l, const kv_piece *from, kv_piece *to) {
    size_t row = row_bytes(l);
    for (size_t head = 0; head < (size_t)l->n_heads; head++) {
        size_t from_head = row * CPU_KV_BLOCK * (size_t)kv_piece_blocks(from->cap),
               to_head = row * CPU_KV_BLOCK * (size_t)kv_piece_blocks(to->cap);
        memcpy(to->k + head * to_head, from->k + head * from_head,
               row * CPU_KV_BLOCK * (size_t)kv_piece_blocks(from->n));
        memcpy(to->v + head * row * (size_t)to->cap, from->v + head * row * (size_t)from->cap,
               row * (size_t)from->n);
    }
    to->n = from->n;
}

/* x[0..n) to elements index, index + stride, ..., rounded to the cache's type. */
static void write_row(dtype type, void *plane, size_t index, size_t stride, const float *x, int32_t n) {
    for (size_t e = 0; e < (size_t)n; e++) {
        if (type == DTYPE_F32) {
            ((float *)plane)[index + e * stride] = x[e];
        } else {
            ((uint16_t *)plane)[index + e * stride] =
                type == DTYPE_BF16 ? f32_to_bf16(x[e]) : f32_to_f16(x[e]);
        }
    }
}

void kv_piece_store(const kv_planes *l, kv_piece *p, const float *key, const float *value) {
    size_t d = (size_t)l->key.width, at = (size_t)p->n;
    for (size_t head = 0; head < (size_t)l->n_heads; head++) {
        size_t block = head * (size_t)kv_piece_blocks(p->cap) + at / CPU_KV_BLOCK;
        write_row(l->key.type, p->k, block * d * CPU_KV_BLOCK + at % CPU_KV_BLOCK, CPU_KV_BLOCK,
                  key + head * d, l->key.width);
        write_row(l->key.type, p->v, (head * (size_t)p->cap + at) * d, 1, value + head * d, l->key.width);
    }
    p->n++;
}

void kv_piece_find(const kv_planes *l, const kv_piece *p, int32_t head, int32_t base, attn_tile *tile) {
    size_t row = row_bytes(l);
    tile->fetch_k_bytes = tile->fetch_v_bytes = (int32_t)row * CPU_KV_BLOCK;
    for (int32_t i = 0; i < ATTN_BLOCKS && base / CPU_KV_BLOCK + i < kv_piece_blocks(p->cap); i++) {
        size_t block = (size_t)head * (size_t)kv_piece_blocks(p->cap) + (size_t)(base / CPU_KV_BLOCK + i);
        tile->k_blocks[i] = p->k + row * CPU_KV_BLOCK * block;
        tile->v_blocks[i] = p->v + row * ((size_t)head * (size_t)p->cap + (size_t)(base + i * CPU_KV_BLOCK));
        /* the processor foresees what comes behind them */
        tile->fetch_k[i] = tile->fetch_v[i] = tile->v_blocks[i];
    }
}

#include "lab/bench/read_pieces.h"

#include <string.h>

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/pages.h"
#include "base/mem.h"

enum { LINE = 64, SIDE_BY_SIDE = 4, AHEAD_BYTES = 32768 };

static int32_t read_pieces_divide_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

/* The pieces of one layer into at. Returns how many. */
static int32_t list_layer(const cpu_backend *c, int32_t layer, const int32_t *pages, int32_t n_pages,
                          const uint8_t **at) {
    const kv_planes *l = &c->layout.caches[layer];
    int32_t pages_a_chunk = ATTN_CHUNK / l->page_tokens, n = 0;
    for (int32_t from = 0; from < n_pages; from += pages_a_chunk) {
        int32_t end = from + pages_a_chunk < n_pages ? from + pages_a_chunk : n_pages;
        for (int32_t head = 0; head < l->n_heads; head++) {
            for (int v = 0; v < 2; v++) {
                for (int32_t page = from; page < end; page++) {
                    at[n++] = cpu_kv_plane(c, pages[page], layer, v == 1 ? KV_PLANE_V : KV_PLANE_K) +
                              cpu_kv_head(l, v == 1 ? KV_PLANE_V : KV_PLANE_K, head);
                }
            }
        }
    }
    return n;
}

quire_err pieces_open(struct backend *b, const int32_t *pages, int32_t n_tokens, pieces *out) {
    const cpu_backend *c = (const cpu_backend *)b;
    const kv_planes *l = &c->layout.caches[0];
    int32_t n_pages = read_pieces_divide_up(n_tokens, l->page_tokens);
    *out = (pieces){.n_layers = c->layout.n_caches,
                    .n = 2 * l->n_heads * n_pages,
                    .bytes = l->page_tokens * (l->key.row_bytes + l->key.scale_bytes)};
    out->at = mem_new((size_t)out->n_layers * (size_t)out->n, sizeof *out->at);
    TRY(mem_check(out->at));
    for (int32_t layer = 0; layer < out->n_layers; layer++) {
        list_layer(c, layer, pages, n_pages, out->at + (int64_t)layer * out->n);
    }
    return QUIRE_OK;
}

void pieces_free(pieces *p) {
    mem_free(p->at);
    *p = (pieces){0};
}

static uint64_t read_pieces_load(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Loads from n_streams pieces side by side and prefetches those that come `ahead` pieces
 * later, into the second-level cache as attention does. */
static inline __attribute__((always_inline)) uint64_t read_together(const pieces *p, const uint8_t *const *at,
                                                                    int n_streams, int32_t ahead) {
    uint64_t sum = 0;
    for (int64_t line = 0; line < p->bytes; line += LINE) {
        for (int s = 0; s < n_streams; s++) {
            if (ahead > 0) {
                __builtin_prefetch(at[s + ahead] + line, 0, 2);
            }
            sum += read_pieces_load(at[s] + line);
        }
    }
    return sum;
}

uint64_t pieces_read(const pieces *p, int32_t layer, int way) {
    const uint8_t *const *at = p->at + (int64_t)layer * p->n;
    int32_t ahead = p->bytes * SIDE_BY_SIDE < AHEAD_BYTES ? (int32_t)(AHEAD_BYTES / p->bytes) : SIDE_BY_SIDE,
            i = 0;
    uint64_t sum = 0;
    for (; way == 1 && i + ahead < p->n; i++) {
        sum += read_together(p, at + i, 1, ahead);
    }
    for (; way == 2 && i + SIDE_BY_SIDE <= p->n; i += SIDE_BY_SIDE) {
        sum += read_together(p, at + i, SIDE_BY_SIDE, 0);
    }
    for (; way == 3 && i + SIDE_BY_SIDE + ahead <= p->n; i += SIDE_BY_SIDE) {
        sum += read_together(p, at + i, SIDE_BY_SIDE, ahead);
    }
    for (; i < p->n; i++) {
        sum += read_together(p, at + i, 1, 0);
    }
    return sum;
}

/* Pages: kv_gather, copies, moves and page transfers return what was written. */
#include "backend/isas.h"

#include <math.h>
#include <stdlib.h>

#include "backend/cpu/attention_pages.h"
#include "backend/cpu/pages.h"
#include "core/half.h"

#define N_LAYERS 3
#define N_HEADS  3
#define D_HEAD   20
#define ROW      (N_HEADS * D_HEAD)
#define N_TOKENS 70
#define SEED     5u

typedef struct pool {
    backend *b;
    kv_layout layout;
    buffer q, k, v;
    int32_t n_pages, *pages; /* a table of N_TOKENS tokens, out of order; two pages more are free */
} pool;

static void pool_open_types(pool *p, kv_types types, int32_t page_tokens, int32_t n_threads) {
    quire_error err;
    model_desc d = desc_plain(N_LAYERS, N_HEADS, N_HEADS, D_HEAD, 0);
    p->b = open_isa("plain", n_threads);
    assert_int_equal(kv_layout_init(&d, types, page_tokens, &p->layout, &err), QUIRE_OK);
    p->q = p->b->ops->buffer_reserve(p->b, ROW);
    p->k = p->b->ops->buffer_reserve(p->b, ROW);
    p->v = p->b->ops->buffer_reserve(p->b, ROW);
    assert_int_equal(
        p->b->ops->step_open(p->b, &(step_limits){.max_rows = N_TOKENS, .max_seqs = 1}, &p->layout, 0, &err),
        QUIRE_OK);
    int32_t n = (int32_t)kv_pages_for(N_TOKENS, page_tokens);
    p->n_pages = n + 2;
    assert_int_equal(p->b->ops->kv_open(p->b, p->n_pages, &err), QUIRE_OK);
    p->pages = malloc(sizeof *p->pages * (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        p->pages[i] = n - 1 - i;
    }
}

static void pool_open(pool *p, dtype type, int32_t page_tokens, int32_t n_threads) {
    pool_open_types(p, kv_both(type), page_tokens, n_threads);
}

static void pool_close(pool *p) {
    free(p->pages);
    p->b->ops->close(p->b);
}

static kv_slot slot_of(const pool *p, int32_t token) {
    return (kv_slot){(int64_t)p->pages[token / p->layout.page_tokens] * p->layout.page_tokens +
                     token % p->layout.page_tokens};
}

/* Writes the first n of k and v [N_TOKENS, ROW] of a layer; row `skip` gets no slot. */
static void pool_write(pool *p, int32_t layer, const float *k, const float *v, int32_t skip, int32_t n) {
    kv_slot slots[N_TOKENS];
    int32_t positions[N_TOKENS];
    for (int32_t t = 0; t < n; t++) {
        slots[t] = t == skip ? (kv_slot){-1} : slot_of(p, t);
        positions[t] = t;
    }
    batch step = {.n_rows = n, .n_axes = 1, .positions = positions, .slots = {slots}};
    p->b->ops->step_begin(p->b, &step);
    p->b->ops->buffer_write(p->b, p->k, 0, n, k);
    p->b->ops->buffer_write(p->b, p->v, 0, n, v);
    p->b->ops->kv_store(p->b, &(kv_store_use){.cache = layer, .q = p->q, .k = p->k, .v = p->v});
    p->b->ops->step_wait(p->b);
}

static float *values(uint64_t seed) {
    float *x = malloc(sizeof *x * N_TOKENS * ROW);
    for (int32_t i = 0; i < N_TOKENS * ROW; i++) {
        x[i] = random_normal(&seed);
    }
    return x;
}

/* How far number i of x may be from what the pages give back: of types with scales, from
 * the largest number of its head. */
static float allowed(dtype type, const float *all, int32_t i) {
    float largest = 0.0f;
    for (int32_t e = i / D_HEAD * D_HEAD; e < (i / D_HEAD + 1) * D_HEAD; e++) {
        largest = fmaxf(largest, fabsf(all[e]));
    }
    switch (type) {
    case DTYPE_F8_E4M3: /* three bits of fraction, and subnormals of 2^-9 where the largest is 448 */
        return fmaxf(fabsf(all[i]) / 16.0f, largest / 448.0f * 0x1p-10f) * 1.0001f;
    /* half a step of two fifteenths, or what is cut off where the step is smaller; and
     * half a step of its unit */
    case DTYPE_I4:
        return largest * (1.0f / 15.0f + 2.0f / 119.0f + 1.0f / 16.0f);
    default:
        return 0.0f;
    }
}

/* Number i of x as the pages give it back; of int8 a head's largest becomes 127. */
static float rounded(dtype type, const float *all, int32_t i) {
    float x = all[i];
    if (type == DTYPE_I8) {
        float largest = 0.0f;
        for (int32_t e = i / D_HEAD * D_HEAD; e < (i / D_HEAD + 1) * D_HEAD; e++) {
            largest = fmaxf(largest, fabsf(all[e]));
        }
        float scale = largest / 127.0f;
        return rintf(x * (1.0f / scale)) * scale;
    }
    return type == DTYPE_BF16  ? bf16_to_f32(f32_to_bf16(x))
           : type == DTYPE_F16 ? f16_to_f32(f32_to_f16(x))
                               : x;
}

/* The rows of a layer are those of k and v. */
static void check_rows(pool *p, int32_t layer, const float *k, const float *v) {
    float *got_k = malloc(sizeof *got_k * N_TOKENS * ROW), *got_v = malloc(sizeof *got_v * N_TOKENS * ROW);
    p->b->ops->kv_gather(p->b, layer, p->pages, N_TOKENS, got_k, got_v);
    for (int32_t i = 0; i < N_TOKENS * ROW; i++) {
        const kv_types t = p->layout.types;
        const float k_off = fabsf(got_k[i] - rounded(t.key, k, i)),
                    v_off = fabsf(got_v[i] - rounded(t.value, v, i));
        if (!(k_off <= allowed(t.key, k, i) && v_off <= allowed(t.value, v, i))) {
            fail_msg("%s: key %g is %g, value %g is %g", p->layout.type_name, (double)k[i], (double)got_k[i],
                     (double)v[i], (double)got_v[i]);
        }
    }
    free(got_k);
    free(got_v);
}

static const kv_types TYPES[] = {
    {DTYPE_F32, DTYPE_F32, DTYPE_F32},         {DTYPE_F16, DTYPE_F16, DTYPE_F32},
    {DTYPE_BF16, DTYPE_BF16, DTYPE_F32},       {DTYPE_I8, DTYPE_I8, DTYPE_F32},
    {DTYPE_F8_E4M3, DTYPE_F8_E4M3, DTYPE_F32}, {DTYPE_I4, DTYPE_I4, DTYPE_F32},
    {DTYPE_I8, DTYPE_I4, DTYPE_F32},           {DTYPE_I4, DTYPE_BF16, DTYPE_F32},
    {DTYPE_F32, DTYPE_F8_E4M3, DTYPE_F32},     {DTYPE_F8_E4M3, DTYPE_F16, DTYPE_F32}};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };
static const int32_t PAGE_TOKENS[] = {1, 2, 8, 16, 32, 256};

TEST(gather_gives_back_what_was_written_at_the_slots) {
    for (int t = 0; t < N_TYPES; t++) {
        for (int s = 0; s < 6; s++) {
            pool p;
            pool_open_types(&p, TYPES[t], PAGE_TOKENS[s], 2);
            float *k[N_LAYERS], *v[N_LAYERS];
            for (int32_t layer = 0; layer < N_LAYERS; layer++) {
                k[layer] = values(SEED + (uint64_t)layer);
                v[layer] = values(SEED + 10 + (uint64_t)layer);
                pool_write(&p, layer, k[layer], v[layer], -1, N_TOKENS);
            }
            for (int32_t layer = 0; layer < N_LAYERS; layer++) {
                check_rows(&p, layer, k[layer], v[layer]);
                free(k[layer]);
                free(v[layer]);
            }
            pool_close(&p);
        }
    }
}

TEST(a_row_without_a_slot_is_not_written) {
    pool p;
    pool_open(&p, DTYPE_F32, 16, 2);
    float *k = values(1), *v = values(2), *other_k = values(3), *other_v = values(4);
    pool_write(&p, 1, k, v, -1, N_TOKENS);
    pool_write(&p, 1, other_k, other_v, 33, N_TOKENS);
    memcpy(other_k + 33 * ROW, k + 33 * ROW, sizeof *k * ROW);
    memcpy(other_v + 33 * ROW, v + 33 * ROW, sizeof *v * ROW);
    check_rows(&p, 1, other_k, other_v);
    free(k);
    free(v);
    free(other_k);
    free(other_v);
    pool_close(&p);
}

/* What a step writes is the same however its rows are shared out; rows after it are left
 * alone. */
TEST(every_number_of_rows_is_stored_by_every_team) {
    static const int32_t n_rows[] = {1, 2, 3, 15, 16, 17, 33, 64, 69}, teams[] = {1, 2, 5};
    float *before = values(1), *x = values(2), *expected = values(1);
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 9; i++) {
            pool p;
            pool_open(&p, DTYPE_BF16, 16, teams[t]);
            pool_write(&p, 0, before, before, -1, N_TOKENS);
            pool_write(&p, 0, x, x, n_rows[i] / 2, n_rows[i]);
            memcpy(expected, x, sizeof *x * ROW * (size_t)n_rows[i]);
            memcpy(expected + n_rows[i] / 2 * ROW, before + n_rows[i] / 2 * ROW, sizeof *x * ROW);
            check_rows(&p, 0, expected, expected);
            memcpy(expected, before, sizeof *x * ROW * (size_t)n_rows[i]);
            pool_close(&p);
        }
    }
    free(before);
    free(x);
    free(expected);
}

TEST(a_copied_or_transferred_page_holds_the_same_tokens) {
    for (int s = 0; s < 6 * N_TYPES; s++) {
        pool p;
        pool_open_types(&p, TYPES[s / 6], PAGE_TOKENS[s % 6], 2);
        float *k = values(1), *v = values(2), *other = values(3);
        pool_write(&p, 2, k, v, -1, N_TOKENS);
        int32_t spare = p.n_pages - 1, old = p.pages[0];
        p.b->ops->kv_copy(p.b, &(kv_copy_pair){.src = old, .dst = spare}, 1);
        p.pages[0] = spare;
        check_rows(&p, 2, k, v);

        void *host = malloc((size_t)p.layout.page_bytes);
        p.b->ops->kv_read_page(p.b, spare, host);
        pool_write(&p, 2, other, other, -1, N_TOKENS); /* over the page that was read, and all others */
        int32_t read = p.pages[0];
        p.pages[0] = old;
        pool_write(&p, 2, k, v, -1, N_TOKENS);
        assert_true(read == spare);
        p.b->ops->kv_write_page(p.b, spare - 1, host);
        p.pages[0] = spare - 1;
        check_rows(&p, 2, k, v);
        free(host);
        free(k);
        free(v);
        free(other);
        pool_close(&p);
    }
}

/* Whether its bytes are gone depends on the system; those of the pages beside it are
 * not. */
TEST(a_discarded_page_leaves_the_others_as_they_are) {
    for (int s = 0; s < 6; s++) {
        pool p;
        pool_open(&p, DTYPE_F32, PAGE_TOKENS[s], 1);
        float *k = values(1), *v = values(2);
        pool_write(&p, 1, k, v, -1, N_TOKENS);
        assert_true(p.b->ops->kv_discard(p.b, p.n_pages - 2, 2)); /* the free ones */
        assert_true(p.b->ops->kv_discard(p.b, 0, 0));
        check_rows(&p, 1, k, v);
        assert_true(p.b->ops->kv_discard(p.b, 0, p.n_pages));
        pool_write(&p, 1, v, k, -1, N_TOKENS); /* they can be written again */
        check_rows(&p, 1, v, k);
        free(k);
        free(v);
        pool_close(&p);
    }
}

TEST(a_moved_token_takes_its_keys_and_values_in_every_layer) {
    for (int s = 0; s < 6 * N_TYPES; s++) {
        pool p;
        pool_open_types(&p, TYPES[s / 6], PAGE_TOKENS[s % 6], 2);
        float *k = values(1), *v = values(2);
        for (int32_t layer = 0; layer < N_LAYERS; layer++) {
            pool_write(&p, layer, k, v, -1, N_TOKENS);
        }
        kv_move_pair moves[] = {{.src = slot_of(&p, 60), .dst = slot_of(&p, 3)},
                                {.src = slot_of(&p, 5), .dst = slot_of(&p, 5)}};
        p.b->ops->kv_move(p.b, moves, 2);
        memcpy(k + 3 * ROW, k + 60 * ROW, sizeof *k * ROW);
        memcpy(v + 3 * ROW, v + 60 * ROW, sizeof *v * ROW);
        for (int32_t layer = 0; layer < N_LAYERS; layer++) {
            check_rows(&p, layer, k, v);
        }
        free(k);
        free(v);
        pool_close(&p);
    }
}

/* Keys of both heads, then values of both, page by page: each block once, in two shares.
 * After them the chunk's own. */
TEST(what_two_heads_have_of_a_chunk_is_fetched_once_in_the_order_of_memory) {
    const dtype types[] = {DTYPE_F32, DTYPE_I8};
    for (int i = 0; i < 4; i++) {
        enum { CACHE = 1, HEAD = 1, TOGETHER = 2 };
        pool p;
        attn_tile tile = {0};
        const uint8_t own[ATTN_BLOCKS] = {0};
        pool_open(&p, types[i / 2], i % 2 == 0 ? 16 : 32, 1);
        const cpu_backend *b = (const cpu_backend *)p.b;
        const kv_planes *l = &b->layout.caches[CACHE];
        const attn_pages pages = {b, p.pages, CACHE, HEAD};
        for (int32_t n = 0; n < ATTN_BLOCKS; n++) {
            tile.v_blocks[n] = &own[n];
        }
        int32_t unit = 0;
        for (int32_t page = 0; page < kv_pages_for(N_TOKENS, l->page_tokens); page++) {
            for (int32_t j = 0; j < 2 * TOGETHER * l->page_tokens; j += ATTN_BLOCK, unit++) {
                int32_t head = HEAD + j / l->page_tokens % TOGETHER, at = unit % (2 * ATTN_BLOCKS);
                const uint8_t *plane = cpu_kv_plane(b, p.pages[page], CACHE,
                                                    j < TOGETHER * l->page_tokens ? KV_PLANE_K : KV_PLANE_V);
                attn_pages_fetch_part(&pages, 0, N_TOKENS, TOGETHER, unit / (2 * ATTN_BLOCKS), &tile);
                const void *fetched = at < ATTN_BLOCKS ? tile.fetch_k[at] : tile.fetch_v[at - ATTN_BLOCKS];
                assert_ptr_equal(fetched, plane + cpu_kv_head(l, KV_PLANE_K, head) +
                                              j % l->page_tokens * l->key.row_bytes);
            }
        }
        for (; unit < 4 * ATTN_BLOCKS; unit++) {
            attn_pages_fetch_part(&pages, 0, N_TOKENS, TOGETHER, unit / (2 * ATTN_BLOCKS), &tile);
            int32_t at = unit % (2 * ATTN_BLOCKS);
            assert_ptr_equal(at < ATTN_BLOCKS ? tile.fetch_k[at] : tile.fetch_v[at - ATTN_BLOCKS],
                             &own[at % ATTN_BLOCKS]);
        }
        pool_close(&p);
    }
}

TEST_MAIN(NULL, NULL)

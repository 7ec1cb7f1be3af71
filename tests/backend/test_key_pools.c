/* Pooled keys and n-gram rows: compared with naive models, and the same bits for any
 * threads, cuts, batches, page layouts and snapshots. */
#include "backend/state_rig.h"

#include <math.h>

/* ---- pools ---- */

typedef struct pool_rig {
    state_rig rig;
    pool_use use;
    float *bias;
} pool_rig;

static void run_pool(state_rig *g) {
    g->b->ops->pool(g->b, g->use);
}

static void pool_open(pool_rig *g, int32_t n_channels, int32_t n, int32_t n_threads, int32_t page_tokens,
                      bool in_place) {
    uint64_t seed = 21;
    const cache_desc cache = pool_cache(n_channels, n);
    const rig_spec spec = {.isa = "auto",
                           .n_threads = n_threads,
                           .page_tokens = page_tokens,
                           .caches = &cache,
                           .n_caches = 1,
                           .n_inputs = 2,
                           .widths = {n_channels, n_channels},
                           .out_width = n_channels,
                           .in_place = in_place ? 0 : -1};
    memset(g, 0, sizeof *g);
    assert_true(rig_open(&g->rig, &spec));
    g->bias = random_rows(&seed, (size_t)(n_channels * n), 2.0f);
    g->use = (pool_use){
        .cache = 1, .n = n, .x = g->rig.in[0], .gate = g->rig.in[1], .bias = g->bias, .out = g->rig.out};
    g->rig.run = run_pool;
    g->rig.use = &g->use;
}

static void pool_close(pool_rig *g) {
    free(g->bias);
    rig_close(&g->rig);
}

static void check_pools(const pool_rig *g, const rig_seq *s, int32_t n_tokens) {
    const int32_t n = g->use.n, width = g->rig.out_width;
    for (int32_t row = 0; row < n_tokens; row++) {
        for (int32_t c = 0; c < width; c++) {
            double sum = 0.0, all = 0.0;
            for (int32_t j = 0; j < n && (row + 1) % n == 0; j++) {
                const int32_t at = (row - n + 1 + j) * width + c;
                const double e = exp((double)s->in[1][at] + (double)g->bias[j * width + c]);
                sum += e * (double)s->in[0][at];
                all += e;
            }
            const double want = (row + 1) % n == 0 ? sum / all : 0.0;
            assert_true(fabs((double)s->out[row * width + c] - want) < 1e-5);
        }
    }
}

TEST(a_pools_key_is_the_sum_that_its_gates_weigh) {
    static const int32_t shapes[][2] = {{1, 2}, {12, 4}, {64, 4}, {65, 3}, {130, 16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        pool_rig g;
        uint64_t first = 0;
        for (int32_t way = 0; way < 6; way++) {
            static const int32_t chunks[] = {50, 1, 3, 7, 16, 49};
            pool_open(&g, shapes[i][0], shapes[i][1], 1 + way % 3, way % 2 == 0 ? 16 : 64, way >= 3);
            rig_seq s = rig_tokens(&g.rig, 0, 50, 3);
            rig_run(&g.rig, &s, 50, chunks[way]);
            check_pools(&g, &s, 50);
            const uint64_t hash = rig_hash(&g.rig, &s, 0);
            first = way == 0 ? hash : first;
            assert_true(hash == first);
            rig_free_tokens(&s);
            pool_close(&g);
        }
    }
}

TEST(pools_have_snapshots_and_batches) {
    pool_rig g;
    pool_open(&g, 70, 4, 2, 16, false);
    rig_check_snapshots(&g.rig, 40);
    rig_check_batch(&g.rig);
    pool_close(&g);
}

TEST(large_gates_do_not_overflow) {
    pool_rig g;
    pool_open(&g, 8, 4, 1, 16, false);
    rig_seq s = rig_tokens(&g.rig, 0, 8, 3);
    for (int32_t i = 0; i < 8 * 8; i++) {
        s.in[1][i] += 500.0f;
    }
    rig_run(&g.rig, &s, 8, 8);
    check_pools(&g, &s, 8); /* exp of 500 is within a double */
    rig_free_tokens(&s);
    pool_close(&g);
}

/* ---- n-grams ---- */

enum { N_ROWS = 120, ROW = 5, END = 7, TOKENS = 60 };

typedef struct ngram_rig {
    backend *b;
    kv_layout layout;
    int32_t group, pages[3][64];
    buffer out;
    ngram_desc d;
    const embedding *tables[8];
    ngram_use use;
} ngram_rig;

static ngram_desc ngram_numbers(void) {
    return (ngram_desc){.n = 3,
                        .n_heads = 2,
                        .d_head = ROW,
                        .end = END,
                        .n_rows = N_ROWS,
                        .multipliers = {40323955908725927, -35454616657218691, 5531411348987945},
                        .sizes = {31, 17, 29, 37},
                        .offsets = {0, 31, 48, 83}};
}

/* Element e of the table's row r is r + e / 8. */
static void ngram_open(ngram_rig *g, int32_t rows_each, int32_t n_threads) {
    quire_error err;
    float rows[N_ROWS * ROW];
    model_desc d = desc_plain(1, 2, 1, 16, 0);
    memset(g, 0, sizeof *g);
    g->d = ngram_numbers();
    g->b = open_isa("auto", n_threads);
    d.caches[d.n_caches++] = ngram_cache(g->d.n);
    for (int32_t i = 0; i < N_ROWS * ROW; i++) {
        rows[i] = (float)(i / ROW) + (float)(i % ROW) * 0.125f;
    }
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), 16, &g->layout, &err), QUIRE_OK);
    g->group = g->layout.caches[1].group;
    g->out = g->b->ops->buffer_reserve(g->b, (g->d.n - 1) * g->d.n_heads * ROW);
    for (int32_t i = 0; i * rows_each < N_ROWS; i++) {
        const int32_t left = N_ROWS - i * rows_each, n = left < rows_each ? left : rows_each;
        const tensor_view part = {.name = "part",
                                  .type = DTYPE_F32,
                                  .n_dims = 2,
                                  .dims = {n, ROW, 1, 1},
                                  .data = rows + i * rows_each * ROW,
                                  .n_bytes = sizeof *rows * (size_t)(n * ROW)};
        embedding *e;
        assert_int_equal(g->b->ops->embedding_load(g->b, &part, &e, &err), QUIRE_OK);
        g->tables[i] = e;
    }
    const step_limits limits = {.max_rows = TOKENS, .max_seqs = 3};
    assert_int_equal(g->b->ops->step_open(g->b, &limits, &g->layout, 0, &err), QUIRE_OK);
    const int32_t each = g->layout.groups[g->group].state_pages;
    assert_int_equal(g->b->ops->kv_open(g->b, 3 * each, &err), QUIRE_OK);
    for (int32_t i = 0; i < 3 * each; i++) {
        g->pages[i % 3][i / 3] = i;
    }
    g->use = (ngram_use){.cache = 1, .d = &g->d, .tables = g->tables, .rows_each = rows_each, .out = g->out};
}

/* Rows from..from + n of a sequence with pages `number`; a snapshot after row `snapshot`, or
 * -1, goes to pages 2. */
static void ngram_step(ngram_rig *g, const int32_t *tokens, int32_t from, int32_t n, int32_t number,
                       int32_t snapshot, float *out) {
    int32_t positions[TOKENS];
    batch_snapshot copy = {.row = snapshot - from, .pages = g->pages[2]};
    batch_seq seq = {.n_rows = n, .n_tokens = from + n, .snapshots = &copy};
    seq.n_snapshots = snapshot >= from && snapshot < from + n;
    seq.pages[g->group] = g->pages[number];
    for (int32_t i = 0; i < n; i++) {
        positions[i] = from + i;
    }
    g->b->ops->step_begin(g->b, &(batch){.n_rows = n,
                                         .n_seqs = 1,
                                         .tokens = tokens + from,
                                         .positions = positions,
                                         .n_axes = 1,
                                         .seqs = &seq});
    g->b->ops->ngrams(g->b, &g->use);
    g->b->ops->step_wait(g->b);
    g->b->ops->buffer_read(g->b, g->out, 0, n, out + from * 4 * ROW);
}

/* The table's row of head i for a row of tokens, by the definition. */
static int32_t naive_row(const ngram_desc *d, const int32_t *tokens, int32_t row, int32_t i) {
    const int32_t n = i / d->n_heads + 2;
    uint64_t hash = 0;
    bool ended = false;
    for (int32_t k = 0; k < n; k++) {
        const int32_t at = row - k;
        ended = ended || at < 0 || (k > 0 && (tokens[at] < 0 || tokens[at] == END));
        const int64_t token = ended || tokens[at] < 0 ? END : tokens[at];
        hash ^= (uint64_t)token * (uint64_t)d->multipliers[k];
    }
    /* the remainder of a number that may be negative, by parts that are not */
    const uint64_t size = (uint64_t)d->sizes[i], half = UINT64_C(1) << 63;
    const uint64_t rest = hash < half ? hash % size : (size - (UINT64_MAX - hash + 1) % size) % size;
    return d->offsets[i] + (int32_t)rest;
}

static void draw_tokens(int32_t *tokens, uint64_t seed) {
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(rng_next(&seed) % 12);
    }
    tokens[20] = -1; /* an external row */
    tokens[0] = END;
}

TEST(rows_of_n_grams_are_those_of_their_hashes) {
    static const int32_t parts[] = {N_ROWS, 50, 120, 16};
    static const int32_t chunks[] = {TOKENS, 1, 7, 2};
    ngram_rig g;
    int32_t tokens[TOKENS];
    draw_tokens(tokens, 17);
    for (int way = 0; way < 4; way++) {
        float out[TOKENS * 4 * ROW];
        ngram_open(&g, parts[way], 1 + way % 2);
        for (int32_t from = 0; from < TOKENS; from += chunks[way]) {
            const int32_t left = TOKENS - from;
            ngram_step(&g, tokens, from, left < chunks[way] ? left : chunks[way], 0, -1, out);
        }
        for (int32_t i = 0; i < TOKENS * 4; i++) {
            const int32_t row = naive_row(&g.d, tokens, i / 4, i % 4);
            for (int32_t e = 0; e < ROW; e++) {
                assert_true(out[i * ROW + e] == (float)row + (float)e * 0.125f);
            }
        }
        g.b->ops->close(g.b);
    }
}

TEST(a_snapshot_of_tokens_goes_on_as_the_sequence_did) {
    ngram_rig g;
    int32_t tokens[TOKENS];
    float out[TOKENS * 4 * ROW], again[TOKENS * 4 * ROW];
    draw_tokens(tokens, 18);
    ngram_open(&g, N_ROWS, 1);
    ngram_step(&g, tokens, 0, 30, 0, 11, out);
    ngram_step(&g, tokens, 30, TOKENS - 30, 0, -1, out);
    ngram_step(&g, tokens, 12, TOKENS - 12, 2, -1, again);
    assert_true(same_floats(again + 12 * 4 * ROW, out + 12 * 4 * ROW, (TOKENS - 12) * 4 * ROW));
    g.b->ops->close(g.b);
}

TEST_MAIN(NULL, NULL)

/* Contiguous caches give the same logits as pages, bit for bit; only memory use
 * differs. */
#include <string.h>

#include "base/mem.h"
#include "kv/table.h"
#include "lab/bench/baseline_kv.h"
#include "lab/bench/model_runner.h"
#include "test.h"

enum { N_SEQS = 3, N_STEPS = 20, MAX_LEN = 600, PAGE = 32, N_PAGES = 3 * 20 };

typedef struct fixture {
    model_runner b;
    quire_options engine;
    kv_pool *pool;
    kv_table tables[N_SEQS];
    int32_t tokens[N_SEQS][MAX_LEN], n[N_SEQS];
} fixture;

static void fixture_open(quire_kv_dtype kv_dtype, fixture *w) {
    quire_error err = {.message = ""};
    *w = (fixture){
        .n = {270, 40, 520}}; /* over one chunk of positions, under a page or two, over two chunks */
    quire_options_init(&w->engine);
    w->engine.model = "builtin";
    w->engine.kv_dtype = kv_dtype;
    w->engine.n_threads = 2;
    model_runner_options o = {.engine = &w->engine,
                              .page_tokens = PAGE,
                              .n_pages = N_PAGES,
                              .max_rows = 1024,
                              .max_seqs = N_SEQS,
                              .max_len = MAX_LEN};
    if (model_runner_open(&o, &w->b, &err) != QUIRE_OK || kv_pool_open(N_PAGES, &w->pool) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    for (int s = 0; s < N_SEQS; s++) {
        model_runner_prompt(&w->b, 7u + (uint64_t)s, MAX_LEN, w->tokens[s]);
    }
}

static void fixture_close(fixture *w) {
    for (int s = 0; s < N_SEQS; s++) {
        kv_table_deinit(w->pool, &w->tables[s]);
    }
    kv_pool_close(w->pool);
    model_runner_close(&w->b);
}

/* A prefill of all and then tokens one by one; each step's logits to
 * out[N_STEPS][N_SEQS][n_vocab]. */
static void run(fixture *w, bool has_pages, float *out) {
    size_t width = (size_t)w->b.desc->n_vocab;
    kv_copies none = {0};
    for (int step = 0; step < N_STEPS; step++) {
        runner_part parts[N_SEQS];
        for (int s = 0; s < N_SEQS; s++) {
            int32_t first = step == 0 ? 0 : w->n[s] + step - 1, rows = step == 0 ? w->n[s] : 1;
            if (has_pages) {
                assert_int_equal(kv_table_append(w->pool, &w->tables[s], rows, PAGE, &none), QUIRE_OK);
            }
            parts[s] = (runner_part){.tokens = w->tokens[s],
                                     .first = first,
                                     .n_rows = rows,
                                     .pages = has_pages ? &w->tables[s].pages->v : NULL,
                                     .n_logits = 1};
        }
        assert_int_equal(model_runner_forward(&w->b, parts, N_SEQS), QUIRE_OK);
        for (int s = 0; s < N_SEQS; s++) {
            memcpy(out + ((size_t)step * N_SEQS + (size_t)s) * width, model_runner_logits(&w->b, s),
                   width * sizeof *out);
        }
    }
    for (int s = 0; s < N_SEQS; s++) {
        kv_table_clear(w->pool, &w->tables[s]);
    }
}

TEST(pieces_give_the_same_bits_as_pages) {
    static const quire_kv_dtype types[] = {QUIRE_KV_F32, QUIRE_KV_F16, QUIRE_KV_BF16};
    for (int t = 0; t < 3; t++) {
        fixture w;
        fixture_open(types[t], &w);
        size_t n = (size_t)N_STEPS * N_SEQS * (size_t)w.b.desc->n_vocab;
        float *paged = mem_new(n, sizeof *paged), *other = mem_new(n, sizeof *other);
        run(&w, true, paged);
        baseline_kv *k;
        assert_int_equal(baseline_kv_attach(w.b.b, N_SEQS, MAX_LEN, &k), QUIRE_OK);
        for (int time = 0; time < 2; time++) {
            memset(other, 0, n * sizeof *other);
            run(&w, false, other);
            assert_int_equal(baseline_kv_error(k), QUIRE_OK);
            assert_memory_equal(paged, other, n * sizeof *other);
            baseline_kv_clear(k);
        }
        baseline_kv_detach(k);
        memset(other, 0, n * sizeof *other);
        run(&w, true, other); /* the backend has its own ops again */
        assert_memory_equal(paged, other, n * sizeof *other);
        mem_free(paged);
        mem_free(other);
        fixture_close(&w);
    }
}

/* A piece that a sequence does not go on from is an error, and not another answer. */
TEST(a_sequence_that_starts_anew_without_a_clear_is_an_error) {
    fixture w;
    baseline_kv *k;
    fixture_open(QUIRE_KV_F32, &w);
    float *out = mem_new((size_t)N_STEPS * N_SEQS * (size_t)w.b.desc->n_vocab, sizeof *out);
    assert_int_equal(baseline_kv_attach(w.b.b, N_SEQS, MAX_LEN, &k), QUIRE_OK);
    run(&w, false, out);
    assert_int_equal(baseline_kv_error(k), QUIRE_OK);
    run(&w, false, out);
    assert_int_equal(baseline_kv_error(k), QUIRE_INVALID);
    baseline_kv_detach(k);
    mem_free(out);
    fixture_close(&w);
}

TEST_MAIN(NULL, NULL)

/* Published model shapes: the ordinary loader opens each and finds the published numbers.
 * Times per byte are interpolated between measured points. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "lab/bench/model_runner.h"
#include "lab/bench/model_shape.h"
#include "test.h"

enum { N_ROWS = 20, PAGES = 2, PAGE_TOKENS = 16 };

/* Runs N_ROWS rows and returns the number of values that are finite, of all rows' hidden
 * states or of the last row's logits. */
static int64_t finite_values(model_runner *b, int64_t *n) {
    int32_t tokens[N_ROWS];
    kv_seq seq;
    assert_int_equal(kv_seq_init(&seq, b->layout.n_groups, PAGES), QUIRE_OK);
    for (int32_t g = 0; g < b->layout.n_groups; g++) {
        for (int32_t i = 0; i < PAGES; i++) {
            seq.tables[g].pages[i].v = g * PAGES + i;
        }
    }
    model_runner_prompt(b, 1, N_ROWS, tokens);
    const runner_part part = {
        .tokens = tokens, .n_rows = N_ROWS, .n_logits = b->desc->no_head ? 0 : 1, .seq = &seq};
    assert_int_equal(model_runner_forward(b, &part, 1), QUIRE_OK);
    static float rows[N_ROWS * 256];
    const float *values = rows;
    if (b->desc->no_head) {
        assert_int_equal(b->desc->d_model, 256);
        b->b->ops->buffer_read(b->b, model_hidden(b->m), 0, N_ROWS, rows);
    } else {
        values = model_runner_logits(b, 0);
    }
    *n = b->desc->no_head ? N_ROWS * 256 : b->desc->n_vocab;
    int64_t finite = 0;
    for (int64_t i = 0; i < *n; i++) {
        finite += isfinite(values[i]) ? 1 : 0;
    }
    kv_seq_deinit(&seq);
    return finite;
}

static void open_shape(const model_shape *s, const speed_type *type, model_runner *b) {
    synthetic made;
    quire_options engine;
    quire_error err = {.message = ""};
    if (synthetic_open(s, type->file, &made, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    quire_options_init(&engine);
    engine.model = made.path;
    engine.compute = speed_type_compute(type);
    engine.n_threads = 1;
    const model_runner_options o = {.engine = &engine,
                                    .page_tokens = PAGE_TOKENS,
                                    .n_pages = PAGES,
                                    .max_rows = N_ROWS,
                                    .max_seqs = 1,
                                    .max_len = PAGES * PAGE_TOKENS,
                                    .has_groups = true};
    if (model_runner_open(&o, b, &err) != QUIRE_OK) {
        fail_msg("%s %s: %s", s->name, type->name, err.message);
    }
    synthetic_close(&made);
}

TEST(every_shape_opens_like_a_file_and_runs_in_every_type) {
    for (int32_t i = 0; i < N_MODEL_SHAPES; i++) {
        for (int k = 0; k < N_SPEED_TYPES; k++) {
            const model_shape small = model_shape_small(&model_shapes[i]);
            model_runner b;
            int64_t n;
            open_shape(&small, &speed_types[k], &b);
            int64_t finite = finite_values(&b, &n);
            if (finite != n) {
                fail_msg("%s %s: %d of %d values are finite", small.name, speed_types[k].name, (int)finite,
                         (int)n);
            }
            model_runner_close(&b);
        }
    }
}

TEST(a_shape_is_the_model_that_its_name_says) {
    static const struct {
        const char *name, *architecture;
        int32_t n_experts, window;
        bool tied, no_head, sinks;
        qk_norm_kind qk_norm;
        activation f;
    } expected[] = {
        {.name = "1.1b", .architecture = "llama", .f = ACT_SILU},
        {.name = "qwen3-0.6b", .architecture = "qwen3", .tied = true, .qk_norm = QK_NORM_HEAD, .f = ACT_SILU},
        {.name = "gemma-3-1b",
         .architecture = "gemma3",
         .window = 16,
         .tied = true,
         .qk_norm = QK_NORM_HEAD,
         .f = ACT_GELU_TANH},
        {.name = "mixtral", .architecture = "llama", .n_experts = 4, .f = ACT_SILU},
        {.name = "gpt-oss",
         .architecture = "gpt-oss",
         .n_experts = 4,
         .window = 16,
         .sinks = true,
         .f = ACT_SILU},
        {.name = "bert-base", .architecture = "bert", .tied = true, .no_head = true, .f = ACT_GELU}};
    assert_int_equal(N_MODEL_SHAPES, sizeof expected / sizeof *expected);
    for (int32_t i = 0; i < N_MODEL_SHAPES; i++) {
        const model_shape *s = model_shape_find(expected[i].name, strlen(expected[i].name));
        assert_ptr_equal(s, &model_shapes[i]);
        const model_shape small = model_shape_small(s);
        model_runner b;
        open_shape(&small, &speed_types[0], &b);
        const model_desc *d = b.desc;
        assert_string_equal(d->architecture, expected[i].architecture);
        assert_int_equal(d->n_layers, small.sizes[SIZE_LAYERS]);
        assert_int_equal(d->layers[0].n_experts, expected[i].n_experts);
        assert_int_equal(d->layers[0].window, expected[i].window);
        assert_int_equal(d->tied_embeddings, expected[i].tied);
        assert_int_equal(d->no_head, expected[i].no_head);
        assert_int_equal(d->attend.sinks, expected[i].sinks);
        assert_int_equal(d->attend.qk_norm, expected[i].qk_norm);
        assert_int_equal(d->activation, expected[i].f);
        model_runner_close(&b);
    }
    assert_null(model_shape_find("llama", 5));
}

/* So that both read as many experts, whose time can then be compared. */
TEST(gpt_oss_has_the_same_logits_in_q4_0_and_in_mxfp4) {
    const model_shape small = model_shape_small(model_shape_find("gpt-oss", 7));
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        model_runner b;
        int64_t n;
        open_shape(&small, speed_type_find(i == 0 ? "q4_0" : "mxfp4", i == 0 ? 4 : 5), &b);
        assert_int_equal(finite_values(&b, &n), small.sizes[SIZE_VOCABULARY]);
        logits[i] = mem_new((size_t)n, sizeof *logits[i]);
        memcpy(logits[i], model_runner_logits(&b, 0), (size_t)n * sizeof *logits[i]);
        model_runner_close(&b);
    }
    assert_memory_equal(logits[0], logits[1], (size_t)small.sizes[SIZE_VOCABULARY] * sizeof *logits[0]);
    mem_free(logits[0]);
    mem_free(logits[1]);
}

TEST(rows_that_are_no_whole_blocks_are_refused_with_the_reason) {
    synthetic s;
    quire_error err;
    assert_int_equal(synthetic_open(model_shape_find("gpt-oss", 7), DTYPE_Q4_K, &s, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "gpt-oss has matrices whose rows are no whole blocks of 256"));
}

TEST(the_pace_of_llama_is_a_line_through_its_points) {
    const shape_pace p = {.n = 3, .intensity = {4, 8, 16}, .us_per_byte = {1, 1, 3}};
    assert_true(fabs(shape_pace_at(&p, 1) - 1) < 1e-12); /* bytes alone */
    assert_true(fabs(shape_pace_at(&p, 6) - 1) < 1e-12);
    assert_true(fabs(shape_pace_at(&p, 12) - 2) < 1e-12);
    assert_true(fabs(shape_pace_at(&p, 16) - 3) < 1e-12);
    assert_true(fabs(shape_pace_at(&p, 32) - 6) < 1e-12); /* operations alone */
}

TEST_MAIN(NULL, NULL)

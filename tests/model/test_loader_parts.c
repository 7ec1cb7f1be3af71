/* Weights that are parts of a tensor: which rows, columns or slabs the backend gets. */
#include "make_model.h"

#include "base/mem.h"
#include "model/loader.h"

enum { D_IN = 64, MAX_ELEMENTS = 1 << 14 };

/* A backend that keeps what it is given. */
static float given[MAX_ELEMENTS], given_bias[MAX_ELEMENTS];
static int64_t n_out, n_in, n_bias;

static quire_err keep(backend *b, const linear_spec *spec, linear **out, quire_error *err) {
    (void)b;
    (void)err;
    n_out = spec->weight->dims[0];
    n_in = spec->weight->dims[1];
    n_bias = spec->bias != NULL ? spec->bias->dims[0] : 0;
    assert_true(n_out * n_in <= MAX_ELEMENTS);
    memcpy(given, spec->weight->data, (size_t)(n_out * n_in) * sizeof(float));
    if (n_bias > 0) {
        memcpy(given_bias, spec->bias->data, (size_t)n_bias * sizeof(float));
    }
    *out = (linear *)given;
    return QUIRE_OK;
}

/* A table of embeddings, likewise. */
static quire_err keep_table(backend *b, const tensor_view *weight, embedding **out, quire_error *err) {
    (void)b;
    (void)err;
    assert_int_equal(weight->n_dims, 2);
    n_out = weight->dims[0];
    n_in = weight->dims[1];
    *out = (embedding *)given;
    return QUIRE_OK;
}

typedef struct part_file {
    plan_file file;
    backend_ops ops;
    backend b;
    loader l;
    quire_error err;
} part_file;

/* "w" [d0, d1(, d2)] and its bias [n_biases(, n)], if there is any. */
static void setup(part_file *p, uint32_t n_dims, const uint64_t *dims, uint64_t n_biases) {
    model_plan plan = {0};
    set_str(&plan, "general.architecture", "llama");
    tensor_entry *t = tensor_of(&plan, "w.weight");
    t->n_dims = n_dims;
    memcpy(t->dims, dims, n_dims * sizeof dims[0]);
    if (n_biases > 0 && n_dims == 3) {
        set_tensor(&plan, "w.bias", dims[0], n_biases);
    } else if (n_biases > 0) {
        set_tensor(&plan, "w.bias", n_biases, 0);
    }
    *p = (part_file){.file = plan_open(&plan), .ops = {.linear_load = keep, .embedding_load = keep_table}};
    p->b = (backend){.ops = &p->ops};
    assert_int_equal(loader_init(&p->l, p->file.f, NULL, &p->b, 1, &p->err), QUIRE_OK);
}

static void teardown(part_file *p) {
    loader_deinit(&p->l);
    plan_close(&p->file);
}

static quire_err take(part_file *p, const weight_part *part, int64_t out, int64_t in) {
    linear *made;
    p->err = (quire_error){0};
    return loader_linear(&p->l, (weight_name){"w", "w"}, NO_LAYER, part, out, in, &made);
}

static void takes(part_file *p, const weight_part *part, int64_t out) {
    if (take(p, part, out, D_IN) != QUIRE_OK) {
        fail_msg("%s", p->err.message);
    }
    assert_int_equal(n_out, out);
    assert_int_equal(n_in, D_IN);
}

static float element(const part_file *p, const char *name, int64_t i) {
    return ((const float *)model_file_find(p->file.f, name)->data)[i];
}

/* Row r that came is row `row` of the tensor, its bias too. */
static void is_row(const part_file *p, int64_t r, int64_t row) {
    for (int64_t i = 0; i < D_IN; i++) {
        assert_true(given[r * D_IN + i] == element(p, "w.weight", row * D_IN + i));
    }
    assert_true(given_bias[r] == element(p, "w.bias", row));
}

TEST(stacked_rows_come_whole) {
    part_file p;
    setup(&p, 2, (const uint64_t[]){10, D_IN}, 10);
    const weight_part part = {.suffix = "k", .n_rows = 10, .first = 6, .block = 2, .step = 2};
    takes(&p, &part, 2);
    assert_int_equal(n_bias, 2);
    is_row(&p, 0, 6);
    is_row(&p, 1, 7);
    teardown(&p);
}

/* Two groups of a queries' block of 4, a key's and a value's of 2. */
TEST(grouped_rows_are_gathered) {
    part_file p;
    setup(&p, 2, (const uint64_t[]){16, D_IN}, 16);
    weight_part part = {.suffix = "q", .n_rows = 16, .block = 4, .step = 8};
    takes(&p, &part, 8);
    for (int64_t r = 0; r < 8; r++) {
        is_row(&p, r, r / 4 * 8 + r % 4);
    }
    part = (weight_part){.suffix = "v", .n_rows = 16, .first = 6, .block = 2, .step = 8};
    takes(&p, &part, 4);
    for (int64_t r = 0; r < 4; r++) {
        is_row(&p, r, 6 + r / 2 * 8 + r % 2);
    }
    teardown(&p);
}

TEST(columns_become_rows_and_the_bias_stays) {
    part_file p;
    setup(&p, 2, (const uint64_t[]){D_IN, 12}, 12);
    const weight_part part = {
        .suffix = "v", .n_rows = 12, .first = 8, .block = 4, .step = 4, .transposed = true};
    takes(&p, &part, 4);
    for (int64_t r = 0; r < 4; r++) {
        for (int64_t i = 0; i < D_IN; i++) {
            assert_true(given[r * D_IN + i] == element(&p, "w.weight", i * 12 + 8 + r));
        }
        assert_true(given_bias[r] == element(&p, "w.bias", 8 + r));
    }
    teardown(&p);
}

TEST(a_slab_is_one_experts) {
    part_file p;
    setup(&p, 3, (const uint64_t[]){3, 6, D_IN}, 6);
    const weight_part part = {
        .suffix = "2.up", .n_rows = 6, .first = 3, .block = 3, .step = 3, .slab = 2, .n_slabs = 3};
    takes(&p, &part, 3);
    for (int64_t r = 0; r < 3; r++) {
        is_row(&p, r, 2 * 6 + 3 + r);
    }
    teardown(&p);
}

TEST(interleaved_rows_of_a_transposed_slab) {
    part_file p;
    setup(&p, 3, (const uint64_t[]){2, D_IN, 8}, 8);
    for (int32_t half = 0; half < 2; half++) {
        const weight_part part = {.suffix = "1.up",
                                  .n_rows = 8,
                                  .first = half,
                                  .block = 1,
                                  .step = 2,
                                  .slab = 1,
                                  .n_slabs = 2,
                                  .transposed = true};
        takes(&p, &part, 4);
        for (int64_t r = 0; r < 4; r++) {
            for (int64_t i = 0; i < D_IN; i++) {
                assert_true(given[r * D_IN + i] == element(&p, "w.weight", (D_IN + i) * 8 + 2 * r + half));
            }
            assert_true(given_bias[r] == element(&p, "w.bias", 8 + 2 * r + half));
        }
    }
    teardown(&p);
}

/* ggml leaves out dimensions of 1: a matrix of one row has one dimension, one expert's
 * stack two. */
TEST(a_dimension_of_one_may_be_left_out) {
    part_file p;
    setup(&p, 1, (const uint64_t[]){D_IN}, 0);
    takes(&p, NULL, 1);
    for (int64_t i = 0; i < D_IN; i++) {
        assert_true(given[i] == element(&p, "w.weight", i));
    }
    assert_int_equal(p.l.linears[0].dims[0], 1);
    assert_int_equal(p.l.linears[0].dims[1], D_IN);
    assert_int_equal(take(&p, NULL, 2, D_IN / 2), QUIRE_BAD_FILE);
    assert_int_equal(take(&p, NULL, D_IN, 1), QUIRE_BAD_FILE);
    embedding *table;
    assert_int_equal(loader_embedding(&p.l, (weight_name){"w", "w"}, NULL, 1, D_IN, &table), QUIRE_OK);
    assert_int_equal(n_out, 1);
    assert_int_equal(n_in, D_IN);
    assert_int_equal(loader_embedding(&p.l, (weight_name){"w", "w"}, NULL, 2, D_IN, &table), QUIRE_BAD_FILE);
    float *rows;
    assert_int_equal(loader_matrix(&p.l, (weight_name){"w", "w"}, NO_LAYER, ".weight", 1, D_IN, &rows),
                     QUIRE_OK);
    assert_memory_equal(rows, model_file_find(p.file.f, "w.weight")->data, D_IN * sizeof *rows);
    mem_free(rows);
    teardown(&p);
    setup(&p, 2, (const uint64_t[]){6, D_IN}, 6);
    const weight_part part = {.suffix = "0.up", .n_rows = 6, .first = 3, .block = 3, .step = 3, .n_slabs = 1};
    takes(&p, &part, 3);
    is_row(&p, 0, 3);
    is_row(&p, 2, 5);
    teardown(&p);
}

TEST(parts_of_another_shape_are_refused) {
    part_file p;
    setup(&p, 2, (const uint64_t[]){10, D_IN}, 9);
    weight_part part = {.suffix = "q", .n_rows = 12, .block = 4, .step = 4};
    assert_int_equal(take(&p, &part, 4, D_IN), QUIRE_BAD_FILE);
    assert_non_null(strstr(p.err.message, "test.gguf: tensor w.weight has shape [10, 64]"));
    part.n_rows = 10;
    assert_int_equal(take(&p, &part, 4, D_IN), QUIRE_BAD_FILE); /* the bias has one row less */
    assert_non_null(strstr(p.err.message, "w.bias"));
    part.n_slabs = 2;
    assert_int_equal(take(&p, &part, 4, D_IN), QUIRE_BAD_FILE);
    assert_non_null(strstr(p.err.message, "requires [2, 10, 64]"));
    teardown(&p);
    setup(&p, 3, (const uint64_t[]){2, 6, D_IN}, 12);
    part = (weight_part){.suffix = "q", .n_rows = 12, .block = 4, .step = 4};
    assert_int_equal(take(&p, &part, 4, D_IN), QUIRE_BAD_FILE);
    assert_non_null(strstr(p.err.message, "shape [2, 6, 64]; the model's configuration requires [12, 64]"));
    teardown(&p);
}

TEST(a_file_has_a_weight_or_not) {
    const model_desc d = {.n_layers = 1};
    part_file p;
    setup(&p, 2, (const uint64_t[]){10, D_IN}, 0);
    assert_true(loader_has(&p.l, (weight_name){"w", "w"}, NO_LAYER));
    assert_true(loader_has(&p.l, (weight_name){"v|w", "v"}, NO_LAYER)); /* an alternative */
    assert_false(loader_has(&p.l, (weight_name){"v", "w"}, NO_LAYER));
    assert_int_equal(loader_finish(&p.l, &d), QUIRE_UNSUPPORTED); /* asking uses nothing */
    const weight_part part = {.suffix = "q", .n_rows = 10, .block = 4, .step = 4};
    takes(&p, &part, 4);
    assert_int_equal(loader_finish(&p.l, &d), QUIRE_OK);
    teardown(&p);
}

TEST_MAIN(NULL, NULL)

/* The embedding op: tables of every storage type, external rows, and tensors of the wrong
 * shape or type. */
#include "backend/isas.h"

#include <stdlib.h>

#include "core/golden_quants.h"
#include "core/quant.h"
#include "core/quantise.h"

#define N_VOCAB 5
#define WIDTH   256
#define SEED    9u

static void random_rows(float *x) {
    uint64_t state = SEED;
    for (int32_t i = 0; i < N_VOCAB * WIDTH; i++) {
        x[i] = random_normal(&state);
    }
}

static tensor_view matrix(dtype type, const void *data, size_t n_bytes) {
    return (tensor_view){.name = "token_embd",
                         .type = type,
                         .n_dims = 2,
                         .dims = {N_VOCAB, WIDTH, 1, 1},
                         .data = data,
                         .n_bytes = n_bytes};
}

TEST(rows_are_the_stored_values_times_the_scale) {
    static const dtype types[] = {DTYPE_F32,  DTYPE_F16,   DTYPE_BF16, DTYPE_Q4_0,
                                  DTYPE_Q8_0, DTYPE_MXFP4, DTYPE_TQ1_0};
    static const int32_t tokens[] = {4, 0, 2, -1 - 1, 4};
    float rows[N_VOCAB * WIDTH], stored[N_VOCAB * WIDTH], external[2 * WIDTH], got[5 * WIDTH];
    random_rows(rows);
    for (int32_t i = 0; i < 2 * WIDTH; i++) {
        external[i] = (float)i;
    }
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        size_t n_bytes =
            (size_t)(N_VOCAB * WIDTH / dtype_block_elements(types[t]) * dtype_block_bytes(types[t]));
        uint8_t *data = malloc(n_bytes);
        assert_int_equal(quant_quantise(types[t], rows, N_VOCAB * WIDTH, data), QUIRE_OK);
        assert_int_equal(quant_dequantise(types[t], data, N_VOCAB * WIDTH, stored), QUIRE_OK);
        backend *b = open_isa("auto", 2);
        embedding *e = NULL;
        quire_error err;
        tensor_view view = matrix(types[t], data, n_bytes);
        assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_OK);
        assert_int_equal(b->ops->weight_bytes(b), n_bytes);
        free(data); /* the bytes may go away */
        buffer x = b->ops->buffer_reserve(b, WIDTH);
        assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 5, .max_seqs = 1}, NULL, 0, &err),
                         QUIRE_OK);
        batch step = {.n_rows = 5, .tokens = tokens, .embeddings = external};
        b->ops->step_begin(b, &step);
        b->ops->embed(b, &(embed_use){.tokens = e, .scale = 3.0f, .x = x});
        b->ops->step_wait(b);
        b->ops->buffer_read(b, x, 0, 5, got);
        for (int32_t row = 0; row < 5; row++) {
            for (int32_t i = 0; i < WIDTH; i++) {
                float want = tokens[row] < 0 ? external[WIDTH + i] : 3.0f * stored[tokens[row] * WIDTH + i];
                assert_true(got[row * WIDTH + i] == want);
            }
        }
        b->ops->close(b);
    }
}

/* Embeds the rows, one batch each, of a table of gguf-py's blocks. */
static void check_golden_rows(dtype t) {
    golden_blocks g = golden_blocks_read(t);
    if (g.blocks == NULL) {
        golden_blocks_free(&g);
        return;
    }
    const int32_t n_rows = (int32_t)(g.n / WIDTH);
    backend *b = open_isa("auto", 2);
    embedding *e = NULL;
    quire_error err;
    tensor_view view =
        matrix(t, g.blocks, g.n / (size_t)dtype_block_elements(t) * (size_t)dtype_block_bytes(t));
    view.dims[0] = n_rows;
    assert_true(n_rows >= 8 && g.n % WIDTH == 0);
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_OK);
    buffer x = b->ops->buffer_reserve(b, WIDTH);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 1, .max_seqs = 1}, NULL, 0, &err),
                     QUIRE_OK);
    for (int32_t row = n_rows - 1; row >= 0; row--) {
        float got[WIDTH];
        batch step = {.n_rows = 1, .tokens = &row};
        b->ops->step_begin(b, &step);
        b->ops->embed(b, &(embed_use){.tokens = e, .scale = 1.0f, .x = x});
        b->ops->step_wait(b);
        b->ops->buffer_read(b, x, 0, 1, got);
        if (memcmp(got, g.values + (size_t)row * WIDTH, sizeof got) != 0) {
            fail_msg("%s: row %d has other bits", dtype_name(t), row);
        }
    }
    b->ops->close(b);
    golden_blocks_free(&g);
}

TEST(rows_of_every_type_are_what_gguf_py_dequantises) {
    for (int t = DTYPE_F16; t < DTYPE_Q2_0; t++) { /* gguf-py does not read Q2_0 and Q1_0 */
        check_golden_rows((dtype)t);
    }
}

/* Rows of a step that has everything: tokens with an external one among them, positions
 * with an offset and a second axis, types. */
enum { N_ROWS = 7, N_POSITIONS = 9, OFFSET = 2, N_AXES = 2 };
static const int32_t step_tokens[N_ROWS] = {4, 0, -1 - 1, 3, 3, 1, 2},
                     step_types[N_ROWS] = {1, 0, 1, 1, 0, 0, 1};
static const int32_t step_positions[N_ROWS * N_AXES] = {0, 99, 1, 99, 2, 99, 6, 99, 4, 99, 5, 99, 3, 99};

typedef struct tables {
    float tokens[N_VOCAB * WIDTH], positions[N_POSITIONS * WIDTH], types[2 * WIDTH], external[2 * WIDTH],
        weight[WIDTH];
} tables;

/* Which parts are there. */
typedef struct parts {
    bool tokens, positions, types, norm, all_type_0;
} parts;

static void fill_table(float *x, int32_t n, uint64_t *state) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = random_normal(state);
    }
}

static embedding *load_table(backend *b, const float *rows, int32_t n) {
    tensor_view view = matrix(DTYPE_F32, rows, sizeof *rows * (size_t)n * WIDTH);
    embedding *e = NULL;
    quire_error err;
    view.dims[0] = n;
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_OK);
    return e;
}

/* Rows row0..row0 + n of that step. False: not on this machine. */
static bool embed_step(const char *isa, int32_t n_threads, const tables *t, parts p, int32_t row0, int32_t n,
                       float *out) {
    backend *b = open_isa(isa, n_threads);
    if (b == NULL) {
        return false;
    }
    quire_error err;
    tensor_view weight = {.name = "n",
                          .type = DTYPE_F32,
                          .n_dims = 1,
                          .dims = {WIDTH, 1, 1, 1},
                          .data = t->weight,
                          .n_bytes = sizeof t->weight};
    norm *nm;
    assert_int_equal(
        b->ops->norm_load(
            b, &(norm_spec){.kind = NORM_LAYER, .width = WIDTH, .eps = 1e-5f, .weight = &weight}, &nm, &err),
        QUIRE_OK);
    embed_use use = {.scale = 0.3f, .position_offset = OFFSET, .x = b->ops->buffer_reserve(b, WIDTH)};
    use.tokens = p.tokens ? load_table(b, t->tokens, N_VOCAB) : NULL;
    use.positions = p.positions ? load_table(b, t->positions, N_POSITIONS) : NULL;
    use.types = p.types ? load_table(b, t->types, 2) : NULL;
    use.nm = p.norm ? nm : NULL;
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = N_ROWS, .max_seqs = 1}, NULL, 0, &err),
                     QUIRE_OK);
    const batch step = {.n_rows = n,
                        .tokens = step_tokens + row0,
                        .embeddings = t->external,
                        .positions = step_positions + (ptrdiff_t)row0 * N_AXES,
                        .n_axes = N_AXES,
                        .types = p.all_type_0 ? NULL : step_types + row0};
    b->ops->step_begin(b, &step);
    b->ops->embed(b, &use);
    b->ops->step_wait(b);
    b->ops->buffer_read(b, use.x, 0, n, out);
    b->ops->close(b);
    return true;
}

/* One row of it, in the order in which parts are added. */
static void expected_row(const tables *t, parts p, int32_t row, float *out) {
    int32_t token = step_tokens[row], type = p.all_type_0 ? 0 : step_types[row];
    const float *position = t->positions + (step_positions[row * N_AXES] + OFFSET) * WIDTH;
    for (int32_t i = 0; i < WIDTH; i++) {
        float x = !p.tokens   ? 0.0f
                  : token < 0 ? t->external[(-1 - token) * WIDTH + i]
                              : 0.3f * t->tokens[token * WIDTH + i];
        x = p.positions ? x + position[i] : x;
        out[i] = p.types ? x + t->types[type * WIDTH + i] : x;
    }
    if (p.norm) {
        math_plain.norm_layer(out, t->weight, NULL, 1e-5f, WIDTH, out);
    }
}

TEST(a_row_is_the_norm_of_its_parts_sum) {
    static const parts cases[] = {{.tokens = true, .positions = true},
                                  {.tokens = true, .types = true, .norm = true},
                                  {.tokens = true, .positions = true, .types = true, .norm = true},
                                  {.tokens = true, .positions = true, .types = true, .all_type_0 = true},
                                  {.positions = true},
                                  {.tokens = true, .norm = true}};
    static const int32_t batches[][2] = {{0, N_ROWS}, {2, 1}, {1, 5}};
    static tables t;
    uint64_t state = SEED;
    fill_table(t.tokens, N_VOCAB * WIDTH, &state);
    fill_table(t.positions, N_POSITIONS * WIDTH, &state);
    fill_table(t.types, 2 * WIDTH, &state);
    fill_table(t.external, 2 * WIDTH, &state);
    fill_table(t.weight, WIDTH, &state);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float want[N_ROWS * WIDTH], got[N_ROWS * WIDTH];
        for (int32_t row = 0; row < N_ROWS; row++) {
            expected_row(&t, cases[c], row, want + row * WIDTH);
        }
        for (int i = 0; i < N_MATH_ISAS * 3; i++) {
            const int32_t *rows = batches[i % 3];
            if (embed_step(ISAS[i / 3], i % 2 == 0 ? 1 : 3, &t, cases[c], rows[0], rows[1], got)) {
                assert_true(same_floats(got, want + rows[0] * WIDTH, (size_t)rows[1] * WIDTH));
            }
        }
    }
}

/* RoBERTa's: two sequences of 5 and 3 rows; token OFFSET - 1 is padding. Every row is its
 * position's number. */
TEST(positions_do_not_count_padding) {
    enum { N = 8, PAD = OFFSET - 1 };
    static const int32_t tokens[N] = {4, PAD, 3, PAD, 0, PAD, 2, -1}, positions[N] = {0, 1, 2, 3, 4, 0, 1, 2};
    static const float wanted[N] = {2, 1, 3, 1, 4, 1, 2, 3};
    static float table[N_POSITIONS * WIDTH], external[WIDTH], out[N * WIDTH];
    for (int32_t i = 0; i < N_POSITIONS * WIDTH; i++) {
        table[i] = (float)(i / WIDTH);
    }
    backend *b = open_isa("plain", 3);
    quire_error err;
    embed_use use = {.position_offset = OFFSET, .skips_padding = true, .x = b->ops->buffer_reserve(b, WIDTH)};
    use.positions = load_table(b, table, N_POSITIONS);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = N, .max_seqs = 2}, NULL, 0, &err),
                     QUIRE_OK);
    b->ops->step_begin(
        b,
        &(batch){.n_rows = N, .tokens = tokens, .embeddings = external, .positions = positions, .n_axes = 1});
    b->ops->embed(b, &use);
    b->ops->step_wait(b);
    b->ops->buffer_read(b, use.x, 0, N, out);
    for (int32_t row = 0; row < N; row++) {
        assert_true(out[row * WIDTH] == wanted[row]);
    }
    b->ops->close(b);
}

TEST(tensors_of_the_wrong_shape_or_type_are_refused) {
    static const uint8_t data[4096];
    backend *b = open_isa("plain", 1);
    embedding *e = NULL;
    quire_error err;
    tensor_view view = matrix(DTYPE_F32, data, sizeof data); /* shorter than its shape */
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "token_embd"));
    view.type = DTYPE_I32;
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_UNSUPPORTED);
    view.type = DTYPE_Q4_0;
    view.dims[1] = 40; /* not whole blocks */
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    view = (tensor_view){.name = "v",
                         .type = DTYPE_F32,
                         .n_dims = 1,
                         .dims = {INT64_MAX / 2, 1, 1, 1},
                         .data = data,
                         .n_bytes = sizeof data};
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    assert_null(e);
    b->ops->close(b);
}

TEST(a_step_without_rows_is_refused) {
    backend *b = open_isa("plain", 1);
    quire_error err;
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 0}, NULL, 0, &err), QUIRE_INVALID);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 1, .max_out = -1}, NULL, 0, &err),
                     QUIRE_INVALID);
    b->ops->close(b);
}

TEST_MAIN(NULL, NULL)

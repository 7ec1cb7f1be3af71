/* Embeddings and norm weights: rows of every storage type, external rows, and tensors of the wrong shape or type. */
#include "backend/isas.h"

#include <stdlib.h>

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
    return (tensor_view){.name = "token_embd", .type = type, .n_dims = 2, .dims = {N_VOCAB, WIDTH, 1, 1}, .data = data, .n_bytes = n_bytes};
}

static void rows_are_the_stored_values_times_the_scale(void **unused) {
    (void)unused;
    static const dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q8_0};
    static const int32_t tokens[] = {4, 0, 2, -1 - 1, 4};
    float rows[N_VOCAB * WIDTH], stored[N_VOCAB * WIDTH], external[2 * WIDTH], got[5 * WIDTH];
    random_rows(rows);
    for (int32_t i = 0; i < 2 * WIDTH; i++) {
        external[i] = (float)i;
    }
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        size_t n_bytes = (size_t)(N_VOCAB * WIDTH / dtype_block_elements(types[t]) * dtype_block_bytes(types[t]));
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
        assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 5, .max_seqs = 1}, NULL, 0, &err), QUIRE_OK);
        batch step = {.n_rows = 5, .tokens = tokens, .embeddings = external};
        b->ops->step_begin(b, &step);
        b->ops->embed(b, e, 3.0f, x);
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

static void tensors_of_the_wrong_shape_or_type_are_refused(void **unused) {
    (void)unused;
    static const uint8_t data[4096];
    backend *b = open_isa("plain", 1);
    embedding *e = NULL;
    norm *nm = NULL;
    quire_error err;
    tensor_view view = matrix(DTYPE_F32, data, sizeof data); /* shorter than its shape */
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "token_embd"));
    view.type = DTYPE_I32;
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_UNSUPPORTED);
    view.type = DTYPE_Q4_0;
    view.dims[1] = 40; /* not whole blocks */
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    view =
        (tensor_view){.name = "v", .type = DTYPE_F32, .n_dims = 1, .dims = {INT64_MAX / 2, 1, 1, 1}, .data = data, .n_bytes = sizeof data};
    assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_BAD_FILE);
    assert_int_equal(b->ops->norm_load(b, NORM_RMS, &view, NULL, 1e-5f, false, &nm, &err), QUIRE_BAD_FILE);
    view.dims[0] = 1 << 20; /* longer than its bytes */
    assert_int_equal(b->ops->norm_load(b, NORM_RMS, &view, NULL, 1e-5f, false, &nm, &err), QUIRE_BAD_FILE);
    view.dims[0] = 8;
    view.type = DTYPE_I32;
    assert_int_equal(b->ops->norm_load(b, NORM_RMS, &view, NULL, 1e-5f, false, &nm, &err), QUIRE_UNSUPPORTED);
    view.type = DTYPE_F32;
    tensor_view bias = view;
    bias.dims[0] = 7;
    assert_int_equal(b->ops->norm_load(b, NORM_LAYER, &view, &bias, 1e-5f, false, &nm, &err), QUIRE_BAD_FILE);
    assert_null(e);
    assert_null(nm);
    b->ops->close(b);
}

static void a_step_without_rows_is_refused(void **unused) {
    (void)unused;
    backend *b = open_isa("plain", 1);
    quire_error err;
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 0}, NULL, 0, &err), QUIRE_INVALID);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 1, .max_out = -1}, NULL, 0, &err), QUIRE_INVALID);
    b->ops->close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_stored_values_times_the_scale),
        cmocka_unit_test(tensors_of_the_wrong_shape_or_type_are_refused),
        cmocka_unit_test(a_step_without_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

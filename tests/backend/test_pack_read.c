/* An embedding table that is also the head: rows read from the packed weights have the
 * bits of the tensor's rows. */

#include <stdlib.h>

#include "backend/linear_cases.h"
#include "test.h"

#define ROWS 5

/* Rows of the head, through the op that embeds tokens. */
static void read_rows(backend *b, const embedding *e, const int32_t *ids, int32_t width, float *out) {
    quire_error err;
    buffer x = b->ops->buffer_reserve(b, width);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = ROWS, .max_seqs = 1}, NULL, 0, &err),
                     QUIRE_OK);
    batch step = {.n_rows = ROWS, .tokens = ids};
    b->ops->step_begin(b, &step);
    b->ops->embed(b, &(embed_use){.tokens = e, .scale = 1.0f, .x = x});
    b->ops->step_wait(b);
    b->ops->buffer_read(b, x, 0, ROWS, out);
}

/* Whether a mode keeps the values of a type: int8 rounds floats, and bf16 what it
 * expands. */
static bool keeps(dtype t, compute_mode mode) {
    return mode == COMPUTE_F32 || (mode == COMPUTE_BF16 ? t == DTYPE_BF16 : dtype_is_quantised(t));
}

static void check(dtype t, compute_mode mode, int32_t n_out, int32_t n_in) {
    uint64_t seed = 44;
    const size_t n = (size_t)n_out * (size_t)n_in;
    uint8_t *bytes = random_weights(t, n, &seed);
    float *want = malloc(n * sizeof *want), *got = malloc((size_t)ROWS * (size_t)n_in * sizeof *got);
    tensor_view view = matrix_view(t, n_out, n_in, bytes);
    backend *b = open_isa("auto", mode, 2);
    linear *l;
    embedding *e = NULL;
    quire_error err;
    assert_int_equal(quant_dequantise(t, bytes, n, want), QUIRE_OK);
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &view}, &l, &err), QUIRE_OK);
    free(bytes);
    const int64_t n_bytes = b->ops->weight_bytes(b);
    assert_int_equal(b->ops->embedding_of(b, l, t, &e), keeps(t, mode) ? QUIRE_OK : QUIRE_UNSUPPORTED);
    assert_int_equal(b->ops->weight_bytes(b), n_bytes);
    if (e != NULL) {
        const int32_t ids[ROWS] = {n_out - 1, 0, n_out / 2, n_out / 3, n_out - 1};
        read_rows(b, e, ids, n_in, got);
        for (int i = 0; i < ROWS; i++) {
            if (memcmp(got + (size_t)i * (size_t)n_in, want + (size_t)ids[i] * (size_t)n_in,
                       (size_t)n_in * sizeof *got) != 0) {
                fail_msg("%s, %s, %d x %d: row %d has other bits", dtype_name(t), compute_name(mode), n_out,
                         n_in, ids[i]);
            }
        }
    }
    b->ops->close(b);
    free(want);
    free(got);
}

TEST(rows_of_packed_weights_are_those_of_the_tensor) {
    static const int32_t shapes[][2] = {{1, 256}, {16, 512}, {37, 768}, {33, 96}, {20, 320}};
    for (int i = 0; i < N_WEIGHT_TYPES; i++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
                if (shapes[s][1] % dtype_block_elements(weight_types[i]) == 0) {
                    check(weight_types[i], mode, shapes[s][0], shapes[s][1]);
                }
            }
        }
    }
}

/* Reads rows of int8 weights with scales from a head, or from a table of their own. */
static void check_int8(compute_mode mode, int32_t n_out, int32_t n_in, bool from_head) {
    uint64_t seed = 44;
    const size_t n = (size_t)n_out * (size_t)n_in, width = (size_t)n_in;
    uint8_t *bytes = random_weights(DTYPE_I8, n, &seed);
    float *scales = malloc((size_t)n_out * sizeof *scales), *got = malloc(ROWS * width * sizeof *got);
    for (int32_t r = 0; r < n_out; r++) {
        scales[r] = (float)(r + 1) * 3e-3f;
    }
    const tensor_view scale = {.name = "scale",
                               .type = DTYPE_F32,
                               .n_dims = 1,
                               .dims = {n_out, 1, 1, 1},
                               .data = scales,
                               .n_bytes = (size_t)n_out * sizeof *scales};
    tensor_view view = matrix_view(DTYPE_I8, n_out, n_in, bytes);
    view.scale = &scale;
    backend *b = open_isa("auto", mode, 2);
    linear *l;
    embedding *e = NULL;
    quire_error err;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &view}, &l, &err), QUIRE_OK);
    assert_int_equal(b->ops->embedding_of(b, l, DTYPE_I8, &e),
                     mode != COMPUTE_BF16 ? QUIRE_OK : QUIRE_UNSUPPORTED);
    if (!from_head) {
        assert_int_equal(b->ops->embedding_load(b, &view, &e, &err), QUIRE_OK);
    }
    const int32_t ids[ROWS] = {n_out - 1, 0, n_out / 2, n_out / 3, n_out - 1};
    read_rows(b, e, ids, n_in, got);
    for (size_t i = 0; i < ROWS * width; i++) {
        const size_t id = (size_t)ids[i / width];
        assert_true(got[i] == (float)((const int8_t *)bytes)[id * width + i % width] * scales[id]);
    }
    b->ops->close(b);
    free(bytes);
    free(scales);
    free(got);
}

TEST(int8_rows_are_codes_times_their_scales) {
    check_int8(COMPUTE_F32, 37, 96, true);
    check_int8(COMPUTE_BF16, 37, 96, false);
    check_int8(COMPUTE_INT8, 37, 96, true);
    check_int8(COMPUTE_INT8, 20, 50, true);
    check_int8(COMPUTE_INT8, 20, 50, false);
}

TEST_MAIN(NULL, NULL)

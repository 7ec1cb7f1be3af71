/* A step's buffers, apart from weights and pages: their size for a 1.1B model with 512
 * rows in every compute mode, and their contents when a step begins. */

#include <math.h>
#include <string.h>

#include "backend/linear_cases.h"
#include "test.h"

#define MOST_BYTES 64000000

/* Llama's activations and the widest of its weights; of their outputs a few will do,
 * which nothing here is sized by. */
static int64_t step_bytes(compute_mode mode, dtype type) {
    static const int32_t widths[] = {2048, 2048, 256, 256, 2048, 5632};
    model_desc d = desc_plain(22, 32, 4, 64, 5632);
    backend *b = open_isa("auto", mode, 2);
    kv_layout layout;
    quire_error err;
    for (int i = 0; i < 2; i++) {
        int32_t n_in = i == 0 ? 5632 : 2048;
        uint64_t seed = 1;
        uint8_t *source = random_weights(type, (size_t)16 * (size_t)n_in, &seed);
        tensor_view w = matrix_view(type, 16, n_in, source);
        linear *l;
        assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err), QUIRE_OK);
        free(source);
    }
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        (void)b->ops->buffer_reserve(b, widths[i]);
    }
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_BF16), 16, &layout, &err), QUIRE_OK);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = 512, .max_seqs = 64, .max_out = 64},
                                       &layout, d.n_vocab, &err),
                     QUIRE_OK);
    int64_t bytes = b->ops->step_bytes(b);
    b->ops->close(b);
    return bytes;
}

TEST(buffers_of_a_step_stay_under_64_megabytes) {
    static const struct {
        compute_mode mode;
        dtype type;
    } cases[] = {{COMPUTE_INT8, DTYPE_Q4_0},
                 {COMPUTE_INT8, DTYPE_Q4_K},
                 {COMPUTE_INT8, DTYPE_BF16},
                 {COMPUTE_BF16, DTYPE_BF16},
                 {COMPUTE_F32, DTYPE_F16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = step_bytes(cases[i].mode, cases[i].type);
        print_message("%s over %s: %.1f MB\n", compute_name(cases[i].mode), dtype_name(cases[i].type),
                      (double)bytes / 1e6);
        assert_true(bytes > 25000000); /* the activations alone: all is counted */
        assert_true(bytes < MOST_BYTES);
    }
}

/* In debug builds, so that what an op leaves out shows instead of an earlier step's
 * values, which may be another tenant's. */
TEST(a_step_begins_with_rows_of_nan) {
#ifndef QUIRE_DEBUG
    skip();
#endif
    enum { WIDTH = 40, ROWS = 3, VOCAB = 50 };
    backend *b = open_isa("auto", COMPUTE_F32, 1);
    quire_error err;
    float rows[ROWS * WIDTH] = {0};
    buffer a = b->ops->buffer_reserve(b, WIDTH);
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = ROWS, .max_seqs = 1, .max_out = 2}, NULL,
                                       VOCAB, &err),
                     QUIRE_OK);
    b->ops->step_begin(b, &(batch){.n_rows = ROWS, .n_out = 2});
    b->ops->buffer_write(b, a, 0, ROWS, rows);
    memset(b->ops->logits(b, 0), 0, sizeof(float) * 2 * VOCAB);
    b->ops->step_begin(b, &(batch){.n_rows = 2, .n_out = 1});
    b->ops->buffer_read(b, a, 0, ROWS, rows);
    for (int32_t i = 0; i < ROWS * WIDTH; i++) {
        assert_int_equal(isnan(rows[i]) != 0, i < 2 * WIDTH);
    }
    for (int32_t i = 0; i < VOCAB; i++) {
        assert_true(isnan(b->ops->logits(b, 0)[i]) && b->ops->logits(b, 1)[i] == 0.0f);
    }
    b->ops->close(b);
}

/* Of all sizes, in turn: zeroed, aligned, and apart from each other. */
TEST(blocks_of_a_backend_are_zeroed_and_share_nothing) {
    static const size_t sizes[] = {1,       64,       4096,     65535,   65536,    65537,
                                   100001,  2000000,  2097152,  5000003, 16777215, 16777216,
                                   3000000, 14000000, 15000001, 70000,   40000000};
    enum { N = sizeof sizes / sizeof sizes[0], ROUNDS = 3 };
    backend *b = open_isa("auto", COMPUTE_F32, 1);
    uint8_t *blocks[ROUNDS * N];
    for (int i = 0; i < ROUNDS * N; i++) {
        size_t size = sizes[i % N];
        blocks[i] = cpu_own((cpu_backend *)b, size, 1);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        assert_true(blocks[i][0] == 0 && memcmp(blocks[i], blocks[i] + 1, size - 1) == 0);
        memset(blocks[i], i + 1, size);
    }
    for (int i = 0; i < ROUNDS * N; i++) {
        assert_true(blocks[i][0] == i + 1 && memcmp(blocks[i], blocks[i] + 1, sizes[i % N] - 1) == 0);
    }
    assert_null(cpu_own((cpu_backend *)b, SIZE_MAX, 2));
    assert_null(cpu_own((cpu_backend *)b, SIZE_MAX, 1));
    b->ops->close(b);
}

TEST_MAIN(NULL, NULL)

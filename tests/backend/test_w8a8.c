/* Checkpoints that are already quantised to int8 with a scale per row: products use the
 * stored numbers on every instruction set. */

#include <math.h>

#include "backend/linear_cases.h"
#include "core/half.h"
#include "test.h"

enum { ROWS = 19, OUT = 83, IN = 192 };

typedef struct w8a8 {
    int8_t q[OUT][IN];
    float scales[OUT];
    uint16_t halves[OUT]; /* the scales, which are bf16 */
    float x[ROWS][IN];
} w8a8;

static w8a8 *make(void) {
    w8a8 *c = malloc(sizeof *c);
    uint64_t seed = 5;
    assert_non_null(c);
    for (int n = 0; n < OUT; n++) {
        for (int k = 0; k < IN; k++) {
            c->q[n][k] = (int8_t)(uint8_t)rng_next(&seed); /* -128 is among them */
        }
        c->q[n][n % IN] = -128;
        c->halves[n] = f32_to_bf16(0.001f + random_float(&seed) * 0.0007f);
        c->scales[n] = bf16_to_f32(c->halves[n]);
    }
    c->scales[7] = bf16_to_f32(c->halves[7] = f32_to_bf16(-0.25f)); /* as the file has it, whatever that is */
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < IN; k++) {
            c->x[r][k] = random_float(&seed) * (float)(r + 1);
        }
    }
    return c;
}

/* linear.h's definition, word for word. */
static float expected(const w8a8 *c, int row, int out) {
    float a = 0.0f;
    int32_t sum = 0;
    for (int k = 0; k < IN; k++) {
        a = fmaxf(a, fabsf(c->x[row][k]));
    }
    for (int k = 0; k < IN; k++) {
        sum += (int32_t)nearbyintf(c->x[row][k] * (127.0f / a)) * c->q[out][k];
    }
    return (float)sum * (a / 127.0f * c->scales[out]);
}

static tensor_view scale_view(const w8a8 *c) {
    return (tensor_view){.name = "w_scale",
                         .type = DTYPE_BF16,
                         .n_dims = 2,
                         .dims = {OUT, 1, 1, 1},
                         .data = c->halves,
                         .n_bytes = sizeof c->halves};
}

static linear *load(backend *b, const w8a8 *c, const tensor_view *scale) {
    tensor_view w = matrix_view(DTYPE_I8, OUT, IN, c->q);
    linear *l;
    quire_error err;
    w.scale = scale;
    if (b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return l;
}

TEST(products_are_those_of_the_files_own_numbers) {
    w8a8 *c = make();
    tensor_view scale = scale_view(c);
    for (int i = 0; i < N_ISAS; i++) {
        backend *b = open_isa(isa_names[i], COMPUTE_INT8, 2);
        if (b == NULL) {
            continue;
        }
        const backend_ops *ops = b->ops;
        static float got[ROWS][OUT];
        linear *l = load(b, c, &scale);
        buffer x = ops->buffer_reserve(b, IN), y = ops->buffer_reserve(b, OUT);
        assert_int_equal(ops->step_open(b, &(step_limits){.max_rows = ROWS, .max_seqs = 1}, NULL, 0, NULL),
                         QUIRE_OK);
        for (int n = 1; n <= ROWS; n += 6) { /* 1, 7, 13, 19 rows */
            ops->step_begin(b, &(batch){.n_rows = n});
            ops->buffer_write(b, x, 0, n, c->x[0]);
            ops->norm_linears(b, x, NULL, &(linear_use){l, y}, 1);
            ops->step_wait(b);
            ops->buffer_read(b, y, 0, n, got[0]);
            for (int r = 0; r < n; r++) {
                for (int o = 0; o < OUT; o++) {
                    if (got[r][o] != expected(c, r, o)) {
                        fail_msg("%s, %d rows: row %d, output %d is %a, not %a", isa_names[i], n, r, o,
                                 (double)got[r][o], (double)expected(c, r, o));
                    }
                }
            }
        }
        ops->close(b);
    }
    free(c);
}

TEST(scales_must_be_one_float_a_row) {
    w8a8 *c = make();
    backend *b = open_isa("auto", COMPUTE_INT8, 1);
    linear *l;
    quire_error err;
    tensor_view w = matrix_view(DTYPE_I8, OUT, IN, c->q), good = scale_view(c), bad[5];
    for (int i = 0; i < 5; i++) {
        bad[i] = good;
    }
    bad[0].dims[0] = OUT - 1;
    bad[1].dims[1] = 2; /* groups */
    bad[2].type = DTYPE_I16;
    bad[3].n_bytes -= 1;
    bad[4].n_dims = 3;
    for (int i = 0; i < 5; i++) {
        w.scale = &bad[i];
        assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err), QUIRE_UNSUPPORTED);
        assert_non_null(strstr(err.message, "w_scale"));
    }
    w.scale = NULL;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err), QUIRE_UNSUPPORTED);
    tensor_view floats = matrix_view(DTYPE_F32, ROWS, IN, c->x);
    floats.scale = &good;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &floats}, &l, &err), QUIRE_UNSUPPORTED);
    b->ops->close(b);
    free(c);
}

TEST_MAIN(NULL, NULL)

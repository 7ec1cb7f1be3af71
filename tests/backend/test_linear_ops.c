/* The fused product ops, called through the backend's table. */

#include <math.h>

#include "backend/cpu/math.h"
#include "backend/linear_cases.h"
#include "test.h"

#define D        256
#define F        1064 /* not whole tiles; enough for wide parts with one thread, not with two */
#define V        83
#define MAX_ROWS 130

/* A backend with one layer's worth of products. Types differ between the weights, so one
 * op needs rows in several formats. */
typedef struct fixture {
    backend *b;
    buffer x, q, k, v, h, gated, gate, up, normed, k_again;
    norm *nm, *replacing; /* the same numbers */
    linear *wq, *wk, *wv, *w_gate, *w_up, *head, *from_h;
    float bias_q[D], bias_up[F];
    float *rows; /* [MAX_ROWS, D] */
} fixture;

static linear *load(backend *b, dtype t, int32_t n_out, int32_t n_in, const float *bias, uint64_t seed) {
    uint8_t *source = random_weights(t, (size_t)n_out * (size_t)n_in, &seed);
    tensor_view w = matrix_view(t, n_out, n_in, source);
    tensor_view bias_view = {.name = "b",
                             .type = DTYPE_F32,
                             .n_dims = 1,
                             .dims = {n_out, 1, 1, 1},
                             .data = bias,
                             .n_bytes = 4 * (size_t)n_out};
    linear *l = NULL;
    quire_error err;
    if (b->ops->linear_load(b, &(linear_spec){.weight = &w, .bias = bias != NULL ? &bias_view : NULL}, &l,
                            &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    free(source);
    return l;
}

static fixture fixture_open(compute_mode mode, const char *isa, int32_t n_threads) {
    fixture f = {.b = open_isa(isa, mode, n_threads)};
    const backend_ops *ops = f.b->ops;
    uint64_t seed = 11;
    float norm_weight[D];
    for (int i = 0; i < D; i++) {
        norm_weight[i] = 1.0f + random_float(&seed) * 0.5f;
        f.bias_q[i] = random_float(&seed);
    }
    for (int i = 0; i < F; i++) {
        f.bias_up[i] = random_float(&seed);
    }
    tensor_view nw = {.name = "n",
                      .type = DTYPE_F32,
                      .n_dims = 1,
                      .dims = {D, 1, 1, 1},
                      .data = norm_weight,
                      .n_bytes = sizeof norm_weight};
    quire_error err;
    assert_int_equal(ops->norm_load(f.b, &(norm_spec){.width = D, .eps = 1e-5f, .weight = &nw}, &f.nm, &err),
                     QUIRE_OK);
    assert_int_equal(ops->norm_load(f.b,
                                    &(norm_spec){.width = D, .eps = 1e-5f, .replaces = true, .weight = &nw},
                                    &f.replacing, &err),
                     QUIRE_OK);
    f.wq = load(f.b, DTYPE_Q4_K, D, D, f.bias_q, 1);
    f.wk = load(f.b, DTYPE_F32, 77, D, NULL, 2);
    f.wv = load(f.b, DTYPE_Q6_K, 64, D, NULL, 3);
    f.w_gate = load(f.b, DTYPE_Q4_0, F, D, NULL, 4);
    f.w_up = load(f.b, DTYPE_BF16, F, D, f.bias_up, 5);
    f.from_h = load(f.b, DTYPE_F16, D, F, f.bias_q, 6);
    f.head = load(f.b, DTYPE_Q8_0, V, D, NULL, 7);
    f.x = ops->buffer_reserve(f.b, D);
    f.q = ops->buffer_reserve(f.b, D);
    f.k = ops->buffer_reserve(f.b, 77);
    f.k_again = ops->buffer_reserve(f.b, 77);
    f.normed = ops->buffer_reserve(f.b, D);
    f.v = ops->buffer_reserve(f.b, 64);
    f.h = ops->buffer_reserve(f.b, F);
    f.gated = ops->buffer_reserve(f.b, F);
    f.gate = ops->buffer_reserve(f.b, F);
    f.up = ops->buffer_reserve(f.b, F);
    const step_limits limits = {.max_rows = MAX_ROWS, .max_seqs = 1, .max_out = 4, .max_partials = 0};
    assert_int_equal(ops->step_open(f.b, &limits, NULL, V, &err), QUIRE_OK);
    f.rows = malloc(sizeof(float) * MAX_ROWS * D);
    for (int i = 0; i < MAX_ROWS * D; i++) {
        f.rows[i] = random_float(&seed) * 3.0f;
    }
    return f;
}

static void fixture_close(fixture *f) {
    free(f->rows);
    f->b->ops->close(f->b);
}

/* Rows row0..row0+n of the fixture through every op; the last two rows are asked for
 * their logits. */
static void run(fixture *f, int32_t row0, int32_t n, float soft_cap) {
    const backend_ops *ops = f->b->ops;
    const int32_t out_rows[] = {n > 1 ? n - 2 : 0, n - 1};
    const batch step = {.n_rows = n, .n_out = 2, .out_rows = out_rows};
    const linear_use qkv[] = {{f->wq, f->q}, {f->wk, f->k}, {f->wv, f->v}};
    const linear_use apart[] = {{f->w_gate, f->gate}, {f->w_up, f->up}};
    const linear_use down = {f->from_h, f->x};
    ops->step_begin(f->b, &step);
    ops->buffer_write(f->b, f->x, 0, n, f->rows + row0 * D);
    ops->norm_linears(f->b, f->x, f->nm, qkv, 3);
    ops->norm_linears(f->b, f->x, f->nm, apart, 2);
    ops->feed_forward(
        f->b, &(feed_forward_use){.x = f->x, .nm = f->nm, .gate = f->w_gate, .up = f->w_up, .h = f->gated});
    ops->linear_add(f->b, f->gated, &down, 0.5f, f->x);
    ops->head(f->b, f->x, f->nm, f->head, 2.0f, soft_cap);
    ops->step_wait(f->b);
}

static void expect_rows(fixture *f, buffer a, int32_t width, const float *expected, int32_t row0, int32_t n,
                        const char *what) {
    float *got = malloc(sizeof *got * (size_t)n * (size_t)width);
    f->b->ops->buffer_read(f->b, a, 0, n, got);
    for (int32_t r = 0; r < n; r++) {
        if (memcmp(got + r * width, expected + (row0 + r) * width, sizeof *got * (size_t)width) != 0) {
            fail_msg("%s of row %d, in a batch of %d that begins at row %d, has other bits", what, row0 + r,
                     n, row0);
        }
    }
    free(got);
}

TEST(a_row_does_not_depend_on_its_batch_or_on_threads) {
    static const int32_t batches[][2] = {{0, 1}, {5, 1},   {0, 2},   {3, 3},
                                         {7, 7}, {40, 16}, {60, 33}, {1, 129}};
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        fixture f = fixture_open(mode, "auto", 1);
        float *q = malloc(sizeof *q * MAX_ROWS * D), *h = malloc(sizeof *h * MAX_ROWS * F),
              *x = malloc(sizeof *x * MAX_ROWS * D);
        run(&f, 0, MAX_ROWS, 0.0f);
        f.b->ops->buffer_read(f.b, f.q, 0, MAX_ROWS, q);
        f.b->ops->buffer_read(f.b, f.gated, 0, MAX_ROWS, h);
        f.b->ops->buffer_read(f.b, f.x, 0, MAX_ROWS, x);
        for (int32_t threads = 1; threads <= 3; threads++) {
            fixture g = fixture_open(mode, "auto", threads);
            for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
                run(&g, batches[i][0], batches[i][1], 0.0f);
                expect_rows(&g, g.q, D, q, batches[i][0], batches[i][1], "q");
                expect_rows(&g, g.gated, F, h, batches[i][0], batches[i][1], "gate_up");
                expect_rows(&g, g.x, D, x, batches[i][0], batches[i][1], "linear_add");
            }
            fixture_close(&g);
        }
        free(q);
        free(h);
        free(x);
        fixture_close(&f);
    }
}

TEST(ops_have_the_bits_of_the_plain_twin) {
    static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8};
    for (int i = 0; i < 3; i++) {
        fixture plain = fixture_open(modes[i], "plain", 1);
        float x[9 * D], k[9 * 77], logits[2][V];
        run(&plain, 0, 9, 5.0f);
        plain.b->ops->buffer_read(plain.b, plain.x, 0, 9, x);
        plain.b->ops->buffer_read(plain.b, plain.k, 0, 9, k);
        memcpy(logits[0], plain.b->ops->logits(plain.b, 0), sizeof logits[0]);
        memcpy(logits[1], plain.b->ops->logits(plain.b, 1), sizeof logits[1]);
        for (int isa = 1; isa < N_ISAS; isa++) {
            if (modes[i] == COMPUTE_BF16 && isa == ISA_AVX512_BF16) {
                continue; /* the dot instruction has bits of its own */
            }
            backend *probe = open_isa(isa_names[isa], modes[i], 1);
            if (probe == NULL) {
                print_message("SKIP %s: not on this machine\n", isa_names[isa]);
                continue;
            }
            probe->ops->close(probe);
            fixture f = fixture_open(modes[i], isa_names[isa], 2);
            run(&f, 0, 9, 5.0f);
            expect_rows(&f, f.x, D, x, 0, 9, isa_names[isa]);
            expect_rows(&f, f.k, 77, k, 0, 9, isa_names[isa]);
            assert_memory_equal(f.b->ops->logits(f.b, 0), logits[0], sizeof logits[0]);
            assert_memory_equal(f.b->ops->logits(f.b, 1), logits[1], sizeof logits[1]);
            fixture_close(&f);
        }
        fixture_close(&plain);
    }
}

TEST(feed_forward_is_the_activation_of_its_products) {
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        fixture f = fixture_open(mode, "auto", 2);
        const math_kernels *math = ((cpu_backend *)f.b)->math;
        float *gate = malloc(sizeof *gate * 5 * F), *up = malloc(sizeof *up * 5 * F),
              *want = malloc(sizeof *want * 5 * F);
        run(&f, 0, 5, 0.0f);
        f.b->ops->buffer_read(f.b, f.gate, 0, 5, gate);
        f.b->ops->buffer_read(f.b, f.up, 0, 5, up);
        /* with and without a gate, where they have both */
        for (int i = 0; i < 2 * N_ACTIVATIONS; i++) {
            activation a = (activation)(i / 2);
            bool is_gated = i % 2 == 0;
            if (is_gated ? a == ACT_XIELU : activation_has_limit(a)) {
                continue;
            }
            feed_forward_use use = {.x = f.x, .nm = f.nm, .up = f.w_up, .f = a, .limit = 0.5f, .h = f.gated};
            use.gate = is_gated ? f.w_gate : NULL;
            use.xielu = &(xielu_desc){0.8f, 1.3f, 0.5f, -1e-6f};
            f.b->ops->step_begin(f.b, &(batch){.n_rows = 5});
            f.b->ops->buffer_write(f.b, f.x, 0, 5, f.rows);
            f.b->ops->feed_forward(f.b, &use);
            f.b->ops->step_wait(f.b);
            if (is_gated) {
                math->gate_up(a, 0.5f, gate, up, 5 * F, want);
            } else if (a == ACT_XIELU) {
                math->xielu(use.xielu, up, 5 * F, want);
            } else {
                math->activate(a, up, 5 * F, want);
            }
            expect_rows(&f, f.gated, F, want, 0, 5, is_gated ? "gated" : "ungated");
        }
        free(gate);
        free(up);
        free(want);
        fixture_close(&f);
    }
}

/* Rows of D through gate, up and down products of `wide` activations. */
typedef struct feed_forward {
    compute_mode mode;
    int32_t n_rows, wide;
    bool is_ungated;
    activation f;
} feed_forward;

/* x of the rows afterwards; the last product is named as the reader of what lies between,
 * or not. */
static void run_feed_forward(const feed_forward *c, const char *isa, int32_t n_threads, bool is_named,
                             float *x) {
    uint64_t seed = 21;
    quire_error err;
    backend *b = open_isa(isa, c->mode, n_threads);
    const backend_ops *ops = b->ops;
    buffer rows = ops->buffer_reserve(b, D), h = ops->buffer_reserve(b, c->wide);
    linear *gate = load(b, DTYPE_Q4_0, c->wide, D, NULL, 1), *up = load(b, DTYPE_Q8_0, c->wide, D, NULL, 2);
    linear *down = load(b, DTYPE_Q4_0, D, c->wide, NULL, 3);
    assert_int_equal(ops->step_open(b, &(step_limits){.max_rows = MAX_ROWS, .max_seqs = 1}, NULL, 0, &err),
                     QUIRE_OK);
    for (int32_t i = 0; i < c->n_rows * D; i++) {
        x[i] = random_float(&seed) * 3.0f;
    }
    ops->step_begin(b, &(batch){.n_rows = c->n_rows});
    ops->buffer_write(b, rows, 0, c->n_rows, x);
    for (int layer = 0; layer < 2; layer++) {
        feed_forward_use use = {
            .x = rows, .up = up, .f = c->f, .limit = 2.0f, .h = h, .reader = is_named ? down : NULL};
        use.gate = c->is_ungated ? NULL : gate;
        ops->feed_forward(b, &use);
        ops->linear_add(b, h, &(linear_use){down, rows}, 0.01f, rows);
    }
    ops->step_wait(b);
    ops->buffer_read(b, rows, 0, c->n_rows, x);
    float written[32 * 33] = {1.0f, 2.0f}, read[32 * 33]; /* who writes h again finds f32 */
    ops->buffer_write(b, h, 0, 1, written);
    ops->buffer_read(b, h, 0, 1, read);
    assert_memory_equal(written, read, sizeof *read * (size_t)c->wide);
    ops->close(b);
}

TEST(activations_that_become_their_readers_rows_at_once_have_the_same_bits) {
    /* 33, 3 and 1 groups: the last part is half a tile; of the others rows are a line
     * longer than their groups; with many, and one thread, parts are wider than a tile, and
     * with AMX those of more than LINEAR_TILE_ROWS too */
    static const feed_forward cases[] = {
        {COMPUTE_INT8, 7, 64, false, ACT_SILU},        {COMPUTE_INT8, 6, 192, false, ACT_SILU},
        {COMPUTE_INT8, 5, 1024, false, ACT_SILU},      {COMPUTE_F32, 5, 96, false, ACT_SILU},
        {COMPUTE_INT8, 1, 1056, false, ACT_SILU},      {COMPUTE_INT8, 33, 96, false, ACT_SILU},
        {COMPUTE_INT8, 65, 96, false, ACT_SILU},       {COMPUTE_INT8, MAX_ROWS, 32, false, ACT_SILU},
        {COMPUTE_INT8, 7, 64, true, ACT_GELU},         {COMPUTE_INT8, 33, 96, true, ACT_RELU2},
        {COMPUTE_INT8, 5, 1024, true, ACT_GELU_TANH},  {COMPUTE_INT8, 6, 192, false, ACT_SWIGLU_CLAMPED},
        {COMPUTE_INT8, MAX_ROWS, 544, false, ACT_SILU}};
    float *apart = malloc(sizeof *apart * MAX_ROWS * D), *at_once = malloc(sizeof *at_once * MAX_ROWS * D);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_feed_forward(&cases[i], "plain", 1, false, apart);
        for (int isa = 0; isa < N_ISAS; isa++) {
            backend *probe = open_isa(isa_names[isa], COMPUTE_INT8, 1);
            if (probe == NULL) {
                print_message("SKIP %s: not on this machine\n", isa_names[isa]);
                continue;
            }
            probe->ops->close(probe);
            for (int32_t threads = 1; threads <= 3; threads += 2) {
                run_feed_forward(&cases[i], isa_names[isa], threads, true, at_once);
                if (memcmp(apart, at_once, sizeof *apart * (size_t)(cases[i].n_rows * D)) != 0) {
                    fail_msg("%s, %d rows of %d: other bits", isa_names[isa], cases[i].n_rows, cases[i].wide);
                }
            }
        }
    }
    free(apart);
    free(at_once);
}

TEST(linear_add_adds_the_scaled_product_and_its_bias) {
    fixture f = fixture_open(COMPUTE_F32, "auto", 1);
    const linear_use whole = {f.from_h, f.x};
    const batch step = {.n_rows = 2};
    float zeros[2 * F] = {0}, x[2 * D];
    f.b->ops->step_begin(f.b, &step);
    f.b->ops->buffer_write(f.b, f.h, 0, 2, zeros);
    f.b->ops->buffer_write(f.b, f.x, 0, 2, f.rows);
    f.b->ops->linear_add(f.b, f.h, &whole, 0.25f, f.x);
    f.b->ops->step_wait(f.b);
    f.b->ops->buffer_read(f.b, f.x, 0, 2, x);
    for (int i = 0; i < 2 * D; i++) {
        assert_float_equal(x[i], f.rows[i] + 0.25f * f.bias_q[i % D], 1e-6f);
    }
    fixture_close(&f);
}

TEST(head_gives_scaled_and_capped_logits_of_the_rows_asked_for) {
    fixture f = fixture_open(COMPUTE_F32, "auto", 2);
    float first[V], alone[V], capped[V];
    run(&f, 0, 8, 0.0f);
    memcpy(first, f.b->ops->logits(f.b, 0), sizeof first);
    run(&f, 6, 1, 0.0f);
    memcpy(alone, f.b->ops->logits(f.b, 1), sizeof alone);
    assert_memory_equal(first, alone, sizeof first);
    run(&f, 6, 1, 3.0f);
    memcpy(capped, f.b->ops->logits(f.b, 0), sizeof capped);
    for (int i = 0; i < V; i++) {
        assert_true(fabsf(capped[i]) <= 3.0f);
        assert_float_equal(capped[i], 3.0f * tanhf(alone[i] / 3.0f), 1e-5f);
    }
    fixture_close(&f);
}

/* Biases as large as products, so that they decide which logit is the largest. */
TEST(a_biased_head_gives_the_largest_of_the_biased_logits) {
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            float bias[V], logits[V];
            int32_t n_moved = 0, out_rows[MAX_ROWS];
            fixture f = fixture_open(mode, "auto", threads);
            uint64_t seed = 29;
            for (int i = 0; i < V; i++) {
                bias[i] = random_float(&seed) * 8.0f;
            }
            linear *biased = load(f.b, DTYPE_Q8_0, V, D, bias, 7);
            for (int32_t row = 0; row < 4; row++) {
                out_rows[0] = row;
                f.b->ops->step_begin(f.b, &(batch){.n_rows = 4, .n_out = 1, .out_rows = out_rows});
                f.b->ops->buffer_write(f.b, f.x, 0, 4, f.rows);
                f.b->ops->head(f.b, f.x, f.nm, f.head, 1.0f, 0.0f);
                memcpy(logits, f.b->ops->logits(f.b, 0), sizeof logits);
                int32_t before = f.b->ops->argmax(f.b, 0), best = 0;
                f.b->ops->head(f.b, f.x, f.nm, biased, 2.0f, 0.0f);
                f.b->ops->step_wait(f.b);
                for (int32_t i = 0; i < V; i++) {
                    logits[i] = 2.0f * (logits[i] + bias[i]);
                    best = logits[i] > logits[best] ? i : best;
                }
                assert_memory_equal(f.b->ops->logits(f.b, 0), logits, sizeof logits);
                assert_int_equal(f.b->ops->argmax(f.b, 0), best);
                n_moved += best != before;
            }
            assert_true(n_moved > 0);
            fixture_close(&f);
        }
    }
}

enum { WIDE_V = 700, WIDE_ROWS = 70 };

/* Weights of a vocabulary that repeats itself after n_own tokens: those that follow have
 * the same logits. */
static linear *load_repeated(backend *b, int32_t n_own) {
    float *data = malloc(sizeof *data * WIDE_V * D);
    uint64_t seed = 5;
    for (int32_t i = 0; i < WIDE_V * D; i++) {
        data[i] = i < n_own * D ? random_float(&seed) : data[i - n_own * D];
    }
    tensor_view w = matrix_view(DTYPE_F32, WIDE_V, D, (uint8_t *)data);
    linear *l = NULL;
    quire_error err;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &w}, &l, &err), QUIRE_OK);
    free(data);
    return l;
}

/* The largest logit of each row as the backend noted it is the first of the largest that
 * stand there; rows with one that is no number, or infinite, have none. */
static void check_largest(compute_mode mode, const char *isa, int32_t n_threads, int32_t n_own,
                          int32_t n_rows) {
    backend *b = open_isa(isa, mode, n_threads);
    if (b == NULL) {
        return;
    }
    quire_error err;
    linear *w = load_repeated(b, n_own);
    buffer x = b->ops->buffer_reserve(b, D);
    const step_limits limits = {.max_rows = WIDE_ROWS, .max_seqs = 1, .max_out = WIDE_ROWS};
    assert_int_equal(b->ops->step_open(b, &limits, NULL, WIDE_V, &err), QUIRE_OK);
    float rows[WIDE_ROWS * D];
    int32_t out_rows[WIDE_ROWS];
    uint64_t seed = 17;
    for (int32_t i = 0; i < n_rows * D; i++) {
        rows[i] = random_float(&seed) * (i / D % 9 == 4 ? 0x1p126f : 1.0f);
        out_rows[i / D] = i / D;
    }
    rows[n_rows / 2 * D + 3] = NAN;
    const batch step = {.n_rows = n_rows, .n_out = n_rows, .out_rows = out_rows};
    b->ops->step_begin(b, &step);
    b->ops->buffer_write(b, x, 0, n_rows, rows);
    b->ops->head(b, x, NULL, w, 1.0f, 0.0f);
    b->ops->step_wait(b);
    for (int32_t r = 0; r < n_rows; r++) {
        const float *logits = b->ops->logits(b, r);
        int32_t best = 0;
        bool all_finite = true;
        for (int32_t i = 0; i < WIDE_V; i++) {
            all_finite = all_finite && isfinite(logits[i]);
            best = logits[i] > logits[best] ? i : best;
        }
        assert_int_equal(b->ops->argmax(b, r), all_finite ? best : -1);
        assert_true(best < n_own);
        assert_true(r != n_rows / 2 || !all_finite || mode == COMPUTE_INT8);
    }
    b->ops->close(b);
}

TEST(the_largest_logit_is_known_with_the_logits) {
    static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8};
    static const int32_t own[] = {WIDE_V, 5, 1}, rows[] = {1, 33, WIDE_ROWS};
    for (int isa = 0; isa < N_ISAS; isa++) {
        for (int m = 0; m < 3; m++) {
            for (int i = 0; i < 3 * 3; i++) {
                check_largest(modes[m], isa_names[isa], 1, own[i % 3], rows[i / 3]);
                check_largest(modes[m], isa_names[isa], 3, own[i % 3], rows[i / 3]);
            }
        }
    }
}

enum { HUGE_V = 33008, HUGE_ROWS = 33 };

/* Logits that take more than the caches are those of each row alone. */
static void check_many_logits(compute_mode mode, const char *isa, int32_t n_vocab) {
    backend *b = open_isa(isa, mode, 2);
    if (b == NULL) {
        return;
    }
    quire_error err;
    linear *w = load(b, DTYPE_Q4_0, n_vocab, 32, NULL, 8);
    buffer x = b->ops->buffer_reserve(b, 32);
    const step_limits limits = {.max_rows = HUGE_ROWS, .max_seqs = 1, .max_out = HUGE_ROWS};
    assert_int_equal(b->ops->step_open(b, &limits, NULL, n_vocab, &err), QUIRE_OK);
    float rows[HUGE_ROWS * 32], *all = malloc(sizeof *all * HUGE_ROWS * (size_t)n_vocab);
    int32_t out_rows[HUGE_ROWS];
    uint64_t seed = 19;
    for (int32_t i = 0; i < HUGE_ROWS * 32; i++) {
        rows[i] = random_float(&seed);
        out_rows[i / 32] = i / 32;
    }
    for (int32_t r = -1; r < HUGE_ROWS; r++) {
        const batch step = {
            .n_rows = r < 0 ? HUGE_ROWS : 1, .n_out = r < 0 ? HUGE_ROWS : 1, .out_rows = out_rows};
        b->ops->step_begin(b, &step);
        b->ops->buffer_write(b, x, 0, step.n_rows, rows + (r < 0 ? 0 : r * 32));
        b->ops->head(b, x, NULL, w, 1.0f, 0.0f);
        b->ops->step_wait(b);
        for (int32_t i = 0; r < 0 && i < HUGE_ROWS; i++) {
            memcpy(all + (size_t)i * (size_t)n_vocab, b->ops->logits(b, i), sizeof *all * (size_t)n_vocab);
        }
        assert_true(r < 0 || memcmp(all + (size_t)r * (size_t)n_vocab, b->ops->logits(b, 0),
                                    sizeof *all * (size_t)n_vocab) == 0);
    }
    free(all);
    b->ops->close(b);
}

TEST(logits_past_the_caches_are_those_of_rows_alone) {
    for (int isa = 0; isa < N_ISAS; isa++) {
        check_many_logits(COMPUTE_INT8, isa_names[isa], HUGE_V);
        check_many_logits(COMPUTE_INT8, isa_names[isa], HUGE_V - 7);
    }
}

TEST(impossible_weights_are_refused_with_their_name) {
    backend *b = open_isa("auto", COMPUTE_INT8, 1);
    static const float data[64 * 4];
    linear *l = NULL;
    quire_error err;
    const tensor_view good = {.name = "blk.0.w",
                              .type = DTYPE_F32,
                              .n_dims = 2,
                              .dims = {16, 16, 1, 1},
                              .data = data,
                              .n_bytes = sizeof data};
    tensor_view t = good;
    t.n_bytes = sizeof data - 1;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "blk.0.w"));
    t = good;
    t.dims[0] = 0;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_BAD_FILE);
    t = good;
    t.dims[1] = INT64_C(1) << 40;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_BAD_FILE);
    t = good;
    t.n_dims = 3;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_BAD_FILE);
    t = good;
    t.type = DTYPE_I32;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_UNSUPPORTED);
    t = good;
    t.type = DTYPE_Q4_K;
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &t}, &l, &err), QUIRE_BAD_FILE);
    const tensor_view bias = {.name = "blk.0.b",
                              .type = DTYPE_F32,
                              .n_dims = 1,
                              .dims = {15, 1, 1, 1},
                              .data = data,
                              .n_bytes = 60};
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &good, .bias = &bias}, &l, &err),
                     QUIRE_BAD_FILE);
    assert_null(l);
    assert_int_equal(b->ops->linear_load(b, &(linear_spec){.weight = &good}, &l, &err), QUIRE_OK);
    b->ops->close(b);
}

static void expect_same(fixture *f, buffer a, buffer b, int32_t width) {
    float *expected = malloc(sizeof *expected * MAX_ROWS * (size_t)width);
    f->b->ops->buffer_read(f->b, b, 0, MAX_ROWS, expected);
    expect_rows(f, a, width, expected, 0, MAX_ROWS, "what a replacing norm gives");
    free(expected);
}

TEST(a_norm_that_replaces_writes_its_rows_back) {
    for (compute_mode mode = COMPUTE_F32; mode <= COMPUTE_INT8; mode++) {
        fixture f = fixture_open(mode, "auto", 2);
        const backend_ops *ops = f.b->ops;
        ops->step_begin(f.b, &(batch){.n_rows = MAX_ROWS});
        ops->buffer_write(f.b, f.x, 0, MAX_ROWS, f.rows);
        ops->norm_rows(f.b, f.x, f.nm, f.normed);
        ops->norm_linears(f.b, f.x, f.nm, &(linear_use){f.wk, f.k}, 1);
        ops->feed_forward(f.b, &(feed_forward_use){.x = f.x, .nm = f.nm, .up = f.w_up, .h = f.h});
        ops->norm_linears(f.b, f.x, f.replacing, (linear_use[]){{f.wk, f.k_again}, {f.wq, f.q}}, 2);
        expect_same(&f, f.k_again, f.k, 77);
        expect_same(&f, f.x, f.normed, D);
        ops->buffer_write(f.b, f.x, 0, MAX_ROWS, f.rows);
        ops->feed_forward(f.b, &(feed_forward_use){.x = f.x, .nm = f.replacing, .up = f.w_up, .h = f.gated});
        expect_same(&f, f.gated, f.h, F);
        expect_same(&f, f.x, f.normed, D);
        ops->step_wait(f.b);
        fixture_close(&f);
    }
}

TEST_MAIN(NULL, NULL)

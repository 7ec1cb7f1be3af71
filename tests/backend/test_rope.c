/* The op that makes rotary tables: each scaling compared with separate sums in double,
 * both pair styles, and norms of q and k. */
#include "backend/isas.h"

#include <math.h>

#define N_DIMS   64
#define MAX_ROWS 4
#define PI       3.14159265358979323846

typedef struct rig {
    backend *b;
    buffer q, k, v;
    rope *r;
    norm *nm;
    int32_t d_head;
    float clip;        /* 0: none */
    query_scale scale; /* 0: none */
} rig;

static void rig_open(rig *g, const rope_desc *d, int32_t max_positions, int32_t d_head,
                     const float *norm_weight) {
    quire_error err;
    kv_layout layout;
    model_desc m = desc_plain(1, 2, 1, d_head, 0);
    g->b = open_isa("auto", 2);
    g->d_head = d_head;
    assert_int_equal(kv_layout_init(&m, kv_both(DTYPE_F32), 16, &layout, &err), QUIRE_OK);
    assert_int_equal(g->b->ops->rope_load(g->b, d, max_positions, &g->r, &err), QUIRE_OK);
    if (norm_weight != NULL) {
        tensor_view w = {.name = "q_norm",
                         .type = DTYPE_F32,
                         .n_dims = 1,
                         .dims = {d_head, 1, 1, 1},
                         .data = norm_weight,
                         .n_bytes = sizeof *norm_weight * (size_t)d_head};
        assert_int_equal(g->b->ops->norm_load(
                             g->b, &(norm_spec){.width = d_head, .eps = 1e-6f, .add_one = true, .weight = &w},
                             &g->nm, &err),
                         QUIRE_OK);
    }
    g->q = g->b->ops->buffer_reserve(g->b, 2 * d_head);
    g->k = g->b->ops->buffer_reserve(g->b, d_head);
    g->v = g->b->ops->buffer_reserve(g->b, d_head);
    assert_int_equal(
        g->b->ops->step_open(g->b, &(step_limits){.max_rows = MAX_ROWS, .max_seqs = 1}, &layout, 0, &err),
        QUIRE_OK);
    assert_int_equal(g->b->ops->kv_open(g->b, 1, &err), QUIRE_OK);
}

/* q = k = x in every row, put at these positions; the rows' q and k afterwards. */
static void rig_run(rig *g, const float *x, const int32_t *positions, int32_t n, const norm *nm, bool after,
                    float *q, float *k) {
    kv_slot slots[MAX_ROWS] = {{-1}, {-1}, {-1}, {-1}};
    batch step = {.n_rows = n, .n_axes = 1, .positions = positions, .slots = {slots}};
    g->b->ops->step_begin(g->b, &step);
    for (int32_t row = 0; row < n; row++) {
        float both[2 * DESC_MAX_HEAD];
        memcpy(both, x, sizeof *x * (size_t)g->d_head);
        memcpy(both + g->d_head, x, sizeof *x * (size_t)g->d_head);
        g->b->ops->buffer_write(g->b, g->q, row, 1, both);
        g->b->ops->buffer_write(g->b, g->k, row, 1, x);
    }
    g->b->ops->kv_store(g->b, &(kv_store_use){.q = g->q,
                                              .k = g->k,
                                              .v = g->v,
                                              .q_norm = nm,
                                              .k_norm = nm,
                                              .norm_after_rope = after,
                                              .rope = g->r,
                                              .clip = g->clip,
                                              .scale = g->scale});
    g->b->ops->step_wait(g->b);
    g->b->ops->buffer_read(g->b, g->q, 0, n, q);
    g->b->ops->buffer_read(g->b, g->k, 0, n, k);
}

/* OLMoE has both: the clip bounds what comes out of the norm. */
TEST(a_clip_is_behind_the_norm) {
    static const int32_t positions[] = {0};
    rope_desc d = {
        .kind = ROPE_PLAIN, .pairs = ROPE_HALVES, .n_dims = N_DIMS, .theta = 10000.0f, .factor = 1.0f};
    float x[N_DIMS], weight[N_DIMS] = {0}, q[2 * N_DIMS], k[N_DIMS];
    rig g = {0};
    rig_open(&g, &d, 16, N_DIMS, weight);
    for (int32_t i = 0; i < N_DIMS; i++) {
        x[i] = i % 2 == 0 ? 0.03f : -0.01f; /* far under the clip; the norm makes 1.34 and -0.45 of them */
    }
    g.clip = 0.9f;
    rig_run(&g, x, positions, 1, g.nm, false, q, k);
    for (int32_t i = 0; i < N_DIMS; i++) {
        assert_true(i % 2 == 0 ? k[i] == 0.9f : fabsf(k[i] + 0.4472f) < 1e-3f);
        assert_true(q[i] == k[i]);
    }
    g.b->ops->close(g.b);
}

TEST(queries_grow_with_their_position) {
    static const int32_t positions[] = {0, 7, 100, 4095};
    const float slopes[] = {0.5f, -0.25f}, biases[] = {1.0f, 2.0f};
    const query_scale forms[] = {{.slope = 0.3f, .offset = 1, .length = 8},
                                 {.power = 0.1f, .offset = 1, .length = 2048},
                                 {.slopes = slopes, .biases = biases}};
    for (int form = 0; form < 3; form++) {
        float x[N_DIMS], q[MAX_ROWS * 2 * N_DIMS], k[MAX_ROWS * N_DIMS];
        rope_desc d = {.kind = ROPE_NONE};
        rig g = {.scale = forms[form]};
        rig_open(&g, &d, 4096, N_DIMS, NULL);
        for (int32_t i = 0; i < N_DIMS; i++) {
            x[i] = (float)(i - 20) * 0.1f;
        }
        rig_run(&g, x, positions, 4, NULL, false, q, k);
        for (int32_t row = 0; row < 4; row++) {
            const int32_t p = positions[row] + 1;
            const double of_heads[] = {1.0 + 0.5 * log(p), 2.0 - 0.25 * log(p)},
                         factor = form == 0 ? 1.0 + 0.3 * log(1.0 + p / 8) : pow(1.0 + p / 2048.0, 0.1);
            for (int32_t i = 0; i < 2 * N_DIMS; i++) {
                const double want = (form == 2 ? of_heads[i / N_DIMS] : factor) * (double)x[i % N_DIMS];
                assert_true(fabs((double)q[row * 2 * N_DIMS + i] - want) < 1e-5 * fabs(want) + 1e-6);
                assert_true(k[row * N_DIMS + i % N_DIMS] == x[i % N_DIMS]);
            }
        }
        g.b->ops->close(g.b);
    }
}

/* Cosines of the first row's angles at a position, read off from x = (1, 0) pairs. */
static void check_angles(const rope_desc *d, int32_t max_positions, const double *frequencies,
                         double amplitude) {
    static const int32_t positions[] = {0, 1, 37, 1000};
    float x[N_DIMS] = {0}, q[MAX_ROWS * 2 * N_DIMS], k[MAX_ROWS * N_DIMS];
    rig g = {0};
    rig_open(&g, d, max_positions, N_DIMS, NULL);
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        x[d->pairs == ROPE_HALVES ? i : 2 * i] = 1.0f;
    }
    rig_run(&g, x, positions, 4, NULL, false, q, k);
    for (int32_t row = 0; row < 4; row++) {
        for (int32_t i = 0; i < N_DIMS / 2; i++) {
            int32_t a = d->pairs == ROPE_HALVES ? i : 2 * i,
                    b = d->pairs == ROPE_HALVES ? i + N_DIMS / 2 : 2 * i + 1;
            double angle = positions[row] * frequencies[i];
            assert_true(fabs((double)k[row * N_DIMS + a] - amplitude * cos(angle)) < 3e-4);
            assert_true(fabs((double)k[row * N_DIMS + b] - amplitude * sin(angle)) < 3e-4);
            assert_true(q[row * 2 * N_DIMS + a] == k[row * N_DIMS + a] &&
                        q[row * 2 * N_DIMS + N_DIMS + b] == k[row * N_DIMS + b]);
        }
    }
    g.b->ops->close(g.b);
}

TEST(each_scaling_turns_by_its_frequencies) {
    double f[N_DIMS / 2], scaled[N_DIMS / 2];
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        f[i] = pow(10000.0, -2.0 * i / N_DIMS);
    }
    rope_desc d = {.kind = ROPE_PLAIN,
                   .pairs = ROPE_HALVES,
                   .n_dims = N_DIMS,
                   .theta = 10000.0f,
                   .factor = 4.0f,
                   .original_positions = 256,
                   .low_freq_factor = 1.0f,
                   .high_freq_factor = 4.0f,
                   .beta_fast = 32.0f,
                   .beta_slow = 1.0f,
                   .truncate = true};
    check_angles(&d, 2048, f, 1.0);
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        scaled[i] = -f[i];
    }
    d.backwards = true;
    check_angles(&d, 2048, scaled, 1.0);
    d.backwards = false;
    d.pairs = ROPE_NEIGHBOURS;
    check_angles(&d, 2048, f, 1.0);

    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        d.factors[i] = 1.0f + (float)i;
        scaled[i] = f[i] / (1.0 + i);
    }
    d.has_factors = true;
    check_angles(&d, 2048, scaled, 1.0);

    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        d.factors[i] = 0.5f + 0.125f * (float)i;
        scaled[i] = f[i] * (double)d.factors[i];
    }
    d.multiplies = true;
    check_angles(&d, 2048, scaled, 1.0);
    d.multiplies = d.has_factors = false;

    d.kind = ROPE_LINEAR;
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        scaled[i] = f[i] / 4.0;
    }
    check_angles(&d, 2048, scaled, 1.0);

    d.kind = ROPE_LLAMA3;
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        double turns = 256.0 * f[i] / (2.0 * PI), keep = (turns - 1.0) / 3.0;
        scaled[i] = turns > 4.0 ? f[i] : turns < 1.0 ? f[i] / 4.0 : (1.0 - keep) * f[i] / 4.0 + keep * f[i];
    }
    check_angles(&d, 2048, scaled, 1.0);

    d.high_freq_factor = d.low_freq_factor; /* Llama 4 Scout's: nothing is blended */
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        scaled[i] = 256.0 * f[i] / (2.0 * PI) > 1.0 ? f[i] : f[i] / 4.0;
    }
    check_angles(&d, 2048, scaled, 1.0);

    d.kind = ROPE_YARN;
    double low = floor(N_DIMS * log(256.0 / (32.0 * 2.0 * PI)) / (2.0 * log(10000.0)));
    double high = ceil(N_DIMS * log(256.0 / (2.0 * PI)) / (2.0 * log(10000.0)));
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0.0), 1.0);
        scaled[i] = f[i] / 4.0 * ramp + f[i] * (1.0 - ramp);
    }
    check_angles(&d, 2048, scaled, 0.1 * log(4.0) + 1.0);
    d.attention_factor = 1.5f;
    check_angles(&d, 2048, scaled, 1.5);
}

TEST(ntk_scaling_is_switched_by_the_configured_maximum_length) {
    rope_desc d = {.kind = ROPE_NTK,
                   .pairs = ROPE_HALVES,
                   .n_dims = N_DIMS,
                   .theta = 10000.0f,
                   .factor = 2.0f,
                   .original_positions = 512};
    double f[N_DIMS / 2], far[N_DIMS / 2];
    double theta = 10000.0 * pow(2.0 * 2048.0 / 512.0 - 1.0, N_DIMS / (N_DIMS - 2.0));
    for (int32_t i = 0; i < N_DIMS / 2; i++) {
        f[i] = pow(10000.0, -2.0 * i / N_DIMS);
        far[i] = pow(theta, -2.0 * i / N_DIMS);
    }
    check_angles(&d, 512, f, 1.0);
    check_angles(&d, 300, f, 1.0);
    check_angles(&d, 2048, far, 1.0);
}

TEST(only_the_rotary_part_of_a_head_turns_and_norms_come_before_or_after) {
    enum { HEAD = 24, TURNED = 16 };
    float weight[HEAD], x[HEAD], q[2 * HEAD], k[HEAD];
    for (int32_t i = 0; i < HEAD; i++) {
        weight[i] = 0.1f * (float)i;
        x[i] = (float)(i % 5) - 1.5f;
    }
    rope_desc d = {.kind = ROPE_PLAIN, .pairs = ROPE_HALVES, .n_dims = TURNED, .theta = 100.0f};
    for (int after = 0; after < 2; after++) {
        double y[HEAD];
        for (int32_t i = 0; i < HEAD; i++) {
            y[i] = (double)x[i];
        }
        for (int pass = 0; pass < 2; pass++) {
            if (pass == after) {
                double mean = 0.0;
                for (int32_t i = 0; i < HEAD; i++) {
                    mean += y[i] * y[i] / (double)HEAD;
                }
                for (int32_t i = 0; i < HEAD; i++) {
                    y[i] = y[i] / sqrt(mean + 1e-6) * (1.0 + (double)weight[i]);
                }
            } else {
                for (int32_t i = 0; i < TURNED / 2; i++) {
                    double a = y[i], b = y[i + TURNED / 2],
                           angle = 3.0 * pow(100.0, -2.0 * i / (double)TURNED);
                    y[i] = a * cos(angle) - b * sin(angle);
                    y[i + TURNED / 2] = b * cos(angle) + a * sin(angle);
                }
            }
        }
        rig g = {0};
        rig_open(&g, &d, 64, HEAD, weight);
        rig_run(&g, x, (const int32_t[]){3}, 1, g.nm, after == 1, q, k);
        for (int32_t i = 0; i < HEAD; i++) {
            assert_true(fabs((double)k[i] - y[i]) < 1e-5 && q[i] == k[i] && q[HEAD + i] == k[i]);
        }
        g.b->ops->close(g.b);
    }
}

TEST(a_scaling_without_its_numbers_is_refused) {
    const rope_desc bad[] = {
        {.kind = ROPE_PLAIN, .n_dims = 7, .theta = 1e4f},
        {.kind = ROPE_PLAIN, .n_dims = 8, .theta = 0.0f},
        {.kind = ROPE_LINEAR, .n_dims = 8, .theta = 1e4f},
        {.kind = ROPE_NTK, .n_dims = 8, .theta = 1e4f, .factor = 2.0f},
        {.kind = ROPE_NTK, .n_dims = 2, .theta = 1e4f, .factor = 2.0f, .original_positions = 64},
        {.kind = ROPE_LLAMA3, .n_dims = 8, .theta = 1e4f, .factor = 2.0f, .original_positions = 64},
        {.kind = ROPE_YARN, .n_dims = 8, .theta = 1e4f, .factor = 2.0f, .original_positions = 64},
        {.kind = ROPE_LLAMA3,
         .n_dims = 8,
         .theta = 1e4f,
         .factor = 2.0f,
         .original_positions = 64,
         .low_freq_factor = 2.0f,
         .high_freq_factor = 1.0f}};
    backend *b = open_isa("plain", 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rope *r = NULL;
        quire_error err;
        assert_int_equal(b->ops->rope_load(b, &bad[i], 64, &r, &err), QUIRE_INVALID);
        assert_null(r);
    }
    rope *r = (rope *)b;
    assert_int_equal(b->ops->rope_load(b, &(rope_desc){.kind = ROPE_NONE}, 64, &r, NULL), QUIRE_OK);
    assert_null(r);
    b->ops->close(b);
}

TEST_MAIN(NULL, NULL)

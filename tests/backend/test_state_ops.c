/* Short convolutions and selective scans: compared with naive models in double, and the
 * same bits for any instruction set, threads, cuts, batches, page layouts and
 * snapshots. */
#include "backend/state_rig.h"

#include <math.h>

/* ---- convolutions: three in one cache, side by side ---- */

typedef struct conv_rig {
    state_rig rig;
    conv_use use;
    int32_t n_taps;
    float *taps, *bias;
} conv_rig;

static void run_conv(state_rig *g) {
    g->b->ops->conv(g->b, g->use);
}

static bool conv_open(conv_rig *g, int32_t n_channels, int32_t n_taps, bool has_bias, const char *isa,
                      int32_t n_threads, int32_t page_tokens, bool in_place) {
    uint64_t seed = 11;
    quire_error err;
    const cache_desc cache = conv_cache(conv_units(n_channels) + 2, n_taps);
    const rig_spec spec = {.isa = isa,
                           .n_threads = n_threads,
                           .page_tokens = page_tokens,
                           .caches = &cache,
                           .n_caches = 1,
                           .n_inputs = 1,
                           .widths = {n_channels},
                           .out_width = n_channels,
                           .in_place = in_place ? 0 : -1};
    memset(g, 0, sizeof *g);
    if (!rig_open(&g->rig, &spec)) {
        return false;
    }
    g->n_taps = n_taps;
    g->taps = random_rows(&seed, (size_t)(n_channels * n_taps), 1.0f);
    g->bias = has_bias ? random_rows(&seed, (size_t)n_channels, 1.0f) : NULL;
    const tensor_view w = {.name = "taps",
                           .type = DTYPE_F32,
                           .n_dims = 3,
                           .dims = {n_channels, 1, n_taps, 1},
                           .data = g->taps,
                           .n_bytes = sizeof(float) * (size_t)(n_channels * n_taps)},
                      bias = {.name = "bias",
                              .type = DTYPE_F32,
                              .n_dims = 1,
                              .dims = {n_channels, 1, 1, 1},
                              .data = g->bias,
                              .n_bytes = sizeof(float) * (size_t)n_channels};
    conv_taps *loaded = NULL;
    assert_int_equal(g->rig.b->ops->conv_load(g->rig.b, &w, has_bias ? &bias : NULL, &loaded, &err),
                     QUIRE_OK);
    g->use =
        (conv_use){.cache = 1, .unit = 1, .w = loaded, .f = ACT_SILU, .x = g->rig.in[0], .out = g->rig.out};
    g->rig.run = run_conv;
    g->rig.use = &g->use;
    return true;
}

static void conv_close(conv_rig *g) {
    free(g->taps);
    free(g->bias);
    rig_close(&g->rig);
}

static void conv_naive(const conv_rig *g, const float *x, int32_t row, double *out) {
    const int32_t n = g->rig.out_width;
    for (int32_t c = 0; c < n; c++) {
        double sum = g->bias != NULL ? (double)g->bias[c] : 0.0;
        for (int32_t j = 0; j < g->n_taps; j++) {
            const int32_t at = row - g->n_taps + 1 + j;
            sum += at >= 0 ? (double)g->taps[c * g->n_taps + j] * rig_rounded((double)x[(int64_t)at * n + c])
                           : 0.0;
        }
        out[c] = sum / (1.0 + exp(-sum));
    }
}

/* Checks a run against the naive model; a hash of its outputs and its state. */
static uint64_t check_conv(conv_rig *g, rig_seq *s, int32_t n_tokens, int32_t chunk) {
    const int32_t n = g->rig.out_width;
    const size_t unit = (size_t)CONV_UNIT * (size_t)(g->n_taps - 1),
                 n_state = rig_state_floats(&g->rig) - 2 * unit;
    double *out = malloc(sizeof *out * (size_t)n);
    rig_run(&g->rig, s, n_tokens, chunk);
    for (int32_t row = 0; row < n_tokens; row++) {
        conv_naive(g, s->in[0], row, out);
        assert_true(are_close(s->out + (int64_t)row * n, out, (size_t)n, 1e-5));
    }
    /* of the units before and after nothing was written */
    float *state = rig_state(&g->rig, s->number);
    assert_true(isnan(state[unit - 1]) && isnan(state[n_state + unit]));
    uint64_t hash = hash_bytes(HASH_START, s->out, sizeof(float) * (size_t)(n * n_tokens));
    hash = hash_bytes(hash, state + unit, sizeof *state * n_state);
    free(state);
    free(out);
    return hash;
}

TEST(a_convolution_sees_its_last_inputs_whatever_the_steps) {
    enum { TOKENS = 41 };
    static const struct {
        int32_t n_channels, n_taps;
        bool has_bias;
    } shapes[] = {{64, 4, true}, {1, 2, false}, {130, 3, true}, {200, 16, false}, {80, 5, true}};
    static const int32_t chunks[] = {TOKENS, 1, 3, 16};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t expected = 0;
        for (int32_t run = 0; run < 4 * N_MATH_ISAS; run++) {
            conv_rig g;
            if (!conv_open(&g, shapes[i].n_channels, shapes[i].n_taps, shapes[i].has_bias, ISAS[run / 4],
                           1 + run % 4, run % 2 == 0 ? 1 : 256, run % 4 == 2)) {
                continue;
            }
            rig_seq s = rig_tokens(&g.rig, run % 4, TOKENS, 300 + i);
            uint64_t hash = check_conv(&g, &s, TOKENS, chunks[run % 4]);
            expected = expected == 0 ? hash : expected;
            assert_true(hash == expected);
            rig_free_tokens(&s);
            conv_close(&g);
        }
    }
}

TEST(snapshots_of_a_convolution_are_what_separate_steps_leave) {
    conv_rig g;
    assert_true(conv_open(&g, 150, 4, true, "auto", 2, 16, false));
    rig_check_snapshots(&g.rig, 40);
    rig_check_batch(&g.rig);
    conv_close(&g);
}

static quire_err load_taps(int32_t n_dims, int64_t a, int64_t b, int64_t c, size_t n_bytes, dtype type,
                           quire_error *err) {
    static const float data[64];
    backend *base = open_isa("auto", 1);
    conv_taps *taps = NULL;
    const tensor_view w = {.name = "conv1d.weight",
                           .type = type,
                           .n_dims = n_dims,
                           .dims = {a, b, c, 1},
                           .data = data,
                           .n_bytes = n_bytes};
    quire_err e = base->ops->conv_load(base, &w, NULL, &taps, err);
    base->ops->close(base);
    return e;
}

TEST(taps_of_an_impossible_shape_are_refused) {
    quire_error err;
    assert_int_equal(load_taps(2, 16, 4, 1, 256, DTYPE_F32, &err), QUIRE_OK);
    assert_int_equal(load_taps(3, 16, 1, 4, 256, DTYPE_F32, &err), QUIRE_OK);
    assert_int_equal(load_taps(3, 16, 4, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(2, 16, 1, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(2, 2, 17, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(2, 0, 4, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(1, 16, 1, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(2, (int64_t)1 << 40, 4, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_int_equal(load_taps(2, 17, 4, 1, 256, DTYPE_F32, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "conv1d.weight"));
    assert_int_equal(load_taps(2, 8, 4, 1, 256, DTYPE_Q8_0, &err), QUIRE_UNSUPPORTED);
}

/* ---- scans ---- */

enum { IN_X, IN_DT, IN_B, IN_C };

typedef struct scan_rig {
    state_rig rig;
    scan_use use;
    float *a, *bias, *skip;
} scan_rig;

static void run_scan(state_rig *g) {
    g->b->ops->scan(g->b, g->use);
}

static bool scan_open(scan_rig *g, int32_t n_channels, int32_t n_states, bool has_both, const char *isa,
                      int32_t n_threads, int32_t page_tokens, bool in_place) {
    uint64_t seed = 13;
    const cache_desc cache = scan_cache(n_channels, n_states);
    const rig_spec spec = {.isa = isa,
                           .n_threads = n_threads,
                           .page_tokens = page_tokens,
                           .caches = &cache,
                           .n_caches = 1,
                           .n_inputs = 4,
                           .widths = {n_channels, n_channels, n_states, n_states},
                           .out_width = n_channels,
                           .in_place = in_place ? 0 : -1};
    memset(g, 0, sizeof *g);
    if (!rig_open(&g->rig, &spec)) {
        return false;
    }
    g->a = random_rows(&seed, (size_t)(n_channels * n_states), 1.0f);
    for (int32_t i = 0; i < n_channels * n_states; i++) {
        g->a[i] = -expf(g->a[i]);
    }
    g->bias = random_rows(&seed, (size_t)n_channels, 1.0f);
    g->skip = random_rows(&seed, (size_t)n_channels, 1.0f);
    g->use = (scan_use){.cache = 1,
                        .n_channels = n_channels,
                        .n_states = n_states,
                        .x = g->rig.in[IN_X],
                        .dt = g->rig.in[IN_DT],
                        .b = g->rig.in[IN_B],
                        .c = g->rig.in[IN_C],
                        .a = g->a,
                        .dt_bias = has_both ? g->bias : NULL,
                        .skip = has_both ? g->skip : NULL,
                        .out = g->rig.out};
    g->rig.run = run_scan;
    g->rig.use = &g->use;
    return true;
}

static void scan_close(scan_rig *g) {
    free(g->a);
    free(g->bias);
    free(g->skip);
    rig_close(&g->rig);
}

static void scan_naive(const scan_rig *g, const rig_seq *s, int32_t row, double *state, double *out) {
    const int32_t n = g->use.n_channels, n_states = g->use.n_states;
    for (int32_t c = 0; c < n; c++) {
        const double x = (double)s->in[IN_X][(int64_t)row * n + c],
                     dt = (double)s->in[IN_DT][(int64_t)row * n + c] +
                          (g->use.dt_bias != NULL ? (double)g->bias[c] : 0.0),
                     t = log1p(exp(dt));
        out[c] = g->use.skip != NULL ? (double)g->skip[c] * x : 0.0;
        for (int32_t i = 0; i < n_states; i++) {
            double *e = &state[c * n_states + i];
            *e = exp(t * (double)g->a[c * n_states + i]) * *e +
                 t * x * (double)s->in[IN_B][(int64_t)row * n_states + i];
            *e = rig_rounded(*e);
            out[c] += *e * (double)s->in[IN_C][(int64_t)row * n_states + i];
        }
    }
}

static void check_scan(scan_rig *g, rig_seq *s, int32_t n_tokens, int32_t chunk) {
    const size_t n = (size_t)g->use.n_channels;
    double *state = calloc(n * (size_t)g->use.n_states, sizeof *state), *out = malloc(sizeof *out * n);
    rig_run(&g->rig, s, n_tokens, chunk);
    for (int32_t row = 0; row < n_tokens; row++) {
        scan_naive(g, s, row, state, out);
        assert_true(are_close(s->out + (size_t)row * n, out, n, rig_bound(1e-4)));
    }
    free(state);
    free(out);
}

TEST(a_scan_is_the_recurrence_whatever_the_steps) {
    enum { TOKENS = 29 };
    static const struct {
        int32_t n_channels, n_states;
        bool has_both;
    } shapes[] = {{64, 16, true}, {1, 1, false}, {50, 8, true}, {2100, 5, false}, {33, 64, true}};
    static const int32_t chunks[] = {TOKENS, 1, 3, 16};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint64_t expected = 0;
        for (int32_t run = 0; run < 4 * N_MATH_ISAS; run++) {
            scan_rig g;
            if (!scan_open(&g, shapes[i].n_channels, shapes[i].n_states, shapes[i].has_both, ISAS[run / 4],
                           1 + run % 4, run % 2 == 0 ? 1 : 256, run % 4 == 2)) {
                continue;
            }
            rig_seq s = rig_tokens(&g.rig, run % 4, TOKENS, 400 + i);
            check_scan(&g, &s, TOKENS, chunks[run % 4]);
            uint64_t hash = rig_hash(&g.rig, &s, 0);
            expected = expected == 0 ? hash : expected;
            assert_true(hash == expected);
            rig_free_tokens(&s);
            scan_close(&g);
        }
    }
}

TEST(snapshots_of_a_scan_are_what_separate_steps_leave) {
    scan_rig g;
    assert_true(scan_open(&g, 150, 16, true, "auto", 2, 16, false));
    rig_check_snapshots(&g.rig, 40);
    rig_check_batch(&g.rig);
    scan_close(&g);
}

TEST(a_channel_that_is_not_finite_leaves_such_a_state) {
    conv_rig conv;
    scan_rig scan;
    for (int32_t isa = 0; isa < N_MATH_ISAS; isa++) {
        if (!conv_open(&conv, 70, 16, false, ISAS[isa], 2, 16, false) ||
            !scan_open(&scan, 40, 16, true, ISAS[isa], 2, 16, false)) {
            continue;
        }
        rig_check_not_finite(&conv.rig, 0, NAN);
        rig_check_not_finite(&conv.rig, 0, INFINITY);
        rig_check_not_finite(&scan.rig, IN_X, INFINITY);
        rig_check_not_finite(&scan.rig, IN_DT, NAN);
        rig_check_not_finite(&scan.rig, IN_B, NAN);
        conv_close(&conv);
        scan_close(&scan);
    }
}

int main(void) {
    note_isas();
    const int n_failed = tests_run(NULL, NULL);
    rig_states = DTYPE_BF16;
    return n_failed + tests_run(NULL, NULL);
}

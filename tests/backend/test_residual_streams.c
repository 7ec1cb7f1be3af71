/* Residual streams: coefficients, reads, writes and gates compared with double, and the
 * same bits on every instruction set for any threads and rows. */
#include "backend/isas.h"

#include <math.h>

enum { MOST_ROWS = 7, MOST_WIDTH = 150, MOST_N = DESC_MAX_STREAMS };

#define MOST_WEIGHTS (MOST_N * (MOST_N + 2))

/* Rows of streams and what is computed of them, step by step: coefficients of `logits`,
 * what they read, what is written back, the streams' mean, and gates of two streams' rows. */
typedef struct stream_case {
    int32_t n, width, n_rounds, n_rows;
    float scale[3], base[MOST_WEIGHTS];
    float logits[MOST_ROWS][MOST_WEIGHTS], streams[MOST_ROWS][MOST_N * MOST_WIDTH], y[MOST_ROWS][MOST_WIDTH],
        other[MOST_ROWS][MOST_N * MOST_WIDTH];
} stream_case;

typedef struct stream_result {
    float weights[MOST_ROWS][MOST_WEIGHTS], read[MOST_ROWS][MOST_WIDTH],
        mixed[MOST_ROWS][MOST_N * MOST_WIDTH], added[MOST_ROWS][MOST_N * MOST_WIDTH],
        mean[MOST_ROWS][MOST_WIDTH], gates[MOST_ROWS][MOST_N];
} stream_result;

#define EPS 1e-3f

static void fill(stream_case *c, int32_t n, int32_t width, uint64_t seed) {
    memset(c, 0, sizeof *c);
    *c = (stream_case){.n = n, .width = width, .n_rounds = 5, .n_rows = MOST_ROWS};
    for (int i = 0; i < 3; i++) {
        c->scale[i] = 0.5f + 0.25f * (float)i;
    }
    for (int i = 0; i < MOST_WEIGHTS; i++) {
        c->base[i] = random_normal(&seed);
    }
    for (int r = 0; r < MOST_ROWS; r++) {
        for (int i = 0; i < n * (n + 2); i++) {
            c->logits[r][i] = 2.0f * random_normal(&seed);
        }
        for (int i = 0; i < n * width; i++) {
            c->streams[r][i] = random_normal(&seed);
            c->other[r][i] = 0.3f * random_normal(&seed);
        }
        for (int i = 0; i < width; i++) {
            c->y[r][i] = random_normal(&seed);
        }
    }
}

/* Writes rows that lie apart by `stride` into a buffer of `width`, or reads them. */
static void put(backend *b, buffer to, const float *rows, int32_t stride, int32_t n_rows) {
    for (int32_t r = 0; r < n_rows; r++) {
        b->ops->buffer_write(b, to, r, 1, rows + (int64_t)r * stride);
    }
}

static void get(backend *b, buffer from, float *rows, int32_t stride, int32_t n_rows) {
    for (int32_t r = 0; r < n_rows; r++) {
        b->ops->buffer_read(b, from, r, 1, rows + (int64_t)r * stride);
    }
}

/* False: not on this machine. */
static bool run(const stream_case *c, const char *isa, int32_t n_threads, stream_result *out) {
    quire_error err;
    kv_layout layout;
    const model_desc d = desc_plain(1, 2, 1, 16, 0);
    backend *b = open_isa(isa, n_threads);
    if (b == NULL) {
        return false;
    }
    const backend_ops *op = b->ops;
    assert_int_equal(kv_layout_init(&d, kv_both(DTYPE_F32), 16, &layout, &err), QUIRE_OK);
    const int32_t all = c->n * c->width;
    const buffer weights = op->buffer_reserve(b, c->n * (c->n + 2)), streams = op->buffer_reserve(b, all),
                 y = op->buffer_reserve(b, c->width), read = op->buffer_reserve(b, c->width),
                 other = op->buffer_reserve(b, all), gates = op->buffer_reserve(b, c->n);
    const step_limits limits = {.max_rows = MOST_ROWS, .max_seqs = 1};
    assert_int_equal(op->step_open(b, &limits, &layout, 0, &err), QUIRE_OK);
    op->step_begin(b, &(batch){.n_rows = c->n_rows, .n_axes = 1});
    put(b, weights, c->logits[0], MOST_WEIGHTS, c->n_rows);
    put(b, streams, c->streams[0], MOST_N * MOST_WIDTH, c->n_rows);
    put(b, y, c->y[0], MOST_WIDTH, c->n_rows);
    put(b, other, c->other[0], MOST_N * MOST_WIDTH, c->n_rows);
    op->hyper_weights(b, &(hyper_use){weights, c->n, c->n_rounds, EPS, c->scale, c->base});
    get(b, weights, out->weights[0], MOST_WEIGHTS, c->n_rows);
    op->streams_read(b, &(streams_read_use){streams, c->n, weights, 0, read});
    get(b, read, out->read[0], MOST_WIDTH, c->n_rows);
    op->streams_read(b, &(streams_read_use){streams, c->n, BUFFER_NONE, 0, read});
    get(b, read, out->mean[0], MOST_WIDTH, c->n_rows);
    op->stream_gates(b, &(stream_gates_use){streams, other, c->n, 0.125f, gates});
    get(b, gates, out->gates[0], MOST_N, c->n_rows);
    op->streams_write(b,
                      &(streams_write_use){streams, c->n, weights, c->n, true, 2 * c->n, ACT_NONE, 1.0f, y});
    get(b, streams, out->mixed[0], MOST_N * MOST_WIDTH, c->n_rows);
    op->streams_write(b, &(streams_write_use){streams, c->n, weights, 0, false, 0, ACT_SIGMOID, 2.0f, y});
    get(b, streams, out->added[0], MOST_N * MOST_WIDTH, c->n_rows);
    b->ops->close(b);
    return true;
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* Divides by the sums of rows or columns. */
static void divide(double *mix, int32_t n, bool columns) {
    for (int32_t i = 0; i < n; i++) {
        double sum = (double)EPS;
        for (int32_t k = 0; k < n; k++) {
            sum += mix[columns ? k * n + i : i * n + k];
        }
        for (int32_t k = 0; k < n; k++) {
            mix[columns ? k * n + i : i * n + k] /= sum;
        }
    }
}

static void naive_weights(const stream_case *c, int32_t row, double *w) {
    const int32_t n = c->n;
    double *mix = w + 2 * n;
    for (int32_t i = 0; i < n * (n + 2); i++) {
        const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
        w[i] = (double)c->logits[row][i] * (double)c->scale[part] + (double)c->base[i];
    }
    for (int32_t s = 0; s < n; s++) {
        double sum = 0.0;
        w[s] = sigmoid(w[s]) + (double)EPS;
        w[n + s] = 2.0 * sigmoid(w[n + s]);
        for (int32_t t = 0; t < n; t++) {
            sum += mix[s * n + t] = exp(mix[s * n + t]);
        }
        for (int32_t t = 0; t < n; t++) {
            mix[s * n + t] = mix[s * n + t] / sum + (double)EPS;
        }
    }
    divide(mix, n, true);
    for (int32_t i = 1; i < c->n_rounds; i++) {
        divide(mix, n, false);
        divide(mix, n, true);
    }
}

static void near(double got, double want, const char *what) {
    if (!(fabs(got - want) < 1e-5 * (1.0 + fabs(want)))) {
        fail_msg("%s: %g, not %g", what, got, want);
    }
}

static void check_row(const stream_case *c, int32_t row, const stream_result *r) {
    const int32_t n = c->n, width = c->width;
    double w[MOST_WEIGHTS], dots[MOST_N] = {0};
    naive_weights(c, row, w);
    for (int32_t i = 0; i < n * (n + 2); i++) {
        near((double)r->weights[row][i], w[i], "a coefficient");
    }
    for (int32_t i = 0; i < width; i++) {
        double read = 0.0, mean = 0.0;
        for (int32_t s = 0; s < n; s++) {
            const double x = (double)c->streams[row][s * width + i];
            read += w[s] * x;
            mean += x / n;
            dots[s] += x * (double)c->other[row][s * width + i];
        }
        near((double)r->read[row][i], read, "a row that is read");
        near((double)r->mean[row][i], mean, "a mean");
        for (int32_t t = 0; t < n; t++) {
            double mixed = w[n + t] * (double)c->y[row][i];
            for (int32_t s = 0; s < n; s++) {
                mixed += w[2 * n + s * n + t] * (double)c->streams[row][s * width + i];
            }
            near((double)r->mixed[row][t * width + i], mixed, "a mixed stream");
            near((double)r->added[row][t * width + i], mixed + 2.0 * sigmoid(w[t]) * (double)c->y[row][i],
                 "a stream that is added to");
        }
    }
    for (int32_t s = 0; s < n; s++) {
        const double g = dots[s] * 0.125, root = sqrt(fmax(fabs(g), 1e-6));
        near((double)r->gates[row][s], sigmoid(g < 0 ? -root : root), "a gate");
    }
}

TEST(streams_are_those_of_the_formulas_with_the_same_bits_everywhere) {
    static const int32_t shapes[][2] = {{1, 16}, {2, 1}, {4, 32}, {4, 150}, {3, 67}, {8, 130}};
    static stream_case c;
    static stream_result plain, other;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        fill(&c, shapes[k][0], shapes[k][1], 40 + k);
        memset(&plain, 0, sizeof plain);
        assert_true(run(&c, "plain", 1, &plain));
        for (int32_t row = 0; row < MOST_ROWS; row++) {
            check_row(&c, row, &plain);
        }
        for (int i = 0; i < 2 * N_MATH_ISAS; i++) {
            memset(&other, 0, sizeof other);
            if (run(&c, ISAS[i / 2], 1 + i % 2 * 2, &other)) {
                assert_memory_equal(&other, &plain, sizeof plain);
            }
        }
    }
}

TEST(a_row_does_not_depend_on_those_beside_it) {
    static stream_case c, one;
    static stream_result all, alone;
    fill(&c, 4, 70, 90);
    assert_true(run(&c, "auto", 2, &all));
    for (int32_t row = 0; row < MOST_ROWS; row++) {
        one = c;
        one.n_rows = 1;
        memcpy(one.logits[0], c.logits[row], sizeof c.logits[0]);
        memcpy(one.streams[0], c.streams[row], sizeof c.streams[0]);
        memcpy(one.y[0], c.y[row], sizeof c.y[0]);
        memcpy(one.other[0], c.other[row], sizeof c.other[0]);
        assert_true(run(&one, "auto", 1, &alone));
        assert_true(same_floats(alone.added[0], all.added[row], 4 * 70));
        assert_true(same_floats(alone.weights[0], all.weights[row], 24));
        assert_true(same_floats(alone.gates[0], all.gates[row], 4));
    }
}

TEST_MAIN_ISAS

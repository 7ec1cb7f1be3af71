/* Norms of all shapes and ops on single rows: close to double, and the bits of the plain
 * C version for every instruction set, batch and thread count. */
#include "backend/isas.h"

#include <math.h>

#define SEED      77u
#define MAX_ROWS  9
#define MAX_WIDTH 330
#define N_VALUES  (MAX_ROWS * MAX_WIDTH)

/* A norm over rows of `width`, in stretches; n_weights: 0, or of weight (and bias)
 * elements. */
typedef struct norm_case {
    norm_kind kind;
    int32_t width, stretch, n_weights;
    bool has_bias, is_matrix, add_one;
} norm_case;

static const norm_case norm_cases[] = {
    {NORM_RMS, 100, 100, 100, false, false, false}, /* the whole row */
    {NORM_RMS, 330, 110, 110, false, false, true},  /* each head by the same weights */
    {NORM_RMS, 330, 110, 330, false, true, false},  /* a weight a head */
    {NORM_RMS, 102, 17, 102, false, false, true},   /* the same as one vector */
    {NORM_RMS, 204, 17, 51, false, true, false},    /* three heads' weights, for twelve heads */
    {NORM_RMS, 96, 32, 0, false, false, true},      /* none */
    {NORM_LAYER, 100, 100, 100, true, false, false},
    {NORM_LAYER, 330, 110, 330, true, true, false},
    {NORM_LAYER, 330, 330, 330, false, false, true},
    {NORM_LAYER, 96, 32, 0, false, false, false},
    {NORM_LAYER, 5, 5, 0, true, false, false}, /* a bias alone */
    {NORM_RMS_WEIGHED, 100, 100, 100, false, false, true},
    {NORM_RMS_WEIGHED, 96, 32, 96, false, false, false},
    {NORM_SCALE, 37, 37, 37, false, false, true},
    {NORM_SCALE, 20, 20, 0, false, false, false},
    {NORM_ABOVE, 100, 100, 0, false, false, false},
    {NORM_ABOVE, 5, 5, 0, false, false, false},
};
#define N_NORM_CASES (sizeof norm_cases / sizeof *norm_cases)
#define EPS          1e-3f
#define CUTOFF       0.6f

typedef struct numbers {
    float x[N_VALUES], y[N_VALUES], weight[MAX_WIDTH], bias[MAX_WIDTH];
} numbers;

static void fill(float *x, int32_t n, uint64_t *state) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = random_normal(state) + 0.25f;
    }
}

static void random_numbers(numbers *r) {
    uint64_t state = SEED;
    fill(r->x, N_VALUES, &state);
    fill(r->y, N_VALUES, &state);
    fill(r->weight, MAX_WIDTH, &state);
    fill(r->bias, MAX_WIDTH, &state);
}

static tensor_view vector(const char *name, const float *data, int32_t n) {
    return (tensor_view){.name = name,
                         .type = DTYPE_F32,
                         .n_dims = 1,
                         .dims = {n, 1, 1, 1},
                         .data = data,
                         .n_bytes = sizeof *data * (size_t)n};
}

static norm *load_norm(backend *b, const norm_case *c, const numbers *r) {
    tensor_view weight = vector("n.weight", r->weight, c->n_weights),
                bias = vector("n.bias", r->bias, c->n_weights);
    if (c->n_weights == 0) {
        bias = vector("n.bias", r->bias, c->stretch);
    } else if (c->is_matrix) {
        weight.n_dims = bias.n_dims = 2;
        weight.dims[0] = bias.dims[0] = c->n_weights / c->stretch;
        weight.dims[1] = bias.dims[1] = c->stretch;
    }
    const norm_spec spec = {.kind = c->kind,
                            .width = c->stretch,
                            .eps = EPS,
                            .cutoff = c->kind == NORM_ABOVE ? CUTOFF : 0.0f,
                            .add_one = c->add_one,
                            .weight = c->n_weights > 0 ? &weight : NULL,
                            .bias = c->has_bias ? &bias : NULL};
    norm *nm = NULL;
    quire_error err;
    if (b->ops->norm_load(b, &spec, &nm, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return nm;
}

/* How to run an op: on which instruction set and threads, and which rows of the numbers
 * lie in the batch. */
typedef struct way {
    const char *isa;
    int32_t n_threads, row0, n_rows;
} way;

static const way whole = {"plain", 1, 0, MAX_ROWS};
static const way ways[] = {{"plain", 3, 0, 9},  {"plain", 1, 4, 1}, {"avx2", 1, 0, 9},
                           {"avx2", 3, 2, 7},   {"avx2", 2, 8, 1},  {"avx512", 2, 0, 9},
                           {"avx512", 1, 3, 1}, {"neon", 2, 0, 9},  {"neon", 1, 5, 3}};
#define N_WAYS (sizeof ways / sizeof *ways)

/* Opens a backend with n_buffers of these widths, in a step of the way's rows. NULL: not
 * on this machine. */
static backend *begin(const way *w, const int32_t *widths, int32_t n_buffers, const norm_case *c,
                      const numbers *r, norm **nm) {
    static batch step;
    quire_error err;
    bool is_known = false;
    for (int i = 0; i < N_TEST_ISAS; i++) {
        is_known = is_known || strcmp(ISAS[i], w->isa) == 0;
    }
    backend *b = is_known ? open_isa(w->isa, w->n_threads) : NULL;
    if (b == NULL) {
        return NULL;
    }
    for (int32_t i = 0; i < n_buffers; i++) {
        assert_int_equal(b->ops->buffer_reserve(b, widths[i]).id, i);
    }
    *nm = c != NULL ? load_norm(b, c, r) : NULL;
    assert_int_equal(b->ops->step_open(b, &(step_limits){.max_rows = MAX_ROWS, .max_seqs = 1}, NULL, 0, &err),
                     QUIRE_OK);
    step = (batch){.n_rows = w->n_rows};
    b->ops->step_begin(b, &step);
    return b;
}

static void put(backend *b, int32_t id, const way *w, int32_t width, const float *from) {
    b->ops->buffer_write(b, (buffer){id}, 0, w->n_rows, from + w->row0 * width);
}

static void get(backend *b, int32_t id, const way *w, int32_t width, float *to) {
    b->ops->buffer_read(b, (buffer){id}, 0, w->n_rows, to + w->row0 * width);
}

/* out = norm_rows(x), in_place that of a buffer onto itself, sum = x + 0.75 norm(y) by
 * norm_add. False: not on this machine. */
static bool run_norms(const way *w, const norm_case *c, const numbers *r, float *out, float *in_place,
                      float *sum) {
    norm *nm;
    backend *b = begin(w, (int32_t[]){c->width, c->width, c->width}, 3, c, r, &nm);
    if (b == NULL) {
        return false;
    }
    float y[N_VALUES];
    put(b, 0, w, c->width, r->x);
    put(b, 2, w, c->width, r->y);
    b->ops->norm_rows(b, (buffer){0}, nm, (buffer){1});
    get(b, 1, w, c->width, out);
    b->ops->norm_add(b, (buffer){2}, nm, 0.75f, (buffer){0});
    get(b, 0, w, c->width, sum);
    get(b, 2, w, c->width, y);
    assert_memory_equal(y + w->row0 * c->width, r->y + w->row0 * c->width,
                        sizeof *y * (size_t)(w->n_rows * c->width));
    put(b, 1, w, c->width, r->x);
    b->ops->norm_rows(b, (buffer){1}, nm, (buffer){1});
    get(b, 1, w, c->width, in_place);
    b->ops->close(b);
    return true;
}

/* The same for kinds that are not a norm's result times weights. */
static void exact_stretch(const norm_case *c, const numbers *r, int32_t from, const float *x, double *out) {
    double mean = 0.0, squares = 0.0;
    for (int32_t i = from; i < from + c->stretch; i++) {
        double weight =
            c->n_weights > 0 ? (double)r->weight[i % c->n_weights] + (c->add_one ? 1.0 : 0.0) : 1.0;
        out[i] = (double)x[i] * weight;
        mean += out[i] / c->stretch;
    }
    for (int32_t i = from; i < from + c->stretch; i++) {
        double d = out[i] - (c->kind == NORM_ABOVE ? mean : 0.0);
        squares += d * d / c->stretch;
    }
    for (int32_t i = from; i < from + c->stretch; i++) {
        double above = out[i] - mean - (double)CUTOFF * sqrt(squares);
        out[i] = c->kind == NORM_ABOVE         ? fmax(above, 0.0)
                 : c->kind == NORM_RMS_WEIGHED ? out[i] / sqrt(squares + (double)EPS)
                                               : out[i];
    }
}

/* One row of `norm_case` in double. */
static void exact_norm(const norm_case *c, const numbers *r, const float *x, double *out) {
    for (int32_t from = 0; from < c->width; from += c->stretch) {
        double mean = 0.0, variance = 0.0;
        if (c->kind > NORM_LAYER) {
            exact_stretch(c, r, from, x, out);
            continue;
        }
        for (int32_t i = from; i < from + c->stretch && c->kind == NORM_LAYER; i++) {
            mean += (double)x[i] / c->stretch;
        }
        for (int32_t i = from; i < from + c->stretch; i++) {
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / c->stretch;
        }
        for (int32_t i = from; i < from + c->stretch; i++) {
            double weight =
                c->n_weights > 0 ? (double)r->weight[i % c->n_weights] + (c->add_one ? 1.0 : 0.0) : 1.0;
            double bias =
                c->has_bias ? (double)r->bias[i % (c->n_weights > 0 ? c->n_weights : c->stretch)] : 0.0;
            out[i] = ((double)x[i] - mean) / sqrt(variance + (double)EPS) * weight + bias;
        }
    }
}

static void assert_same_rows(const way *w, int32_t width, const float *got, const float *want,
                             const char *what) {
    if (!same_floats(got + w->row0 * width, want + w->row0 * width, (size_t)(w->n_rows * width))) {
        fail_msg("%s: %s, %d threads, %d rows from %d, width %d", what, w->isa, w->n_threads, w->n_rows,
                 w->row0, width);
    }
}

TEST(norms_are_those_of_their_stretches) {
    static numbers r;
    random_numbers(&r);
    for (size_t n = 0; n < N_NORM_CASES; n++) {
        const norm_case *c = &norm_cases[n];
        float out[N_VALUES], in_place[N_VALUES], sum[N_VALUES];
        assert_true(run_norms(&whole, c, &r, out, in_place, sum));
        for (int32_t row = 0; row < MAX_ROWS; row++) {
            const float *x = r.x + row * c->width, *y = r.y + row * c->width;
            double want[MAX_WIDTH], added[MAX_WIDTH];
            exact_norm(c, &r, x, want);
            exact_norm(c, &r, y, added);
            for (int32_t i = 0; i < c->width; i++) {
                assert_true(fabs((double)out[row * c->width + i] - want[i]) < 1e-5);
                assert_true(fabs((double)sum[row * c->width + i] - ((double)x[i] + 0.75 * added[i])) < 1e-5);
            }
        }
        assert_memory_equal(in_place, out, sizeof *out * (size_t)(MAX_ROWS * c->width));
    }
}

TEST(norms_have_the_same_bits_in_every_way) {
    static numbers r;
    random_numbers(&r);
    for (size_t n = 0; n < N_NORM_CASES; n++) {
        const norm_case *c = &norm_cases[n];
        float want[3][N_VALUES], got[3][N_VALUES];
        (void)run_norms(&whole, c, &r, want[0], want[1], want[2]);
        for (size_t i = 0; i < N_WAYS; i++) {
            if (run_norms(&ways[i], c, &r, got[0], got[1], got[2])) {
                assert_same_rows(&ways[i], c->width, got[0], want[0], "norm_rows");
                assert_same_rows(&ways[i], c->width, got[1], want[1], "norm_rows in place");
                assert_same_rows(&ways[i], c->width, got[2], want[2], "norm_add");
            }
        }
    }
}

TEST(a_sum_without_a_norm_and_a_scaled_row_are_rounded_once) {
    static numbers r;
    random_numbers(&r);
    for (size_t i = 0; i <= N_WAYS; i++) {
        const way *w = i < N_WAYS ? &ways[i] : &whole;
        enum { WIDTH = 35 };
        norm *nm;
        backend *b = begin(w, (int32_t[]){WIDTH, WIDTH}, 2, NULL, &r, &nm);
        float sum[N_VALUES], scaled[N_VALUES];
        if (b == NULL) {
            continue;
        }
        put(b, 0, w, WIDTH, r.x);
        put(b, 1, w, WIDTH, r.y);
        b->ops->norm_add(b, (buffer){1}, NULL, 0.3f, (buffer){0});
        b->ops->scale_rows(b, 0.7f, (buffer){1});
        get(b, 0, w, WIDTH, sum);
        get(b, 1, w, WIDTH, scaled);
        for (int32_t j = w->row0 * WIDTH; j < (w->row0 + w->n_rows) * WIDTH; j++) {
            assert_true(sum[j] == fmaf(0.3f, r.y[j], r.x[j]) && scaled[j] == 0.7f * r.y[j]);
        }
        b->ops->close(b);
    }
}

/* A product of elements: W columns of x from `column` on, by gates [M, W], or [M, G] of
 * which each counts for W / G columns, into a third buffer, or the gate's, or x's. */
typedef struct multiply_case {
    int32_t width, x_width, gate_width, column, out;
} multiply_case;

enum { GATE, X, OUT };

static const multiply_case multiply_cases[] = {
    {37, 37, 37, 0, OUT}, {16, 100, 16, 84, OUT}, {37, 100, 37, 11, GATE},
    {64, 64, 64, 0, X},   {37, 100, 1, 63, OUT},  {100, 100, 1, 0, X},
    {1, 3, 1, 2, GATE},   {96, 100, 3, 4, OUT},   {60, 60, 20, 0, X}};
#define N_MULTIPLY_CASES (sizeof multiply_cases / sizeof *multiply_cases)

static bool run_multiply(const way *w, const multiply_case *c, activation f, const numbers *r, float *out) {
    norm *nm;
    backend *b = begin(w, (int32_t[]){c->gate_width, c->x_width, c->width}, 3, NULL, r, &nm);
    if (b == NULL) {
        return false;
    }
    put(b, GATE, w, c->gate_width, r->x);
    put(b, X, w, c->x_width, r->y);
    b->ops->multiply(b,
                     &(multiply_use){.f = f, .gate = {GATE}, .x = {X}, .column = c->column, .out = {c->out}});
    get(b, c->out, w, c->width, out);
    b->ops->close(b);
    return true;
}

TEST(products_of_elements_are_those_of_the_columns_asked_for) {
    static numbers r;
    random_numbers(&r);
    for (size_t n = 0; n < N_MULTIPLY_CASES; n++) {
        const multiply_case *c = &multiply_cases[n];
        for (activation f = 0; f < ACT_SWIGLU_CLAMPED; f++) {
            float out[N_VALUES], got[N_VALUES];
            assert_true(run_multiply(&whole, c, f, &r, out));
            for (int32_t i = 0; i < MAX_ROWS * c->width; i++) {
                int32_t row = i / c->width, column = i % c->width;
                float factor;
                int32_t stretch = c->width / c->gate_width;
                math_plain.activate(f, &r.x[row * c->gate_width + column / stretch], 1, &factor);
                float want = factor * r.y[row * c->x_width + c->column + column];
                assert_true(same_floats(&out[i], &want, 1));
            }
            for (size_t i = 0; i < N_WAYS; i++) {
                if (run_multiply(&ways[i], c, f, &r, got)) {
                    assert_same_rows(&ways[i], c->width, got, out, "multiply");
                }
            }
        }
    }
}

/* Columns of a gate's row, which count for stretches of x and are added to what is there. */
TEST(products_of_some_of_a_gates_columns_are_added) {
    static numbers r;
    random_numbers(&r);
    for (size_t i = 0; i <= N_WAYS; i++) {
        const way *w = i < N_WAYS ? &ways[i] : &whole;
        enum { GATES = 7, WIDTH = 36 };
        norm *nm;
        backend *b = begin(w, (int32_t[]){GATES, WIDTH, WIDTH}, 3, NULL, &r, &nm);
        float out[N_VALUES];
        if (b == NULL) {
            continue;
        }
        put(b, GATE, w, GATES, r.x);
        put(b, X, w, WIDTH, r.y);
        put(b, OUT, w, WIDTH, r.x);
        b->ops->multiply(b, &(multiply_use){.f = ACT_NONE,
                                            .gate = {GATE},
                                            .x = {X},
                                            .gate_column = 2,
                                            .n_gates = 3,
                                            .adds = true,
                                            .out = {OUT}});
        get(b, OUT, w, WIDTH, out);
        for (int32_t j = w->row0 * WIDTH; j < (w->row0 + w->n_rows) * WIDTH; j++) {
            float gate = r.x[j / WIDTH * GATES + 2 + j % WIDTH / (WIDTH / 3)];
            assert_true(out[j] == fmaf(gate, r.y[j], r.x[j]));
        }
        b->ops->close(b);
    }
}

TEST(a_trace_notes_each_of_these_ops) {
    static const op_kind kinds[] = {OP_NORM_ROWS, OP_NORM_ADD, OP_MULTIPLY, OP_SCALE_ROWS};
    static numbers r;
    op_time ops[5];
    op_trace trace = {.ops = ops, .cap = 5};
    norm *nm;
    backend *b = begin(&whole, (int32_t[]){100, 100}, 2, &norm_cases[0], &r, &nm);
    put(b, 0, &whole, 100, r.x);
    put(b, 1, &whole, 100, r.y);
    b->ops->trace(b, &trace);
    b->ops->norm_rows(b, (buffer){0}, nm, (buffer){0});
    b->ops->norm_add(b, (buffer){0}, nm, 1.0f, (buffer){1});
    b->ops->multiply(b, &(multiply_use){.f = ACT_SIGMOID, .gate = {0}, .x = {1}, .out = {0}});
    b->ops->scale_rows(b, 2.0f, (buffer){0});
    b->ops->trace(b, NULL);
    b->ops->scale_rows(b, 2.0f, (buffer){0});
    assert_int_equal(trace.n, 4);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(ops[i].kind, kinds[i]);
        assert_true(ops[i].n_rows == MAX_ROWS && ops[i].bytes == 0 && ops[i].operations == 0);
        assert_true(i == 0 || ops[i].start_ns >= ops[i - 1].start_ns + ops[i - 1].ns);
    }
    b->ops->close(b);
}

TEST(norms_of_the_wrong_shape_or_type_are_refused) {
    static const float data[64];
    backend *b = open_isa("plain", 1);
    norm *nm = NULL;
    quire_error err;
    tensor_view w = vector("blk.3.norm", data, 64), bias = vector("blk.3.bias", data, 64);
    norm_spec spec = {.width = 64, .eps = 1e-5f, .weight = &w};
#define REFUSED(error, name)                                                                                 \
    do {                                                                                                     \
        assert_int_equal(b->ops->norm_load(b, &spec, &nm, &err), error);                                     \
        assert_non_null(strstr(err.message, name));                                                          \
        assert_null(nm);                                                                                     \
    } while (0)
    spec.bias = &bias;
    REFUSED(QUIRE_UNSUPPORTED, "blk.3.bias"); /* a root mean square norm */
    spec.kind = NORM_LAYER;
    bias.dims[0] = 63;
    REFUSED(QUIRE_BAD_FILE, "blk.3.bias");
    bias.dims[0] = 32; /* fits the stretch, but there are twice as many weights */
    spec.width = 32;
    REFUSED(QUIRE_BAD_FILE, "blk.3.bias");
    spec = (norm_spec){.width = 48, .eps = 1e-5f, .weight = &w};
    REFUSED(QUIRE_BAD_FILE, "blk.3.norm"); /* 64 are no whole number of stretches */
    spec.width = 0;
    REFUSED(QUIRE_INVALID, "over 0");
    spec.width = 64;
    /* among them lengths that are 64 modulo 2^32, as a vector and as rows of 64 */
    static const int64_t wrong[] = {0,      -64, INT64_MAX / 64 * 64, INT64_C(0x100000040), (1 << 26) + 1,
                                    1 << 20};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* the last: longer than its bytes */
        w.dims[0] = wrong[i];
        REFUSED(QUIRE_BAD_FILE, "blk.3.norm");
    }
    w.n_dims = 2;
    w.dims[1] = 64;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        w.dims[0] = wrong[i];
        REFUSED(QUIRE_BAD_FILE, "blk.3.norm");
    }
    w.dims[0] = 2; /* rows of half a stretch */
    w.dims[1] = 32;
    REFUSED(QUIRE_BAD_FILE, "blk.3.norm");
    w.n_dims = 3;
    REFUSED(QUIRE_BAD_FILE, "blk.3.norm");
    w = vector("blk.3.norm", data, 64);
    w.type = DTYPE_I32;
    REFUSED(QUIRE_UNSUPPORTED, "blk.3.norm");
    w.type = DTYPE_Q8_0;
    REFUSED(QUIRE_UNSUPPORTED, "blk.3.norm");
#undef REFUSED
    b->ops->close(b);
}

TEST_MAIN_ISAS

/* Loading of adapters: refusals that name the tensor, blends, weights read back, memory
 * use, and loading while steps run. */
#include <math.h>
#include <pthread.h>

#include "backend/adapter_case.h"
#include "core/quant.h"

static const case_options in_f32 = {.mode = COMPUTE_F32, .isa = "auto", .n_threads = 2, .max_adapters = 3};

static float numbers[F * D];

/* A matrix of zeros. */
static tensor_view zeros(const char *name, int32_t rows, int32_t columns) {
    return floats_view(name, rows, columns, numbers);
}

static void expect_refused(model_case *m, const adapter_change *changes, int32_t n, quire_err code,
                           const char *message) {
    adapter *a = NULL;
    quire_error err;
    assert_int_equal(m->b->ops->adapter_load(m->b, changes, n, &a, &err), code);
    assert_null(a);
    if (strstr(err.message, message) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
    }
}

TEST(matrices_that_do_not_fit_are_refused_by_name) {
    model_case m = case_open(&in_f32);
    const tensor_view a = zeros("layers.0.q.A", 4, D), b = zeros("layers.0.q.B", F, 4);
    adapter_change c = {.w = m.w[L_GATE], .a = &a, .b = &b, .scale = 1.0f};
    adapter *out = NULL;
    quire_error err;
    must(m.b->ops->adapter_load(m.b, &c, 1, &out, &err), &err);
    m.b->ops->adapter_free(m.b, out);
    tensor_view bad = zeros("bad.A", 4, D - 1);
    c.a = &bad;
    expect_refused(&m, &c, 1, QUIRE_BAD_FILE, "tensor bad.A: it is 4 x 255");
    bad = zeros("bad.A", 5, D);
    expect_refused(&m, &c, 1, QUIRE_BAD_FILE, "tensor layers.0.q.B: rank 4 beside one of 5 in bad.A");
    bad = zeros("bad.A", 0, D);
    expect_refused(&m, &c, 1, QUIRE_BAD_FILE, "bad.A");
    bad = zeros("bad.A", CASE_RANK + 1, D);
    expect_refused(&m, &c, 1, QUIRE_UNSUPPORTED, "tensor bad.A: rank 41; at most 40");
    bad.dims[0] = 1000000000;
    expect_refused(&m, &c, 1, QUIRE_UNSUPPORTED, "rank 1000000000");
    bad = zeros("bad.A", 4, D);
    bad.n_bytes--;
    expect_refused(&m, &c, 1, QUIRE_BAD_FILE, "tensor bad.A: its data is shorter");
    bad.n_bytes++;
    bad.type = DTYPE_Q4_0;
    expect_refused(&m, &c, 1, QUIRE_UNSUPPORTED, "bad.A");
    c.a = &a;
    bad = zeros("bad.B", F + 1, 4);
    c.b = &bad;
    expect_refused(&m, &c, 1, QUIRE_BAD_FILE, "tensor bad.B: it is 289 x 4");
    c.b = NULL;
    expect_refused(&m, &c, 1, QUIRE_INVALID, "layers.0.q.A");
    c.b = &b;
    const adapter_change twice[] = {c, c};
    expect_refused(&m, twice, 2, QUIRE_INVALID, "layers.0.q.A: the adapter changes these weights twice");
    c.nm = m.n1;
    expect_refused(&m, &c, 1, QUIRE_INVALID, "changes something that the model does not have");
    case_close(&m);
}

TEST(replacements_that_do_not_fit_are_refused_by_name) {
    model_case m = case_open(&in_f32);
    tensor_view w = zeros("saved", F, D - 32), n = vector_view("saved.norm", D - 1, numbers);
    const linear_spec spec = {.weight = &w};
    norm_spec of_norm = {.width = D - 1, .eps = 1e-5f, .weight = &n};
    expect_refused(&m, &(adapter_change){.w = m.w[L_GATE], .instead = &spec}, 1, QUIRE_BAD_FILE,
                   "tensor saved: it must be a plain matrix of 288 x 256");
    expect_refused(&m, &(adapter_change){.nm = m.n1, .norm = &of_norm}, 1, QUIRE_BAD_FILE,
                   "tensor saved.norm: its kind or width differs");
    of_norm.width = D;
    expect_refused(&m, &(adapter_change){.nm = m.n1, .norm = &of_norm}, 1, QUIRE_BAD_FILE, "saved.norm");
    w = zeros("saved", V - 1, D);
    expect_refused(&m, &(adapter_change){.rows = m.tokens, .weight = &w}, 1, QUIRE_BAD_FILE,
                   "tensor saved: it must be a plain matrix of 300 x 256");
    case_close(&m);
}

static void run_with(model_case *m, adapter *a, row_result *out) {
    static const int32_t tokens[6] = {1, 20, 7, 299, 0, 45};
    static const int16_t with[6] = {0};
    case_run(m, tokens, with, &a, 1, 6, out);
}

/* A case with nothing but A and B. */
static adapter_case *plain_case(uint64_t seed) {
    adapter_case *c = adapter_case_new(seed);
    for (int i = 0; i <= N_LINEARS; i++) {
        changed_linear *w = i < N_LINEARS ? &c->w[i] : &c->rows;
        free(w->factors);
        free(w->bias);
        free(w->instead);
        w->factors = w->bias = w->instead = NULL;
        w->rank = w->rank > 20 ? 20 : w->rank; /* two fit a blend */
    }
    for (int i = 0; i < 2; i++) {
        free(c->norms[i]);
        c->norms[i] = NULL;
    }
    return c;
}

/* The sum of two changes, times scales, as one of the sum of their ranks. */
static changed_linear joined(const changed_linear *x, const changed_linear *y, float sx, float sy,
                             int32_t n_out, int32_t n_in) {
    changed_linear c = {.rank = x->rank + y->rank, .scale = 1.0f};
    c.a = malloc(sizeof(float) * (size_t)(c.rank * n_in + 1));
    c.b = malloc(sizeof(float) * (size_t)(c.rank * n_out + 1));
    memcpy(c.a, x->a, sizeof(float) * (size_t)(x->rank * n_in));
    memcpy(c.a + x->rank * n_in, y->a, sizeof(float) * (size_t)(y->rank * n_in));
    for (int32_t n = 0; n < n_out; n++) {
        for (int32_t r = 0; r < c.rank; r++) {
            c.b[n * c.rank + r] = r < x->rank ? sx * x->scale * x->b[n * x->rank + r]
                                              : sy * y->scale * y->b[n * y->rank + r - x->rank];
        }
    }
    return c;
}

TEST(a_blend_adds_what_each_part_adds) {
    adapter_case *x = plain_case(31), *y = plain_case(32), sum = {.rows = {.rank = 0}};
    const float scales[] = {0.5f, -1.25f}, one[] = {1.0f};
    row_result got[6], expected[6];
    model_case m = case_open(&in_f32);
    for (int i = 0; i < N_LINEARS; i++) {
        sum.w[i] = joined(&x->w[i], &y->w[i], scales[0], scales[1], case_of(i).n_out, case_of(i).n_in);
    }
    sum.rows = joined(&x->rows, &y->rows, scales[0], scales[1], D, V);
    model_case merged =
        case_open(&(case_options){.mode = COMPUTE_F32, .isa = "auto", .n_threads = 2, .merged = &sum});
    const adapter *parts[] = {case_adapter(&m, x), case_adapter(&m, y)};
    adapter *blend = NULL, *alone = NULL;
    quire_error err;
    must(m.b->ops->adapter_blend(m.b, parts, scales, 2, &blend, &err), &err);
    must(m.b->ops->adapter_blend(m.b, parts, one, 1, &alone, &err), &err);
    assert_true(m.b->ops->adapter_bytes(blend) < m.b->ops->adapter_bytes(parts[0]));
    run_with(&m, blend, got);
    const int32_t tokens[6] = {1, 20, 7, 299, 0, 45};
    case_run(&merged, tokens, NULL, NULL, 0, 6, expected);
    for (int row = 0; row < 6; row++) {
        for (int i = 0; i < V; i++) {
            assert_true(fabsf(got[row].logits[i] - expected[row].logits[i]) < 2e-3f);
        }
    }
    run_with(&m, alone, got);
    run_with(&m, (adapter *)(uintptr_t)parts[0], expected);
    assert_memory_equal(got, expected, sizeof got);
    m.b->ops->adapter_free(m.b, blend);
    m.b->ops->adapter_free(m.b, alone);
    for (int i = 0; i < 2; i++) {
        m.b->ops->adapter_free(m.b, (adapter *)(uintptr_t)parts[i]);
    }
    for (int i = 0; i < N_LINEARS; i++) {
        change_free(&sum.w[i]);
    }
    change_free(&sum.rows);
    adapter_case_free(x);
    adapter_case_free(y);
    case_close(&merged);
    case_close(&m);
}

TEST(impossible_blends_are_refused) {
    model_case m = case_open(&in_f32);
    const tensor_view a = zeros("A", 30, D), b = zeros("B", F, 30), w = zeros("saved", F, D);
    const linear_spec spec = {.weight = &w};
    const adapter_change changes[] = {{.w = m.w[L_GATE], .a = &a, .b = &b, .scale = 1.0f},
                                      {.w = m.w[L_GATE], .factors = numbers},
                                      {.w = m.w[L_GATE], .bias = numbers},
                                      {.w = m.w[L_GATE], .instead = &spec}};
    const adapter *all[4];
    const float ones[] = {1.0f, 1.0f}, half[] = {0.5f};
    adapter *out = NULL;
    quire_error err;
    for (int i = 0; i < 4; i++) {
        adapter *one = NULL;
        must(m.b->ops->adapter_load(m.b, &changes[i], 1, &one, &err), &err);
        all[i] = one;
        assert_int_equal(m.b->ops->adapter_blend(m.b, (const adapter *[]){one, one}, ones, 2, &out, &err),
                         QUIRE_UNSUPPORTED);
    }
    assert_int_equal(m.b->ops->adapter_blend(m.b, &all[1], half, 1, &out, &err), QUIRE_UNSUPPORTED);
    assert_int_equal(m.b->ops->adapter_blend(m.b, all, ones, 2, &out, &err), QUIRE_UNSUPPORTED);
    must(m.b->ops->adapter_blend(m.b, all + 2, ones, 2, &out, &err), &err);
    m.b->ops->adapter_free(m.b, out);
    for (int i = 0; i < 4; i++) {
        m.b->ops->adapter_free(m.b, (adapter *)(uintptr_t)all[i]);
    }
    m.b->ops->adapter_free(m.b, NULL);
    case_close(&m);
}

TEST(a_row_of_weights_is_what_the_product_has) {
    static const compute_mode modes[] = {COMPUTE_F32, COMPUTE_BF16, COMPUTE_INT8};
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < N_WEIGHT_TYPES; t++) {
            backend *b = open_isa("auto", modes[i], 1);
            uint64_t seed = 3;
            uint8_t *bytes = random_weights(weight_types[t], 19 * 256, &seed);
            const tensor_view v = matrix_view(weight_types[t], 19, 256, bytes);
            linear *w = NULL;
            quire_error err;
            float got[256], expected[19 * 256], largest = 0.0f;
            must(b->ops->linear_load(b, &(linear_spec){.weight = &v}, &w, &err), &err);
            assert_int_equal(quant_dequantise(weight_types[t], bytes, 19 * 256, expected), QUIRE_OK);
            b->ops->linear_row(b, w, 17, got);
            for (int k = 0; k < 256; k++) {
                largest = fmaxf(largest, fabsf(expected[17 * 256 + k]));
            }
            for (int k = 0; k < 256; k++) {
                /* int8 of floats is rounded, at most by half a step; bf16 by 2^-9 */
                const float bound = dtype_is_quantised(weight_types[t]) && modes[i] != COMPUTE_BF16
                                        ? 0.0f
                                        : largest * 0.51f / 127.0f;
                if (!(fabsf(got[k] - expected[17 * 256 + k]) <= bound)) {
                    fail_msg("%s in mode %d: %g, not %g", dtype_name(weight_types[t]), (int)modes[i],
                             (double)got[k], (double)expected[17 * 256 + k]);
                }
            }
            free(bytes);
            b->ops->close(b);
        }
    }
}

/* Loads and frees adapters until told to stop. */
typedef struct loader {
    const model_case *m;
    const adapter_case *c;
    _Atomic bool stop;
    int32_t n;
} loader;

static void *load_on(void *context) {
    loader *l = context;
    while (!l->stop) {
        l->m->b->ops->adapter_free(l->m->b, case_adapter(l->m, l->c));
        l->n++;
    }
    return NULL;
}

TEST(adapters_are_loaded_beside_steps) {
    if (getenv("QUIRE_TEST_EMULATED") != NULL) {
        print_message("skipped: an emulator starts no threads everywhere\n");
        skip();
    }
    model_case m = case_open(&in_f32);
    adapter_case *c = adapter_case_new(5), *other = adapter_case_new(6);
    adapter *a = case_adapter(&m, c);
    row_result expected[6], got[6];
    loader l = {.m = &m, .c = other};
    pthread_t thread;
    run_with(&m, a, expected);
    const int64_t bytes = m.b->ops->weight_bytes(m.b);
    assert_int_equal(pthread_create(&thread, NULL, load_on, &l), 0);
    for (int i = 0; i < 50; i++) {
        run_with(&m, a, got);
        assert_memory_equal(got, expected, sizeof got);
    }
    l.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(m.b->ops->weight_bytes(m.b), bytes);
    m.b->ops->adapter_free(m.b, a);
    adapter_case_free(c);
    adapter_case_free(other);
    case_close(&m);
}

TEST_MAIN(NULL, NULL)

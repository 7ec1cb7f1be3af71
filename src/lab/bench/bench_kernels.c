#include "lab/bench/bench_kernels.h"

#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "core/half.h"
#include "lab/bench/figures.h"
#include "lab/bench/sheet.h"

enum { NARROW = 2048, WIDE = 5632, MIN_TIMES = 3, MAX_PAIRS = 256 };

typedef struct weight_type {
    const char *name;
    dtype from;
    compute_mode compute;
} weight_type;

static const weight_type types[] = {{"q4_0", DTYPE_Q4_0, COMPUTE_INT8}, {"q8_0", DTYPE_Q8_0, COMPUTE_INT8},
                                    {"q4_k", DTYPE_Q4_K, COMPUTE_INT8}, {"int8", DTYPE_BF16, COMPUTE_INT8},
                                    {"bf16", DTYPE_BF16, COMPUTE_BF16}, {"f16", DTYPE_F16, COMPUTE_F32},
                                    {"f32", DTYPE_F32, COMPUTE_F32}};
enum { N_TYPES = (int)(sizeof types / sizeof types[0]) };

void bench_kernels_options_init(bench_kernels_options *o) {
    *o = (bench_kernels_options){
        .types = "q4_0,q8_0,q4_k,int8,bf16,f16,f32", .rows = "1,2,4,8,16,32,64,512", .weights_mib = 160, .run_ms = 200};
}

/* A backend that holds pairs of projections, and the rows that pass through them. */
typedef struct kernels_run {
    const weight_type *type;
    backend *b;
    int32_t n_threads, n_pairs;
    int64_t pair_bytes;
    linear *up[MAX_PAIRS], *down[MAX_PAIRS];
    buffer x, h, y;
} kernels_run;

static float random_float(uint64_t *seed) {
    return (float)(rng_next(seed) >> 40) * 0x1p-23f - 1.0f;
}

/* Any numbers, but plain ones where a block has its scales: both halves that a block may begin with are 2^-7. */
static void *random_weights(dtype t, size_t n) {
    size_t block = (size_t)dtype_block_bytes(t), n_blocks = n / (size_t)dtype_block_elements(t);
    uint8_t *bytes = mem_new(n_blocks, block);
    uint64_t seed = 1;
    for (size_t i = 0; bytes != NULL && i < n_blocks; i++) {
        uint8_t *at = bytes + i * block;
        float value = random_float(&seed);
        uint16_t half = t == DTYPE_F16 ? f32_to_f16(value) : t == DTYPE_BF16 ? f32_to_bf16(value) : f32_to_f16(0x1p-7f);
        if (!dtype_is_quantised(t)) {
            memcpy(at, block == sizeof value ? (void *)&value : (void *)&half, block);
            continue;
        }
        for (size_t j = 0; j < block; j++) {
            at[j] = (uint8_t)rng_next(&seed);
        }
        memcpy(at, &half, sizeof half);
        memcpy(at + sizeof half, &half, sizeof half);
    }
    return bytes;
}

static quire_err load_pairs(const bench_kernels_options *o, const void *weights, kernels_run *r, quire_error *err) {
    size_t n_bytes = (size_t)NARROW * WIDE / (size_t)dtype_block_elements(r->type->from) * (size_t)dtype_block_bytes(r->type->from);
    tensor_view up = {.name = "up", .type = r->type->from, .n_dims = 2, .dims = {WIDE, NARROW, 1, 1}, .data = weights, .n_bytes = n_bytes};
    tensor_view down = up;
    down.dims[0] = NARROW;
    down.dims[1] = WIDE;
    const backend_ops *ops = r->b->ops;
    while (r->n_pairs < MAX_PAIRS && (r->n_pairs == 0 || ops->weight_bytes(r->b) < (int64_t)o->weights_mib << 20)) {
        TRY(ops->linear_load(r->b, &up, NULL, &r->up[r->n_pairs], err));
        TRY(ops->linear_load(r->b, &down, NULL, &r->down[r->n_pairs], err));
        r->n_pairs++;
    }
    r->pair_bytes = ops->weight_bytes(r->b) / r->n_pairs;
    return QUIRE_OK;
}

static quire_err open_run(const bench_kernels_options *o, int32_t max_rows, const void *weights, kernels_run *r, quire_error *err) {
    backend_options bo = {.compute = r->type->compute, .isa = o->isa, .n_threads = r->n_threads};
    TRY(backend_cpu_open(&bo, &r->b, err));
    const backend_ops *ops = r->b->ops;
    TRY(load_pairs(o, weights, r, err));
    r->x = ops->buffer_reserve(r->b, NARROW);
    r->h = ops->buffer_reserve(r->b, WIDE);
    r->y = ops->buffer_reserve(r->b, NARROW);
    step_limits limits = {.max_rows = max_rows, .max_seqs = 1};
    TRY(ops->step_open(r->b, &limits, NULL, 0, err));
    float *x = mem_new((size_t)max_rows, NARROW * sizeof *x);
    if (x == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "no memory for %d rows", (int)max_rows);
    }
    uint64_t seed = 2;
    for (int64_t i = 0; i < (int64_t)max_rows * NARROW; i++) {
        x[i] = random_float(&seed);
    }
    ops->buffer_write(r->b, r->x, 0, max_rows, x);
    mem_free(x);
    return QUIRE_OK;
}

/* Microseconds of a pair's two products with n_rows rows. */
static double time_pair(const bench_kernels_options *o, kernels_run *r, int32_t n_rows) {
    const backend_ops *ops = r->b->ops;
    const batch step = {.n_rows = n_rows};
    int64_t best = INT64_MAX, deadline = clock_us() + (int64_t)o->run_ms * 1000;
    ops->enter(r->b);
    for (int32_t i = 0; i < MIN_TIMES + r->n_pairs || clock_us() < deadline; i++) {
        const linear_use up = {r->up[i % r->n_pairs], r->h}, down = {r->down[i % r->n_pairs], r->y};
        int64_t start = figures_time_us(r->n_threads);
        ops->step_begin(r->b, &step);
        ops->norm_linears(r->b, r->x, NULL, &up, 1);
        ops->norm_linears(r->b, r->h, NULL, &down, 1);
        ops->step_wait(r->b);
        int64_t took = figures_time_us(r->n_threads) - start;
        best = took < best ? took : best;
    }
    ops->leave(r->b);
    return best > 0 ? (double)best : 1.0;
}

static quire_err run_type(const bench_kernels_options *o, kernels_run *r, const int32_t *rows, int32_t n, const sheet *t,
                          quire_error *err) {
    int32_t max_rows = 1;
    for (int32_t i = 0; i < n; i++) {
        max_rows = rows[i] > max_rows ? rows[i] : max_rows;
    }
    void *weights = random_weights(r->type->from, (size_t)NARROW * WIDE);
    quire_err e = weights != NULL ? open_run(o, max_rows, weights, r, err) : err_set(err, QUIRE_NO_MEMORY, -1, "no memory for weights");
    mem_free(weights);
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        double us = time_pair(o, r, rows[i]);
        double operations = 2.0 * 2.0 * NARROW * WIDE * rows[i];
        const sheet_cell cells[] = {{r->type->name, 0},
                                    {NULL, r->n_threads},
                                    {NULL, rows[i]},
                                    {NULL, us},
                                    {NULL, (double)r->pair_bytes / us * 1e-3},
                                    {NULL, operations / us * 1e-3}};
        sheet_row(t, cells);
    }
    if (r->b != NULL) {
        r->b->ops->close(r->b);
    }
    return e;
}

/* The next name of a list, or NULL for one that is no type. */
static const weight_type *next_type(const char **list) {
    size_t n = strcspn(*list, ",");
    const char *name = *list;
    *list += n + ((*list)[n] == ',');
    for (int i = 0; i < N_TYPES; i++) {
        if (strlen(types[i].name) == n && memcmp(types[i].name, name, n) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

quire_err bench_kernels_run(const bench_kernels_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"type", "type", 6, SHEET_TEXT, NULL}, {"threads", "threads", 7, 0, NULL},
                                           {"rows", "rows", 5, 0, NULL},          {"time", "us", 9, 0, "us"},
                                           {"read_rate", "GB/s", 7, 2, "GB/s"},   {"compute_rate", "GOP/s", 8, 1, "GOP/s"}};
    sheet t = {.what = "kernels", .columns = columns, .n_columns = (int32_t)(sizeof columns / sizeof *columns), .json = o->json};
    int32_t rows[FIGURES_MAX_POINTS], n_rows, threads[FIGURES_MAX_POINTS] = {thread_pool_cpus()}, n_threads = 1;
    TRY(figures_parse_list("--rows", o->rows, rows, &n_rows, err));
    if (o->threads != NULL) {
        TRY(figures_parse_list("--threads", o->threads, threads, &n_threads, err));
    }
    for (const char *list = o->types; *list != '\0';) {
        if (next_type(&list) == NULL) {
            return err_set(err, QUIRE_INVALID, -1, "--types %s: must be some of q4_0,q8_0,q4_k,int8,bf16,f16,f32", o->types);
        }
    }
    sheet_begin(&t, NULL);
    for (int32_t i = 0; i < n_threads; i++) {
        for (const char *list = o->types; *list != '\0';) {
            kernels_run r = {.type = next_type(&list), .n_threads = threads[i]};
            TRY(run_type(o, &r, rows, n_rows, &t, err));
        }
    }
    sheet_note(&t, "[%d, %d] and [%d, %d] weights, %d MiB of them in turn, rows prepared each time; the best of at least %d ms.", WIDE,
               NARROW, NARROW, WIDE, (int)o->weights_mib, (int)o->run_ms);
    return QUIRE_OK;
}

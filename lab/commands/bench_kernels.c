/* `quire bench kernels`: the speed of matrix products by type of weights and number of
 * rows, through the backend's own op. */
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "core/half.h"
#include "lab/bench/figures.h"
#include "lab/commands/lab_commands.h"

typedef struct kernel_type {
    const char *name;
    dtype from; /* type of the weights before packing; for fp8, nf4 and int4, of their codes */
    compute_mode compute;
} kernel_type;

static const kernel_type types[] = {
    {"q4_0", DTYPE_Q4_0, COMPUTE_INT8},       {"q8_0", DTYPE_Q8_0, COMPUTE_INT8},
    {"q4_k", DTYPE_Q4_K, COMPUTE_INT8},       {"iq4_xs", DTYPE_IQ4_XS, COMPUTE_INT8},
    {"mxfp4", DTYPE_MXFP4, COMPUTE_INT8},     {"nvfp4", DTYPE_NVFP4, COMPUTE_INT8},
    {"iq3_s", DTYPE_IQ3_S, COMPUTE_INT8},     {"iq3_xxs", DTYPE_IQ3_XXS, COMPUTE_INT8},
    {"iq2_xxs", DTYPE_IQ2_XXS, COMPUTE_INT8}, {"iq2_s", DTYPE_IQ2_S, COMPUTE_INT8},
    {"iq2_xs", DTYPE_IQ2_XS, COMPUTE_INT8},   {"iq1_s", DTYPE_IQ1_S, COMPUTE_INT8},
    {"tq2_0", DTYPE_TQ2_0, COMPUTE_INT8},     {"fp8", DTYPE_F8_E4M3, COMPUTE_BF16},
    {"nf4", DTYPE_U8, COMPUTE_BF16},          {"int8", DTYPE_BF16, COMPUTE_INT8},
    {"bf16", DTYPE_BF16, COMPUTE_BF16},       {"f16", DTYPE_F16, COMPUTE_F32},
    {"f32", DTYPE_F32, COMPUTE_F32},          {"q1_0", DTYPE_Q1_0, COMPUTE_INT8},
    {"int4", DTYPE_I32, COMPUTE_INT8}};
enum { N_TYPES = (int)(sizeof types / sizeof types[0]) };

/* Scales of 2^-7: per row for INT4, else one for all; also one for all if more would be
 * needed. */
enum { MOST_SCALES = 1 << 17 };

static code_kind code_kind_of(dtype t) {
    return t == DTYPE_U8 ? CODE_TABLE : t == DTYPE_I32 ? CODE_INTEGER : CODE_E4M3;
}

static code_place code_place_of(dtype t) {
    return t == DTYPE_U8 ? CODES_NIBBLES : t == DTYPE_I32 ? CODES_WORDS : CODES_BYTES;
}

/* The weights as a matrix. m: its description if they are codes with scales per 128 x 128
 * (fp8) or per 64 of a row (nf4); it must live as long as the view. */
static tensor_view kernel_type_matrix(dtype t, const void *weights, int32_t n_out, int32_t n_in,
                                      quant_matrix *m) {
    static float scales[MOST_SCALES], table[16];
    const int64_t n = (int64_t)n_out * n_in;
    tensor_view view = {
        .name = "weights", .type = t, .n_dims = 2, .dims = {n_out, n_in, 1, 1}, .data = weights};
    view.n_bytes = (size_t)(n / dtype_block_elements(t) * dtype_block_bytes(t));
    if (t != DTYPE_F8_E4M3 && t != DTYPE_U8 && t != DTYPE_I32) {
        return view;
    }
    const int32_t wanted = t == DTYPE_U8 ? 64 : 128, scaled_rows = t == DTYPE_I32 ? n_out : 1;
    const int32_t group = (int64_t)scaled_rows * n_in / wanted < MOST_SCALES ? wanted : n_in;
    *m = (quant_matrix){.place = code_place_of(t), .kind = code_kind_of(t), .zero = 8};
    m->bits = t == DTYPE_F8_E4M3 ? 8 : 4;
    m->codes = weights;
    m->n_rows = m->block = m->step = n_out;
    m->n_in = n_in;
    m->table = table;
    m->scales = scales;
    m->scale_rows = n_out / scaled_rows;
    m->group = group;
    m->n_groups = (n_in + group - 1) / group;
    m->factor = 1.0f;
    for (int32_t i = 0; i < MOST_SCALES; i++) {
        scales[i] = 0x1p-7f;
    }
    for (int32_t i = 0; i < 16; i++) {
        table[i] = (float)(2 * i - 15) / 15.0f;
    }
    view.type = DTYPE_F32;
    view.quant = m;
    return view;
}

/* Uniform in -1..1. */
static float kernel_type_float(uint64_t *seed) {
    return (float)(rng_next(seed) >> 40) * 0x1p-23f - 1.0f;
}

/* n elements of type t: random, except that scales in blocks are 2^-7 (both f16 at a
 * block's start, and MXFP4's scale). NULL: out of memory. Free with mem_free. */
static void *kernel_type_weights(dtype t, size_t n) {
    size_t block = (size_t)dtype_block_bytes(t), n_blocks = n / (size_t)dtype_block_elements(t);
    uint8_t *bytes = mem_new(n_blocks, block);
    uint64_t seed = 1;
    for (size_t i = 0; bytes != NULL && i < n_blocks; i++) {
        uint8_t *at = bytes + i * block;
        float value = kernel_type_float(&seed);
        uint16_t half = t == DTYPE_F16    ? f32_to_f16(value)
                        : t == DTYPE_BF16 ? f32_to_bf16(value)
                                          : f32_to_f16(0x1p-7f);
        if (block == 1) { /* codes: E4M3 below 2, or two of 4 bits */
            at[0] = (uint8_t)(rng_next(&seed) & (t == DTYPE_U8 ? 0xff : 0xbf));
            continue;
        }
        if (!dtype_is_quantised(t)) {
            memcpy(at, block == sizeof value ? (void *)&value : (void *)&half, block);
            continue;
        }
        for (size_t j = 0; j < block; j++) {
            at[j] = (uint8_t)rng_next(&seed);
        }
        memcpy(at, &half, sizeof half);
        memcpy(at + sizeof half, &half, sizeof half);
        at[0] = t == DTYPE_MXFP4 ? 121 : at[0];
    }
    return bytes;
}

typedef struct bench_kernels_options {
    cli_options cli;
    /* "q4_0,q8_0,q4_k,int8,bf16,f16,f32": int8 is per channel, bf16 uses bf16 arithmetic,
     * f16 and f32 use f32 */
    const char *types;
    const char *rows;    /* "1,2,4" */
    const char *threads; /* "1,2"; NULL: one per core */
    const char *isa;     /* "auto", "plain", "avx2", "avx512", "amx", "avx512bf16", "neon", "i8mm" */
    /* weights are repeated in memory up to this size: more than caches hold, as in a
     * model */
    int32_t weights_mib;
    int32_t run_ms; /* least time per figure */
} bench_kernels_options;

enum { NARROW = 2048, WIDE = 5632, MIN_TIMES = 3, MAX_PAIRS = 256 };

LAB_DEFAULTS(bench_kernels, .types = "q4_0,q8_0,q4_k,int8,bf16,f16,f32", .rows = "1,2,4,8,16,32,64,512",
             .weights_mib = 160, .run_ms = 200)

/* A backend with pairs of projections, and the rows that pass through them. */
typedef struct kernels_run {
    const kernel_type *type;
    backend *b;
    int32_t n_threads, n_pairs;
    int64_t pair_bytes;
    linear *up[MAX_PAIRS], *down[MAX_PAIRS];
    buffer x, h, y;
} kernels_run;

static quire_err load_pairs(const bench_kernels_options *o, const void *weights, kernels_run *r,
                            quire_error *err) {
    quant_matrix codes[2];
    const tensor_view up = kernel_type_matrix(r->type->from, weights, WIDE, NARROW, &codes[0]);
    const tensor_view down = kernel_type_matrix(r->type->from, weights, NARROW, WIDE, &codes[1]);
    const backend_ops *ops = r->b->ops;
    while (r->n_pairs < MAX_PAIRS &&
           (r->n_pairs == 0 || ops->weight_bytes(r->b) < (int64_t)o->weights_mib << 20)) {
        TRY(ops->linear_load(r->b, &(linear_spec){.weight = &up}, &r->up[r->n_pairs], err));
        TRY(ops->linear_load(r->b, &(linear_spec){.weight = &down}, &r->down[r->n_pairs], err));
        r->n_pairs++;
    }
    r->pair_bytes = ops->weight_bytes(r->b) / r->n_pairs;
    return QUIRE_OK;
}

static quire_err bench_kernels_open_run(const bench_kernels_options *o, int32_t max_rows, const void *weights,
                                        kernels_run *r, quire_error *err) {
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
    TRY(mem_check_for(x, "the rows", err));
    uint64_t seed = 2;
    for (int64_t i = 0; i < (int64_t)max_rows * NARROW; i++) {
        x[i] = kernel_type_float(&seed);
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

static quire_err bench_kernels_run_type(const bench_kernels_options *o, kernels_run *r, const int32_t *rows,
                                        int32_t n, const bench_table *t, quire_error *err) {
    void *weights = kernel_type_weights(r->type->from, (size_t)NARROW * WIDE);
    quire_err e = weights != NULL ? bench_kernels_open_run(o, figures_largest(rows, n), weights, r, err)
                                  : err_set(err, QUIRE_NO_MEMORY, -1, "no memory for weights");
    mem_free(weights);
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        double us = time_pair(o, r, rows[i]);
        double operations = 2.0 * 2.0 * NARROW * WIDE * rows[i];
        TABLE_ROW(t, TXT(r->type->name), NUM(r->n_threads), NUM(rows[i]), NUM(us),
                  NUM((double)r->pair_bytes / us * 1e-3), NUM(operations / us * 1e-3));
    }
    if (r->b != NULL) {
        r->b->ops->close(r->b);
    }
    return e;
}

static quire_err bench_kernels_run(const cli_options *cli, quire_error *err) {
    const bench_kernels_options *o = (const void *)cli;
    TABLE(t, "kernels", o->cli.json, WORD("type", "type", 6), KEY("threads", "threads", 7, 0),
          KEY("rows", "rows", 5, 0), FIGURE("time", "us", 9, 0, "us"),
          FIGURE("read_rate", "GB/s", 7, 2, "GB/s"), FIGURE("compute_rate", "GOP/s", 8, 1, "GOP/s"));
    int32_t rows[FIGURES_MAX_POINTS], n_rows, threads[FIGURES_MAX_POINTS], n_threads, list[N_TYPES], n_types;
    TRY(figures_parse_list("--rows", o->rows, rows, &n_rows, err));
    threads[0] = thread_pool_cpus();
    n_threads = 1;
    if (o->threads != NULL) {
        TRY(figures_parse_list("--threads", o->threads, threads, &n_threads, err));
    }
    TRY(FIGURES_PARSE_NAMES("--types", o->types, types, list, &n_types, err));
    table_begin(&t, NULL);
    for (int32_t i = 0; i < n_threads * n_types; i++) {
        kernels_run r = {.type = &types[list[i % n_types]], .n_threads = threads[i / n_types]};
        TRY(bench_kernels_run_type(o, &r, rows, n_rows, &t, err));
    }
    table_note(&t,
               "[%d, %d] and [%d, %d] weights, %d MiB of them in turn, rows prepared each time; the best of "
               "at least %d ms; %s.",
               WIDE, NARROW, NARROW, WIDE, (int)o->weights_mib, (int)o->run_ms,
               n_threads > 1 ? "processor time with one thread, wall time with more"
                             : figures_time_name(threads[0]));
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_kernels_options, member)

static const flag bench_kernels_flags[] = {
    {"--types", "LIST", "of the weights", TEXT(types)},
    {"--rows", "LIST", "rows of a product", TEXT(rows)},
    {"--threads -t", "LIST", "threads (one a core)", TEXT(threads)},
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(isa), .choices = choices_isa},
    {"--weights", "MIB", "of memory that weights are read from in turn", COUNT(weights_mib, 1, 1 << 20)},
    {"--milliseconds", "N", "least time of a figure", COUNT(run_ms, 1, 100000)},
    {0},
};

LAB_COMMAND(bench_kernels, "bench kernels", "", ARGUMENT_NONE,
            "matrix products by type of weights and number of rows",
            "  quire bench kernels --types int8,q4_0 --rows 1,16,512 --threads 1,2\n", bench_kernels_flags,
            flags_json, flags_help);

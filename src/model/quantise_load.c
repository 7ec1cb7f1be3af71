#include "model/quantise_load.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/half.h"
#include "core/quant.h"
#include "core/quantise.h"
#include "model/quant_method.h"

#define PUBLISHED  "published:"
#define TYPE_NAMES "q8_0, q6_k, q5_k, q4_k, q4_0, iq4_xs, mxfp4, int8 and fp8"

/* ---- types by use ---- */

/* A type that the flag can ask for: its name, the type for head and token embeddings, and
 * the type for a matrix whose rows are not whole blocks. F32: not quantised. */
typedef struct quantise_row {
    const char *name;
    dtype to, ends, instead;
} quantise_row;

static const quantise_row rows[] = {
    {"q8_0", DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F32},   {"q6_k", DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_Q8_0},
    {"q5_k", DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q5_1},  {"q4_k", DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q5_0},
    {"q4_0", DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_F32},   {"iq4_xs", DTYPE_IQ4_XS, DTYPE_Q6_K, DTYPE_IQ4_NL},
    {"mxfp4", DTYPE_MXFP4, DTYPE_Q6_K, DTYPE_F32}, {"int8", DTYPE_I8, DTYPE_Q8_0, DTYPE_F32},
    {"fp8", DTYPE_F8_E4M3, DTYPE_F32, DTYPE_F32},
};

static const quantise_row *quantise_row_of(dtype to) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].to == to) {
            return &rows[i];
        }
    }
    return NULL;
}

static bool is_float(dtype t) {
    return t == DTYPE_F32 || t == DTYPE_F16 || t == DTYPE_BF16;
}

dtype quantise_type(dtype to, matrix_use use, dtype from, int64_t n) {
    const quantise_row *row = quantise_row_of(to);
    if (row == NULL || use == MATRIX_KEPT || !is_float(from)) {
        return from;
    }
    dtype type = use == MATRIX_PRODUCT ? row->to : row->ends;
    if (n % dtype_block_elements(type) != 0) {
        type = quantise_row_of(type)->instead;
    }
    return type != DTYPE_F32 && n % dtype_block_elements(type) == 0 ? type : from;
}

/* ---- tensors by name ---- */

static bool is_any(const model_file *f, const arch_names *names, const char *root, const char *name,
                   const weight_role *roles, size_t n) {
    bool is = false;
    for (size_t i = 0; i < n && !is; i++) {
        const weight_name role = weight_name_of(names, roles[i]);
        is = weight_is_named(root, model_file_format(f) == MODEL_GGUF ? role.gguf : role.hf, name);
    }
    return is;
}

matrix_use quantise_use_of(const model_file *f, const arch_names *names, const char *root,
                           const tensor_view *t) {
    static const weight_role kept[] = {
        W_POSITIONS,        W_TYPES,        W_ROUTER,       W_SHARED_ROUTER, W_Q_NORM,      W_K_NORM,
        W_INPUT_PROJECTION, W_CONV_TAPS,    W_DELTA_BA,     W_DELTA_BETA,    W_DELTA_DECAY, W_DELTA_DECAY_IN,
        W_DELTA_CONV,       W_DELTA_CONV_Q, W_DELTA_CONV_K, W_DELTA_CONV_V,  W_MAMBA_TAPS,  W_MAMBA_X,
        W_MAMBA_STEP,       W_MAMBA_RATE,   W_MAMBA_SKIP,   W_MAMBA_NORM,    W_LRU_TAPS};
    static const weight_role head[] = {W_HEAD}, table[] = {W_TOKENS, W_INPUT_TABLE};
    if (t->n_dims < 2 || is_any(f, names, root, t->name, kept, sizeof kept / sizeof *kept)) {
        return MATRIX_KEPT;
    }
    if (is_any(f, names, root, t->name, table, sizeof table / sizeof *table)) {
        return MATRIX_TABLE;
    }
    return is_any(f, names, root, t->name, head, 1) ? MATRIX_HEAD : MATRIX_PRODUCT;
}

int64_t quantise_bytes(const tensor_view *t, dtype type) {
    assert(t != NULL);
    int64_t n = 1;
    for (int32_t i = 0; i < t->n_dims; i++) {
        n *= t->dims[i];
    }
    const int64_t scales =
        type == DTYPE_I8 || type == DTYPE_F8_E4M3 ? n / t->dims[t->n_dims - 1] * (int64_t)sizeof(float) : 0;
    return n / dtype_block_elements(type) * dtype_block_bytes(type) + scales;
}

/* ---- the flag ---- */

/* Describes a file's weights for people: "a GGUF file of q4_0", "quantised by awq", "of
 * bf16". */
static void say_kind(const model_file *f, const model_desc *d, char *out, size_t n) {
    str method = {0};
    (void)model_file_str(f, QUANT_CONFIG ".quant_method", &method);
    if (quant_is(f)) {
        (void)snprintf(out, n, "quantised by %.*s", (int)(method.n < 60 ? method.n : 60), method.p);
    } else {
        (void)snprintf(out, n, "%s of %s",
                       model_file_format(f) == MODEL_GGUF ? "a GGUF file" : "a checkpoint",
                       dtype_flag_name(d->weight_type));
    }
}

/* Whether the file's method is the flag's, or a variant with its own name
 * ("modelopt_fp4"). */
static bool is_of_method(str own, const char *method) {
    const size_t n = strlen(method);
    return str_is(own, method) || (own.n > n && memcmp(own.p, method, n) == 0 && own.p[n] == '_') ||
           (str_is(own, "compressed_tensors") && strcmp(method, "compressed-tensors") == 0);
}

/* Checks that the file is of the published method that the flag names. */
static quire_err check_published(const model_file *f, const model_desc *d, const char *method,
                                 quire_error *err) {
    char kind[128];
    str own = {0};
    (void)model_file_str(f, QUANT_CONFIG ".quant_method", &own);
    if (strcmp(method, "gguf") == 0 ? model_file_format(f) == MODEL_GGUF
                                    : quant_is(f) && is_of_method(own, method)) {
        return QUIRE_OK;
    }
    say_kind(f, d, kind, sizeof kind);
    return err_set(err, QUIRE_INVALID, -1,
                   "--quantization %s: %s is %s; leave the flag out to run it as it is (while 16-bit weights "
                   "are loaded, they are "
                   "quantised to " TYPE_NAMES ")",
                   method, model_file_path(f), kind);
}

/* The type of most parameters of products. */
static dtype product_type(const model_file *f, const arch_names *names, const char *root) {
    int64_t n_of[N_DTYPES] = {0};
    dtype most = DTYPE_F32;
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const tensor_view *t = model_file_tensor(f, i);
        int64_t n = quantise_use_of(f, names, root, t) == MATRIX_PRODUCT ? 1 : 0;
        for (int32_t k = 0; k < t->n_dims; k++) {
            n *= t->dims[k];
        }
        n_of[t->type] += n;
    }
    for (int t = 0; t < N_DTYPES; t++) {
        most = n_of[t] > n_of[most] ? (dtype)t : most;
    }
    return most;
}

/* Whether the weights already have the row's type: most products have it, or the type
 * that replaces it where rows do not fit. */
static bool is_already(const model_file *f, const arch_names *names, const char *root, const model_desc *d,
                       const quantise_row *row) {
    const dtype type = product_type(f, names, root);
    str method = {0};
    (void)model_file_str(f, QUANT_CONFIG ".quant_method", &method);
    return type == row->to ||
           (d->weight_bytes_of[row->to] > 0 && row->instead != DTYPE_F32 && type == row->instead) ||
           (quant_is(f) && str_is(method, row->name)) ||
           (row->to == DTYPE_I8 && d->is_packed && d->packed_compute == COMPUTE_INT8 && is_float(type));
}

quire_err quantise_describe(const model_file *f, const arch_names *names, const char *root, model_desc *d,
                            quire_error *err) {
    const char *asked = model_file_quantise(f);
    char kind[128];
    if (asked[0] == 0) {
        return QUIRE_OK;
    }
    if (strncmp(asked, PUBLISHED, strlen(PUBLISHED)) == 0) {
        return check_published(f, d, asked + strlen(PUBLISHED), err);
    }
    const quantise_row *row = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        row = strcmp(rows[i].name, asked) == 0 ? &rows[i] : row;
    }
    if (row == NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--quantization %.40s: no such type; it must be one of " TYPE_NAMES, asked);
    }
    if (is_already(f, names, root, d, row)) {
        return QUIRE_OK;
    }
    say_kind(f, d, kind, sizeof kind);
    if (d->is_packed) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--quantization %s: %s is packed; pack the original model again with this flag", asked,
                       model_file_path(f));
    }
    if (quant_is(f) || !is_float(d->weight_type)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--quantization %s: %s is %s, and Quire does not quantise twice; use the 16-bit model "
                       "that it was made from, or leave the flag out",
                       asked, model_file_path(f), kind);
    }
    d->quantise_to = row->to;
    return QUIRE_OK;
}

/* ---- one matrix ---- */

typedef struct quantise_job {
    const tensor_view *w;
    dtype type;
    uint8_t *blocks;
    float *scales;  /* F8_E4M3: [n_out] */
    float *scratch; /* [workers][n_in] */
    _Atomic int64_t first_bad;
} quantise_job;

#define TASK_ROWS 16

static size_t quantise_row_bytes(dtype type, int64_t n) {
    return (size_t)(n / dtype_block_elements(type)) * (size_t)dtype_block_bytes(type);
}

/* Whether every element is finite and small enough for scales. */
static bool is_usable(const float *x, int64_t n) {
    bool usable = true;
    for (int64_t i = 0; i < n; i++) {
        usable = usable && fabsf(x[i]) <= QUANTISE_LARGEST;
    }
    return usable;
}

static void note_bad(quantise_job *job, int64_t row) {
    int64_t first = atomic_load(&job->first_bad);
    while (row < first && !atomic_compare_exchange_weak(&job->first_bad, &first, row)) {
    }
}

/* Writes codes with one scale, which maps the largest magnitude to E4M3's largest.
 * Returns the scale: 1 for a row that is 0 or too small for one. */
static float quantise_e4m3(const float *x, int64_t n, uint8_t *codes) {
    float largest = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    }
    const float quotient = largest / 448.0f, scale = quotient > 0.0f ? quotient : 1.0f;
    for (int64_t i = 0; i < n; i++) {
        codes[i] = f32_to_e4m3(x[i] / scale);
    }
    return scale;
}

static void quantise_load_rows(void *context, int32_t task, int32_t worker) {
    quantise_job *job = context;
    const tensor_view *w = job->w;
    const int64_t n = w->dims[1], end = (int64_t)(task + 1) * TASK_ROWS;
    float *x = job->scratch + (int64_t)worker * n;
    for (int64_t r = (int64_t)task * TASK_ROWS; r < end && r < w->dims[0]; r++) {
        /* cannot fail for floats */
        (void)quant_dequantise(w->type, (const uint8_t *)w->data + (size_t)r * quantise_row_bytes(w->type, n),
                               (size_t)n, x);
        uint8_t *to = job->blocks + (size_t)r * quantise_row_bytes(job->type, n);
        if (!is_usable(x, n)) {
            note_bad(job, r);
        } else if (job->type == DTYPE_F8_E4M3) {
            job->scales[r] = quantise_e4m3(x, n, to);
        } else {
            (void)quant_quantise(job->type, x, (size_t)n, to); /* cannot fail: whole blocks */
        }
    }
}

/* Runs the job on the backend's threads. */
static quire_err quantise_run_job(loader *l, quantise_job *job) {
    const tensor_view *w = job->w;
    const int32_t n_tasks = (int32_t)((w->dims[0] + TASK_ROWS - 1) / TASK_ROWS);
    const bool has_threads = l->b->ops->run_tasks != NULL;
    const size_t n_workers = has_threads ? (size_t)l->b->ops->n_workers(l->b) : 1;
    size_t n;
    job->scratch = size_mul(n_workers, (size_t)w->dims[1], &n) ? mem_new(n, sizeof *job->scratch) : NULL;
    TRY(err_set(l->err, mem_check(job->scratch), -1, "%s: tensor %s: out of memory", model_file_path(l->file),
                w->name));
    job->first_bad = w->dims[0];
    if (has_threads) {
        l->b->ops->run_tasks(l->b, quantise_load_rows, job, n_tasks);
    }
    for (int32_t i = 0; i < n_tasks && !has_threads; i++) {
        quantise_load_rows(job, i, 0);
    }
    mem_free(job->scratch);
    if (job->first_bad < w->dims[0]) {
        return err_set(l->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s: row %lld has an element that is infinite, NaN or over %g: it cannot "
                       "be quantised to %s",
                       model_file_path(l->file), w->name, (long long)job->first_bad, (double)QUANTISE_LARGEST,
                       dtype_flag_name(job->type));
    }
    return QUIRE_OK;
}

/* Views the job's result in memory owned by *out. */
static void show_quantised(const quantise_job *job, size_t n_bytes, tensor_view *w, quantised *out) {
    const int64_t n_out = w->dims[0], n_in = w->dims[1];
    w->stays = false;
    if (job->type != DTYPE_F8_E4M3) {
        w->type = job->type;
        w->data = job->blocks;
        w->n_bytes = n_bytes;
        return;
    }
    out->m = (quant_matrix){.place = CODES_BYTES,
                            .kind = CODE_E4M3,
                            .bits = 8,
                            .codes = job->blocks,
                            .n_rows = n_out,
                            .n_in = n_in,
                            .scales = job->scales,
                            .scale_rows = 1,
                            .n_groups = 1,
                            .group = (int32_t)n_in,
                            .factor = 1.0f,
                            .block = n_out,
                            .step = n_out};
    out->rounding = (row_rounding){.to = ROUND_E4M3, .scale = ROUND_LARGEST};
    w->type = DTYPE_F32;
    w->quant = &out->m;
}

quire_err quantise_matrix(loader *l, matrix_use use, tensor_view *w, quantised *out) {
    assert(l != NULL && w != NULL);
    const dtype type = quantise_type(l->quantise_to, use, w->type, w->dims[1]);
    *out = (quantised){.type = w->type};
    if (type == w->type || w->packing != 0) {
        return QUIRE_OK;
    }
    if (type == DTYPE_I8) { /* the backend rounds, as under --compute int8 */
        out->type = type;
        return QUIRE_OK;
    }
    if (w->dims[0] < 1 || w->dims[0] > INT32_MAX || w->dims[1] > INT32_MAX ||
        quantise_row_bytes(w->type, w->dims[1]) > w->n_bytes / (size_t)w->dims[0]) {
        return err_set(l->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s: its data is shorter than its shape requires", model_file_path(l->file),
                       w->name);
    }
    const size_t n_scales = type == DTYPE_F8_E4M3 ? (size_t)w->dims[0] * sizeof(float) : 0;
    /* fits: less than w has */
    const size_t n_bytes = (size_t)w->dims[0] * quantise_row_bytes(type, w->dims[1]);
    uint8_t *memory = mem_new(n_scales + n_bytes, 1);
    TRY(err_set(l->err, mem_check(memory), -1, "%s: tensor %s: out of memory", model_file_path(l->file),
                w->name));
    quantise_job job = {.w = w, .type = type, .blocks = memory + n_scales, .scales = (float *)(void *)memory};
    quire_err e = quantise_run_job(l, &job);
    if (e != QUIRE_OK) {
        mem_free(memory);
        return e;
    }
    out->type = type;
    out->memory = memory;
    show_quantised(&job, n_bytes, w, out);
    return QUIRE_OK;
}

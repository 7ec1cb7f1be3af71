/* Residual streams: coefficients of hyper-connections, and weighted reads and writes of
 * streams. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"
#include "core/math_plain.h"

#define LEAST_GATE 1e-6f

/* ---- coefficients ---- */

typedef struct hyper_job {
    const cpu_backend *b;
    const hyper_use *use;
} hyper_job;

/* Divides n elements, `stride` apart, by their sum + eps. */
static void hyper_divide(float *x, int32_t n, int32_t stride, float eps) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i++) {
        sum += x[i * stride];
    }
    for (int32_t i = 0; i < n; i++) {
        x[i * stride] /= sum + eps;
    }
}

/* Normalises every row, or every column, of a matrix [n, n]. */
static void hyper_divide_all(float *mix, int32_t n, bool columns, float eps) {
    for (int32_t i = 0; i < n; i++) {
        hyper_divide(mix + (columns ? i : i * n), n, columns ? n : 1, eps);
    }
}

/* A softmax of n elements, + eps. */
static void hyper_softmax(float *x, int32_t n, float eps) {
    float most = x[0], sum = 0.0f;
    for (int32_t i = 1; i < n; i++) {
        most = plain_max(most, x[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        x[i] = plain_exp(x[i] - most);
        sum += x[i];
    }
    for (int32_t i = 0; i < n; i++) {
        x[i] = x[i] / sum + eps;
    }
}

static void hyper_row(void *context, int32_t row, int32_t worker) {
    const hyper_job *job = context;
    const hyper_use *use = job->use;
    const int32_t n = use->n;
    float *x = cpu_act_row(job->b, use->x, row), *mix = x + 2 * n;
    (void)worker;
    for (int32_t i = 0; i < n * (n + 2); i++) {
        x[i] = x[i] * use->scale[i < 2 * n ? i / n : 2] + use->base[i];
    }
    for (int32_t s = 0; s < n; s++) {
        x[s] = plain_sigmoid(x[s]) + use->eps;
        x[n + s] = 2.0f * plain_sigmoid(x[n + s]);
        hyper_softmax(mix + s * n, n, use->eps);
    }
    hyper_divide_all(mix, n, true, use->eps);
    for (int32_t i = 1; i < use->n_rounds; i++) {
        hyper_divide_all(mix, n, false, use->eps);
        hyper_divide_all(mix, n, true, use->eps);
    }
}

void cpu_hyper_weights(backend *base, const hyper_use *use) {
    const cpu_backend *b = (const cpu_backend *)base;
    assert(use->n >= 1 && use->n <= DESC_MAX_STREAMS && !b->buffers[use->x.id].is_quantised);
    assert(b->buffers[use->x.id].width == use->n * (use->n + 2));
    cpu_run_rows(b, hyper_row, &(hyper_job){b, use}, b->batch->n_rows);
}

/* ---- reading and writing ---- */

typedef struct read_job {
    const cpu_backend *b;
    const streams_read_use *use;
} read_job;

static void streams_read_row(void *context, int32_t row, int32_t worker) {
    const read_job *job = context;
    const cpu_backend *b = job->b;
    const streams_read_use *use = job->use;
    const int32_t width = b->buffers[use->out.id].width;
    const bool is_mean = use->weights.id == BUFFER_NONE.id;
    const float *streams = cpu_act_row(b, use->streams, row),
                *weights = is_mean ? NULL : cpu_act_row(b, use->weights, row) + use->column;
    float *out = cpu_act_row(b, use->out, row);
    (void)worker;
    memset(out, 0, sizeof *out * (size_t)width);
    for (int32_t s = 0; s < use->n; s++) {
        b->math->add_scaled(is_mean ? 1.0f : weights[s], streams + (int64_t)s * width, width, out);
    }
    if (is_mean) {
        b->math->scale_cap(1.0f / (float)use->n, 0.0f, width, out);
    }
}

void cpu_streams_read(backend *base, const streams_read_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    assert(!b->buffers[use->streams.id].is_quantised && use->out.id != use->streams.id);
    assert(b->buffers[use->streams.id].width == use->n * b->buffers[use->out.id].width);
    assert(use->weights.id == BUFFER_NONE.id || use->column + use->n <= b->buffers[use->weights.id].width);
    b->buffers[use->out.id].is_quantised = false;
    cpu_run_rows(b, streams_read_row, &(read_job){b, use}, b->batch->n_rows);
}

typedef struct write_job {
    const cpu_backend *b;
    const streams_write_use *use;
} write_job;

enum { WRITE_COLUMNS = 64 }; /* columns of all streams processed at a time, so that they stay in L1 */

/* Writes columns first..first + n of all streams. */
static void write_columns(const write_job *job, int32_t row, int32_t first, int32_t n, const float *gains) {
    const streams_write_use *use = job->use;
    const math_kernels *math = job->b->math;
    const int32_t width = job->b->buffers[use->y.id].width;
    const float *y = cpu_act_row(job->b, use->y, row) + first,
                *mix = use->is_mixed ? cpu_act_row(job->b, use->weights, row) + use->mix : NULL;
    float *streams = cpu_act_row(job->b, use->streams, row) + first, was[DESC_MAX_STREAMS * WRITE_COLUMNS];
    for (int32_t s = 0; use->is_mixed && s < use->n; s++) {
        memcpy(was + s * WRITE_COLUMNS, streams + (int64_t)s * width, sizeof *was * (size_t)n);
    }
    for (int32_t t = 0; t < use->n; t++) {
        float *to = streams + (int64_t)t * width;
        if (use->is_mixed) {
            memset(to, 0, sizeof *to * (size_t)n);
        }
        for (int32_t s = 0; use->is_mixed && s < use->n; s++) {
            math->add_scaled(mix[s * use->n + t], was + s * WRITE_COLUMNS, n, to);
        }
        math->add_scaled(gains[t], y, n, to);
    }
}

static void streams_write_row(void *context, int32_t row, int32_t worker) {
    const write_job *job = context;
    const streams_write_use *use = job->use;
    const int32_t width = job->b->buffers[use->y.id].width;
    const float *weights = cpu_act_row(job->b, use->weights, row) + use->column;
    float gains[DESC_MAX_STREAMS];
    (void)worker;
    job->b->math->activate(use->f, weights, use->n, gains);
    for (int32_t t = 0; t < use->n; t++) {
        gains[t] *= use->gain;
    }
    for (int32_t first = 0; first < width; first += WRITE_COLUMNS) {
        write_columns(job, row, first, width - first < WRITE_COLUMNS ? width - first : WRITE_COLUMNS, gains);
    }
}

void cpu_streams_write(backend *base, const streams_write_use *use) {
    const cpu_backend *b = (const cpu_backend *)base;
    assert(use->n >= 1 && use->n <= DESC_MAX_STREAMS && !activation_has_limit(use->f));
    assert(!b->buffers[use->streams.id].is_quantised && !b->buffers[use->y.id].is_quantised);
    assert(b->buffers[use->streams.id].width == use->n * b->buffers[use->y.id].width);
    assert(use->column + use->n <= b->buffers[use->weights.id].width);
    assert(!use->is_mixed || use->mix + use->n * use->n <= b->buffers[use->weights.id].width);
    cpu_run_rows(b, streams_write_row, &(write_job){b, use}, b->batch->n_rows);
}

/* ---- gates ---- */

typedef struct gates_job {
    const cpu_backend *b;
    const stream_gates_use *use;
} gates_job;

static void stream_gates_row(void *context, int32_t row, int32_t worker) {
    const gates_job *job = context;
    const stream_gates_use *use = job->use;
    const int32_t width = job->b->buffers[use->a.id].width / use->n;
    const float *x = cpu_act_row(job->b, use->a, row), *y = cpu_act_row(job->b, use->b, row);
    float *out = cpu_act_row(job->b, use->out, row);
    (void)worker;
    for (int32_t s = 0; s < use->n; s++, x += width, y += width) {
        float sum = 0.0f;
        for (int32_t d = 0; d < width; d++) {
            sum = fmaf(x[d], y[d], sum);
        }
        const float g = sum * use->scale, root = sqrtf(plain_max(fabsf(g), LEAST_GATE));
        out[s] = plain_sigmoid(g > 0.0f ? root : g < 0.0f ? -root : 0.0f * g);
    }
}

void cpu_stream_gates(backend *base, const stream_gates_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    assert(!b->buffers[use->a.id].is_quantised && !b->buffers[use->b.id].is_quantised);
    assert(b->buffers[use->a.id].width == b->buffers[use->b.id].width &&
           b->buffers[use->out.id].width == use->n && b->buffers[use->a.id].width % use->n == 0);
    b->buffers[use->out.id].is_quantised = false;
    cpu_run_rows(b, stream_gates_row, &(gates_job){b, use}, b->batch->n_rows);
}

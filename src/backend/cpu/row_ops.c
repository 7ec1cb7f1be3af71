/* Ops on one row at a time without weights (except a norm's): norms in place or onto a
 * residual, elementwise products, scaling. */
#include <string.h>

#include "backend/cpu/adapter.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"

/* Marks the buffer as holding f32 rows. */
static void will_write(cpu_backend *b, buffer a) {
    b->buffers[a.id].is_quantised = false;
}

typedef struct norm_job {
    const cpu_backend *b;
    const norm *nm;
    float scale;
    buffer from, to;
} norm_job;

static void norm_add_row(void *context, int32_t row, int32_t worker) {
    const norm_job *job = context;
    const cpu_backend *b = job->b;
    int32_t width = b->buffers[job->from.id].width;
    const float *y = cpu_act_row(b, job->from, row);
    if (job->nm != NULL) {
        float *normed = cpu_scratch_row(b, worker);
        cpu_norm_row(b, adapter_norm_of(b, job->nm, row), y, width, normed);
        y = normed;
    }
    b->math->add_scaled(job->scale, y, width, cpu_act_row(b, job->to, row));
}

void cpu_norm_add(backend *base, buffer y, const norm *nm, float scale, buffer x) {
    cpu_backend *b = (cpu_backend *)base;
    assert(y.id != x.id && b->buffers[y.id].width == b->buffers[x.id].width);
    cpu_run_rows(b, norm_add_row, &(norm_job){b, nm, scale, y, x}, b->batch->n_rows);
}

static void norm_one_row(void *context, int32_t row, int32_t worker) {
    const norm_job *job = context;
    (void)worker;
    cpu_norm_row(job->b, adapter_norm_of(job->b, job->nm, row), cpu_act_row(job->b, job->from, row),
                 job->b->buffers[job->from.id].width, cpu_act_row(job->b, job->to, row));
}

void cpu_norm_rows(backend *base, buffer x, const norm *nm, buffer out) {
    cpu_backend *b = (cpu_backend *)base;
    assert(b->buffers[x.id].width == b->buffers[out.id].width && !b->buffers[x.id].is_quantised);
    will_write(b, out);
    cpu_run_rows(b, norm_one_row, &(norm_job){.b = b, .nm = nm, .from = x, .to = out}, b->batch->n_rows);
}

typedef struct multiply_job {
    const cpu_backend *b;
    const multiply_use *use;
} multiply_job;

static void multiply_row(void *context, int32_t row, int32_t worker) {
    const multiply_job *job = context;
    const cpu_backend *b = job->b;
    const multiply_use *use = job->use;
    int32_t width = b->buffers[use->out.id].width;
    int32_t n_gates = use->n_gates > 0 ? use->n_gates : b->buffers[use->gate.id].width;
    const float *gate = cpu_act_row(b, use->gate, row) + use->gate_column,
                *x = cpu_act_row(b, use->x, row) + use->column;
    float *out = cpu_act_row(b, use->out, row);
    (void)worker;
    if (n_gates == width) {
        b->math->gate_up(use->f, 0.0f, gate, x, width, out);
        return;
    }
    int32_t stretch = width / n_gates;
    if (out != x && !use->adds) {
        memcpy(out, x, sizeof *out * (size_t)width);
    }
    for (int32_t i = 0; i < n_gates; i++) {
        float factor;
        size_t at = (size_t)i * (size_t)stretch;
        b->math->activate(use->f, gate + i, 1, &factor);
        if (use->adds) {
            b->math->add_scaled(factor, x + at, stretch, out + at);
        } else {
            b->math->scale_cap(factor, 0.0f, stretch, out + at);
        }
    }
}

void cpu_multiply(backend *base, const multiply_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    const cpu_buffer *gate = &b->buffers[use->gate.id], *x = &b->buffers[use->x.id],
                     *out = &b->buffers[use->out.id];
    const int32_t n_gates = use->n_gates > 0 ? use->n_gates : gate->width;
    assert(!activation_has_limit(use->f) && out->width % n_gates == 0);
    assert(use->gate_column >= 0 && n_gates <= gate->width - use->gate_column);
    assert(!use->adds || (n_gates < out->width && !out->is_quantised));
    assert(use->column >= 0 && out->width <= x->width - use->column);
    assert(!gate->is_quantised && !x->is_quantised);
    will_write(b, use->out);
    cpu_run_rows(b, multiply_row, &(multiply_job){b, use}, b->batch->n_rows);
}

typedef struct place_job {
    const cpu_backend *b;
    buffer from, to;
    int32_t column;
} place_job;

static void place_row(void *context, int32_t row, int32_t worker) {
    const place_job *job = context;
    const cpu_backend *b = job->b;
    (void)worker;
    memcpy(cpu_act_row(b, job->to, row) + job->column, cpu_act_row(b, job->from, row),
           sizeof(float) * (size_t)b->buffers[job->from.id].width);
}

void cpu_place(backend *base, buffer x, int32_t column, buffer out) {
    cpu_backend *b = (cpu_backend *)base;
    assert(x.id != out.id && column >= 0 && !b->buffers[x.id].is_quantised);
    assert(b->buffers[x.id].width <= b->buffers[out.id].width - column);
    will_write(b, out);
    cpu_run_rows(b, place_row, &(place_job){b, x, out, column}, b->batch->n_rows);
}

typedef struct scale_job {
    const cpu_backend *b;
    float scale;
    buffer x;
} scale_job;

static void row_ops_scale_row(void *context, int32_t row, int32_t worker) {
    const scale_job *job = context;
    (void)worker;
    job->b->math->scale_cap(job->scale, 0.0f, job->b->buffers[job->x.id].width,
                            cpu_act_row(job->b, job->x, row));
}

void cpu_scale_rows(backend *base, float scale, buffer x) {
    const cpu_backend *b = (const cpu_backend *)base;
    cpu_run_rows(b, row_ops_scale_row, &(scale_job){b, scale, x}, b->batch->n_rows);
}

/* Short causal convolutions. A unit's state is its last inputs, [K - 1][CONV_UNIT],
 * oldest first. A task processes some units over the rows of all sequences. It copies a
 * few rows at a time after the state, so that the output may overwrite the input. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/states.h"
#include "base/mem.h"
#include "core/quant.h"

struct conv_taps {
    int32_t n_channels, n_taps;
    float *taps; /* [units][n_taps][CONV_UNIT], 0 past the last channel */
    float *bias; /* [units][CONV_UNIT], 0 without a bias */
};

/* Converts the elements of a float tensor to f32. Free *out with mem_free. */
static quire_err conv_floats(const tensor_view *t, size_t n, float **out, quire_error *err) {
    *out = NULL;
    if (dtype_is_quantised(t->type) || t->quant != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: a convolution cannot be of type %s", t->name,
                       dtype_name(t->type));
    }
    if (t->n_bytes / (size_t)dtype_block_bytes(t->type) < n / (size_t)dtype_block_elements(t->type)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape requires",
                       t->name);
    }
    float *v = mem_new(n, sizeof *v);
    if (v == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", t->name);
    }
    quire_err e = quant_dequantise(t->type, t->data, n, v);
    if (e != QUIRE_OK) {
        mem_free(v);
        return err_set(err, e, -1, "tensor %s: a convolution cannot be of type %s", t->name,
                       dtype_name(t->type));
    }
    *out = v;
    return QUIRE_OK;
}

static quire_err conv_shape(const tensor_view *weight, const tensor_view *bias, conv_taps *w,
                            quire_error *err) {
    const int64_t channels = weight->dims[0], taps = weight->dims[weight->n_dims == 3 ? 2 : 1];
    const bool is_shape = weight->n_dims == 2 || (weight->n_dims == 3 && weight->dims[1] == 1);
    if (!is_shape || channels < 1 || channels > INT32_MAX - CONV_UNIT || taps < 2 || taps > CONV_MAX_TAPS) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tensor %s: the taps of a convolution must be [channels, taps] or [channels, 1, "
                       "taps] with 2 to %d taps",
                       weight->name, CONV_MAX_TAPS);
    }
    if (bias != NULL && (bias->n_dims != 1 || bias->dims[0] != channels)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: the convolution it belongs to has %lld channels",
                       bias->name, (long long)channels);
    }
    w->n_channels = (int32_t)channels;
    w->n_taps = (int32_t)taps;
    return QUIRE_OK;
}

static void conv_fill(conv_taps *w, const float *taps, const float *bias) {
    for (int32_t c = 0; c < w->n_channels; c++) {
        float *unit = w->taps + (int64_t)(c / CONV_UNIT) * w->n_taps * CONV_UNIT + c % CONV_UNIT;
        for (int32_t j = 0; j < w->n_taps; j++) {
            unit[(int64_t)j * CONV_UNIT] = taps[(int64_t)c * w->n_taps + j];
        }
        w->bias[c] = bias != NULL ? bias[c] : 0.0f;
    }
}

quire_err cpu_conv_load(backend *base, const tensor_view *weight, const tensor_view *bias, conv_taps **out,
                        quire_error *err) {
    cpu_backend *b = (cpu_backend *)base;
    conv_taps shape = {.n_channels = 0};
    TRY(conv_shape(weight, bias, &shape, err));
    const size_t n = (size_t)shape.n_channels, units = (size_t)conv_units(shape.n_channels);
    conv_taps *w = cpu_own(b, 1, sizeof *w);
    shape.taps = cpu_own(b, units * CONV_UNIT, (size_t)shape.n_taps * sizeof *shape.taps);
    shape.bias = cpu_own(b, units * CONV_UNIT, sizeof *shape.bias);
    if (w == NULL || shape.taps == NULL || shape.bias == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", weight->name);
    }
    float *taps = NULL, *biases = NULL;
    quire_err e = conv_floats(weight, n * (size_t)shape.n_taps, &taps, err);
    if (e == QUIRE_OK && bias != NULL) {
        e = conv_floats(bias, n, &biases, err);
    }
    if (e == QUIRE_OK) {
        *w = shape;
        conv_fill(w, taps, biases);
        b->weight_bytes += (int64_t)(units * CONV_UNIT * (size_t)(shape.n_taps + 1) * sizeof *taps);
        *out = w;
    }
    mem_free(taps);
    mem_free(biases);
    return e;
}

typedef struct conv_job {
    const cpu_backend *b;
    const conv_use *use;
    int32_t n_units, task_units;
} conv_job;

/* Rounds the inputs if states are rounded, since they become the state. */
static void conv_take_input(const cpu_backend *b, int32_t cache, const float *x, int32_t n, float *to) {
    uint16_t rounded[CONV_UNIT];
    if (cpu_state_rounds(b, cache)) {
        b->math->narrow(DTYPE_BF16, x, n, rounded);
        b->math->widen(rounded, n, to);
    } else {
        memcpy(to, x, (size_t)n * sizeof *x);
    }
}

/* Processes one unit over a sequence's rows. */
static void conv_sequence(const conv_job *job, const batch_seq *s, int32_t unit) {
    const cpu_backend *b = job->b;
    const conv_use *use = job->use;
    const conv_taps *w = use->w;
    const int32_t kept = w->n_taps - 1, first = unit * CONV_UNIT, left = w->n_channels - first,
                  n_channels = left < CONV_UNIT ? left : CONV_UNIT;
    const state_part part = {use->cache, use->unit + unit, 0, (int64_t)kept * CONV_UNIT};
    const size_t state_bytes = (size_t)kept * CONV_UNIT * sizeof(float);
    float window[(CONV_MAX_TAPS - 1 + STATE_ROWS) * CONV_UNIT], *state;
    const int32_t x_width = b->buffers[use->x.id].width, out_width = b->buffers[use->out.id].width;
    if (n_channels < CONV_UNIT) {
        memset(window, 0, sizeof window);
    }
    state = cpu_state_begin(b, part, s, window);
    if (state != window) {
        memcpy(window, state, state_bytes);
    }
    for (int32_t row = 0, n, snapshot = 0; row < s->n_rows; row += n) {
        n = cpu_state_stretch(s, row, STATE_ROWS, &snapshot);
        const float *x = cpu_act_row(b, use->x, s->row0 + row) + first;
        float *out = cpu_act_row(b, use->out, s->row0 + row) + first;
        for (int32_t r = 0; r < n; r++) {
            conv_take_input(b, use->cache, x + (int64_t)r * x_width, n_channels,
                            window + (kept + r) * CONV_UNIT);
        }
        b->math->state_conv(&(conv_rows){.n_rows = n,
                                         .n_taps = w->n_taps,
                                         .n_channels = n_channels,
                                         .taps = w->taps + (int64_t)unit * w->n_taps * CONV_UNIT,
                                         .bias = w->bias + first,
                                         .window = window,
                                         .out_stride = out_width,
                                         .out = out});
        for (int32_t r = 0; use->f != ACT_NONE && r < n; r++, out += out_width) {
            b->math->activate(use->f, out, n_channels, out);
        }
        memmove(window, window + n * CONV_UNIT, state_bytes);
        cpu_state_copy(b, part, s, snapshot, row + n - 1, window);
    }
    cpu_state_end(b, part, s, window);
}

static void conv_task(void *context, int32_t task, int32_t worker) {
    const conv_job *job = context;
    const int32_t first = task * job->task_units, left = job->n_units - first,
                  n = left < job->task_units ? left : job->task_units;
    (void)worker;
    for (int32_t i = 0; i < job->b->batch->n_seqs; i++) {
        for (int32_t unit = first; unit < first + n; unit++) {
            conv_sequence(job, &job->b->batch->seqs[i], unit);
        }
    }
}

void cpu_conv(backend *base, const conv_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    conv_job job = {.b = b, .use = use, .n_units = conv_units(use->w->n_channels)};
    assert(!activation_has_limit(use->f) && !b->buffers[use->x.id].is_quantised);
    assert(b->buffers[use->x.id].width == use->w->n_channels);
    assert(b->buffers[use->out.id].width == use->w->n_channels);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    assert(use->unit + job.n_units <= b->layout.caches[use->cache].state.n_units);
    b->buffers[use->out.id].is_quantised = false;
    job.task_units = cpu_state_share(b, job.n_units, (int64_t)b->batch->n_rows * CONV_UNIT);
    cpu_state_run(b, conv_task, &job, (job.n_units + job.task_units - 1) / job.task_units);
}

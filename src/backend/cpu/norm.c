/* Norms: f32 weights, one row at a time. */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "core/quant.h"

struct norm {
    int32_t id; /* index among the backend's objects */
    norm_kind kind;
    bool replaces;
    float eps, cutoff;
    int32_t width;     /* elements of a group */
    int32_t n_weights; /* a multiple of width: consecutive groups use consecutive weights, cyclically */
    float *weight;     /* [n_weights] */
    float *bias;       /* [n_weights], or NULL */
    float *ones;       /* [width] for NORM_RMS_WEIGHED, else NULL */
};

/* Number of weights in t: width, or width for each of several groups. 0: another
 * shape. */
static int32_t count_weights(const tensor_view *t, int32_t width) {
    int64_t last = t->dims[t->n_dims == 2 ? 1 : 0], rows = t->n_dims == 2 ? t->dims[0] : 1;
    bool is_shape = (t->n_dims == 1 && last % width == 0) || (t->n_dims == 2 && last == width);
    return is_shape && last >= 1 && rows >= 1 && rows <= INT32_MAX / last ? (int32_t)(rows * last) : 0;
}

/* Converts the elements of a float tensor to f32, owned by the backend. */
static quire_err norm_load_weights(cpu_backend *b, const tensor_view *t, int32_t n, float **out,
                                   quire_error *err) {
    if (t->n_bytes / (size_t)dtype_block_bytes(t->type) < (size_t)n / (size_t)dtype_block_elements(t->type)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape requires",
                       t->name);
    }
    float *v = cpu_own(b, (size_t)n, sizeof *v);
    if (v == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", t->name);
    }
    if (dtype_is_quantised(t->type) || quant_dequantise(t->type, t->data, (size_t)n, v) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: a norm cannot be of type %s", t->name,
                       dtype_name(t->type));
    }
    b->weight_bytes += (int64_t)n * (int64_t)sizeof *v;
    *out = v;
    return QUIRE_OK;
}

/* Checks the spec; *n: number of its weights. */
static quire_err check_spec(const norm_spec *spec, int32_t *n, quire_error *err) {
    if (spec->width < 1) {
        return err_set(err, QUIRE_INVALID, -1, "a norm over %d elements", spec->width);
    }
    const tensor_view *first = spec->weight != NULL ? spec->weight : spec->bias;
    *n = first != NULL ? count_weights(first, spec->width) : spec->width;
    const tensor_view *bad = *n == 0 ? first : NULL;
    if (bad == NULL && spec->bias != NULL && count_weights(spec->bias, spec->width) != *n) {
        bad = spec->bias;
    }
    if (bad != NULL) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "tensor %s: a norm's weight and bias must be vectors of %d elements, or both of as "
                       "many for each head",
                       bad->name, spec->width);
    }
    if (spec->kind != NORM_LAYER && spec->bias != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: a norm of this kind with a bias is not supported", spec->bias->name);
    }
    return QUIRE_OK;
}

/* Loads ones for a norm without weights; multiplying by them changes no bit. */
static quire_err load_ones(cpu_backend *b, int32_t n, float **out, quire_error *err) {
    *out = cpu_own(b, (size_t)n, sizeof **out);
    if (*out == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a norm over %d elements: out of memory", n);
    }
    for (int32_t i = 0; i < n; i++) {
        (*out)[i] = 1.0f;
    }
    b->weight_bytes += (int64_t)n * (int64_t)sizeof **out;
    return QUIRE_OK;
}

quire_err cpu_norm_load(backend *b, const norm_spec *spec, norm **out, quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    int32_t n = 0; /* for compilers that don't see that a failed check returns */
    TRY(check_spec(spec, &n, err));
    norm *nm = cpu_own(c, 1, sizeof *nm);
    if (nm == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a norm over %d elements: out of memory", spec->width);
    }
    *nm = (norm){.id = c->n_objects++,
                 .kind = spec->kind,
                 .replaces = spec->replaces,
                 .eps = spec->eps,
                 .cutoff = spec->cutoff,
                 .width = spec->width,
                 .n_weights = n};
    TRY(spec->weight != NULL ? norm_load_weights(c, spec->weight, n, &nm->weight, err)
                             : load_ones(c, n, &nm->weight, err));
    if (spec->bias != NULL) {
        TRY(norm_load_weights(c, spec->bias, n, &nm->bias, err));
    }
    for (int32_t i = 0; spec->add_one && spec->weight != NULL && i < n; i++) {
        nm->weight[i] = 1.0f + nm->weight[i];
    }
    if (spec->kind == NORM_RMS_WEIGHED) {
        TRY(load_ones(c, spec->width, &nm->ones, err));
    }
    *out = nm;
    return QUIRE_OK;
}

bool cpu_norm_replaces(const norm *nm) {
    return nm->replaces;
}

int32_t cpu_norm_id(const norm *nm) {
    return nm->id;
}

bool cpu_norm_is_alike(const norm *a, const norm *b) {
    return a->kind == b->kind && a->replaces == b->replaces && a->width == b->width &&
           a->n_weights == b->n_weights;
}

#define NORM_LANES 16

/* The sum of f(x) over n elements: 16 partial sums, each over every 16th element, added
 * in order. */
static double norm_sum(const float *x, double mean, bool squares, int32_t n) {
    double lanes[NORM_LANES] = {0}, sum = 0.0;
    for (int32_t i = 0; i < n; i += NORM_LANES) {
        int32_t end = n - i < NORM_LANES ? n - i : NORM_LANES;
        for (int32_t k = 0; k < end; k++) {
            double d = (double)x[i + k] - mean;
            lanes[k] += squares ? d * d : d;
        }
    }
    for (int32_t k = 0; k < NORM_LANES; k++) {
        sum += lanes[k];
    }
    return sum;
}

/* Keeps the part of x that exceeds its mean by more than `cutoff` standard deviations. */
static void norm_above(const float *x, float cutoff, int32_t n, float *out) {
    double mean = norm_sum(x, 0.0, false, n) / n, deviation = sqrt(norm_sum(x, mean, true, n) / n);
    float least = (float)(mean + (double)cutoff * deviation);
    for (int32_t i = 0; i < n; i++) {
        float above = x[i] - least;
        out[i] = above < 0.0f ? 0.0f : above; /* keeps NaN */
    }
}

/* Norms one group with the weight and bias of its elements. */
static void norm_stretch(const cpu_backend *b, const norm *nm, const float *x, int32_t w, float *out) {
    const float *weight = nm->weight + w, *bias = nm->bias != NULL ? nm->bias + w : NULL;
    switch (nm->kind) {
    case NORM_RMS:
        b->math->norm_rms(x, weight, nm->eps, nm->width, out);
        break;
    case NORM_LAYER:
        b->math->norm_layer(x, weight, bias, nm->eps, nm->width, out);
        break;
    case NORM_RMS_WEIGHED:
        b->math->gate_up(ACT_NONE, 0.0f, x, weight, nm->width, out);
        b->math->norm_rms(out, nm->ones, nm->eps, nm->width, out);
        break;
    case NORM_SCALE:
        b->math->gate_up(ACT_NONE, 0.0f, x, weight, nm->width, out);
        break;
    case NORM_ABOVE:
        norm_above(x, nm->cutoff, nm->width, out);
        break;
    }
}

void cpu_norm_row(const cpu_backend *b, const norm *nm, const float *x, int32_t width, float *out) {
    assert(width % nm->n_weights == 0);
    for (int32_t i = 0, w = 0; i < width; i += nm->width) {
        norm_stretch(b, nm, x + i, w, out + i);
        w = w + nm->width < nm->n_weights ? w + nm->width : 0;
    }
}

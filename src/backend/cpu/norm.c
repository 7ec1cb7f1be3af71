/* Norms: weights as f32, one row at a time. */
#include "backend/cpu/cpu.h"
#include "core/quant.h"

struct norm {
    norm_kind kind;
    bool replaces;
    float eps;
    int32_t width;     /* of the stretch that statistics are taken over */
    int32_t n_weights; /* a multiple of width: stretches take turns over the weights */
    float *weight;     /* [n_weights] */
    float *bias;       /* [n_weights], or NULL */
};

/* The number of weights in t, one a row element: width, or as many for each of several
 * stretches. 0: it has another shape. */
static int32_t count_weights(const tensor_view *t, int32_t width) {
    int64_t last = t->dims[t->n_dims == 2 ? 1 : 0], rows = t->n_dims == 2 ? t->dims[0] : 1;
    bool is_shape = (t->n_dims == 1 && last % width == 0) || (t->n_dims == 2 && last == width);
    return is_shape && last >= 1 && rows >= 1 && rows <= INT32_MAX / last ? (int32_t)(rows * last) : 0;
}

/* The elements of any float type as f32, owned by the backend. */
static quire_err norm_load_weights(cpu_backend *b, const tensor_view *t, int32_t n, float **out,
                                   quire_error *err) {
    if (t->n_bytes / (size_t)dtype_block_bytes(t->type) < (size_t)n / (size_t)dtype_block_elements(t->type)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape says",
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

/* Checks the spec; *n: the number of its weights. */
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
    if (spec->kind == NORM_RMS && spec->bias != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "tensor %s: a root mean square norm with a bias is not supported", spec->bias->name);
    }
    return QUIRE_OK;
}

/* A norm without weight has ones, which change no bit. */
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
    int32_t n = 0; /* some compilers do not see that a failed check returns */
    TRY(check_spec(spec, &n, err));
    norm *nm = cpu_own(c, 1, sizeof *nm);
    if (nm == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "a norm over %d elements: out of memory", spec->width);
    }
    *nm = (norm){.kind = spec->kind,
                 .replaces = spec->replaces,
                 .eps = spec->eps,
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
    *out = nm;
    return QUIRE_OK;
}

bool cpu_norm_replaces(const norm *nm) {
    return nm->replaces;
}

void cpu_norm_row(const cpu_backend *b, const norm *nm, const float *x, int32_t width, float *out) {
    assert(width % nm->n_weights == 0);
    for (int32_t i = 0, w = 0; i < width; i += nm->width) {
        if (nm->kind == NORM_RMS) {
            b->math->norm_rms(x + i, nm->weight + w, nm->eps, nm->width, out + i);
        } else {
            b->math->norm_layer(x + i, nm->weight + w, nm->bias != NULL ? nm->bias + w : NULL, nm->eps,
                                nm->width, out + i);
        }
        w = w + nm->width < nm->n_weights ? w + nm->width : 0;
    }
}

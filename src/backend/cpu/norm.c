/* Norms: weights as f32, one row at a time. */
#include "backend/cpu/cpu.h"
#include "core/quant.h"

struct norm {
    norm_kind kind;
    float eps;
    int32_t width;
    float *weight; /* [width] */
    float *bias;   /* [width], or NULL */
};

/* A vector of any float type as f32, owned by the backend. */
static quire_err load_vector(cpu_backend *b, const tensor_view *t, int32_t width, float **out, quire_error *err) {
    if (t->n_dims != 1 || t->dims[0] != width) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: a norm's weight and bias must be vectors of %d elements", t->name, width);
    }
    if (t->n_bytes / (size_t)dtype_block_bytes(t->type) < (size_t)width / (size_t)dtype_block_elements(t->type)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: its data is shorter than its shape says", t->name);
    }
    float *v = cpu_own(b, (size_t)width, sizeof *v);
    if (v == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", t->name);
    }
    if (dtype_is_quantised(t->type) || quant_dequantise(t->type, t->data, (size_t)width, v) != QUIRE_OK) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "tensor %s: a norm cannot be of type %s", t->name, dtype_name(t->type));
    }
    b->weight_bytes += (int64_t)width * (int64_t)sizeof *v;
    *out = v;
    return QUIRE_OK;
}

quire_err cpu_norm_load(backend *b, norm_kind kind, const tensor_view *weight, const tensor_view *bias, float eps, bool add_one, norm **out,
                        quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    if (weight->dims[0] < 1 || weight->dims[0] > INT32_MAX) {
        return err_set(err, QUIRE_BAD_FILE, -1, "tensor %s: a norm cannot be this wide", weight->name);
    }
    norm *nm = cpu_own(c, 1, sizeof *nm);
    if (nm == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "tensor %s: out of memory", weight->name);
    }
    *nm = (norm){.kind = kind, .eps = eps, .width = (int32_t)weight->dims[0]};
    TRY(load_vector(c, weight, nm->width, &nm->weight, err));
    if (bias != NULL) {
        TRY(load_vector(c, bias, nm->width, &nm->bias, err));
    }
    for (int32_t i = 0; add_one && i < nm->width; i++) {
        nm->weight[i] = 1.0f + nm->weight[i];
    }
    *out = nm;
    return QUIRE_OK;
}

void cpu_norm_row(const cpu_backend *b, const norm *nm, const float *x, int32_t width, float *out) {
    for (int32_t i = 0; i + nm->width <= width; i += nm->width) {
        if (nm->kind == NORM_RMS) {
            b->math->norm_rms(x + i, nm->weight, nm->eps, nm->width, out + i);
        } else {
            b->math->norm_layer(x + i, nm->weight, nm->bias, nm->eps, nm->width, out + i);
        }
    }
}

#include "lab/bench/shape.h"

#include <string.h>

quire_compute speed_type_compute(const speed_type *t) {
    return (quire_compute)((int)t->compute + (int)QUIRE_COMPUTE_F32);
}

const speed_type speed_types[N_SPEED_TYPES] = {
    {"q4_0", DTYPE_Q4_0, COMPUTE_INT8, DTYPE_Q4_0}, {"q8_0", DTYPE_Q8_0, COMPUTE_INT8, DTYPE_Q8_0},
    {"q4_k", DTYPE_Q4_K, COMPUTE_INT8, DTYPE_Q4_K}, {"int8", DTYPE_BF16, COMPUTE_INT8, DTYPE_I8},
    {"bf16", DTYPE_BF16, COMPUTE_BF16, DTYPE_BF16}, {"f32", DTYPE_F32, COMPUTE_F32, DTYPE_F32},
};

const speed_type *speed_type_find(const char *name, size_t n) {
    for (int i = 0; i < N_SPEED_TYPES; i++) {
        if (strlen(speed_types[i].name) == n && memcmp(speed_types[i].name, name, n) == 0) {
            return &speed_types[i];
        }
    }
    return NULL;
}

int64_t shape_layer_weights(const llama_shape *s) {
    int64_t q = (int64_t)s->n_heads * s->d_head, kv = (int64_t)s->n_kv_heads * s->d_head;
    return s->n_layers * s->d_model * (2 * q + 2 * kv + 3 * (int64_t)s->d_ff);
}

int64_t shape_head_weights(const llama_shape *s) {
    return (int64_t)s->d_model * s->n_vocab;
}

double shape_prompt_operations(const llama_shape *s, int32_t n) {
    return 2.0 * ((double)shape_layer_weights(s) * n + (double)shape_head_weights(s));
}

double shape_token_operations(const llama_shape *s) {
    return 2.0 * (double)(shape_layer_weights(s) + shape_head_weights(s));
}

double shape_weight_bytes(const llama_shape *s, const speed_type *t) {
    return (double)(shape_layer_weights(s) + shape_head_weights(s)) * dtype_block_bytes(t->published) /
           dtype_block_elements(t->published);
}

double shape_kv_bytes(const llama_shape *s, dtype kv) {
    return 2.0 * s->n_layers * s->n_kv_heads * s->d_head * dtype_block_bytes(kv);
}

/* Types whose numbers are unsigned and have at most four bits, whatever offset
 * follows. */
static bool shape_is_small(dtype t) {
    return t == DTYPE_Q4_0 || t == DTYPE_Q4_1 || t == DTYPE_Q4_K || t == DTYPE_Q3_K || t == DTYPE_Q2_K;
}

double products_peak(const roofline *r, compute_mode compute, dtype weights, const char **by) {
    if (compute != COMPUTE_INT8) {
        *by = compute == COMPUTE_BF16 ? "bf16" : "f32";
        return compute == COMPUTE_BF16 ? r->bf16.best : r->f32.best;
    }
    *by = shape_is_small(weights) ? "int8 by 4 bits" : "int8";
    return shape_is_small(weights) ? r->int8_small.best : r->int8.best;
}

static speed_limit shape_lower(double bytes_bound, double operations_bound, const char *by) {
    return bytes_bound < operations_bound ? (speed_limit){bytes_bound, "bytes"}
                                          : (speed_limit){operations_bound, by};
}

speed_limit shape_prefill_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t n) {
    const char *by;
    double peak = products_peak(r, t->compute, t->published, &by);
    return shape_lower(n * r->read.best / shape_weight_bytes(s, t), n * peak / shape_prompt_operations(s, n),
                       by);
}

speed_limit shape_decode_limit(const llama_shape *s, const speed_type *t, const roofline *r, int32_t batch,
                               double context, dtype kv) {
    const char *by;
    double peak = products_peak(r, t->compute, t->published, &by);
    return shape_lower(batch * r->read.best /
                           (shape_weight_bytes(s, t) + batch * context * shape_kv_bytes(s, kv)),
                       peak / shape_token_operations(s), by);
}

double shape_pace_at(const shape_pace *p, double intensity) {
    int32_t last = p->n - 1;
    if (intensity >= p->intensity[last]) {
        return p->us_per_byte[last] * intensity / p->intensity[last];
    }
    for (int32_t i = last; i > 0; i--) {
        if (intensity >= p->intensity[i - 1]) {
            double part = (intensity - p->intensity[i - 1]) / (p->intensity[i] - p->intensity[i - 1]);
            return p->us_per_byte[i - 1] + part * (p->us_per_byte[i] - p->us_per_byte[i - 1]);
        }
    }
    return p->us_per_byte[0];
}

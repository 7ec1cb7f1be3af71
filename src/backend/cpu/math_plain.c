/* Plain C twins of the elementwise kernels, norms and rotation: the reference of
 * math_kernels.inc.h. */
#include "core/math_plain.h"
#include "backend/cpu/math.h"
#include "core/half.h"

#define LANES 16

static void exp_plain(const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = plain_exp(x[i]);
    }
}

static void tanh_plain(const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = plain_tanh(x[i]);
    }
}

static float activate(activation f, float x) {
    switch (f) {
    case ACT_SILU:
        return plain_silu(x);
    case ACT_GELU:
        return plain_gelu(x);
    case ACT_GELU_TANH:
        return plain_gelu_tanh(x);
    case ACT_RELU:
        return plain_relu(x);
    case ACT_RELU2:
        return plain_relu(x) * plain_relu(x);
    case ACT_GELU_QUICK:
        return plain_gelu_quick(x);
    case ACT_SIGMOID:
        return plain_sigmoid(x);
    case ACT_TANH:
        return plain_tanh(x);
    case ACT_SOFTPLUS:
        return plain_softplus(x);
    case ACT_NONE:
    case ACT_SWIGLU_CLAMPED: /* has two arguments: see gate_up_plain */
    case ACT_SILU_CLAMPED:
    case ACT_CLAMPED_SILU:
    case ACT_XIELU: /* see xielu_plain */
        break;
    }
    return x;
}

static void activate_plain(activation f, const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = activate(f, x[i]);
    }
}

static void gate_up_plain(activation f, float limit, const float *gate, const float *up, int32_t n,
                          float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = f == ACT_SWIGLU_CLAMPED ? plain_swiglu_clamped(limit, gate[i], up[i])
                 : f == ACT_SILU_CLAMPED ? plain_silu_clamped(limit, gate[i], up[i])
                 : f == ACT_CLAMPED_SILU ? plain_clamped_silu(limit, gate[i], up[i])
                                         : activate(f, gate[i]) * up[i];
    }
}

static void xielu_plain(const xielu_desc *d, const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = plain_xielu(d->positive, d->negative, d->linear, d->eps, x[i]);
    }
}

static void scale_cap_plain(float scale, float cap, int32_t n, float *x) {
    for (int32_t i = 0; i < n; i++) {
        float y = scale * x[i];
        x[i] = cap > 0.0f ? cap * plain_tanh(y / cap) : y;
    }
}

static float largest_plain(const float *x, int32_t n) {
    float largest = x[0];
    bool is_finite = true;
    for (int32_t i = 0; i < n; i++) {
        is_finite = is_finite && isfinite(x[i]);
        largest = x[i] > largest ? x[i] : largest;
    }
    return is_finite ? largest + 0.0f : NAN;
}

static void add_scaled_plain(float scale, const float *y, int32_t n, float *x) {
    for (int32_t i = 0; i < n; i++) {
        x[i] = fmaf(scale, y[i], x[i]);
    }
}

static void add_to_rows_plain(const float *y, int32_t n, int32_t n_rows, float *x, int32_t stride) {
    for (int32_t r = 0; r < n_rows; r++, x += stride) {
        for (int32_t i = 0; i < n; i++) {
            x[i] += y[i];
        }
    }
}

static void stream_rows_plain(const float *y, int32_t y_stride, int32_t n, int32_t n_rows, float *out,
                              int32_t out_stride) {
    for (int32_t r = 0; r < n_rows; r++) {
        memcpy(out + (int64_t)r * out_stride, y + (int64_t)r * y_stride, (size_t)n * sizeof *out);
    }
}

static void norm_rms_plain(const float *x, const float *weight, float eps, int32_t n, float *out) {
    float lanes[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    }
    float inverse = 1.0f / sqrtf(plain_tree_sum(lanes) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) {
        out[i] = (x[i] * inverse) * weight[i];
    }
}

static void norm_layer_plain(const float *x, const float *weight, const float *bias, float eps, int32_t n,
                             float *out) {
    float lanes[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        lanes[i % LANES] = lanes[i % LANES] + x[i];
    }
    float mean = plain_tree_sum(lanes) / (float)n;
    float squares[LANES] = {0};
    for (int32_t i = 0; i < n; i++) {
        float d = x[i] - mean;
        squares[i % LANES] = fmaf(d, d, squares[i % LANES]);
    }
    float inverse = 1.0f / sqrtf(plain_tree_sum(squares) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) {
        float y = (x[i] - mean) * inverse;
        out[i] = bias != NULL ? fmaf(y, weight[i], bias[i]) : y * weight[i];
    }
}

static void rotate_plain(rope_pairs pairs, const float *cosines, const float *sines, int32_t n_pairs,
                         float *x) {
    int32_t stride = pairs == ROPE_HALVES ? 1 : 2;
    int32_t other = pairs == ROPE_HALVES ? n_pairs : 1;
    for (int32_t i = 0; i < n_pairs; i++) {
        float a = x[i * stride];
        float b = x[i * stride + other];
        x[i * stride] = a * cosines[i] - b * sines[i];
        x[i * stride + other] = b * cosines[i] + a * sines[i];
    }
}

static void narrow_plain(dtype type, const float *x, int32_t n, uint16_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = type == DTYPE_BF16 ? f32_to_bf16(x[i]) : f32_to_f16(x[i]);
    }
}

static void widen_plain(const uint16_t *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = bf16_to_f32(x[i]);
    }
}

static float narrow_int8_plain(const float *x, int32_t n, int8_t *out, int32_t *sum) {
    float largest = 0.0f, inverse;
    for (int32_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        largest = a > largest || isnan(a) ? a : largest;
    }
    float scale = attn_int8_scale(largest, &inverse);
    *sum = 0;
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int8_t)(inverse > 0.0f ? rintf(x[i] * inverse) : 0.0f);
        *sum += out[i];
    }
    return scale;
}

const math_kernels math_plain = {
    .exp = exp_plain,
    .tanh = tanh_plain,
    .activate = activate_plain,
    .gate_up = gate_up_plain,
    .xielu = xielu_plain,
    .scale_cap = scale_cap_plain,
    .largest = largest_plain,
    .add_scaled = add_scaled_plain,
    .add_to_rows = add_to_rows_plain,
    .stream_rows = stream_rows_plain,
    .norm_rms = norm_rms_plain,
    .norm_layer = norm_layer_plain,
    .rotate = rotate_plain,
    .narrow = narrow_plain,
    .widen = widen_plain,
    .narrow_int8 = narrow_int8_plain,
    .unpack_int4 = attention_unpack_int4_plain,
    .values_of_keys = attention_values_of_keys_plain,
    .attention_tile = attention_tile_plain,
    .attention_products = attention_products_plain,
    .attention_merge = attention_merge_plain,
    .attention_finish = attention_finish_plain,
    .state_decays = state_decays_plain,
    .state_query = state_query_plain,
    .state_key = state_key_plain,
    .state_rows = state_rows_plain,
    .state_scan = state_scan_plain,
    .state_conv = state_conv_plain,
    .state_lru = state_lru_plain,
    .shrink = adapter_shrink_plain,
    .expand = adapter_expand_plain,
    .run_program = attn_run_plain,
};

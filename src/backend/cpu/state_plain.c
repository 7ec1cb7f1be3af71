/* Plain C twins of the recurrence kernels: the reference of state_kernels.inc.h. */
#include "backend/cpu/math.h"
#include "core/half.h"
#include "core/math_plain.h"

#define LANES STATE_LANES

static float state_rounded(bool rounds, float x) {
    return rounds ? bf16_to_f32(f32_to_bf16(x)) : x;
}

void state_decays_plain(const decay_form *f, const float *x, int32_t n, float *t, float *a) {
    for (int32_t i = 0; i < n; i++) {
        if (f->kind == DECAY_BOUNDED) {
            t[i] = 1.0f;
            a[i] = plain_exp(f->lower * plain_sigmoid(f->rate * x[i]));
            continue;
        }
        float y = plain_softplus(x[i]);
        if (f->t_max > 0.0f) {
            y = plain_max(f->t_min, plain_min(f->t_max, y));
        }
        t[i] = y;
        a[i] = plain_exp(-f->rate * y);
    }
}

/* The normalising factor of a row with this sum of squares. */
static float row_factor(const float *x, float eps, float scale, int32_t n) {
    float lanes[LANES] = {0};
    if (!(eps > 0.0f)) {
        return scale;
    }
    for (int32_t i = 0; i < n; i++) {
        lanes[i % LANES] = fmaf(x[i], x[i], lanes[i % LANES]);
    }
    return scale / sqrtf(plain_tree_sum(lanes) + eps);
}

void state_query_plain(const float *x, float eps, float scale, int32_t n, float *q) {
    const float factor = row_factor(x, eps, scale, n);
    for (int32_t i = 0; i < n; i++) {
        q[i] = x[i] * factor;
    }
}

void state_key_plain(const float *x, float eps, const float *a, bool per_channel, int32_t n, float *k,
                     float *ak) {
    const float factor = row_factor(x, eps, 1.0f, n);
    for (int32_t i = 0; i < n; i++) {
        k[i] = x[i] * factor;
        ak[i] = a[per_channel ? i : 0] * k[i];
    }
}

/* Processes one row against one group of columns. */
static void row_and_columns(const state_rows *s, int32_t row, int32_t column, float *state) {
    const float *q = s->q + (int64_t)row * s->stride, *k = s->k + (int64_t)row * s->stride,
                *ak = s->ak + (int64_t)row * s->stride,
                *a = s->a + (int64_t)row * (s->per_channel ? s->stride : 1),
                *v = s->v + (int64_t)row * s->v_stride + column;
    float *out = s->out + (int64_t)row * s->out_stride + column;
    for (int32_t lane = 0; lane < LANES; lane++) {
        const bool is_there = column + lane < s->n_columns;
        const float value = is_there ? v[lane] : 0.0f;
        float u = s->t != NULL ? value * s->t[row] : value, w = 0.0f, o = 0.0f;
        for (int32_t i = 0; s->beta != NULL && i < s->d_key; i++) {
            w = fmaf(ak[i], state[i * LANES + lane], w);
        }
        u = s->beta != NULL ? s->beta[row] * (u - w) : u;
        for (int32_t i = 0; i < s->d_key; i++) {
            float *e = &state[i * LANES + lane];
            *e = state_rounded(s->rounds, fmaf(k[i], u, a[s->per_channel ? i : 0] * *e));
            o = fmaf(q[i], *e, o);
        }
        if (is_there) {
            out[lane] = s->has_skip ? fmaf(s->skip, value, o) : o;
        }
    }
}

void state_rows_plain(const state_rows *s) {
    float *state = s->state;
    for (int32_t column = 0; column < s->n_columns; column += LANES, state += s->d_key * LANES) {
        for (int32_t row = 0; row < s->n_rows; row++) {
            row_and_columns(s, row, column, state);
        }
    }
}

void state_scan_plain(const scan_rows *s) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *b = s->b + row * s->b_stride, *c = s->c + row * s->c_stride;
        for (int32_t lane = 0; lane < LANES; lane++) {
            const bool is_there = lane < s->n_channels;
            const float x = is_there ? s->x[row * s->x_stride + lane] : 0.0f;
            float dt = is_there ? s->dt[row * s->dt_stride + lane] : 0.0f, out = 0.0f;
            dt = s->dt_bias != NULL && is_there ? dt + s->dt_bias[lane] : dt;
            const float t = plain_softplus(dt), tx = t * x;
            for (int32_t i = 0; i < s->n_states; i++) {
                float *e = &s->state[i * LANES + lane];
                const float decay = plain_exp(t * s->a[i * LANES + lane]);
                *e = state_rounded(s->rounds, fmaf(tx, b[i], decay * *e));
                out = fmaf(c[i], *e, out);
            }
            if (is_there) {
                s->out[row * s->out_stride + lane] = s->skip != NULL ? fmaf(s->skip[lane], x, out) : out;
            }
        }
    }
}

void state_conv_plain(const conv_rows *s) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *window = s->window + row * CONV_UNIT;
        for (int32_t c = 0; c < s->n_channels; c++) {
            float sum = s->bias[c];
            for (int32_t j = 0; j < s->n_taps; j++) {
                sum = fmaf(s->taps[j * CONV_UNIT + c], window[j * CONV_UNIT + c], sum);
            }
            s->out[row * s->out_stride + c] = sum;
        }
    }
}

void state_lru_plain(const lru_rows *s) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *block = s->block + row * s->x_stride, *x = s->x + row * s->x_stride;
        for (int32_t lane = 0; lane < s->n_channels; lane++) {
            const float *gates = s->gates + lane, *biases = gates + (int64_t)s->width * 2 * LANES;
            float input = biases[0], decay = biases[LANES];
            for (int32_t j = 0; j < s->width; j++, gates += 2 * LANES) {
                input = fmaf(block[j], gates[0], input);
                decay = fmaf(block[j], gates[LANES], decay);
            }
            const float l = -(s->rate[lane] * plain_sigmoid(decay)), p = plain_sigmoid(input) * x[lane];
            const float kept = sqrtf(plain_max(1.0f - plain_exp(l + l), 0.0f));
            const float state = s->begins && row == 0 ? p : fmaf(kept, p, plain_exp(l) * s->state[lane]);
            s->state[lane] = state_rounded(s->rounds, state);
            s->out[row * s->out_stride + lane] = s->state[lane];
        }
    }
}

/* Kernels of recurrences (recurrences.h), 16 lanes at a time. Their plain twins
 * (state_plain.c) define what they compute: each line here is the same operation on every
 * lane. Included by math_avx2.c, math_avx512.c and math_neon.c, after math_kernels.inc.h.
 *
 * state_rows: per element of a state, the update takes a product and an fma, the output
 * an fma and, with beta, the key's sum another one. The sum for the next row is
 * accumulated while this row's update has the element in a register, so each row loads
 * and stores the columns once. Several groups of columns at once share the loads of a
 * row's elements, and their sums do not wait for each other. */
#ifndef CPU_STATE_KERNELS_INC_H
#define CPU_STATE_KERNELS_INC_H

#include "backend/cpu/math_kernels.inc.h"

/* Most groups of columns at once whose sums and values fit in registers. */
#if defined(__AVX512F__) || defined(SIMD_EMULATE)
#define STATE_GROUPS 4
#else
#define STATE_GROUPS 1
#endif

static inline f32x16 round_bf16(f32x16 x) {
    return f_of_bits(i_shl(f_to_bf16_lanes(x), 16));
}

static inline f32x16 times16(const decay_form *f, f32x16 x) {
    if (f->kind == DECAY_BOUNDED) {
        return f_set1(1.0f);
    }
    f32x16 t = softplus16(x);
    return f->t_max > 0.0f ? f_max(f_set1(f->t_min), f_min(f_set1(f->t_max), t)) : t;
}

static inline f32x16 decays16(const decay_form *f, f32x16 x, f32x16 t) {
    return exp16(f->kind == DECAY_BOUNDED ? f_mul(f_set1(f->lower), sigmoid16(f_mul(f_set1(f->rate), x)))
                                          : f_mul(f_set1(-f->rate), t));
}

static void state_decays_kernel(const decay_form *f, const float *x, int32_t n, float *t, float *a) {
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 y = f_load(x + i), times = times16(f, y);
        f_store(t + i, times);
        f_store(a + i, decays16(f, y, times));
    }
    if (i < n) {
        f32x16 y = f_load_first(x + i, n - i), times = times16(f, y);
        f_store_first(t + i, n - i, times);
        f_store_first(a + i, n - i, decays16(f, y, times));
    }
}

static inline f32x16 state_factor(const float *x, float eps, float scale, int32_t n) {
    if (!(eps > 0.0f)) {
        return f_set1(scale);
    }
    f32x16 squares = f_zero();
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 v = f_load(x + i);
        squares = f_fma(v, v, squares);
    }
    if (i < n) {
        f32x16 v = f_load_first(x + i, n - i);
        squares = f_fma(v, v, squares);
    }
    return f_set1(scale / sqrtf(f_tree_sum(squares) + eps));
}

static void state_query_kernel(const float *x, float eps, float scale, int32_t n, float *q) {
    const f32x16 factor = state_factor(x, eps, scale, n);
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f_store(q + i, f_mul(f_load(x + i), factor));
    }
    if (i < n) {
        f_store_first(q + i, n - i, f_mul(f_load_first(x + i, n - i), factor));
    }
}

static void state_key_kernel(const float *x, float eps, const float *a, bool per_channel, int32_t n, float *k,
                             float *ak) {
    const f32x16 factor = state_factor(x, eps, 1.0f, n), one = f_set1(a[0]);
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        f32x16 key = f_mul(f_load(x + i), factor);
        f_store(k + i, key);
        f_store(ak + i, f_mul(per_channel ? f_load(a + i) : one, key));
    }
    if (i < n) {
        f32x16 key = f_mul(f_load_first(x + i, n - i), factor);
        f_store_first(k + i, n - i, key);
        f_store_first(ak + i, n - i, f_mul(per_channel ? f_load_first(a + i, n - i) : one, key));
    }
}

/* Properties of a state_rows that are compile-time constants in a kernel. */
typedef struct state_form {
    bool per_channel, rounds;
} state_form;

/* w = the key's sum of the first row, for n_groups groups of columns. */
INLINE void first_key_sums(const state_rows *s, const float *state, int32_t n_groups, f32x16 *w) {
    const int64_t n = s->d_key;
    const float *key = s->ak;
    for (int32_t g = 0; g < n_groups; g++) {
        w[g] = f_zero();
    }
    for (int64_t i = 0; i < n; i++) {
        const f32x16 ak = f_set1(key[i]);
        UNROLL
        for (int32_t g = 0; g < n_groups; g++) {
            w[g] = f_fma(ak, f_load(state + (g * n + i) * LANES), w[g]);
        }
    }
}

/* Updates n_groups groups of columns by one row with values u. out: the sums for its
 * query; w: with `next`, those for the next row's key. Elements are loaded before any is
 * stored, because groups are a multiple of 4 KiB apart, where a load after a store has to
 * wait for it. A single row reads each column once, from memory: it prefetches the groups
 * after these. */
INLINE void update_columns(const state_rows *s, int32_t row, int32_t n_groups, state_form form, bool next,
                           bool fetch, float *state, const f32x16 *u, f32x16 *out, f32x16 *w) {
    const int64_t n = s->d_key, first = (int64_t)row * s->stride;
    const float *q = s->q + first, *k = s->k + first, *a = s->a + (form.per_channel ? first : row),
                *ak = s->ak + first + s->stride;
    const f32x16 decay = f_set1(a[0]);
    f32x16 o[STATE_GROUPS], sums[STATE_GROUPS], value[STATE_GROUPS], e[STATE_GROUPS];
    for (int32_t g = 0; g < n_groups; g++) {
        o[g] = sums[g] = f_zero();
        value[g] = u[g];
    }
    for (int64_t i = 0; i < n; i++) {
        const f32x16 key = f_set1(k[i]), query = f_set1(q[i]), by = form.per_channel ? f_set1(a[i]) : decay;
        UNROLL
        for (int32_t g = 0; g < n_groups; g++) {
            e[g] = f_mul(by, f_load(state + (g * n + i) * LANES));
            if (fetch) {
                __builtin_prefetch(state + ((g + n_groups) * n + i) * LANES);
            }
        }
        UNROLL
        for (int32_t g = 0; g < n_groups; g++) {
            e[g] = f_fma(key, value[g], e[g]);
            e[g] = form.rounds ? round_bf16(e[g]) : e[g];
            f_store(state + (g * n + i) * LANES, e[g]);
            o[g] = f_fma(query, e[g], o[g]);
            sums[g] = next ? f_fma(f_set1(ak[i]), e[g], sums[g]) : sums[g];
        }
    }
    for (int32_t g = 0; g < n_groups; g++) {
        out[g] = o[g];
        w[g] = sums[g];
    }
}

/* Applies all rows, or a single one, to the n_groups groups of columns from `column`
 * on. */
INLINE void pass_columns(const state_rows *s, int32_t column, int32_t n_groups, state_form form,
                         bool is_alone) {
    float *state = s->state + (int64_t)column * s->d_key;
    f32x16 w[STATE_GROUPS] = {f_zero()}, u[STATE_GROUPS], v[STATE_GROUPS], out[STATE_GROUPS];
    if (s->beta != NULL) {
        first_key_sums(s, state, n_groups, w);
    }
    for (int32_t row = 0; row < s->n_rows; row++) {
        const float *x = s->v + (int64_t)row * s->v_stride + column;
        float *to = s->out + (int64_t)row * s->out_stride + column;
        for (int32_t g = 0; g < n_groups; g++) {
            v[g] = f_load_first(x + g * LANES, s->n_columns - column - g * LANES);
            u[g] = s->t != NULL ? f_mul(v[g], f_set1(s->t[row])) : v[g];
            u[g] = s->beta != NULL ? f_mul(f_set1(s->beta[row]), f_sub(u[g], w[g])) : u[g];
        }
        if (!is_alone && s->beta != NULL && row + 1 < s->n_rows) {
            update_columns(s, row, n_groups, form, true, false, state, u, out, w);
        } else {
            update_columns(s, row, n_groups, form, false, is_alone, state, u, out, w);
        }
        for (int32_t g = 0; g < n_groups; g++) {
            out[g] = s->has_skip ? f_fma(f_set1(s->skip), v[g], out[g]) : out[g];
            f_store_first(to + g * LANES, s->n_columns - column - g * LANES, out[g]);
        }
    }
}

/* A single row takes one group at a time: it is memory-bound and reads one stream
 * fastest. */
INLINE void pass_all(const state_rows *s, state_form form) {
    int32_t column = 0;
    for (; s->n_rows > 1 && column + (STATE_GROUPS - 1) * LANES < s->n_columns;
         column += STATE_GROUPS * LANES) {
        pass_columns(s, column, STATE_GROUPS, form, false);
    }
    for (; s->n_rows > 1 && column < s->n_columns; column += LANES) {
        pass_columns(s, column, 1, form, false);
    }
    for (; column < s->n_columns; column += LANES) {
        pass_columns(s, column, 1, form, true);
    }
}

static void state_rows_kernel(const state_rows *s) {
    if (s->per_channel && s->rounds) {
        pass_all(s, (state_form){true, true});
    } else if (s->per_channel) {
        pass_all(s, (state_form){true, false});
    } else if (s->rounds) {
        pass_all(s, (state_form){false, true});
    } else {
        pass_all(s, (state_form){false, false});
    }
}

static void state_scan_kernel(const scan_rows *s) {
    const int32_t n = s->n_channels;
    const bool rounds = s->rounds;
    const f32x16 bias = s->dt_bias != NULL ? f_load_first(s->dt_bias, n) : f_zero(),
                 skip = s->skip != NULL ? f_load_first(s->skip, n) : f_zero();
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *b = s->b + row * s->b_stride, *c = s->c + row * s->c_stride;
        const f32x16 x = f_load_first(s->x + row * s->x_stride, n);
        f32x16 dt = f_load_first(s->dt + row * s->dt_stride, n), out = f_zero();
        dt = s->dt_bias != NULL ? f_add(dt, bias) : dt;
        const f32x16 t = softplus16(dt), tx = f_mul(t, x);
        for (int32_t i = 0; i < s->n_states; i++) {
            float *at = s->state + i * LANES;
            f32x16 decay = exp16(f_mul(t, f_load(s->a + i * LANES)));
            f32x16 e = f_fma(tx, f_set1(b[i]), f_mul(decay, f_load(at)));
            e = rounds ? round_bf16(e) : e;
            f_store(at, e);
            out = f_fma(f_set1(c[i]), e, out);
        }
        out = s->skip != NULL ? f_fma(skip, x, out) : out;
        f_store_first(s->out + row * s->out_stride, n, out);
    }
}

/* Few compared with the products of the gates, so computed lane by lane. */
static inline f32x16 sqrt16(f32x16 x) {
    float lanes[LANES];
    f_store(lanes, x);
    for (int32_t i = 0; i < LANES; i++) {
        lanes[i] = sqrtf(lanes[i]);
    }
    return f_load(lanes);
}

static void state_lru_kernel(const lru_rows *s) {
    const f32x16 rate = f_load(s->rate);
    const float *biases = s->gates + (int64_t)s->width * 2 * LANES;
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *block = s->block + row * s->x_stride, *gates = s->gates;
        f32x16 input = f_load(biases), decay = f_load(biases + LANES);
        for (int32_t j = 0; j < s->width; j++, gates += 2 * LANES) {
            const f32x16 x = f_set1(block[j]);
            input = f_fma(x, f_load(gates), input);
            decay = f_fma(x, f_load(gates + LANES), decay);
        }
        const f32x16 l = f_neg(f_mul(rate, sigmoid16(decay))),
                     p = f_mul(sigmoid16(input), f_load_first(s->x + row * s->x_stride, s->n_channels));
        const f32x16 kept = sqrt16(f_max(f_sub(f_set1(1.0f), exp16(f_add(l, l))), f_zero()));
        f32x16 state = s->begins && row == 0 ? p : f_fma(kept, p, f_mul(exp16(l), f_load(s->state)));
        state = s->rounds ? round_bf16(state) : state;
        f_store_first(s->state, s->n_channels, state);
        f_store_first(s->out + row * s->out_stride, s->n_channels, state);
    }
}

/* Convolves the 16 channels from c on with few taps, a compile-time constant: they stay
 * in registers. */
INLINE void conv_lanes(const conv_rows *s, int32_t c, int32_t n_taps) {
    f32x16 taps[4];
    const f32x16 bias = f_load(s->bias + c);
    UNROLL
    for (int32_t j = 0; j < n_taps; j++) {
        taps[j] = f_load(s->taps + j * CONV_UNIT + c);
    }
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *window = s->window + row * CONV_UNIT + c;
        f32x16 sum = bias;
        UNROLL
        for (int32_t j = 0; j < n_taps; j++) {
            sum = f_fma(taps[j], f_load(window + j * CONV_UNIT), sum);
        }
        f_store_first(s->out + row * s->out_stride + c, s->n_channels - c, sum);
    }
}

/* The same for any number of taps. */
static void conv_lanes_any(const conv_rows *s, int32_t c) {
    for (int64_t row = 0; row < s->n_rows; row++) {
        const float *window = s->window + row * CONV_UNIT + c;
        f32x16 sum = f_load(s->bias + c);
        for (int32_t j = 0; j < s->n_taps; j++) {
            sum = f_fma(f_load(s->taps + j * CONV_UNIT + c), f_load(window + j * CONV_UNIT), sum);
        }
        f_store_first(s->out + row * s->out_stride + c, s->n_channels - c, sum);
    }
}

static void state_conv_kernel(const conv_rows *s) {
    for (int32_t c = 0; c < s->n_channels; c += LANES) {
        if (s->n_taps == 4) {
            conv_lanes(s, c, 4);
        } else if (s->n_taps == 3) {
            conv_lanes(s, c, 3);
        } else {
            conv_lanes_any(s, c);
        }
    }
}

#endif

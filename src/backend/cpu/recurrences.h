/* Operands of the recurrence kernels (table in math.h) and what they compute: parts of
 * the ops of backend.h on one unit of a state, row by row. The plain twins
 * (state_plain.c) define the arithmetic. Rows need no alignment. With `rounds`, each new
 * S is rounded to bf16, to nearest even, before it is read. */
#ifndef CPU_RECURRENCES_H
#define CPU_RECURRENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* Parameters of a head's decay (decay_kind). */
typedef struct decay_form {
    decay_kind kind;
    float rate, lower, t_min, t_max; /* t_max 0: t is not clamped */
} decay_form;

/* Rows of one head against 16-column groups of its state; lanes past n_columns have v =
 * 0. For each row and group:
 *   w = sum over i, ascending, of ak[i] S[i], by fma from 0
 *   u = v, times t; with beta: u = beta (u - w)
 *   S[i] = fma(k[i], u, a S[i])
 *   out = sum over i of q[i] S[i], by fma from 0; with skip: fma(skip, v, out) */
typedef struct state_rows {
    int32_t n_rows, d_key, stride; /* stride: between rows of q, k, ak, and of a if it has d_key elements */
    int32_t n_columns;
    const float *q, *k, *ak; /* [n_rows, d_key] */
    const float *a;          /* [n_rows], or [n_rows, d_key] if per_channel */
    bool per_channel, has_skip, rounds;
    const float *beta, *t; /* [n_rows], or NULL; without beta, ak is not read */
    float skip;
    const float *v; /* [n_rows][n_columns] */
    int32_t v_stride, out_stride;
    float *out;   /* [n_rows][n_columns]; may be v */
    float *state; /* [n_columns / 16 rounded up][d_key][16] */
} state_rows;

/* Rows of up to 16 channels of a selective scan. For each row and lane:
 *   t = softplus(dt + dt_bias); S[n] = fma(t x, b[n], exp(t a[n]) S[n])
 *   out = sum over n, ascending, of c[n] S[n], by fma from 0; with skip: fma(skip, x,
 * out) */
typedef struct scan_rows {
    int32_t n_rows, n_states, n_channels;
    bool rounds;
    const float *x, *dt;  /* [n_rows][n_channels] */
    const float *b, *c;   /* [n_rows][n_states] */
    const float *a;       /* [n_states][16] */
    const float *dt_bias; /* [n_channels], or NULL */
    const float *skip;    /* [n_channels], or NULL */
    int32_t x_stride, dt_stride, b_stride, c_stride, out_stride;
    float *out;   /* [n_rows][n_channels]; may be x */
    float *state; /* [n_states][16] */
} scan_rows;

/* Rows of a unit of CONV_UNIT channels: out[r][c] = sum over j, ascending, of taps[j][c]
 * window[r + j][c], by fma from bias[c]. */
typedef struct conv_rows {
    int32_t n_rows, n_taps, n_channels; /* n_channels: number of channels written */
    const float *taps;                  /* [n_taps][CONV_UNIT] */
    const float *bias;                  /* [CONV_UNIT] */
    const float *window;                /* [n_rows + n_taps - 1][CONV_UNIT] */
    int32_t out_stride;
    float *out; /* [n_rows][n_channels] */
} conv_rows;

/* Rows of up to 16 channels of a gated linear recurrence. For each row and lane:
 *   i, r = sigmoid(sum over j, ascending, of block[j] gates[j], fma from gates[width])
 *   l = -(rate r); e = exp(l); p = i x; with begins, S = p at the first row, else
 *   S = fma(sqrt(max(1 - exp(l + l), 0)), p, e S); out = S */
typedef struct lru_rows {
    int32_t n_rows, width, n_channels;
    bool begins, rounds;
    const float *block; /* [n_rows][width]: all channels of the block */
    const float *x;     /* [n_rows][n_channels]: this unit's channels of the block */
    const float *gates; /* [width + 1][2][16] */
    const float *rate;  /* [16] */
    int32_t x_stride, out_stride;
    float *out;   /* [n_rows][n_channels] */
    float *state; /* [16] */
} lru_rows;

/* Defined in state_plain.c, for math_plain.c's table. */
void state_decays_plain(const decay_form *f, const float *x, int32_t n, float *t, float *a);
void state_query_plain(const float *x, float eps, float scale, int32_t n, float *q);
void state_key_plain(const float *x, float eps, const float *a, bool per_channel, int32_t n, float *k,
                     float *ak);
void state_rows_plain(const state_rows *s);
void state_scan_plain(const scan_rows *s);
void state_conv_plain(const conv_rows *s);
void state_lru_plain(const lru_rows *s);

#endif

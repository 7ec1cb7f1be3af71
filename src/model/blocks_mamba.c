/* Mamba's mixers: a selective state space after a short convolution, gated. Mamba-1: Gu
 * and Dao 2023, arXiv:2312.00752; Mamba-2: Dao and Gu 2024, arXiv:2405.21060.
 *
 *   Mamba-1                               Mamba-2
 *   x, z = h W^T                          z, x, B, C, step = h W^T
 *   x = f(conv(x))                        x, B, C = f(conv(x)), f(conv(B)), f(conv(C))
 *   step, B, C = norms of x Wx^T          y = S^T C + skip x, each head has a state:
 *   t = step Wt^T + bias                    S = a S + B (t x)^T, a = exp(-rate t),
 *   y = scan(x, t, B, C)                    t = softplus(step + bias)
 *   out = (silu(z) y) Wo^T                out = norm(silu(z) y) Wo^T
 *
 * x, z: [M, I]; B, C: [M, N], or [M, G N]; step: [M, R], or [M, H]; t: [M, I]. */
#include <assert.h>
#include <math.h>

#include "core/recurrence.h"
#include "model/decoder.h"

enum { PART_Z, PART_X, PART_B, PART_C, PART_STEP, N_PARTS };

static const buffer_role part_roles[N_PARTS] = {BUFFER_MAMBA_Z, BUFFER_MAMBA_X, BUFFER_MAMBA_B,
                                                BUFFER_MAMBA_C, BUFFER_MAMBA_STEP};
static const char *const part_names[N_PARTS] = {"z", "x", "b", "c", "dt"};

/* Parts of one product, in the order of its rows. */
typedef struct mamba_parts {
    int n;
    int which[N_PARTS];
    int64_t widths[N_PARTS];
    bool exact[N_PARTS]; /* computed in f32: the part is small, and a recurrence amplifies its errors */
} mamba_parts;

static int64_t parts_width(const mamba_parts *p) {
    int64_t sum = 0;
    for (int i = 0; i < p->n; i++) {
        sum += p->widths[i];
    }
    return sum;
}

/* Loads a product whose rows go to several buffers. */
static quire_err mamba_load_parts(binding *b, weight_role role, const mamba_parts *p, int64_t n_in,
                                  linear_use *uses) {
    weight_part part = {.n_rows = parts_width(p)};
    for (int i = 0; i < p->n; i++) {
        const weight_name name = binding_name(b, role);
        linear *w;
        part.suffix = part_names[p->which[i]];
        part.block = part.step = p->widths[i];
        TRY((p->exact[i] ? loader_router_part : loader_linear)(b->l, name, b->layer, &part, p->widths[i],
                                                               n_in, &w));
        TRY(binding_buffer(b, part_roles[p->which[i]], (int32_t)p->widths[i], &uses[i].out));
        uses[i].w = w;
        part.first += p->widths[i];
    }
    return QUIRE_OK;
}

/* ---- Mamba-1 ---- */

typedef struct mamba1_block {
    linear_use in[2];    /* x, z */
    linear_use inner[3]; /* time step, B, C */
    norm *norms[3];      /* norms of time step, B and C, or NULL */
    linear_use step;
    conv_use conv;
    scan_use scan;
    multiply_use gate;
} mamba1_block;

static void mamba1_run(const pass *p, const decoder_op *o) {
    const mamba1_block *m = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, m->in, 2);
    p->op->conv(p->b, &m->conv);
    p->op->norm_linears(p->b, m->conv.out, NULL, m->inner, 3);
    for (int i = 0; i < 3 && m->norms[0] != NULL; i++) {
        p->op->norm_rows(p->b, m->inner[i].out, m->norms[i], m->inner[i].out);
    }
    p->op->norm_linears(p->b, m->inner[0].out, NULL, &m->step, 1);
    p->op->scan(p->b, &m->scan);
    p->op->multiply(p->b, &m->gate);
}

static quire_err mamba1_load_norms(binding *b, mamba1_block *to) {
    static const weight_role roles[3] = {W_MAMBA_STEP_NORM, W_MAMBA_B_NORM, W_MAMBA_C_NORM};
    const mamba_desc *m = &b->d->mamba;
    const int32_t widths[3] = {m->step_rank, m->n_states, m->n_states};
    for (int i = 0; i < 3 && m->inner_norms != MAMBA_NORMS_NONE; i++) {
        const norm_spec spec = {.kind = NORM_RMS, .width = widths[i], .eps = m->inner_eps};
        TRY(m->inner_norms == MAMBA_NORMS_BARE
                ? b->l->b->ops->norm_load(b->l->b, &spec, &to->norms[i], b->l->err)
                : loader_norm(b->l, binding_name(b, roles[i]), b->layer, &spec, widths[i], &to->norms[i]));
    }
    return QUIRE_OK;
}

/* Loads the decays of each channel's states, which are negative; checkpoints store the
 * logarithm of their magnitude. */
static quire_err mamba1_load_rates(binding *b, const float **out) {
    const mamba_desc *m = &b->d->mamba;
    float *a;
    TRY(loader_matrix(b->l, binding_name(b, W_MAMBA_RATE), b->layer, "", m->n_inner, m->n_states, &a));
    TRY(binding_keep(b, a));
    for (int64_t i = 0; i < (int64_t)m->n_inner * m->n_states && !binding_is_gguf(b); i++) {
        a[i] = -expf(a[i]);
    }
    *out = a;
    return QUIRE_OK;
}

static quire_err mamba1_load(binding *b, mamba1_block *to) {
    const mamba_desc *m = &b->d->mamba;
    const mamba_parts in = {.n = 2, .which = {PART_X, PART_Z}, .widths = {m->n_inner, m->n_inner}};
    const mamba_parts inner = {.n = 3,
                               .which = {PART_STEP, PART_B, PART_C},
                               .widths = {m->step_rank, m->n_states, m->n_states},
                               .exact = {true, true, true}};
    linear *step;
    conv_taps *taps;
    float *skip;
    TRY(mamba_load_parts(b, W_MAMBA_IN, &in, b->d->d_model, to->in));
    TRY(mamba_load_parts(b, W_MAMBA_X, &inner, m->n_inner, to->inner));
    TRY(mamba1_load_norms(b, to));
    TRY(loader_router_part(b->l, binding_name(b, W_MAMBA_STEP), b->layer, NULL, m->n_inner, m->step_rank,
                           &step));
    TRY(binding_buffer(b, BUFFER_MAMBA_TIME, m->n_inner, &to->step.out));
    to->step.w = step;
    TRY(loader_conv(b->l, binding_name(b, W_MAMBA_TAPS), b->layer, (conv_channels){0, m->n_inner, m->n_inner},
                    m->n_taps, &taps));
    TRY(mamba1_load_rates(b, &to->scan.a));
    TRY(binding_vector(b, W_MAMBA_SKIP, "", "D", m->n_inner, &skip));
    to->scan.skip = skip;
    to->conv.w = taps;
    return QUIRE_OK;
}

static quire_err mamba1_bind(binding *b, row_value in, buffer *out) {
    const mamba_desc *m = &b->d->mamba;
    const layer_desc *layer = &b->d->layers[b->layer];
    mamba1_block *to;
    TRY(binding_need_op(b, b->l->b->ops->scan != NULL, "selective scans"));
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(mamba1_load(b, to));
    const buffer x = to->in[0].out, z = to->in[1].out;
    to->conv.cache = layer->caches[CACHE_CONV];
    to->conv.f = m->activation;
    to->conv.x = to->conv.out = x;
    to->scan.cache = layer->caches[CACHE_STATE];
    to->scan.n_channels = m->n_inner;
    to->scan.n_states = m->n_states;
    to->scan.x = to->scan.out = x;
    to->scan.dt = to->step.out;
    to->scan.b = to->inner[1].out;
    to->scan.c = to->inner[2].out;
    to->gate = (multiply_use){.f = ACT_SILU, .gate = z, .x = x, .out = x};
    *out = x;
    return binding_emit(b, (decoder_op){.run = mamba1_run, .in = in.at, .nm = in.nm, .own = to});
}

/* ---- Mamba-2 ---- */

typedef struct mamba2_block {
    linear_use in[N_PARTS];
    conv_use convs[3]; /* x, B, C */
    linear_attention_use heads;
    multiply_use gate;
    norm *nm; /* NULL: none */
} mamba2_block;

static void mamba2_run(const pass *p, const decoder_op *o) {
    const mamba2_block *m = o->own;
    const mamba_desc *d = &p->d->mamba;
    p->op->norm_linears(p->b, o->in, o->nm, m->in, N_PARTS);
    for (int i = 0; i < N_PARTS; i++) {
        if (d->scales[i] != 0.0f && d->scales[i] != 1.0f) {
            p->op->scale_rows(p->b, d->scales[i], m->in[i].out);
        }
    }
    for (int i = 0; i < 3; i++) {
        p->op->conv(p->b, &m->convs[i]);
    }
    p->op->linear_attention(p->b, &m->heads);
    if (m->nm != NULL && d->norm_first) {
        p->op->norm_rows(p->b, m->heads.out, m->nm, m->heads.out);
    }
    p->op->multiply(p->b, &m->gate);
    if (m->nm != NULL && !d->norm_first) {
        p->op->norm_rows(p->b, m->gate.out, m->nm, m->gate.out);
    }
}

/* Loads one convolution of x, B and C, with separate units for each. */
static quire_err mamba2_load_convs(binding *b, mamba2_block *to) {
    const mamba_desc *m = &b->d->mamba;
    const int32_t n = m->n_groups * m->n_states, widths[3] = {m->n_inner, n, n};
    conv_channels at = {.n_all = m->n_inner + 2 * n};
    int32_t unit = 0;
    for (int i = 0; i < 3; i++) {
        const buffer rows = to->in[PART_X + i].out;
        conv_taps *taps;
        at.n = widths[i];
        TRY(loader_conv(b->l, binding_name(b, W_MAMBA_TAPS), b->layer, at, m->n_taps, &taps));
        to->convs[i] = (conv_use){.cache = b->d->layers[b->layer].caches[CACHE_CONV],
                                  .unit = unit,
                                  .w = taps,
                                  .f = m->activation,
                                  .x = rows,
                                  .out = rows};
        at.first += widths[i];
        unit += conv_units(widths[i]);
    }
    return QUIRE_OK;
}

static quire_err mamba2_load_heads(binding *b, mamba2_block *to) {
    const mamba_desc *m = &b->d->mamba;
    float *rate, *bias, *skip;
    TRY(binding_vector(b, W_MAMBA_RATE, "", "rates of decay", m->n_heads, &rate));
    TRY(binding_vector(b, W_MAMBA_STEP_BIAS, ".bias", "bias of its time step", m->n_heads, &bias));
    TRY(binding_vector(b, W_MAMBA_SKIP, "", "D", m->n_heads, &skip));
    for (int32_t i = 0; i < m->n_heads; i++) {
        rate[i] = binding_is_gguf(b) ? -rate[i] : expf(rate[i]);
    }
    to->heads = (linear_attention_use){.cache = b->d->layers[b->layer].caches[CACHE_STATE],
                                       .n_heads = m->n_heads,
                                       .n_key_heads = m->n_groups,
                                       .d_key = m->n_states,
                                       .d_value = m->n_inner / m->n_heads,
                                       .q = to->in[PART_C].out,
                                       .k = to->in[PART_B].out,
                                       .v = to->in[PART_X].out,
                                       .q_scale = 1.0f,
                                       .decay_kind = DECAY_SOFTPLUS,
                                       .decay = to->in[PART_STEP].out,
                                       .rate = rate,
                                       .decay_bias = bias,
                                       .t_min = m->step_least,
                                       .t_max = m->step_most,
                                       .values_by_time = true,
                                       .beta = BUFFER_NONE,
                                       .skip = skip,
                                       .out = to->in[PART_X].out};
    return QUIRE_OK;
}

static quire_err mamba2_bind(binding *b, row_value in, buffer *out) {
    const mamba_desc *m = &b->d->mamba;
    const int32_t n = m->n_groups * m->n_states;
    const mamba_parts parts = {.n = N_PARTS,
                               .which = {PART_Z, PART_X, PART_B, PART_C, PART_STEP},
                               .widths = {m->n_inner, m->n_inner, n, n, m->n_heads},
                               .exact = {[PART_STEP] = true}};
    mamba2_block *to;
    TRY(binding_need_op(b, b->l->b->ops->linear_attention != NULL, "linear attention"));
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(mamba_load_parts(b, W_MAMBA_IN, &parts, b->d->d_model, to->in));
    TRY(mamba2_load_convs(b, to));
    TRY(mamba2_load_heads(b, to));
    if (m->n_norm_groups > 0) {
        const norm_spec spec = {
            .kind = NORM_RMS, .width = m->n_inner / m->n_norm_groups, .eps = m->inner_eps};
        TRY(loader_norm(b->l, binding_name(b, W_MAMBA_NORM), b->layer, &spec, m->n_inner, &to->nm));
    }
    to->gate =
        (multiply_use){.f = ACT_SILU, .gate = to->in[PART_Z].out, .x = to->heads.out, .out = to->heads.out};
    *out = to->heads.out;
    return binding_emit(b, (decoder_op){.run = mamba2_run, .in = in.at, .nm = in.nm, .own = to});
}

quire_err mamba_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const mamba_desc *m = &b->d->mamba;
    linear *out;
    row_value in;
    buffer rows = BUFFER_NONE;
    TRY(binding_need_op(b, b->l->b->ops->conv != NULL, "short convolutions"));
    TRY(binding_read(b, s->from, &in));
    TRY(m->n_heads > 0 ? mamba2_bind(b, in, &rows) : mamba1_bind(b, in, &rows));
    TRY(binding_linear(b, W_MAMBA_OUT, b->d->d_model, m->n_inner, &out));
    b->rows[s->to] = (row_value){.at = rows, .product = out, .scale = m->out_scale};
    return QUIRE_OK;
}

/* A gated short convolution instead of attention: LFM2. Amini et al. 2025,
 * arXiv:2511.23404.
 *
 *   B, C, x = h W^T;  out = (C * conv(B * x)) Wo^T
 * b, c, x: [M, D]. */

typedef struct conv_block {
    linear_use products[3]; /* B, C, x */
    multiply_use in, out;
    conv_use conv;
} conv_block;

static void conv_run(const pass *p, const decoder_op *o) {
    const conv_block *c = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, c->products, 3);
    p->op->multiply(p->b, &c->in);
    p->op->conv(p->b, &c->conv);
    p->op->multiply(p->b, &c->out);
}

static quire_err conv_load_products(binding *b, conv_block *c) {
    static const char *const names[] = {"b", "c", "x"};
    static const buffer_role roles[] = {BUFFER_CONV_B, BUFFER_CONV_C, BUFFER_CONV_X};
    const int32_t width = b->d->d_model;
    for (int i = 0; i < 3; i++) {
        weight_part part = {.suffix = names[i],
                            .n_rows = 3 * (int64_t)width,
                            .first = i * (int64_t)width,
                            .block = width,
                            .step = width};
        linear *w;
        TRY(loader_linear(b->l, binding_name(b, W_CONV_IN), b->layer, &part, width, width, &w));
        c->products[i].w = w;
        TRY(binding_buffer(b, roles[i], width, &c->products[i].out));
    }
    return QUIRE_OK;
}

quire_err conv_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const int32_t width = b->d->d_model;
    conv_block *c;
    conv_taps *taps;
    linear *out;
    row_value in;
    TRY(binding_need_op(b, b->l->b->ops->conv != NULL, "short convolutions"));
    TRY(binding_new(b, 1, sizeof *c, &c));
    TRY(conv_load_products(b, c));
    TRY(loader_conv(b->l, binding_name(b, W_CONV_TAPS), b->layer, (conv_channels){0, width, width},
                    b->d->conv.n_taps, &taps));
    TRY(binding_linear(b, W_CONV_OUT, width, width, &out));
    buffer gate_b = c->products[0].out, gate_c = c->products[1].out, x = c->products[2].out;
    c->in = (multiply_use){.f = ACT_NONE, .gate = gate_b, .x = x, .out = x};
    c->conv = (conv_use){
        .cache = b->d->layers[b->layer].caches[CACHE_CONV], .w = taps, .f = ACT_NONE, .x = x, .out = x};
    c->out = (multiply_use){.f = ACT_NONE, .gate = gate_c, .x = x, .out = x};
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = x, .product = out};
    return binding_emit(b, (decoder_op){.run = conv_run, .in = in.at, .nm = in.nm, .own = c});
}

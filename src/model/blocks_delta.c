/* Linear attention instead of attention. Gated delta rule: Yang et al. 2024,
 * arXiv:2412.06464; with a decay per channel: Kimi Team 2025, arXiv:2510.26692. Lightning
 * attention: Qin et al. 2024, arXiv:2401.04658; MiniMax 2025, arXiv:2501.08313.
 *
 *   q, k, v = silu(conv(h W^T));  out = (norm(rule(q, k, v, b, a)) * f(z)) Wo^T
 * q, k: [M, G Dk]; v, z: [M, H Dv]; b: [M, H]; a: [M, H], or [M, H Dk]. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "model/decoder.h"

/* Results of the row's products. The last two are the first of two products for a and
 * z. */
typedef enum delta_piece {
    DELTA_Q,
    DELTA_K,
    DELTA_V,
    DELTA_Z,
    DELTA_B,
    DELTA_A,
    DELTA_Z_IN,
    DELTA_A_IN,
    N_DELTA_PIECES
} delta_piece;

static const char *const piece_names[N_DELTA_PIECES] = {"q", "k", "v", "z", "b", "a", "z_in", "a_in"};

typedef struct delta_block {
    linear_use products[N_DELTA_PIECES]; /* products of the row */
    int32_t n_products;
    feed_forward_use activated[3]; /* without convolutions: replace the products of q, k and v */
    int32_t n_activated;
    conv_use convs[3];
    int32_t n_convs;
    linear_use seconds[2]; /* second products, of the results of the first */
    buffer firsts[2];
    int32_t n_seconds;
    linear_attention_use heads;
    norm *nm;
    multiply_use gate;
} delta_block;

static void delta_run(const pass *p, const decoder_op *o) {
    const delta_block *r = o->own;
    for (int32_t i = 0; i < r->n_activated; i++) {
        feed_forward_use use = r->activated[i];
        use.x = o->in;
        use.nm = o->nm;
        p->op->feed_forward(p->b, &use);
    }
    p->op->norm_linears(p->b, o->in, o->nm, r->products, r->n_products);
    for (int32_t i = 0; i < r->n_convs; i++) {
        p->op->conv(p->b, &r->convs[i]);
    }
    for (int32_t i = 0; i < r->n_seconds; i++) {
        p->op->norm_linears(p->b, r->firsts[i], NULL, &r->seconds[i], 1);
    }
    p->op->linear_attention(p->b, &r->heads);
    p->op->norm_rows(p->b, r->heads.out, r->nm, r->heads.out);
    p->op->multiply(p->b, &r->gate);
}

/* ---- weights ---- */

/* Width of a piece's row. */
static int32_t piece_width(const delta_desc *r, delta_piece piece) {
    switch (piece) {
    case DELTA_Q:
    case DELTA_K:
        return r->n_key_heads * r->d_key;
    case DELTA_V:
    case DELTA_Z:
        return r->n_heads * r->d_value;
    case DELTA_B:
        return r->n_heads;
    case DELTA_A:
        return r->kind == DELTA_CHANNELS ? r->n_heads * r->d_key : r->n_heads;
    default:
        return r->d_low;
    }
}

/* Sets the location of a piece in a tensor that has the pieces `first` to `last` one
 * after the other, n_groups times. */
static void place_piece(const delta_desc *r, delta_piece first, delta_piece last, delta_piece piece,
                        int32_t n_groups, weight_part *out) {
    *out = (weight_part){.suffix = piece_names[piece], .block = piece_width(r, piece) / n_groups};
    for (int i = (int)first; i <= (int)last; i++) {
        int32_t n = piece_width(r, (delta_piece)i);
        out->n_rows += n;
        out->first += i < (int)piece ? n / n_groups : 0;
    }
    out->step = out->n_rows / n_groups;
}

/* Finds the tensor that contains a piece. False: the piece has its own tensor. */
static bool find_piece(const binding *b, delta_piece piece, weight_role *role, weight_part *part) {
    static const weight_role own[N_DELTA_PIECES] = {W_DELTA_Q,       W_DELTA_K,       W_DELTA_V,
                                                    W_DELTA_GATE,    W_DELTA_BETA,    W_DELTA_DECAY,
                                                    W_DELTA_GATE_IN, W_DELTA_DECAY_IN};
    const delta_desc *r = &b->d->delta;
    *role = own[piece];
    if (binding_has(b, W_DELTA_IN) && piece <= DELTA_A) {
        *role = W_DELTA_IN;
        place_piece(r, DELTA_Q, DELTA_A, piece, 1, part);
    } else if (binding_has(b, W_DELTA_QKVZ) && piece <= DELTA_Z) {
        *role = W_DELTA_QKVZ;
        place_piece(r, DELTA_Q, DELTA_Z, piece, r->n_key_heads, part);
    } else if (binding_has(b, W_DELTA_BA) && (piece == DELTA_B || piece == DELTA_A)) {
        *role = W_DELTA_BA;
        place_piece(r, DELTA_B, DELTA_A, piece, r->n_key_heads, part);
    } else if (binding_has(b, W_DELTA_QKV) && piece <= DELTA_V) {
        *role = W_DELTA_QKV;
        place_piece(r, DELTA_Q, DELTA_V, piece, r->kind == DELTA_LIGHTNING ? r->n_heads : 1, part);
    } else {
        return false;
    }
    return true;
}

/* Loads a piece's product. b and a are computed in f32: a state amplifies errors. */
static quire_err load_piece(binding *b, delta_piece piece, int32_t n_in, linear **out) {
    bool is_exact = piece == DELTA_B || piece == DELTA_A || piece == DELTA_A_IN;
    weight_role role;
    weight_part part;
    const weight_part *at = find_piece(b, piece, &role, &part) ? &part : NULL;
    int32_t n_out = piece_width(&b->d->delta, piece);
    return (is_exact ? loader_router_part : loader_linear)(b->l, binding_name(b, role), b->layer, at, n_out,
                                                           n_in, out);
}

static quire_err piece_buffer(binding *b, delta_piece piece, buffer *out) {
    return binding_buffer(b, (buffer_role)(BUFFER_DELTA + (int)piece), piece_width(&b->d->delta, piece), out);
}

/* Adds a piece's product to the block: of the row, or of the first of two products. */
static quire_err add_piece(binding *b, delta_piece piece, delta_block *to, buffer *out) {
    const delta_desc *r = &b->d->delta;
    bool has_first = r->d_low > 0 && (piece == DELTA_Z || piece == DELTA_A);
    linear *w;
    TRY(piece_buffer(b, piece, out));
    TRY(load_piece(b, piece, has_first ? r->d_low : b->d->d_model, &w));
    if (has_first) {
        to->seconds[to->n_seconds] = (linear_use){w, *out};
        TRY(add_piece(b, piece == DELTA_Z ? DELTA_Z_IN : DELTA_A_IN, to, &to->firsts[to->n_seconds]));
        to->n_seconds++;
    } else if (piece <= DELTA_V && r->n_taps == 0) {
        to->activated[to->n_activated++] = (feed_forward_use){.up = w, .f = b->d->activation, .h = *out};
    } else {
        to->products[to->n_products++] = (linear_use){w, *out};
    }
    return QUIRE_OK;
}

/* Loads the taps of channels `at` from one tensor, or from three concatenated. */
static quire_err load_taps(binding *b, const float *all, conv_channels at, conv_taps **out) {
    const int32_t n_taps = b->d->delta.n_taps;
    if (all == NULL) {
        return loader_conv(b->l, binding_name(b, W_DELTA_CONV), b->layer, at, n_taps, out);
    }
    tensor_view taps = {.name = "taps", .type = DTYPE_F32, .n_dims = 2, .dims = {at.n, n_taps, 1, 1}};
    taps.data = all + (size_t)at.first * (size_t)n_taps;
    taps.n_bytes = (size_t)at.n * (size_t)n_taps * sizeof *all;
    return b->l->b->ops->conv_load(b->l->b, &taps, NULL, out, b->l->err);
}

/* Adds the convolutions of q, k and v, whose states share a cache. */
static quire_err add_convs(binding *b, const float *taps, int32_t n_all, delta_block *to) {
    const delta_desc *r = &b->d->delta;
    const buffer rows[] = {to->heads.q, to->heads.k, to->heads.v};
    const activation f = b->d->activation == ACT_CLAMPED_SILU ? ACT_SILU : b->d->activation;
    int32_t first = 0, unit = 0;
    for (int i = 0; i < 3; i++) {
        int32_t n = piece_width(r, (delta_piece)i);
        conv_taps *w;
        TRY(load_taps(b, taps, (conv_channels){first, n, n_all}, &w));
        to->convs[to->n_convs++] = (conv_use){.cache = b->d->layers[b->layer].caches[CACHE_CONV],
                                              .unit = unit,
                                              .w = w,
                                              .f = f,
                                              .x = rows[i],
                                              .out = rows[i]};
        first += n;
        unit += conv_units(n);
    }
    return QUIRE_OK;
}

static quire_err load_convs(binding *b, delta_block *to) {
    const delta_desc *r = &b->d->delta;
    const weight_name own[] = {binding_name(b, W_DELTA_CONV_Q), binding_name(b, W_DELTA_CONV_K),
                               binding_name(b, W_DELTA_CONV_V)};
    float *taps = NULL;
    if (r->n_taps == 0) {
        return QUIRE_OK;
    }
    int32_t n_all = 2 * piece_width(r, DELTA_Q) + piece_width(r, DELTA_V);
    bool is_one = weight_role_is(b->l->names, W_DELTA_CONV) || binding_has(b, W_DELTA_CONV);
    if (!is_one) {
        TRY(loader_taps(b->l, own, 3, b->layer, n_all, r->n_taps, &taps));
    }
    quire_err e = add_convs(b, taps, n_all, to);
    mem_free(taps);
    return e;
}

/* ---- decays ---- */

/* Sets lightning attention's decays: geometric over the heads, smaller in late layers. */
static quire_err set_slopes(binding *b, const float **out) {
    const int32_t n = b->d->delta.n_heads;
    float *rates;
    TRY(binding_new(b, (size_t)n, sizeof *rates, &rates));
    double factor = 1.0 - (double)b->layer / ((double)(b->d->n_layers - 1) + 1e-5) + 1e-5;
    for (int32_t h = 0; h < n; h++) {
        rates[h] = (float)(pow(2.0, -8.0 * (h + 1) / n) * factor);
    }
    *out = rates;
    return QUIRE_OK;
}

/* Loads the other decays: exp(A_log), which GGUF files store directly, some negated. */
static quire_err load_rates(binding *b, const float **out) {
    const int32_t n = b->d->delta.n_heads;
    float *rates;
    TRY(binding_vector(b, W_DELTA_RATE, "", "decays of its heads", n, &rates));
    for (int32_t h = 0; h < n; h++) {
        rates[h] = binding_is_gguf(b) ? fabsf(rates[h]) : expf(rates[h]);
    }
    *out = rates;
    return QUIRE_OK;
}

/* Loads what the delta rule reads besides q, k and v. */
static quire_err load_rule(binding *b, delta_block *to) {
    const delta_desc *r = &b->d->delta;
    linear_attention_use *h = &to->heads;
    float *bias;
    h->per_channel = r->kind == DELTA_CHANNELS;
    h->decay_kind = r->lower < 0.0f ? DECAY_BOUNDED : DECAY_SOFTPLUS;
    h->lower = r->lower;
    h->beta_scale = r->beta_scale > 0.0f ? r->beta_scale : 1.0f;
    h->qk_eps = 1e-6f;
    h->q_scale = 1.0f / sqrtf((float)r->d_key);
    TRY(add_piece(b, DELTA_B, to, &h->beta));
    TRY(add_piece(b, DELTA_A, to, &h->decay));
    TRY(load_rates(b, &h->rate));
    TRY(binding_vector(b, W_DELTA_BIAS, ".bias", "biases of its decays", piece_width(r, DELTA_A), &bias));
    h->decay_bias = bias;
    return QUIRE_OK;
}

static quire_err delta_load(binding *b, delta_block *to) {
    const delta_desc *r = &b->d->delta;
    const bool is_lightning = r->kind == DELTA_LIGHTNING;
    linear_attention_use *h = &to->heads;
    *h = (linear_attention_use){.cache = b->d->layers[b->layer].caches[CACHE_STATE],
                                .n_heads = r->n_heads,
                                .n_key_heads = r->n_key_heads,
                                .d_key = r->d_key,
                                .d_value = r->d_value,
                                .cyclic = r->cyclic,
                                .q_scale = 1.0f,
                                .decay = BUFFER_NONE,
                                .beta = BUFFER_NONE};
    TRY(add_piece(b, DELTA_Q, to, &h->q));
    TRY(add_piece(b, DELTA_K, to, &h->k));
    TRY(add_piece(b, DELTA_V, to, &h->v));
    h->out = h->v;
    TRY(load_convs(b, to));
    TRY(is_lightning ? set_slopes(b, &h->rate) : load_rule(b, to));
    buffer z;
    TRY(add_piece(b, DELTA_Z, to, &z));
    to->gate = (multiply_use){.f = r->gate, .gate = z, .x = h->out, .out = h->out};
    const int32_t width = is_lightning ? r->n_heads * r->d_value : r->d_value;
    const norm_spec spec = {
        .kind = NORM_RMS, .width = width, .eps = r->norm_eps > 0.0f ? r->norm_eps : b->d->norm_eps};
    return loader_norm(b->l, binding_name(b, W_DELTA_NORM), b->layer, &spec, width, &to->nm);
}

quire_err delta_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    const delta_desc *r = &b->d->delta;
    const backend_ops *ops = b->l->b->ops;
    delta_block *to;
    linear *out;
    row_value in;
    TRY(binding_need_op(b, ops->linear_attention != NULL && ops->conv != NULL, "linear attention"));
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(delta_load(b, to));
    TRY(binding_linear(b, W_DELTA_OUT, b->d->d_model, piece_width(r, DELTA_V), &out));
    if (s->from == X) { /* several ops read the row, so its norm is applied once */
        TRY(binding_settle(b, X));
    }
    TRY(binding_read(b, s->from, &in));
    b->rows[s->to] = (row_value){.at = to->heads.out, .product = out};
    return binding_emit(b, (decoder_op){.run = delta_run, .in = in.at, .nm = in.nm, .own = to});
}

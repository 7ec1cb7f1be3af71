/* A mixture of experts: a router, the experts that it chooses for each row, and a shared
 * expert for all rows. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/decoder.h"

typedef struct moe_block {
    linear *router;
    const norm *router_norm; /* NULL: the router reads the experts' input */
    routing how;
    experts_use use;
    linear *shared_gate, *shared_up, *shared_down, *shared_router; /* NULL: no shared expert */
    linear *latent_down, *latent_up; /* NULL: experts read and write rows of the model's width */
    norm *latent_norm;               /* norm of the experts' input, or NULL */
    buffer in;                       /* router and shared expert read norm(in) */
    const norm *nm;                  /* may be NULL */
    buffer sum, logits, shared, shared_logit;
    activation shared_f;
    float shared_limit, shared_scale;
} moe_block;

/* Location of an expert's weight in the file. */
typedef struct expert_place {
    weight_role role;
    const char *what; /* "gate" */
    int32_t half;     /* in a matrix of gate and up: 0 gate, 1 up; -1: in its own tensor */
    int64_t n_out, n_in;
} expert_place;

/* Loads one weight of expert e: a slab of a stacked tensor, or its own tensor. */
static quire_err moe_load_weight(binding *b, int32_t e, expert_place at, linear **out) {
    char memory[WEIGHT_NAME_BYTES], suffix[24];
    weight_name name = binding_name(b, at.role);
    const bool is_list = !binding_is_gguf(b) && weight_name_is_list(name);
    weight_part p = {.suffix = suffix, .n_rows = at.n_out, .block = at.n_out, .step = at.n_out};
    if (is_list) {
        name = weight_name_at(name, b->layer, e, memory);
        (void)snprintf(suffix, sizeof suffix, "%s", at.what);
    } else {
        (void)snprintf(suffix, sizeof suffix, "%d.%s", (int)e, at.what);
        p.slab = e;
        p.n_slabs = b->d->layers[b->layer].n_experts;
        p.transposed = b->d->moe.transposed && !binding_is_gguf(b);
    }
    if (at.half >= 0) {
        p.n_rows = 2 * at.n_out;
        p.first = at.half * at.n_out;
        if (b->d->moe.interleaved && !binding_is_gguf(b)) {
            p.first = at.half;
            p.block = 1;
            p.step = 2;
        }
    }
    return loader_linear(b->l, name, b->layer, is_list && at.half < 0 ? NULL : &p, at.n_out, at.n_in, out);
}

/* The role of the down matrix. In files whose experts are laid out the other way (a stack
 * instead of a list, or a list instead of a stack), its name is W_EXPERTS_DOWN's. */
static weight_role moe_down_role(binding *b, bool pair) {
    const bool is_list = weight_name_is_list(binding_name(b, W_EXPERTS_DOWN));
    const bool is_other = is_list ? !pair && !binding_is_gguf(b) : pair && binding_has(b, W_EXPERTS_DOWN);
    return is_other ? W_EXPERTS_DOWN : W_EXPERT_DOWN;
}

static quire_err moe_load_expert(binding *b, int32_t e, linear **gate, linear **up, linear **down) {
    const moe_desc *moe = &b->d->moe;
    int64_t f = moe->d_expert, width = moe->d_latent > 0 ? moe->d_latent : b->d->d_model;
    bool pair = binding_has(b, W_EXPERT_GATE_UP);
    const weight_role down_role = moe_down_role(b, pair);
    weight_role gate_role = pair ? W_EXPERT_GATE_UP : W_EXPERT_GATE,
                up_role = pair ? W_EXPERT_GATE_UP : W_EXPERT_UP;
    pair = pair || (!binding_is_gguf(b) && /* a matrix of gate and up for each expert */
                    strcmp(binding_name(b, gate_role).hf, binding_name(b, up_role).hf) == 0);
    if (!b->d->ungated) {
        TRY(moe_load_weight(b, e, (expert_place){gate_role, "gate", pair ? 0 : -1, f, width}, gate));
    }
    TRY(moe_load_weight(b, e, (expert_place){up_role, "up", pair ? 1 : -1, f, width}, up));
    return moe_load_weight(b, e, (expert_place){down_role, "down", -1, width, f}, down);
}

/* Marks weights of experts that return their input as used; they are not read. */
static quire_err moe_skip_identity(binding *b, const routing *how) {
    static const weight_role roles[] = {W_EXPERT_GATE, W_EXPERT_UP, W_EXPERT_DOWN};
    for (int32_t e = how->n_experts - how->n_identity; e < how->n_experts; e++) {
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            char memory[WEIGHT_NAME_BYTES];
            const weight_name name = weight_name_at(binding_name(b, roles[i]), b->layer, e, memory);
            const tensor_view *t;
            TRY(loader_find(b->l, name, b->layer, ".weight", &t));
        }
    }
    return QUIRE_OK;
}

/* Loads the norm of each expert's result, whose weights come first. */
static quire_err moe_load_result_norm(binding *b, const norm **out) {
    const int32_t width = b->d->moe.d_latent > 0 ? b->d->moe.d_latent : b->d->d_model;
    const norm_spec spec = {.kind = NORM_RMS_WEIGHED,
                            .width = width,
                            .eps = b->d->norm.post_eps > 0.0f ? b->d->norm.post_eps : b->d->norm_eps,
                            .add_one = b->d->norm.add_one && !binding_is_gguf(b)};
    norm *nm = NULL;
    if (b->d->moe.result_norm) {
        TRY(loader_norm(b->l, binding_name(b, W_EXPERT_RESULT_NORM), b->layer, &spec, width, &nm));
    }
    *out = nm;
    return QUIRE_OK;
}

static quire_err moe_load_experts(binding *b, const routing *how, experts **out) {
    loader *l = b->l;
    int32_t n = how->n_experts - how->n_identity;
    linear **all = mem_new(3 * (size_t)n, sizeof(linear *));
    TRY(err_set(l->err, mem_check(all), -1, "out of memory while loading"));
    linear **gate = all, **up = all + n, **down = all + 2 * n;
    quire_err e = QUIRE_OK;
    for (int32_t x = 0; x < n && e == QUIRE_OK; x++) {
        e = moe_load_expert(b, x, &gate[x], &up[x], &down[x]);
    }
    experts_weights weights = {.routing = how, .gate = b->d->ungated ? NULL : gate, .up = up, .down = down};
    TRY_DONE(e, moe_skip_identity(b, how));
    TRY_DONE(e, moe_load_result_norm(b, &weights.result_norm));
    TRY_DONE(e, l->b->ops->experts_load(l->b, &weights, out, l->err));
done:
    mem_free(all);
    return e;
}

static quire_err moe_load_shared(binding *b, moe_block *m) {
    int32_t f = b->d->moe.d_shared, width = b->d->d_model;
    if (f == 0) {
        return QUIRE_OK;
    }
    if (binding_has(b, W_SHARED_GATE_UP) && !binding_has(b, W_SHARED_GATE)) {
        TRY(binding_pair(b, W_SHARED_GATE_UP, f, width, &m->shared_gate, &m->shared_up));
    } else {
        if (!b->d->ungated) {
            TRY(binding_linear(b, W_SHARED_GATE, f, width, &m->shared_gate));
        }
        TRY(binding_linear(b, W_SHARED_UP, f, width, &m->shared_up));
    }
    TRY(binding_linear(b, W_SHARED_DOWN, width, f, &m->shared_down));
    TRY(binding_buffer(b, BUFFER_SHARED, f, &m->shared));
    if (!b->d->moe.shared_gate) {
        return QUIRE_OK;
    }
    TRY(loader_router(b->l, binding_name(b, W_SHARED_ROUTER), b->layer, 1, width, &m->shared_router));
    return binding_buffer(b, BUFFER_GATE, 1, &m->shared_logit);
}

/* Loads the router's norm: its weights are the file's over the root of their number. */
static quire_err moe_load_router_norm(binding *b, const norm **out) {
    const int32_t width = b->d->d_model;
    norm *made;
    float *scale;
    TRY(binding_vector(b, W_ROUTER_NORM, "", "scale of its router", width, &scale));
    for (int32_t i = 0; i < width; i++) {
        scale[i] /= sqrtf((float)width);
    }
    tensor_view weight = {
        .name = "router.scale", .type = DTYPE_F32, .n_dims = 1, .dims = {width, 1, 1, 1}, .data = scale};
    weight.n_bytes = (size_t)width * sizeof *scale;
    const norm_spec spec = {.kind = NORM_RMS, .width = width, .eps = b->d->norm_eps, .weight = &weight};
    TRY(b->l->b->ops->norm_load(b->l->b, &spec, &made, b->l->err));
    *out = made;
    return QUIRE_OK;
}

static quire_err moe_load_router(binding *b, moe_block *m) {
    const moe_desc *moe = &b->d->moe;
    int32_t n = b->d->layers[b->layer].n_experts;
    float *correction = NULL, *scales = NULL;
    const bool has_images = moe->n_image_experts > 0;
    const weight_part turned = {.suffix = "t", .n_rows = n, .block = n, .step = n, .transposed = true};
    TRY(loader_router_part(b->l, binding_name(b, W_ROUTER), b->layer, has_images ? &turned : NULL, n,
                           b->d->d_model, &m->router));
    TRY(binding_buffer(b, BUFFER_ROUTER, n, &m->logits));
    if (moe->correction_bias && has_images) {
        TRY(loader_first_row(b->l, binding_name(b, W_ROUTER_BIAS), b->layer, "", 2, n, &correction));
        TRY(binding_keep(b, correction));
    } else if (moe->correction_bias) {
        const weight_name bias = binding_name(b, W_ROUTER_BIAS); /* some GGUF files leave out the suffix */
        const char *suffix = loader_look(b->l, bias, b->layer, ".bias") != NULL ? ".bias" : "";
        TRY(binding_vector(b, W_ROUTER_BIAS, suffix, "correction bias for its experts", n, &correction));
    }
    if (moe->router_norm) {
        TRY(moe_load_router_norm(b, &m->router_norm));
        TRY(binding_vector(b, W_EXPERT_SCALES, "", "scales of its experts", n, &scales));
    }
    m->how = (routing){.n_experts = n,
                       .n_used = moe->n_used,
                       .n_identity = moe->n_identity,
                       .n_groups = moe->n_groups,
                       .n_groups_used = moe->n_groups_used,
                       .score = moe->score,
                       .group_by_best_two = moe->group_by_best_two,
                       .by_logits = moe->choose_by_logits,
                       .cap = moe->logit_cap,
                       .closed_is_zero = moe->closed_is_zero,
                       .bias = correction,
                       .renormalise = moe->renormalise,
                       .scale = moe->scale == 0.0f ? 1.0f : moe->scale,
                       .expert_scales = scales,
                       .scale_inputs = moe->scale_inputs,
                       .jitter_eps = moe->jitter_eps};
    return QUIRE_OK;
}

/* sum += scale * shared(norm(in)), times the sigmoid of its own logit if it has one. */
static void moe_run_shared(const pass *p, const moe_block *m) {
    p->op->feed_forward(p->b, &(feed_forward_use){.x = m->in,
                                                  .nm = m->nm,
                                                  .gate = m->shared_gate,
                                                  .up = m->shared_up,
                                                  .f = m->shared_f,
                                                  .limit = m->shared_limit,
                                                  .h = m->shared,
                                                  .reader = m->shared_router ? NULL : m->shared_down});
    if (m->shared_router != NULL) {
        p->op->norm_linears(p->b, m->in, m->nm, &(linear_use){m->shared_router, m->shared_logit}, 1);
        p->op->multiply(
            p->b,
            &(multiply_use){.f = ACT_SIGMOID, .gate = m->shared_logit, .x = m->shared, .out = m->shared});
    }
    p->op->linear_add(p->b, m->shared, &(linear_use){m->shared_down, m->sum}, m->shared_scale, m->sum);
}

static void moe_run(const pass *p, const decoder_op *o) {
    const moe_block *m = o->own;
    const norm *nm = m->router_norm != NULL ? m->router_norm : m->nm;
    const float scale = p->d->moe.router_scale;
    p->op->norm_linears(p->b, m->in, nm, &(linear_use){m->router, m->logits}, 1);
    if (scale != 0.0f) {
        p->op->scale_rows(p->b, scale, m->logits);
    }
    p->op->route(p->b, &m->how, m->logits);
    if (m->latent_down != NULL) {
        p->op->norm_linears(p->b, m->in, m->nm, &(linear_use){m->latent_down, m->use.x}, 1);
    }
    p->op->experts(p->b, &m->use);
    if (m->latent_up != NULL) {
        p->op->norm_linears(p->b, m->use.y, NULL, &(linear_use){m->latent_up, m->sum}, 1);
    }
    if (m->shared_up != NULL) {
        moe_run_shared(p, m);
    }
}

/* Applies a layer's own limit, if it has one. */
static void set_limit(float limit, activation *f, float *to) {
    *f = limit > 0.0f && !activation_has_limit(*f) ? ACT_SILU_CLAMPED : *f;
    *to = limit > 0.0f ? limit : *to;
}

/* Sets what the experts read and write: the layer's rows, or a latent's narrower ones. */
static quire_err moe_load_latent(binding *b, moe_block *m) {
    const int32_t width = b->d->moe.d_latent;
    m->use.x = m->in;
    m->use.nm = m->nm;
    m->use.y = m->sum;
    if (width == 0) {
        return QUIRE_OK;
    }
    TRY(binding_linear(b, W_EXPERTS_IN, width, b->d->d_model, &m->latent_down));
    TRY(binding_linear(b, W_EXPERTS_OUT, b->d->d_model, width, &m->latent_up));
    TRY(binding_buffer(b, BUFFER_NARROW, width, &m->use.x));
    m->use.nm = NULL;
    if (b->d->moe.latent_norm) {
        const norm_spec spec = {.kind = NORM_RMS,
                                .width = width,
                                .eps = b->d->norm_eps,
                                .add_one = b->d->norm.add_one && !binding_is_gguf(b)};
        TRY(loader_norm(b->l, binding_name(b, W_EXPERTS_IN_NORM), b->layer, &spec, width, &m->latent_norm));
        m->use.nm = m->latent_norm;
    }
    return binding_buffer(b, BUFFER_NARROW_SUM, width, &m->use.y);
}

/* All experts of a layer read the same rows, so their sum has its own row. */
quire_err moe_bind(binding *b, const layer_step *s) {
    const moe_desc *moe = &b->d->moe;
    moe_block *m;
    experts *all;
    row_value in;
    TRY(binding_new(b, 1, sizeof *m, &m));
    TRY(moe_load_router(b, m));
    TRY(moe_load_experts(b, &m->how, &all));
    TRY(moe_load_shared(b, m));
    if (s->from == X) { /* router and experts both read the row, so its norm is applied once */
        TRY(binding_settle(b, X));
    }
    TRY(binding_read(b, s->from, &in));
    TRY(binding_row(b, s->to, &m->sum));
    assert(in.at.id != m->sum.id && (in.nm != NULL || m->router_norm == NULL));
    m->in = in.at;
    m->nm = in.nm;
    m->use = (experts_use){.w = all, .f = moe->activation, .limit = moe->limit, .scale = 1.0f};
    set_limit(b->d->layers[b->layer].limit, &m->use.f, &m->use.limit);
    m->shared_f = b->d->activation;
    set_limit(b->d->layers[b->layer].dense_limit, &m->shared_f, &m->shared_limit);
    m->use.scale = m->shared_scale = moe->shared_mean && m->shared_up != NULL ? 0.5f : 1.0f;
    m->use.overwrite = true;
    TRY(moe_load_latent(b, m));
    b->rows[s->to] = (row_value){.at = m->sum};
    return binding_emit(b, (decoder_op){.run = moe_run, .own = m});
}

/* The dense feed-forward part of a layer (gated: Shazeer 2020, arXiv:2002.05202), and the
 * block for the own input of each layer in Gemma 4's small models. */

static quire_err mlp_load(binding *b, int32_t f, linear **gate, linear **up, linear **down) {
    int32_t width = b->d->d_model;
    bool gated = !b->d->ungated;
    if (gated && binding_has(b, W_GATE_UP) && !binding_has(b, W_GATE)) {
        TRY(binding_pair(b, W_GATE_UP, f, width, gate, up));
    } else {
        TRY(binding_linear(b, W_UP, f, width, up));
        if (gated) {
            TRY(binding_linear(b, W_GATE, f, width, gate));
        }
    }
    return binding_linear(b, W_DOWN, width, f, down);
}

/* The first half of the part, and the norm after it. */
typedef struct mlp_block {
    feed_forward_use use;
    linear_use halves[2];  /* gate and up, if the gate is scaled before its function; w NULL: it is not */
    norm *inner_norm;      /* NULL: none */
    norm *above;           /* applied to the gate first; NULL: none */
    multiply_use multiply; /* if there is `above`: up times the activated gate */
    xielu_desc xielu;
} mlp_block;

static void mlp_run(const pass *p, const decoder_op *o) {
    const mlp_block *m = o->own;
    const feed_forward_use *use = &m->use;
    if (m->above != NULL) {
        const linear_use both[] = {{use->gate, m->multiply.gate}, {use->up, use->h}};
        p->op->norm_linears(p->b, use->x, use->nm, both, 2);
        p->op->norm_rows(p->b, m->multiply.gate, m->above, m->multiply.gate);
        p->op->multiply(p->b, &m->multiply);
    } else if (m->halves[0].w != NULL) {
        p->op->norm_linears(p->b, use->x, use->nm, m->halves, 2);
        p->op->scale_rows(p->b, p->d->gate_scale, use->h);
        p->op->multiply(p->b,
                        &(multiply_use){.f = use->f, .gate = use->h, .x = m->halves[1].out, .out = use->h});
    } else {
        p->op->feed_forward(p->b, use);
    }
    if (m->inner_norm != NULL) {
        p->op->norm_rows(p->b, use->h, m->inner_norm, use->h);
    }
}

static quire_err mlp_set_cutoff(binding *b, int32_t f, mlp_block *m) {
    const norm_spec spec = {.kind = NORM_ABOVE, .width = f, .cutoff = b->d->layers[b->layer].cutoff};
    if (spec.cutoff <= 0.0f) {
        return QUIRE_OK;
    }
    TRY(b->l->b->ops->norm_load(b->l->b, &spec, &m->above, b->l->err));
    m->multiply = (multiply_use){.f = m->use.f, .x = m->use.h, .out = m->use.h};
    return binding_buffer(b, BUFFER_GATE, f, &m->multiply.gate);
}

quire_err mlp_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    int32_t f = b->d->layers[b->layer].d_ff;
    mlp_block *m;
    linear *gate = NULL, *up, *down;
    row_value in;
    buffer h;
    TRY(mlp_load(b, f, &gate, &up, &down));
    TRY(binding_buffer(b, BUFFER_H, f, &h));
    TRY(binding_read(b, s->from, &in));
    TRY(binding_new(b, 1, sizeof *m, &m));
    if (b->d->norm.inner) {
        const norm_spec spec = {.kind = b->d->norm.kind, .width = f, .eps = b->d->norm_eps};
        TRY(loader_norm(b->l, binding_name(b, W_FFN_INNER_NORM), b->layer, &spec, f, &m->inner_norm));
    }
    m->xielu = b->d->layers[b->layer].xielu;
    m->use =
        (feed_forward_use){.x = in.at, .nm = in.nm, .gate = gate, .up = up, .f = b->d->activation, .h = h};
    m->use.xielu = &m->xielu;
    set_limit(b->d->layers[b->layer].dense_limit, &m->use.f, &m->use.limit);
    m->use.reader = m->inner_norm == NULL ? down : NULL;
    TRY(mlp_set_cutoff(b, f, m));
    b->rows[s->to] = (row_value){.at = h, .product = down, .scale = b->d->down_scale};
    if (gate != NULL && b->d->gate_scale != 0.0f && b->d->gate_scale != 1.0f) {
        m->halves[0] = (linear_use){gate, h};
        m->halves[1].w = up;
        TRY(binding_buffer(b, BUFFER_UP, f, &m->halves[1].out));
    }
    return binding_emit(b, (decoder_op){.run = mlp_run, .own = m});
}

/* ---- inputs of layers, computed from the token and its embedding ---- */

/* Computes the own inputs of all layers. */
typedef struct layer_inputs {
    embedding *table; /* [V, L P]: a row of P per layer */
    linear *projection;
    norm *projection_norm;
    buffer projected;
} layer_inputs;

/* The block of one layer. */
typedef struct layer_input {
    linear *gate;
    multiply_use multiply;
} layer_input;

/* (norm(x W^T / sqrt(D)) + sqrt(P) * the token's row) / sqrt(2), normed per layer. */
static void inputs_run(const pass *p, const decoder_op *o) {
    const layer_inputs *in = o->own;
    float root = sqrtf((float)p->d->embed.d_layer_input);
    const int32_t n_known = p->d->embed.n_input_rows;
    p->op->embed(p->b, &(embed_use){.tokens = in->table, .scale = root, .n_known = n_known, .x = o->out});
    p->op->norm_linears(p->b, o->in, NULL, &(linear_use){in->projection, in->projected}, 1);
    p->op->scale_rows(p->b, 1.0f / sqrtf((float)p->d->d_model), in->projected);
    p->op->norm_add(p->b, in->projected, in->projection_norm, 1.0f, o->out);
    p->op->scale_rows(p->b, sqrtf(0.5f), o->out);
}

quire_err inputs_bind(binding *b) {
    assert(b != NULL);
    int32_t p = b->d->embed.d_layer_input, width = b->d->n_layers * p;
    const tensor_view *table = NULL;
    layer_inputs *in;
    TRY(binding_new(b, 1, sizeof *in, &in));
    TRY(loader_find(b->l, binding_name(b, W_INPUT_TABLE), NO_LAYER, ".weight", &table));
    /* the table may have more ids than the model */
    int64_t n_rows = b->d->embed.n_input_rows > 0 ? b->d->embed.n_input_rows : b->d->n_vocab;
    n_rows = table != NULL && table->dims[0] > n_rows ? table->dims[0] : n_rows;
    TRY(loader_embedding(b->l, binding_name(b, W_INPUT_TABLE), NULL, n_rows, width, &in->table));
    TRY(loader_kept_linear(b->l, binding_name(b, W_INPUT_PROJECTION), NO_LAYER, NULL, width, b->d->d_model,
                           &in->projection));
    const norm_spec spec = {.kind = NORM_RMS, .width = p, .eps = b->d->norm_eps};
    TRY(loader_norm(b->l, binding_name(b, W_INPUT_PROJECTION_NORM), NO_LAYER, &spec, p,
                    &in->projection_norm));
    TRY(binding_buffer(b, BUFFER_INPUTS, width, &b->w->inputs));
    TRY(binding_buffer(b, BUFFER_PROJECTED, width, &in->projected));
    return binding_emit(b, (decoder_op){.run = inputs_run, .in = b->w->x, .out = b->w->inputs, .own = in});
}

/* f(norm(in) gate^T) * input. */
static void input_run(const pass *p, const decoder_op *o) {
    const layer_input *in = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, &(linear_use){in->gate, o->out}, 1);
    p->op->multiply(p->b, &in->multiply);
}

quire_err input_bind(binding *b, const layer_step *s) {
    assert(b != NULL);
    int32_t p = b->d->embed.d_layer_input;
    layer_input *to;
    linear *down;
    row_value in;
    buffer rows;
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(binding_linear(b, W_INPUT_GATE, p, b->d->d_model, &to->gate));
    TRY(binding_linear(b, W_INPUT_OUT, b->d->d_model, p, &down));
    TRY(binding_buffer(b, BUFFER_GATE, p, &rows));
    TRY(binding_read(b, s->from, &in));
    to->multiply = (multiply_use){
        .f = b->d->activation, .gate = rows, .x = b->w->inputs, .column = b->layer * p, .out = rows};
    b->rows[s->to] = (row_value){.at = rows, .product = down};
    return binding_emit(b, (decoder_op){.run = input_run, .in = in.at, .nm = in.nm, .out = rows, .own = to});
}

/* A mixture of experts: a router, the experts that it chooses for each row, and a shared
 * one that every row goes through. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/decoder.h"

/* How an expert's weight lies in the file. */
typedef struct expert_place {
    weight_role role;
    const char *what; /* "gate" */
    int32_t half;     /* of W_EXPERT_GATE_UP: 0 gate, 1 up; -1: a tensor of its own */
    int64_t n_out, n_in;
} expert_place;

/* Loads one weight of expert e: a slab of a stacked tensor, or a tensor of its own. */
static quire_err load_weight(loader *l, const model_desc *d, const arch_names *names, int32_t layer,
                             int32_t e, expert_place at, linear **out) {
    char memory[WEIGHT_NAME_BYTES], suffix[24];
    bool is_gguf = model_file_format(l->file) == MODEL_GGUF;
    weight_name name = weight_name_of(names, at.role);
    bool stacked =
        is_gguf || strstr(name.hf, "%d") == NULL || strstr(strstr(name.hf, "%d") + 2, "%d") == NULL;
    if (!stacked) {
        return loader_linear(l, weight_name_at(name, layer, e, memory), layer, NULL, at.n_out, at.n_in, out);
    }
    (void)snprintf(suffix, sizeof suffix, "%d.%s", (int)e, at.what);
    weight_part p = {.suffix = suffix,
                     .n_rows = at.n_out,
                     .block = at.n_out,
                     .step = at.n_out,
                     .slab = e,
                     .n_slabs = d->layers[layer].n_experts};
    p.transposed = d->moe.transposed && !is_gguf;
    if (at.half >= 0) {
        p.n_rows = 2 * at.n_out;
        p.first = at.half * at.n_out;
        if (d->moe.interleaved && !is_gguf) {
            p.first = at.half;
            p.block = 1;
            p.step = 2;
        }
    }
    return loader_linear(l, name, layer, &p, at.n_out, at.n_in, out);
}

static quire_err load_expert(loader *l, const model_desc *d, const arch_names *names, int32_t layer,
                             int32_t e, linear **gate, linear **up, linear **down) {
    int64_t f = d->moe.d_expert, width = d->d_model;
    bool pair = loader_has(l, weight_name_of(names, W_EXPERT_GATE_UP), layer);
    weight_role gate_role = pair ? W_EXPERT_GATE_UP : W_EXPERT_GATE,
                up_role = pair ? W_EXPERT_GATE_UP : W_EXPERT_UP;
    TRY(load_weight(l, d, names, layer, e, (expert_place){gate_role, "gate", pair ? 0 : -1, f, width}, gate));
    TRY(load_weight(l, d, names, layer, e, (expert_place){up_role, "up", pair ? 1 : -1, f, width}, up));
    return load_weight(l, d, names, layer, e, (expert_place){W_EXPERT_DOWN, "down", -1, width, f}, down);
}

static quire_err load_shared(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    moe_block *m = &w->layers[i].moe;
    int64_t f = d->moe.d_shared;
    if (f == 0) {
        return QUIRE_OK;
    }
    if (loader_has(l, weight_name_of(names, W_SHARED_GATE_UP), i)) {
        TRY(decoder_pair(l, names, W_SHARED_GATE_UP, i, f, d->d_model, &m->shared_gate, &m->shared_up));
    } else {
        TRY(decoder_linear(l, d, names, W_SHARED_GATE, i, f, d->d_model, &m->shared_gate));
        TRY(decoder_linear(l, d, names, W_SHARED_UP, i, f, d->d_model, &m->shared_up));
    }
    TRY(decoder_linear(l, d, names, W_SHARED_DOWN, i, d->d_model, f, &m->shared_down));
    TRY(decoder_buffer(l, w, BUFFER_SHARED, (int32_t)f, &w->shared));
    if (!d->moe.shared_gate) {
        return QUIRE_OK;
    }
    TRY(loader_router(l, weight_name_of(names, W_SHARED_ROUTER), i, 1, d->d_model, &m->shared_router));
    return decoder_buffer(l, w, BUFFER_GATE, 1, &w->gate);
}

static quire_err load_router(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    moe_block *m = &w->layers[i].moe;
    const moe_desc *moe = &d->moe;
    int32_t n = d->layers[i].n_experts;
    TRY(loader_router(l, weight_name_of(names, W_ROUTER), i, n, d->d_model, &m->router));
    TRY(decoder_buffer(l, w, BUFFER_ROUTER, n, &w->router));
    if (moe->correction_bias) {
        bool is_gguf = model_file_format(l->file) == MODEL_GGUF;
        TRY(loader_vector(l, weight_name_of(names, W_ROUTER_BIAS), i, is_gguf ? ".bias" : "", n,
                          &m->correction));
        if (m->correction == NULL) {
            return err_set(l->err, QUIRE_BAD_FILE, -1,
                           "%s: layer %d has no correction bias for its experts: the file is incomplete",
                           model_file_path(l->file), i);
        }
    }
    m->how = (routing){.n_experts = n,
                       .n_used = moe->n_used,
                       .n_groups = moe->n_groups,
                       .n_groups_used = moe->n_groups_used,
                       .score = moe->score,
                       .group_by_best_two = moe->group_by_best_two,
                       .bias = m->correction,
                       .renormalise = moe->renormalise,
                       .scale = moe->scale == 0.0f ? 1.0f : moe->scale,
                       .scale_inputs = moe->scale_inputs,
                       .jitter_eps = moe->jitter_eps};
    return QUIRE_OK;
}

quire_err moe_load(loader *l, const model_desc *d, const arch_names *names, int32_t i, decoder *w) {
    moe_block *m = &w->layers[i].moe;
    int32_t n = d->layers[i].n_experts;
    TRY(load_router(l, d, names, i, w));
    linear **all = mem_new(3 * (size_t)n, sizeof(linear *));
    if (all == NULL) {
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
    }
    linear **gate = all, **up = all + n, **down = all + 2 * n;
    quire_err e = QUIRE_OK;
    for (int32_t x = 0; x < n && e == QUIRE_OK; x++) {
        e = load_expert(l, d, names, i, x, &gate[x], &up[x], &down[x]);
    }
    const experts_weights weights = {.routing = &m->how, .gate = gate, .up = up, .down = down};
    e = e ? e : l->b->ops->experts_load(l->b, &weights, &m->experts, l->err);
    mem_free(all);
    return e ? e : load_shared(l, d, names, i, w);
}

/* y += shared(nm(in)), times the sigmoid of its own logit where it has one. */
static void run_shared(const pass *p, const moe_block *m, buffer in, const norm *nm, float scale, buffer y) {
    const decoder *w = p->w;
    p->op->feed_forward(p->b, &(feed_forward_use){.x = in,
                                                  .nm = nm,
                                                  .gate = m->shared_gate,
                                                  .up = m->shared_up,
                                                  .f = p->d->activation,
                                                  .h = w->shared,
                                                  .reader = m->shared_router ? NULL : m->shared_down});
    if (m->shared_router != NULL) {
        p->op->norm_linears(p->b, in, nm, &(linear_use){m->shared_router, w->gate}, 1);
        p->op->multiply(p->b, &(multiply_use){ACT_SIGMOID, w->gate, w->shared, 0, w->shared});
    }
    p->op->linear_add(p->b, w->shared, &(linear_use){m->shared_down, y}, scale, y);
}

/* All of a layer's experts read the same rows, so the sum is collected in a row of its
 * own where they read the residual itself. */
void moe_run(const pass *p, int32_t i, buffer in, const norm *nm) {
    const decoder *w = p->w;
    const decoder_layer *l = &w->layers[i];
    float scale = p->d->blocks.residual_scale == 0.0f ? 1.0f : p->d->blocks.residual_scale;
    p->op->norm_linears(p->b, in, nm, &(linear_use){l->moe.router, w->router}, 1);
    p->op->route(p->b, &l->moe.how, w->router);
    buffer sum = in.id == w->z.id ? w->y : w->z;
    p->op->experts(p->b, &(experts_use){.x = in,
                                        .nm = nm,
                                        .w = l->moe.experts,
                                        .f = p->d->moe.activation,
                                        .limit = p->d->moe.limit,
                                        .scale = 1.0f,
                                        .overwrite = true,
                                        .y = sum});
    if (l->moe.shared_up != NULL) {
        run_shared(p, &l->moe, in, nm, 1.0f, sum);
    }
    p->op->norm_add(p->b, sum, l->ffn_post_norm, scale, w->x);
}

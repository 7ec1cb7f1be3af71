/* Gemma 4: layers with windows and narrow heads, and one in several without and with wide
 * ones, whose values may be their keys. The last layers read the cache of an earlier one.
 * In the small models each layer also has an input of its own, made from the token; in
 * the model of experts these stand beside the MLP. */
#include <math.h>

#include "model/architectures.h"
#include "model/gemma4.h"

static const arch_names gemma4_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm",
           [W_ROUTER] = "model.layers.%d.router.proj",
           [W_EXPERT_GATE_UP] = "model.layers.%d.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.experts.down_proj"},
};

/* The layers' inputs: (norm(x W^T / sqrt(D)) + sqrt(P) * the token's row) / sqrt(2), each
 * layer's part normed by itself. */
static void make_inputs(const pass *p, const gemma4 *g) {
    float root = sqrtf((float)p->d->blocks.d_layer_input);
    p->op->embed(p->b, &(embed_use){.tokens = g->inputs, .scale = root, .x = g->input_rows});
    p->op->norm_linears(p->b, p->w->x, NULL, &(linear_use){g->projection, g->projected_rows}, 1);
    p->op->scale_rows(p->b, 1.0f / sqrtf((float)p->d->d_model), g->projected_rows);
    p->op->norm_add(p->b, g->projected_rows, g->projection_norm, 1.0f, g->input_rows);
    p->op->scale_rows(p->b, sqrtf(0.5f), g->input_rows);
}

/* x += post(mlp_post(MLP(x)) + experts_post(experts(x))). The router reads x through a
 * norm of its own. */
static void run_mlp_and_experts(const pass *p, const gemma4_layer *own, const decoder_layer *l) {
    const decoder *w = p->w;
    p->op->feed_forward(p->b, &(feed_forward_use){.x = w->x,
                                                  .nm = l->ffn_norm,
                                                  .gate = l->gate,
                                                  .up = l->up,
                                                  .f = p->d->activation,
                                                  .h = l->h_rows,
                                                  .reader = l->down});
    p->op->norm_linears(p->b, l->h_rows, NULL, &(linear_use){l->down, w->y}, 1);
    p->op->norm_rows(p->b, w->y, own->mlp_post_norm, w->y);
    p->op->norm_linears(p->b, w->x, own->router_norm, &(linear_use){l->moe.router, w->router}, 1);
    p->op->route(p->b, &l->moe.how, w->router);
    p->op->experts(p->b, &(experts_use){.x = w->x,
                                        .nm = own->experts_norm,
                                        .w = l->moe.experts,
                                        .f = p->d->moe.activation,
                                        .scale = 1.0f,
                                        .overwrite = true,
                                        .y = w->z});
    p->op->norm_add(p->b, w->z, own->experts_post_norm, 1.0f, w->y);
    p->op->norm_add(p->b, w->y, l->ffn_post_norm, 1.0f, w->x);
}

/* x += post((f(x gate^T) * input) out^T). */
static void add_input(const pass *p, const gemma4 *g, const gemma4_layer *own, int32_t i) {
    int32_t column = i * p->d->blocks.d_layer_input;
    p->op->norm_linears(p->b, p->w->x, NULL, &(linear_use){own->input_gate, g->gate_rows}, 1);
    p->op->multiply(p->b,
                    &(multiply_use){p->d->activation, g->gate_rows, g->input_rows, column, g->gate_rows});
    branch_add(p, g->gate_rows, own->input_out, own->input_post_norm);
}

static void forward(const model *m, const batch *rows) {
    const gemma4 *g = m->weights;
    const pass p = {m->b, m->b->ops, &m->desc, g->w};
    decoder_begin(&p, rows);
    if (g->inputs != NULL) {
        make_inputs(&p, g);
    }
    for (int32_t i = 0; i < g->n_layers; i++) {
        const decoder_layer *l = &g->w->layers[i];
        attention_run(&p, i, g->w->x, l->attn_norm);
        if (l->moe.experts != NULL) {
            run_mlp_and_experts(&p, &g->layers[i], l);
        } else {
            mlp_run(&p, i, g->w->x, l->ffn_norm);
        }
        if (g->inputs != NULL) {
            add_input(&p, g, &g->layers[i], i);
        }
        p.op->scale_rows(p.b, g->layers[i].scale[0], g->w->x);
    }
    decoder_end(&p, rows);
}

static buffer hidden(const model *m) {
    return ((const gemma4 *)m->weights)->w->x;
}

const arch arch_gemma4 = {.gguf = {"gemma4"},
                          .hf = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
                          .names = &gemma4_names,
                          .describe = gemma4_describe,
                          .load = gemma4_load,
                          .forward = forward,
                          .hidden = hidden,
                          .close = gemma4_close};

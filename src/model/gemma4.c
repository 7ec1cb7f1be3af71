/* Gemma 4: layers with windows and narrow heads, and one in several without and with wide ones, whose values may be their keys. The last
 * layers read the cache of an earlier one. In the small models each layer also has an input of its own, made from the token; in the model
 * of experts these stand beside the MLP. */
#include <math.h>

#include "base/mem.h"
#include "model/architectures.h"
#include "model/config_gemma4.h"
#include "model/decoder.h"

static const arch_names gemma4_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm",
           [W_ROUTER] = "model.layers.%d.router.proj",
           [W_EXPERT_GATE_UP] = "model.layers.%d.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.experts.down_proj"},
};

/* What a layer has besides a decoder's. */
typedef struct gemma4_layer {
    float *scale; /* [1] of the residual behind the layer */
    linear *input_gate, *input_out;
    norm *input_post_norm;
    norm *mlp_post_norm, *router_norm, *experts_norm, *experts_post_norm;
    float *expert_scales; /* [n_experts] */
} gemma4_layer;

typedef struct gemma4 {
    decoder *w;
    embedding *inputs; /* [V, L P]: a row of P for each layer; NULL: layers have no input of their own */
    linear *projection;
    norm *projection_norm;
    buffer input_rows, projected_rows, gate_rows;
    int32_t n_layers;
    gemma4_layer layers[];
} gemma4;

/* ---- load ---- */

static quire_err load_inputs(loader *l, const model_desc *d, gemma4 *g) {
    int32_t p = d->blocks.d_layer_input, width = d->n_layers * p;
    const norm_spec spec = {.kind = NORM_RMS, .width = p, .eps = d->norm_eps};
    TRY(loader_embedding(l, (weight_name){"per_layer_token_embd", "model.embed_tokens_per_layer"}, NULL, d->n_vocab, width, &g->inputs));
    TRY(loader_linear(l, (weight_name){"per_layer_model_proj", "model.per_layer_model_projection"}, NO_LAYER, NULL, width, d->d_model,
                      &g->projection));
    TRY(loader_norm(l, (weight_name){"per_layer_proj_norm", "model.per_layer_projection_norm"}, NO_LAYER, &spec, p, &g->projection_norm));
    TRY(decoder_buffer(l, g->w, BUFFER_INPUTS, width, &g->input_rows));
    TRY(decoder_buffer(l, g->w, BUFFER_PROJECTED, width, &g->projected_rows));
    return decoder_buffer(l, g->w, BUFFER_GATE, p, &g->gate_rows);
}

/* A vector that the layer cannot do without. A checkpoint's name is whole, without a suffix. */
static quire_err load_vector(loader *l, weight_name name, int32_t layer, const char *gguf_suffix, int64_t n, float **out) {
    TRY(loader_vector(l, name, layer, model_file_format(l->file) == MODEL_GGUF ? gguf_suffix : "", n, out));
    return *out != NULL ? QUIRE_OK
                        : err_set(l->err, QUIRE_BAD_FILE, -1, "%s: layer %d has no %s: the file is incomplete", model_file_path(l->file),
                                  layer, model_file_format(l->file) == MODEL_GGUF ? name.gguf : name.hf);
}

/* The router's norm: its weights are the file's over the root of their number. */
static quire_err load_router_norm(loader *l, const model_desc *d, int32_t layer, norm **out) {
    float *scale;
    TRY(load_vector(l, (weight_name){"blk.%d.ffn_gate_inp", "model.layers.%d.router.scale"}, layer, ".scale", d->d_model, &scale));
    for (int32_t i = 0; i < d->d_model; i++) {
        scale[i] /= sqrtf((float)d->d_model);
    }
    const tensor_view weight = {.name = "router.scale",
                                .type = DTYPE_F32,
                                .n_dims = 1,
                                .dims = {d->d_model, 1, 1, 1},
                                .data = scale,
                                .n_bytes = (size_t)d->d_model * sizeof *scale};
    const norm_spec spec = {.kind = NORM_RMS, .width = d->d_model, .eps = d->norm_eps, .weight = &weight};
    quire_err e = l->b->ops->norm_load(l->b, &spec, out, l->err);
    mem_free(scale);
    return e;
}

static quire_err load_experts(loader *l, const model_desc *d, int32_t i, gemma4 *g) {
    gemma4_layer *to = &g->layers[i];
    const norm_spec spec = {.kind = NORM_RMS, .width = d->d_model, .eps = d->norm_eps};
    TRY(loader_norm(l, (weight_name){"blk.%d.post_ffw_norm_1", "model.layers.%d.post_feedforward_layernorm_1"}, i, &spec, d->d_model,
                    &to->mlp_post_norm));
    TRY(loader_norm(l, (weight_name){"blk.%d.pre_ffw_norm_2", "model.layers.%d.pre_feedforward_layernorm_2"}, i, &spec, d->d_model,
                    &to->experts_norm));
    TRY(loader_norm(l, (weight_name){"blk.%d.post_ffw_norm_2", "model.layers.%d.post_feedforward_layernorm_2"}, i, &spec, d->d_model,
                    &to->experts_post_norm));
    TRY(load_router_norm(l, d, i, &to->router_norm));
    TRY(load_vector(l, (weight_name){"blk.%d.ffn_down_exps", "model.layers.%d.router.per_expert_scale"}, i, ".scale",
                    d->layers[i].n_experts, &to->expert_scales));
    g->w->layers[i].moe.how.expert_scales = to->expert_scales;
    return QUIRE_OK;
}

static quire_err load_layer(loader *l, const model_desc *d, int32_t i, gemma4 *g) {
    gemma4_layer *to = &g->layers[i];
    int32_t p = d->blocks.d_layer_input;
    const norm_spec spec = {.kind = NORM_RMS, .width = d->d_model, .eps = d->norm_eps};
    TRY(load_vector(l, (weight_name){"blk.%d.layer_output_scale", "model.layers.%d.layer_scalar"}, i, ".weight", 1, &to->scale));
    if (d->layers[i].n_experts > 0) {
        TRY(load_experts(l, d, i, g));
    }
    if (p == 0) {
        return QUIRE_OK;
    }
    TRY(loader_linear(l, (weight_name){"blk.%d.inp_gate", "model.layers.%d.per_layer_input_gate"}, i, NULL, p, d->d_model,
                      &to->input_gate));
    TRY(loader_linear(l, (weight_name){"blk.%d.proj", "model.layers.%d.per_layer_projection"}, i, NULL, d->d_model, p, &to->input_out));
    return loader_norm(l, (weight_name){"blk.%d.post_norm", "model.layers.%d.post_per_layer_input_norm"}, i, &spec, d->d_model,
                       &to->input_post_norm);
}

static quire_err load_gemma4(loader *l, const model_desc *d, const arch_names *names, void **weights) {
    void *w = NULL;
    gemma4 *g = mem_new(1, sizeof *g + (size_t)d->n_layers * sizeof g->layers[0]);
    if (g == NULL) {
        return err_set(l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
    }
    *weights = g;
    g->n_layers = d->n_layers;
    quire_err e = decoder_load(l, d, names, &w);
    g->w = w;
    e = e == QUIRE_OK && d->blocks.d_layer_input > 0 ? load_inputs(l, d, g) : e;
    for (int32_t i = 0; i < d->n_layers && e == QUIRE_OK; i++) {
        e = load_layer(l, d, i, g);
    }
    return e;
}

static void close_gemma4(void *weights) {
    gemma4 *g = weights;
    for (int32_t i = 0; g != NULL && i < g->n_layers; i++) {
        mem_free(g->layers[i].scale);
        mem_free(g->layers[i].expert_scales);
    }
    if (g != NULL) {
        decoder_close(g->w);
        mem_free(g);
    }
}

/* ---- forward ---- */

/* The layers' inputs: (norm(x W^T / sqrt(D)) + sqrt(P) * the token's row) / sqrt(2), each layer's part normed by itself. */
static void make_inputs(const pass *p, const gemma4 *g) {
    float root = sqrtf((float)p->d->blocks.d_layer_input);
    p->op->embed(p->b, &(embed_use){.tokens = g->inputs, .scale = root, .x = g->input_rows});
    p->op->norm_linears(p->b, p->w->x, NULL, &(linear_use){g->projection, g->projected_rows}, 1);
    p->op->scale_rows(p->b, 1.0f / sqrtf((float)p->d->d_model), g->projected_rows);
    p->op->norm_add(p->b, g->projected_rows, g->projection_norm, 1.0f, g->input_rows);
    p->op->scale_rows(p->b, sqrtf(0.5f), g->input_rows);
}

/* x += post(mlp_post(MLP(x)) + experts_post(experts(x))). The router reads x through a norm of its own. */
static void run_mlp_and_experts(const pass *p, const gemma4_layer *own, const decoder_layer *l) {
    const decoder *w = p->w;
    p->op->feed_forward(
        p->b, &(feed_forward_use){
                  .x = w->x, .nm = l->ffn_norm, .gate = l->gate, .up = l->up, .f = p->d->activation, .h = l->h_rows, .reader = l->down});
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
    p->op->multiply(p->b, &(multiply_use){p->d->activation, g->gate_rows, g->input_rows, column, g->gate_rows});
    branch_add(p, g->gate_rows, own->input_out, own->input_post_norm);
}

static void forward_gemma4(const model *m, const batch *rows) {
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

static buffer hidden_gemma4(const model *m) {
    return ((const gemma4 *)m->weights)->w->x;
}

const arch arch_gemma4 = {.gguf = {"gemma4"},
                          .hf = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
                          .names = &gemma4_names,
                          .describe = describe_gemma4,
                          .load = load_gemma4,
                          .forward = forward_gemma4,
                          .hidden = hidden_gemma4,
                          .close = close_gemma4};

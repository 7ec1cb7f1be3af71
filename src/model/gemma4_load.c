/* Gemma 4: loads what its layers have beside a decoder's blocks: inputs of their own,
 * experts beside the MLP. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/gemma4.h"

/* A norm over stretches of `width` elements. */
static quire_err load_norm(loader *l, const model_desc *d, weight_name name, int32_t layer, int32_t width,
                           norm **out) {
    return loader_norm(l, name, layer, &(norm_spec){.kind = NORM_RMS, .width = width, .eps = d->norm_eps},
                       width, out);
}

/* A vector that the layer cannot do without. A checkpoint's name is whole, without a
 * suffix. */
static quire_err load_vector(loader *l, weight_name name, int32_t layer, const char *gguf_suffix, int64_t n,
                             float **out) {
    bool is_gguf = model_file_format(l->file) == MODEL_GGUF;
    TRY(loader_vector(l, name, layer, is_gguf ? gguf_suffix : "", n, out));
    return *out != NULL
               ? QUIRE_OK
               : err_set(l->err, QUIRE_BAD_FILE, -1, "%s: layer %d has no %s%s: the file is incomplete",
                         model_file_path(l->file), layer, strrchr(is_gguf ? name.gguf : name.hf, '.') + 1,
                         is_gguf ? gguf_suffix : "");
}

static quire_err load_inputs(loader *l, const model_desc *d, gemma4 *g) {
    int32_t p = d->blocks.d_layer_input, width = d->n_layers * p;
    weight_name table = {"per_layer_token_embd", "model.embed_tokens_per_layer"};
    weight_name projection = {"per_layer_model_proj", "model.per_layer_model_projection"};
    weight_name projection_norm = {"per_layer_proj_norm", "model.per_layer_projection_norm"};
    const tensor_view *inputs = NULL;
    TRY(loader_find(l, table, NO_LAYER, ".weight", &inputs));
    /* it may have more ids than the model */
    int64_t n_rows = inputs != NULL && inputs->dims[0] > d->n_vocab ? inputs->dims[0] : d->n_vocab;
    TRY(loader_embedding(l, table, NULL, n_rows, width, &g->inputs));
    TRY(loader_kept_linear(l, projection, NO_LAYER, NULL, width, d->d_model, &g->projection));
    TRY(load_norm(l, d, projection_norm, NO_LAYER, p, &g->projection_norm));
    TRY(decoder_buffer(l, g->w, BUFFER_INPUTS, width, &g->input_rows));
    TRY(decoder_buffer(l, g->w, BUFFER_PROJECTED, width, &g->projected_rows));
    return decoder_buffer(l, g->w, BUFFER_GATE, p, &g->gate_rows);
}

/* The router's norm: its weights are the file's over the root of their number. */
static quire_err load_router_norm(loader *l, const model_desc *d, int32_t layer, norm **out) {
    float *scale = NULL;
    TRY(load_vector(l, (weight_name){"blk.%d.ffn_gate_inp", "model.layers.%d.router.scale"}, layer, ".scale",
                    d->d_model, &scale));
    for (int32_t i = 0; i < d->d_model; i++) {
        scale[i] /= sqrtf((float)d->d_model);
    }
    tensor_view weight = {
        .name = "router.scale", .type = DTYPE_F32, .n_dims = 1, .dims = {d->d_model, 1, 1, 1}, .data = scale};
    weight.n_bytes = (size_t)d->d_model * sizeof *scale;
    const norm_spec spec = {.kind = NORM_RMS, .width = d->d_model, .eps = d->norm_eps, .weight = &weight};
    quire_err e = l->b->ops->norm_load(l->b, &spec, out, l->err);
    mem_free(scale);
    return e;
}

static quire_err load_experts(loader *l, const model_desc *d, int32_t i, gemma4 *g) {
    gemma4_layer *to = &g->layers[i];
    weight_name mlp_post = {"blk.%d.post_ffw_norm_1", "model.layers.%d.post_feedforward_layernorm_1"};
    weight_name pre = {"blk.%d.pre_ffw_norm_2", "model.layers.%d.pre_feedforward_layernorm_2"};
    weight_name post = {"blk.%d.post_ffw_norm_2", "model.layers.%d.post_feedforward_layernorm_2"};
    weight_name scales = {"blk.%d.ffn_down_exps", "model.layers.%d.router.per_expert_scale"};
    TRY(load_norm(l, d, mlp_post, i, d->d_model, &to->mlp_post_norm));
    TRY(load_norm(l, d, pre, i, d->d_model, &to->experts_norm));
    TRY(load_norm(l, d, post, i, d->d_model, &to->experts_post_norm));
    TRY(load_router_norm(l, d, i, &to->router_norm));
    TRY(load_vector(l, scales, i, ".scale", d->layers[i].n_experts, &to->expert_scales));
    g->w->layers[i].moe.how.expert_scales = to->expert_scales;
    return QUIRE_OK;
}

static quire_err load_layer(loader *l, const model_desc *d, int32_t i, gemma4 *g) {
    gemma4_layer *to = &g->layers[i];
    int32_t p = d->blocks.d_layer_input;
    TRY(load_vector(l, (weight_name){"blk.%d.layer_output_scale", "model.layers.%d.layer_scalar"}, i,
                    ".weight", 1, &to->scale));
    if (d->layers[i].n_experts > 0) {
        TRY(load_experts(l, d, i, g));
    }
    if (p == 0) {
        return QUIRE_OK;
    }
    TRY(loader_linear(l, (weight_name){"blk.%d.inp_gate", "model.layers.%d.per_layer_input_gate"}, i, NULL, p,
                      d->d_model, &to->input_gate));
    TRY(loader_linear(l, (weight_name){"blk.%d.proj", "model.layers.%d.per_layer_projection"}, i, NULL,
                      d->d_model, p, &to->input_out));
    return load_norm(l, d, (weight_name){"blk.%d.post_norm", "model.layers.%d.post_per_layer_input_norm"}, i,
                     d->d_model, &to->input_post_norm);
}

quire_err gemma4_load(loader *l, const model_desc *d, const arch_names *names, void **weights) {
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

void gemma4_close(void *weights) {
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

/* Granite 3: Llama with factors on embeddings, residuals, attention and logits; its
 * mixtures of experts; variants with windows and sinks. MiniCPM: arXiv:2404.06395:
 * factors by depth and by the width of a smaller model; MiniCPM 3 has latent attention.
 * HyperCLOVA X SEED: the same factors, and norms after both halves of a layer. */
#include <math.h>

#include "model/architectures.h"

static const arch_names granite_moe_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.router.layer",
           [W_EXPERT_GATE_UP] = "model.layers.%d.block_sparse_moe.input_linear",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.output_linear",
           [W_SHARED_GATE_UP] = "model.layers.%d.shared_mlp.input_linear",
           [W_SHARED_DOWN] = "model.layers.%d.shared_mlp.output_linear"},
};
static const arch_names granite_swa_names = {
    .gguf = {[W_SHARED_GATE_UP] = "blk.%d.ffn_up_shexp"},
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.router.layer|"
                        "model.layers.%d.block_sparse_moe.router",
           [W_EXPERT_GATE_UP] = "model.layers.%d.block_sparse_moe.input_linear|"
                                "model.layers.%d.block_sparse_moe.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.output_linear|"
                             "model.layers.%d.block_sparse_moe.experts.down_proj",
           [W_SHARED_GATE_UP] = "model.layers.%d.shared_mlp.input_linear",
           [W_SHARED_DOWN] = "model.layers.%d.shared_mlp.output_linear"},
};
static const arch_names hyperclovax_names = {
    .hf =
        {[W_ATTN_POST_NORM] = "model.layers.%d.post_norm1", [W_FFN_POST_NORM] = "model.layers.%d.post_norm2"},
};

/* *logits: the divisor or factor of logits. */
static quire_err describe_factors(const config *c, float usual_attention, model_desc *d, float *logits) {
    *logits = 1.0f;
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    d->attention_scale = c->is_gguf || usual_attention == 0.0f ? d->attention_scale : usual_attention;
    TRY(config_f32_or_none(c, "embedding_scale", "embedding_multiplier", &d->embed.scale));
    TRY(config_f32_or_none(c, "residual_scale", "residual_multiplier", &d->residual_scale));
    TRY(config_f32_or_none(c, "attention.scale", "attention_multiplier", &d->attention_scale));
    TRY(config_f32_or_none(c, "logit_scale", "logits_scaling", logits));
    if (!(*logits > 0.0f)) {
        return config_bad(c, "logits_scaling", "must be over 0");
    }
    return QUIRE_OK;
}

/* Granite's description without its experts. */
static quire_err config_granite(const config *c, model_desc *d) {
    float logits;
    TRY(describe_factors(c, 1.0f, d, &logits));
    d->head.scale = 1.0f / logits;
    return QUIRE_OK;
}

/* Reads the factors, which GGUF files state like Granite's. Older ones have none: they
 * are of MiniCPM 2B, whose factors are also MiniCPM 3's defaults. */
static quire_err read_minicpm_factors(const config *c, bool is_usual, model_desc *d) {
    float depth = is_usual ? 1.4f : 1.0f, base = is_usual ? 256.0f : 1.0f, logits;
    TRY(config_f32(c, NULL, "scale_depth", &depth));
    TRY(config_f32(c, NULL, "dim_model_base", &base));
    d->embed.scale = is_usual ? 12.0f : 1.0f;
    TRY(config_f32(c, "embedding_scale", "scale_emb", &d->embed.scale));
    d->residual_scale = depth / sqrtf((float)d->n_layers);
    TRY(config_f32(c, "residual_scale", NULL, &d->residual_scale));
    logits = (float)d->d_model / base;
    TRY(config_f32(c, "logit_scale", NULL, &logits));
    if (!(logits > 0.0f) || !isfinite(logits) || !(d->embed.scale > 0.0f) || !(d->residual_scale > 0.0f)) {
        return config_bad(c, c->is_gguf ? "logit_scale" : "dim_model_base",
                          "and the other multipliers must be over 0");
    }
    d->head.scale = 1.0f / logits;
    return QUIRE_OK;
}

static quire_err describe_minicpm(const config *c, model_desc *d) {
    d->tied_embeddings = !c->is_gguf;
    TRY(config_llama(c, ROPE_HALVES, ROPE_NEIGHBOURS, d));
    return read_minicpm_factors(c, c->is_gguf, d);
}

static quire_err describe_minicpm3(const config *c, model_desc *d) {
    static const latent_desc usual = {.q_rank = 768, .rank = 256, .d_nope = 64, .d_rope = 32};
    d->tied_embeddings = !c->is_gguf;
    TRY(config_latents(c, &usual, ROPE_HALVES, ROPE_HALVES, d));
    return read_minicpm_factors(c, true, d);
}

static quire_err describe_hyperclovax(const config *c, model_desc *d) {
    bool post_norm = true;
    TRY(config_bool(c, NULL, "use_post_norm", &post_norm));
    TRY(describe_factors(c, 0.0f, d, &d->head.scale));
    steps_set(d, post_norm ? steps_sandwich : steps_pre_norm);
    return QUIRE_OK;
}

static quire_err describe_granite_moe(const config *c, model_desc *d) {
    TRY(config_granite(c, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX_CHOSEN};
    TRY(config_moe(c, d));
    d->moe.score = ROUTE_SOFTMAX_CHOSEN;
    return QUIRE_OK;
}

/* The rotary table of a base: an earlier layer's, or a new one. */
static quire_err granite_find_rope(const config *c, float theta, model_desc *d, int16_t *out) {
    int32_t k = 0;
    while (k < d->n_ropes && d->ropes[k].theta != theta) {
        k++;
    }
    if (k == DESC_MAX_ROPES) {
        return config_unsupported(c, "layer_rope_theta has more different bases than this build supports");
    }
    if (k == d->n_ropes) {
        d->ropes[k] = d->ropes[0];
        d->ropes[k].theta = theta;
        d->n_ropes++;
    }
    *out = (int16_t)k;
    return QUIRE_OK;
}

/* Reads rotary tables: config.json has a base per layer, GGUF which layers rotate; 0:
 * none. */
static quire_err granite_read_ropes(const config *c, model_desc *d) {
    float bases[DESC_MAX_LAYERS];
    int32_t rotates[DESC_MAX_LAYERS];
    size_t n = 0, n_all = (size_t)d->n_layers;
    TRY(c->is_gguf ? config_i32s(c, "attention.rope_pattern", NULL, rotates, n_all, &n)
                   : config_f32s(c, "layer_rope_theta", bases, n_all, &n));
    if (n != 0 && n != n_all) {
        return config_bad(c, c->is_gguf ? "attention.rope_pattern" : "layer_rope_theta",
                          "must have one number for each layer");
    }
    for (size_t i = 0; i < n; i++) {
        if (c->is_gguf ? rotates[i] == 0 : bases[i] == 0.0f) {
            d->layers[i].rope = NO_ROPE;
        } else if (!c->is_gguf) {
            TRY(granite_find_rope(c, bases[i], d, &d->layers[i].rope));
        }
    }
    return QUIRE_OK;
}

/* Windows on three of four layers, sinks in all. */
static quire_err granite_read_windows(const config *c, model_desc *d) {
    int32_t window = 128;
    d->attend.sinks = true;
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, 4, 0, d));
    return granite_read_ropes(c, d);
}

static quire_err describe_granite_moe_swa(const config *c, model_desc *d) {
    TRY(describe_granite_moe(c, d));
    return granite_read_windows(c, d);
}

/* GGUF uses the mixture's name too, and has gate and up of the shared expert in one
 * tensor, whose rows are not the expert's width. */
static quire_err describe_granite_swa(const config *c, model_desc *d) {
    int32_t n_experts = 0;
    d->tied_embeddings = true;
    TRY(config_i32(c, "expert_count", NULL, &n_experts));
    TRY(n_experts > 0 ? describe_granite_moe(c, d) : config_granite(c, d));
    TRY(config_i32(c, "expert_shared_feed_forward_length", NULL, &d->moe.d_shared));
    return granite_read_windows(c, d);
}

/* Granite 4: Granite's factors, Mamba-2 instead of attention in most layers, experts or a
 * dense part. Bamba: such layers without factors and experts. */

static const arch_names granite_hybrid_names = {
    .hf = {[W_GATE_UP] = "model.layers.%d.shared_mlp.input_linear",
           [W_DOWN] = "model.layers.%d.shared_mlp.output_linear",
           [W_ROUTER] = "model.layers.%d.block_sparse_moe.router.layer",
           [W_EXPERT_GATE_UP] = "model.layers.%d.block_sparse_moe.input_linear",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.output_linear",
           [W_SHARED_GATE_UP] = "model.layers.%d.shared_mlp.input_linear",
           [W_SHARED_DOWN] = "model.layers.%d.shared_mlp.output_linear"},
};
static const arch_names bamba_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_ff_layernorm",
           MLP_NAMES("model.layers.%d.feed_forward")},
};

/* Gives layers with Mamba-2 instead of attention their steps and states. */
static quire_err describe_mamba_layers(const config *c, state_layers *s, model_desc *d) {
    d->mamba = (mamba_desc){.n_heads = 128, .n_groups = 1, .n_states = 256};
    TRY(config_mamba2(c, 2.0f, 0, d, s));
    d->mamba.n_norm_groups = d->mamba.n_groups;
    d->mamba.inner_eps = d->norm_eps;
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (s->recurs[i]) {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_mamba_moe : steps_mamba_mlp;
        }
    }
    return config_set_states(c, s, d);
}

static quire_err granite_hybrid_read_rotary(const config *c, model_desc *d) {
    bool rotates = c->is_gguf;
    str kind = {0};
    TRY(config_bool(c, "rope.scaling.finetuned", NULL, &rotates));
    TRY(config_str(c, NULL, "position_embedding_type", &kind));
    rotates = rotates || str_is(kind, "rope");
    for (int32_t i = 0; i < d->n_layers && !rotates; i++) {
        d->layers[i].rope = NO_ROPE;
    }
    return QUIRE_OK;
}

/* Without routed experts, the shared one is the dense part. */
static quire_err granite_hybrid_read_experts(const config *c, model_desc *d) {
    int32_t width = 1024;
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX_CHOSEN, .d_shared = c->is_gguf ? 0 : width};
    TRY(config_moe(c, d));
    d->moe.score = ROUTE_SOFTMAX_CHOSEN;
    TRY(config_i32(c, NULL, "shared_intermediate_size", &width));
    for (int32_t i = 0; i < d->n_layers && !c->is_gguf && d->layers[i].n_experts == 0; i++) {
        d->layers[i].d_ff = width;
    }
    return QUIRE_OK;
}

static quire_err describe_granite_hybrid(const config *c, model_desc *d) {
    state_layers s = {0};
    bool found = false;
    TRY(config_granite(c, d));
    TRY(granite_hybrid_read_rotary(c, d));
    TRY(granite_hybrid_read_experts(c, d));
    TRY(config_state_types(c, d, "mamba|linear_attention", &s, &found));
    for (int32_t i = 0; i < d->n_layers && !found; i++) {
        s.attends[i] = c->is_gguf && !config_has_mamba(c, i);
        s.recurs[i] = !s.attends[i];
    }
    return describe_mamba_layers(c, &s, d);
}

static quire_err describe_bamba(const config *c, model_desc *d) {
    state_layers s = {0};
    int32_t full[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.5f));
    TRY(config_i32s(c, NULL, "attn_layer_indices", full, DESC_MAX_LAYERS, &n));
    for (size_t k = 0; k < n; k++) {
        if (full[k] >= d->n_layers) {
            return config_bad(c, "attn_layer_indices", "must name layers of the model, counted from 0");
        }
        s.attends[full[k]] = true;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        s.recurs[i] = !s.attends[i];
    }
    return describe_mamba_layers(c, &s, d);
}

const arch granite_archs[] = {
    {{"granite"}, {"GraniteForCausalLM"}, .describe = config_granite},
    {{"minicpm"}, {"MiniCPMForCausalLM"}, .describe = describe_minicpm},
    {{"minicpm3"}, {"MiniCPM3ForCausalLM"}, .describe = describe_minicpm3},
    {{"granitemoe"},
     {"GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"},
     &granite_moe_names,
     .describe = describe_granite_moe},
    {{"hyperclovax"}, {"HyperCLOVAXForCausalLM"}, &hyperclovax_names, .describe = describe_hyperclovax},
    {{"granite_swa"}, {"GraniteSWAForCausalLM"}, &granite_swa_names, .describe = describe_granite_swa},
    {{"granitemoe_swa"},
     {"GraniteMoeSWAForCausalLM"},
     &granite_swa_names,
     .describe = describe_granite_moe_swa},
    {{"granitehybrid"},
     {"GraniteMoeHybridForCausalLM"},
     &granite_hybrid_names,
     .describe = describe_granite_hybrid},
    {{"bamba"}, {"BambaForCausalLM"}, &bamba_names, .describe = describe_bamba},
    {.describe = NULL},
};

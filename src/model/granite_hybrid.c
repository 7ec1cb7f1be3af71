/* Granite 4: Granite's factors, Mamba-2 in place of attention in most layers, experts or
 * a dense part. Bamba: such layers without the factors and experts. */
#include "model/architectures.h"

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
           [W_GATE] = "model.layers.%d.feed_forward.gate_proj",
           [W_UP] = "model.layers.%d.feed_forward.up_proj",
           [W_DOWN] = "model.layers.%d.feed_forward.down_proj"},
};

/* Gives layers that have Mamba-2 in place of attention their steps and states. */
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

/* Without experts, the shared one is the dense part. */
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

const arch arch_granite_h = {.gguf = {"granitehybrid"},
                             .hf = {"GraniteMoeHybridForCausalLM"},
                             .names = &granite_hybrid_names,
                             .describe = describe_granite_hybrid};
const arch arch_bamba = {
    .gguf = {"bamba"}, .hf = {"BambaForCausalLM"}, .names = &bamba_names, .describe = describe_bamba};

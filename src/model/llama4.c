/* Llama 4, its text model: all but every nth layer rotate positions and attend within
 * chunks; the others see all, without positions, and sharpen queries with the distance.
 * Experts, one a row, scaled by a sigmoid at their input, with a shared one beside them;
 * dense layers between them. */
#include "model/architectures.h"

static const arch_names llama4_names = {
    .hf = {[W_GATE] = "model.layers.%d.feed_forward.gate_proj",
           [W_UP] = "model.layers.%d.feed_forward.up_proj",
           [W_DOWN] = "model.layers.%d.feed_forward.down_proj",
           [W_ROUTER] = "model.layers.%d.feed_forward.router",
           [W_EXPERT_GATE_UP] = "model.layers.%d.feed_forward.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.feed_forward.experts.down_proj",
           [W_SHARED_GATE] = "model.layers.%d.feed_forward.shared_expert.gate_proj",
           [W_SHARED_UP] = "model.layers.%d.feed_forward.shared_expert.up_proj",
           [W_SHARED_DOWN] = "model.layers.%d.feed_forward.shared_expert.down_proj"},
};

/* A layer that attends within chunks. Its cache keeps no more than the longest one. */
static void set_chunk(model_desc *d, int32_t layer, int32_t chunk) {
    cache_desc *cache = &d->caches[d->layers[layer].caches[0]];
    d->layers[layer].chunk = cache->window = chunk;
    cache->kind = chunk > 0 ? LAYER_WINDOW : LAYER_FULL;
}

/* Which layers rotate, and which of them attend within chunks. GGUF files do not say it;
 * where theirs has a window of 0, none does. */
static quire_err llama4_read_layers(const config *c, model_desc *d) {
    int32_t interval = 4, chunk = 8192, window = 1, rotates[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32(c, "attention.sliding_window", NULL, &window));
    TRY(config_i32_or_none(c, "attention.chunk_size", "attention_chunk_size", &chunk));
    TRY(config_i32(c, NULL, "no_rope_layer_interval", &interval));
    TRY(config_i32s(c, NULL, "no_rope_layers", rotates, DESC_MAX_LAYERS, &n));
    if (n != 0 && n != (size_t)d->n_layers) {
        return config_bad(c, "no_rope_layers", "must have one number for each layer");
    }
    chunk = window > 0 ? chunk : 0;
    interval = window > 0 ? interval : 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool is_rotary = n > 0 ? rotates[i] != 0 : interval == 0 || (i + 1) % interval != 0;
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        d->layers[i].rope = is_rotary ? d->layers[i].rope : NO_ROPE;
        set_chunk(d, i, (type.n > 0 ? str_is(type, "chunked_attention") : is_rotary) ? chunk : 0);
    }
    return QUIRE_OK;
}

/* Rotary layers norm queries and keys after the rotation; the others scale queries by
 * their position. GGUF files do not say whether there are norms: of the published models
 * only the one of 128 experts has none. */
static quire_err read_attention(const config *c, model_desc *d) {
    bool has_temperature = true, has_norm;
    int32_t n_experts = 0;
    attend_desc *a = &d->attend;
    TRY(config_i32(c, "expert_count", NULL, &n_experts));
    has_norm = n_experts != 128;
    a->norm_after_rope = true;
    TRY(config_bool(c, NULL, "use_qk_norm", &has_norm));
    a->qk_norm = has_norm ? QK_NORM_BARE : QK_NORM_NONE;
    a->temperature = 0.1f;
    a->temperature_length = 8192;
    TRY(config_f32(c, NULL, "attn_scale", &a->temperature));
    TRY(config_i32(c, NULL, "floor_scale", &a->temperature_length));
    TRY(config_bool(c, NULL, "attn_temperature_tuning", &has_temperature));
    if (a->temperature_length < 1) {
        return config_bad(c, "floor_scale", "must be at least 1");
    }
    a->temperature = has_temperature ? a->temperature : 0.0f;
    return QUIRE_OK;
}

/* config.json calls the experts' width intermediate_size, GGUF the dense layers'. */
static quire_err llama4_read_experts(const config *c, model_desc *d) {
    int32_t step = 1, d_ff = d->layers[0].d_ff, listed[DESC_MAX_LAYERS];
    size_t n;
    bool is_moe[DESC_MAX_LAYERS] = {0};
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .scale_inputs = true, .transposed = true};
    TRY(config_moe(c, d));
    d->moe.d_shared = d->moe.d_shared > 0 ? d->moe.d_shared : d->moe.d_expert;
    TRY(config_i32(c, NULL, "intermediate_size_mlp", &d_ff));
    TRY(config_i32(c, "interleave_moe_layer_step", "interleave_moe_layer_step", &step));
    TRY(config_i32s(c, NULL, "moe_layers", listed, DESC_MAX_LAYERS, &n));
    for (size_t k = 0; k < n; k++) {
        if (listed[k] >= d->n_layers) {
            return config_bad(c, "moe_layers", "names a layer that the model does not have");
        }
        is_moe[listed[k]] = true;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool has_experts = config_has(c, NULL, "moe_layers") ? is_moe[i] : step > 0 && (i + 1) % step == 0;
        if (!has_experts || d->layers[i].n_experts == 0) {
            config_set_dense(d, i, d_ff);
        }
    }
    return QUIRE_OK;
}

static quire_err describe_llama4(const config *c, model_desc *d) {
    d->norm_eps = 1e-5f;
    TRY(config_llama(c, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(llama4_read_layers(c, d));
    TRY(read_attention(c, d));
    return llama4_read_experts(c, d);
}

const arch arch_llama4 = {.gguf = {"llama4"},
                          .hf = {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"},
                          .names = &llama4_names,
                          .describe = describe_llama4};

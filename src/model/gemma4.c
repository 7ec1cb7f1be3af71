/* Gemma 4: layers with windows and narrow heads, and one in several without and with wide
 * ones, whose values may be their keys. The last layers read the cache of an earlier one.
 * In the small models each layer also has an input of its own, made from the token; in
 * the model of experts these stand beside the MLP. */
#include <math.h>
#include <stdio.h>

#include "model/architectures.h"

static const arch_names gemma4_names = {
    .hf = {[W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm",
           [W_ROUTER] = "model.layers.%d.router.proj",
           [W_EXPERT_GATE_UP] = "model.layers.%d.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.experts.down_proj",
           [W_ROUTER_NORM] = "model.layers.%d.router.scale",
           [W_EXPERT_SCALES] = "model.layers.%d.router.per_expert_scale",
           [W_LAYER_SCALE] = "model.layers.%d.layer_scalar",
           [W_MLP_POST_NORM] = "model.layers.%d.post_feedforward_layernorm_1",
           [W_EXPERTS_NORM] = "model.layers.%d.pre_feedforward_layernorm_2",
           [W_EXPERTS_POST_NORM] = "model.layers.%d.post_feedforward_layernorm_2",
           [W_INPUT_TABLE] = "model.embed_tokens_per_layer",
           [W_INPUT_PROJECTION] = "model.per_layer_model_projection",
           [W_INPUT_PROJECTION_NORM] = "model.per_layer_projection_norm",
           [W_INPUT_GATE] = "model.layers.%d.per_layer_input_gate",
           [W_INPUT_OUT] = "model.layers.%d.per_layer_projection",
           [W_INPUT_POST_NORM] = "model.layers.%d.post_per_layer_input_norm"},
};

/* An override of one layer in config.json's "per_layer_config", whose numbers of layers
 * are padded to one width ("05"). */
static quire_err read_override(const config *c, int32_t layer, const char *name, int32_t *out) {
    char key[240];
    (void)snprintf(key, sizeof key,
                   "per_layer_config.%d.%s|per_layer_config.%02d.%s|per_layer_config.%03d.%s", (int)layer,
                   name, (int)layer, name, (int)layer, name);
    return config_i32(c, NULL, key, out);
}

/* A head's width that the file gave under a key. */
static quire_err check_width(const config *c, const char *key, int32_t width) {
    bool fits = width >= 1 && width <= DESC_MAX_HEAD;
    return fits ? QUIRE_OK : config_bad(c, key, "must be from 1 to 512, the widest head");
}

/* Layers with windows, and the width and number of the others' heads. */
static quire_err gemma4_read_heads(const config *c, model_desc *d) {
    int32_t window = 512, narrow = d->caches[0].d_key, wide = c->is_gguf ? narrow : 512, n_wide = 0;
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_window(c, &window));
    TRY(config_i32(c, "attention.key_length_swa", NULL, &narrow));
    TRY(check_width(c, "attention.key_length_swa", narrow));
    int32_t narrow_value = narrow;
    TRY(config_i32(c, "attention.value_length_swa", NULL, &narrow_value));
    if (narrow_value != narrow) {
        return config_unsupported(c, "keys and values of different widths are not supported");
    }
    wide = config_has(c, NULL, "per_layer_config") ? narrow : wide; /* which then names those that differ */
    TRY(config_i32(c, NULL, "global_head_dim", &wide));
    TRY(check_width(c, "global_head_dim", wide));
    if (d->attend.values_are_keys) {
        TRY(config_i32(c, NULL, "num_global_key_value_heads", &n_wide));
    }
    TRY(config_window_layers(c, d, 6, 5, is_window));
    /* the last layer of a checkpoint sees all, whatever it says */
    is_window[d->n_layers - 1] = is_window[d->n_layers - 1] && c->is_gguf;
    for (int32_t i = 0; i < d->n_layers; i++) {
        cache_desc *cache = &d->caches[d->layers[i].caches[0]];
        cache->d_key = is_window[i] ? narrow : wide;
        cache->n_kv_heads = is_window[i] || n_wide == 0 ? cache->n_kv_heads : n_wide;
        TRY(read_override(c, i, "head_dim", &cache->d_key));
        TRY(check_width(c, "per_layer_config.*.head_dim", cache->d_key));
        TRY(read_override(c, i, "num_key_value_heads", &cache->n_kv_heads));
        cache->d_value = cache->d_key;
        config_set_window(d, i, is_window[i] ? window : 0);
    }
    return QUIRE_OK;
}

/* The last layers have no keys and values. Their MLP may be twice as wide. */
static quire_err share_caches(const config *c, model_desc *d) {
    int32_t n_shared = 0;
    bool is_double = false;
    TRY(config_i32(c, "attention.shared_kv_layers", "num_kv_shared_layers", &n_shared));
    TRY(config_bool(c, NULL, "use_double_wide_mlp", &is_double));
    TRY(config_share_caches(c, n_shared, d));
    for (int32_t i = d->n_caches; i < d->n_layers; i++) {
        layer_desc *layer = &d->layers[i];
        layer->d_ff = is_double && layer->d_ff <= INT32_MAX / 2 ? 2 * layer->d_ff : layer->d_ff;
    }
    return QUIRE_OK;
}

/* The published table of the layers without windows: a quarter of each head rotates, as
 * if all did. */
static void set_published(rope_desc *r) {
    r->has_factors = true;
    for (int32_t i = 0; i < r->n_dims / 2 && i < DESC_MAX_HEAD / 2; i++) {
        r->factors[i] = i < r->n_dims / 8 ? 1.0f : 1e30f;
    }
}

/* The rotary table of the layers with windows, or of the others, which rotate only a part
 * of each head. */
static quire_err add_rope(const config *c, model_desc *d, bool has_window) {
    const char *object = has_window ? "rope_parameters.sliding_attention" : "rope_parameters.full_attention";
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.theta = has_window ? 1e4f : 1e6f;
    r.n_dims = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        if ((d->layers[i].window > 0) == has_window) {
            r.n_dims = d->caches[d->layers[i].caches[0]].d_key;
            d->layers[i].rope = (int16_t)d->n_ropes;
        }
    }
    if (r.n_dims == 0) {
        return QUIRE_OK;
    }
    if (!c->is_gguf && !config_has(c, NULL, "rope_parameters")) {
        if (!has_window) {
            set_published(&r);
        }
    } else if (c->is_gguf && has_window) {
        TRY(config_f32(c, "rope.freq_base_swa", NULL, &r.theta));
        TRY(config_i32(c, "rope.dimension_count_swa", NULL, &r.n_dims));
    } else {
        int32_t width = r.n_dims;
        TRY(config_rope(c, object, d, &r));
        if (r.n_dims != width && !c->is_gguf) {
            TRY(config_unsupported(c, "a part of each head rotates by rope_type \"proportional\" only"));
        }
    }
    d->ropes[d->n_ropes++] = r;
    return QUIRE_OK;
}

/* Experts stand beside the MLP, which keeps its width. */
static quire_err gemma4_read_experts(const config *c, model_desc *d) {
    bool has_experts = c->is_gguf;
    int32_t d_ff[DESC_MAX_LAYERS];
    TRY(config_bool(c, NULL, "enable_moe_block", &has_experts));
    if (!has_experts) {
        return QUIRE_OK;
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        d_ff[i] = d->layers[i].d_ff;
    }
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true, .router_norm = true};
    TRY(config_moe(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].d_ff = d_ff[i];
    }
    return QUIRE_OK;
}

enum { MOST_INPUTS = 1 << 20 }; /* of all layers together */

static quire_err read_layer_inputs(const config *c, model_desc *d) {
    int32_t *width = &d->embed.d_layer_input;
    const bool is_unified =
        config_is(c, "Gemma4UnifiedForCausalLM") || config_is(c, "Gemma4UnifiedForConditionalGeneration");
    *width = c->is_gguf || is_unified ? 0 : 256;
    TRY(config_i32(c, "embedding_length_per_layer_input", "hidden_size_per_layer_input", width));
    return *width <= MOST_INPUTS / d->n_layers ? QUIRE_OK
                                               : config_bad(c, "hidden_size_per_layer_input", "is too large");
}

/* clang-format off */
#define ATTEND_HALF NORM(W_ATTN_NORM, X, A), ATTEND(A, A), NORM(W_ATTN_POST_NORM, A, A), ADD(A, X)
#define MLP_HALF NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X)
/* x += post(mlp_post(mlp(norm(x))) + experts_post(experts(norm(x)))) */
#define MOE_HALF \
    NORM(W_FFN_NORM, X, A), MLP(A, A), NORM(W_MLP_POST_NORM, A, A), \
    NORM(W_EXPERTS_NORM, X, B), MOE(B, B), NORM(W_EXPERTS_POST_NORM, B, B), \
    ADD(B, A), NORM(W_FFN_POST_NORM, A, A), ADD(A, X)
#define OWN_INPUT INPUT(X, A), NORM(W_INPUT_POST_NORM, A, A), ADD(A, X)
/* clang-format on */

/* With experts beside the MLP or without, with an input of their own or without. */
static const layer_step steps_dense[] = {ATTEND_HALF, MLP_HALF, SCALE(X), END};
static const layer_step steps_dense_input[] = {ATTEND_HALF, MLP_HALF, OWN_INPUT, SCALE(X), END};
static const layer_step steps_moe[] = {ATTEND_HALF, MOE_HALF, SCALE(X), END};
static const layer_step steps_moe_input[] = {ATTEND_HALF, MOE_HALF, OWN_INPUT, SCALE(X), END};

static quire_err describe_gemma4(const config *c, model_desc *d) {
    decoder_shape s = {.d_head = 256};
    str two_sided = {0};
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(config_decoder(c, &s, d));
    d->attention_scale = 1.0f;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.v_norm = true;
    d->attend.values_are_keys = c->is_gguf;
    d->embed.scale = sqrtf((float)d->d_model);
    TRY(config_bool(c, NULL, "attention_k_eq_v", &d->attend.values_are_keys));
    TRY(config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap));
    TRY(config_str(c, NULL, "use_bidirectional_attention", &two_sided));
    if (two_sided.n > 0 && !str_is(two_sided, "vision")) {
        return config_unsupported(
            c, "use_bidirectional_attention other than \"vision\" is not supported for this architecture");
    }
    if (!c->is_gguf && config_has(c, NULL, "rope_parameters") &&
        !config_has(c, NULL,
                    "rope_parameters.full_attention.rope_type|rope_parameters.full_attention.rope_theta")) {
        return config_bad(c, "rope_parameters", "must have a table for \"full_attention\" layers");
    }
    TRY(gemma4_read_heads(c, d));
    TRY(share_caches(c, d));
    TRY(add_rope(c, d, false));
    TRY(add_rope(c, d, true));
    TRY(gemma4_read_experts(c, d));
    TRY(read_layer_inputs(c, d));
    const bool has_experts = d->layers[0].n_experts > 0, has_input = d->embed.d_layer_input > 0;
    steps_set(d, has_experts ? (has_input ? steps_moe_input : steps_moe)
                             : (has_input ? steps_dense_input : steps_dense));
    return QUIRE_OK;
}

const arch arch_gemma4 = {.gguf = {"gemma4"},
                          .hf = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
                                 "Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration"},
                          .names = &gemma4_names,
                          .describe = describe_gemma4};

/* Mistral Large 4: latents that later layers may share; layers without positions, whose
 * keys are products of the whole latent; rows select the keys that they read (DeepSeek
 * V3.2: arXiv:2512.02556) by products of the row itself; learned rotary speeds; and
 * queries scaled by position with parameters per head. */
#include <math.h>
#include <string.h>

#include "model/architectures.h"

static const arch_names large4_names = {
    .hf = {[W_TOKENS] = "tok_embeddings",
           [W_OUT_NORM] = "norm",
           [W_HEAD] = "output",
           [W_ATTN_NORM] = "layers.%d.attention_norm",
           [W_Q] = "layers.%d.attention.wq",
           [W_KV_A] = "layers.%d.attention.wkv_a_with_mqa",
           [W_KV_A_NORM] = "layers.%d.attention.kv_a_norm",
           [W_KV_B] = "layers.%d.attention.wkv_b",
           [W_O] = "layers.%d.attention.wo",
           [W_QUERY_SLOPE] = "layers.%d.attention.ssmax_scaling.s",
           [W_QUERY_BIAS] = "layers.%d.attention.ssmax_scaling.b",
           [W_INDEX_K] = "layers.%d.attention.indexer.wk",
           [W_INDEX_K_NORM] = "layers.%d.attention.indexer.k_norm",
           [W_INDEX_Q] = "layers.%d.attention.indexer.wq_b",
           [W_INDEX_Q_NORM] = "layers.%d.attention.indexer.q_input_norm",
           [W_INDEX_WEIGHTS] = "layers.%d.attention.indexer.weights_proj",
           [W_INDEX_SLOPE] = "layers.%d.attention.indexer.ssmax_scaling.s",
           [W_INDEX_BIAS] = "layers.%d.attention.indexer.ssmax_scaling.b",
           [W_FFN_NORM] = "layers.%d.ffn_norm",
           MLP_W_NAMES("layers.%d.feed_forward"),
           [W_ROUTER] = "layers.%d.gate",
           EXPERT_W_NAMES("layers.%d.experts.%d"),
           [W_SHARED_GATE] = "layers.%d.shared_experts.w1",
           [W_SHARED_UP] = "layers.%d.shared_experts.w3",
           [W_SHARED_DOWN] = "layers.%d.shared_experts.w2"},
    .left_out = {"vision_encoder", "vision_language_adapter", "patch_merger", "pre_mm_projector_norm"},
};

enum { LARGE4_PERIOD = 4 }; /* the last of each period has no positions */

/* Applies the learned speeds: frequencies times exp(alpha). */
static quire_err read_speeds(const config *c, rope_desc *r) {
    const tensor_view *t = model_file_find(c->f, "lerope.alpha");
    if (t == NULL) {
        return config_bad(c, "lerope.alpha", "is missing: the file is incomplete");
    }
    const int32_t n = r->n_dims / 2;
    if (t->type != DTYPE_F32 || t->n_dims != 1 || t->dims[0] != n || n > DESC_MAX_HEAD / 2) {
        return config_bad(c, "lerope.alpha", "must hold one F32 number for each pair of rotary dimensions");
    }
    r->has_factors = r->multiplies = true;
    memcpy(r->factors, t->data, (size_t)n * sizeof *r->factors);
    for (int32_t i = 0; i < n; i++) {
        r->factors[i] = (float)exp((double)r->factors[i]);
        if (!(r->factors[i] > 0.0f) || !isfinite(r->factors[i])) {
            return config_bad(c, "lerope.alpha",
                              "holds a number whose exponential is not a positive finite number");
        }
    }
    return QUIRE_OK;
}

/* Reads which layers have positions. */
static quire_err read_positions(const config *c, model_desc *d) {
    int32_t listed[DESC_MAX_LAYERS], period = LARGE4_PERIOD;
    size_t n;
    TRY(config_i32s(c, NULL, "no_rope_layers", listed, DESC_MAX_LAYERS, &n));
    TRY(config_i32(c, NULL, "no_rope_layer_interval", &period));
    if (period < 1 || (n > 0 && n < (size_t)d->n_layers)) {
        return config_bad(c, "no_rope_layers", "must have a number for each layer");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        const bool rotates = n > 0 ? listed[i] != 0 : (i + 1) % period != 0;
        d->layers[i].rope = rotates ? 0 : NO_ROPE;
    }
    return QUIRE_OK;
}

/* Makes layers read the latents of the layers that they name. Call before other caches
 * are added. */
static quire_err share_latents(const config *c, model_desc *d) {
    int32_t source[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, NULL, "kv_source_layers", source, DESC_MAX_LAYERS, &n));
    if (n == 0) {
        return QUIRE_OK;
    }
    if (n != (size_t)d->n_layers) {
        return config_bad(c, "kv_source_layers", "must have a number for each layer");
    }
    d->n_caches = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        const cache_desc own = d->caches[l->caches[CACHE_ATTENTION]];
        if (source[i] > i || source[source[i]] != source[i] || d->layers[source[i]].rope != l->rope) {
            return config_bad(c, "kv_source_layers",
                              "must name earlier layers that have latents of their own and the same "
                              "positions as the layer that names them");
        }
        l->caches[CACHE_ATTENTION] =
            source[i] == i ? desc_add_cache(d, &own) : d->layers[source[i]].caches[CACHE_ATTENTION];
    }
    return QUIRE_OK;
}

static quire_err describe_large4(const config *c, model_desc *d) {
    const latent_desc usual = {.rank = 512, .d_nope = 64, .d_rope = 64, .d_value = 128};
    const index_desc usual_index = {
        .n_best = 2048, .n_heads = 32, .d_head = 128, .source = INDEX_OF_NORMED_ROW};
    if (c->is_gguf) {
        return config_unsupported(c,
                                  "Mistral Large 4 is not supported as GGUF; use its safetensors checkpoint");
    }
    if (!config_has(c, NULL, "rope_parameters") && !config_has(c, NULL, "rope_scaling")) {
        return config_bad(c, "rope_parameters", "is missing from the metadata");
    }
    d->head.cap = 30.0f;
    TRY(config_latents(c, &usual, ROPE_NEIGHBOURS, ROPE_NEIGHBOURS, d));
    TRY(config_f32_or_none(c, NULL, "final_logit_softcapping", &d->head.cap));
    d->latent.eps = d->norm_eps;
    d->latent.rotary_folds = true;
    d->attend.temperature_by_head = true;
    const int32_t d_ff = d->layers[0].d_ff;
    d->moe = (moe_desc){.n_groups = 1,
                        .n_groups_used = 1,
                        .score = ROUTE_SOFTMAX,
                        .group_by_best_two = true,
                        .closed_is_zero = true,
                        .renormalise = true,
                        .scale = 1.0f};
    TRY(config_moe(c, d));
    config_usual_shared(c, 1, d);
    d->moe.renormalise = true;
    TRY(config_dense_layers(c, "first_k_dense_replace", 1, d_ff, d));
    TRY(read_speeds(c, &d->ropes[0]));
    TRY(read_positions(c, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_latent(d, i);
    }
    TRY(share_latents(c, d));
    return config_index(c, usual_index, ROPE_NEIGHBOURS, d);
}

const arch mistral_large_archs[] = {
    {{"mistral-large4"},
     {"MistralLarge4ForConditionalGeneration", "MistralLarge4ForCausalLM"},
     &large4_names,
     .describe = describe_large4},
    {.describe = NULL},
};

/* Step 3.5 and 3.7: windows on most layers, which have more heads; a gate per head;
 * experts whose activation is clamped in the last layers. */
#include <math.h>

#include "model/architectures.h"

static const arch_names step_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.g_proj",
           [W_ROUTER] = "model.layers.%d.moe.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.moe.router_bias",
           EXPERT_NAMES("model.layers.%d.moe"),
           SHARED_NAMES("model.layers.%d.share_expert")},
    .left_out = {"vision_model|model.vision_model", "vit_large_projector|model.vit_large_projector",
                 "multi_modal_projector|model.multi_modal_projector"},
};

/* Reads the heads of layers with windows. GGUF files have a list for all layers. */
static quire_err step_read_heads(const config *c, model_desc *d) {
    int32_t n = d->layers[0].n_heads, n_kv = d->caches[0].n_kv_heads, n_other = n_kv;
    TRY(config_i32(c, NULL, "num_sliding_attention_heads|attention_other_setting.num_attention_heads", &n));
    TRY(config_i32(c, NULL, "attention_other_setting.num_attention_groups", &n_other));
    if (n_other != n_kv) {
        return config_unsupported(c, "attention_other_setting.num_attention_groups other than "
                                     "num_attention_groups is not supported");
    }
    for (int32_t i = 0; !c->is_gguf && i < d->n_layers; i++) {
        d->layers[i].n_heads = d->layers[i].window > 0 ? n : d->layers[i].n_heads;
    }
    return QUIRE_OK;
}

/* Reads the number of a layer from a list, which may continue for next-token layers, or
 * one number for all. */
static quire_err step_read_at(const config *c, const char *hf, int32_t layer, float *out) {
    float all[DESC_MAX_LAYERS];
    size_t n = 0;
    if (!config_is_list(c, hf)) {
        return config_f32(c, NULL, hf, out);
    }
    TRY(config_f32s(c, hf, all, DESC_MAX_LAYERS, &n));
    if ((size_t)layer >= n) {
        return config_bad_at(c, NULL, hf, "must be one number, or a list of one for each layer");
    }
    *out = all[layer];
    return QUIRE_OK;
}

/* Adds the table of layers with windows, or of the others, which by default rotate half
 * of each head in GGUF files. */
static quire_err step_add_rope(const config *c, model_desc *d, bool has_window) {
    const char *object = has_window ? "rope_parameters.sliding_attention" : "rope_parameters.full_attention";
    rope_desc r = config_plain_rope(c, d);
    int32_t first = 0;
    float rotary = 1.0f;
    r.pairs = ROPE_HALVES;
    while (first < d->n_layers && (d->layers[first].window > 0) != has_window) {
        first++;
    }
    if (first == d->n_layers) {
        return QUIRE_OK;
    }
    if (c->is_gguf) {
        if (has_window) {
            TRY(config_f32(c, "rope.freq_base_swa", NULL, &r.theta));
            TRY(config_i32(c, "rope.dimension_count_swa", NULL, &r.n_dims));
        } else {
            TRY(config_rope(c, NULL, d, &r));
            r.n_dims /= 2; /* only the first half of its factors is used */
        }
    } else if (config_has(c, NULL,
                          has_window ? "rope_parameters.sliding_attention.rope_theta"
                                     : "rope_parameters.full_attention.rope_theta")) {
        TRY(config_rope(c, object, d, &r));
    } else {
        TRY(step_read_at(c, "rope_theta", first, &r.theta));
        TRY(step_read_at(c, "partial_rotary_factors", first, &rotary));
        if (!(rotary > 0.0f && rotary <= 1.0f)) {
            return config_bad(c, "partial_rotary_factors", "must be over 0 and at most 1");
        }
        r.n_dims = (int32_t)((float)r.n_dims * rotary);
        if (!has_window) {
            TRY(config_rope(c, "rope_scaling", d, &r));
        }
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        if ((d->layers[i].window > 0) == has_window) {
            d->layers[i].rope = (int16_t)d->n_ropes;
        }
    }
    d->ropes[d->n_ropes++] = r;
    return QUIRE_OK;
}

/* Whether a list of layers contains this one: "3,4,5", or numbers. */
static quire_err step_names_layer(const config *c, int32_t layer, bool *is) {
    int32_t all[DESC_MAX_LAYERS];
    size_t n = 0;
    str text = {0};
    if (config_is_list(c, "moe_layers_enum")) {
        TRY(config_i32s(c, NULL, "moe_layers_enum", all, DESC_MAX_LAYERS, &n));
    } else {
        TRY(config_str(c, NULL, "moe_layers_enum", &text));
    }
    for (size_t i = 0; i < text.n && n < DESC_MAX_LAYERS;) {
        int32_t number = 0;
        size_t begin = i;
        for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9' && number < DESC_MAX_LAYERS; i++) {
            number = 10 * number + (text.p[i] - '0');
        }
        if (i > begin) {
            all[n++] = number;
        } else if (text.p[i++] != ',' && text.p[begin] != ' ') {
            return config_bad(c, "moe_layers_enum", "must be numbers with commas between them");
        }
    }
    *is = config_has(c, NULL, "moe_layers_enum") ? false : *is;
    for (size_t i = 0; i < n; i++) {
        *is = *is || all[i] == layer;
    }
    return QUIRE_OK;
}

static quire_err step_read_experts(const config *c, model_desc *d) {
    bool is_sparse[DESC_MAX_LAYERS];
    int32_t d_ff = d->layers[0].d_ff, first = c->is_gguf ? 0 : 3, step = 1;
    d->moe = (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true};
    TRY(config_moe(c, d));
    d->moe.renormalise = true;
    if (!c->is_gguf && !config_has(c, NULL, "share_expert_dim|share_expert_dims")) {
        d->moe.d_shared = 1280;
    }
    TRY(config_i32(c, "leading_dense_block_count", NULL, &first));
    TRY(config_i32(c, "moe_every_n_layers", NULL, &step));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_sparse[i] = i >= first && (step < 2 || (i - first) % step == 0);
        TRY(step_names_layer(c, i, &is_sparse[i]));
    }
    return config_sparse_types(c, is_sparse, d_ff, d);
}

/* Reads a layer's limits; 0 and null: none. */
static quire_err step_read_limits(const config *c, model_desc *d) {
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        TRY(config_f32_at(c, "swiglu_clamp_exp", "swiglu_limits", (size_t)i, &l->limit));
        TRY(config_f32_at(c, "swiglu_clamp_shexp", "swiglu_limits_shared", (size_t)i, &l->dense_limit));
        if (l->limit < 0.0f || l->dense_limit < 0.0f) {
            return config_bad(c, "swiglu_limits", "must be 0 or more");
        }
        if ((l->limit > 0.0f || l->dense_limit > 0.0f) && d->activation != ACT_SILU) {
            return config_unsupported(c, "swiglu_limits are supported only with the activation silu");
        }
    }
    return QUIRE_OK;
}

static quire_err describe_step(const config *c, model_desc *d) {
    decoder_shape s = {.has_heads_by_layer = c->is_gguf};
    int32_t window = 0;
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    float scalar = (float)d->caches[0].d_key;
    TRY(config_f32(c, NULL, "query_pre_attn_scalar", &scalar));
    if (scalar <= 0.0f) {
        return config_bad(c, "query_pre_attn_scalar", "must be over 0");
    }
    d->attention_scale = 1.0f / sqrtf(scalar);
    d->norm.add_one = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    d->attend.gate = ATTEND_GATE_HEADS;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, 0, 0, d));
    TRY(step_read_heads(c, d));
    TRY(step_add_rope(c, d, false));
    TRY(step_add_rope(c, d, true));
    TRY(step_read_experts(c, d));
    return step_read_limits(c, d);
}

const arch stepfun_archs[] = {
    {{"step35"},
     {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration", "Step3p7ForCausalLM"},
     &step_names,
     .describe = describe_step},
    {.describe = NULL},
};

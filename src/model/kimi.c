/* Kimi Linear: Kimi Team 2025, arXiv:2510.26692: three of four layers have the delta rule
 * with a decay per channel, the others latent attention without positions. Ling 3 is
 * similar: decays have a lower limit, latent attention has positions and a gate per head.
 * GLM-5.3 Flash (glm5_next): rows select pools of keys, and hyper-connections join the
 * halves of layers. */
#include <math.h>

#include "model/architectures.h"

static const arch_names kimi_names = {
    .gguf = {[W_DELTA_OUT] = "blk.%d.attn_output"},
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_ROUTER_BIAS] = "model.layers.%d.block_sparse_moe.gate.e_score_correction_bias",
           EXPERT_W_NAMES("model.layers.%d.block_sparse_moe.experts.%d"),
           SHARED_NAMES("model.layers.%d.block_sparse_moe.shared_experts"),
           [W_DELTA_GATE] = "model.layers.%d.self_attn.g_b_proj",
           [W_DELTA_BETA] = "model.layers.%d.self_attn.b_proj",
           [W_DELTA_DECAY] = "model.layers.%d.self_attn.f_b_proj",
           [W_DELTA_RATE] = "model.layers.%d.self_attn.A_log",
           [W_DELTA_BIAS] = "model.layers.%d.self_attn.dt_bias",
           [W_DELTA_NORM] = "model.layers.%d.self_attn.o_norm",
           [W_DELTA_OUT] = "model.layers.%d.self_attn.o_proj"},
};

static const arch_names ling_names = {
    .gguf = {[W_DELTA_OUT] = "blk.%d.attn_output"},
    .hf = {[W_TOKENS] = "model.word_embeddings",
           [W_ROUTER_BIAS] = "model.layers.%d.mlp.gate.expert_bias",
           LATENT_NAMES("model.layers.%d.attention"),
           [W_ATTN_GATE] = "model.layers.%d.attention.g_proj",
           [W_O] = "model.layers.%d.attention.dense",
           [W_DELTA_Q] = "model.layers.%d.attention.q_proj",
           [W_DELTA_K] = "model.layers.%d.attention.k_proj",
           [W_DELTA_V] = "model.layers.%d.attention.v_proj",
           [W_DELTA_GATE] = "model.layers.%d.attention.g_proj|model.layers.%d.attention.g_b_proj",
           [W_DELTA_GATE_IN] = "model.layers.%d.attention.g_a_proj",
           [W_DELTA_BETA] = "model.layers.%d.attention.b_proj",
           [W_DELTA_DECAY] = "model.layers.%d.attention.f_proj|model.layers.%d.attention.f_b_proj",
           [W_DELTA_DECAY_IN] = "model.layers.%d.attention.f_a_proj",
           [W_DELTA_CONV_Q] = "model.layers.%d.attention.q_conv1d",
           [W_DELTA_CONV_K] = "model.layers.%d.attention.k_conv1d",
           [W_DELTA_CONV_V] = "model.layers.%d.attention.v_conv1d",
           [W_DELTA_RATE] = "model.layers.%d.attention.A_log",
           [W_DELTA_BIAS] = "model.layers.%d.attention.dt_bias",
           [W_DELTA_NORM] = "model.layers.%d.attention.o_norm",
           [W_DELTA_OUT] = "model.layers.%d.attention.dense"},
};

static const arch_names glm5_next_names = {
    .gguf = {[W_DELTA_OUT] = "blk.%d.attn_output"},
    .hf = {[W_DELTA_GATE] = "model.layers.%d.self_attn.g_b_proj",
           [W_DELTA_BETA] = "model.layers.%d.self_attn.b_proj",
           [W_DELTA_DECAY] = "model.layers.%d.self_attn.f_b_proj",
           [W_DELTA_RATE] = "model.layers.%d.self_attn.A_log",
           [W_DELTA_BIAS] = "model.layers.%d.self_attn.dt_bias",
           [W_DELTA_NORM] = "model.layers.%d.self_attn.o_norm",
           [W_DELTA_OUT] = "model.layers.%d.self_attn.o_proj"},
};

/* clang-format off */
static const layer_step steps_hyper_delta[] = {
    GATHER(W_HYPER_ATTN, A), NORM(W_ATTN_NORM, A, A), DELTA(A, A), SCATTER(A),
    GATHER(W_HYPER_FFN, A), NORM(W_FFN_NORM, A, A), MLP(A, A), SCATTER(A), END};
static const layer_step steps_hyper_delta_moe[] = {
    GATHER(W_HYPER_ATTN, A), NORM(W_ATTN_NORM, A, A), DELTA(A, A), SCATTER(A),
    GATHER(W_HYPER_FFN, A), NORM(W_FFN_NORM, A, A), MOE(A, B), SCATTER(B), END};
static const layer_step steps_hyper_latent[] = {
    GATHER(W_HYPER_ATTN, A), NORM(W_ATTN_NORM, A, A), LATENT(A, A), SCATTER(A),
    GATHER(W_HYPER_FFN, A), NORM(W_FFN_NORM, A, A), MLP(A, A), SCATTER(A), END};
static const layer_step steps_hyper_latent_moe[] = {
    GATHER(W_HYPER_ATTN, A), NORM(W_ATTN_NORM, A, A), LATENT(A, A), SCATTER(A),
    GATHER(W_HYPER_FFN, A), NORM(W_FFN_NORM, A, A), MOE(A, B), SCATTER(B), END};
/* clang-format on */

/* Marks the layers in a list of config.json, which counts from 1. */
static quire_err mark_layers(const config *c, const char *key, int32_t n_layers, bool *to) {
    int32_t list[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, NULL, key, list, DESC_MAX_LAYERS, &n));
    for (size_t i = 0; i < n; i++) {
        if (list[i] < 1 || list[i] > n_layers) {
            return config_bad(c, key, "must number layers from 1");
        }
        to[list[i] - 1] = true;
    }
    return QUIRE_OK;
}

/* Reads which layers have attention. GGUF files give the others no KV heads. config.json
 * has types, or lists of both kinds; otherwise it is the last layer of each `period`. */
static quire_err kimi_read_layers(const config *c, int32_t period, const model_desc *d, state_layers *s) {
    const char *full = "linear_attn_config.full_attn_layers", *kda = "linear_attn_config.kda_layers";
    bool are_typed, are_listed = config_has(c, NULL, full) && config_has(c, NULL, kda);
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    if (are_listed && !are_typed) {
        TRY(mark_layers(c, full, d->n_layers, s->attends));
        TRY(mark_layers(c, kda, d->n_layers, s->recurs));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (!are_typed && !are_listed) {
            s->attends[i] = c->is_gguf ? d->caches[i].n_kv_heads > 0 : (i + 1) % period == 0;
            s->recurs[i] = !s->attends[i];
        }
        if (s->attends[i] == s->recurs[i]) {
            return config_bad(c, full, "and kda_layers must together name each layer once");
        }
    }
    return QUIRE_OK;
}

/* Sets the delta rule's heads, all of the same width. */
static quire_err kimi_read_delta(const config *c, int32_t n_heads, int32_t d_head, model_desc *d) {
    delta_desc *r = &d->delta;
    *r = (delta_desc){.kind = DELTA_CHANNELS, .n_heads = n_heads, .d_key = d_head, .n_taps = 4};
    r->gate = ACT_SIGMOID;
    TRY(config_i32(c, NULL, "linear_attn_config.num_heads|linear_num_heads", &r->n_heads));
    TRY(config_i32(c, "kda.head_dim", "linear_attn_config.head_dim|linear_head_dim", &r->d_key));
    TRY(config_taps(c, "ssm.conv_kernel",
                    "linear_attn_config.short_conv_kernel_size|linear_conv_kernel_dim|short_conv_kernel_size",
                    &r->n_taps));
    if (r->n_heads < 1 || r->n_heads > 4096 || r->d_key < 1 || r->d_key > DESC_MAX_HEAD) {
        return err_set(
            c->err, QUIRE_UNSUPPORTED, -1,
            "%s: linear attention of %d heads of %d elements; this build supports 1 to 4096 heads of 1 to %d",
            model_file_path(c->f), (int)r->n_heads, (int)r->d_key, DESC_MAX_HEAD);
    }
    r->n_key_heads = r->n_heads;
    r->d_value = r->d_key;
    return QUIRE_OK;
}

/* Describes experts after the first layers, latent attention in layers with attention,
 * and the delta rule in the others. */
static quire_err kimi_end(const config *c, int32_t n_dense, int32_t d_ff, state_layers *s, model_desc *d) {
    if (d->layers[0].n_experts > 0) {
        TRY(config_dense_layers(c, "first_k_dense_replace", n_dense, d_ff, d));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (s->attends[i]) {
            config_set_latent(d, i);
        } else {
            d->layers[i].steps = d->layers[i].n_experts > 0 ? steps_delta_moe : steps_delta;
        }
    }
    config_delta_caches(d, s);
    return config_set_states(c, s, d);
}

static quire_err describe_kimi_linear(const config *c, model_desc *d) {
    const latent_desc usual = {.rank = 512, .d_nope = 128, .d_rope = 64, .d_value = 128};
    decoder_shape shape = {.own_heads = true};
    state_layers s = {0};
    bool has_no_positions = c->is_gguf;
    TRY(config_decoder(c, &shape, d));
    TRY(config_i32(c, NULL, "model_max_length", &d->max_positions));
    int32_t d_ff = d->layers[0].d_ff;
    TRY(config_i32(c, NULL, "dense_ffn_hidden", &d_ff));
    d->latent = c->is_gguf ? (latent_desc){0} : usual;
    TRY(config_latent(c, d));
    d->attention_scale = 1.0f / sqrtf((float)(d->latent.d_nope + d->latent.d_rope));
    TRY(config_bool(c, NULL, "mla_use_nope", &has_no_positions));
    if (!has_no_positions) {
        return config_unsupported(c, "mla_use_nope false is not supported: latent attention with positions");
    }
    d->moe =
        (moe_desc){.score = ROUTE_SIGMOID, .correction_bias = true, .renormalise = true, .scale = 2.446f};
    TRY(config_moe(c, d));
    TRY(config_bool(c, NULL, "moe_renormalize", &d->moe.renormalise));
    config_usual_shared(c, c->is_gguf ? 0 : 1, d);
    d->moe.group_by_best_two = true;
    TRY(kimi_read_delta(c, c->is_gguf ? shape.n_heads : 32, 128, d));
    d->delta.d_low = d->delta.d_key;
    TRY(kimi_read_layers(c, 4, d, &s));
    return kimi_end(c, 1, d_ff, &s, d);
}

static quire_err describe_ling3(const config *c, model_desc *d) {
    const latent_desc usual = {.rank = 512, .d_nope = 128, .d_rope = 64, .d_value = 128};
    decoder_shape shape = {.own_heads = true};
    state_layers s = {0};
    int32_t period = 8, d_head = 128;
    bool is_bounded = true, has_no_low = true, interleaves = true;
    TRY(config_decoder(c, &shape, d));
    const int32_t d_ff = d->layers[0].d_ff;
    d->latent = c->is_gguf ? (latent_desc){0} : usual;
    TRY(config_latent(c, d));
    TRY(config_bool(c, NULL, "rope_interleave", &interleaves));
    TRY(config_latent_rotary(c, d, interleaves ? ROPE_NEIGHBOURS : ROPE_HALVES, ROPE_NEIGHBOURS));
    d->moe = (moe_desc){.n_groups = 8,
                        .n_groups_used = 4,
                        .score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .renormalise = true,
                        .scale = 2.5f};
    TRY(config_moe(c, d));
    config_usual_shared(c, c->is_gguf ? 0 : 1, d);
    d->moe.group_by_best_two = true;
    TRY(config_i32(c, NULL, "head_dim", &d_head));
    TRY(kimi_read_delta(c, shape.n_heads, d_head, d));
    d->delta.lower = -5.0f;
    TRY(config_f32(c, "kda.gate_lower_bound", "kda_lower_bound", &d->delta.lower));
    TRY(config_bool(c, "kda.safe_gate", "kda_safe_gate", &is_bounded));
    d->delta.lower = is_bounded ? d->delta.lower : 0.0f;
    TRY(config_bool(c, NULL, "no_kda_lora", &has_no_low));
    d->delta.d_low = has_no_low ? 0 : d->delta.d_key;
    d->attend.gate = ATTEND_GATE_HEADS;
    d->attend.gate_f = ACT_SIGMOID;
    TRY(config_period(c, NULL, "layer_group_size", &period));
    TRY(kimi_read_layers(c, period, d, &s));
    return kimi_end(c, 4, d_ff, &s, d);
}

/* Reads the parameters of hyper-connections. */
static quire_err glm5_read_streams(const config *c, model_desc *d) {
    streams_desc *m = &d->streams;
    *m = (streams_desc){.kind = STREAMS_MIXED, .n = 4, .n_rounds = 20, .eps = 1e-6f};
    TRY(config_i32(c, "hyper_connection.count", "hc_mult", &m->n));
    TRY(config_i32(c, "hyper_connection.sinkhorn_iterations", "hc_sinkhorn_iters", &m->n_rounds));
    TRY(config_f32(c, "hyper_connection.epsilon", "hc_eps", &m->eps));
    return m->n >= 1 && m->n <= DESC_MAX_STREAMS && m->n_rounds >= 1 && m->n_rounds <= 1000 && m->eps >= 0.0f
               ? QUIRE_OK
               : config_bad(c, c->is_gguf ? "hyper_connection.count" : "hc_mult",
                            "must be from 1 to 8, the Sinkhorn iterations from 1 to 1000, and the epsilon 0 "
                            "or more");
}

/* Reads the limit of gates and up products: one number, or lists in a GGUF file; 0 and
 * null: none. */
static quire_err glm5_read_limits(const config *c, model_desc *d) {
    float usual = c->is_gguf ? 0.0f : 10.0f;
    TRY(config_f32_or_none(c, NULL, "swiglu_limit", &usual));
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        l->limit = l->dense_limit = usual;
        TRY(config_f32_at(c, "swiglu_clamp_exp", NULL, (size_t)i, &l->limit));
        TRY(config_f32_at(c, "swiglu_clamp_shexp", NULL, (size_t)i, &l->dense_limit));
        if (l->limit < 0.0f || l->dense_limit < 0.0f || (l->limit > 0.0f) != (l->dense_limit > 0.0f) ||
            (l->limit > 0.0f) != (d->layers[0].limit > 0.0f)) {
            return config_bad(c, c->is_gguf ? "swiglu_clamp_exp" : "swiglu_limit",
                              "must be over 0 in all layers or in none");
        }
    }
    if (d->activation != ACT_SILU) { /* the model's experts always use silu */
        return config_unsupported(c, "a hidden_act other than silu is not supported here");
    }
    if (d->layers[0].limit > 0.0f) {
        d->activation = d->moe.activation = ACT_CLAMPED_SILU;
    }
    return QUIRE_OK;
}

static quire_err glm5_read_latents(const config *c, model_desc *d) {
    d->latent = (latent_desc){.q_rank = 1536, .rank = 512, .d_nope = 256, .d_value = 256};
    d->latent.rotary_folds = true;
    d->latent.eps = d->norm_eps;
    TRY(config_latent(c, d));
    if (d->latent.d_rope > 0) {
        return config_unsupported(c,
                                  "latent attention with positions (qk_rope_head_dim) is not supported here");
    }
    d->attention_scale = 1.0f / sqrtf((float)d->latent.d_nope);
    return QUIRE_OK;
}

static quire_err describe_glm5_next(const config *c, model_desc *d) {
    const index_desc usual = {
        .kind = CHOOSE_POOLS, .n_best = 2048, .n_heads = 32, .d_head = 128, .block = 16, .gated_pools = true};
    decoder_shape shape = {.own_heads = true};
    state_layers s = {.may_choose = true};
    TRY(config_decoder(c, &shape, d));
    /* the model's epsilon, not the index's */
    TRY(config_f32(c, "attention.layer_norm_rms_epsilon", NULL, &d->norm_eps));
    const int32_t d_ff = d->layers[0].d_ff;
    TRY(glm5_read_latents(c, d));
    d->moe = (moe_desc){.n_groups = 1,
                        .n_groups_used = 1,
                        .score = ROUTE_SIGMOID,
                        .correction_bias = true,
                        .renormalise = true,
                        .scale = 2.5f};
    TRY(config_moe(c, d));
    config_usual_shared(c, 1, d);
    d->moe.group_by_best_two = true;
    TRY(glm5_read_limits(c, d));
    TRY(kimi_read_delta(c, c->is_gguf ? shape.n_heads : 64, 128, d));
    d->delta.lower = -5.0f;
    TRY(config_f32(c, "kda.gate_lower_bound", "linear_attn_config.gate_lower_bound|linear_lower_bound",
                   &d->delta.lower));
    d->delta.d_low = d->delta.d_key;
    TRY(glm5_read_streams(c, d));
    TRY(kimi_read_layers(c, 4, d, &s));
    TRY(kimi_end(c, 1, d_ff, &s, d));
    for (int32_t i = 0; i < d->n_layers; i++) {
        const bool is_moe = d->layers[i].n_experts > 0;
        d->layers[i].steps = s.recurs[i] ? (is_moe ? steps_hyper_delta_moe : steps_hyper_delta)
                                         : (is_moe ? steps_hyper_latent_moe : steps_hyper_latent);
    }
    return config_index(c, usual, ROPE_HALVES, d);
}

const arch kimi_archs[] = {
    {{"kimi-linear"}, {"KimiLinearForCausalLM"}, &kimi_names, .describe = describe_kimi_linear},
    {{"bailingmoe3"}, {"BailingMoeV3ForCausalLM"}, &ling_names, .describe = describe_ling3},
    {{"glm5-next"},
     {"Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"},
     &glm5_next_names,
     .describe = describe_glm5_next},
    {.describe = NULL},
};

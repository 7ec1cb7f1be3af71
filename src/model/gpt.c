/* GPT-2: Radford et al. 2019. GPT-BigCode (StarCoder): arXiv:2305.06161. GPT-J, GPT-NeoX:
 * arXiv:2204.06745. OPT: arXiv:2205.01068. StarCoder 2: arXiv:2402.19173. */
#include <assert.h>
#include <math.h>

#include "model/architectures.h"

#define GPT_WIDTH "hidden_size|n_embd"

static const arch_names gpt2_names = {
    .hf = {[W_TOKENS] = "transformer.wte|wte",
           [W_POSITIONS] = "transformer.wpe|wpe",
           [W_OUT_NORM] = "transformer.ln_f|ln_f",
           [W_ATTN_NORM] = "transformer.h.%d.ln_1|h.%d.ln_1",
           [W_QKV] = "transformer.h.%d.attn.c_attn|h.%d.attn.c_attn",
           [W_O] = "transformer.h.%d.attn.c_proj|h.%d.attn.c_proj",
           [W_FFN_NORM] = "transformer.h.%d.ln_2|h.%d.ln_2",
           [W_UP] = "transformer.h.%d.mlp.c_fc|h.%d.mlp.c_fc",
           [W_DOWN] = "transformer.h.%d.mlp.c_proj|h.%d.mlp.c_proj"},
    .left_out = {"transformer.h.%d.attn.bias", "h.%d.attn.bias", "transformer.h.%d.attn.masked_bias",
                 "h.%d.attn.masked_bias"},
};
static const arch_names gptj_names = {
    .hf = {[W_TOKENS] = "transformer.wte",
           [W_OUT_NORM] = "transformer.ln_f",
           [W_ATTN_NORM] = "transformer.h.%d.ln_1",
           [W_Q] = "transformer.h.%d.attn.q_proj",
           [W_K] = "transformer.h.%d.attn.k_proj",
           [W_V] = "transformer.h.%d.attn.v_proj",
           [W_O] = "transformer.h.%d.attn.out_proj",
           [W_UP] = "transformer.h.%d.mlp.fc_in",
           [W_DOWN] = "transformer.h.%d.mlp.fc_out"},
    .left_out = {"transformer.h.%d.attn.bias", "transformer.h.%d.attn.masked_bias"},
};
static const arch_names neox_names = {
    .hf = {[W_TOKENS] = "gpt_neox.embed_in",
           [W_OUT_NORM] = "gpt_neox.final_layer_norm",
           [W_HEAD] = "embed_out",
           [W_ATTN_NORM] = "gpt_neox.layers.%d.input_layernorm",
           [W_QKV] = "gpt_neox.layers.%d.attention.query_key_value",
           [W_O] = "gpt_neox.layers.%d.attention.dense",
           [W_FFN_NORM] = "gpt_neox.layers.%d.post_attention_layernorm",
           [W_UP] = "gpt_neox.layers.%d.mlp.dense_h_to_4h",
           [W_DOWN] = "gpt_neox.layers.%d.mlp.dense_4h_to_h"},
    .left_out = {"gpt_neox.layers.%d.attention.bias", "gpt_neox.layers.%d.attention.masked_bias"},
};
static const arch_names opt_names = {
    .hf = {[W_TOKENS] = "model.decoder.embed_tokens",
           [W_POSITIONS] = "model.decoder.embed_positions",
           [W_OUT_NORM] = "model.decoder.final_layer_norm",
           [W_EMBED_IN] = "model.decoder.project_in",
           [W_EMBED_OUT] = "model.decoder.project_out",
           [W_ATTN_NORM] = "model.decoder.layers.%d.self_attn_layer_norm",
           [W_Q] = "model.decoder.layers.%d.self_attn.q_proj",
           [W_K] = "model.decoder.layers.%d.self_attn.k_proj",
           [W_V] = "model.decoder.layers.%d.self_attn.v_proj",
           [W_O] = "model.decoder.layers.%d.self_attn.out_proj",
           [W_FFN_NORM] = "model.decoder.layers.%d.final_layer_norm",
           [W_UP] = "model.decoder.layers.%d.fc1",
           [W_DOWN] = "model.decoder.layers.%d.fc2"},
};
static const arch_names starcoder2_names = {
    .hf = {[W_UP] = "model.layers.%d.mlp.c_fc", [W_DOWN] = "model.layers.%d.mlp.c_proj"},
};

quire_err gpt_describe_shape(const config *c, const char *width, int32_t n_kv_heads, model_desc *d) {
    assert(d != NULL);
    decoder_shape s = {.n_kv_heads = n_kv_heads};
    TRY(config_need_i32(c, "embedding_length", width, &d->d_model));
    s.d_ff = d->d_model <= INT32_MAX / 4 ? 4 * d->d_model : 0;
    d->norm.kind = NORM_LAYER;
    d->ungated = true;
    d->norm_eps = 1e-5f;
    TRY(config_decoder(c, &s, d));
    return config_ff_of_tensor(c, d);
}

static quire_err describe_gpt2(const config *c, model_desc *d) {
    bool scaled = true;
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(gpt_describe_shape(c, GPT_WIDTH, 0, d));
    TRY(config_bool(c, NULL, "scale_attn_weights", &scaled));
    TRY(config_bool(c, NULL, "scale_attn_by_inverse_layer_idx", &d->attend.scale_by_layer));
    d->attention_scale = scaled ? d->attention_scale : 1.0f;
    d->embed.positions = d->conv1d = true;
    return QUIRE_OK;
}

static quire_err describe_bigcode(const config *c, model_desc *d) {
    bool multi_query = true, scaled = true;
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(config_bool(c, NULL, "multi_query", &multi_query));
    TRY(gpt_describe_shape(c, GPT_WIDTH, multi_query ? 1 : 0, d));
    TRY(config_bool(c, NULL, "scale_attn_weights", &scaled));
    d->attention_scale = scaled ? d->attention_scale : 1.0f;
    d->embed.positions = true;
    d->attend.order = multi_query ? QKV_STACKED : QKV_GROUPED;
    return QUIRE_OK;
}

static quire_err describe_gptj(const config *c, model_desc *d) {
    int32_t n_dims = 64;
    d->activation = ACT_GELU_TANH;
    TRY(gpt_describe_shape(c, GPT_WIDTH, 0, d));
    steps_set(d, steps_parallel);
    TRY(config_rotary_dim(c, d, &n_dims));
    rope_desc r = config_plain_rope(c, d);
    r.n_dims = n_dims;
    r.pairs = ROPE_NEIGHBOURS;
    return config_add_rope(c, d, &r);
}

static quire_err describe_neox(const config *c, model_desc *d) {
    bool parallel = true;
    d->activation = ACT_GELU;
    TRY(gpt_describe_shape(c, GPT_WIDTH, 0, d));
    TRY(config_bool(c, "use_parallel_residual", "use_parallel_residual", &parallel));
    steps_set(d, parallel ? steps_parallel_norms : steps_pre_norm);
    d->attend.order = QKV_GROUPED;
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.n_dims = r.n_dims / 4;
    TRY(config_f32(c, NULL, "rotary_emb_base", &r.theta));
    TRY(config_rope(c, NULL, d, &r));
    return config_add_rope(c, d, &r);
}

static quire_err describe_opt(const config *c, model_desc *d) {
    bool before = true, no_end = false, has_weights = true;
    int32_t width;
    d->tied_embeddings = true;
    d->activation = ACT_RELU;
    TRY(gpt_describe_shape(c, GPT_WIDTH, 0, d));
    width = d->d_model;
    TRY(config_bool(c, NULL, "do_layer_norm_before", &before));
    TRY(config_bool(c, NULL, "_remove_final_layer_norm", &no_end));
    TRY(config_bool(c, NULL, "layer_norm_elementwise_affine", &has_weights));
    TRY(config_i32(c, NULL, "word_embed_proj_dim", &width));
    if (width < 1) {
        return config_bad(c, "word_embed_proj_dim", "must be at least 1");
    }
    d->embed.width = width != d->d_model ? width : 0;
    steps_set(d, before ? steps_pre_norm : steps_post_norm);
    d->head.bare = !before || no_end;
    d->norm.bare = !has_weights;
    d->embed.positions = true;
    d->embed.position_offset = 2;
    return QUIRE_OK;
}

static quire_err describe_starcoder2(const config *c, model_desc *d) {
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    TRY(gpt_describe_shape(c, GPT_WIDTH, 0, d));
    TRY(config_window_on_all(c, 0, d));
    return config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f);
}

/* gpt-oss: arXiv:2508.10925: sinks in the softmax, windows on every other layer, YaRN,
 * experts with biases and a clamped SwiGLU. */

static const arch_names gpt_oss_names = {
    .gguf = {[W_FFN_NORM] = "blk.%d.post_attention_norm|blk.%d.ffn_norm", [W_ROUTER] = "blk.%d.ffn_gate_inp"},
    .hf = {[W_ROUTER] = "model.layers.%d.mlp.router|model.layers.%d.mlp.router.linear",
           [W_EXPERT_GATE_UP] = "model.layers.%d.mlp.experts.gate_up_proj",
           [W_EXPERT_DOWN] = "model.layers.%d.mlp.experts.down_proj",
           /* for files whose experts are modules, quantised by bitsandbytes */
           [W_EXPERT_GATE] = "model.layers.%d.mlp.experts.gate_up_projs.%d",
           [W_EXPERT_UP] = "model.layers.%d.mlp.experts.gate_up_projs.%d",
           [W_EXPERTS_DOWN] = "model.layers.%d.mlp.experts.down_projs.%d"},
};

/* Uses the published YaRN scaling if config.json has none. */
static quire_err read_rope(const config *c, model_desc *d) {
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.truncate = !c->is_gguf; /* the published models do not truncate; GGUF files do not say */
    TRY(config_rope(c, NULL, d, &r));
    if (!c->is_gguf &&
        !config_has(c, NULL,
                    "rope_parameters.rope_type|rope_scaling.rope_type|rope_scaling.type|rope_parameters.type|"
                    "rope_parameters.rope_theta")) {
        r.kind = ROPE_YARN;
        r.factor = 32.0f;
        r.truncate = false;
        r.original_positions = 4096;
    }
    return config_add_rope(c, d, &r);
}

/* Checks the slope in the experts' sigmoid, which the kernels assume. */
static quire_err check_alpha(const config *c) {
    float alpha = 1.702f;
    TRY(config_f32(c, NULL, "swiglu_alpha", &alpha));
    return alpha == 1.702f ? QUIRE_OK
                           : config_unsupported(c, "a swiglu_alpha other than 1.702 is not supported");
}

static quire_err describe_gpt_oss(const config *c, model_desc *d) {
    decoder_shape s = {0};
    int32_t window = 128;
    TRY(config_decoder(c, &s, d));
    TRY(read_rope(c, d));
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, 2, 1, d));
    d->attend.sinks = true;
    d->moe =
        (moe_desc){.score = ROUTE_SOFTMAX_CHOSEN, .interleaved = true, .transposed = true, .limit = 7.0f};
    TRY(config_moe(c, d));
    d->moe.activation = ACT_SWIGLU_CLAMPED;
    TRY(check_alpha(c));
    TRY(config_f32_or_none(c, NULL, "swiglu_limit", &d->moe.limit));
    d->moe.limit = d->moe.limit > 0.0f ? d->moe.limit : INFINITY; /* null: no limit */
    return QUIRE_OK;
}

const arch gpt_archs[] = {
    {{"gpt2"}, {"GPT2LMHeadModel"}, &gpt2_names, .describe = describe_gpt2},
    {{"starcoder"}, {"GPTBigCodeForCausalLM"}, &gpt2_names, .describe = describe_bigcode},
    {{"gptj"}, {"GPTJForCausalLM"}, &gptj_names, .describe = describe_gptj},
    {{"gptneox"}, {"GPTNeoXForCausalLM"}, &neox_names, .describe = describe_neox},
    {{"opt"}, {"OPTForCausalLM"}, &opt_names, .describe = describe_opt},
    {{"starcoder2"}, {"Starcoder2ForCausalLM"}, &starcoder2_names, .describe = describe_starcoder2},
    {{"gpt-oss"}, {"GptOssForCausalLM"}, &gpt_oss_names, .describe = describe_gpt_oss},
    {.describe = NULL},
};

#include "model/weight_names.h"

#include <stdio.h>
#include <string.h>

#define MODEL_ROOT "model."

/* GGUF has one name for a role in all architectures. NULL and roles that are not listed:
 * Llama has no such weight. */
static const weight_name usual[N_WEIGHT_ROLES] = {
    [W_TOKENS] = {"token_embd", "model.embed_tokens"},
    [W_POSITIONS] = {"position_embd", NULL},
    [W_TYPES] = {"token_types", NULL},
    [W_EMBED_NORM] = {"token_embd_norm", NULL},
    [W_OUT_NORM] = {"output_norm", "model.norm"},
    [W_HEAD] = {"output", "lm_head|language_model.lm_head"},
    [W_ATTN_NORM] = {"blk.%d.attn_norm", "model.layers.%d.input_layernorm"},
    [W_QKV] = {"blk.%d.attn_qkv", NULL},
    [W_Q] = {"blk.%d.attn_q", "model.layers.%d.self_attn.q_proj"},
    [W_K] = {"blk.%d.attn_k", "model.layers.%d.self_attn.k_proj"},
    [W_V] = {"blk.%d.attn_v", "model.layers.%d.self_attn.v_proj"},
    [W_Q_NORM] = {"blk.%d.attn_q_norm", "model.layers.%d.self_attn.q_norm"},
    [W_K_NORM] = {"blk.%d.attn_k_norm", "model.layers.%d.self_attn.k_norm"},
    [W_SINKS] = {"blk.%d.attn_sinks", "model.layers.%d.self_attn.sinks"},
    [W_K_SCALE] = {NULL,
                   "model.layers.%d.self_attn.k_proj.k_scale|model.layers.%d.self_attn.k_scale|"
                   "model.layers.%d.self_attn.attn.k_scale|model.layers.%d.self_attn.qkv_proj.k_scale|"
                   "model.layers.%d.self_attn.k_cache.scale|model.layers.%d.self_attn.k_proj.output_scale|"
                   "model.layers.%d.self_attn.kv_scale"},
    [W_V_SCALE] = {NULL,
                   "model.layers.%d.self_attn.v_proj.v_scale|model.layers.%d.self_attn.v_scale|"
                   "model.layers.%d.self_attn.attn.v_scale|model.layers.%d.self_attn.qkv_proj.v_scale|"
                   "model.layers.%d.self_attn.v_cache.scale|model.layers.%d.self_attn.v_proj.output_scale|"
                   "model.layers.%d.self_attn.kv_scale"},
    [W_Q_A] = {"blk.%d.attn_q_a", "model.layers.%d.self_attn.q_a_proj"},
    [W_Q_A_NORM] = {"blk.%d.attn_q_a_norm", "model.layers.%d.self_attn.q_a_layernorm"},
    [W_Q_B] = {"blk.%d.attn_q_b", "model.layers.%d.self_attn.q_b_proj"},
    [W_KV_A] = {"blk.%d.attn_kv_a_mqa", "model.layers.%d.self_attn.kv_a_proj_with_mqa"},
    [W_KV_A_NORM] = {"blk.%d.attn_kv_a_norm", "model.layers.%d.self_attn.kv_a_layernorm"},
    [W_KV_B] = {"blk.%d.attn_kv_b", "model.layers.%d.self_attn.kv_b_proj"},
    [W_K_B] = {"blk.%d.attn_k_b", NULL},
    [W_V_B] = {"blk.%d.attn_v_b", NULL},
    [W_INDEX_K] = {"blk.%d.indexer.attn_k", "model.layers.%d.self_attn.indexer.wk"},
    [W_INDEX_K_NORM] = {"blk.%d.indexer.k_norm", "model.layers.%d.self_attn.indexer.k_norm"},
    [W_INDEX_Q] = {"blk.%d.indexer.attn_q_b", "model.layers.%d.self_attn.indexer.wq_b"},
    [W_INDEX_WEIGHTS] = {"blk.%d.indexer.proj", "model.layers.%d.self_attn.indexer.weights_proj"},
    [W_INDEX_GATE] = {"blk.%d.indexer_compressor_gate",
                      "model.layers.%d.self_attn.indexer.index_kpool_compress_gate"},
    [W_INDEX_PLACES] = {"blk.%d.indexer_compressor_ape",
                        "model.layers.%d.self_attn.indexer.index_kpool_compress_ape"},
    [W_INDEX_Q_NORM] = {"blk.%d.indexer.q_norm", NULL},
    [W_O] = {"blk.%d.attn_output", "model.layers.%d.self_attn.o_proj"},
    [W_ATTN_GATE] = {"blk.%d.attn_gate", NULL},
    [W_ATTN_INNER_NORM] = {"blk.%d.attn_sub_norm", NULL},
    [W_FFN_INNER_NORM] = {"blk.%d.ffn_sub_norm", NULL},
    [W_ATTN_POST_NORM] = {"blk.%d.post_attention_norm", NULL},
    [W_FFN_NORM] = {"blk.%d.ffn_norm", "model.layers.%d.post_attention_layernorm"},
    [W_GATE_UP] = {"blk.%d.ffn_gate_up", NULL},
    [W_GATE] = {"blk.%d.ffn_gate", "model.layers.%d.mlp.gate_proj"},
    [W_UP] = {"blk.%d.ffn_up", "model.layers.%d.mlp.up_proj"},
    [W_DOWN] = {"blk.%d.ffn_down", "model.layers.%d.mlp.down_proj"},
    [W_FFN_POST_NORM] = {"blk.%d.post_ffw_norm", NULL},
    [W_ROUTER] = {"blk.%d.ffn_gate_inp", "model.layers.%d.mlp.gate"},
    [W_ROUTER_BIAS] = {"blk.%d.exp_probs_b", "model.layers.%d.mlp.gate.e_score_correction_bias"},
    [W_EXPERT_GATE_UP] = {"blk.%d.ffn_gate_up_exps", NULL},
    [W_EXPERT_GATE] = {"blk.%d.ffn_gate_exps", "model.layers.%d.mlp.experts.%d.gate_proj"},
    [W_EXPERT_UP] = {"blk.%d.ffn_up_exps", "model.layers.%d.mlp.experts.%d.up_proj"},
    [W_EXPERT_DOWN] = {"blk.%d.ffn_down_exps", "model.layers.%d.mlp.experts.%d.down_proj"},
    [W_SHARED_GATE_UP] = {"blk.%d.ffn_gate_up_shexp", NULL},
    [W_SHARED_GATE] = {"blk.%d.ffn_gate_shexp", "model.layers.%d.mlp.shared_experts.gate_proj"},
    [W_SHARED_UP] = {"blk.%d.ffn_up_shexp", "model.layers.%d.mlp.shared_experts.up_proj"},
    [W_SHARED_DOWN] = {"blk.%d.ffn_down_shexp", "model.layers.%d.mlp.shared_experts.down_proj"},
    [W_SHARED_ROUTER] = {"blk.%d.ffn_gate_inp_shexp", "model.layers.%d.mlp.shared_expert_gate"},
    [W_ROUTER_NORM] = {"blk.%d.ffn_gate_inp.scale", NULL},
    [W_EXPERT_SCALES] = {"blk.%d.ffn_down_exps.scale", NULL},
    [W_LAYER_SCALE] = {"blk.%d.layer_output_scale.weight", NULL},
    [W_MLP_POST_NORM] = {"blk.%d.post_ffw_norm_1", NULL},
    [W_EXPERTS_NORM] = {"blk.%d.pre_ffw_norm_2", NULL},
    [W_EXPERTS_POST_NORM] = {"blk.%d.post_ffw_norm_2", NULL},
    [W_INPUT_TABLE] = {"per_layer_token_embd", NULL},
    [W_INPUT_PROJECTION] = {"per_layer_model_proj", NULL},
    [W_INPUT_PROJECTION_NORM] = {"per_layer_proj_norm", NULL},
    [W_INPUT_GATE] = {"blk.%d.inp_gate", NULL},
    [W_INPUT_OUT] = {"blk.%d.proj", NULL},
    [W_INPUT_POST_NORM] = {"blk.%d.post_norm", NULL},
    [W_STREAM_NORM] = {"blk.%d.altup_router_norm", NULL},
    [W_STREAM_ROUTER] = {"blk.%d.altup_router", NULL},
    [W_STREAM_PREDICT] = {"blk.%d.altup_predict_coef", NULL},
    [W_STREAM_CORRECT] = {"blk.%d.altup_correct_coef", NULL},
    [W_STREAM_SCALE] = {"blk.%d.altup_correct_scale.weight", NULL},
    [W_HYPER_ATTN] = {"blk.%d.hc_attn_fn", "model.layers.%d.hc_attn_fn"},
    [W_HYPER_ATTN_SCALE] = {"blk.%d.hc_attn_scale", "model.layers.%d.hc_attn_scale"},
    [W_HYPER_ATTN_BASE] = {"blk.%d.hc_attn_base", "model.layers.%d.hc_attn_base"},
    [W_HYPER_FFN] = {"blk.%d.hc_ffn_fn", "model.layers.%d.hc_ffn_fn"},
    [W_HYPER_FFN_SCALE] = {"blk.%d.hc_ffn_scale", "model.layers.%d.hc_ffn_scale"},
    [W_HYPER_FFN_BASE] = {"blk.%d.hc_ffn_base", "model.layers.%d.hc_ffn_base"},
    [W_GATED_ATTN_NORM] = {"blk.%d.hc_attn_norm", "model.layers.%d.attn_hyper_connection.hc_norm"},
    [W_GATED_ATTN_DOWN] = {"blk.%d.hc_attn_down",
                           "model.layers.%d.attn_hyper_connection.input_mix_weight_down"},
    [W_GATED_ATTN_UP] = {"blk.%d.hc_attn_up", "model.layers.%d.attn_hyper_connection.input_mix_weight_up"},
    [W_GATED_ATTN_WRITE] = {"blk.%d.hc_attn_inject",
                            "model.layers.%d.attn_hyper_connection.block_inject_weight"},
    [W_GATED_FFN_NORM] = {"blk.%d.hc_ffn_norm", "model.layers.%d.mlp_hyper_connection.hc_norm"},
    [W_GATED_FFN_DOWN] = {"blk.%d.hc_ffn_down", "model.layers.%d.mlp_hyper_connection.input_mix_weight_down"},
    [W_GATED_FFN_UP] = {"blk.%d.hc_ffn_up", "model.layers.%d.mlp_hyper_connection.input_mix_weight_up"},
    [W_GATED_FFN_WRITE] = {"blk.%d.hc_ffn_inject",
                           "model.layers.%d.mlp_hyper_connection.block_inject_weight"},
    [W_GATED_END_NORM] = {"output_hc_norm", "model.hyper_connection_mixer.hc_norm"},
    [W_GATED_END_DOWN] = {"output_hc_down", "model.hyper_connection_mixer.input_mix_weight_down"},
    [W_GATED_END_UP] = {"output_hc_up", "model.hyper_connection_mixer.input_mix_weight_up"},
    [W_NGRAM_TABLE] = {"per_layer_token_embd", "model.layers.%d.ple.ple_embedding.ngram_embedding.shard_%d"},
    [W_NGRAM_KEY] = {"blk.%d.ple_key", "model.layers.%d.ple.key_proj"},
    [W_NGRAM_VALUE] = {"blk.%d.ple_value", "model.layers.%d.ple.value_proj"},
    [W_NGRAM_KEY_NORM] = {"blk.%d.ple_norm_key", "model.layers.%d.ple.norm_key"},
    [W_NGRAM_QUERY_NORM] = {"blk.%d.ple_norm_query", "model.layers.%d.ple.norm_query"},
    [W_NGRAM_CONV_NORM] = {"blk.%d.ple_norm_conv", "model.layers.%d.ple.norm_conv"},
    [W_NGRAM_CONV] = {"blk.%d.ple_conv1d", "model.layers.%d.ple.conv1d"},
    [W_LAUREL_LEFT] = {"blk.%d.laurel_l", NULL},
    [W_LAUREL_RIGHT] = {"blk.%d.laurel_r", NULL},
    [W_LAUREL_NORM] = {"blk.%d.laurel_post_norm", NULL},
    [W_EXPERTS_IN] = {"blk.%d.ffn_latent_down", NULL},
    [W_EXPERTS_OUT] = {"blk.%d.ffn_latent_up", NULL},
    [W_MAMBA_IN_NORM] = {"blk.%d.attn_norm", "model.layers.%d.input_layernorm"},
    [W_MAMBA_IN] = {"blk.%d.ssm_in", "model.layers.%d.mamba.in_proj"},
    [W_MAMBA_TAPS] = {"blk.%d.ssm_conv1d", "model.layers.%d.mamba.conv1d"},
    [W_MAMBA_X] = {"blk.%d.ssm_x", "model.layers.%d.mamba.x_proj"},
    [W_MAMBA_STEP] = {"blk.%d.ssm_dt", "model.layers.%d.mamba.dt_proj"},
    [W_MAMBA_STEP_BIAS] = {"blk.%d.ssm_dt", "model.layers.%d.mamba.dt_bias"},
    [W_MAMBA_STEP_NORM] = {"blk.%d.ssm_dt_norm", "model.layers.%d.mamba.dt_layernorm"},
    [W_MAMBA_B_NORM] = {"blk.%d.ssm_b_norm", "model.layers.%d.mamba.b_layernorm"},
    [W_MAMBA_C_NORM] = {"blk.%d.ssm_c_norm", "model.layers.%d.mamba.c_layernorm"},
    [W_MAMBA_RATE] = {"blk.%d.ssm_a", "model.layers.%d.mamba.A_log"},
    [W_MAMBA_SKIP] = {"blk.%d.ssm_d", "model.layers.%d.mamba.D"},
    [W_MAMBA_NORM] = {"blk.%d.ssm_norm", "model.layers.%d.mamba.norm"},
    [W_MAMBA_OUT] = {"blk.%d.ssm_out", "model.layers.%d.mamba.out_proj"},
    [W_CONV_IN] = {"blk.%d.shortconv.in_proj", NULL},
    [W_CONV_TAPS] = {"blk.%d.shortconv.conv", NULL},
    [W_CONV_OUT] = {"blk.%d.shortconv.out_proj", NULL},
    [W_DELTA_QKVZ] = {"blk.%d.ssm_in", "model.layers.%d.linear_attn.in_proj_qkvz"},
    [W_DELTA_BA] = {"blk.%d.ssm_ba", "model.layers.%d.linear_attn.in_proj_ba"},
    [W_DELTA_QKV] = {"blk.%d.attn_qkv", "model.layers.%d.linear_attn.in_proj_qkv"},
    [W_DELTA_Q] = {"blk.%d.attn_q", "model.layers.%d.self_attn.q_proj"},
    [W_DELTA_K] = {"blk.%d.attn_k", "model.layers.%d.self_attn.k_proj"},
    [W_DELTA_V] = {"blk.%d.attn_v", "model.layers.%d.self_attn.v_proj"},
    [W_DELTA_GATE] = {"blk.%d.attn_gate|blk.%d.ssm_g_b|blk.%d.ssm_g_a",
                      "model.layers.%d.linear_attn.in_proj_z"},
    [W_DELTA_BETA] = {"blk.%d.ssm_beta", "model.layers.%d.linear_attn.in_proj_b"},
    [W_DELTA_DECAY] = {"blk.%d.ssm_alpha|blk.%d.ssm_f_b|blk.%d.ssm_f_a",
                       "model.layers.%d.linear_attn.in_proj_a"},
    [W_DELTA_GATE_IN] = {"blk.%d.ssm_g_a", "model.layers.%d.self_attn.g_a_proj"},
    [W_DELTA_DECAY_IN] = {"blk.%d.ssm_f_a", "model.layers.%d.self_attn.f_a_proj"},
    [W_DELTA_CONV] = {"blk.%d.ssm_conv1d", NULL},
    [W_DELTA_CONV_Q] = {"blk.%d.ssm_conv1d_q", "model.layers.%d.self_attn.q_conv1d"},
    [W_DELTA_CONV_K] = {"blk.%d.ssm_conv1d_k", "model.layers.%d.self_attn.k_conv1d"},
    [W_DELTA_CONV_V] = {"blk.%d.ssm_conv1d_v", "model.layers.%d.self_attn.v_conv1d"},
    [W_DELTA_RATE] = {"blk.%d.ssm_a", "model.layers.%d.linear_attn.A_log"},
    [W_DELTA_BIAS] = {"blk.%d.ssm_dt", "model.layers.%d.linear_attn.dt_bias"},
    [W_DELTA_NORM] = {"blk.%d.ssm_norm", "model.layers.%d.linear_attn.norm"},
    [W_DELTA_OUT] = {"blk.%d.ssm_out", "model.layers.%d.linear_attn.out_proj"},
};

weight_name weight_name_of(const arch_names *names, weight_role role) {
    weight_name n = usual[role];
    if (names != NULL && names->gguf[role] != NULL) {
        n.gguf = names->gguf[role];
    }
    if (names != NULL && names->hf[role] != NULL) {
        n.hf = names->hf[role];
    }
    return (weight_name){n.gguf != NULL ? n.gguf : NO_WEIGHT, n.hf != NULL ? n.hf : NO_WEIGHT};
}

/* The second %d of a name without alternatives, or NULL. */
static const char *name_second(const char *hf) {
    const char *first = strchr(hf, '|') == NULL ? strstr(hf, "%d") : NULL;
    return first != NULL ? strstr(first + 2, "%d") : NULL;
}

bool weight_name_is_list(weight_name name) {
    return name_second(name.hf) != NULL;
}

weight_name weight_name_at(weight_name name, int32_t layer, int32_t i, char memory[WEIGHT_NAME_BYTES]) {
    const char *first = strstr(name.hf, "%d"), *second = name_second(name.hf);
    if (second == NULL) {
        return name;
    }
    (void)snprintf(memory, WEIGHT_NAME_BYTES, "%.*s%d%.*s%d%s", (int)(first - name.hf), name.hf, (int)layer,
                   (int)(second - first - 2), first + 2, (int)i, second + 2);
    return (weight_name){name.gguf, memory};
}

bool weight_role_is(const arch_names *names, weight_role role) {
    return weight_name_of(names, role).hf[0] != 0;
}

/* Whether a name starts with the pattern, followed by the end or a dot. */
static bool begins_as(const char *pattern, const char *name) {
    while (*pattern != 0 && name != NULL) {
        if (strncmp(pattern, "%d", 2) == 0) {
            size_t n = strspn(name, "0123456789");
            name = n > 0 ? name + n : NULL;
            pattern += 2;
        } else {
            name = *name == *pattern ? name + 1 : NULL;
            pattern++;
        }
    }
    return name != NULL && (*name == 0 || *name == '.');
}

/* Whether a name starts with the pattern, in which "model." stands for the root. */
static bool is_named(const char *root, const char *pattern, const char *name) {
    const size_t n_root = strlen(root), n_model = strlen(MODEL_ROOT);
    if (strncmp(pattern, MODEL_ROOT, n_model) != 0) {
        return begins_as(pattern, name);
    }
    return strncmp(name, root, n_root) == 0 && begins_as(pattern + n_model, name + n_root);
}

bool weight_is_named(const char *root, const char *pattern, const char *name) {
    char one[128];
    bool is = false;
    for (const char *at = pattern; at != NULL && *at != 0 && !is; at = strchr(at, '|')) {
        at += *at == '|';
        (void)snprintf(one, sizeof one, "%.*s", (int)strcspn(at, "|"), at);
        is = is_named(root, one, name);
    }
    return is;
}

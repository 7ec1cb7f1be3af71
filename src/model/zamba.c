/* Zamba 2: Glorioso et al. 2024, arXiv:2411.15242: layers of Mamba-2, some of them
 * preceded by a block of attention and feed-forward; a few such blocks are used in turn
 * (blocks_shared.c). */
#include <math.h>

#include "model/architectures.h"

#define IN_BLOCK    "model.layers.%d.shared_transformer."
#define MIXER(name) "model.layers.%d.mamba." name "|model.layers.%d.mamba_decoder.mamba." name

static const arch_names zamba2_names = {
    .hf = {[W_OUT_NORM] = "model.final_layernorm",
           [W_ATTN_NORM] = "model.layers.%d.input_layernorm|model.layers.%d.mamba_decoder.input_layernorm",
           [W_SHARED_NORM] = IN_BLOCK "input_layernorm",
           [W_FFN_NORM] = IN_BLOCK "pre_ff_layernorm",
           [W_Q] = IN_BLOCK "self_attn.q_proj",
           [W_K] = IN_BLOCK "self_attn.k_proj",
           [W_V] = IN_BLOCK "self_attn.v_proj",
           [W_O] = IN_BLOCK "self_attn.o_proj",
           [W_GATE_UP] = IN_BLOCK "feed_forward.gate_up_proj",
           [W_DOWN] = IN_BLOCK "feed_forward.down_proj",
           [W_SHARED_OUT] = "model.layers.%d.linear",
           [W_Q_ADAPTER_A] = IN_BLOCK "self_attn.linear_q_adapter_list.%d.0",
           [W_Q_ADAPTER_B] = IN_BLOCK "self_attn.linear_q_adapter_list.%d.1",
           [W_K_ADAPTER_A] = IN_BLOCK "self_attn.linear_k_adapter_list.%d.0",
           [W_K_ADAPTER_B] = IN_BLOCK "self_attn.linear_k_adapter_list.%d.1",
           [W_V_ADAPTER_A] = IN_BLOCK "self_attn.linear_v_adapter_list.%d.0",
           [W_V_ADAPTER_B] = IN_BLOCK "self_attn.linear_v_adapter_list.%d.1",
           [W_FFN_ADAPTER_A] = IN_BLOCK "feed_forward.gate_up_proj_adapter_list.%d.0",
           [W_FFN_ADAPTER_B] = IN_BLOCK "feed_forward.gate_up_proj_adapter_list.%d.1",
           [W_MAMBA_IN] = MIXER("in_proj"),
           [W_MAMBA_TAPS] = MIXER("conv1d"),
           [W_MAMBA_STEP_BIAS] = MIXER("dt_bias"),
           [W_MAMBA_RATE] = MIXER("A_log"),
           [W_MAMBA_SKIP] = MIXER("D"),
           [W_MAMBA_NORM] = MIXER("norm"),
           [W_MAMBA_OUT] = MIXER("out_proj")},
};

/* x += mamba(norm(x + block(x, x0))). */
static const layer_step shared_mamba[] = {SHARED(X, A), ADD(X, A), NORM(W_ATTN_NORM, A, A),
                                          MAMBA(A, A),  ADD(A, X), END};

/* Reads which layers have a shared block before them. */
static quire_err zamba2_read_layers(const config *c, const model_desc *d, state_layers *s) {
    str type, behind;
    TRY(config_str_at(c, "layers_block_type", (size_t)d->n_layers, &behind));
    for (int32_t i = 0; i < d->n_layers; i++) {
        TRY(config_str_at(c, "layers_block_type", (size_t)i, &type));
        s->recurs[i] = true;
        s->attends[i] = str_is(type, "hybrid");
        if (behind.n > 0 || (!s->attends[i] && !str_is(type, "mamba") && !str_is(type, "linear_attention"))) {
            return config_bad(c, "layers_block_type",
                              "must have \"mamba\", \"linear_attention\" or \"hybrid\" for each layer");
        }
    }
    return QUIRE_OK;
}

static quire_err zamba2_read_blocks(const config *c, model_desc *d) {
    shared_desc *s = &d->shared;
    bool is_long = false;
    s->n_blocks = 1;
    s->adapter_rank = 128;
    TRY(config_i32(c, NULL, "num_mem_blocks", &s->n_blocks));
    TRY(config_i32(c, NULL, "adapter_rank", &s->adapter_rank));
    TRY(config_bool(c, NULL, "use_shared_attention_adapter", &s->has_attention_adapters));
    TRY(config_bool(c, NULL, "use_long_context", &is_long));
    if (is_long) {
        return config_unsupported(c, "use_long_context true is not supported");
    }
    if (s->n_blocks < 1 || s->n_blocks > DESC_MAX_SHARED_BLOCKS) {
        return config_bad(c, "num_mem_blocks", "must be from 1 to 16");
    }
    return s->adapter_rank >= 1 && s->adapter_rank <= 1 << 16
               ? QUIRE_OK
               : config_bad(c, "adapter_rank", "must be from 1 to 65536");
}

static quire_err zamba2_read_rotary(const config *c, model_desc *d) {
    bool rotates = false;
    TRY(config_bool(c, NULL, "use_mem_rope", &rotates));
    return rotates ? config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f) : QUIRE_OK;
}

/* Attention is twice as wide as the model; its scores are divided by the root of half a
 * head's width. */
static quire_err zamba2_read_heads(const config *c, model_desc *d) {
    int32_t d_head = d->d_model / d->layers[0].n_heads;
    d_head = d_head <= DESC_MAX_HEAD ? 2 * d_head : 0;
    TRY(config_i32(c, NULL, "attention_head_dim", &d_head));
    if (d_head < 1 || d_head > DESC_MAX_HEAD) {
        return config_unsupported(c, "attention_head_dim: this build supports heads of 1 to 512 elements");
    }
    for (int32_t i = 0; i < d->n_caches; i++) {
        d->caches[i].d_key = d->caches[i].d_value = d_head;
    }
    d->attention_scale = 1.0f / sqrtf((float)d_head / 2.0f);
    return QUIRE_OK;
}

static quire_err describe_zamba2(const config *c, model_desc *d) {
    state_layers s = {0};
    float least = 0.001f;
    decoder_shape shape = {0};
    if (c->is_gguf) {
        return config_unsupported(c, "Zamba 2 is not supported as GGUF; use its safetensors checkpoint");
    }
    d->tied_embeddings = true;
    d->activation = ACT_GELU;
    TRY(config_i32(c, NULL, "hidden_size", &d->d_model));
    shape.d_ff = d->d_model <= INT32_MAX / 4 ? 4 * d->d_model : 0;
    TRY(config_decoder(c, &shape, d));
    TRY(zamba2_read_heads(c, d));
    TRY(zamba2_read_blocks(c, d));
    TRY(zamba2_read_rotary(c, d));
    TRY(zamba2_read_layers(c, d, &s));
    d->mamba = (mamba_desc){.n_heads = 8, .n_groups = 1, .n_states = 64};
    TRY(config_mamba2(c, 2.0f, 0, d, &s));
    TRY(config_f32(c, NULL, "time_step_min", &least));
    d->mamba.activation = ACT_SILU;
    d->mamba.step_least = least;
    d->mamba.step_most = INFINITY;
    d->mamba.n_norm_groups = d->mamba.n_groups;
    d->mamba.inner_eps = 1e-5f;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].steps = s.attends[i] ? shared_mamba : steps_mamba;
        d->layers[i].d_ff = s.attends[i] ? d->layers[i].d_ff : 0;
    }
    return config_set_states(c, &s, d);
}

const arch zamba_archs[] = {
    {{"zamba2"}, {"Zamba2ForCausalLM"}, &zamba2_names, .describe = describe_zamba2},
    {.describe = NULL},
};

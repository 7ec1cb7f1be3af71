/* Small models with each kind of recurrent layer, as GGUF plans: three layers (two for
 * Mamba) of width 64, a vocabulary of 40, and random weights large enough that every
 * input affects the output. */
#ifndef TESTS_MODEL_MAKE_STATES_H
#define TESTS_MODEL_MAKE_STATES_H

#include "make_model.h"

typedef enum state_model {
    STATE_MODEL_CONV,  /* LFM2: a convolution, attention in the second layer */
    STATE_MODEL_DELTA, /* Qwen3.5: the gated delta rule, attention in the third layer */
    STATE_MODEL_HEADS, /* Falcon-H1: Mamba-2 beside attention in every layer */
    STATE_MODEL_SCAN,  /* Mamba: no attention */
    N_STATE_MODELS
} state_model;

static const char *const state_model_names[] = {"lfm2", "qwen35", "falcon-h1", "mamba"};

typedef struct tensor_shape {
    const char *name;
    uint64_t d0, d1; /* shape; d1 0: a vector */
    float fill;      /* value of all elements; 0: random */
} tensor_shape;

static const tensor_shape mlp_shapes[] = {{"ffn_norm.weight", 64, 0, 0},
                                          {"ffn_gate.weight", 96, 64, 0},
                                          {"ffn_up.weight", 96, 64, 0},
                                          {"ffn_down.weight", 64, 96, 0},
                                          {NULL}};
static const tensor_shape attend_shapes[] = {{"attn_norm.weight", 64, 0, 0},    {"attn_q.weight", 64, 64, 0},
                                             {"attn_k.weight", 32, 64, 0},      {"attn_v.weight", 32, 64, 0},
                                             {"attn_output.weight", 64, 64, 0}, {NULL}};
static const tensor_shape head_norm_shapes[] = {
    {"attn_q_norm.weight", 16, 0, 0}, {"attn_k_norm.weight", 16, 0, 0}, {NULL}};
static const tensor_shape conv_shapes[] = {{"attn_norm.weight", 64, 0, 0},
                                           {"shortconv.in_proj.weight", 192, 64, 0},
                                           {"shortconv.conv.weight", 64, 3, 0},
                                           {"shortconv.out_proj.weight", 64, 64, 0},
                                           {NULL}};
static const tensor_shape delta_shapes[] = {{"attn_norm.weight", 64, 0, 0},
                                            {"attn_qkv.weight", 128, 64, 0},
                                            {"attn_gate.weight", 64, 64, 0},
                                            {"ssm_beta.weight", 4, 64, 0},
                                            {"ssm_alpha.weight", 4, 64, 0},
                                            {"ssm_conv1d.weight", 128, 4, 0},
                                            {"ssm_a", 4, 0, -0.05f},
                                            {"ssm_dt.bias", 4, 0, 0},
                                            {"ssm_norm.weight", 16, 0, 0},
                                            {"ssm_out.weight", 64, 64, 0},
                                            {NULL}};
static const tensor_shape gated_query_shapes[] = {{"attn_q.weight", 128, 64, 0}, {NULL}};
static const tensor_shape mamba2_shapes[] = {
    {"ssm_in.weight", 196, 64, 0}, {"ssm_conv1d.weight", 128, 4, 0}, {"ssm_conv1d.bias", 128, 0, 0},
    {"ssm_dt.bias", 4, 0, 0},      {"ssm_a", 4, 1, -0.05f},          {"ssm_d", 4, 1, 0},
    {"ssm_norm.weight", 64, 0, 0}, {"ssm_out.weight", 64, 64, 0},    {NULL}};
static const tensor_shape mamba_shapes[] = {{"attn_norm.weight", 64, 0, 0},
                                            {"ssm_in.weight", 256, 64, 0},
                                            {"ssm_conv1d.weight", 128, 4, 0},
                                            {"ssm_conv1d.bias", 128, 0, 0},
                                            {"ssm_x.weight", 36, 128, 0},
                                            {"ssm_dt.weight", 128, 4, 0},
                                            {"ssm_dt.bias", 128, 0, 0},
                                            {"ssm_a", 128, 16, -0.05f},
                                            {"ssm_d", 128, 0, 0},
                                            {"ssm_out.weight", 64, 128, 0},
                                            {NULL}};

/* Adds the tensors of a layer. */
static inline void add_shapes(model_plan *p, int layer, const tensor_shape *list) {
    for (; list->name != NULL; list++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%d.%s", layer, list->name);
        set_tensor(p, name, list->d0, list->d1);
        tensor_of(p, name)->scale = strstr(list->name, "conv") != NULL ? 10.0f : 2.0f;
        tensor_of(p, name)->fill = strstr(list->name, "norm") != NULL ? 1.0f : list->fill;
    }
}

static inline void set_own(model_plan *p, state_model kind, const char *key, uint32_t value) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", state_model_names[kind], key);
    set_u32(p, name, value);
}

/* Sets the keys with the sizes of recurrent layers. */
static inline void plan_state_keys(model_plan *p, state_model kind) {
    static const uint32_t kv_heads[] = {0, 2, 0};
    if (kind == STATE_MODEL_CONV) {
        set_list(p, "lfm2.attention.head_count_kv", 3, kv_heads);
        set_own(p, kind, "shortconv.l_cache", 3);
        return;
    }
    set_own(p, kind, "ssm.conv_kernel", 4);
    set_own(p, kind, "ssm.state_size", 16);
    set_own(p, kind, "ssm.time_step_rank", 4);
    set_own(p, kind, "ssm.inner_size", kind == STATE_MODEL_SCAN ? 128 : 64);
    if (kind != STATE_MODEL_SCAN) {
        set_own(p, kind, "ssm.group_count", 2);
        set_own(p, kind, "attention.key_length", 16);
        set_own(p, kind, "attention.value_length", 16);
    }
    if (kind == STATE_MODEL_DELTA) {
        set_own(p, kind, "full_attention_interval", 3);
        set_own(p, kind, "rope.dimension_count", 8);
    }
}

static inline void plan_states(model_plan *p, state_model kind) {
    const int n_layers = kind == STATE_MODEL_SCAN ? 2 : 3;
    plan_llama(p);
    plan_rename(p, state_model_names[kind]);
    p->n_tensors = 0;
    set_own(p, kind, "block_count", (uint32_t)n_layers);
    set_own(p, kind, "context_length", 4096);
    plan_state_keys(p, kind);
    set_tensor(p, "token_embd.weight", 40, 64);
    set_tensor(p, "output_norm.weight", 64, 0);
    tensor_of(p, "output_norm.weight")->fill = 1.0f;
    for (int i = 0; i < n_layers; i++) {
        const bool attends = kind == STATE_MODEL_CONV    ? i == 1
                             : kind == STATE_MODEL_DELTA ? i == 2
                                                         : kind == STATE_MODEL_HEADS;
        add_shapes(p, i,
                   attends                     ? attend_shapes
                   : kind == STATE_MODEL_CONV  ? conv_shapes
                   : kind == STATE_MODEL_DELTA ? delta_shapes
                                               : mamba_shapes);
        if (kind == STATE_MODEL_HEADS) {
            add_shapes(p, i, mamba2_shapes);
        } else if (attends) {
            add_shapes(p, i, head_norm_shapes);
            add_shapes(p, i, kind == STATE_MODEL_DELTA ? gated_query_shapes : head_norm_shapes);
        }
        if (kind != STATE_MODEL_SCAN) {
            add_shapes(p, i, mlp_shapes);
        }
    }
    for (int i = 0; i < n_layers && kind == STATE_MODEL_DELTA; i++) {
        char from[64], to[64];
        (void)snprintf(from, sizeof from, "blk.%d.ffn_norm.weight", i);
        (void)snprintf(to, sizeof to, "blk.%d.post_attention_norm.weight", i);
        memcpy(tensor_of(p, from)->name, to, sizeof to);
    }
}

#endif

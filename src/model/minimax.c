/* MiniMax-Text-01 and M1: arXiv:2501.08313: lightning attention in most layers, experts in
 * all. The residual of each half is what its norm gives, and both have factors. */
#include "model/architectures.h"

/* clang-format off */
static const layer_step attend_mixed[] = {
    NORM(W_ATTN_NORM, X, X), ATTEND(X, A), MIX(A, X),
    NORM(W_FFN_NORM, X, X), MOE(X, A), MIX(A, X), END};

static const layer_step lightning_mixed[] = {
    NORM(W_ATTN_NORM, X, X), DELTA(X, A), MIX(A, X),
    NORM(W_FFN_NORM, X, X), MOE(X, A), MIX(A, X), END};
/* clang-format on */

static const arch_names minimax_names = {
    .hf = {[W_ROUTER] = "model.layers.%d.block_sparse_moe.gate",
           [W_EXPERT_GATE] = "model.layers.%d.block_sparse_moe.experts.%d.w1",
           [W_EXPERT_UP] = "model.layers.%d.block_sparse_moe.experts.%d.w3",
           [W_EXPERT_DOWN] = "model.layers.%d.block_sparse_moe.experts.%d.w2",
           [W_DELTA_QKV] = "model.layers.%d.self_attn.qkv_proj",
           [W_DELTA_GATE] = "model.layers.%d.self_attn.output_gate",
           [W_DELTA_NORM] = "model.layers.%d.self_attn.norm",
           [W_DELTA_OUT] = "model.layers.%d.self_attn.out_proj"},
    /* tables that follow from the number of the head and the layer */
    .left_out = {"model.layers.%d.self_attn.slope_rate", "model.layers.%d.self_attn.query_decay",
                 "model.layers.%d.self_attn.key_decay", "model.layers.%d.self_attn.diagonal_decay"},
};

/* The factors of a half: of the residual, and of what is added to it. */
static quire_err read_mix(const config *c, const char *keep, const char *add, residual_mix *out) {
    *out = (residual_mix){1.0f, 1.0f};
    TRY(config_f32(c, NULL, keep, &out->keep));
    return config_f32(c, NULL, add, &out->add);
}

static quire_err minimax_read_layers(const config *c, state_layers *s, model_desc *d) {
    residual_mix attends, recurs, ff;
    bool are_typed;
    TRY(read_mix(c, "full_attn_alpha_factor", "full_attn_beta_factor", &attends));
    TRY(read_mix(c, "linear_attn_alpha_factor", "linear_attn_beta_factor", &recurs));
    TRY(read_mix(c, "mlp_alpha_factor", "mlp_beta_factor", &ff));
    TRY(config_state_types(c, d, "linear_attention", s, &are_typed));
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        s->recurs[i] = are_typed ? s->recurs[i] : i % 2 == 1;
        s->attends[i] = !s->recurs[i];
        l->steps = s->recurs[i] ? lightning_mixed : attend_mixed;
        l->mixes[0] = s->recurs[i] ? recurs : attends;
        l->mixes[1] = ff;
    }
    return QUIRE_OK;
}

static quire_err describe_minimax(const config *c, model_desc *d) {
    decoder_shape shape = {0};
    state_layers s = {0};
    TRY(config_decoder(c, &shape, d));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 1.0f));
    TRY(config_window_on_all(c, 0, d));
    d->moe = (moe_desc){.score = ROUTE_SOFTMAX, .renormalise = true};
    TRY(config_moe(c, d));
    d->delta = (delta_desc){.kind = DELTA_LIGHTNING,
                            .n_heads = shape.n_heads,
                            .n_key_heads = shape.n_heads,
                            .d_key = shape.d_head,
                            .d_value = shape.d_head,
                            .gate = ACT_SIGMOID,
                            .norm_eps = 1e-6f};
    TRY(minimax_read_layers(c, &s, d));
    config_delta_caches(d, &s);
    return config_set_states(c, &s, d);
}

const arch arch_minimax = {
    .gguf = {"minimax"}, .hf = {"MiniMaxForCausalLM"}, .names = &minimax_names, .describe = describe_minimax};

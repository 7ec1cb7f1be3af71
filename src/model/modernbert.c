/* ModernBERT: Warner et al. 2024, arXiv:2412.13663: an encoder with rotary positions,
 * gated, norms before both halves of a layer but the first's attention; two layers of
 * three see a window to either side. */
#include "model/architectures.h"

static const arch_names modernbert_names = {
    .gguf = {[W_GATE_UP] = "blk.%d.ffn_up"},
    .hf = {[W_TOKENS] = "model.embeddings.tok_embeddings",
           [W_EMBED_NORM] = "model.embeddings.norm",
           [W_OUT_NORM] = "model.final_norm",
           [W_HEAD] = NO_WEIGHT,
           [W_ATTN_NORM] = "model.layers.%d.attn_norm",
           [W_QKV] = "model.layers.%d.attn.Wqkv",
           [W_O] = "model.layers.%d.attn.Wo",
           [W_FFN_NORM] = "model.layers.%d.mlp_norm",
           [W_GATE_UP] = "model.layers.%d.mlp.Wi",
           [W_DOWN] = "model.layers.%d.mlp.Wo"},
    .left_out = {"head", "decoder"},
};

/* A window of n tokens reaches n / 2 to either side. The layers 0, period, 2 period ..
 * see all. */
static quire_err modernbert_read_windows(const config *c, model_desc *d) {
    int32_t window = 128, period = 3;
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_i32(c, "attention.sliding_window", "local_attention", &window));
    TRY(config_period(c, "attention.sliding_window_pattern", "global_attn_every_n_layers", &period));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_window[i] = period > 0 && i % period != 0;
    }
    if (config_has(c, NULL, "layer_types")) {
        TRY(config_window_layers(c, d, 0, 0, is_window));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, is_window[i] && (window > 0 || !c->is_gguf) ? window / 2 + 1 : 0);
    }
    return QUIRE_OK;
}

static quire_err read_ropes(const config *c, model_desc *d) {
    rope_desc r = config_plain_rope(c, d);
    bool by_type = !c->is_gguf && config_has(c, NULL, "rope_parameters.full_attention.rope_type");
    r.pairs = ROPE_HALVES;
    rope_desc local = r;
    r.theta = 160000.0f;
    local.theta = 10000.0f;
    TRY(config_f32(c, NULL, "global_rope_theta", &r.theta));
    TRY(config_f32(c, "rope.freq_base_swa", "local_rope_theta", &local.theta));
    TRY(config_rope(c, by_type ? "rope_parameters.full_attention" : NULL, d, &r));
    local.theta = config_is_null(c, "local_rope_theta") ? r.theta : local.theta;
    if (by_type) {
        TRY(config_rope(c, "rope_parameters.sliding_attention", d, &local));
    }
    TRY(config_add_rope(c, d, &r));
    d->ropes[d->n_ropes++] = local;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = (int16_t)(d->layers[i].window > 0 ? 1 : 0);
    }
    return QUIRE_OK;
}

/* The first layer's attention reads the residual without a norm. */
static const layer_step first_layer[] = {ATTEND(X, A), ADD(A, X), NORM(W_FFN_NORM, X, A),
                                         MLP(A, A),    ADD(A, X), END};

static quire_err describe_modernbert(const config *c, model_desc *d) {
    decoder_shape s = {0};
    d->activation = ACT_GELU;
    d->norm_eps = 1e-5f;
    TRY(config_check_two_sided(c));
    TRY(config_decoder(c, &s, d));
    d->no_head = true;
    d->norm.kind = NORM_LAYER;
    d->two_sided = true;
    d->layers[0].steps = first_layer;
    TRY(modernbert_read_windows(c, d));
    return read_ropes(c, d);
}

static const score_head modernbert_scores = {.kind = POOLING_CLS,
                                             .gguf_kind = POOLING_MEAN,
                                             .dense = "head.dense",
                                             .norm = "head.norm",
                                             .f = ROW_GELU,
                                             .out = "classifier"};

const arch arch_modernbert = {
    .gguf = {"modern-bert"},
    .hf = {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
    .names = &modernbert_names,
    .describe = describe_modernbert,
    .scores = &modernbert_scores};

/* BERT: Devlin et al. 2018, arXiv:1810.04805: two-sided attention, norms after both
 * halves of a layer, learned positions and token types. RoBERTa: arXiv:1907.11692:
 * positions start after the padding's. Nomic Embed: arXiv:2402.01613: rotary positions,
 * gated, no biases. */
#include <stdio.h>

#include "model/architectures.h"

static const arch_names bert_names = {
    .gguf = {[W_ATTN_NORM] = "blk.%d.attn_output_norm", [W_FFN_NORM] = "blk.%d.layer_output_norm"},
    .hf = {[W_TOKENS] = "model.embeddings.word_embeddings",
           [W_POSITIONS] = "model.embeddings.position_embeddings",
           [W_TYPES] = "model.embeddings.token_type_embeddings",
           [W_EMBED_NORM] = "model.embeddings.LayerNorm",
           [W_OUT_NORM] = NO_WEIGHT,
           [W_HEAD] = NO_WEIGHT,
           [W_Q] = "model.encoder.layer.%d.attention.self.query",
           [W_K] = "model.encoder.layer.%d.attention.self.key",
           [W_V] = "model.encoder.layer.%d.attention.self.value",
           [W_O] = "model.encoder.layer.%d.attention.output.dense",
           [W_ATTN_NORM] = "model.encoder.layer.%d.attention.output.LayerNorm",
           [W_UP] = "model.encoder.layer.%d.intermediate.dense",
           [W_DOWN] = "model.encoder.layer.%d.output.dense",
           [W_FFN_NORM] = "model.encoder.layer.%d.output.LayerNorm"},
    .left_out = {"model.pooler", "model.embeddings.position_ids", "cls", "lm_head"},
};
static const arch_names nomic_names = {
    .gguf = {[W_ATTN_NORM] = "blk.%d.attn_output_norm", [W_FFN_NORM] = "blk.%d.layer_output_norm"},
    .hf = {[W_TOKENS] = "model.embeddings.word_embeddings",
           [W_TYPES] = "model.embeddings.token_type_embeddings",
           [W_EMBED_NORM] = "model.emb_ln",
           [W_OUT_NORM] = NO_WEIGHT,
           [W_HEAD] = NO_WEIGHT,
           [W_QKV] = "model.encoder.layers.%d.attn.Wqkv",
           [W_O] = "model.encoder.layers.%d.attn.out_proj",
           [W_ATTN_NORM] = "model.encoder.layers.%d.norm1",
           [W_UP] = "model.encoder.layers.%d.mlp.fc11",
           [W_GATE] = "model.encoder.layers.%d.mlp.fc12",
           [W_DOWN] = "model.encoder.layers.%d.mlp.fc2",
           [W_FFN_NORM] = "model.encoder.layers.%d.norm2"},
    .left_out = {"model.pooler", "model.embeddings.position_ids", "cls"},
};

static quire_err bert_describe_common(const config *c, const char *own_activation, model_desc *d) {
    decoder_shape s = {.own_activation = own_activation};
    d->norm_eps = 1e-12f;
    TRY(config_check_two_sided(c));
    TRY(config_decoder(c, &s, d));
    d->no_head = true;
    steps_set(d, steps_post_norm);
    d->norm.kind = NORM_LAYER;
    d->two_sided = true;
    d->embed.n_token_types = c->is_gguf ? config_table_rows(c, "token_types.weight") : 2;
    return config_i32(c, NULL, "type_vocab_size", &d->embed.n_token_types);
}

static quire_err describe_bert(const config *c, model_desc *d) {
    str kind = {0};
    bool is_decoder = false;
    TRY(config_bool(c, NULL, "is_decoder", &is_decoder));
    if (is_decoder) {
        return config_unsupported(
            c, "is_decoder true is not supported: this encoder attends in both directions");
    }
    d->activation = ACT_GELU;
    TRY(bert_describe_common(c, NULL, d));
    TRY(config_str(c, NULL, "position_embedding_type", &kind));
    if (kind.n > 0 && !str_is(kind, "absolute")) {
        return config_unsupported(c, "position_embedding_type other than \"absolute\" is not supported");
    }
    d->embed.positions = d->ungated = true;
    return QUIRE_OK;
}

/* The first positions of a checkpoint are for padding; GGUF files leave them out. */
static quire_err describe_roberta(const config *c, model_desc *d) {
    int32_t padding = 1;
    TRY(describe_bert(c, d));
    TRY(config_i32(c, NULL, "pad_token_id", &padding));
    if (padding >= d->max_positions - 1) {
        return config_bad(c, "pad_token_id", "leaves no position of max_position_embeddings for text");
    }
    d->embed.position_offset = padding + 1;
    d->embed.skips_padding = true;
    d->max_positions -= d->embed.position_offset;
    return QUIRE_OK;
}

/* Refuses settings of Nomic's own code that would make it another model. */
static quire_err check_nomic(const config *c) {
    static const char *const flags[] = {"prenorm", "causal", "parallel_block", "use_rms_norm",
                                        "rotary_emb_interleaved"};
    static const char *const numbers[] = {"rotary_scaling_factor", "rotary_emb_scale_base"};
    float fraction = 1.0f;
    char what[96];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool on = false;
        TRY(config_bool(c, NULL, flags[i], &on));
        (void)snprintf(what, sizeof what, "%s true is not supported", flags[i]);
        if (on) {
            TRY(config_unsupported(c, what));
        }
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(what, sizeof what, "%s is not supported", numbers[i]);
        if (config_has(c, NULL, numbers[i])) {
            TRY(config_unsupported(c, what));
        }
    }
    TRY(config_f32(c, NULL, "rotary_emb_fraction", &fraction));
    return fraction == 1.0f ? QUIRE_OK
                            : config_unsupported(c, "rotary_emb_fraction other than 1 is not supported");
}

static quire_err describe_nomic(const config *c, model_desc *d) {
    d->activation = ACT_SILU;
    TRY(check_nomic(c));
    TRY(bert_describe_common(c, "swiglu", d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.theta = 1000.0f;
    TRY(config_f32(c, NULL, "rotary_emb_base", &r.theta));
    TRY(config_rope(c, NULL, d, &r));
    return config_add_rope(c, d, &r);
}

static const score_head bert_scores = {.kind = POOLING_CLS,
                                       .gguf_kind = POOLING_CLS,
                                       .dense = "model.pooler.dense",
                                       .f = ROW_TANH,
                                       .out = "classifier"};
static const score_head roberta_scores = {.kind = POOLING_CLS,
                                          .gguf_kind = POOLING_CLS,
                                          .dense = "classifier.dense",
                                          .f = ROW_TANH,
                                          .out = "classifier.out_proj"};

/* ModernBERT: Warner et al. 2024, arXiv:2412.13663: an encoder with rotary positions,
 * gated, with norms before both halves of a layer except the first attention; two of
 * three layers have a two-sided window. */

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

/* A window of n reaches n / 2 to either side. Layers 0, period, 2 period .. have none. */
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

const arch bert_archs[] = {
    {{"bert"},
     {"BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"},
     &bert_names,
     .describe = describe_bert,
     .scores = &bert_scores},
    {{"roberta"},
     {"RobertaModel", "XLMRobertaModel", "RobertaForMaskedLM", "XLMRobertaForMaskedLM",
      "RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"},
     &bert_names,
     .describe = describe_roberta,
     .scores = &roberta_scores},
    {{"nomic-bert"}, {"NomicBertModel", "NomicBertForPreTraining"}, &nomic_names, .describe = describe_nomic},
    {{"modern-bert"},
     {"ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"},
     &modernbert_names,
     .describe = describe_modernbert,
     .scores = &modernbert_scores},
    {.describe = NULL},
};

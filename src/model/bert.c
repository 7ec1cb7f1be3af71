/* BERT: Devlin et al. 2018, arXiv:1810.04805: rows see each other both ways, norms behind
 * both halves of a layer, learned positions and token types. RoBERTa: arXiv:1907.11692:
 * positions begin behind the padding's. Nomic Embed: arXiv:2402.01613: rotary positions,
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
    d->embed.n_token_types = config_table_rows(c, "token_types.weight");
    return config_i32(c, NULL, "type_vocab_size", &d->embed.n_token_types);
}

static quire_err describe_bert(const config *c, model_desc *d) {
    str kind = {0};
    bool is_decoder = false;
    TRY(config_bool(c, NULL, "is_decoder", &is_decoder));
    if (is_decoder) {
        return config_unsupported(c, "is_decoder true is not supported: rows see each other both ways here");
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

/* A checkpoint's first positions belong to padding; GGUF files leave them out. */
static quire_err describe_roberta(const config *c, model_desc *d) {
    int32_t padding = 1;
    TRY(describe_bert(c, d));
    TRY(config_i32(c, NULL, "pad_token_id", &padding));
    if (padding >= d->max_positions - 1) {
        return config_bad(c, "pad_token_id", "leaves no position of max_position_embeddings to a text");
    }
    d->embed.position_offset = padding + 1;
    d->embed.skips_padding = true;
    d->max_positions -= d->embed.position_offset;
    return QUIRE_OK;
}

/* Settings of the checkpoints of Nomic's own code that make another model of it. */
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
        TRY(on ? config_unsupported(c, what) : QUIRE_OK);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)snprintf(what, sizeof what, "%s is not supported", numbers[i]);
        TRY(config_has(c, NULL, numbers[i]) ? config_unsupported(c, what) : QUIRE_OK);
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

const arch arch_bert = {
    .gguf = {"bert"},
    .hf = {"BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"},
    .names = &bert_names,
    .describe = describe_bert,
    .scores = &bert_scores};
const arch arch_roberta = {.gguf = {"roberta"},
                           .hf = {"RobertaModel", "XLMRobertaModel", "RobertaForMaskedLM",
                                  "XLMRobertaForMaskedLM", "RobertaForSequenceClassification",
                                  "XLMRobertaForSequenceClassification"},
                           .names = &bert_names,
                           .describe = describe_roberta,
                           .scores = &roberta_scores};
const arch arch_nomic_bert = {.gguf = {"nomic-bert"},
                              .hf = {"NomicBertModel", "NomicBertForPreTraining"},
                              .names = &nomic_names,
                              .describe = describe_nomic};

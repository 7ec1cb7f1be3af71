/* BERT: Devlin et al. 2018, arXiv:1810.04805: rows see each other both ways, norms behind both halves of a layer, learned positions and
 * token types. RoBERTa: arXiv:1907.11692: positions begin behind the padding's. Nomic Embed: arXiv:2402.01613: rotary positions, gated, no
 * biases. */
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
};

static quire_err describe_common(const config *c, model_desc *d) {
    decoder_shape s = {0};
    d->norm_eps = 1e-12f;
    TRY(config_decoder(c, &s, d));
    d->no_head = true;
    d->blocks.norm = NORM_LAYER;
    d->blocks.two_sided = d->blocks.norm_behind = true;
    d->blocks.n_token_types = config_table_rows(c, "token_types.weight");
    return config_i32(c, NULL, "type_vocab_size", &d->blocks.n_token_types);
}

static quire_err describe_bert(const config *c, model_desc *d) {
    str kind = {0};
    d->activation = ACT_GELU;
    TRY(describe_common(c, d));
    TRY(config_str(c, NULL, "position_embedding_type", &kind));
    if (kind.n > 0 && !str_is(kind, "absolute")) {
        return config_unsupported(c, "position_embedding_type other than \"absolute\" is not supported");
    }
    d->blocks.positions = d->blocks.ungated = true;
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
    d->blocks.position_offset = padding + 1;
    d->max_positions -= d->blocks.position_offset;
    return QUIRE_OK;
}

static quire_err describe_nomic(const config *c, model_desc *d) {
    d->activation = ACT_SILU;
    TRY(describe_common(c, d));
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    r.theta = 1000.0f;
    TRY(config_f32(c, NULL, "rotary_emb_base", &r.theta));
    TRY(config_rope(c, NULL, d, &r));
    return config_add_rope(c, d, &r);
}

const arch arch_bert = {.gguf = {"bert"}, .hf = {"BertModel"}, .names = &bert_names, .describe = describe_bert};
const arch arch_roberta = {
    .gguf = {"roberta"}, .hf = {"RobertaModel", "XLMRobertaModel"}, .names = &bert_names, .describe = describe_roberta};
const arch arch_nomic_bert = {.gguf = {"nomic-bert"}, .hf = {"NomicBertModel"}, .names = &nomic_names, .describe = describe_nomic};

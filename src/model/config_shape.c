/* Widths, counts, activation, tying, BOS and EOS. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/packed.h"
#include "model/config.h"
#include "model/steps.h"

#define MAX_HEADS 65536 /* so that all heads' width fits int32 */

/* Reads a number that is required unless *out already has the published one. */
static quire_err usual_or_needed(const config *c, const char *gguf, const char *hf, int32_t *out) {
    return *out > 0 ? config_i32(c, gguf, hf, out) : config_need_i32(c, gguf, hf, out);
}

static quire_err config_read_vocabulary(const config *c, model_desc *d) {
    const tensor_view *t = c->is_gguf ? model_file_find(c->f, "token_embd.weight") : NULL;
    /* a tied model may have it packed */
    t = t == NULL && c->is_gguf ? model_file_find(c->f, "token_embd.weight" PACKED_SUFFIX) : t;
    if (t != NULL && t->n_dims == 2 && t->dims[0] <= INT32_MAX && !config_has(c, "vocab_size", NULL)) {
        d->n_vocab = (int32_t)t->dims[0];
        return QUIRE_OK;
    }
    d->n_vocab = c->is_gguf ? 0 : published_of(d->architecture)->n_vocab;
    return usual_or_needed(c, "vocab_size", "vocab_size", &d->n_vocab);
}

/* Reads EOS and BOS. Ids outside the vocabulary are ignored, since some published files
 * have them. */
static void read_special_tokens(const config *c, model_desc *d) {
    int64_t ids[DESC_MAX_EOS], bos = -1;
    size_t n = 0;
    if (c->is_gguf) {
        static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            if (model_file_i64(c->f, keys[i], ids) == QUIRE_OK) {
                desc_add_eos(d, ids[0]);
            }
        }
        model_file_i64(c->f, "tokenizer.ggml.bos_token_id", &bos);
    } else {
        if (model_file_generation_i64s(c->f, "eos_token_id", ids, DESC_MAX_EOS, &n) != QUIRE_OK &&
            model_file_i64s(c->f, "eos_token_id", ids, DESC_MAX_EOS, &n) != QUIRE_OK &&
            model_file_i64s(c->f, "text_config.eos_token_id", ids, DESC_MAX_EOS, &n) != QUIRE_OK) {
            n = 0;
        }
        for (size_t i = 0; i < n && i < DESC_MAX_EOS; i++) {
            desc_add_eos(d, ids[i]);
        }
        model_file_i64(c->f, c->has_text ? "text_config.bos_token_id" : "bos_token_id", &bos);
    }
    d->bos = bos >= 0 && bos < d->n_vocab ? (int32_t)bos : -1;
}

quire_err config_activation(const config *c, const char *hf, model_desc *d) {
    static const struct {
        const char *name;
        activation kind;
    } kinds[] = {{"silu", ACT_SILU},
                 {"swish", ACT_SILU},
                 {"gelu", ACT_GELU},
                 {"gelu_python", ACT_GELU},
                 {"gelu_python_tanh", ACT_GELU_TANH},
                 {"gelu_accurate", ACT_GELU_TANH},
                 {"gelu_new", ACT_GELU_TANH},
                 {"gelu_fast", ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", ACT_GELU_TANH},
                 {"quick_gelu", ACT_GELU_QUICK},
                 {"relu", ACT_RELU},
                 {"relu2", ACT_RELU2}};
    str name = {0};
    TRY(config_str(c, NULL, hf, &name));
    /* some GGUF files name it too */
    if (name.n == 0) {
        TRY(config_str(c, "hidden_activation", NULL, &name));
    }
    for (size_t i = 0; name.n > 0 && i < sizeof kinds / sizeof *kinds; i++) {
        if (str_is(name, kinds[i].name)) {
            d->activation = kinds[i].kind;
            return QUIRE_OK;
        }
    }
    return name.n == 0 ? QUIRE_OK
                       : err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: hidden_act \"%.*s\" is not supported",
                                 model_file_path(c->f), (int)(name.n < 40 ? name.n : 40), name.p);
}

/* Reads a number per layer: a list, which may continue for next-token layers, or one
 * number for all. out[0] is initially the default. */
static quire_err config_read_layers(const config *c, const char *gguf, const char *hf, const model_desc *d,
                                    int32_t n_layers, int32_t *out) {
    size_t n = 0, n_all = (size_t)n_layers + (size_t)d->n_next_token_layers;
    TRY(config_i32s(c, gguf, hf, out, n_all, &n));
    for (int32_t i = 1; n <= 1 && i < n_layers; i++) {
        out[i] = out[0];
    }
    bool fits = n <= 1 || n == (size_t)n_layers || n == n_all;
    return fits ? QUIRE_OK : config_bad_at(c, gguf, hf, "must be one number, or one for each layer");
}

int32_t config_matrix_rows(const config *c, const tensor_view *t) {
    bool is_row = t != NULL && t->n_dims == 1 && c->is_gguf;
    return is_row ? 1 : t != NULL && t->n_dims == 2 && t->dims[0] <= INT32_MAX ? (int32_t)t->dims[0] : 0;
}

int32_t config_table_rows(const config *c, const char *name) {
    return c->is_gguf ? config_matrix_rows(c, model_file_find(c->f, name)) : 0;
}

const tensor_view *config_layer_matrix(const config *c, int32_t layer, const char *name) {
    char full[128];
    (void)snprintf(full, sizeof full, "blk.%d.%s.weight" PACKED_SUFFIX, (int)layer, name);
    const tensor_view *t = model_file_find(c->f, full);
    full[strlen(full) - strlen(PACKED_SUFFIX)] = 0;
    return t != NULL ? t : model_file_find(c->f, full);
}

int32_t config_tensor_rows(const config *c, const model_desc *d, const char *name) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_layers && c->is_gguf; i++) {
        const int32_t rows = config_matrix_rows(c, config_layer_matrix(c, i, name));
        if (rows > 0) {
            return rows;
        }
    }
    return 0;
}

quire_err config_ff_of_tensor(const config *c, model_desc *d) {
    int32_t rows = config_tensor_rows(c, d, "ffn_up");
    for (int32_t i = 0; rows > 0 && i < d->n_layers; i++) {
        d->layers[i].d_ff = rows;
    }
    return QUIRE_OK;
}

void config_kv_heads_of_tensor(const config *c, model_desc *d) {
    assert(d != NULL);
    int32_t rows = config_tensor_rows(c, d, "attn_k"), width = d->caches[0].d_key, n = rows / width;
    bool tells = n > 0 && rows % width == 0 && d->layers[0].n_heads % n == 0;
    for (int32_t i = 0; tells && i < d->n_caches; i++) {
        d->caches[i].n_kv_heads = n;
    }
}

/* The width of heads if the file does not state it (GLM-4 in GGUF): from the rows of the
 * first layer's queries, else from the model's width. */
static int32_t head_of_tensor(const config *c, const decoder_shape *s, int32_t d_model) {
    const tensor_view *t = c->is_gguf ? model_file_find(c->f, "blk.0.attn_q.weight" PACKED_SUFFIX) : NULL;
    t = t == NULL && c->is_gguf ? model_file_find(c->f, "blk.0.attn_q.weight") : t;
    bool tells = t != NULL && t->n_dims == 2 && t->dims[0] % s->n_heads == 0 &&
                 t->dims[0] / s->n_heads <= DESC_MAX_HEAD;
    return tells ? (int32_t)(t->dims[0] / s->n_heads) : d_model / s->n_heads;
}

/* Reads the number of layers. GGUF's block_count includes next-token layers (last). */
static quire_err read_layer_counts(const config *c, decoder_shape *s, model_desc *d) {
    int32_t n_next = 0;
    s->n_layers = c->has_text && s->n_layers == 0 ? published_of(d->architecture)->n_layers : s->n_layers;
    TRY(usual_or_needed(c, "block_count", "num_hidden_layers|n_layer|n_layers|num_layers", &s->n_layers));
    TRY(config_i32(c, "nextn_predict_layers", "num_nextn_predict_layers|num_mtp_modules", &n_next));
    int32_t most = c->is_gguf ? s->n_layers - 1 : DESC_MAX_LAYERS - s->n_layers;
    if (s->n_layers < 1 || s->n_layers > DESC_MAX_LAYERS) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: %d layers; this build supports 1 to %d",
                       model_file_path(c->f), s->n_layers, DESC_MAX_LAYERS);
    }
    if (n_next > most) {
        return err_set(c->err, QUIRE_BAD_FILE, -1,
                       "%s: %d next-token layers for %d layers; at most %d are allowed",
                       model_file_path(c->f), (int)n_next, (int)s->n_layers, (int)most);
    }
    s->n_layers -= c->is_gguf ? n_next : 0;
    d->n_next_token_layers = n_next;
    return QUIRE_OK;
}

/* Reads each layer's number of query heads: one number, or a list if allowed. */
static quire_err read_query_heads(const config *c, decoder_shape *s, const model_desc *d, int32_t *n_heads) {
    const char *gguf_heads = "attention.head_count",
               *hf_heads = s->has_heads_by_layer
                               ? "num_attention_heads_per_layer|num_attention_heads|n_head|n_heads"
                               : "num_attention_heads|n_head|n_heads";
    if (s->n_heads == 0 && !config_has(c, gguf_heads, hf_heads)) {
        TRY(config_need_i32(c, gguf_heads, hf_heads, &s->n_heads));
    }
    n_heads[0] = s->n_heads;
    TRY(s->has_heads_by_layer ? config_read_layers(c, gguf_heads, hf_heads, d, s->n_layers, n_heads)
                              : config_same_i32(c, gguf_heads, hf_heads, n_heads));
    for (int32_t i = 1; !s->has_heads_by_layer && i < s->n_layers; i++) {
        n_heads[i] = n_heads[0];
    }
    for (int32_t i = 0; i < s->n_layers; i++) {
        if (n_heads[i] < 1 || n_heads[i] > MAX_HEADS) {
            TRY(config_bad(c, "the number of attention heads",
                           n_heads[i] < 1 ? "must be at least 1" : "must be at most 65536"));
        }
    }
    s->n_heads = n_heads[0];
    return QUIRE_OK;
}

static quire_err config_read_heads(const config *c, decoder_shape *s, model_desc *d, int32_t *n_heads,
                                   int32_t *n_kv_heads) {
    const published *usual = published_of(c->is_gguf ? "" : d->architecture);
    const char *hf_kv = "num_key_value_heads|num_kv_heads|num_attention_groups";
    s->n_heads = usual->n_heads;
    TRY(read_query_heads(c, s, d, n_heads));
    s->n_kv_heads = s->n_kv_heads == 0 && !config_is_null(c, hf_kv) ? usual->n_kv_heads : s->n_kv_heads;
    n_kv_heads[0] = s->n_kv_heads == 0 ? s->n_heads : s->n_kv_heads;
    TRY(config_read_layers(c, "attention.head_count_kv", hf_kv, d, s->n_layers, n_kv_heads));
    s->n_kv_heads = n_kv_heads[0];
    if (s->own_heads) {
        s->d_head = 1;
        return QUIRE_OK;
    }
    bool is_usual = usual->d_head > 0 && !config_is_null(c, "head_dim");
    s->d_head = is_usual ? usual->d_head : head_of_tensor(c, s, d->d_model);
    TRY(config_i32(c, "attention.key_length", "head_dim", &s->d_head));
    if (s->d_head < 1 || s->d_head > DESC_MAX_HEAD) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: the head size is %d; this build supports 1 to %d",
                       model_file_path(c->f), (int)s->d_head, DESC_MAX_HEAD);
    }
    int32_t value_length = s->has_values && s->d_value > 0 ? s->d_value : s->d_head;
    TRY(config_i32(c, "attention.value_length", s->has_values ? "v_head_dim" : NULL, &value_length));
    s->d_value = value_length;
    if (s->has_values && (value_length < 1 || value_length > DESC_MAX_HEAD)) {
        return config_bad(c, c->is_gguf ? "attention.value_length" : "v_head_dim",
                          "must be from 1 to 512, the widest head");
    }
    if (!s->has_values && value_length != s->d_head) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s: keys of %d and values of %d elements a head: different widths are not supported",
                       model_file_path(c->f), (int)s->d_head, (int)value_length);
    }
    return QUIRE_OK;
}

/* Reads the width of each layer's feed-forward part. */
static quire_err read_ff(const config *c, decoder_shape *s, const model_desc *d, int32_t *d_ff) {
    const char *hf = "intermediate_size|n_inner|ffn_dim|ffn_hidden_size";
    s->d_ff = s->d_ff == 0 && !c->is_gguf ? published_of(d->architecture)->d_ff : s->d_ff;
    d_ff[0] = s->d_ff;
    TRY(s->d_ff > 0 || config_has(c, "feed_forward_length", hf)
            ? config_read_layers(c, "feed_forward_length", hf, d, s->n_layers, d_ff)
            : config_need_i32(c, "feed_forward_length", hf, d_ff));
    for (int32_t i = 0; i < s->n_layers; i++) {
        if (d_ff[i] < 1 && !s->lacks_ff) {
            return config_bad(c, "the feed-forward size", "must be at least 1");
        }
    }
    s->d_ff = d_ff[0];
    return QUIRE_OK;
}

static quire_err read_activation(const config *c, const decoder_shape *s, model_desc *d) {
    const char *hf = "hidden_activation|hidden_act|activation_function";
    str name = {0};
    TRY(config_str(c, NULL, hf, &name));
    return s->own_activation != NULL && str_is(name, s->own_activation) ? QUIRE_OK
                                                                        : config_activation(c, hf, d);
}

/* Reads whether the head is tied, in which case a checkpoint leaves it out. In a nested
 * config either part may say so. */
static quire_err read_tying(const config *c, model_desc *d) {
    if (!c->is_gguf) {
        config whole = *c;
        bool is_tied = d->tied_embeddings;
        whole.has_text = false;
        TRY(config_bool(c, NULL, "tie_word_embeddings", &d->tied_embeddings));
        if (c->has_text) {
            TRY(config_bool(&whole, NULL, "tie_word_embeddings", &is_tied));
        }
        d->tied_embeddings = d->tied_embeddings || is_tied;
        return QUIRE_OK;
    }
    d->tied_embeddings =
        !model_file_find(c->f, "output.weight") && !model_file_find(c->f, "output.weight" PACKED_SUFFIX);
    return QUIRE_OK;
}

quire_err config_decoder(const config *c, decoder_shape *s, model_desc *d) {
    int32_t n_heads[DESC_MAX_LAYERS], n_kv_heads[DESC_MAX_LAYERS], d_ff[DESC_MAX_LAYERS] = {0};
    d->d_model = c->has_text ? published_of(d->architecture)->d_model : 0;
    TRY(usual_or_needed(c, "embedding_length", "hidden_size|n_embd|n_embed|d_model", &d->d_model));
    TRY(read_layer_counts(c, s, d));
    if (!s->no_attention) {
        TRY(config_read_heads(c, s, d, n_heads, n_kv_heads));
        TRY(read_ff(c, s, d, d_ff));
    }
    const char *positions = "max_position_embeddings|n_positions|max_seq_len|seq_length";
    const published *usual = published_of(c->is_gguf ? "" : d->architecture);
    d->max_positions = d->max_positions > 0 ? d->max_positions : usual->max_positions;
    TRY(usual_or_needed(c, "context_length", positions, &d->max_positions));
    TRY(config_read_vocabulary(c, d));
    d->norm_eps = usual->norm_eps > 0.0f ? usual->norm_eps : d->norm_eps > 0.0f ? d->norm_eps : 1e-6f;
    TRY(config_f32(c, "attention.layer_norm_rms_epsilon",
                   "rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_eps|norm_epsilon", &d->norm_eps));
    TRY(config_f32(c, "attention.layer_norm_epsilon", NULL, &d->norm_eps));
    TRY(read_activation(c, s, d));
    TRY(read_tying(c, d));
    read_special_tokens(c, d);
    d->attention_scale = s->no_attention ? 1.0f : 1.0f / sqrtf((float)s->d_head);
    for (int32_t i = 0; i < s->n_layers && s->no_attention; i++) {
        d->layers[d->n_layers++] = (layer_desc){.caches = NO_CACHES, .rope = NO_ROPE};
    }
    for (int32_t i = 0; i < s->n_layers && !s->no_attention; i++) {
        const cache_desc cache = {.kind = LAYER_FULL,
                                  .n_kv_heads = n_kv_heads[i],
                                  .d_key = s->d_head,
                                  .d_value = s->d_value > 0 ? s->d_value : s->d_head};
        const layer_desc layer = {.steps = steps_pre_norm,
                                  .caches = NO_CACHES,
                                  .rope = NO_ROPE,
                                  .n_heads = n_heads[i],
                                  .d_ff = d_ff[i]};
        desc_add_layer(d, layer, &cache);
    }
    return QUIRE_OK;
}

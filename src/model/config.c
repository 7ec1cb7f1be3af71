/* Reads the numbers that most decoders share from a file's metadata, under GGUF's keys or config.json's. */
#include "model/arch.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/packed.h"

static bool is_gguf(const model_file *f) {
    return model_file_format(f) == MODEL_GGUF;
}

/* The key of a number: GGUF's "ARCH.suffix" or config.json's path. NULL: that form never has it, QUIRE_NOT_FOUND. */
static quire_err find_key(const model_file *f, const model_desc *d, const char *gguf, const char *hf, char out[128]) {
    if ((is_gguf(f) ? gguf : hf) == NULL) {
        return QUIRE_NOT_FOUND;
    }
    snprintf(out, 128, "%s%s%s", is_gguf(f) ? d->architecture : "", is_gguf(f) ? "." : "", is_gguf(f) ? gguf : hf);
    return QUIRE_OK;
}

static quire_err bad(const model_file *f, const char *key, const char *what, quire_error *err) {
    return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s %s", model_file_path(f), key, what);
}

/* A number under GGUF's suffix or config.json's key (NULL: that form never has it). Absent: *out stays, and QUIRE_NOT_FOUND. */
static quire_err read_i32(const model_file *f, const model_desc *d, const char *gguf, const char *hf, int32_t *out, quire_error *err) {
    char key[128];
    TRY(find_key(f, d, gguf, hf, key));
    int64_t v;
    quire_err e = model_file_i64(f, key, &v);
    if (e == QUIRE_NOT_FOUND) {
        return e;
    }
    if (e != QUIRE_OK || v < 0 || v > INT32_MAX) {
        return bad(f, key, "must be a whole number from 0 to 2147483647", err);
    }
    *out = (int32_t)v;
    return QUIRE_OK;
}

static quire_err read_f32(const model_file *f, const model_desc *d, const char *gguf, const char *hf, float *out, quire_error *err) {
    char key[128];
    TRY(find_key(f, d, gguf, hf, key));
    float v;
    quire_err e = model_file_f32(f, key, &v);
    if (e == QUIRE_NOT_FOUND) {
        return e;
    }
    if (e != QUIRE_OK || !isfinite(v)) {
        return bad(f, key, "must be a finite number", err);
    }
    *out = v;
    return QUIRE_OK;
}

/* Reads a number that the file must have. */
static quire_err need_i32(const model_file *f, const model_desc *d, const char *gguf, const char *hf, int32_t *out, quire_error *err) {
    quire_err e = read_i32(f, d, gguf, hf, out, err);
    return e == QUIRE_NOT_FOUND ? bad(f, is_gguf(f) ? gguf : hf, "is missing from the metadata", err) : e;
}

/* For a number that may be absent: *out keeps its default. */
static quire_err may(quire_err e) {
    return e == QUIRE_NOT_FOUND ? QUIRE_OK : e;
}

static quire_err config_vocabulary(const model_file *f, model_desc *d, quire_error *err) {
    quire_err e = read_i32(f, d, "vocab_size", "vocab_size", &d->n_vocab, err);
    if (e == QUIRE_NOT_FOUND && is_gguf(f)) {
        const tensor_view *t = model_file_find(f, "token_embd.weight");
        if (t && t->n_dims == 2 && t->dims[0] <= INT32_MAX) {
            d->n_vocab = (int32_t)t->dims[0];
            return QUIRE_OK;
        }
    }
    return e == QUIRE_NOT_FOUND ? bad(f, "vocab_size", "is missing from the metadata", err) : e;
}

static void add_eos(model_desc *d, int64_t id) {
    if (id < 0 || id >= d->n_vocab || d->n_eos == DESC_MAX_EOS) {
        return;
    }
    for (int32_t i = 0; i < d->n_eos; i++) {
        if (d->eos[i] == id) {
            return;
        }
    }
    d->eos[d->n_eos++] = (int32_t)id;
}

/* Reads the tokens that end and begin a text. Ids outside the vocabulary are left out: some published files have such ids. */
static void config_special_tokens(const model_file *f, model_desc *d) {
    int64_t ids[DESC_MAX_EOS], bos = -1;
    size_t n = 0;
    if (is_gguf(f)) {
        static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            if (model_file_i64(f, keys[i], ids) == QUIRE_OK) {
                add_eos(d, ids[0]);
            }
        }
        model_file_i64(f, "tokenizer.ggml.bos_token_id", &bos);
    } else {
        if (model_file_generation_i64s(f, "eos_token_id", ids, DESC_MAX_EOS, &n) != QUIRE_OK &&
            model_file_i64s(f, "eos_token_id", ids, DESC_MAX_EOS, &n) != QUIRE_OK) {
            n = 0;
        }
        for (size_t i = 0; i < n && i < DESC_MAX_EOS; i++) {
            add_eos(d, ids[i]);
        }
        model_file_i64(f, "bos_token_id", &bos);
    }
    d->bos = bos >= 0 && bos < d->n_vocab ? (int32_t)bos : -1;
}

static quire_err config_activation(const model_file *f, model_desc *d, quire_error *err) {
    static const struct {
        const char *name;
        activation kind;
    } buffers[] = {
        {"silu", ACT_SILU}, {"swish", ACT_SILU}, {"gelu", ACT_GELU}, {"gelu_new", ACT_GELU_TANH}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"relu", ACT_RELU}, {"relu2", ACT_RELU2}};
    str name;
    d->activation = ACT_SILU;
    if (is_gguf(f) || model_file_str(f, "hidden_act", &name) == QUIRE_NOT_FOUND) {
        return QUIRE_OK;
    }
    if (model_file_str(f, "hidden_act", &name) != QUIRE_OK) {
        return bad(f, "hidden_act", "must be text", err);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        if (str_is(name, buffers[i].name)) {
            d->activation = buffers[i].kind;
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: hidden_act \"%.*s\" is not supported", model_file_path(f),
                   (int)(name.n < 40 ? name.n : 40), name.p);
}

/* Layers that are all alike, with full attention. */
static quire_err config_layers(const model_file *f, model_desc *d, quire_error *err) {
    int32_t n_layers, d_ff;
    layer_desc l = {.caches = {NO_CACHE, NO_CACHE}};
    cache_desc c = {.kind = LAYER_FULL};
    TRY(need_i32(f, d, "block_count", "num_hidden_layers", &n_layers, err));
    if (n_layers < 1 || n_layers > DESC_MAX_LAYERS) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: %d layers; this build computes 1 to %d", model_file_path(f), n_layers,
                       DESC_MAX_LAYERS);
    }
    TRY(need_i32(f, d, "attention.head_count", "num_attention_heads", &l.n_heads, err));
    if (l.n_heads <= 0) {
        return bad(f, "the number of attention heads", "must be at least 1", err);
    }
    TRY(need_i32(f, d, "feed_forward_length", "intermediate_size", &d_ff, err));
    if (d_ff < 1) {
        return bad(f, "the feed-forward size", "must be at least 1", err);
    }
    l.d_ff = d_ff;
    c.n_kv_heads = l.n_heads;
    TRY(may(read_i32(f, d, "attention.head_count_kv", "num_key_value_heads", &c.n_kv_heads, err)));
    c.d_key = d->d_model / l.n_heads;
    TRY(may(read_i32(f, d, "attention.key_length", "head_dim", &c.d_key, err)));
    c.d_value = c.d_key;
    TRY(may(read_i32(f, d, "attention.value_length", NULL, &c.d_value, err)));
    if (c.d_value != c.d_key) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: keys of %d and values of %d elements a head: different widths are not supported",
                       model_file_path(f), (int)c.d_key, (int)c.d_value);
    }
    for (int32_t i = 0; i < n_layers; i++) {
        desc_add_layer(d, l, &c);
    }
    return QUIRE_OK;
}

quire_err config_transformer(const model_file *f, model_desc *d, quire_error *err) {
    TRY(need_i32(f, d, "embedding_length", "hidden_size", &d->d_model, err));
    TRY(need_i32(f, d, "context_length", "max_position_embeddings", &d->max_positions, err));
    TRY(config_vocabulary(f, d, err));
    TRY(config_layers(f, d, err));
    int32_t n_experts = 0;
    TRY(may(read_i32(f, d, "expert_count", "num_local_experts", &n_experts, err)));
    if (n_experts > 0) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: a mixture of %d experts is not supported by this version", model_file_path(f),
                       (int)n_experts);
    }
    d->norm_eps = 1e-6f;
    TRY(may(read_f32(f, d, "attention.layer_norm_rms_epsilon", "rms_norm_eps", &d->norm_eps, err)));
    TRY(config_activation(f, d, err));
    if (is_gguf(f)) {
        d->tied_embeddings = !model_file_find(f, "output.weight") && !model_file_find(f, "output.weight" PACKED_SUFFIX);
    } else {
        quire_err e = model_file_bool(f, "tie_word_embeddings", &d->tied_embeddings);
        if (e != QUIRE_OK && e != QUIRE_NOT_FOUND) {
            return bad(f, "tie_word_embeddings", "must be true or false", err);
        }
    }
    config_special_tokens(f, d);
    return QUIRE_OK;
}

/* The scaling's name, and the object that holds its numbers, in the old style or the new. */
static quire_err hf_scaling(const model_file *f, str *type, const char **object, quire_error *err) {
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    static const char *const names[] = {"rope_type", "type"};
    *type = str_of("default");
    *object = objects[0];
    for (int o = 0; o < 2; o++) {
        for (int n = 0; n < 2; n++) {
            char key[64];
            snprintf(key, sizeof key, "%s.%s", objects[o], names[n]);
            quire_err e = model_file_str(f, key, type);
            if (e == QUIRE_OK) {
                *object = objects[o];
                return QUIRE_OK;
            }
            if (e != QUIRE_NOT_FOUND) {
                return bad(f, key, "must be text", err);
            }
        }
    }
    return QUIRE_OK;
}

/* Reads object.key of config.json. */
static quire_err scaling_f32(const model_file *f, const model_desc *d, const char *object, const char *key, float *out, quire_error *err) {
    char path[96];
    snprintf(path, sizeof path, "%s.%s", object, key);
    return may(read_f32(f, d, NULL, path, out, err));
}

/* The factor by which YaRN raises the attention's temperature (Peng et al. 2023, arXiv:2309.00071). */
static float yarn_mscale(float factor, float mscale) {
    return factor <= 1.0f ? 1.0f : 0.1f * mscale * logf(factor) + 1.0f;
}

static quire_err rope_hf(const model_file *f, model_desc *d, quire_error *err) {
    rope_desc *r = &d->ropes[0];
    str type;
    const char *object;
    char path[96];
    TRY(hf_scaling(f, &type, &object, err));
    TRY(may(read_f32(f, d, NULL, "rope_theta", &r->theta, err)));
    TRY(scaling_f32(f, d, "rope_parameters", "rope_theta", &r->theta, err));
    TRY(scaling_f32(f, d, object, "factor", &r->factor, err));
    TRY(scaling_f32(f, d, object, "low_freq_factor", &r->low_freq_factor, err));
    TRY(scaling_f32(f, d, object, "high_freq_factor", &r->high_freq_factor, err));
    TRY(scaling_f32(f, d, object, "beta_fast", &r->beta_fast, err));
    TRY(scaling_f32(f, d, object, "beta_slow", &r->beta_slow, err));
    TRY(scaling_f32(f, d, object, "attention_factor", &r->attention_factor, err));
    snprintf(path, sizeof path, "%s.original_max_position_embeddings", object);
    TRY(may(read_i32(f, d, NULL, path, &r->original_positions, err)));
    snprintf(path, sizeof path, "%s.truncate", object);
    model_file_bool(f, path, &r->truncate);
    float mscale = 0, mscale_all = 0;
    TRY(scaling_f32(f, d, object, "mscale", &mscale, err));
    TRY(scaling_f32(f, d, object, "mscale_all_dim", &mscale_all, err));
    if (r->attention_factor == 0 && mscale > 0 && mscale_all > 0) {
        r->attention_factor = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
    }
    static const struct {
        const char *name;
        rope_kind kind;
    } kinds[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_NTK}, {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (str_is(type, kinds[i].name)) {
            r->kind = kinds[i].kind;
            return QUIRE_OK;
        }
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: rotary scaling \"%.*s\" is not supported", model_file_path(f),
                   (int)(type.n < 40 ? type.n : 40), type.p);
}

/* Reads rope_freqs.weight, the form of Llama 3's scaling in GGUF. */
static quire_err gguf_freq_factors(const model_file *f, model_desc *d, quire_error *err) {
    const tensor_view *t = model_file_find(f, "rope_freqs.weight");
    if (!t) {
        return QUIRE_OK;
    }
    if (t->type != DTYPE_F32 || t->n_dims != 1 || t->dims[0] > DESC_MAX_HEAD / 2 || t->dims[0] != d->ropes[0].n_dims / 2 ||
        (uintptr_t)t->data % sizeof(float) != 0) {
        return bad(f, "rope_freqs.weight", "must hold one F32 divisor for each pair of rotary dimensions", err);
    }
    const float *factors = t->data;
    for (int64_t i = 0; i < t->dims[0]; i++) {
        if (!(factors[i] > 0) || !isfinite(factors[i])) {
            return bad(f, "rope_freqs.weight", "holds a divisor that is not a positive number", err);
        }
    }
    memcpy(d->ropes[0].factors, factors, (size_t)t->dims[0] * sizeof *factors);
    d->ropes[0].has_factors = true;
    return QUIRE_OK;
}

static quire_err rope_gguf(const model_file *f, model_desc *d, quire_error *err) {
    rope_desc *r = &d->ropes[0];
    char key[128];
    TRY(may(read_f32(f, d, "rope.freq_base", NULL, &r->theta, err)));
    TRY(may(read_i32(f, d, "rope.dimension_count", NULL, &r->n_dims, err)));
    TRY(may(read_f32(f, d, "rope.scale_linear", NULL, &r->factor, err)));
    TRY(may(read_f32(f, d, "rope.scaling.factor", NULL, &r->factor, err)));
    r->factor = r->factor == 0.0f ? 1.0f : r->factor; /* files write 0 for "none" */
    r->kind = r->factor != 1.0f ? ROPE_LINEAR : ROPE_PLAIN;
    TRY(may(read_i32(f, d, "rope.scaling.original_context_length", NULL, &r->original_positions, err)));
    TRY(may(read_f32(f, d, "rope.scaling.yarn_beta_fast", NULL, &r->beta_fast, err)));
    TRY(may(read_f32(f, d, "rope.scaling.yarn_beta_slow", NULL, &r->beta_slow, err)));
    float attn_factor = 0;
    TRY(may(read_f32(f, d, "rope.scaling.attn_factor", NULL, &attn_factor, err)));
    r->attention_factor = attn_factor > 0 ? attn_factor * yarn_mscale(r->factor, 1.0f) : 0.0f;
    str type;
    TRY(find_key(f, d, "rope.scaling.type", NULL, key));
    quire_err e = model_file_str(f, key, &type);
    if (e == QUIRE_OK) {
        if (!str_is(type, "none") && !str_is(type, "linear") && !str_is(type, "yarn")) {
            return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: rotary scaling \"%.*s\" is not supported", model_file_path(f),
                           (int)(type.n < 40 ? type.n : 40), type.p);
        }
        r->kind = str_is(type, "linear") ? ROPE_LINEAR : str_is(type, "yarn") ? ROPE_YARN : ROPE_PLAIN;
    } else if (e != QUIRE_NOT_FOUND) {
        return bad(f, key, "must be text", err);
    }
    return gguf_freq_factors(f, d, err);
}

quire_err config_rope(const model_file *f, model_desc *d, quire_error *err) {
    d->n_ropes = 1;
    d->ropes[0] = (rope_desc){.kind = ROPE_PLAIN,
                              .pairs = is_gguf(f) ? ROPE_NEIGHBOURS : ROPE_HALVES,
                              .n_dims = d->caches[0].d_key,
                              .theta = 10000.0f,
                              .factor = 1.0f,
                              .low_freq_factor = 1.0f,
                              .high_freq_factor = 4.0f,
                              .beta_fast = 32.0f,
                              .beta_slow = 1.0f,
                              .truncate = true,
                              .original_positions = d->max_positions};
    return is_gguf(f) ? rope_gguf(f, d, err) : rope_hf(f, d, err);
}

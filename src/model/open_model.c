/* Opens a model: finds the architecture by the file's name for it, reads the description,
 * and loads the weights. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "model/architectures.h"
#include "model/composite.h"
#include "model/decoder.h"
#include "model/left_out.h"
#include "model/model.h"
#include "model/quant_method.h"
#include "model/quantise_load.h"

#define WHOLE "download the whole model, as `quire pull ORG/NAME` does"

/* The file's name for its architecture: GGUF's general.architecture, or config.json's
 * architectures[0] or else model_type. */
static quire_err architecture_name(const model_file *f, str *name, quire_error *err) {
    size_t n = 0;
    bool is_gguf = model_file_format(f) == MODEL_GGUF;
    quire_err e = is_gguf ? model_file_str(f, "general.architecture", name)
                          : model_file_str_at(f, "architectures", 0, name, &n);
    if (e == QUIRE_NOT_FOUND && !is_gguf) {
        str type = {0};
        e = model_file_str(f, "model_type", &type);
        *name = e == QUIRE_OK ? model_type_class(type, model_file_is_object(f, "text_config")) : type;
        if (e == QUIRE_OK && name->n == 0) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "%s: config.json has no \"architectures\", and its model_type \"%.*s\" is not "
                           "supported by this version",
                           model_file_path(f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
    }
    if (e != QUIRE_OK && !is_gguf && model_file_n_tensors(f) == 0 &&
        model_file_vocab(f)->source != VOCAB_NONE) {
        return err_set(
            err, QUIRE_UNSUPPORTED, -1,
            "%s: only a tokenizer: no weights, and no config.json that names an architecture; " WHOLE,
            model_file_path(f));
    }
    if (e != QUIRE_OK) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: %s is missing or not a string: this is not a model's file", model_file_path(f),
                       is_gguf ? "general.architecture"
                               : "\"architectures\" (or \"model_type\") in config.json");
    }
    return QUIRE_OK;
}

/* Refuses a file without weights, which only a description can be read from. */
static quire_err check_weights(const model_file *f, quire_error *err) {
    if (model_file_n_tensors(f) > 0) {
        return QUIRE_OK;
    }
    bool has_vocab = model_file_vocab(f)->source != VOCAB_NONE;
    const char *what = has_vocab ? "config.json and a tokenizer" : "only config.json";
    if (model_file_format(f) == MODEL_GGUF) {
        what = has_vocab ? "only a vocabulary" : "only keys";
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: %s, without weights; " WHOLE, model_file_path(f), what);
}

static quire_err find_arch(const model_file *f, const arch **out, str *name, quire_error *err) {
    TRY(architecture_name(f, name, err));
    TRY(composite_find_text(f, name, err));
    nearest similar = {.wanted = *name};
    *out = arch_find(model_file_format(f), *name, &similar);
    if (*out != NULL) {
        return QUIRE_OK;
    }
    const char *reason = refused_reason(model_file_format(f), *name);
    if (reason != NULL) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s: architecture %.*s is not supported: %s",
                       model_file_path(f), (int)name->n, name->p, reason);
    }
    return err_set(err, QUIRE_UNSUPPORTED, -1,
                   "%s: architecture %.*s is not supported by this version%s%.*s%s", model_file_path(f),
                   (int)(name->n < 60 ? name->n : 60), name->p,
                   similar.best.n > 0 ? "; the nearest supported one is " : "", (int)similar.best.n,
                   similar.best.n > 0 ? similar.best.p : "",
                   similar.best.n > 0 ? "" : "; docs/models.md lists the supported ones");
}

/* Reads whether a decoder's attention is two-sided. Refuses it with windows, chunks or
 * ALiBi, for which no file defines it. */
static quire_err read_direction(const config *c, model_desc *d) {
    bool causal = true, is_plain = d->attend.alibi == 0.0f;
    if (d->two_sided) {
        return config_check_two_sided(c);
    }
    TRY(config_bool(c, "attention.causal", "is_causal", &causal));
    for (int32_t i = 0; i < d->n_layers; i++) {
        is_plain = is_plain && d->layers[i].window == 0 && d->layers[i].chunk == 0;
    }
    if (!causal && !is_plain) {
        return config_unsupported(
            c, c->is_gguf
                   ? "attention.causal false is not supported for a decoder with windows, chunks or ALiBi"
                   : "is_causal false is not supported for a decoder with windows, chunks or ALiBi");
    }
    d->two_sided = !causal;
    return QUIRE_OK;
}

/* Whether a checkpoint is a text model whose head was left out: its names have no prefix,
 * and its head is not tied. */
static bool is_headless(const model_file *f, const arch_names *names, const model_desc *d) {
    const loader l = {.file = f, .names = names, .root = loader_root(f, names)};
    bool has_head = loader_has(&l, weight_name_of(names, W_HEAD), NO_LAYER) ||
                    model_file_why_unread(f, "lm_head.weight") != NULL;
    return model_file_format(f) == MODEL_HF && l.root[0] == 0 && !d->tied_embeddings && !has_head;
}

/* rows: as in config; or NULL. */
static quire_err describe(const model_file *f, head_rows *rows, model_desc *out, quire_error *err) {
    const arch *a;
    str name;
    char prefix[64];
    TRY(find_arch(f, &a, &name, err));
    model_desc d = {.bos = -1};
    snprintf(prefix, sizeof prefix, "%.*s", (int)name.n, name.p);
    snprintf(d.architecture, sizeof d.architecture, "%s", a->gguf[0]);
    config c = config_of(f, prefix, err);
    c.rows = rows;
    if (model_file_str(f, "general.name", &name) == QUIRE_OK) {
        snprintf(d.name, sizeof d.name, "%.*s", (int)(name.n < 120 ? name.n : 120), name.p);
    }
    TRY(quant_check(f, err));
    TRY(a->describe(&c, &d));
    TRY(read_direction(&c, &d));
    d.no_head = d.no_head || is_headless(f, a->names, &d);
    TRY(biases_check(&c, a->names));
    TRY(pooling_describe(&c, a->scores, &d));
    TRY(model_file_check_overrides(f, err));
    describe_weights(f, a->names, loader_root(f, a->names), &d);
    TRY(quantise_describe(f, a->names, loader_root(f, a->names), &d, err));
    if (d.quantise_to != DTYPE_F32) {
        describe_weights(f, a->names, loader_root(f, a->names), &d);
    }
    quire_err e = desc_check(&d, err);
    if (e != QUIRE_OK) {
        return err_prefix(err, e, model_file_path(f));
    }
    *out = d;
    return QUIRE_OK;
}

quire_err model_describe(const model_file *f, model_desc *out, quire_error *err) {
    return describe(f, NULL, out, err);
}

/* Adds the file's name to an error of the backend. */
static quire_err name_file(const model_file *f, quire_err e, quire_error *err) {
    bool named = e == QUIRE_OK || err == NULL || strstr(err->message, model_file_path(f)) != NULL;
    return named ? e : err_prefix(err, e, model_file_path(f));
}

static quire_err model_load_with(model *m, const model_file *f, loader *l, int32_t max_positions,
                                 quire_error *err) {
    str name;
    TRY(find_arch(f, &m->arch, &name, err));
    TRY(check_weights(f, err));
    TRY(describe(f, &m->rows, &m->desc, err));
    TRY(loader_init(l, f, m->arch->names, m->b, max_positions, err));
    l->quantise_to = m->desc.quantise_to;
    l->is_quantised = l->is_quantised || (m->desc.auto_compute == COMPUTE_INT8 && l->quantise_to != DTYPE_I8);
    l->weights = &m->weights;
    m->from_gguf = model_file_format(f) == MODEL_GGUF;
    TRY(decoder_load(l, &m->desc, &m->decoder));
    return pooling_load(l, &m->desc, &m->pooling);
}

/* image: receives the tensors; or NULL. */
static quire_err model_open_with(model_file *f, backend *b, int32_t max_positions, packed_image *image,
                                 model **out, quire_error *err) {
    *out = NULL;
    model *m = mem_new(1, sizeof *m);
    TRY(err_set(err, mem_check(m), -1, "out of memory"));
    m->b = b;
    loader l = {0};
    quire_err e = name_file(f, model_load_with(m, f, &l, max_positions, err), err);
    TRY_DONE(e, err_set(err, weight_table_finish(&m->weights), -1, "out of memory"));
    TRY_DONE(e, loader_finish(&l, &m->desc));
    if (image != NULL && loader_image(&l, image) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
done:
    loader_deinit(&l);
    if (e != QUIRE_OK) {
        model_close(m);
        return e;
    }
    m->file = m->desc.is_packed ? model_file_share(f) : NULL;
    *out = m;
    return QUIRE_OK;
}

quire_err model_open(model_file *f, backend *b, int32_t max_positions, model **out, quire_error *err) {
    return model_open_with(f, b, max_positions, NULL, out, err);
}

quire_err model_open_image(model_file *f, backend *b, int32_t max_positions, packed_image *image, model **out,
                           quire_error *err) {
    return model_open_with(f, b, max_positions, image, out, err);
}

void model_close(model *m) {
    if (m) {
        model_file_close(m->file);
        pooling_close(m->pooling);
        decoder_close(m->decoder);
        weight_table_deinit(&m->weights);
        mem_free(m);
    }
}

const model_desc *model_description(const model *m) {
    return &m->desc;
}

void model_set_ends(model *m, const int32_t *ids, int32_t n) {
    assert(m != NULL);
    m->desc.n_eos = 0;
    for (int32_t i = 0; i < n; i++) {
        desc_add_eos(&m->desc, ids[i]);
    }
}

void model_forward(model *m, const batch *rows) {
    decoder_forward(m->decoder, &m->desc, m->b, rows);
}

buffer model_hidden(const model *m) {
    return m->decoder->x;
}

void model_pooled(const model *m, const float *row, float *out) {
    pooling_apply(m->pooling, m->desc.d_model, row, out);
}

/* ---- biases ---- */

/* Compares what config.json says about biases with the checkpoint's tensors. A mismatch
 * in either direction would silently run another model. */

/* A key, and the endings of names of tensors that it is about: some must exist, or
 * none. */
typedef struct bias_key {
    const char *key, *ends[6];
} bias_key;

static const bias_key keys[] = {
    {"attention_bias|qkv_bias|use_qkv_bias",
     {".q_proj.bias", ".qkv_proj.bias", ".query_key_value.bias", ".Wqkv.bias", ".kv_a_proj_with_mqa.bias"}},
    {"attention_out_bias", {".o_proj.bias"}},
    {"mlp_bias", {".up_proj.bias", ".gate_up_proj.bias", ".Wi.bias"}},
    {"use_bias|enable_bias|bias",
     {".q_proj.bias", ".query_key_value.bias", ".wqkv.bias", ".mixer.in_proj.bias"}},
    {"lm_head_bias", {"lm_head.bias"}},
};

/* Whether a bias is all zeros, as AutoGPTQ writes for every layer. */
static bool is_zeros(const tensor_view *t) {
    const uint8_t *bytes = t->data;
    size_t i = 0;
    while (i < t->n_bytes && bytes[i] == 0) {
        i++;
    }
    return i == t->n_bytes;
}

/* The first tensor of the text model with one of the endings; NULL: none. zeros: include
 * tensors that are all zeros. */
static const char *find_end(const model_file *f, const char *root, const bias_key *k, bool zeros) {
    for (int32_t i = 0; i < model_file_n_tensors(f); i++) {
        const char *name = model_file_tensor(f, i)->name;
        bool is_meant = (text_prefix(root) == 0 || strncmp(name, root, strlen(root)) == 0) &&
                        (zeros || !is_zeros(model_file_tensor(f, i)));
        for (size_t e = 0; is_meant && e < sizeof k->ends / sizeof *k->ends && k->ends[e] != NULL; e++) {
            if (str_ends(str_of(name), k->ends[e])) {
                return name;
            }
        }
    }
    return NULL;
}

/* Classes for which attention_bias has no meaning. */
static bool has_no_attention_bias(const config *c) {
    static const char *const classes[] = {"Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "MistralForCausalLM",
                                          "Ministral3ForCausalLM", "MixtralForCausalLM"};
    bool found = false;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        found = found || config_is(c, classes[i]);
    }
    return found;
}

quire_err biases_check(const config *c, const arch_names *names) {
    for (size_t i = 0; !c->is_gguf && i < sizeof keys / sizeof *keys; i++) {
        bool says = false;
        const char *key = i == 0 && has_no_attention_bias(c) ? "qkv_bias|use_qkv_bias" : keys[i].key;
        if (!config_has(c, NULL, key)) {
            continue;
        }
        TRY(config_bool(c, NULL, key, &says));
        const char *found = find_end(c->f, loader_root(c->f, names), &keys[i], says);
        char what[240];
        (void)snprintf(what, sizeof what,
                       says ? "true, but the file has no tensor named ..%.60s: it is incomplete"
                            : "false, but the file has %.160s",
                       says            ? keys[i].ends[0]
                       : found != NULL ? found
                                       : "");
        if (!(says == (found != NULL))) {
            TRY(config_bad_at(c, NULL, key, what));
        }
    }
    return QUIRE_OK;
}

/* Apertus: arXiv:2509.14233: norms of queries and keys, and ungated xIELU with parameters
 * per layer. */
#include <math.h>
#include <stdio.h>

#include "core/quant.h"
#include "model/architectures.h"

static const arch_names apertus_names = {
    .hf = {[W_ATTN_NORM] = "model.layers.%d.attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.feedforward_layernorm"},
};

/* Reads a parameter of a layer's activation, which checkpoints store as a tensor. */
static quire_err apertus_read_number(const config *c, int32_t layer, const char *name, bool needed,
                                     float *out) {
    char full[160];
    const char *root = loader_root(c->f, &apertus_names);
    (void)snprintf(full, sizeof full, "%slayers.%d.mlp.act_fn.%s", root, (int)layer, name);
    const tensor_view *t = model_file_find(c->f, full);
    int64_t n = 1;
    for (int32_t i = 0; t != NULL && i < t->n_dims; i++) {
        n = t->dims[i] == 1 ? n : 0;
    }
    if (t == NULL) {
        return needed ? config_bad(c, full, "is missing: the file is incomplete") : QUIRE_OK;
    }
    if (n != 1 || dtype_is_quantised(t->type) || quant_dequantise(t->type, t->data, 1, out) != QUIRE_OK ||
        !isfinite(*out)) {
        return config_bad(c, full, "must be one finite number");
    }
    return QUIRE_OK;
}

/* The same in a GGUF file: one number for all layers, or a list. */
static quire_err apertus_read_list(const config *c, const char *key, bool needed, int32_t n_layers,
                                   float *out) {
    size_t n = 0;
    quire_err e = model_file_f32(c->f, key, out);
    if (e == QUIRE_OK) {
        n = 1;
    } else if (e != QUIRE_NOT_FOUND) {
        e = model_file_f32s(c->f, key, out, (size_t)n_layers, &n);
    }
    if (e == QUIRE_NOT_FOUND) {
        return needed ? config_bad(c, key, "is missing from the metadata") : QUIRE_OK;
    }
    for (int32_t i = 1; n == 1 && i < n_layers; i++) {
        out[i] = out[0];
    }
    bool fits = e == QUIRE_OK && (n == 1 || n == (size_t)n_layers);
    for (int32_t i = 0; fits && i < n_layers; i++) {
        fits = isfinite(out[i]);
    }
    return fits ? QUIRE_OK : config_bad(c, key, "must have one finite number for each layer");
}

static float apertus_softplus(float x) {
    return (float)(fmax((double)x, 0.0) + log1p(exp(-fabs((double)x))));
}

static quire_err apertus_read_activation(const config *c, model_desc *d) {
    float lists[4][DESC_MAX_LAYERS];
    static const char *const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    static const char *const names[] = {"alpha_p", "alpha_n", "beta", "eps"};
    for (int32_t i = 0; i < d->n_layers; i++) {
        lists[2][i] = 0.5f;
        lists[3][i] = -1e-6f;
    }
    for (int k = 0; k < 4; k++) {
        if (c->is_gguf) {
            TRY(apertus_read_list(c, keys[k], k < 2, d->n_layers, lists[k]));
        }
        for (int32_t i = 0; !c->is_gguf && i < d->n_layers; i++) {
            TRY(apertus_read_number(c, i, names[k], k < 2, &lists[k][i]));
        }
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].xielu = (xielu_desc){.positive = apertus_softplus(lists[0][i]),
                                          .negative = lists[2][i] + apertus_softplus(lists[1][i]),
                                          .linear = lists[2][i],
                                          .eps = lists[3][i]};
    }
    return QUIRE_OK;
}

/* Uses Llama 3's scaling if config.json has none. */
static quire_err apertus_read_rope(const config *c, model_desc *d) {
    rope_desc r = config_plain_rope(c, d);
    r.pairs = ROPE_HALVES;
    TRY(config_rope(c, NULL, d, &r));
    if (!c->is_gguf && !config_has(c, NULL,
                                   "rope_parameters.rope_type|rope_parameters.type|rope_scaling.rope_type|"
                                   "rope_scaling.type|rope_parameters.rope_theta")) {
        r.kind = ROPE_LLAMA3;
        r.factor = 8.0f;
        r.original_positions = 8192;
    }
    return config_add_rope(c, d, &r);
}

static quire_err describe_apertus(const config *c, model_desc *d) {
    decoder_shape s = {.own_activation = "xielu"};
    d->activation = ACT_XIELU;
    TRY(config_decoder(c, &s, d));
    d->ungated = true;
    d->attend.qk_norm = QK_NORM_HEAD;
    TRY(apertus_read_rope(c, d));
    return d->activation == ACT_XIELU ? apertus_read_activation(c, d) : QUIRE_OK;
}

const arch apertus_archs[] = {
    {{"apertus"}, {"ApertusForCausalLM"}, &apertus_names, .describe = describe_apertus},
    {.describe = NULL},
};

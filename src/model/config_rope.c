/* Rotary embedding and its scaling. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"

rope_desc config_plain_rope(const config *c, const model_desc *d) {
    assert(c != NULL);
    float usual = c->is_gguf ? 0.0f : published_of(d->architecture)->theta;
    return (rope_desc){.kind = ROPE_PLAIN,
                       .pairs = c->is_gguf ? ROPE_NEIGHBOURS : ROPE_HALVES,
                       .n_dims = d->caches[0].d_key,
                       .theta = usual > 0.0f ? usual : 10000.0f,
                       .factor = 1.0f,
                       .low_freq_factor = 1.0f,
                       .high_freq_factor = 4.0f,
                       .beta_fast = 32.0f,
                       .beta_slow = 1.0f,
                       .truncate = true,
                       .original_positions = d->max_positions};
}

quire_err config_add_rope(const config *c, model_desc *d, const rope_desc *r) {
    assert(d != NULL);
    if (d->n_ropes == DESC_MAX_ROPES) {
        return config_unsupported(c, "too many rotary tables");
    }
    d->ropes[d->n_ropes] = *r;
    for (int32_t i = 0; i < d->n_layers; i++) {
        d->layers[i].rope = (int16_t)d->n_ropes;
    }
    d->n_ropes++;
    return QUIRE_OK;
}

static quire_err unknown_scaling(const config *c, str type) {
    return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: rotary scaling \"%.*s\" is not supported",
                   model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
}

/* The factor by which YaRN changes the temperature of attention (Peng et al. 2023,
 * arXiv:2309.00071). */
static float yarn_mscale(float factor, float mscale) {
    return factor <= 1.0f ? 1.0f : 0.1f * mscale * logf(factor) + 1.0f;
}

/* ---- config.json ---- */

/* An object of config.json that describes a rotary table. */
typedef struct scaling {
    const config *c;
    const char *object;
    char key[192];
} scaling;

static const char *key_of(scaling *s, const char *name) {
    snprintf(s->key, sizeof s->key, "%s.%s", s->object, name);
    return s->key;
}

/* Finds the scaling's name and the object with its numbers, in the old or new format. */
static quire_err find_scaling(scaling *s, str *type) {
    static const char *const objects[] = {"rope_parameters", "rope_scaling"};
    for (int o = 0; o < 2 && s->object == NULL; o++) {
        char key[64];
        snprintf(key, sizeof key, "%s.rope_type|%s.type", objects[o], objects[o]);
        TRY(config_str(s->c, NULL, key, type));
        s->object = type->n > 0 ? objects[o] : NULL;
    }
    if (s->object == NULL) {
        s->object = objects[0];
    } else {
        TRY(config_str(s->c, NULL, key_of(s, "type"), type));
        TRY(config_str(s->c, NULL, key_of(s, "rope_type"), type));
    }
    *type = type->n > 0 ? *type : str_of("default");
    return QUIRE_OK;
}

static quire_err read_factors(const config *c, const char *key, int32_t n_dims,
                              float out[DESC_MAX_HEAD / 2]) {
    size_t length = 0, n = (size_t)(n_dims / 2);
    if (n_dims > DESC_MAX_HEAD) {
        return config_bad(c, key, "is for more rotary dimensions than a head can have, 512");
    }
    TRY(config_f32s(c, key, out, n, &length));
    return length == n ? QUIRE_OK
                       : config_bad(c, key, "must hold one factor for each pair of rotary dimensions");
}

/* longrope: two sets of factors, and the length up to which the short ones apply. The
 * factor is the ratio of the lengths. */
static quire_err read_longrope(scaling *s, const model_desc *d, rope_desc *r) {
    TRY(read_factors(s->c, key_of(s, "short_factor"), r->n_dims, r->factors));
    TRY(read_factors(s->c, key_of(s, "long_factor"), r->n_dims, r->long_factors));
    if (r->original_positions > 0 && r->factor == 1.0f) {
        r->factor = (float)d->max_positions / (float)r->original_positions;
    }
    TRY(config_f32_or_none(s->c, NULL, key_of(s, "long_mscale"), &r->attention_factor));
    return QUIRE_OK;
}

/* proportional: frequencies as if the whole head rotated, though only its first part
 * does. A divisor of 1e30 stops a pair from rotating, as in GGUF files. */
static quire_err read_proportional(const config *c, float rotary, rope_desc *r) {
    int32_t n_pairs = r->n_dims / 2, n_rotary = (int32_t)(rotary * (float)r->n_dims / 2.0f);
    if (r->n_dims > DESC_MAX_HEAD) {
        return config_bad(c, "the head size", "is too large for rotary embedding");
    }
    r->kind = r->factor != 1.0f ? ROPE_LINEAR : ROPE_PLAIN;
    r->has_factors = true;
    for (int32_t i = 0; i < n_pairs; i++) {
        r->factors[i] = i < n_rotary ? 1.0f : 1e30f;
    }
    return QUIRE_OK;
}

static quire_err read_yarn_scale(scaling *s, rope_desc *r) {
    float mscale = 0, mscale_all = 0;
    TRY(config_f32(s->c, NULL, key_of(s, "mscale"), &mscale));
    TRY(config_f32(s->c, NULL, key_of(s, "mscale_all_dim"), &mscale_all));
    if (r->attention_factor == 0 && mscale > 0 && mscale_all > 0) {
        r->attention_factor = yarn_mscale(r->factor, mscale) / yarn_mscale(r->factor, mscale_all);
    }
    return QUIRE_OK;
}

/* Checks for numbers that a scaling requires. If YaRN's factor is null, it is the ratio
 * of the lengths. */
static quire_err need_numbers(scaling *s, const model_desc *d, rope_desc *r) {
    static const char *const needed[] = {"factor", "low_freq_factor", "high_freq_factor",
                                         "original_max_position_embeddings"};
    bool has_ratio =
        r->kind == ROPE_YARN && config_is_null(s->c, key_of(s, "factor")) && r->original_positions > 0;
    int n = r->kind == ROPE_LLAMA3                                                  ? 4
            : r->kind == ROPE_LINEAR || r->kind == ROPE_NTK || r->kind == ROPE_YARN ? 1
                                                                                    : 0;
    for (int i = has_ratio ? 1 : 0; i < n; i++) {
        bool is_length = i == 3 && config_has(s->c, NULL, needed[i]);
        if (!is_length && !config_has(s->c, NULL, key_of(s, needed[i]))) {
            return config_bad(s->c, s->key, "is missing from the metadata");
        }
    }
    r->factor = has_ratio ? (float)d->max_positions / (float)r->original_positions : r->factor;
    return QUIRE_OK;
}

static quire_err rope_hf(const config *c, const char *object, const model_desc *d, rope_desc *r) {
    static const char *const objects[] = {"rope_parameters", "rope_parameters.full_attention",
                                          "rope_parameters.sliding_attention", "rope_scaling"};
    scaling s = {.c = c, .object = object};
    bool by_type = object != NULL;
    str type = {0};
    float width = fmaxf((float)r->n_dims, (float)d->caches[0].d_key), usual = (float)r->n_dims / width,
          rotary = usual;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        TRY(config_object(c, objects[i]));
    }
    TRY(find_scaling(&s, &type));
    /* it has its own base */
    bool is_local = by_type && strcmp(object, "rope_parameters.sliding_attention") == 0;
    /* a list with a base per layer does not set it either; whoever passes an object has
     * read that list */
    bool is_apart =
        is_local ||
        (by_type && (config_has(c, NULL, key_of(&s, "rope_theta")) || config_is_list(c, "rope_theta")));
    if (!is_apart) {
        TRY(config_f32(c, NULL, "rope_theta", &r->theta));
    }
    TRY(config_f32(c, NULL,
                   object == NULL ? "rope_parameters.rope_theta|rope_scaling.rope_theta"
                                  : key_of(&s, "rope_theta"),
                   &r->theta));
    TRY(config_f32(c, NULL, "partial_rotary_factor|rotary_pct|rope_pct", &rotary));
    TRY(config_f32(c, NULL, key_of(&s, "partial_rotary_factor"), &rotary));
    if (!(rotary > 0.0f && rotary <= 1.0f)) {
        return config_bad(c, "partial_rotary_factor", "must be over 0 and at most 1");
    }
    TRY(config_f32(c, NULL, key_of(&s, "factor"), &r->factor));
    if (str_is(type, "proportional") && by_type) {
        return read_proportional(c, rotary, r);
    }
    r->n_dims = rotary == usual ? r->n_dims : (int32_t)(width * rotary);
    TRY(config_f32(c, NULL, key_of(&s, "low_freq_factor"), &r->low_freq_factor));
    TRY(config_f32(c, NULL, key_of(&s, "high_freq_factor"), &r->high_freq_factor));
    TRY(config_f32(c, NULL, key_of(&s, "beta_fast"), &r->beta_fast));
    TRY(config_f32(c, NULL, key_of(&s, "beta_slow"), &r->beta_slow));
    TRY(config_f32_or_none(c, NULL, key_of(&s, "attention_factor"), &r->attention_factor));
    if (!str_is(type, "dynamic")) { /* which counts from max_position_embeddings */
        TRY(config_i32(c, NULL, key_of(&s, "original_max_position_embeddings"), &r->original_positions));
    }
    TRY(config_bool(c, NULL, key_of(&s, "truncate"), &r->truncate));
    static const struct { /* mrope: positions on three axes, which coincide without images */
        const char *name;
        rope_kind kind;
    } kinds[] = {{"default", ROPE_PLAIN},     {"mrope", ROPE_PLAIN},   {"linear", ROPE_LINEAR},
                 {"dynamic", ROPE_NTK},       {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONGROPE}, {"su", ROPE_LONGROPE}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (str_is(type, kinds[i].name)) {
            /* Phi-3's first name for longrope */
            bool is_long = kinds[i].kind == ROPE_YARN && config_has(c, NULL, key_of(&s, "short_factor"));
            r->kind = is_long ? ROPE_LONGROPE : kinds[i].kind;
            bool has_length = r->kind == ROPE_LONGROPE || r->kind == ROPE_YARN || r->kind == ROPE_LLAMA3;
            if (has_length) {
                TRY(config_i32(c, NULL, "original_max_position_embeddings", &r->original_positions));
            }
            TRY(need_numbers(&s, d, r));
            return r->kind == ROPE_LONGROPE ? read_longrope(&s, d, r) : read_yarn_scale(&s, r);
        }
    }
    return unknown_scaling(c, type);
}

/* ---- GGUF ---- */

/* Reads a tensor of divisors, one per pair of rotary dimensions. *found: it exists. */
static quire_err read_factor_tensor(const config *c, const char *name, int32_t n, float *out, bool *found) {
    const tensor_view *t = model_file_find(c->f, name);
    *found = t != NULL;
    if (t == NULL) {
        return QUIRE_OK;
    }
    if (t->type != DTYPE_F32 || t->n_dims != 1 || t->dims[0] != n || n > DESC_MAX_HEAD / 2) {
        return config_bad(c, name, "must hold one F32 divisor for each pair of rotary dimensions");
    }
    memcpy(out, t->data, (size_t)n * sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        if (!(out[i] > 0) || !isfinite(out[i])) {
            return config_bad(c, name, "holds a divisor that is not a positive number");
        }
    }
    return QUIRE_OK;
}

/* rope_freqs.weight has Llama 3's scaling in GGUF, rope_factors_*.weight longrope's.
 * needed: the file says that it has them. */
static quire_err read_factor_tensors(const config *c, const model_desc *d, bool needed, rope_desc *r) {
    bool has_short, has_long;
    TRY(read_factor_tensor(c, "rope_freqs.weight", r->n_dims / 2, r->factors, &r->has_factors));
    TRY(read_factor_tensor(c, "rope_factors_long.weight", r->n_dims / 2, r->long_factors, &has_long));
    if (!has_long) {
        return needed ? config_bad(c, "rope_factors_long.weight",
                                   "is missing, but rope.scaling.type is longrope")
                      : QUIRE_OK;
    }
    TRY(read_factor_tensor(c, "rope_factors_short.weight", r->n_dims / 2, r->factors, &has_short));
    if (!has_short) {
        return config_bad(c, "rope_factors_short.weight",
                          "is missing, but rope_factors_long.weight is present");
    }
    r->kind = ROPE_LONGROPE;
    r->factor = r->original_positions > 0 ? (float)d->max_positions / (float)r->original_positions : 0.0f;
    return QUIRE_OK;
}

static quire_err read_gguf_scaling(const config *c, rope_desc *r, bool *longrope) {
    str type = {0};
    *longrope = false;
    TRY(config_str(c, "rope.scaling.type", NULL, &type));
    if (type.n == 0) {
        return QUIRE_OK;
    }
    *longrope = str_is(type, "longrope");
    if (!str_is(type, "none") && !str_is(type, "linear") && !str_is(type, "yarn") && !*longrope) {
        return unknown_scaling(c, type);
    }
    r->kind = str_is(type, "linear") ? ROPE_LINEAR : str_is(type, "yarn") ? ROPE_YARN : ROPE_PLAIN;
    return QUIRE_OK;
}

/* Reads the factor of all sines and cosines: yarn_attn_factor, or attn_factor times
 * YaRN's own factor, which a file with yarn_log_multiplier (config.json's mscale_all_dim
 * with an mscale of 1) cancels. 0: not given. */
static quire_err read_gguf_scale(const config *c, rope_desc *r) {
    float part = 0, whole = 0, taken_back = 0;
    TRY(config_f32(c, "rope.scaling.attn_factor", NULL, &part));
    TRY(config_f32(c, "rope.scaling.yarn_attn_factor", NULL, &whole));
    TRY(config_f32(c, "rope.scaling.yarn_log_multiplier", NULL, &taken_back));
    if (part < 0.0f || taken_back < 0.0f) {
        return config_bad(c, part < 0.0f ? "rope.scaling.attn_factor" : "rope.scaling.yarn_log_multiplier",
                          "must be 0 or more");
    }
    bool is_yarn = r->kind == ROPE_YARN;
    if (is_yarn && taken_back > 0.0f) {
        r->attention_factor =
            (part > 0.0f ? part : 1.0f) * yarn_mscale(r->factor, 1.0f) / yarn_mscale(r->factor, taken_back);
    } else {
        r->attention_factor = part > 0.0f ? part * (is_yarn ? yarn_mscale(r->factor, 1.0f) : 1.0f) : whole;
    }
    return QUIRE_OK;
}

static quire_err rope_gguf(const config *c, const model_desc *d, rope_desc *r) {
    bool longrope;
    TRY(config_f32(c, "rope.freq_base", NULL, &r->theta));
    TRY(config_i32(c, "rope.dimension_count", NULL, &r->n_dims));
    TRY(config_f32(c, "rope.scale_linear", NULL, &r->factor));
    TRY(config_f32(c, "rope.scaling.factor", NULL, &r->factor));
    r->factor = r->factor == 0.0f ? 1.0f : r->factor; /* files write 0 for "none" */
    r->kind = r->factor != 1.0f ? ROPE_LINEAR : ROPE_PLAIN;
    TRY(config_i32(c, "rope.scaling.original_context_length", NULL, &r->original_positions));
    TRY(config_f32(c, "rope.scaling.yarn_beta_fast", NULL, &r->beta_fast));
    TRY(config_f32(c, "rope.scaling.yarn_beta_slow", NULL, &r->beta_slow));
    TRY(config_bool(c, "rope.scaling.truncate", NULL, &r->truncate));
    TRY(read_gguf_scaling(c, r, &longrope));
    TRY(read_gguf_scale(c, r));
    return read_factor_tensors(c, d, longrope, r);
}

quire_err config_rope(const config *c, const char *object, const model_desc *d, rope_desc *r) {
    return c->is_gguf ? rope_gguf(c, d, r) : rope_hf(c, object, d, r);
}

quire_err config_rotary_dim(const config *c, const model_desc *d, int32_t *n_dims) {
    TRY(config_i32(c, NULL, "rotary_dim", n_dims));
    bool fits = *n_dims <= d->caches[0].d_key || !config_has(c, NULL, "rotary_dim");
    return fits ? QUIRE_OK : config_bad(c, "rotary_dim", "must be at most the head size");
}

quire_err config_rotary(const config *c, model_desc *d, rope_pairs hf, rope_pairs gguf, float fraction) {
    assert(c != NULL);
    rope_desc r = config_plain_rope(c, d);
    r.pairs = c->is_gguf ? gguf : hf;
    config_set_rows(c, hf, gguf);
    r.n_dims = (int32_t)((float)r.n_dims * fraction);
    TRY(config_rope(c, NULL, d, &r));
    return config_add_rope(c, d, &r);
}

quire_err config_llama(const config *c, rope_pairs hf, rope_pairs gguf, model_desc *d) {
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    return config_rotary(c, d, hf, gguf, 1.0f);
}

/* ---- a table for layers with windows, and another for those without ---- */

static quire_err read_window_rope(const config *c, const model_desc *d, bool has_window, rope_desc *r) {
    const char *object = has_window ? "rope_parameters.sliding_attention" : "rope_parameters.full_attention";
    char keys[160];
    if (c->is_gguf && has_window) {
        TRY(config_f32(c, "rope.freq_base", NULL, &r->theta));
        TRY(config_i32(c, "rope.dimension_count", NULL, &r->n_dims));
        TRY(config_f32(c, "rope.freq_base_swa", NULL, &r->theta));
        return config_i32(c, "rope.dimension_count_swa", NULL, &r->n_dims);
    }
    (void)snprintf(keys, sizeof keys, "%s.rope_type|%s.rope_theta", object, object);
    if (c->is_gguf || config_has(c, NULL, keys)) {
        return config_rope(c, object, d, r);
    }
    if (config_has(c, NULL,
                   "rope_parameters.full_attention.rope_type|"
                   "rope_parameters.full_attention.rope_theta|"
                   "rope_parameters.sliding_attention.rope_type|"
                   "rope_parameters.sliding_attention.rope_theta")) {
        return config_bad(c, object, "is missing from the metadata");
    }
    return has_window ? QUIRE_OK : config_rope(c, NULL, d, r);
}

quire_err config_rotary_by_window(const config *c, const rope_desc *full, const rope_desc *local,
                                  model_desc *d) {
    for (int has_window = 0; has_window < 2; has_window++) {
        rope_desc r = has_window ? *local : *full;
        bool is_none = config_is_null(c, has_window ? "rope_parameters.sliding_attention"
                                                    : "rope_parameters.full_attention"),
             is_used = false;
        for (int32_t i = 0; i < d->n_layers; i++) {
            if ((d->layers[i].window > 0) == (has_window == 1)) {
                d->layers[i].rope = is_none ? NO_ROPE : (int16_t)d->n_ropes;
                is_used = !is_none;
            }
        }
        if (is_used) {
            TRY(read_window_rope(c, d, has_window == 1, &r));
            if (d->n_ropes == DESC_MAX_ROPES) {
                return config_unsupported(c, "too many rotary tables");
            }
            d->ropes[d->n_ropes++] = r;
        }
    }
    return QUIRE_OK;
}

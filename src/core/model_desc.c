#include "core/model_desc.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

#define MAX_HEADS     4096
#define MAX_WIDTH     (1 << 17)
#define MAX_FF        (1 << 20)
#define MAX_VOCAB     (1 << 22)
#define MAX_POSITIONS (1 << 30)
#define MAX_EXPERTS   (1 << 14)
#define MAX_TAPS      16

/* ---- tables of layers ---- */

void desc_add_layer(model_desc *d, layer_desc l, const cache_desc *c) {
    assert(d != NULL);
    l.caches[CACHE_ATTENTION] = desc_add_cache(d, c);
    d->layers[d->n_layers++] = l;
}

int16_t desc_add_cache(model_desc *d, const cache_desc *c) {
    assert(d != NULL && c != NULL);
    d->caches[d->n_caches] = *c;
    return (int16_t)d->n_caches++;
}

model_desc desc_plain(int32_t n_layers, int32_t n_heads, int32_t n_kv_heads, int32_t d_head, int32_t d_ff) {
    model_desc d = {.bos = -1, .n_ropes = 1};
    cache_desc c = {.kind = LAYER_FULL, .n_kv_heads = n_kv_heads, .d_key = d_head, .d_value = d_head};
    for (int32_t i = 0; i < n_layers && i < DESC_MAX_LAYERS; i++) {
        desc_add_layer(&d, (layer_desc){.caches = NO_CACHES, .n_heads = n_heads, .d_ff = d_ff}, &c);
    }
    return d;
}

/* ---- end tokens ---- */

void desc_add_eos(model_desc *d, int64_t id) {
    bool is_new = id >= 0 && id < d->n_vocab && d->n_eos < DESC_MAX_EOS;
    for (int32_t i = 0; i < d->n_eos; i++) {
        is_new = is_new && d->eos[i] != id;
    }
    if (is_new) {
        d->eos[d->n_eos++] = (int32_t)id;
    }
}

void desc_drop_eos(model_desc *d, int32_t id) {
    assert(d != NULL);
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_eos; i++) {
        if (d->eos[i] != id) {
            d->eos[n++] = d->eos[i];
        }
    }
    d->n_eos = n;
}

void desc_heads(const model_desc *d, int32_t *fewest, int32_t *most) {
    assert(d != NULL);
    *fewest = *most = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        int32_t n = d->layers[i].n_heads;
        *fewest = n > 0 && (*fewest == 0 || n < *fewest) ? n : *fewest;
        *most = n > *most ? n : *most;
    }
}

int32_t desc_widest_ff(const model_desc *d) {
    assert(d != NULL);
    int32_t widest = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        widest = d->layers[i].d_ff > widest ? d->layers[i].d_ff : widest;
    }
    return widest;
}

bool desc_scales_by_length(const model_desc *d) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_ropes; i++) {
        if (d->ropes[i].kind == ROPE_NTK || d->ropes[i].kind == ROPE_LONGROPE) {
            return true;
        }
    }
    return false;
}

bool desc_gives_tokens(const model_desc *d) {
    return !d->no_head && !d->two_sided;
}

int32_t desc_pooled_width(const model_desc *d) {
    assert(d != NULL);
    int32_t width = d->d_model;
    for (int32_t i = 0; i < d->pooling.n_steps; i++) {
        width = d->pooling.steps[i].kind == POOLED_DENSE ? d->pooling.steps[i].n_out : width;
    }
    return width;
}

const layer_desc *desc_attention_layer(const model_desc *d) {
    assert(d != NULL);
    for (int32_t i = 0; i < d->n_layers; i++) {
        if (d->layers[i].n_heads > 0) {
            return &d->layers[i];
        }
    }
    return NULL;
}

/* ---- checks ---- */

static quire_err check_count(const char *name, int32_t v, int32_t max, quire_error *err) {
    if (v < 1 || v > max) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%s is %d; this build supports 1 to %d", name, v, max);
    }
    return QUIRE_OK;
}

static quire_err check_positive(const char *name, float v, quire_error *err) {
    if (!isfinite(v) || v <= 0.0f) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s is %g; it must be a number over 0", name, (double)v);
    }
    return QUIRE_OK;
}

static quire_err check_shape(const model_desc *d, quire_error *err) {
    TRY(check_count("the number of layers", d->n_layers, DESC_MAX_LAYERS, err));
    TRY(check_count("the number of caches", d->n_caches, DESC_MAX_CACHES, err));
    TRY(check_count("the hidden size", d->d_model, MAX_WIDTH, err));
    TRY(check_count("the vocabulary size", d->n_vocab, MAX_VOCAB, err));
    if (d->embed.width != 0) {
        TRY(check_count("the width of embeddings", d->embed.positions ? d->embed.width : 0, MAX_WIDTH, err));
    }
    return check_count("the number of positions", d->max_positions, MAX_POSITIONS, err);
}

static quire_err check_rope_scaling(const rope_desc *r, quire_error *err) {
    if (r->kind > ROPE_PLAIN) {
        TRY(check_positive("the rotary scaling factor", r->factor, err));
    }
    if (r->kind == ROPE_LLAMA3 || r->kind == ROPE_YARN || r->kind == ROPE_LONGROPE) {
        TRY(check_count("the rotary scaling's original number of positions", r->original_positions,
                        MAX_POSITIONS, err));
    }
    if (r->kind == ROPE_LLAMA3) {
        TRY(check_positive("low_freq_factor", r->low_freq_factor, err));
        TRY(check_positive("high_freq_factor", r->high_freq_factor, err));
        if (r->high_freq_factor < r->low_freq_factor) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "high_freq_factor is %g; it must be at least low_freq_factor, %g",
                           (double)r->high_freq_factor, (double)r->low_freq_factor);
        }
    }
    if (r->kind == ROPE_YARN) {
        TRY(check_positive("beta_fast", r->beta_fast, err));
        TRY(check_positive("beta_slow", r->beta_slow, err));
    }
    if (r->kind == ROPE_YARN || r->kind == ROPE_LONGROPE) {
        if (!isfinite(r->attention_factor) || r->attention_factor < 0.0f) {
            return err_set(err, QUIRE_BAD_FILE, -1, "the rotary attention factor is %g; it must be 0 or more",
                           (double)r->attention_factor);
        }
    }
    return QUIRE_OK;
}

static quire_err check_rope(const rope_desc *r, quire_error *err) {
    if ((unsigned)r->kind > ROPE_LONGROPE || (unsigned)r->pairs > ROPE_NEIGHBOURS) {
        return err_set(err, QUIRE_INVALID, -1, "unknown kind of rotary embedding");
    }
    if (r->kind == ROPE_NONE) {
        return QUIRE_OK;
    }
    if (r->n_dims < 2 || r->n_dims > DESC_MAX_HEAD || r->n_dims % 2 != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%d rotary dimensions; must be an even number from 2 to the head size", r->n_dims);
    }
    TRY(check_positive("the rotary base", r->theta, err));
    TRY(check_rope_scaling(r, err));
    for (int32_t i = 0; r->has_factors && i < r->n_dims / 2; i++) {
        TRY(check_positive("a rotary frequency factor", r->factors[i], err));
    }
    for (int32_t i = 0; r->kind == ROPE_LONGROPE && i < r->n_dims / 2; i++) {
        TRY(check_positive("a long rotary frequency factor", r->long_factors[i], err));
    }
    return QUIRE_OK;
}

static quire_err check_ropes(const model_desc *d, quire_error *err) {
    if (d->n_ropes < 0 || d->n_ropes > DESC_MAX_ROPES) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%d rotary tables; this build supports up to %d",
                       d->n_ropes, DESC_MAX_ROPES);
    }
    for (int32_t i = 0; i < d->n_ropes; i++) {
        TRY(check_rope(&d->ropes[i], err));
    }
    return QUIRE_OK;
}

static bool holds_heads(const cache_desc *c) {
    return c->kind == LAYER_FULL || c->kind == LAYER_WINDOW;
}

static quire_err check_cache(const cache_desc *c, int32_t i, quire_error *err) {
    if ((unsigned)c->kind > LAYER_STATE) {
        return err_set(err, QUIRE_INVALID, -1, "cache %d has an unknown kind", i);
    }
    if (holds_heads(c)) {
        TRY(check_count("the number of key-value heads", c->n_kv_heads, MAX_HEADS, err));
        TRY(check_count("the head size", c->d_key, DESC_MAX_HEAD, err));
        TRY(check_count("the head size of values", c->d_value, DESC_MAX_HEAD, err));
        if (c->d_key % 2 != 0 || c->d_value % 2 != 0) {
            return err_set(err, QUIRE_UNSUPPORTED, -1, "the head size is %d; it must be even",
                           c->d_key % 2 != 0 ? c->d_key : c->d_value);
        }
    }
    if (c->kind == LAYER_WINDOW && c->window < 1) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "a layer attends to a window of %d tokens; it must be 1 or more", c->window);
    }
    if (c->kind == LAYER_LATENT) {
        TRY(check_count("the latent size", c->d_latent, DESC_MAX_LATENT, err));
    }
    if (c->kind == LAYER_STATE &&
        (c->n_units < 1 || c->unit_bytes < 1 || c->unit_bytes > DESC_MAX_UNIT_BYTES ||
         c->unit_bytes > DESC_MAX_STATE_BYTES / c->n_units)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "a layer keeps a state of %d times %lld bytes; this build supports 1 to %lld bytes",
                       c->n_units, (long long)c->unit_bytes, (long long)DESC_MAX_STATE_BYTES);
    }
    return QUIRE_OK;
}

/* Checks the widths of latent attention. */
static quire_err check_latent(const model_desc *d, const layer_desc *l, const cache_desc *c,
                              quire_error *err) {
    const latent_desc *m = &d->latent;
    TRY(check_count("the rank of the queries' latent", m->q_rank > 0 ? m->q_rank : m->q_rank + 1, MAX_WIDTH,
                    err));
    TRY(check_count("the rank of keys and values", m->rank, DESC_MAX_LATENT, err));
    TRY(check_count("the width of a head without positions", m->d_nope, DESC_MAX_HEAD, err));
    TRY(check_count("the rotary width of a head", m->d_rope > 0 || !m->rotary_folds ? m->d_rope : 1,
                    DESC_MAX_HEAD, err));
    TRY(check_count("the head size of values", m->d_value, DESC_MAX_HEAD, err));
    if (c->d_latent != m->rank + desc_rotary_part(d, l)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "a latent of %d elements; its rank and rotary part have %d together", c->d_latent,
                       m->rank + desc_rotary_part(d, l));
    }
    if (l->rope >= 0 && d->ropes[l->rope].kind != ROPE_NONE && d->ropes[l->rope].n_dims > m->d_rope) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%d rotary dimensions in a head whose rotary part has only %d",
                       d->ropes[l->rope].n_dims, m->d_rope);
    }
    return QUIRE_OK;
}

static quire_err check_chosen(const model_desc *d, quire_error *err) {
    const index_desc *x = &d->index;
    if (x->n_best == 0) {
        return QUIRE_OK;
    }
    TRY(check_count("the number of keys that a row selects", x->n_best, MAX_POSITIONS / 1024, err));
    TRY(check_count("the number of index heads", x->n_heads, MAX_HEADS, err));
    TRY(check_count("the width of index heads", x->d_head, DESC_MAX_HEAD, err));
    const int32_t ropes[] = {x->rope, x->key_rope};
    for (int i = 0; i < 2; i++) {
        if (ropes[i] < NO_ROPE || ropes[i] >= d->n_ropes ||
            (ropes[i] >= 0 && d->ropes[ropes[i]].n_dims > x->d_head)) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "index heads have %d elements, too few for their rotary table", x->d_head);
        }
    }
    if (x->kind == CHOOSE_KEYS) {
        return QUIRE_OK;
    }
    TRY(check_count("the number of keys of a block", x->block, x->kind == CHOOSE_POOLS ? MAX_TAPS : 65536,
                    err));
    if (x->n_best % x->block != 0 || x->n_own < 0 || (x->kind == CHOOSE_POOLS && x->block < 2)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%d selected keys cannot be divided into blocks of %d",
                       x->n_best, x->block);
    }
    return QUIRE_OK;
}

/* Checks the heads of a layer that attends, and its rotary table. */
static quire_err check_heads(const model_desc *d, const layer_desc *l, int32_t i, quire_error *err) {
    TRY(check_count("the number of attention heads", l->n_heads, MAX_HEADS, err));
    const cache_desc *c = l->caches[0] >= 0 ? &d->caches[l->caches[0]] : NULL;
    if (c == NULL || c->kind == LAYER_STATE) {
        return err_set(err, QUIRE_INVALID, -1, "layer %d attends to no cache", i);
    }
    if (c->kind == LAYER_LATENT) {
        TRY(check_latent(d, l, c, err));
    }
    if (holds_heads(c) && l->n_heads % c->n_kv_heads != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%d attention heads cannot share %d key-value heads evenly",
                       l->n_heads, c->n_kv_heads);
    }
    if (d->index.kind == CHOOSE_BLOCKS && l->caches[CACHE_SECOND] >= 0 && d->index.n_best > 0 &&
        d->index.n_heads != c->n_kv_heads) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%d index heads for %d key-value heads; the numbers must be equal", d->index.n_heads,
                       c->n_kv_heads);
    }
    if (l->rope >= 0 && holds_heads(c) && d->ropes[l->rope].kind != ROPE_NONE &&
        d->ropes[l->rope].n_dims > c->d_key) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%d rotary dimensions; must be an even number from 2 to the head size, %d",
                       d->ropes[l->rope].n_dims, c->d_key);
    }
    return QUIRE_OK;
}

static bool has_caches(const layer_desc *l) {
    for (int k = 0; k < LAYER_CACHES; k++) {
        if (l->caches[k] >= 0) {
            return true;
        }
    }
    return false;
}

static quire_err check_layer(const model_desc *d, int32_t i, quire_error *err) {
    const layer_desc *l = &d->layers[i];
    for (int k = 0; k < LAYER_CACHES; k++) {
        if (l->caches[k] < NO_CACHE || l->caches[k] >= d->n_caches) {
            return err_set(err, QUIRE_INVALID, -1, "layer %d names cache %d; the model has %d", i,
                           l->caches[k], d->n_caches);
        }
    }
    if (l->rope < NO_ROPE || l->rope >= d->n_ropes) {
        return err_set(err, QUIRE_INVALID, -1, "layer %d names rotary table %d; the model has %d", i, l->rope,
                       d->n_ropes);
    }
    if (l->window < 0 || l->chunk < 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "layer %d attends to a window of %d and chunks of %d tokens; they must be 0 or more",
                       i, l->window, l->chunk);
    }
    if (l->d_ff < 0 || l->d_ff > MAX_FF ||
        (l->d_ff == 0 && l->n_experts == 0 && l->n_heads == 0 && !has_caches(l))) {
        return check_count("the feed-forward size", l->d_ff, MAX_FF, err);
    }
    if (l->n_experts < 0 || l->n_experts > MAX_EXPERTS) {
        return check_count("the number of experts", l->n_experts, MAX_EXPERTS, err);
    }
    if (l->n_experts > 0) {
        TRY(check_count("the width of experts", d->moe.d_expert, MAX_FF, err));
        TRY(check_count("the width of shared experts", d->moe.d_shared > 0 ? d->moe.d_shared : 1, MAX_FF,
                        err));
    }
    return l->n_heads != 0 ? check_heads(d, l, i, err) : QUIRE_OK;
}

static quire_err model_desc_check_layers(const model_desc *d, quire_error *err) {
    for (int32_t i = 0; i < d->n_caches; i++) {
        TRY(check_cache(&d->caches[i], i, err));
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        TRY(check_layer(d, i, err));
    }
    return QUIRE_OK;
}

static quire_err check_recurrences(const model_desc *d, quire_error *err) {
    const delta_desc *r = &d->delta;
    if (d->conv.n_taps != 0) {
        TRY(check_count("the taps of a short convolution", d->conv.n_taps, MAX_TAPS, err));
    }
    if (r->n_heads == 0) {
        return QUIRE_OK;
    }
    TRY(check_count("the number of linear attention's value heads", r->n_heads, MAX_HEADS, err));
    TRY(check_count("the number of linear attention's key heads", r->n_key_heads, MAX_HEADS, err));
    TRY(check_count("the key size of linear attention", r->d_key, DESC_MAX_HEAD, err));
    TRY(check_count("the value size of linear attention", r->d_value, DESC_MAX_HEAD, err));
    if (r->n_heads % r->n_key_heads != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%d value heads of linear attention cannot share %d key heads evenly", r->n_heads,
                       r->n_key_heads);
    }
    if (r->n_taps != 0) {
        TRY(check_count("the taps of linear attention's convolutions", r->n_taps, MAX_TAPS, err));
    }
    if (!isfinite(r->lower) || r->lower > 0.0f || !isfinite(r->beta_scale) || r->beta_scale < 0.0f) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "the bound on linear attention's decay is %g; it must be negative, or 0 for none",
                       (double)r->lower);
    }
    return QUIRE_OK;
}

static quire_err check_tokens(const model_desc *d, quire_error *err) {
    if (d->n_eos < 0 || d->n_eos > DESC_MAX_EOS) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "%d end tokens; this build supports up to %d", d->n_eos,
                       DESC_MAX_EOS);
    }
    for (int32_t i = 0; i < d->n_eos; i++) {
        if (d->eos[i] < 0 || d->eos[i] >= d->n_vocab) {
            return err_set(err, QUIRE_BAD_FILE, -1, "end token %d is outside the vocabulary of %d", d->eos[i],
                           d->n_vocab);
        }
    }
    if (d->bos < -1 || d->bos >= d->n_vocab) {
        return err_set(err, QUIRE_BAD_FILE, -1, "begin token %d is outside the vocabulary of %d", d->bos,
                       d->n_vocab);
    }
    return QUIRE_OK;
}

quire_err desc_check(const model_desc *d, quire_error *err) {
    TRY(check_shape(d, err));
    if (!isfinite(d->norm_eps) || d->norm_eps < 0.0f || d->norm_eps >= 1.0f) {
        return err_set(err, QUIRE_BAD_FILE, -1, "the norm's epsilon is %g; it must be at least 0 and under 1",
                       (double)d->norm_eps);
    }
    if ((unsigned)d->activation >= N_ACTIVATIONS) {
        return err_set(err, QUIRE_INVALID, -1, "unknown activation function");
    }
    if (d->activation == ACT_XIELU && !d->ungated) {
        return err_set(err, QUIRE_UNSUPPORTED, -1, "xIELU after a gate is not supported");
    }
    TRY(check_ropes(d, err));
    TRY(check_chosen(d, err));
    TRY(model_desc_check_layers(d, err));
    TRY(check_recurrences(d, err));
    TRY(check_positive("the attention scale", d->attention_scale, err));
    if (d->attend.temperature != 0.0f || d->attend.temperature_power != 0.0f) {
        TRY(check_count("the length of the queries' temperature scale", d->attend.temperature_length,
                        INT32_MAX, err));
    }
    return check_tokens(d, err);
}

/* Parameters of Mamba's mixers. Gu and Dao 2023, arXiv:2312.00752; Dao and Gu 2024,
 * arXiv:2405.21060. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/packed.h"
#include "model/config.h"

/* more than any model has; products of two cannot overflow */
#define MAX_MAMBA_STATES (1 << 12)
#define MAX_MAMBA_HEADS  (1 << 12)
#define MAX_MAMBA_INNER  (1 << 17)

/* Whether config.json has "auto" instead of a number. */
static bool mamba_is_auto(const config *c, const char *hf) {
    str value = {0};
    return !c->is_gguf && model_file_str(c->f, hf, &value) == QUIRE_OK && str_is(value, "auto");
}

/* Sets the mixer's width from its ratio to the model's. */
static quire_err mamba_read_expand(const config *c, float expand, model_desc *d) {
    TRY(config_f32(c, NULL, "mamba_expand|expand", &expand));
    float width = floorf(expand * (float)d->d_model);
    d->mamba.n_inner = width >= 1.0f && width <= (float)MAX_MAMBA_INNER ? (int32_t)width : 0;
    return config_i32(c, "ssm.inner_size", NULL, &d->mamba.n_inner);
}

/* hf: the key of the width in config.json. */
static quire_err mamba_check_width(const config *c, const char *hf, const mamba_desc *m) {
    return m->n_inner >= 1 && m->n_inner <= MAX_MAMBA_INNER
               ? QUIRE_OK
               : config_bad_at(c, "ssm.inner_size", hf, "must give Mamba's mixer 1 to 131072 channels");
}

/* Reads what both versions have: states, taps, and the function after the convolution. */
static quire_err mamba_read_common(const config *c, model_desc *d) {
    const char *states = "state_size|mamba_d_state|ssm_state_size";
    mamba_desc *m = &d->mamba;
    model_desc own = {.activation = ACT_SILU};
    m->n_taps = 4;
    TRY(config_taps(c, "ssm.conv_kernel", "mamba_d_conv|conv_kernel", &m->n_taps));
    TRY(config_i32(c, "ssm.state_size", states, &m->n_states));
    TRY(config_check(c, "ssm.state_size", states, m->n_states, 1, MAX_MAMBA_STATES));
    TRY(config_activation(c, "mamba_hidden_act|hidden_act", &own));
    m->activation = own.activation;
    return QUIRE_OK;
}

quire_err config_mamba1(const config *c, model_desc *d, state_layers *s) {
    const char *rank = config_has(c, NULL, "mamba_dt_rank") ? "mamba_dt_rank" : "time_step_rank";
    const bool is_jamba = config_is(c, "JambaForCausalLM"); /* its intermediate_size has another meaning */
    mamba_desc *m = &d->mamba;
    m->n_states = 16;
    TRY(mamba_read_common(c, d));
    TRY(mamba_read_expand(c, 2.0f, d));
    if (!is_jamba) {
        TRY(config_i32(c, NULL, "intermediate_size", &m->n_inner));
    }
    TRY(mamba_check_width(c, is_jamba ? "mamba_expand" : "intermediate_size|expand", m));
    m->step_rank = d->d_model / 16 + (d->d_model % 16 != 0);
    if (!mamba_is_auto(c, rank)) {
        TRY(config_i32(c, "ssm.time_step_rank", rank, &m->step_rank));
    }
    TRY(config_check(c, "ssm.time_step_rank", rank, m->step_rank, 1, MAX_MAMBA_INNER));
    s->state = scan_cache(m->n_inner, m->n_states);
    s->conv = conv_cache(conv_units(m->n_inner), m->n_taps);
    return QUIRE_OK;
}

/* Reads the limits of the time step; config.json may have no upper one. */
static quire_err mamba_read_limits(const config *c, mamba_desc *m) {
    float limits[2];
    size_t n;
    TRY(config_f32s(c, "time_step_limit", limits, 2, &n));
    if (n == 0) {
        return QUIRE_OK;
    }
    if (n != 2 || !(limits[0] >= 0.0f) || !(limits[1] > 0.0f) || limits[1] < limits[0]) {
        return config_bad(c, "time_step_limit", "must be two numbers of at least 0, in ascending order");
    }
    const bool is_open = limits[0] == 0.0f && isinf(limits[1]);
    m->step_least = limits[0];
    m->step_most = is_open ? 0.0f : limits[1];
    return QUIRE_OK;
}

/* Reads the heads and their width, whose product is the mixer's width. */
static quire_err mamba_read_heads(const config *c, float expand, int32_t d_head, model_desc *d) {
    const char *heads = "mamba_n_heads|mamba_num_heads|n_mamba_heads|num_heads";
    const char *width = "mamba_d_head|mamba_head_dim|mamba_headdim", *own = "head_dim";
    mamba_desc *m = &d->mamba;
    TRY(config_i32(c, "ssm.time_step_rank", heads, &m->n_heads));
    TRY(config_check(c, "ssm.time_step_rank", heads, m->n_heads, 1, MAX_MAMBA_HEADS));
    if (!mamba_is_auto(c, "mamba_d_head")) {
        TRY(config_i32(c, NULL, width, &d_head));
    }
    if (config_is(c, "Mamba2ForCausalLM")) {
        TRY(config_i32(c, NULL, own, &d_head));
    }
    if (c->is_gguf || (expand > 0.0f && m->n_inner == 0)) {
        TRY(mamba_read_expand(c, expand, d));
    } else if (expand == 0.0f) {
        m->n_inner = d_head <= MAX_MAMBA_INNER / m->n_heads ? m->n_heads * d_head : 0;
    }
    TRY(mamba_check_width(c, expand > 0.0f ? "mamba_d_ssm|mamba_expand|expand" : width, m));
    d_head = d_head == 0 || c->is_gguf ? m->n_inner / m->n_heads : d_head;
    return (int64_t)m->n_heads * d_head == m->n_inner
               ? QUIRE_OK
               : err_set(c->err, QUIRE_BAD_FILE, -1,
                         "%s: %d Mamba heads of %d channels do not make up its width of %d",
                         model_file_path(c->f), (int)m->n_heads, (int)d_head, (int)m->n_inner);
}

quire_err config_mamba2(const config *c, float expand, int32_t d_head, model_desc *d, state_layers *s) {
    const char *groups = "mamba_n_groups|mamba_ngroups|n_groups";
    mamba_desc *m = &d->mamba;
    TRY(mamba_read_common(c, d));
    TRY(mamba_read_heads(c, expand, d_head, d));
    TRY(config_i32(c, "ssm.group_count", groups, &m->n_groups));
    TRY(config_check(c, "ssm.group_count", groups, m->n_groups, 1, m->n_heads));
    if (m->n_heads % m->n_groups != 0) {
        return config_bad_at(c, "ssm.group_count", groups, "must divide the heads evenly");
    }
    TRY(mamba_read_limits(c, m));
    const int32_t n = m->n_groups * m->n_states;
    s->state = linear_attention_cache(m->n_heads, m->n_states, m->n_inner / m->n_heads);
    s->conv = conv_cache(conv_units(m->n_inner) + 2 * conv_units(n), m->n_taps);
    return QUIRE_OK;
}

bool config_has_mamba(const config *c, int32_t layer) {
    assert(c != NULL);
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.ssm_a", (int)layer);
    return c->is_gguf && model_file_find(c->f, name) != NULL;
}

bool config_has_experts(const config *c, int32_t layer) {
    assert(c != NULL);
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight" PACKED_SUFFIX, (int)layer);
    const bool is_packed = c->is_gguf && model_file_find(c->f, name) != NULL;
    name[strlen(name) - strlen(PACKED_SUFFIX)] = 0;
    return is_packed || (c->is_gguf && model_file_find(c->f, name) != NULL);
}

/* ---- states ---- */

/* Layers that keep a state instead of keys and values, or besides them. */

quire_err config_set_states(const config *c, const state_layers *s, model_desc *d) {
    const cache_desc *own[LAYER_CACHES] = {[CACHE_STATE] = &s->state, [CACHE_CONV] = &s->conv};
    cache_desc attention[DESC_MAX_LAYERS];
    for (int32_t i = 0; i < d->n_layers; i++) {
        const int16_t at = d->layers[i].caches[CACHE_ATTENTION];
        attention[i] = at != NO_CACHE ? d->caches[at] : (cache_desc){0};
    }
    d->n_caches = 0;
    for (int32_t i = 0; i < d->n_layers; i++) {
        layer_desc *l = &d->layers[i];
        if (d->n_caches + LAYER_CACHES > DESC_MAX_CACHES) {
            return config_unsupported(c,
                                      "the layers have more states and caches than this build supports, 512");
        }
        if (s->attends[i]) {
            l->caches[CACHE_ATTENTION] = desc_add_cache(d, &attention[i]);
        } else {
            l->caches[CACHE_ATTENTION] = NO_CACHE;
            l->n_heads = l->window = l->chunk = 0;
            l->rope = NO_ROPE;
        }
        for (int k = CACHE_STATE; k <= CACHE_CONV; k++) {
            bool has = s->recurs[i] && own[k]->n_units > 0;
            l->caches[k] = has ? desc_add_cache(d, own[k]) : NO_CACHE;
        }
    }
    return QUIRE_OK;
}

quire_err config_state_types(const config *c, const model_desc *d, const char *recurrent, state_layers *s,
                             bool *found) {
    *found = config_has(c, NULL, "layer_types");
    for (int32_t i = 0; *found && i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        s->recurs[i] = str_is_one_of(type, recurrent);
        s->attends[i] = !s->recurs[i];
        s->has_window[i] = s->may_have_windows && str_is(type, "sliding_attention");
        bool is_full = str_is(type, "full_attention") || str_is(type, "attention") ||
                       (s->may_choose && str_is(type, "indexed_attention"));
        if (s->attends[i] && type.n > 0 && !is_full && !s->has_window[i]) {
            return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: a layer of type \"%.*s\" is not supported",
                           model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
    }
    return config_check_types(c, d, "layer_types");
}

quire_err config_taps(const config *c, const char *gguf, const char *hf, int32_t *n_taps) {
    TRY(config_i32(c, gguf, hf, n_taps));
    return config_check(c, gguf, hf, *n_taps, 2, CONV_MAX_TAPS);
}

/* Reads a number of linear attention, limited so that no product of two overflows. */
static quire_err read_small(const config *c, const char *gguf, const char *hf, int32_t most, int32_t *out) {
    TRY(config_i32(c, gguf, hf, out));
    return config_check(c, gguf, hf, *out, 1, most);
}

quire_err config_delta(const config *c, model_desc *d) {
    const int32_t most_heads = 4096;
    delta_desc *r = &d->delta;
    int32_t inner = 0;
    TRY(read_small(c, "ssm.time_step_rank", "linear_num_value_heads", most_heads, &r->n_heads));
    TRY(read_small(c, "ssm.group_count", "linear_num_key_heads", most_heads, &r->n_key_heads));
    TRY(read_small(c, "ssm.state_size", "linear_key_head_dim", DESC_MAX_HEAD, &r->d_key));
    TRY(config_i32(c, "ssm.inner_size", NULL, &inner));
    r->d_value = inner > 0 ? inner / r->n_heads : r->d_value;
    TRY(read_small(c, "ssm.inner_size", "linear_value_head_dim", c->is_gguf ? INT32_MAX : DESC_MAX_HEAD,
                   inner > 0 ? &inner : &r->d_value));
    if (r->d_value < 1 || r->d_value > DESC_MAX_HEAD) {
        return err_set(
            c->err, QUIRE_UNSUPPORTED, -1,
            "%s: ssm.inner_size %d over %d heads: values of %d elements; this build supports 1 to %d",
            model_file_path(c->f), (int)inner, (int)r->n_heads, (int)r->d_value, DESC_MAX_HEAD);
    }
    return config_taps(c, "ssm.conv_kernel", "linear_conv_kernel_dim", &r->n_taps);
}

void config_delta_caches(const model_desc *d, state_layers *s) {
    assert(s != NULL);
    const delta_desc *r = &d->delta;
    s->state = linear_attention_cache(r->n_heads, r->d_key, r->d_value);
    if (r->n_taps > 0) {
        s->conv = conv_cache(2 * conv_units(r->n_key_heads * r->d_key) + conv_units(r->n_heads * r->d_value),
                             r->n_taps);
    }
}

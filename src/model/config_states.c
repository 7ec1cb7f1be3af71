/* Layers that keep a state in place of keys and values, or beside them. */
#include <string.h>

#include "model/config.h"

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
            return config_unsupported(c, "the layers have more states and caches than this build keeps, 512");
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

/* Whether a text is one of alternatives with '|' between them. */
static bool state_type_is(str text, const char *names) {
    for (const char *at = names; text.n > 0; at++) {
        const size_t n = strcspn(at, "|");
        if (n == text.n && memcmp(at, text.p, n) == 0) {
            return true;
        }
        at += n;
        if (*at == 0) {
            break;
        }
    }
    return false;
}

quire_err config_state_types(const config *c, const model_desc *d, const char *recurrent, state_layers *s,
                             bool *found) {
    *found = config_has(c, NULL, "layer_types");
    for (int32_t i = 0; *found && i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        s->recurs[i] = state_type_is(type, recurrent);
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

/* A number of linear attention, small enough that any two multiply. */
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
            "%s: ssm.inner_size %d over %d heads: values of %d elements; this build computes 1 to %d",
            model_file_path(c->f), (int)inner, (int)r->n_heads, (int)r->d_value, DESC_MAX_HEAD);
    }
    return config_taps(c, "ssm.conv_kernel", "linear_conv_kernel_dim", &r->n_taps);
}

void config_delta_caches(const model_desc *d, state_layers *s) {
    const delta_desc *r = &d->delta;
    s->state = linear_attention_cache(r->n_heads, r->d_key, r->d_value);
    if (r->n_taps > 0) {
        s->conv = conv_cache(2 * conv_units(r->n_key_heads * r->d_key) + conv_units(r->n_heads * r->d_value),
                             r->n_taps);
    }
}

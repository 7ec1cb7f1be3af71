/* Which layers have windows. */
#include "model/config.h"

void config_set_window(model_desc *d, int32_t layer, int32_t window) {
    cache_desc *c = &d->caches[d->layers[layer].caches[0]];
    d->layers[layer].window = c->window = window;
    c->kind = window > 0 ? LAYER_WINDOW : LAYER_FULL;
}

quire_err config_window(const config *c, int32_t *window) {
    return config_i32_or_none(c, "attention.sliding_window", "sliding_window", window);
}

quire_err config_period(const config *c, const char *gguf, const char *hf, int32_t *period) {
    TRY(config_i32(c, gguf, hf, period));
    return *period > 0 || c->is_gguf ? QUIRE_OK : config_bad(c, hf, "must be at least 1");
}

quire_err config_window_on_all(const config *c, int32_t usual, model_desc *d) {
    int32_t window = c->is_gguf ? 0 : usual;
    TRY(config_window(c, &window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, window);
    }
    return QUIRE_OK;
}

static quire_err read_gguf_pattern(const config *c, const model_desc *d, int32_t *period, int32_t *full_at,
                                   bool *is_window, bool *found) {
    int32_t pattern[DESC_MAX_LAYERS];
    size_t n;
    TRY(config_i32s(c, "attention.sliding_window_pattern", NULL, pattern, DESC_MAX_LAYERS, &n));
    *found = n > 1 || (n == 1 && d->n_layers == 1);
    if (*found && n != (size_t)d->n_layers && n != (size_t)d->n_layers + (size_t)d->n_next_token_layers) {
        return config_bad(c, "attention.sliding_window_pattern",
                          "must be a number, or have one for each layer");
    }
    for (int32_t i = 0; *found && i < d->n_layers; i++) {
        is_window[i] = (size_t)i < n && pattern[i] != 0;
    }
    if (n == 1 && !*found) {
        *period = pattern[0];
        *full_at = pattern[0] - 1;
    }
    return QUIRE_OK;
}

/* config.json's "layer_types" must have a text for each layer, where it is there. */
static quire_err check_types(const config *c, const model_desc *d) {
    str last, behind;
    TRY(config_str_at(c, "layer_types", (size_t)d->n_layers - 1, &last));
    TRY(config_str_at(c, "layer_types", (size_t)d->n_layers, &behind));
    bool fits = !config_has(c, NULL, "layer_types") || (last.n > 0 && behind.n == 0);
    return fits ? QUIRE_OK : config_bad(c, "layer_types", "must have one text for each layer");
}

quire_err config_window_layers(const config *c, const model_desc *d, int32_t period, int32_t full_at,
                               bool *is_window) {
    bool found = false;
    TRY(read_gguf_pattern(c, d, &period, &full_at, is_window, &found));
    for (int32_t i = 0; !found && i < d->n_layers; i++) {
        str type;
        TRY(config_str_at(c, "layer_types", (size_t)i, &type));
        if (type.n == 0) {
            is_window[i] = period > 0 && i % period != full_at;
        } else if (str_is(type, "sliding_attention") || str_is(type, "full_attention")) {
            is_window[i] = str_is(type, "sliding_attention");
        } else {
            return err_set(c->err, QUIRE_UNSUPPORTED, -1, "%s: a layer of type \"%.*s\" is not supported",
                           model_file_path(c->f), (int)(type.n < 40 ? type.n : 40), type.p);
        }
    }
    return check_types(c, d);
}

quire_err config_windows(const config *c, int32_t window, int32_t period, int32_t full_at, model_desc *d) {
    bool is_window[DESC_MAX_LAYERS];
    TRY(config_window_layers(c, d, period, full_at, is_window));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, is_window[i] ? window : 0);
    }
    return QUIRE_OK;
}

quire_err config_check_two_sided(const config *c) {
    bool causal = false;
    TRY(config_bool(c, "attention.causal", NULL, &causal));
    return causal ? config_unsupported(c, "attention.causal true is not supported for an encoder") : QUIRE_OK;
}

/* MiMo V2 Flash: keys wider than values, of which a third rotates; windows on five of six
 * layers, which have twice as many KV heads, their own rotary table and sinks; a sigmoid
 * mixture. */
#include <math.h>
#include <stdio.h>

#include "model/architectures.h"

static const arch_names mimo_names = {
    .hf = {[W_SINKS] = "model.layers.%d.self_attn.attention_sink_bias|model.layers.%d.self_attn.sinks"},
    .left_out = {"model.mtp"},
};

/* Reads the window. A checkpoint's "sliding_window_size" does not count the row itself,
 * transformers' key does. */
static quire_err mimo_read_window(const config *c, int32_t *window) {
    int32_t before = 0;
    *window = c->is_gguf ? 0 : 129;
    TRY(config_window(c, window));
    TRY(config_i32(c, NULL, "sliding_window_size", &before));
    if (before == INT32_MAX) {
        return config_bad(c, "sliding_window_size", "is too large");
    }
    *window = before > 0 ? before + 1 : *window;
    return QUIRE_OK;
}

/* Reads which layers have windows: "layer_types", a list of numbers, or by default all
 * but the first and every sixth. */
static quire_err mimo_read_windows(const config *c, model_desc *d) {
    int32_t window, listed[DESC_MAX_LAYERS];
    bool is_window[DESC_MAX_LAYERS], has_types = c->is_gguf || config_has(c, NULL, "layer_types");
    size_t n = 0;
    TRY(mimo_read_window(c, &window));
    TRY(config_window_layers(c, d, 6, 5, is_window));
    TRY(config_i32s(c, NULL, "hybrid_layer_pattern", listed, DESC_MAX_LAYERS, &n));
    if (n != 0 && n != (size_t)d->n_layers) {
        return config_bad(c, "hybrid_layer_pattern", "must have one number for each layer");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        bool usual = n > 0 ? listed[i] != 0 : is_window[i] && i > 0;
        config_set_window(d, i, (has_types ? is_window[i] : usual) ? window : 0);
    }
    return QUIRE_OK;
}

/* Reads what layers with windows have of their own. Their heads are as wide as the
 * others'. */
static quire_err mimo_read_heads(const config *c, model_desc *d) {
    static const char *const widths[] = {"swa_head_dim", "swa_v_head_dim"};
    const cache_desc first = d->caches[0];
    int32_t n_heads = d->layers[0].n_heads,
            n_kv = first.n_kv_heads <= INT32_MAX / 2 ? 2 * first.n_kv_heads : first.n_kv_heads;
    for (int k = 0; k < 2; k++) {
        const int32_t usual = k == 0 ? first.d_key : first.d_value;
        int32_t width = usual;
        TRY(config_i32(c, NULL, widths[k], &width));
        if (width != usual) {
            return config_bad(c, widths[k], "must equal the width of the other layers' heads");
        }
    }
    TRY(config_i32(c, NULL, "swa_num_attention_heads", &n_heads));
    TRY(config_i32(c, NULL, "swa_num_key_value_heads", &n_kv));
    if (n_heads < 1) {
        return config_bad(c, "swa_num_attention_heads", "must be at least 1");
    }
    for (int32_t i = 0; !c->is_gguf && i < d->n_layers; i++) {
        if (d->layers[i].window > 0) {
            d->layers[i].n_heads = n_heads;
            d->caches[d->layers[i].caches[0]].n_kv_heads = n_kv;
        }
    }
    return QUIRE_OK;
}

static quire_err mimo_read_sinks(const config *c, model_desc *d) {
    bool in_windows = true, in_full = false;
    TRY(config_bool(c, NULL, "add_swa_attention_sink_bias", &in_windows));
    TRY(config_bool(c, NULL, "add_full_attention_sink_bias", &in_full));
    if (in_full && !in_windows) {
        return config_unsupported(c, "add_full_attention_sink_bias true beside add_swa_attention_sink_bias "
                                     "false is not supported");
    }
    if (c->is_gguf) {
        for (int32_t i = 0; i < d->n_layers; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%d.attn_sinks.weight", (int)i);
            in_full = in_full || (d->layers[i].window == 0 && model_file_find(c->f, name) != NULL);
        }
    }
    d->attend.sinks = in_windows;
    d->attend.sinks_in_windows = !in_full;
    return QUIRE_OK;
}

/* If the number of rotating elements is odd, one more rotates, with the frequencies of
 * that number. */
static void mimo_round_up(rope_desc *r) {
    const int32_t n = r->n_dims;
    if (n % 2 == 0 || n < 0 || n >= DESC_MAX_HEAD) {
        return;
    }
    r->n_dims = n + 1;
    r->has_factors = true;
    for (int32_t i = 0; i < r->n_dims / 2; i++) {
        r->factors[i] = powf(r->theta, 2.0f * (float)i / (float)n - 2.0f * (float)i / (float)(n + 1));
    }
}

static quire_err mimo_read_ropes(const config *c, model_desc *d) {
    rope_desc full = config_plain_rope(c, d);
    full.pairs = ROPE_HALVES;
    full.n_dims = c->is_gguf ? full.n_dims : (int32_t)((float)full.n_dims * 0.334f);
    rope_desc local = full;
    local.theta = 1e4f;
    TRY(config_f32(c, NULL, "swa_rope_theta", &local.theta));
    TRY(config_rotary_by_window(c, &full, &local, d));
    for (int32_t i = 0; i < d->n_ropes; i++) {
        mimo_round_up(&d->ropes[i]);
    }
    return QUIRE_OK;
}

/* Reads which layers are dense: "mlp_layer_types", a list of numbers, or by default the
 * first. */
static quire_err mimo_read_experts(const config *c, model_desc *d) {
    const int32_t d_ff = d->layers[0].d_ff;
    int32_t listed[DESC_MAX_LAYERS];
    size_t n = 0;
    d->moe = (moe_desc){
        .score = ROUTE_SIGMOID, .correction_bias = true, .group_by_best_two = true, .renormalise = true};
    TRY(config_moe(c, d));
    TRY(config_i32s(c, NULL, "moe_layer_freq", listed, DESC_MAX_LAYERS, &n));
    if (n != 0 && n != (size_t)d->n_layers) {
        return config_bad(c, "moe_layer_freq", "must have one number for each layer");
    }
    for (size_t i = 0; i < n && !config_has(c, NULL, "mlp_layer_types"); i++) {
        if (listed[i] == 0) {
            config_set_dense(d, (int32_t)i, d_ff);
        }
    }
    return config_dense_layers(c, "first_k_dense_replace", n > 0 ? 0 : 1, d_ff, d);
}

static quire_err describe_mimo(const config *c, model_desc *d) {
    decoder_shape s = {.has_values = true, .d_value = c->is_gguf ? 0 : 128};
    TRY(config_decoder(c, &s, d));
    TRY(mimo_read_windows(c, d));
    TRY(mimo_read_heads(c, d));
    TRY(mimo_read_sinks(c, d));
    TRY(mimo_read_ropes(c, d));
    d->attend.value_scale = c->is_gguf ? 0.0f : 0.707f;
    TRY(config_f32_or_none(c, "attention.value_scale", "attention_value_scale", &d->attend.value_scale));
    return mimo_read_experts(c, d);
}

const arch mimo_archs[] = {
    {{"mimo2"}, {"MiMoV2FlashForCausalLM"}, &mimo_names, .describe = describe_mimo},
    {.describe = NULL},
};

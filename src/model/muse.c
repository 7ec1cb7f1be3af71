/* Muse Glimmer: norms around both halves of a layer, embeddings and heads of queries and
 * keys normed without weights, a gate on each element of attention's result; layers
 * without windows do not rotate. */
#include <math.h>

#include "model/architectures.h"

static const arch_names muse_names = {
    .hf = {[W_ATTN_GATE] = "model.layers.%d.self_attn.gate_proj",
           [W_ATTN_POST_NORM] = "model.layers.%d.post_attention_layernorm",
           [W_FFN_NORM] = "model.layers.%d.pre_feedforward_layernorm",
           [W_FFN_POST_NORM] = "model.layers.%d.post_feedforward_layernorm"},
};

enum { MUSE_PERIOD = 4 }; /* the last of each rotates no more and sees all */

/* Layers of one base share a table; 0 stands for none. */
static quire_err muse_set_rope(const config *c, model_desc *d, int32_t layer, float theta,
                               const rope_desc *usual) {
    if (theta < 0.0f) {
        return config_bad(c, "layer_rope_theta", "must be 0 or more");
    }
    d->layers[layer].rope = NO_ROPE;
    for (int32_t i = 0; i < d->n_ropes && theta > 0.0f; i++) {
        if (d->ropes[i].theta == theta) {
            d->layers[layer].rope = (int16_t)i;
            return QUIRE_OK;
        }
    }
    if (theta == 0.0f) {
        return QUIRE_OK;
    }
    if (d->n_ropes == DESC_MAX_ROPES) {
        return config_unsupported(c, "layer_rope_theta has too many different bases");
    }
    d->ropes[d->n_ropes] = *usual;
    d->ropes[d->n_ropes].theta = theta;
    d->layers[layer].rope = (int16_t)d->n_ropes++;
    return QUIRE_OK;
}

static quire_err muse_read_positions(const config *c, model_desc *d) {
    int32_t window = 2048;
    rope_desc usual = config_plain_rope(c, d);
    /* the last layer sees all, and so does one of four before it */
    TRY(config_window(c, &window));
    TRY(config_windows(c, window, MUSE_PERIOD, (d->n_layers - 1) % MUSE_PERIOD, d));
    usual.theta = c->is_gguf ? usual.theta : 5e5f;
    TRY(config_rope(c, NULL, d, &usual));
    usual.pairs = c->is_gguf ? ROPE_NEIGHBOURS : ROPE_HALVES;
    for (int32_t i = 0; i < d->n_layers; i++) {
        float theta = d->layers[i].window > 0 ? usual.theta : 0.0f;
        TRY(config_f32_at(c, NULL, "layer_rope_theta", (size_t)i, &theta));
        TRY(muse_set_rope(c, d, i, theta, &usual));
    }
    return QUIRE_OK;
}

static quire_err muse_describe_common(const config *c, model_desc *d) {
    decoder_shape s = {0};
    float factor = c->is_gguf ? 1.0f : 3.87f;
    d->norm_eps = 1e-5f;
    d->norm.post_eps = 1e-8f;
    d->head.cap = 20.0f;
    d->head.scale = 0.19611613513818404f;
    TRY(config_decoder(c, &s, d));
    TRY(config_f32(c, NULL, "post_norm_eps", &d->norm.post_eps));
    TRY(config_f32(c, NULL, "qk_scale_factor", &factor));
    TRY(config_f32(c, "logit_scale", "output_multiplier", &d->head.scale));
    TRY(config_f32_or_none(c, "final_logit_softcapping", "final_logit_softcapping", &d->head.cap));
    if (!(factor > 0.0f) || !(d->head.scale > 0.0f) || !(d->norm.post_eps >= 0.0f)) {
        return config_bad(c, "qk_scale_factor, output_multiplier and post_norm_eps", "must be over 0");
    }
    d->attention_scale *= factor;
    d->embed.normed = true;
    d->norm.add_one = true;
    d->norm.plain_last = true;
    /* GGUF files have the factor as the weights of norms */
    d->attend.qk_norm = c->is_gguf ? QK_NORM_HEAD : QK_NORM_BARE_ALL;
    d->attend.gate = ATTEND_GATE_ELEMENTS;
    d->attend.gate_f = ACT_SIGMOID;
    return muse_read_positions(c, d);
}

static quire_err describe_muse_glimmer(const config *c, model_desc *d) {
    TRY(muse_describe_common(c, d));
    steps_set(d, steps_sandwich);
    return QUIRE_OK;
}

const arch arch_muse_glimmer = {.gguf = {"muse-glimmer"},
                                .hf = {"MuseGlimmerForConditionalGeneration", "MuseGlimmerForCausalLM"},
                                .names = &muse_names,
                                .describe = describe_muse_glimmer};

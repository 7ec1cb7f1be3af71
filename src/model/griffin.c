/* RecurrentGemma: Botev et al. 2024, arXiv:2404.07839; Griffin: De et al. 2024,
 * arXiv:2402.19427: two layers with a gated linear recurrence for each one with windowed
 * attention. */
#include <math.h>

#include "core/half.h"
#include "model/architectures.h"

#define TEMPORAL "model.layers.%d.temporal_block."

static const arch_names recurrent_gemma_names = {
    .hf = {[W_OUT_NORM] = "model.final_norm",
           [W_ATTN_NORM] = "model.layers.%d.temporal_pre_norm",
           [W_FFN_NORM] = "model.layers.%d.channel_pre_norm",
           [W_Q] = TEMPORAL "q_proj",
           [W_K] = TEMPORAL "k_proj",
           [W_V] = TEMPORAL "v_proj",
           [W_O] = TEMPORAL "o_proj",
           MLP_NAMES("model.layers.%d.mlp_block"),
           [W_LRU_X] = TEMPORAL "linear_x",
           [W_LRU_Y] = TEMPORAL "linear_y",
           [W_LRU_OUT] = TEMPORAL "linear_out",
           [W_LRU_TAPS] = TEMPORAL "conv_1d",
           [W_LRU_INPUT] = TEMPORAL "rg_lru.input_gate",
           [W_LRU_DECAY] = TEMPORAL "rg_lru.recurrent_gate",
           [W_LRU_RATE] = TEMPORAL "rg_lru.recurrent_param"},
};

/* x += lru(norm(x)); x += mlp(norm(x)). */
static const layer_step lru_mlp[] = {
    NORM(W_ATTN_NORM, X, A), LRU(A, A), ADD(A, X), NORM(W_FFN_NORM, X, A), MLP(A, A), ADD(A, X), END};

/* Reads the repeating pattern of layers from "block_types". */
static quire_err griffin_read_layers(const config *c, const model_desc *d, state_layers *s) {
    bool attends[DESC_MAX_LAYERS] = {false, false, true};
    int32_t n = config_has(c, NULL, "block_types") ? 0 : 3;
    for (str type; n < DESC_MAX_LAYERS; n++) {
        TRY(config_str_at(c, "block_types", (size_t)n, &type));
        if (type.n == 0) {
            break;
        }
        attends[n] = str_is(type, "attention");
        if (!attends[n] && !str_is(type, "recurrent")) {
            return config_bad(c, "block_types", "must be a list of \"recurrent\" and \"attention\"");
        }
    }
    if (n < 1) {
        return config_bad(c, "block_types", "must have at least one type");
    }
    for (int32_t i = 0; i < d->n_layers; i++) {
        s->attends[i] = attends[i % n];
        s->recurs[i] = !s->attends[i];
    }
    return QUIRE_OK;
}

static quire_err griffin_read_lru(const config *c, model_desc *d, state_layers *s) {
    lru_desc *l = &d->lru;
    *l = (lru_desc){.width = d->d_model, .n_blocks = d->layers[0].n_heads, .n_taps = 4};
    if (!config_is_null(c, "lru_width")) {
        TRY(config_i32(c, NULL, "lru_width", &l->width));
    }
    TRY(config_taps(c, NULL, "conv1d_width", &l->n_taps));
    if (l->width < l->n_blocks || l->width % l->n_blocks != 0 || l->width > 1 << 17) {
        return config_bad(c, "lru_width", "must be a multiple of the attention heads, up to 131072");
    }
    s->state = lru_cache(l->width, l->n_blocks);
    s->conv = conv_cache(conv_units(l->width), l->n_taps);
    return QUIRE_OK;
}

static quire_err describe_recurrent_gemma(const config *c, model_desc *d) {
    state_layers s = {0};
    int32_t window = 2048;
    d->tied_embeddings = true;
    d->activation = ACT_GELU_TANH;
    d->head.cap = 30.0f;
    TRY(config_decoder(c, &(decoder_shape){0}, d));
    d->norm.add_one = true;
    d->embed.scale = bf16_to_f32(f32_to_bf16(sqrtf((float)d->d_model)));
    TRY(config_f32_or_none(c, NULL, "logits_soft_cap", &d->head.cap));
    TRY(config_rotary(c, d, ROPE_HALVES, ROPE_HALVES, 0.5f));
    TRY(config_i32(c, NULL, "attention_window_size", &window));
    if (window < 1) {
        return config_bad(c, "attention_window_size", "must be at least 1");
    }
    TRY(griffin_read_lru(c, d, &s));
    TRY(griffin_read_layers(c, d, &s));
    for (int32_t i = 0; i < d->n_layers; i++) {
        config_set_window(d, i, window);
        d->layers[i].d_ff /= 2; /* config.json has the width of gate and up together */
        d->layers[i].steps = s.recurs[i] ? lru_mlp : steps_pre_norm;
    }
    return config_set_states(c, &s, d);
}

const arch griffin_archs[] = {
    {{"recurrentgemma"},
     {"RecurrentGemmaForCausalLM"},
     &recurrent_gemma_names,
     .describe = describe_recurrent_gemma},
    {.describe = NULL},
};

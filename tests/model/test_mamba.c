/* Configurations of Mamba and gated linear recurrences: defaults of config.json,
 * alternative names, and what is refused. The expected values are those of the
 * transformers library's own configurations. */
#include <math.h>

#include "core/recurrence.h"
#include "describe_config.h"

#define SIZES                                                                                                \
    "\"hidden_size\": 64, \"num_hidden_layers\": 4, \"intermediate_size\": 96, \"vocab_size\": 40, "         \
    "\"num_attention_heads\": 4"
#define PATTERN ", \"hybrid_override_pattern\": \"M*E-\""
#define HEADS   ", \"mamba_n_heads\": 8, \"mamba_d_head\": 16"

static model_desc described(const char *architecture, const char *numbers) {
    model_desc d;
    quire_error err = {0};
    if (describe_config(architecture, numbers, "x", &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, numbers, err.message);
    }
    return d;
}

static void refused(const char *architecture, const char *numbers, const char *what) {
    model_desc d;
    quire_error err = {0};
    if (describe_config(architecture, numbers, "x", &d, &err) == QUIRE_OK ||
        strstr(err.message, what) == NULL) {
        fail_msg("%s, %s: expected a refusal about \"%s\": \"%s\"", architecture, numbers, what, err.message);
    }
}

/* The kinds of a model's layers: M has a state, * attends, H does both, - neither. */
static void has_layers(const model_desc *d, const char *kinds) {
    assert_int_equal(d->n_layers, strlen(kinds));
    for (int32_t i = 0; i < d->n_layers; i++) {
        const layer_desc *l = &d->layers[i];
        const bool attends = l->caches[CACHE_ATTENTION] >= 0, recurs = l->caches[CACHE_STATE] >= 0;
        const char kind = attends && recurs ? 'H' : attends ? '*' : recurs ? 'M' : '-';
        assert_int_equal(kind, kinds[i]);
        assert_int_equal(attends, l->n_heads > 0);
        assert_int_equal(recurs, l->caches[CACHE_CONV] >= 0);
    }
}

TEST(a_left_out_number_is_the_published_one) {
    static const struct {
        const char *architecture, *numbers, *layers;
        int32_t n_inner, n_heads, n_groups, n_states, n_taps, step_rank;
    } rows[] = {
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 2", "MM", 80, 0, 0, 16, 4, 3},
        {"FalconMambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"intermediate_size\": 96",
         "M", 96, 0, 0, 16, 4, 3},
        {"Mamba2ForCausalLM", "\"hidden_size\": 4096, \"num_hidden_layers\": 1", "M", 8192, 128, 8, 128, 4,
         0},
        {"GraniteMoeHybridForCausalLM", SIZES ", \"mamba_n_heads\": 8", "MMMM", 128, 8, 1, 256, 4, 0},
        {"BambaForCausalLM", SIZES HEADS ", \"num_key_value_heads\": 2, \"attn_layer_indices\": [1, 3]",
         "M*M*", 128, 8, 1, 256, 4, 0},
        {"FalconH1ForCausalLM", SIZES ", \"num_key_value_heads\": 2", "HHHH", 1024, 128, 1, 256, 4, 0},
        {"FalconH1ForCausalLM", SIZES HEADS ", \"num_key_value_heads\": 2, \"mamba_d_ssm\": null", "HHHH",
         128, 8, 1, 256, 4, 0},
        {"NemotronHForCausalLM", SIZES ", \"hybrid_override_pattern\": \"M*E-\", \"num_key_value_heads\": 2",
         "M*--", 8192, 128, 8, 128, 4, 0},
        {"JambaForCausalLM",
         SIZES ", \"num_key_value_heads\": 2, \"attn_layer_period\": 2, \"attn_layer_offset\": 1, "
               "\"mamba_dt_rank\": \"auto\"",
         "M*M*", 128, 0, 0, 16, 4, 4},
        {"Zamba2ForCausalLM",
         SIZES ", \"layers_block_type\": [\"mamba\", \"hybrid\", \"linear_attention\", \"hybrid\"]", "MHMH",
         128, 8, 1, 64, 4, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_desc d = described(rows[i].architecture, rows[i].numbers);
        has_layers(&d, rows[i].layers);
        assert_int_equal(d.mamba.n_inner, rows[i].n_inner);
        assert_int_equal(d.mamba.n_heads, rows[i].n_heads);
        assert_int_equal(d.mamba.n_groups, rows[i].n_groups);
        assert_int_equal(d.mamba.n_states, rows[i].n_states);
        assert_int_equal(d.mamba.n_taps, rows[i].n_taps);
        assert_int_equal(d.mamba.step_rank, rows[i].step_rank);
    }
}

TEST(a_layer_keeps_a_state_and_the_inputs_of_its_convolution) {
    model_desc d = described("Mamba2ForCausalLM", "\"hidden_size\": 64, \"num_hidden_layers\": 2, "
                                                  "\"num_heads\": 8, \"head_dim\": 16, \"state_size\": 24, "
                                                  "\"n_groups\": 2, \"conv_kernel\": 3, \"vocab_size\": 40");
    assert_int_equal(d.n_caches, 4);
    const cache_desc *matrix = &d.caches[d.layers[1].caches[CACHE_STATE]],
                     *conv = &d.caches[d.layers[1].caches[CACHE_CONV]];
    assert_int_equal(matrix->n_units, 8);
    assert_int_equal(matrix->unit_bytes, 24 * 16 * 4);
    assert_int_equal(conv->n_units, conv_units(128) + 2 * conv_units(48));
    assert_int_equal(conv->unit_bytes, CONV_UNIT * 2 * 4);
    d = described("RecurrentGemmaForCausalLM", SIZES ", \"num_key_value_heads\": 1");
    has_layers(&d, "MM*M");
    assert_int_equal(d.layers[0].d_ff, 48);
    assert_int_equal(d.caches[d.layers[2].caches[CACHE_ATTENTION]].window, 2048);
    assert_int_equal(d.caches[d.layers[0].caches[CACHE_STATE]].n_units, 4);
    assert_true(d.embed.scale == 8.0f && d.head.cap == 30.0f);
}

TEST(the_time_step_is_clamped_as_the_file_says) {
    static const char sizes[] = "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 8, "
                                "\"head_dim\": 16, \"vocab_size\": 40%s";
    static const struct {
        const char *more;
        float least, most;
    } rows[] = {{"", 0.0f, 0.0f},
                {", \"time_step_limit\": [0.0, Infinity]", 0.0f, 0.0f},
                {", \"time_step_limit\": [0.0, {\"__float__\": \"Infinity\"}]", 0.0f, 0.0f},
                {", \"time_step_limit\": [0.001, Infinity]", 0.001f, INFINITY},
                {", \"time_step_limit\": [0, 0.5]", 0.0f, 0.5f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char numbers[256];
        (void)snprintf(numbers, sizeof numbers, sizes, rows[i].more);
        model_desc d = described("Mamba2ForCausalLM", numbers);
        assert_true(d.mamba.step_least == rows[i].least && d.mamba.step_most == rows[i].most);
    }
    const char *kinds = SIZES HEADS ", \"hybrid_override_pattern\": \"MMMM\", \"time_step_limit\": [0, 0.5]";
    char more[512];
    model_desc d = described("NemotronHForCausalLM", kinds);
    assert_true(d.mamba.step_least == 0.001f && isinf(d.mamba.step_most));
    (void)snprintf(more, sizeof more, "%s, \"mamba_dt_min\": 0.01", kinds);
    assert_true(described("NemotronHForCausalLM", more).mamba.step_least == 0.01f);
}

TEST(the_factors_of_falcon_h1_are_read) {
    model_desc d = described("FalconH1ForCausalLM", SIZES HEADS
                             ", \"mamba_d_ssm\": 128, \"num_key_value_heads\": 2, \"key_multiplier\": 0.5, "
                             "\"ssm_multipliers\": [1, 2, 3, 4, 5], \"mlp_multipliers\": [0.5, 0.25], "
                             "\"attention_in_multiplier\": 3, \"attention_out_multiplier\": null, "
                             "\"ssm_in_multiplier\": 7, \"ssm_out_multiplier\": 8, \"mamba_rms_norm\": true, "
                             "\"mamba_norm_before_gate\": false, \"mamba_n_groups\": 2");
    assert_true(d.attention_scale == 0.125f);
    assert_true(d.mamba.scales[0] == 1.0f && d.mamba.scales[4] == 5.0f);
    assert_true(d.gate_scale == 0.5f && d.down_scale == 0.25f);
    assert_true(d.attend.in_scale == 3.0f && d.attend.out_scale == 1.0f);
    assert_true(d.mamba.in_scale == 7.0f && d.mamba.out_scale == 8.0f);
    assert_true(d.mamba.n_norm_groups == 2 && !d.mamba.norm_first);
}

TEST(both_spellings_of_layers_are_read) {
    model_desc d = described("NemotronHForCausalLM",
                             "\"hidden_size\": 64, \"intermediate_size\": 96, \"vocab_size\": 40, "
                             "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"layers_block_type\": "
                             "[\"mamba\", \"attention\", \"moe\", \"mlp\", \"linear_attention\", "
                             "\"full_attention\"], \"moe_latent_size\": 20");
    has_layers(&d, "M*--M*");
    assert_int_equal(d.layers[2].n_experts, 8);
    assert_int_equal(d.layers[3].d_ff, 96);
    assert_int_equal(d.moe.d_latent, 20);
    d = described("GraniteMoeHybridForCausalLM",
                  SIZES HEADS ", \"num_local_experts\": 0, \"shared_intermediate_size\": 32, "
                              "\"layer_types\": [\"mamba\", \"attention\", \"mamba\", \"attention\"]");
    has_layers(&d, "M*M*");
    assert_int_equal(d.layers[0].d_ff, 32);
    assert_int_equal(d.layers[1].rope, NO_ROPE);
    d = described("GraniteMoeHybridForCausalLM",
                  SIZES HEADS ", \"position_embedding_type\": \"rope\", \"layer_types\": "
                              "[\"linear_attention\", \"full_attention\", \"linear_attention\", "
                              "\"full_attention\"]");
    has_layers(&d, "M*M*");
    assert_int_equal(d.layers[1].rope, 0);
}

TEST(biases_are_as_the_file_says) {
    static const char numbers[] = "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"use_bias\": true";
    model_desc d;
    quire_error err = {0};
    assert_int_equal(
        describe_config("MambaForCausalLM", numbers, "backbone.layers.0.mixer.in_proj.bias", &d, &err),
        QUIRE_OK);
    refused("MambaForCausalLM", numbers, "use_bias");
}

TEST(what_no_model_has_is_refused_by_name) {
    static const struct {
        const char *architecture, *numbers, *what;
    } cases[] = {
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"conv_kernel\": 1",
         "conv_kernel"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"conv_kernel\": 17",
         "conv_kernel"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"state_size\": 0",
         "state_size"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"state_size\": 8000",
         ": state_size is 8000; this build supports 1 to 4096"},
        {"BambaForCausalLM", SIZES HEADS ", \"num_key_value_heads\": 2, \"mamba_d_state\": 8000",
         ": mamba_d_state is 8000;"},
        {"NemotronHForCausalLM", SIZES PATTERN ", \"num_key_value_heads\": 2, \"ssm_state_size\": 8000",
         ": ssm_state_size is 8000;"},
        {"NemotronHForCausalLM", SIZES PATTERN ", \"num_key_value_heads\": 2, \"conv_kernel\": 40",
         ": conv_kernel is 40;"},
        {"NemotronHForCausalLM", SIZES PATTERN ", \"num_key_value_heads\": 2, \"mamba_num_heads\": 0",
         ": mamba_num_heads is 0;"},
        {"NemotronHForCausalLM", SIZES PATTERN ", \"num_key_value_heads\": 2, \"n_groups\": 129",
         ": n_groups is 129;"},
        {"JambaForCausalLM", SIZES ", \"num_key_value_heads\": 2, \"mamba_expand\": 1e30",
         ": mamba_expand must give"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"expand\": 1e30",
         ": expand must give"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"time_step_rank\": 0",
         "time_step_rank"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 1, \"hidden_act\": \"elu\"",
         "hidden_act"},
        {"MambaForCausalLM", "\"hidden_size\": 40, \"num_hidden_layers\": 400", "more states"},
        {"MambaForCausalLM",
         "\"hidden_size\": 2147483647, \"expand\": 1e-8, \"time_step_rank\": 3, \"num_hidden_layers\": 1",
         "the hidden size is 2147483647"},
        {"Mamba2ForCausalLM", "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 7",
         "7 Mamba heads"},
        {"Mamba2ForCausalLM", "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 0", "heads"},
        {"Mamba2ForCausalLM",
         "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 8, \"head_dim\": 16, "
         "\"n_groups\": 3",
         "divide the heads"},
        {"Mamba2ForCausalLM",
         "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 8, \"head_dim\": 16, "
         "\"time_step_limit\": [0.5, 0.1]",
         "time_step_limit"},
        {"Mamba2ForCausalLM",
         "\"hidden_size\": 64, \"num_hidden_layers\": 1, \"num_heads\": 8, \"head_dim\": 16, "
         "\"time_step_limit\": [0.5]",
         "time_step_limit"},
        {"NemotronHForCausalLM", SIZES ", \"num_key_value_heads\": 2, \"hybrid_override_pattern\": \"M*X-\"",
         "hybrid_override_pattern"},
        {"NemotronHForCausalLM", SIZES ", \"num_key_value_heads\": 2, \"hybrid_override_pattern\": \"M*\"",
         "hybrid_override_pattern"},
        {"NemotronHForCausalLM", SIZES ", \"num_key_value_heads\": 2", "hybrid_override_pattern"},
        {"BambaForCausalLM", SIZES HEADS ", \"num_key_value_heads\": 2, \"attn_layer_indices\": [4]",
         "attn_layer_indices"},
        {"GraniteMoeHybridForCausalLM", SIZES HEADS ", \"layer_types\": [\"mamba\"]", "layer_types"},
        {"GraniteMoeHybridForCausalLM",
         SIZES HEADS ", \"layer_types\": [\"mamba\", \"window\", \"mamba\", \"mamba\"]", "window"},
        {"FalconH1ForCausalLM",
         SIZES HEADS ", \"mamba_d_ssm\": 128, \"num_key_value_heads\": 2, \"ssm_multipliers\": [1, 2]",
         "ssm_multipliers"},
        {"FalconH1ForCausalLM", SIZES HEADS ", \"mamba_d_ssm\": 96, \"num_key_value_heads\": 2",
         "width of 96"},
        {"JambaForCausalLM", SIZES ", \"num_key_value_heads\": 2, \"attn_layer_offset\": 8",
         "attn_layer_offset"},
        {"JambaForCausalLM", SIZES ", \"num_key_value_heads\": 2, \"expert_layer_period\": 0",
         "expert_layer_period"},
        {"Zamba2ForCausalLM", SIZES, "layers_block_type"},
        {"Zamba2ForCausalLM",
         SIZES ", \"num_mem_blocks\": 17, \"layers_block_type\": [\"mamba\", \"hybrid\", \"mamba\", "
               "\"hybrid\"]",
         "num_mem_blocks"},
        {"Zamba2ForCausalLM",
         SIZES ", \"use_long_context\": true, \"layers_block_type\": [\"mamba\", \"hybrid\", \"mamba\", "
               "\"hybrid\"]",
         "use_long_context"},
        {"RecurrentGemmaForCausalLM", SIZES ", \"num_key_value_heads\": 1, \"lru_width\": 30", "lru_width"},
        {"RecurrentGemmaForCausalLM", SIZES ", \"num_key_value_heads\": 1, \"block_types\": []",
         "block_types"},
        {"RecurrentGemmaForCausalLM", SIZES ", \"num_key_value_heads\": 1, \"block_types\": [\"rnn\"]",
         "block_types"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused(cases[i].architecture, cases[i].numbers, cases[i].what);
    }
}

TEST_MAIN(NULL, NULL)

/* Models with recurrent layers: which layers those are, the size of their state, and the
 * numbers that are refused. */
#include "describe_config.h"

#include "model/steps.h"

#define SIZES                                                                                                \
    "\"num_hidden_layers\": 4, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": "   \
    "2, "                                                                                                    \
    "\"vocab_size\": 40, \"max_position_embeddings\": 128, \"intermediate_size\": 64, \"head_dim\": 8, "
#define DELTA_SIZES                                                                                          \
    "\"linear_num_value_heads\": 6, \"linear_num_key_heads\": 2, \"linear_key_head_dim\": 8, "               \
    "\"linear_value_head_dim\": 12, \"linear_conv_kernel_dim\": 5"
#define EXPERTS                                                                                              \
    ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "                       \
    "\"shared_expert_intermediate_size\": 8"

static quire_err describe_four(const char *architecture, const char *more, model_desc *d, quire_error *err) {
    char numbers[1600];
    (void)snprintf(numbers, sizeof numbers, SIZES "%s", more);
    return describe_config(architecture, numbers, "x", d, err);
}

static model_desc described(const char *architecture, const char *more) {
    model_desc d;
    quire_error err = {0};
    if (describe_four(architecture, more, &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, more, err.message);
    }
    return d;
}

static void refused(const char *architecture, const char *more, const char *what) {
    model_desc d;
    quire_error err = {0};
    quire_err e = describe_four(architecture, more, &d, &err);
    if (e == QUIRE_OK || !strstr(err.message, what)) {
        fail_msg("%s, %s: expected a refusal about \"%s\": %s, \"%s\"", architecture, more, what,
                 quire_err_name(e), err.message);
    }
}

/* The layers' kinds: 'a' attends, 's' keeps a state and inputs of a convolution, 'c' the
 * latter only. */
static void has_layers(const model_desc *d, const char *kinds) {
    char found[DESC_MAX_LAYERS + 1] = {0};
    for (int32_t i = 0; i < d->n_layers; i++) {
        const layer_desc *l = &d->layers[i];
        bool attends = l->caches[CACHE_ATTENTION] >= 0, has_state = l->caches[CACHE_STATE] >= 0,
             has_conv = l->caches[CACHE_CONV] >= 0;
        assert_int_equal(attends, l->n_heads > 0);
        assert_false(attends && (has_state || has_conv));
        assert_true(attends || l->rope == NO_ROPE);
        found[i] = attends ? 'a' : has_state && has_conv ? 's' : has_conv ? 'c' : has_state ? 'l' : '-';
    }
    assert_string_equal(found, kinds);
}

static void has_steps(const model_desc *d, int32_t layer, const char *expected) {
    char text[128];
    steps_text(d->layers[layer].steps, text, sizeof text);
    assert_string_equal(text, expected);
}

TEST(layers_without_attention_keep_a_state) {
    model_desc d = described("Lfm2ForCausalLM", "\"full_attn_idxs\": [1, 3]");
    has_layers(&d, "caca");
    has_steps(&d, 0, "norm conv add norm mlp add");
    has_steps(&d, 1, "norm attend add norm mlp add");
    d = described("Lfm2ForCausalLM", "\"layer_types\": [\"full_attention\", \"conv\", \"conv\", \"conv\"]");
    has_layers(&d, "accc");
    d = described("Lfm2ForCausalLM", "\"conv_L_cache\": 5");
    has_layers(&d, "aaaa");
    d = described("Lfm2MoeForCausalLM",
                  "\"layer_types\": [\"conv\", \"conv\", \"full_attention\", \"conv\"], "
                  "\"num_dense_layers\": 1" EXPERTS);
    has_layers(&d, "ccac");
    has_steps(&d, 0, "norm conv add norm mlp add");
    has_steps(&d, 1, "norm conv add norm moe add");
    has_steps(&d, 2, "norm attend add norm moe add");
    d = described("Qwen3NextForCausalLM", DELTA_SIZES ", \"full_attention_interval\": 2" EXPERTS);
    has_layers(&d, "sasa");
    has_steps(&d, 0, "norm delta add norm moe add");
    d = described("Qwen3_5ForCausalLM", DELTA_SIZES);
    has_layers(&d, "sssa");
    has_steps(&d, 0, "norm delta add norm mlp add");
    d = described("MiniMaxForCausalLM", "\"num_local_experts\": 4");
    has_layers(&d, "alal");
    has_steps(&d, 1, "norm(x) delta mix norm(x) moe mix");
    d = described("OlmoHybridForCausalLM", DELTA_SIZES);
    has_layers(&d, "sssa");
    has_steps(&d, 0, "norm delta add norm mlp add");
    has_steps(&d, 3, "attend norm add mlp norm add");
    d = described("LaraMiniForCausalLM",
                  "\"layer_types\": [\"linear_attention\", \"sliding_attention\", \"linear_attention\", "
                  "\"full_attention\"], \"sliding_window\": 16, " DELTA_SIZES EXPERTS);
    has_layers(&d, "sasa");
    assert_int_equal(d.layers[1].window, 16);
    assert_int_equal(d.layers[3].window, 0);
    assert_int_equal(d.layers[3].rope, NO_ROPE);
    d = described("LaraMiniForCausalLM", "\"num_experts\": 8, \"num_experts_per_tok\": 2");
    has_layers(&d, "sasa");
    assert_true(d.layers[1].window == 512 && d.layers[3].rope == NO_ROPE && d.tied_embeddings);
}

TEST(a_state_has_the_size_of_its_heads) {
    model_desc d = described("Qwen3_5ForCausalLM", DELTA_SIZES);
    const cache_desc *matrix = &d.caches[d.layers[0].caches[CACHE_STATE]],
                     *conv = &d.caches[d.layers[0].caches[CACHE_CONV]];
    assert_int_equal(matrix->n_units, 6);
    assert_int_equal(matrix->unit_bytes, 8 * 16 * 4); /* 12 columns take a lane of 16 */
    assert_int_equal(conv->n_units, 1 + 1 + 2);       /* q, k: 16 channels each, v: 72 */
    assert_int_equal(conv->unit_bytes, 64 * 4 * 4);
    d = described("Lfm2ForCausalLM", "\"full_attn_idxs\": [1], \"conv_L_cache\": 7");
    assert_int_equal(d.caches[0].n_units, 1);
    assert_int_equal(d.caches[0].unit_bytes, 64 * 6 * 4);
}

TEST(the_base_of_lfms_rotation_has_two_names) {
    model_desc d = described("Lfm2ForCausalLM", "\"theta\": 5000.0");
    assert_float_equal(d.ropes[0].theta, 5000.0f, 0.0f);
    d = described("Lfm2ForCausalLM", "\"theta\": 5000.0, \"rope_theta\": 7000.0");
    assert_float_equal(d.ropes[0].theta, 7000.0f, 0.0f);
}

TEST(olmo_hybrid_rotates_unless_its_base_is_null) {
    static const struct {
        const char *json;
        float theta; /* 0: nothing rotates */
    } cases[] = {{"\"rope_theta\": 5000.0", 5000.0f},
                 {"\"rope_scaling\": null", 10000.0f},
                 {"\"rope_parameters\": null", 10000.0f},
                 {"\"rope_parameters\": {\"rope_type\": \"default\"}", 10000.0f},
                 {"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": null}", 0.0f},
                 {"\"rope_theta\": null", 0.0f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[256];
        (void)snprintf(more, sizeof more, DELTA_SIZES ", %s", cases[i].json);
        const model_desc d = described("OlmoHybridForCausalLM", more);
        assert_int_equal(d.n_ropes, cases[i].theta > 0.0f);
        assert_int_equal(d.layers[3].rope, cases[i].theta > 0.0f ? 0 : NO_ROPE);
        assert_float_equal(d.n_ropes > 0 ? d.ropes[0].theta : 0.0f, cases[i].theta, 0.0f);
    }
}

#define LFM3_ROPES                                                                                           \
    "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e6}, \"sliding_attention\": "               \
    "{\"rope_theta\": 1e4}}"

TEST(lfm3_has_gates_and_seven_taps_unless_the_file_says_otherwise) {
    model_desc d =
        described("Lfm3ForCausalLM", LFM3_ROPES ", \"layer_types\": [\"conv\", \"full_attention\", "
                                                "\"conv\", \"sliding_attention\"]");
    assert_int_equal(d.layers[3].window, 256);
    assert_int_equal(d.conv.n_taps, 7);
    assert_int_equal(d.attend.gate, ATTEND_GATE_HEADS);
    has_steps(&d, 0, "norm conv norm add norm mlp norm add");
    has_steps(&d, 1, "norm attend norm add norm mlp norm add");
    refused("Lfm3ForCausalLM", "\"conv_L_cache\": 3", "rope_parameters is missing");
}

TEST(lfm_adjusts_the_width_of_its_feed_forward_part) {
    model_desc d = described("Lfm2ForCausalLM", "\"block_ff_dim\": 60, \"block_multiple_of\": 8");
    assert_int_equal(d.layers[0].d_ff, 40);
    d = described("Lfm2ForCausalLM", "\"block_ff_dim\": 60, \"block_auto_adjust_ff_dim\": false");
    assert_int_equal(d.layers[0].d_ff, 60);
    refused("Lfm2ForCausalLM", "\"block_multiple_of\": 0", "block_ff_dim");
    refused("Lfm2ForCausalLM", "\"block_ffn_dim_multiplier\": -1", "block_ff_dim");
    refused("Lfm2ForCausalLM", "\"block_ff_dim\": 2147483647", "block_ff_dim");
}

TEST(sizes_that_no_state_has_are_refused) {
    refused("Lfm2ForCausalLM", "\"conv_L_cache\": 1", "conv_L_cache is 1");
    refused("Lfm2ForCausalLM", "\"conv_L_cache\": 1000000", "conv_L_cache is 1000000");
    refused("Lfm2ForCausalLM", "\"layer_types\": [\"conv\", \"conv\", \"mamba\", \"conv\"]", "\"mamba\"");
    refused("Lfm2ForCausalLM", "\"layer_types\": [\"conv\"]", "one string for each layer");
    refused("Lfm3ForCausalLM", LFM3_ROPES ", \"hidden_size\": 2147483647", "hidden size is 2147483647");
    refused("Qwen3_5ForCausalLM", "\"linear_num_value_heads\": 0", "linear_num_value_heads is 0");
    refused("Qwen3_5ForCausalLM", "\"linear_num_key_heads\": 0", "linear_num_key_heads is 0");
    refused("Qwen3_5ForCausalLM", "\"linear_num_value_heads\": 2147483647", "linear_num_value_heads");
    refused("Qwen3_5ForCausalLM", "\"linear_key_head_dim\": 0", "linear_key_head_dim is 0");
    refused("Qwen3_5ForCausalLM", "\"linear_key_head_dim\": 100000", "linear_key_head_dim is 100000");
    refused("Qwen3_5ForCausalLM", "\"linear_value_head_dim\": 513", "linear_value_head_dim is 513");
    refused("Qwen3_5ForCausalLM", "\"linear_conv_kernel_dim\": 17", "linear_conv_kernel_dim is 17");
    refused("Qwen3_5ForCausalLM", "\"linear_num_value_heads\": 3, \"linear_num_key_heads\": 2",
            "3 value heads of linear attention cannot share 2 key heads");
    refused("Qwen3_5ForCausalLM", "\"full_attention_interval\": 0", "full_attention_interval");
    refused("Qwen3_5ForCausalLM",
            "\"layer_types\": [\"linear_attention\", \"sliding_attention\", \"conv\", \"conv\"]",
            "\"sliding_attention\"");
    refused("OlmoHybridForCausalLM", "\"linear_num_key_heads\": 0", "linear_num_key_heads");
}

TEST(sizes_of_a_gguf_file_that_no_state_has_are_refused) {
    static const struct {
        const char *key;
        uint32_t value;
        const char *what;
    } cases[] = {{"qwen35.ssm.inner_size", 3, "values of 0 elements"},
                 {"qwen35.ssm.inner_size", INT32_MAX, "ssm.inner_size 2147483647"},
                 {"qwen35.ssm.time_step_rank", 0, "ssm.time_step_rank is 0"},
                 {"qwen35.ssm.group_count", 3, "4 value heads of linear attention cannot share 3 key heads"},
                 {"qwen35.ssm.state_size", 513, "ssm.state_size is 513"},
                 {"qwen35.ssm.conv_kernel", 1, "ssm.conv_kernel is 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_plan p = plan_llama_as("qwen35");
        model_desc d;
        quire_error err = {0};
        set_u32(&p, "qwen35.ssm.inner_size", 64);
        set_u32(&p, "qwen35.ssm.time_step_rank", 4);
        set_u32(&p, "qwen35.ssm.group_count", 2);
        set_u32(&p, "qwen35.ssm.state_size", 16);
        set_u32(&p, "qwen35.ssm.conv_kernel", 4);
        set_u32(&p, cases[i].key, cases[i].value);
        plan_file f = plan_open(&p);
        quire_err e = model_describe(f.f, &d, &err);
        if (e == QUIRE_OK || !strstr(err.message, cases[i].what)) {
            fail_msg("%s %u: expected a refusal about \"%s\": \"%s\"", cases[i].key, cases[i].value,
                     cases[i].what, err.message);
        }
        model_file_close(f.f);
        free(f.bytes);
    }
}

TEST_MAIN(NULL, NULL)

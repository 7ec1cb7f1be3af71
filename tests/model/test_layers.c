/* Models with different layers: lists with a number per layer, Llama 4's chunks, Gemma
 * 4's two head widths and shared caches. */
#include "describe_config.h"

/* The description of a model of four layers of 4 heads; more: the rest of config.json. */
static quire_err describe_four(const char *architecture, const char *more, model_desc *d, quire_error *err) {
    char numbers[2048];
    snprintf(numbers, sizeof numbers,
             "\"num_hidden_layers\": 4, \"hidden_size\": 32, \"num_attention_heads\": 4, \"head_dim\": 8, "
             "\"num_key_value_heads\": null, \"vocab_size\": 40, \"max_position_embeddings\": 128, %s",
             more);
    return describe_config(architecture, numbers, "x", d, err);
}

static model_desc described(const char *architecture, const char *more) {
    model_desc d;
    quire_error err = {0};
    if (describe_four(architecture, more, &d, &err) != QUIRE_OK) {
        fail_msg("%s: %s", more, err.message);
    }
    return d;
}

static void refused(const char *architecture, const char *more, const char *what) {
    model_desc d;
    quire_error err = {0};
    quire_err e = describe_four(architecture, more, &d, &err);
    if (e == QUIRE_OK || !strstr(err.message, what)) {
        fail_msg("%s: expected a refusal about \"%s\": %s, \"%s\"", more, what, quire_err_name(e),
                 err.message);
    }
}

TEST(a_list_has_a_number_for_each_layer) {
    static const int32_t heads[] = {4, 2, 1, 2}, widths[] = {96, 48, 96, 24};
    model_desc d = described(
        "LlamaForCausalLM", "\"num_key_value_heads\": [4, 2, 1, 2], \"intermediate_size\": [96, 48, 96, 24]");
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(d.caches[i].n_kv_heads, heads[i]);
        assert_int_equal(d.layers[i].d_ff, widths[i]);
    }
    d = described("LlamaForCausalLM", "\"num_key_value_heads\": 2, \"intermediate_size\": 96");
    assert_int_equal(d.caches[3].n_kv_heads, 2);
    assert_int_equal(d.layers[3].d_ff, 96);
    refused("LlamaForCausalLM", "\"num_key_value_heads\": [4, 2, 1], \"intermediate_size\": 96",
            "one for each layer");
    refused("LlamaForCausalLM", "\"intermediate_size\": [96, 96, 96, 96, 96]", "at most one for each layer");
    refused("LlamaForCausalLM", "\"intermediate_size\": [96, 96, 0, 96]", "feed-forward size");
}

/* ---- Llama 4 ---- */

#define LLAMA4                                                                                               \
    "\"intermediate_size\": 16, \"intermediate_size_mlp\": 48, \"num_local_experts\": 4, "                   \
    "\"num_experts_per_tok\": 1, "                                                                           \
    "\"attention_chunk_size\": 16"

TEST(llama_4_attends_in_chunks_where_it_rotates) {
    model_desc d = described("Llama4ForCausalLM", LLAMA4 ", \"no_rope_layers\": [1, 0, 1, 1]");
    for (int32_t i = 0; i < 4; i++) {
        bool rotates = i != 1;
        assert_int_equal(d.layers[i].rope, rotates ? 0 : NO_ROPE);
        assert_int_equal(d.layers[i].chunk, rotates ? 16 : 0);
        assert_int_equal(d.caches[i].kind, rotates ? LAYER_WINDOW : LAYER_FULL);
        assert_int_equal(d.caches[i].window, rotates ? 16 : 0);
    }
    d = described("Llama4ForCausalLM", LLAMA4); /* every fourth layer sees all */
    assert_int_equal(d.layers[2].chunk, 16);
    assert_int_equal(d.layers[3].chunk, 0);
    assert_int_equal(d.layers[3].rope, NO_ROPE);
    d = described("Llama4ForCausalLM", "\"intermediate_size\": 16, \"attention_chunk_size\": null");
    assert_int_equal(d.layers[0].chunk, 0);
    assert_int_equal(d.caches[0].kind, LAYER_FULL);
    refused("Llama4ForCausalLM", LLAMA4 ", \"no_rope_layers\": [1, 0]", "no_rope_layers");
}

TEST(llama_4_scales_queries_unless_it_says_otherwise) {
    model_desc d = described("Llama4ForCausalLM", LLAMA4);
    assert_true(d.attend.temperature == 0.1f);
    assert_int_equal(d.attend.temperature_length, 8192);
    assert_int_equal(d.attend.qk_norm, QK_NORM_BARE);
    d = described("Llama4ForCausalLM",
                  LLAMA4 ", \"attn_temperature_tuning\": 4, \"attn_scale\": 0.5, \"floor_scale\": 8");
    assert_true(d.attend.temperature == 0.5f);
    assert_int_equal(d.attend.temperature_length, 8);
    d = described("Llama4ForCausalLM", LLAMA4 ", \"attn_temperature_tuning\": false, \"use_qk_norm\": false");
    assert_true(d.attend.temperature == 0.0f);
    assert_int_equal(d.attend.qk_norm, QK_NORM_NONE);
    refused("Llama4ForCausalLM", LLAMA4 ", \"floor_scale\": 0", "floor_scale");
    refused("Llama4ForCausalLM", LLAMA4 ", \"attn_temperature_tuning\": \"no\"", "attn_temperature_tuning");
}

/* ---- Ministral 3 ---- */

#define MINISTRAL                                                                                            \
    "\"intermediate_size\": 48, \"model_type\": \"ministral3\", "                                            \
    "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4, \"rope_theta\": 1e6, "

TEST(ministral_3_scales_all_queries) {
    model_desc d = described("MistralForCausalLM", MINISTRAL
                             "\"original_max_position_embeddings\": 32, \"llama_4_scaling_beta\": 0.1}");
    assert_true(d.attend.temperature == 0.1f && d.attend.temperature_on_all);
    assert_int_equal(d.attend.temperature_length, 32);
    assert_int_equal(d.layers[0].window, 0); /* unlike Mistral, where nothing is said */
    d = described("MistralForCausalLM", "\"intermediate_size\": 48");
    assert_true(d.attend.temperature == 0.0f && !d.attend.temperature_on_all);
    assert_int_equal(d.layers[0].window, 4096);
    d = described("Ministral3ForCausalLM",
                  MINISTRAL "\"original_max_position_embeddings\": 32, \"llama_4_scaling_beta\": 0.1}");
    assert_true(d.attend.temperature == 0.1f && d.attend.temperature_on_all);
    refused("MistralForCausalLM", MINISTRAL "\"original_max_position_embeddings\": 32}",
            "llama_4_scaling_beta is missing");
    refused("MistralForCausalLM",
            "\"intermediate_size\": 48, \"rope_parameters\": {\"llama_4_scaling_beta\": 0.1}",
            "needs original_max_position_embeddings");
    refused("MistralForCausalLM",
            MINISTRAL "\"original_max_position_embeddings\": 32, \"llama_4_scaling_beta\": \"big\"}",
            "llama_4_scaling_beta must be a finite number");
}

TEST(ministral_3_is_read_from_gguf) {
    model_plan p = plan_llama_as("mistral3");
    model_desc d;
    quire_error err = {0};
    set_str(&p, "mistral3.rope.scaling.type", "yarn");
    set_f32(&p, "mistral3.rope.scaling.factor", 4.0f);
    set_u32(&p, "mistral3.rope.scaling.original_context_length", 32);
    set_f32(&p, "mistral3.rope.scaling.yarn_log_multiplier", 1.0f);
    set_f32(&p, "mistral3.attention.temperature_scale", 0.1f);
    plan_file f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_true(d.attend.temperature == 0.1f && d.attend.temperature_on_all);
    assert_int_equal(d.attend.temperature_length, 32);
    assert_int_equal(d.ropes[0].kind, ROPE_YARN);
    assert_true(d.ropes[0].attention_factor == 1.0f); /* YaRN's own growth is taken back */
    assert_int_equal(d.layers[0].window, 0);
}

/* ---- Llama 4's experts ---- */

TEST(llama_4_has_dense_layers_between_those_of_experts) {
    model_desc d = described("Llama4ForCausalLM", LLAMA4 ", \"interleave_moe_layer_step\": 2");
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].n_experts, i % 2 == 1 ? 4 : 0);
        assert_int_equal(d.layers[i].d_ff, i % 2 == 1 ? 0 : 48);
    }
    assert_int_equal(d.moe.d_expert, 16);
    assert_int_equal(d.moe.d_shared, 16);
    assert_true(d.moe.scale_inputs);
    d = described("Llama4ForCausalLM", LLAMA4 ", \"moe_layers\": [0]");
    assert_int_equal(d.layers[0].n_experts, 4);
    assert_int_equal(d.layers[1].n_experts, 0);
    refused("Llama4ForCausalLM", LLAMA4 ", \"moe_layers\": [4]", "moe_layers");
}

/* ---- Gemma 4 ---- */

#define GEMMA4                                                                                               \
    "\"intermediate_size\": 48, \"num_key_value_heads\": 2, \"sliding_window\": 16, "                        \
    "\"hidden_size_per_layer_input\": 4, "                                                                   \
    "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\", "                   \
    "\"full_attention\"], "                                                                                  \
    "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\", "                           \
    "\"partial_rotary_factor\": 0.5, \"rope_theta\": 1e6}, "                                                 \
    "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}}"

TEST(gemma_4_has_wide_heads_where_it_sees_all) {
    static const char *const ways[] = {
        ", \"attention_k_eq_v\": true, \"global_head_dim\": 16, \"num_global_key_value_heads\": 1",
        ", \"per_layer_config\": {\"1\": {\"head_dim\": 16, \"num_key_value_heads\": 1}, "
        "\"3\": {\"head_dim\": 16, \"num_key_value_heads\": 1}}"};
    for (int w = 0; w < 2; w++) {
        char more[1024];
        snprintf(more, sizeof more, "%s%s", GEMMA4, ways[w]);
        model_desc d = described("Gemma4ForCausalLM", more);
        for (int32_t i = 0; i < 4; i++) {
            bool is_wide = i % 2 == 1;
            assert_int_equal(d.caches[i].d_key, is_wide ? 16 : 8);
            assert_int_equal(d.caches[i].d_value, is_wide ? 16 : 8);
            assert_int_equal(d.caches[i].n_kv_heads, is_wide ? 1 : 2);
            assert_int_equal(d.caches[i].kind, is_wide ? LAYER_FULL : LAYER_WINDOW);
            assert_int_equal(d.ropes[d.layers[i].rope].n_dims, is_wide ? 16 : 8);
        }
        assert_true(d.attention_scale == 1.0f);
    }
}

/* Half of the pairs turn at the frequencies of the whole head; the others stand still. */
TEST(proportional_rotary_embedding_stops_the_last_pairs) {
    model_desc d = described("Gemma4ForCausalLM", GEMMA4 ", \"global_head_dim\": 16");
    const rope_desc *r = &d.ropes[d.layers[1].rope];
    assert_true(r->has_factors && r->theta == 1e6f);
    for (int32_t i = 0; i < 8; i++) {
        assert_true(r->factors[i] == (i < 4 ? 1.0f : 1e30f));
    }
    assert_false(d.ropes[d.layers[0].rope].has_factors);
}

TEST(gemma_4s_last_layers_read_the_cache_of_their_kind) {
    model_desc d =
        described("Gemma4ForCausalLM", GEMMA4 ", \"num_kv_shared_layers\": 2, \"use_double_wide_mlp\": true");
    assert_int_equal(d.n_caches, 2);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].caches[0], i % 2);
        assert_int_equal(d.layers[i].d_ff, i < 2 ? 48 : 96);
    }
    refused("Gemma4ForCausalLM", GEMMA4 ", \"num_kv_shared_layers\": 3", "no earlier layer of its kind");
    refused("Gemma4ForCausalLM", GEMMA4 ", \"num_kv_shared_layers\": 4", "of its own");
}

TEST(gemma_4s_experts_stand_beside_the_mlp) {
    const char *beside = GEMMA4
        ", \"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 8, \"enable_moe_block\": ";
    char more[1024];
    snprintf(more, sizeof more, "%strue", beside);
    model_desc d = described("Gemma4ForCausalLM", more);
    assert_int_equal(d.layers[3].n_experts, 4);
    assert_int_equal(d.layers[3].d_ff, 48);
    snprintf(more, sizeof more, "%sfalse", beside);
    assert_int_equal(described("Gemma4ForCausalLM", more).layers[3].n_experts, 0);
}

TEST(what_gemma_4_cannot_have_is_refused) {
    refused("Gemma4ForCausalLM", GEMMA4 ", \"use_bidirectional_attention\": \"all\"",
            "other than \"vision\"");
    refused("Gemma4ForCausalLM", GEMMA4 ", \"hidden_size_per_layer_input\": 1000000000",
            "hidden_size_per_layer_input");
    refused("Gemma4ForCausalLM", GEMMA4 ", \"global_head_dim\": 1200",
            "global_head_dim must be from 1 to 512");
    refused("Gemma4ForCausalLM", GEMMA4 ", \"per_layer_config\": {\"1\": {\"head_dim\": 1200}}",
            "head_dim must be from 1 to 512");
    refused("Gemma4ForCausalLM", GEMMA4 ", \"per_layer_config\": {\"3\": {\"head_dim\": 0}}",
            "head_dim must be from 1 to 512");
    refused("Gemma4ForCausalLM",
            "\"intermediate_size\": 48, \"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 1e4}}",
            "rope_parameters");
}

TEST_MAIN(NULL, NULL)

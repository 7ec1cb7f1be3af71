/* Configurations of latent attention, selected keys and experts with routing of their
 * own: defaults where config.json has no number, and what is refused. */
#include <math.h>

#include "describe_config.h"

#define SIZES                                                                                                \
    "\"hidden_size\": 32, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"vocab_size\": 40, "        \
    "\"intermediate_size\": 48, \"max_position_embeddings\": 128"

static quire_err describe(const char *architecture, const char *more, model_desc *d, quire_error *err) {
    char numbers[1536];
    (void)snprintf(numbers, sizeof numbers, SIZES "%s%s", more[0] != 0 ? ", " : "", more);
    return describe_config(architecture, numbers, "x", d, err);
}

static model_desc described(const char *architecture, const char *more) {
    model_desc d;
    quire_error err = {0};
    if (describe(architecture, more, &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, more, err.message);
    }
    return d;
}

static void refused(const char *architecture, const char *more, const char *what) {
    model_desc d;
    quire_error err = {0};
    if (describe(architecture, more, &d, &err) == QUIRE_OK || strstr(err.message, what) == NULL) {
        fail_msg("%s, %s: expected a refusal about \"%s\": \"%s\"", architecture, more, what, err.message);
    }
}

static void widths_are(const char *architecture, const char *more, latent_desc want) {
    model_desc d = described(architecture, more);
    const latent_desc *m = &d.latent;
    if (m->q_rank != want.q_rank || m->rank != want.rank || m->d_nope != want.d_nope ||
        m->d_rope != want.d_rope || m->d_value != want.d_value) {
        fail_msg("%s, %s: %d, %d, %d + %d, %d", architecture, more, m->q_rank, m->rank, m->d_nope, m->d_rope,
                 m->d_value);
    }
    assert_int_equal(d.caches[0].kind, LAYER_LATENT);
    assert_int_equal(d.caches[0].d_latent, want.rank + want.d_rope);
    assert_true(m->eps == 1e-6f);
}

TEST(widths_are_the_published_ones_unless_the_file_says_others) {
    widths_are("DeepseekV3ForCausalLM", "\"rms_norm_eps\": 1e-5",
               (latent_desc){1536, 512, 128, 64, 128, 0, 0, 0, false, false});
    widths_are("DeepseekV2ForCausalLM", "\"num_experts_per_tok\": 2, \"q_lora_rank\": null",
               (latent_desc){0, 512, 128, 64, 128, 0, 0, 0, false, false});
    widths_are("Glm4MoeLiteForCausalLM", "", (latent_desc){768, 512, 192, 64, 256, 0, 0, 0, false, false});
    widths_are("MiniCPM3ForCausalLM", "", (latent_desc){768, 256, 64, 32, 8, 0, 0, 0, false, false});
    widths_are("DeepseekV3ForCausalLM",
               "\"q_lora_rank\": 12, \"kv_lora_rank\": 17, \"qk_nope_head_dim\": 9, \"qk_rope_head_dim\": 6, "
               "\"v_head_dim\": 11",
               (latent_desc){12, 17, 9, 6, 11, 0, 0, 0, false, false});
}

TEST(layers_are_dense_as_the_file_says) {
    model_desc d = described("DeepseekV3ForCausalLM", "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 2");
    const bool want[] = {false, false, true, false};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].n_experts > 0, want[i]);
    }
    d = described("Glm4MoeLiteForCausalLM",
                  "\"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", \"dense\"]");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].n_experts > 0, i % 2 == 0);
    }
    refused("DeepseekV3ForCausalLM", "\"moe_layer_freq\": 0", "moe_layer_freq");
    refused("DeepseekV3ForCausalLM", "\"mlp_layer_types\": [\"windy\"]", "mlp_layer_types");
}

/* The rotation itself grows (0: as YaRN says) where a file has no mscale_all_dim. */
TEST(yarn_of_a_gguf_file_grows_either_scores_or_the_rotation) {
    const float growth = 0.1f * logf(8.0f) + 1.0f;
    for (int has_all = 0; has_all < 2; has_all++) {
        model_plan p = plan_llama_as("deepseek2");
        model_desc d;
        quire_error err = {0};
        set_u32(&p, "deepseek2.attention.kv_lora_rank", 32);
        set_u32(&p, "deepseek2.attention.key_length_mla", 20);
        set_u32(&p, "deepseek2.attention.value_length_mla", 16);
        set_u32(&p, "deepseek2.rope.dimension_count", 8);
        set_u32(&p, "deepseek2.leading_dense_block_count", 2);
        set_u32(&p, "deepseek2.expert_count", 4);
        set_u32(&p, "deepseek2.expert_used_count", 2);
        set_u32(&p, "deepseek2.expert_feed_forward_length", 16);
        set_str(&p, "deepseek2.rope.scaling.type", "yarn");
        set_f32(&p, "deepseek2.rope.scaling.factor", 8.0f);
        set_u32(&p, "deepseek2.rope.scaling.original_context_length", 32);
        if (has_all) {
            set_f32(&p, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
        }
        plan_file f = plan_open(&p);
        const quire_err e = model_describe(f.f, &d, &err);
        plan_close(&f);
        assert_string_equal(err.message, "");
        assert_int_equal(e, QUIRE_OK);
        assert_float_equal(d.attention_scale, (has_all ? growth * growth : 1.0f) / sqrtf(20.0f), 1e-6f);
        assert_float_equal(d.ropes[0].attention_factor, has_all ? 1.0f : 0.0f, 0.0f);
    }
}

TEST(yarn_scales_scores_by_its_own_number) {
    const char *yarn = "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8.0, \"mscale\": 1.0, "
                       "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 32}, "
                       "\"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 8";
    model_desc d = described("DeepseekV3ForCausalLM", yarn);
    const float growth = 0.1f * logf(8.0f) + 1.0f;
    assert_true(fabsf(d.attention_scale - growth * growth / sqrtf(20.0f)) < 1e-6f);
    assert_true(fabsf(d.ropes[0].attention_factor - 1.0f) < 1e-6f);
    assert_int_equal(d.ropes[0].pairs, ROPE_NEIGHBOURS);
    d = described("DeepseekV3ForCausalLM", "\"rope_interleave\": false");
    assert_int_equal(d.ropes[0].pairs, ROPE_HALVES);
    d = described("MiniCPM3ForCausalLM", "");
    assert_int_equal(d.ropes[0].pairs, ROPE_HALVES);
}

TEST(greedy_choices_have_no_groups) {
    const char *groups = "\"num_experts_per_tok\": 2, \"n_group\": 4, \"topk_group\": 2";
    char more[256];
    assert_int_equal(described("DeepseekV2ForCausalLM", groups).moe.n_groups, 0);
    (void)snprintf(more, sizeof more, "%s, \"topk_method\": \"group_limited_greedy\"", groups);
    assert_int_equal(described("DeepseekV2ForCausalLM", more).moe.n_groups, 4);
    assert_int_equal(described("DeepseekV2ForCausalLM",
                               "\"num_experts_per_tok\": 2, \"n_group\": null, \"topk_group\": null")
                         .moe.n_groups,
                     0);
    refused("DeepseekV3ForCausalLM", "\"topk_method\": \"by_lot\"", "topk_method");
    refused("DeepseekV2ForCausalLM", "", "experts"); /* how many a row uses has no published number */
}

/* Experts of closed groups are never chosen, but for A.X K2, where they count as 0. */
TEST(shared_experts_and_closed_groups_are_the_published_ones) {
    static const char *const architectures[] = {
        "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM",  "AXK1ForCausalLM",      "GlmMoeDsaForCausalLM",
        "AXK2ForCausalLM",       "Glm4MoeLiteForCausalLM",  "Glm4MoeForCausalLM",   "SolarOpenForCausalLM",
        "Dots1ForCausalLM",      "BailingMoeV3ForCausalLM", "KimiLinearForCausalLM"};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const char *name = architectures[i];
        const char *used = "\"num_experts_per_tok\": 2, \"n_routed_experts\": 8, \"mla_use_nope\": true, "
                           "\"num_key_value_heads\": 4";
        char more[256];
        model_desc d = described(name, used);
        assert_int_equal(d.moe.closed_is_zero, strcmp(name, "AXK2ForCausalLM") == 0);
        assert_int_equal(d.moe.d_shared, strcmp(name, "Dots1ForCausalLM") == 0 ? 0 : d.moe.d_expert);
        (void)snprintf(more, sizeof more, "%s, \"n_shared_experts\": null", used);
        assert_int_equal(described(name, more).moe.d_shared, 0);
    }
    model_desc d = described("DeepseekV2ForCausalLM", "\"num_experts_per_tok\": 2");
    assert_int_equal(d.moe.d_shared, 2 * d.moe.d_expert);
    d = described("Ernie4_5_MoeForCausalLM", "\"num_key_value_heads\": 4, \"num_experts_per_tok\": 2");
    assert_int_equal(d.moe.d_shared, 2 * d.moe.d_expert);
    assert_int_equal(described("BailingMoeV3ForCausalLM", "\"num_key_value_heads\": 4").latent.q_rank, 0);
    d = described("MiniCPM3ForCausalLM", "");
    assert_true(d.tied_embeddings);
    assert_true(d.embed.scale == 12.0f && d.head.scale == 256.0f / (float)d.d_model);
}

TEST(layers_share_a_choice_as_the_file_says) {
    model_desc d =
        described("GlmMoeDsaForCausalLM",
                  "\"indexer_types\": [\"full\", \"shared\", \"shared\", \"full\"], \"index_topk\": 7");
    assert_int_equal(d.index.n_best, 7);
    assert_int_equal(d.n_caches, 6);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].caches[CACHE_SECOND] >= 0, i % 3 == 0);
    }
    assert_int_equal(d.ropes[d.index.rope].pairs, ROPE_NEIGHBOURS);
    d = described("DeepseekV32ForCausalLM", "");
    assert_int_equal(d.ropes[d.index.rope].pairs, ROPE_HALVES);
    assert_int_equal(d.caches[d.layers[3].caches[CACHE_SECOND]].d_latent, 128);
    refused("GlmMoeDsaForCausalLM", "\"indexer_types\": [\"shared\", \"full\"]", "indexer_types");
    refused("DeepseekV32ForCausalLM", "\"index_topk\": 0", "index_topk");
    refused("DeepseekV32ForCausalLM", "\"index_head_dim\": 32", "index heads");
    refused("DeepseekV32ForCausalLM", "\"q_lora_rank\": null", "queries must come from a latent");
}

TEST(a_layer_of_longcat_has_two_attentions_and_experts_that_give_their_row) {
    model_desc d =
        described("LongcatFlashForCausalLM",
                  "\"n_routed_experts\": 6, \"zero_expert_num\": 3, \"moe_topk\": 2, \"kv_lora_rank\": 8");
    assert_int_equal(d.n_caches, 8);
    assert_int_equal(d.layers[0].n_experts, 9);
    assert_int_equal(d.moe.n_identity, 3);
    assert_true(fabsf(d.latent.latent_scale - 2.0f) < 1e-6f);
    refused("LongcatFlashForCausalLM", "\"zero_expert_num\": 4000", "zero_expert_num");
    refused("LongcatFlashForCausalLM", "\"n_routed_experts\": 2147483647", "n_routed_experts");
}

/* Mistral Large 4, whose description reads a tensor: one pair of each head rotates. */
#define LARGE4(more)                                                                                         \
    SIZES ", \"qk_rope_head_dim\": 2, \"kv_lora_rank\": 8, \"index_head_dim\": 6, "                          \
          "\"qk_nope_head_dim\": 5, \"rope_parameters\": {\"rope_theta\": 1e4}" more

static void large4_refused(const char *numbers, const char *tensor, const char *what) {
    model_desc d;
    quire_error err = {0};
    if (describe_config("MistralLarge4ForConditionalGeneration", numbers, tensor, &d, &err) == QUIRE_OK ||
        strstr(err.message, what) == NULL) {
        fail_msg("%s: expected a refusal about \"%s\": \"%s\"", numbers, what, err.message);
    }
}

TEST(layers_share_latents_and_lose_their_rotary_part_as_the_file_says) {
    const char *numbers = LARGE4(", \"no_rope_layers\": [1, 1, 0, 1], \"kv_source_layers\": [0, 1, 2, 1], "
                                 "\"indexer_types\": [\"full\", \"full\", \"shared\", \"full\"]");
    model_desc d;
    quire_error err = {0};
    assert_int_equal(
        describe_config("MistralLarge4ForConditionalGeneration", numbers, "lerope.alpha", &d, &err),
        QUIRE_OK);
    assert_int_equal(d.n_caches, 6); /* three of latents, three of index keys */
    assert_int_equal(d.layers[3].caches[CACHE_ATTENTION], d.layers[1].caches[CACHE_ATTENTION]);
    assert_int_equal(d.caches[d.layers[1].caches[CACHE_ATTENTION]].d_latent, 10);
    assert_int_equal(d.caches[d.layers[2].caches[CACHE_ATTENTION]].d_latent, 8);
    assert_int_equal(d.layers[2].rope, NO_ROPE);
    assert_int_equal(d.layers[2].caches[CACHE_SECOND], NO_CACHE);
    assert_true(d.ropes[0].multiplies && d.ropes[0].factors[0] > 0.0f);
    assert_true(fabsf(d.attention_scale - 1.0f / sqrtf(7.0f)) < 1e-6f);
    large4_refused(SIZES, "lerope.alpha", "rope_parameters is missing");
    large4_refused(numbers, "x", "lerope.alpha is missing");
    large4_refused(LARGE4(", \"qk_rope_head_dim\": 4"), "lerope.alpha", "one F32 number for each pair");
    large4_refused(LARGE4(", \"no_rope_layers\": [1]"), "lerope.alpha", "no_rope_layers");
    large4_refused(LARGE4(", \"kv_source_layers\": [0, 1]"), "lerope.alpha", "a number for each layer");
    large4_refused(LARGE4(", \"kv_source_layers\": [0, 2, 2, 3]"), "lerope.alpha",
                   "must name earlier layers");
    large4_refused(LARGE4(", \"kv_source_layers\": [0, 0, 1, 3]"), "lerope.alpha", "of their own");
    large4_refused(LARGE4(", \"kv_source_layers\": [0, 1, 2, 0]"), "lerope.alpha", "the same positions");
}

TEST(blocks_and_pools_of_keys_are_as_the_file_says) {
    const char *m3 = "MiniMaxM3SparseForConditionalGeneration", *glm = "Glm5NextForConditionalGeneration",
               *qwen = "Qwen4ExpForConditionalGeneration",
               *index = "\"indexer_n_heads\": 2, \"indexer_head_dim\": 128, \"indexer_budget\": 11, "
                        "\"indexer_compress_ratio\": 4",
               *m3_index = "\"num_key_value_heads\": 2, \"index_n_heads\": 2, \"index_topk_blocks\": 3, "
                           "\"index_block_size\": 8, \"layer_types\": [\"full_attention\", "
                           "\"minimax_m3_sparse\", \"minimax_m3_sparse\", \"full_attention\"]";
    model_desc d = described(m3, m3_index);
    assert_true(d.index.kind == CHOOSE_BLOCKS && d.index.n_best == 24 && d.index.n_own == 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(d.layers[i].caches[CACHE_SECOND] >= 0, i == 1 || i == 2);
    }
    d = described(glm, "\"index_topk\": 30, \"index_kpool\": 4, \"hc_mult\": 3");
    assert_true(d.index.kind == CHOOSE_POOLS && d.index.n_best == 28 && d.index.gated_pools);
    assert_int_equal(d.index.rope, NO_ROPE);
    assert_int_equal(d.streams.n, 3);
    assert_int_equal(d.caches[d.layers[3].caches[CACHE_CONV]].unit_bytes, 2 * 64 * 3 * 4);
    d = described(qwen, index);
    assert_true(d.index.kind == CHOOSE_POOLS && d.index.n_best == 8 && !d.index.gated_pools);
    assert_int_equal(d.ropes[d.index.key_rope].behind, 3);
    refused(m3,
            "\"num_key_value_heads\": 2, \"index_n_heads\": 3, \"layer_types\": "
            "[\"minimax_m3_sparse\", \"minimax_m3_sparse\", \"minimax_m3_sparse\", \"minimax_m3_sparse\"]",
            "3 index heads for 2");
    refused("AXK2ForCausalLM", "\"gated_norm_rank\": 0", "gated_norm_rank");
    refused(m3, "\"index_topk_blocks\": 2000000000", "index_topk_blocks");
    refused(m3, "\"layer_types\": [\"windy\"]", "layer_types");
    refused(m3, "\"swiglu_alpha\": 2.0", "swiglu_alpha");
    refused(glm, "\"index_kpool\": 1", "index_kpool");
    refused(glm, "\"index_kpool_always_select_tail\": false", "always_select_tail");
    refused(glm, "\"hc_mult\": 9", "hc_mult");
    refused(glm, "\"hidden_act\": \"gelu\"", "hidden_act");
    refused(glm, "\"qk_rope_head_dim\": 64", "qk_rope_head_dim");
    refused(qwen, "", "indexer_n_heads");
    refused(qwen,
            "\"indexer_n_heads\": 2, \"indexer_head_dim\": 128, \"indexer_budget\": 8, "
            "\"indexer_compress_ratio\": 17",
            "indexer_compress_ratio");
}

/* The numbers of n-grams of Qwen4, whose tables are tensors of the file. */
TEST(numbers_of_n_grams_that_no_model_has_are_refused) {
    static const char *const rows[][2] = {
        {"\"ple_layer_ids\": [1, 2]", "more than one layer"},
        {"\"ple_layer_ids\": [5]", "ngram_size"},
        {"\"ple_layer_ids\": [1], \"ngram_size\": 9", "ngram_size"},
        {"\"ple_layer_ids\": [1], \"heads_per_ngram\": 33", "ngram_size"},
        {"\"ple_layer_ids\": [1], \"ple_conv_kernel_size\": 7", "ngram_size"},
        {"\"ple_layer_ids\": [1], \"ple_conv_kernel_size\": 1610612736", "ngram_size"},
        {"\"ple_layer_ids\": [1], \"ple_embed_dim\": 3", "ple_embed_dim"},
        {"\"ple_layer_ids\": [1], \"ple_embed_dim\": 32", "shard_0"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char more[512];
        (void)snprintf(more, sizeof more,
                       "\"indexer_n_heads\": 2, \"indexer_head_dim\": 128, \"indexer_budget\": 8, "
                       "\"indexer_compress_ratio\": 4, \"eos_token_id\": 2, \"split_ngram_parts\": 1, %s",
                       rows[i][0]);
        refused("Qwen4ExpForConditionalGeneration", more, rows[i][1]);
    }
}

TEST(widths_that_no_model_has_are_refused) {
    static const char *const rows[][2] = {{"\"kv_lora_rank\": 0", "rank 0"},
                                          {"\"kv_lora_rank\": 100000", "rank 100000"},
                                          {"\"kv_lora_rank\": 2047", "too wide"},
                                          {"\"qk_rope_head_dim\": 0", "+ 0"},
                                          {"\"qk_nope_head_dim\": 2000000000", "2000000000"},
                                          {"\"v_head_dim\": 0", "values of 0"},
                                          {"\"kv_lora_rank\": \"x\"", "kv_lora_rank"},
                                          {"\"qk_rope_head_dim\": 7", "rotary"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        refused("DeepseekV3ForCausalLM", rows[i][0], rows[i][1]);
    }
}

TEST_MAIN(NULL, NULL)

/* The steps of layers: each model family's list, and when a norm's output is kept. */
#include "describe_config.h"

#include "model/steps.h"

#define SIZES                                                                                                \
    "\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": "   \
    "null, "                                                                                                 \
    "\"intermediate_size\": 64, \"vocab_size\": 40, \"max_position_embeddings\": 128"

#define PRE_NORM       "norm attend add norm mlp add"
#define EXPERTS        "norm attend add norm moe add"
#define LATENT_EXPERTS "norm latent add norm moe add"
#define LATENT_MLP     "norm latent add norm mlp add"
#define SANDWICH       "norm attend norm add norm mlp norm add"
#define BRANCH_NORM    "attend norm add mlp norm add"
#define POST_NORM      "attend add norm(x) mlp add norm(x)"
#define PARALLEL       "norm attend add mlp add"
#define PARALLEL_NORMS "norm norm attend add mlp add"
#define GLM5           "\"layer_types\": [\"linear_attention\", \"indexed_attention\"]"
#define QWEN4                                                                                                \
    "\"indexer_n_heads\": 2, \"indexer_head_dim\": 128, \"indexer_budget\": 8, \"indexer_compress_ratio\": " \
    "4"
#define SPARK                                                                                                \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, "                   \
    "\"moe_hidden_size\": 8, \"mlp_layer_types\": [\"dense\", \"sparse\"]"

static void expect_layer(const char *architecture, const char *more, int32_t layer, const char *expected) {
    char numbers[1024], text[256];
    model_desc d;
    quire_error err = {0};
    (void)snprintf(numbers, sizeof numbers, SIZES "%s%s", more[0] != 0 ? ", " : "", more);
    if (describe_config(architecture, numbers, "x", &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, more, err.message);
    }
    steps_text(d.layers[layer].steps, text, sizeof text);
    if (strcmp(text, expected) != 0) {
        fail_msg("%s, %s, layer %d: \"%s\", expected \"%s\"", architecture, more, (int)layer, text, expected);
    }
}

TEST(a_familys_list_reads_like_its_paper) {
    static const struct {
        const char *architecture, *more, *steps;
    } rows[] = {
        {"LlamaForCausalLM", "", PRE_NORM},
        {"DeepseekV3ForCausalLM", "", LATENT_MLP},
        {"DeepseekV3ForCausalLM", "\"first_k_dense_replace\": 0", LATENT_EXPERTS},
        {"DeepseekV2ForCausalLM", "\"num_experts_per_tok\": 2", LATENT_EXPERTS},
        {"Glm4MoeLiteForCausalLM", "\"first_k_dense_replace\": 0", LATENT_EXPERTS},
        {"Mistral4ForCausalLM", "", LATENT_EXPERTS},
        {"MiniCPM3ForCausalLM", "", LATENT_MLP},
        {"YoutuForCausalLM", "", LATENT_MLP},
        {"DeepseekV32ForCausalLM", "", LATENT_MLP},
        {"GlmMoeDsaForCausalLM", "\"first_k_dense_replace\": 0", LATENT_EXPERTS},
        {"LongcatFlashForCausalLM", "", "norm latent add norm moe mlp add norm latent add norm mlp add add"},
        {"MiniMaxM3SparseForConditionalGeneration", "\"mlp_layer_types\": [\"dense\", \"dense\"]", PRE_NORM},
        {"MiniMaxM3SparseForConditionalGeneration", "", EXPERTS},
        {"Qwen4ExpForConditionalGeneration", QWEN4, "gather delta scatter gather moe scatter"},
        {"Qwen4ExpForConditionalGeneration",
         QWEN4 ", \"layer_types\": [\"full_attention\", \"full_attention\"]",
         "gather attend scatter gather moe scatter"},
        {"AXK2ForCausalLM", "\"mlp_layer_types\": [\"dense\", \"dense\"]",
         "norm gate latent add norm mlp add"},
        {"AXK2ForCausalLM", "\"first_k_dense_replace\": 0", "norm gate latent add norm gate moe add"},
        {"AXK1ForCausalLM",
         "\"first_k_dense_replace\": 0, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "
         "\"moe_intermediate_size\": 8",
         "norm latent add norm moe norm add"},
        {"MixtralForCausalLM", "", EXPERTS},
        {"Qwen3MoeForCausalLM", "", EXPERTS},
        {"GPT2LMHeadModel", "", PRE_NORM},
        {"GPTJForCausalLM", "\"rotary_dim\": 4", PARALLEL},
        {"PhiForCausalLM", "", PARALLEL},
        {"CohereForCausalLM", "", PARALLEL},
        {"GPTNeoXForCausalLM", "", PARALLEL_NORMS},
        {"GPTNeoXForCausalLM", "\"use_parallel_residual\": false", PRE_NORM},
        {"StableLmForCausalLM", "\"use_parallel_residual\": true", PARALLEL},
        {"StableLmForCausalLM", "", PRE_NORM},
        {"FalconForCausalLM", "", PARALLEL},
        {"FalconForCausalLM", "\"new_decoder_architecture\": true", PARALLEL_NORMS},
        {"FalconForCausalLM", "\"new_decoder_architecture\": true, \"num_ln_in_parallel_attn\": 1", PARALLEL},
        {"FalconForCausalLM", "\"alibi\": true, \"parallel_attn\": false", PRE_NORM},
        {"BloomForCausalLM", "", PRE_NORM},
        {"BloomForCausalLM", "\"apply_residual_connection_post_layernorm\": true",
         "norm(x) attend add norm(x) mlp add"},
        {"GemmaForCausalLM", "", PRE_NORM},
        {"VaultGemmaForCausalLM", "", PRE_NORM},
        {"Gemma2ForCausalLM", "", SANDWICH},
        {"Gemma3ForCausalLM", "", SANDWICH},
        {"GlmForCausalLM", "", PRE_NORM},
        {"Glm4ForCausalLM", "", SANDWICH},
        {"Lfm2ForCausalLM", "", PRE_NORM},
        {"HyperCLOVAXForCausalLM", "", SANDWICH},
        {"Olmo2ForCausalLM", "", BRANCH_NORM},
        {"Exaone4ForCausalLM", "", BRANCH_NORM},
        {"FlexOlmoForCausalLM", "", "attend norm add moe norm add"},
        {"NanoChatForCausalLM", "", PRE_NORM},
        {"BitNetForCausalLM", "", PRE_NORM},
        {"MuseGlimmerForConditionalGeneration", "", SANDWICH},
        {"Gemma4UnifiedForCausalLM", "", SANDWICH " scale"},
        {"Gemma3nForCausalLM", "\"num_kv_shared_layers\": 0, \"laurel_rank\": 4",
         "predict norm laurel attend norm add join norm mlp norm add correct input norm spread"},
        {"OPTForCausalLM", "", PRE_NORM},
        {"OPTForCausalLM", "\"do_layer_norm_before\": false", POST_NORM},
        {"MambaForCausalLM", "", "norm mamba add"},
        {"GraniteMoeHybridForCausalLM", "\"mamba_d_head\": 8, \"mamba_n_heads\": 8",
         "norm mamba add norm moe add"},
        {"BambaForCausalLM", "\"mamba_d_head\": 8, \"mamba_n_heads\": 8", "norm mamba add norm mlp add"},
        {"FalconH1ForCausalLM", "", "norm norm attend add mamba add norm mlp add"},
        {"RecurrentGemmaForCausalLM", "", "norm lru add norm mlp add"},
        {"Zamba2ForCausalLM", "\"layers_block_type\": [\"hybrid\", \"hybrid\"]", "shared add norm mamba add"},
        {"BertModel", "", POST_NORM},
        {"NomicBertModel", "", POST_NORM},
        {"Gemma4ForCausalLM", "\"hidden_size_per_layer_input\": 0", SANDWICH " scale"},
        {"Gemma4ForCausalLM", "", SANDWICH " input norm add scale"},
        {"Gemma4ForCausalLM",
         "\"enable_moe_block\": true, \"num_experts\": 4, \"top_k_experts\": 1, \"moe_intermediate_size\": 8",
         "norm attend norm add norm mlp norm norm moe norm add norm add input norm add scale"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_layer(rows[i].architecture, rows[i].more, 0, rows[i].steps);
        expect_layer(rows[i].architecture, rows[i].more, 1, rows[i].steps);
    }
}

TEST(layers_of_one_model_may_have_different_lists) {
    expect_layer("ModernBertModel", "", 0, "attend add norm mlp add");
    expect_layer("ModernBertModel", "", 1, PRE_NORM);
    expect_layer("Llama4ForCausalLM", "\"interleave_moe_layer_step\": 2", 0, PRE_NORM);
    expect_layer("Llama4ForCausalLM", "\"interleave_moe_layer_step\": 2", 1, EXPERTS);
    expect_layer("Glm5NextForConditionalGeneration", GLM5, 0,
                 "gather norm delta scatter gather norm mlp scatter");
    expect_layer("Glm5NextForConditionalGeneration", GLM5, 1,
                 "gather norm latent scatter gather norm moe scatter");
    expect_layer("Glm4MoeForCausalLM", "", 0, PRE_NORM);
    expect_layer("Glm4MoeForCausalLM", "", 1, EXPERTS);
    expect_layer("Ernie4_5_VLMoeForConditionalGeneration", "", 0, PRE_NORM);
    expect_layer("Ernie4_5_VLMoeForConditionalGeneration", "", 1, EXPERTS);
    expect_layer("Step3p5ForCausalLM", "\"moe_layers_enum\": \"1\"", 0, PRE_NORM);
    expect_layer("MuseSparkForConditionalGeneration", SPARK, 0, "norm attend norm blend norm mlp norm blend");
    expect_layer("MuseSparkForConditionalGeneration", SPARK, 1, "norm attend norm blend norm moe norm blend");
    expect_layer("Step3p5ForCausalLM", "\"moe_layers_enum\": \"1\"", 1, EXPERTS);
    expect_layer("Step3p5ForCausalLM", "\"mlp_layer_types\": [\"sparse\", \"dense\"]", 0, EXPERTS);
    expect_layer("Step3p5ForCausalLM", "\"mlp_layer_types\": [\"sparse\", \"dense\"]", 1, PRE_NORM);
    expect_layer("NemotronHForCausalLM", "\"hybrid_override_pattern\": \"ME\"", 0, "norm mamba add");
    expect_layer("NemotronHForCausalLM", "\"hybrid_override_pattern\": \"ME\"", 1, "norm moe add");
    expect_layer("NemotronHForCausalLM", "\"hybrid_override_pattern\": \"*-\"", 0, "norm attend add");
    expect_layer("NemotronHForCausalLM", "\"hybrid_override_pattern\": \"*-\"", 1, "norm mlp add");
    expect_layer("JambaForCausalLM", "", 0, "norm mamba add norm mlp add");
    expect_layer("JambaForCausalLM", "\"attn_layer_period\": 2, \"attn_layer_offset\": 1", 1, EXPERTS);
}

TEST(a_norm_is_kept_that_is_read_after_the_residual_changed) {
    assert_true(step_is_kept(&steps_parallel[0]));
    assert_false(step_is_kept(&steps_parallel_norms[0]));
    assert_true(step_is_kept(&steps_parallel_norms[1]));
    for (size_t i = 0; steps_sandwich[i].kind != STEP_END; i++) {
        assert_false(steps_sandwich[i].kind == STEP_NORM && step_is_kept(&steps_sandwich[i]));
    }
    for (size_t i = 0; steps_post_norm[i].kind != STEP_END; i++) {
        assert_false(steps_post_norm[i].kind == STEP_NORM && step_is_kept(&steps_post_norm[i]));
    }
}

TEST(a_text_is_cut_to_its_room) {
    char text[12];
    steps_text(steps_pre_norm, text, sizeof text);
    assert_string_equal(text, "norm attend");
}

TEST_MAIN(NULL, NULL)

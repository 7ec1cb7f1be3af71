/* Published config.json files: the defaults of missing numbers, the meaning of null, and
 * numbers that are refused because Quire cannot compute them. The expected values are
 * those of the transformers library's own configurations. */
#include <math.h>

#include "describe_config.h"
#include "golden_model.h"
#include "model/steps.h"

#define SIZES "\"hidden_size\": 32, \"num_hidden_layers\": 6, \"intermediate_size\": 64, \"vocab_size\": 40"

static model_desc described(const char *architecture, const char *numbers) {
    model_desc d;
    quire_error err = {0};
    if (describe_config(architecture, numbers, "x", &d, &err) != QUIRE_OK) {
        fail_msg("%s, %s: %s", architecture, numbers, err.message);
    }
    return d;
}

static void refused_beside(const char *architecture, const char *numbers, const char *tensor,
                           const char *what) {
    model_desc d;
    quire_error err = {0};
    if (describe_config(architecture, numbers, tensor, &d, &err) == QUIRE_OK ||
        strstr(err.message, what) == NULL) {
        fail_msg("%s, %s: expected a refusal about \"%s\": \"%s\"", architecture, numbers, what, err.message);
    }
}

static void refused(const char *architecture, const char *numbers, const char *what) {
    refused_beside(architecture, numbers, "x", what);
}

TEST(a_left_out_number_is_the_published_one) {
    static const struct {
        const char *architecture;
        int32_t n_heads, n_kv_heads, d_head, max_positions;
        float eps, theta;
    } rows[] = {{"MixtralForCausalLM", 32, 8, 1, 131072, 1e-5f, 1e6f},
                {"Qwen3ForCausalLM", 32, 32, 128, 32768, 1e-6f, 1e4f},
                {"GemmaForCausalLM", 16, 16, 256, 8192, 1e-6f, 1e4f},
                {"Gemma3ForCausalLM", 8, 4, 256, 131072, 1e-6f, 1e6f},
                {"GlmForCausalLM", 32, 2, 128, 131072, 1.5625e-7f, 1e4f},
                {"Ernie4_5ForCausalLM", 16, 2, 128, 131072, 1e-5f, 5e5f},
                {"MiniMaxM2ForCausalLM", 48, 8, 128, 196608, 1e-6f, 5e6f},
                {"GptOssForCausalLM", 64, 8, 64, 131072, 1e-5f, 1.5e5f},
                {"SmolLM3ForCausalLM", 16, 4, 2, 32768, 1e-6f, 2e6f},
                {"Llama4ForCausalLM", 40, 8, 128, 131072, 1e-5f, 5e5f},
                {"Phi3ForCausalLM", 32, 32, 1, 4096, 1e-5f, 1e4f},
                {"FalconH1ForCausalLM", 32, 8, 1, 8192, 1e-5f, 1e4f},
                {"Jais2ForCausalLM", 26, 26, 1, 8192, 1e-5f, 1e4f},
                {"NomicBertModel", 12, 12, 2, 2048, 1e-12f, 1e3f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char numbers[256];
        bool narrow = rows[i].d_head < 4; /* the width / heads of these sizes is no head: given */
        (void)snprintf(numbers, sizeof numbers, SIZES "%s", narrow ? ", \"head_dim\": 8" : "");
        model_desc d = described(rows[i].architecture, numbers);
        assert_int_equal(d.layers[0].n_heads, rows[i].n_heads);
        assert_int_equal(d.caches[0].n_kv_heads, rows[i].n_kv_heads);
        assert_int_equal(d.caches[0].d_key, narrow ? 8 : rows[i].d_head);
        assert_int_equal(d.max_positions, rows[i].max_positions);
        assert_true(d.norm_eps == rows[i].eps);
        assert_true(d.ropes[0].theta == rows[i].theta);
    }
    model_desc d = described("MixtralForCausalLM", SIZES ", \"head_dim\": 8");
    assert_int_equal(d.layers[0].n_experts, 8);
    assert_int_equal(d.moe.n_used, 2);
    d = described("GraniteForCausalLM", SIZES ", \"head_dim\": 8");
    assert_true(d.attention_scale == 1.0f);
}

/* The text part of google/gemma-3-4b-it as it was published: no heads, no head width, no
 * vocabulary. */
TEST(the_smallest_published_config_is_described) {
    model_desc d = described(
        "Gemma3ForConditionalGeneration",
        "\"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, \"model_type\": "
        "\"gemma3_text\", "
        "\"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
        "\"sliding_window\": 1024}, \"model_type\": \"gemma3\", \"vision_config\": {\"hidden_size\": 1152}");
    assert_int_equal(d.n_vocab, 262208);
    assert_int_equal(d.layers[0].n_heads, 8);
    assert_int_equal(d.caches[0].n_kv_heads, 4);
    assert_int_equal(d.caches[0].d_key, 256);
    assert_true(d.attention_scale == 1.0f / 16.0f);
    assert_int_equal(d.layers[4].window, 1024);
    assert_int_equal(d.layers[5].window, 0);
    assert_true(d.ropes[0].theta == 1e6f && d.ropes[0].factor == 8.0f && d.ropes[1].theta == 1e4f &&
                d.ropes[1].factor == 1.0f);
}

/* The text part of llava-hf/llava-1.5-7b-hf as it was published: no sizes at all. */
TEST(a_text_of_another_class_has_its_sizes) {
    const char *published =
        "\"text_config\": {\"_name_or_path\": \"lmsys/vicuna-7b-v1.5\", \"architectures\": "
        "[\"LlamaForCausalLM\"], "
        "\"max_position_embeddings\": 4096, \"model_type\": \"llama\", \"rms_norm_eps\": 1e-05, "
        "\"vocab_size\": 32064}, \"vision_config\": {\"hidden_size\": 1024, \"num_hidden_layers\": 24}";
    model_desc d = described("LlavaForConditionalGeneration", published);
    assert_string_equal(d.architecture, "llama");
    assert_int_equal(d.d_model, 4096);
    assert_int_equal(d.n_layers, 32);
    assert_int_equal(d.layers[0].d_ff, 11008);
    assert_int_equal(d.caches[0].n_kv_heads, 32);
    assert_int_equal(d.n_vocab, 32064);
    assert_int_equal(d.max_positions, 4096);
    d = described("LlavaNextForConditionalGeneration",
                  "\"text_config\": {\"model_type\": \"mistral\", \"sliding_window\": null}");
    assert_int_equal(d.caches[0].n_kv_heads, 8);
    assert_int_equal(d.layers[31].window, 0);
    refused("LlavaForConditionalGeneration", "\"text_config\": {\"model_type\": \"cohere2\"}",
            "LlavaForConditionalGeneration with a text model");
    refused("LlavaForConditionalGeneration", "\"text_config\": {\"hidden_size\": 64}",
            "text_config.model_type in config.json is missing");
    refused("LlavaForConditionalGeneration", SIZES, "text_config.model_type in config.json is missing");
    refused("LlamaForCausalLM", "\"num_hidden_layers\": 2", "hidden_size is missing");
}

/* The lengths of the windows of six layers, as text: "4096 0 0 0 0 0". */
static void windows_are(const char *architecture, const char *more, const char *wanted) {
    char numbers[1024], found[128] = "";
    (void)snprintf(numbers, sizeof numbers,
                   SIZES ", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8%s%s",
                   more[0] != 0 ? ", " : "", more);
    model_desc d = described(architecture, numbers);
    for (int32_t i = 0; i < d.n_layers; i++) {
        size_t n = strlen(found);
        (void)snprintf(found + n, sizeof found - n, "%s%d", i > 0 ? " " : "", (int)d.layers[i].window);
    }
    assert_string_equal(found, wanted);
}

TEST(a_window_is_where_the_published_model_has_it) {
    windows_are("MistralForCausalLM", "", "4096 4096 4096 4096 4096 4096");
    windows_are("MistralForCausalLM", "\"sliding_window\": null", "0 0 0 0 0 0");
    windows_are("MinistralForCausalLM", "", "4096 4096 4096 4096 4096 4096");
    windows_are("MinistralForCausalLM",
                "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", "
                "\"full_attention\", "
                "\"sliding_attention\", \"full_attention\"]",
                "0 4096 0 0 4096 0");
    windows_are("MixtralForCausalLM", "", "0 0 0 0 0 0");
    windows_are("Exaone4ForCausalLM", "", "4096 4096 4096 0 4096 4096");
    windows_are("Exaone4ForCausalLM", "\"sliding_window\": null", "0 0 0 0 0 0");
    windows_are("Olmo3ForCausalLM", "", "4096 4096 4096 0 4096 4096");
    windows_are("Gemma2ForCausalLM", "\"sliding_window\": null", "0 0 0 0 0 0");
    windows_are("Qwen2ForCausalLM",
                "\"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 3",
                "0 0 0 7 7 7");
    /* from layer 28 on, and from 80 on */
    static const char *const names[] = {"Qwen2ForCausalLM", "Qwen2VLForConditionalGeneration"};
    for (int i = 0; i < 2; i++) {
        model_desc deep = described(
            names[i], "\"num_hidden_layers\": 30, \"hidden_size\": 32, \"num_attention_heads\": 4, "
                      "\"num_key_value_heads\": 2, \"use_sliding_window\": true, \"sliding_window\": 7");
        assert_int_equal(deep.layers[27].window, 0);
        assert_int_equal(deep.layers[28].window, i == 0 ? 7 : 0);
    }
    windows_are("Qwen2MoeForCausalLM",
                "\"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 3",
                "7 0 7 0 0 0");
    windows_are("Qwen3MoeForCausalLM",
                "\"use_sliding_window\": true, \"sliding_window\": 7, \"max_window_layers\": 3",
                "7 7 7 7 7 7");
    windows_are("SmolLM3ForCausalLM", "\"use_sliding_window\": true, \"sliding_window\": 7", "0 0 0 7 0 0");
    refused("MistralForCausalLM", SIZES ", \"head_dim\": 8, \"sliding_window\": 0",
            "sliding_window must be over 0, or null");
    refused("Gemma3ForCausalLM", SIZES ", \"layer_types\": [\"full_attention\"]",
            "layer_types must have one string for each layer");
    refused("Gemma3ForCausalLM", SIZES ", \"sliding_window_pattern\": 0",
            "sliding_window_pattern must be at least 1");
}

TEST(null_says_that_there_is_no_cap) {
    model_desc d = described("Gemma2ForCausalLM", SIZES);
    assert_true(d.attend.cap == 50.0f && d.head.cap == 30.0f);
    d = described("Gemma2ForCausalLM",
                  SIZES ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null");
    assert_true(d.attend.cap == 0.0f && d.head.cap == 0.0f);
    d = described("Gemma3ForCausalLM",
                  SIZES ", \"attn_logit_softcapping\": 4.0, \"final_logit_softcapping\": 5.0");
    /* Gemma 3's attention has no cap, whatever is said */
    assert_true(d.attend.cap == 0.0f && d.head.cap == 5.0f);
    refused("Gemma2ForCausalLM", SIZES ", \"attn_logit_softcapping\": -4.0",
            "attn_logit_softcapping must be over 0");
    refused("Gemma2ForCausalLM", SIZES ", \"query_pre_attn_scalar\": 0",
            "query_pre_attn_scalar must be over 0");
    refused("OlmoForCausalLM", SIZES ", \"head_dim\": 8, \"clip_qkv\": 0.0", "clip_qkv must be over 0");
    refused("CohereForCausalLM", SIZES ", \"head_dim\": 8, \"logit_scale\": 0.0",
            "logit_scale must be over 0");
    refused("GraniteForCausalLM", SIZES ", \"head_dim\": 8, \"residual_multiplier\": 0.0",
            "residual_multiplier must be over 0");
}

TEST(activations_are_read_where_each_model_has_them) {
    assert_int_equal(described("GemmaForCausalLM", SIZES ", \"hidden_act\": \"gelu\"").activation,
                     ACT_GELU_TANH);
    assert_int_equal(
        described("Gemma2ForCausalLM", SIZES ", \"hidden_activation\": \"gelu\", \"hidden_act\": \"silu\"")
            .activation,
        ACT_GELU);
    assert_int_equal(
        described("FalconForCausalLM", SIZES ", \"num_attention_heads\": 4, \"activation\": \"relu\"")
            .activation,
        ACT_RELU);
    model_desc d = described("GPTBigCodeForCausalLM",
                             "\"n_embd\": 32, \"n_layer\": 1, \"n_head\": 4, \"scale_attn_weights\": false");
    assert_true(d.attention_scale == 1.0f);
}

TEST(rotary_scaling_is_complete_or_refused) {
    model_desc d = described("GptOssForCausalLM", SIZES);
    assert_int_equal(d.ropes[0].kind, ROPE_YARN);
    assert_true(d.ropes[0].factor == 32.0f && d.ropes[0].original_positions == 4096 && !d.ropes[0].truncate);
    d = described("Phi3ForCausalLM", SIZES ", \"num_attention_heads\": 4, \"rope_scaling\": {\"type\": "
                                           "\"yarn\", \"short_factor\": [1, 1, 1, 2], "
                                           "\"long_factor\": [1, 1, 1, 4]}");
    assert_int_equal(d.ropes[0].kind, ROPE_LONGROPE); /* what Phi-3 called it first */
    assert_int_equal(d.ropes[0].original_positions, 4096);
    d = described("Olmo3ForCausalLM", SIZES ", \"num_attention_heads\": 4");
    assert_true(d.ropes[0].theta == 5e5f && d.ropes[1].theta == 5e5f);
    const char *llama = SIZES ", \"num_attention_heads\": 4, \"max_position_embeddings\": 64, ";
    char numbers[512];
    (void)snprintf(numbers, sizeof numbers, "%s\"rope_scaling\": {\"rope_type\": \"linear\"}", llama);
    refused("LlamaForCausalLM", numbers, "rope_scaling.factor is missing");
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"high_freq_factor\": 4}",
                   llama);
    refused("LlamaForCausalLM", numbers, "rope_scaling.low_freq_factor is missing");
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": null, "
                   "\"original_max_position_embeddings\": 16}",
                   llama);
    assert_true(described("LlamaForCausalLM", numbers).ropes[0].factor == 4.0f);
}

TEST(gemma4_reads_padded_numbers_of_layers) {
    const char *numbers = "\"hidden_size\": 32, \"num_hidden_layers\": 12, \"intermediate_size\": 64, "
                          "\"vocab_size\": 40, \"head_dim\": 8, "
                          "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"per_layer_config\": "
                          "{\"05\": {\"head_dim\": 16}, "
                          "\"11\": {\"head_dim\": 16}}";
    model_desc d = described("Gemma4ForCausalLM", numbers);
    assert_int_equal(d.caches[4].d_key, 8);
    assert_int_equal(d.caches[5].d_key, 16);
    assert_int_equal(d.caches[11].d_key, 16);
    /* no rope_parameters: a quarter rotates, as if all did */
    const rope_desc *full = &d.ropes[d.layers[5].rope];
    assert_int_equal(full->n_dims, 16);
    assert_true(full->theta == 1e6f && full->factors[1] == 1.0f && full->factors[2] == 1e30f);
    d = described("Gemma4ForCausalLM", SIZES
                  ", \"layer_types\": [\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
                  "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\"]");
    assert_int_equal(d.caches[0].d_key, 512);
    assert_int_equal(d.caches[1].d_key, 256);
    assert_int_equal(d.layers[5].window, 0); /* the last sees all */
}

TEST(bloom_is_described_by_its_own_names) {
    model_desc d = described(
        "BloomForCausalLM", "\"n_embed\": 64, \"n_layer\": 2, \"num_attention_heads\": 4, \"n_inner\": null");
    assert_int_equal(d.d_model, 64);
    assert_int_equal(d.layers[0].d_ff, 256);
    refused("BloomForCausalLM", "\"n_embd_\": 64, \"n_layer\": 2", "hidden_size is missing");
}

TEST(modernberts_local_base_may_be_its_global_one) {
    const char *base = SIZES ", \"num_attention_heads\": 4, \"global_rope_theta\": 5e4";
    char numbers[256];
    assert_true(described("ModernBertModel", base).ropes[1].theta == 1e4f);
    (void)snprintf(numbers, sizeof numbers, "%s, \"local_rope_theta\": null", base);
    model_desc d = described("ModernBertModel", numbers);
    assert_true(d.ropes[0].theta == 5e4f && d.ropes[1].theta == 5e4f);
    (void)snprintf(numbers, sizeof numbers, "%s, \"local_rope_theta\": 7e3", base);
    assert_true(described("ModernBertModel", numbers).ropes[1].theta == 7e3f);
}

TEST(ernies_experts_end_with_the_layer_that_is_named) {
    const char *base =
        SIZES ", \"num_attention_heads\": 4, \"moe_layer_start_index\": 1, \"moe_layer_end_index\": ";
    char numbers[256];
    for (int last = -1; last < 6; last += 4) {
        (void)snprintf(numbers, sizeof numbers, "%s%d", base, last);
        model_desc d = described("Ernie4_5_MoeForCausalLM", numbers);
        for (int32_t i = 0; i < 6; i++) {
            assert_int_equal(d.layers[i].n_experts, i >= 1 && (last < 0 || i <= last) ? 64 : 0);
        }
    }
    (void)snprintf(numbers, sizeof numbers, "%s-2", base);
    refused("Ernie4_5_MoeForCausalLM", numbers, "moe_layer_end_index must be a whole number of at least -1");
}

TEST(a_decoder_may_see_both_ways) {
    const char *plain = SIZES ", \"num_attention_heads\": 4, \"is_causal\": ";
    char numbers[256];
    (void)snprintf(numbers, sizeof numbers, "%sfalse", plain);
    assert_true(described("LlamaForCausalLM", numbers).two_sided);
    refused("MistralForCausalLM", numbers, "is_causal false is not supported for a decoder with windows");
    refused("BloomForCausalLM", numbers,
            "is_causal false is not supported for a decoder with windows, chunks or ALiBi");
    refused("Llama4ForCausalLM", numbers, "is_causal false is not supported");
    (void)snprintf(numbers, sizeof numbers, "%strue", plain);
    assert_false(described("LlamaForCausalLM", numbers).two_sided);
    (void)snprintf(numbers, sizeof numbers, "%s\"no\"", plain);
    refused("LlamaForCausalLM", numbers, "is_causal must be true or false");
}

TEST(a_text_model_by_itself_gives_rows) {
    static const struct {
        const char *tensor, *more;
        bool no_head;
    } cases[] = {{"embed_tokens.weight", "", true},
                 {"embed_tokens.weight", ", \"tie_word_embeddings\": true", false},
                 {"model.embed_tokens.weight", "", false},
                 {"lm_head.weight", "", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char numbers[256];
        model_desc d;
        quire_error err = {0};
        (void)snprintf(numbers, sizeof numbers, SIZES "%s", cases[i].more);
        assert_int_equal(describe_config("Qwen3ForCausalLM", numbers, cases[i].tensor, &d, &err), QUIRE_OK);
        assert_int_equal(d.no_head, cases[i].no_head);
    }
}

TEST(rotary_dimensions_fit_the_head) {
    strbuf numbers = {0};
    assert_int_equal(
        strbuf_addf(
            &numbers,
            SIZES ", \"rotary_dim\": 1100, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1"),
        QUIRE_OK);
    for (int i = 1; i < 550; i++) {
        assert_int_equal(strbuf_addf(&numbers, ",1"), QUIRE_OK);
    }
    assert_int_equal(strbuf_addf(&numbers, "], \"long_factor\": [1]}"), QUIRE_OK);
    refused("MiniMaxM2ForCausalLM", numbers.p, "rotary_dim must be at most the head size");
    strbuf_deinit(&numbers);
    refused("GPTJForCausalLM", "\"n_embd\": 32, \"n_layer\": 1, \"n_head\": 4, \"rotary_dim\": 10",
            "rotary_dim must be at most the head size");
}

TEST(what_nothing_computes_is_refused) {
    refused("BertModel", SIZES ", \"num_attention_heads\": 4, \"is_decoder\": true",
            "is_decoder true is not supported");
    refused("GptOssForCausalLM", SIZES ", \"swiglu_alpha\": 1.5", "swiglu_alpha");
    refused("GemmaForCausalLM", SIZES ", \"use_bidirectional_attention\": true",
            "use_bidirectional_attention");
    refused("Gemma2ForCausalLM", SIZES ", \"use_bidirectional_attention\": true",
            "use_bidirectional_attention");
    refused("Gemma3ForCausalLM", SIZES ", \"use_bidirectional_attention\": true",
            "use_bidirectional_attention");
    refused("Ernie4_5_MoeForCausalLM", SIZES ", \"num_attention_heads\": 4, \"moe_norm_min\": 0.5",
            "moe_norm_min");
    refused("Glm4MoeForCausalLM",
            SIZES ", \"num_attention_heads\": 8, \"head_dim\": 8, \"n_group\": 1, \"topk_group\": 2",
            "the groups of experts");
    refused("SmolLM3ForCausalLM", SIZES ", \"num_attention_heads\": 4, \"no_rope_layers\": [1, 0]",
            "no_rope_layers must have a number");
}

TEST(biases_are_as_config_json_says) {
    const char *llama = SIZES ", \"num_attention_heads\": 4, \"max_position_embeddings\": 64, ",
               *q = "model.layers.0.self_attn.q_proj.bias";
    char numbers[512];
    model_desc d;
    quire_error err;
    (void)snprintf(numbers, sizeof numbers, "%s\"attention_bias\": true", llama);
    refused("LlamaForCausalLM", numbers, "true, but the file has no tensor named ...q_proj.bias");
    assert_int_equal(describe_config("LlamaForCausalLM", numbers, q, &d, &err), QUIRE_OK);
    (void)snprintf(numbers, sizeof numbers, "%s\"attention_bias\": false", llama);
    refused_beside("LlamaForCausalLM", numbers, q,
                   "false, but the file has model.layers.0.self_attn.q_proj.bias");
    assert_int_equal(describe_config("LlamaForCausalLM", numbers, "x", &d, &err), QUIRE_OK);
    (void)snprintf(numbers, sizeof numbers, "%s\"mlp_bias\": true", llama);
    refused("LlamaForCausalLM", numbers, "mlp_bias true, but the file has no tensor");
}

TEST(keys_mean_what_their_class_makes_of_them) {
    const char *heads =
        SIZES ", \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 64, ";
    char numbers[768];
    model_desc d;
    quire_error err;
    (void)snprintf(numbers, sizeof numbers, "%s\"rope_theta\": 1e4", heads);
    d = described("Olmo3ForCausalLM", numbers); /* one base is that of the layers that see all */
    assert_true(d.ropes[0].theta == 1e4f && d.ropes[1].theta == 5e5f);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"original_max_position_embeddings\": 16, "
                   "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"rope_theta\": 3e4}",
                   heads);
    d = described("LlamaForCausalLM", numbers);
    assert_true(d.ropes[0].original_positions == 16 && d.ropes[0].theta == 3e4f);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 3e4}, "
                   "\"sliding_attention\": {\"rope_theta\": 2e4}}",
                   heads);
    d = described("Gemma3ForCausalLM", numbers);
    assert_true(d.ropes[0].theta == 3e4f && d.ropes[1].theta == 2e4f);
    (void)snprintf(
        numbers, sizeof numbers,
        "%s\"rope_theta\": 3e4, \"rope_local_base_freq\": 2e4, \"rope_parameters\": {\"full_attention\": "
        "{\"rope_type\": \"default\"}, \"sliding_attention\": {\"rope_type\": \"default\"}}",
        heads);
    d = described("Gemma3ForCausalLM", numbers);
    assert_true(d.ropes[0].theta == 3e4f && d.ropes[1].theta == 2e4f);
    d = described("Olmo3ForCausalLM", numbers);
    assert_true(d.ropes[0].theta == 3e4f && d.ropes[1].theta == 5e5f);
    d = described("GptOssForCausalLM",
                  SIZES ", \"swiglu_limit\": null, \"rope_parameters\": {\"rope_theta\": 3e4}");
    assert_int_equal(d.ropes[0].kind, ROPE_PLAIN);
    assert_true(isinf(d.moe.limit));
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"num_local_experts\": [4, 4, 4, 4, 4, 4], \"norm_topk_prob\": false", heads);
    d = described("MixtralForCausalLM", numbers);
    assert_true(d.moe.renormalise && d.layers[5].n_experts == 4);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"num_experts\": 4, \"moe_topk\": [2, 2, 2, 2, 2, 2], \"moe_intermediate_size\": 16, "
                   "\"num_shared_expert\": [2, 2], "
                   "\"n_group\": false, \"topk_group\": false, \"routed_scaling_factor\": false, "
                   "\"norm_topk_prob\": false",
                   heads);
    d = described("HunYuanMoEV1ForCausalLM", numbers);
    assert_true(d.moe.renormalise && d.moe.d_expert == 64 && d.moe.d_shared == 64 && d.moe.n_used == 2 &&
                d.moe.n_groups == 0);
    (void)snprintf(numbers, sizeof numbers, "%s\"rms_norm_eps\": 1e-3, \"layer_norm_eps\": 1e-4", heads);
    assert_true(described("CohereForCausalLM", numbers).norm_eps == 1e-4f);
    (void)snprintf(numbers, sizeof numbers, "%s\"use_post_norm\": false", heads);
    assert_ptr_equal(described("HyperCLOVAXForCausalLM", numbers).layers[0].steps, steps_pre_norm);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"text_config\": {\"model_type\": \"mistral\", \"tie_word_embeddings\": false}", heads);
    assert_true(described("Mistral3ForConditionalGeneration", numbers).tied_embeddings);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"rope_parameters\": {\"rope_theta\": 3e4, \"llama_4_scaling_beta\": 0.1, "
                   "\"original_max_position_embeddings\": 16}",
                   heads);
    assert_true(described("Ministral3ForCausalLM", numbers).norm_eps == 1e-5f);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"head_dim\": 8, \"per_layer_config\": {\"5\": {\"num_key_value_heads\": 2}}", heads);
    d = described("Gemma4ForCausalLM", numbers);
    assert_true(d.caches[5].d_key == 8 && d.caches[5].n_kv_heads == 2);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"rope_parameters\": {\"rope_theta\": 3e4}, \"layer_rope_theta\": [1e4, 0, 1, 0, 1, 1]",
                   heads);
    d = described("MuseGlimmerForCausalLM", numbers);
    assert_true(d.n_ropes == 1 && d.ropes[0].theta == 3e4f);
    assert_true(d.layers[0].rope == 0 && d.layers[1].rope == NO_ROPE);
    (void)snprintf(numbers, sizeof numbers, "%s\"layer_types\": [%s\"sliding_attention\"]", heads,
                   "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                   "\"sliding_attention\", \"sliding_attention\", ");
    d = described("MuseGlimmerForCausalLM", numbers);
    assert_true(d.layers[0].rope == 0 && d.layers[1].rope == NO_ROPE && d.layers[5].rope == NO_ROPE);
    (void)snprintf(numbers, sizeof numbers,
                   "%s\"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 2", heads);
    assert_int_equal(described("SolarOpenForCausalLM", numbers).moe.n_groups_used, 1);
    (void)snprintf(numbers, sizeof numbers, "%s\"num_experts\": 1", heads);
    assert_int_equal(described("HunYuanDenseV1ForCausalLM", numbers).layers[0].n_experts, 0);
    (void)snprintf(numbers, sizeof numbers, "%s\"attention_bias\": false", heads);
    assert_int_equal(
        describe_config("Qwen2ForCausalLM", numbers, "model.layers.0.self_attn.q_proj.bias", &d, &err),
        QUIRE_OK);
    (void)snprintf(numbers, sizeof numbers, "%s\"no_rope_layers\": [1, 0, 1, 1, 1, 1, 1, 0]", heads);
    d = described("SmolLM3ForCausalLM", numbers);
    assert_true(d.layers[0].rope != NO_ROPE && d.layers[1].rope == NO_ROPE && d.layers[5].rope != NO_ROPE);
    (void)snprintf(
        numbers, sizeof numbers, "%s\"num_local_experts\": 4, \"intermediate_size\": 300000000",
        "\"hidden_size\": 32, \"num_hidden_layers\": 6, \"vocab_size\": 40, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 4, ");
    refused("MixtralForCausalLM", numbers, "the width of experts is 300000000");
}

TEST(heads_of_gguf_files_are_counted_by_their_tensors) {
    model_plan p = plan_llama_as("nemotron");
    model_desc d;
    quire_error err = {0};
    set_f32(&p, "nemotron.attention.layer_norm_epsilon", 1e-5f);
    set_u32(&p, "nemotron.attention.key_length", 24);
    set_u32(&p, "nemotron.attention.value_length", 24);
    set_u32(&p, "nemotron.rope.dimension_count", 8);
    plan_file f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_int_equal(d.ropes[0].n_dims, 12); /* half of a head, where the file says half of the usual one */
    drop_key(&p, "nemotron.rope.dimension_count");
    f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_int_equal(d.ropes[0].n_dims, 12);
    set_u32(&p, "nemotron.attention.key_length", 22);
    set_u32(&p, "nemotron.attention.value_length", 22);
    set_u32(&p, "nemotron.rope.dimension_count", 7);
    f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_int_equal(d.ropes[0].n_dims, 10); /* 9.6, rounded up */
    p = plan_llama_as("phi2");
    set_u32(&p, "phi2.attention.head_count_kv", 4);
    set_f32(&p, "phi2.attention.layer_norm_epsilon", 1e-5f);
    f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_int_equal(d.caches[0].n_kv_heads, 2);
    p = plan_llama_as("gemma3");
    f = plan_open(&p);
    assert_int_equal(model_describe(f.f, &d, &err), QUIRE_OK);
    plan_close(&f);
    assert_int_equal(d.layers[0].window, 0); /* no key: no windows, one base */
    assert_int_equal(d.layers[0].rope, 0);
}

/* ---- with weights ---- */

static float *run_changed(const char *name, const char *key, json_t *value, size_t *n) {
    json_t *config = golden_config(name);
    quire_error err;
    if (config == NULL) {
        json_decref(value);
        skip();
    }
    json_object_set_new(config, key, value);
    temp_dir d = golden_write(name, config, NULL);
    float *logits = golden_run(d.path, COMPUTE_F32, n, &err);
    if (logits == NULL) {
        fail_msg("%s: %s", name, err.message);
    }
    temp_delete(&d, golden_files);
    json_decref(config);
    return logits;
}

TEST(a_head_of_its_own_counts_whatever_is_said_of_tying) {
    size_t n = 0, n_tied = 0;
    float *wanted = run_changed("llama", "tie_word_embeddings", json_false(), &n);
    float *tied = run_changed("llama", "tie_word_embeddings", json_true(), &n_tied);
    assert_int_equal(n, n_tied);
    assert_memory_equal(wanted, tied, n * sizeof *tied);
    mem_free(wanted);
    mem_free(tied);
}

static json_t *mistral_rope(double beta, int length) {
    return json_pack("{s:f,s:s,s:f,s:i}", "rope_theta", 1e4, "rope_type", "default", "llama_4_scaling_beta",
                     beta, "original_max_position_embeddings", length);
}

/* The query at position p is scaled by floor(p / length): the first `length` rows are as
 * they are without it. */
TEST(a_query_is_scaled_from_the_trained_length_on) {
    size_t n = 0, n_vocab = 256;
    float *plain = run_changed("mistral", "rope_parameters", mistral_rope(0.0, 3), &n);
    float *scaled = run_changed("mistral", "rope_parameters", mistral_rope(0.5, 3), &n);
    assert_int_equal(n, N * n_vocab);
    assert_memory_equal(plain, scaled, 3 * n_vocab * sizeof *plain);
    for (size_t row = 3; row < N; row++) {
        assert_memory_not_equal(plain + row * n_vocab, scaled + row * n_vocab, n_vocab * sizeof *plain);
    }
    mem_free(plain);
    mem_free(scaled);
}

static json_t *dynamic_rope(int length) {
    return json_pack("{s:f,s:s,s:f,s:i}", "rope_theta", 1e4, "rope_type", "dynamic", "factor", 2.0,
                     "original_max_position_embeddings", length);
}

TEST(dynamic_scaling_begins_at_the_length_of_the_configuration) {
    size_t n = 0;
    float *whole = run_changed("llama-rope-dynamic-inside", "rope_parameters", dynamic_rope(128), &n);
    float *shorter = run_changed("llama-rope-dynamic-inside", "rope_parameters", dynamic_rope(32), &n);
    assert_memory_equal(whole, shorter, n * sizeof *whole);
    mem_free(whole);
    mem_free(shorter);
}

TEST(minimax_rotates_as_many_elements_as_rotary_dim) {
    size_t n = 0;
    float *half = run_changed("minimax", "rotary_dim", json_integer(4), &n);
    float *same = run_changed("minimax", "partial_rotary_factor", json_real(0.5), &n);
    float *whole = run_changed("minimax", "rotary_dim", json_integer(8), &n);
    assert_memory_equal(half, same, n * sizeof *half);
    assert_memory_not_equal(half, whole, n * sizeof *half);
    mem_free(half);
    mem_free(same);
    mem_free(whole);
}

TEST(the_rows_of_a_two_sided_decoder_see_later_ones) {
    size_t n = 0;
    float *causal = run_changed("llama", "is_causal", json_true(), &n);
    float *both = run_changed("llama", "is_causal", json_false(), &n);
    for (size_t row = 0; row < N; row++) {
        assert_memory_not_equal(causal + row * (n / N), both + row * (n / N), n / N * sizeof *both);
    }
    mem_free(causal);
    mem_free(both);
}

/* The tensors of BERT's first checkpoints, as bert-base-uncased has them. */
TEST(norms_may_be_called_gamma_and_beta) {
    static const char *const names[][2] = {{"LayerNorm.weight", "LayerNorm.gamma"},
                                           {"LayerNorm.bias", "LayerNorm.beta"}};
    json_t *config = golden_config("bert");
    size_t n = 0, n_old = 0;
    quire_error err;
    if (config == NULL) {
        skip();
    }
    temp_dir d = golden_write("bert", config, NULL);
    float *wanted = golden_run(d.path, COMPUTE_F32, &n, &err);
    assert_non_null(wanted);
    temp_delete(&d, golden_files);
    for (int i = 0; i < 2; i++) {
        strbuf weights = golden_weights("bert", names[i][0], names[i][1]);
        d = golden_write("bert", config, &weights);
        float *old = golden_run(d.path, COMPUTE_F32, &n_old, &err);
        if (old == NULL) {
            fail_msg("%s: %s", names[i][1], err.message);
        }
        assert_int_equal(n, n_old);
        assert_memory_equal(wanted, old, n * sizeof *old);
        mem_free(old);
        temp_delete(&d, golden_files);
        strbuf_deinit(&weights);
    }
    mem_free(wanted);
    json_decref(config);
}

TEST_MAIN(NULL, NULL)

/* Architectures: alternative places of their numbers and tensors, and required ones. */
#include "golden_model.h"

/* Refused with a message that names the file and what is wrong. */
static void refused(const char *name, json_t *config, const strbuf *weights, const char *what) {
    size_t n;
    quire_error err;
    temp_dir d = golden_write(name, config, weights);
    float *logits = golden_run(d.path, COMPUTE_F32, &n, &err);
    if (logits != NULL || !strstr(err.message, what) || !strstr(err.message, d.path)) {
        fail_msg("%s: expected a refusal about \"%s\": \"%s\"", name, what, err.message);
    }
    temp_delete(&d, golden_files);
    json_decref(config);
}

static void same_logits(const char *name, const char *path) {
    char golden[GOLDEN_PATH];
    size_t n = 0, n_wanted = 0;
    quire_error err;
    float *wanted = golden_run(golden_path(name, "", golden), COMPUTE_F32, &n_wanted, &err);
    assert_non_null(wanted);
    float *got = golden_run(path, COMPUTE_F32, &n, &err);
    if (got == NULL) {
        fail_msg("%s: %s", name, err.message);
    }
    assert_int_equal(n, n_wanted);
    assert_memory_equal(got, wanted, n * sizeof *got);
    mem_free(got);
    mem_free(wanted);
}

static void need_golden_models(void) {
    char path[GOLDEN_PATH];
    if (golden_path("gemma3", "config.json", path) == NULL) {
        skip();
    }
}

/* ---- checkpoints of several parts ---- */

TEST(a_text_part_is_the_model_it_holds) {
    static const char *const roots[] = {"language_model.model.", "model.language_model.", "language_model.",
                                        ""};
    need_golden_models();
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        json_t *text = golden_config("gemma3");
        json_object_del(text, "architectures");
        json_t *config = json_pack("{s:[s], s:s, s:i, s:o}", "architectures",
                                   "Gemma3ForConditionalGeneration", "model_type", "gemma3",
                                   /* the text's own window counts */
                                   "sliding_window", 3, "text_config", text);
        strbuf weights = golden_weights("gemma3", "model.", roots[i]);
        temp_dir d = golden_write("gemma3", config, &weights);
        same_logits("gemma3", d.path);
        temp_delete(&d, golden_files);
        strbuf_deinit(&weights);
        json_decref(config);
    }
}

/* ---- what must be there ---- */

TEST(a_missing_tensor_is_named) {
    static const struct {
        const char *model, *tensor, *what;
    } cases[] = {
        {"qwen3", "layers.0.self_attn.q_norm", "model.layers.0.self_attn.q_norm.weight is missing"},
        {"gemma3", "layers.1.self_attn.k_norm", "model.layers.1.self_attn.k_norm.weight is missing"},
        {"gpt_oss", "layers.1.self_attn.sinks", "layer 1 has no attention sinks"},
        {"glm4_moe", "e_score_correction_bias", "has no correction bias for its experts"},
        {"minimax_m2", "e_score_correction_bias", "has no correction bias for its experts"},
        {"stablelm-parallel", "layers.0.self_attn.q_layernorm.norms.1",
         "q_layernorm.norms.1.weight is missing"},
        {"bloom", "word_embeddings_layernorm", "word_embeddings_layernorm.weight is missing"},
        {"gpt2", "wpe", "transformer.wpe.weight is missing"},
        {"gpt2", "h.1.attn.c_attn", "h.1.attn.c_attn.weight is missing"},
        {"mixtral", "layers.0.block_sparse_moe.experts.1.w3", "experts.1.w3.weight is missing"},
        {"qwen2-moe", "layers.1.mlp.shared_expert_gate", "shared_expert_gate.weight is missing"},
        {"gemma2", "layers.0.post_feedforward_layernorm", "post_feedforward_layernorm.weight is missing"},
        {"lfm2", "layers.0.conv.conv", "model.layers.0.conv.conv.weight is missing"},
        {"lfm2", "layers.2.conv.in_proj", "model.layers.2.conv.in_proj.weight is missing"},
        {"qwen3_5", "layers.0.linear_attn.A_log", "layer 0 has no decays of its heads"},
        {"qwen3_5", "layers.1.linear_attn.dt_bias", "layer 1 has no biases of its decays"},
        {"qwen3_5", "layers.0.linear_attn.conv1d", "linear_attn.conv1d.weight is missing"},
        {"qwen3_5", "layers.2.linear_attn.norm", "linear_attn.norm.weight is missing"},
        {"qwen3_5", "layers.2.linear_attn.in_proj_b", "linear_attn.in_proj_b.weight is missing"},
        {"minimax", "layers.0.self_attn.output_gate", "self_attn.output_gate.weight is missing"}};
    need_golden_models();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strbuf weights = golden_weights(cases[i].model, cases[i].tensor, "gone");
        refused(cases[i].model, golden_config(cases[i].model), &weights, cases[i].what);
        strbuf_deinit(&weights);
    }
}

/* A model that has a tensor which the config does not ask for is another model. */
TEST(an_unknown_tensor_is_named) {
    static const struct {
        const char *model, *key;
        int value;
        const char *what;
    } cases[] = {{"glm4_moe", "use_qk_norm", 0, "self_attn.k_norm.weight belongs to no part"},
                 {"stablelm-parallel", "qk_layernorm", 0, "layernorm.norms.0.weight belongs to no part"},
                 {"qwen3-moe", "num_hidden_layers", 1, "model.layers.1."},
                 {"gpt2", "n_layer", 1, "transformer.h.1."},
                 /* sizes of states that are not the tensors' */
                 {"lfm2", "conv_L_cache", 4, "conv.conv.weight has shape [32, 3]"},
                 {"qwen3_5", "linear_conv_kernel_dim", 3, "conv1d.weight has shape [64, 4]"},
                 {"qwen3_5", "linear_num_value_heads", 2, "in_proj_qkv.weight has shape [64, 32]"},
                 {"qwen3_5", "linear_value_head_dim", 16, "in_proj_qkv.weight has shape [64, 32]"},
                 {"qwen3-next", "linear_num_key_heads", 4, "in_proj_qkvz.weight has shape [96, 32]"}};
    need_golden_models();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *config = golden_config(cases[i].model), *was = json_object_get(config, cases[i].key);
        json_object_set_new(config, cases[i].key,
                            json_is_integer(was) ? json_integer(cases[i].value)
                                                 : json_boolean(cases[i].value));
        refused(cases[i].model, config, NULL, cases[i].what);
    }
}

TEST(an_unknown_architecture_is_told_the_nearest) {
    static const char *const names[][2] = {
        {"Gemma3ForCausalLLM", "the nearest supported one is Gemma3ForCausalLM"},
        {"Qwen4ForCausalLM", "ForCausalLM"},
        {"XyzzyPlugh", "docs/models.md"}};
    need_golden_models();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *config = golden_config("gemma3");
        json_object_set_new(config, "architectures", json_pack("[s]", names[i][0]));
        refused("gemma3", config, NULL, names[i][1]);
    }
}

/* ---- names ---- */

TEST(a_name_that_is_only_another_opens_as_the_known_architecture) {
    static const struct {
        const char *model, *name, *was, *is; /* a key that has another name there, or NULL */
    } cases[] = {{"llama", "LLaMAForCausalLM", NULL, NULL},
                 {"llama", "AquilaForCausalLM", NULL, NULL},
                 {"llama", "AquilaModel", NULL, NULL},
                 {"llama", "XverseForCausalLM", NULL, NULL},
                 {"llama-rope-dynamic-inside", "InternLM3ForCausalLM", NULL, NULL},
                 {"falcon", "RWForCausalLM", NULL, NULL},
                 {"phimoe", "PhimoeForCausalLM", NULL, NULL},
                 {"mpt", "MptForCausalLM", NULL, NULL},
                 {"ernie4_5", "Ernie4_5_ForCausalLM", NULL, NULL},
                 {"stablelm", "StableLMEpochForCausalLM", "partial_rotary_factor", "rope_pct"}};
    need_golden_models();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *config = golden_config(cases[i].model);
        json_object_set_new(config, "architectures", json_pack("[s]", cases[i].name));
        if (cases[i].was != NULL) {
            json_object_set(config, cases[i].is, json_object_get(config, cases[i].was));
            json_object_del(config, cases[i].was);
        }
        temp_dir d = golden_write(cases[i].model, config, NULL);
        same_logits(cases[i].model, d.path);
        temp_delete(&d, golden_files);
        json_decref(config);
    }
}

/* ---- where numbers may lie ---- */

TEST(windows_are_read_in_every_form) {
    model_plan p = plan_llama_as("gemma3");
    set_u32(&p, "gemma3.block_count", 8);
    set_u32(&p, "gemma3.attention.sliding_window", 5);
    static const struct {
        int period;
        const char *full; /* a layer each */
    } cases[] = {{-1, "00000100"}, {4, "00010001"}, {2, "01010101"}, {1, "11111111"}, {0, "11111111"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        model_desc d;
        quire_error err = {0};
        if (cases[k].period >= 0) {
            set_u32(&p, "gemma3.attention.sliding_window_pattern", (uint32_t)cases[k].period);
        }
        plan_file f = plan_open(&p);
        if (model_describe(f.f, &d, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
        for (int i = 0; i < 8; i++) {
            assert_int_equal(d.layers[i].window, cases[k].full[i] == '1' ? 0 : 5);
            assert_int_equal(d.layers[i].rope, cases[k].full[i] == '1' ? 0 : 1);
            assert_int_equal(d.caches[i].kind, cases[k].full[i] == '1' ? LAYER_FULL : LAYER_WINDOW);
        }
        plan_close(&f);
    }
}

TEST(a_period_may_be_spelt_in_letters) {
    need_golden_models();
    json_t *config = golden_config("exaone4");
    json_object_set_new(config, "sliding_window_pattern", json_string("LLLG"));
    temp_dir d = golden_write("exaone4", config, NULL);
    same_logits("exaone4", d.path);
    temp_delete(&d, golden_files);
    json_object_set_new(config, "sliding_window_pattern", json_string("LGLG"));
    refused("exaone4", config, NULL, "sliding_window_pattern");
}

TEST(lists_of_layer_types_count_before_a_period) {
    need_golden_models();
    json_t *config = golden_config("gemma2"), *types = json_object_get(config, "layer_types");
    assert_true(json_is_array(types));
    json_array_set_new(types, 1, json_string("sliding_attention"));
    temp_dir d = golden_write("gemma2", config, NULL);
    model_file *f;
    model_desc desc;
    quire_error err = {0};
    assert_int_equal(model_file_open(d.path, &f, &err), QUIRE_OK);
    assert_int_equal(model_describe(f, &desc, &err), QUIRE_OK);
    assert_true(desc.layers[0].window == 16 && desc.layers[1].window == 16 && desc.layers[2].window == 16 &&
                desc.layers[3].window == 0);
    model_file_close(f);
    temp_delete(&d, golden_files);
    json_array_set_new(types, 1, json_string("linear_attention"));
    refused("gemma2", json_incref(config), NULL, "linear_attention");
    json_array_set_new(types, 1, json_integer(3));
    refused("gemma2", config, NULL, "layer_types");
}

TEST_MAIN(NULL, NULL)

/* Adapters on disk: what their configs say, and what is refused. */
#include "file/adapter_file.h"
#include "make_files.h"

static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors", "adapter_model.bin",
                                    "adapter.gguf", NULL};

enum { MOST = 1 << 20 };

#define TENSORS                                                                                              \
    "{\"base_model.model.x.lora_A.weight\": {\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": "      \
    "[0, 16]}}"

static temp_dir adapter_new_dir(const char *config) {
    temp_dir d = temp_new();
    strbuf tensors = {0};
    write_text(&d, "adapter_config.json", config);
    make_safetensors(&tensors, TENSORS, 16);
    write_file(temp_path(&d, "adapter_model.safetensors"), tensors.p, tensors.n);
    strbuf_deinit(&tensors);
    return d;
}

static quire_err open_config(const char *config, adapter_file **out, quire_error *err) {
    const temp_dir d = adapter_new_dir(config);
    const quire_err e = adapter_file_open(d.path, MOST, out, err);
    temp_delete(&d, files);
    return e;
}

static void refused(const char *config, quire_err code, const char *says) {
    adapter_file *f = NULL;
    quire_error err = {0};
    assert_int_equal(open_config(config, &f, &err), code);
    if (strstr(err.message, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    }
    assert_null(f);
}

static float scale_in(const char *config, const char *module, int64_t rank) {
    adapter_file *f;
    quire_error err = {0};
    float scale = 0.0f;
    assert_int_equal(open_config(config, &f, &err), QUIRE_OK);
    const quire_err e = adapter_file_scale(f, str_of(module), rank, &scale, &err);
    adapter_file_close(f);
    return e == QUIRE_OK ? scale : -1.0f;
}

TEST(a_config_gives_what_the_adapter_is) {
    adapter_file *f;
    quire_error err = {0};
    const temp_dir d =
        adapter_new_dir("{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"rank_pattern\": "
                        "{\"q_proj\": 9}, \"base_model_name_or_path\": \"org/name\\n\", "
                        "\"alora_invocation_tokens\": [5, 6], \"use_dora\": true}");
    assert_int_equal(adapter_file_open(temp_path(&d, "adapter_config.json"), MOST, &f, &err), QUIRE_OK);
    assert_int_equal(f->facts.format, ADAPTER_PEFT);
    assert_int_equal(f->facts.rank, 9);
    assert_string_equal(f->facts.base, "org/name?");
    assert_true(f->facts.is_activated && f->facts.has_dora && f->facts.n_bytes > 16);
    assert_int_equal(f->n_invocation, 2);
    assert_int_equal(f->invocation[1], 6);
    assert_null(f->invocation_text);
    adapter_file_close(f);
    temp_delete(&d, files);
    assert_int_equal(open_config("{\"peft_type\": \"LORA\", \"r\": 2, \"invocation_string\": \"<judge>\", "
                                 "\"alora_invocation_tokens\": null}",
                                 &f, &err),
                     QUIRE_OK);
    assert_string_equal(f->invocation_text, "<judge>");
    assert_true(f->facts.is_activated && f->n_invocation == 0);
    adapter_file_close(f);
}

TEST(scales_follow_from_rank_and_alpha_of_the_module) {
    static const char plain[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6}";
    static const char root[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"use_rslora\": true}";
    static const char patterns[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"rank_pattern\": "
                                   "{\"layers\\\\.1\\\\.q\": 2, "
                                   "\"q\": 8}, \"alpha_pattern\": {\"(k|v)_proj\": 12, \"layers.0.q\": 16}}";
    assert_true(scale_in(plain, "layers.0.q", 4) == 1.5f);
    assert_true(scale_in(root, "layers.0.q", 4) == 3.0f);
    assert_true(scale_in(patterns, "model.layers.1.q", 2) == 3.0f); /* the first that matches */
    assert_true(scale_in(patterns, "model.layers.0.q", 8) == 2.0f);
    assert_true(scale_in(patterns, "model.layers.0.v_proj", 4) == 3.0f);
    assert_true(scale_in(patterns, "model.layers.0.vq", 4) == 1.5f); /* a key begins after a dot */
    assert_true(scale_in(patterns, "model.layers.0.v_proj", 5) == -1.0f);
}

TEST(patterns_match_as_regular_expressions_do) {
    static const struct {
        const char *key, *name;
        bool matches;
    } cases[] = {
        {"q_proj", "a.q_proj", true},       {"q_proj", "q_proj", true}, {"q_proj", "a.xq_proj", false},
        {"q_proj", "q_proj.x", false},      {"a.c", "x.abc", true},     {"a\\.c", "x.abc", false},
        {"a\\.c", "x.a.c", true},           {"[ab]+", "x.ab", true},    {"[ab]+", "x.abc", false},
        {".*\\.mlp\\..*", "x.mlp.y", true}, {"a|b", "x.b", true},       {"a|b", "x.ab", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        adapter_patterns p = {0};
        double value = 0;
        assert_int_equal(adapter_patterns_add(&p, str_of(cases[i].key), 7, "f", NULL), QUIRE_OK);
        const bool is = adapter_patterns_find(&p, str_of(cases[i].name), &value);
        if (is != cases[i].matches) {
            fail_msg("%s against %s", cases[i].key, cases[i].name);
        }
        assert_true(value == (is ? 7 : 0));
        adapter_patterns_deinit(&p);
    }
}

TEST(a_pattern_that_never_ends_matches_nothing) {
    adapter_patterns p = {0};
    double value;
    char name[400];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(adapter_patterns_add(&p, str_of("(a+)+b"), 1, "f", NULL), QUIRE_OK);
    assert_false(adapter_patterns_find(&p, str_of(name), &value));
    quire_error err = {0};
    assert_int_equal(adapter_patterns_add(&p, str_of("(a"), 1, "f", &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "not a valid regular expression"));
    adapter_patterns_deinit(&p);
}

TEST(other_kinds_and_options_are_refused_by_name) {
    refused("{\"peft_type\": \"IA3\"}", QUIRE_UNSUPPORTED, "peft_type IA3 is not supported");
    refused("{\"peft_type\": \"PREFIX_TUNING\"}", QUIRE_UNSUPPORTED, "PREFIX_TUNING");
    refused("{}", QUIRE_BAD_FILE, "peft_type");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"layer_replication\": [[0, 4]]}", QUIRE_UNSUPPORTED,
            "layer_replication");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_bias\": true}", QUIRE_UNSUPPORTED, "lora_bias");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"trainable_token_indices\": {\"embed_tokens\": [3, 4]}}",
            QUIRE_UNSUPPORTED, "trainable_token_indices");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"invocation_string\": [1]}", QUIRE_BAD_FILE,
            "invocation_string must be");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"init_lora_weights\": \"pissa_niter_4\"}",
            QUIRE_UNSUPPORTED, "path_initial_model_for_weight_conversion");
}

/* The keys that PEFT 0.3, 0.10, 0.14 and 0.19 write, whose values change nothing. */
TEST(configs_as_they_are_published_are_read) {
    static const char *const published[] = {
        "{\"base_model_name_or_path\": \"org/base\", \"bias\": \"none\", \"fan_in_fan_out\": false, "
        "\"inference_mode\": true, \"init_lora_weights\": true, \"lora_alpha\": 16, \"lora_dropout\": 0.05, "
        "\"modules_to_save\": null, \"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": [\"q_proj\"], "
        "\"task_type\": \"CAUSAL_LM\", \"layers_to_transform\": null, \"layers_pattern\": null}",
        "{\"alpha_pattern\": {}, \"auto_mapping\": null, \"base_model_name_or_path\": \"/root/base\", "
        "\"bias\": "
        "\"lora_only\", \"fan_in_fan_out\": true, \"layer_replication\": null, \"loftq_config\": {}, "
        "\"lora_alpha\": 16, \"megatron_config\": null, \"megatron_core\": \"megatron.core\", "
        "\"modules_to_save\": [\"embed_tokens\", \"lm_head\"], \"peft_type\": \"LORA\", \"r\": 8, "
        "\"rank_pattern\": {}, \"revision\": \"unsloth\", \"target_modules\": \"all-linear\", \"use_dora\": "
        "false, \"use_rslora\": false}",
        "{\"auto_mapping\": {\"base_model_class\": \"LlamaForCausalLM\", \"parent_library\": "
        "\"transformers.models.llama.modeling_llama\"}, \"base_model_name_or_path\": null, \"eva_config\": "
        "null, "
        "\"exclude_modules\": \".*vision.*\", \"init_lora_weights\": \"gaussian\", \"lora_alpha\": 16.0, "
        "\"lora_bias\": false, \"peft_type\": \"LORA\", \"r\": 8, \"layers_to_transform\": [0, 2], "
        "\"layers_pattern\": \"layers\", \"runtime_config\": {\"ephemeral_gpu_offload\": false}, "
        "\"target_modules\": \".*language_model.*\\\\.(q_proj|k_proj|v_proj|o_proj)$\"}",
        "{\"alora_invocation_tokens\": null, \"arrow_config\": null, \"corda_config\": null, "
        "\"ensure_weight_tying\": false, \"init_lora_weights\": \"eva\", \"kasa_config\": null, "
        "\"lora_alpha\": 16, \"lora_ga_config\": null, \"monteclora_config\": null, \"peft_type\": \"LORA\", "
        "\"peft_version\": \"0.19.1\", \"qalora_group_size\": 16, \"r\": 8, \"target_modules\": [\"qkv\", "
        "\"attn.proj\"], \"target_parameters\": null, \"task_type\": null, \"trainable_token_indices\": "
        "null, "
        "\"use_bdlora\": null, \"use_dora\": false, \"use_qalora\": false, \"velora_config\": null}"};
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        assert_true(scale_in(published[i], "model.layers.0.self_attn.q_proj", 8) == 2.0f);
    }
}

TEST(numbers_that_are_none_are_refused) {
    refused("{\"peft_type\": \"LORA\"}", QUIRE_BAD_FILE, "r must be");
    refused("{\"peft_type\": \"LORA\", \"r\": 0}", QUIRE_BAD_FILE, "r must be");
    refused("{\"peft_type\": \"LORA\", \"r\": 1.5}", QUIRE_BAD_FILE, "r must be");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": \"x\"}", QUIRE_BAD_FILE, "lora_alpha");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"rank_pattern\": {\"q\": 0}}", QUIRE_BAD_FILE,
            "rank_pattern");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"rank_pattern\": 3}", QUIRE_BAD_FILE, "rank_pattern");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"alora_invocation_tokens\": [-1]}", QUIRE_BAD_FILE,
            "alora_invocation_tokens");
    refused("{\"peft_type\": \"LORA\", \"r\": 4, \"alora_invocation_tokens\": []}", QUIRE_BAD_FILE,
            "alora_invocation_tokens must be null or a list of 1 to 4096 token ids");
}

TEST(pickles_and_directories_without_an_adapter_are_refused) {
    const temp_dir d = temp_new();
    adapter_file *f = NULL;
    quire_error err = {0};
    assert_int_equal(adapter_file_open(d.path, MOST, &f, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "without adapter_config.json"));
    write_text(&d, "adapter_config.json", "{\"peft_type\": \"LORA\", \"r\": 4}");
    write_text(&d, "adapter_model.bin", "x");
    assert_int_equal(adapter_file_open(d.path, MOST, &f, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "never run"));
    assert_int_equal(adapter_file_open("/nowhere/at/all", MOST, &f, &err), QUIRE_NOT_FOUND);
    assert_int_equal(adapter_file_open("", MOST, &f, &err), QUIRE_INVALID);
    temp_delete(&d, files);
}

TEST(a_file_over_the_limit_is_refused) {
    const temp_dir d = adapter_new_dir("{\"peft_type\": \"LORA\", \"r\": 4}");
    adapter_file *f = NULL;
    quire_error err = {0};
    assert_int_equal(adapter_file_open(d.path, 20, &f, &err), QUIRE_TOO_LARGE);
    assert_non_null(strstr(err.message, "the limit is 20"));
    temp_delete(&d, files);
}

TEST(a_replaced_file_has_another_digest) {
    uint8_t digests[3][SHA256_BYTES];
    static const char *const configs[] = {"{\"peft_type\": \"LORA\", \"r\": 4}",
                                          "{\"peft_type\": \"LORA\", \"r\": 5}",
                                          "{\"peft_type\": \"LORA\", \"r\": 4}"};
    for (int i = 0; i < 3; i++) {
        adapter_file *f;
        assert_int_equal(open_config(configs[i], &f, NULL), QUIRE_OK);
        memcpy(digests[i], f->digest, SHA256_BYTES);
        adapter_file_close(f);
    }
    assert_memory_not_equal(digests[0], digests[1], SHA256_BYTES);
    assert_memory_equal(digests[0], digests[2], SHA256_BYTES);
}

/* n_invocation: how many invocation tokens it lists; -1: it has no list. */
static void put_activated_gguf(strbuf *b, const char *type, const char *kind, int n_invocation) {
    put_header(b, 3, 2, n_invocation < 0 ? 4 : 5);
    if (n_invocation >= 0) {
        put_array(b, "adapter.alora.invocation_tokens", GGUF_U32, (uint64_t)n_invocation);
        for (int i = 0; i < n_invocation; i++) {
            put_u32(b, (uint32_t)i);
        }
    }
    put_key_str(b, "general.architecture", "llama");
    put_key_str(b, "general.type", type);
    put_key_str(b, "adapter.type", kind);
    put_key(b, "adapter.lora.alpha", GGUF_F32);
    put_f32(b, 6.0f);
    put_tensor(b, "blk.0.attn_q.weight.lora_a", 4, 3, 0, 0);
    put_tensor(b, "blk.0.attn_q.weight.lora_b", 3, 4, 0, 64);
    pad_from(b, 0, 32);
    const size_t data = b->n;
    put_floats(b, 12);
    pad_from(b, data, 64);
    put_floats(b, 12);
}

static void put_adapter_gguf(strbuf *b, const char *type, const char *kind) {
    put_activated_gguf(b, type, kind, -1);
}

TEST(a_gguf_adapter_gives_what_it_is) {
    const temp_dir d = temp_new();
    strbuf b = {0};
    adapter_file *f = NULL;
    quire_error err = {0};
    float scale;
    put_adapter_gguf(&b, "adapter", "lora");
    const char *path = temp_path(&d, "adapter.gguf");
    write_file(path, b.p, b.n);
    assert_int_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_OK);
    assert_int_equal(f->facts.format, ADAPTER_GGUF);
    assert_int_equal(f->facts.rank, 3);
    assert_string_equal(f->facts.architecture, "llama");
    assert_int_equal(adapter_file_scale(f, str_of("blk.0.attn_q"), 3, &scale, &err), QUIRE_OK);
    assert_true(scale == 2.0f);
    adapter_file_close(f);
    strbuf_clear(&b);
    put_adapter_gguf(&b, "model", "lora");
    write_file(path, b.p, b.n);
    assert_int_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "general.type"));
    strbuf_clear(&b);
    put_adapter_gguf(&b, "adapter", "dora");
    write_file(path, b.p, b.n);
    assert_int_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_UNSUPPORTED);
    assert_non_null(strstr(err.message, "adapter.type dora"));
    strbuf_clear(&b);
    put_activated_gguf(&b, "adapter", "lora", 2);
    write_file(path, b.p, b.n);
    assert_int_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_OK);
    assert_true(f->facts.is_activated && f->n_invocation == 2 && f->invocation[1] == 1);
    adapter_file_close(f);
    strbuf_clear(&b);
    put_activated_gguf(&b, "adapter", "lora", 0);
    write_file(path, b.p, b.n);
    assert_int_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "adapter.alora.invocation_tokens must be a list of 1 to"));
    strbuf_deinit(&b);
    temp_delete(&d, files);
}

/* Every cut of a file, and every byte of its header changed, is refused or read. */
TEST(damaged_gguf_adapters_are_refused_or_read) {
    const temp_dir d = temp_new();
    strbuf b = {0};
    put_adapter_gguf(&b, "adapter", "lora");
    for (size_t i = 0; i < b.n; i++) {
        adapter_file *f = NULL;
        quire_error err = {0};
        const char *path = temp_path(&d, "adapter.gguf");
        write_file(path, b.p, i);
        assert_int_not_equal(adapter_file_open(path, MOST, &f, &err), QUIRE_OK);
        assert_true(err.message[0] != 0);
    }
    for (size_t i = 0; i < b.n - 112; i++) {
        adapter_file *f = NULL;
        quire_error err = {0};
        const char *path = temp_path(&d, "adapter.gguf");
        b.p[i] = (char)~b.p[i];
        write_file(path, b.p, b.n);
        b.p[i] = (char)~b.p[i];
        if (adapter_file_open(path, MOST, &f, &err) == QUIRE_OK) {
            adapter_file_close(f);
        } else {
            assert_true(err.message[0] != 0);
        }
    }
    strbuf_deinit(&b);
    temp_delete(&d, files);
}

TEST_MAIN(NULL, NULL)

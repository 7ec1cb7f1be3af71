/* Models that are refused when loaded, one test per reason: each message names the file,
 * the key or tensor, and an alternative. */
#include "golden_model.h"

static void expect(const quire_error *err, bool opened, const char *path, const char *what) {
    if (opened || !strstr(err->message, what) || !strstr(err->message, path)) {
        fail_msg("expected a refusal about \"%s\": \"%s\"", what, err->message);
    }
}

/* A GGUF file of a Llama is refused. */
static void refused_gguf(const model_plan *p, const char *what) {
    plan_file f = plan_open(p);
    backend *b = open_backend(COMPUTE_F32);
    model *m = NULL;
    quire_error err = {0};
    bool opened = model_open(f.f, b, 64, &m, &err) == QUIRE_OK;
    expect(&err, opened, "test.gguf", what);
    b->ops->close(b);
    plan_close(&f);
}

/* A golden checkpoint whose key has become value (NULL: is gone; json_decref'd here) is
 * refused. */
static void refused_checkpoint(const char *name, const char *key, json_t *value, const char *what) {
    json_t *config = golden_config(name);
    size_t n;
    quire_error err;
    if (config == NULL) {
        print_message("%s is missing: left out\n", name);
        json_decref(value);
        return;
    }
    json_object_del(config, key);
    if (value != NULL) {
        json_object_set_new(config, key, value);
    }
    temp_dir d = golden_write(name, config, NULL);
    float *logits = golden_run(d.path, COMPUTE_F32, &n, &err);
    expect(&err, logits != NULL, d.path, what);
    mem_free(logits);
    temp_delete(&d, golden_files);
    json_decref(config);
}

TEST(unknown_architectures_are_told_the_nearest) {
    model_plan p;
    plan_llama(&p);
    set_str(&p, "general.architecture", "llama5");
    refused_gguf(&p,
                 "architecture llama5 is not supported by this version; the nearest supported one is llama");
    set_str(&p, "general.architecture", "deepseek4");
    refused_gguf(&p, "architecture deepseek4 is not supported: compressed keys beside windows");
    set_str(&p, "general.architecture", "xyzzyplugh");
    refused_gguf(&p, "docs/models.md lists the supported ones");
    refused_checkpoint("qwen3", "architectures", json_pack("[s]", "Qwen33ForCausalLM"),
                       "the nearest supported one is Qwen3ForCausalLM");
}

TEST(unknown_tensors_are_named) {
    model_plan p;
    plan_llama(&p);
    set_tensor(&p, "blk.1.attn_k_norm.weight", 16, 0);
    refused_gguf(&p, "tensor blk.1.attn_k_norm.weight belongs to no part of this architecture");
    refused_checkpoint("qwen3", "num_hidden_layers", json_integer(1), "tensor model.layers.1.");
}

TEST(missing_keys_are_named) {
    static const char *const keys[] = {"hidden_size", "num_hidden_layers"};
    static const char *const gguf_keys[] = {"embedding_length", "block_count", "attention.head_count",
                                            "context_length"};
    for (size_t i = 0; i < sizeof gguf_keys / sizeof *gguf_keys; i++) {
        model_plan p;
        char key[64], what[128];
        plan_llama(&p);
        snprintf(key, sizeof key, "llama.%s", gguf_keys[i]);
        snprintf(what, sizeof what, "%s is missing from the metadata", key);
        drop_key(&p, key);
        refused_gguf(&p, what);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char what[128];
        snprintf(what, sizeof what, "%s is missing from the metadata", keys[i]);
        refused_checkpoint("qwen3", keys[i], NULL, what);
    }
}

TEST(contradictory_keys_are_named) {
    model_plan p;
    plan_llama(&p);
    set_u32(&p, "llama.attention.head_count", 0x3f000000);
    refused_gguf(&p, "the number of attention heads must be at most 65536");
    plan_llama(&p);
    set_u32(&p, "llama.attention.head_count_kv", 3);
    refused_gguf(&p, "4 attention heads cannot share 3 key-value heads evenly");
    plan_llama(&p);
    set_u32(&p, "llama.feed_forward_length", 64);
    refused_gguf(&p, "the model's configuration requires [64, 64]");
    plan_llama(&p);
    set_u32(&p, "llama.rope.dimension_count", 18);
    refused_gguf(&p, "18 rotary dimensions; must be an even number from 2 to the head size, 16");
    refused_checkpoint("qwen3", "num_key_value_heads", json_integer(3),
                       "cannot share 3 key-value heads evenly");
    refused_checkpoint("qwen3-moe", "num_experts_per_tok", json_integer(1000),
                       "a row must use from 1 to all of them");
    refused_checkpoint("gemma3", "layer_types", json_pack("[s]", "linear_attention"),
                       "a layer of type \"linear_attention\"");
}

TEST(other_rotary_kinds_are_named) {
    model_plan p;
    plan_llama(&p);
    set_str(&p, "llama.rope.scaling.type", "spiral");
    set_f32(&p, "llama.rope.scaling.factor", 2.0f);
    refused_gguf(&p, "rotary scaling \"spiral\" is not supported");
    refused_checkpoint("llama", "rope_scaling", json_pack("{s:s,s:f}", "rope_type", "spiral", "factor", 2.0),
                       "rotary scaling \"spiral\" is not supported");
}

TEST(what_only_some_gguf_files_say_is_read) {
    model_plan p;
    plan_llama(&p);
    set_str(&p, "llama.hidden_activation", "sine");
    refused_gguf(&p, "hidden_act \"sine\" is not supported");
    plan_llama(&p);
    set_f32(&p, "llama.rope.scaling.attn_factor", -1.0f);
    refused_gguf(&p, "rope.scaling.attn_factor must be 0 or more");
    set_f32(&p, "llama.rope.scaling.attn_factor", 1.0f);
    set_f32(&p, "llama.rope.scaling.yarn_log_multiplier", -1.0f);
    refused_gguf(&p, "rope.scaling.yarn_log_multiplier must be 0 or more");
}

TEST(other_routing_kinds_are_named) {
    model_plan p;
    plan_llama(&p);
    set_u32(&p, "llama.expert_count", 4);
    set_u32(&p, "llama.expert_used_count", 2);
    set_u32(&p, "llama.expert_gating_func", 4);
    refused_gguf(&p, "an expert_gating_func over 3 is not supported; it must be 1 (softmax)");
    refused_checkpoint("minimax_m2", "scoring_func", json_string("sinkhorn"),
                       "scoring_func \"sinkhorn\" is not supported");
    refused_checkpoint("gpt_oss", "hidden_act", json_string("sine"), "hidden_act \"sine\" is not supported");
}

TEST_MAIN(NULL, NULL)

/* If config.json names no class, model_type selects the architecture. */
#include "golden_model.h"

#include "model/composite.h"

TEST(a_type_names_its_class) {
    static const struct {
        const char *type;
        bool has_text;
        const char *class;
    } known[] = {
        {"llama", false, "LlamaForCausalLM"},
        {"qwen2_moe", false, "Qwen2MoeForCausalLM"},
        {"gpt2", false, "GPT2LMHeadModel"},
        {"gpt_neox", false, "GPTNeoXForCausalLM"},
        {"gpt_bigcode", false, "GPTBigCodeForCausalLM"},
        {"gpt_oss", false, "GptOssForCausalLM"},
        {"gemma3", true, "Gemma3ForConditionalGeneration"},
        {"gemma3_text", false, "Gemma3ForCausalLM"},
        {"bert", false, "BertModel"},
        {"xlm-roberta", false, "XLMRobertaModel"},
        {"nomic_bert", false, "NomicBertModel"},
        {"ernie4_5_moe", false, "Ernie4_5_MoeForCausalLM"},
        {"llava", true, "LlavaForConditionalGeneration"},
        {"qwen2_vl", false, "Qwen2VLForConditionalGeneration"},
        {"stablelm", false, "StableLmForCausalLM"},
        {"", false, ""},
        {"_", false, ""},
        {"ForCausalLM", false, ""},
        {"llamas", false, ""},
        {"wav2vec2", false, ""},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        str class = model_type_class(str_of(known[i].type), known[i].has_text);
        if (!str_is(class, known[i].class)) {
            fail_msg("%s: %.*s, not %s", known[i].type, (int)class.n, class.p, known[i].class);
        }
    }
}

/* The golden model without "architectures" computes what it does with them. */
TEST(a_checkpoint_without_architectures_is_the_same_model) {
    static const char *const models[] = {"qwen3", "gemma2", "gpt2"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        json_t *config = golden_config(models[i]);
        quire_error err = {0};
        size_t n, n_wanted;
        if (config == NULL) {
            skip();
        }
        temp_dir whole = golden_write(models[i], config, NULL);
        json_object_del(config, "architectures");
        temp_dir without = golden_write(models[i], config, NULL);
        float *wanted = golden_run(whole.path, COMPUTE_F32, &n_wanted, &err),
              *got = golden_run(without.path, COMPUTE_F32, &n, &err);
        if (wanted == NULL || got == NULL) {
            fail_msg("%s: %s", models[i], err.message);
        }
        assert_int_equal(n, n_wanted);
        assert_memory_equal(got, wanted, n * sizeof *got);
        json_object_set_new(config, "model_type", json_string("wav2vec2"));
        temp_dir other = golden_write(models[i], config, NULL);
        assert_null(golden_run(other.path, COMPUTE_F32, &n, &err));
        assert_non_null(strstr(err.message, "model_type \"wav2vec2\" is not supported"));
        json_object_del(config, "model_type");
        temp_dir bare = golden_write(models[i], config, NULL);
        assert_null(golden_run(bare.path, COMPUTE_F32, &n, &err));
        assert_non_null(strstr(err.message, "\"architectures\" (or \"model_type\")"));
        mem_free(wanted);
        mem_free(got);
        temp_delete(&whole, golden_files);
        temp_delete(&without, golden_files);
        temp_delete(&other, golden_files);
        temp_delete(&bare, golden_files);
        json_decref(config);
    }
}

TEST_MAIN(NULL, NULL)

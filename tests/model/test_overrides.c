/* Overrides of a model's numbers: replaced or added keys, keys that only config.json has,
 * and overrides that are not read or have the wrong type. */
#include "make_model.h"

#include <math.h>

#include "model/model.h"

static quire_err describe(const model_plan *p, const char *kv, model_desc *d, quire_error *err) {
    strbuf b = {0};
    model_file *f = NULL;
    put_plan(&b, p);
    quire_err e = model_file_open_memory_with(b.p, b.n, "test.gguf", &(model_overrides){.kv = kv}, &f, err);
    e = e ? e : model_describe(f, d, err);
    model_file_close(f);
    strbuf_deinit(&b);
    return e;
}

static model_desc described(const model_plan *p, const char *kv) {
    model_desc d;
    quire_error err = {0};
    if (describe(p, kv, &d, &err) != QUIRE_OK) {
        fail_msg("%s: %s", kv != NULL ? kv : "", err.message);
    }
    return d;
}

static void refused(const model_plan *p, const char *kv, const char *words) {
    model_desc d;
    quire_error err = {0};
    quire_err e = describe(p, kv, &d, &err);
    if (e == QUIRE_OK || strstr(err.message, words) == NULL) {
        fail_msg("%s: %s: \"%s\" is not in: %s", kv, quire_err_name(e), words, err.message);
    }
}

TEST(numbers_are_replaced_and_set) {
    model_plan p = plan_llama_as("llama");
    model_desc d = described(&p, "llama.context_length=int:999,llama.rope.freq_base=float:5e5,llama."
                                 "attention.sliding_window=int:32,general.name=str:n");
    assert_int_equal(d.max_positions, 999);
    assert_float_equal(d.ropes[0].theta, 5e5f, 0);
    assert_int_equal(d.layers[1].window, 32);
    assert_string_equal(d.name, "n");
    assert_int_equal(described(&p, NULL).layers[1].window, 0);
    d = described(&p, "llama.attention.head_count_kv=arr:[1,4]");
    assert_int_equal(d.caches[0].n_kv_heads, 1);
    assert_int_equal(d.caches[1].n_kv_heads, 4);
}

TEST(what_gguf_has_no_key_for_goes_by_its_name_in_config_json) {
    model_plan p = plan_llama_as("qwen2");
    model_desc d = described(&p, "qwen2.use_sliding_window=bool:true,qwen2.attention."
                                 "sliding_window=int:9,qwen2.max_window_layers=int:1");
    assert_int_equal(d.layers[0].window, 0);
    assert_int_equal(d.layers[1].window, 9);
    d = described(&p, "qwen2.use_sliding_window=bool:true,qwen2.attention.sliding_window=int:9,"
                      "qwen2.layer_types=arr:[\"sliding_attention\",\"full_attention\"]");
    assert_int_equal(d.layers[0].window, 9);
    assert_int_equal(d.layers[1].window, 0);
    set_u32(&p, "qwen2.use_sliding_window", 1); /* in the file it means nothing */
    assert_int_equal(described(&p, NULL).layers[1].window, 0);
    p = plan_llama_as("gemma2");
    assert_float_equal(described(&p, "gemma2.query_pre_attn_scalar=float:100").attention_scale, 0.1f, 0);
    assert_float_equal(described(&p, NULL).attention_scale, 0.25f, 0);
}

TEST(gemmas_of_27b_scale_by_their_width_over_their_heads) {
    model_plan p = plan_llama_as("gemma2");
    set_u32(&p, "gemma2.block_count", 46);
    set_u32(&p, "gemma2.attention.key_length", 32);
    set_u32(&p, "gemma2.attention.value_length", 32);
    assert_float_equal(described(&p, NULL).attention_scale, 0.25f, 0); /* 64 / 4 */
    set_u32(&p, "gemma2.block_count", 42);
    assert_float_equal(described(&p, NULL).attention_scale, 1.0f / sqrtf(32.0f), 0);
}

TEST(what_this_architecture_does_not_read_is_refused) {
    model_plan p = plan_llama_as("llama");
    refused(&p, "llama.rope.freq_bas=float:1e6",
            "llama.rope.freq_bas: this key is not read for test.gguf; the nearest one that is: "
            "llama.rope.freq_base");
    refused(&p, "qwen2.rope.freq_base=float:1e6", "qwen2.rope.freq_base: this key is not read");
    refused(&p, "llama.query_pre_attn_scalar=float:3", "this key is not read");
    refused(&p, "tokenizer.ggml.tokens=arr:[\"a\"]", "this key is not read");
    p = plan_llama_as("qwen2");
    refused(&p, "qwen2.attention.sliding_window=int:9",
            "this key is not read"); /* use_sliding_window is false */
}

TEST(another_type_or_range_is_refused_with_the_flag) {
    model_plan p = plan_llama_as("llama");
    refused(&p, "llama.context_length=str:many",
            "llama.context_length must be a whole number from 0 to 2147483647 "
            "(--override-kv sets it)");
    refused(&p, "llama.context_length=int:2147483648", "(--override-kv sets it)");
    refused(&p, "llama.context_length=int:-1", "(--override-kv sets it)");
    refused(&p, "llama.rope.freq_base=arr:[1]",
            "llama.rope.freq_base must be a finite number (--override-kv sets it)");
    refused(&p, "llama.rope.freq_base=float:1e300", "llama.rope.freq_base must be a finite number");
    refused(&p, "llama.block_count=int:0", "0 layers");
    refused(&p, "llama.attention.head_count=int:0", "at least 1");
    refused(&p, "general.architecture=str:lama", "the nearest supported one is llama");
    refused(&p, "general.architecture=int:3", "general.architecture");
}

TEST_MAIN(NULL, NULL)

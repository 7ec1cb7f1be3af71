/* `quire inspect` in both forms, on real files and on files whose words and numbers are
 * chosen to embarrass it. */
#include "model/make_model.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "quire.h"
#include "json/json.h"

static quire_options options_for(const char *model) {
    quire_options o;
    quire_options_init(&o);
    o.model = model;
    return o;
}

static char *inspect(const quire_options *o, bool json) {
    char *text;
    quire_error err = {0};
    if (quire_inspect(o, json, &text, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_non_null(text);
    return text;
}

static json_value *inspect_json(const quire_options *o) {
    char *text = inspect(o, true);
    json_value *v = json_document(str_of(text));
    assert_non_null(v);
    assert_true(utf8_is_valid(str_of(text)));
    mem_free(text);
    return v;
}

static int64_t number(json_value *o, const char *key) {
    json_value *v = json_get(o, key);
    assert_true(json_is(v, JSON_KIND_INT));
    return json_int64(v);
}

static json_value *plan_of(json_value *o, const char *kv_dtype) {
    json_value *plan = json_get(o, "memory_plan");
    for (size_t i = 0; i < json_length(plan); i++) {
        json_value *one = json_at(plan, i);
        if (str_is(json_get_str(one, "kv_dtype"), kv_dtype)) {
            return one;
        }
    }
    fail_msg("no plan for %s", kv_dtype);
    return NULL;
}

TEST(the_builtin_model_is_summed_up) {
    quire_options o = options_for("builtin");
    json_value *v = inspect_json(&o);
    assert_int_equal(number(v, "n_layers"), 6);
    assert_int_equal(number(v, "n_vocab"), 2048);
    int64_t d = number(v, "d_model"), ff = number(v, "d_ff"),
            kv = number(v, "n_kv_heads") * number(v, "d_head");
    int64_t matrices = 2048 * d + 6 * (2 * d * d + 2 * kv * d + 3 * ff * d), norms = 13 * d;
    assert_int_equal(number(v, "n_params"), matrices + norms);
    assert_int_equal(number(v, "weight_bytes"), matrices / 32 * 34 + norms * 4);
    json_value *types = json_get(v, "weight_bytes_by_type");
    assert_int_equal(number(types, "q8_0"), matrices / 32 * 34);
    assert_int_equal(number(types, "f32"), norms * 4);
    json_value *f32 = plan_of(v, "f32"), *f16 = plan_of(v, "f16"), *bf16 = plan_of(v, "bf16");
    assert_int_equal(number(f32, "token_bytes"), 2 * 6 * kv * 4);
    assert_int_equal(number(f16, "token_bytes"), 2 * 6 * kv * 2);
    assert_int_equal(number(bf16, "page_bytes"), 16 * number(bf16, "token_bytes"));
    assert_int_equal(number(plan_of(v, "int8"), "token_bytes"), 2 * 6 * (kv + 4 * number(v, "n_kv_heads")));
    assert_int_equal(number(f16, "n_tokens"), 16 * number(f16, "n_pages"));
    assert_int_equal(number(f16, "full_length_requests"), number(f16, "n_pages") / 128);
    quire_options hf = options_for("models/builtin-hf");
    json_value *w = inspect_json(&hf);
    assert_string_equal(json_get_str(w, "format").p, "huggingface");
    assert_int_equal(number(w, "n_params"), number(v, "n_params"));
    assert_int_equal(number(w, "max_positions"), number(v, "max_positions"));
    assert_int_equal(number(plan_of(w, "f16"), "page_bytes"), number(f16, "page_bytes"));
    json_drop(w);
    json_drop(v);
    char *text = inspect(&o, false);
    assert_non_null(strstr(text, "6 layers"));
    assert_non_null(strstr(text, "tied head"));
    assert_non_null(strstr(text, "int8 by default"));
    mem_free(text);
}

/* A file on disk with the plan's numbers; its tensors need not be theirs, since nothing
 * is loaded. */
static json_value *inspect_plan(const model_plan *p, const char *text_has) {
    temp_dir dir = temp_new();
    strbuf b = {0};
    put_plan(&b, p);
    write_file(temp_path(&dir, "m.gguf"), b.p, b.n);
    quire_options o = options_for(temp_path(&dir, "m.gguf"));
    json_value *v = inspect_json(&o);
    char *text = inspect(&o, false);
    assert_non_null(strstr(text, text_has));
    assert_null(strstr(text, "nan"));
    mem_free(text);
    strbuf_deinit(&b);
    temp_delete(&dir, (const char *[]){"m.gguf", NULL});
    return v;
}

static void numbers_of(model_plan *p, uint32_t n_layers, uint32_t n_heads, uint32_t n_kv_heads) {
    plan_llama(p);
    set_u32(p, "llama.block_count", n_layers);
    set_u32(p, "llama.attention.head_count", n_heads);
    set_u32(p, "llama.attention.head_count_kv", n_kv_heads);
    set_u32(p, "llama.embedding_length", n_heads * 128);
    set_u32(p, "llama.attention.key_length", 128);
    set_u32(p, "llama.attention.value_length", 128);
    set_u32(p, "llama.rope.dimension_count", 128);
    set_u32(p, "llama.context_length", 4096);
}

/* Worked examples 8, 16 and 17. */
TEST(bytes_a_token_are_those_of_the_worked_examples) {
    static const struct {
        uint32_t n_layers, n_heads, n_kv_heads;
        int64_t token_bytes;
    } cases[] = {{32, 32, 32, 524288}, {32, 32, 8, 131072}, {80, 64, 8, 327680}, {80, 64, 64, 2621440}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_plan p;
        numbers_of(&p, cases[i].n_layers, cases[i].n_heads, cases[i].n_kv_heads);
        json_value *v = inspect_plan(&p, "4096");
        assert_int_equal(number(plan_of(v, "f16"), "token_bytes"), cases[i].token_bytes);
        assert_int_equal(number(plan_of(v, "f16"), "page_bytes"), cases[i].token_bytes * 16);
        assert_int_equal(number(plan_of(v, "f32"), "token_bytes"), cases[i].token_bytes * 2);
        json_drop(v);
    }
}

TEST(hostile_words_stay_harmless) {
    static const char *const names[] = {"bad \xff\xfe bytes", "esc \x1b[31mred", "\"quotes\" and \\",
                                        "line\nfeed", "\xc3\xa9t\xc3\xa9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model_plan p;
        plan_llama(&p);
        set_str(&p, "general.name", names[i]);
        set_str(&p, "tokenizer.ggml.pre", names[i]);
        json_value *v = inspect_plan(&p, "architecture    llama");
        json_drop(v);
    }
    model_plan p;
    char longest[400];
    plan_llama(&p);
    memset(longest, 0, sizeof longest);
    for (int i = 0; i < 130; i++) {
        memcpy(longest + 1 + 3 * i, "\xe2\x82\xac", 3); /* a character lies across the cut */
    }
    longest[0] = 'x';
    set_str(&p, "general.name", longest);
    json_value *v = inspect_plan(&p, "x\xe2\x82\xac");
    json_drop(v);
}

TEST(a_file_without_weights_is_no_division_by_zero) {
    model_plan p;
    plan_llama(&p);
    set_u32(&p, "llama.vocab_size", 40);
    p.n_tensors = 0;
    json_value *v = inspect_plan(&p, "0 parameters");
    assert_int_equal(number(v, "n_params"), 0);
    json_drop(v);
}

TEST_MAIN(NULL, NULL)

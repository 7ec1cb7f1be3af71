/* Overrides of metadata: what flags may say, how they are laid over both
 * formats, what a packed model carries, and hostile texts. */
#include "packed_files.h"

#include "base/log.h"
#include "file/overrides.h"
#include "file/sampling_defaults.h"

static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", NULL};

#define CONFIG                                                                                               \
    "{\"hidden_size\": 64, \"rope_theta\": 10000.0, \"rope_scaling\": "                                      \
    "{\"rope_type\": \"llama3\", \"factor\": 8.0}, \"window\": 16, "                                         \
    "\"text_config\": {\"hidden_size\": 32, \"num_attention_heads\": 4}, "                                   \
    "\"list\": [1, 2, 3], \"eos_token_id\": 2}"

static quire_err open_gguf_with(const char *kv, const char *hf, model_file **out, quire_error *err) {
    static strbuf b;
    strbuf_clear(&b);
    make_gguf(&b, 3, NULL);
    return model_file_open_memory_with(b.p, b.n, "test.gguf", &(model_overrides){.hf = hf, .kv = kv}, out,
                                       err);
}

static model_file *gguf_with(const char *kv) {
    model_file *f = NULL;
    quire_error err = {0};
    if (open_gguf_with(kv, NULL, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

static quire_err open_hf_with(const char *kv, const char *hf, model_file **out, quire_error *err) {
    temp_dir d = temp_new();
    strbuf b = {0};
    write_text(&d, "config.json", CONFIG);
    write_text(&d, "generation_config.json", "{\"eos_token_id\": [5, 6]}");
    make_safetensors(&b, "{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16);
    write_file(temp_path(&d, "model.safetensors"), b.p, b.n);
    quire_err e = model_file_open_with(d.path, &(model_overrides){.hf = hf, .kv = kv}, out, err);
    strbuf_deinit(&b);
    temp_delete(&d, names);
    return e;
}

static model_file *hf_with(const char *hf) {
    model_file *f = NULL;
    quire_error err = {0};
    if (open_hf_with(NULL, hf, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

static void refused(quire_err e, const quire_error *err, const model_file *f, const char *what,
                    const char *words) {
    if (e != QUIRE_INVALID || f != NULL || strstr(err->message, words) == NULL) {
        fail_msg("%.200s: %s: \"%s\" is not in: %s", what, quire_err_name(e), words, err->message);
    }
}

static void refused_kv(const char *kv, const char *words) {
    model_file *f = NULL;
    quire_error err = {0};
    quire_err e = open_gguf_with(kv, NULL, &f, &err);
    refused(e, &err, f, kv, words);
    assert_non_null(strstr(err.message, "--override-kv"));
}

static void refused_hf(const char *hf, const char *words) {
    model_file *f = NULL;
    quire_error err = {0};
    quire_err e = open_hf_with(NULL, hf, &f, &err);
    refused(e, &err, f, hf, words);
    assert_non_null(strstr(err.message, "--hf-overrides"));
}

static int64_t i64_of(const model_file *f, const char *key) {
    int64_t v = -999;
    assert_int_equal(model_file_i64(f, key, &v), QUIRE_OK);
    return v;
}

static void assert_text(const model_file *f, const char *key, const char *wanted) {
    str s;
    assert_int_equal(model_file_str(f, key, &s), QUIRE_OK);
    if (!str_is(s, wanted)) {
        fail_msg("%s is %.*s, not %s", key, (int)s.n, s.p, wanted);
    }
}

/* ---- GGUF ---- */

TEST(every_type_sets_a_key_that_is_there_or_not) {
    model_file *f = gguf_with("a.i64=int:-9223372036854775808,new.float=float:-1.5e3,new."
                              "bool=bool:true,general.architecture=str:x y:z=,"
                              "new.quoted=str:\"a, \\\"b\\\"\\n\",new.list=arr:[1, 2.5, "
                              "true],new.texts=arr:[\"a,]\",\"b\"],new.none=str:");
    float number = 0, numbers[3];
    bool flag = false;
    size_t n;
    str s;
    assert_int_equal(i64_of(f, "a.i64"), INT64_MIN);
    assert_int_equal(model_file_f32(f, "new.float", &number), QUIRE_OK);
    assert_float_equal(number, -1500, 0);
    assert_int_equal(model_file_bool(f, "new.bool", &flag), QUIRE_OK);
    assert_true(flag);
    assert_text(f, "general.architecture", "x y:z=");
    assert_text(f, "new.quoted", "a, \"b\"\n");
    assert_text(f, "new.none", "");
    /* true is no number there */
    assert_int_equal(model_file_f32s(f, "new.list", numbers, 3, &n), QUIRE_BAD_FILE);
    assert_int_equal(model_file_str_at(f, "new.texts", 0, &s, &n), QUIRE_OK);
    assert_true(str_is(s, "a,]") && n == 2);
    assert_int_equal(model_file_i64(f, "new.float.not", &(int64_t){0}), QUIRE_NOT_FOUND);
    model_file_close(f);
}

TEST(the_vocabulary_is_read_with_them) {
    model_file *f = gguf_with("tokenizer.ggml.bos_token_id=int:2,tokenizer.ggml.add_bos_"
                              "token=bool:false,tokenizer.chat_template=str:\"{{ a, b }}\"");
    assert_int_equal(model_file_vocab(f)->bos, 2);
    assert_int_equal(model_file_vocab(f)->add_bos, 0);
    assert_true(str_is(model_file_chat_template(f), "{{ a, b }}"));
    assert_int_equal(model_file_check_overrides(f, NULL), QUIRE_OK);
    model_file_close(f);
}

TEST(defaults_of_sampling_are_read_with_them) {
    model_file *f = gguf_with("general.sampling.top_k=int:7");
    sampling_defaults d;
    /* though nothing has asked for it so far */
    assert_int_equal(model_file_check_overrides(f, NULL), QUIRE_OK);
    assert_int_equal(sampling_defaults_of_model(f, &d, NULL), QUIRE_OK);
    assert_string_equal(d.names[1], "top_k");
    assert_float_equal(d.values[1], 7, 0);
    sampling_defaults_deinit(&d);
    model_file_close(f);
}

TEST(what_is_no_override_is_refused_with_its_key) {
    static const char *const cases[][2] = {
        {"", "is empty"},
        {",", "must be KEY=TYPE:VALUE"},
        {"a", "--override-kv a: must be KEY=TYPE:VALUE"},
        {"a=int", "must be KEY=TYPE:VALUE"},
        {"=int:1", "must be KEY=TYPE:VALUE"},
        {"\xff=int:1", "a key must be UTF-8"},
        {"a=:1", "its type must be int, float, bool, str or arr"},
        {"a=i32:1", "--override-kv a: its type must be"},
        {"a=int:", "whole number"},
        {"a=int:1.5", "whole number"},
        {"a=int:0x10", "whole number"},
        {"a=int: 1", "whole number"},
        {"a=int:9223372036854775808", "64-bit"},
        {"a=int:-9223372036854775809", "64-bit"},
        {"a=float:", "finite"},
        {"a=float:nan", "finite"},
        {"a=float:-inf", "finite"},
        {"a=float:1e999", "finite"},
        {"a=float:1x", "finite"},
        {"a=bool:1", "true or false"},
        {"a=bool:", "true or false"},
        {"a=str:\xff", "UTF-8"},
        {"a=str:\"b", "is not JSON"},
        {"a=str:\"b\"c", "only a comma"},
        {"a=arr:", "is not JSON"},
        {"a=arr:1", "JSON list"},
        {"a=arr:{\"b\":1}", "is not JSON"},
        {"a=arr:[1", "is not JSON"},
        {"a=arr:[1]]", "only a comma"},
        {"a=arr:[[[[[[1]]]]]]", "is not JSON"},
        {"a=arr:[18446744073709551616]", "is not JSON"},
        {"a=int:1,", "a key must follow the comma"},
        {"a=int:1,b", "--override-kv b: must be"},
        {"a=int:1,b=int:2,a=int:1", "--override-kv a: is given twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused_kv(cases[i][0], cases[i][1]);
    }
}

TEST(a_key_that_nothing_asks_for_is_named_with_the_nearest) {
    model_file *f = gguf_with("llama.block_cuont=int:3,general.architecture=str:llama");
    quire_error err = {0};
    int64_t v;
    str s;
    assert_int_equal(model_file_str(f, "general.architecture", &s), QUIRE_OK);
    assert_int_equal(model_file_i64(f, "llama.attention.head_count", &v), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_check_overrides(f, &err), QUIRE_INVALID);
    assert_string_equal(err.message, "--override-kv llama.block_cuont: this key is not read for test.gguf");
    (void)model_file_i64(f, "llama.block_count", &v);
    (void)model_file_i64(f, "llama.block_count_of", &v);
    assert_int_equal(model_file_check_overrides(f, &err), QUIRE_INVALID);
    assert_string_equal(err.message, "--override-kv llama.block_cuont: this key is not read for test.gguf; "
                                     "the nearest one that is: llama.block_count");
    (void)model_file_i64(f, "llama.block_cuont", &v);
    assert_int_equal(model_file_check_overrides(f, &err), QUIRE_OK);
    model_file_close(f);
}

/* ---- config.json ---- */

TEST(an_object_is_merged_deep) {
    model_file *f = hf_with("{\"rope_scaling\": {\"factor\": 2, \"new\": {\"deep\": 7}}, "
                            "\"text_config\": {\"hidden_size\": 48}, \"list\": [9],"
                            " \"limit\": {\"__float__\": \"Infinity\"}}");
    int64_t list[3];
    float limit;
    size_t n;
    assert_int_equal(i64_of(f, "rope_scaling.factor"), 2);
    assert_text(f, "rope_scaling.rope_type", "llama3");
    assert_int_equal(i64_of(f, "rope_scaling.new.deep"), 7);
    assert_int_equal(i64_of(f, "text_config.hidden_size"), 48);
    assert_int_equal(i64_of(f, "text_config.num_attention_heads"), 4);
    assert_int_equal(i64_of(f, "hidden_size"), 64);
    assert_int_equal(model_file_i64s(f, "list", list, 3, &n), QUIRE_OK);
    assert_true(n == 1 && list[0] == 9); /* lists are replaced */
    assert_int_equal(model_file_f32(f, "limit", &limit), QUIRE_OK);
    assert_int_equal(model_file_check_overrides(f, NULL), QUIRE_OK);
    model_file_close(f);
}

TEST(null_and_other_kinds_take_what_lies_inside_away) {
    model_file *f = hf_with("{\"rope_scaling\": null, \"window\": null, \"text_config\": 3}");
    int64_t v;
    str s;
    assert_int_equal(model_file_i64(f, "rope_scaling.factor", &v), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_str(f, "rope_scaling", &s), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_i64(f, "window", &v), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_i64(f, "text_config.hidden_size", &v), QUIRE_NOT_FOUND);
    assert_int_equal(i64_of(f, "hidden_size"), 64);
    assert_int_equal(model_file_check_overrides(f, NULL), QUIRE_OK);
    model_file_close(f);
    f = hf_with("{\"window\": {\"inside\": 1}}");
    assert_int_equal(model_file_i64(f, "window", &v), QUIRE_BAD_FILE); /* an object now */
    assert_int_equal(i64_of(f, "window.inside"), 1);
    model_file_close(f);
}

TEST(what_ends_a_text_goes_before_generation_config) {
    int64_t ids[2];
    size_t n;
    model_file *f = hf_with("{\"eos_token_id\": 9}");
    assert_int_equal(model_file_generation_i64s(f, "eos_token_id", ids, 2, &n), QUIRE_OK);
    assert_true(n == 1 && ids[0] == 9);
    model_file_close(f);
    f = hf_with("{}");
    assert_int_equal(model_file_generation_i64s(f, "eos_token_id", ids, 2, &n), QUIRE_OK);
    assert_true(n == 2 && ids[0] == 5 && model_file_overrides(f).n == 0);
    model_file_close(f);
}

TEST(what_is_no_object_of_config_json_is_refused) {
    static const char *const cases[][2] = {
        {"", "not valid JSON"},
        {"{", "not valid JSON"},
        {"[]", "must be a JSON object"},
        {"null", "must be a JSON object"},
        {"1", "must be a JSON object"},
        {"{} {}", "not valid JSON"},
        {"{\"a\": 1, \"a\": 1}", "duplicate name"},
        {"{\"a\": {\"b\": 1, \"b\": 2}}", "duplicate name"},
        {"{\"a.b\": 1}", "have a dot"},
        {"{\"\": 1}", "be empty"},
        {"{\"a\": {}}", "--hf-overrides a: is an empty object"},
        {"{\"a\": {\"b\": {}}}", "--hf-overrides a.b: is an empty object"},
        {"{\"a\": 1e999}", "not valid JSON"},
        {"{\"a\\u0000b\": 1}", "not valid JSON"},
        {"{\"a\": \"\xff\"}", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refused_hf(cases[i][0], cases[i][1]);
    }
}

TEST(the_wrong_flag_names_the_other) {
    model_file *f = NULL;
    quire_error err = {0};
    quire_err e = open_gguf_with(NULL, "{\"a\":1}", &f, &err);
    refused(e, &err, f, "hf",
            "--hf-overrides: not for this model: test.gguf has GGUF's metadata; use --override-kv");
    e = open_hf_with("a=int:1", NULL, &f, &err);
    refused(e, &err, f, "kv", "has a config.json; use --hf-overrides");
    assert_non_null(strstr(err.message, "--override-kv: "));
}

/* ---- hostile texts ---- */

/* {"k":{"k":..1..}} */
static void put_nest(strbuf *b, int depth, const char *name) {
    for (int i = 0; i < depth; i++) {
        assert_int_equal(strbuf_addf(b, "{\"%s\":", name), QUIRE_OK);
    }
    put(b, "1", 1);
    for (int i = 0; i < depth; i++) {
        put(b, "}", 1);
    }
}

TEST(depth_length_and_number_are_bounded) {
    strbuf b = {0};
    static const int depths[] = {17, 600, 100000};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        strbuf_clear(&b);
        put_nest(&b, depths[i], "k");
        refused_hf(b.p, "not valid JSON");
    }
    strbuf_clear(&b);
    put_nest(&b, 16, "a_name_of_16_byte");
    refused_hf(b.p, "at most 127");
    strbuf_clear(&b);
    put(&b, "{\"", 2);
    for (int i = 0; i < 1000000; i++) {
        put(&b, "k", 1);
    }
    put(&b, "\":1}", 4);
    refused_hf(b.p, "the key has 1,000,000 bytes");
    b.p[1000002] = '=';
    memcpy(b.p + 1000003, "i", 2);
    refused_kv(b.p + 2, "must be KEY=TYPE:VALUE");
    strbuf_clear(&b);
    for (int i = 0; i < 500000; i++) {
        put(&b, "k", 1);
    }
    put(&b, "=int:1", 6);
    refused_kv(b.p, "the key has 500,000 bytes");
    strbuf_clear(&b);
    for (int i = 0; i < 300; i++) {
        assert_int_equal(strbuf_addf(&b, "%sk%d=int:%d", i > 0 ? "," : "", i, i), QUIRE_OK);
    }
    refused_kv(b.p, "more than 256 keys");
    strbuf_clear(&b);
    put(&b, "a=int:", 6);
    for (int i = 0; i < 1 << 20; i++) {
        put(&b, "1", 1);
    }
    refused_kv(b.p, "at most 1,048,576");
    b.p[1000] = 0;
    refused_kv(b.p, "64-bit");
    strbuf_deinit(&b);
}

TEST(mutated_texts_are_refused_or_read) {
    static const char kv[] = "a.i64=int:12,b=float:1.5,c=bool:true,d=str:\"x,y\",e=arr:[1,[2],\"z\"]";
    static const char hf[] = "{\"rope_scaling\":{\"factor\":8.5,\"b\":[1,\"x\",null]},\"window\":null,"
                             "\"limit\":{\"__float__\":\"NaN\"}}";
    static const char letters[] = "{}[]\",:=\\.0e-+ntrufals\xff\x01";
    const uint64_t seed = 20260726;
    uint64_t r = seed;
    for (int i = 0; i < 20000; i++) {
        char text[160];
        bool is_kv = i % 2 == 0;
        size_t n = is_kv ? sizeof kv - 1 : sizeof hf - 1;
        memcpy(text, is_kv ? kv : hf, n + 1);
        for (uint64_t k = 1 + rng_next(&r) % 3; k > 0; k--) {
            text[rng_next(&r) % n] = letters[rng_next(&r) % (sizeof letters - 1)];
        }
        text[rng_next(&r) % 8 == 0 ? rng_next(&r) % n : n] = 0;
        overrides *o = NULL;
        quire_error err = {0};
        model_overrides given = {.hf = is_kv ? NULL : text, .kv = is_kv ? text : NULL};
        quire_err e = overrides_open(is_kv ? MODEL_GGUF : MODEL_HF, "f", &given, (str){0}, &o, &err);
        if (e != QUIRE_OK) {
            assert_true(e == QUIRE_INVALID && o == NULL && strncmp(err.message, "--", 2) == 0);
        } else if (o != NULL) { /* what was read is read again from its own text */
            overrides *again;
            quire_err same =
                overrides_open(is_kv ? MODEL_GGUF : MODEL_HF, "f", NULL, overrides_text(o), &again, &err);
            if (same != QUIRE_OK || !str_eq(overrides_text(o), overrides_text(again))) {
                fail_msg("seed %llu, case %d: %s: %s", (unsigned long long)seed, i, text, err.message);
            }
            overrides_close(again);
        }
        overrides_close(o);
    }
}

/* ---- identity, packed models ---- */

TEST(equal_overrides_have_equal_texts) {
    model_file *a = gguf_with("b=int:1,a=float:1.0,c=arr:[1,2]"),
               *b = gguf_with("c=arr:[ 1 ,2],a=float:1,b=int:1");
    model_file *c = gguf_with("c=arr:[1,3],a=float:1,b=int:1"), *none = gguf_with(NULL);
    assert_true(str_eq(model_file_overrides(a), model_file_overrides(b)));
    assert_false(str_eq(model_file_overrides(a), model_file_overrides(c)));
    assert_true(model_file_overrides(a).n > 0 && model_file_overrides(none).n == 0);
    assert_string_equal(model_file_set_by(a, "b"), "--override-kv");
    assert_null(model_file_set_by(a, "d"));
    assert_null(model_file_set_by(none, "b"));
    model_file_close(a);
    model_file_close(b);
    model_file_close(c);
    model_file_close(none);
}

/* f packed into memory, *n bytes. */
static uint8_t *packed_of(const model_file *f, size_t *n) {
    temp_dir d = temp_new();
    packed_writer *w;
    packed_image *image;
    quire_error err = {0};
    assert_int_equal(packed_image_open(COMPUTE_INT8, &image), QUIRE_OK);
    assert_int_equal(packed_writer_open(temp_path(&d, "m.quire"), &w, &err), QUIRE_OK);
    tensor_view packed = *model_file_tensor(f, 0);
    packed.packing = 7;
    assert_int_equal(packed_image_add(image, &packed), QUIRE_OK);
    assert_int_equal(packed_image_metadata(image, f, str_of(""), str_of("")), QUIRE_OK);
    assert_int_equal(packed_image_finish(image), QUIRE_OK);
    assert_int_equal(packed_writer_finish(w, image, &err), QUIRE_OK);
    uint8_t *bytes = read_whole(temp_path(&d, "m.quire"), n);
    packed_image_close(image);
    temp_delete(&d, (const char *[]){"m.quire", NULL});
    return bytes;
}

static model_file *packed_with(const uint8_t *bytes, size_t n, const char *kv, const char *hf) {
    model_file *f = NULL;
    quire_error err = {0};
    if (model_file_open_memory_with(bytes, n, "m.quire", &(model_overrides){.hf = hf, .kv = kv}, &f, &err) !=
        QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

TEST(a_packed_model_carries_them_and_takes_others) {
    size_t n;
    model_file *source = gguf_with("a.i64=int:7,new=int:8,tokenizer.ggml.bos_token_id=int:1");
    uint8_t *bytes = packed_of(source, &n);
    model_file *f = packed_with(bytes, n, NULL, NULL);
    assert_int_equal(i64_of(f, "a.i64"), 7);
    assert_int_equal(i64_of(f, "new"), 8);
    assert_int_equal(model_file_vocab(f)->bos, 1);
    assert_true(str_eq(model_file_overrides(f), model_file_overrides(source)));
    model_file_close(f);
    f = packed_with(bytes, n, "new=int:9,other=int:1", NULL);
    assert_int_equal(i64_of(f, "a.i64"), 7);
    assert_int_equal(i64_of(f, "new"), 9);
    assert_int_equal(i64_of(f, "other"), 1);
    model_file_close(f);
    model_file_close(source);
    mem_free(bytes);
}

TEST(a_packed_directory_carries_paths) {
    size_t n;
    int64_t v;
    model_file *source = hf_with("{\"rope_scaling\": {\"factor\": 2, \"low\": "
                                 "1}, \"text_config\": {\"hidden_size\": 48}}");
    uint8_t *bytes = packed_of(source, &n);
    model_file *f = packed_with(bytes, n, NULL, NULL);
    assert_int_equal(i64_of(f, "rope_scaling.factor"), 2);
    assert_int_equal(i64_of(f, "text_config.hidden_size"), 48);
    assert_text(f, "rope_scaling.rope_type", "llama3");
    model_file_close(f);
    f = packed_with(bytes, n, NULL, "{\"rope_scaling\": null, \"text_config\": {\"hidden_size\": 40}}");
    assert_int_equal(model_file_i64(f, "rope_scaling.low", &v), QUIRE_NOT_FOUND);
    assert_int_equal(i64_of(f, "text_config.hidden_size"), 40);
    model_file_close(f);
    model_file_close(source);
    mem_free(bytes);
}

TEST(damaged_ones_of_a_packed_model_are_refused) {
    static const char *const texts[] = {"{", "[]", "3", "{\"a\":1,\"a\":2}", "{\"\":", "\x01\x02"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        overrides *o = NULL;
        quire_error err = {0};
        assert_int_equal(overrides_open(MODEL_GGUF, "m.quire", NULL, str_of(texts[i]), &o, &err),
                         QUIRE_BAD_FILE);
        assert_null(o);
        assert_non_null(strstr(err.message, "m.quire: the overrides that it was packed with are damaged"));
    }
}

int main(void) {
    log_set_level(LOG_ERROR);
    return tests_run(NULL, NULL);
}

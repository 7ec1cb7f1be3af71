/* What a model's makers recommend: from generation_config.json and from GGUF's
 * general.sampling.*. */
#include "file/sampling_defaults.h"

#include "make_files.h"

static const char *const names[] = {"config.json", "generation_config.json", "model.gguf", "other.json",
                                    NULL};

static model_file *open_model(const char *path) {
    model_file *f = NULL;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

/* "temperature=0.6 top_k=20": what there is. */
static void assert_defaults(const sampling_defaults *d, const char *wanted) {
    strbuf text = {0};
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        if (d->names[i] != NULL) {
            assert_int_equal(
                strbuf_addf(&text, "%s%s=%.17g", text.n > 0 ? " " : "", d->names[i], d->values[i]), QUIRE_OK);
        }
    }
    assert_string_equal(text.n > 0 ? text.p : "", wanted);
    strbuf_deinit(&text);
}

/* A directory with config.json {} and this generation_config.json (NULL: none). */
static temp_dir directory_with(const char *generation) {
    temp_dir d = temp_new();
    write_text(&d, "config.json", "{}");
    if (generation != NULL) {
        write_text(&d, "generation_config.json", generation);
    }
    return d;
}

static void a_directory_gives(const char *generation, const char *wanted) {
    temp_dir d = directory_with(generation);
    model_file *f = open_model(d.path);
    sampling_defaults found;
    quire_error err = {0};
    if (sampling_defaults_of_model(f, &found, &err) != QUIRE_OK) {
        fail_msg("%s: %s", generation, err.message);
    }
    assert_defaults(&found, wanted);
    assert_string_equal(found.source.p, temp_path(&d, "generation_config.json"));
    sampling_defaults_deinit(&found);
    model_file_close(f);
    if (generation != NULL) { /* the same from elsewhere: the directory, or the file */
        assert_int_equal(sampling_defaults_read(d.path, &found, &err), QUIRE_OK);
        assert_defaults(&found, wanted);
        sampling_defaults_deinit(&found);
        assert_int_equal(sampling_defaults_read(temp_path(&d, "generation_config.json"), &found, &err),
                         QUIRE_OK);
        assert_defaults(&found, wanted);
        sampling_defaults_deinit(&found);
    }
    temp_delete(&d, names);
}

TEST(generation_config_gives_five_fields) {
    a_directory_gives("{\"do_sample\": false, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, "
                      "\"min_p\": 0.01, \"repetition_penalty\": 1.05, "
                      "\"eos_token_id\": [1, 2], \"max_new_tokens\": 7, \"typical_p\": 0.5}",
                      "temperature=0.59999999999999998 top_k=20 top_p=0.94999999999999996 min_p=0.01 "
                      "repetition_penalty=1.05");
    a_directory_gives("{\"temperature\": null, \"top_k\": 50}", "top_k=50");
    a_directory_gives("{\"eos_token_id\": 2}", "");
    a_directory_gives(NULL, "");
}

static void refuses(const char *generation, const char *words) {
    temp_dir d = directory_with(generation);
    model_file *f = open_model(d.path);
    for (int way = 0; way < 2; way++) {
        sampling_defaults found;
        quire_error err = {0};
        quire_err e = way == 0 ? sampling_defaults_of_model(f, &found, &err)
                               : sampling_defaults_read(d.path, &found, &err);
        assert_int_equal(e, QUIRE_BAD_FILE);
        assert_null(found.source.p);
        if (strstr(err.message, words) == NULL ||
            strstr(err.message, temp_path(&d, "generation_config.json")) == NULL) {
            fail_msg("%s: %s", generation, err.message);
        }
    }
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(what_is_no_number_is_refused_with_file_and_field) {
    refuses("{\"temperature\": \"0.6\"}", "temperature is a text");
    refuses("{\"top_k\": [20]}", "top_k is a list");
    refuses("{\"top_p\": true}", "top_p is true or false");
    refuses("{\"min_p\": {}}", "min_p is an object");
    refuses("{\"min_p\": {\"__float__\": \"Infinity\"}}", "min_p is not finite");
    refuses("{\"repetition_penalty\": {\"__float__\": \"NaN\"}}", "repetition_penalty is not finite");
}

TEST(another_file_must_be_there_and_be_json) {
    temp_dir d = directory_with(NULL);
    sampling_defaults found;
    quire_error err = {0};
    assert_int_equal(sampling_defaults_read(d.path, &found, &err), QUIRE_NOT_FOUND);
    assert_non_null(strstr(err.message, "generation_config.json"));
    assert_int_equal(sampling_defaults_read(temp_path(&d, "other.json"), &found, &err), QUIRE_NOT_FOUND);
    write_text(&d, "other.json", "[1]");
    assert_int_equal(sampling_defaults_read(temp_path(&d, "other.json"), &found, &err), QUIRE_BAD_FILE);
    write_text(&d, "other.json", "{\"top_k\": 1");
    assert_int_equal(sampling_defaults_read(temp_path(&d, "other.json"), &found, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "other.json"));
    temp_delete(&d, names);
}

static void put_key_f32(strbuf *b, const char *key, float v) {
    put_key(b, key, GGUF_F32);
    put_f32(b, v);
}

TEST(gguf_gives_them_under_keys_of_its_own) {
    temp_dir d = temp_new();
    strbuf b = {0};
    put_header(&b, 3, 0, 6);
    put_key_str(&b, "general.architecture", "llama");
    put_key_f32(&b, "general.sampling.temp", 0.7f);
    put_key_u32(&b, "general.sampling.top_k", 20);
    put_key_f32(&b, "general.sampling.top_p", 0.95f);
    put_key_f32(&b, "general.sampling.min_p", 0.0f);
    put_key_f32(&b, "general.sampling.penalty_repeat", 1.05f);
    write_file(temp_path(&d, "model.gguf"), b.p, b.n);
    model_file *f = open_model(temp_path(&d, "model.gguf"));
    sampling_defaults found;
    quire_error err = {0};
    assert_int_equal(sampling_defaults_of_model(f, &found, &err), QUIRE_OK);
    assert_defaults(
        &found,
        "temperature=0.69999999999999996 top_k=20 top_p=0.94999999999999996 min_p=0 repetition_penalty=1.05");
    assert_string_equal(found.source.p, temp_path(&d, "model.gguf"));
    sampling_defaults_deinit(&found);
    model_file_close(f);
    strbuf_clear(&b);
    put_header(&b, 3, 0, 1);
    put_key_str(&b, "general.sampling.temp", "hot");
    write_file(temp_path(&d, "model.gguf"), b.p, b.n);
    f = open_model(temp_path(&d, "model.gguf"));
    assert_int_equal(sampling_defaults_of_model(f, &found, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "general.sampling.temp is a text"));
    model_file_close(f);
    strbuf_deinit(&b);
    temp_delete(&d, names);
}

TEST_MAIN(NULL, NULL)

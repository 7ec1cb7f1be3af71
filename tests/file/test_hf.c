/* Hugging Face directories: which files are read, how shards belong together, what
 * config.json may hold. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/model_file.h"
#include "file/open_file.h"
#include "make_files.h"

static const char *const names[] = {"config.json",
                                    "generation_config.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "model.safetensors",
                                    "model.safetensors.index.json",
                                    "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "pytorch_model.bin",
                                    NULL};

#define CONFIG                                                                                               \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, \"rms_norm_eps\": 1e-05, "             \
    "\"tie_word_embeddings\": true, "                                                                        \
    "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"llama3\"}, \"head_dim\": null, \"eos_token_id\": " \
    "[2, 3], "                                                                                               \
    "\"limits\": [0.0, {\"__float__\": \"Infinity\"}, {\"__float__\": \"-Infinity\"}, {\"__float__\": "      \
    "\"Infinity\"}, "                                                                                        \
    "{\"__float__\": \"NaN\"}], \"huge\": 18446744073709551615, \"wide\": 1e300}"

/* One F32 tensor of n elements called name. */
static void write_shard(const temp_dir *d, const char *file, const char *name, int n) {
    char header[200];
    strbuf b = {0};
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
             name, n, 4 * n);
    make_safetensors(&b, header, (size_t)n * 4);
    write_file(temp_path(d, file), b.p, b.n);
    strbuf_deinit(&b);
}

static temp_dir good_directory(void) {
    temp_dir d = temp_new();
    write_text(&d, "config.json", CONFIG);
    write_shard(&d, "model.safetensors", "w", 4);
    return d;
}

static model_file *open_good(const char *path) {
    model_file *f = NULL;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    return f;
}

static void assert_refused(const temp_dir *d, quire_err code, const char *words) {
    model_file *f = NULL;
    quire_error err = {0};
    assert_int_equal(model_file_open(d->path, &f, &err), code);
    assert_null(f);
    if (strstr(err.message, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, err.message);
    }
}

/* ---- config.json ---- */

TEST(config_is_read_by_dotted_path) {
    temp_dir d = good_directory();
    model_file *f = open_good(d.path);
    int64_t i = 0, ids[4];
    float x;
    bool flag = false;
    str s;
    size_t n;
    assert_int_equal(model_file_format(f), MODEL_HF);
    assert_int_equal(model_file_i64(f, "hidden_size", &i), QUIRE_OK);
    assert_int_equal(i, 64);
    assert_int_equal(model_file_i64(f, "rope_scaling.factor", &i), QUIRE_OK);
    assert_int_equal(i, 8);
    assert_int_equal(model_file_str(f, "rope_scaling.rope_type", &s), QUIRE_OK);
    assert_true(str_is(s, "llama3"));
    assert_int_equal(model_file_f32(f, "rms_norm_eps", &x), QUIRE_OK);
    assert_true(x == 1e-05f);
    assert_int_equal(model_file_bool(f, "tie_word_embeddings", &flag), QUIRE_OK);
    assert_true(flag);
    assert_int_equal(model_file_i64(f, "head_dim", &i), QUIRE_NOT_FOUND); /* null */
    assert_int_equal(model_file_i64(f, "rope_scaling.none", &i), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_i64(f, "hidden_size.x", &i), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_i64(f, "rope_scaling", &i), QUIRE_BAD_FILE);
    assert_int_equal(model_file_i64(f, "huge", &i), QUIRE_BAD_FILE);
    assert_int_equal(model_file_f32(f, "wide", &x), QUIRE_BAD_FILE);
    assert_int_equal(model_file_i64s(f, "eos_token_id", ids, 4, &n), QUIRE_OK);
    assert_true(n == 2 && ids[0] == 2 && ids[1] == 3);
    assert_int_equal(model_file_str_at(f, "architectures", 0, &s, NULL), QUIRE_OK);
    assert_true(str_is(s, "LlamaForCausalLM"));
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(infinity_and_nan_are_numbers_where_they_are_wrapped) {
    temp_dir d = good_directory();
    model_file *f = open_good(d.path);
    float x[5];
    int64_t ids[5];
    size_t n;
    json_value *limits = json_doc_find(&f->config, "limits");
    assert_int_equal(json_doc_meta(limits).n, 5);
    for (size_t i = 0; i < 5; i++) {
        x[i] = (float)json_doc_item(limits, i).f;
    }
    assert_true(x[0] == 0.0f && x[1] > 1e38f && x[2] < -1e38f && x[3] == x[1] && x[4] != x[4]);
    assert_int_equal(model_file_i64s(f, "limits", ids, 5, &n), QUIRE_BAD_FILE);
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(numbers_that_python_writes_as_words_are_read) {
    temp_dir d = good_directory();
    float x[3], one;
    size_t n;
    write_text(&d, "config.json",
               "{\"time_step_limit\": [0.0, Infinity], \"a\": {\"b\": -Infinity}, \"c\": NaN}");
    model_file *f = open_good(d.path);
    assert_int_equal(model_file_f32s(f, "time_step_limit", x, 3, &n), QUIRE_OK);
    assert_true(n == 2 && x[0] == 0.0f && isinf(x[1]) && x[1] > 0);
    assert_int_equal(model_file_f32(f, "a.b", &one), QUIRE_OK);
    assert_true(isinf(one) && one < 0);
    assert_int_equal(model_file_f32(f, "c", &one), QUIRE_OK);
    assert_true(isnan(one));
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(a_malformed_config_is_refused_with_its_place) {
    static const char *const wrong[] = {"",
                                        "{",
                                        "[]",
                                        "{\"a\": 1} x",
                                        "{\"a\": 1,}",
                                        "{a: 1}",
                                        "{'a': 1}",
                                        "nul",
                                        "\"x\"",
                                        "{\"a\": \"\n\xc3\"}",
                                        "{\"a\": Inf}",
                                        "{\"a\": nan}",
                                        "{Infinity: 1}"};
    temp_dir d = good_directory();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text(&d, "config.json", wrong[i]);
        assert_refused(&d, QUIRE_BAD_FILE, "config.json: ");
    }
    temp_delete(&d, names);
}

/* ---- texts ---- */

TEST(a_model_without_a_vocabulary_opens) {
    temp_dir d = good_directory();
    model_file *f = open_good(d.path);
    assert_int_equal(model_file_vocab(f)->source, VOCAB_NONE);
    assert_int_equal(model_file_vocab(f)->tokenizer_json.n, 0);
    assert_int_equal(model_file_chat_template(f).n, 0);
    assert_int_equal(model_file_vocab(f)->bos, -1);
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(a_tokenizer_without_a_model_opens) {
    temp_dir d = temp_new();
    write_text(&d, "tokenizer.json", "{\"version\": \"1.0\"}");
    model_file *f = open_good(d.path);
    int64_t i;
    assert_int_equal(model_file_vocab(f)->source, VOCAB_TOKENIZER_JSON);
    assert_true(str_is(model_file_vocab(f)->tokenizer_json, "{\"version\": \"1.0\"}"));
    assert_int_equal(model_file_n_tensors(f), 0);
    assert_int_equal(model_file_i64(f, "hidden_size", &i), QUIRE_NOT_FOUND);
    model_file_close(f);
    temp_delete(&d, names);
}

static void assert_template(const temp_dir *d, const char *text) {
    model_file *f = open_good(d->path);
    assert_true(str_is(model_file_chat_template(f), text));
    model_file_close(f);
}

TEST(the_chat_template_is_found_where_it_may_stand) {
    temp_dir d = good_directory();
    write_text(&d, "tokenizer_config.json", "{\"chat_template\": \"one\"}");
    assert_template(&d, "one");
    write_text(&d, "tokenizer_config.json",
               "{\"chat_template\": [7, {\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": "
               "\"default\", \"template\": \"two\"}]}");
    assert_template(&d, "two");
    write_text(&d, "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"t\"}]}");
    assert_template(&d, "");
    write_text(&d, "chat_template.json", "{\"chat_template\": \"of a processor\"}");
    assert_template(&d, "of a processor");
    write_text(&d, "tokenizer_config.json", "{\"chat_template\": \"one\"}");
    assert_template(&d, "one");
    write_text(&d, "chat_template.jinja", "three\n");
    assert_template(&d, "three\n");
    temp_delete(&d, names);
}

/* "NAME=TEXT;" of each of the file's templates beside the default one. */
static void expect_templates(const temp_dir *d, const char *want) {
    model_file *f = open_good(d->path);
    strbuf got = {0};
    for (size_t i = 0; i < model_file_n_templates(f); i++) {
        str name, text;
        model_file_template(f, i, &name, &text);
        assert_int_equal(strbuf_addf(&got, "%.*s=%.*s;", (int)name.n, name.p, (int)text.n, text.p), QUIRE_OK);
    }
    assert_string_equal(got.n > 0 ? got.p : "", want);
    strbuf_deinit(&got);
    model_file_close(f);
}

TEST(further_chat_templates_are_found_by_name) {
    temp_dir d = good_directory();
    char path[sizeof d.path + 40];
    expect_templates(&d, "");
    write_text(&d, "tokenizer_config.json",
               "{\"chat_template\": [7, {\"name\": \"tool_use\", \"template\": \"t\"}, {\"name\": "
               "\"default\", \"template\": \"two\"}, "
               "{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": \"rag\", \"template\": \"again\"}, "
               "{\"name\": 5, \"template\": \"x\"}, {\"name\": \"y\"}]}");
    expect_templates(&d, "tool_use=t;rag=r;");
    snprintf(path, sizeof path, "%s/additional_chat_templates", d.path);
    assert_int_equal(mkdir(path, 0700), 0);
    write_text(&d, "additional_chat_templates/rag.jinja", "from a file");
    write_text(&d, "additional_chat_templates/b.jinja", "second");
    write_text(&d, "additional_chat_templates/default.jinja", "not taken");
    write_text(&d, "additional_chat_templates/notes.txt", "not a template");
    /* files go before the list, in the order of their names */
    expect_templates(&d, "b=second;rag=from a file;tool_use=t;");
    static const char *const inside[] = {"rag.jinja", "b.jinja", "default.jinja", "notes.txt", NULL};
    for (size_t i = 0; inside[i] != NULL; i++) {
        snprintf(path, sizeof path, "%s/additional_chat_templates/%s", d.path, inside[i]);
        assert_int_equal(unlink(path), 0);
    }
    snprintf(path, sizeof path, "%s/additional_chat_templates", d.path);
    assert_int_equal(rmdir(path), 0);
    temp_delete(&d, names);
}

TEST(generation_config_is_apart_from_config) {
    temp_dir d = good_directory();
    write_text(&d, "generation_config.json", "{\"eos_token_id\": 9, \"temperature\": 0.6}");
    model_file *f = open_good(d.path);
    int64_t ids[2];
    float x;
    size_t n;
    assert_int_equal(model_file_generation_i64s(f, "eos_token_id", ids, 2, &n), QUIRE_OK);
    assert_true(n == 1 && ids[0] == 9);
    assert_int_equal(model_file_f32(f, "temperature", &x), QUIRE_NOT_FOUND);
    model_file_close(f);
    temp_delete(&d, names);
}

/* ---- weights ---- */

TEST(a_file_of_the_directory_opens_the_directory) {
    temp_dir d = good_directory();
    model_file *f = open_good(temp_path(&d, "model.safetensors"));
    assert_string_equal(model_file_path(f), d.path);
    assert_non_null(model_file_find(f, "w"));
    assert_int_equal(touch_all(f) > 0, 1);
    model_file_close(f);
    f = open_good(temp_path(&d, ""));
    assert_string_equal(model_file_path(f), d.path); /* without the slash */
    model_file_close(f);
    temp_delete(&d, names);
}

static void write_shards(const temp_dir *d, const char *index) {
    unlink(temp_path(d, "model.safetensors"));
    write_shard(d, "model-00001-of-00002.safetensors", "a", 2);
    write_shard(d, "model-00002-of-00002.safetensors", "b", 3);
    if (index != NULL) {
        write_text(d, "model.safetensors.index.json", index);
    }
}

#define SHARD1 "\"model-00001-of-00002.safetensors\""
#define SHARD2 "\"model-00002-of-00002.safetensors\""

TEST(shards_open_together_with_and_without_an_index) {
    temp_dir d = good_directory();
    static const char *const indexes[] = {"{\"weight_map\": {\"b\": " SHARD2 ", \"a\": " SHARD1 "}}", NULL};
    for (int i = 0; i < 2; i++) {
        write_shards(&d, indexes[i]);
        model_file *f = open_good(d.path);
        assert_int_equal(model_file_n_tensors(f), 2);
        assert_int_equal(model_file_find(f, "a")->n_bytes, 8);
        assert_int_equal(model_file_find(f, "b")->n_bytes, 12);
        model_file_close(f);
        unlink(temp_path(&d, "model.safetensors.index.json"));
    }
    unlink(temp_path(&d, "model-00001-of-00002.safetensors"));
    assert_refused(&d, QUIRE_BAD_FILE, "model-00002-of-00002.safetensors is one of 2 files, but there are 1");
    temp_delete(&d, names);
}

TEST(an_index_may_name_a_tensor_that_no_file_has_until_it_is_asked_for) {
    temp_dir d = good_directory();
    write_shards(&d,
                 "{\"weight_map\": {\"b\": " SHARD2 ", \"a\": " SHARD1 ", \"rotary.inv_freq\": " SHARD1 "}}");
    model_file *f = open_good(d.path);
    assert_int_equal(model_file_n_tensors(f), 2);
    assert_null(model_file_find(f, "rotary.inv_freq"));
    assert_non_null(
        strstr(model_file_why_unread(f, "rotary.inv_freq"), "the index names it, but no file has it"));
    assert_null(model_file_why_unread(f, "a"));
    assert_null(model_file_why_unread(f, "c"));
    model_file_close(f);
    temp_delete(&d, names);
}

TEST(an_index_that_leads_astray_is_refused) {
    static const struct {
        const char *index;
        quire_err code;
        const char *words;
    } wrong[] = {
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", QUIRE_BAD_FILE,
         "a plain name inside the directory"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", QUIRE_BAD_FILE, "a plain name inside the directory"},
        {"{\"weight_map\": {\"a\": \"..\"}}", QUIRE_BAD_FILE, "a plain name inside the directory"},
        {"{\"weight_map\": {\"a\": \"\"}}", QUIRE_BAD_FILE, "a plain name inside the directory"},
        {"{\"weight_map\": {\"a\": 7}}", QUIRE_BAD_FILE, "a plain name inside the directory"},
        {"{\"weight_map\": {\"a\": \"model-00003-of-00002.safetensors\"}}", QUIRE_NOT_FOUND,
         "the index names this file"},
        {"{\"weight_map\": {\"a\": " SHARD2 ", \"b\": " SHARD1 "}}", QUIRE_BAD_FILE,
         "tensor a is not in model-00002"},
        {"{\"weight_map\": {\"a\": " SHARD1 ", \"a\": " SHARD2 "}}", QUIRE_BAD_FILE, "duplicate name"},
        {"{\"weight_map\": []}", QUIRE_BAD_FILE, "no weight_map"},
        {"{}", QUIRE_BAD_FILE, "no weight_map"},
        {"", QUIRE_BAD_FILE, "index.json: "},
    };
    temp_dir d = good_directory();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_shards(&d, wrong[i].index);
        assert_refused(&d, wrong[i].code, wrong[i].words);
    }
    temp_delete(&d, names);
}

TEST(the_same_tensor_in_two_shards_is_refused) {
    temp_dir d = good_directory();
    write_shards(&d, NULL);
    write_shard(&d, "model-00002-of-00002.safetensors", "a", 3);
    assert_refused(&d, QUIRE_BAD_FILE, "two tensors a");
    temp_delete(&d, names);
}

TEST(what_is_no_model_is_refused_with_a_hint) {
    temp_dir d = temp_new();
    model_file *f = NULL;
    quire_error err = {0};
    assert_refused(&d, QUIRE_BAD_FILE, "without config.json");
    write_text(&d, "model.safetensors", "x");
    assert_int_equal(model_file_open(temp_path(&d, "model.safetensors"), &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "neither a GGUF file nor"));
    assert_int_equal(model_file_open(temp_path(&d, "none.gguf"), &f, &err), QUIRE_NOT_FOUND);
    assert_int_equal(model_file_open("/dev/null", &f, &err), QUIRE_BAD_FILE);
    assert_non_null(strstr(err.message, "not a regular file"));
    unlink(temp_path(&d, "model.safetensors"));
    write_text(&d, "config.json", "{}");
    write_text(&d, "pytorch_model.bin", "x");
    assert_refused(&d, QUIRE_UNSUPPORTED,
                   "no model*.safetensors, but PyTorch pickles, programs that Quire never runs; download the "
                   "model as safetensors or GGUF");
    temp_delete(&d, names);
}

/* ---- damage ---- */

/* 1,000 versions of one file of a directory (with QUIRE_TEST_LONG 10,000), each refused
 * or opened. */
static void damage(const char *name, const char *text, bool with_shards) {
    temp_dir d = good_directory();
    if (with_shards) {
        write_shards(&d, NULL);
    }
    uint64_t seed = test_seed(name);
    size_t n = strlen(text);
    uint8_t *copy = malloc(n);
    int n_refused = 0, rounds = getenv("QUIRE_TEST_LONG") ? 10000 : 1000;
    for (int i = 0; i < rounds; i++) {
        model_file *f = NULL;
        quire_error err = {0};
        memcpy(copy, text, n);
        mutate(copy, n, &seed);
        write_file(temp_path(&d, name), copy, n);
        if (model_file_open(d.path, &f, &err) == QUIRE_OK) {
            touch_all(f);
            model_file_close(f);
        } else {
            n_refused++;
            assert_true(strlen(err.message) > strlen(d.path));
        }
    }
    print_message("%s: refused %d of %d\n", name, n_refused, rounds);
    assert_true(n_refused > rounds / 10);
    free(copy);
    temp_delete(&d, names);
}

TEST(random_damage_of_json_is_refused_or_harmless) {
    damage("config.json", CONFIG, false);
    damage("model.safetensors.index.json",
           "{\"metadata\": {\"total_size\": 20}, \"weight_map\": {\"b\": " SHARD2 ", \"a\": " SHARD1 "}}",
           true);
    damage("tokenizer_config.json",
           "{\"chat_template\": [{\"name\": \"default\", \"template\": \"two\"}], \"add_bos_token\": true}",
           false);
}

TEST(a_config_or_index_cut_at_any_byte_is_refused) {
    static const char index[] = "{\"weight_map\": {\"b\": " SHARD2 ", \"a\": " SHARD1 "}}";
    temp_dir d = good_directory();
    for (size_t n = 0; n < strlen(CONFIG); n++) {
        write_file(temp_path(&d, "config.json"), CONFIG, n);
        assert_refused(&d, QUIRE_BAD_FILE, "config.json: ");
    }
    write_text(&d, "config.json", CONFIG);
    write_shards(&d, index);
    for (size_t n = 0; n < strlen(index); n++) {
        write_file(temp_path(&d, "model.safetensors.index.json"), index, n);
        assert_refused(&d, QUIRE_BAD_FILE, "index.json: ");
    }
    temp_delete(&d, names);
}

TEST_MAIN(NULL, NULL)

/* The seeds of the fuzz targets reach every architecture, and its description
 * succeeds. */
#include <dirent.h>

#include "golden_model.h"

#include "fuzz/describe.h"

/* Every row of the registry takes f's numbers, or those of other, which may be NULL. */
static void reaches_every_row(const model_file *f, const model_file *other, const char *prefix) {
    int n_rows, n_taken = describe_by_every_row(f, prefix, &n_rows), n_without = 0; /* without that form */
    print_message("%d of %d architectures describe the seed\n", n_taken, n_rows);
    const arch *a;
    for (size_t i = 0; n_taken < n_rows && (a = arch_at(i)) != NULL; i++) {
        for (int k = 0; k < ARCH_MAX_NAMES && a->hf[k] != NULL; k++) {
            quire_error err = {0};
            if (!describe_by_row(f, a, prefix[0] != 0 ? prefix : a->hf[k], &err)) {
                if (k == 0 && other != NULL && describe_by_row(other, a, prefix, &err)) {
                    n_without++;
                    break;
                }
                print_message("%s: %s\n", a->hf[k], err.message);
                n_without += k == 0 && strstr(err.message, "is not supported as GGUF") != NULL;
            }
        }
    }
    assert_true(n_rows >= 50);
    assert_int_equal(n_taken, n_rows - n_without);
}

/* How many rows describe a seed of config.json. */
static int describe_config_seed(const char *seed, int *n_rows, bool all) {
    temp_dir d = temp_new();
    strbuf tensors = {0};
    model_file *f;
    quire_error err = {0};
    char path[128];
    size_t n;
    snprintf(path, sizeof path, "tests/fuzz/seeds/config/%s", seed);
    uint8_t *bytes = read_whole(path, &n);
    write_file(temp_path(&d, "config.json"), bytes, n);
    make_safetensors(&tensors, DESCRIBE_TENSORS, 4);
    for (int i = 4; i < DESCRIBE_BYTES; i++) {
        put(&tensors, "", 1);
    }
    write_file(temp_path(&d, "model.safetensors"), tensors.p, tensors.n);
    assert_int_equal(model_file_open(d.path, &f, &err), QUIRE_OK);
    if (all) {
        reaches_every_row(f, NULL, "");
    }
    int n_taken = describe_by_every_row(f, "", n_rows);
    model_file_close(f);
    temp_delete(&d, golden_files);
    strbuf_deinit(&tensors);
    mem_free(bytes);
    return n_taken;
}

TEST(the_seed_of_config_json_reaches_every_architecture) {
    int n_rows;
    (void)describe_config_seed("model.json", &n_rows, true);
}

/* The fields of families that contradict those of others stand in a seed of their own. */
TEST(the_seeds_with_more_fields_reach_most_architectures) {
    int n_rows, n_taken = describe_config_seed("model-2026.json", &n_rows, false);
    model_file *f;
    quire_error err = {0};
    assert_in_range(n_taken, n_rows * 9 / 10, n_rows);
    n_taken = describe_config_seed("layers.json", &n_rows, false);
    assert_in_range(n_taken, n_rows / 2, n_rows);
    assert_int_equal(model_file_open("tests/fuzz/seeds/gguf/model-2026.gguf", &f, &err), QUIRE_OK);
    n_taken = describe_by_every_row(f, "llama", &n_rows);
    assert_in_range(n_taken, n_rows * 9 / 10, n_rows);
    model_file_close(f);
}

static json_t *read_seed(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "tests/fuzz/seeds/config/%s", name);
    json_t *seed = json_load_file(path, 0, NULL);
    assert_non_null(seed);
    return seed;
}

/* Whether the value of that key is no number that a model reads. */
static bool is_not_read(const char *key) {
    static const char *const keys[] = {"dtype",         "torch_dtype",          "initializer_range",
                                       "model_type",    "transformers_version", "use_cache",
                                       "text_config",   "vision_config",        "audio_config",
                                       "architectures", "quantization_config"};
    bool is = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        is = is || strcmp(key, keys[i]) == 0;
    }
    return is;
}

/* Each field of the config.json of a golden model that runs here stands in a seed. */
static int count_fields(const char *name, const json_t *fields, json_t *const *seeds, int n_seeds) {
    const char *key;
    json_t *value;
    int n = 0;
    json_object_foreach((json_t *)(uintptr_t)fields, key, value) {
        bool found = is_not_read(key);
        for (int i = 0; i < n_seeds && !found; i++) {
            found = json_object_get(seeds[i], key) != NULL;
        }
        if (!found) {
            fail_msg("%s: no seed of tests/fuzz/seeds/config has %s", name, key);
        }
        n++;
    }
    return n;
}

TEST(the_seeds_have_the_fields_of_the_models_of_2026) {
    const char *shared = shared_dir();
    char path[GOLDEN_PATH];
    json_t *seeds[] = {read_seed("model.json"), read_seed("model-2026.json"), read_seed("layers.json")};
    int n_fields = 0;
    snprintf(path, sizeof path, "%s/%s", shared != NULL ? shared : "", golden_sets[1]);
    DIR *dir = shared != NULL ? opendir(path) : NULL;
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        json_t *fields = e->d_name[0] != '.' ? golden_config(e->d_name) : NULL;
        if (fields != NULL && golden_describes(e->d_name)) {
            n_fields += count_fields(e->d_name, fields, seeds, 3);
            n_fields += count_fields(e->d_name, json_object_get(fields, "text_config"), seeds, 3);
        }
        json_decref(fields);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    for (int i = 0; i < 3; i++) {
        json_decref(seeds[i]);
    }
    print_message("%d fields\n", n_fields);
    assert_true(dir == NULL || n_fields > 500);
}

TEST(the_seed_of_gguf_reaches_every_architecture) {
    model_file *f, *flat; /* the same without positions */
    quire_error err = {0};
    assert_int_equal(model_file_open("tests/fuzz/seeds/gguf/model.gguf", &f, &err), QUIRE_OK);
    assert_int_equal(model_file_open("tests/fuzz/seeds/gguf/model-flat.gguf", &flat, &err), QUIRE_OK);
    reaches_every_row(f, flat, "llama");
    model_file_close(f);
    model_file_close(flat);
}

TEST_MAIN(NULL, NULL)

/* Every model and vocabulary of the test data opens, in each of its forms. */
#include <dirent.h>

#include "base/clock.h"
#include "make_files.h"

/* Opens dir/name; returns the number of tensors and the vocabulary's size. */
static int32_t open_one(const char *path, int32_t *n_tokens) {
    model_file *f = NULL;
    quire_error err = {0};
    if (model_file_open(path, &f, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    touch_all(f);
    int32_t n = model_file_n_tensors(f);
    if (n_tokens != NULL) {
        *n_tokens = model_file_vocab(f)->n_tokens;
    }
    model_file_close(f);
    return n;
}

TEST(every_golden_model_opens_as_directory_and_as_gguf) {
    char models[300], path[700];
    if (shared_dir() == NULL) {
        return;
    }
    snprintf(models, sizeof models, "%s/golden/models", shared_dir());
    DIR *d = opendir(models);
    assert_non_null(d);
    int n_directories = 0, n_ggufs = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s/config.json", models, e->d_name);
        if (e->d_name[0] == '.' || access(path, R_OK) != 0) {
            continue;
        }
        assert_true(open_one(path, NULL) > 0);
        n_directories++;
        snprintf(path, sizeof path, "%s/%s/model.gguf", models, e->d_name);
        if (access(path, R_OK) == 0) {
            assert_true(open_one(path, NULL) > 0);
            n_ggufs++;
        }
    }
    closedir(d);
    print_message("%d directories, %d GGUF files\n", n_directories, n_ggufs);
    assert_true(n_directories >= 80 && n_ggufs >= 50);
}

TEST(the_data_models_open) {
    static const char *const files[] = {"data/models/stories260K/stories260K.gguf",
                                        "data/models/llama2-tiny-random-gguf/llama-2-tiny-random.gguf",
                                        "data/models/tinystories-656k-hf",
                                        "golden/api/model",
                                        "models/builtin.gguf",
                                        "models/builtin-hf"};
    char path[700];
    if (shared_dir() == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", shared_dir(), files[i]);
        assert_true(open_one(path, NULL) > 0);
    }
}

TEST(vocabularies_alone_open_quickly) {
    static const struct {
        const char *name;
        int32_t n_tokens;
    } vocabs[] = {{"gpt-2", 50257},     {"llama-spm", 32000}, {"phi-3", 32064},
                  {"starcoder", 49152}, {"falcon", 65024},    {"deepseek-llm", 102400}};
    char path[700];
    if (shared_dir() == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) {
        int32_t n_tokens;
        snprintf(path, sizeof path, "%s/data/tokenizers/ggml-vocab/ggml-vocab-%s.gguf", shared_dir(),
                 vocabs[i].name);
        model_file *f = NULL;
        int64_t start = clock_us();
        assert_int_equal(model_file_open(path, &f, NULL), QUIRE_OK);
        print_message("%s: %lld us\n", vocabs[i].name, (long long)(clock_us() - start));
        model_file_close(f);
        assert_int_equal(open_one(path, &n_tokens), 0);
        assert_int_equal(n_tokens, vocabs[i].n_tokens);
    }
}

TEST_MAIN(NULL, NULL)

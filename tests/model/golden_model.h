/* Variants of the models in ../shared/golden/models and models-2026: with another
 * config.json, or with renamed tensors. */
#ifndef TESTS_MODEL_GOLDEN_MODEL_H
#define TESTS_MODEL_GOLDEN_MODEL_H

#include <jansson.h>

#include "file/packed_files.h"
#include "run_model.h"
#include "test.h"

enum { GOLDEN_PATH = 512 };

static const char *const golden_sets[] = {"golden/models", "golden/models-2026"};
enum { N_GOLDEN_SETS = sizeof golden_sets / sizeof *golden_sets };

/* Finds a file of a model in either set. NULL, which is printed: there is none. */
static inline const char *golden_path(const char *name, const char *file, char path[GOLDEN_PATH]) {
    const char *shared = shared_dir();
    for (int i = 0; i < N_GOLDEN_SETS && shared != NULL; i++) {
        snprintf(path, GOLDEN_PATH, "%s/%s/%s/%s", shared, golden_sets[i], name, file);
        if (access(path, R_OK) == 0) {
            return path;
        }
    }
    return NULL;
}

/* Whether this build can describe the unchanged model. */
static inline bool golden_describes(const char *name) {
    char path[GOLDEN_PATH];
    model_file *f;
    model_desc d;
    quire_error err;
    if (golden_path(name, "", path) == NULL || model_file_open(path, &f, &err) != QUIRE_OK) {
        return false;
    }
    bool runs = model_describe(f, &d, &err) == QUIRE_OK;
    model_file_close(f);
    return runs;
}

static inline json_t *golden_config(const char *name) {
    char path[GOLDEN_PATH];
    json_t *config = golden_path(name, "config.json", path) != NULL ? json_load_file(path, 0, NULL) : NULL;
    return config;
}

/* Returns a model's safetensors file; in each tensor's name, `to` replaces a `from`. */
static inline strbuf golden_weights(const char *name, const char *from, const char *to) {
    char path[GOLDEN_PATH];
    size_t n, n_header;
    strbuf out = {0};
    assert_non_null(golden_path(name, "model.safetensors", path));
    uint8_t *bytes = read_whole(path, &n);
    memcpy(&n_header, bytes, sizeof n_header);
    json_t *was = json_loadb((const char *)bytes + 8, n_header, 0, NULL), *now = json_object(), *tensor;
    const char *key;
    json_object_foreach(was, key, tensor) {
        const char *at = strstr(key, from);
        char changed[256];
        snprintf(changed, sizeof changed, "%.*s%s%s", at != NULL ? (int)(at - key) : (int)strlen(key), key,
                 at != NULL ? to : "", at != NULL ? at + strlen(from) : "");
        json_object_set(now, changed, tensor);
    }
    char *header = json_dumps(now, JSON_COMPACT);
    put_u64(&out, strlen(header));
    put(&out, header, strlen(header));
    put(&out, bytes + 8 + n_header, n - 8 - n_header);
    free(header);
    json_decref(was);
    json_decref(now);
    mem_free(bytes);
    return out;
}

static const char *const golden_files[] = {"config.json", "model.safetensors", NULL};

/* Writes a directory with a config and weights; weights NULL: the golden model's. */
static inline temp_dir golden_write(const char *name, const json_t *config, const strbuf *weights) {
    temp_dir d = temp_new();
    char path[GOLDEN_PATH], here[GOLDEN_PATH], whole[2 * GOLDEN_PATH + 1];
    assert_int_equal(json_dump_file(config, temp_path(&d, "config.json"), JSON_ENCODE_ANY), 0);
    if (weights != NULL) {
        write_file(temp_path(&d, "model.safetensors"), weights->p, weights->n);
    } else {
        assert_non_null(golden_path(name, "model.safetensors", path));
        assert_non_null(getcwd(here, sizeof here));
        snprintf(whole, sizeof whole, "%s%s%s", path[0] == '/' ? "" : here, path[0] == '/' ? "" : "/", path);
        assert_int_equal(symlink(whole, temp_path(&d, "model.safetensors")), 0);
    }
    return d;
}

/* Opens the model at path and computes a prompt's logits. NULL: refused; err says why.
 * Uses one thread, since with models this small, threads mostly wait for each other. */
static inline float *golden_run(const char *path, compute_mode compute, size_t *n, quire_error *err) {
    model_file *f;
    model *m = NULL;
    float *out = NULL;
    *err = (quire_error){0};
    if (model_file_open(path, &f, err) != QUIRE_OK) {
        return NULL;
    }
    backend *b = open_backend_of(compute, 1);
    if (model_open(f, b, 64, &m, err) == QUIRE_OK) {
        out = run_prompt(m, b, n, err);
        model_close(m);
    }
    b->ops->close(b);
    model_file_close(f);
    return out;
}

#endif

#include "cli/other_models.h"

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/hub.h"
#include "cli/read_flags.h"

/* Whether a file is the second or a later part of a model: NAME-00002-of-00003.gguf. */
static bool other_models_is_later(const char *name) {
    static const char first[] = "-00001-of-";
    const size_t n_part = sizeof "-00001-of-00003.gguf" - 1, n = strlen(name);
    const char *part = n > n_part ? name + n - n_part : NULL;
    return part != NULL && part[0] == '-' && strspn(part + 1, "0123456789") == 5 &&
           strncmp(part + 6, "-of-", 4) == 0 && strspn(part + 10, "0123456789") == 5 &&
           strncmp(part, first, sizeof first - 1) != 0;
}

/* Whether a directory's entry is a model: a GGUF file (the first, if it has several
 * parts), or a directory with a config.json. */
static bool other_models_is_one(const char *dir, const char *name) {
    char path[4096];
    struct stat st;
    const size_t n = strlen(name);
    const bool is_gguf = n > 5 && strcmp(name + n - 5, ".gguf") == 0;
    const size_t all = (size_t)snprintf(path, sizeof path, "%s/%s/config.json", dir, name);
    if (name[0] == '.' || all >= sizeof path) {
        return false;
    }
    if (is_gguf) {
        path[strlen(path) - strlen("/config.json")] = 0;
        return !other_models_is_later(name) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
    }
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Sets the options of a further model: o has the main model's, some of which do not
 * apply. */
static void other_models_own(quire_options *o, const char *path) {
    o->model = path;
    o->tokenizer = o->chat_template = NULL;
    o->hf_overrides = o->override_kv = o->quantization = o->speculative_config = NULL;
    o->tool_call_parser = o->reasoning_parser = "auto";
    o->audit = o->tier_file = o->tier_redis = o->request_check = NULL;
    o->tier_host_bytes = 0;
    o->lora_modules = o->lora_dir = o->loras = NULL;
    o->enable_lora = false;
    o->public_prefixes = NULL;
    o->n_public_prefixes = 0;
}

/* Checks that a further model of this name can be added. QUIRE_INVALID; QUIRE_NO_MEMORY
 * if name or path is NULL. */
static quire_err other_models_check(const cli_options *o, const char *name, const char *path,
                                    quire_error *err) {
    if (name == NULL || path == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    if (!utf8_is_valid(str_of(name))) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: its name is not UTF-8, so no request can name it; rename it", path);
    }
    if (o->others.n == CLI_MAX_MODELS) {
        return err_set(err, QUIRE_INVALID, -1, "%s: at most %d models besides the main one are allowed", path,
                       CLI_MAX_MODELS);
    }
    for (int32_t i = 0; i < o->others.n; i++) {
        if (strcmp(o->others.names[i], name) == 0) {
            return err_set(err, QUIRE_INVALID, -1, "%s: another model is also called %s (%s)", path, name,
                           o->others.paths[i]);
        }
    }
    return QUIRE_OK;
}

/* Adds a model; takes over name and path, even on failure. */
static quire_err other_models_add(cli_options *o, char *name, char *path, quire_error *err) {
    quire_options *own = NULL;
    quire_err e = other_models_check(o, name, path, err);
    if (e == QUIRE_OK) {
        own = mem_new(1, sizeof *own);
        e = mem_check_for(own, "a model's options", err);
    }
    if (e != QUIRE_OK) {
        mem_free(name);
        mem_free(path);
        return e;
    }
    const int32_t i = o->others.n++;
    *own = o->engine;
    other_models_own(own, path);
    o->others.names[i] = name;
    o->others.paths[i] = path;
    o->others.options[i] = own;
    o->others.specs[i] = (model_spec){.name = name, .options = own};
    return QUIRE_OK;
}

static char *other_models_copy(const char *text) {
    return mem_dup(text, strlen(text));
}

static char *other_models_join(const char *dir, const char *name) {
    strbuf path = {0};
    if (strbuf_addf(&path, "%s/%s", dir, name) != QUIRE_OK) {
        strbuf_deinit(&path);
    }
    return path.p;
}

static int other_models_compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether requests, which are UTF-8, can have the entry's name. If not, logs a
 * warning. */
static bool other_models_can_name(const char *dir, const char *name) {
    const bool can = utf8_is_valid(str_of(name));
    if (!can) {
        log_line(LOG_WARN, "--model-dir %s: skipped %s: its name is not UTF-8", dir, name);
    }
    return can;
}

/* Reads the names of the models in dir, sorted; names: [*n], each mem_new'd. */
static quire_err other_models_scan(const char *dir, char *names[CLI_MAX_MODELS + 1], int32_t *n,
                                   quire_error *err) {
    DIR *d = opendir(dir);
    quire_err e = QUIRE_OK;
    *n = 0;
    if (d == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--model-dir %s: the directory cannot be read", dir);
    }
    for (const struct dirent *x = readdir(d); x != NULL && e == QUIRE_OK; x = readdir(d)) {
        if (other_models_is_one(dir, x->d_name) && other_models_can_name(dir, x->d_name)) {
            e = *n > CLI_MAX_MODELS ? err_set(err, QUIRE_INVALID, -1, "--model-dir %s: over %d models", dir,
                                              CLI_MAX_MODELS + 1)
                                    : QUIRE_OK;
            char *name = e == QUIRE_OK ? other_models_copy(x->d_name) : NULL;
            if (name != NULL) {
                names[(*n)++] = name;
            }
        }
    }
    closedir(d);
    qsort(names, (size_t)*n, sizeof *names, other_models_compare);
    return e == QUIRE_OK && *n == 0
               ? err_set(err, QUIRE_INVALID, -1,
                         "--model-dir %s: has no .gguf file and no directory with a config.json", dir)
               : e;
}

/* Whether two paths name the same file or directory. */
static bool other_models_same(const char *a, const char *b) {
    struct stat at, bt;
    return a != NULL && b != NULL && stat(a, &at) == 0 && stat(b, &bt) == 0 && at.st_dev == bt.st_dev &&
           at.st_ino == bt.st_ino;
}

/* Adds a model of --model-dir, unless it is the main one. Takes over name. */
static quire_err other_models_add_entry(cli_options *o, char *name, quire_error *err) {
    char *path = other_models_join(o->model_dir, name);
    if (!other_models_same(path, o->engine.model)) {
        return other_models_add(o, name, path, err);
    }
    mem_free(name);
    mem_free(path);
    return QUIRE_OK;
}

/* Makes an entry of --model-dir the main model; requests name it so unless it was given
 * names. Takes over name. */
static quire_err other_models_take_main(cli_options *o, char *name, quire_error *err) {
    o->others.main_path = other_models_join(o->model_dir, name);
    mem_free(name);
    TRY(mem_check_for(o->others.main_path, "a model's path", err));
    o->engine.model = o->others.main_path;
    if (o->server.n_served_model_names == 0) {
        o->served_names[0] = strrchr(o->others.main_path, '/') + 1;
        o->server.n_served_model_names = 1;
        o->server.served_model_names = o->served_names;
    }
    return QUIRE_OK;
}

static quire_err other_models_add_dir(cli_options *o, quire_error *err) {
    char *names[CLI_MAX_MODELS + 1];
    int32_t n;
    quire_err e = other_models_scan(o->model_dir, names, &n, err);
    for (int32_t i = 0; i < n; i++) {
        if (e != QUIRE_OK) {
            mem_free(names[i]);
        } else if (i == 0 && !read_flags_gave(o, "--model") && !o->hf_repo) {
            e = other_models_take_main(o, names[i], err);
        } else {
            e = other_models_add_entry(o, names[i], err);
        }
    }
    return e;
}

/* A model's name in requests: its hub name, or the name of its file or directory.
 * mem_new'd. */
static char *other_models_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return other_models_copy(slash != NULL && slash[1] != 0 && !hub_is_name(path) ? slash + 1 : path);
}

/* Pins the models that --pin-model names. */
static quire_err other_models_pin(cli_options *o, quire_error *err) {
    for (int32_t i = 0; i < o->n_pinned; i++) {
        const char *name = o->pinned[i];
        int32_t k = 0;
        while (k < o->others.n && strcmp(o->others.names[k], name) != 0) {
            k++;
        }
        if (k == o->others.n) {
            return err_set(
                err, QUIRE_INVALID, -1,
                "--pin-model %s: no model besides the first has this name; GET /v1/models lists the names",
                name);
        }
        o->others.specs[k].is_pinned = true;
    }
    return QUIRE_OK;
}

/* The most further models that are loaded at once. */
static int32_t other_models_at_once(const cli_options *o) {
    int32_t n_pinned = 0, most = o->server.max_models;
    for (int32_t i = 0; i < o->others.n; i++) {
        n_pinned += o->others.specs[i].is_pinned;
    }
    const int32_t n_rest = o->others.n - n_pinned;
    return n_pinned + (most > 0 && most < n_rest ? most : n_rest);
}

quire_err other_models_list(cli_options *o, quire_error *err) {
    assert(o != NULL);
    if (o->model_dir != NULL) {
        TRY(other_models_add_dir(o, err));
    }
    for (int32_t i = 0; i < o->n_more_models; i++) {
        const char *path = o->more_models[i];
        TRY(other_models_add(o, other_models_name(path), other_models_copy(path), err));
    }
    TRY(other_models_pin(o, err));
    o->server.other_models = o->others.specs;
    o->server.n_other_models = o->others.n;
    o->engine.n_beside = other_models_at_once(o);
    return QUIRE_OK;
}

quire_err other_models_fetch(cli_options *o, quire_error *err) {
    assert(o != NULL);
    for (int32_t i = 0; i < o->others.n; i++) {
        char *path = NULL;
        if (!hub_is_name(o->others.paths[i])) {
            continue;
        }
        TRY(hub_fetch_model(o, o->others.paths[i], QUIRE_HUB_MISSING, &path, err));
        char *own = other_models_copy(path);
        quire_free(path);
        TRY(mem_check_for(own, "a model's path", err));
        mem_free(o->others.paths[i]);
        o->others.paths[i] = own;
        o->others.options[i]->model = own;
    }
    return QUIRE_OK;
}

#include "setup/adapter_options.h"

#include <dirent.h>
#include <sys/stat.h>

#include "core/adapter_want.h"
#include "setup/adapter_names.h"

int32_t options_numbered_adapters(const quire_options *o) {
    const char *lines = o->loras;
    adapter_listed one;
    int32_t n = 0;
    while (adapter_paths_next(&lines, &one)) {
        n++;
    }
    return n;
}

bool options_have_adapters(const quire_options *o) {
    return o->enable_lora || o->lora_modules != NULL || o->lora_dir != NULL || o->loras != NULL;
}

int32_t options_max_loaded(const quire_options *o) {
    return o->max_cpu_loras > 0 ? o->max_cpu_loras : 4 * o->max_loras;
}

int32_t options_batch_rank(const quire_options *o) {
    int32_t n = options_numbered_adapters(o);
    n = n < ADAPTER_MAX_PARTS ? n : ADAPTER_MAX_PARTS;
    return o->max_lora_rank * (n > 1 ? n : 1);
}

/* ---- memory ---- */

/* Bytes of the file of tensors at path, a directory or a GGUF file. */
static int64_t file_bytes(const char *path) {
    static const char *const names[] = {"", "/adapter_model.safetensors"};
    struct stat about;
    strbuf whole = {0};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        strbuf_clear(&whole);
        bool is_file = strbuf_addf(&whole, "%s%s", path, names[i]) == QUIRE_OK &&
                       stat(whole.p, &about) == 0 && S_ISREG(about.st_mode);
        n = is_file ? (int64_t)about.st_size : n;
    }
    strbuf_deinit(&whole);
    return n;
}

static int64_t largest_in(const char *dir) {
    int64_t most = 0;
    strbuf path = {0};
    DIR *d = opendir(dir);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        strbuf_clear(&path);
        if (e->d_name[0] != '.' && strbuf_addf(&path, "%s/%s", dir, e->d_name) == QUIRE_OK) {
            int64_t n = file_bytes(path.p);
            most = n > most ? n : most;
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    strbuf_deinit(&path);
    return most;
}

/* The same of a path that is not 0-terminated. */
static int64_t path_bytes(str path, strbuf *own) {
    strbuf_clear(own);
    return strbuf_add(own, path.p, path.n) == QUIRE_OK ? file_bytes(own->p) : 0;
}

int64_t options_adapter_bytes(const quire_options *o) {
    const char *named = o->lora_modules, *numbered = o->loras;
    int64_t most = o->lora_dir != NULL ? largest_in(o->lora_dir) : 0;
    strbuf own = {0}, path = {0};
    adapter_listed one;
    quire_error err;
    if (!options_have_adapters(o)) {
        return 0;
    }
    while (adapter_names_next(&named, &own, &one, &err) || adapter_paths_next(&numbered, &one)) {
        int64_t n = path_bytes(one.path, &path);
        most = n > most ? n : most;
    }
    strbuf_deinit(&own);
    strbuf_deinit(&path);
    int64_t n_loaded = options_max_loaded(o);
    return most <= INT64_MAX / n_loaded ? most * n_loaded : INT64_MAX;
}

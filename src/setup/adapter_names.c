/* realpath is outside C11. */
#define _XOPEN_SOURCE 700
#include "setup/adapter_names.h"

#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "core/adapter_ref.h"
#include "json/json.h"

bool adapter_name_is_valid(const char *name) {
    size_t n = strlen(name);
    bool is_valid = n >= 1 && n <= ADAPTER_NAME_BYTES;
    for (size_t i = 0; i < n && is_valid; i++) {
        is_valid = (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
    }
    return is_valid;
}

/* Whether no part of the path between slashes is empty or begins with a dot. */
static bool stays_below(const char *name) {
    bool begins = true, stays = true;
    for (const char *p = name; *p != '\0' && stays; p++) {
        stays = !begins || (*p != '/' && *p != '.');
        begins = *p == '/';
    }
    return stays && !begins;
}

/* The real path of dir/name with the suffix, if it lies in dir. */
static quire_err find_real(const char *dir, const char *name, const char *suffix, strbuf *out) {
    strbuf whole = {0};
    char real[PATH_MAX];
    size_t n = strlen(dir);
    quire_err e = strbuf_addf(&whole, "%s/%s%s", dir, name, suffix);
    if (e == QUIRE_OK) {
        bool is_in = realpath(whole.p, real) != NULL && strncmp(real, dir, n) == 0 &&
                     (real[n] == '/' || (n > 0 && dir[n - 1] == '/'));
        strbuf_clear(out);
        e = is_in ? strbuf_add_str(out, real) : QUIRE_NOT_FOUND;
    }
    strbuf_deinit(&whole);
    return e;
}

quire_err adapter_name_find(const char *dir, const char *name, strbuf *path) {
    if (!adapter_name_is_valid(name) || !stays_below(name)) {
        return QUIRE_NOT_FOUND;
    }
    quire_err e = find_real(dir, name, "", path);
    return e == QUIRE_NOT_FOUND ? find_real(dir, name, ".gguf", path) : e;
}

/* ---- lists ---- */

/* The next line that is not empty, without white space around it; n 0: there is none.
 * ends: what ends a line. */
static str adapter_next_line(const char **lines, const char *ends) {
    const char *p = *lines != NULL ? *lines : "";
    p += strspn(p, " \t\r");
    while (*p != '\0' && strchr(ends, *p) != NULL) {
        p++;
        p += strspn(p, " \t\r");
    }
    size_t n = strcspn(p, ends);
    *lines = p + n;
    while (n > 0 && strchr(" \t\r", p[n - 1]) != NULL) {
        n--;
    }
    return (str){p, n};
}

static quire_err adapter_read_object(str line, strbuf *own, adapter_listed *out, quire_error *err) {
    json_value *v = json_document(line);
    str name = json_get_str(v, "name"), path = json_get_str(v, "path");
    strbuf_clear(own);
    quire_err e = QUIRE_INVALID;
    if (name.n > 0 && path.n > 0) {
        e = strbuf_add(own, name.p, name.n);
        if (e == QUIRE_OK) {
            e = strbuf_add(own, path.p, path.n);
        }
        *out = (adapter_listed){.name = {own->p, name.n}, .path = {own->p + name.n, path.n}, .scale = 1.0f};
    }
    json_drop(v);
    return e == QUIRE_INVALID
               ? err_set(
                     err, e, -1,
                     "--lora-modules %.*s: must be an object as {\"name\":\"sql\",\"path\":\"adapters/sql\"}",
                     (int)(line.n < 200 ? line.n : 200), line.p)
           : e != QUIRE_OK ? err_set(err, e, -1, "out of memory for adapters")
                           : e;
}

bool adapter_names_next(const char **lines, strbuf *own, adapter_listed *out, quire_error *err) {
    str line = adapter_next_line(lines, "\n");
    const char *equals = line.n > 0 ? memchr(line.p, '=', line.n) : NULL;
    if (line.n == 0) {
        return false;
    }
    if (line.p[0] == '{') {
        return adapter_read_object(line, own, out, err) == QUIRE_OK;
    }
    if (equals == NULL || equals == line.p || equals == line.p + line.n - 1) {
        (void)err_set(err, QUIRE_INVALID, -1,
                      "--lora-modules %.*s: must be NAME=PATH, or an object with name and path",
                      (int)(line.n < 200 ? line.n : 200), line.p);
        return false;
    }
    size_t n_name = (size_t)(equals - line.p);
    *out =
        (adapter_listed){.name = {line.p, n_name}, .path = {equals + 1, line.n - n_name - 1}, .scale = 1.0f};
    return true;
}

bool adapter_paths_next(const char **lines, adapter_listed *out) {
    str line = adapter_next_line(lines, ",\n");
    *out = (adapter_listed){.path = line, .scale = 1.0f};
    size_t colon = line.n;
    while (colon > 0 && line.p[colon - 1] != ':' && line.p[colon - 1] != '/') {
        colon--;
    }
    if (colon > 1 && line.p[colon - 1] == ':' && line.n - colon < 32) {
        char number[32], *end;
        memcpy(number, line.p + colon, line.n - colon);
        number[line.n - colon] = '\0';
        float scale = strtof(number, &end);
        if (end != number && *end == '\0' && isfinite(scale)) {
            out->path.n = colon - 1;
            out->scale = scale;
        }
    }
    return line.n > 0;
}

/* ---- adapters among options ---- */

int32_t options_numbered_adapters(const quire_options *o) {
    assert(o != NULL);
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

/* As file_bytes, for a path that is not 0-terminated. */
static int64_t path_bytes(str path, strbuf *own) {
    strbuf_clear(own);
    return strbuf_add(own, path.p, path.n) == QUIRE_OK ? file_bytes(own->p) : 0;
}

int64_t options_adapter_bytes(const quire_options *o) {
    assert(o != NULL);
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

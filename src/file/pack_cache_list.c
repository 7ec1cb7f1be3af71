/* quire_packed_list and quire_packed_remove: the entries of the pack cache, for
 * people. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "file/open_file.h"
#include "file/pack_cache.h"
#include "quire_hub.h"

#define PREFIX "packed:"

/* Fills in the entry's own data. */
static void pack_cache_list_describe(const pack_cache *c, const pack_form *from, quire_packed_form *out) {

    char path[4096];
    model_file *f = NULL;
    compute_mode compute;
    *out = (quire_packed_form){.bytes = from->n_bytes, .used_unix_s = from->used_unix_s};
    (void)snprintf(out->name, sizeof out->name, PREFIX "%s", from->key);
    if (!pack_cache_path(c, from->key, path, sizeof path) || model_file_open(path, &f, NULL) != QUIRE_OK) {
        return;
    }
    str source = packed_section(f, PACKED_SOURCE);
    out->is_whole = model_file_packed_for(f, &compute) && str_is(packed_section(f, PACKED_KEY), from->key);
    if (out->is_whole && source.n < sizeof out->source) {
        (void)snprintf(out->source, sizeof out->source, "%.*s", (int)source.n, source.n > 0 ? source.p : "");
    }
    if (out->is_whole) {
        (void)snprintf(out->compute, sizeof out->compute, "%s", compute_name(compute));
    }
    model_file_close(f);
}

static int pack_cache_list_compare(const void *a, const void *b) {
    const quire_packed_form *x = a, *y = b;
    int order = strcmp(x->source, y->source);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* Opens a directory that is there; *c is closed where it is not. */
static quire_err open_there(const char *dir, pack_cache *c, quire_error *err) {
    *c = (pack_cache){0};
    return dir != NULL && access(dir, F_OK) == 0 ? pack_cache_open(dir, INT64_MAX, c, err) : QUIRE_OK;
}

quire_err quire_packed_list(const char *dir, quire_packed_form **forms, size_t *n, quire_error *err) {
    pack_cache c;
    pack_form *found = NULL;
    *forms = NULL;
    *n = 0;
    quire_err e = open_there(dir, &c, err);
    e = e == QUIRE_OK && c.dir != NULL ? pack_cache_list(&c, &found, n, err) : e;
    if (e == QUIRE_OK && *n > 0) {
        *forms = mem_new(*n, sizeof **forms);
        e = *forms != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the list");
    }
    *n = e == QUIRE_OK ? *n : 0;
    for (size_t i = 0; i < *n; i++) {
        pack_cache_list_describe(&c, &found[i], &(*forms)[i]);
    }
    if (*n > 0) {
        qsort(*forms, *n, sizeof **forms, pack_cache_list_compare);
    }
    mem_free(found);
    pack_cache_close(&c);
    return e;
}

/* Whether an entry is meant by a name. */
static bool is_meant(const pack_form *f, const char *name) {
    const char *digits = name + strlen(PREFIX);
    return strcmp(name, "packed") == 0 || (digits[0] != '\0' && strncmp(f->key, digits, strlen(digits)) == 0);
}

static quire_err remove_meant(const pack_cache *c, const pack_form *found, size_t n, const char *name,
                              int64_t *bytes, quire_error *err) {
    size_t n_meant = 0;
    for (size_t i = 0; i < n; i++) {
        n_meant += is_meant(&found[i], name);
    }
    if (n_meant > 1 && strcmp(name, "packed") != 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: %zu packed forms begin so; give more digits, as `quire list` shows them", name,
                       n_meant);
    }
    if (n_meant == 0) {
        return err_set(err, QUIRE_NOT_FOUND, -1,
                       "%s: there is no such packed form; `quire list` shows those that there are", name);
    }
    for (size_t i = 0; i < n; i++) {
        if (is_meant(&found[i], name)) {
            pack_cache_remove(c, found[i].key);
            *bytes += found[i].n_bytes;
        }
    }
    return QUIRE_OK;
}

quire_err quire_packed_remove(const char *dir, const char *name, int64_t *bytes, quire_error *err) {
    pack_cache c;
    pack_form *found = NULL;
    size_t n = 0;
    *bytes = 0;
    if (strcmp(name, "packed") != 0 && !str_begins(str_of(name), PREFIX)) {
        return err_set(err, QUIRE_INVALID, -1, "%s: a packed form's name begins with " PREFIX, name);
    }
    quire_err e = open_there(dir, &c, err);
    e = e == QUIRE_OK && c.dir != NULL ? pack_cache_list(&c, &found, &n, err) : e;
    e = e == QUIRE_OK ? remove_meant(&c, found, n, name, bytes, err) : e;
    mem_free(found);
    pack_cache_close(&c);
    return e;
}

/* realpath is outside C11. */
#define _XOPEN_SOURCE 700

#include "setup/adapter_store.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "core/adapter_ref.h"
#include "setup/adapter_entries.h"
#include "json/json.h"

/* Whether an adapter may have the name: 1 to ADAPTER_NAME_BYTES bytes without control
 * characters. */
static bool adapter_name_is_valid(const char *name) {
    size_t n = strlen(name);
    bool is_valid = n >= 1 && n <= ADAPTER_NAME_BYTES;
    for (size_t i = 0; i < n && is_valid; i++) {
        is_valid = (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
    }
    return is_valid;
}

/* Whether no component of the path is empty or begins with a dot. */
static bool stays_below(const char *name) {
    bool begins = true, stays = true;
    for (const char *p = name; *p != '\0' && stays; p++) {
        stays = !begins || (*p != '/' && *p != '.');
        begins = *p == '/';
    }
    return stays && !begins;
}

/* Writes the real path of dir/name with the suffix. QUIRE_NOT_FOUND: there is none, or it
 * is outside of dir. */
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

/* Writes the real path of dir/name or dir/name.gguf. dir must be a real path.
 * QUIRE_NOT_FOUND: there is neither, or it is outside of dir because of "..", an absolute
 * path or a link. */
static quire_err adapter_name_find(const char *dir, const char *name, strbuf *path) {
    if (!adapter_name_is_valid(name) || !stays_below(name)) {
        return QUIRE_NOT_FOUND;
    }
    quire_err e = find_real(dir, name, "", path);
    return e == QUIRE_NOT_FOUND ? find_real(dir, name, ".gguf", path) : e;
}

/* ---- lists ---- */

/* The next line that is not empty, without white space around it; n 0: none is left.
 * ends: the characters that end a line. */
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
    return e == QUIRE_INVALID ? err_set(err, e, -1,
                                        "--lora-modules %.*s: must be an object such as "
                                        "{\"name\":\"sql\",\"path\":\"adapters/sql\"}",
                                        (int)(line.n < 200 ? line.n : 200), line.p)
           : e != QUIRE_OK    ? err_set(err, e, -1, "out of memory for adapters")
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

/* Size of an adapter's tensor file; path: a directory or a GGUF file. 0: there is
 * none. */
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

/* ---- open and close ---- */

static quire_err open_dir(adapter_store *s, quire_error *err) {
    if (s->options.dir == NULL) {
        return QUIRE_OK;
    }
    char *real = realpath(s->options.dir, NULL);
    if (real == NULL) {
        return err_set(err, QUIRE_IO, -1, "--lora-dir %s: %s", s->options.dir, strerror(errno));
    }
    s->dir = mem_dup(real, strlen(real));
    free(real);
    return mem_check_for(s->dir, "adapters", err);
}

static quire_err start_thread(adapter_store *s) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's other threads */
    s->has_thread = pthread_create(&s->thread, NULL, adapters_run, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return s->has_thread ? QUIRE_OK : QUIRE_NO_MEMORY;
}

quire_err adapter_store_open(const adapter_store_options *o, const adapter_loader *l, adapter_store **out,
                             quire_error *err) {
    *out = NULL;
    adapter_store *s = mem_new(1, sizeof *s);
    TRY(mem_check_for(s, "adapters", err));
    s->options = *o;
    s->loader = *l;
    s->last = &s->first;
    atomic_init(&s->stop, false);
    atomic_init(&s->is_short, false);
    pthread_mutex_init(&s->lock, NULL);
    quire_err e = open_dir(s, err);
    s->options.dir = s->dir;
    if (e == QUIRE_OK && (wake_init(&s->bell) != QUIRE_OK || start_thread(s) != QUIRE_OK)) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "the thread that loads adapters could not start");
    }
    if (e != QUIRE_OK) {
        adapter_store_close(s);
        return e;
    }
    *out = s;
    return QUIRE_OK;
}

void adapter_store_close(adapter_store *s) {
    if (s == NULL) {
        return;
    }
    if (s->has_thread) {
        atomic_store(&s->stop, true);
        wake_ring(&s->bell);
        pthread_join(s->thread, NULL);
    }
    for (size_t i = 0; i < s->n_entries; i++) {
        s->entries[i]->is_gone = true;
    }
    adapters_sweep(s);
    assert(s->n_entries == 0); /* every reference must have been dropped */
    mem_free(s->entries);
    mem_free(s->dir);
    pthread_mutex_destroy(&s->lock);
    wake_deinit(&s->bell);
    mem_free(s);
}

/* ---- names ---- */

static quire_err adapters_refuse_name(const char *name, quire_error *err) {
    return err_set(err, QUIRE_INVALID, -1,
                   "the adapter's name '%.200s' must have 1 to %d bytes and no control characters", name,
                   ADAPTER_NAME_BYTES);
}

quire_err adapter_store_add(adapter_store *s, const char *name, const char *path, bool is_listed,
                            quire_error *err) {
    if (!adapter_name_is_valid(name)) {
        return adapters_refuse_name(name, err);
    }
    pthread_mutex_lock(&s->lock);
    bool is_taken = is_listed && adapters_find(s, name) != NULL;
    adapter_entry *e = is_taken ? NULL : adapters_new_entry(s, name, path);
    if (e != NULL) {
        e->is_listed = is_listed;
    }
    pthread_mutex_unlock(&s->lock);
    return e != NULL  ? QUIRE_OK
           : is_taken ? err_set(err, QUIRE_INVALID, -1, "two adapters have the name '%.200s'", name)
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for adapters");
}

/* The unlisted entry with this number, or NULL; *n: how many are unlisted. Under the
 * lock. */
static adapter_entry *adapters_at(adapter_store *s, int32_t number, int32_t *n) {
    adapter_entry *found = NULL;
    *n = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        adapter_entry *e = s->entries[i];
        bool counts = !e->is_listed && e->n_parts == 0;
        found = counts && *n == number ? e : found;
        *n += counts;
    }
    return found;
}

quire_err adapter_store_scale(adapter_store *s, int32_t number, float scale, quire_error *err) {
    assert(s != NULL);
    int32_t n = 0, n_used = 0;
    pthread_mutex_lock(&s->lock);
    adapter_entry *e = adapters_at(s, number, &n);
    for (size_t i = 0; i < s->n_entries; i++) {
        n_used += s->entries[i] != e && s->entries[i]->usual != 0.0f;
    }
    bool is_right = e != NULL && (scale == 0.0f || n_used < ADAPTER_MAX_PARTS);
    if (is_right) {
        e->usual = scale;
    }
    pthread_mutex_unlock(&s->lock);
    return is_right    ? QUIRE_OK
           : e != NULL ? err_set(err, QUIRE_BAD_REQUEST, -1, "at most %d adapters can apply at once",
                                 ADAPTER_MAX_PARTS)
                       : err_set(err, QUIRE_BAD_REQUEST, -1,
                                 "there is no adapter %d; this server has %d from --lora, counted from 0",
                                 (int)number, (int)n);
}

quire_err adapter_store_remove(adapter_store *s, const char *name, quire_error *err) {
    pthread_mutex_lock(&s->lock);
    adapter_entry *e = adapters_find(s, name);
    if (e != NULL) {
        e->is_gone = true;
        atomic_store(&s->is_short, true);
    }
    pthread_mutex_unlock(&s->lock);
    wake_ring(&s->bell);
    return e != NULL ? QUIRE_OK
                     : err_set(err, QUIRE_NOT_FOUND, -1, "The lora adapter '%.200s' cannot be found.", name);
}

bool adapter_store_load(adapter_store *s, const char *name, const char *path, bool in_place,
                        adapter_want *w) {
    assert(w != NULL);
    w->ref = NULL;
    w->n_entries = 0;
    w->error = (quire_error){0};
    w->load_us = 0;
    if (!adapter_name_is_valid(name)) {
        (void)adapters_refuse_name(name, &w->error);
        return true;
    }
    pthread_mutex_lock(&s->lock);
    bool is_known = adapters_find(s, name) != NULL,
         is_taken = !in_place && (is_known || adapters_is_loading(s, name));
    adapter_entry *e = is_taken ? NULL : adapters_new_entry(s, name, path);
    bool is_answered = e == NULL;
    if (is_taken) {
        (void)err_set(&w->error, QUIRE_INVALID, -1,
                      "The lora adapter '%.200s' %s. To replace it, set 'load_inplace' to true.", name,
                      is_known ? "has already been loaded" : "is being loaded by another request");
    } else if (e == NULL) {
        (void)err_set(&w->error, QUIRE_NO_MEMORY, -1, "out of memory for adapters");
    } else {
        e->is_hidden = true;
        e->n_wants++;
        w->entries[0] = e;
        w->n_entries = 1;
        w->parts[0].scale = 1.0f;
        is_answered = adapters_queue(s, w);
    }
    pthread_mutex_unlock(&s->lock);
    wake_ring(&s->bell);
    return is_answered;
}

/* ---- lists ---- */

void adapter_store_visit(adapter_store *s, void (*visit)(void *context, const adapter_about *a),
                         void *context) {
    assert(s != NULL);
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_entries; i++) {
        const adapter_entry *e = s->entries[i];
        if (e->is_hidden || e->is_gone || e->n_parts > 0) {
            continue;
        }
        int32_t holders = atomic_load(&e->ref.holders);
        const adapter_about a = {.name = e->name,
                                 .path = e->path,
                                 .is_listed = e->is_listed,
                                 .scale = e->usual,
                                 .is_resident = e->is_resident,
                                 .rank = e->rank,
                                 .n_bytes = e->n_bytes,
                                 .load_us = e->load_us,
                                 .n_holders = holders > 0 ? holders - 1 : 0,
                                 .is_activated = e->loaded.n_invocation > 0,
                                 .ref = &e->ref};
        visit(context, &a);
    }
    pthread_mutex_unlock(&s->lock);
}

adapter_bounds adapter_store_bounds(adapter_store *s) {
    pthread_mutex_lock(&s->lock);
    adapter_bounds b = {.max_resident = s->options.max_resident,
                        .n_resident = s->n_resident,
                        .most_resident = s->most_resident,
                        .n_loads = s->n_loads,
                        .n_evictions = s->n_evictions};
    for (size_t i = 0; i < s->n_entries; i++) {
        b.n_bytes += s->entries[i]->is_resident ? s->entries[i]->loaded.n_bytes : 0;
    }
    pthread_mutex_unlock(&s->lock);
    return b;
}

/* ---- wants ---- */

/* The entry that p names. NULL: there is none, and w->error is set. Under the lock. */
static adapter_entry *entry_of(adapter_store *s, const want_part *p, adapter_want *w) {
    int32_t n = 0;
    adapter_entry *found = p->name != NULL ? adapters_find(s, p->name) : adapters_at(s, p->number, &n);
    if (found == NULL && p->name != NULL) {
        (void)err_set_param(&w->error, QUIRE_NOT_FOUND, "model", "The model `%.200s` does not exist.",
                            p->name);
    } else if (found == NULL) {
        (void)err_set_param(&w->error, QUIRE_BAD_REQUEST, "lora",
                            "lora has id %d; this server has %d adapters from --lora, counted from 0",
                            (int)p->number, (int)n);
    }
    return found;
}

/* Adds entries for names in w that are not known but in the directory. */
static void find_in_dir(adapter_store *s, const adapter_want *w) {
    for (int32_t i = 0; i < w->n_parts && s->dir != NULL; i++) {
        const char *name = w->parts[i].name;
        strbuf path = {0};
        pthread_mutex_lock(&s->lock);
        bool is_known = name == NULL || adapters_find(s, name) != NULL;
        pthread_mutex_unlock(&s->lock);
        if (!is_known && adapter_name_find(s->dir, name, &path) == QUIRE_OK) {
            pthread_mutex_lock(&s->lock);
            adapter_entry *e = adapters_find(s, name) == NULL ? adapters_new_entry(s, name, path.p) : NULL;
            if (e != NULL) { /* NULL: out of memory; the name remains unknown, so the request fails */
                e->is_found = true;
            }
            pthread_mutex_unlock(&s->lock);
        }
        strbuf_deinit(&path);
    }
}

/* Sets w->entries to those of its parts with a scale other than 0. False: w->error is
 * set. Under the lock. */
static bool set_entries(adapter_store *s, adapter_want *w) {
    for (int32_t i = 0; i < w->n_parts; i++) {
        adapter_entry *e = entry_of(s, &w->parts[i], w);
        if (e == NULL) {
            return false;
        }
        if (w->parts[i].scale != 0.0f) {
            w->entries[w->n_entries] = e;
            w->parts[w->n_entries++] = w->parts[i];
            e->n_wants++;
        }
    }
    if (w->n_entries > s->options.max_resident) {
        (void)err_set_param(&w->error, QUIRE_BAD_REQUEST, "lora",
                            "lora names %d adapters; at most %d are loaded at once (--max-cpu-loras)",
                            (int)w->n_entries, (int)s->options.max_resident);
    }
    return w->error.code == QUIRE_OK;
}

static bool adapters_want(void *context, adapter_want *w) {
    adapter_store *s = context;
    w->ref = NULL;
    w->n_entries = 0;
    w->error = (quire_error){0};
    w->load_us = 0;
    find_in_dir(s, w);
    pthread_mutex_lock(&s->lock);
    bool is_answered = !set_entries(s, w);
    if (is_answered) {
        adapters_release_want(w);
    }
    is_answered = is_answered || adapters_answer(s, w) || adapters_queue(s, w);
    pthread_mutex_unlock(&s->lock);
    if (!is_answered) {
        wake_ring(&s->bell);
    }
    return is_answered;
}

static void adapters_cancel(void *context, adapter_want *w) {
    adapter_store *s = context;
    pthread_mutex_lock(&s->lock);
    adapter_want **at = &s->first;
    while (*at != NULL && *at != w) {
        at = &(*at)->next;
    }
    bool waits = *at == w;
    if (waits) {
        *at = w->next;
        s->last = w->next == NULL ? at : s->last;
        adapters_release_want(w);
        (void)err_set(&w->error, QUIRE_CANCELLED, -1, "cancelled");
    }
    pthread_mutex_unlock(&s->lock);
    if (waits) {
        wake_ring(&s->bell); /* entries that were draining for w can be used again */
        w->ready(w);
    }
}

static void adapters_usual(void *context, adapter_want *w) {
    adapter_store *s = context;
    int32_t number = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_entries; i++) {
        const adapter_entry *e = s->entries[i];
        if (!e->is_listed && e->n_parts == 0) {
            if (e->usual != 0.0f) {
                w->parts[w->n_parts++] = (want_part){.number = number, .scale = e->usual};
            }
            number++;
        }
    }
    pthread_mutex_unlock(&s->lock);
}

static bool adapters_knows(void *context, const char *name) {
    adapter_store *s = context;
    pthread_mutex_lock(&s->lock);
    bool knows = s->dir != NULL || adapters_find(s, name) != NULL;
    pthread_mutex_unlock(&s->lock);
    return knows;
}

static bool adapters_load(void *context, const char *name, const char *path, bool in_place, adapter_want *w) {
    return adapter_store_load(context, name, path, in_place, w);
}

adapter_source adapter_store_source(adapter_store *s) {
    return (adapter_source){.want = adapters_want,
                            .cancel = adapters_cancel,
                            .load = adapters_load,
                            .usual = adapters_usual,
                            .knows = adapters_knows,
                            .context = s};
}

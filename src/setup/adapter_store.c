/* realpath is outside C11. */
#define _XOPEN_SOURCE 700

#include "setup/adapter_store.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "setup/adapter_entries.h"
#include "setup/adapter_names.h"

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
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's threads handle signals */
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
    assert(s->n_entries == 0); /* else somebody has a reference */
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
           : is_taken ? err_set(err, QUIRE_INVALID, -1, "there are two adapters with the name '%.200s'", name)
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for adapters");
}

/* The entry of a number, among those that are not listed; *n: how many there are. Under
 * the lock. */
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
    return is_right ? QUIRE_OK
           : e != NULL
               ? err_set(err, QUIRE_BAD_REQUEST, -1, "at most %d adapters apply at once", ADAPTER_MAX_PARTS)
               : err_set(err, QUIRE_BAD_REQUEST, -1,
                         "there is no adapter %d; this server has %d of --lora, 0 is the first", (int)number,
                         (int)n);
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

/* The entry of a part; NULL and w->error: there is none. Under the lock. */
static adapter_entry *entry_of(adapter_store *s, const want_part *p, adapter_want *w) {
    int32_t n = 0;
    adapter_entry *found = p->name != NULL ? adapters_find(s, p->name) : adapters_at(s, p->number, &n);
    if (found == NULL && p->name != NULL) {
        (void)err_set_param(&w->error, QUIRE_NOT_FOUND, "model", "The model `%.200s` does not exist.",
                            p->name);
    } else if (found == NULL) {
        (void)err_set_param(&w->error, QUIRE_BAD_REQUEST, "lora",
                            "lora has id %d; this server has %d adapters of --lora, 0 is the first",
                            (int)p->number, (int)n);
    }
    return found;
}

/* Makes names known that are entries of the directory. */
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
            if (e != NULL) { /* without memory the name stays unknown, and the request fails with that */
                e->is_found = true;
            }
            pthread_mutex_unlock(&s->lock);
        }
        strbuf_deinit(&path);
    }
}

/* Sets the entries of w's parts whose scale is not 0. False: w->error is set. Under
 * the lock. */
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
        wake_ring(&s->bell); /* entries that were draining for it are available again */
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

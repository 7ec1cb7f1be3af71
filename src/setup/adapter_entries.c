#include "setup/adapter_entries.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_pool.h"

/* Is adapter_ref.idle: wakes the thread if a want waits for a free adapter. */
static void adapters_ring(void *store) {
    adapter_store *s = store;
    if (atomic_load(&s->is_short)) {
        wake_ring(&s->bell);
    }
}

adapter_entry *adapters_new_entry(adapter_store *s, const char *name, const char *path) {
    adapter_entry *e = mem_new(1, sizeof *e);
    if (e == NULL ||
        mem_grow(&s->entries, &s->cap_entries, s->n_entries + 1, sizeof *s->entries) != QUIRE_OK) {
        mem_free(e);
        return NULL;
    }
    e->name = mem_dup(name, strlen(name));
    e->path = path != NULL ? mem_dup(path, strlen(path)) : NULL;
    if (e->name == NULL || (path != NULL && e->path == NULL)) {
        mem_free(e->name);
        mem_free(e->path);
        mem_free(e);
        return NULL;
    }
    e->ref.name = e->name;
    e->ref.idle = adapters_ring;
    e->ref.owner = s;
    e->is_listed = true;
    s->entries[s->n_entries++] = e;
    return e;
}

adapter_entry *adapters_find(const adapter_store *s, const char *name) {
    assert(s != NULL);
    adapter_entry *found = NULL;
    for (size_t i = 0; i < s->n_entries && found == NULL; i++) {
        adapter_entry *e = s->entries[i];
        bool is_known = e->is_listed && !e->is_hidden && !e->is_gone && e->n_parts == 0;
        found = is_known && strcmp(e->name, name) == 0 ? e : NULL;
    }
    return found;
}

bool adapters_is_loading(const adapter_store *s, const char *name) {
    assert(s != NULL);
    bool is = false;
    for (size_t i = 0; i < s->n_entries && !is; i++) {
        const adapter_entry *e = s->entries[i];
        is = e->is_hidden && !e->is_gone && strcmp(e->name, name) == 0;
    }
    return is;
}

/* Frees the weights of an unused resident entry. */
static void adapters_unload(adapter_store *s, adapter_entry *e) {
    assert(e->is_resident && atomic_load(&e->ref.holders) == 1);
    e->is_resident = e->is_draining = false;
    atomic_store(&e->ref.holders, 0);
    s->loader.free(s->loader.context, &e->loaded);
    e->loaded = (loaded_adapter){0};
    e->ref.weights = NULL;
    e->ref.invocation = NULL;
    e->ref.n_invocation = 0;
    for (int32_t i = 0; i < e->n_parts; i++) {
        adapter_ref_drop(&e->parts[i]->ref);
        e->parts[i]->n_wants--;
    }
    s->n_resident -= e->n_parts == 0 ? 1 : 0;
}

static void free_entry(adapter_entry *e) {
    mem_free(e->name);
    mem_free(e->path);
    mem_free(e);
}

void adapters_sweep(adapter_store *s) {
    /* blends first, since they hold references to other entries */
    for (int pass = 0; pass < 2; pass++) {
        size_t kept = 0;
        for (size_t i = 0; i < s->n_entries; i++) {
            adapter_entry *e = s->entries[i];
            bool goes = pass == 0 ? e->n_parts > 0 : e->is_gone;
            goes = goes && e->n_wants == 0 && !e->is_loading && atomic_load(&e->ref.holders) <= 1;
            if (goes && e->is_resident) {
                adapters_unload(s, e);
            }
            if (goes) {
                free_entry(e);
            } else {
                s->entries[kept++] = e;
            }
        }
        s->n_entries = kept;
    }
}

/* ---- wants ---- */

void adapters_release_want(adapter_want *w) {
    assert(w != NULL);
    for (int32_t i = 0; i < w->n_entries; i++) {
        adapter_entry *e = w->entries[i];
        e->n_wants--;
        /* no want is left for a load under a new name: it is dropped */
        e->is_gone = e->is_gone || (e->is_hidden && e->n_wants == 0);
    }
    w->n_entries = 0;
}

bool adapters_queue(adapter_store *s, adapter_want *w) {
    assert(w != NULL);
    w->wanted_us = clock_us();
    w->next = NULL;
    bool is_off = atomic_load(&s->stop) || (w->is_off != NULL && atomic_load(w->is_off));
    if (is_off) {
        adapters_release_want(w);
        (void)err_set(&w->error, QUIRE_CANCELLED, -1, "cancelled");
        return true;
    }
    *s->last = w;
    s->last = &w->next;
    return false;
}

/* Makes e known by its name, and removes older adapters of this name. */
static void show_entry(adapter_store *s, adapter_entry *e) {
    for (size_t i = 0; i < s->n_entries && e->is_hidden; i++) {
        adapter_entry *other = s->entries[i];
        bool is_same = other != e && other->is_listed && !other->is_hidden && !other->is_gone &&
                       other->n_parts == 0 && strcmp(other->name, e->name) == 0;
        if (is_same) {
            other->is_gone = true;
            atomic_store(&e->ref.n_requests, atomic_load(&other->ref.n_requests));
            atomic_store(&e->ref.n_prompt_tokens, atomic_load(&other->ref.n_prompt_tokens));
            atomic_store(&e->ref.n_generated, atomic_load(&other->ref.n_generated));
        }
    }
    e->is_hidden = false;
}

/* ---- blends ---- */

static void blend_digest(const adapter_want *w, uint8_t out[SHA256_BYTES]) {
    sha256_sum sum;
    sha256_begin(&sum);
    for (int32_t i = 0; i < w->n_entries; i++) {
        sha256_add(&sum, w->entries[i]->ref.digest, SHA256_BYTES);
        sha256_add(&sum, &w->parts[i].scale, sizeof w->parts[i].scale);
    }
    sha256_end(&sum, out);
}

static adapter_entry *find_blend(const adapter_store *s, const adapter_want *w) {
    for (size_t i = 0; i < s->n_entries; i++) {
        adapter_entry *e = s->entries[i];
        bool is_same = e->n_parts == w->n_entries && e->is_resident;
        for (int32_t k = 0; k < w->n_entries && is_same; k++) {
            is_same = e->parts[k] == w->entries[k] && e->scales[k] == w->parts[k].scale;
        }
        if (is_same) {
            return e;
        }
    }
    return NULL;
}

/* Makes the blend of w's entries, which are resident. NULL: w->error is set. */
static adapter_entry *make_blend(adapter_store *s, adapter_want *w) {
    const struct adapter *weights[ADAPTER_MAX_PARTS];
    float scales[ADAPTER_MAX_PARTS];
    int32_t rank = 0;
    bool is_activated = false;
    for (int32_t i = 0; i < w->n_entries; i++) {
        weights[i] = w->entries[i]->loaded.weights;
        scales[i] = w->parts[i].scale;
        rank += w->entries[i]->loaded.rank;
        is_activated = is_activated || w->entries[i]->loaded.n_invocation > 0;
    }
    if (rank > s->options.max_rank || (is_activated && w->n_entries > 1)) {
        (void)err_set_param(&w->error, QUIRE_BAD_REQUEST, "lora",
                            rank > s->options.max_rank
                                ? "the adapters have a rank of %d together; at most %d is possible "
                                  "(--max-lora-rank)"
                                : "an adapter with invocation tokens is not blended with others",
                            (int)rank, (int)s->options.max_rank);
        return NULL;
    }
    struct adapter *made = NULL;
    if (s->loader.blend(s->loader.context, weights, scales, w->n_entries, &made, &w->error) != QUIRE_OK) {
        return NULL;
    }
    adapter_entry *e = adapters_new_entry(s, w->entries[0]->name, NULL);
    if (e == NULL) {
        s->loader.free(s->loader.context, &(loaded_adapter){.weights = made});
        (void)err_set(&w->error, QUIRE_NO_MEMORY, -1, "out of memory for a blend of adapters");
        return NULL;
    }
    e->loaded = (loaded_adapter){.weights = made, .rank = rank};
    e->is_resident = true;
    blend_digest(w, e->ref.digest);
    e->ref.weights = made;
    e->ref.rank = rank;
    e->ref.invocation = w->entries[0]->loaded.invocation; /* stays valid, since the blend holds its parts */
    e->ref.n_invocation = w->entries[0]->loaded.n_invocation;
    atomic_store(&e->ref.holders, 1);
    for (int32_t i = 0; i < w->n_entries; i++) {
        e->parts[i] = w->entries[i];
        e->scales[i] = w->parts[i].scale;
        (void)adapter_ref_hold(&w->entries[i]->ref);
        w->entries[i]->n_wants++;
    }
    e->n_parts = w->n_entries;
    return e;
}

bool adapters_answer(adapter_store *s, adapter_want *w) {
    assert(w != NULL);
    for (int32_t i = 0; i < w->n_entries; i++) {
        if (!w->entries[i]->is_resident || w->entries[i]->is_draining) {
            return false;
        }
    }
    if (w->n_entries > 0) {
        bool is_plain = w->n_entries == 1 && w->parts[0].scale == 1.0f;
        adapter_entry *e = is_plain ? w->entries[0] : find_blend(s, w);
        e = e != NULL ? e : make_blend(s, w);
        for (int32_t i = 0; i < w->n_entries; i++) {
            w->entries[i]->last_used = ++s->clock;
            show_entry(s, w->entries[i]);
        }
        w->ref = e != NULL ? adapter_ref_hold(&e->ref) : NULL;
        adapters_release_want(w);
    }
    return true;
}

/* ---- the thread ---- */

/* Answers all wants that can be answered, with an adapter or an error. Returns them as a
 * list, so that their owners are notified without the lock. */
static adapter_want *take_answered(adapter_store *s) {
    adapter_want *done = NULL, **at = &s->first;
    for (adapter_want *w = s->first; w != NULL; w = *at) {
        bool is_over = w->error.code != QUIRE_OK;
        if (is_over) {
            adapters_release_want(w);
        } else {
            is_over = adapters_answer(s, w);
        }
        if (!is_over) {
            at = &w->next;
            continue;
        }
        w->load_us = clock_us() - w->wanted_us;
        *at = w->next;
        w->next = done;
        done = w;
    }
    s->last = at;
    return done;
}

static void tell_wants(adapter_want *done) {
    for (adapter_want *next; done != NULL; done = next) {
        next = done->next; /* after ready(), `done` belongs to its owner */
        done->ready(done);
    }
}

static bool is_part_of(const adapter_want *w, const adapter_entry *e) {
    bool is = false;
    for (int32_t i = 0; i < w->n_entries && !is; i++) {
        is = w->entries[i] == e;
    }
    return is;
}

/* Makes room for one more adapter, for w. False: all are in use; the least recently used
 * one now takes no further holders. */
static bool adapters_make_room(adapter_store *s, const adapter_want *w) {
    if (s->n_resident < s->options.max_resident) {
        return true;
    }
    /* set before the counts are read, so that a later drop rings the bell */
    atomic_store(&s->is_short, true);
    adapters_sweep(s);
    adapter_entry *idle = NULL, *used = NULL;
    bool drains = false;
    for (size_t i = 0; i < s->n_entries; i++) {
        adapter_entry *e = s->entries[i];
        if (!e->is_resident || e->n_parts > 0 || is_part_of(w, e)) {
            continue;
        }
        drains = drains || e->is_draining;
        bool is_idle = atomic_load(&e->ref.holders) == 1;
        adapter_entry **best = is_idle ? &idle : &used;
        *best = *best == NULL || e->last_used < (*best)->last_used ? e : *best;
    }
    if (s->n_resident < s->options.max_resident) { /* the sweep made room */
        return true;
    }
    if (idle != NULL) {
        adapters_unload(s, idle);
        s->n_evictions++;
        return true;
    }
    if (!drains && used != NULL) {
        used->is_draining = true;
    }
    return false;
}

/* The adapter to load next, with room for it; NULL: none can be loaded. */
static adapter_entry *next_to_load(adapter_store *s) {
    const adapter_want *w = s->first;
    adapter_entry *cold = NULL;
    for (int32_t i = 0; w != NULL && i < w->n_entries && cold == NULL; i++) {
        cold = !w->entries[i]->is_resident ? w->entries[i] : NULL;
    }
    bool has_room = cold != NULL && adapters_make_room(s, w);
    for (size_t i = 0; i < s->n_entries && (cold == NULL || has_room); i++) {
        s->entries[i]->is_draining = false; /* the entry's place is no longer needed for another adapter */
    }
    return has_room ? cold : NULL;
}

/* Stores the loaded adapter in e, or the error in the wants that wait for it. */
static void note_loaded(adapter_store *s, adapter_entry *e, const loaded_adapter *l, const quire_error *err,
                        int64_t us) {
    e->is_loading = false;
    if (err->code == QUIRE_OK) {
        e->loaded = *l;
        e->rank = l->rank;
        e->n_bytes = l->n_bytes;
        e->load_us = us;
        e->is_resident = true;
        s->n_loads++;
        e->ref.weights = l->weights;
        e->ref.rank = l->rank;
        e->ref.invocation = l->invocation;
        e->ref.n_invocation = l->n_invocation;
        memcpy(e->ref.digest, l->digest, sizeof e->ref.digest);
        atomic_store(&e->ref.holders, 1);
        s->most_resident = s->n_resident > s->most_resident ? s->n_resident : s->most_resident;
        return;
    }
    s->n_resident--; /* a failed load frees the place that was reserved for it */
    for (adapter_want *w = s->first; w != NULL; w = w->next) {
        if (is_part_of(w, e)) {
            w->error = *err;
        }
    }
    e->is_gone = e->is_gone || e->is_found;
}

/* A load on a separate thread of low priority. The store's thread keeps normal priority,
 * since others wait for the lock that it takes. */
typedef struct file_job {
    const adapter_loader *loader;
    const char *path;
    loaded_adapter made;
    quire_error err;
    quire_err result;
} file_job;

static void read_file(void *arg) {
    file_job *job = arg;
    job->result = job->loader->load(job->loader->context, job->path, &job->made, &job->err);
}

static void run_file_job(file_job *job) {
    if (!thread_run_low(read_file, job)) {
        read_file(job);
    }
}

/* Loads the file of e. Without the lock. */
static void load_entry(adapter_store *s, adapter_entry *e) {
    file_job job = {.loader = &s->loader, .path = e->path};
    int64_t began_us = clock_us();
    s->n_resident++;
    e->is_loading = true;
    pthread_mutex_unlock(&s->lock);
    run_file_job(&job);
    if (job.result != QUIRE_OK && job.err.code == QUIRE_OK) {
        (void)err_set(&job.err, job.result, -1, "the adapter '%.200s' was not loaded: %s", e->name,
                      quire_err_text(job.result));
    }
    job.err.code = job.result;
    int64_t us = clock_us() - began_us;
    if (job.result == QUIRE_OK) {
        log_line(LOG_DEBUG, "adapter %s: rank %d, %.1f MB, loaded in %.1f ms", e->name, (int)job.made.rank,
                 (double)job.made.n_bytes / 1e6, (double)us / 1e3);
    } else {
        log_line(LOG_WARN, "adapter %s is not loaded: %s", e->name, job.err.message);
    }
    pthread_mutex_lock(&s->lock);
    note_loaded(s, e, &job.made, &job.err, us);
}

void *adapters_run(void *store) {
    adapter_store *s = store;
    while (!atomic_load(&s->stop)) {
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->is_short, false);
        for (size_t i = 0; i < s->n_entries; i++) { /* must precede the sweep, which reads reference counts */
            if (s->entries[i]->is_gone) {
                atomic_store(&s->is_short, true);
            }
        }
        adapters_sweep(s);
        adapter_entry *e = next_to_load(s);
        if (e != NULL) {
            load_entry(s, e);
        }
        adapter_want *done = take_answered(s);
        pthread_mutex_unlock(&s->lock);
        tell_wants(done);
        if (e == NULL && done == NULL) {
            (void)wake_wait(&s->bell, -1);
        }
    }
    pthread_mutex_lock(&s->lock);
    for (adapter_want *w = s->first; w != NULL; w = w->next) {
        (void)err_set(&w->error, QUIRE_CANCELLED, -1, "cancelled");
    }
    adapter_want *done = take_answered(s);
    pthread_mutex_unlock(&s->lock);
    tell_wants(done);
    return NULL;
}

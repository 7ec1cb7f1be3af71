/* Chooses the file that a start loads: the model's own or, if the pack cache has one, its
 * packed form. */
/* declares SCHED_IDLE, which is outside POSIX */
#define _GNU_SOURCE
#include "setup/engine_parts.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "setup/loaded_model.h"
#include "text/tables.h"

/* ---- keeping a packed form ---- */

#define WAIT_S 1 /* delay before writing begins, since the first request usually comes at once */

typedef enum keep_phase { KEEP_METADATA, KEEP_CHECKSUMS, KEEP_PLACE, KEEP_BYTES, KEEP_ENDED } keep_phase;

/* The thread that writes a packed form owns it; after its end, pack_keeper_close does. */
struct pack_keeper {
    pack_keep what;
    keep_phase phase;
    int32_t block, n_blocks;
    uint64_t at; /* bytes written */
    pack_entry *entry;
    quire_error err;
    pthread_t thread;
    pthread_mutex_t mutex; /* used for the wait only */
    pthread_cond_t wake;
    _Atomic bool stop;
};

/* Adds the key and, for listings of the cache, the absolute path of the model, without
 * resolving links. */
static quire_err pack_keep_add_key(pack_keeper *k) {
    const char *path = model_file_path(k->what.source);
    char here[4096];
    strbuf whole = {0};
    quire_err e =
        path[0] != '/' && getcwd(here, sizeof here) != NULL ? strbuf_addf(&whole, "%s/", here) : QUIRE_OK;
    TRY_DONE(e, strbuf_add_str(&whole, path));
    TRY_DONE(e, packed_image_key(k->what.image, k->what.key, whole.p));
done:
    strbuf_deinit(&whole);
    return e;
}

static quire_err pack_keep_begin(pack_keeper *k) {
    TRY(image_metadata(k->what.image, k->what.source, k->what.t, &k->err));
    TRY(pack_keep_add_key(k));
    return packed_image_measure(k->what.image, &k->n_blocks);
}

static quire_err pack_keep_place(pack_keeper *k) {
    TRY(packed_image_seal(k->what.image));
    return pack_entry_open(k->what.cache, k->what.key, (int64_t)packed_image_bytes(k->what.image), &k->entry,
                           &k->err);
}

static quire_err pack_keep_write_some(pack_keeper *k) {
    uint64_t left = packed_image_bytes(k->what.image) - k->at, n = left < PACKED_BLOCK ? left : PACKED_BLOCK;
    if (n > 0) {
        TRY(pack_entry_write(k->entry, k->what.image, k->at, n, &k->err));
        k->at += n;
        return QUIRE_OK;
    }
    pack_entry *done = k->entry;
    k->entry = NULL;
    k->phase = KEEP_ENDED;
    TRY(pack_entry_finish(done, &k->err));
    log_line(LOG_DEBUG, "%s: wrote %.1f MB for later starts", k->what.cache->dir, (double)k->at / 1e6);
    return QUIRE_OK;
}

/* Does the next step of the writing, of at most PACKED_BLOCK bytes. */
static quire_err pack_keep_step(pack_keeper *k) {
    if (k->phase == KEEP_METADATA) {
        k->phase = KEEP_CHECKSUMS;
        return pack_keep_begin(k);
    }
    if (k->phase == KEEP_CHECKSUMS && k->block < k->n_blocks) {
        packed_image_hash(k->what.image, k->block++);
        return QUIRE_OK;
    }
    if (k->phase == KEEP_CHECKSUMS) {
        k->phase = KEEP_BYTES;
        return pack_keep_place(k);
    }
    return pack_keep_write_some(k);
}

/* Writes until the form is complete, an error occurs, or *stop is set (NULL: never). */
static void pack_keep_run(pack_keeper *k, const _Atomic bool *stop) {
    while (k->phase != KEEP_ENDED && (stop == NULL || !atomic_load(stop))) {
        quire_err e = pack_keep_step(k);
        if (e == QUIRE_OK) {
            continue;
        }
        k->phase = KEEP_ENDED;
        if (e != QUIRE_BUSY) { /* QUIRE_BUSY: another process is writing the same form */
            log_line(LOG_WARN, "the packed form of this model was not kept: %s",
                     k->err.message[0] ? k->err.message : quire_err_text(e));
        }
    }
}

static void wait_before(pack_keeper *k) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&k->mutex);
    while (!atomic_load(&k->stop) && pthread_cond_timedwait(&k->wake, &k->mutex, &until) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&k->mutex);
}

static void *pack_keep_do(void *argument) {
    pack_keeper *k = argument;
    /* if the system refuses, the thread keeps its normal priority */
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0});
    wait_before(k);
    pack_keep_run(k, &k->stop);
    return NULL;
}

/* Starts the thread. NULL: out of memory or threads; nothing will be written. */
static pack_keeper *pack_keeper_open(const pack_keep *what) {
    sigset_t all, before;
    pack_keeper *k = mem_new(1, sizeof *k);
    if (k == NULL) {
        return NULL;
    }
    k->what = *what;
    pthread_mutex_init(&k->mutex, NULL);
    pthread_cond_init(&k->wake, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's other threads */
    int failed = pthread_create(&k->thread, NULL, pack_keep_do, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        pthread_cond_destroy(&k->wake);
        pthread_mutex_destroy(&k->mutex);
        mem_free(k);
        return NULL;
    }
    return k;
}

/* Number of bytes still to be written. */
static uint64_t left_of(const pack_keeper *k) {
    return k->phase == KEEP_ENDED ? 0 : packed_image_data_bytes(k->what.image) - k->at;
}

static void pack_keeper_close(pack_keeper *k) {
    if (k == NULL) {
        return;
    }
    pthread_mutex_lock(&k->mutex);
    atomic_store(&k->stop, true);
    pthread_cond_signal(&k->wake);
    pthread_mutex_unlock(&k->mutex);
    pthread_join(k->thread, NULL);
    if (left_of(k) <= PACK_LEFT_BYTES) {
        pack_keep_run(k, NULL);
    } else {
        log_line(LOG_INFO, "the packed form of this model was not kept: %.1f GB of it were still unwritten",
                 (double)left_of(k) / 1e9);
    }
    pack_entry_discard(k->entry);
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->mutex);
    mem_free(k);
}

/* ---- checksums, on all threads ---- */

typedef struct check {
    const model_file *f;
    _Atomic int32_t n_damaged;
} check;

static void check_block(void *context, int32_t task, int32_t worker) {
    check *c = context;
    (void)worker;
    if (!packed_block_is_whole(c->f, task)) {
        atomic_fetch_add(&c->n_damaged, 1);
    }
}

static bool pack_start_is_whole(const model_file *f, backend *b) {
    check c = {.f = f};
    int32_t n = packed_n_blocks(f);
    if (b->ops->run_tasks != NULL) {
        b->ops->run_tasks(b, check_block, &c, n);
    } else {
        for (int32_t i = 0; i < n; i++) {
            check_block(&c, i, 0);
        }
    }
    return n > 0 && atomic_load(&c.n_damaged) == 0;
}

/* ---- the start ---- */

/* Opens the cache's packed form as s->file, if there is a complete one. */
static bool find_entry(pack_start *s, backend *b) {
    model_file *f;
    quire_error err = {0};
    quire_err e = pack_cache_find(&s->cache, s->key, &f, &err);
    if (e == QUIRE_NOT_FOUND) {
        return false;
    }
    if (e != QUIRE_OK) {
        log_line(LOG_WARN, "pack cache: %s; it is made again", err.message);
        return false;
    }
    if (!pack_start_is_whole(f, b)) {
        log_line(LOG_WARN, "pack cache: %s: its bytes have changed since they were written; it is made again",
                 model_file_path(f));
        pack_cache_remove(&s->cache, s->key);
        model_file_close(f);
        return false;
    }
    log_line(LOG_INFO, "%s: using its packed form %s", model_file_path(s->source), model_file_path(f));
    model_file_close(s->file);
    s->file = f;
    return true;
}

void pack_start_find(const quire_options *o, model_file *source, const model_desc *d, backend *b,
                     pack_start *out) {
    char form[160];
    quire_error err = {0};
    compute_mode packed_for;
    *out = (pack_start){.source = model_file_share(source), .file = model_file_share(source)};
    if (o->pack_cache == NULL || b->ops->linear_packed == NULL ||
        model_file_packed_for(source, &packed_for)) {
        return;
    }
    (void)snprintf(form, sizeof form, "quire %s, %s, %s, packed %u, file %d, text %d%s%s", QUIRE_VERSION,
                   b->ops->name, compute_name(b->compute), (unsigned)b->ops->packing, PACKED_VERSION,
                   TABLES_VERSION, d->quantise_to != DTYPE_F32 ? ", as " : "",
                   d->quantise_to != DTYPE_F32 ? dtype_name(d->quantise_to) : "");
    if (!pack_cache_key(source, form, out->key)) {
        return; /* the built-in model needs none */
    }
    if (pack_cache_open(o->pack_cache, o->pack_cache_bytes, &out->cache, &err) != QUIRE_OK) {
        log_line(LOG_WARN, "pack cache: %s; the model starts without it", err.message);
        return;
    }
    if (b->compute != COMPUTE_FP8 && !find_entry(out, b) && pack_cache_can_name(source) &&
        packed_image_open(b->compute, &out->image) != QUIRE_OK) {
        log_line(LOG_WARN, "pack cache: out of memory; the model starts without it");
    }
}

void pack_start_loaded(pack_start *s, int64_t load_us, int64_t least_us) {
    assert(s != NULL);
    s->is_quick = load_us < least_us;
    if (s->is_quick && s->image != NULL) {
        log_line(LOG_INFO, "%s: loads in %.0f ms, so no packed form of it is kept (--pack-cache-least-ms)",
                 model_file_path(s->source), (double)load_us / 1e3);
        packed_image_close(s->image);
        s->image = NULL;
    }
}

void pack_start_keep(pack_start *s, const tokenizer *t) {
    assert(s != NULL);
    const char *path = model_file_path(s->source);
    if (s->image != NULL) {
        log_line(LOG_INFO,
                 "%s: its packed form is kept in %s for later starts (--pack-cache none turns this off)",
                 path, s->cache.dir);
        s->keeper = pack_keeper_open(
            &(pack_keep){.cache = &s->cache, .key = s->key, .image = s->image, .source = s->source, .t = t});
    } else if (s->cache.dir != NULL && s->file == s->source && !s->is_quick) {
        log_line(LOG_INFO, "%s: was changed just now, so its packed form is not kept before a later start",
                 path);
    }
}

void pack_start_close(pack_start *s) {
    pack_keeper_close(s->keeper);
    packed_image_close(s->image);
    pack_cache_close(&s->cache);
    model_file_close(s->source);
    model_file_close(s->file);
    *s = (pack_start){0};
}

#include "setup/pack_start.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "text/tables.h"

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

/* Loads the entry, if there is a complete one. */
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
        log_line(LOG_WARN, "pack cache: %s: its bytes are not those that were written; it is made again",
                 model_file_path(f));
        pack_cache_remove(&s->cache, s->key);
        model_file_close(f);
        return false;
    }
    log_line(LOG_INFO, "%s: packed before, as %s", model_file_path(s->source), model_file_path(f));
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
        return; /* the built-in model */
    }
    if (pack_cache_open(o->pack_cache, o->pack_cache_bytes, &out->cache, &err) != QUIRE_OK) {
        log_line(LOG_WARN, "pack cache: %s; the model starts without", err.message);
        return;
    }
    if (b->compute != COMPUTE_FP8 && !find_entry(out, b) && pack_cache_can_name(source) &&
        packed_image_open(b->compute, &out->image) != QUIRE_OK) {
        log_line(LOG_WARN, "pack cache: out of memory; the model starts without");
    }
}

void pack_start_loaded(pack_start *s, int64_t load_us, int64_t least_us) {
    s->is_quick = load_us < least_us;
    if (s->is_quick && s->image != NULL) {
        log_line(LOG_INFO, "%s: loads in %.0f ms, so no packed form of it is kept (--pack-cache-least-ms)",
                 model_file_path(s->source), (double)load_us / 1e3);
        packed_image_close(s->image);
        s->image = NULL;
    }
}

void pack_start_keep(pack_start *s, const tokenizer *t) {
    const char *path = model_file_path(s->source);
    if (s->image != NULL) {
        log_line(LOG_INFO, "%s: its packed form is kept in %s for later starts (--pack-cache none: not)",
                 path, s->cache.dir);
        s->keeper = pack_keeper_open(
            &(pack_keep){.cache = &s->cache, .key = s->key, .image = s->image, .source = s->source, .t = t});
    } else if (s->cache.dir != NULL && s->file == s->source && !s->is_quick) {
        log_line(LOG_INFO, "%s: was changed just now; the packed form of a later start is kept", path);
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

#include "kv/audit_file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/ring.h"

#define N_LINES 16384 /* lines that may wait for the disk */

typedef struct audit_line {
    audit_note note;
    kv_audit all, own;
} audit_line;

struct audit_file {
    const kv_pool *pool;
    kv_audit_shape shape;   /* the engine thread's, with scratch */
    kv_audit_page *scratch; /* [pages of the pool] */
    ring *lines;
    wake wake;
    atomic_llong n_lost; /* lines lost since the last one was written */
    atomic_bool stop;
    FILE *file; /* the writer's */
    pthread_t writer;
    bool has_writer;
};

/* ---- the writer ---- */

static void write_bytes(FILE *f, const kv_audit *a) {
    fprintf(f,
            "\"live_bytes\":%" PRId64 ",\"reserved_bytes\":%" PRId64 ",\"wasted_bytes\":%" PRId64
            ",\"shared_bytes\":%" PRId64,
            a->live_bytes, a->reserved_bytes, a->wasted_bytes, a->shared_bytes);
}

static void audit_file_write_line(FILE *f, const audit_line *l) {
    fprintf(f, "{\"step\":%" PRId64 ",\"request\":%" PRIu64 ",\"rows\":%d,\"pages\":%d,", l->note.step,
            l->note.request, (int)l->note.n_rows, (int)l->note.n_pages);
    write_bytes(f, &l->all);
    fprintf(f, ",\"cached_bytes\":%" PRId64 ",\"free_bytes\":%" PRId64 ",\"of_request\":{",
            l->all.cached_bytes, l->all.free_bytes);
    write_bytes(f, &l->own);
    fputs("}}\n", f);
}

static void audit_file_drain(audit_file *a) {
    audit_line l;
    while (ring_pop(a->lines, &l)) {
        audit_file_write_line(a->file, &l);
    }
    long long n_lost = atomic_exchange(&a->n_lost, 0);
    if (n_lost > 0) {
        fprintf(a->file, "{\"lost\":%lld}\n", n_lost);
    }
    fflush(a->file);
}

static void *writer_main(void *arg) {
    audit_file *a = arg;
    while (!atomic_load(&a->stop)) {
        wake_wait(&a->wake, -1);
        audit_file_drain(a);
    }
    audit_file_drain(a);
    return NULL;
}

/* ---- open and close ---- */

quire_err audit_file_open(const char *path, const kv_layout *layout, const kv_pool *pool, audit_file **out,
                          quire_error *err) {
    audit_file *a = *out = mem_new(1, sizeof *a);
    TRY(mem_check(a));
    a->pool = pool;
    atomic_init(&a->stop, false);
    atomic_init(&a->n_lost, 0);
    kv_audit_shape_init(layout, &a->shape);
    a->scratch = mem_new((size_t)kv_pool_counts(pool).n_pages, sizeof *a->scratch);
    a->file = fopen(path, "w");
    if (!a->file) {
        return err_set(err, QUIRE_IO, -1, "--audit %s: %s", path, strerror(errno));
    }
    TRY(mem_check(a->scratch));
    TRY(ring_open(sizeof(audit_line), N_LINES, &a->lines));
    TRY(wake_init(&a->wake));
    a->has_writer = pthread_create(&a->writer, NULL, writer_main, a) == 0;
    return a->has_writer ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void audit_file_close(audit_file *a) {
    if (!a) {
        return;
    }
    if (a->has_writer) {
        atomic_store(&a->stop, true);
        wake_ring(&a->wake);
        pthread_join(a->writer, NULL);
    }
    bool failed = a->file && ferror(a->file);
    failed = (a->file && fclose(a->file) != 0) || failed;
    if (failed) {
        log_line(LOG_WARN, "--audit: not all lines could be written");
    }
    wake_deinit(&a->wake);
    ring_close(a->lines);
    mem_free(a->scratch);
    mem_free(a);
}

/* ---- the engine thread ---- */

void audit_file_note(audit_file *a, const audit_note *n, const kv_table *const *own, int32_t n_own,
                     const kv_table *const *all, int32_t n_all) {
    audit_line l = {.note = *n};
    l.own = kv_audit_request(&a->shape, a->pool, own, n_own, a->scratch);
    l.all = kv_audit_all(&a->shape, a->pool, all, n_all, a->scratch);
    if (!ring_push(a->lines, &l)) {
        atomic_fetch_add(&a->n_lost, 1);
    }
    wake_ring(&a->wake);
}

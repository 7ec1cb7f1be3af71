#include "engine/audit_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kv/audit.h"

#define N_LINES 16384 /* lines that may wait for the disk */

typedef struct audit_line {
    int64_t step;
    uint64_t request;
    int32_t n_rows, n_pages;
    kv_audit all, own;
} audit_line;

struct audit_file {
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
    fprintf(f, "\"live_bytes\":%" PRId64 ",\"reserved_bytes\":%" PRId64 ",\"wasted_bytes\":%" PRId64 ",\"shared_bytes\":%" PRId64,
            a->live_bytes, a->reserved_bytes, a->wasted_bytes, a->shared_bytes);
}

static void write_line(FILE *f, const audit_line *l) {
    fprintf(f, "{\"step\":%" PRId64 ",\"request\":%" PRIu64 ",\"rows\":%d,\"pages\":%d,", l->step, l->request, (int)l->n_rows,
            (int)l->n_pages);
    write_bytes(f, &l->all);
    fprintf(f, ",\"cached_bytes\":%" PRId64 ",\"free_bytes\":%" PRId64 ",\"of_request\":{", l->all.cached_bytes, l->all.free_bytes);
    write_bytes(f, &l->own);
    fputs("}}\n", f);
}

static void drain(audit_file *a) {
    audit_line l;
    while (ring_pop(a->lines, &l)) {
        write_line(a->file, &l);
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
        drain(a);
    }
    drain(a);
    return NULL;
}

/* ---- open and close ---- */

quire_err audit_file_open(engine *e, quire_error *err) {
    if (!e->options.audit_path) {
        return QUIRE_OK;
    }
    audit_file *a = mem_new(1, sizeof *a);
    if (!a) {
        return QUIRE_NO_MEMORY;
    }
    e->audit_file = a;
    a->wake.fd = -1;
    atomic_init(&a->stop, false);
    atomic_init(&a->n_lost, 0);
    kv_audit_shape_init(&e->layout, &a->shape);
    a->scratch = mem_new((size_t)e->options.n_pages, sizeof *a->scratch);
    a->file = fopen(e->options.audit_path, "w");
    if (!a->file) {
        return err_set(err, QUIRE_IO, -1, "--audit %s: %s", e->options.audit_path, strerror(errno));
    }
    if (!a->scratch) {
        return QUIRE_NO_MEMORY;
    }
    TRY(ring_open(sizeof(audit_line), N_LINES, &a->lines));
    TRY(wake_init(&a->wake));
    a->has_writer = pthread_create(&a->writer, NULL, writer_main, a) == 0;
    return a->has_writer ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void audit_file_close(engine *e) {
    audit_file *a = e->audit_file;
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
    if (a->wake.fd >= 0) {
        wake_deinit(&a->wake);
    }
    ring_close(a->lines);
    mem_free(a->scratch);
    mem_free(a);
    e->audit_file = NULL;
}

/* ---- the engine thread ---- */

void audit_file_note(engine *e, const sequence *s, int32_t n_rows, int32_t n_pages) {
    audit_file *a = e->audit_file;
    if (!a || n_pages == 0) {
        return;
    }
    const kv_table **tables = e->step.tables;
    int32_t n_own = kv_seq_list_tables(&s->task.kv, tables), n = 0;
    audit_line l = {.step = e->stats.steps, .request = s->task.arrival, .n_rows = n_rows, .n_pages = n_pages};
    l.own = kv_audit_request(&a->shape, e->kv.pool, tables, n_own, a->scratch);
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        n += kv_seq_list_tables(&running_at(e, i)->task.kv, tables + n);
    }
    l.all = kv_audit_all(&a->shape, e->kv.pool, tables, n, a->scratch);
    if (!ring_push(a->lines, &l)) {
        atomic_fetch_add(&a->n_lost, 1);
    }
    wake_ring(&a->wake);
}

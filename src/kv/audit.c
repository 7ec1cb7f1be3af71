#include "kv/audit.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/ring.h"

void kv_audit_shape_init(const kv_layout *l, kv_audit_shape *out) {
    *out =
        (kv_audit_shape){.page_tokens = l->page_tokens, .n_groups = l->n_groups, .page_bytes = l->page_bytes};
    for (int32_t g = 0; g < l->n_groups; g++) {
        const kv_group *group = &l->groups[g];
        out->token_bytes[g] = kv_layout_group_token_bytes(l, g);
        out->windows[g] = group->kind == LAYER_WINDOW ? group->window : 0;
    }
}

/* Sums of a walk over tables. */
typedef struct sums {
    int64_t n_entries, n_pages, n_own_pages, live_slots, live_bytes;
} sums;

/* Records which slots of its pages the table's sequence sees; for a shared page, the
 * range from the first to the last slot that any holder sees. */
static void note_table(const kv_audit_shape *shape, const kv_table *t, int32_t window,
                       kv_audit_page *scratch) {
    const int32_t size = shape->page_tokens;
    int32_t first_token = window == 0 || t->n_tokens < window ? 0 : t->n_tokens - window + 1;
    for (int32_t i = 0; i < t->n_pages; i++) {
        if (t->pages[i].v == PAGE_NONE.v) {
            continue;
        }
        kv_audit_page *p = &scratch[t->pages[i].v];
        int32_t first = first_token - i * size, end = t->n_tokens - i * size;
        first = first < 0 ? 0 : first < size ? first : size;
        end = end < size ? end : size;
        bool is_first_seen = p->first == p->end;
        if (first < end) {
            p->first = (uint16_t)(is_first_seen || first < p->first ? first : p->first);
            p->end = (uint16_t)(is_first_seen || end > p->end ? end : p->end);
        }
        p->n_entries++;
    }
}

/* Adds to the sums the pages of a table that are new, and clears their scratch. */
static void add_table(const kv_pool *pool, const kv_table *t, int64_t token_bytes, kv_audit_page *scratch,
                      sums *s) {
    for (int32_t i = 0; i < t->n_pages; i++) {
        if (t->pages[i].v == PAGE_NONE.v) {
            continue;
        }
        kv_audit_page *p = &scratch[t->pages[i].v];
        if (p->n_entries > 0) {
            s->n_entries += p->n_entries;
            s->n_pages++;
            s->n_own_pages += kv_pool_count(pool, t->pages[i]) == p->n_entries;
            s->live_slots += p->end - p->first;
            s->live_bytes += (p->end - p->first) * token_bytes;
        }
        *p = (kv_audit_page){0};
    }
}

static sums add_up(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                   int32_t n_tables, kv_audit_page *scratch) {
    assert(n_tables % shape->n_groups == 0);
    sums s = {0};
    for (int32_t t = 0; t < n_tables; t++) {
        note_table(shape, tables[t], shape->windows[t % shape->n_groups], scratch);
    }
    for (int32_t t = 0; t < n_tables; t++) {
        add_table(pool, tables[t], shape->token_bytes[t % shape->n_groups], scratch, &s);
    }
    return s;
}

static kv_audit audit_of(const kv_audit_shape *shape, const sums *s, int64_t n_pages,
                         int64_t n_shared_pages) {
    kv_audit a = {.live_bytes = s->live_bytes,
                  .reserved_bytes = n_pages * shape->page_bytes,
                  .shared_bytes = n_shared_pages * shape->page_bytes,
                  .live_slots = s->live_slots,
                  .wasted_slots = n_pages * shape->page_tokens - s->live_slots,
                  .n_pages = n_pages,
                  .n_shared_pages = n_shared_pages};
    a.wasted_bytes = a.reserved_bytes - a.live_bytes;
    return a;
}

kv_audit kv_audit_all(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                      int32_t n_tables, kv_audit_page *scratch) {
    assert(shape != NULL);
    sums s = add_up(shape, pool, tables, n_tables, scratch);
    kv_counts c = kv_pool_counts(pool);
    kv_audit a = audit_of(shape, &s, c.n_held, s.n_entries - s.n_pages);
    a.cached_bytes = c.n_cached * shape->page_bytes;
    a.free_bytes = c.n_free * shape->page_bytes;
    return a;
}

kv_audit kv_audit_request(const kv_audit_shape *shape, const kv_pool *pool, const kv_table *const *tables,
                          int32_t n_tables, kv_audit_page *scratch) {
    sums s = add_up(shape, pool, tables, n_tables, scratch);
    return audit_of(shape, &s, s.n_pages, s.n_entries - s.n_own_pages);
}

#define SMALL_PAGES 4096

static quire_err check_add_holder(int32_t *holders, int32_t n_pages, page_id id, quire_error *err) {
    if (id.v < 0 || id.v >= n_pages) {
        return err_set(err, QUIRE_INTERNAL, -1, "kv: a block table holds page %d of a pool of %d", id.v,
                       n_pages);
    }
    holders[id.v]++;
    return QUIRE_OK;
}

static quire_err check_holders(const kv_pool *pool, int32_t n_pages, int32_t *holders,
                               const kv_table *const *tables, int32_t n_tables, const page_id *others,
                               int32_t n_others, quire_error *err) {
    for (int32_t t = 0; t < n_tables; t++) {
        for (int32_t i = 0; i < tables[t]->n_pages; i++) {
            if (tables[t]->pages[i].v != PAGE_NONE.v) {
                TRY(check_add_holder(holders, n_pages, tables[t]->pages[i], err));
            }
        }
    }
    for (int32_t i = 0; i < n_others; i++) {
        TRY(check_add_holder(holders, n_pages, others[i], err));
    }
    for (int32_t page = 0; page < n_pages; page++) {
        int32_t count = kv_pool_count(pool, (page_id){page});
        if (count != holders[page]) {
            return err_set(err, QUIRE_INTERNAL, -1, "kv: page %d has count %d, but %d hold it", page, count,
                           holders[page]);
        }
    }
    return QUIRE_OK;
}

quire_err kv_check(const kv_pool *pool, const kv_table *const *tables, int32_t n_tables,
                   const page_id *others, int32_t n_others, quire_error *err) {
    TRY(kv_pool_check(pool, err));
    int32_t n_pages = kv_pool_counts(pool).n_pages;
    int32_t small[SMALL_PAGES] = {0};
    int32_t *holders = n_pages <= SMALL_PAGES ? small : mem_new((size_t)n_pages, sizeof *holders);
    if (holders == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for the audit of %d pages", n_pages);
    }
    quire_err e = check_holders(pool, n_pages, holders, tables, n_tables, others, n_others, err);
    if (holders != small) {
        mem_free(holders);
    }
    return e;
}

/* ---- the audit file ---- */

#define N_LINES 16384 /* most lines that wait for the disk */

typedef struct audit_line {
    audit_note note;
    kv_audit all, own;
} audit_line;

struct audit_file {
    const kv_pool *pool;
    kv_audit_shape shape;   /* used by the engine thread, like scratch */
    kv_audit_page *scratch; /* [number of pages of the pool] */
    ring *lines;
    wake wake;
    atomic_llong n_lost; /* number of lines lost since one was last written */
    atomic_bool stop;
    FILE *file; /* used by the writer */
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

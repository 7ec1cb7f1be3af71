/* Eight threads in one pool, for ThreadSanitizer: pages that are handed from thread to
 * thread, block tables that are forked, and the index's own thread among them. What lies
 * in a page is plain memory: a page that two believe to be theirs is a data race and a
 * wrong number. */

#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/audit.h"
#include "kv/index.h"
#include "test.h"

enum {
    N_THREADS = 8,
    N_ROUNDS = 20000,
    N_PAGES = 96,
    PAGE_TOKENS = 4,
    N_BOXES = 6,
    MAX_TAKEN = 6,
    TABLE_PAGES = 8,
    PROMPT = 22
};

typedef struct hall {
    kv_pool *pool;
    int64_t *content; /* [N_PAGES] what its first holder wrote */
    /* page << 40 | what lies in it: a page on its way, shared for whoever takes it; -1:
     * empty */
    _Atomic int64_t boxes[N_BOXES];
} hall;

typedef struct person {
    hall *h;
    int64_t number, n_written;
    uint64_t draw;
    const char *wrong;
} person;

static int32_t draw(person *p, int32_t n) {
    return (int32_t)(rng_next(&p->draw) % (uint64_t)n);
}

/* Writes something that nobody else writes into a page of one's own. */
static int64_t write_page(person *p, page_id id) {
    return p->h->content[id.v] = p->number << 32 | p->n_written++;
}

/* Puts a share of a page into a box; gives back the page that lay there, if its content
 * is what was promised. */
static void swap_box(person *p, int64_t letter) {
    int64_t before = atomic_exchange(&p->h->boxes[draw(p, N_BOXES)], letter);
    if (before >= 0) {
        page_id id = {(int32_t)(before >> 40)};
        if (p->h->content[id.v] != (before & (((int64_t)1 << 40) - 1))) {
            p->wrong = "a page changed while it was on its way";
        }
        kv_pool_release(p->h->pool, id);
    }
}

/* Reserves some pages, all or none, sends shares of them round, gives them back. */
static void reserve_and_send(person *p) {
    page_id ids[MAX_TAKEN];
    int64_t written[MAX_TAKEN];
    int32_t n = 1 + draw(p, MAX_TAKEN);
    if (kv_pool_reserve(p->h->pool, n, ids) != QUIRE_OK) {
        swap_box(p, -1);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        written[i] = write_page(p, ids[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        kv_pool_share(p->h->pool, ids[i]);
        swap_box(p, (int64_t)ids[i].v << 40 | written[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        if (p->h->content[ids[i].v] != written[i]) {
            p->wrong = "a held page changed";
        }
    }
    kv_pool_release_all(p->h->pool, ids, n);
}

/* A sequence grows, is forked, and both grow on: the shared tail is copied before it is
 * written. */
static void fork_and_append(person *p) {
    kv_table a = {0}, b = {0};
    kv_copies copies = {.pairs = mem_new(2, sizeof *copies.pairs), .cap = 2};
    bool ok = kv_table_init(&a, TABLE_PAGES) == QUIRE_OK && kv_table_init(&b, TABLE_PAGES) == QUIRE_OK &&
              copies.pairs != NULL;
    ok =
        ok && kv_table_append(p->h->pool, &a, 1 + draw(p, 3 * PAGE_TOKENS), PAGE_TOKENS, &copies) == QUIRE_OK;
    ok = ok && kv_table_fork(p->h->pool, &a, &b) == QUIRE_OK;
    ok = ok && kv_table_append(p->h->pool, &b, 1 + draw(p, PAGE_TOKENS), PAGE_TOKENS, &copies) == QUIRE_OK;
    if (ok) {
        page_id tail = b.pages[b.n_pages - 1];
        int64_t written = write_page(p, tail);
        for (int32_t i = 0; i < a.n_pages; i++) {
            if (a.pages[i].v == tail.v) {
                p->wrong = "a shared page was not copied";
            }
        }
        if (p->h->content[tail.v] != written) {
            p->wrong = "a table's page changed";
        }
    }
    kv_table_deinit(p->h->pool, &a);
    kv_table_deinit(p->h->pool, &b);
    mem_free(copies.pairs);
}

static void *walk_about(void *argument) {
    person *p = argument;
    for (int round = 0; round < N_ROUNDS && p->wrong == NULL; round++) {
        if (draw(p, 3) > 0) {
            reserve_and_send(p);
        } else {
            fork_and_append(p);
        }
    }
    return NULL;
}

/* The engine's thread: prompts of a small alphabet through the index, evicting what it
 * must, while the others take pages beside it. */
static void *keep_index(void *argument) {
    person *p = argument;
    kv_index_options o = {.page_tokens = PAGE_TOKENS, .n_groups = 1, .max_namespaces = 2};
    kv_index *ix;
    kv_table t;
    kv_copies copies = {.pairs = mem_new(1, sizeof *copies.pairs), .cap = 1};
    if (copies.pairs == NULL || kv_table_init(&t, PROMPT) != QUIRE_OK ||
        kv_index_open(p->h->pool, &o, &ix) != QUIRE_OK) {
        p->wrong = "out of memory";
        return NULL;
    }
    for (int round = 0; round < N_ROUNDS && p->wrong == NULL; round++) {
        int32_t tokens[PROMPT], n_matched;
        kv_path path;
        for (int i = 0; i < PROMPT; i++) {
            tokens[i] = i < 8 ? draw(p, 2) : draw(p, 3);
        }
        copies.n = 0;
        if (kv_index_enter(ix, "", 0, &path) != QUIRE_OK ||
            kv_index_match(ix, &path, tokens, PROMPT - 1, &t, &n_matched) != QUIRE_OK) {
            p->wrong = "the index refused";
            break;
        }
        (void)kv_index_evict(ix, PROMPT / PAGE_TOKENS + 1);
        if (kv_table_append(p->h->pool, &t, PROMPT - n_matched, PAGE_TOKENS, &copies) == QUIRE_OK) {
            (void)kv_index_publish(ix, &path, tokens, PROMPT, &t, KV_PUBLISH_TAIL);
        }
        kv_table_clear(p->h->pool, &t);
        kv_index_leave(ix, &path);
    }
    kv_index_close(ix);
    kv_table_deinit(p->h->pool, &t);
    mem_free(copies.pairs);
    return NULL;
}

TEST(eight_threads_share_pages_and_tables_and_lose_none) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    hall h = {.content = mem_new(N_PAGES, sizeof *h.content)};
    person people[N_THREADS];
    pthread_t threads[N_THREADS];
    assert_non_null(h.content);
    assert_int_equal(kv_pool_open(N_PAGES, &h.pool), QUIRE_OK);
    for (int i = 0; i < N_BOXES; i++) {
        atomic_init(&h.boxes[i], -1);
    }
    for (int i = 0; i < N_THREADS; i++) {
        people[i] = (person){.h = &h, .number = i + 1, .draw = seed + (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? keep_index : walk_about, &people[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (people[i].wrong != NULL) {
            fail_msg("thread %d: %s", i, people[i].wrong);
        }
    }
    for (int i = 0; i < N_BOXES; i++) {
        int64_t letter = atomic_load(&h.boxes[i]);
        if (letter >= 0) {
            kv_pool_release(h.pool, (page_id){(int32_t)(letter >> 40)});
        }
    }
    quire_error err;
    if (kv_check(h.pool, NULL, 0, NULL, 0, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(kv_pool_counts(h.pool).n_free, N_PAGES);
    kv_pool_close(h.pool);
    mem_free(h.content);
}

TEST_MAIN(NULL, NULL)

#include "cache_world.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/fault.h"
#include "kv/namespace.h"

static void expect_stored(const world *w, uint64_t number, uint64_t hash, uint64_t parent,
                          const char *namespace, const int32_t *tokens) {
    kv_event e;
    assert_int_equal(kv_events_read(w->events, number, &e), KV_EVENT_FOUND);
    assert_int_equal(e.kind, KV_EVENT_STORED);
    assert_true(e.number == number && e.hash == hash && e.parent == parent);
    assert_int_equal(e.n_namespace, strlen(namespace));
    assert_memory_equal(e.namespace, namespace, strlen(namespace));
    assert_int_equal(e.n_tokens, w->o.page_tokens);
    assert_memory_equal(e.tokens, tokens, (size_t)e.n_tokens * sizeof *tokens);
}

TEST(full_pages_are_told_parent_first_and_removed_child_first) {
    world w;
    int32_t a[11];
    kv_event e;
    numbers(a, 7, 11);
    world_open(&w, 16, 4, 1, NULL);
    assert_true(kv_events_last(w.events) == 0);
    assert_int_equal(kv_events_read(w.events, 1, &e), KV_EVENT_LATER);
    assert_int_equal(world_start(&w, 0, "alice", a, 11), 0);
    uint64_t first = kv_hash_page(kv_hash_root(0, "alice", 5), a, 4), second = kv_hash_page(first, a + 4, 4);
    assert_true(kv_events_last(w.events) == 2);
    expect_stored(&w, 1, first, 0, "alice", a);
    expect_stored(&w, 2, second, first, "alice", a + 4);
    page_id second_page = w.seqs[0].tables[0].pages[1];
    assert_true(world_page_hash(&w, second_page) == second);
    assert_true(world_page_hash(&w, w.seqs[0].tables[0].pages[2]) == 0);
    world_finish(&w, 0); /* the part-filled page is cached, and not told */
    assert_true(kv_events_last(w.events) == 2);
    assert_int_equal(kv_pool_count(w.pool, second_page), 0);
    assert_true(world_page_hash(&w, second_page) == second); /* it is still what it was */
    world_check(&w);
    assert_int_equal(kv_index_evict(w.ix, 15), QUIRE_OK);
    assert_int_equal(kv_events_read(w.events, 3, &e), KV_EVENT_FOUND);
    assert_int_equal(e.kind, KV_EVENT_REMOVED);
    assert_true(world_page_hash(&w, second_page) == 0);
    assert_true(e.hash == second && kv_events_last(w.events) == 3);
    world_check(&w);
    kv_index_clear(w.ix);
    assert_int_equal(kv_events_read(w.events, 4, &e), KV_EVENT_FOUND);
    assert_int_equal(e.kind, KV_EVENT_CLEARED);
    assert_true(kv_events_last(w.events) == 4);
    world_check(&w);
    world_close(&w);
}

TEST(a_clear_that_must_leave_held_pages_tells_each_that_went) {
    world w;
    int32_t a[8], b[8];
    kv_event e;
    numbers(a, 0, 8);
    numbers(b, 100, 8);
    world_open(&w, 16, 4, 1, NULL);
    assert_int_equal(world_start(&w, 0, "", a, 8), 0);
    assert_int_equal(world_start(&w, 1, "", b, 8), 0);
    world_finish(&w, 1);
    kv_index_clear(w.ix);
    for (uint64_t number = 5; number <= 6; number++) {
        assert_int_equal(kv_events_read(w.events, number, &e), KV_EVENT_FOUND);
        assert_int_equal(e.kind, KV_EVENT_REMOVED);
    }
    assert_true(kv_events_last(w.events) == 6);
    world_check(&w);
    world_close(&w);
}

TEST(a_hash_names_space_prefix_and_tokens) {
    const int32_t x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 3, 5};
    uint64_t a = kv_hash_root(0, "a", 1), b = kv_hash_root(0, "b", 1);
    assert_true(kv_hash_page(a, x, 4) == kv_hash_page(kv_hash_root(0, "a", 1), x, 4));
    assert_true(kv_hash_page(a, x, 4) != kv_hash_page(b, x, 4));
    assert_true(kv_hash_page(a, x, 4) != kv_hash_page(a, y, 4));
    assert_true(kv_hash_page(a, x, 4) != kv_hash_page(a, x, 3));
    assert_true(kv_hash_page(kv_hash_page(a, x, 4), y, 4) != kv_hash_page(kv_hash_page(a, y, 4), y, 4));
    assert_true(kv_hash_root(1, "a", 1) != a);
    assert_true(kv_hash_root(0, "", 0) != kv_hash_root(0, "\0", 1));
}

TEST(a_reader_that_was_overtaken_is_told) {
    kv_events *ev = NULL;
    kv_event e;
    assert_int_equal(kv_events_open(0, 4, &ev), QUIRE_INVALID);
    assert_int_equal(kv_events_open(8, 0, &ev), QUIRE_INVALID);
    assert_int_equal(kv_events_open(8, KV_MAX_PAGE_TOKENS + 1, &ev), QUIRE_INVALID);
    assert_null(ev);
    assert_int_equal(kv_events_open(7, 4, &ev), QUIRE_OK); /* 8 */
    for (uint64_t i = 1; i <= 20; i++) {
        kv_events_removed(ev, 2, i);
    }
    for (uint64_t i = 1; i <= 22; i++) {
        kv_event_found want = i <= 12 ? KV_EVENT_LOST : i <= 20 ? KV_EVENT_FOUND : KV_EVENT_LATER;
        assert_int_equal(kv_events_read(ev, i, &e), want);
        assert_true(want != KV_EVENT_FOUND || (e.hash == i && e.group == 2 && e.number == i));
    }
    kv_events_close(ev);
    kv_events_close(NULL);
}

#ifdef QUIRE_DEBUG
TEST(what_cannot_allocate_says_so_and_leaves_nothing) {
    kv_events *ev = NULL;
    for (int64_t point = 1; point <= 3; point++) { /* the ring, its stamps, its words */
        fault_at(point);
        assert_int_equal(kv_events_open(8, 4, &ev), QUIRE_NO_MEMORY);
        assert_true(fault_happened());
        assert_null(ev);
    }
    fault_at(0);
    world w;
    world_open(&w, 16, 4, 1, NULL);
    fault_at(1);
    assert_int_equal(kv_index_visit(w.ix, mirror_compare, &w), QUIRE_NO_MEMORY);
    fault_at(0);
    world_close(&w);
}
#else
TEST(what_cannot_allocate_says_so_and_leaves_nothing) {
    print_message("SKIP: no fault injection in this build\n");
}
#endif

/* ---- a writer that never waits, and readers ---- */

#if defined(__SANITIZE_THREAD__)
enum { N_READERS = 2, N_EVENTS = 100000 };
#else
enum { N_READERS = 2, N_EVENTS = 3000000 };
#endif

typedef struct race {
    kv_events *ev;
    atomic_int n_ready, n_torn;
    atomic_llong n_found;
} race;

/* Event i's every word is made of i. */
static void fill(uint64_t i, int32_t *tokens, char *name) {
    for (int32_t k = 0; k < 16; k++) {
        tokens[k] = (int32_t)(i * 31 + (uint64_t)k);
    }
    memset(name, (int)(i % 251), i % 100);
}

static void *read_all(void *argument) {
    race *r = argument;
    kv_event e;
    atomic_fetch_add(&r->n_ready, 1);
    for (uint64_t number = 1; number <= N_EVENTS;) {
        switch (kv_events_read(r->ev, number, &e)) {
        case KV_EVENT_LATER:
            break;
        case KV_EVENT_LOST:
            number = kv_events_last(r->ev) - 3;
            break; /* the next to be overwritten */
        case KV_EVENT_FOUND: {
            int32_t tokens[16];
            char name[100];
            fill(number, tokens, name);
            bool same = e.hash == number && e.parent == ~number && e.n_tokens == 16 &&
                        (uint64_t)e.n_namespace == number % 100 &&
                        memcmp(e.tokens, tokens, sizeof tokens) == 0 &&
                        memcmp(e.namespace, name, number % 100) == 0;
            atomic_fetch_add(&r->n_torn, !same);
            atomic_fetch_add(&r->n_found, 1);
            number++;
            break;
        }
        }
    }
    return NULL;
}

TEST(readers_beside_the_writer_get_whole_events_or_none) {
    static race r;
    pthread_t threads[N_READERS];
    assert_int_equal(kv_events_open(4, 16, &r.ev), QUIRE_OK); /* short: readers are overtaken all the time */
    for (int i = 0; i < N_READERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &r), 0);
    }
    while (atomic_load(&r.n_ready) < N_READERS) {
    }
    for (uint64_t i = 1; i <= N_EVENTS; i++) {
        int32_t tokens[16];
        char name[100];
        fill(i, tokens, name);
        kv_events_stored(r.ev, 0, i, ~i, tokens, name, i % 100);
    }
    for (int i = 0; i < N_READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(atomic_load(&r.n_torn), 0);
    assert_true(atomic_load(&r.n_found) >= N_READERS); /* each at least the last */
    kv_events_close(r.ev);
}

TEST_MAIN(NULL, NULL)

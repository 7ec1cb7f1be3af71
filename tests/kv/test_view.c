/* What a look at a cache shows, on the worked examples 1 to 5 of shared pages. */

#include <stdbool.h>

#include "quire_kv.h"
#include "test.h"

#define MAX_SEQS 8

typedef struct world {
    quire_kv *kv;
    quire_kv_view *v;
    quire_kv_seq *seqs[MAX_SEQS];
    int32_t n_seqs;
} world;

static int32_t words[4096];

static world open_world(int32_t n_pages, int32_t page_tokens) {
    world w = {.n_seqs = 0};
    quire_kv_options o;
    quire_kv_options_init(&o);
    o.n_pages = n_pages;
    o.page_tokens = page_tokens;
    o.n_events = 64;
    assert_int_equal(quire_kv_open(&o, &w.kv), QUIRE_OK);
    assert_int_equal(quire_kv_view_open(n_pages, MAX_SEQS, n_pages, 64, &w.v), QUIRE_OK);
    for (int32_t i = 0; i < 4096; i++) {
        words[i] = i;
    }
    return w;
}

static void close_world(world *w) {
    quire_kv_close(w->kv);
    quire_kv_view_close(w->v);
}

static int32_t state_count(const quire_kv_view *v, bool held) {
    int32_t n = 0;
    for (int32_t i = 0; i < v->n_pages; i++) {
        n += held ? v->pages[i].count > 0 : v->pages[i].count == 0 && v->pages[i].entry >= 0;
    }
    return n;
}

/* Looks, and checks what must hold whatever is shown. */
static const quire_kv_view *look(world *w) {
    quire_error err = {.message = ""};
    const quire_kv_view *v = w->v;
    if (quire_kv_check(w->kv, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    quire_kv_look(w->kv, w->v);
    int64_t unshared = 0;
    int32_t shared = 0;
    assert_int_equal(v->n_free + v->n_held + v->n_cached, v->n_pages);
    assert_int_equal(state_count(v, true), v->n_held);
    assert_int_equal(state_count(v, false), v->n_cached);
    for (int32_t i = 0; i < v->n_seqs; i++) {
        unshared += v->seqs[i].n_pages;
    }
    for (int32_t i = 0; i < v->n_pages; i++) {
        int32_t n = 0;
        while (n < QUIRE_KV_VIEW_HOLDERS && v->pages[i].holders[n] >= 0) {
            n++;
        }
        assert_int_equal(n, v->pages[i].count < QUIRE_KV_VIEW_HOLDERS ? v->pages[i].count
                                                                      : QUIRE_KV_VIEW_HOLDERS);
        shared += v->pages[i].count > 1;
    }
    assert_int_equal(v->n_unshared, unshared);
    assert_int_equal(v->n_shared, shared);
    return v;
}

static void expect(world *w, int32_t n_held, int32_t n_free, int64_t n_unshared) {
    const quire_kv_view *v = look(w);
    assert_int_equal(v->n_held, n_held);
    assert_int_equal(v->n_free, n_free);
    assert_int_equal(v->n_unshared, n_unshared);
}

static void open_and_fork(world *w, int32_t n_tokens, int32_t n_forks) {
    int32_t n_cached;
    assert_int_equal(quire_kv_seq_open(w->kv, "t", 1, words, n_tokens, &w->seqs[w->n_seqs++], &n_cached),
                     QUIRE_OK);
    assert_int_equal(quire_kv_seq_commit(w->seqs[0], n_tokens, QUIRE_KV_PAGES), QUIRE_OK);
    for (int32_t i = 0; i < n_forks; i++) {
        assert_int_equal(quire_kv_seq_fork(w->seqs[0], &w->seqs[w->n_seqs++]), QUIRE_OK);
    }
}

static void append_to_all(world *w, int32_t n) {
    for (int32_t i = 0; i < w->n_seqs; i++) {
        assert_int_equal(quire_kv_seq_append(w->seqs[i], words + 1000 + 100 * i, n), QUIRE_OK);
    }
}

static void write_last(world *w, int32_t i) {
    assert_int_equal(quire_kv_seq_truncate(w->seqs[i], quire_kv_seq_length(w->seqs[i]) - 1), QUIRE_OK);
    assert_int_equal(quire_kv_seq_append(w->seqs[i], words + 2000 + i, 1), QUIRE_OK);
}

static int32_t count_at(const world *w, int32_t seq, int32_t page) {
    int32_t n;
    return w->v->pages[quire_kv_seq_pages(w->seqs[seq], 0, &n)[page]].count;
}

TEST(four_sequences_share_the_pages_of_a_prompt) { /* worked examples 1 and 2 */
    world w = open_world(64, 16);
    open_and_fork(&w, 64, 3);
    expect(&w, 4, 60, 16);
    assert_int_equal(w.v->n_shared, 4);
    for (int32_t page = 0; page < 4; page++) {
        assert_int_equal(count_at(&w, 3, page), 4);
    }
    append_to_all(&w, 10);
    expect(&w, 8, 56, 20);
    close_world(&w);
}

TEST(a_write_to_a_shared_page_copies_it) { /* worked examples 3 and 4 */
    world w = open_world(64, 16);
    open_and_fork(&w, 64, 3);
    write_last(&w, 1);
    expect(&w, 5, 59, 16);
    assert_int_equal(count_at(&w, 0, 3), 3);
    assert_int_equal(count_at(&w, 1, 3), 1);
    write_last(&w, 2);
    expect(&w, 6, 58, 16);
    assert_int_equal(count_at(&w, 0, 3), 2);
    write_last(&w, 3);
    expect(&w, 7, 57, 16);
    assert_int_equal(count_at(&w, 0, 3), 1);
    append_to_all(&w, 10);
    expect(&w, 11, 53, 20);
    close_world(&w);
}

TEST(an_append_into_a_shared_page_copies_it_for_all_but_the_last) { /* worked example 5 */
    world w = open_world(64, 16);
    const quire_kv_copy *copies;
    open_and_fork(&w, 60, 3);
    append_to_all(&w, 10);
    assert_int_equal(quire_kv_copies(w.kv, &copies), 3);
    expect(&w, 11, 53, 20);
    close_world(&w);
}

TEST(the_tree_shows_its_entries_and_a_page_its_tokens) {
    world w = open_world(16, 4);
    open_and_fork(&w, 10, 0);
    look(&w);
    assert_int_equal(w.v->n_entries, 2);
    assert_int_equal(w.v->n_nodes, 1);
    assert_int_equal(w.v->n_entries_shown, 2);
    assert_int_equal(w.v->entries[1].up, w.v->entries[0].entry);
    assert_int_equal(w.v->entries[0].node, w.v->entries[1].node);
    assert_int_equal(w.v->entries[0].above, -1);
    assert_int_equal(w.v->entries[1].label[3], 7);
    w.v->page = w.v->entries[1].page;
    look(&w);
    assert_int_equal(w.v->n_page_tokens, 4);
    assert_int_equal(w.v->page_token[0], 4);
    int32_t n;
    w.v->page = quire_kv_seq_pages(w.seqs[0], 0, &n)[2]; /* the tail is in no tree: its sequence knows it */
    look(&w);
    assert_int_equal(w.v->n_page_tokens, 2);
    assert_int_equal(w.v->page_token[1], 9);
    w.v->page = -1;
    quire_kv_seq_close(w.seqs[0]);
    look(&w);
    assert_int_equal(w.v->n_cached, 2);
    assert_int_equal(w.v->n_seqs, 0);
    assert_int_equal(quire_kv_evict(w.kv, 15), QUIRE_OK);
    look(&w);
    assert_int_equal(w.v->n_entries, 1);
    assert_int_equal(quire_kv_evict(w.kv, 17), QUIRE_NO_ROOM);
    close_world(&w);
}

TEST(events_come_once_and_lost_ones_are_counted) {
    world w = open_world(256, 1);
    quire_kv_view *few;
    open_and_fork(&w, 5, 0);
    look(&w);
    assert_int_equal(w.v->n_events, 5);
    assert_int_equal(w.v->events[0].kind, QUIRE_KV_STORED);
    assert_int_equal(w.v->events[0].parent, 0);
    assert_true(w.v->events[4].parent == w.v->events[3].hash);
    w.v->after = w.v->last_event;
    look(&w);
    assert_int_equal(w.v->n_events, 0);
    quire_kv_seq_close(w.seqs[0]);
    assert_int_equal(quire_kv_evict(w.kv, 256), QUIRE_OK);
    look(&w);
    assert_int_equal(w.v->n_events, 5);
    assert_int_equal(w.v->events[0].kind, QUIRE_KV_REMOVED);
    w.n_seqs = 0;
    open_and_fork(&w, 200, 0); /* more than the 64 that are kept */
    look(&w);
    assert_int_equal(w.v->n_events + (int32_t)w.v->n_events_lost, 205);
    assert_true(w.v->n_events > 0 && w.v->n_events <= 64);
    assert_int_equal(quire_kv_view_open(10, 1, 100, 1, &few), QUIRE_OK); /* a look with little room */
    quire_kv_look(w.kv, few);
    assert_int_equal(few->n_pages, 256);
    assert_int_equal(few->n_entries, 200);
    assert_int_equal(few->n_entries_shown, 0); /* a tree is shown whole or not at all */
    assert_int_equal(few->n_events, 1);
    quire_kv_view_close(few);
    assert_int_equal(quire_kv_view_open(0, 1, 1, 1, &few), QUIRE_INVALID);
    assert_int_equal(quire_kv_view_open(1, 1, 1, INT32_MAX, &few), QUIRE_INVALID);
    close_world(&w);
}

TEST_MAIN(NULL, NULL)

/* Uses a KV cache as an engine does, to test the index: a pool, an index, sequences, and
 * slots that hold a number in place of keys and values. The number is a hash of the whole
 * prefix up to the token, so the content of a page shows if it was reused wrongly. */
#ifndef TESTS_KV_CACHE_WORLD_H
#define TESTS_KV_CACHE_WORLD_H

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "kv/audit.h"
#include "kv/index.h"
#include "test.h"

enum { WORLD_SEQS = 8, WORLD_TOKENS = 4096, WORLD_GROUPS = 3, WORLD_EVENTS = 1024 };

/* Fills tokens[0..n) with consecutive numbers. */
static inline void numbers(int32_t *tokens, int32_t from, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = from + i;
    }
}

/* The pages that are stored, according to the events. */
typedef struct world_mirror {
    struct {
        uint64_t hash, parent;
        int32_t group;
    } * stored; /* [n] with room for n_pages + 1 */
    int32_t n, n_entries;
    uint64_t number; /* number of the last event read */
} world_mirror;

typedef struct world_seq {
    bool live;
    kv_path path;
    kv_table tables[WORLD_GROUPS];
    int32_t n; /* number of computed tokens */
    int32_t tokens[WORLD_TOKENS];
} world_seq;

typedef struct world {
    kv_pool *pool;
    kv_index *ix;
    kv_index_options o;
    uint64_t *slots; /* [n_pages * page_tokens] */
    kv_copies copies;
    kv_events *events;
    const char *scope; /* scope of public prefixes */
    world_mirror mirror;
    world_seq seqs[WORLD_SEQS];
    bool is_evicting;
    /* numbers of tokens, over all sequences */
    int64_t n_computed, n_reused;
    /* called before and after sequence i publishes; may be NULL */
    void (*on_publish)(const struct world *w, int32_t i, int32_t n, kv_publish_what what, void *context);
    void (*on_published)(const struct world *w, int32_t i, void *context);
    void *context;
} world;

/* Opens an empty world whose index has the options o and the world's event queue. */
static inline void world_open_with(world *w, int32_t n_pages, const kv_index_options *o) {
    const int32_t page_tokens = o->page_tokens;
    memset(w, 0, sizeof *w);
    w->o = *o;
    w->o.seed = o->seed != 0 ? o->seed : 1; /* a fixed seed, so that runs can be repeated */
    w->scope = "model";
    assert_int_equal(kv_events_open(WORLD_EVENTS, page_tokens, &w->events), QUIRE_OK);
    w->o.events = w->events;
    w->mirror.stored = mem_new((size_t)n_pages + 1, sizeof *w->mirror.stored);
    assert_int_equal(kv_pool_open(n_pages, &w->pool), QUIRE_OK);
    assert_int_equal(kv_index_open(w->pool, &w->o, &w->ix), QUIRE_OK);
    w->slots = mem_new((size_t)n_pages * (size_t)page_tokens, sizeof *w->slots);
    w->copies.cap = WORLD_SEQS * WORLD_GROUPS;
    w->copies.pairs = mem_new((size_t)w->copies.cap, sizeof *w->copies.pairs);
}

/* As world_open_with, with default options. windows: [n_groups]; NULL: no windows. */
static inline void world_open(world *w, int32_t n_pages, int32_t page_tokens, int32_t n_groups,
                              const int32_t *windows) {
    kv_index_options o = {.page_tokens = page_tokens,
                          .n_groups = n_groups,
                          .max_namespaces = 4,
                          .max_entries = windows != NULL ? 16 * n_pages : 0};
    for (int32_t g = 0; windows != NULL && g < n_groups; g++) {
        o.windows[g] = windows[g];
    }
    world_open_with(w, n_pages, &o);
}

/* ---- the events must agree with the index ---- */

static inline int32_t mirror_find(const world_mirror *m, uint64_t hash, int32_t group) {
    int32_t i = m->n - 1;
    while (i >= 0 && (m->stored[i].hash != hash || m->stored[i].group != group)) {
        i--;
    }
    return i;
}

static inline void mirror_take(const world *w, world_mirror *m, const kv_event *e) {
    int32_t i = e->kind == KV_EVENT_CLEARED ? -1 : mirror_find(m, e->hash, e->group);
    switch (e->kind) {
    case KV_EVENT_STORED:
        assert_int_equal(i, -1);
        assert_int_equal(e->n_tokens, w->o.page_tokens);
        assert_true(e->parent == 0 || w->o.windows[e->group] > 0 || mirror_find(m, e->parent, e->group) >= 0);
        m->stored[m->n].hash = e->hash;
        m->stored[m->n].parent = e->parent;
        m->stored[m->n++].group = e->group;
        return;
    case KV_EVENT_REMOVED:
        assert_in_range(i, 0, m->n - 1);
        for (int32_t k = 0; k < m->n && w->o.windows[e->group] == 0; k++) {
            assert_false(m->stored[k].parent == e->hash && m->stored[k].group == e->group);
        }
        m->stored[i] = m->stored[--m->n];
        return;
    case KV_EVENT_CLEARED:
        m->n = 0;
        return;
    }
    fail();
}

/* Returns the chained hash of an indexed full page; 0 for any other page. */
static inline uint64_t world_page_hash(const world *w, page_id page) {
    int32_t e = kv_pool_entry(w->pool, page);
    return e >= 0 && e < kv_index_cap_entries(w->ix) ? kv_index_describe(w->ix, e).hash : 0;
}

static inline void mirror_compare(const kv_index_entry *entry, void *context) {
    world *w = context;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        if (entry->pages[g] >= 0 && entry->hash != 0) {
            w->mirror.n_entries++;
            assert_true(mirror_find(&w->mirror, entry->hash, g) >= 0);
        }
    }
}

/* Reads all events and compares their result with the index, unless hashes are shortened
 * (hash_bits), since then several pages have the same hash. */
static inline void world_check_events(world *w) {
    kv_event e;
    while (kv_events_read(w->events, w->mirror.number + 1, &e) == KV_EVENT_FOUND) {
        w->mirror.number++;
        if (w->o.hash_bits == 0) {
            mirror_take(w, &w->mirror, &e);
        }
    }
    assert_true(w->mirror.number == kv_events_last(w->events));
    if (w->o.hash_bits == 0) {
        w->mirror.n_entries = 0;
        assert_int_equal(kv_index_visit(w->ix, mirror_compare, w), QUIRE_OK);
        assert_int_equal(w->mirror.n_entries, w->mirror.n);
    }
}

/* Returns the number that the slot of the last of n tokens holds in group g. */
static inline uint64_t world_content(const int32_t *tokens, int32_t n, int32_t g, uint64_t before) {
    return (before ^ (uint64_t)(uint32_t)tokens[n - 1]) * 0x9E3779B97F4A7C15u + (uint64_t)(g + 1);
}

static inline void world_check_content(const world *w, const world_seq *s) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        uint64_t h = 0;
        for (int32_t p = 0; p < s->tables[g].n_tokens; p++) {
            h = world_content(s->tokens, p + 1, g, h);
            if (s->tables[g].pages[p / w->o.page_tokens].v == PAGE_NONE.v) {
                continue;
            }
            if (w->slots[kv_table_slot(&s->tables[g], p, w->o.page_tokens)] != h) {
                fail_msg("position %d of group %d holds something else", p, g);
            }
        }
    }
}

/* Checks pool, tables, index, and the content of every live sequence's slots. */
static inline void world_check(world *w) {
    const kv_table *tables[WORLD_SEQS * WORLD_GROUPS];
    int32_t n = 0;
    quire_error err = {.message = ""};
    for (int32_t i = 0; i < WORLD_SEQS; i++) {
        for (int32_t g = 0; w->seqs[i].live && g < w->o.n_groups; g++) {
            tables[n++] = &w->seqs[i].tables[g];
        }
        if (w->seqs[i].live) {
            world_check_content(w, &w->seqs[i]);
        }
    }
    if (kv_check(w->pool, tables, n, NULL, 0, &err) != QUIRE_OK || kv_index_check(w->ix, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    world_check_events(w);
}

/* Evicts until n pages are free; without windows, exactly n. False: too few are
 * cached. */
static inline bool world_evict(world *w, int32_t n) {
    int32_t n_free = kv_pool_counts(w->pool).n_free;
    w->is_evicting = true;
    quire_err e = kv_index_evict(w->ix, n);
    w->is_evicting = false;
    int32_t n_free_now = kv_pool_counts(w->pool).n_free;
    if (e == QUIRE_OK) {
        assert_true(n_free_now >= n &&
                    (n_free_now == n || n_free_now == n_free || w->o.windows[w->o.n_groups - 1] > 0));
    } else {
        assert_int_equal(e, QUIRE_NO_ROOM);
        assert_true(n_free_now < n && kv_pool_counts(w->pool).n_cached == 0);
    }
    return e == QUIRE_OK;
}

/* Makes room for n more tokens in every group. False: too few pages; nothing changed. */
static inline bool world_append(world *w, world_seq *s, int32_t n) {
    int32_t needs = 0, had = s->tables[0].n_tokens;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        needs += kv_table_needs(w->pool, &s->tables[g], n, w->o.page_tokens);
    }
    if (!world_evict(w, needs)) {
        return false;
    }
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        assert_int_equal(s->tables[g].n_tokens, had);
        assert_int_equal(kv_table_append(w->pool, &s->tables[g], n, w->o.page_tokens, &w->copies), QUIRE_OK);
    }
    for (int32_t i = 0; i < w->copies.n; i++) {
        memcpy(&w->slots[w->copies.pairs[i].dst.v * w->o.page_tokens],
               &w->slots[w->copies.pairs[i].src.v * w->o.page_tokens],
               (size_t)w->o.page_tokens * sizeof *w->slots);
    }
    w->copies.n = 0;
    return true;
}

static inline void world_publish(world *w, world_seq *s, kv_publish_what what) {
    if (w->on_publish != NULL) {
        w->on_publish(w, (int32_t)(s - w->seqs), s->n, what, w->context);
    }
    quire_err e = kv_index_publish(w->ix, &s->path, s->tokens, s->n, s->tables, what);
    assert_true(e == QUIRE_OK || e == QUIRE_NO_ROOM);
    if (w->on_published != NULL) {
        w->on_published(w, (int32_t)(s - w->seqs), w->context);
    }
}

/* Writes the slots of positions s->n..n - 1, publishes, frees pages before windows. */
static inline void world_compute(world *w, world_seq *s, int32_t n) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        uint64_t h = 0;
        for (int32_t p = 0; p < n; p++) {
            h = world_content(s->tokens, p + 1, g, h);
            if (p >= s->n) {
                w->slots[kv_table_slot(&s->tables[g], p, w->o.page_tokens)] = h;
            }
        }
    }
    w->n_computed += n - s->n;
    s->n = n;
    world_publish(w, s, KV_PUBLISH_PAGES);
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        if (w->o.windows[g] > 0 && n >= w->o.windows[g]) {
            kv_table_forget(w->pool, &s->tables[g], n - w->o.windows[g] + 1, w->o.page_tokens);
        }
    }
}

static inline void world_drop(world *w, world_seq *s) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        kv_table_deinit(w->pool, &s->tables[g]);
    }
    kv_index_leave(w->ix, &s->path);
    s->live = false;
    s->n = 0;
}

static inline void world_enter(world *w, const char *namespace, const int32_t *tokens, int32_t n,
                               kv_path *path) {
    assert_int_equal(kv_index_enter_public(w->ix, w->scope, strlen(w->scope), namespace, strlen(namespace),
                                           tokens, n, path),
                     QUIRE_OK);
}

/* Returns how many of tokens[0..n) a sequence in the namespace would reuse. */
static inline int32_t world_peek(world *w, const char *namespace, const int32_t *tokens, int32_t n) {
    kv_path path;
    world_enter(w, namespace, tokens, n, &path);
    int32_t found = kv_index_peek(w->ix, &path, tokens, n);
    kv_index_leave(w->ix, &path);
    return found;
}

/* Checks that matching took n_taken pages: one for each entry of s's tables, except
 * n_held that were held already and partly used pages that others hold. */
static inline void world_check_held(const world *w, const world_seq *s, int32_t n_held, int32_t n_taken) {
    int32_t n_entries = 0, n_parts = 0;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        const kv_table *t = &s->tables[g];
        n_entries += t->n_pages;
        n_parts +=
            t->n_tokens % w->o.page_tokens != 0 && kv_pool_count(w->pool, t->pages[t->n_pages - 1]) > 1;
    }
    assert_int_equal(n_entries - n_held - n_parts, n_taken);
}

/* Starts sequence i in a namespace with a prompt of n tokens: matches up to n - 1 of
 * them, evicts if necessary, computes and publishes the rest. Returns the number matched,
 * or -1 if there are too few pages; the sequence is then not live. */
static inline int32_t world_start(world *w, int32_t i, const char *namespace, const int32_t *tokens,
                                  int32_t n) {
    world_seq *s = &w->seqs[i];
    int32_t n_matched;
    assert_false(s->live);
    world_enter(w, namespace, tokens, n, &s->path);
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        assert_int_equal(kv_table_init(&s->tables[g], 0), QUIRE_OK);
    }
    s->live = true;
    memcpy(s->tokens, tokens, (size_t)n * sizeof *tokens);
    kv_held held;
    int32_t peeked = kv_index_peek_held(w->ix, &s->path, tokens, n - 1, &held);
    int32_t n_room = kv_pool_counts(w->pool).n_free + kv_pool_counts(w->pool).n_cached;
    assert_int_equal(kv_index_peek(w->ix, &s->path, tokens, n - 1), peeked);
    assert_int_equal(kv_index_match(w->ix, &s->path, tokens, n - 1, s->tables, &n_matched), QUIRE_OK);
    assert_int_equal(n_matched, peeked);
    world_check_held(w, s, held.n_entries,
                     n_room - kv_pool_counts(w->pool).n_free - kv_pool_counts(w->pool).n_cached);
    s->n = n_matched;
    world_check(w);
    if (!world_append(w, s, n - n_matched)) {
        world_drop(w, s);
        return -1;
    }
    w->n_reused += n_matched;
    world_compute(w, s, n);
    return n_matched;
}

/* Computes n more tokens. False: there are too few pages; nothing changed. */
static inline bool world_extend(world *w, int32_t i, const int32_t *tokens, int32_t n) {
    world_seq *s = &w->seqs[i];
    if (!world_append(w, s, n)) {
        return false;
    }
    memcpy(s->tokens + s->n, tokens, (size_t)n * sizeof *tokens);
    world_compute(w, s, s->n + n);
    return true;
}

static inline void world_fork(world *w, int32_t from, int32_t to) {
    const world_seq *a = &w->seqs[from];
    world_seq *b = &w->seqs[to];
    assert_true(a->live && !b->live);
    b->live = true;
    b->n = a->n;
    memcpy(b->tokens, a->tokens, sizeof b->tokens);
    b->path = kv_index_fork(w->ix, &a->path);
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        assert_int_equal(kv_table_init(&b->tables[g], 0), QUIRE_OK);
        assert_int_equal(kv_table_fork(w->pool, &a->tables[g], &b->tables[g]), QUIRE_OK);
    }
}

static inline void world_truncate(world *w, int32_t i, int32_t n) {
    world_seq *s = &w->seqs[i];
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        kv_table_truncate(w->pool, &s->tables[g], n, w->o.page_tokens);
    }
    kv_index_truncate(w->ix, &s->path, n);
    s->n = n;
}

/* Publishes the tail and ends the sequence. */
static inline void world_finish(world *w, int32_t i) {
    world_seq *s = &w->seqs[i];
    world_publish(w, s, KV_PUBLISH_TAIL);
    world_drop(w, s);
}

/* Ends all sequences, checks that pool and index are empty, and closes the world. */
static inline void world_close(world *w) {
    for (int32_t i = 0; i < WORLD_SEQS; i++) {
        if (w->seqs[i].live) {
            world_finish(w, i);
        }
    }
    world_check(w);
    kv_index_clear(w->ix);
    world_check(w);
    kv_index_counts c = kv_index_count(w->ix);
    assert_int_equal(c.n_entries, 0);
    assert_int_equal(c.n_nodes, 0);
    assert_int_equal(c.n_namespaces, 0);
    assert_int_equal(kv_pool_counts(w->pool).n_free, kv_pool_counts(w->pool).n_pages);
    kv_index_close(w->ix);
    kv_pool_close(w->pool);
    kv_events_close(w->events);
    mem_free(w->mirror.stored);
    mem_free(w->slots);
    mem_free(w->copies.pairs);
}

#endif

#include "kv/table.h"

#include <assert.h>

#include "base/mem.h"

static int32_t table_pages_for(int32_t n_tokens, int32_t page_tokens) {
    return n_tokens / page_tokens + (n_tokens % page_tokens != 0);
}

quire_err kv_table_reserve(kv_table *t, int32_t n_pages) {
    size_t cap = (size_t)t->cap_pages;
    TRY(mem_grow(&t->pages, &cap, (size_t)n_pages, sizeof *t->pages));
    t->cap_pages = cap < INT32_MAX ? (int32_t)cap : INT32_MAX;
    return QUIRE_OK;
}

quire_err kv_table_init(kv_table *t, int32_t cap_pages) {
    *t = (kv_table){0};
    /* an append puts the copy of the tail after the last entry, then moves it */
    return kv_table_reserve(t, cap_pages + 1);
}

void kv_table_deinit(kv_pool *pool, kv_table *t) {
    kv_table_clear(pool, t);
    mem_free(t->pages);
    *t = (kv_table){0};
}

void kv_table_clear(kv_pool *pool, kv_table *t) {
    kv_pool_release_all(pool, t->pages, t->n_pages);
    t->n_pages = 0;
    t->n_tokens = 0;
}

/* The effect of an append: number of new entries at the end, and whether the part-filled
 * tail is shared and must be copied first. */
typedef struct growth {
    int32_t n_new;
    bool copies_tail;
} growth;

/* Plans an append. Most fit into the tail, which needs no division. */
static growth plan_growth(const kv_pool *pool, const kv_table *t, int32_t n_tokens, int32_t page_tokens) {
    int64_t room = (int64_t)t->n_pages * page_tokens;
    assert(n_tokens >= 0 && n_tokens <= INT32_MAX - t->n_tokens &&
           t->n_pages == table_pages_for(t->n_tokens, page_tokens));
    bool fits = t->n_tokens + n_tokens <= room, writes_tail = n_tokens > 0 && t->n_tokens < room;
    return (growth){.n_new = fits ? 0 : table_pages_for(t->n_tokens + n_tokens, page_tokens) - t->n_pages,
                    .copies_tail = writes_tail && kv_pool_is_shared(pool, t->pages[t->n_pages - 1])};
}

int32_t kv_table_needs(const kv_pool *pool, const kv_table *t, int32_t n_tokens, int32_t page_tokens) {
    growth g = plan_growth(pool, t, n_tokens, page_tokens);
    return g.n_new + g.copies_tail;
}

bool kv_table_copies_tail(const kv_pool *pool, const kv_table *t, int32_t page_tokens) {
    return plan_growth(pool, t, 1, page_tokens).copies_tail;
}

static void add_copy(kv_copies *copies, page_id src, page_id dst) {
    assert(copies->n < copies->cap);
    copies->pairs[copies->n].src = src;
    copies->pairs[copies->n++].dst = dst;
}

/* Applies the growth. The new pages are already after the last entry; `copy` replaces the
 * shared tail. */
static void table_grow(kv_pool *pool, kv_table *t, growth g, page_id copy, int32_t n_tokens,
                       kv_copies *copies) {
    if (g.copies_tail) {
        page_id *tail = &t->pages[t->n_pages - 1];
        add_copy(copies, *tail, copy);
        kv_pool_release(pool, *tail);
        *tail = copy;
    }
    t->n_pages += g.n_new;
    t->n_tokens += n_tokens;
}

quire_err kv_table_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                          kv_copies *copies) {
    growth g = plan_growth(pool, t, n_tokens, page_tokens);
    if (g.copies_tail && copies->n == copies->cap) {
        return QUIRE_NO_ROOM;
    }
    page_id copy = PAGE_NONE;
    if (g.n_new + g.copies_tail > 0) { /* one reservation for all pages; the last is for the copy */
        TRY(kv_table_reserve(t, t->n_pages + g.n_new + g.copies_tail));
        TRY(kv_pool_reserve(pool, g.n_new + g.copies_tail, t->pages + t->n_pages));
        copy = t->pages[t->n_pages + g.n_new + g.copies_tail - 1];
    }
    table_grow(pool, t, g, copy, n_tokens, copies);
    return QUIRE_OK;
}

void kv_table_append_reserved(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens,
                              kv_copies *copies, const page_id *ids) {
    growth g = plan_growth(pool, t, n_tokens, page_tokens);
    assert(t->n_pages + g.n_new <= t->cap_pages && (!g.copies_tail || copies->n < copies->cap));
    for (int32_t i = 0; i < g.n_new; i++) {
        t->pages[t->n_pages + i] = ids[i];
    }
    table_grow(pool, t, g, g.copies_tail ? ids[g.n_new] : PAGE_NONE, n_tokens, copies);
}

int32_t kv_table_state_needs(const kv_pool *pool, const kv_table *t, int32_t state_pages) {
    if (t->n_pages == 0) {
        return state_pages;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < t->n_pages; i++) {
        n += kv_pool_is_shared(pool, t->pages[i]);
    }
    return n;
}

void kv_table_state_append(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t state_pages,
                           kv_copies *copies, const page_id *ids) {
    assert(t->cap_pages >= state_pages);
    for (int32_t i = 0; i < t->n_pages; i++) {
        page_id page = t->pages[i];
        if (kv_pool_is_shared(pool, page)) {
            add_copy(copies, page, *ids);
            t->pages[i] = *ids++;
            kv_pool_release(pool, page);
        }
    }
    for (; t->n_pages < state_pages; t->n_pages++) {
        t->pages[t->n_pages] = *ids++;
    }
    t->n_tokens += n_tokens;
}

void kv_table_truncate(kv_pool *pool, kv_table *t, int32_t n_tokens, int32_t page_tokens) {
    assert(n_tokens >= 0 && n_tokens <= t->n_tokens);
    int32_t kept = table_pages_for(n_tokens, page_tokens);
    if (kept < t->n_pages) {
        kv_pool_release_all(pool, t->pages + kept, t->n_pages - kept);
        t->n_pages = kept;
    }
    t->n_tokens = n_tokens;
}

void kv_table_skip(kv_table *t, int32_t n_tokens, int32_t page_tokens) {
    assert(t->n_tokens % page_tokens == 0 && n_tokens % page_tokens == 0 &&
           n_tokens / page_tokens <= t->cap_pages);
    for (; t->n_tokens < n_tokens; t->n_tokens += page_tokens) {
        t->pages[t->n_pages++] = PAGE_NONE;
    }
}

void kv_table_forget(kv_pool *pool, kv_table *t, int32_t position, int32_t page_tokens) {
    assert(position <= t->n_tokens);
    for (int32_t i = position / page_tokens - 1; i >= 0 && t->pages[i].v != PAGE_NONE.v; i--) {
        kv_pool_release(pool, t->pages[i]);
        t->pages[i] = PAGE_NONE;
    }
}

static quire_err fork_first(kv_pool *pool, const kv_table *from, int32_t n_pages, int32_t n_tokens,
                            kv_table *to) {
    assert(to->n_pages == 0);
    TRY(kv_table_reserve(to, n_pages));
    for (int32_t i = 0; i < n_pages; i++) {
        if (from->pages[i].v != PAGE_NONE.v) {
            kv_pool_share(pool, from->pages[i]);
        }
        to->pages[i] = from->pages[i];
    }
    to->n_pages = n_pages;
    to->n_tokens = n_tokens;
    return QUIRE_OK;
}

quire_err kv_table_fork(kv_pool *pool, const kv_table *from, kv_table *to) {
    return fork_first(pool, from, from->n_pages, from->n_tokens, to);
}

quire_err kv_table_fork_first(kv_pool *pool, const kv_table *from, int32_t n_tokens, int32_t page_tokens,
                              kv_table *to) {
    assert(n_tokens >= 0 && n_tokens <= from->n_tokens);
    return fork_first(pool, from, table_pages_for(n_tokens, page_tokens), n_tokens, to);
}

page_id kv_table_replace(kv_pool *pool, kv_table *t, int32_t i, page_id id) {
    page_id old = t->pages[i];
    assert(kv_pool_count(pool, old) > 1);
    t->pages[i] = id;
    kv_pool_release(pool, old);
    return old;
}

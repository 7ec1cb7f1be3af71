/* The simplest correct index: a list of cached pages, one record each, searched by trying
 * every length.
 *
 * It predicts what is published, which pages dedup gives to sequences, and what a match
 * finds. It learns from the real index only which pages an eviction has chosen; any other
 * difference is an error. */
#ifndef TESTS_KV_NAIVE_INDEX_H
#define TESTS_KV_NAIVE_INDEX_H

#include "cache_world.h"
#include "test.h"

enum { NAIVE_PAGES = 160, NAIVE_TOKENS = 256, NAIVE_PUBLICS = 2, NAIVE_PUBLIC = 1000 };

/* A cached page: the prefix up to its last token, its place (a tenant's namespace or the
 * public one), and its group of layers. */
typedef struct naive_record {
    /* going: its entry is being replaced by a longer one, perhaps of the same page */
    bool live, going;
    int32_t place, group, n;
    int32_t tokens[NAIVE_TOKENS];
} naive_record;

typedef struct naive_index {
    world *w;
    naive_record records[NAIVE_PAGES]; /* indexed by page */
    /* public prefixes of whole pages, the longer one last */
    int32_t *publics[NAIVE_PUBLICS], n_public[NAIVE_PUBLICS];
    struct {
        /* the sequence's place, and the number of its leading pages in NAIVE_PUBLIC */
        int32_t place, n_public;
        const int32_t *public;
    } seqs[WORLD_SEQS];
    /* pages of the publishing sequence after it has published */
    int32_t expected[WORLD_GROUPS][NAIVE_TOKENS];
} naive_index;

/* Sets the place of sequence q of a tenant, which begins with tokens[0..n). */
static inline void naive_enter(naive_index *m, int32_t q, int32_t tenant, const int32_t *tokens, int32_t n) {
    m->seqs[q].place = tenant * 8;
    m->seqs[q].n_public = 0;
    for (int32_t k = 0; k < NAIVE_PUBLICS; k++) {
        int32_t n_public = m->n_public[k];
        if (n_public > 0 && n_public <= n &&
            memcmp(tokens, m->publics[k], (size_t)n_public * sizeof *tokens) == 0) {
            m->seqs[q].place = tenant * 8 + 1 + k;
            m->seqs[q].n_public = n_public / m->w->o.page_tokens;
            m->seqs[q].public = m->publics[k];
        }
    }
}

static inline int32_t naive_place(const naive_index *m, int32_t q, int32_t i) {
    return i < m->seqs[q].n_public ? NAIVE_PUBLIC : m->seqs[q].place;
}

/* Finds a page in a place and group that has token n - 1 and whose prefix begins with
 * tokens[0..n); exact: is tokens[0..n). -1: there is none. */
static inline int32_t naive_find(const naive_index *m, int32_t place, int32_t g, const int32_t *tokens,
                                 int32_t n, bool exact) {
    int32_t size = m->w->o.page_tokens, last = (n - 1) / size, n_pages = kv_pool_counts(m->w->pool).n_pages;
    for (int32_t page = 0; page < n_pages; page++) {
        const naive_record *r = &m->records[page];
        if (r->live && r->place == place && r->group == g &&
            (exact ? r->n == n : r->n >= n && (r->n - 1) / size == last) &&
            memcmp(r->tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return page;
        }
    }
    return -1;
}

/* Whether the tree has a node for tokens[0..n) in the place: a cached prefix begins with
 * them, or a live sequence has published them, even if their page is evicted. */
static inline bool naive_has(const naive_index *m, int32_t place, const int32_t *tokens, int32_t n) {
    int32_t size = m->w->o.page_tokens, i = (n - 1) / size, n_pages = kv_pool_counts(m->w->pool).n_pages;
    for (int32_t page = 0; page < n_pages; page++) {
        const naive_record *r = &m->records[page];
        int32_t k = r->place != NAIVE_PUBLIC ? r->place % 8 - 1 : -1;
        int32_t of_page = k >= 0 && i < m->n_public[k] / size ? NAIVE_PUBLIC : r->place;
        if (r->live && r->n >= n && of_page == place &&
            memcmp(r->tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    for (int32_t q = 0; q < WORLD_SEQS; q++) {
        const world_seq *s = &m->w->seqs[q];
        if (s->live && s->path.n_pages > i && naive_place(m, q, i) == place &&
            memcmp(s->tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- matching ---- */

/* Whether every group has all pages that it needs to continue after n tokens. */
static inline bool naive_reaches(const naive_index *m, int32_t q, const int32_t *tokens, int32_t n) {
    int32_t size = m->w->o.page_tokens;
    for (int32_t g = 0; g < m->w->o.n_groups; g++) {
        int32_t window = m->w->o.windows[g];
        int32_t first = (window == 0 || n < window ? 0 : n - window + 1) / size;
        for (int32_t i = first; i * size < n; i++) {
            if (naive_find(m, naive_place(m, q, i), g, tokens, (i + 1) * size < n ? (i + 1) * size : n,
                           false) < 0) {
                return false;
            }
        }
    }
    return true;
}

/* Returns the longest cached length, by trying all; whole_pages: of whole pages only. */
static inline int32_t naive_longest(const naive_index *m, int32_t q, const int32_t *tokens, int32_t n,
                                    bool whole_pages) {
    for (; n > 0; n--) {
        if ((!whole_pages || n % m->w->o.page_tokens == 0) && naive_reaches(m, q, tokens, n)) {
            return n;
        }
    }
    return 0;
}

/* ---- publishing ---- */

static inline void naive_record_page(naive_index *m, int32_t page, int32_t place, int32_t g,
                                     const int32_t *tokens, int32_t n) {
    naive_record *r = &m->records[page];
    assert_false(r->live);
    *r = (naive_record){.live = true, .going = r->going, .place = place, .group = g, .n = n};
    memcpy(r->tokens, tokens, (size_t)n * sizeof *tokens);
}

/* Marks records in the place as going if they are prefixes, within the same page, of the
 * page that ends with tokens[0..n), which replaces them. */
static inline void naive_replace(naive_index *m, int32_t place, const int32_t *tokens, int32_t n) {
    int32_t size = m->w->o.page_tokens, n_pages = kv_pool_counts(m->w->pool).n_pages;
    for (int32_t page = 0; page < n_pages; page++) {
        naive_record *r = &m->records[page];
        if (r->live && r->place == place && r->n < n && (r->n - 1) / size == (n - 1) / size &&
            memcmp(r->tokens, tokens, (size_t)r->n * sizeof *tokens) == 0) {
            r->live = false;
            r->going = true;
        }
    }
}

/* Predicts the publishing of page i of sequence q, which ends at token n. */
static inline void naive_publish_page(naive_index *m, int32_t q, int32_t i, int32_t n) {
    const world_seq *s = &m->w->seqs[q];
    int32_t place = naive_place(m, q, i);
    bool whole = n % m->w->o.page_tokens == 0;
    if (!whole && naive_has(m, place, s->tokens, n)) {
        return; /* a longer or equal page is there already */
    }
    naive_replace(m, place, s->tokens, n);
    for (int32_t g = 0; g < m->w->o.n_groups; g++) {
        int32_t own = s->tables[g].pages[i].v, there = naive_find(m, place, g, s->tokens, n, true);
        if (own == PAGE_NONE.v || own == there || m->records[own].live) {
            continue;
        }
        if (there >= 0) {
            m->expected[g][i] = there;
        } else {
            naive_record_page(m, own, place, g, s->tokens, n);
        }
    }
}

/* Predicts the state after sequence q has published n tokens. Called before it does. */
static inline void naive_publish(const world *w, int32_t q, int32_t n, kv_publish_what what, void *context) {
    naive_index *m = context;
    const world_seq *s = &w->seqs[q];
    int32_t size = w->o.page_tokens, i = s->path.n_pages;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        for (int32_t k = 0; k < s->tables[g].n_pages; k++) {
            m->expected[g][k] = s->tables[g].pages[k].v;
        }
    }
    for (; (i + 1) * size <= n; i++) {
        if (i < m->seqs[q].n_public && memcmp(s->tokens + i * size, m->seqs[q].public + i * size,
                                              (size_t)size * sizeof *s->tokens) != 0) {
            return; /* the sequence was rolled back and is no longer public */
        }
        naive_publish_page(m, q, i, (i + 1) * size);
    }
    if (what == KV_PUBLISH_TAIL && w->o.granularity == KV_GRANULARITY_TOKEN && n % size != 0 &&
        i >= m->seqs[q].n_public) {
        naive_publish_page(m, q, i, n);
    }
}

static inline void naive_published(const world *w, int32_t q, void *context) {
    const naive_index *m = context;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        for (int32_t k = 0; k < w->seqs[q].tables[g].n_pages; k++) {
            assert_int_equal(w->seqs[q].tables[g].pages[k].v, m->expected[g][k]);
        }
    }
}

/* ---- removal ---- */

/* Called when the index removes a page. Checks that there is a reason: an eviction, a
 * longer page that replaces it, or the loss of the same page in another group. */
static inline void naive_removed(void *context, int32_t entry, int32_t group) {
    naive_index *m = context;
    kv_index_entry e = kv_index_describe(m->w->ix, entry);
    naive_record *r = &m->records[e.pages[group]];
    bool lacks = false;
    if (r->going) {
        r->going = false;
        return;
    }
    for (int32_t g = 0; g < m->w->o.n_groups; g++) {
        lacks = lacks || naive_find(m, r->place, g, r->tokens, r->n, true) < 0;
    }
    assert_int_equal(r->group, group);
    assert_true(r->live && (m->w->is_evicting || lacks));
    assert_int_equal(kv_pool_count(m->w->pool, (page_id){e.pages[group]}), 0);
    r->live = false;
}

static inline void naive_dropped(void *context, int32_t entry) {
    (void)context;
    (void)entry;
}

/* Checks that exactly the pages with a live record are cached. */
static inline void naive_check(const naive_index *m) {
    for (int32_t page = 0; page < kv_pool_counts(m->w->pool).n_pages; page++) {
        assert_false(m->records[page].going);
        assert_int_equal(m->records[page].live, kv_pool_entry(m->w->pool, (page_id){page}) >= 0);
    }
}

#endif

#include "kv/kv_seq.h"

#include <assert.h>

#include "base/mem.h"

#define EVICT_FOR_NAMESPACE 64 /* pages that go when there is no namespace for one more sequence */

/* ---- life ---- */

quire_err kv_seq_init(kv_seq *s, int32_t n_groups, int32_t cap_pages) {
    *s = (kv_seq){.tables = mem_new((size_t)n_groups, sizeof *s->tables)};
    if (s->tables == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (; s->n_tables < n_groups; s->n_tables++) {
        quire_err e = kv_table_init(&s->tables[s->n_tables], cap_pages);
        if (e != QUIRE_OK) {
            kv_seq_deinit(s);
            return e;
        }
    }
    return QUIRE_OK;
}

void kv_seq_deinit(kv_seq *s) {
    for (int32_t g = 0; g < s->n_tables; g++) {
        assert(s->tables[g].n_pages == 0);
        mem_free(s->tables[g].pages);
    }
    mem_free(s->tables);
    *s = (kv_seq){0};
}

quire_err kv_seq_open(kv_cache *c, kv_seq *s, const void *scope, size_t n_scope, const void *name, size_t n_name, const int32_t *tokens,
                      int32_t n_tokens) {
    if (c->index == NULL) {
        return QUIRE_OK;
    }
    quire_err e = kv_index_enter_public(c->index, scope, n_scope, name, n_name, tokens, n_tokens, &s->path);
    if (e == QUIRE_NO_ROOM) { /* a namespace goes with its last page: the oldest of those that left things cached */
        (void)kv_index_evict(c->index, kv_pool_counts(c->pool).n_free + EVICT_FOR_NAMESPACE);
        e = kv_index_enter_public(c->index, scope, n_scope, name, n_name, tokens, n_tokens, &s->path);
    }
    s->has_path = e == QUIRE_OK;
    return e;
}

void kv_seq_close(kv_cache *c, kv_seq *s) {
    if (s->has_path) {
        kv_index_leave(c->index, &s->path);
        s->has_path = false;
    }
}

/* ---- reuse ---- */

int32_t kv_seq_peek(const kv_cache *c, const kv_seq *s, const int32_t *tokens, int32_t n, int32_t *n_held) {
    *n_held = 0;
    return s->has_path ? kv_index_peek_held(c->index, &s->path, tokens, n, n_held) : 0;
}

int32_t kv_seq_admit(kv_cache *c, kv_seq *s, const int32_t *tokens, int32_t n) {
    int32_t n_found = 0;
    if (s->has_path && kv_index_match(c->index, &s->path, tokens, n, s->tables, &n_found) == QUIRE_OK) {
        s->n_computed = n_found;
    }
    return n_found;
}

void kv_seq_fork(kv_cache *c, const kv_seq *s, int32_t n, kv_seq *to) {
    to->has_path = s->has_path;
    if (s->has_path) {
        to->path = kv_index_fork(c->index, &s->path);
        kv_index_truncate(c->index, &to->path, n);
    }
    for (int32_t g = 0; g < s->n_tables; g++) {
        quire_err e = g < c->n_token_groups ? kv_table_fork_first(c->pool, &s->tables[g], n, c->page_tokens, &to->tables[g])
                                            : kv_table_fork(c->pool, &s->tables[g], &to->tables[g]);
        assert(e == QUIRE_OK); /* there is room: the caller's word */
        (void)e;
    }
    to->n_computed = n;
}

/* ---- growth ---- */

static int32_t needs_of(const kv_cache *c, const kv_seq *s, int32_t g, int32_t n) {
    return g < c->n_token_groups ? kv_table_needs(c->pool, &s->tables[g], n, c->page_tokens)
                                 : kv_table_state_needs(c->pool, &s->tables[g], c->state_pages[g]);
}

int32_t kv_seq_needs(const kv_cache *c, const kv_seq *s, int32_t n) {
    int32_t n_pages = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n_pages += needs_of(c, s, g, n);
    }
    return n_pages;
}

static void trim_tokens(kv_cache *c, kv_seq *s, int32_t n_groups) {
    for (int32_t g = 0; g < n_groups; g++) {
        kv_table_truncate(c->pool, &s->tables[g], s->n_computed, c->page_tokens);
    }
}

/* The states of all state groups, to be written as a whole: those that are shared are copied. */
static quire_err reserve_states(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies) {
    int32_t n_ids = 0, n_used = 0;
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        TRY(kv_table_reserve(&s->tables[g], c->state_pages[g]));
        n_ids += needs_of(c, s, g, n);
    }
    if (copies->cap - copies->n < n_ids) {
        return QUIRE_NO_ROOM;
    }
    TRY(kv_pool_reserve(c->pool, n_ids, c->state_ids));
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        int32_t n_group = needs_of(c, s, g, n);
        kv_table_state_append(c->pool, &s->tables[g], n, c->state_pages[g], copies, c->state_ids + n_used);
        n_used += n_group;
    }
    return QUIRE_OK;
}

quire_err kv_seq_reserve(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        quire_err e = kv_table_append(c->pool, &s->tables[g], n, c->page_tokens, copies);
        if (e != QUIRE_OK) {
            trim_tokens(c, s, g);
            return e;
        }
    }
    quire_err e = c->n_state_pages > 0 ? reserve_states(c, s, n, copies) : QUIRE_OK;
    if (e != QUIRE_OK) {
        trim_tokens(c, s, c->n_token_groups);
    }
    return e;
}

void kv_seq_publish(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    if (s->has_path) {
        (void)kv_index_publish(c->index, &s->path, tokens, s->n_computed, s->tables, KV_PUBLISH_PAGES);
    }
}

void kv_seq_forget(kv_cache *c, kv_seq *s) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        kv_table_forget(c->pool, &s->tables[g], kv_cache_first_seen(c, g, s->n_computed), c->page_tokens);
    }
}

/* ---- giving back ---- */

bool kv_seq_can_truncate(const kv_cache *c, const kv_seq *s, int32_t n) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t first = kv_cache_first_seen(c, g, n);
        if (first < n && s->tables[g].pages[first / c->page_tokens].v == PAGE_NONE.v) {
            return false;
        }
    }
    return true;
}

void kv_seq_truncate(kv_cache *c, kv_seq *s, int32_t n) {
    s->n_computed = n;
    trim_tokens(c, s, c->n_token_groups);
    if (s->has_path) {
        kv_index_truncate(c->index, &s->path, n);
    }
}

void kv_seq_trim(kv_cache *c, kv_seq *s) {
    trim_tokens(c, s, c->n_token_groups);
}

/* Whether nobody else holds the pages of the last tokens. Were they published all the same, the other holder would have to copy them to
 * write on, and a full pool has no page for that. */
static bool owns_tail(const kv_cache *c, const kv_seq *s) {
    bool owns = true;
    for (int32_t g = 0; g < c->n_token_groups && s->n_computed % c->page_tokens != 0; g++) {
        page_id tail = s->tables[g].pages[s->n_computed / c->page_tokens];
        owns = owns && (tail.v == PAGE_NONE.v || kv_pool_count(c->pool, tail) == 1);
    }
    return owns;
}

void kv_seq_release(kv_cache *c, kv_seq *s, const int32_t *tokens, kv_keep keep) {
    if (s->has_path && keep == KV_KEEP && s->n_computed > 0) {
        kv_publish_what what = owns_tail(c, s) ? KV_PUBLISH_TAIL : KV_PUBLISH_PAGES;
        (void)kv_index_publish(c->index, &s->path, tokens, s->n_computed, s->tables, what);
    }
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table_clear(c->pool, &s->tables[g]);
    }
    if (s->has_path) {
        kv_index_truncate(c->index, &s->path, 0);
    }
    s->n_computed = 0;
}

bool kv_seq_take_over_tail(kv_cache *c, kv_seq *s) {
    return c->index != NULL && kv_index_take_over_tail(c->index, s->tables, s->n_computed);
}

/* ---- looking ---- */

int32_t kv_seq_pages(const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        n += s->tables[g].n_pages;
    }
    return n;
}

int32_t kv_seq_copied_tails(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        n += kv_table_copies_tail(c->pool, &s->tables[g], c->page_tokens);
    }
    return n;
}

int32_t kv_seq_holders(const kv_cache *c, const kv_seq *s, int32_t g, int32_t i) {
    page_id page = s->tables[g].pages[i];
    return page.v == PAGE_NONE.v ? 0 : kv_pool_count(c->pool, page);
}

void kv_seq_slots(const kv_cache *c, const kv_seq *s, int32_t g, int32_t p0, int32_t n, kv_slot *out) {
    for (int32_t done = 0; done < n;) {
        int64_t slot = kv_seq_slot(c, s, g, p0 + done);
        int32_t in_page = c->page_tokens - (p0 + done) % c->page_tokens, end = done + (in_page < n - done ? in_page : n - done);
        for (; done < end; done++) {
            out[done] = (kv_slot){slot++};
        }
    }
}

#include "kv/kv_seq.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kv/audit.h"

#define EVICT_FOR_NAMESPACE 64 /* pages to evict if all namespaces are in use */

/* ---- open and close ---- */

quire_err kv_seq_init(kv_seq *s, int32_t n_groups, int32_t cap_pages) {
    *s = (kv_seq){.tables = mem_new((size_t)n_groups, sizeof *s->tables)};
    TRY(mem_check(s->tables));
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
    assert(s != NULL);
    for (int32_t g = 0; g < s->n_tables; g++) {
        assert(s->tables[g].n_pages == 0);
        mem_free(s->tables[g].pages);
    }
    mem_free(s->tables);
    *s = (kv_seq){0};
}

quire_err kv_seq_open(kv_cache *c, kv_seq *s, const void *scope, size_t n_scope, const void *name,
                      size_t n_name, const int32_t *tokens, int32_t n_tokens) {
    assert(c != NULL);
    if (c->index == NULL) {
        return QUIRE_OK;
    }
    quire_err e = kv_index_enter_public(c->index, scope, n_scope, name, n_name, tokens, n_tokens, &s->path);
    if (e == QUIRE_NO_ROOM) { /* evicting the last page of a namespace removes the namespace */
        (void)kv_index_evict(c->index, kv_pool_counts(c->pool).n_free + EVICT_FOR_NAMESPACE);
        e = kv_index_enter_public(c->index, scope, n_scope, name, n_name, tokens, n_tokens, &s->path);
    }
    s->has_path = e == QUIRE_OK;
    return e;
}

void kv_seq_close(kv_cache *c, kv_seq *s) {
    assert(s != NULL);
    kv_seq_swap_drop(c, s);
    if (s->has_path) {
        kv_index_leave(c->index, &s->path);
        s->has_path = false;
    }
}

/* ---- reuse ---- */

int32_t kv_seq_peek(const kv_cache *c, const kv_seq *s, const int32_t *tokens, int32_t n, kv_held *held) {
    *held = (kv_held){0};
    return s->has_path ? kv_index_peek_held(c->index, &s->path, tokens, n, held) : 0;
}

quire_err kv_seq_admit(kv_cache *c, kv_seq *s, const int32_t *tokens, int32_t n) {
    int32_t n_found = 0;
    if (s->has_path) {
        TRY(kv_index_match(c->index, &s->path, tokens, n, s->tables, &n_found));
    }
    s->n_computed = n_found;
    if (c->n_state_pages > 0 && s->has_path) {
        s->snapshots.branch = kv_index_agreed(c->index, &s->path, tokens, n);
        s->snapshots.prompt_end = n;
        s->snapshots.interval = c->snapshot_tokens;
        s->snapshots.unit = c->snapshot_unit;
        s->snapshots.last = n_found;
    }
    return QUIRE_OK;
}

void kv_seq_fork(kv_cache *c, const kv_seq *s, int32_t n, kv_seq *to) {
    to->has_path = s->has_path;
    if (s->has_path) {
        to->path = kv_index_fork(c->index, &s->path);
        kv_index_truncate(c->index, &to->path, n);
    }
    to->snapshots = s->snapshots;
    for (int32_t g = 0; g < (n > 0 ? s->n_tables : c->n_token_groups); g++) {
        quire_err e = g < c->n_token_groups
                          ? kv_table_fork_first(c->pool, &s->tables[g], n, c->page_tokens, &to->tables[g])
                          : kv_table_fork(c->pool, &s->tables[g], &to->tables[g]);
        assert(e == QUIRE_OK); /* the caller has ensured that there is room */
        (void)e;
    }
    to->n_computed = n < s->n_computed ? n : s->n_computed;
}

/* ---- growth ---- */

/* Reserves pages for n more tokens into c->ids, and room for them in the tables and
 * copies. */
static quire_err take_pages(kv_cache *c, kv_seq *s, int32_t n, const kv_copies *copies) {
    int64_t n_pages = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        int32_t n_group = kv_seq_group_needs(c, s, g, n), n_held = s->tables[g].n_pages;
        /* new pages of a state replace its shared ones, so it needs no more entries */
        TRY(kv_table_reserve(&s->tables[g], g < c->n_token_groups ? n_held + n_group : c->state_pages[g]));
        n_pages += n_group;
    }
    if (n_pages > c->n_pages || copies->cap - copies->n < kv_seq_copied(c, s)) {
        return QUIRE_NO_ROOM;
    }
    return kv_pool_reserve(c->pool, (int32_t)n_pages, c->ids);
}

quire_err kv_seq_reserve_groups(kv_cache *c, kv_seq *s, int32_t n, kv_copies *copies) {
    TRY(take_pages(c, s, n, copies));
    const page_id *ids = c->ids;
    for (int32_t g = 0; g < s->n_tables; g++) {
        int32_t n_group = kv_seq_group_needs(c, s, g, n);
        if (g < c->n_token_groups) {
            kv_table_append_reserved(c->pool, &s->tables[g], n, c->page_tokens, copies, ids);
        } else {
            kv_table_state_append(c->pool, &s->tables[g], n, c->state_pages[g], copies, ids);
        }
        ids += n_group;
    }
    return QUIRE_OK;
}

void kv_seq_publish_tail(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    assert(s != NULL);
    if (s->has_path) {
        int32_t n = kv_seq_shareable(s, s->n_computed);
        (void)kv_index_publish(c->index, &s->path, tokens, n, s->tables,
                               n == s->n_computed ? KV_PUBLISH_TAIL : KV_PUBLISH_PAGES);
    }
}

/* ---- recurrent states ---- */

/* Reserves pages for a whole state into ids. Evicts nothing if that would not suffice. */
static quire_err reserve_state_ids(kv_cache *c, page_id *ids) {
    if (kv_cache_available(c) < c->n_state_pages) {
        return QUIRE_NO_ROOM;
    }
    kv_cache_make_free(c, c->n_state_pages);
    return kv_pool_reserve(c->pool, c->n_state_pages, ids);
}

static page_id *pages_of_copy(const kv_cache *c, const kv_seq *s, int32_t i) {
    return c->state_copies.pages + (int64_t)(s->copies0 + i) * c->n_state_pages;
}

/* Index of the copy of s's states after its first n tokens; -1: there is none. */
static int32_t find_copy(const kv_cache *c, const kv_seq *s, int32_t n) {
    for (int32_t i = 0; i < s->n_copies; i++) {
        if (c->state_copies.list[s->copies0 + i].row == n - s->n_copied_from - 1) {
            return i;
        }
    }
    return -1;
}

/* Adds a copy of s's states after its first n tokens. False: there is no room. */
static bool add_state_copy(kv_cache *c, kv_seq *s, int32_t n) {
    kv_state_copies *all = &c->state_copies;
    if (s->n_copies == 0) {
        s->copies0 = all->n;
        s->n_copied_from = s->n_computed;
    }
    page_id *ids = all->pages + (int64_t)all->n * c->n_state_pages;
    assert(s->copies0 + s->n_copies == all->n && n > s->n_computed);
    if (all->n == all->cap || reserve_state_ids(c, ids) != QUIRE_OK) {
        return false;
    }
    _Static_assert(sizeof(page_id) == sizeof(int32_t), "pages are a batch's numbers");
    all->list[all->n++] = (batch_snapshot){.row = n - s->n_computed - 1, .pages = &ids->v};
    all->n_live++;
    s->n_copies++;
    return true;
}

int32_t kv_seq_copy_states(kv_cache *c, kv_seq *s, int32_t from, int32_t to) {
    int32_t n = 0;
    while (from + n < to && add_state_copy(c, s, from + n)) {
        n++;
    }
    return n;
}

void kv_seq_copy_due(kv_cache *c, kv_seq *s, int32_t n_rows) {
    kv_snapshot_plan plan = s->snapshots;
    plan.last = plan.last > s->n_computed ? plan.last : s->n_computed;
    for (int32_t next = kv_snapshot_next(&plan);
         s->has_path && next < s->n_computed + n_rows && next == kv_seq_shareable(s, next);
         next = kv_snapshot_next(&plan)) {
        (void)add_state_copy(c, s, next); /* without room this snapshot is skipped */
        plan.last = next;
    }
}

void kv_state_views(const kv_cache *c, page_id *pages, kv_table *views) {
    for (int32_t g = c->n_token_groups; g < c->n_groups; g++) {
        *views++ = (kv_table){.pages = pages, .n_pages = c->state_pages[g], .cap_pages = c->state_pages[g]};
        pages += c->state_pages[g];
    }
}

void kv_seq_publish_states(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    assert(c != NULL && s != NULL);
    const kv_table *own = s->tables + c->n_token_groups;
    kv_table views[KV_MAX_GROUPS];
    for (int32_t n = kv_snapshot_next(&s->snapshots); n <= s->n_computed;
         n = kv_snapshot_next(&s->snapshots)) {
        int32_t copy = find_copy(c, s, n);
        if (copy >= 0) {
            kv_state_views(c, pages_of_copy(c, s, copy), views);
        }
        bool is_shared = n == kv_seq_shareable(s, n);
        if (is_shared && (copy >= 0 || own->n_tokens == n)) { /* a full tree only means less reuse */
            (void)kv_index_snapshot(c->index, &s->path, tokens, kv_seq_shareable(s, s->n_computed), n,
                                    s->tables, copy >= 0 ? views : own);
        }
        s->snapshots.last = n;
    }
}

void kv_seq_settle(kv_cache *c, kv_seq *s) {
    if (s->n_copies == 0) {
        return;
    }
    bool went_on = s->tables[c->n_token_groups].n_tokens > s->n_computed;
    int32_t copy = went_on ? find_copy(c, s, s->n_computed) : -1;
    page_id *ids = copy >= 0 ? pages_of_copy(c, s, copy) : NULL;
    for (int32_t g = c->n_token_groups; copy >= 0 && g < s->n_tables; g++) {
        kv_table *t = &s->tables[g];
        for (int32_t i = 0; i < t->n_pages; i++, ids++) {
            page_id id = t->pages[i];
            t->pages[i] = *ids;
            *ids = id;
        }
        t->n_tokens = s->n_computed;
    }
    for (int32_t i = 0; i < s->n_copies; i++) {
        kv_pool_release_all(c->pool, pages_of_copy(c, s, i), c->n_state_pages);
    }
    c->state_copies.n_live -= s->n_copies;
    c->state_copies.n = c->state_copies.n_live > 0 ? c->state_copies.n : 0;
    s->n_copies = 0;
}

void kv_seq_snapshot(kv_cache *c, kv_seq *s, const int32_t *tokens, bool goes_on, kv_copies *copies) {
    s->snapshots.last = s->n_computed; /* without room this snapshot is skipped */
    if (s->n_computed > kv_seq_shareable(s, s->n_computed)) {
        return;
    }
    if (goes_on && reserve_state_ids(c, c->ids) != QUIRE_OK) {
        return;
    }
    /* a full tree only means less reuse */
    (void)kv_index_snapshot(c->index, &s->path, tokens, s->n_computed, s->n_computed, s->tables,
                            s->tables + c->n_token_groups);
    int32_t n_used = 0;
    for (int32_t g = c->n_token_groups; goes_on && g < s->n_tables; g++) {
        int32_t n_group = kv_seq_group_needs(c, s, g, 0);
        kv_table_state_append(c->pool, &s->tables[g], 0, c->state_pages[g], copies, c->ids + n_used);
        n_used += n_group;
    }
    kv_pool_release_all(c->pool, c->ids + n_used, goes_on ? c->n_state_pages - n_used : 0);
}

/* ---- release ---- */

bool kv_seq_can_truncate(const kv_cache *c, const kv_seq *s, int32_t n) {
    return (c->n_state_pages == 0 || n == 0 || n == s->n_computed) && kv_seq_sees_back(c, s, n);
}

bool kv_seq_sees_back(const kv_cache *c, const kv_seq *s, int32_t n) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t first = kv_cache_first_seen(c, g, n);
        /* the page is needed for attention to earlier tokens, or for appends */
        bool needs_page = first < n || n % c->page_tokens != 0;
        if (needs_page && s->tables[g].pages[first / c->page_tokens].v == PAGE_NONE.v) {
            return false;
        }
    }
    return true;
}

void kv_seq_truncate(kv_cache *c, kv_seq *s, int32_t n) {
    s->n_computed = n < s->n_computed ? n : s->n_computed;
    s->snapshots.last = n < s->snapshots.last ? n : s->snapshots.last;
    for (int32_t g = c->n_token_groups; n == 0 && g < s->n_tables; g++) {
        kv_table_clear(c->pool, &s->tables[g]);
    }
    kv_seq_keep_pages(c, s, n);
    if (s->has_path) {
        kv_index_truncate(c->index, &s->path, n);
    }
}

/* Whether no other sequence holds the pages of the last tokens. If held pages were
 * published, their other holder would have to copy them before it writes, and a full pool
 * has no page for that. */
static bool kv_seq_owns_tail(const kv_cache *c, const kv_seq *s) {
    bool owns = true;
    for (int32_t g = 0; g < c->n_token_groups && s->n_computed % c->page_tokens != 0; g++) {
        page_id tail = s->tables[g].pages[s->n_computed / c->page_tokens];
        owns = owns && (tail.v == PAGE_NONE.v || kv_pool_count(c->pool, tail) == 1);
    }
    return owns;
}

void kv_seq_release(kv_cache *c, kv_seq *s, const int32_t *tokens, kv_keep keep) {
    kv_seq_settle(c, s);
    if (s->has_path && keep == KV_KEEP && s->n_computed > 0) {
        int32_t n = kv_seq_shareable(s, s->n_computed);
        bool owns = n == s->n_computed && kv_seq_owns_tail(c, s);
        if (owns && c->n_state_pages > 0) {
            kv_seq_snapshot(c, s, tokens, false, NULL); /* the snapshot also publishes the tail */
        } else {
            (void)kv_index_publish(c->index, &s->path, tokens, n, s->tables,
                                   owns ? KV_PUBLISH_TAIL : KV_PUBLISH_PAGES);
        }
    }
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table_clear(c->pool, &s->tables[g]);
    }
    if (s->has_path) {
        kv_index_truncate(c->index, &s->path, 0);
    }
    s->n_computed = 0;
}

quire_err kv_seq_park(kv_cache *c, kv_seq *s, const int32_t *tokens) {
    assert(s != NULL);
    int32_t n = s->n_computed;
    kv_seq_settle(c, s);
    /* publishes even a tail that others hold: while s holds it too, they must copy it
     * before they write anyway */
    if (s->has_path && c->n_state_pages > 0) {
        kv_seq_snapshot(c, s, tokens, false, NULL);
    } else {
        kv_seq_publish_tail(c, s, tokens);
    }
    kv_seq_release(c, s, tokens, KV_KEEP);
    return kv_seq_admit(c, s, tokens, kv_seq_shareable(s, n));
}

bool kv_seq_take_over(kv_cache *c, kv_seq *s) {
    bool has_state = c->index != NULL && kv_seq_shared_states(c, s) > 0 &&
                     kv_index_take_over(c->index, s->tables + c->n_token_groups);
    return (c->index != NULL && kv_index_take_over_tail(c->index, s->tables, s->n_computed)) || has_state;
}

/* ---- queries ---- */

int32_t kv_seq_passed(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        const kv_table *t = &s->tables[g];
        for (int32_t i = 0; c->windows[g] > 0 && i < t->n_pages; i++) {
            n += kv_seq_holders(c, s, g, i) != 1;
        }
    }
    return n;
}

int32_t kv_seq_shared_states(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        n += s->tables[g].n_pages > 0 ? kv_seq_group_needs(c, s, g, 0) : 0;
    }
    return n;
}

int32_t kv_seq_holders(const kv_cache *c, const kv_seq *s, int32_t g, int32_t i) {
    page_id page = s->tables[g].pages[i];
    return page.v == PAGE_NONE.v ? 0 : kv_pool_count(c->pool, page);
}

/* ---- audit ---- */

int32_t kv_seq_list_tables(const kv_seq *s, const kv_table **out) {
    assert(s != NULL);
    for (int32_t g = 0; g < s->n_tables; g++) {
        out[g] = &s->tables[g];
    }
    return s->n_tables;
}

quire_err kv_seq_check(const kv_cache *c, const kv_seq *s, quire_error *err) {
    assert(c != NULL);
    for (int32_t g = 0; g < c->n_token_groups && g < s->n_tables; g++) {
        if (s->tables[g].n_tokens < s->n_computed) {
            return err_set(err, QUIRE_INTERNAL, -1, "group %d has pages for %d tokens, %d are computed",
                           (int)g, (int)s->tables[g].n_tokens, (int)s->n_computed);
        }
    }
    for (int32_t g = c->n_token_groups; s->n_computed > 0 && g < s->n_tables; g++) {
        if (s->tables[g].n_pages != c->state_pages[g] || s->tables[g].n_tokens != s->n_computed) {
            return err_set(err, QUIRE_INTERNAL, -1,
                           "group %d has %d pages of a state of %d, after %d tokens of %d", (int)g,
                           (int)s->tables[g].n_pages, (int)c->state_pages[g], (int)s->tables[g].n_tokens,
                           (int)s->n_computed);
        }
    }
    if (s->has_path && s->path.n_pages > s->n_computed / c->page_tokens) {
        return err_set(err, QUIRE_INTERNAL, -1, "the path has %d pages, %d tokens are computed",
                       (int)s->path.n_pages, (int)s->n_computed);
    }
    return QUIRE_OK;
}

quire_err kv_cache_check(const kv_cache *c, const kv_table *const *tables, int32_t n, quire_error *err) {
    assert(c != NULL);
    TRY(kv_check(c->pool, tables, n, NULL, 0, err));
    TRY(kv_swap_check(&c->swap, err));
    if (c->budget != NULL) {
        TRY(kv_budget_check(c->budget, err));
    }
    return c->index != NULL ? kv_index_check(c->index, err) : QUIRE_OK;
}

/* Swapping. A frame's tag is (entry of the table) * n_tables + group. States are kept as
 * a whole. */

/* Number of leading whole pages that others hold in every group. */
static int32_t kv_seq_swap_shared_pages(const kv_cache *c, const kv_seq *s) {
    int32_t n = 0;
    for (; n < kv_seq_shareable(s, s->n_computed) / c->page_tokens; n++) {
        for (int32_t g = 0; g < s->n_tables; g++) {
            if (kv_seq_holders(c, s, g, n) < 2) {
                return n;
            }
        }
    }
    return n;
}

/* First entry of group g's table that a swap keeps; first: that of groups of tokens. */
static int32_t kv_seq_swap_first_of(const kv_cache *c, int32_t g, int32_t first) {
    return g < c->n_token_groups ? first : 0;
}

/* Number of s's pages from entry `first` of the tables on, without holes before windows,
 * and of its states. */
static int32_t kv_seq_swap_count_pages(const kv_cache *c, const kv_seq *s, int32_t first) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        for (int32_t i = kv_seq_swap_first_of(c, g, first); i < s->tables[g].n_pages; i++) {
            n += s->tables[g].pages[i].v != PAGE_NONE.v;
        }
    }
    return n;
}

int32_t kv_seq_swap_pages(const kv_cache *c, const kv_seq *s, int32_t *from) {
    /* with states an admission may find less than others hold, so all pages are kept */
    int32_t first = s->has_path && c->n_state_pages == 0 ? kv_seq_swap_shared_pages(c, s) : 0;
    *from = first * c->page_tokens;
    return kv_seq_swap_count_pages(c, s, first);
}

static int64_t us_since(const kv_cache *c, int64_t start_us) {
    return c->mover->done(c->mover->context, c->swap.last) ? clock_us() - start_us : -1;
}

kv_swapped kv_seq_swap_out(kv_cache *c, kv_seq *s, int32_t from) {
    int32_t first = from / c->page_tokens;
    kv_swapped did = {.n_pages = kv_seq_swap_count_pages(c, s, first)};
    if (did.n_pages > c->swap.n_free) {
        return (kv_swapped){0};
    }
    int64_t start_us = clock_us();
    for (int32_t g = 0; g < s->n_tables; g++) {
        for (int32_t i = kv_seq_swap_first_of(c, g, first); i < s->tables[g].n_pages; i++) {
            if (s->tables[g].pages[i].v != PAGE_NONE.v) {
                kv_swap_out(&c->swap, s->tables[g].pages[i], i * s->n_tables + g, &s->swap_frames);
            }
        }
    }
    did.us = us_since(c, start_us);
    s->swap_from = from;
    s->swap_tokens = s->n_computed;
    return did;
}

/* Start of the first page that group g sees after s's swapped tokens, but not before
 * n_computed. */
static int32_t seen_from(const kv_cache *c, const kv_seq *s, int32_t g) {
    int32_t first = kv_cache_first_seen(c, g, s->swap_tokens);
    first -= first % c->page_tokens;
    return first > s->n_computed ? first : s->n_computed;
}

/* Number of pages that s takes up to swap_tokens, without those before windows. *n_given:
 * pages that become free once its windows have moved. */
static int32_t pages_to_take(const kv_cache *c, const kv_seq *s, int32_t *n_given) {
    int32_t n = c->n_state_pages;
    *n_given = 0;
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t from = seen_from(c, s, g),
                n_behind = kv_cache_first_seen(c, g, s->swap_tokens) / c->page_tokens;
        n += (int32_t)kv_pages_for(s->swap_tokens, c->page_tokens) - from / c->page_tokens;
        for (int32_t i = 0; i < n_behind && i < s->tables[g].n_pages; i++) {
            *n_given += kv_seq_holders(c, s, g, i) == 1;
        }
    }
    return n;
}

/* Releases pages that windows no longer see after s's swapped tokens, and adds holes up
 * to the pages that they see. */
static void move_windows(kv_cache *c, kv_seq *s) {
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        int32_t first = kv_cache_first_seen(c, g, s->swap_tokens);
        kv_table_forget(c->pool, &s->tables[g], first < s->n_computed ? first : s->n_computed,
                        c->page_tokens);
        kv_table_skip(&s->tables[g], seen_from(c, s, g), c->page_tokens);
    }
}

/* Reserves n_pages for s up to swap_tokens, in all groups or in none. The tables must
 * have room. */
static quire_err kv_seq_swap_append(kv_cache *c, kv_seq *s, int32_t n_pages) {
    kv_copies none = {0}; /* s ends with a whole page, so nothing is copied */
    const page_id *ids = c->ids;
    if (ids == NULL) { /* the only group is one of tokens */
        return kv_table_append(c->pool, s->tables, s->swap_tokens - s->tables->n_tokens, c->page_tokens,
                               &none);
    }
    TRY(kv_pool_reserve(c->pool, n_pages, c->ids));
    for (int32_t g = 0; g < s->n_tables; g++) {
        kv_table *t = &s->tables[g];
        int32_t n = s->swap_tokens - t->n_tokens, n_group = kv_seq_group_needs(c, s, g, n);
        if (g < c->n_token_groups) {
            kv_table_append_reserved(c->pool, t, n, c->page_tokens, &none, ids);
        } else {
            kv_table_state_append(c->pool, t, n, c->state_pages[g], &none, ids);
        }
        ids += n_group;
    }
    assert(ids == c->ids + n_pages);
    return QUIRE_OK;
}

/* Reserves the pages up to swap_tokens that s's windows see, in all groups or in none.
 * After a failure its windows may have moved, and its states are released. */
static quire_err kv_seq_swap_reserve(kv_cache *c, kv_seq *s) {
    for (int32_t g = c->n_token_groups; g < s->n_tables; g++) {
        kv_table_clear(c->pool, &s->tables[g]); /* the frames replace the states as a whole */
    }
    for (int32_t g = 0; g < c->n_token_groups; g++) {
        TRY(kv_table_reserve(&s->tables[g], (int32_t)kv_pages_for(s->swap_tokens, c->page_tokens)));
    }
    int32_t n_given, n_pages = pages_to_take(c, s, &n_given);
    if (n_pages > kv_cache_available(c) + n_given) {
        return QUIRE_NO_ROOM;
    }
    move_windows(c, s);
    kv_cache_make_free(c, n_pages);
    return kv_seq_swap_append(c, s, n_pages);
}

/* Copies frames back into the pages from entry `first` of the tables on. */
static void kv_seq_swap_copy_in(kv_cache *c, const kv_seq *s, int32_t first, kv_swapped *did) {
    int64_t start_us = clock_us();
    for (int32_t f = s->swap_frames; f != 0; f = c->swap.next[f]) {
        int32_t i = c->swap.tags[f] / s->n_tables, g = c->swap.tags[f] % s->n_tables;
        if (i >= kv_seq_swap_first_of(c, g, first) && s->tables[g].pages[i].v != PAGE_NONE.v) {
            kv_swap_in(&c->swap, f, s->tables[g].pages[i]);
            did->n_pages++;
        }
    }
    did->us = us_since(c, start_us);
}

kv_swapped kv_seq_swap_in(kv_cache *c, kv_seq *s) {
    kv_swapped did = {.n_found = s->n_computed};
    if (kv_seq_swap_peek(c, s, s->n_computed) > s->n_computed) {
        did.n_found -= did.n_found % c->page_tokens;
        kv_seq_truncate(c, s, did.n_found);
        if (kv_seq_swap_reserve(c, s) == QUIRE_OK) {
            kv_seq_swap_copy_in(c, s, did.n_found / c->page_tokens, &did);
            kv_seq_advance(s, s->swap_tokens - did.n_found);
            s->snapshots.last = s->n_computed;
        } else { /* windows may have moved: truncates to what they can still continue from */
            bool is_whole = c->n_state_pages == 0 && kv_seq_sees_back(c, s, did.n_found);
            did.n_found = is_whole ? did.n_found : 0;
            kv_seq_truncate(c, s, did.n_found);
        }
    }
    kv_seq_swap_drop(c, s);
    return did;
}

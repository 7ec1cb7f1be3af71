/* Sequences with recurrent states for random tests: a KV cache, a simulated device, and a
 * simple reference. Each prefix has a number, a hash of its tokens and, if it is not
 * public, its tenant. In the device's pages, a token's word is derived from the number of
 * the prefix up to the token, a page of a state from that of all tokens before it. So a
 * page that is copied, shared, kept or found wrongly holds a wrong number. */
#ifndef TESTS_KV_STATE_WORLD_H
#define TESTS_KV_STATE_WORLD_H

#include <stdbool.h>

#include "base/fault.h"
#include "base/mem.h"
#include "kv/kv_tiering.h"
#include "mover_world.h"
#include "seed.h"

enum {
    N_SEQS = 6,
    SIZE = PAGE_WORDS,
    LEN = 44,
    N_TOKENS = 2, /* size of the vocabulary: small, so that prefixes are often shared */
    MAX_DRAFTS = 4,
    N_PUBLIC = 2 * SIZE, /* length of the public prefix, whose tokens are all 0 */
    N_TENANTS = 2,
    MAX_TABLES = N_SEQS * KV_MAX_GROUPS
};

typedef struct state_options {
    int32_t n_pages, n_groups, windows[KV_MAX_GROUPS], state_pages[KV_MAX_GROUPS];
    int32_t max_snapshots, interval, n_frames, host_bytes;
    bool has_rival; /* another pool shares the memory budget */
    kv_policy policy;
} state_options;

typedef enum user_state { USER_OUT, USER_WAITS, USER_RUNS } user_state;

typedef struct user {
    kv_seq kv;
    user_state state;
    int32_t tenant, n_known; /* n_known: known tokens; those from n_computed on are not computed yet */
    bool is_public;
    int32_t n_rows, n_drafts;         /* rows of the current step, the last of which are drafts */
    int32_t tokens[LEN + MAX_DRAFTS]; /* the known tokens, then the drafts */
} user;

typedef struct state_counts {
    int64_t tokens_found, copies, accepted, rejected, restored, swapped_in, promoted, no_room, faults;
} state_counts;

static kv_cache cache;
static kv_tiering *tiering; /* NULL: there are no tiers */
static kv_mover mover;
static device gpu;
static user users[N_SEQS];
static kv_copies copies;
static kv_budget *budget; /* NULL without a rival */
static kv_pool *rival;
static int32_t rival_member, n_rival; /* n_rival: number of pages that the rival holds */
static page_id rival_pages[DEVICE_PAGES];
static bool is_poisoned[DEVICE_PAGES];
static state_counts counts;

/* Sometimes makes one of the next few allocations or reserves fail. */
static inline void fault_arm(void) {
#ifdef QUIRE_DEBUG
    fault_at(any(6) == 0 ? 1 + any(4) : 0);
#endif
}

static inline void fault_disarm(void) {
#ifdef QUIRE_DEBUG
    counts.faults += fault_happened();
    fault_at(0);
#endif
}

/* ---- numbers of prefixes ---- */

static inline uint64_t fold(uint64_t h, int32_t x) {
    return (h + (uint64_t)x + 1) * 0x9e3779b97f4a7c15u;
}

static inline uint64_t prefix_number(const user *u, int32_t n) {
    uint64_t h = 1;
    for (int32_t k = 0; k < n; k++) {
        h = k == (u->is_public ? N_PUBLIC : 0) ? fold(h, 100 + u->tenant) : h;
        h = fold(h, u->tokens[k]);
    }
    return h;
}

static inline uint64_t token_word(uint64_t number, int32_t g) {
    return fold(number, 1000 + g);
}

static inline uint64_t state_word(uint64_t number, int32_t i) {
    return fold(number, 2000 + i);
}

/* ---- what the device holds ---- */

static inline void store_state(const page_id *pages, uint64_t number, int32_t i0, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        device_store(&gpu, pages[i].v, 0, state_word(number, i0 + i));
    }
}

/* Returns page i of u's states, counted over all groups. */
static inline page_id state_page(const user *u, int32_t i) {
    int32_t g = cache.n_token_groups;
    for (; i >= cache.state_pages[g]; g++) {
        i -= cache.state_pages[g];
    }
    return u->kv.tables[g].pages[i];
}

/* Checks that the pages of u's computed tokens and states hold the right numbers. */
static inline void check_content(const user *u) {
    uint64_t number = prefix_number(u, u->kv.n_computed);
    device_finish(&gpu);
    for (int32_t g = 0; g < cache.n_token_groups; g++) {
        for (int32_t p = kv_cache_first_seen(&cache, g, u->kv.n_computed); p < u->kv.n_computed; p++) {
            assert_true(gpu.pages[u->kv.tables[g].pages[p / SIZE].v][p % SIZE] ==
                        token_word(prefix_number(u, p + 1), g));
        }
    }
    for (int32_t i = 0; u->kv.n_computed > 0 && i < cache.n_state_pages; i++) {
        assert_true(gpu.pages[state_page(u, i).v][0] == state_word(number, i));
    }
}

/* Overwrites free pages, so that a use of their content shows. */
static inline void poison_free_pages(void) {
    for (int32_t p = 0; p < cache.n_pages; p++) {
        page_id page = {p};
        bool is_free = kv_pool_count(cache.pool, page) == 0 && kv_pool_entry(cache.pool, page) < 0;
        if (is_free && !is_poisoned[p]) {
            device_discard(&gpu, page, 1);
        }
        is_poisoned[p] = is_free;
    }
}

/* ---- the audit ---- */

/* Lists all block tables, with those of state copies, which hold pages in a step. */
static inline int32_t list_tables(const kv_table **tables, kv_table *views) {
    int32_t n = 0, n_views = 0;
    for (int32_t i = 0; i < N_SEQS; i++) {
        const kv_seq *s = &users[i].kv;
        n += kv_seq_list_tables(s, tables + n);
        for (int32_t k = 0; k < s->n_copies; k++) {
            kv_state_views(&cache, cache.state_copies.pages + (int64_t)(s->copies0 + k) * cache.n_state_pages,
                           views + n_views);
            for (int32_t g = cache.n_token_groups; g < cache.n_groups; g++) {
                tables[n++] = &views[n_views++];
            }
        }
    }
    return n;
}

static inline void audit(bool in_step) {
    enum { MOST = MAX_TABLES + DEVICE_PAGES };
    const kv_table *tables[MOST];
    kv_table views[DEVICE_PAGES];
    quire_error err = {.message = ""};
    int32_t n_frames = cache.swap.n_free;
    bool agrees = kv_cache_check(&cache, tables, list_tables(tables, views), &err) == QUIRE_OK &&
                  (tiering == NULL || kv_tiering_check(tiering, &err) == QUIRE_OK);
    for (int32_t i = 0; i < N_SEQS; i++) {
        agrees = agrees && (in_step || kv_seq_check(&cache, &users[i].kv, &err) == QUIRE_OK);
        for (int32_t f = users[i].kv.swap_frames; f != 0; f = cache.swap.next[f]) {
            n_frames++;
        }
    }
    if (!agrees) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(n_frames, cache.swap.n_frames);
    assert_true(in_step || (cache.state_copies.n == 0 && cache.state_copies.n_live == 0));
    if (!in_step) { /* within a step, a page on the copy list may be free already */
        poison_free_pages();
    }
}

/* ---- the reference: finds prefixes by trying every length on the device's pages ---- */

static inline bool is_indexed(page_id page) {
    return kv_pool_entry(cache.pool, page) >= 0;
}

static inline bool is_state_kept(uint64_t number) {
    for (int32_t i = 0; i < cache.n_state_pages; i++) {
        int32_t p = 0;
        while (p < cache.n_pages && (!is_indexed((page_id){p}) || gpu.pages[p][0] != state_word(number, i))) {
            p++;
        }
        if (p == cache.n_pages) {
            return false;
        }
    }
    return true;
}

/* Whether an indexed page holds u's tokens from..to - 1 for group g. */
static inline bool is_page_kept(const user *u, int32_t g, int32_t from, int32_t to) {
    for (int32_t p = 0; p < cache.n_pages; p++) {
        bool holds = is_indexed((page_id){p});
        for (int32_t k = from; k < to && holds; k++) {
            holds = gpu.pages[p][k % SIZE] == token_word(prefix_number(u, k + 1), g);
        }
        if (holds) {
            return true;
        }
    }
    return false;
}

/* Returns how many of u's first `limit` tokens are cached. is_sure: counts only what an
 * admission is sure to find: with windows it may miss a prefix that ends inside a page,
 * since it takes the sibling page with the longest match, even if only another
 * continues. */
static inline int32_t longest_kept(const user *u, int32_t limit, bool is_sure) {
    bool has_window = false;
    for (int32_t g = 0; g < cache.n_token_groups; g++) {
        has_window = has_window || cache.windows[g] > 0;
    }
    device_finish(&gpu);
    for (int32_t n = limit; n > 0; n--) {
        bool all = is_state_kept(prefix_number(u, n)) && !(is_sure && has_window && n % SIZE != 0);
        for (int32_t g = 0; g < cache.n_token_groups && all; g++) {
            int32_t first = kv_cache_first_seen(&cache, g, n);
            for (int32_t from = first - first % SIZE; from < n && all; from += SIZE) {
                all = is_page_kept(u, g, from, from + SIZE < n ? from + SIZE : n);
            }
        }
        if (all) {
            return n;
        }
    }
    return 0;
}

/* ---- opening and closing ---- */

static inline void count_promoted(void *context, kv_seq *s, int32_t n) {
    assert_true(context == &cache && s >= &users[0].kv && s <= &users[N_SEQS - 1].kv);
    counts.promoted += n;
}

static inline void open_tiers(int32_t host_bytes) {
    quire_error err = {.message = ""};
    kv_tiering_options o = {.tiers = {.shape = {.version = "v", .n_version = 1}, .host_bytes = host_bytes},
                            .max_tokens = LEN,
                            .on_promoted = count_promoted,
                            .context = &cache};
    if (kv_tiering_open(&cache, &o, &tiering, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

/* Opens the rival, a pool with pages of twice the size. */
static inline void open_rival(const state_options *o) {
    const int64_t page_bytes = 2 * mover.page_bytes;
    kv_budget_member m = {.page_bytes = page_bytes};
    assert_int_equal(kv_budget_open(o->n_pages * mover.page_bytes, &budget), QUIRE_OK);
    assert_int_equal(kv_budget_open_pool(budget, o->n_pages / 2, page_bytes, &rival), QUIRE_OK);
    m.pool = rival;
    assert_int_equal(kv_budget_join(budget, &m, &rival_member), QUIRE_OK);
}

static inline void rival_turn(void) {
    int32_t n = any(kv_pool_counts(rival).n_pages);
    while (n_rival > n) {
        kv_pool_release(rival, rival_pages[--n_rival]);
    }
    kv_budget_make_free(budget, rival_member, n - n_rival);
    if (kv_pool_reserve(rival, n - n_rival, rival_pages + n_rival) == QUIRE_OK) {
        n_rival = n;
    }
}

static inline void close_rival(void) {
    kv_pool_release_all(rival, rival_pages, n_rival);
    n_rival = 0;
    kv_budget_leave(budget, rival_member);
    kv_pool_close(rival);
    kv_budget_close(budget);
    budget = NULL;
}

static inline void open_world(const state_options *o) {
    static const int32_t public_tokens[N_PUBLIC];
    kv_cache_options k = {.n_pages = o->n_pages,
                          .page_tokens = SIZE,
                          .n_groups = o->n_groups,
                          .max_namespaces = 6,
                          .max_snapshots = o->max_snapshots,
                          .snapshot_tokens = o->interval,
                          .n_events = 16,
                          .seed = 1 + rng_next(&seed) % 1000,
                          .policy = o->policy,
                          .mover = &mover};
    memcpy(k.windows, o->windows, sizeof k.windows);
    memcpy(k.state_pages, o->state_pages, sizeof k.state_pages);
    memset(&gpu, 0, sizeof gpu);
    memset(is_poisoned, 0, sizeof is_poisoned);
    gpu.is_prompt = any(2) == 0;
    mover = device_mover(&gpu);
    if (o->has_rival) {
        open_rival(o);
        k.budget = budget;
        k.page_bytes = mover.page_bytes;
    }
    assert_int_equal(kv_cache_open(&k, &cache), QUIRE_OK);
    assert_int_equal(kv_cache_join(&cache), QUIRE_OK);
    assert_int_equal(kv_index_add_public(cache.index, "m", 1, public_tokens, N_PUBLIC), QUIRE_OK);
    if (o->n_frames > 0) {
        assert_int_equal(kv_cache_add_swap(&cache, o->n_frames * mover.page_bytes), QUIRE_OK);
    }
    if (o->host_bytes > 0) {
        open_tiers(o->host_bytes);
    }
    copies = (kv_copies){.cap = N_SEQS * (cache.n_token_groups + cache.n_state_pages)};
    copies.pairs = mem_new((size_t)copies.cap, sizeof *copies.pairs);
    for (int32_t i = 0; i < N_SEQS; i++) {
        users[i] = (user){.state = USER_OUT};
        assert_int_equal(kv_seq_init(&users[i].kv, o->n_groups, 1), QUIRE_OK);
    }
}

/* Ends all sequences, and checks that all pages and memory are released. */
static inline void close_world(void) {
    for (int32_t i = 0; i < N_SEQS; i++) {
        kv_seq *s = &users[i].kv;
        if (users[i].state != USER_OUT) {
            kv_tiering_forget(tiering, s);
            kv_seq_release(&cache, s, users[i].tokens, KV_KEEP);
            kv_seq_close(&cache, s);
            users[i].state = USER_OUT;
            audit(false);
        }
        kv_seq_deinit(s);
    }
    assert_int_equal(kv_pool_counts(cache.pool).n_held, 0);
    assert_int_equal(cache.swap.n_free, cache.swap.n_frames);
    kv_index_clear(cache.index);
    assert_int_equal(kv_pool_counts(cache.pool).n_free + kv_pool_counts(cache.pool).n_absent, cache.n_pages);
    assert_int_equal(kv_index_count(cache.index).n_snapshots, 0);
    assert_int_equal(kv_index_count(cache.index).n_entries, 0);
    kv_tiering_close(tiering);
    tiering = NULL;
    device_finish(&gpu);
    kv_cache_close(&cache);
    if (budget != NULL) {
        close_rival();
    }
    mem_free(copies.pairs);
}

#endif

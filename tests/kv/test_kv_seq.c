/* kv_seq as its users drive it, at random: full and window groups, forks, truncations,
 * releases and reuse in a pool that is often full. A memory keeps what slots hold, a
 * number made of the whole prefix up to the token; so a page that is shared, reused or
 * written wrongly is found by its content. The cache is audited after each operation. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "seed.h"

enum {
    N_SEQS = 5,
    N_PAGES = 40,
    SIZE = 2,
    LEN = 24,
    N_GROUPS = 2,
    WINDOW = 5,
    N_TOKENS = 2,
    N_OPERATIONS = 6000
};

typedef struct user {
    kv_seq kv;
    bool is_open, is_parked;
    int32_t n_known; /* of tokens */
    uint64_t own;    /* what its tokens from kv.share_limit on depend on besides, where that is not 0 */
    int32_t tokens[LEN];
} user;

static kv_cache cache;
static user users[N_SEQS];
static uint64_t slots[N_PAGES * SIZE * N_GROUPS];

/* What the slot of token i holds in group g. */
static uint64_t content(const user *u, int32_t g, int32_t i) {
    uint64_t h = (uint64_t)g + 1;
    h += u->kv.share_limit > 0 && i >= u->kv.share_limit ? u->own : 0;
    for (int32_t k = 0; k <= i; k++) {
        h = h * 0x9e3779b97f4a7c15u + (uint64_t)u->tokens[k] + 1;
    }
    return h;
}

static void audit(void) {
    const kv_table *tables[N_SEQS * N_GROUPS];
    int32_t n = 0;
    quire_error err = {0};
    for (int32_t i = 0; i < N_SEQS; i++) {
        const user *u = &users[i];
        n += kv_seq_list_tables(&u->kv, tables + n);
        assert_int_equal(kv_seq_check(&cache, &u->kv, &err), QUIRE_OK);
        for (int32_t g = 0; g < N_GROUPS; g++) {
            for (int32_t p = kv_cache_first_seen(&cache, g, u->kv.n_computed); p < u->kv.n_computed; p++) {
                assert_true(slots[kv_seq_slot(&cache, &u->kv, g, p)] == content(u, g, p));
            }
        }
    }
    assert_int_equal(kv_cache_check(&cache, tables, n, &err), QUIRE_OK);
}

static void copy_pages(const kv_copies *copies) {
    for (int32_t i = 0; i < copies->n; i++) {
        memcpy(slots + copies->pairs[i].dst.v * SIZE, slots + copies->pairs[i].src.v * SIZE,
               SIZE * sizeof *slots);
    }
}

/* Up to n more tokens are computed; false when there is no room, which must change
 * nothing. */
static bool compute(user *u, int32_t n) {
    kv_copies copies = {.pairs = mem_new(N_GROUPS, sizeof *copies.pairs), .cap = any(4) == 0 ? 0 : N_GROUPS};
    int32_t free_before, needs = (int32_t)kv_seq_needs(&cache, &u->kv, n), pages = kv_seq_pages(&u->kv);
    kv_cache_make_free(&cache, any(4) == 0 ? 0 : needs);
    free_before = kv_pool_counts(cache.pool).n_free;
    int32_t n_copied = kv_seq_copied(&cache, &u->kv);
    quire_err e = kv_seq_reserve(&cache, &u->kv, n, &copies);
    bool fits = free_before >= needs && n_copied <= copies.cap;
    assert_int_equal(e, fits ? QUIRE_OK : QUIRE_NO_ROOM);
    assert_int_equal(copies.n, fits ? n_copied : 0);
    assert_int_equal(kv_pool_counts(cache.pool).n_free, free_before - (e == QUIRE_OK ? needs : 0));
    assert_true(e == QUIRE_OK || (kv_seq_pages(&u->kv) == pages));
    copy_pages(&copies);
    mem_free(copies.pairs);
    if (e != QUIRE_OK) {
        return false;
    }
    int32_t n_written = any(n + 1); /* the rest is given back, as drafts are */
    for (int32_t g = 0; g < N_GROUPS; g++) {
        kv_slot at[LEN];
        kv_seq_slots(&cache, &u->kv, g, u->kv.n_computed, n_written, at);
        for (int32_t i = 0; i < n_written; i++) {
            slots[at[i].v] = content(u, g, u->kv.n_computed + i);
        }
    }
    kv_seq_advance(&u->kv, n_written);
    kv_seq_trim(&cache, &u->kv);
    if (any(4) > 0) {
        kv_seq_publish(&cache, &u->kv, u->tokens);
    }
    kv_seq_forget(&cache, &u->kv);
    return true;
}

/* A new sequence: the beginning of another's tokens, then random ones. */
static void enter(user *u) {
    const user *like = &users[any(N_SEQS)];
    int32_t n = 2 + any(LEN - 2), n_like = any(n);
    kv_held held;
    memmove(u->tokens, like->tokens, (size_t)n_like * sizeof *u->tokens);
    for (int32_t i = n_like; i < LEN; i++) {
        u->tokens[i] = any(N_TOKENS);
    }
    u->n_known = n;
    u->is_open = true;
    u->own = rng_next(&seed);
    u->kv.share_limit = any(3) == 0 ? 1 + any(LEN) : 0;
    assert_int_equal(kv_seq_open(&cache, &u->kv, "s", 1, any(2) ? "a" : "b", 1, u->tokens, n), QUIRE_OK);
    n = kv_seq_shareable(&u->kv, n - 1);
    int32_t n_found = kv_seq_peek(&cache, &u->kv, u->tokens, n, &held);
    assert_int_equal(kv_seq_admit(&cache, &u->kv, u->tokens, n), QUIRE_OK);
    assert_int_equal(u->kv.n_computed, n_found);
    assert_true(cache.index != NULL || n_found == 0);
}

static void leave(user *u) {
    kv_keep keep = any(4) == 0 ? KV_DROP : KV_KEEP;
    int32_t n_entries = cache.index != NULL ? kv_index_count(cache.index).n_entries : 0;
    kv_seq_release(&cache, &u->kv, u->tokens, keep);
    assert_int_equal(kv_seq_pages(&u->kv), 0);
    assert_true(keep == KV_KEEP || cache.index == NULL || kv_index_count(cache.index).n_entries <= n_entries);
    kv_seq_close(&cache, &u->kv);
    u->is_open = u->is_parked = false;
}

/* It holds what an admission of its tokens finds, and nothing else. */
static void park(user *u) {
    kv_held held;
    int32_t n = kv_seq_shareable(&u->kv, u->kv.n_computed), n_found;
    /* a page that is not all shareable is not published */
    int32_t n_least = n < u->kv.n_computed ? n - n % SIZE : n;
    assert_int_equal(kv_seq_park(&cache, &u->kv, u->tokens), QUIRE_OK);
    n_found = kv_seq_peek(&cache, &u->kv, u->tokens, n, &held);
    assert_int_equal(u->kv.n_computed, n_found);
    assert_true(n_found >= n_least || cache.windows[1] > 0 || cache.index == NULL);
    u->is_parked = true;
}

/* What is parked is found, whatever else was evicted, published and released. A group
 * with a window may have no page where another sequence went on from a part-filled
 * one. */
static void check_parked(user *u) {
    kv_held held;
    int32_t n = u->kv.n_computed, n_tail = n % SIZE;
    if (!u->is_parked || n == 0) {
        return;
    }
    if (n_tail > 0) {
        kv_index_follow_tail(cache.index, &u->kv.path, u->tokens + n - n_tail, n_tail, u->kv.tables);
    }
    assert_true(kv_seq_peek(&cache, &u->kv, u->tokens, n, &held) == n || cache.windows[1] > 0);
}

static void fork_to(user *to, const user *from) {
    int32_t n = any(from->kv.n_computed + 1);
    if (to->is_open || !kv_seq_can_truncate(&cache, &from->kv, n)) {
        return;
    }
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    to->own = from->own;
    to->kv.share_limit = from->kv.share_limit;
    to->n_known = n > 0 ? from->n_known : 1;
    kv_seq_fork(&cache, &from->kv, n, &to->kv);
    assert_int_equal(to->kv.n_computed, n);
    assert_int_equal(to->kv.has_path, from->kv.has_path);
    to->is_open = true;
    for (int32_t i = n; i < LEN; i++) { /* it goes on otherwise */
        to->tokens[i] = any(N_TOKENS);
    }
}

static void operate(void) {
    user *u = &users[any(N_SEQS)];
    if (!u->is_open) {
        enter(u);
        return;
    }
    if (u->is_parked) {
        if (any(5) == 0) {
            leave(u);
        } else if (any(5) == 0 && cache.index != NULL) {
            (void)kv_index_evict(cache.index, N_PAGES); /* all that is not held */
        }
        return;
    }
    int32_t left = LEN - u->kv.n_computed, n = any(u->kv.n_computed + 1);
    switch (any(9)) {
    case 0:
        leave(u);
        break;
    case 8:
        park(u);
        break;
    case 1:
        fork_to(&users[any(N_SEQS)], u);
        break;
    case 2:
        if (kv_seq_can_truncate(&cache, &u->kv, n)) {
            kv_seq_truncate(&cache, &u->kv, n);
            for (int32_t i = n; i < LEN; i++) {
                u->tokens[i] = any(N_TOKENS);
            }
        }
        break;
    case 3:
        (void)kv_seq_take_over(&cache, &u->kv);
        break;
    default:
        if (left > 0 && !compute(u, 1 + any(left < 9 ? left : 9)) && any(2)) {
            leave(u);
        }
    }
}

static void play(bool no_index, int32_t window) {
    kv_cache_options o = {.n_pages = N_PAGES,
                          .page_tokens = SIZE,
                          .n_groups = N_GROUPS,
                          .windows = {0, window},
                          .no_index = no_index,
                          .max_namespaces = 2,
                          .n_events = 16,
                          .seed = 1};
    assert_int_equal(kv_cache_open(&o, &cache), QUIRE_OK);
    for (int32_t i = 0; i < N_SEQS; i++) {
        users[i] = (user){0};
        assert_int_equal(kv_seq_init(&users[i].kv, N_GROUPS, LEN / SIZE + 1), QUIRE_OK);
    }
    for (int32_t k = 0; k < N_OPERATIONS; k++) {
        operate();
        for (int32_t i = 0; i < N_SEQS; i++) {
            check_parked(&users[i]);
        }
        audit();
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        kv_seq_release(&cache, &users[i].kv, users[i].tokens, KV_DROP);
        kv_seq_close(&cache, &users[i].kv);
        kv_seq_deinit(&users[i].kv);
    }
    assert_int_equal(kv_pool_counts(cache.pool).n_held, 0);
    kv_cache_close(&cache);
}

TEST(random_use_with_an_index_keeps_every_content) {
    play(false, WINDOW);
}

TEST(random_use_with_full_groups_keeps_every_content_and_all_that_is_parked) {
    play(false, 0);
}

TEST(random_use_without_an_index_keeps_every_content) {
    play(true, WINDOW);
}

TEST(options_that_no_cache_has_are_refused) {
    kv_cache c;
    kv_cache_options o = {
        .n_pages = 8, .page_tokens = 4, .n_groups = 2, .state_pages = {1, 0}, .max_namespaces = 1};
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_INVALID); /* tokens after states */
    o.state_pages[0] = 0;
    o.state_pages[1] = 9;
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_INVALID); /* a state that the pool does not hold */
    o.state_pages[1] = 0;
    o.windows[1] = -1;
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_INVALID);
    kv_cache_close(&c);
}

TEST_MAIN_SEEDED(NULL, NULL)

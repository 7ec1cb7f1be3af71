/* Sequences that are swapped out and in at random over a device behind the host: full,
 * window and state groups that share pages. What the device holds for each token, and
 * each state, is a number made of the whole prefix. The cache is audited after each
 * operation. */
#include <stdio.h>

#include "base/fault.h"
#include "base/mem.h"
#include "kv/kv_seq.h"
#include "kv/most_pages.h"
#include "mover_world.h"
#include "seed.h"

enum {
    N_SEQS = 4,
    N_PAGES = 48,
    LEN = 30,
    N_GROUPS = 3,
    STATE = 2,
    STATE_PAGES = 2,
    WINDOW = 6,
    N_OPERATIONS = 4000
};

typedef struct user {
    kv_seq kv;
    bool runs;
    int32_t tokens[LEN];
} user;

static kv_cache cache;
static device gpu;
static user users[N_SEQS];

/* What tokens[0..n) make of group g. */
static uint64_t content(const user *u, int32_t g, int32_t n) {
    uint64_t h = (uint64_t)g + 1;
    for (int32_t k = 0; k < n; k++) {
        h = h * 0x9e3779b97f4a7c15u + (uint64_t)u->tokens[k] + 1;
    }
    return h;
}

/* Token p in the groups of tokens; the state after it. */
static void store_token(const user *u, int32_t p) {
    for (int32_t g = 0; g < STATE; g++) {
        device_store(&gpu, u->kv.tables[g].pages[p / PAGE_WORDS].v, p % PAGE_WORDS, content(u, g, p + 1));
    }
    for (int32_t i = 0; i < u->kv.tables[STATE].n_pages; i++) {
        device_store(&gpu, u->kv.tables[STATE].pages[i].v, i, content(u, STATE, p + 1));
    }
}

static void check_content(const user *u) {
    device_finish(&gpu);
    for (int32_t g = 0; g < STATE; g++) {
        for (int32_t p = kv_cache_first_seen(&cache, g, u->kv.n_computed); p < u->kv.n_computed; p++) {
            assert_true(gpu.pages[u->kv.tables[g].pages[p / PAGE_WORDS].v][p % PAGE_WORDS] ==
                        content(u, g, p + 1));
        }
    }
    for (int32_t i = 0; u->kv.n_computed > 0 && i < STATE_PAGES; i++) {
        assert_true(gpu.pages[u->kv.tables[STATE].pages[i].v][i] == content(u, STATE, u->kv.n_computed));
    }
}

static void audit(void) {
    const kv_table *tables[N_SEQS * N_GROUPS];
    int32_t n = 0, n_frames = cache.swap.n_free;
    quire_error err = {0};
    for (int32_t i = 0; i < N_SEQS; i++) {
        n += kv_seq_list_tables(&users[i].kv, tables + n);
        assert_int_equal(kv_seq_check(&cache, &users[i].kv, &err), QUIRE_OK);
        for (int32_t f = users[i].kv.swap_frames; f != 0; f = cache.swap.next[f]) {
            n_frames++;
        }
    }
    assert_int_equal(kv_cache_check(&cache, tables, n, &err), QUIRE_OK);
    assert_int_equal(n_frames, cache.swap.n_frames);
}

/* Its pages, without holes behind windows. */
static int32_t pages_held(const kv_seq *s) {
    int32_t n = 0;
    for (int32_t g = 0; g < s->n_tables; g++) {
        for (int32_t i = 0; i < s->tables[g].n_pages; i++) {
            n += s->tables[g].pages[i].v != PAGE_NONE.v;
        }
    }
    return n;
}

/* Computes up to n more tokens, as far as there is room. */
static void compute(user *u, int32_t n) {
    kv_copies copies = {.pairs = mem_new(N_GROUPS * STATE_PAGES, sizeof *copies.pairs),
                        .cap = N_GROUPS * STATE_PAGES};
    n = n < LEN - u->kv.n_computed ? n : LEN - u->kv.n_computed;
    kv_cache_make_free(&cache, (int32_t)kv_seq_needs(&cache, &u->kv, n));
    if (n > 0 && kv_seq_reserve(&cache, &u->kv, n, &copies) == QUIRE_OK) {
        device_copy(&gpu, &copies);
        for (int32_t p = u->kv.n_computed; p < u->kv.n_computed + n; p++) {
            store_token(u, p);
        }
        kv_seq_advance(&u->kv, n);
        kv_seq_publish(&cache, &u->kv, u->tokens);
        if (any(3) == 0) {
            kv_seq_snapshot(&cache, &u->kv, u->tokens, false, &copies);
        }
        kv_seq_forget(&cache, &u->kv);
    }
    mem_free(copies.pairs);
}

/* Returns whether its pages were kept. */
static bool preempt(user *u) {
    int32_t from, n_free = cache.swap.n_free, n = kv_seq_swap_pages(&cache, &u->kv, &from);
    kv_swapped did = kv_seq_swap_out(&cache, &u->kv, from);
    assert_int_equal(from, 0); /* there are states */
    assert_int_equal(did.n_pages, n <= n_free ? n : 0);
    assert_int_equal(cache.swap.n_free, n_free - did.n_pages);
    kv_seq_release(&cache, &u->kv, u->tokens, KV_KEEP);
    u->runs = false;
    return did.n_pages > 0;
}

/* Swaps s in; in debug builds its reservation fails now and then. */
static kv_swapped swap_in_perhaps(kv_cache *c, kv_seq *s, bool fails, bool *failed) {
#ifdef QUIRE_DEBUG
    fault_at(fails ? 1 : 0);
    kv_swapped did = kv_seq_swap_in(c, s);
    *failed = fails && fault_happened();
    fault_at(0);
    return did;
#else
    (void)fails;
    *failed = false;
    return kv_seq_swap_in(c, s);
#endif
}

static void admit(user *u, bool was_kept) {
    kv_held held;
    int32_t n_swapped = u->kv.swap_tokens;
    int32_t n_cached = kv_seq_peek(&cache, &u->kv, u->tokens, LEN - 1, &held),
            n_peeked = kv_seq_swap_peek(&cache, &u->kv, n_cached);
    assert_int_equal(n_peeked, was_kept && n_swapped > n_cached ? n_swapped : n_cached);
    assert_int_equal(kv_seq_admit(&cache, &u->kv, u->tokens, LEN - 1), QUIRE_OK);
    assert_int_equal(u->kv.n_computed, n_cached);
    const kv_most most = kv_most_of_cache(&cache, 1); /* it takes no page behind its window */
    bool has_room = kv_cache_available(&cache) >= kv_most_pages(&most, n_peeked);
    bool failed;
    kv_swapped did = swap_in_perhaps(&cache, &u->kv, any(4) == 0, &failed);
    assert_true(did.n_pages == 0 || pages_held(&u->kv) <= kv_most_pages(&most, n_peeked));
    assert_true(did.n_pages > 0 || n_peeked == n_cached || !has_room || failed);
    assert_true(did.n_pages == 0 || !failed);
    assert_int_equal(u->kv.swap_frames, 0);
    assert_int_equal(u->kv.n_computed, did.n_pages > 0 ? n_peeked : did.n_found);
    assert_true(did.n_found <= n_cached);
    u->runs = true;
}

static void step(user *u) {
    if (!u->runs) {
        admit(u, u->kv.swap_frames != 0);
        check_content(u);
    } else if (u->kv.n_computed == LEN || any(12) == 0) {
        /* another one begins; frames may be left where it was preempted */
        kv_seq_release(&cache, &u->kv, u->tokens, KV_KEEP);
        kv_seq_close(&cache, &u->kv);
        for (int32_t i = any(LEN); i < LEN; i++) {
            u->tokens[i] = any(2);
        }
        assert_int_equal(kv_seq_open(&cache, &u->kv, "s", 1, "a", 1, u->tokens, LEN), QUIRE_OK);
        u->runs = false;
    } else if (u->kv.n_computed > 0 && any(3) == 0) {
        (void)preempt(u);
    } else {
        compute(u, 1 + any(7));
    }
}

static void open_cache(int64_t n_frames, bool is_prompt) {
    static kv_mover mover;
    kv_cache_options o = {.n_pages = N_PAGES,
                          .page_tokens = PAGE_WORDS,
                          .n_groups = N_GROUPS,
                          .windows = {0, WINDOW, 0},
                          .state_pages = {0, 0, STATE_PAGES},
                          .max_namespaces = 2,
                          .seed = 1,
                          .mover = &mover};
    gpu.is_prompt = is_prompt;
    mover = device_mover(&gpu);
    assert_int_equal(kv_cache_open(&o, &cache), QUIRE_OK);
    assert_int_equal(kv_cache_add_swap(&cache, n_frames * mover.page_bytes), QUIRE_OK);
    for (int32_t i = 0; i < N_SEQS; i++) {
        users[i] = (user){0};
        assert_int_equal(kv_seq_init(&users[i].kv, N_GROUPS, LEN / PAGE_WORDS + 1), QUIRE_OK);
        assert_int_equal(kv_seq_open(&cache, &users[i].kv, "s", 1, "a", 1, users[i].tokens, LEN), QUIRE_OK);
    }
}

static void close_cache(void) {
    for (int32_t i = 0; i < N_SEQS; i++) {
        kv_seq_release(&cache, &users[i].kv, users[i].tokens, KV_KEEP);
        kv_seq_close(&cache, &users[i].kv);
        kv_seq_deinit(&users[i].kv);
    }
    assert_int_equal(cache.swap.n_free, cache.swap.n_frames);
    kv_cache_close(&cache);
    for (; gpu.n_done < gpu.n_given; device_do(&gpu)) { /* what is left touches no frame */
        assert_null(gpu.calls[gpu.n_done % DEVICE_CALLS].host);
    }
}

TEST(what_is_swapped_in_is_what_was_swapped_out) {
    for (int is_prompt = 0; is_prompt < 2; is_prompt++) {
        open_cache(24, is_prompt == 1);
        for (int32_t i = 0; i < N_OPERATIONS; i++) {
            step(&users[any(N_SEQS)]);
            audit();
        }
        close_cache();
    }
}

/* A frame is taken again while the device has not yet read or written what it held
 * before. */
TEST(frames_are_taken_again_before_the_device_is_done) {
    open_cache(10, false);
    for (int round = 0; round < 50; round++) {
        user *u = &users[round % 2];
        admit(u, u->kv.swap_frames != 0);
        compute(u, 5);
        assert_true(preempt(u));
        audit();
        admit(u, true);
        check_content(u);
        kv_seq_release(&cache, &u->kv, u->tokens, KV_DROP);
        kv_cache_make_free(&cache, N_PAGES);
        u->runs = false;
        u->tokens[0] = any(100);
        audit();
    }
    admit(&users[0], false);
    compute(&users[0], 9);
    assert_true(preempt(&users[0]));
    assert_true(gpu.n_done < gpu.n_given);
    close_cache();
}

TEST(a_probe_reads_and_writes_each_frame) {
    int64_t read_us, write_us;
    open_cache(5, false);
    uint64_t n_given = gpu.n_given;
    assert_int_equal(kv_swap_probe(&cache.swap, 16, &read_us, &write_us), 5);
    assert_int_equal(gpu.n_given - n_given, 10);
    assert_true(read_us >= 0 && write_us >= 0);
    close_cache();
    open_cache(0, false);
    assert_int_equal(kv_swap_probe(&cache.swap, 16, &read_us, &write_us), 0);
    close_cache();
}

enum { N_TABLES = 2, N_PLAIN = 3 };

/* Audits c and its sequences, which have no states. */
static void check_plain(const kv_cache *c, const kv_seq *s) {
    const kv_table *tables[N_PLAIN * N_TABLES];
    int32_t n = 0;
    quire_error err = {0};
    for (int32_t i = 0; i < N_PLAIN; i++) {
        n += kv_seq_list_tables(&s[i], tables + n);
        assert_int_equal(kv_seq_check(c, &s[i], &err), QUIRE_OK);
    }
    assert_int_equal(kv_cache_check(c, tables, n, &err), QUIRE_OK);
}

static void compute_plain(kv_cache *c, kv_seq *s, int32_t n) {
    kv_copies none = {0};
    assert_int_equal(kv_seq_reserve(c, s, n, &none), QUIRE_OK);
    kv_seq_advance(s, n);
}

/* Leaves in c what an admission of tokens[0..n) finds, which ends within a page; the
 * window has a hole behind the whole pages. */
static void leave_cached(kv_cache *c, kv_seq *all, kv_seq *s, const int32_t *tokens, int32_t n) {
    compute_plain(c, s, n);
    kv_seq_publish(c, s, tokens);
    kv_seq_forget(c, s);
    check_plain(c, all);
    assert_int_equal(kv_pool_counts(c->pool).n_cached, 4); /* those behind its window */
    assert_int_equal(kv_index_evict(c->index, kv_cache_available(c)), QUIRE_OK);
    check_plain(c, all);
    kv_seq_release(c, s, tokens, KV_KEEP);
    check_plain(c, all);
}

/* Another sequence takes the pages between the plan and the admission. What was found in
 * the cache is then of no use: its end within a page is given up, and before that a
 * window has a hole. */
TEST(a_swap_in_without_room_leaves_no_hole_in_a_window) {
    enum { N_OWN = 30, N_SHARED = 22, N_OTHER = 24 };
    static kv_mover mover;
    int32_t own[N_OWN], other[N_OTHER], from;
    kv_cache c;
    /* the one that is swapped, one with the same beginning, and the one that takes the
     * pages */
    kv_seq s[N_PLAIN];
    kv_held held;
    gpu.is_prompt = true;
    mover = device_mover(&gpu);
    kv_cache_options o = {.n_pages = N_PAGES,
                          .page_tokens = PAGE_WORDS,
                          .n_groups = N_TABLES,
                          .windows = {0, WINDOW},
                          .max_namespaces = 2,
                          .seed = 1,
                          .mover = &mover};
    assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
    assert_int_equal(kv_cache_add_swap(&c, 16 * mover.page_bytes), QUIRE_OK);
    for (int32_t i = 0; i < N_OWN; i++) {
        own[i] = i;
    }
    for (int32_t i = 0; i < N_OTHER; i++) {
        other[i] = i < N_SHARED ? i : 100 + i;
    }
    for (int32_t i = 0; i < N_PLAIN; i++) {
        assert_int_equal(kv_seq_init(&s[i], N_TABLES, N_PAGES), QUIRE_OK);
    }
    assert_int_equal(kv_seq_open(&c, &s[0], "s", 1, "a", 1, own, N_OWN), QUIRE_OK);
    assert_int_equal(kv_seq_open(&c, &s[1], "s", 1, "a", 1, other, N_OTHER), QUIRE_OK);
    compute_plain(&c, &s[0], N_OWN);
    kv_seq_forget(&c, &s[0]);
    check_plain(&c, s);
    assert_int_equal(kv_seq_swap_pages(&c, &s[0], &from), 8 + 2);
    assert_int_equal(kv_seq_swap_out(&c, &s[0], from).n_pages, 8 + 2);
    kv_seq_release(&c, &s[0], own, KV_DROP);
    check_plain(&c, s);
    leave_cached(&c, s, &s[1], other, N_OTHER);
    assert_int_equal(kv_seq_peek(&c, &s[0], own, N_OWN, &held), N_SHARED);
    assert_int_equal(kv_seq_swap_peek(&c, &s[0], N_SHARED), N_OWN);
    compute_plain(&c, &s[2], kv_pool_counts(c.pool).n_free / N_TABLES * PAGE_WORDS);
    check_plain(&c, s);
    assert_int_equal(kv_seq_admit(&c, &s[0], own, N_OWN), QUIRE_OK);
    assert_int_equal(s[0].n_computed, N_SHARED);
    kv_swapped did = kv_seq_swap_in(&c, &s[0]);
    assert_true(did.n_pages == 0 && did.n_found == 0);
    assert_true(kv_seq_sees_back(&c, &s[0], s[0].n_computed));
    assert_int_equal(kv_seq_pages(&s[0]), 0);
    check_plain(&c, s);
    for (int32_t i = 0; i < N_PLAIN; i++) {
        kv_seq_release(&c, &s[i], own, KV_DROP);
        kv_seq_close(&c, &s[i]);
        kv_seq_deinit(&s[i]);
    }
    kv_cache_close(&c);
}

/* The pages that a swap in has counted on are gone when it reserves them. What the cache
 * had is left, with whole pages and without holes. */
TEST(a_swap_in_whose_reservation_fails_leaves_what_was_found) {
    enum { N_OWN = 30, N_KEPT = 9 };
    static kv_mover mover;
    gpu.is_prompt = true;
    mover = device_mover(&gpu);
    for (int32_t n_groups = 1; n_groups <= N_TABLES; n_groups++) {
        int32_t own[N_OWN], from;
        kv_cache c;
        kv_seq s;
        kv_cache_options o = {.n_pages = N_PAGES,
                              .page_tokens = PAGE_WORDS,
                              .n_groups = n_groups,
                              .windows = {0, WINDOW},
                              .max_namespaces = 2,
                              .seed = 1,
                              .mover = &mover};
        assert_int_equal(kv_cache_open(&o, &c), QUIRE_OK);
        assert_int_equal(kv_cache_add_swap(&c, 32 * mover.page_bytes), QUIRE_OK);
        for (int32_t i = 0; i < N_OWN; i++) {
            own[i] = i;
        }
        assert_int_equal(kv_seq_init(&s, n_groups, N_PAGES), QUIRE_OK);
        assert_int_equal(kv_seq_open(&c, &s, "s", 1, "a", 1, own, N_OWN), QUIRE_OK);
        compute_plain(&c, &s, N_KEPT);
        kv_seq_publish(&c, &s, own);
        compute_plain(&c, &s, N_OWN - N_KEPT); /* not published */
        kv_seq_forget(&c, &s);
        int32_t n_pages = kv_seq_swap_pages(&c, &s, &from);
        assert_int_equal(kv_seq_swap_out(&c, &s, from).n_pages, n_pages);
        kv_seq_release(&c, &s, own, KV_DROP);
        assert_int_equal(kv_seq_admit(&c, &s, own, N_OWN), QUIRE_OK);
        assert_true(s.n_computed > 0);
        bool failed;
        kv_swapped did = swap_in_perhaps(&c, &s, true, &failed);
        const kv_table *tables[N_TABLES];
        quire_error err = {0};
        assert_int_equal(kv_seq_check(&c, &s, &err), QUIRE_OK);
        assert_int_equal(kv_cache_check(&c, tables, kv_seq_list_tables(&s, tables), &err), QUIRE_OK);
        assert_int_equal(did.n_pages > 0, !failed);
        assert_int_equal(s.n_computed, failed ? did.n_found : N_OWN);
        assert_true(kv_seq_sees_back(&c, &s, s.n_computed));
        assert_true(s.tables[0].n_tokens == s.n_computed);
        kv_seq_release(&c, &s, own, KV_DROP);
        kv_seq_close(&c, &s);
        kv_seq_deinit(&s);
        kv_cache_close(&c);
    }
}

TEST_MAIN_SEEDED(NULL, NULL)

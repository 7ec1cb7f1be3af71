/* Pools that share a memory budget, at random: two to four caches whose pages differ in
 * size, with full and window groups, forks, reuse and releases, some with floors and fixed
 * parts that come and go, one of which is spare and has no index. Beside them plain
 * models: what slots hold, a number made of the whole prefix, which a discard destroys;
 * and how many pages a cache could have, counted page by page. Caches and budget are
 * audited after each operation. 150,000 operations, with QUIRE_TEST_LONG 1,500,000 (fewer
 * under a sanitizer). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kv/kv_seq.h"
#include "kv/most_pages.h"
#include "seed.h"

enum {
    MAX_POOLS = 4,
    N_SEQS = 4,
    SIZE = 2,
    LEN = 24,
    N_GROUPS = 2,
    WINDOW = 5,
    N_TOKENS = 2,
    MOST_PAGES = 256
};

#define BUDGET 1900 /* bytes; granules of 29 */

typedef struct user {
    kv_seq kv;
    bool is_open;
    int32_t tokens[LEN];
} user;

typedef struct world {
    kv_cache cache;
    kv_mover mover;
    int64_t page_bytes;
    int32_t n_pages, floor_pages;
    int64_t fixed_bytes;
    bool is_member, yields, claims, may_leave;
    user users[N_SEQS];
    uint64_t slots[MOST_PAGES * SIZE];
    bool discarded[MOST_PAGES];
} world;

static kv_budget *budget;
static world worlds[MAX_POOLS];
static int32_t n_worlds;

/* ---- the plain models ---- */

/* What the slot of token i holds in group g. */
static uint64_t content(const user *u, int32_t g, int32_t i) {
    uint64_t h = (uint64_t)g + 1;
    for (int32_t k = 0; k <= i; k++) {
        h = h * 0x9e3779b97f4a7c15u + (uint64_t)u->tokens[k] + 1;
    }
    return h;
}

static bool discard(void *context, page_id first, int32_t n) {
    world *w = context;
    memset(w->slots + first.v * SIZE, 0xDD, (size_t)(n * SIZE) * sizeof *w->slots);
    for (int32_t i = first.v; i < first.v + n; i++) {
        w->discarded[i] = true;
    }
    return true;
}

/* Pages of a granule: the budget is 64 of them at least. */
static int32_t granule_of(const world *w) {
    int64_t bytes = BUDGET / 64;
    int32_t n = (int32_t)((bytes + w->page_bytes - 1) / w->page_bytes);
    return n < w->n_pages ? n : w->n_pages;
}

typedef struct tally {
    int32_t n_free, n_cached, n_held, n_absent, n_idle, n_with_held, n_whole, n_rest;
} tally;

/* Counts page by page: idle are those of resident granules without a held page,
 * n_with_held those beside a held one, and not held; n_whole, n_rest: absent granules of
 * full size, and pages of an absent shorter one. */
static tally count(const world *w) {
    tally t = {0};
    const kv_pool *pool = w->cache.pool;
    int32_t size = granule_of(w);
    for (int32_t first = 0, g = 0; first < w->n_pages; first += size, g++) {
        int32_t n = w->n_pages - first < size ? w->n_pages - first : size, n_held = 0;
        bool is_absent = !kv_pool_granule(pool, g).is_resident;
        for (int32_t page = first; page < first + n; page++) {
            bool is_held = kv_pool_count(pool, (page_id){page}) > 0,
                 is_indexed = kv_pool_entry(pool, (page_id){page}) >= 0;
            assert_false(is_absent && (is_held || is_indexed));
            n_held += is_held;
            t.n_cached += !is_held && is_indexed;
            t.n_free += !is_absent && !is_held && !is_indexed;
        }
        t.n_held += n_held;
        t.n_absent += is_absent ? n : 0;
        t.n_idle += !is_absent && n_held == 0 ? n : 0;
        t.n_with_held += n_held > 0 ? n - n_held : 0;
        t.n_whole += is_absent && n == size;
        t.n_rest += is_absent && n < size ? n : 0;
    }
    return t;
}

static int64_t resident(const world *w, const tally *t) {
    return (w->n_pages - t->n_absent) * w->page_bytes;
}

/* Its floor: whole granules. */
static int64_t floor_of(const world *w) {
    int32_t size = granule_of(w), n = (w->floor_pages + size - 1) / size * size;
    return (n < w->n_pages ? n : w->n_pages) * w->page_bytes;
}

static bool is_spare(const world *w) {
    return w->yields && w->floor_pages == 0;
}

/* Memory that w could have besides its own; negative: what it has and may not hold. */
static int64_t could_take(const world *w) {
    tally own = count(w);
    int64_t mine = resident(w, &own), at_most = BUDGET - w->fixed_bytes, sure = at_most;
    for (int32_t i = 0; i < n_worlds; i++) {
        const world *o = &worlds[i];
        if (o == w || !o->is_member) {
            continue;
        }
        tally t = count(o);
        int64_t held = (t.n_held + t.n_with_held) * o->page_bytes, floor = floor_of(o);
        int64_t claimed = o->claims && floor > held ? floor : held, kept = is_spare(o)                 ? 0
                                                                           : o->yields && floor < held ? floor
                                                                                                       : held;
        at_most -= o->fixed_bytes + (is_spare(w) ? held : is_spare(o) ? 0 : claimed);
        sure -= o->fixed_bytes + kept;
    }
    sure = sure < floor_of(w) ? sure : floor_of(w);
    return (!is_spare(w) && sure > at_most ? sure : at_most) - mine;
}

/* How many pages w could have free: the best of all choices of absent granules. */
static int32_t could_have(const world *w) {
    tally own = count(w);
    int64_t bytes = could_take(w);
    int32_t best = 0, given = 0;
    for (; given < own.n_idle && given * w->page_bytes < -bytes; given += granule_of(w)) {
    }
    for (int32_t whole = 0; whole <= own.n_whole; whole++) {
        for (int32_t rest = 0; rest <= own.n_rest; rest += own.n_rest > 0 ? own.n_rest : 1) {
            int32_t n = whole * granule_of(w) + rest;
            best = n * w->page_bytes <= bytes && n > best ? n : best;
        }
    }
    return own.n_free + own.n_cached + best - (given < own.n_idle ? given : own.n_idle);
}

/* A page of the full group has all pages before it. */
static void check_entry(const kv_index_entry *e, void *index) {
    if (e->pages[0] >= 0 && e->up >= 0) {
        assert_true(kv_index_describe(index, e->up).pages[0] >= 0);
    }
}

static void audit(void) {
    int64_t used = 0, promised = 0;
    for (int32_t i = 0; i < n_worlds; i++) {
        world *w = &worlds[i];
        if (!w->is_member) {
            continue;
        }
        const kv_table *tables[N_SEQS * N_GROUPS];
        int32_t n = 0;
        quire_error err = {0};
        for (int32_t k = 0; k < N_SEQS; k++) {
            const user *u = &w->users[k];
            n += kv_seq_list_tables(&u->kv, tables + n);
            assert_int_equal(kv_seq_check(&w->cache, &u->kv, &err), QUIRE_OK);
            for (int32_t g = 0; g < N_GROUPS; g++) {
                for (int32_t p = kv_cache_first_seen(&w->cache, g, u->kv.n_computed); p < u->kv.n_computed;
                     p++) {
                    assert_true(w->slots[kv_seq_slot(&w->cache, &u->kv, g, p)] == content(u, g, p));
                }
            }
        }
        if (kv_cache_check(&w->cache, tables, n, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
        if (w->cache.index != NULL) {
            assert_int_equal(kv_index_visit(w->cache.index, check_entry, w->cache.index), QUIRE_OK);
        }
        tally t = count(w);
        kv_counts c = kv_pool_counts(w->cache.pool);
        assert_int_equal(c.n_free + c.n_held + c.n_cached + c.n_absent, c.n_pages);
        assert_true(c.n_free == t.n_free && c.n_cached == t.n_cached && c.n_absent == t.n_absent);
        assert_int_equal(kv_budget_resident(budget, w->cache.member), resident(w, &t));
        used += resident(w, &t) + w->fixed_bytes;
        promised += floor_of(w) + w->fixed_bytes;
    }
    assert_int_equal(kv_budget_count(budget).used_bytes, used);
    assert_int_equal(kv_budget_count(budget).promised_bytes, promised);
    assert_true(used <= BUDGET && promised <= BUDGET);
}

/* ---- sequences ---- */

static void close_user(world *w, user *u, kv_keep keep) {
    kv_seq_release(&w->cache, &u->kv, u->tokens, keep);
    kv_seq_close(&w->cache, &u->kv);
    u->is_open = false;
}

static int32_t n_preempted; /* sequences of pools with floors that yielded */

static bool yield(void *context) {
    world *w = context;
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (kv_seq_pages(&w->users[i].kv) > 0) {
            close_user(w, &w->users[i], KV_DROP);
            n_preempted += !is_spare(w);
            return true;
        }
    }
    return false;
}

/* Gets room for n pages, and finds that there is as much as could be: more only where a
 * sequence was preempted, with all of its pages, or where the pool had too much. Of that
 * it keeps no granule without a held page. */
static void make_free(world *w, int32_t n) {
    int32_t most = kv_cache_available(&w->cache);
    bool has_too_much = could_take(w) < 0;
    int32_t n_before = n_preempted;
    assert_int_equal(most, could_have(w));
    kv_cache_make_free(&w->cache, n);
    int32_t n_free = kv_pool_counts(w->cache.pool).n_free;
    assert_true(n_free >= (n < most ? n : most));
    assert_true(n <= most || n_free == most || has_too_much || n_preempted > n_before);
    assert_true(could_take(w) >= 0 || count(w).n_idle == 0);
}

/* Up to n more tokens are computed in free pages; false when there is no room, which must
 * change nothing. */
static bool compute_in_free(world *w, user *u, int32_t n) {
    kv_copies copies = {.pairs = mem_new(N_GROUPS, sizeof *copies.pairs), .cap = N_GROUPS};
    int32_t needs = (int32_t)kv_seq_needs(&w->cache, &u->kv, n);
    int32_t n_free = kv_pool_counts(w->cache.pool).n_free, pages = kv_seq_pages(&u->kv);
    quire_err e = kv_seq_reserve(&w->cache, &u->kv, n, &copies);
    assert_int_equal(e, n_free >= needs ? QUIRE_OK : QUIRE_NO_ROOM);
    assert_true(e == QUIRE_OK || kv_seq_pages(&u->kv) == pages);
    for (int32_t i = 0; i < copies.n; i++) {
        memcpy(w->slots + copies.pairs[i].dst.v * SIZE, w->slots + copies.pairs[i].src.v * SIZE,
               SIZE * sizeof *w->slots);
    }
    mem_free(copies.pairs);
    if (e != QUIRE_OK) {
        return false;
    }
    for (int32_t g = 0; g < N_GROUPS; g++) {
        kv_slot at[LEN];
        kv_seq_slots(&w->cache, &u->kv, g, u->kv.n_computed, n, at);
        for (int32_t i = 0; i < n; i++) {
            w->slots[at[i].v] = content(u, g, u->kv.n_computed + i);
        }
    }
    kv_seq_advance(&u->kv, n);
    kv_seq_publish(&w->cache, &u->kv, u->tokens);
    kv_seq_forget(&w->cache, &u->kv);
    return true;
}

/* The same, in pages that are made free, mostly. */
static bool compute(world *w, user *u, int32_t n) {
    int32_t needs = (int32_t)kv_seq_needs(&w->cache, &u->kv, n);
    make_free(w, any(4) == 0 ? 0 : needs);
    return compute_in_free(w, u, n);
}

/* A new sequence: the beginning of another's tokens, then random ones. */
static void enter(world *w, user *u) {
    const user *like = &w->users[any(N_SEQS)];
    int32_t n = 2 + any(LEN - 2), n_like = any(n);
    memmove(u->tokens, like->tokens, (size_t)n_like * sizeof *u->tokens);
    for (int32_t i = n_like; i < LEN; i++) {
        u->tokens[i] = any(N_TOKENS);
    }
    u->is_open = true;
    assert_int_equal(kv_seq_open(&w->cache, &u->kv, "s", 1, any(2) ? "a" : "b", 1, u->tokens, n), QUIRE_OK);
    if (u->kv.has_path && any(8) == 0) {
        kv_retention r = {.priority = any(101), .ttl_us = any(2) ? 0 : 1 + any(100)};
        assert_int_equal(kv_index_retain(w->cache.index, &u->kv.path, &r), QUIRE_OK);
    }
    assert_int_equal(kv_seq_admit(&w->cache, &u->kv, u->tokens, n - 1), QUIRE_OK);
}

static void fork_to(world *w, user *to, const user *from) {
    int32_t n = any(from->kv.n_computed + 1);
    if (to->is_open || !kv_seq_can_truncate(&w->cache, &from->kv, n)) {
        return;
    }
    memcpy(to->tokens, from->tokens, sizeof to->tokens);
    kv_seq_fork(&w->cache, &from->kv, n, &to->kv);
    to->is_open = true;
    for (int32_t i = n; i < LEN; i++) { /* it goes on otherwise */
        to->tokens[i] = any(N_TOKENS);
    }
}

static void come_or_go(world *w);

/* All pools but this one take what they can get. */
static void hoard(const world *but) {
    for (int32_t i = 0; i < n_worlds; i++) {
        world *w = &worlds[i];
        bool has_room = w->is_member && w != but;
        for (int32_t k = 0; k < N_SEQS && has_room; k++) {
            user *u = &w->users[k];
            if (!u->is_open) {
                enter(w, u);
            }
            while (has_room && u->kv.n_computed < LEN) {
                make_free(w, (int32_t)kv_seq_needs(&w->cache, &u->kv, 1));
                has_room = compute_in_free(w, u, 1);
            }
        }
    }
}

/* A sequence that is alone in its pool can become as long as the floor is large, whatever
 * others hold. */
static void fill_floor(world *w) {
    user *u = &w->users[0];
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (w->users[i].is_open) {
            close_user(w, &w->users[i], KV_DROP);
        }
    }
    const kv_most most = kv_most_of_cache(&w->cache, 1);
    int64_t fits = kv_most_tokens(&most, floor_of(w) / w->page_bytes);
    enter(w, u);
    while (u->kv.n_computed < (fits < LEN ? fits : LEN)) {
        make_free(w, (int32_t)kv_seq_needs(&w->cache, &u->kv, 1));
        assert_true(compute_in_free(w, u, 1));
    }
}

static void operate(int32_t k) {
    world *w = &worlds[any(n_worlds)];
    user *u = &w->users[any(N_SEQS)];
    if (w->may_leave && any(200) == 0) {
        hoard(any(2) ? w : NULL);
        come_or_go(w);
        return;
    }
    if (!w->is_member) {
        return;
    }
    kv_cache_set_time(&w->cache, k);
    if (w->floor_pages > 0 && any(8) == 0) {
        w->claims = any(2) == 0;
        kv_budget_claim(budget, w->cache.member, w->claims);
        return;
    }
    if (w->floor_pages > 0 && any(100) == 0) {
        kv_budget_claim(budget, w->cache.member, w->claims = false);
        hoard(w);
        kv_budget_claim(budget, w->cache.member, w->claims = true);
        fill_floor(w);
        return;
    }
    if (!u->is_open) {
        enter(w, u);
        return;
    }
    int32_t left = LEN - u->kv.n_computed, n_dropped;
    switch (any(40)) {
    case 0:
        assert_true(kv_cache_drop(&w->cache, &n_dropped));
        assert_int_equal(kv_pool_counts(w->cache.pool).n_cached, 0);
        assert_int_equal(count(w).n_idle, 0);
        break;
    case 1:
        make_free(w, any(w->n_pages + 1));
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        fork_to(w, &w->users[any(N_SEQS)], u);
        break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
        close_user(w, u, any(4) == 0 ? KV_DROP : KV_KEEP);
        break;
    default:
        if (left > 0 && !compute(w, u, 1 + any(left < 9 ? left : 9)) && any(2) && u->is_open) {
            close_user(w, u, KV_KEEP);
        }
    }
}

/* ---- the random tests ---- */

static kv_cache_options options_of(world *w) {
    return (kv_cache_options){.n_pages = w->n_pages,
                              .page_tokens = SIZE,
                              .n_groups = N_GROUPS,
                              .windows = {0, WINDOW},
                              .no_index = is_spare(w),
                              .max_namespaces = 8,
                              .n_events = 16,
                              .seed = 1,
                              .policy = w == &worlds[1] ? KV_EVICT_GDSF : KV_EVICT_LRU,
                              .mover = &w->mover,
                              .budget = budget,
                              .page_bytes = w->page_bytes,
                              .floor_pages = w->floor_pages,
                              .fixed_bytes = w->fixed_bytes,
                              .yield = w->yields ? yield : NULL,
                              .yield_context = w};
}

static quire_err open_world(world *w, world like) {
    *w = like;
    w->mover = (kv_mover){.context = w, .page_bytes = w->page_bytes, .discard = discard};
    kv_cache_options o = options_of(w);
    assert_int_equal(kv_cache_open(&o, &w->cache), QUIRE_OK);
    if (kv_cache_join(&w->cache) != QUIRE_OK) {
        kv_cache_close(&w->cache);
        return QUIRE_NO_ROOM;
    }
    w->is_member = w->claims = true;
    if (w == &worlds[0]) { /* others' prefixes follow this one under roots of their own */
        static const int32_t tokens[] = {0, 1, 1, 0};
        assert_int_equal(kv_index_add_public(w->cache.index, "s", 1, tokens, 4), QUIRE_OK);
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(kv_seq_init(&w->users[i].kv, N_GROUPS, LEN / SIZE + 1), QUIRE_OK);
    }
    return QUIRE_OK;
}

static void close_world(world *w) {
    if (!w->is_member) {
        return;
    }
    for (int32_t i = 0; i < N_SEQS; i++) {
        if (w->users[i].is_open) {
            close_user(w, &w->users[i], KV_DROP);
        }
        kv_seq_deinit(&w->users[i].kv);
    }
    assert_int_equal(kv_pool_counts(w->cache.pool).n_held, 0);
    kv_cache_close(&w->cache);
    w->is_member = false;
}

/* The other pools give up what a new one's fixed part takes; it is refused just where all
 * floors and fixed parts do not fit. Its leaving gives back what its coming took. */
static void come_or_go(world *w) {
    const world like = {.page_bytes = w->page_bytes,
                        .n_pages = w->n_pages,
                        .floor_pages = w->floor_pages,
                        .fixed_bytes = w->fixed_bytes,
                        .yields = w->yields,
                        .may_leave = true};
    kv_budget_counts before = kv_budget_count(budget);
    if (w->is_member) {
        tally t = count(w);
        int64_t had = resident(w, &t);
        close_world(w);
        kv_budget_counts after = kv_budget_count(budget);
        assert_int_equal(after.used_bytes, before.used_bytes - had - w->fixed_bytes);
        assert_int_equal(after.promised_bytes, before.promised_bytes - floor_of(w) - w->fixed_bytes);
    } else {
        int64_t floor = floor_of(w);
        bool fits = before.promised_bytes + floor + w->fixed_bytes <= BUDGET;
        assert_int_equal(open_world(w, like), fits ? QUIRE_OK : QUIRE_NO_ROOM);
        assert_int_equal(kv_budget_count(budget).promised_bytes - before.promised_bytes,
                         fits ? floor + w->fixed_bytes : 0);
    }
}

static int32_t n_operations(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    return getenv("QUIRE_TEST_LONG") != NULL ? 50000 : 5000;
#else
    return getenv("QUIRE_TEST_LONG") != NULL ? 500000 : 50000;
#endif
}

static void play(const world *like, int32_t n) {
    uint64_t first = rng_os_seed();
    seed = first;
    print_message("seed %llu\n", (unsigned long long)first);
    assert_int_equal(kv_budget_open(BUDGET, &budget), QUIRE_OK);
    n_worlds = n;
    memset(worlds, 0, sizeof worlds);
    for (int32_t i = 0; i < n; i++) {
        if (open_world(&worlds[i], like[i]) != QUIRE_OK) {
            assert_true(like[i].may_leave);
        }
    }
    for (int32_t k = 0, n_all = n_operations(); k < n_all; k++) {
        operate(k);
        audit();
    }
    for (int32_t i = 0; i < n_worlds; i++) {
        close_world(&worlds[i]);
    }
    kv_budget_counts c = kv_budget_count(budget);
    assert_true(c.used_bytes == 0 && c.fixed_bytes == 0 && c.promised_bytes == 0 && c.n_pools == 0);
    kv_budget_close(budget);
}

/* 3 pages a granule, for the whole budget; 2, the last one alone; 5. */
#define FIRST  .page_bytes = 13, .n_pages = BUDGET / 13
#define SECOND .page_bytes = 25, .n_pages = 55
#define THIRD  .page_bytes = 7, .n_pages = 103

TEST(two_pools_at_random_never_exceed_the_budget_and_lose_nothing) {
    play((world[]){{FIRST}, {SECOND}}, 2);
}

TEST(three_pools_at_random_one_of_which_yields) {
    play((world[]){{FIRST}, {SECOND}, {THIRD, .yields = true}}, 3);
}

/* Their longest sequences take 15 pages; the second and the last do not fit together. */
TEST(pools_with_floors_come_and_go_at_random) {
    play((world[]){{FIRST, .floor_pages = 20, .yields = true},
                   {SECOND, .floor_pages = 15, .fixed_bytes = 500, .yields = true, .may_leave = true},
                   {THIRD, .yields = true, .may_leave = true},
                   {.page_bytes = 11,
                    .n_pages = 100,
                    .floor_pages = 30,
                    .fixed_bytes = 500,
                    .yields = true,
                    .may_leave = true}},
         4);
}

TEST_MAIN(NULL, NULL)

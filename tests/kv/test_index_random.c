/* Random sequences over a small vocabulary, which share, fork, roll back and evict,
 * beside a naive model of the index (naive_index.h).
 *
 * 200,000 operations, with QUIRE_TEST_LONG 10,000,000 (fewer under a sanitizer);
 * QUIRE_TEST_SEED=n repeats a run. Everything is proven after each. */
#include "naive_index.h"

#include <stdlib.h>

#include "base/rng.h"

enum { MAX_PROMPT = 64, MAX_LENGTH = 200 };

static const char *const tenants[] = {"a", "b", "c"};

/* One run; parts make up for how the operations are divided among the runs. */
typedef struct run_options {
    const char *what;
    kv_index_options o;
    int32_t n_pages, parts;
    bool has_public;
} run_options;

static void random_tokens(uint64_t *s, int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = rng_next(s) % 8 == 0 ? 1 : 0; /* long common prefixes, and many branches */
    }
}

/* With windows the model knows better inside the last page: of siblings that agree
 * equally, the tree may take one that lacks a page. */
static void expect_match(naive_index *m, world *w, int32_t q, const char *tenant, const int32_t *tokens,
                         int32_t n) {
    int32_t found = world_peek(w, tenant, tokens, n);
    naive_enter(m, q, tenant[0] - 'a', tokens, n);
    if (w->o.granularity == KV_GRANULARITY_PAGE) {
        assert_int_equal(found, naive_longest(m, q, tokens, n, true));
    } else if (w->o.windows[w->o.n_groups - 1] == 0) {
        assert_int_equal(found, naive_longest(m, q, tokens, n, false));
    } else {
        assert_in_range(found, naive_longest(m, q, tokens, n, true), naive_longest(m, q, tokens, n, false));
    }
}

/* Whether what the windows see from position n is still there. */
static bool can_truncate(const world *w, const world_seq *s, int32_t n) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        int32_t window = w->o.windows[g], first = window == 0 || n < window ? 0 : n - window + 1;
        if (first < n && s->tables[g].pages[first / w->o.page_tokens].v == PAGE_NONE.v) {
            return false;
        }
    }
    return true;
}

static void start(naive_index *m, world *w, uint64_t *s, int32_t q, int32_t other) {
    int32_t tokens[MAX_PROMPT], n = 1 + (int32_t)(rng_next(s) % MAX_PROMPT);
    if (w->seqs[other].live && rng_next(s) % 3 == 0) {
        world_fork(w, other, q);
        m->seqs[q] = m->seqs[other];
        return;
    }
    const char *tenant = tenants[rng_next(s) % 3];
    random_tokens(s, tokens, n);
    expect_match(m, w, q, tenant, tokens, n - 1);
    naive_enter(m, q, tenant[0] - 'a', tokens, n);
    (void)world_start(w, q, tenant, tokens, n);
}

/* Live records of a tenant's pages that no sequence holds (of_tenant), or of those of all
 * others, public ones apart. */
static int32_t n_records(const naive_index *m, int32_t tenant, bool of_tenant) {
    int32_t n = 0;
    for (int32_t page = 0; page < kv_pool_counts(m->w->pool).n_pages; page++) {
        const naive_record *r = &m->records[page];
        const bool is_its = r->place / 8 == tenant;
        n += r->live && r->place != NAIVE_PUBLIC && is_its == of_tenant &&
             (!of_tenant || kv_pool_count(m->w->pool, (page_id){page}) == 0);
    }
    return n;
}

static void clear_tenant(naive_index *m, world *w, int32_t tenant) {
    const int32_t n_others = n_records(m, tenant, false);
    w->is_evicting = true;
    (void)kv_index_clear_tenant(w->ix, tenants[tenant], 1);
    w->is_evicting = false;
    assert_int_equal(n_records(m, tenant, true), 0);
    assert_int_equal(n_records(m, tenant, false), n_others);
}

static void random_operation(naive_index *m, world *w, uint64_t *s) {
    int32_t q = (int32_t)(rng_next(s) % WORLD_SEQS), other = (int32_t)(rng_next(s) % WORLD_SEQS),
            tokens[MAX_PROMPT];
    world_seq *seq = &w->seqs[q];
    if (!seq->live) {
        start(m, w, s, q, other);
        return;
    }
    int32_t n = 1 + (int32_t)(rng_next(s) % 9);
    switch (rng_next(s) % 8) {
    case 0:
    case 1:
        world_finish(w, q);
        return;
    case 2:
        n = (int32_t)(rng_next(s) % (uint64_t)(seq->n + 1));
        if (can_truncate(w, seq, n)) {
            world_truncate(w, q, n);
        }
        return;
    case 3:
        (void)world_evict(w, kv_pool_counts(w->pool).n_free + (int32_t)(rng_next(s) % 4));
        return;
    case 4:
        if (rng_next(s) % 64 == 0) {
            w->is_evicting = true;
            kv_index_clear(w->ix);
            w->is_evicting = false;
        } else if (rng_next(s) % 16 == 0) {
            clear_tenant(m, w, (int32_t)(rng_next(s) % 3));
        }
        return;
    default:
        random_tokens(s, tokens, n);
        if (seq->n + n < MAX_LENGTH) {
            (void)world_extend(w, q, tokens, n);
        }
        return;
    }
}

/* What the outside can see of a world after each operation, folded into a number. */
static uint64_t digest_of(const world *w, uint64_t h) {
    kv_counts c = kv_pool_counts(w->pool);
    kv_index_counts x = kv_index_count(w->ix);
    const int32_t numbers[] = {c.n_free,  c.n_held,       c.n_cached,          x.n_entries,
                               x.n_nodes, x.n_namespaces, (int32_t)w->n_reused};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        h = (h ^ (uint64_t)(uint32_t)numbers[i]) * 0x9E3779B97F4A7C15u;
    }
    for (int32_t q = 0; q < WORLD_SEQS; q++) {
        for (int32_t g = 0; w->seqs[q].live && g < w->o.n_groups; g++) {
            for (int32_t i = 0; i < w->seqs[q].tables[g].n_pages; i++) {
                h = (h ^ (uint64_t)(uint32_t)w->seqs[q].tables[g].pages[i].v) * 0x9E3779B97F4A7C15u;
            }
        }
    }
    return h;
}

static uint64_t seed_of_run(void) {
    const char *given = getenv("QUIRE_TEST_SEED");
    return given != NULL ? strtoull(given, NULL, 10) : rng_os_seed();
}

/* A few tokens and twice as many, of which whole pages count. */
static void add_publics(world *w, naive_index *m) {
    static int32_t tokens[NAIVE_PUBLICS][64];
    int32_t size = w->o.page_tokens, n = size < 5 ? 5 / size * size : size;
    memset(tokens, 0, sizeof tokens);
    tokens[1][2 * n - 1] = 1;
    for (int32_t k = 0; k < NAIVE_PUBLICS; k++) {
        m->publics[k] = tokens[k];
        m->n_public[k] = (k + 1) * n;
        assert_int_equal(kv_index_add_public(w->ix, w->scope, strlen(w->scope), tokens[k], (k + 1) * n),
                         QUIRE_OK);
    }
}

/* n random operations; returns their digest. */
static uint64_t run(const run_options *r, uint64_t seed, int n) {
    static world w;
    static naive_index m;
    uint64_t s = seed, digest = 0;
    const kv_index_watch watch = {.context = &m, .on_remove = naive_removed, .on_drop = naive_dropped};
    kv_index_options o = r->o;
    o.max_namespaces = 3 * (1 + NAIVE_PUBLICS) + 1;
    o.max_entries = 16 * r->n_pages; /* entries that no full group bounds */
    o.seed = seed;
    assert_in_range(r->n_pages, 1, NAIVE_PAGES);
    memset(&m, 0, sizeof m);
    m.w = &w;
    world_open_with(&w, r->n_pages, &o);
    kv_index_set_watch(w.ix, &watch);
    w.on_publish = naive_publish;
    w.on_published = naive_published;
    w.context = &m;
    if (r->has_public) {
        add_publics(&w, &m);
    }
    for (int i = 0; i < n; i++) {
        random_operation(&m, &w, &s);
        naive_check(&m);
        world_check(&w);
        digest = digest_of(&w, digest);
    }
    assert_true(w.n_reused > 0);
    w.is_evicting = true;
    world_close(&w);
    return digest;
}

static int n_operations(void) {
    bool is_long = getenv("QUIRE_TEST_LONG") != NULL;
#if defined(__SANITIZE_ADDRESS__)
    return is_long ? 1000000 : 100000;
#elif defined(__SANITIZE_THREAD__) /* one thread, ten times as slow */
    return is_long ? 200000 : 20000;
#else
    return is_long ? 10000000 : 200000;
#endif
}

static const run_options runs[] = {
    {"page 1", {.page_tokens = 1, .n_groups = 1}, 128, 2, false},
    {"page 2, public", {.page_tokens = 2, .n_groups = 1}, 90, 2, true},
    {"page 4, public", {.page_tokens = 4, .n_groups = 1}, 60, 3, true},
    {"page 8", {.page_tokens = 8, .n_groups = 1}, 40, 1, false},
    {"page 16, public", {.page_tokens = 16, .n_groups = 1}, 24, 1, true},
    {"page 4, whole pages, public",
     {.page_tokens = 4, .n_groups = 1, .granularity = KV_GRANULARITY_PAGE},
     60,
     2,
     true},
    {"page 4, full and two windows, public",
     {.page_tokens = 4, .n_groups = 3, .windows = {0, 7, 20}},
     128,
     3,
     true},
    {"page 2, full and window", {.page_tokens = 2, .n_groups = 2, .windows = {0, 7}}, 90, 2, false},
    {"page 4, window only, public", {.page_tokens = 4, .n_groups = 1, .windows = {9}}, 60, 1, true},
    {"page 2, two windows, whole pages",
     {.page_tokens = 2, .n_groups = 2, .windows = {5, 12}, .granularity = KV_GRANULARITY_PAGE},
     90,
     1,
     true},
    {"page 4, lfu, public", {.page_tokens = 4, .n_groups = 1, .policy = KV_EVICT_LFU}, 60, 1, true},
    {"page 4, gdsf, full and window, public",
     {.page_tokens = 4, .n_groups = 2, .windows = {0, 9}, .policy = KV_EVICT_GDSF},
     80,
     1,
     true},
    {"page 4, learned, public", {.page_tokens = 4, .n_groups = 1, .policy = KV_EVICT_LEARNED}, 60, 1, true},
};

enum { N_RUNS = sizeof runs / sizeof runs[0] };

TEST(random_sequences_find_what_a_naive_model_finds) {
    int n_parts = 0;
    for (int i = 0; i < N_RUNS; i++) {
        n_parts += runs[i].parts;
    }
    for (int i = 0; i < N_RUNS; i++) {
        uint64_t seed = seed_of_run();
        print_message("seed %llu, %s\n", (unsigned long long)seed, runs[i].what);
        (void)run(&runs[i], seed, n_operations() / n_parts * runs[i].parts);
    }
}

/* With 8 bits every hash stands for many pages: whatever rested on it would go wrong. */
TEST(eight_bits_of_hash_change_nothing) {
    for (int i = 0; i < N_RUNS; i++) {
        uint64_t seed = seed_of_run();
        print_message("seed %llu, %s\n", (unsigned long long)seed, runs[i].what);
        run_options narrow = runs[i];
        narrow.o.hash_bits = 8;
        bool is_same = run(&narrow, seed, n_operations() / 100) == run(&runs[i], seed, n_operations() / 100);
        /* which guesses by hashes what to evict, and nothing else */
        assert_true(is_same || runs[i].o.policy == KV_EVICT_LEARNED);
    }
}

TEST_MAIN(NULL, NULL)

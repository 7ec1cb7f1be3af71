/* Random sequences over a small vocabulary, which share, fork, roll back and evict, beside a naive model: a list of what each page holds.
 */
#include "cache_world.h"

#include "base/rng.h"

enum { MAX_PAGES = 128, MAX_PROMPT = 64 };

static const char *const spaces[] = {"a", "b", "c"};

/* What a page held when it was published: the prefix up to its last token, in a space, for a group. Valid while the page is indexed. */
typedef struct record {
    int32_t space, group, n;
    int32_t tokens[WORLD_TOKENS];
} record;

typedef struct model {
    record records[MAX_PAGES];
    int32_t space_of[WORLD_SEQS];
} model;

/* Notes page i of sequence q, which holds its tokens up to n. */
static void note(model *m, const world *w, int32_t q, int32_t i, int32_t n) {
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        page_id page = w->seqs[q].tables[g].pages[i];
        if (page.v != PAGE_NONE.v && kv_pool_entry(w->pool, page) >= 0) {
            record *r = &m->records[page.v];
            r->space = m->space_of[q];
            r->group = g;
            r->n = n;
            memcpy(r->tokens, w->seqs[q].tokens, (size_t)n * sizeof *r->tokens);
        }
    }
}

static void note_published(const world *w, int32_t q, void *context) {
    model *m = context;
    for (int32_t i = 0; i < w->seqs[q].path.n_pages; i++) {
        note(m, w, q, i, (i + 1) * w->o.page_tokens);
    }
}

/* Whether an indexed page of group g holds the page of tokens[0..n) that n - 1 lies in, whatever follows in it. */
static bool holds(const model *m, const world *w, int32_t space, int32_t g, const int32_t *tokens, int32_t n) {
    int32_t size = w->o.page_tokens, last = (n - 1) / size;
    for (int32_t page = 0; page < kv_pool_counts(w->pool).n_pages; page++) {
        const record *r = &m->records[page];
        if (kv_pool_entry(w->pool, (page_id){page}) >= 0 && r->space == space && r->group == g && r->n >= n && (r->n - 1) / size == last &&
            memcmp(r->tokens, tokens, (size_t)n * sizeof *tokens) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether every group can go on behind n tokens. */
static bool reaches(const model *m, const world *w, int32_t space, const int32_t *tokens, int32_t n) {
    int32_t size = w->o.page_tokens;
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        int32_t window = w->o.windows[g];
        int32_t first = (window == 0 || n < window ? 0 : n - window + 1) / size;
        for (int32_t i = first; i * size < n; i++) {
            if (!holds(m, w, space, g, tokens, (i + 1) * size < n ? (i + 1) * size : n)) {
                return false;
            }
        }
    }
    return true;
}

/* The longest prefix by trying all; whole_pages: of those that end with a page. */
static int32_t longest(const model *m, const world *w, int32_t space, const int32_t *tokens, int32_t n, bool whole_pages) {
    for (; n > 0; n--) {
        if ((!whole_pages || n % w->o.page_tokens == 0) && reaches(m, w, space, tokens, n)) {
            return n;
        }
    }
    return 0;
}

static void random_tokens(uint64_t *s, int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        tokens[i] = rng_next(s) % 8 == 0 ? 1 : 0; /* long common prefixes, and many branches */
    }
}

/* With windows the model knows better inside the last page: of siblings that agree equally, the tree may take one that lacks a page. */
static void expect_match(const model *m, const world *w, int32_t q, const int32_t *tokens, int32_t n) {
    kv_path path;
    int32_t space = m->space_of[q];
    assert_int_equal(kv_index_enter(w->ix, spaces[space], 1, &path), QUIRE_OK);
    int32_t found = kv_index_peek(w->ix, &path, tokens, n);
    kv_index_leave(w->ix, &path);
    int32_t most = longest(m, w, space, tokens, n, false);
    bool has_windows = w->o.windows[w->o.n_groups - 1] > 0;
    if (!has_windows) {
        assert_int_equal(found, most);
    } else {
        assert_in_range(found, longest(m, w, space, tokens, n, true), most);
    }
}

static void finish(model *m, world *w, int32_t q) {
    world_seq *s = &w->seqs[q];
    int32_t size = w->o.page_tokens, tail = s->n / size;
    bool fresh[WORLD_GROUPS] = {false};
    for (int32_t g = 0; g < w->o.n_groups && s->n % size != 0; g++) {
        fresh[g] = kv_pool_entry(w->pool, s->tables[g].pages[tail]) < 0;
    }
    assert_int_equal(kv_index_publish(w->ix, &s->path, s->tokens, s->n, s->tables, KV_PUBLISH_TAIL), QUIRE_OK);
    for (int32_t g = 0; g < w->o.n_groups; g++) {
        if (fresh[g]) {
            note(m, w, q, tail, s->n);
            break;
        }
    }
    world_finish(w, q);
}

static void random_operation(model *m, world *w, uint64_t *s) {
    int32_t q = (int32_t)(rng_next(s) % WORLD_SEQS), other = (int32_t)(rng_next(s) % WORLD_SEQS), tokens[MAX_PROMPT];
    int32_t n = 1 + (int32_t)(rng_next(s) % MAX_PROMPT);
    world_seq *seq = &w->seqs[q];
    random_tokens(s, tokens, n);
    if (!seq->live) {
        if (w->seqs[other].live && rng_next(s) % 3 == 0) {
            world_fork(w, other, q);
            m->space_of[q] = m->space_of[other];
            return;
        }
        m->space_of[q] = (int32_t)(rng_next(s) % 3);
        expect_match(m, w, q, tokens, n - 1);
        (void)world_start(w, q, spaces[m->space_of[q]], tokens, n);
        return;
    }
    switch (rng_next(s) % 8) {
    case 0:
    case 1:
        finish(m, w, q);
        return;
    case 2:
        if (w->o.windows[w->o.n_groups - 1] == 0) { /* what lies behind a window is gone: such a sequence cannot go back far */
            world_truncate(w, q, (int32_t)(rng_next(s) % (uint64_t)(seq->n + 1)));
        }
        return;
    case 3:
        (void)kv_index_evict(w->ix, kv_pool_counts(w->pool).n_free + (int32_t)(rng_next(s) % 4));
        return;
    default:
        n = 1 + n / 8;
        if (seq->n + n < 200) {
            (void)world_extend(w, q, tokens, n);
        }
        return;
    }
}

static void run_random(int32_t n_pages, int32_t page_tokens, int32_t n_groups, const int32_t *windows, int n_steps) {
    static world w;
    static model m;
    uint64_t seed = rng_os_seed(), s = seed;
    print_message("seed %llu, page %d, %d groups\n", (unsigned long long)seed, page_tokens, n_groups);
    world_open(&w, n_pages, page_tokens, n_groups, windows);
    w.on_publish = note_published;
    w.context = &m;
    for (int step = 0; step < n_steps; step++) {
        random_operation(&m, &w, &s);
        world_check(&w);
    }
    assert_true(w.n_reused > 0);
    world_close(&w);
}

static void random_sequences_find_what_a_naive_model_finds(void **state) {
    (void)state;
    run_random(128, 1, 1, NULL, 1500);
    run_random(90, 2, 1, NULL, 1500);
    run_random(60, 4, 1, NULL, 1500);
    run_random(40, 8, 1, NULL, 1500);
    run_random(24, 16, 1, NULL, 1500);
}

static void random_sequences_with_window_groups_find_what_a_naive_model_finds(void **state) {
    (void)state;
    static const int32_t full_and_windows[] = {0, 7, 20}, window_only[] = {9};
    run_random(128, 4, 3, full_and_windows, 1000);
    run_random(90, 2, 2, full_and_windows, 1000);
    run_random(60, 4, 1, window_only, 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences_find_what_a_naive_model_finds),
        cmocka_unit_test(random_sequences_with_window_groups_find_what_a_naive_model_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The suffix tree against counting by hand, and the drafter over it. */
#include <string.h>

#include "base/rng.h"
#include "spec/draft.h"
#include "test.h"

enum { MAX_TEXT = 200 };

/* Whether the node's own links and counts agree. */
static bool is_sound_node(const suffix_tree *t, int32_t i) {
    const suffix_node *n = &t->nodes[i];
    int64_t sum = 0;
    int32_t previous = SUFFIX_NONE;
    bool has_best = n->best == SUFFIX_NONE && n->child == SUFFIX_NONE;
    for (int32_t c = n->child; c != SUFFIX_NONE; previous = c, c = t->nodes[c].next) {
        sum += t->nodes[c].count;
        has_best = has_best || c == n->best;
        if (t->nodes[c].parent != i || t->nodes[c].previous != previous ||
            t->nodes[c].depth != n->depth + 1) {
            return false;
        }
    }
    return n->count >= 1 && sum <= n->count && has_best && suffix_tree_find(t, n->parent, &n->token, 1) == i;
}

/* Whether counts, links and the number of nodes agree. O(nodes). */
static bool is_sound(const suffix_tree *t) {
    int32_t n_free = 0;
    for (int32_t i = t->free; i != SUFFIX_NONE; i = t->nodes[i].bucket) {
        n_free++;
    }
    for (uint32_t b = 0; b <= t->mask; b++) {
        for (int32_t i = t->buckets[b]; i != SUFFIX_NONE; i = t->nodes[i].bucket) {
            if (!is_sound_node(t, i)) {
                return false;
            }
        }
    }
    return n_free == t->n_free && t->n_used <= t->max_nodes;
}

/* How often `run` of n tokens occurs in text. */
static int32_t occurrences(const int32_t *text, int32_t n_text, const int32_t *run, int32_t n) {
    int32_t count = 0;
    for (int32_t i = 0; i + n <= n_text; i++) {
        count += memcmp(text + i, run, (size_t)n * sizeof *run) == 0;
    }
    return count;
}

static void random_text(uint64_t *seed, int32_t n_symbols, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = (int32_t)(rng_next(seed) % (uint64_t)n_symbols);
    }
}

/* Every run that occurs in `where` is counted as often as in text. */
static void check_counts(const suffix_tree *t, int32_t root, int32_t depth, const int32_t *text, int32_t n,
                         const int32_t *where, int32_t n_where) {
    for (int32_t i = 0; i < n_where; i++) {
        for (int32_t length = 1; length <= depth && i + length <= n_where; length++) {
            int32_t node = suffix_tree_find(t, root, where + i, length);
            assert_int_equal(node == SUFFIX_NONE ? 0 : t->nodes[node].count,
                             occurrences(text, n, where + i, length));
        }
    }
}

TEST(counts_are_those_of_the_text) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 60; round++) {
        int32_t depth = 1 + (int32_t)(rng_next(&seed) % 8), symbols = 1 + (int32_t)(rng_next(&seed) % 5),
                a[MAX_TEXT], b[MAX_TEXT];
        suffix_tree *t;
        assert_int_equal(suffix_tree_open(4096, depth, &t), QUIRE_OK);
        int32_t own = suffix_tree_root(t), shared = suffix_tree_root(t);
        suffix_cursor c;
        suffix_cursor_init(&c, own);
        random_text(&seed, symbols, MAX_TEXT, a);
        random_text(&seed, symbols, MAX_TEXT, b);
        for (int32_t n = 1; n <= 100; n++) {
            assert_true(suffix_tree_add(t, &c, a[n - 1]));
            assert_int_equal(c.n_active, n < depth ? n : depth);
            for (int32_t length = 1; length <= c.n_active; length++) {
                assert_int_equal(c.active[length - 1], suffix_tree_find(t, own, a + n - length, length));
            }
        }
        assert_true(suffix_tree_put(t, shared, a, 50, 0) == 50 && suffix_tree_put(t, shared, b, 70, 0) == 70);
        assert_true(is_sound(t));
        check_counts(t, own, depth, a, 100, a, 100);
        check_counts(t, own, depth, a, 100, b, 70);
        suffix_tree_take(t, shared, a, 50, 50);
        assert_true(is_sound(t));
        check_counts(t, shared, depth, b, 70, b, 70);
        check_counts(t, shared, depth, b, 70, a, 50);
        suffix_tree_drop(t, own);
        suffix_tree_take(t, shared, b, 70, 70);
        assert_true(is_sound(t));
        assert_int_equal(suffix_tree_find(t, shared, b, 1), SUFFIX_NONE);
        for (int32_t i = 1; i < 4096; i++) { /* every node but the shared root's can be had again */
            assert_int_not_equal(suffix_tree_root(t), SUFFIX_NONE);
        }
        assert_int_equal(suffix_tree_root(t), SUFFIX_NONE);
        suffix_tree_close(t);
    }
}

TEST(the_longest_match_is_found) {
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 200; round++) {
        int32_t depth = 2 + (int32_t)(rng_next(&seed) % 8), a[MAX_TEXT], b[MAX_TEXT], length;
        suffix_tree *t;
        assert_int_equal(suffix_tree_open(4096, depth, &t), QUIRE_OK);
        int32_t root = suffix_tree_root(t);
        random_text(&seed, 3, 60, a);
        random_text(&seed, 3, 60, b);
        assert_true(suffix_tree_put(t, root, a, 60, 0) == 60);
        int32_t node = suffix_tree_match(t, root, b, 60, &length), wanted = 0;
        for (int32_t n = 1; n < depth; n++) {
            wanted = occurrences(a, 59, b + 60 - n, n) > 0 ? n : wanted; /* with a token after it */
        }
        assert_int_equal(length, wanted);
        assert_int_equal(node,
                         wanted == 0 ? SUFFIX_NONE : suffix_tree_find(t, root, b + 60 - wanted, wanted));
        suffix_tree_close(t);
    }
}

TEST(guesses_are_the_likeliest) {
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3, 8, 5, 1, 2, 4, 8};
    suffix_tree *t;
    static const int32_t before[] = {7, 1, 2}, line[] = {3, 8, 5, 1};
    draft_tree guess = {0};
    int32_t length;
    assert_int_equal(suffix_tree_open(1000, 4, &t), QUIRE_OK);
    int32_t root = suffix_tree_root(t);
    assert_true(suffix_tree_put(t, root, text, 17, 0) == 17);
    int32_t node = suffix_tree_match(t, root, before, 3, &length);
    /* 1 2, four times; 3 follows three times, 8 after that twice; then, from 3 8, a 1 or
     * the later 5 */
    assert_int_equal(length, 2);
    double score = suffix_tree_guess(t, root, node, before, 3, &(draft_bounds){4, 4, 1}, 0.1, &guess);
    assert_int_equal(guess.n, 4);
    assert_memory_equal(guess.tokens, line, sizeof line);
    assert_true(score > 0.75 + 0.5 + 0.25 + 0.25 - 1e-9 && score < 0.75 + 0.5 + 0.25 + 0.25 + 1e-9);
    guess.n = 0;
    (void)suffix_tree_guess(t, root, node, before, 3, &(draft_bounds){4, 4, 1}, 0.5, &guess);
    assert_int_equal(guess.n, 2);
    guess.n = 0;
    (void)suffix_tree_guess(t, root, node, before, 3, &(draft_bounds){4, 1, 1}, 0.1, &guess);
    assert_int_equal(guess.n, 1);
    suffix_tree_close(t);
}

/* The same text with branches: each guess is the likeliest that is left, wherever it
 * hangs; first branches come first. */
TEST(guesses_branch_where_that_is_likelier) {
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3, 8, 5, 1, 2, 4, 8}, before[] = {1, 2};
    static const int32_t tokens[] = {3, 8, 5, 1, 9, 4};
    static const int8_t parents[] = {-1, 0, 1, 1, 0, -1};
    suffix_tree *t;
    draft_tree guess = {0};
    assert_int_equal(suffix_tree_open(1000, 4, &t), QUIRE_OK);
    int32_t root = suffix_tree_root(t);
    assert_true(suffix_tree_put(t, root, text, 17, 0) == 17);
    int32_t node = suffix_tree_find(t, root, before, 2);
    /* 3; 8 after it; then 9, 4, 5, 1 of a quarter each */
    double score = suffix_tree_guess(t, root, node, before, 2, &(draft_bounds){6, 3, 2}, 0.1, &guess);
    assert_int_equal(guess.n, 6);
    assert_memory_equal(guess.tokens, tokens, sizeof tokens);
    assert_memory_equal(guess.parents, parents, sizeof parents);
    assert_true(score > 2.25 - 1e-9 && score < 2.25 + 1e-9);
    guess.n = 0;
    (void)suffix_tree_guess(t, root, node, before, 2, &(draft_bounds){3, 3, 2}, 0.1, &guess);
    assert_int_equal(guess.n, 3);
    assert_true(guess.depths[1] == 2 && guess.depths[2] <= 2);
    suffix_tree_close(t);
}

TEST(a_full_tree_leaves_texts_out_and_stays_whole) {
    int32_t a[MAX_TEXT], b[MAX_TEXT];
    uint64_t seed = 3;
    suffix_tree *t;
    random_text(&seed, 1000, MAX_TEXT, a);
    random_text(&seed, 1000, MAX_TEXT, b);
    assert_int_equal(suffix_tree_open(500, 4, &t), QUIRE_OK);
    int32_t root = suffix_tree_root(t);
    assert_true(suffix_tree_put(t, root, a, 100, 0) == 100);
    int32_t put = suffix_tree_put(t, root, b, 100, 0);
    assert_in_range(put, 1, 99);
    assert_true(is_sound(t));
    suffix_tree_take(t, root, b, 100, put);
    assert_true(is_sound(t));
    check_counts(t, root, 4, a, 100, a, 100);
    check_counts(t, root, 4, a, 100, b, 100);
    suffix_tree_take(t, root, a, 100, 100);
    assert_true(suffix_tree_put(t, root, b, 100, 0) == 100);
    suffix_cursor c;
    suffix_cursor_init(&c, root);
    int32_t n = 0;
    while (n < MAX_TEXT && suffix_tree_add(t, &c, a[n])) {
        n++;
    }
    assert_in_range(n, 1, 60);
    assert_true(is_sound(t));
    suffix_tree_close(t);
}

/* Thousands of outputs of hundreds of namespaces, more than nodes, namespaces and the
 * ring hold: the last one is always known, to its own namespace only. */
TEST(the_oldest_outputs_go) {
    draft_options o = {.method = DRAFT_METHOD_SUFFIX,
                       .n_tokens = 8,
                       .suffix_depth = 16,
                       .suffix_texts = 500,
                       .suffix_factor = 8,
                       .suffix_min_prob = 0.01};
    uint64_t seed = rng_os_seed();
    print_message("seed %llu\n", (unsigned long long)seed);
    drafter *d;
    assert_int_equal(draft_suffix_open(&o, &d), QUIRE_OK);
    static int32_t output[20000], asked[20000];
    const sample_context three = {.n_prompt = 3}, all = {.n_prompt = 14}; /* one without output leaves none */
    int32_t n_known = 0;
    for (int round = 0; round < 300; round++) {
        int32_t n = round % 100 == 99 ? 20000 : 20 + (int32_t)(rng_next(&seed) % 600);
        uint8_t low = (uint8_t)(round % 300), high = (uint8_t)(round % 300 / 256),
                name[2][2] = {{low, high}, {low, (uint8_t)(high + 2)}};
        draft_seq s = {.tokens = output,
                       .n_known = n,
                       .context = &three,
                       .namespace = name[0],
                       .n_namespace = 2,
                       .own.root = SUFFIX_NONE};
        random_text(&seed, round % 2 ? 1 << 20 : 50, n, output);
        d->ops->forget(d, &s, true);
        for (int other = 0; other < 2; other++) {
            memset(asked, 0xff, 32 * sizeof *asked);
            memcpy(asked, output + 3, 14 * sizeof *asked);
            draft_seq q = {.tokens = asked,
                           .n_known = 14,
                           .context = &all,
                           .namespace = name[other], /* the other one is nobody's */
                           .n_namespace = 2,
                           .own = {.root = SUFFIX_NONE},
                           .wanted = {3, 3, 1}};
            draft_seq *list[] = {&q};
            d->ops->propose(d, list, 1);
            bool is_known = q.tree.n == 3 && memcmp(q.tree.tokens, output + 17, 3 * sizeof *asked) == 0;
            assert_true(!other || !is_known);
            n_known += is_known;
            d->ops->forget(d, &q, true);
        }
    }
    print_message("%d of 300 known\n", (int)n_known);
    assert_int_equal(n_known, 300);
    d->ops->close(d);
}

TEST_MAIN(NULL, NULL)

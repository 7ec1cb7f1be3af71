#include <stdlib.h>

#include "base/rng.h"
#include "sample/beam_select.h"
#include "test.h"

enum { MAX_N = 8, END = 7, OTHER_END = 9 };

static const int32_t ends[] = {END, OTHER_END};

static beam_rules rules_of(int32_t n, int32_t n_ends) {
    return (beam_rules){.n = n, .max_new = 100, .length_penalty = 1.0, .ends = ends, .n_ends = n_ends};
}

typedef struct outcome {
    beam_choice next[MAX_N], ended[MAX_N];
    beam_outcome o;
} outcome;

static void choose(const beam_rules *r, int32_t length, beam_choice *choices, int32_t n, outcome *out) {
    out->o = (beam_outcome){.next = out->next, .ended = out->ended};
    beam_choose(r, length, choices, n, &out->o);
}

TEST(equal_scores_go_to_the_lower_beam_then_the_lower_token) {
    beam_rules r = rules_of(3, 0);
    beam_choice choices[] = {
        {1, 0, 5, -1.0}, {0, 1, 8, -1.0}, {1, 1, 2, -1.0}, {0, 0, 6, -1.0}, {2, 0, 0, -1.5}};
    outcome out;
    choose(&r, 1, choices, 5, &out);
    assert_int_equal(out.o.n_next, 3);
    assert_true(out.next[0].from == 0 && out.next[0].token == 6);
    assert_true(out.next[1].from == 0 && out.next[1].token == 8);
    assert_true(out.next[2].from == 1 && out.next[2].token == 2);
}

TEST(one_that_ends_is_finished_among_the_first_n_and_lost_further_down) {
    beam_rules r = rules_of(2, 2);
    beam_choice choices[] = {
        {0, 0, 1, -1.0}, {0, 1, END, -2.0}, {1, 0, OTHER_END, -3.0}, {1, 1, 2, -4.0}, {1, 2, 3, -5.0}};
    outcome out;
    choose(&r, 1, choices, 5, &out);
    assert_int_equal(out.o.n_ended, 1);
    assert_int_equal(out.ended[0].token, END);
    assert_int_equal(out.o.n_next, 2);
    assert_int_equal(out.next[0].token, 1);
    assert_int_equal(out.next[1].token, 2);
}

TEST(at_the_last_length_everything_ends) {
    beam_rules r = rules_of(2, 0);
    r.max_new = 4;
    beam_choice choices[] = {{0, 0, 1, -1.0}, {0, 1, 2, -2.0}, {1, 0, 3, -3.0}};
    outcome out;
    choose(&r, 4, choices, 3, &out);
    assert_int_equal(out.o.n_next, 0);
    assert_int_equal(out.o.n_ended, 2);
    beam_finished none = {0};
    assert_true(beam_is_over(&r, &none, 4, &out.o));
}

TEST(nothing_comes_of_nothing) {
    beam_rules r = rules_of(2, 1);
    beam_choice choices[1] = {{0}};
    outcome out;
    choose(&r, 1, choices, 0, &out);
    assert_int_equal(out.o.n_next + out.o.n_ended, 0);
}

/* Keeps a score, and says where in the list it is; -1: it was not kept. */
static int32_t keep(const beam_rules *r, beam_finished *f, double score) {
    beam_result *kept = beam_keep(r, f, score);
    for (int32_t i = 0; i < f->n_kept; i++) {
        if (f->list[i] == kept) {
            return i;
        }
    }
    assert_null(kept);
    return -1;
}

TEST(the_best_n_are_kept_and_the_older_of_equals_is_before) {
    beam_rules r = rules_of(3, 0);
    beam_result store[3] = {{0}}, *list[3] = {&store[0], &store[1], &store[2]};
    beam_finished f = {.list = list};
    assert_int_equal(keep(&r, &f, -2.0), 0);
    assert_int_equal(keep(&r, &f, -1.0), 0);
    assert_int_equal(keep(&r, &f, -2.0), 2);
    assert_int_equal(f.n_kept, 3);
    assert_int_equal(keep(&r, &f, -2.0), -1);
    assert_int_equal(keep(&r, &f, -1.0), 1);
    assert_int_equal(keep(&r, &f, -3.0), -1);
    assert_true(list[0] != list[1] && list[1] != list[2] && list[0] != list[2]);
    assert_true(list[0]->score == -1.0 && list[1]->score == -1.0 && list[2]->score == -2.0);
}

TEST(a_set_is_over_as_early_stopping_says) {
    beam_rules r = rules_of(1, 0);
    beam_result store = {.score = -1.0}, *list[1] = {&store};
    beam_finished none = {.list = list}, one = {.list = list, .n_kept = 1};
    beam_choice best = {.score = -20.0};
    beam_outcome step = {.next = &best, .n_next = 1};
    r.stopping = BEAM_STOPPING_EARLY;
    assert_false(beam_is_over(&r, &none, 10, &step));
    assert_true(beam_is_over(&r, &one, 10, &step));
    assert_true(beam_is_full(&r, &one));
    r.stopping = BEAM_STOPPING_LIKELY;
    assert_false(beam_is_full(&r, &one));
    assert_true(beam_is_over(&r, &one, 10, &step)); /* -20 / 10 */
    assert_true(beam_is_over(&r, &one, 20, &step)); /* as good is not better */
    assert_false(beam_is_over(&r, &one, 21, &step));
    r.stopping = BEAM_STOPPING_NEVER;
    assert_false(beam_is_over(&r, &one, 10, &step)); /* -20 / 100 */
    r.length_penalty = 0.0;
    assert_true(beam_is_over(&r, &one, 10, &step));
    assert_false(beam_is_over(&r, &none, 10, &step));
}

static int by_rank(const void *a, const void *b) {
    const beam_choice *x = a, *y = b;
    if (x->score != y->score) {
        return x->score > y->score ? -1 : 1;
    }
    return x->from != y->from ? x->from - y->from : x->token - y->token;
}

static void assert_same_choice(const beam_choice *a, const beam_choice *b) {
    assert_true(a->from == b->from && a->place == b->place && a->token == b->token && a->score == b->score);
}

TEST(choosing_equals_sorting) {
    print_message("seed 5\n");
    uint64_t seed = 5;
    for (int round = 0; round < 3000; round++) {
        beam_rules r = rules_of(1 + (int32_t)(rng_next(&seed) % MAX_N), (int32_t)(rng_next(&seed) % 3));
        int32_t n = (int32_t)(rng_next(&seed) % 120);
        beam_choice choices[120], sorted[120];
        for (int32_t i = 0; i < n; i++) {
            sorted[i] = choices[i] = (beam_choice){
                .from = i / 15, .place = i % 15, .token = i % 15, .score = -(double)(rng_next(&seed) % 30)};
        }
        outcome out;
        choose(&r, 1, choices, n, &out);
        qsort(sorted, (size_t)n, sizeof *sorted, by_rank);
        int32_t n_next = 0, n_ended = 0;
        for (int32_t i = 0; i < n; i++) {
            bool is_end =
                r.n_ends > 0 && (sorted[i].token == END || (r.n_ends > 1 && sorted[i].token == OTHER_END));
            if (is_end && i < r.n) {
                assert_same_choice(&sorted[i], &out.ended[n_ended]);
                n_ended++;
            } else if (!is_end && n_next < r.n) {
                assert_same_choice(&sorted[i], &out.next[n_next]);
                n_next++;
            }
        }
        assert_int_equal(out.o.n_next, n_next);
        assert_int_equal(out.o.n_ended, n_ended);
    }
}

TEST_MAIN(NULL, NULL)

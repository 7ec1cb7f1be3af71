/* Drafts under a constraint: what is dropped of them, what is forced or guessed, and what
 * judging does to the state. */

#include "sample/constraints.h"
#include "spec/draft.h"
#include "spec/jump_forward.h"
#include "spec/verify.h"
#include "test.h"

enum { N_VOCAB = 64, EOS = 1 };

static const int32_t eos[] = {EOS};
static const model_desc desc = {.eos = {EOS}, .n_eos = 1};

typedef struct world {
    choice_constraint *choice;
    sampling_params params;
    int32_t node, own;
    sample_context c;
    draft_seq d;
} world;

static void open_world(world *w) {
    *w = (world){.choice = choice_new(N_VOCAB, true)};
    sampling_params_init(&w->params);
    w->c = (sample_context){.params = &w->params,
                            .eos = eos,
                            .n_eos = 1,
                            .constraint = &w->choice->head,
                            .constraint_state = &w->node};
    w->d = (draft_seq){.context = &w->c, .constraint_state = &w->own};
}

#define ADD(w, ...)                                                                                          \
    choice_add((w)->choice, (int32_t[]){__VA_ARGS__},                                                        \
               (int32_t)(sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t)))

/*  root -- 5 (0) -- 6 (1) -- 1, the end (2)         allowed: 5 6, 5 8 9, 7
 *   |       |\- 8 (3) -- 9 (4) -- 9 (5)
 *   |       \- 7 (6) -- 6 (7)
 *   \- 7 (8) -- 1, the end (9)                                              */
TEST(forbidden_nodes_fall_with_all_below_them) {
    static const int32_t tokens[] = {5, 6, EOS, 8, 9, 9, 7, 6, 7, EOS},
                         parents[] = {-1, 0, 1, 0, 3, 4, 0, 6, -1, 8};
    static const int32_t kept[] = {5, 6, EOS, 8, 9, 7, EOS}, kept_parents[] = {-1, 0, 1, 0, 3, -1, 5},
                         depths[] = {1, 2, 3, 2, 3, 1, 2};
    static _Alignas(MEM_ALIGN) uint8_t states[DRAFT_MAX * CONSTRAINT_MAX_STATE_BYTES];
    world w;
    open_world(&w);
    ADD(&w, 5, 6);
    ADD(&w, 5, 8, 9);
    ADD(&w, 7);
    for (int32_t i = 0; i < 10; i++) {
        draft_tree_add(&w.d.tree, parents[i], tokens[i]);
    }
    draft_constrain(&w.d, states);
    assert_int_equal(w.d.tree.n, 7);
    for (int32_t i = 0; i < 7; i++) {
        assert_int_equal(w.d.tree.tokens[i], kept[i]);
        assert_int_equal(w.d.tree.parents[i], kept_parents[i]);
        assert_int_equal(w.d.tree.depths[i], depths[i]);
    }
    assert_int_equal(w.node, 0); /* the sequence's own state stays */
    constraint_drop(&w.choice->head);
}

TEST(a_constraint_forces_a_line_up_to_a_choice_or_an_end) {
    world w;
    open_world(&w);
    ADD(&w, 5, 6, 7, 8);
    ADD(&w, 5, 6, 7, 9);
    assert_true(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    assert_int_equal(w.d.tree.n, 3);
    assert_int_equal(w.d.tree.tokens[2], 7);
    assert_int_equal(w.d.tree.parents[2], 1);
    w.d.tree.n = 0;
    assert_true(jump_forward_propose(&w.c, &desc, 2, &w.d.tree));
    assert_int_equal(w.d.tree.n, 2);
    w.d.tree.n = 0;
    ADD(&w, 5); /* it may end there, so no other token is certain */
    assert_true(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    assert_int_equal(w.d.tree.n, 1);
    w.d.tree.n = 0;
    ADD(&w, 4);
    assert_false(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    constraint_drop(&w.choice->head);
}

TEST(nothing_is_forced_that_another_rule_could_forbid) {
    world w;
    open_world(&w);
    ADD(&w, 5, 6, 7, 8);
    w.params.mirostat = MIROSTAT_2;
    assert_false(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    w.params.mirostat = MIROSTAT_OFF;
    w.params.no_repeat_ngram_size = 1;
    assert_false(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    w.params.no_repeat_ngram_size = 0;
    w.params.lists = sampling_lists_new();
    assert_false(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    sampling_lists_drop(w.params.lists);
    w.params.lists = NULL;
    w.params.n_stop_tokens = 1;
    w.params.stop_tokens[0] = 7; /* an end token, which the constraint calls certain */
    assert_true(jump_forward_propose(&w.c, &desc, 8, &w.d.tree));
    assert_int_equal(w.d.tree.n, 2);
    constraint_drop(&w.choice->head);
}

static const guess_worth WORTH = {0.25f, 0.5f};

/* What comes after n_known tokens. */
static bool propose(world *w, int32_t n_known, int32_t most) {
    w->d.tree.n = w->d.n_jump_forward = 0;
    w->d.n_known = n_known;
    return outlook_propose(&w->d, &desc, most, &WORTH);
}

/* What a constraint is asked to guess. */
static guess_bounds asked;

static int32_t note_bounds(const constraint *c, const void *state, const guess_bounds *bounds, int32_t *ids,
                           int32_t *parents) {
    asked = *bounds;
    return choice_guess(c, state, bounds, ids, parents);
}

/* Of a model that spells as its tokenizer does the likeliest token is surely meant, of
 * another one any. */
TEST(a_guess_goes_by_how_often_the_likeliest_token_was_right) {
    static const draft_options none = {0};
    constraint_ops noting;
    world w;
    int32_t line[40];
    open_world(&w);
    noting = *w.choice->head.ops;
    noting.guess = note_bounds;
    w.choice->head.ops = &noting;
    for (int32_t i = 0; i < 40; i++) {
        line[i] = 2 + i;
    }
    choice_add(w.choice, line, 40);
    w.d.samples_each = true; /* else all of it is forced */
    assert_true(propose(&w, 1, 100) && w.d.is_guess);
    assert_true(w.d.tree.n == DRAFT_MAX && asked.nodes == DRAFT_MAX && asked.least == WORTH.least &&
                asked.row == WORTH.row);
    float first = asked.first;
    assert_true(first > 0.5f && first < 1.0f);
    draft_adapt(&w.d, &none, &(draft_outcome){.n = 9, .n_accepted = 9, .n_first = 9, .to_end = true});
    assert_true(propose(&w, 2, 4) && asked.first > first && w.d.tree.n == 4);
    for (int32_t i = 0; i < 20; i++) { /* another token was right each time */
        draft_adapt(&w.d, &none, &(draft_outcome){.n = 3, .n_accepted = 1, .to_end = true});
    }
    assert_true(propose(&w, 3, 4) && asked.first < 0.1f);
    assert_int_equal(w.d.length + w.d.pause, 0); /* a drafter's own drafts do not learn from it */
    w.node = 40;
    w.d.is_guess = false;
    assert_false(propose(&w, 4, 4) || w.d.is_guess);
    constraint_drop(&w.choice->head);
}

TEST(an_outlook_found_beforehand_is_the_one_found_later) {
    int32_t line[40];
    for (int32_t i = 0; i < 40; i++) {
        line[i] = 2 + i;
    }
    for (int forced = 0; forced < 2; forced++) {
        world before, after;
        world *const worlds[] = {&before, &after};
        for (int k = 0; k < 2; k++) {
            world *w = worlds[k];
            open_world(w);
            choice_add(w->choice, line, 40);
            w->d.samples_each = forced == 0;
            if (w == &before) {
                outlook_find(&w->d, &desc, 7, 100, &WORTH);
            }
            assert_true(propose(w, 7, 100));
        }
        assert_int_equal(before.d.tree.n, after.d.tree.n);
        assert_memory_equal(before.d.tree.tokens, after.d.tree.tokens,
                            (size_t)after.d.tree.n * sizeof(int32_t));
        assert_int_equal(before.d.n_jump_forward, after.d.n_jump_forward);
        assert_int_equal(before.d.n_jump_forward, forced ? DRAFT_MAX : 0);
        assert_int_equal(before.d.is_guess, !forced);
        constraint_drop(&before.choice->head);
        constraint_drop(&after.choice->head);
    }
}

/* By rejection sampling too: the judged token is allowed, and the state is that after
 * it. */
TEST(judging_moves_the_state_over_the_token) {
    world w;
    sample_pool pool;
    float row[N_VOCAB];
    int32_t seen[N_VOCAB] = {0};
    open_world(&w);
    ADD(&w, 5, 6);
    ADD(&w, 20, 6);
    ADD(&w, 21, 6);
    assert_int_equal(sample_pool_open(N_VOCAB, 16, 1, NULL, NULL, &pool), QUIRE_OK);
    draft_tree_add(&w.d.tree, DRAFT_ROOT, 5);
    draft_tree_add(&w.d.tree, DRAFT_ROOT, 30); /* forbidden */
    for (int32_t k = 0; k < 200; k++) {
        sample_result result = NOT_SAMPLED;
        for (int32_t i = 0; i < N_VOCAB; i++) {
            row[i] = 0.01f * (float)i;
        }
        w.node = 0;
        w.params.seed = (uint64_t)k;
        sample_row judged = {.logits = row, .context = w.c, .result = &result};
        verify_walk v = verify_begin(&w.d, 2, true);
        verify_judge(&v, &pool, &judged);
        assert_int_equal(result.error, QUIRE_OK);
        assert_true(result.token == 5 || result.token == 20 || result.token == 21);
        assert_int_equal(w.choice->nodes[w.node].token, result.token);
        seen[result.token]++;
    }
    assert_true(seen[5] > 40 && seen[20] > 40 && seen[21] > 40);
    sample_pool_close(&pool);
    constraint_drop(&w.choice->head);
}

TEST(a_guess_is_worth_a_row_by_what_rows_cost_and_by_who_else_decodes) {
    guess_worth alone = outlook_worth(1, 0, 0, 1), beside = outlook_worth(4, 30, 10, 1);
    assert_true(alone.least > 0.2f && alone.least < 0.3f && alone.row == 0.0f);
    assert_true(beside.least > alone.least);
    assert_true(beside.row > 1.3f && beside.row < 1.4f); /* a row takes a third of a step, which four share */
    assert_true(outlook_worth(1, 10, 10, 1).least == 0.5f && outlook_worth(1, 10, 10, 1).row == 1.0f);
    assert_true(outlook_worth(1, 10, 10, 1.5f).least == 0.75f && outlook_worth(1, 10, 10, 1.5f).row == 1.5f);
    assert_true(outlook_worth(100, 10, 10, 1).least == 0.9f && outlook_worth(1, 0.1, 99, 1).least == 0.9f);
    assert_true(outlook_worth(1, 1e-30, 99, 1).row == OUTLOOK_MOST_ROW);
    /* a step saves nothing */
    assert_true(outlook_worth(1, 0, 99, 1).row == OUTLOOK_MOST_ROW &&
                outlook_worth(1, 0, 99, 1).least == 0.9f);
}

TEST_MAIN(NULL, NULL)

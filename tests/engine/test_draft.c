/* Speculation by lookup changes nothing (draft_case.h); forced tokens; what is looked up. */
#include "engine/draft_ngram.h"
#include "draft_case.h"

static void ngram_drafts_change_nothing(void **state) {
    (void)state;
    matrix(COMPUTE_F32, DTYPE_F32, &ngram, (engine_ablations){0}, "ngram", true);
    matrix(COMPUTE_INT8, DTYPE_BF16, &ngram, (engine_ablations){0}, "ngram", false);
}

static void suffix_drafts_change_nothing(void **state) {
    (void)state;
    matrix(COMPUTE_F32, DTYPE_F32, &suffix, (engine_ablations){0}, "suffix", false);
    matrix(COMPUTE_INT8, DTYPE_BF16, &suffix, (engine_ablations){0}, "suffix", false);
}

/* What is forced comes in fewer steps and rows of logits, and is the same. */
static void forced_tokens_are_computed_together(void **state) {
    (void)state;
    static const int32_t one[] = {321};
    int32_t prompt[30];
    uint64_t seed = 9;
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    random_prompt(&seed, 2048, 30, prompt);
    for (int kind = 0; kind < 4; kind++) { /* plain; with an own stop token; sampled; with mirostat, which is chosen one by one */
        static harness_run runs[2];
        engine_stats stats[2];
        for (int jump = 0; jump < 2; jump++) {
            harness_options o = harness_defaults;
            harness h = {0};
            o.ablations.no_jump_forward = !jump;
            harness_open(&o, &h);
            runs[jump] = (harness_run){.prompt = prompt, .n_prompt = 30, .sampling = greedy(100)};
            runs[jump].sampling.lists = lists;
            runs[jump].sampling.n_stop_tokens = kind == 1;
            runs[jump].sampling.stop_tokens[0] = 321;
            runs[jump].sampling.temperature = kind >= 2 ? 1.0f : 0.0f;
            runs[jump].sampling.mirostat = kind == 3 ? MIROSTAT_2 : MIROSTAT_OFF;
            runs[jump].sampling.mirostat_tau = 3.0f;
            runs[jump].sampling.mirostat_eta = 0.1f;
            harness_submit(&h, &runs[jump]);
            harness_wait(&h, 1);
            stats[jump] = settled(&h);
            harness_close(&h);
        }
        assert_int_equal(runs[0].n_tokens, kind == 1 ? 1 : 100);
        assert_int_equal(runs[1].n_tokens, runs[0].n_tokens);
        assert_int_equal(runs[1].finish, runs[0].finish);
        assert_memory_equal(runs[0].tokens, runs[1].tokens, (size_t)runs[0].n_tokens * sizeof(int32_t));
        assert_int_equal(stats[0].steps, runs[0].n_tokens);
        assert_int_equal(stats[0].jump_forward_tokens, 0);
        if (kind == 0 || kind == 2) {
            assert_int_equal(stats[1].steps, 4); /* the prompt, and 99 tokens of which a step takes 1 + 32 */
            assert_int_equal(stats[1].jump_forward_tokens, 96);
            assert_int_equal(stats[1].step_rows, stats[0].step_rows); /* and no row in vain */
        }
        if (kind == 3) {
            assert_int_equal(stats[1].jump_forward_tokens, 0);
        }
    }
    sampling_lists_drop(lists);
}

/* In a step without room for drafts a forced token is computed alone; it has no logits, and those of the others stay theirs. */
static void forced_tokens_in_a_full_step_leave_the_others_alone(void **state) {
    (void)state;
    enum { N = 16 };
    static const int32_t one[] = {321};
    static int32_t prompts[N][20];
    static harness_run alone[N], together[N];
    harness_options o = harness_defaults;
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    o.n_threads = 2;
    o.max_rows = o.max_seqs = N;
    uint64_t seed = 5;
    for (int full = 0; full < 2; full++) {
        harness h = {0};
        harness_open(&o, &h);
        for (int i = 0; i < N; i++) {
            harness_run *r = full ? &together[i] : &alone[i];
            if (!full) {
                random_prompt(&seed, h.n_vocab, 20, prompts[i]);
            }
            *r = (harness_run){.prompt = prompts[i], .n_prompt = 20, .sampling = greedy(60)};
            r->sampling.lists = i % 2 ? NULL : lists;
            harness_submit(&h, r);
            harness_wait(&h, full ? 0 : 1);
        }
        harness_wait(&h, full ? N : 0);
        harness_close(&h);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(together[i].n_tokens, 60);
        assert_memory_equal(together[i].tokens, alone[i].tokens, 60 * sizeof(int32_t));
    }
    sampling_lists_drop(lists);
}

/* The second of two requests alike is guessed from the first one's output, unless it is another tenant's. */
static void recent_outputs_are_guessed_from_within_their_space(void **state) {
    (void)state;
    harness_options o = harness_defaults;
    uint64_t seed = 12;
    int32_t prompt[20];
    o.draft = suffix;
    random_prompt(&seed, 2048, 20, prompt);
    for (int other = 0; other < 2; other++) {
        harness h = {0};
        harness_open(&o, &h);
        static harness_run runs[2];
        engine_stats after[2];
        for (int i = 0; i < 2; i++) {
            runs[i] = (harness_run){.prompt = prompt, .n_prompt = 20, .sampling = greedy(40), .namespace = i && other ? "other" : "test"};
            runs[i].sampling.frequency_penalty = 1.0f; /* little repeats itself */
            harness_submit(&h, &runs[i]);
            harness_wait(&h, 1);
            after[i] = settled(&h);
        }
        assert_memory_equal(runs[0].tokens, runs[1].tokens, 40 * sizeof(int32_t));
        int64_t n_first = after[0].draft_accepted, n_second = after[1].draft_accepted - after[0].draft_accepted;
        print_message("accepted: first %d, second %d\n", (int)n_first, (int)n_second);
        assert_true(other ? n_second == n_first : n_second > n_first + 20);
        harness_close(&h);
    }
}

/* draft_ngram's tree as a line of tokens; returns its length. */
static int32_t look_up(const int32_t *tokens, int32_t n, int32_t lookup_min, int32_t lookup_max, int32_t wanted, draft_tree *out) {
    *out = (draft_tree){0};
    draft_ngram(tokens, n, lookup_min, lookup_max, &(draft_bounds){wanted, wanted, 1}, out);
    for (int32_t i = 0; i < out->n; i++) {
        assert_int_equal(out->parents[i], i - 1);
    }
    return out->n;
}

static void the_longest_suffix_is_looked_up_and_repetitions_are_gone_round(void **state) {
    (void)state;
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 1, 2, 3}, again[] = {5, 7, 6, 7, 6}, round[] = {7, 6, 7, 6, 7};
    draft_tree out;
    assert_int_equal(look_up(t, 10, 1, 4, 3, &out), 3);
    assert_int_equal(out.tokens[0], 9); /* 1 2 3 stands at 0, the shorter 2 3 at 4 */
    assert_int_equal(out.tokens[1], 2);
    assert_int_equal(look_up(t, 10, 1, 2, 3, &out), 3);
    assert_int_equal(out.tokens[0], 8); /* no longer than 2: the latest */
    assert_int_equal(look_up(t, 10, 4, 4, 3, &out), 0);
    assert_int_equal(look_up(again, 5, 1, 4, 5, &out), 5);
    assert_memory_equal(out.tokens, round, sizeof round);
    assert_int_equal(look_up(t, 1, 1, 4, 3, &out), 0);
    assert_int_equal(look_up(t, 0, 1, 4, 3, &out), 0);
}

static void places_that_go_on_otherwise_are_branches(void **state) {
    (void)state;
    static const int32_t t[] = {1, 2, 3, 9, 2, 3, 8, 4, 2, 3, 8, 5, 3, 6, 1, 2, 3}; /* 1 2 3 is followed by 9, 2 3 by 8 twice, 3 by 6 */
    static const int32_t tokens[] = {9, 2, 8, 6}, wider[] = {9, 2, 3, 8, 5, 6, 1};
    static const int8_t parents[] = {-1, 0, -1, -1}, wider_parents[] = {-1, 0, 1, -1, 3, -1, 5};
    draft_tree out = {0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){4, 4, 3}, &out);
    assert_int_equal(out.n, 4);
    assert_memory_equal(out.tokens, tokens, sizeof tokens);
    assert_memory_equal(out.parents, parents, sizeof parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 1, 4, &(draft_bounds){7, 3, 8}, &out);
    assert_int_equal(out.n, 7);
    assert_memory_equal(out.tokens, wider, 5 * sizeof *wider);
    assert_int_equal(out.tokens[5], 6);
    assert_memory_equal(out.parents, wider_parents, sizeof wider_parents);
    out = (draft_tree){0};
    draft_ngram(t, 17, 2, 4, &(draft_bounds){6, 6, 8}, &out);
    assert_int_equal(out.n, 6); /* 3 alone does not count */
    assert_int_equal(out.tokens[0], 9);
    assert_int_equal(out.tokens[3], 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_suffix_is_looked_up_and_repetitions_are_gone_round),
        cmocka_unit_test(places_that_go_on_otherwise_are_branches),
        cmocka_unit_test(ngram_drafts_change_nothing),
        cmocka_unit_test(suffix_drafts_change_nothing),
        cmocka_unit_test(forced_tokens_are_computed_together),
        cmocka_unit_test(forced_tokens_in_a_full_step_leave_the_others_alone),
        cmocka_unit_test(recent_outputs_are_guessed_from_within_their_space),
    };
    return cmocka_run_group_tests(tests, lists_open, lists_close);
}

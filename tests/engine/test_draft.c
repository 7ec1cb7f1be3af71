/* Speculation by lookup changes nothing (draft_case.h); forced tokens. */
#include "draft_case.h"

TEST(ngram_drafts_change_nothing) {
    matrix(COMPUTE_F32, DTYPE_F32, &ngram, (engine_ablations){0}, "ngram", true);
    matrix(COMPUTE_INT8, DTYPE_BF16, &ngram, (engine_ablations){0}, "ngram", false);
}

TEST(suffix_drafts_change_nothing) {
    matrix(COMPUTE_F32, DTYPE_F32, &suffix, (engine_ablations){0}, "suffix", false);
    matrix(COMPUTE_INT8, DTYPE_BF16, &suffix, (engine_ablations){0}, "suffix", false);
}

/* What is forced comes in fewer steps and rows of logits, and is the same. */
TEST(forced_tokens_are_computed_together) {
    static const int32_t one[] = {321};
    int32_t prompt[30];
    uint64_t seed = 9;
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    random_prompt(&seed, 2048, 30, prompt);
    /* plain; with an own stop token; sampled; with mirostat, which is chosen one by
     * one */
    for (int kind = 0; kind < 4; kind++) {
        static harness_run runs[2];
        quire_stats stats[2];
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

/* In a step without room for drafts a forced token is computed alone; it has no logits,
 * and those of the others stay theirs. */
TEST(forced_tokens_in_a_full_step_leave_the_others_alone) {
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

/* The second of two requests alike is guessed from the first one's output, unless it is
 * another tenant's. */
TEST(recent_outputs_are_guessed_from_within_their_space) {
    harness_options o = harness_defaults;
    uint64_t seed = 12;
    int32_t prompt[20];
    o.draft = suffix;
    random_prompt(&seed, 2048, 20, prompt);
    for (int other = 0; other < 2; other++) {
        harness h = {0};
        harness_open(&o, &h);
        static harness_run runs[2];
        quire_stats after[2];
        for (int i = 0; i < 2; i++) {
            runs[i] = (harness_run){.prompt = prompt,
                                    .n_prompt = 20,
                                    .sampling = greedy(40),
                                    .namespace = i && other ? "other" : "test"};
            runs[i].sampling.frequency_penalty = 1.0f; /* little repeats itself */
            harness_submit(&h, &runs[i]);
            harness_wait(&h, 1);
            after[i] = settled(&h);
        }
        assert_memory_equal(runs[0].tokens, runs[1].tokens, 40 * sizeof(int32_t));
        int64_t n_first = after[0].draft_accepted,
                n_second = after[1].draft_accepted - after[0].draft_accepted;
        print_message("accepted: first %d, second %d\n", (int)n_first, (int)n_second);
        assert_true(other ? n_second == n_first : n_second > n_first + 20);
        harness_close(&h);
    }
}

TEST_MAIN(lists_open, lists_close)

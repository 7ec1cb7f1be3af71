/* A draft model whose pages share a tight memory budget with the target's: nothing
 * changes but how many drafts there are (draft_case.h), and the target has all of the
 * memory that it needs. */
#include "draft_case.h"

TEST(drafts_that_share_the_targets_memory_change_nothing) {
    second x;
    drafts_share = true;
    draft_options o = second_open(&x, SIBLING, COMPUTE_F32, 512);
    matrix(COMPUTE_F32, DTYPE_F32, &o, (engine_ablations){0}, "sibling", true);
    second_close(&x);
    drafts_share = false;
}

TEST(a_model_that_drafts_for_itself_in_its_own_memory_is_always_right) {
    static workload base, with;
    second x;
    harness_options o = harness_defaults;
    run(&o, &base);
    o.draft = second_open(&x, o.path, COMPUTE_F32, 2048);
    o.shares_budget = true;
    for (o.n_pages = 40; o.n_pages <= 160; o.n_pages *= 2) {
        run(&o, &with);
        print_stats("itself", &with);
        same(&base, &with, "itself");
        assert_true(with.stats.draft_tokens > 0);
        assert_int_equal(with.stats.draft_accepted, with.stats.draft_tokens);
    }
    second_close(&x);
}

/* The drafts of one long sequence never cost it pages: it is not preempted, and ends at
 * the length that the pool alone would allow. */
TEST(a_sequence_may_take_all_of_the_memory) {
    enum { N_PROMPT = 60, PAGES = 68, SIZE = 4 };
    static harness_run runs[2];
    int32_t prompt[N_PROMPT];
    second x;
    draft_options draft = second_open(&x, SIBLING, COMPUTE_F32, 512);
    for (int drafts = 0; drafts < 2; drafts++) {
        harness h = {0};
        uint64_t seed = 9;
        harness_options o = harness_defaults;
        o.page_tokens = SIZE;
        o.n_pages = PAGES;
        o.draft = drafts ? draft : o.draft;
        o.shares_budget = drafts;
        harness_open(&o, &h);
        random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
        runs[drafts] = (harness_run){
            .prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(PAGES * SIZE - N_PROMPT)};
        harness_submit(&h, &runs[drafts]);
        harness_wait(&h, 1);
        quire_stats stats = settled(&h);
        assert_int_equal(runs[drafts].finish, FINISH_LENGTH);
        assert_int_equal(runs[drafts].n_tokens, PAGES * SIZE - N_PROMPT);
        assert_int_equal(stats.preemptions, 0);
        assert_true(!drafts || stats.drafts > 10);
        print_message("%d drafts of %d tokens\n", (int)stats.drafts, (int)runs[drafts].n_tokens);
        harness_close(&h);
    }
    assert_memory_equal(runs[0].tokens, runs[1].tokens, (size_t)runs[0].n_tokens * sizeof(int32_t));
    second_close(&x);
}

TEST_MAIN(lists_open, lists_close)

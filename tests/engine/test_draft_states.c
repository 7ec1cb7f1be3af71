/* A draft model that keeps recurrent states: its drafts leave the states as they were. */
#include "harness.h"
#include "model/make_states.h"
#include "second_model.h"
#include "test.h"

enum { VOCAB = 40, N_RUNS = 5, N_OUT = 60, PAGES = 512 };

static int32_t prompts[N_RUNS][64];
static temp_dir directory;

/* Runs all requests together; what comes out of each is in runs. */
static quire_stats run_together(const harness_options *o, harness_run *runs) {
    harness h = {0};
    harness_open(o, &h);
    harness_hold(&h);
    for (int32_t i = 0; i < N_RUNS; i++) {
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 9 + 11 * i, .sampling = greedy(N_OUT)};
        if (i % 2 == 1) {
            runs[i].sampling.temperature = 0.8f;
            runs[i].sampling.seed = 7;
        }
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, N_RUNS);
    quire_stats stats = harness_idle_stats(&h);
    harness_close(&h);
    return stats;
}

static harness_options options_of(state_model kind) {
    model_plan plan;
    strbuf b = {0};
    harness_options o = harness_defaults;
    plan_states(&plan, kind);
    put_plan(&b, &plan);
    write_file(temp_path(&directory, "m.gguf"), b.p, b.n);
    strbuf_deinit(&b);
    o.path = temp_path(&directory, "m.gguf");
    return o;
}

static void same_tokens(const harness_run *a, const harness_run *b, const char *name) {
    for (int32_t i = 0; i < N_RUNS; i++) {
        assert_int_equal(b[i].finish, FINISH_LENGTH);
        if (a[i].n_tokens != b[i].n_tokens ||
            memcmp(a[i].tokens, b[i].tokens, (size_t)a[i].n_tokens * sizeof a[i].tokens[0]) != 0) {
            fail_msg("%s: request %d has other tokens", name, (int)i);
        }
    }
}

/* Drafts share the noise of positions, so a model is always right about itself, if its
 * states are those of the tokens that were accepted. */
TEST(a_model_with_states_that_drafts_for_itself_is_always_right) {
    static harness_run plain[N_RUNS], drafted[N_RUNS];
    for (int kind = 0; kind < N_STATE_MODELS; kind++) {
        static const int32_t page_tokens[] = {1, 16};
        for (int way = 0; way < 2; way++) {
            second x;
            harness_options o = options_of((state_model)kind);
            o.page_tokens = page_tokens[way];
            o.n_pages = 4096 / page_tokens[way];
            (void)run_together(&o, plain);
            o.draft = second_open(&x, o.path, COMPUTE_F32, PAGES);
            quire_stats stats = run_together(&o, drafted);
            same_tokens(plain, drafted, state_model_names[kind]);
            assert_true(stats.draft_tokens > 100);
            assert_int_equal(stats.draft_accepted, stats.draft_tokens);
            second_close(&x);
        }
    }
}

/* Another model's drafts are mostly wrong, and few pages are taken from sequence to
 * sequence. */
TEST(wrong_drafts_and_a_lack_of_pages_change_nothing) {
    static harness_run plain[N_RUNS], drafted[N_RUNS];
    static const int32_t n_pages[] = {PAGES, 24, 12};
    harness_options o = options_of(STATE_MODEL_DELTA);
    (void)run_together(&o, plain);
    for (size_t i = 0; i < sizeof n_pages / sizeof *n_pages; i++) {
        second x;
        temp_dir of_target = directory;
        directory = temp_new();
        harness_options other = options_of(STATE_MODEL_HEADS);
        o.draft = second_open(&x, other.path, COMPUTE_F32, n_pages[i]);
        temp_delete(&directory, (const char *[]){"m.gguf", NULL});
        directory = of_target;
        o.path = temp_path(&directory, "m.gguf");
        quire_stats stats = run_together(&o, drafted);
        same_tokens(plain, drafted, "another model");
        assert_true(stats.draft_tokens > stats.draft_accepted);
        second_close(&x);
    }
}

int main(void) {
    uint64_t seed = 11;
    directory = temp_new();
    for (int32_t i = 0; i < N_RUNS; i++) {
        random_prompt(&seed, VOCAB, 64, prompts[i]);
    }
    int n_failed = tests_run(NULL, NULL);
    temp_delete(&directory, (const char *[]){"m.gguf", NULL});
    return n_failed;
}

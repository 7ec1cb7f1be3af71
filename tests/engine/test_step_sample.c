/* Tokens that are known with the logits: the same as those chosen from them. The backend
 * is the real one; what it says of a row's largest logit is counted, kept back, or not
 * offered at all. */

#include "core/params.h"
#define MODEL FLUENT
#include "engine/harness.h"
#include "test.h"

enum { N_RUNS = 10, N_PROMPT = 20, N_OUT = 24, N_SEEN = 12 };

typedef enum way { OFFERED, KEPT_BACK, NOT_OFFERED, N_WAYS } way;

static const backend_ops *real;
static backend_ops changed;
static way how;
static atomic_int n_asked;

static int32_t count_argmax(const backend *b, int32_t i) {
    n_asked++;
    return how == OFFERED ? real->argmax(b, i) : -1;
}

static const backend_ops *change(const backend_ops *ops, const model_desc *d) {
    (void)d;
    real = ops;
    changed = *ops;
    changed.argmax = how == NOT_OFFERED ? NULL : count_argmax;
    return &changed;
}

/* Greedy ones, and such whose row is changed first, or drawn from, or looked at for
 * log-probabilities. */
static void fill(harness_run *runs, int32_t (*prompts)[N_PROMPT], sampling_lists *bias) {
    for (int i = 0; i < N_RUNS; i++) {
        uint64_t seed = (uint64_t)i + 3;
        random_prompt(&seed, 2048, N_PROMPT, prompts[i]);
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N_PROMPT, .sampling = greedy(N_OUT)};
    }
    runs[1].sampling.repetition_penalty = 1.5f;
    runs[2].sampling.temperature = 1.0f;
    runs[3].sampling.ignore_eos = false;
    runs[3].sampling.min_tokens = N_SEEN;
    runs[4].sampling.lists = bias;
    runs[5].sampling.frequency_penalty = 0.7f;
    for (int i = 8; i < N_RUNS; i++) { /* each sample changes what the next one goes by */
        runs[i].sampling.temperature = 1.0f;
        runs[i].sampling.mirostat = i == 8 ? MIROSTAT_1 : MIROSTAT_2;
        runs[i].sampling.mirostat_tau = 4.0f;
        runs[i].sampling.mirostat_eta = 0.3f;
    }
}

TEST(picks_are_the_same_however_they_are_found) {
    static int32_t prompts[N_RUNS][N_PROMPT];
    static harness_run runs[N_WAYS][N_RUNS], by_one[N_RUNS]; /* by_one: of one thread */
    int asked[N_WAYS];
    sampling_lists *bias = sampling_lists_new();
    assert_int_equal(sampling_lists_set_bias(bias, (int32_t[]){40, 41}, (float[]){9.0f, -9.0f}, 2), QUIRE_OK);
    for (int32_t threads = 1; threads <= 2; threads++) {
        for (how = OFFERED; how < N_WAYS; how++) {
            harness h = {0};
            harness_options o = harness_defaults;
            o.wrap = change;
            o.n_threads = threads;
            o.prefix_cache = PREFIX_CACHE_NONE;
            n_asked = 0;
            fill(runs[how], prompts, bias);
            harness_open(&o, &h);
            for (int i = 0; i < N_RUNS; i++) {
                harness_submit(&h, &runs[how][i]);
            }
            harness_wait(&h, N_RUNS);
            harness_close(&h);
            asked[how] = n_asked;
            for (int i = 0; i < N_RUNS; i++) {
                assert_int_equal(runs[how][i].n_tokens, runs[OFFERED][i].n_tokens);
                assert_memory_equal(runs[how][i].tokens, runs[OFFERED][i].tokens,
                                    (size_t)runs[how][i].n_tokens * sizeof(int32_t));
            }
        }
        for (int i = 0; i < N_RUNS && threads > 1; i++) {
            assert_int_equal(runs[OFFERED][i].n_tokens, by_one[i].n_tokens);
            assert_memory_equal(runs[OFFERED][i].tokens, by_one[i].tokens,
                                (size_t)by_one[i].n_tokens * sizeof(int32_t));
        }
        memcpy(by_one, runs[OFFERED], sizeof by_one);
        assert_int_equal(asked[NOT_OFFERED], 0);
        assert_int_equal(asked[OFFERED], asked[KEPT_BACK]);
        /* Three are greedy throughout, one is after its least number of tokens; of the
         * others no row's largest logit is asked for. */
        assert_int_equal(asked[OFFERED], 3 * N_OUT + runs[OFFERED][3].n_tokens - N_SEEN);
    }
    sampling_lists_drop(bias);
}

TEST_MAIN(NULL, NULL)

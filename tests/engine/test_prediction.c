/* A request's prediction changes nothing but the number of steps: right, half right,
 * wrong, empty and too long ones, alone and beside a drafter (draft_case.h); what is
 * counted of them. */
#include "draft_case.h"

static void drop_predictions(void) {
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        prediction_drop(predictions[i]);
        predictions[i] = NULL;
    }
}

enum { LONG = 3000 };

/* The predictions of the requests, of one kind after the other: the answer; the answer
 * with every seventh token another; none of its tokens; nothing; the answer, and then too
 * much. */
static void predict_answers(const workload *base, int32_t n_vocab) {
    static int32_t ids[LONG];
    drop_predictions();
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        const outcome *o = &base->outcomes[i];
        int32_t n = i % 5 == 3 ? 0 : i % 5 == 4 ? LONG : o->n;
        for (int32_t k = 0; k < n; k++) {
            bool is_wrong = i % 5 == 2 || (i % 5 == 1 && k % 7 == 6);
            ids[k] = k >= o->n ? k % n_vocab : is_wrong ? (o->tokens[k] + 1) % n_vocab : o->tokens[k];
        }
        assert_int_equal(prediction_new(ids, n, &predictions[i]), QUIRE_OK);
    }
}

TEST(predictions_change_nothing) {
    predict = predict_answers;
    matrix(COMPUTE_F32, DTYPE_F32, &(draft_options){0}, (engine_ablations){0}, "predictions", true);
    drop_predictions();
    matrix(COMPUTE_INT8, DTYPE_BF16, &(draft_options){0}, (engine_ablations){0}, "predictions", false);
    drop_predictions();
}

TEST(predictions_beside_a_drafter_change_nothing) {
    predict = predict_answers;
    matrix(COMPUTE_F32, DTYPE_F32, &ngram, (engine_ablations){0}, "predictions and ngram", false);
    drop_predictions();
    matrix(COMPUTE_F32, DTYPE_F32, &suffix, (engine_ablations){0}, "predictions and suffix", false);
    drop_predictions();
}

/* ---- what is counted ---- */

enum { N_PROMPT = 20, N_OUT = 60 };

/* Runs a request step by step, with an audit after each; returns how many steps it
 * took. */
static int32_t run_stepwise(const harness_options *o, harness_run *r, sampling_params sampling,
                            prediction *p) {
    static int32_t prompt[N_PROMPT];
    harness h = {0};
    uint64_t seed = 31;
    random_prompt(&seed, 2048, N_PROMPT, prompt);
    harness_open(o, &h);
    harness_take_over(&h);
    *r = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = sampling, .prediction = p};
    harness_submit(&h, r);
    int32_t n = harness_steps(&h, 1000);
    assert_int_equal(r->finish, FINISH_LENGTH);
    harness_close(&h);
    return n;
}

static prediction *made_of(const int32_t *ids, int32_t n) {
    prediction *p;
    assert_int_equal(prediction_new(ids, n, &p), QUIRE_OK);
    return p;
}

TEST(a_right_prediction_is_accepted_whole) {
    static harness_run plain, with;
    harness_options o = harness_defaults;
    for (int sampled = 0; sampled < 2; sampled++) {
        sampling_params p = greedy(N_OUT);
        p.temperature = sampled ? 0.8f : 0.0f;
        p.seed = 5;
        assert_int_equal(run_stepwise(&o, &plain, p, NULL), N_OUT);
        assert_int_equal(plain.predicted.n_accepted + plain.predicted.n_rejected, 0);
        prediction *right = made_of(plain.tokens, N_OUT);
        int32_t n_steps = run_stepwise(&o, &with, p, right);
        assert_memory_equal(with.tokens, plain.tokens, N_OUT * sizeof(int32_t));
        /* the first token is sampled after the prompt; the last is drafted by no step,
         * which would compute it */
        assert_int_equal(with.predicted.n_rejected, 0);
        print_message("%d steps, %d accepted\n", (int)n_steps, (int)with.predicted.n_accepted);
        assert_int_equal(with.predicted.n_accepted + n_steps, N_OUT);
        assert_int_equal(n_steps, 1 + (N_OUT - 1 + DRAFT_PREDICTED) / (1 + DRAFT_PREDICTED));
        prediction_drop(right);
    }
}

TEST(rejected_ids_count_once_and_only_where_they_were_drafted) {
    static harness_run plain, with;
    harness_options o = harness_defaults;
    int32_t ids[N_OUT];
    sampling_params p = greedy(N_OUT);
    p.frequency_penalty = 1.0f; /* little repeats itself */
    run_stepwise(&o, &plain, p, NULL);
    /* three ids are others */
    memcpy(ids, plain.tokens, sizeof ids);
    for (int32_t at = 15; at < N_OUT; at += 15) {
        ids[at] = (ids[at] + 1) % 2048;
    }
    prediction *nearly = made_of(ids, N_OUT);
    int32_t n_steps = run_stepwise(&o, &with, p, nearly);
    assert_memory_equal(with.tokens, plain.tokens, N_OUT * sizeof(int32_t));
    print_message("%d steps, %d accepted, %d rejected\n", (int)n_steps, (int)with.predicted.n_accepted,
                  (int)with.predicted.n_rejected);
    assert_true(n_steps < N_OUT / 2);
    assert_in_range(with.predicted.n_accepted, N_OUT / 2, N_OUT - n_steps);
    assert_in_range(with.predicted.n_rejected, 3, 12); /* the others, and those after one that come again */
    prediction_drop(nearly);
    /* none of it is right: nothing is drafted */
    for (int32_t k = 0; k < N_OUT; k++) {
        ids[k] = (plain.tokens[k] + 1) % 2048;
    }
    prediction *wrong = made_of(ids, 1);
    assert_int_equal(run_stepwise(&o, &with, p, wrong), N_OUT);
    assert_memory_equal(with.tokens, plain.tokens, N_OUT * sizeof(int32_t));
    assert_int_equal(with.predicted.n_accepted + with.predicted.n_rejected, 0);
    prediction_drop(wrong);
}

/* One sequence at most, and no method: a step has rows for drafts all the same. */
TEST(a_server_for_one_sequence_drafts_predictions) {
    static harness_run plain, with;
    harness_options o = harness_defaults;
    o.max_seqs = 1;
    run_stepwise(&o, &plain, greedy(N_OUT), NULL);
    prediction *right = made_of(plain.tokens, N_OUT);
    assert_true(run_stepwise(&o, &with, greedy(N_OUT), right) < N_OUT / 4);
    assert_memory_equal(with.tokens, plain.tokens, N_OUT * sizeof(int32_t));
    prediction_drop(right);
}

/* A pool that holds few of its sequences: they lose their pages, and their counts
 * stay. */
TEST(counts_survive_preemption) {
    enum { N = 6 };
    static int32_t prompts[N][N_PROMPT];
    static harness_run alone[N], together[N];
    prediction *right[N];
    harness_options o = harness_defaults;
    uint64_t seed = 41;
    for (int few = 0; few < 2; few++) {
        harness h = {0};
        o.page_tokens = 4;
        o.n_pages = few ? 48 : 1024;
        harness_open(&o, &h);
        harness_take_over(&h);
        for (int i = 0; i < N; i++) {
            harness_run *r = few ? &together[i] : &alone[i];
            if (!few) {
                random_prompt(&seed, 2048, N_PROMPT, prompts[i]);
            }
            *r = (harness_run){.prompt = prompts[i],
                               .n_prompt = N_PROMPT,
                               .sampling = greedy(N_OUT),
                               .prediction = few ? right[i] : NULL};
            harness_submit(&h, r);
        }
        harness_steps(&h, 100000);
        for (int i = 0; i < N && !few; i++) {
            right[i] = made_of(alone[i].tokens, N_OUT);
        }
        harness_close(&h);
    }
    int32_t n_preempted = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(together[i].finish, FINISH_LENGTH);
        assert_memory_equal(together[i].tokens, alone[i].tokens, N_OUT * sizeof(int32_t));
        assert_int_equal(together[i].predicted.n_rejected, 0);
        assert_in_range(together[i].predicted.n_accepted, N_OUT / 3, N_OUT - 2);
        n_preempted += together[i].n_preempted;
        prediction_drop(right[i]);
    }
    assert_true(n_preempted > 0);
}

/* What takes over a sequence after KEPT of its tokens follows the prediction from there,
 * and counts the tokens that remain. */
TEST(a_branch_that_replaces_its_parent_keeps_its_counts) {
    enum { KEPT = 30 };
    static harness_run plain, parent, branch;
    run_stepwise(&harness_defaults, &plain, greedy(N_OUT), NULL);
    prediction *right = made_of(plain.tokens, N_OUT);
    for (int replaces = 0; replaces < 2; replaces++) {
        harness h = {0};
        quire_error err = {0};
        engine_fork *fork;
        harness_open(&harness_defaults, &h);
        harness_take_over(&h);
        parent = branch = (harness_run){
            .prompt = plain.prompt, .n_prompt = N_PROMPT, .sampling = greedy(N_OUT), .prediction = right};
        harness_submit(&h, &parent);
        harness_steps(&h, 3);
        assert_in_range(parent.n_tokens, KEPT, N_OUT - 1);
        assert_int_equal(engine_fork_acquire(h.e, parent.id, &fork), QUIRE_OK);
        int32_t *tokens = mem_new(N_PROMPT + KEPT, sizeof *tokens);
        memcpy(tokens, plain.prompt, N_PROMPT * sizeof *tokens);
        memcpy(tokens + N_PROMPT, plain.tokens, KEPT * sizeof *tokens);
        engine_request r = {.tokens = tokens,
                            .n_tokens = N_PROMPT + KEPT,
                            .sampling = greedy(N_OUT),
                            .prediction = right,
                            .namespace = "test",
                            .n_namespace = 4,
                            .fork_from = fork,
                            .fork_position = N_PROMPT + KEPT,
                            .n_prompt = N_PROMPT,
                            .fork_replaces = replaces,
                            .out = h.out,
                            .user = &branch};
        assert_int_equal(engine_submit(h.e, &r, &branch.id, &err), QUIRE_OK);
        engine_fork_release(fork);
        harness_steps(&h, 1000);
        assert_int_equal(branch.n_tokens, N_OUT - KEPT);
        assert_memory_equal(branch.tokens, plain.tokens + KEPT, (N_OUT - KEPT) * sizeof(int32_t));
        assert_int_equal(branch.predicted.n_rejected, 0);
        assert_in_range(branch.predicted.n_accepted, replaces ? N_OUT - KEPT + 1 : N_OUT / 4,
                        replaces ? N_OUT - 2 : N_OUT - KEPT);
        harness_close(&h);
    }
    prediction_drop(right);
}

TEST(what_cannot_be_drafted_is_refused) {
    static const int32_t bad[][2] = {{5, 2048}, {5, -1}, {5, INT32_MAX}};
    static int32_t prompt[] = {1, 2, 3};
    harness h = {0};
    quire_error err = {0};
    request_id id;
    harness_open(&harness_defaults, &h);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        prediction *p = made_of(bad[i], 2);
        harness_run r = {.prompt = prompt, .n_prompt = 3, .sampling = greedy(4), .prediction = p};
        harness_submit(&h, &r);
        assert_int_equal(r.error, QUIRE_BAD_REQUEST);
        prediction_drop(p);
    }
    engine_request beams = {.tokens = prompt,
                            .n_tokens = 3,
                            .sampling = greedy(4),
                            .beams = {.width = 2, .n_groups = 1},
                            .prediction = made_of(prompt, 3),
                            .namespace = "test",
                            .n_namespace = 4,
                            .out = h.out};
    assert_int_equal(engine_submit(h.e, &beams, &id, &err), QUIRE_BAD_REQUEST);
    assert_string_equal(err.param, "prediction");
    prediction_drop(beams.prediction);
    harness_close(&h);
}

TEST_MAIN(lists_open, lists_close)

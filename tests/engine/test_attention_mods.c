/* A request's own mask and change of scores: its logits and tokens are the same however
 * it runs, others beside it are untouched, and a fault is its own. Everything here
 * compares bytes. */

#include "expr/expr.h"
#include "harness.h"
#include "test.h"

enum { N_PROMPT = 90, N_NEW = 24, N_STRANGERS = 5 };

static int32_t prompt[N_PROMPT];

static attn_mods *compile(const char *mask, const char *score, const attn_array *arrays, int32_t n_arrays) {
    attn_mods *mods;
    quire_error err = {0};
    const expr_mods from = {str_of(mask), str_of(score), arrays, n_arrays};
    if (expr_compile_mods(&from, &mods, &err) != QUIRE_OK) {
        fail_msg("%s | %s: %s", mask, score, err.message);
    }
    return mods;
}

/* Logits of the prompt and the tokens after it. */
typedef struct outcome {
    float *logits;
    size_t n_bytes;
    int32_t tokens[N_NEW];
} outcome;

/* Runs the prompt under mods; strangers have other mods, or none. */
static void run_way(const harness_options *o, attn_mods *mods, attn_mods *others, int32_t n_strangers,
                    outcome *out) {
    harness h = {0};
    static harness_run runs[N_STRANGERS + 1];
    harness_open(o, &h);
    memset(runs, 0, sizeof runs);
    out->n_bytes = (size_t)N_PROMPT * (size_t)h.n_vocab * sizeof(float);
    out->logits = mem_new(1, out->n_bytes);
    runs[0] = (harness_run){.prompt = prompt,
                            .n_prompt = N_PROMPT,
                            .sampling = greedy(N_NEW),
                            .logits = out->logits,
                            .mods = mods,
                            .namespace = "mine"};
    for (int32_t i = 0; i < n_strangers; i++) {
        runs[i + 1] =
            (harness_run){.prompt = prompt, .n_prompt = 20 + 13 * i, .sampling = greedy(10 + 3 * i)};
        runs[i + 1].mods = i % 2 == 0 ? others : NULL;
        runs[i + 1].namespace = i % 2 == 0 ? "theirs" : "nobody's";
    }
    harness_hold(&h); /* all at once */
    for (int32_t i = n_strangers; i >= 0; i--) {
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, n_strangers + 1);
    assert_int_equal(runs[0].finish, FINISH_LENGTH);
    memcpy(out->tokens, runs[0].tokens, sizeof out->tokens);
    harness_close(&h);
}

static bool same(const outcome *a, const outcome *b) {
    return memcmp(a->logits, b->logits, a->n_bytes) == 0 &&
           memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0;
}

/* One way against base; `equal` says what is expected. */
static void compare(const outcome *base, const harness_options *o, attn_mods *mods, attn_mods *others,
                    int32_t n, const char *what, bool equal) {
    outcome other;
    run_way(o, mods, others, n, &other);
    if (same(base, &other) != equal) {
        fail_msg("%s: %s", what, equal ? "differs" : "is the same");
    }
    mem_free(other.logits);
}

static void all_ways(compute_mode compute, dtype kv) {
    static const int32_t doc[N_PROMPT + N_NEW] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1,
                                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const attn_array array = {.name = "doc", .n_dims = 1, .dims = {N_PROMPT + N_NEW}, .data = doc};
    attn_mods *mods = compile("(q_idx - kv_idx) % 3 != 1 || doc[kv_idx] == doc[q_idx]",
                              "score - 0.01 * (q_idx - kv_idx)", &array, 1);
    attn_mods *others = compile("q_idx - kv_idx < 7 || kv_idx < 4", "", NULL, 0);
    harness_options o = harness_defaults;
    outcome base;
    o.compute = compute;
    o.kv = kv;
    run_way(&o, mods, NULL, 0, &base);
    compare(&base, &o, NULL, NULL, 0, "without a mask", false);
    compare(&base, &o, mods, others, N_STRANGERS, "strangers", true);
    for (int32_t pages = 1; pages <= 256; pages *= 16) {
        harness_options v = o;
        v.page_tokens = pages;
        v.n_pages = 16384 / pages;
        v.chunk = pages == 1 ? 7 : pages == 16 ? 1 : 33;
        compare(&base, &v, mods, others, pages == 1 ? N_STRANGERS : 0, "pages and chunks", true);
    }
    harness_options v = o;
    v.n_threads = 2;
    v.no_cascade = true;
    compare(&base, &v, mods, mods, N_STRANGERS, "threads", true);
    v.n_pages = 12; /* of 16 tokens, for 114 and up to 94: preemption */
    compare(&base, &v, mods, others, N_STRANGERS, "preempted", true);
    v.swap_bytes = 16 << 20;
    v.preempt = PREEMPT_SWAP;
    compare(&base, &v, mods, others, N_STRANGERS, "swapped", true);
    v = o;
    v.draft = (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
    compare(&base, &v, mods, others, N_STRANGERS, "drafts", true);
    v.step_target_us = 1; /* a row at a time, by what it is measured to cost; decodes take turns */
    compare(&base, &v, mods, others, N_STRANGERS, "measured", true);
    mem_free(base.logits);
    attn_mods_drop(mods);
    attn_mods_drop(others);
}

TEST(logits_under_a_mask_do_not_depend_on_how_they_were_run) {
    all_ways(COMPUTE_F32, DTYPE_F32);
    all_ways(COMPUTE_INT8, DTYPE_I8);
}

TEST(a_mask_that_hides_nothing_changes_no_bit) {
    attn_mods *mods = compile("q_idx >= kv_idx", "", NULL, 0);
    harness_options o = harness_defaults;
    outcome base;
    run_way(&o, NULL, NULL, 0, &base);
    compare(&base, &o, mods, NULL, 0, "causal as a mask", true);
    mem_free(base.logits);
    attn_mods_drop(mods);
}

/* ---- reuse ---- */

TEST(equal_masks_share_pages_and_public_prefixes_are_without_masks) {
    attn_mods *mods = compile("q_idx - kv_idx < 20", "", NULL, 0);
    const engine_prefix public = {prompt, 64};
    harness_options o = harness_defaults;
    harness h = {0};
    o.prefixes = &public;
    o.n_prefixes = 1;
    harness_open(&o, &h);
    static harness_run runs[4];
    for (int i = 0; i < 4; i++) { /* one without, twice the same under the mask, one without elsewhere */
        static const char *const names[] = {"plain", "masked", "masked", "other"};
        static const int32_t cached[] = {0, 0, N_PROMPT - 1, 64};
        runs[i] = (harness_run){
            .prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(4), .namespace = names[i]};
        runs[i].mods = i == 1 || i == 2 ? mods : NULL;
        harness_submit(&h, &runs[i]);
        harness_wait(&h, 1);
        assert_int_equal(runs[i].n_cached, cached[i]);
    }
    assert_memory_equal(runs[1].tokens, runs[2].tokens, sizeof(int32_t) * 4);
    assert_memory_equal(runs[0].tokens, runs[3].tokens, sizeof(int32_t) * 4);
    harness_close(&h);
    attn_mods_drop(mods);
}

/* ---- faults ---- */

TEST(a_fault_ends_its_request_and_no_other) {
    static const int32_t doc[N_PROMPT + 10] = {0}; /* ends in the middle of the answer */
    const attn_array array = {.name = "doc", .n_dims = 1, .dims = {N_PROMPT + 10}, .data = doc};
    attn_mods *late = compile("doc[q_idx] == 0", "", &array, 1),
              *early = compile("", "score + 1 / (kv_idx - 40)", NULL, 0);
    for (int drafts = 0; drafts < 2; drafts++) {
        harness_options o = harness_defaults;
        harness h = {0};
        if (drafts) {
            o.draft = (draft_options){
                .method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
        }
        harness_open(&o, &h);
        static harness_run alone, runs[4];
        alone = (harness_run){
            .prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(N_NEW), .namespace = "a"};
        harness_submit(&h, &alone);
        harness_wait(&h, 1);
        for (int i = 0; i < 4; i++) {
            runs[i] = alone;
            runs[i].namespace = (const char *const[]){"b", "c", "d", "c"}[i];
            runs[i].mods = (attn_mods *const[]){NULL, late, early, late}[i];
        }
        runs[3].sampling = greedy(10); /* its last row is at position N_PROMPT + 8 */
        harness_hold(&h);
        for (int i = 0; i < 4; i++) {
            harness_submit(&h, &runs[i]);
        }
        harness_wait(&h, 4);
        assert_int_equal(runs[0].finish, FINISH_LENGTH);
        assert_memory_equal(runs[0].tokens, alone.tokens, sizeof(int32_t) * N_NEW);
        assert_int_equal(runs[1].finish, FINISH_ERROR);
        assert_int_equal(runs[1].error, QUIRE_FAULT);
        assert_int_equal(runs[1].n_tokens, 11); /* that of position N_PROMPT + 10 is not there to follow */
        assert_int_equal(runs[2].finish, FINISH_ERROR);
        assert_int_equal(runs[2].error, QUIRE_FAULT);
        assert_int_equal(runs[2].n_tokens, 0);
        assert_int_equal(runs[3].finish, FINISH_LENGTH);
        harness_close(&h);
    }
    attn_mods_drop(late);
    attn_mods_drop(early);
}

/* ---- samples and beams ---- */

/* n sequences of one prompt, by samples or by beams, each against itself on another
 * machine. */
static void run_several(const harness_options *o, attn_mods *mods, int32_t width, harness_run *runs) {
    harness h = {0};
    void *users[4];
    request_id ids[4];
    quire_error err = {0};
    harness_open(o, &h);
    int32_t *tokens = mem_new(N_PROMPT, sizeof *tokens);
    memcpy(tokens, prompt, sizeof prompt);
    engine_request q = {
        .tokens = tokens, .n_tokens = N_PROMPT, .sampling = greedy(N_NEW), .mods = mods, .out = h.out};
    q.sampling.temperature = width > 0 ? 0.0f : 1.0f;
    q.beams = (beam_params){.width = width, .n_groups = 1, .length_penalty = 1.0f};
    q.logprobs_width = width > 0 ? 1 : 0;
    for (int i = 0; i < 4; i++) {
        runs[i] = (harness_run){0};
        users[i] = &runs[i];
    }
    assert_int_equal(engine_submit_samples(h.e, &q, 4, users, ids, &err), QUIRE_OK);
    harness_wait(&h, 4);
    harness_close(&h);
}

TEST(samples_and_beams_under_a_mask_are_the_same_in_any_pages) {
    attn_mods *mods = compile("q_idx - kv_idx < 3", "", NULL, 0);
    for (int32_t width = 0; width <= 4; width += 4) {
        static harness_run base[4], other[4], plain[4];
        harness_options o = harness_defaults;
        run_several(&o, mods, width, base);
        run_several(&o, NULL, width, plain);
        o.page_tokens = 4;
        o.chunk = 5;
        o.n_threads = 2;
        run_several(&o, mods, width, other);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(base[i].n_tokens, N_NEW);
            assert_memory_equal(base[i].tokens, other[i].tokens, sizeof(int32_t) * N_NEW);
        }
        assert_true(memcmp(base[0].tokens, plain[0].tokens, sizeof(int32_t) * N_NEW) != 0);
    }
    attn_mods_drop(mods);
}

/* A prompt under a program of its own begins with few rows, since what they cost is not
 * known; one without takes the step. */
TEST(a_program_of_its_own_begins_with_few_rows) {
    attn_mods *mods = compile("", "score + 0.5 * sin(kv_idx)", NULL, 0);
    for (int32_t own = 0; own < 2; own++) {
        harness_options o = harness_defaults;
        harness h = {0};
        o.step_target_us = 1000000000; /* however slow the machine is */
        harness_open(&o, &h);
        harness_take_over(&h);
        harness_run r = {.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .sampling = greedy(1),
                         .mods = mods,
                         .mods_are_common = !own};
        harness_submit(&h, &r);
        int32_t rows[8] = {0}, n_steps = 0;
        for (int32_t done = 0; done < N_PROMPT && n_steps < 8; done += rows[n_steps++]) {
            assert_true(step_submit(h.e));
            rows[n_steps] = h.e->sched.plan.n_rows;
            step_collect(h.e);
        }
        assert_int_equal(rows[0], own ? 10 : N_PROMPT); /* 55 pairs; then up to four times as many */
        assert_int_equal(rows[1], own ? 12 : 0);
        harness_steps(&h, 8);
        assert_int_equal(r.finish, FINISH_LENGTH);
        harness_close(&h);
    }
    attn_mods_drop(mods);
}

int main(void) {
    uint64_t seed = 20;
    random_prompt(&seed, 256, N_PROMPT, prompt);
    return tests_run(NULL, NULL);
}

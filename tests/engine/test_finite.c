/* A row that is not a number: its request ends with an error, its neighbours with the
 * tokens they have alone, and nothing of it is found in the cache. The backend is the
 * real one, but for two tokens whose rows it spoils. */
#include <math.h>

#include "core/params.h"
#define MODEL FLUENT
#include "engine/harness.h"
#include "test.h"

enum { BAD_HIDDEN = 11, BAD_LOGITS = 12, N = 60, N_OUT = 20 };

static const backend_ops *real;
static backend_ops spoiling;
static const batch *rows;
static float poison;
static int32_t width;

static void note_batch(backend *b, const batch *of) {
    rows = of;
    real->step_begin(b, of);
}

static void spoil_embedding(backend *b, const embed_use *use) {
    float bad[1024];
    real->embed(b, use);
    for (int32_t i = 0; i < width; i++) {
        bad[i] = i == width / 2 ? poison : 0.5f;
    }
    for (int32_t i = 0; i < rows->n_rows; i++) {
        if (rows->tokens[i] == BAD_HIDDEN) {
            real->buffer_write(b, use->x, i, 1, bad);
        }
    }
}

static float *spoil_logits(backend *b, int32_t i) {
    float *logits = real->logits(b, i);
    if (rows->tokens[rows->out_rows[i]] == BAD_LOGITS) {
        logits[777] = poison;
    }
    return logits;
}

/* What head would have noted of such a row. */
static int32_t spoil_argmax(const backend *b, int32_t i) {
    return rows->tokens[rows->out_rows[i]] == BAD_LOGITS ? -1 : real->argmax(b, i);
}

static const backend_ops *spoil(const backend_ops *ops, const model_desc *d) {
    real = ops;
    spoiling = *real;
    spoiling.step_begin = note_batch;
    spoiling.embed = spoil_embedding;
    spoiling.logits = spoil_logits;
    spoiling.argmax = spoil_argmax;
    width = d->d_model;
    assert_true(width <= 1024);
    return &spoiling;
}

static void open_spoilt(const harness_options *o, harness *h) {
    harness_options spoilt = *o;
    spoilt.wrap = spoil;
    harness_open(&spoilt, h);
}

/* A prompt without the two, but at `at`. */
static void make_prompt(uint64_t seed, int32_t *prompt, int32_t at, int32_t token) {
    random_prompt(&seed, 2048, N, prompt);
    for (int32_t i = 0; i < N; i++) {
        prompt[i] = prompt[i] == BAD_HIDDEN || prompt[i] == BAD_LOGITS ? 13 : prompt[i];
    }
    if (at >= 0) {
        prompt[at] = token;
    }
}

static quire_stats idle(harness *h) {
    quire_stats s;
    do {
        engine_stats_read(h->e, &s);
    } while (s.n_requests_running + s.n_requests_waiting + s.n_pages_held > 0);
    return s;
}

/* Good and bad requests side by side, in the same steps. */
static void run_case(const harness_options *o, int32_t at, int32_t token, float with) {
    enum { N_RUNS = 6 };
    static int32_t prompts[N_RUNS][N];
    static harness_run runs[N_RUNS], alone[N_RUNS];
    harness h = {0}, clean = {0};
    poison = with;
    harness_open(o, &clean);
    open_spoilt(o, &h);
    /* the second finds what the first left, and pages that were spoilt are used again */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_RUNS; i++) {
            make_prompt((uint64_t)i + 1, prompts[i], i % 2 ? at : -1, token);
            runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N, .sampling = greedy(N_OUT)};
            /* one by what the backend notes of logits, the others from them */
            runs[i].sampling.temperature = i == 3 ? 0.0f : 1.0f;
            runs[i].sampling.seed = 3;
            alone[i] = runs[i];
            harness_submit(&h, &runs[i]);
        }
        harness_wait(&h, N_RUNS);
        for (int i = 0; i < N_RUNS; i++) {
            if (i % 2) {
                assert_int_equal(runs[i].finish, FINISH_ERROR);
                assert_int_equal(runs[i].error, QUIRE_NUMERIC);
                assert_int_equal(runs[i].n_tokens, 0);
                assert_true(runs[i].n_cached <= at); /* no page that the bad row lies in */
                continue;
            }
            harness_submit(&clean, &alone[i]);
            harness_wait(&clean, 1);
            assert_int_equal(runs[i].finish, FINISH_LENGTH);
            assert_memory_equal(runs[i].tokens, alone[i].tokens, N_OUT * sizeof(int32_t));
        }
        idle(&h);
    }
    harness_close(&h);
    harness_close(&clean);
}

TEST(a_bad_row_ends_its_own_request_only) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int32_t places[] = {0, 15, 31, 40, N - 1};
    for (int cache = 0; cache < 2; cache++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
                harness_options o = harness_defaults;
                o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
                o.chunk = chunked ? 16 : 0;
                o.max_rows = 512;
                run_case(&o, places[i], BAD_HIDDEN, bad[(i + (size_t)chunked) % 3]);
            }
        }
    }
}

TEST(bad_logits_end_their_own_request_only) {
    for (int chunked = 0; chunked < 2; chunked++) {
        harness_options o = harness_defaults;
        o.chunk = chunked ? 16 : 0;
        o.max_rows = 512;
        run_case(&o, N - 1, BAD_LOGITS, chunked ? INFINITY : NAN);
    }
}

/* The bad token comes in the middle of a response: what was said before stays said. */
TEST(a_row_that_goes_bad_later_ends_its_request_then) {
    harness h = {0};
    open_spoilt(&harness_defaults, &h);
    poison = NAN;
    static int32_t prompt[N];
    make_prompt(9, prompt, -1, 0);
    harness_run free_run = {.prompt = prompt, .n_prompt = N, .sampling = greedy(8)};
    harness_submit(&h, &free_run);
    harness_wait(&h, 1);
    static float bias = 200.0f;
    for (int32_t token = BAD_HIDDEN; token <= BAD_LOGITS; token++) {
        harness_run r = {.prompt = prompt, .n_prompt = N, .sampling = greedy(8)};
        r.sampling.lists = sampling_lists_new();
        assert_int_equal(sampling_lists_set_bias(r.sampling.lists, &token, &bias, 1), QUIRE_OK);
        harness_submit(&h, &r);
        harness_wait(&h, 1);
        sampling_lists_drop(r.sampling.lists);
        assert_int_equal(r.finish, FINISH_ERROR);
        assert_int_equal(r.error, QUIRE_NUMERIC);
        assert_int_equal(r.n_tokens, 1);
        assert_int_equal(r.tokens[0], token);
    }
    assert_int_equal(idle(&h).requests_finished[FINISH_ERROR - 1], 2);
    harness_run again = {.prompt = prompt, .n_prompt = N, .sampling = greedy(8)};
    harness_submit(&h, &again);
    harness_wait(&h, 1);
    assert_memory_equal(again.tokens, free_run.tokens, 8 * sizeof(int32_t));
    harness_close(&h);
}

/* A page is full just when its last token's logits are bad: it is found in the cache by
 * nobody. */
TEST(pages_are_published_after_the_look_at_their_logits) {
    for (int32_t token = BAD_HIDDEN; token <= BAD_LOGITS; token++) {
        harness h = {0};
        open_spoilt(&harness_defaults, &h);
        poison = NAN;
        static int32_t prompt[N];
        make_prompt(9, prompt, 31, token); /* the end of the second page */
        harness_run r = {.prompt = prompt, .n_prompt = 32, .sampling = greedy(4)};
        harness_submit(&h, &r);
        harness_wait(&h, 1);
        assert_int_equal(r.finish, FINISH_ERROR);
        assert_int_equal(idle(&h).n_pages_cached, 0);
        harness_close(&h);
    }
}

TEST(samples_of_a_bad_prompt_all_end) {
    for (int32_t token = BAD_HIDDEN; token <= BAD_LOGITS; token++) {
        harness h = {0};
        open_spoilt(&harness_defaults, &h);
        poison = NAN;
        static int32_t prompt[N];
        make_prompt(9, prompt, N - 1, token);
        harness_run runs[3];
        void *users[3];
        request_id ids[3];
        quire_error err;
        int32_t *tokens = mem_new(N, sizeof *tokens);
        memcpy(tokens, prompt, sizeof prompt);
        for (int i = 0; i < 3; i++) {
            runs[i] = (harness_run){.prompt = prompt, .n_prompt = N};
            users[i] = &runs[i];
        }
        engine_request r = {.tokens = tokens, .n_tokens = N, .sampling = greedy(3), .out = h.out};
        assert_int_equal(engine_submit_samples(h.e, &r, 3, users, ids, &err), QUIRE_OK);
        harness_wait(&h, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(runs[i].finish, FINISH_ERROR);
            assert_int_equal(runs[i].error, QUIRE_NUMERIC);
        }
        idle(&h);
        harness_close(&h);
    }
}

/* Forced tokens have no logits of their own to be looked at. */
TEST(a_forced_answer_goes_on_beside_a_bad_row) {
    enum { N_FORCED = 1000 };
    static const int32_t one[] = {321};
    static int32_t good[N], bad[N];
    static harness_run is_jump_forward, other[4];
    harness_options o = harness_defaults;
    harness h = {0};
    o.page_tokens = 1;
    o.n_pages = 4096;
    o.max_rows = 64;
    poison = NAN;
    open_spoilt(&o, &h);
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    make_prompt(1, good, -1, 0);
    make_prompt(2, bad, N - 1, BAD_LOGITS);
    is_jump_forward = (harness_run){.prompt = good, .n_prompt = N, .sampling = greedy(N_FORCED)};
    is_jump_forward.sampling.lists = lists;
    harness_submit(&h, &is_jump_forward);
    for (int i = 0; i < 4; i++) {
        other[i] = (harness_run){.prompt = bad, .n_prompt = N, .sampling = greedy(N_OUT)};
        harness_submit(&h, &other[i]);
    }
    harness_wait(&h, 5);
    assert_int_equal(is_jump_forward.finish, FINISH_LENGTH);
    assert_int_equal(is_jump_forward.n_tokens, N_FORCED);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(other[i].error, QUIRE_NUMERIC);
    }
    idle(&h);
    harness_close(&h);
    sampling_lists_drop(lists);
}

TEST_MAIN(NULL, NULL)

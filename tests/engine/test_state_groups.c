/* A model of one layer with keys and values and one with a recurrent state, under a real
 * engine. It computes next to nothing: a state is a number made of all tokens before it,
 * a token's key and value are the token and that number, and the next token follows from
 * it. So a page or a state that is restored, copied, shared or swapped wrongly is found
 * by what it holds, and by the tokens that come out. The engine is audited after each
 * step. */
#define _GNU_SOURCE /* mkdtemp */
#include <stdio.h>

#include <unistd.h>

#include "base/clock.h"
#include "harness.h"
#include "lab/bench/null_model.h"
#include "remove_directory.h"
#include "seed.h"

enum {
    PAGE = 8,
    MAX_PAGES = 400,
    STATE_PAGES = 2,
    N_VOCAB = 32,
    MAX_LEN = 120,
    MAX_OUT = 64,
    WORDS = 2 * PAGE
};
enum { LEAST_PAGES = MAX_LEN / PAGE + STATE_PAGES }; /* one sequence of any length */

static null_model *null;
static uint64_t memory[MAX_PAGES][WORDS]; /* a token's words: itself, and the state after it */
static float rows_out[MAX_OUT][N_VOCAB];
static int32_t picks[MAX_OUT];

/* of the worlds that are opened */
static draft_options drafts;
static engine_tiers tiers;
static bool alone; /* the model has no keys and values */

static int32_t state_group(void) {
    return alone ? 0 : 1;
}

static uint64_t next_state(uint64_t state, int32_t token) {
    return (state + (uint64_t)token + 1) * 0x9e3779b97f4a7c15u;
}

/* Mostly the last token decides, so that texts repeat and drafts come true. */
static int32_t token_after(uint64_t state, int32_t last) {
    return (state >> 60) == 0 ? (int32_t)(state >> 40) % N_VOCAB : (last * 5 + 3) % 7;
}

/* The state before its rows; what the pages hold of the tokens before them is checked. */
static uint64_t state_before(const batch_seq *q) {
    uint64_t state = 0;
    int32_t n = q->n_tokens - q->n_rows;
    if (alone) {
        return n > 0 ? memory[q->pages[0][0]][0] : 0;
    }
    for (int32_t p = 0; p < n; p++) {
        const uint64_t *words = &memory[q->pages[0][p / PAGE]][p % PAGE * 2];
        state = next_state(state, (int32_t)words[0]);
        assert_true(words[1] == state);
    }
    for (int32_t i = 0; n > 0 && i < STATE_PAGES; i++) {
        assert_true(memory[q->pages[state_group()][i]][i] == state);
    }
    return state;
}

static void write_state(const int32_t *pages, uint64_t state) {
    for (int32_t i = 0; i < STATE_PAGES; i++) {
        memory[pages[i]][i] = state;
    }
}

static void forward(backend *null_backend, const batch *b) {
    int32_t out = 0;
    (void)null_backend;
    assert_true(b->slots[state_group()] == NULL && b->n_out <= MAX_OUT);
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const batch_seq *q = &b->seqs[s];
        uint64_t state = state_before(q);
        const batch_snapshot *copy = q->snapshots;
        for (int32_t row = q->row0; row < q->row0 + q->n_rows; row++) {
            state = next_state(state, b->tokens[row]);
            if (copy < q->snapshots + q->n_snapshots && copy->row == row - q->row0) {
                write_state((copy++)->pages, state);
            }
            if (!alone) {
                int64_t slot = b->slots[0][row].v;
                memory[slot / PAGE][slot % PAGE * 2] = (uint64_t)b->tokens[row];
                memory[slot / PAGE][slot % PAGE * 2 + 1] = state;
            }
            if (out < b->n_out && b->out_rows[out] == row) {
                picks[out] = token_after(state, b->tokens[row]);
                for (int32_t t = 0; t < N_VOCAB; t++) {
                    rows_out[out][t] = (float)(next_state(state, t) >> 50) / 16384.0f;
                }
                rows_out[out][picks[out]] = 1.5f;
                out++;
            }
        }
        write_state(q->pages[state_group()], state);
        assert_true(copy == q->snapshots + q->n_snapshots && q->parents == NULL);
        assert_true(q->n_snapshots == 0 || copy[-1].row < q->n_rows - 1);
    }
}

static float *logits(backend *b, int32_t i) {
    (void)b;
    return rows_out[i];
}

static int32_t argmax(const backend *b, int32_t i) {
    (void)b;
    return picks[i];
}

static void copy_pages(backend *b, const kv_copy_pair *pairs, int32_t n) {
    (void)b;
    for (int32_t i = 0; i < n; i++) {
        memcpy(memory[pairs[i].dst], memory[pairs[i].src], sizeof memory[0]);
    }
}

static void read_page(backend *b, int32_t page, void *host) {
    (void)b;
    memcpy(host, memory[page], sizeof memory[0]);
}

static void write_page(backend *b, int32_t page, const void *host) {
    (void)b;
    memcpy(memory[page], host, sizeof memory[0]);
}

static void open_world(int32_t n_pages, int64_t n_frames, harness *h) {
    static backend_ops ops;
    quire_error err = {.message = ""};
    *h = (harness){.n_vocab = N_VOCAB};
    assert_int_equal(null_model_open(0, &null), QUIRE_OK);
    ops = *null->b->ops;
    ops.step_begin = forward;
    ops.logits = logits;
    ops.argmax = argmax;
    ops.kv_copy = copy_pages;
    ops.kv_read_page = read_page;
    ops.kv_write_page = write_page;
    null->b->ops = &ops;
    h->m = null->m;
    h->b = null->b;
    h->layout =
        (kv_layout){.page_tokens = PAGE,
                    .page_bytes = sizeof memory[0],
                    .n_groups = 2,
                    .groups = {{.kind = LAYER_FULL, .n_caches = 1},
                               {.kind = LAYER_STATE, .n_caches = 1, .state_pages = STATE_PAGES}},
                    .n_caches = 2,
                    .caches = {{.kind = LAYER_FULL, .n_heads = 1}, {.kind = LAYER_STATE, .group = 1}}};
    if (alone) {
        h->layout.n_groups = h->layout.n_caches = 1;
        h->layout.groups[0] = h->layout.groups[1];
        h->layout.caches[0] = (kv_planes){.kind = LAYER_STATE};
    }
    engine_options o = {.prefix_cache = PREFIX_CACHE_TOKEN,
                        .page_tokens = PAGE,
                        .n_pages = n_pages,
                        .max_model_len = MAX_LEN,
                        .max_batched_tokens = 48,
                        .max_seqs = 6,
                        .max_requests = 128,
                        .draft = drafts,
                        .tiers = tiers,
                        .swap_bytes = n_frames * (int64_t)sizeof memory[0],
                        .preempt = PREEMPT_SWAP};
    if (engine_open(h->m, h->b, &h->layout, &o, &h->e, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(wake_init(&h->reader), QUIRE_OK);
    assert_int_equal(engine_out_open(h->e, &h->reader, &h->out), QUIRE_OK);
    harness_take_over(h);
}

static void close_world(harness *h) {
    assert_int_equal(kv_pool_counts(h->e->kv.pool).n_held, 0);
    assert_int_equal(h->e->kv.swap.n_free, h->e->kv.swap.n_frames);
    engine_out_close(h->out);
    engine_close(h->e);
    wake_deinit(&h->reader);
    null_model_close(null);
}

/* The tokens that must come out. */
static void check_tokens(const harness_run *r) {
    uint64_t state = 0;
    int32_t last = r->prompt[r->n_prompt - 1];
    for (int32_t i = 0; i < r->n_prompt; i++) {
        state = next_state(state, r->prompt[i]);
    }
    assert_int_equal(r->finish, FINISH_LENGTH);
    assert_int_equal(r->n_tokens, r->sampling.max_tokens);
    for (int32_t i = 0; i < r->n_tokens; i++) {
        assert_int_equal(r->tokens[i], token_after(state, last));
        last = r->tokens[i];
        state = next_state(state, last);
    }
}

/* Steps until no request is left. A step without rows is no end: it may have made room
 * for the next, or pages are being fetched. */
static void run_out(harness *h) {
    for (int i = 0; i < 10000 && h->e->sched.n_running + h->e->sched.n_waiting > 0; i++) {
        harness_steps(h, 100000);
        if (h->e->tiering != NULL) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
    assert_int_equal(h->e->sched.n_running + h->e->sched.n_waiting, 0);
}

/* Runs one request alone; returns how many of its tokens were cached. */
static int32_t run(harness *h, const int32_t *prompt, int32_t n, int32_t n_out, int32_t *out) {
    harness_run r = {.prompt = prompt, .n_prompt = n, .sampling = greedy(n_out)};
    harness_submit(h, &r);
    assert_int_equal(r.error, QUIRE_OK);
    harness_steps(h, 1000);
    run_out(h);
    check_tokens(&r);
    if (out != NULL) {
        memcpy(out, r.tokens, (size_t)n_out * sizeof *out);
    }
    return r.n_cached;
}

TEST(snapshots_are_taken_before_the_last_token_at_branches_and_at_the_end) {
    enum { N = 53, COMMON = 30, N_OUT = 11 };
    int32_t a[N + N_OUT + 9], b[N];
    harness h;
    open_world(200, 0, &h);
    random_prompt(&seed, N_VOCAB, N + N_OUT + 9, a);
    random_prompt(&seed, N_VOCAB, N, b);
    memcpy(b, a, COMMON * sizeof *a);
    b[COMMON] = a[COMMON] % (N_VOCAB - 1) + 1;
    assert_int_equal(run(&h, a, N, N_OUT, a + N), 0);
    assert_int_equal(run(&h, a, N, 1, NULL), N - 1);
    /* a next turn: after all that was computed */
    assert_int_equal(run(&h, a, N + N_OUT + 9, 3, NULL), N + N_OUT - 1);
    /* no state was kept where it branches off */
    assert_int_equal(run(&h, b, N, 2, NULL), 0);
    b[COMMON] = 0;
    assert_int_equal(run(&h, b, N, 2, NULL), COMMON); /* now there is one */
    close_world(&h);
}

/* Steps with a whole prompt: the states at marks in it are kept all the same. */
TEST(a_snapshot_ends_no_step) {
    enum { N = 47 };
    static const int32_t marks[] = {5, 16, 17, 40};
    int32_t prompt[N], other[N];
    harness h;
    open_world(200, 0, &h);
    random_prompt(&seed, N_VOCAB, N, prompt);
    harness_run r = {.prompt = prompt, .n_prompt = N, .sampling = greedy(2), .n_marks = 4};
    memcpy(r.marks, marks, sizeof marks);
    harness_submit(&h, &r);
    assert_int_equal(harness_steps(&h, 1000), 2);
    check_tokens(&r);
    for (int i = 3; i >= 0; i--) {
        memcpy(other, prompt, sizeof prompt);
        for (int32_t p = marks[i]; p < N; p++) {
            other[p] = (prompt[p] + 1 + i) % N_VOCAB;
        }
        assert_int_equal(run(&h, other, N, 1, NULL), marks[i]);
    }
    close_world(&h);
}

TEST(samples_of_a_prompt_share_its_state) {
    enum { N = 37, N_SAMPLES = 4 };
    harness h;
    quire_error err;
    int32_t prompt[N];
    harness_run runs[N_SAMPLES];
    void *users[N_SAMPLES];
    request_id ids[N_SAMPLES];
    open_world(60, 0, &h);
    random_prompt(&seed, N_VOCAB, N, prompt);
    engine_request r = {.tokens = mem_new(N, sizeof *prompt),
                        .n_tokens = N,
                        .namespace = "t",
                        .n_namespace = 1,
                        .out = h.out};
    memcpy(r.tokens, prompt, sizeof prompt);
    r.sampling = greedy(20);
    for (int i = 0; i < N_SAMPLES; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = N, .sampling = r.sampling};
        users[i] = &runs[i];
    }
    assert_int_equal(engine_submit_samples(h.e, &r, N_SAMPLES, users, ids, &err), QUIRE_OK);
    harness_steps(&h, 1000);
    /* the prompt is computed once */
    assert_in_range(h.e->stats.step_rows, N + N_SAMPLES * 19, N + N_SAMPLES * 19);
    for (int i = 0; i < N_SAMPLES; i++) {
        check_tokens(&runs[i]);
    }
    close_world(&h);
}

/* The snapshot before a prompt's last token shares its pages with the sequence, and the
 * pool has no room for copies of them. */
TEST(a_prompt_that_fills_the_pool_goes_on_behind_its_snapshot) {
    for (int32_t n = MAX_LEN - 2 * PAGE; n < MAX_LEN; n++) {
        int32_t prompt[MAX_LEN];
        harness h;
        open_world(LEAST_PAGES, 0, &h);
        random_prompt(&seed, N_VOCAB, n, prompt);
        harness_run r = {.prompt = prompt, .n_prompt = n, .sampling = greedy(MAX_LEN - n)};
        harness_submit(&h, &r);
        assert_int_equal(r.error, QUIRE_OK);
        harness_steps(&h, 1);
        run_out(&h);
        check_tokens(&r);
        close_world(&h);
    }
}

/* Forks a branch at any token of a running request, or rolls it back to there. */
static void branch_off(harness *h, const harness_run *from, harness_run *branch) {
    static int32_t prompts[64][MAX_LEN];
    static int n_branches;
    quire_error err;
    engine_fork *held;
    if (engine_fork_acquire(h->e, from->id, &held) != QUIRE_OK) {
        return;
    }
    int32_t n = from->n_prompt + any(from->n_tokens + 1);
    int32_t *own = prompts[n_branches++ % 64];
    memcpy(own, from->prompt, (size_t)from->n_prompt * sizeof *own);
    memcpy(own + from->n_prompt, from->tokens, (size_t)(n - from->n_prompt) * sizeof *own);
    engine_request q = {.tokens = mem_new((size_t)n, sizeof *own),
                        .n_tokens = n,
                        .n_prompt = from->n_prompt,
                        .fork_from = held,
                        .fork_position = n,
                        .fork_replaces = any(2) == 0,
                        .sampling = greedy(n - from->n_prompt + 1 + any(MAX_LEN - 1 - n)),
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h->out,
                        .user = branch};
    memcpy(q.tokens, own, (size_t)n * sizeof *own);
    *branch = (harness_run){.prompt = own, .n_prompt = n};
    branch->sampling = greedy(q.sampling.max_tokens - (n - from->n_prompt));
    assert_int_equal(engine_submit(h->e, &q, &branch->id, &err), QUIRE_OK);
    engine_fork_release(held);
}

/* Of some storms together: a single one may preempt only what has too little to swap. */
typedef struct storm_counts {
    int64_t preemptions, swapped;
} storm_counts;

/* Requests come at any time, with prompts that begin alike, into a pool that is too small
 * for all. */
static void storm(int32_t n_pages, int64_t n_frames, storm_counts *counts) {
    enum { N_RUNS = 60, N_TEXTS = 4 };
    static harness_run runs[N_RUNS], branches[N_RUNS];
    static int32_t texts[N_TEXTS][MAX_LEN];
    harness h;
    open_world(n_pages, n_frames, &h);
    for (int t = 0; t < N_TEXTS; t++) {
        random_prompt(&seed, N_VOCAB, MAX_LEN, texts[t]);
        memcpy(texts[t], texts[0], (size_t)(10 * t) * sizeof texts[0][0]);
    }
    for (int32_t i = 0; i < N_RUNS; i++) {
        int32_t n = 1 + any(70);
        runs[i] = (harness_run){
            .prompt = texts[any(N_TEXTS)], .n_prompt = n, .sampling = greedy(1 + any(MAX_LEN - 1 - n))};
        harness_submit(&h, &runs[i]);
        assert_int_equal(runs[i].error, QUIRE_OK);
        harness_steps(&h, any(25));
        branches[i] = (harness_run){.n_prompt = 0};
        if (any(3) == 0) {
            branch_off(&h, &runs[any(i + 1)], &branches[i]);
        }
    }
    harness_steps(&h, 1);
    run_out(&h);
    for (int32_t i = 0; i < N_RUNS; i++) {
        if (runs[i].finish != FINISH_CANCELLED) { /* else a branch goes on in its place */
            check_tokens(&runs[i]);
        }
        if (branches[i].n_prompt > 0) {
            check_tokens(&branches[i]);
        }
    }
    counts->preemptions += h.e->sched.counts.preemptions;
    counts->swapped += h.e->stats.swapped_out;
    assert_true(h.e->sched.counts.prompt_tokens_reused > 0 || n_pages < LEAST_PAGES);
    close_world(&h);
}

TEST(tokens_are_the_same_under_preemption) {
    storm_counts counts = {0};
    for (int round = 0; round < 6; round++) {
        storm(round % 3 == 0 ? LEAST_PAGES : 45, 0, &counts);
    }
    assert_true(counts.preemptions > 0);
}

TEST(tokens_are_the_same_under_swapping) {
    storm_counts counts = {0};
    for (int round = 0; round < 6; round++) {
        storm(round % 3 == 0 ? LEAST_PAGES : 45, round % 2 == 0 ? 100 : 12, &counts);
    }
    assert_true(counts.preemptions > 0 && counts.swapped > 0);
}

TEST(tokens_are_the_same_with_drafts) {
    storm_counts counts = {0};
    drafts = (draft_options){
        .method = DRAFT_METHOD_NGRAM, .n_tokens = 7, .tree_width = 2, .lookup_min = 1, .lookup_max = 3};
    for (int round = 0; round < 6; round++) {
        drafts.tree_width = round % 2 + 1;
        storm(round % 3 == 0 ? LEAST_PAGES : 25 * round, round % 2 == 0 ? 100 : 0, &counts);
    }
    drafts = (draft_options){0};
}

TEST(accepted_drafts_take_fewer_steps) {
    harness h;
    int32_t prompt[4] = {1, 1, 1, 1};
    drafts = (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 7, .lookup_min = 1, .lookup_max = 3};
    open_world(200, 0, &h);
    (void)run(&h, prompt, 4, 100, NULL);
    assert_true(h.e->stats.draft_accepted > 20 && h.e->stats.draft_accepted < h.e->stats.draft_tokens);
    assert_true(h.e->stats.steps < 80);
    close_world(&h);
    drafts = (draft_options){0};
}

enum { WIDTH = 4, N_SEARCHES = 5, BEAM_TOKENS = 25 };

/* Runs beam searches and other requests beside them. */
static void search_all(int32_t n_pages, int64_t n_frames, const int32_t *prompts, harness_run *found,
                       bool *preempted) {
    static harness_run others[N_SEARCHES];
    harness h;
    open_world(n_pages, n_frames, &h);
    for (int32_t i = 0; i < N_SEARCHES; i++) {
        quire_error err = {.message = ""};
        request_id ids[WIDTH];
        void *users[WIDTH];
        int32_t n = 9 + 5 * i;
        engine_request q = {.tokens = mem_new((size_t)n, sizeof *prompts),
                            .n_tokens = n,
                            .sampling = greedy(BEAM_TOKENS),
                            .namespace = "test",
                            .n_namespace = 4,
                            .out = h.out,
                            .beams = {.width = WIDTH, .n_groups = 1}};
        memcpy(q.tokens, prompts, (size_t)n * sizeof *prompts);
        for (int k = 0; k < WIDTH; k++) {
            found[WIDTH * i + k] = (harness_run){.prompt = prompts, .n_prompt = n};
            users[k] = &found[WIDTH * i + k];
        }
        if (engine_submit_samples(h.e, &q, WIDTH, users, ids, &err) != QUIRE_OK) {
            fail_msg("%s", err.message);
        }
        others[i] = (harness_run){.prompt = prompts + i, .n_prompt = 60 - i, .sampling = greedy(30)};
        harness_submit(&h, &others[i]);
        harness_steps(&h, any(30));
    }
    harness_steps(&h, 1);
    run_out(&h);
    for (int32_t i = 0; i < N_SEARCHES; i++) {
        check_tokens(&others[i]);
    }
    *preempted = *preempted || h.e->sched.counts.preemptions > 0;
    close_world(&h);
}

TEST(beams_have_states_of_their_own) {
    static harness_run wanted[WIDTH * N_SEARCHES], found[WIDTH * N_SEARCHES];
    static const int32_t n_pages[] = {60, 44, 38};
    int32_t prompts[64];
    bool preempted = false;
    random_prompt(&seed, N_VOCAB, 64, prompts);
    search_all(MAX_PAGES, 0, prompts, wanted, &preempted);
    preempted = false;
    for (int round = 0; round < 9; round++) {
        search_all(n_pages[round % 3], round / 3 * 20, prompts, found, &preempted);
        for (int i = 0; i < WIDTH * N_SEARCHES; i++) {
            assert_int_equal(found[i].n_tokens, wanted[i].n_tokens);
            assert_memory_equal(found[i].tokens, wanted[i].tokens,
                                (size_t)found[i].n_tokens * sizeof(int32_t));
        }
    }
    assert_true(preempted);
}

/* Requests that come together share what they begin with, wherever they part. */
TEST(who_comes_at_once_waits_for_a_prefix_and_its_state) {
    enum { N = 100, N_REQUESTS = 6 };
    static harness_run runs[N_REQUESTS];
    static int32_t prompts[N_REQUESTS][N];
    harness h;
    open_world(300, 0, &h);
    for (int i = 0; i < N_REQUESTS; i++) {
        random_prompt(&seed, N_VOCAB, N, prompts[i]);
        memcpy(prompts[i], prompts[0], sizeof prompts[0]);
        for (int p = i > 0 ? 83 - i : N; p < N; p++) {
            prompts[i][p] = (prompts[0][p] + i) % N_VOCAB;
        }
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = N, .sampling = greedy(3)};
        harness_submit(&h, &runs[i]);
    }
    harness_steps(&h, 1000);
    for (int i = 0; i < N_REQUESTS; i++) {
        check_tokens(&runs[i]);
        assert_in_range(runs[i].n_cached, i == 0 ? 0 : 82 - i, i == 0 ? 0 : 83 - i);
    }
    close_world(&h);
}

/* What left the pool comes back with its state, also to another engine. */
TEST(snapshots_come_back_from_tiers) {
    enum { N = 78, KEPT = (N - 1) / PAGE * PAGE };
    const int32_t n_pages = alone ? 3 * STATE_PAGES : 25;
    char directory[] = "/tmp/quire_states_XXXXXX";
    int32_t prompt[N + 2], other[MAX_LEN];
    harness h;
    assert_non_null(mkdtemp(directory));
    random_prompt(&seed, N_VOCAB, N, prompt);
    for (int way = 0; way < 3; way++) {
        tiers = (engine_tiers){.version = "v", .wait_us = 60000000, .host_bytes = way == 0 ? 1 << 20 : 0};
        tiers.file_path = way > 0 ? directory : NULL;
        tiers.file_bytes = 1 << 22;
        tiers.write = way == 2 ? TIER_WRITE_THROUGH : TIER_WRITE_EVICT;
        open_world(n_pages, 0, &h);
        assert_in_range(run(&h, prompt, N, 2, prompt + N), way < 2 ? 0 : KEPT, way < 2 ? 0 : N + 1);
        for (int i = 0; i < 4; i++) {
            random_prompt(&seed, N_VOCAB, MAX_LEN, other);
            (void)run(&h, other, MAX_LEN - 8, 2, NULL);
        }
        /* the tiers have a page when all of it is written: files' threads are in no hurry */
        do {
            kv_tiering_poll(h.e->tiering, clock_us());
        } while (kv_tiering_n_pending(h.e->tiering) > 0);
        /* that after the answer lies in the middle of a page, which tiers do not keep */
        assert_int_equal(run(&h, prompt, N + 2, 1, NULL), KEPT);
        assert_int_equal(run(&h, prompt, N, 2, NULL), KEPT);
        assert_int_equal(run(&h, prompt, N + 2, 1, NULL), N + 1); /* the pool does */
        close_world(&h);
    }
    remove_directory(directory);
    tiers = (engine_tiers){0};
}

TEST(tokens_are_the_same_through_tiers) {
    storm_counts counts = {0};
    for (int round = 0; round < 4; round++) {
        tiers = (engine_tiers){.version = "v", .wait_us = 1000000, .host_bytes = 1 << (14 + 3 * (round % 2))};
        storm(round / 2 == 0 ? (alone ? 5 : LEAST_PAGES) : 45, round % 2 * 50, &counts);
    }
    tiers = (engine_tiers){0};
}

/* All of it once more. */
TEST(a_model_of_states_alone_does_the_same) {
    storm_counts counts = {0};
    alone = true;
    snapshots_are_taken_before_the_last_token_at_branches_and_at_the_end(NULL);
    a_snapshot_ends_no_step(NULL);
    samples_of_a_prompt_share_its_state(NULL);
    for (int round = 0; round < 9; round++) {
        drafts = (draft_options){.n_tokens = round % 3 * 3, .lookup_min = 1, .lookup_max = 3};
        drafts.method = drafts.n_tokens > 0 ? DRAFT_METHOD_NGRAM : DRAFT_METHOD_NONE;
        storm(3 + 5 * round, round % 2 * 20, &counts);
    }
    drafts = (draft_options){0};
    who_comes_at_once_waits_for_a_prefix_and_its_state(NULL);
    snapshots_come_back_from_tiers(NULL);
    tokens_are_the_same_through_tiers(NULL);
    alone = false;
}

TEST_MAIN_SEEDED(NULL, NULL)

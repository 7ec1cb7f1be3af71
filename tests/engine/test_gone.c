/* Pages that are gone when a sequence comes to use them: evicted between two portions of
 * what a tier brings, damaged in host memory, gone from before what lies in swap space,
 * given up behind a window. Each costs computing, and changes no bit. Every step is the
 * test's. */
#include <stdio.h>

#include "seed.h"
#include "window_world.h"

enum { FROM = 4 }; /* logits of the last so many tokens of a prompt are looked at */

static harness_options small_model(void) {
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.tiers = (engine_tiers){.version = "test", .wait_us = INT64_C(3600) * 1000000};
    return o;
}

/* Tokens and the last logits of a request that finds nothing. */
static void run_cold(harness_options o, harness_run *r) {
    harness h = {0};
    o.prefix_cache = PREFIX_CACHE_NONE;
    o.tiers = (engine_tiers){0};
    o.n_pages = 4096 / o.page_tokens;
    o.wrap = NULL;
    harness_open(&o, &h);
    r->logits = mem_new((size_t)r->n_prompt * (size_t)h.n_vocab, sizeof *r->logits);
    r->logits_first = r->n_prompt - FROM;
    harness_submit(&h, r);
    harness_wait(&h, 1);
    assert_int_equal(r->finish, FINISH_LENGTH);
    harness_close(&h);
}

/* The same request once more, for an engine that has something to find. */
static harness_run again(const harness_run *cold, int32_t n_vocab) {
    harness_run r = *cold;
    r.logits = mem_new((size_t)r.n_prompt * (size_t)n_vocab, sizeof *r.logits);
    return r;
}

static void same_response(const harness_run *cold, harness_run *warm, int32_t n_vocab) {
    size_t from = (size_t)(cold->n_prompt - FROM) * (size_t)n_vocab;
    assert_int_equal(warm->finish, FINISH_LENGTH);
    assert_int_equal(warm->n_tokens, cold->n_tokens);
    assert_memory_equal(warm->tokens, cold->tokens, (size_t)cold->n_tokens * sizeof *cold->tokens);
    assert_memory_equal(warm->logits + from, cold->logits + from,
                        FROM * (size_t)n_vocab * sizeof *cold->logits);
    mem_free(warm->logits);
}

/* n random tokens, the first of which is `first`: no two of a test begin alike. */
static void distinct_prompt(int32_t first, int32_t n, int32_t *out) {
    random_prompt(&seed, 2048, n, out);
    out[0] = first;
}

static void run_through(harness *h, harness_run *r) {
    harness_submit(h, r);
    harness_steps(h, 1000);
    assert_int_equal(r->finish, FINISH_LENGTH);
}

/* A prompt of 20 pages comes back in portions of 16. While the first waits for the
 * second, a prefill beside it takes its last pages: what comes after them has no place
 * any more, and the request computes from there. */
TEST(an_eviction_between_two_portions_ends_the_promotion) {
    enum {
        PAGE = 4,
        N_PAGES = 64,
        PORTION = 16,
        N = 20 * PAGE + 2,
        N_STRANGER = 240,
        N_BESIDE = 200,
        STEP = 100
    };
    static int32_t prompt[N], stranger[N_STRANGER], beside[N_BESIDE];
    harness_options o = small_model();
    o.page_tokens = PAGE;
    o.n_pages = N_PAGES;
    o.chunk = STEP;
    distinct_prompt(10, N, prompt);
    distinct_prompt(11, N_STRANGER, stranger);
    distinct_prompt(12, N_BESIDE, beside);
    harness_run cold = {.prompt = prompt, .n_prompt = N, .sampling = greedy(8)};
    run_cold(o, &cold);
    o.tiers.host_bytes = 64 << 20;
    harness h = {0};
    harness_open(&o, &h);
    harness_take_over(&h);
    harness_run first = again(&cold, h.n_vocab), warm = again(&cold, h.n_vocab);
    harness_run s = {.prompt = stranger, .n_prompt = N_STRANGER, .sampling = greedy(2)},
                b = {.prompt = beside, .n_prompt = N_BESIDE, .sampling = greedy(1)};
    run_through(&h, &first);
    same_response(&cold, &first, h.n_vocab);
    run_through(&h, &s); /* takes the place of all that */
    harness_submit(&h, &b);
    assert_true(harness_step(&h));
    harness_submit(&h, &warm);
    /* the first portion comes, and the other prefill takes pages of it for its second
     * half, and ends */
    assert_true(harness_step(&h));
    assert_int_equal(h.e->stats.promoted_tokens, PORTION * PAGE);
    assert_int_equal(h.e->sched.n_waiting, 1);
    int32_t left = kv_index_peek(h.e->kv.index, &waiting_at(h.e, 0)->task.kv.path, prompt, N);
    assert_in_range(left, PAGE, (PORTION - 1) * PAGE);
    harness_steps(&h, 1000);
    assert_int_equal(h.e->stats.promoted_tokens, PORTION * PAGE);
    assert_int_equal(warm.n_cached, left);
    same_response(&cold, &warm, h.n_vocab);
    mem_free(cold.logits);
    harness_close(&h);
}

/* ---- host memory ---- */

static unsigned char *copies[512]; /* where pages were copied to, in turn */
static int32_t n_copies;

static void note_copy(backend *b, int32_t page, void *out) {
    copies[n_copies++ % 512] = out;
    inner->kv_read_page(b, page, out);
}

static const backend_ops *note_copies(const backend_ops *ops, const model_desc *d) {
    static backend_ops noting;
    (void)d;
    inner = ops;
    noting = *inner;
    noting.kv_read_page = note_copy;
    return &noting;
}

/* A bit of a page in host memory changes: that page is missed, those behind it are of no
 * use, and when it was computed it is taken in anew. */
TEST(a_page_that_was_damaged_in_host_memory_is_missed) {
    enum { PAGE = 16, WHOLE = 8, N = WHOLE * PAGE + 9, N_STRANGERS = 3, N_STRANGER = 150, DAMAGED = 3 };
    static int32_t prompt[N], strangers[N_STRANGERS][N_STRANGER];
    harness_options o = small_model();
    o.page_tokens = PAGE;
    o.n_pages = 24;
    distinct_prompt(10, N, prompt);
    harness_run cold = {.prompt = prompt, .n_prompt = N, .sampling = greedy(4)};
    run_cold(o, &cold);
    o.tiers.host_bytes = 64 << 20;
    o.wrap = note_copies;
    harness h = {0};
    harness_open(&o, &h);
    harness_take_over(&h);
    n_copies = 0;
    for (int round = 0; round < 4; round++) {
        if (round == 1) { /* the prompt's pages went first, and of these the last one first */
            size_t at = rng_next(&seed) % (uint64_t)h.layout.page_bytes;
            copies[WHOLE - 1 - DAMAGED][at] ^= (unsigned char)(1 << rng_next(&seed) % 8);
        }
        harness_run warm = again(&cold, h.n_vocab);
        run_through(&h, &warm);
        same_response(&cold, &warm, h.n_vocab);
        assert_int_equal(warm.n_cached, round == 0 ? 0 : round == 1 ? DAMAGED * PAGE : WHOLE * PAGE);
        for (int i = 0; i < N_STRANGERS; i++) {
            distinct_prompt(11 + i, N_STRANGER, strangers[i]);
            harness_run s = {.prompt = strangers[i], .n_prompt = N_STRANGER, .sampling = greedy(2)};
            run_through(&h, &s);
        }
        quire_stats s;
        engine_stats_read(h.e, &s);
        assert_int_equal(s.tiers[KV_TIER_HOST].errors, round > 0);
        assert_int_equal(s.tiers[KV_TIER_HOST].dropped, 0);
    }
    mem_free(cold.logits);
    harness_close(&h);
}

/* ---- swap space ---- */

/* Evicts until `kept` cached pages are left. */
static void evict_down_to(harness *h, int32_t kept) {
    kv_counts c = kv_pool_counts(h->e->kv.pool);
    assert_true(c.n_cached >= kept);
    assert_int_equal(kv_index_evict(h->e->kv.index, c.n_free + c.n_cached - kept), QUIRE_OK);
    assert_int_equal(kv_pool_counts(h->e->kv.pool).n_cached, kept);
}

/* Two of one beginning: the younger is preempted, and only what it does not share goes to
 * swap space. The elder ends, and what it leaves is evicted but for `kept` pages before
 * the younger comes back: its frames are of use where the beginning is there as a whole,
 * and else none of them is. */
static void check_gap(int32_t kept, const harness_run *cold) {
    enum { PAGE = 16, SHARED = 3 };
    harness h = {0};
    harness_options o = small_model();
    o.page_tokens = PAGE;
    o.n_pages = 9;
    o.swap_bytes = 1 << 24;
    o.preempt = PREEMPT_SWAP;
    harness_open(&o, &h);
    harness_take_over(&h);
    static harness_run elder, younger;
    elder = cold[0];
    younger = cold[1];
    harness_submit(&h, &elder);
    harness_steps(&h, 1);
    harness_submit(&h, &younger);
    while (h.e->stats.swapped_out == 0) {
        assert_true(harness_step(&h));
    }
    const sequence *s = waiting_at(h.e, 0);
    assert_int_equal(h.e->sched.n_waiting, 1);
    assert_int_equal(s->task.kv.swap_from, SHARED * PAGE);
    assert_true(s->task.kv.swap_tokens > s->task.kv.swap_from);
    while (h.e->sched.n_running > 0) {
        assert_true(harness_step(&h));
    }
    assert_int_equal(h.e->sched.n_waiting, 1); /* it has not come back yet */
    evict_down_to(&h, kept);
    harness_steps(&h, 1000);
    assert_int_equal(h.e->stats.swapped_in, kept >= SHARED);
    assert_int_equal(h.e->stats.preemptions, 1);
    assert_memory_equal(elder.tokens, cold[0].tokens, (size_t)cold[0].n_tokens * sizeof(int32_t));
    assert_memory_equal(younger.tokens, cold[1].tokens, (size_t)cold[1].n_tokens * sizeof(int32_t));
    harness_close(&h);
}

TEST(frames_behind_a_gap_are_not_used) {
    enum { N = 60, SHARED = 48 };
    static int32_t prompts[2][N];
    static harness_run cold[2];
    distinct_prompt(10, N, prompts[0]);
    memcpy(prompts[1], prompts[0], sizeof prompts[0]);
    random_prompt(&seed, 2048, N - SHARED, prompts[1] + SHARED);
    prompts[1][SHARED] = prompts[0][SHARED] + 1;
    for (int i = 0; i < 2; i++) {
        cold[i] = (harness_run){.prompt = prompts[i], .n_prompt = N, .sampling = greedy(i == 0 ? 40 : 60)};
        run_cold(small_model(), &cold[i]);
        mem_free(cold[i].logits);
        cold[i].logits = NULL;
    }
    for (int32_t kept = 0; kept <= 4; kept++) {
        check_gap(kept, cold);
    }
}

/* Pages that a sequence holds in all groups: those behind a window are not among them.
 * *n_holes: of these. */
static int32_t pages_held(const sequence *s, int32_t *n_holes) {
    int32_t n = 0;
    *n_holes = 0;
    for (int32_t g = 0; g < s->task.kv.n_tables; g++) {
        for (int32_t i = 0; i < s->task.kv.tables[g].n_pages; i++) {
            bool is_hole = s->task.kv.tables[g].pages[i].v == PAGE_NONE.v;
            n += !is_hole;
            *n_holes += is_hole;
        }
    }
    return n;
}

/* The younger of two is preempted with holes behind its window: as many frames are taken
 * as it holds pages, n_frames of them being enough, and it comes back from these alone.
 * Returns how many pages it held. */
static int32_t check_holes(int64_t n_frames, int32_t prompts[2][60], const harness_run *kept) {
    enum { PAGE = 16, N_OUT = 80 };
    static harness_run runs[2];
    harness h;
    harness_options o = small_model();
    o.tiers = (engine_tiers){0};
    o.page_tokens = PAGE;
    o.n_pages = 22;
    o.preempt = PREEMPT_SWAP;
    o.swap_bytes = 1 << 24;
    if (n_frames > 0) {
        open_windowed(o, LAYER_WINDOW, LAYER_FULL, true, &h);
        o.swap_bytes = n_frames * h.layout.page_bytes;
        harness_close(&h);
    }
    open_windowed(o, LAYER_WINDOW, LAYER_FULL, true, &h);
    harness_take_over(&h);
    for (int i = 0; i < 2; i++) {
        runs[i] = (harness_run){.prompt = prompts[i], .n_prompt = 60, .sampling = greedy(N_OUT)};
        harness_submit(&h, &runs[i]);
        harness_steps(&h, 1);
    }
    int32_t n_held = 0, n_holes = 0;
    while (h.e->sched.n_running == 2) {
        n_held = pages_held(running_at(h.e, 1), &n_holes);
        assert_true(harness_step(&h));
    }
    assert_true(n_holes > 0);
    assert_int_equal(h.e->sched.n_waiting, 1);
    assert_int_equal(h.e->stats.swapped_out, 1);
    assert_int_equal(h.e->stats.swapped_pages, n_held);
    /* others hold what is before the window only in the other group */
    assert_int_equal(waiting_at(h.e, 0)->task.kv.swap_from, 0);
    /* nothing is left of it but the frames */
    for (evict_down_to(&h, 0); h.e->sched.n_running > 0; evict_down_to(&h, 0)) {
        assert_int_equal(h.e->sched.n_running, 1);
        assert_true(harness_step(&h));
    }
    harness_steps(&h, 1000);
    assert_int_equal(h.e->stats.swapped_in, 1);
    assert_int_equal(h.e->stats.swapped_pages, 2 * n_held);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(runs[i].tokens, kept[i].tokens, N_OUT * sizeof(int32_t));
    }
    /* what the younger left is found only as far back as a window reaches: from anywhere
     * in it the text goes on as it did */
    static int32_t text[60 + N_OUT];
    memcpy(text, prompts[1], sizeof prompts[1]);
    memcpy(text + 60, kept[1].tokens, N_OUT * sizeof *text);
    for (int32_t n = 60; n < 60 + N_OUT - 3; n += 7) {
        harness_run r = {.prompt = text, .n_prompt = n, .sampling = greedy(3)};
        run_through(&h, &r);
        assert_memory_equal(r.tokens, text + n, 3 * sizeof *text);
    }
    harness_close(&h);
    return n_held;
}

TEST(holes_behind_a_window_take_no_frames) {
    static int32_t prompts[2][60];
    static harness_run kept[2];
    distinct_prompt(10, 60, prompts[0]);
    memcpy(prompts[1], prompts[0], sizeof prompts[0]);
    random_prompt(&seed, 2048, 60 - 48, prompts[1] + 48);
    harness h;
    open_windowed(small_model(), LAYER_WINDOW, LAYER_FULL, false, &h);
    for (int i = 0; i < 2; i++) {
        kept[i] = (harness_run){.prompt = prompts[i], .n_prompt = 60, .sampling = greedy(80)};
        harness_submit(&h, &kept[i]);
        harness_wait(&h, 1);
    }
    harness_close(&h);
    int32_t n_held = check_holes(0, prompts, kept);
    check_holes(n_held, prompts, kept);
}

TEST_MAIN_SEEDED(NULL, NULL)

/* Parks: what they hold is found after everything else was evicted, by every kind of
 * cache; bounds; what is held is given back. The test runs the steps, and pages, parks
 * and tables are audited after each. */
#include <stdio.h>

#include "engine/engine_view.h"
#include "engine/window_world.h"
#include "model/make_states.h"
#include "test.h"

enum { PAGE = 16, N_PAGES = 64, N_PROMPT = 37, N_OUT = 9, N_MORE = 5, MOST = 256 };

static int32_t prompt[MOST], other[MOST];

static harness_options options(void) {
    harness_options o = harness_defaults;
    o.path = "models/builtin-small.gguf";
    o.page_tokens = PAGE;
    o.n_pages = N_PAGES;
    return o;
}

static void open_world(const harness_options *o, harness *h) {
    uint64_t seed = 5;
    harness_open(o, h);
    random_prompt(&seed, h->n_vocab, MOST, prompt);
    random_prompt(&seed, h->n_vocab, MOST, other);
    harness_take_over(h);
}

static engine_park *park_in(harness *h) {
    engine_park *p;
    assert_int_equal(engine_park_open(h->e, &p), QUIRE_OK);
    return p;
}

static quire_parked_stats parked(harness *h) {
    quire_parked_stats s;
    engine_parked_read(h->e, &s);
    return s;
}

/* Steps until r has ended; how many. */
static int32_t finish(harness *h, harness_run *r) {
    int32_t n = 0;
    bool ended;
    while (r->finish == FINISH_NONE) {
        n += harness_step(h);
        while (harness_read(h, &ended)) {
        }
    }
    return n;
}

static int32_t run(harness *h, harness_run *r) {
    harness_submit(h, r);
    return finish(h, r);
}

/* Everything that is not held is evicted. */
static void evict_all(harness *h) {
    if (h->e->kv.index != NULL) {
        kv_index_clear(h->e->kv.index);
    }
    engine_audit(h->e);
}

/* All parks of h are closed: no page is held. */
static void close_world(harness *h) {
    quire_stats s;
    (void)harness_step(h);
    engine_stats_read(h->e, &s);
    assert_int_equal(s.n_pages_held, 0);
    assert_int_equal(parked(h).n_parks + parked(h).n_pages, 0);
    harness_close(h);
}

/* What goes on from r's tokens: ids of its prompt, its answer, and `more`. */
static harness_run after(const harness_run *r, int32_t *ids, const int32_t *more, int32_t n_more) {
    memcpy(ids, r->prompt, (size_t)r->n_prompt * sizeof *ids);
    memcpy(ids + r->n_prompt, r->tokens, (size_t)r->n_tokens * sizeof *ids);
    memcpy(ids + r->n_prompt + r->n_tokens, more, (size_t)n_more * sizeof *ids);
    return (harness_run){.prompt = ids,
                         .n_prompt = r->n_prompt + r->n_tokens + n_more,
                         .sampling = greedy(N_OUT),
                         .namespace = r->namespace};
}

static harness_run request(const int32_t *ids, int32_t n, int32_t max_tokens, engine_park *p) {
    return (harness_run){.prompt = ids, .n_prompt = n, .sampling = greedy(max_tokens), .park = p};
}

/* A run parks, all else is evicted, and what goes on finds all that was computed: its
 * prompt and its answer but for the last token. It answers as where nothing was
 * cached. */
static void goes_on_after_eviction(harness *h) {
    int32_t ids[MOST];
    engine_park *p = park_in(h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p);
    run(h, &r);
    assert_int_equal(engine_park_look(p).n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(engine_park_look(p).n_parked, 1);
    evict_all(h);
    harness_run warm = after(&r, ids, other, N_MORE), cold = warm;
    run(h, &warm);
    assert_int_equal(warm.n_cached, N_PROMPT + N_OUT - 1);
    evict_all(h);
    harness_run again = after(&r, ids, other, N_MORE);
    run(h, &again); /* the parked tail's place has a page of the one before */
    assert_in_range(again.n_cached, N_PROMPT + N_OUT - 1, N_PROMPT + N_OUT + N_MORE - 1);
    engine_park_close(p);
    (void)harness_step(h);
    evict_all(h);
    run(h, &cold);
    assert_int_equal(cold.n_cached, 0);
    assert_memory_equal(cold.tokens, warm.tokens, N_OUT * sizeof *cold.tokens);
    assert_memory_equal(cold.tokens, again.tokens, N_OUT * sizeof *cold.tokens);
    evict_all(h);
}

/* The same of a prompt alone, whose logits are kept: what asks for it computes no row of
 * it. */
static void answers_after_eviction(harness *h) {
    engine_park *p = park_in(h);
    harness_run r = request(prompt, N_PROMPT, 0, p);
    r.no_tokens = true;
    run(h, &r);
    evict_all(h);
    harness_run warm[2], cold = request(prompt, N_PROMPT, N_OUT, NULL);
    for (int i = 0; i < 2; i++) {
        warm[i] = cold;
        run(h, &warm[i]);
        assert_int_equal(warm[i].n_cached, N_PROMPT);
        evict_all(h);
    }
    engine_park_close(p);
    (void)harness_step(h);
    evict_all(h);
    run(h, &cold);
    assert_int_equal(cold.n_cached, 0);
    assert_memory_equal(cold.tokens, warm[0].tokens, N_OUT * sizeof *cold.tokens);
    assert_memory_equal(cold.tokens, warm[1].tokens, N_OUT * sizeof *cold.tokens);
    evict_all(h);
}

TEST(what_is_parked_is_found_after_all_else_was_evicted) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    goes_on_after_eviction(&h);
    answers_after_eviction(&h);
    close_world(&h);
}

TEST(windows_are_parked) {
    static const layer_kind kinds_of[][2] = {{LAYER_WINDOW, LAYER_FULL}, {LAYER_WINDOW, LAYER_WINDOW}};
    for (int i = 0; i < 2; i++) {
        harness h;
        open_windowed(options(), kinds_of[i][0], kinds_of[i][1], true, &h);
        uint64_t seed = 6;
        random_prompt(&seed, h.n_vocab, MOST, prompt);
        random_prompt(&seed, h.n_vocab, MOST, other);
        harness_take_over(&h);
        goes_on_after_eviction(&h);
        answers_after_eviction(&h);
        close_world(&h);
    }
}

TEST(recurrent_states_are_parked) {
    for (int kind = 0; kind < N_STATE_MODELS; kind++) {
        harness h;
        model_plan plan;
        temp_dir d = temp_new();
        strbuf b = {0};
        plan_states(&plan, (state_model)kind);
        put_plan(&b, &plan);
        write_file(temp_path(&d, "m.gguf"), b.p, b.n);
        strbuf_deinit(&b);
        harness_options o = options();
        o.path = temp_path(&d, "m.gguf");
        o.n_pages = 256;
        open_world(&o, &h);
        goes_on_after_eviction(&h);
        answers_after_eviction(&h);
        close_world(&h);
        temp_delete(&d, (const char *[]){"m.gguf", NULL});
    }
}

TEST(a_prompt_alone_is_parked_and_once_more_without_a_step) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h), *q = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, 0, p), again = request(prompt, N_PROMPT, 0, q);
    r.no_tokens = again.no_tokens = true;
    assert_int_equal(run(&h, &r), 1);
    assert_int_equal(r.finish, FINISH_LENGTH);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(engine_park_look(p).n_tokens, N_PROMPT);
    assert_int_equal(run(&h, &again), 0);
    assert_int_equal(again.finish, FINISH_LENGTH);
    assert_int_equal(again.n_cached, N_PROMPT);
    assert_int_equal(engine_park_look(q).n_tokens, N_PROMPT);
    assert_int_equal(parked(&h).n_parks, 2);
    assert_int_equal(parked(&h).n_pages, 3); /* each once */
    engine_park_close(p);
    (void)harness_step(&h);
    assert_int_equal(parked(&h).n_pages, 3);
    harness_run on = request(prompt, N_PROMPT + 1, 1, NULL);
    evict_all(&h);
    run(&h, &on);
    assert_int_equal(on.n_cached, N_PROMPT);
    engine_park_close(q);
    close_world(&h);
}

TEST(a_running_sequence_is_parked_at_a_position) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, 40, NULL);
    int32_t ids[MOST];
    bool ended;
    harness_submit(&h, &r);
    while (r.n_tokens < N_OUT) {
        (void)harness_step(&h);
        while (harness_read(&h, &ended)) {
        }
    }
    memcpy(ids, prompt, sizeof ids);
    memcpy(ids + N_PROMPT, r.tokens, (N_OUT - 2) * sizeof *ids);
    harness_run fork = request(ids, N_PROMPT + N_OUT - 2, 0, p);
    fork.no_tokens = true;
    assert_int_equal(engine_fork_acquire(h.e, r.id, &fork.fork_from), QUIRE_OK);
    harness_submit(&h, &fork);
    (void)harness_step(&h);
    while (harness_read(&h, &ended)) {
    }
    engine_fork_release(fork.fork_from);
    assert_int_equal(fork.finish, FINISH_LENGTH); /* its pages are there: it took no step */
    assert_int_equal(fork.n_cached, N_PROMPT + N_OUT - 2);
    assert_int_equal(engine_park_look(p).n_tokens, N_PROMPT + N_OUT - 2);
    finish(&h, &r);
    assert_int_equal(r.n_tokens, 40);
    evict_all(&h);
    harness_run on = request(ids, N_PROMPT + N_OUT - 1, 1, NULL);
    run(&h, &on);
    assert_int_equal(on.n_cached, N_PROMPT + N_OUT - 2);
    engine_park_close(p);
    close_world(&h);
}

TEST(what_ends_next_in_a_park_takes_the_place_of_what_it_held) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p), second = request(other, 2 * N_PROMPT, N_OUT, p);
    run(&h, &r);
    run(&h, &second);
    assert_int_equal(engine_park_look(p).n_tokens, 2 * N_PROMPT + N_OUT - 1);
    assert_int_equal(parked(&h).n_parks, 1);
    evict_all(&h);
    harness_run gone = request(prompt, N_PROMPT, 1, NULL);
    run(&h, &gone);
    assert_int_equal(gone.n_cached, 0);
    engine_park_close(p);
    close_world(&h);
}

TEST(an_end_with_nothing_computed_or_an_error_leaves_a_park_as_it_was) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p), none = request(other, N_PROMPT, N_OUT, p),
                late = request(other, N_PROMPT, N_OUT, p);
    run(&h, &r);
    harness_submit(&h, &none);
    engine_cancel(h.e, none.id);
    finish(&h, &none);
    assert_int_equal(none.finish, FINISH_CANCELLED);
    assert_int_equal(engine_park_look(p).n_tokens, N_PROMPT + N_OUT - 1);
    harness_submit(&h, &late);
    (void)harness_step(&h);
    engine_cancel(h.e, late.id);
    finish(&h, &late);
    assert_int_equal(late.finish, FINISH_CANCELLED); /* after its prompt was computed */
    assert_int_equal(engine_park_look(p).n_tokens, N_PROMPT);
    engine_park_close(p);
    close_world(&h);
}

TEST(a_closed_park_takes_nothing) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p);
    harness_submit(&h, &r);
    (void)harness_step(&h);
    engine_park_close(p);
    finish(&h, &r);
    assert_int_equal(r.finish, FINISH_LENGTH);
    close_world(&h);
}

TEST(the_dropped_cache_leaves_what_is_parked_and_engines_may_close_with_it) {
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p);
    run(&h, &r);
    evict_all(&h);
    assert_int_equal(parked(&h).n_pages, 3);
    engine_park_close(p); /* no step comes any more */
    harness_close(&h);
}

TEST(without_a_prefix_cache_nothing_is_parked_and_by_pages_whole_ones_are) {
    for (int way = 0; way < 2; way++) {
        harness h;
        harness_options o = options();
        o.prefix_cache = way == 0 ? PREFIX_CACHE_NONE : PREFIX_CACHE_PAGE;
        open_world(&o, &h);
        engine_park *p = park_in(&h);
        harness_run r = request(prompt, N_PROMPT, N_OUT, p);
        run(&h, &r);
        assert_int_equal(r.finish, FINISH_LENGTH);
        assert_int_equal(engine_park_look(p).n_tokens, way == 0 ? 0 : (N_PROMPT + N_OUT - 1) / PAGE * PAGE);
        engine_park_close(p);
        close_world(&h);
    }
}

/* A request for the very tokens of a park, sampled in one of many ways. */
static harness_run same_tokens(int i, token_logprob *logprobs) {
    harness_run r = request(prompt, N_PROMPT, 1 + i % 4, NULL);
    r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    r.sampling.seed = (uint64_t)i;
    r.sampling.repetition_penalty = i % 2 == 0 ? 1.0f : 1.4f;
    r.logprobs = logprobs;
    r.logprobs_width = i % 5 == 0 ? 0 : 3;
    return r;
}

/* Of branches without text of their own the prompt is computed once, its last token too:
 * they sample from the logits that the park keeps, and give the same bytes as cold. */
TEST(branches_of_a_parked_prompt_compute_no_row_of_it) {
    enum { N = 24 };
    static token_logprob warm_logprobs[N][4 * 3], cold_logprobs[N][4 * 3];
    static harness_run warm[N], cold[N];
    harness h;
    harness_options o = options();
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, 0, p);
    r.no_tokens = true;
    assert_int_equal(run(&h, &r), 1);
    quire_stats before, after_all;
    engine_stats_read(h.e, &before);
    for (int i = 0; i < N; i++) {
        warm[i] = same_tokens(i, warm_logprobs[i]);
        harness_submit(&h, &warm[i]);
    }
    int64_t n_decoded = 0;
    for (int i = 0; i < N; i++) {
        finish(&h, &warm[i]);
        assert_int_equal(warm[i].n_cached, N_PROMPT);
        n_decoded += warm[i].n_tokens - 1;
    }
    engine_stats_read(h.e, &after_all);
    assert_int_equal(after_all.step_rows - before.step_rows, n_decoded);
    harness_run one = same_tokens(0, NULL); /* a token that needs no step */
    assert_int_equal(run(&h, &one), 0);
    engine_park_close(p);
    (void)harness_step(&h);
    for (int i = 0; i < N; i++) {
        evict_all(&h);
        cold[i] = same_tokens(i, cold_logprobs[i]);
        run(&h, &cold[i]);
        assert_int_equal(cold[i].n_cached, 0);
        assert_int_equal(cold[i].n_tokens, warm[i].n_tokens);
        assert_memory_equal(cold[i].tokens, warm[i].tokens, (size_t)warm[i].n_tokens * sizeof(int32_t));
    }
    assert_memory_equal(cold_logprobs, warm_logprobs, sizeof cold_logprobs);
    close_world(&h);
}

TEST(only_the_very_tokens_of_the_same_tenant_get_the_logits_of_a_park) {
    harness h;
    harness_options o = options();
    int32_t ids[N_PROMPT];
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, 0, p);
    r.no_tokens = true;
    run(&h, &r);
    memcpy(ids, prompt, sizeof ids);
    ids[N_PROMPT - 1] = ids[N_PROMPT - 1] % 100 + 1; /* another last token */
    harness_run others[] = {request(ids, N_PROMPT, 2, NULL), request(prompt, N_PROMPT - 1, 2, NULL),
                            request(prompt, N_PROMPT + 1, 2, NULL), request(prompt, N_PROMPT, 2, NULL)};
    others[3].namespace = "other";
    const int32_t cached[] = {N_PROMPT - 1, N_PROMPT - 2, N_PROMPT, 0};
    for (int i = 0; i < 4; i++) {
        run(&h, &others[i]);
        assert_int_equal(others[i].n_cached, cached[i]);
    }
    engine_park_close(p);
    close_world(&h);
}

/* Beside another sequence that runs: what goes on has its first token in the step after
 * the one that gave the last token before, since it is submitted in between. */
TEST(what_goes_on_rides_in_the_next_step) {
    harness h;
    harness_options o = options();
    int32_t ids[MOST];
    open_world(&o, &h);
    engine_park *p = park_in(&h);
    harness_run beside = request(other, 20, 100, NULL), r = request(prompt, N_PROMPT, N_OUT, p);
    r.explain = true;
    harness_submit(&h, &beside);
    (void)harness_step(&h);
    run(&h, &r);
    harness_run next = after(&r, ids, other + 30, N_MORE);
    next.explain = true;
    run(&h, &next);
    assert_int_equal(r.report->last_token_step - r.report->first_token_step, N_OUT - 1);
    assert_int_equal(next.report->first_token_step, r.report->last_token_step + 1);
    assert_int_equal(next.report->report.chunks[0].step, next.report->first_token_step);
    assert_int_equal(next.report->report.chunks[0].tokens, 1 + N_MORE); /* the last token, and what is new */
    mem_free(r.report);
    mem_free(next.report);
    finish(&h, &beside);
    engine_park_close(p);
    close_world(&h);
}

TEST(a_view_shows_what_is_parked_with_its_owner_and_pages) {
    harness h;
    harness_options o = options();
    engine_view *w;
    open_world(&o, &h);
    assert_int_equal(engine_view_open(h.e, &w), QUIRE_OK);
    engine_park *p = park_in(&h);
    harness_run r = request(prompt, N_PROMPT, N_OUT, p);
    r.namespace = "owner";
    run(&h, &r);
    engine_view_ask(w, 0, 0);
    engine_view_response(h.e);
    const quire_kv_view *v = engine_view_get(w);
    assert_int_equal(v->n_seqs, 1);
    assert_int_equal(v->seqs[0].state, QUIRE_KV_PARKED);
    assert_int_equal(v->seqs[0].n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(v->seqs[0].n_pages, 3);
    assert_string_equal(v->seqs[0].owner, "owner");
    assert_int_equal(v->n_held, 3);
    assert_memory_equal(v->page_token, prompt, PAGE * sizeof *prompt); /* as the tree has them */
    engine_view_close(w);
    engine_park_close(p);
    close_world(&h);
}

/* ---- bounds ---- */

TEST(a_tenants_bound_empties_its_own_oldest_park) {
    harness h;
    harness_options o = options();
    engine_park *p[4];
    open_world(&o, &h);
    harness_close(&h);
    o.parked_tenant_bytes = 6 * h.layout.page_bytes + 1;
    open_world(&o, &h);
    for (int i = 0; i < 4; i++) { /* 3 pages each: two fit, and another tenant's are not of them */
        p[i] = park_in(&h);
        harness_run r = request(prompt + i, N_PROMPT, N_OUT, p[i]);
        r.namespace = i == 0 ? "other" : "test";
        run(&h, &r);
    }
    assert_int_equal(engine_park_look(p[0]).n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(engine_park_look(p[1]).n_tokens, 0);
    assert_int_equal(engine_park_look(p[1]).n_bounded, 1);
    assert_int_equal(engine_park_look(p[2]).n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(engine_park_look(p[3]).n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(parked(&h).n_pages, 9);
    assert_int_equal(parked(&h).bounded, 1);
    engine_park *large = park_in(&h);
    harness_run r = request(other, 7 * PAGE, 1, large); /* alone over the bound */
    run(&h, &r);
    assert_int_equal(engine_park_look(large).n_tokens, 0);
    assert_int_equal(engine_park_look(large).n_bounded, 1);
    assert_int_equal(parked(&h).n_pages, 9);
    for (int i = 0; i < 4; i++) {
        engine_park_close(p[i]);
    }
    engine_park_close(large);
    close_world(&h);
}

TEST(the_bound_of_all_empties_parks_of_the_tenant_that_holds_most) {
    harness h;
    harness_options o = options();
    engine_park *p[4];
    open_world(&o, &h);
    harness_close(&h);
    o.parked_bytes = 9 * h.layout.page_bytes;
    open_world(&o, &h);
    for (int i = 0; i < 4; i++) {
        p[i] = park_in(&h);
        harness_run r = request(prompt + i, N_PROMPT, N_OUT, p[i]);
        r.namespace = i == 0 || i == 3 ? "small" : "large";
        run(&h, &r);
    }
    assert_int_equal(parked(&h).n_pages, 9);
    assert_int_equal(engine_park_look(p[1]).n_tokens + engine_park_look(p[0]).n_tokens,
                     N_PROMPT + N_OUT - 1); /* both had two: of equal ones either may go */
    assert_int_equal(engine_park_look(p[2]).n_tokens, N_PROMPT + N_OUT - 1);
    assert_int_equal(engine_park_look(p[3]).n_tokens, N_PROMPT + N_OUT - 1);
    for (int i = 0; i < 4; i++) {
        engine_park_close(p[i]);
    }
    close_world(&h);
}

/* Parks hold half of the pool, and a request that needs all of it comes: the oldest give
 * way, no more than it takes. */
TEST(the_longest_request_runs_beside_parks) {
    harness h;
    harness_options o = options();
    engine_park *p[8];
    o.n_pages = 16;
    o.max_model_len = 16 * PAGE;
    open_world(&o, &h);
    for (int i = 0; i < 4; i++) {
        p[i] = park_in(&h);
        harness_run r = request(prompt + 40 * i, PAGE + 3, 8, p[i]);
        run(&h, &r);
    }
    assert_int_equal(parked(&h).n_pages, 8);
    harness_run longest = request(other, 3 * PAGE, 13 * PAGE, NULL),
                beside = request(other + 1, PAGE, 8, NULL);
    harness_submit(&h, &longest);
    harness_submit(&h, &beside);
    finish(&h, &longest);
    finish(&h, &beside);
    assert_int_equal(longest.finish, FINISH_LENGTH);
    assert_int_equal(longest.n_tokens, 13 * PAGE);
    assert_true(parked(&h).bounded > 0);
    for (int i = 0; i < 4; i++) {
        engine_park_close(p[i]);
    }
    close_world(&h);
}

TEST(what_cannot_park_is_refused) {
    harness h, second;
    harness_options o = options();
    quire_error err;
    request_id id[2];
    open_world(&o, &h);
    open_world(&o, &second);
    engine_park *p = park_in(&second), *own = park_in(&h), *two[2] = {own, own};
    harness_run r = request(prompt, N_PROMPT, N_OUT, p);
    harness_submit(&h, &r);
    assert_int_equal(r.error, QUIRE_INVALID); /* another engine's */
    void *users[2] = {&r, &r};
    int32_t tokens[N_PROMPT];
    memcpy(tokens, prompt, sizeof tokens);
    engine_request q = {.tokens = tokens,
                        .n_tokens = N_PROMPT,
                        .sampling = greedy(4),
                        .parks = two,
                        .beams = {.width = 2},
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h.out};
    assert_int_equal(engine_submit_samples(h.e, &q, 2, users, id, &err), QUIRE_INVALID);
    q.beams.width = 0;
    q.no_tokens = true;
    assert_int_equal(engine_submit_samples(h.e, &q, 2, users, id, &err), QUIRE_INVALID);
    q.logprobs_width = 1;
    assert_int_equal(engine_submit(h.e, &q, id, &err), QUIRE_INVALID);
    engine_park_close(p);
    engine_park_close(own);
    close_world(&h);
    close_world(&second);
}

/* ---- at random ---- */

enum { N_PARKS = 12, N_RUNS = 10, N_ACTIONS = 1500 };

static uint64_t seed;

static int32_t any(int32_t n) {
    return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

/* A few prompts that begin alike, so that parks, running requests and the tree share
 * pages. */
static void random_request(harness_run *r, int32_t *ids, engine_park *p) {
    int32_t n = any(3) == 0 ? N_PROMPT : 1 + any(90), n_alike = any(3) == 0 ? n : any(n + 1);
    memcpy(ids, any(2) == 0 ? prompt : other, (size_t)n_alike * sizeof *ids);
    for (int32_t i = n_alike; i < n; i++) {
        ids[i] = 1 + any(3);
    }
    *r = request(ids, n, 1 + any(40), p);
    r->no_tokens = any(4) == 0;
    r->namespace = any(3) == 0 ? "b" : "a";
}

static void storm(const harness_options *o) {
    static harness_run runs[N_RUNS];
    static int32_t ids[N_RUNS][MOST];
    engine_park *parks[N_PARKS];
    bool ended;
    harness h;
    open_world(o, &h);
    for (int i = 0; i < N_PARKS; i++) {
        parks[i] = park_in(&h);
    }
    for (int i = 0; i < N_RUNS; i++) {
        runs[i] = (harness_run){.finish = FINISH_LENGTH};
    }
    for (int n = 0; n < N_ACTIONS; n++) {
        int32_t i = any(N_RUNS), k = any(N_PARKS);
        if (runs[i].finish != FINISH_NONE) {
            random_request(&runs[i], ids[i], any(4) == 0 ? NULL : parks[k]);
            harness_submit(&h, &runs[i]);
            assert_int_equal(runs[i].error, QUIRE_OK);
        } else if (any(8) == 0) {
            engine_cancel(h.e, runs[i].id);
        }
        if (any(6) == 0) {
            engine_park_close(parks[k]);
            parks[k] = park_in(&h);
        }
        if (any(40) == 0) {
            evict_all(&h);
        }
        (void)harness_step(&h);
        while (harness_read(&h, &ended)) {
        }
    }
    for (int i = 0; i < N_RUNS; i++) {
        finish(&h, &runs[i]);
    }
    for (int i = 0; i < N_PARKS; i++) {
        engine_park_close(parks[i]);
    }
    close_world(&h);
}

TEST(parks_opened_filled_and_closed_at_random_add_up) {
    harness_options o = options();
    o.n_pages = 14;
    o.max_model_len = 14 * PAGE;
    o.max_seqs = 4;
    storm(&o);
    o.swap_bytes = 1 << 20;
    o.preempt = PREEMPT_SWAP;
    storm(&o);
}

int main(void) {
    const char *given = getenv("QUIRE_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : rng_os_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    return tests_run(NULL, NULL);
}

/* Branches: forks, rollbacks and steers, against requests that were never touched. Debug
 * builds audit all pages after every step. */
#include <time.h>

#include "core/params.h"
#define MODEL FLUENT
#include "engine/adapter_world.h"
#include "test.h"

enum { N_PROMPT = 37, N_OUT = 60, MAX = 512 };

static int32_t prompt[MAX];
static uint64_t random_state = 21;

/* One stream as its reader sees it: the tokens that stand, whichever sequence is
 * after. */
typedef struct watched {
    int32_t tokens[MAX]; /* prompt and response */
    float logprobs[MAX]; /* of the response's, where they were asked for */
    int32_t n;
    request_id id;
    finish_reason finish;
    bool gone; /* its end came */
} watched;

typedef struct fields {
    sampling_params sampling;
    const char *namespace;
    int32_t logprobs_width;
    adapter_ref *adapter;
    int32_t adapter_from;
} fields;

/* What fields_of gives to all requests; NULL and 0: none has one. */
static adapter_ref *everybodys;
static int32_t everybodys_from;

static engine_request request_of(harness *h, watched *w, int32_t n_tokens, const fields *f) {
    int32_t *tokens = mem_new((size_t)n_tokens, sizeof *tokens);
    memcpy(tokens, w->tokens, (size_t)n_tokens * sizeof *tokens);
    return (engine_request){.tokens = tokens,
                            .n_tokens = n_tokens,
                            .sampling = f->sampling,
                            .namespace = f->namespace,
                            .n_namespace = strlen(f->namespace),
                            .logprobs_width = f->logprobs_width,
                            .adapter = f->adapter,
                            .adapter_from = f->adapter_from,
                            .out = h->out,
                            .user = w};
}

static void start(harness *h, watched *w, int32_t n_prompt, const fields *f) {
    quire_error err;
    *w = (watched){.n = n_prompt};
    memcpy(w->tokens, prompt, (size_t)n_prompt * sizeof *prompt);
    engine_request r = request_of(h, w, n_prompt, f);
    assert_int_equal(engine_submit(h->e, &r, &w->id, &err), QUIRE_OK);
}

/* One event to whom it belongs; those of a sequence that was replaced are dropped, as the
 * API does. */
static void take(const engine_event *ev) {
    watched *w = ev->user;
    if (ev->id.index != w->id.index || ev->id.generation != w->id.generation) {
        assert_true(ev->finish == FINISH_NONE || ev->finish == FINISH_CANCELLED ||
                    ev->finish == FINISH_LENGTH);
        return;
    }
    if (ev->finish == FINISH_NONE) {
        assert_int_equal(ev->position, w->n);
        w->logprobs[w->n] = ev->logprobs ? ev->logprobs->logprob : 0.0f;
        w->tokens[w->n++] = ev->token;
    } else {
        w->finish = ev->finish;
        w->gone = true;
    }
}

/* Reads until w has n tokens or its end. */
static void read_to(harness *h, watched *w, int32_t n) {
    engine_event ev;
    while (w->n < n && !w->gone) {
        if (engine_out_pop(h->out, &ev)) {
            take(&ev);
        } else {
            wake_wait(&h->reader, -1);
        }
    }
}

/* The same of an engine that was taken over (harness_take_over), and is no step ahead of
 * its reader. */
static void step_to(harness *h, watched *w, int32_t n) {
    engine_event ev;
    for (int32_t n_idle = 0; w->n < n && !w->gone;) {
        if (engine_out_pop(h->out, &ev)) {
            take(&ev);
        } else {
            n_idle = harness_step(h) ? 0 : n_idle + 1; /* one may end a request without computing */
            assert_true(n_idle < 3);
        }
    }
}

static void read_end(harness *h, watched *w) {
    read_to(h, w, MAX + 1);
}

/* to goes on from the first `position` tokens of from, with more after them. */
static quire_err branch(harness *h, watched *from, watched *to, int32_t position, const int32_t *more,
                        int32_t n_more, int32_t n_prompt, const fields *f) {
    quire_error err;
    engine_fork *fork_from;
    quire_err e = engine_fork_acquire(h->e, from->id, &fork_from);
    if (e != QUIRE_OK) {
        return e;
    }
    bool replaces = from == to;
    if (!replaces) {
        *to = *from;
        to->gone = false;
    }
    to->n = position;
    if (n_more > 0) {
        memcpy(to->tokens + position, more, (size_t)n_more * sizeof *more);
    }
    engine_request r = request_of(h, to, position + n_more, f);
    r.fork_from = fork_from;
    r.fork_position = position;
    r.n_prompt = n_prompt;
    r.fork_replaces = replaces;
    e = engine_submit(h->e, &r, &to->id, &err);
    if (e != QUIRE_OK) {
        mem_free(r.tokens);
    }
    if (!replaces) {
        to->n += n_more;
    }
    engine_fork_release(fork_from);
    return e;
}

static void nothing_is_held(harness *h) {
    quire_stats s;
    engine_event ev;
    for (int i = 0; i < 60000; i++) {
        while (engine_out_pop(h->out, &ev)) {
            take(&ev);
        }
        engine_stats_read(h->e, &s);
        if (s.n_requests_running + s.n_requests_waiting + s.n_pages_held == 0) {
            return;
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    fail_msg("%lld pages are held", (long long)s.n_pages_held);
}

/* Every kind of choice that looks back: at tokens, at how many there are, and at what was
 * chosen. */
static fields fields_of(int kind) {
    fields f = {.sampling = greedy(N_OUT),
                .namespace = "test",
                .adapter = everybodys,
                .adapter_from = everybodys_from};
    f.sampling.seed = 77;
    f.sampling.temperature = kind == 0 ? 0.0f : 1.0f;
    if (kind == 2) {
        f.sampling.repetition_penalty = 1.3f;
        f.sampling.frequency_penalty = 0.4f;
        f.sampling.presence_penalty = 0.3f;
        f.sampling.dry_multiplier = 0.8f;
        f.sampling.no_repeat_ngram_size = 4;
        f.sampling.min_tokens = 20;
        f.sampling.ignore_eos = false;
    }
    if (kind >= 3) {
        f.sampling.mirostat = kind == 3 ? MIROSTAT_1 : MIROSTAT_2;
        f.sampling.mirostat_tau = 4.0f;
        f.sampling.mirostat_eta = 0.3f;
    }
    return f;
}

enum { N_KINDS = 5 };

static void same_tokens(const watched *a, const watched *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n * sizeof(int32_t));
}

static void for_each_engine(void (*check)(harness *h, int kind)) {
    static const int32_t sizes[] = {1, 16};
    for (int cache = 0; cache < 2; cache++) {
        for (size_t i = cache ? 0 : 1; i < sizeof sizes / sizeof *sizes; i++) {
            harness_options o = harness_defaults;
            o.page_tokens = sizes[i];
            o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
            for (int kind = 0; kind < N_KINDS; kind++) {
                harness h = {0};
                harness_open(&o, &h);
                check(&h, kind);
                nothing_is_held(&h);
                harness_close(&h);
            }
        }
    }
}

/* A branch near the prompt of a long stream, with few tokens of its own to come: its
 * tables have room for those, and not for the fork parent's pages. */
static void check_short(harness *h, int kind) {
    static watched fork_from, twin, plain;
    fields f = fields_of(kind), few = f;
    few.sampling.max_tokens = 4;
    few.sampling.min_tokens = f.sampling.min_tokens = 0;
    few.sampling.ignore_eos = f.sampling.ignore_eos = true;
    start(h, &plain, N_PROMPT, &few);
    read_end(h, &plain);
    f.sampling.max_tokens = 400;
    start(h, &fork_from, N_PROMPT, &f);
    read_to(h, &fork_from, N_PROMPT + 100);
    assert_int_equal(branch(h, &fork_from, &twin, N_PROMPT + 1, NULL, 0, N_PROMPT, &few), QUIRE_OK);
    read_end(h, &twin);
    engine_cancel(h->e, fork_from.id);
    same_tokens(&plain, &twin);
}

TEST(a_short_branch_of_a_long_stem_shares_no_more_than_it_has_room_for) {
    for_each_engine(check_short);
}

static void check_rollback(harness *h, int kind) {
    static watched plain, s;
    fields f = fields_of(kind);
    start(h, &plain, N_PROMPT, &f);
    read_end(h, &plain);
    start(h, &s, N_PROMPT, &f);
    read_to(h, &s, N_PROMPT + 30);
    for (int32_t to = s.n; to > N_PROMPT; to -= 11) {
        assert_int_equal(branch(h, &s, &s, to, NULL, 0, N_PROMPT, &f), QUIRE_OK);
        read_to(h, &s, to + 7);
    }
    assert_int_equal(branch(h, &s, &s, N_PROMPT, NULL, 0, N_PROMPT, &f), QUIRE_OK);
    read_end(h, &s);
    same_tokens(&s, &plain);
}

/* Greedy samples keep what mirostat needs, for a branch that is warmer. */
static void check_warmer(harness *h, int kind) {
    static watched s[2];
    fields f = fields_of(kind), warm = f;
    f.sampling.temperature = 0.0f;
    for (int i = 0; i < 2; i++) { /* with log-probabilities no sample is taken from the backend's argmax */
        f.logprobs_width = i;
        start(h, &s[i], N_PROMPT, &f);
        read_to(h, &s[i], N_PROMPT + 30);
        assert_int_equal(branch(h, &s[i], &s[i], N_PROMPT + 9, NULL, 0, N_PROMPT, &warm), QUIRE_OK);
        read_end(h, &s[i]);
    }
    same_tokens(&s[0], &s[1]);
}

TEST(a_warmer_branch_of_greedy_samples_goes_on_from_their_mu) {
    for_each_engine(check_warmer);
}

TEST(a_rolled_back_generation_equals_one_never_touched) {
    for_each_engine(check_rollback);
}

static void check_fork(harness *h, int kind) {
    static watched plain, s, forks[3];
    static const int32_t behind[] = {0, 5, 29};
    fields f = fields_of(kind);
    start(h, &plain, N_PROMPT, &f);
    read_end(h, &plain);
    start(h, &s, N_PROMPT, &f);
    read_to(h, &s, N_PROMPT + 30);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(branch(h, &s, &forks[i], N_PROMPT + behind[i], NULL, 0, N_PROMPT, &f), QUIRE_OK);
    }
    read_end(h, &s);
    same_tokens(&s, &plain); /* forks write into no page of their fork parent */
    for (int i = 0; i < 3; i++) {
        read_end(h, &forks[i]);
        same_tokens(&forks[i], &plain); /* the same seed at the same positions */
    }
}

TEST(forks_of_the_same_seed_go_where_their_stem_goes) {
    for_each_engine(check_fork);
}

/* With another seed a fork is a request whose prompt is all that stood before, where
 * nothing counts what was generated. */
TEST(a_fork_equals_a_fresh_request_with_its_prefix_and_seed) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    static watched s, fork, fresh, other;
    fields f = fields_of(1), g = fields_of(1);
    start(&h, &s, N_PROMPT, &f);
    read_to(&h, &s, N_PROMPT + 21);
    g.sampling.seed = 5;
    assert_int_equal(branch(&h, &s, &fork, N_PROMPT + 21, NULL, 0, N_PROMPT, &g), QUIRE_OK);
    read_end(&h, &fork);
    read_end(&h, &s);
    fresh = (watched){.n = N_PROMPT + 21};
    memcpy(fresh.tokens, fork.tokens, (size_t)fresh.n * sizeof(int32_t));
    g.sampling.max_tokens = N_OUT - 21;
    engine_request r = request_of(&h, &fresh, fresh.n, &g);
    quire_error err;
    r.namespace = "other";
    r.n_namespace = 5;
    assert_int_equal(engine_submit(h.e, &r, &fresh.id, &err), QUIRE_OK);
    read_end(&h, &fresh);
    same_tokens(&fork, &fresh);
    assert_true(memcmp(fork.tokens, s.tokens, sizeof(int32_t) * (N_PROMPT + N_OUT)) != 0);
    /* penalties do count it: the boundary of the prompt stays where it was */
    f = fields_of(2);
    start(&h, &s, N_PROMPT, &f);
    read_to(&h, &s, N_PROMPT + 21);
    assert_int_equal(branch(&h, &s, &fork, N_PROMPT + 21, NULL, 0, N_PROMPT, &f), QUIRE_OK);
    assert_int_equal(branch(&h, &s, &other, N_PROMPT + 21, NULL, 0, N_PROMPT + 21, &f), QUIRE_OK);
    read_end(&h, &s);
    read_end(&h, &fork);
    read_end(&h, &other);
    same_tokens(&fork, &s);
    assert_true(other.n != s.n || memcmp(other.tokens, s.tokens, (size_t)s.n * sizeof(int32_t)) != 0);
    nothing_is_held(&h);
    harness_close(&h);
}

/* w ends as a fresh request does whose prompt is the first n tokens of it. */
static void check_fresh(harness *h, watched *w, int32_t n, const fields *f) {
    static watched fresh;
    fields g = *f;
    quire_error err;
    read_end(h, w);
    fresh = (watched){.n = n};
    memcpy(fresh.tokens, w->tokens, (size_t)n * sizeof(int32_t));
    g.sampling.max_tokens -= n - N_PROMPT;
    engine_request r = request_of(h, &fresh, n, &g);
    assert_int_equal(engine_submit(h->e, &r, &fresh.id, &err), QUIRE_OK);
    read_end(h, &fresh);
    same_tokens(w, &fresh);
}

static void check_steer(harness *h, int kind) {
    static watched s;
    static const int32_t given[] = {100, 101, 102, 103, 104, 105, 106, 107, 108,
                                    109, 110, 111, 112, 113, 114, 115, 116, 117};
    fields f = fields_of(kind);
    if (kind == 2) {
        return; /* what was generated counts */
    }
    start(h, &s, N_PROMPT, &f);
    read_to(h, &s, N_PROMPT + 25);
    int32_t at = N_PROMPT + 13, n = (int32_t)(sizeof given / sizeof *given);
    assert_int_equal(branch(h, &s, &s, at, given, n, N_PROMPT, &f), QUIRE_OK);
    read_to(h, &s, at + n);
    assert_memory_equal(s.tokens + at, given, sizeof given); /* they are events like others */
    read_end(h, &s);
    assert_int_equal(s.n, N_PROMPT + N_OUT);
    if (kind >= 3) {
        return; /* mirostat remembers what it chose before */
    }
    check_fresh(h, &s, at + n, &f);
}

TEST(a_steered_generation_goes_on_as_if_the_tokens_had_been_its_own) {
    for_each_engine(check_steer);
}

TEST(a_rollback_gives_back_the_pages_behind_it) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    harness_take_over(&h);
    static watched s;
    fields f = fields_of(0);
    f.sampling.max_tokens = 450;
    start(&h, &s, N_PROMPT, &f);
    step_to(&h, &s, 400);
    quire_stats before, after;
    engine_stats_read(h.e, &before);
    assert_true(before.n_pages_held >= 25);
    assert_int_equal(branch(&h, &s, &s, N_PROMPT + 3, NULL, 0, N_PROMPT, &f), QUIRE_OK);
    step_to(&h, &s, N_PROMPT + 5);
    engine_stats_read(h.e, &after);
    assert_true(after.n_pages_held < 25);
    engine_cancel(h.e, s.id);
    step_to(&h, &s, MAX + 1);
    nothing_is_held(&h);
    harness_close(&h);
}

/* What the fork parent has computed is not computed again, but for the token whose logits
 * are wanted. */
TEST(branches_compute_only_what_is_new) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness_open(&o, &h);
    harness_take_over(&h);
    static watched s, fork;
    fields f = fields_of(1);
    f.sampling.max_tokens = 200;
    start(&h, &s, 300, &f);
    step_to(&h, &s, 310);
    assert_int_equal(branch(&h, &s, &fork, 305, NULL, 0, 300, &f), QUIRE_OK);
    step_to(&h, &s, MAX + 1);
    step_to(&h, &fork, MAX + 1);
    quire_stats stats;
    nothing_is_held(&h);
    engine_stats_read(h.e, &stats);
    assert_int_equal(stats.step_rows, 300 + 199 + (500 - 304 - 1));
    harness_close(&h);
}

TEST(what_cannot_run_at_once_waits_and_comes_out_the_same) {
    for (int cache = 0; cache < 2; cache++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.max_seqs = 2;
        o.n_pages = 8; /* preempts, and a lone sequence fills it */
        o.page_tokens = 16;
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        harness_open(&o, &h);
        static watched plain, s, forks[6];
        fields f = fields_of(1);
        f.sampling.max_tokens = 128 - N_PROMPT;
        start(&h, &plain, N_PROMPT, &f);
        read_end(&h, &plain);
        start(&h, &s, N_PROMPT, &f);
        read_to(&h, &s, N_PROMPT + 40);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(branch(&h, &s, &forks[i], N_PROMPT + 6 * i, NULL, 0, N_PROMPT, &f), QUIRE_OK);
        }
        assert_int_equal(branch(&h, &s, &s, N_PROMPT + 39, NULL, 0, N_PROMPT, &f), QUIRE_OK);
        read_end(&h, &s);
        same_tokens(&s, &plain);
        for (int i = 0; i < 6; i++) {
            read_end(&h, &forks[i]);
            same_tokens(&forks[i], &plain);
        }
        nothing_is_held(&h);
        /* the pool is full to its last page when it is rolled back into the middle of
         * one */
        start(&h, &s, N_PROMPT, &f);
        read_to(&h, &s, 126);
        for (int32_t to = 125; to > 100; to -= 5) {
            assert_int_equal(branch(&h, &s, &s, to, NULL, 0, N_PROMPT, &f), QUIRE_OK);
            read_to(&h, &s, to + 2);
        }
        read_end(&h, &s);
        same_tokens(&s, &plain);
        nothing_is_held(&h);
        harness_close(&h);
    }
}

TEST(windows_are_computed_again_where_their_pages_are_gone) {
    layer_kind kinds[8] = {LAYER_WINDOW, LAYER_FULL, LAYER_WINDOW, LAYER_FULL,
                           LAYER_WINDOW, LAYER_FULL, LAYER_WINDOW, LAYER_FULL};
    for (int cache = 0; cache < 2; cache++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.layer_kinds = kinds;
        o.window = 2048; /* the model itself sees all */
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        harness_open(&o, &h);
        check_rollback(&h, 2);
        check_fork(&h, 1);
        nothing_is_held(&h);
        harness_close(&h);
    }
}

/* Drafts are taken back with the tokens that they came from, and are made anew for a
 * branch. */
TEST(drafts_change_nothing) {
    static const draft_options methods[] = {
        {.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4},
        {.method = DRAFT_METHOD_SUFFIX,
         .n_tokens = 5,
         .suffix_depth = 16,
         .suffix_texts = 64,
         .suffix_factor = 1.0,
         .suffix_min_prob = 0.1},
        {.method = DRAFT_METHOD_NGRAM, .n_tokens = 9, .tree_width = 4, .lookup_min = 1, .lookup_max = 4},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.draft = methods[i];
        harness_open(&o, &h);
        for (int kind = 1; kind < 4; kind++) {
            check_rollback(&h, kind);
            check_fork(&h, kind);
            check_steer(&h, kind);
        }
        nothing_is_held(&h);
        quire_stats stats;
        engine_stats_read(h.e, &stats);
        assert_true(stats.draft_accepted > 0);
        harness_close(&h);
    }
}

/* Of all rows and of those from within the prompt on, beside requests of the base that
 * share its pages. */
TEST(branches_under_an_adapter_are_what_they_would_be_untouched) {
    static world_adapters l;
    static watched base, other, s;
    for (int i = 0; i < 4; i++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.max_adapters = 2;
        o.prefix_cache = i % 2 ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        harness_open(&o, &h);
        adapters_load(&h, &l);
        fields plain = fields_of(1);
        plain.namespace = i < 2 ? "base" : plain.namespace;
        start(&h, &base, N_PROMPT, &plain);
        everybodys = &l.refs[0];
        everybodys_from = i < 2 ? 0 : 20;
        for (int kind = 0; kind < N_KINDS; kind++) {
            check_rollback(&h, kind);
            check_fork(&h, kind);
            check_steer(&h, kind);
        }
        /* a branch under another adapter has none of its fork parent's pages */
        fields f = fields_of(1), g = f;
        g.adapter = &l.refs[1];
        g.namespace = i < 2 ? "other" : g.namespace;
        start(&h, &s, N_PROMPT, &f);
        read_to(&h, &s, N_PROMPT + 25);
        assert_int_equal(branch(&h, &s, &other, N_PROMPT + 25, NULL, 0, N_PROMPT, &g), QUIRE_OK);
        check_fresh(&h, &other, N_PROMPT + 25, &g);
        read_end(&h, &s);
        read_end(&h, &base);
        assert_true(memcmp(base.tokens, s.tokens, sizeof(int32_t) * (N_PROMPT + N_OUT)) != 0);
        nothing_is_held(&h);
        engine_stop(h.e);
        adapters_drop(&h, &l);
        harness_close(&h);
        everybodys = NULL;
        everybodys_from = 0;
    }
}

/* n samples of what follows the first `position` tokens of fork parent, from sample
 * `first` on. */
static void branch_samples(harness *h, watched *fork_from, int32_t position, const fields *f, int32_t first,
                           int32_t n, watched *out) {
    void *users[4];
    request_id ids[4];
    quire_error err;
    engine_request r = request_of(h, fork_from, position, f);
    engine_fork *held;
    assert_int_equal(engine_fork_acquire(h->e, fork_from->id, &held), QUIRE_OK);
    r.fork_from = held;
    r.fork_position = position;
    r.n_prompt = N_PROMPT;
    r.sample_index = (uint32_t)first;
    r.logprobs_width = 1;
    for (int32_t k = 0; k < n; k++) {
        out[k] = *fork_from;
        out[k].n = position;
        users[k] = &out[k];
    }
    assert_int_equal(engine_submit_samples(h->e, &r, n, users, ids, &err), QUIRE_OK);
    engine_fork_release(held);
    for (int32_t k = 0; k < n; k++) {
        out[k].id = ids[k];
    }
}

/* Further samples are forked from the first once that has logits: what was drafted after
 * it is none of theirs. */
TEST(samples_of_a_branch_are_what_each_would_be_alone) {
    enum { N_SAMPLES = 4 };
    static const int32_t few[] = {17, 300, 4}; /* so that much can be guessed */
    harness h = {0};
    harness_options o = harness_defaults;
    o.draft = (draft_options){.method = DRAFT_METHOD_NGRAM, .n_tokens = 5, .lookup_min = 1, .lookup_max = 4};
    harness_open(&o, &h);
    fields f = fields_of(1);
    f.sampling.lists = sampling_lists_new();
    assert_non_null(f.sampling.lists);
    assert_int_equal(sampling_lists_set_allowed(f.sampling.lists, few, 3), QUIRE_OK);
    for (int32_t position = N_PROMPT + 5; position < N_PROMPT + 21; position++) {
        static watched fork_from, together[N_SAMPLES], alone[N_SAMPLES];
        fields longer = f;
        longer.sampling.max_tokens = 400;
        start(&h, &fork_from, N_PROMPT, &longer);
        read_to(&h, &fork_from, position);
        branch_samples(&h, &fork_from, position, &f, 0, N_SAMPLES, together);
        for (int32_t k = 0; k < N_SAMPLES; k++) {
            branch_samples(&h, &fork_from, position, &f, k, 1, &alone[k]);
        }
        for (int32_t k = 0; k < N_SAMPLES; k++) {
            read_end(&h, &together[k]);
            read_end(&h, &alone[k]);
            same_tokens(&together[k], &alone[k]);
            assert_memory_equal(together[k].logprobs + position, alone[k].logprobs + position,
                                (size_t)(alone[k].n - position) * sizeof(float));
        }
        engine_cancel(h.e, fork_from.id);
        read_end(&h, &fork_from);
    }
    nothing_is_held(&h);
    harness_close(&h);
    sampling_lists_drop(f.sampling.lists);
}

TEST(a_stem_may_end_before_its_branch_begins) {
    for (int cache = 0; cache < 2; cache++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        harness_open(&o, &h);
        static watched plain, s, fork;
        fields f = fields_of(1);
        start(&h, &plain, N_PROMPT, &f);
        read_end(&h, &plain);
        for (int how = 0; how < 3; how++) {
            start(&h, &s, N_PROMPT, &f);
            read_to(&h, &s, N_PROMPT + 10);
            quire_stats stats;
            do { /* it has ended, but its reader has not been told */
                if (how == 1) {
                    engine_cancel(h.e, s.id);
                }
                engine_stats_read(h.e, &stats);
            } while (how < 2 && stats.n_requests_running > 0);
            assert_int_equal(branch(&h, &s, &fork, N_PROMPT + 8, NULL, 0, N_PROMPT, &f), QUIRE_OK);
            assert_int_equal(branch(&h, &s, &s, N_PROMPT + 9, NULL, 0, N_PROMPT, &f), QUIRE_OK);
            read_end(&h, &s);
            read_end(&h, &fork);
            same_tokens(&s, &plain);
            same_tokens(&fork, &plain);
            /* whose end was read is no fork parent any more */
            engine_fork *fork_from;
            assert_int_equal(engine_fork_acquire(h.e, s.id, &fork_from), QUIRE_NOT_FOUND);
            assert_null(fork_from);
        }
        nothing_is_held(&h);
        harness_close(&h);
    }
}

TEST(a_branch_from_one_that_still_waits_waits_too) {
    harness h = {0};
    harness_options o = harness_defaults;
    o.max_seqs = 1;
    harness_open(&o, &h);
    static watched plain, first, s, fork;
    fields f = fields_of(1), longer = fields_of(0);
    longer.sampling.max_tokens = 300;
    start(&h, &plain, N_PROMPT, &f);
    read_end(&h, &plain);
    start(&h, &first, N_PROMPT + 1, &longer);
    read_to(&h, &first, N_PROMPT + 2);
    start(&h, &s, N_PROMPT, &f);
    assert_int_equal(branch(&h, &s, &fork, N_PROMPT, NULL, 0, N_PROMPT, &f), QUIRE_OK);
    assert_int_equal(branch(&h, &s, &s, N_PROMPT, NULL, 0, N_PROMPT, &f), QUIRE_OK);
    read_end(&h, &s);
    read_end(&h, &fork);
    same_tokens(&s, &plain);
    same_tokens(&fork, &plain);
    read_end(&h, &first);
    nothing_is_held(&h);
    harness_close(&h);
}

TEST(branches_that_make_no_sense_are_refused) {
    harness h = {0};
    harness_open(&harness_defaults, &h);
    static watched s;
    fields f = fields_of(1);
    f.sampling.max_tokens = 200;
    start(&h, &s, N_PROMPT, &f);
    read_to(&h, &s, N_PROMPT + 10);
    static watched other;
    static const int32_t given[2] = {9, -1};
    assert_int_equal(branch(&h, &s, &other, N_PROMPT - 1, NULL, 0, N_PROMPT, &f), QUIRE_INVALID);
    assert_int_equal(branch(&h, &s, &other, N_PROMPT + 4, given, 2, N_PROMPT, &f), QUIRE_BAD_REQUEST);
    f.sampling.max_tokens = 4;
    assert_int_equal(branch(&h, &s, &other, N_PROMPT + 4, NULL, 0, N_PROMPT, &f), QUIRE_BAD_REQUEST);
    engine_cancel(h.e, s.id);
    read_end(&h, &s);
    assert_int_equal(branch(&h, &s, &other, N_PROMPT + 4, NULL, 0, N_PROMPT, &f), QUIRE_NOT_FOUND);
    nothing_is_held(&h);
    harness_close(&h);
}

/* Commands at every moment, cancelling among them, in a pool that is too small: what was
 * not touched last comes out as its prefix says. */
TEST(storms_of_commands_leave_nothing_behind) {
    print_message("seed %llu\n", (unsigned long long)random_state);
    for (int round = 0; round < 6; round++) {
        enum { N = 6 };
        harness h = {0};
        harness_options o = harness_defaults;
        o.max_seqs = 3;
        o.n_pages = 24;
        o.page_tokens = round % 2 ? 16 : 4;
        o.max_rows = 24;
        o.prefix_cache = round % 3 ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        o.swap_bytes = round % 3 == 2 ? 1 << 20 : 0;
        harness_open(&o, &h);
        static watched plain, s[N];
        fields f = fields_of(1 + round % 4);
        f.sampling.max_tokens = 40;
        start(&h, &plain, N_PROMPT, &f);
        read_end(&h, &plain);
        for (int i = 0; i < N; i++) {
            start(&h, &s[i], N_PROMPT, &f);
        }
        for (int i = 0; i < 120; i++) {
            watched *from = &s[rng_next(&random_state) % N], *to = &s[rng_next(&random_state) % N];
            engine_event ev;
            for (uint64_t k = rng_next(&random_state) % 12; k > 0 && engine_out_pop(h.out, &ev); k--) {
                take(&ev);
            }
            int32_t at = N_PROMPT + (int32_t)(rng_next(&random_state) % (uint64_t)(from->n - N_PROMPT + 1));
            if (from == to || to->gone) {
                quire_err e = branch(&h, from, to, at, NULL, 0, N_PROMPT, &f);
                assert_true(e == QUIRE_OK || e == QUIRE_NOT_FOUND ||
                            (e == QUIRE_BAD_REQUEST && at == N_PROMPT + 40));
                to->gone = e == QUIRE_OK ? false : to->gone || from == to;
                if (e != QUIRE_OK && from != to) {
                    to->gone = true;
                }
            } else if (rng_next(&random_state) % 8 == 0) {
                engine_cancel(h.e, to->id);
            }
        }
        for (int i = 0; i < N; i++) {
            read_end(&h, &s[i]);
            assert_memory_equal(s[i].tokens, plain.tokens, (size_t)s[i].n * sizeof(int32_t));
        }
        nothing_is_held(&h);
        harness_close(&h);
    }
}

int main(void) {
    uint64_t seed = 4;
    random_prompt(&seed, 2048, MAX, prompt);
    return tests_run(adapters_write, adapters_remove);
}

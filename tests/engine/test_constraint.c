/* Sequences whose tokens obey a constraint (sample/constraint.h): whatever happens to
 * them, each output obeys it and is what it is otherwise. Drafts, preemption and samples
 * are in draft_case.h, beams that are preempted in test_beam.c. */

#define MODEL FLUENT
#include "engine/beam_world.h"
#include "sample/constraints.h"
#include "test.h"

enum { N_PROMPT = 23, N_LISTS = 12, N_CHOSEN = 6, LONGEST = 24, MAX = 400 };

/* A choice between random texts. Their first tokens are one of two each, so there is a
 * choice of two at several places in a row. */
typedef struct texts {
    choice_constraint *choice;
    int32_t lists[N_LISTS][LONGEST], n[N_LISTS];
} texts;

static void texts_open(texts *t, int32_t n_vocab, uint64_t seed, bool guesses) {
    t->choice = choice_new(n_vocab, guesses);
    for (int32_t i = 0; i < N_LISTS; i++) {
        t->n[i] = N_CHOSEN + 2 + (int32_t)(rng_next(&seed) % (LONGEST - N_CHOSEN - 2));
        random_prompt(&seed, n_vocab, t->n[i], t->lists[i]);
        for (int32_t k = 0; k < N_CHOSEN; k++) {
            t->lists[i][k] = 100 + t->lists[i][k] % 2;
        }
        choice_add(t->choice, t->lists[i], t->n[i]);
    }
}

/* Which of the texts it is; -1: none. */
static int32_t texts_find(const texts *t, const int32_t *tokens, int32_t n) {
    int32_t i = N_LISTS - 1;
    while (i >= 0 && (t->n[i] != n || memcmp(t->lists[i], tokens, (size_t)n * sizeof *tokens) != 0)) {
        i--;
    }
    return i;
}

static bool is_eos(const harness *h, int32_t token) {
    const model_desc *d = model_description(h->m);
    bool is = false;
    for (int32_t i = 0; i < d->n_eos; i++) {
        is = is || d->eos[i] == token;
    }
    return is;
}

/* With tokens forced, guessed or sampled one by one, the same one of the texts comes out;
 * the more is known, the fewer steps it takes. */
TEST(an_output_is_one_of_the_texts_whatever_is_forced_or_guessed) {
    enum { N = 8 };
    static harness_run runs[3][N]; /* one by one; forced; forced and guessed */
    static texts t[N];
    int64_t steps[3] = {0};
    int32_t prompt[N_PROMPT];
    uint64_t seed = 31;
    random_prompt(&seed, 2048, N_PROMPT, prompt);
    for (int way = 0; way < 3; way++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.ablations.no_jump_forward = way == 0;
        harness_open(&o, &h);
        for (int32_t i = 0; i < N; i++) {
            harness_run *r = &runs[way][i];
            texts_open(&t[i], h.n_vocab, 100 + (uint64_t)i, way == 2);
            *r = (harness_run){.prompt = prompt,
                               .n_prompt = N_PROMPT,
                               .sampling = greedy(64),
                               .constraint = &t[i].choice->head};
            r->sampling.ignore_eos = i % 2 == 0;
            r->sampling.temperature = i < 4 ? 0.0f : 1.0f;
            r->sampling.seed = (uint64_t)i;
            r->sampling.min_tokens = i == 3 ? 50 : 0; /* no text is as long */
            harness_submit(&h, r);
            harness_wait(&h, 1);
            constraint_drop(&t[i].choice->head);
            bool ends = r->n_tokens > 0 && is_eos(&h, r->tokens[r->n_tokens - 1]);
            assert_int_equal(r->finish, FINISH_STOP);
            assert_true(texts_find(&t[i], r->tokens, r->n_tokens - ends) >= 0);
            assert_false(ends && r->sampling.ignore_eos);
            assert_int_equal(r->n_tokens, runs[0][i].n_tokens);
            assert_memory_equal(r->tokens, runs[0][i].tokens, (size_t)r->n_tokens * sizeof(int32_t));
        }
        quire_stats s = harness_idle_stats(&h);
        steps[way] = s.steps;
        assert_true(way == 0 ? s.jump_forward_tokens == 0 : s.jump_forward_tokens > 0);
        assert_true(way == 2 ? s.draft_accepted > 0 : s.drafts == 0);
        harness_close(&h);
    }
    print_message("%d, %d, %d steps\n", (int)steps[0], (int)steps[1], (int)steps[2]);
    assert_true(steps[1] < steps[0] && steps[2] < steps[1]);
}

/* A text's last token may be an end token, sampled, forced or guessed: the output stops
 * with it. */
TEST(a_text_may_end_in_an_end_token) {
    enum { STOP = 900 };
    static const int32_t text[] = {100, 101, 102, STOP};
    int32_t prompt[N_PROMPT];
    uint64_t seed = 31;
    random_prompt(&seed, 2048, N_PROMPT, prompt);
    for (int way = 0; way < 3; way++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.ablations.no_jump_forward = way == 0;
        harness_open(&o, &h);
        choice_constraint *c = choice_new(h.n_vocab, way == 2);
        choice_add(c, text, 4);
        harness_run r = {
            .prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(20), .constraint = &c->head};
        r.sampling.n_stop_tokens = 1;
        r.sampling.stop_tokens[0] = STOP;
        harness_submit(&h, &r);
        harness_wait(&h, 1);
        assert_int_equal(r.finish, FINISH_STOP);
        assert_int_equal(r.n_tokens, 4);
        assert_memory_equal(r.tokens, text, sizeof text);
        constraint_drop(&c->head);
        harness_close(&h);
    }
}

/* What is reported of the tokens is of the logits as the model computed them. */
TEST(log_probabilities_are_those_without_the_mask) {
    harness h = {0};
    harness_options o = harness_defaults;
    static texts t;
    static int32_t tokens[N_PROMPT + LONGEST + 1];
    quire_error err;
    request_id id;
    engine_event ev;
    uint64_t seed = 8;
    harness_open(&o, &h);
    texts_open(&t, h.n_vocab, 3, true);
    int32_t *prompt = mem_new(N_PROMPT, sizeof *prompt), n = N_PROMPT;
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    memcpy(tokens, prompt, N_PROMPT * sizeof *tokens);
    engine_request r = {.tokens = prompt,
                        .n_tokens = N_PROMPT,
                        .sampling = greedy(LONGEST),
                        .logprobs_width = 3,
                        .constraint = &t.choice->head,
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h.out};
    static token_logprob reported[LONGEST + 1][3];
    assert_int_equal(engine_submit(h.e, &r, &id, &err), QUIRE_OK);
    constraint_drop(&t.choice->head); /* the engine holds it */
    do {
        while (!engine_out_pop(h.out, &ev)) {
            wake_wait(&h.reader, -1);
        }
        if (ev.finish == FINISH_NONE) {
            memcpy(reported[n - N_PROMPT], ev.logprobs, sizeof reported[0]);
            tokens[n++] = ev.token;
        }
    } while (ev.finish == FINISH_NONE);
    assert_true(texts_find(&t, tokens + N_PROMPT, n - N_PROMPT) >= 0);
    float *rows = mem_new((size_t)(n * h.n_vocab), sizeof *rows);
    harness_run plain = {
        .prompt = tokens, .n_prompt = n, .sampling = greedy(1), .logits = rows, .namespace = "other"};
    harness_submit(&h, &plain);
    harness_wait(&h, 1);
    bool some_unlikely = false;
    for (int32_t i = N_PROMPT; i < n; i++) {
        token_logprob own[3];
        logprobs_report(rows + (size_t)(i - 1) * (size_t)h.n_vocab, h.n_vocab, tokens[i], &plain.sampling, 3,
                        own);
        assert_memory_equal(own, reported[i - N_PROMPT], sizeof own);
        some_unlikely = some_unlikely || own[0].rank > 3;
    }
    assert_true(some_unlikely);
    mem_free(rows);
    harness_close(&h);
}

TEST(an_output_that_cannot_go_on_ends_its_request_alone) {
    harness h = {0};
    harness_options o = harness_defaults;
    static texts dead, failing;
    static harness_run runs[3];
    int32_t prompt[N_PROMPT];
    uint64_t seed = 4;
    harness_open(&o, &h);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    texts_open(&dead, h.n_vocab, 1, false);
    texts_open(&failing, h.n_vocab, 1, false);
    for (int32_t i = 0; i < dead.choice->n_nodes; i++) {
        dead.choice->nodes[i].is_end = false;
    }
    failing.choice->mask_error = QUIRE_TOO_LARGE;
    for (int i = 0; i < 3; i++) {
        runs[i] = (harness_run){.prompt = prompt, .n_prompt = N_PROMPT, .sampling = greedy(40)};
        runs[i].constraint = i == 0 ? &dead.choice->head : i == 1 ? &failing.choice->head : NULL;
        harness_submit(&h, &runs[i]);
    }
    harness_wait(&h, 3);
    assert_true(runs[0].finish == FINISH_ERROR && runs[0].error == QUIRE_BAD_REQUEST);
    assert_true(texts_find(&dead, runs[0].tokens, runs[0].n_tokens) >= 0); /* up to there */
    assert_true(runs[1].finish == FINISH_ERROR && runs[1].error == QUIRE_TOO_LARGE && runs[1].n_tokens == 0);
    assert_true(runs[2].finish == FINISH_LENGTH && runs[2].n_tokens == 40);
    constraint_drop(&dead.choice->head);
    constraint_drop(&failing.choice->head);
    harness_idle_stats(&h);
    harness_close(&h);
}

TEST(what_cannot_be_constrained_is_refused) {
    harness h = {0};
    harness_options o = harness_defaults;
    static search s;
    harness_open(&o, &h);
    constraint *c = brackets_new(h.n_vocab), *other = brackets_new(h.n_vocab + 1),
               *large = brackets_new(h.n_vocab);
    search_init(&s, &h, 2, N_PROMPT, 4, 10);
    s.constraint = c;
    assert_int_equal(search_submit(&h, &s), QUIRE_BAD_REQUEST);
    assert_string_equal(s.refusal.param, "ignore_eos");
    harness_run r = {.prompt = s.prompt, .n_prompt = N_PROMPT, .sampling = greedy(8), .constraint = other};
    harness_submit(&h, &r);
    assert_int_equal(r.error, QUIRE_INVALID);
    large->state_bytes = CONSTRAINT_MAX_STATE_BYTES + 1;
    r.constraint = large;
    harness_submit(&h, &r);
    assert_int_equal(r.error, QUIRE_INVALID);
    constraint_drop(c);
    constraint_drop(other);
    constraint_drop(large);
    harness_close(&h);
}

/* ---- beams ---- */

TEST(beams_obey_and_are_the_same_however_computed) {
    static const struct {
        int32_t page_tokens, max_seqs, n_threads;
        prefix_cache cache;
    } ways[] = {{16, 16, 1, PREFIX_CACHE_TOKEN}, {1, 16, 2, PREFIX_CACHE_NONE}, {4, 6, 1, PREFIX_CACHE_PAGE}};
    static search base[3], s[3];
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        harness h = {0};
        harness_options o = harness_defaults;
        o.page_tokens = ways[way].page_tokens;
        o.max_seqs = ways[way].max_seqs;
        o.n_threads = ways[way].n_threads;
        o.prefix_cache = ways[way].cache;
        harness_open(&o, &h);
        constraint *c = brackets_new(h.n_vocab);
        harness_hold(&h);
        for (int i = 0; i < 3; i++) {
            search_init(&s[i], &h, 50 + (uint64_t)i, 30, 4, 28);
            s[i].beams.n_groups = i == 1 ? 2 : 1;
            s[i].beams.diversity_penalty = i == 1 ? 0.5f : 0.0f;
            s[i].sampling.ignore_eos = false;
            s[i].sampling.min_tokens = i == 2 ? 12 : 0;
            s[i].constraint = c;
            s[i].width = 2;
            assert_int_equal(search_submit(&h, &s[i]), QUIRE_OK);
        }
        engine_release(h.e);
        search_wait(&h, &s[0], 12);
        for (int i = 0; i < 3; i++) {
            for (int32_t k = 0; k < s[i].n; k++) {
                const found *f = &s[i].results[k];
                bool is_final, ends = f->n_tokens > 0 && is_eos(&h, f->tokens[f->n_tokens - 1]);
                assert_true(f->finish == FINISH_STOP || f->finish == FINISH_LENGTH);
                assert_int_equal(constraint_obeyed(c, f->tokens, f->n_tokens, &is_final), f->n_tokens - ends);
                assert_true(is_final || !ends);
            }
            if (way == 0) {
                base[i] = s[i];
            }
            assert_same_results(&base[i], &s[i]);
        }
        harness_idle_stats(&h);
        constraint_drop(c);
        harness_close(&h);
    }
}

/* All texts that there are come out, the likeliest first: a search over a choice is over
 * when each of its beams is. */
TEST(beams_find_all_texts) {
    harness h = {0};
    harness_options o = harness_defaults;
    static search s;
    static texts t;
    bool seen[N_LISTS] = {false};
    harness_open(&o, &h);
    texts_open(&t, h.n_vocab, 12, true);
    search_init(&s, &h, 5, N_PROMPT, N_LISTS, 64);
    s.sampling.ignore_eos = false;
    s.constraint = &t.choice->head;
    if (model_description(h.m)->n_eos == 0) {
        s.sampling.n_stop_tokens = 1;
        s.sampling.stop_tokens[0] = 1;
    }
    search_run(&h, &s);
    for (int32_t k = 0; k < s.n; k++) {
        int32_t i = texts_find(&t, s.results[k].tokens, s.results[k].n_tokens - 1);
        assert_true(i >= 0 && !seen[i]);
        seen[i] = true;
        assert_true(k == 0 || s.results[k].score <= s.results[k - 1].score);
    }
    constraint_drop(&t.choice->head);
    harness_close(&h);
}

/* ---- branches ---- */

/* One stream as its reader sees it, as in test_branch.c. */
typedef struct watched {
    int32_t tokens[MAX], n;
    request_id id;
    finish_reason finish;
    bool gone;
} watched;

static engine_request request_of(const harness *h, watched *w, constraint *c, int kind) {
    engine_request r = {.tokens = mem_new((size_t)w->n, sizeof(int32_t)),
                        .n_tokens = w->n,
                        .sampling = greedy(120),
                        .constraint = c,
                        .namespace = "test",
                        .n_namespace = 4,
                        .out = h->out,
                        .user = w};
    memcpy(r.tokens, w->tokens, (size_t)w->n * sizeof *r.tokens);
    r.sampling.temperature = kind > 0 ? 1.2f : 0.0f;
    r.sampling.repetition_penalty = kind > 1 ? 1.2f : 1.0f;
    return r;
}

static void start(harness *h, watched *w, const int32_t *prompt, constraint *c, int kind) {
    quire_error err;
    *w = (watched){.n = N_PROMPT};
    memcpy(w->tokens, prompt, N_PROMPT * sizeof *prompt);
    engine_request r = request_of(h, w, c, kind);
    assert_int_equal(engine_submit(h->e, &r, &w->id, &err), QUIRE_OK);
}

static void take(const engine_event *ev) {
    watched *w = ev->user;
    if (ev->id.index != w->id.index || ev->id.generation != w->id.generation) {
        return; /* of a sequence that was replaced */
    }
    if (ev->finish == FINISH_NONE) {
        assert_int_equal(ev->position, w->n);
        w->tokens[w->n++] = ev->token;
    } else {
        w->finish = ev->finish;
        w->gone = true;
    }
}

/* Steps until w has n tokens or its end. The engine's thread was taken over. */
static void read_to(harness *h, watched *w, int32_t n) {
    engine_event ev;
    for (int i = 0; w->n < n && !w->gone; i++) {
        assert_true(i < 100000);
        harness_step(h);
        while (engine_out_pop(h->out, &ev)) {
            take(&ev);
        }
    }
}

/* to goes on from the first `position` tokens of from, and n_more others. */
static quire_err branch(harness *h, watched *from, watched *to, int32_t position, const int32_t *more,
                        int32_t n_more, constraint *c, int kind, quire_error *err) {
    watched w = *from;
    engine_fork *fork_from;
    request_id id;
    assert_int_equal(engine_fork_acquire(h->e, from->id, &fork_from), QUIRE_OK);
    w.n = position + n_more;
    mem_copy(w.tokens + position, more, (size_t)n_more * sizeof *more);
    engine_request r = request_of(h, &w, c, kind);
    r.user = to;
    r.fork_from = fork_from;
    r.fork_position = position;
    r.n_prompt = N_PROMPT;
    r.fork_replaces = from == to;
    quire_err e = engine_submit(h->e, &r, &id, err);
    if (e == QUIRE_OK) {
        *to = w;
        to->n = from == to ? position : w.n; /* the given tokens of one that replaces are events */
        to->gone = false;
        to->id = id;
    } else {
        mem_free(r.tokens);
    }
    engine_fork_release(fork_from);
    return e;
}

/* The tokens of a stream obey its constraint. */
static void assert_obeys(const harness *h, const constraint *c, const watched *w) {
    bool is_final, ends = w->n > N_PROMPT && is_eos(h, w->tokens[w->n - 1]) && w->finish == FINISH_STOP;
    int32_t n = w->n - N_PROMPT;
    assert_int_equal(constraint_obeyed(c, w->tokens + N_PROMPT, n, &is_final), n - ends);
}

TEST(a_forbidden_tail_is_refused_and_the_stream_goes_on) {
    harness h = {0};
    harness_options o = harness_defaults;
    static watched plain, s, fork;
    static const int32_t good[] = {8, 12, 10, 15, 14, 14, 14}, wrong_end[] = {8, 11},
                         wrong_echo[] = {15, 14, 14, 12};
    int32_t prompt[N_PROMPT];
    uint64_t seed = 6;
    quire_error err = {0};
    harness_open(&o, &h);
    harness_take_over(&h);
    constraint *c = brackets_new(h.n_vocab);
    random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
    start(&h, &plain, prompt, c, 1);
    read_to(&h, &plain, MAX);
    assert_obeys(&h, c, &plain);
    start(&h, &s, prompt, c, 1);
    read_to(&h, &s, N_PROMPT + 10);
    assert_int_equal(branch(&h, &s, &s, N_PROMPT, wrong_end, 2, c, 1, &err), QUIRE_BAD_REQUEST);
    print_message("%s\n", err.message);
    assert_true(strstr(err.message, "position 24") != NULL);
    assert_int_equal(branch(&h, &s, &fork, N_PROMPT, wrong_echo, 4, c, 1, &err), QUIRE_BAD_REQUEST);
    assert_int_equal(branch(&h, &s, &fork, N_PROMPT, good, 7, c, 1, &err), QUIRE_OK);
    read_to(&h, &fork, MAX);
    assert_int_equal(fork.n, N_PROMPT + 120);
    assert_obeys(&h, c, &fork);
    read_to(&h, &s, MAX);
    assert_int_equal(s.n, plain.n);
    assert_memory_equal(s.tokens, plain.tokens, sizeof s.tokens);
    constraint_drop(c);
    harness_close(&h);
}

/* Forks and rollbacks at random positions, of streams that are preempted meanwhile: each
 * comes out as the one that was never touched. */
TEST(branches_have_the_state_of_their_position) {
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int kind = 0; kind < 3; kind++) {
        for (int drafts = 0; drafts < 2; drafts++) {
            harness h = {0};
            harness_options o = harness_defaults;
            static watched plain, s[4];
            int32_t prompt[N_PROMPT];
            quire_error err = {0};
            o.page_tokens = 4;
            o.n_pages = 90; /* two and a half of them */
            o.swap_bytes = kind == 1 ? 1 << 24 : 0;
            if (drafts) {
                o.draft = (draft_options){.method = DRAFT_METHOD_NGRAM,
                                          .n_tokens = 5,
                                          .lookup_min = 1,
                                          .lookup_max = 4,
                                          .tree_width = 2};
            }
            harness_open(&o, &h);
            harness_take_over(&h);
            constraint *c = brackets_new(h.n_vocab);
            random_prompt(&seed, h.n_vocab, N_PROMPT, prompt);
            start(&h, &plain, prompt, c, kind);
            read_to(&h, &plain, MAX);
            assert_int_equal(plain.n, N_PROMPT + 120);
            assert_obeys(&h, c, &plain);
            start(&h, &s[0], prompt, c, kind);
            read_to(&h, &s[0], N_PROMPT + 20);
            for (int i = 1; i < 4; i++) {
                int32_t at = N_PROMPT + (int32_t)(rng_next(&seed) % (uint64_t)(s[0].n - N_PROMPT));
                assert_int_equal(branch(&h, &s[0], &s[i], at, NULL, 0, c, kind, &err), QUIRE_OK);
            }
            for (int k = 0; k < 12; k++) {
                watched *w = &s[rng_next(&seed) % 4];
                read_to(&h, w, w->n + 1 + (int32_t)(rng_next(&seed) % 12));
                if (!w->gone && w->n > N_PROMPT) {
                    int32_t at = N_PROMPT + (int32_t)(rng_next(&seed) % (uint64_t)(w->n - N_PROMPT));
                    assert_int_equal(branch(&h, w, w, at, NULL, 0, c, kind, &err), QUIRE_OK);
                }
            }
            for (int i = 0; i < 4; i++) {
                read_to(&h, &s[i], MAX);
                assert_int_equal(s[i].n, plain.n);
                assert_memory_equal(s[i].tokens, plain.tokens, (size_t)plain.n * sizeof(int32_t));
            }
            while (harness_step(&h)) {
            }
            harness_steps(&h, 10);
            constraint_drop(c);
            harness_close(&h);
        }
    }
}

TEST_MAIN(NULL, NULL)

#include <math.h>

#include "engine/adapter_world.h"
#include "engine/beam_world.h"
#include "engine/state.h"
#include "kv/audit.h"
#include "sample/constraints.h"
#include "test.h"

/* ---- a second implementation, as plain as can be, over the engine's own logits ---- */

typedef struct path {
    int32_t tokens[MAX_FOUND], n;
    double score, sum;
} path;

typedef struct paths {
    path list[64];
    int32_t n;
    bool open;
} paths;

static int by_score(const void *a, const void *b) {
    const path *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* Log-probabilities of what follows the prompt and p. */
static void log_softmax(harness *h, const search *s, const path *p, double *out) {
    static int32_t tokens[MAX_PROMPT + MAX_FOUND];
    int32_t n = s->n_prompt + p->n;
    float *logits = mem_new((size_t)n * (size_t)h->n_vocab, sizeof *logits);
    memcpy(tokens, s->prompt, (size_t)s->n_prompt * sizeof *tokens);
    memcpy(tokens + s->n_prompt, p->tokens, (size_t)p->n * sizeof *tokens);
    harness_run run = {.prompt = tokens,
                       .n_prompt = n,
                       .sampling = greedy(1),
                       .logits = logits,
                       .logits_first = n - 1,
                       .adapter = s->adapter,
                       .namespace = s->adapter != NULL ? "tuned reference" : "reference"};
    harness_submit(h, &run);
    harness_wait(h, 1);
    const float *row = logits + (size_t)(n - 1) * (size_t)h->n_vocab;
    double normalizer = logprobs_normalizer(row, h->n_vocab);
    for (int32_t i = 0; i < h->n_vocab; i++) {
        out[i] = (double)row[i] - normalizer;
    }
    mem_free(logits);
}

static bool ends(const search *s, const path *p) {
    bool is_end = p->n == s->sampling.max_tokens;
    for (int32_t i = 0; i < s->sampling.n_stop_tokens; i++) {
        is_end = is_end || s->sampling.stop_tokens[i] == p->tokens[p->n - 1];
    }
    if (s->ending.is_over != NULL && p->n > s->sampling.min_tokens) {
        int32_t tokens[MAX_PROMPT + MAX_FOUND];
        memcpy(tokens, s->prompt, (size_t)s->n_prompt * sizeof *tokens);
        memcpy(tokens + s->n_prompt, p->tokens, (size_t)p->n * sizeof *tokens);
        is_end = is_end || s->ending.is_over(s->ending.context, tokens, s->n_prompt, s->n_prompt + p->n);
    }
    return is_end;
}

/* One step of one set: live and kept change; chosen counts the tokens of those that go
 * on. */
static void reference_step(harness *h, const search *s, int32_t n, paths *live, paths *kept,
                           int32_t *chosen) {
    static path all[64 * 64];
    int32_t n_all = 0;
    double *row = mem_new((size_t)h->n_vocab, sizeof *row);
    for (int32_t i = 0; i < live->n; i++) {
        log_softmax(h, s, &live->list[i], row);
        for (int32_t best = 0; best < 40; best++) { /* more than any set looks at */
            int32_t token = 0;
            for (int32_t t = 1; t < h->n_vocab; t++) {
                double a = row[t] - (double)s->beams.diversity_penalty * chosen[t],
                       b = row[token] - (double)s->beams.diversity_penalty * chosen[token];
                token = a > b ? t : token;
            }
            path *p = &all[n_all++];
            *p = live->list[i];
            p->tokens[p->n++] = token;
            p->score += row[token] - (double)s->beams.diversity_penalty * chosen[token];
            p->sum += row[token];
            row[token] = -INFINITY;
        }
    }
    mem_free(row);
    qsort(all, (size_t)n_all, sizeof *all, by_score);
    int32_t length = all[0].n;
    bool early = s->beams.stopping == BEAM_STOPPING_EARLY, full = kept->n == n && early;
    live->n = 0;
    for (int32_t i = 0; i < n_all; i++) {
        if (!ends(s, &all[i])) {
            if (live->n < n) {
                live->list[live->n++] = all[i];
            }
        } else if (i < n && !full) {
            kept->list[kept->n] = all[i];
            kept->list[kept->n++].score = all[i].score / pow(length, (double)s->beams.length_penalty);
        }
    }
    qsort(kept->list, (size_t)kept->n, sizeof *kept->list, by_score);
    kept->n = kept->n < n ? kept->n : n;
    for (int32_t i = 0; i < live->n; i++) {
        chosen[live->list[i].tokens[length - 1]]++;
    }
    double penalty = (double)s->beams.length_penalty;
    double reach = pow(
        s->beams.stopping == BEAM_STOPPING_NEVER && penalty > 0 ? s->sampling.max_tokens : length, penalty);
    bool hopeless = live->n > 0 && kept->n == n && !(live->list[0].score / reach > kept->list[n - 1].score);
    live->open = live->n > 0 && !(kept->n == n && early) && !hopeless;
}

static void reference(harness *h, const search *s, paths *results) {
    static paths live[8], kept[8];
    int32_t n_sets = s->beams.n_groups, n = s->beams.width / n_sets, n_open = n_sets;
    int32_t *chosen = mem_new((size_t)h->n_vocab, sizeof *chosen);
    for (int32_t g = 0; g < n_sets; g++) {
        live[g] = (paths){.n = 1, .open = true};
        kept[g] = (paths){0};
    }
    while (n_open > 0) {
        memset(chosen, 0, (size_t)h->n_vocab * sizeof *chosen);
        n_open = 0;
        for (int32_t g = 0; g < n_sets; g++) {
            if (live[g].open) {
                reference_step(h, s, n, &live[g], &kept[g], chosen);
                n_open += live[g].open;
            }
        }
    }
    results->n = 0;
    for (int32_t g = 0; g < n_sets; g++) {
        memcpy(&results->list[results->n], kept[g].list, (size_t)kept[g].n * sizeof(path));
        results->n += kept[g].n;
    }
    qsort(results->list, (size_t)results->n, sizeof(path), by_score);
    mem_free(chosen);
}

static void compare(const search *s, const paths *results) {
    assert_true(results->n >= s->n);
    for (int32_t i = 0; i < s->n; i++) {
        const found *f = &s->results[i];
        const path *p = &results->list[i];
        assert_int_equal(f->n_tokens, p->n);
        assert_memory_equal(f->tokens, p->tokens, (size_t)p->n * sizeof *p->tokens);
        assert_true(fabs(f->score - p->score) < 1e-12 && fabs(f->sum - p->sum) < 1e-12);
        bool stopped =
            s->sampling.n_stop_tokens > 0 && f->tokens[f->n_tokens - 1] == s->sampling.stop_tokens[0];
        assert_int_equal(f->finish, stopped ? FINISH_STOP : FINISH_LENGTH);
    }
}

TEST(searches_find_what_a_plain_implementation_finds) {
    print_message("seed 31\n");
    uint64_t random = 31;
    harness h;
    harness_open(&harness_defaults, &h);
    static search s;
    static paths results;
    int32_t n_stopped = 0;
    for (int round = 0; round < 18; round++) {
        static const int32_t shapes[][2] = {{4, 1}, {3, 1}, {6, 3}, {4, 4}, {1, 1}, {6, 2}};
        int32_t shape = round % 6;
        search_init(&s, &h, rng_next(&random), 1 + (int32_t)(rng_next(&random) % 40), shapes[shape][0],
                    4 + round % 7);
        s.beams.n_groups = shapes[shape][1];
        s.beams.diversity_penalty = s.beams.n_groups > 1 ? 0.25f * (float)(1 + round % 4) : 0.0f;
        s.beams.length_penalty = (float[]){1.0f, 0.0f, -1.0f, 2.0f}[round % 4];
        s.beams.stopping = (beam_stopping)(round / 2 % 3);
        s.n = s.beams.n_groups == 1 ? 1 + (int32_t)(rng_next(&random) % (uint64_t)s.beams.width) : 1;
        if (round % 3 > 0) { /* an end token that is met on the way */
            reference(&h, &s, &results);
            s.sampling.n_stop_tokens = 1;
            s.sampling.stop_tokens[0] = results.list[0].tokens[1];
        }
        reference(&h, &s, &results);
        s.n = s.n < results.n ? s.n : results.n;
        search_run(&h, &s);
        compare(&s, &results);
        n_stopped += s.results[0].finish == FINISH_STOP;
    }
    assert_true(n_stopped > 0);
    harness_close(&h);
}

/* Beside a search of the base, in pages that are enough for both and in such that are
 * not. */
TEST(searches_under_an_adapter_find_what_a_plain_implementation_finds) {
    static search s, other, base;
    static paths results;
    static world_adapters l;
    harness_options o = harness_defaults;
    harness h;
    o.max_adapters = 2;
    for (int round = 0; round < 4; round++) {
        harness_open(&o, &h);
        adapters_load(&h, &l);
        search_init(&s, &h, 900, 30, 3 + round % 2, 10);
        search_init(&base, &h, 900, 30, 3, 10);
        search_init(&other, &h, 901, 41, 3, 12);
        s.adapter = &l.refs[0];
        other.adapter = &l.refs[1];
        reference(&h, &s, &results);
        harness_hold(&h);
        assert_int_equal(search_submit(&h, &other), QUIRE_OK);
        assert_int_equal(search_submit(&h, &base), QUIRE_OK);
        assert_int_equal(search_submit(&h, &s), QUIRE_OK);
        engine_release(h.e);
        search_wait(&h, &s, s.n + other.n + base.n);
        compare(&s, &results);
        assert_true(s.results[0].sum != base.results[0].sum); /* the adapter does something */
        engine_stop(h.e);
        quire_stats stats;
        engine_stats_read(h.e, &stats);
        assert_int_equal(stats.preemptions > 0, round > 0);
        adapters_drop(&h, &l);
        harness_close(&h);
        o.n_pages = 12;
        o.swap_bytes = round > 0 ? 1 << 22 : 0;
        o.preempt = round > 0 ? PREEMPT_SWAP : PREEMPT_RECOMPUTE;
    }
}

/* Ends after two tokens whose sum a number divides: what comes before the last decides
 * too. */
static bool is_divisible(void *context, const int32_t *tokens, int32_t n_prompt, int32_t n) {
    const int32_t *divisor = context;
    return n - n_prompt >= 2 && (tokens[n - 1] + tokens[n - 2]) % *divisor == 0;
}

TEST(what_else_ends_a_beam_ends_it_in_the_search) {
    harness h;
    harness_open(&harness_defaults, &h);
    static search s;
    static paths results;
    int32_t n_stopped = 0;
    for (int32_t round = 0; round < 6; round++) {
        int32_t divisor = 5 + round;
        search_init(&s, &h, 500 + (uint64_t)round, 20, 4, 12);
        s.ending = (engine_ending){is_divisible, &divisor};
        s.sampling.min_tokens = round % 2 * 6;
        s.beams.stopping = (beam_stopping)(round % 3);
        reference(&h, &s, &results);
        search_run(&h, &s);
        for (int32_t i = 0; i < s.n; i++) {
            const found *f = &s.results[i];
            assert_int_equal(f->n_tokens, results.list[i].n);
            assert_memory_equal(f->tokens, results.list[i].tokens, (size_t)f->n_tokens * sizeof *f->tokens);
            assert_int_equal(f->finish, f->n_tokens < 12 ? FINISH_STOP : FINISH_LENGTH);
            assert_true(f->n_tokens > s.sampling.min_tokens);
            n_stopped += f->n_tokens < 12;
        }
    }
    assert_true(n_stopped > 6);
    harness_close(&h);
}

/* ---- pages ---- */

/* Proves that exactly the pages of running sequences are held; how many these are. */
static int32_t held_pages(engine *e) {
    const kv_table *tables[64];
    int32_t n = 0, n_held = 0;
    quire_error err = {0};
    bool *is_held = mem_new((size_t)e->options.n_pages, sizeof *is_held);
    for (int32_t i = 0; i < e->sched.n_running; i++) {
        for (int32_t g = 0; g < running_at(e, i)->task.kv.n_tables; g++) {
            const kv_table *t = tables[n++] = &running_at(e, i)->task.kv.tables[g];
            for (int32_t k = 0; k < t->n_pages; k++) {
                n_held += !is_held[t->pages[k].v];
                is_held[t->pages[k].v] = true;
            }
        }
    }
    mem_free(is_held);
    if (kv_check(e->kv.pool, tables, n, NULL, 0, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(kv_pool_counts(e->kv.pool).n_held, n_held);
    return n_held;
}

/* 64 tokens and 4 beams of 10 more: 8 pages against 20 unshared, 4 of them the prompt's
 * (docs/lab/worked-examples.md, 2). A pool of so many suffices, one of a page less is
 * refused. */
static void four_beams_of_ten_tokens_hold_so_many_pages(bool shared, search *out) {
    harness_options o = harness_defaults;
    int32_t most = shared ? 8 : 20;
    o.n_pages = most;
    o.ablations.no_fork_sharing = !shared;
    o.max_model_len = 128;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness h;
    harness_open(&o, &h);
    harness_take_over(&h);
    static search s;
    search_init(&s, &h, 12, 64, 4, 11); /* the eleventh is never computed */
    assert_int_equal(search_submit(&h, &s), QUIRE_OK);
    int32_t n_steps = 0;
    for (; step_submit(h.e); n_steps++) { /* pages are looked at with all rows of a step in their places */
        assert_int_equal(held_pages(h.e), n_steps == 0 ? 4 : most);
        assert_int_equal(h.e->sched.n_running, n_steps == 0 ? 1 : 4);
        step_collect(h.e);
        assert_true(held_pages(h.e) <= most);
        out_wake_readers(h.e);
        stats_publish(h.e);
    }
    assert_int_equal(n_steps, 11); /* none lost for want of pages */
    quire_stats stats;
    engine_stats_read(h.e, &stats);
    assert_int_equal(stats.preemptions, 0);
    assert_int_equal(stats.step_rows, 64 + 10 * 4);
    search_wait(&h, &s, s.n);
    assert_int_equal(kv_pool_counts(h.e->kv.pool).n_free, most);
    *out = s;
    harness_close(&h);
    o.n_pages = most - 1;
    o.max_model_len = 112;
    harness_open(&o, &h);
    assert_int_equal(search_submit(&h, &s), QUIRE_TOO_LARGE);
    assert_string_equal(s.refusal.param, "beam_width");
    harness_close(&h);
}

TEST(four_beams_of_ten_tokens_hold_eight_pages_and_twenty_unshared) {
    static search shared, own;
    four_beams_of_ten_tokens_hold_so_many_pages(true, &shared);
    four_beams_of_ten_tokens_hold_so_many_pages(false, &own);
    assert_same_results(&shared, &own);
}

/* The pages of a beam that has no continuation are free when the step that chose ends;
 * those of the others stay. */
TEST(a_dropped_beam_returns_its_pages_in_the_same_step) {
    for (int cache = 0; cache < 2; cache++) {
        harness_options o = harness_defaults;
        o.page_tokens = 1; /* every token has a page: pages held are the nodes of the tree of beams */
        o.prefix_cache = cache ? PREFIX_CACHE_TOKEN : PREFIX_CACHE_NONE;
        harness h;
        harness_open(&o, &h);
        harness_take_over(&h);
        static search s;
        search_init(&s, &h, 40, 20, 6, 24);
        assert_int_equal(search_submit(&h, &s), QUIRE_OK);
        int32_t n_dropped = 0, before = 0;
        while (harness_step(&h)) {
            int32_t held = held_pages(h.e),
                    n_known = h.e->sched.n_running > 0 ? running_at(h.e, 0)->task.n_known : 0;
            kv_counts c = kv_pool_counts(h.e->kv.pool);
            /* The prompt and each path after it once: what was held plus a page for each
             * beam's row, less the branches that were cut off. */
            assert_int_equal(c.n_free + c.n_cached + held, o.n_pages);
            assert_true(h.e->sched.n_running == 0 || c.n_cached == 0);
            int32_t grown = n_known == 21 ? 20 : before + h.e->sched.n_running;
            assert_true(h.e->sched.n_running == 0 || held <= grown);
            n_dropped += h.e->sched.n_running > 0 && held < grown;
            before = held;
        }
        assert_true(n_dropped > 3);
        search_wait(&h, &s, s.n);
        assert_int_equal(kv_pool_counts(h.e->kv.pool).n_held, 0);
        harness_close(&h);
    }
}

/* Forked beams write into one part-filled page: the planner knows that they need copies,
 * and has a later request give way rather than stall. */
TEST(copies_of_shared_pages_are_planned) {
    harness_options o = harness_defaults;
    o.n_pages = 10;
    o.prefix_cache = PREFIX_CACHE_NONE;
    harness h;
    harness_open(&o, &h);
    harness_take_over(&h);
    static search s;
    static int32_t prompt[100];
    uint64_t seed = 4;
    random_prompt(&seed, h.n_vocab, 100, prompt);
    harness_run later = {.prompt = prompt, .n_prompt = 100, .sampling = greedy(20)};
    search_init(&s, &h, 12, 20, 4, 6);
    assert_int_equal(search_submit(&h, &s), QUIRE_OK);
    harness_submit(&h, &later); /* two pages and seven: one is left, and three copies will be needed */
    quire_stats stats = {0};
    int32_t n_steps = 0;
    for (; stats.requests_finished[FINISH_LENGTH - 1] < 4; n_steps++) {
        assert_true(harness_step(&h));
        assert_true(held_pages(h.e) <= 10);
        engine_stats_read(h.e, &stats);
    }
    assert_int_equal(n_steps, 6);
    assert_int_equal(stats.preemptions, 1);
    engine_cancel(h.e, later.id);
    (void)harness_step(&h);
    engine_event ev;
    for (int32_t n_ends = 0; n_ends < 5;) {
        assert_true(engine_out_pop(h.out, &ev));
        n_ends += ev.finish != FINISH_NONE;
    }
    harness_close(&h);
}

/* ---- nothing else changes what is found ---- */

typedef struct setting {
    const char *name;
    int32_t page_tokens, n_pages, chunk, max_rows, max_seqs, n_others, n_threads;
    prefix_cache cache;
    int64_t swap_bytes;
    bool preempts;
} setting;

/* What the ends of all results and runs say together. */
static int64_t preemptions_told(const search *searches, int32_t n, const harness_run *others,
                                int32_t n_others) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < searches[i].n; k++) {
            sum += searches[i].results[k].n_preempted;
        }
    }
    for (int32_t i = 0; i < n_others; i++) {
        sum += others[i].n_preempted;
    }
    return sum;
}

static void run_in(const setting *set, search *searches, int32_t n, quire_stats *stats) {
    harness_options o = harness_defaults;
    o.page_tokens = set->page_tokens;
    o.n_pages = set->n_pages;
    o.chunk = set->chunk;
    o.max_rows = set->max_rows;
    o.max_seqs = set->max_seqs;
    o.n_threads = set->n_threads;
    o.prefix_cache = set->cache;
    o.swap_bytes = set->swap_bytes;
    o.preempt = PREEMPT_SWAP;
    o.max_model_len = 512;
    harness h;
    harness_open(&o, &h);
    static harness_run others[8];
    static int32_t prompts[8][64];
    static engine_out *own;
    static wake reader;
    assert_int_equal(wake_init(&reader), QUIRE_OK);
    assert_int_equal(engine_out_open(h.e, &reader, &own), QUIRE_OK);
    harness besides = h;
    besides.out = own;
    besides.reader = reader;
    uint64_t seed = 77;
    harness_hold(&h); /* all at once */
    for (int32_t i = 0; i < set->n_others; i++) {
        random_prompt(&seed, h.n_vocab, 64, prompts[i]);
        others[i] = (harness_run){.prompt = prompts[i], .n_prompt = 64, .sampling = greedy(60)};
        harness_submit(&besides, &others[i]);
    }
    int32_t n_ends = 0;
    for (int32_t i = 0; i < n; i++) {
        if (search_submit(&h, &searches[i]) != QUIRE_OK) {
            fail_msg("%s: %s", set->name, searches[i].refusal.message);
        }
        n_ends += searches[i].n;
    }
    engine_release(h.e);
    search_wait(&h, &searches[0], n_ends);
    harness_wait(&besides, set->n_others);
    engine_stats_read(h.e, stats);
    assert_int_equal(preemptions_told(searches, n, others, set->n_others), stats->preemptions);
    harness_take_over(&h);
    if (h.e->kv.index) { /* no path of a beam was forgotten */
        kv_index_clear(h.e->kv.index);
        assert_int_equal(kv_index_count(h.e->kv.index).n_namespaces, 0);
    }
    engine_out_close(own);
    wake_deinit(&reader);
    harness_close(&h);
}

/* The last one is under c, or under a constraint that is made and returned. */
static constraint *init_searches(search *searches, int32_t n, constraint *c) {
    harness h;
    harness_open(&harness_defaults, &h);
    c = c != NULL ? c : brackets_new(h.n_vocab);
    for (int32_t i = 0; i < n; i++) {
        search_init(&searches[i], &h, 900 + (uint64_t)i / 2, 30 + 25 * i, i == 1 ? 6 : 4, 40);
        searches[i].width = 3;
        searches[i].beams.n_groups = i == 1 ? 2 : 1;
        searches[i].beams.diversity_penalty = i == 1 ? 0.5f : 0.0f;
    }
    searches[n - 1].constraint = c;
    searches[n - 1].sampling.ignore_eos = false;
    harness_close(&h);
    return c;
}

TEST(results_do_not_depend_on_how_they_were_computed) {
    static const setting settings[] = {
        {"alone", 16, 1024, 0, 128, 16, 0, 1, PREFIX_CACHE_TOKEN, 0, false},
        {"no cache", 16, 1024, 0, 128, 16, 0, 1, PREFIX_CACHE_NONE, 0, false},
        {"whole pages cached", 4, 1024, 0, 128, 24, 3, 1, PREFIX_CACHE_PAGE, 0, false},
        {"page 1", 1, 2048, 0, 128, 16, 0, 1, PREFIX_CACHE_TOKEN, 0, false},
        {"page 64", 64, 256, 0, 128, 24, 3, 1, PREFIX_CACHE_TOKEN, 0, false},
        {"chunks of 7", 16, 1024, 7, 128, 24, 4, 2, PREFIX_CACHE_TOKEN, 0, false},
        {"few rows", 16, 1024, 0, 3, 16, 0, 1, PREFIX_CACHE_TOKEN, 0, false},
        {"few places", 16, 1024, 0, 128, 6, 4, 1, PREFIX_CACHE_TOKEN, 0, false},
        {"few places, no cache", 16, 1024, 0, 128, 6, 4, 1, PREFIX_CACHE_NONE, 0, false},
        {"few pages", 16, 36, 0, 128, 24, 4, 1, PREFIX_CACHE_TOKEN, 0, true},
        {"few pages, no cache", 16, 36, 0, 128, 24, 4, 1, PREFIX_CACHE_NONE, 0, true},
        {"few pages of 4, no cache", 4, 110, 16, 128, 24, 4, 1, PREFIX_CACHE_NONE, 0, true},
        {"few pages, swapped", 16, 36, 0, 128, 24, 4, 1, PREFIX_CACHE_NONE, 64 << 20, true},
        {"few pages, swapped and cached", 16, 36, 0, 128, 24, 4, 1, PREFIX_CACHE_TOKEN, 64 << 20, true},
    };
    enum { N = 4 };
    static search base[N], again[N];
    constraint *c = init_searches(base, N, NULL);
    quire_stats stats;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        init_searches(again, N, c);
        run_in(&settings[i], i == 0 ? base : again, N, &stats);
        print_message("%s: %lld preemptions, %lld swapped in\n", settings[i].name,
                      (long long)stats.preemptions, (long long)stats.swapped_in);
        assert_int_equal(stats.preemptions > 0, settings[i].preempts);
        assert_true(settings[i].swap_bytes == 0 || stats.swapped_in > 0);
        for (int32_t k = 0; k < N && i > 0; k++) {
            assert_same_results(&base[k], &again[k]);
        }
    }
    for (int32_t k = 0; k < base[N - 1].n; k++) {
        const found *f = &base[N - 1].results[k];
        bool is_final;
        assert_true(f->n_tokens > 0 && (f->finish == FINISH_STOP || f->finish == FINISH_LENGTH));
        assert_int_equal(constraint_obeyed(c, f->tokens, f->n_tokens, &is_final),
                         f->n_tokens - (f->finish == FINISH_STOP));
        assert_true(is_final || f->finish == FINISH_LENGTH);
    }
    constraint_drop(c);
}

/* ---- fields ---- */

TEST(log_probabilities_are_the_model_s_and_add_up) {
    harness h;
    harness_open(&harness_defaults, &h);
    static search s, plain;
    search_init(&s, &h, 3, 17, 4, 12);
    plain = s;
    s.width = 4;
    search_run(&h, &s);
    search_run(&h, &plain);
    for (int32_t i = 0; i < s.n; i++) {
        const found *f = &s.results[i];
        double sum = 0.0;
        for (int32_t k = 0; k < f->n_tokens; k++) {
            const token_logprob *p = &f->logprobs[k * 4];
            assert_int_equal(p[0].id, f->tokens[k]);
            assert_true(p[1].rank == 1 && p[1].logprob >= p[2].logprob && p[2].logprob >= p[3].logprob);
            assert_true(p[0].rank > 3 || p[p[0].rank].id == p[0].id);
            sum += (double)p[0].logprob;
        }
        assert_true(fabs(sum - f->sum) < 1e-4);
        assert_true(fabs(f->sum / f->n_tokens - f->score) < 1e-12);
        assert_memory_equal(f->tokens, plain.results[i].tokens, (size_t)f->n_tokens * sizeof *f->tokens);
        assert_true(i == 0 || f->score <= s.results[i - 1].score);
    }
    harness_close(&h);
}

TEST(end_tokens_wait_for_min_tokens) {
    harness h;
    harness_open(&harness_defaults, &h);
    static search s;
    search_init(&s, &h, 3, 17, 4, 12);
    search_run(&h, &s);
    s.sampling.n_stop_tokens = 1;
    s.sampling.stop_tokens[0] = s.results[0].tokens[1];
    search_run(&h, &s);
    bool some_short = false;
    for (int32_t i = 0; i < s.n; i++) {
        some_short = some_short || s.results[i].n_tokens < 5;
        assert_false(s.results[i].stopped_by_eos && s.results[i].finish == FINISH_STOP);
    }
    assert_true(some_short);
    s.sampling.min_tokens = 5;
    search_run(&h, &s);
    for (int32_t i = 0; i < s.n; i++) {
        assert_true(s.results[i].n_tokens > 5);
    }
    harness_close(&h);
}

TEST(a_search_that_finds_fewer_gives_empty_results) {
    harness h;
    harness_open(&harness_defaults, &h);
    static search s;
    static const int32_t one[] = {7}, two[] = {7, 11};
    search_init(&s, &h, 3, 17, 4, 3);
    sampling_lists *lists = s.sampling.lists = sampling_lists_new();
    assert_non_null(lists);
    assert_int_equal(sampling_lists_set_allowed(lists, one, 1), QUIRE_OK);
    search_run(&h, &s);
    assert_int_equal(s.results[0].n_tokens, 3);
    assert_int_equal(s.results[0].finish, FINISH_LENGTH);
    for (int32_t i = 1; i < 4; i++) {
        assert_int_equal(s.results[i].n_tokens, 0);
        assert_int_equal(s.results[i].finish, FINISH_STOP);
    }
    assert_int_equal(sampling_lists_set_allowed(lists, two, 2), QUIRE_OK);
    search_run(&h, &s);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(s.results[i].n_tokens, 3);
        for (int32_t k = 0; k < 3; k++) {
            assert_true(s.results[i].tokens[k] == 7 || s.results[i].tokens[k] == 11);
        }
    }
    sampling_lists_drop(lists);
    harness_close(&h);
}

/* Those that a search does not find end without a token, and have them with their end. */
TEST(every_result_has_the_log_probabilities_of_the_prompt) {
    static const int32_t one[] = {7};
    static search s, plain;
    harness h;
    harness_open(&harness_defaults, &h);
    search_init(&plain, &h, 3, 17, 1, 1);
    plain.prompt_width = 2;
    plain.beams = (beam_params){0}; /* one sequence without a search */
    search_run(&h, &plain);
    const found *expected = &plain.results[0];
    assert_int_equal(expected->n_prompt_logprobs, 16 * 2);
    sampling_lists *lists = sampling_lists_new();
    assert_true(lists != NULL && sampling_lists_set_allowed(lists, one, 1) == QUIRE_OK);
    for (int found_all = 0; found_all < 2; found_all++) {
        search_init(&s, &h, 3, 17, 4, 3);
        s.prompt_width = 2;
        s.sampling.lists = found_all ? NULL : lists;
        for (int again = 0; again < 2; again++) { /* and with the prompt cached */
            search_run(&h, &s);
            for (int32_t i = 0; i < 4; i++) {
                assert_int_equal(s.results[i].n_tokens, found_all || i == 0 ? 3 : 0);
                assert_int_equal(s.results[i].n_prompt_logprobs, expected->n_prompt_logprobs);
                assert_memory_equal(s.results[i].prompt_logprobs, expected->prompt_logprobs,
                                    (size_t)expected->n_prompt_logprobs * sizeof *expected->prompt_logprobs);
            }
        }
    }
    harness_hold(&h); /* none of it is computed when it is cancelled */
    assert_int_equal(search_submit(&h, &s), QUIRE_OK);
    engine_cancel(h.e, s.ids[1]);
    engine_release(h.e);
    search_wait(&h, &s, 4);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(s.results[i].finish, FINISH_CANCELLED);
        assert_int_equal(s.results[i].n_prompt_logprobs, 0);
    }
    sampling_lists_drop(lists);
    harness_close(&h);
}

TEST(cancelling_one_result_ends_the_search) {
    print_message("seed 8\n");
    uint64_t random = 8;
    harness_options o = harness_defaults;
    o.chunk = 8;
    o.n_pages = 60;
    harness h;
    harness_open(&o, &h);
    for (int round = 0; round < 30; round++) {
        static search s, other;
        search_init(&s, &h, 70 + (uint64_t)round, 100 + round, 4, 40);
        search_init(&other, &h, 30 + (uint64_t)round, 33, 3, 20);
        assert_int_equal(search_submit(&h, &s), QUIRE_OK);
        assert_int_equal(search_submit(&h, &other), QUIRE_OK);
        for (uint64_t spin = rng_next(&random) % 300000; spin > 0; spin--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        engine_cancel(h.e, s.ids[rng_next(&random) % 4]);
        search_wait(&h, &s, 4 + 3);
        for (int32_t i = 0; i < 4; i++) {
            bool done = s.results[i].finish == FINISH_LENGTH && s.results[i].n_tokens == 40;
            assert_true(done || (s.results[i].finish == FINISH_CANCELLED && s.results[i].n_tokens == 0));
        }
        assert_int_equal(other.results[2].n_tokens, 20);
    }
    assert_true(harness_idle_stats(&h).requests_finished[FINISH_CANCELLED - 1] > 0);
    harness_close(&h);
}

/* Searches that together have more beams than places take turns, and none waits for
 * another for ever. */
TEST(searches_that_contend_for_places_all_end) {
    static search s[2][6];
    for (int places = 0; places < 2; places++) {
        harness_options o = harness_defaults;
        o.max_seqs = places ? 4 : 32;
        harness h;
        harness_open(&o, &h);
        for (int32_t i = 0; i < 6; i++) {
            search_init(&s[places][i], &h, 70 + (uint64_t)i, 20, 2 + i % 3, 30);
            assert_int_equal(search_submit(&h, &s[places][i]), QUIRE_OK);
        }
        search_wait(&h, s[places], 18);
        harness_close(&h);
    }
    for (int32_t i = 0; i < 6; i++) {
        assert_same_results(&s[0][i], &s[1][i]);
    }
}

/* Each reader is told of the whole search, whatever those of the other results have taken
 * and dropped meanwhile. */
TEST(results_are_explained_to_readers_who_do_not_wait_for_each_other) {
    static search s;
    harness h;
    harness_open(&harness_defaults, &h);
    for (uint64_t round = 0; round < 200; round++) {
        search_init(&s, &h, round, 5, 16, 3);
        s.explain = true;
        assert_int_equal(search_submit(&h, &s), QUIRE_OK);
        for (int32_t n = 0; n < s.n;) {
            engine_event ev;
            n += engine_out_pop(h.out, &ev) && search_take(&h, &s, &ev);
        }
        for (int32_t i = 0; i < s.n; i++) {
            assert_true(s.results[i].steps > 0);
            assert_int_equal(s.results[i].steps, s.results[0].steps);
        }
    }
    harness_close(&h);
}

TEST(what_cannot_be_searched_is_refused) {
    harness_options o = harness_defaults;
    o.max_seqs = 4;
    o.n_pages = 40;
    harness h;
    harness_open(&o, &h);
    static search s;
    search_init(&s, &h, 3, 17, 5, 3);
    assert_int_equal(search_submit(&h, &s), QUIRE_BAD_REQUEST);
    assert_string_equal(s.refusal.param, "beam_width");
    search_init(&s, &h, 3, 17, 4, 3);
    s.n = 5;
    assert_int_equal(search_submit(&h, &s), QUIRE_INVALID);
    search_init(&s, &h, 3, 17, 4, 3);
    s.beams.n_groups = 3;
    assert_int_equal(search_submit(&h, &s), QUIRE_INVALID);
    search_init(&s, &h, 3, 17, 4, 143); /* 1 + 4 x 9 pages */
    assert_int_equal(search_submit(&h, &s), QUIRE_OK);
    engine_cancel(h.e, s.ids[0]);
    search_wait(&h, &s, 4);
    search_init(&s, &h, 3, 17, 4, 144); /* 1 + 4 x 10 */
    assert_int_equal(search_submit(&h, &s), QUIRE_TOO_LARGE);
    s.sampling.max_tokens = -1; /* as many as fit */
    assert_int_equal(search_submit(&h, &s), QUIRE_OK);
    engine_cancel(h.e, s.ids[3]);
    search_wait(&h, &s, 4);
    harness_close(&h);
}

TEST_MAIN(adapters_write, adapters_remove)

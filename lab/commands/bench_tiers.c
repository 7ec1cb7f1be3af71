/* `quire bench tiers`: time to first token of a prompt whose keys and values are
 * computed, still in the pool, or fetched from a tier; through the public API, as users
 * see it. */
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "lab/bench/client.h"
#include "lab/bench/temporary.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_tiers_options {
    cli_options cli;
    const char *lengths; /* tokens of the prompt, "128,1000" */
    int32_t n_runs;      /* runs per figure, for mean and spread */
} bench_tiers_options;

enum { SEED = 31, CHANCE_TOKENS = 4, N_FILLERS = 3, SETTLE_US = 100000, LONGEST_WAIT_US = 30000000 };

/* Indices in quire_stats.tiers. */
enum { TIER_HOST, TIER_FILE, TIER_REDIS, N_TIERS };

LAB_DEFAULTS(bench_tiers, .lengths = "128,512,1000", .n_runs = 3)

typedef struct tiers_bench {
    client c;
    int32_t tier, longest;
    uint64_t draw;   /* state of the generator of prompts, which are all different */
    int32_t *prompt; /* [longest] tokens */
    int32_t *filler; /* [longest] tokens of a prompt that evicts others */
} tiers_bench;

/* ---- requests ---- */

static void draw_prompt(tiers_bench *b, int32_t n, int32_t *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = 1 + (int32_t)(rng_next(&b->draw) % (uint64_t)(b->c.info->n_vocab - 1));
    }
}

/* Runs a request for one token. Returns its time, and how many of its tokens were
 * cached. */
static quire_err tiers_send(tiers_bench *b, const int32_t *prompt, int32_t n, double *ms, int32_t *cached,
                            quire_error *err) {
    sent s = {0};
    int64_t start = clock_us();
    TRY(client_send(&b->c, prompt, n, 1, &s, err));
    TRY(client_await(&b->c, 1, err));
    *ms = (double)(clock_us() - start) * 1e-3;
    *cached = s.n_cached;
    return QUIRE_OK;
}

/* Fills the pool with other prompts until nothing earlier is left, then waits until the
 * tier has stored it. */
static quire_err push_out(tiers_bench *b, quire_error *err) {
    double ms;
    int32_t cached;
    for (int32_t i = 0; i < N_FILLERS; i++) {
        draw_prompt(b, b->longest, b->filler);
        TRY(tiers_send(b, b->filler, b->longest, &ms, &cached, err));
    }
    quire_stats before, now;
    int64_t since = clock_us(), still = since;
    quire_engine_stats(b->c.engine, &before);
    while (clock_us() - still < SETTLE_US && clock_us() - since < LONGEST_WAIT_US) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        quire_engine_stats(b->c.engine, &now);
        still = now.tiers[b->tier].puts != before.tiers[b->tier].puts ? clock_us() : still;
        before = now;
    }
    return QUIRE_OK;
}

/* ---- figures ---- */

static const char *const tier_names[N_TIERS] = {"host", "file", "redis"};

/* Times a new prompt, which must be computed, except up to CHANCE_TOKENS that it may
 * share by chance. */
static quire_err run_new(tiers_bench *b, int32_t n, double *ms, quire_error *err) {
    int32_t cached;
    draw_prompt(b, n, b->prompt);
    TRY(tiers_send(b, b->prompt, n, ms, &cached, err));
    return cached <= CHANCE_TOKENS ? QUIRE_OK
                                   : err_set(err, QUIRE_INTERNAL, -1,
                                             "%d tokens of a new prompt of %d were found, so its time is not "
                                             "that of computing it: empty the %s tier",
                                             (int)cached, (int)n, tier_names[b->tier]);
}

static quire_err bench_tiers_measure(tiers_bench *b, int32_t n, int32_t n_runs, const bench_table *s,
                                     quire_error *err) {
    double computed[FIGURES_MAX_RUNS], pool[FIGURES_MAX_RUNS], back[FIGURES_MAX_RUNS];
    int32_t cached, from_tier = n;
    for (int32_t i = 0; i < n_runs; i++) {
        TRY(run_new(b, n, &computed[i], err));
        TRY(tiers_send(b, b->prompt, n, &pool[i], &cached, err));
        TRY(push_out(b, err));
        TRY(tiers_send(b, b->prompt, n, &back[i], &cached, err));
        from_tier = cached < from_tier ? cached : from_tier;
        TRY(push_out(b, err));
    }
    figure fc = figure_of(computed, n_runs), fp = figure_of(pool, n_runs), fb = figure_of(back, n_runs);
    double bytes =
        (double)from_tier * b->c.info->n_page_groups * (double)b->c.info->page_bytes / b->c.info->page_tokens;
    TABLE_ROW(s, TXT(tier_names[b->tier]), NUM(n), NUM(from_tier), NUM(bytes / 1e6), NUM(fc.mean),
              NUM(fc.spread), NUM(fp.mean), NUM(fb.mean), NUM(fb.spread), NUM(fc.mean / fb.mean));
    return QUIRE_OK;
}

/* Opens an engine over one tier, whose pool holds little more than the longest prompt, so
 * that filler prompts evict the rest. */
static quire_err bench_tiers_open_engine(const bench_tiers_options *o, int32_t tier, const char *directory,
                                         tiers_bench *b, quire_error *err) {
    quire_options q = o->cli.engine;
    int32_t size = q.page_tokens, n_pages;
    q.max_model_len = b->longest + 1;
    TRY(pool_size_sequences(&q, "--lengths", 1, ((int64_t)(b->longest + size) / size + 1) * size, &n_pages,
                            err));
    q.n_pages = n_pages + n_pages / 4 + 1;
    q.max_seqs = 1;
    q.tier_host_bytes = tier == TIER_HOST ? (int64_t)1 << 30 : 0;
    q.tier_file = tier == TIER_FILE ? directory : NULL;
    q.tier_redis = tier == TIER_REDIS ? o->cli.engine.tier_redis : NULL;
    q.tier_wait_us = LONGEST_WAIT_US;
    b->tier = tier;
    return client_open(&q, (engine_ablations){0}, NULL, &b->c, err);
}

static quire_err measure_tier(const bench_tiers_options *o, int32_t tier, const char *directory,
                              const int32_t *lengths, int32_t n_lengths, const bench_table *s, tiers_bench *b,
                              quire_error *err) {
    double ms;
    int32_t cached;
    TRY(bench_tiers_open_engine(o, tier, directory, b, err));
    draw_prompt(b, b->longest, b->filler);
    /* the first request touches memory for the first time */
    quire_err e = tiers_send(b, b->filler, b->longest, &ms, &cached, err);
    for (int32_t i = 0; e == QUIRE_OK && i < n_lengths; i++) {
        e = bench_tiers_measure(b, lengths[i], o->n_runs, s, err);
    }
    if (e == QUIRE_OK && tier == (o->cli.engine.tier_redis ? TIER_REDIS : TIER_FILE)) {
        table_note(s,
                   "%s, compute %s, KV %s, %s, pages of %d; milliseconds to the first token, mean and spread "
                   "of %d runs (measured); the file is read through the system's cache",
                   b->c.info->model_name, b->c.info->compute, b->c.info->kv_dtype, b->c.info->backend,
                   (int)b->c.info->page_tokens, (int)o->n_runs);
    }
    client_close(&b->c);
    return e;
}

/* Seeds prompts so that they differ from an earlier run's, whose tiers may still
 * exist. */
static uint64_t first_draw(const bench_tiers_options *o) {
    bool stays = o->cli.engine.tier_file != NULL || o->cli.engine.tier_redis != NULL;
    uint64_t now = (uint64_t)clock_unix_s() * 1000003u + (uint64_t)clock_ns();
    return stays ? rng_next(&now) : SEED;
}

static quire_err bench_tiers_run(const cli_options *cli, quire_error *err) {
    const bench_tiers_options *o = (const void *)cli;
    int32_t lengths[FIGURES_MAX_POINTS], n_lengths;
    TRY(figures_parse_list("--lengths", o->lengths, lengths, &n_lengths, err));
    tiers_bench b = {.draw = first_draw(o), .longest = figures_largest(lengths, n_lengths)};
    temporary own;
    if (o->cli.engine.tier_file == NULL) {
        TRY(temporary_make(&own, err));
    }
    const char *directory = o->cli.engine.tier_file != NULL ? o->cli.engine.tier_file : own.path;
    b.prompt = mem_new((size_t)b.longest, sizeof *b.prompt);
    b.filler = mem_new((size_t)b.longest, sizeof *b.filler);
    quire_err e = mem_check_for(b.prompt && b.filler ? b.prompt : NULL, "the prompts", err);
    TABLE(s, "tiers", o->cli.json, WORD("tier", "tier", 6), KEY("tokens", "tokens", 7, 0),
          FIGURE("found", "found", 6, 0, "tokens"), FIGURE("size", "MB", 7, 2, "MB"),
          FIGURE("computed", "computed", 9, 2, "ms"), FIGURE("computed_spread", "+-", 8, 2, "ms"),
          FIGURE("pool", "pool", 8, 2, "ms"), FIGURE("from_tier", "tier", 8, 2, "ms"),
          FIGURE("from_tier_spread", "+-", 8, 2, "ms"), FIGURE("computed_over_tier", "gain", 7, 2, "x"));
    for (int32_t tier = TIER_HOST; e == QUIRE_OK && tier < (o->cli.engine.tier_redis ? N_TIERS : TIER_REDIS);
         tier++) {
        if (tier == TIER_HOST) {
            table_begin(
                &s,
                "Time to the first token: the prompt computed, found in the pool, brought back from a tier");
        }
        e = measure_tier(o, tier, directory, lengths, n_lengths, &s, &b, err);
    }
    if (o->cli.engine.tier_file == NULL) {
        temporary_remove(&own);
    }
    mem_free(b.prompt);
    mem_free(b.filler);
    return e;
}

#define AT(member) .offset = offsetof(bench_tiers_options, member)

static const flag bench_tiers_flags[] = {
    {"--lengths", "LIST", "tokens of the prompt", TEXT(lengths)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, 64)},
    {0},
};

LAB_COMMAND(bench_tiers, "bench tiers", " MODEL", ARGUMENT_MODEL,
            "time to the first token of prompts restored from host memory, file, Redis",
            "  quire bench tiers builtin\n"
            "  quire bench tiers model.gguf --kv-tier-file /nvme/tier --kv-tier-redis redis://127.0.0.1 "
            "--lengths 1000,8000\n",
            FLAGS_MODEL, bench_tiers_flags, flags_json, flags_compute, FLAGS_KV, flags_isa, flags_threads,
            flags_step_rows, flags_page_size, flags_tier_file, flags_tier_redis, flags_help, flags_help_all);

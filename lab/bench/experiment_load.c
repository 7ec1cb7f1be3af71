/* bench workload, bench ablation: what is found again, and what each mechanism is worth.
 * The baselines are in experiment_batching.c. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "core/kv_layout.h"
#include "lab/bench/experiment.h"
#include "lab/bench/trial.h"
#include "lab/bench/workload.h"
#include "options/engine_flags.h"

static int32_t runs_of(const experiment_options *o) {
    return o->n_runs > 0 ? o->n_runs : 1;
}

/* Pages that hold everything at once. */
static int32_t plenty(const workload *w, int32_t page_tokens) {
    return w->n * (int32_t)(kv_pages_for(w->max_len, page_tokens) + 1) * 2;
}

static trial trial_of(const experiment_options *o, workload *w) {
    trial t = {
        .options = o->engine, .requests = w->requests, .n = w->n, .at_once = w->n, .max_len = w->max_len};
    t.options.max_seqs = w->max_seqs;
    t.options.max_batched_tokens = w->max_rows;
    t.options.step_target_us = 0;
    t.options.n_pages = plenty(w, t.options.page_tokens);
    return t;
}

static double hit_rate(const lab_result *r) {
    return 100 * (double)r->n_cached / (double)r->n_prompt;
}

/* ---- workload ---- */

/* Ways of caching: what is reused, who is admitted first, who is evicted, and whether the
 * pool is short. */
static const struct way {
    quire_prefix_cache cache;
    quire_schedule schedule;
    quire_eviction eviction;
    bool is_short;
} ways[] = {{QUIRE_PREFIX_CACHE_NONE, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LRU, false},
            {QUIRE_PREFIX_CACHE_PAGE, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LRU, false},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LRU, false},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LRU, true},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LFU, true},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_GDSF, true},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_FCFS, QUIRE_EVICTION_LEARNED, true},
            {QUIRE_PREFIX_CACHE_TOKEN, QUIRE_SCHEDULE_PREFIX, QUIRE_EVICTION_LRU, true}};
enum { N_WAYS = (int)(sizeof ways / sizeof *ways), WAY_WHOLE = 2 };

/* A pool that holds less than what could be found again, but what runs. */
static int32_t short_pool(const workload *w, const lab_result *whole, int32_t page_tokens) {
    int32_t kept = (int32_t)(whole->n_pages_kept * 6 / 10),
            least = (int32_t)kv_pages_for(w->max_len, page_tokens) + 2 * w->max_seqs;
    return kept > least ? kept : least;
}

static void workload_row(const sheet *s, const workload *w, int way, const trial *t) {
    const lab_result *r = &t->best;
    sheet_row(s, (sheet_cell[]){{w->name, 0},
                                {flag_choice_name(choices_prefix_cache, (int)ways[way].cache), 0},
                                {flag_choice_name(choices_schedule, (int)ways[way].schedule), 0},
                                {flag_choice_name(choices_eviction, (int)ways[way].eviction), 0},
                                {NULL, ways[way].is_short ? t->options.n_pages : SHEET_ABSENT},
                                {NULL, (double)r->n_prompt},
                                {NULL, (double)r->n_prompt_computed},
                                {NULL, hit_rate(r)},
                                {NULL, 100 * (1 - (double)w->n_new / (double)w->n_prompt)},
                                {NULL, (double)r->n_pages_most},
                                {NULL, trial_speed(r)},
                                {NULL, r->first_ms},
                                {NULL, r->token_ms},
                                {NULL, (double)r->n_preemptions}});
}

static quire_err run_workload(const experiment_options *o, const sheet *s, workload *w, quire_error *err) {
    trial trials[N_WAYS];
    for (int i = 0; i < N_WAYS; i++) {
        trials[i] = trial_of(o, w);
        trials[i].options.prefix_cache = ways[i].cache;
        trials[i].options.schedule = ways[i].schedule;
        trials[i].options.eviction_policy = ways[i].eviction;
    }
    TRY(trials_run(trials, WAY_WHOLE + 1, runs_of(o), false, err));
    for (int i = WAY_WHOLE + 1; i < N_WAYS; i++) {
        trials[i].options.n_pages = short_pool(w, &trials[WAY_WHOLE].best, o->engine.page_tokens);
    }
    TRY(trials_run(trials + WAY_WHOLE + 1, N_WAYS - WAY_WHOLE - 1, runs_of(o), true, err));
    for (int i = 0; i < N_WAYS; i++) {
        workload_row(s, w, i, &trials[i]);
        if (trials[i].best.digest != trials[0].best.digest) {
            return err_set(err, QUIRE_INTERNAL, -1, "%s: the cache changed an answer", w->name);
        }
    }
    return QUIRE_OK;
}

quire_err experiment_workload(const experiment_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"workload", "workload", 8, SHEET_TEXT, NULL},
                                           {"cache", "cache", 5, SHEET_TEXT, NULL},
                                           {"schedule", "order", 6, SHEET_TEXT, NULL},
                                           {"eviction", "evicts", 7, SHEET_TEXT, NULL},
                                           {"pool", "pool", 5, 0, NULL},
                                           {"prompt", "prompt", 7, 0, "tokens"},
                                           {"computed", "computed", 8, 0, "tokens"},
                                           {"hit_rate", "hit %", 6, 1, "%"},
                                           {"ideal", "ideal %", 7, 1, "%"},
                                           {"pages_most", "pages", 6, 0, "pages"},
                                           {"speed", "tokens/s", 8, 0, "tokens/s"},
                                           {"first_token", "first ms", 9, 1, "ms"},
                                           {"token", "ms/token", 8, 2, "ms"},
                                           {"preemptions", "preempted", 9, 0, "times"}};
    char machine[160];
    sheet s = {"workload", EXPERIMENT_COLUMNS(columns), o->json};
    TRY(lab_describe(&o->engine, machine, sizeof machine, err));
    bool any = false;
    for (int32_t i = 0; workload_name(i) != NULL; i++) {
        const char *name = o->name != NULL ? o->name : workload_name(i);
        workload w;
        TRY(workload_make(name, 256, &w, err));
        if (!any) {
            sheet_begin(&s, "Requests sent at once, run by the engine; pool: pages, where they are short "
                            "(\"-\": plenty); ideal: found if "
                            "nothing is ever evicted; pages: held at most");
        }
        any = true;
        quire_err e = run_workload(o, &s, &w, err);
        sheet_note(&s, "%s: %s", w.name, w.line);
        workload_free(&w);
        TRY(e);
        if (o->name != NULL) {
            break;
        }
    }
    sheet_note(&s,
               "%s; tokens and pages counted (exact where the pool is plenty), times the fastest of %d runs "
               "in turns (measured)",
               machine, (int)runs_of(o));
    return QUIRE_OK;
}

/* ---- ablation ---- */

typedef enum mechanism {
    ALL_ON,
    CACHE_PAGE,
    CACHE_NONE,
    NO_FORKS,
    NO_CASCADE,
    NO_CHUNKS,
    BY_ARRIVAL,
    NO_JUMPS,
    NO_GUESSES,
    FIXED_GUESSES,
    ONE_BY_ONE,
    N_MECHANISMS
} mechanism;

static const char *const switches[N_MECHANISMS] = {
    "all on",         "--prefix-cache page",  "--prefix-cache none", "--no-fork-sharing",
    "--no-cascade",   "--no-chunked-prefill", "--schedule fcfs",     "--no-jump-forward",
    "no speculation", "--fixed-draft-length", "--max-num-seqs 1"};
static const char GUESSES[] = "{\"method\":\"ngram\",\"num_speculative_tokens\":5}";

/* A load of the ablation: a workload, or a kind of it for one mechanism. */
typedef struct load {
    const char *name, *workload;
    int32_t n_samples;
    /* 0: plenty; else so few that the order of admission matters: all on has --schedule
     * prefix */
    int32_t n_pages;
    bool forced;  /* the rules leave one token, as a grammar often does */
    bool guesses; /* all on speculates */
} load;

static const load loads[] = {
    {"samples", "json", 4, 0, false, false}, {"gsm8k", "gsm8k", 1, 0, false, false},
    {"chat", "chat", 1, 0, false, false},    {"mmlu5", "mmlu5", 1, 0, false, false},
    {"long", "long", 1, 148, false, false},  {"forced", "unique", 1, 0, true, false},
    {"guesses", "chat", 1, 0, false, true},  {"unique", "unique", 1, 0, false, false}};

/* A mechanism that a load has no use for is left out. */
static bool concerns(const load *l, mechanism m) {
    switch (m) {
    case BY_ARRIVAL:
        return l->n_pages > 0;
    case NO_JUMPS:
        return l->forced;
    case NO_GUESSES:
    case FIXED_GUESSES:
        return l->guesses;
    default:
        return true;
    }
}

enum { FORCED_TOKEN = 7 };

static void switch_off(mechanism m, trial *t) {
    quire_options *o = &t->options;
    o->prefix_cache = m == CACHE_PAGE   ? QUIRE_PREFIX_CACHE_PAGE
                      : m == CACHE_NONE ? QUIRE_PREFIX_CACHE_NONE
                                        : QUIRE_PREFIX_CACHE_TOKEN;
    t->off.no_fork_sharing = m == NO_FORKS;
    t->off.no_jump_forward = m == NO_JUMPS;
    o->no_cascade = m == NO_CASCADE;
    o->no_chunked_prefill = m == NO_CHUNKS;
    t->off.fixed_draft_length = m == FIXED_GUESSES;
    o->speculative_config = m == NO_GUESSES ? NULL : o->speculative_config;
    o->max_seqs = m == ONE_BY_ONE ? 1 : o->max_seqs;
}

static quire_err ablate(const experiment_options *o, const sheet *s, const load *l, quire_error *err) {
    workload w;
    TRY(workload_make(l->workload, 256, &w, err));
    trial trials[N_MECHANISMS];
    int n = 0, of[N_MECHANISMS];
    for (int32_t i = 0; i < w.n; i++) {
        w.requests[i].n_samples = l->n_samples;
        w.requests[i].temperature = l->n_samples > 1 ? 1.0f : 0.0f;
        w.requests[i].forced = l->forced ? FORCED_TOKEN : 0;
    }
    for (int m = 0; m < N_MECHANISMS; m++) {
        if (concerns(l, (mechanism)m)) {
            trial *t = &trials[n];
            *t = trial_of(o, &w);
            t->options.max_batched_tokens = 512;
            t->options.max_seqs = w.max_seqs * l->n_samples;
            t->options.n_pages = l->n_pages > 0 ? l->n_pages : t->options.n_pages * l->n_samples;
            t->options.schedule =
                l->n_pages > 0 && m != BY_ARRIVAL ? QUIRE_SCHEDULE_PREFIX : QUIRE_SCHEDULE_FCFS;
            t->options.speculative_config = l->guesses ? GUESSES : NULL;
            switch_off((mechanism)m, t);
            of[n++] = m;
        }
    }
    quire_err e = trials_run(trials, n, runs_of(o), true, err);
    for (int i = 0; e == QUIRE_OK && i < n; i++) {
        const lab_result *r = &trials[i].best, *all = &trials[0].best;
        e = r->digest == all->digest
                ? QUIRE_OK
                : err_set(err, QUIRE_INTERNAL, -1, "%s, %s: an answer changed", l->name, switches[of[i]]);
        sheet_row(s, (sheet_cell[]){{l->name, 0},
                                    {switches[of[i]], 0},
                                    {NULL, (double)r->n_prompt_computed},
                                    {NULL, (double)r->n_pages_most},
                                    {NULL, (double)r->n_steps},
                                    {NULL, trial_speed(r)},
                                    {NULL, trial_speed(r) / trial_speed(all)},
                                    {NULL, r->first_ms},
                                    {NULL, r->token_ms}});
    }
    workload_free(&w);
    return e;
}

quire_err experiment_ablation(const experiment_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"workload", "workload", 8, SHEET_TEXT, NULL},
                                           {"switch", "", 21, SHEET_TEXT, NULL},
                                           {"computed", "prompt computed", 15, 0, "tokens"},
                                           {"pages_most", "pages", 6, 0, "pages"},
                                           {"steps", "steps", 6, 0, "steps"},
                                           {"speed", "tokens/s", 8, 0, "tokens/s"},
                                           {"relative", "of all", 7, 2, "x"},
                                           {"first_token", "first ms", 9, 1, "ms"},
                                           {"token", "ms/token", 8, 2, "ms"}};
    char machine[160];
    sheet s = {"ablation", EXPERIMENT_COLUMNS(columns), o->json};
    bool any = false;
    TRY(lab_describe(&o->engine, machine, sizeof machine, err));
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        if (o->name != NULL && strcmp(o->name, loads[i].name) != 0) {
            continue;
        }
        if (!any) {
            sheet_begin(&s, "Workloads with one mechanism switched off; the answers are the same, to the "
                            "token (checked)");
        }
        any = true;
        TRY(ablate(o, &s, &loads[i], err));
    }
    if (!any && o->name != NULL && strcmp(o->name, "batching") != 0) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s: no such workload here; there are samples, gsm8k, chat, mmlu5, long, forced, "
                       "guesses, unique and batching",
                       o->name);
    }
    if (!any) {
        return experiment_batching(o, machine, err);
    }
    sheet_note(&s,
               "samples: 4 answers to each of the json prompts; long: 148 pages for documents of 200, all on "
               "with --schedule prefix; forced: "
               "unique, where one token is allowed; guesses: chat, with ngram speculation; 512 "
               "rows a step; %s; times the fastest of %d runs in turns (measured)",
               machine, (int)runs_of(o));
    return o->name == NULL ? experiment_batching(o, machine, err) : QUIRE_OK;
}

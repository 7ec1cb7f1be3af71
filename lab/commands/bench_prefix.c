/* bench prefix: what the prefix index costs those who share nothing, and what those who
 * arrive together with one beginning pay for it. */

#include "lab/commands/experiment.h"

enum {
    N_STRANGERS = 64,
    STRANGER = 256,
    STRANGER_OUTPUT = 32,
    STRANGERS_AT_ONCE = 16,
    N_TOGETHER = 32,
    SHARED = 4096,
    TOGETHER_OUTPUT = 2, /* tails of 1, 2 .. 32 tokens */
    N_RUNS = 9,
    N_WAYS = 2
};

/* One way of running, and the least of its runs. Processor time of the whole program:
 * what others on the machine do counts little. */
typedef struct measured {
    const char *name;
    quire_options options;
    lab_request *requests;
    int32_t n, n_first; /* n_first of them run to their end before the others are sent */
    int32_t at_once, max_len;
    int64_t n_prompt, n_computed, n_cached;
    double cpu_ms;
} measured;

static quire_err run_tasks(lab *l, measured *m, quire_error *err) {
    lab_result first = {0}, rest = {0};
    if (m->n_first > 0) {
        TRY(lab_run(l, m->requests, m->n_first, m->at_once, &first, err));
    }
    TRY(lab_run(l, m->requests + m->n_first, m->n - m->n_first, m->at_once, &rest, err));
    m->n_prompt = first.n_prompt + rest.n_prompt;
    /* of all runs, since the lab's counters continue, */
    m->n_cached = rest.n_cached;
    /* and count the first ones' answers as well */
    m->n_computed = rest.n_prompt_computed - (first.n_output - m->n_first);
    return QUIRE_OK;
}

static quire_err experiment_prefix_run_once(measured *m, quire_error *err) {
    lab l;
    TRY(lab_open(&m->options, (engine_ablations){0}, m->max_len, &l, err));
    int64_t start = figures_time_us(1);
    quire_err e = run_tasks(&l, m, err);
    double took = (double)(figures_time_us(1) - start) * 1e-3;
    lab_close(&l);
    lab_forget(m->requests, m->n);
    m->cpu_ms = m->cpu_ms == 0 || took < m->cpu_ms ? took : m->cpu_ms;
    return e;
}

/* Both ways in turns, each the first of a turn every other time; then a line for each. */
static quire_err experiment_prefix_compare(const bench_table *s, measured *ways, int32_t n_runs,
                                           quire_error *err) {
    for (int32_t run = 0; run < n_runs * N_WAYS; run++) {
        TRY(experiment_prefix_run_once(&ways[(run + run / N_WAYS) % N_WAYS], err));
    }
    for (int32_t i = 0; i < N_WAYS; i++) {
        const measured *m = &ways[i];
        TABLE_ROW(s, TXT(m->name), NUM(m->n), NUM(m->n_prompt), NUM(m->n_cached), NUM(m->n_computed),
                  NUM(m->cpu_ms), NUM(m->cpu_ms / ways[0].cpu_ms));
    }
    return QUIRE_OK;
}

/* Prompts that share nothing, in a pool that holds half of the pages they leave: the
 * index looks up, publishes and evicts, and finds nothing. */
static quire_err strangers(const experiment_options *o, const bench_table *s, int32_t n_runs,
                           quire_error *err) {
    lab_request requests[N_STRANGERS];
    int32_t lengths[N_STRANGERS],
        pages = (int32_t)kv_pages_for(STRANGER + STRANGER_OUTPUT, o->cli.engine.page_tokens) + 1;
    for (int32_t i = 0; i < N_STRANGERS; i++) {
        lengths[i] = STRANGER;
    }
    int32_t *tokens = variant_prompts(lengths, N_STRANGERS, STRANGER_OUTPUT, requests);
    TRY(mem_check_for(tokens, "the prompts", err));
    for (int32_t i = 0; i < N_STRANGERS; i++) {
        tokens[i * STRANGER] = 1 + i; /* not even the first token */
    }
    measured ways[N_WAYS] = {{.name = "strangers, no index",
                              .requests = requests,
                              .n = N_STRANGERS,
                              .at_once = STRANGERS_AT_ONCE}};
    ways[0].max_len = STRANGER + STRANGER_OUTPUT;
    ways[0].options = o->cli.engine;
    ways[0].options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    ways[0].options.max_seqs = STRANGERS_AT_ONCE;
    ways[0].options.n_pages = pages * N_STRANGERS / 2;
    ways[0].options.step_target_us = 0;
    ways[1] = ways[0];
    ways[1].name = "strangers, index";
    ways[1].options.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN;
    quire_err e = experiment_prefix_compare(s, ways, n_runs, err);
    mem_free(tokens);
    return e;
}

static quire_err together(const experiment_options *o, const bench_table *s, int32_t n_runs,
                          quire_error *err) {
    lab_request requests[N_TOGETHER];
    int32_t *tokens = mem_new((size_t)N_TOGETHER * (SHARED + N_TOGETHER), sizeof *tokens);
    int32_t shared = SHARED;
    lab_request prefix;
    int32_t *drawn = variant_prompts(&shared, 1, TOGETHER_OUTPUT, &prefix);
    quire_err e = mem_check_for(tokens && drawn ? tokens : NULL, "the prompts", err);
    for (int32_t i = 0; i < N_TOGETHER && e == QUIRE_OK; i++) {
        int32_t *p = tokens + (size_t)i * (SHARED + N_TOGETHER), n = SHARED + 1 + i;
        for (int32_t k = 0; k < n; k++) {
            p[k] = k < SHARED ? drawn[k] : 1 + (i + k - SHARED) % N_TOGETHER; /* no two tails begin alike */
        }
        requests[i] = (lab_request){.tokens = p, .n_tokens = n, .n_output = TOGETHER_OUTPUT, .after = -1};
    }
    measured ways[N_WAYS] = {{.name = "one, then 31 tails",
                              .requests = requests,
                              .n = N_TOGETHER,
                              .n_first = 1,
                              .at_once = N_TOGETHER}};
    ways[0].max_len = SHARED + N_TOGETHER + TOGETHER_OUTPUT;
    ways[0].options = o->cli.engine;
    ways[0].options.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN;
    ways[0].options.max_seqs = N_TOGETHER;
    ways[0].options.n_pages =
        (int32_t)kv_pages_for(SHARED, o->cli.engine.page_tokens) +
        N_TOGETHER * (int32_t)(kv_pages_for(N_TOGETHER + TOGETHER_OUTPUT, o->cli.engine.page_tokens) + 1);
    ways[0].options.step_target_us = 0;
    ways[1] = ways[0];
    ways[1].name = "32 together";
    ways[1].n_first = 0;
    e = e == QUIRE_OK ? experiment_prefix_compare(s, ways, n_runs, err) : e;
    mem_free(drawn);
    mem_free(tokens);
    return e;
}

static quire_err experiment_prefix(const cli_options *cli, quire_error *err) {
    const experiment_options *o = (const void *)cli;
    TABLE(s, "prefix", o->cli.json, WORD("case", "", 20), KEY("requests", "requests", 8, 0),
          FIGURE("prompt", "prompt", 8, 0, "tokens"), FIGURE("cached", "cached", 8, 0, "tokens"),
          FIGURE("computed", "computed", 8, 0, "tokens"), FIGURE("cpu", "CPU ms", 9, 1, "ms"),
          FIGURE("to_first", "to first", 8, 3, "x"));
    int32_t n_runs = o->n_runs > 0 ? o->n_runs : N_RUNS;
    char machine[256];
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    table_begin(&s, NULL);
    TRY(strangers(o, &s, n_runs, err));
    TRY(together(o, &s, n_runs, err));
    table_note(&s,
               "%s. Processor time, the least of %d runs of each way, in turns. Strangers: %d prompts of %d "
               "tokens that share nothing, %d at once, answers of %d. Together: %d tokens that all share, "
               "and tails of 1 to %d tokens.",
               machine, (int)n_runs, N_STRANGERS, STRANGER, STRANGERS_AT_ONCE, STRANGER_OUTPUT, SHARED,
               N_TOGETHER);
    return QUIRE_OK;
}

EXPERIMENT(prefix, "", ARGUMENT_NONE, "cost of the prefix index for unrelated prompts, and what it saves",
           "  quire bench prefix --runs 15 --threads 1\n", flags_experiment_page);

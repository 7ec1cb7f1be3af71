/* bench pages, sharing, prefix: the best page size, what sharing a prompt's pages saves,
 * and what the prefix index costs requests that share nothing, or their beginning. */
#include "lab/commands/measures.h"

/* ---- pages ---- */

enum { N_REQUESTS = 16, N_OUTPUT = 48 };
#define MOST_WASTE 4.0 /* percent of waste below which paging promises to stay */

static int64_t experiment_pages_of(const lab_request *requests, int32_t n, int32_t page_tokens) {
    int64_t pages = 0;
    for (int32_t i = 0; i < n; i++) {
        pages += kv_pages_for(requests[i].n_tokens + requests[i].n_output - 1, page_tokens);
    }
    return pages;
}

static double waste_of(const variant *t) {
    double held =
        (double)experiment_pages_of(t->requests, t->n, t->options.page_tokens) * t->options.page_tokens;
    return 100 * (1 - (double)variant_live_tokens(t->requests, t->n) / held);
}

static void report_sizes(const experiment_options *o, const variant *variants, int32_t n, int32_t n_runs,
                         const char *machine) {
    TABLE(s, "pages", o->cli.json, KEY("page_tokens", "page", 5, 0),
          FIGURE("speed", "tokens/s", 9, 0, "tokens/s"), FIGURE("relative", "of best", 8, 3, "x"),
          FIGURE("pages", "pages", 7, 0, "pages"), FIGURE("tail", "tail slots", 10, 1, "slots"),
          FIGURE("wasted", "wasted %", 9, 2, "%"), FIGURE("table", "table bytes", 11, 0, "bytes"));
    double fastest = 0;
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        fastest = fmax(fastest, variant_speed(&variants[i].best));
        if (waste_of(&variants[i]) <= MOST_WASTE &&
            (best < 0 || variant_speed(&variants[i].best) > variant_speed(&variants[best].best))) {
            best = i;
        }
    }
    table_begin(&s, "16 requests of 65 to 640 tokens and answers of 48, all at once, by page size");
    for (int32_t i = 0; i < n; i++) {
        const variant *t = &variants[i];
        int64_t pages = experiment_pages_of(t->requests, t->n, t->options.page_tokens);
        double tail =
            (double)(pages * t->options.page_tokens - variant_live_tokens(t->requests, t->n)) / t->n;
        TABLE_ROW(&s, NUM(t->options.page_tokens), NUM(variant_speed(&t->best)),
                  NUM(variant_speed(&t->best) / fastest), NUM(pages), NUM(tail), NUM(waste_of(t)),
                  NUM((double)pages * 4));
    }
    table_note(&s,
               "best: %d (the fastest of those that waste at most %.0f%%); %s; speeds: fastest of %d runs in "
               "turns (measured); the rest counted, exact",
               best >= 0 ? (int)variants[best].options.page_tokens : 0, MOST_WASTE, machine, (int)n_runs);
}

static quire_err experiment_pages(const cli_options *cli, quire_error *err) {
    const experiment_options *o = (const void *)cli;
    int32_t sizes[FIGURES_MAX_POINTS], n_sizes, lengths[N_REQUESTS], n_runs = o->n_runs > 0 ? o->n_runs : 3;
    char machine[160];
    TRY(figures_parse_pages("--pages", o->pages != NULL ? o->pages : "1,2,4,8,16,32,64,128,256", sizes,
                            &n_sizes, err));
    for (int32_t i = 0; i < N_REQUESTS; i++) {
        lengths[i] = 65 + i * 115 / 3 + i % 3;
    }
    lab_request requests[N_REQUESTS];
    variant variants[FIGURES_MAX_POINTS] = {{.n = 0}};
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    int32_t *tokens = variant_prompts(lengths, N_REQUESTS, N_OUTPUT, requests);
    TRY(mem_check_for(tokens, "the measurement", err));
    for (int32_t i = 0; i < n_sizes; i++) {
        variant *t = &variants[i];
        *t = (variant){.options = o->cli.engine,
                       .requests = requests,
                       .n = N_REQUESTS,
                       .at_once = N_REQUESTS,
                       .max_len = lengths[N_REQUESTS - 1] + N_OUTPUT};
        t->options.page_tokens = sizes[i];
        t->options.max_seqs = N_REQUESTS;
        t->options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
        t->options.n_pages = (int32_t)experiment_pages_of(requests, N_REQUESTS, sizes[i]) + N_REQUESTS;
    }
    quire_err e = variants_run(variants, n_sizes, n_runs, false, err);
    if (e == QUIRE_OK) {
        report_sizes(o, variants, n_sizes, n_runs, machine);
    }
    mem_free(tokens);
    return e;
}

/* ---- sharing ---- */

/* n prompts of one length and the length of their answers. */
typedef struct share_kind {
    const char *name;
    int32_t n, prompt, output;
} share_kind;

/* Mean lengths of the two data sets in vLLM's paper (Kwon et al. 2023,
 * arXiv:2309.06180). */
static const share_kind kinds[] = {{"alpaca", 8, 19, 58}, {"sharegpt", 4, 161, 338}};
enum { N_KINDS = 2, MAX_PROMPTS = 8 };

/* With forks; without, with unlimited pages; without, with as many pages as forks hold at
 * most. */
enum { WITH_FORKS, APART, APART_THERE, N_SHARE_WAYS };

typedef struct sharing {
    const experiment_options *o;
    bench_table table;
    int32_t n_runs;
} sharing;

static void share_trials(const sharing *sh, const share_kind *k, int32_t n_samples, lab_request *requests,
                         variant t[N_SHARE_WAYS]) {
    for (int i = 0; i < N_SHARE_WAYS; i++) {
        t[i] = (variant){.options = sh->o->cli.engine,
                         .requests = requests,
                         .n = k->n,
                         .at_once = k->n,
                         .max_len = k->prompt + k->output};
        t[i].options.max_seqs = k->n * n_samples;
        /* all prompts in one step, so that all advance together */
        t[i].options.max_batched_tokens = k->n * n_samples * (k->prompt + 1);
        t[i].options.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
        t[i].off.no_fork_sharing = i != WITH_FORKS;
        t[i].options.n_pages =
            k->n * n_samples * (int32_t)(kv_pages_for(t[i].max_len, t[i].options.page_tokens) + 1);
    }
}

static void share_report(const sharing *sh, const share_kind *k, bool beams, int32_t n_samples,
                         const variant t[N_SHARE_WAYS]) {
    const lab_result *with = &t[WITH_FORKS].best, *without = &t[APART].best;
    double shared = variant_speed(with), apart = variant_speed(without),
           there = beams ? TABLE_ABSENT : variant_speed(&t[APART_THERE].best);
    TABLE_ROW(&sh->table, TXT(k->name), TXT(beams ? "beams" : "samples"), NUM(n_samples),
              NUM(without->n_pages_most), NUM(with->n_pages_most),
              NUM(100 * (1 - (double)with->n_pages_most / (double)without->n_pages_most)),
              NUM(beams ? TABLE_ABSENT : (double)without->n_prompt_computed),
              NUM(beams ? TABLE_ABSENT : (double)with->n_prompt_computed), NUM(shared), NUM(apart),
              NUM(there), NUM(shared / apart), NUM(apart / there), NUM(shared / there));
}

/* Measures one kind and number of answers (samples or beams) in all ways. Rows of dropped
 * beams belong to no answer, so prompt tokens are not shown; beams without sharing are
 * not admitted if they might not all fit. */
static quire_err share_row(const sharing *sh, const share_kind *k, bool beams, int32_t n_samples,
                           quire_error *err) {
    lab_request requests[MAX_PROMPTS];
    int32_t lengths[MAX_PROMPTS] = {0};
    for (int32_t i = 0; i < k->n; i++) {
        lengths[i] = k->prompt;
    }
    int32_t *tokens = variant_prompts(lengths, k->n, k->output, requests);
    TRY(mem_check_for(tokens, "the measurement", err));
    for (int32_t i = 0; i < k->n; i++) {
        requests[i].n_samples = beams ? 1 : n_samples;
        requests[i].beam_width = beams ? n_samples : 0;
        requests[i].temperature = beams ? 0.0f : 1.0f;
    }
    variant t[N_SHARE_WAYS];
    share_trials(sh, k, n_samples, requests, t);
    quire_err e = variants_run(t, APART_THERE, sh->n_runs, beams, err);
    t[APART_THERE].options.n_pages = (int32_t)t[WITH_FORKS].best.n_pages_most;
    if (e == QUIRE_OK && !beams) {
        e = variants_run(t + APART_THERE, 1, sh->n_runs, true, err);
    }
    mem_free(tokens);
    TRY(e);
    if (t[WITH_FORKS].best.digest != t[APART].best.digest ||
        (!beams && t[APART].best.digest != t[APART_THERE].best.digest)) {
        return err_set(err, QUIRE_INTERNAL, -1, "sharing changed an answer");
    }
    share_report(sh, k, beams, n_samples, t);
    return QUIRE_OK;
}

static quire_err share_rows(const sharing *sh, const share_kind *k, const int32_t *samples, int32_t n,
                            quire_error *err) {
    for (int beams = 0; beams < 2; beams++) {
        for (int32_t i = 0; i < n; i++) {
            if (samples[i] > 64) {
                return err_set(err, QUIRE_INVALID, -1, "--samples %d: at most 64", (int)samples[i]);
            }
            TRY(share_row(sh, k, beams == 1, samples[i], err));
        }
    }
    return QUIRE_OK;
}

static quire_err experiment_sharing(const cli_options *cli, quire_error *err) {
    const experiment_options *o = (const void *)cli;
    static const table_column columns[] = TABLE_OF(
        WORD("lengths", "lengths", 9), WORD("way", "", 7), KEY("samples", "n", 3, 0),
        FIGURE("pages_apart", "pages apart", 11, 0, "pages"), FIGURE("pages_shared", "shared", 7, 0, "pages"),
        FIGURE("saved", "saved %", 8, 1, "%"), FIGURE("computed_apart", "prompt apart", 12, 0, "tokens"),
        FIGURE("computed_shared", "shared", 7, 0, "tokens"),
        FIGURE("speed_shared", "tokens/s", 8, 0, "tokens/s"),
        FIGURE("speed_apart", "apart", 7, 0, "tokens/s"),
        FIGURE("speed_there", "in these pages", 14, 0, "tokens/s"),
        FIGURE("by_prompts", "by prompts", 10, 2, "x"), FIGURE("by_pages", "by pages", 8, 2, "x"),
        FIGURE("ratio", "both", 6, 2, "x"));
    const share_kind given = {"given", 1, o->n_prompt, o->n_output};
    int32_t samples[FIGURES_MAX_POINTS], n;
    char machine[160];
    if ((o->n_prompt > 0) != (o->n_output > 0)) {
        return err_set(err, QUIRE_INVALID, -1, "--prompt and --output: give both or none");
    }
    TRY(figures_parse_list("--samples", o->samples != NULL ? o->samples : "2,4,6", samples, &n, err));
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    sharing sh = {.o = o,
                  .table = {"sharing", TABLE_COLUMNS(columns), o->cli.json},
                  .n_runs = o->n_runs > 0 ? o->n_runs : 2};
    table_begin(&sh.table, "n answers to each prompt: by forks of one sequence; apart, each computing the "
                           "prompt into pages of its own; and so in no more pages than the forks hold");
    for (int i = 0; i < (o->n_prompt > 0 ? 1 : N_KINDS); i++) {
        TRY(share_rows(&sh, o->n_prompt > 0 ? &given : &kinds[i], samples, n, err));
    }
    table_note(&sh.table,
               "%s; page %d; %s; pages: held at most; by prompts: what computing a prompt once gains; by "
               "pages: what more room gains; pages and tokens counted, exact; speeds fastest of %d runs in "
               "turns (measured)",
               o->n_prompt > 0 ? "one prompt as given"
                               : "alpaca: 8 prompts of 19 tokens, answers of 58; sharegpt: 4 of 161 and 338",
               (int)o->cli.engine.page_tokens, machine, (int)sh.n_runs);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(experiment_options, member)

static const flag pages_flags[] = {
    {"--pages", "LIST", "tokens a page holds (1,2,4 .. 256)", TEXT(pages)},
    {0},
};
static const flag sharing_flags[] = {
    {"--samples", "LIST", "answers to a prompt (2,4,6)", TEXT(samples)},
    {"--prompt", "N", "tokens of each prompt, and --output; without: those of two data sets",
     COUNT(n_prompt, 1, 8192)},
    {"--output", "N", "tokens of each answer", COUNT(n_output, 1, 8192)},
    {0},
};

EXPERIMENT(pages, "", ARGUMENT_NONE, "speed, waste and tables by page size",
           "  quire bench pages --pages 4,16,64\n", pages_flags);

EXPERIMENT(sharing, "", ARGUMENT_NONE, "what sharing a prompt's pages among its answers saves",
           "  quire bench sharing --samples 2,4,6\n"
           "  quire bench sharing --samples 4 --prompt 64 --output 11\n",
           sharing_flags, flags_experiment_page);

/* ---- prefix ---- */

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

/* Runs both ways in turn; then prints a row for each. */
static quire_err experiment_prefix_compare(const bench_table *s, const char *const names[N_WAYS],
                                           variant ways[N_WAYS], int32_t n_runs, quire_error *err) {
    double least[N_WAYS];
    TRY(variants_run(ways, N_WAYS, n_runs, true, err));
    for (int32_t i = 0; i < N_WAYS; i++) {
        const lab_result *r = &ways[i].best;
        least[i] = INFINITY;
        for (int32_t run = 0; run < n_runs; run++) {
            least[i] = fmin(least[i], 1e3 * ways[i].runs[run].cpu_seconds);
        }
        TABLE_ROW(s, TXT(names[i]), NUM(ways[i].n), NUM(r->n_prompt), NUM(r->n_cached),
                  NUM(r->n_prompt_computed), NUM(least[i]), NUM(least[i] / least[0]));
    }
    return QUIRE_OK;
}

/* Prompts that share nothing, in a pool that holds half of the pages they leave: the
 * index looks up, publishes and evicts, and finds nothing. */
static quire_err strangers(const experiment_options *o, const bench_table *s, int32_t n_runs,
                           quire_error *err) {
    static const char *const names[N_WAYS] = {"strangers, no index", "strangers, index"};
    lab_request requests[N_STRANGERS];
    int32_t lengths[N_STRANGERS],
        pages = (int32_t)kv_pages_for(STRANGER + STRANGER_OUTPUT, o->cli.engine.page_tokens) + 1;
    for (int32_t i = 0; i < N_STRANGERS; i++) {
        lengths[i] = STRANGER;
    }
    int32_t *tokens = variant_prompts(lengths, N_STRANGERS, STRANGER_OUTPUT, requests);
    TRY(mem_check_for(tokens, "the prompts", err));
    for (int32_t i = 0; i < N_STRANGERS; i++) {
        tokens[i * STRANGER] = 1 + i; /* not even the first token is shared */
    }
    variant ways[N_WAYS];
    for (int32_t i = 0; i < N_WAYS; i++) {
        ways[i] = (variant){.options = o->cli.engine,
                            .requests = requests,
                            .n = N_STRANGERS,
                            .at_once = STRANGERS_AT_ONCE,
                            .max_len = STRANGER + STRANGER_OUTPUT};
        ways[i].options.prefix_cache = i == 0 ? QUIRE_PREFIX_CACHE_NONE : QUIRE_PREFIX_CACHE_TOKEN;
        ways[i].options.max_seqs = STRANGERS_AT_ONCE;
        ways[i].options.n_pages = pages * N_STRANGERS / 2;
        ways[i].options.step_target_us = 0;
    }
    quire_err e = experiment_prefix_compare(s, names, ways, n_runs, err);
    mem_free(tokens);
    return e;
}

/* Prompts with the same beginning: all at once, or after the first has ended. */
static quire_err together(const experiment_options *o, const bench_table *s, int32_t n_runs,
                          quire_error *err) {
    static const char *const names[N_WAYS] = {"one, then 31 tails", "32 together"};
    lab_request requests[N_WAYS][N_TOGETHER];
    int32_t lengths[N_TOGETHER], page_tokens = o->cli.engine.page_tokens;
    for (int32_t i = 0; i < N_TOGETHER; i++) {
        lengths[i] = SHARED + 1 + i;
    }
    int32_t *tokens = variant_prompts(lengths, N_TOGETHER, TOGETHER_OUTPUT, requests[0]);
    TRY(mem_check_for(tokens, "the prompts", err));
    int32_t *own = tokens;
    for (int32_t i = 0; i < N_TOGETHER; own += lengths[i++]) {
        memcpy(own, tokens, i > 0 ? SHARED * sizeof *own : 0);
        for (int32_t k = 0; k <= i; k++) {
            own[SHARED + k] = 1 + (i + k) % N_TOGETHER; /* no two tails begin alike */
        }
        requests[1][i] = requests[0][i];
        requests[0][i].after = i > 0 ? 0 : -1;
        requests[0][i].is_apart = true;
    }
    variant ways[N_WAYS];
    for (int32_t i = 0; i < N_WAYS; i++) {
        ways[i] = (variant){.options = o->cli.engine,
                            .requests = requests[i],
                            .n = N_TOGETHER,
                            .at_once = N_TOGETHER,
                            .max_len = SHARED + N_TOGETHER + TOGETHER_OUTPUT};
        ways[i].options.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN;
        ways[i].options.max_seqs = N_TOGETHER;
        ways[i].options.n_pages =
            (int32_t)kv_pages_for(SHARED, page_tokens) +
            N_TOGETHER * (int32_t)(kv_pages_for(N_TOGETHER + TOGETHER_OUTPUT, page_tokens) + 1);
        ways[i].options.step_target_us = 0;
    }
    quire_err e = experiment_prefix_compare(s, names, ways, n_runs, err);
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

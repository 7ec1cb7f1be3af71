/* `quire sim`: its flags. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/files.h"
#include "file/show.h"
#include "lab/commands/lab_flags.h"
#include "lab/commands/plot.h"
#include "lab/sim/cost.h"
#include "lab/sim/replay.h"
#include "lab/sim/trace_read.h"
#include "options/engine_flags.h"

/* Options of `quire sim`. */

typedef struct sim_options {
    cli_options cli;
    compare_options server;
    plan_options plan;
    const char *trace; /* a file; lab/sim/trace_read.h has the formats */
    /* capacities, "1000,2000"; NULL: from what the trace fills, down to a 128th of it */
    const char *pages;
    const char *policies;            /* "lru,belady", or all */
    const char *svg;                 /* a file to plot hit rate against capacity to, or NULL */
    quire_prefix_cache prefix_cache; /* of tokens, or of whole pages only */
    int32_t page_tokens;             /* 1..512 */
    int32_t concurrency;             /* requests open at once */
    int32_t limit;                   /* requests read of the trace; 0: all */
} sim_options;

/* What `quire sim` prints: a table, or a JSON object a line. */

/* One replay: its options and what came of it. */
typedef struct sim_row {
    kv_policy policy;
    bool unlimited; /* no capacity was set, so no policy mattered */
    replay_result result;
} sim_row;

/* Hit tokens of prompt tokens, 0..1. */
static double sim_hit_rate(const sim_row *row) {
    return row->result.prompt_tokens > 0 ? (double)row->result.hit_tokens / (double)row->result.prompt_tokens
                                         : 0;
}

/* The policy's name, or "unlimited". */
static const char *sim_row_name(const sim_row *row) {
    return row->unlimited ? "unlimited" : replay_policy_name(row->policy);
}

/* A pool without limit is as large as what was in it. */
static int32_t capacity(const sim_row *row) {
    return row->unlimited ? row->result.peak_pages : row->result.n_pages;
}

static double requests_per_s(const replay_result *r) {
    return r->seconds > 0 ? r->n_requests / r->seconds : 0;
}

/* The table's head; JSON has none. */
static void report_head(const sim_options *o, const trace *t) {
    if (o->cli.json) {
        return;
    }
    printf("%s: %s requests, %s prompt tokens, %s answer tokens; pages of %d tokens, reuse by %s, %d "
           "request%s open at once\n",
           o->trace, show_count((uint64_t)t->n_requests).text, show_count((uint64_t)t->n_prompt_tokens).text,
           show_count((uint64_t)t->n_output_tokens).text, (int)o->page_tokens,
           flag_choice_name(choices_prefix_cache, (int)o->prefix_cache), (int)o->concurrency,
           o->concurrency == 1 ? "" : "s");
    printf("%-10s %10s %8s %14s %12s %10s %10s %8s %12s\n", "policy", "pages", "hit rate", "hit tokens",
           "evictions", "peak used", "peak held", "refused", "requests/s");
}

static void print_table_row(const sim_row *row) {
    const replay_result *r = &row->result;
    printf("%-10s %10d %7.2f%% %14lld %12lld %10d %10d %8d %12.0f\n", sim_row_name(row), (int)capacity(row),
           100 * sim_hit_rate(row), (long long)r->hit_tokens, (long long)r->evictions, (int)r->peak_pages,
           (int)r->peak_held, (int)r->n_refused, requests_per_s(r));
}

static void add_count(json_out *line, const char *key, int64_t v) {
    json_int(json_name(line, key), v);
}

static void print_json_row(const sim_options *o, const sim_row *row) {
    const replay_result *r = &row->result;
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "trace"), o->trace);
    json_cstr(json_name(line, "policy"), sim_row_name(row));
    add_count(line, "pages", capacity(row));
    add_count(line, "requests", r->n_requests);
    add_count(line, "tokens", r->prompt_tokens);
    add_count(line, "hit_tokens", r->hit_tokens);
    add_count(line, "evictions", r->evictions);
    json_exact(json_name(line, "requests_per_s"), requests_per_s(r));
    json_exact(json_name(line, "hit_rate"), sim_hit_rate(row));
    json_cstr(json_name(line, "prefix_cache"), flag_choice_name(choices_prefix_cache, (int)o->prefix_cache));
    add_count(line, "page_tokens", o->page_tokens);
    add_count(line, "concurrency", o->concurrency);
    add_count(line, "peak_pages", r->peak_pages);
    add_count(line, "peak_held", r->peak_held);
    add_count(line, "refused", r->n_refused);
    json_line_print(&l);
}

/* One line, written at once. IO: standard output is full or closed; errno says why. */
static quire_err sim_report_row(const sim_options *o, const sim_row *row) {
    if (o->cli.json) {
        print_json_row(o, row);
    } else {
        print_table_row(row);
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? QUIRE_OK : QUIRE_IO;
}

/* `quire sim`: replays a request trace through the page pool, the radix index and
 * eviction, by policy and capacity, and says what was found; or serves it, simulated, and
 * says how fast. */

enum { MAX_CAPACITIES = 64, MAX_ROWS = 1 + MAX_CAPACITIES * REPLAY_N_POLICIES, DEFAULT_HALVINGS = 7 };

static void sim_defaults(cli_options *cli) {
    sim_options *o = (void *)cli;
    *o = (sim_options){.cli = o->cli,
                       .policies = "lru",
                       .prefix_cache = QUIRE_PREFIX_CACHE_TOKEN,
                       .page_tokens = 16,
                       .concurrency = 1};
    compare_options_init(&o->server);
    plan_options_init(&o->plan);
}

/* The options as parsed, and the results so far. */
typedef struct sim {
    const sim_options *o;
    trace t;
    int32_t capacities[MAX_CAPACITIES], n_capacities; /* ascending */
    bool policies[REPLAY_N_POLICIES];
    kv_granularity granularity;
    sim_row rows[MAX_ROWS];
    int32_t n_rows;
    bool shows_progress;
} sim;

static int compare_counts(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* "1000,2000" into capacities. */
static quire_err parse_pages(sim *s, quire_error *err) {
    const char *text = s->o->pages;
    for (const char *p = text; p != NULL && *p;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno != 0 || v < 1 || v >= INT32_MAX || (*end != ',' && *end != 0) ||
            s->n_capacities == MAX_CAPACITIES) {
            return err_set(err, QUIRE_INVALID, p - text,
                           "--pages %s: must be at most %d whole numbers from 1 to %d, as in 1000,2000", text,
                           (int)MAX_CAPACITIES, INT32_MAX - 1);
        }
        s->capacities[s->n_capacities++] = (int32_t)v;
        p = end + (*end == ',');
    }
    qsort(s->capacities, (size_t)s->n_capacities, sizeof *s->capacities, compare_counts);
    return text == NULL || s->n_capacities > 0 ? QUIRE_OK
                                               : err_set(err, QUIRE_INVALID, -1, "--pages: is empty");
}

/* The names of all policies, with commas between, to out. */
static void list_policies(char *out, size_t n) {
    size_t used = 0;
    for (int32_t i = 0; i < REPLAY_N_POLICIES && used < n; i++) {
        const char *name = replay_policy_name((kv_policy)i);
        used += name != NULL ? (size_t)snprintf(out + used, n - used, "%s%s", used > 0 ? ", " : "", name) : 0;
    }
}

/* "lru,belady" or "all" into policies. */
static quire_err parse_policies(sim *s, quire_error *err) {
    const char *text = s->o->policies;
    for (const char *p = text, *at = text; *p; at = p) {
        str word = figures_next_word(&p);
        bool known = false;
        for (int32_t i = 0; i < REPLAY_N_POLICIES; i++) {
            const char *name = replay_policy_name((kv_policy)i);
            bool is_named = name != NULL && (str_is(word, "all") || str_is(word, name));
            s->policies[i] |= is_named;
            known |= is_named;
        }
        if (!known) {
            char names[128];
            list_policies(names, sizeof names);
            return err_set(err, QUIRE_INVALID, at - text,
                           "--policy %s: must be all, or some of %s, as in lru,belady", text, names);
        }
    }
    return *text ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "--policy: is empty");
}

static void sim_show_progress(int32_t n_done, int32_t n_requests, void *context) {
    const sim_row *row = context;
    fprintf(stderr, "\r%s", sim_row_name(row));
    if (!row->unlimited) {
        fprintf(stderr, ", %d pages", (int)row->result.n_pages);
    }
    fprintf(stderr, ": %3.0f%%", 100.0 * n_done / n_requests);
}

/* Adds a row: a replay by a policy, with n_pages or (0) without limit. */
static quire_err sim_add_row(sim *s, kv_policy policy, int32_t n_pages, quire_error *err) {
    sim_row *row = &s->rows[s->n_rows];
    *row = (sim_row){.policy = policy, .unlimited = n_pages == 0, .result.n_pages = n_pages};
    replay_options o = {.policy = policy,
                        .n_pages = n_pages,
                        .page_tokens = s->o->page_tokens,
                        .concurrency = s->o->concurrency,
                        .granularity = s->granularity,
                        .progress = s->shows_progress ? sim_show_progress : NULL,
                        .context = row};
    quire_err e = replay_run(&s->t, &o, &row->result, err);
    if (s->shows_progress) {
        fprintf(stderr, "\r\033[K");
    }
    TRY(e);
    s->n_rows++;
    e = sim_report_row(s->o, row);
    return e == QUIRE_OK ? e
                         : err_set(err, e, -1, "standard output could not be written: %s", strerror(errno));
}

/* Without --pages: halves of what the whole trace fills, as far down as its longest
 * request fits. */
static void choose_capacities(sim *s, int32_t filled) {
    int32_t least = (s->t.longest + s->o->page_tokens - 1) / s->o->page_tokens;
    for (int32_t i = DEFAULT_HALVINGS; i >= 1; i--) {
        if (filled >> i >= least) {
            s->capacities[s->n_capacities++] = filled >> i;
        }
    }
}

/* Hit rate by capacity: a line a policy, the unlimited cache as a level. */
static quire_err draw_rows(const sim *s, quire_error *err) {
    const char *slash = strrchr(s->o->trace, '/');
    char title[256], note[160], x_title[64];
    plot_line lines[REPLAY_N_POLICIES] = {{.n = 0}};
    plot_point points[MAX_ROWS];
    snprintf(title, sizeof title, "Prompt tokens found in the cache: %s",
             show_name(str_of(slash != NULL ? slash + 1 : s->o->trace)).text);
    snprintf(note, sizeof note, "%d requests, pages of %d tokens, reuse by %s, %d open at once",
             (int)s->t.n_requests, (int)s->o->page_tokens,
             flag_choice_name(choices_prefix_cache, (int)s->o->prefix_cache), (int)s->o->concurrency);
    snprintf(x_title, sizeof x_title, "capacity in pages of %d tokens", (int)s->o->page_tokens);
    for (int32_t i = 1; i < s->n_rows; i++) {
        plot_line *l = &lines[s->rows[i].policy];
        l->name = sim_row_name(&s->rows[i]);
        l->points = l->n == 0 ? &points[i] : l->points;
        l->points[l->n++] = (plot_point){s->rows[i].result.n_pages, 100 * sim_hit_rate(&s->rows[i])};
    }
    const plot_diagram d = {.title = title,
                            .note = note,
                            .x_title = x_title,
                            .y_unit = "%",
                            .y_is_linear = true,
                            .level = 100 * sim_hit_rate(&s->rows[0]),
                            .level_name = "unlimited",
                            .lines = lines,
                            .n_lines = REPLAY_N_POLICIES};
    return plot_write(s->o->svg, &d, 1, err);
}

static quire_err sim_replay_all(sim *s, quire_error *err) {
    report_head(s->o, &s->t);
    TRY(sim_add_row(s, KV_EVICT_LRU, 0, err));
    if (s->o->pages == NULL) {
        choose_capacities(s, s->rows[0].result.peak_pages);
    }
    for (int32_t policy = 0; policy < REPLAY_N_POLICIES; policy++) {
        for (int32_t i = 0; s->policies[policy] && i < s->n_capacities; i++) {
            TRY(sim_add_row(s, (kv_policy)policy, s->capacities[i], err));
        }
    }
    return s->o->svg != NULL ? draw_rows(s, err) : QUIRE_OK;
}

/* Serves the trace, simulated. */
static quire_err sim_serve(const sim_options *o, quire_error *err) {
    trace t = {0};
    compare_options c = o->server;
    c.page_tokens = o->page_tokens;
    TRY(trace_read(o->trace, o->limit, &t, err));
    if (c.shrink > 1) {
        trace_shrink(&t, c.shrink);
    }
    quire_err e = compare_run(&c, &t, o->trace, err);
    trace_deinit(&t);
    return e;
}

/* Replays and prints to stdout; err says why it could not. */
static quire_err sim_all(const sim_options *o, quire_error *err) {
    if (o->server.all || o->server.cost != NULL || o->server.described != NULL) {
        return sim_serve(o, err);
    }
    sim *s = mem_new(1, sizeof *s);
    TRY(mem_check_for(s, "the measurement", err));
    s->o = o;
    s->shows_progress = isatty(STDERR_FILENO);
    s->granularity = o->prefix_cache == QUIRE_PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN;
    quire_err e = parse_pages(s, err);
    e = e == QUIRE_OK ? parse_policies(s, err) : e;
    e = e == QUIRE_OK ? trace_read(o->trace, o->limit, &s->t, err) : e;
    e = e == QUIRE_OK ? sim_replay_all(s, err) : e;
    trace_deinit(&s->t);
    mem_free(s);
    return e;
}

#define AT(member) .offset = offsetof(sim_options, member)

static const flag_choice reuses[] = {
    {"token", NULL, QUIRE_PREFIX_CACHE_TOKEN}, {"page", NULL, QUIRE_PREFIX_CACHE_PAGE}, {0}};

static const flag sim_flags[] = {
    {"--pages", "LIST", "capacities in pages (halves of what the whole trace fills)", TEXT(pages)},
    {"--policy", "LIST", "eviction: all, or some of lru,lfu,gdsf,learned,belady", TEXT(policies)},
    {"--page-size --block-size --page-tokens", "N", "tokens a page holds", FLAG_POWER_OF_TWO, AT(page_tokens),
     .minimum = 1, .maximum = 512},
    {"--prefix-cache", NULL, "reuse the beginnings of prompts, by token or by page", FLAG_CHOICE,
     AT(prefix_cache), .choices = reuses},
    {"--concurrency", "N", "requests open at once", COUNT(concurrency, 1, 1 << 16)},
    {"--limit", "N", "read this many requests; 0: all", COUNT(limit, 0, INT32_MAX)},
    {"--svg", "FILE", "plot hit rate against capacity", TEXT(svg)},
    {"--compare", NULL, "serve it: simulate every way to batch and to give memory", FLAG_SWITCH,
     AT(server.all)},
    {"--plan", "MODEL", "how many requests fit on a DEVICE, in the TRACE's place, and what that costs",
     TEXT(plan.model)},
    {"--prompt", "N", "with --plan: tokens of a prompt", COUNT(plan.n_prompt, 1, 1 << 24)},
    {"--output", "N", "with --plan: tokens of an answer", COUNT(plan.n_output, 1, 1 << 24)},
    {"--unused", "PERCENT", "with --plan: of what is reserved without pages",
     COUNT(plan.unused_percent, 0, 99), .rare = true},
    {"--devices", "N", "with --plan: of the fleet", COUNT(plan.n_devices, 1, 1 << 24), .rare = true},
    {0},
};

/* A flag of another of the three: a plan, a server, a replay. */
static quire_err sim_check_flags(const sim_options *o, quire_error *err) {
    const cli_options *c = &o->cli;
    const compare_options *s = &o->server;
    if (o->plan.model != NULL) {
        return unused_flags_refuse(c,
                                   "--compare --cost --described --pages --policy --svg --concurrency "
                                   "--limit --prefix-cache " SERVED_FLAGS,
                                   "with --plan, which reads no trace and takes --prompt, --output, "
                                   "--unused, --devices, --page-size and --cost-per-hour",
                                   err);
    }
    TRY(unused_flags_refuse(c, "--prompt --output --unused --devices", "without --plan", err));
    if (!s->all && s->cost == NULL && s->described == NULL) {
        return unused_flags_refuse(
            c, SERVED_FLAGS " --cost-per-hour",
            "without a server that is simulated: give --described MODEL,DEVICE or --cost FILE", err);
    }
    TRY(unused_flags_refuse(c, "--pages --policy --svg --concurrency",
                            "where a server is simulated: it is of the prefix cache alone", err));
    if (s->all) {
        TRY(unused_flags_refuse(c, "--prefix-cache", "with --compare, whose servers have every kind of it",
                                err));
    }
    return QUIRE_OK;
}

static quire_err sim_run(const cli_options *cli, quire_error *err) {
    sim_options own = *(const sim_options *)(const void *)cli;
    TRY(sim_check_flags(&own, err));
    if (own.plan.model != NULL) {
        plan_options *plan = &own.plan;
        if (cli->argument == NULL) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--plan %s needs a DEVICE after it, as in --plan %s a100-40gb", plan->model,
                           plan->model);
        }
        plan->device = cli->argument;
        plan->page_tokens = own.page_tokens;
        plan->cost_per_hour = own.server.cost_per_hour > 0 ? own.server.cost_per_hour : plan->cost_per_hour;
        plan->json = cli->json;
        return plan_run(plan, err);
    }
    if (!cli->argument) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire sim needs a TRACE: a file of requests; `quire sim --help` names the formats");
    }
    TRY(files_check_named("--svg", own.svg, err));
    own.trace = cli->argument;
    own.server.prefix_cache = own.prefix_cache;
    own.server.json = cli->json;
    return sim_all(&own, err);
}

LAB_COMMAND(
    sim, "sim", " TRACE [--pages LIST] [--policy LIST|all]", ARGUMENT_TRACE,
    "hit rate of a prefix cache by size and policy, on a trace of requests",
    "  quire sim conversation.jsonl --pages 100000,400000 --policy all --svg hits.svg\n"
    "  quire sim conversation.jsonl --compare --described llama-3-8b,a100-80gb --slo first=5,gap=0.1\n"
    "  quire sim --plan llama-2-7b a100-40gb\n"
    "a trace: Mooncake's jsonl (timestamp, input_length, output_length, hash_ids), Azure's csv, or a "
    "line a request:\n"
    "  {\"t\": 1.5, \"tenant\": \"a\", \"prompt\": [[\"system\", 2000], [\"user 7\", 30]], \"output\": "
    "[[\"answer 7\", 150]]}\n"
    "where [\"name\", n] is the first n tokens of the text of that name, a number in the list a token "
    "id, and a number\n"
    "in its place so many tokens that no other request has; t in seconds\n",
    sim_flags, flags_served_by, flags_served, flags_json, flags_help, flags_help_all);

/* `quire sim`: replays a request trace through the page pool, the radix index and eviction,
 * by policy and capacity, and prints what was found. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/files.h"
#include "file/show.h"
#include "lab/commands/measures.h"
#include "lab/sim/replay.h"
#include "lab/sim/trace_read.h"
#include "options/engine_flags.h"

typedef struct sim_options {
    cli_options cli; /* its argument: a file, in a format of lab/sim/trace_read.h */
    /* capacities in pages, "1000,2000"; NULL: from what the trace fills down to a 128th
     * of it */
    const char *pages;
    const char *policies;            /* "lru,belady", or all */
    const char *svg;                 /* file for a plot of hit rate against capacity, or NULL */
    quire_prefix_cache prefix_cache; /* reuse of tokens, or of whole pages only */
    int32_t page_tokens;             /* 1..512 */
    int32_t concurrency;             /* most open requests */
    int32_t limit;                   /* requests to read from the trace; 0: all */
} sim_options;

/* One replay: its options and results. */
typedef struct sim_row {
    kv_policy policy;
    bool unlimited; /* without a limit of capacity, so that no policy matters */
    replay_result result;
} sim_row;

/* Hit tokens relative to prompt tokens, 0..1. */
static double sim_hit_rate(const sim_row *row) {
    return row->result.prompt_tokens > 0 ? (double)row->result.hit_tokens / (double)row->result.prompt_tokens
                                         : 0;
}

/* The policy's name, or "unlimited". */
static const char *sim_row_name(const sim_row *row) {
    return row->unlimited ? "unlimited" : replay_policy_names[row->policy];
}

/* The capacity of a row; of an unlimited pool, the pages it used. */
static int32_t capacity(const sim_row *row) {
    return row->unlimited ? row->result.peak_pages : row->result.n_pages;
}

static const table_column sim_columns[] =
    TABLE_OF(WORD("trace", NULL, 0), WORD("policy", "policy", 10), KEY("pages", "pages", 10, 0),
             KEY("requests", NULL, 0, 0), KEY("tokens", NULL, 0, 0), KEY("hit_rate", NULL, 0, 4),
             KEY("hit_percent", "hit %", 8, 2), KEY("hit_tokens", "hit tokens", 14, 0),
             KEY("evictions", "evictions", 12, 0), KEY("peak_pages", "peak used", 10, 0),
             KEY("peak_held", "peak held", 10, 0), KEY("refused", "refused", 8, 0),
             KEY("requests_per_s", "requests/s", 12, 0), WORD("prefix_cache", NULL, 0),
             KEY("page_tokens", NULL, 0, 0), KEY("concurrency", NULL, 0, 0));

static void report_head(const sim_options *o, const bench_table *table, const trace *t) {
    char heading[1024];
    snprintf(heading, sizeof heading,
             "%.200s: %s requests, %s prompt tokens, %s answer tokens; pages of %d tokens, reuse by %s, %d "
             "request%s open at once",
             o->cli.argument, show_count((uint64_t)t->n_requests).text,
             show_count((uint64_t)t->n_prompt_tokens).text, show_count((uint64_t)t->n_output_tokens).text,
             (int)o->page_tokens, flag_choice_name(choices_prefix_cache, (int)o->prefix_cache),
             (int)o->concurrency, o->concurrency == 1 ? "" : "s");
    table_begin(table, heading);
}

/* Prints one row at once. IO: standard output is full or closed; errno says why. */
static quire_err sim_report_row(const sim_options *o, const bench_table *table, const sim_row *row) {
    const replay_result *r = &row->result;
    TABLE_ROW(table, TXT(o->cli.argument), TXT(sim_row_name(row)), NUM(capacity(row)), NUM(r->n_requests),
              NUM(r->prompt_tokens), NUM(sim_hit_rate(row)), NUM(100 * sim_hit_rate(row)), NUM(r->hit_tokens),
              NUM(r->evictions), NUM(r->peak_pages), NUM(r->peak_held), NUM(r->n_refused),
              NUM(r->seconds > 0 ? r->n_requests / r->seconds : 0),
              TXT(flag_choice_name(choices_prefix_cache, (int)o->prefix_cache)), NUM(o->page_tokens),
              NUM(o->concurrency));
    return fflush(stdout) == 0 && !ferror(stdout) ? QUIRE_OK : QUIRE_IO;
}

enum { MAX_ROWS = 1 + FIGURES_MAX_POINTS * REPLAY_N_POLICIES, DEFAULT_HALVINGS = 7 };

static void sim_defaults(cli_options *cli) {
    sim_options *o = (void *)cli;
    *o = (sim_options){.cli = o->cli,
                       .policies = "lru",
                       .prefix_cache = QUIRE_PREFIX_CACHE_TOKEN,
                       .page_tokens = 16,
                       .concurrency = 1};
}

/* The parsed options, and the results so far. */
typedef struct sim {
    const sim_options *o;
    bench_table table;
    trace t;
    int32_t capacities[FIGURES_MAX_POINTS], n_capacities; /* ascending */
    int32_t policies[REPLAY_N_POLICIES], n_policies;      /* of kv_policy */
    kv_granularity granularity;
    sim_row rows[MAX_ROWS];
    int32_t n_rows;
    bool shows_progress;
} sim;

static int compare_counts(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void sim_show_progress(int32_t n_done, int32_t n_requests, void *context) {
    const sim_row *row = context;
    fprintf(stderr, "\r%s", sim_row_name(row));
    if (!row->unlimited) {
        fprintf(stderr, ", %d pages", (int)row->result.n_pages);
    }
    fprintf(stderr, ": %3.0f%%", 100.0 * n_done / n_requests);
}

/* Adds a row: a replay with a policy and n_pages pages; 0: unlimited. */
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
    e = sim_report_row(s->o, &s->table, row);
    return err_set(err, e, -1, "standard output could not be written: %s", strerror(errno));
}

/* Without --pages: repeatedly halves what the whole trace fills, as long as its longest
 * request fits. */
static void choose_capacities(sim *s, int32_t filled) {
    int32_t least = (s->t.longest + s->o->page_tokens - 1) / s->o->page_tokens;
    for (int32_t i = DEFAULT_HALVINGS; i >= 1; i--) {
        if (filled >> i >= least) {
            s->capacities[s->n_capacities++] = filled >> i;
        }
    }
}

/* The plot of --svg: lines of points in a frame, x logarithmic and y in percent from 0; a
 * dashed horizontal line at the level. */

/* In pixels: the picture, and the frame in it. */
enum {
    WIDTH = 760,
    HEIGHT = 400,
    LEFT = 70,
    RIGHT = 580,
    TOP = 56,
    BOTTOM = 340,
    LEGEND_STEP = 20,
    N_COLOURS = 9
};

/* Distinguishable with colour blindness (Okabe and Ito 2008). */
static const char *const colours[N_COLOURS] = {"#000000", "#d55e00", "#e69f00", "#cc79a7", "#56b4e9",
                                               "#0072b2", "#009e73", "#f0e442", "#999999"};

typedef struct plot {
    strbuf *out;
    const sim *s;
    double level;      /* hit rate of an unlimited cache */
    double x0, x1, y1; /* values at the frame's edges; x: logarithms */
    int32_t n_named;   /* entries of the legend so far */
} plot;

static double plot_x(const plot *p, double x) {
    return LEFT + (RIGHT - LEFT) * (log10(x) - p->x0) / (p->x1 - p->x0);
}

static double plot_y(const plot *p, double y) {
    return BOTTOM - (BOTTOM - TOP) * y / p->y1;
}

static void plot_scale(plot *p) {
    p->x0 = INFINITY;
    p->x1 = -INFINITY;
    p->y1 = 1.05 * p->level;
    for (int32_t i = 1; i < p->s->n_rows; i++) {
        double x = log10(p->s->rows[i].result.n_pages);
        p->x0 = fmin(p->x0, x - 0.02);
        p->x1 = fmax(p->x1, x + 0.02);
        p->y1 = fmax(p->y1, 100 * sim_hit_rate(&p->s->rows[i]) + 0.05);
    }
    if (p->x0 > p->x1) { /* no capacity holds the longest request */
        p->x0 = 0;
        p->x1 = 1;
    }
}

/* Adds untrusted text, escaped for XML. */
static quire_err plot_add_text(strbuf *b, const char *text) {
    for (const char *s = text; *s; s++) {
        bool plain = *s != '<' && *s != '>' && *s != '&' && *s != '"';
        TRY(plain ? strbuf_add_char(b, *s) : strbuf_addf(b, "&#%d;", *s));
    }
    return QUIRE_OK;
}

static quire_err plot_add_label(const plot *p, double x, double y, const char *anchor, const char *text) {
    TRY(strbuf_addf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor));
    TRY(plot_add_text(p->out, text));
    return strbuf_add_str(p->out, "</text>\n");
}

static quire_err plot_add_rule(const plot *p, double x0, double y0, double x1, double y1, const char *style) {
    return strbuf_addf(p->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x0, y0, x1, y1,
                       style);
}

/* Adds a grid line at v with its label. */
static quire_err plot_add_tick(const plot *p, bool is_x, double v) {
    static const char style[] = "stroke=\"#ddd\"";
    char text[32];
    snprintf(text, sizeof text, is_x ? "%g" : "%g%%", v);
    if (is_x) {
        double x = plot_x(p, v);
        TRY(plot_add_rule(p, x, TOP, x, BOTTOM, style));
        return plot_add_label(p, x, BOTTOM + 16, "middle", text);
    }
    double y = plot_y(p, v);
    TRY(plot_add_rule(p, LEFT, y, RIGHT, y, style));
    return plot_add_label(p, LEFT - 6, y + 4, "end", text);
}

/* Adds grid lines: x at 1, 2 and 5 of every power of ten, y at even steps. */
static quire_err plot_add_ticks(const plot *p) {
    static const double steps[] = {1, 2, 5};
    for (int i = 3 * (int)floor(p->x0); i < 3 * (int)ceil(p->x1); i++) {
        int power = (i - ((i % 3) + 3) % 3) / 3;
        double v = steps[((i % 3) + 3) % 3] * pow(10, power);
        if (log10(v) > p->x0 && log10(v) < p->x1) {
            TRY(plot_add_tick(p, true, v));
        }
    }
    double power = pow(10, floor(log10(p->y1))), step = p->y1 / power > 5 ? power : power / 5;
    for (double v = 0; v <= p->y1; v += step) {
        TRY(plot_add_tick(p, false, v));
    }
    return QUIRE_OK;
}

static quire_err plot_add_legend(plot *p, const char *style, const char *name) {
    int32_t y = TOP + 10 + p->n_named++ * LEGEND_STEP;
    TRY(plot_add_rule(p, RIGHT + 12, y, RIGHT + 38, y, style));
    return plot_add_label(p, RIGHT + 44, y + 4, "start", name);
}

/* Adds the line of the rows first .. end, which have one policy. */
static quire_err plot_add_line(plot *p, int32_t first, int32_t end, const char *colour) {
    char style[64];
    const sim_row *rows = p->s->rows;
    snprintf(style, sizeof style, "stroke=\"%s\" stroke-width=\"2\"", colour);
    TRY(strbuf_add_str(p->out, "<polyline points=\""));
    for (int32_t i = first; i < end; i++) {
        TRY(strbuf_addf(p->out, "%s%.1f,%.1f", i > first ? " " : "", plot_x(p, rows[i].result.n_pages),
                        plot_y(p, 100 * sim_hit_rate(&rows[i]))));
    }
    TRY(strbuf_addf(p->out, "\" fill=\"none\" %s/>\n", style));
    for (int32_t i = first; i < end; i++) {
        TRY(strbuf_addf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                        plot_x(p, rows[i].result.n_pages), plot_y(p, 100 * sim_hit_rate(&rows[i])), colour));
    }
    return plot_add_legend(p, style, sim_row_name(&rows[first]));
}

static quire_err plot_add_level(plot *p) {
    static const char style[] = "stroke=\"#555\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"";
    TRY(plot_add_rule(p, LEFT, plot_y(p, p->level), RIGHT, plot_y(p, p->level), style));
    return plot_add_legend(p, style, "unlimited");
}

/* title, note: in printable text. */
static quire_err plot_draw(plot *p, const char *title, const char *note, const char *x_title) {
    plot_scale(p);
    TRY(strbuf_addf(p->out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
                    "%d\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" "
                    "height=\"100%%\" fill=\"white\"/>\n<g font-size=\"14\">",
                    WIDTH, HEIGHT, WIDTH, HEIGHT));
    TRY(plot_add_label(p, LEFT, 22, "start", title));
    TRY(strbuf_add_str(p->out, "</g>"));
    TRY(plot_add_label(p, LEFT, 42, "start", note));
    TRY(plot_add_ticks(p));
    TRY(strbuf_addf(p->out,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#444\"/>\n",
                    LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP));
    TRY(plot_add_label(p, (LEFT + RIGHT) / 2.0, BOTTOM + 36, "middle", x_title));
    TRY(plot_add_level(p));
    for (int32_t i = 1, end; i < p->s->n_rows; i = end) {
        const kv_policy policy = p->s->rows[i].policy;
        for (end = i; end < p->s->n_rows && p->s->rows[end].policy == policy; end++) {
        }
        TRY(plot_add_line(p, i, end, colours[policy % N_COLOURS]));
    }
    return strbuf_add_str(p->out, "</svg>\n");
}

/* Draws hit rate by capacity: a line per policy, the unlimited cache as the level. IO;
 * NO_MEMORY. */
static quire_err draw_rows(const sim *s, quire_error *err) {
    const char *slash = strrchr(s->o->cli.argument, '/');
    char title[256], note[160], x_title[64];
    strbuf out = {0};
    plot p = {.out = &out, .s = s, .level = 100 * sim_hit_rate(&s->rows[0])};
    snprintf(title, sizeof title, "Prompt tokens found in the cache: %s",
             show_name(str_of(slash != NULL ? slash + 1 : s->o->cli.argument)).text);
    snprintf(note, sizeof note, "%d requests, pages of %d tokens, reuse by %s, %d open at once",
             (int)s->t.n_requests, (int)s->o->page_tokens,
             flag_choice_name(choices_prefix_cache, (int)s->o->prefix_cache), (int)s->o->concurrency);
    snprintf(x_title, sizeof x_title, "capacity in pages of %d tokens", (int)s->o->page_tokens);
    quire_err e = plot_draw(&p, title, note, x_title);
    e = e == QUIRE_OK ? figures_write_file(s->o->svg, &out, err)
                      : err_set(err, e, -1, "%s: the picture: %s", s->o->svg, quire_err_text(e));
    strbuf_deinit(&out);
    return e;
}

static quire_err sim_replay_all(sim *s, quire_error *err) {
    report_head(s->o, &s->table, &s->t);
    TRY(sim_add_row(s, KV_EVICT_LRU, 0, err));
    if (s->o->pages == NULL) {
        choose_capacities(s, s->rows[0].result.peak_pages);
    }
    for (int32_t i = 0; i < s->n_policies * s->n_capacities; i++) {
        const kv_policy policy = (kv_policy)s->policies[i / s->n_capacities];
        TRY(sim_add_row(s, policy, s->capacities[i % s->n_capacities], err));
    }
    return s->o->svg != NULL ? draw_rows(s, err) : QUIRE_OK;
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
    {0},
};

static quire_err sim_run(const cli_options *cli, quire_error *err) {
    const sim_options *o = (const void *)cli;
    if (!cli->argument) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire sim needs a TRACE: a file of requests; `quire sim --help` names the formats");
    }
    TRY(files_check_named("--svg", o->svg, err));
    sim *s = mem_new(1, sizeof *s);
    TRY(mem_check_for(s, "the measurement", err));
    s->o = o;
    s->table = (bench_table){"sim", TABLE_COLUMNS(sim_columns), o->cli.json};
    s->shows_progress = isatty(STDERR_FILENO);
    s->granularity = o->prefix_cache == QUIRE_PREFIX_CACHE_PAGE ? KV_GRANULARITY_PAGE : KV_GRANULARITY_TOKEN;
    quire_err e = o->pages != NULL
                      ? figures_parse_list("--pages", o->pages, s->capacities, &s->n_capacities, err)
                      : QUIRE_OK;
    qsort(s->capacities, (size_t)s->n_capacities, sizeof *s->capacities, compare_counts);
    TRY_DONE(e, FIGURES_PARSE_NAMES("--policy", o->policies, replay_policy_names, s->policies, &s->n_policies,
                                    err));
    TRY_DONE(e, trace_read(cli->argument, o->limit, &s->t, err));
    TRY_DONE(e, sim_replay_all(s, err));
done:
    trace_deinit(&s->t);
    mem_free(s);
    return e;
}

LAB_COMMAND(
    sim, "sim", " TRACE [--pages LIST] [--policy LIST|all]", ARGUMENT_TRACE,
    "hit rate of a prefix cache by size and policy, on a trace of requests",
    "  quire sim conversation.jsonl --pages 100000,400000 --policy all --svg hits.svg\n"
    "a trace: Mooncake's jsonl (timestamp, input_length, output_length, hash_ids), Azure's csv, or a "
    "line a request:\n"
    "  {\"t\": 1.5, \"tenant\": \"a\", \"prompt\": [[\"system\", 2000], [\"user 7\", 30]], \"output\": "
    "[[\"answer 7\", 150]]}\n"
    "where [\"name\", n] is the first n tokens of the text of that name, a number in the list a token "
    "id, and a number\n"
    "in its place so many tokens that no other request has; t in seconds\n",
    sim_flags, flags_json, flags_help);

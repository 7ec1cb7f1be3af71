/* `quire bench headline [MODEL]`: what paging and continuous batching are worth, measured
 * as in the papers: memory is a share of what all requests would take at the longest
 * length, and requests arrive as a Poisson process, at rising rates until the queue grows.
 * Each gain is shown with the published one, the one that this machine's step cost allows,
 * and the simulator's for this machine and for the published device. With one compute
 * thread, time (also of arrivals) is CPU time. */

#include "lab/bench/headline_case.h"
#include "lab/commands/measures.h"
#include "lab/sim/trace_read.h"

static const char NAME[] = "headline";

/* ---- ways ---- */

static double bench_headline_over(double a, double b) {
    return a > 0 && b > 0 ? a / b : TABLE_ABSENT; /* 0: not run */
}

/* The highest rate under the bound; absent if no rate was beyond the bound, or none
 * within it. */
static double highest_of(const headline_sweep *s) {
    return s->n_loads > 0 && s->is_between ? s->highest : TABLE_ABSENT;
}

static void print_ways(const headline_case *c, const char *requests, bool json) {
    TABLE(s, NAME, json, WORD("lengths", "", 9), KEY("share", "%", 3, 0), WORD("way", "way", 19),
          FIGURE("steps", "steps", 6, 0, "steps"), FIGURE("rows", "rows", 7, 0, "rows"),
          FIGURE("at_once", "at once", 7, 2, "sequences"), FIGURE("live", "live %", 6, 1, "%"),
          FIGURE("preemptions", "preempted", 9, 0, "times"), FIGURE("copied", "copied", 8, 0, "tokens"),
          FIGURE("speed", "tokens/s", 9, 1, "tokens/s"),
          FIGURE("simulated_speed", "simulated", 9, 1, "tokens/s"), FIGURE("speed_off", "off %", 6, 1, "%"),
          FIGURE("highest_rate", "highest/s", 9, 3, "requests/s"),
          FIGURE("simulated_rate", "simulated", 9, 3, "requests/s"), FIGURE("rate_off", "off %", 6, 1, "%"));
    char heading[768];
    snprintf(heading, sizeof heading,
             "\n%s: memory for %lld tokens, %.0f%% of what all take fully reserved. All at once: counts and "
             "speed; then the highest rate of arrivals with %.2f ms a token",
             requests, (long long)c->server.kv_tokens, c->share, c->bound * 1e3);
    table_begin(&s, heading);
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        const headline_sweep *r = &c->real[w], *m = &c->simulated[w];
        double rate = highest_of(r), simulated = highest_of(m);
        TABLE_ROW(&s, TXT(c->lengths), NUM(c->share), TXT(headline_way_name(w)), NUM(r->burst.n_steps),
                  NUM(r->burst.work.rows), NUM(r->burst.at_once), NUM(100 * r->burst.live),
                  NUM(r->burst.n_preemptions), NUM(r->burst.work.copied), NUM(r->burst.tokens_s),
                  NUM(m->burst.tokens_s > 0 ? m->burst.tokens_s : TABLE_ABSENT),
                  NUM(100 * (bench_headline_over(m->burst.tokens_s, r->burst.tokens_s) - 1)), NUM(rate),
                  NUM(simulated), NUM(100 * (bench_headline_over(simulated, rate) - 1)));
    }
    table_note(&s, "published, live: 20.4 to 38.2%% with pieces, near 100%% with pages (R6); waste 60-80%% "
                   "and under 4%% (W1)");
}

/* ---- gains ---- */

static const struct gain {
    headline_way of, than;
    const char *published;
} gains[] = {{HEADLINE_PAGED, HEADLINE_STATIC, "to 22x (R4), 24x (W2)"},
             {HEADLINE_PAGED, HEADLINE_MAX, "2-4x (R3)"},
             {HEADLINE_PAGED, HEADLINE_POW2, "2-4x (R3)"},
             {HEADLINE_PAGED, HEADLINE_ORACLE, "1.7-2.7x (R5)"},
             {HEADLINE_PAGED, HEADLINE_GROWING, "0.86-0.97x (B21)"},
             {HEADLINE_MAX, HEADLINE_STATIC, "1.3-1.5x (R21)"},
             {HEADLINE_CACHED, HEADLINE_PAGED, "nearly 1x, alone (R10)"},
             {HEADLINE_SWAPPED, HEADLINE_PAGED, "0.8-1x or 1-5x (R16)"},
             {HEADLINE_PAGED, HEADLINE_PLANNER, "-"}};
enum { N_GAINS = (int)(sizeof gains / sizeof *gains) };

static double rate_gain(const headline_sweep *sweeps, const struct gain *g) {
    return bench_headline_over(highest_of(&sweeps[g->of]), highest_of(&sweeps[g->than]));
}

static double speed_gain(const headline_sweep *sweeps, const struct gain *g) {
    return bench_headline_over(sweeps[g->of].burst.tokens_s, sweeps[g->than].burst.tokens_s);
}

/* The part reached of the speed allowed by the step costs around the way's own run. */
static double reached(const headline_case *c, headline_way w) {
    const headline_load *load = &c->real[w].burst;
    return headline_allowed_us(&c->real[w].burst_cost, load) * load->tokens_s;
}

static void bench_headline_print_gains(const headline_case *c, bool json) {
    TABLE(s, NAME, json, WORD("lengths", "", 9), KEY("share", "%", 3, 0), WORD("of", "gain of", 19),
          WORD("than", "over", 18), REMARK("published", "published", 23),
          FIGURE("at_once_gain", "at once", 7, 2, "x"), FIGURE("speed_gain", "tokens/s", 8, 2, "x"),
          FIGURE("allowed_gain", "allowed", 7, 2, "x"), FIGURE("reached", "reached", 7, 2, "x"),
          FIGURE("simulated_gain", "simulated", 9, 2, "x"), FIGURE("device_gain", "A100", 6, 2, "x"),
          FIGURE("rate_gain", "highest/s", 9, 2, "x"), FIGURE("simulated_rate_gain", "simulated", 9, 2, "x"),
          FIGURE("device_rate_gain", "A100", 6, 2, "x"));
    table_begin(&s, "");
    for (int i = 0; i < N_GAINS; i++) {
        const struct gain *g = &gains[i];
        const headline_load *a = &c->real[g->of].burst, *b = &c->real[g->than].burst;
        double allowed =
            bench_headline_over(headline_allowed_us(&c->cost, b), headline_allowed_us(&c->cost, a));
        TABLE_ROW(&s, TXT(c->lengths), NUM(c->share), TXT(headline_way_name(g->of)),
                  TXT(headline_way_name(g->than)), TXT(g->published),
                  NUM(bench_headline_over(a->at_once, b->at_once)), NUM(speed_gain(c->real, g)), NUM(allowed),
                  NUM(bench_headline_over(reached(c, g->of), reached(c, g->than))),
                  NUM(speed_gain(c->simulated, g)), NUM(speed_gain(c->device, g)), NUM(rate_gain(c->real, g)),
                  NUM(rate_gain(c->simulated, g)), NUM(rate_gain(c->device, g)));
    }
    table_note(&s, "allowed: by what a step costs here for the work that each did (counted); reached: of "
                   "that, by what steps cost right before and after each; A100: opt-13b on a100-40gb, "
                   "simulated, in as many tokens of memory, its rates with more such requests and a bound of "
                   "its own; published requests at once: 2.2x those of the oracle (R5), 4-10x (L9); -: not "
                   "run, or the queue of so few requests never grows to the bound");
}

/* ---- loads ---- */

static double simulated_latency(const headline_sweep *s, double rate) {
    for (int32_t i = 0; i < s->n_loads; i++) {
        if (s->loads[i].rate == rate) {
            return s->loads[i].latency;
        }
    }
    return TABLE_ABSENT;
}

static void print_loads(const headline_case *c, bool json) {
    TABLE(s, NAME, json, WORD("lengths", "", 9), KEY("share", "%", 3, 0), WORD("way", "way", 19),
          KEY("rate", "rate/s", 9, 3), FIGURE("latency", "ms a token", 10, 2, "ms"),
          FIGURE("simulated_latency", "simulated", 10, 2, "ms"),
          FIGURE("load_at_once", "at once", 7, 2, "sequences"),
          FIGURE("load_speed", "tokens/s", 9, 1, "tokens/s"),
          FIGURE("load_preemptions", "preempted", 9, 0, "times"));
    table_begin(&s, "");
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        for (int32_t i = 0; i < c->real[w].n_loads; i++) {
            const headline_load *r = &c->real[w].loads[i];
            TABLE_ROW(&s, TXT(c->lengths), NUM(c->share), TXT(headline_way_name(w)), NUM(r->rate),
                      NUM(r->latency * 1e3), NUM(simulated_latency(&c->simulated[w], r->rate) * 1e3),
                      NUM(r->at_once), NUM(r->tokens_s), NUM(r->n_preemptions));
        }
    }
}

/* ---- what a step costs ---- */

static void print_cost(const headline_case *c, bool json) {
    TABLE(s, NAME, json, WORD("lengths", "", 9), KEY("share", "%", 3, 0), KEY("step_rows", "rows", 6, 0),
          FIGURE("step", "step us", 10, 1, "us"), FIGURE("row", "us a row", 10, 1, "us"),
          FIGURE("gain", "of one row", 10, 2, "x"));
    const cost_model *m = &c->cost;
    double alone = cost_of(m, &(step_work){.rows = 1, .out = 1});
    table_begin(&s, "\nWhat a step costs here by rows that decode, without attention, and how many times the "
                    "tokens a second of one row it gives");
    for (int32_t i = 0; cost_knot(i) <= 64; i++) {
        int32_t rows = cost_knot(i);
        double us = cost_of(m, &(step_work){.rows = rows, .out = rows});
        TABLE_ROW(&s, TXT(c->lengths), NUM(c->share), NUM(rows), NUM(us), NUM(us / rows),
                  NUM(rows * alone / us));
    }
    table_note(
        &s,
        "fitted to steps of known content, measured before and after each load, off by %.1f%%; a row and a "
        "token that it attends to %.4f us more when it decodes, %.4f in a prompt; a token's keys and values "
        "moved %.3f us; %d of %d loads ran again, since what steps cost changed by over %.0f%% around them",
        100 * c->cost_off, m->decode_pair_us, m->prefill_pair_us, m->copy_us, (int)c->n_again,
        (int)c->n_loads, 100 * HEADLINE_STEADY);
}

/* Prints each way's figures, the gains, the loads, and what a step costs by rows.
 * requests: their description, for people. */
static void headline_print_case(const headline_case *c, const char *requests, bool json) {
    print_ways(c, requests, json);
    bench_headline_print_gains(c, json);
    print_loads(c, json);
    print_cost(c, json);
}

typedef struct bench_headline_options {
    cli_options cli;
    /* random weights of a published shape instead of a model, and their type; NULL:
     * none */
    const char *shape, *type;
    const char *lengths; /* distributions of lengths, "sharegpt,alpaca" */
    const char *trace;   /* a file of requests instead (lab/sim/trace_read.h); NULL: none */
    const char *shares;  /* shares of the memory, in percent: "5,10,20" */
    const char *rates;   /* rates, in percent of the throughput in requests per second of all at once */
    int32_t n_requests, shrink; /* shrink: lengths, and the longest sequence, are divided by it */
    int32_t n_draws;            /* draws of arrivals per rate, which are averaged */
    int32_t n_runs;
    bool quick; /* small defaults for options that are not given */
} bench_headline_options;

enum { MAX_CASES = 16, MANY = 500, LONGEST = 2048, LEAST_SEQUENCES = 2, SEED = 1 };
static const char DEVICE_MODEL[] = "opt-13b", DEVICE[] = "a100-40gb";

static void bench_headline_defaults(cli_options *cli) {
    bench_headline_options *o = (void *)cli;
    *o = (bench_headline_options){.cli = o->cli, .n_draws = 1, .type = "q4_0", .n_runs = 1, .shrink = 1};
    o->cli.engine.n_threads = 1;
}

/* Sets options that were not given. */
static bench_headline_options filled(const bench_headline_options *given) {
    bench_headline_options o = *given;
    bool small = o.quick || o.shape != NULL;
    o.lengths = o.lengths != NULL ? o.lengths : small ? "sharegpt" : "sharegpt,alpaca";
    o.shares = o.shares != NULL ? o.shares : small ? "10" : "5,10,20";
    o.rates = o.rates != NULL ? o.rates : o.quick ? "70,130" : "70,100,130";
    o.n_requests = o.n_requests > 0 ? o.n_requests : o.trace != NULL ? 0 : o.shape != NULL ? 30 : 40;
    o.cli.engine.model = o.cli.engine.model != NULL ? o.cli.engine.model : "builtin";
    o.cli.engine.page_tokens = HEADLINE_PAGE;
    o.cli.engine.max_model_len =
        o.cli.engine.max_model_len > 0 ? o.cli.engine.max_model_len : LONGEST / o.shrink;
    return o;
}

typedef struct headline {
    bench_headline_options o;
    model_runner b;
    /* many: MANY requests of the same kind; for a file, the same requests */
    trace traces[MAX_CASES], many[MAX_CASES];
    char names[MAX_CASES][32]; /* names of the distributions, in the order of the traces */
    int32_t n_traces;
    int32_t shares[FIGURES_MAX_POINTS], n_shares, rates[FIGURES_MAX_POINTS], n_rates;
    cost_model device;
    headline_case cases[MAX_CASES];
    int32_t n_cases;
    char machine[256];
} headline;

/* ---- requests ---- */

static quire_err bench_headline_make_trace(const headline *h, const char *lengths, int32_t n_requests,
                                           trace *out, quire_error *err) {
    const bench_headline_options *o = &h->o;
    if (o->trace != NULL) {
        TRY(trace_read(o->trace, o->n_requests, out, err));
        arrivals_space(out, 1, SEED);
    } else {
        arrivals_options a = {.lengths = lengths,
                              .rate = 1,
                              .n = n_requests,
                              .most = o->cli.engine.max_model_len * o->shrink - 2 * o->shrink,
                              .seed = SEED};
        TRY(arrivals_make(&a, out, err));
    }
    if (o->shrink > 1) {
        trace_shrink(out, o->shrink);
    }
    return QUIRE_OK;
}

static quire_err make_traces(headline *h, quire_error *err) {
    const char *p = h->o.trace != NULL ? "trace" : h->o.lengths;
    while (*p != 0) {
        str name = figures_next_word(&p);
        if (h->n_traces == MAX_CASES || name.n >= sizeof h->names[0]) {
            return err_set(err, QUIRE_INVALID, -1, "--lengths %s: must be one or some of %s", h->o.lengths,
                           arrivals_names);
        }
        snprintf(h->names[h->n_traces], sizeof h->names[0], "%.*s", (int)name.n, name.p);
        trace *t = &h->traces[h->n_traces], *many = &h->many[h->n_traces];
        const int32_t n = h->o.n_requests;
        TRY(bench_headline_make_trace(h, h->names[h->n_traces], n, t, err));
        TRY(bench_headline_make_trace(h, h->names[h->n_traces++], n > MANY ? n : MANY, many, err));
        if (t->longest > h->o.cli.engine.max_model_len) {
            return err_set(err, QUIRE_INVALID, -1,
                           "a request of %d tokens: --max-model-len is %d; shrink the requests",
                           (int)t->longest, (int)h->o.cli.engine.max_model_len);
        }
    }
    return QUIRE_OK;
}

/* ---- memory ---- */

/* Tokens that a share of the memory holds, in whole pages. */
static int64_t kv_tokens_of(const headline *h, const trace *t, int32_t share) {
    int64_t all = (int64_t)t->n_requests * h->o.cli.engine.max_model_len;
    return all * share / 100 / HEADLINE_PAGE * HEADLINE_PAGE;
}

static quire_err make_cases(headline *h, quire_error *err) {
    const quire_options *e = &h->o.cli.engine;
    for (int32_t i = 0; i < h->n_traces; i++) {
        for (int32_t k = 0; k < h->n_shares; k++) {
            int64_t kv_tokens = kv_tokens_of(h, &h->traces[i], h->shares[k]);
            if (h->n_cases == MAX_CASES || kv_tokens > INT32_MAX ||
                kv_tokens < (int64_t)LEAST_SEQUENCES * e->max_model_len) {
                return err_set(err, QUIRE_INVALID, -1,
                               "--shares %s of %d requests of at most %d tokens: each must hold %d such "
                               "requests, and there are at most %d cases",
                               h->o.shares, (int)h->traces[i].n_requests, (int)e->max_model_len,
                               LEAST_SEQUENCES, MAX_CASES);
            }
            h->cases[h->n_cases++] = (headline_case){.lengths = h->names[i],
                                                     .share = h->shares[k],
                                                     .server = {.kv_tokens = kv_tokens,
                                                                .pads_unread = true,
                                                                .piece_tokens = HEADLINE_PAGE,
                                                                .page_tokens = HEADLINE_PAGE,
                                                                .max_model_len = e->max_model_len,
                                                                .max_rows = e->max_batched_tokens,
                                                                .max_seqs = e->max_seqs}};
        }
    }
    return QUIRE_OK;
}

/* ---- the run ---- */

static quire_err bench_headline_open_model(headline *h, quire_error *err) {
    int32_t n_pages = 0;
    for (int32_t i = 0; i < h->n_cases; i++) {
        int32_t n = (int32_t)(h->cases[i].server.kv_tokens / HEADLINE_PAGE);
        n += headline_padding_pages(n, h->o.cli.engine.max_model_len);
        n_pages = n > n_pages ? n : n_pages;
    }
    TRY(MODEL_RUNNER_OPEN(&h->b, err, .engine = &h->o.cli.engine, .page_tokens = HEADLINE_PAGE,
                          .n_pages = n_pages, .max_rows = h->o.cli.engine.max_batched_tokens,
                          .max_seqs = h->o.cli.engine.max_seqs, .max_len = h->o.cli.engine.max_model_len));
    snprintf(h->machine, sizeof h->machine, "%s, compute %s, KV %s, %s, %s", h->b.desc->name,
             compute_name(h->b.b->compute), h->b.layout.type_name, h->b.b->ops->describe(h->b.b),
             figures_time_name(h->o.cli.engine.n_threads));
    return QUIRE_OK;
}

static quire_err bench_headline_run_cases(headline *h, quire_error *err) {
    for (int32_t i = 0; i < h->n_cases; i++) {
        headline_case *c = &h->cases[i];
        trace *t = &h->traces[i / h->n_shares];
        headline_case_options o = {.b = &h->b,
                                   .t = t,
                                   .many = &h->many[i / h->n_shares],
                                   .device = &h->device,
                                   .rates = h->rates,
                                   .n_rates = h->n_rates,
                                   .n_draws = h->o.n_draws,
                                   .n_runs = h->o.n_runs};
        char requests[512];
        snprintf(requests, sizeof requests,
                 "%s; %d requests like %s, mean prompt %.0f, answer %.0f, longest %d", h->machine,
                 (int)t->n_requests, c->lengths, (double)t->n_prompt_tokens / t->n_requests,
                 (double)t->n_output_tokens / t->n_requests, (int)h->o.cli.engine.max_model_len);
        TRY(headline_case_run(&o, c, err));
        headline_print_case(c, requests, h->o.cli.json);
    }
    return QUIRE_OK;
}

static quire_err run_headline(headline *h, quire_error *err) {
    TRY(figures_parse_list("--shares", h->o.shares, h->shares, &h->n_shares, err));
    for (int32_t i = 0; i < h->n_shares; i++) {
        if (h->shares[i] > 100) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--shares %s: in percent of what all requests take fully reserved, so at most 100",
                           h->o.shares);
        }
    }
    TRY(figures_parse_list("--rates", h->o.rates, h->rates, &h->n_rates, err));
    if (h->n_rates > HEADLINE_MAX_LOADS / 2) {
        return err_set(err, QUIRE_INVALID, -1, "--rates %s: must be at most %d", h->o.rates,
                       HEADLINE_MAX_LOADS / 2);
    }
    TRY(cost_describe(DEVICE_MODEL, DEVICE, &h->device, err));
    TRY(make_traces(h, err));
    TRY(make_cases(h, err));
    TRY(bench_headline_open_model(h, err));
    return bench_headline_run_cases(h, err);
}

static quire_err bench_headline_run(const cli_options *cli, quire_error *err) {
    const bench_headline_options *o = (const void *)cli;
    synthetic made;
    if (o->trace != NULL) {
        TRY(unused_flags_refuse(cli, "--lengths", "with --trace, whose requests have their own", err));
    }
    if (o->shape != NULL && cli->engine.model != NULL) {
        return err_set(err, QUIRE_INVALID, -1, "a MODEL or --shape is run, not both");
    }
    if (o->lengths != NULL && o->lengths[0] == '\0') {
        return err_set(err, QUIRE_INVALID, -1, "--lengths: is empty; it must be one or some of %s",
                       arrivals_names);
    }
    headline *h = mem_new(1, sizeof *h);
    TRY(mem_check_for(h, "the cases", err));
    h->o = filled(o);
    quire_err e = shaped_open(cli, o->shape, o->type, o->shape != NULL ? SHAPED_IDS : SHAPED_NOT,
                              &h->o.cli.engine, &made, err);
    TRY_DONE(e, run_headline(h, err));
done:
    synthetic_close(&made);
    model_runner_close(&h->b);
    for (int32_t i = 0; i < MAX_CASES; i++) {
        trace_deinit(&h->traces[i]);
        trace_deinit(&h->many[i]);
    }
    mem_free(h);
    return e;
}

#define AT(member) .offset = offsetof(bench_headline_options, member)

static const flag load_flags[] = {
    {"--lengths", "LIST", "of prompts and answers: like sharegpt's, alpaca's ; without: both", TEXT(lengths)},
    {"--trace", "FILE", "a file's requests in their place (see quire sim --help)", TEXT(trace)},
    {"--shares", "LIST", "memory, percent of what all take fully reserved (5,10,20)", TEXT(shares)},
    {"--rates", "LIST", "arrivals, percent of what all at once give; without: 70,100,130 and more",
     TEXT(rates)},
    {"--requests", "N", "how many; without: 40, with --shape 30, of a trace all", COUNT(n_requests, 1, 4096)},
    {"--shrink", "N", "lengths, and the longest sequence, become an Nth", COUNT(shrink, 1, 1024)},
    {"--draws", "N", "of arrivals at each rate: latency is their mean", COUNT(n_draws, 1, 64)},
    {"--runs", "N", "of all at once: the one of the median counts", COUNT(n_runs, 1, HEADLINE_MAX_RUNS)},
    {"--quick", NULL, "about a minute: sharegpt, 10%, two rates", FLAG_SWITCH, AT(quick)},
    {0},
};
static const flag model_flags[] = {
    SHAPE_FLAGS,
    {"--threads -t", "N", "compute threads; 1: time is the processor's; 0: one per core",
     COUNT(cli.engine.n_threads, 0, 1024)},
    {"--max-model-len", "N", "the longest sequence; without: 2048",
     COUNT(cli.engine.max_model_len, 16, 1 << 20)},
    {0},
};

LAB_COMMAND(bench_headline, "bench headline", " [MODEL]", ARGUMENT_MODEL_OR_NONE,
            "what paging and continuous batching gain, measured at rising request rates",
            "  quire bench headline --quick\n"
            "  quire bench headline --shape 1.1b\n"
            "--shape: sharegpt, 10%, two rates\n",
            load_flags, model_flags, flags_compute, FLAGS_KV, flags_isa, flags_json, flags_help,
            flags_help_all);

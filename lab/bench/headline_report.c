#include "lab/bench/headline_report.h"

#include <math.h>
#include <stdio.h>

#include "lab/bench/sheet.h"
#include "lab/bench/trial.h"

static const char NAME[] = "headline";

/* ---- ways ---- */

static double over(double a, double b) {
    return a > 0 && b > 0 ? a / b : SHEET_ABSENT; /* 0: was not run */
}

/* Absent where no rate that was tried is beyond the bound, or none within it. */
static double highest_of(const headline_sweep *s) {
    return s->n_loads > 0 && s->is_between ? s->highest : SHEET_ABSENT;
}

static void print_ways(const headline_case *c, const char *requests, bool json) {
    static const sheet_column columns[] = {{"lengths", "", 9, SHEET_TEXT, NULL},
                                           {"share", "%", 3, 0, NULL},
                                           {"way", "way", 19, SHEET_TEXT, NULL},
                                           {"steps", "steps", 6, 0, "steps"},
                                           {"rows", "rows", 7, 0, "rows"},
                                           {"at_once", "at once", 7, 2, "sequences"},
                                           {"live", "live %", 6, 1, "%"},
                                           {"preemptions", "preempted", 9, 0, "times"},
                                           {"copied", "copied", 8, 0, "tokens"},
                                           {"speed", "tokens/s", 9, 1, "tokens/s"},
                                           {"simulated_speed", "simulated", 9, 1, "tokens/s"},
                                           {"speed_off", "off %", 6, 1, "%"},
                                           {"highest_rate", "highest/s", 9, 3, "requests/s"},
                                           {"simulated_rate", "simulated", 9, 3, "requests/s"},
                                           {"rate_off", "off %", 6, 1, "%"}};
    sheet s = {NAME, EXPERIMENT_COLUMNS(columns), json};
    char heading[512];
    snprintf(heading, sizeof heading,
             "\n%s: memory for %lld tokens, %.0f%% of what all take fully reserved. All at once: counts and "
             "speed; then the highest rate "
             "of arrivals with %.2f ms a token",
             requests, (long long)c->server.kv_tokens, c->share, c->bound * 1e3);
    sheet_begin(&s, heading);
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        const headline_sweep *r = &c->real[w], *m = &c->simulated[w];
        double rate = highest_of(r), simulated = highest_of(m);
        sheet_row(&s, (sheet_cell[]){{.text = c->lengths},
                                     {.number = c->share},
                                     {.text = headline_way_name(w)},
                                     {.number = r->burst.n_steps},
                                     {.number = r->burst.work.rows},
                                     {.number = r->burst.at_once},
                                     {.number = 100 * r->burst.live},
                                     {.number = r->burst.n_preemptions},
                                     {.number = r->burst.work.copied},
                                     {.number = r->burst.tokens_s},
                                     {.number = m->burst.tokens_s > 0 ? m->burst.tokens_s : SHEET_ABSENT},
                                     {.number = 100 * (over(m->burst.tokens_s, r->burst.tokens_s) - 1)},
                                     {.number = rate},
                                     {.number = simulated},
                                     {.number = 100 * (over(simulated, rate) - 1)}});
    }
    sheet_note(&s, "published, live: 20.4 to 38.2%% with pieces, near 100%% with pages (R6); waste 60-80%% "
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
    return over(highest_of(&sweeps[g->of]), highest_of(&sweeps[g->than]));
}

static double speed_gain(const headline_sweep *sweeps, const struct gain *g) {
    return over(sweeps[g->of].burst.tokens_s, sweeps[g->than].burst.tokens_s);
}

/* Part of the speed that steps as they cost around the way's own run allow. */
static double reached(const headline_case *c, headline_way w) {
    const headline_load *load = &c->real[w].burst;
    return headline_allowed_us(&c->real[w].burst_cost, load) * load->tokens_s;
}

static void print_gains(const headline_case *c, bool json) {
    static const sheet_column columns[] = {{"lengths", "", 9, SHEET_TEXT, NULL},
                                           {"share", "%", 3, 0, NULL},
                                           {"of", "gain of", 19, SHEET_TEXT, NULL},
                                           {"than", "over", 18, SHEET_TEXT, NULL},
                                           {"published", "published", 23, SHEET_TEXT, ""},
                                           {"at_once_gain", "at once", 7, 2, "x"},
                                           {"speed_gain", "tokens/s", 8, 2, "x"},
                                           {"allowed_gain", "allowed", 7, 2, "x"},
                                           {"reached", "reached", 7, 2, "x"},
                                           {"simulated_gain", "simulated", 9, 2, "x"},
                                           {"device_gain", "A100", 6, 2, "x"},
                                           {"rate_gain", "highest/s", 9, 2, "x"},
                                           {"simulated_rate_gain", "simulated", 9, 2, "x"},
                                           {"device_rate_gain", "A100", 6, 2, "x"}};
    sheet s = {NAME, EXPERIMENT_COLUMNS(columns), json};
    sheet_begin(&s, "");
    for (int i = 0; i < N_GAINS; i++) {
        const struct gain *g = &gains[i];
        const headline_load *a = &c->real[g->of].burst, *b = &c->real[g->than].burst;
        double allowed = over(headline_allowed_us(&c->cost, b), headline_allowed_us(&c->cost, a));
        sheet_row(&s, (sheet_cell[]){{.text = c->lengths},
                                     {.number = c->share},
                                     {.text = headline_way_name(g->of)},
                                     {.text = headline_way_name(g->than)},
                                     {.text = g->published},
                                     {.number = over(a->at_once, b->at_once)},
                                     {.number = speed_gain(c->real, g)},
                                     {.number = allowed},
                                     {.number = over(reached(c, g->of), reached(c, g->than))},
                                     {.number = speed_gain(c->simulated, g)},
                                     {.number = speed_gain(c->device, g)},
                                     {.number = rate_gain(c->real, g)},
                                     {.number = rate_gain(c->simulated, g)},
                                     {.number = rate_gain(c->device, g)}});
    }
    sheet_note(&s, "allowed: by what a step costs here for the work that each did (counted); reached: of "
                   "that, by what steps cost right "
                   "before and after each; A100: opt-13b on a100-40gb, simulated, in as many tokens of "
                   "memory, its rates with more such "
                   "requests and a bound of its own; published requests at once: 2.2x those of the oracle "
                   "(R5), 4-10x (L9); -: not run, or "
                   "the queue of so few requests never grows to the bound");
}

/* ---- loads ---- */

static double simulated_latency(const headline_sweep *s, double rate) {
    for (int32_t i = 0; i < s->n_loads; i++) {
        if (s->loads[i].rate == rate) {
            return s->loads[i].latency;
        }
    }
    return SHEET_ABSENT;
}

static void print_loads(const headline_case *c, bool json) {
    static const sheet_column columns[] = {{"lengths", "", 9, SHEET_TEXT, NULL},
                                           {"share", "%", 3, 0, NULL},
                                           {"way", "way", 19, SHEET_TEXT, NULL},
                                           {"rate", "rate/s", 9, 3, NULL},
                                           {"latency", "ms a token", 10, 2, "ms"},
                                           {"simulated_latency", "simulated", 10, 2, "ms"},
                                           {"load_at_once", "at once", 7, 2, "sequences"},
                                           {"load_speed", "tokens/s", 9, 1, "tokens/s"},
                                           {"load_preemptions", "preempted", 9, 0, "times"}};
    sheet s = {NAME, EXPERIMENT_COLUMNS(columns), json};
    sheet_begin(&s, "");
    for (headline_way w = 0; w < HEADLINE_N_WAYS; w++) {
        for (int32_t i = 0; i < c->real[w].n_loads; i++) {
            const headline_load *r = &c->real[w].loads[i];
            sheet_row(&s, (sheet_cell[]){{.text = c->lengths},
                                         {.number = c->share},
                                         {.text = headline_way_name(w)},
                                         {.number = r->rate},
                                         {.number = r->latency * 1e3},
                                         {.number = simulated_latency(&c->simulated[w], r->rate) * 1e3},
                                         {.number = r->at_once},
                                         {.number = r->tokens_s},
                                         {.number = r->n_preemptions}});
        }
    }
}

/* ---- what a step costs ---- */

static void print_cost(const headline_case *c, bool json) {
    static const sheet_column columns[] = {
        {"lengths", "", 9, SHEET_TEXT, NULL}, {"share", "%", 3, 0, NULL},
        {"step_rows", "rows", 6, 0, NULL},    {"step", "step us", 10, 1, "us"},
        {"row", "us a row", 10, 1, "us"},     {"gain", "of one row", 10, 2, "x"}};
    sheet s = {NAME, EXPERIMENT_COLUMNS(columns), json};
    const cost_model *m = &c->cost;
    double alone = cost_of(m, &(step_work){.rows = 1, .out = 1});
    sheet_begin(&s, "\nWhat a step costs here by rows that decode, without attention, and how many times the "
                    "tokens a second of one row it "
                    "gives");
    for (int32_t i = 0; cost_knot(i) <= 64; i++) {
        int32_t rows = cost_knot(i);
        double us = cost_of(m, &(step_work){.rows = rows, .out = rows});
        sheet_row(&s, (sheet_cell[]){{.text = c->lengths},
                                     {.number = c->share},
                                     {.number = rows},
                                     {.number = us},
                                     {.number = us / rows},
                                     {.number = rows * alone / us}});
    }
    sheet_note(&s,
               "fitted to steps of known content, measured before and after each load, off by %.1f%%; a row "
               "and a token that it attends to %.4f "
               "us more when it decodes, %.4f in a prompt; a token's keys and values moved %.3f us; %d of %d "
               "loads ran again, since what steps "
               "cost changed by over %.0f%% around them",
               100 * c->cost_off, m->decode_pair_us, m->prefill_pair_us, m->copy_us, (int)c->n_again,
               (int)c->n_loads, 100 * HEADLINE_STEADY);
}

void headline_print_case(const headline_case *c, const char *requests, bool json) {
    print_ways(c, requests, json);
    print_gains(c, json);
    print_loads(c, json);
    print_cost(c, json);
}

/* waste, latency, schedule: batches of requests in steps. The continuous side is planned by the engine's planner (dry_run.h), the static
 * side is counted. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "lab/bench/baseline.h"
#include "lab/bench/dry_run.h"
#include "lab/demo/demo_parts.h"

enum { PAGE_TOKENS = 16, MAX_REQUESTS = FIGURES_MAX_POINTS, MAX_PREEMPTIONS = 8, CAP = 200 };

static int64_t sum_of(const int32_t *v, int32_t n) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += v[i];
    }
    return sum;
}

/* ---- waste ---- */

static void show_pads(const demo_options *o, const demo_numbers *prompts) {
    static const sheet_column columns[] = {{"prompt", "prompt", 6, 0, NULL},
                                           {"tokens", "tokens", 7, 0, NULL},
                                           {"pads", "pads", 7, 0, NULL},
                                           {"wasted", "wasted %", 9, 1, NULL}};
    sheet s = {"demo waste prompts", DEMO_COLUMNS(columns), o->json};
    int64_t pads = baseline_pads(prompts->v, prompts->n), slots = pads + sum_of(prompts->v, prompts->n), widest = slots / prompts->n;
    sheet_begin(&s, "A static batch pads prompts on the left to the length of the longest");
    for (int32_t i = 0; i < prompts->n; i++) {
        double own = (double)(widest - prompts->v[i]);
        sheet_row(&s, (sheet_cell[]){{NULL, i + 1}, {NULL, prompts->v[i]}, {NULL, own}, {NULL, 100 * own / (double)widest}});
    }
    sheet_note(&s, "%lld pads of %lld slots, %.1f%%; paged, with rows of any length side by side: 0 (counted, exact)\n", (long long)pads,
               (long long)slots, 100.0 * (double)pads / (double)slots);
}

/* Steps that the planner gives requests of these lengths, all at once: prompts of one token, so that a request of n tokens takes n steps.
 */
static quire_err plan_all(const int32_t *lengths, int32_t n, int32_t slots, dry_run *d, quire_error *err) {
    dry_request requests[MAX_REQUESTS];
    int64_t n_pages = 0;
    for (int32_t i = 0; i < n; i++) {
        requests[i] = (dry_request){.n_prompt = 1, .n_output = lengths[i]};
        n_pages += (lengths[i] + PAGE_TOKENS) / PAGE_TOKENS;
    }
    sched_limits limits = {.max_rows = slots,
                           .max_out = slots,
                           .max_seqs = slots,
                           .max_chunk = slots,
                           .page_tokens = PAGE_TOKENS,
                           .max_preemptions = MAX_PREEMPTIONS};
    TRY(dry_run_open(&limits, (int32_t)n_pages, requests, n, d, err));
    quire_err e = dry_run_finish(d);
    if (e != QUIRE_OK) {
        dry_run_close(d);
        return err_set(err, e, -1, "the planner stands still");
    }
    return QUIRE_OK;
}

static quire_err show_dead_steps(const demo_options *o, const demo_numbers *lengths, quire_error *err) {
    static const sheet_column columns[] = {
        {"request", "request", 7, 0, NULL},           {"tokens", "tokens", 7, 0, NULL},
        {"batch_steps", "static steps", 12, 0, NULL}, {"dead_steps", "dead steps", 10, 0, NULL},
        {"wasted", "wasted %", 9, 1, NULL},           {"continuous_steps", "continuous steps", 16, 0, NULL}};
    sheet s = {"demo waste steps", DEMO_COLUMNS(columns), o->json};
    int64_t ends[MAX_REQUESTS], steps = baseline_static(lengths->v, lengths->n, lengths->n, ends), useful = sum_of(lengths->v, lengths->n);
    dry_run d;
    TRY(plan_all(lengths->v, lengths->n, lengths->n, &d, err));
    sheet_begin(&s, "A static batch runs until its longest answer ends; a continuous one lets each go when it is done");
    for (int32_t i = 0; i < lengths->n; i++) {
        double dead = (double)(steps - lengths->v[i]);
        sheet_row(&s, (sheet_cell[]){{NULL, i + 1},
                                     {NULL, lengths->v[i]},
                                     {NULL, (double)steps},
                                     {NULL, dead},
                                     {NULL, 100 * dead / (double)steps},
                                     {NULL, d.seqs[i].ended}});
    }
    dry_run_close(&d);
    sheet_note(
        &s, "static: %lld steps, %lld useful slots of %lld, %.1f%% wasted; continuous: none (steps of the real planner, counted, exact)",
        (long long)steps, (long long)useful, (long long)steps * lengths->n, 100.0 * (1.0 - (double)useful / (double)(steps * lengths->n)));
    return QUIRE_OK;
}

static void cap_lengths(demo_numbers *lengths, int32_t cap) {
    for (int32_t i = 0; cap > 0 && i < lengths->n; i++) {
        lengths->v[i] = lengths->v[i] < cap ? lengths->v[i] : cap;
    }
}

/* Given lengths, a demonstration's own, or those of prompts in a file and of what the model answers. cap 0: none. */
static quire_err read_lengths(const demo_options *o, const char *own, int32_t cap, demo_numbers *prompts, demo_numbers *lengths,
                              quire_error *err) {
    if (o->prompts != NULL) {
        return demo_answer_prompts(o, demo_or(cap, CAP), prompts, lengths, err);
    }
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "4,6,1,7", prompts, err));
    TRY(demo_read_numbers("--lengths", o->lengths, own, lengths, err));
    cap_lengths(lengths, cap);
    return QUIRE_OK;
}

quire_err demo_waste(const demo_options *o, quire_error *err) {
    demo_numbers prompts, lengths;
    TRY(read_lengths(o, "10,199,25,199", demo_or(o->n_tokens, CAP), &prompts, &lengths, err));
    show_pads(o, &prompts);
    return show_dead_steps(o, &lengths, err);
}

/* ---- latency ---- */

quire_err demo_latency(const demo_options *o, quire_error *err) {
    static const sheet_column columns[] = {{"request", "request", 7, 0, NULL},
                                           {"tokens", "tokens", 7, 0, NULL},
                                           {"static_end", "static end", 10, 0, NULL},
                                           {"continuous_start", "continuous start", 16, 0, NULL},
                                           {"continuous_end", "continuous end", 14, 0, NULL},
                                           {"ratio", "ratio", 7, 2, NULL}};
    demo_numbers prompts, lengths;
    TRY(read_lengths(o, "9,1269,24,443,23,1592,2,913", o->n_tokens, &prompts, &lengths, err));
    int32_t slots = demo_or(o->slots, 4), last = 0;
    int64_t ends[MAX_REQUESTS], makespan = baseline_static(lengths.v, lengths.n, slots, ends);
    double static_sum = 0, sum = 0;
    dry_run d;
    TRY(plan_all(lengths.v, lengths.n, slots, &d, err));
    sheet s = {"demo latency", DEMO_COLUMNS(columns), o->json};
    char heading[96];
    snprintf(heading, sizeof heading, "%d requests, %d slots, first come first served; the step at which an answer is whole",
             (int)lengths.n, (int)slots);
    sheet_begin(&s, heading);
    for (int32_t i = 0; i < lengths.n; i++) {
        const dry_seq *q = &d.seqs[i];
        sheet_row(&s, (sheet_cell[]){{NULL, i + 1},
                                     {NULL, lengths.v[i]},
                                     {NULL, (double)ends[i]},
                                     {NULL, q->started},
                                     {NULL, q->ended},
                                     {NULL, (double)ends[i] / q->ended}});
        static_sum += (double)ends[i];
        sum += q->ended;
        last = q->ended > last ? q->ended : last;
    }
    dry_run_close(&d);
    sheet_note(&s, "all done: static %lld steps, continuous %d, ratio %.2f; mean %.1f and %.1f (steps of the real planner, counted, exact)",
               (long long)makespan, (int)last, (double)makespan / last, static_sum / lengths.n, sum / lengths.n);
    return QUIRE_OK;
}

/* ---- schedule ---- */

enum { STATE_WIDTH = 10 };

/* What a step did for a request: "prefill 8", "decode", ...; "." when it is done. */
static void name_state(const dry_seq *q, char *out, size_t n) {
    static const char *const works[] = {[DRY_PREFILL] = "prefill", [DRY_AGAIN] = "again"};
    static const char *const states[] = {[DRY_AWAY] = "", [DRY_WAITING] = "waits", [DRY_RUNNING] = "stands", [DRY_DONE] = "."};
    if (q->was_preempted) {
        snprintf(out, n, "preempted");
    } else if (q->work == DRY_DECODE) {
        snprintf(out, n, "decode");
    } else if (q->work != DRY_NOTHING) {
        snprintf(out, n, "%s %d", works[q->work], (int)q->n_rows);
    } else {
        snprintf(out, n, "%s", states[q->state]);
    }
}

static void show_step(const sheet *s, const dry_run *d) {
    char states[MAX_REQUESTS][24];
    sheet_cell cells[MAX_REQUESTS + 4] = {
        {NULL, d->step}, {NULL, d->plan.n_rows}, {NULL, d->n_running}, {NULL, kv_pool_counts(d->cache.pool).n_free}};
    for (int32_t i = 0; i < d->n; i++) {
        name_state(&d->seqs[i], states[i], sizeof states[i]);
        cells[4 + i] = (sheet_cell){states[i], 0};
    }
    sheet_row(s, cells);
}

static quire_err read_requests(const demo_options *o, dry_request *out, int32_t *n, quire_error *err) {
    demo_numbers prompts, lengths;
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "10,3,6,12,2", &prompts, err));
    TRY(demo_read_numbers("--lengths", o->lengths, "4,8,3,6,9", &lengths, err));
    if (prompts.n != lengths.n) {
        return err_set(err, QUIRE_INVALID, -1, "--prompt-lengths has %d numbers, --lengths %d: one of each a request", (int)prompts.n,
                       (int)lengths.n);
    }
    for (int32_t i = 0; i < prompts.n; i++) {
        out[i] = (dry_request){prompts.v[i], lengths.v[i], 0};
    }
    *n = prompts.n;
    return QUIRE_OK;
}

quire_err demo_schedule(const demo_options *o, quire_error *err) {
    dry_request requests[MAX_REQUESTS];
    char names[MAX_REQUESTS][8];
    sheet_column columns[MAX_REQUESTS + 4] = {
        {"step", "step", 4, 0, NULL}, {"rows", "rows", 4, 0, NULL}, {"running", "running", 7, 0, NULL}, {"pages_free", "free", 4, 0, NULL}};
    int32_t n = 0, page_tokens = demo_or(o->page_tokens, 4), n_pages = demo_or(o->n_pages, 6), rows = demo_or(o->n_rows, 8),
            slots = demo_or(o->slots, 4);
    TRY(read_requests(o, requests, &n, err));
    for (int32_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "r%d", (int)i + 1);
        columns[4 + i] = (sheet_column){names[i], names[i], STATE_WIDTH, SHEET_TEXT, NULL};
    }
    sched_limits limits = {.max_rows = rows,
                           .max_out = slots,
                           .max_seqs = slots,
                           .max_chunk = rows,
                           .page_tokens = page_tokens,
                           .max_preemptions = MAX_PREEMPTIONS};
    dry_run d;
    TRY(dry_run_open(&limits, n_pages, requests, n, &d, err));
    sheet s = {"demo schedule", columns, n + 4, o->json};
    char heading[160];
    snprintf(heading, sizeof heading, "%d requests; %d rows a step, %d sequences, %d pages of %d tokens", (int)n, (int)rows, (int)slots,
             (int)n_pages, (int)page_tokens);
    sheet_begin(&s, heading);
    quire_err e = QUIRE_OK;
    int32_t n_preempted = 0;
    while (e == QUIRE_OK && dry_run_step(&d, &e)) {
        show_step(&s, &d);
        n_preempted += d.plan.n_preempted;
    }
    if (e == QUIRE_OK) {
        sheet_note(&s, "%d steps, %d preemptions; planned by sched_make_plan over a real pool and block tables, without a model (exact)",
                   (int)d.step, (int)n_preempted);
    }
    dry_run_close(&d);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "the planner stands still");
}

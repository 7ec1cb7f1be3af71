/* waste, latency, schedule: batches of requests in steps. The continuous side is planned
 * by the engine's planner (dry_run.h), the static side is counted. */
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/kv_layout.h"
#include "lab/bench/baseline.h"
#include "lab/bench/baseline_serve.h"
#include "lab/bench/dry_run.h"
#include "lab/bench/trial.h"
#include "lab/demo/demo_parts.h"

enum { PAGE_TOKENS = 16, MAX_REQUESTS = FIGURES_MAX_POINTS, MAX_PREEMPTIONS = 8, CAP = 200, PASS_ROWS = 512 };

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
    int64_t pads = baseline_pads(prompts->v, prompts->n), slots = pads + sum_of(prompts->v, prompts->n),
            widest = slots / prompts->n;
    sheet_begin(&s, "A static batch pads prompts on the left to the length of the longest");
    for (int32_t i = 0; i < prompts->n; i++) {
        double own = (double)(widest - prompts->v[i]);
        sheet_row(&s,
                  (sheet_cell[]){
                      {NULL, i + 1}, {NULL, prompts->v[i]}, {NULL, own}, {NULL, 100 * own / (double)widest}});
    }
    sheet_note(
        &s,
        "%lld pads of %lld slots, %.1f%%; paged, with rows of any length side by side: 0 (counted, exact)\n",
        (long long)pads, (long long)slots, 100.0 * (double)pads / (double)slots);
}

/* Steps that the planner gives requests of these lengths, all at once: prompts of one
 * token, so that a request of n tokens takes n steps. */
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
    int64_t ends[MAX_REQUESTS], steps = baseline_static(lengths->v, lengths->n, lengths->n, ends),
                                useful = sum_of(lengths->v, lengths->n);
    dry_run d;
    TRY(plan_all(lengths->v, lengths->n, lengths->n, &d, err));
    sheet_begin(
        &s,
        "A static batch runs until its longest answer ends; a continuous one lets each go when it is done");
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
    sheet_note(&s,
               "static: %lld steps, %lld useful slots of %lld, %.1f%% wasted; continuous: none (steps of the "
               "real planner, counted, exact)",
               (long long)steps, (long long)useful, (long long)steps * lengths->n,
               100.0 * (1.0 - (double)useful / (double)(steps * lengths->n)));
    return QUIRE_OK;
}

static void cap_lengths(demo_numbers *lengths, int32_t cap) {
    for (int32_t i = 0; cap > 0 && i < lengths->n; i++) {
        lengths->v[i] = lengths->v[i] < cap ? lengths->v[i] : cap;
    }
}

/* Given lengths, a demonstration's own, or those of prompts in a file and of what the
 * model answers. cap 0: none. */
static quire_err read_lengths(const demo_options *o, const char *own, int32_t cap, demo_numbers *prompts,
                              demo_numbers *lengths, quire_error *err) {
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

/* The same requests in steps and in milliseconds, of a static batch and of the engine. */
typedef struct latency {
    demo_numbers prompts, lengths;
    int32_t slots;
    lab_request requests[MAX_REQUESTS];
    int64_t static_ends[MAX_REQUESTS]; /* steps */
    double static_ms[MAX_REQUESTS], ms[MAX_REQUESTS];
    uint64_t digest;
} latency;

static int32_t most_of(const demo_numbers *v) {
    int32_t most = 0;
    for (int32_t i = 0; i < v->n; i++) {
        most = v->v[i] > most ? v->v[i] : most;
    }
    return most;
}

/* Batches of `slots`, padded, each until its longest answer ends: really run. */
static quire_err run_static(const demo_options *o, latency *l, quire_error *err) {
    int32_t max_len = most_of(&l->prompts) + most_of(&l->lengths),
            pages = (int32_t)kv_pages_for(max_len, BASELINE_PAGE);
    const baseline_options bo = {true, RESERVE_MAX, l->slots * pages, l->slots, max_len, l->static_ms};
    const bare_options opened = {.engine = &o->engine,
                                 .page_tokens = BASELINE_PAGE,
                                 .n_pages = bo.n_pages + baseline_extra_pages(&bo),
                                 .max_rows = PASS_ROWS,
                                 .max_seqs = 2 * l->slots,
                                 .max_len = max_len};
    baseline_result r;
    bare b;
    TRY(bare_open(&opened, &b, err));
    quire_err e = baseline_serve(&b, &bo, l->requests, l->lengths.n, &r);
    bare_close(&b);
    l->digest = r.digest;
    return e == QUIRE_OK ? e : err_set(err, e, -1, "static batches: %s", quire_err_text(e));
}

/* The engine, with so many places. */
static quire_err run_continuous(const demo_options *o, latency *l, quire_error *err) {
    int32_t n = l->lengths.n, max_len = most_of(&l->prompts) + most_of(&l->lengths);
    quire_options own = o->engine;
    lab_result r;
    lab opened;
    own.max_seqs = l->slots;
    own.step_target_us = 0;
    own.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    own.n_pages = l->slots * (int32_t)kv_pages_for(max_len, own.page_tokens);
    TRY(lab_open(&own, (engine_ablations){0}, max_len, &opened, err));
    quire_err e = lab_run(&opened, l->requests, n, n, &r, err);
    for (int32_t i = 0; i < n; i++) {
        l->ms[i] = (double)(l->requests[i].last_us - l->requests[i].sent_us) / 1000;
    }
    lab_close(&opened);
    lab_forget(l->requests, n);
    TRY(e);
    return r.digest == l->digest
               ? QUIRE_OK
               : err_set(err, QUIRE_INTERNAL, -1, "a static batch gives other answers than the engine");
}

static quire_err run_both(const demo_options *o, latency *l, quire_error *err) {
    int32_t lengths[MAX_REQUESTS];
    for (int32_t i = 0; i < l->lengths.n; i++) {
        lengths[i] = l->prompts.v[i % l->prompts.n];
    }
    int32_t *tokens = trial_prompts(lengths, l->lengths.n, 1, l->requests);
    if (tokens == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    for (int32_t i = 0; i < l->lengths.n; i++) {
        l->requests[i].n_output = l->lengths.v[i];
    }
    quire_err e = run_static(o, l, err);
    e = e == QUIRE_OK ? run_continuous(o, l, err) : e;
    mem_free(tokens);
    return e;
}

static void report_latency(const demo_options *o, const latency *l, const dry_run *d, const char *machine) {
    static const sheet_column columns[] = {{"request", "request", 7, 0, NULL},
                                           {"prompt", "prompt", 6, 0, NULL},
                                           {"tokens", "tokens", 7, 0, NULL},
                                           {"static_end", "static end", 10, 0, NULL},
                                           {"continuous_start", "continuous start", 16, 0, NULL},
                                           {"continuous_end", "continuous end", 14, 0, NULL},
                                           {"ratio", "ratio", 7, 2, NULL},
                                           {"static_ms", "static ms", 9, 1, NULL},
                                           {"continuous_ms", "continuous ms", 13, 1, NULL},
                                           {"ratio_ms", "ms ratio", 8, 2, NULL}};
    sheet s = {"demo latency", DEMO_COLUMNS(columns), o->json};
    double n = l->lengths.n, sums[4] = {0}, last[4] = {0};
    sheet_begin(&s, "First come, first served: the step at which an answer is whole, and the milliseconds of "
                    "a model really run");
    for (int32_t i = 0; i < l->lengths.n; i++) {
        const dry_seq *q = &d->seqs[i];
        const double ends[4] = {(double)l->static_ends[i], q->ended, l->static_ms[i], l->ms[i]};
        sheet_row(&s, (sheet_cell[]){{NULL, i + 1},
                                     {NULL, l->prompts.v[i % l->prompts.n]},
                                     {NULL, l->lengths.v[i]},
                                     {NULL, ends[0]},
                                     {NULL, q->started},
                                     {NULL, ends[1]},
                                     {NULL, ends[0] / ends[1]},
                                     {NULL, ends[2]},
                                     {NULL, ends[3]},
                                     {NULL, ends[2] / ends[3]}});
        for (int k = 0; k < 4; k++) {
            sums[k] += ends[k];
            last[k] = fmax(last[k], ends[k]);
        }
    }
    sheet_note(&s,
               "all done: static %.0f steps, continuous %.0f, ratio %.2f; mean %.1f and %.1f (steps of the "
               "real planner, counted, exact)",
               last[0], last[1], last[0] / last[1], sums[0] / n, sums[1] / n);
    sheet_note(&s,
               "all done: static %.1f ms, continuous %.1f, ratio %.2f; mean %.1f and %.1f, ratio %.2f; %d "
               "slots; %s (wall time, measured once; "
               "equal answers)",
               last[2], last[3], last[2] / last[3], sums[2] / n, sums[3] / n, sums[2] / sums[3],
               (int)l->slots, machine);
}

quire_err demo_latency(const demo_options *o, quire_error *err) {
    latency l = {.slots = demo_or(o->slots, 4)};
    char machine[160];
    if (o->prompts != NULL) {
        TRY(demo_answer_prompts(o, demo_or(o->n_tokens, CAP), &l.prompts, &l.lengths, err));
    } else { /* the blog's own: tokens of its prompts with their chat frame, and the steps that it reports */
        TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "19,25,23,24,20,23,16,25", &l.prompts,
                              err));
        TRY(demo_read_numbers("--lengths", o->lengths, "9,1269,24,443,23,1592,2,913", &l.lengths, err));
        cap_lengths(&l.lengths, o->n_tokens);
    }
    dry_run d;
    TRY(lab_describe(&o->engine, machine, sizeof machine, err));
    (void)baseline_static(l.lengths.v, l.lengths.n, l.slots, l.static_ends);
    TRY(run_both(o, &l, err));
    TRY(plan_all(l.lengths.v, l.lengths.n, l.slots, &d, err));
    report_latency(o, &l, &d, machine);
    dry_run_close(&d);
    return QUIRE_OK;
}

/* ---- schedule ---- */

enum { STATE_WIDTH = 10 };

/* What a step did for a request: "prefill 8", "decode", ...; "." when it is done. */
static void name_state(const dry_seq *q, char *out, size_t n) {
    static const char *const works[] = {[DRY_PREFILL] = "prefill", [DRY_AGAIN] = "again"};
    static const char *const states[] = {
        [DRY_AWAY] = "", [DRY_WAITING] = "waits", [DRY_RUNNING] = "stands", [DRY_DONE] = "."};
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
    sheet_cell cells[MAX_REQUESTS + 4] = {{NULL, d->step},
                                          {NULL, d->plan.n_rows},
                                          {NULL, d->n_running},
                                          {NULL, kv_pool_counts(d->cache.pool).n_free}};
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
        return err_set(err, QUIRE_INVALID, -1,
                       "--prompt-lengths has %d numbers, --lengths %d: one of each a request", (int)prompts.n,
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
    sheet_column columns[MAX_REQUESTS + 4] = {{"step", "step", 4, 0, NULL},
                                              {"rows", "rows", 4, 0, NULL},
                                              {"running", "running", 7, 0, NULL},
                                              {"pages_free", "free", 4, 0, NULL}};
    int32_t n = 0, page_tokens = demo_or(o->page_tokens, 4), n_pages = demo_or(o->n_pages, 6),
            rows = demo_or(o->n_rows, 8), slots = demo_or(o->slots, 4);
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
    snprintf(heading, sizeof heading, "%d requests; %d rows a step, %d sequences, %d pages of %d tokens",
             (int)n, (int)rows, (int)slots, (int)n_pages, (int)page_tokens);
    sheet_begin(&s, heading);
    quire_err e = QUIRE_OK;
    int32_t n_preempted = 0;
    while (e == QUIRE_OK && dry_run_step(&d, &e)) {
        show_step(&s, &d);
        n_preempted += d.plan.n_preempted;
    }
    if (e == QUIRE_OK) {
        sheet_note(&s,
                   "%d steps, %d preemptions; planned by sched_make_plan over a real pool and block tables, "
                   "without a model (exact)",
                   (int)d.step, (int)n_preempted);
    }
    dry_run_close(&d);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "the planner stands still");
}

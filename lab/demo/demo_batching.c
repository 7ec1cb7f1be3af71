/* waste, latency, schedule: batches of requests in steps. The continuous side is planned
 * by the engine's planner (lab/sim/serving.h), the static side is counted. */

#include "core/kv_layout.h"
#include "lab/bench/baseline.h"
#include "lab/bench/baseline_serve.h"
#include "lab/bench/lab.h"
#include "lab/demo/demo.h"
#include "lab/sim/serving.h"

enum { PAGE_TOKENS = 16, MAX_REQUESTS = FIGURES_MAX_POINTS, MAX_PREEMPTIONS = 8, CAP = 200, PASS_ROWS = 512 };

static int64_t demo_batching_sum_of(const int32_t *v, int32_t n) {
    int64_t sum = 0;
    for (int32_t i = 0; i < n; i++) {
        sum += v[i];
    }
    return sum;
}

/* ---- waste ---- */

static void show_pads(const demo_options *o, const demo_numbers *prompts) {
    TABLE(s, "demo waste prompts", o->cli.json, KEY("prompt", "prompt", 6, 0), KEY("tokens", "tokens", 7, 0),
          KEY("pads", "pads", 7, 0), KEY("wasted", "wasted %", 9, 1));
    int64_t pads = baseline_pads(prompts->v, prompts->n),
            slots = pads + demo_batching_sum_of(prompts->v, prompts->n), widest = slots / prompts->n;
    table_begin(&s, "A static batch pads prompts on the left to the length of the longest");
    for (int32_t i = 0; i < prompts->n; i++) {
        double own = (double)(widest - prompts->v[i]);
        TABLE_ROW(&s, NUM(i + 1), NUM(prompts->v[i]), NUM(own), NUM(100 * own / (double)widest));
    }
    table_note(
        &s,
        "%lld pads of %lld slots, %.1f%%; paged, with rows of any length side by side: 0 (counted, exact)\n",
        (long long)pads, (long long)slots, 100.0 * (double)pads / (double)slots);
}

/* Requests of known lengths, all there from the start, served without a model by the
 * simulator; each step takes a microsecond, so times are counts of steps. */
typedef struct planned {
    trace_request requests[MAX_REQUESTS];
    trace_run runs[MAX_REQUESTS];
    int32_t n;
    double end_us[MAX_REQUESTS];            /* the step at which each ends */
    int32_t n_steps, started[MAX_REQUESTS]; /* steps so far; the first with rows of each, from 1 */
    /* of those that have begun; they stay where they are */
    const sched_task *tasks[MAX_REQUESTS];
    int32_t n_preempted[MAX_REQUESTS]; /* before the step */
    const bench_table *table;          /* a row for each step; NULL: none */
} planned;

static void planned_init(planned *p, const int32_t *prompts, const int32_t *outputs, int32_t n) {
    *p = (planned){.n = n};
    for (int32_t i = 0; i < n; i++) {
        p->runs[i] = (trace_run){.first = 0, .n = prompts != NULL ? prompts[i] : 1};
        p->requests[i] =
            (trace_request){.first_run = i, .n_runs = 1, .n_prompt = p->runs[i].n, .n_output = outputs[i]};
    }
}

static void show_step(const planned *p, const scheduler *s);

static void planned_note(void *context, const scheduler *s) {
    planned *p = context;
    p->n_steps++;
    for (int32_t i = 0; i < s->plan.n_items; i++) {
        int32_t request = (int32_t)s->tasks[i]->arrival;
        p->tasks[request] = s->tasks[i];
        p->started[request] = p->started[request] == 0 ? p->n_steps : p->started[request];
    }
    if (p->table != NULL) {
        show_step(p, s);
    }
    for (int32_t i = 0; i < p->n; i++) {
        p->n_preempted[i] = p->tasks[i] != NULL ? p->tasks[i]->n_preempted : 0;
    }
}

/* Serves them with so many rows a step, sequences at once, and pages of page_tokens.
 * INVALID names a request that never fits. */
static quire_err planned_run(planned *p, int32_t rows, int32_t slots, int64_t n_pages, int32_t page_tokens,
                             serving_result *r, quire_error *err) {
    static const cost_model a_step = {.n_points = 2, .rows = {0, 1}, .us = {1, 1}};
    trace t = {.requests = p->requests, .runs = p->runs, .n_requests = p->n, .n_tenants = 1};
    for (int32_t i = 0; i < p->n; i++) {
        int32_t n = p->requests[i].n_prompt + p->requests[i].n_output;
        int64_t needs = kv_pages_for(n, page_tokens);
        if (needs > n_pages) {
            return err_set(err, QUIRE_INVALID, -1, "request %d needs %lld pages, the pool has %lld",
                           (int)i + 1, (long long)needs, (long long)n_pages);
        }
        t.longest = n > t.longest ? n : t.longest;
        t.n_prompt_tokens += p->requests[i].n_prompt;
        t.n_output_tokens += p->requests[i].n_output;
    }
    const serving_options o = {.cost = &a_step,
                               .batching = BATCH_ITERATION,
                               .reservation = RESERVE_PAGED,
                               .kv_tokens = n_pages * page_tokens,
                               .page_tokens = page_tokens,
                               .max_model_len = t.longest,
                               .max_rows = rows,
                               .max_seqs = slots,
                               .speed = 1,
                               .on_plan = planned_note,
                               .context = p,
                               .end_us = p->end_us};
    return serving_run(&t, &o, r, err);
}

/* Prompts of one token, so that a request of n tokens takes n steps. */
static quire_err plan_all(const int32_t *lengths, int32_t n, int32_t slots, planned *p, quire_error *err) {
    int64_t n_pages = 0;
    serving_result r;
    for (int32_t i = 0; i < n; i++) {
        n_pages += (lengths[i] + PAGE_TOKENS) / PAGE_TOKENS;
    }
    planned_init(p, NULL, lengths, n);
    TRY(planned_run(p, slots, slots, n_pages, PAGE_TOKENS, &r, err));
    serving_result_deinit(&r);
    return QUIRE_OK;
}

static quire_err show_dead_steps(const demo_options *o, const demo_numbers *lengths, quire_error *err) {
    TABLE(s, "demo waste steps", o->cli.json, KEY("request", "request", 7, 0), KEY("tokens", "tokens", 7, 0),
          KEY("batch_steps", "static steps", 12, 0), KEY("dead_steps", "dead steps", 10, 0),
          KEY("wasted", "wasted %", 9, 1), KEY("continuous_steps", "continuous steps", 16, 0));
    int64_t ends[MAX_REQUESTS], steps = baseline_static(lengths->v, lengths->n, lengths->n, ends),
                                useful = demo_batching_sum_of(lengths->v, lengths->n);
    planned d;
    TRY(plan_all(lengths->v, lengths->n, lengths->n, &d, err));
    table_begin(
        &s,
        "A static batch runs until its longest answer ends; a continuous one lets each go when it is done");
    for (int32_t i = 0; i < lengths->n; i++) {
        double dead = (double)(steps - lengths->v[i]);
        TABLE_ROW(&s, NUM(i + 1), NUM(lengths->v[i]), NUM(steps), NUM(dead), NUM(100 * dead / (double)steps),
                  NUM(d.end_us[i]));
    }
    table_note(&s,
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
    int64_t static_ends[MAX_REQUESTS]; /* steps */
    double static_us[MAX_REQUESTS], continuous_us[MAX_REQUESTS];
} latency;

/* Serves them by batches of `slots`, padded, or by the engine with so many places; when
 * each answer is whole to end_us, by a clock that runs while steps compute. */
static quire_err run_served(const demo_options *o, const latency *l, bool is_static, double *end_us,
                            uint64_t *digest, quire_error *err) {
    int32_t prompts[MAX_REQUESTS],
        max_len = figures_largest(l->prompts.v, l->prompts.n) + figures_largest(l->lengths.v, l->lengths.n),
        pages = (int32_t)kv_pages_for(max_len, BASELINE_PAGE);
    const baseline_options bo = {
        is_static, is_static ? RESERVE_MAX : RESERVE_PAGED, l->slots * pages, l->slots, max_len, end_us};
    baseline_result r = {0};
    model_runner b;
    for (int32_t i = 0; i < l->lengths.n; i++) {
        prompts[i] = l->prompts.v[i % l->prompts.n];
    }
    TRY(MODEL_RUNNER_OPEN(&b, err, .engine = &o->cli.engine, .page_tokens = BASELINE_PAGE,
                          .n_pages = bo.n_pages + baseline_extra_pages(&bo), .max_rows = PASS_ROWS,
                          .max_seqs = 2 * l->slots, .max_len = max_len));
    quire_err e = baseline_serve(&b, &bo, prompts, l->lengths.v, l->lengths.n, &r, err);
    model_runner_close(&b);
    *digest = r.digest;
    return e;
}

static quire_err run_both(const demo_options *o, latency *l, quire_error *err) {
    uint64_t digests[2];
    TRY(run_served(o, l, true, l->static_us, &digests[0], err));
    TRY(run_served(o, l, false, l->continuous_us, &digests[1], err));
    return digests[0] == digests[1]
               ? QUIRE_OK
               : err_set(err, QUIRE_INTERNAL, -1, "a static batch gives other answers than the engine");
}

static void report_latency(const demo_options *o, const latency *l, const planned *d, const char *machine) {
    TABLE(s, "demo latency", o->cli.json, KEY("request", "request", 7, 0), KEY("prompt", "prompt", 6, 0),
          KEY("tokens", "tokens", 7, 0), KEY("static_end", "static end", 10, 0),
          KEY("continuous_start", "continuous start", 16, 0), KEY("continuous_end", "continuous end", 14, 0),
          KEY("ratio", "ratio", 7, 2), KEY("static_ms", "static ms", 9, 1),
          KEY("continuous_ms", "continuous ms", 13, 1), KEY("ratio_ms", "ms ratio", 8, 2));
    double n = l->lengths.n, sums[4] = {0}, last[4] = {0};
    table_begin(&s, "First come, first served: the step at which an answer is whole, and the milliseconds of "
                    "a model really run");
    for (int32_t i = 0; i < l->lengths.n; i++) {
        const double ends[4] = {(double)l->static_ends[i], d->end_us[i], l->static_us[i] / 1000,
                                l->continuous_us[i] / 1000};
        TABLE_ROW(&s, NUM(i + 1), NUM(l->prompts.v[i % l->prompts.n]), NUM(l->lengths.v[i]), NUM(ends[0]),
                  NUM(d->started[i]), NUM(ends[1]), NUM(ends[0] / ends[1]), NUM(ends[2]), NUM(ends[3]),
                  NUM(ends[2] / ends[3]));
        for (int k = 0; k < 4; k++) {
            sums[k] += ends[k];
            last[k] = fmax(last[k], ends[k]);
        }
    }
    table_note(&s,
               "all done: static %.0f steps, continuous %.0f, ratio %.2f; mean %.1f and %.1f (steps of the "
               "real planner, counted, exact)",
               last[0], last[1], last[0] / last[1], sums[0] / n, sums[1] / n);
    table_note(&s,
               "all done: static %.1f ms, continuous %.1f, ratio %.2f; mean %.1f and %.1f, ratio %.2f; %d "
               "slots; %s (steps timed once; equal answers)",
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
    planned d;
    TRY(lab_describe(&o->cli.engine, machine, sizeof machine, err));
    (void)baseline_static(l.lengths.v, l.lengths.n, l.slots, l.static_ends);
    TRY(run_both(o, &l, err));
    TRY(plan_all(l.lengths.v, l.lengths.n, l.slots, &d, err));
    report_latency(o, &l, &d, machine);
    return QUIRE_OK;
}

/* ---- schedule ---- */

enum { STATE_WIDTH = 10 };

/* What the step does for a request: "prefill 8", "decode", ...; "." when it is done. */
static void name_state(const planned *p, const scheduler *s, int32_t i, char *out, size_t n) {
    const sched_task *t = p->tasks[i];
    for (int32_t k = 0; k < s->plan.n_items; k++) {
        int32_t n_rows = s->plan.items[k].n_rows;
        if (s->tasks[k] != t) {
            continue;
        }
        bool decodes = t->n_known > t->n_prompt && t->n_known - t->kv.n_computed == 1 && t->kv.n_computed > 0;
        snprintf(out, n, decodes ? "decode" : "%s %d", t->n_preempted > 0 ? "again" : "prefill", (int)n_rows);
        return;
    }
    snprintf(out, n, "%s",
             t == NULL                            ? "waits"
             : t->n_known == t->n_max             ? "."
             : t->n_preempted > p->n_preempted[i] ? "preempted"
             : t->state == TASK_WAITING           ? "waits"
                                                  : "stands");
}

/* Prints a row: the step, and the running requests and free pages after it. */
static void show_step(const planned *p, const scheduler *s) {
    char states[MAX_REQUESTS][24];
    int32_t n_running = s->n_running, n_free = kv_pool_counts(s->kv->pool).n_free;
    for (int32_t k = 0; k < s->plan.n_items; k++) {
        const sched_task *t = s->tasks[k];
        if (t->kv.n_computed + s->plan.items[k].n_rows == t->n_known && t->n_known + 1 == t->n_max) {
            n_running--; /* its last token */
            n_free += kv_seq_pages(&t->kv);
        }
    }
    table_cell cells[MAX_REQUESTS + 4] = {NUM(p->n_steps), NUM(s->plan.n_rows), NUM(n_running), NUM(n_free)};
    for (int32_t i = 0; i < p->n; i++) {
        name_state(p, s, i, states[i], sizeof states[i]);
        cells[4 + i] = TXT(states[i]);
    }
    table_row(p->table, cells, 4 + (size_t)p->n);
}

static quire_err read_requests(const demo_options *o, planned *p, quire_error *err) {
    demo_numbers prompts, lengths;
    TRY(demo_read_numbers("--prompt-lengths", o->prompt_lengths, "10,3,6,12,2", &prompts, err));
    TRY(demo_read_numbers("--lengths", o->lengths, "4,8,3,6,9", &lengths, err));
    if (prompts.n != lengths.n) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--prompt-lengths has %d numbers, --lengths %d: one of each a request", (int)prompts.n,
                       (int)lengths.n);
    }
    planned_init(p, prompts.v, lengths.v, prompts.n);
    return QUIRE_OK;
}

quire_err demo_schedule(const demo_options *o, quire_error *err) {
    planned p;
    serving_result r;
    char names[MAX_REQUESTS][8], heading[160];
    table_column columns[MAX_REQUESTS + 4] = {{"step", "step", 4, 0, NULL},
                                              {"rows", "rows", 4, 0, NULL},
                                              {"running", "running", 7, 0, NULL},
                                              {"pages_free", "free", 4, 0, NULL}};
    int32_t page_tokens = demo_or(o->page_tokens, 4), n_pages = demo_or(o->n_pages, 6),
            rows = demo_or(o->n_rows, 8), slots = demo_or(o->slots, 4);
    TRY(read_requests(o, &p, err));
    for (int32_t i = 0; i < p.n; i++) {
        snprintf(names[i], sizeof names[i], "r%d", (int)i + 1);
        columns[4 + i] = (table_column){names[i], names[i], STATE_WIDTH, TABLE_TEXT, NULL};
    }
    const bench_table s = {"demo schedule", columns, p.n + 4, o->cli.json};
    snprintf(heading, sizeof heading, "%d requests; %d rows a step, %d sequences, %d pages of %d tokens",
             (int)p.n, (int)rows, (int)slots, (int)n_pages, (int)page_tokens);
    p.table = &s;
    table_begin(&s, heading);
    TRY(planned_run(&p, rows, slots, n_pages, page_tokens, &r, err));
    table_note(&s,
               "%d steps, %lld preemptions; planned by the engine's scheduler over a real pool and block "
               "tables, without a model (exact)",
               (int)p.n_steps, (long long)r.n_preemptions);
    serving_result_deinit(&r);
    return QUIRE_OK;
}

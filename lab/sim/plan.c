#include "lab/sim/plan.h"

#include <math.h>
#include <stddef.h>

#include "lab/bench/result_table.h"

enum { HOURS_OF_YEAR = 8760 };

void plan_options_init(plan_options *o) {
    *o = (plan_options){.n_prompt = 500,
                        .n_output = 500,
                        .page_tokens = 16,
                        .unused_percent = 75,
                        .n_devices = 100,
                        .cost_per_hour = 2};
}

/* A step of n requests in their steady state: each decodes a token over half of its
 * answer on average, and as prompts are computed as often as answers end, each token of
 * an answer brings n_prompt / n_output tokens of prompts. */
static double step_us(const plan_options *o, const cost_model *c, double n) {
    double prompt_rows = n * o->n_prompt / o->n_output;
    step_work w = {.rows = n + prompt_rows,
                   .out = n,
                   .decode_pairs = n * (o->n_prompt + o->n_output / 2.0),
                   .prefill_pairs = prompt_rows * o->n_prompt / 2.0};
    return cost_of(c, &w);
}

static plan_row make_row(const plan_options *o, const cost_model *c, const char *memory, int64_t reserved) {
    plan_row r = {.memory = memory, .reserved = reserved, .n_requests = c->kv_tokens / reserved};
    if (r.n_requests > 0) {
        r.step_us = step_us(o, c, (double)r.n_requests);
        r.tokens_per_s = (double)r.n_requests * 1e6 / r.step_us;
        r.per_million = o->cost_per_hour / (r.tokens_per_s * 3600) * 1e6;
    }
    return r;
}

static int64_t power_of_two(int64_t n) {
    int64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

quire_err plan_make(const plan_options *o, cost_model *cost, plan_row rows[PLAN_N_ROWS], quire_error *err) {
    TRY(cost_describe(o->model, o->device, cost, err));
    int64_t n = (int64_t)o->n_prompt + o->n_output;
    if (n > cost->max_model_len) {
        return err_set(err, QUIRE_INVALID, -1, "a request of %lld tokens: %s takes at most %d", (long long)n,
                       o->model, (int)cost->max_model_len);
    }
    int64_t pages = (n + o->page_tokens - 1) / o->page_tokens * o->page_tokens;
    rows[0] = make_row(o, cost, "pages", pages);
    rows[1] = make_row(o, cost, "a power of two", power_of_two(n));
    rows[2] = make_row(o, cost, "the longest", cost->max_model_len);
    rows[3] =
        make_row(o, cost, "part unused", (n * 100 + 99 - o->unused_percent) / (100 - o->unused_percent));
    for (int i = 0; i < PLAN_N_ROWS; i++) {
        rows[i].n_devices =
            rows[i].n_requests > 0 ? o->n_devices * rows[0].tokens_per_s / rows[i].tokens_per_s : INFINITY;
        rows[i].per_year = rows[i].n_devices * o->cost_per_hour * HOURS_OF_YEAR;
    }
    return QUIRE_OK;
}

quire_err plan_run(const plan_options *o, quire_error *err) {
    static const table_column columns[] = TABLE_OF(
        WORD("memory", "memory", 16), FIGURE("reserved", "reserved", 9, 0, "tokens"),
        FIGURE("requests", "requests", 9, 0, "requests"), FIGURE("step", "step ms", 8, 1, "ms"),
        FIGURE("throughput", "tokens/s", 9, 0, "tokens/s"),
        FIGURE("per_million", "$/Mtoken", 9, 3, "dollars"), FIGURE("devices", "devices", 8, 1, "devices"),
        FIGURE("per_year", "$ a year", 12, 0, "dollars"));
    static const bench_table s_of = {"plan", columns, (int)(sizeof columns / sizeof *columns), false};
    bench_table s = s_of;
    cost_model cost;
    plan_row rows[PLAN_N_ROWS];
    TRY(plan_make(o, &cost, rows, err));
    s.json = o->json;
    table_note(&s,
               "%s on %s, computed from published shapes and data sheets: %.1f GB, less a tenth, less %.1f "
               "GB of weights, hold %lld tokens of %lld bytes",
               o->model, o->device, (double)cost.memory_bytes / 1e9, (double)cost.weight_bytes / 1e9,
               (long long)cost.kv_tokens, (long long)cost.token_bytes);
    table_begin(&s, NULL);
    for (int i = 0; i < PLAN_N_ROWS; i++) {
        const plan_row *r = &rows[i];
        bool fits = r->n_requests > 0;
        TABLE_ROW(&s, TXT(r->memory), NUM(r->reserved), NUM(r->n_requests),
                  NUM(fits ? r->step_us * 1e-3 : TABLE_ABSENT), NUM(fits ? r->tokens_per_s : TABLE_ABSENT),
                  NUM(fits ? r->per_million : TABLE_ABSENT), NUM(fits ? r->n_devices : TABLE_ABSENT),
                  NUM(fits ? r->per_year : TABLE_ABSENT));
    }
    table_note(&s,
               "requests of %d + %d tokens, as many as fit, at all times; part unused: %d%% of what is "
               "reserved; devices and their cost at %g dollars an hour: for what %d serve with pages",
               (int)o->n_prompt, (int)o->n_output, (int)o->unused_percent, o->cost_per_hour,
               (int)o->n_devices);
    return QUIRE_OK;
}

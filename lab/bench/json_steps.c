#include "lab/bench/json_steps.h"

#include <stdio.h>

#include "api/quire_engine.h"
#include "base/mem.h"
#include "lab/bench/client.h"
#include "lab/bench/pool_size.h"
#include "lab/bench/sheet.h"

enum {
    SPARE_STEPS = 200, /* in which the others begin */
    MOST_A_STEP = 4,   /* tokens of a sequence in a step with jump-forward, in the mean */
    TRIES = 20         /* on a busy machine the first may have ended before the last begins */
};

/* Microseconds of a step. */
typedef struct step_cost {
    double step_us, sample_us, own_us; /* own: beside the forward pass and sampling */
} step_cost;

/* A schema that no other sequence has, whose answers are longer than a run. */
static void write_schema(int32_t i, char *out, size_t n) {
    snprintf(
        out, n,
        "{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":\"object\",\"properties\":{\"name_%d\":{"
        "\"type\":\"string\","
        "\"minLength\":4,\"maxLength\":%d},\"count\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":%d},"
        "\"kind\":{\"enum\":[\"a%d\",\"b\"]}},"
        "\"required\":[\"name_%d\",\"count\",\"kind\"],\"additionalProperties\":false}}",
        (int)i, (int)(20 + i % 30), (int)(1000 + i), (int)i, (int)i);
}

static quire_err send(client *c, int32_t i, bool is_free, int32_t n_steps, sent *s, quire_error *err) {
    char schema[512], number[16];
    const int32_t prompt[] = {1, 2 + i % 200, 3, 4};
    quire_request *r;
    *s = (sent){.n_output = n_steps};
    TRY(quire_request_ids(c->engine, prompt, sizeof prompt / sizeof *prompt, &r, err));
    snprintf(number, sizeof number, "%d", (int)n_steps);
    write_schema(i, schema, sizeof schema);
    quire_err e = quire_request_set(r, "max_tokens", number, err);
    e = e == QUIRE_OK ? quire_request_set(r, "seed", "1", err) : e;
    e = e == QUIRE_OK ? quire_request_set(r, "json_whitespace", "\"compact\"", err) : e;
    e = e == QUIRE_OK
            ? quire_request_set(r, is_free ? "ignore_eos" : "json_schema", is_free ? "true" : schema, err)
            : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    return quire_submit(c->queue, r, s, &s->stream, err);
}

static int32_t most_tokens(int32_t n_steps) {
    return MOST_A_STEP * n_steps + SPARE_STEPS;
}

static bool have_all_begun(const sent *requests, int32_t n) {
    bool all = true;
    for (int32_t i = 0; i < n && all; i++) {
        all = requests[i].n_seen > 0;
    }
    return all;
}

typedef struct moment {
    engine_profile profile;
    quire_stats stats;
} moment;

static void look(const client *c, moment *m) {
    quire_engine_stats(c->engine, &m->stats);
    engine_profile_read(c->engine->parts.core, &m->profile);
}

/* Lets n sequences decode together for n_steps, once all of them decode. first: the
 * number of the first one's schema. QUIRE_CANCELLED: they never did. */
static quire_err decode(client *c, int32_t first, int32_t n, bool is_free, int32_t n_steps, sent *requests,
                        step_cost *out, quire_error *err) {
    moment from = {0}, to = {0};
    bool begun = false, over = false;
    for (int32_t i = 0; i < n; i++) {
        TRY(send(c, first + i, is_free, most_tokens(n_steps), &requests[i], err));
    }
    for (int32_t left = n; left > 0;) {
        left -= client_receive(c, -1);
        if (over || left < n) {
            continue;
        }
        if (!begun && have_all_begun(requests, n)) {
            begun = true;
            look(c, &from);
        }
        look(c, &to);
        over = begun && to.stats.steps - from.stats.steps >= n_steps;
        for (int32_t i = 0; i < n && over; i++) {
            quire_stream_cancel(requests[i].stream);
        }
    }
    double steps = (double)(to.stats.steps - from.stats.steps);
    if (c->n_failed > 0 || !over) {
        return c->n_failed > 0
                   ? err_set(err, QUIRE_INTERNAL, -1, "%s", c->failure.message)
                   : err_set(err, QUIRE_CANCELLED, -1,
                             "the sequences never decoded together: other programs take this machine's time");
    }
    out->step_us = (double)(to.stats.step_us - from.stats.step_us) / steps;
    out->sample_us = (double)(to.profile.sample_ns - from.profile.sample_ns) * 1e-3 / steps;
    int64_t own_ns =
        to.profile.plan_ns - from.profile.plan_ns + to.profile.commit_ns - from.profile.commit_ns;
    out->own_us = (double)own_ns * 1e-3 / steps;
    return QUIRE_OK;
}

/* The ways in which sequences decode. JUMPS: under schemas, with jump-forward. */
typedef enum way { FREE, RULED, JUMPS, N_WAYS } way;

static void print_row(const sheet *sh, int32_t n, const step_cost *costs) {
    const step_cost *plain = &costs[FREE], *ruled = &costs[RULED];
    double added = ruled->sample_us - plain->sample_us;
    sheet_row(sh, (sheet_cell[]){{NULL, n},
                                 {NULL, plain->step_us * 1e-3},
                                 {NULL, plain->sample_us},
                                 {NULL, ruled->sample_us},
                                 {NULL, 100 * added / plain->step_us},
                                 {NULL, plain->own_us},
                                 {NULL, ruled->own_us},
                                 {NULL, ruled->own_us - plain->own_us},
                                 {NULL, costs[JUMPS].own_us - plain->own_us}});
}

/* Opens an engine for two of the ways, since jump-forward is a setting of its own, or for
 * the third. */
static quire_err run_ways(const quire_options *o, engine_ablations off, way from, way until, int32_t n,
                          int32_t n_steps, step_cost *costs, quire_error *err) {
    client c;
    off.no_jump_forward = until <= RULED; /* then every step has a row a sequence */
    sent *requests = mem_new((size_t)n, sizeof *requests);
    if (requests == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    quire_err e = client_open(o, off, &c, err);
    if (e == QUIRE_OK) {
        for (way w = from; w <= until && e == QUIRE_OK; w++) {
            e = QUIRE_CANCELLED;
            for (int32_t i = 0; i < TRIES && e == QUIRE_CANCELLED; i++) {
                e = decode(&c, i * n, n, w == FREE, n_steps, requests, &costs[w], err);
            }
        }
        client_close(&c);
    }
    mem_free(requests);
    return e;
}

static quire_err run_rows(const quire_options *given, engine_ablations off, int32_t n, int32_t n_steps,
                          const sheet *sh, quire_error *err) {
    quire_options o = *given;
    step_cost costs[N_WAYS];
    o.max_seqs = n;
    o.max_model_len = most_tokens(n_steps) + 64;
    TRY(pool_size_sequences(&o, "--rows", n, ((int64_t)o.max_model_len / o.page_tokens + 2) * o.page_tokens,
                            &o.n_pages, err));
    TRY(run_ways(&o, off, FREE, RULED, n, n_steps, costs, err));
    TRY(run_ways(&o, off, JUMPS, JUMPS, n, n_steps, costs, err));
    print_row(sh, n, costs);
    return QUIRE_OK;
}

quire_err json_steps_run(const quire_options *given, engine_ablations off, const char *rows, int32_t n_steps,
                         bool json, quire_error *err) {
    static const sheet_column columns[] = {{"sequences", "sequences", 9, 0, NULL},
                                           {"step", "step ms", 9, 2, "ms"},
                                           {"sampling", "sampling us", 12, 1, "us"},
                                           {"sampling_ruled", "under schemas", 14, 1, "us"},
                                           {"added", "added %", 8, 2, "%"},
                                           {"own", "own us", 8, 1, "us"},
                                           {"own_ruled", "under schemas", 14, 1, "us"},
                                           {"own_added", "added us", 9, 1, "us"},
                                           {"own_jumps", "jumping us", 11, 1, "us"}};
    const sheet sh = {"json", columns, (int32_t)(sizeof columns / sizeof *columns), json};
    int32_t n[FIGURES_MAX_POINTS], n_points;
    TRY(figures_parse_list("--rows", rows, n, &n_points, err));
    sheet_begin(&sh, "A step of sequences under schemas");
    for (int32_t i = 0; i < n_points; i++) {
        TRY(run_rows(given, off, n[i], n_steps, &sh, err));
    }
    sheet_note(&sh, "Every sequence has a schema of its own, each new, so its masks are made in these steps; "
                    "by the engine's timers. own: "
                    "planning, filling the batch, committing; added, and with jump-forward (where a step has "
                    "more rows). added %%: of the step "
                    "of free text.");
    return QUIRE_OK;
}

#include "lab/bench/bench_json.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "lab/bench/client.h"
#include "lab/bench/json_steps.h"
#include "lab/bench/shape.h"
#include "lab/bench/sheet.h"
#include "lab/bench/synthetic.h"

enum { MOST_TOKENS = 512, N_WAYS = 3 };

void bench_json_options_init(bench_json_options *o) {
    *o = (bench_json_options){.type = "q4_0", .rows = "8,256", .n_each = 4, .n_steps = 16};
    quire_options_init(&o->engine);
}

#define OBJECT(properties, required)                                                                         \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                           \
    "],\"additionalProperties\":false}"
#define INTEGER(low, high) "{\"type\":\"integer\",\"minimum\":" low ",\"maximum\":" high "}"
#define BOOLEAN            "{\"type\":\"boolean\"}"
#define NAME               "{\"type\":\"string\",\"maxLength\":10}"

/* Objects as programs ask for them: short values, names that the schema gives. */
static const struct {
    const char *name, *schema;
} schemas[] = {
    {"sentiment",
     OBJECT(
         "\"sentiment\":{\"enum\":[\"positive\",\"negative\",\"neutral\"]},\"confidence_percent\":" INTEGER(
             "0", "100") ","
                         "\"contains_offensive_language\":" BOOLEAN,
         "\"sentiment\",\"confidence_percent\",\"contains_offensive_language\"")},
    {"order",
     OBJECT("\"order_number\":" INTEGER(
                "1000", "99999") ",\"order_status\":{\"enum\":[\"pending\",\"shipped\",\"delivered\","
                                 "\"cancelled\"]},\"currency\":{\"enum\":[\"EUR\",\"USD\"]},\"total_amount_"
                                 "cents\":" INTEGER("0", "100000"),
            "\"order_number\",\"order_status\",\"currency\",\"total_amount_cents\"")},
    {"call", OBJECT("\"location\":" OBJECT(
                        "\"city\":" NAME ",\"country_code\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}$\"}",
                        "\"city\",\"country_code\"") ",\"temperature_unit\":{\"enum\":[\"celsius\","
                                                     "\"fahrenheit\"]},\"include_forecast\":" BOOLEAN,
                    "\"location\",\"temperature_unit\",\"include_forecast\"")},
    {"person", OBJECT("\"first_name\":" NAME ",\"last_name\":" NAME
                      ",\"age\":" INTEGER("0", "120") ",\"is_active_customer\":" BOOLEAN,
                      "\"first_name\",\"last_name\",\"age\",\"is_active_customer\"")},
    {"event", OBJECT("\"event_type\":{\"enum\":[\"user_login\",\"user_logout\",\"password_changed\"]},"
                     "\"occurred_on\":{\"type\":\"string\","
                     "\"format\":\"date\"},\"severity_level\":{\"enum\":[\"info\",\"warning\",\"error\"]}",
                     "\"event_type\",\"occurred_on\",\"severity_level\"")},
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

/* ---- answers ---- */

typedef struct answer {
    int32_t ids[MOST_TOKENS], n;
    double seconds;
    int64_t n_forced, n_guessed; /* tokens of its that were computed before they were sampled */
} answer;

static quire_err set_fields(quire_request *r, const char *schema, int32_t n_tokens, int32_t seed,
                            quire_error *err) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)n_tokens);
    TRY(quire_request_set(r, "max_tokens", number, err));
    snprintf(number, sizeof number, "%d", (int)seed);
    TRY(quire_request_set(r, "seed", number, err));
    if (schema == NULL) {
        return quire_request_set(r, "ignore_eos", "true", err);
    }
    TRY(quire_request_set(r, "json_whitespace", "\"compact\"", err));
    return quire_request_set(r, "json_schema", schema, err);
}

/* One request, from its submission to its end. */
static quire_err ask(client *c, const char *schema, int32_t n_tokens, int32_t seed, answer *a,
                     quire_error *err) {
    static const int32_t prompt[] = {1, 2, 3, 4};
    quire_request *r;
    quire_stream *stream;
    quire_stats before, after;
    quire_engine_stats(c->engine, &before);
    TRY(quire_request_ids(c->engine, prompt, sizeof prompt / sizeof *prompt, &r, err));
    quire_err e = set_fields(r, schema, n_tokens, seed, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    int64_t start_us = clock_us();
    a->n = 0;
    TRY(quire_submit(c->queue, r, NULL, &stream, err));
    for (bool done = false; !done;) {
        quire_event ev;
        if (!quire_queue_next(c->queue, &ev)) {
            quire_queue_wait(c->queue, -1);
            continue;
        }
        for (int32_t i = 0; ev.kind == QUIRE_EVENT_DELTA && i < ev.n_tokens && a->n < MOST_TOKENS; i++) {
            a->ids[a->n++] = ev.tokens[i];
        }
        done = ev.kind == QUIRE_EVENT_DONE;
        e = done && ev.error != NULL ? err_set(err, ev.error->code, -1, "%s", ev.error->message) : e;
    }
    a->seconds = (double)(clock_us() - start_us) * 1e-6;
    quire_stream_release(stream);
    quire_engine_stats(c->engine, &after);
    a->n_guessed = after.draft_accepted - before.draft_accepted;
    a->n_forced = after.jump_forward_tokens - before.jump_forward_tokens;
    return e;
}

/* ---- speed by schema ---- */

typedef struct tally {
    int64_t n_tokens, n_forced, n_guessed;
    double seconds[N_WAYS]; /* free, constrained, with jump-forward */
} tally;

/* An answer to a schema, by every way. */
static quire_err compare(client *jumps, client *plain, int32_t schema, int32_t seed, tally *t,
                         quire_error *err) {
    answer a, b, free_text;
    TRY(ask(jumps, schemas[schema].schema, MOST_TOKENS, seed, &a, err));
    TRY(ask(plain, schemas[schema].schema, MOST_TOKENS, seed, &b, err));
    TRY(ask(plain, NULL, b.n, seed, &free_text, err));
    if (a.n != b.n || memcmp(a.ids, b.ids, (size_t)a.n * sizeof *a.ids) != 0) {
        return err_set(err, QUIRE_INTERNAL, seed, "%s: the answer with jump-forward is another than without",
                       schemas[schema].name);
    }
    t->n_tokens += a.n;
    t->n_forced += a.n_forced;
    t->n_guessed += a.n_guessed;
    t->seconds[0] += free_text.seconds;
    t->seconds[1] += b.seconds;
    t->seconds[2] += a.seconds;
    return QUIRE_OK;
}

static void print_tally(const sheet *sh, const char *name, const tally *t) {
    double n = (double)t->n_tokens;
    sheet_row(sh, (sheet_cell[]){{name, 0},
                                 {NULL, n},
                                 {NULL, 100 * (double)t->n_forced / n},
                                 {NULL, 100 * (double)t->n_guessed / n},
                                 {NULL, n / t->seconds[0]},
                                 {NULL, n / t->seconds[1]},
                                 {NULL, n / t->seconds[2]},
                                 {NULL, t->seconds[1] / t->seconds[2]},
                                 {"equal", 0}});
}

static quire_err run_schemas(const bench_json_options *o, client *jumps, client *plain, quire_error *err) {
    static const sheet_column columns[] = {{"schema", "schema", -10, SHEET_TEXT, NULL},
                                           {"tokens", "tokens", 7, 0, "tokens"},
                                           {"forced", "forced %", 9, 1, "%"},
                                           {"guessed", "guessed %", 10, 1, "%"},
                                           {"free", "free tokens/s", 14, 1, "tokens/s"},
                                           {"constrained", "constrained", 12, 1, "tokens/s"},
                                           {"jump_forward", "jump-forward", 13, 1, "tokens/s"},
                                           {"gain", "gain", 6, 2, "x"},
                                           {"output", "output", 0, SHEET_TEXT, ""}};
    const sheet sh = {"json", columns, (int32_t)(sizeof columns / sizeof *columns), o->json};
    tally sum = {0}, warm = {0};
    TRY(compare(jumps, plain, 0, 1, &warm, err));
    sheet_begin(&sh, NULL);
    for (int32_t i = 0; i < N_SCHEMAS; i++) {
        tally t = {0};
        for (int32_t k = 0; k < o->n_each; k++) {
            TRY(compare(jumps, plain, i, k + 1, &t, err));
        }
        print_tally(&sh, schemas[i].name, &t);
        sum.n_tokens += t.n_tokens;
        sum.n_forced += t.n_forced;
        sum.n_guessed += t.n_guessed;
        for (int w = 0; w < N_WAYS; w++) {
            sum.seconds[w] += t.seconds[w];
        }
    }
    print_tally(&sh, "all", &sum);
    sheet_note(&sh,
               "%s, compute %s, %d threads: one request at a time, %d answers a schema, each by every way in "
               "turn, from submission to "
               "end; free text has as many tokens. gain: jump-forward over constrained.",
               o->shape != NULL ? o->shape : o->engine.model, jumps->info->compute,
               (int)jumps->info->n_threads, (int)o->n_each);
    return QUIRE_OK;
}

/* ---- a run ---- */

/* Opens an engine with jump-forward and one without. */
static quire_err run_speeds(const bench_json_options *o, const quire_options *given, quire_error *err) {
    quire_options engine = *given;
    engine_ablations plain_off = o->off;
    client jumps, plain;
    engine.memory_utilization /= 2;
    plain_off.no_jump_forward = true;
    TRY(client_open(&engine, o->off, &jumps, err));
    quire_err e = client_open(&engine, plain_off, &plain, err);
    if (e == QUIRE_OK) {
        e = run_schemas(o, &jumps, &plain, err);
        client_close(&plain);
    }
    client_close(&jumps);
    return e;
}

static quire_err run_on(const bench_json_options *o, quire_error *err) {
    quire_options engine = o->engine;
    engine.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    TRY(o->n_each > 0 ? run_speeds(o, &engine, err) : QUIRE_OK);
    return o->rows[0] != '\0' ? json_steps_run(&engine, o->off, o->rows, o->n_steps, o->json, err) : QUIRE_OK;
}

quire_err bench_json_run(const bench_json_options *o, quire_error *err) {
    bench_json_options own = *o;
    const model_shape *shape;
    const speed_type *type;
    synthetic s;
    if (o->shape == NULL) {
        return run_on(o, err);
    }
    if (o->engine.tokenizer == NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--shape %s: a random model has no vocabulary; give one with --tokenizer FILE",
                       o->shape);
    }
    TRY(model_shape_parse("--shape", o->shape, &shape, err));
    type = speed_type_find(o->type, strlen(o->type));
    if (type == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--type %s: no such type of weights", o->type);
    }
    TRY(synthetic_open(shape, type->file, &s, err));
    own.engine.model = s.path;
    own.engine.compute = speed_type_compute(type);
    quire_err e = run_on(&own, err);
    synthetic_close(&s);
    return e;
}

/* `quire bench json`: the cost of answers under JSON Schemas: their speed compared with
 * free text, with and without jump-forward, and what sequences under schemas add to a
 * decode step. */

#include "api/quire_engine.h"
#include "base/clock.h"
#include "engine/ablations.h"
#include "lab/bench/client.h"
#include "lab/bench/model_shape.h"
#include "lab/commands/measures.h"

typedef struct bench_json_options {
    cli_options cli;
    /* random weights instead of engine.model, with engine.tokenizer; NULL: none */
    const char *shape, *type;
    const char *rows; /* numbers of sequences that decode together, "8,256"; "": none */
    int32_t n_each;   /* answers per schema; 0: no speeds */
    int32_t n_steps;  /* decode steps per batch */
} bench_json_options;

/* ---- what sequences under schemas add to a decode step ---- */

enum {
    SPARE_STEPS = 200, /* steps in which the other sequences begin */
    MOST_A_STEP = 4,   /* mean tokens of a sequence per step with jump-forward */
    TRIES = 20         /* on a busy machine the first may have ended before the last begins */
};

/* Microseconds per step. */
typedef struct step_times {
    double step_us, sample_us, own_us; /* own: without the forward pass and sampling */
} step_times;

/* Writes a schema that no other sequence has and whose answers are longer than a run. */
static void write_schema(int32_t i, char *out, size_t n) {
    snprintf(out, n,
             "{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":\"object\",\"properties\":{\"name_%"
             "d\":{\"type\":\"string\",\"minLength\":4,\"maxLength\":%d},\"count\":{\"type\":\"integer\","
             "\"minimum\":0,\"maximum\":%d},\"kind\":{\"enum\":[\"a%d\",\"b\"]}},\"required\":[\"name_%d\","
             "\"count\",\"kind\"],\"additionalProperties\":false}}",
             (int)i, (int)(20 + i % 30), (int)(1000 + i), (int)i, (int)i);
}

/* Asks for at most n_tokens after a prompt of four ids. schema NULL: free text. */
static quire_err json_send(client *c, int32_t second, const char *schema, int32_t seed, int32_t n_tokens,
                           sent *s, quire_error *err) {
    char number[16];
    const int32_t prompt[] = {1, second, 3, 4};
    (void)snprintf(number, sizeof number, "%d", (int)seed);
    const client_field fields[] = {
        {"seed", number},
        {"json_whitespace", "\"compact\""},
        {schema != NULL ? "json_schema" : "ignore_eos", schema != NULL ? schema : "true"},
        {NULL, NULL}};
    return client_send_fields(c, prompt, sizeof prompt / sizeof *prompt, n_tokens, fields, s, err);
}

static int32_t bench_json_most_tokens(int32_t n_steps) {
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

static void bench_json_look(const client *c, moment *m) {
    quire_engine_stats(c->engine, &m->stats);
    engine_profile_read(c->engine->parts.core, &m->profile);
}

/* Lets n sequences decode together for n_steps, once all of them decode. first: number of
 * the first one's schema. QUIRE_CANCELLED: they never all decoded. */
static quire_err bench_json_decode(client *c, int32_t first, int32_t n, bool is_free, int32_t n_steps,
                                   sent *requests, step_times *out, quire_error *err) {
    moment from = {0}, to = {0};
    bool begun = false, over = false;
    for (int32_t i = 0; i < n; i++) {
        char schema[512];
        write_schema(first + i, schema, sizeof schema);
        requests[i] = (sent){0};
        TRY(json_send(c, 2 + (first + i) % 200, is_free ? NULL : schema, 1, bench_json_most_tokens(n_steps),
                      &requests[i], err));
    }
    for (int32_t left = n; left > 0;) {
        left -= client_receive(c, -1);
        if (over || left < n) {
            continue;
        }
        if (!begun && have_all_begun(requests, n)) {
            begun = true;
            bench_json_look(c, &from);
        }
        bench_json_look(c, &to);
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

/* How sequences decode. JUMPS: under schemas, with jump-forward. */
typedef enum way { FREE, RULED, JUMPS, N_WAYS } way;

static void bench_json_print_row(const bench_table *sh, int32_t n, const step_times *costs) {
    const step_times *plain = &costs[FREE], *ruled = &costs[RULED];
    double added = ruled->sample_us - plain->sample_us;
    TABLE_ROW(sh, NUM(n), NUM(plain->step_us * 1e-3), NUM(plain->sample_us), NUM(ruled->sample_us),
              NUM(100 * added / plain->step_us), NUM(plain->own_us), NUM(ruled->own_us),
              NUM(ruled->own_us - plain->own_us), NUM(costs[JUMPS].own_us - plain->own_us));
}

/* Opens an engine for the first two ways, or for the third, since jump-forward is a
 * setting of the engine. */
static quire_err run_ways(const quire_options *o, way from, way until, int32_t n, int32_t n_steps,
                          step_times *costs, quire_error *err) {
    client c;
    /* without it every step has one row per sequence */
    const engine_ablations off = {.no_jump_forward = until <= RULED};
    sent *requests = mem_new((size_t)n, sizeof *requests);
    TRY(mem_check_for(requests, "the measurement", err));
    quire_err e = client_open(o, off, NULL, &c, err);
    if (e == QUIRE_OK) {
        for (way w = from; w <= until && e == QUIRE_OK; w++) {
            e = QUIRE_CANCELLED;
            for (int32_t i = 0; i < TRIES && e == QUIRE_CANCELLED; i++) {
                e = bench_json_decode(&c, i * n, n, w == FREE, n_steps, requests, &costs[w], err);
            }
        }
        client_close(&c);
    }
    mem_free(requests);
    return e;
}

static quire_err run_rows(const bench_json_options *given, int32_t n, const bench_table *sh,
                          quire_error *err) {
    quire_options o = given->cli.engine;
    const int32_t n_steps = given->n_steps;
    step_times costs[N_WAYS];
    o.max_seqs = n;
    o.max_model_len = bench_json_most_tokens(n_steps) + 64;
    TRY(pool_size_sequences(&o, "--rows", n, ((int64_t)o.max_model_len / o.page_tokens + 2) * o.page_tokens,
                            &o.n_pages, err));
    TRY(run_ways(&o, FREE, RULED, n, n_steps, costs, err));
    TRY(run_ways(&o, JUMPS, JUMPS, n, n_steps, costs, err));
    bench_json_print_row(sh, n, costs);
    return QUIRE_OK;
}

/* For each number in o->rows, prints by the engine's own timers a step of that many
 * sequences of free text, and of as many under a schema each. */
static quire_err json_steps_run(const bench_json_options *o, quire_error *err) {
    TABLE(sh, "json", o->cli.json, KEY("sequences", "sequences", 9, 0), FIGURE("step", "step ms", 9, 2, "ms"),
          FIGURE("sampling", "sampling us", 12, 1, "us"),
          FIGURE("sampling_ruled", "under schemas", 14, 1, "us"), FIGURE("added", "added %", 8, 2, "%"),
          FIGURE("own", "own us", 8, 1, "us"), FIGURE("own_ruled", "under schemas", 14, 1, "us"),
          FIGURE("own_added", "added us", 9, 1, "us"), FIGURE("own_jumps", "jumping us", 11, 1, "us"));
    int32_t n[FIGURES_MAX_POINTS], n_points;
    TRY(figures_parse_list("--rows", o->rows, n, &n_points, err));
    table_begin(&sh, "A step of sequences under schemas");
    for (int32_t i = 0; i < n_points; i++) {
        TRY(run_rows(o, n[i], &sh, err));
    }
    table_note(&sh, "Every sequence has a schema of its own, each new, so its masks are made in these steps; "
                    "by the engine's timers. own: planning, filling the batch, committing; added, and with "
                    "jump-forward (where a step has more rows). added %%: of the step of free text.");
    return QUIRE_OK;
}

enum { MOST_TOKENS = 512 };

LAB_DEFAULTS(bench_json, .type = "q4_0", .rows = "8,256", .n_each = 4, .n_steps = 16)

#define OBJECT(properties, required)                                                                         \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required                           \
    "],\"additionalProperties\":false}"
#define INTEGER(low, high) "{\"type\":\"integer\",\"minimum\":" low ",\"maximum\":" high "}"
#define BOOLEAN            "{\"type\":\"boolean\"}"
#define NAME               "{\"type\":\"string\",\"maxLength\":10}"

/* Objects such as programs ask for: short values, with names given by the schema. */
static const struct {
    const char *name, *schema;
} schemas[] = {
    {"sentiment",
     OBJECT(
         "\"sentiment\":{\"enum\":[\"positive\",\"negative\",\"neutral\"]},\"confidence_percent\":" INTEGER(
             "0", "100") ",\"contains_offensive_language\":" BOOLEAN,
         "\"sentiment\",\"confidence_percent\",\"contains_offensive_language\"")},
    {"order",
     OBJECT("\"order_number\":" INTEGER(
                "1000",
                "99999") ",\"order_status\":{\"enum\":[\"pending\",\"shipped\",\"delivered\",\"cancelled\"]},"
                         "\"currency\":{\"enum\":[\"EUR\",\"USD\"]},\"total_amount_cents\":" INTEGER(
                             "0", "100000"),
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
                     "\"occurred_on\":{\"type\":\"string\",\"format\":\"date\"},\"severity_level\":{\"enum\":"
                     "[\"info\",\"warning\",\"error\"]}",
                     "\"event_type\",\"occurred_on\",\"severity_level\"")},
};
enum { N_SCHEMAS = sizeof schemas / sizeof *schemas };

/* ---- answers ---- */

typedef struct answer {
    int32_t ids[MOST_TOKENS], n;
    double seconds;
    int64_t n_forced, n_guessed; /* part of its tokens computed before they were sampled */
} answer;

/* Runs one request to its end; schema NULL: free text. */
static quire_err bench_json_ask(client *c, const char *schema, int32_t n_tokens, int32_t seed, answer *a,
                                quire_error *err) {
    quire_stats before, after;
    sent s = {.ids = a->ids};
    quire_engine_stats(c->engine, &before);
    int64_t start_us = clock_us();
    TRY(json_send(c, 2, schema, seed, n_tokens, &s, err));
    TRY(client_await(c, 1, err));
    a->seconds = (double)(clock_us() - start_us) * 1e-6;
    a->n = s.n_seen;
    quire_engine_stats(c->engine, &after);
    a->n_guessed = after.draft_accepted - before.draft_accepted;
    a->n_forced = after.jump_forward_tokens - before.jump_forward_tokens;
    return QUIRE_OK;
}

/* ---- speed by schema ---- */

typedef struct tally {
    int64_t n_tokens, n_forced, n_guessed;
    double seconds[N_WAYS]; /* free, constrained, with jump-forward */
} tally;

/* Generates an answer to a schema in every way. */
static quire_err bench_json_compare(client *jumps, client *plain, int32_t schema, int32_t seed, tally *t,
                                    quire_error *err) {
    answer a, b, free_text;
    TRY(bench_json_ask(jumps, schemas[schema].schema, MOST_TOKENS, seed, &a, err));
    TRY(bench_json_ask(plain, schemas[schema].schema, MOST_TOKENS, seed, &b, err));
    TRY(bench_json_ask(plain, NULL, b.n, seed, &free_text, err));
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

static void bench_json_print_tally(const bench_table *sh, const char *name, const tally *t) {
    double n = (double)t->n_tokens;
    TABLE_ROW(sh, TXT(name), NUM(n), NUM(100 * (double)t->n_forced / n), NUM(100 * (double)t->n_guessed / n),
              NUM(n / t->seconds[0]), NUM(n / t->seconds[1]), NUM(n / t->seconds[2]),
              NUM(t->seconds[1] / t->seconds[2]), TXT("equal"));
}

static quire_err run_schemas(const bench_json_options *o, client *jumps, client *plain, quire_error *err) {
    TABLE(sh, "json", o->cli.json, WORD("schema", "schema", -10), FIGURE("tokens", "tokens", 7, 0, "tokens"),
          FIGURE("forced", "forced %", 9, 1, "%"), FIGURE("guessed", "guessed %", 10, 1, "%"),
          FIGURE("free", "free tokens/s", 14, 1, "tokens/s"),
          FIGURE("constrained", "constrained", 12, 1, "tokens/s"),
          FIGURE("jump_forward", "jump-forward", 13, 1, "tokens/s"), FIGURE("gain", "gain", 6, 2, "x"),
          REMARK("output", "output", 0));
    tally sum = {0}, warm = {0};
    TRY(bench_json_compare(jumps, plain, 0, 1, &warm, err));
    table_begin(&sh, NULL);
    for (int32_t i = 0; i < N_SCHEMAS; i++) {
        tally t = {0};
        for (int32_t k = 0; k < o->n_each; k++) {
            TRY(bench_json_compare(jumps, plain, i, k + 1, &t, err));
        }
        bench_json_print_tally(&sh, schemas[i].name, &t);
        sum.n_tokens += t.n_tokens;
        sum.n_forced += t.n_forced;
        sum.n_guessed += t.n_guessed;
        for (int w = 0; w < N_WAYS; w++) {
            sum.seconds[w] += t.seconds[w];
        }
    }
    bench_json_print_tally(&sh, "all", &sum);
    table_note(
        &sh,
        "%s, compute %s, %d threads: one request at a time, %d answers a schema, each by every way in turn, "
        "from submission to end; free text has as many tokens. gain: jump-forward over constrained.",
        o->shape != NULL ? o->shape : o->cli.engine.model, jumps->info->compute, (int)jumps->info->n_threads,
        (int)o->n_each);
    return QUIRE_OK;
}

/* ---- a run ---- */

/* Opens an engine with jump-forward and one without. */
static quire_err run_speeds(const bench_json_options *o, quire_error *err) {
    quire_options half = o->cli.engine;
    client jumps, plain;
    half.memory_utilization /= 2;
    TRY(client_open(&half, (engine_ablations){0}, NULL, &jumps, err));
    quire_err e = client_open(&half, (engine_ablations){.no_jump_forward = true}, NULL, &plain, err);
    if (e == QUIRE_OK) {
        e = run_schemas(o, &jumps, &plain, err);
        client_close(&plain);
    }
    client_close(&jumps);
    return e;
}

static quire_err bench_json_run(const cli_options *cli, quire_error *err) {
    bench_json_options own = *(const bench_json_options *)(const void *)cli;
    synthetic s;
    TRY(shaped_open(cli, own.shape, own.type, own.shape != NULL ? SHAPED_TEXTS : SHAPED_NOT, &own.cli.engine,
                    &s, err));
    own.cli.engine.prefix_cache = QUIRE_PREFIX_CACHE_NONE;
    quire_err e = own.n_each > 0 ? run_speeds(&own, err) : QUIRE_OK;
    if (own.rows[0] != '\0') {
        TRY_DONE(e, json_steps_run(&own, err));
    }
done:
    synthetic_close(&s);
    return e;
}

#define AT(member) .offset = offsetof(bench_json_options, member)

static const flag bench_json_flags[] = {
    {"--each", "N", "answers to each schema; 0: none", COUNT(n_each, 0, 1 << 16)},
    {"--rows", "LIST", "sequences that decode together under schemas; empty: none", TEXT(rows)},
    {"--steps", "N", "decode steps of them", COUNT(n_steps, 1, 4096)},
    SHAPE_FLAGS,
    {0},
};

LAB_COMMAND(bench_json, "bench json", " [MODEL]", ARGUMENT_MODEL_OR_BUILTIN,
            "answers under JSON Schemas: their speed, and what they add to a step",
            "  quire bench json\n"
            "  quire bench json --shape 1.1b --tokenizer tokenizer.json --rows 8,256\n",
            FLAGS_MODEL, flags_tokenizer, bench_json_flags, flags_json, flags_compute, FLAGS_KV,
            FLAGS_MACHINE, FLAGS_BATCH, FLAGS_MEMORY);

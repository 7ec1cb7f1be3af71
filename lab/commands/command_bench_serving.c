/* `quire bench serving`: its flags. */
#include <stddef.h>

#include "base/err.h"
#include "cli/unused_flags.h"
#include "lab/bench/bench_serving.h"
#include "lab/commands/lab_commands.h"
#include "lab/commands/served_flags.h"

typedef struct options {
    served_options served;
    bench_serving_options own;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag load_flags[] = {
    {"--model -m", "MODEL", "serve with this model; without: simulate", FLAG_TEXT,
     AT(served.cli.engine.model)},
    {"--trace", "FILE", "its requests (see quire sim --help) instead of Poisson arrivals", FLAG_TEXT,
     AT(own.trace)},
    {"--lengths", "NAME", "of prompts and answers: like sharegpt's or alpaca's", FLAG_TEXT, AT(own.lengths)},
    {"--rate", "N", "arrivals a second", FLAG_PART, AT(own.rate), .minimum = 1e-6, .maximum = 1e6},
    {"--requests", "N", "how many; without: 1000, of a trace all", FLAG_COUNT, AT(own.n_requests),
     .minimum = 1, .maximum = INT32_MAX},
    {"--seed", "N", "of arrivals and lengths", FLAG_COUNT, AT(own.seed), .minimum = 0, .maximum = INT32_MAX},
    {0},
};
static const flag prediction_flags[] = {
    {"--calibrate", NULL, "predict from what steps cost before and after each run", FLAG_SWITCH,
     AT(own.calibrate)},
    {"--runs", "N", "really served so many times, figures being means", FLAG_COUNT, AT(own.n_runs),
     .minimum = 1, .maximum = 64},
    {0},
};
static const flag page_flags[] = {
    {"--page-size --block-size", "N", "tokens a page holds", FLAG_POWER_OF_TWO, AT(served.server.page_tokens),
     .minimum = 1, .maximum = 256},
    {0},
};
static const flag *const groups[] = {
    load_flags,    flags_served_by, prediction_flags, flags_served,   page_flags, FLAGS_NUMERIC,
    flags_threads, flags_json,      flags_help,       flags_help_all, NULL};

static void defaults(cli_options *o) {
    compare_options_init(&((options *)(void *)o)->served.server);
    bench_serving_options_init(&((options *)(void *)o)->own);
}

/* The same limits for the engine that runs and the server that is simulated; what was not
 * given is as each has it. */
static quire_err limit_engine(const compare_options *s, quire_options *e, quire_error *err) {
    e->max_seqs = s->max_seqs > 0 ? s->max_seqs : e->max_seqs;
    e->max_batched_tokens = s->max_rows > 0 ? s->max_rows : e->max_batched_tokens;
    e->prefill_chunk = s->max_chunk;
    e->max_model_len = s->max_model_len;
    e->page_tokens = s->page_tokens;
    e->step_target_us = s->step_target_us;
    e->swap_bytes = s->swap_bytes;
    e->preemption_mode = s->preemption_mode;
    if ((s->acceptance != NULL || s->draft_us > 0) && e->model != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "--acceptance and --draft-us are of a server that is simulated, and a MODEL is given");
    }
    if (s->kv_tokens > 0) {
        int64_t n_pages = s->kv_tokens / s->page_tokens;
        if (n_pages < 1 || n_pages > INT32_MAX) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--kv-tokens %lld: must be from %d, the tokens of a page, to %d pages of as many",
                           (long long)s->kv_tokens, (int)s->page_tokens, INT32_MAX);
        }
    }
    return QUIRE_OK;
}

/* A flag that would do nothing is refused. */
static quire_err check_flags(const options *o, quire_error *err) {
    const cli_options *c = &o->served.cli;
    if (o->own.trace != NULL) {
        TRY(unused_flags_refuse(c, "--rate --lengths --seed",
                                "with --trace, whose requests have their own times and lengths (see --speed)",
                                err));
    }
    if (c->engine.model != NULL) {
        return unused_flags_refuse(
            c, "--slo --cost-per-hour",
            "with a MODEL, which really serves, at one rate: it is of simulated servers", err);
    }
    return o->own.calibrate
               ? QUIRE_OK
               : unused_flags_refuse(c, "--compute --quantization --kv-dtype --prefix-cache --threads --runs",
                                     "where a server is simulated: give a MODEL that really serves", err);
}

static quire_err run(const cli_options *o, quire_error *err) {
    const options *given = (const void *)o;
    bench_serving_options own = given->own;
    TRY(check_flags(given, err));
    own.engine = o->engine;
    own.server = given->served.server;
    own.json = o->json;
    TRY(limit_engine(&own.server, &own.engine, err));
    return bench_serving_run(&own, err);
}

const command command_bench_serving = {
    .name = "bench serving",
    .summary = "requests a second under a bound on latency, simulated or really served",
    .usage = "quire bench serving [MODEL]",
    .examples =
        "  quire bench serving --described opt-13b,a100-40gb --lengths sharegpt --rate 2 --slo token=0.2\n"
        "  quire bench serving builtin --lengths alpaca --rate 30 --requests 500 --cost cost.json\n"
        "  quire bench serving builtin --trace requests.jsonl --shrink 64 --speed 10 --calibrate\n"
        "without a MODEL nothing is run: the engine's planner is, on a described device or one that was "
        "calibrated\n",
    .argument = ARGUMENT_MODEL_OR_NONE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};

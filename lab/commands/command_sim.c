/* `quire sim`: its flags. */
#include <stddef.h>
#include <string.h>

#include "base/err.h"
#include "cli/files.h"
#include "cli/unused_flags.h"
#include "lab/commands/lab_commands.h"
#include "lab/commands/served_flags.h"
#include "lab/sim/plan.h"
#include "lab/sim/sim.h"

typedef struct options {
    served_options served;
    sim_options own;
    plan_options plan;
} options;

#define AT(member) .offset = offsetof(options, member)

static const flag_choice reuses[] = {
    {"token", NULL, QUIRE_PREFIX_CACHE_TOKEN}, {"page", NULL, QUIRE_PREFIX_CACHE_PAGE}, {0}};

static const flag own_flags[] = {
    {"--pages", "LIST", "capacities in pages (halves of what the whole trace fills)", FLAG_TEXT,
     AT(own.pages)},
    {"--policy", "LIST", "eviction: all, or some of lru,lfu,gdsf,learned,belady", FLAG_TEXT,
     AT(own.policies)},
    {"--page-size --block-size --page-tokens", "N", "tokens a page holds", FLAG_POWER_OF_TWO,
     AT(own.page_tokens), .minimum = 1, .maximum = 512},
    {"--prefix-cache", NULL, "reuse the beginnings of prompts, by token or by page", FLAG_CHOICE,
     AT(own.prefix_cache), .choices = reuses},
    {"--concurrency", "N", "requests open at once", FLAG_COUNT, AT(own.concurrency), .minimum = 1,
     .maximum = 1 << 16},
    {"--limit", "N", "read this many requests; 0: all", FLAG_COUNT, AT(own.limit), .minimum = 0,
     .maximum = INT32_MAX},
    {"--svg", "FILE", "plot hit rate against capacity", FLAG_TEXT, AT(own.svg)},
    {"--compare", NULL, "serve it: simulate every way to batch and to give memory", FLAG_SWITCH,
     AT(served.server.all)},
    {"--plan", "MODEL", "how many requests fit on a DEVICE, in the TRACE's place, and what that costs",
     FLAG_TEXT, AT(plan.model)},
    {"--prompt", "N", "with --plan: tokens of a prompt", FLAG_COUNT, AT(plan.n_prompt), .minimum = 1,
     .maximum = 1 << 24},
    {"--output", "N", "with --plan: tokens of an answer", FLAG_COUNT, AT(plan.n_output), .minimum = 1,
     .maximum = 1 << 24},
    {"--unused", "PERCENT", "with --plan: of what is reserved without pages", FLAG_COUNT,
     AT(plan.unused_percent), .minimum = 0, .maximum = 99, .rare = true},
    {"--devices", "N", "with --plan: of the fleet", FLAG_COUNT, AT(plan.n_devices), .minimum = 1,
     .maximum = 1 << 24, .rare = true},
    {0},
};
static const flag *const groups[] = {own_flags,  flags_served_by, flags_served, flags_json,
                                     flags_help, flags_help_all,  NULL};

static void defaults(cli_options *o) {
    compare_options_init(&((options *)(void *)o)->served.server);
    sim_options_init(&((options *)(void *)o)->own);
    plan_options_init(&((options *)(void *)o)->plan);
}

/* The first given flag of a replay of the prefix cache alone. */
static const char *replay_flag_given(const sim_options *o) {
    sim_options none;
    sim_options_init(&none);
    return o->pages != NULL                          ? "--pages"
           : strcmp(o->policies, none.policies) != 0 ? "--policy"
           : o->svg != NULL                          ? "--svg"
           : o->concurrency != none.concurrency      ? "--concurrency"
                                                     : NULL;
}

/* A flag of another of the three: a plan, a server, a replay. */
static quire_err check_flags(const options *o, quire_error *err) {
    const compare_options *s = &o->served.server;
    bool plans = o->plan.model != NULL, serves = s->all || s->cost != NULL || s->described != NULL;
    const char *replays = replay_flag_given(&o->own), *served = served_flag_given(s);
    plan_options none;
    plan_options_init(&none);
    if (plans && (serves || served != NULL || replays != NULL)) {
        const char *device = s->all ? "--compare" : s->cost != NULL ? "--cost" : "--described";
        return err_set(err, QUIRE_INVALID, -1,
                       "%s does nothing with --plan, which takes --prompt, --output, --unused, --devices, "
                       "--page-size and --cost-per-hour",
                       served != NULL    ? served
                       : replays != NULL ? replays
                                         : device);
    }
    if (plans) {
        return unused_flags_refuse(&o->served.cli, "--limit --prefix-cache",
                                   "with --plan, which reads no trace", err);
    }
    if (o->plan.n_prompt != none.n_prompt || o->plan.n_output != none.n_output ||
        o->plan.unused_percent != none.unused_percent || o->plan.n_devices != none.n_devices) {
        return err_set(err, QUIRE_INVALID, -1, "--prompt, --output, --unused and --devices are of --plan");
    }
    if (serves && replays != NULL) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s is of the prefix cache alone; it does nothing where a server is simulated",
                       replays);
    }
    if (!serves && (served != NULL || s->cost_per_hour > 0)) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%s is of a server that is simulated: give --described MODEL,DEVICE or --cost FILE",
                       served != NULL ? served : "--cost-per-hour");
    }
    return s->all ? unused_flags_refuse(&o->served.cli, "--prefix-cache",
                                        "with --compare, whose servers have every kind of it", err)
                  : QUIRE_OK;
}

static quire_err run(const cli_options *o, quire_error *err) {
    const options *given = (const void *)o;
    sim_options own = given->own;
    TRY(check_flags(given, err));
    if (given->plan.model != NULL) {
        plan_options plan = given->plan;
        if (o->argument == NULL) {
            return err_set(err, QUIRE_INVALID, -1,
                           "--plan %s needs a DEVICE behind it, as in --plan %s a100-40gb", plan.model,
                           plan.model);
        }
        plan.device = o->argument;
        plan.page_tokens = own.page_tokens;
        plan.cost_per_hour =
            given->served.server.cost_per_hour > 0 ? given->served.server.cost_per_hour : plan.cost_per_hour;
        plan.json = o->json;
        return plan_run(&plan, err);
    }
    if (!o->argument) {
        return err_set(err, QUIRE_INVALID, -1,
                       "quire sim needs a TRACE: a file of requests; `quire sim --help` names the formats");
    }
    TRY(files_check_named("--svg", own.svg, err));
    own.trace = o->argument;
    own.server = given->served.server;
    own.server.prefix_cache = own.prefix_cache;
    own.json = own.server.json = o->json;
    return sim_run(&own, err);
}

const command command_sim = {
    .name = "sim",
    .summary = "what a prefix cache of some size and policy finds in a trace of requests",
    .usage = "quire sim TRACE [--pages LIST] [--policy LIST|all]",
    .examples =
        "  quire sim conversation.jsonl --pages 100000,400000 --policy all --svg hits.svg\n"
        "  quire sim conversation.jsonl --compare --described llama-3-8b,a100-80gb --slo first=5,gap=0.1\n"
        "  quire sim --plan llama-2-7b a100-40gb\n"
        "a trace: Mooncake's jsonl (timestamp, input_length, output_length, hash_ids), Azure's csv, or a "
        "line a request:\n"
        "  {\"t\": 1.5, \"tenant\": \"a\", \"prompt\": [[\"system\", 2000], [\"user 7\", 30]], \"output\": "
        "[[\"answer 7\", 150]]}\n"
        "where [\"name\", n] is the first n tokens of the text of that name, a number in the list a token "
        "id, and a number\n"
        "in its place so many tokens that no other request has; t in seconds\n",
    .argument = ARGUMENT_TRACE,
    .flags = groups,
    .options_size = sizeof(options),
    .defaults = defaults,
    .run = run,
};

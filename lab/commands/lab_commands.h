/* quire-lab's commands, each in the file of its name, and the frame that they share: what
 * such a file begins with, its defaults and its row in the table.
 *
 * A command `id` has a struct id_options that begins with a cli_options, and a function
 * id_run. */
#ifndef LAB_COMMANDS_LAB_COMMANDS_H
#define LAB_COMMANDS_LAB_COMMANDS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/read_flags.h"
#include "engine/ablations.h"
#include "lab/bench/figures.h"
#include "quire.h"

/* All commands in the order of --help, separated by commas. */
#define LAB_COMMANDS(X)                                                                                      \
    X(bench), X(sim), X(bench_speed), X(bench_roofline), X(bench_profile), X(bench_kv), X(bench_engine),     \
        X(bench_memory), X(bench_attention), X(bench_lora), X(bench_serving), X(bench_sampler),              \
        X(bench_text), X(bench_kernels), X(bench_speculation), X(bench_stall), X(bench_start),               \
        X(bench_pages), X(bench_sharing), X(bench_prefix), X(bench_workload), X(bench_ablation),             \
        X(bench_headline), X(bench_tiers), X(bench_latency), X(bench_grammar), X(bench_json),                \
        X(bench_quality), X(perplexity), X(demo)
#define LAB_COMMAND_NAME(id) command_##id
extern const command LAB_COMMANDS(LAB_COMMAND_NAME);

/* id_defaults: defaults of the options' own members (not cli's), as designated
 * initialisers. */
#define LAB_DEFAULTS(id, ...)                                                                                \
    static void id##_defaults(cli_options *cli) {                                                            \
        id##_options *o = (void *)cli;                                                                       \
        *o = (id##_options){.cli = o->cli, __VA_ARGS__};                                                     \
    }

/* The row of a command: its words, its arguments as usage shows them and as they are
 * parsed, what it does, examples, and the groups of its flags. Those of LAB_COMMAND_OF
 * have a type of options, defaults and a function of other names. */
#define LAB_COMMAND_OF(id, type, defaults_fn, run_fn, words, follows, parsed, does, how, ...)                \
    const command command_##id = {.name = words,                                                             \
                                  .summary = does,                                                           \
                                  .usage = "quire " words follows,                                           \
                                  .examples = how,                                                           \
                                  .argument = parsed,                                                        \
                                  .flags = (const flag *const[]){__VA_ARGS__, NULL},                         \
                                  .options_size = sizeof(type),                                              \
                                  .defaults = defaults_fn,                                                   \
                                  .run = run_fn}
#define LAB_COMMAND(id, words, follows, parsed, does, how, ...)                                              \
    LAB_COMMAND_OF(id, id##_options, id##_defaults, id##_run, words, follows, parsed, does, how, __VA_ARGS__)

/* A flag's type and the location of its value, from the AT macro of the file. */
#define TEXT(member)               FLAG_TEXT, AT(member)
#define COUNT(member, least, most) FLAG_COUNT, AT(member), .minimum = least, .maximum = most
#define PAGE_SIZE(member)          FLAG_POWER_OF_TWO, AT(member), .minimum = 1, .maximum = 256

/* Options of commands that can switch off mechanisms of the engine, and their flags. */
typedef struct ablated_options {
    cli_options cli;
    engine_ablations off;
} ablated_options;

extern const flag flags_ablations[];

#endif

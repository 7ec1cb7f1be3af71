/* Flags of `quire sim` and `quire bench serving` alike: what serves the requests, and
 * within which limits. */
#ifndef LAB_COMMANDS_LAB_FLAGS_H
#define LAB_COMMANDS_LAB_FLAGS_H

#include "lab/commands/lab_commands.h"
#include "lab/sim/compare.h"

/* What the options of both begin with. */
typedef struct served_options {
    cli_options cli;
    compare_options server;
} served_options;

extern const flag flags_served_by[], flags_served[];

/* The names of flags_served except for --cost-per-hour, as unused_flags_refuse takes
 * them. */
#define SERVED_FLAGS                                                                                         \
    "--slo --speed --shrink --kv-tokens --max-num-seqs --swap-space --preemption-mode --acceptance "         \
    "--draft-us --max-num-batched-tokens --chunk --max-model-len --step-target-ms"

#endif

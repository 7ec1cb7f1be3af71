/* Flags of the benchmarks that can switch mechanisms of the engine off. */
#ifndef LAB_COMMANDS_ABLATION_FLAGS_H
#define LAB_COMMANDS_ABLATION_FLAGS_H

#include "cli/command.h"
#include "engine/ablations.h"

/* What the options of these commands begin with. */
typedef struct ablated_options {
    cli_options cli;
    engine_ablations off;
} ablated_options;

extern const flag flags_ablations[];

#endif

/* Flags of `quire sim` and `quire bench serving` alike: what serves the requests, and
 * within which limits. */
#ifndef LAB_COMMANDS_SERVED_FLAGS_H
#define LAB_COMMANDS_SERVED_FLAGS_H

#include "cli/command.h"
#include "lab/sim/compare.h"

/* What the options of both begin with. */
typedef struct served_options {
    cli_options cli;
    compare_options server;
} served_options;

extern const flag flags_served_by[], flags_served[];

/* The first of flags_served that was given, but for --cost-per-hour; NULL: none. */
const char *served_flag_given(const compare_options *o);

#endif

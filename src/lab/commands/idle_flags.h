/* Flags that would do nothing where they are given: refused, so that no figure is taken for another than it is. */
#ifndef LAB_COMMANDS_IDLE_FLAGS_H
#define LAB_COMMANDS_IDLE_FLAGS_H

#include "cli/options.h"

/* INVALID where the command line gives one of `names`, which have a space between them: "NAME does nothing WHY". */
quire_err idle_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err);

#endif

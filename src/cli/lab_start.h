/* quire-lab, the program of benches, experiments, demonstrations and the simulator, as
 * quire knows it: the names of its commands, and how it is started. */
#ifndef CLI_LAB_START_H
#define CLI_LAB_START_H

#include <stdbool.h>

#include "cli/command.h"

/* Its commands by name and summary, as quire-lab --help lists them; without flags. Ends
 * with NULL. */
extern const command *const lab_rows[];
/* Whether the arguments (without the program's) name one of them. */
bool lab_has_command(int argc, char **argv);
/* Replaces this process by quire-lab (exec), with the same arguments, which name one of
 * its commands. It is searched for beside this program's file, then in PATH. Returns only
 * if there is none, with the exit status, after a message with the command that builds
 * it. */
int lab_start(char **argv, const char *name);

#endif

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
/* Goes on as quire-lab, with the arguments of this program, which name a command of it:
 * the same process. It is looked for beside this program's file, then in PATH. Comes back
 * only where there is none, with the exit status, having said which command builds it. */
int lab_start(char **argv, const char *name);

#endif

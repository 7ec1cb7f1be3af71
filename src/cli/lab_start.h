/* quire-lab, the program of benches, experiments, demonstrations and the simulator, as quire knows it: the names of its commands, and how
 * it is started. */
#ifndef CLI_LAB_START_H
#define CLI_LAB_START_H

#include <stdbool.h>

/* Prints a line for each command, as quire-lab --help does. */
void lab_print_commands(void);
/* Whether the arguments (without the program's) name one of them. */
bool lab_has_command(int argc, char **argv);
/* Goes on as quire-lab, with the arguments of this program: the same process. It is looked for beside this program's file, then in PATH.
 * Comes back only where there is none, with the exit status, having said which command builds it. */
int lab_start(char **argv);

#endif

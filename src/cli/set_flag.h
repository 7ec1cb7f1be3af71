/* Parses and checks a flag's value and stores it in a command's options. */
#ifndef CLI_SET_FLAG_H
#define CLI_SET_FLAG_H

#include "cli/commands.h"
#include "cli/flags.h"

/* Sets flag f to text, which is borrowed as long as o lives; NULL for a flag without a
 * value. name: what the user wrote, a spelling of the flag or a variable; errors begin
 * with it. QUIRE_INVALID: o is unchanged. */
quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err);

/* Whether `word`, which follows a value of f, is another value of f. */
bool set_flag_takes(const flag *f, const char *word);

/* Sets a request field to a text or, if a file of that name exists, to its content
 * without the last newline. */
quire_err flag_set_text(const char *field, str text, body *fields, quire_error *err);

/* Flags from the environment: QUIRE_MAX_NUM_SEQS=8 means --max-num-seqs 8; every long
 * spelling of a flag has such a variable.
 *
 * The command line takes precedence: if it gives a flag, variables of that flag and of
 * other flags for the same option are not read. An empty variable counts as not set. A
 * flag without a value is on with 1, true, yes or on, and off with 0, false, no or off.
 * Only main reads the environment, and passes it on. One thread. */

/* Sets the flags of command c that have a variable and are not in `given`, which ends
 * with NULL. environment: as environ; NULL: nothing is read. o borrows its texts, except
 * for secret flags: their values are copied, and always erased from it, so that neither
 * /proc nor a child process shows them. The variables' names go to o->from_environment.
 * QUIRE_INVALID: err names the variable. */
quire_err env_flags_read(cli_options *o, const command *c, const flag *const *given, char **environment,
                         quire_error *err);

/* Warns about variables that begin with QUIRE_ and belong to no flag of these commands,
 * and suggests the nearest name. Each list ends with NULL; others may be NULL. */
void env_flags_warn(const command *const *commands, const command *const *others, char **environment);

/* Appends the variable of a flag's spelling: QUIRE_MAX_NUM_SEQS for "--max-num-seqs".
 * False: the spelling is short and has none. *e: QUIRE_NO_MEMORY on failure. */
bool env_flags_name(str spelling, strbuf *to, quire_err *e);

#endif

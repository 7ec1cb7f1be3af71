/* Parses a flag's value, checks it and sets it in a command's options. */
#ifndef CLI_SET_FLAG_H
#define CLI_SET_FLAG_H

#include "cli/commands.h"
#include "cli/flags.h"

/* Sets flag f to text, borrowed as long as o lives; NULL for a flag without a value.
 * name: what the user wrote, a spelling of the flag or a variable; every error begins
 * with it. INVALID: o is unchanged. */
quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err);

/* Whether a word that follows a value of f is one more value of it. */
bool set_flag_takes(const flag *f, const char *word);

/* Sets a request field to a text or, if a file has that name, to the file's text without
 * its last newline. */
quire_err flag_set_text(const char *field, str text, body *fields, quire_error *err);

/* Flags from the environment: QUIRE_MAX_NUM_SEQS=8 is --max-num-seqs 8, and so for every
 * long spelling of every flag.
 *
 * The command line takes precedence: variables of a flag that it gives, or of another
 * flag for the same option, are not read. An empty variable counts as not set. A flag
 * without a value is on with 1, true, yes or on, and off with 0, false, no or off. main
 * passes the environment on; nothing else reads it. One thread. */

/* Sets the flags of command c that have a variable and are not given; `given` ends with
 * NULL. environment, as environ, may be NULL: nothing is read. Texts are borrowed from it
 * as long as o, but those of secret flags are copied, and always erased from it, so that
 * neither /proc nor a child process shows them. o->from_environment gets the variables'
 * names. INVALID: err names the variable. */
quire_err env_flags_read(cli_options *o, const command *c, const flag *const *given, char **environment,
                         quire_error *err);

/* Warns of variables that begin with QUIRE_ and belong to no flag of these commands, with
 * the nearest name. Each list ends with NULL; others may be NULL. */
void env_flags_warn(const command *const *commands, const command *const *others, char **environment);

/* Appends the variable of a flag's spelling, "--max-num-seqs": QUIRE_MAX_NUM_SEQS.
 * Returns false for a short one, which has none. NO_MEMORY is kept in *e. */
bool env_flags_name(str spelling, strbuf *to, quire_err *e);

#endif

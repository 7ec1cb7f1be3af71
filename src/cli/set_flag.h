/* Parses a flag's value, checks it and sets it in a command's options. */
#ifndef CLI_SET_FLAG_H
#define CLI_SET_FLAG_H

#include "cli/flags.h"

/* Sets flag f to text, borrowed as long as o; NULL for a flag that takes no value, or may
 * lack one. name: what the user wrote, a spelling of the flag or a variable, which begins
 * every error. INVALID: o is unchanged. */
quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err);

/* Whether a word that follows a value of f is one more value of it. */
bool set_flag_takes(const flag *f, const char *word);

/* Sets a request field to a text or, where a file has that name, to the file's text
 * without its last newline. */
quire_err flag_set_text(const char *field, str text, body *fields, quire_error *err);

#endif

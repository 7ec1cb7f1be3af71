/* What a flag's value means: checks it and sets it in a command's options. */
#ifndef CLI_SET_FLAG_H
#define CLI_SET_FLAG_H

#include "cli/flags.h"

/* Whether the flag takes no value. */
bool flag_is_switch(const flag *f);
/* Whether the flag is quire's own and no synonym of another: those that help, man pages and completions show. */
bool flag_is_own(const flag *f);
/* Whether a choice of the flag is shown where its values are: not a further spelling of another, nor a preset's. */
bool flag_choice_is_shown(const flag *f, const flag_choice *c);
/* The next of a flag's names, which spaces separate; moves *names, which at first is flag.names, behind it, at last to its 0. */
str flag_next_name(const char **names);

/* Sets flag f to text, borrowed as long as o; NULL for a flag that takes no value, or may lack one. name: what the user wrote, a spelling
 * of the flag or a variable, which begins every error. INVALID: o is unchanged. */
quire_err set_flag(cli_options *o, const flag *f, const char *name, const char *text, quire_error *err);

/* Sets a request field to a text or, where a file has that name, to the file's text without its last newline. */
quire_err flag_set_text(const char *field, str text, body *fields, quire_error *err);

#endif

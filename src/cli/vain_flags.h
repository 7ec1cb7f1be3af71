/* Refuses flags that the command line gives although they change nothing there. Variables are not looked at: they are for every command.
 * One thread. */
#ifndef CLI_VAIN_FLAGS_H
#define CLI_VAIN_FLAGS_H

#include "cli/options.h"

/* Of `quire run`. has_prompt: there is one text to go on from. INVALID: err names the flag and says why, and what to do. */
quire_err vain_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err);
/* Of `quire tokenize`; the same. */
quire_err vain_flags_check_tokenize(const cli_options *o, quire_error *err);

#endif

/* Refuses flags that the command line gives although they change nothing there, so that
 * no result is mistaken for another. Variables are not checked: they are for every
 * command. One thread. */
#ifndef CLI_UNUSED_FLAGS_H
#define CLI_UNUSED_FLAGS_H

#include "cli/options.h"

/* INVALID where the command line gives one of `names`, which have a space between them:
 * "NAME does nothing WHY". */
quire_err unused_flags_refuse(const cli_options *o, const char *names, const char *why, quire_error *err);
/* Of `quire run`. has_prompt: there is one text to continue. INVALID: err names the flag,
 * the reason, and what to do. */
quire_err unused_flags_check_run(const cli_options *o, bool has_prompt, quire_error *err);
/* Of `quire tokenize`; the same. */
quire_err unused_flags_check_tokenize(const cli_options *o, quire_error *err);

#endif

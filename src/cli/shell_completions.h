/* Completions for bash, zsh and fish, made from the rows of commands and flags: `quire
 * help --completions SHELL`.
 *
 * They complete commands, flags, the values of flags that are one of some words, and
 * files where a flag or a command takes one. A script needs nothing but its shell. */
#ifndef CLI_SHELL_COMPLETIONS_H
#define CLI_SHELL_COMPLETIONS_H

#include "cli/command.h"

/* Appends the script for "bash", "zsh" or "fish", which completes these commands of quire
 * and the others; each list ends with NULL, others may be NULL, and a command without
 * flags is completed by name. INVALID: another shell. NO_MEMORY. */
quire_err completions_write(const char *shell, const command *const *commands, const command *const *others,
                            strbuf *to, quire_error *err);

#endif

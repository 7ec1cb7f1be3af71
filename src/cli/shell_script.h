/* What the writers of completions share: a script that is written piece by piece, and
 * what a flag's value is completed with. */
#ifndef CLI_SHELL_SCRIPT_H
#define CLI_SHELL_SCRIPT_H

#include "cli/command.h"

/* Keeps the first failure; nothing is added after it. lists: the commands to complete. */
typedef struct script {
    strbuf *to;
    quire_err e;
    const command *const *lists[2]; /* each ends with NULL; the second may be NULL */
} script;

typedef enum completed { COMPLETED_NONE, COMPLETED_WORDS, COMPLETED_FILES } completed;

void script_add(script *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text inside single quotes, with ' escaped for the shell. */
void script_add_quoted(script *s, const char *text, const char *quote);
/* The words that a flag's value may be, as --help has them, with spaces between. */
void script_add_words(script *s, const flag *f);
completed script_completed(const flag *f);
/* Whether a command's argument is a file. */
bool script_takes_file(const command *c);
/* The i-th command, or NULL after the last. */
const command *script_command(const script *s, int i);
/* The i-th of a command's own flags, or NULL after the last. */
const flag *script_flag(const command *c, int i);
/* "bench_kv" of "bench kv", in buf. */
const char *script_function(const command *c, char buf[64]);

void completions_bash(script *s);
void completions_zsh(script *s);
void completions_fish(script *s);

#endif

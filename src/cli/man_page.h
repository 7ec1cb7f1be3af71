/* Manual pages, made from the rows of commands and flags: `quire help --man`. */
#ifndef CLI_MAN_PAGE_H
#define CLI_MAN_PAGE_H

#include "cli/program.h"

/* Appends the page of a program in the macros of man(7): its commands, with their flags
 * where `all` is set. NO_MEMORY. */
quire_err man_page_program(const program *p, bool all, strbuf *to);
/* Appends the page of one of its commands, quire-COMMAND(1). */
quire_err man_page_command(const program *p, const command *c, strbuf *to);

#endif

/* Programs in JSON (docs/programs.md): reads their steps and writes their reports. A
 * program's text is untrusted: its size, depth and values are limited; errors name the
 * step. */
#ifndef EXECUTE_PROGRAM_JSON_H
#define EXECUTE_PROGRAM_JSON_H

#include "program/program_state.h"

#define PROGRAM_MAX_BYTES   ((size_t)4 << 20) /* most bytes of a program's JSON */
#define PROGRAM_MAX_STEPS   ((size_t)1 << 16) /* most steps of a program, each counted once */
#define PROGRAM_MAX_CHOICES 256               /* most choices of a select */
#define PROGRAM_MAX_TIMES   (1 << 16)         /* most rounds of a repeat, and branches of a fork */

/* Reads a whole program. QUIRE_BAD_REQUEST, QUIRE_TOO_LARGE or QUIRE_NO_MEMORY: *out is
 * empty. Any thread, as all functions here that read. */
quire_err program_read(str json, program_steps *out, quire_error *err);
/* Reads an array of steps and appends them. Errors as program_read; *to is then
 * unchanged. */
quire_err program_read_steps(str json, step_list *to, quire_error *err);
/* Checks that json is an object whose members are fields that a gen may have.
 * QUIRE_BAD_REQUEST names the first other member, or says that it is no object. */
quire_err program_check_fields(str json, quire_error *err);

/* Returns the sums of what a program's calls computed (quire_state_usage). */
quire_program_usage program_usage(const program_root *r);
/* Appends the JSON report on a program (quire_state_report). QUIRE_NO_MEMORY. */
quire_err program_report(const program_root *r, const char *id, bool explain, strbuf *to);

#endif

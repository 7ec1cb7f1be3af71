/* Programs in JSON (docs/programs.md): reads their steps and writes their reports. A
 * program's text is untrusted: its size, depth and number of values are limited, and an
 * error names the step. */
#ifndef EXECUTE_PROGRAM_JSON_H
#define EXECUTE_PROGRAM_JSON_H

#include "program/program_state.h"

#define PROGRAM_MAX_BYTES   ((size_t)4 << 20) /* most bytes of a program's JSON */
#define PROGRAM_MAX_STEPS   ((size_t)1 << 16) /* most steps of a program, each counted once */
#define PROGRAM_MAX_CHOICES 256               /* of a select */
#define PROGRAM_MAX_TIMES   (1 << 16)         /* rounds of a repeat, branches of a fork */

/* Reads a whole program. *out is empty after a failure: BAD_REQUEST; TOO_LARGE;
 * NO_MEMORY. */
quire_err program_read(str json, program_steps *out, quire_error *err);
/* Reads an array of steps and appends them. On failure *to is unchanged. */
quire_err program_read_steps(str json, step_list *to, quire_error *err);
/* Checks that all members of an object are fields that a gen may have. BAD_REQUEST names
 * one that is not, or says that it is not an object. */
quire_err program_check_fields(str json, quire_error *err);

/* Sums up what a program computed (quire_state_usage). */
quire_program_usage program_usage(const program_root *r);
/* Appends the report on a root state (quire_state_report). NO_MEMORY. */
quire_err program_report(const program_root *r, const char *id, bool explain, strbuf *to);

#endif

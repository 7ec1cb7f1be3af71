/* Writes responses to a file OUT through a part file: each line goes to OUT.part when it
 * is ready, in any order. When all are there, a file with the lines in the order of the
 * prompts replaces OUT atomically. If the process ends before that, OUT is unchanged, and
 * OUT.part keeps the finished responses.
 *
 * OUT.part.info describes the run of OUT.part as a JSON object; a run that resumes it
 * must match. The last line of OUT.part may be incomplete, without a newline; it is then
 * ignored. One process writes at a time. One thread. */
#ifndef CLI_BATCH_PART_H
#define CLI_BATCH_PART_H

#include <stdbool.h>
#include <stdio.h>

#include "base/str.h"

/* The most responses after the first missing one; bounds the memory for sorting. */
#define BATCH_AHEAD 4096

typedef struct batch_part {
    strbuf target, path, info; /* OUT with symbolic links resolved; OUT.part; OUT.part.info */
    FILE *file;
    char *line; /* buffer of getline */
    size_t cap;
    size_t n;      /* complete lines in OUT.part */
    size_t n_read; /* lines that batch_part_next has read */
    bool is_ours;  /* this process has locked it */
    bool in_order; /* line i is the response to prompt i */
} batch_part;

/* Whether responses to `out` go through a part file: not if out is a device, a pipe, or
 * "-" (standard output). */
bool batch_part_wanted(const char *out);
/* Checks, before a model is loaded, whether a part may be opened. QUIRE_INVALID: without
 * resume, a part of another run exists; with resume, OUT exists and no part does. */
quire_err batch_part_check(const char *out, bool resume, quire_error *err);

/* Opens OUT.part; without resume it is empty. about: describes the run as a JSON object.
 * On resume, all members but "prompts" must equal those of the first run; otherwise
 * QUIRE_INVALID, and nothing is changed. QUIRE_IO; QUIRE_BUSY: another process writes it.
 * On failure nothing is left open. */
quire_err batch_part_open(const char *out, bool resume, str about, batch_part *p, quire_error *err);
/* Closes the part, and deletes it if it has no response. */
void batch_part_close(batch_part *p);

/* Reads the next line of an opened part. *more is false after the last one; then lines
 * can be added. *index: the line's prompt. *failed: its response is an error.
 * QUIRE_BAD_FILE: a line is not a response. */
quire_err batch_part_next(batch_part *p, size_t *index, bool *failed, bool *more, quire_error *err);
/* Adds the response line of prompt `index`, which contains no newline. On return the line
 * is written to the file, not only buffered. QUIRE_IO, for example if the disk is full:
 * nothing can be added any more. */
quire_err batch_part_add(batch_part *p, size_t index, str line, quire_error *err);
/* Writes all lines to OUT, in order, and deletes the part. On failure the part
 * remains. */
quire_err batch_part_finish(batch_part *p, quire_error *err);

#endif

/* Writes responses to a file OUT by way of a part file: each line goes to OUT.part when
 * it is ready, in any order. When all are there, OUT is replaced at once, in the order of
 * the prompts. If the process ends before that, OUT is unchanged, and OUT.part keeps the
 * finished responses.
 *
 * OUT.part.info describes the run that OUT.part belongs to, as a JSON object; a run that
 * resumes it must have the same. Only the last line may be incomplete, without a newline;
 * it is then ignored. One process writes at a time. One thread. */
#ifndef CLI_BATCH_PART_H
#define CLI_BATCH_PART_H

#include <stdbool.h>
#include <stdio.h>

#include "base/str.h"

/* The most responses after a missing one. It limits the memory for sorting them. */
#define BATCH_AHEAD 4096

typedef struct batch_part {
    strbuf target, path, info; /* OUT with symbolic links resolved; OUT.part; OUT.part.info */
    FILE *file;
    char *line; /* of getline */
    size_t cap;
    size_t n;      /* whole lines in it */
    size_t n_read; /* how many batch_part_next has read */
    bool is_ours;  /* locked */
    bool in_order; /* line i is the response to prompt i */
} batch_part;

/* True when responses to `out` go through a part file: not if out is a device, a pipe, or
 * "-" for standard output. */
bool batch_part_wanted(const char *out);
/* Checks before a model is loaded. INVALID: without resume, the part of another run
 * exists; with resume, there is an OUT and no part. */
quire_err batch_part_check(const char *out, bool resume, quire_error *err);

/* Opens OUT.part, empty without resume. about: a description of the run, as a JSON
 * object. When a run is resumed, all members but "prompts" must equal those that it was
 * begun with, else INVALID, and nothing is changed. IO; BUSY: another process writes it.
 * On failure nothing is left open. */
quire_err batch_part_open(const char *out, bool resume, str about, batch_part *p, quire_error *err);
/* Closes the part; without a response in it, it is deleted. */
void batch_part_close(batch_part *p);

/* Reads the lines of an opened part. *more is false after the last; then lines can be
 * added. index: the prompt's. failed: its response is an error. BAD_FILE: a line is not a
 * response. */
quire_err batch_part_next(batch_part *p, size_t *index, bool *failed, bool *more, quire_error *err);
/* Adds the line of prompt `index`, which contains no newline. When the call returns, the
 * line is in the file and not only in memory. IO: for example, the disk is full; nothing
 * can be added then. */
quire_err batch_part_add(batch_part *p, size_t index, str line, quire_error *err);
/* Writes all lines to OUT, in order, and deletes the part. On failure the part
 * remains. */
quire_err batch_part_finish(batch_part *p, quire_error *err);

#endif

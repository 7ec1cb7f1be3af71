/* Responses on their way to a file OUT: each line goes to OUT.part as soon as it is there, in any order; when all are there, OUT has them
 * in the order of their prompts, at once. Whatever ends the process before, OUT is as it was, and OUT.part keeps what was answered.
 *
 * OUT.part.info says what OUT.part responses, a JSON object: a run that goes on with it has the same. A line is written whole, or it is the
 * last and ends without a newline: then it does not count. One process writes at a time. One thread. */
#ifndef CLI_BATCH_PART_H
#define CLI_BATCH_PART_H

#include <stdbool.h>
#include <stdio.h>

#include "base/str.h"

/* How many responses at most are behind one that is not there yet: what keeps memory bounded when they are put in order. */
#define BATCH_AHEAD 4096

typedef struct batch_part {
    strbuf target, path, info; /* OUT, behind symbolic links; OUT.part; OUT.part.info */
    FILE *file;
    char *line; /* of getline */
    size_t cap;
    size_t n;      /* whole lines in it */
    size_t n_read; /* of them read by batch_part_next */
    bool is_ours;  /* locked */
    bool in_order; /* line i answers prompt i */
} batch_part;

/* Whether responses at `out` pass through a part: not where out is a device, a pipe, or "-" for standard output. */
bool batch_part_wanted(const char *out);
/* What can be said before a model is loaded. INVALID: without resume, a part of another run is there; with it, there is none but an OUT. */
quire_err batch_part_check(const char *out, bool resume, quire_error *err);

/* Opens OUT.part, empty without resume. about: what it answers, as a JSON object; where it goes on, all members but "prompts" must be those
 * that it was begun with, else INVALID, and all is left as it was. IO; BUSY: another process writes it. On failure nothing is left open. */
quire_err batch_part_open(const char *out, bool resume, str about, batch_part *p, quire_error *err);
/* Without a response in it the part goes. */
void batch_part_close(batch_part *p);

/* Reads the lines that an opened part has: *more false behind the last, and then lines can be added. index: the prompt's; failed: it is
 * answered by an error. BAD_FILE: a line is no response. */
quire_err batch_part_next(batch_part *p, size_t *index, bool *failed, bool *more, quire_error *err);
/* Adds the line of prompt `index`, which has no newline in it; it is in the file, not only in memory, at the return. IO: the disk is full,
 * say; nothing is added any more. */
quire_err batch_part_add(batch_part *p, size_t index, str line, quire_error *err);
/* All lines are there: OUT has them, in order; the part is gone. On failure it is still there. */
quire_err batch_part_finish(batch_part *p, quire_error *err);

#endif

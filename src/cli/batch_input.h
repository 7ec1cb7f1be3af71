/* Reads a JSON Lines file line by line, so that a file of any length needs only the
 * memory of its longest line.
 *
 * The file is read twice: once for its digest and the number of its lines, then for the
 * lines. Input that cannot be read twice (standard input, a pipe) is first copied to an
 * unnamed file. Empty lines are not counted, and a byte order mark at the beginning is
 * skipped. One thread. */
#ifndef CLI_BATCH_INPUT_H
#define CLI_BATCH_INPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/sha256.h"
#include "base/str.h"
#include "cli/session.h"

typedef struct batch_input {
    const char *path; /* borrowed */
    FILE *file;
    char *line; /* buffer of getline */
    size_t cap;
    size_t n_lines; /* non-empty lines in the file */
    size_t n_read;  /* lines that batch_input_next has returned */
    size_t number;  /* number of the last line read, from 1, empty ones included */
    size_t n_mark;  /* bytes of the byte order mark that is skipped */
    uint8_t digest[SHA256_BYTES];
} batch_input;

/* Opens path ("-": standard input), which is borrowed, and reads it once. beside: a path
 * in whose directory a copy is made if one is needed; NULL: in the directory for
 * temporary files. QUIRE_NOT_FOUND, QUIRE_IO; QUIRE_TOO_LARGE: a line has 2 GiB. On
 * failure nothing is left open. */
quire_err batch_input_open(const char *path, const char *beside, batch_input *in, quire_error *err);
void batch_input_close(batch_input *in);
/* Reads the next line, without its newline; borrowed until the next call. n_read must be
 * less than n_lines. QUIRE_IO; QUIRE_BAD_FILE: the file has become shorter. */
quire_err batch_input_next(batch_input *in, str *line, quire_error *err);
/* Goes back to the first line. */
void batch_input_rewind(batch_input *in);

/* ---- batch_input.c: lines and their responses ---- */

/* The request that a line contains. All zero: empty. */
typedef struct batch_line {
    strbuf body; /* the request, as JSON */
    strbuf id;   /* "id" or "custom_id" as JSON; empty: none */
    quire_endpoint endpoint;
    bool is_openai;
} batch_line;

void batch_line_deinit(batch_line *l);
/* Reads line `number` (from 1), with this text, into an empty *l. *fault: what is wrong
 * with the line; code QUIRE_OK: nothing. Only QUIRE_NO_MEMORY is returned, in err. */
quire_err batch_line_read(const cli_options *o, const session *s, size_t number, str text, batch_line *l,
                          quire_error *fault, quire_error *err);
/* Appends the response line of prompt `index` (from 0), without a newline.
 * QUIRE_NO_MEMORY. */
quire_err batch_line_response(const batch_line *l, size_t index, const response *a, const char *model,
                              strbuf *out);

#endif

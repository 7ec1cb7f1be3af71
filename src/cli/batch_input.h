/* Reads the lines of a JSON Lines file, one at a time, so that a file of any length needs
 * only the memory of its longest line.
 *
 * The file is read twice: once for its digest and the number of its lines, then line by
 * line. Input that cannot be read twice (standard input, a pipe) is first copied to a
 * file without a name. Empty lines are not counted, and a byte order mark at the
 * beginning is skipped. One thread. */
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
    char *line; /* of getline */
    size_t cap;
    size_t n_lines; /* in the file */
    size_t n_read;  /* returned by batch_input_next */
    size_t number;  /* number of the last line read, from 1, empty ones included */
    size_t n_mark;  /* bytes of the byte order mark at its beginning, which is skipped */
    uint8_t digest[SHA256_BYTES];
} batch_input;

/* Opens path ("-": standard input), which is borrowed, and reads it once. beside: the
 * copy, if one is needed, is made in this path's directory; NULL: in the directory for
 * temporary files. NOT_FOUND, IO; TOO_LARGE for a line of 2 GiB. On failure nothing is
 * left open. */
quire_err batch_input_open(const char *path, const char *beside, batch_input *in, quire_error *err);
void batch_input_close(batch_input *in);
/* Reads the next line without its end, borrowed until the next call, while n_read <
 * n_lines. IO; BAD_FILE if the file has become shorter. */
quire_err batch_input_next(batch_input *in, str *line, quire_error *err);
/* Rewinds to the first line. */
void batch_input_rewind(batch_input *in);

/* ---- batch_input.c: lines and their responses ---- */

/* The request in a line. Zero-initialised it is empty. */
typedef struct batch_line {
    strbuf body; /* the request, as JSON */
    strbuf id;   /* "id" or "custom_id" as JSON; empty: none */
    quire_endpoint endpoint;
    bool is_openai;
} batch_line;

void batch_line_deinit(batch_line *l);
/* Reads line `number` (counted from 1) into an empty *l. fault: the error in it, with
 * code OK if there is none. NO_MEMORY fills err. */
quire_err batch_line_read(const cli_options *o, const session *s, size_t number, str text, batch_line *l,
                          quire_error *fault, quire_error *err);
/* Appends the response line of prompt `index` (counted from 0), without a newline.
 * NO_MEMORY. */
quire_err batch_line_response(const batch_line *l, size_t index, const response *a, const char *model,
                              strbuf *out);

#endif

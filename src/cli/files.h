/* Reads and writes files of the commands: texts, prompts, lists of ids, logits in numpy's
 * format. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stdint.h>

#include "base/str.h"
#include "base/utf8.h"

/* Sets and returns the error of a failed call on a file, from errno: QUIRE_NOT_FOUND or
 * QUIRE_IO. */
quire_err files_failed(const char *path, quire_error *err);

/* Appends the whole file to *out; "-" is standard input. QUIRE_IO, QUIRE_NOT_FOUND: err
 * names the file. */
quire_err files_read(const char *path, strbuf *out, quire_error *err);

/* As files_read, for text. QUIRE_BAD_FILE: it is not UTF-8; err names the byte. */
quire_err files_read_text(const char *path, strbuf *out, quire_error *err);
/* Checks that text is UTF-8; otherwise returns `code`, and err names `where`. */
quire_err files_check_text(const char *where, str text, quire_err code, quire_error *err);

typedef struct id_list {
    int32_t *ids; /* mem_new'd */
    size_t n;
} id_list;

void id_list_deinit(id_list *l);
/* Parses "1, 2, 3": numbers separated by commas or blanks. QUIRE_INVALID: err shows what
 * is not a number. */
quire_err id_list_parse(const char *text, id_list *out, quire_error *err);
/* Reads a JSON file: [1,2,3], or an object whose member "prompt" or "ids" is such a
 * list. */
quire_err id_list_read(const char *path, id_list *out, quire_error *err);
/* Reads a JSON file with a list of lists of ids. *out: [*n] mem_new'd; the caller deinits
 * the lists and frees it, also after a failure. */
quire_err id_lists_read(const char *path, id_list **out, size_t *n, quire_error *err);

/* Checks before a long task that the file can be opened, without changing anything. "-"
 * and NULL are accepted. QUIRE_NOT_FOUND, QUIRE_IO: err names flag and file. */
quire_err files_check_readable(const char *flag, const char *path, quire_error *err);
quire_err files_check_writable(const char *flag, const char *path, quire_error *err);
/* As files_check_writable, for output that must go to a file: "-" is QUIRE_INVALID. */
quire_err files_check_named(const char *flag, const char *path, quire_error *err);

/* Writes an .npy file: float32 [n_rows, n_columns], little endian, C order, format
 * version 1.0. */
quire_err npy_write(const char *path, const float *values, size_t n_rows, size_t n_columns, quire_error *err);

/* ---- text on standard output ---- */

/* Prints text from a model, a prompt or a file on standard output: unchanged to a pipe or
 * file; with control characters escaped to a terminal, which would execute them. One
 * thread. */

typedef struct text_out {
    bool is_terminal;
    visible seen; /* state of the escaping between pieces of a text */
    strbuf shown;
} text_out;

void text_out_init(text_out *t);
void text_out_deinit(text_out *t);
/* Prints a piece of a text and flushes it. QUIRE_IO: standard output is full or closed;
 * err says why. */
quire_err text_out_add(text_out *t, str piece, quire_error *err);
/* Ends the text: prints a withheld incomplete character and a newline. */
quire_err text_out_end_line(text_out *t, quire_error *err);
/* Prints a whole text and a newline. */
quire_err text_out_print(str text, quire_error *err);
/* The same of a text that was written with result e, unless e is an error; frees the
 * text. Returns the first error. */
quire_err text_out_finish(strbuf *text, quire_err e, quire_error *err);

/* For main. Opens those of the three standard streams that are closed, so that no other
 * file gets their descriptors. From now on a write to a pipe without a reader ends the
 * program with a message and status 1; a write to a closed socket remains an error of the
 * call. */
void standard_files_open(void);
/* For main: returns the exit status: `status` or, with a message, 1 if that is 0 but not
 * all output could be written. */
int standard_files_finish(int status);

#endif

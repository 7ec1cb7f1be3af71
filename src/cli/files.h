/* Reads and writes the commands' files: whole texts, prompts, lists of ids, logits in
 * numpy's format. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <stdint.h>

#include "base/str.h"
#include "base/utf8.h"

/* Sets the error of a call on a file that failed, by errno: NOT_FOUND or IO. */
quire_err files_failed(const char *path, quire_error *err);

/* Appends the whole file to *out; "-" is standard input. IO or NOT_FOUND: err names the
 * file. */
quire_err files_read(const char *path, strbuf *out, quire_error *err);

/* The same for text: BAD_FILE if it is not UTF-8; err names the byte. */
quire_err files_read_text(const char *path, strbuf *out, quire_error *err);
/* Checks that text is UTF-8. `where` is its name in the error; code is the error to
 * return. */
quire_err files_check_text(const char *where, str text, quire_err code, quire_error *err);

typedef struct id_list {
    int32_t *ids; /* mem_new'd */
    size_t n;
} id_list;

void id_list_deinit(id_list *l);
/* Parses "1, 2, 3": numbers between commas or blanks. INVALID: err shows what is not a
 * number. */
quire_err id_list_parse(const char *text, id_list *out, quire_error *err);
/* Reads a JSON file: [1,2,3], or an object with it as "prompt" or "ids". */
quire_err id_list_read(const char *path, id_list *out, quire_error *err);
/* Reads a JSON file with a list of such lists. *out is mem_new'd; the caller frees it and
 * deinits the *n lists, also after a failure. */
quire_err id_lists_read(const char *path, id_list **out, size_t *n, quire_error *err);

/* Checks before a long task whether opening the file after it would fail: NOT_FOUND or
 * IO; err names flag and file. Nothing is changed. "-" and NULL are good. */
quire_err files_check_readable(const char *flag, const char *path, quire_error *err);
quire_err files_check_writable(const char *flag, const char *path, quire_error *err);
/* As files_check_writable, for output that can only go to a file: "-" is INVALID. */
quire_err files_check_named(const char *flag, const char *path, quire_error *err);

/* Writes float32 [n_rows, n_columns], little endian, C order, format version 1.0. */
quire_err npy_write(const char *path, const float *values, size_t n_rows, size_t n_columns, quire_error *err);

/* ---- text on standard output ---- */

/* Prints text of a model, a prompt or a file on standard output: unchanged into a pipe or
 * file, with control characters escaped on a terminal, which would execute them. One
 * thread. */

typedef struct text_out {
    bool is_terminal;
    visible seen; /* state of a text that arrives in pieces */
    strbuf shown;
} text_out;

void text_out_init(text_out *t);
void text_out_deinit(text_out *t);
/* Prints a piece of a text at once. IO: standard output is full or closed; err says
 * why. */
quire_err text_out_add(text_out *t, str piece, quire_error *err);
/* Ends the text: prints an incomplete character that was withheld, and the end of the
 * line. */
quire_err text_out_end_line(text_out *t, quire_error *err);
/* Prints a whole text and the end of its line. */
quire_err text_out_print(str text, quire_error *err);

/* Standard input, output and error: checks that all output was written, and ends the
 * program with a message when a pipe is closed. For main. */

/* Opens any of the three streams that is closed, so that no other file gets its
 * descriptor. Makes a write to a pipe without a reader end the program at once with a
 * message and status 1. A write to a closed socket remains an error of the call. */
void standard_files_open(void);
/* The exit status: 1, with a message, if a command would have ended with 0 but could not
 * print all of its output. */
int standard_files_finish(int status);

#endif

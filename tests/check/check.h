/* quire-check: runs directories of recorded cases against this build. Each kind of case
 * has one runner; main.c has their table.
 *
 * A case that this build does not support is counted as unsupported, never as passed. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct check_report {
    int64_t passed, failed, unsupported;
    bool json;
    bool table; /* models: print rows of a Markdown table in place of reasons */
    /* models: the only directory to check, and overrides (--override-kv) for its GGUF
     * file, which is then the only file checked. NULL: all; no overrides */
    const char *only, *override_kv;
    const char *isa; /* attention: the only instruction set; NULL: all that this processor has */
} check_report;

/* Each function counts a case. check_fail prints what differs, where and by how much.
 * check_unsupported prints the reason, once for successive cases with the same one. */
void check_pass(check_report *r, const char *kind, const char *case_name);
void check_fail(check_report *r, const char *kind, const char *case_name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void check_unsupported(check_report *r, const char *kind, const char *case_name, const char *why);

/* Reads a file, adding a 0 byte; mem_free frees *bytes. Errors name the path. */
quire_err check_read(const char *path, char **bytes, size_t *n, quire_error *err);
/* Reads a .npy file of float32 in C order with one or two dimensions. The caller frees
 * *values with mem_free. */
quire_err check_read_npy(const char *path, float **values, int64_t dims[2], quire_error *err);
/* Returns a file's bytes and a 0 byte, which the caller frees with mem_free. NULL: it
 * cannot be read or exceeds 1 GiB. */
char *check_read_file(const char *path, size_t *n);
/* Returns "a/b", or b if it is absolute. The caller frees it with mem_free. */
char *check_path(const char *a, const char *b);
/* Takes the next line, which ends with \n, from *rest. False: none is left. */
bool check_line(str *rest, str *line);

/* Runners. dir: the directory of the cases; root: the directory to which paths in cases
 * are relative, or NULL. They return 0, or 1 if dir cannot be read, which they report. */
int check_tokenizers(const char *dir, const char *root, check_report *r);
int check_models(const char *dir, const char *root, check_report *r);
int check_quants(const char *dir, const char *root, check_report *r);
/* Checks the quantised models in DIR/hf; a part of check_quants. */
void check_quant_models(const char *dir, check_report *r);
int check_templates(const char *dir, const char *root, check_report *r);
int check_sampling(const char *dir, const char *root, check_report *r);
int check_beam(const char *dir, const char *root, check_report *r);
int check_lora(const char *dir, const char *root, check_report *r);
int check_attention(const char *dir, const char *root, check_report *r);
int check_grammar(const char *dir, const char *root, check_report *r);
int check_toolparsers(const char *dir, const char *root, check_report *r);
int check_schemas(const char *dir, const char *root, check_report *r);
int check_texts(const char *dir, const char *root, check_report *r);

#endif

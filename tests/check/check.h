/* quire-check: runs directories of recorded cases against this build. Each kind has one
 * runner; main.c has the table.
 *
 * A case that this build cannot do is counted as unsupported, never as passed. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct check_report {
    int64_t passed, failed, unsupported;
    bool json;
    bool table; /* models: rows of a Markdown table in place of reasons */
    /* models: only the directory of this name; and only its GGUF file, with these
     * overrides (--override-kv). NULL: none */
    const char *only, *override_kv;
    const char *isa; /* attention: this instruction set only; NULL: all that are here */
} check_report;

/* Each counts one case. fail prints a line: what differs, where, by how much. unsupported
 * prints why, once where neighbours share the reason. */
void check_pass(check_report *r, const char *kind, const char *case_name);
void check_fail(check_report *r, const char *kind, const char *case_name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void check_unsupported(check_report *r, const char *kind, const char *case_name, const char *why);

/* A whole file, 0-terminated; *bytes is freed by mem_free. Errors name the path. */
quire_err check_read(const char *path, char **bytes, size_t *n, quire_error *err);
/* A .npy of float32 in C order with at most two dimensions; *values is freed by
 * mem_free. */
quire_err check_read_npy(const char *path, float **values, int64_t dims[2], quire_error *err);
/* A file's bytes, 0-terminated, freed by mem_free; NULL when it cannot be read or is over
 * 1 GiB. */
char *check_read_file(const char *path, size_t *n);
/* "a/b", freed by mem_free; b alone where it is absolute. */
char *check_path(const char *a, const char *b);
/* The next line of *rest, which is cut off; false at the end. Lines end with \n only. */
bool check_line(str *rest, str *line);

/* Runners: dir holds the cases, root is where paths "from shared/" begin, or NULL. They
 * return 0, or 1 when dir cannot be read (and say so). */
int check_tokenizers(const char *dir, const char *root, check_report *r);
int check_models(const char *dir, const char *root, check_report *r);
int check_quants(const char *dir, const char *root, check_report *r);
/* The models of check_quants, DIR/hf (check_quant_models.c). */
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

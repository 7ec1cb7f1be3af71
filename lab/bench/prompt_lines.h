/* Prompts of a file, one a line: a text as it stands, or a JSON object with it as
 * "prompt" or as the first of "turns" (Spec-Bench's form), and perhaps a "category".
 *
 * Owner: one thread. The texts are borrowed from the file's text and from the parsed
 * lines. */
#ifndef LAB_BENCH_PROMPT_LINES_H
#define LAB_BENCH_PROMPT_LINES_H

#include "base/str.h"
#include "json/json.h"

enum { PROMPT_MAX_LINES = 1 << 16, PROMPT_MAX_CATEGORIES = 32 };

typedef struct prompt_line {
    str text;
    int32_t category; /* index in prompt_lines.categories; 0: none */
    json_value *json; /* which holds text; NULL: the file's text does */
} prompt_line;

/* All zero: empty. */
typedef struct prompt_lines {
    prompt_line *lines; /* [n] */
    int32_t n;
    str categories[PROMPT_MAX_CATEGORIES]; /* [n_categories]; the first is "", of lines that name none */
    int32_t n_categories;
} prompt_lines;

/* Reads all lines of text but the empty ones. name: the file's, for messages. most: lines
 * of a category that are kept, the first of them; 0: all. text stays until
 * prompt_lines_deinit. BAD_FILE names the line; NO_MEMORY. After a failure *out is to be
 * deinited too. */
quire_err prompt_lines_read(str text, const char *name, int32_t most, prompt_lines *out, quire_error *err);
void prompt_lines_deinit(prompt_lines *p);

#endif

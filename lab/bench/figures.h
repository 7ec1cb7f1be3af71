/* Shared by the benchmarks: lists of numbers on the command line, clocks, mean and spread
 * of runs, and output as a table for people or JSON lines for programs. */
#ifndef LAB_BENCH_FIGURES_H
#define LAB_BENCH_FIGURES_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"
#include "json/json_out.h"

/* A JSON object on a line of stdout, as measurements print with --json. */

typedef struct json_line {
    strbuf text;
    json_out out;
} json_line;

/* Begins an object and returns the writer for its members. */
static inline json_out *json_line_begin(json_line *l) {
    *l = (json_line){0};
    l->out.to = &l->text;
    json_begin(&l->out, '{');
    return &l->out;
}

/* Ends the object, prints it with a newline, flushes stdout and frees it. */
static inline void json_line_print(json_line *l) {
    json_end(&l->out, '}');
    printf("%s\n", l->out.err == QUIRE_OK ? l->text.p : "{\"error\":\"out of memory\"}");
    fflush(stdout);
    strbuf_deinit(&l->text);
}

enum { FIGURES_MAX_POINTS = 32, FIGURES_MAX_RUNS = 64, FIGURES_MOST = 1 << 24 };

typedef struct figure {
    double mean, spread; /* over the runs; spread: the largest distance from the mean */
} figure;

figure figure_of(const double *values, int32_t n);

/* Parses "1,4,16" into at most FIGURES_MAX_POINTS numbers of 1 .. FIGURES_MOST. INVALID
 * names the flag. */
quire_err figures_parse_list(const char *flag, const char *text, int32_t *out, int32_t *n, quire_error *err);
/* The same for tokens per page: powers of two up to KV_MAX_PAGE_TOKENS. */
quire_err figures_parse_pages(const char *flag, const char *text, int32_t *out, int32_t *n, quire_error *err);
/* Parses a list of different names, "q4_0,int8", or "all", into their indices in rows[0..n_rows)
 * of row_bytes each, which begin with their name. INVALID lists the names. */
quire_err figures_parse_names(const char *flag, const char *text, const void *rows, size_t row_bytes,
                              int32_t n_rows, int32_t *out, int32_t *n, quire_error *err);
#define FIGURES_PARSE_NAMES(flag, text, rows, out, n, err)                                                   \
    figures_parse_names((flag), (text), (rows), sizeof *(rows), (int32_t)(sizeof(rows) / sizeof *(rows)),    \
                        (out), (n), (err))
/* Removes and returns the first of the comma-separated words. */
str figures_next_word(const char **list);
/* Removes and returns the first line of *text, without its newline. */
str figures_next_line(str *text);
/* Writes a whole file. QUIRE_IO: err names it. */
quire_err figures_write_file(const char *path, const strbuf *bytes, quire_error *err);
/* The largest of values[0..n); 0 if n is 0. */
int32_t figures_largest(const int32_t *values, int32_t n);

/* Clock in microseconds for measuring compute threads. With one thread, this process's
 * CPU time, which other programs do not lengthen; with several, which wait for each
 * other, wall time. */
int64_t figures_time_us(int32_t n_threads);
/* "processor time" or "wall time". */
const char *figures_time_name(int32_t n_threads);
/* The quantile `part` (0..1) of values[0..n); 0.5 is the median. Sorts values. */
double figures_percentile(double *values, int32_t n, double part);

/* How experiments print: a table with a title for people, or JSON lines for programs.
 *
 * Columns with a unit are figures. With --json each figure of a row is a line, whose
 * params are the columns without a unit:
 *
 *   {"bench":"kv","name":"reserve","params":{"pages":1024,"threads":2},"value":12.5,
 *    "unit":"ns/page","limit":null,"fraction":null}
 * bench is the command's name without "bench", limit is in the value's unit, and fraction
 * is how much of the limit was reached. A figure that was not measured has no line. For a
 * table without units, as of demonstrations, JSON has an object for each row. */

enum { TABLE_TEXT = -1 }; /* decimals of a text column */

typedef struct table_column {
    const char *name;  /* name in JSON */
    const char *title; /* title in the table; NULL: only in JSON, unless absent or no text */
    int32_t width, decimals;
    /* unit of a figure; NULL: the column identifies rows. "": only in the table */
    const char *unit;
} table_column;

typedef struct bench_table {
    const char *what; /* the experiment's name: "bench" of a figure's line, "experiment" of a row's object */
    const table_column *columns;
    int32_t n_columns;
    bool json;
} bench_table;

#define TABLE_COLUMNS(c) (c), (int32_t)(sizeof(c) / sizeof *(c))

/* Columns: text and numbers that identify rows, figures, and text only for the table; a
 * FIGURE with unit "" is a number only for the table. */
#define WORD(name, title, width)                                                                             \
    { name, title, width, TABLE_TEXT, NULL }
#define KEY(name, title, width, decimals)                                                                    \
    { name, title, width, decimals, NULL }
#define FIGURE(name, title, width, decimals, unit)                                                           \
    { name, title, width, decimals, unit }
#define REMARK(name, title, width)                                                                           \
    { name, title, width, TABLE_TEXT, "" }
#define TABLE_OF(...)                                                                                        \
    { __VA_ARGS__ }

/* Declares the bench_table `t` with these columns. */
#define TABLE(t, what, json, ...)                                                                            \
    static const table_column t##_columns[] = TABLE_OF(__VA_ARGS__);                                         \
    const bench_table t = {what, TABLE_COLUMNS(t##_columns), json}

/* A value: text in a text column, else a number. A number that is not finite is absent:
 * "-" or its text in the table, null in JSON. */
typedef struct table_cell {
    const char *text;
    double number;
    double limit, fraction; /* of a figure; limit 0: none */
} table_cell;

#define TABLE_ABSENT ((double)NAN)
#define NUM(x)       ((table_cell){.number = (double)(x)})
#define TXT(x)       ((table_cell){.text = (x)})
#define LIMITED(x, most, part)                                                                               \
    ((table_cell){.number = (double)(x), .limit = (double)(most), .fraction = (double)(part)})

/* Prints the column titles, under a heading unless that is NULL. JSON has neither. */
void table_begin(const bench_table *s, const char *heading);
/* Prints a row: a cell for each column; more cells are ignored. TABLE_ROW takes the cells
 * as NUM(..) and TXT(..). */
void table_row(const bench_table *s, const table_cell *cells, size_t n_cells);
#define TABLE_ROW(s, ...)                                                                                    \
    table_row((s), (const table_cell[]){__VA_ARGS__},                                                        \
              sizeof((const table_cell[]){__VA_ARGS__}) / sizeof(table_cell))
/* Prints a line that says what the table shows and on which machine. In JSON with figures
 * it goes to stderr; in JSON with rows it is {"experiment": .., "note": ..}. */
void table_note(const bench_table *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

/* How experiments print: a table with a title for people, or JSON lines for programs.
 *
 * Columns with a unit are figures: JSON has a line for each of a row's (bench_line.h),
 * whose params are the columns without. A sheet that has no unit, as a demonstration's,
 * has a JSON object for each row. */
#ifndef LAB_BENCH_SHEET_H
#define LAB_BENCH_SHEET_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHEET_TEXT = -1 }; /* decimals of a column of words */

typedef struct sheet_column {
    const char *name;  /* in JSON */
    const char *title; /* in the table */
    int32_t width, decimals;
    /* of a figure; NULL: what tells the rows apart. Words that have one ("") are left out
     * of JSON */
    const char *unit;
} sheet_column;

typedef struct sheet {
    const char *what; /* the experiment's name: "bench" in a line, "experiment" in a row's object */
    const sheet_column *columns;
    int32_t n_columns;
    bool json;
} sheet;

/* One value: text in a column of words, else a number. A number that is not finite is
 * absent: "-" or null. */
typedef struct sheet_cell {
    const char *text;
    double number;
} sheet_cell;

#define SHEET_ABSENT ((double)NAN)

/* Prints the column titles, under a heading where there is one (NULL: none). JSON has
 * neither. */
void sheet_begin(const sheet *s, const char *heading);
/* Prints cells[0..n_columns). */
void sheet_row(const sheet *s, const sheet_cell *cells);
/* Says, in one line, what the table shows and on what it was found. Beside figures in
 * JSON it goes to stderr; beside rows it is {"experiment": .., "note": ..}. */
void sheet_note(const sheet *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

/* Diagrams as an SVG picture, one below the other: lines of points, x on a logarithmic
 * scale. */
#ifndef LAB_COMMANDS_PLOT_H
#define LAB_COMMANDS_PLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { PLOT_MAX_LINES = 16 };

typedef struct plot_point {
    double x, y; /* over 0; y may be 0 where its scale is linear */
} plot_point;

typedef struct plot_line {
    const char *name;
    plot_point *points; /* [n] in order of x */
    int32_t n;          /* 0: not drawn, nor named */
} plot_line;

typedef struct plot_diagram {
    const char *title, *note, *x_title; /* printable text; note may be NULL */
    const char *y_unit;                 /* after the numbers of y: "%" */
    bool y_is_linear;                   /* from 0; else logarithmic */
    double level;                       /* a dashed line across; NAN: none */
    const char *level_name;             /* in the legend; NULL: not named */
    const plot_line *lines;
    int32_t n_lines; /* at most PLOT_MAX_LINES */
} plot_diagram;

/* QUIRE_IO or QUIRE_NO_MEMORY; err names the file. */
quire_err plot_write(const char *path, const plot_diagram *diagrams, int32_t n, quire_error *err);

#endif

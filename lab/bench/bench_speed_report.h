/* Lines of `quire bench speed`: a figure, the machine's limit for it, the fraction of the
 * limit reached, the goal, and whether it is met. */
#ifndef LAB_BENCH_BENCH_SPEED_REPORT_H
#define LAB_BENCH_BENCH_SPEED_REPORT_H

#include <stdbool.h>

#include "lab/bench/figures.h"
#include "lab/bench/model_shape.h"

typedef struct speed_line {
    const char *name;               /* "decode" */
    const char *type;               /* type of weights, or of keys and values; NULL: none */
    int32_t batch, context, prompt; /* 0: not applicable */
    figure value;
    const char *unit;    /* "tokens/s" */
    speed_limit limit;   /* in the same unit; its `by` NULL: no limit */
    bool less_is_better; /* lower is better, as for times: the fraction is limit / value */
    /* with a limit, the least fraction of it; otherwise a bound on the value, an upper
     * one if less is better. NAN: no goal */
    double goal;
} speed_line;

/* The goal for the fraction of a figure; NAN: none. */
double speed_goal(const char *name, const char *type, int32_t batch);
/* The fraction of the limit; NAN: no limit. */
double speed_fraction(const speed_line *l);
bool speed_is_met(const speed_line *l);

/* Prints the table's titles (nothing for JSON); prints a line of it, or JSON lines of the
 * value and its spread. */
void speed_report_begin(bool json);
void speed_report(const speed_line *l, bool json);
/* Prints why a part was left out; with JSON, on stderr. */
void speed_report_skipped(const char *name, const char *type, const char *why, bool json);

#endif

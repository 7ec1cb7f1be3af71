/* Lines of `quire bench speed`: a figure, the machine's limit for it, the part of the
 * limit that it is, the goal, and whether that is met. */
#ifndef LAB_BENCH_BENCH_SPEED_REPORT_H
#define LAB_BENCH_BENCH_SPEED_REPORT_H

#include <stdbool.h>

#include "lab/bench/figures.h"
#include "lab/bench/model_shape.h"

typedef struct speed_line {
    const char *name;               /* "decode" */
    const char *type;               /* of weights, or of keys and values; NULL: of no type */
    int32_t batch, context, prompt; /* 0: does not apply */
    figure value;
    const char *unit;    /* "tokens/s" */
    speed_limit limit;   /* in the same unit; its `by` NULL: none */
    bool less_is_better; /* as of a time: the fraction is limit / value */
    /* with a limit the least fraction of it; else the value's own bound: the most where
     * less is better, or the least. NAN: there is none */
    double goal;
} speed_line;

/* What was set as a goal for the fraction of a figure; NAN: nothing. */
double speed_goal(const char *name, const char *type, int32_t batch);
/* NAN without a limit. */
double speed_fraction(const speed_line *l);
bool speed_is_met(const speed_line *l);

/* The table's titles (nothing for JSON), and a line of it, or JSON lines of the value and
 * its spread. */
void speed_report_begin(bool json);
void speed_report(const speed_line *l, bool json);
/* Says why a part was left out, on stderr where lines are JSON. */
void speed_report_skipped(const char *name, const char *type, const char *why, bool json);

#endif

/* A figure of a benchmark as a line of JSON on stdout, the one form of `quire bench ...
 * --json`:
 *
 *   {"bench":"kv","name":"reserve","params":{"pages":1024,"threads":2},"value":12.5,
 *    "unit":"ns/page","limit":null,"fraction":null}
 *
 * bench is the command's name without "bench", params tells figures of one name apart,
 * limit is in the value's unit, and fraction is how much of the limit was reached. A
 * figure that was not measured has no line. */
#ifndef LAB_BENCH_BENCH_LINE_H
#define LAB_BENCH_BENCH_LINE_H

#include "lab/json_line.h"

/* Begins a line and returns the writer for the members of params. */
json_out *bench_line_begin(json_line *l, const char *bench, const char *name);

/* Ends params and prints the line with a value that has no limit. A value that is not
 * finite: nothing is printed. */
void bench_line_end(json_line *l, double value, const char *unit);
/* The same with a limit in the value's unit; limit and fraction are null where they are
 * not finite. */
void bench_line_end_limited(json_line *l, double value, const char *unit, double limit, double fraction);

#endif

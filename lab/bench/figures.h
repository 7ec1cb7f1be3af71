/* What the benchmarks share: the mean and spread of runs, and lists of numbers on the
 * command line. */
#ifndef LAB_BENCH_FIGURES_H
#define LAB_BENCH_FIGURES_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { FIGURES_MAX_POINTS = 32, FIGURES_MAX_RUNS = 64, FIGURES_MOST = 1 << 24 };

typedef struct figure {
    double mean, spread; /* of the runs; spread is the largest distance from the mean */
} figure;

figure figure_of(const double *values, int32_t n);

/* "1,4,16" into at most FIGURES_MAX_POINTS numbers of 1 .. FIGURES_MOST; INVALID names
 * the flag. */
quire_err figures_parse_list(const char *flag, const char *text, int32_t *out, int32_t *n, quire_error *err);
/* The same of threads; NULL: one a core. */
quire_err figures_parse_threads(const char *text, int32_t *out, int32_t *n, quire_error *err);
/* The same of tokens a page: powers of two up to KV_MAX_PAGE_TOKENS. */
quire_err figures_parse_pages(const char *flag, const char *text, int32_t *out, int32_t *n, quire_error *err);
/* Takes the first of the words between commas off the list. */
str figures_next_word(const char **list);
/* The largest of values[0..n), 0 of none. */
int32_t figures_largest(const int32_t *values, int32_t n);

/* Microseconds for measuring what compute threads do. With one of them: of this process's
 * processor time, which other programs on the machine do not lengthen; with more, which
 * wait for each other, of the clock. */
int64_t figures_time_us(int32_t n_threads);
/* The part of such a time that the calling thread takes: microseconds of its processor
 * time with one compute thread, else 0, since it waits beside the others. */
int64_t figures_own_time_us(int32_t n_threads);
/* "processor time" or "wall time". */
const char *figures_time_name(int32_t n_threads);
/* The same for figures with n_threads[0..n) threads: both names, if both kinds occur. */
const char *figures_times_name(const int32_t *n_threads, int32_t n);

/* The value that part (0..1) of values[0..n) are at or under: 0.5 is the median. Sorts
 * values. */
double figures_percentile(double *values, int32_t n, double part);

#endif

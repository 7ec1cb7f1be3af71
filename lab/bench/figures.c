#include "lab/bench/figures.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "core/kv_layout.h"

figure figure_of(const double *values, int32_t n) {
    figure f = {0};
    for (int32_t i = 0; i < n; i++) {
        f.mean += values[i] / n;
    }
    for (int32_t i = 0; i < n; i++) {
        f.spread = fmax(f.spread, fabs(values[i] - f.mean));
    }
    return f;
}

quire_err figures_parse_list(const char *flag, const char *text, int32_t *out, int32_t *n, quire_error *err) {
    *n = 0;
    for (const char *p = text; *p;) {
        char *end;
        long v = strtol(p, &end, 10);
        bool goes_on = *end == ',' && end[1] != 0;
        if (end == p || v < 1 || v > FIGURES_MOST || (!goes_on && *end != 0) || *n == FIGURES_MAX_POINTS) {
            return err_set(err, QUIRE_INVALID, p - text,
                           "%s %s: must be at most %d whole numbers from 1 to %d, as in 1,4,16", flag, text,
                           FIGURES_MAX_POINTS, FIGURES_MOST);
        }
        out[(*n)++] = (int32_t)v;
        p = end + (*end == ',');
    }
    return *n ? QUIRE_OK : err_set(err, QUIRE_INVALID, -1, "%s: is empty", flag);
}

str figures_next_word(const char **list) {
    str word = {*list, strcspn(*list, ",")};
    *list += word.n + ((*list)[word.n] == ',');
    return word;
}

quire_err figures_parse_threads(const char *text, int32_t *out, int32_t *n, quire_error *err) {
    out[0] = thread_pool_cpus();
    *n = 1;
    return text != NULL ? figures_parse_list("--threads", text, out, n, err) : QUIRE_OK;
}

quire_err figures_parse_pages(const char *flag, const char *text, int32_t *out, int32_t *n,
                              quire_error *err) {
    TRY(figures_parse_list(flag, text, out, n, err));
    for (int32_t i = 0; i < *n; i++) {
        if (out[i] > KV_MAX_PAGE_TOKENS || (out[i] & (out[i] - 1)) != 0) {
            return err_set(err, QUIRE_INVALID, -1, "%s %s: %d is not a power of two from 1 to %d", flag, text,
                           (int)out[i], KV_MAX_PAGE_TOKENS);
        }
    }
    return QUIRE_OK;
}

int32_t figures_largest(const int32_t *values, int32_t n) {
    int32_t largest = 0;
    for (int32_t i = 0; i < n; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    return largest;
}

int64_t figures_time_us(int32_t n_threads) {
    struct timespec t;
    if (n_threads != 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0) {
        return clock_us();
    }
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t figures_own_time_us(int32_t n_threads) {
    struct timespec t;
    if (n_threads != 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) {
        return 0;
    }
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

const char *figures_time_name(int32_t n_threads) {
    return n_threads == 1 ? "processor time" : "wall time";
}

const char *figures_times_name(const int32_t *n_threads, int32_t n) {
    int32_t n_ones = 0;
    for (int32_t i = 0; i < n; i++) {
        n_ones += n_threads[i] == 1;
    }
    return n_ones > 0 && n_ones < n ? "processor time with one thread, wall time with more"
                                    : figures_time_name(n_threads[0]);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double figures_percentile(double *values, int32_t n, double part) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    int32_t i = (int32_t)ceil(part * n) - 1;
    return values[i < 0 ? 0 : i];
}

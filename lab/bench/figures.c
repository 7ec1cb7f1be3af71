#include "lab/bench/figures.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
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

void table_begin(const bench_table *s, const char *heading) {
    if (s->json) {
        return;
    }
    if (heading != NULL) {
        printf("%s\n", heading);
    }
    const char *gap = "";
    for (int32_t i = 0; i < s->n_columns; i++) {
        const table_column *c = &s->columns[i];
        if (c->title != NULL) {
            printf("%s%*s", gap, c->decimals == TABLE_TEXT ? -c->width : c->width, c->title);
            gap = " ";
        }
    }
    printf("\n");
}

static void add_cell(json_out *line, const table_column *c, const table_cell *v) {
    json_name(line, c->name);
    if (c->decimals == TABLE_TEXT) {
        json_cstr(line, v->text != NULL ? v->text : "");
    } else if (c->decimals == 0 && isfinite(v->number)) {
        json_int(line, (int64_t)llround(v->number));
    } else {
        json_exact(line, v->number);
    }
}

static bool result_table_is_figure(const table_column *c) {
    return c->unit != NULL && c->decimals != TABLE_TEXT && c->unit[0] != '\0';
}

static bool has_figures(const bench_table *s) {
    bool has = false;
    for (int32_t i = 0; i < s->n_columns; i++) {
        has = has || s->columns[i].unit != NULL;
    }
    return has;
}

/* Prints a line for each figure of a row. */
static void result_table_print_figures(const bench_table *s, const table_cell *cells) {
    for (int32_t i = 0; i < s->n_columns; i++) {
        if (!result_table_is_figure(&s->columns[i])) {
            continue;
        }
        json_line l;
        json_out *params = bench_line_begin(&l, s->what, s->columns[i].name);
        for (int32_t k = 0; k < s->n_columns; k++) {
            const table_column *c = &s->columns[k];
            bool is_left_out = c->title == NULL && c->decimals != TABLE_TEXT && !isfinite(cells[k].number);
            if (c->unit == NULL && !is_left_out) {
                add_cell(params, &s->columns[k], &cells[k]);
            }
        }
        bool is_limited = cells[i].limit > 0;
        bench_line_end(&l, cells[i].number, s->columns[i].unit, is_limited ? cells[i].limit : TABLE_ABSENT,
                       is_limited ? cells[i].fraction : TABLE_ABSENT);
    }
}

static void print_object(const bench_table *s, const table_cell *cells) {
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "experiment"), s->what);
    for (int32_t i = 0; i < s->n_columns; i++) {
        add_cell(line, &s->columns[i], &cells[i]);
    }
    json_line_print(&l);
}

void table_row(const bench_table *s, const table_cell *cells, size_t n_cells) {
    assert(n_cells >= (size_t)s->n_columns);
    (void)n_cells;
    if (s->json) {
        (has_figures(s) ? result_table_print_figures : print_object)(s, cells);
        return;
    }
    const char *gap = "";
    for (int32_t i = 0; i < s->n_columns; i++) {
        const table_column *c = &s->columns[i];
        const table_cell *v = &cells[i];
        if (c->title == NULL) {
            continue;
        }
        if (c->decimals != TABLE_TEXT && isfinite(v->number)) {
            printf("%s%*.*f", gap, c->width, c->decimals, v->number);
        } else {
            bool is_word = c->decimals == TABLE_TEXT;
            printf("%s%*s", gap, is_word ? -c->width : c->width,
                   v->text != NULL ? v->text
                   : is_word       ? ""
                                   : "-");
        }
        gap = " ";
    }
    printf("\n");
    fflush(stdout);
}

void table_note(const bench_table *s, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!s->json) {
        printf("%s\n", text);
        fflush(stdout);
        return;
    }
    if (has_figures(s)) {
        log_line(LOG_INFO, "%s", text);
        return;
    }
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "experiment"), s->what);
    json_cstr(json_name(line, "note"), text);
    json_line_print(&l);
}

json_out *bench_line_begin(json_line *l, const char *bench, const char *name) {
    json_out *line = json_line_begin(l);
    json_cstr(json_name(line, "bench"), bench);
    json_cstr(json_name(line, "name"), name);
    json_begin(json_name(line, "params"), '{');
    return line;
}

void bench_line_end(json_line *l, double value, const char *unit, double limit, double fraction) {
    json_out *line = &l->out;
    if (!isfinite(value)) {
        strbuf_deinit(&l->text);
        return;
    }
    json_end(line, '}');
    json_exact(json_name(line, "value"), value);
    json_cstr(json_name(line, "unit"), unit);
    json_exact(json_name(line, "limit"), limit);
    json_exact(json_name(line, "fraction"), fraction);
    json_line_print(l);
}

void bench_figure_print(const bench_figure *f) {
    char name[64];
    json_line l;
    snprintf(name, sizeof name, "%s%s", f->name, f->suffix != NULL ? f->suffix : "");
    json_out *params = bench_line_begin(&l, f->bench, name);
    for (const bench_param *p = f->params; p->name != NULL; p++) {
        json_name(params, p->name);
        if (p->text != NULL) {
            json_cstr(params, p->text);
        } else {
            json_int(params, p->number);
        }
    }
    bench_line_end(&l, f->value, f->unit, f->limit > 0 ? f->limit : TABLE_ABSENT,
                   f->limit > 0 ? f->fraction : TABLE_ABSENT);
}

#include "lab/bench/figures.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
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

str figures_next_line(str *text) {
    const char *end = memchr(text->p, '\n', text->n);
    size_t n = end != NULL ? (size_t)(end - text->p) : text->n;
    str line = {text->p, n};
    *text = (str){text->p + n + (end != NULL), text->n - n - (end != NULL)};
    line.n -= n > 0 && line.p[n - 1] == '\r';
    return line;
}

quire_err figures_write_file(const char *path, const strbuf *bytes, quire_error *err) {
    FILE *f = fopen(path, "wb");
    bool is_good = f != NULL && fwrite(bytes->p, 1, bytes->n, f) == bytes->n;
    is_good = (f == NULL || fclose(f) == 0) && is_good;
    return is_good ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "%s: %s", path, strerror(errno));
}

static const char *figures_row_name(const void *rows, size_t row_bytes, int32_t i) {
    return *(const char *const *)(const void *)((const char *)rows + (size_t)i * row_bytes);
}

quire_err figures_parse_names(const char *flag, const char *text, const void *rows, size_t row_bytes,
                              int32_t n_rows, int32_t *out, int32_t *n, quire_error *err) {
    char names[256] = "";
    bool is_all = strcmp(text, "all") == 0, is_good = *text != '\0';
    *n = 0;
    for (int32_t i = 0; i < n_rows; i++) {
        size_t at = strlen(names);
        (void)snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? "," : "",
                       figures_row_name(rows, row_bytes, i));
        out[i] = is_all ? (*n)++ : 0;
    }
    for (const char *p = text; !is_all && is_good && *p != '\0';) {
        str word = figures_next_word(&p);
        int32_t i = 0;
        while (i < n_rows && !str_is(word, figures_row_name(rows, row_bytes, i))) {
            i++;
        }
        is_good = i < n_rows;
        for (int32_t k = 0; k < *n; k++) {
            is_good = is_good && out[k] != i;
        }
        out[is_good ? (*n)++ : 0] = i;
    }
    return is_good ? QUIRE_OK
                   : err_set(err, QUIRE_INVALID, -1, "%s %s: must be all or some of %s", flag, text, names);
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

/* Prints the line of the figure in column `of` of a row. */
static void result_table_print_figure(const bench_table *s, const table_cell *cells, int32_t of) {
    const table_column *f = &s->columns[of];
    const table_cell *cell = &cells[of];
    json_line l;
    json_out *line = json_line_begin(&l);
    json_cstr(json_name(line, "bench"), s->what);
    json_cstr(json_name(line, "name"), f->name);
    json_begin(json_name(line, "params"), '{');
    for (int32_t i = 0; i < s->n_columns; i++) {
        const table_column *c = &s->columns[i];
        bool has = c->decimals == TABLE_TEXT ? cells[i].text != NULL : isfinite(cells[i].number);
        if (c->unit == NULL && (has || c->title != NULL)) {
            add_cell(line, c, &cells[i]);
        }
    }
    json_end(line, '}');
    json_exact(json_name(line, "value"), cell->number);
    json_cstr(json_name(line, "unit"), f->unit);
    json_exact(json_name(line, "limit"), cell->limit > 0 ? cell->limit : TABLE_ABSENT);
    json_exact(json_name(line, "fraction"), cell->limit > 0 ? cell->fraction : TABLE_ABSENT);
    json_line_print(&l);
}

static void result_table_print_figures(const bench_table *s, const table_cell *cells) {
    for (int32_t i = 0; i < s->n_columns; i++) {
        if (result_table_is_figure(&s->columns[i]) && isfinite(cells[i].number)) {
            result_table_print_figure(s, cells, i);
        }
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

#include "lab/bench/result_table.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"

void table_begin(const bench_table *s, const char *heading) {
    if (s->json) {
        return;
    }
    if (heading != NULL) {
        printf("%s\n", heading);
    }
    for (int32_t i = 0; i < s->n_columns; i++) {
        const table_column *c = &s->columns[i];
        printf("%s%*s", i > 0 ? " " : "", c->decimals == TABLE_TEXT ? -c->width : c->width, c->title);
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

static bool has_figures(const bench_table *s) {
    bool has = false;
    for (int32_t i = 0; i < s->n_columns; i++) {
        has = has || s->columns[i].unit != NULL;
    }
    return has;
}

/* A line for each figure of a row. */
static void result_table_print_figures(const bench_table *s, const table_cell *cells) {
    for (int32_t i = 0; i < s->n_columns; i++) {
        if (s->columns[i].unit == NULL || s->columns[i].decimals == TABLE_TEXT) {
            continue;
        }
        json_line l;
        json_out *params = bench_line_begin(&l, s->what, s->columns[i].name);
        for (int32_t k = 0; k < s->n_columns; k++) {
            if (s->columns[k].unit == NULL) {
                add_cell(params, &s->columns[k], &cells[k]);
            }
        }
        bench_line_end(&l, cells[i].number, s->columns[i].unit);
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
    for (int32_t i = 0; i < s->n_columns; i++) {
        const table_column *c = &s->columns[i];
        if (c->decimals == TABLE_TEXT) {
            printf("%s%*s", i > 0 ? " " : "", -c->width, cells[i].text != NULL ? cells[i].text : "");
        } else if (isfinite(cells[i].number)) {
            printf("%s%*.*f", i > 0 ? " " : "", c->width, c->decimals, cells[i].number);
        } else {
            printf("%s%*s", i > 0 ? " " : "", c->width, "-");
        }
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

void bench_line_end(json_line *l, double value, const char *unit) {
    bench_line_end_limited(l, value, unit, (double)NAN, (double)NAN);
}

void bench_line_end_limited(json_line *l, double value, const char *unit, double limit, double fraction) {
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

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

/* A line for each figure of a row. */
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

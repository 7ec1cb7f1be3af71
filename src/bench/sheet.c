#include "bench/sheet.h"

#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>

static void print_json(json_object *line) {
    printf("%s\n", json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    fflush(stdout);
    json_object_put(line);
}

void sheet_begin(const sheet *s, const char *heading) {
    if (s->json) {
        return;
    }
    if (heading != NULL) {
        printf("%s\n", heading);
    }
    for (int32_t i = 0; i < s->n_columns; i++) {
        const sheet_column *c = &s->columns[i];
        printf("%s%*s", i > 0 ? " " : "", c->decimals == SHEET_TEXT ? -c->width : c->width, c->title);
    }
    printf("\n");
}

static json_object *json_of(const sheet_column *c, const sheet_cell *v) {
    if (c->decimals == SHEET_TEXT) {
        return json_object_new_string(v->text != NULL ? v->text : "");
    }
    if (!isfinite(v->number)) {
        return NULL;
    }
    return c->decimals == 0 ? json_object_new_int64((int64_t)llround(v->number)) : json_object_new_double(v->number);
}

void sheet_row(const sheet *s, const sheet_cell *cells) {
    if (s->json) {
        json_object *line = json_object_new_object();
        json_object_object_add(line, "experiment", json_object_new_string(s->what));
        for (int32_t i = 0; i < s->n_columns; i++) {
            json_object_object_add(line, s->columns[i].name, json_of(&s->columns[i], &cells[i]));
        }
        print_json(line);
        return;
    }
    for (int32_t i = 0; i < s->n_columns; i++) {
        const sheet_column *c = &s->columns[i];
        if (c->decimals == SHEET_TEXT) {
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

void sheet_note(const sheet *s, const char *format, ...) {
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
    json_object *line = json_object_new_object();
    json_object_object_add(line, "experiment", json_object_new_string(s->what));
    json_object_object_add(line, "note", json_object_new_string(text));
    print_json(line);
}

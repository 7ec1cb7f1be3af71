/* A JSON object as a line of stdout: what measurements print with --json. */
#ifndef LAB_JSON_LINE_H
#define LAB_JSON_LINE_H

#include <stdio.h>

#include "json/json_out.h"

typedef struct json_line {
    strbuf text;
    json_out out;
} json_line;

/* Begins an object and returns the writer for its members. */
static inline json_out *json_line_begin(json_line *l) {
    *l = (json_line){0};
    l->out.to = &l->text;
    json_begin(&l->out, '{');
    return &l->out;
}

/* Ends the object, prints it with a newline, flushes stdout and frees it. */
static inline void json_line_print(json_line *l) {
    json_end(&l->out, '}');
    printf("%s\n", l->out.err == QUIRE_OK ? l->text.p : "{\"error\":\"out of memory\"}");
    fflush(stdout);
    strbuf_deinit(&l->text);
}

#endif

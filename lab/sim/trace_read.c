#include "lab/sim/trace_read.h"

#include <stdio.h>

#include "file/map.h"
#include "lab/sim/trace_lines.h"

#define MAX_FILE_BYTES ((size_t)1 << 32)

/* Takes the next line off the front of *text, without its end. */
static str take_line(str *text) {
    const char *end = memchr(text->p, '\n', text->n);
    size_t n = end != NULL ? (size_t)(end - text->p) : text->n;
    str line = {text->p, n};
    *text = (str){text->p + n + (end != NULL), text->n - n - (end != NULL)};
    line.n -= n > 0 && line.p[n - 1] == '\r';
    return line;
}

static bool is_blank(str line) {
    size_t n = 0;
    while (n < line.n && (line.p[n] == ' ' || line.p[n] == '\t')) {
        n++;
    }
    return n == line.n;
}

/* All lines into the builder; the format is that of the first one that is not blank. */
static quire_err read_lines(trace_builder *b, str text, const char *name, int32_t limit, quire_error *err) {
    bool csv = false, known = false;
    for (int64_t number = 1; text.n > 0 && (limit == 0 || b->n_requests < limit); number++) {
        char where[256];
        str line = take_line(&text);
        if (is_blank(line)) {
            continue;
        }
        snprintf(where, sizeof where, "%.200s, line %lld", name, (long long)number);
        if (!known) {
            known = true;
            csv = trace_csv_is_header(line);
            if (!csv && line.p[0] != '{') {
                return err_set(err, QUIRE_BAD_FILE, -1,
                               "%s: begins neither a JSON object nor Azure's columns; `quire sim --help` "
                               "names the formats",
                               where);
            }
            if (csv) {
                continue;
            }
        }
        TRY(csv ? trace_csv_line(b, line, where, err) : trace_json_line(b, line, where, err));
    }
    return b->n_requests > 0 ? QUIRE_OK : err_set(err, QUIRE_BAD_FILE, -1, "%.200s: holds no requests", name);
}

quire_err trace_parse(str text, const char *name, int32_t limit, trace *out, quire_error *err) {
    trace_builder b = {0};
    quire_err e = read_lines(&b, text, name, limit, err);
    if (e == QUIRE_OK) {
        e = trace_build_finish(&b, out);
        if (e != QUIRE_OK) {
            err_set(err, e, -1, "%.200s: holds more than 2^31 different tokens; read less of it with --limit",
                    name);
        }
    }
    trace_build_deinit(&b);
    return e;
}

quire_err trace_read(const char *path, int32_t limit, trace *out, quire_error *err) {
    file_map map;
    TRY(file_map_open(path, MAX_FILE_BYTES, &map, err));
    quire_err e = trace_parse(file_map_text(&map), path, limit, out, err);
    file_map_close(&map);
    return e;
}

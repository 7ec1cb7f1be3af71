#include "lab/bench/schema_lines.h"

#include <string.h>

#include "file/map.h"

typedef struct taker {
    int32_t every;
    quire_err (*take)(void *user, json_value *record);
    void *user;
} taker;

static quire_err run_lines(const taker *t, str text, const char *where, quire_error *err) {
    json_limits limits = json_limits_file;
    limits.names = JSON_NAMES_LAST;
    for (int32_t line = 0; text.n > 0; line++) {
        const char *end = memchr(text.p, '\n', text.n);
        size_t n = end != NULL ? (size_t)(end - text.p) : text.n;
        json_value *record = NULL;
        json_fault fault;
        if (line % t->every == 0) {
            if (json_read((str){text.p, n}, &limits, JSON_WIDE_REAL, &record, &fault) != QUIRE_OK) {
                return err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: line %d: %s", where, line + 1,
                               fault.what);
            }
            quire_err e = t->take(t->user, record);
            json_drop(record);
            TRY(e);
        }
        n += end != NULL;
        text = (str){text.p + n, text.n - n};
    }
    return QUIRE_OK;
}

static const char own_schemas[] =
    "{\"schema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
    "\"integer\",\"minimum\":0},\"tags\":"
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"name\"]},\"tests\":[{\"valid\":"
    "true,\"data\":{\"name\":\"ann\","
    "\"age\":31,\"tags\":[\"a\",\"of words\"]}}]}\n"
    "{\"schema\":{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"enum\":[\"x\",\"y\"]},"
    "\"next\":{\"$ref\":\"#/$defs/n\"}},"
    "\"additionalProperties\":false}},\"$ref\":\"#/$defs/"
    "n\"},\"tests\":[{\"valid\":true,\"data\":{\"v\":\"x\",\"next\":{\"v\":\"y\","
    "\"next\":{}}}}]}\n"
    "{\"schema\":{\"type\":\"object\"},\"tests\":[{\"valid\":true,\"data\":{\"any\":[1,2.5,null,{\"thing\":"
    "\"at all\"}]}}]}\n";

quire_err schema_lines_each(const char *files, int32_t every,
                            quire_err (*take)(void *user, json_value *record), void *user, quire_error *err) {
    const taker t = {every, take, user};
    const char *at = files;
    if (at == NULL) {
        return run_lines(&t, (str){own_schemas, sizeof own_schemas - 1}, "the schemas", err);
    }
    while (*at != 0) {
        char path[4096];
        size_t n = strcspn(at, ",");
        file_map map = {0};
        if (n >= sizeof path) {
            return err_set(err, QUIRE_INVALID, -1, "--schemas: a name is too long");
        }
        memcpy(path, at, n);
        path[n] = 0;
        TRY(file_map_open(path, (size_t)1 << 30, &map, err));
        quire_err e = run_lines(&t, file_map_text(&map), path, err);
        file_map_close(&map);
        TRY(e);
        at += n + (at[n] == ',');
    }
    return QUIRE_OK;
}

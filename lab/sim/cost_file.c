/* A cost model as a JSON file: what `quire bench calibrate` writes and `quire sim --cost`
 * reads. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/json_doc.h"
#include "file/map.h"
#include "lab/sim/cost.h"
#include "json/json_out.h"

#define FORMAT         "quire-cost-1"
#define MAX_FILE_BYTES ((size_t)1 << 20)

/* Fields that are one number. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"out_us", offsetof(cost_model, out_us)},
    {"decode_pair_us", offsetof(cost_model, decode_pair_us)},
    {"prefill_pair_us", offsetof(cost_model, prefill_pair_us)},
    {"copy_us", offsetof(cost_model, copy_us)},
    {"request_us", offsetof(cost_model, request_us)},
};
enum { N_NUMBERS = (int)(sizeof numbers / sizeof *numbers) };

/* A number that is not negative. */
static bool get_number(json_value *v, double *out) {
    *out = json_double(v);
    return (json_is(v, JSON_KIND_REAL) || json_is(v, JSON_KIND_INT)) && isfinite(*out) && *out >= 0;
}

static bool get_name(json_value *root, const char *key, char *out) {
    json_value *v = json_get(root, key);
    snprintf(out, COST_NAME_BYTES, "%s", json_is(v, JSON_KIND_TEXT) ? json_str(v).p : "");
    return json_is(v, JSON_KIND_TEXT);
}

static bool get_points(json_value *root, cost_model *c) {
    json_value *points = json_get(root, "rows_us");
    size_t n = json_is(points, JSON_KIND_ARRAY) ? json_length(points) : 0;
    if (n < 2 || n > COST_MAX_POINTS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        json_value *p = json_at(points, i);
        bool pair = json_is(p, JSON_KIND_ARRAY) && json_length(p) == 2;
        if (!pair || !get_number(json_at(p, 0), &c->rows[i]) || !get_number(json_at(p, 1), &c->us[i]) ||
            (i > 0 && (c->rows[i] <= c->rows[i - 1] || c->us[i] < c->us[i - 1]))) {
            return false;
        }
    }
    c->n_points = (int32_t)n;
    return c->us[0] > 0; /* a step takes time, or simulated time would stand still */
}

static quire_err parse(json_value *root, const char *path, cost_model *c, quire_error *err) {
    char format[COST_NAME_BYTES];
    double n_tokens, n_bytes, len;
    if (!get_name(root, "format", format) || strcmp(format, FORMAT) != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: is no cost model (\"format\" must be \"%s\"); `quire bench calibrate MODEL --out "
                       "FILE` makes one",
                       path, FORMAT);
    }
    if (!get_name(root, "model", c->model) || !get_name(root, "device", c->device)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"model\" and \"device\" must be strings", path);
    }
    if (!get_points(root, c)) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: \"rows_us\" must be 2 to %d pairs [rows, microseconds] with ascending rows and "
                       "times that do not fall, over 0",
                       path, COST_MAX_POINTS);
    }
    for (int i = 0; i < N_NUMBERS; i++) {
        if (!get_number(json_get(root, numbers[i].key), (double *)((char *)c + numbers[i].offset))) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"%s\" must be a number of microseconds from 0 on",
                           path, numbers[i].key);
        }
    }
    if (!get_number(json_get(root, "kv_tokens"), &n_tokens) ||
        !get_number(json_get(root, "token_bytes"), &n_bytes) ||
        !get_number(json_get(root, "max_model_len"), &len) || n_tokens > 0x1p53 || n_bytes > 0x1p53 ||
        len < 1 || len > 0x1p30) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: \"kv_tokens\", \"token_bytes\" and \"max_model_len\" must be counts", path);
    }
    c->swap_us = c->copy_us;
    c->kv_tokens = (int64_t)n_tokens;
    c->token_bytes = (int64_t)n_bytes;
    c->max_model_len = (int32_t)len;
    return QUIRE_OK;
}

quire_err cost_read(const char *path, cost_model *out, quire_error *err) {
    file_map map;
    json_doc doc = {0};
    cost_model c = {.n_points = 0};
    TRY(file_map_open(path, MAX_FILE_BYTES, &map, err));
    quire_err e = json_doc_parse(&doc, file_map_text(&map), JSON_NAMES_UNIQUE, path, err);
    e = e == QUIRE_OK ? parse(doc.root, path, &c, err) : e;
    json_doc_deinit(&doc);
    file_map_close(&map);
    if (e == QUIRE_OK) {
        *out = c;
    }
    return e;
}

static void write_model(json_out *o, const cost_model *c) {
    json_begin(o, '{');
    json_cstr(json_name(o, "format"), FORMAT);
    json_cstr(json_name(o, "model"), c->model);
    json_cstr(json_name(o, "device"), c->device);
    json_begin(json_name(o, "rows_us"), '[');
    for (int32_t i = 0; i < c->n_points; i++) {
        json_begin(json_item(o), '[');
        json_exact(json_item(o), c->rows[i]);
        json_exact(json_item(o), c->us[i]);
        json_end(o, ']');
    }
    json_end(o, ']');
    for (int i = 0; i < N_NUMBERS; i++) {
        json_exact(json_name(o, numbers[i].key), *(const double *)((const char *)c + numbers[i].offset));
    }
    json_int(json_name(o, "kv_tokens"), c->kv_tokens);
    json_int(json_name(o, "token_bytes"), c->token_bytes);
    json_int(json_name(o, "max_model_len"), c->max_model_len);
    json_end(o, '}');
    json_raw(o, "\n");
}

quire_err cost_write(const char *path, const cost_model *c, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text, .indent = 2};
    write_model(&o, c);
    FILE *f = o.err == QUIRE_OK ? fopen(path, "w") : NULL;
    bool good = f != NULL && fwrite(text.p, 1, text.n, f) == text.n;
    good = (f == NULL || fclose(f) == 0) && good;
    strbuf_deinit(&text);
    return good ? QUIRE_OK
                : err_set(err, o.err == QUIRE_OK ? QUIRE_IO : o.err, -1, "%s: %s", path, strerror(errno));
}

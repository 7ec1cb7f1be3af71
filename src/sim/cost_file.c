/* A cost model as a JSON file: what `quire bench calibrate` writes and `quire sim --cost` reads. */
#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/json_doc.h"
#include "file/map.h"
#include "sim/cost.h"

#define FORMAT         "quire-cost-1"
#define MAX_FILE_BYTES ((size_t)1 << 20)

/* Fields that are one number. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"out_us", offsetof(cost_model, out_us)},   {"decode_pair_us", offsetof(cost_model, decode_pair_us)}, {"prefill_pair_us", offsetof(cost_model, prefill_pair_us)},
    {"copy_us", offsetof(cost_model, copy_us)}, {"request_us", offsetof(cost_model, request_us)},
};
enum { N_NUMBERS = (int)(sizeof numbers / sizeof *numbers) };

/* A number that is not negative. */
static bool get_number(struct json_object *v, double *out) {
    *out = json_object_get_double(v);
    return (json_object_is_type(v, json_type_double) || json_object_is_type(v, json_type_int)) && isfinite(*out) && *out >= 0;
}

static bool get_name(struct json_object *root, const char *key, char *out) {
    struct json_object *v = json_object_object_get(root, key);
    snprintf(out, COST_NAME_BYTES, "%s", json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "");
    return json_object_is_type(v, json_type_string);
}

static bool get_points(struct json_object *root, cost_model *c) {
    struct json_object *points = json_object_object_get(root, "rows_us");
    size_t n = json_object_is_type(points, json_type_array) ? json_object_array_length(points) : 0;
    if (n < 2 || n > COST_MAX_POINTS) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        struct json_object *p = json_object_array_get_idx(points, i);
        bool pair = json_object_is_type(p, json_type_array) && json_object_array_length(p) == 2;
        if (!pair || !get_number(json_object_array_get_idx(p, 0), &c->rows[i]) || !get_number(json_object_array_get_idx(p, 1), &c->us[i]) ||
            (i > 0 && (c->rows[i] <= c->rows[i - 1] || c->us[i] < c->us[i - 1]))) {
            return false;
        }
    }
    c->n_points = (int32_t)n;
    return c->us[0] > 0; /* a step takes time, or simulated time would stand still */
}

static quire_err parse(struct json_object *root, const char *path, cost_model *c, quire_error *err) {
    char format[COST_NAME_BYTES];
    double n_tokens, n_bytes, len;
    if (!get_name(root, "format", format) || strcmp(format, FORMAT) != 0) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: is no cost model (\"format\" must be \"%s\"); `quire bench calibrate MODEL --out FILE` makes one", path, FORMAT);
    }
    if (!get_name(root, "model", c->model) || !get_name(root, "device", c->device)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"model\" and \"device\" must be strings", path);
    }
    if (!get_points(root, c)) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"rows_us\" must be 2 to %d pairs [rows, microseconds] with ascending rows and times that do not fall, over 0", path,
                       COST_MAX_POINTS);
    }
    for (int i = 0; i < N_NUMBERS; i++) {
        if (!get_number(json_object_object_get(root, numbers[i].key), (double *)((char *)c + numbers[i].offset))) {
            return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"%s\" must be a number of microseconds from 0 on", path, numbers[i].key);
        }
    }
    if (!get_number(json_object_object_get(root, "kv_tokens"), &n_tokens) || !get_number(json_object_object_get(root, "token_bytes"), &n_bytes) ||
        !get_number(json_object_object_get(root, "max_model_len"), &len) || n_tokens > 0x1p53 || n_bytes > 0x1p53 || len < 1 || len > 0x1p30) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: \"kv_tokens\", \"token_bytes\" and \"max_model_len\" must be counts", path);
    }
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
    quire_err e = json_doc_parse(&doc, file_map_text(&map), JSON_KEYS_UNIQUE, path, err);
    e = e == QUIRE_OK ? parse(doc.root, path, &c, err) : e;
    json_doc_deinit(&doc);
    file_map_close(&map);
    if (e == QUIRE_OK) {
        *out = c;
    }
    return e;
}

static json_object *json_of(const cost_model *c) {
    json_object *root = json_object_new_object(), *points = json_object_new_array();
    json_object_object_add(root, "format", json_object_new_string(FORMAT));
    json_object_object_add(root, "model", json_object_new_string(c->model));
    json_object_object_add(root, "device", json_object_new_string(c->device));
    for (int32_t i = 0; i < c->n_points; i++) {
        json_object *pair = json_object_new_array();
        json_object_array_add(pair, json_object_new_double(c->rows[i]));
        json_object_array_add(pair, json_object_new_double(c->us[i]));
        json_object_array_add(points, pair);
    }
    json_object_object_add(root, "rows_us", points);
    for (int i = 0; i < N_NUMBERS; i++) {
        json_object_object_add(root, numbers[i].key, json_object_new_double(*(const double *)((const char *)c + numbers[i].offset)));
    }
    json_object_object_add(root, "kv_tokens", json_object_new_int64(c->kv_tokens));
    json_object_object_add(root, "token_bytes", json_object_new_int64(c->token_bytes));
    json_object_object_add(root, "max_model_len", json_object_new_int(c->max_model_len));
    return root;
}

quire_err cost_write(const char *path, const cost_model *c, quire_error *err) {
    json_object *root = json_of(c);
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    FILE *f = text != NULL ? fopen(path, "w") : NULL;
    bool good = f != NULL && fprintf(f, "%s\n", text) > 0;
    good = (f == NULL || fclose(f) == 0) && good;
    json_object_put(root);
    return good ? QUIRE_OK : err_set(err, text == NULL ? QUIRE_NO_MEMORY : QUIRE_IO, -1, "%s: %s", path, strerror(errno));
}

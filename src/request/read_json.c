/* The JSON of requests: checks bodies before anything is built, and parses single
 * values. */
#include <stdio.h>

#include "request/request_read.h"

static const json_limits limits = {.max_depth = REQUEST_MAX_DEPTH,
                                   .max_values = REQUEST_MAX_VALUES,
                                   .max_containers = REQUEST_MAX_CONTAINERS,
                                   .max_names = REQUEST_MAX_NAMES};

static quire_err json_error(size_t at, quire_error *err, const char *what) {
    err_set(err, QUIRE_BAD_REQUEST, (int64_t)at, "the body is not valid JSON at byte %zu: %s", at, what);
    if (err != NULL) {
        snprintf(err->param, sizeof err->param, "body.%zu", at);
    }
    return QUIRE_BAD_REQUEST;
}

/* json_limits.member_bytes, of body_rows. */
static size_t bytes_of_row(void *user, str name) {
    body_rows *rows = user;
    rows->over = rows->of(name, rows->endpoint);
    return rows->over != NULL ? request_field_max_bytes(rows->over) : 0;
}

/* What comes after the first byte too many is not read. */
static quire_err size_error(const field_desc *f, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, request_rule_param(f),
                         "%s has over %zu bytes, the most that are read (white space and escapes aside)",
                         f->name, request_field_max_bytes(f));
}

quire_err request_check_size(const field_desc *f, str text, quire_error *err) {
    json_fault fault = {0};
    json_limits own = limits;
    own.max_bytes = request_field_max_bytes(f);
    return own.max_bytes > 0 && text.n > own.max_bytes && json_check(text, &own, NULL, &fault) != QUIRE_OK &&
                   fault.max_bytes > 0
               ? size_error(f, err)
               : QUIRE_OK;
}

quire_err request_check_body(str text, body_rows *rows, quire_error *err) {
    json_fault fault;
    json_limits own = limits;
    if (rows != NULL) {
        own.member_bytes = bytes_of_row;
        own.user = rows;
    }
    if (text.n == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body is empty; it must be a JSON object");
    }
    if (text.n > REQUEST_MAX_BYTES) {
        return err_set_param(err, QUIRE_TOO_LARGE, "body", "the body has %zu bytes; at most %zu are read",
                             text.n, REQUEST_MAX_BYTES);
    }
    quire_err e = json_check(text, &own, NULL, &fault);
    if (rows != NULL && e != QUIRE_OK && fault.max_bytes > 0) {
        return size_error(rows->over, err);
    }
    if (rows != NULL) {
        rows->over = NULL;
    }
    return e == QUIRE_OK          ? e
           : e == QUIRE_NO_MEMORY ? err_set(err, e, -1, "out of memory")
                                  : json_error(fault.at, err, fault.what);
}

quire_err request_read_value(str text, size_t at, const char *name, json_value **out, quire_error *err) {
    json_fault fault;
    *out = NULL;
    if (name == NULL) {
        TRY(request_check_body(text, NULL, err));
    }
    quire_err e = json_read(text, &limits, JSON_WIDE_KEPT, out, &fault);
    if (e == QUIRE_OK || e == QUIRE_NO_MEMORY) {
        return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory");
    }
    if (name == NULL) {
        return json_error(at + fault.at, err, fault.what);
    }
    char param[64];
    snprintf(param, sizeof param, "body.%s", name);
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s has %s at byte %zu", name, fault.what,
                         at + fault.at);
}

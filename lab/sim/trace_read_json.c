/* JSON lines of traces: Mooncake's format and the own one. */
#include <math.h>

#include "file/json_doc.h"
#include "file/show.h"
#include "lab/sim/trace_lines.h"
#include "json/json.h"

#define MAX_US 1e18 /* arrival: over 30,000 years, and far from overflow */

typedef struct reader {
    trace_builder *b;
    json_value *root;
    const char *where;
    quire_error *err;
} reader;

static quire_err fault(const reader *r, const char *key, const char *must) {
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: %s must be %s; repair that line", r->where, key, must);
}

/* What the builder refuses. */
static quire_err refuse(const reader *r, quire_err e, const char *key) {
    if (e == QUIRE_TOO_LARGE) {
        return err_set(r->err, e, -1, "%s: %s holds more than %s tokens, or a trace more than 2^31 texts",
                       r->where, key, show_count(TRACE_MAX_TOKENS).text);
    }
    return e == QUIRE_OK ? e : err_set(r->err, e, -1, "%s: %s: %s", r->where, key, quire_err_text(e));
}

/* A whole number from minimum to INT32_MAX. */
static bool get_count(json_value *v, int32_t minimum, int32_t *out) {
    int64_t n = json_is(v, JSON_KIND_INT) ? json_int64(v) : -1;
    if (n < minimum || n > INT32_MAX) {
        return false;
    }
    *out = (int32_t)n;
    return true;
}

/* The member at key in units of unit_us; absent is 0. */
static quire_err get_time(const reader *r, const char *key, double unit_us, int64_t *out) {
    json_value *v = json_get(r->root, key);
    bool number = v == NULL || json_is(v, JSON_KIND_INT) || json_is(v, JSON_KIND_REAL);
    double us = number && v != NULL ? json_double(v) * unit_us : 0;
    if (!number || !(us >= 0 && us <= MAX_US)) {
        return fault(r, key, "a time from 0 on");
    }
    *out = llround(us);
    return QUIRE_OK;
}

/* ---- Mooncake ---- */

static quire_err add_block(const reader *r, json_value *id, int32_t n) {
    int64_t v = json_is(id, JSON_KIND_INT) ? json_int64(id) : -1;
    if (v < 0 || v == INT64_MAX) { /* json-c reads what is larger as the largest */
        return fault(r, "hash_ids", "whole numbers from 0 to 2^63 - 2");
    }
    return refuse(r, trace_build_text(r->b, TEXT_HASH, (str){(const char *)&v, sizeof v}, n), "input_length");
}

static quire_err read_mooncake(const reader *r, json_value *ids) {
    int64_t arrival_us;
    int32_t n_prompt, n_output;
    TRY(get_time(r, "timestamp", 1e3, &arrival_us));
    if (!get_count(json_get(r->root, "input_length"), 1, &n_prompt)) {
        return fault(r, "input_length", "a whole number from 1 on");
    }
    if (!get_count(json_get(r->root, "output_length"), 0, &n_output)) {
        return fault(r, "output_length", "a whole number from 0 on");
    }
    size_t n_ids = json_length(ids), wanted = (size_t)(n_prompt - 1) / TRACE_BLOCK_TOKENS + 1;
    if (n_ids != wanted) {
        return err_set(
            r->err, QUIRE_BAD_FILE, -1,
            "%s: %zu hash_ids for an input_length of %s; there must be one for each %d tokens: %zu", r->where,
            n_ids, show_count((uint64_t)n_prompt).text, (int)TRACE_BLOCK_TOKENS, wanted);
    }
    TRY(refuse(r, trace_build_start(r->b, arrival_us, str_of("")), "the line"));
    for (size_t i = 0; i < n_ids; i++) {
        int32_t rest = n_prompt - (int32_t)i * TRACE_BLOCK_TOKENS;
        TRY(add_block(r, json_at(ids, i), rest < TRACE_BLOCK_TOKENS ? rest : TRACE_BLOCK_TOKENS));
    }
    trace_build_answer(r->b);
    TRY(refuse(r, trace_build_new(r->b, n_output), "output_length"));
    return refuse(r, trace_build_end(r->b), "the line");
}

/* ---- own ---- */

/* A part of a prompt or an answer: ["name", n] or a token id. */
static quire_err add_part(const reader *r, json_value *part, const char *key) {
    int32_t n;
    if (get_count(part, 0, &n)) {
        return refuse(r, trace_build_token(r->b, n), key);
    }
    bool pair = json_is(part, JSON_KIND_ARRAY) && json_length(part) == 2;
    json_value *name = pair ? json_at(part, 0) : NULL;
    if (!json_is(name, JSON_KIND_TEXT) || !get_count(json_at(part, 1), 0, &n)) {
        return fault(r, key, "a number of tokens, or a list of [\"name\", n] and token ids from 0 on");
    }
    str text = {json_str(name).p, json_str(name).n};
    if (text.n > 254) {
        return fault(r, key, "made of names of at most 254 bytes");
    }
    return refuse(r, trace_build_text(r->b, TEXT_NAME, text, n), key);
}

static quire_err add_parts(const reader *r, const char *key) {
    json_value *v = json_get(r->root, key);
    int32_t n;
    if (get_count(v, 0, &n)) {
        return refuse(r, trace_build_new(r->b, n), key);
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return fault(r, key, "a number of tokens, or a list of [\"name\", n] and token ids from 0 on");
    }
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(add_part(r, json_at(v, i), key));
    }
    return QUIRE_OK;
}

static quire_err read_own(const reader *r) {
    int64_t arrival_us;
    TRY(get_time(r, "t", 1e6, &arrival_us));
    json_value *tenant = json_get(r->root, "tenant");
    if (tenant != NULL && !json_is(tenant, JSON_KIND_TEXT)) {
        return fault(r, "tenant", "a string");
    }
    str name = {tenant != NULL ? json_str(tenant).p : "", tenant != NULL ? json_str(tenant).n : 0};
    TRY(refuse(r, trace_build_start(r->b, arrival_us, name), "the line"));
    TRY(add_parts(r, "prompt"));
    trace_build_answer(r->b);
    if (json_get(r->root, "output") != NULL) {
        TRY(add_parts(r, "output"));
    }
    quire_err e = trace_build_end(r->b);
    return e == QUIRE_INVALID ? fault(r, "prompt", "of at least one token") : refuse(r, e, "the line");
}

quire_err trace_json_line(trace_builder *b, str line, const char *where, quire_error *err) {
    json_doc doc = {0};
    TRY(json_doc_parse(&doc, line, JSON_NAMES_UNIQUE, where, err));
    reader r = {.b = b, .root = doc.root, .where = where, .err = err};
    json_value *ids = json_get(doc.root, "hash_ids");
    quire_err e = QUIRE_OK;
    if (ids == NULL) {
        e = read_own(&r);
    } else if (json_is(ids, JSON_KIND_ARRAY)) {
        e = read_mooncake(&r, ids);
    } else {
        e = fault(&r, "hash_ids", "a list");
    }
    json_doc_deinit(&doc);
    return e;
}

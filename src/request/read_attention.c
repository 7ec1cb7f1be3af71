/* The field `attention`: a request's own mask_mod and score_mod, and the arrays that they
 * name (docs/attention.md). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "expr/expr.h"
#include "request/request_read.h"

/* The field as read. Free it with spec_close. */
typedef struct attention_spec {
    str mask, score;
    int32_t n_arrays;
    attn_array arrays[ATTN_PROGRAM_ARRAYS]; /* each owns its data */
} attention_spec;

static void spec_close(attention_spec *s) {
    for (int32_t i = 0; i < s->n_arrays; i++) {
        mem_free((void *)(uintptr_t)s->arrays[i].data);
    }
}

/* Computes the dimensions of nested lists from the first element of each level, and *n,
 * the number of values. */
static quire_err read_attention_measure(const field_desc *f, const json_value *v, attn_array *a, size_t *n,
                                        quire_error *err) {
    *n = 1;
    for (a->n_dims = 0; json_is(v, JSON_KIND_ARRAY); v = json_at(v, 0)) {
        size_t length = json_length(v);
        if (length == 0 || a->n_dims == ATTN_ARRAY_DIMS || length > INT32_MAX || !size_mul(*n, length, n) ||
            *n > EXPR_MAX_ARRAY_BYTES / sizeof(float)) {
            return request_range_error(
                f, err, "attention.arrays.%s must be lists of 1 to %d levels, none empty, of at most %d MiB",
                a->name, ATTN_ARRAY_DIMS, EXPR_MAX_ARRAY_BYTES >> 20);
        }
        a->dims[a->n_dims++] = (int32_t)length;
    }
    return a->n_dims > 0
               ? QUIRE_OK
               : request_range_error(f, err, "attention.arrays.%s must be a list of numbers", a->name);
}

/* Sets a->is_float if any number is not an integer. False: a list's length differs from
 * dims, or a value is not a number. */
static bool look_through(const json_value *v, attn_array *a, int32_t level) {
    if (level == a->n_dims) {
        a->is_float = a->is_float || json_is(v, JSON_KIND_REAL);
        return json_numeric(v);
    }
    bool fits = json_is(v, JSON_KIND_ARRAY) && json_length(v) == (size_t)a->dims[level];
    for (int32_t i = 0; fits && i < a->dims[level]; i++) {
        fits = look_through(json_at(v, (size_t)i), a, level + 1);
    }
    return fits;
}

/* Copies the numbers to *at and advances it. False: an integer exceeds 32 bits. */
static bool copy_numbers(const json_value *v, const attn_array *a, int32_t level, uint32_t **at) {
    if (level == a->n_dims) {
        float number = (float)json_double(v);
        int64_t whole = 0;
        bool is_whole = a->is_float || json_whole(v, &whole);
        int32_t integer = (int32_t)whole;
        memcpy((*at)++, a->is_float ? (const void *)&number : (const void *)&integer, sizeof **at);
        return is_whole && (a->is_float || whole == integer);
    }
    bool fits = true;
    for (int32_t i = 0; fits && i < a->dims[level]; i++) {
        fits = copy_numbers(json_at(v, (size_t)i), a, level + 1, at);
    }
    return fits;
}

static quire_err read_array(const field_desc *f, const json_member *m, attention_spec *s, quire_error *err) {
    attn_array *a = &s->arrays[s->n_arrays];
    size_t n;
    if (s->n_arrays == ATTN_PROGRAM_ARRAYS || strlen(m->name) > ATTN_ARRAY_NAME) {
        return request_range_error(f, err, "attention.arrays has over %d arrays, or a name of over %d bytes",
                                   ATTN_PROGRAM_ARRAYS, ATTN_ARRAY_NAME);
    }
    *a = (attn_array){0};
    memcpy(a->name, m->name, strlen(m->name));
    TRY(read_attention_measure(f, m->value, a, &n, err));
    if (!look_through(m->value, a, 0)) {
        return request_range_error(f, err, "attention.arrays.%s must be numbers in lists of equal lengths",
                                   a->name);
    }
    uint32_t *data = mem_new(n, sizeof *data), *at = data;
    TRY(mem_check_for(data, "an array", err));
    a->data = data;
    s->n_arrays++;
    return copy_numbers(m->value, a, 0, &at)
               ? QUIRE_OK
               : request_range_error(
                     f, err, "attention.arrays.%s has an integer that does not fit in 32 bits", a->name);
}

static quire_err read_attention_read_text(const field_desc *f, const json_member *m, str *out,
                                          quire_error *err) {
    if (m->value != NULL && !json_is(m->value, JSON_KIND_NULL) && !json_is(m->value, JSON_KIND_TEXT)) {
        return request_range_error(f, err, "attention.%s must be a string", m->name);
    }
    *out = json_str(m->value);
    return QUIRE_OK;
}

static quire_err read_spec(quire_request *r, const field_desc *f, const json_value *v, attention_spec *s,
                           quire_error *err) {
    for (json_member m = {0}; json_next(v, &m);) {
        if (strcmp(m.name, "mask_mod") == 0) {
            TRY(read_attention_read_text(f, &m, &s->mask, err));
        } else if (strcmp(m.name, "score_mod") == 0) {
            TRY(read_attention_read_text(f, &m, &s->score, err));
        } else if (strcmp(m.name, "arrays") == 0) {
            if (!json_is(m.value, JSON_KIND_OBJECT)) {
                return request_range_error(f, err, "attention.arrays must be an object of lists");
            }
            for (json_member a = {0}; json_next(m.value, &a);) {
                TRY(read_array(f, &a, s, err));
            }
        } else {
            TRY(request_ignore(r, "attention.", str_of(m.name)));
        }
    }
    return QUIRE_OK;
}

quire_err request_read_attention(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    attention_spec s = {0};
    attn_mods *mods = NULL;
    if (v != NULL && !r->context.trusts_attention) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, f->name,
            "this server does not accept attention in requests; start it with --trust-request-attention");
    }
    quire_err e = v != NULL ? read_spec(r, f, v, &s, err) : QUIRE_OK;
    if (e == QUIRE_OK && v != NULL) {
        const expr_mods from = {s.mask, s.score, s.arrays, s.n_arrays};
        quire_error why = {0};
        e = expr_compile_mods(&from, &mods, &why);
        e = e == QUIRE_INVALID ? err_set_param(err, QUIRE_BAD_REQUEST, f->name, "attention.%s", why.message)
                               : e;
    }
    spec_close(&s);
    TRY(e);
    attn_mods_drop(r->g.mods);
    r->g.mods = mods;
    r->g.has_attention = v != NULL;
    return QUIRE_OK;
}

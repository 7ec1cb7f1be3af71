/* Defaults of request fields, from an option, the model or a generation_config.json. */
#include <math.h>

#include "request/request_read.h"
#include "json/json_out.h"

/* Checks a value as if a request had it. */
static quire_err check_value(const char *name, const char *json, quire_error *err) {
    static const request_context nothing = {.n_vocab = 1, .max_model_len = 1};
    quire_request *r;
    TRY(request_ids(&nothing, (const int32_t[]){0}, 1, &r, err));
    quire_err e = quire_request_set(r, name, json, err);
    request_free(r);
    return e;
}

static quire_err read_defaults_add(request_defaults *d, const char *name, double value, quire_error *err) {
    strbuf json = {0};
    json_out o = {.to = &json};
    if (value == floor(value) && fabs(value) < 0x1p53) {
        json_int(&o, (int64_t)value);
    } else {
        json_exact(&o, value);
    }
    quire_err e = o.err == QUIRE_OK ? check_value(name, json.p, err) : o.err;
    if (e == QUIRE_OK) {
        d->values[d->n].field = name;
        d->values[d->n++].value = value;
        e = strbuf_addf(&d->text, "%s%s %s", d->n > 1 ? ", " : "", name, json.p);
    }
    strbuf_deinit(&json);
    return e;
}

quire_err request_defaults_add(request_defaults *d, const request_default *from, int32_t n,
                               const char *source, quire_error *err) {
    for (int32_t i = 0; i < n; i++) {
        quire_error why = {.message = ""};
        bool is_new = request_defaults_find(d, from[i].field) == NULL;
        quire_err e = is_new ? read_defaults_add(d, from[i].field, from[i].value, &why) : QUIRE_OK;
        if (e == QUIRE_BAD_REQUEST) {
            return err_set(err, QUIRE_BAD_FILE, -1,
                           "%s: %s; repair it, or start with --generation-config none", source, why.message);
        }
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "%s: %s", source, quire_err_text(e));
        }
    }
    return QUIRE_OK;
}

/* Adds one member of the option's object. */
static quire_err add_member(request_defaults *d, const json_member *m, quire_error *err) {
    const field_desc *f = request_field(m->name, FIELD_CHAT);
    if (f == NULL || !(f->flags & FIELD_DEFAULTED)) {
        return err_set(
            err, QUIRE_INVALID, -1,
            "%.100s can have no default here; temperature, top_k, top_p, min_p, seed and others can",
            m->name);
    }
    if (!json_is(m->value, JSON_KIND_INT) && !json_is(m->value, JSON_KIND_REAL)) {
        return err_set(err, QUIRE_INVALID, -1, "%s must be a number", f->name);
    }
    if (strcmp(f->name, "max_tokens") == 0 && json_double(m->value) < 1) {
        return err_set(err, QUIRE_INVALID, -1, "max_tokens must be at least 1");
    }
    return request_defaults_find(d, f->name) == NULL
               ? read_defaults_add(d, f->name, json_double(m->value), err)
               : QUIRE_OK;
}

quire_err request_defaults_read(request_defaults *d, const char *json, quire_error *err) {
    json_value *all = NULL;
    quire_error why = {.message = "it must be a JSON object"};
    *d = (request_defaults){0};
    if (json == NULL) {
        return QUIRE_OK;
    }
    quire_err e = request_read_value(str_of(json), 0, NULL, &all, &why);
    if (e == QUIRE_OK && !json_is(all, JSON_KIND_OBJECT)) {
        e = QUIRE_INVALID;
    }
    for (json_member m = {0}; e == QUIRE_OK && json_next(all, &m);) {
        e = add_member(d, &m, &why);
    }
    json_drop(all);
    return e == QUIRE_OK ? e
                         : err_set(err, e == QUIRE_BAD_REQUEST ? QUIRE_INVALID : e, -1,
                                   "defaults of requests: %s", why.message);
}

void request_defaults_deinit(request_defaults *d) {
    strbuf_deinit(&d->text);
    *d = (request_defaults){0};
}

/* The defaults of requests' sampling fields, from a model or a generation_config.json. */
#include <math.h>

#include "api/request_read.h"
#include "json/json_out.h"

/* Checks a value as a request's would be. */
static quire_err check_value(const char *name, const char *json, quire_error *err) {
    static const request_context nothing = {.n_vocab = 1, .max_model_len = 1};
    quire_request *r;
    TRY(request_ids(&nothing, (const int32_t[]){0}, 1, &r, err));
    quire_err e = quire_request_set(r, name, json, err);
    quire_request_free(r);
    return e;
}

static quire_err add(request_defaults *d, const char *source, const char *name, double value, quire_error *err) {
    strbuf json = {0};
    json_out o = {.to = &json};
    quire_error why = {.message = ""};
    if (value == floor(value) && fabs(value) < 0x1p53) {
        json_int(&o, (int64_t)value);
    } else {
        json_exact(&o, value);
    }
    quire_err e = o.err == QUIRE_OK && json.n >= sizeof d->values->json ? QUIRE_INTERNAL : o.err;
    e = e == QUIRE_OK ? check_value(name, json.p, &why) : e;
    if (e == QUIRE_OK) {
        d->values[d->n].field = name;
        memcpy(d->values[d->n++].json, json.p, json.n + 1);
        e = strbuf_addf(&d->text, "%s%s %s", d->n > 1 ? ", " : "", name, json.p);
    }
    strbuf_deinit(&json);
    if (e == QUIRE_BAD_REQUEST) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s; repair it, or start with --generation-config none", source, why.message);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: %s", source, quire_err_text(e));
}

quire_err request_defaults_init(const sampling_defaults *from, request_defaults *out, quire_error *err) {
    *out = (request_defaults){0};
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        if (from->names[i] != NULL) {
            TRY(add(out, from->source.p, from->names[i], from->values[i], err));
        }
    }
    return QUIRE_OK;
}

void request_defaults_deinit(request_defaults *d) {
    strbuf_deinit(&d->text);
    *d = (request_defaults){0};
}

const char *request_defaults_find(const request_defaults *d, const char *field) {
    for (int32_t i = 0; d != NULL && i < d->n; i++) {
        if (strcmp(d->values[i].field, field) == 0) {
            return d->values[i].json;
        }
    }
    return NULL;
}

#include "api/defaults.h"

#include <math.h>

#include "api/request_read.h"
#include "json/json_out.h"

const char *defaults_find(const request_defaults *d, const char *field) {
    for (int32_t i = 0; d != NULL && i < d->n; i++) {
        if (strcmp(d->values[i].field, field) == 0) {
            return d->values[i].json;
        }
    }
    return NULL;
}

/* Checks a value as a request's would be. */
static quire_err check_value(const char *name, str json, quire_error *err) {
    static const request_context nothing = {.n_vocab = 1, .max_model_len = 1};
    const field_desc *f = params_field(name, FIELD_COMPLETIONS);
    quire_request *r;
    json_value *v = NULL;
    TRY(request_new(&nothing, QUIRE_COMPLETIONS, &r) == QUIRE_OK ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory"));
    quire_err e = request_read_value(json, 0, name, &v, err);
    e = e == QUIRE_OK ? request_set_field(r, f, v, err) : e;
    json_drop(v);
    quire_request_free(r);
    return e;
}

static quire_err add(request_defaults *d, const char *name, double value, quire_error *err) {
    strbuf json = {0};
    json_out o = {.to = &json};
    quire_error why = {.message = ""};
    if (value == floor(value) && fabs(value) < 0x1p53) {
        json_int(&o, (int64_t)value);
    } else {
        json_exact(&o, value);
    }
    quire_err e = o.err == QUIRE_OK && json.n >= sizeof d->values->json ? QUIRE_INTERNAL : o.err;
    e = e == QUIRE_OK ? check_value(name, (str){json.p, json.n}, &why) : e;
    if (e == QUIRE_OK) {
        d->values[d->n].field = name;
        memcpy(d->values[d->n++].json, json.p, json.n + 1);
        e = strbuf_addf(&d->text, "%s%s %s", d->n > 1 ? ", " : "", name, json.p);
    }
    strbuf_deinit(&json);
    if (e == QUIRE_BAD_REQUEST) {
        return err_set(err, QUIRE_BAD_FILE, -1, "%s: %s; repair it, or start with --generation-config none", d->source.p, why.message);
    }
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%s: %s", d->source.p, quire_err_text(e));
}

static quire_err add_all(request_defaults *d, sampling_defaults *from, quire_error *err) {
    d->source = from->source;
    from->source = (strbuf){0};
    for (int i = 0; i < SAMPLING_DEFAULT_FIELDS; i++) {
        if (from->names[i] != NULL) {
            TRY(add(d, from->names[i], from->values[i], err));
        }
    }
    return QUIRE_OK;
}

quire_err defaults_open(const quire_options *o, const model_file *f, request_defaults *out, quire_error *err) {
    const char *from = o->generation_config;
    sampling_defaults found;
    *out = (request_defaults){0};
    if (strcmp(from, "none") == 0 || strcmp(from, "vllm") == 0) { /* vLLM's name for none */
        return QUIRE_OK;
    }
    TRY(strcmp(from, "auto") == 0 ? sampling_defaults_of_model(f, &found, err) : sampling_defaults_read(from, &found, err));
    quire_err e = add_all(out, &found, err);
    sampling_defaults_deinit(&found);
    if (e != QUIRE_OK || out->n == 0) {
        defaults_close(out);
    }
    return e;
}

void defaults_close(request_defaults *d) {
    strbuf_deinit(&d->source);
    strbuf_deinit(&d->text);
    *d = (request_defaults){0};
}

/* Checks a field's value against its row and stores it; small readers of fields. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "request/request_read.h"
#include "json/json_out.h"

quire_err request_type_error(const field_desc *f, int64_t index, const json_value *v, const char *what,
                             quire_error *err) {
    char param[64], brief[JSON_BRIEF_BYTES];
    const char *value = json_brief(v, brief);
    if (index < 0) {
        snprintf(param, sizeof param, "body.%s", f->name);
        return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s is %s; it must be %s", f->name, value, what);
    }
    snprintf(param, sizeof param, "body.%s.%lld", f->name, (long long)index);
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s[%lld] is %s; it must be %s", f->name,
                         (long long)index, value, what);
}

quire_err request_range_error(const field_desc *f, quire_error *err, const char *format, ...) {
    assert(f != NULL);
    char message[sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return err_set_param(err, QUIRE_BAD_REQUEST, f->flags & FIELD_UNNAMED ? "" : f->name, "%s", message);
}

/* Checks a number against its row's range: "top_p is 1.5; it must be over 0 and at most
 * 1". */
static quire_err check_range(const field_desc *f, double value, const json_value *v, quire_error *err) {
    bool open = f->flags & FIELD_MIN_OPEN;
    bool has_min = f->minimum > -FIELD_NO_LIMIT, has_max = f->maximum < FIELD_NO_LIMIT;
    bool low = has_min && (open ? value <= f->minimum : value < f->minimum);
    bool high = has_max && value > f->maximum && (f->flags & FIELD_CUT) == 0;
    if (!low && !high) {
        return QUIRE_OK;
    }
    char brief[JSON_BRIEF_BYTES], bounds[96];
    if (has_min && has_max && !(f->type != FIELD_NUMBER && low && f->maximum >= INT32_MAX)) {
        snprintf(bounds, sizeof bounds, open ? "over %.10g and at most %.10g" : "from %.10g to %.10g",
                 f->minimum, f->maximum);
    } else if (low) {
        snprintf(bounds, sizeof bounds, open ? "over %.10g" : "at least %.10g", f->minimum);
    } else {
        snprintf(bounds, sizeof bounds, "at most %.10g", f->maximum);
    }
    return request_range_error(f, err, "%s is %s; it must be %s", f->name, json_brief(v, brief), bounds);
}

static quire_err check_number(const field_desc *f, const json_value *v, quire_error *err) {
    if (!json_numeric(v)) {
        return request_type_error(f, -1, v, "a number", err);
    }
    double value = json_double(v);
    if (!isfinite(value)) {
        return request_type_error(f, -1, v, "a finite number", err);
    }
    return check_range(f, value, v, err);
}

/* Checks an array of integers within the row's range, or of strings; a single string is
 * allowed too. */
static quire_err check_items(const field_desc *f, const json_value *v, quire_error *err) {
    bool texts = f->type == FIELD_STRINGS;
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return texts && json_is(v, JSON_KIND_TEXT)
                   ? QUIRE_OK
                   : request_type_error(
                         f, -1, v, texts ? "a string or an array of strings" : "an array of integers", err);
    }
    for (size_t i = 0; i < json_length(v); i++) {
        const json_value *item = json_at(v, i);
        int64_t value = 0;
        if (!texts && json_is(item, JSON_KIND_WIDE)) {
            TRY(check_range(f, json_double(item), item, err));
            return request_type_error(f, (int64_t)i, item, "an integer of at most 64 bits", err);
        }
        if (texts ? !json_is(item, JSON_KIND_TEXT) : !json_whole(item, &value)) {
            return request_type_error(f, (int64_t)i, item, texts ? "a string" : "an integer", err);
        }
        if (!texts) {
            TRY(check_range(f, (double)value, item, err));
        }
    }
    return QUIRE_OK;
}

static quire_err check_integer(const field_desc *f, const json_value *v, quire_error *err) {
    int64_t value;
    bool is_cut = (f->flags & FIELD_CUT) != 0 && json_numeric(v) && json_double(v) > f->maximum &&
                  floor(json_double(v)) == json_double(v);
    if (json_whole(v, &value) || json_is(v, JSON_KIND_WIDE)) {
        TRY(check_range(f, json_double(v), v, err));
    }
    if (json_whole(v, &value) || is_cut) {
        return QUIRE_OK;
    }
    if (json_is(v, JSON_KIND_WIDE)) {
        char param[64], brief[JSON_BRIEF_BYTES];
        snprintf(param, sizeof param, "body.%s", f->name);
        return err_set_param(err, QUIRE_BAD_REQUEST, param,
                             "%s has an integer that does not fit in 64 bits: %s", f->name,
                             json_brief(v, brief));
    }
    return request_type_error(f, -1, v, "an integer", err);
}

/* Checks the type and range of a value that is not null. */
static quire_err check_field(const field_desc *f, const json_value *v, quire_error *err) {
    switch (f->type) {
    case FIELD_BOOL:
        return json_is(v, JSON_KIND_BOOL) ? QUIRE_OK : request_type_error(f, -1, v, "true or false", err);
    case FIELD_INT:
        return check_integer(f, v, err);
    case FIELD_NUMBER:
        return check_number(f, v, err);
    case FIELD_STRING:
        return json_is(v, JSON_KIND_TEXT) ? QUIRE_OK : request_type_error(f, -1, v, "a string", err);
    case FIELD_STRINGS:
    case FIELD_INTS:
        return check_items(f, v, err);
    case FIELD_OBJECT:
        return json_is(v, JSON_KIND_OBJECT) ? QUIRE_OK : request_type_error(f, -1, v, "an object", err);
    case FIELD_ARRAY:
        return json_is(v, JSON_KIND_ARRAY) ? QUIRE_OK : request_type_error(f, -1, v, "an array", err);
    default:
        return QUIRE_OK; /* prompt and messages are checked by their readers */
    }
}

/* Refuses a value that is not among the row's choices: "json_numbers is \"long\"; it must
 * be one of [\"short\",\"any\"]". */
static quire_err read_field_check_choice(const field_desc *f, const json_value *v, quire_error *err) {
    json_value *choices;
    TRY(request_read_value(str_of(f->choices), 0, f->name, &choices, err));
    bool is_one = false;
    for (size_t i = 0; i < json_length(choices); i++) {
        is_one = is_one || json_same(v, json_at(choices, i));
    }
    json_drop(choices);
    char what[96], brief[JSON_BRIEF_BYTES];
    (void)snprintf(what, sizeof what, "one of %s", f->choices);
    return is_one ? QUIRE_OK
           : f->type == FIELD_ANY
               ? request_type_error(f, -1, v, what, err)
               : request_range_error(f, err, "%s is %s; it must be %s", f->name, json_brief(v, brief), what);
}

const double *request_defaults_find(const request_defaults *d, const char *field) {
    for (int32_t i = 0; d != NULL && i < d->n; i++) {
        if (strcmp(d->values[i].field, field) == 0) {
            return &d->values[i].value;
        }
    }
    return NULL;
}

quire_err request_read_seed(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    const double *own = request_defaults_find(r->context.defaults, "seed");
    int64_t value = v == NULL && own != NULL ? (int64_t)*own : -1;
    r->g.sampling.has_seed = (v == NULL || json_whole(v, &value)) && value != -1;
    r->g.sampling.seed = r->g.sampling.has_seed ? (uint64_t)value : 0;
    return QUIRE_OK;
}

quire_err request_read_add_special(quire_request *r, const field_desc *f, const json_value *v,
                                   quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.add_special = v != NULL ? json_truth(v) : dialect_of(&r->g)->adds_special;
    r->g.add_bos = v == NULL && dialect_of(&r->g)->adds_bos;
    return QUIRE_OK;
}

quire_err request_read_model(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.info.model = v != NULL && json_str(v).n > 0 ? json_str(v).p : NULL;
    return QUIRE_OK;
}

quire_err request_read_truncation_side(quire_request *r, const field_desc *f, const json_value *v,
                                       quire_error *err) {
    bool is_left = v != NULL && str_is(json_str(v), "left");
    if (v != NULL && !is_left && !str_is(json_str(v), "right")) {
        return request_type_error(f, -1, v, "\"left\" or \"right\"", err);
    }
    r->g.keeps_end = v != NULL ? is_left : -1;
    return QUIRE_OK;
}

quire_err request_read_request_id(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    str id = v != NULL ? json_str(v) : (str){"", 0};
    bool is_visible = id.n <= REQUEST_MAX_ID_BYTES;
    for (size_t i = 0; is_visible && i < id.n; i++) {
        is_visible = id.p[i] > ' ' && id.p[i] <= '~';
    }
    if (!is_visible) {
        return request_range_error(f, err, "%s has %zu bytes; it must be of 1 to %d visible ASCII characters",
                                   f->name, id.n, REQUEST_MAX_ID_BYTES);
    }
    r->g.more.request_id = id.n > 0 ? id.p : NULL;
    return QUIRE_OK;
}

quire_err request_read_named_only(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    return err_set(err, v != NULL ? request_ignore(r, "", str_of(f->name)) : QUIRE_OK, -1, "out of memory");
}

quire_err request_read_n(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    int64_t n = 1;
    json_whole(v, &n);
    r->n = (int32_t)n;
    return QUIRE_OK;
}

/* Reads logprobs: a number for completions, a bool for chats (their number is
 * top_logprobs). */
quire_err request_read_logprobs(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    assert(f != NULL);
    (void)err;
    int64_t n = -1;
    if (f->type == FIELD_BOOL) {
        n = json_truth(v) ? 0 : -1;
    } else {
        json_whole(v, &n);
    }
    r->n_logprobs = (int32_t)n;
    return QUIRE_OK;
}

quire_err request_read_salt(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    str salt = {NULL, 0};
    if (v != NULL) {
        salt = json_str(v);
        if (salt.n == 0 || salt.n > PARAMS_MAX_SALT_BYTES) {
            return request_range_error(f, err, "cache_salt has %zu bytes; it must have from 1 to %d", salt.n,
                                       PARAMS_MAX_SALT_BYTES);
        }
    }
    r->g.cache_salt = salt;
    return QUIRE_OK;
}

static quire_err add_ignored(quire_request *r, const char *before, str name) {
    enum { MOST = 200 }; /* bytes listed at most */
    if (r->ignored.n + strlen(before) + name.n + 2 > MOST) {
        return QUIRE_OK;
    }
    if (r->ignored.n > 0) {
        TRY(strbuf_add_str(&r->ignored, ", "));
    }
    TRY(strbuf_add_str(&r->ignored, before));
    for (size_t i = 0; i < name.n; i++) {
        bool shown = name.p[i] > ' ' && name.p[i] < 0x7f && strchr("\",\\", name.p[i]) == NULL;
        TRY(strbuf_add_char(&r->ignored, shown ? name.p[i] : '?'));
    }
    return QUIRE_OK;
}

quire_err request_ignore(quire_request *r, const char *before, str name) {
    assert(r != NULL);
    quire_err e = add_ignored(r, before, name);
    r->g.info.ignored = r->ignored.p;
    return e;
}

static quire_err set_stream_options(quire_request *r, const field_desc *f, const json_value *v,
                                    quire_error *err) {
    r->has_stream_options = v != NULL;
    r->g.info.include_usage = r->g.info.continuous_usage = false;
    for (json_member m = {0}; v != NULL && json_next(v, &m);) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", f->name, m.name);
        const field_desc *row = request_field(name, dialect_of(&r->g)->fields);
        if (row != NULL) {
            TRY(request_set_field(r, row, m.value, err));
        } else if (m.value != NULL && request_ignore(r, "stream_options.", str_of(m.name)) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
        }
    }
    return QUIRE_OK;
}

/* Truncates the list of ignored names to n bytes. */
static void forget_ignored(quire_request *r, size_t n) {
    if (r->ignored.n > n) {
        r->ignored.n = n;
        r->ignored.p[n] = '\0';
        r->g.info.ignored = n > 0 ? r->ignored.p : NULL;
    }
}

/* Sets all members, or none if one fails. */
quire_err request_read_stream_options(quire_request *r, const field_desc *f, const json_value *v,
                                      quire_error *err) {
    assert(r != NULL);
    bool had = r->has_stream_options, usage = r->g.info.include_usage,
         continuous = r->g.info.continuous_usage;
    size_t n_ignored = r->ignored.n;
    quire_err e = set_stream_options(r, f, v, err);
    if (e != QUIRE_OK) {
        r->has_stream_options = had;
        r->g.info.include_usage = usage;
        r->g.info.continuous_usage = continuous;
        forget_ignored(r, n_ignored);
    }
    return e;
}

/* Stores by type. Numbers outside a float's range become FLT_MIN or FLT_MAX. */
void request_store_number(quire_request *r, const field_desc *f, double value) {
    assert(f != NULL);
    void *at = (char *)r + f->place;
    value = (f->flags & FIELD_CUT) != 0 && value > f->maximum ? f->maximum : value;
    if (f->type == FIELD_BOOL) {
        *(bool *)at = value != 0;
    } else if (f->type == FIELD_INT) {
        *(int32_t *)at = (int32_t)value;
    } else {
        float kept = (float)fmin(fmax(value, -FLT_MAX), FLT_MAX);
        *(float *)at = value != 0 && kept == 0 ? FLT_MIN : kept;
    }
}

/* Stores a checked value, or the default for NULL. */
static quire_err store(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (f->read != NULL) {
        return f->read(r, f, v, err);
    }
    const double *own = v == NULL ? request_defaults_find(r->context.defaults, f->name) : NULL;
    double fallback = own != NULL ? *own : f->number;
    request_store_number(r, f, v == NULL ? fallback : f->type == FIELD_BOOL ? json_truth(v) : json_double(v));
    return QUIRE_OK;
}

/* Stores the defaults of fields with any of these flags that are stored at a place. */
static void store_numbers(quire_request *r, uint32_t flags) {
    int32_t n = 0;
    const field_desc *fields = request_fields(&n);
    for (int32_t i = 0; i < n; i++) {
        if ((fields[i].flags & flags) != 0 && fields[i].place > 0) {
            request_store_number(r, &fields[i], fields[i].number);
        }
    }
}

/* Fields with a reader are skipped: their default is zero, or request_new sets it. The
 * seed's default is set by its reader. */
void request_store_defaults(quire_request *r) {
    assert(r != NULL);
    const request_defaults *own = r->context.defaults;
    const dialect *d = dialect_of(&r->g);
    store_numbers(r, d->base);
    store_numbers(r, d->fields);
    for (int32_t i = 0; own != NULL && i < own->n; i++) {
        const field_desc *f = request_field(own->values[i].field, d->base != 0 ? d->base : d->fields);
        if (f != NULL) {
            (void)store(r, f, NULL, NULL); /* numbers and the seed: cannot fail */
        }
    }
}

/* Whether two rows are names of one field. */
static bool is_another_name(const field_desc *a, const field_desc *b) {
    static field_reader *const readers[] = {request_read_candidates, request_read_n, request_read_n_probs,
                                            request_read_normalize, request_read_queries};
    bool is = a->place > 0 && a->place == b->place;
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        is = is || (a->read == readers[i] && b->read == readers[i]);
    }
    return is && a != b;
}

/* The value that another name of the field has; NULL: none. */
static const request_value *read_field_other(const quire_request *r, const field_desc *f) {
    const request_value *found = NULL;
    for (size_t i = 0; i < r->n_values; i++) {
        const request_value *at = &r->values[i];
        if (at->value == NULL) {
            found = found != NULL && found->field == at->field ? NULL : found;
        } else if (is_another_name(at->field, f)) {
            found = at;
        }
    }
    return found;
}

static bool is_default(const json_value *v, const json_value *fallback) {
    if (v == NULL || (json_numeric(v) && json_numeric(fallback))) {
        return v == NULL || json_double(v) == json_double(fallback);
    }
    return json_same(v, fallback);
}

/* Refuses any value but the default for a field that is not implemented. */
static quire_err check_later(const field_desc *f, const json_value *v, quire_error *err) {
    json_value *fallback;
    TRY(request_read_value(str_of(f->fallback), 0, f->name, &fallback, err));
    bool same = is_default(v, fallback);
    json_drop(fallback);
    return same ? QUIRE_OK
                : err_set_param(err, QUIRE_BAD_REQUEST, f->name,
                                "%s is not supported yet; leave it out or give %s", f->name, f->fallback);
}

quire_err request_set_field(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL && f != NULL);
    r->is_checked = false;
    if (f->flags & FIELD_LATER) {
        return check_later(f, v, err);
    }
    if (v != NULL) {
        TRY(check_field(f, v, err));
        if (f->choices != NULL) {
            TRY(read_field_check_choice(f, v, err));
        }
    }
    if ((f->flags & FIELD_IGNORED) != 0) {
        return QUIRE_OK;
    }
    const request_value *other = v == NULL ? read_field_other(r, f) : NULL;
    return other != NULL ? store(r, other->field, other->value, err) : store(r, f, v, err);
}

/* ---- JSON ---- */

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

/* Callback json_limits.member_bytes; user is the body_rows. */
static size_t bytes_of_row(void *user, str name) {
    body_rows *rows = user;
    rows->over = rows->of(name, rows->endpoint);
    return rows->over != NULL ? request_field_max_bytes(rows->over) : 0;
}

/* The value's actual size is unknown: reading stopped at the limit. */
static quire_err size_error(const field_desc *f, quire_error *err) {
    return err_set_param(err, QUIRE_BAD_REQUEST, request_rule_param(f),
                         "%s has more than the allowed %zu bytes (not counting white space and escapes)",
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
        return err_set_param(err, QUIRE_TOO_LARGE, "body", "the body has %zu bytes; at most %zu are allowed",
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
        return err_set(err, e, -1, "out of memory");
    }
    if (name == NULL) {
        return json_error(at + fault.at, err, fault.what);
    }
    char param[64];
    snprintf(param, sizeof param, "body.%s", name);
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "%s has %s at byte %zu", name, fault.what,
                         at + fault.at);
}

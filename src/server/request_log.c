#include "server/request_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define STATUS_CLIENT_LEFT 499

static bool is_valid_id(str id) {
    for (size_t i = 0; i < id.n; i++) {
        if (id.p[i] <= ' ' || id.p[i] > '~') {
            return false;
        }
    }
    return id.n > 0 && id.n <= REQUEST_ID_BYTES;
}

void request_record_open(request_record *r, str id, loop *l) {
    *r = (request_record){.is_open = true, .begun_us = clock_us(), .number = loop_new_id(l)};
    if (is_valid_id(id)) {
        memcpy(r->id, id.p, id.n);
    } else {
        snprintf(r->id, sizeof r->id, "req-%016" PRIx64, r->number);
    }
}

void request_record_token(request_record *r, int64_t queue_us) {
    r->first_token_us = r->first_token_us == 0 ? clock_us() : r->first_token_us;
    r->queue_us = queue_us > r->queue_us ? queue_us : r->queue_us;
}

/* Copies the reason, but between its first and last double quote, which may enclose a
 * part of the field's value. */
static void copy_reason(const char *message, char *out, size_t size) {
    const char *first = strchr(message, '"'), *last = strrchr(message, '"');
    int n = first == NULL ? (int)strlen(message) : (int)(first - message);
    snprintf(out, size, "%.*s%s%s", n, message, first == NULL ? "" : "\"..",
             first == NULL  ? ""
             : last > first ? last
                            : "");
}

void request_record_fail(request_record *r, const api_error *e) {
    r->finishes = 1u << QUIRE_FINISH_ERROR;
    r->error_status = e->status;
    snprintf(r->param, sizeof r->param, "%s", e->param != NULL ? e->param : "");
    if (r->param[0] != '\0') {
        copy_reason(e->message, r->error, sizeof r->error);
    } else {
        snprintf(r->error, sizeof r->error, "%s", e->message);
    }
}

/* ---- the line ---- */

#define MAX_FIELDS 20

typedef struct line {
    log_field fields[MAX_FIELDS];
    char numbers[MAX_FIELDS][24];
    size_t n;
} line;

static void add_text(line *l, const char *name, const char *value) {
    l->fields[l->n++] = (log_field){.name = name, .value = value};
}

/* Adds a text unless it is empty. */
static void add_some(line *l, const char *name, const char *value) {
    add_text(l, name, value[0] != '\0' ? value : NULL);
}

static void add_int(line *l, const char *name, int64_t v) {
    char *text = l->numbers[l->n];
    snprintf(text, sizeof l->numbers[0], "%" PRId64, v);
    l->fields[l->n++] = (log_field){.name = name, .value = text, .is_number = true};
}

static void add_ms(line *l, const char *name, int64_t us) {
    char *text = l->numbers[l->n];
    us = us > 0 ? us : 0;
    snprintf(text, sizeof l->numbers[0], "%" PRId64 ".%03d", us / 1000, (int)(us % 1000));
    l->fields[l->n++] = (log_field){.name = name, .value = text, .is_number = true};
}

/* How the choices ended: "stop", "stop,length". */
static void name_finishes(unsigned finishes, char *out, size_t size) {
    static const char *const names[] = {[QUIRE_FINISH_STOP] = "stop",
                                        [QUIRE_FINISH_LENGTH] = "length",
                                        [QUIRE_FINISH_CANCELLED] = "abort",
                                        [QUIRE_FINISH_ERROR] = "error"};
    size_t n = 0;
    out[0] = '\0';
    for (unsigned f = QUIRE_FINISH_STOP; f <= QUIRE_FINISH_ERROR; f++) {
        if ((finishes >> f & 1) != 0) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "," : "", names[f]);
        }
    }
}

int32_t request_status(const request_record *r) {
    return r->status > 0 ? r->status : STATUS_CLIENT_LEFT;
}

static log_level level_of(const request_record *r) {
    if (r->is_probe && r->is_expected) {
        return LOG_DEBUG;
    }
    if (r->error_status >= 500) {
        return r->error_status == 503 ? LOG_WARN : LOG_ERROR;
    }
    return r->is_probe && r->error_status == 0 ? LOG_DEBUG : LOG_INFO;
}

void request_log(const request_record *r, const char *tenant) {
    char finishes[40];
    line l = {.n = 0};
    add_text(&l, "id", r->id);
    add_text(&l, "client", r->client);
    add_text(&l, "tenant", tenant);
    add_text(&l, "method", r->method);
    add_text(&l, "endpoint", r->endpoint);
    add_some(&l, "path", r->path);
    add_int(&l, "status", request_status(r));
    if (r->is_generation) {
        add_int(&l, "prompt_tokens", r->prompt_tokens);
        add_int(&l, "completion_tokens", r->completion_tokens);
        add_int(&l, "cached_tokens", r->cached_tokens);
    }
    if (r->first_token_us > 0) {
        add_ms(&l, "queue_ms", r->queue_us);
        add_ms(&l, "first_token_ms", r->first_token_us - r->begun_us);
    }
    add_ms(&l, "total_ms", clock_us() - r->begun_us);
    if (r->is_generation) {
        name_finishes(r->finishes, finishes, sizeof finishes);
        add_text(&l, "finish_reason", finishes);
    }
    add_some(&l, "param", r->param);
    add_some(&l, "error", r->error);
    log_event(level_of(r), "request", l.fields, l.n);
}

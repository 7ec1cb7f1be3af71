#include "server/request_log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define STATUS_CLIENT_LEFT 499

static bool request_is_valid_id(str id) {
    for (size_t i = 0; i < id.n; i++) {
        if (id.p[i] <= ' ' || id.p[i] > '~') {
            return false;
        }
    }
    return id.n > 0 && id.n <= REQUEST_ID_BYTES;
}

void request_record_open(request_record *r, str id, loop *l) {
    *r = (request_record){.is_open = true, .begun_us = clock_us(), .number = loop_new_id(l)};
    if (request_is_valid_id(id)) {
        memcpy(r->id, id.p, id.n);
    } else {
        snprintf(r->id, sizeof r->id, "req-%016" PRIx64, r->number);
    }
}

void request_record_token(request_record *r, int64_t queue_us) {
    r->first_token_us = r->first_token_us == 0 ? clock_us() : r->first_token_us;
    r->queue_us = queue_us > r->queue_us ? queue_us : r->queue_us;
}

/* Copies an error's message without the text between its first and last double quotes,
 * which may be part of a field's value. */
static void request_copy_reason(const char *message, char *out, size_t size) {
    const char *first = strchr(message, '"'), *last = strrchr(message, '"');
    int n = first == NULL ? (int)strlen(message) : (int)(first - message);
    snprintf(out, size, "%.*s%s%s", n, message, first == NULL ? "" : "\"..",
             first == NULL  ? ""
             : last > first ? last
                            : "");
}

void request_record_fail(request_record *r, const api_error *e) {
    assert(e->status >= 400 && e->message != NULL);
    r->finishes = 1u << QUIRE_FINISH_ERROR;
    r->error_status = e->status;
    snprintf(r->param, sizeof r->param, "%s", e->param != NULL ? e->param : "");
    if (r->param[0] != '\0') {
        request_copy_reason(e->message, r->error, sizeof r->error);
    } else {
        snprintf(r->error, sizeof r->error, "%s", e->message);
    }
}

/* ---- the log line ---- */

#define MAX_FIELDS 20

typedef struct line {
    log_field fields[MAX_FIELDS];
    char numbers[MAX_FIELDS][24];
    size_t n;
} line;

static void log_add_text(line *l, const char *name, const char *value) {
    l->fields[l->n++] = (log_field){.name = name, .value = value};
}

/* Adds a member to the line, unless its value is empty. */
static void log_add_some(line *l, const char *name, const char *value) {
    log_add_text(l, name, value[0] != '\0' ? value : NULL);
}

static void log_add_int(line *l, const char *name, int64_t v) {
    char *text = l->numbers[l->n];
    snprintf(text, sizeof l->numbers[0], "%" PRId64, v);
    l->fields[l->n++] = (log_field){.name = name, .value = text, .is_number = true};
}

static void log_add_ms(line *l, const char *name, int64_t us) {
    char *text = l->numbers[l->n];
    us = us > 0 ? us : 0;
    snprintf(text, sizeof l->numbers[0], "%" PRId64 ".%03d", us / 1000, (int)(us % 1000));
    l->fields[l->n++] = (log_field){.name = name, .value = text, .is_number = true};
}

/* Writes how the choices ended: "stop", "stop,length". */
static void request_name_finishes(unsigned finishes, char *out, size_t size) {
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

/* The status that was sent; 499, as in nginx, if the client left first. */
static int32_t request_status(const request_record *r) {
    return r->status > 0 ? r->status : STATUS_CLIENT_LEFT;
}

static log_level request_level_of(const request_record *r) {
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
    log_add_text(&l, "id", r->id);
    log_add_text(&l, "response", r->response);
    log_add_text(&l, "client", r->client);
    log_add_text(&l, "tenant", tenant);
    log_add_text(&l, "method", r->method);
    log_add_text(&l, "endpoint", r->endpoint);
    log_add_some(&l, "path", r->path);
    log_add_some(&l, "adapter", r->adapter);
    log_add_int(&l, "status", request_status(r));
    if (r->is_generation) {
        log_add_int(&l, "prompt_tokens", r->prompt_tokens);
        log_add_int(&l, "completion_tokens", r->completion_tokens);
        log_add_int(&l, "cached_tokens", r->cached_tokens);
    }
    if (r->has_waited) {
        log_add_ms(&l, "model_ms", r->model_wait_us);
    }
    if (r->first_token_us > 0) {
        log_add_ms(&l, "queue_ms", r->queue_us);
        log_add_ms(&l, "first_token_ms", r->first_token_us - r->begun_us);
    }
    log_add_ms(&l, "total_ms", clock_us() - r->begun_us);
    if (r->is_generation) {
        request_name_finishes(r->finishes, finishes, sizeof finishes);
        log_add_text(&l, "finish_reason", finishes);
    }
    log_add_some(&l, "param", r->param);
    log_add_some(&l, "error", r->error);
    log_event(request_level_of(r), r->response != NULL ? "background" : "request", l.fields, l.n);
}

/* ---- statistics ---- */

const double http_fine_bounds[HTTP_N_SECONDS] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
                                                 2.5,  3,     3.5,  4,     4.5, 5,    7.5, 10,   30, 60};
const double http_coarse_bounds[HTTP_N_COARSE] = {0.1, 0.5, 1};

quire_err http_stats_open(http_stats **out) {
    http_stats *s = mem_new(1, sizeof *s);
    *out = s;
    TRY(mem_check(s));
    pthread_mutex_init(&s->lock, NULL);
    return QUIRE_OK;
}

void http_stats_close(http_stats *s) {
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; i < s->n_tenants; i++) {
        mem_free(s->tenants[i].name);
    }
    mem_free(s->tenants);
    mem_free(s->rows);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* ---- counting ---- */

static int32_t http_stats_bucket_of(const double *bounds, int32_t n, double v) {
    int32_t i = 0;
    while (i < n && v > bounds[i]) {
        i++;
    }
    return i;
}

/* Finds or adds the row of a route, method and status class; NULL: out of memory. */
static http_row *http_stats_row_of(http_stats *s, const char *handler, const char *method,
                                   int32_t status_class) {
    for (size_t i = 0; i < s->n_rows; i++) {
        http_row *r = &s->rows[i];
        if (r->status_class == status_class && strcmp(r->handler, handler) == 0 &&
            strcmp(r->method, method) == 0) {
            return r;
        }
    }
    if (mem_grow(&s->rows, &s->cap_rows, s->n_rows + 1, sizeof *s->rows) != QUIRE_OK) {
        return NULL;
    }
    s->rows[s->n_rows] = (http_row){.handler = handler, .method = method, .status_class = status_class};
    return &s->rows[s->n_rows++];
}

static tenant_row *http_stats_tenant_of(http_stats *s, const char *name) {
    for (size_t i = 0; i < s->n_tenants; i++) {
        if (strcmp(s->tenants[i].name, name) == 0) {
            return &s->tenants[i];
        }
    }
    char *own = mem_dup(name, strlen(name));
    if (own == NULL ||
        mem_grow(&s->tenants, &s->cap_tenants, s->n_tenants + 1, sizeof *s->tenants) != QUIRE_OK) {
        mem_free(own);
        return NULL;
    }
    s->tenants[s->n_tenants] = (tenant_row){.name = own};
    return &s->tenants[s->n_tenants++];
}

static void http_stats_add_buckets(int64_t *to, const int64_t *from, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static quire_err http_stats_add_row(http_stats *to, const http_row *from) {
    http_row *row = http_stats_row_of(to, from->handler, from->method, from->status_class);
    TRY(mem_check(row));
    row->n += from->n;
    row->request_bytes += from->request_bytes;
    row->response_bytes += from->response_bytes;
    row->seconds += from->seconds;
    http_stats_add_buckets(row->coarse, from->coarse, HTTP_N_COARSE + 1);
    return QUIRE_OK;
}

static quire_err http_stats_add_tenant(http_stats *to, const char *name, const tenant_row *from) {
    tenant_row *t = http_stats_tenant_of(to, name);
    TRY(mem_check(t));
    http_stats_add_buckets(t->n, from->n, sizeof t->n / sizeof *t->n);
    t->prompt_tokens += from->prompt_tokens;
    t->cached_tokens += from->cached_tokens;
    t->completion_tokens += from->completion_tokens;
    return QUIRE_OK;
}

void http_stats_note(http_stats *s, const request_record *r, const char *tenant) {
    int32_t status = request_status(r);
    assert(status > 0 && status < HTTP_STATUS_END);
    double seconds = (double)(clock_us() - r->begun_us) * 1e-6;
    http_row row = {.handler = r->endpoint != NULL ? r->endpoint : "none",
                    .method = r->method != NULL ? r->method : "none",
                    .status_class = status / 100,
                    .n = 1,
                    .request_bytes = (int64_t)r->request_bytes,
                    .response_bytes = (int64_t)r->response_bytes,
                    .seconds = seconds};
    tenant_row t = {.prompt_tokens = r->prompt_tokens,
                    .cached_tokens = r->cached_tokens,
                    .completion_tokens = r->completion_tokens};
    row.coarse[http_stats_bucket_of(http_coarse_bounds, HTTP_N_COARSE, seconds)] = 1;
    t.n[status / 100] = 1;
    pthread_mutex_lock(&s->lock);
    s->statuses[status]++;
    s->fine[http_stats_bucket_of(http_fine_bounds, HTTP_N_SECONDS, seconds)]++;
    s->seconds += seconds;
    (void)http_stats_add_row(s, &row);
    if (tenant != NULL) {
        (void)http_stats_add_tenant(s, tenant, &t);
    }
    pthread_mutex_unlock(&s->lock);
}

void http_stats_note_tokens(http_stats *s, const request_record *r, const char *tenant) {
    const tenant_row t = {.prompt_tokens = r->prompt_tokens,
                          .cached_tokens = r->cached_tokens,
                          .completion_tokens = r->completion_tokens};
    if (tenant != NULL) {
        pthread_mutex_lock(&s->lock);
        (void)http_stats_add_tenant(s, tenant, &t);
        pthread_mutex_unlock(&s->lock);
    }
}

quire_err http_stats_add(http_stats *to, http_stats *from) {
    quire_err e = QUIRE_OK;
    pthread_mutex_lock(&from->lock);
    http_stats_add_buckets(to->statuses, from->statuses, HTTP_STATUS_END);
    http_stats_add_buckets(to->fine, from->fine, HTTP_N_SECONDS + 1);
    to->seconds += from->seconds;
    for (size_t i = 0; i < from->n_rows && e == QUIRE_OK; i++) {
        e = http_stats_add_row(to, &from->rows[i]);
    }
    for (size_t i = 0; i < from->n_tenants && e == QUIRE_OK; i++) {
        e = http_stats_add_tenant(to, from->tenants[i].name, &from->tenants[i]);
    }
    pthread_mutex_unlock(&from->lock);
    return e;
}

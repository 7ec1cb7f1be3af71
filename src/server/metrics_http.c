/* The metrics of HTTP requests (http_stats.h), written. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http_stats.h"
#include "server/metrics_text.h"

/* ---- by route: the names of vLLM's server ---- */

static int compare_rows(const void *a, const void *b) {
    const http_row *x = a, *y = b;
    int by_handler = strcmp(x->handler, y->handler), by_method = strcmp(x->method, y->method);
    return by_handler != 0 ? by_handler : by_method != 0 ? by_method : x->status_class - y->status_class;
}

/* How many rows from `from` on, which are sorted, have its handler, and (by_method) its
 * method. */
static size_t group_of(const http_stats *s, size_t from, bool by_method) {
    size_t n = 1;
    const http_row *r = &s->rows[from];
    while (from + n < s->n_rows && strcmp(r[n].handler, r->handler) == 0 &&
           (!by_method || strcmp(r[n].method, r->method) == 0)) {
        n++;
    }
    return n;
}

static quire_err write_requests(const http_stats *s, strbuf *out) {
    TRY(metrics_describe(out, "http_requests_total", "counter",
                         "HTTP requests answered, by route, method and class of status."));
    for (size_t i = 0; i < s->n_rows; i++) {
        const http_row *r = &s->rows[i];
        TRY(strbuf_addf(out,
                        "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"} %" PRId64 "\n",
                        r->handler, r->method, (int)r->status_class, r->n));
    }
    return QUIRE_OK;
}

static quire_err write_sizes(const http_stats *s, const char *name, const char *help, bool of_responses,
                             strbuf *out) {
    TRY(metrics_describe(out, name, "summary", help));
    for (size_t i = 0, n; i < s->n_rows; i += n) {
        int64_t count = 0, bytes = 0;
        n = group_of(s, i, false);
        for (size_t k = i; k < i + n; k++) {
            count += s->rows[k].n;
            bytes += of_responses ? s->rows[k].response_bytes : s->rows[k].request_bytes;
        }
        TRY(strbuf_addf(out, "%s_count{handler=\"%s\"} %" PRId64 "\n%s_sum{handler=\"%s\"} %" PRId64 "\n",
                        name, s->rows[i].handler, count, name, s->rows[i].handler, bytes));
    }
    return QUIRE_OK;
}

/* Buckets, sum and count of a histogram. labels: with a comma behind, or "". */
static quire_err write_buckets(strbuf *out, const char *name, const char *labels, const double *bounds,
                               int32_t n, const int64_t *buckets, double sum) {
    int64_t up_to = 0;
    for (int32_t i = 0; i <= n; i++) {
        up_to += buckets[i];
        TRY(strbuf_addf(out, "%s_bucket{%sle=\"", name, labels));
        TRY(i < n ? metrics_bound(out, bounds[i]) : strbuf_add_str(out, "+Inf"));
        TRY(strbuf_addf(out, "\"} %" PRId64 "\n", up_to));
    }
    int n_labels = labels[0] != '\0' ? (int)strlen(labels) - 1 : 0;
    const char *open = n_labels > 0 ? "{" : "", *close = n_labels > 0 ? "}" : "";
    TRY(strbuf_addf(out, "%s_sum%s%.*s%s %.15g\n", name, open, n_labels, labels, close, sum));
    return strbuf_addf(out, "%s_count%s%.*s%s %" PRId64 "\n", name, open, n_labels, labels, close, up_to);
}

static quire_err write_durations(const http_stats *s, strbuf *out) {
    static const char name[] = "http_request_duration_seconds";
    strbuf labels = {0};
    quire_err e = metrics_describe(
        out, name, "histogram", "Head of an HTTP request to the end of its response, by route and method.");
    for (size_t i = 0, n; i < s->n_rows && e == QUIRE_OK; i += n) {
        int64_t buckets[HTTP_N_COARSE + 1] = {0};
        double seconds = 0.0;
        n = group_of(s, i, true);
        for (size_t k = i; k < i + n; k++) {
            for (int32_t b = 0; b <= HTTP_N_COARSE; b++) {
                buckets[b] += s->rows[k].coarse[b];
            }
            seconds += s->rows[k].seconds;
        }
        strbuf_clear(&labels);
        e = strbuf_addf(&labels, "handler=\"%s\",method=\"%s\",", s->rows[i].handler, s->rows[i].method);
        e = e == QUIRE_OK
                ? write_buckets(out, name, labels.p, http_coarse_bounds, HTTP_N_COARSE, buckets, seconds)
                : e;
    }
    strbuf_deinit(&labels);
    TRY(e);
    TRY(metrics_describe(
        out, "http_request_duration_highr_seconds", "histogram",
        "Head of an HTTP request to the end of its response, of all routes, in more buckets."));
    return write_buckets(out, "http_request_duration_highr_seconds", "", http_fine_bounds, HTTP_N_SECONDS,
                         s->fine, s->seconds);
}

/* ---- our own ---- */

static quire_err write_statuses(const http_stats *s, strbuf *out) {
    int64_t n_errors = 0;
    TRY(metrics_describe(out, "quire_http_requests_total", "counter",
                         "HTTP requests answered, by status; 499: the client left before."));
    for (int32_t i = 0; i < HTTP_STATUS_END; i++) {
        if (s->statuses[i] > 0) {
            n_errors += i >= 400 ? s->statuses[i] : 0;
            TRY(strbuf_addf(out, "quire_http_requests_total{status=\"%d\"} %" PRId64 "\n", (int)i,
                            s->statuses[i]));
        }
    }
    return metrics_int(out, "quire_http_errors_total", "counter",
                       "HTTP requests answered with a status of 400 or more.", "", n_errors);
}

static quire_err write_tenant(strbuf *out, const char *name, const tenant_row *t, const char *more,
                              int64_t v) {
    TRY(strbuf_addf(out, "%s{", name));
    TRY(strbuf_add_str(out, more));
    TRY(strbuf_add_str(out, "tenant=\""));
    TRY(metrics_escape(out, t->name));
    return strbuf_addf(out, "\"} %" PRId64 "\n", v);
}

static quire_err write_tenant_requests(const http_stats *s, strbuf *out) {
    static const char name[] = "quire_tenant_requests_total";
    TRY(metrics_describe(out, name, "counter", "HTTP requests of a tenant, by class of status."));
    for (size_t i = 0; i < s->n_tenants; i++) {
        const tenant_row *t = &s->tenants[i];
        for (int32_t k = 0; k < (int32_t)(sizeof t->n / sizeof *t->n); k++) {
            char more[24];
            snprintf(more, sizeof more, "status=\"%dxx\",", (int)k);
            TRY(t->n[k] > 0 ? write_tenant(out, name, t, more, t->n[k]) : QUIRE_OK);
        }
    }
    return QUIRE_OK;
}

static quire_err write_tenants(const http_stats *s, strbuf *out) {
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"quire_tenant_prompt_tokens_total", "Prompt tokens of a tenant's requests that were answered.",
         offsetof(tenant_row, prompt_tokens)},
        {"quire_tenant_cached_tokens_total",
         "Prompt tokens of a tenant's requests that were found in the prefix cache.",
         offsetof(tenant_row, cached_tokens)},
        {"quire_tenant_completion_tokens_total", "Tokens of the answers to a tenant's requests.",
         offsetof(tenant_row, completion_tokens)},
    };
    TRY(write_tenant_requests(s, out));
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        TRY(metrics_describe(out, rows[k].name, "counter", rows[k].help));
        for (size_t i = 0; i < s->n_tenants; i++) {
            const tenant_row *t = &s->tenants[i];
            TRY(write_tenant(out, rows[k].name, t, "",
                             *(const int64_t *)(const void *)((const char *)t + rows[k].offset)));
        }
    }
    return QUIRE_OK;
}

quire_err http_stats_write(http_stats *s, bool shows_tenants, strbuf *out) {
    if (s->n_rows > 0) {
        qsort(s->rows, s->n_rows, sizeof *s->rows, compare_rows);
    }
    TRY(write_requests(s, out));
    TRY(write_sizes(s, "http_request_size_bytes", "Bytes of the bodies of HTTP requests, by route.", false,
                    out));
    TRY(write_sizes(s, "http_response_size_bytes", "Bytes of the bodies of HTTP responses, by route.", true,
                    out));
    TRY(write_durations(s, out));
    TRY(write_statuses(s, out));
    return shows_tenants ? write_tenants(s, out) : QUIRE_OK;
}

#include "server/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/utf8.h"

/* ---- the lines of one metric ---- */

quire_err metrics_describe(strbuf *out, const char *name, const char *type, const char *help) {
    assert(name[0] != '\0' && help[0] != '\0');
    return strbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

quire_err metrics_float(strbuf *out, const char *name, const char *type, const char *help, double v) {
    TRY(metrics_describe(out, name, type, help));
    return strbuf_addf(out, "%s %.15g\n", name, v);
}

quire_err metrics_escape(strbuf *out, const char *text) {
    strbuf clean = {0};
    quire_err e = utf8_add_lossy(&clean, str_of(text));
    for (size_t i = 0; i < clean.n && e == QUIRE_OK; i++) {
        const char *escaped = clean.p[i] == '\\'   ? "\\\\"
                              : clean.p[i] == '"'  ? "\\\""
                              : clean.p[i] == '\n' ? "\\n"
                                                   : NULL;
        e = escaped != NULL ? strbuf_add_str(out, escaped) : strbuf_add_char(out, clean.p[i]);
    }
    strbuf_deinit(&clean);
    return e;
}

/* Appends a bucket's bound as Prometheus' client libraries write it: "0.3", "1.0". */
static quire_err metrics_bound(strbuf *out, double v) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", v);
    TRY(strbuf_add_str(out, text));
    return strpbrk(text, ".e") == NULL ? strbuf_add_str(out, ".0") : QUIRE_OK;
}

/* Appends buckets, sum and count of a histogram. labels: `a="b",c="d"`, or "". */
static quire_err metrics_write_buckets(strbuf *out, const char *name, const char *labels,
                                       const double *bounds, int32_t n, const int64_t *buckets, double sum) {
    int64_t up_to = 0;
    const char *comma = labels[0] != '\0' ? "," : "", *open = comma[0] != '\0' ? "{" : "",
               *close = comma[0] != '\0' ? "}" : "";
    for (int32_t i = 0; i <= n; i++) {
        up_to += buckets[i];
        TRY(strbuf_addf(out, "%s_bucket{%s%sle=\"", name, labels, comma));
        TRY(i < n ? metrics_bound(out, bounds[i]) : strbuf_add_str(out, "+Inf"));
        TRY(strbuf_addf(out, "\"} %" PRId64 "\n", up_to));
    }
    TRY(strbuf_addf(out, "%s_sum%s%s%s %.15g\n", name, open, labels, close, sum));
    return strbuf_addf(out, "%s_count%s%s%s %" PRId64 "\n", name, open, labels, close, up_to);
}

quire_err metrics_histogram(strbuf *out, const char *name, const char *help, const char *labels,
                            const quire_histogram *h, quire_histogram_kind kind) {
    int32_t n;
    const int64_t *bounds = quire_histogram_bounds(kind, &n);
    double unit = quire_histogram_is_time(kind) ? 1e6 : 1.0, upper[QUIRE_HISTOGRAM_BUCKETS];
    assert(labels[0] != '\0' && n < QUIRE_HISTOGRAM_BUCKETS);
    for (int32_t i = 0; i < n; i++) {
        upper[i] = (double)bounds[i] / unit;
    }
    TRY(metrics_describe(out, name, "histogram", help));
    return metrics_write_buckets(out, name, labels, upper, n, h->buckets, (double)h->sum / unit);
}

/* ---- HTTP requests by route, under the names of vLLM's server ---- */

static int metrics_compare_rows(const void *a, const void *b) {
    const http_row *x = a, *y = b;
    int by_handler = strcmp(x->handler, y->handler), by_method = strcmp(x->method, y->method);
    return by_handler != 0 ? by_handler : by_method != 0 ? by_method : x->status_class - y->status_class;
}

/* Number of sorted rows from index `from` on with the same handler and, if by_method, the
 * same method. */
static size_t metrics_group_of(const http_stats *s, size_t from, bool by_method) {
    size_t n = 1;
    const http_row *r = &s->rows[from];
    while (from + n < s->n_rows && strcmp(r[n].handler, r->handler) == 0 &&
           (!by_method || strcmp(r[n].method, r->method) == 0)) {
        n++;
    }
    return n;
}

static quire_err metrics_write_requests(const http_stats *s, strbuf *out) {
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

static quire_err metrics_write_sizes(const http_stats *s, const char *name, const char *help,
                                     bool of_responses, strbuf *out) {
    TRY(metrics_describe(out, name, "summary", help));
    for (size_t i = 0, n; i < s->n_rows; i += n) {
        int64_t count = 0, bytes = 0;
        n = metrics_group_of(s, i, false);
        for (size_t k = i; k < i + n; k++) {
            count += s->rows[k].n;
            bytes += of_responses ? s->rows[k].response_bytes : s->rows[k].request_bytes;
        }
        TRY(strbuf_addf(out, "%s_count{handler=\"%s\"} %" PRId64 "\n%s_sum{handler=\"%s\"} %" PRId64 "\n",
                        name, s->rows[i].handler, count, name, s->rows[i].handler, bytes));
    }
    return QUIRE_OK;
}

/* Writes the histogram of the n rows of one route and method. */
static quire_err metrics_write_duration(const char *name, const http_row *rows, size_t n, strbuf *out) {
    int64_t buckets[HTTP_N_COARSE + 1] = {0};
    double seconds = 0.0;
    char labels[200];
    for (size_t k = 0; k < n; k++) {
        for (int32_t b = 0; b <= HTTP_N_COARSE; b++) {
            buckets[b] += rows[k].coarse[b];
        }
        seconds += rows[k].seconds;
    }
    snprintf(labels, sizeof labels, "handler=\"%s\",method=\"%s\"", rows->handler, rows->method);
    return metrics_write_buckets(out, name, labels, http_coarse_bounds, HTTP_N_COARSE, buckets, seconds);
}

static quire_err metrics_write_durations(const http_stats *s, strbuf *out) {
    static const char name[] = "http_request_duration_seconds",
                      finer[] = "http_request_duration_highr_seconds";
    TRY(metrics_describe(
        out, name, "histogram",
        "Time from the header of an HTTP request to the end of its response, by route and method."));
    for (size_t i = 0, n; i < s->n_rows; i += n) {
        n = metrics_group_of(s, i, true);
        TRY(metrics_write_duration(name, &s->rows[i], n, out));
    }
    TRY(metrics_describe(out, finer, "histogram",
                         "Time from the header of an HTTP request to the end of its response, over all "
                         "routes, in finer buckets."));
    return metrics_write_buckets(out, finer, "", http_fine_bounds, HTTP_N_SECONDS, s->fine, s->seconds);
}

/* ---- metrics of HTTP requests that vLLM lacks ---- */

static quire_err metrics_write_statuses(const http_stats *s, strbuf *out) {
    int64_t n_errors = 0;
    TRY(metrics_describe(out, "quire_http_requests_total", "counter",
                         "HTTP requests answered, by status; 499: the client left before the response."));
    for (int32_t i = 0; i < HTTP_STATUS_END; i++) {
        if (s->statuses[i] > 0) {
            n_errors += i >= 400 ? s->statuses[i] : 0;
            TRY(strbuf_addf(out, "quire_http_requests_total{status=\"%d\"} %" PRId64 "\n", (int)i,
                            s->statuses[i]));
        }
    }
    return metrics_float(out, "quire_http_errors_total", "counter",
                         "HTTP requests answered with a status of 400 or more.", (double)n_errors);
}

static quire_err metrics_write_tenant(strbuf *out, const char *name, const tenant_row *t, const char *more,
                                      int64_t v) {
    TRY(strbuf_addf(out, "%s{", name));
    TRY(strbuf_add_str(out, more));
    TRY(strbuf_add_str(out, "tenant=\""));
    TRY(metrics_escape(out, t->name));
    return strbuf_addf(out, "\"} %" PRId64 "\n", v);
}

static quire_err metrics_write_tenant_requests(const http_stats *s, strbuf *out) {
    static const char name[] = "quire_tenant_requests_total";
    TRY(metrics_describe(out, name, "counter", "HTTP requests by tenant and class of status."));
    for (size_t i = 0; i < s->n_tenants; i++) {
        const tenant_row *t = &s->tenants[i];
        for (int32_t k = 0; k < (int32_t)(sizeof t->n / sizeof *t->n); k++) {
            char more[24];
            snprintf(more, sizeof more, "status=\"%dxx\",", (int)k);
            if (t->n[k] > 0) {
                TRY(metrics_write_tenant(out, name, t, more, t->n[k]));
            }
        }
    }
    return QUIRE_OK;
}

static quire_err metrics_write_tenants(const http_stats *s, strbuf *out) {
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"quire_tenant_prompt_tokens_total", "Prompt tokens of answered requests, by tenant.",
         offsetof(tenant_row, prompt_tokens)},
        {"quire_tenant_cached_tokens_total", "Prompt tokens found in the prefix cache, by tenant.",
         offsetof(tenant_row, cached_tokens)},
        {"quire_tenant_completion_tokens_total", "Generated tokens, by tenant.",
         offsetof(tenant_row, completion_tokens)},
    };
    TRY(metrics_write_tenant_requests(s, out));
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        TRY(metrics_describe(out, rows[k].name, "counter", rows[k].help));
        for (size_t i = 0; i < s->n_tenants; i++) {
            const tenant_row *t = &s->tenants[i];
            TRY(metrics_write_tenant(out, rows[k].name, t, "",
                                     *(const int64_t *)(const void *)((const char *)t + rows[k].offset)));
        }
    }
    return QUIRE_OK;
}

quire_err http_stats_write(http_stats *s, bool shows_tenants, strbuf *out) {
    if (s->n_rows > 0) {
        qsort(s->rows, s->n_rows, sizeof *s->rows, metrics_compare_rows);
    }
    TRY(metrics_write_requests(s, out));
    TRY(metrics_write_sizes(s, "http_request_size_bytes", "Size of HTTP request bodies in bytes, by route.",
                            false, out));
    TRY(metrics_write_sizes(s, "http_response_size_bytes", "Size of HTTP response bodies in bytes, by route.",
                            true, out));
    TRY(metrics_write_durations(s, out));
    TRY(metrics_write_statuses(s, out));
    return shows_tenants ? metrics_write_tenants(s, out) : QUIRE_OK;
}

/* ---- the server and the process ---- */

/* A metric with one value. */
typedef struct metric_row {
    const char *name, *type, *help;
    double v; /* negative: unknown, and not written */
} metric_row;

static quire_err metrics_write_rows(const metric_row *rows, size_t n, strbuf *out) {
    for (size_t i = 0; i < n; i++) {
        if (rows[i].v >= 0) {
            TRY(metrics_float(out, rows[i].name, rows[i].type, rows[i].help, rows[i].v));
        }
    }
    return QUIRE_OK;
}

/* Appends the metrics that Prometheus' client libraries report for every process. */
static quire_err metrics_write_process(strbuf *out) {
    process_numbers p = process_read();
    const metric_row rows[] = {
        {"process_cpu_seconds_total", "counter", "User and system CPU time of the process.", p.cpu_s},
        {"process_start_time_seconds", "gauge", "Start time of the process, in Unix time.", p.started_s},
        {"process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", (double)p.virtual_bytes},
        {"process_resident_memory_bytes", "gauge", "Resident memory of the process.",
         (double)p.resident_bytes},
        {"process_open_fds", "gauge", "Open file descriptors.", (double)p.n_files},
        {"process_max_fds", "gauge", "Largest number of open file descriptors allowed.", (double)p.max_files},
    };
    return metrics_write_rows(rows, sizeof rows / sizeof *rows, out);
}

static quire_err metrics_write_http(const server *s, bool shows_tenants, strbuf *out) {
    http_stats *all = NULL;
    TRY(http_stats_open(&all));
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; i < s->n_loops && e == QUIRE_OK; i++) {
        e = http_stats_add(all, s->loops[i].http);
    }
    if (e == QUIRE_OK) {
        e = http_stats_write(all, shows_tenants, out);
    }
    http_stats_close(all);
    return e;
}

/* The sum of a counter over all loops. */
static double metrics_sum(const server *s, size_t offset) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load((const atomic_llong *)(const void *)((const char *)&s->loops[i] + offset));
    }
    return n > 0 ? (double)n : 0.0;
}

static quire_err metrics_write_connections(server *s, strbuf *out) {
#define SUM(counter) metrics_sum(s, offsetof(loop, counter))
    body_room_counts bodies = body_room_count(&s->bodies);
    const metric_row rows[] = {
        {"quire_http_connections", "gauge", "Open HTTP connections.", SUM(n_open)},
        {"quire_http_disconnects_total", "counter",
         "HTTP clients that left before their response was complete.", SUM(n_disconnects)},
        {"quire_http_slow_readers_total", "counter",
         "HTTP connections closed because the client did not read.", SUM(n_slow_readers)},
        {"quire_http_receive_turns_total", "counter",
         "Times that a busy HTTP connection waited for its turn.", SUM(turns.n_waits)},
        {"quire_http_unread_bytes", "gauge", "Response bytes that clients have not read yet.", SUM(n_unread)},
        {"quire_http_body_bytes", "gauge", "Memory held by request bodies over 64 KB, in bytes.",
         (double)bodies.n_bytes},
        {"quire_http_bodies_waiting", "gauge", "Request bodies waiting for others to free memory.",
         (double)bodies.n_waiting},
        {"quire_http_slow_bodies_total", "counter", "Request bodies refused because they came too slowly.",
         SUM(n_slow_bodies)},
        {"quire_uptime_seconds", "gauge", "Time since the server started to serve.",
         (double)(clock_unix_s() - s->started_s)},
    };
#undef SUM
    return metrics_write_rows(rows, sizeof rows / sizeof *rows, out);
}

quire_err metrics_write_server(server *s, bool shows_tenants, strbuf *out) {
    TRY(metrics_write_http(s, shows_tenants, out));
    TRY(metrics_write_connections(s, out));
    return metrics_write_process(out);
}

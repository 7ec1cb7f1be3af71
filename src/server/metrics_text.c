#include "server/metrics_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"

quire_err metrics_describe(strbuf *out, const char *name, const char *type, const char *help) {
    return strbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

quire_err metrics_int(strbuf *out, const char *name, const char *type, const char *help, const char *labels,
                      int64_t v) {
    TRY(metrics_describe(out, name, type, help));
    return strbuf_addf(out, "%s%s %" PRId64 "\n", name, labels, v);
}

quire_err metrics_float(strbuf *out, const char *name, const char *type, const char *help, const char *labels,
                        double v) {
    TRY(metrics_describe(out, name, type, help));
    return strbuf_addf(out, "%s%s %.15g\n", name, labels, v);
}

quire_err metrics_escape(strbuf *out, const char *text) {
    strbuf clean = {0};
    quire_err e = utf8_add_lossy(&clean, str_of(text));
    for (size_t i = 0; i < clean.n && e == QUIRE_OK; i++) {
        char c = clean.p[i];
        bool is_escaped = c == '\\' || c == '"' || c == '\n';
        e = is_escaped ? strbuf_add_char(out, '\\') : QUIRE_OK;
        e = e == QUIRE_OK ? strbuf_add_char(out, c == '\n' ? 'n' : c) : e;
    }
    strbuf_deinit(&clean);
    return e;
}

quire_err metrics_bound(strbuf *out, double v) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", v);
    TRY(strbuf_add_str(out, text));
    return strpbrk(text, ".e") == NULL ? strbuf_add_str(out, ".0") : QUIRE_OK;
}

quire_err metrics_histogram(strbuf *out, const char *name, const char *help, const char *labels,
                            const quire_histogram *h, quire_histogram_kind kind) {
    int32_t n;
    const int64_t *bounds = quire_histogram_bounds(kind, &n);
    double unit = quire_histogram_is_time(kind) ? 1e6 : 1.0;
    int64_t up_to = 0;
    TRY(metrics_describe(out, name, "histogram", help));
    for (int32_t i = 0; i <= n; i++) {
        up_to += h->buckets[i];
        TRY(strbuf_addf(out, "%s_bucket{%s,le=\"", name, labels));
        TRY(i < n ? metrics_bound(out, (double)bounds[i] / unit) : strbuf_add_str(out, "+Inf"));
        TRY(strbuf_addf(out, "\"} %" PRId64 "\n", up_to));
    }
    TRY(strbuf_addf(out, "%s_sum{%s} %.15g\n", name, labels, (double)h->sum / unit));
    return strbuf_addf(out, "%s_count{%s} %" PRId64 "\n", name, labels, h->count);
}

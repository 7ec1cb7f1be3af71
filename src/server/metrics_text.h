/* Prometheus' text format: the lines of one metric. */
#ifndef SERVER_METRICS_TEXT_H
#define SERVER_METRICS_TEXT_H

#include "base/str.h"
#include "quire_stats.h"

/* Appends the two lines that say what a metric is. */
quire_err metrics_describe(strbuf *out, const char *name, const char *type, const char *help);
/* Appends a metric with one value; labels: "{...}" or "". */
quire_err metrics_int(strbuf *out, const char *name, const char *type, const char *help, const char *labels,
                      int64_t v);
quire_err metrics_float(strbuf *out, const char *name, const char *type, const char *help, const char *labels,
                        double v);
/* Appends text as a label's value: \, " and newlines escaped, what is not UTF-8
 * replaced. */
quire_err metrics_escape(strbuf *out, const char *text);
/* Appends a number as Prometheus' clients write the bounds of buckets: "0.3", "1.0". */
quire_err metrics_bound(strbuf *out, double v);
/* Appends a histogram of the statistics. labels: `a="b",c="d"`, not empty. */
quire_err metrics_histogram(strbuf *out, const char *name, const char *help, const char *labels,
                            const quire_histogram *h, quire_histogram_kind kind);

#endif

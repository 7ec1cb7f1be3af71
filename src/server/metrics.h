/* GET /metrics: numbers of the engine, the server and the process in Prometheus' text
 * format, under vLLM's names and quire's own. docs/metrics.md lists them. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/str.h"
#include "quire_stats.h"
#include "server/loop.h"
#include "server/request_log.h"

/* Appends all metrics to out; those with tenants' names only if shows_tenants.
 * QUIRE_NO_MEMORY: out has some of them. Any thread. */
quire_err metrics_write(server *s, bool shows_tenants, strbuf *out);
/* Appends the metrics of one engine. model: its name. Errors as metrics_write. */
quire_err metrics_write_engine(const quire_info *info, const quire_stats *st, const char *model, strbuf *out);

/* ---- metrics.c: what the server counts, and the lines of one metric ---- */

/* Append metrics: of server and process; of HTTP requests. Errors as metrics_write. */
quire_err metrics_write_server(server *s, bool shows_tenants, strbuf *out);
quire_err http_stats_write(http_stats *s, bool shows_tenants, strbuf *out);

/* Appends the HELP and TYPE lines of a metric. */
quire_err metrics_describe(strbuf *out, const char *name, const char *type, const char *help);
/* Appends a metric with one value and no labels. */
quire_err metrics_float(strbuf *out, const char *name, const char *type, const char *help, double v);
/* Appends text as a label's value: escapes \, " and newlines, and replaces invalid
 * UTF-8. */
quire_err metrics_escape(strbuf *out, const char *text);
/* Appends a histogram of quire_stats. labels: `a="b",c="d"`, not empty. */
quire_err metrics_histogram(strbuf *out, const char *name, const char *help, const char *labels,
                            const quire_histogram *h, quire_histogram_kind kind);

#endif

/* GET /metrics: the engine's, the server's and the process's numbers in Prometheus' text
 * format, under vLLM's names and quire's own. docs/metrics.md lists them. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/str.h"
#include "server/loop.h"

/* Appends all metrics to out; those that name tenants where shows_tenants. NO_MEMORY: out
 * holds a part of them. Any thread. */
quire_err metrics_write(server *s, bool shows_tenants, strbuf *out);

/* ---- metrics_engine.c ---- */
/* Appends what the engine counts. labels: `engine="0",model_name="..."`; model: the name
 * alone, escaped. */
quire_err metrics_write_engine(const quire_info *info, const quire_stats *st, const char *labels,
                               const char *model, strbuf *out);

#endif

/* GET /metrics: the engine's and the server's counters in Prometheus' text format, under vLLM's names and quire's own. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/str.h"
#include "server/loop.h"

/* Appends all metrics to out. NO_MEMORY: out holds a part of them. Any thread. */
quire_err metrics_write(const server *s, strbuf *out);

#endif

#include "server/metrics.h"

#include "base/clock.h"
#include "base/process.h"
#include "server/http_stats.h"
#include "server/metrics_text.h"

/* What the client libraries of Prometheus say of every process. */
static quire_err write_process(strbuf *out) {
    process_numbers p = process_read();
    const struct {
        const char *name, *type, *help;
        double v;
    } rows[] = {
        {"process_cpu_seconds_total", "counter", "User and system CPU time of the process.", p.cpu_s},
        {"process_start_time_seconds", "gauge", "Start of the process in unix time.", p.started_s},
        {"process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", (double)p.virtual_bytes},
        {"process_resident_memory_bytes", "gauge", "Resident memory of the process.",
         (double)p.resident_bytes},
        {"process_open_fds", "gauge", "Open file descriptors.", (double)p.n_files},
        {"process_max_fds", "gauge", "Most file descriptors that may be open.", (double)p.max_files},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TRY(rows[i].v >= 0 ? metrics_float(out, rows[i].name, rows[i].type, rows[i].help, "", rows[i].v)
                           : QUIRE_OK);
    }
    return QUIRE_OK;
}

static quire_err write_http(const server *s, bool shows_tenants, strbuf *out) {
    http_stats *all = NULL;
    quire_err e = http_stats_open(&all);
    for (int32_t i = 0; i < s->n_loops && e == QUIRE_OK; i++) {
        e = http_stats_add(all, s->loops[i].http);
    }
    e = e == QUIRE_OK ? http_stats_write(all, shows_tenants, out) : e;
    http_stats_close(all);
    return e;
}

static quire_err write_bodies(server *s, int64_t n_slow, strbuf *out) {
    body_room_counts n = body_room_count(&s->bodies);
    TRY(metrics_int(out, "quire_http_body_bytes", "gauge",
                    "Bytes of memory that request bodies over 64 KB hold.", "", (int64_t)n.n_bytes));
    TRY(metrics_int(out, "quire_http_bodies_waiting", "gauge",
                    "Request bodies that wait until others free their memory.", "", n.n_waiting));
    return metrics_int(out, "quire_http_slow_bodies_total", "counter",
                       "Request bodies refused since they came too slowly.", "", n_slow);
}

static quire_err write_connections(server *s, strbuf *out) {
    int64_t disconnects = 0, slow = 0, open = 0, turns = 0, slow_bodies = 0, unread = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        const loop *l = &s->loops[i];
        disconnects += atomic_load(&l->n_disconnects);
        slow += atomic_load(&l->n_slow_readers);
        open += atomic_load(&l->n_open);
        turns += atomic_load(&l->turns.n_waits);
        slow_bodies += atomic_load(&l->n_slow_bodies);
        unread += atomic_load(&l->n_unread);
    }
    TRY(metrics_int(out, "quire_http_connections", "gauge", "Open HTTP connections.", "", open));
    TRY(metrics_int(out, "quire_http_disconnects_total", "counter",
                    "HTTP clients that left before their response was complete.", "", disconnects));
    TRY(metrics_int(out, "quire_http_slow_readers_total", "counter",
                    "HTTP connections closed because the client did not read.", "", slow));
    TRY(metrics_int(out, "quire_http_receive_turns_total", "counter",
                    "Times that an HTTP connection which sends much waited for its turn.", "", turns));
    TRY(metrics_int(out, "quire_http_unread_bytes", "gauge",
                    "Bytes of responses that clients have not read yet.", "", unread));
    TRY(write_bodies(s, slow_bodies, out));
    return metrics_int(out, "quire_uptime_seconds", "gauge", "Time since the server began to serve.", "",
                       clock_unix_s() - s->started_s);
}

static quire_err write_engine(const server *s, const char *model, strbuf *out) {
    quire_stats st;
    strbuf labels = {0};
    quire_engine_stats(s->engine, &st);
    quire_err e = strbuf_add_str(&labels, "engine=\"0\",model_name=\"");
    e = e == QUIRE_OK ? strbuf_add_str(&labels, model) : e;
    e = e == QUIRE_OK ? strbuf_add_str(&labels, "\"") : e;
    e = e == QUIRE_OK ? metrics_write_engine(quire_engine_info(s->engine), &st, labels.p, model, out) : e;
    strbuf_deinit(&labels);
    return e;
}

quire_err metrics_write(server *s, bool shows_tenants, strbuf *out) {
    strbuf model = {0};
    quire_err e = metrics_escape(&model, s->model_name);
    e = e == QUIRE_OK ? write_engine(s, model.n > 0 ? model.p : "", out) : e;
    e = e == QUIRE_OK ? write_http(s, shows_tenants, out) : e;
    e = e == QUIRE_OK ? write_connections(s, out) : e;
    e = e == QUIRE_OK ? write_process(out) : e;
    strbuf_deinit(&model);
    return e;
}

/* Runs a loop: accepts connections, hands out the engine's events, shuts down. */

#include <assert.h>
#include <event2/util.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/body_jobs.h"
#include "server/conn_model.h"
#include "server/loop_order.h"
#include "server/response.h"
#include "server/responses.h"
#include "server/routes.h"
#include "server/watch.h"

#define RETRY_US      100000  /* after accept failed for lack of descriptors */
#define LOOK_S        2       /* between looks at what only the engine's counters show */
#define LAST_WORDS_US 1000000 /* for clients to read that their response was cut */

/* ---- accepting ---- */

static void loop_on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from,
                           int n_from, void *arg) {
    (void)listener;
    conn_open(arg, fd, from, (socklen_t)n_from);
}

/* Out of descriptors or memory: waits before the next accept instead of spinning on a
 * socket that stays readable. */
static void loop_on_accept_failed(struct evconnlistener *listener, void *arg) {
    loop *l = arg;
    evconnlistener_disable(listener);
    loop_set_timer(l->on_retry, RETRY_US);
}

static LOOP_CALLBACK(loop_on_retry) {
    loop *l = arg;
    if (l->listener != NULL) {
        evconnlistener_enable(l->listener);
    }
}

/* ---- the engines' events: one wake-up for all that a step produced ---- */

static LOOP_CALLBACK(loop_on_queue) {
    loop_model *p = arg;
    quire_event ev;
    while (quire_queue_next(p->queue, &ev)) {
        if (!body_job_event(&ev)) {
            response_event(&ev);
        }
    }
    response_flush_unsent(p->l);
    conn_relieve(p->l);
    loop_model_look(p);
}

/* ---- what the log says about the whole server: the first loop's ---- */

static bool loop_is_first(const loop *l) {
    return l == l->server->loops;
}

/* A line for each tier whose errors have become more. */
static void loop_log_tiers(server *s) {
    static const char *const names[3] = {"host", "file", "redis"};
    quire_stats st;
    quire_engine_stats(s->engine, &st);
    for (int i = 0; i < 3; i++) {
        int64_t n = st.tiers[i].errors - s->n_tier_errors[i];
        if (n > 0) {
            log_line(LOG_WARN,
                     "KV tier %s: pages damaged or not moved: %lld more, %lld in all; what they held is "
                     "computed again",
                     names[i], (long long)n, (long long)st.tiers[i].errors);
        }
        s->n_tier_errors[i] = st.tiers[i].errors;
    }
}

static LOOP_CALLBACK(loop_on_look) {
    loop *l = arg;
    loop_log_tiers(l->server);
    if (l->stops_seen == 1) {
        log_line(LOG_INFO, "draining: requests left: %lld", (long long)loop_count_busy(l->server));
    }
}

static LOOP_CALLBACK(loop_on_ping) {
    response_ping_all(arg);
    program_api_ping_all(arg);
}

/* Streams are looked at often enough that a ping is late by a fifth of its time at
 * most. */
static bool loop_start_pings(loop *l) {
    int64_t us = l->server->options.ping_us, every = (us + 4) / 5;
    if (us == 0) {
        return true;
    }
    struct timeval t = {.tv_sec = (time_t)(every / 1000000), .tv_usec = (suseconds_t)(every % 1000000)};
    l->on_ping = event_new(l->base, -1, EV_PERSIST, loop_on_ping, l);
    return l->on_ping != NULL && event_add(l->on_ping, &t) == 0;
}

static bool loop_start_looking(loop *l) {
    l->on_look = event_new(l->base, -1, EV_PERSIST, loop_on_look, l);
    return l->on_look != NULL && event_add(l->on_look, &(struct timeval){.tv_sec = LOOK_S}) == 0;
}

static void loop_log_stop_stage(const loop *l, int stage) {
    long long n = loop_count_busy(l->server);
    if (!loop_is_first(l)) {
        return;
    }
    if (stage == 1) {
        notify_manager("STOPPING=1");
        log_line(LOG_INFO, "draining: no new connections; requests left: %lld, which have %g s", n,
                 (double)l->server->options.shutdown_deadline_us * 1e-6);
    } else if (stage == 2) {
        log_line(n > 0 ? LOG_WARN : LOG_INFO, "draining is over; requests cancelled: %lld", n);
    }
}

/* ---- shutting down ---- */

static void loop_stop_accepting(loop *l) {
    if (l->listener != NULL) {
        evconnlistener_free(l->listener);
        l->listener = NULL;
    }
}

static void loop_drain(loop *l) {
    loop_stop_accepting(l);
    if (loop_is_first(l)) {
        /* refuses further clients at once, which would wait for the end of the drain */
        shutdown(l->server->listen_fd, SHUT_RD);
    }
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        conn_drain(c);
    }
    loop_set_timer(l->on_deadline, l->server->options.shutdown_deadline_us);
}

/* Cancels what still runs and sends errors to its clients. */
static void loop_cut_short(loop *l) {
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        conn_shut_down(c);
    }
    response_fail_detached(l);
    loop_set_timer(l->on_deadline, LAST_WORDS_US);
}

/* Advances the shutdown by one stage: 1 drain, 2 cancel, 3 leave. */
static void loop_go_to_stop(loop *l, int stop) {
    while (l->stops_seen < stop && l->stops_seen < 3) {
        l->stops_seen++;
        loop_log_stop_stage(l, l->stops_seen);
        if (l->stops_seen == 1) {
            loop_drain(l);
        } else if (l->stops_seen == 2) {
            loop_cut_short(l);
        } else {
            event_base_loopbreak(l->base);
        }
    }
    if (l->conns == NULL && l->background == NULL && l->stops_seen > 0) {
        event_base_loopbreak(l->base);
    }
}

/* Ends the loop's requests that have a model, if a sleep is to abort them. */
static void loop_abort_requests(loop *l) {
    static const api_error why = {.status = 503, .message = "the operator has put the server to sleep"};
    const int n_aborts = atomic_load(&l->server->n_aborts);
    if (l->aborts_seen == n_aborts) {
        return;
    }
    l->aborts_seen = n_aborts;
    for (conn *c = l->conns, *next; c != NULL; c = next) {
        next = c->next;
        if (c->model != NULL || response_of(c) != NULL || program_api_runs(c)) {
            conn_end(c, &why);
        }
    }
    while (l->background != NULL) {
        response_end_detached(l->background, &why);
    }
}

static LOOP_CALLBACK(loop_on_wake) {
    loop *l = arg;
    wake_wait(&l->bell, 0);
    orders_take(l);
    responses_drop_unwanted(l);
    conn_resume_bodies(l);
    loop_abort_requests(l);
    conns_look_for_models(l);
    if (l->models == NULL && atomic_load(&l->server->stops_waiting)) {
        event_base_loopbreak(l->base);
    }
    loop_go_to_stop(l, atomic_load(&l->server->stops));
}

static LOOP_CALLBACK(loop_on_deadline) {
    loop *l = arg;
    loop_go_to_stop(l, l->stops_seen + 1);
}

/* ---- opening and closing ---- */

static struct event_base *loop_new_base(void) {
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;
    if (config != NULL) {
        event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK); /* one thread; others ring its wake */
        base = event_base_new_with_config(config);
        event_config_free(config);
    }
    return base;
}

quire_err loop_open(loop *l, server *s) {
    *l = (loop){.server = s,
                .random = rng_os_seed(),
                .on_queue = loop_on_queue,
                .on_programs = program_api_on_events};
    TRY(wake_init(&l->bell));
    quire_err e = http_stats_open(&l->http);
    l->base = e == QUIRE_OK ? loop_new_base() : NULL;
    if (l->base == NULL) {
        loop_close(l);
        return e == QUIRE_OK ? QUIRE_NO_MEMORY : e;
    }
    e = watch_open(l);
    l->listener = evconnlistener_new(l->base, loop_on_accept, l, LEV_OPT_CLOSE_ON_EXEC, 0, s->listen_fd);
    l->on_wake = event_new(l->base, l->bell.fd, EV_READ | EV_PERSIST, loop_on_wake, l);
    l->on_deadline = evtimer_new(l->base, loop_on_deadline, l);
    l->on_retry = evtimer_new(l->base, loop_on_retry, l);
    if (e != QUIRE_OK || l->listener == NULL || l->on_wake == NULL || l->on_deadline == NULL ||
        l->on_retry == NULL || !body_turns_open(&l->turns, l->base) || event_add(l->on_wake, NULL) != 0) {
        loop_close(l);
        return QUIRE_NO_MEMORY;
    }
    evconnlistener_set_error_cb(l->listener, loop_on_accept_failed);
    return QUIRE_OK;
}

quire_err loop_attach(loop *l) {
    assert(l->server->engine != NULL && l->models == NULL);
    TRY(loop_models_open(l));
    return loop_start_pings(l) && (!loop_is_first(l) || loop_start_looking(l)) ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void loop_close(loop *l) {
    while (l->conns != NULL) {
        conn_close(l->conns);
    }
    response_fail_detached(l);
    orders_shut(l);
    loop_stop_accepting(l);
    watch_shut(l);
    struct event *events[] = {l->on_wake, l->on_deadline, l->on_retry, l->on_ping, l->on_look};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        loop_free_event(events[i]);
    }
    body_turns_close(&l->turns);
    loop_models_close(l);
    if (l->base != NULL) {
        event_base_free(l->base);
    }
    wake_deinit(&l->bell);
    strbuf_deinit(&l->scratch);
    http_stats_close(l->http);
    *l = (loop){0};
}

quire_err loop_run(loop *l) {
    assert(l->base != NULL);
    int r = event_base_dispatch(l->base);
    return r >= 0 ? QUIRE_OK : QUIRE_IO;
}

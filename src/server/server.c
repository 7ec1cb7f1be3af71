#include "server/server.h"

#include <assert.h>
#include <openssl/rand.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_slice.h"
#include "server/models.h"
#include "server/response_store.h"
#include "server/routes.h"
#include "server/sandbox.h"
#include "server/web_pages.h"

#define LOOP_SLICE_US 100 /* scheduler's time slice of the loops' threads */

/* ---- opening and closing ---- */

/* The default served name: the file's name with its suffix, as in llama-server; for a
 * directory or built-in model, the model's own name, else its path. */
static const char *server_model_name(const quire_engine *e, const server_options *o) {
    const quire_info *info = quire_engine_info(e);
    struct stat file;
    if (o->n_served_model_names > 0) {
        return o->served_model_names[0];
    }
    if (info->model_path != NULL && stat(info->model_path, &file) == 0 && S_ISREG(file.st_mode)) {
        const char *slash = strrchr(info->model_path, '/');
        return slash != NULL ? slash + 1 : info->model_path;
    }
    return info->model_name != NULL && info->model_name[0] != '\0' ? info->model_name : info->model_path;
}

static quire_err server_open_loops(server *s, int32_t n, quire_error *err) {
    for (; s->n_loops < n; s->n_loops++) {
        quire_err e = loop_open(&s->loops[s->n_loops], s);
        if (e != QUIRE_OK) {
            return err_set(err, e, -1, "server: an event loop can't be opened: %s", quire_err_text(e));
        }
    }
    return QUIRE_OK;
}

static quire_err server_load_keys(server *s, quire_error *err) {
    const server_options *o = &s->options;
    TRY(auth_load(o->api_keys, o->n_api_keys, o->api_key_file, &s->keys, err));
    return o->operator_key != NULL ? auth_set_operator(s->keys, o->operator_key, err) : QUIRE_OK;
}

static quire_err server_open_parts(server *s, quire_error *err) {
    TRY(server_load_keys(s, err));
    if (RAND_bytes(s->pool_key, sizeof s->pool_key) != 1) {
        return err_set(err, QUIRE_INTERNAL, -1, "server: no random numbers for the key of page hashes");
    }
    if (page_headers(PAGE_HOME, &s->home_headers) != QUIRE_OK ||
        page_headers(PAGE_POOL, &s->pool_headers) != QUIRE_OK || sandboxes_open(&s->sandboxes) != QUIRE_OK) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "server: out of memory");
    }
    quire_err e =
        response_store_open(s->options.max_responses_bytes, s->options.max_response_age_us, &s->responses);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "server: out of memory");
    }
    TRY(listen_open(s, err));
    s->loops = mem_new((size_t)s->options.n_loops, sizeof(loop));
    TRY(mem_check_for(s->loops, "a server", err));
    return server_open_loops(s, 1, err);
}

static void *server_run_loop(void *arg) {
    loop *l = arg;
    /* on busy processors too, a step's tokens must be sent before the next step ends */
    thread_set_slice(LOOP_SLICE_US);
    l->failure = loop_run(l);
    return NULL;
}

static quire_err server_start_waiting(server *s, quire_error *err) {
    int failure = pthread_create(&s->loops[0].thread, NULL, server_run_loop, &s->loops[0]);
    s->is_waiting = failure == 0;
    return failure == 0 ? QUIRE_OK
                        : err_set(err, QUIRE_NO_MEMORY, -1, "server: a thread can't be started: %s",
                                  strerror(failure));
}

static void server_stop_waiting(server *s) {
    if (s->is_waiting) {
        atomic_store(&s->stops_waiting, true);
        loop_wake_all(s);
        pthread_join(s->loops[0].thread, NULL);
        s->is_waiting = false;
    }
}

static void server_ring_loops(void *arg) {
    loop_wake_all(arg);
}

/* Callback for a new engine: lets it find conversations that requests name by id. */
static void server_opened_model(void *arg, quire_engine *e) {
    quire_engine_history(e, responses_find_history, arg);
}

static quire_err server_open_models(server *s, quire_error *err) {
    const models_options o = {.others = s->options.other_models,
                              .n_others = s->options.n_other_models,
                              .max_loaded = s->options.max_models,
                              .idle_us = s->options.model_idle_us,
                              .patience_us = s->options.model_patience_us,
                              .changed = server_ring_loops,
                              .opened = server_opened_model,
                              .context = s};
    return models_open(&o, &s->models) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "server: out of memory");
}

quire_err server_open(quire_engine *e, const server_options *o, server **out, quire_error *err) {
    *out = NULL;
    TRY(server_options_check(o, err));
    server *s = mem_new(1, sizeof(*s));
    TRY(mem_check_for(s, "a server", err));
    *s = (server){
        .options = *o, .handler = &routes_while_loading, .listen_fd = -1, .started_s = clock_unix_s()};
    body_room_open(&s->bodies, o->max_bodies_bytes, server_ring_loops, s);
    signal(SIGPIPE, SIG_IGN); /* writing to a closed connection must not end the process */
    quire_err r = server_open_models(s, err);
    TRY_DONE(r, server_open_parts(s, err));
    TRY_DONE(r, e != NULL ? server_attach(s, e, err) : server_start_waiting(s, err));
done:
    if (r != QUIRE_OK) {
        server_close(s);
        return r;
    }
    *out = s;
    return QUIRE_OK;
}

static void server_close_loops(server *s) {
    server_stop_waiting(s);
    models_stop(s->models); /* this wakes the loops */
    for (int32_t i = 0; i < s->n_loops; i++) {
        loop_close(&s->loops[i]);
    }
    s->n_loops = 0;
}

/* Unloads the other models, after which the engine may be closed. */
static void server_leave_engine(server *s) {
    models_close(s->models);
    s->models = NULL;
    if (s->engine != NULL) {
        quire_engine_history(s->engine, NULL, NULL);
        s->engine = NULL;
    }
}

/* QUIRE_INVALID if an adapter in the options has the name of a model. */
static quire_err server_check_adapters(const server *s, quire_error *err) {
    quire_adapter **list;
    size_t n;
    quire_err e = quire_adapters(s->engine, &list, &n);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "server: out of memory");
    }
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        const str name = str_of(list[i]->name);
        const bool is_model =
            list[i]->number < 0 && (server_answers_to(s, name) || models_find(s->models, name) != NULL);
        e = !is_model ? QUIRE_OK
                      : err_set(err, QUIRE_INVALID, -1,
                                "a model and an adapter are both called %s; rename one of them", name.p);
    }
    quire_free((void *)list);
    return e;
}

/* QUIRE_INVALID if a model has the name of another model or an adapter. */
static quire_err server_check_names(const server *s, quire_error *err) {
    const char *name = s->model_name;
    for (int32_t i = 0; i == 0 || i < s->options.n_served_model_names; i++) {
        name = i > 0 ? s->options.served_model_names[i] : name;
        if (models_find(s->models, str_of(name)) != NULL) {
            return err_set(err, QUIRE_INVALID, -1,
                           "two models are called %s; give the first another name (--served-model-name)",
                           name);
        }
    }
    return server_check_adapters(s, err);
}

quire_err server_attach(server *s, quire_engine *e, quire_error *err) {
    assert(e != NULL && s->engine == NULL);
    server_stop_waiting(s);
    s->engine = e;
    s->model_name = server_model_name(e, &s->options);
    TRY(server_check_names(s, err));
    s->started_s = clock_unix_s();
    s->handler = &routes;
    models_attach(s->models, s->model_name, e);
    server_opened_model(s, e);
    TRY(server_open_loops(s, s->options.n_loops, err));
    for (int32_t i = 0; i < s->n_loops; i++) {
        quire_err r = loop_attach(&s->loops[i]);
        if (r != QUIRE_OK) {
            return err_set(err, r, -1, "server: an event loop can't be opened: %s", quire_err_text(r));
        }
    }
    return models_start(s->models) == QUIRE_OK
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "server: the thread that loads models can't be started");
}

void server_close(server *s) {
    if (s == NULL) {
        return;
    }
    server_close_loops(s);
    server_leave_engine(s);
    response_store_close(s->responses);
    listen_close(s);
    sandboxes_close(s->sandboxes);
    strbuf_deinit(&s->home_headers);
    strbuf_deinit(&s->pool_headers);
    auth_free(s->keys);
    body_room_close(&s->bodies);
    mem_free(s->loops);
    mem_free(s);
}

int64_t server_count_keys(const server *s) {
    return auth_count(s->keys);
}

int32_t server_port(const server *s) {
    return s->port;
}

/* ---- serving ---- */

void server_stop(server *s) {
    atomic_fetch_add(&s->stops, 1);
    loop_wake_all(s);
}

quire_err server_serve(server *s, quire_error *err) {
    assert(s->engine != NULL && s->n_loops > 0);
    int32_t n_started = 1;
    int failure = 0;
    for (; n_started < s->n_loops && failure == 0; n_started++) {
        failure = pthread_create(&s->loops[n_started].thread, NULL, server_run_loop, &s->loops[n_started]);
    }
    if (failure != 0) {
        n_started--;
        server_stop(s);
    }
    server_run_loop(&s->loops[0]);
    quire_err e = s->loops[0].failure;
    for (int32_t i = 1; i < n_started; i++) {
        pthread_join(s->loops[i].thread, NULL);
        if (e == QUIRE_OK) {
            e = s->loops[i].failure;
        }
    }
    if (failure != 0) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "server: a thread can't be started: %s", strerror(failure));
    }
    return err_set(err, e, -1, "server: waiting for events failed");
}

/* Handles SIGINT, a stop by hand. In a delayed drain it counts as the second signal. */
static LOOP_CALLBACK(server_on_stop) {
    server *s = arg;
    if (atomic_load(&s->is_leaving) && atomic_load(&s->stops) == 0) {
        server_stop(s);
    }
    server_stop(s);
}

static LOOP_CALLBACK(server_on_leave) {
    server *s = arg;
    if (atomic_load(&s->stops) == 0) {
        server_stop(s);
    }
}

/* Handles SIGTERM, the stop of a service. */
static LOOP_CALLBACK(server_on_term) {
    server *s = arg;
    int64_t delay_us = s->options.drain_delay_us;
    if (delay_us == 0 || atomic_load(&s->is_leaving) || atomic_load(&s->stops) > 0) {
        server_on_stop(-1, 0, s);
        return;
    }
    atomic_store(&s->is_leaving, true);
    notify_manager("STOPPING=1");
    log_line(LOG_INFO, "/ready now returns 503; draining begins in %g s", (double)delay_us * 1e-6);
    loop_set_timer(s->on_leave, delay_us);
}

/* Handles SIGHUP: reloads the keys. */
static LOOP_CALLBACK(server_on_reload) {
    server *s = arg;
    const server_options *o = &s->options;
    quire_error err = {0};
    if (o->api_key_file == NULL) {
        log_line(LOG_INFO, "SIGHUP: there is no key file to reload (--api-key-file)");
    } else if (auth_reload(s->keys, o->api_keys, o->n_api_keys, o->api_key_file, &err) != QUIRE_OK) {
        log_line(LOG_WARN, "SIGHUP: %s; the keys are unchanged", err.message);
    } else {
        log_line(LOG_INFO, "SIGHUP: reloaded %lld keys", (long long)auth_count(s->keys));
    }
}

static LOOP_CALLBACK(server_on_other_signal) {
    (void)arg;
}

static const struct {
    int number;
    event_callback_fn run;
} caught[] = {{SIGINT, server_on_stop},
              {SIGTERM, server_on_term},
              {SIGHUP, server_on_reload},
              {SIGUSR1, server_on_other_signal}};

enum { N_CAUGHT = sizeof caught / sizeof *caught };

static bool server_catch_signals(server *s, struct event *events[N_CAUGHT]) {
    s->on_leave = evtimer_new(s->loops[0].base, server_on_leave, s);
    if (s->on_leave == NULL) {
        return false;
    }
    for (int i = 0; i < N_CAUGHT; i++) {
        events[i] = evsignal_new(s->loops[0].base, caught[i].number, caught[i].run, s);
        if (events[i] == NULL || event_add(events[i], NULL) != 0) {
            return false;
        }
    }
    return true;
}

static void server_warn_if_open(const server *s) {
    if (!s->on_loopback && !auth_required(s->keys)) {
        log_line(LOG_WARN,
                 "anyone who can reach %s can use the model: --host opens it to other machines, but no key "
                 "is set; set --api-key or --api-key-file",
                 s->url);
    }
}

quire_err server_run(server *s, quire_engine *e, quire_error *err) {
    struct event *events[N_CAUGHT] = {NULL};
    quire_err r = server_attach(s, e, err);
    listen_raise_files(&s->options);
    if (r != QUIRE_OK) {
        server_close_loops(s);
        server_leave_engine(s);
        return r;
    }
    if (log_start() != QUIRE_OK) {
        r = err_set(err, QUIRE_NO_MEMORY, -1, "server: the log's thread can't be started");
    } else if (!server_catch_signals(s, events)) {
        r = err_set(err, QUIRE_NO_MEMORY, -1, "server: signals can't be caught");
    } else {
        server_warn_if_open(s);
        log_line(LOG_INFO, "listening on %s", s->url);
        notify_manager("READY=1");
        r = server_serve(s, err);
        log_line(LOG_INFO, "stopped: every connection is closed");
    }
    for (int i = 0; i < N_CAUGHT; i++) {
        loop_free_event(events[i]);
    }
    loop_free_event(s->on_leave);
    server_close_loops(s);
    server_leave_engine(s);
    listen_close(s);
    log_stop();
    return r;
}

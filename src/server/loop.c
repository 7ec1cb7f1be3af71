#include "server/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "quire_program.h"

#define ID_DIGITS 16

bool server_answers_to(const server *s, str name) {
    bool found = str_is(name, s->model_name);
    for (int32_t i = 0; i < s->options.n_served_model_names; i++) {
        found = found || str_is(name, s->options.served_model_names[i]);
    }
    return found;
}

void loop_set_timer(struct event *timer, int64_t us) {
    assert(timer != NULL && us >= 0);
    struct timeval t = {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
    event_add(timer, &t);
}

void loop_free_event(struct event *event) {
    if (event != NULL) {
        event_free(event);
    }
}

void loop_wake_all(const server *s) {
    for (int32_t i = 0; i < s->n_loops; i++) {
        if (s->loops[i].bell.is_open) { /* the loop is open */
            wake_ring(&s->loops[i].bell);
        }
    }
}

int64_t loop_count_busy(const server *s) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->n_loops; i++) {
        n += atomic_load(&s->loops[i].n_busy);
    }
    return n;
}

bool loop_read_id(const char *id, uint64_t *number) {
    size_t n = strlen(id);
    bool is_number = n >= ID_DIGITS;
    *number = 0;
    for (size_t i = n - ID_DIGITS; is_number && i < n; i++) {
        int digit = hex_digit(id[i]);
        is_number = digit >= 0;
        *number = *number << 4 | (uint64_t)(digit & 15);
    }
    return is_number;
}

loop *loop_of_id(server *s, const char *id) {
    uint64_t number, mask = (1u << LOOP_BITS) - 1;
    return loop_read_id(id, &number) && (int64_t)(number & mask) < s->n_loops ? &s->loops[number & mask]
                                                                              : NULL;
}

uint64_t loop_new_id(loop *l) {
    assert(l->server->n_loops <= 1 << LOOP_BITS);
    uint64_t mine = (uint64_t)(l - l->server->loops), mask = (1u << LOOP_BITS) - 1;
    return (rng_next(&l->random) & ~mask) | mine;
}

/* ---- the service manager ---- */

void notify_manager(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET"); /* part of the sd_notify protocol */
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path != NULL ? strlen(path) : 0;
    if (n < 2 || n >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* an abstract socket */
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd >= 0) {
        socklen_t n_to = (socklen_t)(sizeof to - sizeof to.sun_path + n);
        (void)sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&to,
                     n_to);
        close(fd);
    }
}

/* ---- a loop's models ---- */

/* interval between checks of programs' time limits */
static const struct timeval program_look = {.tv_sec = 1};

static void loop_model_close_programs(loop_model *p) {
    loop_free_event(p->on_programs);
    quire_programs_close(p->programs);
    p->on_programs = NULL;
    p->programs = NULL;
}

quire_err loop_model_open_programs(loop_model *p) {
    if (p->programs != NULL) {
        return QUIRE_OK;
    }
    TRY(quire_programs_open(p->m->engine, &p->programs));
    p->on_programs =
        event_new(p->l->base, quire_programs_fd(p->programs), EV_READ | EV_PERSIST, p->l->on_programs, p);
    if (p->on_programs == NULL || event_add(p->on_programs, &program_look) != 0) {
        loop_model_close_programs(p);
        return QUIRE_NO_MEMORY;
    }
    return QUIRE_OK;
}

void loop_model_await_programs(loop_model *p) {
    static const struct timeval soon = {.tv_usec = 1}; /* 0 would fire before the loop's other events */
    if (p->on_programs != NULL) {
        event_add(p->on_programs, quire_programs_has_more(p->programs) ? &soon : &program_look);
    }
}

static void loop_model_close(loop_model *p) {
    loop_model_close_programs(p);
    loop_free_event(p->on_queue);
    if (p->queue != NULL) {
        quire_queue_close(p->queue);
    }
    for (int32_t i = 0; i < p->n_token_texts; i++) {
        quire_free(p->token_texts[i].p);
    }
    mem_free(p->token_texts);
    *p = (loop_model){.l = p->l, .m = p->m};
}

quire_err loop_model_open(loop_model *p) {
    if (p->queue != NULL) {
        return QUIRE_OK;
    }
    quire_err e = quire_queue_open(p->m->engine, &p->queue);
    p->on_queue = e == QUIRE_OK ? event_new(p->l->base, quire_queue_fd(p->queue), EV_READ | EV_PERSIST,
                                            p->l->on_queue, p)
                                : NULL;
    if (p->on_queue == NULL || event_add(p->on_queue, NULL) != 0) {
        loop_model_close(p);
        return e != QUIRE_OK ? e : QUIRE_NO_MEMORY;
    }
    models_count_queue(p->l->server->models, p->m, 1);
    return QUIRE_OK;
}

quire_err loop_models_open(loop *l) {
    models *all = l->server->models;
    const int32_t n = models_count(all);
    l->models = mem_new((size_t)n, sizeof *l->models);
    TRY(mem_check(l->models));
    for (int32_t i = 0; i < n; i++) {
        l->models[i] = (loop_model){.l = l, .m = models_at(all, i)};
    }
    return loop_model_open(&l->models[0]);
}

void loop_models_close(loop *l) {
    for (int32_t i = 0; l->models != NULL && i < models_count(l->server->models); i++) {
        loop_model *p = &l->models[i];
        const bool was_open = p->queue != NULL, was_draining = p->is_draining;
        assert(p->n_holds == 0);
        loop_model_close(p);
        if (was_draining) {
            models_drop(l->server->models, p->m);
        }
        if (was_open) {
            models_count_queue(l->server->models, p->m, -1);
        }
    }
    mem_free(l->models);
    l->models = NULL;
}

/* Whether no events of released streams and programs are left to come. */
static bool loop_model_is_idle(const loop_model *p) {
    return (p->queue == NULL || quire_queue_idle(p->queue)) &&
           (p->programs == NULL || quire_programs_idle(p->programs));
}

void loop_model_drop(loop_model *p) {
    assert(p->n_holds > 0);
    p->n_holds--;
    if (p->n_holds == 0 && !p->is_draining && !loop_model_is_idle(p)) {
        p->is_draining = true;
    } else {
        models_drop(p->l->server->models, p->m);
    }
}

static void loop_model_close_leaving(loop_model *p) {
    models *all = p->l->server->models;
    if (p->queue != NULL && p->n_holds == 0 && !p->is_draining && models_leaves(all, p->m)) {
        loop_model_close(p);
        models_count_queue(all, p->m, -1);
    }
}

void loop_model_look(loop_model *p) {
    if (p->is_draining && loop_model_is_idle(p)) {
        p->is_draining = false;
        models_drop(p->l->server->models, p->m);
        loop_model_close_leaving(p);
    }
}

void loop_models_close_leaving(loop *l) {
    for (int32_t i = 1; i < models_count(l->server->models); i++) {
        loop_model_close_leaving(&l->models[i]);
    }
}

#include "server/loop_models.h"

#include <assert.h>

#include "base/mem.h"
#include "quire_program.h"

/* between checks of the time that programs take */
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
    static const struct timeval soon = {.tv_usec = 1}; /* 0 would precede the loop's other events */
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

/* Whether no event of released streams and programs is still to come. */
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

/* Executes calls on an engine: begins a call's next stage when all requests of the
 * current one have ended. */
#include "execute/engine_call.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

/* Submits a prompt that computes the state's ids, for forks or a select's choices. */
static quire_err exec_submit_prefix(engine_call *k, quire_error *err) {
    const shared_ids *ids = k->answer != NULL ? k->answer : exec_state_of(k->c->state)->ids;
    if (exec_must_wait(k, 1)) {
        return QUIRE_OK;
    }
    TRY(exec_begin_stage(k, ENGINE_PREFIX, 1, err));
    k->c->submitted_us = clock_us();
    return exec_submit_prompt(k, ids->ids, ids->n, 0, 0, false, err);
}

/* ---- stages ---- */

static quire_err exec_go_on(engine_call *k, bool *is_over, quire_error *err);

/* Prepares the gen after the running one if the text between is known; may do nothing. */
static void exec_look_ahead(engine_call *k) {
    quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    size_t n_before;
    bool is_over = false;
    exec_drop_ahead(es);
    program_call *next = program_call_foresee(k->c, &n_before);
    engine_call *a = next != NULL ? mem_new(1, sizeof *a) : NULL;
    if (a == NULL) {
        if (next != NULL) {
            program_call_forget(next);
        }
        return;
    }
    *a = (engine_call){.x = k->x, .c = next, .ahead_of = s};
    next->of_executor = es->ahead = a;
    quire_err e = QUIRE_OK;
    TRY_DONE(e, exec_want_state(next->state, NULL));
    if (es->park == NULL) {
        TRY_DONE(e, quire_park_open(k->x->e, &es->park));
    }
    engine_state *own = exec_state_of(next->state);
    own->n_taken = n_before;
    own->park = es->park;
    TRY_DONE(e, exec_ids_replace(&own->ids, 0, es->ids->ids, 1));
    TRY_DONE(e, exec_go_on(a, &is_over, &a->error));
done:
    if (e != QUIRE_OK) {
        exec_drop_ahead(es);
    }
}

/* Begins the next stage of a call: tokenise, compute the prefix, or the call's own
 * requests. *is_over: none is left, for example if the prefix is already computed. */
static quire_err exec_go_on(engine_call *k, bool *is_over, quire_error *err) {
    const quire_state *s = k->c->state;
    const step_kind kind = k->c->step->kind;
    engine_state *es = exec_state_of(s);
    while (es->rest.n == 0 && es->n_taken < s->n_parts) {
        const program_part *p = &s->parts[es->n_taken];
        if (p->kind == PART_TOKENS) {
            TRY(err_set(err, exec_ids_replace(&es->ids, exec_n_ids(es), p->step->ids, p->step->n_ids), -1,
                        "out of memory for a state"));
        } else if (p->kind == PART_END && es->n_taken == s->n_parts - 1) {
            break; /* the text that ends a turn is tokenised with the next turn */
        } else if (p->kind != PART_VALUE) {
            return p->kind == PART_TEXT ? exec_take_texts(k, err) : exec_take_turns(k, err);
        }
        es->n_taken++;
    }
    if (es->rest.n > 0) {
        return exec_take_texts(k, err);
    }
    if (exec_n_ids(es) == 0 && kind != STEP_FORK) {
        return err_set(err, QUIRE_BAD_REQUEST, -1, "%s: the state is empty; append text first",
                       k->c->step->name);
    }
    if (kind == STEP_GEN) {
        TRY(exec_submit_gen(k, err));
        if (k->ahead_of == NULL && !k->is_waiting) {
            exec_look_ahead(k);
        }
        return QUIRE_OK;
    }
    if (kind == STEP_FORK && es->n_taken < s->n_parts && es->n_answered != es->n_taken && k->answer == NULL) {
        return exec_take_turns(k, err);
    }
    if (es->n_computed < exec_n_ids(es) || (k->answer != NULL && es->n_answered != es->n_taken)) {
        return exec_submit_prefix(k, err);
    }
    *is_over = kind == STEP_FORK;
    return *is_over ? QUIRE_OK : exec_submit_choices(k, err);
}

/* Begins a call with the request prepared for it, now or when that is ready. If there is
 * none, or no room for it, begins with exec_go_on. */
static quire_err exec_begin_call(engine_call *k, bool *is_over, quire_error *err) {
    engine_state *es = exec_state_of(k->c->state);
    engine_call *a = es->ahead;
    bool is_next = a != NULL && a->c->step == k->c->step && a->c->number == k->c->number && es->rest.n == 0;
    if (is_next && a->stage != ENGINE_GEN) {
        a->waits = k;
        return QUIRE_OK;
    }
    if (!is_next || k->x->waiting != NULL ||
        !exec_has_room(k->x, (size_t)quire_stream_describe(a->requests->stream)->n_choices)) {
        exec_drop_ahead(es);
        return exec_go_on(k, is_over, err);
    }
    TRY(exec_start_ahead(k, err));
    exec_look_ahead(k);
    return QUIRE_OK;
}

static quire_err exec_begin_prefix(void *executor, program_call *c, bool *is_there, quire_error *err) {
    TRY(exec_want_state(c->state, err));
    engine_call *k = mem_new(1, sizeof *k);
    TRY(mem_check_for(k, "a call", err));
    k->x = executor;
    k->c = c;
    c->of_executor = k;
    quire_err e = exec_begin_call(k, is_there, err);
    if (e != QUIRE_OK || *is_there) {
        exec_call_free(k);
    }
    return e;
}

static quire_err exec_begin(void *executor, program_call *c, quire_error *err) {
    bool is_over = false;
    return exec_begin_prefix(executor, c, &is_over, err);
}

static void exec_begin_again(engine_call *k);

/* Ends a call, with k->error if it has one. A call ahead of time is dropped, and the call
 * that waits for it begins. */
static void exec_end(engine_call *k) {
    program_call *c = k->c;
    quire_error why = k->error;
    if (k->ahead_of != NULL) {
        engine_call *waits = k->waits;
        k->waits = NULL;
        exec_drop_ahead(exec_state_of(k->ahead_of));
        if (waits != NULL) {
            exec_begin_again(waits);
        }
        return;
    }
    exec_call_free(k);
    program_call_end(c, why.code != QUIRE_OK ? &why : NULL);
}

/* Begins a call that has waited for a request to be prepared. */
static void exec_begin_again(engine_call *k) {
    bool is_over = false;
    if (exec_begin_call(k, &is_over, &k->error) != QUIRE_OK || is_over) {
        exec_end(k);
    }
}

/* Takes the results of a stage whose requests have ended. done: the last DONE event. */
static void exec_stage_over(engine_call *k, const quire_event *done) {
    engine_state *es = exec_state_of(k->c->state);
    quire_err e = k->error.code;
    bool is_over = e != QUIRE_OK || k->stage == ENGINE_GEN || k->stage == ENGINE_SCORES;
    if (e == QUIRE_OK && is_over) {
        e = k->stage == ENGINE_GEN ? exec_take_gen(k, done) : exec_take_select(k);
        if (e != QUIRE_OK) {
            err_set(&k->error, e, -1, "out of memory for a result");
        }
    } else if (e == QUIRE_OK && k->stage == ENGINE_CHOICES) {
        is_over = exec_submit_scores(k, &k->error) != QUIRE_OK;
    } else if (e == QUIRE_OK) {
        if (k->stage == ENGINE_TEXT) {
            es->n_taken = k->upto;
            strbuf_clear(&es->rest);
        } else if (k->stage == ENGINE_PREFIX) {
            es->n_computed = exec_n_ids(es);
            es->n_answered = k->answer != NULL ? es->n_taken : es->n_answered;
        }
        is_over = exec_go_on(k, &is_over, &k->error) != QUIRE_OK || is_over;
    }
    if (is_over) {
        exec_end(k);
    } else if (k->waits != NULL && k->stage == ENGINE_GEN) {
        exec_begin_again(k->waits);
    }
}

/* Handles the START event of a request. False: the call no longer exists. */
static bool exec_take_start(engine_call *k, const call_request *r, const quire_event *ev) {
    engine_state *es = exec_state_of(k->c->state);
    quire_err e = QUIRE_OK;
    switch (k->stage) {
    case ENGINE_TEXT:
        e = exec_ids_replace(&es->ids, 0, ev->tokens, (size_t)ev->n_tokens);
        break;
    case ENGINE_ANSWER:
        e = exec_ids_replace(&k->answer, 0, ev->tokens, (size_t)ev->n_tokens);
        break;
    case ENGINE_CHOICES:
        e = exec_take_choice(k, r->index, ev);
        break;
    case ENGINE_SCORES:
        exec_take_score(k, r, ev);
        return program_call_count(k->c, ev->n_tokens - (r->is_alone ? 0 : (int64_t)es->ids->n));
    case ENGINE_GEN:
        k->c->outputs[ev->choice].has_parts = quire_stream_describe(ev->stream)->has_parts;
        return ev->choice > 0 || program_call_count(k->c, ev->n_tokens);
    case ENGINE_PREFIX:
        return ev->choice > 0 || program_call_count(k->c, ev->n_tokens);
    }
    if (e != QUIRE_OK && k->error.code == QUIRE_OK) {
        err_set(&k->error, e, -1, "out of memory for a state");
    }
    return true;
}

/* Handles a DELTA event of a gen. False: the call no longer exists. */
static bool exec_take_delta(engine_call *k, const quire_event *ev) {
    k->c->first_us = k->c->first_us == 0 ? clock_us() : k->c->first_us;
    if (k->stage != ENGINE_GEN) {
        return true;
    }
    if (exec_add_output(k, ev) != QUIRE_OK && k->error.code == QUIRE_OK) {
        err_set(&k->error, QUIRE_NO_MEMORY, -1, "out of memory for an output");
    }
    return program_call_count(k->c, ev->n_tokens);
}

static void exec_take_event(const quire_event *ev) {
    call_request *r = ev->user;
    engine_call *k = r->call;
    switch (ev->kind) {
    case QUIRE_EVENT_START:
        (void)exec_take_start(k, r, ev);
        return;
    case QUIRE_EVENT_DELTA:
        (void)exec_take_delta(k, ev);
        return;
    case QUIRE_EVENT_END:
        if (k->stage == ENGINE_GEN) {
            k->c->outputs[ev->choice].finish = ev->finish;
        }
        return;
    case QUIRE_EVENT_DONE:
        break;
    default:
        return;
    }
    if (ev->error != NULL && k->error.code == QUIRE_OK) {
        k->error = *ev->error;
    }
    if (k->stage == ENGINE_SCORES || k->stage == ENGINE_PREFIX) {
        k->c->prompt_tokens += ev->prompt_tokens;
        k->c->computed_tokens += ev->prompt_tokens - ev->cached_tokens;
    }
    k->n_open--;
    if (k->n_open == 0) {
        exec_stage_over(k, ev);
    }
}

/* ---- the executor ---- */

/* Continues waiting calls while there is room. */
static void exec_resume(engine_executor *x) {
    for (engine_call *k = exec_take_turn(x); k != NULL; k = exec_take_turn(x)) {
        bool is_over = false;
        quire_err e = k->stage == ENGINE_CHOICES ? exec_submit_scores(k, &k->error)
                                                 : exec_go_on(k, &is_over, &k->error);
        if (e != QUIRE_OK || is_over) {
            exec_end(k);
        }
    }
}

static bool exec_poll(void *executor) {
    engine_executor *x = executor;
    quire_event ev;
    bool had = false;
    while (quire_queue_next(x->q, &ev)) {
        exec_take_event(&ev);
        had = true;
    }
    exec_resume(x);
    return had;
}

static int exec_fd(void *executor) {
    return quire_queue_fd(((engine_executor *)executor)->q);
}

static void exec_wait(void *executor, int64_t timeout_us) {
    quire_queue_wait(((engine_executor *)executor)->q, timeout_us);
}

static bool exec_idle(const void *executor) {
    return quire_queue_idle(((const engine_executor *)executor)->q);
}

static void exec_close(void *executor) {
    engine_executor *x = executor;
    quire_queue_close(x->q);
    mem_free(x);
}

const program_ops engine_ops = {.gen = exec_begin,
                                .select = exec_begin,
                                .prefix = exec_begin_prefix,
                                .cancel = exec_cancel,
                                .fork = exec_fork,
                                .settle = exec_settle,
                                .drop = exec_drop,
                                .tokens = exec_tokens,
                                .poll = exec_poll,
                                .fd = exec_fd,
                                .wait = exec_wait,
                                .idle = exec_idle,
                                .close = exec_close};

quire_err engine_executor_open(quire_engine *e, void **out) {
    engine_executor *x = mem_new(1, sizeof *x);
    *out = x;
    TRY(mem_check(x));
    x->e = e;
    snprintf(x->mark, sizeof x->mark, "{%016llx%016llx}", (unsigned long long)rng_os_seed(),
             (unsigned long long)rng_os_seed());
    quire_err r = quire_queue_open(e, &x->q);
    if (r != QUIRE_OK) {
        mem_free(x);
        *out = NULL;
    }
    return r;
}

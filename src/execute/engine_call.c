#include "execute/engine_call.h"

#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "json/json_scan.h"

/* ---- ids ---- */

static void exec_ids_drop(shared_ids *l) {
    if (l != NULL && --l->refs == 0) {
        mem_free(l);
    }
}

quire_err exec_ids_replace(shared_ids **l, size_t keep, const int32_t *ids, size_t n) {
    shared_ids *to = *l;
    if (to == NULL || to->refs > 1 || keep + n > to->cap) {
        size_t cap = keep + n + keep / 4 + MEM_FIRST_CAPACITY;
        to = mem_new(1, sizeof *to + cap * sizeof *to->ids);
        TRY(mem_check(to));
        to->refs = 1;
        to->cap = cap;
        mem_copy(to->ids, *l != NULL ? (*l)->ids : NULL, keep * sizeof *to->ids);
        exec_ids_drop(*l);
        *l = to;
    }
    mem_copy(to->ids + keep, ids, n * sizeof *to->ids);
    to->n = keep + n;
    return QUIRE_OK;
}

engine_state *exec_state_of(const quire_state *s) {
    return s->of_executor;
}

size_t exec_n_ids(const engine_state *es) {
    return es->ids != NULL ? es->ids->n : 0;
}

quire_err exec_want_state(quire_state *s, quire_error *err) {
    s->of_executor = s->of_executor != NULL ? s->of_executor : mem_new(1, sizeof(engine_state));
    return mem_check_for(s->of_executor, "a state", err);
}

void exec_drop_ahead(engine_state *es) {
    engine_call *k = es != NULL ? es->ahead : NULL;
    if (k == NULL) {
        return;
    }
    program_call *c = k->c;
    void *x = k->x;
    engine_state *own = exec_state_of(c->state);
    es->ahead = NULL;
    exec_call_free(k);
    if (own != NULL) {
        own->park = NULL; /* borrowed from the state that the call prepares for */
    }
    exec_drop(x, c->state);
    program_call_forget(c);
}

void exec_settle(void *executor, quire_state *s) {
    assert(s != NULL);
    engine_state *es = s->of_executor;
    (void)executor;
    if (es != NULL) {
        exec_drop_ahead(es);
        quire_park_close(es->park);
        es->park = NULL;
    }
}

void exec_drop(void *executor, quire_state *s) {
    assert(s != NULL);
    engine_state *es = s->of_executor;
    exec_settle(executor, s);
    if (es != NULL) {
        exec_ids_drop(es->ids);
        strbuf_deinit(&es->rest);
        mem_free(es);
        s->of_executor = NULL;
    }
}

quire_err exec_fork(void *executor, const quire_state *from, quire_state *to) {
    assert(from != NULL);
    const engine_state *was = from->of_executor;
    if (was == NULL) {
        return QUIRE_OK;
    }
    TRY(exec_want_state(to, NULL));
    engine_state *es = exec_state_of(to);
    es->n_taken = was->n_taken;
    es->n_computed = was->n_computed;
    es->n_answered = was->n_answered;
    es->n_turn = was->n_turn;
    es->ids = was->ids;
    if (es->ids != NULL) {
        es->ids->refs++;
    }
    quire_err e = strbuf_add(&es->rest, was->rest.p, was->rest.n);
    if (e != QUIRE_OK) {
        exec_drop(executor, to);
    }
    return e;
}

const int32_t *exec_tokens(void *executor, const quire_state *s, size_t *n) {
    assert(s != NULL);
    const engine_state *es = s->of_executor;
    (void)executor;
    *n = es != NULL ? exec_n_ids(es) : 0;
    return *n > 0 ? es->ids->ids : NULL;
}

/* ---- calls and their requests ---- */

static void exec_release(engine_call *k) {
    for (size_t i = 0; i < k->n_requests; i++) {
        if (k->requests[i].stream != NULL) {
            quire_stream_release(k->requests[i].stream);
        }
    }
    mem_free(k->requests);
    k->requests = NULL;
    k->x->n_running -= k->n_running;
    k->n_requests = k->n_open = k->n_running = 0;
}

bool exec_has_room(const engine_executor *x, size_t n) {
    return x->n_running == 0 || x->n_running + n <= MAX_RUNNING;
}

/* ---- calls that wait ---- */

/* Inserts a call into the list of waiting calls after `before`; NULL: at the front. */
static void exec_wait_after(engine_call *k, engine_call *before) {
    engine_executor *x = k->x;
    engine_call *after = before != NULL ? before->next_waiting : x->waiting;
    k->last_waiting = before;
    k->next_waiting = after;
    *(before != NULL ? &before->next_waiting : &x->waiting) = k;
    *(after != NULL ? &after->last_waiting : &x->waiting_end) = k;
}

static void exec_leave_list(engine_call *k) {
    engine_executor *x = k->x;
    *(k->last_waiting != NULL ? &k->last_waiting->next_waiting : &x->waiting) = k->next_waiting;
    *(k->next_waiting != NULL ? &k->next_waiting->last_waiting : &x->waiting_end) = k->last_waiting;
}

/* Joins two heaps, either of which may be NULL. A program's waiting calls form a pairing
 * heap (Fredman et al. 1986) at root->of_executor: the deepest call, the earliest of
 * equally deep ones, is on top. */
static engine_call *exec_meld(engine_call *a, engine_call *b) {
    if (a == NULL || b == NULL) {
        return a != NULL ? a : b;
    }
    const int32_t da = a->c->state->depth, db = b->c->state->depth;
    engine_call *top = da > db || (da == db && a->arrival < b->arrival) ? a : b, *other = top == a ? b : a;
    other->beside = top->below;
    other->above = top;
    if (top->below != NULL) {
        top->below->above = other;
    }
    top->below = other;
    return top;
}

/* Joins the heaps of a list, linked by `beside`, into one. */
static engine_call *exec_meld_all(engine_call *list) {
    engine_call *pairs = NULL, *all = NULL;
    while (list != NULL) {
        engine_call *a = list, *b = a->beside;
        list = b != NULL ? b->beside : NULL;
        a = exec_meld(a, b);
        a->beside = pairs;
        pairs = a;
    }
    while (pairs != NULL) {
        engine_call *next = pairs->beside;
        all = exec_meld(all, pairs);
        pairs = next;
    }
    return all;
}

static void exec_set_deepest(const engine_call *k, engine_call *top) {
    k->c->state->root->of_executor = top;
    if (top != NULL) {
        top->above = top->beside = NULL;
    }
}

static void exec_stop_waiting(engine_call *k) {
    engine_call *top = k->c->state->root->of_executor, *above = k->above;
    exec_leave_list(k);
    if (above != NULL) {
        *(above->below == k ? &above->below : &above->beside) = k->beside;
        if (k->beside != NULL) {
            k->beside->above = above;
        }
    }
    exec_set_deepest(k, exec_meld(above != NULL ? top : NULL, exec_meld_all(k->below)));
    k->below = k->beside = k->above = NULL;
}

bool exec_must_wait(engine_call *k, size_t n) {
    k->is_waiting = !k->has_turn && (k->x->waiting != NULL || !exec_has_room(k->x, n));
    k->has_turn = false;
    k->n_wanted = n;
    if (k->is_waiting) {
        k->arrival = k->x->n_arrivals++;
        exec_wait_after(k, k->x->waiting_end);
        exec_set_deepest(k, exec_meld(k->c->state->root->of_executor, k));
    }
    return k->is_waiting;
}

engine_call *exec_take_turn(engine_executor *x) {
    assert(x != NULL);
    engine_call *first = x->waiting, *deepest = first != NULL ? first->c->state->root->of_executor : NULL;
    if (first == NULL || !exec_has_room(x, deepest->n_wanted)) {
        return NULL;
    }
    engine_call *before = deepest->last_waiting != first ? deepest->last_waiting : NULL;
    exec_stop_waiting(deepest);
    deepest->is_waiting = false;
    deepest->has_turn = true;
    if (deepest != first) { /* the program's first call gets the deepest one's place in the list */
        exec_leave_list(first);
        exec_wait_after(first, before);
    }
    return deepest;
}

void exec_call_free(engine_call *k) {
    assert(k != NULL);
    if (k->is_waiting) {
        exec_stop_waiting(k);
    }
    engine_state *es = exec_state_of(k->c->state);
    if (k->ahead_of == NULL && es != NULL && es->ahead != NULL && es->ahead->waits == k) {
        exec_drop_ahead(es);
    }
    exec_release(k);
    for (size_t i = 0; k->ends != NULL && i < k->c->n_outputs; i++) {
        mem_free(k->ends[i]);
    }
    for (size_t i = 0; k->choices != NULL && i < k->c->n_choices; i++) {
        mem_free(k->choices[i].ids);
        mem_free(k->choices[i].logprobs);
        mem_free(k->choices[i].alone);
    }
    exec_ids_drop(k->answer);
    mem_free(k->ends);
    mem_free(k->caps);
    mem_free(k->choices);
    k->c->of_executor = NULL;
    mem_free(k);
}

void exec_cancel(void *executor, program_call *c) {
    assert(c != NULL);
    (void)executor;
    exec_drop_ahead(exec_state_of(c->state));
    exec_call_free(c->of_executor);
}

quire_err exec_begin_stage(engine_call *k, engine_stage stage, size_t n, quire_error *err) {
    assert(k != NULL);
    exec_release(k);
    k->stage = stage;
    k->requests = mem_new(n, sizeof *k->requests);
    return mem_check_for(k->requests, "requests", err);
}

static quire_err exec_set_address(const engine_call *k, quire_request *r) {
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    const char *model = s->root->program.model;
    TRY(quire_request_tenant(r, s->root->tenant));
    if (model != NULL && !s->root->is_without_adapter && quire_adapter_known(k->x->e, model)) {
        TRY(quire_request_adapter(r, model));
    }
    if ((k->stage != ENGINE_GEN && k->stage != ENGINE_PREFIX) || quire_request_describe(r)->beam_width != 0) {
        return QUIRE_OK;
    }
    if (es->park == NULL) {
        TRY(quire_park_open(k->x->e, &es->park));
    }
    return quire_request_park(r, 0, es->park);
}

/* Sets the tenant, adapter, park, program and depth of a request of the stage. */
static quire_err exec_address(engine_call *k, quire_request *r, quire_error *err) {
    const quire_state *s = k->c->state;
    quire_request_step(r, s->root->number, s->depth);
    quire_err e = exec_set_address(k, r);
    return e == QUIRE_OK ? e
           : e == QUIRE_INVALID
               ? err_set(err, e, -1, "the field lora cannot be combined with an adapter as the model, %s",
                         s->root->program.model)
               : err_set(err, e, -1, "out of memory for a request");
}

void exec_count_running(engine_call *k, size_t n) {
    k->n_running += n;
    k->x->n_running += n;
}

quire_err exec_submit(engine_call *k, quire_request *r, int32_t index, bool is_alone, quire_error *err) {
    assert(k != NULL);
    call_request *to = &k->requests[k->n_requests];
    *to = (call_request){.call = k, .index = index, .is_alone = is_alone};
    bool is_held = k->ahead_of != NULL && k->stage == ENGINE_GEN;
    quire_err e = exec_address(k, r, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    size_t n_sequences =
        quire_request_describe_more(r)->prompt_only ? 0 : (size_t)quire_request_describe(r)->n_choices;
    TRY((is_held ? quire_prepare : quire_submit)(k->x->q, r, to, &to->stream, err));
    exec_count_running(k, is_held ? 0 : n_sequences);
    k->n_requests++;
    k->n_open++;
    return QUIRE_OK;
}

quire_err exec_submit_prompt(engine_call *k, const int32_t *ids, size_t n, size_t start, int32_t index,
                             bool is_alone, quire_error *err) {
    assert(k != NULL);
    char fields[128];
    quire_request *r;
    TRY(quire_request_ids(k->x->e, ids, n, &r, err));
    int length = snprintf(fields, sizeof fields,
                          start > 0 ? "{\"max_tokens\": 0, \"echo\": true, \"prompt_logprobs\": 0, "
                                      "\"prompt_logprobs_start\": %zu}"
                                    : "{\"max_tokens\": 0, \"echo\": true}",
                          start);
    const program_steps *p = &k->c->state->root->program;
    quire_err e = quire_request_set_all(r, fields, (size_t)length, err);
    if (e == QUIRE_OK && p->common != NULL) {
        e = quire_request_set_all(r, p->common, p->n_common, err);
    }
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    return exec_submit(k, r, index, is_alone, err);
}

/* The life of states (open, fork, fail, close), and the queue of events. */
#include "base/clock.h"

#include "base/mem.h"
#include "base/rng.h"
#include "program/program_state.h"
#include <assert.h>

/* ---- events ---- */

static void event_queue(quire_programs *ps, program_event *e) {
    e->next = NULL;
    e->is_queued = true;
    *ps->events_last = e;
    ps->events_last = &e->next;
}

void program_event_free(program_event *e) {
    if (e != NULL && !e->is_kept) {
        strbuf_deinit(&e->text);
        mem_free(e);
    }
}

static bool state_is_below(const quire_state *s, const quire_state *above) {
    while (s != NULL && s != above) {
        s = s->parent;
    }
    return s != NULL;
}

/* Removes the queued events of s and its descendants; IDLE only if s is being freed. */
static void events_drop(quire_programs *ps, const quire_state *s, bool is_freed) {
    program_event **at = &ps->events;
    while (*at != NULL) {
        program_event *e = *at;
        bool is_end = e->event.kind == QUIRE_PROGRAM_IDLE;
        if ((is_freed || !is_end) && e->event.state->root == s->root && state_is_below(e->event.state, s)) {
            *at = e->next;
            e->is_queued = false;
            program_event_free(e);
        } else {
            at = &e->next;
        }
    }
    ps->events_last = at;
}

static program_event event_of(quire_state *s, quire_program_event_kind kind) {
    return (program_event){
        .event = {.size = sizeof(quire_program_event), .kind = kind, .state = s, .user = s->root->user}};
}

quire_err program_event_add(quire_state *s, quire_program_event_kind kind, const char *name, int32_t choice,
                            str text) {
    program_event *e = mem_new(1, sizeof *e);
    TRY(mem_check(e));
    *e = event_of(s, kind);
    strcpy(e->name, name);
    e->event.choice = choice;
    if (strbuf_add(&e->text, text.p, text.n) != QUIRE_OK) {
        program_event_free(e);
        return QUIRE_NO_MEMORY;
    }
    event_queue(s->root->all, e);
    return QUIRE_OK;
}

/* ---- status ---- */

static bool status_is_busy(program_status status) {
    return status != STATE_REST && status != STATE_FAILED;
}

void program_state_set(quire_state *s, program_status status) {
    assert(s != NULL);
    program_root *r = s->root;
    r->n_busy += (status_is_busy(status) ? 1 : 0) - (status_is_busy(s->status) ? 1 : 0);
    s->status = status;
    bool is_settled = !status_is_busy(status) && (!s->is_of_call || status == STATE_FAILED);
    if (is_settled && r->all->ops->settle != NULL) {
        r->all->ops->settle(r->all->executor, s);
    }
    if (r->idle.is_queued) { /* IDLE is queued again, after later events, when the root is idle again */
        program_event **at = &r->all->events;
        while (*at != &r->idle) {
            at = &(*at)->next;
        }
        *at = r->idle.next;
        r->all->events_last = *at == NULL ? at : r->all->events_last;
        r->idle.is_queued = false;
    }
    if (r->n_busy == 0) {
        r->ended_us = clock_us();
        r->idle = event_of(r->top, QUIRE_PROGRAM_IDLE);
        r->idle.is_kept = true;
        event_queue(r->all, &r->idle);
    }
}

void program_state_ready(quire_state *s) {
    quire_programs *ps = s->root->all;
    program_state_set(s, STATE_READY);
    if (!s->is_queued) {
        s->is_queued = true;
        s->next_ready = NULL;
        *ps->ready_last = s;
        ps->ready_last = &s->next_ready;
    }
}

/* Whether s and all its descendants are at REST or FAILED. */
static bool program_state_is_over(const quire_state *s) {
    assert(s != NULL);
    bool is_over = !status_is_busy(s->status);
    for (const quire_state *f = s->first; is_over && f != NULL; f = f->next) {
        is_over = program_state_is_over(f);
    }
    return is_over;
}

bool program_forks_are_over(const quire_state *s) {
    assert(s != NULL);
    bool are = true;
    for (const quire_state *f = s->first; are && f != NULL; f = f->next) {
        are = f->is_joined || program_state_is_over(f);
    }
    return are;
}

void program_state_wake_parents(quire_state *s) {
    assert(s != NULL);
    for (quire_state *p = s->parent; p != NULL; p = p->parent) {
        if (p->status == STATE_JOINING && program_forks_are_over(p)) {
            program_state_ready(p);
        }
        if (status_is_busy(p->status)) {
            return;
        }
    }
}

/* ---- failing ---- */

void program_call_free(program_call *c) {
    assert(c != NULL);
    for (size_t i = 0; i < c->n_choices; i++) {
        program_text_drop(c->choices[i]);
    }
    for (size_t i = 0; i < c->n_outputs; i++) {
        strbuf *const texts[] = {&c->outputs[i].text, &c->outputs[i].content, &c->outputs[i].reasoning,
                                 &c->outputs[i].calls, &c->outputs[i].arguments};
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            strbuf_deinit(texts[k]);
        }
        mem_free(c->outputs[i].ids);
    }
    mem_free(c->choices);
    mem_free(c->outputs);
    mem_free(c->scores);
    mem_free(c);
}

static void call_cancel(quire_state *s) {
    program_call *c = s->call;
    if (c != NULL) {
        s->call = NULL;
        s->root->all->ops->cancel(s->root->all->executor, c);
        program_call_free(c);
    }
}

void program_state_fail(quire_state *s, const quire_error *why) {
    assert(s != NULL);
    if (s->status == STATE_FAILED) {
        return;
    }
    call_cancel(s);
    s->n_frames = 0;
    s->error = *why;
    s->failed = event_of(s, QUIRE_PROGRAM_FAILED);
    s->failed.is_kept = true;
    event_queue(s->root->all, &s->failed);
    for (quire_state *f = s->first; f != NULL; f = f->next) {
        if (f->status == STATE_WAITING) {
            program_state_fail(f, why);
        }
    }
    program_state_set(s, STATE_FAILED);
    program_state_wake_parents(s);
}

void program_root_fail(program_root *r, const quire_error *why) {
    assert(r != NULL);
    for (quire_state *s = r->states; s != NULL; s = s->next_of_all) {
        if (status_is_busy(s->status)) {
            program_state_fail(s, why);
        }
    }
}

void program_state_cancel(quire_state *s) {
    quire_error why = {0};
    err_set(&why, QUIRE_CANCELLED, -1, "cancelled");
    for (quire_state *t = s->root->states; t != NULL; t = t->next_of_all) {
        if (status_is_busy(t->status) && state_is_below(t, s)) {
            program_state_fail(t, &why);
        }
    }
}

void program_state_mute(quire_state *s) {
    events_drop(s->root->all, s, false);
}

/* ---- bounds ---- */

quire_err program_count_steps(program_root *r, size_t n, quire_error *err) {
    assert(r != NULL);
    r->n_steps += (int64_t)n;
    if (r->n_steps > r->limits.max_steps) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program ran more than %lld steps",
                       (long long)r->limits.max_steps);
    }
    return QUIRE_OK;
}

quire_err program_call_reserve(program_call *c, int64_t n, quire_error *err) {
    assert(c != NULL);
    program_root *r = c->state->root;
    if (n > r->limits.max_tokens - r->n_tokens) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program has more than %lld tokens",
                       (long long)r->limits.max_tokens);
    }
    r->n_tokens += n;
    return QUIRE_OK;
}

bool program_call_count(program_call *c, int64_t n) {
    quire_error why = {0};
    if (program_call_reserve(c, n, &why) == QUIRE_OK) {
        return true;
    }
    program_root_fail(c->state->root, &why);
    return false;
}

/* ---- parts and frames ---- */

quire_err program_state_add(quire_state *s, program_part part, quire_error *err) {
    assert(s != NULL);
    TRY(err_set(err, mem_grow(&s->parts, &s->cap_parts, s->n_parts + 1, sizeof *s->parts), -1,
                "out of memory for a state"));
    s->parts[s->n_parts++] = part;
    return QUIRE_OK;
}

quire_err program_state_end_turn(quire_state *s, quire_error *err) {
    if (!s->in_turn) {
        return QUIRE_OK;
    }
    s->in_turn = false;
    return program_state_add(s, (program_part){.kind = PART_END}, err);
}

quire_err program_state_begin_turn(quire_state *s, const char *role, quire_error *err) {
    if (!s->has_turns && s->n_parts > 0) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "a turn of role %s follows text outside turns; a state must have turns from its "
                       "beginning or none at all",
                       role);
    }
    TRY(program_state_end_turn(s, err));
    s->has_turns = s->in_turn = true;
    return program_state_add(s, (program_part){.kind = PART_TURN, .role = role}, err);
}

quire_err program_state_want_turn(quire_state *s, quire_error *err) {
    return s->has_turns && !s->in_turn ? program_state_begin_turn(s, "assistant", err) : QUIRE_OK;
}

quire_err program_state_push(quire_state *s, program_frame frame, quire_error *err) {
    assert(s != NULL);
    if ((int64_t)(s->n_frames + s->n_branch) > s->root->limits.max_depth) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program's steps and forks are nested more than %d deep",
                       (int)s->root->limits.max_depth);
    }
    TRY(err_set(err, mem_grow(&s->frames, &s->cap_frames, s->n_frames + 1, sizeof *s->frames), -1,
                "out of memory for a state"));
    s->frames[s->n_frames++] = frame;
    return QUIRE_OK;
}

/* ---- states ---- */

static void state_free(quire_state *s) {
    call_cancel(s);
    s->root->all->ops->drop(s->root->all->executor, s);
    for (size_t i = 0; i < s->n_variables; i++) {
        program_value_drop(s->variables[i].value);
    }
    step_list_deinit(&s->own);
    hash_index_deinit(&s->names);
    program_value_drop(s->absent);
    mem_free(s->branch);
    mem_free(s->variables);
    program_shadow_free(s);
}

void program_shadow_free(quire_state *s) {
    for (size_t i = 0; s != NULL && i < s->n_parts; i++) {
        program_text_drop(s->parts[i].text);
        program_value_drop(s->parts[i].value);
    }
    if (s != NULL) {
        mem_free(s->frames);
        mem_free(s->parts);
    }
    mem_free(s);
}

/* Appends shared copies of the parts of `from`. s must have room for them. */
static void state_copy_parts(quire_state *s, const quire_state *from) {
    for (size_t i = 0; i < from->n_parts; i++) {
        program_part p = from->parts[i];
        p.text = p.text != NULL ? program_text_share(p.text) : NULL;
        p.value = p.value != NULL ? program_value_share(p.value) : NULL;
        s->parts[s->n_parts++] = p;
    }
    s->has_turns = from->has_turns;
    s->in_turn = from->in_turn;
}

quire_state *program_shadow_new(const quire_state *s, bool has_parts) {
    quire_state *to = mem_new(1, sizeof *to);
    size_t n = has_parts ? s->n_parts : 0;
    if (to == NULL || mem_grow(&to->parts, &to->cap_parts, n, sizeof *to->parts) != QUIRE_OK ||
        mem_grow(&to->frames, &to->cap_frames, s->n_frames, sizeof *to->frames) != QUIRE_OK) {
        program_shadow_free(to);
        return NULL;
    }
    to->root = s->root;
    to->branch = s->branch;
    to->n_branch = s->n_branch;
    to->variables = s->variables;
    to->n_variables = s->n_variables;
    to->names = s->names;
    to->depth = s->depth + 1;
    to->n_frames = s->n_frames;
    mem_copy(to->frames, s->frames, s->n_frames * sizeof *to->frames);
    if (has_parts) {
        state_copy_parts(to, s);
    }
    return to;
}

/* Makes a WAITING state of r, its parent's fork number `index`. NULL: out of memory. */
static quire_state *state_new(program_root *r, quire_state *parent, int32_t index) {
    quire_state *s = mem_new(1, sizeof *s);
    size_t n = parent != NULL ? parent->n_branch + 1 : 0;
    if (s == NULL || (s->branch = mem_new(n, sizeof *s->branch)) == NULL) {
        mem_free(s);
        return NULL;
    }
    if (parent != NULL) {
        mem_copy(s->branch, parent->branch, parent->n_branch * sizeof *s->branch);
        s->branch[n - 1] = index;
        *(parent->last != NULL ? &parent->last->next : &parent->first) = s;
        parent->last = s;
    }
    s->root = r;
    s->parent = parent;
    s->n_branch = n;
    s->record = -1;
    s->status = STATE_WAITING;
    s->next_of_all = r->states;
    r->states = s;
    r->n_states++;
    r->n_busy++;
    return s;
}

quire_err program_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err) {
    assert(s != NULL);
    program_root *r = s->root;
    if (n > r->limits.max_states - r->n_states) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program has more than %d states",
                       (int)r->limits.max_states);
    }
    if (s->n_branch + 1 > (size_t)r->limits.max_depth) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the program's forks are nested more than %d deep",
                       (int)r->limits.max_depth);
    }
    int32_t first = s->last != NULL ? s->last->branch[s->last->n_branch - 1] + 1 : 0;
    for (int32_t i = 0; i < n; i++) {
        forks[i] = state_new(r, s, first + i);
        TRY(mem_check_for(forks[i], "a state", err));
    }
    return QUIRE_OK;
}

static quire_err state_make_room(quire_state *s, const quire_state *from) {
    TRY(mem_grow(&s->parts, &s->cap_parts, from->n_parts, sizeof *s->parts));
    TRY(mem_grow(&s->variables, &s->cap_variables, from->n_variables, sizeof *s->variables));
    return s->root->all->ops->fork(s->root->all->executor, from, s);
}

/* Copies the parent's parts, variables and the executor's state to a fork. */
static quire_err state_inherit(quire_state *s, quire_error *err) {
    const quire_state *from = s->parent;
    TRY(program_count_bytes(
        s->root, from->n_parts * sizeof *from->parts + from->n_variables * sizeof *from->variables, err));
    TRY(err_set(err, state_make_room(s, from), -1, "out of memory for a state"));
    state_copy_parts(s, from);
    for (size_t i = 0; i < from->n_variables; i++) {
        program_variable *to = &s->variables[i];
        TRY(err_set(err, hash_index_add(&s->names, from->variables[i].hash, (uint32_t)i), -1,
                    "out of memory for a state"));
        *to = from->variables[i];
        program_value_share(to->value);
        to->join = 0;
        to->is_own = false;
        s->n_variables++;
    }
    s->record = from->record;
    s->depth = from->depth + 1;
    return QUIRE_OK;
}

quire_err program_state_begin(quire_state *s, const step_list *list, quire_error *err) {
    TRY(state_inherit(s, err));
    TRY(program_state_push(s, (program_frame){.list = list}, err));
    program_state_ready(s);
    return QUIRE_OK;
}

void program_state_continue(quire_state *s) {
    assert(s != NULL);
    if (s->status == STATE_REST) {
        program_state_ready(s);
    }
}

/* ---- opening and closing ---- */

quire_err programs_open(const program_ops *ops, void *executor, quire_programs **out) {
    quire_programs *ps = mem_new(1, sizeof *ps);
    *out = ps;
    if (ps == NULL) {
        ops->close(executor);
        return QUIRE_NO_MEMORY;
    }
    ps->ops = ops;
    ps->executor = executor;
    ps->ready_last = &ps->ready;
    ps->events_last = &ps->events;
    return QUIRE_OK;
}

void programs_close(quire_programs *ps) {
    if (ps == NULL) {
        return;
    }
    while (ps->roots != NULL) {
        program_close(ps->roots);
    }
    ps->ops->close(ps->executor);
    program_event_free(ps->delivered);
    mem_free(ps);
}

void program_close(program_root *r) {
    assert(r != NULL);
    quire_programs *ps = r->all;
    if (r->top != NULL) {
        events_drop(ps, r->top, true);
    }
    if (ps->delivered != NULL && ps->delivered->event.state->root == r) {
        program_event_free(ps->delivered);
        ps->delivered = NULL;
    }
    quire_state **at = &ps->ready;
    while (*at != NULL) {
        if ((*at)->root == r) {
            *at = (*at)->next_ready;
        } else {
            at = &(*at)->next_ready;
        }
    }
    ps->ready_last = at;
    for (quire_state *s = r->states, *next; s != NULL; s = next) {
        next = s->next_of_all;
        state_free(s);
    }
    *(r->previous != NULL ? &r->previous->next : &ps->roots) = r->next;
    if (r->next != NULL) {
        r->next->previous = r->previous;
    }
    for (size_t i = 0; i < r->n_records; i++) {
        program_value_drop(r->records[i].value);
    }
    program_steps_deinit(&r->program);
    mem_free(r->records);
    mem_free(r);
}

void quire_program_limits_init_sized(quire_program_limits *l, size_t size) {
    const quire_program_limits all = {.size = size,
                                      .max_states = 1024,
                                      .max_depth = 16,
                                      .max_steps = 65536,
                                      .max_tokens = 4194304,
                                      .max_bytes = (int64_t)64 << 20};
    memset(l, 0, size);
    memcpy(l, &all, size < sizeof all ? size : sizeof all);
}

static quire_err root_set_options(program_root *r, const quire_state_options *o, quire_error *err) {
    quire_program_limits_init(&r->limits);
    if (o == NULL) {
        return QUIRE_OK;
    }
    r->user = o->user;
    if (o->limits != NULL) {
        size_t size = o->limits->size < sizeof r->limits ? o->limits->size : sizeof r->limits;
        memcpy(&r->limits, o->limits, size);
        r->limits.size = sizeof r->limits;
    }
    if (o->tenant != NULL) {
        if (strlen(o->tenant) > QUIRE_TENANT_BYTES) {
            return err_set(err, QUIRE_INVALID, -1, "a tenant's name has more than %d bytes",
                           QUIRE_TENANT_BYTES);
        }
        strcpy(r->tenant, o->tenant);
    }
    return QUIRE_OK;
}

quire_err program_open(quire_programs *ps, program_steps *program, const quire_state_options *o,
                       quire_state **out, quire_error *err) {
    static const step inputs = {.kind = STEP_IF};
    program_root *r = mem_new(1, sizeof *r);
    *out = NULL;
    if (r == NULL) {
        program_steps_deinit(program != NULL ? program : &(program_steps){0});
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a program");
    }
    r->all = ps;
    r->next = ps->roots;
    if (r->next != NULL) {
        r->next->previous = r;
    }
    ps->roots = r;
    bool is_given = program != NULL;
    if (is_given) {
        r->program = *program;
        *program = (program_steps){0};
    }
    r->info = (quire_program_info){.size = sizeof r->info,
                                   .stream = r->program.stream,
                                   .explain = r->program.explain,
                                   .model = r->program.model};
    r->seed = r->program.has_seed ? r->program.seed : rng_os_seed();
    r->number = rng_os_seed() | 1;
    r->began_us = clock_us();
    quire_err e = QUIRE_OK;
    TRY_DONE(e, root_set_options(r, o, err));
    r->top = state_new(r, NULL, 0);
    TRY_DONE(e, mem_check_for(r->top, "a state", err));
    r->top->is_of_call = !is_given;
    e = program_state_push(r->top, (program_frame){.list = is_given ? &r->program.steps : &r->top->own}, err);
    if (r->program.inputs.n > 0) {
        TRY_DONE(e,
                 program_state_push(r->top, (program_frame){.list = &r->program.inputs, .of = &inputs}, err));
    }
done:
    if (e != QUIRE_OK) {
        program_close(r);
        return e;
    }
    program_state_ready(r->top);
    *out = r->top;
    return QUIRE_OK;
}

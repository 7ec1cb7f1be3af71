/* The functions of quire_program.h, which append steps to states and read results. */
#include "base/mem.h"

#include "execute/engine_call.h"
#include "execute/program_json.h"
#include <assert.h>

/* ---- what runs programs ---- */

quire_err quire_programs_open(quire_engine *e, quire_programs **out) {
    void *executor;
    *out = NULL;
    TRY(engine_executor_open(e, &executor));
    return programs_open(&engine_ops, executor, out);
}

void quire_programs_close(quire_programs *ps) {
    programs_close(ps);
}

bool quire_programs_idle(const quire_programs *ps) {
    return ps->ops->idle == NULL || ps->ops->idle(ps->executor);
}

int quire_programs_fd(const quire_programs *ps) {
    return ps->ops->fd(ps->executor);
}

void quire_programs_wait(quire_programs *ps, int64_t timeout_us) {
    assert(ps != NULL);
    if (ps->ready == NULL && ps->events == NULL && !ps->is_cut) {
        int64_t left_us = programs_time_left(ps);
        bool is_less = left_us >= 0 && (timeout_us < 0 || left_us < timeout_us);
        ps->ops->wait(ps->executor, is_less ? left_us : timeout_us);
    }
}

void quire_programs_turn(quire_programs *ps, int64_t us) {
    programs_begin_turn(ps, us);
}

bool quire_programs_has_more(const quire_programs *ps) {
    return ps->is_cut;
}

bool quire_programs_next(quire_programs *ps, quire_program_event *out) {
    return programs_next_event(ps, out);
}

/* ---- states ---- */

quire_err quire_state_open(quire_programs *ps, const quire_state_options *o, quire_state **out,
                           quire_error *err) {
    return program_open(ps, NULL, o, out, err);
}

quire_err quire_program_open(quire_programs *ps, const char *json, size_t n, const quire_state_options *o,
                             quire_state **out, quire_error *err) {
    program_steps program;
    *out = NULL;
    TRY(program_read((str){json, n}, &program, err));
    return program_open(ps, &program, o, out, err);
}

void quire_state_cancel(quire_state *s) {
    program_state_cancel(s);
}

void quire_state_close(quire_state *s) {
    if (s == NULL) {
        return;
    }
    if (s->parent == NULL) {
        program_close(s->root);
    } else {
        program_state_cancel(s);
        program_state_mute(s);
    }
}

const int32_t *quire_state_branch(const quire_state *s, size_t *n) {
    *n = s->n_branch;
    return s->branch;
}

/* ---- steps ---- */

/* Appends a new step to s. NULL: it cannot; err says why. */
static step *door_step(quire_state *s, step_kind kind, quire_error *err) {
    if (!s->is_of_call) {
        err_set(err, QUIRE_INVALID, -1, "the state runs the steps of a program; calls cannot append to it");
        return NULL;
    }
    if (s->status == STATE_FAILED) {
        err_set(err, s->error.code, -1, "%s", s->error.message);
        return NULL;
    }
    step *made = step_list_add(&s->own, kind);
    if (made == NULL) {
        err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a step");
    }
    return made;
}

/* Call with the result e of filling in an appended step: an error removes it. Returns
 * e. */
static quire_err door_end(quire_state *s, quire_err e) {
    if (e != QUIRE_OK) {
        step_list_drop_last(&s->own);
        return e;
    }
    program_state_continue(s);
    return QUIRE_OK;
}

#define DOOR_STEP(made, s, kind, err)                                                                        \
    step *made = door_step(s, kind, err);                                                                    \
    if (made == NULL) {                                                                                      \
        return (err) != NULL ? (err)->code : QUIRE_INVALID;                                                  \
    }

quire_err quire_state_text(quire_state *s, const char *text, size_t n, quire_error *err) {
    DOOR_STEP(made, s, STEP_TEXT, err)
    return door_end(s, step_text_read((str){text, n}, &made->text, err));
}

static quire_err door_copy(void *to, const void *from, size_t n, quire_error *err) {
    void *copy = mem_dup(from, n);
    memcpy(to, &copy, sizeof copy);
    return mem_check_for(copy, "a step", err);
}

quire_err quire_state_tokens(quire_state *s, const int32_t *ids, size_t n, quire_error *err) {
    DOOR_STEP(made, s, STEP_TOKENS, err)
    made->n_ids = n;
    return door_end(s, door_copy(&made->ids, ids, n * sizeof *ids, err));
}

quire_err quire_state_role(quire_state *s, const char *role, quire_error *err) {
    DOOR_STEP(made, s, STEP_ROLE, err)
    return door_end(s, step_name_set(made->role, str_of(role), err));
}

quire_err quire_state_role_end(quire_state *s, quire_error *err) {
    DOOR_STEP(made, s, STEP_END, err)
    (void)made;
    return door_end(s, QUIRE_OK);
}

quire_err quire_state_gen(quire_state *s, const char *name, const char *fields, size_t n_fields,
                          quire_error *err) {
    DOOR_STEP(made, s, STEP_GEN, err)
    quire_err e = step_name_set(made->name, str_of(name), err);
    if (e == QUIRE_OK && fields != NULL) {
        TRY_DONE(e, program_check_fields((str){fields, n_fields}, err));
        TRY_DONE(e, door_copy(&made->fields, fields, n_fields, err));
        made->n_fields = n_fields;
    }
done:
    return door_end(s, e);
}

quire_err quire_state_select(quire_state *s, const char *name, const char *const *choices,
                             const size_t *sizes, size_t n, quire_select_method method, quire_error *err) {
    DOOR_STEP(made, s, STEP_SELECT, err)
    quire_err e = step_name_set(made->name, str_of(name), err);
    if (n == 0 || n > PROGRAM_MAX_CHOICES) {
        TRY_DONE(e, err_set(err, QUIRE_BAD_REQUEST, -1, "select %s has %zu choices; it must have 1 to %d",
                            name, n, PROGRAM_MAX_CHOICES));
    }
    made->method = method;
    made->choices = mem_new(n, sizeof *made->choices);
    TRY_DONE(e, mem_check_for(made->choices, "choices", err));
    for (size_t i = 0; e == QUIRE_OK && i < n; i++) {
        e = step_text_read((str){choices[i], sizes[i]}, &made->choices[i], err);
        made->n_choices++;
    }
done:
    return door_end(s, e);
}

quire_err quire_state_set(quire_state *s, const char *name, const char *text, size_t n, quire_error *err) {
    DOOR_STEP(made, s, STEP_SET, err)
    quire_err e = step_name_set(made->name, str_of(name), err);
    if (e == QUIRE_OK) {
        e = step_text_read((str){text, n}, &made->text, err);
    }
    return door_end(s, e);
}

quire_err quire_state_fork(quire_state *s, int32_t n, quire_state **forks, quire_error *err) {
    DOOR_STEP(made, s, STEP_FORK, err)
    made->is_of_call = true;
    made->times = n;
    quire_err e = n >= 1 ? program_fork(s, n, forks, err)
                         : err_set(err, QUIRE_BAD_REQUEST, -1, "a fork must make at least one state");
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        forks[i]->is_of_call = forks[i]->is_alike = true;
    }
    return door_end(s, e);
}

quire_err quire_state_join(quire_state *s, quire_error *err) {
    DOOR_STEP(made, s, STEP_JOIN, err)
    (void)made;
    return door_end(s, QUIRE_OK);
}

quire_err quire_state_steps(quire_state *s, const char *json, size_t n, quire_error *err) {
    step_list read = {0};
    TRY(program_read_steps((str){json, n}, &read, err));
    step *made = door_step(s, STEP_IF, err); /* TEST_NONE never holds, so the second list runs */
    if (made == NULL) {
        step_list_deinit(&read);
        return err != NULL ? err->code : QUIRE_INVALID;
    }
    made->lists = mem_new(2, sizeof *made->lists);
    made->n_lists = made->lists != NULL ? 2 : 0;
    quire_err e = mem_check_for(made->lists, "steps", err);
    if (e == QUIRE_OK) {
        made->lists[1] = read;
    } else {
        step_list_deinit(&read);
    }
    return door_end(s, e);
}

/* ---- results ---- */

quire_err quire_state_get(const quire_state *s, const char *name, int32_t item, quire_variable *out,
                          quire_error *err) {
    const program_value *v = program_state_find(s, name);
    if (v == NULL) {
        return s->status == STATE_FAILED ? err_set(err, s->error.code, -1, "%s", s->error.message)
               : s->status == STATE_REST ? err_set(err, QUIRE_NOT_FOUND, -1, "no step sets variable %s", name)
                                         : err_set(err, QUIRE_BUSY, -1, "variable %s is not set yet", name);
    }
    if (item >= 0) {
        if (!v->is_list || (size_t)item >= v->n_items) {
            return err_set(err, QUIRE_NOT_FOUND, -1, "variable %s has no item %d", name, (int)item);
        }
        v = v->items[item];
    }
    if (v->error != NULL) {
        return err_set(err, v->error->code, -1, "%s", v->error->message);
    }
    const program_record *r = v->record >= 0 ? &s->root->records[v->record] : NULL;
    const quire_variable all = {.size = out->size,
                                .text = v->text.n > 0 ? v->text.p : "",
                                .n_text = v->text.n,
                                .ids = v->ids,
                                .n_ids = v->n_ids,
                                .n_items = (int32_t)v->n_items,
                                .choice = v->choice,
                                .scores = v->scores,
                                .n_scores = v->n_scores,
                                .prompt_tokens = r != NULL ? r->prompt_tokens : 0,
                                .computed_tokens = r != NULL ? r->computed_tokens : 0,
                                .completion_tokens = r != NULL ? r->completion_tokens : 0,
                                .finish = v->finish,
                                .seed = v->seed,
                                .has_seed = v->has_seed};
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return QUIRE_OK;
}

const int32_t *quire_state_ids(const quire_state *s, size_t *n) {
    return s->root->all->ops->tokens(s->root->all->executor, s, n);
}

void quire_state_usage(const quire_state *s, quire_program_usage *out) {
    assert(s != NULL && out != NULL);
    const quire_program_usage all = program_usage(s->root);
    size_t size = out->size;
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
    out->size = size;
}

quire_err quire_state_report(const quire_state *s, const char *id, bool explain, char **json, size_t *n) {
    strbuf to = {0};
    quire_err e = program_report(s->root, id, explain, &to);
    *json = NULL;
    if (e != QUIRE_OK) {
        strbuf_deinit(&to);
        return e;
    }
    *json = to.p;
    *n = to.n;
    return QUIRE_OK;
}

const quire_program_info *quire_program_describe(const quire_state *s) {
    return &s->root->info;
}

void quire_program_without_adapter(quire_state *s) {
    s->root->is_without_adapter = true;
}

/* Runs the steps of states, and looks ahead of running gens. */
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "program/program_state.h"
#include "json/json.h"

#define COMPARED_AT_ONCE 64                /* bytes compared per unit of work */
#define MAX_LIST_BYTES   ((size_t)1 << 20) /* most bytes of a text that is read as a JSON array */

/* ---- forks ---- */

/* Gets the texts for a fork over a variable: the items of a list, or of a text that is
 * a JSON array of texts. *out has one reference. */
static quire_err fork_items_of(program_root *r, const program_value *v, const char *name, program_value **out,
                               quire_error *err) {
    if (v == NULL || v->error != NULL) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       v == NULL ? "fork: variable %s is not set here" : "fork: variable %s has no value: %s",
                       name, v != NULL ? v->error->message : "");
    }
    if (v->is_list) {
        *out = program_value_share((program_value *)v);
        return QUIRE_OK;
    }
    json_value *array =
        v->text.n <= MAX_LIST_BYTES ? json_document((str){v->text.n > 0 ? v->text.p : "", v->text.n}) : NULL;
    program_value *list = program_value_new();
    /* an array that is invalid or too long is NULL */
    quire_err e = json_is(array, JSON_KIND_ARRAY) ? mem_check(list) : QUIRE_BAD_REQUEST;
    TRY_DONE(e, program_count_items(r, json_length(array), err));
    for (size_t i = 0; i < json_length(array); i++) {
        const json_value *item = json_at(array, i);
        TRY_DONE(e, json_is(item, JSON_KIND_TEXT) ? program_value_add(list, program_value_of(json_str(item)))
                                                  : QUIRE_BAD_REQUEST);
    }
done:
    json_drop(array);
    if (e != QUIRE_OK) {
        program_value_drop(list);
        return e == QUIRE_TOO_LARGE
                   ? e
                   : err_set(err, e, -1,
                             e == QUIRE_NO_MEMORY
                                 ? "out of memory for list %s"
                                 : "fork: variable %s is neither a list nor a JSON array of strings",
                             name);
    }
    *out = list;
    return QUIRE_OK;
}

/* Makes a value from the expanded text. *out has one reference. */
static quire_err value_expand(const quire_state *s, const step_text *t, program_value **out,
                              quire_error *err) {
    program_text *text;
    TRY(program_text_expand(s, t, &text, err));
    *out = program_value_new();
    if (*out != NULL) {
        (*out)->text = text->text;
        text->text = (strbuf){0};
    }
    program_text_drop(text);
    return mem_check_for(*out, "a value", err);
}

/* Makes a list from n expanded texts. */
static quire_err list_expand(const quire_state *s, const step_text *texts, size_t n, program_value **out,
                             quire_error *err) {
    program_value *list = program_value_new(), *item;
    quire_err e = mem_check_for(list, "a list", err);
    TRY_DONE(e, program_count_items(s->root, n, err));
    for (size_t i = 0; i < n; i++) {
        TRY_DONE(e, value_expand(s, &texts[i], &item, err));
        TRY_DONE(e, mem_check_for(program_value_add(list, item) == QUIRE_OK ? list : NULL, "a list", err));
    }
done:
    if (e != QUIRE_OK) {
        program_value_drop(list);
        return e;
    }
    list->is_list = true;
    *out = list;
    return QUIRE_OK;
}

/* Begins the first st->times waiting forks: quire_state_fork made them for this step. */
static quire_err fork_begin_made(quire_state *s, const step *st, quire_error *err) {
    int32_t n = st->times;
    for (quire_state *f = s->first; f != NULL && n > 0; f = f->next) {
        if (f->status == STATE_WAITING) {
            TRY(program_state_begin(f, &f->own, err));
            n--;
        } else if (f->status == STATE_FAILED && f->n_frames == 0 && f->is_of_call && f->n_parts == 0) {
            n--; /* a fork of this step that was closed before it began */
        }
    }
    return QUIRE_OK;
}

static quire_err fork_begin_all(quire_state *s, const step *st, const program_value *items, int32_t n,
                                quire_error *err) {
    quire_state **forks = mem_new((size_t)n, sizeof(quire_state *));
    TRY(mem_check_for(forks, "forks", err));
    quire_err e = program_fork(s, n, forks, err);
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        forks[i]->is_alike = st->times > 0 || st->name[0] != 0;
        TRY_DONE(e, program_state_begin(forks[i], &st->lists[st->n_lists == 1 ? 0 : i], err));
        if (items != NULL) {
            TRY_DONE(e, program_variable_give(forks[i], st->name, items->items[i], err));
        }
    }
done:
    mem_free(forks);
    return e;
}

static quire_err run_fork(quire_state *s, const step *st, quire_error *err) {
    program_value *items = NULL;
    if (st->is_of_call) {
        return fork_begin_made(s, st, err);
    }
    if (st->over[0] != 0) {
        TRY(fork_items_of(s->root, program_state_find(s, st->over), st->over, &items, err));
    } else if (st->n_choices > 0) {
        TRY(list_expand(s, st->choices, st->n_choices, &items, err));
    }
    size_t n = items != NULL ? items->n_items : st->times > 0 ? (size_t)st->times : st->n_lists;
    quire_err e = n > (size_t)s->root->limits.max_states
                      ? err_set(err, QUIRE_TOO_LARGE, -1, "the program has more than %d states",
                                (int)s->root->limits.max_states)
                      : fork_begin_all(s, st, items, (int32_t)n, err);
    program_value_drop(items);
    return e;
}

/* ---- joins ---- */

/* Returns the value, or error, that fork f itself set for a name; NULL: it set none. */
static program_value *join_own(quire_state *f, const char *name) {
    const program_variable *v = program_variable_find(f, name);
    return v != NULL && v->is_own ? v->value : NULL;
}

/* Returns the value that a join takes for variables that fork f has not set: an error
 * that says why. NULL: out of memory. */
static program_value *join_absent(quire_state *f) {
    quire_error none = {0};
    err_set(&none, QUIRE_NOT_FOUND, -1, "the branch did not set it");
    if (f->absent == NULL) {
        f->absent = program_value_failed(f->status == STATE_FAILED ? &f->error : &none);
    }
    return f->absent;
}

/* Gets a variable's value after a join: that of the only fork that set it; if several
 * did, or forks are alike, a list with an item per fork. *out has one reference. */
static quire_err join_value(const quire_state *s, const char *name, program_value **out, quire_error *err) {
    size_t n_with = 0, n = 0;
    bool is_alike = false;
    program_value *one = NULL;
    for (quire_state *f = s->first; f != NULL; f = f->next) {
        program_value *v = f->is_joined ? NULL : join_own(f, name);
        one = v != NULL ? v : one;
        n_with += v != NULL ? 1 : 0;
        n += f->is_joined ? 0 : 1;
        is_alike = is_alike || (!f->is_joined && f->is_alike);
    }
    if (n_with == 1 && !is_alike) {
        *out = program_value_share(one);
        return QUIRE_OK;
    }
    TRY(program_count_bytes(s->root, sizeof *one + n * sizeof one, err));
    program_value *list = program_value_new();
    quire_err e = mem_check(list);
    for (quire_state *f = s->first; e == QUIRE_OK && f != NULL; f = f->next) {
        program_value *v = f->is_joined ? NULL : join_own(f, name);
        v = v == NULL && !f->is_joined ? join_absent(f) : v;
        e = f->is_joined ? QUIRE_OK : program_value_add(list, v != NULL ? program_value_share(v) : NULL);
    }
    if (e != QUIRE_OK) {
        program_value_drop(list);
        return err_set(err, e, -1, "out of memory for a list");
    }
    *out = list;
    return QUIRE_OK;
}

/* Makes f's last call the last one that s waited for, if it ended later. */
static void join_take_record(quire_state *s, const quire_state *f) {
    const program_record *records = s->root->records;
    bool is_later =
        f->record >= 0 && (s->record < 0 || records[f->record].end_us > records[s->record].end_us);
    s->record = is_later ? f->record : s->record;
}

/* Sets a variable of s that a fork has set, unless this join has set it already. */
static quire_err join_take_one(quire_state *s, const char *name, quire_error *err) {
    const program_variable *had = program_variable_find(s, name);
    if (had != NULL && had->join == s->n_joins) {
        return QUIRE_OK;
    }
    program_value *value = NULL;
    TRY(join_value(s, name, &value, err));
    quire_err e = program_variable_set(s, name, value, err);
    program_value_drop(value);
    TRY(e);
    program_variable_find(s, name)->join = s->n_joins;
    return QUIRE_OK;
}

/* Copies the variables of all forks that are not joined yet; all of them have ended. */
static quire_err join_take(quire_state *s, quire_error *err) {
    s->n_joins++;
    for (const quire_state *f = s->first; f != NULL; f = f->next) {
        for (size_t i = 0; !f->is_joined && i < f->n_variables; i++) {
            if (f->variables[i].is_own) {
                TRY(join_take_one(s, f->variables[i].name, err));
            }
        }
    }
    for (quire_state *f = s->first; f != NULL; f = f->next) {
        if (!f->is_joined) {
            join_take_record(s, f);
            f->is_joined = true;
        }
    }
    return QUIRE_OK;
}

/* ---- tests ---- */

#define LIKE_WORK 4096u /* bytes compared between two counts of the work */

/* Whether a text matches a pattern, in which * stands for any text and ? for one byte.
 * Takes up to the product of their lengths, so the comparisons are counted as work. */
static quire_err text_is_like(program_root *r, str text, str pattern, bool *is, quire_error *err) {
    size_t i = 0, k = 0, star = SIZE_MAX, from = 0, n = 0;
    *is = false;
    while (i < text.n) {
        if (++n % LIKE_WORK == 0) {
            TRY(program_count_work(r, LIKE_WORK, err));
        }
        if (k < pattern.n && pattern.p[k] == '*') {
            star = k++;
            from = i;
        } else if (k < pattern.n && (pattern.p[k] == '?' || pattern.p[k] == text.p[i])) {
            k++;
            i++;
        } else if (star != SIZE_MAX) {
            k = star + 1;
            i = ++from;
        } else {
            return QUIRE_OK;
        }
    }
    while (k < pattern.n && pattern.p[k] == '*') {
        k++;
    }
    *is = k == pattern.n;
    return QUIRE_OK;
}

/* Whether a regex matches somewhere in a text; counts its work. */
static quire_err text_matches(program_root *r, str text, str regex, bool *does, quire_error *err) {
    const int64_t most = program_work_left(r);
    int64_t left = most;
    quire_error why = {0};
    quire_err e = grammar_regex_matches(regex, text, &left, does, &why);
    r->n_work += most - left;
    if (e == QUIRE_TOO_LARGE) {
        return err_set(err, e, -1, "the program compares too much text: \"matches\": \"%.*s\"",
                       regex.n < 60 ? (int)regex.n : 60, regex.p);
    }
    e = e == QUIRE_INVALID || e == QUIRE_UNSUPPORTED ? QUIRE_BAD_REQUEST : e;
    return err_set(err, e, -1, "matches: %s", why.message);
}

static quire_err test_one(program_root *r, step_test_kind kind, str value, str with, bool *holds,
                          quire_error *err) {
    if (kind == TEST_LIKE || kind == TEST_MATCHES) {
        return (kind == TEST_LIKE ? text_is_like : text_matches)(r, value, with, holds, err);
    }
    *holds = kind == TEST_IS ? str_eq(value, with) : str_contains(value, with);
    return QUIRE_OK;
}

static quire_err test_holds(const quire_state *s, const step_test *t, bool *holds, quire_error *err) {
    program_text *value, *with;
    *holds = false;
    if (t->kind == TEST_NONE) {
        return QUIRE_OK;
    }
    TRY(program_text_expand(s, &t->value, &value, err));
    quire_err e = QUIRE_OK;
    for (size_t i = 0; e == QUIRE_OK && !*holds && i < t->n; i++) {
        with = NULL;
        e = program_text_expand(s, &t->texts[i], &with, err);
        if (e == QUIRE_OK) {
            e = test_one(s->root, t->kind, (str){value->text.n > 0 ? value->text.p : "", value->text.n},
                         (str){with->text.n > 0 ? with->text.p : "", with->text.n}, holds, err);
        }
        program_text_drop(with);
    }
    program_text_drop(value);
    return e;
}

/* ---- steps ---- */

static quire_err run_text(quire_state *s, const step *st, quire_error *err) {
    program_text *text;
    TRY(program_state_want_turn(s, err));
    TRY(program_text_expand(s, &st->text, &text, err));
    bool has_text = text->text.n > 0;
    quire_err e =
        has_text ? program_state_add(s, (program_part){.kind = PART_TEXT, .text = text}, err) : QUIRE_OK;
    if (!has_text || e != QUIRE_OK) {
        program_text_drop(text);
    }
    return e;
}

static quire_err run_set(quire_state *s, const step *st, quire_error *err) {
    program_value *v = NULL, *parts;
    quire_err e;
    TRY(st->is_list ? list_expand(s, st->choices, st->n_choices, &v, err)
                    : value_expand(s, &st->text, &v, err));
    if (st->split != NULL) {
        const str text = {v->text.n > 0 ? v->text.p : "", v->text.n};
        e = program_count_work(s->root, v->text.n * strlen(st->split) / COMPARED_AT_ONCE, err);
        if (e == QUIRE_OK) {
            e = program_value_split(s->root, text, st->split, &parts, err);
        }
        program_value_drop(v);
        TRY(e);
        v = parts;
    }
    e = st->is_input ? program_variable_give(s, st->name, v, err) : program_variable_set(s, st->name, v, err);
    program_value_drop(v);
    if (e != QUIRE_OK || st->is_input) {
        return e;
    }
    e = program_event_add(s, QUIRE_PROGRAM_VALUE, st->name, 0, (str){"", 0});
    return err_set(err, e, -1, "out of memory for an event");
}

/* Runs a JOIN step, or the join at the end of a program's list. *waits: it must run again
 * once the state's forks are over. */
static quire_err run_join(quire_state *s, bool *waits, quire_error *err) {
    *waits = !program_forks_are_over(s);
    if (*waits) {
        program_state_set(s, STATE_JOINING);
        return QUIRE_OK;
    }
    return join_take(s, err);
}

static quire_err run_step(quire_state *s, program_frame *f, quire_error *err) {
    const step *st = f->list->items[f->next++];
    bool holds, waits = false;
    switch (st->kind) {
    case STEP_TEXT:
        return run_text(s, st, err);
    case STEP_TOKENS:
        TRY(program_state_want_turn(s, err));
        TRY(program_count_bytes(s->root, st->n_ids * sizeof *st->ids, err));
        return program_state_add(s, (program_part){.kind = PART_TOKENS, .step = st}, err);
    case STEP_ROLE:
        TRY(program_state_begin_turn(s, st->role, err));
        return st->n_lists > 0 ? program_state_push(s, (program_frame){.list = &st->lists[0], .of = st}, err)
                               : QUIRE_OK;
    case STEP_END:
        return program_state_end_turn(s, err);
    case STEP_GEN:
    case STEP_SELECT:
        return program_call_begin(s, st, err);
    case STEP_FORK:
        if (s->root->all->ops->prefix != NULL && s->n_parts > 0 && !s->has_prefix) {
            f->next--; /* the step runs again once the prefix is computed */
            return program_call_begin(s, st, err);
        }
        s->has_prefix = false;
        return run_fork(s, st, err);
    case STEP_JOIN: {
        quire_err e = run_join(s, &waits, err);
        f->next -= waits ? 1 : 0;
        return e;
    }
    case STEP_IF:
        TRY(test_holds(s, &st->test, &holds, err));
        return program_state_push(s, (program_frame){.list = &st->lists[holds ? 0 : 1], .of = st}, err);
    case STEP_REPEAT:
        return program_state_push(s, (program_frame){.list = &st->lists[0], .of = st, .left = st->times - 1},
                                  err);
    case STEP_SET:
        return run_set(s, st, err);
    }
    return QUIRE_OK;
}

/* At the end of a list of steps: repeats it, leaves it, or ends the state. */
static quire_err run_list_end(quire_state *s, program_frame *f, quire_error *err) {
    bool holds = false, waits = false;
    if (f->of == NULL) {
        if (!s->is_of_call) {
            TRY(run_join(s, &waits, err));
        }
        if (!waits) {
            program_state_set(s, STATE_REST);
            program_state_wake_parents(s);
        }
        return QUIRE_OK;
    }
    if (f->of->kind == STEP_REPEAT) {
        TRY(test_holds(s, &f->of->test, &holds, err));
        if (!holds && f->left > 0) {
            f->left--;
            f->next = 0;
            return program_count_steps(s->root, 1, err);
        }
    }
    quire_err e = f->of->kind == STEP_ROLE ? program_state_end_turn(s, err) : QUIRE_OK;
    s->n_frames--;
    return e;
}

/* ---- looking ahead of a running gen ---- */

#define MAX_AHEAD_BYTES  ((size_t)1 << 16) /* most bytes of the texts between two gens */
#define MAX_AHEAD_PIECES 64                /* most steps and pieces of these texts */

/* Whether a step is a text or turn that does not depend on the variables `names`, which
 * the running gen will set. */
static bool step_is_certain(const quire_state *s, const step *st, const char *const *names, size_t n) {
    return st->kind == STEP_END || st->kind == STEP_TOKENS || (st->kind == STEP_ROLE && s->has_turns) ||
           (st->kind == STEP_TEXT && program_text_is_constant(s, &st->text, names, n));
}

/* Whether what follows the end of a list of steps depends on no variable. */
static bool frame_end_is_certain(const program_frame *f) {
    return f->of != NULL && (f->of->kind != STEP_REPEAT || f->of->test.kind == TEST_NONE);
}

/* Runs a shadow from the step after the running gen `gen` up to the next gen, and returns
 * that gen's step. NULL: a step comes first that may depend on the running gen. */
static const step *shadow_run(quire_state *s, const char *gen) {
    char reasoning[2 * PROGRAM_NAME_BYTES], calls[2 * PROGRAM_NAME_BYTES];
    const char *const names[] = {gen, reasoning, calls};
    size_t n_bytes = 0, n_pieces = 0;
    snprintf(reasoning, sizeof reasoning, "%s_reasoning", gen);
    snprintf(calls, sizeof calls, "%s_calls", gen);
    while (n_bytes <= MAX_AHEAD_BYTES && n_pieces <= MAX_AHEAD_PIECES) {
        program_frame *f = &s->frames[s->n_frames - 1];
        const step *st = f->next < f->list->n ? f->list->items[f->next] : NULL;
        size_t n_parts = s->n_parts;
        if (st != NULL && st->kind == STEP_GEN) {
            return program_state_want_turn(s, NULL) == QUIRE_OK ? st : NULL;
        }
        if (st != NULL ? !step_is_certain(s, st, names, sizeof names / sizeof *names)
                       : !frame_end_is_certain(f)) {
            return NULL;
        }
        if ((st != NULL ? run_step(s, f, NULL) : run_list_end(s, f, NULL)) != QUIRE_OK) {
            return NULL;
        }
        n_pieces += 1 + (st != NULL ? st->text.n : 0);
        for (; n_parts < s->n_parts; n_parts++) {
            n_bytes += s->parts[n_parts].text != NULL ? s->parts[n_parts].text->text.n : 0;
        }
    }
    return NULL;
}

program_call *program_call_foresee(const program_call *c, size_t *n_before) {
    assert(c != NULL);
    program_root *r = c->state->root;
    const int64_t n_steps = r->n_steps, n_bytes = r->n_bytes, n_work = r->n_work;
    program_call *next = mem_new(1, sizeof *next);
    quire_state *s = next != NULL ? program_shadow_new(c->state, c->state->has_turns) : NULL;
    const step *st = NULL;
    if (s != NULL &&
        (!s->has_turns || program_state_add(s, (program_part){.kind = PART_VALUE}, NULL) == QUIRE_OK)) {
        *n_before = s->n_parts;
        st = shadow_run(s, c->step->name);
    }
    r->n_steps = n_steps;
    r->n_bytes = n_bytes;
    r->n_work = n_work;
    if (st == NULL || s->n_parts == *n_before) {
        program_shadow_free(s);
        mem_free(next);
        return NULL;
    }
    *next = program_call_of(s, st, c->number + 1);
    return next;
}

/* Whether the turn's time is over; not before a step ran, so that any turn progresses. */
static bool programs_turn_is_over(const quire_programs *ps) {
    return ps->turn_ends_us > 0 && ps->has_worked && clock_us() >= ps->turn_ends_us;
}

/* Runs a state until it waits or the turn is over. Exceeding a limit fails the
 * program. */
static void state_run(quire_state *s) {
    quire_error why = {0};
    while (s->status == STATE_READY && !programs_turn_is_over(s->root->all)) {
        program_frame *f = &s->frames[s->n_frames - 1];
        quire_err e = f->next < f->list->n ? program_count_steps(s->root, 1, &why) : QUIRE_OK;
        if (e == QUIRE_OK) {
            e = f->next < f->list->n ? run_step(s, f, &why) : run_list_end(s, f, &why);
        }
        if (e == QUIRE_TOO_LARGE) {
            program_root_fail(s->root, &why);
        } else if (e != QUIRE_OK) {
            program_state_fail(s, &why);
        }
        s->root->all->has_worked = true;
    }
    if (s->status == STATE_READY) {
        program_state_ready(s); /* behind the other ready states */
    }
}

/* Fails the programs that have exceeded their time limit, even if they wait for calls. */
static void programs_check_time(quire_programs *ps) {
    int64_t now_us = ps->roots != NULL ? clock_us() : 0;
    quire_error why = {0};
    for (program_root *r = ps->roots; r != NULL; r = r->next) {
        if (r->limits.max_us > 0 && r->n_busy > 0 && now_us - r->began_us > r->limits.max_us) {
            err_set(&why, QUIRE_TOO_LARGE, -1, "the program ran for more than %g s",
                    (double)r->limits.max_us * 1e-6);
            program_root_fail(r, &why);
        }
    }
}

int64_t programs_time_left(const quire_programs *ps) {
    assert(ps != NULL);
    int64_t now_us = ps->roots != NULL ? clock_us() : 0, least = -1;
    for (const program_root *r = ps->roots; r != NULL; r = r->next) {
        int64_t left = r->limits.max_us - (now_us - r->began_us);
        if (r->limits.max_us > 0 && r->n_busy > 0 && (least < 0 || left < least)) {
            least = left > 0 ? left : 0;
        }
    }
    return least;
}

/* Runs ready states in this turn and polls the executor. False: nothing was to be
 * done. */
static bool programs_run(quire_programs *ps) {
    assert(ps != NULL);
    bool has_run = false;
    programs_check_time(ps);
    while (ps->ready != NULL && !programs_turn_is_over(ps)) {
        quire_state *s = ps->ready;
        ps->ready = s->next_ready;
        ps->ready_last = ps->ready == NULL ? &ps->ready : ps->ready_last;
        s->is_queued = false;
        state_run(s);
        has_run = true;
    }
    return ps->ops->poll(ps->executor) || has_run;
}

void programs_begin_turn(quire_programs *ps, int64_t us) {
    ps->turn_ends_us = us > 0 ? clock_us() + us : 0;
    ps->is_cut = ps->has_worked = false;
}

bool programs_next_event(quire_programs *ps, quire_program_event *out) {
    assert(ps != NULL);
    program_event_free(ps->delivered);
    ps->delivered = NULL;
    for (bool has_run = true; has_run && !ps->is_cut;) {
        ps->is_cut = programs_turn_is_over(ps);
        has_run = !ps->is_cut && ps->events == NULL && programs_run(ps);
        ps->has_worked = true;
    }
    if (ps->is_cut || ps->events == NULL) {
        return false;
    }
    program_event *e = ps->events;
    ps->events = e->next;
    ps->events_last = ps->events == NULL ? &ps->events : ps->events_last;
    e->is_queued = false;
    ps->delivered = e;
    *out = e->event;
    out->name = e->name[0] != 0 ? e->name : NULL;
    out->text = e->text.n > 0 ? e->text.p : "";
    out->n_text = e->text.n;
    out->error = out->kind == QUIRE_PROGRAM_FAILED ? &out->state->error : NULL;
    return true;
}

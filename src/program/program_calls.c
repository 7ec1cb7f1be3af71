/* Begins the calls of states, takes their results, and scores the choices of selects. */
#include "program/program_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "json/json_scan.h"

#define FIELD_WORK 4 /* units of work to parse a byte of a request's fields */

static bool fields_have_seed(const char *fields, size_t n) {
    str span;
    return fields != NULL && json_scan_member((str){fields, n}, "seed", &span) == QUIRE_OK;
}

/* Derives a call's seed from its place in the program, so that the seed does not depend
 * on the order in which calls run. */
static void call_choose_seed(program_call *c) {
    const quire_state *s = c->state;
    const program_steps *p = &s->root->program;
    if (fields_have_seed(c->step->fields, c->step->n_fields) || fields_have_seed(p->fields, p->n_fields)) {
        return;
    }
    uint64_t at = s->root->seed;
    for (size_t i = 0; i < s->n_branch; i++) {
        at = rng_next(&at) ^ (uint64_t)(uint32_t)s->branch[i];
    }
    at = rng_next(&at) ^ (uint64_t)(uint32_t)c->number;
    c->seed = rng_next(&at) >> 11; /* 53 bits, which every JSON parser reads exactly */
    c->has_seed = true;
}

program_call program_call_of(quire_state *s, const step *st, int32_t number) {
    program_call c = {.state = s,
                      .step = st,
                      .number = number,
                      .ready_us = clock_us(),
                      .first_step = -1,
                      .last_step = -1,
                      .chosen = -1};
    if (st->kind == STEP_GEN) {
        call_choose_seed(&c);
    }
    return c;
}

static quire_err call_expand_choices(program_call *c, quire_error *err) {
    const step *st = c->step;
    program_root *r = c->state->root;
    if (st->n_choices > (size_t)r->limits.max_states) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "select %s has more than %d choices", st->name,
                       (int)r->limits.max_states);
    }
    TRY(program_count_steps(r, st->n_choices, err));
    c->choices = mem_new(st->n_choices, sizeof(program_text *));
    TRY(mem_check_for(c->choices, "choices", err));
    for (size_t i = 0; i < st->n_choices; i++) {
        TRY(program_text_expand(c->state, &st->choices[i], &c->choices[i], err));
        c->n_choices++;
        if (c->choices[i]->text.n == 0) {
            return err_set(err, QUIRE_BAD_REQUEST, -1, "select %s: choice %zu is empty", st->name, i);
        }
    }
    return QUIRE_OK;
}

/* Sets the variable of a failed call to the error, for steps that read it. */
static void call_mark_failed(quire_state *s, const char *name, const quire_error *why) {
    program_value *v = program_value_failed(why);
    if (v != NULL) {
        (void)program_variable_set(s, name, v, NULL); /* on failure the variable stays unset */
        program_value_drop(v);
    }
}

/* Counts the work of a step's requests, each of which parses the fields again. */
static quire_err call_count_fields(const quire_state *s, const step *st, quire_error *err) {
    const program_steps *p = &s->root->program;
    size_t n = s->has_turns ? p->n_chat : 0;
    if (st->kind == STEP_GEN) {
        n += st->n_fields + p->n_fields;
    } else {
        n += p->n_common * (st->kind == STEP_SELECT ? st->n_choices : 1);
    }
    return program_count_work(s->root, n * FIELD_WORK, err);
}

quire_err program_call_begin(quire_state *s, const step *st, quire_error *err) {
    const program_ops *ops = s->root->all->ops;
    void *executor = s->root->all->executor;
    bool is_there = false;
    TRY(call_count_fields(s, st, err));
    if (st->kind != STEP_FORK) {
        TRY(program_state_want_turn(s, err));
    }
    program_call *c = mem_new(1, sizeof *c);
    TRY(mem_check_for(c, "a call", err));
    *c = program_call_of(s, st, s->n_calls);
    s->depth++;
    quire_err e = st->kind == STEP_SELECT ? call_expand_choices(c, err) : QUIRE_OK;
    if (st->kind == STEP_GEN) {
        e = ops->gen(executor, c, err);
    } else if (st->kind == STEP_FORK) {
        e = ops->prefix(executor, c, &is_there, err);
    } else if (e == QUIRE_OK) {
        e = ops->select(executor, c, err);
    }
    if (e != QUIRE_OK || is_there) {
        program_call_free(c);
        s->has_prefix = is_there;
        s->depth--;
        if (e != QUIRE_OK && st->kind != STEP_FORK) {
            call_mark_failed(s, st->name, err);
        }
        return e;
    }
    s->n_calls += st->kind != STEP_FORK ? 1 : 0;
    s->call = c;
    program_state_set(s, STATE_CALLING);
    return QUIRE_OK;
}

void program_call_forget(program_call *next) {
    program_shadow_free(next->state);
    program_call_free(next);
}

quire_err program_call_text(program_call *c, int32_t output, str text) {
    return text.n > 0 ? program_event_add(c->state, QUIRE_PROGRAM_TEXT, c->step->name, output, text)
                      : QUIRE_OK;
}

static quire_err call_record(const program_call *c) {
    program_root *r = c->state->root;
    TRY(mem_grow(&r->records, &r->cap_records, r->n_records + 1, sizeof *r->records));
    program_record *to = &r->records[r->n_records++];
    *to = (program_record){.step = c->step,
                           .state = c->state,
                           .after = c->state->record,
                           .ready_us = c->ready_us,
                           .submitted_us = c->submitted_us,
                           .first_us = c->first_us,
                           .end_us = clock_us(),
                           .queue_us = c->queue_us,
                           .first_step = c->first_step,
                           .last_step = c->last_step,
                           .is_ahead = c->is_ahead,
                           .prompt_tokens = c->prompt_tokens,
                           .computed_tokens = c->computed_tokens,
                           .completion_tokens = c->completion_tokens};
    c->state->record = (int32_t)(r->n_records - 1);
    return QUIRE_OK;
}

/* Makes a value of an output by moving its text and ids. NULL: out of memory. */
static program_value *call_output_value(const program_call *c, program_output *o) {
    program_value *v = program_value_new();
    if (v != NULL) {
        strbuf *text = o->has_parts ? &o->content : &o->text;
        v->text = *text;
        v->ids = o->ids;
        v->n_ids = o->n_ids;
        v->finish = o->finish;
        v->seed = c->seed;
        v->has_seed = c->has_seed;
        v->record = c->state->record;
        *text = (strbuf){0};
        o->ids = NULL;
    }
    return v;
}

/* Returns the value of a call that has ended, and in *first the output that the state
 * appends; each with one reference. NULL: out of memory. */
static program_value *call_value(program_call *c, program_value **first) {
    program_value *v = c->n_outputs > 1 ? program_value_new() : NULL;
    quire_err e = c->n_outputs > 1 ? mem_check(v) : QUIRE_OK;
    for (size_t i = 0; e == QUIRE_OK && i < c->n_outputs; i++) {
        program_value *one = call_output_value(c, &c->outputs[i]);
        e = mem_check(one);
        *first = e == QUIRE_OK && i == 0 ? program_value_share(one) : *first;
        if (c->n_outputs == 1) {
            v = one;
        } else if (e == QUIRE_OK) {
            e = program_value_add(v, one);
        }
    }
    if (e != QUIRE_OK) {
        program_value_drop(v);
        program_value_drop(*first);
        *first = NULL;
        return NULL;
    }
    v->choice = c->chosen;
    v->scores = c->scores;
    v->n_scores = c->scores != NULL ? c->n_choices : 0;
    v->record = c->state->record;
    c->scores = NULL;
    return v;
}

/* Sets the variable whose name is `name` followed by `part` to the text between `begin`
 * and `end`. Does nothing if that name is too long. */
static quire_err call_take_part(quire_state *s, const char *name, const char *part, const char *begin,
                                const strbuf *text, const char *end, quire_error *err) {
    char to[PROGRAM_NAME_BYTES];
    if (strlen(name) + strlen(part) >= sizeof to) {
        return QUIRE_OK;
    }
    strcpy(to, name);
    strcat(to, part);
    program_value *v = program_value_of(str_of(begin));
    bool is_made = v != NULL && strbuf_add(&v->text, text->p, text->n) == QUIRE_OK &&
                   strbuf_add_str(&v->text, end) == QUIRE_OK;
    quire_err e = is_made ? program_variable_set(s, to, v, err)
                          : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a value");
    program_value_drop(v);
    return e;
}

/* Appends the result of a call to its state, and sets its variable. */
static quire_err call_take(program_call *c, quire_error *err) {
    quire_state *s = c->state;
    size_t n_bytes = 0;
    program_value *first = NULL;
    if (c->step->kind == STEP_SELECT) {
        const strbuf *text = &c->choices[c->chosen]->text;
        TRY(err_set(err, strbuf_add(&c->outputs[0].text, text->p, text->n), -1,
                    "out of memory for a choice"));
    }
    for (size_t i = 0; i < c->n_outputs; i++) {
        n_bytes += c->outputs[i].text.n;
    }
    TRY(program_count_bytes(s->root, n_bytes, err));
    const program_output *o = &c->outputs[0];
    if (o->has_parts) {
        TRY(call_take_part(s, c->step->name, "_reasoning", "", &o->reasoning, "", err));
        TRY(call_take_part(s, c->step->name, "_calls", "[", &o->calls, "]", err));
    }
    program_value *v = call_value(c, &first);
    TRY(mem_check_for(v, "a value", err));
    quire_err e = program_variable_set(s, c->step->name, v, err);
    s->root->records[s->record].value = v;
    if (e == QUIRE_OK) {
        e = program_state_add(s, (program_part){.kind = PART_VALUE, .value = first}, err);
    }
    if (e != QUIRE_OK) {
        program_value_drop(first);
        return e;
    }
    e = program_event_add(s, QUIRE_PROGRAM_VALUE, c->step->name, 0, (str){"", 0});
    return err_set(err, e, -1, "out of memory for an event");
}

void program_call_end(program_call *c, const quire_error *err) {
    quire_state *s = c->state;
    quire_error why = {0};
    s->call = NULL;
    quire_err e = err != NULL ? err->code : QUIRE_OK;
    why = err != NULL ? *err : why;
    if (call_record(c) != QUIRE_OK && e == QUIRE_OK) {
        e = err_set(&why, QUIRE_NO_MEMORY, -1, "out of memory for a record");
    }
    bool is_fork = c->step->kind == STEP_FORK;
    s->has_prefix = is_fork;
    if (e == QUIRE_OK && !is_fork) {
        e = call_take(c, &why);
    }
    if (e != QUIRE_OK) {
        if (!is_fork) {
            call_mark_failed(s, c->step->name, &why);
        }
        program_call_free(c);
        program_state_fail(s, &why);
        return;
    }
    program_call_free(c);
    program_state_ready(s);
}

/* ---- the choice of a select ---- */

static double score_mean(const select_choice *c, bool normalised) {
    double sum = 0.0;
    for (size_t i = 0; i < c->n; i++) {
        sum += c->logprobs[i] - (normalised ? c->alone[i] : 0.0);
    }
    return sum / (double)c->n;
}

/* Returns the log-probability of a choice's token i, past the end the choice's mean. */
static double score_token(const select_choice *c, size_t i, double mean) {
    return i < c->n ? c->logprobs[i] : mean;
}

/* Keeps, token by token, the choices with the greatest log-probability. Returns the first
 * of those left at the end. */
static int32_t score_greedy(const select_choice *choices, size_t n, const double *means) {
    size_t longest = 0, best = 0;
    for (size_t i = 0; i < n; i++) {
        longest = choices[i].n > longest ? choices[i].n : longest;
    }
    for (size_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < longest &&
               score_token(&choices[i], k, means[i]) == score_token(&choices[best], k, means[best])) {
            k++;
        }
        bool is_better = k < longest &&
                         score_token(&choices[i], k, means[i]) > score_token(&choices[best], k, means[best]);
        best = is_better ? i : best;
    }
    return (int32_t)best;
}

int32_t select_score(const select_choice *choices, size_t n, quire_select_method method, double *scores) {
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        scores[i] = score_mean(&choices[i], method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED);
        best = scores[i] > scores[best] ? i : best;
    }
    return method == QUIRE_SELECT_GREEDY_TOKEN_SELECTION ? score_greedy(choices, n, scores) : (int32_t)best;
}

/* Writes the report on a program: variables, what each call computed, critical path. */
#include "base/mem.h"
#include "program/program_state.h"
#include "json/json_out.h"

static const char *const finishes[] = {NULL, "stop", "length", "cancelled", "error"};

static void program_report_branch(const quire_state *s, json_out *o) {
    json_ints(json_name(o, "branch"), s->branch, s->n_branch);
}

/* Writes a text, an array, or null for a value that is an error. */
static void program_report_value(const program_value *v, json_out *o) {
    if (v->error != NULL) {
        json_raw(o, "null");
    } else if (!v->is_list) {
        json_text(o, v->text.n > 0 ? v->text.p : "", v->text.n);
    } else {
        json_begin(o, '[');
        for (size_t i = 0; i < v->n_items; i++) {
            program_report_value(v->items[i], json_item(o));
        }
        json_end(o, ']');
    }
}

/* Writes the variables that steps have set, leaving out the program's inputs. */
static void program_report_variables(const program_root *r, json_out *o) {
    const quire_state *s = r->top;
    json_begin(json_name(o, "variables"), '{');
    for (size_t i = 0; i < s->n_variables; i++) {
        if (s->variables[i].is_own) {
            program_report_value(s->variables[i].value, json_name(o, s->variables[i].name));
        }
    }
    json_end(o, '}');
}

/* Writes the errors of states, in the order in which the states were made. */
static void program_report_errors(const program_root *r, const quire_state *s, json_out *o) {
    if (s->status == STATE_FAILED) {
        json_begin(json_item(o), '{');
        program_report_branch(s, o);
        json_cstr(json_name(o, "code"), quire_err_name(s->error.code));
        json_cstr(json_name(o, "message"), s->error.message);
        json_end(o, '}');
    }
    for (const quire_state *f = s->first; f != NULL; f = f->next) {
        program_report_errors(r, f, o);
    }
}

static void program_report_counts(int64_t prompt, int64_t computed, int64_t completion, json_out *o) {
    json_int(json_name(o, "prompt_tokens"), prompt);
    json_int(json_name(o, "computed_tokens"), computed);
    json_int(json_name(o, "reused_tokens"), prompt - computed);
    json_int(json_name(o, "completion_tokens"), completion);
}

quire_program_usage program_usage(const program_root *r) {
    quire_program_usage u = {.size = sizeof u};
    for (size_t i = 0; i < r->n_records; i++) {
        u.prompt_tokens += r->records[i].prompt_tokens;
        u.computed_tokens += r->records[i].computed_tokens;
        u.completion_tokens += r->records[i].completion_tokens;
        u.n_calls += r->records[i].value != NULL ? 1 : 0;
    }
    for (const quire_state *s = r->states; s != NULL; s = s->next_of_all) {
        u.n_failed += s->status == STATE_FAILED ? 1 : 0;
    }
    u.error = r->top->status == STATE_FAILED ? &r->top->error : NULL;
    return u;
}

static void program_report_usage(const program_root *r, json_out *o) {
    const quire_program_usage u = program_usage(r);
    json_begin(json_name(o, "usage"), '{');
    program_report_counts(u.prompt_tokens, u.computed_tokens, u.completion_tokens, o);
    json_int(json_name(o, "total_tokens"), u.prompt_tokens + u.completion_tokens);
    json_end(o, '}');
}

static void program_report_times(const program_root *r, const program_record *c, json_out *o) {
    json_int(json_name(o, "ready_us"), c->ready_us - r->began_us);
    json_int(json_name(o, "submitted_us"), c->submitted_us > 0 ? c->submitted_us - r->began_us : 0);
    json_int(json_name(o, "first_token_us"), c->first_us > 0 ? c->first_us - r->began_us : 0);
    json_int(json_name(o, "queue_us"), c->queue_us);
    json_int(json_name(o, "end_us"), c->end_us - r->began_us);
}

static void program_report_step(const program_record *c, json_out *o) {
    const program_value *v = c->value;
    bool is_gen = c->step->kind == STEP_GEN;
    const char *kind = is_gen ? "gen" : c->step->kind == STEP_SELECT ? "select" : "fork";
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "name"), c->step->name);
    json_cstr(json_name(o, "kind"), kind);
    program_report_branch(c->state, o);
    program_report_counts(c->prompt_tokens, c->computed_tokens, c->completion_tokens, o);
    if (v != NULL && is_gen) {
        json_cstr(json_name(o, "finish_reason"), finishes[v->finish]);
    }
    if (v != NULL && is_gen && v->has_seed) {
        json_int(json_name(o, "seed"), (int64_t)v->seed);
    }
    if (v != NULL && v->choice >= 0) {
        json_int(json_name(o, "choice"), v->choice);
        json_begin(json_name(o, "scores"), '[');
        for (size_t i = 0; i < v->n_scores; i++) {
            json_exact(json_item(o), v->scores[i]);
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

/* Writes the critical path, the calls that the program's end waited for, in order. last:
 * record of the last one. */
static void program_report_path(const program_root *r, int32_t last, json_out *o) {
    int32_t *path = mem_new(r->n_records, sizeof *path);
    size_t n = 0;
    if (path == NULL) {
        o->err = QUIRE_NO_MEMORY;
        return;
    }
    for (int32_t i = last; i >= 0; i = r->records[i].after) {
        path[n++] = i;
    }
    while (n-- > 0) {
        const program_record *c = &r->records[path[n]];
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "name"), c->step->name);
        program_report_branch(c->state, o);
        json_int(json_name(o, "step"), path[n]);
        program_report_times(r, c, o);
        if (c->after >= 0 && c->first_step >= 0 && r->records[c->after].last_step >= 0) {
            json_int(json_name(o, "steps_between"), c->first_step - r->records[c->after].last_step);
        }
        json_bool(json_name(o, "ahead"), c->is_ahead);
        json_end(o, '}');
    }
    mem_free(path);
}

static void program_report_explain(const program_root *r, json_out *o) {
    int32_t last = -1;
    for (size_t i = 0; i < r->n_records; i++) {
        last = last < 0 || r->records[i].end_us > r->records[last].end_us ? (int32_t)i : last;
    }
    json_begin(json_name(o, "explain"), '{');
    json_int(json_name(o, "total_us"), r->ended_us - r->began_us);
    json_begin(json_name(o, "critical_path"), '[');
    program_report_path(r, last, o);
    json_end(o, ']');
    json_end(o, '}');
}

quire_err program_report(const program_root *r, const char *id, bool explain, strbuf *to) {
    json_out o = {.to = to};
    json_begin(&o, '{');
    if (id != NULL) {
        json_cstr(json_name(&o, "id"), id);
    }
    json_cstr(json_name(&o, "object"), "program");
    program_report_variables(r, &o);
    json_begin(json_name(&o, "errors"), '[');
    program_report_errors(r, r->top, &o);
    json_end(&o, ']');
    program_report_usage(r, &o);
    json_begin(json_name(&o, "steps"), '[');
    for (size_t i = 0; i < r->n_records; i++) {
        program_report_step(&r->records[i], &o);
    }
    json_end(&o, ']');
    if (explain) {
        program_report_explain(r, &o);
    }
    json_end(&o, '}');
    return o.err;
}

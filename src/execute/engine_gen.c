/* Executes gens: makes their requests, also ahead of time, and takes their outputs. */
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "execute/engine_call.h"

static quire_err exec_set_fields(const program_call *c, quire_request *r, quire_error *err) {
    const program_steps *p = &c->state->root->program;
    char seed[32];
    TRY(p->fields != NULL ? quire_request_set_all(r, p->fields, p->n_fields, err) : QUIRE_OK);
    TRY(c->step->fields != NULL ? quire_request_set_all(r, c->step->fields, c->step->n_fields, err)
                                : QUIRE_OK);
    TRY(c->state->root->program.explain ? quire_request_set(r, "explain", "true", err) : QUIRE_OK);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);
    return c->has_seed ? quire_request_set(r, "seed", seed, err) : QUIRE_OK;
}

static quire_err exec_make_outputs(engine_call *k, int32_t n, quire_error *err) {
    program_call *c = k->c;
    c->outputs = mem_new((size_t)n, sizeof *c->outputs);
    k->ends = mem_new((size_t)n, sizeof *k->ends);
    k->caps = mem_new((size_t)n, sizeof *k->caps);
    c->n_outputs = c->outputs != NULL ? (size_t)n : 0;
    return c->outputs != NULL && k->ends != NULL && k->caps != NULL
               ? QUIRE_OK
               : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for outputs");
}

/* Makes a gen's request. In a state with turns it is a chat's, so that its answer is
 * split into parts and obeys tools. */
static quire_err exec_new_gen(const engine_call *k, quire_request **out, quire_error *err) {
    static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}";
    const quire_state *s = k->c->state;
    const shared_ids *ids = exec_state_of(s)->ids;
    const program_steps *p = &s->root->program;
    if (!s->has_turns) {
        return quire_request_ids(k->x->e, ids->ids, ids->n, out, err);
    }
    const quire_continuation from = {.size = sizeof from, .ids = ids->ids, .n_ids = ids->n};
    TRY(quire_request_parse(k->x->e, QUIRE_CHAT, body, sizeof body - 1, out, err));
    quire_err e = quire_request_continue(*out, &from, err);
    e = e == QUIRE_OK && p->chat != NULL ? quire_request_set_all(*out, p->chat, p->n_chat, err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(*out);
    }
    return e;
}

/* ---- the gen that follows ---- */

/* Submits the text after a gen to be tokenised. Its tokens, as those of the middle of
 * a text, do not depend on the gen's output. */
static quire_err exec_submit_ahead(engine_call *k, engine_ahead *a, const program_text *between) {
    quire_state *s = k->c->state;
    quire_request *r;
    a->request = mem_new(1, sizeof *a->request);
    TRY(mem_check(a->request));
    *a->request = (engine_request){.ahead = s};
    TRY(exec_new_joined(k->x, between, exec_state_of(s)->ids->ids, 1, &r, NULL));
    quire_err e = exec_address(k->x, s, r, false, s->depth + 1, NULL);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    return quire_submit(k->x->q, r, a->request, &a->request->stream, NULL);
}

/* While a gen runs, prepares the gen that follows it, if the text between is known. On
 * failure nothing is prepared. */
static void exec_look_ahead(engine_call *k) {
    engine_state *es = exec_state_of(k->c->state);
    program_text between = {0};
    engine_ahead found = {.x = k->x};
    exec_drop_ahead(es);
    if (program_call_next(k->c, &between, &found.n_parts, &found.next)) {
        es->ahead = mem_new(1, sizeof *es->ahead);
        if (es->ahead != NULL) {
            *es->ahead = found;
        }
        if (es->ahead != NULL && exec_submit_ahead(k, es->ahead, &between) != QUIRE_OK) {
            exec_drop_ahead(es);
        }
    }
    strbuf_deinit(&between.text);
    mem_free(between.plain);
}

/* Prepares the gen's request once the text before it is tokens. */
static quire_err exec_prepare_ahead(engine_ahead *a) {
    quire_request *r;
    quire_state *s = a->next.state;
    TRY(quire_request_ids(a->x->e, a->ids->ids, a->ids->n, &r, NULL));
    quire_err e = exec_set_fields(&a->next, r, NULL);
    e = e == QUIRE_OK ? exec_address(a->x, s, r, true, s->depth, NULL) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    quire_stream_release(a->request->stream);
    a->request->stream = NULL;
    TRY(quire_prepare(a->x->q, r, a->request, &a->request->stream, NULL));
    a->is_prepared = true;
    return QUIRE_OK;
}

engine_call *exec_take_ahead(const engine_request *r, const quire_event *ev) {
    engine_state *es = exec_state_of(r->ahead);
    engine_ahead *a = es->ahead;
    engine_call *k = a->waits;
    if (ev->kind == QUIRE_EVENT_START && ev->n_tokens > 1) { /* the first one stands for the prefix */
        (void)exec_ids_replace(&a->ids, 0, ev->tokens + 1, (size_t)ev->n_tokens - 1);
    }
    if (ev->kind != QUIRE_EVENT_DONE) {
        return NULL;
    }
    a->waits = NULL;
    if (a->is_prepared || ev->error != NULL || a->ids == NULL || exec_prepare_ahead(a) != QUIRE_OK) {
        exec_drop_ahead(es);
    }
    return k;
}

/* Starts the prepared request, which now belongs to the call. */
static quire_err exec_start_ahead(engine_call *k, engine_ahead *a, quire_error *err) {
    engine_state *es = exec_state_of(k->c->state);
    size_t n = es->ids->n;
    quire_err e = exec_ids_replace(&es->ids, n, a->ids->ids, a->ids->n);
    TRY(e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a state"));
    es->n_taken = a->n_parts;
    k->stage = ENGINE_GEN;
    k->requests = a->request;
    a->request = NULL;
    k->requests->call = k;
    k->n_requests = k->n_open = 1;
    const int32_t n_choices = quire_stream_describe(k->requests->stream)->n_choices;
    exec_drop_ahead(es);
    exec_count_running(k, (size_t)n_choices);
    TRY(exec_make_outputs(k, n_choices, err));
    k->c->submitted_us = clock_us();
    k->c->is_ahead = true;
    return quire_stream_start(k->requests->stream, es->ids->ids, n, err);
}

quire_err exec_begin_ahead(engine_call *k, bool *is_begun, quire_error *err) {
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    engine_ahead *a = es->ahead;
    *is_begun = a != NULL && a->next.step == k->c->step && a->n_parts == s->n_parts && es->rest.n == 0 &&
                a->next.seed == k->c->seed;
    if (*is_begun && !a->is_prepared) {
        a->waits = k;
        return QUIRE_OK;
    }
    *is_begun =
        *is_begun && exec_has_room(k->x, (size_t)quire_stream_describe(a->request->stream)->n_choices);
    if (!*is_begun) {
        exec_drop_ahead(es);
        return QUIRE_OK;
    }
    TRY(exec_start_ahead(k, a, err));
    exec_look_ahead(k);
    return QUIRE_OK;
}

/* ---- a gen ---- */

quire_err exec_submit_gen(engine_call *k, quire_error *err) {
    quire_request *r;
    TRY(exec_begin_stage(k, ENGINE_GEN, 1, err));
    TRY(exec_new_gen(k, &r, err));
    quire_err e = exec_set_fields(k->c, r, err);
    if (e == QUIRE_OK && exec_must_wait(k, (size_t)quire_request_describe(r)->n_choices)) {
        quire_request_free(r);
        return QUIRE_OK;
    }
    e = e == QUIRE_OK ? exec_make_outputs(k, quire_request_describe(r)->n_choices, err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    k->c->submitted_us = clock_us();
    TRY(exec_submit(k, r, 0, false, err));
    exec_look_ahead(k);
    return QUIRE_OK;
}

/* Ends the JSON of the tool call under way; its arguments are a string. */
static quire_err exec_end_call(program_output *o) {
    json_out calls = {.to = &o->calls};
    TRY(strbuf_add_str(&o->calls, ",\"arguments\":"));
    json_text(&calls, o->arguments.n > 0 ? o->arguments.p : "", o->arguments.n);
    strbuf_clear(&o->arguments);
    return calls.err == QUIRE_OK ? strbuf_add_char(&o->calls, '}') : calls.err;
}

/* Adds a piece of a tool call to an output's calls. */
static quire_err exec_add_call(program_output *o, const quire_part *part) {
    json_out calls = {.to = &o->calls};
    if (part->kind == QUIRE_PART_ARGUMENTS) {
        return strbuf_add(&o->arguments, part->text, part->n_text);
    }
    if (part->kind == QUIRE_PART_CALL_END) {
        return exec_end_call(o);
    }
    TRY(strbuf_add_str(&o->calls, o->calls.n > 0 ? ",{\"name\":" : "{\"name\":"));
    json_text(&calls, part->text, part->n_text);
    return calls.err;
}

static quire_err exec_add_parts(engine_call *k, const quire_event *ev) {
    program_output *o = &k->c->outputs[ev->choice];
    for (int32_t i = 0; i < ev->n_parts; i++) {
        const quire_part *part = &ev->parts[i];
        if (part->kind == QUIRE_PART_CONTENT) {
            TRY(strbuf_add(&o->content, part->text, part->n_text));
            TRY(program_call_text(k->c, ev->choice, (str){part->text, part->n_text}));
        } else {
            TRY(part->kind == QUIRE_PART_REASONING ? strbuf_add(&o->reasoning, part->text, part->n_text)
                                                   : exec_add_call(o, part));
        }
    }
    return QUIRE_OK;
}

quire_err exec_add_output(engine_call *k, const quire_event *ev) {
    program_output *o = &k->c->outputs[ev->choice];
    size_t **ends = &k->ends[ev->choice];
    size_t end = o->n_ids > 0 ? (*ends)[o->n_ids - 1] : 0;
    TRY(strbuf_add(&o->text, ev->text, ev->n_text));
    TRY(o->has_parts ? exec_add_parts(k, ev)
                     : program_call_text(k->c, ev->choice, (str){ev->text, ev->n_text}));
    TRY(mem_grow(&o->ids, &o->cap_ids, o->n_ids + (size_t)ev->n_tokens, sizeof *o->ids));
    TRY(mem_grow(ends, &k->caps[ev->choice], o->n_ids + (size_t)ev->n_tokens, sizeof **ends));
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        (*ends)[o->n_ids] = end + (i == ev->n_tokens - 1 ? ev->n_decoded : 0);
        o->ids[o->n_ids++] = ev->tokens[i];
    }
    return QUIRE_OK;
}

/* Drops the ids after the end of an output's text: the end token, or those of a stop
 * string. *rest: the part of the text that belongs to a token which ends beyond it. */
static void exec_cut_output(program_output *o, const size_t *ends, str *rest) {
    size_t n = o->n_ids, at = n > 0 ? ends[n - 1] : 0;
    *rest = (str){"", 0};
    if (o->finish != QUIRE_FINISH_STOP || n == 0) {
        return;
    }
    if (at <= o->text.n) {
        o->n_ids -= at == (n > 1 ? ends[n - 2] : 0) ? 1 : 0;
        return;
    }
    for (n = 0, at = 0; n < o->n_ids && ends[n] <= o->text.n; n++) {
        at = ends[n];
        if (at == o->text.n) {
            n++;
            break;
        }
    }
    o->n_ids = n;
    *rest = (str){o->text.p + at, o->text.n - at};
}

quire_err exec_take_gen(engine_call *k, const quire_event *done) {
    program_call *c = k->c;
    engine_state *es = exec_state_of(c->state);
    c->prompt_tokens = done->prompt_tokens;
    c->computed_tokens = done->prompt_tokens - done->cached_tokens;
    c->completion_tokens = done->completion_tokens;
    c->queue_us = done->queue_us;
    const quire_explain_more *x = quire_stream_explain(k->requests->stream, 0);
    c->first_step = x != NULL ? x->first_token_step : -1;
    c->last_step = x != NULL ? x->last_token_step : -1;
    size_t n_first = c->outputs[0].n_ids, n_computed = es->ids->n + n_first - (n_first > 0 ? 1 : 0);
    for (size_t i = 0; i < c->n_outputs; i++) {
        str rest;
        const strbuf *calls = &c->outputs[i].calls; /* max_tokens may have cut the last call */
        TRY(calls->n > 0 && calls->p[calls->n - 1] != '}' ? exec_end_call(&c->outputs[i]) : QUIRE_OK);
        exec_cut_output(&c->outputs[i], k->ends[i], &rest);
        if (i == 0) {
            TRY(strbuf_add(&es->rest, rest.p, rest.n));
        }
    }
    TRY(exec_ids_replace(&es->ids, es->ids->n, c->outputs[0].ids, c->outputs[0].n_ids));
    es->n_computed = n_computed < es->ids->n ? n_computed : es->ids->n; /* all ids but the last */
    return QUIRE_OK;
}

/* Executes gens and selects: makes their requests, possibly ahead of time, takes their
 * results, and has texts and turns tokenised. */
#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "execute/engine_call.h"

static quire_err exec_set_fields(const program_call *c, quire_request *r, quire_error *err) {
    const program_steps *p = &c->state->root->program;
    char seed[32];
    if (p->fields != NULL) {
        TRY(quire_request_set_all(r, p->fields, p->n_fields, err));
    }
    if (c->step->fields != NULL) {
        TRY(quire_request_set_all(r, c->step->fields, c->step->n_fields, err));
    }
    if (c->state->root->program.explain) {
        TRY(quire_request_set(r, "explain", "true", err));
    }
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

/* Makes a gen's request. In a state with turns it is a chat request, so that the answer
 * is split into parts and may call tools. */
static quire_err exec_new_gen(const engine_call *k, quire_request **out, quire_error *err) {
    static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}";
    const quire_state *s = k->c->state;
    const engine_state *es = exec_state_of(s);
    const program_steps *p = &s->root->program;
    const size_t skip = k->ahead_of != NULL ? 1 : 0, n = es->ids->n - skip;
    if (!s->has_turns) {
        return quire_request_ids(k->x->e, es->ids->ids + skip, n, out, err);
    }
    const quire_continuation from = {
        .size = sizeof from, .ids = es->ids->ids + skip, .n_ids = n, .n_start = es->ids->n - es->n_turn};
    TRY(quire_request_parse(k->x->e, QUIRE_CHAT, body, sizeof body - 1, out, err));
    quire_err e = quire_request_continue(*out, &from, err);
    if (e == QUIRE_OK && p->chat != NULL) {
        e = quire_request_set_all(*out, p->chat, p->n_chat, err);
    }
    if (e != QUIRE_OK) {
        quire_request_free(*out);
    }
    return e;
}

quire_err exec_start_ahead(engine_call *k, quire_error *err) {
    assert(k != NULL);
    engine_state *es = exec_state_of(k->c->state);
    engine_call *a = es->ahead;
    const engine_state *own = exec_state_of(a->c->state);
    size_t n = es->ids->n;
    TRY(err_set(err, exec_ids_replace(&es->ids, n, own->ids->ids + 1, own->ids->n - 1), -1,
                "out of memory for a state"));
    es->n_taken = k->c->state->n_parts;
    es->n_turn = own->n_turn > 0 ? n + own->n_turn - 1 : es->n_turn;
    k->stage = ENGINE_GEN;
    k->requests = a->requests;
    k->requests->call = k;
    k->n_requests = k->n_open = 1;
    a->requests = NULL;
    a->n_requests = 0;
    exec_drop_ahead(es);
    const int32_t n_choices = quire_stream_describe(k->requests->stream)->n_choices;
    exec_count_running(k, (size_t)n_choices);
    TRY(exec_make_outputs(k, n_choices, err));
    k->c->submitted_us = clock_us();
    k->c->is_ahead = true;
    return quire_stream_start(k->requests->stream, es->ids->ids, n, err);
}

/* ---- a gen ---- */

/* Makes room for the outputs of r, or queues k if it must wait. */
static quire_err exec_ready_gen(engine_call *k, const quire_request *r, quire_error *err) {
    int32_t n = quire_request_describe(r)->n_choices;
    return k->ahead_of != NULL || exec_must_wait(k, (size_t)n) ? QUIRE_OK : exec_make_outputs(k, n, err);
}

quire_err exec_submit_gen(engine_call *k, quire_error *err) {
    assert(k != NULL);
    quire_request *r;
    const engine_state *es = exec_state_of(k->c->state);
    TRY(exec_begin_stage(k, ENGINE_GEN, 1, err));
    TRY(exec_new_gen(k, &r, err));
    quire_err e = exec_set_fields(k->c, r, err);
    if (e == QUIRE_OK) {
        e = exec_ready_gen(k, r, err);
    }
    if (e != QUIRE_OK || k->is_waiting) {
        quire_request_free(r);
        return e;
    }
    k->c->submitted_us = clock_us();
    TRY(exec_submit(k, r, 0, false, err));
    /* an answer with parts can be parsed only from the start of its turn */
    bool is_seen =
        k->ahead_of == NULL || es->n_turn > 0 || !quire_stream_describe(k->requests->stream)->has_parts;
    return is_seen ? QUIRE_OK : QUIRE_UNSUPPORTED;
}

/* Ends the JSON of the current tool call, whose arguments are a JSON string. */
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
    assert(ev != NULL);
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

/* Drops the ids after the end of an output's text: the end token, or the tokens of a stop
 * string. *rest: the end of the text, if it is a part of a dropped token. */
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
    assert(k != NULL && done != NULL);
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
        if (calls->n > 0 && calls->p[calls->n - 1] != '}') {
            TRY(exec_end_call(&c->outputs[i]));
        }
        exec_cut_output(&c->outputs[i], k->ends[i], &rest);
        if (i == 0) {
            TRY(strbuf_add(&es->rest, rest.p, rest.n));
        }
    }
    TRY(exec_ids_replace(&es->ids, es->ids->n, c->outputs[0].ids, c->outputs[0].n_ids));
    /* the last sampled id is not computed yet */
    es->n_computed = n_computed < es->ids->n ? n_computed : es->ids->n;
    return QUIRE_OK;
}

/* ---- a select ---- */

/* Appends a text and its spans of ordinary text. */
static quire_err exec_join_text(program_text *to, const program_text *t) {
    assert(to != NULL && t != NULL);
    TRY(mem_grow(&to->plain, &to->cap_plain, 2 * (to->n_plain + t->n_plain), sizeof *to->plain));
    for (size_t i = 0; i < 2 * t->n_plain; i++) {
        to->plain[2 * to->n_plain + i] = to->text.n + t->plain[i];
    }
    to->n_plain += t->n_plain;
    return strbuf_add(&to->text, t->text.p, t->text.n);
}

quire_err exec_submit_choices(engine_call *k, quire_error *err) {
    assert(k != NULL);
    program_call *c = k->c;
    const engine_state *es = exec_state_of(c->state);
    char *last;
    size_t n_last;
    /* each choice counts the state's ids */
    TRY(program_call_reserve(c, (int64_t)(es->ids->n * c->n_choices), err));
    TRY(exec_begin_stage(k, ENGINE_CHOICES, c->n_choices, err));
    k->choices = mem_new(c->n_choices, sizeof *k->choices);
    TRY(mem_check_for(k->choices, "choices", err));
    TRY(quire_token_bytes(k->x->e, es->ids->ids[es->ids->n - 1], &last, &n_last, err));
    bool heals = utf8_is_valid((str){last, n_last}); /* false if the token ends inside a character */
    quire_err e = QUIRE_OK;
    k->n_kept = es->ids->n - (heals ? 1 : 0);
    for (size_t i = 0; e == QUIRE_OK && i < c->n_choices; i++) {
        program_text all = {0};
        e = heals ? strbuf_add(&all.text, last, n_last) : QUIRE_OK;
        if (e == QUIRE_OK) {
            e = exec_join_text(&all, c->choices[i]);
        }
        e = e == QUIRE_OK ? exec_submit_joined(k, &all, k->n_kept, (int32_t)i, err)
                          : err_set(err, e, -1, "out of memory for a choice");
        strbuf_deinit(&all.text);
        mem_free(all.plain);
    }
    quire_free(last);
    return e;
}

quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start) {
    assert(k != NULL && start != NULL);
    const engine_state *es = exec_state_of(k->c->state);
    engine_choice *to = &k->choices[index];
    size_t n = (size_t)start->n_tokens, n_state = es->ids->n;
    bool is_healed = n < n_state || start->tokens[n_state - 1] != es->ids->ids[n_state - 1];
    to->from = n_state - (is_healed ? 1 : 0);
    if (n <= to->from || to->from == 0) {
        return err_set(&k->error, QUIRE_BAD_REQUEST, -1,
                       to->from == 0 ? "select: no token precedes choice %d; append text first"
                                     : "choice %d of a select has no tokens",
                       (int)index);
    }
    to->ids = mem_new(n, sizeof *to->ids);
    to->logprobs = mem_new(n - to->from, sizeof *to->logprobs);
    to->alone = mem_new(n - to->from, sizeof *to->alone);
    to->n = n;
    if (to->ids == NULL || to->logprobs == NULL || to->alone == NULL) {
        return err_set(&k->error, QUIRE_NO_MEMORY, -1, "out of memory for a choice");
    }
    mem_copy(to->ids, start->tokens, n * sizeof *to->ids);
    return QUIRE_OK;
}

static quire_err exec_submit_score(engine_call *k, int32_t index, bool is_alone, quire_error *err) {
    const engine_choice *c = &k->choices[index];
    size_t from = is_alone ? c->from : 0;
    return exec_submit_prompt(k, c->ids + from, c->n - from, is_alone ? 1 : c->from, index, is_alone, err);
}

quire_err exec_submit_scores(engine_call *k, quire_error *err) {
    assert(k != NULL);
    const program_call *c = k->c;
    bool wants_alone = c->step->method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED;
    if (exec_must_wait(k, (wants_alone ? 2 : 1) * c->n_choices)) {
        return QUIRE_OK;
    }
    TRY(exec_begin_stage(k, ENGINE_SCORES, 2 * c->n_choices, err));
    k->c->submitted_us = clock_us();
    for (size_t i = 0; i < c->n_choices; i++) {
        TRY(exec_submit_score(k, (int32_t)i, false, err));
        if (wants_alone && k->choices[i].n - k->choices[i].from > 1) {
            TRY(exec_submit_score(k, (int32_t)i, true, err));
        }
    }
    return QUIRE_OK;
}

void exec_take_score(engine_call *k, const call_request *r, const quire_event *start) {
    assert(r != NULL);
    engine_choice *c = &k->choices[r->index];
    size_t skip = r->is_alone ? 1 : 0; /* the first token has no log-probability */
    for (size_t i = skip; i < c->n - c->from; i++) {
        size_t at = (r->is_alone ? i : c->from + i) - 1;
        double logprob = (double)start->logprobs[at * (size_t)start->n_logprobs].logprob;
        *(r->is_alone ? &c->alone[i] : &c->logprobs[i]) = logprob;
    }
}

quire_err exec_take_select(engine_call *k) {
    assert(k != NULL);
    program_call *c = k->c;
    engine_state *es = exec_state_of(c->state);
    select_choice *choices = mem_new(c->n_choices, sizeof *choices);
    c->scores = mem_new(c->n_choices, sizeof *c->scores);
    c->outputs = mem_new(1, sizeof *c->outputs);
    c->n_outputs = c->outputs != NULL ? 1 : 0;
    quire_err e = choices != NULL && c->scores != NULL && c->outputs != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
    if (e == QUIRE_OK) {
        for (size_t i = 0; i < c->n_choices; i++) {
            const engine_choice *from = &k->choices[i];
            choices[i] = (select_choice){from->logprobs, from->alone, from->n - from->from};
        }
        c->chosen = select_score(choices, c->n_choices, c->step->method, c->scores);
        c->outputs[0].finish = QUIRE_FINISH_STOP;
        const engine_choice *chosen = &k->choices[c->chosen];
        e = exec_ids_replace(&es->ids, 0, chosen->ids, chosen->n);
        es->n_computed = chosen->n;
    }
    mem_free(choices);
    return e;
}

/* ---- text to tokens ---- */

/* Makes a request that tokenises a JSON body as the continuation of `from`, and frees the
 * body's memory. chat: the program, for the fields of its chat; or NULL. */
static quire_err exec_new_text(const engine_executor *x, quire_endpoint kind, json_out *body,
                               const program_steps *chat, const quire_continuation *from, quire_request **out,
                               quire_error *err) {
    quire_request *r = NULL;
    quire_err e = err_set(err, body->err, -1, "out of memory for a text");
    if (e == QUIRE_OK) {
        e = quire_request_parse(x->e, kind, body->to->p, body->to->n, &r, err);
    }
    strbuf_deinit(body->to);
    TRY(e);
    if (chat != NULL && chat->chat != NULL) {
        TRY_DONE(e, quire_request_set_all(r, chat->chat, chat->n_chat, err));
    }
    TRY_DONE(e, quire_request_continue(r, from, err));
done:
    if (e != QUIRE_OK) {
        quire_request_free(r);
    }
    *out = r;
    return e;
}

quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                             quire_error *err) {
    assert(k != NULL);
    const engine_state *es = exec_state_of(k->c->state);
    strbuf body = {0};
    json_out o = {.to = &body};
    json_begin(&o, '{');
    json_text(json_name(&o, "prompt"), t->text.n > 0 ? t->text.p : "", t->text.n);
    json_end(&o, '}');
    const quire_continuation from = {.size = sizeof from,
                                     .ids = n_ids > 0 ? es->ids->ids : NULL,
                                     .n_ids = n_ids,
                                     .plain = t->plain,
                                     .n_plain = t->n_plain};
    quire_request *r;
    TRY(exec_new_text(k->x, QUIRE_TOKENIZE, &o, NULL, &from, &r, err));
    return exec_submit(k, r, index, false, err);
}

quire_err exec_take_texts(engine_call *k, quire_error *err) {
    assert(k != NULL);
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    program_text all = {0};
    const size_t rest[] = {0, es->rest.n};
    const program_text before = {
        .text = es->rest, .plain = (size_t *)rest, .n_plain = es->rest.n > 0 ? 1 : 0};
    quire_err e = exec_join_text(&all, &before);
    for (k->upto = es->n_taken; e == QUIRE_OK && k->upto < s->n_parts && s->parts[k->upto].kind == PART_TEXT;
         k->upto++) {
        e = exec_join_text(&all, s->parts[k->upto].text);
    }
    e = e == QUIRE_OK ? exec_begin_stage(k, ENGINE_TEXT, 1, err)
                      : err_set(err, e, -1, "out of memory for a text");
    TRY_DONE(e, exec_submit_joined(k, &all, exec_n_ids(es), 0, err));
done:
    strbuf_deinit(&all.text);
    mem_free(all.plain);
    return e;
}

/* ---- turns ---- */

/* Returns the end of the parts of the turn that begins at part `from`. */
static size_t exec_turn_end(const quire_state *s, size_t from) {
    size_t end = from + 1;
    while (end < s->n_parts && s->parts[end].kind != PART_TURN) {
        end++;
    }
    return end;
}

/* What a message's content has: the texts and values of its turn, the mark, or both. */
typedef enum exec_content { CONTENT_TEXT = 1, CONTENT_MARK = 2, CONTENT_BOTH = 3 } exec_content;

static quire_err exec_write_message(const engine_call *k, size_t from, exec_content has, json_out *o,
                                    quire_error *err) {
    const quire_state *s = k->c->state;
    strbuf content = {0};
    quire_err e = QUIRE_OK;
    const size_t end = exec_turn_end(s, from);
    for (size_t i = from + 1; has != CONTENT_MARK && e == QUIRE_OK && i < end; i++) {
        const program_part *p = &s->parts[i];
        const strbuf *text = p->text != NULL ? &p->text->text : p->value != NULL ? &p->value->text : NULL;
        e = text != NULL
                ? err_set(err, strbuf_add(&content, text->p, text->n), -1, "out of memory for a turn")
            : p->kind != PART_TOKENS
                ? QUIRE_OK
                : err_set(err, QUIRE_UNSUPPORTED, -1,
                          "a turn cannot have token ids, because the chat template writes it; give its text");
    }
    if (e == QUIRE_OK && has != CONTENT_TEXT) {
        e = err_set(err, strbuf_add_str(&content, k->x->mark), -1, "out of memory for a turn");
    }
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), s->parts[from].role);
    json_text(json_name(o, "content"), content.n > 0 ? content.p : "", content.n);
    json_end(o, '}');
    strbuf_deinit(&content);
    return e;
}

quire_err exec_take_turns(engine_call *k, quire_error *err) {
    assert(k != NULL);
    const quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    size_t begun = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i < s->n_parts; i++) {
        bool is_turn = s->parts[i].kind == PART_TURN;
        begun = is_turn && i < es->n_taken ? i : begun;
        last = is_turn ? i : last;
    }
    /* the text that ends the turn is tokenised with the next turn */
    bool is_whole = s->parts[s->n_parts - 1].kind == PART_END;
    bool is_asked = begun == last || (!is_whole && strcmp(s->parts[last].role, "assistant") == 0);
    strbuf body = {0};
    json_out o = {.to = &body};
    quire_err e = QUIRE_OK;
    json_begin(&o, '{');
    json_begin(json_name(&o, "messages"), '[');
    for (size_t i = 0; e == QUIRE_OK && i <= last; i = exec_turn_end(s, i)) {
        exec_content has = i == begun ? CONTENT_MARK
                           : i < last ? CONTENT_TEXT
                           : is_whole ? CONTENT_BOTH
                                      : CONTENT_MARK;
        e = i == last && i != begun && is_asked ? QUIRE_OK : exec_write_message(k, i, has, &o, err);
    }
    json_end(&o, ']');
    json_bool(json_name(&o, "add_generation_prompt"), is_asked);
    json_end(&o, '}');
    if (e == QUIRE_OK) {
        e = exec_begin_stage(k, begun == last ? ENGINE_ANSWER : ENGINE_TEXT, 1, err);
    }
    if (e != QUIRE_OK) {
        strbuf_deinit(&body);
        return e;
    }
    k->upto = is_whole ? s->n_parts - 1 : last + 1;
    es->n_turn = begun != last ? exec_n_ids(es) : es->n_turn;
    const quire_continuation from = {.size = sizeof from,
                                     .ids = es->ids != NULL ? es->ids->ids : NULL,
                                     .n_ids = exec_n_ids(es),
                                     .after = begun != SIZE_MAX ? k->x->mark : NULL,
                                     .before = is_asked ? NULL : k->x->mark};
    quire_request *r;
    TRY(exec_new_text(k->x, QUIRE_TOKENIZE_CHAT, &o, &s->root->program, &from, &r, err));
    return exec_submit(k, r, 0, false, err);
}

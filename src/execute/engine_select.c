/* Executes selects: tokenises and scores the choices. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "execute/engine_call.h"

quire_err exec_submit_choices(engine_call *k, quire_error *err) {
    program_call *c = k->c;
    const engine_state *es = exec_state_of(c->state);
    char *last;
    size_t n_last;
    TRY(program_call_reserve(c, (int64_t)(es->ids->n * c->n_choices), err)); /* for each choice */
    TRY(exec_begin_stage(k, ENGINE_CHOICES, c->n_choices, err));
    k->choices = mem_new(c->n_choices, sizeof *k->choices);
    TRY(mem_check_for(k->choices, "choices", err));
    TRY(quire_token_bytes(k->x->e, es->ids->ids[es->ids->n - 1], &last, &n_last, err));
    bool heals = utf8_is_valid((str){last, n_last}); /* not where it is part of a character */
    quire_err e = QUIRE_OK;
    k->n_kept = es->ids->n - (heals ? 1 : 0);
    for (size_t i = 0; e == QUIRE_OK && i < c->n_choices; i++) {
        program_text all = {0};
        e = heals ? strbuf_add(&all.text, last, n_last) : QUIRE_OK;
        e = e == QUIRE_OK ? exec_join_text(&all, c->choices[i]) : e;
        e = e == QUIRE_OK ? exec_submit_joined(k, &all, k->n_kept, (int32_t)i, err)
                          : err_set(err, e, -1, "out of memory for a choice");
        strbuf_deinit(&all.text);
        mem_free(all.plain);
    }
    quire_free(last);
    return e;
}

quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start) {
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

void exec_take_score(engine_call *k, const engine_request *r, const quire_event *start) {
    engine_choice *c = &k->choices[r->index];
    size_t skip = r->is_alone ? 1 : 0; /* the first token has nothing before it */
    for (size_t i = skip; i < c->n - c->from; i++) {
        size_t at = (r->is_alone ? i : c->from + i) - 1;
        double logprob = (double)start->logprobs[at * (size_t)start->n_logprobs].logprob;
        *(r->is_alone ? &c->alone[i] : &c->logprobs[i]) = logprob;
    }
}

quire_err exec_take_select(engine_call *k) {
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

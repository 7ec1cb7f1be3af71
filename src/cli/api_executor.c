#include "cli/api_executor.h"

#include <assert.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "program/program_state.h"
#include "json/json_out.h"

#define MAX_LINKS 16 /* most gens that one call may answer */

struct api_executor {
    api_client *client;
    api_executor_options o;
    char *model;                   /* model name sent with requests; NULL: not known yet */
    struct api_call *first, *last; /* list of all calls in progress, oldest first */
    struct api_call *over;         /* list of calls that ended without a request */
    api_job *models;               /* request for the list of models; NULL: not in progress */
    api_counts counts;
    bool guesses; /* the API returns the tokens of its texts */
};

/* The executor's data of a state: text that was generated past the end of its last
 * gen. */
typedef struct api_state {
    api_text *guess;       /* NULL: none */
    size_t at;             /* offset of the unused text */
    size_t n_parts;        /* number of the state's parts when the guess was made, with the gen's value */
    int64_t prompt_tokens; /* prompt tokens of the call that generated it */
    char *sampling;        /* the sampling fields with which it was generated */
    bool is_greedy;        /* decoding was greedy: a new call would get the same text */
} api_state;

typedef struct api_call {
    api_executor *x;
    program_call *c;
    struct api_call *next, *previous;
    struct api_call *next_over;
    api_job *job;
    json_value *fields; /* request fields of the program and the gen */
    strbuf sampling;    /* the fields as JSON, without max_tokens and stop */
    api_rule rule;
    bool goes_past; /* the job asks for more text than the gen */
    bool is_again;  /* the longer text did not show where the gen ends: the gen is sent alone */
    quire_error error;
    quire_err status;
} api_call;

/* ---- fields ---- */

static bool api_is_ending(const char *name) {
    return strcmp(name, "max_tokens") == 0 || strcmp(name, "stop") == 0;
}

static void api_write_members(json_out *o, const json_value *fields, const json_value *but, bool with_ends) {
    json_member m = {0};
    while (json_next(fields, &m)) {
        if (!json_has(but, m.name) && (with_ends || !api_is_ending(m.name))) {
            json_add(json_name(o, m.name), m.value);
        }
    }
}

/* Reads the request fields of a gen; the program's are defaults. */
static quire_err api_read_fields(api_call *k, quire_error *err) {
    const program_steps *p = &k->c->state->root->program;
    const step *st = k->c->step;
    json_value *all = p->fields != NULL ? json_document((str){p->fields, p->n_fields}) : NULL,
               *own = st->fields != NULL ? json_document((str){st->fields, st->n_fields}) : NULL;
    strbuf text = {0};
    json_out whole = {.to = &text}, sampling = {.to = &k->sampling};
    json_begin(&whole, '{');
    api_write_members(&whole, all, own, true);
    api_write_members(&whole, own, NULL, true);
    json_end(&whole, '}');
    json_drop(all);
    json_drop(own);
    k->fields = whole.err == QUIRE_OK ? json_document((str){text.p, text.n}) : NULL;
    strbuf_deinit(&text);
    TRY(mem_check_for(k->fields, "fields", err));
    json_begin(&sampling, '{');
    api_write_members(&sampling, k->fields, NULL, false);
    json_end(&sampling, '}');
    return err_set(err, sampling.err, -1, "out of memory for fields");
}

static bool api_fields_are_greedy(const api_call *k) {
    const json_value *temperature = json_get(k->fields, "temperature");
    return json_numeric(temperature) && json_double(temperature) == 0;
}

/* Whether another gen with these fields would generate the same text past this gen's end:
 * no field's effect depends on where a gen begins. */
static bool api_fields_allow_guess(const api_call *k) {
    static const char *const known[] = {"max_tokens", "stop",  "temperature", "top_p",
                                        "top_k",      "min_p", "seed"};
    json_member m = {0};
    while (json_next(k->fields, &m)) {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            is_known = is_known || strcmp(m.name, known[i]) == 0;
        }
        if (!is_known) {
            return false;
        }
    }
    return api_fields_are_greedy(k) || (!json_has(k->fields, "seed") && !k->c->state->root->program.has_seed);
}

/* ---- states ---- */

static void api_forget_guess(api_state *s) {
    api_text_drop(s->guess);
    mem_free(s->sampling);
    s->guess = NULL;
    s->sampling = NULL;
}

static void api_exec_drop(void *executor, quire_state *s) {
    api_state *as = s->of_executor;
    (void)executor;
    if (as != NULL) {
        api_forget_guess(as);
        mem_free(as);
        s->of_executor = NULL;
    }
}

/* A branch shares a greedy guess only: sampled text must be drawn anew for each
 * branch. */
static quire_err api_exec_fork(void *executor, const quire_state *from, quire_state *to) {
    const api_state *was = from->of_executor;
    (void)executor;
    if (was == NULL || was->guess == NULL || !was->is_greedy) {
        return QUIRE_OK;
    }
    api_state *as = mem_new(1, sizeof *as);
    TRY(mem_check(as));
    *as = *was;
    as->sampling = mem_dup(was->sampling, strlen(was->sampling));
    if (as->sampling == NULL) {
        mem_free(as);
        return QUIRE_NO_MEMORY;
    }
    api_text_share(as->guess);
    to->of_executor = as;
    return QUIRE_OK;
}

static const int32_t *api_exec_tokens(void *executor, const quire_state *s, size_t *n) {
    (void)executor, (void)s;
    *n = 0;
    return NULL;
}

/* Appends the text of parts [from, to) of a state. An error if a part has no text. */
static quire_err api_add_parts(const quire_state *s, size_t from, size_t to, strbuf *text, quire_error *err) {
    for (size_t i = from; i < to; i++) {
        const program_part *p = &s->parts[i];
        const strbuf *part = p->kind == PART_TEXT    ? &p->text->text
                             : p->kind == PART_VALUE ? &p->value->text
                                                     : NULL;
        if (p->kind == PART_TOKENS) {
            return err_set(err, QUIRE_UNSUPPORTED, -1,
                           "tokens: an API takes text, not token ids; give the text");
        }
        if (part != NULL) {
            TRY(err_set(err, strbuf_add(text, part->p, part->n), -1, "out of memory for a prompt"));
        }
    }
    return QUIRE_OK;
}

/* ---- bodies ---- */

static quire_err api_write_messages(json_out *o, const quire_state *s, bool *goes_on, quire_error *err) {
    strbuf text = {0};
    quire_err e = QUIRE_OK;
    *goes_on = false;
    json_begin(json_name(o, "messages"), '[');
    for (size_t i = 0; i < s->n_parts && e == QUIRE_OK;) {
        size_t end = i + 1;
        while (end < s->n_parts && s->parts[end].kind != PART_TURN) {
            end++;
        }
        strbuf_clear(&text);
        e = api_add_parts(s, i + 1, end, &text, err);
        bool is_open = end == s->n_parts && s->in_turn;
        if (!is_open || text.n > 0) {
            json_begin(json_item(o), '{');
            json_cstr(json_name(o, "role"), s->parts[i].role);
            json_text(json_name(o, "content"), text.n > 0 ? text.p : "", text.n);
            json_end(o, '}');
            *goes_on = is_open;
        }
        i = end;
    }
    json_end(o, ']');
    strbuf_deinit(&text);
    return e;
}

/* Writes the members before `model`: the prompt, or messages and options of their
 * template. */
static quire_err api_write_prompt(json_out *o, const quire_state *s, quire_error *err) {
    const program_steps *p = &s->root->program;
    bool goes_on;
    if (!s->has_turns) {
        strbuf text = {0};
        quire_err e = api_add_parts(s, 0, s->n_parts, &text, err);
        json_text(json_name(o, "prompt"), text.n > 0 ? text.p : "", text.n);
        strbuf_deinit(&text);
        return e;
    }
    TRY(api_write_messages(o, s, &goes_on, err));
    if (goes_on) {
        json_bool(json_name(o, "continue_final_message"), true);
        json_bool(json_name(o, "add_generation_prompt"), false);
    }
    json_value *chat = p->chat != NULL ? json_document((str){p->chat, p->n_chat}) : NULL;
    api_write_members(o, chat, NULL, true);
    json_drop(chat);
    return QUIRE_OK;
}

/* ---- what follows a gen ---- */

/* An upper bound of the tokens to request past the gen's end: of the constant texts (one
 * per byte) and gens that follow in its list. 0: none follow. */
static int64_t api_count_more(const api_call *k) {
    const quire_state *s = k->c->state;
    const program_frame *f = &s->frames[s->n_frames - 1];
    const char *names[MAX_LINKS] = {k->c->step->name};
    size_t n = 1;
    int64_t more = 0, texts = 0;
    for (size_t i = f->next; i < f->list->n && n < MAX_LINKS; i++) {
        const step *st = f->list->items[i];
        program_text *text;
        api_call later = {.c = &(program_call){.state = k->c->state, .step = st}};
        if (st->kind == STEP_TEXT && program_text_is_constant(s, &st->text, names, n) &&
            program_text_expand(s, &st->text, &text, NULL) == QUIRE_OK) {
            texts += (int64_t)text->text.n;
            program_text_drop(text);
            continue;
        }
        bool fits = st->kind == STEP_GEN && api_read_fields(&later, NULL) == QUIRE_OK &&
                    api_rule_read(later.fields, &later.rule) && later.rule.max_tokens > 0 &&
                    str_eq((str){later.sampling.p, later.sampling.n}, (str){k->sampling.p, k->sampling.n});
        more += fits ? texts + later.rule.max_tokens : 0;
        texts = 0;
        names[n++] = st->name;
        json_drop(later.fields);
        strbuf_deinit(&later.sampling);
        if (!fits) {
            break;
        }
    }
    return more;
}

/* ---- calls ---- */

static void api_call_free(api_call *k) {
    api_executor *x = k->x;
    if (k->job != NULL) {
        api_client_drop(x->client, k->job);
    }
    *(k->previous != NULL ? &k->previous->next : &x->first) = k->next;
    *(k->next != NULL ? &k->next->previous : &x->last) = k->previous;
    for (api_call **at = &x->over; *at != NULL; at = &(*at)->next_over) {
        if (*at == k) {
            *at = k->next_over;
            break;
        }
    }
    json_drop(k->fields);
    strbuf_deinit(&k->sampling);
    k->c->of_executor = NULL;
    mem_free(k);
}

static void api_exec_cancel(void *executor, program_call *c) {
    (void)executor;
    api_call_free(c->of_executor);
}

static quire_err api_call_new(api_executor *x, program_call *c, api_call **out, quire_error *err) {
    api_call *k = mem_new(1, sizeof *k);
    TRY(mem_check_for(k, "a call", err));
    k->x = x;
    k->c = c;
    k->previous = x->last;
    *(x->last != NULL ? &x->last->next : &x->first) = k;
    x->last = k;
    c->of_executor = k;
    c->state->of_executor =
        c->state->of_executor != NULL ? c->state->of_executor : mem_new(1, sizeof(api_state));
    *out = k;
    return mem_check_for(c->state->of_executor, "a state", err);
}

static void api_call_is_over(api_call *k) {
    api_call **at = &k->x->over;
    while (*at != NULL) {
        at = &(*at)->next_over;
    }
    *at = k;
}

static quire_err api_make_outputs(program_call *c, size_t n, quire_error *err) {
    c->outputs = mem_new(n, sizeof *c->outputs);
    c->n_outputs = c->outputs != NULL ? n : 0;
    return mem_check_for(c->outputs, "outputs", err);
}

static quire_err api_set_text(program_call *c, size_t i, str text) {
    TRY(strbuf_add(&c->outputs[i].text, text.n > 0 ? text.p : "", text.n));
    return program_call_text(c, (int32_t)i, text);
}

/* Sets the gen's first output to the text before the cut, and stores the rest as a
 * guess. */
static quire_err api_take_cut(api_call *k, api_text *t, size_t from, const api_cut *cut,
                              int64_t prompt_tokens, quire_error *err) {
    program_call *c = k->c;
    api_state *s = c->state->of_executor;
    str text = {t->text.p + from, cut->end - from};
    TRY(api_make_outputs(c, 1, err));
    c->outputs[0].finish = cut->finish;
    char *sampling = api_set_text(c, 0, text) == QUIRE_OK ? mem_dup(k->sampling.p, k->sampling.n) : NULL;
    TRY(mem_check_for(sampling, "an output", err));
    api_text_share(t);
    api_forget_guess(s);
    *s = (api_state){.guess = t,
                     .at = cut->end,
                     .n_parts = c->state->n_parts + 1,
                     .prompt_tokens = prompt_tokens,
                     .sampling = sampling,
                     .is_greedy = api_fields_are_greedy(k)};
    return QUIRE_OK;
}

/* Answers a gen from text generated past an earlier gen's end. False: it must be sent. */
static bool api_take_guess(api_call *k) {
    program_call *c = k->c;
    api_state *s = c->state->of_executor;
    strbuf text = {0};
    api_cut cut;
    bool is_known = s->guess != NULL && api_fields_allow_guess(k) && strlen(s->sampling) == k->sampling.n &&
                    memcmp(s->sampling, k->sampling.p, k->sampling.n) == 0;
    for (size_t i = s->n_parts; is_known && i < c->state->n_parts; i++) {
        is_known = c->state->parts[i].kind == PART_TEXT;
    }
    is_known = is_known && api_add_parts(c->state, s->n_parts, c->state->n_parts, &text, NULL) == QUIRE_OK &&
               api_text_agrees(s->guess, s->at, (str){text.n > 0 ? text.p : "", text.n}) &&
               api_text_cut(s->guess, s->at + text.n, &k->rule, &cut);
    size_t from = s->at + text.n;
    strbuf_deinit(&text);
    if (!is_known) {
        return false;
    }
    api_text *t = api_text_share(s->guess);
    int64_t prompt_tokens = s->prompt_tokens;
    for (size_t i = 0; i < t->n_tokens && t->ends[i] <= from; i++) {
        prompt_tokens++;
    }
    is_known = api_take_cut(k, t, from, &cut, s->prompt_tokens, &k->error) == QUIRE_OK;
    k->x->counts.n_reused += is_known ? 1 : 0;
    k->x->counts.saved_prompt_tokens += is_known ? prompt_tokens : 0;
    k->x->counts.unused_tokens -= is_known ? (int64_t)cut.n_tokens : 0;
    api_text_drop(t);
    return true;
}

static quire_err api_send_models(api_executor *x, quire_error *err) {
    api_job *j = api_job_new("/models", NULL);
    TRY(mem_check_for(j, "a request", err));
    quire_err e = api_client_send(x->client, j, err);
    if (e != QUIRE_OK) {
        api_job_free(j);
        return e;
    }
    x->models = j;
    return QUIRE_OK;
}

/* Writes the last members of a call's request, and sends it. */
static quire_err api_send_body(api_call *k, json_out *o, quire_error *err) {
    const char *model = k->x->model != NULL ? k->x->model : k->c->state->root->program.model;
    json_cstr(json_name(o, "model"), model);
    json_end(o, '}');
    if (o->err != QUIRE_OK) {
        TRY(err_set(err, o->err, -1, "out of memory for a request"));
    }
    k->c->submitted_us = clock_us();
    return api_client_send(k->x->client, k->job, err);
}

static quire_err api_send_gen(api_call *k, quire_error *err) {
    const quire_state *s = k->c->state;
    k->job = api_job_new(s->has_turns ? "/chat/completions" : "/completions", k);
    TRY(mem_check_for(k->job, "a request", err));
    json_out o = {.to = &k->job->body};
    bool may = k->x->guesses && !k->is_again && k->x->o.most_more > 0 && k->rule.max_tokens > 0 &&
               api_fields_allow_guess(k);
    int64_t more = may ? api_count_more(k) : 0;
    more = more < k->x->o.most_more ? more : k->x->o.most_more;
    k->goes_past = more > 0;
    json_begin(&o, '{');
    TRY(api_write_prompt(&o, s, err));
    api_write_members(&o, k->fields, NULL, !k->goes_past);
    if (k->c->has_seed && s->root->program.has_seed) {
        json_int(json_name(&o, "seed"), (int64_t)k->c->seed);
    }
    if (k->goes_past) {
        json_int(json_name(&o, "max_tokens"), k->rule.max_tokens + more);
        if (s->has_turns) {
            json_bool(json_name(&o, "logprobs"), true);
        } else {
            json_int(json_name(&o, "logprobs"), 0);
        }
    }
    return api_send_body(k, &o, err);
}

static quire_err api_gen_begin(api_call *k, quire_error *err) {
    TRY(api_read_fields(k, err));
    bool can_cut = api_rule_read(k->fields, &k->rule);
    k->rule.max_tokens = can_cut ? k->rule.max_tokens : -1;
    if (can_cut && k->rule.max_tokens >= 0 && api_take_guess(k)) {
        api_call_is_over(k);
        return QUIRE_OK;
    }
    return api_send_gen(k, err);
}

/* ---- select ---- */

/* Sends each choice, appended to the state's text and, if the method needs it, alone. */
static quire_err api_select_begin(api_call *k, quire_error *err) {
    const program_call *c = k->c;
    const quire_state *s = c->state;
    bool wants_alone = c->step->method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED;
    strbuf text = {0};
    if (s->has_turns) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "select %s: an API scores texts, not chats; use it in a program without turns",
                       c->step->name);
    }
    k->job = api_job_new("/completions", k);
    TRY(mem_check_for(k->job, "a request", err));
    json_out o = {.to = &k->job->body};
    quire_err e = api_add_parts(s, 0, s->n_parts, &text, err);
    json_begin(&o, '{');
    json_begin(json_name(&o, "prompt"), '[');
    for (size_t i = 0; i < (wants_alone ? 2 : 1) * c->n_choices; i++) {
        const strbuf *choice = &c->choices[i % c->n_choices]->text;
        str before = {text.n > 0 ? text.p : "", i < c->n_choices ? text.n : 0};
        json_texts(json_item(&o), before, (str){choice->p, choice->n});
    }
    json_end(&o, ']');
    strbuf_deinit(&text);
    TRY(e);
    json_int(json_name(&o, "max_tokens"), 1);
    json_number(json_name(&o, "temperature"), 0);
    json_bool(json_name(&o, "echo"), true);
    json_int(json_name(&o, "logprobs"), 1);
    return api_send_body(k, &o, err);
}

static int64_t api_count_chars(const char *p, size_t n) {
    int64_t chars = 0;
    for (size_t len, i = 0; i < n; i += len, chars++) {
        utf8_decode(p + i, n - i, &len);
    }
    return chars;
}

/* Reads the log-probabilities of a choice's tokens that end after the first n_before of
 * n_all characters. *out: [*n] mem_new'd. */
static quire_err api_read_scores(const json_value *choice, int64_t n_before, int64_t n_all, double **out,
                                 size_t *n) {
    const json_value *l = json_get(choice, "logprobs"), *offsets = json_get(l, "text_offset"),
                     *values = json_get(l, "token_logprobs");
    size_t n_tokens = json_length(values);
    if (n_tokens == 0 || json_length(offsets) != n_tokens) {
        return QUIRE_UNSUPPORTED;
    }
    *out = mem_new(n_tokens, sizeof **out);
    TRY(mem_check(*out));
    for (size_t i = 0; i < n_tokens; i++) {
        int64_t at = json_int64(json_at(offsets, i)),
                end = i + 1 < n_tokens ? json_int64(json_at(offsets, i + 1)) : n_all;
        if (end > n_before && at < n_all) {
            (*out)[(*n)++] = json_double(json_at(values, i)); /* null, of a text's first token, is 0 */
        }
    }
    return *n > 0 ? QUIRE_OK : QUIRE_UNSUPPORTED;
}

/* Reads the choices' log-probabilities. scores: [2 * n_choices], arrays that `choices`
 * point to; the caller frees them. */
static quire_err api_score_choices(const api_call *k, const json_value *response, int64_t n_before,
                                   select_choice *choices, double **scores, quire_error *err) {
    const program_call *c = k->c;
    bool wants_alone = c->step->method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED;
    for (size_t i = 0; i < c->n_choices; i++) {
        const strbuf *text = &c->choices[i]->text;
        int64_t n_own = api_count_chars(text->p, text->n);
        double *logprobs = NULL, *alone = NULL;
        size_t n = 0, n_alone = 0;
        quire_err e = api_read_scores(api_choice_at(response, i), n_before, n_before + n_own, &logprobs, &n);
        if (e == QUIRE_OK && wants_alone) {
            e = api_read_scores(api_choice_at(response, c->n_choices + i), 0, n_own, &alone, &n_alone);
        }
        scores[2 * i] = logprobs;
        scores[2 * i + 1] = alone;
        choices[i] = (select_choice){logprobs, alone, n};
        if (e != QUIRE_OK || (wants_alone && n != n_alone)) {
            return err_set(
                err, e == QUIRE_OK ? QUIRE_UNSUPPORTED : e, -1,
                e == QUIRE_OK
                    ? "select %s: choice %zu has different tokens after the text than alone"
                    : "select %s: the API gives no log-probabilities of choice %zu (echo with logprobs)",
                c->step->name, i);
        }
    }
    return QUIRE_OK;
}

static quire_err api_take_select(api_call *k, const json_value *response, quire_error *err) {
    program_call *c = k->c;
    strbuf text = {0};
    TRY(api_make_outputs(c, 1, err));
    c->outputs[0].finish = QUIRE_FINISH_STOP;
    c->scores = mem_new(c->n_choices, sizeof *c->scores);
    select_choice *choices = mem_new(c->n_choices, sizeof *choices);
    double **scores = mem_new(2 * c->n_choices, sizeof(double *));
    quire_err e = mem_check_for(c->scores != NULL && scores != NULL ? choices : NULL, "scores", err);
    TRY_DONE(e, api_add_parts(c->state, 0, c->state->n_parts, &text, err));
    TRY_DONE(e, api_score_choices(k, response, api_count_chars(text.p, text.n), choices, scores, err));
    c->chosen = select_score(choices, c->n_choices, c->step->method, c->scores);
done:
    for (size_t i = 0; scores != NULL && i < 2 * c->n_choices; i++) {
        mem_free(scores[i]);
    }
    mem_free(scores);
    mem_free(choices);
    strbuf_deinit(&text);
    return e;
}

/* ---- responses ---- */

/* Sets the call's outputs to the choices of the response. */
static quire_err api_take_outputs(api_call *k, const json_value *response, quire_error *err) {
    program_call *c = k->c;
    size_t n = json_length(json_get(response, "choices"));
    int32_t most = json_get_int32(k->fields, "n", 1);
    if (n > (size_t)(most > 1 ? most : 1)) {
        return err_set(err, QUIRE_IO, -1, "the API's response has %zu choices, more than the %d asked for", n,
                       (int)(most > 1 ? most : 1));
    }
    TRY(api_make_outputs(c, n > 0 ? n : 1, err));
    for (size_t i = 0; i < n; i++) {
        const json_value *choice = api_choice_at(response, i);
        if (choice == NULL) {
            return err_set(err, QUIRE_IO, -1, "the API's response has no choice with index %zu", i);
        }
        const json_value *holder = c->state->has_turns ? json_get(choice, "message") : choice;
        str text = json_get_str(holder, c->state->has_turns ? "content" : "text");
        c->outputs[i].finish = api_finish_of(choice);
        TRY(err_set(err, api_set_text(c, i, text), -1, "out of memory for an output"));
    }
    return n > 0 ? QUIRE_OK : err_set(err, QUIRE_IO, -1, "the API's response has no choices");
}

/* Handles the response to a gen that was requested past its end. Sets k->is_again if it
 * does not show where the gen ends, because the API returned no or too few tokens. */
static quire_err api_take_past(api_call *k, const json_value *response, int64_t n_completion,
                               quire_error *err) {
    api_text *t;
    api_cut cut;
    quire_err e = api_text_read(api_choice_at(response, 0), k->c->state->has_turns, &t);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "the API's response has no choices, or out of memory");
    }
    k->x->guesses = t->has_tokens || t->text.n == 0;
    k->is_again = !api_text_cut(t, 0, &k->rule, &cut);
    if (!k->is_again) {
        k->x->counts.unused_tokens +=
            n_completion > (int64_t)cut.n_tokens ? n_completion - (int64_t)cut.n_tokens : 0;
        e = api_take_cut(k, t, 0, &cut, k->c->prompt_tokens, err);
    }
    api_text_drop(t);
    return e;
}

/* Handles a response. If k->job is set afterwards, the gen was sent again. */
static quire_err api_take_response(api_call *k, const json_value *response, quire_error *err) {
    const json_value *usage = json_get(response, "usage");
    program_call *c = k->c;
    int64_t n_prompt = api_count_of(usage, "prompt_tokens"),
            n_completion = api_count_of(usage, "completion_tokens"),
            n_cached = api_count_of(json_get(usage, "prompt_tokens_details"), "cached_tokens");
    c->prompt_tokens += n_prompt;
    c->computed_tokens += n_prompt - n_cached;
    c->completion_tokens += n_completion;
    k->x->counts.prompt_tokens += n_prompt;
    k->x->counts.completion_tokens += n_completion;
    if (c->step->kind == STEP_SELECT) {
        return api_take_select(k, response, err);
    }
    if (!k->goes_past) {
        return api_take_outputs(k, response, err);
    }
    TRY(api_take_past(k, response, n_completion, err));
    return k->is_again ? api_send_gen(k, err) : QUIRE_OK;
}

/* Sends a gen alone, because the API refused the longer request: it has no
 * log-probabilities, or allows fewer tokens. */
static quire_err api_ask_again(api_call *k, quire_error *err) {
    k->x->guesses = false;
    k->is_again = true;
    *err = (quire_error){0};
    return api_send_gen(k, err);
}

static void api_take_job(api_executor *x, api_job *j) {
    api_call *k = j->user;
    json_value *response = NULL;
    k->job = NULL;
    k->error = j->error;
    quire_err e = j->error.code;
    x->counts.n_calls += j->n_sent;
    if (e == QUIRE_BAD_REQUEST && k->goes_past) {
        e = api_ask_again(k, &k->error);
    } else if (e == QUIRE_OK) {
        response = json_document((str){j->response.n > 0 ? j->response.p : "", j->response.n});
        e = json_is(response, JSON_KIND_OBJECT)
                ? api_take_response(k, response, &k->error)
                : err_set(&k->error, QUIRE_IO, -1, "the API's response is not a JSON object");
    }
    int64_t n = k->c->prompt_tokens + k->c->completion_tokens;
    json_drop(response);
    api_job_free(j);
    if (k->job != NULL && e == QUIRE_OK) {
        return;
    }
    program_call *c = k->c;
    quire_error why = k->error;
    if (e == QUIRE_OK && !program_call_count(c, n)) {
        return;
    }
    api_call_free(k);
    program_call_end(c, e != QUIRE_OK ? &why : NULL);
}

/* Sends the calls that waited for the model's name. */
static void api_begin_waiting(api_executor *x);

static void api_take_models(api_executor *x, api_job *j) {
    quire_error err = j->error;
    json_value *list = json_document((str){j->response.n > 0 ? j->response.p : "", j->response.n});
    str id = json_get_str(json_at(json_get(list, "data"), 0), "id");
    x->models = NULL;
    x->counts.n_calls += j->n_sent;
    if (err.code == QUIRE_OK && id.n == 0) {
        err_set(&err, QUIRE_NOT_FOUND, -1,
                "the API lists no model; name one: quire run MODEL --program FILE --api URL");
    }
    x->model = err.code == QUIRE_OK ? mem_dup(id.p, id.n) : NULL;
    json_drop(list);
    api_job_free(j);
    if (err.code == QUIRE_OK && x->model == NULL) {
        err_set(&err, QUIRE_NO_MEMORY, -1, "out of memory for a model's name");
    }
    for (api_call *k = x->first; k != NULL && x->model == NULL; k = k->next) {
        k->error = err;
        k->status = err.code;
        api_call_is_over(k);
    }
    api_begin_waiting(x);
}

/* Begins a call, or requests the model's name first if it is not known. */
static quire_err api_call_begin(api_call *k, quire_error *err) {
    if (k->x->model == NULL && k->c->state->root->program.model == NULL) {
        return k->x->models != NULL ? QUIRE_OK : api_send_models(k->x, err);
    }
    return k->c->step->kind == STEP_GEN ? api_gen_begin(k, err) : api_select_begin(k, err);
}

static void api_begin_waiting(api_executor *x) {
    for (api_call *k = x->first; k != NULL && x->model != NULL; k = k->next) {
        if (k->job == NULL && k->status == QUIRE_OK && k->fields == NULL) {
            k->status = api_call_begin(k, &k->error);
            if (k->status != QUIRE_OK) {
                api_call_is_over(k);
            }
        }
    }
}

static quire_err api_exec_begin(void *executor, program_call *c, quire_error *err) {
    api_call *k = NULL;
    quire_err e = api_call_new(executor, c, &k, err);
    TRY_DONE(e, api_call_begin(k, err));
done:
    if (e != QUIRE_OK && k != NULL) {
        api_call_free(k);
    }
    return e;
}

/* ---- the executor ---- */

static bool api_exec_poll(void *executor) {
    api_executor *x = executor;
    bool had = false;
    for (api_job *j = api_client_take(x->client); j != NULL; j = api_client_take(x->client)) {
        if (j == x->models) {
            api_take_models(x, j);
        } else {
            api_take_job(x, j);
        }
        had = true;
    }
    while (x->over != NULL) {
        program_call *c = x->over->c;
        quire_error why = x->over->error;
        api_call_free(x->over);
        program_call_end(c, why.code != QUIRE_OK ? &why : NULL);
        had = true;
    }
    return had;
}

static int api_exec_fd(void *executor) {
    return api_client_fd(((api_executor *)executor)->client);
}

static void api_exec_wait(void *executor, int64_t timeout_us) {
    api_client_wait(((api_executor *)executor)->client, timeout_us);
}

static void api_exec_close(void *executor) {
    api_executor *x = executor;
    if (x->client != NULL && x->models != NULL) {
        api_client_drop(x->client, x->models);
    }
    api_client_close(x->client);
    mem_free(x->model);
    mem_free(x);
}

const program_ops api_ops = {.gen = api_exec_begin,
                             .select = api_exec_begin,
                             .cancel = api_exec_cancel,
                             .fork = api_exec_fork,
                             .drop = api_exec_drop,
                             .tokens = api_exec_tokens,
                             .poll = api_exec_poll,
                             .fd = api_exec_fd,
                             .wait = api_exec_wait,
                             .close = api_exec_close};

quire_err api_executor_open(const api_executor_options *o, api_executor **out, quire_error *err) {
    api_executor *x = mem_new(1, sizeof *x);
    TRY(mem_check_for(x, "an API", err));
    x->o = *o;
    x->guesses = true;
    x->model = o->model != NULL ? mem_dup(o->model, strlen(o->model)) : NULL;
    quire_err e =
        o->model == NULL || x->model != NULL ? QUIRE_OK : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    TRY_DONE(e, api_client_open(&o->client, &x->client, err));
done:
    if (e != QUIRE_OK) {
        api_exec_close(x);
        return e;
    }
    *out = x;
    return QUIRE_OK;
}

api_counts api_executor_count(const api_executor *x) {
    assert(x != NULL);
    return x->counts;
}

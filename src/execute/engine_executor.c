#include "execute/engine_executor.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "program/select_score.h"
#include "json/json_out.h"

/* Stands in messages for a content that has tokens already. Nobody can guess it, so that
 * no text has it. */
#define MARK_BYTES 40

typedef struct engine_executor {
    quire_engine *e;
    quire_queue *q;
    char mark[MARK_BYTES];
} engine_executor;

/* Ids that states share; changed by an owner that is the only one. */
typedef struct shared_ids {
    int32_t refs;
    size_t n, cap;
    int32_t ids[];
} shared_ids;

/* What the executor has of a state. */
typedef struct engine_state {
    shared_ids *ids;
    size_t n_taken;    /* parts that are in ids */
    size_t n_computed; /* of ids */
    size_t n_answered; /* n_taken as the beginning of an answer behind it was computed */
    quire_park *park;  /* holds the pages of ids between calls; NULL: not yet, or not any more */
    strbuf rest;       /* text behind ids, of a gen that a stop string cut within a token */
} engine_state;

struct engine_call;

/* One request of a call; the user of its stream. */
typedef struct engine_request {
    struct engine_call *call;
    quire_stream *stream;
    int32_t index; /* of a select: its choice */
    bool is_alone; /* it scores the choice's tokens without anything before them */
} engine_request;

/* A choice of a select. */
typedef struct engine_choice {
    int32_t *ids;             /* [n] of the state with the choice */
    size_t n, from;           /* the choice's tokens are [from, n) */
    double *logprobs, *alone; /* [n - from] */
} engine_choice;

typedef enum engine_stage {
    ENGINE_TEXT,    /* the state's text becomes tokens */
    ENGINE_ANSWER,  /* what begins an answer behind it becomes tokens, for forks */
    ENGINE_PREFIX,  /* what the state has is computed */
    ENGINE_GEN,     /* the gen runs */
    ENGINE_CHOICES, /* the choices become tokens */
    ENGINE_SCORES   /* they are scored */
} engine_stage;

typedef struct engine_call {
    engine_executor *x;
    program_call *c;
    engine_stage stage;
    engine_request *requests; /* [n_requests] all of the stage */
    size_t n_requests, n_open;
    shared_ids *answer; /* of ENGINE_ANSWER */
    size_t n_kept;      /* ENGINE_CHOICES: ids that stay whatever a choice is */
    size_t upto;        /* ENGINE_TEXT: how many parts are in ids then */
    size_t **ends;      /* [outputs of c] of a gen: bytes of text up to the end of each token */
    size_t *caps;
    engine_choice *choices; /* [choices of c] */
    quire_error error;      /* of a request; the first one */
} engine_call;

/* ---- ids ---- */

static void ids_drop(shared_ids *l) {
    if (l != NULL && --l->refs == 0) {
        mem_free(l);
    }
}

/* Replaces what *l has behind its first `keep` ids. NO_MEMORY: it is unchanged. */
static quire_err ids_replace(shared_ids **l, size_t keep, const int32_t *ids, size_t n) {
    shared_ids *to = *l;
    if (to == NULL || to->refs > 1 || keep + n > to->cap) {
        size_t cap = keep + n + keep / 4 + MEM_FIRST_CAPACITY;
        to = mem_new(1, sizeof *to + cap * sizeof *to->ids);
        TRY(mem_check(to));
        to->refs = 1;
        to->cap = cap;
        mem_copy(to->ids, *l != NULL ? (*l)->ids : NULL, keep * sizeof *to->ids);
        ids_drop(*l);
        *l = to;
    }
    mem_copy(to->ids + keep, ids, n * sizeof *to->ids);
    to->n = keep + n;
    return QUIRE_OK;
}

static engine_state *exec_state_of(const quire_state *s) {
    return s->of_executor;
}

static size_t exec_n_ids(const engine_state *es) {
    return es->ids != NULL ? es->ids->n : 0;
}

static quire_err exec_want_state(quire_state *s, quire_error *err) {
    s->of_executor = s->of_executor != NULL ? s->of_executor : mem_new(1, sizeof(engine_state));
    return mem_check_for(s->of_executor, "a state", err);
}

static void exec_settle(void *executor, quire_state *s) {
    engine_state *es = s->of_executor;
    (void)executor;
    if (es != NULL) {
        quire_park_close(es->park);
        es->park = NULL;
    }
}

static void exec_drop(void *executor, quire_state *s) {
    engine_state *es = s->of_executor;
    exec_settle(executor, s);
    if (es != NULL) {
        ids_drop(es->ids);
        strbuf_deinit(&es->rest);
        mem_free(es);
        s->of_executor = NULL;
    }
}

static quire_err exec_fork(void *executor, const quire_state *from, quire_state *to) {
    const engine_state *was = from->of_executor;
    if (was == NULL) {
        return QUIRE_OK;
    }
    TRY(exec_want_state(to, NULL));
    engine_state *es = exec_state_of(to);
    es->n_taken = was->n_taken;
    es->n_computed = was->n_computed;
    es->n_answered = was->n_answered;
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

static const int32_t *exec_tokens(void *executor, const quire_state *s, size_t *n) {
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
    k->n_requests = k->n_open = 0;
}

static void exec_call_free(engine_call *k) {
    exec_release(k);
    for (size_t i = 0; k->ends != NULL && i < k->c->n_outputs; i++) {
        mem_free(k->ends[i]);
    }
    for (size_t i = 0; k->choices != NULL && i < k->c->n_choices; i++) {
        mem_free(k->choices[i].ids);
        mem_free(k->choices[i].logprobs);
        mem_free(k->choices[i].alone);
    }
    ids_drop(k->answer);
    mem_free(k->ends);
    mem_free(k->caps);
    mem_free(k->choices);
    k->c->of_executor = NULL;
    mem_free(k);
}

static void exec_cancel(void *executor, program_call *c) {
    (void)executor;
    exec_call_free(c->of_executor);
}

/* Makes room for the n requests of a stage. */
static quire_err exec_begin_stage(engine_call *k, engine_stage stage, size_t n, quire_error *err) {
    exec_release(k);
    k->stage = stage;
    k->requests = mem_new(n, sizeof *k->requests);
    return mem_check_for(k->requests, "requests", err);
}

/* Submits a request of the stage, which it takes. */
static quire_err exec_submit(engine_call *k, quire_request *r, int32_t index, bool is_alone,
                             quire_error *err) {
    engine_request *to = &k->requests[k->n_requests];
    *to = (engine_request){.call = k, .index = index, .is_alone = is_alone};
    quire_state *s = k->c->state;
    engine_state *es = exec_state_of(s);
    bool parks =
        (k->stage == ENGINE_GEN || k->stage == ENGINE_PREFIX) && quire_request_describe(r)->beam_width == 0;
    quire_request_step(r, s->root->number, s->depth);
    quire_err e = quire_request_tenant(r, s->root->tenant);
    e = e == QUIRE_OK && parks && es->park == NULL ? quire_park_open(k->x->e, &es->park) : e;
    e = e == QUIRE_OK && parks ? quire_request_park(r, 0, es->park) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return err_set(err, e, -1, "out of memory for a request");
    }
    TRY(quire_submit(k->x->q, r, to, &to->stream, err));
    k->n_requests++;
    k->n_open++;
    return QUIRE_OK;
}

/* ---- text to tokens ---- */

/* Submits a body for ids that goes on from what is there, or frees its memory. */
static quire_err exec_submit_text(engine_call *k, quire_endpoint kind, json_out *body,
                                  const quire_continuation *from, int32_t index, quire_error *err) {
    const program_steps *p = &k->c->state->root->program;
    quire_request *r = NULL;
    quire_err e = body->err == QUIRE_OK
                      ? quire_request_parse(k->x->e, kind, body->to->p, body->to->n, &r, err)
                      : err_set(err, body->err, -1, "out of memory for a text");
    strbuf_deinit(body->to);
    TRY(e);
    e = kind == QUIRE_TOKENIZE_CHAT && p->chat != NULL ? quire_request_set_all(r, p->chat, p->n_chat, err)
                                                       : e;
    e = e == QUIRE_OK ? quire_request_continue(r, from, err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    return exec_submit(k, r, index, false, err);
}

/* Appends a text and its spans of ordinary text. */
static quire_err exec_join_text(program_text *to, const program_text *t) {
    TRY(mem_grow(&to->plain, &to->cap_plain, 2 * (to->n_plain + t->n_plain), sizeof *to->plain));
    for (size_t i = 0; i < 2 * t->n_plain; i++) {
        to->plain[2 * to->n_plain + i] = to->text.n + t->plain[i];
    }
    to->n_plain += t->n_plain;
    return strbuf_add(&to->text, t->text.p, t->text.n);
}

static quire_err exec_submit_joined(engine_call *k, const program_text *t, size_t n_ids, int32_t index,
                                    quire_error *err) {
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
    return exec_submit_text(k, QUIRE_TOKENIZE, &o, &from, index, err);
}

/* The texts that come next become tokens together. */
static quire_err exec_take_texts(engine_call *k, quire_error *err) {
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
    e = e == QUIRE_OK ? exec_submit_joined(k, &all, exec_n_ids(es), 0, err) : e;
    strbuf_deinit(&all.text);
    mem_free(all.plain);
    return e;
}

/* ---- turns ---- */

/* The parts of the turn that begins at `from`: *end is behind them. */
static size_t exec_turn_end(const quire_state *s, size_t from) {
    size_t end = from + 1;
    while (end < s->n_parts && s->parts[end].kind != PART_TURN) {
        end++;
    }
    return end;
}

/* What a message has: its turn's texts and values, the mark, or one after the other. */
typedef enum exec_content { CONTENT_TEXT = 1, CONTENT_MARK = 2, CONTENT_BOTH = 3 } exec_content;

static quire_err exec_write_message(const engine_call *k, size_t from, exec_content has, json_out *o,
                                    quire_error *err) {
    const quire_state *s = k->c->state;
    strbuf content = {0};
    quire_err e = QUIRE_OK;
    for (size_t i = from + 1; has != CONTENT_MARK && e == QUIRE_OK && i < exec_turn_end(s, from); i++) {
        const program_part *p = &s->parts[i];
        const strbuf *text = p->text != NULL ? &p->text->text : p->value != NULL ? &p->value->text : NULL;
        e = text != NULL             ? strbuf_add(&content, text->p, text->n)
            : p->kind != PART_TOKENS ? QUIRE_OK
                                     : err_set(err, QUIRE_UNSUPPORTED, -1,
                                               "tokens are in a turn that the chat template is to write");
    }
    e = e == QUIRE_OK && has != CONTENT_TEXT ? strbuf_add_str(&content, k->x->mark) : e;
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), s->parts[from].role);
    json_text(json_name(o, "content"), content.n > 0 ? content.p : "", content.n);
    json_end(o, '}');
    strbuf_deinit(&content);
    return e;
}

/* What the template writes from the end of the turn that is in the ids to the content of
 * the last one becomes tokens. Where that is in the ids too, those of the answer that
 * probably comes next: forks have them in common. */
static quire_err exec_take_turns(engine_call *k, quire_error *err) {
    const quire_state *s = k->c->state;
    const engine_state *es = exec_state_of(s);
    size_t begun = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i < s->n_parts; i++) {
        bool is_turn = s->parts[i].kind == PART_TURN;
        begun = is_turn && i < es->n_taken ? i : begun;
        last = is_turn ? i : last;
    }
    bool is_whole = s->parts[s->n_parts - 1].kind == PART_END; /* what ends it is left to the next turn */
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
    e = e == QUIRE_OK ? exec_begin_stage(k, begun == last ? ENGINE_ANSWER : ENGINE_TEXT, 1, err) : e;
    if (e != QUIRE_OK) {
        strbuf_deinit(&body);
        return e;
    }
    k->upto = is_whole ? s->n_parts - 1 : last + 1;
    const quire_continuation from = {.size = sizeof from,
                                     .ids = es->ids != NULL ? es->ids->ids : NULL,
                                     .n_ids = exec_n_ids(es),
                                     .after = begun != SIZE_MAX ? k->x->mark : NULL,
                                     .before = is_asked ? NULL : k->x->mark};
    return exec_submit_text(k, QUIRE_TOKENIZE_CHAT, &o, &from, 0, err);
}

/* ---- prompts without outputs ---- */

/* Submits a request for ids that generates nothing. start: the first token that has its
 * log-probability, what comes before the one ahead of it is not computed again; 0: none
 * has. */
static quire_err exec_submit_prompt(engine_call *k, const int32_t *ids, size_t n, size_t start, int32_t index,
                                    bool is_alone, quire_error *err) {
    char fields[128];
    quire_request *r;
    TRY(quire_request_ids(k->x->e, ids, n, &r, err));
    int length = snprintf(fields, sizeof fields,
                          start > 0 ? "{\"max_tokens\": 0, \"echo\": true, \"prompt_logprobs\": 0, "
                                      "\"prompt_logprobs_start\": %zu}"
                                    : "{\"max_tokens\": 0, \"echo\": true}",
                          start);
    quire_err e = quire_request_set_all(r, fields, (size_t)length, err);
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    return exec_submit(k, r, index, is_alone, err);
}

/* What the state has is computed, for its forks or the choices of a select. */
static quire_err exec_submit_prefix(engine_call *k, quire_error *err) {
    const shared_ids *ids = k->answer != NULL ? k->answer : exec_state_of(k->c->state)->ids;
    TRY(exec_begin_stage(k, ENGINE_PREFIX, 1, err));
    k->c->submitted_us = clock_us();
    return exec_submit_prompt(k, ids->ids, ids->n, 0, 0, false, err);
}

/* ---- gen ---- */

static quire_err exec_set_fields(engine_call *k, quire_request *r, quire_error *err) {
    const program_call *c = k->c;
    const program_steps *p = &c->state->root->program;
    char seed[32];
    TRY(p->fields != NULL ? quire_request_set_all(r, p->fields, p->n_fields, err) : QUIRE_OK);
    TRY(c->step->fields != NULL ? quire_request_set_all(r, c->step->fields, c->step->n_fields, err)
                                : QUIRE_OK);
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

static quire_err exec_submit_gen(engine_call *k, quire_error *err) {
    const engine_state *es = exec_state_of(k->c->state);
    quire_request *r;
    TRY(exec_begin_stage(k, ENGINE_GEN, 1, err));
    TRY(quire_request_ids(k->x->e, es->ids->ids, es->ids->n, &r, err));
    quire_err e = exec_set_fields(k, r, err);
    e = e == QUIRE_OK ? exec_make_outputs(k, quire_request_describe(r)->n_choices, err) : e;
    if (e != QUIRE_OK) {
        quire_request_free(r);
        return e;
    }
    k->c->submitted_us = clock_us();
    return exec_submit(k, r, 0, false, err);
}

static quire_err exec_add_output(engine_call *k, const quire_event *ev) {
    program_output *o = &k->c->outputs[ev->choice];
    size_t **ends = &k->ends[ev->choice];
    size_t end = o->n_ids > 0 ? (*ends)[o->n_ids - 1] : 0;
    TRY(strbuf_add(&o->text, ev->text, ev->n_text));
    TRY(program_call_text(k->c, ev->choice, (str){ev->text, ev->n_text}));
    TRY(mem_grow(&o->ids, &o->cap_ids, o->n_ids + (size_t)ev->n_tokens, sizeof *o->ids));
    TRY(mem_grow(ends, &k->caps[ev->choice], o->n_ids + (size_t)ev->n_tokens, sizeof **ends));
    for (int32_t i = 0; i < ev->n_tokens; i++) {
        (*ends)[o->n_ids] = end + (i == ev->n_tokens - 1 ? ev->n_decoded : 0);
        o->ids[o->n_ids++] = ev->tokens[i];
    }
    return QUIRE_OK;
}

/* Drops the tokens behind an output's text: the one that ended it, or those of a stop
 * string. What is left of a token that goes on past the text is *rest. */
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

/* A gen is over: its first output goes to the state. */
static quire_err exec_take_gen(engine_call *k, const quire_event *done) {
    program_call *c = k->c;
    engine_state *es = exec_state_of(c->state);
    c->prompt_tokens = done->prompt_tokens;
    c->computed_tokens = done->prompt_tokens - done->cached_tokens;
    c->completion_tokens = done->completion_tokens;
    c->queue_us = done->queue_us;
    size_t n_first = c->outputs[0].n_ids, n_computed = es->ids->n + n_first - (n_first > 0 ? 1 : 0);
    for (size_t i = 0; i < c->n_outputs; i++) {
        str rest;
        exec_cut_output(&c->outputs[i], k->ends[i], &rest);
        if (i == 0) {
            TRY(strbuf_add(&es->rest, rest.p, rest.n));
        }
    }
    TRY(ids_replace(&es->ids, es->ids->n, c->outputs[0].ids, c->outputs[0].n_ids));
    es->n_computed = n_computed < es->ids->n ? n_computed : es->ids->n; /* all but the last that came */
    return QUIRE_OK;
}

/* ---- select ---- */

/* The choices become tokens behind all of the state's but the last one, whose text goes
 * before theirs where it is one. */
static quire_err exec_submit_choices(engine_call *k, quire_error *err) {
    const program_call *c = k->c;
    const engine_state *es = exec_state_of(c->state);
    char *last;
    size_t n_last;
    TRY(exec_begin_stage(k, ENGINE_CHOICES, c->n_choices, err));
    k->choices = mem_new(c->n_choices, sizeof *k->choices);
    TRY(mem_check_for(k->choices, "choices", err));
    TRY(quire_token_bytes(k->x->e, es->ids->ids[es->ids->n - 1], &last, &n_last, err));
    bool heals = utf8_is_valid((str){last, n_last}); /* no part of a character alone */
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

/* Takes the ids of a choice: its tokens begin behind the state's or, where the last of
 * these became another one, with that. */
static quire_err exec_take_choice(engine_call *k, int32_t index, const quire_event *start) {
    const engine_state *es = exec_state_of(k->c->state);
    engine_choice *to = &k->choices[index];
    size_t n = (size_t)start->n_tokens, n_state = es->ids->n;
    bool is_healed = n < n_state || start->tokens[n_state - 1] != es->ids->ids[n_state - 1];
    to->from = n_state - (is_healed ? 1 : 0);
    if (n <= to->from || to->from == 0) {
        return err_set(&k->error, QUIRE_BAD_REQUEST, -1,
                       to->from == 0 ? "select has too little before it: choice %d has no token before it"
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

static quire_err exec_submit_scores(engine_call *k, quire_error *err) {
    const program_call *c = k->c;
    bool wants_alone = c->step->method == QUIRE_SELECT_UNCONDITIONAL_LIKELIHOOD_NORMALIZED;
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

/* Takes the log-probabilities of a choice's tokens. */
static void exec_take_score(engine_call *k, const engine_request *r, const quire_event *start) {
    engine_choice *c = &k->choices[r->index];
    size_t skip = r->is_alone ? 1 : 0; /* the first token has nothing before it */
    for (size_t i = skip; i < c->n - c->from; i++) {
        size_t at = (r->is_alone ? i : c->from + i) - 1;
        double logprob = (double)start->logprobs[at * (size_t)start->n_logprobs].logprob;
        *(r->is_alone ? &c->alone[i] : &c->logprobs[i]) = logprob;
    }
}

/* All choices are scored: the one that is chosen goes to the state. */
static quire_err exec_take_select(engine_call *k) {
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
        e = ids_replace(&es->ids, 0, chosen->ids, chosen->n);
        es->n_computed = chosen->n;
    }
    mem_free(choices);
    return e;
}

/* ---- stages ---- */

/* Goes on with what the call needs next: text that becomes tokens, what it has in common
 * with others, its requests. *is_over: it needs nothing, as a prefix that is there. */
static quire_err exec_go_on(engine_call *k, bool *is_over, quire_error *err) {
    const quire_state *s = k->c->state;
    const step_kind kind = k->c->step->kind;
    engine_state *es = exec_state_of(s);
    while (es->rest.n == 0 && es->n_taken < s->n_parts) {
        const program_part *p = &s->parts[es->n_taken];
        if (p->kind == PART_TOKENS) {
            quire_err e = ids_replace(&es->ids, exec_n_ids(es), p->step->ids, p->step->n_ids);
            TRY(e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a state"));
        } else if (p->kind == PART_END && es->n_taken == s->n_parts - 1) {
            break; /* what ends a turn comes with the next one */
        } else if (p->kind != PART_VALUE) {
            return p->kind == PART_TEXT ? exec_take_texts(k, err) : exec_take_turns(k, err);
        }
        es->n_taken++;
    }
    if (es->rest.n > 0) {
        return exec_take_texts(k, err);
    }
    if (exec_n_ids(es) == 0 && kind != STEP_FORK) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "there is nothing that %s could go on from: append text first", k->c->step->name);
    }
    if (kind == STEP_GEN) {
        return exec_submit_gen(k, err);
    }
    if (kind == STEP_FORK && es->n_taken < s->n_parts && es->n_answered != es->n_taken && k->answer == NULL) {
        return exec_take_turns(k, err);
    }
    if (es->n_computed < exec_n_ids(es) || (k->answer != NULL && es->n_answered != es->n_taken)) {
        return exec_submit_prefix(k, err);
    }
    *is_over = kind == STEP_FORK;
    return *is_over ? QUIRE_OK : exec_submit_choices(k, err);
}

static quire_err exec_begin_prefix(void *executor, program_call *c, bool *is_there, quire_error *err) {
    TRY(exec_want_state(c->state, err));
    engine_call *k = mem_new(1, sizeof *k);
    TRY(mem_check_for(k, "a call", err));
    k->x = executor;
    k->c = c;
    c->of_executor = k;
    quire_err e = exec_go_on(k, is_there, err);
    if (e != QUIRE_OK || *is_there) {
        exec_call_free(k);
    }
    return e;
}

static quire_err exec_begin(void *executor, program_call *c, quire_error *err) {
    bool is_over = false;
    return exec_begin_prefix(executor, c, &is_over, err);
}

/* Ends the call, with k's error where it has one. */
static void exec_end(engine_call *k) {
    program_call *c = k->c;
    quire_error why = k->error;
    exec_call_free(k);
    program_call_end(c, why.code != QUIRE_OK ? &why : NULL);
}

/* All requests of a stage are over. */
static void exec_stage_over(engine_call *k, const quire_event *done) {
    engine_state *es = exec_state_of(k->c->state);
    quire_err e = k->error.code;
    bool is_over = e != QUIRE_OK || k->stage == ENGINE_GEN || k->stage == ENGINE_SCORES;
    if (e == QUIRE_OK && is_over) {
        e = k->stage == ENGINE_GEN ? exec_take_gen(k, done) : exec_take_select(k);
        if (e != QUIRE_OK) {
            err_set(&k->error, e, -1, "out of memory for a result");
        }
    } else if (e == QUIRE_OK && k->stage == ENGINE_CHOICES) {
        is_over = exec_submit_scores(k, &k->error) != QUIRE_OK;
    } else if (e == QUIRE_OK) {
        if (k->stage == ENGINE_TEXT) {
            es->n_taken = k->upto;
            strbuf_clear(&es->rest);
        } else if (k->stage == ENGINE_PREFIX) {
            es->n_computed = exec_n_ids(es);
            es->n_answered = k->answer != NULL ? es->n_taken : es->n_answered;
        }
        is_over = exec_go_on(k, &is_over, &k->error) != QUIRE_OK || is_over;
    }
    if (is_over) {
        exec_end(k);
    }
}

/* Takes the prompt of a request. False: the call is not there any more. */
static bool exec_take_start(engine_call *k, const engine_request *r, const quire_event *ev) {
    engine_state *es = exec_state_of(k->c->state);
    quire_err e = QUIRE_OK;
    switch (k->stage) {
    case ENGINE_TEXT:
        e = ids_replace(&es->ids, 0, ev->tokens, (size_t)ev->n_tokens);
        break;
    case ENGINE_ANSWER:
        e = ids_replace(&k->answer, 0, ev->tokens, (size_t)ev->n_tokens);
        break;
    case ENGINE_CHOICES:
        e = exec_take_choice(k, r->index, ev);
        break;
    case ENGINE_SCORES:
        exec_take_score(k, r, ev);
        return program_call_count(k->c, ev->n_tokens);
    case ENGINE_PREFIX:
    case ENGINE_GEN:
        return ev->choice > 0 || program_call_count(k->c, ev->n_tokens);
    }
    if (e != QUIRE_OK && k->error.code == QUIRE_OK) {
        err_set(&k->error, e, -1, "out of memory for a state");
    }
    return true;
}

/* Takes new tokens of a gen. False: as above. */
static bool exec_take_delta(engine_call *k, const quire_event *ev) {
    k->c->first_us = k->c->first_us == 0 ? clock_us() : k->c->first_us;
    if (k->stage != ENGINE_GEN) {
        return true;
    }
    if (exec_add_output(k, ev) != QUIRE_OK && k->error.code == QUIRE_OK) {
        err_set(&k->error, QUIRE_NO_MEMORY, -1, "out of memory for an output");
    }
    return program_call_count(k->c, ev->n_tokens);
}

static void exec_take_event(const quire_event *ev) {
    engine_request *r = ev->user;
    engine_call *k = r->call;
    switch (ev->kind) {
    case QUIRE_EVENT_START:
        (void)exec_take_start(k, r, ev);
        return;
    case QUIRE_EVENT_DELTA:
        (void)exec_take_delta(k, ev);
        return;
    case QUIRE_EVENT_END:
        if (k->stage == ENGINE_GEN) {
            k->c->outputs[ev->choice].finish = ev->finish;
        }
        return;
    case QUIRE_EVENT_DONE:
        break;
    default:
        return;
    }
    if (ev->error != NULL && k->error.code == QUIRE_OK) {
        k->error = *ev->error;
    }
    if (k->stage == ENGINE_SCORES || k->stage == ENGINE_PREFIX) {
        k->c->prompt_tokens += ev->prompt_tokens;
        k->c->computed_tokens += ev->prompt_tokens - ev->cached_tokens;
    }
    k->n_open--;
    if (k->n_open == 0) {
        exec_stage_over(k, ev);
    }
}

/* ---- the executor ---- */

static bool exec_poll(void *executor) {
    engine_executor *x = executor;
    quire_event ev;
    bool had = false;
    while (quire_queue_next(x->q, &ev)) {
        exec_take_event(&ev);
        had = true;
    }
    return had;
}

static int exec_fd(void *executor) {
    return quire_queue_fd(((engine_executor *)executor)->q);
}

static void exec_wait(void *executor, int64_t timeout_us) {
    quire_queue_wait(((engine_executor *)executor)->q, timeout_us);
}

static bool exec_idle(const void *executor) {
    return quire_queue_idle(((const engine_executor *)executor)->q);
}

static void exec_close(void *executor) {
    engine_executor *x = executor;
    quire_queue_close(x->q);
    mem_free(x);
}

const program_ops engine_ops = {.gen = exec_begin,
                                .select = exec_begin,
                                .prefix = exec_begin_prefix,
                                .cancel = exec_cancel,
                                .fork = exec_fork,
                                .settle = exec_settle,
                                .drop = exec_drop,
                                .tokens = exec_tokens,
                                .poll = exec_poll,
                                .fd = exec_fd,
                                .wait = exec_wait,
                                .idle = exec_idle,
                                .close = exec_close};

quire_err engine_executor_open(quire_engine *e, void **out) {
    engine_executor *x = mem_new(1, sizeof *x);
    *out = x;
    TRY(mem_check(x));
    x->e = e;
    snprintf(x->mark, sizeof x->mark, "{%016llx%016llx}", (unsigned long long)rng_os_seed(),
             (unsigned long long)rng_os_seed());
    quire_err r = quire_queue_open(e, &x->q);
    if (r != QUIRE_OK) {
        mem_free(x);
        *out = NULL;
    }
    return r;
}

/* Writes the parts that responses of several endpoints share. */

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/loop.h"
#include "server/response.h"

void response_shown_id(const response *a, char out[RESPONSE_ANSWER_ID_BYTES]) {
    const char *own = a->more->request_id; /* 64 bytes or less */
    (void)snprintf(out, RESPONSE_ANSWER_ID_BYTES, "%s%s", own != NULL ? a->writer->id_prefix : a->id,
                   own != NULL ? own : "");
}

void response_write_id(const response *a, json_out *o) {
    char id[RESPONSE_ANSWER_ID_BYTES];
    response_shown_id(a, id);
    json_cstr(o, id);
}

void response_write_head(const response *a, const char *object, json_out *o) {
    response_write_id(a, json_name(o, "id"));
    json_cstr(json_name(o, "object"), object);
    json_int(json_name(o, "created"), a->created_s);
    json_cstr(json_name(o, "model"), response_model(a));
}

static void response_begin_object(const response *a, const char *object, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, object, o);
    json_begin(json_name(o, "choices"), '[');
}

void response_write_begin(const response *a, json_out *o) {
    response_begin_object(a, a->writer->object, o);
}

void response_begin_chunk(const response *a, json_out *o) {
    json_raw(o, "data: ");
    response_begin_object(a, a->writer->chunk_object, o);
}

size_t response_runs(const response *a, const response_choice *c, answer_run *whole,
                     const answer_run **runs) {
    *whole = (answer_run){.kind = QUIRE_PART_CONTENT, .n = c->text.n, .logprobs_end = c->logprobs.content.n};
    *runs = a->info->has_parts ? c->parts.runs : whole;
    return a->info->has_parts ? c->parts.n_runs : whole->n + whole->logprobs_end > 0;
}

str response_run_text(const response_choice *c, const answer_run *run) {
    const strbuf *all = run->kind == QUIRE_PART_REASONING ? &c->parts.reasoning : &c->text;
    return run->n > 0 ? (str){all->p + run->at, run->n} : (str){"", 0};
}

answer_place response_place(const response *a, const response_choice *c) {
    return (answer_place){.response_id = a->id,
                          .choice = (size_t)(c - a->choices),
                          .names_call = a->info->names_call,
                          .old_calls = a->info->old_calls};
}

void response_write_finish(const response *a, const response_choice *c, json_out *o) {
    static const char *const words[] = {
        [QUIRE_FINISH_NONE] = NULL,         [QUIRE_FINISH_STOP] = "stop",   [QUIRE_FINISH_LENGTH] = "length",
        [QUIRE_FINISH_CANCELLED] = "abort", [QUIRE_FINISH_ERROR] = "error",
    };
    const char *called = answer_parts_finish_name(&c->parts, response_place(a, c), c->finish);
    json_cstr(json_name(o, "finish_reason"), called != NULL ? called : words[c->finish]);
    json_name(o, "stop_reason");
    if (c->stop_string.n > 0) {
        json_text(o, c->stop_string.p, c->stop_string.n);
    } else if (c->stop_token >= 0) {
        json_int(o, c->stop_token);
    } else {
        json_raw(o, "null");
    }
    if (c->has_score) {
        json_number(json_name(o, "beam_score"), c->beam_score);
    }
}

static void response_write_ids(bool are_wanted, const int32_t *ids, size_t n, json_out *o) {
    if (are_wanted) {
        json_ints(o, ids, n);
    } else {
        json_raw(o, "null");
    }
}

void response_write_token_ids(const response *a, const response_choice *c, json_out *o) {
    response_write_ids(a->info->return_token_ids, c->tokens, c->n_tokens, o);
}

void response_write_prompt_ids(const response *a, const response_choice *c, json_out *o) {
    const response_prompt *p = response_prompt_of(a, c);
    response_write_ids(a->info->return_token_ids && !c->prompt_sent, p->ids, p->n_ids, o);
}

void response_write_prompt_text(const response *a, const response_choice *c, json_out *o) {
    const strbuf *text = &response_prompt_of(a, c)->rendered;
    json_name(o, "prompt_text");
    if (a->more->return_prompt_text && !c->prompt_sent) {
        json_text(o, text->p, text->n);
    } else {
        json_raw(o, "null");
    }
}

response_prompt *response_prompt_of(const response *a, const response_choice *c) {
    return &a->prompts[(c - a->choices) / a->n_samples];
}

str response_echo(const response *a, const response_choice *c) {
    const strbuf *echo = &response_prompt_of(a, c)->text;
    return c->prompt_sent ? (str){"", 0} : (str){echo->p, echo->n};
}

void response_write_text(const response *a, const response_choice *c, json_out *o) {
    json_texts(o, response_echo(a, c), (str){c->text.p, c->text.n});
}

/* Begins "usage". Rejected predicted tokens are completion tokens, as at OpenAI. */
static void response_begin_usage(int32_t prompt_tokens, int32_t completion_tokens,
                                 const response_prediction *p, json_out *o) {
    int64_t completion = (int64_t)completion_tokens + p->n_rejected;
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "prompt_tokens"), prompt_tokens);
    json_int(json_name(o, "total_tokens"), prompt_tokens + completion);
    json_int(json_name(o, "completion_tokens"), completion);
}

/* Writes the prediction's counts over all choices; without one, `instead` if not NULL. */
static void response_write_prediction(const response *a, const char *instead, json_out *o) {
    const json_named_int counts[] = {{"accepted_prediction_tokens", a->prediction.n_accepted},
                                     {"rejected_prediction_tokens", a->prediction.n_rejected},
                                     {NULL, 0}};
    if (a->more->has_prediction) {
        json_named_ints(json_name(o, "completion_tokens_details"), counts);
    } else if (instead != NULL) {
        json_raw(json_name(o, "completion_tokens_details"), instead);
    }
}

/* Begins "usage" of all choices, known at DONE; leaves it open. */
static void response_begin_whole_usage(const response *a, json_out *o) {
    response_begin_usage(a->prompt_tokens, a->completion_tokens, &a->prediction, o);
    json_begin(json_name(o, "prompt_tokens_details"), '{');
    json_int(json_name(o, "cached_tokens"), a->cached_tokens);
    json_end(o, '}');
}

void response_write_input_usage(const response *a, json_out *o) {
    response_begin_whole_usage(a, o);
    json_end(o, '}');
}

static void response_write_fingerprint(json_out *o) {
    json_cstr(json_name(o, "system_fingerprint"), "quire-" QUIRE_VERSION);
}

static void response_write_usage_chunk(const response *a, json_out *o) {
    response_begin_chunk(a, o);
    json_end(o, ']');
    response_begin_whole_usage(a, o);
    response_write_prediction(a, NULL, o);
    json_end(o, '}');
    response_write_fingerprint(o);
    json_raw(o, "}\n\n");
}

void response_write_last(const response *a, json_out *o) {
    if (a->info->include_usage) {
        response_write_usage_chunk(a, o);
    }
    json_raw(o, "data: [DONE]\n\n");
}

void response_write_error(const response *a, const api_error *e, json_out *o) {
    (void)a;
    json_raw(o, "data: ");
    error_body(o, e);
    json_raw(o, "\n\ndata: [DONE]\n\n");
}

/* ---- "explain": what each choice waited for, reused and computed, and its times ---- */

static void explain_write_place(const quire_explain_more *more, json_out *o) {
    static const char *const orders[] = {[QUIRE_SCHEDULE_AUTO] = "auto",
                                         [QUIRE_SCHEDULE_FCFS] = "fcfs",
                                         [QUIRE_SCHEDULE_PRIORITY] = "priority",
                                         [QUIRE_SCHEDULE_PREFIX] = "prefix",
                                         [QUIRE_SCHEDULE_FAIR] = "fair"};
    json_begin(json_name(o, "place"), '{');
    json_int(json_name(o, "ahead"), more->n_ahead);
    json_cstr(json_name(o, "order"), orders[more->schedule]);
    json_end(o, '}');
}

static void explain_write_turns(const quire_explain_more *more, json_out *o) {
    const json_named_int counts[] = {
        {"reused", more->n_reused}, {"gone", more->n_gone}, {"differs", more->n_differ}, {NULL, 0}};
    json_named_ints(json_name(o, "recalled_turns"), counts);
}

static void explain_write_wait(const char *cause, int64_t us, int32_t times, json_out *o) {
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "cause"), cause);
    json_int(json_name(o, "us"), us);
    json_int(json_name(o, "times"), times);
    json_end(o, '}');
}

static void explain_write_waits(const quire_explain *x, const quire_explain_more *more, json_out *o) {
    static const char *const causes[QUIRE_N_WAITS] = {
        [QUIRE_WAIT_TURN] = "turn",     [QUIRE_WAIT_PAGES] = "pages",   [QUIRE_WAIT_SLOT] = "slot",
        [QUIRE_WAIT_BUDGET] = "budget", [QUIRE_WAIT_PREFIX] = "prefix", [QUIRE_WAIT_TIER] = "tier",
    };
    json_begin(json_name(o, "waits"), '[');
    for (int i = 0; i < QUIRE_N_WAITS; i++) {
        if (x->n_waits[i] > 0) {
            explain_write_wait(causes[i], x->wait_us[i], x->n_waits[i], o);
        }
    }
    if (more->n_adapter_waits > 0) {
        explain_write_wait("adapter", more->adapter_wait_us, more->n_adapter_waits, o);
    }
    json_end(o, ']');
}

static void explain_write_reuse(const quire_explain *x, const quire_explain_more *more, json_out *o) {
    json_begin(json_name(o, "reused"), '{');
    json_int(json_name(o, "matched_tokens"), x->matched);
    json_int(json_name(o, "copied_page_tokens"), x->copied);
    json_int(json_name(o, "tier_tokens"), x->tier);
    json_int(json_name(o, "shared_tokens"), x->shared);
    if (more->n_prefix > x->matched && x->shared == 0) {
        char why[160];
        (void)snprintf(why, sizeof why,
                       "a prefix of %d tokens is cached but has no snapshot of its recurrent state; the "
                       "longest prefix that has one is of %d tokens",
                       (int)more->n_prefix, (int)x->matched);
        json_int(json_name(o, "cached_prefix_tokens"), more->n_prefix);
        json_cstr(json_name(o, "reason"), why);
    }
    json_end(o, '}');
}

static void explain_write_chunks(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "chunks"), '[');
    for (int32_t i = 0; i < x->n_chunks && i < QUIRE_EXPLAIN_CHUNKS; i++) {
        const json_named_int counts[] = {
            {"step", x->chunks[i].step}, {"tokens", x->chunks[i].tokens}, {NULL, 0}};
        json_named_ints(json_item(o), counts);
    }
    json_end(o, ']');
    json_int(json_name(o, "n_chunks"), x->n_chunks);
    json_int(json_name(o, "n_decode_steps"), x->n_decodes);
}

static void explain_write_cost(const quire_explain_preemption *p, json_out *o) {
    const json_named_int counts[] = {
        {"recomputed_tokens", p->recomputed}, {"swapped_bytes", p->swapped_bytes}, {"us", p->us}, {NULL, 0}};
    json_named_ints(o, counts);
}

static void explain_write_preemptions(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "preemptions"), '[');
    for (int32_t i = 0; i < x->n_preemptions && i < QUIRE_EXPLAIN_PREEMPTIONS; i++) {
        explain_write_cost(&x->preemptions[i], json_item(o));
    }
    json_end(o, ']');
    json_int(json_name(o, "n_preemptions"), x->n_preemptions);
    explain_write_cost(&x->preempted, json_name(o, "preempted"));
}

static void explain_write_rule(const quire_explain *x, json_out *o) {
    json_begin(json_name(o, "rule"), '{');
    json_int(json_name(o, "compile_us"), x->compile_us);
    json_int(json_name(o, "mask_us"), x->mask_us);
    json_int(json_name(o, "forced_tokens"), x->n_forced);
    json_int(json_name(o, "guessed_tokens"), x->n_guessed);
    json_raw(json_name(o, "keywords"), x->rule);
    json_end(o, '}');
}

static void explain_write_choice(const response *a, int32_t index, const response_choice *c, json_out *o) {
    const quire_explain *x = c->explain;
    const quire_explain_more *more = quire_stream_explain(a->stream, (int32_t)(c - a->choices));
    json_begin(json_item(o), '{');
    json_int(json_name(o, "index"), index);
    if (x != NULL && more != NULL) {
        explain_write_place(more, o);
        explain_write_waits(x, more, o);
        if (more->adapter != NULL) {
            json_begin(json_name(o, "adapter"), '{');
            json_cstr(json_name(o, "name"), more->adapter);
            json_int(json_name(o, "load_us"), more->adapter_load_us);
            json_end(o, '}');
        }
        explain_write_reuse(x, more, o);
        explain_write_turns(more, o);
        explain_write_chunks(x, o);
        explain_write_preemptions(x, o);
        if (x->rule != NULL) {
            explain_write_rule(x, o);
        }
        if (a->more->has_prediction) {
            const json_named_int counts[] = {{"accepted_tokens", c->prediction.n_accepted},
                                             {"rejected_tokens", c->prediction.n_rejected},
                                             {NULL, 0}};
            json_named_ints(json_name(o, "prediction"), counts);
        }
        const json_named_int stages[] = {
            {"tokenise", x->tokenise_us}, {"queue", x->queue_us},           {"prefill", x->prefill_us},
            {"decode", x->decode_us},     {"detokenise", x->detokenise_us}, {NULL, 0},
        };
        json_named_ints(json_name(o, "stages_us"), stages);
    }
    json_end(o, '}');
}

/* Writes that the request waited for its model to load. */
static void explain_write_load(const response *a, json_out *o) {
    const request_record *r = a->conn != NULL ? &a->conn->record : &a->record;
    if (r->has_waited) {
        json_begin(json_name(o, "model_load"), '{');
        json_cstr(json_name(o, "found"), model_state_name((model_state)r->found));
        json_int(json_name(o, "wait_us"), r->model_wait_us);
        json_int(json_name(o, "load_us"), r->model_load_us);
        json_end(o, '}');
    }
}

void response_write_explain(const response *a, const response_choice *c, json_out *o) {
    if (!a->info->explain) {
        return;
    }
    json_begin(json_name(o, "explain"), '{');
    explain_write_load(a, o);
    json_begin(json_name(o, "choices"), '[');
    if (c != NULL) {
        explain_write_choice(a, (int32_t)(c - a->choices), c, o);
    }
    for (int32_t i = 0; c == NULL && i < a->n_shown; i++) {
        explain_write_choice(a, i, &a->choices[a->shown[i]], o);
    }
    json_end(o, ']');
    json_end(o, '}');
}

/* ---- the end of a chunk or response ---- */

void response_write_progress(const response *a, int32_t choice, json_out *o) {
    quire_progress p = {.size = sizeof p};
    (void)quire_stream_progress(a->stream, choice, &p); /* cannot fail, since the choice exists */
    const json_named_int counts[] = {{"total", p.n_prompt},
                                     {"cache", p.n_cached},
                                     {"processed", p.n_processed},
                                     {"time_ms", p.us / 1000},
                                     {NULL, 0}};
    json_named_ints(json_name(o, "prompt_progress"), counts);
}

void response_end_chunk(const response *a, const response_choice *c, json_out *o) {
    if (a->info->continuous_usage) {
        response_begin_usage(c->prompt_tokens, c->completion_tokens, &c->prediction, o);
        json_end(o, '}');
    }
    if (c->finish != QUIRE_FINISH_NONE && !a->info->include_usage) {
        response_write_fingerprint(o);
    }
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_explain(a, c, o);
    }
    json_raw(o, "}\n\n");
}

void response_write_tail(const response *a, json_out *o) {
    json_raw(json_name(o, "service_tier"), "null");
    response_write_fingerprint(o);
    response_begin_whole_usage(a, o);
    response_write_prediction(a, "null", o);
    json_end(o, '}');
    response_write_explain(a, NULL, o);
}

/* ---- log-probabilities ---- */

/* -9999 is the number that the APIs show for minus infinity. */
double response_logprob(float logprob) {
    return logprob > -9999.0f ? (double)logprob : -9999.0;
}

/* Computed once for each token and cached by the loop; empty if out of memory. */
str response_token_bytes(const response *a, int32_t token) {
    loop_model *l = a->model;
    const quire_engine *e = response_engine(a);
    int32_t n_vocab = quire_engine_info(e)->n_vocab;
    quire_error err;
    if (l->token_texts == NULL) {
        l->token_texts = mem_new((size_t)n_vocab, sizeof *l->token_texts);
        l->n_token_texts = l->token_texts != NULL ? n_vocab : 0;
    }
    if (token < 0 || token >= l->n_token_texts) {
        return (str){"", 0};
    }
    token_text *t = &l->token_texts[token];
    bool known = t->p != NULL || quire_token_bytes(e, token, &t->p, &t->n, &err) == QUIRE_OK;
    return known ? (str){t->p, t->n} : (str){"", 0};
}

/* Returns "" for a token that is only part of a character. */
str response_token_text(const response *a, int32_t token) {
    str bytes = response_token_bytes(a, token);
    return (str){bytes.p, utf8_is_valid(bytes) ? bytes.n : 0};
}

str response_token_name(int32_t token, char out[RESPONSE_TOKEN_NAME_BYTES]) {
    int n = snprintf(out, RESPONSE_TOKEN_NAME_BYTES, "token_id:%d", (int)token);
    return (str){out, (size_t)n};
}

void response_write_token_text(const response *a, int32_t token, json_out *o) {
    str text = response_token_text(a, token);
    json_text(o, text.p, text.n);
}

void response_write_bytes(str bytes, json_out *o) {
    json_begin(o, '[');
    for (size_t i = 0; i < bytes.n; i++) {
        json_int(json_item(o), (unsigned char)bytes.p[i]);
    }
    json_end(o, ']');
}

/* Appends a prompt's token to "prompt_logprobs":
 * {"ID":{"logprob":..,"rank":..,"decoded_token":..},..}, or null if it has no numbers. */
static quire_err response_add_prompt_logprob(const response *a, response_prompt *to, const quire_logprob *p,
                                             int32_t width) {
    json_out o = {.to = &to->prompt_logprobs};
    char id[16];
    if (p == NULL) {
        json_raw(&o, ",null");
        return o.err;
    }
    json_raw(&o, ",{");
    for (int32_t i = 0; i < width; i++) {
        if (i > 0 && p[i].token == p[0].token) {
            continue;
        }
        snprintf(id, sizeof id, "%d", (int)p[i].token);
        json_begin(json_name(&o, id), '{');
        json_number(json_name(&o, "logprob"), response_logprob(p[i].logprob));
        json_int(json_name(&o, "rank"), p[i].rank);
        response_write_token_text(a, p[i].token, json_name(&o, "decoded_token"));
        json_end(&o, '}');
    }
    json_end(&o, '}');
    return o.err;
}

quire_err response_take_prompt_logprobs(const response *a, response_prompt *to, const quire_event *ev) {
    const logprob_writer *w = &a->writer->logprobs;
    bool listed = (a->info->echo || w->lists_prompts) && a->info->logprobs >= 0 && w->prompt != NULL;
    for (int32_t i = 0; i < ev->n_tokens && (listed || a->info->prompt_logprobs >= 0); i++) {
        bool has_numbers = i > 0 && ev->logprobs != NULL;
        const quire_logprob *p = has_numbers ? ev->logprobs + (size_t)(i - 1) * (size_t)ev->n_logprobs : NULL;
        p = p != NULL && p->rank > 0 ? p : NULL;
        if (has_numbers && !w->lists_prompts) {
            TRY(response_add_prompt_logprob(a, to, p, ev->n_logprobs));
        }
        if (listed) {
            TRY(w->prompt(a, to, ev, i, p));
        }
    }
    to->logprobs.n_values = to->logprobs.values.n;
    to->logprobs.n_tops = to->logprobs.tops.n;
    return QUIRE_OK;
}

quire_err response_take_logprobs(const response *a, response_choice *c, const quire_event *ev) {
    return a->info->logprobs >= 0 ? a->writer->logprobs.token(a, c, ev) : QUIRE_OK;
}

quire_err response_rollback_logprobs(const response *a, response_choice *c, const quire_event *ev) {
    bool waits = a->info->logprobs >= 0 && a->writer->logprobs.roll_back != NULL;
    return waits ? a->writer->logprobs.roll_back(c, ev) : QUIRE_OK;
}

quire_err response_end_logprobs(const response *a, response_choice *c) {
    return a->writer->logprobs.end != NULL ? a->writer->logprobs.end(c) : QUIRE_OK;
}

/* Removes the first n bytes and the comma after them. */
static void response_drop_first(strbuf *b, size_t n) {
    n += n > 0 && n < b->n;
    if (n > 0) {
        memmove(b->p, b->p + n, b->n - n + 1);
        b->n -= n;
    }
}

void response_clear_logprobs(response_choice *c) {
    response_logprobs *l = &c->logprobs;
    size_t n_values = l->values.n, n_tops = l->tops.n;
    response_drop_first(&l->values, l->n_values);
    response_drop_first(&l->tops, l->n_tops);
    for (size_t i = l->first_waiting; i < l->n_waiting; i++) {
        l->waiting[i].n_values -= n_values - l->values.n;
        l->waiting[i].n_tops -= n_tops - l->tops.n;
    }
    l->n_values = l->n_tops = 0;
    strbuf_clear(&l->tokens);
    strbuf_clear(&l->offsets);
    strbuf_clear(&l->content);
}

size_t response_logprobs_bytes(const response_logprobs *l) {
    return l->tokens.n + l->values.n + l->tops.n + l->offsets.n + l->content.n;
}

void response_deinit_logprobs(response_logprobs *l) {
    strbuf_deinit(&l->tokens);
    strbuf_deinit(&l->values);
    strbuf_deinit(&l->tops);
    strbuf_deinit(&l->offsets);
    strbuf_deinit(&l->content);
    strbuf_deinit(&l->shown);
    mem_free(l->waiting);
    l->waiting = NULL;
    l->n_waiting = l->first_waiting = l->cap_waiting = 0;
}

void response_write_lists(const char *name, const strbuf *of_prompt, const strbuf *list, size_t n,
                          json_out *o) {
    assert(n <= list->n);
    json_begin(json_name(o, name), '[');
    json_raw_part(o, (str){of_prompt->n > 0 ? of_prompt->p : "", of_prompt->n});
    json_raw(o, of_prompt->n > 0 && n > 0 ? "," : "");
    json_raw_part(o, (str){n > 0 ? list->p : "", n});
    json_end(o, ']');
}

void response_write_logprobs(const response *a, const response_choice *c, json_out *o) {
    static const response_logprobs none = {.n_chars = 0};
    const response_logprobs *l = &c->logprobs,
                            *p = c->prompt_sent ? &none : &response_prompt_of(a, c)->logprobs;
    json_name(o, "logprobs");
    if (l->tokens.n + l->content.n + p->tokens.n == 0) {
        json_raw(o, "null");
        return;
    }
    json_begin(o, '{');
    a->writer->logprobs.write(p, l, o);
    json_end(o, '}');
}

void response_write_prompt_logprobs(const response *a, const response_choice *c, json_out *o) {
    const strbuf *list = &response_prompt_of(a, c)->prompt_logprobs;
    json_name(o, "prompt_logprobs");
    if (a->info->prompt_logprobs < 0) {
        json_raw(o, "null");
        return;
    }
    json_raw(o, "[null");
    json_raw(o, list->n > 0 ? list->p : "");
    json_end(o, ']');
}

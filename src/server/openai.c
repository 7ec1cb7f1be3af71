/* Writes responses of POST /v1/completions and /v1/chat/completions. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/response.h"

/* ---- log-probabilities of completions: four lists ---- */

/* Writes a unique name of token i in top_logprobs: its text or, if an earlier token has
 * the same text, token_id:7, vLLM's form of an id. */
static void completions_write_token_name(const response *a, const quire_logprob *p, int32_t i, json_out *o) {
    str text = response_token_text(a, p[i].token);
    bool is_taken = a->more->tokens_as_ids;
    char name[RESPONSE_TOKEN_NAME_BYTES];
    for (int32_t k = 0; k < i && !is_taken; k++) {
        is_taken = str_eq(response_token_text(a, p[k].token), text);
    }
    if (is_taken) {
        text = response_token_name(p[i].token, name);
    }
    json_text(o, text.p, text.n);
}

/* Adds a token's numbers to the lists. p NULL: none, as for a prompt's first token. */
static quire_err completions_add_numbers(const response *a, response_logprobs *l, const quire_logprob *p,
                                         int32_t width) {
    json_out values = {.to = &l->values}, tops = {.to = &l->tops};
    if (p == NULL) {
        json_raw(json_item(&values), "null");
        json_raw(json_item(&tops), "null");
        return values.err ? values.err : tops.err;
    }
    json_number(json_item(&values), response_logprob(p[0].logprob));
    json_begin(json_item(&tops), '{');
    for (int32_t i = 0; i < width; i++) {
        if (i > 0 && p[i].token == p[0].token) {
            continue; /* the token is already first in the list */
        }
        completions_write_token_name(a, p, i, json_item(&tops));
        json_raw(&tops, ":");
        json_number(&tops, response_logprob(p[i].logprob));
    }
    json_end(&tops, '}');
    return values.err ? values.err : tops.err;
}

/* Adds a token to the lists: its text, or its id unless -1, and its offset in the
 * text. */
static quire_err completions_add_text(response_logprobs *l, str text, int32_t id) {
    json_out tokens = {.to = &l->tokens}, offsets = {.to = &l->offsets};
    char name[RESPONSE_TOKEN_NAME_BYTES];
    str shown = id >= 0 ? response_token_name(id, name) : text;
    json_text(json_item(&tokens), shown.p, shown.n);
    json_int(json_item(&offsets), l->n_chars);
    l->n_chars += (int64_t)utf8_count(text);
    return tokens.err ? tokens.err : offsets.err;
}

/* ---- which part of the response's text each token is ---- */

/* Lists the first waiting token, whose text is the first n bytes of the shown text. */
static quire_err completions_settle_first(response_logprobs *l, size_t n) {
    assert(l->first_waiting < l->n_waiting && n <= l->shown.n);
    token_waiting *w = &l->waiting[l->first_waiting];
    TRY(completions_add_text(l, (str){l->shown.n > 0 ? l->shown.p : "", n}, w->id));
    l->n_values = w->n_values;
    l->n_tops = w->n_tops;
    l->base += n;
    l->first_waiting++;
    l->n_settled++;
    if (n > 0) {
        memmove(l->shown.p, l->shown.p + n, l->shown.n - n + 1);
        l->shown.n -= n;
    }
    if (l->first_waiting == l->n_waiting) {
        l->first_waiting = l->n_waiting = 0;
    }
    return QUIRE_OK;
}

/* Adds text that is shown now, and lists the tokens that it completes. */
static quire_err completions_take_shown(response_logprobs *l, const char *text, size_t n) {
    /* again: after a rollback, how much of the text belongs to tokens settled before */
    size_t known = l->base + l->shown.n, again = l->n_shown < known ? known - l->n_shown : 0;
    again = again < n ? again : n;
    l->n_shown += n;
    l->n_chars += (int64_t)utf8_count((str){text, again});
    if (again < n) {
        TRY(strbuf_add(&l->shown, text + again, n - again));
    }
    while (l->first_waiting < l->n_waiting && l->waiting[l->first_waiting].n_text <= l->shown.n) {
        TRY(completions_settle_first(l, l->waiting[l->first_waiting].n_text));
    }
    return QUIRE_OK;
}

static quire_err completions_add_waiting(const response *a, response_logprobs *l, const quire_event *ev) {
    TRY(mem_grow(&l->waiting, &l->cap_waiting, l->n_waiting + 1, sizeof *l->waiting));
    TRY(completions_add_numbers(a, l, ev->logprobs, ev->n_logprobs));
    l->waiting[l->n_waiting++] =
        (token_waiting){ev->n_decoded, a->more->tokens_as_ids ? ev->tokens[0] : -1, l->values.n, l->tops.n};
    return QUIRE_OK;
}

static quire_err completions_end_logprobs(response_choice *c) {
    response_logprobs *l = &c->logprobs;
    while (l->first_waiting < l->n_waiting) {
        size_t n = l->waiting[l->first_waiting].n_text;
        TRY(completions_settle_first(l, n < l->shown.n ? n : l->shown.n));
    }
    return QUIRE_OK;
}

/* The text of the prompt's token at i in the echo. */
static str completions_echo_of(const quire_event *ev, int32_t i) {
    size_t from = ev->token_ends != NULL && i > 0 ? ev->token_ends[i - 1] : 0,
           to = ev->token_ends != NULL ? ev->token_ends[i] : 0;
    return (str){ev->text != NULL ? ev->text + from : "", to - from};
}

static quire_err completions_list_prompt(const response *a, response_prompt *to, const quire_event *ev,
                                         int32_t i, const quire_logprob *p) {
    int32_t width = a->info->logprobs + 1 < ev->n_logprobs ? a->info->logprobs + 1 : ev->n_logprobs;
    TRY(completions_add_numbers(a, &to->logprobs, p, width));
    return completions_add_text(&to->logprobs, completions_echo_of(ev, i),
                                a->more->tokens_as_ids ? ev->tokens[i] : -1);
}

static quire_err completions_list_token(const response *a, response_choice *c, const quire_event *ev) {
    if (ev->n_tokens > 0) {
        TRY(completions_add_waiting(a, &c->logprobs, ev));
    }
    return completions_take_shown(&c->logprobs, ev->text, ev->n_text);
}

/* Drops the waiting tokens from index n on, with their numbers. */
static void completions_forget_waiting(response_logprobs *l, size_t n) {
    const token_waiting *last = n > l->first_waiting ? &l->waiting[n - 1] : NULL;
    l->n_waiting = n;
    l->values.n = last != NULL ? last->n_values : l->n_values;
    l->tops.n = last != NULL ? last->n_tops : l->n_tops;
}

static quire_err completions_roll_back(response_choice *c, const quire_event *ev) {
    assert(ev->n_tokens >= 0);
    response_logprobs *l = &c->logprobs;
    size_t n = (size_t)ev->n_tokens;
    if (n <= l->n_settled) {
        completions_forget_waiting(l, l->first_waiting);
        l->n_settled = n;
        l->base = ev->n_decoded;
    } else {
        completions_forget_waiting(l, l->first_waiting + n - l->n_settled);
    }
    strbuf_clear(&l->shown);
    l->n_shown = 0;
    l->n_chars = l->n_prompt_chars;
    return completions_take_shown(l, ev->text, ev->n_text);
}

static void completions_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o) {
    response_write_lists("text_offset", &p->offsets, &l->offsets, l->offsets.n, o);
    response_write_lists("token_logprobs", &p->values, &l->values, l->n_values, o);
    response_write_lists("tokens", &p->tokens, &l->tokens, l->tokens.n, o);
    response_write_lists("top_logprobs", &p->tops, &l->tops, l->n_tops, o);
}

/* ---- responses ---- */

/* Writes the members with which a choice begins, in whole responses and in chunks. */
static void completions_begin_choice(const response *a, const response_choice *c, int32_t index,
                                     json_out *o) {
    json_begin(o, '{');
    json_int(json_name(o, "index"), index);
    response_write_text(a, c, json_name(o, "text"));
    response_write_logprobs(a, c, o);
    response_write_finish(a, c, o);
}

static void completions_write_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? "," : "");
    completions_begin_choice(a, c, i, o);
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    response_write_prompt_logprobs(a, c, o);
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    json_end(o, '}');
}

static void completions_write_end(const response *a, json_out *o) {
    json_end(o, ']');
    response_write_tail(a, o);
    json_end(o, '}');
}

static void completions_write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    response_begin_chunk(a, o);
    completions_begin_choice(a, c, choice, o);
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    json_end(o, '}');
    json_end(o, ']');
    response_end_chunk(a, c, o);
}

static void completions_write_progress(const response *a, int32_t choice, json_out *o) {
    response_begin_chunk(a, o);
    json_begin(o, '{');
    json_int(json_name(o, "index"), choice);
    json_raw(o, ",\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}]");
    response_write_progress(a, choice, o);
    response_end_chunk(a, &a->choices[choice], o);
}

const response_writer completions_writer = {
    .id_prefix = "cmpl-",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .begin = response_write_begin,
    .choice = completions_write_choice,
    .end = completions_write_end,
    .chunk = completions_write_chunk,
    .progress = completions_write_progress,
    .last = response_write_last,
    .error = response_write_error,
    .logprobs = {.prompt = completions_list_prompt,
                 .token = completions_list_token,
                 .roll_back = completions_roll_back,
                 .end = completions_end_logprobs,
                 .write = completions_write_logprobs},
};

/* Responses of POST /v1/chat/completions. */

/* Writes the header that says where the chat template comes from. */
static int chat_write_headers(const quire_info *engine, char *out, size_t size) {
    const char *form = engine->chat_form;
    return form != NULL ? snprintf(out, size, "X-Quire-Chat-Template: %s\r\n", form) : 0;
}

/* ---- log-probabilities of chats: an object for each token ---- */

/* Writes a token's object without its closing brace. */
static void chat_begin_token(const response *a, const quire_logprob *p, json_out *o) {
    json_begin(json_item(o), '{');
    char name[RESPONSE_TOKEN_NAME_BYTES];
    str token =
        a->more->tokens_as_ids ? response_token_name(p->token, name) : response_token_text(a, p->token);
    json_text(json_name(o, "token"), token.p, token.n);
    json_number(json_name(o, "logprob"), response_logprob(p->logprob));
    response_write_bytes(response_token_bytes(a, p->token), json_name(o, "bytes"));
}

static quire_err chat_add_logprob(const response *a, strbuf *list, const quire_logprob *p, int32_t width) {
    json_out o = {.to = list};
    chat_begin_token(a, &p[0], &o);
    json_begin(json_name(&o, "top_logprobs"), '[');
    for (int32_t i = 1; i < width; i++) {
        chat_begin_token(a, &p[i], &o);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    json_end(&o, '}');
    return o.err;
}

quire_err chat_list_numbers(const response *a, strbuf *list, const quire_event *ev) {
    return ev->logprobs != NULL ? chat_add_logprob(a, list, ev->logprobs, ev->n_logprobs) : QUIRE_OK;
}

static quire_err chat_list_token(const response *a, response_choice *c, const quire_event *ev) {
    return chat_list_numbers(a, &c->logprobs.content, ev);
}

void chat_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o) {
    response_write_lists("content", &p->content, &l->content, l->content.n, o);
}

/* ---- responses ---- */

/* Writes what is reported about a prompt: once; with several prompts, in each choice. */
static void chat_write_prompt(const response *a, const response_choice *c, json_out *o) {
    response_write_prompt_logprobs(a, c, o);
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    response_write_prompt_text(a, c, o);
}

static bool chat_is_batch(const response *a) {
    return a->info->endpoint == QUIRE_CHAT_BATCH;
}

static void chat_write_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? "," : "");
    json_begin(o, '{');
    json_int(json_name(o, "index"), i);
    json_name(o, "message");
    answer_parts_write_message(&c->parts, response_place(a, c), response_echo(a, c),
                               (str){c->text.p, c->text.n}, o);
    response_write_logprobs(a, c, o);
    response_write_finish(a, c, o);
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    if (chat_is_batch(a)) {
        chat_write_prompt(a, c, o);
    }
    json_end(o, '}');
}

static void chat_write_end(const response *a, json_out *o) {
    json_end(o, ']');
    response_write_tail(a, o);
    if (chat_is_batch(a)) {
        json_raw(o, ",\"prompt_logprobs\":null,\"prompt_token_ids\":null,\"prompt_text\":null");
    } else {
        chat_write_prompt(a, &a->choices[0], o);
    }
    json_end(o, '}');
}

/* Writes a chunk up to the delta's members. */
static void chat_begin_chunk(const response *a, int32_t choice, json_out *o) {
    response_begin_chunk(a, o);
    json_begin(o, '{');
    json_int(json_name(o, "index"), choice);
    json_begin(json_name(o, "delta"), '{');
}

static void chat_write_role(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    chat_begin_chunk(a, choice, o);
    json_raw(o, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    response_write_prompt_text(a, c, o);
    response_end_chunk(a, c, o);
}

static void chat_write_progress(const response *a, int32_t choice, json_out *o) {
    chat_begin_chunk(a, choice, o);
    json_raw(o, "\"role\":\"assistant\",\"content\":null},\"logprobs\":null,\"finish_reason\":null}]");
    response_write_progress(a, choice, o);
    response_end_chunk(a, &a->choices[choice], o);
}

static void chat_write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    chat_begin_chunk(a, choice, o);
    if (c->text.n > 0 || (!c->prompt_sent && response_prompt_of(a, c)->text.n > 0)) {
        response_write_text(a, c, json_name(o, "content"));
    } else if (c->parts.n_calls > 0) {
        json_raw(json_name(o, "content"), "null");
    }
    answer_parts_write_delta(&c->parts, response_place(a, c), o);
    json_end(o, '}');
    response_write_logprobs(a, c, o);
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_finish(a, c, o);
    } else {
        json_raw(json_name(o, "finish_reason"), "null");
    }
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    json_end(o, '}');
    json_end(o, ']');
    response_end_chunk(a, c, o);
}

/* Writes the answer's id. True only if the conversation names answers by id: few do. */
static bool chat_answer_id(const response *a, const response_choice *c, char out[RESPONSE_ANSWER_ID_BYTES]) {
    (void)c;
    response_shown_id(a, out);
    return a->more->names_answers;
}

const response_writer chat_writer = {
    .id_prefix = "chatcmpl-",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .skips_empty = true,
    .answer_id = chat_answer_id,
    .begin = response_write_begin,
    .choice = chat_write_choice,
    .end = chat_write_end,
    .first = chat_write_role,
    .chunk = chat_write_chunk,
    .progress = chat_write_progress,
    .headers = chat_write_headers,
    .last = response_write_last,
    .error = response_write_error,
    .logprobs = {.token = chat_list_token, .write = chat_write_logprobs},
};

/* The dialect of POST /v1/chat/completions: writes its responses. */
#include <stdio.h>

#include "server/response.h"

/* Where the chat's template comes from. */
static int chat_write_headers(const quire_info *engine, char *out, size_t size) {
    const char *form = engine->chat_form;
    return form != NULL ? snprintf(out, size, "X-Quire-Chat-Template: %s\r\n", form) : 0;
}

/* ---- log-probabilities: an object a token ---- */

/* An object without its closing brace. */
static void chat_begin_token(const response *a, const quire_logprob *p, json_out *o) {
    str bytes = response_token_bytes(a, p->token);
    json_begin(json_item(o), '{');
    char name[RESPONSE_TOKEN_NAME_BYTES];
    str token =
        a->more->tokens_as_ids ? response_token_name(p->token, name) : response_token_text(a, p->token);
    json_text(json_name(o, "token"), token.p, token.n);
    json_number(json_name(o, "logprob"), response_logprob(p->logprob));
    json_begin(json_name(o, "bytes"), '[');
    for (size_t i = 0; i < bytes.n; i++) {
        json_int(json_item(o), (unsigned char)bytes.p[i]);
    }
    json_end(o, ']');
}

static quire_err chat_add_logprob(const response *a, response_logprobs *l, const quire_logprob *p,
                                  int32_t width) {
    json_out o = {.to = &l->content};
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

quire_err chat_list_token(const response *a, response_choice *c, const quire_event *ev) {
    return ev->logprobs != NULL ? chat_add_logprob(a, &c->logprobs, ev->logprobs, ev->n_logprobs) : QUIRE_OK;
}

void chat_write_logprobs(const response_logprobs *p, const response_logprobs *l, json_out *o) {
    response_write_lists("content", &p->content, &l->content, l->content.n, o);
}

/* ---- responses ---- */

/* What is said of a prompt: once, or beside each choice where the prompts are several. */
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

/* Writes everything up to the delta's members. */
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

/* Few clients send the ids of answers back: those of others are not kept. */
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

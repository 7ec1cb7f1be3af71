/* POST /v1/chat/completions: writes its responses. */
#include "server/response.h"

static void begin(const response *a, const char *object, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, object, o);
    json_begin(json_name(o, "choices"), '[');
}

static void write_begin(const response *a, json_out *o) {
    begin(a, "chat.completion", o);
}

static void write_choice(const response *a, int32_t i, json_out *o) {
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
    json_end(o, '}');
}

static void write_end(const response *a, json_out *o) {
    json_end(o, ']');
    response_write_tail(a, o);
    response_write_prompt_logprobs(a, &a->choices[0], o);
    response_write_prompt_ids(a, &a->choices[0], json_name(o, "prompt_token_ids"));
    json_end(o, '}');
}

/* Writes everything up to the delta's members. */
static void begin_chunk(const response *a, int32_t choice, json_out *o) {
    begin(a, "chat.completion.chunk", o);
    json_begin(o, '{');
    json_int(json_name(o, "index"), choice);
    json_begin(json_name(o, "delta"), '{');
}

static void write_role(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    begin_chunk(a, choice, o);
    json_raw(o, "\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    response_end_chunk(a, c, o);
}

static void write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    begin_chunk(a, choice, o);
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

const response_format chat_format = {
    .id_prefix = "chatcmpl",
    .chunk_object = "chat.completion.chunk",
    .skips_empty = true,
    .begin = write_begin,
    .choice = write_choice,
    .end = write_end,
    .first = write_role,
    .chunk = write_chunk,
};

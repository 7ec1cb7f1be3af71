/* POST /v1/chat/completions: writes its responses. */
#include "server/response.h"

static void write_begin(const response *a, json_out *o) {
    json_raw(o, "{");
    response_write_head(a, "chat.completion", o);
    json_raw(o, ",\"choices\":[");
}

static void write_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? ",{\"index\":" : "{\"index\":");
    json_int(o, i);
    json_raw(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
    response_write_text(a, c, o);
    json_raw(o, ",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,\"reasoning\":null},");
    response_write_logprobs(a, c, o);
    json_raw(o, ",");
    response_write_finish(c, o);
    json_raw(o, ",\"token_ids\":");
    response_write_token_ids(a, c, o);
    json_raw(o, "}");
}

static void write_end(const response *a, json_out *o) {
    json_raw(o, "]");
    response_write_tail(a, o);
    json_raw(o, ",");
    response_write_prompt_logprobs(a, &a->choices[0], o);
    json_raw(o, ",\"prompt_token_ids\":");
    response_write_prompt_ids(a, &a->choices[0], o);
    json_raw(o, "}");
}

/* Writes everything up to the delta. */
static void begin_chunk(const response *a, int32_t choice, json_out *o) {
    json_raw(o, "{");
    response_write_head(a, "chat.completion.chunk", o);
    json_raw(o, ",\"choices\":[{\"index\":");
    json_int(o, choice);
    json_raw(o, ",\"delta\":");
}

static void write_role(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    begin_chunk(a, choice, o);
    json_raw(o, "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"prompt_token_ids\":");
    response_write_prompt_ids(a, c, o);
    response_write_chunk_tail(a, c, o);
    json_raw(o, "}");
}

static void write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    begin_chunk(a, choice, o);
    json_raw(o, "{");
    if (c->text.n > 0 || (!c->prompt_sent && response_prompt_of(a, c)->text.n > 0)) {
        json_raw(o, "\"content\":");
        response_write_text(a, c, o);
    }
    json_raw(o, "},");
    response_write_logprobs(a, c, o);
    json_raw(o, ",");
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_finish(c, o);
    } else {
        json_raw(o, "\"finish_reason\":null");
    }
    json_raw(o, ",\"token_ids\":");
    response_write_token_ids(a, c, o);
    json_raw(o, "}]");
    response_write_chunk_tail(a, c, o);
    json_raw(o, "}");
}

const response_format chat_format = {
    .id_prefix = "chatcmpl", .chunk_object = "chat.completion.chunk", .skips_empty = true,
    .begin = write_begin, .choice = write_choice, .end = write_end, .first = write_role, .chunk = write_chunk,
};

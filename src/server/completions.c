/* POST /v1/completions: writes its responses. */
#include "server/response.h"

static void write_begin(const response *a, json_out *o) {
    json_raw(o, "{");
    response_write_head(a, "text_completion", o);
    json_raw(o, ",\"choices\":[");
}

static void write_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? ",{\"index\":" : "{\"index\":");
    json_int(o, i);
    json_raw(o, ",\"text\":");
    response_write_text(a, c, o);
    json_raw(o, ",");
    response_write_logprobs(a, c, o);
    json_raw(o, ",");
    response_write_finish(c, o);
    json_raw(o, ",\"token_ids\":");
    response_write_token_ids(a, c, o);
    json_raw(o, ",");
    response_write_prompt_logprobs(a, c, o);
    json_raw(o, ",\"prompt_token_ids\":");
    response_write_prompt_ids(a, c, o);
    json_raw(o, "}");
}

static void write_end(const response *a, json_out *o) {
    json_raw(o, "]");
    response_write_tail(a, o);
    json_raw(o, "}");
}

static void write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    json_raw(o, "{");
    response_write_head(a, "text_completion", o);
    json_raw(o, ",\"choices\":[{\"index\":");
    json_int(o, choice);
    json_raw(o, ",\"text\":");
    response_write_text(a, c, o);
    json_raw(o, ",");
    response_write_logprobs(a, c, o);
    json_raw(o, ",");
    response_write_finish(c, o);
    json_raw(o, ",\"prompt_token_ids\":");
    response_write_prompt_ids(a, c, o);
    json_raw(o, ",\"token_ids\":");
    response_write_token_ids(a, c, o);
    json_raw(o, "}]");
    response_write_chunk_tail(a, c, o);
    json_raw(o, "}");
}

const response_format completions_format = {
    .id_prefix = "cmpl", .chunk_object = "text_completion", .begin = write_begin, .choice = write_choice, .end = write_end,
    .chunk = write_chunk,
};

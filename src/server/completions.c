/* POST /v1/completions: writes its responses. */
#include "server/response.h"

static void write_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, "text_completion", o);
    json_begin(json_name(o, "choices"), '[');
}

/* Writes the members that whole responses and chunks begin a choice with. */
static void begin_choice(const response *a, const response_choice *c, int32_t index, json_out *o) {
    json_begin(o, '{');
    json_int(json_name(o, "index"), index);
    response_write_text(a, c, json_name(o, "text"));
    response_write_logprobs(a, c, o);
    response_write_finish(a, c, o);
}

static void write_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    json_raw(o, i > 0 ? "," : "");
    begin_choice(a, c, i, o);
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    response_write_prompt_logprobs(a, c, o);
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    json_end(o, '}');
}

static void write_end(const response *a, json_out *o) {
    json_end(o, ']');
    response_write_tail(a, o);
    json_end(o, '}');
}

static void write_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    write_begin(a, o);
    begin_choice(a, c, choice, o);
    response_write_prompt_ids(a, c, json_name(o, "prompt_token_ids"));
    response_write_token_ids(a, c, json_name(o, "token_ids"));
    json_end(o, '}');
    json_end(o, ']');
    response_end_chunk(a, c, o);
}

const response_format completions_format = {
    .id_prefix = "cmpl",
    .chunk_object = "text_completion",
    .begin = write_begin,
    .choice = write_choice,
    .end = write_end,
    .chunk = write_chunk,
};

/* Writes the parts that the responses of all endpoints share. */
#include "server/response.h"

void response_write_head(const response *a, const char *object, json_out *o) {
    json_cstr(json_name(o, "id"), a->id);
    json_cstr(json_name(o, "object"), object);
    json_int(json_name(o, "created"), a->created_s);
    json_cstr(json_name(o, "model"), a->conn->loop->server->model_name);
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

void response_write_token_ids(const response *a, const response_choice *c, json_out *o) {
    if (a->info->return_token_ids) {
        json_ints(o, c->tokens, c->n_tokens);
    } else {
        json_raw(o, "null");
    }
}

void response_write_prompt_ids(const response *a, const response_choice *c, json_out *o) {
    const response_prompt *p = response_prompt_of(a, c);
    if (a->info->return_token_ids && !c->prompt_sent) {
        json_ints(o, p->ids, p->n_ids);
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

static void begin_usage(int32_t prompt_tokens, int32_t completion_tokens, json_out *o) {
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "prompt_tokens"), prompt_tokens);
    json_int(json_name(o, "total_tokens"), (int64_t)prompt_tokens + completion_tokens);
    json_int(json_name(o, "completion_tokens"), completion_tokens);
}

/* The usage of all choices, at DONE, without its closing brace. */
static void begin_whole_usage(const response *a, json_out *o) {
    begin_usage(a->prompt_tokens, a->completion_tokens, o);
    json_begin(json_name(o, "prompt_tokens_details"), '{');
    json_int(json_name(o, "cached_tokens"), a->cached_tokens);
    json_end(o, '}');
}

static void write_fingerprint(json_out *o) {
    json_cstr(json_name(o, "system_fingerprint"), "quire-" QUIRE_VERSION);
}

void response_write_last_chunk(const response *a, json_out *o) {
    json_begin(o, '{');
    response_write_head(a, a->format->chunk_object, o);
    json_raw(json_name(o, "choices"), "[]");
    begin_whole_usage(a, o);
    json_end(o, '}');
    write_fingerprint(o);
    json_end(o, '}');
}

void response_end_chunk(const response *a, const response_choice *c, json_out *o) {
    if (a->info->continuous_usage) {
        begin_usage(c->prompt_tokens, c->completion_tokens, o);
        json_end(o, '}');
    }
    if (c->finish != QUIRE_FINISH_NONE && !a->info->include_usage) {
        write_fingerprint(o);
    }
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_explain(a, c, o);
    }
    json_end(o, '}');
}

void response_write_tail(const response *a, json_out *o) {
    json_raw(json_name(o, "service_tier"), "null");
    write_fingerprint(o);
    begin_whole_usage(a, o);
    json_raw(json_name(o, "completion_tokens_details"), "null");
    json_end(o, '}');
    response_write_explain(a, NULL, o);
}

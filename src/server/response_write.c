/* Writes the parts that the responses of all endpoints share. */
#include "server/response.h"

void response_write_head(const response *a, const char *object, json_out *o) {
    json_raw(o, "\"id\":");
    json_cstr(o, a->id);
    json_raw(o, ",\"object\":");
    json_cstr(o, object);
    json_raw(o, ",\"created\":");
    json_int(o, a->created_s);
    json_raw(o, ",\"model\":");
    json_cstr(o, a->conn->loop->server->model_name);
}

void response_write_finish(const response_choice *c, json_out *o) {
    static const char *const words[] = {
        [QUIRE_FINISH_NONE] = NULL, [QUIRE_FINISH_STOP] = "stop", [QUIRE_FINISH_LENGTH] = "length",
        [QUIRE_FINISH_CANCELLED] = "abort", [QUIRE_FINISH_ERROR] = "error",
    };
    json_raw(o, "\"finish_reason\":");
    json_cstr(o, words[c->finish]);
    json_raw(o, ",\"stop_reason\":");
    if (c->stop_string.n > 0) {
        json_text(o, c->stop_string.p, c->stop_string.n);
    } else if (c->stop_token >= 0) {
        json_int(o, c->stop_token);
    } else {
        json_raw(o, "null");
    }
    if (c->has_score) {
        json_raw(o, ",\"beam_score\":");
        json_number(o, c->beam_score);
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

void response_write_text(const response *a, const response_choice *c, json_out *o) {
    const strbuf *echo = &response_prompt_of(a, c)->text;
    json_texts(o, c->prompt_sent ? (str){"", 0} : (str){echo->p, echo->n}, (str){c->text.p, c->text.n});
}

static void usage_fields(int32_t prompt_tokens, int32_t completion_tokens, json_out *o) {
    json_raw(o, "\"prompt_tokens\":");
    json_int(o, prompt_tokens);
    json_raw(o, ",\"total_tokens\":");
    json_int(o, (int64_t)prompt_tokens + completion_tokens);
    json_raw(o, ",\"completion_tokens\":");
    json_int(o, completion_tokens);
}

static void prompt_details(const response *a, json_out *o) {
    json_raw(o, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_int(o, a->cached_tokens);
    json_raw(o, "}");
}

void response_write_usage(const response *a, json_out *o) {
    json_raw(o, "{");
    usage_fields(a->prompt_tokens, a->completion_tokens, o);
    prompt_details(a, o);
    json_raw(o, "}");
}

void response_write_chunk_tail(const response *a, const response_choice *c, json_out *o) {
    if (a->info->continuous_usage) {
        json_raw(o, ",\"usage\":{");
        usage_fields(c->prompt_tokens, c->completion_tokens, o);
        json_raw(o, "}");
    }
    if (c->finish != QUIRE_FINISH_NONE && !a->info->include_usage) {
        json_raw(o, ",\"system_fingerprint\":\"quire-" QUIRE_VERSION "\"");
    }
    if (c->finish != QUIRE_FINISH_NONE) {
        response_write_explain(a, c, o);
    }
}

void response_write_tail(const response *a, json_out *o) {
    json_raw(o, ",\"service_tier\":null,\"system_fingerprint\":\"quire-" QUIRE_VERSION "\",\"usage\":{");
    usage_fields(a->prompt_tokens, a->completion_tokens, o);
    prompt_details(a, o);
    json_raw(o, ",\"completion_tokens_details\":null}");
    response_write_explain(a, NULL, o);
}

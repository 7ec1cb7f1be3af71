/* Writes responses of POST /v1/messages, Anthropic's Messages API.
 *
 * A response is a list of blocks: thinking, text and tool_use. In a stream one block is
 * open at a time:
 *
 *   message_start {content_block_start content_block_delta* content_block_stop}*
 *   message_delta message_stop
 *
 * The last delta of a thinking block is its signature. */
#include "server/routes.h"

#include <assert.h>
#include <time.h>

#include "base/sha256.h"
#include "server/response.h"

typedef enum open_block { NO_BLOCK, THINKING_BLOCK, TEXT_BLOCK, TOOL_BLOCK } open_block;

typedef struct messages_state {
    open_block open;
    int32_t index;      /* index of the open block or, if none is open, of the next */
    sha256_sum thought; /* digest of the open thinking block's text so far */
    bool has_thought;
    sha256_sum thoughts; /* digest of all reasoning so far */
} messages_state;

/* ---- parts of whole responses and streams ---- */

static const char *messages_stop_reason(const response_choice *c) {
    return c->finish == QUIRE_FINISH_LENGTH ? "max_tokens"
           : c->stop_string.n > 0           ? "stop_sequence" /* perhaps inside a call */
           : c->parts.has_calls             ? "tool_use"
                                            : "end_turn";
}

static void messages_write_stop(const response_choice *c, json_out *o) {
    bool is_over = c->finish != QUIRE_FINISH_NONE;
    json_cstr(json_name(o, "stop_reason"), is_over ? messages_stop_reason(c) : NULL);
    json_cstr(json_name(o, "stop_sequence"), is_over && c->stop_string.n > 0 ? c->stop_string.p : NULL);
}

/* Writes the usage. input_tokens are the tokens not found in the prefix cache; filling
 * the cache costs nothing, so cache_creation_input_tokens is 0. */
static void messages_write_usage(const response_choice *c, json_out *o) {
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "input_tokens"), c->prompt_tokens - c->cached_tokens);
    json_int(json_name(o, "cache_creation_input_tokens"), 0);
    json_int(json_name(o, "cache_read_input_tokens"), c->cached_tokens);
    json_int(json_name(o, "output_tokens"), c->completion_tokens);
    json_end(o, '}');
}

/* Writes the members of a message before its content. */
static void messages_write_head(const response *a, json_out *o) {
    json_cstr(json_name(o, "id"), a->id);
    json_cstr(json_name(o, "type"), "message");
    json_cstr(json_name(o, "role"), "assistant");
    json_cstr(json_name(o, "model"), response_model(a));
}

static void messages_write_signature(const response *a, sha256_sum *thought, json_out *o) {
    uint8_t digest[SHA256_BYTES];
    char signature[QUIRE_SIGNATURE_BYTES + 1];
    sha256_end(thought, digest);
    quire_sign(response_engine(a), digest, signature);
    json_cstr(json_name(o, "signature"), signature);
}

static void messages_note(response *a, const quire_event *ev) {
    messages_state *s = a->state;
    for (int32_t i = 0; i < ev->n_parts; i++) {
        if (ev->parts[i].kind != QUIRE_PART_REASONING) {
            continue;
        }
        if (!s->has_thought) {
            sha256_begin(&s->thoughts);
        }
        s->has_thought = true;
        sha256_add(&s->thoughts, ev->parts[i].text, ev->parts[i].n_text);
    }
}

/* Writes the answer's id: the signature of its reasoning (usually one block). */
static bool messages_answer_id(const response *a, const response_choice *c,
                               char out[RESPONSE_ANSWER_ID_BYTES]) {
    const messages_state *s = a->state;
    sha256_sum thoughts = s->thoughts;
    uint8_t digest[SHA256_BYTES];
    (void)c;
    if (s->has_thought) {
        sha256_end(&thoughts, digest);
        quire_sign(response_engine(a), digest, out);
    }
    return s->has_thought;
}

/* Writes the beginning of a tool_use block, up to its input. */
static void messages_begin_call(const response *a, const response_choice *c, const answer_call *call,
                                json_out *o) {
    char id[ANSWER_CALL_ID_BYTES + 1];
    answer_call_id(response_place(a, c), call->index, id);
    json_cstr(json_name(o, "type"), "tool_use");
    json_raw(json_name(o, "id"), "\"toolu_");
    json_raw(o, id);
    json_raw(o, "\"");
    json_text(json_name(o, "name"), call->name.n > 0 ? call->name.p : "", call->name.n);
}

/* ---- whole responses ---- */

static void messages_begin(const response *a, json_out *o) {
    json_begin(o, '{');
    messages_write_head(a, o);
}

/* Whether arguments are a JSON object; arguments that the length cut off are not. */
static bool messages_is_object(const strbuf *arguments) {
    static const json_limits limits = {.max_depth = JSON_MAX_DEPTH,
                                       .max_values = SIZE_MAX,
                                       .max_containers = SIZE_MAX,
                                       .max_names = SIZE_MAX,
                                       .names = JSON_NAMES_LAST,
                                       .takes_nul = true};
    json_fault fault;
    size_t at = 0;
    while (at < arguments->n && strchr(" \t\r\n", arguments->p[at]) != NULL) {
        at++;
    }
    return at < arguments->n && arguments->p[at] == '{' &&
           json_check((str){arguments->p, arguments->n}, &limits, NULL, &fault) == QUIRE_OK;
}

static void messages_write_thinking(const response *a, str reasoning, json_out *o) {
    sha256_sum thought;
    sha256_begin(&thought);
    sha256_add(&thought, reasoning.p, reasoning.n);
    json_cstr(json_name(o, "type"), "thinking");
    json_text(json_name(o, "thinking"), reasoning.p, reasoning.n);
    messages_write_signature(a, &thought, o);
}

static void messages_write_text(str text, json_out *o) {
    json_cstr(json_name(o, "type"), "text");
    json_text(json_name(o, "text"), text.p, text.n);
}

static void messages_write_call(const response *a, const response_choice *c, const answer_call *call,
                                json_out *o) {
    messages_begin_call(a, c, call, o);
    json_raw(json_name(o, "input"), messages_is_object(&call->arguments) ? call->arguments.p : "{}");
}

static void messages_choice(const response *a, int32_t i, json_out *o) {
    const response_choice *c = &a->choices[a->shown[i]];
    const answer_run *runs;
    answer_run whole;
    size_t n = response_runs(a, c, &whole, &runs);
    json_begin(json_name(o, "content"), '[');
    for (size_t k = 0; k < n; k++) {
        json_begin(json_item(o), '{');
        if (runs[k].kind == QUIRE_PART_CALL) {
            messages_write_call(a, c, &c->parts.calls[runs[k].at], o);
        } else if (runs[k].kind == QUIRE_PART_REASONING) {
            messages_write_thinking(a, response_run_text(c, &runs[k]), o);
        } else {
            messages_write_text(response_run_text(c, &runs[k]), o);
        }
        json_end(o, '}');
    }
    json_end(o, ']');
    messages_write_stop(c, o);
    messages_write_usage(c, o);
}

static void messages_end(const response *a, json_out *o) {
    response_write_explain(a, NULL, o);
    json_end(o, '}');
}

/* ---- streams ---- */

static void messages_begin_event(const char *name, json_out *o) {
    json_raw(o, "event: ");
    json_raw(o, name);
    json_raw(o, "\ndata: ");
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), name);
}

static void messages_end_event(json_out *o) {
    json_end(o, '}');
    json_raw(o, "\n\n");
}

static void messages_start(const response *a, int32_t choice, json_out *o) {
    messages_begin_event("message_start", o);
    json_begin(json_name(o, "message"), '{');
    messages_write_head(a, o);
    json_raw(json_name(o, "content"), "[]");
    messages_write_stop(&a->choices[choice], o);
    messages_write_usage(&a->choices[choice], o);
    json_end(o, '}');
    messages_end_event(o);
}

/* Writes a ping; before message_start, which clients expect first, an SSE comment. */
static void messages_ping(const response *a, json_out *o) {
    if (a->started) {
        messages_begin_event("ping", o);
        messages_end_event(o);
    } else {
        json_raw(o, ": ping\n\n");
    }
}

/* Writes the beginning of a content_block_delta, up to the delta's value. */
static void messages_begin_delta(const messages_state *s, const char *type, json_out *o) {
    messages_begin_event("content_block_delta", o);
    json_int(json_name(o, "index"), s->index);
    json_begin(json_name(o, "delta"), '{');
    json_cstr(json_name(o, "type"), type);
}

static void messages_end_delta(json_out *o) {
    json_end(o, '}');
    messages_end_event(o);
}

static void messages_write_delta(const messages_state *s, const char *type, const char *name, str text,
                                 json_out *o) {
    if (text.n > 0) {
        messages_begin_delta(s, type, o);
        json_text(json_name(o, name), text.p, text.n);
        messages_end_delta(o);
    }
}

static void messages_close_block(const response *a, messages_state *s, json_out *o) {
    if (s->open == NO_BLOCK) {
        return;
    }
    if (s->open == THINKING_BLOCK) {
        messages_begin_delta(s, "signature_delta", o);
        messages_write_signature(a, &s->thought, o);
        messages_end_delta(o);
    }
    messages_begin_event("content_block_stop", o);
    json_int(json_name(o, "index"), s->index++);
    messages_end_event(o);
    s->open = NO_BLOCK;
}

/* Closes the open block and begins another, up to its content. */
static void messages_begin_block(const response *a, messages_state *s, open_block kind, json_out *o) {
    messages_close_block(a, s, o);
    s->open = kind;
    messages_begin_event("content_block_start", o);
    json_int(json_name(o, "index"), s->index);
    json_begin(json_name(o, "content_block"), '{');
}

static void messages_end_block_start(json_out *o) {
    json_end(o, '}');
    messages_end_event(o);
}

static void messages_add_thinking(const response *a, messages_state *s, str text, json_out *o) {
    if (s->open != THINKING_BLOCK) {
        messages_begin_block(a, s, THINKING_BLOCK, o);
        json_raw(o, "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"");
        messages_end_block_start(o);
        sha256_begin(&s->thought);
    }
    sha256_add(&s->thought, text.p, text.n);
    messages_write_delta(s, "thinking_delta", "thinking", text, o);
}

static void messages_add_text(const response *a, messages_state *s, str text, json_out *o) {
    if (s->open != TEXT_BLOCK) {
        messages_begin_block(a, s, TEXT_BLOCK, o);
        json_raw(o, "\"type\":\"text\",\"text\":\"\"");
        messages_end_block_start(o);
    }
    messages_write_delta(s, "text_delta", "text", text, o);
}

static void messages_add_call(const response *a, const response_choice *c, messages_state *s,
                              const answer_call *call, json_out *o) {
    if (call->begins) {
        messages_begin_block(a, s, TOOL_BLOCK, o);
        messages_begin_call(a, c, call, o);
        json_raw(json_name(o, "input"), "{}");
        messages_end_block_start(o);
    }
    messages_write_delta(s, "input_json_delta", "partial_json", (str){call->arguments.p, call->arguments.n},
                         o);
}

static void messages_chunk(const response *a, int32_t choice, json_out *o) {
    const response_choice *c = &a->choices[choice];
    messages_state *s = a->state;
    const answer_run *runs;
    answer_run whole;
    size_t n = response_runs(a, c, &whole, &runs);
    for (size_t k = 0; k < n; k++) {
        if (runs[k].kind == QUIRE_PART_CALL) {
            messages_add_call(a, c, s, &c->parts.calls[runs[k].at], o);
        } else if (runs[k].kind == QUIRE_PART_REASONING) {
            messages_add_thinking(a, s, response_run_text(c, &runs[k]), o);
        } else {
            messages_add_text(a, s, response_run_text(c, &runs[k]), o);
        }
    }
    if (c->finish == QUIRE_FINISH_STOP || c->finish == QUIRE_FINISH_LENGTH) {
        messages_close_block(a, s, o);
        messages_begin_event("message_delta", o);
        json_begin(json_name(o, "delta"), '{');
        messages_write_stop(c, o);
        json_end(o, '}');
        messages_write_usage(c, o);
        response_write_explain(a, c, o);
        messages_end_event(o);
    } else if (o->to->n == 0) { /* an error will follow */
        messages_ping(a, o);
    }
}

static void messages_last(const response *a, json_out *o) {
    (void)a;
    messages_begin_event("message_stop", o);
    messages_end_event(o);
}

/* ---- errors ---- */

int messages_error_status(int status) {
    return status == 503 ? 529 : status;
}

static const char *messages_error_type(int status) {
    return status == 401                          ? "authentication_error"
           : status == 403                        ? "permission_error"
           : status == 404                        ? "not_found_error"
           : status == 413                        ? "request_too_large"
           : status == 429                        ? "rate_limit_error"
           : messages_error_status(status) == 529 ? "overloaded_error"
           : status >= 500                        ? "api_error"
                                                  : "invalid_request_error";
}

void messages_error_body(json_out *o, const api_error *e) {
    assert(e != NULL);
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "error");
    json_begin(json_name(o, "error"), '{');
    json_cstr(json_name(o, "type"), messages_error_type(e->status));
    json_cstr(json_name(o, "message"), e->message);
    json_end(o, '}');
    json_cstr(json_name(o, "request_id"), e->request_id);
    json_end(o, '}');
}

static void messages_error(const response *a, const api_error *e, json_out *o) {
    (void)a;
    json_raw(o, "event: error\ndata: ");
    messages_error_body(o, e);
    json_raw(o, "\n\n");
}

/* ---- models ---- */

void messages_write_model(const server *s, str name, int32_t n_tokens, json_out *o) {
    assert(s != NULL);
    char created[32];
    struct tm tm;
    time_t at = (time_t)s->started_s;
    gmtime_r(&at, &tm);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "model");
    json_text(json_name(o, "id"), name.p, name.n);
    json_text(json_name(o, "display_name"), name.p, name.n);
    json_cstr(json_name(o, "created_at"), created);
    json_cstr(json_name(o, "lifecycle"), "active");
    static const char *const limits[] = {"max_input_tokens", "max_tokens"};
    for (int i = 0; i < 2; i++) {
        json_name(o, limits[i]);
        if (n_tokens > 0) {
            json_int(o, n_tokens);
        } else {
            json_raw(o, "null");
        }
    }
    json_end(o, '}');
}

void messages_write_models(const server *s, json_out *o) {
    assert(s != NULL);
    int32_t n = s->options.n_served_model_names;
    const char *last = n > 1 ? s->options.served_model_names[n - 1] : s->model_name;
    const int32_t n_tokens = quire_engine_info(s->engine)->max_model_len;
    quire_adapter **list;
    size_t n_adapters;
    quire_err e = quire_adapters(s->engine, &list, &n_adapters);
    if (o->err == QUIRE_OK) {
        o->err = e;
    }
    json_begin(o, '{');
    json_begin(json_name(o, "data"), '[');
    messages_write_model(s, str_of(s->model_name), n_tokens, json_item(o));
    for (int32_t i = 1; i < n; i++) {
        messages_write_model(s, str_of(s->options.served_model_names[i]), n_tokens, json_item(o));
    }
    for (int32_t i = 1; i < models_count(s->models); i++) {
        const served_model m = models_look(s->models, models_at(s->models, i));
        messages_write_model(s, str_of(m.name), m.max_model_len, json_item(o));
        last = m.name;
    }
    for (size_t i = 0; i < n_adapters; i++) {
        if (list[i]->number < 0) {
            messages_write_model(s, str_of(list[i]->name), n_tokens, json_item(o));
            last = list[i]->name;
        }
    }
    json_end(o, ']');
    json_bool(json_name(o, "has_more"), false);
    json_cstr(json_name(o, "first_id"), s->model_name);
    json_cstr(json_name(o, "last_id"), last);
    json_end(o, '}');
    quire_free((void *)list);
}

const response_writer messages_writer = {
    .id_prefix = "msg_",
    .object = "message",
    .skips_empty = true,
    .state_bytes = sizeof(messages_state),
    .answer_id = messages_answer_id,
    .note = messages_note,
    .begin = messages_begin,
    .choice = messages_choice,
    .end = messages_end,
    .first = messages_start,
    .chunk = messages_chunk,
    .last = messages_last,
    .error = messages_error,
    .ping = messages_ping,
    .error_body = messages_error_body,
};

#include "cli/batch_line.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/commands.h"
#include "json/json_out.h"
#include "json/json_scan.h"

/* ---- reading ---- */

/* Reads the body of an OpenAI line, by its url. text: the line. */
static quire_err read_openai(const json_value *line, str text, batch_line *l, quire_error *fault, quire_error *err) {
    l->is_openai = true;
    str url = json_get_str(line, "url"), method = json_get_str(line, "method"), span;
    if (method.n > 0 && !str_is(method, "POST")) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "method", "method is %s; it must be POST", method.p);
    } else if (str_is(url, "/v1/chat/completions")) {
        l->endpoint = QUIRE_CHAT;
    } else if (!str_is(url, "/v1/completions")) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "url", "url is %s; it must be /v1/completions or /v1/chat/completions",
                      url.n > 0 ? url.p : "missing");
    }
    if (fault->code == QUIRE_OK && !json_is(json_get(line, "body"), JSON_KIND_OBJECT)) {
        err_set_param(fault, QUIRE_BAD_REQUEST, "body", "body is missing; it is the request as the API takes it");
    }
    if (fault->code == QUIRE_OK) {
        quire_err e = json_scan_member(text, "body", &span);
        e = e == QUIRE_OK ? strbuf_add(&l->body, span.p, span.n) : e;
        return e == QUIRE_OK ? e : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    return QUIRE_OK;
}

/* Adds the line's own members except "id". "ids" is another name for a prompt of ids. */
static quire_err add_members(const json_value *line, str text, body *b) {
    for (json_member m = {0}; json_next(line, &m);) {
        str span;
        if (strcmp(m.name, "id") != 0) {
            TRY(json_scan_member(text, m.name, &span));
            TRY(body_set(b, strcmp(m.name, "ids") == 0 ? "prompt" : m.name, span));
        }
    }
    return QUIRE_OK;
}

/* Reads the flags' fields, overridden by the line's own. */
static quire_err read_plain(const cli_options *o, const session *s, const json_value *line, str text, batch_line *l, quire_error *err) {
    body b = {0};
    l->endpoint = json_get(line, "messages") ? QUIRE_CHAT : QUIRE_COMPLETIONS;
    quire_err e = request_begin(o, &b, err);
    if (e == QUIRE_OK && add_members(line, text, &b) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    e = e == QUIRE_OK ? request_complete(s, l->endpoint, &b, err) : e;
    if (e == QUIRE_OK && body_write(&b, &l->body) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
    }
    body_deinit(&b);
    return e;
}

void batch_line_deinit(batch_line *l) {
    strbuf_deinit(&l->body);
    strbuf_deinit(&l->id);
    *l = (batch_line){0};
}

/* Stores the member that the response repeats. */
static quire_err keep_id(const json_value *line, const char *name, batch_line *l, quire_error *err) {
    json_out out = {.to = &l->id};
    if (json_get(line, name)) {
        json_add(&out, json_get(line, name));
    }
    return out.err == QUIRE_OK ? QUIRE_OK : err_set(err, out.err, -1, "out of memory");
}

quire_err batch_line_read(const cli_options *o, const session *s, size_t number, str text, batch_line *l, quire_error *fault,
                          quire_error *err) {
    json_value *line = NULL;
    json_fault where = {.what = "another kind of value"};
    *l = (batch_line){.endpoint = QUIRE_COMPLETIONS};
    quire_err e = json_read(text, &json_limits_file, JSON_WIDE_REAL, &line, &where);
    if (e == QUIRE_NO_MEMORY) {
        return err_set(err, e, -1, "out of memory for line %zu", number);
    }
    if (e != QUIRE_OK || !json_is(line, JSON_KIND_OBJECT)) {
        err_set(fault, QUIRE_BAD_REQUEST, -1, "line %zu is not a JSON object: %s", number, where.what);
        e = QUIRE_OK;
    } else if (json_get(line, "custom_id") || json_get(line, "body")) {
        e = keep_id(line, "custom_id", l, err);
        e = e == QUIRE_OK ? read_openai(line, text, l, fault, err) : e;
    } else {
        e = keep_id(line, "id", l, err);
        e = e == QUIRE_OK ? read_plain(o, s, line, text, l, err) : e;
    }
    json_drop(line);
    return e;
}

/* ---- answering ---- */

/* The HTTP status that a server would send. */
static int status_of(const quire_error *error) {
    return error->code == QUIRE_OK ? 200 : error->code == QUIRE_INTERNAL ? 500 : error->code == QUIRE_BUSY ? 429 : 400;
}

static void add_error(json_out *o, const quire_error *error) {
    int status = status_of(error);
    json_begin(json_name(o, "error"), '{');
    json_cstr(json_name(o, "message"), error->message);
    json_cstr(json_name(o, "type"), status == 500 ? "internal_error" : "invalid_request_error");
    json_cstr(json_name(o, "param"), error->param[0] ? error->param : NULL);
    json_int(json_name(o, "code"), status);
    json_end(o, '}');
}

static void add_usage(json_out *o, const response *a) {
    json_begin(json_name(o, "usage"), '{');
    json_int(json_name(o, "prompt_tokens"), a->prompt_tokens);
    json_int(json_name(o, "completion_tokens"), a->completion_tokens);
    json_int(json_name(o, "total_tokens"), a->prompt_tokens + a->completion_tokens);
    json_end(o, '}');
}

/* Adds text, ids and the finish reason. */
static void add_choice(json_out *o, const response_choice *c, bool message) {
    if (message) {
        json_begin(json_name(o, "message"), '{');
        json_cstr(json_name(o, "role"), "assistant");
    }
    json_name(o, message ? "content" : "text");
    json_text(o, c->text.n ? c->text.p : "", c->text.n);
    if (message) {
        json_end(o, '}');
    }
    json_ints(json_name(o, "token_ids"), c->tokens, c->n_tokens);
    json_cstr(json_name(o, "finish_reason"), response_finish_name(c->finish));
    json_name(o, "stop_reason");
    if (c->stop_string == NULL && c->stop_token >= 0) {
        json_int(o, c->stop_token);
    } else {
        json_cstr(o, c->stop_string);
    }
}

static void add_choices(json_out *o, const response *a, bool message) {
    json_begin(json_name(o, "choices"), '[');
    for (size_t i = 0; i < a->n_choices; i++) {
        json_begin(json_item(o), '{');
        json_int(json_name(o, "index"), (int64_t)i);
        add_choice(o, &a->choices[i], message);
        json_end(o, '}');
    }
    json_end(o, ']');
}

static void plain_response(json_out *o, const response *a, size_t index, const strbuf *id) {
    json_begin(o, '{');
    json_int(json_name(o, "index"), (int64_t)index);
    if (id->n > 0) {
        json_raw(json_name(o, "id"), id->p);
    }
    if (a->error.code != QUIRE_OK) {
        add_error(o, &a->error);
    } else {
        if (a->n_choices == 1) {
            add_choice(o, &a->choices[0], false);
        } else {
            add_choices(o, a, false);
        }
        add_usage(o, a);
    }
    json_end(o, '}');
}

/* Adds the body of an OpenAI response: a completion, or an error. */
static void add_body(json_out *o, const batch_line *l, size_t index, const response *a, const char *model) {
    int status = status_of(&a->error);
    bool chat = l->endpoint == QUIRE_CHAT;
    char id[48];
    json_begin(json_name(o, "body"), '{');
    if (status != 200) {
        add_error(o, &a->error);
    } else {
        snprintf(id, sizeof id, "%s-%zu", chat ? "chatcmpl" : "cmpl", index);
        json_cstr(json_name(o, "id"), id);
        json_cstr(json_name(o, "object"), chat ? "chat.completion" : "text_completion");
        json_int(json_name(o, "created"), clock_unix_s());
        json_cstr(json_name(o, "model"), model);
        add_choices(o, a, chat);
        add_usage(o, a);
    }
    json_end(o, '}');
}

static void openai_response(json_out *o, const batch_line *l, size_t index, const response *a, const char *model) {
    char id[48];
    json_begin(o, '{');
    snprintf(id, sizeof id, "batch_req-%zu", index);
    json_cstr(json_name(o, "id"), id);
    json_raw(json_name(o, "custom_id"), l->id.n > 0 ? l->id.p : "null");
    json_begin(json_name(o, "response"), '{');
    json_int(json_name(o, "status_code"), status_of(&a->error));
    snprintf(id, sizeof id, "req-%zu", index);
    json_cstr(json_name(o, "request_id"), id);
    add_body(o, l, index, a, model);
    json_end(o, '}');
    json_raw(json_name(o, "error"), "null");
    json_end(o, '}');
}

quire_err batch_line_response(const batch_line *l, size_t index, const response *a, const char *model, strbuf *out) {
    json_out o = {.to = out};
    if (l->is_openai) {
        openai_response(&o, l, index, a, model);
    } else {
        plain_response(&o, a, index, &l->id);
    }
    return o.err;
}

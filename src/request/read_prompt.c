/* The prompt of a request: its field in four forms (a text, several, ids, several lists
 * of ids), or a chat's messages and their text. */
#include "base/mem.h"
#include "base/turn.h"
#include "request/request_read.h"
#include "json/json_scan.h"

void request_prompts_free(request_prompt *prompts, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        mem_free(prompts[i].ids);
        mem_free(prompts[i].types);
    }
    mem_free(prompts);
}

/* Checks one id. index is its index in an array of ids, or that of the array that
 * contains it. */
static quire_err read_id(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                         int32_t *out, quire_error *err) {
    int64_t id;
    if (!json_whole(v, &id) || id < 0) {
        return request_type_error(f, index, v, "a token id, an integer from 0 on", err);
    }
    if (id >= r->context.n_vocab) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "",
                             "token id %lld is out of the vocabulary, which has %d ids", (long long)id,
                             (int)r->context.n_vocab);
    }
    *out = (int32_t)id;
    return QUIRE_OK;
}

/* Reads an array of ids; index >= 0: it is that element of the prompt array. */
static quire_err read_ids(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                          request_prompt *out, quire_error *err) {
    size_t n = json_length(v);
    if (n == 0) {
        return request_range_error(f, err, "%s has an empty array; give at least one token id", f->name);
    }
    int32_t *ids = mem_new(n, sizeof *ids);
    if (ids == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a prompt of %zu ids", n);
    }
    for (size_t i = 0; i < n; i++) {
        quire_err e = read_id(r, f, json_at(v, i), index < 0 ? (int64_t)i : index, &ids[i], err);
        if (e != QUIRE_OK) {
            mem_free(ids);
            return e;
        }
    }
    out->ids = ids;
    out->n_ids = (int32_t)n;
    return QUIRE_OK;
}

static quire_err read_text(const quire_request *r, const field_desc *f, const json_value *v,
                           request_prompt *out, quire_error *err) {
    if (!r->context.has_vocabulary) {
        return request_range_error(
            f, err, "this model has no vocabulary; give the %s as an array of token ids", f->name);
    }
    out->text = json_str(v);
    return out->text.n > 0 ? QUIRE_OK
                           : request_range_error(f, err, "%s is empty; give a text or token ids", f->name);
}

/* Reads element index of the prompt array (or the whole prompt, index -1). */
static quire_err read_one(const quire_request *r, const field_desc *f, const json_value *v, int64_t index,
                          request_prompt *out, quire_error *err) {
    switch (json_kind_of(v)) {
    case JSON_KIND_TEXT:
        return read_text(r, f, v, out, err);
    case JSON_KIND_ARRAY:
        return read_ids(r, f, v, index, out, err);
    default:
        return request_type_error(f, index, v, "a string or an array of token ids", err);
    }
}

quire_err request_too_long(const quire_request *r, size_t n, bool is_least, quire_error *err) {
    int32_t limit = r->context.max_model_len;
    if (r->info.endpoint == QUIRE_EMBEDDINGS) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "input",
                             "the input has %s%zu tokens; at most %d are taken", is_least ? "at least " : "",
                             n, (int)limit);
    }
    bool chat = r->info.endpoint == QUIRE_CHAT;
    const char *param = chat ? "messages" : n == (size_t)limit ? "max_tokens" : "input_tokens";
    return err_set_param(err, chat ? QUIRE_CONTEXT_LENGTH : QUIRE_BAD_REQUEST, param,
                         "the prompt has %s%zu tokens; with at least one token to generate that is over the "
                         "maximum context length of %d tokens",
                         is_least ? "at least " : "", n, (int)limit);
}

/* Checks a text by its length in JSON, whose longest escape has six bytes for one. */
static quire_err check_text_length(const quire_request *r, str span, quire_error *err) {
    size_t least =
        span.n > 2 && span.p[0] == '"' ? tokenizer_least_tokens(r->context.tokenizer, (span.n - 2) / 6) : 0;
    return least > (size_t)r->context.max_model_len ? request_too_long(r, least, true, err) : QUIRE_OK;
}

quire_err request_check_prompt_length(const quire_request *r, str span, quire_error *err) {
    json_scan s = {.text = span};
    bool more;
    str item;
    if (r->context.tokenizer == NULL ||
        tokenizer_least_tokens(r->context.tokenizer, span.n) <= (size_t)r->context.max_model_len) {
        return QUIRE_OK;
    }
    if (span.p[0] != '[') {
        return check_text_length(r, span, err);
    }
    TRY(json_scan_open(&s, '['));
    for (;;) {
        TRY(json_scan_more(&s, ']', &more));
        if (!more) {
            return QUIRE_OK;
        }
        TRY(json_scan_span(&s, &item));
        TRY(check_text_length(r, item, err));
    }
}

quire_err request_read_prompt(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    size_t n = 1;
    bool many = false;
    if (json_is(v, JSON_KIND_ARRAY)) {
        const json_value *first = json_length(v) > 0 ? json_at(v, 0) : NULL;
        many = json_is(first, JSON_KIND_TEXT) || json_is(first, JSON_KIND_ARRAY);
        n = many ? json_length(v) : 1;
    }
    if (n > REQUEST_MAX_PROMPTS) {
        return request_range_error(f, err, "%s has %zu items; at most %d are taken at once", f->name, n,
                                   REQUEST_MAX_PROMPTS);
    }
    if (v == NULL) {
        return request_range_error(f, err, "%s is missing; give a text or token ids", f->name);
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    if (prompts == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %zu prompts", n);
    }
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n && e == QUIRE_OK; i++) {
        const json_value *item = many ? json_at(v, i) : v;
        if (many && json_kind_of(item) != json_kind_of(json_at(v, 0))) {
            e = request_type_error(f, (int64_t)i, item, "of the same type as the first", err);
        } else {
            e = read_one(r, f, item, many ? (int64_t)i : -1, &prompts[i], err);
        }
    }
    if (e != QUIRE_OK) {
        request_prompts_free(prompts, (int32_t)n);
        return e;
    }
    request_prompts_free(r->prompts, r->n_prompts);
    r->prompts = prompts;
    r->n_prompts = (int32_t)n;
    return QUIRE_OK;
}

quire_err request_read_messages(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    if (v == NULL) {
        return request_range_error(f, err, "messages is null; it must be an array of messages");
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return request_type_error(f, -1, v, "an array of messages", err);
    }
    if (json_length(v) == 0) {
        return request_range_error(f, err, "messages is empty; give at least one message");
    }
    chat_messages messages;
    const chat_form *form = r->context.form;
    TRY(chat_messages_read(
        v, form != NULL && form->template != NULL ? chat_template_traits(form->template) : NULL,
        "body.messages", &messages, err));
    chat_messages_deinit(&r->messages);
    r->messages = messages;
    r->given_messages = v;
    return QUIRE_OK;
}

size_t request_text_bytes(const quire_request *r) {
    size_t n = r->messages.json.n;
    for (int32_t i = 0; i < r->n_prompts; i++) {
        n += r->prompts[i].text.n;
    }
    return n;
}

/* Whether a text is a template rather than the name of one. */
static bool is_template_text(str s) {
    return str_contains(s, str_of("{{")) || str_contains(s, str_of("{%"));
}

quire_err request_read_template(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    str given = v == NULL ? (str){0} : json_str(v);
    if (given.n > 0 && is_template_text(given)) {
        if (!r->context.trusts_templates) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "",
                                 "chat_template is a template's text, which this server takes with "
                                 "--trust-request-chat-template only");
        }
    } else if (given.n > 0 && r->context.form != NULL && chat_form_find(r->context.form, given) == NULL) {
        strbuf names = {0};
        TRY(chat_form_names(r->context.form, &names));
        quire_err e = request_range_error(f, err, "chat_template is \"%.*s\"; this model has %s",
                                          (int)(given.n < 60 ? given.n : 60), given.p, names.p);
        strbuf_deinit(&names);
        return e;
    }
    r->template_given = given;
    return QUIRE_OK;
}

quire_err request_read_effort(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    (void)f, (void)err;
    r->reasoning_effort = v == NULL ? (str){0} : json_str(v);
    return QUIRE_OK;
}

quire_err request_read_verbosity(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    (void)f, (void)err;
    r->verbosity = v == NULL ? (str){0} : json_str(v);
    return QUIRE_OK;
}

quire_err request_read_documents(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    for (size_t i = 0; v != NULL && i < json_length(v); i++) {
        if (!json_is(json_at(v, i), JSON_KIND_OBJECT)) {
            return request_type_error(f, (int64_t)i, json_at(v, i), "an object", err);
        }
    }
    r->documents = v;
    return QUIRE_OK;
}

/* Renders with a template. The messages were read for the form's first one, and are read
 * again for another. */
static quire_err render_with(const quire_request *r, const chat_template *t, strbuf *out, text_marks *marks,
                             quire_error *err) {
    chat_messages read = {0};
    bool as_read = r->given_messages == NULL || t == r->context.form->template;
    TRY(as_read
            ? QUIRE_OK
            : chat_messages_read(r->given_messages, chat_template_traits(t), "body.messages", &read, err));
    chat_prompt p = {.messages = as_read ? &r->messages : &read,
                     .kwargs = r->template_kwargs,
                     .tools = json_length(r->tools) > 0 ? r->tools : NULL,
                     .documents = r->documents,
                     .reasoning_effort = r->reasoning_effort,
                     .verbosity = r->verbosity,
                     .add_generation_prompt = r->add_generation_prompt,
                     .continue_final_message = r->continue_final_message};
    turn_limit(RENDER_MAX_US);
    quire_err e = chat_render(t, &p, out, marks, err);
    turn_limit(0);
    chat_messages_deinit(&read);
    if (e == QUIRE_TOO_LARGE) { /* too large for the template only: the body was not */
        e = err->code = QUIRE_BAD_REQUEST;
    }
    return e;
}

/* Compiles and renders the template that the request brings. */
static quire_err render_given(const quire_request *r, strbuf *out, text_marks *marks, quire_error *err) {
    chat_template *t;
    quire_error why = {0};
    quire_err e = chat_template_open(r->template_given, &r->context.form->tokens, &t, &why);
    if (e != QUIRE_OK) {
        e = e == QUIRE_NO_MEMORY ? e : QUIRE_BAD_REQUEST;
        return err_set_param(err, e, "chat_template", "chat_template: %s", why.message);
    }
    e = render_with(r, t, out, marks, err);
    chat_template_close(t);
    return e;
}

quire_err request_render(const quire_request *r, strbuf *out, text_marks *marks, quire_error *err) {
    if (is_template_text(r->template_given)) {
        return render_given(r, out, marks, err);
    }
    return render_with(r, chat_form_choose(r->context.form, r->template_given, json_length(r->tools) > 0),
                       out, marks, err);
}

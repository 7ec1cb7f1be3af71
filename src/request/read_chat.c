/* The dialect of chats: the conversation, the template's variables, and stop tokens and
 * strings of the chat form. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "request/request_read.h"

#include "base/turn.h"

static const chat_traits *traits_of(const quire_request *r) {
    const chat_form *form = r->context.form;
    return form != NULL && form->template != NULL ? chat_template_traits(form->template) : NULL;
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
    TRY(chat_messages_read(v, traits_of(r), "body.messages", &messages, err));
    chat_messages_deinit(&r->g.messages);
    r->g.messages = messages;
    r->g.more.names_answers = messages.turn_ids.n > 0;
    r->given_messages = v;
    return QUIRE_OK;
}

/* Checks conversation i. It is read again when it is rendered. */
static quire_err check_conversation(const quire_request *r, size_t i, const json_value *v, quire_error *err) {
    char where[48];
    chat_messages read;
    (void)snprintf(where, sizeof where, "body.messages.%zu", i);
    if (!json_is(v, JSON_KIND_ARRAY) || json_length(v) == 0) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, where,
            "messages[%zu] is not a conversation; it must be an array of at least one message", i);
    }
    TRY(chat_messages_read(v, traits_of(r), where, &read, err));
    chat_messages_deinit(&read);
    return QUIRE_OK;
}

quire_err request_read_conversations(quire_request *r, const field_desc *f, const json_value *v,
                                     quire_error *err) {
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return request_type_error(f, -1, v, "an array of conversations", err);
    }
    size_t n = json_length(v);
    if (n == 0 || n > PARAMS_MAX_CHOICES) {
        return request_range_error(f, err, "messages has %zu conversations; it must have from 1 to %d", n,
                                   PARAMS_MAX_CHOICES);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(check_conversation(r, i, json_at(v, i), err));
    }
    request_prompt *prompts = mem_new(n, sizeof *prompts);
    TRY(mem_check_for(prompts, "conversations", err));
    request_set_prompts(r, prompts, n);
    r->given_messages = v;
    return QUIRE_OK;
}

/* Whether the text is a template rather than the name of one. */
static bool is_template_text(str s) {
    return str_contains(s, str_of("{{")) || str_contains(s, str_of("{%"));
}

quire_err request_read_template(quire_request *r, const field_desc *f, const json_value *v,
                                quire_error *err) {
    str given = v == NULL ? (str){0} : json_str(v);
    if (given.n > 0 && is_template_text(given)) {
        if (!r->context.trusts_templates) {
            return err_set_param(err, QUIRE_BAD_REQUEST, "",
                                 "chat_template is a template's text, which this server accepts only with "
                                 "--trust-request-chat-template");
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
    assert(r != NULL);
    (void)f, (void)err;
    r->g.reasoning_effort = v == NULL ? (str){0} : json_str(v);
    return QUIRE_OK;
}

quire_err request_read_verbosity(quire_request *r, const field_desc *f, const json_value *v,
                                 quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.verbosity = v == NULL ? (str){0} : json_str(v);
    return QUIRE_OK;
}

/* Appends the text of part i of a prediction. */
static quire_err read_predicted_part(const field_desc *f, size_t i, const json_value *part, strbuf *out,
                                     quire_error *err) {
    const json_value *text = json_is(part, JSON_KIND_OBJECT) ? json_get(part, "text") : NULL;
    if (!json_is(text, JSON_KIND_TEXT) || !str_is(json_get_str(part, "type"), "text")) {
        return request_range_error(
            f, err,
            "prediction.content[%zu] is not a text part; it must be {\"type\": \"text\", \"text\": ..}", i);
    }
    return err_set(err, strbuf_add(out, json_str(text).p, json_str(text).n), -1,
                   "out of memory for a request");
}

quire_err request_read_prediction(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    const json_value *content = v != NULL ? json_get(v, "content") : NULL;
    bool is_text = json_is(content, JSON_KIND_TEXT);
    strbuf parts = {0};
    if (v != NULL && !str_is(json_get_str(v, "type"), "content")) {
        return request_range_error(f, err, "prediction.type must be \"content\"");
    }
    if (v != NULL && !is_text && !json_is(content, JSON_KIND_ARRAY)) {
        return request_range_error(f, err, "prediction.content must be a string or an array of text parts");
    }
    for (size_t i = 0; v != NULL && !is_text && i < json_length(content); i++) {
        quire_err e = read_predicted_part(f, i, json_at(content, i), &parts, err);
        if (e != QUIRE_OK) {
            strbuf_deinit(&parts);
            return e;
        }
    }
    strbuf_deinit(&r->prediction);
    r->prediction = parts;
    r->g.prediction = is_text ? json_str(content) : (str){parts.p, parts.n};
    r->g.more.has_prediction = v != NULL;
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

bool request_has_template(const quire_request *r) {
    const chat_form *form = r->context.form;
    return r->template_given.n > 0 && (form == NULL || chat_form_find(form, r->template_given) == NULL);
}

/* Renders with template t. g.messages were read for the form's default template; for any
 * other template, and for a batch, the messages are read again. */
static quire_err render_with(const quire_request *r, int32_t prompt, const chat_template *t, strbuf *out,
                             text_marks *marks, quire_error *err) {
    chat_messages read = {0};
    bool is_batch = dialect_of(&r->g)->is_batch;
    const json_value *given = is_batch ? json_at(r->given_messages, (size_t)prompt) : r->given_messages;
    bool as_read = given == NULL || (!is_batch && t == r->context.form->template);
    if (!as_read) {
        TRY(chat_messages_read(given, chat_template_traits(t), "body.messages", &read, err));
    }
    chat_prompt p = {.messages = as_read ? &r->g.messages : &read,
                     .kwargs = r->template_kwargs,
                     .tools = json_length(r->tools) > 0 ? r->tools : NULL,
                     .documents = r->documents,
                     .reasoning_effort = r->g.reasoning_effort,
                     .verbosity = r->g.verbosity,
                     .add_generation_prompt = r->g.add_generation_prompt,
                     .continue_final_message = r->g.continue_final_message};
    turn_limit(RENDER_MAX_US);
    quire_err e = chat_render(t, &p, out, marks, err);
    turn_limit(0);
    chat_messages_deinit(&read);
    if (e == QUIRE_TOO_LARGE) { /* a limit of the template, not of the body */
        e = err->code = QUIRE_BAD_REQUEST;
    }
    return e;
}

/* Compiles and renders the request's own template. */
static quire_err render_given(const quire_request *r, int32_t prompt, strbuf *out, text_marks *marks,
                              quire_error *err) {
    chat_template *t;
    quire_error why = {0};
    quire_err e = chat_template_open(r->template_given, &r->context.form->tokens, &t, &why);
    if (e != QUIRE_OK) {
        e = e == QUIRE_NO_MEMORY ? e : QUIRE_BAD_REQUEST;
        return err_set_param(err, e, "chat_template", "chat_template: %s", why.message);
    }
    e = render_with(r, prompt, t, out, marks, err);
    chat_template_close(t);
    return e;
}

quire_err request_render(const quire_request *r, int32_t prompt, strbuf *out, text_marks *marks,
                         quire_error *err) {
    assert(err != NULL);
    if (is_template_text(r->template_given)) {
        return render_given(r, prompt, out, marks, err);
    }
    return render_with(r, prompt,
                       chat_form_choose(r->context.form, r->template_given, json_length(r->tools) > 0), out,
                       marks, err);
}

quire_err request_read_template_kwargs(quire_request *r, const field_desc *f, const json_value *v,
                                       quire_error *err) {
    static const char *const taken[] = {"messages", "tools", "documents"};
    for (size_t i = 0; v != NULL && i < sizeof taken / sizeof taken[0]; i++) {
        if (json_has(v, taken[i])) {
            return request_range_error(
                f, err, "chat_template_kwargs may not hold %s; give it as a field of the request", taken[i]);
        }
    }
    r->template_kwargs = v;
    return QUIRE_OK;
}

void request_settle_echo(quire_request *r) {
    assert(r != NULL);
    bool has_messages = json_is(r->given_messages, JSON_KIND_ARRAY) && !dialect_of(&r->g)->is_batch;
    size_t n = has_messages ? json_length(r->given_messages) : 0;
    const json_value *last = r->echoes_message && n > 0 ? json_at(r->given_messages, n - 1) : NULL,
                     *content = last != NULL ? json_get(last, "content") : NULL;
    bool is_shown = json_is(content, JSON_KIND_TEXT) && str_is(json_get_str(last, "role"), "assistant");
    str text = is_shown ? json_str(content) : (str){NULL, 0};
    r->g.more.echo = text.p;
    r->g.more.n_echo = text.n;
}

quire_err request_require_chat(const quire_request *r, quire_error *err) {
    if (!r->context.has_vocabulary) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "this model has no vocabulary, so it cannot chat; use /v1/completions with token ids");
    }
    if (dialect_of(&r->g)->is_batch ? r->g.n_prompts == 0 : r->g.messages.json.n == 0) {
        bool is_prompt = r->g.info.endpoint == QUIRE_OLLAMA_GENERATE;
        return is_prompt ? err_set_param(err, QUIRE_BAD_REQUEST, "prompt", "prompt is missing; give a text")
                         : err_set_param(err, QUIRE_BAD_REQUEST, "body.messages",
                                         "messages is missing; give an array of messages");
    }
    if (r->g.continue_final_message && r->g.add_generation_prompt) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "continue_final_message and add_generation_prompt cannot both be true; set "
                             "add_generation_prompt to false");
    }
    return QUIRE_OK;
}

quire_err request_long_chat(int32_t limit, size_t n, const char *least, quire_error *err) {
    return err_set_param(err, QUIRE_CONTEXT_LENGTH, "messages", REQUEST_TOO_LONG, least, n, (int)limit);
}

/* ---- what ends an answer besides the fields: the start of another turn
 * (chat/chat_form.h) ---- */

static bool has_stop_token(const sampling_params *s, int32_t id) {
    bool has = false;
    for (int32_t i = 0; i < s->n_stop_tokens && !has; i++) {
        has = s->stop_tokens[i] == id;
    }
    return has;
}

void request_end_turns(quire_request *r) {
    assert(r != NULL);
    const chat_form *form = r->context.form;
    sampling_params *s = &r->g.sampling;
    r->g.n_stops = r->n_given_stops;
    if (!dialect_of(&r->g)->is_chat || form == NULL || s->ignore_eos) {
        return;
    }
    for (int32_t i = 0; i < form->n_stops; i++) {
        r->g.stops[r->g.n_stops++] = form->stops[i];
    }
    if (form->end_token >= 0 && form->end_token < r->context.n_vocab && !has_stop_token(s, form->end_token)) {
        /* the array has room for one more than a request may set */
        s->stop_tokens[s->n_stop_tokens++] = form->end_token;
    }
}

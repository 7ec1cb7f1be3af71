/* Checks the conversation and converts it to the form that the chat template needs. Content becomes one text (parts are joined by newlines)
 * or, for templates that iterate over it, a list of text parts. Members other than role and content are unchanged. */
#include <stdio.h>

#include "api/request_read.h"
#include "json/json_out.h"

enum { MAX_ROLES = 64, MAX_ROLE = 64 /* bytes */ };

/* Sets the error at messages[i].MEMBER; param is body.messages.I.MEMBER. */
static quire_err message_error(size_t i, const char *member, const json_value *v, const char *what, quire_error *err) {
    char param[64], brief[JSON_BRIEF_BYTES];
    snprintf(param, sizeof param, "body.messages.%zu%s%s", i, *member ? "." : "", member);
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "messages[%zu]%s%s is %s; it must be %s", i, *member ? "." : "", member,
                         json_brief(v, brief), what);
}

/* The text of a part: a string, or an object of a text type. The part owns *text. */
static quire_err part_text(size_t i, size_t j, const json_value *part, const json_value **text, quire_error *err) {
    char where[40];
    snprintf(where, sizeof where, "content.%zu", j);
    if (json_is(part, JSON_KIND_TEXT)) {
        *text = part;
        return QUIRE_OK;
    }
    if (!json_is(part, JSON_KIND_OBJECT)) {
        return message_error(i, where, part, "a text or an object with a type", err);
    }
    const json_value *type = json_get(part, "type");
    if (!json_is(type, JSON_KIND_TEXT)) {
        snprintf(where, sizeof where, "content.%zu.type", j);
        return message_error(i, where, type, "a string", err);
    }
    const char *name = json_str(type).p;
    if (strcmp(name, "text") != 0 && strcmp(name, "input_text") != 0 && strcmp(name, "output_text") != 0) {
        char brief[JSON_BRIEF_BYTES];
        return err_set_param(err, QUIRE_BAD_REQUEST, "", "messages[%zu].content[%zu] is of type %s; only text is taken", i, j,
                             json_brief(type, brief));
    }
    *text = json_get(part, "text");
    if (!json_is(*text, JSON_KIND_TEXT)) {
        snprintf(where, sizeof where, "content.%zu.text", j);
        return message_error(i, where, *text, "a string", err);
    }
    return QUIRE_OK;
}

/* ---- writing ---- */

/* The output for a conversation: JSON, and the offset at which its last text ends, inside its quotes (0: there is none). */
typedef struct conversation {
    strbuf text, roles;
    json_out o; /* into text */
    size_t last_end;
} conversation;

static void write_text(conversation *c, str text) {
    json_text(&c->o, text.p, text.n);
    c->last_end = c->text.n > 0 ? c->text.n - 1 : 0;
}

/* Writes {"type": "text", "text": TEXT} for each part. */
static quire_err write_parts(conversation *c, size_t i, const json_value *content, bool list, quire_error *err) {
    size_t n = list ? json_length(content) : content != NULL;
    json_begin(&c->o, '[');
    for (size_t j = 0; j < n; j++) {
        const json_value *text = content;
        TRY(list ? part_text(i, j, json_at(content, j), &text, err) : QUIRE_OK);
        json_begin(json_item(&c->o), '{');
        json_cstr(json_name(&c->o, "type"), "text");
        json_name(&c->o, "text");
        write_text(c, json_str(text));
        json_end(&c->o, '}');
    }
    json_end(&c->o, ']');
    return QUIRE_OK;
}

/* Joins the parts' texts with newlines. */
static quire_err join_parts(strbuf *joined, size_t i, const json_value *content, quire_error *err) {
    for (size_t j = 0; j < json_length(content); j++) {
        const json_value *text;
        TRY(part_text(i, j, json_at(content, j), &text, err));
        TRY(j > 0 ? strbuf_add_char(joined, '\n') : QUIRE_OK);
        TRY(strbuf_add(joined, json_str(text).p, json_str(text).n));
    }
    return QUIRE_OK;
}

/* Writes content (NULL: none) as a list of text parts or as one text, by the template's form. */
static quire_err write_content(conversation *c, size_t i, const json_value *content, chat_content form, quire_error *err) {
    bool list = json_is(content, JSON_KIND_ARRAY);
    c->last_end = 0;
    if (!list && content != NULL && !json_is(content, JSON_KIND_TEXT)) {
        return message_error(i, "content", content, "a string or an array of text parts", err);
    }
    if (form == CHAT_CONTENT_PARTS || (form == CHAT_CONTENT_BOTH && list)) {
        return write_parts(c, i, content, list, err);
    }
    strbuf joined = {0};
    quire_err e = list ? join_parts(&joined, i, content, err) : QUIRE_OK;
    if (e == QUIRE_OK) {
        write_text(c, list ? (str){joined.n > 0 ? joined.p : "", joined.n} : json_str(content));
    }
    strbuf_deinit(&joined);
    return e;
}

/* Adds a role to those that a template may put inside its own special tokens, <|ROLE|>. */
static quire_err add_role(conversation *c, str role) {
    bool is_name = role.n > 0 && role.n <= MAX_ROLE && memchr(role.p, '\0', role.n) == NULL;
    size_t n_roles = 0;
    for (size_t at = 0; at < c->roles.n; at += strlen(c->roles.p + at) + 1) {
        is_name = is_name && !str_is(role, c->roles.p + at);
        n_roles++;
    }
    if (!is_name || n_roles >= MAX_ROLES) {
        return QUIRE_OK;
    }
    TRY(strbuf_add(&c->roles, role.p, role.n));
    return strbuf_add_char(&c->roles, '\0');
}

static quire_err write_message(conversation *c, size_t i, const json_value *message, chat_content form, quire_error *err) {
    if (!json_is(message, JSON_KIND_OBJECT)) {
        return message_error(i, "", message, "an object", err);
    }
    const json_value *role = json_get(message, "role");
    if (!json_is(role, JSON_KIND_TEXT)) {
        return message_error(i, "role", role, "a string", err);
    }
    TRY(add_role(c, json_str(role)));
    json_begin(json_item(&c->o), '{');
    for (json_member m = {0}; json_next(message, &m);) {
        if (strcmp(m.name, "content") != 0) {
            json_add(json_name(&c->o, m.name), m.value);
        } else {
            json_name(&c->o, m.name);
            TRY(write_content(c, i, m.value, form, err));
        }
    }
    if (!json_has(message, "content")) {
        json_name(&c->o, "content");
        TRY(write_content(c, i, NULL, form, err));
    }
    json_end(&c->o, '}');
    return c->o.err;
}

/* Adds the roles that templates write by themselves. */
static quire_err add_usual_roles(conversation *c) {
    static const char *const usual[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        TRY(add_role(c, str_of(usual[i])));
    }
    return QUIRE_OK;
}

quire_err request_read_messages(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    if (v == NULL) {
        return request_range_error(f, err, "messages is null; it must be an array of messages");
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return request_type_error(f, -1, v, "an array of messages", err);
    }
    if (json_length(v) == 0) {
        return request_range_error(f, err, "messages is empty; give at least one message");
    }
    conversation c = {0};
    c.o.to = &c.text;
    quire_err e = QUIRE_OK;
    json_begin(&c.o, '[');
    for (size_t i = 0; i < json_length(v) && e == QUIRE_OK; i++) {
        e = write_message(&c, i, json_at(v, i), r->context.content, err);
    }
    json_end(&c.o, ']');
    e = e == QUIRE_OK ? c.o.err : e;
    e = e == QUIRE_OK ? add_usual_roles(&c) : e;
    if (e != QUIRE_OK) {
        strbuf_deinit(&c.text);
        strbuf_deinit(&c.roles);
        return e == QUIRE_BAD_REQUEST ? e : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for messages");
    }
    strbuf_deinit(&r->messages);
    strbuf_deinit(&r->roles);
    r->messages = c.text;
    r->roles = c.roles;
    r->continue_at = c.last_end;
    return QUIRE_OK;
}

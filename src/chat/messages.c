#include "chat/messages.h"

#include <stdio.h>

#include "json/json_out.h"

/* A conversation being read, at message i. */
typedef struct conversation {
    chat_messages m;
    json_out o; /* into m.json */
    chat_content form;
    const char *path;
    size_t i;
    quire_error *err;
} conversation;

/* What is wrong at messages[i].MEMBER; param is PATH.I.MEMBER. */
static quire_err message_error(const conversation *c, const char *member, const json_value *v, const char *what) {
    char param[64], brief[JSON_BRIEF_BYTES];
    const char *dot = *member ? "." : "";
    snprintf(param, sizeof param, "%s.%zu%s%s", c->path, c->i, dot, member);
    return err_set_param(c->err, QUIRE_BAD_REQUEST, param, "messages[%zu]%s%s is %s; it must be %s", c->i, dot, member,
                         json_brief(v, brief), what);
}

/* The text of a part: a string, or an object of a text type. The part owns *text. */
static quire_err part_text(const conversation *c, size_t j, const json_value *part, const json_value **text) {
    char where[40];
    snprintf(where, sizeof where, "content.%zu", j);
    if (json_is(part, JSON_KIND_TEXT)) {
        *text = part;
        return QUIRE_OK;
    }
    if (!json_is(part, JSON_KIND_OBJECT)) {
        return message_error(c, where, part, "a text or an object with a type");
    }
    const json_value *type = json_get(part, "type");
    if (!json_is(type, JSON_KIND_TEXT)) {
        snprintf(where, sizeof where, "content.%zu.type", j);
        return message_error(c, where, type, "a string");
    }
    const char *name = json_str(type).p;
    if (strcmp(name, "text") != 0 && strcmp(name, "input_text") != 0 && strcmp(name, "output_text") != 0) {
        char brief[JSON_BRIEF_BYTES];
        return err_set_param(c->err, QUIRE_BAD_REQUEST, "", "messages[%zu].content[%zu] is of type %s; only text is taken", c->i, j,
                             json_brief(type, brief));
    }
    *text = json_get(part, "text");
    if (!json_is(*text, JSON_KIND_TEXT)) {
        snprintf(where, sizeof where, "content.%zu.text", j);
        return message_error(c, where, *text, "a string");
    }
    return QUIRE_OK;
}

/* ---- writing ---- */

static void write_text(conversation *c, str text) {
    json_text(&c->o, text.p, text.n);
    c->m.last_end = c->m.json.n > 0 ? c->m.json.n - 1 : 0;
}

/* Writes {"type": "text", "text": TEXT} for each part. */
static quire_err write_parts(conversation *c, const json_value *content, bool list) {
    size_t n = list ? json_length(content) : content != NULL;
    json_begin(&c->o, '[');
    for (size_t j = 0; j < n; j++) {
        const json_value *text = content;
        TRY(list ? part_text(c, j, json_at(content, j), &text) : QUIRE_OK);
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
static quire_err join_parts(const conversation *c, const json_value *content, strbuf *joined) {
    for (size_t j = 0; j < json_length(content); j++) {
        const json_value *text;
        TRY(part_text(c, j, json_at(content, j), &text));
        TRY(j > 0 ? strbuf_add_char(joined, '\n') : QUIRE_OK);
        TRY(strbuf_add(joined, json_str(text).p, json_str(text).n));
    }
    return QUIRE_OK;
}

/* Writes content (NULL: none) as a list of text parts or as one text, by the template's form. */
static quire_err write_content(conversation *c, const json_value *content) {
    bool list = json_is(content, JSON_KIND_ARRAY);
    c->m.last_end = 0;
    if (!list && content != NULL && !json_is(content, JSON_KIND_TEXT)) {
        return message_error(c, "content", content, "a string or an array of text parts");
    }
    if (c->form == CHAT_CONTENT_PARTS || (c->form == CHAT_CONTENT_BOTH && list)) {
        return write_parts(c, content, list);
    }
    strbuf joined = {0};
    quire_err e = list ? join_parts(c, content, &joined) : QUIRE_OK;
    if (e == QUIRE_OK) {
        write_text(c, list ? (str){joined.n > 0 ? joined.p : "", joined.n} : json_str(content));
    }
    strbuf_deinit(&joined);
    return e;
}

static quire_err write_message(conversation *c, const json_value *message) {
    if (!json_is(message, JSON_KIND_OBJECT)) {
        return message_error(c, "", message, "an object");
    }
    const json_value *role = json_get(message, "role");
    if (!json_is(role, JSON_KIND_TEXT)) {
        return message_error(c, "role", role, "a string");
    }
    json_begin(json_item(&c->o), '{');
    for (json_member m = {0}; json_next(message, &m);) {
        if (strcmp(m.name, "content") != 0) {
            json_add(json_name(&c->o, m.name), m.value);
        } else {
            json_name(&c->o, m.name);
            TRY(write_content(c, m.value));
        }
    }
    if (!json_has(message, "content")) {
        json_name(&c->o, "content");
        TRY(write_content(c, NULL));
    }
    json_end(&c->o, '}');
    return c->o.err;
}

quire_err chat_messages_read(const json_value *array, chat_content form, const char *path, chat_messages *out, quire_error *err) {
    conversation c = {.form = form, .path = path, .err = err};
    c.o.to = &c.m.json;
    quire_err e = QUIRE_OK;
    *out = (chat_messages){0};
    json_begin(&c.o, '[');
    for (; c.i < json_length(array) && e == QUIRE_OK; c.i++) {
        e = write_message(&c, json_at(array, c.i));
    }
    json_end(&c.o, ']');
    e = e == QUIRE_OK ? c.o.err : e;
    if (e != QUIRE_OK) {
        chat_messages_deinit(&c.m);
        return e == QUIRE_BAD_REQUEST ? e : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for messages");
    }
    *out = c.m;
    return QUIRE_OK;
}

void chat_messages_deinit(chat_messages *m) {
    strbuf_deinit(&m->json);
    *m = (chat_messages){0};
}

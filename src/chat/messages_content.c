/* The content of a message: a text or a list of text parts. */
#include <stdio.h>

#include "chat/messages_read.h"

/* Types of parts and the member that has their text. */
static const struct {
    const char *type, *member;
    bool is_answer; /* of an assistant only */
} part_types[] = {{"text", "text", false},
                  {"input_text", "text", false},
                  {"output_text", "text", false},
                  {"refusal", "refusal", true}};

/* Whether a part has an assistant's reasoning: {"type": "thinking", "thinking": TEXT}, or
 * a list of text parts in place of TEXT. */
static bool is_thought(chat_role role, const json_value *part) {
    return role == CHAT_ASSISTANT && json_is(part, JSON_KIND_OBJECT) &&
           str_is(json_get_str(part, "type"), "thinking");
}

static quire_err add_thought(conversation *c, size_t j, const json_value *thought) {
    char where[64];
    size_t n = json_is(thought, JSON_KIND_ARRAY) ? json_length(thought) : 1;
    TRY(c->thoughts.n > 0 ? strbuf_add_char(&c->thoughts, '\n') : QUIRE_OK);
    for (size_t k = 0; k < n; k++) {
        const json_value *text = json_is(thought, JSON_KIND_ARRAY) ? json_at(thought, k) : thought;
        text = json_is(text, JSON_KIND_OBJECT) ? json_get(text, "text") : text;
        if (!json_is(text, JSON_KIND_TEXT)) {
            snprintf(where, sizeof where, "content.%zu.thinking", j);
            return message_error(c, where, text, "a string or an array of text parts");
        }
        TRY(strbuf_add(&c->thoughts, json_str(text).p, json_str(text).n));
    }
    return QUIRE_OK;
}

quire_err message_read_thoughts(conversation *c, const json_value *content) {
    strbuf_clear(&c->thoughts);
    for (size_t j = 0; json_is(content, JSON_KIND_ARRAY) && j < json_length(content); j++) {
        if (is_thought(CHAT_ASSISTANT, json_at(content, j))) {
            TRY(add_thought(c, j, json_get(json_at(content, j), "thinking")));
        }
    }
    return QUIRE_OK;
}

/* Whether a list has parts beside reasoning. */
static bool has_texts(chat_role role, const json_value *list) {
    for (size_t j = 0; j < json_length(list); j++) {
        if (!is_thought(role, json_at(list, j))) {
            return true;
        }
    }
    return false;
}

/* The text of part j: a string, or an object of a text type. The part owns *text. */
static quire_err messages_content_part_text(const conversation *c, chat_role role, size_t j,
                                            const json_value *part, const json_value **text) {
    char where[48];
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
    for (size_t i = 0; i < sizeof part_types / sizeof *part_types; i++) {
        if (str_is(json_str(type), part_types[i].type) &&
            (!part_types[i].is_answer || role == CHAT_ASSISTANT)) {
            *text = json_get(part, part_types[i].member);
            snprintf(where, sizeof where, "content.%zu.%s", j, part_types[i].member);
            return json_is(*text, JSON_KIND_TEXT) ? QUIRE_OK : message_error(c, where, *text, "a string");
        }
    }
    char brief[JSON_BRIEF_BYTES];
    return err_set_param(c->err, QUIRE_BAD_REQUEST, "",
                         "messages[%zu].content[%zu] is of type %s; only text is taken", c->i, j,
                         json_brief(type, brief));
}

static void write_text(conversation *c, str text) {
    json_text(&c->o, text.p, text.n);
    c->m.last_end = c->m.json.n > 0 ? c->m.json.n - 1 : 0;
}

static void write_reasoning_part(conversation *c, str reasoning) {
    json_begin(json_item(&c->o), '{');
    json_cstr(json_name(&c->o, "type"), "thinking");
    json_text(json_name(&c->o, "thinking"), reasoning.p, reasoning.n);
    json_end(&c->o, '}');
}

/* Writes {"type": "text", "text": TEXT} for each part, after one with the reasoning if
 * there is some. */
static quire_err write_parts(conversation *c, chat_role role, const json_value *content, str reasoning) {
    bool list = json_is(content, JSON_KIND_ARRAY);
    size_t n = list ? json_length(content) : content != NULL;
    json_begin(&c->o, '[');
    if (reasoning.n > 0) {
        write_reasoning_part(c, reasoning);
    }
    for (size_t j = 0; j < n; j++) {
        const json_value *text = content;
        if (list && is_thought(role, json_at(content, j))) {
            continue;
        }
        TRY(list ? messages_content_part_text(c, role, j, json_at(content, j), &text) : QUIRE_OK);
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
static quire_err join_parts(const conversation *c, chat_role role, const json_value *content,
                            strbuf *joined) {
    size_t n = 0;
    for (size_t j = 0; j < json_length(content); j++) {
        const json_value *text;
        if (is_thought(role, json_at(content, j))) {
            continue;
        }
        TRY(messages_content_part_text(c, role, j, json_at(content, j), &text));
        TRY(n++ > 0 ? strbuf_add_char(joined, '\n') : QUIRE_OK);
        TRY(strbuf_add(joined, json_str(text).p, json_str(text).n));
    }
    return QUIRE_OK;
}

/* Whether content says nothing and the template wants null for that. */
static bool is_null(const conversation *c, chat_role role, const json_value *content, bool has_calls) {
    bool is_empty = content == NULL || (json_is(content, JSON_KIND_ARRAY) ? !has_texts(role, content)
                                                                          : json_str(content).n == 0);
    return has_calls && is_empty &&
           (c->traits->no_text == CHAT_NO_TEXT_NULL ||
            (c->traits->no_text == CHAT_NO_TEXT_GIVEN && content == NULL));
}

quire_err message_write_content(conversation *c, chat_role role, const json_value *content,
                                const content_beside *beside) {
    json_name(&c->o, "content");
    c->m.last_end = 0;
    content = content == NULL && role == CHAT_ASSISTANT && json_is(beside->refusal, JSON_KIND_TEXT)
                  ? beside->refusal
                  : content;
    bool list = json_is(content, JSON_KIND_ARRAY);
    if (!list && content != NULL && !json_is(content, JSON_KIND_TEXT)) {
        return message_error(c, "content", content, "a string or an array of text parts");
    }
    if (beside->reasoning.n == 0 && is_null(c, role, content, beside->has_calls)) {
        json_raw(&c->o, "null");
        return QUIRE_OK;
    }
    chat_content form = c->traits->content[role];
    /* no parts are no content: templates look at the first of a list */
    content = list && !has_texts(role, content) ? NULL : content;
    list = list && content != NULL;
    if (form == CHAT_CONTENT_PARTS || (form == CHAT_CONTENT_BOTH && list) || beside->reasoning.n > 0) {
        return write_parts(c, role, content, beside->reasoning);
    }
    strbuf joined = {0};
    quire_err e = list ? join_parts(c, role, content, &joined) : QUIRE_OK;
    if (e == QUIRE_OK) {
        write_text(c, list ? (str){joined.n > 0 ? joined.p : "", joined.n} : json_str(content));
    }
    strbuf_deinit(&joined);
    return e;
}

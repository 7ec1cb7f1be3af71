/* The conversation: checked, and brought into the form that the chat template wants. Content becomes one text (parts are joined by
 * newlines), or, for templates that iterate over it, a list of text parts. Members other than role and content pass as they are. */
#include <stdio.h>

#include "api/request_read.h"
#include "base/mem.h"

/* What is wrong at messages[i].MEMBER; param is body.messages.I.MEMBER. */
static quire_err message_error(size_t i, const char *member, json_object *v, const char *what, quire_error *err) {
    char param[64], brief[JSON_BRIEF_BYTES];
    snprintf(param, sizeof param, "body.messages.%zu%s%s", i, *member ? "." : "", member);
    return err_set_param(err, QUIRE_BAD_REQUEST, param, "messages[%zu]%s%s is %s; it must be %s", i, *member ? "." : "", member,
                         json_brief(v, brief), what);
}

/* The text of a part: a string, or an object of a text type. *text is borrowed from the part. */
static quire_err part_text(size_t i, size_t j, json_object *part, json_object **text, quire_error *err) {
    char where[40];
    snprintf(where, sizeof where, "content.%zu", j);
    if (json_object_is_type(part, json_type_string)) {
        *text = part;
        return QUIRE_OK;
    }
    if (!json_object_is_type(part, json_type_object)) {
        return message_error(i, where, part, "a text or an object with a type", err);
    }
    json_object *type = json_object_object_get(part, "type");
    if (!json_object_is_type(type, json_type_string)) {
        snprintf(where, sizeof where, "content.%zu.type", j);
        return message_error(i, where, type, "a string", err);
    }
    const char *name = json_object_get_string(type);
    if (strcmp(name, "text") != 0 && strcmp(name, "input_text") != 0 && strcmp(name, "output_text") != 0) {
        char brief[JSON_BRIEF_BYTES];
        return err_set_param(err, QUIRE_BAD_REQUEST, "", "messages[%zu].content[%zu] is of type %s; only text is taken", i, j,
                             json_brief(type, brief));
    }
    *text = json_object_object_get(part, "text");
    if (!json_object_is_type(*text, json_type_string)) {
        snprintf(where, sizeof where, "content.%zu.text", j);
        return message_error(i, where, *text, "a string", err);
    }
    return QUIRE_OK;
}

static quire_err no_memory(quire_error *err) {
    return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for messages");
}

/* Appends {"type": "text", "text": TEXT} to parts. */
static bool add_part(json_object *parts, json_object *text) {
    json_object *part = json_object_new_object();
    if (part == NULL || json_object_object_add(part, "type", json_object_new_string("text")) != 0 ||
        json_object_object_add(part, "text", json_object_get(text)) != 0 || json_object_array_add(parts, part) != 0) {
        json_object_put(part);
        return false;
    }
    return true;
}

/* content (NULL: none) as a list of text parts or as one text, whichever form the template takes: a new object in *out. */
static quire_err convert_content(size_t i, json_object *content, chat_content form, json_object **out, quire_error *err) {
    bool list = json_object_is_type(content, json_type_array);
    bool as_parts = form == CHAT_CONTENT_PARTS || (form == CHAT_CONTENT_BOTH && list);
    if (!list && content != NULL && !json_object_is_type(content, json_type_string)) {
        return message_error(i, "content", content, "a string or an array of text parts", err);
    }
    size_t n = list ? json_object_array_length(content) : content != NULL;
    json_object *parts = json_object_new_array();
    strbuf joined = {0};
    quire_err e = parts == NULL ? no_memory(err) : QUIRE_OK;
    for (size_t j = 0; j < n && e == QUIRE_OK; j++) {
        json_object *text = content;
        e = list ? part_text(i, j, json_object_array_get_idx(content, j), &text, err) : QUIRE_OK;
        if (e == QUIRE_OK && as_parts) {
            e = add_part(parts, text) ? QUIRE_OK : no_memory(err);
        } else if (e == QUIRE_OK) {
            e = j > 0 ? strbuf_add_char(&joined, '\n') : QUIRE_OK;
            e = e == QUIRE_OK ? strbuf_add(&joined, json_object_get_string(text), (size_t)json_object_get_string_len(text)) : e;
        }
    }
    if (e == QUIRE_OK && !as_parts) {
        json_object_put(parts);
        parts = json_object_new_string_len(joined.n > 0 ? joined.p : "", (int)joined.n);
        e = parts == NULL ? no_memory(err) : QUIRE_OK;
    }
    strbuf_deinit(&joined);
    if (e != QUIRE_OK) {
        json_object_put(parts);
        return e;
    }
    *out = parts;
    return QUIRE_OK;
}

static quire_err convert_message(size_t i, json_object *message, chat_content form, quire_error *err) {
    if (!json_object_is_type(message, json_type_object)) {
        return message_error(i, "", message, "an object", err);
    }
    json_object *role = json_object_object_get(message, "role"), *converted = NULL;
    if (!json_object_is_type(role, json_type_string)) {
        return message_error(i, "role", role, "a string", err);
    }
    TRY(convert_content(i, json_object_object_get(message, "content"), form, &converted, err));
    if (json_object_object_add(message, "content", converted) != 0) {
        json_object_put(converted);
        return no_memory(err);
    }
    return QUIRE_OK;
}

quire_err request_read_messages(quire_request *r, const field_desc *f, json_object *v, quire_error *err) {
    if (v == NULL) {
        return request_range_error(f, err, "messages is null; it must be an array of messages");
    }
    if (!json_object_is_type(v, json_type_array)) {
        return request_type_error(f, -1, v, "an array of messages", err);
    }
    size_t n_messages = json_object_array_length(v), n = 0;
    if (n_messages == 0) {
        return request_range_error(f, err, "messages is empty; give at least one message");
    }
    for (size_t i = 0; i < n_messages; i++) {
        TRY(convert_message(i, json_object_array_get_idx(v, i), r->context.content, err));
    }
    const char *text = json_object_to_json_string_length(v, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n);
    char *copy = text == NULL ? NULL : mem_dup(text, n);
    if (copy == NULL) {
        return no_memory(err);
    }
    mem_free(r->messages);
    r->messages = copy;
    r->n_messages = n;
    return QUIRE_OK;
}

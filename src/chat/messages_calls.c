/* The calls of a conversation's messages, and the results that answer them. */
#include <stdio.h>

#include "chat/messages_read.h"

/* Bounds of arguments that are parsed: those of a request, and room in the depth of a
 * template's variables for what is around them. */
static const json_limits argument_limits = {.max_depth = 100,
                                            .max_values = (size_t)1 << 21,
                                            .max_containers = (size_t)1 << 17,
                                            .max_names = (size_t)1 << 18,
                                            .names = JSON_NAMES_LAST,
                                            .takes_nul = true};

/* ---- arguments ---- */

#define MAX_DIGITS 4300 /* of an integer that a template computes with, as in Python */

/* Whether valid JSON has an integer of more digits. */
static bool has_huge_integer(str text) {
    bool in_string = false;
    size_t n_digits = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '"') {
            in_string = !in_string;
        }
        i += in_string && c == '\\' ? 1 : 0;
        bool is_digit = !in_string && c >= '0' && c <= '9';
        bool is_real = c == '.' || c == 'e' || c == 'E';
        if (!is_digit && !is_real && n_digits > MAX_DIGITS) {
            return true;
        }
        n_digits = is_digit ? n_digits + 1 : 0;
    }
    return false;
}

/* Whether a text is a JSON object that a template can be given. Errors: of a turn, and of
 * memory. */
static quire_err check_object(str text, bool *is) {
    json_fault fault;
    json_counts counts = {0};
    size_t at = 0;
    while (at < text.n && strchr(" \t\r\n", text.p[at]) != NULL) {
        at++;
    }
    quire_err e = at < text.n && text.p[at] == '{' ? json_check(text, &argument_limits, &counts, &fault)
                                                   : QUIRE_BAD_FILE;
    *is = e == QUIRE_OK && (counts.n_wide == 0 || !has_huge_integer(text));
    return e == QUIRE_BAD_FILE || e == QUIRE_TOO_LARGE ? QUIRE_OK : e;
}

/* Whether a text says that there are no arguments: nothing but space, or null. */
static bool is_nothing(str text) {
    while (text.n > 0 && strchr(" \t\r\n", text.p[0]) != NULL) {
        text.p++, text.n--;
    }
    while (text.n > 0 && strchr(" \t\r\n", text.p[text.n - 1]) != NULL) {
        text.n--;
    }
    return text.n == 0 || str_is(text, "null");
}

/* Writes a value as JSON in a JSON string, with spaces as Python's json.dumps has
 * them. */
static quire_err write_as_text(json_out *o, const json_value *v) {
    strbuf text = {0};
    json_out inner = {.to = &text, .is_spaced = true};
    json_add(&inner, v);
    if (inner.err == QUIRE_OK) {
        json_text(o, text.p, text.n);
    }
    strbuf_deinit(&text);
    return inner.err;
}

/* v: as the client has them; NULL: null or absent. */
static quire_err write_arguments(conversation *c, const json_value *v) {
    str text = json_str(v);
    bool is_text = json_is(v, JSON_KIND_TEXT), is_object = json_is(v, JSON_KIND_OBJECT);
    json_name(&c->o, "arguments");
    TRY(is_text ? check_object(text, &is_object) : QUIRE_OK);
    bool is_none = v == NULL || (is_text && is_nothing(text));
    if (is_none || (!is_object && !c->traits->text_arguments && !c->traits->loose_arguments)) {
        json_raw(&c->o, c->traits->text_arguments ? "\"{}\"" : "{}");
    } else if (c->traits->text_arguments || !is_object) {
        TRY(is_text ? QUIRE_OK : write_as_text(&c->o, v));
        if (is_text) {
            json_text(&c->o, text.p, text.n);
        }
    } else if (is_text) {
        json_raw(&c->o, text.p); /* with its own digits and order */
    } else {
        json_add(&c->o, v);
    }
    return c->o.err;
}

/* ---- ids ---- */

#define SHORT_ID 9 /* letters and digits */

static bool is_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Writes an id: where the template wants short ones, its last letters and digits, with
 * zeros before them if they are too few. */
static void write_id(conversation *c, const char *name, str id) {
    char brief[SHORT_ID];
    size_t n = SHORT_ID;
    if (c->traits->short_ids) {
        for (size_t i = id.n; i-- > 0 && n > 0;) {
            if (is_alphanumeric(id.p[i])) {
                brief[--n] = id.p[i];
            }
        }
        memset(brief, '0', n);
        id = (str){brief, SHORT_ID};
    }
    json_text(json_name(&c->o, name), id.p, id.n);
}

/* Writes the id of a call whose client gave none: by its message and its place in it. */
static void write_made_id(conversation *c, const char *name, size_t message, size_t j) {
    char id[SHORT_ID + 1];
    snprintf(id, sizeof id, "c%04zu%04zu", message % 10000, j % 10000);
    write_id(c, name, str_of(id));
}

/* ---- calls ---- */

/* A function of a call, or a call that has no function of its own: name and arguments. */
static quire_err write_function_members(conversation *c, const json_value *function) {
    for (json_member m = {0}; json_next(function, &m);) {
        if (strcmp(m.name, "arguments") == 0) {
            TRY(write_arguments(c, m.value));
        } else {
            json_add(json_name(&c->o, m.name), m.value);
        }
    }
    return json_has(function, "arguments") ? QUIRE_OK : write_arguments(c, NULL);
}

static quire_err write_function(conversation *c, const json_value *function) {
    json_begin(json_name(&c->o, "function"), '{');
    TRY(write_function_members(c, function));
    json_end(&c->o, '}');
    return QUIRE_OK;
}

/* A call of a custom tool is one of a function with a string, as the model is shown that
 * tool. */
static quire_err write_custom(conversation *c, const json_value *custom) {
    strbuf arguments = {0};
    json_out inner = {.to = &arguments, .is_spaced = true};
    str input = json_get_str(custom, "input");
    json_begin(&inner, '{');
    json_text(json_name(&inner, "input"), input.p, input.n);
    json_end(&inner, '}');
    if (inner.err == QUIRE_OK) {
        json_begin(json_name(&c->o, "function"), '{');
        json_add(json_name(&c->o, "name"), json_get(custom, "name"));
        json_name(&c->o, "arguments");
        if (c->traits->text_arguments) {
            json_text(&c->o, arguments.p, arguments.n);
        } else {
            json_raw(&c->o, arguments.p);
        }
        json_end(&c->o, '}');
    }
    strbuf_deinit(&arguments);
    return inner.err;
}

static quire_err write_call_members(conversation *c, size_t j, const json_value *call) {
    char where[48];
    for (json_member m = {0}; json_next(call, &m);) {
        if (strcmp(m.name, "id") == 0 && json_is(m.value, JSON_KIND_TEXT)) {
            str id = json_str(m.value);
            write_id(c, "id", id);
            if (j == 0 && id.n >= CHAT_CALL_ID_BYTES) {
                TRY(strbuf_add(&c->m.call_ids, id.p + id.n - CHAT_CALL_ID_BYTES, CHAT_CALL_ID_BYTES));
            }
        } else if (strcmp(m.name, "custom") == 0 && json_is(m.value, JSON_KIND_OBJECT)) {
            TRY(write_custom(c, m.value));
        } else if (strcmp(m.name, "type") == 0 && json_is(json_get(call, "custom"), JSON_KIND_OBJECT)) {
            json_cstr(json_name(&c->o, "type"), "function");
        } else if (strcmp(m.name, "function") == 0 && json_is(m.value, JSON_KIND_OBJECT)) {
            TRY(write_function(c, m.value));
        } else if (strcmp(m.name, "function") == 0) {
            snprintf(where, sizeof where, "tool_calls.%zu.function", j);
            return message_error(c, where, m.value, "an object");
        } else if (strcmp(m.name, "arguments") == 0) {
            TRY(write_arguments(c, m.value));
        } else if (m.value != NULL) {
            json_add(json_name(&c->o, m.name), m.value);
        }
    }
    return QUIRE_OK;
}

static quire_err messages_calls_write_call(conversation *c, size_t j, const json_value *call) {
    char where[48];
    if (!json_is(call, JSON_KIND_OBJECT)) {
        snprintf(where, sizeof where, "tool_calls.%zu", j);
        return message_error(c, where, call, "an object");
    }
    json_begin(json_item(&c->o), '{');
    TRY(write_call_members(c, j, call));
    if (!json_is(json_get(call, "id"), JSON_KIND_TEXT) && c->traits->needs_ids) {
        write_made_id(c, "id", c->i, j);
    }
    if (json_has(call, "function") && json_get(call, "type") == NULL) {
        json_cstr(json_name(&c->o, "type"), "function");
    }
    json_end(&c->o, '}');
    return QUIRE_OK;
}

const json_value *message_calls(const json_value *message) {
    const json_value *calls = json_get(message, "tool_calls");
    return json_length(calls) > 0 ? calls : json_get(message, "function_call");
}

/* The one call of a member function_call. */
static quire_err write_old_call(conversation *c, const json_value *function) {
    json_begin(json_item(&c->o), '{');
    write_made_id(c, "id", c->i, 0);
    json_cstr(json_name(&c->o, "type"), "function");
    TRY(write_function(c, function));
    json_end(&c->o, '}');
    return QUIRE_OK;
}

quire_err message_write_calls(conversation *c, const json_value *calls, const char *name,
                              const json_value *v) {
    bool is_old = strcmp(name, "function_call") == 0;
    if (!json_is(v, is_old ? JSON_KIND_OBJECT : JSON_KIND_ARRAY)) {
        return message_error(c, name, v, is_old ? "an object" : "an array of calls");
    }
    if (v != calls) {
        return QUIRE_OK;
    }
    c->calls = calls;
    c->calls_at = c->i;
    c->n_results = 0;
    json_begin(json_name(&c->o, "tool_calls"), '[');
    TRY(is_old ? write_old_call(c, v) : QUIRE_OK);
    for (size_t j = 0; j < json_length(v) && !is_old; j++) {
        TRY(messages_calls_write_call(c, j, json_at(v, j)));
    }
    json_end(&c->o, ']');
    return c->o.err;
}

/* ---- results ---- */

quire_err message_write_result_id(conversation *c, const json_value *message) {
    const json_value *given = json_get(message, "tool_call_id");
    /* of the call at the same place */
    const json_value *call_id = json_get(json_at(c->calls, c->n_results), "id");
    bool answers_old = json_is(c->calls, JSON_KIND_OBJECT);
    if (json_is(given, JSON_KIND_TEXT)) {
        write_id(c, "tool_call_id", json_str(given));
    } else if (given != NULL) {
        json_add(json_name(&c->o, "tool_call_id"), given);
    } else if (json_is(call_id, JSON_KIND_TEXT)) {
        write_id(c, "tool_call_id", json_str(call_id));
    } else if (c->traits->needs_ids || answers_old) {
        write_made_id(c, "tool_call_id", c->calls_at, c->n_results);
    }
    c->n_results++;
    return c->o.err;
}

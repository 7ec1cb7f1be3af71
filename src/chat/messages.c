#include "chat/messages.h"

#include <stdio.h>

#include "json/json_out.h"

/* A conversation being read: messages before i are written, message i is in progress. */
typedef struct conversation {
    chat_messages m;
    json_out o; /* writes to m.json */
    const chat_traits *traits;
    const char *path;
    size_t i;
    quire_error *err;
    const json_value *calls; /* calls of the last message that has any; NULL: none so far */
    size_t calls_at;         /* index of that message */
    size_t n_results;        /* number of results since that message */
    strbuf thoughts;         /* text of the reasoning parts of message i */
} conversation;

/* The context in which a message's content is read. */
typedef struct content_beside {
    const json_value *refusal; /* text that replaces an absent content; NULL: none */
    str reasoning;             /* reasoning to write as the first part; empty: none */
    bool has_calls;
} content_beside;

/* Reports that messages[i].MEMBER has the value v but must be `what`. Returns
 * QUIRE_BAD_REQUEST; param is PATH.I.MEMBER. */
static quire_err message_error(const conversation *c, const char *member, const json_value *v,
                               const char *what) {
    char param[64], brief[JSON_BRIEF_BYTES];
    const char *dot = *member ? "." : "";
    snprintf(param, sizeof param, "%s.%zu%s%s", c->path, c->i, dot, member);
    return err_set_param(c->err, QUIRE_BAD_REQUEST, param, "messages[%zu]%s%s is %s; it must be %s", c->i,
                         dot, member, json_brief(v, brief), what);
}

/* ---- contents: a text, or a list of text parts ---- */

/* The types of parts, and the member that has a part's text. */
static const struct {
    const char *type, *member;
    bool is_answer; /* allowed only in an assistant's message */
} part_types[] = {{"text", "text", false},
                  {"input_text", "text", false},
                  {"output_text", "text", false},
                  {"refusal", "refusal", true}};

/* Whether a part is an assistant's reasoning: {"type": "thinking", "thinking": TEXT},
 * where TEXT may be a list of text parts. */
static bool is_thought(chat_role role, const json_value *part) {
    return role == CHAT_ASSISTANT && json_is(part, JSON_KIND_OBJECT) &&
           str_is(json_get_str(part, "type"), "thinking");
}

static quire_err add_thought(conversation *c, size_t j, const json_value *thought) {
    char where[64];
    size_t n = json_is(thought, JSON_KIND_ARRAY) ? json_length(thought) : 1;
    if (c->thoughts.n > 0) {
        TRY(strbuf_add_char(&c->thoughts, '\n'));
    }
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

/* Sets c->thoughts to the text of the reasoning parts. QUIRE_BAD_REQUEST: not text. */
static quire_err message_read_thoughts(conversation *c, const json_value *content) {
    strbuf_clear(&c->thoughts);
    for (size_t j = 0; json_is(content, JSON_KIND_ARRAY) && j < json_length(content); j++) {
        if (is_thought(CHAT_ASSISTANT, json_at(content, j))) {
            TRY(add_thought(c, j, json_get(json_at(content, j), "thinking")));
        }
    }
    return QUIRE_OK;
}

/* Whether a list has a part that is not reasoning. */
static bool has_texts(chat_role role, const json_value *list) {
    for (size_t j = 0; j < json_length(list); j++) {
        if (!is_thought(role, json_at(list, j))) {
            return true;
        }
    }
    return false;
}

/* Gets the text, owned by the part, of part j: a string or an object of a text type. */
static quire_err messages_content_part_text(const conversation *c, chat_role role, size_t j,
                                            const json_value *part, const json_value **text) {
    char where[48];
    snprintf(where, sizeof where, "content.%zu", j);
    if (json_is(part, JSON_KIND_TEXT)) {
        *text = part;
        return QUIRE_OK;
    }
    if (!json_is(part, JSON_KIND_OBJECT)) {
        return message_error(c, where, part, "a string or an object with a type");
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
                         "messages[%zu].content[%zu] is of type %s; this server takes only text", c->i, j,
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

/* Writes the reasoning, if any, and {"type": "text", "text": TEXT} for each part. */
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
        if (list) {
            TRY(messages_content_part_text(c, role, j, json_at(content, j), &text));
        }
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
        if (n++ > 0) {
            TRY(strbuf_add_char(joined, '\n'));
        }
        TRY(strbuf_add(joined, json_str(text).p, json_str(text).n));
    }
    return QUIRE_OK;
}

/* Whether content is empty and must be written as null. */
static bool is_null(const conversation *c, chat_role role, const json_value *content, bool has_calls) {
    bool is_empty = content == NULL || (json_is(content, JSON_KIND_ARRAY) ? !has_texts(role, content)
                                                                          : json_str(content).n == 0);
    return has_calls && is_empty &&
           (c->traits->no_text == CHAT_NO_TEXT_NULL ||
            (c->traits->no_text == CHAT_NO_TEXT_GIVEN && content == NULL));
}

/* Writes the member `content` in the form that the template expects of the role, without
 * reasoning parts. content NULL: absent or null. QUIRE_BAD_REQUEST: not text. */
static quire_err message_write_content(conversation *c, chat_role role, const json_value *content,
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
    /* an empty list is written as no content, since templates read its first item */
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

/* ---- the calls of messages, and the results that answer them ---- */

/* Limits for parsing arguments: those of a request, less the depth of what encloses
 * arguments in a template's variables. */
static const json_limits argument_limits = {.max_depth = 100,
                                            .max_values = (size_t)1 << 21,
                                            .max_containers = (size_t)1 << 17,
                                            .max_names = (size_t)1 << 18,
                                            .names = JSON_NAMES_LAST,
                                            .takes_nul = true};

/* ---- arguments ---- */

#define MAX_DIGITS 4300 /* most digits of an integer in a template, as in Python */

/* Whether valid JSON has an integer of more than MAX_DIGITS digits. */
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

/* Whether a text is a JSON object for a template. QUIRE_CANCELLED, QUIRE_NO_MEMORY. */
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

/* Whether an arguments text is empty: white space or null. */
static bool is_nothing(str text) {
    while (text.n > 0 && strchr(" \t\r\n", text.p[0]) != NULL) {
        text.p++, text.n--;
    }
    while (text.n > 0 && strchr(" \t\r\n", text.p[text.n - 1]) != NULL) {
        text.n--;
    }
    return text.n == 0 || str_is(text, "null");
}

/* Writes a value as JSON, spaced as by Python's json.dumps, in a JSON string. */
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

/* Writes a call's arguments for the template. v: the client's; NULL: null or absent. */
static quire_err write_arguments(conversation *c, const json_value *v) {
    str text = json_str(v);
    bool is_text = json_is(v, JSON_KIND_TEXT), is_object = json_is(v, JSON_KIND_OBJECT);
    json_name(&c->o, "arguments");
    if (is_text) {
        TRY(check_object(text, &is_object));
    }
    bool is_none = v == NULL || (is_text && is_nothing(text));
    if (is_none || (!is_object && !c->traits->text_arguments && !c->traits->loose_arguments)) {
        json_raw(&c->o, c->traits->text_arguments ? "\"{}\"" : "{}");
    } else if (c->traits->text_arguments || !is_object) {
        if (!is_text) {
            TRY(write_as_text(&c->o, v));
        }
        if (is_text) {
            json_text(&c->o, text.p, text.n);
        }
    } else if (is_text) {
        json_raw(&c->o, text.p); /* copies the text, to keep its digits and the order of members */
    } else {
        json_add(&c->o, v);
    }
    return c->o.err;
}

/* ---- ids ---- */

#define SHORT_ID 9 /* length of a shortened id */

static bool is_alphanumeric(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Appends the end of the id of the answer from which message i was made to turn_ids. */
static quire_err note_turn(conversation *c, str id) {
    return id.n < CHAT_CALL_ID_BYTES
               ? QUIRE_OK
               : strbuf_add(&c->m.turn_ids, id.p + id.n - CHAT_CALL_ID_BYTES, CHAT_CALL_ID_BYTES);
}

/* Writes an id or, if the template needs short ones, its last SHORT_ID letters and
 * digits, padded with zeros in front. */
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

/* Writes an id for a call without one, from the indices of its message and itself. */
static void write_made_id(conversation *c, const char *name, size_t message, size_t j) {
    char id[SHORT_ID + 1];
    snprintf(id, sizeof id, "c%04zu%04zu", message % 10000, j % 10000);
    write_id(c, name, str_of(id));
}

/* ---- calls ---- */

/* Writes the members of a call's function, with its arguments as the template needs. */
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

/* Writes a call of a custom tool as a call of a function with a string argument, as which
 * the model sees the tool. */
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
            if (j == 0) {
                TRY(note_turn(c, id));
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

/* Returns the calls of an assistant's message: its tool_calls if it has any, else its
 * function_call; NULL: it has none. */
static const json_value *message_calls(const json_value *message) {
    const json_value *calls = json_get(message, "tool_calls");
    return json_length(calls) > 0 ? calls : json_get(message, "function_call");
}

/* Writes the call of a member function_call. */
static quire_err write_old_call(conversation *c, const json_value *function) {
    json_begin(json_item(&c->o), '{');
    write_made_id(c, "id", c->i, 0);
    json_cstr(json_name(&c->o, "type"), "function");
    TRY(write_function(c, function));
    json_end(&c->o, '}');
    return QUIRE_OK;
}

/* Writes the member tool_calls if `calls` is v, the value of member `name`; else nothing.
 * QUIRE_BAD_REQUEST: v is no list of objects or, for function_call, no object. */
static quire_err message_write_calls(conversation *c, const json_value *calls, const char *name,
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
    if (is_old) {
        TRY(write_old_call(c, v));
    }
    for (size_t j = 0; j < json_length(v) && !is_old; j++) {
        TRY(messages_calls_write_call(c, j, json_at(v, j)));
    }
    json_end(&c->o, ']');
    return c->o.err;
}

/* ---- results ---- */

/* Writes a result's member tool_call_id: the client's or, without one, the id of the call
 * at the same index, made up if the template needs it. */
static quire_err message_write_result_id(conversation *c, const json_value *message) {
    const json_value *given = json_get(message, "tool_call_id");
    /* id of the call at the same index as the result */
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

/* ---- roles ---- */

typedef struct role_name {
    const char *name;
    chat_role is;
} role_name;

static const role_name roles[] = {{"system", CHAT_SYSTEM},       {"developer", CHAT_SYSTEM},
                                  {"assistant", CHAT_ASSISTANT}, {"model", CHAT_ASSISTANT},
                                  {"tool", CHAT_TOOL},           {"function", CHAT_TOOL}};

static chat_role role_of(str name) {
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (str_is(name, roles[i].name)) {
            return roles[i].is;
        }
    }
    return CHAT_USER;
}

/* Returns the template's name of a role. */
static str role_written(const chat_traits *traits, str name) {
    return !traits->developer && str_is(name, "developer") ? str_of("system")
           : !traits->function && str_is(name, "function") ? str_of("tool")
                                                           : name;
}

/* ---- reasoning ---- */

static const char *const reasoning_names[] = {"reasoning_content", "reasoning", "thinking"};

static bool names_reasoning(const char *name) {
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++) {
        if (strcmp(name, reasoning_names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Gets a message's reasoning: from the template's own member, else from the first of
 * reasoning_names that has text, else from the parts of the content. */
static quire_err read_reasoning(conversation *c, const json_value *message, str *reasoning) {
    str found = c->traits->reasoning != NULL ? json_get_str(message, c->traits->reasoning) : (str){0};
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names && found.n == 0; i++) {
        found = json_get_str(message, reasoning_names[i]);
    }
    TRY(message_read_thoughts(c, json_get(message, "content")));
    *reasoning = found.n > 0 || c->thoughts.n == 0 ? found : (str){c->thoughts.p, c->thoughts.n};
    return QUIRE_OK;
}

/* ---- messages ---- */

/* A message being read, with what its other members say. */
typedef struct message {
    const json_value *v;
    const json_value *calls; /* result of message_calls */
    chat_role role;
    str reasoning;     /* an assistant's reasoning, from whichever member has it */
    bool has_reasoned; /* the reasoning was written */
} message;

/* Handles a member that may have the reasoning: writes the reasoning once, under the
 * template's name; if that is unknown, writes the member unchanged. */
static quire_err write_reasoning(conversation *c, message *m, const char *name, const json_value *v) {
    if (c->traits->reasoning_part && m->reasoning.n > 0) {
        return QUIRE_OK; /* the content has the reasoning as a part */
    }
    if (c->traits->reasoning == NULL || m->reasoning.n == 0) {
        json_add(json_name(&c->o, name), v);
        m->has_reasoned = m->has_reasoned || strcmp(name, reasoning_names[0]) == 0;
    } else if (!m->has_reasoned) {
        json_text(json_name(&c->o, c->traits->reasoning), m->reasoning.p, m->reasoning.n);
        m->has_reasoned = true;
    }
    return QUIRE_OK;
}

static quire_err write_member(conversation *c, message *m, const char *name, const json_value *v) {
    if (strcmp(name, "content") == 0) {
        content_beside beside = {.refusal = json_get(m->v, "refusal"), .has_calls = m->calls != NULL};
        beside.reasoning = c->traits->reasoning_part ? m->reasoning : (str){"", 0};
        return message_write_content(c, m->role, v, &beside);
    }
    if (strcmp(name, "role") == 0) {
        str role = role_written(c->traits, json_str(v));
        json_text(json_name(&c->o, name), role.p, role.n);
        return QUIRE_OK;
    }
    if (v == NULL || (m->role == CHAT_TOOL && strcmp(name, "tool_call_id") == 0)) {
        return QUIRE_OK;
    }
    if (m->role != CHAT_ASSISTANT) {
        json_add(json_name(&c->o, name), v);
    } else if (strcmp(name, "tool_calls") == 0 || strcmp(name, "function_call") == 0) {
        return message_write_calls(c, m->calls, name, v);
    } else if (names_reasoning(name)) {
        return write_reasoning(c, m, name, v);
    } else if (strcmp(name, "id") != 0) {
        json_add(json_name(&c->o, name), v);
    }
    return QUIRE_OK;
}

/* Writes members that the template needs and the client omitted. */
static quire_err write_missing(conversation *c, message *m) {
    if (!json_has(m->v, "content")) {
        TRY(write_member(c, m, "content", NULL));
    }
    if (m->reasoning.n > 0 && !m->has_reasoned && !c->traits->reasoning_part) {
        const char *name = c->traits->reasoning != NULL ? c->traits->reasoning : reasoning_names[0];
        json_text(json_name(&c->o, name), m->reasoning.p, m->reasoning.n);
    }
    return m->role == CHAT_TOOL ? message_write_result_id(c, m->v) : QUIRE_OK;
}

static quire_err write_message(conversation *c, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        return message_error(c, "", v, "an object");
    }
    const json_value *role = json_get(v, "role");
    if (!json_is(role, JSON_KIND_TEXT)) {
        return message_error(c, "role", role, "a string");
    }
    message m = {.v = v, .role = role_of(json_str(role))};
    if (m.role == CHAT_ASSISTANT) {
        m.calls = message_calls(v);
        TRY(read_reasoning(c, v, &m.reasoning));
    }
    size_t n_named = c->m.turn_ids.n;
    json_begin(json_item(&c->o), '{');
    for (json_member member = {0}; json_next(v, &member);) {
        TRY(write_member(c, &m, member.name, member.value));
    }
    TRY(write_missing(c, &m));
    if (m.role == CHAT_ASSISTANT && c->m.turn_ids.n == n_named) { /* no call has named the answer */
        TRY(note_turn(c, json_get_str(v, "id")));
    }
    json_end(&c->o, '}');
    return c->o.err;
}

quire_err chat_messages_read(const json_value *array, const chat_traits *traits, const char *path,
                             chat_messages *out, quire_error *err) {
    static const chat_traits plain = {0};
    conversation c = {.traits = traits != NULL ? traits : &plain, .path = path, .err = err};
    c.o.to = &c.m.json;
    quire_err e = QUIRE_OK;
    *out = (chat_messages){0};
    json_begin(&c.o, '[');
    for (; c.i < json_length(array) && e == QUIRE_OK; c.i++) {
        e = write_message(&c, json_at(array, c.i));
    }
    json_end(&c.o, ']');
    TRY_DONE(e, c.o.err);
done:
    strbuf_deinit(&c.thoughts);
    if (e != QUIRE_OK) {
        chat_messages_deinit(&c.m);
        return e == QUIRE_BAD_REQUEST ? e
               : e == QUIRE_CANCELLED ? err_set(err, e, -1, "cancelled")
                                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for messages");
    }
    *out = c.m;
    return QUIRE_OK;
}

void chat_messages_deinit(chat_messages *m) {
    strbuf_deinit(&m->json);
    strbuf_deinit(&m->turn_ids);
    *m = (chat_messages){0};
}

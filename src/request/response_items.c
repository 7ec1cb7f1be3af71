/* Reads conversation items of OpenAI's Responses API and writes them as chat messages.
 *
 * An item is a message, reasoning, a tool call or a call's output. Consecutive reasoning,
 * text and calls of the assistant form one message. The output of a call must come after
 * the call. One thread. */

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash_index.h"
#include "base/mem.h"
#include "base/rng.h"
#include "request/request_read.h"

#define RESPONSE_ID_DIGITS 16 /* hexadecimal digits of a response's id */

/* The assistant message being collected from adjacent items: reasoning, then text, then
 * calls. */
typedef struct open_turn {
    str name; /* id of the response that its reasoning or text came from; empty: unknown */
    strbuf reasoning;
    const json_value *content;
    strbuf calls; /* array items of tool_calls */
} open_turn;

struct item_reader {
    json_out messages;
    strbuf *kept; /* items to store, one a line; NULL: already stored */
    quire_error *err;
    const char *list; /* the list's name in errors, as in "input" */
    size_t i;         /* index of the current item */
    open_turn turn;
    str *calls; /* [n_calls] ids of all calls so far, indexed by hash in call_index */
    size_t n_calls, cap_calls;
    hash_index call_index;
    uint64_t seed; /* makes ids for items without one */
};

/* ---- errors ---- */

/* Sets an error about the current item or one of its members. member: "" or ".NAME". */
__attribute__((format(printf, 3, 4))) static quire_err items_refuse(const item_reader *t, const char *member,
                                                                    const char *format, ...) {
    char param[sizeof t->err->param], what[300];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    (void)snprintf(param, sizeof param, "%s[%zu]%s", t->list, t->i, member);
    return err_set_param(t->err, QUIRE_BAD_REQUEST, param, "%s %s", param, what);
}

static quire_err items_want(const item_reader *t, const char *member, const json_value *v, const char *what) {
    char brief[JSON_BRIEF_BYTES];
    return items_refuse(t, member, "is %s; it must be %s", json_brief(v, brief), what);
}

static quire_err items_memory(const item_reader *t, quire_err e) {
    return err_set(t->err, e, -1, "out of memory for a conversation");
}

/* Reads a member that must be a text. */
static quire_err items_text(const item_reader *t, const json_value *item, const char *name, str *out) {
    char member[40];
    const json_value *v = json_get(item, name);
    *out = json_str(v);
    (void)snprintf(member, sizeof member, ".%s", name);
    return json_is(v, JSON_KIND_TEXT) ? QUIRE_OK : items_want(t, member, v, "a string");
}

/* ---- content ---- */

/* Checks a content or output: a text, or a list of text parts. */
static quire_err items_check_content(const item_reader *t, const char *name, const json_value *v,
                                     bool is_answer) {
    char member[40];
    (void)snprintf(member, sizeof member, ".%s", name);
    if (json_is(v, JSON_KIND_TEXT)) {
        return QUIRE_OK;
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return items_want(t, member, v, "a string or an array of parts");
    }
    for (size_t j = 0; j < json_length(v); j++) {
        const json_value *part = json_at(v, j);
        str type = json_get_str(part, "type");
        bool is_refusal = is_answer && str_is(type, "refusal");
        bool is_text = str_is(type, "input_text") || str_is(type, "output_text") || str_is(type, "text");
        (void)snprintf(member, sizeof member, ".%s[%zu]", name, j);
        if (!is_text && !is_refusal) {
            return items_refuse(t, member, "is of type \"%.*s\"; this server takes text: \"input_text\"%s",
                                (int)(type.n < 40 ? type.n : 40), type.n > 0 ? type.p : "",
                                is_answer ? ", \"output_text\", \"refusal\"" : "");
        }
        const json_value *text = json_get(part, is_refusal ? "refusal" : "text");
        (void)snprintf(member, sizeof member, ".%s[%zu].%s", name, j, is_refusal ? "refusal" : "text");
        if (!json_is(text, JSON_KIND_TEXT)) {
            TRY(items_want(t, member, text, "a string"));
        }
    }
    return QUIRE_OK;
}

/* ---- messages ---- */

/* Writes the open assistant message, if any. */
static void items_close_turn(item_reader *t) {
    open_turn *a = &t->turn;
    json_out *o = &t->messages;
    if (a->reasoning.n == 0 && a->content == NULL && a->calls.n == 0) {
        return;
    }
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), "assistant");
    json_name(o, "content");
    if (a->content != NULL) {
        json_add(o, a->content);
    } else {
        json_raw(o, a->calls.n > 0 ? "null" : "\"\"");
    }
    if (a->name.n > 0) {
        json_text(json_name(o, "id"), a->name.p, a->name.n);
    }
    if (a->reasoning.n > 0) {
        json_text(json_name(o, "reasoning_content"), a->reasoning.p, a->reasoning.n);
    }
    if (a->calls.n > 0) {
        json_begin(json_name(o, "tool_calls"), '[');
        json_raw_part(o, (str){a->calls.p, a->calls.n});
        json_end(o, ']');
    }
    json_end(o, '}');
    strbuf_clear(&a->reasoning);
    strbuf_clear(&a->calls);
    a->content = NULL;
    a->name = (str){0};
}

/* Takes the open turn's response id from an item's id of this server's form
 * (server/routes.c): PREFIX_, the response's digits, two digits for the position. Ids of
 * other forms are ignored. */
static void items_name_turn(item_reader *t, const json_value *item) {
    str id = json_get_str(item, "id");
    const char *digits = id.n > 0 ? memchr(id.p, '_', id.n) : NULL;
    size_t n = digits != NULL ? id.n - (size_t)(++digits - id.p) : 0, n_hex = 0;
    while (n_hex < n && ((digits[n_hex] >= '0' && digits[n_hex] <= '9') ||
                         (digits[n_hex] >= 'a' && digits[n_hex] <= 'f'))) {
        n_hex++;
    }
    if (n == RESPONSE_ID_DIGITS + 2 && n_hex == n && t->turn.name.n == 0) {
        t->turn.name = (str){digits, RESPONSE_ID_DIGITS};
    }
}

static void items_write_message(item_reader *t, const char *role, const json_value *content) {
    json_out *o = &t->messages;
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), role);
    json_add(json_name(o, "content"), content);
    json_end(o, '}');
}

static quire_err items_read_message(item_reader *t, const json_value *item) {
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    const json_value *content = json_get(item, "content");
    str given = json_get_str(item, "role");
    const char *role = NULL;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        role = str_is(given, roles[i]) ? roles[i] : role;
    }
    if (role == NULL) {
        return items_want(t, ".role", json_get(item, "role"),
                          "\"user\", \"system\", \"developer\" or \"assistant\"");
    }
    bool is_answer = strcmp(role, "assistant") == 0;
    TRY(items_check_content(t, "content", content, is_answer));
    if (!is_answer) {
        items_close_turn(t);
        items_write_message(t, role, content);
        return QUIRE_OK;
    }
    if (t->turn.content != NULL || t->turn.calls.n > 0) {
        items_close_turn(t);
    }
    t->turn.content = content;
    items_name_turn(t, item);
    return QUIRE_OK;
}

/* ---- reasoning ---- */

/* Appends the texts of a list of {"text": ..} to the reasoning. */
static quire_err items_add_reasoning(item_reader *t, const char *name, const json_value *list) {
    char member[48];
    for (size_t j = 0; j < json_length(list); j++) {
        const json_value *text = json_get(json_at(list, j), "text");
        (void)snprintf(member, sizeof member, ".%s[%zu].text", name, j);
        if (!json_is(text, JSON_KIND_TEXT)) {
            TRY(items_want(t, member, text, "a string"));
        }
        bool follows = t->turn.reasoning.n > 0;
        if ((follows && strbuf_add_char(&t->turn.reasoning, '\n') != QUIRE_OK) ||
            strbuf_add(&t->turn.reasoning, json_str(text).p, json_str(text).n) != QUIRE_OK) {
            return items_memory(t, QUIRE_NO_MEMORY);
        }
    }
    return QUIRE_OK;
}

/* Reads reasoning: its content or, without content, its summary. */
static quire_err items_read_reasoning(item_reader *t, const json_value *item) {
    const json_value *content = json_get(item, "content"), *summary = json_get(item, "summary");
    if (content != NULL && !json_is(content, JSON_KIND_ARRAY)) {
        TRY(items_want(t, ".content", content, "an array of parts"));
    }
    if (summary != NULL && !json_is(summary, JSON_KIND_ARRAY)) {
        TRY(items_want(t, ".summary", summary, "an array of parts"));
    }
    if (t->turn.content != NULL || t->turn.calls.n > 0) {
        items_close_turn(t);
    }
    items_name_turn(t, item);
    return json_length(content) > 0 ? items_add_reasoning(t, "content", content)
                                    : items_add_reasoning(t, "summary", summary);
}

/* ---- calls and their outputs ---- */

void items_write_name(str space, str name, json_out *o) {
    char begin[CALL_NAME_BYTES + 1];
    size_t n = space.n < CALL_NAME_BYTES ? space.n : CALL_NAME_BYTES;
    mem_copy(begin, space.p, n);
    begin[n] = '.';
    json_texts(o, (str){begin, n > 0 ? n + 1 : 0}, name);
}

static uint32_t items_call_hash(str id) {
    uint64_t h = str_hash(STR_HASH_START, id);
    return (uint32_t)(h ^ h >> 32);
}

static bool items_knows_call(const item_reader *t, str id) {
    HASH_INDEX_EACH(&t->call_index, items_call_hash(id), i) {
        if (str_eq(t->calls[i], id)) {
            return true;
        }
    }
    return false;
}

static quire_err items_note_call(item_reader *t, str id) {
    if (items_knows_call(t, id)) {
        return QUIRE_OK;
    }
    if (mem_grow(&t->calls, &t->cap_calls, t->n_calls + 1, sizeof *t->calls) != QUIRE_OK ||
        hash_index_add(&t->call_index, items_call_hash(id), (uint32_t)t->n_calls) != QUIRE_OK) {
        return items_memory(t, QUIRE_NO_MEMORY);
    }
    t->calls[t->n_calls++] = id;
    return QUIRE_OK;
}

/* Reads a call of a function (arguments) or of a custom tool (input). */
static quire_err items_read_call(item_reader *t, const json_value *item, bool is_custom) {
    const char *type = is_custom ? "custom" : "function", *text_name = is_custom ? "input" : "arguments";
    json_out o = {.to = &t->turn.calls};
    str id, name, text, space = json_get_str(item, "namespace");
    TRY(items_text(t, item, "call_id", &id));
    TRY(items_text(t, item, "name", &name));
    TRY(items_text(t, item, text_name, &text));
    TRY(items_note_call(t, id));
    json_begin(json_item(&o), '{');
    json_text(json_name(&o, "id"), id.p, id.n);
    json_cstr(json_name(&o, "type"), type);
    json_begin(json_name(&o, type), '{');
    items_write_name(space, name, json_name(&o, "name"));
    json_text(json_name(&o, text_name), text.p, text.n);
    json_end(&o, '}');
    json_end(&o, '}');
    return items_memory(t, o.err);
}

static quire_err items_read_output(item_reader *t, const json_value *item) {
    json_out *o = &t->messages;
    const json_value *output = json_get(item, "output");
    str id;
    TRY(items_text(t, item, "call_id", &id));
    if (!items_knows_call(t, id)) {
        return items_refuse(t, ".call_id", "is \"%.*s\"; no call before it has that id",
                            (int)(id.n < 80 ? id.n : 80), id.p);
    }
    TRY(items_check_content(t, "output", output, false));
    items_close_turn(t);
    json_begin(json_item(o), '{');
    json_cstr(json_name(o, "role"), "tool");
    json_text(json_name(o, "tool_call_id"), id.p, id.n);
    json_add(json_name(o, "content"), output);
    json_end(o, '}');
    return QUIRE_OK;
}

/* ---- items as stored ---- */

static void items_write_id(item_reader *t, const char *prefix, const json_value *given, json_out *o) {
    char id[48];
    str own = json_str(given);
    if (own.n == 0) {
        (void)snprintf(id, sizeof id, "%s_%016" PRIx64, prefix, rng_next(&t->seed));
        own = str_of(id);
    }
    json_text(json_name(o, "id"), own.p, own.n);
}

static void items_write_part(const char *type, str text, json_out *o) {
    json_begin(o, '[');
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), type);
    json_text(json_name(o, "text"), text.p, text.n);
    json_end(o, '}');
    json_end(o, ']');
}

/* Stores an item as a line: its id first; text content becomes a single part. */
static quire_err items_keep(item_reader *t, const char *prefix, const json_value *item) {
    json_out o = {.to = t->kept};
    if (t->kept == NULL) {
        return QUIRE_OK;
    }
    bool is_message = strcmp(prefix, "msg") == 0;
    bool is_answer = str_is(json_get_str(item, "role"), "assistant");
    json_raw(&o, t->kept->n > 0 ? "\n" : "");
    json_begin(&o, '{');
    items_write_id(t, prefix, json_get(item, "id"), &o);
    if (is_message) {
        json_cstr(json_name(&o, "type"), "message");
    }
    for (json_member m = {0}; json_next(item, &m);) {
        bool is_written = strcmp(m.name, "id") == 0 || (is_message && strcmp(m.name, "type") == 0) ||
                          strcmp(m.name, "status") == 0;
        if (!is_written && is_message && json_is(m.value, JSON_KIND_TEXT) && strcmp(m.name, "content") == 0) {
            items_write_part(is_answer ? "output_text" : "input_text", json_str(m.value),
                             json_name(&o, m.name));
        } else if (!is_written) {
            json_add(json_name(&o, m.name), m.value);
        }
    }
    json_cstr(json_name(&o, "status"), "completed");
    json_end(&o, '}');
    return items_memory(t, o.err);
}

/* ---- lists ---- */

static quire_err items_read_one(item_reader *t, const json_value *item) {
    if (!json_is(item, JSON_KIND_OBJECT)) {
        return items_want(t, "", item, "an object");
    }
    str type = json_get_str(item, "type");
    const char *prefix;
    if (str_is(type, "message") || (!json_has(item, "type") && json_has(item, "role"))) {
        prefix = "msg";
        TRY(items_read_message(t, item));
    } else if (str_is(type, "reasoning")) {
        prefix = "rs";
        TRY(items_read_reasoning(t, item));
    } else if (str_is(type, "function_call")) {
        prefix = "fc";
        TRY(items_read_call(t, item, false));
    } else if (str_is(type, "custom_tool_call")) {
        prefix = "ctc";
        TRY(items_read_call(t, item, true));
    } else if (str_is(type, "function_call_output") || str_is(type, "custom_tool_call_output")) {
        prefix = type.p[0] == 'f' ? "fco" : "ctco";
        TRY(items_read_output(t, item));
    } else if (str_is(type, "item_reference")) {
        return items_refuse(t, "",
                            "refers to an item by id; send the item itself, or use previous_response_id");
    } else {
        return items_refuse(t, ".type",
                            "is \"%.*s\"; it must be \"message\", \"reasoning\", \"function_call\", "
                            "\"function_call_output\", \"custom_tool_call\" or \"custom_tool_call_output\"",
                            (int)(type.n < 40 ? type.n : 40), type.n > 0 ? type.p : "");
    }
    return items_keep(t, prefix, item);
}

quire_err items_open(strbuf *messages, strbuf *kept, quire_error *err, item_reader **out) {
    item_reader *t = mem_new(1, sizeof *t);
    *out = t;
    TRY(mem_check_for(t, "a conversation", err));
    *t = (item_reader){.messages = {.to = messages}, .kept = kept, .err = err, .seed = rng_os_seed()};
    json_begin(&t->messages, '[');
    return QUIRE_OK;
}

void items_add_instructions(item_reader *t, const json_value *text) {
    items_write_message(t, "system", text);
}

quire_err items_read_list(item_reader *t, const char *list, const json_value *items, bool is_kept) {
    assert(t != NULL);
    strbuf *kept = t->kept;
    quire_err e = QUIRE_OK;
    t->list = list;
    t->kept = is_kept ? kept : NULL;
    for (t->i = 0; t->i < json_length(items) && e == QUIRE_OK; t->i++) {
        e = items_read_one(t, json_at(items, t->i));
        if (e != QUIRE_OK) {
            break;
        }
    }
    t->kept = kept;
    return e;
}

quire_err items_read_text(item_reader *t, const json_value *text) {
    json_out o = {.to = t->kept};
    items_close_turn(t);
    items_write_message(t, "user", text);
    json_raw(&o, t->kept->n > 0 ? "\n" : "");
    json_begin(&o, '{');
    items_write_id(t, "msg", NULL, &o);
    json_raw(&o, ",\"type\":\"message\",\"role\":\"user\"");
    items_write_part("input_text", json_str(text), json_name(&o, "content"));
    json_cstr(json_name(&o, "status"), "completed");
    json_end(&o, '}');
    return items_memory(t, o.err);
}

quire_err items_close(item_reader *t, bool is_whole) {
    if (t == NULL) {
        return QUIRE_OK;
    }
    if (is_whole) {
        items_close_turn(t);
        json_end(&t->messages, ']');
    }
    quire_err e = t->messages.err;
    strbuf_deinit(&t->turn.reasoning);
    strbuf_deinit(&t->turn.calls);
    mem_free(t->calls);
    hash_index_deinit(&t->call_index);
    mem_free(t);
    return e;
}

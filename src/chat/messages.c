#include "chat/messages.h"

#include <stdio.h>

#include "chat/messages_read.h"

quire_err message_error(const conversation *c, const char *member, const json_value *v, const char *what) {
    char param[64], brief[JSON_BRIEF_BYTES];
    const char *dot = *member ? "." : "";
    snprintf(param, sizeof param, "%s.%zu%s%s", c->path, c->i, dot, member);
    return err_set_param(c->err, QUIRE_BAD_REQUEST, param, "messages[%zu]%s%s is %s; it must be %s", c->i,
                         dot, member, json_brief(v, brief), what);
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

/* The template's name of a role. */
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

/* The text of a message's reasoning: that of the template's own name if there is one,
 * else of the first name that has some, else of the parts of its content. */
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

/* A message, and what several of its members say together. */
typedef struct message {
    const json_value *v;
    const json_value *calls; /* of tool_calls or function_call */
    chat_role role;
    str reasoning;     /* of an assistant */
    bool has_reasoned; /* it was written */
} message;

/* Writes the reasoning under the template's name, once. Where that isn't known the
 * client's own names pass as they are. */
static quire_err write_reasoning(conversation *c, message *m, const char *name, const json_value *v) {
    if (c->traits->reasoning_part && m->reasoning.n > 0) {
        return QUIRE_OK; /* the content has it */
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
    } else {
        json_add(json_name(&c->o, name), v);
    }
    return QUIRE_OK;
}

/* Members that the template needs and the client has left out. */
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
    json_begin(json_item(&c->o), '{');
    for (json_member member = {0}; json_next(v, &member);) {
        TRY(write_member(c, &m, member.name, member.value));
    }
    TRY(write_missing(c, &m));
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
    e = e == QUIRE_OK ? c.o.err : e;
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
    strbuf_deinit(&m->call_ids);
    *m = (chat_messages){0};
}

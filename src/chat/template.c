#include "chat/template.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "jinja/jinja.h"

struct chat_template {
    jinja_program *program;
    chat_traits traits;
    str source; /* owned */
};

/* Names of roles. Templates put them into their own tokens, as in "<|" + role + "|>", so
 * they are not a client's text. */
static const char *const roles[] = {"system",  "developer",   "user",        "assistant", "tool", "function",
                                    "ipython", "observation", "environment", "model",     "human"};

static quire_err template_compile(chat_template *t, str source, const chat_tokens *tokens, quire_error *err) {
    /* the settings with which transformers renders chat templates */
    jinja_options options = {.trim_blocks = true,
                             .lstrip_blocks = true,
                             .own = {.member = "role", .words = roles, .n = sizeof roles / sizeof *roles},
                             .set = tokens->others};
    TRY(jinja_open(source, options, &t->program, err));
    quire_err e = jinja_define(t->program, "bos_token", tokens->bos);
    if (e == QUIRE_OK) {
        e = jinja_define(t->program, "eos_token", tokens->eos);
    }
    return err_set(err, e, -1, "out of memory for a chat template");
}

void chat_template_probe(chat_template *t) {
    assert(t != NULL);
    if (jinja_uses_others(t->program)) {
        t->traits = chat_template_find_traits(t->program);
    }
}

quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err) {
    *out = NULL;
    chat_template *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "a chat template", err));
    quire_err e = template_compile(t, source, tokens, err);
    if (e == QUIRE_OK) {
        t->source = (str){mem_dup(source.p, source.n), source.n};
        e = mem_check_for(t->source.p, "a chat template", err);
    }
    if (e != QUIRE_OK) {
        chat_template_close(t);
        return e;
    }
    t->traits = chat_template_find_traits(t->program);
    *out = t;
    return QUIRE_OK;
}

void chat_template_publish(const chat_template *t, str name, jinja_set *set) {
    assert(set != NULL);
    if (set->n < JINJA_MAX_SET) {
        set->named[set->n].name = name;
        set->named[set->n++].program = t->program;
    }
}

void chat_template_close(chat_template *t) {
    if (t != NULL) {
        jinja_close(t->program);
        mem_free((char *)t->source.p);
        mem_free(t);
    }
}

static quire_err mark_all(const jinja_spans *input, text_marks *marks) {
    for (size_t i = 0; i < input->n; i++) {
        TRY(text_marks_add(marks, input->spans[i].start, input->spans[i].end));
    }
    return QUIRE_OK;
}

quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, text_marks *marks,
                               quire_error *err) {
    jinja_spans input = {0};
    size_t before = out->n;
    quire_err e = jinja_render(t->program, variables_json, NULL, out, marks != NULL ? &input : NULL, err);
    if (e == QUIRE_OK && marks != NULL && mark_all(&input, marks) != QUIRE_OK) {
        out->n = before;
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a rendered template");
    }
    jinja_spans_deinit(&input);
    return e;
}

str chat_template_source(const chat_template *t) {
    assert(t != NULL);
    return t->source;
}

const chat_traits *chat_template_traits(const chat_template *t) {
    return &t->traits;
}

/* Finds what a template expects of messages: renders small conversations with markers and
 * searches for them in the result. */

#define MARK     "quire marks this"
#define SHORT_ID "quire0001"
#define LONG_ID  "quire-probe-0123456789abcdef"
#define USER     "{\"role\":\"user\",\"content\":\"quire asks\"}"
#define RESULT                                                                                               \
    "{\"role\":\"tool\",\"name\":\"quire_tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"" MARK "\"}"
#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"quire_tool\",\"description\":\"probes\","              \
    "\"parameters\":"                                                                                        \
    "{\"type\":\"object\",\"properties\":{\"quire_key\":{\"type\":\"string\",\"description\":\"probed\"}},"  \
    "\"required\":[\"quire_key\"]}}}"                                                                        \
    "]"

/* Arguments of a call, as an object and as JSON text. TOOLS declares them, since some
 * templates write only declared ones. */
#define ARGUMENTS      "{\"quire_key\": \"quire value\"}"
#define ARGUMENTS_TEXT "\"{\\\"quire_key\\\": \\\"quire value\\\"}\""

/* The result of rendering a message: it failed, or its marker is lost or written. */
typedef enum outcome { FAILED, LOST, WRITTEN } outcome;

typedef struct prober {
    const jinja_program *program;
    int64_t steps_left;
    char messages[4096]; /* the conversation: messages separated by commas */
    strbuf variables, out;
    bool is_over; /* a render exceeded a limit, so probing ends */
    bool thinks;  /* set the variables that turn reasoning on */
    bool ended;   /* the conversation ends with an assistant's message */
} prober;

static bool has(const prober *p, const char *needle) {
    return p->out.n > 0 && strstr(p->out.p, needle) != NULL;
}

static size_t template_probe_count(const prober *p, const char *needle) {
    size_t n = 0;
    for (const char *at = p->out.n > 0 ? strstr(p->out.p, needle) : NULL; at != NULL;
         at = strstr(at + 1, needle)) {
        n++;
    }
    return n;
}

/* Renders p->messages, with a tool or without, to p->out. False: the render failed. */
static bool template_probe_render(prober *p, bool with_tools) {
    strbuf_clear(&p->variables);
    strbuf_clear(&p->out);
    if (p->is_over) {
        return false;
    }
    quire_err e = strbuf_addf(
        &p->variables,
        "{\"messages\":[%s],\"add_generation_prompt\":%s,\"bos_token\":\"\",\"eos_token\":\"\",\"tools\":%s,"
        "\"documents\":null%s}",
        p->messages, p->ended ? "false" : "true", with_tools ? TOOLS : "null",
        p->thinks ? ",\"enable_thinking\":true,\"thinking\":true" : "");
    TRY_DONE(e, jinja_render_within(p->program, (str){p->variables.p, p->variables.n}, &p->steps_left,
                                    &p->out, NULL));
done:
    p->is_over = e == QUIRE_TOO_LARGE || e == QUIRE_CANCELLED || e == QUIRE_NO_MEMORY;
    return e == QUIRE_OK;
}

/* Sets p->messages. */
static void __attribute__((format(printf, 2, 3))) say(prober *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(p->messages, sizeof p->messages, format, args);
    assert(n > 0 && (size_t)n < sizeof p->messages);
    (void)n;
    va_end(args);
}

/* Renders with and, if that fails, without tools, or in the other order: some templates
 * fail without tools, a few fail with them. */
static bool render_either(prober *p, bool tools_first) {
    return template_probe_render(p, tools_first) || template_probe_render(p, !tools_first);
}

static outcome render_mark(prober *p, bool tools_first) {
    return !render_either(p, tools_first) ? FAILED : has(p, MARK) ? WRITTEN : LOST;
}

/* ---- contents ---- */

/* Whether the text of a message with this content (JSON) is rendered, and not its JSON or
 * Python form. call: the message before a tool's. */
static bool takes(prober *p, chat_role role, const char *content, const char *call) {
    switch (role) {
    case CHAT_SYSTEM:
        say(p, "{\"role\":\"system\",\"content\":%s}," USER, content);
        break;
    case CHAT_ASSISTANT:
        say(p, USER ",{\"role\":\"assistant\",\"content\":%s}," USER, content);
        break;
    case CHAT_TOOL:
        say(p,
            USER ",%s,{\"role\":\"tool\",\"name\":\"quire_tool\",\"tool_call_id\":\"" SHORT_ID
                 "\",\"content\":%s}",
            call, content);
        break;
    default:
        say(p, "{\"role\":\"user\",\"content\":%s}", content);
    }
    return render_mark(p, role == CHAT_TOOL) == WRITTEN && !has(p, "'text': '" MARK) &&
           !has(p, "\"text\": \"" MARK) && !has(p, "\"text\":\"" MARK) && !has(p, "\\\"text\\\": \\\"" MARK);
}

/* Finds each role's form of content: the user's if neither form is rendered. */
static void probe_contents(prober *p, const char *call, chat_traits *traits) {
    for (chat_role role = CHAT_USER; role < CHAT_N_ROLES; role++) {
        bool text = takes(p, role, "\"" MARK "\"", call),
             parts = takes(p, role, "[{\"type\":\"text\",\"text\":\"" MARK "\"}]", call);
        traits->content[role] = parts  ? text ? CHAT_CONTENT_BOTH : CHAT_CONTENT_PARTS
                                : text ? CHAT_CONTENT_TEXT
                                       : traits->content[CHAT_USER];
    }
}

/* ---- calls ---- */

/* The result of rendering a call. */
typedef struct call_outcome {
    outcome is;
    size_t n_nulls; /* number of times that None or null is written */
    bool in_braces; /* the template puts its own braces around the arguments' text */
} call_outcome;

/* An assistant's message with a call; formats content, member with the id, arguments. */
#define CALL                                                                                                 \
    "{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":[{%s\"type\":\"function\","                       \
    "\"function\":{\"name\":\"quire_tool\",\"arguments\":%s}}]}"
#define CALL_BYTES (sizeof CALL + 100)
#define ID(id)     "\"id\":\"" id "\","

static call_outcome render_call(prober *p, const char *content, bool as_text) {
    char call[CALL_BYTES];
    snprintf(call, sizeof call, CALL, content, ID(SHORT_ID), as_text ? ARGUMENTS_TEXT : ARGUMENTS);
    say(p, USER ",%s," RESULT, call);
    if (!render_either(p, true)) {
        return (call_outcome){FAILED, 0, false};
    }
    bool is_python = has(p, "'quire_key': 'quire value'"), is_encoded_twice = has(p, "\\\"quire value");
    bool is_object = has(p, "quire value") && !is_python && !is_encoded_twice;
    bool is_written = as_text ? has(p, ARGUMENTS) : is_object;
    return (call_outcome){is_written ? WRITTEN : LOST,
                          template_probe_count(p, "None") + template_probe_count(p, "null"),
                          has(p, "{" ARGUMENTS)};
}

static void probe_arguments(prober *p, chat_traits *traits, call_outcome by_content[2]) {
    call_outcome object[2], text[2];
    for (int i = 0; i < 2; i++) {
        const char *content = i == 0 ? "\"\"" : "null";
        object[i] = render_call(p, content, false);
        text[i] = render_call(p, content, true);
    }
    outcome best_object = object[0].is > object[1].is ? object[0].is : object[1].is;
    outcome best_text = text[0].is > text[1].is ? text[0].is : text[1].is;
    bool in_braces = text[0].in_braces || text[1].in_braces;
    traits->text_arguments = best_text > best_object;
    traits->loose_arguments = best_text == WRITTEN && !in_braces;
    memcpy(by_content, traits->text_arguments ? text : object, sizeof text);
}

/* Writes an assistant's message with a call, in the form found so far, to call[0..n). */
static void template_probe_write_call(const chat_traits *traits, const char *id_member, char *call,
                                      size_t n) {
    snprintf(call, n, CALL, traits->no_text == CHAT_NO_TEXT_EMPTY ? "\"\"" : "null", id_member,
             traits->text_arguments ? ARGUMENTS_TEXT : ARGUMENTS);
}

static void probe_calls(prober *p, chat_traits *traits) {
    call_outcome by[2]; /* results with the content "" and with null */
    char call[CALL_BYTES];
    probe_arguments(p, traits, by);
    bool takes_null =
        by[1].is != FAILED && by[1].is >= by[0].is && (by[0].is == FAILED || by[1].n_nulls <= by[0].n_nulls);
    traits->no_text = !takes_null                               ? CHAT_NO_TEXT_EMPTY
                      : by[0].is == LOST && by[1].is == WRITTEN ? CHAT_NO_TEXT_NULL
                                                                : CHAT_NO_TEXT_GIVEN;
    template_probe_write_call(traits, "", call, sizeof call);
    say(p, USER ",%s," RESULT, call);
    bool is_written = render_either(p, true) && has(p, "quire value");
    traits->needs_ids = (by[0].is == WRITTEN || by[1].is == WRITTEN) && !is_written && !p->is_over;
    template_probe_write_call(traits, ID(LONG_ID), call, sizeof call);
    say(p,
        USER ",%s,{\"role\":\"tool\",\"name\":\"quire_tool\",\"tool_call_id\":\"" LONG_ID
             "\",\"content\":\"" MARK "\"}",
        call);
    traits->short_ids =
        by[0].is + by[1].is != FAILED && !p->is_over && !render_either(p, true) && !p->is_over;
}

/* ---- roles ---- */

static bool starts(const char **at, const char *word) {
    size_t n = strlen(word);
    bool is = strncasecmp(*at, word, n) == 0;
    *at += is ? n : 0;
    return is;
}

/* Whether two renderings differ only in the name of a role, ignoring case. */
static bool differ_in_names(const char *a, const char *name_a, const char *b, const char *name_b) {
    while (*a != '\0' && *b != '\0') {
        const char *after_a = a, *after_b = b;
        if (starts(&after_a, name_a) && starts(&after_b, name_b)) {
            a = after_a, b = after_b;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

/* A message of a role; formats the messages before it, the role, the messages after
 * it. */
#define ROLE_MESSAGE                                                                                         \
    "%s{\"role\":\"%s\",\"name\":\"quire_tool\",\"tool_call_id\":\"" SHORT_ID "\",\"content\":\"" MARK "\"}" \
    "%s"

/* Whether the template knows a role. If it writes names of roles as they are given, the
 * role counts as known only if rendering with `instead` in its place fails. before,
 * after: the messages around it. */
static bool probe_role(prober *p, const char *before, const char *role, const char *instead,
                       const char *after) {
    static const char stranger[] = "quirerole";
    bool is_result = *before != '\0';
    say(p, ROLE_MESSAGE, before, role, after);
    if (render_mark(p, is_result) != WRITTEN) {
        return false;
    }
    strbuf as_role = p->out;
    p->out = (strbuf){0};
    say(p, ROLE_MESSAGE, before, stranger, after);
    bool is_any =
        render_mark(p, is_result) == WRITTEN && differ_in_names(as_role.p, role, p->out.p, stranger);
    strbuf_deinit(&as_role);
    if (!is_any) {
        return !p->is_over;
    }
    say(p, ROLE_MESSAGE, before, instead, after);
    return render_mark(p, is_result) != WRITTEN;
}

/* ---- reasoning ---- */

/* Finds the member with the reasoning by passing all candidates, each with its marker. */
static bool find_reasoning(prober *p, const char *call, chat_traits *traits) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    static const char members[] = ",\"reasoning_content\":\"quire thinks 0\",\"reasoning\":\"quire thinks "
                                  "1\",\"thinking\":\"quire thinks 2\"}";
    for (int in_call = 1; in_call >= 0; in_call--) {
        p->ended = in_call == 0;
        if (in_call == 1) {
            say(p, USER ",%.*s%s," RESULT, (int)strlen(call) - 1, call, members);
        } else {
            say(p, USER ",{\"role\":\"assistant\",\"content\":\"" MARK "\"%s", members);
        }
        bool ok = render_either(p, in_call == 1);
        p->ended = false;
        for (int i = 0; ok && i < 3; i++) {
            char mark[] = "quire thinks 0";
            mark[sizeof mark - 2] = (char)('0' + i);
            if (has(p, mark)) {
                traits->reasoning = names[i];
                return true;
            }
        }
    }
    return false;
}

/* Whether a reasoning part is rendered as its text, not in its JSON or Python form. */
static bool takes_reasoning_part(prober *p) {
    say(p, USER ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"quire thinks\"},"
                "{\"type\":\"text\",\"text\":\"" MARK "\"}]}," USER);
    return render_mark(p, false) == WRITTEN && has(p, "quire thinks") &&
           !has(p, "thinking': 'quire thinks") && !has(p, "thinking\": \"quire thinks") &&
           !has(p, "thinking\":\"quire thinks") && !has(p, "\\\"quire thinks");
}

static void probe_reasoning(prober *p, const char *call, chat_traits *traits) {
    bool found = find_reasoning(p, call, traits);
    if (!found) {
        p->thinks = true;
        found = find_reasoning(p, call, traits);
        p->thinks = false;
    }
    traits->reasoning_part = !found && takes_reasoning_part(p);
}

chat_traits chat_template_find_traits(const jinja_program *program) {
    chat_traits traits = {0};
    prober p = {.program = program, .steps_left = JINJA_MAX_STEPS};
    char call[CALL_BYTES], before[CALL_BYTES + sizeof USER + 2];
    probe_calls(&p, &traits);
    template_probe_write_call(&traits, ID(SHORT_ID), call, sizeof call);
    probe_contents(&p, call, &traits);
    snprintf(before, sizeof before, USER ",%s,", call);
    traits.developer = probe_role(&p, "", "developer", "system", "," USER);
    traits.function = probe_role(&p, before, "function", "tool", "");
    probe_reasoning(&p, call, &traits);
    strbuf_deinit(&p.variables);
    strbuf_deinit(&p.out);
    return traits;
}

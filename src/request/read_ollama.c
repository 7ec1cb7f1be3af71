/* The dialects of Ollama: /api/chat and /api/generate. Their fields become those of a
 * chat, or of a completion if `raw` is set. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "request/request_read.h"
#include "json/json_out.h"

/* ---- keep_alive ---- */

#define KEEP_LONGEST_US 1e15 /* a longer time means for ever */

/* Parses the time unit at *p and moves *p past it. Returns its microseconds; 0: no
 * unit. */
static double read_ollama_unit(const char **p) {
    static const struct {
        const char *name;
        double us;
    } units[] = {{"ns", 1e-3}, {"us", 1.0}, {"\xc2\xb5s", 1.0}, {"ms", 1e3},
                 {"s", 1e6},   {"m", 6e7},  {"h", 3.6e9}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const size_t n = strlen(units[i].name);
        if (strncmp(*p, units[i].name, n) == 0) {
            *p += n;
            return units[i].us;
        }
    }
    return 0.0;
}

/* Parses a duration: "1h30m" or "-1.5s" as in Go, or a number of seconds. *us is -1 if it
 * is negative or too long. False: not a duration. */
static bool read_ollama_duration(const char *p, int64_t *us) {
    const bool is_negative = *p == '-';
    double all_us = 0.0;
    p += is_negative || *p == '+';
    const bool is_number = p[strspn(p, ".0123456789")] == '\0';
    do {
        const size_t n = strspn(p, ".0123456789");
        char *end;
        const double value = n > 0 ? strtod(p, &end) : 0.0;
        if (n == 0 || end != p + n) {
            return false;
        }
        p = end;
        const double unit_us = is_number ? 1e6 : read_ollama_unit(&p);
        if (unit_us == 0.0) {
            return false;
        }
        all_us += value * unit_us;
    } while (*p != '\0');
    *us = is_negative || all_us > KEEP_LONGEST_US ? -1 : (int64_t)all_us;
    return true;
}

quire_err request_read_keep_alive(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    int64_t us = 0;
    bool is_right = v == NULL;
    if (json_is(v, JSON_KIND_TEXT)) {
        const str text = json_str(v);
        is_right = strlen(text.p) == text.n && read_ollama_duration(text.p, &us);
    } else if (json_numeric(v)) {
        const double s = json_double(v);
        us = s < 0.0 || s > KEEP_LONGEST_US * 1e-6 ? -1 : (int64_t)(s * 1e6);
        is_right = true;
    }
    if (!is_right) {
        return err_set_param(err, QUIRE_BAD_REQUEST, f->name,
                             "%s must be seconds or a duration, such as 300 or \"5m\"", f->name);
    }
    r->g.more.has_keep_alive = v != NULL;
    r->g.more.keep_alive_us = us;
    return QUIRE_OK;
}

/* ---- the conversation ---- */

/* bytes of a call id with its zero: eight digits, so that it is shorter than an id that
 * names an answer (CHAT_CALL_ID_BYTES) */
#define OLLAMA_ID_BYTES 9

/* State of writing the conversation. */
typedef struct ollama_messages {
    json_out o;
    size_t n_calls;          /* calls in all messages so far */
    const json_value *calls; /* calls of the last assistant message; NULL: none */
    size_t first_call;       /* number of the first of these calls */
    size_t n_answered;       /* tool messages since that message */
    uint64_t answered;       /* bit i: call i of `calls` is answered by name; later calls have none */
} ollama_messages;

static void read_ollama_write_id(json_out *o, const char *name, size_t number) {
    char id[OLLAMA_ID_BYTES];
    (void)snprintf(id, sizeof id, "%08u", (unsigned)(number % 100000000u));
    json_cstr(json_name(o, name), id);
}

/* Sets QUIRE_BAD_REQUEST that names messages[i].what. */
static quire_err read_ollama_message_error(size_t i, const char *what, const char *why, quire_error *err) {
    char where[80];
    (void)snprintf(where, sizeof where, "messages[%zu]%s%s", i, what[0] != '\0' ? "." : "", what);
    return err_set_param(err, QUIRE_BAD_REQUEST, where, "%s %s", where, why);
}

static void read_ollama_write_text(json_out *o, const char *name, str text) {
    json_text(json_name(o, name), text.p, text.n);
}

static quire_err read_ollama_write_calls(ollama_messages *m, size_t i, const json_value *calls,
                                         quire_error *err) {
    if (!json_is(calls, JSON_KIND_ARRAY)) {
        return read_ollama_message_error(i, "tool_calls", "must be an array", err);
    }
    m->calls = calls;
    m->first_call = m->n_calls;
    m->n_answered = 0;
    m->answered = 0;
    json_begin(json_name(&m->o, "tool_calls"), '[');
    for (size_t k = 0; k < json_length(calls); k++) {
        const json_value *function = json_get(json_at(calls, k), "function"),
                         *arguments = json_get(function, "arguments");
        str name = json_get_str(function, "name");
        if (name.n == 0 || (arguments != NULL && !json_is(arguments, JSON_KIND_OBJECT))) {
            return read_ollama_message_error(
                i, "tool_calls", "must have calls {\"function\": {\"name\": .., \"arguments\": {..}}}", err);
        }
        json_begin(json_item(&m->o), '{');
        read_ollama_write_id(&m->o, "id", m->n_calls++);
        json_cstr(json_name(&m->o, "type"), "function");
        json_begin(json_name(&m->o, "function"), '{');
        read_ollama_write_text(&m->o, "name", name);
        json_name(&m->o, "arguments");
        if (arguments != NULL) {
            json_add(&m->o, arguments);
        } else {
            json_raw(&m->o, "{}");
        }
        json_end(&m->o, '}');
        json_end(&m->o, '}');
    }
    json_end(&m->o, ']');
    return QUIRE_OK;
}

/* Writes which call a tool message answers: the call with its id, else the first
 * unanswered one of the tool that it names or, without a name, the next one. */
static void read_ollama_write_answered(ollama_messages *m, str name, str id) {
    size_t k = m->n_answered++;
    bool is_open = false;
    for (size_t i = 0; id.n > 0 && !is_open && i < json_length(m->calls); i++) {
        is_open = str_eq(json_get_str(json_at(m->calls, i), "id"), id);
        k = is_open ? i : k;
    }
    for (size_t i = 0; name.n > 0 && !is_open && i < json_length(m->calls); i++) {
        if (str_eq(json_get_str(json_get(json_at(m->calls, i), "function"), "name"), name)) {
            is_open = i >= 64 || (m->answered >> i & 1) == 0;
            k = i;
        }
    }
    m->answered |= (is_open || name.n == 0) && k < 64 ? (uint64_t)1 << k : 0;
    read_ollama_write_id(&m->o, "tool_call_id", m->first_call + k);
    if (name.n > 0) {
        read_ollama_write_text(&m->o, "name", name);
    }
}

static quire_err read_ollama_write_message(ollama_messages *m, size_t i, const json_value *v,
                                           quire_error *err) {
    const json_value *content = json_get(v, "content"), *images = json_get(v, "images"),
                     *calls = json_get(v, "tool_calls");
    str role = json_get_str(v, "role"), thinking = json_get_str(v, "thinking");
    if (!json_is(v, JSON_KIND_OBJECT) || role.n == 0) {
        return read_ollama_message_error(i, json_is(v, JSON_KIND_OBJECT) ? "role" : "",
                                         "must be an object with a role and a content", err);
    }
    if (content != NULL && !json_is(content, JSON_KIND_TEXT)) {
        return read_ollama_message_error(i, "content", "must be a string", err);
    }
    if (json_length(images) > 0) {
        return read_ollama_message_error(i, "images", "is given; this server takes only text", err);
    }
    json_begin(json_item(&m->o), '{');
    read_ollama_write_text(&m->o, "role", role);
    read_ollama_write_text(&m->o, "content", json_get_str(v, "content"));
    if (thinking.n > 0) {
        read_ollama_write_text(&m->o, "reasoning_content", thinking);
    }
    if (calls != NULL && json_length(calls) > 0) {
        TRY(read_ollama_write_calls(m, i, calls, err));
    }
    if (str_is(role, "tool")) {
        str name = json_get_str(v, "tool_name");
        name = name.n > 0 ? name : json_get_str(v, "name");
        read_ollama_write_answered(m, name, json_get_str(v, "tool_call_id"));
    }
    json_end(&m->o, '}');
    return QUIRE_OK;
}

static quire_err read_ollama_set_messages(quire_request *r, const json_value *messages, quire_error *err) {
    strbuf text = {0};
    ollama_messages m = {.o = {.to = &text}};
    quire_err e = QUIRE_OK;
    json_begin(&m.o, '[');
    for (size_t i = 0; i < json_length(messages); i++) {
        TRY_DONE(e, read_ollama_write_message(&m, i, json_at(messages, i), err));
    }
    json_end(&m.o, ']');
    TRY_DONE(e, request_set_as(r, FIELD_CHAT, "messages", m.o.err, &text, err));
done:
    strbuf_deinit(&text);
    return e;
}

/* Sets the conversation of /api/generate from its system text and prompt. */
static quire_err read_ollama_set_prompt(quire_request *r, str prompt, str system, quire_error *err) {
    strbuf text = {0};
    json_out o = {.to = &text};
    json_begin(&o, '[');
    const struct {
        const char *role;
        str text;
    } turns[] = {{"system", system}, {"user", prompt}};
    for (size_t i = system.n > 0 ? 0 : 1; i < 2; i++) {
        json_begin(json_item(&o), '{');
        json_cstr(json_name(&o, "role"), turns[i].role);
        read_ollama_write_text(&o, "content", turns[i].text);
        json_end(&o, '}');
    }
    json_end(&o, ']');
    quire_err e = request_set_as(r, FIELD_CHAT, "messages", o.err, &text, err);
    strbuf_deinit(&text);
    return e;
}

/* ---- the other fields ---- */

/* Sets a field of the base dialect to v; text is scratch space. */
static quire_err read_ollama_set(quire_request *r, uint32_t base, const char *field, const json_value *v,
                                 strbuf *text, quire_error *err) {
    strbuf_clear(text);
    json_out o = {.to = text};
    json_add(&o, v);
    return request_set_as(r, base, field, o.err, text, err);
}

/* Sets format: "json" or a schema. */
static quire_err read_ollama_set_format(quire_request *r, uint32_t base, const json_value *v, strbuf *text,
                                        quire_error *err) {
    bool is_json = json_is(v, JSON_KIND_TEXT) && str_is(json_str(v), "json");
    if (v == NULL || (json_is(v, JSON_KIND_TEXT) && json_str(v).n == 0)) {
        return QUIRE_OK;
    }
    if (!is_json && !json_is(v, JSON_KIND_OBJECT)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "format", "format must be \"json\" or a JSON Schema");
    }
    strbuf_clear(text);
    json_out o = {.to = text};
    if (is_json) {
        json_raw(&o, "{\"type\":\"json_object\"}");
    } else {
        json_raw(&o, "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"format\",\"schema\":");
        json_add(&o, v);
        json_raw(&o, "}}");
    }
    TRY(request_set_as(r, base, "response_format", o.err, text, err));
    r->rule.field = request_field("format", FIELD_OLLAMA_CHAT); /* errors name this field */
    return QUIRE_OK;
}

/* Sets the template variables for think: true, false, or a reasoning effort. */
static quire_err read_ollama_set_think(quire_request *r, const json_value *v, strbuf *text,
                                       quire_error *err) {
    bool is_level = json_is(v, JSON_KIND_TEXT);
    if (v == NULL) {
        return QUIRE_OK;
    }
    if (!is_level && !json_is(v, JSON_KIND_BOOL)) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "think",
                             "think must be true, false, \"low\", \"medium\" or \"high\"");
    }
    const char *on = is_level || json_truth(v) ? "true" : "false";
    strbuf_clear(text);
    json_out o = {.to = text};
    json_begin(&o, '{');
    json_raw(json_name(&o, "enable_thinking"), on);
    json_raw(json_name(&o, "thinking"), on);
    json_end(&o, '}');
    TRY(request_set_as(r, FIELD_CHAT, "chat_template_kwargs", o.err, text, err));
    return is_level ? read_ollama_set(r, FIELD_CHAT, "reasoning_effort", v, text, err) : QUIRE_OK;
}

/* Members of `options` and the fields that they set; NULL: ignored, since server options
 * decide. */
static const struct {
    const char *name, *field;
} ollama_options[] = {
    {"frequency_penalty", "frequency_penalty"},
    {"main_gpu", NULL},
    {"min_p", "min_p"},
    {"mirostat", "mirostat"},
    {"mirostat_eta", "mirostat_eta"},
    {"mirostat_tau", "mirostat_tau"},
    {"num_batch", NULL},
    {"num_ctx", NULL},
    {"num_gpu", NULL},
    {"num_keep", NULL},
    {"num_predict", "max_tokens"},
    {"num_thread", NULL},
    {"numa", NULL},
    {"presence_penalty", "presence_penalty"},
    {"repeat_last_n", NULL},
    {"repeat_penalty", "repetition_penalty"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"typical_p", "typical_p"},
    {"use_mlock", NULL},
    {"use_mmap", NULL},
};

enum { N_OLLAMA_OPTIONS = (int)(sizeof ollama_options / sizeof *ollama_options) };

static quire_err read_ollama_set_option(quire_request *r, uint32_t base, const char *name,
                                        const json_value *v, strbuf *text, quire_error *err) {
    int64_t n = 0;
    for (int i = 0; i < N_OLLAMA_OPTIONS; i++) {
        const char *field = ollama_options[i].field;
        if (strcmp(ollama_options[i].name, name) != 0) {
            continue;
        }
        /* negative: no limit */
        bool is_default = strcmp(name, "num_predict") == 0 && json_whole(v, &n) && n < 0;
        return field == NULL || v == NULL || is_default ? QUIRE_OK
                                                        : read_ollama_set(r, base, field, v, text, err);
    }
    return err_set(err, request_ignore(r, "options.", str_of(name)), -1, "out of memory");
}

static quire_err read_ollama_set_options(quire_request *r, uint32_t base, const json_value *options,
                                         strbuf *text, quire_error *err) {
    for (json_member m = {0}; options != NULL && json_next(options, &m);) {
        quire_err e = read_ollama_set_option(r, base, m.name, m.value, text, err);
        if (e == QUIRE_BAD_REQUEST) {
            (void)snprintf(err->param, sizeof err->param, "options.%.50s", m.name);
        }
        TRY(e);
    }
    return QUIRE_OK;
}

static quire_err read_ollama_set_common(quire_request *r, uint32_t base, strbuf *text, quire_error *err) {
    TRY(read_ollama_set_options(r, base, request_part(r, "options"), text, err));
    TRY(read_ollama_set_format(r, base, request_part(r, "format"), text, err));
    return base == FIELD_CHAT ? read_ollama_set_think(r, request_part(r, "think"), text, err) : QUIRE_OK;
}

/* ---- the dialects ---- */

quire_err request_assemble_ollama_chat(quire_request *r, quire_error *err) {
    strbuf text = {0};
    const json_value *messages = request_part(r, "messages"), *tools = request_part(r, "tools");
    quire_err e = messages != NULL ? read_ollama_set_messages(r, messages, err) : QUIRE_OK;
    if (e == QUIRE_OK && json_length(tools) > 0) {
        e = read_ollama_set(r, FIELD_CHAT, "tools", tools, &text, err);
    }
    TRY_DONE(e, read_ollama_set_common(r, FIELD_CHAT, &text, err));
done:
    strbuf_deinit(&text);
    return e;
}

quire_err request_assemble_ollama_generate(quire_request *r, quire_error *err) {
    strbuf text = {0};
    const json_value *prompt = request_part(r, "prompt"), *suffix = request_part(r, "suffix"),
                     *raw = request_part(r, "raw");
    bool was_raw = r->g.info.endpoint == QUIRE_OLLAMA_RAW, fills = json_str(suffix).n > 0,
         is_raw = fills || (raw != NULL ? json_truth(raw) : was_raw);
    uint32_t base = is_raw ? FIELD_COMPLETIONS : FIELD_CHAT;
    quire_err e = QUIRE_OK;
    if (json_length(request_part(r, "images")) > 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "images",
                             "images is given; this server takes only text");
    }
    request_become(r, is_raw ? QUIRE_OLLAMA_RAW : QUIRE_OLLAMA_GENERATE);
    if (is_raw) {
        if (prompt != NULL) {
            TRY_DONE(e, read_ollama_set(r, base, "prompt", prompt, &text, err));
        }
        if (fills) {
            TRY_DONE(e, read_ollama_set(r, base, "suffix", suffix, &text, err));
        }
    } else if (json_str(prompt).n > 0) {
        e = read_ollama_set_prompt(r, json_str(prompt), json_str(request_part(r, "system")), err);
    }
    TRY_DONE(e, read_ollama_set_common(r, base, &text, err));
done:
    strbuf_deinit(&text);
    return e;
}

quire_err request_check_ollama_rows(quire_request *r, quire_error *err) {
    assert(r != NULL);
    bool is_divided = r->g.info.endpoint == QUIRE_OLLAMA_EMBED && r->context.pooling.n_scores == 0;
    r->normalize = is_divided;
    r->g.truncate_prompt_tokens = r->truncates ? -1 : GENERATION_UNCUT;
    return request_check_embedding(r, err);
}

quire_err request_read_ollama_model(quire_request *r, const field_desc *f, const json_value *v,
                                    quire_error *err) {
    static const char latest[] = ":latest";
    size_t tag = sizeof latest - 1;
    TRY(request_read_model(r, f, v, err));
    str name = v != NULL ? json_str(v) : (str){0};
    if (name.n > tag && memcmp(name.p + name.n - tag, latest, tag) == 0) {
        name.n -= tag;
        strbuf_clear(&r->model);
        if (strbuf_add(&r->model, name.p, name.n) != QUIRE_OK) {
            return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory");
        }
        r->g.info.model = r->model.p;
    }
    return QUIRE_OK;
}

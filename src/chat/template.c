#include "chat/template.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/jinja.h"
#include "text/marker.h"

struct chat_template {
    jinja_program *program;
    chat_content content;
};

_Static_assert(MARK_EDGE_BEFORE == JINJA_FIRST_MARK, "comparisons leave out exactly the marks");

#define PROBE "quire probes content"

/* True when a user's message with this content (JSON) is rendered as its text, not as the list's repr. */
static bool takes(const chat_template *t, const char *content) {
    strbuf variables = {0}, out = {0};
    quire_err e = strbuf_addf(
        &variables,
        "{\"messages\":[{\"role\":\"user\",\"content\":%s}],\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\","
        "\"tools\":null,\"documents\":null}",
        content);
    e = e == QUIRE_OK ? chat_template_render(t, (str){variables.p, variables.n}, &out, NULL) : e;
    bool found =
        e == QUIRE_OK && out.n > 0 && strstr(out.p, PROBE) != NULL && strstr(out.p, "'type'") == NULL && strstr(out.p, "\"type\"") == NULL;
    strbuf_deinit(&variables);
    strbuf_deinit(&out);
    return found;
}

static quire_err define_token(chat_template *t, const marker *m, const char *name, str text) {
    strbuf marked = {0};
    quire_err e = marker_write(m, text, &marked);
    e = e == QUIRE_OK ? jinja_define(t->program, name, (str){marked.n > 0 ? marked.p : "", marked.n}) : e;
    strbuf_deinit(&marked);
    return e;
}

static quire_err write_marked(const void *m, str literal, strbuf *out) {
    return marker_write(m, literal, out);
}

static quire_err compile_with(chat_template *t, str source, const chat_tokens *tokens, const marker *m, quire_error *err) {
    /* As transformers renders chat templates. */
    jinja_options options = {.trim_blocks = true, .lstrip_blocks = true, .marker = {.write = write_marked, .context = m}};
    TRY(jinja_open(source, options, &t->program, err));
    quire_err e = define_token(t, m, "bos_token", tokens->bos);
    e = e == QUIRE_OK ? define_token(t, m, "eos_token", tokens->eos) : e;
    return e == QUIRE_OK ? e : err_set(err, e, -1, "out of memory for a chat template");
}

static quire_err compile(chat_template *t, str source, const chat_tokens *tokens, quire_error *err) {
    strbuf clean = {0};
    marker m = {0};
    quire_err e = marker_open(tokens->tokenizer, &m);
    if (e == QUIRE_OK && !utf8_is_valid(source)) { /* otherwise its bytes might be read as marks */
        e = utf8_add_lossy(&clean, source);
        source = (str){clean.p, clean.n};
    }
    e = e == QUIRE_OK ? compile_with(t, source, tokens, &m, err) : err_set(err, e, -1, "out of memory for a chat template");
    strbuf_deinit(&clean);
    marker_deinit(&m);
    return e;
}

quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err) {
    *out = NULL;
    chat_template *t = mem_new(1, sizeof *t);
    TRY(mem_check_for(t, "a chat template", err));
    quire_err e = compile(t, source, tokens, err);
    if (e != QUIRE_OK) {
        chat_template_close(t);
        return e;
    }
    bool text = takes(t, "\"" PROBE "\""), parts = takes(t, "[{\"type\":\"text\",\"text\":\"" PROBE "\"}]");
    t->content = !parts ? CHAT_CONTENT_TEXT : text ? CHAT_CONTENT_BOTH : CHAT_CONTENT_PARTS;
    *out = t;
    return QUIRE_OK;
}

void chat_template_close(chat_template *t) {
    if (t != NULL) {
        jinja_close(t->program);
        mem_free(t);
    }
}

quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, quire_error *err) {
    quire_err e = jinja_render(t->program, variables_json, NULL, out, err);
    if (e != QUIRE_OK && err != NULL) {
        marks_strip(err->message);
    }
    return e;
}

chat_content chat_template_content(const chat_template *t) {
    return t->content;
}

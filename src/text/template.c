#include "text/template.h"

#include "base/mem.h"
#include "text/jinja.h"

struct chat_template {
    jinja_program *program;
    chat_content content;
};

#define PROBE "quire probes content"

/* Whether a user's message with this content (JSON) comes out as its text, and not as a picture of the list. */
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

quire_err chat_template_open(str source, chat_template **out, quire_error *err) {
    *out = NULL;
    chat_template *t = mem_new(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a chat template");
    }
    /* As transformers renders chat templates. */
    quire_err e = jinja_open(source, (jinja_options){.trim_blocks = true, .lstrip_blocks = true}, &t->program, err);
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
    return jinja_render(t->program, variables_json, NULL, out, err);
}

chat_content chat_template_content(const chat_template *t) {
    return t->content;
}

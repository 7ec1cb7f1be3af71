#include "text/template.h"

#include "base/mem.h"
#include "text/jinja.h"

struct chat_template {
    jinja_program *program;
    bool wants_parts;
};

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
    t->wants_parts = jinja_loops_over_member(t->program, "content");
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

bool chat_template_wants_parts(const chat_template *t) {
    return t->wants_parts;
}

#include "chat/template.h"

#include <assert.h>

#include "base/mem.h"
#include "jinja/jinja.h"

struct chat_template {
    jinja_program *program;
    chat_traits traits;
    str source; /* owned */
};

/* Names of roles, which templates put inside their own tokens, "<|" + role + "|>". */
static const char *const roles[] = {"system",  "developer",   "user",        "assistant", "tool", "function",
                                    "ipython", "observation", "environment", "model",     "human"};

static quire_err template_compile(chat_template *t, str source, const chat_tokens *tokens, quire_error *err) {
    /* As transformers renders chat templates. */
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

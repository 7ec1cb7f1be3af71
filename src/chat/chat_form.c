#include "chat/chat_form.h"

#include <assert.h>

#include "base/mem.h"
#include "jinja/jinja.h"

#define TURN_START "<|im_start|>"
#define TURN_END   "<|im_end|>"

static const char chatml[] = "{% for m in messages %}{{ '" TURN_START
                             "' + m['role'] + '\n' + m['content'] + '" TURN_END "\n' }}{% endfor %}"
                             "{% if add_generation_prompt %}{{ '" TURN_START "assistant\n' }}{% endif %}";

static const char plain[] =
    "{% for m in messages %}{{ m['role'] + ':\n' + m['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}";

/* The id of a special token, or -1. */
static int32_t special(const tokenizer *t, const char *text) {
    int32_t id = t != NULL ? tokenizer_find(t, str_of(text)) : -1;
    return id >= 0 && tokenizer_is_special(t, id) ? id : -1;
}

static quire_err open_chatml(const chat_tokens *tokens, chat_form *f, quire_error *err) {
    f->name = "chatml";
    f->end_token = special(tokens->tokenizer, TURN_END);
    return chat_template_open(str_of(chatml), tokens, &f->template, err);
}

static quire_err open_plain(const chat_tokens *tokens, chat_form *f, quire_error *err) {
    /* With and without the empty line, so that it is not shown: if two end at the same
     * place, the longer one counts. */
    static const char *const stops[CHAT_FORM_STOPS] = {
        "\n\nuser:", "\nuser:", "\n\nassistant:", "\nassistant:"};
    f->name = "plain";
    for (; f->n_stops < CHAT_FORM_STOPS; f->n_stops++) {
        f->stops[f->n_stops] = str_of(stops[f->n_stops]);
    }
    return chat_template_open(str_of(plain), tokens, &f->template, err);
}

static quire_err open_default(const char *given, str own, chat_form *f, quire_error *refused,
                              quire_error *err) {
    if (given != NULL) {
        return chat_template_open(str_of(given), &f->tokens, &f->template, err);
    }
    if (own.n > 0) {
        quire_err e = chat_template_open(own, &f->tokens, &f->template, refused);
        if (e == QUIRE_OK || e == QUIRE_NO_MEMORY) {
            return err_set(err, e, -1, "out of memory for a chat template");
        }
    }
    const tokenizer *t = f->tokens.tokenizer;
    bool has_turns = special(t, TURN_START) >= 0 && special(t, TURN_END) >= 0;
    return has_turns ? open_chatml(&f->tokens, f, err) : open_plain(&f->tokens, f, err);
}

quire_err chat_form_open(const char *given, str own, const chat_tokens *tokens, chat_form *out,
                         quire_error *refused, quire_error *err) {
    *out = (chat_form){.name = given != NULL ? "file" : "model", .end_token = -1, .tokens = *tokens};
    *refused = (quire_error){0};
    out->tokens.others = out->set = mem_new(1, sizeof *out->set);
    TRY(mem_check_for(out->set, "chat templates", err));
    TRY(open_default(given, own, out, refused, err));
    chat_template_publish(out->template, str_of("default"), out->set);
    chat_template_probe(out->template); /* it may include itself */
    return QUIRE_OK;
}

quire_err chat_form_add(chat_form *f, const chat_source *s, quire_error *err) {
    assert(f != NULL);
    if (f->n_named == CHAT_FORM_TEMPLATES) {
        return QUIRE_OK;
    }
    char *name = mem_dup(s->name.p, s->name.n);
    TRY(mem_check_for(name, "a chat template", err));
    chat_named *to = &f->named[f->n_named];
    quire_err e = chat_template_open(s->text, &f->tokens, &to->template, err);
    if (e != QUIRE_OK) {
        mem_free(name);
        return e;
    }
    to->name = (str){name, s->name.n};
    f->n_named++;
    chat_template_publish(to->template, to->name, f->set);
    chat_template_probe(f->template);
    for (size_t i = 0; i < f->n_named; i++) {
        chat_template_probe(f->named[i].template);
    }
    return QUIRE_OK;
}

const chat_template *chat_form_find(const chat_form *f, str name) {
    assert(f != NULL);
    for (size_t i = 0; i < f->n_named; i++) {
        if (str_eq(f->named[i].name, name)) {
            return f->named[i].template;
        }
    }
    return str_is(name, "default") ? f->template : NULL;
}

quire_err chat_form_names(const chat_form *f, strbuf *out) {
    TRY(strbuf_add_str(out, "default"));
    for (size_t i = 0; i < f->n_named; i++) {
        TRY(strbuf_add_str(out, i + 1 < f->n_named ? ", " : " and "));
        TRY(strbuf_add(out, f->named[i].name.p, f->named[i].name.n));
    }
    return QUIRE_OK;
}

const chat_template *chat_form_choose(const chat_form *f, str name, bool has_tools) {
    const chat_template *found = name.n > 0  ? chat_form_find(f, name)
                                 : has_tools ? chat_form_find(f, str_of("tool_use"))
                                             : NULL;
    return found != NULL ? found : f->template;
}

void chat_form_close(chat_form *f) {
    assert(f != NULL);
    for (size_t i = 0; i < f->n_named; i++) {
        mem_free((char *)f->named[i].name.p);
        chat_template_close(f->named[i].template);
    }
    chat_template_close(f->template);
    mem_free(f->set);
    *f = (chat_form){.end_token = -1};
}

#include "chat/chat_form.h"

#include <assert.h>

#include "base/mem.h"
#include "jinja/jinja.h"
#include "json/json_out.h"

#define TURN_START "<|im_start|>"
#define TURN_END   "<|im_end|>"

static const char chatml[] = "{% for m in messages %}{{ '" TURN_START
                             "' + m['role'] + '\n' + m['content'] + '" TURN_END "\n' }}{% endfor %}"
                             "{% if add_generation_prompt %}{{ '" TURN_START "assistant\n' }}{% endif %}";

static const char plain[] =
    "{% for m in messages %}{{ m['role'] + ':\n' + m['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}";

/* Returns the id of a special token, or -1. */
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
    /* each with and without the empty line before it: the longer match counts, so that
     * the empty line is not shown */
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
    chat_template_probe(out->template); /* the template may include itself by its name */
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

/* ---- a conversation's prompt text ---- */

/* Appended, with a space, to the last message's text to find its end in the rendered
 * text. If the space is missing there, the template trims texts. */
#define CONTINUE_TAG "QUIRE_CONTINUES_HERE"

/* Appends the messages, with CONTINUE_TAG and a space after the last one's text. */
static quire_err add_tagged(const chat_prompt *p, strbuf *b, quire_error *err) {
    if (p->messages->last_end == 0) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "the last message has no text to continue");
    }
    TRY(strbuf_add(b, p->messages->json.p, p->messages->last_end));
    TRY(strbuf_add_str(b, CONTINUE_TAG " "));
    return strbuf_add(b, p->messages->json.p + p->messages->last_end,
                      p->messages->json.n - p->messages->last_end);
}

/* Writes the template's variables. The members of kwargs come last, since of two members
 * with the same name the last counts. */
static quire_err add_variables(const chat_prompt *p, strbuf *b, quire_error *err) {
    const struct {
        const char *name;
        const json_value *list;
    } lists[] = {{"tools", p->tools}, {"documents", p->documents}};
    json_out o = {.to = b};
    json_begin(&o, '{');
    json_name(&o, "messages");
    TRY(p->continue_final_message ? add_tagged(p, b, err)
                                  : strbuf_add(b, p->messages->json.p, p->messages->json.n));
    json_bool(json_name(&o, "add_generation_prompt"), p->add_generation_prompt);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_name(&o, lists[i].name);
        if (lists[i].list != NULL) {
            json_add(&o, lists[i].list);
        } else {
            json_raw(&o, "null");
        }
    }
    if (p->reasoning_effort.n > 0) {
        json_text(json_name(&o, "reasoning_effort"), p->reasoning_effort.p, p->reasoning_effort.n);
    }
    if (p->verbosity.n > 0) {
        json_text(json_name(&o, "verbosity"), p->verbosity.p, p->verbosity.n);
    }
    for (json_member m = {0}; json_next(p->kwargs, &m);) {
        json_add(json_name(&o, m.name), m.value);
    }
    json_end(&o, '}');
    return o.err;
}

/* Returns the offset of the last tag in text, or text.n. */
static size_t find_tag(str text) {
    size_t n = strlen(CONTINUE_TAG);
    for (size_t i = text.n >= n ? text.n - n + 1 : 0; i-- > 0;) {
        if (memcmp(text.p + i, CONTINUE_TAG, n) == 0) {
            return i;
        }
    }
    return text.n;
}

/* Cuts text and marks (NULL: none) at the tag, and white space before it if the template
 * trims. QUIRE_BAD_REQUEST: there is no tag. */
static quire_err cut_at_tag(strbuf *text, text_marks *marks, quire_error *err) {
    size_t end = find_tag((str){text->p, text->n}), after = end + strlen(CONTINUE_TAG);
    if (end == text->n) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "the chat template omits the last message, so it cannot be continued");
    }
    if (after >= text->n || text->p[after] != ' ') {
        while (end > 0 && strchr(" \t\n\r\v\f", text->p[end - 1]) != NULL) {
            end--;
        }
    }
    text->p[end] = '\0';
    text->n = end;
    if (marks != NULL) {
        text_marks_cut(marks, end);
    }
    return QUIRE_OK;
}

quire_err chat_render(const chat_template *t, const chat_prompt *p, strbuf *out, text_marks *marks,
                      quire_error *err) {
    strbuf variables = {0};
    quire_err e = add_variables(p, &variables, err);
    if (e == QUIRE_NO_MEMORY) {
        err_set(err, e, -1, "out of memory for the chat template's variables");
    }
    if (e == QUIRE_OK) {
        e = chat_template_render(t, (str){variables.p, variables.n}, out, marks, err);
    }
    if (e == QUIRE_OK && p->continue_final_message) {
        e = cut_at_tag(out, marks, err);
        if (e != QUIRE_OK) {
            strbuf_clear(out);
        }
    }
    strbuf_deinit(&variables);
    return e;
}

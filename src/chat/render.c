#include "chat/render.h"

#include "json/json_out.h"

/* Put after the last message's content to find where that ends in the rendered text; the
 * space shows whether the template trims. */
#define CONTINUE_TAG "QUIRE_CONTINUES_HERE"

/* Appends the messages with the tag after the last one's text. */
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

/* A variable of ours, unless kwargs has it. Returns whether its value is to be
 * written. */
static bool render_add_name(const chat_prompt *p, json_out *o, const char *name) {
    if (json_has(p->kwargs, name)) {
        return false;
    }
    json_name(o, name);
    return true;
}

/* {"messages": ..., "add_generation_prompt": ..., ...}; kwargs has members of its own and
 * goes before ours. */
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
    if (render_add_name(p, &o, "add_generation_prompt")) {
        json_bool(&o, p->add_generation_prompt);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_name(&o, lists[i].name);
        if (lists[i].list != NULL) {
            json_add(&o, lists[i].list);
        } else {
            json_raw(&o, "null");
        }
    }
    if (p->reasoning_effort.n > 0 && render_add_name(p, &o, "reasoning_effort")) {
        json_text(&o, p->reasoning_effort.p, p->reasoning_effort.n);
    }
    if (p->verbosity.n > 0 && render_add_name(p, &o, "verbosity")) {
        json_text(&o, p->verbosity.p, p->verbosity.n);
    }
    for (json_member m = {0}; json_next(p->kwargs, &m);) {
        json_add(json_name(&o, m.name), m.value);
    }
    json_end(&o, '}');
    return o.err;
}

/* The last offset of the tag in text, or text.n. */
static size_t find_tag(str text) {
    size_t n = strlen(CONTINUE_TAG);
    for (size_t i = text.n >= n ? text.n - n + 1 : 0; i-- > 0;) {
        if (memcmp(text.p + i, CONTINUE_TAG, n) == 0) {
            return i;
        }
    }
    return text.n;
}

/* Cuts text and marks (NULL: none) at the tag. Where the template trimmed the space after
 * the tag, it would have trimmed the text too. */
static quire_err cut_at_tag(strbuf *text, text_marks *marks, quire_error *err) {
    size_t end = find_tag((str){text->p, text->n}), after = end + strlen(CONTINUE_TAG);
    if (end == text->n) {
        return err_set_param(err, QUIRE_BAD_REQUEST, "continue_final_message",
                             "the chat template leaves the last message out, so it cannot be continued");
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

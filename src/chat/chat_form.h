/* How a model's conversations are written, and what ends an answer: by a template, or by
 * one of two built-in forms for models without one.
 *
 *   given   the operator's template
 *   model   the model's own template
 *   chatml  no template, but the tokens <|im_start|> and <|im_end|> exist: a turn is
 *           <|im_start|>ROLE, a line break, the text, <|im_end|>
 *   plain   no template: a turn is a line "ROLE:", the text, an empty line. The user's
 *           next turn, which the model may write, ends its answer
 *
 * Immutable after open: any thread. */
#ifndef CHAT_FORM_H
#define CHAT_FORM_H

#include "chat/messages.h"

#define CHAT_FORM_STOPS     4
#define CHAT_FORM_TEMPLATES 16

/* The text of a template and its name, such as "default", "tool_use" or "rag". */
typedef struct chat_source {
    str name, text;
} chat_source;

typedef struct chat_named {
    str name; /* owned */
    chat_template *template;
} chat_named;

typedef struct chat_form {
    chat_template *template;               /* owned; NULL: not open */
    chat_named named[CHAT_FORM_TEMPLATES]; /* the model's other templates */
    size_t n_named;
    struct jinja_set *set; /* owned; `template` and `named` by their names */
    chat_tokens tokens;
    const char *name;           /* "file" (given), "model", "chatml" or "plain" */
    str stops[CHAT_FORM_STOPS]; /* constant strings that end an answer, beside the request's */
    int32_t n_stops;
    int32_t end_token; /* a token that ends an answer, in addition to the model's own; -1: none */
} chat_form;

/* Opens the form: with the given template or, if that is NULL, the model's own or, if
 * that is empty or refused, a built-in form. *refused: why the model's own template was
 * refused, or QUIRE_OK. Errors as chat_template_open. Close *out even after an error. */
quire_err chat_form_open(const char *given, str own, const chat_tokens *tokens, chat_form *out,
                         quire_error *refused, quire_error *err);
/* Adds a named template of the model, if there is room; copies its name. Errors as
 * chat_template_open: f is unchanged. */
quire_err chat_form_add(chat_form *f, const chat_source *s, quire_error *err);
/* Returns the template with a name, or NULL. "default" is f->template, unless the model
 * has a named template "default". */
const chat_template *chat_form_find(const chat_form *f, str name);
/* Appends the names of all templates, for an error message. QUIRE_NO_MEMORY. */
quire_err chat_form_names(const chat_form *f, strbuf *out);
/* Returns a request's template: the one it names; if it names none and has tools,
 * "tool_use"; else, or if that does not exist, f->template. */
const chat_template *chat_form_choose(const chat_form *f, str name, bool has_tools);
void chat_form_close(chat_form *f);

/* ---- a conversation's prompt text, by its template ---- */

typedef struct chat_prompt {
    const chat_messages *messages;
    /* further variables, which override others of the same name: an object without the
     * members messages, tools and documents; NULL: none */
    const json_value *kwargs;
    const json_value *tools, *documents; /* arrays; NULL: none */
    str reasoning_effort, verbosity;     /* empty: not given */
    bool add_generation_prompt;
    bool continue_final_message; /* end the prompt after the text of the last message */
} chat_prompt;

/* Renders a conversation's prompt. The template's variables are messages,
 * add_generation_prompt, tools, documents, reasoning_effort and verbosity if given, and
 * kwargs. *out must be empty; *marks as for chat_template_render. Errors as there, and
 * QUIRE_BAD_REQUEST with param continue_final_message if there is no text to continue;
 * *out is then empty. Any thread. */
quire_err chat_render(const chat_template *t, const chat_prompt *p, strbuf *out, text_marks *marks,
                      quire_error *err);

#endif

/* The form of a model's chats: its template, or one of two forms for models without one,
 * and what ends an answer.
 *
 *   given   by the operator: the template alone
 *   model   the model's own: the template alone
 *   chatml there is no template, but the tokens <|im_start|> and <|im_end|> exist: a turn is
 *           <|im_start|>ROLE, a line break, the text, <|im_end|>
 *   plain there is no template: a turn is a line "ROLE:", the text, an empty line. What
 *   the
 *           model writes as the user's next turn ends its answer
 *
 * Immutable after open: any thread. */
#ifndef CHAT_FORM_H
#define CHAT_FORM_H

#include "chat/messages.h"

#define CHAT_FORM_STOPS     4
#define CHAT_FORM_TEMPLATES 16

/* A template with its name, such as "default", "tool_use" or "rag". */
typedef struct chat_source {
    str name, text;
} chat_source;

typedef struct chat_named {
    str name; /* owned */
    chat_template *template;
} chat_named;

typedef struct chat_form {
    chat_template *template;               /* owned; NULL: no chat */
    chat_named named[CHAT_FORM_TEMPLATES]; /* the model's other templates */
    size_t n_named;
    struct jinja_set *set; /* owned; all of these by name */
    chat_tokens tokens;
    const char *name;           /* "file" (given), "model", "chatml" or "plain" */
    str stops[CHAT_FORM_STOPS]; /* constant; strings that end an answer, in addition to the request's */
    int32_t n_stops;
    int32_t end_token; /* a token that ends an answer, in addition to the model's own; -1: none */
} chat_form;

/* Opens the form with the given template (NULL: none), or else the model's own (empty:
 * none), or else without a template. *refused: why the model's own could not be used,
 * otherwise code QUIRE_OK. Errors of a given template as chat_template_open;
 * QUIRE_NO_MEMORY. Close *out in any case. */
quire_err chat_form_open(const char *given, str own, const chat_tokens *tokens, chat_form *out,
                         quire_error *refused, quire_error *err);
/* Adds one of the model's templates beside its default one, if there is room; its name is
 * copied. Errors as chat_template_open: f is unchanged. */
quire_err chat_form_add(chat_form *f, const chat_source *s, quire_error *err);
/* The template of that name ("default": the first), or NULL. */
const chat_template *chat_form_find(const chat_form *f, str name);
/* Appends the names of all templates, for an error. QUIRE_NO_MEMORY. */
quire_err chat_form_names(const chat_form *f, strbuf *out);
/* Chooses a request's template: the named one (empty: none named), else "tool_use" if
 * it has tools and there is one, else the first. */
const chat_template *chat_form_choose(const chat_form *f, str name, bool has_tools);
void chat_form_close(chat_form *f);

/* ---- a conversation's prompt text, by its template ---- */

typedef struct chat_prompt {
    const chat_messages *messages;
    const json_value *
        /* an object without the members messages, tools and documents, or NULL: variables
         * that go before those below */
        kwargs;
    const json_value *tools, *documents; /* arrays; NULL: none */
    str reasoning_effort, verbosity;     /* empty: not given */
    bool add_generation_prompt;
    bool continue_final_message; /* the text ends where the last message's text does */
} chat_prompt;

/* The template's variables are messages, add_generation_prompt, tools, documents,
 * reasoning_effort and verbosity where they are given, and kwargs. *out, which is empty,
 * and *marks as chat_template_render has them. Errors as there, and QUIRE_BAD_REQUEST
 * with param continue_final_message where there is no text to continue; *out is then
 * empty. Any thread. */
quire_err chat_render(const chat_template *t, const chat_prompt *p, strbuf *out, text_marks *marks,
                      quire_error *err);

#endif

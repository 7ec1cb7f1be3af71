/* Render: a conversation's prompt text, by its template. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include <stdbool.h>

#include "chat/messages.h"
#include "chat/template.h"

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

/* Render: a conversation's prompt text, by its template. */
#ifndef CHAT_RENDER_H
#define CHAT_RENDER_H

#include <stdbool.h>

#include "chat/messages.h"

typedef struct chat_prompt {
    const chat_messages *messages;
    const json_value *kwargs; /* an object without a member "messages", or NULL: variables that go before those below */
    bool add_generation_prompt;
    bool continue_final_message; /* the text ends where the last message's text does */
} chat_prompt;

/* The template's variables are messages, add_generation_prompt, tools and documents (none), and kwargs. Appends to *out, with marks
 * (text/marks.h). Errors as chat_template_render, and QUIRE_BAD_REQUEST with param continue_final_message where there is no text to
 * continue; *out is then as it was. Any thread. */
quire_err chat_render(const chat_template *t, const chat_prompt *p, strbuf *out, quire_error *err);

#endif

/* Chat templates: a Jinja subset, compiled once and rendered per request.
 *
 * Immutable after open: any thread may render. Both templates and values are hostile: depth, steps and output bytes are bounded. What the
 * language has and this subset lacks is refused at open with line and column, never guessed. What is rendered has marks (text/marks.h) that
 * tell the template's own special tokens from a client's text. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "base/str.h"
#include "text/tokenizer.h"

typedef struct chat_template chat_template;

/* The special tokens of a template. */
typedef struct chat_tokens {
    const tokenizer *tokenizer; /* its control tokens are marked at open; NULL: none */
    str bos, eos;               /* the variables bos_token and eos_token */
} chat_tokens;

/* Compiles; err has "line L, column C: what". tokens is copied. */
quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Renders with the variables of the JSON object variables_json (messages, tools, add_generation_prompt, ...; JSON null is None), and with
 * bos_token and eos_token where it has none. Appends to *out, with marks for marks_take. A template's raise_exception() gives
 * QUIRE_BAD_REQUEST with its message. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, quire_error *err);
/* The forms of a message's content that a template renders: texts, lists of parts ({"type": "text", "text": ...}), or both. */
typedef enum chat_content { CHAT_CONTENT_TEXT, CHAT_CONTENT_PARTS, CHAT_CONTENT_BOTH } chat_content;

/* Found at open by rendering a message of each form. CHAT_CONTENT_TEXT where neither is rendered. */
chat_content chat_template_content(const chat_template *t);

#endif

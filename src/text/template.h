/* Chat templates: a Jinja subset, compiled once and rendered per request.
 *
 * Immutable after open: any thread may render. Both templates and values are hostile: depth, steps and output bytes are bounded. What the
 * language has and this subset lacks is refused at open with line and column, never guessed. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include "base/str.h"

typedef struct chat_template chat_template;

/* Compiles; err has "line L, column C: what". */
quire_err chat_template_open(str source, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Renders with the variables of the JSON object variables_json (messages, tools, add_generation_prompt, bos_token, ...; JSON null is None).
 * Appends to *out. A template's raise_exception() gives QUIRE_BAD_REQUEST with its words. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, quire_error *err);
/* What a template can do with a message's content: texts, lists of parts ({"type": "text", "text": ...}), or both. */
typedef enum chat_content { CHAT_CONTENT_TEXT, CHAT_CONTENT_PARTS, CHAT_CONTENT_BOTH } chat_content;

/* Found at open by rendering a message of each form; CHAT_CONTENT_TEXT where neither comes out. */
chat_content chat_template_content(const chat_template *t);

#endif

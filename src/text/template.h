/* Chat templates: a Jinja subset, compiled once and rendered per request.
 *
 * Immutable after open: any thread may render. Both templates and values are hostile: depth, steps and output bytes are bounded. What the
 * language has and this subset lacks is refused at open with line and column, never guessed. */
#ifndef TEXT_TEMPLATE_H
#define TEXT_TEMPLATE_H

#include <stdbool.h>

#include "base/str.h"

typedef struct chat_template chat_template;

/* Compiles; err has "line L, column C: what". */
quire_err chat_template_open(str source, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Renders with the variables of the JSON object variables_json (messages, tools, add_generation_prompt, bos_token, ...; JSON null is None).
 * Appends to *out. A template's raise_exception() gives QUIRE_BAD_REQUEST with its words. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, quire_error *err);
/* Whether the template iterates over a message's content, so that it wants a list of parts there and not text. */
bool chat_template_wants_parts(const chat_template *t);

#endif

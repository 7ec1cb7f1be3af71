/* Chat templates: Jinja, compiled once and rendered per request.
 *
 * Immutable after open: any thread may render. Both templates and values are hostile:
 * depth, steps and output bytes are bounded. What is rendered has marks (text/added.h)
 * that tell what the template wrote from a client's text. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "base/str.h"
#include "chat/traits.h"
#include "text/tokenizer.h"

typedef struct chat_template chat_template;
struct jinja_program;

/* The special tokens of a template, and the templates that it may include, import or
 * extend. */
typedef struct chat_tokens {
    const tokenizer *tokenizer;     /* NULL: none */
    str bos, eos;                   /* the variables bos_token and eos_token */
    const struct jinja_set *others; /* of chat_template_publish; outlives the template; NULL: none */
} chat_tokens;

/* Compiles; err has "line L, column C: what". tokens is copied. */
quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Adds t to a set under a name, which lives as long; beyond its room nothing is added.
 * Before renders of any template of the set. */
void chat_template_publish(const chat_template *t, str name, struct jinja_set *set);
/* Finds its traits again, where they may depend on others that were published since. */
void chat_template_probe(chat_template *t);
/* Renders with the variables of the JSON object variables_json (messages, tools,
 * add_generation_prompt, ...; JSON null is None), and with bos_token and eos_token where
 * it has none. Appends to *out, which is empty where marks are wanted, and fills *marks
 * (NULL: not wanted), which the caller zeroes before and deinits, also after a failure:
 * what came from the variables is a client's, but for the published names of roles. A
 * template's raise_exception() gives QUIRE_BAD_REQUEST with its message. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, text_marks *marks,
                               quire_error *err);
/* The text that it was compiled from. Lives as long as the template. */
str chat_template_source(const chat_template *t);
/* How it takes messages. Lives as long as the template. */
const chat_traits *chat_template_traits(const chat_template *t);
/* Finds how a template takes messages, by rendering up to some 40 conversations of a few
 * words, all in the steps of one render. What was not tried when they are taken has the
 * traits of zero. chat_template_open and chat_template_probe call it. */
chat_traits chat_template_find_traits(const struct jinja_program *program);

#endif

/* Chat templates: Jinja, compiled once and rendered per request.
 *
 * Immutable after open: any thread may render. Both templates and values are untrusted:
 * depth, steps and output bytes are limited. The rendered text has marks (text/added.h)
 * that distinguish the template's text from a client's. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include <stdbool.h>

#include "base/str.h"
#include "text/tokenizer.h"

/* ---- traits ---- */

/* Traits: the form in which a chat template takes the messages of a conversation.
 *
 * Templates differ in what they expect: a content as text or as parts, a call's arguments
 * as an object or as JSON text, null or "" next to calls. A template is probed for them
 * when it is opened (template.c); its name and source do not matter. Zero-initialised:
 * texts, objects, no nulls, the roles system, user, assistant and tool. */

/* The forms of a message's content that a template renders: texts, lists of parts
 * ({"type": "text", "text": ...}), or both. */
typedef enum chat_content { CHAT_CONTENT_TEXT, CHAT_CONTENT_PARTS, CHAT_CONTENT_BOTH } chat_content;

/* The roles that traits distinguish. Any other role counts as the user's. */
typedef enum chat_role { CHAT_USER, CHAT_SYSTEM, CHAT_ASSISTANT, CHAT_TOOL, CHAT_N_ROLES } chat_role;

/* The content of an assistant's message that has calls and no text. */
typedef enum chat_no_text {
    CHAT_NO_TEXT_EMPTY, /* "": with null the template fails, or writes it */
    CHAT_NO_TEXT_GIVEN, /* null or "", whichever the client sent */
    CHAT_NO_TEXT_NULL   /* null: with "" the template leaves the calls out */
} chat_no_text;

typedef struct chat_traits {
    chat_content content[CHAT_N_ROLES];
    chat_no_text no_text;
    bool text_arguments; /* a call's arguments are JSON text; false: an object */
    /* arguments that are not an object can be passed as text, which is written
     * unchanged */
    bool loose_arguments;
    bool needs_ids; /* a call without an id is lost, or ends the rendering */
    bool short_ids; /* ids of calls have nine letters and digits */
    bool developer; /* the role exists; false: its messages become the system's */
    bool function;  /* the role exists; false: its messages become a tool's */
    /* the member that an assistant's reasoning is read from; NULL: none was found.
     * Constant */
    const char *reasoning;
    /* it is a part of the content, {"type": "thinking", "thinking": ..}; then reasoning
     * is NULL */
    bool reasoning_part;
} chat_traits;

/* ---- template ---- */

typedef struct chat_template chat_template;
struct jinja_program;

/* The special tokens of a template, and the templates that it may include, import or
 * extend. */
typedef struct chat_tokens {
    const tokenizer *tokenizer; /* NULL: none */
    str bos, eos;               /* the variables bos_token and eos_token */
    /* set filled by chat_template_publish; outlives the template; NULL: none */
    const struct jinja_set *others;
} chat_tokens;

/* Compiles; err has "line L, column C: what". tokens is copied. */
quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Adds t to a set under a name, which must live as long; a full set is unchanged. Call it
 * before any template of the set is rendered. */
void chat_template_publish(const chat_template *t, str name, struct jinja_set *set);
/* Probes its traits again: they may depend on templates that were added since. */
void chat_template_probe(chat_template *t);
/* Renders with the variables of the JSON object variables_json (messages, tools,
 * add_generation_prompt, ...; JSON null is None), and with bos_token and eos_token if it
 * lacks them. Appends to *out, which must be empty if marks are wanted, and fills *marks
 * (NULL: not wanted), which the caller zeroes before and deinits, also after a failure:
 * text from the variables is a client's, except the published names of roles. A
 * template's raise_exception() gives QUIRE_BAD_REQUEST with its message. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, text_marks *marks,
                               quire_error *err);
/* The text from which the template was compiled; lives as long as the template. */
str chat_template_source(const chat_template *t);
/* The form in which the template takes messages; lives as long as the template. */
const chat_traits *chat_template_traits(const chat_template *t);
/* Finds how a template takes messages, by rendering up to about 40 conversations of a few
 * words, all within the step limit of one render. Traits not reached within it are zero.
 * chat_template_open and chat_template_probe call it. */
chat_traits chat_template_find_traits(const struct jinja_program *program);

#endif

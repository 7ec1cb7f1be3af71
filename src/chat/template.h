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
 * Templates differ in what they expect: content as text or as parts, a call's arguments
 * as an object or as JSON text, null or "" as the content beside calls. Opening a
 * template probes it for its traits by rendering; its name and source do not matter.
 * Zero: texts, objects, no nulls, the roles system, user, assistant and tool. */

/* The content that a template renders: a text, parts ({"type": "text", "text": ..}), or
 * both. */
typedef enum chat_content { CHAT_CONTENT_TEXT, CHAT_CONTENT_PARTS, CHAT_CONTENT_BOTH } chat_content;

/* The roles that traits distinguish. Any other role counts as CHAT_USER. */
typedef enum chat_role { CHAT_USER, CHAT_SYSTEM, CHAT_ASSISTANT, CHAT_TOOL, CHAT_N_ROLES } chat_role;

/* The content that a template needs in an assistant's message with calls and no text. */
typedef enum chat_no_text {
    CHAT_NO_TEXT_EMPTY, /* "": given null, the template fails or writes "None" */
    CHAT_NO_TEXT_GIVEN, /* null or "", whichever the client sent */
    CHAT_NO_TEXT_NULL   /* null: given "", the template leaves the calls out */
} chat_no_text;

typedef struct chat_traits {
    chat_content content[CHAT_N_ROLES];
    chat_no_text no_text;
    bool text_arguments; /* a call's arguments are JSON text; false: an object */
    /* arguments that are no object may be passed as text, which is written unchanged */
    bool loose_arguments;
    bool needs_ids; /* without an id, a call is left out or the render fails */
    bool short_ids; /* ids of calls must have nine letters and digits */
    bool developer; /* the template knows the role developer; false: it becomes system */
    bool function;  /* the template knows the role function; false: it becomes tool */
    /* member from which it reads an assistant's reasoning, constant; NULL: not found */
    const char *reasoning;
    /* the reasoning is a part of the content, {"type": "thinking", ..}; reasoning is
     * NULL */
    bool reasoning_part;
} chat_traits;

/* ---- template ---- */

typedef struct chat_template chat_template;
struct jinja_program;

/* A template's special tokens, and the templates that it may include, import or
 * extend. */
typedef struct chat_tokens {
    const tokenizer *tokenizer; /* NULL: none */
    str bos, eos;               /* the variables bos_token and eos_token */
    /* the set of chat_template_publish, which must outlive the template; NULL: none */
    const struct jinja_set *others;
} chat_tokens;

/* Compiles a template and finds its traits; copies source and tokens. Errors:
 * QUIRE_NO_MEMORY, or the template's, with "line L, column C: what" in err. */
quire_err chat_template_open(str source, const chat_tokens *tokens, chat_template **out, quire_error *err);
void chat_template_close(chat_template *t);
/* Adds t to a set, unless that is full. t and the name must live as long as the set does.
 * Call it before any template of the set is rendered. */
void chat_template_publish(const chat_template *t, str name, struct jinja_set *set);
/* Probes t's traits again if it uses other templates, since some may have been added. */
void chat_template_probe(chat_template *t);
/* Renders with the members of variables_json, a JSON object (messages, tools,
 * add_generation_prompt, ..; null is None), and bos_token and eos_token unless it has
 * them. Appends to *out, which must be empty if marks is not NULL. *marks, zeroed before
 * and owned by the caller even after a failure, gets the spans of a client's text: all
 * that comes from the variables but the names of roles. A template's raise_exception()
 * gives QUIRE_BAD_REQUEST with its message. */
quire_err chat_template_render(const chat_template *t, str variables_json, strbuf *out, text_marks *marks,
                               quire_error *err);
/* Returns the text that was compiled; it lives as long as the template. */
str chat_template_source(const chat_template *t);
/* Returns the template's traits, which live as long as the template. */
const chat_traits *chat_template_traits(const chat_template *t);
/* Finds a template's traits by rendering up to about 40 short conversations, all within
 * the step limit of one render. Traits that this limit leaves open are zero. For
 * chat_template_open and chat_template_probe. */
chat_traits chat_template_find_traits(const struct jinja_program *program);

#endif

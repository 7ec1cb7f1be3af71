/* Traits: the form in which a chat template takes the messages of a conversation.
 *
 * Templates differ in what they expect: a content as text or as parts, a call's
 * arguments as an object or as JSON text, null or "" beside calls. A template is
 * probed for them when it is opened (template_probe.c); nothing goes by its name or
 * source. Zero-initialised: texts, objects, no nulls, the roles system, user,
 * assistant and tool. */
#ifndef CHAT_TRAITS_H
#define CHAT_TRAITS_H

#include <stdbool.h>

/* The forms of a message's content that a template renders: texts, lists of parts
 * ({"type": "text", "text": ...}), or both. */
typedef enum chat_content { CHAT_CONTENT_TEXT, CHAT_CONTENT_PARTS, CHAT_CONTENT_BOTH } chat_content;

/* The roles between which traits tell. A role that is none of them counts as the
 * user's. */
typedef enum chat_role { CHAT_USER, CHAT_SYSTEM, CHAT_ASSISTANT, CHAT_TOOL, CHAT_N_ROLES } chat_role;

/* The content of an assistant's message that has calls and no text. */
typedef enum chat_no_text {
    CHAT_NO_TEXT_EMPTY, /* "": the template fails at null, or writes it */
    CHAT_NO_TEXT_GIVEN, /* null or "", as the client has it */
    CHAT_NO_TEXT_NULL   /* null: beside "" the template leaves the calls out */
} chat_no_text;

typedef struct chat_traits {
    chat_content content[CHAT_N_ROLES];
    chat_no_text no_text;
    bool text_arguments; /* a call's arguments are JSON text; false: an object */
    /* arguments that are no object can be given as the text they are, which is written
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

#endif

/* A conversation while it is read: what messages.c, messages_content.c and
 * messages_calls.c share. */
#ifndef CHAT_MESSAGES_READ_H
#define CHAT_MESSAGES_READ_H

#include "chat/messages.h"
#include "json/json_out.h"

/* The messages before i were written; i is being written. */
typedef struct conversation {
    chat_messages m;
    json_out o; /* into m.json */
    const chat_traits *traits;
    const char *path;
    size_t i;
    quire_error *err;
    const json_value *calls; /* of the last message that has some; NULL: none had */
    size_t calls_at;         /* that message */
    size_t n_results;        /* messages with results after it */
    strbuf thoughts;         /* of the parts of message i that have reasoning */
} conversation;

/* What is wrong at messages[i].MEMBER; param is PATH.I.MEMBER. QUIRE_BAD_REQUEST. */
quire_err message_error(const conversation *c, const char *member, const json_value *v, const char *what);

/* ---- messages_content.c ---- */

/* What a content is written beside. */
typedef struct content_beside {
    const json_value *refusal; /* a text that stands for a content of NULL; NULL: none */
    str reasoning;             /* that the template takes as the first of the parts; empty: none */
    bool has_calls;
} content_beside;

/* A member content, of the form that the template takes from the role; an assistant's
 * parts with reasoning are left out. content NULL: none. QUIRE_BAD_REQUEST where content
 * isn't text. */
quire_err message_write_content(conversation *c, chat_role role, const json_value *content,
                                const content_beside *beside);
/* Sets c->thoughts to the text of the parts of an assistant's content that have its
 * reasoning. QUIRE_BAD_REQUEST where that isn't text. */
quire_err message_read_thoughts(conversation *c, const json_value *content);

/* ---- messages_calls.c ---- */

/* The calls of an assistant's message: its tool_calls if it has some, else its
 * function_call; NULL: none. */
const json_value *message_calls(const json_value *message);
/* Writes the member tool_calls where the member name, with the value v, is the one that
 * has the calls, and nothing where it isn't. QUIRE_BAD_REQUEST where v is no list of
 * objects (tool_calls) or no object. */
quire_err message_write_calls(conversation *c, const json_value *calls, const char *name,
                              const json_value *v);
/* Writes the member tool_call_id of a result: the client's, else by the order of results
 * if the template needs one. */
quire_err message_write_result_id(conversation *c, const json_value *message);

#endif

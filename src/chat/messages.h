/* Messages: a client's conversation, checked and converted to the form that a chat
 * template takes. */
#ifndef CHAT_MESSAGES_H
#define CHAT_MESSAGES_H

#include "base/str.h"
#include "chat/template.h"
#include "json/json.h"

/* length of call ids, letters and digits, since some templates take no longer ones;
 * also the significant length of an id that names an answer */
#define CHAT_CALL_ID_BYTES 9

/* Zero-initialised: no conversation. */
typedef struct chat_messages {
    strbuf json; /* an array of objects with a role and a content: the template's variable of that name */
    /* ids of earlier answers, by assistant's messages that name one: the last
     * CHAT_CALL_ID_BYTES of the first call's id or, without such a call, of the
     * message's own `id`, one after the other. Shorter ids are ignored */
    strbuf turn_ids;
    size_t last_end; /* offset in json after the last message's text, inside its quotes; 0: it has no text */
} chat_messages;

/* Reads an array of messages for a template with these traits (NULL: those of zero).
 *
 * Content becomes one text (parts are joined by newlines) or a list of text parts; a
 * refusal is text. Arguments of calls become an object or JSON text; those that are not
 * an object become {} if the template cannot take them as text. function_call becomes
 * tool_calls. Roles and the name of the reasoning become the template's, and ids of calls
 * are shortened if it needs that. Members that are null are left out, as is an
 * assistant's id; all others are passed on unchanged. path: name of the array in errors
 * ("body.messages"). QUIRE_BAD_REQUEST, whose param is PATH.I.MEMBER or empty;
 * QUIRE_CANCELLED; QUIRE_NO_MEMORY. *out is zero after a failure, otherwise owned by the
 * caller. */
quire_err chat_messages_read(const json_value *array, const chat_traits *traits, const char *path,
                             chat_messages *out, quire_error *err);
void chat_messages_deinit(chat_messages *m);

#endif

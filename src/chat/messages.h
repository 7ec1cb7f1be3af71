/* A client's conversation, checked and converted for a chat template. */
#ifndef CHAT_MESSAGES_H
#define CHAT_MESSAGES_H

#include "base/str.h"
#include "chat/template.h"
#include "json/json.h"

/* Length of a shortened call id, in letters and digits: some templates accept no longer
 * one. Also the number of bytes compared at the end of an id that names an answer. */
#define CHAT_CALL_ID_BYTES 9

/* Zero-initialised: no conversation. */
typedef struct chat_messages {
    strbuf json; /* the template's variable `messages`: an array of objects */
    /* ids of the answers from which the assistant's messages were made,
     * CHAT_CALL_ID_BYTES each, concatenated: the end of the first call's id or, without
     * one, of the message's own `id`. Shorter ids are ignored */
    strbuf turn_ids;
    size_t last_end; /* offset in json of the end of the last message's text; 0: it has no text */
} chat_messages;

/* Reads an array of messages for a template with the given traits (NULL: all zero).
 *
 * Content becomes one text (parts are joined by newlines) or a list of text parts; a
 * refusal is text. Arguments of calls become an object or JSON text; if they are neither
 * an object nor allowed as text, they become {}. function_call becomes tool_calls. Roles
 * and reasoning get the template's names, and ids of calls are shortened if it needs
 * that. Null members and an assistant's id are left out; all others are passed on
 * unchanged. path: name of the array in errors ("body.messages"). QUIRE_BAD_REQUEST,
 * whose param is PATH.I.MEMBER or empty; QUIRE_CANCELLED; QUIRE_NO_MEMORY. *out is zero
 * after a failure, otherwise owned by the caller. */
quire_err chat_messages_read(const json_value *array, const chat_traits *traits, const char *path,
                             chat_messages *out, quire_error *err);
void chat_messages_deinit(chat_messages *m);

#endif

/* The turns of Anthropic's Messages API: content blocks, checked and written as the
 * messages of a chat.
 *
 *   system            -> a system's message
 *   user's blocks     -> a tool's message for each tool_result, then the user's text
 *   assistant's ones  -> one message: text, reasoning (thinking), tool_calls (tool_use)
 *
 * Messages of one role that follow each other are one turn. Texts of a turn are joined by
 * line ends. Each tool_use is answered in the turn after it, and nothing else is. */
#ifndef REQUEST_READ_TURNS_H
#define REQUEST_READ_TURNS_H

#include "request/request.h"

typedef struct turns_written {
    strbuf json;       /* an array of chat messages: the caller's, also after a failure */
    bool is_continued; /* the last one is the assistant's, which the answer continues */
} turns_written;

/* system and messages: the members as given, system NULL for none. QUIRE_BAD_REQUEST
 * names the block in param and message; QUIRE_NO_MEMORY. */
quire_err turns_write(const quire_request *r, const json_value *system, const json_value *messages,
                      turns_written *out, quire_error *err);

#endif

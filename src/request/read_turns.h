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
    bool is_continued; /* the last turn is the assistant's, which the answer continues */
} turns_written;

/* system and messages: the members as given, system NULL for none. QUIRE_BAD_REQUEST
 * names the block in param and message; QUIRE_NO_MEMORY. */
quire_err turns_write(const quire_request *r, const json_value *system, const json_value *messages,
                      turns_written *out, quire_error *err);

/* ---- signatures of reasoning that clients keep and send back: an HMAC of the text's
 * SHA-256 under the engine's key, in hexadecimal digits. Any thread ---- */

/* The key of a text that the operator gives, or a new one (NULL). */
void thought_key(const char *given, uint8_t key[SHA256_BYTES]);
/* The signature of the text with this digest, and a 0 byte. */
void thought_sign(const uint8_t key[SHA256_BYTES], const uint8_t digest[SHA256_BYTES],
                  char out[QUIRE_SIGNATURE_BYTES + 1]);
bool thought_is_signed(const uint8_t key[SHA256_BYTES], str text, str signature);

#endif

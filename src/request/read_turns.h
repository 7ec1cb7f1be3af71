/* Turns of Anthropic's Messages API: checks content blocks and rewrites them as chat
 * messages.
 *
 *   system             -> a system message
 *   user blocks        -> a tool message for each tool_result, then the user's text
 *   assistant blocks   -> one message: text, reasoning (thinking), tool_calls (tool_use)
 *
 * Consecutive messages of one role form one turn, whose texts are joined by newlines.
 * Each tool_use must be answered in the next turn, which may answer nothing else. */
#ifndef REQUEST_READ_TURNS_H
#define REQUEST_READ_TURNS_H

#include "request/request.h"

typedef struct turns_written {
    strbuf json;       /* array of chat messages; the caller owns it, even after a failure */
    bool is_continued; /* the last turn is the assistant's, and the answer continues it */
} turns_written;

/* system, messages: the request's members; system may be NULL. QUIRE_BAD_REQUEST: param
 * and message name the block. QUIRE_NO_MEMORY. */
quire_err turns_write(const quire_request *r, const json_value *system, const json_value *messages,
                      turns_written *out, quire_error *err);

/* ---- signatures of reasoning that clients keep and send back: an HMAC of the text's
 * SHA-256 under the engine's key, in hexadecimal. Any thread ---- */

/* Derives the key from the operator's secret; NULL: makes a random key. */
void thought_key(const char *given, uint8_t key[SHA256_BYTES]);
/* Writes the signature of the text with this digest, and a 0 byte. */
void thought_sign(const uint8_t key[SHA256_BYTES], const uint8_t digest[SHA256_BYTES],
                  char out[QUIRE_SIGNATURE_BYTES + 1]);
bool thought_is_signed(const uint8_t key[SHA256_BYTES], str text, str signature);

#endif

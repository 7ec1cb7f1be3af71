/* Signatures of reasoning that clients keep and send back: an HMAC of the text's SHA-256
 * under the engine's key, in hexadecimal digits. Any thread. */
#ifndef REQUEST_THOUGHT_SIGNATURE_H
#define REQUEST_THOUGHT_SIGNATURE_H

#include <stdbool.h>

#include "base/hmac.h"
#include "base/str.h"
#include "quire.h"

/* The key of a text that the operator gives, or a new one (NULL). */
void thought_key(const char *given, uint8_t key[SHA256_BYTES]);
/* The signature of the text with this digest, and a 0 byte. */
void thought_sign(const uint8_t key[SHA256_BYTES], const uint8_t digest[SHA256_BYTES],
                  char out[QUIRE_SIGNATURE_BYTES + 1]);
bool thought_is_signed(const uint8_t key[SHA256_BYTES], str text, str signature);

#endif

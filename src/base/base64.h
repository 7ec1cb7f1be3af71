/* Base64 (RFC 4648). Stateless: any thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/str.h"

/* Appends the bytes of text. The padding may be missing. QUIRE_BAD_FILE for other
 * characters, white space too, and for a length that no bytes have; *out may then hold a
 * part. */
quire_err base64_decode(str text, strbuf *out);

/* Appends the base64 of bytes, with its padding. QUIRE_NO_MEMORY: *out is unchanged. */
quire_err base64_encode(str bytes, strbuf *out);

#endif

/* API keys. Only SHA-256 digests are kept, and every one of them is compared, each in constant time, so that an answer's timing tells nothing.
 *
 * Owner: the server. Read-only once loaded: any thread may check. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

typedef struct auth auth;

/* Takes n keys, each a tenant of its own (named "key-" and the start of its digest), and, when file is not NULL, its lines "tenant:key" (empty lines and lines that start with # are skipped).
 * BAD_FILE names file and line; INVALID: an empty key; IO: the file can't be read. On failure *out is NULL. */
quire_err auth_load(const char *const *keys, int32_t n, const char *file, auth **out, quire_error *err);
void auth_free(auth *a);

/* False when no key was given: everybody may ask. */
bool auth_required(const auth *a);
/* The tenant of an Authorization header's value ("Bearer KEY"), or NULL when no key matches. Lives as long as a. */
const char *auth_check(const auth *a, str header);

/* One more key, the operator's: it opens what shows the server's inside, and is nobody's tenant. INVALID: it is empty, or one of the others. On
 * failure a is as it was. Before any thread checks. */
quire_err auth_set_operator(auth *a, const char *key, quire_error *err);
bool auth_has_operator(const auth *a);
/* Whether an Authorization header's value carries the operator's key. */
bool auth_is_operator(const auth *a, str header);

#endif

/* API keys. Only SHA-256 digests are kept, and every one of them is compared, each in constant time, so that a response's timing tells
 * nothing.
 *
 * Owner: the server. Any thread may check, also while one reloads. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "quire.h"

typedef struct auth auth;

/* Takes n keys, each a tenant of its own (named "key-" and the start of its digest), and, when file is not NULL, its lines "tenant:key"
 * (empty lines and lines that start with # are skipped). BAD_FILE names file and line; INVALID: an empty key; IO: the file can't be read.
 * On failure *out is NULL. */
quire_err auth_load(const char *const *keys, int32_t n, const char *file, auth **out, quire_error *err);
void auth_free(auth *a);

/* False when no key was given: everybody may ask. */
bool auth_required(const auth *a);
int64_t auth_count(const auth *a);
/* Copies the tenant of an Authorization header's value ("Bearer KEY"); false when no key matches. */
bool auth_check(const auth *a, str header, char tenant[QUIRE_TENANT_BYTES + 1]);
/* Loads the keys again, as auth_load does, and replaces all of them at once; the operator's stays. On failure a is as it was. One thread at
 * a time. */
quire_err auth_reload(auth *a, const char *const *keys, int32_t n, const char *file, quire_error *err);

/* One more key, the operator's: it opens what shows the server's inside, and is nobody's tenant. INVALID: it is empty, or one of the
 * others. On failure a is as it was. Before any thread checks. */
quire_err auth_set_operator(auth *a, const char *key, quire_error *err);
bool auth_has_operator(const auth *a);
/* Whether an Authorization header's value carries the operator's key. */
bool auth_is_operator(const auth *a, str header);

#endif

/* API keys: maps the key of a request to its tenant. Only SHA-256 digests are kept. Every
 * digest is compared, each in constant time, so that a response's timing reveals nothing.
 *
 * Owner: the server. Any thread may check, even while another reloads.
 *
 * Also parses the Host header: a web page can make its own DNS name resolve to this
 * machine (DNS rebinding) and then read responses as same-origin. The header still
 * carries that name. An address, or a name without a dot, cannot be a page's DNS name. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "quire.h"

typedef struct auth auth;

/* Loads n keys, each a tenant of its own (named "key-" and the start of its digest). When
 * file is not NULL, also loads its lines "tenant:key" (empty lines and lines that start
 * with # are skipped). White space around a name or a key is not part of it. BAD_FILE
 * names file and line; INVALID: an empty key; IO: the file can't be read. Then *out is
 * NULL. */
quire_err auth_load(const char *const *keys, int32_t n, const char *file, auth **out, quire_error *err);
void auth_free(auth *a);

/* False when no key was given: requests need none. */
bool auth_required(const auth *a);
int64_t auth_count(const auth *a);
/* Copies the tenant of an Authorization header ("Bearer KEY"); false: no key matches. */
bool auth_check(const auth *a, str header, char tenant[QUIRE_TENANT_BYTES + 1]);
/* Loads the keys again, as auth_load does, and replaces all of them at once, except the
 * operator's. On failure a is unchanged. One thread at a time. */
quire_err auth_reload(auth *a, const char *const *keys, int32_t n, const char *file, quire_error *err);

/* Adds the operator's key: it gives access to the server's internals and belongs to no
 * tenant. INVALID: it is empty, or one of the others. On failure a is unchanged. Called
 * before any thread checks. */
quire_err auth_set_operator(auth *a, const char *key, quire_error *err);
bool auth_has_operator(const auth *a);
/* True when an Authorization header's value carries the operator's key. */
bool auth_is_operator(const auth *a, str header);

/* ---- the Host header ---- */

typedef enum host_kind {
    HOST_MALFORMED,
    HOST_LOOPBACK, /* 127.0.0.0/8, ::1 or localhost */
    HOST_ADDRESS,  /* another IP address */
    HOST_LABEL,    /* a name without a dot: public DNS has none */
    HOST_NAME      /* a name with dots */
} host_kind;

/* The kind of a Host header, "name", "name:port", "[address]" or "[address]:port"; the
 * whole value must match. *name, which may be NULL, is the part before the port, without
 * brackets. */
host_kind host_parse(str header, str *name);

#endif

/* API keys: maps a request's key to its tenant. Only SHA-256 digests of keys are kept. A
 * check compares all of them, each in constant time, so timing reveals nothing.
 *
 * Owner: the server. Any thread may check keys, even while another reloads them.
 *
 * Also parses the Host header. A web page can make its own DNS name resolve to this
 * machine (DNS rebinding) and then read responses as same-origin, but the header still
 * carries that name. An address, or a name without a dot, cannot be a page's DNS name. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "quire.h"

typedef struct auth auth;

/* Loads n keys, each a tenant of its own (named "key-" and the start of its digest), and,
 * unless file is NULL, that file's lines "tenant:key" (empty lines and lines that begin
 * with # are skipped). White space around a name or key is ignored. The caller frees
 * *out. On failure *out is NULL. QUIRE_BAD_FILE names file and line; QUIRE_INVALID: an
 * empty key; QUIRE_IO: the file cannot be read; QUIRE_NO_MEMORY. */
quire_err auth_load(const char *const *keys, int32_t n, const char *file, auth **out, quire_error *err);
void auth_free(auth *a);

/* Whether requests need a key: at least one was loaded. */
bool auth_required(const auth *a);
/* The number of tenants' keys. */
int64_t auth_count(const auth *a);
/* Copies the tenant of an Authorization header ("Bearer KEY"); false: no such key. */
bool auth_check(const auth *a, str header, char tenant[QUIRE_TENANT_BYTES + 1]);
/* Loads the keys again as auth_load does, and replaces all but the operator's in one
 * step. On failure a is unchanged; errors as auth_load. One thread at a time. */
quire_err auth_reload(auth *a, const char *const *keys, int32_t n, const char *file, quire_error *err);

/* Adds the operator's key, which gives access to the server's internals and belongs to no
 * tenant. QUIRE_INVALID: it is empty, or a tenant's key. On failure a is unchanged. Call
 * it before any thread checks keys. */
quire_err auth_set_operator(auth *a, const char *key, quire_error *err);
bool auth_has_operator(const auth *a);
/* Whether an Authorization header's value has the operator's key. */
bool auth_is_operator(const auth *a, str header);

/* ---- the Host header ---- */

typedef enum host_kind {
    HOST_MALFORMED,
    HOST_LOOPBACK, /* 127.0.0.0/8, ::1 or localhost */
    HOST_ADDRESS,  /* another IP address */
    HOST_LABEL,    /* a name without a dot: public DNS has none */
    HOST_NAME      /* a name with dots */
} host_kind;

/* Parses a Host header: "name", "name:port", "[address]" or "[address]:port"; the whole
 * value must match. *name (may be NULL): the part before the port, without brackets,
 * borrowed from header. */
host_kind host_parse(str header, str *name);

#endif

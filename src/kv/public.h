/* Public prefixes: token sequences that an operator names for all tenants to share, such
 * as a common system prompt. A prefix belongs to a scope: bytes with everything else that
 * must agree (model, adapter, numeric configuration). Only its whole pages are public.
 * Owner: the engine thread. */
#ifndef KV_PUBLIC_H
#define KV_PUBLIC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PUBLIC_NONE (-1)

typedef struct kv_public {
    unsigned char *scope;
    size_t n_scope;
    int32_t *tokens;
    int32_t n; /* a multiple of page_tokens */
} kv_public;

/* Zeroed: none. */
typedef struct kv_publics {
    kv_public *list;
    size_t cap;
    int32_t n;
} kv_publics;

void kv_publics_close(kv_publics *p);
/* Adds the whole pages of tokens[0..n), copied. QUIRE_INVALID when there are none;
 * QUIRE_OK also when the prefix is there already. */
quire_err kv_publics_add(kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n,
                         int32_t page_tokens);
/* The number of the longest prefix in that scope with which tokens[0..n) begin, or
 * PUBLIC_NONE. O(all prefixes + its length). */
int32_t kv_publics_find(const kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens,
                        int32_t n);

#endif

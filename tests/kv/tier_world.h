/* A small world of prefixes for the tests of tiers: few tokens, so that prefixes share a lot, and pages whose bytes follow from the whole
 * prefix, so that a page that is given back wrongly is found out by its content. */
#ifndef TESTS_KV_TIER_WORLD_H
#define TESTS_KV_TIER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kv/hash.h"
#include "kv/tier.h"

enum { PAGE_TOKENS = 4, N_GROUPS = 2, PAGE_BYTES = 192 };

static uint64_t seed;

static const kv_record_shape shape = {
    .version = "model 1, f32", .n_version = 12, .page_tokens = PAGE_TOKENS, .n_groups = N_GROUPS, .page_bytes = PAGE_BYTES};

static inline int32_t below(int32_t n) {
    return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

static inline int64_t record_bytes(void) {
    return (int64_t)kv_record_head_bytes(&shape) + PAGE_BYTES;
}

enum { MAX_DEPTH = 4, N_TOKENS = 2, N_SPACES = 3 };

typedef struct prefix {
    int32_t space, n_pages, group;
    int32_t tokens[MAX_DEPTH * PAGE_TOKENS];
} prefix;

static const char *const spaces[N_SPACES] = {"", "a", "tenant with a name"};

static inline prefix random_prefix(void) {
    prefix p = {.space = below(N_SPACES), .n_pages = 1 + below(MAX_DEPTH), .group = below(N_GROUPS)};
    for (int32_t i = 0; i < MAX_DEPTH; i++) {
        p.tokens[i * PAGE_TOKENS] = below(N_TOKENS); /* the rest is 0 */
    }
    return p;
}

static inline void content(const prefix *p, unsigned char *bytes) {
    uint64_t h = kv_hash_page(kv_hash_root((uint64_t)p->group, spaces[p->space], strlen(spaces[p->space])), p->tokens, p->n_pages * PAGE_TOKENS);
    for (int i = 0; i < PAGE_BYTES; i++) {
        bytes[i] = (unsigned char)rng_next(&h);
    }
}

/* The ids that an engine would have given: one for each prefix it has seen. */
typedef struct known {
    prefix p;
    kv_tier_id id;
} known;

static known *seen; /* [4096] */
static int32_t n_seen;

static inline kv_tier_id id_of(const prefix *p, int32_t n_pages) {
    if (n_pages == 0) {
        return (kv_tier_id){0, 0};
    }
    size_t n_bytes = (size_t)(n_pages * PAGE_TOKENS) * sizeof(int32_t);
    for (int32_t i = 0; i < n_seen; i++) {
        if (seen[i].p.space == p->space && seen[i].p.n_pages == n_pages && memcmp(seen[i].p.tokens, p->tokens, n_bytes) == 0) {
            return seen[i].id;
        }
    }
    assert_true(n_seen < 4096);
    seen[n_seen] = (known){*p, {rng_next(&seed), rng_next(&seed)}};
    seen[n_seen].p.n_pages = n_pages;
    return seen[n_seen++].id;
}

static inline kv_tier_key key_of(const prefix *p) {
    uint64_t hash = kv_hash_root(0, spaces[p->space], strlen(spaces[p->space]));
    for (int32_t i = 0; i < p->n_pages; i++) {
        hash = kv_hash_page(hash, p->tokens + i * PAGE_TOKENS, PAGE_TOKENS);
    }
    return (kv_tier_key){.space = spaces[p->space],
                         .n_space = strlen(spaces[p->space]),
                         .group = p->group,
                         .parent = id_of(p, p->n_pages - 1),
                         .tokens = p->tokens + (p->n_pages - 1) * PAGE_TOKENS,
                         .hash = hash};
}

static inline void check(const kv_tiers *t) {
    quire_error err = {.message = ""};
    if (kv_tiers_check(t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static inline bool put(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    void *body = kv_tiers_put_begin(t, &key);
    if (body != NULL) {
        content(p, body);
        kv_tiers_put_end(t, &key, id_of(p, p->n_pages));
    }
    check(t);
    return body != NULL;
}

/* Whether the tiers give p's page; it is the right one then. */
static inline bool get(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    kv_tier_id id;
    int32_t frame;
    unsigned char expected[PAGE_BYTES];
    if (kv_tiers_fetch(t, &key, &frame) != KV_FETCH_STARTED) {
        check(t);
        return false;
    }
    while (!kv_tiers_is_ready(t, frame)) {
        kv_tiers_poll(t);
    }
    const void *body = kv_tiers_take(t, frame, key.parent, &id);
    if (body != NULL) {
        content(p, expected);
        assert_memory_equal(body, expected, PAGE_BYTES);
        assert_true(kv_tier_id_equal(id, id_of(p, p->n_pages)));
    }
    kv_tiers_release(t, frame);
    check(t);
    return body != NULL;
}

/* Until nothing is on its way. */
static inline void settle(kv_tiers *t) {
    while (kv_tiers_n_pending(t) > 0) {
        kv_tiers_poll(t);
    }
    check(t);
}

#endif

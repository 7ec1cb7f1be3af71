/* A small world of prefixes to test tiers: a tiny vocabulary, so that prefixes often
 * share pages, and pages whose bytes are derived from the whole prefix, so that a wrong
 * page shows by its content. */
#ifndef TESTS_KV_TIER_WORLD_H
#define TESTS_KV_TIER_WORLD_H

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "kv/namespace.h"
#include "kv/tier.h"
#include "seed.h"

enum { PAGE_TOKENS = 4, N_GROUPS = 2, PAGE_BYTES = 192 };

static const kv_record_shape shape = {.version = "model 1, f32",
                                      .n_version = 12,
                                      .page_tokens = PAGE_TOKENS,
                                      .n_groups = N_GROUPS,
                                      .page_bytes = PAGE_BYTES};

static inline int32_t below(int32_t n) {
    return (int32_t)(rng_next(&seed) % (uint64_t)n);
}

static inline int64_t record_bytes(void) {
    return (int64_t)kv_record_head_bytes(&shape) + PAGE_BYTES;
}

enum { MAX_DEPTH = 4, N_TOKENS = 2, N_NAMESPACES = 3 };

typedef struct prefix {
    int32_t namespace, n_pages, group;
    int32_t tokens[MAX_DEPTH * PAGE_TOKENS];
} prefix;

static const char *const namespaces[N_NAMESPACES] = {"", "a", "tenant with a name"};

static inline prefix random_prefix(void) {
    prefix p = {.namespace = below(N_NAMESPACES), .n_pages = 1 + below(MAX_DEPTH), .group = below(N_GROUPS)};
    for (int32_t i = 0; i < MAX_DEPTH; i++) {
        p.tokens[i * PAGE_TOKENS] = below(N_TOKENS); /* other tokens are 0 */
    }
    return p;
}

static inline void content(const prefix *p, unsigned char *bytes) {
    uint64_t h = kv_hash_page(
        kv_hash_root((uint64_t)p->group, namespaces[p->namespace], strlen(namespaces[p->namespace])),
        p->tokens, p->n_pages * PAGE_TOKENS);
    for (int i = 0; i < PAGE_BYTES; i++) {
        bytes[i] = (unsigned char)rng_next(&h);
    }
}

static inline kv_tier_key key_of(const prefix *p) {
    kv_tier_key key = {.namespace = namespaces[p->namespace],
                       .n_namespace = strlen(namespaces[p->namespace]),
                       .group = p->group};
    key.id = kv_tier_id_root((kv_tier_id){0, 0}, key.namespace, key.n_namespace, false);
    for (int32_t i = 0; i < p->n_pages; i++) {
        key.parent = key.id;
        key.tokens = p->tokens + i * PAGE_TOKENS;
        key.id = kv_tier_id_page(key.parent, key.tokens, PAGE_TOKENS);
    }
    return key;
}

static inline void check(const kv_tiers *t) {
    quire_error err = {.message = ""};
    if (kv_tiers_check(t, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
}

static inline bool put(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    int32_t frame;
    void *body = kv_tiers_put_begin(t, &key, KV_PUT_ALL, &frame);
    if (body != NULL) {
        content(p, body);
        kv_tiers_put_end(t, frame);
    }
    check(t);
    return body != NULL;
}

/* Fetches p's page. False: the tiers do not have it. If they do, checks its content. */
static inline bool get(kv_tiers *t, const prefix *p) {
    kv_tier_key key = key_of(p);
    int32_t frame;
    unsigned char expected[PAGE_BYTES];
    if (kv_tiers_fetch(t, &key, &frame) != KV_FETCH_STARTED) {
        check(t);
        return false;
    }
    while (!kv_tiers_is_ready(t, frame)) {
        kv_tiers_poll(t);
    }
    const void *body = kv_tiers_take(t, frame);
    if (body != NULL) {
        content(p, expected);
        assert_memory_equal(body, expected, PAGE_BYTES);
    }
    kv_tiers_release(t, frame);
    check(t);
    return body != NULL;
}

/* Polls until no operation is pending. */
static inline void settle(kv_tiers *t) {
    while (kv_tiers_n_pending(t) > 0) {
        kv_tiers_poll(t);
    }
    check(t);
}

#endif

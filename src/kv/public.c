#include "kv/public.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

void kv_publics_close(kv_publics *p) {
    for (int32_t i = 0; i < p->n; i++) {
        mem_free(p->list[i].scope);
        mem_free(p->list[i].tokens);
    }
    mem_free(p->list);
    *p = (kv_publics){0};
}

static bool is_in_scope(const kv_public *one, const void *scope, size_t n_scope) {
    return one->n_scope == n_scope && (n_scope == 0 || memcmp(one->scope, scope, n_scope) == 0);
}

static bool public_begins_with(const kv_public *one, const int32_t *tokens, int32_t n) {
    return one->n <= n && memcmp(one->tokens, tokens, (size_t)one->n * sizeof *tokens) == 0;
}

quire_err kv_publics_add(kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens, int32_t n,
                         int32_t page_tokens) {
    n -= n % page_tokens;
    if (n <= 0) {
        return QUIRE_INVALID;
    }
    int32_t found = kv_publics_find(p, scope, n_scope, tokens, n);
    if (found != PUBLIC_NONE && p->list[found].n == n) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&p->list, &p->cap, (size_t)p->n + 1, sizeof *p->list));
    kv_public one = {.scope = mem_new(n_scope, 1),
                     .n_scope = n_scope,
                     .tokens = mem_new((size_t)n, sizeof *tokens),
                     .n = n};
    if (one.scope == NULL || one.tokens == NULL) {
        mem_free(one.scope);
        mem_free(one.tokens);
        return QUIRE_NO_MEMORY;
    }
    mem_copy(one.scope, scope, n_scope);
    memcpy(one.tokens, tokens, (size_t)n * sizeof *tokens);
    p->list[p->n++] = one;
    return QUIRE_OK;
}

int32_t kv_publics_find(const kv_publics *p, const void *scope, size_t n_scope, const int32_t *tokens,
                        int32_t n) {
    int32_t best = PUBLIC_NONE;
    for (int32_t i = 0; i < p->n; i++) {
        bool longer = best == PUBLIC_NONE || p->list[i].n > p->list[best].n;
        if (longer && is_in_scope(&p->list[i], scope, n_scope) &&
            public_begins_with(&p->list[i], tokens, n)) {
            best = i;
        }
    }
    return best;
}

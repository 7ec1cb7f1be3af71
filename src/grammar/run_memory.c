/* One budget for the memory of all runs, with shares by tenant. */
#include "grammar/run_memory.h"

#include <pthread.h>

#include "base/mem.h"

struct grammar_memory {
    area_pool pool;
    pthread_mutex_t lock; /* of shares, and of refs */
    memory_share *shares;
    int32_t refs; /* its opener's, and one for each share */
};

quire_err grammar_memory_open(size_t max_bytes, grammar_memory **out) {
    grammar_memory *m = mem_new(1, sizeof *m);
    *out = NULL;
    TRY(mem_check(m));
    m->pool.max = max_bytes;
    atomic_init(&m->pool.used, 0);
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        mem_free(m);
        return QUIRE_NO_MEMORY;
    }
    m->refs = 1;
    *out = m;
    return QUIRE_OK;
}

/* Drops a reference. The lock is held, and is let go. */
static void drop_ref(grammar_memory *m) {
    bool is_last = --m->refs == 0;
    (void)pthread_mutex_unlock(&m->lock);
    if (is_last) {
        (void)pthread_mutex_destroy(&m->lock);
        mem_free(m);
    }
}

void grammar_memory_close(grammar_memory *m) {
    if (m != NULL) {
        (void)pthread_mutex_lock(&m->lock);
        drop_ref(m);
    }
}

size_t grammar_memory_max(const grammar_memory *m) {
    return m->pool.max;
}

size_t grammar_memory_used(const grammar_memory *m) {
    return atomic_load(&m->pool.used);
}

static memory_share *run_memory_find(grammar_memory *m, uint64_t tenant) {
    memory_share *s = m->shares;
    while (s != NULL && s->tenant != tenant) {
        s = s->next;
    }
    return s;
}

quire_err memory_share_take(grammar_memory *m, uint64_t tenant, memory_share **out) {
    memory_share *fresh = mem_new(1, sizeof *fresh);
    *out = NULL;
    TRY(mem_check(fresh));
    *fresh = (memory_share){.account = {.pool = &m->pool}, .of = m, .tenant = tenant};
    (void)pthread_mutex_lock(&m->lock);
    memory_share *s = run_memory_find(m, tenant);
    if (s == NULL) {
        s = fresh;
        s->next = m->shares;
        m->shares = s;
        m->refs++;
        fresh = NULL;
    }
    s->refs++;
    (void)pthread_mutex_unlock(&m->lock);
    mem_free(fresh);
    *out = s;
    return QUIRE_OK;
}

void memory_share_drop(memory_share *s) {
    if (s == NULL) {
        return;
    }
    grammar_memory *m = s->of;
    (void)pthread_mutex_lock(&m->lock);
    bool is_last = --s->refs == 0;
    for (memory_share **at = &m->shares; is_last && *at != NULL; at = &(*at)->next) {
        if (*at == s) {
            *at = s->next;
            break;
        }
    }
    if (is_last) {
        mem_free(s);
        drop_ref(m);
    } else {
        (void)pthread_mutex_unlock(&m->lock);
    }
}

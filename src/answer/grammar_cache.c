#include "answer/grammar_cache.h"

#include <pthread.h>

#include "base/mem.h"

typedef struct entry {
    grammar_key key; /* its texts lie after the entry */
    uint64_t hash, last_used;
    size_t n_bytes;
    grammar *g;
} entry;

struct grammar_cache {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes;
    uint64_t now; /* counts uses */
    int32_t n;
    entry *entries[GRAMMAR_CACHE_ENTRIES];
};

quire_err grammar_cache_open(size_t max_bytes, grammar_cache **out) {
    grammar_cache *c = mem_new(1, sizeof *c);
    *out = c;
    TRY(mem_check(c));
    if (pthread_mutex_init(&c->lock, NULL) != 0) {
        mem_free(c);
        *out = NULL;
        return QUIRE_NO_MEMORY;
    }
    c->max_bytes = max_bytes;
    return QUIRE_OK;
}

static void drop_entry(entry *e) {
    if (e != NULL) {
        grammar_drop(e->g);
        mem_free(e);
    }
}

void grammar_cache_close(grammar_cache *c) {
    if (c == NULL) {
        return;
    }
    for (int32_t i = 0; i < c->n; i++) {
        drop_entry(c->entries[i]);
    }
    (void)pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* ---- finding ---- */

static uint64_t hash_key(const grammar_key *k) {
    return str_hash(str_hash(STR_HASH_START, k->text), k->whitespace_pattern);
}

static bool is_same(const grammar_key *a, const grammar_key *b) {
    const reasoning_frame *x = &a->frame, *y = &b->frame;
    bool same_frame = x->format == y->format && x->calls == y->calls && x->start == y->start;
    return a->tenant == b->tenant && a->form == b->form && a->kind == b->kind && a->space == b->space &&
           a->order == b->order && a->numbers == b->numbers && a->additional == b->additional && same_frame &&
           str_eq(a->whitespace_pattern, b->whitespace_pattern) && str_eq(a->text, b->text);
}

static entry *answer_grammar_cache_find(grammar_cache *c, const grammar_key *key, uint64_t hash) {
    for (int32_t i = 0; i < c->n; i++) {
        if (c->entries[i]->hash == hash && is_same(&c->entries[i]->key, key)) {
            c->entries[i]->last_used = ++c->now;
            return c->entries[i];
        }
    }
    return NULL;
}

grammar *grammar_cache_find(grammar_cache *c, const grammar_key *key) {
    uint64_t hash = hash_key(key);
    (void)pthread_mutex_lock(&c->lock);
    entry *e = answer_grammar_cache_find(c, key, hash);
    grammar *g = e != NULL ? grammar_share(e->g) : NULL;
    (void)pthread_mutex_unlock(&c->lock);
    return g;
}

/* ---- keeping ---- */

static entry *grammar_cache_make_entry(const grammar_key *key, grammar *g) {
    size_t n_bytes = sizeof(entry) + key->text.n + key->whitespace_pattern.n;
    entry *e = mem_new(1, n_bytes);
    if (e != NULL) {
        char *text = (char *)(e + 1), *pattern = text + key->text.n;
        mem_copy(text, key->text.p, key->text.n);
        mem_copy(pattern, key->whitespace_pattern.p, key->whitespace_pattern.n);
        *e = (entry){
            .key = *key, .hash = hash_key(key), .n_bytes = n_bytes + grammar_bytes(g), .g = grammar_share(g)};
        e->key.text.p = text;
        e->key.whitespace_pattern.p = pattern;
    }
    return e;
}

static size_t tenant_bytes(const grammar_cache *c, uint64_t tenant) {
    size_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        n += c->entries[i]->key.tenant == tenant ? c->entries[i]->n_bytes : 0;
    }
    return n;
}

/* The entry to drop: of the tenant that holds most, the least recently used. */
static int32_t grammar_cache_least_wanted(const grammar_cache *c) {
    int32_t worst = 0;
    size_t most = tenant_bytes(c, c->entries[0]->key.tenant);
    for (int32_t i = 1; i < c->n; i++) {
        const entry *e = c->entries[i], *w = c->entries[worst];
        size_t held = e->key.tenant == w->key.tenant ? most : tenant_bytes(c, e->key.tenant);
        if (held > most || (e->key.tenant == w->key.tenant && e->last_used < w->last_used)) {
            worst = i;
            most = held;
        }
    }
    return worst;
}

static entry *take_out(grammar_cache *c, int32_t i) {
    entry *e = c->entries[i];
    c->n_bytes -= e->n_bytes;
    c->entries[i] = c->entries[--c->n];
    return e;
}

void grammar_cache_keep(grammar_cache *c, const grammar_key *key, grammar *g) {
    entry *e = grammar_bytes(g) + key->text.n + key->whitespace_pattern.n <= c->max_bytes / 4
                   ? grammar_cache_make_entry(key, g)
                   : NULL;
    if (e == NULL) {
        return;
    }
    size_t least = c->max_bytes / GRAMMAR_CACHE_ENTRIES; /* so the limit of bytes is one of entries too */
    e->n_bytes = e->n_bytes > least ? e->n_bytes : least;
    (void)pthread_mutex_lock(&c->lock);
    bool is_known = answer_grammar_cache_find(c, key, e->hash) != NULL;
    while (!is_known && c->n > 0 && c->n_bytes + e->n_bytes > c->max_bytes) {
        drop_entry(take_out(c, grammar_cache_least_wanted(c)));
    }
    if (!is_known) {
        e->last_used = ++c->now;
        c->entries[c->n++] = e;
        c->n_bytes += e->n_bytes;
        e = NULL;
    }
    (void)pthread_mutex_unlock(&c->lock);
    drop_entry(e);
}

size_t grammar_cache_bytes(grammar_cache *c) {
    (void)pthread_mutex_lock(&c->lock);
    size_t n = c->n_bytes;
    (void)pthread_mutex_unlock(&c->lock);
    return n;
}

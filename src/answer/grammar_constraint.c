#include "answer/grammar_constraint.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "text/token_texts.h"

typedef struct grammar_constraint {
    constraint head;
    grammar_run *run;
} grammar_constraint;

static grammar_run *run_of(const constraint *c) {
    return ((const grammar_constraint *)c)->run;
}

static grammar_state *grammar_constraint_state_of(void *state) {
    return state;
}

static grammar_state read_state(const void *state) {
    return *(const grammar_state *)state;
}

static void grammar_constraint_init(const constraint *c, void *state) {
    *grammar_constraint_state_of(state) = grammar_start(run_of(c));
}

static quire_err grammar_constraint_mask(const constraint *c, const void *state, uint64_t *bits) {
    return grammar_mask(run_of(c), read_state(state), bits);
}

static quire_err grammar_constraint_accept(const constraint *c, void *state, int32_t token) {
    return grammar_accept(run_of(c), grammar_constraint_state_of(state), token);
}

static int32_t grammar_constraint_forced(const constraint *c, const void *state, int32_t *ids, int32_t most) {
    return grammar_forced(run_of(c), read_state(state), ids, most);
}

static int32_t grammar_constraint_guess(const constraint *c, const void *state, const guess_bounds *b,
                                        int32_t *ids, int32_t *parents) {
    const grammar_guess_bounds bounds = {b->nodes, b->first, b->least, b->row};
    return grammar_guess(run_of(c), read_state(state), &bounds, ids, parents);
}

static bool grammar_constraint_is_final(const constraint *c, const void *state) {
    return grammar_is_final(run_of(c), read_state(state));
}

static void close_constraint(constraint *c) {
    grammar_run_close(run_of(c));
    mem_free(c);
}

static const char *grammar_constraint_why(const constraint *c) {
    return grammar_run_why(run_of(c));
}

static const constraint_ops ops = {grammar_constraint_init,   grammar_constraint_mask,
                                   grammar_constraint_accept, grammar_constraint_forced,
                                   grammar_constraint_guess,  grammar_constraint_is_final,
                                   close_constraint,          grammar_constraint_why};

int64_t grammar_constraint_mask_us(const constraint *c) {
    assert(c != NULL);
    return c->ops == &ops ? grammar_run_mask_ns(run_of(c)) / 1000 : 0;
}

quire_err grammar_constraint_open(grammar *g, grammar_vocab *v, grammar_memory *memory, uint64_t tenant,
                                  constraint **out) {
    grammar_constraint *c = mem_new(1, sizeof *c);
    TRY(mem_check(c));
    quire_err e = grammar_run_open_in(g, v, memory, tenant, &c->run);
    if (e != QUIRE_OK) {
        mem_free(c);
        return e;
    }
    grammar_run_warm(c->run);
    constraint_init(&c->head, &ops, grammar_vocab_size(v), sizeof(grammar_state));
    *out = &c->head;
    return QUIRE_OK;
}

/* Appends the bytes of all tokens to *bytes. ends[id]: offset of the end of token id. */
static quire_err list_bytes(const tokenizer *t, int32_t n_vocab, strbuf *bytes, size_t *ends) {
    token_texts *texts;
    TRY(token_texts_open(t, &texts));
    quire_err e = QUIRE_OK;
    for (int32_t id = 0; id < n_vocab && e == QUIRE_OK; id++) {
        e = id < tokenizer_n_tokens(t) ? token_bytes_add(t, texts, id, bytes) : QUIRE_OK;
        ends[id] = bytes->n;
    }
    token_texts_close(texts);
    return e;
}

/* Replaces the texts of special tokens by the spellings by which grammars refer to them.
 * spelt: [marks->n * GRAMMAR_MARK_BYTES] */
static void spell_marks(const grammar_marks *marks, char *spelt, str *texts) {
    for (size_t i = 0; i < marks->n; i++) {
        char *to = spelt + i * GRAMMAR_MARK_BYTES;
        grammar_mark_spell(marks->list[i].id, to);
        texts[marks->list[i].id] = (str){to, GRAMMAR_MARK_BYTES};
    }
}

quire_err grammar_constraint_vocab(const tokenizer *t, int32_t n_vocab, const grammar_marks *marks,
                                   grammar_vocab **out) {
    strbuf bytes = {0};
    const grammar_marks none = {0};
    marks = marks != NULL ? marks : &none;
    size_t *ends = mem_new((size_t)n_vocab, sizeof *ends);
    str *texts = mem_new((size_t)n_vocab, sizeof *texts);
    char *spelt = mem_new(marks->n + 1, GRAMMAR_MARK_BYTES);
    quire_err e = ends != NULL && texts != NULL && spelt != NULL ? list_bytes(t, n_vocab, &bytes, ends)
                                                                 : QUIRE_NO_MEMORY;
    for (int32_t id = 0; id < n_vocab && e == QUIRE_OK; id++) {
        size_t start = id > 0 ? ends[id - 1] : 0;
        texts[id] = (str){bytes.p != NULL ? bytes.p + start : "", ends[id] - start};
    }
    if (e == QUIRE_OK) {
        spell_marks(marks, spelt, texts);
        e = grammar_vocab_open(texts, n_vocab, NULL, 0, out);
    }
    mem_free(texts);
    mem_free(ends);
    mem_free(spelt);
    strbuf_deinit(&bytes);
    return e;
}

/* ---- a vocabulary with special tokens apart ---- */

static bool marked_vocab_is_space(str text) {
    size_t n = 0;
    while (n < text.n && text.p[n] != 0 && strchr(" \t\r\n", text.p[n]) != NULL) {
        n++;
    }
    return n == text.n;
}

bool marked_vocab_is_mark(const tokenizer *t, int32_t id) {
    return tokenizer_is_special(t, id) ||
           (tokenizer_is_added(t, id) && !marked_vocab_is_space(tokenizer_piece(t, id)));
}

static void list_marks(const tokenizer *t, int32_t n, marked_vocab *v) {
    for (int32_t id = 0; id < n; id++) {
        if (marked_vocab_is_mark(t, id)) {
            str text = tokenizer_piece(t, id);
            text = tokenizer_find(t, text) == id ? text : (str){0};
            v->list[v->marks.n++] = (grammar_mark){text, id, tokenizer_is_special(t, id)};
        }
    }
}

quire_err marked_vocab_open(const tokenizer *t, int32_t n_vocab, marked_vocab **out) {
    int32_t n = tokenizer_n_tokens(t) < n_vocab ? tokenizer_n_tokens(t) : n_vocab;
    n = n < GRAMMAR_MARK_IDS ? n : GRAMMAR_MARK_IDS;
    size_t n_marks = 0;
    for (int32_t id = 0; id < n; id++) {
        n_marks += marked_vocab_is_mark(t, id);
    }
    marked_vocab *v = mem_new(1, sizeof *v);
    TRY(mem_check(v));
    v->list = mem_new(n_marks + 1, sizeof *v->list);
    v->marks.list = v->list;
    quire_err e = mem_check(v->list);
    if (e == QUIRE_OK) {
        list_marks(t, n, v);
        e = grammar_constraint_vocab(t, n_vocab, &v->marks, &v->vocab);
    }
    if (e != QUIRE_OK) {
        marked_vocab_close(v);
        return e;
    }
    *out = v;
    return QUIRE_OK;
}

void marked_vocab_close(marked_vocab *v) {
    if (v != NULL) {
        grammar_vocab_drop(v->vocab);
        mem_free(v->list);
        mem_free(v);
    }
}

/* ---- the cache of compiled grammars ---- */

typedef struct entry {
    grammar_key key; /* its texts are stored after the entry */
    uint64_t hash, last_used;
    size_t n_bytes;
    grammar *g;
} entry;

struct grammar_cache {
    pthread_mutex_t lock;
    size_t max_bytes, n_bytes;
    uint64_t now; /* number of uses so far, the clock of last_used */
    int32_t n;
    entry *entries[GRAMMAR_CACHE_ENTRIES];
};

quire_err grammar_cache_open(size_t max_bytes, grammar_cache **out) {
    grammar_cache *c = mem_new(1, sizeof *c);
    *out = c;
    TRY(mem_check(c));
    pthread_mutex_init(&c->lock, NULL);
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
    pthread_mutex_destroy(&c->lock);
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
    pthread_mutex_lock(&c->lock);
    entry *e = answer_grammar_cache_find(c, key, hash);
    grammar *g = e != NULL ? grammar_share(e->g) : NULL;
    pthread_mutex_unlock(&c->lock);
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

/* The index of the entry to drop: the least recently used of the largest tenant's. */
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
    assert(c != NULL && key != NULL);
    entry *e = grammar_bytes(g) + key->text.n + key->whitespace_pattern.n <= c->max_bytes / 4
                   ? grammar_cache_make_entry(key, g)
                   : NULL;
    if (e == NULL) {
        return;
    }
    size_t least = c->max_bytes / GRAMMAR_CACHE_ENTRIES; /* so the limit on bytes also limits the entries */
    e->n_bytes = e->n_bytes > least ? e->n_bytes : least;
    pthread_mutex_lock(&c->lock);
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
    pthread_mutex_unlock(&c->lock);
    drop_entry(e);
}

size_t grammar_cache_bytes(grammar_cache *c) {
    pthread_mutex_lock(&c->lock);
    size_t n = c->n_bytes;
    pthread_mutex_unlock(&c->lock);
    return n;
}

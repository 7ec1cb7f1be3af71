/* Runs: sequences' states over a grammar and a vocabulary. */
#include "grammar/grammar_run.h"

#include "base/clock.h"
#include "base/mem.h"

/* ---- opening ---- */

static void run_free(grammar_run *r) {
    machine_deinit(&r->m);
    area_close(&r->masks);
    mem_free(r->path);
    mem_free(r->list);
    mem_free(r->scratch);
    grammar_vocab_drop(r->v);
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

static quire_err run_new(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out) {
    grammar_run *r = mem_new(1, sizeof *r);
    TRY(mem_check(r));
    *r = (grammar_run){.refs = 1, .g = g, .v = grammar_vocab_share(v)};
    (void)pthread_mutex_init(&r->lock, NULL);
    r->path = mem_new(v->longest + 1, sizeof *r->path);
    r->scratch = mem_new(v->n_words, sizeof *r->scratch);
    r->list = mem_new((size_t)v->n_tokens / RUN_LIST_PART + 1, sizeof *r->list);
    quire_err e = r->path == NULL || r->list == NULL || r->scratch == NULL ? QUIRE_NO_MEMORY : area_open(&r->masks, max_bytes);
    e = e == QUIRE_OK ? machine_init(&r->m, &g->a, max_bytes) : e;
    if (e != QUIRE_OK) {
        run_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

static bool has_room(grammar_run *r) {
    (void)pthread_mutex_lock(&r->lock);
    bool room = r->m.budget.used < r->m.budget.max / 2;
    (void)pthread_mutex_unlock(&r->lock);
    return room;
}

quire_err grammar_run_open(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out) {
    quire_err e = QUIRE_OK;
    *out = NULL;
    (void)pthread_mutex_lock(&g->lock);
    for (grammar_run *r = g->runs; r != NULL && *out == NULL; r = r->next) {
        if (r->v == v && has_room(r)) {
            r->refs++;
            *out = r;
        }
    }
    if (*out == NULL) {
        e = run_new(g, v, max_bytes > 0 ? max_bytes : GRAMMAR_RUN_BYTES, out);
        if (e == QUIRE_OK) {
            (*out)->next = g->runs;
            g->runs = *out;
        }
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (e == QUIRE_OK) {
        (void)grammar_share(g);
    }
    return e;
}

grammar_run *grammar_run_share(grammar_run *r) {
    if (r != NULL) {
        (void)pthread_mutex_lock(&r->g->lock);
        r->refs++;
        (void)pthread_mutex_unlock(&r->g->lock);
        (void)grammar_share(r->g);
    }
    return r;
}

void grammar_run_close(grammar_run *r) {
    if (r == NULL) {
        return;
    }
    grammar *g = r->g;
    (void)pthread_mutex_lock(&g->lock);
    bool last = --r->refs == 0;
    for (grammar_run **at = &g->runs; last && *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (last) {
        run_free(r);
    }
    grammar_drop(g);
}

/* ---- states ---- */

grammar_state grammar_start(const grammar_run *r) {
    (void)r;
    return (grammar_state){MACHINE_FIRST};
}

uint32_t run_walk(grammar_run *r, uint32_t s, str text, size_t *n) {
    size_t i = 0;
    for (; i < text.n; i++) {
        uint32_t to = machine_next(&r->m, s, (uint8_t)text.p[i]);
        if (to < MACHINE_FIRST) {
            s = to;
            break;
        }
        s = to;
    }
    *n = i;
    return s;
}

quire_err grammar_accept_bytes(grammar_run *r, grammar_state *s, str bytes, size_t *n_taken) {
    size_t n;
    (void)pthread_mutex_lock(&r->lock);
    uint32_t to = run_walk(r, s->id, bytes, &n);
    (void)pthread_mutex_unlock(&r->lock);
    if (n_taken != NULL) {
        *n_taken = n;
    }
    if (to < MACHINE_FIRST) {
        return to == MACHINE_FULL ? QUIRE_TOO_LARGE : QUIRE_INVALID;
    }
    s->id = to;
    return QUIRE_OK;
}

static bool is_end(const grammar_vocab *v, int32_t token) {
    for (int32_t i = 0; i < v->n_ends; i++) {
        if (v->ends[i] == token) {
            return true;
        }
    }
    return false;
}

quire_err grammar_accept(grammar_run *r, grammar_state *s, int32_t token) {
    if (token < 0 || token >= r->v->n_tokens) {
        return QUIRE_INVALID;
    }
    if (is_end(r->v, token)) {
        return grammar_is_final(r, *s) ? QUIRE_OK : QUIRE_INVALID;
    }
    str text = vocab_text(r->v, token);
    return text.n == 0 || text.n > VOCAB_MAX_TOKEN ? QUIRE_INVALID : grammar_accept_bytes(r, s, text, NULL);
}

bool grammar_allows(grammar_run *r, grammar_state s, int32_t token) {
    return grammar_accept(r, &s, token) == QUIRE_OK;
}

bool grammar_is_final(grammar_run *r, grammar_state s) {
    (void)pthread_mutex_lock(&r->lock);
    bool final = machine_state_at(&r->m, s.id)->final;
    (void)pthread_mutex_unlock(&r->lock);
    return final;
}

bool grammar_is_over(grammar_run *r, grammar_state s) {
    (void)pthread_mutex_lock(&r->lock);
    bool over = machine_state_at(&r->m, s.id)->over;
    (void)pthread_mutex_unlock(&r->lock);
    return over;
}

quire_err grammar_mask(grammar_run *r, grammar_state s, uint64_t *bits) {
    (void)pthread_mutex_lock(&r->lock);
    bool build = machine_state_at(&r->m, s.id)->mask == 0;
    int64_t from = build ? clock_ns() : 0;
    quire_err e = run_mask(r, s.id, bits);
    r->stats.mask_ns += build ? clock_ns() - from : 0;
    (void)pthread_mutex_unlock(&r->lock);
    return e;
}

/* ---- what must come ---- */

/* The only token of a mask, or -1. */
static int32_t only_token(const grammar_vocab *v, const uint64_t *bits) {
    int32_t only = -1;
    for (size_t i = 0; i < v->n_words; i++) {
        if (bits[i] != 0) {
            if (only >= 0 || (bits[i] & (bits[i] - 1)) != 0) {
                return -1;
            }
            only = (int32_t)(i * 64) + __builtin_ctzll(bits[i]);
        }
    }
    return only;
}

/* The only byte that may follow, or -1. */
static int32_t only_byte(grammar_run *r, uint32_t s) {
    int32_t only = -1;
    const uint8_t *byte_class = r->m.a->byte_class;
    for (int32_t i = 0; i < 256 && !machine_state_at(&r->m, s)->final; i++) {
        bool repeats = i > 0 && byte_class[i] == byte_class[i - 1];
        uint32_t to = repeats && only != i - 1 ? MACHINE_DEAD : machine_next(&r->m, s, (uint8_t)i);
        if (to == MACHINE_FULL || (to >= MACHINE_FIRST && only >= 0)) {
            return -1;
        }
        only = to >= MACHINE_FIRST ? i : only;
    }
    return only;
}

int32_t grammar_forced(grammar_run *r, grammar_state s, int32_t *tokens, int32_t max) {
    int32_t n = 0;
    (void)pthread_mutex_lock(&r->lock);
    while (n < max && !machine_state_at(&r->m, s.id)->final && only_byte(r, s.id) >= 0 && run_mask(r, s.id, r->scratch) == QUIRE_OK) {
        size_t taken;
        int32_t token = only_token(r->v, r->scratch);
        uint32_t to = token < 0 ? MACHINE_DEAD : run_walk(r, s.id, vocab_text(r->v, token), &taken);
        if (to < MACHINE_FIRST) {
            break;
        }
        tokens[n++] = token;
        s.id = to;
    }
    (void)pthread_mutex_unlock(&r->lock);
    return n;
}

/* The longest token that begins with known bytes p[0..n); -1: none. */
static int32_t longest_token(const grammar_vocab *v, const uint8_t *p, size_t n, size_t *length) {
    int32_t best = -1;
    uint32_t at = 0, end = v->all.n_roots;
    for (size_t depth = 0; depth < n && at < end;) {
        const trie_node *node = &v->all.nodes[at];
        if (node->byte != p[depth]) {
            at++;
            continue;
        }
        depth++;
        if (node->token >= 0) {
            best = node->token;
            *length = depth;
        }
        at = node->child;
        end = node->child + node->n;
    }
    return best;
}

#define GUESS_BYTES 512

int32_t grammar_guess(grammar_run *r, grammar_state s, int32_t *tokens, int32_t max) {
    uint8_t bytes[GUESS_BYTES];
    size_t n = 0, at = 0, length = 0;
    int32_t n_tokens = 0, byte = 0;
    (void)pthread_mutex_lock(&r->lock);
    while (n < sizeof bytes && (byte = only_byte(r, s.id)) >= 0) {
        bytes[n++] = (uint8_t)byte;
        s.id = machine_next(&r->m, s.id, (uint8_t)byte);
    }
    (void)pthread_mutex_unlock(&r->lock);
    while (n_tokens < max && at < n) {
        int32_t token = longest_token(r->v, bytes + at, n - at, &length);
        if (token < 0) {
            break;
        }
        tokens[n_tokens++] = token;
        at += length;
    }
    return n_tokens;
}

void grammar_run_get_stats(grammar_run *r, grammar_run_stats *out) {
    (void)pthread_mutex_lock(&r->lock);
    *out = r->stats;
    out->n_states = r->m.n_states;
    out->bytes = r->m.budget.used;
    (void)pthread_mutex_unlock(&r->lock);
}

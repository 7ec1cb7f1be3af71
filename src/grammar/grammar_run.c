/* Runs: sequences' states over a grammar and a vocabulary. */
#include "grammar/grammar_run.h"

#include "base/clock.h"
#include "base/mem.h"

/* ---- opening ---- */

#define RUN_MAX_OPENERS 64 /* of one core, whose states would be too many to number */

static void core_free(run_core *r) {
    machine_deinit(&r->m);
    area_close(&r->masks);
    mem_free(r->path);
    mem_free(r->list);
    mem_free(r->scratch);
    grammar_vocab_drop(r->v);
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

static quire_err core_new(grammar *g, grammar_vocab *v, size_t max_bytes, run_core **out) {
    run_core *r = mem_new(1, sizeof *r);
    TRY(mem_check(r));
    *r = (run_core){.g = g, .v = grammar_vocab_share(v), .max_bytes = max_bytes, .mask_budget = {.max = max_bytes / 2}};
    (void)pthread_mutex_init(&r->lock, NULL);
    r->path = mem_new(v->longest + 1, sizeof *r->path);
    r->scratch = mem_new(v->n_words, sizeof *r->scratch);
    r->list = mem_new((size_t)v->n_tokens / RUN_LIST_PART + 1, sizeof *r->list);
    quire_err e = r->path == NULL || r->list == NULL || r->scratch == NULL ? QUIRE_NO_MEMORY : area_open(&r->masks, max_bytes / 2);
    e = e == QUIRE_OK ? machine_init(&r->m, &g->a, max_bytes) : e;
    if (e != QUIRE_OK) {
        core_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

/* Reserves addresses for one who opens r more: then each has all of his own budget, whatever the others use of theirs. */
static quire_err core_admit(run_core *r) {
    (void)pthread_mutex_lock(&r->lock);
    quire_err e = machine_reserve(&r->m, r->m.budget.used + r->max_bytes * (size_t)(r->refs + 1));
    (void)pthread_mutex_unlock(&r->lock);
    return e;
}

static bool has_room(run_core *r) {
    (void)pthread_mutex_lock(&r->lock);
    bool room = r->m.budget.used + r->mask_budget.used < r->max_bytes / 2;
    (void)pthread_mutex_unlock(&r->lock);
    return room && r->refs < RUN_MAX_OPENERS;
}

/* Takes a core out of the grammar's list, and frees it. The grammar's lock is held. */
static void core_remove(grammar *g, run_core *r) {
    for (run_core **at = &g->runs; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    core_free(r);
}

/* The core that g has for v with room, or a new one; counted up. The grammar's lock is held. */
static quire_err core_open(grammar *g, grammar_vocab *v, size_t max_bytes, run_core **out) {
    run_core *r = g->runs;
    while (r != NULL && (r->v != v || !has_room(r))) {
        r = r->next;
    }
    if (r == NULL) {
        TRY(core_new(g, v, max_bytes, &r));
        r->next = g->runs;
        g->runs = r;
    }
    quire_err e = core_admit(r);
    if (e == QUIRE_OK) {
        r->refs++;
        *out = r;
    } else if (r->refs == 0) {
        core_remove(g, r);
    }
    return e;
}

quire_err grammar_run_open(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out) {
    grammar_run *r = mem_new(1, sizeof *r);
    *out = NULL;
    TRY(mem_check(r));
    (void)pthread_mutex_lock(&g->lock);
    quire_err e = core_open(g, v, max_bytes > 0 ? max_bytes : GRAMMAR_RUN_BYTES, &r->core);
    (void)pthread_mutex_unlock(&g->lock);
    if (e != QUIRE_OK) {
        mem_free(r);
        return e;
    }
    r->refs = 1;
    (void)grammar_share(g);
    *out = r;
    return QUIRE_OK;
}

grammar_run *grammar_run_share(grammar_run *r) {
    if (r != NULL) {
        atomic_fetch_add(&r->refs, 1);
    }
    return r;
}

void grammar_run_close(grammar_run *r) {
    if (r == NULL || atomic_fetch_sub(&r->refs, 1) > 1) {
        return;
    }
    grammar *g = r->core->g;
    (void)pthread_mutex_lock(&g->lock);
    if (--r->core->refs == 0) {
        core_remove(g, r->core);
    }
    (void)pthread_mutex_unlock(&g->lock);
    mem_free(r);
    grammar_drop(g);
}

run_core *run_enter(grammar_run *r) {
    run_core *core = r->core;
    (void)pthread_mutex_lock(&core->lock);
    core->m.budget.max = core->m.budget.used + core->max_bytes - r->paid;
    return core;
}

void run_leave(grammar_run *r) {
    run_core *core = r->core;
    r->paid = core->max_bytes - (core->m.budget.max - core->m.budget.used);
    (void)pthread_mutex_unlock(&core->lock);
}

/* ---- states ---- */

grammar_state grammar_start(const grammar_run *r) {
    (void)r;
    return (grammar_state){MACHINE_FIRST};
}

uint32_t run_walk(run_core *r, uint32_t s, str text, size_t *n) {
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
    uint32_t to = run_walk(run_enter(r), s->id, bytes, &n);
    run_leave(r);
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
    const grammar_vocab *v = r->core->v;
    if (token < 0 || token >= v->n_tokens) {
        return QUIRE_INVALID;
    }
    if (is_end(v, token)) {
        return grammar_is_final(r, *s) ? QUIRE_OK : QUIRE_INVALID;
    }
    str text = vocab_text(v, token);
    return text.n == 0 || text.n > VOCAB_MAX_TOKEN ? QUIRE_INVALID : grammar_accept_bytes(r, s, text, NULL);
}

bool grammar_allows(grammar_run *r, grammar_state s, int32_t token) {
    return grammar_accept(r, &s, token) == QUIRE_OK;
}

bool grammar_is_final(grammar_run *r, grammar_state s) {
    bool final = machine_state_at(&run_enter(r)->m, s.id)->final;
    run_leave(r);
    return final;
}

bool grammar_is_over(grammar_run *r, grammar_state s) {
    bool over = machine_state_at(&run_enter(r)->m, s.id)->over;
    run_leave(r);
    return over;
}

/* run_mask, whose time counts where the mask is built. */
static quire_err timed_mask(run_core *core, uint32_t s, uint64_t *bits) {
    if (machine_state_at(&core->m, s)->mask != 0) {
        return run_mask(core, s, bits);
    }
    int64_t from = clock_ns();
    quire_err e = run_mask(core, s, bits);
    atomic_fetch_add_explicit(&core->mask_ns, clock_ns() - from, memory_order_relaxed);
    return e;
}

quire_err grammar_mask(grammar_run *r, grammar_state s, uint64_t *bits) {
    quire_err e = timed_mask(run_enter(r), s.id, bits);
    run_leave(r);
    return e;
}

void grammar_run_warm(grammar_run *r) {
    enum { PLACES = 3 }; /* the beginning, and twice behind letters: free text then stays where it is */
    size_t n;
    run_core *core = run_enter(r);
    uint32_t s = MACHINE_FIRST;
    for (int i = 0; i < PLACES && s >= MACHINE_FIRST; i++) {
        if (machine_state_at(&core->m, s)->mask == 0) {
            (void)timed_mask(core, s, core->scratch);
        }
        s = run_walk(core, s, str_of("ab"), &n);
    }
    run_leave(r);
}

/* ---- figures ---- */

int64_t grammar_run_mask_ns(const grammar_run *r) {
    return atomic_load_explicit(&r->core->mask_ns, memory_order_relaxed);
}

void grammar_run_get_stats(grammar_run *r, grammar_run_stats *out) {
    run_core *core = run_enter(r);
    *out = core->stats;
    out->mask_ns = grammar_run_mask_ns(r);
    out->n_states = core->m.n_states;
    out->bytes = core->m.budget.used + core->mask_budget.used;
    run_leave(r);
}

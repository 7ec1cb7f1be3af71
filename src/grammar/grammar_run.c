/* Runs: states of sequences over a grammar and a vocabulary. */
#include "grammar/grammar_run.h"

#include <assert.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/turn.h"

/* ---- opening ---- */

#define RUN_MAX_OPENERS 64 /* most runs that share a core, so that its states can be numbered */

#define FIRST_MASK_BYTES ((size_t)4 << 20) /* addresses reserved for masks at first */
/* configurations per slice: about a millisecond when caches miss */
#define SLICE 8192

static void core_free(run_core *r) {
    machine_deinit(&r->m);
    area_close(&r->masks);
    area_budget_close(&r->mask_budget);
    memory_share_drop(r->share);
    mem_free(r->path);
    mem_free(r->list);
    mem_free(r->scratch);
    grammar_vocab_drop(r->v);
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* A run to open, and for whom. */
typedef struct run_opening {
    grammar *g;
    grammar_vocab *v;
    size_t max_bytes;
    memory_share *share;
} run_opening;

static memory_share *share_again(memory_share *s) {
    memory_share *same = NULL;
    return s != NULL && memory_share_take(s->of, s->tenant, &same) == QUIRE_OK ? same : NULL;
}

static quire_err core_new(const run_opening *o, run_core **out) {
    run_core *r = mem_new(1, sizeof *r);
    TRY(mem_check(r));
    const grammar_vocab *v = o->v;
    area_account *account = o->share != NULL ? &o->share->account : NULL;
    *r = (run_core){.g = o->g,
                    .v = grammar_vocab_share(o->v),
                    .max_bytes = o->max_bytes,
                    .share = share_again(o->share),
                    .mask_budget = {.max = o->max_bytes / 2, .account = account}};
    pthread_mutex_init(&r->lock, NULL);
    r->path = mem_new(v->longest + 1, sizeof *r->path);
    r->scratch = mem_new(v->n_words, sizeof *r->scratch);
    r->list = mem_new((size_t)v->n_tokens / RUN_LIST_PART + 1, sizeof *r->list);
    size_t masks = r->mask_budget.max < FIRST_MASK_BYTES ? r->mask_budget.max : FIRST_MASK_BYTES;
    bool has_all =
        r->path != NULL && r->list != NULL && r->scratch != NULL && (o->share == NULL || r->share != NULL);
    quire_err e = has_all ? area_open(&r->masks, masks) : QUIRE_NO_MEMORY;
    TRY_DONE(e, machine_init(&r->m, &o->g->a, o->max_bytes, account));
done:
    if (e != QUIRE_OK) {
        core_free(r);
        return e;
    }
    *out = r;
    return QUIRE_OK;
}

static bool grammar_run_has_room(run_core *r) {
    (void)pthread_mutex_lock(&r->lock);
    bool room = r->m.budget.used + r->mask_budget.used < r->max_bytes / 2;
    (void)pthread_mutex_unlock(&r->lock);
    return room && r->refs < RUN_MAX_OPENERS;
}

/* Removes a core from the grammar's list and frees it. The grammar's lock is held. */
static void core_remove(grammar *g, run_core *r) {
    for (run_core **at = &g->runs; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    core_free(r);
}

/* Whether the opening o may share this core. */
static bool is_for(run_core *r, const run_opening *o) {
    return r->v == o->v && r->share == o->share && grammar_run_has_room(r);
}

/* Takes a reference to an existing core with room, or makes one. The grammar's lock is
 * held. */
static quire_err core_open(const run_opening *o, run_core **out) {
    run_core *r = o->g->runs;
    while (r != NULL && !is_for(r, o)) {
        r = r->next;
    }
    if (r == NULL) {
        TRY(core_new(o, &r));
        r->next = o->g->runs;
        o->g->runs = r;
    }
    r->refs++;
    *out = r;
    return QUIRE_OK;
}

static grammar_state state_at(const machine *m, uint32_t s) {
    const machine_state *at = machine_state_at(m, s);
    return (grammar_state){s, (at->final ? 1u : 0u) | (at->over ? 2u : 0u)};
}

static quire_err grammar_run_open_run(const run_opening *o, grammar_run **out) {
    grammar_run *r = mem_new(1, sizeof *r);
    *out = NULL;
    TRY(mem_check(r));
    (void)pthread_mutex_lock(&o->g->lock);
    quire_err e = core_open(o, &r->core);
    (void)pthread_mutex_unlock(&o->g->lock);
    if (e != QUIRE_OK) {
        mem_free(r);
        return e;
    }
    (void)pthread_mutex_lock(&r->core->lock);
    r->first = state_at(&r->core->m, MACHINE_FIRST);
    (void)pthread_mutex_unlock(&r->core->lock);
    r->refs = 1;
    (void)grammar_share(o->g);
    *out = r;
    return QUIRE_OK;
}

quire_err grammar_run_open(grammar *g, grammar_vocab *v, size_t max_bytes, grammar_run **out) {
    const run_opening o = {g, v, max_bytes > 0 ? max_bytes : GRAMMAR_RUN_BYTES, NULL};
    return grammar_run_open_run(&o, out);
}

quire_err grammar_run_open_in(grammar *g, grammar_vocab *v, grammar_memory *m, uint64_t tenant,
                              grammar_run **out) {
    run_opening o = {g, v, GRAMMAR_RUN_BYTES, NULL};
    *out = NULL;
    if (m != NULL) {
        TRY(memory_share_take(m, tenant, &o.share));
    }
    quire_err e = grammar_run_open_run(&o, out);
    memory_share_drop(o.share); /* the core holds its own reference */
    return e;
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

/* ---- operations ---- */

/* Locks within a step: does not wait for threads outside of steps, only for the step's
 * own. */
static bool lock_in_step(run_core *core) {
    return atomic_load(&core->n_outside) == 0 &&
           (pthread_mutex_trylock(&core->lock) == 0 ||
            (atomic_load(&core->n_outside) == 0 && pthread_mutex_lock(&core->lock) == 0));
}

static const char *const reasons[] = {
    [MACHINE_SPENT] = "the tokens that may come next take over 4,000,000 steps to find",
    [MACHINE_AMBIGUOUS] = "it is too ambiguous: one more character may mean over 16,384 things, or takes "
                          "over 200,000 steps to read",
    [MACHINE_NO_BUDGET] = "its states take over 64 MiB",
    [MACHINE_NO_SHARE] = "the states of this tenant's rules take all of its share of the memory for rules",
};

/* Executes op once. The lock is held. */
static quire_err attempt(grammar_run *r, run_op op, void *context) {
    run_core *core = r->core;
    core->m.budget.max = core->m.budget.used + core->max_bytes - r->paid;
    machine_begin(&core->m, SLICE);
    quire_err e = op(core, context);
    machine_end(&core->m);
    r->paid = core->max_bytes - (core->m.budget.max - core->m.budget.used);
    if (e == QUIRE_TOO_LARGE || e == QUIRE_NO_MEMORY) {
        atomic_store(&r->why, reasons[core->m.why]);
    }
    return e;
}

/* Reserves more addresses for what had too few. The lock is held; not within a step. */
static quire_err grammar_run_grow(run_core *core) {
    if (core->wants_masks > core->masks.reserved) {
        size_t twice = 2 * core->masks.reserved;
        TRY(area_grow(&core->masks, core->wants_masks > twice ? core->wants_masks : twice));
    }
    core->wants_masks = 0;
    return machine_grow(&core->m);
}

quire_err run_do(grammar_run *r, run_op op, void *context) {
    assert(r != NULL);
    run_core *core = r->core;
    if (work_room_current != NULL) {
        if (!lock_in_step(core)) {
            return QUIRE_BUSY;
        }
        quire_err e = attempt(r, op, context);
        (void)pthread_mutex_unlock(&core->lock);
        return e;
    }
    for (;;) {
        atomic_fetch_add(&core->n_outside, 1);
        (void)pthread_mutex_lock(&core->lock);
        quire_err e = attempt(r, op, context), grown = grammar_run_grow(core);
        (void)pthread_mutex_unlock(&core->lock);
        atomic_fetch_sub(&core->n_outside, 1);
        if (e != QUIRE_BUSY || grown != QUIRE_OK) {
            return e != QUIRE_BUSY ? e : grown;
        }
        TRY(turn_check());
    }
}

const char *grammar_run_why(const grammar_run *r) {
    return atomic_load(&r->why);
}

/* ---- states ---- */

grammar_state grammar_start(const grammar_run *r) {
    return r->first;
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

typedef struct walk {
    grammar_state s;
    str bytes;
    size_t n; /* number of bytes taken */
} walk;

static quire_err walk_op(run_core *core, void *context) {
    walk *w = context;
    uint32_t to = run_go(core, w->s.id, w->bytes, &w->n);
    if (to < MACHINE_FIRST) {
        return to == MACHINE_FULL ? machine_error(&core->m) : QUIRE_INVALID;
    }
    w->s = state_at(&core->m, run_base(core, to));
    w->s.id = to;
    return QUIRE_OK;
}

quire_err grammar_accept_bytes(grammar_run *r, grammar_state *s, str bytes, size_t *n_taken) {
    walk w = {*s, bytes, 0};
    quire_err e = run_do(r, walk_op, &w);
    if (n_taken != NULL) {
        *n_taken = w.n;
    }
    *s = w.s;
    return e;
}

quire_err grammar_accept(grammar_run *r, grammar_state *s, int32_t token) {
    assert(r != NULL);
    const grammar_vocab *v = r->core->v;
    if (token < 0 || token >= v->n_tokens) {
        return QUIRE_INVALID;
    }
    if (vocab_is_end(v, token)) {
        return grammar_is_final(r, *s) ? QUIRE_OK : QUIRE_INVALID;
    }
    str text = vocab_text(v, token);
    return text.n == 0 || text.n > VOCAB_MAX_TOKEN ? QUIRE_INVALID : grammar_accept_bytes(r, s, text, NULL);
}

bool grammar_allows(grammar_run *r, grammar_state s, int32_t token) {
    return grammar_accept(r, &s, token) == QUIRE_OK;
}

/* Like run_mask, but counts the time if the mask is built. */
static quire_err timed_mask(run_core *core, uint32_t s, uint64_t *bits) {
    if (machine_state_at(&core->m, s)->mask != 0) {
        return run_mask(core, s, bits);
    }
    int64_t from = clock_ns();
    quire_err e = run_mask(core, s, bits);
    atomic_fetch_add_explicit(&core->mask_ns, clock_ns() - from, memory_order_relaxed);
    return e;
}

typedef struct mask_asked {
    uint32_t s;
    uint64_t *bits;
} mask_asked;

static quire_err mask_op(run_core *core, void *context) {
    const mask_asked *a = context;
    TRY(timed_mask(core, run_base(core, a->s), a->bits));
    return run_forbid_names(core, a->s, a->bits) ? QUIRE_OK : machine_error(&core->m);
}

quire_err grammar_mask(grammar_run *r, grammar_state s, uint64_t *bits) {
    mask_asked a = {s.id, bits};
    return run_do(r, mask_op, &a);
}

static quire_err warm_op(run_core *core, void *context) {
    enum { PLACES = 3 }; /* the start, and twice after letters, where free text no longer changes state */
    size_t n;
    uint32_t s = MACHINE_FIRST;
    (void)context;
    for (int i = 0; i < PLACES && s >= MACHINE_FIRST; i++) {
        if (machine_state_at(&core->m, s)->mask == 0) {
            TRY(timed_mask(core, s, core->scratch));
        }
        s = run_walk(core, s, str_of("ab"), &n);
    }
    return s == MACHINE_FULL ? machine_error(&core->m) : QUIRE_OK;
}

void grammar_run_warm(grammar_run *r) {
    (void)run_do(r, warm_op, NULL);
}

/* ---- statistics ---- */

int64_t grammar_run_mask_ns(const grammar_run *r) {
    return atomic_load_explicit(&r->core->mask_ns, memory_order_relaxed);
}

void grammar_run_get_stats(grammar_run *r, grammar_run_stats *out) {
    assert(r != NULL);
    run_core *core = r->core;
    (void)pthread_mutex_lock(&core->lock);
    *out = core->stats;
    out->n_states = core->m.n_states;
    out->bytes = core->m.budget.used + core->mask_budget.used;
    (void)pthread_mutex_unlock(&core->lock);
}

struct grammar_memory {
    area_pool pool;
    pthread_mutex_t lock; /* guards shares and refs */
    memory_share *shares;
    int32_t refs; /* one of its opener, one per share */
};

quire_err grammar_memory_open(size_t max_bytes, grammar_memory **out) {
    grammar_memory *m = mem_new(1, sizeof *m);
    *out = NULL;
    TRY(mem_check(m));
    m->pool.max = max_bytes;
    atomic_init(&m->pool.used, 0);
    pthread_mutex_init(&m->lock, NULL);
    m->refs = 1;
    *out = m;
    return QUIRE_OK;
}

/* Drops a reference. Called with the lock held; releases it. */
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

/* Frees, shrinks and measures an nfa. */
#include "grammar/nfa.h"

#include <assert.h>

#define EACH_VEC(a, X)                                                                                       \
    X((a)->nodes)                                                                                            \
    X((a)->targets)                                                                                          \
    X((a)->bytes)                                                                                            \
    X((a)->classes)                                                                                          \
    X((a)->ranges)                                                                                           \
    X((a)->dfas)                                                                                             \
    X((a)->dstates)                                                                                          \
    X((a)->dedges)                                                                                           \
    X((a)->counts)                                                                                           \
    X((a)->texts)                                                                                            \
    X((a)->text_sets)                                                                                        \
    X((a)->repeats)                                                                                          \
    X((a)->objects)                                                                                          \
    X((a)->arrays)                                                                                           \
    X((a)->slots) X((a)->parts) X((a)->mark_sets) X((a)->mark_ids) X((a)->rules) X((a)->heights)

enum { ALIGN = 8 }; /* alignment of each vector in the block */

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void free_vectors(nfa *a) {
#define FREE(vec) mem_free((vec).p);
    EACH_VEC(a, FREE)
#undef FREE
}

void nfa_deinit(nfa *a) {
    assert(a != NULL);
    if (a->block != NULL) {
        mem_free(a->block);
    } else {
        free_vectors(a);
    }
    *a = (nfa){0};
}

/* Copies n_bytes of the vector at p to `to`, and makes the vector refer to the copy; an
 * empty one becomes NULL. */
static void nfa_move(void *p, size_t *cap, size_t n, size_t n_bytes, char *to) {
    void *old;
    memcpy(&old, p, sizeof old);
    mem_copy(to, old, n_bytes);
    old = n > 0 ? to : NULL;
    memcpy(p, &old, sizeof old);
    *cap = n;
}

void nfa_shrink(nfa *a) {
    assert(a != NULL);
    size_t n_bytes = 0;
#define ADD(vec) n_bytes += aligned((vec).n * sizeof *(vec).p);
    EACH_VEC(a, ADD)
#undef ADD
    char *block = a->block == NULL ? mem_new(1, n_bytes) : NULL, *at = block;
    if (block == NULL) {
        return;
    }
    nfa old = *a;
#define MOVE(vec)                                                                                            \
    nfa_move(&(vec).p, &(vec).cap, (vec).n, (vec).n * sizeof *(vec).p, at);                                  \
    at += aligned((vec).n * sizeof *(vec).p);
    EACH_VEC(a, MOVE)
#undef MOVE
    free_vectors(&old);
    a->block = block;
}

size_t nfa_size_bytes(const nfa *a) {
    size_t bytes = 0;
#define ADD(vec) bytes += aligned((vec).cap * sizeof *(vec).p);
    EACH_VEC(a, ADD)
#undef ADD
    return bytes;
}

/* ---- whether an array can be completed: how many items can count for its rules ---- */

/* The kinds of parts an item may be: bit r is set if some part counts for the set of
 * rules r. */
static uint32_t slot_kinds(const nfa *a, nfa_room room, const nfa_slot *s) {
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const nfa_part *p = &a->parts.p[s->first + i];
        kinds |= nfa_fits(room, p->entry) ? 1u << p->rules : 0;
    }
    return kinds;
}

static uint32_t kinds_of(const nfa *a, const nfa_array *r, nfa_room room, uint32_t item) {
    return slot_kinds(a, room, &a->slots.p[r->first + (item < r->n ? item : r->n)]);
}

/* ---- at most one rule: further items reach all counts from `least` to `most` ---- */

typedef struct reached {
    uint64_t items, least, most;
} reached;

static bool is_enough(const nfa_array *r, const reached *c) {
    const nfa_count *n = &r->rules[0];
    return c->items >= r->min && c->items <= r->max && c->most >= n->min && c->least <= n->max &&
           n->min <= n->max;
}

/* Whether further items of the last slot can complete the array. */
static bool is_enough_later(const nfa_array *r, const reached *c, uint32_t kinds) {
    uint64_t more = c->items < r->min ? r->min - c->items : 0,
             missing = c->most < r->rules[0].min ? r->rules[0].min - c->most : 0;
    more = (kinds & 2) != 0 && missing > more ? missing : more;
    const reached then = {c->items + more, c->least + (kinds == 2 ? more : 0),
                          c->most + ((kinds & 2) != 0 ? more : 0)};
    return kinds != 0 && is_enough(r, &then);
}

static bool one_rule_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count,
                             uint32_t counted) {
    reached c = {count, counted, counted};
    while (!is_enough(r, &c)) {
        uint32_t kinds = kinds_of(a, r, room, (uint32_t)c.items);
        if (c.items >= r->n) {
            return is_enough_later(r, &c, kinds);
        }
        if (kinds == 0 || c.items >= r->max) {
            return false;
        }
        c.items++;
        c.least += kinds == 2;
        c.most += (kinds & 2) != 0;
    }
    return true;
}

/* ---- several rules: the set of counts that can be reached ---- */

bool nfa_count_item(const nfa_array *r, uint32_t rules, uint32_t *counts) {
    assert(r != NULL && counts != NULL);
    uint32_t left = *counts, sum = 0;
    uint64_t unit = 1;
    for (uint32_t i = 0; i < r->n_rules; i++) {
        bool has_max = r->rules[i].max != NFA_NONE;
        uint32_t cap = has_max ? r->rules[i].max : r->rules[i].min,
                 n = r->n_rules == 1 ? left : (uint32_t)(left % (cap + UINT64_C(1)));
        if ((rules >> i & 1) != 0) {
            if (n == cap && has_max) {
                return false;
            }
            n += n < cap;
        }
        sum += (uint32_t)(n * unit);
        left = (uint32_t)(left / (cap + UINT64_C(1)));
        unit *= cap + UINT64_C(1);
    }
    *counts = sum;
    return true;
}

bool nfa_counts_suffice(const nfa_array *r, uint32_t counts) {
    assert(r != NULL);
    for (uint32_t i = 0; i < r->n_rules; i++) {
        uint32_t cap = r->rules[i].max != NFA_NONE ? r->rules[i].max : r->rules[i].min;
        if ((r->n_rules == 1 ? counts : (uint32_t)(counts % (cap + UINT64_C(1)))) < r->rules[i].min) {
            return false;
        }
        counts = (uint32_t)(counts / (cap + UINT64_C(1)));
    }
    return true;
}

static bool any_suffices(const nfa_array *r, const bool *set) {
    for (uint32_t c = 0; c < NFA_MAX_COUNTS; c++) {
        if (set[c] && nfa_counts_suffice(r, c)) {
            return true;
        }
    }
    return false;
}

/* Computes the counts after another item. False: none may come. */
static bool nfa_items_one_more(const nfa_array *r, uint32_t kinds, const bool *set, bool *to) {
    bool any = false;
    memset(to, 0, NFA_MAX_COUNTS);
    for (uint32_t c = 0; c < NFA_MAX_COUNTS; c++) {
        for (uint32_t rules = 0; set[c] && rules < 1u << r->n_rules; rules++) {
            uint32_t counts = c;
            if ((kinds >> rules & 1) != 0 && nfa_count_item(r, rules, &counts)) {
                to[counts] = any = true;
            }
        }
    }
    return any;
}

static bool rules_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts) {
    bool set[NFA_MAX_COUNTS] = {false}, to[NFA_MAX_COUNTS];
    set[counts] = true;
    for (uint32_t items = count; items <= r->max; items++) {
        if (items >= r->min && any_suffices(r, set)) {
            return true;
        }
        if (items == r->max || !nfa_items_one_more(r, kinds_of(a, r, room, items), set, to)) {
            return false;
        }
        if (items >= r->n && memcmp(set, to, sizeof set) == 0) { /* nothing changes from here on */
            return r->min <= r->max && any_suffices(r, set);
        }
        memcpy(set, to, sizeof set);
    }
    return false;
}

bool nfa_items_can_end(const nfa *a, const nfa_array *r, nfa_room room, uint32_t count, uint32_t counts) {
    return r->n_rules > 1 ? rules_can_end(a, r, room, count, counts)
                          : one_rule_can_end(a, r, room, count, counts);
}

/* How many members an object needs until its required names and rules are satisfied. */

bool nfa_text_can_end(const nfa *a, const nfa_text *t, uint32_t state, uint32_t count) {
    assert(t != NULL);
    if (count > t->max) {
        return false;
    }
    if (count >= t->min && t->far != NFA_NONE && (t->max == NFA_NONE || t->max - count >= t->far)) {
        return true;
    }
    uint32_t most = t->max == NFA_NONE ? NFA_NONE : t->max - count, period = t->n_sets - t->loop,
             words = nfa_text_words(t);
    /* from there on sets repeat */
    uint32_t i = count < t->min ? t->min - count : 0, last = (i > t->loop ? i : t->loop) + period;
    for (; i < last && i <= most; i++) {
        uint32_t set = i < t->n_sets ? i : t->loop + (i - t->loop) % period;
        if ((a->text_sets.p[t->sets + set * words + state / 64] >> (state % 64) & 1) != 0) {
            return true;
        }
    }
    return false;
}

#define N_SETS (1u << NFA_MAX_RULES)

/* Takes a part: to[r | its rules] becomes at most from[r] + 1. */
static void nfa_members_take(const nfa_part *p, uint32_t all, const uint32_t *from, uint32_t *to) {
    for (uint32_t r = 0; r <= all; r++) {
        uint32_t *one = &to[r | p->rules];
        if (from[r] != NFA_NONE && from[r] + 1 < *one) {
            *one = from[r] + 1;
        }
    }
}

uint32_t nfa_members_needed(const nfa *a, const nfa_object *o, nfa_room room, uint32_t satisfied,
                            uint32_t next, const uint64_t *seen) {
    uint32_t least[N_SETS], with[N_SETS], end; /* by set of satisfied rules */
    for (uint32_t r = 0; r < N_SETS; r++) {
        least[r] = r == satisfied ? 0 : NFA_NONE;
    }
    for (uint32_t i = 0; i < o->n; i = end) {
        const nfa_part *p = &a->parts.p[o->first + i];
        bool may = p->name >= next && (seen == NULL || (seen[p->name / 64] >> (p->name % 64) & 1) == 0);
        memcpy(with, least, sizeof with);
        if (may && p->required) {
            memset(with, 0xFF, sizeof with);
        }
        for (end = i; end < o->n && p[end - i].name == p->name; end++) {
            if (may && nfa_fits(room, p[end - i].entry)) {
                nfa_members_take(&p[end - i], o->rules, least, with);
            }
        }
        memcpy(least, with, sizeof least);
    }
    /* each open member that is needed satisfies a further rule */
    for (uint32_t round = 0; round < NFA_MAX_RULES; round++) {
        for (uint32_t i = o->n; i < o->n + o->n_open; i++) {
            if (nfa_fits(room, a->parts.p[o->first + i].entry)) {
                nfa_members_take(&a->parts.p[o->first + i], o->rules, least, least);
            }
        }
    }
    return least[o->rules];
}

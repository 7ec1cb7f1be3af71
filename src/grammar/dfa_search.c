/* Automata over characters that look for texts (Aho and Corasick 1975). */
#include <assert.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/dfa.h"

#define MAX_BYTES 8192 /* limit on the bytes of all texts */

/* A state is the longest suffix of what was read that is a prefix of some text. */
typedef struct prefix {
    uint32_t child, sibling, c; /* links of the trie; the character that leads here */
    uint32_t shorter;           /* state of the longest proper suffix that is a state */
    uint32_t text;              /* the text that ends here, plus 1 */
    bool found;                 /* a text ends here, this one's or a shorter one */
    bool wanted;                /* texts[wanted] ends here */
} prefix;

typedef struct search {
    build *b;
    NFA_VEC(prefix) states;
    NFA_VEC(uint32_t) chars; /* characters of all texts, ascending, distinct */
    NFA_VEC(uint32_t) order; /* states sorted by length */
} search;

static uint32_t child_of(const search *s, uint32_t state, uint32_t c) {
    uint32_t i = s->states.p[state].child;
    while (i != 0 && s->states.p[i].c != c) {
        i = s->states.p[i].sibling;
    }
    return i;
}

static uint32_t dfa_search_add_child(search *s, uint32_t state, uint32_t c) {
    uint32_t i = child_of(s, state, c);
    if (i != 0) {
        return i;
    }
    prefix *p = NFA_PUSH(s->b, s->states);
    uint32_t *kept = p != NULL ? NFA_PUSH(s->b, s->chars) : NULL;
    if (kept == NULL) {
        return 0;
    }
    *kept = c;
    *p = (prefix){.c = c, .sibling = s->states.p[state].child};
    i = s->states.n - 1;
    s->states.p[state].child = i;
    return i;
}

/* The state after a character; 0 is the empty prefix. */
static uint32_t go(const search *s, uint32_t state, uint32_t c) {
    uint32_t to;
    while ((to = child_of(s, state, c)) == 0 && state != 0) {
        state = s->states.p[state].shorter;
    }
    return to;
}

static int compare_chars(const void *x, const void *y) {
    const uint32_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

/* Links each prefix to its shorter suffixes, in order of length. */
static void link_shorter(search *s) {
    if (!NFA_ADD(s->b, s->order, 0)) {
        return;
    }
    for (uint32_t at = 0; at < s->order.n && build_step(s->b, 1); at++) {
        uint32_t state = s->order.p[at];
        for (uint32_t i = s->states.p[state].child; i != 0 && build_step(s->b, 1);
             i = s->states.p[i].sibling) {
            prefix *p = &s->states.p[i];
            p->shorter = state != 0 ? go(s, s->states.p[state].shorter, p->c) : 0;
            p->found = p->text != 0 || s->states.p[p->shorter].found;
            p->wanted = p->wanted || s->states.p[p->shorter].wanted;
            (void)NFA_ADD(s->b, s->order, i);
        }
    }
}

static void search_open(search *s, build *b, const str *texts, uint32_t n, uint32_t wanted) {
    *s = (search){.b = b};
    if (!NFA_ADD(b, s->states, (prefix){0})) {
        return;
    }
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += texts[i].n;
        if (bytes > MAX_BYTES) {
            (void)build_fail(b, QUIRE_TOO_LARGE, -1,
                             "the texts that end free text have more than %d bytes together", MAX_BYTES);
            return;
        }
        uint32_t at = 0;
        for (size_t k = 0, len; k < texts[i].n && build_step(b, 1); k += len) {
            at = dfa_search_add_child(s, at, (uint32_t)utf8_next(texts[i].p + k, &len));
        }
        s->states.p[at].text = i + 1;
        s->states.p[at].wanted = s->states.p[at].wanted || i == wanted;
    }
    uint32_t n_chars = 0;
    if (s->chars.n > 1) {
        qsort(s->chars.p, s->chars.n, sizeof *s->chars.p, compare_chars);
    }
    for (uint32_t i = 0; i < s->chars.n; i++) {
        if (n_chars == 0 || s->chars.p[i] != s->chars.p[n_chars - 1]) {
            s->chars.p[n_chars++] = s->chars.p[i];
        }
    }
    s->chars.n = n_chars;
    link_shorter(s);
}

static void search_close(search *s) {
    NFA_FREE(s->b, s->states);
    NFA_FREE(s->b, s->chars);
    NFA_FREE(s->b, s->order);
}

/* Adds a state with its edges. */
static void dfa_search_write_state(const search *s, dfa_pool *p, uint32_t x, uint32_t state,
                                   dfa_found found) {
    const prefix *at = &s->states.p[state];
    bool ends = found == DFA_FIRST && at->found;
    uint32_t from = 0;
    dfa_add_state(p, x, found == DFA_NEVER ? !at->found : at->wanted);
    for (uint32_t i = 0; i < s->chars.n && !ends && build_step(p->b, 1); i++) {
        uint32_t c = s->chars.p[i], to = go(s, state, c);
        bool closed = found == DFA_NEVER && s->states.p[to].found;
        if (c > from) {
            dfa_add_edge(p, x, from, c - 1, 0);
        }
        dfa_add_edge(p, x, c, c, closed ? NFA_NONE : to);
        from = c + 1;
    }
    if (from <= NFA_MAX_CHAR) {
        dfa_add_edge(p, x, from, NFA_MAX_CHAR, ends ? NFA_NONE : 0);
    }
}

uint32_t dfa_search(dfa_pool *p, const str *texts, uint32_t n, uint32_t wanted, dfa_found found) {
    assert(p != NULL);
    search s;
    uint32_t x = dfa_new(p);
    search_open(&s, p->b, texts, n, wanted);
    for (uint32_t i = 0; i < s.states.n && build_step(p->b, 1); i++) {
        dfa_search_write_state(&s, p, x, i, found);
    }
    search_close(&s);
    return dfa_trim(p, x);
}

/* Computes with how many more characters texts can be completed from each state of a dfa.
 *
 * Set 0 has the accepting states, set i + 1 the states with an edge into set i. A set
 * determines the next one, so once a set repeats, all do. */

enum { MOST_SETS = 4096, MOST_WORDS = 1 << 17 };

static bool dfa_lengths_has(const uint64_t *set, uint32_t state) {
    return (set[state / 64] >> (state % 64) & 1) != 0;
}

/* Whether an edge of s leads to a state of `following`, or to a silent state of `now`,
 * since its character does not count. */
static bool leads(const dfa *d, const nfa_dstate *s, const uint64_t *following, const uint64_t *now) {
    for (uint32_t k = 0; k <= s->n; k++) {
        uint32_t to = k < s->n ? d->edges.p[s->first + k].to : s->other;
        if (to != NFA_NONE && dfa_lengths_has(d->states.p[to].silent ? now : following, to)) {
            return true;
        }
    }
    return false;
}

/* Computes the set before `following`; silent states first, as others depend on them. */
static void step_back(build *b, const dfa *d, const uint64_t *following, uint64_t *now) {
    for (int silent = 1; silent >= 0; silent--) {
        for (uint32_t i = 0; i < d->states.n && build_step(b, 1); i++) {
            const nfa_dstate *s = &d->states.p[i];
            if (s->silent == (silent != 0) && leads(d, s, following, now)) {
                now[i / 64] |= (uint64_t)1 << (i % 64);
            }
        }
    }
}

static void first_set(const dfa *d, uint64_t *set) {
    for (uint32_t i = 0; i < d->states.n; i++) {
        set[i / 64] |= (uint64_t)d->states.p[i].accepts << (i % 64);
    }
}

static bool dfa_lengths_is_full(const uint64_t *set, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!dfa_lengths_has(set, i)) {
            return false;
        }
    }
    return true;
}

/* Finds from which set on each state was in some set, and whether the repeating sets are
 * full. */
static void find_bounds(const dfa *d, dfa_lengths *l, uint64_t *seen) {
    bool full = true;
    l->far = l->rich = NFA_NONE;
    for (uint32_t i = 0; i < l->n_sets; i++) {
        for (uint32_t w = 0; w < l->words; w++) {
            seen[w] |= l->sets[(size_t)i * l->words + w];
        }
        l->far = l->far == NFA_NONE && dfa_lengths_is_full(seen, d->states.n) ? i : l->far;
        full = full && (i < l->loop || dfa_lengths_is_full(l->sets + (size_t)i * l->words, d->states.n));
    }
    l->rich = full ? l->loop : NFA_NONE;
}

/* Finds the sets; out->sets stays NULL if they do not repeat in time. */
static void find_lengths(dfa_pool *p, const dfa *d, dfa_lengths *out) {
    uint32_t words = (d->states.n + 63) / 64,
             most = MOST_WORDS / words < MOST_SETS ? MOST_WORDS / words : MOST_SETS;
    uint64_t *sets = build_new(p->b, ((size_t)most + 1) * words, sizeof *sets);
    if (sets == NULL) {
        return;
    }
    *out = (dfa_lengths){.sets = sets, .words = words, .n_sets = 1, .loop = NFA_NONE};
    first_set(d, sets);
    while (out->n_sets <= most && out->loop == NFA_NONE && p->b->failed == QUIRE_OK) {
        uint64_t *now = sets + (size_t)out->n_sets * words;
        step_back(p->b, d, now - words, now);
        for (uint32_t i = out->n_sets; i-- > 0 && out->loop == NFA_NONE && build_step(p->b, 1);) {
            out->loop = memcmp(sets + (size_t)i * words, now, words * sizeof *now) == 0 ? i : NFA_NONE;
        }
        out->n_sets += out->loop == NFA_NONE;
    }
    uint64_t *seen = out->loop != NFA_NONE && p->b->failed == QUIRE_OK ? mem_new(words, sizeof *seen) : NULL;
    if (seen == NULL) {
        mem_free(sets);
        *out = (dfa_lengths){0};
        return;
    }
    find_bounds(d, out, seen);
    mem_free(seen);
}

const dfa_lengths *dfa_lengths_of(dfa_pool *p, uint32_t x) {
    assert(p != NULL);
    dfa_merge(p, x);
    if (p->b->failed == QUIRE_OK && !p->all.p[x].measured) {
        dfa_lengths found = {0};
        find_lengths(p, &p->all.p[x], &found);
        p->all.p[x].lengths = found;
        p->all.p[x].measured = true;
    }
    return p->b->failed == QUIRE_OK && p->all.p[x].lengths.sets != NULL ? &p->all.p[x].lengths : NULL;
}

bool dfa_lengths_meet(const dfa_lengths *l, uint32_t min, uint32_t max, bool *all) {
    assert(l != NULL);
    bool some = false;
    *all = true;
    for (uint32_t i = 0; i < l->n_sets; i++) {
        bool may = (l->sets[(size_t)i * l->words] & 1) != 0, recurs = i >= l->loop;
        uint32_t period = l->n_sets - l->loop;
        uint64_t from = i,
                 /* the first one that is at least min */
            first = min > i && recurs ? i + (uint64_t)(min - i + period - 1) / period * period : i;
        some = some || (may && first >= min && first <= max);
        *all = *all && (!may || (from >= min && from <= max && (!recurs || max == NFA_NONE)));
    }
    return some;
}

/* Memoises automata: equal patterns, lists and combinations are made once, so the schemas
 * of many tools share them. */

/* What an automaton was made from. */
typedef struct dfa_key {
    uint32_t kind, x, y;
    str text;
} dfa_key;

typedef enum memo_kind { MEMO_PATTERN, MEMO_NAMES, MEMO_LENGTH, MEMO_COMBINE, MEMO_QUOTED } memo_kind;

static dfa_key dfa_memo_key_of(const dfa_pool *p, const dfa_made *m) {
    const char *text = m->n_text > 0 ? (const char *)p->made_texts.p + m->text : "";
    return (dfa_key){m->kind, m->x, m->y, {text, m->n_text}};
}

static uint32_t dfa_memo_hash_of(const dfa_key *k) {
    const uint32_t words[] = {k->kind, k->x, k->y};
    return (uint32_t)str_hash(str_hash(STR_HASH_START, (str){(const char *)words, sizeof words}), k->text);
}

/* Finds an automaton that was made before; *x: its number. */
static bool dfa_memo_find(const dfa_pool *p, const dfa_key *k, uint32_t *x) {
    uint32_t hash = dfa_memo_hash_of(k);
    if (p->b->failed != QUIRE_OK) {
        return false;
    }
    HASH_INDEX_EACH(&p->index, hash, i) {
        dfa_key other = dfa_memo_key_of(p, &p->made.p[i]);
        if (!build_step(p->b, 1)) {
            return false;
        }
        if (other.kind == k->kind && other.x == k->x && other.y == k->y && str_eq(other.text, k->text)) {
            *x = p->made.p[i].dfa;
            return true;
        }
    }
    return false;
}

/* Records x as made from k; returns x. */
static uint32_t dfa_memo_note(dfa_pool *p, const dfa_key *k, uint32_t x) {
    uint32_t first = p->made_texts.n;
    for (size_t i = 0; i < k->text.n; i++) {
        (void)NFA_ADD(p->b, p->made_texts, (uint8_t)k->text.p[i]);
    }
    if (NFA_ADD(p->b, p->made, (dfa_made){k->kind, k->x, k->y, first, (uint32_t)k->text.n, x})) {
        (void)build_index(p->b, &p->index, dfa_memo_hash_of(k), p->made.n - 1);
    }
    return x;
}

uint32_t dfa_pattern(dfa_pool *p, str regex) {
    const dfa_key k = {MEMO_PATTERN, 0, 0, regex};
    uint32_t x;
    return dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_pattern(p, regex));
}

uint32_t dfa_names(dfa_pool *p, const str *names, uint32_t n) {
    strbuf text = {0};
    uint32_t x = DFA_ANY;
    quire_err e = QUIRE_OK;
    for (uint32_t i = 0; i < n; i++) {
        TRY_DONE(e, strbuf_add(&text, &names[i].n, sizeof names[i].n));
        TRY_DONE(e, strbuf_add(&text, names[i].p, names[i].n));
    }
    const dfa_key k = {MEMO_NAMES, n, 0, {text.p != NULL ? text.p : "", text.n}};
    x = dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_names(p, names, n));
done:
    if (e != QUIRE_OK) {
        (void)build_fail(p->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    }
    strbuf_deinit(&text);
    return x;
}

uint32_t dfa_length(dfa_pool *p, uint32_t min, uint32_t max) {
    const dfa_key k = {MEMO_LENGTH, min, max, {"", 0}};
    uint32_t x;
    return dfa_memo_find(p, &k, &x) ? x : dfa_memo_note(p, &k, dfa_make_length(p, min, max));
}

uint32_t dfa_combine(dfa_pool *p, uint32_t x, uint32_t y, dfa_op op) {
    const dfa_key k = {MEMO_COMBINE + ((uint32_t)op << 8), x, y, {"", 0}};
    uint32_t both;
    return dfa_memo_find(p, &k, &both) ? both : dfa_memo_note(p, &k, dfa_make_combined(p, x, y, op));
}

uint32_t dfa_quoted(dfa_pool *p, uint32_t x, char quote) {
    const dfa_key k = {MEMO_QUOTED, x, (uint8_t)quote, {"", 0}};
    uint32_t q;
    return dfa_memo_find(p, &k, &q) ? q : dfa_memo_note(p, &k, dfa_make_quoted(p, x, quote));
}

/* Makes a dfa smaller before it is copied into the nfa: merges equivalent states and
 * drops unreachable ones.
 *
 * One pass from the last state to the first, so that a state is compared after the later
 * states that it leads to. That finds all common suffixes in lists of names, and most of
 * what patterns leave. Earlier targets count as they are, so some equivalent states on
 * cycles stay. */

typedef struct merge {
    dfa *d;
    uint32_t *map;    /* for each state, the one that represents it */
    hash_index index; /* of representatives */
} merge;

static uint32_t dfa_merge_mix(uint32_t h, uint32_t v) {
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ (h >> 15);
}

/* A target as this state sees it: a later one is replaced by its representative. */
static uint32_t seen(const merge *m, uint32_t state, uint32_t to) {
    return to == NFA_NONE ? NFA_NONE : to == state ? NFA_NONE - 1 : to > state ? m->map[to] : to;
}

static uint32_t hash_state(const merge *m, uint32_t i) {
    const nfa_dstate *s = &m->d->states.p[i];
    uint32_t h = dfa_merge_mix(dfa_merge_mix(s->n, (uint32_t)s->accepts | (uint32_t)s->silent << 1),
                               seen(m, i, s->other));
    for (uint32_t k = 0; k < s->n; k++) {
        const dfa_edge *e = &m->d->edges.p[s->first + k];
        h = dfa_merge_mix(dfa_merge_mix(dfa_merge_mix(h, e->lo), e->hi), seen(m, i, e->to));
    }
    return h;
}

static bool dfa_merge_is_same(const merge *m, uint32_t i, uint32_t j) {
    const nfa_dstate *a = &m->d->states.p[i], *b = &m->d->states.p[j];
    bool same = a->n == b->n && a->accepts == b->accepts && a->silent == b->silent &&
                seen(m, i, a->other) == seen(m, j, b->other);
    for (uint32_t k = 0; k < a->n && same; k++) {
        const dfa_edge *e = &m->d->edges.p[a->first + k], *f = &m->d->edges.p[b->first + k];
        same = e->lo == f->lo && e->hi == f->hi && seen(m, i, e->to) == seen(m, j, f->to);
    }
    return same;
}

static void find_same(build *b, merge *m) {
    for (uint32_t i = m->d->states.n; i-- > 0 && build_step(b, 1 + m->d->states.p[i].n);) {
        uint32_t hash = hash_state(m, i);
        m->map[i] = i;
        HASH_INDEX_EACH(&m->index, hash, other) {
            if (dfa_merge_is_same(m, i, other)) {
                m->map[i] = other;
                break;
            }
        }
        if (m->map[i] == i && !build_index(b, &m->index, hash, i)) {
            return;
        }
    }
}

/* Appends the representative of `to` to the new order unless it is there. number[state]:
 * its place in the order, plus 1. */
static void dfa_merge_reach(const merge *m, uint32_t to, uint32_t *number, uint32_t *order, uint32_t *n) {
    if (to != NFA_NONE && number[m->map[to]] == 0) {
        order[*n] = m->map[to];
        number[m->map[to]] = ++*n;
    }
}

static uint32_t moved(const merge *m, const uint32_t *number, uint32_t to) {
    return to != NFA_NONE ? number[m->map[to]] - 1 : NFA_NONE;
}

/* Writes the reachable states to out, in the order in which they are reached. */
static void rebuild(dfa_pool *p, const merge *m, uint32_t *number, uint32_t *order, dfa *out) {
    uint32_t n = 0;
    dfa_merge_reach(m, 0, number, order, &n);
    for (uint32_t i = 0; i < n && p->b->failed == QUIRE_OK; i++) {
        const nfa_dstate *s = &m->d->states.p[order[i]];
        for (uint32_t k = 0; k < s->n; k++) {
            dfa_merge_reach(m, m->d->edges.p[s->first + k].to, number, order, &n);
        }
        dfa_merge_reach(m, s->other, number, order, &n);
        nfa_dstate *state = NFA_PUSH(p->b, out->states);
        if (state == NULL) {
            return;
        }
        *state = (nfa_dstate){.first = out->edges.n,
                              .other = moved(m, number, s->other),
                              .accepts = s->accepts,
                              .silent = s->silent};
        for (uint32_t k = 0; k < s->n; k++) {
            dfa_edge e = m->d->edges.p[s->first + k];
            e.to = moved(m, number, e.to);
            dfa_edge *last = state->n > 0 ? &out->edges.p[out->edges.n - 1] : NULL;
            if (last != NULL && last->to == e.to && last->hi + 1 == e.lo) {
                last->hi = e.hi;
                continue;
            }
            if (!NFA_ADD(p->b, out->edges, e)) {
                return;
            }
            state->n++;
        }
    }
}

void dfa_merge(dfa_pool *p, uint32_t x) {
    assert(p != NULL);
    if (p->b->failed != QUIRE_OK || p->all.p[x].merged) {
        return;
    }
    dfa *d = &p->all.p[x], made = {.placed = d->placed, .merged = true};
    uint32_t n = d->states.n;
    merge m = {.d = d, .map = build_new(p->b, 3 * (size_t)n, sizeof *m.map)};
    if (m.map != NULL) {
        find_same(p->b, &m);
        rebuild(p, &m, m.map + n, m.map + 2 * (size_t)n, &made);
    }
    mem_free(m.map);
    hash_index_deinit(&m.index);
    dfa old = *d;
    if (p->b->failed == QUIRE_OK) {
        *d = made;
        made = old;
    }
    NFA_FREE(p->b, made.states);
    NFA_FREE(p->b, made.edges);
}

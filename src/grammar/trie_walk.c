/* Walks a trie of the vocabulary through the machine.
 *
 * If a node of a state accepts any text of some groups of characters, as in a string with
 * a pattern, or if these groups lead from the state back to it, a subtree with only such
 * characters is accepted at once. These groups are found on demand, and cached for a few
 * states. */
#include "grammar/grammar_run.h"

#include <assert.h>

/* ---- groups that lead from a state back to it ---- */

static bool loops_over_ascii(run_core *r, uint32_t s, uint32_t group) {
    const trie_groups *g = &r->v->groups;
    for (uint32_t i = g->start[group]; i < g->start[group + 1]; i++) {
        if (machine_next(&r->m, s, g->bytes[i]) != s) {
            return false;
        }
    }
    return true;
}

/* Whether all characters beyond ASCII lead c to the same target, or none are allowed. */
static bool is_even(const run_core *r, const machine_config *c) {
    const nfa *a = r->m.a;
    const nfa_node *node = &a->nodes.p[c->node];
    if (c->value != 0) {
        return false;
    }
    if (node->op == NFA_BYTES) {
        return a->bytes.p[node->arg + c->at] < 0x80;
    }
    if (node->op == NFA_STRING || node->op == NFA_TEXT) {
        const nfa_text *t = node->op == NFA_TEXT ? &a->texts.p[node->arg] : NULL;
        const nfa_dstate *d = &a->dstates.p[t != NULL ? t->first + c->at % t->n : c->at];
        return d->n == 0 || a->dedges.p[d->first + d->n - 1].hi < 0x80;
    }
    return node->op == NFA_COUNTED || node->op == NFA_SPACE || node->op == NFA_RETURN;
}

static bool loops_over_others(run_core *r, uint32_t s) {
    static const str samples[] = {{"\xC3\xA9", 2}, {"\xE2\x82\xAC", 3}, {"\xF0\x9F\x98\x80", 4}};
    const machine_state *state = machine_state_at(&r->m, s);
    for (uint32_t i = 0; i < state->n; i++) {
        if (!is_even(r, machine_configs(&r->m, s) + i)) {
            return false;
        }
    }
    size_t n;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        if (run_walk(r, s, samples[i], &n) != s) {
            return false;
        }
    }
    return true;
}

enum { FEW = 8 }; /* tokens for which it is not worth examining a state */

/* The cached knowledge about state s; NULL: there is none, and n_tokens are too few for
 * it. */
static run_taken *taken_by(run_core *r, uint32_t s, uint32_t n_tokens) {
    run_taken *l = &r->taken[s % RUN_TAKEN];
    if (l->state != s && n_tokens < FEW) {
        return NULL;
    }
    if (l->state != s && !work_add(&r->m.meter, machine_state_at(&r->m, s)->n)) {
        machine_fail(&r->m, MACHINE_LATER);
        return NULL;
    }
    if (l->state != s) {
        *l = (run_taken){.state = s, .known = (uint64_t)1 << TRIE_WRONG};
        l->n = run_find_texts(r, s, l->texts);
    }
    return l;
}

/* Whether all of these groups lead from s back to s. */
static bool loops_over(run_core *r, uint32_t s, uint64_t groups, run_taken *l) {
    if ((groups & l->known & ~l->over) != 0) {
        return false;
    }
    for (uint64_t left = groups & ~l->known; left != 0; left &= left - 1) {
        uint32_t g = (uint32_t)__builtin_ctzll(left);
        bool over = g < TRIE_OTHER ? loops_over_ascii(r, s, g) : loops_over_others(r, s);
        if (r->m.why != MACHINE_FINE) {
            return false; /* unknown */
        }
        l->known |= (uint64_t)1 << g;
        l->over |= (uint64_t)over << g;
        if (!over) {
            return false;
        }
    }
    return true;
}

/* Whether all tokens below a node may follow state s, which its byte leads to from state
 * `from`. */
static bool takes_all(run_core *r, uint32_t from, uint32_t s, const trie_under *u) {
    run_taken *l = taken_by(r, s, u->n);
    for (uint32_t i = 0; l != NULL && i < l->n; i++) {
        if ((u->groups & ~l->texts[i].groups) == 0 && u->chars <= l->texts[i].chars) {
            return true;
        }
    }
    return l != NULL && l->n == 0 && (s == from || l->over != 0) && loops_over(r, s, u->groups, l);
}

/* ---- the walk ---- */

static void set_tokens(mask_out *o, const int32_t *same, int32_t token) {
    for (; token >= 0; token = same[token]) {
        mask_set(o, token);
    }
}

static void set_under(mask_out *o, const vocab_trie *t, const trie_under *u) {
    const int32_t *tokens = t->tokens + u->first;
    if (o->before != NULL || o->n + u->n <= o->max) {
        for (uint32_t i = 0; i < u->n; i++) {
            mask_set(o, tokens[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < u->n; i++) {
        o->bits[tokens[i] / 64] |= (uint64_t)1 << (tokens[i] % 64);
    }
    o->n += u->n;
}

#define NODES_A_LOOK 64 /* trie nodes between two looks at the clock */
#define NODES_A_UNIT 16 /* trie nodes that take as long as a configuration */

/* Counts a node of a walk. */
static bool count_node(run_core *r, uint32_t *n) {
    if (++*n % NODES_A_LOOK == 0 && !work_add(&r->m.meter, NODES_A_LOOK / NODES_A_UNIT)) {
        machine_fail(&r->m, MACHINE_LATER);
    }
    return r->m.why == MACHINE_FINE;
}

bool run_walk_trie(run_core *r, const vocab_trie *t, const int32_t *same, uint32_t s, mask_out *o) {
    assert(r != NULL);
    const uint8_t *class = r->m.a->byte_class;
    run_level *l = r->path;
    uint32_t n_nodes = 0;
    *l = (run_level){.state = s, .row = machine_row(&r->m, s), .at = 0, .end = t->n_roots};
    if (l->row == NULL) {
        return false;
    }
    for (;;) {
        if (l->at == l->end) {
            if (l == r->path) {
                return true;
            }
            l--;
            continue;
        }
        const trie_node *node = &t->nodes[l->at++];
        if (!count_node(r, &n_nodes)) {
            return false;
        }
        uint32_t to = l->row[class[node->byte]];
        to = to != MACHINE_UNKNOWN ? to : machine_next(&r->m, l->state, node->byte);
        if (to < MACHINE_FIRST) {
            if (to == MACHINE_FULL) {
                return false;
            }
            continue;
        }
        const trie_under *under = &t->under[node - t->nodes];
        if (node->n > 0 && takes_all(r, l->state, to, under)) {
            set_under(o, t, under);
            continue;
        }
        set_tokens(o, same, node->token);
        if (node->n > 0) {
            const uint32_t *row = machine_row(&r->m, to);
            if (row == NULL) {
                return false;
            }
            *++l = (run_level){.state = to, .row = row, .at = node->child, .end = node->child + node->n};
        }
    }
}

/* Finds texts that a state accepts because one of its nodes reads characters: any
 * characters of some groups (token_trie.c), up to a number.
 *
 * Starts at the node's state in its dfa, and follows the states after one character, two
 * and so on, while some groups lead on from all of them. More states allow fewer groups,
 * so the result is a short list: many groups for few characters, few groups for many. */

enum { MOST_CHARS = 16, MOST_STATES = 32 }; /* limits on the search */

/* The groups in `within` that have a character in lo to hi. */
static uint64_t groups_between(const trie_groups *g, uint32_t lo, uint32_t hi, uint64_t within) {
    uint64_t found = hi >= 128 ? (uint64_t)1 << TRIE_OTHER : 0;
    hi = hi < 128 ? hi : 127;
    for (; lo < 0x20 && lo <= hi && (within & (((uint64_t)1 << TRIE_PRINTED) - 1)) != 0; lo++) {
        found |= (uint64_t)1 << g->of[lo];
    }
    lo = lo < 0x20 ? 0x20 : lo;
    if (lo <= hi) { /* groups are in the order of their characters */
        found |= ((uint64_t)2 << g->of[hi]) - ((uint64_t)1 << g->of[lo]);
    }
    return found & within;
}

/* Characters that lead to the same state; NFA_NONE: to none. */
typedef struct char_range {
    uint32_t lo, hi, to;
} char_range;

/* Part i of a dfa's state: characters with one target. *from: where it begins; advances.
 * False: there is no such part. */
static bool next_range(const nfa *a, const nfa_dstate *d, uint32_t *i, uint32_t *from, char_range *out) {
    if (*from > NFA_MAX_CHAR) {
        return false;
    }
    const nfa_dedge *e = *i < d->n ? &a->dedges.p[d->first + *i] : NULL;
    if (e == NULL || e->lo > *from) {
        *out = (char_range){*from, e == NULL ? NFA_MAX_CHAR : (uint32_t)e->lo - 1, d->other};
    } else {
        *out = (char_range){(uint32_t)e->lo, (uint32_t)e->hi, nfa_dedge_to(e)};
        ++*i;
    }
    *from = out->hi + 1;
    return true;
}

/* The groups in `within` whose characters all lead on from state q. */
static uint64_t groups_led_on(const nfa *a, const trie_groups *g, uint32_t q, uint64_t within) {
    uint32_t i = 0, from = 0;
    for (char_range e; next_range(a, &a->dstates.p[q], &i, &from, &e);) {
        within &= e.to == NFA_NONE ? ~groups_between(g, e.lo, e.hi, within) : within;
    }
    return within;
}

/* The states that some texts lead to, and the groups by which they were reached. */
typedef struct state_list {
    uint32_t states[MOST_STATES], n;
    uint64_t via[MOST_STATES];
    bool full;
} state_list;

/* Adds the states to which these groups lead from q. */
static void taken_texts_add_next(const nfa *a, const trie_groups *g, uint32_t q, uint64_t groups,
                                 state_list *l) {
    uint32_t i = 0, from = 0;
    for (char_range e; next_range(a, &a->dstates.p[q], &i, &from, &e);) {
        uint64_t via = groups_between(g, e.lo, e.hi, groups);
        uint32_t at = 0;
        while (at < l->n && l->states[at] != e.to) {
            at++;
        }
        if (via == 0 || at == MOST_STATES) {
            l->full = l->full || via != 0;
            continue;
        }
        l->via[at] = at < l->n ? l->via[at] | via : via;
        l->states[at] = e.to;
        l->n += at == l->n;
    }
}

/* The groups that also lead on from state i of the list. If it is reached only by signs
 * and does not take letters (a % in a URI), drops these signs instead; then no text leads
 * there. */
static uint64_t groups_leading_on(const nfa *a, const trie_groups *g, state_list *l, uint32_t i,
                                  uint64_t groups) {
    uint64_t on = groups_led_on(a, g, l->states[i], groups), core = groups & g->words;
    if ((on & core) == core || (l->via[i] & core) != 0) {
        return on;
    }
    l->states[i] = NFA_NONE;
    return groups & ~l->via[i];
}

/* The groups in `within` that lead from state q back to it. */
static uint64_t groups_back(const nfa *a, const trie_groups *g, uint32_t q, uint64_t within) {
    uint32_t i = 0, from = 0;
    for (char_range e; next_range(a, &a->dstates.p[q], &i, &from, &e);) {
        within &= e.to != q ? ~groups_between(g, e.lo, e.hi, within) : within;
    }
    return within;
}

/* Finds the texts of these groups that are accepted from state q of a dfa. */
static uint32_t texts_from(const nfa *a, const trie_groups *g, uint32_t q, uint64_t groups, run_texts *out) {
    state_list l = {.states = {q}, .n = 1, .via = {groups}};
    uint32_t n = 0, done = 0;
    uint64_t back = groups_back(a, g, q, groups);
    if (back != 0) {
        out[n++] = (run_texts){back, UINT32_MAX};
    }
    for (uint32_t chars = 1; (back & g->words) == 0 && chars <= MOST_CHARS && !l.full; chars++) {
        uint32_t until = l.n;
        for (uint32_t i = done; i < until; i++) {
            groups = groups_leading_on(a, g, &l, i, groups);
        }
        bool fewer = n == 0 || out[n - 1].groups != groups;
        if (groups == 0 || (fewer && n == RUN_MAX_TEXTS)) {
            break;
        }
        n += fewer;
        out[n - 1] = (run_texts){groups, chars};
        for (; done < until; done++) {
            if (l.states[done] != NFA_NONE) {
                taken_texts_add_next(a, g, l.states[done], groups, &l);
            }
        }
        if (done == l.n && !l.full) { /* no new states: the same groups lead on forever */
            out[n - 1].chars = UINT32_MAX;
            break;
        }
    }
    return n;
}

/* Limits the texts to `left` characters. */
static uint32_t limit(run_texts *texts, uint32_t n, uint32_t left) {
    for (uint32_t i = 0; i < n; i++) {
        texts[i].chars = texts[i].chars < left ? texts[i].chars : left;
    }
    return left > 0 ? n : 0;
}

/* How many more characters a text may have and still be completed from every state. */
static uint32_t text_room(const nfa_text *t, uint32_t count) {
    uint32_t needed = count >= t->min ? t->far : t->rich,
             left = t->max == NFA_NONE ? UINT32_MAX : t->max - count;
    return needed == NFA_NONE || needed > left ? 0 : left == UINT32_MAX ? left : left - needed;
}

uint32_t run_find_texts(const run_core *r, uint32_t s, run_texts *out) {
    assert(r != NULL);
    const nfa *a = r->m.a;
    const trie_groups *g = &r->v->groups;
    const machine_config *c = machine_configs(&r->m, s), *end = c + machine_state_at(&r->m, s)->n;
    for (uint32_t n = 0; c < end; c++) {
        const nfa_node *node = &a->nodes.p[c->node];
        uint64_t usable = node->mode == NFA_RAW ? ((uint64_t)1 << (TRIE_OTHER + 1)) - 1 : g->plain;
        if (c->value != 0) {
            continue;
        }
        if (node->op == NFA_STRING) {
            n = texts_from(a, g, c->at, usable, out);
        } else if (node->op == NFA_TEXT) {
            const nfa_text *t = &a->texts.p[node->arg];
            n = limit(out, texts_from(a, g, t->first + c->at % t->n, usable, out),
                      text_room(t, c->at / t->n));
        } else if (node->op == NFA_COUNTED) {
            const nfa_count *k = &a->counts.p[node->arg];
            out[0] = (run_texts){usable, UINT32_MAX};
            n = limit(out, 1, k->max == NFA_NONE ? UINT32_MAX : k->max - c->at);
        }
        if (n > 0) {
            return n;
        }
    }
    return 0;
}

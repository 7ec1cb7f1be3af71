/* The texts that a state accepts because one of its nodes reads characters: any of some
 * groups of characters (token_trie.h), up to a number.
 *
 * From the node's state in its dfa the states after one character, two and so on are
 * followed, as long as some groups lead on from all of them. With the states these groups
 * become fewer, so the answer is a short list: more groups for few characters, fewer for
 * more. */
#include "grammar/grammar_run.h"

enum { MOST_CHARS = 16, MOST_STATES = 32 }; /* that are followed */

/* Of the groups in `within`, those that have a character from lo to hi. */
static uint64_t groups_between(const trie_groups *g, uint32_t lo, uint32_t hi, uint64_t within) {
    uint64_t found = hi >= 128 ? (uint64_t)1 << TRIE_OTHER : 0;
    hi = hi < 128 ? hi : 127;
    for (; lo < 0x20 && lo <= hi && (within & (((uint64_t)1 << TRIE_PRINTED) - 1)) != 0; lo++) {
        found |= (uint64_t)1 << g->of[lo];
    }
    lo = lo < 0x20 ? 0x20 : lo;
    if (lo <= hi) { /* groups stand in the order of their characters */
        found |= ((uint64_t)2 << g->of[hi]) - ((uint64_t)1 << g->of[lo]);
    }
    return found & within;
}

/* Characters that lead to one state; NFA_NONE: to none. */
typedef struct char_range {
    uint32_t lo, hi, to;
} char_range;

/* Part i of a dfa's state: the characters that lead from it to one target; false: there
 * is none. *from: where it begins, then the next. */
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

/* Of the groups in `within`, those whose characters all lead on from state q. */
static uint64_t groups_led_on(const nfa *a, const trie_groups *g, uint32_t q, uint64_t within) {
    uint32_t i = 0, from = 0;
    for (char_range e; next_range(a, &a->dstates.p[q], &i, &from, &e);) {
        within &= e.to == NFA_NONE ? ~groups_between(g, e.lo, e.hi, within) : within;
    }
    return within;
}

/* States that some texts lead to, and the groups over which they were reached. */
typedef struct state_list {
    uint32_t states[MOST_STATES], n;
    uint64_t via[MOST_STATES];
    bool full;
} state_list;

/* Adds the states to which these groups lead from q. */
static void taken_texts_add_behind(const nfa *a, const trie_groups *g, uint32_t q, uint64_t groups,
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

/* What is left of the groups after state i of the list: those that lead on from it. One
 * that has come over signs alone and at which letters end (a % in a URI) costs these
 * signs instead; then no text leads there any more. */
static uint64_t groups_behind(const nfa *a, const trie_groups *g, state_list *l, uint32_t i,
                              uint64_t groups) {
    uint64_t on = groups_led_on(a, g, l->states[i], groups), core = groups & g->words;
    if ((on & core) == core || (l->via[i] & core) != 0) {
        return on;
    }
    l->states[i] = NFA_NONE;
    return groups & ~l->via[i];
}

/* Of the groups in `within`, those that lead from state q to itself. */
static uint64_t groups_back(const nfa *a, const trie_groups *g, uint32_t q, uint64_t within) {
    uint32_t i = 0, from = 0;
    for (char_range e; next_range(a, &a->dstates.p[q], &i, &from, &e);) {
        within &= e.to != q ? ~groups_between(g, e.lo, e.hi, within) : within;
    }
    return within;
}

/* Texts from state q of a dfa on, of these groups. */
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
            groups = groups_behind(a, g, &l, i, groups);
        }
        bool fewer = n == 0 || out[n - 1].groups != groups;
        if (groups == 0 || (fewer && n == RUN_MAX_TEXTS)) {
            break;
        }
        n += fewer;
        out[n - 1] = (run_texts){groups, chars};
        for (; done < until; done++) {
            if (l.states[done] != NFA_NONE) {
                taken_texts_add_behind(a, g, l.states[done], groups, &l);
            }
        }
        if (done == l.n && !l.full) { /* nothing new: the same groups lead on for ever */
            out[n - 1].chars = UINT32_MAX;
            break;
        }
    }
    return n;
}

/* At most `left` characters. */
static uint32_t limit(run_texts *texts, uint32_t n, uint32_t left) {
    for (uint32_t i = 0; i < n; i++) {
        texts[i].chars = texts[i].chars < left ? texts[i].chars : left;
    }
    return left > 0 ? n : 0;
}

/* How many characters more of a text can be completed wherever they lead. */
static uint32_t text_room(const nfa_text *t, uint32_t count) {
    uint32_t needed = count >= t->min ? t->far : t->rich,
             left = t->max == NFA_NONE ? UINT32_MAX : t->max - count;
    return needed == NFA_NONE || needed > left ? 0 : left == UINT32_MAX ? left : left - needed;
}

uint32_t run_find_texts(const run_core *r, uint32_t s, run_texts *out) {
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

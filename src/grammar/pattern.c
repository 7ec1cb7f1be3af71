/* From a regex to a dfa: its positions (Thompson 1968), then sets of them (Rabin and
 * Scott 1959). */
#include <assert.h>
#include <stdlib.h>

#include "grammar/dfa.h"
#include "grammar/regex_syntax.h"

typedef enum step_kind { STEP_CLASS, STEP_SPLIT, STEP_START, STEP_END, STEP_FOUND } step_kind;

typedef struct step {
    step_kind kind;
    uint32_t first, n; /* STEP_CLASS: ranges of the tree; STEP_SPLIT: first is the second target */
    uint32_t next;
} step;

typedef struct set { /* members[first .. first + n), ascending */
    uint32_t first, n;
} set;

typedef struct finder {
    build *b;
    ast *t;
    NFA_VEC(step) steps;
    NFA_VEC(set) sets;
    NFA_VEC(uint32_t) members, work, next, cuts;
    uint32_t *stamp, now;
    hash_index index; /* index of `sets` from 1 on */
} finder;

static uint32_t pattern_add_step(finder *f, step s) {
    if (!NFA_ADD(f->b, f->steps, s)) {
        return 0;
    }
    return f->steps.n - 1;
}

static uint32_t pattern_emit(finder *f, uint32_t node, uint32_t next);

static uint32_t pattern_emit_repeat(finder *f, const ast_node *n, uint32_t next) {
    uint32_t least = n->min;
    if (n->max == NFA_NONE) {
        uint32_t loop = pattern_add_step(f, (step){.kind = STEP_SPLIT, .next = next}),
                 body = pattern_emit(f, n->child, loop);
        if (f->b->failed == QUIRE_OK) {
            f->steps.p[loop].first = body;
        }
        next = loop;
    } else {
        /* each optional round also leads to the end directly; if it led there through the
         * others, a set would include all of them */
        uint32_t after = next;
        for (uint32_t i = n->min; i < n->max && build_step(f->b, 1); i++) {
            next = pattern_add_step(
                f, (step){.kind = STEP_SPLIT, .first = pattern_emit(f, n->child, next), .next = after});
        }
    }
    for (uint32_t i = 0; i < least && build_step(f->b, 1); i++) {
        next = pattern_emit(f, n->child, next);
    }
    return next;
}

/* in reverse, as each leads to the one after it */
static uint32_t emit_list(finder *f, uint32_t child, uint32_t next) {
    if (child == 0 || !build_step(f->b, 1)) {
        return next;
    }
    uint32_t n, *list = ast_children(f->t, child, &n);
    if (list == NULL) {
        return next;
    }
    for (uint32_t i = n; i-- > 0;) {
        next = pattern_emit(f, list[i], next);
    }
    mem_free(list);
    return next;
}

static uint32_t pattern_emit(finder *f, uint32_t node, uint32_t next) {
    if (!build_step(f->b, 1)) { /* otherwise the tree may lack the node */
        return 0;
    }
    ast_node n = f->t->nodes.p[node];
    switch (n.kind) {
    case AST_CLASS:
        return pattern_add_step(f, (step){STEP_CLASS, n.first, n.n, next});
    case AST_CAT:
        return emit_list(f, n.child, next);
    case AST_ALT: {
        uint32_t all = 0;
        bool any = false;
        for (uint32_t c = n.child; c != 0 && build_step(f->b, 1); c = f->t->nodes.p[c].sibling, any = true) {
            uint32_t one = pattern_emit(f, c, next);
            all = any ? pattern_add_step(f, (step){.kind = STEP_SPLIT, .first = one, .next = all}) : one;
        }
        return all;
    }
    case AST_REPEAT:
        return pattern_emit_repeat(f, &n, next);
    case AST_START:
        return pattern_add_step(f, (step){.kind = STEP_START, .next = next});
    case AST_END:
        return pattern_add_step(f, (step){.kind = STEP_END, .next = next});
    default:
        return next;
    }
}

/* ---- sets ---- */

static void pattern_push(finder *f, uint32_t s) {
    if (f->stamp[s] != f->now) {
        f->stamp[s] = f->now;
        (void)NFA_ADD(f->b, f->work, s);
    }
}

/* Follows the steps in `work`. Steps that read a character, or need the end of the text,
 * go to `next`. Returns whether the match is complete. */
static bool pattern_follow(finder *f, bool at_start, bool at_end) {
    bool found = false;
    f->next.n = 0;
    while (f->work.n > 0 && build_step(f->b, 1)) {
        uint32_t i = f->work.p[--f->work.n];
        step s = f->steps.p[i];
        found = found || s.kind == STEP_FOUND;
        if (s.kind == STEP_SPLIT) {
            pattern_push(f, s.first);
            pattern_push(f, s.next);
        } else if ((s.kind == STEP_START && at_start) || (s.kind == STEP_END && at_end)) {
            pattern_push(f, s.next);
        }
        if (s.kind == STEP_CLASS || s.kind == STEP_END) {
            (void)NFA_ADD(f->b, f->next, i);
        }
    }
    return found;
}

static int compare_numbers(const void *x, const void *y) {
    const uint32_t *a = x, *b = y;
    return *a < *b ? -1 : *a > *b;
}

static uint32_t pattern_hash_of(const uint32_t *p, uint32_t n) {
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x9E3779B1u;
        h ^= h >> 15;
    }
    return h;
}

/* The number of the set in `next`. A complete match is set 0 (any text may follow),
 * whatever else is in it. */
static uint32_t pattern_set_of(finder *f, bool found) {
    if (found) {
        return 0;
    }
    if (f->next.n > 1) {
        qsort(f->next.p, f->next.n, sizeof *f->next.p, compare_numbers);
    }
    uint32_t hash = pattern_hash_of(f->next.p, f->next.n);
    HASH_INDEX_EACH(&f->index, hash, i) {
        const set *o = &f->sets.p[i];
        if (o->n == f->next.n &&
            (o->n == 0 || memcmp(f->members.p + o->first, f->next.p, o->n * sizeof *f->next.p) == 0)) {
            return i;
        }
    }
    if (!NFA_ADD(f->b, f->sets, (set){f->members.n, f->next.n})) {
        return 0;
    }
    for (uint32_t i = 0; i < f->next.n; i++) {
        (void)NFA_ADD(f->b, f->members, f->next.p[i]);
    }
    return build_index(f->b, &f->index, hash, f->sets.n - 1) ? f->sets.n - 1 : 0;
}

/* Finds where the classes of a set begin, and the characters after their ends;
 * ascending. */
static void find_cuts(finder *f, const set *s) {
    f->cuts.n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const step *st = &f->steps.p[f->members.p[s->first + i]];
        for (uint32_t k = 0; st->kind == STEP_CLASS && k < st->n * 2; k++) {
            const nfa_range *r = &f->t->ranges.p[st->first + k / 2];
            (void)NFA_ADD(f->b, f->cuts, k % 2 == 0 ? r->lo : r->hi + 1);
        }
    }
    if (f->cuts.n > 1) {
        qsort(f->cuts.p, f->cuts.n, sizeof *f->cuts.p, compare_numbers);
    }
}

static bool pattern_holds(const finder *f, const step *s, uint32_t c) {
    for (uint32_t k = 0; s->kind == STEP_CLASS && k < s->n; k++) {
        const nfa_range *r = &f->t->ranges.p[s->first + k];
        if (r->lo <= c && c <= r->hi) {
            return true;
        }
    }
    return false;
}

/* The set after character c. */
static uint32_t target(finder *f, const set *s, uint32_t c) {
    f->now++;
    f->work.n = 0;
    for (uint32_t i = 0; i < s->n && build_step(f->b, 1); i++) {
        const step *st = &f->steps.p[f->members.p[s->first + i]];
        if (pattern_holds(f, st, c)) {
            pattern_push(f, st->next);
        }
    }
    bool found = pattern_follow(f, false, false);
    return pattern_set_of(f, found);
}

/* Whether the match is complete if the text ends here. */
static bool at_end(finder *f, const set *s) {
    f->now++;
    f->work.n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        pattern_push(f, f->members.p[s->first + i]);
    }
    return pattern_follow(f, false, true);
}

/* Swaps the numbers of set 0 and set `start`, which becomes the dfa's state 0. */
static uint32_t renumber(uint32_t s, uint32_t start) {
    return s == start ? 0 : s == 0 ? start : s;
}

/* Takes the first step from the start of the text. If the empty text matches, `end` joins
 * the set, since the set itself must accept: it may occur again later in a text. */
static bool pattern_begin(finder *f, uint32_t first, uint32_t end) {
    f->now++;
    pattern_push(f, first);
    bool is_empty = pattern_follow(f, true, true);
    f->now++;
    f->work.n = 0;
    pattern_push(f, first);
    if (is_empty) {
        pattern_push(f, end);
    }
    return pattern_follow(f, true, false);
}

/* Makes the dfa. end: the step that completes the match at the end of the text. */
static uint32_t determinise(finder *f, dfa_pool *p, uint32_t first, uint32_t end) {
    uint32_t x = dfa_new(p);
    bool found = pattern_begin(f, first, end);
    f->now++;
    f->work.n = 0;
    set *any = NFA_PUSH(f->b, f->sets); /* set 0 */
    if (any != NULL) {
        *any = (set){0, 0};
    }
    if (found || f->b->failed != QUIRE_OK) {
        return DFA_ANY;
    }
    uint32_t start = pattern_set_of(f, false);
    for (uint32_t i = 0; i < f->sets.n && build_step(f->b, 1); i++) {
        set s = f->sets.p[renumber(i, start)];
        uint32_t from = 0;
        if (renumber(i, start) == 0) {
            dfa_add_state(p, x, true);
            dfa_add_edge(p, x, 0, NFA_MAX_CHAR, i);
            continue;
        }
        dfa_add_state(p, x, at_end(f, &s));
        find_cuts(f, &s);
        for (uint32_t k = 0; k <= f->cuts.n && build_step(f->b, 1); k++) {
            uint32_t until = k < f->cuts.n ? f->cuts.p[k] : NFA_MAX_CHAR + 1;
            if (until > from) {
                uint32_t to = target(f, &s, from);
                dfa_add_edge(p, x, from, until - 1, renumber(to, start));
                from = until;
            }
        }
    }
    return dfa_trim(p, x);
}

uint32_t dfa_make_pattern(dfa_pool *p, str regex) {
    assert(p != NULL);
    ast t;
    ast_init(&t, p->b);
    finder f = {.b = p->b, .t = &t};
    uint32_t root = regex_parse(&t, regex), found = pattern_add_step(&f, (step){.kind = STEP_FOUND});
    uint32_t body = pattern_emit(&f, root, found), x = DFA_ANY;
    /* the match may begin at any character */
    uint32_t every = ast_class(&t, NULL, 0, true),
             end = pattern_add_step(&f, (step){.kind = STEP_END, .next = found});
    if (p->b->failed == QUIRE_OK) {
        uint32_t skip =
            pattern_add_step(&f, (step){STEP_CLASS, t.nodes.p[every].first, t.nodes.p[every].n, 0});
        uint32_t loop = pattern_add_step(&f, (step){.kind = STEP_SPLIT, .first = body, .next = skip});
        f.stamp = build_new(p->b, f.steps.n, sizeof *f.stamp);
        if (p->b->failed == QUIRE_OK) {
            f.steps.p[skip].next = loop;
            x = determinise(&f, p, loop, end);
        }
    }
    NFA_FREE(p->b, f.steps);
    NFA_FREE(p->b, f.sets);
    NFA_FREE(p->b, f.members);
    NFA_FREE(p->b, f.work);
    NFA_FREE(p->b, f.next);
    NFA_FREE(p->b, f.cuts);
    mem_free(f.stamp);
    hash_index_deinit(&f.index);
    ast_deinit(&t);
    return x;
}

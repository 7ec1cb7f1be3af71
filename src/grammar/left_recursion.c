/* Removes left recursion from rules.
 *
 * Rules that call one another before they read anything are parsed bottom-up along that
 * spine: start with a beginning of any of them that is no such call; when rule B has
 * ended, continue after a call of B that began some rule; when the wanted rule A has
 * ended, A may be done (left-corner transform: Rosenkrantz and Lewis 1970, here on
 * transition networks). Each A gets copies of the nodes of all rules in its cycle, in
 * which B's RETURN leads to those places. */
#include "grammar/build.h"

#include <assert.h>

#define NODES_PER_STEP 256 /* nodes cleared in a map per step */

/* A rule `from` that begins with a call of rule `to`, and then continues at `next`. */
typedef struct left_call {
    uint32_t from, to, next;
} left_call;

typedef struct leftmost {
    build *b;
    NFA_VEC(left_call) calls;
    /* nodes that the current rule begins with: bytes, characters, calls of other rules */
    NFA_VEC(uint32_t) firsts;
    NFA_VEC(uint32_t) work;
    uint32_t *stamp; /* [nodes.n] */
    uint32_t now, n_nodes;
} leftmost;

static void push_node(leftmost *l, uint32_t node) {
    if (l->stamp[node] != l->now) {
        l->stamp[node] = l->now;
        (void)NFA_ADD(l->b, l->work, node);
    }
}

static void push_first(leftmost *l, uint32_t node) {
    (void)NFA_ADD(l->b, l->firsts, node);
}

typedef enum scan_bodies { BODIES_TOO, NO_BODIES } scan_bodies;

/* Lists what a rule may begin with, from `start` on; adds its calls to l->calls. bodies:
 * whether to list what a counted repeat begins with, besides the repeat. */
static void left_recursion_scan(leftmost *l, uint32_t rule, uint32_t start, scan_bodies bodies) {
    nfa *a = &l->b->a;
    l->now++;
    l->firsts.n = l->work.n = 0;
    push_node(l, start);
    while (l->work.n > 0 && build_step(l->b, 1)) {
        uint32_t i = l->work.p[--l->work.n];
        nfa_node node = a->nodes.p[i];
        if (node.op == NFA_SPLIT) {
            for (uint32_t t = 0; t < node.n; t++) {
                push_node(l, a->targets.p[node.arg + t]);
            }
            continue;
        }
        push_first(l, i);
        if (node.op == NFA_CALL) {
            (void)NFA_ADD(l->b, l->calls, (left_call){rule, node.arg, node.next});
            if (a->rules.p[node.arg].nullable && node.n == 0) {
                push_node(l, node.next);
            }
        } else if (node.op == NFA_REPEAT) {
            if (bodies == BODIES_TOO) {
                push_node(l, a->repeats.p[node.arg].body);
            }
            if (a->repeats.p[node.arg].min == 0) {
                push_node(l, node.next);
            }
        }
    }
}

/* Sets seen[] for the rules with which `rule` may begin, directly or not. */
static void left_recursion_reach(leftmost *l, uint32_t rule, bool *seen) {
    memset(seen, 0, l->b->a.rules.n * sizeof *seen);
    l->work.n = 0;
    for (uint32_t at = rule;;) {
        for (uint32_t i = 0; i < l->calls.n && build_step(l->b, 1); i++) {
            if (l->calls.p[i].from == at && !seen[l->calls.p[i].to]) {
                seen[l->calls.p[i].to] = true;
                (void)NFA_ADD(l->b, l->work, l->calls.p[i].to);
            }
        }
        if (l->work.n == 0 || l->b->failed != QUIRE_OK) {
            return;
        }
        at = l->work.p[--l->work.n];
    }
}

/* The copy of a node in map[], made when first needed; its successors are copied later
 * (copy_rest). */
static uint32_t left_recursion_copy_of(leftmost *l, uint32_t *map, uint32_t node) {
    if (node == NFA_FAIL_NODE) {
        return node;
    }
    if (map[node] == 0) {
        nfa_node n = l->b->a.nodes.p[node];
        map[node] = build_node(l->b, (nfa_op)n.op, (nfa_mode)n.mode, n.arg, n.n, n.next);
        (void)NFA_ADD(l->b, l->work, map[node]);
    }
    return map[node];
}

static void copy_rest(leftmost *l, uint32_t *map) {
    nfa *a = &l->b->a;
    while (l->work.n > 0 && build_step(l->b, 1)) {
        uint32_t i = l->work.p[--l->work.n];
        nfa_node n = a->nodes.p[i];
        if (n.op != NFA_SPLIT) {
            uint32_t next = left_recursion_copy_of(l, map, n.next);
            a->nodes.p[i].next = next;
            continue;
        }
        uint32_t first = a->targets.n;
        for (uint32_t t = 0; t < n.n; t++) {
            uint32_t to = left_recursion_copy_of(l, map, a->targets.p[n.arg + t]);
            (void)NFA_ADD(l->b, a->targets, to);
        }
        a->nodes.p[i].arg = first;
    }
}

typedef struct circle {
    uint32_t *rules, n;
    uint32_t *starts; /* [rules.n] before rewriting */
    uint32_t **maps;  /* [n] node -> copy */
    uint32_t *ends;   /* [n] where the RETURN of each rule leads */
} circle;

static uint32_t index_in(const circle *c, uint32_t rule) {
    uint32_t i = 0;
    while (i < c->n && c->rules[i] != rule) {
        i++;
    }
    return i;
}

/* Copies a node as a beginning only: calls and repeats must not be empty, since what
 * follows them is in the list too. */
static uint32_t first_copy(leftmost *l, uint32_t *map, uint32_t node) {
    nfa_node n = l->b->a.nodes.p[node];
    if (n.op != NFA_CALL && n.op != NFA_REPEAT) {
        return left_recursion_copy_of(l, map, node);
    }
    uint32_t copy = build_node(l->b, (nfa_op)n.op, (nfa_mode)n.mode, n.arg, 1, n.next);
    (void)NFA_ADD(l->b, l->work, copy);
    return copy;
}

/* Makes one node from copies of everything that rule i of the cycle can begin with,
 * except calls of the cycle's rules. The empty text is excluded: what follows a call that
 * may be empty is in the caller's list. */
static uint32_t beginning(leftmost *l, const circle *c, uint32_t i) {
    nfa *a = &l->b->a;
    uint32_t n_calls = l->calls.n, n = 0;
    /* a round of a repeat is only a part of it */
    left_recursion_scan(l, c->rules[i], c->starts[c->rules[i]], NO_BODIES);
    l->calls.n = n_calls;
    for (uint32_t k = 0; k < l->firsts.n; k++) {
        const nfa_node *node = &a->nodes.p[l->firsts.p[k]];
        bool is_member = node->op == NFA_CALL && index_in(c, node->arg) < c->n;
        if (!is_member && l->firsts.p[k] != NFA_RETURN_NODE) {
            l->firsts.p[n++] = l->firsts.p[k];
        }
    }
    l->work.n = 0;
    for (uint32_t k = 0; k < n; k++) {
        l->firsts.p[k] = first_copy(l, c->maps[i], l->firsts.p[k]);
    }
    copy_rest(l, c->maps[i]);
    return n > 0 ? build_split(l->b, l->firsts.p, n) : NFA_FAIL_NODE;
}

/* Sets where the end of rule i leads: after each call of it that began a rule of the
 * cycle, and out if it is the wanted rule. */
static void lead_on(leftmost *l, const circle *c, uint32_t i, bool wanted) {
    l->firsts.n = 0;
    if (wanted) {
        push_first(l, NFA_RETURN_NODE);
    }
    for (uint32_t k = 0; k < l->calls.n; k++) {
        uint32_t from = index_in(c, l->calls.p[k].from);
        if (l->calls.p[k].to == c->rules[i] && from < c->n) {
            l->work.n = 0;
            uint32_t next = left_recursion_copy_of(l, c->maps[from], l->calls.p[k].next);
            copy_rest(l, c->maps[from]);
            push_first(l, next);
        }
    }
    if (l->b->failed == QUIRE_OK && l->firsts.n > 0) {
        uint32_t split = build_split(l->b, l->firsts.p, l->firsts.n), first = l->b->a.targets.n;
        /* copies lead to the end's node already, so it becomes a split */
        if (NFA_ADD(l->b, l->b->a.targets, split)) {
            l->b->a.nodes.p[c->ends[i]] = (nfa_node){.op = NFA_SPLIT, .n = 1, .arg = first};
        }
    }
}

static void rewrite(leftmost *l, const circle *c, uint32_t wanted) {
    uint32_t *begins = build_new(l->b, c->n + 1, sizeof *begins), n_begins = c->n;
    if (begins == NULL) {
        return;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (!build_step(l->b, 1 + l->n_nodes / NODES_PER_STEP)) {
            break;
        }
        memset(c->maps[i], 0, l->n_nodes * sizeof *c->maps[i]);
        c->ends[i] = build_node(l->b, NFA_FAIL, NFA_RAW, 0, 0, NFA_FAIL_NODE);
        c->maps[i][NFA_RETURN_NODE] = c->ends[i];
    }
    for (uint32_t i = 0; i < c->n && l->b->failed == QUIRE_OK; i++) {
        begins[i] = beginning(l, c, i);
    }
    for (uint32_t i = 0; i < c->n && l->b->failed == QUIRE_OK; i++) {
        lead_on(l, c, i, c->rules[i] == wanted);
    }
    if (l->b->a.rules.p[wanted].nullable) {
        begins[n_begins++] = NFA_RETURN_NODE;
    }
    if (l->b->failed == QUIRE_OK) {
        build_rule_set(l->b, wanted, build_split(l->b, begins, n_begins));
    }
    mem_free(begins);
}

/* Refuses a call of the cycle's rules in a counted repeat at the beginning of a rule: it
 * cannot be rewritten. */
static void check_repeats(leftmost *l, const circle *c) {
    nfa *a = &l->b->a;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t n_calls = l->calls.n;
        left_recursion_scan(l, c->rules[i], c->starts[c->rules[i]], BODIES_TOO);
        l->calls.n = n_calls;
        uint32_t n = l->firsts.n;
        for (uint32_t k = 0; k < n && l->b->failed == QUIRE_OK; k++) {
            if (a->nodes.p[l->firsts.p[k]].op != NFA_REPEAT) {
                continue;
            }
            uint32_t body = a->repeats.p[a->nodes.p[l->firsts.p[k]].arg].body;
            left_recursion_scan(l, c->rules[i], body, BODIES_TOO);
            for (uint32_t j = n_calls; j < l->calls.n; j++) {
                if (index_in(c, l->calls.p[j].to) < c->n) {
                    (void)build_fail(l->b, QUIRE_UNSUPPORTED, -1,
                                     "a rule calls itself at the beginning of a counted repeat");
                }
            }
            l->calls.n = n_calls;
            left_recursion_scan(l, c->rules[i], c->starts[c->rules[i]], BODIES_TOO);
            l->calls.n = n_calls;
        }
    }
}

/* Adds a rule to the cycle, with a map that counts as the grammar's memory. */
static void left_recursion_add_member(leftmost *l, circle *c, uint32_t rule) {
    size_t bytes = l->n_nodes * sizeof **c->maps;
    l->b->bytes -= (int64_t)bytes;
    if (l->b->bytes < 0) {
        (void)build_fail(l->b, QUIRE_TOO_LARGE, -1, "the grammar takes too much memory; make it smaller");
    } else {
        c->maps[c->n] = build_new(l->b, l->n_nodes, sizeof **c->maps);
    }
    c->rules[c->n++] = rule;
}

static void free_members(leftmost *l, circle *c) {
    for (uint32_t i = 0; c->maps != NULL && i < c->n; i++) {
        build_free(l->b, c->maps[i], l->n_nodes * sizeof **c->maps);
    }
    mem_free(c->rules);
    mem_free(c->maps);
    mem_free(c->ends);
}

/* Rewrites `rule` if it is in a cycle. */
static void rewrite_rule(leftmost *l, uint32_t rule, uint32_t *starts, bool *seen, bool *back) {
    uint32_t n_rules = l->b->a.rules.n;
    left_recursion_reach(l, rule, seen);
    if (!seen[rule]) {
        return;
    }
    circle c = {.starts = starts,
                .rules = mem_new(n_rules, sizeof *c.rules),
                .maps = mem_new(n_rules, sizeof *c.maps),
                .ends = mem_new(n_rules, sizeof *c.ends)};
    bool ok = c.rules != NULL && c.maps != NULL && c.ends != NULL;
    for (uint32_t r = 0; r < n_rules && ok && l->b->failed == QUIRE_OK; r++) {
        if (seen[r]) {
            left_recursion_reach(l, r, back);
        }
        if (seen[r] && back[rule]) {
            left_recursion_add_member(l, &c, r);
        }
    }
    if (!ok) {
        (void)build_fail(l->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
    } else if (l->b->failed == QUIRE_OK) {
        check_repeats(l, &c);
        rewrite(l, &c, rule);
    }
    free_members(l, &c);
}

void build_left_recursion(build *b) {
    assert(b != NULL);
    uint32_t n_rules = b->a.rules.n;
    leftmost l = {.b = b, .n_nodes = b->a.nodes.n};
    bool *empty = build_new(b, l.n_nodes, sizeof *empty),
         *seen = build_new(b, (size_t)n_rules * 2, sizeof *seen);
    uint32_t *starts = build_new(b, n_rules, sizeof *starts);
    l.stamp = build_new(b, l.n_nodes, sizeof *l.stamp);
    if (b->failed == QUIRE_OK) {
        build_find_empty(b, empty);
        for (uint32_t r = 0; r < n_rules; r++) {
            starts[r] = b->a.rules.p[r].start;
            left_recursion_scan(&l, r, starts[r], BODIES_TOO);
        }
        for (uint32_t r = 0; r < n_rules && b->failed == QUIRE_OK; r++) {
            rewrite_rule(&l, r, starts, seen, seen + n_rules);
        }
    }
    mem_free(empty);
    mem_free(seen);
    mem_free(starts);
    mem_free(l.stamp);
    NFA_FREE(b, l.calls);
    NFA_FREE(b, l.firsts);
    NFA_FREE(b, l.work);
}

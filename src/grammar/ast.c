/* Syntax trees: built by parsers, then emitted as nodes. */
#include "grammar/ast.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"

#define EXPAND_MAX 64 /* counted repeats of up to this many nodes are expanded */

static uint32_t node_new(ast *t, ast_node n) {
    if (!NFA_ADD(t->b, t->nodes, n)) {
        return 0;
    }
    return t->nodes.n - 1;
}

void ast_init(ast *t, build *b) {
    *t = (ast){.b = b};
    (void)node_new(t, (ast_node){.kind = AST_EMPTY});
}

void ast_deinit(ast *t) {
    NFA_FREE(t->b, t->nodes);
    NFA_FREE(t->b, t->ranges);
    *t = (ast){0};
}

void ast_add(ast *t, ast_list *l, uint32_t node) {
    assert(t != NULL);
    if (t->b->failed != QUIRE_OK) {
        return;
    }
    /* an empty text, or a node that is in a list already, is copied */
    if (node == 0 || t->nodes.p[node].sibling != 0 || node == l->last) {
        node = node_new(t, t->nodes.p[node]);
        if (t->b->failed != QUIRE_OK) {
            return;
        }
        t->nodes.p[node].sibling = 0;
    }
    if (l->n++ == 0) {
        l->first = node;
    } else {
        t->nodes.p[l->last].sibling = node;
    }
    l->last = node;
}

static uint32_t list_size(const ast *t, uint32_t child) {
    uint64_t size = 1;
    for (; child != 0; child = t->nodes.p[child].sibling) {
        size += t->nodes.p[child].size;
    }
    return size > NFA_NONE ? NFA_NONE : (uint32_t)size;
}

/* Makes a node whose children start at n.child. */
static uint32_t parent_new(ast *t, ast_node n) {
    for (uint32_t c = n.child; c != 0; c = t->nodes.p[c].sibling) {
        n.depth = t->nodes.p[c].depth >= n.depth ? t->nodes.p[c].depth + 1 : n.depth;
    }
    if (n.depth > AST_MAX_NESTED) {
        (void)build_fail(t->b, QUIRE_TOO_LARGE, -1, "its groups and repeats are nested more than %d deep",
                         AST_MAX_NESTED);
        return 0;
    }
    return node_new(t, n);
}

static uint32_t list_node(ast *t, ast_list l, ast_kind kind) {
    if (t->b->failed != QUIRE_OK || l.n == 0) {
        return 0;
    }
    return l.n == 1
               ? l.first
               : parent_new(t, (ast_node){.kind = kind, .child = l.first, .size = list_size(t, l.first)});
}

uint32_t ast_cat(ast *t, ast_list l) {
    return list_node(t, l, AST_CAT);
}

uint32_t ast_alt(ast *t, ast_list l) {
    return list_node(t, l, AST_ALT);
}

uint32_t ast_alternatives(ast *t, ast_list all, ast_list last) {
    if (all.n == 0) {
        return ast_cat(t, last);
    }
    ast_add(t, &all, ast_cat(t, last));
    return ast_alt(t, all);
}

static int ast_compare_ranges(const void *x, const void *y) {
    const nfa_range *a = x, *b = y;
    return a->lo != b->lo ? (a->lo < b->lo ? -1 : 1) : a->hi < b->hi ? -1 : a->hi > b->hi;
}

static void push_range(ast *t, uint32_t lo, uint32_t hi) {
    static const nfa_range all[] = {{0, NFA_MAX_CHAR}}, space[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    const nfa_range *within = t->only_space ? space : all;
    for (size_t i = 0; i < (t->only_space ? sizeof space : sizeof all) / sizeof *all; i++) {
        uint32_t from = lo > within[i].lo ? lo : within[i].lo, to = hi < within[i].hi ? hi : within[i].hi;
        if (from <= to) {
            (void)NFA_ADD(t->b, t->ranges, (nfa_range){from, to});
        }
    }
}

uint32_t ast_class(ast *t, nfa_range *ranges, uint32_t n, bool negated) {
    assert(t != NULL);
    uint32_t first = t->ranges.n, kept = 0, from = 0;
    if (n > 1) {
        qsort(ranges, n, sizeof *ranges, ast_compare_ranges);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && ranges[i].lo <= ranges[kept - 1].hi + 1) {
            ranges[kept - 1].hi = ranges[i].hi > ranges[kept - 1].hi ? ranges[i].hi : ranges[kept - 1].hi;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    for (uint32_t i = 0; i < kept; i++) {
        if (!negated) {
            push_range(t, ranges[i].lo, ranges[i].hi);
        } else if (ranges[i].lo > from) {
            push_range(t, from, ranges[i].lo - 1);
        }
        from = ranges[i].hi + 1;
    }
    if (negated && from <= NFA_MAX_CHAR) {
        push_range(t, from, NFA_MAX_CHAR);
    }
    return node_new(t, (ast_node){.kind = AST_CLASS, .first = first, .n = t->ranges.n - first, .size = 1});
}

uint32_t ast_char(ast *t, uint32_t c) {
    return ast_class(t, &(nfa_range){c, c}, 1, false);
}

/* Whether the counts are those of *, + or ?. */
static bool ast_is_plain(uint32_t min, uint32_t max) {
    return min <= 1 && (max == 1 || max == NFA_NONE);
}

uint32_t ast_repeat(ast *t, uint32_t child, uint32_t min, uint32_t max) {
    assert(t != NULL);
    if (t->b->failed != QUIRE_OK || child == 0 || (min == 1 && max == 1)) {
        return child;
    }
    ast_node *inner = &t->nodes.p[child];
    if (inner->kind == AST_REPEAT && ast_is_plain(min, max) && ast_is_plain(inner->min, inner->max) &&
        build_step(t->b, 1)) {
        inner->min = min * inner->min; /* one of them is enough */
        inner->max = max == 1 ? inner->max : NFA_NONE;
        return child;
    }
    uint64_t rounds = max == NFA_NONE ? (min > 0 ? min : 1) : (max > 0 ? max : 1);
    uint64_t size = rounds * t->nodes.p[child].size + 1;
    if (size > AST_MAX_SIZE) {
        (void)build_fail(t->b, QUIRE_TOO_LARGE, -1,
                         "its repeats expand to over %d parts; make the counts smaller", AST_MAX_SIZE);
        return 0;
    }
    return parent_new(
        t, (ast_node){.kind = AST_REPEAT, .child = child, .min = min, .max = max, .size = (uint32_t)size});
}

uint32_t ast_leaf(ast *t, ast_kind kind, uint32_t first) {
    return node_new(t, (ast_node){.kind = kind, .first = first, .size = 1});
}

/* ---- emitting nodes ---- */

/* The character of a class with just one; else NFA_NONE. */
static uint32_t single(const ast *t, const ast_node *n) {
    const nfa_range *r = n->kind == AST_CLASS && n->n == 1 ? &t->ranges.p[n->first] : NULL;
    return r != NULL && r->lo == r->hi ? r->lo : NFA_NONE;
}

/* Emits from[0 .. n), children that are one character each, as bytes. */
static uint32_t emit_bytes(ast *t, const uint32_t *from, uint32_t n, uint32_t next) {
    strbuf text = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (utf8_add(&text, (int32_t)single(t, &t->nodes.p[from[i]])) != QUIRE_OK) {
            (void)build_fail(t->b, QUIRE_NO_MEMORY, -1, "out of memory for the grammar");
        }
    }
    next = build_bytes(t->b, (str){text.p, text.n}, next);
    strbuf_deinit(&text);
    return next;
}

static bool is_surrogate(uint32_t c) {
    return c >= 0xD800 && c <= 0xDFFF;
}

static bool only_anchors(const ast *t, const uint32_t *list, uint32_t from, uint32_t to) {
    while (from < to &&
           (t->nodes.p[list[from]].kind == AST_START || t->nodes.p[list[from]].kind == AST_END)) {
        from++;
    }
    return from == to;
}

uint32_t *ast_children(const ast *t, uint32_t child, uint32_t *n) {
    uint32_t count = 0, at = 0;
    for (uint32_t c = child; c != 0; c = t->nodes.p[c].sibling) {
        count++;
    }
    uint32_t *list = build_new(t->b, count, sizeof *list);
    for (uint32_t c = child; list != NULL && c != 0; c = t->nodes.p[c].sibling) {
        list[at++] = c;
    }
    *n = count;
    return list;
}

static uint32_t emit_cat(ast *t, const ast_node *n, uint32_t next, unsigned edges) {
    uint32_t count, *list = ast_children(t, n->child, &count), at = count;
    if (list == NULL) {
        return NFA_FAIL_NODE;
    }
    while (at > 0 && build_step(t->b, 1)) {
        uint32_t run = 0;
        while (run < at && single(t, &t->nodes.p[list[at - 1 - run]]) != NFA_NONE &&
               !is_surrogate(single(t, &t->nodes.p[list[at - 1 - run]]))) {
            run++;
        }
        if (run > 0) {
            next = emit_bytes(t, list + at - run, run, next);
            at -= run;
        } else {
            unsigned own = (only_anchors(t, list, 0, at - 1) ? edges & 1u : 0) |
                           (only_anchors(t, list, at, count) ? edges & 2u : 0);
            next = ast_emit(t, list[--at], next, own);
        }
    }
    mem_free(list);
    return next;
}

static uint32_t emit_alt(ast *t, const ast_node *n, uint32_t next, unsigned edges) {
    uint32_t count, at = 0, *targets = ast_children(t, n->child, &count);
    if (targets == NULL) {
        return NFA_FAIL_NODE;
    }
    for (; at < count && build_step(t->b, 1); at++) {
        targets[at] = ast_emit(t, targets[at], next, edges);
    }
    uint32_t split = build_split(t->b, targets, at);
    mem_free(targets);
    return split;
}

static uint32_t ast_emit_repeat(ast *t, const ast_node *n, uint32_t next, unsigned edges) {
    uint32_t rounds = n->max == NFA_NONE ? n->min : n->max;
    edges = n->min <= 1 && n->max == 1 ? edges : 0; /* a part that is optional keeps its place in the text */
    if (n->max == 0) {
        return next;
    }
    if (rounds > 1 && (uint64_t)rounds * t->nodes.p[n->child].size > EXPAND_MAX) {
        return build_repeat(t->b, ast_emit(t, n->child, NFA_RETURN_NODE, 0), n->min, n->max, next);
    }
    uint32_t least = n->min;
    if (n->max == NFA_NONE) {
        uint32_t loop = build_loop(t->b), body = ast_emit(t, n->child, loop, 0);
        build_patch(t->b, loop, body, next);
        next = n->min > 0 ? body : loop;
        least = n->min > 0 ? n->min - 1 : 0;
    } else {
        for (uint32_t i = n->min; i < n->max && build_step(t->b, 1); i++) {
            next = build_split2(t->b, ast_emit(t, n->child, next, edges), next);
        }
    }
    for (uint32_t i = 0; i < least && build_step(t->b, 1); i++) {
        next = ast_emit(t, n->child, next, edges);
    }
    return next;
}

uint32_t ast_emit(ast *t, uint32_t node, uint32_t next, unsigned edges) {
    assert(t != NULL);
    if (!build_step(t->b, 1)) {
        return NFA_FAIL_NODE;
    }
    ast_node n = t->nodes.p[node];
    switch (n.kind) {
    case AST_EMPTY:
        return next;
    case AST_CLASS: {
        uint32_t c = single(t, &n);
        return c != NFA_NONE && !is_surrogate(c)
                   ? emit_bytes(t, &node, 1, next)
                   : build_node(t->b, NFA_CLASS, NFA_RAW,
                                build_class(t->b, n.n > 0 ? t->ranges.p + n.first : NULL, n.n), 0, next);
    }
    case AST_CAT:
        return emit_cat(t, &n, next, edges);
    case AST_ALT:
        return emit_alt(t, &n, next, edges);
    case AST_REPEAT:
        return ast_emit_repeat(t, &n, next, edges);
    case AST_MARK:
        return build_node(t->b, NFA_MARK, NFA_RAW, n.first, 0, next);
    case AST_RULE:
        return build_call(t->b, n.first, next);
    case AST_START:
    case AST_END:
        break;
    }
    if ((edges & (n.kind == AST_START ? 1u : 2u)) == 0) {
        (void)build_fail(t->b, QUIRE_UNSUPPORTED, -1,
                         "an anchor %s inside the expression: it is allowed only at its %s",
                         n.kind == AST_START ? "^" : "$", n.kind == AST_START ? "beginning" : "end");
    }
    return next;
}

/* ---- named rules ---- */

void named_rules_init(named_rules *r, ast *t) {
    *r = (named_rules){.t = t, .first = t->b->a.rules.n};
}

void named_rules_deinit(named_rules *r) {
    NFA_FREE(r->t->b, r->list);
}

uint32_t named_rules_find(named_rules *r, str name, size_t at) {
    assert(r != NULL);
    build *b = r->t->b;
    for (uint32_t i = 0; i < r->list.n && build_step(b, 1); i++) {
        if (str_eq(r->list.p[i].name, name)) {
            return i;
        }
    }
    if (r->list.n >= NAMED_RULES_MAX) {
        (void)build_fail(b, QUIRE_TOO_LARGE, (int64_t)at, "the grammar has more than %d rules",
                         NAMED_RULES_MAX);
        return 0;
    }
    if (!NFA_ADD(b, r->list, (named_rule){.name = name, .at = at})) {
        return 0;
    }
    return build_rule(b) - r->first;
}

uint32_t named_rules_call(const named_rules *r, uint32_t i) {
    return ast_leaf(r->t, AST_RULE, r->first + i);
}

bool named_rules_has(const named_rules *r, uint32_t i) {
    return i < r->list.n && r->list.p[i].defined;
}

void named_rules_define(named_rules *r, uint32_t i, uint32_t root) {
    assert(r != NULL);
    if (r->t->b->failed == QUIRE_OK) {
        r->list.p[i].root = root;
        r->list.p[i].defined = true;
    }
}

void named_rules_emit(named_rules *r, const char *(*kind_of)(str name)) {
    assert(r != NULL);
    build *b = r->t->b;
    for (uint32_t i = 0; i < r->list.n && b->failed == QUIRE_OK; i++) {
        named_rule rule = r->list.p[i];
        if (!rule.defined) {
            (void)build_fail(b, QUIRE_INVALID, (int64_t)rule.at, "the grammar has no %s \"%.*s\"",
                             kind_of(rule.name), rule.name.n < 100 ? (int)rule.name.n : 100, rule.name.p);
            return;
        }
        build_rule_set(b, r->first + i, ast_emit(r->t, rule.root, NFA_RETURN_NODE, 0));
    }
    if (b->failed == QUIRE_OK) {
        build_left_recursion(b);
    }
}

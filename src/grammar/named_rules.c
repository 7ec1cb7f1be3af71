#include "grammar/named_rules.h"

#include "base/mem.h"

void named_rules_init(named_rules *r, ast *t) {
    *r = (named_rules){.t = t, .first = t->b->a.rules.n};
}

void named_rules_deinit(named_rules *r) {
    NFA_FREE(r->t->b, r->list);
}

uint32_t named_rules_find(named_rules *r, str name, size_t at) {
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
    named_rule *made = NFA_PUSH(b, r->list);
    if (made == NULL) {
        return 0;
    }
    *made = (named_rule){.name = name, .at = at};
    return build_rule(b) - r->first;
}

uint32_t named_rules_call(const named_rules *r, uint32_t i) {
    return ast_leaf(r->t, AST_RULE, r->first + i);
}

bool named_rules_has(const named_rules *r, uint32_t i) {
    return i < r->list.n && r->list.p[i].defined;
}

void named_rules_define(named_rules *r, uint32_t i, uint32_t root) {
    if (r->t->b->failed == QUIRE_OK) {
        r->list.p[i].root = root;
        r->list.p[i].defined = true;
    }
}

void named_rules_emit(named_rules *r, const char *(*kind_of)(str name)) {
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

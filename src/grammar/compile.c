/* Compiles grammars of every kind. */
#include "grammar/grammar.h"

#include "grammar/compile.h"
#include "grammar/dfa.h"
#include "grammar/grammar_run.h"
#include "grammar/regex_syntax.h"
#include "json/json.h"

static void compile_regex(build *b, str text) {
    ast t;
    ast_init(&t, b);
    uint32_t rule = build_rule(b), root = regex_parse(&t, text);
    build_rule_set(b, rule, ast_emit(&t, root, NFA_RETURN_NODE, 3));
    ast_deinit(&t);
}

static void compile_choice(build *b, str text) {
    json_limits limits = {.max_depth = 2, .max_values = 100001, .max_containers = 1, .max_names = 0};
    json_fault fault = {0};
    json_value *list = NULL;
    uint32_t rule = build_rule(b);
    if (json_read(text, &limits, JSON_WIDE_KEPT, &list, &fault) != QUIRE_OK) {
        (void)build_fail(b, QUIRE_INVALID, (int64_t)fault.at, "the choices at byte %zu: %s", fault.at,
                         fault.what);
        return;
    }
    size_t n = json_length(list);
    uint32_t *targets = build_new(b, n, sizeof *targets);
    if (targets != NULL && (!json_is(list, JSON_KIND_ARRAY) || n == 0)) {
        (void)build_fail(b, QUIRE_INVALID, -1, "the choices must be a list of at least one string");
    }
    for (size_t i = 0; i < n && build_step(b, 1); i++) {
        if (!json_is(json_at(list, i), JSON_KIND_TEXT)) {
            (void)build_fail(b, QUIRE_INVALID, -1, "choice %zu is not a string", i);
        }
        targets[i] = build_bytes(b, json_str(json_at(list, i)), NFA_RETURN_NODE);
    }
    if (b->failed == QUIRE_OK) {
        build_rule_set(b, rule, build_split(b, targets, (uint32_t)n));
    }
    mem_free(targets);
    json_drop(list);
}

void compile_rule(build *b, grammar_kind kind, str text) {
    if (text.n > GRAMMAR_MAX_TEXT) {
        (void)build_fail(b, QUIRE_TOO_LARGE, -1, "the grammar's text has %zu bytes; at most %zu are allowed",
                         text.n, GRAMMAR_MAX_TEXT);
        return;
    }
    switch (kind) {
    case GRAMMAR_REGEX:
        compile_regex(b, text);
        return;
    case GRAMMAR_CHOICE:
        compile_choice(b, text);
        return;
    case GRAMMAR_EBNF:
        compile_ebnf(b, text, false);
        return;
    case GRAMMAR_SCHEMA:
        compile_schema(b, text);
        return;
    case GRAMMAR_JSON_OBJECT:
        compile_object(b);
        return;
    case GRAMMAR_W3C:
        compile_ebnf(b, text, true);
        return;
    case GRAMMAR_LARK:
        compile_lark(b, text);
        return;
    }
}

quire_err compile_finish(build *b, grammar **out) {
    grammar *g = build_finish(b) == QUIRE_OK ? mem_new(1, sizeof *g) : NULL;
    if (g == NULL) {
        nfa_deinit(&b->a);
        return b->failed != QUIRE_OK ? b->failed : mem_check_for(g, "a grammar", b->err);
    }
    nfa_shrink(&b->a);
    g->a = b->a;
    g->refs = 1;
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return QUIRE_OK;
}

quire_err grammar_compile(grammar_kind kind, str text, const grammar_options *options, grammar **out,
                          quire_error *err) {
    build b;
    *out = NULL;
    build_init(&b, options, err);
    compile_rule(&b, kind, text);
    return compile_finish(&b, out);
}

grammar *grammar_share(grammar *g) {
    if (g != NULL) {
        atomic_fetch_add(&g->refs, 1);
    }
    return g;
}

void grammar_drop(grammar *g) {
    if (g == NULL || atomic_fetch_sub(&g->refs, 1) > 1) {
        return;
    }
    nfa_deinit(&g->a);
    (void)pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

size_t grammar_bytes(const grammar *g) {
    return sizeof *g + nfa_size_bytes(&g->a);
}

quire_err grammar_regex_matches(str regex, str text, int64_t *steps, bool *matches, quire_error *err) {
    const grammar_options options = {.max_steps = *steps < GRAMMAR_MATCH_STEPS ? *steps : GRAMMAR_MATCH_STEPS,
                                     .max_us = INT64_MAX / 2};
    build b;
    dfa_pool pool;
    *matches = false;
    if (*steps <= 0) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "the step limit leaves nothing for the regex");
    }
    build_init(&b, &options, err);
    dfa_pool_init(&pool, &b);
    uint32_t x = dfa_pattern(&pool, regex);
    *steps -= options.max_steps - (b.steps > 0 ? b.steps : 0);
    if (b.failed == QUIRE_OK) {
        *matches = dfa_accepts_within(&pool, x, text, steps);
        if (*steps < 0) {
            (void)build_fail(&b, QUIRE_TOO_LARGE, -1, "the regex takes too many steps over its text");
        }
    }
    dfa_pool_deinit(&pool);
    nfa_deinit(&b.a);
    return b.failed;
}

/* Compiles JSON Schemas: expressions over schemas, and their shapes. */
#include "grammar/value_shape.h"

#include <assert.h>
#include <stdio.h>

#include "grammar/compile.h"

#define MAX_DEPTH  64 /* most nesting of schemas that apply to one value */
#define MAX_VALUES 200000
#define MAX_NESTED 200

/* ---- expressions ---- */

static uint32_t expr_hash(const expr *x) {
    uint64_t h = (uint64_t)(uintptr_t)x->value * 0x9E3779B97F4A7C15u + (uint64_t)x->kind;
    for (uint32_t i = 0; i < x->n; i++) {
        h = (h ^ x->children[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 32);
}

static bool expr_same(const expr *x, const expr *y) {
    return x->kind == y->kind && x->value == y->value && x->n == y->n &&
           (x->n == 0 || memcmp(x->children, y->children, x->n * sizeof *x->children) == 0);
}

static uint32_t expr_of(schema *s, expr x) {
    if (s->b->failed != QUIRE_OK) {
        return EXPR_NEVER;
    }
    uint32_t hash = expr_hash(&x);
    HASH_INDEX_EACH(&s->expr_index, hash, i) {
        if (expr_same(&s->exprs.p[i], &x)) {
            return i;
        }
    }
    if (!NFA_ADD(s->b, s->exprs, x)) {
        return EXPR_NEVER;
    }
    return build_index(s->b, &s->expr_index, hash, s->exprs.n - 1) ? s->exprs.n - 1 : EXPR_NEVER;
}

uint32_t expr_schema(schema *s, const json_value *v, uint32_t base, const char *path) {
    if (json_is(v, JSON_KIND_BOOL)) {
        return json_truth(v) ? EXPR_ANY : EXPR_NEVER;
    }
    if (!json_is(v, JSON_KIND_OBJECT)) {
        (void)build_fail(s->b, QUIRE_INVALID, -1, "the schema at \"%s\" must be an object, true or false",
                         path);
        return EXPR_NEVER;
    }
    return json_length(v) == 0 ? EXPR_ANY
                               : expr_of(s, (expr){.kind = EXPR_IS_SCHEMA,
                                                   .value = v,
                                                   .base = schema_resource_of(s, v, base),
                                                   .path = path});
}

uint32_t expr_const(schema *s, const json_value *v) {
    /* json_value NULL means null, so a constant needs a kind of its own */
    return expr_of(s, (expr){.kind = EXPR_IS_CONST, .value = v});
}

static void schema_add_child(schema *s, expr *x, uint32_t child) {
    uint32_t at = 0;
    while (at < x->n && x->children[at] < child) {
        at++;
    }
    if (at < x->n && x->children[at] == child) {
        return;
    }
    uint32_t *more = schema_keep(s, x->n + 1, sizeof *more);
    if (more != NULL) {
        mem_copy(more, x->children, at * sizeof *more);
        more[at] = child;
        if (at < x->n) {
            mem_copy(more + at + 1, x->children + at, (x->n - at) * sizeof *more);
        }
        x->children = more;
        x->n++;
    }
}

/* Makes one expression of both; flattens operands of the same kind. */
static uint32_t join_exprs(schema *s, expr_kind kind, uint32_t x, uint32_t y) {
    expr both = {.kind = kind};
    for (int side = 0; side < 2; side++) {
        uint32_t one = side == 0 ? x : y;
        expr e = s->exprs.p[one];
        for (uint32_t i = 0; e.kind == kind && i < e.n && build_step(s->b, 1); i++) {
            schema_add_child(s, &both, e.children[i]);
        }
        if (e.kind != kind) {
            schema_add_child(s, &both, one);
        }
    }
    return expr_of(s, both);
}

uint32_t expr_and(schema *s, uint32_t x, uint32_t y) {
    if (x == EXPR_NEVER || y == EXPR_NEVER || s->b->failed != QUIRE_OK) {
        return EXPR_NEVER;
    }
    if (x == EXPR_ANY || y == EXPR_ANY || x == y) {
        return x == EXPR_ANY ? y : x;
    }
    return join_exprs(s, EXPR_IS_AND, x, y);
}

uint32_t expr_or(schema *s, uint32_t x, uint32_t y) {
    if (x == EXPR_ANY || y == EXPR_ANY || s->b->failed != QUIRE_OK) {
        return EXPR_ANY;
    }
    if (x == EXPR_NEVER || y == EXPR_NEVER || x == y) {
        return x == EXPR_NEVER ? y : x;
    }
    return join_exprs(s, EXPR_IS_OR, x, y);
}

uint32_t expr_not(schema *s, uint32_t x) {
    if (x == EXPR_ANY || x == EXPR_NEVER || s->b->failed != QUIRE_OK) {
        return x == EXPR_NEVER ? EXPR_ANY : EXPR_NEVER;
    }
    if (s->exprs.p[x].kind == EXPR_IS_NOT) {
        return expr_quiet(s, s->exprs.p[x].children[0]);
    }
    expr not = {.kind = EXPR_IS_NOT};
    schema_add_child(s, &not, x);
    return expr_of(s, not );
}

uint32_t expr_quiet(schema *s, uint32_t x) {
    expr quiet = {.kind = EXPR_IS_QUIET};
    expr_kind kind = s->b->failed == QUIRE_OK ? s->exprs.p[x].kind : EXPR_IS_NEVER;
    bool is_needed =
        s->b->options->additional == GRAMMAR_ADDITIONAL_CLOSED &&
        (kind == EXPR_IS_SCHEMA || kind == EXPR_IS_AND || kind == EXPR_IS_OR || kind == EXPR_IS_NOT);
    if (!is_needed) {
        return x;
    }
    schema_add_child(s, &quiet, x);
    return expr_of(s, quiet);
}

static void make_shape(schema *s, uint32_t x, shape *out) {
    expr e = s->exprs.p[x];
    shape next;
    switch (e.kind) {
    case EXPR_IS_ANY:
        shape_any(s, out);
        return;
    case EXPR_IS_NEVER:
        return;
    case EXPR_IS_SCHEMA:
        schema_read(s, x, out);
        return;
    case EXPR_IS_CONST:
        schema_read_const(s, e.value, out);
        return;
    case EXPR_IS_AND:
    case EXPR_IS_OR:
        *out = *expr_shape(s, e.children[0]);
        for (uint32_t i = 1; i < e.n; i++) {
            (e.kind == EXPR_IS_AND ? shape_and : shape_or)(s, out, expr_shape(s, e.children[i]), &next);
            *out = next;
        }
        return;
    case EXPR_IS_QUIET:
        shape_quiet(s, expr_shape(s, e.children[0]), true, out);
        return;
    case EXPR_IS_NOT: {
        const char *why = shape_not(s, expr_shape(s, e.children[0]), out),
                   *path = s->exprs.p[e.children[0]].path;
        if (why != NULL) {
            schema_refuse(s, path != NULL ? path : "", "not", why);
        }
        return;
    }
    }
}

const shape *expr_shape(schema *s, uint32_t x) {
    static const shape empty = {0};
    if (s->b->failed != QUIRE_OK) {
        return &empty;
    }
    if (s->exprs.p[x].shape != NULL) {
        return s->exprs.p[x].shape;
    }
    const char *path = s->exprs.p[x].path;
    if (s->exprs.p[x].open && s->n_probes > 0) {
        s->met_open = true;
        return &empty;
    }
    if (s->exprs.p[x].open) {
        (void)build_fail(s->b, QUIRE_INVALID, -1,
                         "the schema at \"%s\": $ref leads back to itself, so it constrains nothing",
                         path != NULL ? path : "");
        return &empty;
    }
    if (++s->depth > MAX_DEPTH) {
        (void)build_fail(s->b, QUIRE_TOO_LARGE, -1,
                         "the schema at \"%s\": over %d schemas apply inside each other",
                         path != NULL ? path : "", MAX_DEPTH);
        return &empty;
    }
    s->exprs.p[x].open = true;
    shape *out = schema_keep(s, 1, sizeof *out);
    if (out != NULL) {
        make_shape(s, x, out);
        s->exprs.p[x].shape = s->met_open ? NULL : out; /* another attempt may find it */
    }
    s->exprs.p[x].open = false;
    s->depth--;
    return s->b->failed == QUIRE_OK ? out : &empty;
}

expr_probe expr_probe_begin(schema *s) {
    expr_probe around = {s->met_open};
    s->met_open = false;
    s->n_probes++;
    return around;
}

bool expr_probe_end(schema *s, expr_probe around) {
    assert(s != NULL);
    bool met = s->met_open;
    s->met_open = around.met_open;
    s->n_probes--;
    return met;
}

/* ---- reports ---- */

void schema_note(schema *s, const char *path, const char *keyword, int status, const char *how) {
    assert(s != NULL);
    const grammar_options *o = s->b->options;
    if (o->keyword != NULL) {
        grammar_keyword k = {path, keyword, GRAMMAR_ENFORCED, how};
        k.status = status == GRAMMAR_ENFORCED     ? GRAMMAR_ENFORCED
                   : status == GRAMMAR_ANNOTATION ? GRAMMAR_ANNOTATION
                                                  : GRAMMAR_REFUSED;
        o->keyword(o->user, &k);
    }
}

void schema_refuse(schema *s, const char *path, const char *keyword, const char *why) {
    assert(s != NULL);
    if (s->b->failed != QUIRE_OK) {
        return;
    }
    schema_note(s, path, keyword, GRAMMAR_REFUSED, why);
    if (!s->b->options->survey) {
        (void)build_fail(s->b, QUIRE_UNSUPPORTED, -1, "%s at \"%s\" cannot be enforced: %s", keyword, path,
                         why);
        s->named = true;
    } else if (!s->refused) {
        s->refused = true;
        (void)err_set(&s->first, QUIRE_UNSUPPORTED, -1, "%s at \"%s\" cannot be enforced: %s", keyword, path,
                      why);
    }
}

void schema_name_failure(schema *s, const char *path, const char *keyword, bool malformed) {
    assert(s != NULL);
    build *b = s->b;
    char why[sizeof b->err->message] = "it takes too many steps or too much memory";
    bool refused = b->failed == QUIRE_UNSUPPORTED || (malformed && b->failed == QUIRE_INVALID);
    if (s->named || (!refused && b->failed != QUIRE_TOO_LARGE)) {
        return;
    }
    if (b->err != NULL) { /* the prefix is added again */
        size_t skip = b->where != NULL && strstr(b->err->message, b->where) == b->err->message
                          ? strlen(b->where) + 2
                          : 0;
        (void)snprintf(why, sizeof why, "%s", b->err->message + skip);
    }
    quire_err failed = b->failed;
    b->failed = QUIRE_OK;
    if (refused) {
        schema_refuse(s, path, keyword, why);
        return;
    }
    schema_note(s, path, keyword, GRAMMAR_REFUSED, why);
    (void)build_fail(b, failed, -1, "%s at \"%s\": %s", keyword, path, why);
    s->named = true;
}

/* ---- compiling ---- */

int schema_draft(const json_value *v) {
    str uri = json_get_str(v, "$schema");
    return str_contains(uri, str_of("draft-03")) || str_contains(uri, str_of("draft-04")) ? 4
           : str_contains(uri, str_of("draft-06"))                                        ? 6
           : str_contains(uri, str_of("draft-07"))                                        ? 7
           : str_contains(uri, str_of("2019-09"))                                         ? 2019
                                                                                          : 2020;
}

void schema_open(schema *s, build *b, dfa_pool *dfas, const json_value *root) {
    *s = (schema){
        .b = b, .draft = schema_draft(root), .writing = "", .dfas = dfas != NULL ? dfas : &s->own_dfas};
    if (dfas == NULL) {
        dfa_pool_init(&s->own_dfas, b);
    }
    (void)expr_of(s, (expr){.kind = EXPR_IS_ANY});
    (void)expr_of(s, (expr){.kind = EXPR_IS_NEVER});
    schema_find_resources(s, root);
}

void schema_close(schema *s) {
    assert(s != NULL);
    if (s->refused && s->b->failed == QUIRE_OK) {
        s->b->failed = QUIRE_UNSUPPORTED;
        if (s->b->err != NULL) {
            *s->b->err = s->first;
        }
    }
    schema_free_kept(s);
    if (s->dfas == &s->own_dfas) {
        dfa_pool_deinit(&s->own_dfas);
    }
    NFA_FREE(s->b, s->exprs);
    hash_index_deinit(&s->expr_index);
    NFA_FREE(s->b, s->queue);
    NFA_FREE(s->b, s->shapes);
    NFA_FREE(s->b, s->elements);
    NFA_FREE(s->b, s->resources);
    NFA_FREE(s->b, s->anchors);
}

static void compile_value(build *b, const json_value *root, const json_digits *digits) {
    schema s;
    schema_open(&s, b, NULL, root);
    s.digits = digits;
    uint32_t x = b->failed == QUIRE_OK ? expr_schema(&s, root, 0, "") : EXPR_NEVER;
    if (b->failed == QUIRE_OK) {
        schema_write(&s, x);
    }
    schema_close(&s);
}

void compile_schema(build *b, str text) {
    json_limits limits = {.max_depth = MAX_NESTED,
                          .max_values = MAX_VALUES,
                          .max_containers = MAX_VALUES,
                          .max_names = MAX_VALUES,
                          .names = JSON_NAMES_LAST};
    json_fault fault = {0};
    json_value *root = NULL;
    json_digits *digits = NULL;
    json_counts counts = {0};
    quire_err e = json_read_counted(text, &limits, JSON_WIDE_KEPT, &root, &counts, &fault);
    if (e == QUIRE_OK && counts.n_long > 0) {
        e = json_digits_find(text, root, counts.n_long, &digits);
        (void)snprintf(fault.what, sizeof fault.what, "%s",
                       e == QUIRE_NO_MEMORY ? "out of memory" : "given up");
    }
    if (e != QUIRE_OK) {
        (void)build_fail(b, e == QUIRE_BAD_FILE ? QUIRE_INVALID : e, (int64_t)fault.at,
                         "the schema at byte %zu: %s", fault.at, fault.what);
    } else {
        compile_value(b, root, digits);
    }
    json_digits_drop(digits);
    json_drop(root);
}

void compile_object(build *b) {
    compile_schema(b, str_of("{\"type\":\"object\"}"));
}

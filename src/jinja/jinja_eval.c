/* Evaluates expressions. */
#include "jinja/jinja_run.h"

static quire_err eval_const(__attribute__((unused)) jrun *r, const jnode *node,
                            __attribute__((unused)) jscope *scope, jvalue *out) {
    *out = node->value;
    return QUIRE_OK;
}

static quire_err eval_name(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    str name = node->name;
    const jdict *context = NULL;
    for (; scope != NULL; scope = scope->parent) {
        context = scope->context != NULL ? scope->context : context;
        for (size_t i = 0; i < scope->n; i++) {
            if (str_eq(scope->bindings[i].name, name)) {
                *out = scope->bindings[i].value;
                return QUIRE_OK;
            }
        }
    }
    if (str_is(name, "self")) {
        return jblock_self(r, out);
    }
    const jvalue *found = NULL;
    TRY(context != NULL ? jrun_get(r, context, jstring(name), &found) : QUIRE_OK);
    if (found != NULL) {
        *out = *found;
        return QUIRE_OK;
    }
    const jfunction *f = jinja_find_global(name);
    if (f != NULL) {
        *out = (jvalue){.kind = J_FUNCTION, .u.function = f};
        return QUIRE_OK;
    }
    return jrun_make_undefined(r, out, "'%.*s' is undefined", (int)name.n, name.p);
}

static quire_err eval_all(jrun *r, jnode *const *nodes, size_t n, jscope *scope, jvalue **out) {
    TRY(jrun_values(r, n, out));
    for (size_t i = 0; i < n; i++) {
        TRY(jeval(r, nodes[i], scope, &(*out)[i]));
    }
    return QUIRE_OK;
}

/* Adds the arguments that a starred argument expands to. */
static quire_err jinja_eval_unpack(jrun *r, str star, jvalue v, jargs *args, jvalue *values, str *names) {
    const jvalue *items;
    size_t n;
    if (star.n == 2 && !jis(v, J_DICT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "argument after ** must be a mapping, not %s", jvalue_type(v));
    }
    TRY(jrun_items(r, v, &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (args->n == JINJA_MAX_ARGUMENTS) {
            return jrun_fail(r, QUIRE_TOO_LARGE, "more than %d arguments", JINJA_MAX_ARGUMENTS);
        }
        bool named = star.n == 2;
        if (named && !jis(items[i], J_STRING)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "keywords must be strings");
        }
        names[args->n] = named ? items[i].u.s : (str){0};
        values[args->n++] = named ? v.u.dict->entries[i].value : items[i];
        args->n_named += named;
    }
    return QUIRE_OK;
}

/* The arguments of a call with stars; positional ones go before those with names, as in
 * Python. */
static quire_err eval_unpacked(jrun *r, const jnode *node, jscope *scope, jargs *args) {
    jvalue *values;
    str *names = jarena_new(&r->arena, JINJA_MAX_ARGUMENTS * sizeof *names);
    TRY(jrun_check_memory(r, names));
    TRY(jrun_values(r, JINJA_MAX_ARGUMENTS, &values));
    *args = (jargs){.values = values, .names = names};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < node->n; i++) {
            str name = node->names[i];
            bool star = name.n > 0 && name.p[0] == '*', named = name.n > 0 && !(star && name.n == 1);
            jvalue v;
            if (named != (pass == 1)) {
                continue;
            }
            TRY(jeval(r, node->items[i], scope, &v));
            r->at = node;
            if (star) {
                TRY(jinja_eval_unpack(r, name, v, args, values, names));
            } else if (args->n < JINJA_MAX_ARGUMENTS) {
                names[args->n] = name;
                values[args->n++] = v;
                args->n_named += named;
            } else {
                return jrun_fail(r, QUIRE_TOO_LARGE, "more than %d arguments", JINJA_MAX_ARGUMENTS);
            }
        }
    }
    return QUIRE_OK;
}

quire_err jeval_args(jrun *r, const jnode *node, jscope *scope, jargs *args) {
    jvalue *values;
    if (node->unpacks) {
        return eval_unpacked(r, node, scope, args);
    }
    TRY(eval_all(r, node->items, node->n, scope, &values));
    *args = (jargs){.values = values, .n = node->n, .names = node->names};
    for (size_t i = 0; i < node->n; i++) {
        args->n_named += node->names[i].n > 0;
    }
    return QUIRE_OK;
}

static quire_err eval_list(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue *items;
    TRY(eval_all(r, node->items, node->n, scope, &items));
    return jrun_list(r, node->kind == N_LIST ? J_LIST : J_TUPLE, items, node->n, out);
}

static quire_err eval_dict(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jdict *d;
    TRY(jrun_dict(r, &d));
    for (size_t i = 0; i + 1 < node->n; i += 2) {
        jvalue key, value;
        TRY(jeval(r, node->items[i], scope, &key));
        TRY(jeval(r, node->items[i + 1], scope, &value));
        TRY(jrun_set(r, d, key, value));
    }
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    return QUIRE_OK;
}

static quire_err eval_item(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue object, key, bounds[3];
    TRY(jeval(r, node->a, scope, &object));
    if (node->b->kind != N_SLICE) {
        TRY(jeval(r, node->b, scope, &key));
        r->at = node;
        return jget_item(r, object, key, out);
    }
    for (int i = 0; i < 3; i++) {
        bounds[i] = jnone();
        if (node->b->items[i] != NULL) {
            TRY(jeval(r, node->b->items[i], scope, &bounds[i]));
        }
    }
    r->at = node;
    if (r->folds && !jcan_slice(object)) {
        return jrun_make_undefined(r, out, "%s object has no element slice", jvalue_type(object));
    }
    return jget_slice(r, object, bounds, out);
}

static quire_err eval_call(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue callee;
    jargs args;
    TRY(jeval(r, node->a, scope, &callee));
    TRY(jeval_args(r, node, scope, &args));
    r->at = node;
    return jcall(r, callee, &args, out);
}

/* Applies a filter or test to the value of node->a. */
static quire_err eval_filter(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue input;
    jargs args;
    TRY(jeval(r, node->a, scope, &input));
    TRY(jeval_args(r, node, scope, &args));
    r->at = node;
    if (node->function == NULL) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "No %s named '%.*s' found.",
                         node->kind == N_TEST ? "test" : "filter", (int)node->name.n, node->name.p);
    }
    return jcall_function(r, node->function, &input, &args, out);
}

static quire_err eval_binary(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue a, b;
    TRY(jeval(r, node->a, scope, &a));
    TRY(jeval(r, node->b, scope, &b));
    r->at = node;
    return jop_binary(r, (jop)node->op, a, b, out);
}

/* ~: concatenates texts, escaped or not. */
static quire_err eval_concat(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue *items;
    TRY(eval_all(r, node->items, node->n, scope, &items));
    r->at = node;
    str joined = {0};
    bool safe = false;
    for (size_t i = 0; i < node->n; i++) {
        safe = safe || (r->autoescape && jis(items[i], J_STRING) && items[i].safe);
    }
    for (size_t i = 0; i < node->n; i++) {
        str part;
        TRY(safe ? jrun_escape(r, items[i], &items[i]) : QUIRE_OK);
        items[i].safe = false;
        TRY(jrun_to_text(r, items[i], &part));
        if (i == 0) {
            joined = part;
        } else {
            TRY(jrun_append(r, joined, part, &joined));
        }
    }
    *out = jstring(joined);
    out->safe = safe;
    return jrun_step(r, joined.n / 64);
}

static quire_err eval_comparison(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue left, right;
    bool holds = true;
    TRY(jeval(r, node->a, scope, &left));
    for (size_t i = 0; i < node->n && holds; i++) {
        TRY(jeval(r, node->items[i], scope, &right));
        r->at = node;
        TRY(jop_compare(r, (jcompare)node->ops[i], left, right, &holds));
        left = right;
    }
    *out = jbool(holds);
    return QUIRE_OK;
}

static quire_err eval_logic(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    TRY(jeval(r, node->a, scope, out));
    return jvalue_truth(*out) == (node->kind == N_AND) ? jeval(r, node->b, scope, out) : QUIRE_OK;
}

static quire_err eval_conditional(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue test;
    TRY(jeval(r, node->a, scope, &test));
    if (jvalue_truth(test)) {
        return jeval(r, node->b, scope, out);
    }
    if (node->c != NULL) {
        return jeval(r, node->c, scope, out);
    }
    return jrun_make_undefined(
        r, out, "the inline if-expression on line %u evaluated to false and no else section was defined.",
        (unsigned)node->line);
}

static quire_err eval_unary(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue operand;
    TRY(jeval(r, node->a, scope, &operand));
    if (node->kind == N_NOT) {
        *out = jbool(!jvalue_truth(operand));
        return QUIRE_OK;
    }
    r->at = node;
    return jop_negate(r, node->kind == N_NEGATE, operand, out);
}

static quire_err eval_member(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jvalue object;
    TRY(jeval(r, node->a, scope, &object));
    r->at = node;
    return jget_member(r, object, node->name, out);
}

static quire_err (*const evaluators[])(jrun *r, const jnode *node, jscope *scope, jvalue *out) = {
    [N_CONST] = eval_const,        [N_NAME] = eval_name,     [N_LIST] = eval_list,
    [N_TUPLE] = eval_list,         [N_DICT] = eval_dict,     [N_MEMBER] = eval_member,
    [N_ITEM] = eval_item,          [N_CALL] = eval_call,     [N_FILTER] = eval_filter,
    [N_TEST] = eval_filter,        [N_NEGATE] = eval_unary,  [N_PLUS] = eval_unary,
    [N_NOT] = eval_unary,          [N_BINARY] = eval_binary, [N_CONCAT] = eval_concat,
    [N_COMPARE] = eval_comparison, [N_AND] = eval_logic,     [N_OR] = eval_logic,
    [N_COND] = eval_conditional,
};

quire_err jeval(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    TRY(jrun_enter(r, node));
    bool known = node->kind < sizeof evaluators / sizeof evaluators[0] && evaluators[node->kind] != NULL;
    quire_err e = known ? evaluators[node->kind](r, node, scope, out)
                        : jrun_fail(r, QUIRE_INTERNAL, "not an expression");
    r->depth--;
    return e;
}

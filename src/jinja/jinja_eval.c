/* Evaluates expressions. */
#include "jinja/jinja_run.h"

#include <assert.h>

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
    if (context != NULL) {
        TRY(jrun_get(r, context, jstring(name), &found));
    }
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

/* Expands an argument with * or **. */
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

/* Evaluates the arguments of a call with * or **; positional ones before named ones, as
 * in Python. */
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
    assert(node != NULL);
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
    if (r->folds && !jcan_slice(object, bounds)) {
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

/* Applies a filter or test to node->a's value. */
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

/* Evaluates a ~ b: concatenates texts, escaped or not. */
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
        if (safe) {
            TRY(jrun_escape(r, items[i], &items[i]));
        }
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

/* Calls of table functions and of macros. */

enum { MAX_PARAMETERS = 16, MAX_ARGUMENTS = JINJA_MAX_ARGUMENTS + 1 /* a call block adds its caller */ };

const jfunction *jfunction_find(const jfunction *table, size_t n, str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* Reads the next name of a parameter list, without its "?". False at the end. */
static bool next_parameter(const char **at, str *name, bool *optional) {
    while (**at == ' ') {
        (*at)++;
    }
    *optional = **at == '?';
    *at += *optional;
    const char *start = *at;
    while (**at != '\0' && **at != ' ') {
        (*at)++;
    }
    *name = (str){start, (size_t)(*at - start)};
    return name->n > 0;
}

static bool take_named(const jargs *args, bool *used, str name, jvalue *out) {
    for (size_t i = args->n - args->n_named; i < args->n; i++) {
        if (str_eq(args->names[i], name)) {
            used[i] = true;
            *out = args->values[i];
            return true;
        }
    }
    return false;
}

jvalue jargs_named(const jargs *args, str name) {
    bool used[MAX_ARGUMENTS];
    jvalue value = {.kind = J_MISSING};
    (void)take_named(args, used, name, &value);
    return value;
}

jargs jargs_without(const jargs *args, size_t n) {
    return (jargs){args->values == NULL ? NULL : args->values + n, args->n - n,
                   args->names == NULL ? NULL : args->names + n, args->n_named};
}

quire_err jcall_function(jrun *r, const jfunction *f, const jvalue *input, const jargs *args, jvalue *out) {
    jvalue bound[MAX_PARAMETERS];
    bool used[MAX_ARGUMENTS] = {false};
    size_t n = 0, taken = 0, n_positional = args->n - args->n_named;
    if (f->call == NULL) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "%s is not supported", f->name);
    }
    const char *at = f->params;
    str name;
    bool optional, open = false, takes_names = strchr(f->params, '/') == NULL;
    while (next_parameter(&at, &name, &optional) && !str_is(name, "/")) {
        if (str_is(name, "*")) {
            open = true;
            break;
        }
        jvalue *slot = &bound[n++];
        if (n == 1 && input != NULL) {
            *slot = *input;
        } else if (taken < n_positional) {
            used[taken] = true;
            *slot = args->values[taken++];
        } else if (!takes_names || !take_named(args, used, name, slot)) {
            *slot = (jvalue){.kind = J_MISSING};
            if (!optional) {
                return jrun_fail(r, QUIRE_BAD_REQUEST, "%s is missing the argument %.*s", f->name,
                                 (int)name.n, name.p);
            }
        }
    }
    for (size_t i = 0; i < args->n && !open; i++) {
        if (!used[i]) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "%s takes no %s argument %.*s", f->name,
                             i < n_positional ? "further" : "such",
                             (int)(i < n_positional ? 0 : args->names[i].n),
                             i < n_positional ? "" : args->names[i].p);
        }
    }
    jargs rest = jargs_without(args, taken);
    TRY(f->call(r, f->how, bound, &rest, out));
    if (n > 0 && !jis(*out, J_STRING)) { /* a result computed from variables counts as from the variables */
        bool measured = jis_number(*out) && jis(bound[0], J_STRING);
        out->is_input =
            out->is_input || bound[0].is_input || (measured && jarena_is_input(&r->arena, bound[0].u.s));
    }
    return QUIRE_OK;
}

/* ---- macros ---- */

/* The value passed for a parameter, by position or name. False if it was not passed. */
static bool macro_argument(const jnode *macro, const jargs *args, size_t i, bool *used, jvalue *out) {
    if (i < args->n - args->n_named) {
        used[i] = true;
        *out = args->values[i];
        return true;
    }
    return take_named(args, used, macro->items[i]->name, out);
}

static quire_err check_given_twice(jrun *r, const jnode *macro, const jargs *args) {
    for (size_t i = 0; i < macro->n && i < args->n - args->n_named; i++) {
        if (!jis(jargs_named(args, macro->items[i]->name), J_MISSING)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "macro '%.*s' got multiple values for an argument",
                             (int)macro->name.n, macro->name.p);
        }
    }
    return QUIRE_OK;
}

/* Binds varargs, kwargs and caller (arguments that match no parameter) in macros that use
 * them; an error in others. */
static quire_err bind_rest(jrun *r, const jnode *macro, const jargs *args, bool *used, jscope *scope) {
    size_t n_positional = args->n - args->n_named, n = 0;
    jvalue *extra, value;
    jdict *named;
    TRY(jrun_values(r, n_positional, &extra));
    TRY(jrun_dict(r, &named));
    bool called = take_named(args, used, str_of("caller"), &value);
    if (macro->uses_caller) {
        if (!called) {
            TRY(jrun_make_undefined(r, &value, "No caller defined"));
        }
        TRY(jscope_set(r, scope, str_of("caller"), value));
    } else if (called) {
        return jrun_fail(
            r, QUIRE_BAD_REQUEST,
            "macro '%.*s' was invoked with two values for the special caller argument or takes none",
            (int)macro->name.n, macro->name.p);
    }
    for (size_t i = 0; i < args->n; i++) {
        if (used[i]) {
            continue;
        }
        if (i < n_positional) {
            extra[n++] = args->values[i];
        } else {
            TRY(jrun_set(r, named, jstring(args->names[i]), args->values[i]));
        }
    }
    if ((n > 0 && !macro->uses_varargs) || (named->n > 0 && !macro->uses_kwargs)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "macro '%.*s' %s", (int)macro->name.n, macro->name.p,
                         n > 0 ? "takes not more arguments" : "takes no such keyword argument");
    }
    if (macro->uses_varargs) {
        TRY(jrun_list(r, J_TUPLE, extra, n, &value));
        TRY(jscope_set(r, scope, str_of("varargs"), value));
    }
    return macro->uses_kwargs
               ? jscope_set(r, scope, str_of("kwargs"), (jvalue){.kind = J_DICT, .u.dict = named})
               : QUIRE_OK;
}

static quire_err call_macro(jrun *r, const jmacro *m, const jargs *args, jvalue *out) {
    const jnode *macro = m->node;
    jscope *scope;
    bool used[MAX_ARGUMENTS] = {false};
    TRY(check_given_twice(r, macro, args));
    TRY(jscope_new(r, m->scope, &scope));
    for (size_t i = 0; i < macro->n; i++) {
        jvalue value;
        str name = macro->items[i]->name;
        if (!macro_argument(macro, args, i, used, &value)) {
            size_t first_default = macro->n - macro->n_more;
            if (i >= first_default) {
                TRY(jeval(r, macro->more[i - first_default], scope, &value));
            } else {
                TRY(jrun_make_undefined(r, &value, "parameter '%.*s' was not provided", (int)name.n, name.p));
            }
        }
        TRY(jscope_set(r, scope, name, value));
    }
    TRY(bind_rest(r, macro, args, used, scope));
    return jexec_capture(r, macro->body, scope, out);
}

/* Calls loop(items) of a recursive loop: runs its body over other items. */
static quire_err call_loop(jrun *r, const jloop *l, const jargs *args, jvalue *out) {
    if (!l->node->recursive) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         "The loop must have the 'recursive' marker to be called recursively.");
    }
    if (args->n != 1 || args->n_named != 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "loop takes one argument");
    }
    jout text = jrun_out(r), *before = r->out;
    r->out = &text;
    quire_err e = jexec_for(r, l->node, l->scope, args->values[0], l->depth + 1);
    r->out = before;
    return jrun_take_text(r, e, &text, out);
}

quire_err jcall(jrun *r, jvalue callee, const jargs *args, jvalue *out) {
    switch (callee.kind) {
    case J_UNDEFINED:
        return jrun_undefined(r, callee);
    case J_FUNCTION:
        return jcall_function(r, callee.u.function, NULL, args, out);
    case J_METHOD: {
        const jmethod *m = callee.u.method;
        if (m->self.safe && !jinja_escapes(m->function)) {
            str text;
            TRY(jrun_to_text(r, m->self, &text)); /* which refuses it */
        }
        return jcall_function(r, m->function, &m->self, args, out);
    }
    case J_MACRO:
        return call_macro(r, callee.u.macro, args, out);
    case J_TURNS: { /* a joiner */
        jturns *t = callee.u.turns;
        if (!t->joins) {
            TRY(jrun_fail(r, QUIRE_BAD_REQUEST, "'Cycler' object is not callable"));
        }
        *out = t->at == 0 ? jstring((str){"", 0}) : t->items[0];
        t->at = 1;
        return QUIRE_OK;
    }
    case J_BLOCK:
        return jblock_call(r, callee.u.block, args, out);
    case J_LOOP:
        return call_loop(r, callee.u.loop, args, out);
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object is not callable", jvalue_type(callee));
    }
}

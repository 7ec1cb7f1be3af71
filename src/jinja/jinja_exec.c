/* Executes statements. */
#include "jinja/jinja_run.h"

#include <assert.h>

/* ---- scopes ---- */

quire_err jscope_new(jrun *r, jscope *parent, jscope **out) {
    *out = jarena_new(&r->arena, sizeof **out);
    TRY(jrun_check_memory(r, *out));
    (*out)->parent = parent;
    return QUIRE_OK;
}

quire_err jscope_set(jrun *r, jscope *s, str name, jvalue value) {
    assert(s != NULL);
    for (size_t i = 0; i < s->n; i++) {
        if (str_eq(s->bindings[i].name, name)) {
            s->bindings[i].value = value;
            return QUIRE_OK;
        }
    }
    if (!jarena_grow(&r->arena, &s->bindings, &s->cap, s->n, sizeof *s->bindings)) {
        return jrun_no_memory(r);
    }
    s->bindings[s->n++] = (struct jbinding){name, value};
    return QUIRE_OK;
}

static quire_err set_member(jrun *r, const jnode *target, jscope *scope, jvalue value) {
    jvalue object;
    TRY(jeval(r, target->a, scope, &object));
    r->at = target;
    if (!jis(object, J_NAMESPACE)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "cannot assign attribute on non-namespace object");
    }
    TRY(jrun_check_stored(r, jstring(target->name)));
    return jrun_set(r, object.u.dict, jstring(target->name), value);
}

static quire_err assign(jrun *r, const jnode *target, jscope *scope, jvalue value) {
    if (target->kind == N_NAME) {
        return jscope_set(r, scope, target->name, value);
    }
    if (target->kind == N_MEMBER) {
        return set_member(r, target, scope, value);
    }
    const jvalue *items;
    size_t n;
    r->at = target;
    if (jis(value, J_UNDEFINED)) {
        n = 0;
    } else {
        TRY(jrun_items(r, value, &items, &n));
    }
    if (n != target->n) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "%s values to unpack (expected %zu, got %zu)",
                         n > target->n ? "too many" : "not enough", target->n, n);
    }
    for (size_t i = 0; i < n; i++) {
        TRY(assign(r, target->items[i], scope, items[i]));
    }
    return QUIRE_OK;
}

/* ---- output ---- */

/* Writes to the current output. */
static quire_err jinja_exec_emit(jrun *r, jvalue v) {
    return r->out == NULL ? QUIRE_OK : jrun_write(r, v, r->out);
}

static quire_err jinja_exec_print(jrun *r, const jnode *node, jscope *scope) {
    jvalue v;
    if (r->out == NULL) {
        return QUIRE_OK;
    }
    r->folds = node->folds;
    TRY(jeval(r, node->a, scope, &v));
    r->folds = false;
    r->at = node;
    if (r->autoescape) {
        TRY(jrun_escape(r, v, &v));
    }
    return jinja_exec_emit(r, v);
}

quire_err jexec_capture(jrun *r, const jnode *body, jscope *scope, jvalue *out) {
    assert(r != NULL);
    jout text = jrun_out(r), *before = r->out;
    r->out = &text;
    quire_err e = jexec(r, body, scope);
    r->out = before;
    TRY(jrun_take_text(r, e, &text, out));
    out->safe = r->autoescape;
    return QUIRE_OK;
}

/* Passes v through a chain of filters, innermost first. */
static quire_err apply_filters(jrun *r, const jnode *chain, jscope *scope, jvalue v, jvalue *out) {
    jnode input = {.kind = N_CONST, .line = chain->line, .column = chain->column, .value = v};
    jnode copy = *chain;
    copy.a = &input;
    TRY(jrun_enter(r, chain));
    if (chain->a != NULL) {
        TRY(apply_filters(r, chain->a, scope, v, &input.value));
    }
    quire_err e = jeval(r, &copy, scope, out);
    r->at = chain; /* not `copy`, which is freed */
    r->depth--;
    return e;
}

/* ---- loops ---- */

/* An empty scope for the next iteration: the previous one unless a macro refers to it. */
static quire_err next_scope(jrun *r, jscope *parent, jscope **scope) {
    if (*scope == NULL || (*scope)->captured) {
        return jscope_new(r, parent, scope);
    }
    (*scope)->n = 0;
    return QUIRE_OK;
}

/* Selects the items that pass the loop's condition. It sees the target, but not this
 * loop's `loop`. */
static quire_err select_items(jrun *r, const jnode *node, jscope *scope, const jvalue **items, size_t *n) {
    if (node->c == NULL) {
        return QUIRE_OK;
    }
    jvalue *kept;
    size_t n_kept = 0;
    TRY(jrun_values(r, *n, &kept));
    jscope *inner = NULL;
    for (size_t i = 0; i < *n; i++) {
        jvalue passes;
        TRY(next_scope(r, scope, &inner));
        TRY(assign(r, node->a, inner, (*items)[i]));
        TRY(jeval(r, node->c, inner, &passes));
        if (jvalue_truth(passes)) {
            kept[n_kept++] = (*items)[i];
        }
    }
    *items = kept;
    *n = n_kept;
    return QUIRE_OK;
}

quire_err jexec_for(jrun *r, const jnode *node, jscope *scope, jvalue iterable, int depth) {
    const jvalue *items;
    size_t n;
    jloop *loop = jarena_new(&r->arena, sizeof *loop);
    TRY(jrun_check_memory(r, loop));
    r->at = node;
    TRY(jrun_items(r, iterable, &items, &n));
    TRY(select_items(r, node, scope, &items, &n));
    *loop = (jloop){.items = items, .n = n, .depth = depth, .node = node, .scope = scope};
    bool completed_one = false;
    jscope *inner = NULL;
    for (size_t i = 0; i < n; i++) {
        loop->index = i;
        TRY(jrun_step(r, 1));
        TRY(next_scope(r, scope, &inner));
        TRY(jscope_set(r, inner, str_of("loop"), (jvalue){.kind = J_LOOP, .u.loop = loop}));
        TRY(assign(r, node->a, inner, items[i]));
        TRY(jexec(r, node->body, inner));
        jflow flow = r->flow;
        r->flow = FLOW_ON;
        if (flow == FLOW_BREAK) {
            break;
        }
        completed_one = completed_one || flow == FLOW_ON;
    }
    /* in Jinja else also runs if no iteration was completed */
    if (!completed_one && node->otherwise != NULL) {
        TRY(jscope_new(r, scope, &inner));
        return jexec(r, node->otherwise, inner);
    }
    return QUIRE_OK;
}

static quire_err exec_for(jrun *r, const jnode *node, jscope *scope) {
    jvalue iterable;
    TRY(jeval(r, node->b, scope, &iterable));
    return jexec_for(r, node, scope, iterable, 0);
}

/* ---- other statements ---- */

static quire_err exec_if(jrun *r, const jnode *node, jscope *scope) {
    jvalue test;
    TRY(jeval(r, node->a, scope, &test));
    if (jvalue_truth(test)) {
        return jexec(r, node->b, scope);
    }
    return node->c != NULL ? jexec(r, node->c, scope) : QUIRE_OK;
}

static quire_err exec_set(jrun *r, const jnode *node, jscope *scope) {
    jvalue value;
    TRY(jeval(r, node->b, scope, &value));
    return assign(r, node->a, scope, value);
}

/* Sets *out to the text of node's body after the filters (NULL: none). Meaningless if a
 * break or continue left the body. */
static quire_err block_text(jrun *r, const jnode *node, const jnode *filters, jscope *scope, jvalue *out) {
    jscope *inner;
    TRY(jscope_new(r, scope, &inner));
    TRY(jexec_capture(r, node->body, inner, out));
    return filters == NULL || r->flow != FLOW_ON ? QUIRE_OK : apply_filters(r, filters, scope, *out, out);
}

static quire_err exec_set_block(jrun *r, const jnode *node, jscope *scope) {
    jvalue value;
    TRY(block_text(r, node, node->b, scope, &value));
    return r->flow != FLOW_ON ? QUIRE_OK : assign(r, node->a, scope, value);
}

static quire_err make_macro(jrun *r, const jnode *node, jscope *scope, jvalue *out) {
    jmacro *macro = jarena_new(&r->arena, sizeof *macro);
    TRY(jrun_check_memory(r, macro));
    *macro = (jmacro){node, scope};
    for (; scope != NULL; scope = scope->parent) {
        scope->captured = true;
    }
    *out = (jvalue){.kind = J_MACRO, .u.macro = macro};
    return QUIRE_OK;
}

static quire_err exec_macro(jrun *r, const jnode *node, jscope *scope) {
    jvalue macro;
    TRY(make_macro(r, node, scope, &macro));
    return jscope_set(r, scope, node->name, macro);
}

/* Executes the call, with the block as the additional argument `caller`. */
static quire_err exec_call_block(jrun *r, const jnode *node, jscope *scope) {
    const jnode *call = node->a;
    jvalue callee, caller, result, values[JINJA_MAX_ARGUMENTS + 1];
    str names[JINJA_MAX_ARGUMENTS + 1];
    jargs args;
    TRY(make_macro(r, node->b, scope, &caller));
    TRY(jeval(r, call->a, scope, &callee));
    TRY(jeval_args(r, call, scope, &args));
    for (size_t i = 0; i < args.n; i++) {
        values[i] = args.values[i];
        names[i] = args.names[i];
    }
    values[args.n] = caller;
    names[args.n] = str_of("caller");
    args = (jargs){.values = values, .n = args.n + 1, .names = names, .n_named = args.n_named + 1};
    r->at = call;
    TRY(jcall(r, callee, &args, &result));
    return jinja_exec_emit(r, result);
}

static quire_err exec_filter_block(jrun *r, const jnode *node, jscope *scope) {
    jvalue value;
    TRY(block_text(r, node, node->a, scope, &value));
    if (r->flow != FLOW_ON) {
        return QUIRE_OK;
    }
    if (!jis(value, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "what a filter makes of a block must be a text, not %s",
                         jvalue_type(value));
    }
    return jinja_exec_emit(r, value);
}

static quire_err exec_with(jrun *r, const jnode *node, jscope *scope) {
    jscope *inner;
    TRY(jscope_new(r, scope, &inner));
    for (size_t i = 0; i < node->n; i++) { /* all values are evaluated in the outer scope first */
        jvalue value;
        TRY(jeval(r, node->more[i], scope, &value));
        TRY(assign(r, node->items[i], inner, value));
    }
    return jexec(r, node->body, inner);
}

static quire_err exec_autoescape(jrun *r, const jnode *node, jscope *scope) {
    jvalue wanted;
    jscope *inner;
    bool before = r->autoescape;
    TRY(jeval(r, node->a, scope, &wanted));
    TRY(jscope_new(r, scope, &inner));
    r->autoescape = jvalue_truth(wanted);
    TRY(jexec(r, node->body, inner));
    r->autoescape = before;
    return QUIRE_OK;
}

static quire_err exec_body(jrun *r, const jnode *node, jscope *scope) {
    for (size_t i = 0; i < node->n && r->flow == FLOW_ON; i++) {
        TRY(jexec(r, node->items[i], scope));
    }
    return QUIRE_OK;
}

static quire_err exec_kind(jrun *r, const jnode *node, jscope *scope) {
    jscope *inner;
    switch (node->kind) {
    case N_BODY:
        return exec_body(r, node, scope);
    case N_DATA:
        return jinja_exec_emit(r, jstring(node->name));
    case N_PRINT:
        return jinja_exec_print(r, node, scope);
    case N_IF:
        return exec_if(r, node, scope);
    case N_FOR:
        return exec_for(r, node, scope);
    case N_SET:
        return exec_set(r, node, scope);
    case N_SET_BLOCK:
        return exec_set_block(r, node, scope);
    case N_MACRO:
        return exec_macro(r, node, scope);
    case N_CALL_BLOCK:
        return exec_call_block(r, node, scope);
    case N_FILTER_BLOCK:
        return exec_filter_block(r, node, scope);
    case N_WITH:
        return exec_with(r, node, scope);
    case N_SCOPE:
        TRY(jscope_new(r, scope, &inner));
        return jexec(r, node->body, inner);
    case N_AUTOESCAPE:
        return exec_autoescape(r, node, scope);
    case N_BLOCK:
        return jexec_block(r, node, scope);
    case N_EXTENDS:
        return jexec_extends(r, node, scope);
    case N_INCLUDE:
        return jexec_include(r, node, scope);
    case N_IMPORT:
    case N_FROM:
        return jexec_import(r, node, scope);
    case N_BREAK:
        r->flow = FLOW_BREAK;
        return QUIRE_OK;
    case N_CONTINUE:
        r->flow = FLOW_CONTINUE;
        return QUIRE_OK;
    default:
        return jrun_fail(r, QUIRE_INTERNAL, "not a statement");
    }
}

quire_err jexec(jrun *r, const jnode *node, jscope *scope) {
    TRY(jrun_enter(r, node));
    quire_err e = exec_kind(r, node, scope);
    r->depth--;
    return e;
}

/* Calls: functions of the tables, and macros. */
#include "jinja/jinja_run.h"

enum { MAX_PARAMETERS = 16, MAX_ARGUMENTS = JINJA_MAX_ARGUMENTS + 1 /* a call block adds its caller */ };

const jfunction *jfunction_find(const jfunction *table, size_t n, str name) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(name, table[i].name)) {
            return &table[i];
        }
    }
    return NULL;
}

/* The next name of a parameter list, without its "?"; false at the end. */
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
    bool optional, open = false;
    while (next_parameter(&at, &name, &optional)) {
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
        } else if (!take_named(args, used, name, slot)) {
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
    if (n > 0 && !jis(*out, J_STRING)) { /* what is made of a value of the variables is theirs */
        bool measured = jis_number(*out) && jis(bound[0], J_STRING);
        out->is_input =
            out->is_input || bound[0].is_input || (measured && jarena_is_input(&r->arena, bound[0].u.s));
    }
    return QUIRE_OK;
}

/* ---- macros ---- */

/* The value of a parameter that was passed by position or name; false when it was not. */
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

/* Binds varargs, kwargs and caller: the arguments that no parameter took, for macros that
 * use them; an error for others. */
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

/* Calls loop(items) of a recursive loop: the same body over other items. */
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
    case J_METHOD:
        return jcall_function(r, callee.u.method->function, &callee.u.method->self, args, out);
    case J_MACRO:
        return call_macro(r, callee.u.macro, args, out);
    case J_TURNS: { /* a joiner */
        jturns *t = callee.u.turns;
        TRY(t->joins ? QUIRE_OK : jrun_fail(r, QUIRE_BAD_REQUEST, "'Cycler' object is not callable"));
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

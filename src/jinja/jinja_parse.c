/* Parses statements. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "jinja/jinja_ast.h"

static quire_err parse_body(jparser *p, const char *const *ends, size_t n_ends, const char *opened,
                            jnode **out);
static quire_err parse_block(jparser *p, const char *end, jnode **out);

quire_err jparse_fail(jparser *p, quire_err code, const char *format, ...) {
    assert(p != NULL);
    if (p->at->kind == T_FAULT) {
        return p->err->code;
    }
    char message[sizeof p->err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return jinja_error(p->err, code, p->at->line, p->at->column, "%s", message);
}

void jparse_note(jparser *p, quire_error *first, const char *format, ...) {
    assert(p != NULL && first != NULL);
    if (first->code != QUIRE_OK) {
        return;
    }
    char message[sizeof first->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    jinja_error(first, QUIRE_INVALID, p->at->line, p->at->column, "%s", message);
}

quire_err jparse_check_memory(jparser *parser, const void *p) {
    return p != NULL ? QUIRE_OK : jparse_fail(parser, QUIRE_NO_MEMORY, "out of memory");
}

quire_err jparse_enter(jparser *p) {
    assert(p != NULL);
    return ++p->depth > JINJA_MAX_NESTING
               ? jparse_fail(p, QUIRE_TOO_LARGE, "nested more than %d deep", JINJA_MAX_NESTING)
               : QUIRE_OK;
}

quire_err jparse_node(jparser *p, jnode_kind kind, const jtoken *at, jnode **out) {
    assert(p != NULL);
    jnode *node = jarena_new(p->arena, sizeof *node);
    TRY(jparse_check_memory(p, node));
    node->kind = (uint8_t)kind;
    node->line = at->line;
    node->column = at->column;
    *out = node;
    return QUIRE_OK;
}

quire_err jparse_add(jparser *p, jnodes *list, jnode *node) {
    assert(p != NULL && list != NULL);
    if (!jarena_grow(p->arena, &list->p, &list->cap, list->n, sizeof(jnode *))) {
        return jparse_fail(p, QUIRE_NO_MEMORY, "out of memory");
    }
    list->p[list->n++] = node;
    return QUIRE_OK;
}

quire_err jparse_make_tuple(jparser *p, const jtoken *start, bool comma, const jnodes *items, jnode **out) {
    if (!comma) {
        *out = items->p[0];
        return QUIRE_OK;
    }
    TRY(jparse_node(p, N_TUPLE, start, out));
    jnode_set_items(*out, items);
    return QUIRE_OK;
}

bool jparse_is_op(const jparser *p, const char *op) {
    assert(p != NULL);
    return p->at->kind == T_OPERATOR && str_is(p->at->text, op);
}

bool jparse_is_name(const jparser *p, const char *name) {
    assert(p != NULL);
    return p->at->kind == T_NAME && str_is(p->at->text, name);
}

bool jparse_skip_op(jparser *p, const char *op) {
    assert(p != NULL);
    bool is = jparse_is_op(p, op);
    p->at += is;
    return is;
}

bool jparse_skip_name(jparser *p, const char *name) {
    assert(p != NULL);
    bool is = jparse_is_name(p, name);
    p->at += is;
    return is;
}

/* Describes the next token for an error message. */
static const char *next_in_words(const jparser *p, char buf[48]) {
    switch (p->at->kind) {
    case T_PRINT_END:
        return "end of print statement";
    case T_BLOCK_END:
        return "end of statement block";
    case T_END:
        return "end of template";
    case T_STRING:
        return "string";
    case T_INT:
        return "integer";
    case T_FLOAT:
        return "float";
    default:
        snprintf(buf, 48, "%.*s", (int)(p->at->text.n > 40 ? 40 : p->at->text.n), p->at->text.p);
        return buf;
    }
}

static quire_err jinja_parse_expected(jparser *p, const char *what) {
    char buf[48];
    return jparse_fail(p, QUIRE_INVALID, "expected token '%s', got '%s'", what, next_in_words(p, buf));
}

quire_err jparse_expect_op(jparser *p, const char *op) {
    return jparse_skip_op(p, op) ? QUIRE_OK : jinja_parse_expected(p, op);
}

/* Skips a token of this kind; `what` describes it in the error. */
static quire_err expect_kind(jparser *p, jtoken_kind kind, const char *what) {
    if (p->at->kind != kind) {
        return jinja_parse_expected(p, what);
    }
    p->at++;
    return QUIRE_OK;
}

quire_err jparse_expect_name(jparser *p, str *name) {
    assert(p != NULL);
    *name = p->at->text;
    return expect_kind(p, T_NAME, "name");
}

static quire_err expect_block_end(jparser *p) {
    return expect_kind(p, T_BLOCK_END, "end of statement block");
}

/* ---- targets ---- */

static quire_err check_target(jparser *p, const jnode *target) {
    if (target->kind == N_NAME) {
        return QUIRE_OK;
    }
    if (target->kind != N_TUPLE) {
        return jparse_fail(p, QUIRE_INVALID, "can't assign to %s",
                           target->kind == N_CONST ? "'const'" : "an expression");
    }
    for (size_t i = 0; i < target->n; i++) {
        TRY(check_target(p, target->items[i]));
    }
    return QUIRE_OK;
}

/* Parses a name, names in parentheses or, if with_member, a member of a namespace. */
static quire_err parse_target_item(jparser *p, bool with_member, jnode **out) {
    const jtoken *start = p->at;
    jnode *item;
    TRY(jparse_primary(p, &item));
    if (!with_member || item->kind != N_NAME || !jparse_skip_op(p, ".")) {
        *out = item;
        return check_target(p, item);
    }
    TRY(jparse_node(p, N_MEMBER, start, out));
    (*out)->a = item;
    return jparse_expect_name(p, &(*out)->name);
}

/* Parses the target of a loop, set or with: one item, or several as a tuple. */
static quire_err parse_target(jparser *p, bool with_member, jnode **out) {
    jnodes items = {0};
    const jtoken *start = p->at;
    bool comma = false;
    do {
        if (comma && jparse_ends_tuple(p)) {
            break;
        }
        jnode *item;
        TRY(parse_target_item(p, with_member, &item));
        TRY(jparse_add(p, &items, item));
        comma = comma || jparse_is_op(p, ",");
    } while (jparse_skip_op(p, ","));
    return jparse_make_tuple(p, start, comma, &items, out);
}

/* ---- statements; each parser starts at its tag's name ---- */

static quire_err parse_if(jparser *p, jnode **out) {
    static const char *const ends[] = {"elif", "else", "endif"};
    bool soft = p->soft;
    TRY(jparse_node(p, N_IF, p->at, out));
    p->at++;
    p->soft = true;
    TRY(jparse_enter(p));
    TRY(jparse_tuple(p, false, &(*out)->a));
    TRY(parse_body(p, ends, 3, "if", &(*out)->b));
    if (jparse_is_name(p, "elif")) {
        TRY(parse_if(p, &(*out)->c)); /* its endif also ends this if */
    } else {
        if (jparse_skip_name(p, "else")) {
            TRY(parse_body(p, ends + 2, 1, "if", &(*out)->c));
        }
        p->at++;
    }
    p->depth--;
    p->soft = soft;
    return QUIRE_OK;
}

static bool targets_name(const jnode *target, const char *name) {
    if (target->kind == N_NAME) {
        return str_is(target->name, name);
    }
    for (size_t i = 0; i < target->n; i++) {
        if (targets_name(target->items[i], name)) {
            return true;
        }
    }
    return false;
}

/* The name `loop` is reserved in a for loop. */
static void check_loop_target(jparser *p, const jnode *target) {
    if (p->fors > 0 && targets_name(target, "loop")) {
        jparse_note(p, &p->unknown, "Can't assign to special loop variable in for-loop target");
    }
}

static quire_err parse_for(jparser *p, jnode **out) {
    static const char *const ends[] = {"endfor", "else"};
    bool soft = p->soft;
    TRY(jparse_node(p, N_FOR, p->at, out));
    p->at++;
    TRY(parse_target(p, false, &(*out)->a));
    p->fors++;
    check_loop_target(p, (*out)->a);
    if (!jparse_skip_name(p, "in")) {
        return jinja_parse_expected(p, "in");
    }
    TRY(jparse_tuple(p, false, &(*out)->b));
    p->soft = false;
    if (jparse_skip_name(p, "if")) {
        TRY(jparse_expression(p, true, &(*out)->c));
    }
    (*out)->recursive = jparse_skip_name(p, "recursive");
    p->loops++;
    TRY(parse_body(p, ends, 2, "for", &(*out)->body));
    p->loops--;
    if (jparse_skip_name(p, "else")) {
        TRY(parse_body(p, ends, 1, "for", &(*out)->otherwise));
    }
    p->fors--;
    p->at++;
    p->soft = soft;
    return QUIRE_OK;
}

/* Parses the filters of a block. An unknown one is an error, even in a branch. */
static quire_err parse_block_filters(jparser *p, jnode **out) {
    bool soft = p->soft;
    p->soft = false;
    TRY(jparse_filter_chain(p, out));
    p->soft = soft;
    return QUIRE_OK;
}

static quire_err parse_set(jparser *p, jnode **out) {
    const jtoken *start = p->at;
    jnode *target;
    p->at++;
    TRY(parse_target(p, true, &target));
    check_loop_target(p, target);
    bool assigns = jparse_skip_op(p, "=");
    TRY(jparse_node(p, assigns ? N_SET : N_SET_BLOCK, start, out));
    (*out)->a = target;
    if (assigns) {
        return jparse_tuple(p, true, &(*out)->b);
    }
    if (jparse_skip_op(p, "|")) {
        TRY(parse_block_filters(p, &(*out)->b));
    }
    return parse_block(p, "endset", &(*out)->body);
}

/* Parses the parameters (a, b=1) of a macro or call block. */
static quire_err parse_parameters(jparser *p, jnode *macro) {
    jnodes names = {0}, defaults = {0};
    TRY(jparse_expect_op(p, "("));
    while (!jparse_is_op(p, ")")) {
        if (names.n > 0) {
            TRY(jparse_expect_op(p, ","));
        }
        jnode *name;
        TRY(jparse_primary(p, &name));
        if (name->kind != N_NAME) {
            return jparse_fail(p, QUIRE_INVALID, "a parameter must be a name");
        }
        for (size_t i = 0; i < names.n; i++) {
            if (str_eq(names.p[i]->name, name->name)) {
                return jparse_fail(p, QUIRE_INVALID, "duplicate argument '%.*s'", (int)name->name.n,
                                   name->name.p);
            }
        }
        TRY(jparse_add(p, &names, name));
        if (jparse_skip_op(p, "=")) {
            TRY(jparse_add_expression(p, &defaults));
        } else if (defaults.n > 0) {
            return jparse_fail(p, QUIRE_INVALID, "non-default argument follows default argument");
        }
    }
    jnode_set_items(macro, &names);
    macro->more = defaults.p;
    macro->n_more = defaults.n;
    return jparse_expect_op(p, ")");
}

/* Whether one of the first n parameters has this name. */
static bool macro_has(const jnode *macro, const char *name, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(macro->items[i]->name, name)) {
            return true;
        }
    }
    return false;
}

/* Parses the parameters and body of a macro or call block. */
static quire_err parse_macro_rest(jparser *p, bool parameters, const char *end, jnode *call, jnode *macro) {
    jnames_used used = {.outer = p->macros};
    bool soft = p->soft;
    int loops = p->loops;
    p->soft = false;
    p->loops = 0;
    if (parameters) {
        TRY(parse_parameters(p, macro));
    }
    p->soft = soft;
    if (call != NULL) { /* {% call(parameters) callee(arguments) %} */
        TRY(jparse_expression(p, true, &call->a));
        if (call->a->kind != N_CALL) {
            return jparse_fail(p, QUIRE_INVALID, "expected call");
        }
    }
    p->macros = &used;
    TRY(parse_block(p, end, &macro->body));
    p->macros = used.outer;
    p->loops = loops;
    macro->uses_varargs = used.varargs && !macro_has(macro, "varargs", macro->n);
    macro->uses_kwargs = used.kwargs && !macro_has(macro, "kwargs", macro->n);
    macro->uses_caller = used.caller && !macro_has(macro, "caller", macro->n);
    if (used.caller && macro_has(macro, "caller", macro->n - macro->n_more)) {
        jparse_note(p, &p->unknown,
                    "When defining macros or call blocks the special \"caller\" argument must be omitted or "
                    "be given a default.");
    }
    return QUIRE_OK;
}

static quire_err parse_macro(jparser *p, jnode **out) {
    TRY(jparse_node(p, N_MACRO, p->at, out));
    p->at++;
    TRY(jparse_expect_name(p, &(*out)->name));
    return parse_macro_rest(p, true, "endmacro", NULL, *out);
}

static quire_err parse_call_block(jparser *p, jnode **out) {
    const jtoken *start = p->at;
    jnode *caller = NULL;
    TRY(jparse_node(p, N_CALL_BLOCK, start, out));
    TRY(jparse_node(p, N_MACRO, start, &caller));
    caller->name = str_of("caller");
    (*out)->b = caller;
    p->at++;
    return parse_macro_rest(p, jparse_is_op(p, "("), "endcall", *out, caller);
}

static quire_err parse_filter_block(jparser *p, jnode **out) {
    TRY(jparse_node(p, N_FILTER_BLOCK, p->at, out));
    p->at++;
    TRY(parse_block_filters(p, &(*out)->a));
    return parse_block(p, "endfilter", &(*out)->body);
}

static quire_err parse_with(jparser *p, jnode **out) {
    jnodes targets = {0}, values = {0};
    TRY(jparse_node(p, N_WITH, p->at, out));
    p->at++;
    while (p->at->kind != T_BLOCK_END) {
        jnode *target;
        if (targets.n > 0) {
            TRY(jparse_expect_op(p, ","));
        }
        TRY(parse_target(p, false, &target));
        TRY(jparse_expect_op(p, "="));
        TRY(jparse_add(p, &targets, target));
        TRY(jparse_add_expression(p, &values));
    }
    jnode_set_items(*out, &targets);
    (*out)->more = values.p;
    (*out)->n_more = values.n;
    return parse_block(p, "endwith", &(*out)->body);
}

/* Parses {% generation %}, which marks a model's output, and renders its body. To Jinja
 * it is a macro. */
static quire_err parse_generation(jparser *p, jnode **out) {
    int loops = p->loops;
    TRY(jparse_node(p, N_SCOPE, p->at, out));
    p->at++;
    p->loops = 0;
    TRY(parse_block(p, "endgeneration", &(*out)->body));
    p->loops = loops;
    return QUIRE_OK;
}

/* Parses {% block name %} [scoped] [required]. */
static quire_err parse_block_tag(jparser *p, jnode **out) {
    str end;
    TRY(jparse_node(p, N_BLOCK, p->at, out));
    p->at++;
    TRY(jparse_expect_name(p, &(*out)->name));
    (*out)->scoped = jparse_skip_name(p, "scoped");
    (*out)->required = jparse_skip_name(p, "required");
    int loops = p->loops;
    p->loops = 0;
    TRY(parse_block(p, "endblock", &(*out)->body));
    p->loops = loops;
    for (size_t i = 0; i < p->blocks->n; i++) {
        if (str_eq(p->blocks->p[i]->name, (*out)->name)) {
            return jparse_fail(p, QUIRE_INVALID, "block '%.*s' defined twice", (int)(*out)->name.n,
                               (*out)->name.p);
        }
    }
    TRY(jparse_add(p, p->blocks, *out));
    if (p->at->kind == T_NAME) { /* endblock may repeat the name */
        TRY(jparse_expect_name(p, &end));
        return str_eq((*out)->name, end)
                   ? QUIRE_OK
                   : jparse_fail(p, QUIRE_INVALID, "expected token 'end of statement block', got '%.*s'",
                                 (int)end.n, end.p);
    }
    return QUIRE_OK;
}

static quire_err parse_autoescape(jparser *p, jnode **out) {
    bool soft = p->soft;
    TRY(jparse_node(p, N_AUTOESCAPE, p->at, out));
    p->at++;
    p->soft = false;
    TRY(jparse_expression(p, true, &(*out)->a));
    p->soft = soft;
    return parse_block(p, "endautoescape", &(*out)->body);
}

/* ---- other templates ---- */

/* Parses a tag's name and the expression after it. */
static quire_err parse_other(jparser *p, jnode_kind kind, jnode **out) {
    p->uses_others = true;
    TRY(jparse_node(p, kind, p->at, out));
    p->at++;
    return jparse_expression(p, true, &(*out)->a);
}

/* Parses [with context] or [without context]. */
static void parse_context(jparser *p, jnode *node, bool by_default) {
    bool with = jparse_is_name(p, "with"), given = with || jparse_is_name(p, "without");
    given = given && p->at[1].kind == T_NAME && str_is(p->at[1].text, "context");
    node->with_context = given ? with : by_default;
    p->at += given ? 2 : 0;
}

static quire_err parse_extends(jparser *p, jnode **out) {
    return parse_other(p, N_EXTENDS, out);
}

static quire_err parse_include(jparser *p, jnode **out) {
    TRY(parse_other(p, N_INCLUDE, out));
    (*out)->ignores_missing =
        jparse_is_name(p, "ignore") && p->at[1].kind == T_NAME && str_is(p->at[1].text, "missing");
    p->at += (*out)->ignores_missing ? 2 : 0;
    parse_context(p, *out, true);
    return QUIRE_OK;
}

static quire_err jinja_parse_import(jparser *p, jnode **out) {
    TRY(parse_other(p, N_IMPORT, out));
    if (!jparse_skip_name(p, "as")) {
        TRY(jinja_parse_expected(p, "as"));
    }
    TRY(jparse_expect_name(p, &(*out)->name));
    parse_context(p, *out, false);
    return QUIRE_OK;
}

static quire_err parse_from(jparser *p, jnode **out) {
    jnodes targets = {0};
    str names[JINJA_MAX_ARGUMENTS];
    TRY(parse_other(p, N_FROM, out));
    if (!jparse_skip_name(p, "import")) {
        TRY(jinja_parse_expected(p, "import"));
    }
    do {
        jnode *target;
        if (targets.n > 0 && p->at->kind != T_NAME) {
            break; /* after the last comma */
        }
        if (targets.n == JINJA_MAX_ARGUMENTS) {
            TRY(jparse_fail(p, QUIRE_TOO_LARGE, "too many names"));
        }
        TRY(jparse_node(p, N_NAME, p->at, &target));
        TRY(jparse_expect_name(p, &names[targets.n]));
        target->name = names[targets.n];
        if (target->name.p[0] == '_') {
            return jparse_fail(p, QUIRE_INVALID, "names starting with an underline can not be imported");
        }
        if (jparse_skip_name(p, "as")) {
            TRY(jparse_expect_name(p, &target->name));
        }
        TRY(jparse_add(p, &targets, target));
        parse_context(p, *out, false);
    } while (jparse_skip_op(p, ","));
    jnode_set_items(*out, &targets);
    (*out)->names = jarena_new(p->arena, targets.n * sizeof *names);
    TRY(jparse_check_memory(p, (*out)->names));
    memcpy((*out)->names, names, targets.n * sizeof *names);
    return QUIRE_OK;
}

/* Whether Jinja evaluates an expression at compile time: it has no names, no calls, and
 * no filters that read the context. levels: limit of its depth; no render evaluates a
 * deeper one. */
static bool jinja_parse_is_constant(const jnode *node, int levels) {
    static const char *const see[] = {"map", "select", "reject", "selectattr", "rejectattr", "random"};
    if (node == NULL) {
        return true;
    }
    bool all = levels > 0 && node->kind != N_NAME && node->kind != N_CALL &&
               !(node->kind == N_FILTER && jname_in(node->name, see, sizeof see / sizeof see[0])) &&
               jinja_parse_is_constant(node->a, levels - 1) && jinja_parse_is_constant(node->b, levels - 1) &&
               jinja_parse_is_constant(node->c, levels - 1);
    for (size_t i = 0; i < node->n && all; i++) {
        all = jinja_parse_is_constant(node->items[i], levels - 1);
    }
    return all;
}

static quire_err parse_print(jparser *p, const jtoken *at, jnode **out) {
    TRY(jparse_node(p, N_PRINT, at, out));
    p->at++;
    TRY(jparse_tuple(p, true, &(*out)->a));
    (*out)->folds = jinja_parse_is_constant((*out)->a, JINJA_MAX_DEPTH);
    return QUIRE_OK;
}

/* Parses {% print a, b %}, which prints each value. */
static quire_err parse_print_tag(jparser *p, jnode **out) {
    jnodes prints = {0};
    TRY(jparse_node(p, N_BODY, p->at, out));
    p->at++;
    while (p->at->kind != T_BLOCK_END) {
        jnode *print;
        if (prints.n > 0) {
            TRY(jparse_expect_op(p, ","));
        }
        TRY(jparse_node(p, N_PRINT, p->at, &print));
        TRY(jparse_expression(p, true, &print->a));
        print->folds = jinja_parse_is_constant(print->a, JINJA_MAX_DEPTH);
        TRY(jparse_add(p, &prints, print));
    }
    jnode_set_items(*out, &prints);
    return QUIRE_OK;
}

static quire_err parse_jump(jparser *p, jnode **out) {
    if (p->loops == 0) {
        jparse_note(p, &p->stray, "'%.*s' outside loop", (int)p->at->text.n, p->at->text.p);
    }
    TRY(jparse_node(p, jparse_is_name(p, "break") ? N_BREAK : N_CONTINUE, p->at, out));
    p->at++;
    return QUIRE_OK;
}

static quire_err parse_statement(jparser *p, jnode **out) {
    static const struct {
        const char *name;
        quire_err (*parse)(jparser *p, jnode **out);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
        {"break", parse_jump},
        {"continue", parse_jump},
        {"block", parse_block_tag},
        {"autoescape", parse_autoescape},
        {"extends", parse_extends},
        {"include", parse_include},
        {"import", jinja_parse_import},
        {"from", parse_from},
        {"print", parse_print_tag},
    };
    if (p->at->kind != T_NAME) {
        return jparse_fail(p, QUIRE_INVALID, "tag name expected");
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (jparse_is_name(p, statements[i].name)) {
            return statements[i].parse(p, out);
        }
    }
    return jparse_fail(p, QUIRE_INVALID, "Encountered unknown tag '%.*s'", (int)p->at->text.n, p->at->text.p);
}

/* Parses text, prints and statements up to a tag in `ends`. Then p is at that tag's name
 * (if the tag continues the statement) or, for its last tag, at the token before the
 * block's end. */
static quire_err parse_items(jparser *p, const char *const *ends, size_t n_ends, const char *opened,
                             jnodes *items) {
    for (;;) {
        const jtoken *start = p->at;
        jnode *node;
        switch (p->at->kind) {
        case T_END:
            return opened == NULL
                       ? QUIRE_OK
                       : jparse_fail(p, QUIRE_INVALID,
                                     "Unexpected end of template: '%s' is not closed, '%s' is missing",
                                     opened, ends[n_ends - 1]);
        case T_FAULT:
            return p->err->code;
        case T_DATA:
            TRY(jparse_node(p, N_DATA, start, &node));
            node->name = p->at->text;
            p->at++;
            break;
        case T_PRINT_BEGIN:
            TRY(parse_print(p, start, &node));
            TRY(expect_kind(p, T_PRINT_END, "end of print statement"));
            break;
        default:
            p->at++; /* a T_BLOCK_BEGIN; no other token is possible here */
            if (p->at->kind == T_NAME && jname_in(p->at->text, ends, n_ends)) {
                return QUIRE_OK;
            }
            TRY(parse_statement(p, &node));
            TRY(expect_block_end(p));
            break;
        }
        TRY(jparse_add(p, items, node));
    }
}

/* Parses the rest of a tag, then its body up to a tag in `ends`. */
static quire_err parse_body(jparser *p, const char *const *ends, size_t n_ends, const char *opened,
                            jnode **out) {
    jnodes items = {0};
    jparse_skip_op(p, ":"); /* Jinja allows a colon here */
    TRY(expect_block_end(p));
    TRY(jparse_node(p, N_BODY, p->at, out));
    TRY(jparse_enter(p));
    TRY(parse_items(p, ends, n_ends, opened, &items));
    p->depth--;
    jnode_set_items(*out, &items);
    return QUIRE_OK;
}

/* Parses a body that ends with the tag `end` plus the opening tag's name. An unknown
 * filter or test in it is an error, even if the block is in a branch. */
static quire_err parse_block(jparser *p, const char *end, jnode **out) {
    bool soft = p->soft;
    p->soft = false;
    TRY(parse_body(p, &end, 1, end + strlen("end"), out));
    p->soft = soft;
    p->at++;
    return QUIRE_OK;
}

quire_err jinja_parse(const jtoken *tokens, jinja_program *program, quire_error *err) {
    jnodes items = {0}, blocks = {0};
    jparser p = {.at = tokens, .arena = &program->arena, .err = err, .blocks = &blocks};
    TRY(jparse_node(&p, N_BODY, p.at, &program->root));
    TRY(parse_items(&p, NULL, 0, NULL, &items));
    if (p.unknown.code != QUIRE_OK || p.stray.code != QUIRE_OK) {
        *err = p.unknown.code != QUIRE_OK ? p.unknown : p.stray;
        return err->code;
    }
    jnode_set_items(program->root, &items);
    program->blocks = blocks.p;
    program->n_blocks = blocks.n;
    program->uses_others = p.uses_others;
    return QUIRE_OK;
}

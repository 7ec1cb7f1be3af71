/* Parses expressions, by increasing precedence: x if y else z, or, and, not, comparisons,
 * + -, ~, * / // %, **, unary operators; then postfixes (members, items, calls), filters
 * and tests. */
#include "jinja/jinja_ast.h"

#include "jinja/jinja_run.h"
#include <assert.h>

static quire_err jinja_expr_parse_unary(jparser *p, bool with_filter, jnode **out);

/* ---- building nodes ---- */

/* Makes node higher than child, which may be NULL. */
static quire_err count_height(jparser *p, jnode *node, const jnode *child) {
    uint16_t height = child == NULL ? 0 : (uint16_t)(child->height + 1);
    node->height = height > node->height ? height : node->height;
    return node->height > JINJA_MAX_CHAIN
               ? jparse_fail(p, QUIRE_TOO_LARGE, "a chain of more than %d operators", JINJA_MAX_CHAIN)
               : QUIRE_OK;
}

/* Sets node's left child, which may be NULL. */
static quire_err put_left(jparser *p, jnode *node, jnode *left) {
    node->a = left;
    return count_height(p, node, left);
}

/* Makes a node for `left OP right`, which begins where left does. */
static quire_err jinja_expr_binary(jparser *p, jnode_kind kind, jnode *left, jnode *right, jnode **out) {
    jnode *node;
    TRY(jparse_node(p, kind, p->at, &node));
    node->line = left->line;
    node->column = left->column;
    node->b = right;
    *out = node;
    return put_left(p, node, left);
}

/* Records an error if one of the n names before is the same. */
static void note_given_twice(jparser *p, str name, const str *names, size_t n) {
    for (size_t i = 0; i < n && name.n > 0; i++) {
        if (str_eq(name, names[i])) {
            jparse_note(p, &p->stray, "keyword argument repeated: %.*s", (int)name.n, name.p);
        }
    }
}

static quire_err call_arguments(jparser *p, jnode *call) {
    jnodes args = {0};
    str names[JINJA_MAX_ARGUMENTS];
    bool has_list = false, has_map = false, has_named = false; /* seen so far: *, ** and name= arguments */
    TRY(jparse_expect_op(p, "("));
    while (!jparse_is_op(p, ")")) {
        if (args.n > 0) {
            TRY(jparse_expect_op(p, ","));
            if (jparse_is_op(p, ")")) {
                break;
            }
        }
        str name = {0};
        bool is_list = jparse_is_op(p, "*"), is_map = jparse_is_op(p, "**");
        bool is_named = p->at->kind == T_NAME && p->at[1].kind == T_OPERATOR && str_is(p->at[1].text, "=");
        if (has_map || (has_list && !is_map && !is_named) ||
            (has_named && !is_list && !is_map && !is_named)) {
            return jparse_fail(p, QUIRE_INVALID, "invalid syntax for function call expression");
        }
        if (is_list || is_map || is_named) {
            name = p->at->text; /* may be a keyword */
            p->at += is_named ? 2 : 1;
        }
        call->unpacks = call->unpacks || is_list || is_map;
        has_list = has_list || is_list;
        has_map = has_map || is_map;
        has_named = has_named || is_named;
        note_given_twice(p, name, names, args.n);
        if (args.n == JINJA_MAX_ARGUMENTS) {
            return jparse_fail(p, QUIRE_TOO_LARGE, "too many arguments");
        }
        names[args.n] = name;
        TRY(jparse_add_expression(p, &args));
    }
    TRY(jparse_expect_op(p, ")"));
    jnode_set_items(call, &args);
    call->names = jarena_new(p->arena, (args.n + 1) * sizeof *call->names);
    TRY(jparse_check_memory(p, call->names));
    memcpy(call->names, names, args.n * sizeof *names);
    return QUIRE_OK;
}

/* ---- primaries ---- */

static quire_err constant(jparser *p, jvalue value, jnode **out) {
    TRY(jparse_node(p, N_CONST, p->at, out));
    (*out)->value = value;
    p->at++;
    return QUIRE_OK;
}

static void note_macro_name(jparser *p, str name) {
    for (jnames_used *m = p->macros; m != NULL; m = m->outer) {
        m->varargs |= str_is(name, "varargs");
        m->kwargs |= str_is(name, "kwargs");
        m->caller |= str_is(name, "caller");
    }
}

static quire_err jinja_expr_parse_name(jparser *p, jnode **out) {
    str name = p->at->text;
    if (str_is(name, "true") || str_is(name, "True")) {
        return constant(p, jbool(true), out);
    }
    if (str_is(name, "false") || str_is(name, "False")) {
        return constant(p, jbool(false), out);
    }
    if (str_is(name, "none") || str_is(name, "None")) {
        return constant(p, jnone(), out);
    }
    note_macro_name(p, name);
    TRY(jparse_node(p, N_NAME, p->at, out));
    (*out)->name = name;
    p->at++;
    return QUIRE_OK;
}

/* Parses a string; adjacent strings are joined. */
static quire_err jinja_expr_parse_string(jparser *p, jnode **out) {
    str text = {0};
    const jtoken *first = p->at;
    for (; p->at->kind == T_STRING; p->at++) {
        if (!jarena_append(p->arena, text, p->at->text, &text)) {
            return jparse_fail(p, QUIRE_NO_MEMORY, "out of memory");
        }
    }
    TRY(jparse_node(p, N_CONST, first, out));
    (*out)->value = jstring(text);
    return QUIRE_OK;
}

/* Parses [a, b] or {a: b, c: d}, perhaps with a comma at the end. */
static quire_err parse_display(jparser *p, jnode_kind kind, jnode **out) {
    const char *close = kind == N_DICT ? "}" : "]";
    jnodes items = {0};
    TRY(jparse_node(p, kind, p->at, out));
    p->at++;
    while (!jparse_is_op(p, close)) {
        if (items.n > 0) {
            TRY(jparse_expect_op(p, ","));
            if (jparse_is_op(p, close)) {
                break;
            }
        }
        TRY(jparse_add_expression(p, &items));
        if (kind == N_DICT) {
            TRY(jparse_expect_op(p, ":"));
            TRY(jparse_add_expression(p, &items));
        }
    }
    jnode_set_items(*out, &items);
    return jparse_expect_op(p, close);
}

static quire_err jinja_expr_parse_group(jparser *p, jnode **out) {
    const jtoken *open = p->at;
    TRY(jparse_expect_op(p, "("));
    if (jparse_skip_op(p, ")")) {
        return jparse_node(p, N_TUPLE, open, out);
    }
    TRY(jparse_tuple(p, true, out));
    return jparse_expect_op(p, ")");
}

quire_err jparse_primary(jparser *p, jnode **out) {
    assert(p != NULL);
    switch (p->at->kind) {
    case T_NAME:
        return jinja_expr_parse_name(p, out);
    case T_STRING:
        return jinja_expr_parse_string(p, out);
    case T_INT:
    case T_FLOAT:
        return constant(p, p->at->value, out);
    case T_OPERATOR:
        if (jparse_is_op(p, "(")) {
            return jinja_expr_parse_group(p, out);
        }
        if (jparse_is_op(p, "[")) {
            return parse_display(p, N_LIST, out);
        }
        if (jparse_is_op(p, "{")) {
            return parse_display(p, N_DICT, out);
        }
        return jparse_fail(p, QUIRE_INVALID, "unexpected '%.*s'", (int)p->at->text.n, p->at->text.p);
    default:
        return jparse_fail(p, QUIRE_INVALID, "expected an expression");
    }
}

/* ---- postfixes ---- */

static quire_err parse_member(jparser *p, jnode *object, jnode **out) {
    p->at++;
    if (p->at->kind == T_NAME) {
        TRY(jinja_expr_binary(p, N_MEMBER, object, NULL, out));
        (*out)->name = p->at->text;
        p->at++;
        return QUIRE_OK;
    }
    if (p->at->kind == T_INT) {
        jnode *index;
        TRY(constant(p, p->at->value, &index));
        return jinja_expr_binary(p, N_ITEM, object, index, out);
    }
    return jparse_fail(p, QUIRE_INVALID, "expected name or number");
}

/* Parses one subscript: an expression or a slice. */
static quire_err parse_subscript(jparser *p, jnode **out) {
    const jtoken *start = p->at;
    jnode *parts[3] = {NULL, NULL, NULL};
    int n = 0;
    for (; n < 3; n++) {
        if (!jparse_is_op(p, ":") && !jparse_is_op(p, "]") && !jparse_is_op(p, ",")) {
            TRY(jparse_expression(p, true, &parts[n]));
        }
        if (n == 2 || !jparse_skip_op(p, ":")) {
            break;
        }
    }
    if (n == 0) {
        *out = parts[0];
        return parts[0] != NULL ? QUIRE_OK : jparse_fail(p, QUIRE_INVALID, "expected a subscript");
    }
    jnodes items = {0};
    TRY(jparse_node(p, N_SLICE, start, out));
    for (int i = 0; i < 3; i++) {
        TRY(jparse_add(p, &items, parts[i]));
    }
    jnode_set_items(*out, &items);
    return QUIRE_OK;
}

static quire_err parse_item(jparser *p, jnode *object, jnode **out) {
    jnode *index;
    jnodes items = {0};
    const jtoken *start = p->at++;
    while (!jparse_is_op(p, "]")) {
        if (items.n > 0) {
            TRY(jparse_expect_op(p, ","));
        }
        TRY(parse_subscript(p, &index));
        if (index->kind == N_SLICE && (items.n > 0 || jparse_is_op(p, ","))) {
            return jparse_fail(p, QUIRE_UNSUPPORTED, "slices among several subscripts are not supported");
        }
        TRY(jparse_add(p, &items, index));
    }
    p->at++;
    TRY(jparse_make_tuple(p, start, items.n != 1, &items, &index));
    return jinja_expr_binary(p, N_ITEM, object, index, out);
}

static quire_err jinja_expr_parse_call(jparser *p, jnode *callee, jnode **out) {
    TRY(jinja_expr_binary(p, N_CALL, callee, NULL, out));
    return call_arguments(p, *out);
}

static quire_err parse_postfix(jparser *p, jnode **node) {
    for (;;) {
        if (jparse_is_op(p, ".")) {
            TRY(parse_member(p, *node, node));
        } else if (jparse_is_op(p, "[")) {
            TRY(parse_item(p, *node, node));
        } else if (jparse_is_op(p, "(")) {
            TRY(jinja_expr_parse_call(p, *node, node));
        } else {
            return QUIRE_OK;
        }
    }
}

/* ---- filters and tests ---- */

/* Resolves a filter or test. An unknown name is an error at the time when Jinja reports
 * it. */
static void jinja_expr_resolve(jparser *p, jnode *node, bool test) {
    node->function = test ? jinja_find_test(node->name) : jinja_find_filter(node->name);
    if (node->function != NULL) {
        return;
    }
    if (!p->soft) {
        jparse_note(p, &p->unknown, "No %s named '%.*s'", test ? "test" : "filter", (int)node->name.n,
                    node->name.p);
    }
}

/* Parses the name of a filter or test, which may have dots. */
static quire_err parse_dotted_name(jparser *p, str *name) {
    TRY(jparse_expect_name(p, name));
    while (jparse_skip_op(p, ".")) {
        str part;
        TRY(jparse_expect_name(p, &part));
        if (!jarena_append(p->arena, *name, str_of("."), name) ||
            !jarena_append(p->arena, *name, part, name)) {
            return jparse_fail(p, QUIRE_NO_MEMORY, "out of memory");
        }
    }
    return QUIRE_OK;
}

static quire_err parse_filter(jparser *p, jnode *input, jnode **out) {
    TRY(jparse_node(p, N_FILTER, p->at, out));
    TRY(put_left(p, *out, input));
    TRY(parse_dotted_name(p, &(*out)->name));
    jinja_expr_resolve(p, *out, false);
    return jparse_is_op(p, "(") ? call_arguments(p, *out) : QUIRE_OK;
}

static bool starts_test_argument(const jparser *p) {
    switch (p->at->kind) {
    case T_STRING:
    case T_INT:
    case T_FLOAT:
        return true;
    case T_NAME:
        return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") && !jparse_is_name(p, "and");
    case T_OPERATOR:
        return jparse_is_op(p, "(") || jparse_is_op(p, "[") || jparse_is_op(p, "{");
    default:
        return false;
    }
}

static quire_err parse_test(jparser *p, jnode *input, jnode **out) {
    p->at++;
    bool negated = jparse_skip_name(p, "not");
    jnode *test;
    TRY(jparse_node(p, N_TEST, p->at, &test));
    TRY(put_left(p, test, input));
    TRY(parse_dotted_name(p, &test->name));
    jinja_expr_resolve(p, test, true);
    if (jparse_is_op(p, "(")) {
        TRY(call_arguments(p, test));
    } else if (starts_test_argument(p)) {
        if (jparse_is_name(p, "is")) {
            return jparse_fail(p, QUIRE_INVALID, "You cannot chain multiple tests with is");
        }
        jnode *argument;
        jnodes args = {0};
        TRY(jparse_primary(p, &argument));
        TRY(parse_postfix(p, &argument));
        TRY(jparse_add(p, &args, argument));
        test->items = args.p;
        test->n = 1;
        test->names = jarena_new(p->arena, sizeof *test->names);
        TRY(jparse_check_memory(p, test->names));
    }
    *out = test;
    return negated ? jinja_expr_binary(p, N_NOT, test, NULL, out) : QUIRE_OK;
}

static quire_err parse_filters(jparser *p, jnode **node) {
    for (;;) {
        if (jparse_skip_op(p, "|")) {
            TRY(parse_filter(p, *node, node));
        } else if (jparse_is_name(p, "is")) {
            TRY(parse_test(p, *node, node));
        } else if (jparse_is_op(p, "(")) {
            TRY(jinja_expr_parse_call(p, *node, node));
        } else {
            return QUIRE_OK;
        }
    }
}

quire_err jparse_filter_chain(jparser *p, jnode **out) {
    TRY(parse_filter(p, NULL, out));
    while (jparse_skip_op(p, "|")) {
        TRY(parse_filter(p, *out, out));
    }
    return QUIRE_OK;
}

/* ---- operators ---- */

static quire_err parse_sign(jparser *p, jnode **out) {
    const jtoken *sign = p->at;
    jnode *operand;
    p->at++;
    TRY(jparse_enter(p));
    TRY(jinja_expr_parse_unary(p, false, &operand));
    p->depth--;
    TRY(jparse_node(p, str_is(sign->text, "-") ? N_NEGATE : N_PLUS, sign, out));
    (*out)->a = operand;
    return QUIRE_OK;
}

static quire_err jinja_expr_parse_unary(jparser *p, bool with_filter, jnode **out) {
    if (jparse_is_op(p, "-") || jparse_is_op(p, "+")) {
        TRY(parse_sign(p, out));
    } else {
        TRY(jparse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    return with_filter ? parse_filters(p, out) : QUIRE_OK;
}

/* Left-associative operators of one precedence, with the same kind of node and token. */
typedef struct level {
    quire_err (*operand)(jparser *p, jnode **out); /* parses operands, of higher precedence */
    jnode_kind kind;
    jtoken_kind token;
    struct {
        const char *text;
        uint8_t op;
    } operators[5]; /* terminated by a NULL text */
} level;

static quire_err parse_level(jparser *p, const level *l, jnode **out) {
    TRY(l->operand(p, out));
    for (;;) {
        size_t i = 0;
        while (l->operators[i].text != NULL &&
               !(p->at->kind == l->token && str_is(p->at->text, l->operators[i].text))) {
            i++;
        }
        if (l->operators[i].text == NULL) {
            return QUIRE_OK;
        }
        jnode *right;
        p->at++;
        TRY(l->operand(p, &right));
        TRY(jinja_expr_binary(p, l->kind, *out, right, out));
        (*out)->op = l->operators[i].op;
    }
}

static quire_err parse_operand(jparser *p, jnode **out) {
    return jinja_expr_parse_unary(p, true, out);
}

static quire_err parse_power(jparser *p, jnode **out) {
    /* left-associative in Jinja, unlike Python */
    static const level powers = {parse_operand, N_BINARY, T_OPERATOR, {{"**", OP_POW}}};
    return parse_level(p, &powers, out);
}

static quire_err parse_product(jparser *p, jnode **out) {
    static const level products = {parse_power,
                                   N_BINARY,
                                   T_OPERATOR,
                                   {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOOR_DIV}, {"%", OP_MOD}}};
    return parse_level(p, &products, out);
}

static quire_err parse_concat(jparser *p, jnode **out) {
    jnodes items = {0};
    TRY(parse_product(p, out));
    if (!jparse_is_op(p, "~")) {
        return QUIRE_OK;
    }
    TRY(jparse_add(p, &items, *out));
    while (jparse_skip_op(p, "~")) {
        jnode *item;
        TRY(parse_product(p, &item));
        TRY(jparse_add(p, &items, item));
    }
    TRY(jinja_expr_binary(p, N_CONCAT, *out, NULL, out));
    (*out)->a = NULL;
    jnode_set_items(*out, &items);
    return QUIRE_OK;
}

static quire_err parse_sum(jparser *p, jnode **out) {
    static const level sums = {parse_concat, N_BINARY, T_OPERATOR, {{"+", OP_ADD}, {"-", OP_SUB}}};
    return parse_level(p, &sums, out);
}

/* Skips a comparison operator, if that is next. */
static bool skip_comparison(jparser *p, uint8_t *op) {
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="}; /* in the order of jcompare */
    for (*op = CMP_EQ; *op <= CMP_GE; ++*op) {
        if (jparse_skip_op(p, ops[*op - CMP_EQ])) {
            return true;
        }
    }
    if (jparse_skip_name(p, "in")) {
        *op = CMP_IN;
        return true;
    }
    if (jparse_is_name(p, "not") && p->at[1].kind == T_NAME && str_is(p->at[1].text, "in")) {
        *op = CMP_NOT_IN;
        p->at += 2;
        return true;
    }
    return false;
}

static quire_err parse_comparison(jparser *p, jnode **out) {
    jnodes operands = {0};
    uint8_t ops[64];
    TRY(parse_sum(p, out));
    while (operands.n < sizeof ops && skip_comparison(p, &ops[operands.n])) {
        jnode *operand;
        TRY(parse_sum(p, &operand));
        TRY(jparse_add(p, &operands, operand));
    }
    if (operands.n == 0) {
        return QUIRE_OK;
    }
    TRY(jinja_expr_binary(p, N_COMPARE, *out, NULL, out));
    jnode_set_items(*out, &operands);
    (*out)->ops = jarena_new(p->arena, operands.n);
    TRY(jparse_check_memory(p, (*out)->ops));
    memcpy((*out)->ops, ops, operands.n);
    return QUIRE_OK;
}

static quire_err parse_not(jparser *p, jnode **out) {
    const jtoken *start = p->at;
    if (!jparse_skip_name(p, "not")) {
        return parse_comparison(p, out);
    }
    jnode *operand;
    TRY(jparse_enter(p));
    TRY(parse_not(p, &operand));
    p->depth--;
    TRY(jparse_node(p, N_NOT, start, out));
    (*out)->a = operand;
    return QUIRE_OK;
}

static quire_err parse_and(jparser *p, jnode **out) {
    static const level ands = {parse_not, N_AND, T_NAME, {{"and", 0}}};
    return parse_level(p, &ands, out);
}

static quire_err parse_or(jparser *p, jnode **out) {
    static const level ors = {parse_and, N_OR, T_NAME, {{"or", 0}}};
    return parse_level(p, &ors, out);
}

quire_err jparse_expression(jparser *p, bool with_cond, jnode **out) {
    assert(p != NULL);
    bool soft = p->soft, is_known = p->unknown.code == QUIRE_OK;
    TRY(jparse_enter(p));
    TRY(parse_or(p, out));
    while (with_cond && jparse_skip_name(p, "if")) {
        jnode *test, *otherwise = NULL, *value = *out;
        p->soft = true;
        p->unknown.code = is_known ? QUIRE_OK : p->unknown.code; /* the value is in a branch too */
        TRY(parse_or(p, &test));
        if (jparse_skip_name(p, "else")) {
            TRY(jparse_expression(p, true, &otherwise));
        }
        p->soft = soft;
        TRY(jinja_expr_binary(p, N_COND, test, value, out));
        (*out)->c = otherwise;
        TRY(count_height(p, *out, value)); /* `x if a if b` nests to the left */
    }
    p->depth--;
    return QUIRE_OK;
}

quire_err jparse_add_expression(jparser *p, jnodes *list) {
    jnode *node;
    TRY(jparse_expression(p, true, &node));
    return jparse_add(p, list, node);
}

bool jparse_ends_tuple(const jparser *p) {
    assert(p != NULL);
    return p->at->kind == T_PRINT_END || p->at->kind == T_BLOCK_END || jparse_is_op(p, ")");
}

quire_err jparse_tuple(jparser *p, bool with_cond, jnode **out) {
    jnodes items = {0};
    const jtoken *start = p->at;
    bool comma = false;
    for (;;) {
        if (items.n > 0) {
            if (!jparse_skip_op(p, ",")) {
                break;
            }
            comma = true;
        }
        if (jparse_ends_tuple(p)) {
            break;
        }
        jnode *item;
        TRY(jparse_expression(p, with_cond, &item));
        TRY(jparse_add(p, &items, item));
    }
    if (items.n == 0) {
        return jparse_fail(p, QUIRE_INVALID, "expected an expression");
    }
    return jparse_make_tuple(p, start, comma, &items, out);
}

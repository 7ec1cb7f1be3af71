/* Lowers the tree of an expression to a list of operations without registers: common
 * subexpressions are shared and constants folded. */
#include "expr/expr_tree.h"

#include <assert.h>

#include "base/float_bits.h"
#include "core/attn_ops.h"

typedef struct lowering {
    const expr_tree *tree;
    expr_values *values;
    int32_t column; /* column of the current node, for errors */
    quire_error *err;
} lowering;

static bool same(const expr_value *x, const expr_value *y) {
    return x->op == y->op && x->a == y->a && x->b == y->b && x->c == y->c && x->array == y->array &&
           x->integer == y->integer && float_bits(x->number) == float_bits(y->number);
}

/* Adds a value, unless there is an equal one. */
static quire_err expr_values_add(lowering *l, expr_value v, int32_t *out) {
    expr_values *s = l->values;
    for (int32_t i = 0; i < s->n; i++) {
        if (same(&s->at[i], &v)) {
            *out = i;
            return QUIRE_OK;
        }
    }
    if (s->n == EXPR_MAX_VALUES) {
        return expr_error(l->err, l->column, "the expression takes over %d operations", EXPR_MAX_VALUES);
    }
    *out = s->n;
    s->at[s->n++] = v;
    return QUIRE_OK;
}

static quire_err expr_values_add_int(lowering *l, int64_t integer, int32_t *out) {
    return expr_values_add(l,
                           (expr_value){.op = ATTN_INT,
                                        .is_truth = integer == 0 || integer == 1,
                                        .a = EXPR_NONE,
                                        .b = EXPR_NONE,
                                        .c = EXPR_NONE,
                                        .integer = integer},
                           out);
}

static quire_err add_float(lowering *l, float number, int32_t *out) {
    return expr_values_add(l,
                           (expr_value){.op = ATTN_FLOAT,
                                        .is_float = true,
                                        .a = EXPR_NONE,
                                        .b = EXPR_NONE,
                                        .c = EXPR_NONE,
                                        .number = number},
                           out);
}

static const expr_value *value_at(const lowering *l, int32_t v) {
    return &l->values->at[v];
}

static bool expr_values_is_constant(const lowering *l, int32_t v, int64_t integer) {
    return value_at(l, v)->op == ATTN_INT && value_at(l, v)->integer == integer;
}

/* ---- constant folding ---- */

static bool fold_ints(attn_op op, int64_t a, int64_t b, int64_t *out) {
    switch (op) {
    case ATTN_ADD:
        *out = attn_add(a, b);
        return true;
    case ATTN_SUB:
        *out = attn_sub(a, b);
        return true;
    case ATTN_MUL:
        *out = attn_mul(a, b);
        return true;
    case ATTN_DIV:
        *out = attn_div(a, b);
        return true;
    case ATTN_MOD:
        *out = attn_mod(a, b);
        return true;
    case ATTN_AND:
        *out = a & b;
        return true;
    case ATTN_OR:
        *out = a | b;
        return true;
    case ATTN_XOR:
        *out = a ^ b;
        return true;
    case ATTN_SHL:
        *out = attn_shl(a, b);
        return true;
    case ATTN_SHR:
        *out = attn_shr(a, b);
        return true;
    case ATTN_EQ:
        *out = a == b;
        return true;
    case ATTN_NE:
        *out = a != b;
        return true;
    case ATTN_LT:
        *out = a < b;
        return true;
    case ATTN_LE:
        *out = a <= b;
        return true;
    case ATTN_MIN:
        *out = a < b ? a : b;
        return true;
    case ATTN_MAX:
        *out = a > b ? a : b;
        return true;
    case ATTN_ABS:
        *out = attn_abs(a);
        return true;
    default:
        return false;
    }
}

static bool fold_floats(attn_op op, float a, float b, float *out) {
    switch (op) {
    case ATTN_FADD:
        *out = a + b;
        return true;
    case ATTN_FSUB:
        *out = a - b;
        return true;
    case ATTN_FMUL:
        *out = a * b;
        return true;
    case ATTN_FDIV:
        *out = a / b;
        return true;
    default:
        return false;
    }
}

/* Folds an operation on constants. False if it is not folded. */
static bool fold(const lowering *l, const expr_value *v, expr_value *out) {
    const expr_value *a = v->a >= 0 ? value_at(l, v->a) : NULL, *b = v->b >= 0 ? value_at(l, v->b) : a;
    *out = (expr_value){.op = ATTN_INT, .a = EXPR_NONE, .b = EXPR_NONE, .c = EXPR_NONE};
    if (a == NULL || !expr_is_literal(a) || !expr_is_literal(b)) {
        return false;
    }
    if (a->op == ATTN_INT && v->op == ATTN_TO_FLOAT) {
        *out = (expr_value){.op = ATTN_FLOAT,
                            .is_float = true,
                            .a = EXPR_NONE,
                            .b = EXPR_NONE,
                            .c = EXPR_NONE,
                            .number = (float)a->integer};
        return true;
    }
    if (a->op == ATTN_INT) {
        bool folded = fold_ints((attn_op)v->op, a->integer, b->integer, &out->integer);
        out->is_truth = out->integer == 0 || out->integer == 1;
        return folded;
    }
    out->op = ATTN_FLOAT;
    out->is_float = true;
    return fold_floats((attn_op)v->op, a->number, b->number, &out->number);
}

/* ---- operations ---- */

/* Adds an operation with operands a, b, c (or EXPR_NONE). It depends on what its operands
 * depend on; without any dependency it is row code. */
static quire_err operate(lowering *l, attn_op op, int32_t a, int32_t b, int32_t c, int32_t *out) {
    bool compares = op >= ATTN_EQ && op <= ATTN_LE, compares_floats = op >= ATTN_FEQ && op <= ATTN_FLE;
    expr_value v = {.op = (uint8_t)op, .a = a, .b = b, .c = c}, folded;
    v.is_float = (op >= ATTN_FADD && op < N_ATTN_OPS) && !compares_floats;
    v.is_truth = compares || compares_floats ||
                 ((op == ATTN_AND || op == ATTN_OR || op == ATTN_XOR) && value_at(l, a)->is_truth &&
                  value_at(l, b)->is_truth);
    if (fold(l, &v, &folded)) {
        return expr_values_add(l, folded, out);
    }
    const int32_t operands[3] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        v.by |= operands[i] >= 0 ? value_at(l, operands[i])->by : 0;
    }
    v.by = v.by == 0 ? EXPR_BY_ROW : v.by;
    return expr_values_add(l, v, out);
}

static quire_err to_float(lowering *l, int32_t v, int32_t *out) {
    if (value_at(l, v)->is_float) {
        *out = v;
        return QUIRE_OK;
    }
    return operate(l, ATTN_TO_FLOAT, v, EXPR_NONE, EXPR_NONE, out);
}

/* Lowers "v != 0". */
static quire_err to_truth(lowering *l, int32_t v, int32_t *out) {
    int32_t zero;
    if (value_at(l, v)->is_truth) {
        *out = v;
        return QUIRE_OK;
    }
    if (value_at(l, v)->is_float) {
        TRY(add_float(l, 0.0f, &zero));
        return operate(l, ATTN_FNE, v, zero, EXPR_NONE, out);
    }
    TRY(expr_values_add_int(l, 0, &zero));
    return operate(l, ATTN_NE, v, zero, EXPR_NONE, out);
}

/* Lowers "v == 0". */
static quire_err expr_values_negate(lowering *l, int32_t v, int32_t *out) {
    int32_t zero;
    if (value_at(l, v)->is_float) {
        TRY(add_float(l, 0.0f, &zero));
        return operate(l, ATTN_FEQ, v, zero, EXPR_NONE, out);
    }
    TRY(expr_values_add_int(l, 0, &zero));
    return operate(l, ATTN_EQ, v, zero, EXPR_NONE, out);
}

/* Lowers "condition and also"; condition may be EXPR_NONE, which is always true. */
static quire_err both(lowering *l, int32_t condition, int32_t also, int32_t *out) {
    if (condition == EXPR_NONE) {
        *out = also;
        return QUIRE_OK;
    }
    return operate(l, ATTN_AND, condition, also, EXPR_NONE, out);
}

static quire_err expr_values_lower(lowering *l, int32_t node, int32_t condition, int32_t *out);

/* Lowers the children, converted to floats if the node computes in floats. */
static quire_err lower_children(lowering *l, const expr_node *n, bool floats, int32_t condition,
                                int32_t *out) {
    for (int32_t i = 0; i < n->n_children; i++) {
        TRY(expr_values_lower(l, n->child[i], condition, &out[i]));
        if (floats) {
            TRY(to_float(l, out[i], &out[i]));
        }
    }
    return QUIRE_OK;
}

/* Lowers a && b or a || b. b is evaluated only if a does not decide. */
static quire_err lower_logical(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    bool is_and = n->which == EXPR_AND_ALSO;
    int32_t a, b, open;
    TRY(expr_values_lower(l, n->child[0], condition, &a));
    TRY(to_truth(l, a, &a));
    if (value_at(l, a)->op == ATTN_INT && expr_values_is_constant(l, a, !is_and)) {
        *out = a;
        return QUIRE_OK;
    }
    if (value_at(l, a)->op == ATTN_INT) {
        open = condition;
    } else if (is_and) {
        TRY(both(l, condition, a, &open));
    } else {
        TRY(expr_values_negate(l, a, &open));
        TRY(both(l, condition, open, &open));
    }
    TRY(expr_values_lower(l, n->child[1], open, &b));
    TRY(to_truth(l, b, &b));
    if (value_at(l, a)->op == ATTN_INT) {
        *out = b;
        return QUIRE_OK;
    }
    return operate(l, is_and ? ATTN_AND : ATTN_OR, a, b, EXPR_NONE, out);
}

static quire_err lower_choice(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    int32_t chosen, not_chosen, arm[2], open[2];
    TRY(expr_values_lower(l, n->child[0], condition, &chosen));
    TRY(to_truth(l, chosen, &chosen));
    if (value_at(l, chosen)->op == ATTN_INT) {
        TRY(expr_values_lower(l, n->child[expr_values_is_constant(l, chosen, 1) ? 1 : 2], condition, out));
        return n->type == EXPR_FLOAT ? to_float(l, *out, out) : QUIRE_OK;
    }
    TRY(expr_values_negate(l, chosen, &not_chosen));
    TRY(both(l, condition, chosen, &open[0]));
    TRY(both(l, condition, not_chosen, &open[1]));
    for (int i = 0; i < 2; i++) {
        TRY(expr_values_lower(l, n->child[1 + i], open[i], &arm[i]));
        if (n->type == EXPR_FLOAT) {
            TRY(to_float(l, arm[i], &arm[i]));
        }
    }
    return operate(l, n->type == EXPR_FLOAT ? ATTN_FSELECT : ATTN_SELECT, chosen, arm[0], arm[1], out);
}

static quire_err lower_unary(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    int32_t v, zero;
    TRY(expr_values_lower(l, n->child[0], condition, &v));
    switch ((expr_token)n->which) {
    case EXPR_PLUS:
        *out = v;
        return QUIRE_OK;
    case EXPR_NOT:
        return expr_values_negate(l, v, out);
    case EXPR_BIT_NOT:
        TRY(expr_values_add_int(l, -1, &zero));
        return operate(l, ATTN_XOR, v, zero, EXPR_NONE, out);
    default:
        if (value_at(l, v)->is_float) {
            /* a product gives -0 and infinities like C's negation */
            TRY(add_float(l, -1.0f, &zero));
            return operate(l, ATTN_FMUL, v, zero, EXPR_NONE, out);
        }
        TRY(expr_values_add_int(l, 0, &zero));
        return operate(l, ATTN_SUB, zero, v, EXPR_NONE, out);
    }
}

/* The instructions of binary operators, for integers and floats. A swapped one takes its
 * operands in reverse order. */
static const struct {
    uint8_t ints, floats;
    bool swapped;
} binary[N_EXPR_TOKENS] = {[EXPR_BIT_OR] = {ATTN_OR, 0, false},
                           [EXPR_BIT_XOR] = {ATTN_XOR, 0, false},
                           [EXPR_BIT_AND] = {ATTN_AND, 0, false},
                           [EXPR_EQ] = {ATTN_EQ, ATTN_FEQ, false},
                           [EXPR_NE] = {ATTN_NE, ATTN_FNE, false},
                           [EXPR_LT] = {ATTN_LT, ATTN_FLT, false},
                           [EXPR_LE] = {ATTN_LE, ATTN_FLE, false},
                           [EXPR_GT] = {ATTN_LT, ATTN_FLT, true},
                           [EXPR_GE] = {ATTN_LE, ATTN_FLE, true},
                           [EXPR_SHL] = {ATTN_SHL, 0, false},
                           [EXPR_SHR] = {ATTN_SHR, 0, false},
                           [EXPR_PLUS] = {ATTN_ADD, ATTN_FADD, false},
                           [EXPR_MINUS] = {ATTN_SUB, ATTN_FSUB, false},
                           [EXPR_TIMES] = {ATTN_MUL, ATTN_FMUL, false},
                           [EXPR_DIVIDE] = {ATTN_DIV, ATTN_FDIV, false},
                           [EXPR_MODULO] = {ATTN_MOD, 0, false}};

static quire_err lower_binary(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    bool floats =
        l->tree->nodes[n->child[0]].type == EXPR_FLOAT || l->tree->nodes[n->child[1]].type == EXPR_FLOAT;
    attn_op op = (attn_op)(floats ? binary[n->which].floats : binary[n->which].ints);
    int32_t v[ATTN_ARRAY_DIMS];
    TRY(lower_children(l, n, floats, condition, v));
    if (op != ATTN_DIV && op != ATTN_MOD) {
        return operate(l, op, binary[n->which].swapped ? v[1] : v[0], binary[n->which].swapped ? v[0] : v[1],
                       EXPR_NONE, out);
    }
    l->column = n->column;
    if (expr_values_is_constant(l, v[1], 0)) {
        return expr_error(l->err, n->column, "an integer is divided by 0");
    }
    return operate(l, op, v[0], v[1], value_at(l, v[1])->op == ATTN_INT ? EXPR_NONE : condition, out);
}

static quire_err lower_call(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    static const uint8_t ops[N_EXPR_FUNCTIONS] = {ATTN_TANH, ATTN_EXP,   ATTN_LOG, ATTN_SQRT,
                                                  ATTN_FABS, ATTN_FLOOR, ATTN_SIN, ATTN_COS,
                                                  ATTN_FMIN, ATTN_FMAX,  ATTN_POW};
    attn_op op = (attn_op)ops[n->which];
    int32_t v[ATTN_ARRAY_DIMS];
    TRY(lower_children(l, n, n->type == EXPR_FLOAT, condition, v));
    if (n->type == EXPR_INT) {
        op = n->which == EXPR_FN_ABS ? ATTN_ABS : n->which == EXPR_FN_MIN ? ATTN_MIN : ATTN_MAX;
    }
    return operate(l, op, v[0], n->n_children > 1 ? v[1] : EXPR_NONE, EXPR_NONE, out);
}

/* Lowers array[i][j] to a load at i * dim + j. Every index is checked. */
static quire_err lower_element(lowering *l, const expr_node *n, int32_t condition, int32_t *out) {
    const attn_array *a = &l->tree->arrays[n->array];
    int32_t v[ATTN_ARRAY_DIMS], at = EXPR_NONE, dim;
    TRY(lower_children(l, n, false, condition, v));
    for (int32_t i = 0; i < n->n_children; i++) {
        expr_value check = {
            .op = ATTN_CHECK, .a = v[i], .b = EXPR_NONE, .c = condition, .integer = a->dims[i]};
        check.by = (uint8_t)(value_at(l, v[i])->by | (condition >= 0 ? value_at(l, condition)->by : 0u));
        check.by = check.by == 0 ? EXPR_BY_ROW : check.by;
        TRY(expr_values_add(l, check, &v[i]));
        if (at == EXPR_NONE) {
            at = v[i];
            continue;
        }
        TRY(expr_values_add_int(l, a->dims[i], &dim));
        TRY(operate(l, ATTN_MUL, at, dim, EXPR_NONE, &at));
        TRY(operate(l, ATTN_ADD, at, v[i], EXPR_NONE, &at));
    }
    expr_value load = {.op = a->is_float ? ATTN_FLOAD : ATTN_LOAD,
                       .is_float = a->is_float,
                       .by = value_at(l, at)->by,
                       .a = at,
                       .b = EXPR_NONE,
                       .c = EXPR_NONE,
                       .array = n->array};
    return expr_values_add(l, load, out);
}

static quire_err lower_variable(lowering *l, const expr_node *n, int32_t *out) {
    bool by_key = n->which == EXPR_VAR_KV_IDX, score = n->which == EXPR_VAR_SCORE;
    return expr_values_add(l,
                           (expr_value){.op = (uint8_t)(N_ATTN_OPS + n->which),
                                        .by = score    ? EXPR_BY_ROW | EXPR_BY_KEY
                                              : by_key ? EXPR_BY_KEY
                                                       : EXPR_BY_ROW,
                                        .is_float = score,
                                        .a = EXPR_NONE,
                                        .b = EXPR_NONE,
                                        .c = EXPR_NONE},
                           out);
}

/* Lowers a node to a value. condition: the condition under which C would evaluate the
 * node; EXPR_NONE: always. */
static quire_err expr_values_lower(lowering *l, int32_t node, int32_t condition, int32_t *out) {
    const expr_node *n = &l->tree->nodes[node];
    l->column = n->column;
    switch ((expr_form)n->form) {
    case EXPR_NUMBER:
        return n->type == EXPR_FLOAT ? add_float(l, n->number, out) : expr_values_add_int(l, n->integer, out);
    case EXPR_VARIABLE:
        return lower_variable(l, n, out);
    case EXPR_ELEMENT:
        return lower_element(l, n, condition, out);
    case EXPR_CALL:
        return lower_call(l, n, condition, out);
    default:
        if (n->n_children == 1) {
            return lower_unary(l, n, condition, out);
        }
        if (n->n_children == 3) {
            return lower_choice(l, n, condition, out);
        }
        return n->which == EXPR_AND_ALSO || n->which == EXPR_OR_ELSE ? lower_logical(l, n, condition, out)
                                                                     : lower_binary(l, n, condition, out);
    }
}

quire_err expr_evaluate(expr_kind kind, const expr_tree *tree, expr_values *out, quire_error *err) {
    assert(tree->root >= 0 && tree->root < tree->n);
    lowering l = {.tree = tree, .values = out, .err = err};
    out->n = 0;
    TRY(expr_values_lower(&l, tree->root, EXPR_NONE, &out->result));
    return kind == EXPR_SCORE ? to_float(&l, out->result, &out->result)
                              : to_truth(&l, out->result, &out->result);
}

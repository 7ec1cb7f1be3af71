/* The values that an expression computes: operations without order of registers, equal
 * ones once, constants folded. */
#ifndef EXPR_VALUES_H
#define EXPR_VALUES_H

#include "expr/expr_tree.h"

#define EXPR_MAX_VALUES 2048

/* On what a value depends; a set of bits. */
#define EXPR_BY_ROW 1u
#define EXPR_BY_KEY 2u

/* One operation. Its operands precede it. */
typedef struct expr_value {
    uint8_t op; /* attn_op, or of the inputs N_ATTN_OPS + expr_variable */
    uint8_t by;
    bool is_float, is_truth; /* is_truth: an integer that is 0 or 1 */
    int32_t a, b, c, array;  /* operands, or EXPR_NONE */
    float number;
    int64_t integer;
} expr_value;

typedef struct expr_values {
    int32_t n, result;
    expr_value at[EXPR_MAX_VALUES];
} expr_values;

static inline bool expr_is_input(const expr_value *v) {
    return v->op >= N_ATTN_OPS;
}
static inline bool expr_is_literal(const expr_value *v) {
    return v->op == ATTN_INT || v->op == ATTN_FLOAT;
}

/* The values of a tree. QUIRE_INVALID for too many, and for a division by a constant
 * 0. */
quire_err expr_evaluate(expr_kind kind, const expr_tree *tree, expr_values *out, quire_error *err);

#endif

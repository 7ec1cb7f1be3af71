/* The syntax tree of an expression, with a type for each node. */
#ifndef EXPR_TREE_H
#define EXPR_TREE_H

#include "expr/expr.h"

#define EXPR_NONE (-1)

typedef enum expr_type { EXPR_INT, EXPR_FLOAT } expr_type;

typedef enum expr_variable {
    EXPR_VAR_Q_IDX,
    EXPR_VAR_H,
    EXPR_VAR_B,
    EXPR_VAR_N_HEADS,
    EXPR_VAR_N_KV,
    EXPR_VAR_KV_IDX,
    EXPR_VAR_SCORE,
    N_EXPR_VARIABLES
} expr_variable;

typedef enum expr_form {
    EXPR_NUMBER,   /* a constant, integer or float by its type */
    EXPR_VARIABLE, /* a variable such as q_idx */
    EXPR_ELEMENT,  /* array[child][child]..: n_children indices */
    EXPR_OPERATOR, /* an operator on n_children operands: 1, 2 or, for ?:, 3 */
    EXPR_CALL      /* a function call with n_children arguments */
} expr_form;

typedef enum expr_token {
    EXPR_END,
    EXPR_TOKEN_INT,
    EXPR_TOKEN_FLOAT,
    EXPR_NAME,
    EXPR_OPEN,
    EXPR_CLOSE,
    EXPR_OPEN_INDEX,
    EXPR_CLOSE_INDEX,
    EXPR_COMMA,
    EXPR_QUESTION,
    EXPR_COLON,
    EXPR_OR_ELSE,  /* || */
    EXPR_AND_ALSO, /* && */
    EXPR_BIT_OR,
    EXPR_BIT_XOR,
    EXPR_BIT_AND,
    EXPR_EQ,
    EXPR_NE,
    EXPR_LT,
    EXPR_LE,
    EXPR_GT,
    EXPR_GE,
    EXPR_SHL,
    EXPR_SHR,
    EXPR_PLUS,
    EXPR_MINUS,
    EXPR_TIMES,
    EXPR_DIVIDE,
    EXPR_MODULO,
    EXPR_NOT,     /* ! */
    EXPR_BIT_NOT, /* ~ */
    N_EXPR_TOKENS
} expr_token;

typedef enum expr_function {
    EXPR_FN_TANH,
    EXPR_FN_EXP,
    EXPR_FN_LOG,
    EXPR_FN_SQRT,
    EXPR_FN_ABS,
    EXPR_FN_FLOOR,
    EXPR_FN_SIN,
    EXPR_FN_COS,
    EXPR_FN_MIN,
    EXPR_FN_MAX,
    EXPR_FN_POW,
    N_EXPR_FUNCTIONS
} expr_function;

/* A node of the tree. Children precede their parent. */
typedef struct expr_node {
    uint8_t form, type, which; /* which: an expr_variable, expr_token or expr_function */
    int32_t column;            /* counted from 1 */
    int32_t array, n_children, child[ATTN_ARRAY_DIMS];
    int64_t integer;
    float number;
} expr_node;

typedef struct expr_tree {
    int32_t n, root;
    expr_node nodes[EXPR_MAX_NODES];
    int32_t n_arrays;
    const attn_array *arrays; /* owned by the caller */
} expr_tree;

/* A token of the text. */
typedef struct expr_word {
    expr_token token;
    str text;
    int64_t integer;
    float number;
} expr_word;

typedef struct expr_lexer {
    str text;
    size_t at;
    quire_error *err;
} expr_lexer;

/* Returns QUIRE_INVALID with "column N: message". */
quire_err expr_error(quire_error *err, int32_t column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Parses an expression and types its nodes. After an error the tree is undefined. */
quire_err expr_parse(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays, expr_tree *out,
                     quire_error *err);
/* Generates the program of a tree. QUIRE_INVALID: it is too large; QUIRE_NO_MEMORY. */
quire_err expr_write(expr_kind kind, const expr_tree *tree, attn_program *out, quire_error *err);

/* ---- expr_values.c: the tree as a list of operations ---- */

#define EXPR_MAX_VALUES 2048

/* What a value depends on; a set of bits. */
#define EXPR_BY_ROW 1u
#define EXPR_BY_KEY 2u

/* An operation. Its operands precede it in the list. */
typedef struct expr_value {
    uint8_t op; /* an attn_op; for a variable N_ATTN_OPS + expr_variable */
    uint8_t by;
    bool is_float, is_truth; /* is_truth: an integer that is 0 or 1 */
    int32_t a, b, c, array;  /* operands, EXPR_NONE where there is none */
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

/* Converts a tree to a list of operations. QUIRE_INVALID if there are too many, or for a
 * division by the constant 0. */
quire_err expr_evaluate(expr_kind kind, const expr_tree *tree, expr_values *out, quire_error *err);

#endif

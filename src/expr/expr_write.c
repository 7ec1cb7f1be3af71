/* Generates code from values: each value goes to the list of code that runs least often
 * and may compute it, and gets a register.
 *
 * Row registers are not reused. Vectors are, once the last instruction that reads them
 * has run; but those of key code that tile code reads are kept, since tile code runs many
 * times. So the first constants of tile code are set by key code, the others where tile
 * code reads them. An instruction never writes a register that it reads, so loops need no
 * checks. */
#include "base/mem.h"

#include "expr/expr_tree.h"
#include <assert.h>

#define KEPT_CONSTANTS 24 /* number of tile code's constants that key code sets */

typedef struct writer {
    const expr_values *values;
    attn_program *p;
    quire_error *err;
    /* value i is needed in a row register, in a vector */
    bool in_row[EXPR_MAX_VALUES], in_vector[EXPR_MAX_VALUES];
    int32_t row_reg[EXPR_MAX_VALUES], vector[EXPR_MAX_VALUES];
    /* the last value of key or tile code that reads value i; EXPR_NONE: none */
    int32_t last_key[EXPR_MAX_VALUES], last_tile[EXPR_MAX_VALUES];
    bool taken[ATTN_PROGRAM_VECTORS];
    int32_t n_kept;
    bool is_late[EXPR_MAX_VALUES]; /* value i is a constant that tile code sets */
} writer;

static bool by_row_only(const expr_value *v) {
    return v->by == EXPR_BY_ROW;
}

static bool in_tile(const expr_value *v) {
    return v->by == (EXPR_BY_ROW | EXPR_BY_KEY);
}

/* Marks the values that the result needs, from last to first: operands precede users. */
static void mark(writer *w) {
    const expr_values *s = w->values;
    w->in_vector[s->result] = true;
    for (int32_t i = s->n - 1; i >= 0; i--) {
        const expr_value *v = &s->at[i];
        const int32_t operands[3] = {v->a, v->b, v->c};
        w->last_key[i] = w->last_tile[i] = EXPR_NONE;
        w->in_row[i] = w->in_row[i] || (by_row_only(v) && w->in_vector[i]); /* needed there to be spread */
        for (int k = 0; k < 3 && (w->in_row[i] || w->in_vector[i]); k++) {
            if (operands[k] >= 0) {
                *(by_row_only(v) ? &w->in_row[operands[k]] : &w->in_vector[operands[k]]) = true;
            }
        }
    }
    for (int32_t i = 0; i < s->n; i++) {
        const expr_value *v = &s->at[i];
        const int32_t operands[3] = {v->a, v->b, v->c};
        for (int k = 0; k < 3 && w->in_vector[i] && !by_row_only(v); k++) {
            if (operands[k] >= 0) {
                *(in_tile(v) ? &w->last_tile[operands[k]] : &w->last_key[operands[k]]) = i;
            }
        }
    }
    w->last_tile[s->result] = s->n;
}

static quire_err take_vector(writer *w, int32_t *out) {
    for (int32_t i = N_ATTN_KEY_INPUTS; i < ATTN_PROGRAM_VECTORS; i++) {
        if (!w->taken[i]) {
            w->taken[i] = true;
            w->p->n_vectors = w->p->n_vectors > i ? w->p->n_vectors : i + 1;
            *out = i;
            return QUIRE_OK;
        }
    }
    return err_set(w->err, QUIRE_INVALID, -1, "the expression keeps over %d intermediate results at once",
                   ATTN_PROGRAM_VECTORS - N_ATTN_KEY_INPUTS);
}

static quire_err expr_write_append(writer *w, attn_code *code, attn_instruction at) {
    if (code->n == ATTN_PROGRAM_CODE) {
        return err_set(w->err, QUIRE_INVALID, -1, "the expression takes over %d operations",
                       ATTN_PROGRAM_CODE);
    }
    code->at[code->n++] = at;
    w->p->may_fault = w->p->may_fault || at.op == ATTN_DIV || at.op == ATTN_MOD || at.op == ATTN_CHECK;
    return QUIRE_OK;
}

static attn_instruction instruction(const expr_value *v, const int32_t *where, int32_t dst) {
    return (attn_instruction){.op = v->op,
                              .array = (uint8_t)v->array,
                              .dst = (int16_t)dst,
                              .a = (int16_t)(v->a >= 0 ? where[v->a] : EXPR_NONE),
                              .b = (int16_t)(v->b >= 0 ? where[v->b] : EXPR_NONE),
                              .c = (int16_t)(v->c >= 0 ? where[v->c] : EXPR_NONE),
                              .number = v->number,
                              .value = v->integer};
}

/* Generates row code: values that depend on the query only, and their constants. */
static quire_err expr_write_row(writer *w) {
    for (int32_t i = 0; i < w->values->n; i++) {
        const expr_value *v = &w->values->at[i];
        if (!w->in_row[i]) {
            continue;
        }
        if (expr_is_input(v)) {
            w->row_reg[i] = v->op - N_ATTN_OPS; /* same numbers in expr_variable and attn_row_input */
            continue;
        }
        if (w->p->n_row_regs == ATTN_PROGRAM_ROW_REGS) {
            return err_set(w->err, QUIRE_INVALID, -1,
                           "the expression has over %d parts that depend on the query only",
                           ATTN_PROGRAM_ROW_REGS - N_ATTN_ROW_INPUTS);
        }
        w->row_reg[i] = w->p->n_row_regs++;
        TRY(expr_write_append(w, &w->p->row, instruction(v, w->row_reg, w->row_reg[i])));
    }
    return QUIRE_OK;
}

/* Frees the vectors of operands whose last reader is value `user`. */
static void free_operands(writer *w, int32_t user, bool tile) {
    const expr_value *v = &w->values->at[user];
    const int32_t operands[3] = {v->a, v->b, v->c};
    for (int k = 0; k < 3; k++) {
        int32_t o = operands[k];
        if (o < 0 || w->vector[o] < N_ATTN_KEY_INPUTS) {
            continue;
        }
        const expr_value *operand = &w->values->at[o];
        bool of_tile = in_tile(operand) || by_row_only(operand) || w->is_late[o];
        bool of_key = w->last_tile[o] == EXPR_NONE || w->is_late[o];
        if (tile ? of_tile && w->last_tile[o] == user : of_key && w->last_key[o] == user) {
            w->taken[w->vector[o]] = false;
            w->vector[o] = EXPR_NONE;
        }
    }
}

/* Generates key code: values that depend on the key only, and constants in vectors, first
 * those that only tile code reads. */
static quire_err expr_write_key(writer *w) {
    for (int32_t i = 0; i < w->values->n; i++) {
        const expr_value *v = &w->values->at[i];
        if (!w->in_vector[i] || by_row_only(v) || in_tile(v)) {
            continue;
        }
        if (expr_is_input(v)) {
            w->vector[i] = ATTN_KEY_KV_IDX;
            continue;
        }
        if (expr_is_literal(v) && w->last_tile[i] != EXPR_NONE) {
            w->is_late[i] = w->n_kept == KEPT_CONSTANTS;
            w->n_kept += w->is_late[i] ? 0 : 1;
        }
        if (w->is_late[i] && w->last_key[i] == EXPR_NONE) {
            continue;
        }
        TRY(take_vector(w, &w->vector[i]));
        TRY(expr_write_append(w, &w->p->key, instruction(v, w->vector, w->vector[i])));
        free_operands(w, i, false);
    }
    return QUIRE_OK;
}

/* Spreads a scalar to a vector: tile code's own constant, or a value of row code. */
static quire_err spread(writer *w, int32_t value) {
    const expr_value *v = &w->values->at[value];
    if (w->vector[value] != EXPR_NONE || !(by_row_only(v) || w->is_late[value])) {
        return QUIRE_OK;
    }
    TRY(take_vector(w, &w->vector[value]));
    if (w->is_late[value]) {
        return expr_write_append(w, &w->p->tile, instruction(v, w->vector, w->vector[value]));
    }
    return expr_write_append(w, &w->p->tile,
                             (attn_instruction){.op = ATTN_SPREAD,
                                                .array = v->is_float,
                                                .dst = (int16_t)w->vector[value],
                                                .a = (int16_t)w->row_reg[value],
                                                .b = EXPR_NONE,
                                                .c = EXPR_NONE});
}

static quire_err write_tile(writer *w) {
    for (int32_t i = 0; i < w->values->n; i++) {
        const expr_value *v = &w->values->at[i];
        const int32_t operands[3] = {v->a, v->b, v->c};
        if (!w->in_vector[i] || !in_tile(v)) {
            continue;
        }
        if (expr_is_input(v)) {
            w->vector[i] = ATTN_KEY_SCORE;
            continue;
        }
        for (int k = 0; k < 3; k++) {
            if (operands[k] >= 0) {
                TRY(spread(w, operands[k]));
            }
        }
        TRY(take_vector(w, &w->vector[i]));
        TRY(expr_write_append(w, &w->p->tile, instruction(v, w->vector, w->vector[i])));
        free_operands(w, i, true);
    }
    return spread(w, w->values->result);
}

static quire_err write_program(expr_kind kind, const expr_tree *tree, writer *w) {
    attn_program *p = w->p;
    p->row.n = p->key.n = p->tile.n = 0;
    p->n_row_regs = N_ATTN_ROW_INPUTS;
    p->n_vectors = N_ATTN_KEY_INPUTS;
    p->result_is_float = kind == EXPR_SCORE;
    p->uses_h = p->uses_b = p->uses_n_kv = p->may_fault = false;
    p->n_arrays = tree->n_arrays;
    for (int32_t i = 0; i < tree->n_arrays; i++) {
        p->arrays[i] = tree->arrays[i];
    }
    memset(w->vector, 0xff, sizeof w->vector);
    mark(w);
    TRY(expr_write_row(w));
    TRY(expr_write_key(w));
    TRY(write_tile(w));
    p->result = w->vector[w->values->result];
    for (int32_t i = 0; i < w->values->n; i++) {
        bool wanted = w->in_row[i] || w->in_vector[i];
        p->uses_h = p->uses_h || (wanted && w->values->at[i].op == N_ATTN_OPS + EXPR_VAR_H);
        p->uses_b = p->uses_b || (wanted && w->values->at[i].op == N_ATTN_OPS + EXPR_VAR_B);
        p->uses_n_kv = p->uses_n_kv || (wanted && w->values->at[i].op == N_ATTN_OPS + EXPR_VAR_N_KV);
    }
    return QUIRE_OK;
}

quire_err expr_write(expr_kind kind, const expr_tree *tree, attn_program *out, quire_error *err) {
    assert(kind == EXPR_MASK || kind == EXPR_SCORE);
    expr_values *values = mem_new(1, sizeof *values);
    writer *w = mem_new(1, sizeof *w);
    quire_err e = values != NULL && w != NULL ? expr_evaluate(kind, tree, values, err)
                                              : mem_check_for(NULL, "an expression", err);
    if (e == QUIRE_OK) {
        *w = (writer){.values = values, .p = out, .err = err};
        e = write_program(kind, tree, w);
    }
    mem_free(w);
    mem_free(values);
    return e;
}

quire_err expr_compile(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays,
                       attn_program *out, quire_error *err) {
    assert(n_arrays >= 0);
    expr_tree *tree = mem_new(1, sizeof *tree);
    TRY(mem_check_for(tree, "an expression", err));
    quire_err e = expr_parse(kind, text, arrays, n_arrays, tree, err);
    if (e == QUIRE_OK) {
        e = expr_write(kind, tree, out, err);
    }
    mem_free(tree);
    return e;
}

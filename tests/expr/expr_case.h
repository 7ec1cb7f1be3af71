/* Evaluates an expression for a rectangle of queries and keys in two ways: by walking its
 * tree with C's semantics, and by running its compiled program. */
#ifndef TESTS_EXPR_EXPR_CASE_H
#define TESTS_EXPR_EXPR_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/attn_ops.h"
#include "expr/expr_tree.h"

enum { CASE_N_HEADS = 8, CASE_N_KV = 40 };

typedef struct case_number {
    int64_t i;
    float f;
} case_number;

/* The inputs at one point: a query and a key. */
typedef struct case_point {
    int64_t row[N_ATTN_ROW_INPUTS], kv_idx;
    float score;
} case_point;

static inline void case_exp(const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = expf(x[i]);
    }
}
static inline void case_tanh(const float *x, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = tanhf(x[i]);
    }
}
static const attn_functions case_functions = {case_exp, case_tanh};

static inline bool case_true(const expr_node *n, case_number v) {
    return n->type == EXPR_FLOAT ? v.f != 0.0f : v.i != 0;
}

static inline float case_float(const expr_node *n, case_number v) {
    return n->type == EXPR_FLOAT ? v.f : (float)v.i;
}

static case_number case_walk(const expr_tree *t, int32_t node, const case_point *at, unsigned *faults);

static inline case_number case_call(const expr_tree *t, const expr_node *n, const case_point *at,
                                    unsigned *faults) {
    case_number v[2] = {{0, 0}, {0, 0}}, out = {0, 0};
    float f[2] = {0, 0};
    for (int32_t i = 0; i < n->n_children; i++) {
        v[i] = case_walk(t, n->child[i], at, faults);
        f[i] = case_float(&t->nodes[n->child[i]], v[i]);
    }
    switch ((expr_function)n->which) {
    case EXPR_FN_TANH:
        case_tanh(f, 1, &out.f);
        break;
    case EXPR_FN_EXP:
        case_exp(f, 1, &out.f);
        break;
    case EXPR_FN_LOG:
        out.f = attn_log(f[0]);
        break;
    case EXPR_FN_SQRT:
        out.f = sqrtf(f[0]);
        break;
    case EXPR_FN_ABS:
        out = (case_number){attn_abs(v[0].i), fabsf(f[0])};
        break;
    case EXPR_FN_FLOOR:
        out.f = floorf(f[0]);
        break;
    case EXPR_FN_SIN:
        out.f = attn_sin(f[0]);
        break;
    case EXPR_FN_COS:
        out.f = attn_cos(f[0]);
        break;
    case EXPR_FN_MIN:
        out = (case_number){v[0].i < v[1].i ? v[0].i : v[1].i, attn_fmin(f[0], f[1])};
        break;
    case EXPR_FN_MAX:
        out = (case_number){v[0].i > v[1].i ? v[0].i : v[1].i, attn_fmax(f[0], f[1])};
        break;
    default:
        out.f = attn_pow(f[0], f[1]);
    }
    return out;
}

static inline case_number case_element(const expr_tree *t, const expr_node *n, const case_point *at,
                                       unsigned *faults) {
    const attn_array *a = &t->arrays[n->array];
    int64_t index = 0;
    for (int32_t i = 0; i < n->n_children; i++) {
        int64_t v = case_walk(t, n->child[i], at, faults).i;
        if (v < 0 || v >= a->dims[i]) {
            *faults |= ATTN_FAULT_INDEX;
            v = 0;
        }
        index = index * a->dims[i] + v;
    }
    return a->is_float ? (case_number){0, ((const float *)a->data)[index]}
                       : (case_number){((const int32_t *)a->data)[index], 0};
}

static inline case_number case_floats(expr_token op, float a, float b) {
    switch (op) {
    case EXPR_EQ:
        return (case_number){a == b, 0};
    case EXPR_NE:
        return (case_number){a != b, 0};
    case EXPR_LT:
        return (case_number){a < b, 0};
    case EXPR_LE:
        return (case_number){a <= b, 0};
    case EXPR_GT:
        return (case_number){a > b, 0};
    case EXPR_GE:
        return (case_number){a >= b, 0};
    case EXPR_PLUS:
        return (case_number){0, a + b};
    case EXPR_MINUS:
        return (case_number){0, a - b};
    case EXPR_TIMES:
        return (case_number){0, a * b};
    default:
        return (case_number){0, a / b};
    }
}

static inline int64_t case_ints(expr_token op, int64_t a, int64_t b, unsigned *faults) {
    switch (op) {
    case EXPR_BIT_OR:
        return a | b;
    case EXPR_BIT_XOR:
        return a ^ b;
    case EXPR_BIT_AND:
        return a & b;
    case EXPR_EQ:
        return a == b;
    case EXPR_NE:
        return a != b;
    case EXPR_LT:
        return a < b;
    case EXPR_LE:
        return a <= b;
    case EXPR_GT:
        return a > b;
    case EXPR_GE:
        return a >= b;
    case EXPR_SHL:
        return attn_shl(a, b);
    case EXPR_SHR:
        return attn_shr(a, b);
    case EXPR_PLUS:
        return attn_add(a, b);
    case EXPR_MINUS:
        return attn_sub(a, b);
    case EXPR_TIMES:
        return attn_mul(a, b);
    default:
        *faults |= b == 0 ? ATTN_FAULT_DIVISION : 0u;
        return op == EXPR_DIVIDE ? attn_div(a, b) : attn_mod(a, b);
    }
}

static inline case_number case_operator(const expr_tree *t, const expr_node *n, const case_point *at,
                                        unsigned *faults) {
    const expr_node *first = &t->nodes[n->child[0]], *second = &t->nodes[n->child[n->n_children - 1]];
    expr_token op = (expr_token)n->which;
    case_number a = case_walk(t, n->child[0], at, faults);
    if (op == EXPR_QUESTION) {
        int32_t chosen = n->child[case_true(first, a) ? 1 : 2];
        case_number v = case_walk(t, chosen, at, faults);
        return n->type == EXPR_FLOAT ? (case_number){0, case_float(&t->nodes[chosen], v)} : v;
    }
    if (op == EXPR_AND_ALSO || op == EXPR_OR_ELSE) {
        bool decided = case_true(first, a) == (op == EXPR_OR_ELSE);
        return (case_number){
            decided ? op == EXPR_OR_ELSE : case_true(second, case_walk(t, n->child[1], at, faults)), 0};
    }
    if (n->n_children == 1) {
        return op == EXPR_NOT       ? (case_number){!case_true(first, a), 0}
               : op == EXPR_BIT_NOT ? (case_number){~a.i, 0}
               : op == EXPR_MINUS   ? (case_number){attn_sub(0, a.i), -a.f}
                                    : a;
    }
    case_number b = case_walk(t, n->child[1], at, faults);
    if (first->type == EXPR_FLOAT || second->type == EXPR_FLOAT) {
        return case_floats(op, case_float(first, a), case_float(second, b));
    }
    return (case_number){case_ints(op, a.i, b.i, faults), 0};
}

/* Returns the value of a node at a point. */
static inline case_number case_walk(const expr_tree *t, int32_t node, const case_point *at,
                                    unsigned *faults) {
    const expr_node *n = &t->nodes[node];
    switch ((expr_form)n->form) {
    case EXPR_NUMBER:
        return (case_number){n->integer, n->number};
    case EXPR_VARIABLE:
        return n->which == EXPR_VAR_SCORE    ? (case_number){0, at->score}
               : n->which == EXPR_VAR_KV_IDX ? (case_number){at->kv_idx, 0}
                                             : (case_number){at->row[n->which], 0};
    case EXPR_ELEMENT:
        return case_element(t, n, at, faults);
    case EXPR_CALL:
        return case_call(t, n, at, faults);
    default:
        return case_operator(t, n, at, faults);
    }
}

/* ---- the program ---- */

/* The rectangle: queries q0..q0 + CASE_QUERIES - 1, keys 0..CASE_N_KV - 1. */
enum { CASE_QUERIES = 7 };

typedef struct case_result {
    case_number value[CASE_QUERIES][CASE_N_KV];
    unsigned faults[CASE_QUERIES][CASE_N_KV];
} case_result;

static inline case_point case_at(int64_t q0, int32_t query, int32_t key) {
    return (case_point){
        {q0 + query, query % CASE_N_HEADS, query % 2, CASE_N_HEADS - query % 2, CASE_N_KV - query},
        key,
        0.25f * (float)(key - 3 * query)};
}

static inline void case_run(const attn_program *p, attn_run_fn *run, int64_t q0, case_result *out) {
    enum { STRIDE = ATTN_PROGRAM_KEYS, ROWS = ATTN_PROGRAM_QUERIES };
    int64_t *rows = malloc(sizeof *rows * ATTN_PROGRAM_ROW_REGS * ROWS),
            *vectors = malloc(sizeof *vectors * ATTN_PROGRAM_VECTORS * STRIDE);
    uint8_t row_faults[ROWS] = {0}, key_faults[STRIDE] = {0};
    attn_lanes row = {
        .regs = rows, .n = CASE_QUERIES, .stride = ROWS, .faults = row_faults, .functions = &case_functions};
    attn_lanes key = {.regs = vectors,
                      .n = CASE_N_KV,
                      .stride = STRIDE,
                      .faults = key_faults,
                      .functions = &case_functions};
    for (int32_t q = 0; q < CASE_QUERIES; q++) {
        for (int32_t i = 0; i < N_ATTN_ROW_INPUTS; i++) {
            attn_ints(&row, i)[q] = case_at(q0, q, 0).row[i];
        }
    }
    for (int32_t k = 0; k < CASE_N_KV; k++) {
        attn_ints(&key, ATTN_KEY_KV_IDX)[k] = k;
    }
    run(p, &p->row, &row);
    run(p, &p->key, &key);
    for (int32_t q = 0; q < CASE_QUERIES; q++) {
        uint8_t faults[STRIDE] = {0};
        attn_lanes tile = key;
        tile.row_regs = rows;
        tile.row_stride = ROWS;
        tile.query = q;
        tile.faults = faults;
        for (int32_t k = 0; k < CASE_N_KV; k++) {
            attn_floats(&tile, ATTN_KEY_SCORE)[k] = case_at(q0, q, k).score;
        }
        run(p, &p->tile, &tile);
        for (int32_t k = 0; k < CASE_N_KV; k++) {
            out->faults[q][k] = (unsigned)row_faults[q] | key_faults[k] | faults[k];
            out->value[q][k] = p->result_is_float ? (case_number){0, attn_floats(&tile, p->result)[k]}
                                                  : (case_number){attn_ints(&tile, p->result)[k] != 0, 0};
        }
    }
    free(rows);
    free(vectors);
}

/* Whether attn_program_seen for a rectangle agrees with the value at each point. */
static inline bool case_verdict_agrees(const attn_program *p, int64_t q0, const case_result *r,
                                       attn_range queries, attn_range keys) {
    attn_rectangle all = {.kv_idx = keys};
    for (int32_t i = 0; i < N_ATTN_ROW_INPUTS; i++) {
        all.row[i] = (attn_range){INT64_MAX, INT64_MIN};
        for (int64_t q = queries.low; q <= queries.high; q++) {
            int64_t v = case_at(q0, (int32_t)q, 0).row[i];
            all.row[i].low = v < all.row[i].low ? v : all.row[i].low;
            all.row[i].high = v > all.row[i].high ? v : all.row[i].high;
        }
    }
    attn_seen seen = attn_program_seen(p, &all);
    for (int64_t q = queries.low; q <= queries.high && seen != ATTN_SEES_SOME; q++) {
        for (int64_t k = keys.low; k <= keys.high; k++) {
            if (r->faults[q][k] != 0 || (r->value[q][k].i != 0) != (seen == ATTN_SEES_ALL)) {
                return false;
            }
        }
    }
    return true;
}

/* Whether that holds for all queries and some, with all keys and with eight at a time. */
static inline bool case_seen_agrees(const attn_program *p, int64_t q0, const case_result *r) {
    static const attn_range queries[] = {{0, CASE_QUERIES - 1}, {0, 2}, {4, 4}};
    bool agree = true;
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        agree = agree && case_verdict_agrees(p, q0, r, queries[i], (attn_range){0, CASE_N_KV - 1});
        for (int64_t k = 0; k < CASE_N_KV; k += 8) {
            agree = agree && case_verdict_agrees(p, q0, r, queries[i], (attn_range){k, k + 7});
        }
    }
    return agree;
}

/* Compiles the text and compares its program with its tree at every point. Returns 1 if
 * they agree, 0 if not, -1 if the text is refused. */
static inline int case_compare(expr_kind kind, str text, const attn_array *arrays, int32_t n_arrays,
                               attn_run_fn *run, int64_t q0, case_result *out) {
    expr_tree *tree = malloc(sizeof *tree);
    attn_program *p = malloc(sizeof *p);
    int agree = -1;
    if (expr_parse(kind, text, arrays, n_arrays, tree, NULL) == QUIRE_OK &&
        expr_write(kind, tree, p, NULL) == QUIRE_OK) {
        agree = 1;
        case_run(p, run, q0, out);
        for (int32_t q = 0; q < CASE_QUERIES; q++) {
            for (int32_t k = 0; k < CASE_N_KV; k++) {
                case_point at = case_at(q0, q, k);
                unsigned faults = 0;
                case_number want = case_walk(tree, tree->root, &at, &faults), got = out->value[q][k];
                float f = case_float(&tree->nodes[tree->root], want);
                bool same = kind == EXPR_MASK
                                ? got.i == case_true(&tree->nodes[tree->root], want)
                                : memcmp(&got.f, &f, sizeof f) == 0 || (isnan(got.f) && isnan(f));
                agree = same && faults == out->faults[q][k] ? agree : 0;
            }
        }
        agree = kind == EXPR_SCORE || case_seen_agrees(p, q0, out) ? agree : 0;
    }
    free(p);
    free(tree);
    return agree;
}

#endif

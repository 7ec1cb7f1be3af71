/* An attention program: a mask or a change of scores, as register code that runs for a
 * tile of queries and keys.
 *
 * src/expr compiles one from an expression. It has three lists of code. Row code depends
 * on the query only and runs once per tile; its lanes are queries. Key code depends on
 * the key only and runs once per tile; its lanes are keys. Tile code depends on both and
 * runs for each query; its lanes are keys. So what is constant along a row or a column is
 * computed once.
 *
 * A register holds a number for each lane, int64_t or float; the instruction says which.
 * Row registers are a separate file. Vectors are the registers of key and tile code: key
 * code writes some, which tile code reads, and tile code writes others.
 *
 * Arithmetic: integers are of 64 bits and wrap around; division truncates; shifts take
 * their count modulo 64. Floats are of 32 bits, each operation rounded once. A division
 * by zero and an index outside its array are faults of the lane, and give 0. An
 * instruction that may fault has a condition: lanes where it is 0 have no fault, because
 * C would not evaluate them.
 *
 * Owner: whoever compiled it; plain data except for the arrays that it reads. Invariant:
 * registers, arrays and lengths are within their limits, so a program made by
 * expr_compile accesses its own memory only. Running allocates nothing. */
#ifndef CORE_ATTN_PROGRAM_H
#define CORE_ATTN_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"

#define ATTN_PROGRAM_CODE     512 /* instructions of one list */
#define ATTN_PROGRAM_ROW_REGS 128
#define ATTN_PROGRAM_VECTORS  48
#define ATTN_PROGRAM_ARRAYS   16
#define ATTN_PROGRAM_KEYS     256 /* keys a run at most */
#define ATTN_PROGRAM_QUERIES  32  /* queries a run at most */
#define ATTN_ARRAY_DIMS       4
#define ATTN_ARRAY_NAME       63

/* What an instruction does in each lane. Letters are operands: d = dst, c is the third
 * one or the condition of a fault. */
typedef enum attn_op {
    ATTN_INT,    /* d = value */
    ATTN_FLOAT,  /* d = number */
    ATTN_SPREAD, /* d = row register a of the query, a float where array is 1; tile code only */
    ATTN_ADD,
    ATTN_SUB,
    ATTN_MUL,
    ATTN_DIV, /* a / b under condition c */
    ATTN_MOD,
    ATTN_AND,
    ATTN_OR,
    ATTN_XOR,
    ATTN_SHL,
    ATTN_SHR,
    ATTN_EQ, /* comparisons give 0 or 1, as an integer */
    ATTN_NE,
    ATTN_LT,
    ATTN_LE,
    ATTN_MIN,
    ATTN_MAX,
    ATTN_ABS,
    ATTN_SELECT, /* a != 0 ? b : c */
    ATTN_CHECK,  /* a as an index below value, under condition c */
    ATTN_LOAD,   /* element a of an array of integers */
    ATTN_FADD,
    ATTN_FSUB,
    ATTN_FMUL,
    ATTN_FDIV,
    ATTN_FEQ,
    ATTN_FNE,
    ATTN_FLT,
    ATTN_FLE,
    ATTN_FMIN,
    ATTN_FMAX,
    ATTN_FABS,
    ATTN_FLOOR,
    ATTN_SQRT,
    ATTN_EXP,
    ATTN_TANH,
    ATTN_LOG,
    ATTN_SIN,
    ATTN_COS,
    ATTN_POW,
    ATTN_FSELECT,
    ATTN_FLOAD,
    ATTN_TO_FLOAT, /* the integer a, rounded to a float */
    N_ATTN_OPS
} attn_op;

typedef struct attn_instruction {
    uint8_t op;           /* attn_op */
    uint8_t array;        /* of LOAD and FLOAD */
    int16_t dst, a, b, c; /* registers; c of DIV, MOD and CHECK may be -1: always */
    float number;
    int64_t value;
} attn_instruction;

typedef struct attn_code {
    int32_t n;
    attn_instruction at[ATTN_PROGRAM_CODE];
} attn_code;

/* An array that an expression names: int32 or float32 in C order, of dims[0] x dims[1] ..
 * elements. The data is the caller's. */
typedef struct attn_array {
    char name[ATTN_ARRAY_NAME + 1];
    bool is_float;
    int32_t n_dims, dims[ATTN_ARRAY_DIMS];
    const void *data;
} attn_array;

/* Row registers that hold a query's own numbers before row code runs. */
typedef enum attn_row_input {
    ATTN_ROW_Q_IDX,
    ATTN_ROW_H,
    ATTN_ROW_B,
    ATTN_ROW_N_HEADS,
    ATTN_ROW_N_KV,
    N_ATTN_ROW_INPUTS
} attn_row_input;
/* Vectors that hold a key's own numbers before key code runs, and the scores before tile
 * code runs. */
typedef enum attn_key_input { ATTN_KEY_KV_IDX, ATTN_KEY_SCORE, N_ATTN_KEY_INPUTS } attn_key_input;

typedef struct attn_program {
    attn_code row, key, tile;
    int32_t n_row_regs, n_vectors;
    int32_t result; /* a vector: of a mask integers, not 0 where the key is visible; of scores floats */
    bool result_is_float;
    bool uses_h, uses_b, uses_n_kv; /* which of a query's inputs it reads */
    bool may_fault;                 /* some instruction can */
    int32_t n_arrays;
    attn_array arrays[ATTN_PROGRAM_ARRAYS];
} attn_program;

/* Faults of a lane. */
#define ATTN_FAULT_DIVISION 1u
#define ATTN_FAULT_INDEX    2u
#define ATTN_FAULT_SCORE    4u /* set by attention: a visible key's score is +infinity or NaN */

/* exp and tanh of n floats; a backend supplies its own. out may be x. */
typedef struct attn_functions {
    void (*exp)(const float *x, int32_t n, float *out);
    void (*tanh)(const float *x, int32_t n, float *out);
} attn_functions;

/* The lanes over which a list of code runs. Registers are stretches of `stride` lanes of
 * 8 bytes, aligned to 64, of which floats use the first half. */
typedef struct attn_lanes {
    void *regs;
    int32_t n, stride;
    const void *row_regs;      /* of tile code: the row file, */
    int32_t row_stride, query; /* and which of its lanes is the query */
    uint8_t *faults;           /* [n]: faults are added. */
    const attn_functions *functions;
} attn_lanes;

/* Runs one list of p's code over the lanes. Any thread. */
typedef void attn_run_fn(const attn_program *p, const attn_code *code, const attn_lanes *lanes);
void attn_run_plain(const attn_program *p, const attn_code *code, const attn_lanes *lanes);

/* Register r of a file as integers or as floats. */
static inline int64_t *attn_ints(const attn_lanes *l, int32_t r) {
    return (int64_t *)l->regs + (int64_t)r * l->stride;
}
static inline float *attn_floats(const attn_lanes *l, int32_t r) {
    return (float *)((int64_t *)l->regs + (int64_t)r * l->stride);
}

/* An integer's bounds, both included. */
typedef struct attn_range {
    int64_t low, high;
} attn_range;

/* What is known about a mask over a rectangle of queries and keys. */
typedef enum attn_seen { ATTN_SEES_NONE, ATTN_SEES_ALL, ATTN_SEES_SOME } attn_seen;

/* Bounds of a rectangle's numbers. */
typedef struct attn_rectangle {
    attn_range row[N_ATTN_ROW_INPUTS], kv_idx;
} attn_rectangle;

/* Evaluates a mask over ranges, in some nanoseconds an instruction. NONE and ALL are
 * certain, and then no lane of the rectangle has a fault; SOME: unknown. Any thread. */
attn_seen attn_program_seen(const attn_program *p, const attn_rectangle *r);

/* ---- a request's mask and change of scores ---- */

/* A request's own mask and change of scores (He et al. 2024, arXiv:2412.05496): programs
 * that attention runs in addition to a layer's attn_spec. src/expr compiles them from
 * text.
 *
 * Made once, then read-only and reference-counted: a request and its sequences share
 * them. Any thread. */

typedef struct attn_mods {
    attn_program *mask, *score; /* owned; NULL: none */
    void *data;                 /* the elements of the arrays that the programs read, owned; or NULL */
    bool uses_b;
    /* of both texts and of the arrays: equal digests give equal attention */
    uint8_t digest[SHA256_BYTES];
} attn_mods;

/* New and empty with one reference; NULL without memory. */
attn_mods *attn_mods_new(void);
/* Adds a reference and returns mods. NULL is allowed, here and in attn_mods_drop. */
attn_mods *attn_mods_hold(attn_mods *mods);
/* Drops a reference; the last one frees the mods. */
void attn_mods_drop(attn_mods *mods);

#endif

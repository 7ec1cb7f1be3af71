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

/* What an instruction computes in each lane. d, a, b and c are its operands dst, a, b and
 * c; c is a third operand, or the condition under which a fault counts. */
typedef enum attn_op {
    ATTN_INT,    /* d = value */
    ATTN_FLOAT,  /* d = number */
    ATTN_SPREAD, /* d = row register a of the query (a float if array is 1); tile code only */
    ATTN_ADD,
    ATTN_SUB,
    ATTN_MUL,
    ATTN_DIV, /* a / b; a fault counts where c != 0 */
    ATTN_MOD,
    ATTN_AND,
    ATTN_OR,
    ATTN_XOR,
    ATTN_SHL,
    ATTN_SHR,
    ATTN_EQ, /* comparisons give the integers 0 or 1 */
    ATTN_NE,
    ATTN_LT,
    ATTN_LE,
    ATTN_MIN,
    ATTN_MAX,
    ATTN_ABS,
    ATTN_SELECT, /* a != 0 ? b : c */
    ATTN_CHECK,  /* a as an index; a fault if it is not in 0..value-1 and c != 0 */
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
    uint8_t array;        /* LOAD, FLOAD: the array's index */
    int16_t dst, a, b, c; /* registers; DIV, MOD, CHECK: c = -1: the fault always counts */
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

/* Row registers that hold a query's properties before row code runs. */
typedef enum attn_row_input {
    ATTN_ROW_Q_IDX,
    ATTN_ROW_H,
    ATTN_ROW_B,
    ATTN_ROW_N_HEADS,
    ATTN_ROW_N_KV,
    N_ATTN_ROW_INPUTS
} attn_row_input;
/* Vectors that hold a key's properties before key code runs, and the scores before tile
 * code runs. */
typedef enum attn_key_input { ATTN_KEY_KV_IDX, ATTN_KEY_SCORE, N_ATTN_KEY_INPUTS } attn_key_input;

typedef struct attn_program {
    attn_code row, key, tile;
    int32_t n_row_regs, n_vectors;
    /* the result. Mask: integers, nonzero where a key is visible; scores: floats */
    int32_t result;
    bool result_is_float;
    bool uses_h, uses_b, uses_n_kv; /* which of a query's inputs the program reads */
    bool may_fault;                 /* true if some instruction can fault */
    int32_t n_arrays;
    attn_array arrays[ATTN_PROGRAM_ARRAYS];
} attn_program;

/* Faults of a lane, as bits. */
#define ATTN_FAULT_DIVISION 1u
#define ATTN_FAULT_INDEX    2u
#define ATTN_FAULT_SCORE    4u /* set by attention: the score of a visible key is +infinity or NaN */

/* exp and tanh of n floats; a backend supplies its own versions. out may equal x. */
typedef struct attn_functions {
    void (*exp)(const float *x, int32_t n, float *out);
    void (*tanh)(const float *x, int32_t n, float *out);
} attn_functions;

/* The lanes over which a list of code runs. Each register is `stride` lanes of 8 bytes,
 * aligned to 64; floats use its first half. */
typedef struct attn_lanes {
    void *regs;
    int32_t n, stride;
    const void *row_regs;      /* tile code: the registers of row code */
    int32_t row_stride, query; /* tile code: stride of those registers, and the query's lane in them */
    uint8_t *faults;           /* [n]: a lane's faults are ORed in */
    const attn_functions *functions;
} attn_lanes;

/* Runs one of p's lists of code over the lanes. Any thread. */
typedef void attn_run_fn(const attn_program *p, const attn_code *code, const attn_lanes *lanes);
void attn_run_plain(const attn_program *p, const attn_code *code, const attn_lanes *lanes);

/* Register r of a file as integers or as floats. */
static inline int64_t *attn_ints(const attn_lanes *l, int32_t r) {
    return (int64_t *)l->regs + (int64_t)r * l->stride;
}
static inline float *attn_floats(const attn_lanes *l, int32_t r) {
    return (float *)((int64_t *)l->regs + (int64_t)r * l->stride);
}

/* Bounds of an integer, both included. */
typedef struct attn_range {
    int64_t low, high;
} attn_range;

/* What a query in a rectangle of queries and keys sees: no key, all keys, or unknown. */
typedef enum attn_seen { ATTN_SEES_NONE, ATTN_SEES_ALL, ATTN_SEES_SOME } attn_seen;

/* Bounds of the positions and indices in a rectangle of queries and keys. */
typedef struct attn_rectangle {
    attn_range row[N_ATTN_ROW_INPUTS], kv_idx;
} attn_rectangle;

/* Evaluates a mask over ranges, in a few nanoseconds an instruction. NONE and ALL are
 * certain, and exclude faults in the rectangle; SOME means unknown. Any thread. */
attn_seen attn_program_seen(const attn_program *p, const attn_rectangle *r);

/* ---- a request's mask and change of scores ---- */

/* A request's own mask and change of scores (FlexAttention, arXiv:2412.05496): programs
 * that attention runs in addition to a layer's attn_spec. src/expr compiles them from
 * text.
 *
 * Immutable once made, and reference-counted: a request and its sequences share them. Any
 * thread. */

typedef struct attn_mods {
    attn_program *mask, *score; /* owned; NULL: none */
    void *data;                 /* the elements of the arrays that the programs read, owned; or NULL */
    bool uses_b;
    /* digest of both texts and of the arrays: equal digests give equal attention */
    uint8_t digest[SHA256_BYTES];
} attn_mods;

/* Empty, with one reference. NULL if out of memory. */
attn_mods *attn_mods_new(void);
/* Adds a reference and returns mods. NULL is allowed, also in attn_mods_drop. */
attn_mods *attn_mods_hold(attn_mods *mods);
/* Drops a reference; the last one frees the mods. */
void attn_mods_drop(attn_mods *mods);

#endif

/* The body of an attention program's runner, included once for each instruction set; RUN
 * is the function's name. The compiler vectorises the loops. Every lane is computed by
 * the same operations, so results are equal bit for bit. */
#include <math.h>
#include <string.h>

#include "core/attn_ops.h"
#include "core/attn_program.h"

/* The lanes of an instruction's registers. dst is none of the operands. */
typedef struct lane_operands {
    int32_t n;
    const int64_t *a, *b, *c;
    const float *fa, *fb, *fc;
} lane_operands;

/* Records the fault in lanes where it was found and the condition is nonzero. */
static void note_faults(const attn_lanes *l, const int64_t *condition, const uint8_t *found, unsigned fault) {
    for (int32_t i = 0; i < l->n; i++) {
        l->faults[i] = (uint8_t)(l->faults[i] |
                                 (found[i] != 0 && (condition == NULL || condition[i] != 0) ? fault : 0u));
    }
}

static void run_division(const attn_instruction *at, const attn_lanes *l, const int64_t *a, const int64_t *b,
                         int64_t *d) {
    uint8_t zero[ATTN_PROGRAM_KEYS], any = 0;
    for (int32_t i = 0; i < l->n; i++) {
        zero[i] = b[i] == 0;
        any |= zero[i];
        d[i] = at->op == ATTN_DIV ? attn_div(a[i], b[i]) : attn_mod(a[i], b[i]);
    }
    if (any != 0) {
        note_faults(l, at->c >= 0 ? attn_ints(l, at->c) : NULL, zero, ATTN_FAULT_DIVISION);
    }
}

static void run_check(const attn_instruction *at, const attn_lanes *l, const int64_t *a, int64_t *d) {
    uint8_t outside[ATTN_PROGRAM_KEYS], any = 0;
    for (int32_t i = 0; i < l->n; i++) {
        outside[i] = (uint64_t)a[i] >= (uint64_t)at->value;
        any |= outside[i];
        d[i] = outside[i] ? 0 : a[i];
    }
    if (any != 0) {
        note_faults(l, at->c >= 0 ? attn_ints(l, at->c) : NULL, outside, ATTN_FAULT_INDEX);
    }
}

static void run_load(const attn_program *p, const attn_instruction *at, const attn_lanes *l,
                     const int64_t *a) {
    const void *data = p->arrays[at->array].data;
    if (at->op == ATTN_LOAD) {
        int64_t *d = attn_ints(l, at->dst);
        for (int32_t i = 0; i < l->n; i++) {
            d[i] = ((const int32_t *)data)[a[i]];
        }
    } else {
        float *d = attn_floats(l, at->dst);
        for (int32_t i = 0; i < l->n; i++) {
            d[i] = ((const float *)data)[a[i]];
        }
    }
}

static void run_spread(const attn_instruction *at, const attn_lanes *l) {
    const attn_lanes rows = {.regs = (void *)(uintptr_t)l->row_regs, .stride = l->row_stride};
    int64_t *d = attn_ints(l, at->dst), v = attn_ints(&rows, at->a)[l->query];
    float *fd = attn_floats(l, at->dst), f = attn_floats(&rows, at->a)[l->query];
    if (at->array != 0) {
        for (int32_t i = 0; i < l->n; i++) {
            fd[i] = f;
        }
    } else {
        for (int32_t i = 0; i < l->n; i++) {
            d[i] = v;
        }
    }
}

#define EACH_LANE(TO, VALUE)                                                                                 \
    for (int32_t i = 0; i < n; i++) {                                                                        \
        (TO)[i] = (VALUE);                                                                                   \
    }                                                                                                        \
    return

/* Operations whose result is an integer. */
static void run_ints(attn_op op, const lane_operands *o, int64_t *restrict d) {
    const int32_t n = o->n;
    const int64_t *a = o->a, *b = o->b, *c = o->c;
    const float *fa = o->fa, *fb = o->fb;
    switch (op) {
    case ATTN_ADD:
        EACH_LANE(d, attn_add(a[i], b[i]));
    case ATTN_SUB:
        EACH_LANE(d, attn_sub(a[i], b[i]));
    case ATTN_MUL:
        EACH_LANE(d, attn_mul(a[i], b[i]));
    case ATTN_AND:
        EACH_LANE(d, a[i] & b[i]);
    case ATTN_OR:
        EACH_LANE(d, a[i] | b[i]);
    case ATTN_XOR:
        EACH_LANE(d, a[i] ^ b[i]);
    case ATTN_SHL:
        EACH_LANE(d, attn_shl(a[i], b[i]));
    case ATTN_SHR:
        EACH_LANE(d, attn_shr(a[i], b[i]));
    case ATTN_EQ:
        EACH_LANE(d, a[i] == b[i]);
    case ATTN_NE:
        EACH_LANE(d, a[i] != b[i]);
    case ATTN_LT:
        EACH_LANE(d, a[i] < b[i]);
    case ATTN_LE:
        EACH_LANE(d, a[i] <= b[i]);
    case ATTN_MIN:
        EACH_LANE(d, a[i] < b[i] ? a[i] : b[i]);
    case ATTN_MAX:
        EACH_LANE(d, a[i] > b[i] ? a[i] : b[i]);
    case ATTN_ABS:
        EACH_LANE(d, attn_abs(a[i]));
    case ATTN_SELECT:
        EACH_LANE(d, a[i] != 0 ? b[i] : c[i]);
    case ATTN_FEQ:
        EACH_LANE(d, fa[i] == fb[i]);
    case ATTN_FNE:
        EACH_LANE(d, fa[i] != fb[i]);
    case ATTN_FLT:
        EACH_LANE(d, fa[i] < fb[i]);
    default: /* ATTN_FLE */
        EACH_LANE(d, fa[i] <= fb[i]);
    }
}

/* Operations whose result is a float. */
static void run_floats(attn_op op, const attn_functions *f, const lane_operands *o, float *restrict d) {
    const int32_t n = o->n;
    const int64_t *a = o->a;
    const float *fa = o->fa, *fb = o->fb, *fc = o->fc;
    switch (op) {
    case ATTN_FADD:
        EACH_LANE(d, fa[i] + fb[i]);
    case ATTN_FSUB:
        EACH_LANE(d, fa[i] - fb[i]);
    case ATTN_FMUL:
        EACH_LANE(d, fa[i] * fb[i]);
    case ATTN_FDIV:
        EACH_LANE(d, fa[i] / fb[i]);
    case ATTN_FMIN:
        EACH_LANE(d, attn_fmin(fa[i], fb[i]));
    case ATTN_FMAX:
        EACH_LANE(d, attn_fmax(fa[i], fb[i]));
    case ATTN_FABS:
        EACH_LANE(d, fabsf(fa[i]));
    case ATTN_FLOOR:
        EACH_LANE(d, floorf(fa[i]));
    case ATTN_SQRT:
        EACH_LANE(d, sqrtf(fa[i]));
    case ATTN_EXP:
        f->exp(fa, n, d);
        return;
    case ATTN_TANH:
        f->tanh(fa, n, d);
        return;
    case ATTN_LOG:
        EACH_LANE(d, attn_log(fa[i]));
    case ATTN_SIN:
        EACH_LANE(d, attn_sin(fa[i]));
    case ATTN_COS:
        EACH_LANE(d, attn_cos(fa[i]));
    case ATTN_POW:
        EACH_LANE(d, attn_pow(fa[i], fb[i]));
    case ATTN_FSELECT:
        EACH_LANE(d, a[i] != 0 ? fb[i] : fc[i]);
    default: /* ATTN_TO_FLOAT */
        EACH_LANE(d, (float)a[i]);
    }
}

#undef EACH_LANE

static void run_constant(const attn_instruction *at, const attn_lanes *l) {
    for (int32_t i = 0; i < l->n && at->op == ATTN_INT; i++) {
        attn_ints(l, at->dst)[i] = at->value;
    }
    for (int32_t i = 0; i < l->n && at->op == ATTN_FLOAT; i++) {
        attn_floats(l, at->dst)[i] = at->number;
    }
}

static bool gives_float(attn_op op) {
    return (op >= ATTN_FADD && op <= ATTN_FDIV) || (op >= ATTN_FMIN && op <= ATTN_FSELECT) ||
           op == ATTN_TO_FLOAT;
}

void RUN(const attn_program *p, const attn_code *code, const attn_lanes *l) {
    for (const attn_instruction *at = code->at; at < code->at + code->n; at++) {
        attn_op op = (attn_op)at->op;
        if (op == ATTN_INT || op == ATTN_FLOAT) {
            run_constant(at, l);
            continue;
        }
        if (op == ATTN_SPREAD) {
            run_spread(at, l);
            continue;
        }
        /* negative registers belong to operands that the operation does not use */
        int32_t b = at->b < 0 ? at->a : at->b, c = at->c < 0 ? at->a : at->c;
        lane_operands o = {l->n,
                           attn_ints(l, at->a),
                           attn_ints(l, b),
                           attn_ints(l, c),
                           attn_floats(l, at->a),
                           attn_floats(l, b),
                           attn_floats(l, c)};
        if (op == ATTN_DIV || op == ATTN_MOD) {
            run_division(at, l, o.a, o.b, attn_ints(l, at->dst));
        } else if (op == ATTN_CHECK) {
            run_check(at, l, o.a, attn_ints(l, at->dst));
        } else if (op == ATTN_LOAD || op == ATTN_FLOAD) {
            run_load(p, at, l, o.a);
        } else if (gives_float(op)) {
            run_floats(op, l->functions, &o, attn_floats(l, at->dst));
        } else {
            run_ints(op, &o, attn_ints(l, at->dst));
        }
    }
}

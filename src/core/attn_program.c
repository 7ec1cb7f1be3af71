#include "core/attn_program.h"

#include <math.h>
#include <stdatomic.h>

#include "base/float_bits.h"
#include "base/mem.h"
#include "core/attn_ops.h"

/* Private part: the public struct and its reference count. */
typedef struct counted {
    attn_mods mods;
    atomic_int holders;
} counted;

attn_mods *attn_mods_new(void) {
    counted *c = mem_new(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    atomic_init(&c->holders, 1);
    return &c->mods;
}

attn_mods *attn_mods_hold(attn_mods *mods) {
    if (mods != NULL) {
        atomic_fetch_add(&((counted *)mods)->holders, 1);
    }
    return mods;
}

void attn_mods_drop(attn_mods *mods) {
    if (mods == NULL || atomic_fetch_sub(&((counted *)mods)->holders, 1) > 1) {
        return;
    }
    mem_free(mods->mask);
    mem_free(mods->score);
    mem_free(mods->data);
    mem_free(mods);
}

/* ---- a mask over ranges ---- */

/* Evaluates a mask by interval arithmetic. */

#define FULL      ((attn_range){INT64_MIN, INT64_MAX})
#define TRUTH     ((attn_range){0, 1})
#define SMALL     ((int64_t)1 << 31) /* sums and products of integers up to this magnitude do not overflow */
#define MOST_READ 1024 /* most array elements read for one range; a larger range counts as unknown */

/* Ranges of a program's registers, with floats mapped by attn_program_seen_order_of. The
 * range FULL means nothing is known; a float may be NaN. */
typedef struct attn_ranges {
    const attn_program *p;
    attn_range row[ATTN_PROGRAM_ROW_REGS], vectors[ATTN_PROGRAM_VECTORS];
    bool may_fault;
} attn_ranges;

static attn_range point(int64_t v) {
    return (attn_range){v, v};
}

static bool is_point(attn_range r) {
    return r.low == r.high;
}

static bool attn_program_seen_is_small(attn_range r) {
    return r.low >= -SMALL && r.high <= SMALL;
}

static attn_range either(attn_range a, attn_range b) {
    return (attn_range){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

/* The range of a monotonic operation: that of its results at the four corners. */
static attn_range corners(int64_t (*f)(int64_t, int64_t), attn_range a, attn_range b) {
    return either(either(point(f(a.low, b.low)), point(f(a.low, b.high))),
                  either(point(f(a.high, b.low)), point(f(a.high, b.high))));
}

/* Quotients of a by a range without 0. The caller handles the fault's condition. */
static attn_range attn_program_seen_divide(attn_range a, attn_range b) {
    return attn_program_seen_is_small(a) && attn_program_seen_is_small(b) ? corners(attn_div, a, b) : FULL;
}

static attn_range modulo(attn_range a, attn_range b) {
    if (!is_point(b) || !attn_program_seen_is_small(b) || b.low < 1) {
        return FULL;
    }
    int64_t m = b.low;
    if (a.low >= 0 && a.low / m == a.high / m) {
        return (attn_range){a.low % m, a.high % m};
    }
    return (attn_range){a.low < 0 ? -(m - 1) : 0, a.high > 0 ? m - 1 : 0};
}

/* Whether m is -2^k, so that a & m rounds a down to a multiple of 2^k. */
static bool rounds_down(attn_range m) {
    uint64_t cleared = ~(uint64_t)m.low;
    return is_point(m) && m.low < 0 && (cleared & (cleared + 1)) == 0;
}

/* Range of a & b: a rounded down, or bounded by a non-negative operand. */
static attn_range both_bits(attn_range a, attn_range b) {
    if (rounds_down(b)) {
        return (attn_range){a.low & b.low, a.high & b.low};
    }
    if (rounds_down(a)) {
        return (attn_range){b.low & a.low, b.high & a.low};
    }
    if (a.low < 0 && b.low < 0) {
        return FULL;
    }
    return (attn_range){0, a.low < 0 || (b.low >= 0 && b.high < a.high) ? b.high : a.high};
}

/* Ranges of bitwise operations: exact for two constants, bounds if non-negative. */
static attn_range bits(attn_op op, attn_range a, attn_range b) {
    if (is_point(a) && is_point(b)) {
        return point(op == ATTN_AND ? a.low & b.low : op == ATTN_OR ? a.low | b.low : a.low ^ b.low);
    }
    if (op == ATTN_AND) {
        return both_bits(a, b);
    }
    if (a.low < 0 || b.low < 0) {
        return FULL;
    }
    int64_t top = a.high > b.high ? a.high : b.high, all = 1;
    while (all < top) {
        all = all * 2 + 1;
    }
    return (attn_range){op == ATTN_OR ? (a.low > b.low ? a.low : b.low) : 0, all};
}

static attn_range shift(attn_op op, attn_range a, attn_range b) {
    if (!is_point(b) || b.low < 0 || b.low > 31 || !attn_program_seen_is_small(a)) {
        return FULL;
    }
    return op == ATTN_SHL ? (attn_range){attn_shl(a.low, b.low), attn_shl(a.high, b.low)}
                          : (attn_range){attn_shr(a.low, b.low), attn_shr(a.high, b.low)};
}

static attn_range attn_program_seen_compare(attn_op op, attn_range a, attn_range b) {
    if (op == ATTN_LT || op == ATTN_LE) {
        bool always = op == ATTN_LT ? a.high < b.low : a.high <= b.low,
             never = op == ATTN_LT ? a.low >= b.high : a.low > b.high;
        return always ? point(1) : never ? point(0) : TRUTH;
    }
    if (a.high < b.low || b.high < a.low) {
        return point(op == ATTN_NE);
    }
    return is_point(a) && is_point(b) ? point(op == ATTN_EQ) : TRUTH;
}

/* Maps a float to an integer of the same order; equal floats give equal integers. */
static int64_t attn_program_seen_order_of(float v) {
    int64_t magnitude = float_bits(v) & 0x7fffffffu;
    return v < 0.0f ? -magnitude : magnitude;
}

static attn_range of_float(float v) {
    return isnan(v) ? FULL : point(attn_program_seen_order_of(v));
}

/* Compares floats that were mapped by attn_program_seen_order_of. */
static attn_range compare_floats(attn_op op, attn_range a, attn_range b) {
    bool are_known = a.low > INT64_MIN && b.low > INT64_MIN;
    return are_known ? attn_program_seen_compare((attn_op)(op - ATTN_FEQ + ATTN_EQ), a, b) : TRUTH;
}

static attn_range absolute(attn_range a) {
    if (!attn_program_seen_is_small(a)) {
        return FULL;
    }
    int64_t low = attn_abs(a.low), high = attn_abs(a.high), top = low > high ? low : high;
    return (attn_range){a.low <= 0 && a.high >= 0 ? 0 : low < high ? low : high, top};
}

static attn_range integers(attn_op op, attn_range a, attn_range b) {
    switch (op) {
    case ATTN_ADD:
        return attn_program_seen_is_small(a) && attn_program_seen_is_small(b)
                   ? (attn_range){a.low + b.low, a.high + b.high}
                   : FULL;
    case ATTN_SUB:
        return attn_program_seen_is_small(a) && attn_program_seen_is_small(b)
                   ? (attn_range){a.low - b.high, a.high - b.low}
                   : FULL;
    case ATTN_MUL:
        return attn_program_seen_is_small(a) && attn_program_seen_is_small(b) ? corners(attn_mul, a, b)
                                                                              : FULL;
    case ATTN_AND:
    case ATTN_OR:
    case ATTN_XOR:
        return bits(op, a, b);
    case ATTN_SHL:
    case ATTN_SHR:
        return shift(op, a, b);
    case ATTN_EQ:
    case ATTN_NE:
    case ATTN_LT:
    case ATTN_LE:
        return attn_program_seen_compare(op, a, b);
    case ATTN_MIN:
        return (attn_range){a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high};
    case ATTN_MAX:
        return (attn_range){a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
    case ATTN_ABS:
        return absolute(a);
    case ATTN_TO_FLOAT:
        return (attn_range){attn_program_seen_order_of((float)a.low),
                            attn_program_seen_order_of((float)a.high)};
    case ATTN_FEQ:
    case ATTN_FNE:
    case ATTN_FLT:
    case ATTN_FLE:
        return compare_floats(op, a, b);
    default:
        return FULL;
    }
}

/* The range of the array's elements at these indices. */
static attn_range attn_program_seen_load(const attn_array *array, attn_range index) {
    const int32_t *data = array->data;
    if (index.high - index.low >= MOST_READ) {
        return (attn_range){INT32_MIN, INT32_MAX};
    }
    attn_range r = point(data[index.low]);
    for (int64_t i = index.low + 1; i <= index.high; i++) {
        r = either(r, point(data[i]));
    }
    return r;
}

/* Range of an instruction that may fault; certain only if its condition never holds. */
static attn_range faulting(attn_ranges *s, const attn_instruction *at, const attn_range *file) {
    attn_range a = file[at->a], always = point(1), condition = at->c >= 0 ? file[at->c] : always;
    bool never = is_point(condition) && condition.low == 0;
    if (at->op == ATTN_CHECK) {
        attn_range inside = {a.low > 0 ? a.low : 0, a.high < at->value - 1 ? a.high : at->value - 1};
        bool fits = a.low >= 0 && a.high < at->value;
        s->may_fault = s->may_fault || (!fits && !never);
        return fits ? a : inside.low > inside.high ? point(0) : either(point(0), inside);
    }
    attn_range b = file[at->b];
    bool has_zero = b.low <= 0 && b.high >= 0;
    s->may_fault = s->may_fault || (has_zero && !never);
    if (has_zero) {
        return FULL;
    }
    return at->op == ATTN_DIV ? attn_program_seen_divide(a, b) : modulo(a, b);
}

static attn_range evaluate(attn_ranges *s, const attn_instruction *at, const attn_range *file) {
    attn_op op = (attn_op)at->op;
    switch (op) {
    case ATTN_INT:
        return point(at->value);
    case ATTN_SPREAD:
        return s->row[at->a];
    case ATTN_DIV:
    case ATTN_MOD:
    case ATTN_CHECK:
        return faulting(s, at, file);
    case ATTN_LOAD:
        return attn_program_seen_load(&s->p->arrays[at->array], file[at->a]);
    case ATTN_SELECT:
    case ATTN_FSELECT:
        if (is_point(file[at->a]) || file[at->a].low > 0 || file[at->a].high < 0) {
            return file[at->a].low != 0 ? file[at->b] : file[at->c];
        }
        return either(file[at->b], file[at->c]);
    case ATTN_FLOAT:
        return of_float(at->number);
    default:
        return integers(op, file[at->a], file[at->b < 0 ? at->a : at->b]);
    }
}

static void run_ranges(attn_ranges *s, const attn_code *code, attn_range *file) {
    for (int32_t i = 0; i < code->n && !s->may_fault; i++) {
        file[code->at[i].dst] = evaluate(s, &code->at[i], file);
    }
}

attn_seen attn_program_seen(const attn_program *p, const attn_rectangle *r) {
    attn_ranges s = {.p = p};
    for (int32_t i = 0; i < N_ATTN_ROW_INPUTS; i++) {
        s.row[i] = r->row[i];
    }
    s.vectors[ATTN_KEY_KV_IDX] = r->kv_idx;
    s.vectors[ATTN_KEY_SCORE] = FULL;
    run_ranges(&s, &p->row, s.row);
    run_ranges(&s, &p->key, s.vectors);
    run_ranges(&s, &p->tile, s.vectors);
    attn_range seen = s.vectors[p->result];
    if (s.may_fault || p->result_is_float) {
        return ATTN_SEES_SOME;
    }
    return seen.low > 0 || seen.high < 0 ? ATTN_SEES_ALL : is_point(seen) ? ATTN_SEES_NONE : ATTN_SEES_SOME;
}

/* ---- the runner in plain C ---- */

#define RUN attn_run_plain
#include "core/attn_program_run.inc.h"

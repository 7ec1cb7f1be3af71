/* Operators, with Python's rules. */
#include <math.h>

#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"

static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

/* The error if a or b cannot be an operand of any operator. */
static quire_err check_operands(jrun *r, jvalue a, jvalue b) {
    if (jis(a, J_UNDEFINED) || jis(b, J_UNDEFINED)) {
        return jrun_undefined(r, jis(a, J_UNDEFINED) ? a : b);
    }
    return QUIRE_OK;
}

static quire_err type_error(jrun *r, jop op, jvalue a, jvalue b) {
    TRY(check_operands(r, a, b));
    if (op == OP_ADD && jis(a, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "can only concatenate str (not \"%s\") to str",
                         jvalue_type(b));
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op],
                     jvalue_type(a), jvalue_type(b));
}

/* ---- numbers ---- */

/* Takes a big integer as the result; an error if it is too big. */
static quire_err take_big(jrun *r, jvalue v, jvalue *out) {
    *out = v;
    return jis(v, J_MISSING) ? jrun_too_big(r) : QUIRE_OK;
}

static quire_err big_of(jrun *r, jvalue v, const jbig **out) {
    *out = jbig_of(&r->arena, v);
    return jrun_check_memory(r, *out);
}

static quire_err jinja_ops_multiply(jrun *r, jvalue a, jvalue b, jvalue *out) {
    const jbig *x, *y;
    int64_t value;
    if (jis_integer(a) && jis_integer(b) && !__builtin_mul_overflow(jas_integer(a), jas_integer(b), &value)) {
        *out = jint(value);
        return QUIRE_OK;
    }
    TRY(big_of(r, a, &x));
    TRY(big_of(r, b, &y));
    TRY(jrun_step(r, 1 + x->n * y->n / 8));
    return take_big(r, jbig_multiply(&r->arena, x, y), out);
}

/* Converts an operand of a float operation. */
static quire_err as_double(jrun *r, jvalue v, double *out) {
    *out = jis(v, J_HUGE) ? jbig_to_double(v.u.big) : jas_double(v);
    return jis(v, J_HUGE) && isinf(*out)
               ? jrun_fail(r, QUIRE_BAD_REQUEST, "int too large to convert to float")
               : QUIRE_OK;
}

static quire_err integer_power(jrun *r, jvalue base, jvalue exponent, jvalue *out) {
    if (!jis_integer(exponent)) {
        return jrun_too_big(r);
    }
    int64_t e = jas_integer(exponent);
    if (e < 0) {
        if (jis_integer(base) && jas_integer(base) == 0) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "0.0 cannot be raised to a negative power");
        }
        double f;
        TRY(as_double(r, base, &f));
        *out = jfloat(pow(f, (double)e));
        return QUIRE_OK;
    }
    *out = jint(1);
    while (e > 0) { /* by squaring, without the last square */
        if ((e & 1) != 0) {
            TRY(jinja_ops_multiply(r, *out, base, out));
        }
        e >>= 1;
        if (e > 0) {
            TRY(jinja_ops_multiply(r, base, base, &base));
        }
    }
    return QUIRE_OK;
}

/* Divides, and computes results that do not fit 64 bits. */
static quire_err big_op(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    const jbig *x, *y;
    jvalue quotient, remainder;
    double f;
    TRY(big_of(r, a, &x));
    TRY(big_of(r, b, &y));
    if (op == OP_ADD || op == OP_SUB) {
        return take_big(r, jbig_add(&r->arena, x, y, op == OP_SUB), out);
    }
    if (y->n == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
    }
    TRY(jrun_step(r, 1 + 4 * x->n * (y->n + 1)));
    if (op == OP_DIV) {
        if (!jbig_ratio(&r->arena, x, y, &f)) {
            TRY(jrun_too_big(r));
        }
        *out = jfloat(f);
        return isinf(f) ? jrun_fail(r, QUIRE_BAD_REQUEST, "integer division result too large for a float")
                        : QUIRE_OK;
    }
    if (!jbig_divide(&r->arena, x, y, &quotient, &remainder)) {
        TRY(jrun_too_big(r));
    }
    *out = op == OP_MOD ? remainder : quotient;
    return QUIRE_OK;
}

/* The quotient rounded down, or the remainder with the divisor's sign. */
static int64_t divide_down(int64_t a, int64_t b, bool wants_remainder) {
    int64_t quotient = a / b, remainder = a % b;
    if (remainder != 0 && (remainder < 0) != (b < 0)) {
        quotient -= 1;
        remainder += b;
    }
    return wants_remainder ? remainder : quotient;
}

static quire_err integer_op(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    const int64_t exact = (int64_t)1 << 53;
    if (op == OP_POW) {
        return integer_power(r, a, b, out);
    }
    if (op == OP_MUL) {
        return jinja_ops_multiply(r, a, b, out);
    }
    if (jis_integer(a) && jis_integer(b)) {
        int64_t x = jas_integer(a), y = jas_integer(b), value;
        if ((op == OP_ADD && !__builtin_add_overflow(x, y, &value)) ||
            (op == OP_SUB && !__builtin_sub_overflow(x, y, &value))) {
            *out = jint(value);
            return QUIRE_OK;
        }
        if ((op == OP_MOD || op == OP_FLOOR_DIV) && y != 0 && y != -1) {
            *out = jint(divide_down(x, y, op == OP_MOD));
            return QUIRE_OK;
        }
        /* larger operands would be rounded twice */
        if (op == OP_DIV && y != 0 && x <= exact && x >= -exact && y <= exact && y >= -exact) {
            *out = jfloat((double)x / (double)y);
            return QUIRE_OK;
        }
    }
    return big_op(r, op, a, b, out);
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    return m == 0 ? copysign(0, b) : (m < 0) != (b < 0) ? m + b : m;
}

/* As in Python, subtracts fmod's result before correcting the sign, so that an infinite b
 * works. */
static double float_floor_div(double a, double b) {
    double m = fmod(a, b), quotient = (a - m) / b;
    quotient -= m != 0 && (m < 0) != (b < 0);
    if (quotient == 0) {
        return copysign(0, a / b);
    }
    double down = floor(quotient);
    return quotient - down > 0.5 ? down + 1 : down;
}

static quire_err float_op(jrun *r, jop op, double a, double b, jvalue *out) {
    if (b == 0 && (op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "float division or modulo by zero");
    }
    double value = 0;
    switch (op) {
    case OP_ADD:
        value = a + b;
        break;
    case OP_SUB:
        value = a - b;
        break;
    case OP_MUL:
        value = a * b;
        break;
    case OP_DIV:
        value = a / b;
        break;
    case OP_MOD:
        value = float_mod(a, b);
        break;
    case OP_FLOOR_DIV:
        value = float_floor_div(a, b);
        break;
    case OP_POW:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b))) {
            return jrun_fail(r, a == 0 ? QUIRE_BAD_REQUEST : QUIRE_UNSUPPORTED,
                             "the power of %g and %g is not a number", a, b);
        }
        value = pow(a, b);
        if (isinf(value) && isfinite(a) && isfinite(b)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "Numerical result out of range");
        }
        break;
    }
    *out = jfloat(value);
    return QUIRE_OK;
}

/* ---- texts and lists ---- */

static quire_err add_strings(jrun *r, jvalue a, jvalue b, jvalue *out) {
    bool safe = a.safe || b.safe; /* appending to escaped text escapes the other text */
    if (safe) {
        TRY(jrun_escape(r, a, &a));
        TRY(jrun_escape(r, b, &b));
    }
    str joined;
    TRY(jrun_append(r, a.u.s, b.u.s, &joined));
    *out = jstring(joined);
    out->safe = safe;
    return jrun_step(r, b.u.s.n / 64);
}

static quire_err add_lists(jrun *r, jvalue a, jvalue b, jvalue *out) {
    jvalue *items;
    size_t n = a.u.list->n + b.u.list->n;
    TRY(jrun_values(r, n, &items));
    for (size_t i = 0; i < n; i++) {
        items[i] = i < a.u.list->n ? a.u.list->items[i] : b.u.list->items[i - a.u.list->n];
    }
    return jrun_list(r, (jkind)a.kind, items, n, out);
}

static quire_err repeat_string(jrun *r, str s, size_t times, jvalue *out) {
    if (times > 0 && s.n > JINJA_MAX_BYTES / times) {
        return jrun_fail(r, QUIRE_TOO_LARGE, "a text of %zu times %zu bytes", times, s.n);
    }
    TRY(jrun_step(r, times));
    if (!jarena_repeat(&r->arena, s, times, &s)) {
        TRY(jrun_no_memory(r));
    }
    *out = jstring(s);
    return QUIRE_OK;
}

static quire_err repeat(jrun *r, jvalue v, int64_t count, jvalue *out) {
    size_t times = count > 0 ? (size_t)count : 0;
    if (jis(v, J_STRING)) {
        str s;
        TRY(jrun_to_text(r, v, &s));
        return repeat_string(r, s, times, out);
    }
    const jlist *l = v.u.list;
    if (times > 0 && l->n > JINJA_MAX_BYTES / times) {
        return jrun_fail(r, QUIRE_TOO_LARGE, "a list of %zu times %zu items", times, l->n);
    }
    jvalue *items;
    TRY(jrun_values(r, l->n * times, &items));
    for (size_t i = 0; i < l->n * times; i++) {
        items[i] = l->items[i % l->n];
    }
    return jrun_list(r, (jkind)v.kind, items, l->n * times, out);
}

static bool is_sequence(jvalue v) {
    return jis(v, J_STRING) || jis(v, J_LIST) || jis(v, J_TUPLE);
}

static quire_err jinja_ops_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    if (jis_whole(a) && jis_whole(b)) {
        return integer_op(r, op, a, b, out);
    }
    if ((jis_whole(a) || jis(a, J_FLOAT)) && (jis_whole(b) || jis(b, J_FLOAT))) {
        double x, y;
        TRY(as_double(r, a, &x));
        TRY(as_double(r, b, &y));
        return float_op(r, op, x, y, out);
    }
    if (op == OP_ADD && jis(a, J_STRING) && jis(b, J_STRING)) {
        return add_strings(r, a, b, out);
    }
    if (op == OP_ADD && a.kind == b.kind && (jis(a, J_LIST) || jis(a, J_TUPLE))) {
        return add_lists(r, a, b, out);
    }
    if (op == OP_MUL && is_sequence(a) && jis_integer(b)) {
        return repeat(r, a, jas_integer(b), out);
    }
    if (op == OP_MUL && is_sequence(b) && jis_integer(a)) {
        return repeat(r, b, jas_integer(a), out);
    }
    if (op == OP_MOD && jis(a, J_STRING)) {
        return jformat_percent(r, a, b, out);
    }
    return type_error(r, op, a, b);
}

quire_err jop_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    TRY(jinja_ops_binary(r, op, a, b, out));
    out->is_input = a.is_input || b.is_input;
    return QUIRE_OK;
}

static quire_err jinja_ops_negate(jrun *r, bool minus, jvalue a, jvalue *out) {
    if (jis(a, J_UNDEFINED)) {
        return jrun_undefined(r, a);
    }
    if (jis(a, J_FLOAT)) {
        *out = jfloat(minus ? -a.u.f : a.u.f);
        return QUIRE_OK;
    }
    if (jis(a, J_HUGE) || (minus && jis(a, J_INT) && a.u.i == INT64_MIN)) {
        const jbig *x;
        TRY(big_of(r, a, &x));
        return minus ? take_big(r, jbig_negate(&r->arena, x), out) : take_big(r, a, out);
    }
    if (!jis_integer(a)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                         jvalue_type(a));
    }
    int64_t value = jas_integer(a);
    *out = jint(minus ? -value : value);
    return QUIRE_OK;
}

quire_err jop_negate(jrun *r, bool minus, jvalue a, jvalue *out) {
    TRY(jinja_ops_negate(r, minus, a, out));
    out->is_input = a.is_input;
    return QUIRE_OK;
}

/* ---- comparisons ---- */

static int order_doubles(double a, double b) {
    return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

/* Exact: beyond 2^53, an integer may differ from its double. */
static int order_integer_and_double(int64_t i, double f) {
    if (isnan(f)) {
        return 2;
    }
    if (f < -0x1p63 || f >= 0x1p63) {
        return f < 0 ? 1 : -1;
    }
    int64_t whole = (int64_t)f;
    return i != whole ? (i > whole) - (i < whole) : order_doubles((double)whole, f);
}

static int order_numbers(jvalue a, jvalue b) {
    if (jis_integer(a) && jis_integer(b)) {
        int64_t x = jas_integer(a), y = jas_integer(b);
        return (x > y) - (x < y);
    }
    if (jis(a, J_FLOAT) && jis(b, J_FLOAT)) {
        return order_doubles(a.u.f, b.u.f);
    }
    if (jis_integer(a)) {
        return order_integer_and_double(jas_integer(a), b.u.f);
    }
    int order = order_integer_and_double(jas_integer(b), a.u.f);
    return order == 2 ? 2 : -order;
}

static int order_big(jvalue a, jvalue b) {
    if (jis(a, J_HUGE) && jis(b, J_HUGE)) {
        return jbig_compare(a.u.big, b.u.big);
    }
    if (jis(b, J_HUGE)) {
        int order = order_big(b, a);
        return order == 2 ? 2 : -order;
    }
    if (jis(b, J_FLOAT)) {
        double f = jbig_to_double(a.u.big);
        return order_doubles(f, b.u.f) != 0 || jbig_equals_double(a.u.big, b.u.f) ? order_doubles(f, b.u.f)
               : a.u.big->negative                                                ? -1
                                                                                  : 1;
    }
    return a.u.big->negative ? -1 : 1; /* beyond every 64-bit integer */
}

quire_err jop_order(jrun *r, const char *symbol, jvalue a, jvalue b, int *order) {
    if ((jis(a, J_HUGE) && (jis_whole(b) || jis(b, J_FLOAT))) || (jis(b, J_HUGE) && jis_number(a))) {
        *order = order_big(a, b);
        *order = *order == 2 ? 2 : (*order > 0) - (*order < 0);
        return QUIRE_OK;
    }
    if (jis_number(a) && jis_number(b)) {
        *order = order_numbers(a, b);
        return QUIRE_OK;
    }
    if (jis(a, J_STRING) && jis(b, J_STRING)) {
        int cmp = jstr_compare(a.u.s, b.u.s);
        *order = (cmp > 0) - (cmp < 0);
        return jrun_step(r, (a.u.s.n < b.u.s.n ? a.u.s.n : b.u.s.n) / 64);
    }
    if (a.kind == b.kind && (jis(a, J_LIST) || jis(a, J_TUPLE))) {
        const jlist *x = a.u.list, *y = b.u.list;
        for (size_t i = 0; i < x->n && i < y->n; i++) {
            TRY(jrun_step(r, 1));
            bool matches;
            TRY(jrun_matches(r, x->items[i], y->items[i], &matches));
            if (!matches) {
                return jop_order(r, symbol, x->items[i], y->items[i], order);
            }
        }
        *order = (x->n > y->n) - (x->n < y->n);
        return QUIRE_OK;
    }
    TRY(check_operands(r, a, b));
    return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' not supported between instances of '%s' and '%s'", symbol,
                     jvalue_type(a), jvalue_type(b));
}

static quire_err contains(jrun *r, jvalue container, jvalue item, bool *out) {
    if (jis(container, J_STRING)) {
        if (!jis(item, J_STRING)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "'in <string>' requires string as left operand, not %s",
                             jvalue_type(item));
        }
        *out = jstr_find(container.u.s, item.u.s, 0) != SIZE_MAX;
        return jrun_step(r, container.u.s.n / 64);
    }
    if (jis(container, J_DICT)) {
        const jvalue *found;
        TRY(jrun_get(r, container.u.dict, item, &found));
        *out = found != NULL;
        return QUIRE_OK;
    }
    const jvalue *items;
    size_t n;
    if (!jis(container, J_UNDEFINED) && !jis(container, J_RANGE) && !jis_listlike(container)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "argument of type '%s' is not iterable",
                         jvalue_type(container));
    }
    TRY(jrun_items(r, container, &items, &n));
    *out = false;
    for (size_t i = 0; i < n && !*out; i++) {
        TRY(jrun_matches(r, items[i], item, out));
    }
    return QUIRE_OK;
}

quire_err jop_compare(jrun *r, jcompare op, jvalue a, jvalue b, bool *out) {
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    if (op == CMP_IN || op == CMP_NOT_IN) {
        TRY(contains(r, b, a, out));
        *out = *out == (op == CMP_IN);
        return QUIRE_OK;
    }
    if (op == CMP_EQ || op == CMP_NE) {
        TRY(jrun_equal(r, a, b, out));
        *out = *out == (op == CMP_EQ);
        return QUIRE_OK;
    }
    int order;
    TRY(jop_order(r, names[op], a, b, &order));
    *out = op == CMP_LT   ? order < 0
           : op == CMP_LE ? order <= 0
           : op == CMP_GT ? order == 1
                          : order == 0 || order == 1;
    return QUIRE_OK;
}

/* Operators, with Python's rules. */
#include <math.h>

#include "jinja/jinja_run.h"

static const char *const symbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

/* The error of an operand that no operator takes, if a or b is one. */
static quire_err check_operands(jrun *r, jvalue a, jvalue b) {
    if (jis(a, J_UNDEFINED) || jis(b, J_UNDEFINED)) {
        return jrun_undefined(r, jis(a, J_UNDEFINED) ? a : b);
    }
    return jis(a, J_HUGE) || jis(b, J_HUGE) ? jrun_too_big(r) : QUIRE_OK;
}

static quire_err type_error(jrun *r, jop op, jvalue a, jvalue b) {
    TRY(check_operands(r, a, b));
    if (op == OP_ADD && jis(a, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "can only concatenate str (not \"%s\") to str", jvalue_type(b));
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op], jvalue_type(a),
                     jvalue_type(b));
}

/* ---- numbers ---- */

static quire_err integer_power(jrun *r, int64_t base, int64_t exponent, jvalue *out) {
    if (exponent < 0) {
        if (base == 0) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "0.0 cannot be raised to a negative power");
        }
        *out = jfloat(pow((double)base, (double)exponent));
        return QUIRE_OK;
    }
    int64_t value = 1;
    for (; exponent > 0 && base != 1 && value != 0; exponent--) {
        if (base == -1) {
            value = exponent % 2 == 0 ? 1 : -1;
            break;
        }
        if (__builtin_mul_overflow(value, base, &value)) {
            return jrun_too_big(r);
        }
    }
    *out = jint(value);
    return QUIRE_OK;
}

/* Quotient rounded down, remainder with the divisor's sign. */
static quire_err integer_divide(jrun *r, int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (b == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "integer division or modulo by zero");
    }
    if (a == INT64_MIN && b == -1) {
        return jrun_too_big(r);
    }
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *quotient -= 1;
        *remainder += b;
    }
    return QUIRE_OK;
}

static quire_err integer_op(jrun *r, jop op, int64_t a, int64_t b, jvalue *out) {
    int64_t value = 0, other = 0;
    switch (op) {
    case OP_ADD:
        TRY(__builtin_add_overflow(a, b, &value) ? jrun_too_big(r) : QUIRE_OK);
        break;
    case OP_SUB:
        TRY(__builtin_sub_overflow(a, b, &value) ? jrun_too_big(r) : QUIRE_OK);
        break;
    case OP_MUL:
        TRY(__builtin_mul_overflow(a, b, &value) ? jrun_too_big(r) : QUIRE_OK);
        break;
    case OP_FLOOR_DIV:
        TRY(integer_divide(r, a, b, &value, &other));
        break;
    case OP_MOD:
        TRY(integer_divide(r, a, b, &other, &value));
        break;
    case OP_POW:
        return integer_power(r, a, b, out);
    case OP_DIV:
        if (b == 0) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "division by zero");
        }
        if (a > 0x20000000000000 || a < -0x20000000000000 || b > 0x20000000000000 || b < -0x20000000000000) {
            return jrun_too_big(r); /* a double would round twice */
        }
        *out = jfloat((double)a / (double)b);
        return QUIRE_OK;
    }
    *out = jint(value);
    return QUIRE_OK;
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    return m == 0 ? copysign(0, b) : (m < 0) != (b < 0) ? m + b : m;
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
    case OP_FLOOR_DIV: {
        double m = float_mod(a, b);
        value = (a - m) / b;
        double down = floor(value);
        value = value - down > 0.5 ? down + 1 : down;
        break;
    }
    case OP_POW:
        if ((a == 0 && b < 0) || (a < 0 && b != floor(b))) {
            return jrun_fail(r, a == 0 ? QUIRE_BAD_REQUEST : QUIRE_UNSUPPORTED, "the power of %g and %g is not a number", a, b);
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
    bool safe = a.safe || b.safe; /* text joined to escaped text is escaped too */
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
    char *p = jarena_bytes(&r->arena, s.n * times);
    TRY(jrun_check_memory(r, p));
    for (size_t i = 0; i < times && s.n > 0; i++) {
        memcpy(p + i * s.n, s.p, s.n);
    }
    *out = jstring((str){p, s.n * times});
    return jrun_step(r, times);
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

quire_err jop_binary(jrun *r, jop op, jvalue a, jvalue b, jvalue *out) {
    if (jis_integer(a) && jis_integer(b)) {
        return integer_op(r, op, jas_integer(a), jas_integer(b), out);
    }
    if (jis_number(a) && jis_number(b)) {
        return float_op(r, op, jas_double(a), jas_double(b), out);
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
        return jrun_fail(r, QUIRE_UNSUPPORTED, "formatting with %% is not supported");
    }
    return type_error(r, op, a, b);
}

quire_err jop_negate(jrun *r, bool minus, jvalue a, jvalue *out) {
    if (jis(a, J_UNDEFINED)) {
        return jrun_undefined(r, a);
    }
    if (jis(a, J_FLOAT)) {
        *out = jfloat(minus ? -a.u.f : a.u.f);
        return QUIRE_OK;
    }
    if (jis(a, J_HUGE)) {
        return jrun_too_big(r);
    }
    if (!jis_integer(a)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "bad operand type for unary %c: '%s'", minus ? '-' : '+', jvalue_type(a));
    }
    int64_t value = jas_integer(a);
    if (minus && value == INT64_MIN) {
        return jrun_too_big(r);
    }
    *out = jint(minus ? -value : value);
    return QUIRE_OK;
}

/* ---- comparisons ---- */

static int order_doubles(double a, double b) {
    return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

static int order_numbers(jvalue a, jvalue b) {
    if (jis_integer(a) && jis_integer(b)) {
        int64_t x = jas_integer(a), y = jas_integer(b);
        return (x > y) - (x < y);
    }
    /* Beyond 2^53 an integer and its double may differ where the doubles are equal. */
    int order = order_doubles(jas_double(a), jas_double(b));
    return order == 0 && !jvalue_equal(a, b)
               ? (jis_integer(a) ? (jas_integer(a) > (int64_t)b.u.f ? 1 : -1) : ((int64_t)a.u.f > jas_integer(b) ? 1 : -1))
               : order;
}

quire_err jop_order(jrun *r, const char *symbol, jvalue a, jvalue b, int *order) {
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
            if (!jvalue_equal(x->items[i], y->items[i])) {
                return jop_order(r, symbol, x->items[i], y->items[i], order);
            }
        }
        *order = (x->n > y->n) - (x->n < y->n);
        return QUIRE_OK;
    }
    TRY(check_operands(r, a, b));
    return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' not supported between instances of '%s' and '%s'", symbol, jvalue_type(a), jvalue_type(b));
}

static quire_err contains(jrun *r, jvalue container, jvalue item, bool *out) {
    if (jis(container, J_STRING)) {
        if (!jis(item, J_STRING)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "'in <string>' requires string as left operand, not %s", jvalue_type(item));
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
        return jrun_fail(r, QUIRE_BAD_REQUEST, "argument of type '%s' is not iterable", jvalue_type(container));
    }
    TRY(jrun_items(r, container, &items, &n));
    *out = false;
    for (size_t i = 0; i < n && !*out; i++) {
        *out = jvalue_equal(items[i], item);
    }
    return QUIRE_OK;
}

quire_err jop_compare(jrun *r, jcompare op, jvalue a, jvalue b, bool *out) {
    TRY(jrun_unmarked(r, &a));
    TRY(jrun_unmarked(r, &b));
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    if (op == CMP_IN || op == CMP_NOT_IN) {
        TRY(contains(r, b, a, out));
        *out = *out == (op == CMP_IN);
        return QUIRE_OK;
    }
    if (jis(a, J_HUGE) || jis(b, J_HUGE)) {
        return jrun_too_big(r);
    }
    if (op == CMP_EQ || op == CMP_NE) {
        *out = jvalue_equal(a, b) == (op == CMP_EQ);
        return QUIRE_OK;
    }
    int order;
    TRY(jop_order(r, names[op], a, b, &order));
    *out = op == CMP_LT ? order < 0 : op == CMP_LE ? order <= 0 : op == CMP_GT ? order == 1 : order == 0 || order == 1;
    return QUIRE_OK;
}

#include "jinja/jinja_big.h"

#include <assert.h>
#include <math.h>

#include "base/mem.h"

static jbig *new_big(jarena *a, size_t n) {
    jbig *b = n > 2 * JBIG_MAX_LIMBS + 2 ? NULL : jarena_new(a, sizeof *b + (n + 1) * sizeof *b->limbs);
    if (b != NULL) {
        b->n = n;
    }
    return b;
}

static void jinja_big_trim(jbig *b) {
    while (b->n > 0 && b->limbs[b->n - 1] == 0) {
        b->n--;
    }
}

static jvalue jinja_big_value_of(jbig *b) {
    jinja_big_trim(b);
    if (b->n > JBIG_MAX_LIMBS) {
        return (jvalue){.kind = J_MISSING};
    }
    if (b->n <= 2) {
        uint64_t m = (b->n > 1 ? (uint64_t)b->limbs[1] << 32 : 0) | (b->n > 0 ? b->limbs[0] : 0);
        if (m <= INT64_MAX) {
            return jint(b->negative ? -(int64_t)m : (int64_t)m);
        }
        if (b->negative && m == (uint64_t)INT64_MAX + 1) {
            return jint(INT64_MIN);
        }
    }
    return (jvalue){.kind = J_HUGE, .u.big = b};
}

static const jvalue missing = {.kind = J_MISSING};

const jbig *jbig_of(jarena *a, jvalue v) {
    if (jis(v, J_HUGE)) {
        return v.u.big;
    }
    int64_t i = jas_integer(v);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    jbig *b = new_big(a, 2);
    if (b != NULL) {
        b->negative = i < 0;
        b->limbs[0] = (uint32_t)m;
        b->limbs[1] = (uint32_t)(m >> 32);
        jinja_big_trim(b);
    }
    return b;
}

static int compare_magnitudes(const jbig *x, const jbig *y) {
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    for (size_t i = x->n; i-- > 0;) {
        if (x->limbs[i] != y->limbs[i]) {
            return x->limbs[i] < y->limbs[i] ? -1 : 1;
        }
    }
    return 0;
}

int jbig_compare(const jbig *x, const jbig *y) {
    assert(x != NULL && y != NULL);
    if (x->negative != y->negative) {
        return x->negative ? -1 : 1;
    }
    return x->negative ? compare_magnitudes(y, x) : compare_magnitudes(x, y);
}

static void add_magnitudes(const jbig *x, const jbig *y, jbig *out) {
    uint64_t carry = 0;
    for (size_t i = 0; i < out->n; i++) {
        carry += (uint64_t)(i < x->n ? x->limbs[i] : 0) + (i < y->n ? y->limbs[i] : 0);
        out->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

/* Subtracts magnitudes; x >= y. */
static void subtract_magnitudes(const jbig *x, const jbig *y, jbig *out) {
    int64_t borrow = 0;
    for (size_t i = 0; i < out->n; i++) {
        borrow += (int64_t)(i < x->n ? x->limbs[i] : 0) - (i < y->n ? y->limbs[i] : 0);
        out->limbs[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
}

jvalue jbig_add(jarena *a, const jbig *x, const jbig *y, bool subtract) {
    assert(x != NULL && y != NULL);
    jbig *out = new_big(a, (x->n > y->n ? x->n : y->n) + 1);
    if (out == NULL) {
        return missing;
    }
    bool y_negative = y->negative != subtract;
    if (x->negative == y_negative) {
        add_magnitudes(x, y, out);
        out->negative = x->negative;
    } else {
        bool swap = compare_magnitudes(x, y) < 0;
        subtract_magnitudes(swap ? y : x, swap ? x : y, out);
        out->negative = swap ? y_negative : x->negative;
    }
    return jinja_big_value_of(out);
}

jvalue jbig_negate(jarena *a, const jbig *x) {
    static const jbig zero;
    return jbig_add(a, &zero, x, true);
}

jvalue jbig_multiply(jarena *a, const jbig *x, const jbig *y) {
    assert(x != NULL && y != NULL);
    jbig *out = new_big(a, x->n + y->n);
    if (out == NULL) {
        return missing;
    }
    for (size_t i = 0; i < x->n; i++) {
        uint64_t carry = 0;
        for (size_t k = 0; k < y->n || carry > 0; k++) {
            carry += out->limbs[i + k] + (uint64_t)x->limbs[i] * (k < y->n ? y->limbs[k] : 0);
            out->limbs[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    out->negative = x->negative != y->negative;
    return jinja_big_value_of(out);
}

/* Long division of magnitudes, bit by bit: q = x / y, r = x mod y. q has x->n limbs, r
 * has y->n + 1. */
static void divide_magnitudes(const jbig *x, const jbig *y, jbig *q, jbig *r) {
    size_t n_r = r->n;
    for (size_t bit = 32 * x->n; bit-- > 0;) {
        uint32_t carry = (x->limbs[bit / 32] >> (bit % 32)) & 1;
        r->n = n_r;
        for (size_t i = 0; i < n_r; i++) {
            uint32_t top = r->limbs[i] >> 31;
            r->limbs[i] = (r->limbs[i] << 1) | carry;
            carry = top;
        }
        jinja_big_trim(r);
        if (compare_magnitudes(r, y) >= 0) {
            subtract_magnitudes(r, y, r);
            q->limbs[bit / 32] |= (uint32_t)1 << (bit % 32);
        }
    }
    jinja_big_trim(r);
}

bool jbig_divide(jarena *a, const jbig *x, const jbig *y, jvalue *quotient, jvalue *remainder) {
    assert(x != NULL && y != NULL);
    jbig *q = new_big(a, x->n), *r = new_big(a, y->n + 1);
    if (q == NULL || r == NULL) {
        return false;
    }
    divide_magnitudes(x, y, q, r);
    q->negative = x->negative != y->negative;
    r->negative = x->negative;
    bool corrects = q->negative && r->n > 0;
    *quotient = jinja_big_value_of(q);
    *remainder = jinja_big_value_of(r);
    if (corrects) { /* rounds down, not towards 0 */
        const jbig *one = jbig_of(a, jint(1)), *floor = jbig_of(a, *quotient), *rest = jbig_of(a, *remainder);
        if (one == NULL || floor == NULL || rest == NULL) {
            return false;
        }
        *quotient = jbig_add(a, floor, one, true);
        *remainder = jbig_add(a, rest, y, false);
    }
    return !jis(*quotient, J_MISSING) && !jis(*remainder, J_MISSING);
}

/* b = b * factor + more; b has room for the result. */
static void multiply_small(jbig *b, uint32_t factor, uint32_t more) {
    uint64_t carry = more;
    for (size_t i = 0; i < b->n; i++) {
        carry += (uint64_t)b->limbs[i] * factor;
        b->limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry > 0) {
        b->limbs[b->n++] = (uint32_t)carry;
    }
}

jvalue jbig_parse(jarena *a, str digits, uint32_t base, bool negative) {
    assert(base >= 2 && base <= 36);
    /* six digits of base 36 fit into a limb */
    jbig *b = digits.n > 40 * JBIG_MAX_LIMBS ? NULL : new_big(a, digits.n / 6 + 2);
    if (b == NULL) {
        return missing;
    }
    b->n = 0;
    b->negative = negative;
    for (size_t i = 0; i < digits.n; i++) {
        char c = digits.p[i];
        if (c != '_') {
            multiply_small(b, base, (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10));
        }
    }
    return jinja_big_value_of(b);
}

jvalue jbig_from_double(jarena *a, double f) {
    int exponent;
    double mantissa = frexp(fabs(trunc(f)), &exponent);
    if (exponent <= 62) {
        return jint((int64_t)f);
    }
    uint64_t m = (uint64_t)ldexp(mantissa, 53);
    size_t shift = (size_t)exponent - 53, at = shift / 32, bits = shift % 32;
    jbig *b = new_big(a, at + 3);
    if (b == NULL) {
        return missing;
    }
    b->negative = f < 0;
    b->limbs[at] = (uint32_t)(m << bits);
    b->limbs[at + 1] = (uint32_t)((m << bits) >> 32);
    b->limbs[at + 2] = bits == 0 ? 0 : (uint32_t)(m >> (64 - bits));
    return jinja_big_value_of(b);
}

static size_t n_bits(const jbig *x) {
    return x->n == 0 ? 0 : 32 * x->n - (size_t)__builtin_clz(x->limbs[x->n - 1]);
}

/* The magnitude times 2^-scale, rounded once. sticky: the exact value is larger. */
static double scaled(const jbig *x, bool sticky, int scale) {
    size_t bits = n_bits(x), drop = bits > 64 ? bits - 64 : 0;
    uint64_t top = 0;
    for (size_t i = 0; i < bits - drop; i++) {
        size_t at = bits - 1 - i;
        top = (top << 1) | ((x->limbs[at / 32] >> (at % 32)) & 1);
    }
    for (size_t i = 0; i < drop && !sticky; i++) {
        sticky = (x->limbs[i / 32] >> (i % 32)) & 1;
    }
    return ldexp((double)(top | sticky), (int)drop - scale);
}

double jbig_to_double(const jbig *x) {
    assert(x != NULL);
    double f = scaled(x, false, 0);
    return x->negative ? -f : f;
}

bool jbig_ratio(jarena *a, const jbig *x, const jbig *y, double *out) {
    size_t want = n_bits(y) + 66, have = n_bits(x), shift = want > have ? (want - have + 31) / 32 : 0;
    jbig *wide = new_big(a, x->n + shift), *q = new_big(a, x->n + shift), *r = new_big(a, y->n + 1);
    if (wide == NULL || q == NULL || r == NULL) {
        return false;
    }
    memcpy(wide->limbs + shift, x->limbs, x->n * sizeof *x->limbs);
    divide_magnitudes(wide, y, q, r);
    jinja_big_trim(q);
    *out = scaled(q, r->n > 0, (int)(32 * shift));
    *out = x->negative != y->negative ? -*out : *out;
    return true;
}

quire_err jbig_digits(const jbig *x, uint32_t base, strbuf *out) {
    assert(x != NULL);
    uint32_t *limbs = (uint32_t *)(void *)mem_dup((const char *)x->limbs, x->n * sizeof *limbs);
    TRY(mem_check(limbs));
    size_t n = x->n, start = out->n;
    quire_err e = n == 0 ? strbuf_add_char(out, '0') : QUIRE_OK;
    uint32_t unit = base;
    int n_digits = 1; /* digits of a chunk: as many as fit */
    for (; unit <= UINT32_MAX / base; n_digits++) {
        unit *= base;
    }
    while (n > 0 && e == QUIRE_OK) {
        uint64_t rest = 0;
        for (size_t i = n; i-- > 0;) {
            rest = (rest << 32) | limbs[i];
            limbs[i] = (uint32_t)(rest / unit);
            rest %= unit;
        }
        while (n > 0 && limbs[n - 1] == 0) {
            n--;
        }
        for (int k = 0; e == QUIRE_OK && (n > 0 ? k < n_digits : rest > 0); k++, rest /= base) {
            e = strbuf_add_char(out, "0123456789abcdef"[rest % base]);
        }
    }
    for (size_t i = start, k = out->n; e == QUIRE_OK && i + 1 < k; i++) {
        char c = out->p[i];
        out->p[i] = out->p[--k];
        out->p[k] = c;
    }
    mem_free(limbs);
    return e;
}

bool jbig_equals_double(const jbig *x, double f) {
    if (!isfinite(f) || jbig_to_double(x) != f) {
        return false;
    }
    size_t bits = n_bits(x);
    for (size_t i = 0; bits > 53 && i < bits - 53; i++) { /* a double has no bits below this */
        if ((x->limbs[i / 32] >> (i % 32)) & 1) {
            return false;
        }
    }
    return true;
}

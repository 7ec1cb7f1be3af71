/* Tests (x is NAME). args[0] is the tested value. */
#include <math.h>

#include "jinja/jinja_run.h"

/* A test that reads only the value. */
#define PLAIN(name, condition)                                                                               \
    static JFUNCTION(name) {                                                                                 \
        jvalue v = args[0];                                                                                  \
        *out = jbool(condition);                                                                             \
        return QUIRE_OK;                                                                                     \
    }

PLAIN(test_defined, !jis(v, J_UNDEFINED))
PLAIN(test_undefined, jis(v, J_UNDEFINED))
PLAIN(test_none, jis(v, J_NONE))
PLAIN(test_boolean, jis(v, J_BOOL))
PLAIN(test_true, jis(v, J_BOOL) && v.u.b)
PLAIN(test_false, jis(v, J_BOOL) && !v.u.b)
PLAIN(test_integer, jis(v, J_INT) || jis(v, J_HUGE))
PLAIN(test_float, jis(v, J_FLOAT))
PLAIN(test_number, jis_number(v) || jis(v, J_HUGE))
PLAIN(test_string, jis(v, J_STRING))
PLAIN(test_mapping, jis(v, J_DICT))
PLAIN(test_sequence, jis(v, J_STRING) || jis(v, J_LIST) || jis(v, J_TUPLE) || jis(v, J_DICT) ||
                         jis(v, J_RANGE) || jis(v, J_UNDEFINED))
PLAIN(test_iterable, jis(v, J_STRING) || jis_listlike(v) || jis(v, J_DICT) || jis(v, J_RANGE) ||
                         jis(v, J_UNDEFINED) || jis(v, J_LOOP))
PLAIN(test_callable, jis(v, J_UNDEFINED) || jis(v, J_FUNCTION) || jis(v, J_METHOD) || jis(v, J_MACRO) ||
                         jis(v, J_LOOP) || (jis(v, J_TURNS) && v.u.turns->joins))
PLAIN(test_escaped, jis(v, J_STRING) && v.safe)

/* how: a jcompare. */
static JFUNCTION(test_compare) {
    bool holds;
    TRY(jop_compare(r, (jcompare)how, args[0], args[1], &holds));
    *out = jbool(holds);
    return QUIRE_OK;
}

/* v % divisor == remainder. */
static quire_err divides(jrun *r, jvalue v, jvalue divisor, int64_t remainder, jvalue *out) {
    if (jis(v, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "not all arguments converted during string formatting");
    }
    TRY(jop_binary(r, OP_MOD, v, divisor, out));
    bool equal;
    TRY(jrun_equal(r, *out, jint(remainder), &equal));
    *out = jbool(equal);
    return QUIRE_OK;
}

/* how: the remainder. */
static JFUNCTION(test_parity) {
    return divides(r, args[0], jint(2), how, out);
}

static JFUNCTION(test_divisibleby) {
    return divides(r, args[0], args[1], 0, out);
}

/* how: CASE_UPPER or CASE_LOWER. */
static JFUNCTION(test_case) {
    str s;
    TRY(jrun_to_text(r, args[0], &s));
    *out = jbool(jcase_is(s, how == CASE_UPPER));
    return QUIRE_OK;
}

/* Python's `is`. Whether equal numbers and texts are one object is an accident there,
 * except for small integers. */
static JFUNCTION(test_sameas) {
    jvalue a = args[0], b = args[1];
    bool equal = false,
         has_place = jis_listlike(a) || jis(a, J_DICT) || jis(a, J_RANGE) || jis(a, J_UNDEFINED);
    TRY(a.kind == b.kind && !has_place ? jrun_equal(r, a, b, &equal) : QUIRE_OK);
    if (equal && jis(a, J_STRING)) {
        equal = a.u.s.p == b.u.s.p && a.u.s.n == b.u.s.n;
        TRY(equal ? QUIRE_OK : jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal texts is not supported"));
    } else if (equal && (jis(a, J_FLOAT) || (jis(a, J_INT) && (a.u.i < -5 || a.u.i > 256)))) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal numbers is not supported");
    } else if (has_place) {
        equal = a.kind == b.kind && a.u.list == b.u.list;
    }
    *out = jbool(equal);
    return QUIRE_OK;
}

/* how: whether a test is meant, and not a filter. */
static JFUNCTION(test_known) {
    const jfunction *f = NULL;
    if (jis(args[0], J_STRING)) {
        f = how ? jinja_find_test(args[0].u.s) : jinja_find_filter(args[0].u.s);
    }
    if (jis(args[0], J_LIST) || jis(args[0], J_DICT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "unhashable type: '%s'", jvalue_type(args[0]));
    }
    *out = jbool(f != NULL);
    return QUIRE_OK;
}

static const jfunction tests[] = {
    {"!=", "value other", test_compare, CMP_NE},
    {"<", "value other", test_compare, CMP_LT},
    {"<=", "value other", test_compare, CMP_LE},
    {"==", "value other", test_compare, CMP_EQ},
    {">", "value other", test_compare, CMP_GT},
    {">=", "value other", test_compare, CMP_GE},
    {"boolean", "value", test_boolean, 0},
    {"callable", "value", test_callable, 0},
    {"defined", "value", test_defined, 0},
    {"divisibleby", "value num", test_divisibleby, 0},
    {"eq", "value other", test_compare, CMP_EQ},
    {"equalto", "value other", test_compare, CMP_EQ},
    {"escaped", "value", test_escaped, 0},
    {"even", "value", test_parity, 0},
    {"false", "value", test_false, 0},
    {"filter", "value", test_known, false},
    {"float", "value", test_float, 0},
    {"ge", "value other", test_compare, CMP_GE},
    {"greaterthan", "value other", test_compare, CMP_GT},
    {"gt", "value other", test_compare, CMP_GT},
    {"in", "value seq", test_compare, CMP_IN},
    {"integer", "value", test_integer, 0},
    {"iterable", "value", test_iterable, 0},
    {"le", "value other", test_compare, CMP_LE},
    {"lessthan", "value other", test_compare, CMP_LT},
    {"lower", "value", test_case, CASE_LOWER},
    {"lt", "value other", test_compare, CMP_LT},
    {"mapping", "value", test_mapping, 0},
    {"ne", "value other", test_compare, CMP_NE},
    {"none", "value", test_none, 0},
    {"number", "value", test_number, 0},
    {"odd", "value", test_parity, 1},
    {"sameas", "value other", test_sameas, 0},
    {"sequence", "value", test_sequence, 0},
    {"string", "value", test_string, 0},
    {"test", "value", test_known, true},
    {"true", "value", test_true, 0},
    {"undefined", "value", test_undefined, 0},
    {"upper", "value", test_case, CASE_UPPER},
};

const jfunction *jinja_find_test(str name) {
    return jfunction_find(tests, sizeof tests / sizeof tests[0], name);
}

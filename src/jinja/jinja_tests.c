/* Tests (x is NAME). args[0] is the tested value. */
#include <math.h>

#include "jinja/jinja_run.h"

#define TEST(name) static quire_err name(jrun *r, const jvalue *args, const jargs *rest, jvalue *out)
/* A test that reads only the value. */
#define PLAIN(name, condition)                                                                                                             \
    TEST(name) {                                                                                                                           \
        (void)r, (void)rest;                                                                                                               \
        jvalue v = args[0];                                                                                                                \
        *out = jbool(condition);                                                                                                           \
        return QUIRE_OK;                                                                                                                   \
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
PLAIN(test_sequence, jis(v, J_STRING) || jis(v, J_LIST) || jis(v, J_TUPLE) || jis(v, J_DICT) || jis(v, J_RANGE) || jis(v, J_UNDEFINED))
PLAIN(test_iterable, jis(v, J_STRING) || jis_listlike(v) || jis(v, J_DICT) || jis(v, J_RANGE) || jis(v, J_UNDEFINED) || jis(v, J_LOOP))
PLAIN(test_callable, jis(v, J_UNDEFINED) || jis(v, J_FUNCTION) || jis(v, J_METHOD) || jis(v, J_MACRO) || jis(v, J_LOOP))
PLAIN(test_escaped, jis(v, J_STRING) && v.safe)

static quire_err compare(jrun *r, jcompare op, const jvalue *args, jvalue *out) {
    bool holds;
    TRY(jop_compare(r, op, args[0], args[1], &holds));
    *out = jbool(holds);
    return QUIRE_OK;
}

TEST(test_eq) {
    (void)rest;
    return compare(r, CMP_EQ, args, out);
}
TEST(test_ne) {
    (void)rest;
    return compare(r, CMP_NE, args, out);
}
TEST(test_lt) {
    (void)rest;
    return compare(r, CMP_LT, args, out);
}
TEST(test_le) {
    (void)rest;
    return compare(r, CMP_LE, args, out);
}
TEST(test_gt) {
    (void)rest;
    return compare(r, CMP_GT, args, out);
}
TEST(test_ge) {
    (void)rest;
    return compare(r, CMP_GE, args, out);
}
TEST(test_in) {
    (void)rest;
    return compare(r, CMP_IN, args, out);
}

/* v % divisor == remainder. */
static quire_err divides(jrun *r, jvalue v, jvalue divisor, int64_t remainder, jvalue *out) {
    if (jis(v, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "not all arguments converted during string formatting");
    }
    TRY(jop_binary(r, OP_MOD, v, divisor, out));
    *out = jbool(jvalue_equal(*out, jint(remainder)));
    return QUIRE_OK;
}

TEST(test_odd) {
    (void)rest;
    return divides(r, args[0], jint(2), 1, out);
}
TEST(test_even) {
    (void)rest;
    return divides(r, args[0], jint(2), 0, out);
}
TEST(test_divisibleby) {
    (void)rest;
    return divides(r, args[0], args[1], 0, out);
}

static quire_err has_case(jrun *r, jvalue v, bool upper, jvalue *out) {
    str s;
    TRY(jrun_to_text(r, v, &s));
    *out = jbool(jcase_is(s, upper));
    return QUIRE_OK;
}

TEST(test_lower) {
    (void)rest;
    return has_case(r, args[0], false, out);
}
TEST(test_upper) {
    (void)rest;
    return has_case(r, args[0], true, out);
}

/* Python's `is`. Whether equal numbers and texts are one object is an accident there, except for small integers. */
TEST(test_sameas) {
    jvalue a = args[0], b = args[1];
    (void)rest;
    bool equal = a.kind == b.kind && jvalue_equal(a, b);
    if (equal && jis(a, J_STRING)) {
        equal = a.u.s.p == b.u.s.p && a.u.s.n == b.u.s.n;
        TRY(equal ? QUIRE_OK : jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal texts is not supported"));
    } else if (equal && (jis(a, J_FLOAT) || (jis(a, J_INT) && (a.u.i < -5 || a.u.i > 256)))) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal numbers is not supported");
    } else if (jis_listlike(a) || jis(a, J_DICT) || jis(a, J_RANGE) || jis(a, J_UNDEFINED)) {
        equal = a.kind == b.kind && a.u.list == b.u.list;
    }
    *out = jbool(equal);
    return QUIRE_OK;
}

static quire_err names_function(jrun *r, const jvalue *args, bool test, jvalue *out) {
    bool missing = false;
    const jfunction *f = NULL;
    (void)r;
    if (jis(args[0], J_STRING)) {
        f = test ? jinja_find_test(args[0].u.s, &missing) : jinja_find_filter(args[0].u.s, &missing);
    }
    *out = jbool(f != NULL || missing);
    return QUIRE_OK;
}

TEST(test_filter) {
    (void)rest;
    return names_function(r, args, false, out);
}
TEST(test_test) {
    (void)rest;
    return names_function(r, args, true, out);
}

static const jfunction tests[] = {
    {"!=", "value other", test_ne},
    {"<", "value other", test_lt},
    {"<=", "value other", test_le},
    {"==", "value other", test_eq},
    {">", "value other", test_gt},
    {">=", "value other", test_ge},
    {"boolean", "value", test_boolean},
    {"callable", "value", test_callable},
    {"defined", "value", test_defined},
    {"divisibleby", "value num", test_divisibleby},
    {"eq", "value other", test_eq},
    {"equalto", "value other", test_eq},
    {"escaped", "value", test_escaped},
    {"even", "value", test_even},
    {"false", "value", test_false},
    {"filter", "value", test_filter},
    {"float", "value", test_float},
    {"ge", "value other", test_ge},
    {"greaterthan", "value other", test_gt},
    {"gt", "value other", test_gt},
    {"in", "value seq", test_in},
    {"integer", "value", test_integer},
    {"iterable", "value", test_iterable},
    {"le", "value other", test_le},
    {"lessthan", "value other", test_lt},
    {"lower", "value", test_lower},
    {"lt", "value other", test_lt},
    {"mapping", "value", test_mapping},
    {"ne", "value other", test_ne},
    {"none", "value", test_none},
    {"number", "value", test_number},
    {"odd", "value", test_odd},
    {"sameas", "value other", test_sameas},
    {"sequence", "value", test_sequence},
    {"string", "value", test_string},
    {"test", "value", test_test},
    {"true", "value", test_true},
    {"undefined", "value", test_undefined},
    {"upper", "value", test_upper},
};

const jfunction *jinja_find_test(str name, bool *missing) {
    *missing = false;
    return jfunction_find(tests, sizeof tests / sizeof tests[0], name);
}

/* Functions that every template can use: Jinja's, and those that transformers adds. */
#include <math.h>

#include "base/clock.h"
#include "jinja/jinja_filters.h"
#include "jinja/jinja_run.h"

static JFUNCTION(global_raise_exception) {
    str s;
    TRY(jrun_to_text(r, args[0], &s));
    return err_set(r->err, QUIRE_BAD_REQUEST, -1, "%.*s", (int)(s.n > 480 ? 480 : s.n), s.p);
}

static JFUNCTION(global_range) {
    enum { MAX_RANGE = 100000 }; /* limit of Jinja's sandbox */
    int64_t bounds[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (!jis(args[i], J_MISSING)) {
            TRY(jrun_want_integer(r, args[i], "an argument of range", &bounds[i]));
        }
    }
    jrange *range = jarena_new(&r->arena, sizeof *range);
    TRY(jrun_check_memory(r, range));
    bool one = jis(args[1], J_MISSING);
    *range = (jrange){.start = one ? 0 : bounds[0], .stop = one ? bounds[0] : bounds[1], .step = bounds[2]};
    int64_t distance;
    if (range->step == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "range() arg 3 must not be zero");
    }
    bool wide = range->step == INT64_MIN || __builtin_sub_overflow(range->stop, range->start, &distance) ||
                distance == INT64_MIN;
    if (!wide && (distance > 0) == (range->step > 0) && distance != 0) {
        int64_t size = range->step > 0 ? range->step : -range->step,
                length = distance > 0 ? distance : -distance;
        range->n = (length - 1) / size + 1;
    }
    if (wide || range->n > MAX_RANGE) {
        return jrun_fail(r, QUIRE_BAD_REQUEST,
                         "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    }
    *out = (jvalue){.kind = J_RANGE, .u.range = range};
    return QUIRE_OK;
}

static quire_err gather_pairs(jrun *r, jvalue pairs, jdict *d) {
    const jvalue *items, *pair;
    size_t n, n_pair;
    if (jis(pairs, J_UNDEFINED)) {
        TRY(jrun_undefined(r, pairs));
    }
    TRY(jrun_items(r, pairs, &items, &n));
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_items(r, items[i], &pair, &n_pair));
        if (n_pair != 2) {
            return jrun_fail(r, QUIRE_BAD_REQUEST,
                             "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                             n_pair);
        }
        TRY(jrun_set(r, d, pair[0], pair[1]));
    }
    return QUIRE_OK;
}

/* Makes a dictionary from another one or from pairs, and from named arguments. */
static quire_err jinja_globals_gather(jrun *r, const jargs *args, jdict **out) {
    size_t n_positional = args->n - args->n_named;
    TRY(jrun_dict(r, out));
    if (n_positional > 1) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "dict expected at most 1 argument, got %zu", n_positional);
    }
    bool is_dict = n_positional == 1 && jis(args->values[0], J_DICT);
    if (n_positional == 1 && !is_dict) {
        TRY(gather_pairs(r, args->values[0], *out));
    }
    for (size_t i = 0; is_dict && i < args->values[0].u.dict->n; i++) {
        TRY(jrun_set(r, *out, args->values[0].u.dict->entries[i].key,
                     args->values[0].u.dict->entries[i].value));
    }
    for (size_t i = n_positional; i < args->n; i++) {
        TRY(jrun_set(r, *out, jstring(args->names[i]), args->values[i]));
    }
    return QUIRE_OK;
}

static JFUNCTION(global_dict) {
    jdict *d;
    TRY(jinja_globals_gather(r, rest, &d));
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    return QUIRE_OK;
}

static JFUNCTION(global_fromkeys) {
    const jvalue *items;
    size_t n;
    jdict *d;
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_dict(r, &d));
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_set(r, d, items[i], jis(args[1], J_MISSING) ? jnone() : args[1]));
    }
    *out = (jvalue){.kind = J_DICT, .u.dict = d};
    return QUIRE_OK;
}

quire_err jrun_check_stored(jrun *r, jvalue name) {
    if (!jis(name, J_STRING) || name.u.s.n == 0 || name.u.s.p[0] != '_') {
        return QUIRE_OK;
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST,
                     "Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                     "'%.*s'. Please rename the attribute.",
                     (int)(name.u.s.n < 80 ? name.u.s.n : 80), name.u.s.p);
}

static JFUNCTION(global_namespace) {
    jdict *d;
    TRY(jinja_globals_gather(r, rest, &d));
    for (size_t i = 0; i < d->n; i++) {
        TRY(jrun_check_stored(r, d->entries[i].key));
    }
    *out = (jvalue){.kind = J_NAMESPACE, .u.dict = d};
    return QUIRE_OK;
}

/* Whether the directives mean the same on every system. */
static bool format_is_known(str format) {
    for (size_t i = 0; i < format.n; i++) {
        if (format.p[i] == '\0') {
            return false;
        }
        if (format.p[i] == '%') {
            i += i + 1 < format.n && format.p[i + 1] == '-' ? 2 : 1; /* "%-": without padding */
            if (i >= format.n || format.p[i] == '\0' ||
                strchr("aAbBcdeDFHIjklmMnpPrRsStTuUwWxXyYGgVCh%", format.p[i]) == NULL) {
                return false;
            }
        }
    }
    return true;
}

static JFUNCTION(global_strftime_now) {
    str format;
    char pattern[256], text[1024];
    struct tm local;
    TRY(jrun_want_text(r, args[0], "the format", &format));
    if (!format_is_known(format) || format.n + 2 > sizeof pattern) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "this date format is not supported");
    }
    memcpy(pattern, format.p, format.n);
    memcpy(pattern + format.n, ".", 2); /* tells an empty result from a failure */
    time_t now = (time_t)clock_unix_s();
    const struct tm *tm = r->now != NULL ? r->now : localtime_r(&now, &local);
    size_t n = tm == NULL ? 0 : strftime(text, sizeof text, pattern, tm);
    if (n == 0) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "the date is too long");
    }
    return jrun_text(r, (str){text, n - 1}, out);
}

static quire_err make_turns(jrun *r, const jvalue *items, size_t n, bool joins, jvalue *out) {
    jturns *t = jarena_new(&r->arena, sizeof *t);
    jvalue *copy;
    TRY(jrun_check_memory(r, t));
    TRY(jrun_values(r, n, &copy));
    for (size_t i = 0; i < n; i++) {
        copy[i] = items[i];
    }
    *t = (jturns){.items = copy, .n = n, .joins = joins};
    *out = (jvalue){.kind = J_TURNS, .u.turns = t};
    return QUIRE_OK;
}

static JFUNCTION(global_cycler) {
    if (rest->n == 0 || rest->n_named > 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "cycler takes at least one item and no named arguments");
    }
    return make_turns(r, rest->values, rest->n, false, out);
}

static JFUNCTION(global_joiner) {
    jvalue separator = jis(args[0], J_MISSING) ? jstring(str_of(", ")) : args[0];
    return make_turns(r, &separator, 1, true, out);
}

static const jfunction globals[] = {
    {"cycler", "*", global_cycler, 0},
    {"joiner", "?sep", global_joiner, 0},
    {"lipsum", "", NULL, 0},
    {"dict", "*", global_dict, 0},
    {"dict.fromkeys", "keys ?value", global_fromkeys, 0},
    {"namespace", "*", global_namespace, 0},
    {"raise_exception", "message", global_raise_exception, 0},
    {"range", "start ?stop ?step /", global_range, 0},
    {"strftime_now", "format", global_strftime_now, 0},
};

const jfunction *jinja_find_global(str name) {
    return jfunction_find(globals, sizeof globals / sizeof globals[0], name);
}

/* Tests (x is NAME). args[0] is the tested value. */

/* Defines a test that reads only the value. */
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

/* Comparisons as tests. how: a jcompare. */
static JFUNCTION(test_compare) {
    bool holds;
    TRY(jop_compare(r, (jcompare)how, args[0], args[1], &holds));
    *out = jbool(holds);
    return QUIRE_OK;
}

/* Whether v % divisor == remainder. */
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

/* even and odd. how: the remainder. */
static JFUNCTION(test_parity) {
    return divides(r, args[0], jint(2), how, out);
}

static JFUNCTION(test_divisibleby) {
    return divides(r, args[0], args[1], 0, out);
}

/* upper and lower. how: CASE_UPPER or CASE_LOWER. */
static JFUNCTION(test_case) {
    str s;
    TRY(jrun_to_text(r, args[0], &s));
    *out = jbool(jcase_is(s, how == CASE_UPPER));
    return QUIRE_OK;
}

/* Python's `is`. For equal numbers and texts Python leaves open whether they are one
 * object, except for small integers. */
static JFUNCTION(test_sameas) {
    jvalue a = args[0], b = args[1];
    bool equal = false,
         has_place = jis_listlike(a) || jis(a, J_DICT) || jis(a, J_RANGE) || jis(a, J_UNDEFINED);
    if (a.kind == b.kind && !has_place) {
        TRY(jrun_equal(r, a, b, &equal));
    }
    if (equal && jis(a, J_STRING)) {
        equal = a.u.s.p == b.u.s.p && a.u.s.n == b.u.s.n;
        if (!equal) {
            TRY(jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal texts is not supported"));
        }
    } else if (equal && (jis(a, J_FLOAT) || (jis(a, J_INT) && (a.u.i < -5 || a.u.i > 256)))) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "sameas of equal numbers is not supported");
    } else if (has_place) {
        equal = a.kind == b.kind && a.u.list == b.u.list;
    }
    *out = jbool(equal);
    return QUIRE_OK;
}

/* Whether a filter or test is known. how: true for tests. */
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

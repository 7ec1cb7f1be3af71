/* Filters of texts and numbers, and the table of all filters. args[0] is the input. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/jinja_big.h"
#include "jinja/jinja_filters.h"

/* Calls the string method with this name on the input's text. */
static quire_err by_method(jrun *r, const char *method, const jvalue *args, size_t n, jvalue *out) {
    str s;
    jvalue self;
    TRY(jrun_to_text(r, args[0], &s));
    self = jstring(s);
    size_t given = 0;
    while (given + 1 < n && !jis(args[given + 1], J_MISSING)) {
        given++;
    }
    jargs rest = {.values = args + 1, .n = given};
    return jcall_function(r, jinja_find_method(self, str_of(method)), &self, &rest, out);
}

/* upper, lower, title and others. how: a jcase. */
static JFUNCTION(filter_case) {
    str s;
    TRY(jrun_to_text(r, args[0], &s));
    return jcase_map(r, s, (jcase)how, out);
}

static JFUNCTION(filter_trim) {
    return by_method(r, "strip", args, 2, out);
}

/* string and safe. how: whether the result counts as escaped. */
static JFUNCTION(filter_string) {
    str s;
    *out = args[0];
    if (!jis(args[0], J_STRING)) {
        TRY(jrun_to_text(r, args[0], &s));
        *out = jstring(s);
    }
    out->safe |= how;
    return QUIRE_OK;
}

static JFUNCTION(filter_escape) {
    return jrun_escape(r, args[0], out);
}

static JFUNCTION(filter_replace) {
    str from, to;
    TRY(jrun_to_text(r, args[1], &from));
    TRY(jrun_to_text(r, args[2], &to));
    const jvalue none = {.kind = J_MISSING};
    const jvalue all[] = {args[0], jstring(from), jstring(to), jgiven(args[3]) ? args[3] : none};
    return by_method(r, "replace", all, 4, out);
}

static JFUNCTION(filter_center) {
    const jvalue all[] = {args[0], jis(args[1], J_MISSING) ? jint(80) : args[1]};
    return by_method(r, "center", all, 2, out);
}

static JFUNCTION(filter_default) {
    bool falsy = jflag(args[2]) && !jvalue_truth(args[0]);
    *out = !jis(args[0], J_UNDEFINED) && !falsy ? args[0]
           : jis(args[1], J_MISSING)            ? jstring((str){"", 0})
                                                : args[1];
    return QUIRE_OK;
}

/* The indent that v means: a text, or a number of spaces. */
static quire_err indent_of(jrun *r, jvalue v, const char *what, str *out) {
    int64_t width;
    jvalue spaces;
    if (jis(v, J_STRING)) {
        return jrun_to_text(r, v, out);
    }
    TRY(jrun_want_integer(r, v, what, &width));
    TRY(jop_binary(r, OP_MUL, jstring(str_of(" ")), jint(width), &spaces));
    *out = spaces.u.s;
    return QUIRE_OK;
}

static JFUNCTION(filter_indent) {
    str s, prefix;
    jvalue *lines;
    size_t n;
    bool first = jflag(args[2]), blank = jflag(args[3]);
    TRY(indent_of(r, jis(args[1], J_MISSING) ? jint(4) : args[1], "the width", &prefix));
    TRY(jrun_want_text(r, args[0], "the text to indent", &s));
    str with_end; /* ends with a newline, so that an empty last line counts */
    TRY(jrun_append(r, s, str_of("\n"), &with_end));
    TRY(jstr_split_lines(r, with_end, false, &lines, &n));
    jout_clear(&r->scratch);
    for (size_t i = 0; i < n; i++) {
        bool indents = i == 0 ? first : blank || lines[i].u.s.n > 0;
        if (i > 0) {
            TRY(jrun_add(r, str_of("\n")));
        }
        if (indents) {
            TRY(jrun_add(r, prefix));
        }
        TRY(jrun_add(r, lines[i].u.s));
    }
    return jrun_scratch(r, out);
}

static JFUNCTION(filter_wordcount) {
    str s;
    int64_t words = 0;
    bool in_word = false;
    TRY(jrun_to_text(r, args[0], &s));
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        bool letter = c == '_' || jchar_is_alpha(c) || jchar_is_numeric(c);
        words += letter && !in_word;
        in_word = letter;
    }
    *out = jint(words);
    return QUIRE_OK;
}

/* ---- numbers ---- */

static JFUNCTION(filter_abs) {
    if (jis(args[0], J_FLOAT)) {
        *out = jfloat(fabs(args[0].u.f));
        return QUIRE_OK;
    }
    if (jis(args[0], J_HUGE)) {
        return jop_negate(r, args[0].u.big->negative, args[0], out);
    }
    return jis_integer(args[0]) && jas_integer(args[0]) >= 0 ? jop_negate(r, false, args[0], out)
                                                             : jop_negate(r, true, args[0], out);
}

static int decimal_of(int32_t c) {
    const int32_t first = 0x1d7ce, last = 0x1d7ff; /* mathematical digits: five rows without gaps */
    int value = 0;
    while (c >= first && c <= last ? value < (c - first) % 10
                                   : value < 9 && jchar_is_decimal(c - value - 1)) {
        value++;
    }
    return value;
}

/* Prepares a text for int and float as Python does: strips white space, and turns digits
 * of other scripts into ASCII. */
static quire_err number_text(jrun *r, str s, str *out) {
    *out = s = jstr_strip(s, true, true);
    size_t n = 0, size;
    while (n < s.n && (signed char)s.p[n] >= 0) {
        n++;
    }
    if (n == s.n) {
        return QUIRE_OK;
    }
    char *text = jarena_new(&r->arena, s.n);
    TRY(jrun_check_memory(r, text));
    TRY(jrun_step(r, s.n / 8));
    memcpy(text, s.p, n);
    for (size_t i = n; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        bool is_digit = jchar_is_decimal(c);
        memcpy(text + n, s.p + i, size);
        text[n] = (char)(is_digit ? '0' + decimal_of(c) : text[n]);
        n += is_digit ? 1 : size;
    }
    *out = (str){text, n};
    return QUIRE_OK;
}

/* Parses a Python integer literal with white space around it. base 0: by its prefix. *out
 * is J_MISSING if it is none. */
static quire_err parse_integer(jrun *r, str s, int64_t base, jvalue *out) {
    size_t i = 0;
    TRY(number_text(r, s, &s));
    bool negative = s.n > 0 && s.p[0] == '-';
    *out = (jvalue){.kind = J_MISSING};
    i += s.n > 0 && (s.p[0] == '-' || s.p[0] == '+');
    if (s.n - i > 2 && s.p[i] == '0' && (base == 0 || base == 2 || base == 8 || base == 16)) {
        char c = (char)(s.p[i + 1] | 0x20);
        int64_t prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix != 0 && (base == 0 || base == prefix)) {
            base = prefix;
            i += s.p[i + 2] == '_' ? 3 : 2;
        }
    }
    base = base == 0 ? 10 : base;
    bool digit = false;
    for (size_t k = i; k < s.n; k++) {
        char c = s.p[k];
        int64_t value = c >= '0' && c <= '9'                     ? c - '0'
                        : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                                 : 99;
        if (c == '_' && digit && k + 1 < s.n) {
            digit = false;
        } else if (value < base) {
            digit = true;
        } else {
            return QUIRE_OK;
        }
    }
    if (!digit || base < 2 || base > 36) {
        return QUIRE_OK;
    }
    *out = jbig_parse(&r->arena, (str){s.p + i, s.n - i}, (uint32_t)base, negative);
    return jis(*out, J_MISSING) ? jrun_too_big(r) : jrun_step(r, s.n * s.n / 4096);
}

/* Parses a Python float literal. *parses: whether s is one. */
static quire_err parse_float(jrun *r, str s, double *out, bool *parses) {
    char short_text[128], *text = short_text, *end;
    size_t n = 0;
    TRY(number_text(r, s, &s));
    *parses = false;
    if (s.n >= sizeof short_text) {
        TRY(jrun_step(r, s.n / 8));
        text = jarena_new(&r->arena, s.n + 1);
        TRY(jrun_check_memory(r, text));
    }
    for (size_t i = 0; i < s.n; i++) {
        bool between = i > 0 && i + 1 < s.n && s.p[i - 1] >= '0' && s.p[i - 1] <= '9' && s.p[i + 1] >= '0' &&
                       s.p[i + 1] <= '9';
        if (s.p[i] == '_' && between) {
            continue;
        }
        if (s.p[i] == '\0' || strchr("xXpP(", s.p[i]) != NULL) {
            return QUIRE_OK;
        }
        text[n++] = s.p[i];
    }
    text[n] = '\0';
    *out = strtod(text, &end);
    *parses = n > 0 && end == text + n;
    return QUIRE_OK;
}

static JFUNCTION(filter_float) {
    double value;
    bool parses = false;
    if (jis(args[0], J_UNDEFINED)) {
        return jrun_undefined(r, args[0]);
    }
    if (jis(args[0], J_STRING)) {
        TRY(parse_float(r, args[0].u.s, &value, &parses));
    }
    if (jis(args[0], J_HUGE)) {
        *out = jfloat(jbig_to_double(args[0].u.big));
    } else if (jis_number(args[0])) {
        *out = jfloat(jas_double(args[0]));
    } else if (parses) {
        *out = jfloat(value);
    } else {
        *out = jis(args[1], J_MISSING) ? jfloat(0) : args[1];
    }
    return QUIRE_OK;
}

static quire_err truncate_float(jrun *r, double f, jvalue *out) {
    if (!isfinite(f)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "cannot convert %g to an integer", f);
    }
    *out = jbig_from_double(&r->arena, f);
    return jis(*out, J_MISSING) ? jrun_no_memory(r) : QUIRE_OK;
}

static JFUNCTION(filter_int) {
    int64_t base = 10;
    jvalue parsed = {.kind = J_MISSING};
    double f;
    if (!jis(args[2], J_MISSING)) {
        /* no text is an integer in an invalid base */
        base = jis_integer(args[2]) ? jas_integer(args[2]) : -1;
    }
    *out = jis(args[1], J_MISSING) ? jint(0) : args[1];
    if (jis(args[0], J_UNDEFINED)) {
        return jrun_undefined(r, args[0]);
    }
    if (jis_whole(args[0])) {
        *out = jis(args[0], J_HUGE) ? args[0] : jint(jas_integer(args[0]));
        return QUIRE_OK;
    }
    if (jis(args[0], J_FLOAT)) {
        return isnan(args[0].u.f) ? QUIRE_OK : truncate_float(r, args[0].u.f, out);
    }
    if (jis(args[0], J_STRING)) {
        TRY(parse_integer(r, args[0].u.s, base, &parsed));
    }
    if (!jis(parsed, J_MISSING)) {
        *out = parsed;
        return QUIRE_OK;
    }
    bool parses = false;
    if (jis(args[0], J_STRING)) {
        TRY(parse_float(r, args[0].u.s, &f, &parses));
    }
    return parses && isfinite(f) ? truncate_float(r, f, out) : QUIRE_OK;
}

/* Rounds half to even, to tens, hundreds, ... */
static quire_err round_integer(jrun *r, int64_t v, int64_t precision, jvalue *out) {
    int64_t unit = 1, limit = INT64_MAX / 4;
    if (precision < -17 || v > limit || v < -limit) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "rounding this integer is not supported");
    }
    for (; precision < 0; precision++) {
        unit *= 10;
    }
    int64_t rest = (v % unit + unit) % unit, down = v - rest;
    bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    *out = jint(up ? down + unit : down);
    return QUIRE_OK;
}

/* Rounds the exact value half to even, like Python. */
static double round_float(double f, int64_t precision) {
    char text[700];
    if (!isfinite(f) || precision > 323) {
        return f;
    }
    int n = snprintf(text, sizeof text, "%.*f", precision > 0 ? (int)precision : 0,
                     precision > 0 ? f : trunc(fabs(f)));
    if (precision > 0) {
        return strtod(text, NULL);
    }
    int64_t kept = n + precision; /* digits before the zeros */
    if (kept < 0) {
        return copysign(0, f);
    }
    char last = (char)(kept > 0 ? text[kept - 1] : '0'), next = (char)(kept < n ? text[kept] : '0');
    bool exact = f == trunc(f);
    for (int64_t i = kept + 1; i < n; i++) {
        exact = exact && text[i] == '0';
    }
    bool up = kept == n ? fabs(f) - trunc(fabs(f)) > 0.5 ||
                              (fabs(f) - trunc(fabs(f)) == 0.5 && (last - '0') % 2 != 0)
                        : next > '5' || (next == '5' && (!exact || (last - '0') % 2 != 0));
    for (int64_t i = kept; i < n; i++) {
        text[i] = '0';
    }
    for (int64_t i = kept; up && i-- > 0;) {
        up = text[i] == '9';
        text[i] = (char)(up ? '0' : text[i] + 1);
    }
    double made = strtod(text, NULL) + (up ? pow(10, (double)n) : 0);
    return copysign(made, f);
}

static JFUNCTION(filter_round) {
    int64_t precision = 0;
    str method = str_of("common");
    if (!jis(args[1], J_MISSING)) {
        TRY(jrun_want_integer(r, args[1], "the precision", &precision));
    }
    if (!jis(args[2], J_MISSING)) {
        TRY(jrun_want_text(r, args[2], "the method", &method));
    }
    bool common = str_is(method, "common"), ceiling = str_is(method, "ceil");
    if (!common && !ceiling && !str_is(method, "floor")) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "method must be common, ceil or floor");
    }
    if (!jis_number(args[0])) {
        if (jis(args[0], J_UNDEFINED)) {
            return jrun_undefined(r, args[0]);
        }
        if (jis(args[0], J_HUGE) && common && precision >= 0) {
            *out = args[0];
            return QUIRE_OK;
        }
        quire_err code = jis(args[0], J_HUGE) ? QUIRE_UNSUPPORTED : QUIRE_BAD_REQUEST;
        return jrun_fail(r, code, "type %s doesn't define __round__ method", jvalue_type(args[0]));
    }
    if (common && jis_integer(args[0])) {
        return precision >= 0 ? jop_negate(r, false, args[0], out)
                              : round_integer(r, jas_integer(args[0]), precision, out);
    }
    double f = jas_double(args[0]);
    if (common) {
        *out = jfloat(round_float(f, precision));
    } else if (precision > 300 || precision < -300 || !isfinite(f)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "%g cannot be rounded to %lld digits", f,
                         (long long)precision);
    } else {
        double scale = pow(10, (double)precision);
        if (isinf(f * scale)) {
            return jrun_fail(r, QUIRE_BAD_REQUEST, "cannot convert float infinity to integer");
        }
        *out = jfloat(((ceiling ? ceil(f * scale) : floor(f * scale)) + 0.0) / scale); /* avoids -0.0 */
    }
    return QUIRE_OK;
}

/* ---- tojson ---- */

static quire_err json_separators(jrun *r, jvalue v, jjson_style *style) {
    if ((!jis(v, J_TUPLE) && !jis(v, J_LIST)) || v.u.list->n != 2) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "separators must be two texts");
    }
    TRY(jrun_want_text(r, v.u.list->items[0], "a separator", &style->item_separator));
    return jrun_want_text(r, v.u.list->items[1], "a separator", &style->key_separator);
}

static JFUNCTION(filter_tojson) {
    jjson_style style = {.item_separator = str_of(", "), .key_separator = str_of(": ")};
    style.ascii = jflag(args[1]);
    style.sort_keys = jflag(args[4]);
    if (jgiven(args[2])) {
        style.indented = true;
        style.item_separator = str_of(",");
        TRY(indent_of(r, args[2], "the indent", &style.indent));
    }
    if (jgiven(args[3])) {
        TRY(json_separators(r, args[3], &style));
    }
    jout text = jrun_out(r);
    return jrun_take_text(r, jjson_write(r, args[0], &style, &text), &text, out);
}

static JFUNCTION(filter_attr) {
    str name;
    TRY(jrun_want_text(r, args[1], "the name", &name));
    /* members first, as opposed to keys */
    if (jis(args[0], J_DICT) && jinja_find_method(args[0], name) == NULL) {
        return jrun_make_undefined(r, out, "'dict object' has no attribute '%.*s'",
                                   (int)(name.n < 80 ? name.n : 80), name.p);
    }
    return jget_member(r, args[0], name, out);
}

static const jfunction filters[] = {
    {"urlize", "", NULL, 0},
    {"random", "value", filter_random, 0},
    {"attr", "value name", filter_attr, 0},
    {"filesizeformat", "value ?binary", filter_filesizeformat, 0},
    {"forceescape", "value", filter_forceescape, 0},
    {"format", "value *", filter_format, 0},
    {"groupby", "value attribute ?default ?case_sensitive", filter_groupby, 0},
    {"pprint", "", NULL, 0},
    {"striptags", "value", filter_striptags, 0},
    {"truncate", "value ?length ?killwords ?end ?leeway", filter_truncate, 0},
    {"urlencode", "value", filter_urlencode, 0},
    {"wordwrap", "value ?width ?break_long_words ?wrapstring ?break_on_hyphens", filter_wordwrap, 0},
    {"xmlattr", "value ?autospace", filter_xmlattr, 0},
    {"abs", "value", filter_abs, 0},
    {"batch", "value linecount ?fill_with", filter_batch, 0},
    {"capitalize", "value", filter_case, CASE_CAPITALIZE},
    {"center", "value ?width", filter_center, 0},
    {"count", "value", filter_length, 0},
    {"d", "value ?default_value ?boolean", filter_default, 0},
    {"default", "value ?default_value ?boolean", filter_default, 0},
    {"dictsort", "value ?case_sensitive ?by ?reverse", filter_dictsort, 0},
    {"e", "value", filter_escape, 0},
    {"escape", "value", filter_escape, 0},
    {"first", "value", filter_first, 0},
    {"float", "value ?default", filter_float, 0},
    {"indent", "value ?width ?first ?blank", filter_indent, 0},
    {"int", "value ?default ?base", filter_int, 0},
    {"items", "value", filter_items, 0},
    {"join", "value ?d ?attribute", filter_join, 0},
    {"last", "value", filter_last, 0},
    {"length", "value", filter_length, 0},
    {"list", "value", filter_list, 0},
    {"lower", "value", filter_case, CASE_LOWER},
    {"map", "value *", filter_map, 0},
    {"max", "value ?case_sensitive ?attribute", filter_extreme, 1},
    {"min", "value ?case_sensitive ?attribute", filter_extreme, -1},
    {"reject", "value *", filter_pick, 0},
    {"rejectattr", "value *", filter_pick, PICK_BY_MEMBER},
    {"replace", "value old new ?count", filter_replace, 0},
    {"reverse", "value", filter_reverse, 0},
    {"round", "value ?precision ?method", filter_round, 0},
    {"safe", "value", filter_string, true},
    {"select", "value *", filter_pick, PICK_PASSING},
    {"selectattr", "value *", filter_pick, PICK_BY_MEMBER | PICK_PASSING},
    {"slice", "value slices ?fill_with", filter_slice, 0},
    {"sort", "value ?reverse ?case_sensitive ?attribute", filter_sort, 0},
    {"string", "value", filter_string, false},
    {"sum", "value ?attribute ?start", filter_sum, 0},
    {"title", "value", filter_case, CASE_WORDS},
    {"tojson", "value ?ensure_ascii ?indent ?separators ?sort_keys", filter_tojson, 0},
    {"trim", "value ?chars", filter_trim, 0},
    {"unique", "value ?case_sensitive ?attribute", filter_unique, 0},
    {"upper", "value", filter_case, CASE_UPPER},
    {"wordcount", "value", filter_wordcount, 0},
};

const jfunction *jinja_find_filter(str name) {
    return jfunction_find(filters, sizeof filters / sizeof filters[0], name);
}

/* Methods of strings, lists, dictionaries and loops. args[0] is the object. */
#include "jinja/jinja_methods.h"

bool jarg_given(jvalue v) {
    return !jis(v, J_MISSING) && !jis(v, J_NONE);
}

quire_err jarg_self(jrun *r, const jvalue *args, str *s) {
    return jrun_want_text(r, args[0], "the object", s);
}

quire_err jarg_text(jrun *r, jvalue v, const char *what, str *s) {
    *s = (str){0};
    return jarg_given(v) ? jrun_want_text(r, v, what, s) : QUIRE_OK;
}

quire_err jarg_integer(jrun *r, jvalue v, const char *what, int64_t fallback, int64_t *out) {
    *out = fallback;
    return jarg_given(v) ? jrun_want_integer(r, v, what, out) : QUIRE_OK;
}

quire_err jarg_count(jrun *r, jvalue v, const char *what, int64_t *out) {
    TRY(jarg_integer(r, v, what, -1, out));
    *out = *out < 0 ? -1 : *out;
    return QUIRE_OK;
}

/* ---- case and kinds ---- */

static quire_err map_case(jrun *r, const jvalue *args, jcase how, jvalue *out) {
    str s;
    TRY(jarg_self(r, args, &s));
    return jcase_map(r, s, how, out);
}

static METHOD(str_upper) {
    UNUSED_REST;
    return map_case(r, args, CASE_UPPER, out);
}
static METHOD(str_lower) {
    UNUSED_REST;
    return map_case(r, args, CASE_LOWER, out);
}
static METHOD(str_title) {
    UNUSED_REST;
    return map_case(r, args, CASE_TITLE, out);
}
static METHOD(str_capitalize) {
    UNUSED_REST;
    return map_case(r, args, CASE_CAPITALIZE, out);
}
static METHOD(str_swapcase) {
    UNUSED_REST;
    return map_case(r, args, CASE_SWAP, out);
}

static bool is_space(int32_t c) {
    return c >= 0 && jchar_is_space(c);
}

static bool is_alnum(int32_t c) {
    return jchar_is_alpha(c) || jchar_is_numeric(c);
}

/* True when there are characters and all are of a kind. */
static quire_err all_are(jrun *r, const jvalue *args, bool (*kind)(int32_t c), jvalue *out) {
    str s;
    TRY(jarg_self(r, args, &s));
    bool all = s.n > 0;
    for (size_t i = 0, size; i < s.n && all; i += size) {
        all = kind(jchar_at(s.p + i, s.n - i, &size));
    }
    *out = jbool(all);
    return jrun_step(r, s.n / 16);
}

static METHOD(str_isdigit) {
    UNUSED_REST;
    return all_are(r, args, jchar_is_digit, out);
}
static METHOD(str_isnumeric) {
    UNUSED_REST;
    return all_are(r, args, jchar_is_numeric, out);
}
static METHOD(str_isalpha) {
    UNUSED_REST;
    return all_are(r, args, jchar_is_alpha, out);
}
static METHOD(str_isalnum) {
    UNUSED_REST;
    return all_are(r, args, is_alnum, out);
}
static METHOD(str_isspace) {
    UNUSED_REST;
    return all_are(r, args, is_space, out);
}

static quire_err is_case(jrun *r, const jvalue *args, bool upper, jvalue *out) {
    str s;
    TRY(jarg_self(r, args, &s));
    *out = jbool(jcase_is(s, upper));
    return QUIRE_OK;
}

static METHOD(str_isupper) {
    UNUSED_REST;
    return is_case(r, args, true, out);
}
static METHOD(str_islower) {
    UNUSED_REST;
    return is_case(r, args, false, out);
}

/* ---- stripping ---- */

/* True when the character at p is one of chars (UTF-8). */
static bool in_chars(str chars, const char *p, size_t size) {
    for (size_t i = 0; i < chars.n;) {
        size_t n = jchar_size(chars.p + i, chars.n - i);
        if (n == size && memcmp(chars.p + i, p, n) == 0) {
            return true;
        }
        i += n;
    }
    return false;
}

static quire_err strip(jrun *r, const jvalue *args, bool left, bool right, jvalue *out) {
    str s, chars;
    TRY(jarg_self(r, args, &s));
    TRY(jarg_text(r, args[1], "chars", &chars));
    TRY(jrun_step(r, s.n / 64));
    if (!jarg_given(args[1])) {
        *out = jstring(jstr_strip(s, left, right));
        return QUIRE_OK;
    }
    while (left && s.n > 0) {
        size_t size = jchar_size(s.p, s.n);
        if (!in_chars(chars, s.p, size)) {
            break;
        }
        s.p += size;
        s.n -= size;
    }
    while (right && s.n > 0) {
        size_t at = s.n - 1;
        while (at > 0 && s.n - at < 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80) {
            at--;
        }
        if (!in_chars(chars, s.p + at, s.n - at)) {
            break;
        }
        s.n = at;
    }
    *out = jstring(s);
    return QUIRE_OK;
}

static METHOD(str_strip) {
    UNUSED_REST;
    return strip(r, args, true, true, out);
}
static METHOD(str_lstrip) {
    UNUSED_REST;
    return strip(r, args, true, false, out);
}
static METHOD(str_rstrip) {
    UNUSED_REST;
    return strip(r, args, false, true, out);
}

static bool starts_with(str s, str part) {
    return part.n <= s.n && (part.n == 0 || memcmp(s.p, part.p, part.n) == 0);
}

static bool ends_with(str s, str part) {
    return part.n <= s.n && (part.n == 0 || memcmp(s.p + s.n - part.n, part.p, part.n) == 0);
}

static METHOD(str_removeprefix) {
    str s, part;
    UNUSED_REST;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "the prefix", &part));
    *out = jstring(starts_with(s, part) ? (str){s.p + part.n, s.n - part.n} : s);
    return QUIRE_OK;
}

static METHOD(str_removesuffix) {
    str s, part;
    UNUSED_REST;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "the suffix", &part));
    *out = jstring(ends_with(s, part) ? (str){s.p, s.n - part.n} : s);
    return QUIRE_OK;
}

/* ---- searching ---- */

/* Cuts s to the optional start and end (in characters). *offset: its first character. *beyond: start is behind the end. */
static quire_err window(jrun *r, str *s, jvalue start, jvalue end, int64_t *offset, bool *beyond) {
    int64_t n = (int64_t)jstr_length(*s), from, to;
    TRY(jrun_step(r, s->n / 16));
    TRY(jarg_integer(r, start, "start", 0, &from));
    TRY(jarg_integer(r, end, "end", n, &to));
    from += from < 0 ? n : 0;
    to += to < 0 ? n : 0;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > n ? n : to;
    *beyond = from > to;
    *offset = from;
    *s = jstr_part(*s, (size_t)(from > n ? n : from), (size_t)(to > from ? to - from : 0));
    return QUIRE_OK;
}

/* startswith, endswith: of a string or any of a tuple. */
static quire_err has_end(jrun *r, const jvalue *args, bool (*has)(str s, str part), jvalue *out) {
    str s, part;
    int64_t offset;
    bool beyond;
    TRY(jarg_self(r, args, &s));
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    const jvalue *parts = &args[1];
    size_t n = 1;
    if (jis(args[1], J_TUPLE)) {
        parts = args[1].u.list->items;
        n = args[1].u.list->n;
    }
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_want_text(r, parts[i], "the argument", &part));
        found = found || (!beyond && has(s, part));
    }
    *out = jbool(found);
    return QUIRE_OK;
}

static METHOD(str_startswith) {
    UNUSED_REST;
    return has_end(r, args, starts_with, out);
}
static METHOD(str_endswith) {
    UNUSED_REST;
    return has_end(r, args, ends_with, out);
}

/* The last offset of needle in s, or SIZE_MAX. Compares at every offset, which counts as steps. */
static quire_err find_last(jrun *r, str s, str needle, size_t *at) {
    size_t i = s.n >= needle.n ? s.n - needle.n + 1 : 0, places = 0;
    *at = SIZE_MAX;
    while (i-- > 0 && *at == SIZE_MAX) {
        if (needle.n == 0 || memcmp(s.p + i, needle.p, needle.n) == 0) {
            *at = i;
        }
        if (++places % 1024 == 0) {
            TRY(jrun_step(r, 64 + needle.n));
        }
    }
    return QUIRE_OK;
}

quire_err jstr_find_either(jrun *r, str s, str needle, bool last, size_t *at) {
    if (last) {
        return find_last(r, s, needle, at);
    }
    *at = jstr_find(s, needle, 0);
    return jrun_step(r, (*at == SIZE_MAX ? s.n : *at) / 64);
}

static quire_err find(jrun *r, const jvalue *args, bool last, bool must, jvalue *out) {
    str s, needle;
    int64_t offset;
    bool beyond;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "the argument", &needle));
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    size_t at = SIZE_MAX;
    TRY(beyond ? QUIRE_OK : jstr_find_either(r, s, needle, last, &at));
    if (at == SIZE_MAX && must) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "substring not found");
    }
    *out = jint(at == SIZE_MAX ? -1 : offset + (int64_t)jstr_length((str){s.p, at}));
    return QUIRE_OK;
}

static METHOD(str_find) {
    UNUSED_REST;
    return find(r, args, false, false, out);
}
static METHOD(str_rfind) {
    UNUSED_REST;
    return find(r, args, true, false, out);
}
static METHOD(str_index) {
    UNUSED_REST;
    return find(r, args, false, true, out);
}
static METHOD(str_rindex) {
    UNUSED_REST;
    return find(r, args, true, true, out);
}

static METHOD(str_count) {
    str s, needle;
    int64_t offset, count = 0;
    bool beyond;
    UNUSED_REST;
    TRY(jarg_self(r, args, &s));
    TRY(jrun_want_text(r, args[1], "the argument", &needle));
    TRY(window(r, &s, args[2], args[3], &offset, &beyond));
    if (needle.n == 0) {
        *out = jint(beyond ? 0 : (int64_t)jstr_length(s) + 1);
        return QUIRE_OK;
    }
    for (size_t at = 0; (at = jstr_find(s, needle, at)) != SIZE_MAX; at += needle.n) {
        count++;
    }
    *out = jint(count);
    return QUIRE_OK;
}

/* ---- lists ---- */

static METHOD(list_count) {
    int64_t count = 0;
    UNUSED_REST;
    for (size_t i = 0; i < args[0].u.list->n; i++) {
        count += jvalue_equal(args[0].u.list->items[i], args[1]);
    }
    *out = jint(count);
    return jrun_step(r, args[0].u.list->n);
}

static METHOD(list_index) {
    UNUSED_REST;
    TRY(jrun_step(r, args[0].u.list->n));
    for (size_t i = 0; i < args[0].u.list->n; i++) {
        if (jvalue_equal(args[0].u.list->items[i], args[1])) {
            *out = jint((int64_t)i);
            return QUIRE_OK;
        }
    }
    return jrun_fail(r, QUIRE_BAD_REQUEST, "the value is not in the %s", jvalue_type(args[0]));
}

/* ---- dictionaries ---- */

static quire_err view(jrun *r, const jdict *d, const char *name, jvalue *out) {
    jvalue *items;
    TRY(jrun_values(r, d->n, &items));
    for (size_t i = 0; i < d->n; i++) {
        if (strcmp(name, "dict_items") == 0) {
            jvalue *pair;
            TRY(jrun_values(r, 2, &pair));
            pair[0] = d->entries[i].key;
            pair[1] = d->entries[i].value;
            TRY(jrun_list(r, J_TUPLE, pair, 2, &items[i]));
        } else {
            items[i] = strcmp(name, "dict_keys") == 0 ? d->entries[i].key : d->entries[i].value;
        }
    }
    TRY(jrun_list(r, J_VIEW, items, d->n, out));
    out->u.list->view = name;
    return QUIRE_OK;
}

static METHOD(dict_items) {
    UNUSED_REST;
    return view(r, args[0].u.dict, "dict_items", out);
}
static METHOD(dict_keys) {
    UNUSED_REST;
    return view(r, args[0].u.dict, "dict_keys", out);
}
static METHOD(dict_values) {
    UNUSED_REST;
    return view(r, args[0].u.dict, "dict_values", out);
}

static METHOD(dict_get) {
    uint64_t hash;
    UNUSED_REST;
    if (!jvalue_hash(args[1], &hash)) {
        return jrun_fail(r, jis(args[1], J_HUGE) ? QUIRE_UNSUPPORTED : QUIRE_BAD_REQUEST, "unhashable type: '%s'", jvalue_type(args[1]));
    }
    const jvalue *found = jdict_get(args[0].u.dict, args[1]);
    *out = found != NULL ? *found : jis(args[2], J_MISSING) ? jnone() : args[2];
    return QUIRE_OK;
}

/* Lists and dictionaries do not change, so a copy is the same. */
static METHOD(any_copy) {
    UNUSED_REST, (void)r;
    *out = args[0];
    return QUIRE_OK;
}

/* ---- loops ---- */

static METHOD(loop_cycle) {
    if (rest->n == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "no items for cycling given");
    }
    *out = rest->values[args[0].u.loop->index % rest->n];
    return QUIRE_OK;
}

/* True when the arguments differ from those of the last call. */
static METHOD(loop_changed) {
    jloop *l = args[0].u.loop;
    bool same = l->changed != NULL && l->changed->n == rest->n;
    for (size_t i = 0; i < rest->n && same; i++) {
        same = jvalue_equal(l->changed->values[i], rest->values[i]);
    }
    jargs *now = jarena_new(&r->arena, sizeof *now);
    if (now == NULL) {
        return jrun_no_memory(r);
    }
    *now = *rest;
    l->changed = now;
    *out = jbool(!same);
    return QUIRE_OK;
}

static const jfunction of_string[] = {
    {"upper", "self", str_upper},
    {"lower", "self", str_lower},
    {"title", "self", str_title},
    {"capitalize", "self", str_capitalize},
    {"swapcase", "self", str_swapcase},
    {"isdigit", "self", str_isdigit},
    {"isdecimal", "self", str_isdigit},
    {"isnumeric", "self", str_isnumeric},
    {"isalpha", "self", str_isalpha},
    {"isalnum", "self", str_isalnum},
    {"isspace", "self", str_isspace},
    {"isupper", "self", str_isupper},
    {"islower", "self", str_islower},
    {"strip", "self ?chars", str_strip},
    {"lstrip", "self ?chars", str_lstrip},
    {"rstrip", "self ?chars", str_rstrip},
    {"removeprefix", "self prefix", str_removeprefix},
    {"removesuffix", "self suffix", str_removesuffix},
    {"startswith", "self prefix ?start ?end", str_startswith},
    {"endswith", "self suffix ?start ?end", str_endswith},
    {"find", "self sub ?start ?end", str_find},
    {"rfind", "self sub ?start ?end", str_rfind},
    {"index", "self sub ?start ?end", str_index},
    {"rindex", "self sub ?start ?end", str_rindex},
    {"count", "self sub ?start ?end", str_count},
    {"split", "self ?sep ?maxsplit", str_split},
    {"rsplit", "self ?sep ?maxsplit", str_rsplit},
    {"splitlines", "self ?keepends", str_splitlines},
    {"partition", "self sep", str_partition},
    {"rpartition", "self sep", str_rpartition},
    {"join", "self iterable", str_join},
    {"replace", "self old new ?count", str_replace},
    {"center", "self width ?fillchar", str_center},
    {"ljust", "self width ?fillchar", str_ljust},
    {"rjust", "self width ?fillchar", str_rjust},
    {"zfill", "self width", str_zfill},
    {"expandtabs", "self ?tabsize", str_expandtabs},
};
static const jfunction of_list[] = {{"count", "self value", list_count}, {"index", "self value", list_index}, {"copy", "self", any_copy}};
static const jfunction of_dict[] = {{"items", "self", dict_items},
                                    {"keys", "self", dict_keys},
                                    {"values", "self", dict_values},
                                    {"get", "self key ?default", dict_get},
                                    {"copy", "self", any_copy}};
static const jfunction of_loop[] = {{"cycle", "self *", loop_cycle}, {"changed", "self *", loop_changed}};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

const jfunction *jinja_find_method(jvalue object, str name) {
    switch (object.kind) {
    case J_STRING:
        return jfunction_find(of_string, COUNT(of_string), name);
    case J_LIST:
    case J_TUPLE:
        return jfunction_find(of_list, COUNT(of_list), name);
    case J_DICT:
        return jfunction_find(of_dict, COUNT(of_dict), name);
    case J_LOOP:
        return jfunction_find(of_loop, COUNT(of_loop), name);
    default:
        return NULL;
    }
}

bool jinja_method_is_missing(str name) {
    static const char *const missing[] = {"casefold",    "encode",  "format",    "format_map", "isascii", "isidentifier",
                                          "isprintable", "istitle", "maketrans", "translate",  "fromkeys"};
    for (size_t i = 0; i < COUNT(missing); i++) {
        if (str_is(name, missing[i])) {
            return true;
        }
    }
    return false;
}

/* Gets members, items and slices. */

#include "jinja/jinja_big.h"
#include "jinja/jinja_run.h"

enum { SHOWN = 150 }; /* most characters of a key in an error */

/* The error for a missing member, with Jinja's names of types: "dict object", "None". */
static quire_err no_member(jrun *r, jvalue object, str name, jvalue *out) {
    bool none = jis(object, J_NONE), joins = jis(object, J_TURNS) && object.u.turns->joins;
    const char *room = jis(object, J_NAMESPACE) || jis(object, J_TURNS) ? "jinja2.utils."
                       : jis(object, J_LOOP) || jis(object, J_MACRO)    ? "jinja2.runtime."
                       : jis(object, J_STRING) && object.safe           ? "markupsafe."
                                                                        : "";
    jout_clear(&r->scratch);
    TRY(jrun_memory(r, jvalue_write_repr(jstring(jstr_part(name, 0, SHOWN)), &r->scratch)));
    return jrun_make_undefined(r, out, "'%s%s%s' has no attribute %.*s", room,
                               none    ? "None"
                               : joins ? "Joiner"
                                       : jvalue_type(object),
                               none ? "" : " object", (int)r->scratch.text.n, r->scratch.text.p);
}

/* Whether this method would change a list or dictionary: the sandbox refuses it. */
static bool changes(jvalue object, str name) {
    static const char *const of_list[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (jis(object, J_LIST)) {
        return jname_in(name, of_list, sizeof of_list / sizeof of_list[0]);
    }
    return jis(object, J_DICT) && jname_in(name, of_dict, sizeof of_dict / sizeof of_dict[0]);
}

/* Whether the sandbox hides this name. Keys of dictionaries may begin like it. */
static bool is_unsafe(jvalue object, str name) {
    static const char *const of_dict[] = {"__class__",
                                          "__class_getitem__",
                                          "__contains__",
                                          "__delattr__",
                                          "__delitem__",
                                          "__dir__",
                                          "__doc__",
                                          "__eq__",
                                          "__format__",
                                          "__ge__",
                                          "__getattribute__",
                                          "__getitem__",
                                          "__getstate__",
                                          "__gt__",
                                          "__hash__",
                                          "__init__",
                                          "__init_subclass__",
                                          "__ior__",
                                          "__iter__",
                                          "__le__",
                                          "__len__",
                                          "__lt__",
                                          "__ne__",
                                          "__new__",
                                          "__or__",
                                          "__reduce__",
                                          "__reduce_ex__",
                                          "__repr__",
                                          "__reversed__",
                                          "__ror__",
                                          "__setattr__",
                                          "__setitem__",
                                          "__sizeof__",
                                          "__str__",
                                          "__subclasshook__"};
    bool hidden = name.n >= 2 && name.p[0] == '_' && name.p[1] == '_';
    hidden = hidden && (!jis(object, J_DICT) || jname_in(name, of_dict, sizeof of_dict / sizeof of_dict[0]));
    return hidden || changes(object, name);
}

static bool is_number_method(str name) {
    static const char *const names[] = {"conjugate",  "bit_length", "bit_count",
                                        "to_bytes",   "from_bytes", "as_integer_ratio",
                                        "is_integer", "hex",        "fromhex"};
    return jname_in(name, names, sizeof names / sizeof names[0]);
}

static jvalue neighbour(const jloop *l, size_t index) {
    return index < l->n ? l->items[index] : (jvalue){.kind = J_MISSING};
}

static quire_err loop_member(jrun *r, jloop *l, str name, jvalue *out) {
    int64_t n = (int64_t)l->n, i = (int64_t)l->index;
    const struct {
        const char *name;
        jvalue value;
    } members[] = {
        {"index", jint(i + 1)},
        {"index0", jint(i)},
        {"revindex", jint(n - i)},
        {"revindex0", jint(n - i - 1)},
        {"first", jbool(i == 0)},
        {"last", jbool(i == n - 1)},
        {"length", jint(n)},
        {"depth", jint(l->depth + 1)},
        {"depth0", jint(l->depth)},
        {"previtem", neighbour(l, l->index - 1)},
        {"nextitem", neighbour(l, l->index + 1)},
    };
    for (size_t m = 0; m < sizeof members / sizeof members[0]; m++) {
        if (str_is(name, members[m].name)) {
            *out = members[m].value;
            bool outside = jis(*out, J_MISSING);
            return outside ? jrun_make_undefined(r, out, "there is no %s item",
                                                 str_is(name, "previtem") ? "previous" : "next")
                           : QUIRE_OK;
        }
    }
    return no_member(r, (jvalue){.kind = J_LOOP, .u.loop = l}, name, out);
}

static quire_err macro_member(jrun *r, jvalue macro, str name, jvalue *out) {
    const jnode *node = macro.u.macro->node;
    if (str_is(name, "name")) {
        *out = jstring(node->name);
    } else if (str_is(name, "arguments")) {
        jvalue *names;
        TRY(jrun_values(r, node->n, &names));
        for (size_t i = 0; i < node->n; i++) {
            names[i] = jstring(node->items[i]->name);
        }
        return jrun_list(r, J_TUPLE, names, node->n, out);
    } else if (str_is(name, "catch_kwargs") || str_is(name, "catch_varargs") || str_is(name, "caller")) {
        *out = jbool(str_is(name, "caller")         ? node->uses_caller
                     : str_is(name, "catch_kwargs") ? node->uses_kwargs
                                                    : node->uses_varargs);
    } else {
        return no_member(r, macro, name, out);
    }
    return QUIRE_OK;
}

static quire_err number_member(jrun *r, jvalue number, str name, jvalue *out) {
    bool whole = jis_whole(number);
    if (str_is(name, "real") || (whole && str_is(name, "numerator"))) {
        *out = jis(number, J_BOOL) ? jint(jas_integer(number)) : number;
    } else if (str_is(name, "imag")) {
        *out = whole ? jint(0) : jfloat(0);
    } else if (whole && str_is(name, "denominator")) {
        *out = jint(1);
    } else {
        return no_member(r, number, name, out);
    }
    return QUIRE_OK;
}

/* A member of a value with few members. */
static quire_err plain_member(jrun *r, jvalue object, str name, jvalue *out) {
    bool is_dict =
        jis(object, J_DICT) || (jis(object, J_FUNCTION) && str_is(str_of(object.u.function->name), "dict"));
    if (is_dict && str_is(name, "fromkeys")) {
        *out = (jvalue){.kind = J_FUNCTION, .u.function = jinja_find_global(str_of("dict.fromkeys"))};
        return QUIRE_OK;
    }
    if (jis(object, J_TUPLE) && object.u.list->view != NULL &&
        (str_is(name, "grouper") || str_is(name, "list"))) {
        *out = object.u.list->items[str_is(name, "list")];
        return QUIRE_OK;
    }
    if (jis(object, J_RANGE) && (str_is(name, "start") || str_is(name, "stop") || str_is(name, "step"))) {
        const jrange *g = object.u.range;
        *out = jint(str_is(name, "start") ? g->start : str_is(name, "stop") ? g->stop : g->step);
        return QUIRE_OK;
    }
    if (jis_whole(object) || jis(object, J_FLOAT)) {
        return number_member(r, object, name, out);
    }
    if (jis(object, J_TURNS) && str_is(name, "current") && !object.u.turns->joins) {
        *out = object.u.turns->items[object.u.turns->at];
        return QUIRE_OK;
    }
    return no_member(r, object, name, out);
}

quire_err jget_member(jrun *r, jvalue object, str name, jvalue *out) {
    if (jis(object, J_UNDEFINED)) {
        return jrun_undefined(r, object);
    }
    if (is_unsafe(object, name)) {
        name = jstr_part(name, 0, SHOWN);
        return jrun_make_undefined(r, out, "access to attribute '%.*s' of '%s' object is unsafe.",
                                   (int)name.n, name.p, jvalue_type(object));
    }
    const jfunction *f = jinja_find_method(object, name);
    if (f != NULL) {
        jmethod *m = jarena_new(&r->arena, sizeof *m);
        TRY(jrun_check_memory(r, m));
        *m = (jmethod){f, object};
        *out = (jvalue){.kind = J_METHOD, .u.method = m};
        return QUIRE_OK;
    }
    if ((jis_number(object) || jis(object, J_HUGE)) && is_number_method(name)) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "the attribute %.*s is not supported", (int)name.n, name.p);
    }
    if (jis(object, J_DICT) || jis(object, J_NAMESPACE)) {
        const jvalue *found;
        TRY(jrun_get(r, object.u.dict, jstring(name), &found));
        if (found != NULL) {
            *out = *found;
            return QUIRE_OK;
        }
    }
    if (jis(object, J_SELF) || (jis(object, J_BLOCK) && str_is(name, "super"))) {
        TRY(jblock_member(r, object, name, out));
        return jis(*out, J_MISSING) ? no_member(r, object, name, out) : QUIRE_OK;
    }
    if (jis(object, J_MODULE)) {
        const jvalue *found;
        TRY(jrun_get(r, object.u.module->names, jstring(name), &found));
        *out = found != NULL ? *found : *out;
        return found != NULL ? QUIRE_OK : no_member(r, object, name, out);
    }
    if (jis(object, J_LOOP)) {
        return loop_member(r, object.u.loop, name, out);
    }
    if (jis(object, J_MACRO)) {
        return macro_member(r, object, name, out);
    }
    return plain_member(r, object, name, out);
}

/* The element at an index (negative: from the end); J_MISSING: none. */
static quire_err jinja_member_element(jrun *r, jvalue object, int64_t index, jvalue *out) {
    *out = (jvalue){.kind = J_MISSING};
    int64_t n = 0;
    if (jis(object, J_STRING)) {
        n = (int64_t)jstr_length(object.u.s);
        TRY(jrun_step(r, (size_t)n / 64));
    } else if (jis(object, J_RANGE)) {
        n = object.u.range->n;
    } else if (jis(object, J_LIST) || jis(object, J_TUPLE)) {
        n = (int64_t)object.u.list->n;
    }
    index += index < 0 ? n : 0;
    if (index < 0 || index >= n) {
        return QUIRE_OK;
    }
    if (jis(object, J_STRING)) {
        *out = jstring(jstr_part(object.u.s, (size_t)index, 1));
        out->safe = object.safe;
    } else if (jis(object, J_RANGE)) {
        *out = jint(object.u.range->start + index * object.u.range->step);
    } else {
        *out = object.u.list->items[index];
    }
    return QUIRE_OK;
}

static quire_err no_element(jrun *r, jvalue object, jvalue key, jvalue *out) {
    jout_clear(&r->scratch);
    quire_err e = jvalue_write_repr(key, &r->scratch);
    TRY(jrun_step(r, r->scratch.text.n / 64));
    if (e != QUIRE_OK) {
        return jrun_make_undefined(r, out, "no such element");
    }
    return jrun_make_undefined(
        r, out, "%s%s has no element %.*s", jis(object, J_NONE) ? "None" : jvalue_type(object),
        jis(object, J_NONE) ? "" : " object", (int)(r->scratch.text.n < SHOWN ? r->scratch.text.n : SHOWN),
        r->scratch.text.p);
}

quire_err jget_item(jrun *r, jvalue object, jvalue key, jvalue *out) {
    if (jis(object, J_UNDEFINED)) {
        return jrun_undefined(r, object);
    }
    if (jis(object, J_DICT)) {
        const jvalue *found = NULL;
        quire_err e = jdict_get(&r->steps, object.u.dict, key, &found);
        /* a key that Python cannot hash is in no dictionary */
        if (e != QUIRE_OK && e != QUIRE_BAD_REQUEST) {
            TRY(jrun_over(r, e));
        }
        if (found != NULL) {
            *out = *found;
            return QUIRE_OK;
        }
    }
    if (jis_integer(key)) {
        TRY(jinja_member_element(r, object, jas_integer(key), out));
        if (!jis(*out, J_MISSING)) {
            return QUIRE_OK;
        }
    }
    return jis(key, J_STRING) ? jget_member(r, object, key.u.s, out) : no_element(r, object, key, out);
}

/* Computes Python's slice.indices(n). */
static quire_err slice_bounds(jrun *r, const jvalue bounds[3], int64_t n, int64_t *start, int64_t *stop,
                              int64_t *step) {
    int64_t given[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++) {
        if (jis(bounds[i], J_HUGE)) {
            given[i] = bounds[i].u.big->negative ? -INT64_MAX : INT64_MAX;
        } else if (!jis(bounds[i], J_NONE)) {
            TRY(jrun_want_integer(r, bounds[i], "a slice index", &given[i]));
        }
    }
    *step = given[2];
    if (*step == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "slice step cannot be zero");
    }
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    for (int i = 0; i < 2; i++) {
        int64_t at = given[i];
        if (jis(bounds[i], J_NONE)) {
            at = (i == 0) == (*step > 0) ? low : high;
        } else {
            at += at < 0 ? n : 0;
            at = at < low ? low : at > high ? high : at;
        }
        *(i == 0 ? start : stop) = at;
    }
    return QUIRE_OK;
}

bool jcan_slice(jvalue v, const jvalue bounds[3]) {
    for (int i = 0; i < 3; i++) {
        if (!jis(bounds[i], J_NONE) && !jis_whole(bounds[i])) {
            return false;
        }
    }
    return jis(v, J_STRING) || jis(v, J_LIST) || jis(v, J_TUPLE) || jis(v, J_RANGE) || jis(v, J_UNDEFINED);
}

/* *out = element i of a range; i may be one past the end. False: beyond 64 bits. */
static bool range_place(const jrange *g, int64_t i, int64_t *out) {
    return !__builtin_mul_overflow(i, g->step, out) && !__builtin_add_overflow(g->start, *out, out);
}

static quire_err range_slice(jrun *r, const jrange *g, const jvalue bounds[3], jvalue *out) {
    int64_t start, stop, step, distance;
    jrange *part = jarena_new(&r->arena, sizeof *part);
    TRY(jrun_check_memory(r, part));
    TRY(slice_bounds(r, bounds, g->n, &start, &stop, &step));
    *part = (jrange){.n = 0};
    if (!range_place(g, start, &part->start) || !range_place(g, stop, &part->stop)) {
        return jrun_fail(r, QUIRE_UNSUPPORTED,
                         "a slice of a range that ends beyond 64 bits is not supported");
    }
    distance = step > 0 ? stop - start : start - stop;
    if (distance > 0) {
        part->n = (distance - 1) / (step > 0 ? step : step > -INT64_MAX ? -step : INT64_MAX) + 1;
    }
    if (__builtin_mul_overflow(g->step, step, &part->step)) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "a slice of a range with so large a step is not supported");
    }
    *out = (jvalue){.kind = J_RANGE, .u.range = part};
    return QUIRE_OK;
}

quire_err jget_slice(jrun *r, jvalue object, const jvalue bounds[3], jvalue *out) {
    if (jis(object, J_UNDEFINED)) {
        return jrun_undefined(r, object);
    }
    bool text = jis(object, J_STRING);
    if (!text && !jis(object, J_LIST) && !jis(object, J_TUPLE)) {
        return jis(object, J_RANGE) ? range_slice(r, object.u.range, bounds, out)
               : jis(object, J_DICT)
                   ? jrun_fail(r, QUIRE_BAD_REQUEST, "unhashable type: 'slice'")
                   : jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object is not subscriptable", jvalue_type(object));
    }
    const jvalue *items;
    size_t n_items;
    TRY(jrun_items(r, object, &items, &n_items));
    int64_t start = 0, stop = 0, step = 1;
    TRY(slice_bounds(r, bounds, (int64_t)n_items, &start, &stop, &step));
    size_t n = 0;
    jvalue *taken;
    TRY(jrun_values(r, n_items, &taken));
    for (int64_t i = start; step > 0 ? i < stop : i > stop; n++) {
        taken[n] = items[i];
        if (__builtin_add_overflow(i, step, &i)) {
            n++;
            break;
        }
    }
    if (!text) {
        return jrun_list(r, (jkind)object.kind, taken, n, out);
    }
    str s = {0};
    if (step == 1) {
        s = n == 0
                ? s
                : (str){taken[0].u.s.p, (size_t)(taken[n - 1].u.s.p - taken[0].u.s.p) + taken[n - 1].u.s.n};
    } else {
        for (size_t i = 0; i < n; i++) {
            TRY(jrun_append(r, s, taken[i].u.s, &s));
        }
    }
    *out = jstring(s);
    out->safe = object.safe;
    return QUIRE_OK;
}

/* Follows one step of a path. fallback replaces an undefined value. */
static quire_err path_step(jrun *r, jvalue object, jvalue key, jvalue fallback, jvalue *out) {
    TRY(jget_item(r, object, key, out));
    if (jis(*out, J_UNDEFINED) && !jis(fallback, J_MISSING) && !jis(fallback, J_NONE)) {
        *out = fallback;
    }
    return QUIRE_OK;
}

quire_err jget_path(jrun *r, jvalue object, jvalue path, jvalue fallback, jvalue *out) {
    *out = object;
    if (!jis(path, J_STRING)) {
        return jis(path, J_NONE) ? QUIRE_OK : path_step(r, object, path, fallback, out);
    }
    str rest = path.u.s;
    for (;;) {
        size_t dot = jstr_find(rest, str_of("."), 0);
        str part = {rest.p, dot == SIZE_MAX ? rest.n : dot};
        bool number = part.n > 0 && part.n < 18;
        int64_t index = 0;
        for (size_t i = 0; i < part.n && number; i++) {
            number = part.p[i] >= '0' && part.p[i] <= '9';
            index = number ? index * 10 + (part.p[i] - '0') : index;
        }
        TRY(path_step(r, *out, number ? jint(index) : jstring(part), fallback, out));
        if (dot == SIZE_MAX) {
            return QUIRE_OK;
        }
        rest = (str){rest.p + dot + 1, rest.n - dot - 1};
    }
}

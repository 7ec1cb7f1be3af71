/* Filters of lists and dictionaries. args[0] is the input. What is a generator in Jinja
 * is computed at once here, and returned as an iterator. */
#include "jinja/jinja_filters.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"

static const jvalue absent = {.kind = J_MISSING};

static quire_err jinja_filter_lists_key_of(jrun *r, jvalue v, jvalue attribute, bool case_sensitive,
                                           jvalue *out);

/* Makes a key of several attributes, "a,b": the list of their values. */
static quire_err keys_of(jrun *r, jvalue v, str attributes, bool case_sensitive, jvalue *out) {
    size_t n = 1;
    for (size_t i = 0; i < attributes.n; i++) {
        n += attributes.p[i] == ',';
    }
    jvalue *keys;
    TRY(jrun_values(r, n, &keys));
    for (size_t i = 0; i < n; i++) {
        size_t end = jstr_find(attributes, str_of(","), 0);
        str part = {attributes.p, end == SIZE_MAX ? attributes.n : end};
        TRY(jinja_filter_lists_key_of(r, v, jstring(part), case_sensitive, &keys[i]));
        attributes = end == SIZE_MAX ? (str){0} : (str){part.p + part.n + 1, attributes.n - part.n - 1};
    }
    return jrun_list(r, J_LIST, keys, n, out);
}

/* The key of v for sorting and comparing: a member if attribute is given; in lower case
 * unless case_sensitive. */
static quire_err jinja_filter_lists_key_of(jrun *r, jvalue v, jvalue attribute, bool case_sensitive,
                                           jvalue *out) {
    *out = v;
    if (jgiven(attribute)) {
        if (jis(attribute, J_STRING) && jstr_find(attribute.u.s, str_of(","), 0) != SIZE_MAX) {
            return keys_of(r, v, attribute.u.s, case_sensitive, out);
        }
        TRY(jget_path(r, v, attribute, absent, out));
    }
    return !case_sensitive && jis(*out, J_STRING) ? jcase_map(r, out->u.s, CASE_LOWER, out) : QUIRE_OK;
}

JFUNCTION(filter_length) {
    switch (args[0].kind) {
    case J_UNDEFINED:
        *out = jint(0);
        return QUIRE_OK;
    case J_STRING:
        *out = jint((int64_t)jstr_length(args[0].u.s));
        return jrun_step(r, args[0].u.s.n / 64);
    case J_LIST:
    case J_TUPLE:
    case J_VIEW:
        *out = jint((int64_t)args[0].u.list->n);
        return QUIRE_OK;
    case J_DICT:
        *out = jint((int64_t)args[0].u.dict->n);
        return QUIRE_OK;
    case J_RANGE:
        *out = jint(args[0].u.range->n);
        return QUIRE_OK;
    case J_LOOP:
        *out = jint((int64_t)args[0].u.loop->n);
        return QUIRE_OK;
    default:
        return jrun_fail(r, QUIRE_BAD_REQUEST, "object of type '%s' has no len()", jvalue_type(args[0]));
    }
}

JFUNCTION(filter_first) {
    const jvalue *items;
    size_t n;
    TRY(jrun_items(r, args[0], &items, &n));
    if (n == 0) {
        return jrun_make_undefined(r, out, "No first item, sequence was empty.");
    }
    if (jis(args[0], J_ITERATOR)) {
        args[0].u.list->at -= n - 1; /* the rest can still be iterated */
    }
    *out = items[0];
    return QUIRE_OK;
}

JFUNCTION(filter_last) {
    const jvalue *items;
    size_t n;
    if (jis(args[0], J_ITERATOR)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'generator' object is not reversible");
    }
    TRY(jrun_items(r, args[0], &items, &n));
    if (n == 0) {
        return jrun_make_undefined(r, out, "No last item, sequence was empty.");
    }
    *out = items[n - 1];
    return QUIRE_OK;
}

static quire_err copy_items(jrun *r, jvalue v, jvalue **items, size_t *n) {
    const jvalue *from;
    TRY(jrun_items(r, v, &from, n));
    TRY(jrun_values(r, *n, items));
    mem_copy(*items, from, *n * sizeof **items);
    return QUIRE_OK;
}

JFUNCTION(filter_list) {
    jvalue *items;
    size_t n;
    TRY(copy_items(r, args[0], &items, &n));
    return jrun_list(r, J_LIST, items, n, out);
}

JFUNCTION(filter_reverse) {
    jvalue *items;
    size_t n;
    if (jis_number(args[0]) || jis(args[0], J_NONE)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "argument must be iterable");
    }
    TRY(copy_items(r, args[0], &items, &n));
    jvalues_reverse(items, n);
    if (!jis(args[0], J_STRING)) { /* Python cannot reverse a generator, so Jinja makes a list first */
        return jrun_list(r, jis(args[0], J_ITERATOR) ? J_LIST : J_ITERATOR, items, n, out);
    }
    str s;
    TRY(jrun_to_text(r, args[0], &s));
    *out = jstring((str){0});
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_append(r, out->u.s, items[i].u.s, &out->u.s));
    }
    return QUIRE_OK;
}

/* Merges two sorted runs of `order` by key; stable, also when descending. */
static quire_err jinja_filter_lists_merge(jrun *r, const jvalue *keys, const size_t *from, size_t *to,
                                          size_t mid, size_t n, bool descending) {
    size_t left = 0, right = mid;
    for (size_t i = 0; i < n; i++) {
        bool take_right = left == mid;
        if (left < mid && right < n) {
            int order;
            TRY(jrun_step(r, 1));
            bool neither = jis(keys[from[right]], J_UNDEFINED) && jis(keys[from[left]], J_UNDEFINED);
            order = 0;
            if (!neither) {
                TRY(jop_order(r, "<", keys[from[right]], keys[from[left]], &order));
            }
            take_right = descending ? order == 1 : order == -1;
        }
        to[i] = take_right ? from[right++] : from[left++];
    }
    return QUIRE_OK;
}

/* Makes a list of items sorted by keys: a bottom-up merge sort. */
static quire_err sort_keyed(jrun *r, const jvalue *items, const jvalue *keys, size_t n, bool descending,
                            jvalue *out, jvalue **sorted_keys) {
    size_t *order = jarena_new(&r->arena, (n + 1) * sizeof *order),
           *other = jarena_new(&r->arena, (n + 1) * sizeof *other);
    jvalue *sorted;
    TRY(jrun_check_memory(r, order));
    TRY(jrun_check_memory(r, other));
    TRY(jrun_values(r, n, &sorted));
    TRY(jrun_values(r, n, sorted_keys));
    for (size_t i = 0; i < n; i++) {
        order[i] = i;
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t count = n - start < 2 * width ? n - start : 2 * width;
            TRY(jinja_filter_lists_merge(r, keys, order + start, other + start, width < count ? width : count,
                                         count, descending));
        }
        size_t *swap = order;
        order = other;
        other = swap;
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = items[order[i]];
        (*sorted_keys)[i] = keys[order[i]];
    }
    return jrun_list(r, J_LIST, sorted, n, out);
}

static quire_err sort_by(jrun *r, const jvalue *items, size_t n, jvalue attribute, bool case_sensitive,
                         bool descending, jvalue *out) {
    jvalue *keys, *unused;
    TRY(jrun_values(r, n, &keys));
    for (size_t i = 0; i < n; i++) {
        TRY(jinja_filter_lists_key_of(r, items[i], attribute, case_sensitive, &keys[i]));
    }
    return sort_keyed(r, items, keys, n, descending, out, &unused);
}

/* Sorts items by the value at a path; fallback (J_MISSING: none) replaces undefined
 * values. Also returns the sorted keys. */
static quire_err sort_by_path(jrun *r, const jvalue *items, size_t n, jvalue path, jvalue fallback,
                              bool case_sensitive, jvalue *out, jvalue **sorted_keys) {
    jvalue *keys;
    TRY(jrun_values(r, n, &keys));
    for (size_t i = 0; i < n; i++) {
        TRY(jget_path(r, items[i], path, fallback, &keys[i]));
        TRY(jinja_filter_lists_key_of(r, keys[i], absent, case_sensitive, &keys[i]));
    }
    for (size_t i = 0; i < n && n > 1; i++) { /* an undefined key cannot be compared */
        jvalue key = keys[i < 2 ? 1 - i : i];
        if (jis(key, J_UNDEFINED)) {
            TRY(jrun_undefined(r, key));
        }
    }
    return sort_keyed(r, items, keys, n, false, out, sorted_keys);
}

JFUNCTION(filter_sort) {
    const jvalue *items;
    size_t n;
    bool reverse;
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jarg_flag(r, args[1], "reverse", &reverse));
    return sort_by(r, items, n, args[3], jflag(args[2]), reverse, out);
}

/* Adds a pair (grouper, list); its members have these names. */
static quire_err jinja_filter_lists_add_group(jrun *r, jvalue key, jvalue *items, size_t n, jvalue *out) {
    jvalue *pair;
    TRY(jrun_values(r, 2, &pair));
    pair[0] = key;
    TRY(jrun_list(r, J_LIST, items, n, &pair[1]));
    TRY(jrun_list(r, J_TUPLE, pair, 2, out));
    out->u.list->view = JGROUP;
    return QUIRE_OK;
}

JFUNCTION(filter_groupby) {
    const jvalue *items;
    jvalue sorted, *groups, *keys;
    size_t n, n_groups = 0, start = 0;
    bool case_sensitive = jflag(args[3]);
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(sort_by_path(r, items, n, args[1], args[2], case_sensitive, &sorted, &keys));
    TRY(jrun_values(r, n, &groups));
    for (size_t i = 1; i <= n; i++) {
        bool same = false;
        if (i < n) {
            TRY(jrun_matches(r, keys[start], keys[i], &same));
        }
        if (same) {
            continue;
        }
        jvalue key;
        /* the key as in the group's first item */
        TRY(jget_path(r, sorted.u.list->items[start], args[1], args[2], &key));
        TRY(jinja_filter_lists_add_group(r, key, sorted.u.list->items + start, i - start,
                                         &groups[n_groups++]));
        start = i;
    }
    return jrun_list(r, J_LIST, groups, n_groups, out);
}

static quire_err dict_pairs(jrun *r, jvalue dict, jvalue **items, size_t *n) {
    jvalue pairs;
    TRY(jcall_function(r, jinja_find_method(dict, str_of("items")), &dict, &(jargs){0}, &pairs));
    return copy_items(r, pairs, items, n);
}

JFUNCTION(filter_dictsort) {
    jvalue *items;
    size_t n;
    str by = str_of("key");
    if (!jis(args[2], J_MISSING)) {
        TRY(jrun_want_text(r, args[2], "by", &by));
    }
    if (!str_is(by, "key") && !str_is(by, "value")) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "You can only sort by either \"key\" or \"value\"");
    }
    if (jis(args[0], J_UNDEFINED)) {
        return jrun_undefined(r, args[0]);
    }
    if (!jis(args[0], J_DICT)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object has no attribute 'items'", jvalue_type(args[0]));
    }
    TRY(dict_pairs(r, args[0], &items, &n));
    return sort_by(r, items, n, jint(str_is(by, "value")), jflag(args[1]), jflag(args[3]), out);
}

JFUNCTION(filter_items) {
    jvalue *items = NULL;
    size_t n = 0;
    if (jis(args[0], J_DICT)) {
        TRY(dict_pairs(r, args[0], &items, &n));
    } else if (!jis(args[0], J_UNDEFINED)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "Can only get item pairs from a mapping.");
    }
    return jrun_list(r, J_ITERATOR, items, n, out);
}

/* ---- picking ---- */

/* max and min. how: 1 for the largest, -1 for the smallest. */
JFUNCTION(filter_extreme) {
    const jvalue *items;
    size_t n;
    jvalue best, key;
    TRY(jrun_items(r, args[0], &items, &n));
    if (n == 0) {
        return jrun_make_undefined(r, out, "No aggregated item, sequence was empty.");
    }
    for (size_t i = 0; i < n; i++) {
        int order = how;
        TRY(jinja_filter_lists_key_of(r, items[i], args[2], jflag(args[1]), &key));
        if (i > 0) {
            TRY(jop_order(r, how < 0 ? "<" : ">", key, best, &order));
        }
        if (order == how) {
            best = key;
            *out = items[i];
        }
    }
    return QUIRE_OK;
}

JFUNCTION(filter_unique) {
    const jvalue *items;
    jvalue *kept, key;
    size_t n, n_kept = 0;
    jdict *seen;
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_values(r, n, &kept));
    TRY(jrun_dict(r, &seen));
    for (size_t i = 0; i < n; i++) {
        size_t before = seen->n;
        TRY(jinja_filter_lists_key_of(r, items[i], args[2], jflag(args[1]), &key));
        TRY(jrun_set(r, seen, key, jnone()));
        if (seen->n > before) {
            kept[n_kept++] = items[i];
        }
    }
    return jrun_list(r, J_ITERATOR, kept, n_kept, out);
}

/* Finds the filter or test that a value names. */
static quire_err find_function(jrun *r, jvalue name, bool test, const jfunction **f) {
    str s;
    TRY(jrun_want_text(r, name, test ? "a test's name" : "a filter's name", &s));
    *f = test ? jinja_find_test(s) : jinja_find_filter(s);
    if (*f == NULL) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "No %s named '%.*s'.", test ? "test" : "filter", (int)s.n,
                         s.p);
    }
    return QUIRE_OK;
}

/* map(attribute=..., default=...). */
static quire_err map_attribute(jrun *r, const jvalue *items, size_t n, const jargs *rest, jvalue *mapped) {
    jvalue attribute = jargs_named(rest, str_of("attribute")),
           fallback = jargs_named(rest, str_of("default"));
    if (rest->n != 1u + !jis(fallback, J_MISSING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "map takes no such argument beside attribute");
    }
    for (size_t i = 0; i < n; i++) {
        TRY(jget_path(r, items[i], attribute, fallback, &mapped[i]));
    }
    return QUIRE_OK;
}

JFUNCTION(filter_map) {
    const jvalue *items;
    jvalue *mapped;
    size_t n;
    bool by_attribute = rest->n == rest->n_named && !jis(jargs_named(rest, str_of("attribute")), J_MISSING);
    const jfunction *f = NULL;
    if (!jvalue_truth(args[0])) { /* any false value gives nothing, even if it cannot be iterated */
        return jrun_list(r, J_ITERATOR, NULL, 0, out);
    }
    if (!by_attribute && rest->n == rest->n_named) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "map requires a filter argument");
    }
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_values(r, n, &mapped));
    if (by_attribute) {
        TRY(map_attribute(r, items, n, rest, mapped));
    } else {
        jargs more = jargs_without(rest, 1);
        TRY(find_function(r, rest->values[0], false, &f));
        for (size_t i = 0; i < n; i++) {
            TRY(jcall_function(r, f, &items[i], &more, &mapped[i]));
        }
    }
    return jrun_list(r, J_ITERATOR, mapped, n, out);
}

/* select, reject and the like: items that pass a test (or whose member does), or that do
 * not; without a test, those that are true. how: a set of PICK_*. */
JFUNCTION(filter_pick) {
    bool attribute = (how & PICK_BY_MEMBER) != 0, wanted = (how & PICK_PASSING) != 0;
    const jvalue *items;
    jvalue *kept;
    size_t n, n_kept = 0, first = attribute;
    const jfunction *f = NULL;
    size_t n_positional = rest->n - rest->n_named;
    if (!jvalue_truth(args[0])) { /* any false value gives nothing, even if it cannot be iterated */
        return jrun_list(r, J_ITERATOR, NULL, 0, out);
    }
    if (n_positional < first) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "Missing parameter for attribute name");
    }
    if (n_positional > first) {
        TRY(find_function(r, rest->values[first], true, &f));
    }
    jargs more = jargs_without(rest, f != NULL ? first + 1 : first);
    TRY(jrun_items(r, args[0], &items, &n));
    TRY(jrun_values(r, n, &kept));
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i], passes;
        if (attribute) {
            TRY(jget_path(r, v, rest->values[0], absent, &v));
        }
        passes = v;
        if (f != NULL) {
            TRY(jcall_function(r, f, &v, &more, &passes));
        }
        if (jvalue_truth(passes) == wanted) {
            kept[n_kept++] = items[i];
        }
    }
    return jrun_list(r, J_ITERATOR, kept, n_kept, out);
}

/* ---- joining and splitting ---- */

JFUNCTION(filter_join) {
    const jvalue *items;
    size_t n;
    TRY(jrun_items(r, args[0], &items, &n));
    jout text = jrun_out(r);
    quire_err e = QUIRE_OK;
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i];
        if (jgiven(args[2])) {
            TRY_DONE(e, jget_path(r, v, args[2], absent, &v));
        }
        if (i > 0 && !jis(args[1], J_MISSING)) {
            TRY_DONE(e, jrun_write(r, args[1], &text));
        }
        TRY_DONE(e, jrun_write(r, v, &text));
    }
done:
    return jrun_take_text(r, e, &text, out);
}

JFUNCTION(filter_sum) {
    const jvalue *items;
    size_t n;
    TRY(jrun_items(r, args[0], &items, &n));
    *out = jis(args[2], J_MISSING) ? jint(0) : args[2];
    if (jis(*out, J_STRING)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    for (size_t i = 0; i < n; i++) {
        jvalue v = items[i];
        if (jgiven(args[1])) {
            TRY(jget_path(r, v, args[1], absent, &v));
        }
        TRY(jop_binary(r, OP_ADD, *out, v, out));
    }
    return QUIRE_OK;
}

/* Makes a list of items[start..start + n), filled up to `size`. */
static quire_err part(jrun *r, const jvalue *items, size_t n, size_t size, jvalue fill, jvalue *out) {
    jvalue *copy;
    TRY(jrun_values(r, size > n ? size : n, &copy));
    for (size_t i = 0; i < n || i < size; i++) {
        copy[i] = i < n ? items[i] : fill;
    }
    return jrun_list(r, J_LIST, copy, size > n ? size : n, out);
}

JFUNCTION(filter_batch) {
    const jvalue *items;
    jvalue *batches;
    size_t n;
    int64_t size = INT64_MAX;
    TRY(jrun_items(r, args[0], &items, &n));
    if (jis_integer(args[1])) {
        size = jas_integer(args[1]);
    } else if (jis(args[1], J_FLOAT) && args[1].u.f >= 1 && args[1].u.f <= (double)n &&
               args[1].u.f == floor(args[1].u.f)) {
        size = (int64_t)args[1].u.f;
    }
    if (size < 1) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "batches of %lld items are not supported", (long long)size);
    }
    size_t width = (uint64_t)size > n ? (n > 0 ? n : 1) : (size_t)size, n_batches = (n + width - 1) / width;
    TRY(jrun_step(r, jgiven(args[2]) ? (size_t)size : 0));
    TRY(jrun_values(r, n_batches, &batches));
    for (size_t i = 0; i < n_batches; i++) {
        size_t start = i * width, count = n - start < width ? n - start : width;
        TRY(part(r, items + start, count, jgiven(args[2]) ? (size_t)size : count, args[2], &batches[i]));
    }
    return jrun_list(r, J_ITERATOR, batches, n_batches, out);
}

JFUNCTION(filter_slice) {
    const jvalue *items;
    jvalue *slices;
    size_t n, start = 0;
    int64_t count;
    TRY(jrun_want_integer(r, args[1], "the number of slices", &count));
    TRY(jrun_items(r, args[0], &items, &n));
    if (count == 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "the number of slices must not be 0");
    }
    count = count < 0 ? 0 : count;
    TRY(jrun_step(r, (size_t)count));
    TRY(jrun_values(r, (size_t)count, &slices));
    size_t each = count > 0 ? n / (size_t)count : 0, longer = n - each * (size_t)count;
    for (size_t i = 0; i < (size_t)count; i++) {
        size_t size = each + (i < longer);
        bool filled = jgiven(args[2]) && i >= longer;
        TRY(part(r, items + start, size, filled ? size + 1 : size, args[2], &slices[i]));
        start += size;
    }
    return jrun_list(r, J_ITERATOR, slices, (size_t)count, out);
}

/* Each render draws the same numbers, so that a prompt depends only on its variables. */
JFUNCTION(filter_random) {
    const jvalue *items;
    size_t n;
    if (jis(args[0], J_DICT) || jis(args[0], J_ITERATOR) || jis(args[0], J_VIEW)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object is not a sequence", jvalue_type(args[0]));
    }
    TRY(jrun_items(r, args[0], &items, &n));
    if (n == 0) {
        return jrun_make_undefined(r, out, "No random item, sequence was empty.");
    }
    *out = items[rng_next(&r->chance) % n];
    return QUIRE_OK;
}

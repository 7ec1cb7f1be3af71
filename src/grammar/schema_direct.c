/* Keywords that constrain a value directly. */
#include <assert.h>
#include <float.h>

#include "grammar/schema_reader.h"
#include "grammar/value_shape.h"

/* ---- the draft ---- */

/* A custom dialect may change or disable keywords. */
void keyword_dialect(schema_reader *r, const char *keyword, const json_value *v) {
    str uri = json_str(v);
    bool known = !str_contains(uri, str_of("://")) || str_contains(uri, str_of("//json-schema.org/")) ||
                 str_contains(uri, str_of("//spec.openapis.org/"));
    if (!json_is(v, JSON_KIND_TEXT)) {
        reader_malformed(r, keyword, "a string");
    } else if (!known) {
        reader_refuse(r, keyword, "it names an unknown dialect");
    } else if (schema_draft(r->e.value) != r->s->draft && r->s->resources.p[r->e.base].root == r->e.value) {
        reader_refuse(r, keyword, "another draft begins inside the schema");
    }
}

/* ---- a single value ---- */

void keyword_type(schema_reader *r, const char *keyword, const json_value *v) {
    assert(r != NULL);
    bool list = json_is(v, JSON_KIND_ARRAY), number = false, integer = false;
    shape *o = &r->out;
    o->null = o->yes = o->no = false;
    r->no_string = r->no_array = r->no_object = true;
    for (size_t i = 0; i < (list ? json_length(v) : 1); i++) {
        str t = json_str(list ? json_at(v, i) : v);
        if (str_is(t, "null")) {
            o->null = true;
        } else if (str_is(t, "boolean")) {
            o->yes = o->no = true;
        } else if (str_is(t, "string")) {
            r->no_string = false;
        } else if (str_is(t, "array")) {
            r->no_array = false;
        } else if (str_is(t, "object")) {
            r->no_object = false;
        } else if (str_is(t, "number")) {
            number = true;
        } else if (str_is(t, "integer")) {
            integer = true;
        } else if (!str_is(t, "any") || r->s->draft > 4) {
            reader_malformed(r, keyword,
                             "one or several of null, boolean, object, array, number, integer, string");
        } else {
            number = o->null = o->yes = o->no = true;
            r->no_string = r->no_array = r->no_object = false;
        }
    }
    r->no_number = !number && !integer;
    r->number.integer = integer && !number;
}

#define TOO_LONG "the number has over 350 digits before or after the point"

void keyword_bound(schema_reader *r, const char *keyword, const json_value *v) {
    bool low = strstr(keyword, "inimum") != NULL, exclusive = keyword[0] == 'e';
    number_part one;
    memset(&one, 0, sizeof one);
    /* draft 4: says whether minimum or maximum is excluded, and is read there */
    if (exclusive && json_is(v, JSON_KIND_BOOL)) {
        return;
    }
    if (!json_numeric(v)) {
        reader_malformed(r, keyword, "a number");
        return;
    }
    /* generators' way to write "any": no reader has a larger number */
    if (low ? json_double(v) <= -DBL_MAX : json_double(v) >= DBL_MAX) {
        return;
    }
    exclusive = exclusive || json_truth(json_get(r->e.value, low ? "exclusiveMinimum" : "exclusiveMaximum"));
    decimal d;
    if (!schema_decimal(r->s, v, &d)) {
        reader_refuse(r, keyword, TOO_LONG);
        return;
    }
    one.has_lo = low;
    one.has_hi = !low;
    one.lo_open = one.hi_open = exclusive;
    one.lo = one.hi = d;
    number_part both;
    r->no_number = !number_intersect(r->s->b, &r->number, &one, &both) || r->no_number;
    r->number = both;
}

void keyword_multiple(schema_reader *r, const char *keyword, const json_value *v) {
    decimal d;
    number_part one, both;
    memset(&one, 0, sizeof one);
    uint64_t m = 0;
    bool number = json_numeric(v), ok = number && schema_decimal(r->s, v, &d);
    if (number && !ok) {
        reader_refuse(r, keyword, TOO_LONG);
        return;
    }
    if (!number || d.negative || decimal_is_zero(&d)) {
        reader_malformed(r, keyword, "a number over 0");
        return;
    }
    for (int i = 0; ok && i < d.n_int + d.n_frac; i++) {
        m = m * 10 + (uint64_t)(d.digits[i] - '0');
        ok = m <= NUMBER_MAX_MULTIPLE;
    }
    if (!ok) {
        reader_refuse(r, keyword, "the number has too many digits");
        return;
    }
    one.n_multiples = 1;
    one.multiples[0] = (number_multiple){(uint32_t)m, d.n_frac, false};
    (void)number_intersect(r->s->b, &r->number, &one, &both);
    r->number = both;
}

void keyword_count(schema_reader *r, const char *keyword, const json_value *v) {
    assert(keyword != NULL);
    const char *what = keyword + strlen("min"); /* Length, Items or Properties */
    bool is_min = keyword[1] == 'i';
    uint32_t n;
    if (reader_count(r, keyword, v, &n)) {
        *(*what == 'L'   ? (is_min ? &r->string.min : &r->string.max)
          : *what == 'I' ? (is_min ? &r->array.min : &r->array.max)
                         : (is_min ? &r->object.min : &r->object.max)) = n;
    }
}

static void and_pattern(schema_reader *r, str regex) {
    r->string.dfa = dfa_combine(r->s->dfas, r->string.dfa, dfa_pattern(r->s->dfas, regex), DFA_AND);
    r->no_string = r->no_string || (!r->string.is_loose && dfa_is_empty(r->s->dfas, r->string.dfa));
}

/* Whether a pattern compiled. One that is not supported refuses its keyword; other
 * failures end the compilation. */
static bool pattern_ok(schema_reader *r, const char *keyword) {
    bool ok = r->s->b->failed == QUIRE_OK;
    schema_name_failure(r->s, r->e.path, keyword, true);
    return ok;
}

void keyword_pattern(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_TEXT)) {
        reader_malformed(r, keyword, "a string");
        return;
    }
    and_pattern(r, json_str(v));
    (void)pattern_ok(r, keyword);
}

void keyword_format(schema_reader *r, const char *keyword, const json_value *v) {
    const schema_format *f = json_is(v, JSON_KIND_TEXT) ? schema_format_find(json_str(v).p) : NULL;
    if (v != NULL && !json_is(v, JSON_KIND_TEXT)) {
        reader_malformed(r, keyword, "a string");
        return;
    }
    if (f == NULL) {
        schema_note(r->s, r->e.path, keyword, GRAMMAR_ANNOTATION, "the standard has no such format");
        return;
    }
    if (f->regex == NULL) {
        reader_refuse(r, keyword, "this format is not regular, or needs character tables");
        return;
    }
    strbuf whole_text = {0};
    if (strbuf_addf(&whole_text, "^(?:%s)$", f->regex) != QUIRE_OK) {
        (void)build_fail(r->s->b, QUIRE_NO_MEMORY, -1, "out of memory for the schema");
    } else {
        r->string.is_loose = f->is_loose;
        and_pattern(r, (str){whole_text.p, whole_text.n});
        (void)pattern_ok(r, keyword);
    }
    strbuf_deinit(&whole_text);
}

/* ---- arrays ---- */

void keyword_item_list(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_ARRAY)) {
        reader_malformed(r, keyword, "an array");
        return;
    }
    for (size_t i = 0; i < json_length(v); i++) {
        uint32_t x = reader_below_at(r, keyword, i, json_at(v, i));
        (void)PART_ADD(r->s, r->items.prefix, x);
    }
}

void keyword_items(schema_reader *r, const char *keyword, const json_value *v) {
    if (json_is(v, JSON_KIND_ARRAY)) {
        if (r->items.prefix.n > 0) {
            reader_malformed(r, keyword, "a schema beside prefixItems");
        }
        keyword_item_list(r, keyword, v);
        const json_value *rest = json_get(r->e.value, "additionalItems");
        if (rest != NULL) {
            r->items.rest = reader_below(r, "additionalItems", NULL, rest);
            r->items.has_rest = true;
        }
        return;
    }
    r->items.rest = reader_below(r, keyword, NULL, v);
    r->items.has_rest = true;
}

void keyword_contains(schema_reader *r, const char *keyword, const json_value *v) {
    contains_rule c = {
        .expr = expr_quiet(r->s, reader_below(r, keyword, NULL, v)), .min = 1, .max = NFA_NONE};
    const json_value *min = json_get(r->e.value, "minContains"), *max = json_get(r->e.value, "maxContains");
    if (r->s->draft >= 2019 && ((min != NULL && !reader_count(r, "minContains", min, &c.min)) ||
                                (max != NULL && !reader_count(r, "maxContains", max, &c.max)))) {
        return;
    }
    if (c.min == 0 && c.max == NFA_NONE && !r->s->annotations) {
        return;
    }
    (void)PART_ADD(r->s, r->array.contains, c);
}

void keyword_unique(schema_reader *r, const char *keyword, const json_value *v) {
    if (v != NULL && !json_is(v, JSON_KIND_BOOL)) {
        reader_malformed(r, keyword, "true or false");
        return;
    }
    r->array.unique = json_truth(v);
}

/* ---- objects ---- */

void keyword_properties(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        reader_malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m);) {
        uint32_t x = reader_below(r, keyword, m.name, m.value);
        (void)PART_ADD(r->s, r->members.names, (named_expr){str_of(m.name), x});
    }
    r->members.closes = r->members.names.n > 0;
}

void keyword_patterns(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_OBJECT)) {
        reader_malformed(r, keyword, "an object");
        return;
    }
    for (json_member m = {0}; json_next(v, &m);) {
        pattern_expr p = {dfa_pattern(r->s->dfas, str_of(m.name)), reader_below(r, keyword, m.name, m.value)};
        if (!pattern_ok(r, keyword)) {
            return;
        }
        (void)PART_ADD(r->s, r->members.patterns, p);
    }
}

void keyword_additional(schema_reader *r, const char *keyword, const json_value *v) {
    r->members.rest = reader_below(r, keyword, NULL, v);
    r->members.has_rest = true;
}

void reader_add_required(schema_reader *r, const char *keyword, const json_value *list, object_part *o) {
    if (!json_is(list, JSON_KIND_ARRAY)) {
        reader_malformed(r, keyword, "a list of names");
        return;
    }
    for (size_t i = 0; i < json_length(list) && build_step(r->s->b, 1 + o->required.n); i++) {
        const json_value *name = json_at(list, i);
        if (!json_is(name, JSON_KIND_TEXT)) {
            reader_malformed(r, keyword, "a list of names");
            return;
        }
        if (!object_requires(o, json_str(name))) {
            (void)PART_ADD(r->s, o->required, json_str(name));
        }
    }
}

void keyword_required(schema_reader *r, const char *keyword, const json_value *v) {
    if (!json_is(v, JSON_KIND_BOOL) || r->s->draft > 4) { /* draft 3 has it in each property */
        reader_add_required(r, keyword, v, &r->object);
    }
}

void keyword_names(schema_reader *r, const char *keyword, const json_value *v) {
    uint32_t x = reader_below(r, keyword, NULL, v);
    if (x != EXPR_ANY) {
        (void)PART_ADD(r->s, r->object.name_exprs, x);
    }
}

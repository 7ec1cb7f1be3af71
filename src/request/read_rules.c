/* Fields that set a rule for the response (request.h): response_format,
 * structured_outputs, and their equivalents in other APIs. */
#include <assert.h>
#include <string.h>

#include "request/request_read.h"
#include "json/json_out.h"

/* Removes the rule if field f set it. */
static quire_err drop_rule(quire_request *r, const field_desc *f) {
    if (r->rule.field == f) {
        r->rule = (request_rule){0};
    }
    return QUIRE_OK;
}

/* Makes `rule` with the text of v the request's rule. An error if another field set
 * one. */
static quire_err take_rule(quire_request *r, request_rule rule, const json_value *v, quire_error *err) {
    bool is_given = r->rule.field != NULL && r->rule.form != RULE_CALLS;
    if (is_given && r->rule.field != rule.field) {
        return request_range_error(rule.field, err,
                                   "%s and %s are both given; a response can obey only one of them",
                                   r->rule.field->name, rule.field->name);
    }
    rule.text = json_str(v);
    if (v != NULL && !json_is(v, JSON_KIND_TEXT)) {
        strbuf text = {0};
        json_out o = {.to = &text};
        json_add(&o, v);
        strbuf_deinit(o.err == QUIRE_OK ? &r->rule_text : &text);
        TRY(err_set(err, o.err, -1, "out of memory for %s", rule.field->name));
        r->rule_text = text;
        rule.text = (str){text.p, text.n};
    }
    r->rule = rule;
    return QUIRE_OK;
}

/* Whether v can be a schema: an object, or the text of one. */
static bool is_schema(const json_value *v) {
    return json_is(v, JSON_KIND_OBJECT) || json_is(v, JSON_KIND_TEXT);
}

static bool is_choice(const json_value *v) {
    bool fits = json_is(v, JSON_KIND_ARRAY) && json_length(v) > 0;
    for (size_t i = 0; fits && i < json_length(v); i++) {
        fits = json_is(json_at(v, i), JSON_KIND_TEXT);
    }
    return fits;
}

/* Whether v has the type that this kind needs; if not, *wanted describes it. */
static bool has_form(grammar_kind kind, const json_value *v, const char **wanted) {
    switch (kind) {
    case GRAMMAR_SCHEMA:
        *wanted = "a JSON Schema, an object or its text";
        return is_schema(v);
    case GRAMMAR_CHOICE:
        *wanted = "an array of at least one string";
        return is_choice(v);
    case GRAMMAR_JSON_OBJECT:
        *wanted = "true";
        return json_is(v, JSON_KIND_BOOL) && json_truth(v);
    default:
        *wanted = "a string";
        return json_is(v, JSON_KIND_TEXT);
    }
}

/* Fields whose value is the rule itself, and members of structured_outputs. */
static const struct {
    const char *name;
    grammar_kind kind;
    bool is_member;
} forms[] = {
    {"choice", GRAMMAR_CHOICE, true},
    {"ebnf", GRAMMAR_EBNF, false},
    {"grammar", GRAMMAR_EBNF, true},
    {"guided_choice", GRAMMAR_CHOICE, false},
    {"guided_grammar", GRAMMAR_EBNF, false},
    {"guided_json", GRAMMAR_SCHEMA, false},
    {"guided_regex", GRAMMAR_REGEX, false},
    {"json", GRAMMAR_SCHEMA, true},
    {"json_object", GRAMMAR_JSON_OBJECT, true},
    {"json_schema", GRAMMAR_SCHEMA, false},
    {"regex", GRAMMAR_REGEX, true},
};
#define STRUCTURAL_TAG "structural_tag" /* also a member of structured_outputs; not a grammar_kind */
#define WANTED_TAG     "a structural tag, an object or its text"
enum { N_FORMS = sizeof forms / sizeof *forms };

/* Whether any line of the text starts with a name and ::=. In Lark, ::= can only occur in
 * comments and strings, which start with another character. */
static bool has_ebnf_head(str text) {
    bool is_name = true; /* only name characters since the line began */
    for (size_t i = 0; i < text.n; i++) {
        if (is_name && str_begins((str){text.p + i, text.n - i}, "::=")) {
            return true;
        }
        char c = text.p[i];
        bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c != 0 && strchr("_-.<>[] \t\r", c) != NULL);
        is_name = c == '\n' || (is_name && fits);
    }
    return false;
}

/* The notation of a grammar's text. It is Lark if no rule is defined with ::=. */
static grammar_kind read_rules_kind_of(int32_t form, const json_value *v) {
    bool is_lark =
        forms[form].kind == GRAMMAR_EBNF && json_is(v, JSON_KIND_TEXT) && !has_ebnf_head(json_str(v));
    return is_lark ? GRAMMAR_LARK : forms[form].kind;
}

/* The form with the field's name, or with the name of a member of structured_outputs. */
static int32_t find_form(const char *name) {
    int32_t i = N_FORMS - 1;
    const char *dot = strrchr(name, '.');
    name = dot != NULL ? dot + 1 : name;
    while (i >= 0 && strcmp(forms[i].name, name) != 0) {
        i--;
    }
    return i;
}

quire_err request_read_rule(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    const char *wanted = WANTED_TAG;
    if (v == NULL) {
        return drop_rule(r, f);
    }
    int32_t form = find_form(f->name);
    request_rule rule = {.field = f};
    if (form < 0) {
        rule.form = RULE_STRUCTURAL_TAG;
    } else {
        rule.kind = read_rules_kind_of(form, v);
    }
    return (form < 0 ? is_schema(v) : has_form(rule.kind, v, &wanted))
               ? take_rule(r, rule, v, err)
               : request_type_error(f, -1, v, wanted, err);
}

/* Reads a member of structured_outputs that sets the rule: all of *rule except its
 * text. */
static quire_err read_rules_read_member(const field_desc *f, const json_member *m, request_rule *rule,
                                        quire_error *err) {
    const char *wanted = WANTED_TAG;
    int32_t form = find_form(m->name);
    if (rule->field != NULL) {
        return request_range_error(f, err, "structured_outputs names two rules; %s is the second", m->name);
    }
    rule->field = f;
    if (form < 0) {
        rule->form = RULE_STRUCTURAL_TAG;
    } else {
        rule->kind = read_rules_kind_of(form, m->value);
    }
    /* no param, as in vLLM */
    if (form >= 0 && rule->kind == GRAMMAR_CHOICE && json_length(m->value) == 0) {
        return err_set(err, QUIRE_BAD_REQUEST, -1,
                       "structured_outputs.choice is empty; it must have at least one string");
    }
    bool fits = form < 0 ? is_schema(m->value) : has_form(rule->kind, m->value, &wanted);
    return fits ? QUIRE_OK : request_range_error(f, err, "structured_outputs.%s must be %s", m->name, wanted);
}

static const char *const additional_words[] = {
    [GRAMMAR_ADDITIONAL_SCHEMA] = "schema", [GRAMMAR_ADDITIONAL_CLOSED] = "closed"};

const char *request_additional_word(grammar_additional a) {
    return additional_words[a];
}

/* Reads "closed" or "schema" into *out; false: another value. */
static bool read_additional(const json_value *v, grammar_additional *out) {
    *out = str_is(json_str(v), additional_words[GRAMMAR_ADDITIONAL_CLOSED]) ? GRAMMAR_ADDITIONAL_CLOSED
                                                                            : GRAMMAR_ADDITIONAL_SCHEMA;
    return json_is(v, JSON_KIND_TEXT) && str_is(json_str(v), additional_words[*out]);
}

quire_err request_read_structured(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    request_rule rule = {0};
    const json_value *given = NULL;
    if (v == NULL) {
        return drop_rule(r, f);
    }
    for (json_member m = {0}; json_next(v, &m);) {
        int32_t form = find_form(m.name);
        bool is_rule = strcmp(m.name, STRUCTURAL_TAG) == 0 || (form >= 0 && forms[form].is_member);
        bool is_off = m.value == NULL || (json_is(m.value, JSON_KIND_BOOL) && !json_truth(m.value));
        if (is_rule && !is_off) {
            TRY(read_rules_read_member(f, &m, &rule, err));
            given = m.value;
        } else if (strcmp(m.name, "whitespace_pattern") == 0 && json_is(m.value, JSON_KIND_TEXT)) {
            rule.whitespace_pattern = json_str(m.value);
        } else if (strcmp(m.name, "disable_any_whitespace") == 0) {
            rule.says_space = m.value != NULL; /* null: json_whitespace applies */
            rule.space = is_off ? GRAMMAR_SPACE_ANY : GRAMMAR_SPACE_COMPACT;
        } else if (strcmp(m.name, "additional_properties") == 0 && m.value != NULL) {
            rule.says_additional = true;
            if (!read_additional(m.value, &rule.additional)) {
                return request_range_error(
                    f, err, "structured_outputs.additional_properties must be \"closed\" or \"schema\"");
            }
        } else if (strcmp(m.name, "disable_additional_properties") == 0 && json_is(m.value, JSON_KIND_BOOL)) {
            /* vLLM's name of the option */
            rule.says_additional = true;
            rule.additional = is_off ? GRAMMAR_ADDITIONAL_SCHEMA : GRAMMAR_ADDITIONAL_CLOSED;
        } else if (!is_off) {
            return request_range_error(f, err, "structured_outputs.%s is not supported; leave it out",
                                       m.name);
        }
    }
    return rule.field != NULL ? take_rule(r, rule, given, err)
                              : request_range_error(f, err,
                                                    "structured_outputs must have json, json_object, regex, "
                                                    "choice, grammar or structural_tag");
}

static bool read_rules_is_any(const json_value *v) {
    return str_is(json_str(v), "any");
}

static const char *const space_words[] = {
    [GRAMMAR_SPACE_COMPACT] = "compact", [GRAMMAR_SPACE_LINES] = "lines", [GRAMMAR_SPACE_ANY] = "any"};

static grammar_space space_of(str word) {
    grammar_space found = GRAMMAR_SPACE_COMPACT;
    for (size_t i = 0; i < sizeof space_words / sizeof *space_words; i++) {
        found = str_is(word, space_words[i]) ? (grammar_space)i : found;
    }
    return found;
}

quire_err request_read_space(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.json_space = v != NULL ? space_of(json_str(v)) : r->context.json_space;
    return QUIRE_OK;
}

quire_err request_read_order(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.json_order = read_rules_is_any(v) ? GRAMMAR_ORDER_ANY : GRAMMAR_ORDER_SCHEMA;
    return QUIRE_OK;
}

quire_err request_read_numbers(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    assert(r != NULL);
    (void)f, (void)err;
    r->g.json_numbers = read_rules_is_any(v) ? GRAMMAR_NUMBERS_ANY : GRAMMAR_NUMBERS_SHORT;
    return QUIRE_OK;
}

quire_err request_read_additional(quire_request *r, const field_desc *f, const json_value *v,
                                  quire_error *err) {
    (void)f, (void)err;
    if (v == NULL) {
        r->g.json_additional =
            r->context.opens_objects ? GRAMMAR_ADDITIONAL_SCHEMA : GRAMMAR_ADDITIONAL_CLOSED;
        return QUIRE_OK;
    }
    (void)read_additional(v, &r->g.json_additional);
    return QUIRE_OK;
}

quire_err request_read_format(quire_request *r, const field_desc *f, const json_value *v, quire_error *err) {
    str type = json_get_str(v, "type");
    if (v == NULL || str_is(type, "text")) {
        return drop_rule(r, f);
    }
    if (str_is(type, "json_object")) {
        return take_rule(r, (request_rule){.field = f, .kind = GRAMMAR_JSON_OBJECT}, NULL, err);
    }
    if (str_is(type, STRUCTURAL_TAG)) {
        return take_rule(r, (request_rule){.field = f, .form = RULE_STRUCTURAL_TAG}, v, err);
    }
    if (!str_is(type, "json_schema")) {
        return err_set_param(
            err, QUIRE_BAD_REQUEST, "body.response_format.type",
            "response_format.type must be \"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
    }
    const json_value *given = json_get(v, "json_schema"), *schema = json_get(given, "schema");
    if (!json_is(given, JSON_KIND_OBJECT) || !json_is(schema, JSON_KIND_OBJECT)) {
        return request_range_error(f, err,
                                   "response_format.json_schema.schema must be a JSON Schema, an object");
    }
    return take_rule(r, (request_rule){.field = f, .kind = GRAMMAR_SCHEMA}, schema, err);
}

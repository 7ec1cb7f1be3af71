#include "answer/answer_rule.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answer/structural_tag.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/params.h"
#include "grammar/grammar.h"
#include "request/request_read.h"
#include "json/json_out.h"

bool answer_rule_is_marked(const request_rule *rule, const reasoning_frame *frame) {
    assert(rule != NULL);
    return rule->form != RULE_OF_KIND || !reasoning_frame_is_empty(frame);
}

_Static_assert(PARAMS_MAX_RULE_BYTES == GRAMMAR_MAX_TEXT,
               "a field's value and the text that is compiled have one bound");

static quire_err check_text(str text, quire_error *why) {
    return text.n <= GRAMMAR_MAX_TEXT ? QUIRE_OK
                                      : err_set(why, QUIRE_TOO_LARGE, -1,
                                                "the grammar's text has %zu bytes; at most %zu are allowed",
                                                text.n, GRAMMAR_MAX_TEXT);
}

/* Reports the arena's failure, if any, as the rule's error. */
static quire_err check_arena(const part_arena *a, quire_error *why) {
    return a->failed == QUIRE_TOO_LARGE ? err_set(why, a->failed, -1, "it is too large") : a->failed;
}

static grammar_options options_of(const request_rule *rule, const rule_context *c) {
    return (grammar_options){.space = request_rule_space(rule, c->space),
                             .order = c->order,
                             .numbers = c->numbers,
                             .additional = request_rule_additional(rule, c->additional),
                             .whitespace_pattern = rule->whitespace_pattern};
}

/* Compiles a rule: `answer` inside its frame if it needs marks, else the rule's text. */
static quire_err answer_rule_build(part_arena *a, const request_rule *rule, const grammar_part *answer,
                                   const rule_context *c, const grammar_options *options, grammar **out,
                                   quire_error *why) {
    if (!answer_rule_is_marked(rule, c->frame)) {
        return grammar_compile(rule->kind, rule->text, options, out, why);
    }
    const grammar_part all = reasoning_frame_around(a, c->frame, c->marks, answer);
    TRY(check_arena(a, why));
    return grammar_compile_parts(&all, c->marks, options, out, why);
}

/* Takes the grammar from the cache, or compiles it and adds it to the cache. */
static quire_err take_grammar(part_arena *a, const request_rule *rule, const grammar_part *answer,
                              const rule_context *c, grammar **out, quire_error *why) {
    const grammar_options options = options_of(rule, c);
    grammar_key key = answer_rule_key(rule->form, c, &options,
                                      answer_rule_is_marked(rule, c->frame) ? c->frame : NULL, rule->text);
    key.kind = rule->kind;
    *out = c->cache != NULL ? grammar_cache_find(c->cache, &key) : NULL;
    if (*out == NULL) {
        TRY(answer_rule_build(a, rule, answer, c, &options, out, why));
        if (c->cache != NULL) {
            grammar_cache_keep(c->cache, &key, *out);
        }
    }
    return QUIRE_OK;
}

grammar_key answer_rule_key(request_rule_form form, const rule_context *c, const grammar_options *options,
                            const reasoning_frame *frame, str text) {
    grammar_key key = {.tenant = c->tenant,
                       .form = form,
                       .space = options->space,
                       .order = options->order,
                       .numbers = options->numbers,
                       .additional = options->additional,
                       .whitespace_pattern = options->whitespace_pattern,
                       .text = text};
    if (frame != NULL && frame->format != NULL) {
        key.frame = *frame;
    }
    return key;
}

/* If e is an error in a tool's schema, rewrites *why to name the tool in place of its
 * index in the list of calls that tool_choice forces. Returns e. */
static quire_err answer_rule_name_tool(const request_rule *rule, quire_err e, quire_error *why) {
    static const char list[] = "\"/items/anyOf/", arguments[] = "/properties/arguments";
    char *at = rule->form == RULE_OF_KIND && e != QUIRE_OK ? strstr(why->message, list) : NULL;
    if (at == NULL || strcmp(rule->field->name, "tool_choice") != 0) {
        return e;
    }
    size_t digits = strspn(at + sizeof list - 1, "0123456789");
    const char *rest = at + sizeof list - 1 + digits;
    quire_error told = *why;
    if (str_begins(str_of(rest), arguments)) {
        (void)snprintf(told.message, sizeof told.message, "the parameters of tools[%.*s]: %.*s\"%s",
                       (int)digits, at + sizeof list - 1, (int)(at - why->message), why->message,
                       rest + sizeof arguments - 1);
        *why = told;
    }
    return e;
}

quire_err answer_rule_compile(const request_rule *rule, const rule_context *c, grammar **out,
                              quire_error *err) {
    part_arena a = {0};
    json_value *tag = NULL;
    quire_error why = {0};
    *out = NULL;
    quire_err e = check_text(rule->text, &why);
    grammar_part answer = part_rule(rule->kind, rule->text, NULL);
    answer.whitespace_pattern = rule->whitespace_pattern;
    bool is_tag = rule->form == RULE_STRUCTURAL_TAG;
    if (is_tag) {
        TRY_DONE(e, request_read_value(rule->text, 0, NULL, &tag, &why));
        TRY_DONE(e, structural_tag_read(&a, tag, &answer, &why));
    }
    TRY_DONE(e, take_grammar(&a, rule, &answer, c, out, &why));
    if (is_tag) {
        /* Checked for cached tags too, since the end tokens differ between requests. A
         * rule that compiled is small enough to search. */
        e = structural_tag_check_ends(tag, c->marks, c->ends, c->n_ends, &why);
    }
done:
    if (e != QUIRE_OK) {
        grammar_drop(*out);
        *out = NULL;
    }
    part_arena_deinit(&a);
    json_drop(tag);
    return answer_rule_error(rule, answer_rule_name_tool(rule, e, &why), &why, err);
}

quire_err answer_rule_outgrown(const request_rule *rule, quire_err e, const char *why, quire_error *err) {
    assert(rule != NULL);
    const field_desc *f = rule->field;
    if (e != QUIRE_TOO_LARGE) {
        why = why != NULL ? why
                          : "its states take more than is left of the memory for rules, or of this tenant's "
                            "share of it";
        return err_set(err, e, -1, "%s: out of memory for rules: %s; try again later", f->name, why);
    }
    why = why != NULL ? why : "it is too ambiguous from its first character on";
    return err_set_param(err, e, request_rule_param(f),
                         "%s: too large: %s; make its rules less ambiguous, or use fewer repeats and classes",
                         f->name, why);
}

quire_err answer_rule_error(const request_rule *rule, quire_err e, const quire_error *why, quire_error *err) {
    assert(rule != NULL);
    const char *name = rule->field->name;
    switch (e) {
    case QUIRE_OK:
        return e;
    case QUIRE_NO_MEMORY:
        return err_set(err, e, -1, "out of memory for %s", name);
    case QUIRE_CANCELLED:
        return err_set(err, e, -1, "cancelled");
    default:
        return err_set_param(err, QUIRE_BAD_REQUEST, request_rule_param(rule->field), "%s: %s", name,
                             why->message);
    }
}

/* ---- checks without generating ---- */

typedef struct noted {
    size_t path, keyword, how; /* offsets into texts */
    int status;
} noted;

#define SCHEMA_CHECK_KEYWORDS 10000             /* most keywords that a report lists */
#define SCHEMA_CHECK_BYTES    ((size_t)4 << 20) /* approximate limit of the bytes of their texts */

enum { SLOTS = 4 * SCHEMA_CHECK_KEYWORDS };

/* The keywords of a schema, in order of first occurrence. */
typedef struct report {
    strbuf texts;      /* the texts of the list, each 0-terminated */
    noted *list;       /* [SCHEMA_CHECK_KEYWORDS] */
    int32_t *slots, n; /* a hash table: 1 + index in list, 0 where it is empty */
    bool is_cut, is_short;
} report;

static const char *const statuses[] = {
    [GRAMMAR_ENFORCED] = "enforced", [GRAMMAR_ANNOTATION] = "annotation", [GRAMMAR_REFUSED] = "refused"};

static const char *text_at(const report *x, size_t at) {
    return x->texts.p + at;
}

static size_t keep(report *x, const char *text) {
    size_t at = x->texts.n;
    x->is_short = x->is_short || strbuf_add(&x->texts, text, strlen(text) + 1) != QUIRE_OK;
    return at;
}

static uint32_t add_hash(uint32_t h, const char *text) {
    for (; *text != '\0'; text++) {
        h = (h ^ (uint8_t)*text) * 16777619U;
    }
    return (h ^ '/') * 16777619U;
}

/* Records a keyword. It may occur several times; a refusal replaces any other status. */
static void note_keyword(void *user, const grammar_keyword *k) {
    report *x = user;
    uint32_t slot = add_hash(add_hash(2166136261U, k->path), k->keyword) % SLOTS;
    noted *f = NULL;
    for (; x->slots[slot] > 0; slot = (slot + 1) % SLOTS) {
        f = &x->list[x->slots[slot] - 1];
        if (strcmp(text_at(x, f->path), k->path) == 0 && strcmp(text_at(x, f->keyword), k->keyword) == 0) {
            break;
        }
    }
    bool is_new = x->slots[slot] == 0;
    x->is_cut =
        x->is_cut ||
        (is_new && (x->n == SCHEMA_CHECK_KEYWORDS || x->texts.n + strlen(k->path) > SCHEMA_CHECK_BYTES));
    if (x->is_short || (is_new && x->is_cut) ||
        (!is_new && (k->status != GRAMMAR_REFUSED || f->status == GRAMMAR_REFUSED))) {
        return;
    }
    if (is_new) {
        f = &x->list[x->n];
        *f = (noted){.path = keep(x, k->path), .keyword = keep(x, k->keyword)};
        x->slots[slot] = ++x->n;
    }
    f->how = keep(x, k->how);
    f->status = (int)k->status;
}

/* Writes the list of keywords. n: out, the number of keywords of each status. */
static void write_list(const report *x, int64_t n[3], json_out *o) {
    json_begin(o, '[');
    for (int32_t i = 0; i < x->n; i++) {
        const noted *f = &x->list[i];
        json_begin(json_item(o), '{');
        json_cstr(json_name(o, "path"), text_at(x, f->path));
        json_cstr(json_name(o, "keyword"), text_at(x, f->keyword));
        json_cstr(json_name(o, "status"), statuses[f->status]);
        json_cstr(json_name(o, "how"), text_at(x, f->how));
        json_end(o, '}');
        n[f->status]++;
    }
    json_end(o, ']');
}

static void write_keywords(const report *x, json_out *o) {
    int64_t n[3] = {0};
    write_list(x, n, json_name(o, "keywords"));
    json_bool(json_name(o, "keywords_cut"), x->is_cut);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        json_int(json_name(o, statuses[i]), n[i]);
    }
}

static const char *kind_name(grammar_kind kind) {
    static const char *const names[] = {
        [GRAMMAR_REGEX] = "regex",   [GRAMMAR_SCHEMA] = "json_schema", [GRAMMAR_JSON_OBJECT] = "json_object",
        [GRAMMAR_CHOICE] = "choice", [GRAMMAR_EBNF] = "grammar",       [GRAMMAR_W3C] = "grammar",
        [GRAMMAR_LARK] = "grammar",
    };
    return names[kind];
}

typedef struct outcome {
    bool is_accepted;
    const char *reason;
    const char *additional; /* "closed" or "schema"; NULL if the rule is not a schema */
    int64_t us;
    size_t bytes;
} outcome;

static void write_report(const report *x, const char *kind, const outcome *done, json_out *o) {
    json_begin(o, '{');
    json_cstr(json_name(o, "object"), "schema.check");
    json_cstr(json_name(o, "kind"), kind);
    json_bool(json_name(o, "accepted"), done->is_accepted);
    json_cstr(json_name(o, "reason"), done->reason);
    json_cstr(json_name(o, "additional_properties"), done->additional);
    write_keywords(x, o);
    json_int(json_name(o, "compile_us"), done->us);
    json_int(json_name(o, "grammar_bytes"), (int64_t)done->bytes);
    json_end(o, '}');
}

/* Compiles the rule and records its keywords. */
static quire_err schema_check_compile(const quire_request *r, grammar_additional additional, report *x,
                                      grammar **out, quire_error *why) {
    const request_rule *rule = &r->rule;
    const grammar_options options = {.space = request_rule_space(rule, r->g.json_space),
                                     .order = r->g.json_order,
                                     .numbers = r->g.json_numbers,
                                     .additional = additional,
                                     .whitespace_pattern = rule->whitespace_pattern,
                                     .keyword = note_keyword,
                                     .user = x,
                                     .survey = true};
    quire_err e = grammar_compile(rule->kind, rule->text, &options, out, why);
    return x->is_short ? QUIRE_NO_MEMORY : e;
}

/* Compiles the rule and writes the report, or its list alone. */
static quire_err check_rule(const quire_request *r, bool list_only, report *x, strbuf *out) {
    const request_rule *rule = &r->rule;
    json_out o = {.to = out};
    quire_error why = {0};
    grammar *g = NULL;
    int64_t began_us = clock_us(), n[3] = {0};
    grammar_additional additional = request_rule_additional(rule, r->g.json_additional);
    quire_err e = schema_check_compile(r, additional, x, &g, &why);
    const outcome done = {.is_accepted = e == QUIRE_OK,
                          .reason = e == QUIRE_OK ? NULL : why.message,
                          .additional =
                              rule->kind == GRAMMAR_SCHEMA ? request_additional_word(additional) : NULL,
                          .us = clock_us() - began_us,
                          .bytes = g != NULL ? grammar_bytes(g) : 0};
    grammar_drop(g);
    if (e == QUIRE_NO_MEMORY) {
        return e;
    }
    if (list_only) {
        write_list(x, n, &o);
    } else {
        write_report(x, kind_name(rule->kind), &done, &o);
    }
    return o.err;
}

static quire_err schema_check_do(const quire_request *r, bool list_only, strbuf *out) {
    report x = {.list = mem_new(SCHEMA_CHECK_KEYWORDS, sizeof *x.list),
                .slots = mem_new(SLOTS, sizeof *x.slots)};
    quire_err e = x.list != NULL && x.slots != NULL ? check_rule(r, list_only, &x, out) : QUIRE_NO_MEMORY;
    strbuf_deinit(&x.texts);
    mem_free(x.list);
    mem_free(x.slots);
    return e;
}

quire_err schema_check_list(const quire_request *r, strbuf *out) {
    assert(r != NULL);
    return r->rule.kind == GRAMMAR_SCHEMA && r->rule.field != NULL ? schema_check_do(r, true, out)
                                                                   : strbuf_add_str(out, "[]");
}

/* The field that a member of a body sets, if it sets a rule; NULL for other members. */
static const field_desc *row_of(str name, uint32_t endpoint) {
    static const char *const names[] = {"ebnf",
                                        "grammar",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_json",
                                        "guided_regex",
                                        "json_additional_properties",
                                        "json_numbers",
                                        "json_property_order",
                                        "json_schema",
                                        "json_whitespace",
                                        "regex",
                                        "response_format",
                                        "structured_outputs"};
    name = str_is(name, "schema") ? str_of("json_schema") : name;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (str_is(name, names[i])) {
            return request_row(name, endpoint);
        }
    }
    return NULL;
}

/* Reads the rule in body into r. */
static quire_err read_rule(quire_request *r, const json_value *body, quire_error *err) {
    for (json_member m = {0}; json_next(body, &m);) {
        const field_desc *f = row_of(str_of(m.name), FIELD_COMPLETIONS);
        if (f == NULL && strcmp(m.name, "model") != 0) {
            char name[64];
            (void)snprintf(name, sizeof name, "%s", m.name);
            return err_set_param(err, QUIRE_BAD_REQUEST, name,
                                 "%s cannot be checked; give schema or a field that names a rule", name);
        }
        if (f != NULL) {
            TRY(request_set_field(r, f, m.value, err));
        }
    }
    if (r->rule.form == RULE_STRUCTURAL_TAG) {
        return err_set_param(err, QUIRE_BAD_REQUEST, r->rule.field->name,
                             "a structural tag cannot be checked; check the schemas in it one by one");
    }
    return r->rule.field != NULL
               ? QUIRE_OK
               : err_set_param(
                     err, QUIRE_BAD_REQUEST, "schema",
                     "schema is missing; give a JSON Schema, or one of a request's fields that name a rule");
}

/* Reports a rule over the size limit; its kind is not parsed. */
static quire_err report_size(const quire_error *why, strbuf *out) {
    const report none = {0};
    const outcome refused = {.reason = why->message};
    json_out o = {.to = out};
    write_report(&none, NULL, &refused, &o);
    return o.err;
}

quire_err schema_check(const request_context *ctx, str body, strbuf *out, quire_error *err) {
    json_value *v = NULL;
    quire_request *r = NULL;
    quire_error why = {0};
    body_rows rows = {.of = row_of, .endpoint = FIELD_COMPLETIONS};
    if (request_check_body(body, &rows, &why) != QUIRE_OK && rows.over != NULL) {
        return report_size(&why, out) == QUIRE_OK
                   ? QUIRE_OK
                   : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a check");
    }
    TRY(request_read_value(body, 0, NULL, &v, err));
    quire_err e = json_is(v, JSON_KIND_OBJECT)
                      ? request_new(ctx, QUIRE_COMPLETIONS, &r, err)
                      : err_set_param(err, QUIRE_BAD_REQUEST, "body", "the body must be a JSON object");
    TRY_DONE(e, read_rule(r, v, err));
    if (schema_check_do(r, false, out) != QUIRE_OK) {
        e = err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a check");
    }
done:
    request_free(r);
    json_drop(v);
    return e;
}

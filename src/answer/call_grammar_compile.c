/* Compiles grammars of calls, and loosens tools' schemas that cannot be enforced. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answer/answer_format.h"
#include "answer/call_grammar.h"
#include "answer/json_stream.h"
#include "answer/typed_value.h"
#include "base/clock.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "json/json_out.h"

/* Loosening removes from a tool's schema the parts that cannot be enforced, if the model
 * may but need not call the tool; properties without such parts keep their schemas. */
enum { CALL_REFUSALS = 32, CALL_REFUSAL_BYTES = 512 };

/* Keywords to leave out, and properties to reduce to their types (`of` is empty). */
typedef struct call_refusals {
    const output_tool *tool;
    struct {
        /* path: JSON pointer of the keyword's schema, or of the property. of: the
         * keyword, or empty */
        char path[CALL_REFUSAL_BYTES], of[64];
    } list[CALL_REFUSALS];
    size_t n;
    bool is_new; /* a keyword or property was added */
    /* call_refusals_note adds properties instead of single keywords */
    bool whole;
} call_refusals;

/* Callback for grammar_options.keyword; user: a call_refusals. Adds a refused keyword, or
 * the keyword around it that inverts or counts matches (not, if, oneOf, contains):
 * without that one the schema allows more texts, never fewer. */
void call_refusals_note(void *user, const grammar_keyword *k);
/* Copies the tool's schema without these keywords and properties; `without` NULL: keeps
 * only its properties' types, and which of them are required. *out belongs to the caller
 * (json_drop). QUIRE_NO_MEMORY, QUIRE_TOO_LARGE. */
quire_err call_loosen(const output_tool *tool, const call_refusals *without, json_value **out);

static quire_err compile_part(call_parts *m, grammar_part part, const grammar_options *options, grammar **out,
                              quire_error *err) {
    quire_err e = m->arena.failed;
    return e != QUIRE_OK ? err_set(err, e, -1,
                                   e == QUIRE_TOO_LARGE ? "they are too large together"
                                                        : "out of memory for a request's tools")
                         : grammar_compile_parts(&part, m->marks, options, out, err);
}

static bool is_refusal(quire_err e) {
    return e != QUIRE_OK && e != QUIRE_NO_MEMORY && e != QUIRE_CANCELLED;
}

/* Records that compiling exceeded a limit, which may depend on the time that was left. */
static void note_haste(const call_parts *m, quire_err e) {
    if (e == QUIRE_TOO_LARGE && m->c->in_haste != NULL) {
        *m->c->in_haste = true;
    }
}

/* Compiles the arguments of tool i alone in a writing, to see whether its schema can be
 * enforced. *why: the reason of an error. */
static quire_err try_alone(call_parts *m, const call_writing *w, size_t i, const grammar_options *options,
                           quire_error *why) {
    grammar *g = NULL;
    call_parts_forget(m);
    quire_err e = call_grammar_takes(m->c, w, i)
                      ? compile_part(m, call_parts_arguments(m, w, i), options, &g, why)
                      : QUIRE_OK;
    grammar_drop(g);
    return e;
}

/* Loosens the schema of tool i as `without` says; NULL: reduces all its properties to
 * their types. *owned: the new schema, which replaces the last one. */
static quire_err loosen(call_parts *m, size_t i, const call_refusals *without, json_value **owned,
                        quire_error *err) {
    json_value *made = NULL;
    TRY(err_set(err, call_loosen(&m->c->tools[i], without, &made), -1,
                "out of memory for a request's tools"));
    json_drop(*owned);
    *owned = made;
    m->schemas[i] = made;
    return QUIRE_OK;
}

/* Loosens tool i's schema step by step until it compiles: without the refused keywords,
 * then with only the types of the properties that have them, then of all properties. */
static quire_err loosen_tool(call_parts *m, const call_writing *w, size_t i, const grammar_options *options,
                             int64_t until, json_value **owned, quire_error *err) {
    enum { ROUNDS = 4, ROUNDS_OF_KEYWORDS = 2 };
    call_refusals refused = {.tool = &m->c->tools[i]};
    for (int round = 0; round < ROUNDS; round++) {
        quire_error why = {0};
        grammar_options alone = *options;
        alone.max_us = until - clock_thread_us();
        alone.survey = true;
        alone.keyword = call_refusals_note;
        alone.user = &refused;
        refused.is_new = false;
        refused.whole = round >= ROUNDS_OF_KEYWORDS;
        quire_err e = alone.max_us > 0 ? try_alone(m, w, i, &alone, &why) : QUIRE_TOO_LARGE;
        if (e == QUIRE_OK && round > 0) {
            return e;
        }
        if (e != QUIRE_OK && !is_refusal(e)) {
            TRY(e);
        }
        if (!refused.is_new) {
            break;
        }
        TRY(loosen(m, i, &refused, owned, err));
    }
    return loosen(m, i, NULL, owned, err);
}

/* Loosens the tools whose schemas cannot be enforced, or cannot be checked in time: all
 * checks together get the time limit of one compilation. */
static quire_err loosen_refused(call_parts *m, const grammar_options *options, json_value **owned,
                                quire_error *err) {
    call_writing w;
    bool has_writing = call_grammar_next(m->c, &(size_t){0}, &w);
    int64_t until = clock_thread_us() + GRAMMAR_MAX_US;
    for (size_t i = 0; has_writing && i < m->c->n_tools; i++) {
        quire_error why = {0};
        grammar_options alone = *options;
        alone.max_us = until - clock_thread_us();
        quire_err e = alone.max_us > 0 ? try_alone(m, &w, i, &alone, &why) : QUIRE_TOO_LARGE;
        if (e != QUIRE_OK && m->c->tools[i].is_strict) {
            *err = alone.max_us > 0 ? why : *err;
            m->is_own_fault = alone.max_us > 0;
            return e;
        }
        if (e != QUIRE_OK && !is_refusal(e)) {
            TRY(e);
        }
        note_haste(m, e);
        if (e != QUIRE_OK) {
            TRY(loosen_tool(m, &w, i, options, until, &owned[i], err));
        }
    }
    return QUIRE_OK;
}

/* Reduces the properties of all tools that are not strict to their types, since together
 * the schemas are too large. */
static quire_err loosen_all(call_parts *m, json_value **owned, quire_error *err) {
    for (size_t i = 0; i < m->c->n_tools; i++) {
        if (!m->c->tools[i].is_strict) {
            TRY(loosen(m, i, NULL, &owned[i], err));
        }
    }
    return QUIRE_OK;
}

/* ---- compiling ---- */

static quire_err compile_answer(call_parts *m, const reasoning_frame *frame, const grammar_options *options,
                                grammar **out, quire_error *err) {
    call_parts_forget(m);
    return compile_part(m, call_parts_answer(m, frame), options, out, err);
}

static quire_err call_grammar_compile_do(call_parts *m, const reasoning_frame *frame,
                                         const grammar_options *options, json_value **owned, grammar **out,
                                         quire_error *err) {
    quire_err e = compile_answer(m, frame, options, out, err);
    for (int round = 0; round < 2 && is_refusal(e) && !m->c->is_required; round++) {
        note_haste(m, e);
        TRY(round == 0 ? loosen_refused(m, options, owned, err) : loosen_all(m, owned, err));
        e = compile_answer(m, frame, options, out, err);
    }
    return e;
}

/* Step limit: grows with each hundred tools, up to four times that of one rule. The time
 * limit is that of one rule. */
static int64_t max_steps(size_t n_tools) {
    enum { TOOLS = 100, MOST = 4 };
    return (int64_t)GRAMMAR_MAX_STEPS * (n_tools / TOOLS + 1 < MOST ? (int64_t)(n_tools / TOOLS + 1) : MOST);
}

quire_err call_grammar_compile(const call_grammar *c, const reasoning_frame *frame,
                               const grammar_marks *marks, const grammar_options *options, grammar **out,
                               quire_error *err) {
    grammar_options own = options != NULL ? *options : (grammar_options){0};
    own.max_steps = own.max_steps > 0 ? own.max_steps : max_steps(c->n_tools);
    own.max_depth = JSON_STREAM_DEPTH; /* the depth that the parser reads */
    call_parts m = {.c = c,
                    .marks = marks,
                    .schemas = mem_new(c->n_tools, sizeof *m.schemas),
                    .made = mem_new(c->n_tools, sizeof *m.made)};
    json_value **owned = mem_new(c->n_tools, sizeof *owned);
    if (own.space == GRAMMAR_SPACE_COMPACT && own.whitespace_pattern.n == 0) {
        own.whitespace_pattern = str_of(" ?"); /* models write a space after ':' and ',' */
    }
    quire_err e = m.schemas != NULL && m.made != NULL && owned != NULL
                      ? QUIRE_OK
                      : err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for a request's tools");
    for (size_t i = 0; e == QUIRE_OK && i < c->n_tools; i++) {
        m.schemas[i] = c->tools[i].parameters;
    }
    TRY_DONE(e, call_grammar_compile_do(&m, frame, &own, owned, out, err));
done:
    if (e == QUIRE_TOO_LARGE && c->n_tools > 1 && !m.is_own_fault && err != NULL) {
        const quire_error at = *err;
        e = err_set(err, e, -1,
                    "%zu tools are too much to compile together (%.200s): offer fewer, or simpler schemas",
                    c->n_tools, at.message);
    }
    for (size_t i = 0; owned != NULL && i < c->n_tools; i++) {
        json_drop(owned[i]);
    }
    mem_free(owned);
    mem_free(m.schemas);
    mem_free(m.made);
    part_arena_deinit(&m.arena);
    return e;
}

/* ---- what is refused ---- */

static bool is_one_of(str name, const char *const *names) {
    for (; *names != NULL; names++) {
        if (str_is(name, *names)) {
            return true;
        }
    }
    return false;
}

/* Keywords that may allow less if a schema inside them is loosened. */
static const char *const turning[] = {"not", "if", "oneOf", "contains", NULL};
static const char *const named[] = {"properties",       "patternProperties", "$defs", "definitions",
                                    "dependentSchemas", "dependencies",      NULL};
static const char *const listed[] = {"allOf", "anyOf", "prefixItems", "items", NULL};

/* The token after the slash at path[*at]; moves *at past it. */
static str next_token(const char *path, size_t *at) {
    size_t from = *at + 1, n = strcspn(path + from, "/");
    *at = from + n;
    return (str){path + from, n};
}

static bool is_index(const char *path, size_t at) {
    str token = path[at] != 0 ? next_token(path, &at) : (str){"", 0};
    return token.n > 0 && strspn(token.p, "0123456789") >= token.n;
}

/* Finds the first keyword of `turning` on a path: its name, and the length of the path
 * before it. False if there is none. */
static bool find_turn(const char *path, size_t *length, str *keyword) {
    for (size_t at = 0; path[at] != 0;) {
        *length = at;
        *keyword = next_token(path, &at);
        if (is_one_of(*keyword, turning)) {
            return true;
        }
        bool more = is_one_of(*keyword, named) || (is_one_of(*keyword, listed) && is_index(path, at));
        if (more && path[at] != 0) {
            (void)next_token(path, &at);
        }
    }
    return false;
}

/* Whether a schema inside a keyword of `turning` has a reference to another place. */
static bool turns_elsewhere(const json_value *v, bool is_turned) {
    for (size_t i = 0; json_is(v, JSON_KIND_ARRAY) && i < json_length(v); i++) {
        if (turns_elsewhere(json_at(v, i), is_turned)) {
            return true;
        }
    }
    for (json_member m = {0}; json_next(v, &m);) {
        bool refers = is_turned && (strcmp(m.name, "$ref") == 0 || strcmp(m.name, "$dynamicRef") == 0);
        if (refers || turns_elsewhere(m.value, is_turned || is_one_of(str_of(m.name), turning))) {
            return true;
        }
    }
    return false;
}

static void call_loosen_add(call_refusals *r, str path, str keyword) {
    for (size_t i = 0; i < r->n; i++) {
        if (str_is(path, r->list[i].path) && str_is(keyword, r->list[i].of)) {
            return;
        }
    }
    if (r->n < CALL_REFUSALS && path.n < sizeof r->list->path && keyword.n < sizeof r->list->of) {
        (void)snprintf(r->list[r->n].path, sizeof r->list->path, "%.*s", (int)path.n, path.p);
        (void)snprintf(r->list[r->n++].of, sizeof r->list->of, "%.*s", (int)keyword.n, keyword.p);
        r->is_new = true;
    }
}

void call_refusals_note(void *user, const grammar_keyword *k) {
    assert(k != NULL);
    call_refusals *r = user;
    size_t length = strlen(k->path), at = 0;
    str path = {k->path, length}, keyword = str_of(k->keyword), turn;
    if (k->status != GRAMMAR_REFUSED) {
        return;
    }
    bool is_property = str_begins(path, "/properties/");
    if (r->whole && is_property) {
        (void)next_token(k->path, &at);
        (void)next_token(k->path, &at);
        call_loosen_add(r, (str){k->path, at}, (str){"", 0});
    } else if (!r->whole && find_turn(k->path, &length, &turn)) {
        call_loosen_add(r, (str){k->path, length}, turn);
    } else if (!r->whole && (is_property || !turns_elsewhere(r->tool->parameters, false))) {
        call_loosen_add(r, path, keyword);
    }
}

/* ---- what stays ---- */

static void write_types(const json_value *schema, const json_value *root, json_out *o) {
    static const char *const names[] = {"string", "null", "boolean", "number", "object", "array"};
    enum { NUMBER = 3 };
    bool is_whole = str_is(json_get_str(schema, "type"), "integer");
    unsigned types = schema_types(schema, root);
    json_begin(o, '{');
    if (types != 0) {
        json_begin(json_name(o, "type"), '[');
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
            if ((types >> i & 1) != 0) {
                json_cstr(json_item(o), is_whole && i == NUMBER ? "integer" : names[i]);
            }
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

/* Whether the schema may allow members that `properties` does not list. */
static bool says_more(const json_value *parameters) {
    static const char *const keywords[] = {"patternProperties", "allOf",       "anyOf", "oneOf", "if", "$ref",
                                           "dependentSchemas",  "dependencies"};
    bool says = false;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        says = says || json_has(parameters, keywords[i]);
    }
    const json_value *rest = json_get(parameters, "additionalProperties");
    return says || (rest != NULL && !(json_is(rest, JSON_KIND_BOOL) && !json_truth(rest)));
}

/* Writes a schema with only the properties' types, and which of them are required. */
static void write_outline(const output_tool *tool, json_out *o) {
    const json_value *properties = json_get(tool->parameters, "properties"),
                     *required = json_get(tool->parameters, "required");
    json_begin(o, '{');
    json_cstr(json_name(o, "type"), "object");
    json_begin(json_name(o, "properties"), '{');
    for (json_member p = {0}; json_next(properties, &p);) {
        write_types(p.value, tool->parameters, json_name(o, p.name));
    }
    json_end(o, '}');
    if (says_more(tool->parameters)) {
        json_bool(json_name(o, "additionalProperties"), true);
    }
    json_begin(json_name(o, "required"), '[');
    for (size_t i = 0; i < json_length(required); i++) {
        if (json_is(json_at(required, i), JSON_KIND_TEXT)) {
            json_add(json_item(o), json_at(required, i));
        }
    }
    json_end(o, ']');
    json_end(o, '}');
}

/* A copy in progress. path: JSON pointer of the value being copied. A path too long for
 * the array cannot be one of `without`. */
typedef struct copy {
    const call_refusals *without;
    json_out *o;
    char path[CALL_REFUSAL_BYTES];
} copy;

static bool call_loosen_is_left_out(const copy *c, size_t n, const char *keyword) {
    for (size_t i = 0; i < c->without->n; i++) {
        if (str_is((str){c->path, n}, c->without->list[i].path) &&
            strcmp(c->without->list[i].of, keyword) == 0) {
            return true;
        }
    }
    return false;
}

/* Appends a token to the path of n bytes; returns its new length, or 0: no room. */
static size_t longer_path(copy *c, size_t n, const char *token) {
    if (n + 2 * strlen(token) + 2 > sizeof c->path) {
        return 0;
    }
    c->path[n++] = '/';
    for (; *token != 0; token++) {
        if (*token == '/' || *token == '~') {
            c->path[n++] = '~';
            c->path[n++] = *token == '/' ? '1' : '0';
        } else {
            c->path[n++] = *token;
        }
    }
    return n;
}

static void copy_value(copy *c, const json_value *v, size_t n) {
    bool is_list = json_is(v, JSON_KIND_ARRAY);
    if (!is_list && !json_is(v, JSON_KIND_OBJECT)) {
        json_add(c->o, v);
        return;
    }
    json_begin(c->o, is_list ? '[' : '{');
    for (size_t i = 0; is_list && i < json_length(v); i++) {
        char token[24];
        (void)snprintf(token, sizeof token, "%zu", i);
        size_t more = longer_path(c, n, token);
        (void)json_item(c->o);
        if (more == 0) {
            json_add(c->o, json_at(v, i));
        } else {
            copy_value(c, json_at(v, i), more);
        }
    }
    for (json_member m = {0}; json_next(v, &m);) {
        if (call_loosen_is_left_out(c, n, m.name)) {
            continue;
        }
        size_t more = longer_path(c, n, m.name);
        (void)json_name(c->o, m.name);
        if (more == 0) {
            json_add(c->o, m.value);
        } else if (call_loosen_is_left_out(c, more, "")) {
            write_types(m.value, c->without->tool->parameters, c->o);
        } else {
            copy_value(c, m.value, more);
        }
    }
    json_end(c->o, is_list ? ']' : '}');
}

quire_err call_loosen(const output_tool *tool, const call_refusals *without, json_value **out) {
    strbuf text = {0};
    json_out o = {.to = &text};
    json_fault fault;
    json_limits limits = {.max_depth = 200,
                          .max_values = 200000,
                          .max_containers = 200000,
                          .max_names = 200000,
                          .names = JSON_NAMES_LAST};
    if (without != NULL) {
        copy c = {.without = without, .o = &o};
        copy_value(&c, tool->parameters, 0);
    } else {
        write_outline(tool, &o);
    }
    quire_err e =
        o.err == QUIRE_OK ? json_read((str){text.p, text.n}, &limits, JSON_WIDE_REAL, out, &fault) : o.err;
    strbuf_deinit(&text);
    return e;
}

#include "answer/call_loosen.h"

#include <stdio.h>
#include <string.h>

#include "answer/typed_value.h"
#include "json/json_out.h"

/* ---- what is refused ---- */

static bool is_one_of(str name, const char *const *names) {
    for (; *names != NULL; names++) {
        if (str_is(name, *names)) {
            return true;
        }
    }
    return false;
}

/* Keywords whose schemas allow less where they ask for less. */
static const char *const turning[] = {"not", "if", "oneOf", "contains", NULL};
static const char *const named[] = {"properties",       "patternProperties", "$defs", "definitions",
                                    "dependentSchemas", "dependencies",      NULL};
static const char *const listed[] = {"allOf", "anyOf", "prefixItems", "items", NULL};

/* The token after a slash; *at moves after it. */
static str next_token(const char *path, size_t *at) {
    size_t from = *at + 1, n = strcspn(path + from, "/");
    *at = from + n;
    return (str){path + from, n};
}

static bool is_index(const char *path, size_t at) {
    str token = path[at] != 0 ? next_token(path, &at) : (str){"", 0};
    return token.n > 0 && strspn(token.p, "0123456789") >= token.n;
}

/* Where the path passes a keyword that turns the meaning: how long it is up to there, and
 * that keyword. False: it does not. */
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

/* Whether a keyword that turns the meaning refers to another place in the schema. */
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

/* Whether members may come that `properties` does not list, for all that the schema
 * says. */
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

/* Properties with their types, and which of them are required. */
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

/* A copy under way: path is that of the value, at its end `n` bytes long; one that is too
 * long is no refused one's. */
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

/* Appends a token of a pointer; 0: there is no room. */
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

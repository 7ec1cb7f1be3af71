#include "answer/structural_tag.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "answer/call_grammar.h"
#include "base/turn.h"
#include "json/json_out.h"

#define MAX_DEPTH  40
#define PATH_BYTES 200
#define MAX_COUNT  100000 /* highest count of a repeat */

typedef struct reader {
    part_arena *a;
    quire_error *err;
    char path[PATH_BYTES]; /* path of the format being read */
    int depth;
    /* end texts of the tag whose content is being read, at which free text stops */
    const str *ends;
    size_t n_ends;
} reader;

static quire_err fail(const reader *r, quire_err e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static quire_err fail(const reader *r, quire_err e, const char *format, ...) {
    char what[160];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(r->err, e, -1, "%s%s", r->path, what);
}

static quire_err read_format(reader *r, const json_value *v, grammar_part *out);

/* Reads a format: the current one's member `name`, or its element i; i < 0: no array. */
static quire_err structural_tag_read_member(reader *r, const json_value *v, const char *name, int64_t i,
                                            grammar_part *out) {
    size_t n = strlen(r->path), room = sizeof r->path - n;
    (void)(i < 0 ? snprintf(r->path + n, room, ".%s", name)
                 : snprintf(r->path + n, room, ".%s[%lld]", name, (long long)i));
    TRY(read_format(r, v, out));
    r->path[n] = 0;
    return QUIRE_OK;
}

/* ---- texts ---- */

static quire_err structural_tag_take_text(const reader *r, const json_value *format, const char *name,
                                          str *out) {
    const json_value *v = json_get(format, name);
    *out = json_str(v);
    return json_is(v, JSON_KIND_TEXT) ? QUIRE_OK : fail(r, QUIRE_INVALID, ".%s must be a string", name);
}

/* Reads texts: one, an array of them, or {"type": "token", "token": text}. */
static quire_err take_texts(const reader *r, const json_value *v, const char *name, const str **out,
                            size_t *n) {
    const json_value *token = str_is(json_get_str(v, "type"), "token") ? json_get(v, "token") : NULL;
    v = json_is(token, JSON_KIND_TEXT) ? token : v;
    *n = json_is(v, JSON_KIND_TEXT) ? 1 : json_is(v, JSON_KIND_ARRAY) ? json_length(v) : 0;
    str *texts = part_arena_new(r->a, *n, sizeof *texts);
    if (*n == 0) {
        return fail(r, QUIRE_INVALID, ".%s must be a string, or an array of one or more strings", name);
    }
    for (size_t i = 0; texts != NULL && i < *n; i++) {
        const json_value *one = json_is(v, JSON_KIND_TEXT) ? v : json_at(v, i);
        texts[i] = json_str(one);
        if (!json_is(one, JSON_KIND_TEXT) || (texts[i].n == 0 && *n > 1)) {
            return fail(r, QUIRE_INVALID, ".%s must hold strings that are not empty", name);
        }
    }
    *out = texts;
    *n = texts != NULL ? *n : 0;
    return QUIRE_OK;
}

static quire_err take_excludes(const reader *r, const json_value *format, const str **out, size_t *n) {
    const json_value *v = json_get(format, "excludes");
    *n = 0;
    return v == NULL || (json_is(v, JSON_KIND_ARRAY) && json_length(v) == 0)
               ? QUIRE_OK
               : take_texts(r, v, "excludes", out, n);
}

static quire_err take_flag(const reader *r, const json_value *format, const char *name, bool *out) {
    const json_value *v = json_get(format, name);
    *out = json_get_bool(format, name, false);
    return v == NULL || json_is(v, JSON_KIND_BOOL)
               ? QUIRE_OK
               : fail(r, QUIRE_INVALID, ".%s must be true or false", name);
}

/* Refuses members that a format does not have. `any_order`, which allows any order of
 * members, is accepted, since the schema's order is one of them. */
static quire_err structural_tag_refuse_others(const reader *r, const json_value *format) {
    static const char *const names[] = {
        "type",     "value",   "token",    "json_schema", "style",        "any_order",
        "pattern",  "grammar", "elements", "content",     "min",          "max",
        "begin",    "end",     "triggers", "tags",        "at_least_one", "stop_after_first",
        "separator"};
    str type = json_get_str(format, "type");
    bool excludes = str_is(type, "any_text") || str_is(type, "triggered_tags");
    for (json_member m = {0}; json_next(format, &m);) {
        bool known = excludes && strcmp(m.name, "excludes") == 0;
        bool says_nothing = json_length(m.value) == 0 && !json_truth(m.value) && !json_numeric(m.value) &&
                            json_str(m.value).n == 0;
        for (size_t i = 0; i < sizeof names / sizeof *names && !known; i++) {
            known = strcmp(m.name, names[i]) == 0;
        }
        if (!known && !says_nothing) {
            return fail(r, QUIRE_UNSUPPORTED, ".%.60s is not supported in a format of this type", m.name);
        }
    }
    return QUIRE_OK;
}

/* ---- leaves ---- */

/* A part of a rule whose errors name its path in the tag. */
static grammar_part rule_here(reader *r, grammar_kind kind, str text) {
    char *where = part_arena_new(r->a, strlen(r->path) + 1, 1);
    if (where != NULL) {
        memcpy(where, r->path, strlen(r->path) + 1);
    }
    return part_rule(kind, text, where);
}

static quire_err read_schema(reader *r, const json_value *format, const char *name, grammar_part *out) {
    const json_value *schema = json_get(format, name);
    str style = json_get_str(format, "style");
    strbuf text = {0};
    json_out o = {.to = &text};
    if (!json_is(schema, JSON_KIND_OBJECT) && !json_is(schema, JSON_KIND_BOOL)) {
        return fail(r, QUIRE_INVALID, ".%s must be a JSON Schema, an object", name);
    }
    if (style.n > 0 && !str_is(style, "json")) {
        return fail(r, QUIRE_UNSUPPORTED,
                    ".style must be \"json\"; other styles come with a tool call format");
    }
    json_add(&o, schema);
    str given = part_arena_take(r->a, &text);
    r->a->failed = r->a->failed != QUIRE_OK ? r->a->failed : o.err;
    *out = rule_here(r, GRAMMAR_SCHEMA, given);
    return QUIRE_OK;
}

static quire_err read_text_rule(reader *r, const json_value *format, const char *name, grammar_kind kind,
                                grammar_part *out) {
    str text;
    TRY(structural_tag_take_text(r, format, name, &text));
    *out = rule_here(r, kind, text);
    return QUIRE_OK;
}

/* Concatenates two lists of texts. */
static const str *join_texts(part_arena *a, const str *x, size_t n_x, const str *y, size_t n_y) {
    str *all = part_arena_new(a, n_x + n_y, sizeof *all);
    for (size_t i = 0; all != NULL && i < n_x + n_y; i++) {
        all[i] = i < n_x ? x[i] : y[i - n_x];
    }
    return all;
}

static quire_err read_any_text(reader *r, const json_value *format, grammar_part *out) {
    const str *excludes = NULL;
    size_t n;
    TRY(take_excludes(r, format, &excludes, &n));
    *out = (grammar_part){.part = GRAMMAR_PART_FREE, .n_texts = n + r->n_ends};
    out->texts = join_texts(r->a, excludes, n, r->ends, r->n_ends);
    return QUIRE_OK;
}

/* ---- lists ---- */

static quire_err read_list(reader *r, const json_value *format, grammar_part_kind kind, grammar_part *out) {
    const json_value *list = json_get(format, "elements");
    size_t n = json_length(list);
    if (!json_is(list, JSON_KIND_ARRAY) || n == 0) {
        return fail(r, QUIRE_INVALID, ".elements must be an array of at least one format");
    }
    grammar_part *parts = part_arena_new(r->a, n, sizeof *parts);
    for (size_t i = 0; parts != NULL && i < n; i++) {
        TRY(structural_tag_read_member(r, json_at(list, i), "elements", (int64_t)i, &parts[i]));
    }
    *out = (grammar_part){.part = kind, .parts = parts, .n_parts = parts != NULL ? n : 0};
    return QUIRE_OK;
}

static quire_err read_repeat(reader *r, const json_value *format, uint32_t min, uint32_t max,
                             grammar_part *out) {
    grammar_part content = {0};
    TRY(structural_tag_read_member(r, json_get(format, "content"), "content", -1, &content));
    *out = part_repeat(r->a, content, min, max);
    return QUIRE_OK;
}

static quire_err read_counts(reader *r, const json_value *format, grammar_part *out) {
    int32_t min = json_get_int32(format, "min", -1), max = json_get_int32(format, "max", -2);
    if (min < 0 || min > MAX_COUNT || max < -1 || max > MAX_COUNT || (max >= 0 && max < min)) {
        return fail(r, QUIRE_INVALID,
                    ".min and .max must be counts up to %d, with min at most max; a max of -1 means no limit",
                    MAX_COUNT);
    }
    return read_repeat(r, format, (uint32_t)min, max < 0 ? GRAMMAR_NO_MAX : (uint32_t)max, out);
}

/* ---- tags ---- */

/* Reads a tag's content and end. Content of free text stops at the first of the ends. */
static quire_err read_inside(reader *r, const json_value *content, const str *ends, size_t n_ends,
                             grammar_part *out) {
    const str *outer = r->ends;
    size_t n_outer = r->n_ends;
    bool is_free = str_is(json_get_str(content, "type"), "any_text") && n_ends > 0;
    grammar_part parts[2] = {{0}, {.part = GRAMMAR_PART_ONE_OF}};
    r->ends = n_ends > 0 ? ends : outer;
    r->n_ends = n_ends > 0 ? n_ends : n_outer;
    TRY(structural_tag_read_member(r, content, "content", -1, &parts[0]));
    r->ends = outer;
    r->n_ends = n_outer;
    if (is_free) {
        size_t n = parts[0].n_texts - n_ends;
        *out = part_until(ends, n_ends);
        out->never = parts[0].texts;
        out->n_never = parts[0].texts != NULL ? n : 0;
        return QUIRE_OK;
    }
    grammar_part *texts = part_arena_new(r->a, n_ends, sizeof *texts);
    for (size_t i = 0; texts != NULL && i < n_ends; i++) {
        texts[i] = part_text(ends[i]);
    }
    parts[1].parts = texts;
    parts[1].n_parts = texts != NULL ? n_ends : 0;
    *out = n_ends == 0 ? parts[0] : part_sequence(r->a, parts, 2);
    return QUIRE_OK;
}

/* Reads a tag: its begin text, and the part that follows it. */
static quire_err read_tag(reader *r, const json_value *tag, str *begin, grammar_part *rest) {
    const str *begins = NULL, *ends = NULL;
    size_t n = 0, n_ends = 0;
    TRY(structural_tag_refuse_others(r, tag));
    TRY(take_texts(r, json_get(tag, "begin"), "begin", &begins, &n));
    if (n > 1) {
        return fail(r, QUIRE_INVALID, ".begin must be a single string");
    }
    const json_value *end = json_get(tag, "end");
    TRY(take_texts(r, end, "end", &ends, &n_ends));
    n_ends = n_ends == 1 && ends[0].n == 0 ? 0 : n_ends; /* the tag has no end text */
    *begin = n == 1 ? begins[0] : (str){"", 0};
    return read_inside(r, json_get(tag, "content"), ends, n_ends, rest);
}

static quire_err read_whole_tag(reader *r, const json_value *tag, grammar_part *out) {
    grammar_part parts[2];
    str begin;
    TRY(read_tag(r, tag, &begin, &parts[1]));
    parts[0] = part_text(begin);
    *out = part_sequence(r->a, parts, 2);
    return QUIRE_OK;
}

/* Returns the array `tags` of a format and its length. */
static quire_err take_tags(reader *r, const json_value *format, const json_value **out, size_t *n) {
    *out = json_get(format, "tags");
    *n = json_length(*out);
    return json_is(*out, JSON_KIND_ARRAY) && *n > 0
               ? QUIRE_OK
               : fail(r, QUIRE_INVALID, ".tags must be an array of at least one tag");
}

static quire_err read_triggered(reader *r, const json_value *format, grammar_part *out) {
    const json_value *list;
    const str *excludes = NULL;
    size_t n, n_excludes;
    *out = (grammar_part){.part = GRAMMAR_PART_TAGS};
    TRY(take_texts(r, json_get(format, "triggers"), "triggers", &out->texts, &out->n_texts));
    TRY(take_excludes(r, format, &excludes, &n_excludes));
    TRY(take_flag(r, format, "at_least_one", &out->begins_with_tag));
    TRY(take_flag(r, format, "stop_after_first", &out->stop_after_first));
    TRY(take_tags(r, format, &list, &n));
    out->never = join_texts(r->a, excludes, n_excludes, r->ends, r->n_ends);
    out->n_never = out->never != NULL ? n_excludes + r->n_ends : 0;
    grammar_tag *tags = part_arena_new(r->a, n, sizeof *tags);
    grammar_part *rests = part_arena_new(r->a, n, sizeof *rests);
    for (size_t i = 0; tags != NULL && rests != NULL && i < n; i++) {
        size_t at = strlen(r->path);
        (void)snprintf(r->path + at, sizeof r->path - at, ".tags[%zu]", i);
        TRY(read_tag(r, json_at(list, i), &tags[i].begin, &rests[i]));
        r->path[at] = 0;
        tags[i].rest = &rests[i];
    }
    out->tags = tags;
    out->n_tags = tags != NULL && rests != NULL ? n : 0;
    return QUIRE_OK;
}

static quire_err read_separated(reader *r, const json_value *format, grammar_part *out) {
    const json_value *list;
    size_t n;
    bool at_least_one, stop_after_first;
    str separator;
    TRY(take_tags(r, format, &list, &n));
    TRY(structural_tag_take_text(r, format, "separator", &separator));
    TRY(take_flag(r, format, "at_least_one", &at_least_one));
    TRY(take_flag(r, format, "stop_after_first", &stop_after_first));
    grammar_part *tags = part_arena_new(r->a, n, sizeof *tags), *pair = part_arena_new(r->a, 2, sizeof *pair);
    for (size_t i = 0; tags != NULL && i < n; i++) {
        TRY(structural_tag_read_member(r, json_at(list, i), "tags", (int64_t)i, &tags[i]));
    }
    if (pair == NULL) {
        return QUIRE_OK; /* the arena has failed */
    }
    pair[0] = (grammar_part){.part = GRAMMAR_PART_ONE_OF, .parts = tags, .n_parts = tags != NULL ? n : 0};
    pair[1] = part_text(separator);
    *out = (grammar_part){.part = GRAMMAR_PART_REPEAT, .parts = pair, .n_parts = 2, .min = at_least_one};
    out->max = stop_after_first ? 1 : GRAMMAR_NO_MAX;
    return QUIRE_OK;
}

/* ---- formats ---- */

static quire_err read_type(reader *r, str type, const json_value *v, grammar_part *out) {
    if (str_is(type, "const_string")) {
        *out = (grammar_part){.part = GRAMMAR_PART_TEXT};
        return structural_tag_take_text(r, v, "value", &out->text);
    }
    if (str_is(type, "token")) {
        *out = (grammar_part){.part = GRAMMAR_PART_TEXT};
        return structural_tag_take_text(r, v, "token", &out->text);
    }
    if (str_is(type, "json_schema")) {
        return read_schema(r, v, "json_schema", out);
    }
    if (str_is(type, "regex")) {
        return read_text_rule(r, v, "pattern", GRAMMAR_REGEX, out);
    }
    if (str_is(type, "grammar")) {
        return read_text_rule(r, v, "grammar", GRAMMAR_EBNF, out);
    }
    if (str_is(type, "any_text")) {
        return read_any_text(r, v, out);
    }
    if (str_is(type, "sequence")) {
        return read_list(r, v, GRAMMAR_PART_SEQUENCE, out);
    }
    if (str_is(type, "or")) {
        return read_list(r, v, GRAMMAR_PART_ONE_OF, out);
    }
    if (str_is(type, "tag")) {
        return read_whole_tag(r, v, out);
    }
    if (str_is(type, "triggered_tags")) {
        return read_triggered(r, v, out);
    }
    if (str_is(type, "tags_with_separator")) {
        return read_separated(r, v, out);
    }
    if (str_is(type, "optional") || str_is(type, "star") || str_is(type, "plus")) {
        return read_repeat(r, v, str_is(type, "plus"), str_is(type, "optional") ? 1 : GRAMMAR_NO_MAX, out);
    }
    if (str_is(type, "repeat")) {
        return read_counts(r, v, out);
    }
    return fail(r, QUIRE_UNSUPPORTED,
                ".type \"%.*s\" is not supported; the supported types are any_text, const_string, grammar, "
                "json_schema, optional, or, plus, regex, repeat, sequence, star, tag, tags_with_separator, "
                "token, triggered_tags",
                type.n < 40 ? (int)type.n : 40, type.p);
}

static quire_err read_format(reader *r, const json_value *v, grammar_part *out) {
    str type = json_get_str(v, "type");
    if (!json_is(v, JSON_KIND_OBJECT) || type.n == 0) {
        return fail(r, QUIRE_INVALID, " must be a format, an object with its type");
    }
    if (++r->depth > MAX_DEPTH) {
        return fail(r, QUIRE_INVALID, " is nested more than %d formats deep", MAX_DEPTH);
    }
    TRY(structural_tag_refuse_others(r, v));
    TRY(read_type(r, type, v, out));
    r->depth--;
    return QUIRE_OK;
}

/* Reads the older form: structures {begin, schema, end} in free text. */
static quire_err read_structures(reader *r, const json_value *v, grammar_part *out) {
    const json_value *list = json_get(v, "structures");
    size_t n = json_length(list);
    *out = (grammar_part){.part = GRAMMAR_PART_TAGS};
    if (!json_is(list, JSON_KIND_ARRAY) || n == 0) {
        return fail(r, QUIRE_INVALID, "it must have a format, or structures, an array of at least one");
    }
    TRY(take_texts(r, json_get(v, "triggers"), "triggers", &out->texts, &out->n_texts));
    grammar_tag *tags = part_arena_new(r->a, n, sizeof *tags);
    grammar_part *rests = part_arena_new(r->a, n, sizeof *rests);
    for (size_t i = 0; tags != NULL && rests != NULL && i < n; i++) {
        const json_value *s = json_at(list, i);
        grammar_part parts[2];
        (void)snprintf(r->path, sizeof r->path, "structures[%zu]", i);
        TRY(structural_tag_take_text(r, s, "begin", &tags[i].begin));
        TRY(structural_tag_take_text(r, s, "end", &parts[1].text));
        parts[1] = part_text(parts[1].text);
        TRY(read_schema(r, s, "schema", &parts[0]));
        rests[i] = part_sequence(r->a, parts, 2);
        tags[i].rest = &rests[i];
    }
    out->tags = tags;
    out->n_tags = tags != NULL && rests != NULL ? n : 0;
    return QUIRE_OK;
}

quire_err structural_tag_read(part_arena *a, const json_value *v, grammar_part *out, quire_error *err) {
    reader r = {.a = a, .err = err};
    const json_value *format = json_get(v, "format");
    if (!json_is(v, JSON_KIND_OBJECT)) {
        return fail(&r, QUIRE_INVALID, "it must be an object");
    }
    if (format == NULL) {
        return read_structures(&r, v, out);
    }
    (void)snprintf(r.path, sizeof r.path, "format");
    return read_format(&r, format, out);
}

/* Checks the places of tokens that end the answer: a structural tag may have them only
 * where nothing has to follow. */

#define PATH_BYTES    200
#define WORK_A_FORMAT 100 /* work of one format, in units of turn_poll */

typedef struct walker {
    const grammar_marks *marks;
    const int32_t *ends;
    int32_t n_ends;
    char path[PATH_BYTES]; /* path of the format being read */
    quire_error *err;
} walker;

/* ---- what may be empty ---- */

static bool has_type(const json_value *v, const char *type) {
    return str_is(json_get_str(v, "type"), type);
}

static bool may_be_empty(const json_value *v);

static bool all_may(const json_value *list) {
    bool may = true;
    for (size_t i = 0; i < json_length(list) && may; i++) {
        may = may_be_empty(json_at(list, i));
    }
    return may;
}

static bool any_may(const json_value *list) {
    bool may = false;
    for (size_t i = 0; i < json_length(list) && !may; i++) {
        may = may_be_empty(json_at(list, i));
    }
    return may;
}

/* Whether a tag has an end: a text that is not empty, or an array. */
static bool structural_tag_ends_has_end(const json_value *tag) {
    const json_value *end = json_get(tag, "end");
    return !json_is(end, JSON_KIND_TEXT) || json_str(end).n > 0;
}

static bool may_be_empty(const json_value *v) {
    if (has_type(v, "const_string")) {
        return json_get_str(v, "value").n == 0;
    }
    if (has_type(v, "any_text") || has_type(v, "optional") || has_type(v, "star")) {
        return true;
    }
    if (has_type(v, "sequence")) {
        return all_may(json_get(v, "elements"));
    }
    if (has_type(v, "or")) {
        return any_may(json_get(v, "elements"));
    }
    if (has_type(v, "plus") || has_type(v, "repeat")) {
        return json_get_int32(v, "min", 1) == 0 || may_be_empty(json_get(v, "content"));
    }
    if (has_type(v, "triggered_tags") || has_type(v, "tags_with_separator")) {
        return !json_get_bool(v, "at_least_one", false);
    }
    return has_type(v, "tag") && json_get_str(v, "begin").n == 0 && !structural_tag_ends_has_end(v) &&
           may_be_empty(json_get(v, "content"));
}

/* ---- texts ---- */

static bool is_end(const walker *w, int32_t id) {
    for (int32_t i = 0; i < w->n_ends; i++) {
        if (w->ends[i] == id) {
            return true;
        }
    }
    return false;
}

/* Checks a text. last: everything after it may be empty. */
static quire_err structural_tag_ends_check_text(const walker *w, str text, bool last, const char *name) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, w->marks);) {
        str found = scan.found->text;
        if (is_end(w, scan.found->id) && !(last && scan.at == text.n)) {
            return err_set(w->err, QUIRE_INVALID, -1,
                           "%s.%s has %.*s, which ends the answer, but more must follow it", w->path, name,
                           found.n < 40 ? (int)found.n : 40, found.p);
        }
    }
    return QUIRE_OK;
}

/* Checks texts: one, an array of them, or a token given by its text. */
static quire_err structural_tag_ends_check_texts(const walker *w, const json_value *v, bool last,
                                                 const char *name) {
    if (has_type(v, "token")) {
        return structural_tag_ends_check_text(w, json_get_str(v, "token"), last, name);
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return structural_tag_ends_check_text(w, json_str(v), last, name);
    }
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(structural_tag_ends_check_text(w, json_str(json_at(v, i)), last, name));
    }
    return QUIRE_OK;
}

/* ---- formats ---- */

static quire_err structural_tag_ends_check(walker *w, const json_value *v, bool last);

/* Checks the format at path.name[i]; i < 0: path.name. */
static quire_err check_member(walker *w, const json_value *v, const char *name, int64_t i, bool last) {
    size_t n = strlen(w->path), room = sizeof w->path - n;
    (void)(i < 0 ? snprintf(w->path + n, room, ".%s", name)
                 : snprintf(w->path + n, room, ".%s[%lld]", name, (long long)i));
    TRY(structural_tag_ends_check(w, v, last));
    w->path[n] = 0;
    return QUIRE_OK;
}

static quire_err check_tag(walker *w, const json_value *v, bool last) {
    const json_value *content = json_get(v, "content");
    TRY(structural_tag_ends_check_texts(
        w, json_get(v, "begin"), last && !structural_tag_ends_has_end(v) && may_be_empty(content), "begin"));
    TRY(check_member(w, content, "content", -1, last && !structural_tag_ends_has_end(v)));
    return structural_tag_ends_check_texts(w, json_get(v, "end"), last, "end");
}

static quire_err check_list(walker *w, const json_value *list, const char *name, bool is_sequence,
                            bool last) {
    /* goes from last to first, to know whether the rest may be empty */
    for (size_t i = json_length(list); i-- > 0;) {
        TRY(check_member(w, json_at(list, i), name, (int64_t)i, last));
        last = last && (!is_sequence || may_be_empty(json_at(list, i)));
    }
    return QUIRE_OK;
}

static quire_err check_tags(walker *w, const json_value *v, bool last) {
    const json_value *list = json_get(v, "tags");
    for (size_t i = 0; i < json_length(list); i++) {
        size_t n = strlen(w->path);
        (void)snprintf(w->path + n, sizeof w->path - n, ".tags[%zu]", i);
        TRY(check_tag(w, json_at(list, i), last));
        w->path[n] = 0;
    }
    return QUIRE_OK;
}

static quire_err structural_tag_ends_check(walker *w, const json_value *v, bool last) {
    TRY(turn_poll(WORK_A_FORMAT));
    if (has_type(v, "const_string")) {
        return structural_tag_ends_check_text(w, json_get_str(v, "value"), last, "value");
    }
    if (has_type(v, "token")) {
        return structural_tag_ends_check_text(w, json_get_str(v, "token"), last, "token");
    }
    if (has_type(v, "sequence") || has_type(v, "or")) {
        return check_list(w, json_get(v, "elements"), "elements", has_type(v, "sequence"), last);
    }
    if (has_type(v, "tag")) {
        return check_tag(w, v, last);
    }
    if (has_type(v, "triggered_tags")) {
        return check_tags(w, v, last);
    }
    if (has_type(v, "tags_with_separator")) {
        TRY(structural_tag_ends_check_text(w, json_get_str(v, "separator"), false, "separator"));
        return check_list(w, json_get(v, "tags"), "tags", false, last);
    }
    const json_value *content = json_get(v, "content"); /* optional, star, plus and repeat have content */
    bool more = json_get_int32(v, "min", 0) > 1 && !may_be_empty(content);
    return content != NULL ? check_member(w, content, "content", -1, last && !more) : QUIRE_OK;
}

quire_err structural_tag_check_ends(const json_value *v, const grammar_marks *marks, const int32_t *ends,
                                    int32_t n_ends, quire_error *err) {
    assert(n_ends >= 0);
    walker w = {.marks = marks, .ends = ends, .n_ends = n_ends, .err = err};
    const json_value *format = json_get(v, "format"), *list = json_get(v, "structures");
    if (n_ends == 0) {
        return QUIRE_OK;
    }
    if (format != NULL) {
        (void)snprintf(w.path, sizeof w.path, "format");
        return structural_tag_ends_check(&w, format, true);
    }
    for (size_t i = 0; i < json_length(list); i++) { /* the older form */
        (void)snprintf(w.path, sizeof w.path, "structures[%zu]", i);
        TRY(structural_tag_ends_check_text(&w, json_get_str(json_at(list, i), "begin"), false, "begin"));
        TRY(structural_tag_ends_check_text(&w, json_get_str(json_at(list, i), "end"), true, "end"));
    }
    return QUIRE_OK;
}

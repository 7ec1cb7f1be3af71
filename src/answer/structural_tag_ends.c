/* Tokens that end the answer, in structural tags: they may stand where nothing has to
 * follow. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "answer/call_grammar.h"
#include "answer/structural_tag.h"
#include "base/turn.h"

#define PATH_BYTES    200
#define WORK_A_FORMAT 100 /* of turn_poll */

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

/* Checks a text after which everything may be empty, where `last`. */
static quire_err structural_tag_ends_check_text(const walker *w, str text, bool last, const char *name) {
    for (mark_scan scan = {.text = text}; mark_scan_next(&scan, w->marks);) {
        str found = scan.found->text;
        if (is_end(w, scan.found->id) && !(last && scan.at == text.n)) {
            return err_set(w->err, QUIRE_INVALID, -1,
                           "%s.%s has %.*s, which ends the answer, and something must follow it", w->path,
                           name, found.n < 40 ? (int)found.n : 40, found.p);
        }
    }
    return QUIRE_OK;
}

/* A text, an array of them, or a token by its text. */
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

/* The format at path.name[i]; i < 0: no index. */
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
    /* from last to first, to know whether the rest may be empty */
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
    const json_value *content = json_get(v, "content"); /* content of a repeat of any kind */
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

/* JSON Schemas with instances: each must be accepted iff it is valid, or the schema
 * refused at compile.
 *
 * schemas: DIR is a draft's directory of the JSON Schema Test Suite, *.json, or of
 * MaskBench, *.jsonl. Instances are written compactly and in their own order, and read
 * with any order of members and any spelling of numbers. A schema that is refused counts
 * as unsupported; an instance that is valid but rejected, or invalid but accepted, as
 * failed. Formats are asserted, so an instance that is valid for a draft that only
 * annotates them may be rejected: those that the schema without its formats accepts are
 * counted apart. */
#include <glob.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "check/check.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "json/json_out.h"

#define KIND "schemas"

typedef struct totals {
    check_report *r;
    grammar_vocab *v;
    const char *draft; /* of a schema that doesn't name one; NULL: the newest */
    int64_t n_schemas, n_compiled, n_whole, n_enforced, n_refused, n_formats, n_accepted_wrong,
        n_rejected_wrong, compile_us;
} totals;

static const grammar_options loose = {
    .space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY, .numbers = GRAMMAR_NUMBERS_ANY};

static json_value *parse(str text) {
    json_limits limits = json_limits_file;
    json_fault fault = {0};
    json_value *v = NULL;
    limits.names = JSON_NAMES_LAST;
    return json_read(text, &limits, JSON_WIDE_REAL, &v, &fault) == QUIRE_OK ? v : NULL;
}

/* *e: QUIRE_TOO_LARGE where the run gave up, as it does at a place that is too ambiguous;
 * may be NULL. */
static bool accepts(grammar_run *run, const json_value *instance, strbuf *text, quire_err *e) {
    json_out out = {.to = text};
    grammar_state s = grammar_start(run);
    strbuf_clear(text);
    json_add(&out, instance);
    quire_err got =
        out.err == QUIRE_OK ? grammar_accept_bytes(run, &s, (str){text->p, text->n}, NULL) : out.err;
    if (e != NULL) {
        *e = got;
    }
    return got == QUIRE_OK && grammar_is_final(run, s);
}

/* Writes a schema without `format`. */
static void add_without_formats(json_out *o, const json_value *v) {
    if (json_is(v, JSON_KIND_OBJECT)) {
        json_begin(o, '{');
        for (json_member m = {0}; json_next(v, &m);) {
            if (strcmp(m.name, "format") != 0 || !json_is(m.value, JSON_KIND_TEXT)) {
                add_without_formats(json_name(o, m.name), m.value);
            }
        }
        json_end(o, '}');
    } else if (json_is(v, JSON_KIND_ARRAY)) {
        json_begin(o, '[');
        for (size_t i = 0; i < json_length(v); i++) {
            add_without_formats(json_item(o), json_at(v, i));
        }
        json_end(o, ']');
    } else {
        json_add(o, v);
    }
}

/* Whether only a format keeps a valid instance out. */
static bool is_format(totals *t, const json_value *schema, const json_value *instance) {
    grammar *g = NULL;
    grammar_run *run = NULL;
    strbuf text = {0};
    add_without_formats(&(json_out){.to = &text}, schema);
    bool is = grammar_compile(GRAMMAR_SCHEMA, (str){text.p, text.n}, &loose, &g, NULL) == QUIRE_OK &&
              grammar_run_open(g, t->v, 0, &run) == QUIRE_OK && accepts(run, instance, &text, NULL);
    strbuf_deinit(&text);
    grammar_run_close(run);
    grammar_drop(g);
    return is;
}

static void check_instances(totals *t, grammar *g, const char *where, json_value *record) {
    json_value *tests = json_get(record, "tests");
    grammar_run *run = NULL;
    strbuf text = {0};
    bool whole = true;
    if (grammar_run_open(g, t->v, 0, &run) != QUIRE_OK) {
        check_fail(t->r, KIND, where, "the run cannot be opened");
        return;
    }
    for (size_t i = 0; i < json_length(tests); i++) {
        json_value *one = json_at(tests, i);
        quire_err e;
        bool valid = json_get_bool(one, "valid", false),
             accepted = accepts(run, json_get(one, "data"), &text, &e);
        if (valid == accepted) {
            check_pass(t->r, KIND, where);
            t->n_enforced++;
            continue;
        }
        if (valid && is_format(t, json_get(record, "schema"), json_get(one, "data"))) {
            check_pass(t->r, KIND, where);
            t->n_formats++;
            continue;
        }
        whole = false;
        t->n_accepted_wrong += accepted;
        t->n_rejected_wrong += valid;
        check_fail(t->r, KIND, where, "%s: %s is %s and %s", json_get_str(one, "description").p,
                   text.n < 400 ? text.p : "a long instance", valid ? "valid" : "invalid",
                   accepted               ? "accepted"
                   : e == QUIRE_TOO_LARGE ? "too ambiguous for the run"
                                          : "rejected");
    }
    t->n_whole += whole;
    strbuf_deinit(&text);
    grammar_run_close(run);
}

static void check_schema(totals *t, const char *where, json_value *record) {
    quire_error err = {0};
    strbuf text = {0};
    json_out out = {.to = &text};
    grammar *g = NULL;
    if (t->draft != NULL && json_length(json_get(record, "schema")) > 0 &&
        !json_has(json_get(record, "schema"), "$schema")) {
        strbuf bare = {0};
        json_add(&(json_out){.to = &bare}, json_get(record, "schema"));
        (void)strbuf_addf(&text, "{\"$schema\":\"%s\",%.*s", t->draft, (int)bare.n - 1, bare.p + 1);
        strbuf_deinit(&bare);
    } else {
        json_add(&out, json_get(record, "schema"));
    }
    int64_t from = clock_us();
    quire_err e = grammar_compile(GRAMMAR_SCHEMA, (str){text.p, text.n}, &loose, &g, &err);
    t->compile_us += clock_us() - from;
    t->n_schemas++;
    bool none_valid = true;
    for (size_t i = 0; i < json_length(json_get(record, "tests")); i++) {
        none_valid = none_valid && !json_get_bool(json_at(json_get(record, "tests"), i), "valid", false);
    }
    if (e == QUIRE_OK) {
        t->n_compiled++;
        check_instances(t, g, where, record);
    } else if (e == QUIRE_INVALID && none_valid) { /* nothing satisfies it, and it says so */
        t->n_compiled++;
        t->n_whole++;
        t->n_enforced += (int64_t)json_length(json_get(record, "tests"));
        check_pass(t->r, KIND, where);
    } else {
        t->n_refused += (int64_t)json_length(json_get(record, "tests"));
        check_unsupported(t->r, KIND, where, err.message);
    }
    grammar_drop(g);
    strbuf_deinit(&text);
}

/* One file: a list of schemas with tests, or one a line. */
static void check_file(totals *t, const char *path) {
    size_t n;
    char *text = check_read_file(path, &n), where[400];
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    str rest = {text, text != NULL ? n : 0}, line;
    if (str_ends(str_of(path), ".jsonl")) {
        while (check_line(&rest, &line)) {
            json_value *record = parse(line);
            (void)snprintf(where, sizeof where, "%s/%s", name, json_get_str(record, "file").p);
            check_schema(t, where, record);
            json_drop(record);
        }
    } else {
        json_value *all = parse(rest);
        for (size_t i = 0; i < json_length(all); i++) {
            (void)snprintf(where, sizeof where, "%s/%s", name,
                           json_get_str(json_at(all, i), "description").p);
            check_schema(t, where, json_at(all, i));
        }
        json_drop(all);
    }
    mem_free(text);
}

int check_schemas(const char *dir, const char *root, check_report *r) {
    static const str letters[2] = {{"a", 1}, {"", 0}};
    static const char *const drafts[][2] = {{"draft4", "http://json-schema.org/draft-04/schema#"},
                                            {"draft6", "http://json-schema.org/draft-06/schema#"},
                                            {"draft7", "http://json-schema.org/draft-07/schema#"},
                                            {"draft2019-09", "https://json-schema.org/draft/2019-09/schema"}};
    totals t = {.r = r};
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++) {
        t.draft = str_contains(str_of(dir), str_of(drafts[i][0])) ? drafts[i][1] : t.draft;
    }
    glob_t files = {0};
    (void)root;
    for (int k = 0; k < 2; k++) {
        char *pattern = check_path(dir, k == 0 ? "*.json" : "*.jsonl");
        (void)(pattern != NULL && glob(pattern, k > 0 ? GLOB_APPEND : 0, NULL, &files));
        mem_free(pattern);
    }
    int32_t end = 1;
    if (files.gl_pathc == 0 || grammar_vocab_open(letters, 2, &end, 1, &t.v) != QUIRE_OK) {
        (void)fprintf(stderr, "quire-check: %s: no schemas\n", dir);
        globfree(&files);
        return 1;
    }
    for (size_t i = 0; i < files.gl_pathc; i++) {
        check_file(&t, files.gl_pathv[i]);
    }
    if (!r->json) {
        printf("%lld schemas: %lld compile (%.1f us on average), %lld with all instances right; %lld invalid "
               "accepted, %lld valid rejected\n",
               (long long)t.n_schemas, (long long)t.n_compiled,
               (double)t.compile_us / (double)(t.n_schemas > 0 ? t.n_schemas : 1), (long long)t.n_whole,
               (long long)t.n_accepted_wrong, (long long)t.n_rejected_wrong);
        printf(
            "%lld instances: %lld enforced, %lld of refused schemas, %lld valid but for an asserted format, "
            "%lld wrong\n",
            (long long)(t.n_enforced + t.n_refused + t.n_formats + t.n_accepted_wrong + t.n_rejected_wrong),
            (long long)t.n_enforced, (long long)t.n_refused, (long long)t.n_formats,
            (long long)(t.n_accepted_wrong + t.n_rejected_wrong));
    }
    grammar_vocab_drop(t.v);
    globfree(&files);
    return 0;
}

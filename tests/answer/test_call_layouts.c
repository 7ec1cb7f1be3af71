/* Texts of calls as they were rendered (tests/golden/toolparsers, or all of
 * ../shared/golden/toolparsers where QUIRE_SHARED names it): where a text's calls obey
 * their schemas, the grammar of its format accepts it. */

#include <stdio.h>
#include <stdlib.h>

#include "answer/answer_format.h"
#include "answer/call_grammar.h"
#include "test.h"
#include "json/json.h"
#include "json/json_out.h"

enum { MAX_TOOLS = 16, MAX_MARKS = 32, MAX_FORMATS = 64 };

static char *read_file(const char *directory, const char *name, size_t *n) {
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0) {
        *n = (size_t)ftell(f);
        rewind(f);
        text = malloc(*n + 1);
        assert_non_null(text);
        assert_int_equal(fread(text, 1, *n, f), *n);
        text[*n] = 0;
    }
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static bool obeys(const json_value *schema, const json_value *value) {
    static const grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    strbuf schema_text = {0}, text = {0};
    json_out to_schema = {.to = &schema_text}, to = {.to = &text};
    grammar *g;
    grammar_vocab *v;
    grammar_run *r;
    quire_error err = {0};
    json_add(&to_schema, schema);
    json_add(&to, value);
    assert_int_equal(grammar_compile(GRAMMAR_SCHEMA, (str){schema_text.p, schema_text.n}, &any, &g, &err),
                     QUIRE_OK);
    assert_int_equal(grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v), QUIRE_OK);
    assert_int_equal(grammar_run_open(g, v, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    bool fits =
        grammar_accept_bytes(r, &s, (str){text.p, text.n}, NULL) == QUIRE_OK && grammar_is_final(r, s);
    grammar_run_close(r);
    grammar_vocab_drop(v);
    grammar_drop(g);
    strbuf_deinit(&schema_text);
    strbuf_deinit(&text);
    return fits;
}

typedef struct golden {
    json_value *manifest;
    output_tool tools[MAX_TOOLS];
    size_t n_tools;
    struct {
        char name[64];
        int32_t n, n_accepted;
    } formats[MAX_FORMATS];
    int32_t n_formats, n_variants, n_variants_accepted; /* variants: texts that models seldom write */
} golden;

static const json_value *schema_of(const golden *g, str name) {
    for (size_t i = 0; i < g->n_tools; i++) {
        if (str_eq(g->tools[i].name, name)) {
            return g->tools[i].parameters;
        }
    }
    return NULL;
}

/* Whether the case has calls of offered functions that obey their schemas. */
static bool is_wanted(const golden *g, const json_value *record) {
    const json_value *truth = json_get(json_get(record, "truth"), "tool_calls"),
                     *request = json_get(record, "request");
    bool wanted = json_length(truth) > 0 && str_is(json_get_str(record, "kind"), "tools") &&
                  str_is(json_get_str(record, "finish"), "stop") &&
                  str_is(json_get_str(request, "tool_choice"), "auto") &&
                  !json_has(record, "reasoning_parser");
    for (size_t i = 0; wanted && i < json_length(truth); i++) {
        const json_value *call = json_at(truth, i), *schema = schema_of(g, json_get_str(call, "name"));
        wanted = schema != NULL && obeys(schema, json_get(call, "arguments"));
    }
    return wanted;
}

/* The text with its special tokens spelt. */
static void spell(const json_value *record, const grammar_marks *marks, strbuf *out) {
    const json_value *pieces = json_get(record, "pieces");
    for (size_t i = 0; i < json_length(pieces); i++) {
        str piece = json_str(json_at(pieces, i));
        char spelt[GRAMMAR_MARK_BYTES];
        for (size_t k = 0; k < marks->n; k++) {
            if (str_eq(marks->list[k].text, piece)) {
                grammar_mark_spell(marks->list[k].id, spelt);
                piece = (str){spelt, sizeof spelt};
                break;
            }
        }
        assert_int_equal(strbuf_add(out, piece.p, piece.n), QUIRE_OK);
    }
}

/* Whether the grammar accepts the text; *at: where it does not. */
static bool accepts(const golden *g, const char *format, const json_value *record, const json_value *specials,
                    size_t *at) {
    static const grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    grammar_mark list[MAX_MARKS];
    grammar_marks marks = {list, 0};
    const call_grammar c = {.format = call_format_named(format), .tools = g->tools, .n_tools = g->n_tools};
    grammar *made;
    grammar_vocab *v;
    grammar_run *r;
    strbuf text = {0};
    quire_error err = {0};
    for (size_t i = 0; i < json_length(specials) && i < MAX_MARKS; i++) {
        list[marks.n] = (grammar_mark){json_str(json_at(specials, i)), (int32_t)i, true};
        marks.n++;
    }
    spell(record, &marks, &text);
    if (call_grammar_compile(&c, NULL, &marks, &any, &made, &err) != QUIRE_OK) {
        fail_msg("%s: %s", format, err.message);
    }
    assert_int_equal(grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v), QUIRE_OK);
    assert_int_equal(grammar_run_open(made, v, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    bool fits = grammar_accept_bytes(r, &s, (str){text.p, text.n}, at) == QUIRE_OK && grammar_is_final(r, s);
    grammar_run_close(r);
    grammar_vocab_drop(v);
    grammar_drop(made);
    strbuf_deinit(&text);
    return fits;
}

static void count(golden *g, const char *format, bool accepted) {
    int32_t i = 0;
    while (i < g->n_formats && strcmp(g->formats[i].name, format) != 0) {
        i++;
    }
    assert_true(i < MAX_FORMATS);
    if (i == g->n_formats) {
        (void)snprintf(g->formats[g->n_formats++].name, 64, "%s", format);
    }
    g->formats[i].n++;
    g->formats[i].n_accepted += accepted;
}

static void try_case(golden *g, const json_value *record) {
    str parser = json_get_str(record, "parser");
    char format[64];
    size_t at = 0;
    (void)snprintf(format, sizeof format, "%.*s", (int)parser.n, parser.p);
    const call_grammar c = {.format = call_format_named(format), .tools = g->tools, .n_tools = g->n_tools};
    if (!is_wanted(g, record) || !call_grammar_exists(&c)) {
        return;
    }
    bool fits = accepts(g, format, record, json_get(json_get(g->manifest, "special_tokens"), format), &at);
    if (str_contains(json_get_str(record, "id"), str_of("/variant_"))) {
        g->n_variants++;
        g->n_variants_accepted += fits;
    } else {
        count(g, format, fits);
    }
    if (!fits && getenv("QUIRE_SHOW") != NULL) {
        str text = json_get_str(record, "text"), id = json_get_str(record, "id");
        printf("%.*s at byte %zu: %.*s\n", (int)id.n, id.p, at, (int)text.n, text.p);
    }
}

static bool has_manifest(const char *shared) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/golden/toolparsers/manifest.json", shared);
    FILE *f = fopen(path, "rb");
    return f != NULL && fclose(f) == 0;
}

TEST(rendered_calls_that_obey_their_schemas_are_accepted) {
    const char *shared = getenv("QUIRE_SHARED");
    char directory[512] = "tests/golden/toolparsers";
    golden g = {0};
    size_t n, n_manifest;
    int32_t n_all = 0, n_accepted = 0;
    if (shared != NULL && has_manifest(shared)) {
        (void)snprintf(directory, sizeof directory, "%s/golden/toolparsers", shared);
    } else {
        printf("SKIP: all but some cases: no golden/toolparsers (set QUIRE_SHARED)\n");
    }
    char *manifest = read_file(directory, "manifest.json", &n_manifest),
         *cases = read_file(directory, "cases.jsonl", &n);
    g.manifest = json_document((str){manifest, n_manifest});
    const json_value *tools = json_get(g.manifest, "tools");
    for (size_t i = 0; i < json_length(tools) && i < MAX_TOOLS; i++) {
        const json_value *f = json_get(json_at(tools, i), "function");
        g.tools[g.n_tools++] =
            (output_tool){.name = json_get_str(f, "name"), .parameters = json_get(f, "parameters")};
    }
    for (char *line = cases, *end; *line != 0; line = end) {
        end = strchr(line, '\n');
        json_value *record = json_document((str){line, end != NULL ? (size_t)(end - line) : strlen(line)});
        assert_non_null(record);
        try_case(&g, record);
        json_drop(record);
        end = end != NULL ? end + 1 : line + strlen(line);
    }
    for (int32_t i = 0; i < g.n_formats; i++) {
        printf("%s: %d of %d\n", g.formats[i].name, g.formats[i].n_accepted, g.formats[i].n);
        n_all += g.formats[i].n;
        n_accepted += g.formats[i].n_accepted;
    }
    printf("%d of %d texts in %d formats, %d of %d in other spellings\n", n_accepted, n_all, g.n_formats,
           g.n_variants_accepted, g.n_variants);
    assert_true(n_all > 0 && n_accepted * 100 >= n_all * 95);
    free(manifest);
    free(cases);
    json_drop(g.manifest);
}

TEST_MAIN(NULL, NULL)

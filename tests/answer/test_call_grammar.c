/* Grammars of calls: what each format's grammar allows, walked at random, is read by the
 * format's own parser as calls of the offered functions whose arguments obey their
 * schemas. */

#include <stdio.h>
#include <stdlib.h>

#include "answer/answer_format.h"
#include "answer/call_grammar.h"
#include "answer/call_vocab.h"
#include "answer/json_stream.h"
#include "answer/output_parser.h"
#include "base/mem.h"
#include "base/rng.h"
#include "test.h"
#include "json/json_out.h"

enum { N_TOOLS = 5, N_WALKS = 12, MAX_STEPS = 3000, WALK_SEED = 22 };

static const char tools_json[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":"
    "\"string\",\"minLength\":1,"
    "\"maxLength\":9},"
    "\"unit\":{\"enum\":[\"celsius\",\"it's "
    "\\\"F\\\"\\n\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
    "\"required\":[\"city\",\"unit\"],\"additionalProperties\":false}},"
    "{\"name\":\"store\",\"parameters\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},"
    "\"maybe\":{\"type\":["
    "\"string\",\"null\"]},"
    "\"x\":{\"type\":[\"number\",\"null\"]},\"max-results\":{\"type\":\"integer\"},\"user.name\":{"
    "\"maxLength\":9,\"type\":\"string\"},"
    "\"on\":{\"type\":\"boolean\"},\"list\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
    "\"maxItems\":3},"
    "\"point\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"number\"},"
    "\"c\":{\"const\":null}},"
    "\"required\":[\"a\"],\"additionalProperties\":false}},\"required\":[\"list\"],\"additionalProperties\":"
    "false}},"
    "{\"name\":\"find\",\"parameters\":{\"properties\":{\"id\":{\"pattern\":\"^[a-c]{2,4}$\",\"type\":"
    "\"string\"},"
    "\"any\":{\"enum\":[\"x\",1,true,\"null\",\"two "
    "words\",{\"k\":[1,\"<\"]}]},\"more\":{\"maxLength\":300,\"minLength\":280,\"type\":\"string\"}},"
    "\"required\":[\"id\"],\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}},"
    "{\"name\":\"ping\",\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
    "}]";

/* A custom tool: its text holds what ends values in some formats. */
static const char lark[] =
    "start: item+\nitem: WORD | \"(\" item \")\" | TAIL\n"
    "WORD: /[a-z<>\\/_|\"'\\\\{}:=]{1,3};/ | /[^a-z]{0,9}!/ | \"\\n\"\n"
    "TAIL: \"</parameter>\" | \"</arg_value>\" | \"]<]minimax[>[\" | \"<|\\\"|>\" | \"æ¥\"\n";

/* The vocabulary of one format, and tools. */
typedef struct world {
    const answer_format *format;
    json_value *tools_value;
    output_tool tools[N_TOOLS];
    call_vocab v;
    bool has_specials;
    uint64_t seed;
} world;

static void open_world(world *w, const answer_format *f, bool has_specials, uint64_t seed) {
    *w = (world){.format = f, .has_specials = has_specials, .seed = seed};
    w->tools_value = json_document(str_of(tools_json));
    for (size_t i = 0; i < 4; i++) {
        const json_value *tool = json_at(w->tools_value, i);
        w->tools[i] =
            (output_tool){.name = json_get_str(tool, "name"), .parameters = json_get(tool, "parameters")};
    }
    w->tools[4] = (output_tool){.name = str_of("write"),
                                .parameters = w->tools[2].parameters,
                                .is_strict = true,
                                .lark = str_of(lark)};
    call_vocab_init(&w->v);
    if (has_specials) {
        call_vocab_add_marks(&w->v, w->format);
        call_vocab_add_mark(&w->v, str_of("<|other|>"));
    }
    assert_int_equal(call_vocab_open(&w->v), QUIRE_OK);
}

static void close_world(world *w) {
    grammar_vocab_drop(w->v.vocab);
    json_drop(w->tools_value);
}

/* ---- walks ---- */

typedef struct walk {
    int32_t tokens[MAX_STEPS];
    int32_t n;
    bool is_complete;
} walk;

static int32_t pick_token(world *w, const uint64_t *bits, int32_t *n_allowed) {
    int32_t allowed[CALL_TOKENS], n = 0, special[CALL_TOKENS], n_special = 0;
    for (int32_t i = 0; i < w->v.n_tokens; i++) {
        if ((bits[i / 64] >> (i % 64) & 1) != 0) {
            bool is_mark;
            (void)call_vocab_letters(&w->v, i, &is_mark);
            allowed[n++] = i;
            if (is_mark || w->v.texts[i].p[0] == '"' || w->v.texts[i].p[0] == '\'' ||
                w->v.texts[i].p[0] == '<') {
                special[n_special++] = i;
            }
        }
    }
    *n_allowed = n;
    if (n_special > 0 && rng_next(&w->seed) % 4 == 0) { /* so that strings and texts end */
        return special[rng_next(&w->seed) % (uint64_t)n_special];
    }
    return n > 0 ? allowed[rng_next(&w->seed) % (uint64_t)n] : -1;
}

static bool str_begins_with(str text, str with) {
    return text.n >= with.n && memcmp(text.p, with.p, with.n) == 0;
}

/* Begins with the tokens of a text, special ones whole. */
static void begin_with(world *w, grammar_run *r, grammar_state *s, walk *out, const char *text) {
    while (*text != 0) {
        int32_t best = -1;
        size_t n = 0;
        for (int32_t i = 0; i < w->v.n_tokens; i++) {
            bool special;
            str letters = call_vocab_letters(&w->v, i, &special);
            if ((special || letters.n == 1) && letters.n > n && str_begins_with(str_of(text), letters)) {
                best = i;
                n = letters.n;
            }
        }
        if (best < 0) { /* a character of several bytes that is no token */
            assert_int_equal(grammar_accept_bytes(r, s, str_of(text), NULL), QUIRE_OK);
            out->n = 0;
            return;
        }
        if (grammar_accept(r, s, best) != QUIRE_OK) {
            fail_msg("%s: '%s' cannot begin a call", w->format->names[0], text);
        }
        out->tokens[out->n++] = best;
        text += n;
    }
}

static void take_walk(world *w, grammar_run *r, const char *begin, walk *out) {
    uint64_t bits[(CALL_TOKENS + 63) / 64];
    grammar_state s = grammar_start(r);
    *out = (walk){0};
    begin_with(w, r, &s, out, begin);
    while (out->n < MAX_STEPS) {
        int32_t n_allowed;
        if (grammar_is_final(r, s) && (grammar_is_over(r, s) || rng_next(&w->seed) % 8 == 0)) {
            out->is_complete = true;
            return;
        }
        assert_int_equal(grammar_mask(r, s, bits), QUIRE_OK);
        int32_t token = pick_token(w, bits, &n_allowed);
        assert_true(n_allowed > 0);
        assert_int_equal(grammar_accept(r, &s, token), QUIRE_OK);
        out->tokens[out->n++] = token;
    }
}

/* ---- what comes of it ---- */

typedef struct calls {
    strbuf names[64], arguments[64], content;
    int32_t n;
} calls;

static void parse(const world *w, const call_grammar *c, const walk *k, calls *out) {
    output_parser *p;
    output_events e = {0};
    const output_options o = {.tools_format = c->format->names[0],
                              .tools = w->tools,
                              .n_tools = N_TOOLS,
                              .choice = c->is_required ? OUTPUT_CHOICE_REQUIRED : OUTPUT_CHOICE_AUTO,
                              .start = OUTPUT_START_CONTENT,
                              .is_special = call_vocab_is_special,
                              .special_context = &w->v};
    assert_int_equal(output_parser_open(&o, &p, NULL), QUIRE_OK);
    assert_int_equal(call_vocab_feed(&w->v, k->tokens, k->n, k->is_complete, p, &e), QUIRE_OK);
    for (size_t i = 0; i < e.n; i++) {
        str text = output_event_text(&e, i);
        assert_true(out->n < 64);
        if (e.items[i].kind == OUTPUT_CALL_BEGIN) {
            assert_int_equal(strbuf_add(&out->names[out->n++], text.p, text.n), QUIRE_OK);
        } else if (e.items[i].kind == OUTPUT_ARGUMENTS) {
            assert_int_equal(strbuf_add(&out->arguments[out->n - 1], text.p, text.n), QUIRE_OK);
        } else if (e.items[i].kind == OUTPUT_CONTENT) {
            assert_int_equal(strbuf_add(&out->content, text.p, text.n), QUIRE_OK);
        }
    }
    output_parser_close(p);
    output_events_deinit(&e);
}

static void free_calls(calls *c) {
    for (int32_t i = 0; i < 64; i++) {
        strbuf_deinit(&c->names[i]);
        strbuf_deinit(&c->arguments[i]);
    }
    strbuf_deinit(&c->content);
}

static bool matches(grammar_kind kind, str rule, str text) {
    static const grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    grammar *g;
    grammar_vocab *v;
    grammar_run *r;
    quire_error err = {0};
    if (grammar_compile(kind, rule, &any, &g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v), QUIRE_OK);
    assert_int_equal(grammar_run_open(g, v, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    bool fits = grammar_accept_bytes(r, &s, text, NULL) == QUIRE_OK && grammar_is_final(r, s);
    grammar_run_close(r);
    grammar_vocab_drop(v);
    grammar_drop(g);
    return fits;
}

/* Whether the text is JSON that the schema accepts, in any order and with any white
 * space; or of a custom tool its grammar. */
static bool obeys(const output_tool *tool, str text) {
    strbuf written = {0};
    json_out o = {.to = &written};
    bool fits;
    if (tool->lark.n > 0) {
        json_value *v = json_document(text);
        fits = json_is(json_get(v, "input"), JSON_KIND_TEXT) && json_length(v) == 1 &&
               matches(GRAMMAR_LARK, tool->lark, json_get_str(v, "input"));
        json_drop(v);
        return fits;
    }
    json_add(&o, tool->parameters);
    fits = matches(GRAMMAR_SCHEMA, (str){written.p, written.n}, text);
    strbuf_deinit(&written);
    return fits;
}

static void show(const world *w, const walk *k) {
    printf("%s, %s special tokens: ", w->format->names[0], w->has_specials ? "with" : "without");
    for (int32_t i = 0; i < k->n; i++) {
        bool special;
        str letters = call_vocab_letters(&w->v, k->tokens[i], &special);
        printf("%.*s", (int)letters.n, letters.p);
    }
    printf("\n");
}

/* How many complete calls of a walk were checked. */
static int32_t check_walk(const world *w, const call_grammar *c, const walk *k, bool begins) {
    calls found = {0};
    parse(w, c, k, &found);
    int32_t n = found.n - (k->is_complete ? 0 : 1);
    if (k->is_complete && ((begins && found.n == 0) || (c->is_required && found.content.n > 0) ||
                           (c->is_single && found.n > 1))) {
        show(w, k);
        fail_msg("%d calls, content '%.*s'", found.n, (int)found.content.n,
                 found.content.p != NULL ? found.content.p : "");
    }
    for (int32_t i = 0; i < n; i++) {
        size_t tool = 0;
        str name = {found.names[i].p, found.names[i].n},
            arguments = {found.arguments[i].p, found.arguments[i].n};
        while (tool < N_TOOLS && !str_eq(w->tools[tool].name, name)) {
            tool++;
        }
        if (tool == N_TOOLS || !obeys(&w->tools[tool], arguments)) {
            show(w, k);
            fail_msg("%.*s(%.*s)", (int)name.n, name.p, (int)arguments.n, arguments.p);
        }
    }
    free_calls(&found);
    return n > 0 ? n : 0;
}

static int32_t check_grammar(world *w, call_grammar c, const char *begin, int32_t *n_cut) {
    grammar *g;
    grammar_run *r;
    quire_error err = {0};
    int32_t n = 0;
    walk *k = mem_new(1, sizeof *k);
    assert_non_null(k);
    if (call_grammar_compile(&c, NULL, &w->v.list, NULL, &g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", c.format->names[0], err.message);
    }
    assert_int_equal(grammar_run_open(g, w->v.vocab, 0, &r), QUIRE_OK);
    for (int i = 0; i < N_WALKS; i++) {
        take_walk(w, r, begin, k);
        *n_cut += !k->is_complete;
        n += check_walk(w, &c, k, c.is_required || *begin != 0);
    }
    grammar_run_close(r);
    grammar_drop(g);
    mem_free(k);
    return n;
}

static uint64_t walk_seed(void) {
    const char *given = getenv("QUIRE_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : WALK_SEED;
    printf("seed %llu (QUIRE_SEED)\n", (unsigned long long)seed);
    return seed;
}

/* What begins a call in an answer. */
static const char *beginning(const call_writing *l) {
    static char open[64];
    bool is_head = (l->format->flags & FORMAT_HEAD_FIRST) != 0;
    (void)snprintf(open, sizeof open, "%.*s", (int)l->open.n, l->open.p);
    return l->format->syntax == SYNTAX_HARMONY ? "<|channel|>commentary to=functions."
           : is_head                           ? "all\nso\n>>>write\n"
                                               : open;
}

TEST(every_format_s_grammar_writes_calls_that_its_parser_reads) {
    call_writing l;
    bool is_new;
    uint64_t seed = walk_seed();
    int32_t n_calls = 0, n_cut = 0, n_formats = 0;
    for (size_t i = 0; call_vocab_written(i, &l, &is_new); i++) {
        for (int has_specials = 0; has_specials < 2; has_specials++) {
            world w;
            open_world(&w, l.format, has_specials == 1, seed + i);
            call_grammar c = {.format = l.format, .tools = w.tools, .n_tools = N_TOOLS};
            int32_t n = 0;
            n += check_grammar(&w, c, beginning(&l), &n_cut);
            n += is_new && w.format->syntax == SYNTAX_JSON && l.is_first
                     ? check_grammar(&w, c, "so [ {\"name\":\"write\"", &n_cut)
                     : 0;
            n += is_new ? check_grammar(&w, c, "", &n_cut) : 0;
            c.only = str_of("write");
            n += is_new ? check_grammar(&w, c, beginning(&l), &n_cut) : 0;
            c.only = (str){"", 0};
            c.is_required = true;
            n += is_new ? check_grammar(&w, c, "", &n_cut) : 0;
            c.is_single = true;
            n += is_new ? check_grammar(&w, c, "", &n_cut) : 0;
            assert_true(n > 0);
            n_calls += n;
            close_world(&w);
        }
        n_formats += is_new;
    }
    printf("%d formats, %d calls, %d walks were cut off\n", n_formats, n_calls, n_cut);
}

/* Whether the grammar of calls of a tool f with these parameters takes the text as
 * letters. */
static bool takes_call(const char *format, const char *parameters, str text) {
    json_value *value = json_document(str_of(parameters));
    const output_tool tool = {.name = str_of("f"), .parameters = value};
    const call_grammar c = {
        .format = call_format_named(format), .tools = &tool, .n_tools = 1, .is_required = true};
    grammar *g;
    grammar_vocab *v;
    grammar_run *r;
    quire_error err = {0};
    assert_int_equal(call_grammar_compile(&c, NULL, &(grammar_marks){0}, NULL, &g, &err), QUIRE_OK);
    assert_int_equal(grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v), QUIRE_OK);
    assert_int_equal(grammar_run_open(g, v, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    bool takes = grammar_accept_bytes(r, &s, text, NULL) == QUIRE_OK && grammar_is_final(r, s);
    grammar_run_close(r);
    grammar_vocab_drop(v);
    grammar_drop(g);
    json_drop(value);
    return takes;
}

/* The token that opens most: a bracket, else what closes one, else what begins a tag, and
 * there an item's, else any but white space. */
static int32_t pick_deepest(const world *w, const uint64_t *bits) {
    static const char order[] = "[]<i";
    int32_t any = -1;
    for (const char *c = order; *c != 0; c++) {
        for (int32_t i = 0; i < w->v.n_tokens; i++) {
            str text = w->v.texts[i];
            bool allowed = (bits[i / 64] >> (i % 64) & 1) != 0;
            if (allowed && text.n == 1 && text.p[0] == *c) {
                return i;
            }
            any = allowed && (any < 0 || strchr(" \n", w->v.texts[any].p[0]) != NULL) ? i : any;
        }
    }
    return any;
}

/* The depth of brackets in arguments whose strings hold none. */
static int depth_of(const strbuf *text) {
    int depth = 0, most = 0;
    for (size_t i = 0; i < text->n; i++) {
        depth += text->p[i] == '[' || text->p[i] == '{';
        depth -= text->p[i] == ']' || text->p[i] == '}';
        most = depth > most ? depth : most;
    }
    return most;
}

/* A call of lists within lists, as deep as the grammar allows. */
static void write_deepest(world *w, const call_grammar *c, walk *k) {
    uint64_t bits[(CALL_TOKENS + 63) / 64];
    grammar *g;
    grammar_run *r;
    quire_error err = {0};
    *k = (walk){0};
    assert_int_equal(call_grammar_compile(c, NULL, &w->v.list, NULL, &g, &err), QUIRE_OK);
    assert_int_equal(grammar_run_open(g, w->v.vocab, 0, &r), QUIRE_OK);
    grammar_state s = grammar_start(r);
    begin_with(w, r, &s, k, c->format->syntax == SYNTAX_HARMONY ? "<|channel|>commentary to=functions." : "");
    while (!grammar_is_final(r, s)) {
        if (k->n == MAX_STEPS) {
            show(w, k);
            fail_msg("the call does not end");
        }
        assert_int_equal(grammar_mask(r, s, bits), QUIRE_OK);
        k->tokens[k->n++] = pick_deepest(w, bits);
        assert_int_equal(grammar_accept(r, &s, k->tokens[k->n - 1]), QUIRE_OK);
    }
    k->is_complete = true;
    grammar_run_close(r);
    grammar_drop(g);
}

TEST(arguments_are_as_deep_as_their_parser_reads) {
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false,\"$defs\":{\"n\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "n\"},\"maxItems\":1}}}";
    json_value *schema = json_document(str_of(parameters));
    walk *k = mem_new(1, sizeof *k);
    call_writing l;
    bool is_new;
    assert_non_null(k);
    for (size_t i = 0; call_vocab_written(i, &l, &is_new); i++) {
        world w;
        calls found = {0};
        open_world(&w, l.format, false, 1);
        w.tools[0] = (output_tool){.name = str_of("nest"), .parameters = schema};
        const call_grammar c = {
            .format = l.format, .tools = w.tools, .n_tools = 1, .is_required = true, .is_single = true};
        write_deepest(&w, &c, k);
        parse(&w, &c, k, &found);
        if (found.n != 1 || found.content.n > 0 || depth_of(&found.arguments[0]) != JSON_STREAM_DEPTH ||
            !obeys(&w.tools[0], (str){found.arguments[0].p, found.arguments[0].n})) {
            show(&w, k);
            fail_msg("%d calls, %d deep, content '%.*s'", found.n, depth_of(&found.arguments[0]),
                     (int)found.content.n, found.content.p != NULL ? found.content.p : "");
        }
        free_calls(&found);
        close_world(&w);
    }
    json_drop(schema);
    mem_free(k);
}

/* Such a text holds lines and tags, as files of programs do. */
TEST(a_long_string_of_limited_length_holds_all_that_ends_no_value) {
    static const char *const formats[][2] = {{"qwen3_coder", "tool_call"},
                                             {"qwen3_xml", "tool_call"},
                                             {"step3p5", "tool_call"},
                                             {"seed_oss", "seed:tool_call"}};
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":10000}}}";
    for (size_t i = 0; i < 4; i++) {
        for (int n = 9980; n <= 10020; n += 20) {
            strbuf text = {0};
            assert_int_equal(strbuf_addf(&text, "<%s>\n<function=f>\n<parameter=s>\n", formats[i][1]),
                             QUIRE_OK);
            for (int k = 0; k < n / 20; k++) {
                assert_int_equal(strbuf_add_str(&text, "if a < b:\n  </p> <p\n"), QUIRE_OK);
            }
            assert_int_equal(strbuf_addf(&text, "\n</parameter>\n</function>\n</%s>", formats[i][1]),
                             QUIRE_OK);
            assert_int_equal(takes_call(formats[i][0], parameters, (str){text.p, text.n}), n <= 10000);
            strbuf_deinit(&text);
        }
    }
}

/* Gemma's notation reads them up to the colon, in the outermost object and in those
 * inside. */
TEST(names_with_dashes_and_dots_are_written_where_they_are_read) {
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"max-results\":{\"type\":\"integer\"},\"user.name\":{\"type\":"
        "\"object\","
        "\"properties\":{\"a-b\":{\"type\":\"integer\"}},\"required\":[\"a-b\"]}},"
        "\"required\":[\"max-results\",\"user.name\"]}";
    assert_true(takes_call("gemma4", parameters,
                           str_of("<|tool_call>call:f{max-results:3,user.name:{a-b:1}}<tool_call|>")));
    assert_true(takes_call(
        "functiongemma", parameters,
        str_of("<start_function_call>call:f{max-results:3,user.name:{a-b:1}}<end_function_call>")));
    assert_false(takes_call("gemma4", parameters, str_of("<|tool_call>call:f{max-results:3}<tool_call|>")));
}

#define M3_MARK "]<]minimax[>["
#define M3_CALL(members)                                                                                     \
    M3_MARK "<tool_call>\n" M3_MARK "<invoke name=\"f\">" members M3_MARK "</invoke>\n" M3_MARK "</"         \
            "tool_call>"
#define QWEN_CALL(name, value)                                                                               \
    "<tool_call>\n<function=f>\n<parameter=" name ">\n" value "\n</parameter>\n</function>\n</tool_call>"

/* Values that the parser of the format would read as others than the schema has. */
TEST(values_are_written_as_their_reader_types_them) {
    static const char either[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"type\":"
                                 "\"string\"},{\"required\":[\"id\"]}]}}}";
    static const char untyped[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"properties\":{\"x\":{"
                                  "\"type\":\"integer\"}},\"required\":[\"x\"]}}}";
    static const char open[] =
        "{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":2}},"
        "\"required\":[\"a\"],"
        "\"additionalProperties\":false},{\"additionalProperties\":{\"type\":\"integer\"}}]}";
    static const char unnamed[] = "{\"type\":\"object\",\"properties\":{\"\":{\"type\":\"integer\"}},"
                                  "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":3}}";
    static const char nullable[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":10000},"
        "{\"type\":\"null\"}]}},\"required\":[\"a\"]}";
    assert_false(takes_call("minimax_m3", either,
                            str_of(M3_CALL(M3_MARK "<a>" M3_MARK "<id>1" M3_MARK "</id>" M3_MARK "</a>"))));
    assert_true(takes_call("minimax_m3", either, str_of(M3_CALL(M3_MARK "<a>text" M3_MARK "</a>"))));
    assert_false(takes_call("minimax_m3", untyped, str_of(M3_CALL(M3_MARK "<a>" M3_MARK "</a>"))));
    assert_false(takes_call("minimax_m3", untyped, str_of(M3_CALL(M3_MARK "<a>  " M3_MARK "</a>"))));
    assert_true(takes_call("minimax_m3", untyped,
                           str_of(M3_CALL(M3_MARK "<a>" M3_MARK "<x>1" M3_MARK "</x>" M3_MARK "</a>"))));
    assert_false(takes_call("qwen3_coder", open, str_of(QWEN_CALL("a", "500"))));
    assert_true(takes_call("qwen3_coder", open, str_of(QWEN_CALL("a", "50"))));
    assert_true(takes_call("qwen3_coder", open, str_of(QWEN_CALL("b", "500"))));
    assert_false(takes_call("qwen3_coder", unnamed, str_of(QWEN_CALL("k", "\"abc\""))));
    assert_true(takes_call("qwen3_coder", unnamed, str_of(QWEN_CALL("k", "abc"))));
    assert_true(takes_call("qwen3_coder", nullable, str_of(QWEN_CALL("a", "null"))));
    assert_true(takes_call("qwen3_coder", nullable,
                           str_of(QWEN_CALL("a", "a text of more than sixteen characters"))));
    assert_true(takes_call("qwen3_coder", nullable, str_of(QWEN_CALL("a", "short"))));
}

/* Compiles the calls of hermes for n tools with these parameters, f0, f1, ..; accepted:
 * whether a call of the last one with the arguments obeys the grammar. */
static quire_err try_tools(int n, const char *parameters, bool is_strict, bool is_required,
                           const char *arguments, bool *accepted) {
    static const char *const tool_names[] = {"f0", "f1", "f2"};
    json_value *value = json_document(str_of(parameters));
    output_tool tools[3];
    for (int i = 0; i < n; i++) {
        tools[i] = (output_tool){.name = str_of(tool_names[i]), .parameters = value, .is_strict = is_strict};
    }
    const call_grammar c = {.format = call_format_named("hermes"),
                            .tools = tools,
                            .n_tools = (size_t)n,
                            .is_required = is_required};
    const grammar_marks none = {0};
    grammar *g = NULL;
    grammar_vocab *v;
    grammar_run *r;
    quire_error err = {0};
    char text[256];
    quire_err e = call_grammar_compile(&c, NULL, &none, NULL, &g, &err);
    *accepted = false;
    if (e == QUIRE_OK) {
        assert_int_equal(grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v), QUIRE_OK);
        assert_int_equal(grammar_run_open(g, v, 0, &r), QUIRE_OK);
        grammar_state s = grammar_start(r);
        (void)snprintf(text, sizeof text, "<tool_call>{\"name\": \"%s\", \"arguments\": %s}</tool_call>",
                       tool_names[n - 1], arguments);
        *accepted = grammar_accept_bytes(r, &s, str_of(text), NULL) == QUIRE_OK && grammar_is_final(r, s);
        grammar_run_close(r);
        grammar_vocab_drop(v);
    } else {
        print_message("%s\n", err.message);
        assert_non_null(strstr(err.message, "the parameters of tools[0]: "));
        assert_non_null(strstr(err.message, " at \"/properties/a"));
    }
    grammar_drop(g);
    json_drop(value);
    return e;
}

static quire_err try_tool(const char *parameters, bool is_strict, bool is_required, const char *arguments,
                          bool *accepted) {
    return try_tools(1, parameters, is_strict, is_required, arguments, accepted);
}

TEST(a_schema_that_cannot_be_enforced_leaves_the_types_of_its_properties) {
    static const char parameters[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/nowhere\"},\"n\":{\"type\":\"integer\"}},"
        "\"required\":[\"n\"]}";
    bool accepted;
    assert_int_equal(try_tool(parameters, false, false, "{\"n\": 1}", &accepted), QUIRE_OK);
    assert_true(accepted);
    assert_int_equal(try_tool(parameters, false, false, "{\"n\": \"1\"}", &accepted), QUIRE_OK);
    assert_false(accepted);
    assert_int_equal(try_tool(parameters, false, false, "{\"a\": 3}", &accepted), QUIRE_OK);
    assert_false(accepted);
    assert_int_not_equal(try_tool(parameters, true, false, "{}", &accepted), QUIRE_OK);
    assert_int_not_equal(try_tool(parameters, false, true, "{}", &accepted), QUIRE_OK);
}

TEST(only_the_refused_property_is_loosened) {
    static const struct {
        const char *a, *n, *accepted[3], *rejected[4]; /* schemas of two properties */
    } cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"^(?=x)\",\"maxLength\":3}",
         "{\"type\":\"integer\",\"minimum\":2}",
         {"{\"a\": \"b\", \"n\": 2}"},
         {"{\"a\": \"abcd\", \"n\": 2}", "{\"a\": \"b\", \"n\": 1}", "{\"a\": 1, \"n\": 2}",
          "{\"a\": \"b\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"x/"
         "~\":{\"format\":\"regex\"},\"y\":{\"enum\":[1,2]}},\"required\":[\"y\"]}",
         "true",
         {"{\"a\": {\"x/~\": \"(\", \"y\": 1}, \"n\": 0}"},
         {"{\"a\": {\"y\": 3}, \"n\": 0}", "{\"a\": {\"x/~\": 1}, \"n\": 0}"}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":2,\"items\":{\"type\":\"integer\"}}",
         "true",
         {"{\"a\": [5, 5], \"n\": 0}"},
         {"{\"a\": [1, 2, 3], \"n\": 0}", "{\"a\": [\"\"], \"n\": 0}"}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^(?=x)\"},\"minLength\":1}",
         "true",
         {"{\"a\": \"xy\", \"n\": 0}", "{\"a\": \"b\", \"n\": 0}"},
         {"{\"a\": \"\", \"n\": 0}"}},
        /* 150 x 151 states: over their limit long before the limit of time */
        {"{\"type\":\"string\",\"allOf\":[{\"pattern\":\"^(a{150})*$\"},{\"pattern\":\"^(a{151})*$\"}]}",
         "{\"const\":1}",
         {"{\"a\": \"c\", \"n\": 1}"},
         {"{\"a\": \"c\", \"n\": 2}", "{\"a\": 2, \"n\": 1}"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char parameters[512];
        bool accepted;
        (void)snprintf(parameters, sizeof parameters,
                       "{\"type\":\"object\",\"properties\":{\"a\":%s,\"n\":%s},\"required\":[\"n\"],"
                       "\"additionalProperties\":false}",
                       cases[i].a, cases[i].n);
        for (size_t k = 0; k < 7; k++) {
            const char *text = k < 3 ? cases[i].accepted[k] : cases[i].rejected[k - 3];
            if (text == NULL) {
                continue;
            }
            assert_int_equal(try_tool(parameters, false, false, text, &accepted), QUIRE_OK);
            if (accepted != (k < 3)) {
                fail_msg("%s: %s is %s", parameters, text, accepted ? "accepted" : "rejected");
            }
        }
        assert_int_not_equal(try_tool(parameters, true, false, "{}", &accepted), QUIRE_OK);
    }
}

TEST(each_tool_that_is_refused_is_loosened_by_itself) {
    static const char parameters[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
                                     "\"pattern\":\"^(?=x)\",\"maxLength\":"
                                     "3},\"n\":{\"type\":\"integer\",\"minimum\":2}},\"required\":[\"n\"]}";
    bool accepted;
    assert_int_equal(try_tools(3, parameters, false, false, "{\"a\": \"b\", \"n\": 2}", &accepted), QUIRE_OK);
    assert_true(accepted);
    assert_int_equal(try_tools(3, parameters, false, false, "{\"a\": \"b\", \"n\": 1}", &accepted), QUIRE_OK);
    assert_false(accepted);
}

/* A long grammar of lines, as OpenAI's guide has one for patches, with lines that may
 * hold the marks of formats. */
TEST(a_grammar_of_lines_fits_into_every_format) {
    static const char patch[] = "start: begin_patch hunk+ end_patch\n"
                                "begin_patch: \"*** Begin Patch\" LF\n"
                                "end_patch: \"*** End Patch\" LF?\n"
                                "hunk: add_hunk | delete_hunk | update_hunk\n"
                                "add_hunk: \"*** Add File: \" filename LF add_line+\n"
                                "delete_hunk: \"*** Delete File: \" filename LF\n"
                                "update_hunk: \"*** Update File: \" filename LF change_move? change?\n"
                                "filename: /(.+)/\n"
                                "add_line: \"+\" /(.*)/ LF -> line\n"
                                "change_move: \"*** Move to: \" filename LF\n"
                                "change: (change_context | change_line)+ eof_line?\n"
                                "change_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"
                                "change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"
                                "eof_line: \"*** End of File\" LF\n"
                                "%import common.LF\n";
    const output_tool tool = {.name = str_of("apply_patch"), .is_strict = true, .lark = str_of(patch)};
    call_writing l;
    bool is_new;
    for (size_t i = 0; call_vocab_written(i, &l, &is_new); i++) {
        const call_grammar c = {.format = l.format, .tools = &tool, .n_tools = 1};
        grammar *g = NULL;
        quire_error err = {0};
        if (call_grammar_compile(&c, NULL, &(grammar_marks){0}, NULL, &g, &err) != QUIRE_OK) {
            fail_msg("%s: %s", l.format->names[0], err.message);
        }
        assert_true(grammar_bytes(g) < (size_t)1 << 20);
        grammar_drop(g);
    }
}

TEST(a_grammar_whose_texts_all_hold_the_end_mark_is_refused_for_that) {
    const output_tool tool = {
        .name = str_of("f"), .is_strict = true, .lark = str_of("start: /[a-z]*/ \"</parameter>\"\n")};
    for (int i = 0; i < 2; i++) {
        const call_grammar c = {
            .format = call_format_named(i == 0 ? "qwen3_coder" : "hermes"), .tools = &tool, .n_tools = 1};
        grammar *g = NULL;
        quire_error err = {0};
        assert_int_equal(call_grammar_compile(&c, NULL, &(grammar_marks){0}, NULL, &g, &err),
                         i == 0 ? QUIRE_INVALID : QUIRE_OK);
        assert_true(i == 1 || strstr(err.message, "the grammar of tools[0]: every string that it allows "
                                                  "contains the end of a value") != NULL);
        grammar_drop(g);
    }
}

static bool can_call(const char *format, const char *name) {
    const output_tool tool = {.name = str_of(name)};
    const call_grammar c = {.format = call_format_named(format), .tools = &tool, .n_tools = 1};
    return call_grammar_exists(&c);
}

TEST(names_that_a_format_reads_as_others_are_not_called) {
    static const char *const never[] = {"",      "a b",   "a\"",      "a{",  "a<b",
                                        "a\x01", "a\x7F", "a\\u0041", "a|b", "a\n"};
    call_writing l;
    bool is_new;
    for (size_t i = 0; call_vocab_written(i, &l, &is_new); i++) {
        for (size_t k = 0; k < sizeof never / sizeof *never; k++) {
            assert_false(can_call(l.format->names[0], never[k]));
        }
        assert_true(can_call(l.format->names[0], "gr\xC3\xBC\xC3\x9F") &&
                    can_call(l.format->names[0], "\xE2\x80\xAE_x\xE2\x80\x8B"));
    }
    assert_true(can_call("hermes", "f:3") && can_call("kimi_k2", "f:3"));
    assert_false(can_call("functionary_v32", "f:3") || can_call("deepseek_v31", "f:3") ||
                 can_call("mcp_tags", "f:3"));
    assert_false(can_call("functionary_v32", "all"));
    assert_false(can_call("pythonic", "-f") || can_call("pythonic", "3f") || can_call("pythonic", "f:g"));
}

TEST_MAIN(NULL, NULL)

/* Grammars of tool calls and of structural tags, of any format: what a grammar of calls
 * lets through is read by the format's own parser as calls of offered functions whose
 * arguments obey the function's schema. The first bytes choose format, request and the
 * walk; the text is the tools, or a structural tag. */
#include <stdio.h>
#include <string.h>

#include "answer/call_grammar.h"
#include "answer/call_vocab.h"
#include "answer/output_parser.h"
#include "answer/structural_tag.h"
#include "fuzz.h"
#include "json/json_out.h"

enum { HEAD = 6, MAX_STEPS = 200, MAX_TOOLS = 8, RUN_BYTES = 8 << 20 };

/* The vocabulary of one format. */
typedef struct world {
    const answer_format *format;
    call_vocab v;
} world;

static void open_world(world *w, const answer_format *f, bool has_specials) {
    w->format = f;
    call_vocab_init(&w->v);
    for (int c = 0x80; c < 0xF5; c++) {
        call_vocab_add_byte(&w->v, c);
    }
    if (has_specials) {
        call_vocab_add_marks(&w->v, f);
    }
    fuzz_check(call_vocab_open(&w->v) == QUIRE_OK);
}

/* ---- walks ---- */

typedef struct walk {
    int32_t tokens[MAX_STEPS];
    int32_t n;
    bool is_complete;
    uint64_t seed;
} walk;

static uint32_t draw(walk *k, uint32_t n) {
    k->seed = k->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(k->seed >> 33) % n;
}

/* A token of the mask, often one of those that end or begin something; -1: none is
 * allowed. */
static int32_t pick(const world *w, walk *k, const uint64_t *bits) {
    int32_t allowed[CALL_TOKENS], edges[CALL_TOKENS];
    uint32_t n = 0, n_edges = 0;
    for (int32_t i = 0; i < w->v.n_tokens; i++) {
        if ((bits[i / 64] >> (i % 64) & 1) == 0) {
            continue;
        }
        bool special;
        char first = call_vocab_letters(&w->v, i, &special).p[0];
        allowed[n++] = i;
        if (special || strchr("\"'<]}>", first) != NULL) {
            edges[n_edges++] = i;
        }
    }
    return n == 0 ? -1 : n_edges > 0 && draw(k, 3) == 0 ? edges[draw(k, n_edges)] : allowed[draw(k, n)];
}

/* Walks by the masks, which are what taking a token says. */
static void take_walk(const world *w, grammar_run *r, walk *k) {
    uint64_t bits[(CALL_TOKENS + 63) / 64];
    grammar_state s = grammar_start(r);
    while (k->n < MAX_STEPS && grammar_mask(r, s, bits) == QUIRE_OK) {
        if (grammar_is_final(r, s) && (grammar_is_over(r, s) || draw(k, 8) == 0)) {
            k->is_complete = true;
            return;
        }
        int32_t token = pick(w, k, bits), other = (int32_t)draw(k, (uint32_t)w->v.n_tokens);
        grammar_state to = s;
        quire_err e = grammar_accept(r, &to, other);
        fuzz_check(e == QUIRE_TOO_LARGE || (e == QUIRE_OK) == ((bits[other / 64] >> (other % 64) & 1) != 0));
        fuzz_check(token >= 0);
        e = grammar_accept(r, &s, token);
        if (e == QUIRE_TOO_LARGE) {
            return;
        }
        fuzz_check(e == QUIRE_OK);
        k->tokens[k->n++] = token;
    }
}

/* ---- what comes of it ---- */

/* Whether the text is JSON that the schema accepts; true where the schema alone does not
 * compile. */
static bool obeys(const output_tool *tool, str text) {
    static const grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    strbuf written = {0};
    json_out o = {.to = &written};
    grammar *g = NULL;
    grammar_vocab *v = NULL;
    grammar_run *r = NULL;
    quire_error err = {0};
    bool fits = true, is_lark = tool->lark.n > 0;
    json_fault fault;
    if (json_check(text, &json_limits_config, NULL, &fault) != QUIRE_OK || text.p[0] != '{') {
        return false;
    }
    json_value *arguments = is_lark ? json_document(text) : NULL;
    json_add(&o, tool->parameters);
    str rule = is_lark ? tool->lark : (str){written.p, written.n},
        what = is_lark ? json_get_str(arguments, "input") : text;
    if ((is_lark || tool->parameters != NULL) &&
        grammar_compile(is_lark ? GRAMMAR_LARK : GRAMMAR_SCHEMA, rule, &any, &g, &err) == QUIRE_OK &&
        grammar_vocab_open(&(str){"a", 1}, 1, NULL, 0, &v) == QUIRE_OK &&
        grammar_run_open(g, v, RUN_BYTES, &r) == QUIRE_OK) {
        grammar_state s = grammar_start(r);
        quire_err e = grammar_accept_bytes(r, &s, what, NULL);
        fits = e == QUIRE_TOO_LARGE || (e == QUIRE_OK && grammar_is_final(r, s));
        grammar_run_close(r);
    }
    grammar_vocab_drop(v);
    grammar_drop(g);
    strbuf_deinit(&written);
    json_drop(arguments);
    return fits;
}

static void parse(const world *w, const call_grammar *c, const walk *k, output_events *out) {
    output_parser *p;
    const output_options o = {.tools_format = c->format->names[0],
                              .tools = c->tools,
                              .n_tools = c->n_tools,
                              .choice = c->is_required ? OUTPUT_CHOICE_REQUIRED : OUTPUT_CHOICE_AUTO,
                              .start = OUTPUT_START_CONTENT,
                              .is_special = call_vocab_is_special,
                              .special_context = &w->v};
    fuzz_check(output_parser_open(&o, &p, NULL) == QUIRE_OK);
    fuzz_check(call_vocab_feed(&w->v, k->tokens, k->n, k->is_complete, p, out) == QUIRE_OK);
    output_parser_close(p);
}

/* Ends the program unless it holds, and says what the answer was. */
static void check(bool holds, const world *w, const walk *k, const char *what) {
    bool special;
    if (holds) {
        return;
    }
    fprintf(stderr, "%s, %s: ", w->format->names[0], what);
    for (int32_t i = 0; i < k->n; i++) {
        str letters = call_vocab_letters(&w->v, k->tokens[i], &special);
        fprintf(stderr, special ? "{{%.*s}}" : "%.*s", (int)letters.n, letters.p);
    }
    fprintf(stderr, "\n");
    abort();
}

static void check_walk(const world *w, const call_grammar *c, const walk *k) {
    output_events e = {0};
    strbuf arguments = {0};
    const output_tool *tool = NULL;
    size_t n = 0, n_ended = 0, n_content = 0;
    parse(w, c, k, &e);
    for (size_t i = 0; i < e.n; i++) {
        n += e.items[i].kind == OUTPUT_CALL_BEGIN;
        n_content += e.items[i].kind == OUTPUT_CONTENT;
    }
    check(!k->is_complete || !c->is_required || (n > 0 && n_content == 0), w, k, "calls alone");
    check(!c->is_single || n <= 1, w, k, "one call");
    for (size_t i = 0; i < e.n; i++) {
        str text = output_event_text(&e, i);
        if (e.items[i].kind == OUTPUT_CALL_BEGIN) {
            tool = NULL;
            for (size_t t = 0; t < c->n_tools && tool == NULL; t++) {
                tool = str_eq(c->tools[t].name, text) ? &c->tools[t] : NULL;
            }
            check(tool != NULL, w, k, "an offered function");
            strbuf_clear(&arguments);
        } else if (e.items[i].kind == OUTPUT_ARGUMENTS) {
            fuzz_check(strbuf_add(&arguments, text.p, text.n) == QUIRE_OK);
        } else if (e.items[i].kind == OUTPUT_CALL_END && (k->is_complete || ++n_ended < n)) {
            /* the last one may be cut off */
            check(!tool->is_strict || obeys(tool, (str){arguments.p, arguments.n}), w, k,
                  "arguments of its schema");
        }
    }
    strbuf_deinit(&arguments);
    output_events_deinit(&e);
}

/* ---- inputs ---- */

static size_t list_tools(const json_value *list, bool is_strict, output_tool *tools) {
    size_t n = 0;
    for (size_t i = 0; i < json_length(list) && n < MAX_TOOLS; i++) {
        const json_value *v = json_at(list, i), *parameters = json_get(v, "parameters");
        output_tool tool = {.name = json_get_str(v, "name"),
                            .parameters = parameters,
                            .is_strict = is_strict,
                            .lark = json_get_str(v, "lark")};
        bool fits = tool.name.n > 0 && (parameters == NULL || json_is(parameters, JSON_KIND_OBJECT));
        for (size_t k = 0; k < n && fits; k++) {
            fits = !str_eq(tools[k].name, tool.name);
        }
        if (fits) {
            tools[n++] = tool;
        }
    }
    return n;
}

static void walk_grammar(const world *w, const call_grammar *c, grammar *g, uint64_t seed) {
    grammar_run *r = NULL;
    walk k = {.seed = seed};
    if (grammar_run_open(g, w->v.vocab, RUN_BYTES, &r) == QUIRE_OK) {
        take_walk(w, r, &k);
        if (c != NULL) {
            check_walk(w, c, &k);
        }
        grammar_run_close(r);
    }
    grammar_drop(g);
}

static const grammar_options limits = {.max_steps = 300000, .max_us = 2000000};

static void try_calls(const world *w, const json_value *list, const uint8_t *data) {
    output_tool tools[MAX_TOOLS];
    grammar *g = NULL;
    quire_error err = {0};
    call_grammar c = {.format = w->format,
                      .tools = tools,
                      .n_tools = list_tools(list, (data[1] & 1) != 0, tools),
                      .is_required = (data[1] & 2) != 0,
                      .is_single = (data[1] & 4) != 0};
    if (c.n_tools == 0 || !call_grammar_exists(&c)) {
        return;
    }
    quire_err e = call_grammar_compile(&c, NULL, &w->v.list, &limits, &g, &err);
    fuzz_check(e == QUIRE_OK || (err.message[0] != 0 && g == NULL));
    if (e == QUIRE_OK) {
        walk_grammar(w, &c, g, (uint64_t)data[2] << 8 | data[3]);
    }
}

static void try_tag(const world *w, const json_value *v, const uint8_t *data) {
    part_arena a = {0};
    grammar_part part = {0};
    grammar *g = NULL;
    quire_error err = {0};
    const int32_t ends[] = {w->v.list.n > 0 ? w->v.marks[0].id : 0};
    quire_err e = structural_tag_read(&a, v, &part, &err);
    if (e == QUIRE_OK) {
        (void)structural_tag_check_ends(v, &w->v.list, ends, 1, &err);
    }
    if (e == QUIRE_OK && a.failed == QUIRE_OK &&
        grammar_compile_parts(&part, &w->v.list, &limits, &g, &err) == QUIRE_OK) {
        walk_grammar(w, NULL, g, (uint64_t)data[2] << 8 | data[3]);
    }
    part_arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world worlds[128][2]; /* of each format, without and with special tokens; kept for all inputs */
    json_value *v = size > HEAD ? json_document((str){(const char *)data + HEAD, size - HEAD}) : NULL;
    size_t n = 0;
    while (call_format_at(n) != NULL) {
        n++;
    }
    if (v == NULL) {
        return 0;
    }
    size_t i = data[0] % n;
    world *w = &worlds[i][(data[1] >> 3) & 1];
    if (w->v.vocab == NULL) {
        open_world(w, call_format_at(i), (data[1] & 8) != 0);
    }
    if (json_is(v, JSON_KIND_ARRAY)) {
        try_calls(w, v, data);
    } else {
        try_tag(w, v, data);
    }
    json_drop(v);
    return 0;
}

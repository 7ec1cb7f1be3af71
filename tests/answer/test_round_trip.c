/* Round trips: conversations with random calls, rendered by the templates of
 * shared/data/templates/chat that write calls. The assistant's part is fed, whole and by
 * characters, to the parser that the template's marks choose: the same calls and the same
 * content come back. Without QUIRE_SHARED the test is skipped. */

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "answer/answer_format.h"
#include "answer/output_parser.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "jinja/jinja.h"
#include "test.h"
#include "json/json_out.h"

enum { N_CONVERSATIONS = 100, MAX_CALLS = 3, TAIL_BYTES = 64, ROUND_SEED = 22 };

#define TOOLS                                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"   \
    "\"object\",\"properties\":{"                                                                            \
    "\"a\":{\"type\":\"string\",\"description\":\"s\"},\"n\":{\"type\":\"integer\",\"description\":\"s\"},"  \
    "\"x\":{\"type\":\"number\",\"description\":\"s\"},\"b\":{\"type\":\"boolean\",\"description\":\"s\"},"  \
    "\"l\":{\"type\":\"array\",\"description\":\"s\",\"items\":{\"type\":\"string\"}}},\"required\":[\"a\"]" \
    "}}}]"

static uint64_t pick(uint64_t *seed, uint64_t n) {
    return rng_next(seed) % n;
}

/* ---- random conversations ---- */

static void add_string(uint64_t *seed, json_out *o) {
    static const char *const parts[] = {"a",
                                        "Z ",
                                        "9",
                                        "\"",
                                        "'",
                                        "\\",
                                        "\n",
                                        "{x}",
                                        "[1]",
                                        "(y)",
                                        "=",
                                        "/",
                                        "\xC3\xA9",
                                        "\xE6\x97\xA5",
                                        "\xF0\x9F\x98\x80",
                                        "\t",
                                        "&",
                                        ";",
                                        "|",
                                        "< b",
                                        "true",
                                        "c"};
    strbuf text = {0};
    assert_int_equal(strbuf_add_str(&text, "s"), QUIRE_OK);
    for (uint64_t n = pick(seed, 12); n > 0; n--) {
        assert_int_equal(strbuf_add_str(&text, parts[pick(seed, sizeof parts / sizeof *parts)]), QUIRE_OK);
    }
    assert_int_equal(strbuf_add_str(&text, "e"), QUIRE_OK); /* tags do not keep outer white space */
    json_text(o, text.p, text.n);
    strbuf_deinit(&text);
}

static void add_arguments(uint64_t *seed, json_out *o) {
    json_begin(o, '{');
    add_string(seed, json_name(o, "a"));
    if (pick(seed, 2) == 0) {
        json_int(json_name(o, "n"), (int64_t)pick(seed, 2000000) - 1000000);
    }
    if (pick(seed, 2) == 0) {
        json_exact(json_name(o, "x"), ((double)pick(seed, 2000000) - 1000000) / 128);
    }
    if (pick(seed, 2) == 0) {
        json_bool(json_name(o, "b"), pick(seed, 2) == 0);
    }
    if (pick(seed, 2) == 0) {
        json_begin(json_name(o, "l"), '[');
        for (uint64_t n = pick(seed, 3); n > 0; n--) {
            add_string(seed, json_item(o));
        }
        json_end(o, ']');
    }
    json_end(o, '}');
}

typedef struct conversation {
    strbuf arguments[MAX_CALLS];
    int n_calls;
    const char *content;   /* of the message; empty: none */
    const char *reasoning; /* the same */
} conversation;

static void make_conversation(uint64_t *seed, int max_calls, conversation *c) {
    static const char *const contents[] = {"", "Let me look, 1 < 2.", "I call [it] now:\n\n- once"};
    static const char *const reasonings[] = {"", "Which f? 2 > 1.", "First:\n\n- {look}"};
    *c = (conversation){.n_calls = (int)pick(seed, (uint64_t)max_calls) + 1,
                        .content = contents[pick(seed, 3)]};
    c->reasoning = reasonings[pick(seed, 3)];
    for (int i = 0; i < c->n_calls; i++) {
        json_out o = {.to = &c->arguments[i]};
        add_arguments(seed, &o);
        assert_int_equal(o.err, QUIRE_OK);
    }
}

static void drop_conversation(conversation *c) {
    for (int i = 0; i < MAX_CALLS; i++) {
        strbuf_deinit(&c->arguments[i]);
    }
}

/* What differs between templates. */
typedef struct template_style {
    bool text_arguments; /* they take arguments as text */
    bool short_ids;      /* they want ids of nine characters */
    bool no_content;     /* they write calls only where the content is null */
    int max_calls;
} template_style;

/* Variables of a render: a user's message, and, with a conversation, the assistant's. */
static void add_variables(const conversation *c, const template_style *style, bool prompt,
                          const char *content, strbuf *out) {
    json_out o = {.to = out};
    json_raw(&o, "{\"bos_token\":\"\",\"eos_token\":\"<eos>\",\"functions\":\"[]\",\"datetime\":\"now\","
                 "\"tools\":" TOOLS ",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}");
    if (c != NULL || content != NULL) {
        json_raw(&o, ",{\"role\":\"assistant\",\"content\":");
        json_cstr(&o, content != NULL ? content : style->no_content ? NULL : c->content);
    }
    if (c != NULL && c->reasoning[0] != 0) {
        json_raw(&o, ",\"reasoning_content\":");
        json_cstr(&o, c->reasoning);
        json_raw(&o, ",\"thinking\":");
        json_cstr(&o, c->reasoning);
    }
    for (int i = 0; c != NULL && i < c->n_calls; i++) {
        char id[32];
        snprintf(id, sizeof id, "functions.f:%d", i);
        json_raw(&o, i == 0 ? ",\"tool_calls\":[" : ",");
        json_raw(&o, "{\"type\":\"function\",\"id\":");
        json_cstr(&o, style->short_ids ? "call12345" : id);
        json_raw(&o, ",\"function\":{\"name\":\"f\",\"arguments\":");
        if (style->text_arguments) {
            json_text(&o, c->arguments[i].p, c->arguments[i].n);
        } else {
            json_raw(&o, c->arguments[i].p);
        }
        json_raw(&o, "}}");
    }
    json_raw(&o, c != NULL ? "]}" : content != NULL ? "}" : "");
    json_raw(&o, prompt ? "],\"add_generation_prompt\":true}" : "],\"add_generation_prompt\":false}");
    assert_int_equal(o.err, QUIRE_OK);
}

static quire_err render(const jinja_program *p, const conversation *c, const template_style *style,
                        bool prompt, const char *content, strbuf *out, quire_error *err) {
    const struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 21};
    strbuf variables = {0};
    add_variables(c, style, prompt, content, &variables);
    strbuf_clear(out);
    quire_err e = jinja_render(p, (str){variables.p, variables.n}, &now, out, NULL, err);
    strbuf_deinit(&variables);
    return e;
}

/* ---- the assistant's part ---- */

/* Where generation would have stopped; NULL: nowhere. */
static const char *first_stop(const char *text) {
    static const char *const stops[] = {"<eos>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<|START_OF_TURN_TOKEN|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<|eom_id|>",
                                        "<|im_end|>",
                                        "<|eot_id|>",
                                        "<|tool_response>",
                                        "<|end|>\n"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        const char *at = strstr(text, stops[i]);
        first = at != NULL && (first == NULL || at < first) ? at : first;
    }
    return first;
}

typedef struct parts {
    strbuf prompt; /* with the generation prompt */
    strbuf plain;  /* an answer without calls */
    size_t n_base; /* of the prompt without its generation prompt */
    str suffix;    /* in plain: what ends a turn */
} parts;

#define ANSWER "ANSWER-OF-THE-MODEL"

static bool find_parts(const jinja_program *p, const template_style *style, parts *a) {
    strbuf base = {0};
    bool ok = render(p, NULL, style, true, NULL, &a->prompt, NULL) == QUIRE_OK &&
              render(p, NULL, style, false, NULL, &base, NULL) == QUIRE_OK &&
              render(p, NULL, style, false, ANSWER, &a->plain, NULL) == QUIRE_OK;
    a->n_base = 0;
    while (ok && a->n_base < base.n && a->n_base < a->prompt.n &&
           base.p[a->n_base] == a->prompt.p[a->n_base]) {
        a->n_base++;
    }
    const char *at = ok ? strstr(a->plain.p, ANSWER) : NULL;
    a->suffix = at != NULL ? str_of(at + strlen(ANSWER)) : (str){NULL, 0};
    strbuf_deinit(&base);
    return at != NULL;
}

/* What the model wrote: after the generation prompt, or what of it stands there (*tail),
 * and without the turn's end. */
static str assistant_part(const parts *a, const strbuf *full, str *tail) {
    size_t at = 0;
    while (at < full->n && at < a->prompt.n && full->p[at] == a->prompt.p[at]) {
        at++;
    }
    /* where the template writes after the conversation, it stands elsewhere in full */
    const char *generation = a->prompt.p + a->n_base;
    size_t n_generation = a->prompt.n - a->n_base, from = at > n_generation ? at - n_generation : 0;
    const char *moved = at < a->n_base && n_generation > 0 ? strstr(full->p + from, generation) : NULL;
    at = moved != NULL ? (size_t)(moved - full->p) + n_generation : at;
    /* not inside a mark */
    while (moved == NULL && at < a->prompt.n && at > a->n_base && strchr(">\n", full->p[at - 1]) == NULL) {
        at--;
    }
    str part = {full->p + at, full->n - at};
    size_t n_tail = at < TAIL_BYTES ? at : TAIL_BYTES;
    *tail = (str){full->p + at - n_tail, n_tail};
    size_t n = a->suffix.n;
    if (n > 0 && part.n >= n && memcmp(part.p + part.n - n, a->suffix.p, n) == 0) {
        part.n -= n;
    }
    const char *stop = first_stop(part.p);
    part.n = stop != NULL && stop < part.p + part.n ? (size_t)(stop - part.p) : part.n;
    return part;
}

/* How to cut: the length in bytes of the next piece. */
typedef size_t (*cut_fn)(str left);

static size_t in_one(str left) {
    return left.n;
}

/* The longest mark of a chosen format that could be a special token and that the text
 * begins with; 0: none. */
static size_t special_at(const output_formats *f, str text) {
    str marks[OUTPUT_FORMAT_MARKS];
    int n_marks = output_formats_marks(f, marks);
    size_t longest = 0;
    for (int i = 0; i < n_marks; i++) {
        str m = marks[i];
        bool is_token = m.n > 1 && strchr("<[]", m.p[0]) != NULL && strchr(">[]", m.p[m.n - 1]) != NULL &&
                        memchr(m.p, ' ', m.n) == NULL && memchr(m.p, '\n', m.n) == NULL;
        bool begins = is_token && text.n >= m.n && memcmp(text.p, m.p, m.n) == 0;
        longest = begins && m.n > longest ? m.n : longest;
    }
    return longest;
}

static bool is_special(const void *context, str text) {
    return special_at(context, text) == text.n;
}

static size_t by_characters(str left) {
    size_t n;
    utf8_next(left.p, &n);
    return n;
}

/* ---- what comes back ---- */

/* Appends an answer's reasoning and content to texts, and each call's arguments after a
 * 0 byte. *n_calls: how many. */
static quire_err parse_part(const output_formats *f, str part, output_start start, cut_fn cut, bool specials,
                            strbuf texts[2], strbuf *arguments, int *n_calls) {
    json_value *tools = json_document(str_of(TOOLS));
    output_tool tool = {.name = str_of("f"),
                        .parameters = json_get(json_get(json_at(tools, 0), "function"), "parameters")};
    output_options o = {.tools_format = f->tools,
                        .reasoning_format = f->reasoning,
                        .tools = &tool,
                        .n_tools = 1,
                        .start = start};
    o.is_special = specials ? is_special : NULL;
    o.special_context = f;
    output_parser *p;
    output_events e = {0};
    *n_calls = 0;
    TRY(output_parser_open(&o, &p, NULL));
    quire_err err = QUIRE_OK;
    for (str left = part; left.n > 0 && err == QUIRE_OK;) {
        size_t n_special = specials ? special_at(f, left) : 0, n = n_special > 0 ? n_special : cut(left);
        err = output_parser_feed(p, (str){left.p, n}, n_special > 0, &e);
        left = (str){left.p + n, left.n - n};
    }
    err = err ? err : output_parser_finish(p, false, &e);
    for (size_t i = 0; i < e.n && err == QUIRE_OK; i++) {
        str text = output_event_text(&e, i);
        if (e.items[i].kind == OUTPUT_CALL_BEGIN) {
            *n_calls += str_is(text, "f") ? 1 : 1000;
        } else if (e.items[i].kind == OUTPUT_CALL_END) {
            err = strbuf_add_char(arguments, 0);
        } else {
            err = strbuf_add(e.items[i].kind == OUTPUT_ARGUMENTS ? arguments
                                                                 : &texts[e.items[i].kind == OUTPUT_CONTENT],
                             text.p, text.n);
        }
    }
    output_parser_close(p);
    output_events_deinit(&e);
    json_drop(tools);
    return err;
}

static str trimmed(str s) {
    while (s.n > 0 && strchr(" \n", s.p[s.n - 1]) != NULL) {
        s.n--;
    }
    while (s.n > 0 && strchr(" \n", s.p[0]) != NULL) {
        s.p++;
        s.n--;
    }
    return s;
}

static bool same_calls(const conversation *c, const strbuf *arguments, int n_calls) {
    const char *at = arguments->p;
    for (int i = 0; i < n_calls && n_calls == c->n_calls; i++) {
        json_value *got = json_document(str_of(at)),
                   *want = json_document((str){c->arguments[i].p, c->arguments[i].n});
        bool same = json_same(got, want);
        json_drop(got);
        json_drop(want);
        if (!same) {
            return false;
        }
        at += strlen(at) + 1;
    }
    return n_calls == c->n_calls;
}

/* Whether the calls and the content come back: whole, by characters, and with the marks
 * as special tokens. */
static bool comes_back(const conversation *c, const output_formats *f, str part, output_start start) {
    bool same = true;
    for (size_t i = 0; i < 3 && same; i++) {
        strbuf texts[2] = {{0}, {0}}, arguments = {0};
        int n_calls;
        assert_int_equal(
            parse_part(f, part, start, i == 0 ? in_one : by_characters, i == 2, texts, &arguments, &n_calls),
            QUIRE_OK);
        str reasoning = trimmed((str){texts[0].p, texts[0].n}),
            content = trimmed((str){texts[1].p, texts[1].n});
        same = same_calls(c, &arguments, n_calls) && str_eq(content, str_of(c->content)) &&
               str_eq(reasoning, str_of(c->reasoning));
        if (!same) {
            print_message("    wrote: %.*s\n    reasoning: %.*s\n    content: %.*s\n    %d of %d calls: %s\n",
                          (int)part.n, part.p, (int)reasoning.n, reasoning.n > 0 ? reasoning.p : "",
                          (int)content.n, content.n > 0 ? content.p : "", n_calls, c->n_calls,
                          arguments.n > 0 ? arguments.p : "");
        }
        strbuf_deinit(&texts[0]);
        strbuf_deinit(&texts[1]);
        strbuf_deinit(&arguments);
    }
    return same;
}

/* ---- templates ---- */

/* How the template takes calls; false: it writes none. *why: an error of the last try. */
static bool find_style(const jinja_program *p, template_style *style, quire_error *why) {
    static const template_style styles[] = {
        {.max_calls = MAX_CALLS},
        {.short_ids = true, .max_calls = MAX_CALLS},
        {.text_arguments = true, .max_calls = MAX_CALLS},
        {.max_calls = 1},
        {.text_arguments = true, .max_calls = 1},
        {.text_arguments = true, .no_content = true, .max_calls = MAX_CALLS},
        {.text_arguments = true, .no_content = true, .max_calls = 2}};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        uint64_t seed = 1;
        conversation c;
        strbuf out = {0};
        do {
            make_conversation(&seed, styles[i].max_calls, &c);
        } while (c.n_calls < styles[i].max_calls && (drop_conversation(&c), true));
        for (int k = 0; k < c.n_calls; k++) {
            strbuf_clear(&c.arguments[k]);
            assert_int_equal(strbuf_addf(&c.arguments[k], "{\"a\":\"needle%d\"}", k), QUIRE_OK);
        }
        bool writes = render(p, &c, &styles[i], false, NULL, &out, why) == QUIRE_OK;

        const char *at = out.p;
        for (int k = 0; k < c.n_calls && writes; k++) {
            char needle[32];
            snprintf(needle, sizeof needle, "needle%d", k);
            const char *next = strstr(at, needle), *stop = k > 0 ? first_stop(at) : NULL;
            writes = next != NULL && (stop == NULL || stop > next); /* all of them in one turn */
            at = next;
        }
        drop_conversation(&c);
        strbuf_deinit(&out);
        if (writes) {
            *style = styles[i];
            return true;
        }
    }
    return false;
}

/* The number of conversations that do not come back. */
static int count_lost(const jinja_program *p, const template_style *style, const output_formats *f,
                      const parts *a) {
    uint64_t seed = ROUND_SEED;
    size_t n_tail = a->prompt.n < TAIL_BYTES ? a->prompt.n : TAIL_BYTES;
    output_start prompted = output_start_behind(
        f->reasoning, (str){a->prompt.p + a->prompt.n - n_tail, n_tail}, OUTPUT_START_CONTENT);
    int n_lost = 0;
    for (int i = 0; i < N_CONVERSATIONS && n_lost == 0; i++) {
        conversation c;
        strbuf full = {0};
        make_conversation(&seed, style->max_calls, &c);
        /* harmony's template writes it as analysis */
        c.content = strcmp(f->tools, "openai") == 0 ? "" : c.content;
        assert_int_equal(render(p, &c, style, false, NULL, &full, NULL), QUIRE_OK);
        str tail, part = assistant_part(a, &full, &tail);
        /* some leave it out beside calls */
        c.content = str_contains(part, str_of(c.content)) ? c.content : "";
        c.reasoning = f->reasoning != NULL && str_contains(part, str_of(c.reasoning)) ? c.reasoning : "";
        reasoning_marks marks = {0};
        if (c.reasoning[0] != 0) {
            reasoning_format_marks(reasoning_format_named(f->reasoning), &marks);
        }
        bool has_mark = marks.open[0].n == 0 || str_contains(part, marks.open[0]);
        output_start start =
            output_start_behind(f->reasoning, tail, has_mark ? OUTPUT_START_CONTENT : prompted);
        n_lost += !comes_back(&c, f, part, start);
        strbuf_deinit(&full);
        drop_conversation(&c);
    }
    return n_lost;
}

/* 0: it writes no calls, or all come back. */
static int check_template(const char *path) {
    char *bytes = NULL;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    bytes = mem_new(1 << 20, 1);
    size_t n = fread(bytes, 1, (1 << 20) - 1, file);
    fclose(file);
    const char *name = strrchr(path, '/') + 1;
    jinja_program *p = NULL;
    quire_error err = {0};
    parts a = {0};
    template_style style;
    int lost = 0;
    output_formats f = output_formats_of_template((str){bytes, n});
    if (jinja_open((str){bytes, n}, (jinja_options){.trim_blocks = true, .lstrip_blocks = true}, &p, &err) !=
        QUIRE_OK) {
        print_message("%s: %s\n", name, err.message);
    } else if (!find_style(p, &style, &err)) {
        print_message("%s: writes no calls %s\n", name, err.message);
    } else if (f.tools == NULL || !find_parts(p, &style, &a)) {
        print_message("%s: writes calls in no known format\n", name);
        lost = 1;
    } else {
        lost = count_lost(p, &style, &f, &a);
        print_message("%s: %s, %s: %s\n", name, f.tools, f.reasoning != NULL ? f.reasoning : "-",
                      lost > 0 ? "LOST" : "all come back");
    }
    strbuf_deinit(&a.prompt);
    strbuf_deinit(&a.plain);
    jinja_close(p);
    mem_free(bytes);
    return lost;
}

TEST(calls_that_a_template_writes_come_back) {
    const char *shared = getenv("QUIRE_SHARED");
    char pattern[4096];
    glob_t found;
    int n_lost = 0;
    snprintf(pattern, sizeof pattern, "%s/data/templates/chat/*.jinja", shared != NULL ? shared : ".");
    if (shared == NULL || glob(pattern, 0, NULL, &found) != 0) {
        print_message("skipped: QUIRE_SHARED has no data/templates/chat\n");
        skip();
        return;
    }
    print_message("seed %d\n", ROUND_SEED);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        n_lost += check_template(found.gl_pathv[i]);
    }
    globfree(&found);
    assert_int_equal(n_lost, 0);
}

TEST_MAIN(NULL, NULL)

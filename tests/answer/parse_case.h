/* For tests of output parsers: writes the events of an answer, cut anywhere, as text. */
#ifndef TESTS_ANSWER_PARSE_CASE_H
#define TESTS_ANSWER_PARSE_CASE_H

#include <stdlib.h>

#include "answer/output_parser.h"
#include "base/utf8.h"

/* How an answer is parsed. In its text, a special token stands between the bytes \1 and
 * \2; \1\2 is a hidden special token. */
typedef struct parse_case {
    const char *tools, *reasoning; /* names of formats */
    const char *schema;            /* parameters of f, the only function; NULL: {} */
    output_choice choice;
    output_start start;
    bool cut_off, drops_specials;
    size_t max_held;
    const char *specials; /* the vocabulary's special tokens, concatenated */
} parse_case;

/* Chooses a cut: returns the bytes of the next piece of what is left. */
typedef size_t (*cut_fn)(void *context, str left);

static bool parse_is_special(const void *context, str text) {
    const char *list = context;
    return list != NULL && str_contains(str_of(list), text);
}

/* Appends events as text: R:REASONING, C:CONTENT, and each call as F:NAME#ID ARGUMENTS;
 * without the space. *last: kind of the previous event. */
static quire_err parse_render(const output_events *e, strbuf *out, output_kind *last) {
    for (size_t i = 0; i < e->n; i++) {
        str text = output_event_text(e, i);
        output_kind kind = e->items[i].kind;
        if (kind == OUTPUT_CALL_END) {
            TRY(strbuf_add_char(out, ';'));
            *last = kind;
            continue;
        }
        if (kind != *last && kind != OUTPUT_ARGUMENTS) {
            TRY(strbuf_add_str(out, kind == OUTPUT_REASONING ? "R:" : kind == OUTPUT_CONTENT ? "C:" : "F:"));
        }
        *last = kind;
        TRY(strbuf_add(out, text.p, text.n));
        if (kind == OUTPUT_CALL_BEGIN && e->items[i].n_id > 0) {
            TRY(strbuf_addf(out, "#%.*s", (int)e->items[i].n_id, e->text.p + e->items[i].id));
        }
    }
    return QUIRE_OK;
}

static quire_err parse_feed(output_parser *p, const char *text, cut_fn cut, void *context, output_events *e,
                            strbuf *out, output_kind *last) {
    while (*text != 0) {
        bool special = *text == 1;
        size_t n = strcspn(text + special, special ? "\2" : "\1");
        size_t piece = special ? n : cut(context, (str){text, n});
        TRY(special && n == 0 ? output_parser_break(p, e)
                              : output_parser_feed(p, (str){text + special, piece}, special, e));
        TRY(parse_render(e, out, last));
        output_events_clear(e);
        text += piece + special + (special && text[piece + 1] == 2);
    }
    return QUIRE_OK;
}

/* Parses an answer in pieces chosen by cut, and appends its events to *out as text. */
static quire_err parse_text(const parse_case *c, const char *text, cut_fn cut, void *context, strbuf *out) {
    json_value *schema = json_document(str_of(c->schema != NULL ? c->schema : "{}"));
    output_tool tool = {.name = str_of("f"), .parameters = schema};
    output_options o = {.tools_format = c->tools,
                        .reasoning_format = c->reasoning,
                        .tools = &tool,
                        .n_tools = 1,
                        .choice = c->choice,
                        .named = str_of("f"),
                        .start = c->start,
                        .is_special = parse_is_special,
                        .special_context = c->specials,
                        .drops_specials = c->drops_specials,
                        .max_held = c->max_held};
    output_parser *p;
    output_events e = {0};
    output_kind last = OUTPUT_CALL_END;
    quire_err err = output_parser_open(&o, &p, NULL);
    if (err == QUIRE_OK) {
        err = parse_feed(p, text, cut, context, &e, out, &last);
        err = err ? err : output_parser_finish(p, c->cut_off, &e);
        err = err ? err : parse_render(&e, out, &last);
    }
    output_parser_close(p);
    output_events_deinit(&e);
    json_drop(schema);
    return err;
}

#endif

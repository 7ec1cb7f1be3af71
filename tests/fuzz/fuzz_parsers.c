/* Parsers of answers, of any format: two random cuts of one text give the same events,
 * and a finished answer's arguments are JSON. The first bytes choose formats, request and
 * cuts; in the text a special token stands between the bytes 1 and 2. */
#include "../answer/parse_case.h"
#include "answer/answer_format.h"
#include "base/mem.h"
#include "fuzz.h"

enum { HEAD = 6 };

static const char specials[] =
    "<tool_call></tool_call><think></"
    "think><|channel|><|message|><|end|><|start|><|call|><|constrain|><|return|>"
    "[TOOL_CALLS][ARGS]<|\"|><|tool_call><tool_call|>]<]minimax[>[<|python_tag|><|tool_call_begin|><pad>";
static const char schema[] = "{\"properties\":{\"a\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"},"
                             "\"u\":{\"type\":[\"string\",\"null\"]},"
                             "\"o\":{\"type\":\"object\",\"properties\":{\"l\":{\"type\":\"array\"}}},\"l\":{"
                             "\"type\":\"array\",\"items\":"
                             "{\"$ref\":\"#\"}}},\"additionalProperties\":{\"type\":\"boolean\"}}";

/* Pieces of a few characters, by a seed. */
static size_t by_seed(void *context, str left) {
    uint64_t *seed = context;
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    size_t n = 0, n_characters = (size_t)(*seed >> 33) % 9 + 1, step;
    for (; n < left.n && n_characters > 0; n_characters--) {
        utf8_next(left.p + n, &step);
        n += step;
    }
    return n;
}

/* Every call's arguments, which stand after "F:NAME" in an answer that is one JSON text
 * after the other, are JSON. */
static void check_arguments(const parse_case *c, const char *text) {
    json_value *root = json_document(str_of(schema));
    output_tool tool = {.name = str_of("f"), .parameters = root};
    output_options o = {.tools_format = c->tools,
                        .reasoning_format = c->reasoning,
                        .tools = &tool,
                        .n_tools = 1,
                        .choice = c->choice,
                        .named = str_of("f"),
                        .start = c->start,
                        .is_special = parse_is_special,
                        .special_context = c->specials,
                        .max_held = c->max_held};
    output_parser *p;
    output_events e = {0};
    json_fault fault;
    fuzz_check(output_parser_open(&o, &p, NULL) == QUIRE_OK);
    strbuf arguments = {0};
    for (const char *at = text; *at != 0;) {
        bool special = *at == 1;
        size_t n = strcspn(at + special, special ? "\2" : "\1");
        fuzz_check(output_parser_feed(p, (str){at + special, n}, special, &e) == QUIRE_OK);
        at += n + special + (special && at[n + 1] == 2);
    }
    fuzz_check(output_parser_finish(p, false, &e) == QUIRE_OK);
    for (size_t i = 0; i < e.n; i++) {
        str piece = output_event_text(&e, i);
        if (e.items[i].kind == OUTPUT_ARGUMENTS) {
            fuzz_check(strbuf_add(&arguments, piece.p, piece.n) == QUIRE_OK);
        } else if (e.items[i].kind == OUTPUT_CALL_END) {
            fuzz_check(json_check((str){arguments.p, arguments.n}, &json_limits_config, NULL, &fault) ==
                       QUIRE_OK);
            strbuf_clear(&arguments);
        }
    }
    strbuf_deinit(&arguments);
    output_events_deinit(&e);
    output_parser_close(p);
    json_drop(root);
}

static const char *choose_call(uint8_t i) {
    size_t n = 0;
    while (call_format_at(n) != NULL) {
        n++;
    }
    const answer_format *f = call_format_at(i % (n + 1));
    return f != NULL ? f->names[0] : NULL;
}

static const char *choose_reasoning(uint8_t i) {
    size_t n = 0;
    while (reasoning_format_at(n) != NULL) {
        n++;
    }
    const answer_format *f = reasoning_format_at(i % (2 * n));
    return f != NULL ? f->names[0] : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) {
        return 0;
    }
    strbuf text = {0}, first = {0}, second = {0};
    uint64_t seeds[] = {data[4], (uint64_t)data[5] << 8 | 1};
    parse_case c = {.tools = choose_call(data[0]),
                    .reasoning = choose_reasoning(data[1]),
                    .schema = schema,
                    .choice = data[2] & 3,
                    .start = (output_start)((data[2] >> 2) % 3),
                    .cut_off = (data[2] & 16) != 0,
                    .drops_specials = (data[2] & 32) != 0,
                    .max_held = data[3] % 4 == 0 ? data[3] + 1u : 0,
                    .specials = (data[2] & 64) != 0 ? specials : NULL};
    fuzz_check(utf8_add_lossy(&text, (str){(const char *)data + HEAD, size - HEAD}) == QUIRE_OK);
    for (size_t i = 0; i < text.n; i++) {
        text.p[i] = text.p[i] == 0 ? ' ' : text.p[i];
    }
    fuzz_check(parse_text(&c, text.p != NULL ? text.p : "", by_seed, &seeds[0], &first) == QUIRE_OK);
    fuzz_check(parse_text(&c, text.p != NULL ? text.p : "", by_seed, &seeds[1], &second) == QUIRE_OK);
    fuzz_check(str_eq((str){first.p, first.n}, (str){second.p, second.n}));
    check_arguments(&c, text.p != NULL ? text.p : "");
    output_formats f = output_formats_of_template((str){text.p, text.n});
    fuzz_check(f.tools == NULL || call_format_named(f.tools) != NULL);
    (void)output_start_behind(c.reasoning, (str){text.p, text.n}, c.start);
    strbuf_deinit(&text);
    strbuf_deinit(&first);
    strbuf_deinit(&second);
    return 0;
}

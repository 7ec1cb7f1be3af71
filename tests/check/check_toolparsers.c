/* Tool parsers: DIR/cases.jsonl has a text in each case, DIR/manifest.json the tools and
 * the special tokens. Each text is fed whole, by its pieces, ragged and by characters,
 * special tokens whole: all four must give one answer, which is the truth where the case
 * has one. A finished answer's arguments must be JSON. */
#include <stdio.h>
#include <string.h>

#include "answer/answer_format.h"
#include "answer/output_parser.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "check/check.h"
#include "json/json.h"
#include "json/json_out.h"

#define KIND "toolparsers"

enum { MAX_CALLS = 64, MAX_TOOLS = 64 };

typedef enum cut { CUT_WHOLE, CUT_PIECES, CUT_RAGGED, CUT_CHARACTERS, N_CUTS } cut;
static const char *const cut_names[] = {"whole", "pieces", "ragged", "characters"};

typedef struct answer {
    strbuf reasoning, content;
    int32_t n_calls;
    strbuf names[MAX_CALLS], arguments[MAX_CALLS];
    char wrong[128]; /* how its events break their order; empty: they do not */
} answer;

static void answer_deinit(answer *a) {
    strbuf_deinit(&a->reasoning);
    strbuf_deinit(&a->content);
    for (int32_t i = 0; i < MAX_CALLS; i++) {
        strbuf_deinit(&a->names[i]);
        strbuf_deinit(&a->arguments[i]);
    }
    *a = (answer){0};
}

static str str_in(const strbuf *b) {
    return (str){b->p, b->n};
}

/* Adds an event. Calls begin and end in order, one after the other. */
static quire_err add_event(answer *a, const output_events *events, size_t i, bool *is_open) {
    const output_event *e = &events->items[i];
    str text = output_event_text(events, i);
    bool is_call = e->kind >= OUTPUT_CALL_BEGIN;
    if (!utf8_is_valid(text)) {
        snprintf(a->wrong, sizeof a->wrong, "an event ends inside a character");
    }
    if ((is_call && e->call != a->n_calls - (e->kind != OUTPUT_CALL_BEGIN)) ||
        *is_open != (is_call && e->kind != OUTPUT_CALL_BEGIN) ||
        (e->kind == OUTPUT_CALL_BEGIN && (text.n == 0 || a->n_calls == MAX_CALLS))) {
        snprintf(a->wrong, sizeof a->wrong, "an event of kind %d of call %d where %d have begun", e->kind,
                 e->call, a->n_calls);
        return QUIRE_OK;
    }
    *is_open = e->kind == OUTPUT_CALL_BEGIN || e->kind == OUTPUT_ARGUMENTS;
    switch (e->kind) {
    case OUTPUT_REASONING:
        return strbuf_add(&a->reasoning, text.p, text.n);
    case OUTPUT_CONTENT:
        return strbuf_add(&a->content, text.p, text.n);
    case OUTPUT_CALL_BEGIN:
        return strbuf_add(&a->names[a->n_calls++], text.p, text.n);
    case OUTPUT_ARGUMENTS:
        return strbuf_add(&a->arguments[e->call], text.p, text.n);
    default:
        return QUIRE_OK;
    }
}

/* ---- a case ---- */

typedef struct parser_case {
    const char *where;
    json_value *record, *manifest;
    json_value *special; /* the format's special tokens */
    str text;
    bool is_cut_off;
    output_options options;
    output_tool tools[MAX_TOOLS];
    char names[2][64];
} parser_case;

static bool is_special(const void *context, str text) {
    const json_value *list = context;
    for (size_t i = 0; i < json_length(list); i++) {
        if (str_eq(json_str(json_at(list, i)), text)) {
            return true;
        }
    }
    return false;
}

static const char *name_in(json_value *record, const char *member, char name[64]) {
    str s = json_get_str(record, member);
    snprintf(name, 64, "%.*s", (int)s.n, s.p);
    return s.n > 0 ? name : NULL;
}

static void read_choice(parser_case *c, json_value *request) {
    json_value *choice = json_get(request, "tool_choice");
    str word = json_str(choice);
    output_options *o = &c->options;
    if (json_is(choice, JSON_KIND_OBJECT)) {
        o->choice = OUTPUT_CHOICE_NAMED;
        o->named = json_get_str(json_get(choice, "function"), "name");
    } else {
        o->choice = str_is(word, "none")       ? OUTPUT_CHOICE_NONE
                    : str_is(word, "required") ? OUTPUT_CHOICE_REQUIRED
                                               : OUTPUT_CHOICE_AUTO;
    }
}

static void read_case(parser_case *c) {
    json_value *request = json_get(c->record, "request"), *kwargs = json_get(request, "chat_template_kwargs"),
               *tools;
    output_options *o = &c->options;
    bool is_tools = str_is(json_get_str(c->record, "kind"), "tools");
    const char *parser = name_in(c->record, "parser", c->names[0]),
               *second = name_in(c->record, "reasoning_parser", c->names[1]);
    o->tools_format = is_tools ? parser : NULL;
    o->reasoning_format = is_tools ? second : parser;
    o->is_special = is_special;
    o->special_context = c->special;
    tools = json_is(json_get(request, "tools"), JSON_KIND_TEXT) ? json_get(c->manifest, "tools")
                                                                : json_get(request, "tools");
    for (size_t i = 0; i < json_length(tools) && i < MAX_TOOLS; i++) {
        json_value *function = json_get(json_at(tools, i), "function");
        c->tools[o->n_tools++] = (output_tool){.name = json_get_str(function, "name"),
                                               .parameters = json_get(function, "parameters")};
    }
    o->tools = c->tools;
    read_choice(c, request);
    o->start =
        output_start_behind(o->reasoning_format, json_get_str(request, "prompt_tail"), OUTPUT_START_UNKNOWN);
    if (!json_get_bool(kwargs, "enable_thinking", true) || !json_get_bool(kwargs, "thinking", true)) {
        o->start = OUTPUT_START_CONTENT;
    }
    c->text = json_get_str(c->record, "text");
    c->is_cut_off = str_is(json_get_str(c->record, "finish"), "length");
}

/* ---- feeding ---- */

typedef struct feeder {
    output_parser *parser;
    output_events events;
    answer *out;
    bool is_open;
} feeder;

static quire_err take_events(feeder *f) {
    for (size_t i = 0; i < f->events.n; i++) {
        TRY(add_event(f->out, &f->events, i, &f->is_open));
    }
    output_events_clear(&f->events);
    return QUIRE_OK;
}

static quire_err feed_text(feeder *f, str piece) {
    TRY(output_parser_feed(f->parser, piece, false, &f->events));
    return take_events(f);
}

static size_t character(str s) {
    size_t n;
    utf8_next(s.p, &n);
    return n;
}

/* Ends of deltas, as lengths in characters. */
typedef struct ragged {
    json_value *lengths;
    size_t i;
    int64_t left; /* of the delta that is being filled, in characters */
} ragged;

/* The next part of an ordinary run. */
static str next_part(str run, cut how, ragged *r) {
    size_t n = 0;
    if (how == CUT_WHOLE || how == CUT_PIECES) {
        return run;
    }
    do {
        n += character((str){run.p + n, run.n - n});
        r->left--;
    } while (how == CUT_RAGGED && n < run.n && r->left > 0);
    if (r->left <= 0) {
        r->left = json_int64(json_at(r->lengths, ++r->i));
    }
    return (str){run.p, n};
}

static quire_err feed_run(feeder *f, str run, cut how, ragged *r) {
    while (run.n > 0) {
        str part = next_part(run, how, r);
        TRY(feed_text(f, part));
        run = (str){run.p + part.n, run.n - part.n};
    }
    return QUIRE_OK;
}

/* Feeds special tokens whole, and what is between them cut as asked. */
static quire_err feed_case(feeder *f, const parser_case *c, cut how) {
    json_value *pieces = json_get(c->record, "pieces");
    ragged r = {.lengths = json_get(c->record, "ragged")};
    r.left = json_int64(json_at(r.lengths, 0));
    str run = {c->text.p, 0};
    for (size_t i = 0; i < json_length(pieces); i++) {
        str piece = json_str(json_at(pieces, i));
        bool special = is_special(c->special, piece);
        if (!special) {
            run.n += piece.n;
        }
        if (special || how == CUT_PIECES) {
            TRY(feed_run(f, run, how, &r));
            run = (str){run.p + run.n, 0};
        }
        if (special) {
            TRY(output_parser_feed(f->parser, piece, true, &f->events));
            TRY(take_events(f));
            run.p += piece.n;
            for (size_t at = 0; at < piece.n; at += character((str){piece.p + at, piece.n - at})) {
                r.left--;
            }
            while (r.left <= 0 && r.i < json_length(r.lengths)) {
                r.left += json_int64(json_at(r.lengths, ++r.i));
            }
        }
    }
    TRY(feed_run(f, run, how, &r));
    TRY(output_parser_finish(f->parser, c->is_cut_off, &f->events));
    return take_events(f);
}

static quire_err parse(const parser_case *c, cut how, answer *out, quire_error *err) {
    feeder f = {.out = out};
    TRY(output_parser_open(&c->options, &f.parser, err));
    quire_err e = feed_case(&f, c, how);
    output_parser_close(f.parser);
    output_events_deinit(&f.events);
    return e;
}

/* ---- comparing ---- */

static bool same_value(const json_value *a, const json_value *b);

static bool same_objects(const json_value *a, const json_value *b) {
    json_member m = {0};
    while (json_next(a, &m)) {
        if (!json_has(b, m.name) || !same_value(m.value, json_get(b, m.name))) {
            return false;
        }
    }
    return json_length(a) == json_length(b);
}

/* Equal as JSON: 1 equals 1.0, but neither "1" nor true. */
static bool same_value(const json_value *a, const json_value *b) {
    json_kind ka = json_kind_of(a), kb = json_kind_of(b);
    bool numbers =
        (ka == JSON_KIND_INT || ka == JSON_KIND_REAL) && (kb == JSON_KIND_INT || kb == JSON_KIND_REAL);
    if (numbers && ka != kb) {
        return json_double(a) == json_double(b);
    }
    if (ka != kb || ka != JSON_KIND_OBJECT) {
        bool lists = ka == kb && ka == JSON_KIND_ARRAY && json_length(a) == json_length(b);
        for (size_t i = 0; lists && i < json_length(a); i++) {
            if (!same_value(json_at(a, i), json_at(b, i))) {
                return false;
            }
        }
        return lists || json_same(a, b);
    }
    return same_objects(a, b);
}

/* Where the text does not tell types: names and keys, and scalars as text; a list is an
 * object of items. */
static bool same_lossily(const json_value *a, const json_value *b) {
    json_kind kb = json_kind_of(b);
    if (kb == JSON_KIND_OBJECT && json_is(a, JSON_KIND_OBJECT)) {
        json_member m = {0};
        while (json_next(b, &m)) {
            if (!json_has(a, m.name) || !same_lossily(json_get(a, m.name), m.value)) {
                return false;
            }
        }
        return json_length(a) == json_length(b);
    }
    if (kb == JSON_KIND_ARRAY && json_is(a, JSON_KIND_ARRAY) && json_length(a) == json_length(b)) {
        for (size_t i = 0; i < json_length(b); i++) {
            if (!same_lossily(json_at(a, i), json_at(b, i))) {
                return false;
            }
        }
        return true;
    }
    if (kb == JSON_KIND_ARRAY || kb == JSON_KIND_OBJECT) { /* an empty one is an empty text */
        return json_length(b) == 0 ? json_length(a) == 0 : json_is(a, JSON_KIND_OBJECT);
    }
    return same_value(a, b) || json_is(a, JSON_KIND_TEXT) || json_is(b, JSON_KIND_TEXT);
}

/* White space as Python's str.strip has it. */
static bool is_space(int32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

static str trimmed(str s) {
    size_t n;
    while (s.n > 0 && is_space(utf8_decode(s.p, s.n, &n))) {
        s.p += n;
        s.n -= n;
    }
    for (size_t end = s.n; end > 0;) {
        for (end--; end > 0 && ((unsigned char)s.p[end] & 0xc0) == 0x80;) {
            end--;
        }
        if (!is_space(utf8_decode(s.p + end, s.n - end, &n))) {
            break;
        }
        s.n = end;
    }
    return s;
}

static bool fail_text(check_report *r, const parser_case *c, const char *what, str got, str want) {
    check_fail(r, KIND, c->where, "%s is \"%.*s\", must be \"%.*s\"", what, (int)(got.n > 200 ? 200 : got.n),
               got.n > 0 ? got.p : "", (int)(want.n > 200 ? 200 : want.n), want.n > 0 ? want.p : "");
    return false;
}

static json_value *read_arguments(str text) {
    json_value *v = NULL;
    json_fault fault;
    return json_read(text, &json_limits_config, JSON_WIDE_REAL, &v, &fault) == QUIRE_OK ? v : NULL;
}

static bool compare_calls(check_report *r, const parser_case *c, const answer *a, json_value *want) {
    bool lossy = json_get_bool(c->record, "truth_lossy", false);
    if ((size_t)a->n_calls != json_length(want)) {
        check_fail(r, KIND, c->where, "%d calls, must be %zu", a->n_calls, json_length(want));
        return false;
    }
    for (int32_t i = 0; i < a->n_calls; i++) {
        json_value *call = json_at(want, (size_t)i), *arguments = read_arguments(str_in(&a->arguments[i]));
        bool same = lossy ? same_lossily(arguments, json_get(call, "arguments"))
                          : same_value(arguments, json_get(call, "arguments"));
        json_drop(arguments);
        if (!str_eq(str_in(&a->names[i]), json_get_str(call, "name"))) {
            return fail_text(r, c, "a name", str_in(&a->names[i]), json_get_str(call, "name"));
        }
        if (!same) {
            strbuf text = {0};
            json_out o = {.to = &text};
            json_add(&o, json_get(call, "arguments"));
            fail_text(r, c, "arguments", str_in(&a->arguments[i]), str_in(&text));
            strbuf_deinit(&text);
            return false;
        }
    }
    return true;
}

static bool compare_truth(check_report *r, const parser_case *c, const answer *a) {
    json_value *truth = json_get(c->record, "truth");
    if (truth == NULL) {
        return true;
    }
    str content = trimmed(str_in(&a->content)), reasoning = trimmed(str_in(&a->reasoning));
    if (json_has(truth, "content") && !str_eq(content, trimmed(json_get_str(truth, "content")))) {
        return fail_text(r, c, "content", content, json_get_str(truth, "content"));
    }
    if (json_has(truth, "reasoning") && !str_eq(reasoning, trimmed(json_get_str(truth, "reasoning")))) {
        return fail_text(r, c, "reasoning", reasoning, json_get_str(truth, "reasoning"));
    }
    return !json_has(truth, "tool_calls") || compare_calls(r, c, a, json_get(truth, "tool_calls"));
}

/* Every call's arguments are JSON, but for the last one's where the answer was cut
 * off. */
static bool compare_json(check_report *r, const parser_case *c, const answer *a) {
    for (int32_t i = 0; i < a->n_calls - c->is_cut_off; i++) {
        json_value *v = read_arguments(str_in(&a->arguments[i]));
        if (v == NULL) {
            return fail_text(r, c, "arguments", str_in(&a->arguments[i]), str_of("JSON"));
        }
        json_drop(v);
    }
    return true;
}

static bool same_answers(check_report *r, const parser_case *c, const answer *a, const answer *b,
                         const char *how) {
    bool same = str_eq(str_in(&a->content), str_in(&b->content)) &&
                str_eq(str_in(&a->reasoning), str_in(&b->reasoning)) && a->n_calls == b->n_calls &&
                b->wrong[0] == 0;
    for (int32_t i = 0; same && i < a->n_calls; i++) {
        same = str_eq(str_in(&a->names[i]), str_in(&b->names[i])) &&
               str_eq(str_in(&a->arguments[i]), str_in(&b->arguments[i]));
    }
    if (!same) {
        check_fail(r, KIND, c->where, "the answer by %s is another one than the whole%s%s", how,
                   b->wrong[0] != 0 ? ": " : "", b->wrong);
    }
    return same;
}

static bool check_cuts(check_report *r, const parser_case *c, answer answers[N_CUTS]) {
    for (int i = 0; i < N_CUTS; i++) {
        quire_error err = {0};
        quire_err e = parse(c, (cut)i, &answers[i], &err);
        if (e != QUIRE_OK) {
            check_fail(r, KIND, c->where, "%s: %s %s", cut_names[i], quire_err_text(e), err.message);
            return false;
        }
        if (!same_answers(r, c, &answers[0], &answers[i], cut_names[i])) {
            return false;
        }
    }
    return compare_json(r, c, &answers[0]) && compare_truth(r, c, &answers[0]);
}

static void check_case(check_report *r, parser_case *c) {
    static answer answers[N_CUTS];
    read_case(c);
    const char *tools = c->options.tools_format, *reasoning = c->options.reasoning_format;
    if ((tools != NULL && call_format_named(tools) == NULL) ||
        (reasoning != NULL && reasoning_format_named(reasoning) == NULL)) {
        check_unsupported(r, KIND, c->where, "this build does not have its format");
        return;
    }
    if (check_cuts(r, c, answers)) {
        check_pass(r, KIND, c->where);
    }
    for (int i = 0; i < N_CUTS; i++) {
        answer_deinit(&answers[i]);
    }
}

/* The special tokens of the format in an id KIND/FORMAT/CASE. */
static json_value *special_of(json_value *manifest, const char *id) {
    char name[128];
    const char *format = strchr(id, '/');
    format = format != NULL ? format + 1 : id;
    snprintf(name, sizeof name, "%s%.*s", strncmp(id, "reasoning/", 10) == 0 ? "reasoning " : "",
             (int)strcspn(format, "/"), format);
    return json_get(json_get(manifest, "special_tokens"), name);
}

int check_toolparsers(const char *dir, const char *root, check_report *r) {
    (void)root;
    size_t n, n_manifest;
    char *path = check_path(dir, "cases.jsonl"), *manifest_path = check_path(dir, "manifest.json");
    char *bytes = check_read_file(path, &n), *manifest_bytes = check_read_file(manifest_path, &n_manifest);
    json_value *manifest = manifest_bytes != NULL ? json_document((str){manifest_bytes, n_manifest}) : NULL;
    bool any = bytes != NULL && manifest != NULL;
    str rest = {bytes, any ? n : 0}, line;
    while (any && check_line(&rest, &line)) {
        char where[256];
        json_value *record = json_document(line);
        str id = json_get_str(record, "id");
        snprintf(where, sizeof where, "%.*s", (int)id.n, id.n > 0 ? id.p : "");
        parser_case c = {
            .where = where, .record = record, .manifest = manifest, .special = special_of(manifest, where)};
        if (record != NULL && (r->only == NULL || strstr(where, r->only) != NULL)) {
            check_case(r, &c);
        } else if (record == NULL && line.n > 0) {
            check_fail(r, KIND, where, "is not JSON");
        }
        json_drop(record);
    }
    if (!any) {
        fprintf(stderr, "quire-check: %s: has no cases.jsonl and manifest.json\n", dir);
    }
    json_drop(manifest);
    mem_free(bytes);
    mem_free(manifest_bytes);
    mem_free(path);
    mem_free(manifest_path);
    return !any;
}

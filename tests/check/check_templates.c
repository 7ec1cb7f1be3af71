/* Templates: DIR/jinja.jsonl has a template in each case, DIR/chat/NAME.jsonl are cases
 * of ROOT/data/templates/chat/NAME.jinja. A case has a context, or a client's messages
 * (with tools, chat_template_kwargs, bos_token and eos_token), which are first brought
 * into the form that the template takes. A rendering must be the expected text to the
 * byte. Where an error is expected, any error is right, with the reference's words where
 * the template chose them (raise_exception) or named what is undefined, and its line for
 * a syntax error. */
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "chat/chat_form.h"
#include "check/check.h"
#include "jinja/jinja.h"
#include "json/json.h"
#include "json/json_scan.h"

enum { MAX_PATH = 4096 };

#define KIND         "templates"
#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG "

static str text_of(json_value *record, const char *member) {
    json_value *v = json_get(record, member);
    return json_is(v, JSON_KIND_TEXT) ? json_str(v) : (str){NULL, 0};
}

static bool flag_of(json_value *record, const char *member, bool fallback) {
    return json_get_bool(record, member, fallback);
}

/* The last item of an array, as written. */
static quire_err last_item(str array, str *out) {
    json_scan s = {.text = array};
    bool more;
    TRY(json_scan_open(&s, '['));
    for (*out = (str){NULL, 0};;) {
        TRY(json_scan_more(&s, ']', &more));
        if (!more) {
            return out->p != NULL ? QUIRE_OK : QUIRE_NOT_FOUND;
        }
        TRY(json_scan_span(&s, out));
    }
}

/* Appends the context with the tag after the last message's content, which must be a
 * text. */
static quire_err add_tagged(str context, strbuf *out) {
    str messages, last, content;
    TRY(json_scan_member(context, "messages", &messages));
    TRY(last_item(messages, &last));
    TRY(json_scan_member(last, "content", &content));
    if (content.p[0] != '"') {
        return QUIRE_NOT_FOUND;
    }
    size_t n_before = (size_t)(content.p + content.n - 1 - context.p);
    TRY(strbuf_add(out, context.p, n_before));
    TRY(strbuf_add_str(out, CONTINUE_TAG));
    return strbuf_add(out, context.p + n_before, context.n - n_before);
}

/* The text up to the last tag, without blanks before it when the template took the tag's
 * own. */
static str cut_at_tag(str text) {
    size_t n = sizeof CONTINUE_TAG - 2; /* without its blank */
    for (size_t i = text.n >= n ? text.n - n + 1 : 0; i-- > 0;) {
        if (memcmp(text.p + i, CONTINUE_TAG, n) == 0) {
            bool kept = i + n < text.n && text.p[i + n] == ' ';
            while (!kept && i > 0 && strchr(" \t\n\r\v\f", text.p[i - 1]) != NULL) {
                i--;
            }
            return (str){text.p, i};
        }
    }
    return text;
}

static void compare_text(check_report *r, const char *where, str got, str want) {
    if (str_eq(got, want)) {
        check_pass(r, KIND, where);
        return;
    }
    size_t at = 0;
    while (at < got.n && at < want.n && got.p[at] == want.p[at]) {
        at++;
    }
    size_t from = at > 20 ? at - 20 : 0;
    check_fail(r, KIND, where, "differs at byte %zu: ...%.*s, must be ...%.*s", at,
               (int)(got.n - from > 60 ? 60 : got.n - from), got.p + from,
               (int)(want.n - from > 60 ? 60 : want.n - from), want.p + from);
}

static void compare_error(check_report *r, const char *where, json_value *record, const quire_error *err) {
    char type[40], words[400], line[32];
    str t = text_of(record, "error_type"), w = text_of(record, "error");
    snprintf(type, sizeof type, "%.*s", (int)t.n, t.p);
    snprintf(words, sizeof words, "%.*s", (int)(w.n > 380 ? 380 : w.n), w.p);
    snprintf(line, sizeof line, "line %d,", (int)json_int64(json_get(record, "lineno")));
    bool has_words = strcmp(type, "TemplateError") == 0 || strcmp(type, "UndefinedError") == 0;
    if (has_words && strstr(err->message, words) == NULL) {
        check_fail(r, KIND, where, "the error is \"%s\", must be \"%s\"", err->message, words);
    } else if (strcmp(type, "TemplateSyntaxError") == 0 && err->code == QUIRE_INVALID &&
               strncmp(err->message, line, strlen(line)) != 0) {
        check_fail(r, KIND, where, "the error is \"%s\", must be in %s", err->message, line);
    } else {
        check_pass(r, KIND, where);
    }
}

/* Reads a case's messages for the template and renders them. */
static quire_err render_messages(json_value *record, str source, strbuf *out, quire_error *err) {
    const chat_tokens tokens = {.bos = json_get_str(record, "bos_token"),
                                .eos = json_get_str(record, "eos_token")};
    chat_template *t;
    chat_messages m;
    TRY(chat_template_open(source, &tokens, &t, err));
    quire_err e =
        chat_messages_read(json_get(record, "messages"), chat_template_traits(t), "messages", &m, err);
    const chat_prompt p = {.messages = &m,
                           .tools = json_get(record, "tools"),
                           .kwargs = json_get(record, "chat_template_kwargs"),
                           .add_generation_prompt = flag_of(record, "add_generation_prompt", true),
                           .continue_final_message = flag_of(record, "continue_final_message", false)};
    e = e == QUIRE_OK ? chat_render(t, &p, out, NULL, err) : e;
    chat_messages_deinit(&m);
    chat_template_close(t);
    return e;
}

/* Renders a case's context. text: the record as written. QUIRE_NOT_FOUND: its last
 * message has no text to continue. */
static quire_err render_context(json_value *record, str text, str source, strbuf *out, quire_error *err) {
    /* The vectors' clock. */
    const struct tm now = {.tm_year = 126,
                           .tm_mon = 10,
                           .tm_mday = 21,
                           .tm_hour = 10,
                           .tm_min = 30,
                           .tm_wday = 6,
                           .tm_yday = 324};
    jinja_options options = {.trim_blocks = flag_of(record, "trim_blocks", true),
                             .lstrip_blocks = flag_of(record, "lstrip_blocks", true)};
    str context = {"{}", 2};
    (void)json_scan_member(text, "context", &context);
    strbuf tagged = {0};
    bool continues = flag_of(record, "continue_final_message", false);
    jinja_program *program = NULL;
    if (continues && add_tagged(context, &tagged) != QUIRE_OK) {
        strbuf_deinit(&tagged);
        return err_set(err, QUIRE_NOT_FOUND, -1, "its last message has no text to continue");
    }
    quire_err e = jinja_open(source, options, &program, err);
    if (e == QUIRE_OK) {
        e = jinja_render(program, continues ? (str){tagged.p, tagged.n} : context, &now, out, NULL, err);
    }
    if (e == QUIRE_OK && continues) {
        out->n = cut_at_tag((str){out->p, out->n}).n;
    }
    strbuf_deinit(&tagged);
    jinja_close(program);
    return e;
}

/* text: the record as written. */
static void check_case(check_report *r, const char *where, json_value *record, str text, str source) {
    quire_error err = {0};
    strbuf out = {0};
    quire_err e = json_has(record, "messages") ? render_messages(record, source, &out, &err)
                                               : render_context(record, text, source, &out, &err);
    str expected = text_of(record, "expected");
    if (e == QUIRE_UNSUPPORTED || e == QUIRE_NOT_FOUND) {
        check_unsupported(r, KIND, where, err.message);
    } else if (e != QUIRE_OK && expected.p == NULL) {
        compare_error(r, where, record, &err);
    } else if (e != QUIRE_OK) {
        check_fail(r, KIND, where, "%s", err.message);
    } else if (expected.p == NULL) {
        str want = text_of(record, "error_type");
        check_fail(r, KIND, where, "renders, must be %.*s", (int)want.n, want.p);
    } else {
        compare_text(r, where, (str){out.p, out.n}, expected);
    }
    strbuf_deinit(&out);
}

/* Every line of a file of cases, which are called NAME:LINE; source.p NULL: each case has
 * its own template. False: no such file. */
static bool check_file(const char *path, const char *name, str source, check_report *r) {
    size_t n;
    char *bytes = check_read_file(path, &n);
    if (bytes == NULL) {
        return false;
    }
    str rest = {bytes, n}, line;
    for (int number = 1; check_line(&rest, &line); number++) {
        char where[256];
        json_value *record = json_document(line);
        str label = text_of(record, "name");
        snprintf(where, sizeof where, "%s:%d%s%.*s", name, number, label.n > 0 ? " " : "", (int)label.n,
                 label.n > 0 ? label.p : "");
        if (record != NULL) {
            check_case(r, where, record, line, source.p != NULL ? source : text_of(record, "template"));
        } else if (line.n > 0) {
            check_fail(r, KIND, where, "is not JSON");
        }
        json_drop(record);
    }
    mem_free(bytes);
    return true;
}

static void check_chat(const char *path, const char *root, check_report *r) {
    char template_path[MAX_PATH];
    size_t n = 0;
    const char *name = strrchr(path, '/') + 1;
    int fork_from = (int)(strlen(name) - strlen(".jsonl"));
    snprintf(template_path, sizeof template_path, "%s/data/templates/chat/%.*s.jinja", root, fork_from, name);
    char *bytes = check_read_file(template_path, &n);
    if (bytes == NULL) {
        check_unsupported(r, KIND, name, "its template is not at hand (--root)");
        return;
    }
    check_file(path, name, (str){bytes, n}, r);
    mem_free(bytes);
}

/* ---- huggingface.js's vectors: ROOT/data/templates/hfjs_*.json, or DIR's: arrays of
 * templates with their data and expected texts ---- */

/* Vectors whose meaning is JavaScript's, such as 1 + ' ' + 2. Jinja (3.1.6, by
 * transformers' settings) gives this; NULL: an error. */
static const struct {
    const char *name, *jinja;
} other_in_jinja[] = {{"FOR_LOOP_UNPACKING", NULL},
                      {"OBJECT_OPERATORS_2", NULL},
                      {"MACROS_2", NULL},
                      {"FILTER_OPERATOR_4", NULL},
                      {"FILTER_OPERATOR_5", NULL},
                      {"FILTER_OPERATOR_11", NULL},
                      {"FILTER_OPERATOR_7", NULL},
                      {"MEMBERSHIP_NEGATION_1", "|False|False|False|False|False|True|"},
                      {"MEMBERSHIP_NEGATION_2", "|False|False|False|False|False|True|"}};

/* Appends a text with JavaScript's spelling of Python's values: true, null, double
 * quotes. */
static void add_spelt(strbuf *out, str s) {
    static const char *const from[] = {"True", "False", "None", "Undefined", "'"}, *const to[] = {
                                                                                       "true", "false",
                                                                                       "null", "undefined",
                                                                                       "\""};
    for (size_t i = 0; i < s.n;) {
        size_t k = 0;
        while (k < sizeof from / sizeof *from && !str_begins((str){s.p + i, s.n - i}, from[k])) {
            k++;
        }
        bool found = k < sizeof from / sizeof *from;
        if ((found ? strbuf_add_str(out, to[k]) : strbuf_add_char(out, s.p[i])) != QUIRE_OK) {
            return;
        }
        i += found ? strlen(from[k]) : 1;
    }
}

/* A record's member, one of two names, as text; the caller deinits *out. */
static str js_text(str record, const char *one, const char *other, strbuf *out) {
    str span, text = {NULL, 0};
    json_scan s = {0};
    if (json_scan_member(record, one, &span) == QUIRE_OK ||
        json_scan_member(record, other, &span) == QUIRE_OK) {
        s.text = span;
        (void)json_scan_string(&s, out, &text);
    }
    return text;
}

static void check_js(check_report *r, const char *where, str name, str record, str context) {
    /* theirs */
    const struct tm now = {
        .tm_year = 125, .tm_mon = 6, .tm_mday = 10, .tm_hour = 12, .tm_wday = 4, .tm_yday = 190};
    strbuf texts[2] = {{0}, {0}};
    str source = js_text(record, "template", "chat_template", &texts[0]),
        want = js_text(record, "expected", "target", &texts[1]);
    jinja_program *program = NULL;
    quire_error err = {0};
    strbuf out = {0}, spelt = {0}, wanted = {0};
    quire_err e =
        jinja_open(source, (jinja_options){.trim_blocks = true, .lstrip_blocks = true}, &program, &err);
    e = e == QUIRE_OK ? jinja_render(program, context, &now, &out, NULL, &err) : e;
    bool fails = false;
    for (size_t i = 0; i < sizeof other_in_jinja / sizeof *other_in_jinja; i++) {
        if (str_is(name, other_in_jinja[i].name)) {
            fails = other_in_jinja[i].jinja == NULL;
            want = fails ? want : str_of(other_in_jinja[i].jinja);
        }
    }
    add_spelt(&spelt, (str){out.p, out.n});
    add_spelt(&wanted, want);
    if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, KIND, where, err.message);
    } else if (e != QUIRE_OK) {
        fails ? check_pass(r, KIND, where) : check_fail(r, KIND, where, "%s", err.message);
    } else if (fails) {
        check_fail(r, KIND, where, "renders, must be an error");
    } else {
        compare_text(r, where, (str){spelt.p, spelt.n}, (str){wanted.p, wanted.n});
    }
    strbuf_deinit(&out);
    strbuf_deinit(&spelt);
    strbuf_deinit(&wanted);
    strbuf_deinit(&texts[0]);
    strbuf_deinit(&texts[1]);
    jinja_close(program);
}

static bool check_js_file(const char *path, check_report *r) {
    size_t n;
    char *bytes = check_read_file(path, &n);
    json_scan s = {.text = {bytes, n}};
    bool more = false;
    if (bytes == NULL) {
        return false;
    }
    quire_err e = json_scan_open(&s, '[');
    for (int i = 0; e == QUIRE_OK && (e = json_scan_more(&s, ']', &more)) == QUIRE_OK && more; i++) {
        str text, context = {"{}", 2};
        char where[256];
        e = json_scan_span(&s, &text);
        strbuf label = {0};
        bool has = e == QUIRE_OK && (json_scan_member(text, "context", &context) == QUIRE_OK ||
                                     json_scan_member(text, "data", &context) == QUIRE_OK);
        str name = e == QUIRE_OK ? js_text(text, "name", "name", &label) : (str){NULL, 0};
        snprintf(where, sizeof where, "%s:%d %.*s", strrchr(path, '/') + 1, i, (int)name.n,
                 name.n > 0 ? name.p : "");
        if (has && !str_is(context, "null")) { /* a context of JavaScript's functions is null */
            check_js(r, where, name, text, context);
        }
        strbuf_deinit(&label);
    }
    if (e != QUIRE_OK) {
        check_fail(r, KIND, path, "is not JSON");
    }
    mem_free(bytes);
    return true;
}

/* The vectors of a directory; whether there are any. */
static bool check_js_files(const char *dir, check_report *r) {
    char path[MAX_PATH];
    glob_t found;
    snprintf(path, sizeof path, "%s/hfjs_*.json", dir);
    bool any = glob(path, 0, NULL, &found) == 0;
    for (size_t i = 0; any && i < found.gl_pathc; i++) {
        check_js_file(found.gl_pathv[i], r);
    }
    if (any) {
        globfree(&found);
    }
    return any;
}

int check_templates(const char *dir, const char *root, check_report *r) {
    char path[MAX_PATH];
    glob_t found;
    snprintf(path, sizeof path, "%s/jinja.jsonl", dir);
    bool any = check_file(path, "jinja.jsonl", (str){NULL, 0}, r);
    snprintf(path, sizeof path, "%s/chat/*.jsonl", dir);
    if (glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            check_chat(found.gl_pathv[i], root != NULL ? root : dir, r);
        }
        any = true;
        globfree(&found);
    }
    any = check_js_files(dir, r) || any;
    if (root != NULL) {
        snprintf(path, sizeof path, "%s/data/templates", root);
        any = check_js_files(path, r) || any;
    }
    if (!any) {
        fprintf(stderr, "quire-check: %s: has neither jinja.jsonl, nor chat/*.jsonl, nor hfjs_*.json\n", dir);
    }
    return !any;
}

/* Random texts that schemas allow: walks of their masks, for another validator to judge
 * (tests/e2e/test_schema_texts.py).
 *
 * texts: DIR holds *.jsonl with a line {"schema", "n", "seed", "space", "order"} for each
 * schema; the last two may be "any". Prints a line {"texts": [..], "us": compile time} or
 * {"error": why} for each. A walk that comes to a place from which nothing leads on has
 * failed; one that is too long is left out. */
#include <glob.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "check/check.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "json/json_out.h"

#define KIND      "texts"
#define N_BYTES   256
#define LONG_WALK 120 /* tokens after which a walk hurries to its end */
#define MAX_WALK  1500

/* Every byte, then tokens that span several tokens of JSON. */
static const char *const spans[] = {
    "\":", "\",\"", "\"}", "\"]", "{\"", "[[",   "]]",   "}}",      "\\u00",    "\xC3\xA9", "ab",     "aa",
    "10",  "00",    ".5",  ", ",  ": ",  "true", "null", "{\"a\":", ",\"b\":1", ",\"a\":",  "\"x1\":"};
#define N_SPANS  ((int32_t)(sizeof spans / sizeof *spans))
#define N_TOKENS (N_BYTES + N_SPANS + 1)
#define END      (N_TOKENS - 1)

typedef struct walker {
    grammar_run *run;
    uint64_t random;
    str texts[N_TOKENS];
} walker;

static uint32_t below(walker *w, uint32_t n) {
    return (uint32_t)(rng_next(&w->random) >> 33) % n;
}

static uint32_t weight(const walker *w, int32_t token, uint32_t n_walked) {
    char c = w->texts[token].n > 0 ? w->texts[token].p[0] : 0;
    if (c == '"' || c == '}' || c == ']') {
        return n_walked > LONG_WALK ? 4000 : 12;
    }
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\\' || (uint8_t)c >= 0x80 ? 1
           : n_walked > LONG_WALK                                                             ? 1
                                                                                              : 4;
}

/* A random allowed token; -1: none is. */
static int32_t choose(walker *w, const uint64_t *bits, uint32_t n_walked) {
    uint32_t sum = 0, weights[N_TOKENS];
    for (int32_t t = 0; t < N_TOKENS; t++) {
        bool allowed = (bits[t / 64] >> (t % 64) & 1) != 0;
        weights[t] = !allowed ? 0 : t == END ? (n_walked > LONG_WALK ? 40000 : 40) : weight(w, t, n_walked);
        sum += weights[t];
    }
    uint32_t at = sum > 0 ? below(w, sum) : 0;
    for (int32_t t = 0; sum > 0 && t < N_TOKENS; t++) {
        if (at < weights[t]) {
            return t;
        }
        at -= weights[t];
    }
    return -1;
}

/* One walk: 1 it is whole, 0 too long, -1 a dead end. */
static int walk(walker *w, strbuf *text) {
    uint64_t bits[(N_TOKENS + 63) / 64];
    grammar_state s = grammar_start(w->run);
    strbuf_clear(text);
    for (uint32_t n = 0; n < MAX_WALK; n++) {
        if (grammar_mask(w->run, s, bits) != QUIRE_OK) {
            return 0;
        }
        int32_t t = choose(w, bits, n);
        if (t == END) {
            return 1;
        }
        if (t < 0 || grammar_accept(w->run, &s, t) != QUIRE_OK ||
            strbuf_add(text, w->texts[t].p, w->texts[t].n) != QUIRE_OK) {
            return -1;
        }
    }
    return 0;
}

static void write_walks(check_report *r, const char *where, walker *w, int64_t n, json_out *o) {
    strbuf text = {0};
    json_begin(json_name(o, "texts"), '[');
    for (int64_t i = 0; i < n; i++) {
        int whole = walk(w, &text);
        if (whole < 0) {
            check_fail(r, KIND, where, "nothing leads on from %s", text.n > 0 ? text.p : "the beginning");
        } else if (whole > 0) {
            check_pass(r, KIND, where);
            json_text(json_item(o), text.p, text.n);
        }
    }
    json_end(o, ']');
    strbuf_deinit(&text);
}

static void check_line_of(check_report *r, grammar_vocab *v, walker *w, const char *where, str line) {
    json_limits limits = json_limits_file;
    json_fault fault = {0};
    json_value *record = NULL;
    strbuf schema = {0}, out = {0};
    json_out to_schema = {.to = &schema}, o = {.to = &out};
    grammar *g = NULL;
    quire_error err = {0};
    limits.names = JSON_NAMES_LAST;
    if (json_read(line, &limits, JSON_WIDE_REAL, &record, &fault) != QUIRE_OK) {
        check_fail(r, KIND, where, "byte %zu: %s", fault.at, fault.what);
        return;
    }
    json_add(&to_schema, json_get(record, "schema"));
    grammar_options options = {
        .space = str_is(json_get_str(record, "space"), "any") ? GRAMMAR_SPACE_ANY : GRAMMAR_SPACE_COMPACT,
        .order = str_is(json_get_str(record, "order"), "any") ? GRAMMAR_ORDER_ANY : GRAMMAR_ORDER_SCHEMA};
    int64_t from = clock_us();
    quire_err e = grammar_compile(GRAMMAR_SCHEMA, (str){schema.p, schema.n}, &options, &g, &err);
    json_begin(&o, '{');
    json_int(json_name(&o, "us"), clock_us() - from);
    if (e != QUIRE_OK) {
        json_cstr(json_name(&o, "error"), err.message);
    } else if (grammar_run_open(g, v, 0, &w->run) == QUIRE_OK) {
        w->random = (uint64_t)json_int64(json_get(record, "seed"));
        write_walks(r, where, w, json_int64(json_get(record, "n")), &o);
        grammar_run_close(w->run);
    }
    json_end(&o, '}');
    printf("%.*s\n", (int)out.n, out.p);
    grammar_drop(g);
    json_drop(record);
    strbuf_deinit(&schema);
    strbuf_deinit(&out);
}

int check_texts(const char *dir, const char *root, check_report *r) {
    static char bytes[N_BYTES];
    walker w = {0};
    grammar_vocab *v = NULL;
    glob_t files = {0};
    int32_t end = END;
    char *pattern = check_path(dir, "*.jsonl"), where[400];
    (void)root;
    for (int32_t i = 0; i < N_TOKENS; i++) {
        bytes[i % N_BYTES] = (char)(i % N_BYTES);
        w.texts[i] = i < N_BYTES ? (str){bytes + i, 1} : i < END ? str_of(spans[i - N_BYTES]) : (str){"", 0};
    }
    if (pattern == NULL || glob(pattern, 0, NULL, &files) != 0 ||
        grammar_vocab_open(w.texts, N_TOKENS, &end, 1, &v) != QUIRE_OK) {
        (void)fprintf(stderr, "quire-check: %s: no schemas\n", dir);
    }
    for (size_t i = 0; i < files.gl_pathc && v != NULL; i++) {
        size_t n;
        char *text = check_read_file(files.gl_pathv[i], &n);
        str rest = {text, text != NULL ? n : 0}, line;
        for (int k = 0; check_line(&rest, &line); k++) {
            (void)snprintf(where, sizeof where, "%s/%d", files.gl_pathv[i], k);
            check_line_of(r, v, &w, where, line);
        }
        mem_free(text);
    }
    int status = v == NULL;
    grammar_vocab_drop(v);
    mem_free(pattern);
    globfree(&files);
    return status;
}

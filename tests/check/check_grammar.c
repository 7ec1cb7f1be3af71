/* Grammars: regex.json, schema.json, ebnf.json: texts accepted and rejected, with the
 * character after which nothing can follow; masks.json: the allowed tokens after
 * prefixes, to the bit. */
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "check/check.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "json/json_out.h"

#define KIND "grammar"

typedef struct vocabulary {
    char *bytes;
    grammar_vocab *v;
} vocabulary;

static json_value *read_json(const char *dir, const char *name) {
    size_t n;
    char *path = check_path(dir, name), *text = path != NULL ? check_read_file(path, &n) : NULL;
    json_limits limits = json_limits_file;
    json_fault fault = {0};
    json_value *v = NULL;
    limits.names = JSON_NAMES_LAST;
    if (text == NULL || json_read((str){text, n}, &limits, JSON_WIDE_REAL, &v, &fault) != QUIRE_OK) {
        (void)fprintf(stderr, "quire-check: %s: %s\n", name, text == NULL ? "cannot be read" : fault.what);
    }
    mem_free(text);
    mem_free(path);
    return v;
}

/* ---- texts ---- */

/* Characters of the text that the grammar takes; *final: they are a complete answer. */
static int64_t run_text(grammar_run *r, str text, bool *final) {
    grammar_state s = grammar_start(r);
    int64_t n = 0;
    size_t len;
    for (size_t i = 0; i < text.n; i += len, n++) {
        (void)utf8_decode(text.p + i, text.n - i, &len);
        if (grammar_accept_bytes(r, &s, (str){text.p + i, len}, NULL) != QUIRE_OK) {
            *final = false;
            return n;
        }
    }
    *final = grammar_is_final(r, s);
    return n;
}

static int64_t count_chars(str text) {
    int64_t n = 0;
    size_t len;
    for (size_t i = 0; i < text.n; i += len, n++) {
        (void)utf8_decode(text.p + i, text.n - i, &len);
    }
    return n;
}

static bool check_accept(check_report *r, grammar_run *run, const char *where, json_value *list) {
    for (size_t i = 0; i < json_length(list); i++) {
        bool final;
        str text = json_str(json_at(list, i));
        int64_t n = run_text(run, text, &final);
        if (!final) {
            check_fail(r, KIND, where, "\"%s\" must be accepted: stops at character %lld of %lld", text.p,
                       (long long)n, (long long)count_chars(text));
            return false;
        }
    }
    return true;
}

static bool check_reject(check_report *r, grammar_run *run, const char *where, json_value *list) {
    for (size_t i = 0; i < json_length(list); i++) {
        bool final;
        json_value *one = json_at(list, i);
        bool has_place = json_is(one, JSON_KIND_OBJECT);
        str text = has_place ? json_get_str(one, "text") : json_str(one);
        int64_t dead_at = has_place ? json_int64(json_get(one, "dead_at")) : -1,
                n = run_text(run, text, &final), total = count_chars(text);
        if (final) {
            check_fail(r, KIND, where, "\"%s\" must be rejected", text.p);
            return false;
        }
        if (has_place && n != (dead_at < 0 ? total : dead_at)) {
            check_fail(r, KIND, where, "\"%s\" must end at character %lld, ends at %lld", text.p,
                       (long long)dead_at, (long long)(n == total ? -1 : n));
            return false;
        }
    }
    return true;
}

/* Compiles what a record holds under `field`. NULL: counted and said. */
static grammar *compile(check_report *r, const char *where, grammar_kind kind, json_value *record,
                        grammar_space space) {
    static const char *const fields[] = {
        [GRAMMAR_REGEX] = "pattern", [GRAMMAR_SCHEMA] = "schema", [GRAMMAR_EBNF] = "grammar"};
    grammar_options o = {.space = space};
    strbuf text = {0};
    quire_error err = {0};
    grammar *g = NULL;
    json_value *v = json_get(record, fields[kind]);
    if (kind == GRAMMAR_SCHEMA) {
        json_out out = {.to = &text};
        json_add(&out, v);
    } else {
        (void)strbuf_add(&text, json_str(v).p, json_str(v).n);
    }
    if (grammar_compile(kind, (str){text.p, text.n}, &o, &g, &err) != QUIRE_OK) {
        if (err.code == QUIRE_UNSUPPORTED) {
            check_unsupported(r, KIND, where, err.message);
        } else {
            check_fail(r, KIND, where, "%s", err.message);
        }
    }
    strbuf_deinit(&text);
    return g;
}

static void check_record(check_report *r, const vocabulary *v, grammar_kind kind, const char *where,
                         json_value *record) {
    grammar_run *run = NULL;
    grammar *g = compile(r, where, kind, record, GRAMMAR_SPACE_ANY);
    if (g != NULL && grammar_run_open(g, v->v, 0, &run) != QUIRE_OK) {
        check_fail(r, KIND, where, "the run cannot be opened");
    } else if (g != NULL && check_accept(r, run, where, json_get(record, "accept")) &&
               check_reject(r, run, where, json_get(record, "reject"))) {
        check_pass(r, KIND, where);
    }
    grammar_run_close(run);
    grammar_drop(g);
}

static const char *const kind_names[] = {
    [GRAMMAR_REGEX] = "regex", [GRAMMAR_SCHEMA] = "schema", [GRAMMAR_EBNF] = "ebnf"};

/* Texts of one kind; returns its records, or NULL. */
static json_value *check_kind(check_report *r, const char *dir, const vocabulary *v, grammar_kind kind) {
    char name[64], where[256];
    (void)snprintf(name, sizeof name, "%s.json", kind_names[kind]);
    json_value *all = read_json(dir, name);
    for (size_t i = 0; i < json_length(all); i++) {
        json_value *record = json_at(all, i);
        (void)snprintf(where, sizeof where, "%s/%s", kind_names[kind], json_get_str(record, "name").p);
        check_record(r, v, kind, where, record);
    }
    return all;
}

/* ---- masks ---- */

static bool open_vocabulary(const char *dir, int64_t n, int32_t eos, vocabulary *out) {
    size_t bytes, at = 0;
    char *path = check_path(dir, "vocab.bin");
    out->bytes = path != NULL ? check_read_file(path, &bytes) : NULL;
    mem_free(path);
    str *texts = n > 0 && n < 10000000 ? mem_new((size_t)n, sizeof *texts) : NULL;
    for (int64_t i = 0; out->bytes != NULL && texts != NULL && i < n && at + 2 <= bytes; i++) {
        size_t len = (size_t)((uint8_t)out->bytes[at] | (uint8_t)out->bytes[at + 1] << 8);
        texts[i] = (str){out->bytes + at + 2, at + 2 + len <= bytes ? len : 0};
        at += 2 + len;
    }
    bool ok = out->bytes != NULL && texts != NULL &&
              grammar_vocab_open(texts, (int32_t)n, &eos, 1, &out->v) == QUIRE_OK;
    mem_free(texts);
    return ok;
}

static size_t unhex(str hex, char *out) {
    for (size_t i = 0; i + 1 < hex.n; i += 2) {
        out[i / 2] = (char)(hex_digit(hex.p[i]) << 4 | hex_digit(hex.p[i + 1]));
    }
    return hex.n / 2;
}

/* One mask; want: its bytes in the file. */
static void check_mask(check_report *r, grammar_run *run, const char *where, json_value *prefix,
                       const uint8_t *want, size_t n, uint64_t *bits) {
    char text[4096];
    str hex = json_get_str(prefix, "hex");
    grammar_state s = grammar_start(run);
    if (hex.n / 2 > sizeof text ||
        grammar_accept_bytes(run, &s, (str){text, unhex(hex, text)}, NULL) != QUIRE_OK ||
        grammar_mask(run, s, bits) != QUIRE_OK) {
        check_fail(r, KIND, where, "the prefix is not accepted");
        return;
    }
    for (size_t i = 0; i < n * 8; i++) {
        bool got = (bits[i / 64] >> (i % 64) & 1) != 0, expected = (want[i / 8] >> (i % 8) & 1) != 0;
        if (got != expected) {
            check_fail(r, KIND, where, "token %zu is %s, must not be", i, got ? "allowed" : "forbidden");
            return;
        }
    }
    check_pass(r, KIND, where);
}

static json_value *find_record(json_value *all, str name) {
    for (size_t i = 0; i < json_length(all); i++) {
        if (str_eq(json_get_str(json_at(all, i), "name"), name)) {
            return json_at(all, i);
        }
    }
    return NULL;
}

static void check_masks(check_report *r, const char *dir, const vocabulary *v, grammar_kind kind,
                        json_value *record, json_value *entry) {
    char where[256];
    size_t n_bytes = 0, per = (size_t)json_int64(json_get(entry, "bytes_per_mask"));
    json_value *prefixes = json_get(entry, "prefixes");
    char *path = check_path(dir, json_get_str(entry, "file").p);
    uint8_t *want = (uint8_t *)check_read_file(path, &n_bytes);
    (void)snprintf(where, sizeof where, "masks/%s-%s", kind_names[kind], json_get_str(entry, "name").p);
    grammar_space space =
        str_begins(json_get_str(entry, "whitespace"), "any") ? GRAMMAR_SPACE_ANY : GRAMMAR_SPACE_COMPACT;
    grammar *g = compile(r, where, kind, record, space);
    grammar_run *run = NULL;
    uint64_t *bits = mem_new(grammar_mask_words(v->v) + 1, sizeof *bits);
    if (g != NULL &&
        (want == NULL || n_bytes < per * json_length(prefixes) || bits == NULL ||
         per > grammar_mask_words(v->v) * sizeof *bits || grammar_run_open(g, v->v, 0, &run) != QUIRE_OK)) {
        check_fail(r, KIND, where, "the masks cannot be read");
        g = (grammar_drop(g), NULL);
    }
    for (size_t i = 0; g != NULL && i < json_length(prefixes); i++) {
        char one[400];
        (void)snprintf(one, sizeof one, "%s/%s", where, json_get_str(json_at(prefixes, i), "text").p);
        check_mask(r, run, one, json_at(prefixes, i), want + i * per, per, bits);
    }
    grammar_run_close(run);
    grammar_drop(g);
    mem_free(bits);
    mem_free(want);
    mem_free(path);
}

int check_grammar(const char *dir, const char *root, check_report *r) {
    static const grammar_kind kinds[] = {GRAMMAR_REGEX, GRAMMAR_SCHEMA, GRAMMAR_EBNF};
    json_value *all[3] = {NULL}, *masks = read_json(dir, "masks.json");
    vocabulary v = {0};
    (void)root;
    if (!open_vocabulary(dir, json_int64(json_get(masks, "n_tokens")),
                         (int32_t)json_int64(json_get(masks, "eos")), &v)) {
        (void)fprintf(stderr, "quire-check: %s: no vocabulary (masks.json, vocab.bin)\n", dir);
        json_drop(masks);
        mem_free(v.bytes);
        return 1;
    }
    for (size_t k = 0; k < 3; k++) {
        all[k] = check_kind(r, dir, &v, kinds[k]);
    }
    json_value *list = json_get(masks, "grammars");
    for (size_t i = 0; i < json_length(list); i++) {
        json_value *entry = json_at(list, i);
        for (size_t k = 0; k < 3; k++) {
            if (str_is(json_get_str(entry, "kind"), kind_names[kinds[k]])) {
                check_masks(r, dir, &v, kinds[k], find_record(all[k], json_get_str(entry, "name")), entry);
            }
        }
    }
    for (size_t k = 0; k < 3; k++) {
        json_drop(all[k]);
    }
    json_drop(masks);
    grammar_vocab_drop(v.v);
    mem_free(v.bytes);
    return 0;
}

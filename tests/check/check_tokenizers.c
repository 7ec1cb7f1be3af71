/* Tokenizer vectors: encoding, decoding and streaming of whole tokenizers, and
 * normalizers and pre-tokenizers one at a time. */
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "check.h"
#include "file/model_file.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"
#include "json/json.h"
#include "json/json_out.h"

#define KIND "tokenizers"

/* One tokenizer of the manifest. */
typedef struct subject {
    const char *name;
    tokenizer *t; /* NULL: why says why not */
    /* the reference: its encode takes bos and eos apart, its decode never shows control
     * tokens */
    bool sentencepiece;
    bool skips; /* its records say how a list decodes without special tokens */
    bool bare;  /* the reference has no post-processor, whatever the GGUF file says of BOS */
    char why[512];
} subject;

/* ---- finding the source ---- */

/* The first of the places where relative may lie that can be read, freed by mem_free;
 * NULL: none. */
static char *find_file(const char *dir, const char *root, const char *relative) {
    static const char *const below_root[] = {".", "golden/tokenizers", "tokenizers"};
    char *path = check_path(dir, relative);
    if (path != NULL && access(path, R_OK) == 0) {
        return path;
    }
    mem_free(path);
    char *own = root == NULL ? check_path(dir, "../..") : NULL;
    const char *base = root != NULL ? root : own;
    for (size_t i = 0; base != NULL && i < sizeof below_root / sizeof *below_root; i++) {
        char *below = check_path(base, below_root[i]);
        path = below == NULL ? NULL : check_path(below, relative);
        mem_free(below);
        if (path != NULL && access(path, R_OK) == 0) {
            mem_free(own);
            return path;
        }
        mem_free(path);
    }
    mem_free(own);
    return NULL;
}

static void open_vocab(subject *s, const vocab *v) {
    quire_error err = {0};
    if (tokenizer_open(v, &s->t, &err) != QUIRE_OK) {
        s->t = NULL;
        (void)snprintf(s->why, sizeof s->why, "%s", err.message);
    }
}

/* Opens a file of any format. pattern and specials are those that the manifest has for a
 * rank file. */
static void open_file(subject *s, const char *path, json_value *entry) {
    quire_error err = {0};
    model_file *f;
    vocab_special specials[64];
    json_value *given = json_get(entry, "special_tokens");
    if (model_file_open_vocabulary(path, &f, &err) != QUIRE_OK) {
        (void)snprintf(s->why, sizeof s->why, "%s", err.message);
        return;
    }
    vocab v = *model_file_vocab(f);
    v.pattern = json_get_str(entry, "pattern");
    v.specials = specials;
    for (json_member m = {0}; json_next(given, &m) && v.n_specials < 64;) {
        specials[v.n_specials++] = (vocab_special){str_of(m.name), (int32_t)json_int64(m.value)};
    }
    open_vocab(s, &v);
    model_file_close(f);
}

/* Opens what the manifest's entry names: its own tokenizer.json, or a source that this
 * build can read. */
static void subject_open(subject *s, const char *dir, const char *root, json_value *entry) {
    char own[256];
    json_value *sources = json_get(entry, "sources");
    str given = json_get_str(entry, "tokenizer_json");
    given = given.n > 0 ? given : json_get_str(entry, "model");
    (void)snprintf(own, sizeof own, "%s/tokenizer.json", s->name);
    char *path = find_file(dir, root, given.n > 0 ? given.p : own);
    for (size_t i = 0; path == NULL && json_is(sources, JSON_KIND_ARRAY) && i < json_length(sources); i++) {
        str source = json_str(json_at(sources, i));
        bool is_part = str_ends(source, ".json") && !str_ends(source, "tokenizer.json") &&
                       !str_ends(source, "tekken.json");
        path = is_part || str_ends(source, ".txt") || str_ends(source, ".bpe")
                   ? NULL
                   : find_file(dir, root, source.p);
    }
    (void)snprintf(s->why, sizeof s->why, "%s: no file of it is at hand", s->name);
    if (path != NULL) {
        open_file(s, path, entry);
    }
    mem_free(path);
}

/* ---- one record ---- */

/* A reason to fail, or an empty string. */
typedef struct verdict {
    char text[1024];
} verdict;

static bool ids_equal(const token_list *l, json_value *ids) {
    if (json_length(ids) != l->n) {
        return false;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (json_int64(json_at(ids, i)) != l->ids[i]) {
            return false;
        }
    }
    return true;
}

static void print_ids(const token_list *l, json_value *expected, const char *what, verdict *v) {
    size_t n = json_length(expected), i = 0;
    while (i < n && i < l->n && json_int64(json_at(expected, i)) == l->ids[i]) {
        i++;
    }
    long long want = i < n ? (long long)json_int64(json_at(expected, i)) : -1;
    (void)snprintf(v->text, sizeof v->text, "%s: %zu where %zu were expected; at %zu: %d, expected %lld",
                   what, l->n, n, i, i < l->n ? l->ids[i] : -1, want);
}

static void compare_text(str got, str expected, const char *what, verdict *v) {
    if (v->text[0] == '\0' && !str_eq(got, expected)) {
        size_t i = 0;
        while (i < got.n && i < expected.n && got.p[i] == expected.p[i]) {
            i++;
        }
        (void)snprintf(v->text, sizeof v->text, "%s: differs at byte %zu: \"%.*s\", expected \"%.*s\"", what,
                       i, (int)(got.n - i < 60 ? got.n - i : 60), got.p + i,
                       (int)(expected.n - i < 60 ? expected.n - i : 60), expected.p + i);
    }
}

static void add_list(const token_list *from, token_list *to) {
    for (size_t i = 0; i < from->n; i++) {
        (void)token_list_add(to, from->ids[i]);
    }
}

/* What the reference's call gives. */
static quire_err encode_record(const subject *s, json_value *rec, token_list *out, token_list *types,
                               quire_error *err) {
    str text = json_get_str(rec, "text"), second = json_get_str(rec, "pair");
    encode_special special = str_is(json_get_str(rec, "special"), "parse") ? ENCODE_PARSE : ENCODE_PLAIN;
    if (!json_get_bool(rec, "add_special_tokens", false) || s->bare) {
        return tokenizer_encode(s->t, text, (encode_options){.special = special}, out, err);
    }
    if (!s->sentencepiece) {
        return tokenizer_encode_pair(s->t, text, json_get(rec, "pair") != NULL ? &second : NULL, special, out,
                                     types, err);
    }
    token_list content = {0};
    quire_err e = tokenizer_encode(s->t, text, (encode_options){.special = special}, &content, err);
    if (s->t->bos >= 0) {
        (void)token_list_add(out, s->t->bos);
    }
    add_list(&content, out);
    if (s->t->eos >= 0) {
        (void)token_list_add(out, s->t->eos);
    }
    token_list_deinit(&content);
    return e;
}

static void check_encode(const subject *s, json_value *rec, verdict *v) {
    token_list ids = {0}, types = {0};
    quire_error err = {0};
    json_value *type_ids = json_get(rec, "type_ids");
    if (encode_record(s, rec, &ids, &types, &err) != QUIRE_OK) {
        (void)snprintf(v->text, sizeof v->text, "encode: %s", err.message);
    } else if (!ids_equal(&ids, json_get(rec, "ids"))) {
        print_ids(&ids, json_get(rec, "ids"), "ids", v);
    } else if (type_ids != NULL && !ids_equal(&types, type_ids)) {
        print_ids(&types, type_ids, "type_ids", v);
    }
    token_list_deinit(&ids);
    token_list_deinit(&types);
}

static void check_decode(const subject *s, json_value *rec, const token_list *ids, verdict *v) {
    strbuf text = {0};
    str decoded = json_get_str(rec, json_get(rec, "decoded") != NULL ? "decoded" : "text");
    if (tokenizer_decode(s->t, ids->ids, ids->n, s->sentencepiece, &text) != QUIRE_OK) {
        (void)snprintf(v->text, sizeof v->text, "decode failed");
    }
    compare_text((str){text.p, text.n}, decoded, "decoded", v);
    text.n = 0;
    if (s->skips && json_get(rec, "text") != NULL && !json_get_bool(rec, "add_special_tokens", false)) {
        str skipped = json_get(rec, "decoded_skip") != NULL ? json_get_str(rec, "decoded_skip") : decoded;
        (void)tokenizer_decode(s->t, ids->ids, ids->n, true, &text);
        compare_text((str){text.p, text.n}, skipped, "decoded_skip", v);
    }
    strbuf_deinit(&text);
}

static bool has_replacement(const strbuf *text) {
    return text->n > 0 && str_contains((str){text->p, text->n}, str_of(UTF8_REPLACEMENT));
}

/* Where the reference has no stream: the parts must add up to the whole, but for bytes
 * that are no text. */
static void check_parts(const subject *s, const token_list *ids, verdict *v) {
    detok *d;
    strbuf parts = {0}, whole = {0};
    if (detok_open(s->t, s->sentencepiece, &d) != QUIRE_OK) {
        return;
    }
    for (size_t i = 0; i < ids->n; i++) {
        (void)detok_add(d, ids->ids[i], &parts);
    }
    (void)detok_flush(d, &parts);
    (void)tokenizer_decode(s->t, ids->ids, ids->n, s->sentencepiece, &whole);
    if (!has_replacement(&parts) && !has_replacement(&whole)) {
        compare_text((str){parts.p, parts.n}, (str){whole.p, whole.n}, "stream as a whole", v);
    }
    strbuf_deinit(&parts);
    strbuf_deinit(&whole);
    detok_close(d);
}

static void check_stream(const subject *s, json_value *rec, const token_list *ids, verdict *v) {
    json_value *stream = json_get(rec, "stream");
    detok *d;
    strbuf text = {0};
    if (stream == NULL) {
        check_parts(s, ids, v);
        return;
    }
    if (detok_open(s->t, s->sentencepiece, &d) != QUIRE_OK) {
        return;
    }
    for (size_t i = 0; i < ids->n; i++) {
        json_value *want = json_at(stream, i);
        text.n = 0;
        (void)detok_add(d, ids->ids[i], &text);
        compare_text((str){text.p, text.n}, json_str(want), "stream", v);
    }
    text.n = 0;
    (void)detok_flush(d, &text);
    compare_text((str){text.p, text.n}, json_get_str(rec, "flush"), "flush", v);
    strbuf_deinit(&text);
    detok_close(d);
}

static void check_record(const subject *s, const char *case_name, json_value *rec, check_report *r) {
    verdict v = {{0}};
    token_list ids = {0};
    json_value *list = json_get(rec, "ids");
    for (size_t i = 0; i < json_length(list); i++) {
        (void)token_list_add(&ids, (int32_t)json_int64(json_at(list, i)));
    }
    if (json_get(rec, "text") != NULL) {
        check_encode(s, rec, &v);
    }
    if (v.text[0] != '\0' && json_get_bool(rec, "leaks", false)) {
        check_unsupported(r, KIND, case_name, "plain text is never encoded to a control token");
        token_list_deinit(&ids);
        return;
    }
    check_decode(s, rec, &ids, &v);
    check_stream(s, rec, &ids, &v);
    if (v.text[0] == '\0') {
        check_pass(r, KIND, case_name);
    } else {
        str text = json_get_str(rec, "text");
        check_fail(r, KIND, case_name, "%s (text \"%.*s\")", v.text, (int)(text.n < 80 ? text.n : 80),
                   text.p);
    }
    token_list_deinit(&ids);
}

/* ---- files of records ---- */

/* Calls check for every line of the file dir/name; the case is name:line. */
static void each_line(const char *path, const char *name, check_report *r, void *context,
                      void (*check)(void *context, const char *case_name, json_value *rec, check_report *r)) {
    size_t n;
    char *bytes = check_read_file(path, &n);
    if (bytes == NULL) {
        check_fail(r, KIND, name, "%s cannot be read", path);
        return;
    }
    str rest = {bytes, n}, line;
    for (int number = 1; check_line(&rest, &line); number++) {
        char case_name[320];
        json_value *rec = line.n > 0 ? json_document(line) : NULL;
        (void)snprintf(case_name, sizeof case_name, "%s:%d", name, number);
        if (rec != NULL) {
            check(context, case_name, rec, r);
        } else if (line.n > 0) {
            check_fail(r, KIND, case_name, "the record is not JSON");
        }
        json_drop(rec);
    }
    mem_free(bytes);
}

static void check_subject_record(void *context, const char *case_name, json_value *rec, check_report *r) {
    const subject *s = context;
    if (s->t == NULL) {
        check_unsupported(r, KIND, case_name, s->why);
    } else if (!json_is(json_get(rec, "ids"), JSON_KIND_ARRAY)) {
        check_fail(r, KIND, case_name, "the record has no ids");
    } else {
        check_record(s, case_name, rec, r);
    }
}

static void check_entry(const char *dir, const char *root, json_value *entry, check_report *r) {
    str name = json_get_str(entry, "name"), vectors = json_get_str(entry, "vectors");
    if (name.n == 0 || vectors.n == 0) {
        check_fail(r, KIND, "manifest.json", "an entry without name or vectors");
        return;
    }
    subject s = {.name = name.p, .sentencepiece = str_is(json_get_str(entry, "library"), "sentencepiece")};
    json_value *pipeline = json_get(entry, "pipeline");
    s.skips = str_is(json_get_str(entry, "library"), "tokenizers");
    s.bare = pipeline != NULL && json_get(pipeline, "post_processor") == NULL;
    char *path = check_path(dir, vectors.p);
    subject_open(&s, dir, root, entry);
    if (path != NULL) {
        each_line(path, s.name, r, &s, check_subject_record);
    }
    mem_free(path);
    tokenizer_close(s.t);
}

/* ---- components ---- */

static void check_normalizer(void *context, const char *case_name, json_value *rec, check_report *r) {
    (void)context;
    normalizer n = {0};
    norm_scratch scratch = {0};
    regex_scratch rs = {0};
    quire_error err = {0};
    verdict v = {{0}};
    str text = json_get_str(rec, "text"), got = {"", 0};
    strbuf json = {0};
    json_add(&(json_out){.to = &json}, json_get(rec, "normalizer"));
    quire_err e = pipeline_load_normalizer((str){json.p, json.n}, &n, &err);
    strbuf_deinit(&json);
    if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, KIND, case_name, err.message);
    } else if (e != QUIRE_OK || normalizer_run(&n, text, &scratch, &rs, &got) != QUIRE_OK) {
        check_fail(r, KIND, case_name, "normalizing failed: %s", err.message);
    } else {
        compare_text(got, json_get_str(rec, "expected"), "normalized", &v);
        if (v.text[0] == '\0') {
            check_pass(r, KIND, case_name);
        } else {
            check_fail(r, KIND, case_name, "%s", v.text);
        }
    }
    normalizer_deinit(&n);
    norm_scratch_deinit(&scratch);
    regex_scratch_deinit(&rs);
}

static void compare_pieces(const piece_list *l, json_value *pieces, const char *case_name, check_report *r) {
    size_t n = json_length(pieces);
    verdict v = {{0}};
    for (size_t i = 0; i < n && i < l->n; i++) {
        json_value *want = json_at(pieces, i);
        compare_text((str){l->text.p + l->pieces[i].at, l->pieces[i].n}, json_str(want), "piece", &v);
    }
    if (n != l->n && v.text[0] == '\0') {
        (void)snprintf(v.text, sizeof v.text, "%zu pieces, %zu expected", l->n, n);
    }
    if (v.text[0] == '\0') {
        check_pass(r, KIND, case_name);
    } else {
        check_fail(r, KIND, case_name, "%s", v.text);
    }
}

static void check_pretokenizer(void *context, const char *case_name, json_value *rec, check_report *r) {
    (void)context;
    pretokenizer p = {0};
    pre_scratch scratch = {0};
    regex_scratch rs = {0};
    quire_error err = {0};
    const piece_list *pieces;
    strbuf json = {0};
    str text = json_get_str(rec, "text");
    size_t front = 0;
    (void)(text.n > 0 ? utf8_decode(text.p, text.n, &front) : 0);
    json_add(&(json_out){.to = &json}, json_get(rec, "pre_tokenizer"));
    quire_err e = pipeline_load_pretokenizer((str){json.p, json.n}, &p, &err);
    strbuf_deinit(&json);
    if (e == QUIRE_UNSUPPORTED) {
        check_unsupported(r, KIND, case_name, err.message);
    } else if (e != QUIRE_OK || pretokenizer_run(&p, text, front, &scratch, &rs, &pieces) != QUIRE_OK) {
        check_fail(r, KIND, case_name, "pre-tokenizing failed: %s", err.message);
    } else {
        compare_pieces(pieces, json_get(rec, "pieces"), case_name, r);
    }
    pretokenizer_deinit(&p);
    pre_scratch_deinit(&scratch);
    regex_scratch_deinit(&rs);
}

static void check_component(const char *dir, const char *file, check_report *r,
                            void (*check)(void *, const char *, json_value *, check_report *)) {
    char *path = check_path(dir, file);
    if (path != NULL && access(path, R_OK) == 0) {
        each_line(path, file, r, NULL, check);
    }
    mem_free(path);
}

int check_tokenizers(const char *dir, const char *root, check_report *r) {
    size_t n = 0;
    char *path = check_path(dir, "manifest.json");
    char *bytes = path == NULL ? NULL : check_read_file(path, &n);
    json_value *manifest = bytes == NULL ? NULL : json_document((str){bytes, n});
    json_value *list = json_get(manifest, "tokenizers");
    mem_free(path);
    mem_free(bytes);
    if (!json_is(list, JSON_KIND_ARRAY)) {
        fprintf(stderr, "quire-check: %s/manifest.json cannot be read, or lists no tokenizers\n", dir);
        json_drop(manifest);
        return 1;
    }
    for (size_t i = 0; i < json_length(list); i++) {
        check_entry(dir, root, json_at(list, i), r);
    }
    check_component(dir, "normalize.jsonl", r, check_normalizer);
    check_component(dir, "pretokenize.jsonl", r, check_pretokenizer);
    json_drop(manifest);
    return 0;
}

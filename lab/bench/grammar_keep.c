#include "lab/bench/grammar_keep.h"

#include <string.h>

#include "base/mem.h"
#include "base/process.h"
#include "base/rng.h"
#include "file/map.h"
#include "grammar/grammar.h"
#include "json/json_out.h"
#include "lab/bench/figures.h"

typedef struct keep {
    grammar **list;
    int32_t n, cap, round;
    strbuf text;
} keep;

static quire_err keep_schema(keep *k) {
    static const grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    quire_error refused;
    quire_err e =
        grammar_compile(GRAMMAR_SCHEMA, (str){k->text.p, k->text.n}, &any, &k->list[k->n], &refused);
    k->n += e == QUIRE_OK;
    return e == QUIRE_NO_MEMORY ? e : QUIRE_OK;
}

/* ---- made schemas ---- */

enum { MIN_PROPERTIES = 4, MAX_PROPERTIES = 12 };

static quire_err add_property(strbuf *out, uint64_t draw, int32_t number, int32_t i) {
    static const char *const words[] = {"name", "count", "status", "address", "created_at",
                                        "tags", "price", "owner",  "query",   "limit"};
    static const char *const types[] = {
        "{\"type\":\"string\"}",
        "{\"type\":\"string\",\"minLength\":1,\"maxLength\":64}",
        "{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-[0-9]{4}$\"}",
        "{\"type\":\"string\",\"format\":\"date-time\"}",
        "{\"type\":\"integer\",\"minimum\":0,\"maximum\":1000}",
        "{\"type\":\"number\"}",
        "{\"type\":\"boolean\"}",
        "{\"enum\":[\"open\",\"closed\",\"waiting\",null]}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":8}",
        ("{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\","
         "\"pattern\":\"^[0-9]{5}$\"}},\"required\":[\"street\"],\"additionalProperties\":false}"),
    };
    return strbuf_addf(out, "%s\"%s_%d_%d\":%s", i > 0 ? "," : "", words[draw % 10], (int)number, (int)i,
                       types[draw / 10 % 10]);
}

quire_err grammar_keep_schema(int32_t number, strbuf *out) {
    uint64_t seed = (uint64_t)number + 1;
    int32_t n = MIN_PROPERTIES + (int32_t)(rng_next(&seed) % (MAX_PROPERTIES - MIN_PROPERTIES + 1));
    uint64_t first = rng_next(&seed);
    TRY(strbuf_add_str(out, "{\"type\":\"object\",\"properties\":{"));
    for (int32_t i = 0; i < n; i++) {
        TRY(add_property(out, i == 0 ? first : rng_next(&seed), number, i));
    }
    return strbuf_add_str(out, rng_next(&seed) % 2 == 0 ? "},\"additionalProperties\":false}" : "}}");
}

static quire_err keep_made(keep *k) {
    for (int32_t number = 0; k->n < k->cap; number++) {
        strbuf_clear(&k->text);
        TRY(grammar_keep_schema(number, &k->text));
        TRY(keep_schema(k));
    }
    return QUIRE_OK;
}

/* ---- schemas of files ---- */

static quire_err keep_record(void *user, json_value *record) {
    keep *k = user;
    strbuf written = {0};
    json_out out = {.to = &written};
    const json_value *schema = json_get(record, "schema");
    bool is_new = k->round == 0 || (json_is(schema, JSON_KIND_OBJECT) && json_length(schema) > 0);
    if (k->n == k->cap || !is_new) {
        return QUIRE_OK;
    }
    json_add(&out, schema);
    strbuf_clear(&k->text);
    quire_err e = QUIRE_OK;
    size_t skipped = 0;
    if (k->round > 0) {
        e = strbuf_addf(&k->text, "{\"$comment\":\"round %d\",", (int)k->round);
        skipped = 1;
    }
    e = e == QUIRE_OK ? strbuf_add(&k->text, written.p + skipped, written.n - skipped) : e;
    strbuf_deinit(&written);
    return e == QUIRE_OK ? keep_schema(k) : e;
}

static quire_err keep_files(keep *k, const char *files, quire_error *err) {
    for (; k->n < k->cap; k->round++) {
        int32_t before = k->n;
        TRY(schema_lines_each(files, 1, keep_record, k, err));
        if (k->n == before) {
            return err_set(err, QUIRE_INVALID, -1, "--keep: no schema of the files compiles");
        }
    }
    return QUIRE_OK;
}

static quire_err grammar_keep_pass(void *user, json_value *record) {
    (void)user;
    (void)record;
    return QUIRE_OK;
}

quire_err grammar_keep_run(const char *files, int32_t n, grammar_kept *out, quire_error *err) {
    keep k = {.list = mem_new((size_t)n, sizeof *k.list), .cap = n};
    TRY(mem_check_for(k.list, "the grammars", err));
    /* its pages are not the grammars' */
    memset(k.list, 0, (size_t)n * sizeof *k.list);
    /* nor are what reading leaves free */
    quire_err e = files != NULL ? schema_lines_each(files, 1, grammar_keep_pass, NULL, err) : QUIRE_OK;
    int64_t before = process_read().resident_bytes;
    e = e != QUIRE_OK ? e : files != NULL ? keep_files(&k, files, err) : keep_made(&k);
    int64_t after = process_read().resident_bytes;
    *out = (grammar_kept){.n = k.n, .growth_bytes = before >= 0 && after >= 0 ? after - before : -1};
    for (int32_t i = 0; i < k.n; i++) {
        out->grammar_bytes += grammar_bytes(k.list[i]);
        grammar_drop(k.list[i]);
    }
    mem_free(k.list);
    strbuf_deinit(&k.text);
    return e;
}

/* ---- lines of schemas ---- */

typedef struct taker {
    int32_t every;
    quire_err (*take)(void *user, json_value *record);
    void *user;
} taker;

static quire_err run_lines(const taker *t, str text, const char *where, quire_error *err) {
    json_limits limits = json_limits_file;
    limits.names = JSON_NAMES_LAST;
    for (int32_t line = 0; text.n > 0; line++) {
        const char *end = memchr(text.p, '\n', text.n);
        size_t n = end != NULL ? (size_t)(end - text.p) : text.n;
        json_value *record = NULL;
        json_fault fault;
        if (line % t->every == 0) {
            if (json_read((str){text.p, n}, &limits, JSON_WIDE_REAL, &record, &fault) != QUIRE_OK) {
                return err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: line %d: %s", where, line + 1,
                               fault.what);
            }
            quire_err e = t->take(t->user, record);
            json_drop(record);
            TRY(e);
        }
        n += end != NULL;
        text = (str){text.p + n, text.n - n};
    }
    return QUIRE_OK;
}

static const char own_schemas[] =
    "{\"schema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
    "\"integer\",\"minimum\":0},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":["
    "\"name\"]},\"tests\":[{\"valid\":true,\"data\":{\"name\":\"ann\",\"age\":31,\"tags\":[\"a\",\"of "
    "words\"]}}]}\n"
    "{\"schema\":{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"enum\":[\"x\",\"y\"]},"
    "\"next\":{\"$ref\":\"#/$defs/n\"}},\"additionalProperties\":false}},\"$ref\":\"#/$defs/"
    "n\"},\"tests\":[{\"valid\":true,\"data\":{\"v\":\"x\",\"next\":{\"v\":\"y\",\"next\":{}}}}]}\n"
    "{\"schema\":{\"type\":\"object\"},\"tests\":[{\"valid\":true,\"data\":{\"any\":[1,2.5,null,{\"thing\":"
    "\"at all\"}]}}]}\n";

quire_err schema_lines_each(const char *files, int32_t every,
                            quire_err (*take)(void *user, json_value *record), void *user, quire_error *err) {
    const taker t = {every, take, user};
    const char *at = files;
    if (at == NULL) {
        return run_lines(&t, (str){own_schemas, sizeof own_schemas - 1}, "the schemas", err);
    }
    while (*at != 0) {
        char path[4096];
        str name = figures_next_word(&at);
        file_map map = {0};
        if (name.n >= sizeof path) {
            return err_set(err, QUIRE_INVALID, -1, "--schemas: a name is too long");
        }
        memcpy(path, name.p, name.n);
        path[name.n] = 0;
        TRY(file_map_open(path, (size_t)1 << 30, &map, err));
        quire_err e = run_lines(&t, file_map_text(&map), path, err);
        file_map_close(&map);
        TRY(e);
    }
    return QUIRE_OK;
}

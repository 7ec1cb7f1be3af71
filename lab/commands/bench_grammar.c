/* `quire bench grammar`: the cost of grammars: compiling schemas, and masks along
 * instances. */

#include "base/clock.h"
#include "base/hash_index.h"
#include "base/rng.h"
#include "file/map.h"
#include "file/model_file.h"
#include "grammar/grammar.h"
#include "lab/commands/lab_commands.h"
#include "text/token_texts.h"
#include "json/json.h"
#include "json/json_out.h"

typedef struct bench_grammar_options {
    cli_options cli;
    const char *tokenizer; /* a model or tokenizer file; NULL: a synthetic vocabulary of n_tokens */
    /* files of MaskBench (a record with `schema` and `tests` per line), separated by
     * commas; NULL: a few built-in schemas */
    const char *schemas;
    int32_t n_tokens;
    int32_t every; /* use every n-th schema */
} bench_grammar_options;

/* Costs of grammars over files of schemas. */

#define LONGEST 24 /* longest token, in bytes, that is looked for in an instance */

LAB_DEFAULTS(bench_grammar, .n_tokens = 128000, .every = 1)

typedef struct times {
    double *us;
    size_t n, cap;
} times;

typedef struct bench {
    const bench_grammar_options *o;
    grammar_vocab *v;
    str *texts;         /* [n_tokens] */
    hash_index by_text; /* ids by the hash of their texts */
    strbuf bytes;       /* bytes of a synthetic vocabulary */
    uint64_t *bits;
    times compile, first, masks;
    int64_t n_schemas, n_refused;
    size_t grammar_bytes;
} bench;

static quire_err bench_grammar_note(times *t, int64_t from_ns) {
    double us = (double)(clock_ns() - from_ns) * 1e-3;
    TRY(mem_grow(&t->us, &t->cap, t->n + 1, sizeof *t->us));
    t->us[t->n++] = us;
    return QUIRE_OK;
}

/* ---- vocabularies ---- */

static int32_t find_token(const bench *b, str text) {
    const uint32_t hash = (uint32_t)str_hash(STR_HASH_START, text);
    HASH_INDEX_EACH(&b->by_text, hash, i) {
        if (str_eq(b->texts[i], text)) {
            return (int32_t)i;
        }
    }
    return -1;
}

static quire_err index_tokens(bench *b, int32_t n) {
    int32_t end = n - 1;
    b->texts[end] = (str){"", 0};
    for (int32_t i = 0; i < n; i++) {
        if (find_token(b, b->texts[i]) < 0) {
            TRY(hash_index_add(&b->by_text, (uint32_t)str_hash(STR_HASH_START, b->texts[i]), (uint32_t)i));
        }
    }
    TRY(grammar_vocab_open(b->texts, n, &end, 1, &b->v));
    b->bits = mem_new(grammar_mask_words(b->v), sizeof *b->bits);
    return mem_check(b->bits);
}

/* Makes a vocabulary: all bytes, then words of letters with what often surrounds them. */
static quire_err make_vocabulary(bench *b) {
    static const char *const before[] = {"", " ", "\"", " \"", "_"}, *const after[] = {"", "\"", "\":", "\",",
                                                                                       "\n"};
    int32_t n = b->o->n_tokens;
    uint64_t seed = 1;
    uint32_t *starts = mem_new((size_t)n + 1, sizeof *starts);
    quire_err e = mem_check(starts);
    for (int32_t i = 0; i < n && e == QUIRE_OK; i++) {
        uint64_t word = rng_next(&seed);
        if (i < 256) {
            e = strbuf_add_char(&b->bytes, (char)i);
        } else {
            e = strbuf_add_str(&b->bytes, before[word % 10 < 5 ? word % 5 : 0]);
            for (uint64_t k = word >> 8; k >= 26 && e == QUIRE_OK;
                 k /= 26u * (1u + (unsigned)(word % 7) * 37u)) {
                e = strbuf_add_char(&b->bytes, (char)('a' + k % 26));
            }
            TRY_DONE(e, strbuf_add_str(&b->bytes, after[word % 100 < 5 ? word % 5 : 0]));
        }
        starts[i + 1] = (uint32_t)b->bytes.n;
    }
    for (int32_t i = 0; i < n && e == QUIRE_OK; i++) {
        b->texts[i] = (str){b->bytes.p + starts[i], starts[i + 1] - starts[i]};
    }
done:
    mem_free(starts);
    TRY(e);
    return index_tokens(b, n);
}

static quire_err read_vocabulary(bench *b, token_texts **texts, quire_error *err) {
    model_file *f = NULL;
    tokenizer *t = NULL;
    int32_t n = 0;
    TRY(model_file_open_vocabulary(b->o->tokenizer, &f, err));
    quire_err e = tokenizer_open(model_file_vocab(f), &t, err);
    TRY_DONE(e, token_texts_open(t, texts));
    n = tokenizer_n_tokens(t);
    b->texts = mem_new((size_t)n + 1, sizeof *b->texts);
    TRY_DONE(e, mem_check(b->texts));
    for (int32_t i = 0; i < n; i++) {
        b->texts[i] = tokenizer_is_special(t, i) ? (str){"", 0} : token_texts_of(*texts, i);
    }
done:
    tokenizer_close(t);
    model_file_close(f);
    TRY(e);
    return index_tokens(b, n + 1);
}

/* ---- schemas ---- */

static quire_err walk(bench *b, grammar_run *r, str text, int64_t from_ns, bool *is_first) {
    grammar_state s = grammar_start(r);
    for (size_t at = 0; at < text.n;) {
        int64_t mask_ns = clock_ns();
        TRY(grammar_mask(r, s, b->bits));
        TRY(bench_grammar_note(&b->masks, mask_ns));
        if (*is_first) {
            TRY(bench_grammar_note(&b->first, from_ns));
            *is_first = false;
        }
        size_t n = text.n - at < LONGEST ? text.n - at : LONGEST;
        int32_t token = -1;
        while (n > 0 && ((token = find_token(b, (str){text.p + at, n})) < 0 ||
                         (b->bits[token / 64] >> (token % 64) & 1) == 0)) {
            n--;
        }
        if (n == 0 || grammar_accept(r, &s, token) != QUIRE_OK) {
            return QUIRE_OK; /* no token of the vocabulary continues here */
        }
        at += n;
    }
    return QUIRE_OK;
}

/* Writes the next valid instance of tests, from *at on, replacing the content of out.
 * False: none is left. */
static bool write_instance(json_out *out, const json_value *tests, size_t *at) {
    while (*at < json_length(tests) && !json_get_bool(json_at(tests, *at), "valid", false)) {
        (*at)++;
    }
    if (*at == json_length(tests)) {
        return false;
    }
    strbuf_clear(out->to);
    json_add(out, json_get(json_at(tests, (*at)++), "data"));
    return true;
}

/* Compiles the record's schema and walks its valid instances; the first one is written
 * before the clock starts. */
static quire_err run_schema(bench *b, const json_value *record) {
    grammar_options any = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    strbuf schema = {0}, instance = {0};
    json_out to_schema = {.to = &schema}, to_instance = {.to = &instance};
    quire_error ignored;
    grammar *g = NULL;
    grammar_run *r = NULL;
    size_t at = 0;
    const json_value *tests = json_get(record, "tests");
    json_add(&to_schema, json_get(record, "schema"));
    bool has_instance = write_instance(&to_instance, tests, &at), is_first = true;
    int64_t from = clock_ns();
    quire_err e = grammar_compile(GRAMMAR_SCHEMA, (str){schema.p, schema.n}, &any, &g, &ignored);
    b->n_schemas++;
    b->n_refused += e != QUIRE_OK;
    bool refused = e != QUIRE_OK;
    e = bench_grammar_note(&b->compile, from);
    if (e == QUIRE_OK && !refused) {
        e = grammar_run_open(g, b->v, 0, &r);
    }
    b->grammar_bytes += refused ? 0 : grammar_bytes(g);
    for (; has_instance && r != NULL && e == QUIRE_OK;
         has_instance = write_instance(&to_instance, tests, &at)) {
        e = walk(b, r, (str){instance.p, instance.n}, from, &is_first);
    }
    grammar_run_close(r);
    grammar_drop(g);
    strbuf_deinit(&schema);
    strbuf_deinit(&instance);
    return e;
}

/* ---- lines of schemas ---- */

static quire_err run_lines(bench *b, str text, const char *where, quire_error *err) {
    json_limits limits = json_limits_file;
    limits.names = JSON_NAMES_LAST;
    for (int32_t number = 1; text.n > 0; number++) {
        str line = figures_next_line(&text);
        json_value *record = NULL;
        json_fault fault;
        if ((number - 1) % b->o->every != 0) {
            continue;
        }
        if (json_read(line, &limits, JSON_WIDE_REAL, &record, &fault) != QUIRE_OK) {
            return err_set(err, QUIRE_BAD_FILE, (int64_t)fault.at, "%s: line %d: %s", where, (int)number,
                           fault.what);
        }
        quire_err e = run_schema(b, record);
        json_drop(record);
        TRY(e);
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

/* Runs each `every`-th line of the files, or of the built-in schemas, in order. A record
 * has `schema` and `tests`. The first error stops. */
static quire_err run_files(bench *b, quire_error *err) {
    const char *at = b->o->schemas;
    if (at == NULL) {
        return run_lines(b, (str){own_schemas, sizeof own_schemas - 1}, "the schemas", err);
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
        quire_err e = run_lines(b, file_map_text(&map), path, err);
        file_map_close(&map);
        TRY(e);
    }
    return QUIRE_OK;
}

/* ---- the report ---- */

static void report_times(const bench_table *s, const char *what, times *t) {
    double sum = 0;
    if (t->n == 0) {
        return;
    }
    int32_t n = (int32_t)t->n;
    for (size_t i = 0; i < t->n; i++) {
        sum += t->us[i];
    }
    TABLE_ROW(s, TXT(what), NUM(t->n), NUM(sum / (double)t->n), NUM(figures_percentile(t->us, n, 0.5)),
              NUM(figures_percentile(t->us, n, 0.99)), NUM(figures_percentile(t->us, n, 0.999)));
}

static void bench_grammar_report(bench *b) {
    TABLE(s, "grammar", b->o->cli.json, WORD("what", "what", 22), FIGURE("n", "n", 9, 0, "count"),
          FIGURE("mean", "mean us", 10, 2, "us"), FIGURE("p50", "50% us", 10, 2, "us"),
          FIGURE("p99", "99% us", 10, 1, "us"), FIGURE("p99.9", "99.9% us", 10, 1, "us"));
    table_begin(&s, NULL);
    report_times(&s, "compile", &b->compile);
    report_times(&s, "first mask, compiled", &b->first);
    report_times(&s, "mask", &b->masks);
    table_note(&s, "%lld schemas, %lld refused, %.0f bytes a grammar; %d tokens", (long long)b->n_schemas,
               (long long)b->n_refused,
               (double)b->grammar_bytes /
                   (double)(b->n_schemas > b->n_refused ? b->n_schemas - b->n_refused : 1),
               grammar_vocab_size(b->v));
}

static quire_err bench_grammar_run(const cli_options *cli, quire_error *err) {
    const bench_grammar_options *o = (const void *)cli;
    bench b = {.o = o};
    token_texts *texts = NULL;
    quire_err e;
    if (o->tokenizer != NULL) {
        e = read_vocabulary(&b, &texts, err);
    } else {
        b.texts = mem_new((size_t)o->n_tokens, sizeof *b.texts);
        e = b.texts != NULL ? make_vocabulary(&b) : QUIRE_NO_MEMORY;
    }
    TRY_DONE(e, run_files(&b, err));
    bench_grammar_report(&b);
done:
    if (e != QUIRE_OK && err->code != e) {
        (void)err_set(err, e, -1, "bench grammar: %s", quire_err_text(e));
    }
    token_texts_close(texts);
    grammar_vocab_drop(b.v);
    mem_free(b.texts);
    hash_index_deinit(&b.by_text);
    mem_free(b.bits);
    strbuf_deinit(&b.bytes);
    mem_free(b.compile.us);
    mem_free(b.first.us);
    mem_free(b.masks.us);
    return e;
}

#define AT(member) .offset = offsetof(bench_grammar_options, member)

static const flag bench_grammar_flags[] = {
    {"--tokenizer", "FILE", "the vocabulary: a model or tokenizer (a made-up one)", TEXT(tokenizer)},
    {"--schemas", "FILES",
     "lines of {\"schema\":..,\"tests\":[{\"valid\":true,\"data\":..}]} (three of its own)", TEXT(schemas)},
    {"--vocabulary", "N", "tokens of the made-up vocabulary", COUNT(n_tokens, 300, 1000000)},
    {"--every", "N", "each Nth schema only", COUNT(every, 1, 1000000)},
    {0},
};

LAB_COMMAND(bench_grammar, "bench grammar", "", ARGUMENT_NONE,
            "what compiling a JSON Schema and its token masks cost",
            "  quire bench grammar --tokenizer tokenizer.json --schemas schemas.jsonl\n", bench_grammar_flags,
            flags_json, flags_help);

#include "lab/sim/trace_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash_index.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/json_doc.h"
#include "file/map.h"
#include "file/show.h"
#include "lab/bench/figures.h"
#include "json/json.h"

struct named {
    size_t at, n; /* offset and length in bytes */
};

enum { MAX_NAMES = 1 << 30 };

/* Numbers byte strings: the first new one is 0, the next 1, and so on; the same bytes
 * always get the same number. */
typedef struct numbering {
    strbuf bytes;        /* all names, concatenated */
    struct named *names; /* [n] */
    size_t cap_names;
    int32_t n;
    hash_index index; /* index of the names */
} numbering;

static quire_err numbering_of(numbering *g, str name, int32_t *out) {
    uint32_t hash = (uint32_t)str_hash(STR_HASH_START, name);
    HASH_INDEX_EACH(&g->index, hash, i) {
        if (str_eq((str){g->bytes.p + g->names[i].at, g->names[i].n}, name)) {
            *out = (int32_t)i;
            return QUIRE_OK;
        }
    }
    if (g->n == MAX_NAMES) {
        return QUIRE_TOO_LARGE;
    }
    TRY(mem_grow(&g->names, &g->cap_names, (size_t)g->n + 1, sizeof *g->names));
    size_t at = g->bytes.n;
    TRY(strbuf_add(&g->bytes, name.p, name.n));
    TRY(hash_index_add(&g->index, hash, (uint32_t)g->n));
    g->names[g->n] = (struct named){at, name.n};
    *out = g->n++;
    return QUIRE_OK;
}

static void numbering_deinit(numbering *g) {
    strbuf_deinit(&g->bytes);
    mem_free(g->names);
    hash_index_deinit(&g->index);
    *g = (numbering){0};
}

#define MAX_TEXT_TOKENS ((int64_t)INT32_MAX + 1) /* number of negative ids */

/* Builds a trace request by request: start, pieces, the answer's pieces, end; finally
 * finish. Texts are numbered as they occur, and get their ranges of ids at the end, when
 * their lengths are known. */
typedef struct trace_builder {
    numbering names; /* names of texts */
    numbering tenants;
    int32_t *text_of; /* [names.n] number of the text */
    int32_t *lengths; /* [n_texts] most tokens used of each text */
    trace_request *requests;
    trace_run *runs; /* first < 0: text -1 - first, from its start; n > 0 */
    trace_request now;
    size_t cap_text_of, cap_lengths, cap_requests, cap_runs, n_runs;
    int32_t n_texts, n_requests;
    bool in_answer;
} trace_builder;

/* How a text is named; the same bytes of different kinds name different texts. */
typedef enum text_kind { TEXT_HASH = 'h', TEXT_NAME = 'n' } text_kind;

static void trace_build_deinit(trace_builder *b) {
    numbering_deinit(&b->names);
    numbering_deinit(&b->tenants);
    mem_free(b->text_of);
    mem_free(b->lengths);
    mem_free(b->requests);
    mem_free(b->runs);
    *b = (trace_builder){0};
}

static quire_err trace_build_start(trace_builder *b, int64_t arrival_us, str tenant) {
    b->now = (trace_request){.arrival_us = arrival_us, .first_run = (int64_t)b->n_runs};
    b->in_answer = false;
    return numbering_of(&b->tenants, tenant, &b->now.tenant);
}

/* Adds n tokens to the count of the prompt or the answer. */
static quire_err trace_build_count(trace_builder *b, int32_t n) {
    int32_t *sum = b->in_answer ? &b->now.n_output : &b->now.n_prompt;
    if (n > TRACE_MAX_TOKENS - *sum) {
        return QUIRE_TOO_LARGE;
    }
    *sum += n;
    return QUIRE_OK;
}

static quire_err add_run(trace_builder *b, int32_t first, int32_t n) {
    TRY(mem_grow(&b->runs, &b->cap_runs, b->n_runs + 1, sizeof *b->runs));
    b->runs[b->n_runs++] = (trace_run){first, n};
    b->now.n_runs++;
    return QUIRE_OK;
}

static quire_err new_text(trace_builder *b, int32_t *out) {
    TRY(b->n_texts == INT32_MAX
            ? QUIRE_TOO_LARGE
            : mem_grow(&b->lengths, &b->cap_lengths, (size_t)b->n_texts + 1, sizeof *b->lengths));
    b->lengths[b->n_texts] = 0;
    *out = b->n_texts++;
    return QUIRE_OK;
}

/* Adds the first n tokens of a text. */
static quire_err add_text(trace_builder *b, int32_t text, int32_t n) {
    TRY(trace_build_count(b, n));
    b->lengths[text] = n > b->lengths[text] ? n : b->lengths[text];
    return n > 0 ? add_run(b, -1 - text, n) : QUIRE_OK;
}

static quire_err trace_build_text(trace_builder *b, text_kind kind, str name, int32_t n) {
    char key[256];
    if (name.n >= sizeof key) {
        return QUIRE_TOO_LARGE;
    }
    key[0] = (char)kind;
    memcpy(key + 1, name.p, name.n);
    int32_t before = b->names.n, number;
    TRY(mem_grow(&b->text_of, &b->cap_text_of, (size_t)before + 1, sizeof *b->text_of));
    TRY(numbering_of(&b->names, (str){key, name.n + 1}, &number));
    if (number == before) {
        TRY(new_text(b, &b->text_of[number]));
    }
    return add_text(b, b->text_of[number], n);
}

static quire_err trace_build_new(trace_builder *b, int32_t n) {
    int32_t text;
    TRY(new_text(b, &text));
    return add_text(b, text, n);
}

static quire_err trace_build_token(trace_builder *b, int32_t id) {
    TRY(trace_build_count(b, 1));
    return add_run(b, id, 1);
}

static quire_err trace_build_end(trace_builder *b) {
    if (b->now.n_prompt == 0) {
        return QUIRE_INVALID;
    }
    TRY(b->n_requests == INT32_MAX
            ? QUIRE_TOO_LARGE
            : mem_grow(&b->requests, &b->cap_requests, (size_t)b->n_requests + 1, sizeof *b->requests));
    b->requests[b->n_requests++] = b->now;
    return QUIRE_OK;
}

/* Adds a whole request that shares no tokens. */
static quire_err trace_build_plain(trace_builder *b, int64_t arrival_us, int32_t n_prompt, int32_t n_output) {
    TRY(trace_build_start(b, arrival_us, str_of("")));
    TRY(trace_build_new(b, n_prompt));
    b->in_answer = true;
    TRY(trace_build_new(b, n_output));
    return trace_build_end(b);
}

/* By arrival, then by position in the file, which is the order of their runs. */
static int by_arrival(const void *a, const void *b) {
    const trace_request *x = a, *y = b;
    if (x->arrival_us != y->arrival_us) {
        return x->arrival_us < y->arrival_us ? -1 : 1;
    }
    return (x->first_run > y->first_run) - (x->first_run < y->first_run);
}

/* Adds a request to the trace's sums. */
static void trace_add(trace *t, const trace_request *r) {
    t->n_prompt_tokens += r->n_prompt;
    t->n_output_tokens += r->n_output;
    t->longest = r->n_prompt + r->n_output > t->longest ? r->n_prompt + r->n_output : t->longest;
}

static quire_err trace_build_finish(trace_builder *b, trace *out) {
    int64_t n_ids = 0;
    for (int32_t text = 0; text < b->n_texts; text++) {
        int64_t n = b->lengths[text];
        b->lengths[text] = (int32_t)(INT32_MIN + n_ids); /* from here on, the first id of the text */
        n_ids += n;
        if (n_ids > MAX_TEXT_TOKENS) {
            return QUIRE_TOO_LARGE;
        }
    }
    for (size_t i = 0; i < b->n_runs; i++) {
        if (b->runs[i].first < 0) {
            b->runs[i].first = b->lengths[-1 - b->runs[i].first];
        }
    }
    trace t = {
        .requests = b->requests, .runs = b->runs, .n_requests = b->n_requests, .n_tenants = b->tenants.n};
    for (int32_t i = 0; i < t.n_requests; i++) {
        trace_add(&t, &t.requests[i]);
    }
    if (t.n_requests > 0) {
        qsort(t.requests, (size_t)t.n_requests, sizeof *t.requests, by_arrival);
    }
    b->requests = NULL;
    b->runs = NULL;
    trace_build_deinit(b);
    *out = t;
    return QUIRE_OK;
}

/* ---- operations on traces ---- */

void trace_deinit(trace *t) {
    mem_free(t->requests);
    mem_free(t->runs);
    *t = (trace){0};
}

/* Shortens the runs of one request. The prompt's come first, and no run spans prompt and
 * answer. */
static void shrink_request(trace *t, trace_request *r, int32_t by) {
    int32_t n_prompt = r->n_prompt, seen = 0;
    r->n_prompt = r->n_output = 0;
    for (int32_t i = 0; i < r->n_runs; i++) {
        trace_run *run = &t->runs[r->first_run + i];
        bool in_prompt = seen < n_prompt;
        seen += run->n;
        run->n = (run->n + by - 1) / by;
        *(in_prompt ? &r->n_prompt : &r->n_output) += run->n;
    }
}

void trace_shrink(trace *t, int32_t by) {
    t->n_prompt_tokens = t->n_output_tokens = t->longest = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        shrink_request(t, &t->requests[i], by);
        trace_add(t, &t->requests[i]);
    }
}

void trace_tokens(const trace *t, const trace_request *r, int32_t *out) {
    const trace_run *runs = t->runs + r->first_run;
    for (int32_t i = 0; i < r->n_runs; i++) {
        for (int32_t j = 0; j < runs[i].n; j++) {
            *out++ = runs[i].first + j;
        }
    }
}

int32_t trace_token_of(int32_t id, int32_t n_vocab) {
    uint64_t z = (uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u;
    z ^= z >> 32;
    return (int32_t)(z * 0xd6e8feb86659fd93u >> 33) % n_vocab;
}

/* JSON lines of traces: Mooncake's format and Quire's own. */

#define MAX_US 1e18 /* largest arrival: over 30,000 years, and far from overflow */

typedef struct reader {
    trace_builder *b;
    json_value *root;
    const char *where;
    quire_error *err;
} reader;

static quire_err trace_read_fault(const reader *r, const char *key, const char *must) {
    return err_set(r->err, QUIRE_BAD_FILE, -1, "%s: %s must be %s; repair that line", r->where, key, must);
}

/* Sets the error for what the builder refuses. */
static quire_err refuse(const reader *r, quire_err e, const char *key) {
    if (e == QUIRE_TOO_LARGE) {
        return err_set(r->err, e, -1, "%s: %s holds more than %s tokens, or a trace more than 2^31 texts",
                       r->where, key, show_count(TRACE_MAX_TOKENS).text);
    }
    return err_set(r->err, e, -1, "%s: %s: %s", r->where, key, quire_err_text(e));
}

/* Reads an integer from minimum to INT32_MAX. */
static bool get_count(json_value *v, int32_t minimum, int32_t *out) {
    int64_t n = json_is(v, JSON_KIND_INT) ? json_int64(v) : -1;
    if (n < minimum || n > INT32_MAX) {
        return false;
    }
    *out = (int32_t)n;
    return true;
}

/* Reads the member at key in units of unit_us; absent: 0. */
static quire_err get_time(const reader *r, const char *key, double unit_us, int64_t *out) {
    json_value *v = json_get(r->root, key);
    bool number = v == NULL || json_is(v, JSON_KIND_INT) || json_is(v, JSON_KIND_REAL);
    double us = number && v != NULL ? json_double(v) * unit_us : 0;
    if (!number || !(us >= 0 && us <= MAX_US)) {
        return trace_read_fault(r, key, "a time from 0 on");
    }
    *out = llround(us);
    return QUIRE_OK;
}

/* ---- Mooncake ---- */

static quire_err add_block(const reader *r, json_value *id, int32_t n) {
    int64_t v = json_is(id, JSON_KIND_INT) ? json_int64(id) : -1;
    if (v < 0 || v == INT64_MAX) { /* json-c reads larger numbers as the largest */
        return trace_read_fault(r, "hash_ids", "whole numbers from 0 to 2^63 - 2");
    }
    return refuse(r, trace_build_text(r->b, TEXT_HASH, (str){(const char *)&v, sizeof v}, n), "input_length");
}

static quire_err read_mooncake(const reader *r, json_value *ids) {
    int64_t arrival_us;
    int32_t n_prompt, n_output;
    TRY(get_time(r, "timestamp", 1e3, &arrival_us));
    if (!get_count(json_get(r->root, "input_length"), 1, &n_prompt)) {
        return trace_read_fault(r, "input_length", "a whole number of at least 1");
    }
    if (!get_count(json_get(r->root, "output_length"), 0, &n_output)) {
        return trace_read_fault(r, "output_length", "a whole number from 0 on");
    }
    size_t n_ids = json_length(ids), wanted = (size_t)(n_prompt - 1) / TRACE_BLOCK_TOKENS + 1;
    if (n_ids != wanted) {
        return err_set(
            r->err, QUIRE_BAD_FILE, -1,
            "%s: %zu hash_ids for an input_length of %s; there must be one for each %d tokens: %zu", r->where,
            n_ids, show_count((uint64_t)n_prompt).text, (int)TRACE_BLOCK_TOKENS, wanted);
    }
    TRY(refuse(r, trace_build_start(r->b, arrival_us, str_of("")), "the line"));
    for (size_t i = 0; i < n_ids; i++) {
        int32_t rest = n_prompt - (int32_t)i * TRACE_BLOCK_TOKENS;
        TRY(add_block(r, json_at(ids, i), rest < TRACE_BLOCK_TOKENS ? rest : TRACE_BLOCK_TOKENS));
    }
    r->b->in_answer = true;
    TRY(refuse(r, trace_build_new(r->b, n_output), "output_length"));
    return refuse(r, trace_build_end(r->b), "the line");
}

/* ---- own ---- */

static const char PARTS[] = "a number of tokens, or a list of [\"name\", n] and token ids from 0 on";

/* Reads a part of a prompt or answer: ["name", n] or a token id. */
static quire_err trace_read_add_part(const reader *r, json_value *part, const char *key) {
    int32_t n;
    if (get_count(part, 0, &n)) {
        return refuse(r, trace_build_token(r->b, n), key);
    }
    bool pair = json_is(part, JSON_KIND_ARRAY) && json_length(part) == 2;
    json_value *name = pair ? json_at(part, 0) : NULL;
    if (!json_is(name, JSON_KIND_TEXT) || !get_count(json_at(part, 1), 0, &n)) {
        return trace_read_fault(r, key, PARTS);
    }
    str text = {json_str(name).p, json_str(name).n};
    if (text.n > 254) {
        return trace_read_fault(r, key, "made of names of at most 254 bytes");
    }
    return refuse(r, trace_build_text(r->b, TEXT_NAME, text, n), key);
}

static quire_err add_parts(const reader *r, const char *key) {
    json_value *v = json_get(r->root, key);
    int32_t n;
    if (get_count(v, 0, &n)) {
        return refuse(r, trace_build_new(r->b, n), key);
    }
    if (!json_is(v, JSON_KIND_ARRAY)) {
        return trace_read_fault(r, key, PARTS);
    }
    for (size_t i = 0; i < json_length(v); i++) {
        TRY(trace_read_add_part(r, json_at(v, i), key));
    }
    return QUIRE_OK;
}

static quire_err read_own(const reader *r) {
    int64_t arrival_us;
    TRY(get_time(r, "t", 1e6, &arrival_us));
    json_value *tenant = json_get(r->root, "tenant");
    if (tenant != NULL && !json_is(tenant, JSON_KIND_TEXT)) {
        return trace_read_fault(r, "tenant", "a string");
    }
    str name = {tenant != NULL ? json_str(tenant).p : "", tenant != NULL ? json_str(tenant).n : 0};
    TRY(refuse(r, trace_build_start(r->b, arrival_us, name), "the line"));
    TRY(add_parts(r, "prompt"));
    r->b->in_answer = true;
    if (json_get(r->root, "output") != NULL) {
        TRY(add_parts(r, "output"));
    }
    quire_err e = trace_build_end(r->b);
    return e == QUIRE_INVALID ? trace_read_fault(r, "prompt", "of at least one token")
                              : refuse(r, e, "the line");
}

static quire_err trace_json_line(trace_builder *b, str line, const char *where, quire_error *err) {
    json_doc doc = {0};
    TRY(json_doc_parse(&doc, line, JSON_NAMES_UNIQUE, where, err));
    reader r = {.b = b, .root = doc.root, .where = where, .err = err};
    json_value *ids = json_get(doc.root, "hash_ids");
    quire_err e = QUIRE_OK;
    if (ids == NULL) {
        e = read_own(&r);
    } else if (json_is(ids, JSON_KIND_ARRAY)) {
        e = read_mooncake(&r, ids);
    } else {
        e = trace_read_fault(&r, "hash_ids", "a list");
    }
    json_doc_deinit(&doc);
    return e;
}

/* Lines of Azure's traces: a time and two lengths. */

/* Parses a number of at most max_digits digits at the start of *s and removes it. */
static bool take_number(str *s, size_t max_digits, int64_t *out) {
    size_t n = 0;
    int64_t v = 0;
    for (; n < s->n && n < max_digits && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
        v = 10 * v + (s->p[n] - '0');
    }
    *s = (str){s->p + n, s->n - n};
    *out = v;
    return n > 0;
}

static bool take_char(str *s, char c) {
    bool there = s->n > 0 && s->p[0] == c;
    *s = there ? (str){s->p + 1, s->n - 1} : *s;
    return there;
}

/* Days since 1970-01-01 in the Gregorian calendar. */
static int64_t day_number(int64_t year, int64_t month, int64_t day) {
    static const int16_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t y = month > 2 ? year : year - 1; /* leap days up to the last February */
    return 365 * (year - 1970) + (y / 4 - y / 100 + y / 400) - (1969 / 4 - 1969 / 100 + 1969 / 400) +
           before[month - 1] + day - 1;
}

/* Parses "2023-11-16 18:17:03.9799600" to microseconds since 1970. */
static bool take_time(str *s, int64_t *us) {
    int64_t part[6];
    for (int i = 0; i < 6; i++) {
        static const char after[] = "-- ::";
        if (!take_number(s, i == 0 ? 4 : 2, &part[i]) || (i < 5 && !take_char(s, after[i]))) {
            return false;
        }
    }
    static const int64_t least[] = {1970, 1, 1, 0, 0, 0}, most[] = {9999, 12, 31, 23, 59, 60};
    for (int i = 0; i < 6; i++) {
        if (part[i] < least[i] || part[i] > most[i]) {
            return false;
        }
    }
    *us = (((day_number(part[0], part[1], part[2]) * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * 1000000;
    if (take_char(s, '.')) {
        size_t before = s->n;
        int64_t fraction;
        if (!take_number(s, 12, &fraction)) {
            return false;
        }
        for (size_t digits = before - s->n; digits != 6; digits += digits < 6 ? 1 : (size_t)-1) {
            fraction = digits < 6 ? fraction * 10 : fraction / 10;
        }
        *us += fraction;
    }
    return true;
}

static quire_err trace_csv_line(trace_builder *b, str line, const char *where, quire_error *err) {
    int64_t us, n_prompt, n_output;
    bool good = take_time(&line, &us) && take_char(&line, ',') && take_number(&line, 10, &n_prompt) &&
                take_char(&line, ',') && take_number(&line, 10, &n_output) && line.n == 0;
    if (!good || n_prompt < 1) {
        return err_set(err, QUIRE_BAD_FILE, -1,
                       "%s: must be a time, a number of prompt tokens from 1 on and one of answer tokens, as "
                       "in 2023-11-16 18:17:03.97,4808,10; repair that line",
                       where);
    }
    if (n_prompt > TRACE_MAX_TOKENS || n_output > TRACE_MAX_TOKENS) {
        return err_set(err, QUIRE_TOO_LARGE, -1, "%s: more than %s tokens", where,
                       show_count(TRACE_MAX_TOKENS).text);
    }
    quire_err e = trace_build_plain(b, us, (int32_t)n_prompt, (int32_t)n_output);
    return err_set(err, e, -1, "%s: %s", where, quire_err_text(e));
}

#define MAX_FILE_BYTES ((size_t)1 << 32)

static bool is_blank(str line) {
    size_t n = 0;
    while (n < line.n && (line.p[n] == ' ' || line.p[n] == '\t')) {
        n++;
    }
    return n == line.n;
}

/* Passes all lines to the builder; the first line that is not blank determines the
 * format. */
static quire_err read_lines(trace_builder *b, str text, const char *name, int32_t limit, quire_error *err) {
    bool csv = false, known = false;
    for (int64_t number = 1; text.n > 0 && (limit == 0 || b->n_requests < limit); number++) {
        char where[256];
        str line = figures_next_line(&text);
        if (is_blank(line)) {
            continue;
        }
        snprintf(where, sizeof where, "%.200s, line %lld", name, (long long)number);
        if (!known) {
            known = true;
            csv = str_is(line, "TIMESTAMP,ContextTokens,GeneratedTokens");
            if (!csv && line.p[0] != '{') {
                return err_set(err, QUIRE_BAD_FILE, -1,
                               "%s: begins neither a JSON object nor Azure's columns; `quire sim --help` "
                               "names the formats",
                               where);
            }
            if (csv) {
                continue;
            }
        }
        TRY(csv ? trace_csv_line(b, line, where, err) : trace_json_line(b, line, where, err));
    }
    return b->n_requests > 0 ? QUIRE_OK : err_set(err, QUIRE_BAD_FILE, -1, "%.200s: holds no requests", name);
}

quire_err trace_parse(str text, const char *name, int32_t limit, trace *out, quire_error *err) {
    trace_builder b = {0};
    quire_err e = read_lines(&b, text, name, limit, err);
    if (e == QUIRE_OK) {
        e = trace_build_finish(&b, out);
        if (e != QUIRE_OK) {
            err_set(err, e, -1, "%.200s: holds more than 2^31 different tokens; read less of it with --limit",
                    name);
        }
    }
    trace_build_deinit(&b);
    return e;
}

quire_err trace_read(const char *path, int32_t limit, trace *out, quire_error *err) {
    file_map map;
    TRY(file_map_open(path, MAX_FILE_BYTES, &map, err));
    quire_err e = trace_parse(file_map_text(&map), path, limit, out, err);
    file_map_close(&map);
    return e;
}

quire_err trace_of_lengths(const int32_t *prompts, const int32_t *outputs, int32_t n, trace *out,
                           quire_error *err) {
    trace_builder b = {0};
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; e == QUIRE_OK && i < n; i++) {
        e = trace_build_plain(&b, 0, prompts[i], outputs[i]);
    }
    TRY_DONE(e, trace_build_finish(&b, out));
done:
    trace_build_deinit(&b);
    return err_set(err, e, -1, "%d requests: %s", (int)n, quire_err_text(e));
}

/* Parameters of a log-normal distribution; its mean is exp(mu + sigma^2 / 2). */
typedef struct lengths {
    const char *name;
    double prompt_mean, prompt_sigma, output_mean, output_sigma;
} lengths;

static const lengths known[] = {
    {"sharegpt", 161.31, 1.1, 337.99, 0.9},
    {"alpaca", 19.31, 0.6, 58.45, 0.9},
};

enum { N_KNOWN = (int)(sizeof known / sizeof *known), MAX_DRAWS = 1000 };

const char arrivals_names[] = "sharegpt, alpaca";

/* Uniform in (0, 1). */
static double uniform(uint64_t *state) {
    return ((double)(rng_next(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state) {
    double radius = sqrt(-2 * log(uniform(state))), turn = 6.283185307179586 * uniform(state);
    return radius * cos(turn);
}

static int32_t draw_length(double mean, double sigma, uint64_t *state) {
    double v = exp(log(mean) - sigma * sigma / 2 + sigma * normal(state));
    return v < 1 ? 1 : v > 1e6 ? 1000000 : (int32_t)lround(v);
}

static quire_err arrivals_add_request(trace_builder *b, const lengths *l, int32_t most, double at_s,
                                      uint64_t *state) {
    int32_t n_prompt = 1, n_output = most - 1;
    for (int32_t i = 0; i < MAX_DRAWS; i++) {
        int32_t p = draw_length(l->prompt_mean, l->prompt_sigma, state),
                a = draw_length(l->output_mean, l->output_sigma, state);
        if (p + a <= most) {
            n_prompt = p;
            n_output = a;
            break;
        }
    }
    return trace_build_plain(b, (int64_t)(at_s * 1e6), n_prompt, n_output);
}

quire_err arrivals_make(const arrivals_options *o, trace *out, quire_error *err) {
    const lengths *l = NULL;
    for (int32_t i = 0; i < N_KNOWN; i++) {
        l = strcmp(known[i].name, o->lengths) == 0 ? &known[i] : l;
    }
    if (l == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--lengths %s: must be one of %s", o->lengths, arrivals_names);
    }
    if (!(o->rate > 0) || o->n < 1 || o->most < 2) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d requests of at most %d tokens at %g a second: all must be positive", (int)o->n,
                       (int)o->most, o->rate);
    }
    trace_builder b = {0};
    uint64_t state = o->seed;
    double at_s = 0;
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; e == QUIRE_OK && i < o->n; i++) {
        e = arrivals_add_request(&b, l, o->most, at_s, &state);
        at_s += -log(uniform(&state)) / o->rate;
    }
    TRY_DONE(e, trace_build_finish(&b, out));
done:
    trace_build_deinit(&b);
    return err_set(err, e, -1, "%d requests: %s", (int)o->n, quire_err_text(e));
}

void arrivals_space(trace *t, double rate, uint64_t seed) {
    double at_s = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        t->requests[i].arrival_us = (int64_t)(at_s * 1e6);
        at_s += -log(uniform(&seed)) / rate;
    }
}

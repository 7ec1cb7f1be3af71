/* Names of members that a schema does not list: none repeats in its object, also in
 * masks, and none leads into a dead end. */
#include "schema_case.h"

#include "base/rng.h"
#include "base/str.h"
#include "base/turn.h"
#include "base/utf8.h"
#include "grammar/grammar_parts.h"
#include "json/json.h"

#define ANY_ORDER (&(grammar_options){.order = GRAMMAR_ORDER_ANY})

TEST(no_name_comes_twice_in_an_object) {
    static const schema_case cases[] = {
        {"{\"type\":\"object\"}",
         {"{\"a\":1,\"b\":2}", "{\"a\":{\"a\":1},\"b\":{\"a\":2}}", "{\"a\":[{\"b\":1},{\"b\":2}]}",
          "{\"ab\":1,\"a\":2,\"abc\":3,\"\":4}"},
         {"{\"a\":1,\"a\":2}", "{\"\":1,\"\":2}", "{\"b\":1,\"a\":{\"x\":1},\"b\":2}",
          "{\"a\":{\"x\":1,\"x\":1}}", "{\"a\":1,\"b\":[[{\"c\":1}]],\"a\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1}"},
         {"{\"a\":1,\"a\":2}", "{\"a\":1,\"b\":2,\"b\":3}", "{\"b\":1,\"\\u0062\":2}"}},
        {"{}", {"[{\"a\":1},{\"a\":1}]"}, {"[{\"a\":1,\"a\":1}]"}},
        {"{\"type\":\"object\"}",
         {"{\"\xC3\xA9\":1,\"\xC3\xA8\":2}", "{\"\\ud83d\\ude00\":1,\"\\ud83d\\ude01\":2}",
          "{\"\\n\":1,\"n\":2,\"\\\\n\":3}"},
         {"{\"\xC3\xA9\":1,\"\\u00e9\":2}", "{\"\xF0\x9F\x98\x80\":1,\"\\ud83d\\uDE00\":2}",
          "{\"\\\"\":1,\"\\u0022\":2}", "{\"a/\":1,\"a\\/\":2}", "{\"\\u0041b\":1,\"Ab\":2}"}},
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":true}},{\"type\":\"object\",\"properties\":{"
         "\"b\":true}}]}",
         {"{\"a\":1,\"b\":2,\"c\":3}"},
         {"{\"a\":1,\"a\":2}", "{\"b\":1,\"b\":2}", "{\"b\":1,\"a\":2,\"b\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^[0-9]{4}-[0-9]{2}$\":{\"type\":\"integer\"}},"
         "\"additionalProperties\":false}",
         {"{\"2025-01\":1,\"2025-02\":2}"},
         {"{\"2025-01\":1,\"2025-01\":2}", "{\"2025-01\":1,\"2025-02\":2,\"2025-01\":3}"}},
        {"{\"type\":\"object\",\"minProperties\":2,\"additionalProperties\":true}",
         {"{\"a\":1,\"b\":2}"},
         {"{\"a\":1,\"a\":2,\"b\":3}", "{\"a\":1,\"b\":2,\"b\":3}",
          "{\"a\":1,\"b\":1,\"c\":1,\"\\u0061\":1}"}},
    };
    CHECK_ALL(cases, NULL);
    CHECK_ALL(cases, ANY_ORDER);
}

/* What has been named before is a thing of one text: forks go their own ways, and what is
 * rolled back was never there. */
TEST(forks_know_their_own_names) {
    grammar_case c = case_open(GRAMMAR_JSON_OBJECT, "", NULL);
    grammar_state s = grammar_start(c.r), a, b;
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("{\"x\":1,\""), NULL), QUIRE_OK);
    a = b = s;
    assert_int_equal(grammar_accept_bytes(c.r, &a, str_of("a\":1,\""), NULL), QUIRE_OK);
    assert_int_equal(grammar_accept_bytes(c.r, &b, str_of("b\":1,\""), NULL), QUIRE_OK);
    grammar_state at = a;
    assert_int_equal(grammar_accept_bytes(c.r, &at, str_of("a\""), NULL), QUIRE_INVALID);
    at = a;
    assert_int_equal(grammar_accept_bytes(c.r, &at, str_of("b\":2}"), NULL), QUIRE_OK);
    assert_true(grammar_is_over(c.r, at));
    at = b;
    assert_int_equal(grammar_accept_bytes(c.r, &at, str_of("b\""), NULL), QUIRE_INVALID);
    at = b;
    assert_int_equal(grammar_accept_bytes(c.r, &at, str_of("a\":2,\""), NULL), QUIRE_OK);
    assert_int_equal(grammar_accept_bytes(c.r, &at, str_of("x\""), NULL), QUIRE_INVALID);
    grammar_state again = s; /* the same names are the same state, whatever their order */
    assert_int_equal(grammar_accept_bytes(c.r, &again, str_of("a\":1,\""), NULL), QUIRE_OK);
    assert_int_equal(again.id, a.id);
    assert_int_equal(grammar_accept_bytes(c.r, &again, str_of("b\":1,\""), NULL), QUIRE_OK);
    assert_int_equal(grammar_accept_bytes(c.r, &b, str_of("a\":1,\""), NULL), QUIRE_OK);
    assert_int_equal(again.id, b.id);
    case_close(&c);
}

/* ---- against texts that are looked at by themselves ---- */

#define MOST_NAMES 8
#define TEXT_BYTES 2048
#ifndef SEEDS
#define SEEDS 200
#endif

/* Objects whose members are 1 or an object alike, and their names one of a few, or any
 * that begins with x. */
typedef struct world {
    const char *names[MOST_NAMES + 1];
    uint32_t n, min, max;
    bool has_x, nests, has_listed; /* the last name stands in `properties` */
} world;

/* Whether printable ASCII of names[i] is only written as itself: names that are listed,
 * or told apart like these. */
static bool is_plain(const world *w, uint32_t i) {
    return (w->has_listed && i == w->n - 1) || (w->min > 1 && !w->has_x);
}

/* An open object of a text. */
typedef struct opened {
    char taken[64][64];
    uint32_t n;
} opened;

static bool is_taken(const opened *o, const char *name) {
    for (uint32_t i = 0; i < o->n; i++) {
        if (strcmp(o->taken[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static uint32_t n_left(const world *w, const opened *o) {
    uint32_t n = w->has_x ? 1000 : 0;
    for (uint32_t i = 0; i < w->n; i++) {
        n += !is_taken(o, w->names[i]);
    }
    return n;
}

/* Whether `part`, of n bytes, begins a spelling of the character at `name`. */
static bool begins_char(const char *part, size_t n, const char *name, size_t len, bool plain) {
    char hex[8];
    uint32_t c = (uint8_t)name[0] < 0x80
                     ? (uint8_t)name[0]
                     : (((uint32_t)(uint8_t)name[0] & 0x1F) << 6) | ((uint8_t)name[1] & 0x3F);
    (void)snprintf(hex, sizeof hex, "\\u%04x", c);
    bool is_hex = n <= 6 && !(plain && c < 0x80), must = name[0] == '"' || name[0] == '\\';
    for (size_t i = 0; i < n && is_hex; i++) {
        char low = i > 1 && part[i] >= 'A' && part[i] <= 'F' ? (char)(part[i] + 32) : part[i];
        is_hex = low == hex[i];
    }
    bool has_short = must || (name[0] == '/' && !plain);
    bool is_short = has_short && part[0] == '\\' && (n == 1 || (n == 2 && part[1] == name[0]));
    return is_hex || is_short || (!must && n <= len && memcmp(part, name, n) == 0);
}

static size_t spelt_length(const char *text, size_t n) {
    return (uint8_t)text[0] >= 0xC0 ? 2 : text[0] != '\\' ? 1 : n > 1 && text[1] == 'u' ? 6 : 2;
}

/* Whether text, of n bytes, begins a spelling of a name; *is_all: it is one. */
static bool spells(const char *text, size_t n, const char *name, bool plain, bool *is_all) {
    *is_all = false;
    while (n > 0) {
        size_t char_len = (uint8_t)name[0] >= 0xC0 ? 2 : 1, len = spelt_length(text, n),
               there = len < n ? len : n;
        if (*name == 0 || !begins_char(text, there, name, char_len, plain)) {
            return false;
        }
        if (there < len) {
            return true;
        }
        text += len;
        n -= len;
        name += char_len;
    }
    *is_all = *name == 0;
    return true;
}

/* Whether n bytes are a character's beginning or all of it. */
static bool is_well_spelt(const char *p, size_t n) {
    bool is_well = (uint8_t)p[0] != 0xA9 && (uint8_t)p[0] != 0xA8;
    if ((uint8_t)p[0] >= 0xC0) {
        is_well = n == 1 || (uint8_t)p[1] == 0xA9 || (uint8_t)p[1] == 0xA8;
    }
    if (p[0] == '\\' && n > 1) {
        is_well = strchr("\"\\/bfnrtu", p[1]) != NULL;
        for (size_t i = 2; i < n; i++) {
            is_well = is_well && hex_digit(p[i]) >= 0;
        }
    }
    return is_well;
}

/* Reads what there is of a name: whole characters to `out`; *rest: of the last one, where
 * it is unfinished. False: none is spelt so. */
static bool read_name(const char *text, size_t n, char *out, const char **rest, size_t *n_rest) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t at = 0;
    *n_rest = 0;
    while (at < n) {
        size_t len = spelt_length(text + at, n - at);
        size_t there = len < n - at ? len : n - at;
        if (!is_well_spelt(text + at, there)) {
            return false;
        }
        if (there < len) {
            *rest = text + at;
            *n_rest = there;
            break;
        }
        if (text[at] != '\\') {
            memcpy(out, text + at, len);
            out += len;
        } else if (len == 2) {
            *out++ = meanings[strchr(letters, text[at + 1]) - letters];
        } else {
            char digits[5] = {text[at + 2], text[at + 3], text[at + 4], text[at + 5], 0};
            uint32_t c = (uint32_t)strtoul(digits, NULL, 16);
            out += utf8_encode(c == 0 ? 1 : (int32_t)c, out); /* no name of the tests has a 0 */
        }
        at += len;
    }
    *out = 0;
    return true;
}

/* Whether what there is of a name may become one that has not been; `whole`: whether it
 * is one, which goes to `name`. */
static bool may_be(const world *w, const opened *o, const char *text, size_t n, bool whole, char *name) {
    const char *rest = "";
    size_t n_rest;
    bool is_all;
    for (uint32_t i = 0; i < w->n; i++) {
        if (!is_taken(o, w->names[i]) && spells(text, n, w->names[i], is_plain(w, i), &is_all) &&
            (is_all || !whole)) {
            strcpy(name, w->names[i]);
            return true;
        }
    }
    if (!w->has_x || !read_name(text, n, name, &rest, &n_rest)) {
        return false;
    }
    if (whole) {
        return name[0] == 'x' && n_rest == 0 && !is_taken(o, name);
    }
    return name[0] == 'x' || (name[0] == 0 && (n_rest == 0 || begins_char(rest, n_rest, "x", 1, false)));
}

typedef enum verdict { NO, YES, PART } verdict; /* no text begins so; it is one; it may become one */

/* Reads an object from *at on; stops at the end of the text. */
static verdict read_object(const world *w, const char *text, size_t n, size_t *at, int depth) {
    opened o = {.n = 0};
    if (text[(*at)++] != '{') {
        return NO;
    }
    for (;;) {
        if (*at == n) {
            return PART;
        }
        if (text[*at] == '}' && o.n >= w->min && (o.n == 0 || text[*at - 1] != ',')) {
            ++*at;
            return YES;
        }
        if (o.n > 0 && text[*at - 1] != ',') {
            if (text[*at] != ',' || o.n >= w->max || n_left(w, &o) == 0) {
                return NO;
            }
            ++*at;
            continue;
        }
        if (text[*at] != '"' || o.n >= w->max || n_left(w, &o) == 0) {
            return NO;
        }
        size_t from = ++*at;
        while (*at < n && text[*at] != '"') {
            *at += text[*at] == '\\' && *at + 1 < n ? 2 : 1;
        }
        char name[256];
        if (*at >= n) {
            return may_be(w, &o, text + from, n - from, false, name) ? PART : NO;
        }
        if (o.n == 64 || !may_be(w, &o, text + from, *at - from, true, name)) {
            return NO;
        }
        assert_true(strlen(name) < sizeof o.taken[0]);
        strcpy(o.taken[o.n++], name);
        if (++*at == n) {
            return PART;
        }
        if (text[(*at)++] != ':') {
            return NO;
        }
        if (*at == n) {
            return PART;
        }
        if (w->nests && text[*at] == '{') {
            verdict v = read_object(w, text, n, at, depth + 1);
            if (v != YES) {
                return v;
            }
        } else if (text[(*at)++] != '1') {
            return NO;
        }
    }
}

static verdict judge(const world *w, const char *text) {
    size_t at = 0, n = strlen(text);
    verdict v = n == 0 ? PART : read_object(w, text, n, &at, 0);
    return v == YES && at < n ? NO : v;
}

static uint64_t below(uint64_t *random, uint64_t n) {
    return rng_next(random) % n;
}

static const char *const name_texts[] = {"a",        "b",         "ab", "ba", "aab", "",   "\xC3\xA9",
                                         "\xC3\xA8", "a\xC3\xA9", "\"", "/",  "a\"", "bb", "c"};

static world random_world(uint64_t *random) {
    world w = {.max = UINT32_MAX, .has_x = below(random, 3) == 0, .nests = below(random, 2) == 0};
    uint32_t n = 1 + (uint32_t)below(random, MOST_NAMES);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = name_texts[below(random, sizeof name_texts / sizeof *name_texts)];
        bool again = false;
        for (uint32_t k = 0; k < w.n; k++) {
            again = again || strcmp(w.names[k], name) == 0;
        }
        if (!again) {
            w.names[w.n++] = name;
        }
    }
    w.has_listed = below(random, 3) == 0;
    if (w.has_listed) {
        w.names[w.n++] = "p";
    }
    w.min = (uint32_t)below(random, w.n < 3 ? w.n + 1 : 4);
    w.max = below(random, 4) == 0 ? w.min + (uint32_t)below(random, w.n) : UINT32_MAX;
    return w;
}

static void write_schema(const world *w, char *out) {
    char *to = out;
    to += sprintf(to, "{\"$defs\":{\"o\":{\"type\":\"object\",\"minProperties\":%u,", w->min);
    to += w->max != UINT32_MAX ? sprintf(to, "\"maxProperties\":%u,", w->max) : 0;
    to += sprintf(to, "\"additionalProperties\":false,\"patternProperties\":{\"^(");
    for (uint32_t i = 0; i < w->n - w->has_listed; i++) {
        to += sprintf(to, "%s", i > 0 ? "|" : "");
        for (const char *p = w->names[i]; *p != 0; p++) {
            to += sprintf(to, *p == '"' || *p == '/' ? "\\%c" : "%c", *p);
        }
    }
    const char *value = w->nests ? "{\"anyOf\":[{\"const\":1},{\"$ref\":\"#/$defs/o\"}]}" : "{\"const\":1}";
    to += sprintf(to, ")$%s\":%s}", w->has_x ? "|^x" : "", value);
    to += w->has_listed ? sprintf(to, ",\"properties\":{\"p\":%s}", value) : 0;
    (void)sprintf(to, "}},\"$ref\":\"#/$defs/o\"}");
}

#define RANDOM_TOKENS 96
static const char *const always[] = {
    "{",    "}",    "\"",    ":",    ",",     "1",       "a",   "b",    "c",
    "x",    "\\",   "u",     "0",    "2",     "6",       "e",   "9",    "\xC3",
    "\xA9", "\xA8", "/",     "\":",  "\",\"", "\":1,\"", "{\"", "\"\"", "{\"\":1,\"\"",
    "00",   "e9\"", "\\u00", "\\\"", "E",     "8",       "2f",  "2F",   "3",
    "7",    "f",    "p",     ",\"",  "p\":1"};
enum { N_ALWAYS = sizeof always / sizeof *always };

/* A text that is near to one of w's. */
static size_t random_text(const world *w, uint64_t *random, char *out) {
    char *to = out;
    uint32_t n = 1 + (uint32_t)below(random, 4);
    to += sprintf(to, "{");
    for (uint32_t i = 0; i < n; i++) {
        to += sprintf(to, "%s\"%s\":1", i > 0 ? "," : "",
                      w->has_x && below(random, 3) == 0 ? "x" : w->names[below(random, w->n)]);
    }
    to += sprintf(to, "}");
    return (size_t)(to - out);
}

static void random_vocab(const world *w, uint64_t *random, char texts[RANDOM_TOKENS][16]) {
    for (int i = 0; i < RANDOM_TOKENS - 1; i++) {
        char text[256];
        if (i < N_ALWAYS) {
            strcpy(texts[i], always[i]);
            continue;
        }
        size_t n = random_text(w, random, text), from = below(random, n), len = 1 + below(random, 14);
        len = len < n - from ? len : n - from;
        memcpy(texts[i], text + from, len);
        texts[i][len] = 0;
    }
    strcpy(texts[RANDOM_TOKENS - 1], "</s>");
}

/* Each mask has the tokens after which some text without a name twice is left, and no
 * other. */
static void walk_world(const world *w, uint64_t *random, int64_t *n_masks) {
    char schema[1024], tokens[RANDOM_TOKENS][16];
    str texts[RANDOM_TOKENS];
    int32_t end = RANDOM_TOKENS - 1;
    grammar_vocab *v;
    write_schema(w, schema);
    random_vocab(w, random, tokens);
    for (int i = 0; i < RANDOM_TOKENS; i++) {
        texts[i] = str_of(tokens[i]);
    }
    assert_int_equal(grammar_vocab_open(texts, RANDOM_TOKENS, &end, 1, &v), QUIRE_OK);
    grammar_case c = case_open_over(
        v, GRAMMAR_SCHEMA, schema, w->min <= 1 && !w->has_listed && below(random, 2) == 0 ? NULL : ANY_ORDER);
    for (int round = 0; round < 6; round++) {
        grammar_state s = grammar_start(c.r);
        char text[TEXT_BYTES] = "";
        for (int step = 0; step < 60; step++) {
            uint64_t bits[2];
            int32_t allowed[RANDOM_TOKENS], n = 0, forced[4];
            assert_int_equal(grammar_mask(c.r, s, bits), QUIRE_OK);
            ++*n_masks;
            size_t len = strlen(text);
            for (int32_t t = 0; t < RANDOM_TOKENS - 1; t++) {
                strcpy(text + len, tokens[t]);
                bool want = judge(w, text) != NO, got = (bits[t / 64] >> (t % 64) & 1) != 0;
                text[len] = 0;
                if (got != want || got != grammar_allows(c.r, s, t)) {
                    fail_msg("%s: behind %s '%s' is %sin the mask, must %sbe, and is %staken", schema, text,
                             tokens[t], got ? "" : "not ", want ? "" : "not ",
                             grammar_allows(c.r, s, t) ? "" : "not ");
                }
                if (got) {
                    allowed[n++] = t;
                }
            }
            assert_int_equal((bits[end / 64] >> (end % 64) & 1) != 0, judge(w, text) == YES);
            if (n == 0 && judge(w, text) != YES) {
                fail_msg("%s: nothing may follow %s", schema, text);
            }
            if (n == 0) {
                break;
            }
            int32_t n_forced = grammar_forced(c.r, s, forced, 4);
            assert_true(n_forced == 0 || (n == 1 && forced[0] == allowed[0]));
            int32_t t = allowed[below(random, (uint64_t)n)];
            for (int tries = 0; tries < 2 && strchr("}", tokens[t][0]) != NULL; tries++) { /* long texts */
                t = allowed[below(random, (uint64_t)n)];
            }
            assert_int_equal(grammar_accept(c.r, &s, t), QUIRE_OK);
            strcat(text, tokens[t]);
        }
    }
    case_close(&c);
}

TEST(masks_have_the_tokens_that_leave_a_text_without_a_name_twice) {
    int64_t n_masks = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t random = seed;
        world w = random_world(&random);
        walk_world(&w, &random, &n_masks);
    }
    print_message("%lld masks\n", (long long)n_masks);
}

/* ---- the other syntaxes of arguments ---- */

static unsigned reads_string(const void *user, const json_value *schema) {
    (void)user;
    (void)schema;
    return GRAMMAR_READS_STRING;
}

typedef struct syntax_case {
    grammar_arguments arguments;
    const char *schema, *accepted[4], *rejected[4];
} syntax_case;

static const str never[] = {{"</v>", 4}};
#define TAGS                                                                                                 \
    .syntax = GRAMMAR_SYNTAX_TAGS, .before = {"<k>", 3}, .middle = {"</k><v>", 7}, .behind = {"</v>", 4},    \
    .never = never, .n_never = 1, .between = {"\n", 1}, .between_may_miss = true,                            \
    .reader = {.reads = reads_string}

static const char *const call_tokens[] = {
    "<k>",  "</k>", "<v>",   "</v>", "<k>a</k>", "</k><v>", "<",       "k",   "/",    ">",   "v",
    "a",    "b",    "ab",    "_",    "{",        "}",       ",",       ":",   "=",    "\"",  "'",
    ",a=",  "a=1",  ",a:",   "{a:",  "a:1",      "1",       "[",       "]",   ", ",   " ",   "''",
    "\"\"", "\\",   "u0061", "n",    "'a'",      "{'a':",   "\"a\":1", "{\"", "\":1", "<q>", "'a':1,",
    "x",    "None", "True",  "null", "</v><k>a", "\xC3",    "\xA9",    "</s>"};
enum { N_CALL_TOKENS = sizeof call_tokens / sizeof *call_tokens };

static grammar_case open_call(const syntax_case *k, json_value *schema) {
    str texts[N_CALL_TOKENS];
    int32_t end = N_CALL_TOKENS - 1;
    quire_error err = {0};
    grammar_case c = {0};
    grammar_arguments a = k->arguments;
    a.schema = schema;
    const grammar_part parts[] = {{.part = GRAMMAR_PART_ARGUMENTS, .arguments = &a},
                                  {.part = GRAMMAR_PART_TEXT, .text = str_of(";")}};
    const grammar_part all = {.part = GRAMMAR_PART_SEQUENCE, .parts = parts, .n_parts = 2};
    for (int i = 0; i < N_CALL_TOKENS; i++) {
        texts[i] = str_of(call_tokens[i]);
    }
    assert_int_equal(grammar_vocab_open(texts, N_CALL_TOKENS, &end, 1, &c.v), QUIRE_OK);
    if (grammar_compile_parts(&all, NULL, NULL, &c.g, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(grammar_run_open(c.g, c.v, 0, &c.r), QUIRE_OK);
    return c;
}

/* Every mask is what taking the tokens says, and something may always follow. */
static void walk_call(grammar_case *c, uint64_t *random) {
    grammar_state s = grammar_start(c->r);
    char text[TEXT_BYTES] = "";
    for (int step = 0; step < 60; step++) {
        uint64_t bits;
        int32_t allowed[N_CALL_TOKENS], n = 0;
        assert_int_equal(grammar_mask(c->r, s, &bits), QUIRE_OK);
        for (int32_t t = 0; t < N_CALL_TOKENS - 1; t++) {
            if ((bits >> t & 1) != grammar_allows(c->r, s, t)) {
                fail_msg("behind %s '%s' is %s", text, call_tokens[t],
                         (bits >> t & 1) != 0 ? "in the mask" : "not in the mask");
            }
            if ((bits >> t & 1) != 0) {
                allowed[n++] = t;
            }
        }
        if (n == 0) {
            break;
        }
        int32_t t = allowed[below(random, (uint64_t)n)];
        assert_int_equal(grammar_accept(c->r, &s, t), QUIRE_OK);
        strcat(text, call_tokens[t]);
    }
}

TEST(names_come_once_in_the_syntaxes_of_calls) {
    static const char any[] = "{\"type\":\"object\",\"additionalProperties\":true}";
    static const char nested[] = "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"object\"}},"
                                 "\"additionalProperties\":{\"const\":1}}";
    static const syntax_case cases[] = {
        {{TAGS},
         any,
         {"<k>a</k><v>1</v>;", "<k>a</k><v>1</v><k>b</k><v>2</v>;",
          "<k>a</k><v><k>a</k></v><k>aa</k><v>2</v>;"},
         {"<k>a</k><v>1</v><k>a</k><v>1</v>;", "<k>a</k><v>1</v><k>b</k><v></v><k>a</k><v>1</v>;"}},
        {{TAGS, .string_middle = {"</k><v>", 7}},
         nested,
         {"<k>x</k><v>{\"a\":1,\"b\":1}</v><k>a</k><v>1</v>;"},
         {"<k>x</k><v>{\"a\":1,\"a\":1}</v>;", "<k>x</k><v>{\"a\":1,\"\\u0061\":1}</v>;",
          "<k>x</k><v>{}</v><k>x</k><v>{}</v>;", "<k>a</k><v>1</v><k>a</k><v>1</v>;"}},
        {{.syntax = GRAMMAR_SYNTAX_PYTHON},
         nested,
         {"a=1,b=1;", "x={'a':1,\"b\":{'a':1}},a=1;"},
         {"a=1,a=1;", "x={'a':1,\"a\":1};", "x={'a\\'':1,\"a'\":1};", "x={'b':{'a':1,'a':1}};"}},
        {{.syntax = GRAMMAR_SYNTAX_GEMMA, .quote = {"<q>", 3}},
         nested,
         {"{a:1,b:1};", "{x:{a:1,b:{a:1}},a:1};"},
         {"{a:1,a:1};", "{x:{a:1,a:1}};", "{x:{b:{a:1,a:1}}};"}},
        {{.syntax = GRAMMAR_SYNTAX_JSON},
         nested,
         {"{\"a\":1,\"b\":1};"},
         {"{\"a\":1,\"a\":1};", "{\"x\":{\"a\":1,\"\\u0061\":1}};"}},
    };
    uint64_t random = 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_value *schema = json_document(str_of(cases[i].schema));
        grammar_case c = open_call(&cases[i], schema);
        for (int k = 0; k < 4 && cases[i].accepted[k] != NULL; k++) {
            case_accepts(&c, cases[i].accepted[k]);
        }
        for (int k = 0; k < 4 && cases[i].rejected[k] != NULL; k++) {
            bool final;
            (void)case_take(&c, cases[i].rejected[k], &final);
            if (final) {
                fail_msg("%s is accepted", cases[i].rejected[k]);
            }
        }
        for (int round = 0; round < 40; round++) {
            walk_call(&c, &random);
        }
        case_close(&c);
        json_drop(schema);
    }
}

/* ---- what it takes ---- */

/* A vocabulary of tens of thousands of tokens: one to three letters, some with quotes
 * around. */
static grammar_vocab *large_vocab(int32_t *n_tokens) {
    enum { LETTERS = 32, N = 2 * (LETTERS + LETTERS * LETTERS + LETTERS * LETTERS * LETTERS) + 1 };
    static const char letters[LETTERS + 1] = "abcdefghijklmnopqrstuvwxyz012345";
    static const char *const others[] = {"{", "}", "\"", "\":1,\"", "\":", ",",    "6",   "7",
                                         "8", "9", " ",  "1",       "\\",  "\"\"", "</s>"};
    char(*tokens)[8] = calloc(N + 20, sizeof *tokens);
    str *texts = calloc(N + 20, sizeof *texts);
    int32_t n = 0;
    for (uint32_t i = 0; i < LETTERS * LETTERS * LETTERS; i++) {
        const char word[4] = {letters[i % LETTERS], letters[i / LETTERS % LETTERS],
                              letters[i / LETTERS / LETTERS], 0};
        (void)snprintf(tokens[n++], 8, i % 3 == 0 ? "%s\"" : i % 3 == 1 ? "\"%s" : "%s", word);
        (void)snprintf(tokens[n++], 8, "%.*s", 1 + (int)(i % 3), word);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        strcpy(tokens[n++], others[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        texts[i] = str_of(tokens[i]);
    }
    int32_t end = n - 1;
    grammar_vocab *v;
    assert_int_equal(grammar_vocab_open(texts, n, &end, 1, &v), QUIRE_OK);
    free(texts);
    free(tokens);
    *n_tokens = n;
    return v;
}

/* A mask looks along the names that came, not at each of them, and what it looks at
 * counts as the work of a step. */
TEST(masks_behind_many_names_fit_into_a_step) {
    enum { NAMES = 4000 };
    int32_t n_tokens;
    grammar_vocab *v = large_vocab(&n_tokens);
    uint64_t *bits = calloc(grammar_mask_words(v), sizeof *bits);
    grammar_case c = case_open_over(v, GRAMMAR_JSON_OBJECT, "", NULL);
    grammar_state s = grammar_start(c.r);
    grammar_run_stats stats;
    work_room room = {0};
    assert_int_equal(grammar_accept_bytes(c.r, &s, str_of("{\""), NULL), QUIRE_OK);
    for (int i = 0; i < NAMES; i++) {
        char member[40];
        (void)snprintf(member, sizeof member, "%c%c%d\":%d,\"", 'a' + i % 26, 'a' + i / 26 % 26, i, i);
        assert_int_equal(grammar_accept_bytes(c.r, &s, str_of(member), NULL), QUIRE_OK);
        assert_int_equal(i % 500 == 0 ? grammar_mask(c.r, s, bits) : QUIRE_OK, QUIRE_OK);
    }
    grammar_run_get_stats(c.r, &stats);
    work_room_fill(&room, 200000, INT64_MAX / 2);
    work_room *had = work_room_enter(&room);
    quire_err e = grammar_mask(c.r, s, bits);
    (void)work_room_enter(had);
    print_message("%d names, %d tokens: %zu bytes, %d states, %d masks, %u units\n", NAMES, (int)n_tokens,
                  stats.bytes, (int)stats.n_states, (int)stats.n_masks, atomic_load(&room.largest));
    assert_int_equal(e, QUIRE_OK);
    assert_true(atomic_load(&room.largest) > 100 && atomic_load(&room.largest) < 20000);
    assert_true(stats.bytes < (size_t)8 << 20);
    assert_true(stats.n_states < 200 && stats.n_masks < 20);
    work_room_fill(&room, 50, INT64_MAX / 2);
    had = work_room_enter(&room);
    e = grammar_mask(c.r, s, bits);
    (void)work_room_enter(had);
    assert_int_equal(e, QUIRE_BUSY); /* a room that is too small */
    free(bits);
    case_close(&c);
}

TEST_MAIN(NULL, NULL)

/* Masks over a vocabulary of all short words, whose subtrees are large enough to be
 * accepted as a whole: checks each bit against accepting the token. */
#include "grammar_case.h"

#include "base/rng.h"

#define MOST_WORDS 4096
static const char *const letters[] = {"a", "g", "1", "-", "%", ".", "\"", " ", "\xC3\xA9"};
enum { N_LETTERS = sizeof letters / sizeof *letters, DEPTH = 3 };

typedef struct words {
    char bytes[MOST_WORDS][64];
    int32_t n, end;
    grammar_vocab *v;
} words;

static void add_word(words *w, const char *front, const char *back) {
    assert_true(w->n < MOST_WORDS);
    (void)snprintf(w->bytes[w->n++], sizeof w->bytes[0], "%s%s", front, back);
}

/* All words of up to DEPTH letters, then longer ones, parts of characters, escapes, an
 * end token. */
static void open_words(words *w) {
    static const char *const more[] = {"\xC3",   "\xA9",    "a\xC3",   "\xE6\x97", "\\",  "\\n",
                                       "a\\\"",  "\\u00e9", "a\\u",    "\n",       "{",   "}",
                                       ":",      "\":",     "\",\"",   "true",     "0",   "11111",
                                       "aaaaa",  "a\":\"",  "aaaaaaa", "a-a-a",    "@",   "a@a",
                                       "aaa.aa", "://",     "/",       "%aa",      "%a1", "\xF0\x9F\x98\x80"};
    str texts[MOST_WORDS];
    w->n = 0;
    add_word(w, "", "");
    for (int32_t from = 0, until = 1, depth = 0; depth < DEPTH; depth++, from = until, until = w->n) {
        for (int32_t i = from; i < until; i++) {
            for (int32_t k = 0; k < N_LETTERS; k++) {
                add_word(w, w->bytes[i], letters[k]);
            }
        }
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        add_word(w, more[i], "");
    }
    for (int n = 8; n < 48; n += 3) { /* of one letter, and of two with a quote after */
        char *to = w->bytes[w->n++], *other = w->bytes[w->n++];
        memset(to, 'a', (size_t)n);
        to[n] = 0;
        memset(other, 'g', (size_t)n);
        memcpy(other + n, "\"", 2);
    }
    w->end = w->n;
    add_word(w, "</s>", "");
    for (int32_t i = 0; i < w->n; i++) {
        texts[i] = str_of(w->bytes[i]);
    }
    assert_int_equal(grammar_vocab_open(texts, w->n, &w->end, 1, &w->v), QUIRE_OK);
}

/* Returns how many tokens the mask after s allows, and some of them. */
static int32_t check_mask(const words *w, const char *rules, grammar_run *r, grammar_state s,
                          int32_t *allowed) {
    uint64_t bits[(MOST_WORDS + 63) / 64];
    int32_t n = 0;
    assert_int_equal(grammar_mask(r, s, bits), QUIRE_OK);
    for (int32_t t = 0; t < w->n; t++) {
        bool bit = (bits[t / 64] >> (t % 64) & 1) != 0, taken = grammar_allows(r, s, t);
        if (bit != taken) {
            fail_msg("%s: token '%s' is %s", rules, w->bytes[t],
                     bit ? "in the mask and not taken" : "taken and not in the mask");
        }
        if (taken && t != w->end) {
            allowed[n++] = t;
        }
    }
    return n;
}

static void check(const words *w, grammar_kind kind, const char *text, uint64_t *random) {
    enum { WALKS = 4, STEPS = 16 };
    static int32_t allowed[MOST_WORDS];
    grammar_options o = {.space = GRAMMAR_SPACE_ANY, .order = GRAMMAR_ORDER_ANY};
    grammar *g = NULL;
    grammar_run *r = NULL;
    quire_error err = {0};
    if (grammar_compile(kind, str_of(text), &o, &g, &err) != QUIRE_OK) {
        fail_msg("%s: %s", text, err.message);
    }
    assert_int_equal(grammar_run_open(g, w->v, 0, &r), QUIRE_OK);
    for (int k = 0; k < WALKS; k++) {
        grammar_state s = grammar_start(r);
        for (int step = 0; step < STEPS; step++) {
            int32_t n = check_mask(w, text, r, s, allowed);
            if (n == 0) {
                break;
            }
            int32_t t = allowed[rng_next(random) % (uint64_t)n];
            /* short ones, so that there are many places */
            for (int again = 0; again < 4 && strlen(w->bytes[t]) > 2; again++) {
                t = allowed[rng_next(random) % (uint64_t)n];
            }
            assert_int_equal(grammar_accept(r, &s, t), QUIRE_OK);
        }
    }
    grammar_run_close(r);
    grammar_drop(g);
}

#define STRING(rules) "{\"type\":\"string\"," rules "}"

TEST(masks_of_strings_are_what_taking_each_token_says) {
    static const char *const schemas[] = {
        STRING("\"format\":\"email\""),
        STRING("\"format\":\"hostname\""),
        STRING("\"format\":\"uri\""),
        STRING("\"format\":\"uuid\""),
        STRING("\"pattern\":\"^[a-z0-9]{2,9}$\""),
        STRING("\"pattern\":\"^[a-f0-9]{12}$\""),
        STRING("\"pattern\":\"^([a-z]{1,3}[.-])*[a-z]{1,3}$\""),
        STRING("\"pattern\":\"^(%[0-9a-f]{2}|[a-z1])*$\""),
        STRING("\"pattern\":\"^[^%\\\"]+$\""),
        STRING("\"pattern\":\"^[^\u00e9]{0,20}$\""),
        STRING("\"pattern\":\"[0-9a-f]\",\"minLength\":6,\"maxLength\":6"),
        STRING("\"pattern\":\"^[^ ]+ [^ ]+$\",\"maxLength\":30"),
        STRING("\"pattern\":\"^a+$\",\"minLength\":30"),
        STRING("\"minLength\":3,\"maxLength\":5"),
        STRING("\"minLength\":3,\"maxLength\":24"),
        STRING("\"minLength\":30,\"maxLength\":40"),
        STRING("\"minLength\":12"),
        STRING("\"maxLength\":0"),
        STRING("\"maxLength\":18"),
        "{\"enum\":[\"aaaaaaaa\",\"aaaa.aaa\",\"ag1\",\"ag-\",\"\u00e9\"]}",
        "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":20}},{\"type\":"
        "\"array\",\"prefixItems\":[{\"const\":"
        "\"ag\"},{\"type\":\"integer\"}]}]}",
        "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":2,"
        "\"maxLength\":20}},\"required\":["
        "\"a\"],"
        "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"a\":{\"const\":\"g\"},\"1\":{"
        "\"type\":\"string\"}},"
        "\"additionalProperties\":false}]}",
        "{\"type\":\"object\",\"properties\":{\"aa\":{\"type\":\"string\"},\"ag\":{\"type\":\"boolean\"}},"
        "\"minProperties\":3}",
        "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a1]{1,4}$\"},\"minProperties\":2}",
    };
    static words w;
    open_words(&w);
    uint64_t random = 20261126;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        check(&w, GRAMMAR_SCHEMA, schemas[i], &random);
    }
    grammar_vocab_drop(w.v);
}

TEST(masks_of_other_grammars_are_what_taking_each_token_says) {
    static const struct {
        grammar_kind kind;
        const char *text;
    } grammars[] = {{GRAMMAR_REGEX, "[a-z0-9]{2,9}%?"},
                    {GRAMMAR_REGEX, "([^%]*%)+"},
                    {GRAMMAR_REGEX, "[a-z]+(-[a-z]+)*\\.1"},
                    {GRAMMAR_EBNF, "root ::= [a-z. ]+ | \"\\\"\" [^\"]* \"\\\"\""},
                    {GRAMMAR_JSON_OBJECT, ""}};
    static words w;
    open_words(&w);
    uint64_t random = 1126;
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        check(&w, grammars[i].kind, grammars[i].text, &random);
    }
    grammar_vocab_drop(w.v);
}

TEST_MAIN(NULL, NULL)

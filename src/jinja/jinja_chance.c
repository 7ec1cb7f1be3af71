/* What Jinja leaves to chance: the filter random and the function lipsum. A render draws the same numbers each time, so that a prompt is a
 * function of its variables. */
#include "jinja/jinja_filters.h"

#include "base/rng.h"

static uint64_t below(jrun *r, uint64_t n) {
    return rng_next(&r->chance) % n;
}

JFUNCTION(filter_random) {
    const jvalue *items;
    size_t n;
    if (jis(args[0], J_DICT) || jis(args[0], J_ITERATOR) || jis(args[0], J_VIEW)) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "'%s' object is not a sequence", jvalue_type(args[0]));
    }
    TRY(jrun_items(r, args[0], &items, &n));
    if (n == 0) {
        return jrun_make_undefined(r, out, "No random item, sequence was empty.");
    }
    *out = items[below(r, n)];
    return QUIRE_OK;
}

/* Adds a word; capital: its first letter is. */
static quire_err add_word(jrun *r, const char *word, bool capital) {
    char first = (char)(word[0] - 'a' + 'A');
    TRY(capital ? jrun_add(r, (str){&first, 1}) : QUIRE_OK);
    return jrun_add(r, str_of(word + capital));
}

/* Adds n words with commas and full stops. */
static quire_err add_paragraph(jrun *r, uint64_t n) {
    static const char *const words[] = {"lorem", "ipsum",   "dolor",   "sit",         "amet",     "consectetuer", "adipiscing", "elit",
                                        "sed",   "diam",    "nonummy", "nibh",        "euismod",  "tincidunt",    "ut",         "laoreet",
                                        "magna", "aliquam", "erat",    "volutpat",    "enim",     "ad",           "minim",      "veniam",
                                        "quis",  "nostrud", "tation",  "ullamcorper", "suscipit", "lobortis",     "nisl",       "aliquip"};
    enum { N_WORDS = sizeof words / sizeof *words };
    uint64_t last = N_WORDS, until_comma = 3 + below(r, 6), until_stop = 10 + below(r, 11);
    bool capital = true;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t word = below(r, N_WORDS);
        word = word == last ? (word + 1) % N_WORDS : word;
        last = word;
        TRY(jrun_step(r, 1));
        TRY(i > 0 ? jrun_add(r, str_of(" ")) : QUIRE_OK);
        TRY(add_word(r, words[word], capital));
        capital = i + 1 < n && --until_stop == 0;
        bool comma = --until_comma == 0;
        until_comma = comma ? 3 + below(r, 6) : until_comma;
        until_stop = capital ? 10 + below(r, 11) : until_stop;
        TRY(capital ? jrun_add(r, str_of(".")) : comma && i + 1 < n ? jrun_add(r, str_of(",")) : QUIRE_OK);
    }
    return jrun_add(r, str_of("."));
}

JFUNCTION(global_lipsum) {
    int64_t n = 5, least = 20, most = 100;
    TRY(jis(args[0], J_MISSING) ? QUIRE_OK : jrun_want_integer(r, args[0], "n", &n));
    TRY(jis(args[2], J_MISSING) ? QUIRE_OK : jrun_want_integer(r, args[2], "min", &least));
    TRY(jis(args[3], J_MISSING) ? QUIRE_OK : jrun_want_integer(r, args[3], "max", &most));
    bool html = jis(args[1], J_MISSING) || jflag(args[1]);
    if (least >= most || least < 0) {
        return jrun_fail(r, QUIRE_BAD_REQUEST, "lipsum: empty range of words (%lld, %lld)", (long long)least, (long long)most);
    }
    jout_clear(&r->scratch);
    for (int64_t i = 0; i < n; i++) {
        TRY(i > 0 ? jrun_add(r, str_of(html ? "\n" : "\n\n")) : QUIRE_OK);
        TRY(html ? jrun_add(r, str_of("<p>")) : QUIRE_OK);
        TRY(add_paragraph(r, (uint64_t)least + below(r, (uint64_t)(most - least))));
        TRY(html ? jrun_add(r, str_of("</p>")) : QUIRE_OK);
    }
    TRY(jrun_scratch(r, out));
    out->safe = html;
    return QUIRE_OK;
}

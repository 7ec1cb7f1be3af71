/* Upper and lower case, and classes of characters, as in Python. */
#include <utf8proc.h>

#include "jinja/jinja_case_tables.h"
#include "jinja/jinja_run.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum {
    LETTER = JCATEGORY(LU) | JCATEGORY(LL) | JCATEGORY(LT) | JCATEGORY(LM) | JCATEGORY(LO),
    NUMERIC = JCATEGORY(ND) | JCATEGORY(NL) | JCATEGORY(NO),
    CAPITAL_SIGMA = 0x3a3,
    SIGMA = 0x3c3,
    FINAL_SIGMA = 0x3c2,
    CAPITAL_I_DOT = 0x130,
    DOT_ABOVE = 0x307
};

static bool in_ranges(const case_range *r, size_t n, int32_t c) {
    size_t i = 0;
    while (i < n && c > r[i].high) {
        i++;
    }
    return i < n && c >= r[i].low;
}

bool jchar_is_alpha(int32_t c) {
    return jchar_in(c, LETTER);
}

bool jchar_is_decimal(int32_t c) {
    return jchar_in(c, JCATEGORY(ND));
}

bool jchar_is_digit(int32_t c) {
    return jchar_is_decimal(c) || (c >= 0x80 && in_ranges(other_digit, COUNT(other_digit), c));
}

bool jchar_is_numeric(int32_t c) {
    return jchar_in(c, NUMERIC) || (c >= 0x80 && in_ranges(other_numeric, COUNT(other_numeric), c));
}

static bool is_lower(int32_t c) {
    return jchar_in(c, JCATEGORY(LL)) || (c >= 0x80 && in_ranges(other_lower, COUNT(other_lower), c));
}

static bool jinja_case_is_upper(int32_t c) {
    return jchar_in(c, JCATEGORY(LU)) || (c >= 0x80 && in_ranges(other_upper, COUNT(other_upper), c));
}

static bool is_cased(int32_t c) {
    return jchar_in(c, JCATEGORY(LT)) || is_lower(c) || jinja_case_is_upper(c);
}

/* Whether c is skipped when looking at a sigma's neighbours (Case_Ignorable). */
static bool is_ignorable(int32_t c) {
    static const int32_t inside_words[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,
                                           0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                           0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    bool inside = false;
    for (size_t i = 0; i < COUNT(inside_words); i++) {
        inside = inside || c == inside_words[i];
    }
    return inside ||
           jchar_in(c, JCATEGORY(MN) | JCATEGORY(ME) | JCATEGORY(CF) | JCATEGORY(LM) | JCATEGORY(SK));
}

bool jcase_is(str s, bool upper) {
    bool cased = false;
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (jchar_in(c, JCATEGORY(LT)) || (upper ? is_lower(c) : jinja_case_is_upper(c))) {
            return false;
        }
        cased = cased || (upper ? jinja_case_is_upper(c) : is_lower(c));
    }
    return cased;
}

bool jcase_is_title(str s) {
    bool cased = false, after_cased = false;
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        bool starts = jinja_case_is_upper(c) || jchar_in(c, JCATEGORY(LT)), goes_on = is_lower(c);
        if ((starts && after_cased) || (goes_on && !after_cased)) {
            return false;
        }
        after_cased = starts || goes_on;
        cased = cased || after_cased;
    }
    return cased;
}

/* Whether a sigma at s.p[at..next) ends a word: after a letter, and not before one. */
static bool jinja_case_is_final(str s, size_t at, size_t next) {
    size_t size;
    int32_t c = 0;
    while (at > 0) {
        str last = jstr_last((str){s.p, at});
        c = jchar_at(last.p, last.n, &size);
        if (!is_ignorable(c)) {
            break;
        }
        at -= last.n;
    }
    if (at == 0 || !is_cased(c)) {
        return false;
    }
    for (; next < s.n; next += size) {
        c = jchar_at(s.p + next, s.n - next, &size);
        if (!is_ignorable(c)) {
            return !is_cased(c);
        }
    }
    return true;
}

/* Maps c to another case: up to 3 code points; returns how many. final: a word ends at
 * c. */
static size_t jinja_case_map_char(int32_t c, jcase how, bool final, int32_t out[3]) {
    if (how == CASE_LOWER) {
        out[0] = c == CAPITAL_SIGMA && final ? FINAL_SIGMA : c == CAPITAL_I_DOT ? 'i' : utf8proc_tolower(c);
        out[1] = DOT_ABOVE;
        return c == CAPITAL_I_DOT ? 2 : 1;
    }
    size_t low = 0, high = c < 0x80 ? 0 : COUNT(case_expansions);
    while (low < high) {
        size_t mid = (low + high) / 2;
        const case_expansion *e = &case_expansions[mid];
        if (e->from == c) {
            const uint16_t *to = how == CASE_UPPER ? e->upper : e->title;
            size_t n = 0;
            while (n < 3 && to[n] != 0) {
                out[n] = to[n];
                n++;
            }
            return n;
        }
        if (e->from < c) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    out[0] = how == CASE_UPPER ? utf8proc_toupper(c) : utf8proc_totitle(c);
    return 1;
}

/* Adds the character at s.p[at..next) in another case. word: where to look for a final
 * sigma. */
static quire_err jinja_case_put(jrun *r, str s, size_t at, int32_t c, size_t size, jcase how, size_t word) {
    int32_t to[3];
    char bytes[4];
    uint8_t origin = jrun_origin(r, s, at);
    bool final =
        c == CAPITAL_SIGMA && jinja_case_is_final((str){s.p + word, s.n - word}, at - word, at - word + size);
    if (c == CAPITAL_SIGMA) {
        TRY(jrun_step(r, 1));
    }
    size_t n = jinja_case_map_char(c, how, final, to);
    for (size_t i = 0; i < n; i++) {
        TRY(jrun_add_as(r, (str){bytes, jchar_put(to[i], bytes)}, origin));
    }
    return QUIRE_OK;
}

/* Whether c ends a word under CASE_WORDS. */
static bool jinja_case_ends_word(int32_t c) {
    return jchar_is_space(c) || (c < 0x80 && c > 0 && strchr("-({[<", c) != NULL);
}

/* The case for the next character. */
static jcase case_now(jcase how, bool first, bool after_cased, bool word_starts, int32_t c) {
    switch (how) {
    case CASE_TITLE:
        return after_cased ? CASE_LOWER : CASE_TITLE;
    case CASE_CAPITALIZE:
        return first ? CASE_TITLE : CASE_LOWER;
    case CASE_WORDS:
        return word_starts ? CASE_UPPER : CASE_LOWER;
    case CASE_SWAP:
        return jinja_case_is_upper(c) ? CASE_LOWER : CASE_UPPER;
    default:
        return how;
    }
}

/* Length of the prefix of s that the conversion leaves unchanged: ASCII that lacks the
 * other case. */
static size_t same_bytes(str s, jcase how) {
    char low = how == CASE_UPPER ? 'a' : 'A', high = how == CASE_UPPER ? 'z' : 'Z';
    size_t n = 0;
    while ((how == CASE_UPPER || how == CASE_LOWER) && n < s.n && (unsigned char)s.p[n] < 0x80 &&
           !(s.p[n] >= low && s.p[n] <= high)) {
        n++;
    }
    return n;
}

quire_err jcase_map(jrun *r, str s, jcase how, jvalue *out) {
    bool after_cased = false, word_starts = true;
    size_t word = 0;
    jout_clear(&r->scratch);
    TRY(jrun_step(r, s.n / 16));
    for (size_t i = 0, size; i < s.n; i += size) {
        size = same_bytes((str){s.p + i, s.n - i}, how);
        if (size > 0) {
            TRY(jrun_add(r, (str){s.p + i, size}));
            continue;
        }
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (c < 0) {
            TRY(jrun_add(r, (str){s.p + i, 1}));
            continue;
        }
        TRY(jinja_case_put(r, s, i, c, size, case_now(how, i == 0, after_cased, word_starts, c), word));
        after_cased = is_cased(c);
        /* the word's first character was mapped separately */
        word = how == CASE_WORDS && word_starts ? i + size : word;
        word_starts = jinja_case_ends_word(c);
    }
    return jrun_scratch(r, out);
}

quire_err jcase_fold(jrun *r, str s, jvalue *out) {
    jout_clear(&r->scratch);
    TRY(jrun_step(r, s.n / 16));
    for (size_t i = 0, size; i < s.n; i += size) {
        utf8proc_int32_t to[8];
        char bytes[4];
        int bound = 0;
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        utf8proc_ssize_t n = c < 0 ? 0 : utf8proc_decompose_char(c, to, 8, UTF8PROC_CASEFOLD, &bound);
        if (n <= 0) {
            TRY(jrun_add(r, (str){s.p + i, size}));
        }
        for (utf8proc_ssize_t k = 0; k < n && k < 8; k++) {
            TRY(jrun_add_as(r, (str){bytes, jchar_put(to[k], bytes)}, jrun_origin(r, s, i)));
        }
    }
    return jrun_scratch(r, out);
}

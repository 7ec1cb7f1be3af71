/* Upper and lower case, and character classes, as in Python. */
#include <utf8proc.h>

#include "jinja/jinja_run.h"

enum {
    CASED = JCATEGORY(LU) | JCATEGORY(LL) | JCATEGORY(LT),
    LETTER = CASED | JCATEGORY(LM) | JCATEGORY(LO),
    NUMERIC = JCATEGORY(ND) | JCATEGORY(NL) | JCATEGORY(NO),
};

bool jchar_is_alpha(int32_t c) {
    return jchar_in(c, LETTER);
}

bool jchar_is_digit(int32_t c) {
    return jchar_in(c, JCATEGORY(ND));
}

bool jchar_is_numeric(int32_t c) {
    return jchar_in(c, NUMERIC);
}

bool jcase_is(str s, bool upper) {
    bool cased = false;
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (jchar_in(c, CASED)) {
            if (utf8proc_category(c) != (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL)) {
                return false;
            }
            cased = true;
        }
    }
    return cased;
}

/* Characters whose upper case is several characters (Unicode's SpecialCasing), apart from the sharp s. */
static bool expands(int32_t c) {
    return c == 0x149 || c == 0x1f0 || c == 0x390 || c == 0x3b0 || c == 0x587 || (c >= 0x1e96 && c <= 0x1e9a) ||
           (c >= 0x1f50 && c <= 0x1fff) || (c >= 0xfb00 && c <= 0xfb17);
}

static quire_err put(jrun *r, int32_t c, jcase how) {
    char bytes[8];
    size_t n;
    if (how == CASE_LOWER ? c == 0x130 || c == 0x3a3 : expands(c)) {
        return jrun_fail(r, QUIRE_UNSUPPORTED, "the case of U+%04X is not supported", (unsigned)c);
    }
    if (c == 0xdf && how != CASE_LOWER) {
        n = 2;
        memcpy(bytes, how == CASE_UPPER ? "SS" : "Ss", 2);
    } else {
        n = jchar_put(how == CASE_UPPER ? utf8proc_toupper(c) : how == CASE_LOWER ? utf8proc_tolower(c) : utf8proc_totitle(c), bytes);
    }
    return jrun_add(r, (str){bytes, n});
}

quire_err jcase_map(jrun *r, str s, jcase how, jvalue *out) {
    bool after_cased = false, word_starts = true;
    strbuf_clear(&r->scratch);
    for (size_t i = 0, size; i < s.n; i += size) {
        int32_t c = jchar_at(s.p + i, s.n - i, &size);
        if (c < 0) {
            TRY(jrun_add(r, (str){s.p + i, 1}));
            continue;
        }
        jcase now = how;
        if (how == CASE_TITLE) {
            now = after_cased ? CASE_LOWER : CASE_TITLE;
        } else if (how == CASE_CAPITALIZE) {
            now = i > 0 ? CASE_LOWER : CASE_TITLE;
        } else if (how == CASE_WORDS) {
            now = word_starts ? CASE_UPPER : CASE_LOWER;
        } else if (how == CASE_SWAP) {
            now = utf8proc_category(c) == UTF8PROC_CATEGORY_LU ? CASE_LOWER : CASE_UPPER;
        }
        TRY(put(r, c, now));
        after_cased = jchar_in(c, CASED);
        word_starts = jchar_is_space(c) || (c < 0x80 && c > 0 && strchr("-({[<", c) != NULL);
    }
    return jrun_scratch(r, out);
}

#include "text/regex_names.h"

#define GRAPH_ITEMS "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"

/* bracket: of [:name:]; property: of \p{name}. */
static const struct {
    const char *name, *bracket, *property;
} table[] = {{"alpha", "\\p{Alphabetic}", "\\p{Alphabetic}"},
             {"digit", "\\p{Nd}", "\\p{Nd}"},
             {"alnum", "\\p{Alphabetic}\\p{Nd}", "\\p{Alphabetic}\\p{Nd}"},
             {"upper", "\\p{Uppercase}", "\\p{Uppercase}"},
             {"lower", "\\p{Lowercase}", "\\p{Lowercase}"},
             {"space", SPACE_ITEMS, SPACE_ITEMS},
             {"word", WORD_ITEMS, LOOSE_ITEMS},
             {"cntrl", "\\p{Cc}", "\\p{Cc}"},
             {"xdigit", HEX_ITEMS, HEX_ITEMS},
             {"ascii", "\\x00-\\x7f", "\\x00-\\x7f"},
             {"punct", "\\p{P}\\p{S}", "\\p{P}"},
             {"posixpunct", NULL, "\\p{P}\\p{S}"},
             {"graph", GRAPH_ITEMS, GRAPH_ITEMS},
             {"print", GRAPH_ITEMS "\\p{Zs}", GRAPH_ITEMS "\\p{Zs}"},
             {"blank", "\\p{Zs}\\x09", "\\p{Zs}\\x09"}};

const char *regex_bracket_items(str name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (str_is(name, table[i].name)) {
            return table[i].bracket;
        }
    }
    return NULL;
}

const char *regex_property_items(str name, bool in_class) {
    char plain[16];
    size_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c == ' ' || c == '-' || c == '_') {
            continue;
        }
        if (n == sizeof plain) {
            return NULL;
        }
        plain[n++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (str_is((str){plain, n}, table[i].name)) {
            return in_class && str_is(str_of(table[i].name), "word") ? WORD_ITEMS : table[i].property;
        }
    }
    return NULL;
}

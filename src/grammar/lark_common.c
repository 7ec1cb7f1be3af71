#include "grammar/lark_common.h"

#include <stddef.h>

#define INT   "[0-9]+"
#define EXP   "[eE][+-]?" INT
#define FLOAT "(?:" INT EXP "|(?:" INT "\\.(?:" INT ")?|\\." INT ")(?:" EXP ")?)"

static const struct {
    const char *name, *regex;
} terminals[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", INT},
    {"SIGNED_INT", "[+-]?" INT},
    {"DECIMAL", INT "\\.(?:" INT ")?|\\." INT},
    {"FLOAT", FLOAT},
    {"SIGNED_FLOAT", "[+-]?" FLOAT},
    {"NUMBER", FLOAT "|" INT},
    {"SIGNED_NUMBER", "[+-]?(?:" FLOAT "|" INT ")"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

const char *lark_common(str name) {
    for (size_t i = 0; i < sizeof terminals / sizeof *terminals; i++) {
        if (str_is(name, terminals[i].name)) {
            return terminals[i].regex;
        }
    }
    return NULL;
}

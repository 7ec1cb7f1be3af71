/* What a request says of tools: the functions that it offers, its choice among them, and
 * the formats of its response. */
#ifndef REQUEST_REQUEST_TOOLS_H
#define REQUEST_REQUEST_TOOLS_H

#include <string.h>

#include "base/str.h"
#include "json/json.h"

/* A function that a request offers. All is borrowed from the request. */
typedef struct output_tool {
    str name;
    const json_value *parameters; /* its JSON Schema, or NULL */
    bool is_strict;               /* its schema is enforced or the request refused */
    /* custom tool: grammar of its argument OUTPUT_TOOL_INPUT; empty: none */
    str lark;
} output_tool;

#define OUTPUT_TOOL_INPUT "input" /* a custom tool's only argument */

typedef enum output_choice {
    OUTPUT_CHOICE_AUTO,
    OUTPUT_CHOICE_NONE,     /* nothing is a call */
    OUTPUT_CHOICE_REQUIRED, /* an answer that is a JSON list of calls counts too */
    OUTPUT_CHOICE_NAMED     /* an answer that is the bare arguments of `named` counts too */
} output_choice;

/* Formats of a response by name (rows of answer/answer_format.h); NULL: none. Names are
 * static. */
typedef struct output_formats {
    const char *tools, *reasoning;
} output_formats;

#define CALL_NAME_BYTES 256

/* Whether some format writes and reads a function of that name: at most CALL_NAME_BYTES
 * without white space, quotes, brackets and = , ; | \ ` */
static inline bool call_is_name(str s) {
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool is_mark = c == 0xFE || c == 0xFF; /* MARK_BEGIN and MARK_END of answer/mark_set.h */
        if (c <= ' ' || c == 0x7F || is_mark || strchr("\"'`<>{}()[]=,;|\\", c) != NULL) {
            return false;
        }
    }
    return s.n > 0 && s.n <= CALL_NAME_BYTES;
}

#endif

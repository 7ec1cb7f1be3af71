/* What a request says about tools: the functions that it offers, its choice among them,
 * and the formats of its response. */
#ifndef REQUEST_REQUEST_TOOLS_H
#define REQUEST_REQUEST_TOOLS_H

#include <stddef.h>
#include <string.h>

#include "base/err.h"
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

/* ---- namespaces of tools ---- */

/* Tool spaces: which part of a called name is the namespace of its tool, for a request
 * whose tools have namespaces. The reader adds the tools once, and each call of the
 * response is looked up.
 *
 * Owner: the request; constant once it is read, so lookups are for any thread. */

typedef struct tool_space {
    size_t at, n, n_space; /* the name as it is called in `names`; the bytes of its namespace */
} tool_space;

typedef struct tool_spaces {
    strbuf names;
    tool_space *all; /* [n] in the order of the request */
    size_t n, cap, n_spaces;
} tool_spaces;

/* Adds a tool; space empty: it has no namespace. QUIRE_NO_MEMORY: t is as it was, or has
 * bytes in `names` that no tool uses. */
quire_err tool_spaces_add(tool_spaces *t, str space, str name);
/* The bytes of the namespace that a called name begins with: that of the first tool of
 * this name; for a name that is not a tool's, of the last namespace that it begins with.
 * 0: none. O(tools). */
size_t tool_spaces_find(const tool_spaces *t, str called);
/* Frees what t has; it is empty then. */
void tool_spaces_deinit(tool_spaces *t);

#endif

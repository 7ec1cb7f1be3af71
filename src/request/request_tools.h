/* What a request says about tools: the functions offered, the choice among them, and the
 * formats of its response. */
#ifndef REQUEST_REQUEST_TOOLS_H
#define REQUEST_REQUEST_TOOLS_H

#include <stddef.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "json/json.h"

/* A function that a request offers. The request owns all pointers. */
typedef struct output_tool {
    str name;
    const json_value *parameters; /* its JSON Schema, or NULL */
    bool is_strict;               /* the schema must be enforced, or the request is refused */
    /* custom tool: grammar of its argument OUTPUT_TOOL_INPUT; empty: none */
    str lark;
} output_tool;

#define OUTPUT_TOOL_INPUT "input" /* the only argument of a custom tool */

typedef enum output_choice {
    OUTPUT_CHOICE_AUTO,
    OUTPUT_CHOICE_NONE,     /* no calls are recognised */
    OUTPUT_CHOICE_REQUIRED, /* a bare JSON list of calls is recognised too */
    OUTPUT_CHOICE_NAMED     /* the bare arguments of `named` are recognised too */
} output_choice;

/* Formats of a response by name (rows of answer/answer_format.h); NULL: none. Names are
 * static. */
typedef struct output_formats {
    const char *tools, *reasoning;
} output_formats;

#define CALL_NAME_BYTES 256

/* Whether every tool format can carry this function name: at most CALL_NAME_BYTES bytes,
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

/* Tool namespaces: finds the namespace in the name of a called tool. The reader adds the
 * request's tools once; each call in the response is looked up.
 *
 * The request owns it. Constant once read, so any thread may look up. */

typedef struct tool_space {
    size_t at, n, n_space; /* a tool's full name in `names`, and the length of its namespace */
} tool_space;

typedef struct tool_spaces {
    strbuf names;
    tool_space *all; /* [n] in the request's order */
    size_t n, cap, n_spaces;
} tool_spaces;

/* Adds a tool; space empty: it has no namespace. QUIRE_NO_MEMORY: t is unchanged, except
 * for unused bytes in `names`. */
quire_err tool_spaces_add(tool_spaces *t, str space, str name);
/* Length of the namespace in a called name: that of the first tool with this name or, for
 * an unknown name, of the last namespace that it starts with. 0: none. O(tools). */
size_t tool_spaces_find(const tool_spaces *t, str called);
/* Frees everything and leaves t empty. */
void tool_spaces_deinit(tool_spaces *t);

#endif

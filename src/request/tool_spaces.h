/* Tool spaces: which part of a called name is the namespace of its tool, for a request
 * whose tools have namespaces. The reader adds the tools once, and each call of the
 * response is looked up.
 *
 * Owner: the request; constant once it is read, so lookups are for any thread. */
#ifndef REQUEST_TOOL_SPACES_H
#define REQUEST_TOOL_SPACES_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

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
 * this name; for a name that is no tool's, of the last namespace that it begins with. 0:
 * none. O(tools). */
size_t tool_spaces_find(const tool_spaces *t, str called);
/* Frees what t has; it is empty then. */
void tool_spaces_deinit(tool_spaces *t);

#endif

/* The names of a request's tools, each once, found by hash. */
#ifndef REQUEST_TOOL_NAMES_H
#define REQUEST_TOOL_NAMES_H

#include "request/request.h"

enum { TOOL_NAME_SLOTS = 4 * REQUEST_MAX_TOOLS };

/* Zero-initialised: none. Texts are borrowed. */
typedef struct tool_names {
    str names[REQUEST_MAX_TOOLS];
    size_t n;
    uint16_t slots[TOOL_NAME_SLOTS]; /* where a name of that hash is in the list, plus 1 */
} tool_names;

static inline size_t tool_names_slot(const tool_names *t, str name) {
    size_t at = (size_t)(str_hash(STR_HASH_START, name) % TOOL_NAME_SLOTS);
    while (t->slots[at] != 0 && !str_eq(t->names[t->slots[at] - 1], name)) {
        at = (at + 1) % TOOL_NAME_SLOTS;
    }
    return at;
}

static inline bool tool_names_has(const tool_names *t, str name) {
    return t->slots[tool_names_slot(t, name)] != 0;
}

/* Whether it was none of them. At most REQUEST_MAX_TOOLS different ones may be added. */
static inline bool tool_names_add(tool_names *t, str name) {
    size_t at = tool_names_slot(t, name);
    if (t->slots[at] != 0) {
        return false;
    }
    t->names[t->n] = name;
    t->slots[at] = (uint16_t)++t->n;
    return true;
}

#endif

#include "request/tool_spaces.h"

#include <string.h>

#include "base/mem.h"

quire_err tool_spaces_add(tool_spaces *t, str space, str name) {
    size_t at = t->names.n, n_space = space.n > 0 ? space.n + 1 : 0;
    TRY(mem_grow(&t->all, &t->cap, t->n + 1, sizeof *t->all));
    TRY(strbuf_add(&t->names, space.p, space.n));
    TRY(space.n > 0 ? strbuf_add_char(&t->names, '.') : QUIRE_OK);
    TRY(strbuf_add(&t->names, name.p, name.n));
    t->all[t->n++] = (tool_space){at, n_space + name.n, space.n};
    t->n_spaces += space.n > 0;
    return QUIRE_OK;
}

size_t tool_spaces_find(const tool_spaces *t, str called) {
    size_t n_space = 0;
    for (size_t i = 0; t->n_spaces > 0 && i < t->n; i++) {
        const tool_space *tool = &t->all[i];
        const char *name = t->names.p + tool->at;
        if (str_eq((str){name, tool->n}, called)) {
            return tool->n_space;
        }
        if (tool->n_space > 0 && called.n > tool->n_space + 1 &&
            memcmp(called.p, name, tool->n_space + 1) == 0) {
            n_space = tool->n_space;
        }
    }
    return n_space;
}

void tool_spaces_deinit(tool_spaces *t) {
    strbuf_deinit(&t->names);
    mem_free(t->all);
    *t = (tool_spaces){.n = 0};
}

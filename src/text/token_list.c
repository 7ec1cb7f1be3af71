#include "text/token_list.h"

#include "base/mem.h"

void token_list_deinit(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

quire_err token_list_add(token_list *l, int32_t id) {
    if (l->n == l->cap && !mem_grow_((void **)&l->ids, &l->cap, l->n + 1, sizeof *l->ids)) {
        return QUIRE_NO_MEMORY;
    }
    l->ids[l->n++] = id;
    return QUIRE_OK;
}

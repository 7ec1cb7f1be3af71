#include "text/token_list.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

void token_list_deinit(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

quire_err token_list_add(token_list *l, int32_t id) {
    assert(l != NULL);
    TRY(mem_grow(&l->ids, &l->cap, l->n + 1, sizeof *l->ids));
    l->ids[l->n++] = id;
    return QUIRE_OK;
}

quire_err token_list_add_all(token_list *l, const int32_t *ids, size_t n) {
    if (n == 0) {
        return QUIRE_OK;
    }
    TRY(mem_grow(&l->ids, &l->cap, l->n + n, sizeof *l->ids));
    memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return QUIRE_OK;
}

void encode_seams_deinit(encode_seams *s) {
    mem_free(s->at);
    *s = (encode_seams){0};
}

quire_err encode_seams_add(encode_seams *s, encode_seam seam) {
    assert(s != NULL);
    TRY(mem_grow(&s->at, &s->cap, s->n + 1, sizeof *s->at));
    s->at[s->n++] = seam;
    return QUIRE_OK;
}

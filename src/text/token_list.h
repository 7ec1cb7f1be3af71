/* A growing array of token ids. Zero-initialised is empty. Owned by one thread at a
 * time. */
#ifndef TEXT_TOKEN_LIST_H
#define TEXT_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct token_list {
    int32_t *ids;
    size_t n, cap;
} token_list;

void token_list_deinit(token_list *l);
/* Appends one id. QUIRE_NO_MEMORY leaves the list unchanged. */
quire_err token_list_add(token_list *l, int32_t id);
/* Appends ids[0..n), or on NO_MEMORY none. */
quire_err token_list_add_all(token_list *l, const int32_t *ids, size_t n);

#endif

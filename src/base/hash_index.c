#include "base/hash_index.h"

#include <assert.h>

#include "base/mem.h"
#include "base/rng.h"

#define FIRST_BITS 6
#define MOST_BITS  31

static void hash_index_put(hash_index *x, hash_slot s) {
    const uint32_t mask = ((uint32_t)1 << x->bits) - 1;
    uint32_t at = hash_index_first(x, s.hash);
    while (x->slots[at & mask].entry != 0) {
        at++;
    }
    x->slots[at & mask] = s;
}

static quire_err hash_index_grow(hash_index *x) {
    hash_index grown = {.bits = x->slots != NULL ? x->bits + 1 : FIRST_BITS, .n = x->n};
    grown.multiplier = x->slots != NULL ? x->multiplier : (rng_os_seed() | 1);
    if (grown.bits > MOST_BITS) {
        return QUIRE_NO_MEMORY;
    }
    TRY(mem_check(grown.slots = mem_new((size_t)1 << grown.bits, sizeof *grown.slots)));
    for (uint32_t i = 0; x->slots != NULL && i < (uint32_t)1 << x->bits; i++) {
        if (x->slots[i].entry != 0) {
            hash_index_put(&grown, x->slots[i]);
        }
    }
    mem_free(x->slots);
    *x = grown;
    return QUIRE_OK;
}

quire_err hash_index_add(hash_index *x, uint32_t hash, uint32_t entry) {
    assert(entry < HASH_INDEX_NONE);
    if (x->slots == NULL || x->n + 1 > (uint32_t)1 << (x->bits - 1)) {
        TRY(hash_index_grow(x));
    }
    hash_index_put(x, (hash_slot){hash, entry + 1});
    x->n++;
    return QUIRE_OK;
}

void hash_index_deinit(hash_index *x) {
    mem_free(x->slots);
    *x = (hash_index){0};
}

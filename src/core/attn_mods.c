#include "core/attn_mods.h"

#include <stdatomic.h>

#include "base/mem.h"

/* The reference count follows the public struct. */
typedef struct counted {
    attn_mods mods;
    atomic_int holders;
} counted;

attn_mods *attn_mods_new(void) {
    counted *c = mem_new(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    atomic_init(&c->holders, 1);
    return &c->mods;
}

attn_mods *attn_mods_hold(attn_mods *mods) {
    if (mods != NULL) {
        atomic_fetch_add(&((counted *)mods)->holders, 1);
    }
    return mods;
}

void attn_mods_drop(attn_mods *mods) {
    if (mods == NULL || atomic_fetch_sub(&((counted *)mods)->holders, 1) > 1) {
        return;
    }
    mem_free(mods->mask);
    mem_free(mods->score);
    mem_free(mods->data);
    mem_free(mods);
}

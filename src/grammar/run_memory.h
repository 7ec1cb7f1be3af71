/* Memory of runs by tenant. Private to this room; grammar.h has its public part. */
#ifndef GRAMMAR_RUN_MEMORY_H
#define GRAMMAR_RUN_MEMORY_H

#include "grammar/area.h"
#include "grammar/grammar.h"

/* What a tenant's runs take. */
typedef struct memory_share {
    area_account account;
    grammar_memory *of;
    uint64_t tenant;
    int32_t refs; /* guarded by the lock of `of` */
    struct memory_share *next;
} memory_share;

/* The share of a tenant, with one reference more; each needs a memory_share_drop.
 * QUIRE_NO_MEMORY. */
quire_err memory_share_take(grammar_memory *m, uint64_t tenant, memory_share **out);
void memory_share_drop(memory_share *s);

#endif

#include "lab/sim/numbering.h"

#include "base/mem.h"

struct named {
    size_t at, n; /* in bytes */
    uint64_t hash;
};

enum { MAX_NAMES = 1 << 30, FIRST_SLOTS = 64 };

/* FNV-1a, with the upper bits folded in, as the slots take the lower ones. */
static uint64_t hash_of(str name) {
    uint64_t h = str_hash(STR_HASH_START, name);
    return h ^ h >> 32;
}

/* Where name stands, or would. */
static size_t slot_of(const numbering *g, str name, uint64_t hash) {
    size_t i = hash & (g->n_slots - 1);
    for (; g->slots[i] != 0; i = (i + 1) & (g->n_slots - 1)) {
        const struct named *other = &g->names[g->slots[i] - 1];
        if (other->hash == hash && str_eq((str){g->bytes.p + other->at, other->n}, name)) {
            break;
        }
    }
    return i;
}

static quire_err double_slots(numbering *g) {
    size_t n_slots = g->n_slots == 0 ? FIRST_SLOTS : 2 * g->n_slots;
    int32_t *slots = mem_new(n_slots, sizeof *slots);
    if (slots == NULL) {
        return QUIRE_NO_MEMORY;
    }
    for (int32_t number = 0; number < g->n; number++) {
        size_t i = g->names[number].hash & (n_slots - 1);
        while (slots[i] != 0) {
            i = (i + 1) & (n_slots - 1);
        }
        slots[i] = number + 1;
    }
    mem_free(g->slots);
    g->slots = slots;
    g->n_slots = n_slots;
    return QUIRE_OK;
}

quire_err numbering_of(numbering *g, str name, int32_t *out) {
    if ((size_t)g->n + 1 > g->n_slots / 2) {
        TRY(double_slots(g));
    }
    uint64_t hash = hash_of(name);
    size_t slot = slot_of(g, name, hash);
    if (g->slots[slot] == 0) {
        TRY(mem_grow(&g->names, &g->cap_names, (size_t)g->n + 1, sizeof *g->names));
        if (g->n == MAX_NAMES) {
            return QUIRE_TOO_LARGE;
        }
        size_t at = g->bytes.n;
        TRY(strbuf_add(&g->bytes, name.p, name.n));
        g->names[g->n] = (struct named){at, name.n, hash};
        g->slots[slot] = ++g->n;
    }
    *out = g->slots[slot] - 1;
    return QUIRE_OK;
}

void numbering_deinit(numbering *g) {
    strbuf_deinit(&g->bytes);
    mem_free(g->names);
    mem_free(g->slots);
    *g = (numbering){0};
}

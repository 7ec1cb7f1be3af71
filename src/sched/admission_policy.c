#include "sched/admission_policy.h"

#include "base/mem.h"

double order_prefix_score(int32_t n_matched, int64_t waited_us, double lambda) {
    return (double)n_matched + lambda * (double)waited_us * 1e-6;
}

quire_err shares_open(shares *s, int32_t n) {
    *s = (shares){.slots = mem_new((size_t)n + 1, sizeof *s->slots), .n = n};
    return s->slots ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void shares_close(shares *s) {
    mem_free(s->slots);
    *s = (shares){0};
}

/* FNV-1a. */
static uint64_t hash_of(const void *tenant, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ ((const unsigned char *)tenant)[i]) * 0x100000001b3u;
    }
    return h;
}

/* The least counter of the tenants that stand; false when none does. */
static bool least_served(const shares *s, double *least) {
    bool found = false;
    for (int32_t i = 0; i <= s->n; i++) {
        if (s->slots[i].n_active > 0 && (!found || s->slots[i].served < *least)) {
            *least = s->slots[i].served;
            found = true;
        }
    }
    return found;
}

int32_t shares_enter(shares *s, const void *tenant, size_t n) {
    uint64_t hash = hash_of(tenant, n);
    int32_t slot = SHARE_NONE;
    for (int32_t i = 0; i < s->n; i++) {
        const share *at = &s->slots[i];
        if (at->is_used && at->tenant == hash) {
            slot = i;
            break;
        }
        bool better = at->n_active == 0 && (slot == SHARE_NONE || (s->slots[slot].is_used && (!at->is_used || at->served < s->slots[slot].served)));
        slot = better ? i : slot; /* an unused slot, else that of the absent tenant that loses least */
    }
    bool is_common = slot == SHARE_NONE;
    slot = is_common ? s->n : slot;
    share *at = &s->slots[slot];
    if (!is_common && (!at->is_used || at->tenant != hash)) {
        *at = (share){.tenant = hash, .is_used = true};
    }
    double least = 0.0;
    if (at->n_active == 0 && least_served(s, &least) && at->served < least) {
        at->served = least;
    }
    at->n_active++;
    return slot;
}

void shares_leave(shares *s, int32_t slot) {
    if (slot != SHARE_NONE) {
        s->slots[slot].n_active--;
    }
}

void shares_serve(shares *s, int32_t slot, double weighted_tokens) {
    if (slot != SHARE_NONE) {
        s->slots[slot].served += weighted_tokens;
    }
}

double shares_served(const shares *s, int32_t slot) {
    return s->slots[slot].served;
}

#include "sched/admission_policy.h"

#include <assert.h>

#include "base/mem.h"
#include "base/str.h"

double admission_prefix_score(int32_t n_matched, int64_t waited_us, double lambda) {
    assert(n_matched >= 0);
    return (double)n_matched + lambda * (double)waited_us * 1e-6;
}

bool admission_goes_deeper(int32_t depth, uint64_t arrival, int32_t other_depth, uint64_t other_arrival) {
    return depth != other_depth ? depth > other_depth : arrival < other_arrival;
}

quire_err service_counters_open(service_counters *s, int32_t n) {
    assert(n >= 0);
    *s = (service_counters){.slots = mem_new((size_t)n + 1, sizeof *s->slots), .n = n};
    return s->slots ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void service_counters_close(service_counters *s) {
    mem_free(s->slots);
    *s = (service_counters){0};
}

/* Finds the lowest service counter of the active tenants. False if none is active. */
static bool least_served(const service_counters *s, double *least) {
    bool found = false;
    for (int32_t i = 0; i <= s->n; i++) {
        if (s->slots[i].n_active > 0 && (!found || s->slots[i].served < *least)) {
            *least = s->slots[i].served;
            found = true;
        }
    }
    return found;
}

int32_t service_counters_enter(service_counters *s, const void *tenant, size_t n) {
    uint64_t hash = str_hash(STR_HASH_START, (str){tenant, n});
    int32_t slot = TENANT_NONE;
    for (int32_t i = 0; i < s->n; i++) {
        const tenant_slot *at = &s->slots[i];
        if (at->is_used && at->tenant == hash) {
            slot = i;
            break;
        }
        bool better = at->n_active == 0 &&
                      (slot == TENANT_NONE ||
                       (s->slots[slot].is_used && (!at->is_used || at->served < s->slots[slot].served)));
        slot = better ? i : slot; /* a free entry, or else the inactive tenant's with the lowest counter */
    }
    bool is_common = slot == TENANT_NONE;
    slot = is_common ? s->n : slot;
    tenant_slot *at = &s->slots[slot];
    if (!is_common && (!at->is_used || at->tenant != hash)) {
        *at = (tenant_slot){.tenant = hash, .is_used = true};
    }
    double least = 0.0;
    if (at->n_active == 0 && least_served(s, &least) && at->served < least) {
        at->served = least;
    }
    at->n_active++;
    return slot;
}

void service_counters_leave(service_counters *s, int32_t slot) {
    assert(slot == TENANT_NONE || (slot >= 0 && slot <= s->n && s->slots[slot].n_active > 0));
    if (slot != TENANT_NONE) {
        s->slots[slot].n_active--;
    }
}

void service_counters_add(service_counters *s, int32_t slot, double weighted_tokens) {
    if (slot != TENANT_NONE) {
        s->slots[slot].served += weighted_tokens;
    }
}

double service_counters_of(const service_counters *s, int32_t slot) {
    assert(slot >= 0 && slot <= s->n);
    return s->slots[slot].served;
}

/* Adapter slots limit how many different adapters may run at once.
 *
 * A sequence whose adapter has no slot waits, and later ones may overtake it. Once the
 * oldest such sequence has waited for ADAPTER_PATIENCE_US, no younger sequence with an
 * adapter is admitted, so running adapters drain and it gets a slot. */
#ifndef SCHED_ADAPTER_SLOTS_H
#define SCHED_ADAPTER_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#define SCHED_MAX_ADAPTERS  256
#define ADAPTER_PATIENCE_US 1000000

typedef struct adapter_slots {
    int32_t most, n; /* most: number of slots, at most SCHED_MAX_ADAPTERS */
    uint64_t ids[SCHED_MAX_ADAPTERS];
} adapter_slots;

/* Whether a sequence with this adapter (0: none) may run: it needs no slot, its adapter
 * has one, or one is free. */
static inline bool adapter_slots_fit(const adapter_slots *s, uint64_t id) {
    bool fits = id == 0 || s->n < s->most;
    for (int32_t i = 0; i < s->n && !fits; i++) {
        fits = s->ids[i] == id;
    }
    return fits;
}

/* Gives the adapter a slot unless it has one. Requires adapter_slots_fit. */
static inline void adapter_slots_take(adapter_slots *s, uint64_t id) {
    bool has = id == 0 || s->n == SCHED_MAX_ADAPTERS;
    for (int32_t i = 0; i < s->n && !has; i++) {
        has = s->ids[i] == id;
    }
    if (!has) {
        s->ids[s->n++] = id;
    }
}

#endif

#include "lab/bench/baseline.h"
#include "lab/bench/figures.h"

#include "core/kv_layout.h"

const char *reservation_name(reservation r) {
    static const char *const names[RESERVE_N] = {"max", "pow2", "oracle", "growing", "paged"};
    return names[r];
}

static int64_t baseline_power_of_two_from(int64_t n) {
    int64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

int64_t reservation_slots(reservation r, const reserved_seq *s, int32_t max_len, int32_t page_tokens) {
    int64_t slots = 0;
    switch (r) {
    case RESERVE_MAX:
        slots = max_len;
        break;
    case RESERVE_POW2:
        slots = s->n_prompt + baseline_power_of_two_from(s->n_output);
        break;
    case RESERVE_ORACLE:
        slots = (int64_t)s->n_prompt + s->n_output;
        break;
    case RESERVE_GROWING:
        slots = s->n_now;
        break;
    case RESERVE_PAGED:
    case RESERVE_N:
        slots = kv_pages_for(s->n_now, page_tokens) * page_tokens;
        break;
    }
    return slots;
}

int64_t baseline_pads(const int32_t *lengths, int32_t n) {
    int64_t pads = 0;
    int32_t to = figures_largest(lengths, n);
    for (int32_t i = 0; i < n; i++) {
        pads += to - lengths[i];
    }
    return pads;
}

int64_t baseline_static(const int32_t *lengths, int32_t n, int32_t slots, int64_t *ends) {
    int64_t end = 0;
    for (int32_t i = 0; i < n; i += slots) {
        int32_t size = n - i < slots ? n - i : slots;
        end += figures_largest(lengths + i, size);
        for (int32_t k = i; k < i + size; k++) {
            ends[k] = end;
        }
    }
    return end;
}

#include "lab/sim/reservation.h"

#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/kv_layout.h"

const char *reservation_name(reservation r) {
    static const char *const names[RESERVE_N] = {"max", "pow2", "oracle", "growing", "paged"};
    return names[r];
}

int64_t reservation_slots(reservation r, const reserved_seq *s, int32_t max_len, int32_t page_tokens) {
    int64_t slots = 0;
    switch (r) {
    case RESERVE_MAX:
        slots = max_len;
        break;
    case RESERVE_POW2:
        slots = s->n_prompt + (int64_t)size_power_of_two((size_t)s->n_output);
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

quire_err first_fit_open(int64_t size, int32_t cap, first_fit *out) {
    *out = (first_fit){.size = size, .cap = cap, .pieces = mem_new((size_t)cap, sizeof *out->pieces)};
    return out->pieces != NULL ? QUIRE_OK : QUIRE_NO_MEMORY;
}

void first_fit_close(first_fit *f) {
    mem_free(f->pieces);
    *f = (first_fit){0};
}

bool first_fit_take(first_fit *f, int32_t owner, int64_t n, int64_t *first) {
    int64_t from = 0;
    int32_t i = 0;
    while (i < f->n && f->pieces[i].first - from < n) {
        from = f->pieces[i].first + f->pieces[i].n;
        i++;
    }
    if (f->n == f->cap || f->size - from < n) {
        return false;
    }
    memmove(&f->pieces[i + 1], &f->pieces[i], (size_t)(f->n - i) * sizeof *f->pieces);
    f->pieces[i] = (struct piece){from, n, owner};
    f->n++;
    *first = from;
    return true;
}

void first_fit_rename(first_fit *f, int32_t from, int32_t to) {
    for (int32_t i = 0; i < f->n; i++) {
        f->pieces[i].owner = f->pieces[i].owner == from ? to : f->pieces[i].owner;
    }
}

void first_fit_give(first_fit *f, int32_t owner) {
    int32_t kept = 0;
    for (int32_t i = 0; i < f->n; i++) {
        if (f->pieces[i].owner != owner) {
            f->pieces[kept++] = f->pieces[i];
        }
    }
    f->n = kept;
}

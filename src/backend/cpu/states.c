/* Recurrent states in pages, and how their work is split into tasks. */
#include <string.h>

#include "backend/cpu/states.h"

/* Address of a part in the state pages of a sequence or snapshot. */
static void *states_part_at(const cpu_backend *b, state_part p, const int32_t *pages) {
    const kv_planes *planes = &b->layout.caches[p.cache];
    int32_t page = 0;
    const int64_t offset = kv_state_unit(planes, p.unit, &page) + p.first * planes->state.element_bytes;
    return b->kv + (int64_t)pages[page] * b->layout.page_bytes + offset;
}

static const int32_t *states_pages_of(const cpu_backend *b, state_part p, const batch_seq *s) {
    return s->pages[b->layout.caches[p.cache].group];
}

static void states_store(const cpu_backend *b, state_part p, const int32_t *pages, const float *from) {
    void *to = states_part_at(b, p, pages);
    if (cpu_state_rounds(b, p.cache)) {
        b->math->narrow(DTYPE_BF16, from, (int32_t)p.n, to);
    } else if (to != from) {
        memcpy(to, from, (size_t)p.n * sizeof *from);
    }
}

float *cpu_state_begin(const cpu_backend *b, state_part p, const batch_seq *s, float *copy) {
    void *stored = states_part_at(b, p, states_pages_of(b, p, s));
    float *state = cpu_state_rounds(b, p.cache) ? copy : stored;
    if (b->batch->positions[(int64_t)s->row0 * b->batch->n_axes] == 0) {
        memset(state, 0, (size_t)p.n * sizeof *state);
    } else if (cpu_state_rounds(b, p.cache)) {
        b->math->widen(stored, (int32_t)p.n, state);
    }
    return state;
}

void cpu_state_end(const cpu_backend *b, state_part p, const batch_seq *s, const float *state) {
    states_store(b, p, states_pages_of(b, p, s), state);
}

int32_t cpu_state_stretch(const batch_seq *s, int32_t row, int32_t most, int32_t *snapshot) {
    int32_t n = s->n_rows - row < most ? s->n_rows - row : most;
    while (*snapshot < s->n_snapshots && s->snapshots[*snapshot].row < row) {
        (*snapshot)++;
    }
    if (*snapshot < s->n_snapshots && s->snapshots[*snapshot].row - row < n) {
        n = s->snapshots[*snapshot].row - row + 1;
    }
    return n;
}

void cpu_state_copy(const cpu_backend *b, state_part p, const batch_seq *s, int32_t snapshot, int32_t row,
                    const float *from) {
    for (; snapshot < s->n_snapshots && s->snapshots[snapshot].row == row; snapshot++) {
        states_store(b, p, s->snapshots[snapshot].pages, from);
    }
}

float *cpu_state_scratch(const cpu_backend *b, int32_t worker) {
    return b->state_scratch + (size_t)worker * b->state_stride;
}

float *cpu_state_copies(const cpu_backend *b, int32_t worker) {
    return b->layout.types.state == DTYPE_BF16 ? cpu_state_scratch(b, worker) + b->state_copies : NULL;
}

int32_t cpu_state_share(const cpu_backend *b, int32_t n_units, int64_t work) {
    enum { LEAST_WORK = 1 << 14, TASKS_A_WORKER = 4 };
    const int64_t least = (LEAST_WORK + work - 1) / work;
    const int32_t share = n_units / (TASKS_A_WORKER * thread_pool_size(b->thread_pool));
    return share > least ? share : least < n_units ? (int32_t)least : n_units;
}

void cpu_state_run(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_tasks) {
    if (n_tasks == 1) {
        fn(context, 0, 0);
    } else {
        thread_pool_run(b->thread_pool, fn, context, n_tasks);
    }
}

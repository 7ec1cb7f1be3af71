/* Recurrent states in pages: location of a unit, initial value, and snapshots. One task
 * at a time works on a unit. */
#ifndef CPU_STATES_H
#define CPU_STATES_H

#include "backend/cpu/cpu.h"

/* Part of a unit: n floats from `first` on. */
typedef struct state_part {
    int32_t cache, unit;
    int64_t first, n;
} state_part;

/* Whether a cache's states are stored as bf16 and rounded after each row. */
static inline bool cpu_state_rounds(const cpu_backend *b, int32_t cache) {
    return b->layout.caches[cache].state.element_bytes == 2;
}

/* A part of a sequence's state before its rows; zeros if the first row is at position 0.
 * Points into the sequence's pages or, if states are bf16, to `copy`, p.n floats. */
float *cpu_state_begin(const cpu_backend *b, state_part p, const batch_seq *s, float *copy);
/* Writes a part back to the sequence's pages, if it is a copy. */
void cpu_state_end(const cpu_backend *b, state_part p, const batch_seq *s, const float *state);
/* Number of the sequence's rows from `row` on, at most `most`, up to the next due
 * snapshot. *snapshot, initially 0, advances to that snapshot. */
int32_t cpu_state_stretch(const batch_seq *s, int32_t row, int32_t most, int32_t *snapshot);
/* Copies a part's floats to every snapshot due after row `row`, starting at number
 * `snapshot`. */
void cpu_state_copy(const cpu_backend *b, state_part p, const batch_seq *s, int32_t snapshot, int32_t row,
                    const float *from);

/* A worker's scratch: STATE_SCRATCH floats per 16 floats of the largest unit, which has
 * at least d_key or N groups of 16. */
float *cpu_state_scratch(const cpu_backend *b, int32_t worker);
/* A worker's memory for copies in cpu_state_begin, as large as the largest unit.
 * Undefined if no states are bf16. */
float *cpu_state_copies(const cpu_backend *b, int32_t worker);

/* Units per task, for n_units units of `work` elements each: a few tasks per worker, but
 * no tiny ones. */
int32_t cpu_state_share(const cpu_backend *b, int32_t n_units, int64_t work);
/* Runs the tasks, on the thread pool if there are several. */
void cpu_state_run(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_tasks);

#endif

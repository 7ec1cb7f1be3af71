/* Recurrent states in pages: where a unit lies, what it begins with, and what a snapshot
 * of it gets. A unit is worked on by one task at a time. */
#ifndef CPU_STATES_H
#define CPU_STATES_H

#include "backend/cpu/cpu.h"

/* A part of a unit of a cache: n floats from `first` on. */
typedef struct state_part {
    int32_t cache, unit;
    int64_t first, n;
} state_part;

/* Whether a cache's states are rounded to bf16 after each row; in pages they are of that
 * type then. */
static inline bool cpu_state_rounds(const cpu_backend *b, int32_t cache) {
    return b->layout.caches[cache].state.element_bytes == 2;
}

/* A part of a sequence's state as its rows find it: zeros where the first is at position
 * 0. It lies in the sequence's pages, or where states are bf16 in `copy`, p.n floats. */
float *cpu_state_begin(const cpu_backend *b, state_part p, const batch_seq *s, float *copy);
/* Writes a part back to the sequence's pages, unless it lies there. */
void cpu_state_end(const cpu_backend *b, state_part p, const batch_seq *s, const float *state);
/* How many of the sequence's rows from `row` on, at most `most`, are computed before a
 * copy of its state is due. *snapshot, 0 for the first rows, is moved to that of the
 * copy, or to a later one. */
int32_t cpu_state_stretch(const batch_seq *s, int32_t row, int32_t most, int32_t *snapshot);
/* Copies a part's floats to every snapshot after row `row`, from number `snapshot`
 * on. */
void cpu_state_copy(const cpu_backend *b, state_part p, const batch_seq *s, int32_t snapshot, int32_t row,
                    const float *from);

/* A worker's scratch: STATE_SCRATCH floats for each 16 of the largest unit, which has
 * d_key or N of them at least. */
float *cpu_state_scratch(const cpu_backend *b, int32_t worker);
/* A worker's memory for cpu_state_begin's copies, of the largest unit. Undefined where
 * no states are bf16. */
float *cpu_state_copies(const cpu_backend *b, int32_t worker);

/* How many of n_units units, `work` elements each, a task takes: a few tasks a worker,
 * but none too small. */
int32_t cpu_state_share(const cpu_backend *b, int32_t n_units, int64_t work);
/* Runs the tasks, in the thread pool where there are several. */
void cpu_state_run(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_tasks);

#endif

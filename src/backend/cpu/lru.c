/* A gated linear recurrence (backend.h's lru). A task processes some units of 16 channels
 * over the rows of all sequences, so that the unit's gates stay in L1. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/states.h"

typedef struct lru_job {
    const cpu_backend *b;
    const lru_use *use;
    int32_t n_units, task_units;
} lru_job;

/* Processes one unit over a sequence's rows. */
static void lru_sequence(const lru_job *job, const batch_seq *s, int32_t unit) {
    const cpu_backend *b = job->b;
    const lru_use *use = job->use;
    const int32_t width = use->n_channels / use->n_blocks, per_block = job->n_units / use->n_blocks,
                  block = unit / per_block * width, first = unit % per_block * STATE_LANES;
    const state_part part = {use->cache, unit, 0, STATE_LANES};
    float copy[STATE_LANES], *state = cpu_state_begin(b, part, s, copy);
    for (int32_t row = 0, n, snapshot = 0; row < s->n_rows; row += n) {
        n = cpu_state_stretch(s, row, s->n_rows, &snapshot);
        const int32_t at = s->row0 + row;
        const float *x = cpu_act_row(b, use->x, at) + block;
        b->math->state_lru(&(lru_rows){
            .n_rows = n,
            .width = width,
            .n_channels = width - first < STATE_LANES ? width - first : STATE_LANES,
            .rounds = cpu_state_rounds(b, use->cache),
            .begins = row == 0 && b->batch->positions[(int64_t)at * b->batch->n_axes] == 0,
            .block = x,
            .x = x + first,
            .gates = use->gates + (int64_t)unit * (width + 1) * 2 * STATE_LANES,
            .rate = use->rate + (int64_t)unit * STATE_LANES,
            .x_stride = b->buffers[use->x.id].width,
            .out_stride = b->buffers[use->out.id].width,
            .out = cpu_act_row(b, use->out, at) + block + first,
            .state = state,
        });
        cpu_state_copy(b, part, s, snapshot, row + n - 1, state);
    }
    cpu_state_end(b, part, s, state);
}

static void lru_task(void *context, int32_t task, int32_t worker) {
    const lru_job *job = context;
    const int32_t first = task * job->task_units, left = job->n_units - first,
                  n = left < job->task_units ? left : job->task_units;
    (void)worker;
    for (int32_t unit = first; unit < first + n; unit++) {
        for (int32_t i = 0; i < job->b->batch->n_seqs; i++) {
            lru_sequence(job, &job->b->batch->seqs[i], unit);
        }
    }
}

void cpu_lru(backend *base, const lru_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    lru_job job = {.b = b, .use = use, .n_units = lru_units(use->n_channels, use->n_blocks)};
    assert(use->x.id != use->out.id && use->n_channels % use->n_blocks == 0);
    assert(b->buffers[use->x.id].width == use->n_channels && !b->buffers[use->x.id].is_quantised);
    assert(b->buffers[use->out.id].width == use->n_channels);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    assert(b->layout.caches[use->cache].state.n_units >= job.n_units);
    b->buffers[use->out.id].is_quantised = false;
    job.task_units = cpu_state_share(
        b, job.n_units, (int64_t)b->batch->n_rows * (use->n_channels / use->n_blocks) * 2 * STATE_LANES);
    cpu_state_run(b, lru_task, &job, (job.n_units + job.task_units - 1) / job.task_units);
}

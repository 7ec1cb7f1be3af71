/* Mamba's selective scan. A task processes some units of 16 channels over the rows of all
 * sequences. It transposes the units' coefficients once, from [channel, state] to lane
 * order. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/states.h"

typedef struct scan_job {
    const cpu_backend *b;
    const scan_use *use;
    int32_t n_units, task_units;
} scan_job;

/* Sets to[n_states][16] to the coefficients of channels `first`.., 0 past the last. */
static void turn_coefficients(const scan_use *use, int32_t first, int32_t n_channels, float *to) {
    for (int32_t lane = 0; lane < STATE_LANES; lane++) {
        const float *a = use->a + (int64_t)(first + lane) * use->n_states;
        for (int32_t i = 0; i < use->n_states; i++) {
            to[i * STATE_LANES + lane] = lane < n_channels ? a[i] : 0.0f;
        }
    }
}

/* Processes one unit with coefficients a over a sequence's rows. */
static void scan_sequence(const scan_job *job, const batch_seq *s, int32_t unit, const float *a,
                          float *copy) {
    const cpu_backend *b = job->b;
    const scan_use *use = job->use;
    const int32_t first = unit * STATE_LANES, left = use->n_channels - first;
    const state_part part = {use->cache, unit, 0, (int64_t)use->n_states * STATE_LANES};
    float *state = cpu_state_begin(b, part, s, copy);
    for (int32_t row = 0, n, snapshot = 0; row < s->n_rows; row += n) {
        n = cpu_state_stretch(s, row, s->n_rows, &snapshot);
        const int32_t at = s->row0 + row;
        b->math->state_scan(&(scan_rows){
            .n_rows = n,
            .n_states = use->n_states,
            .rounds = cpu_state_rounds(b, use->cache),
            .n_channels = left < STATE_LANES ? left : STATE_LANES,
            .x = cpu_act_row(b, use->x, at) + first,
            .dt = cpu_act_row(b, use->dt, at) + first,
            .b = cpu_act_row(b, use->b, at),
            .c = cpu_act_row(b, use->c, at),
            .a = a,
            .dt_bias = use->dt_bias != NULL ? use->dt_bias + first : NULL,
            .skip = use->skip != NULL ? use->skip + first : NULL,
            .x_stride = b->buffers[use->x.id].width,
            .dt_stride = b->buffers[use->dt.id].width,
            .b_stride = b->buffers[use->b.id].width,
            .c_stride = b->buffers[use->c.id].width,
            .out_stride = b->buffers[use->out.id].width,
            .out = cpu_act_row(b, use->out, at) + first,
            .state = state,
        });
        cpu_state_copy(b, part, s, snapshot, row + n - 1, state);
    }
    cpu_state_end(b, part, s, state);
}

static void scan_task(void *context, int32_t task, int32_t worker) {
    const scan_job *job = context;
    const scan_use *use = job->use;
    const int32_t first = task * job->task_units, left = job->n_units - first,
                  n = left < job->task_units ? left : job->task_units;
    float *a = cpu_state_scratch(job->b, worker);
    for (int32_t unit = first; unit < first + n; unit++) {
        const int32_t channels = use->n_channels - unit * STATE_LANES;
        turn_coefficients(use, unit * STATE_LANES, channels < STATE_LANES ? channels : STATE_LANES, a);
        for (int32_t i = 0; i < job->b->batch->n_seqs; i++) {
            scan_sequence(job, &job->b->batch->seqs[i], unit, a, cpu_state_copies(job->b, worker));
        }
    }
}

void cpu_scan(backend *base, const scan_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    scan_job job = {.b = b, .use = use, .n_units = (use->n_channels + STATE_LANES - 1) / STATE_LANES};
    assert(b->buffers[use->x.id].width == use->n_channels && !b->buffers[use->x.id].is_quantised);
    assert(b->buffers[use->dt.id].width == use->n_channels && !b->buffers[use->dt.id].is_quantised);
    assert(b->buffers[use->b.id].width == use->n_states && !b->buffers[use->b.id].is_quantised);
    assert(b->buffers[use->c.id].width == use->n_states && !b->buffers[use->c.id].is_quantised);
    assert(b->buffers[use->out.id].width == use->n_channels);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    assert(b->layout.caches[use->cache].state.n_units >= job.n_units);
    b->buffers[use->out.id].is_quantised = false;
    job.task_units = cpu_state_share(b, job.n_units, (int64_t)b->batch->n_rows * STATE_LANES * use->n_states);
    cpu_state_run(b, scan_task, &job, (job.n_units + job.task_units - 1) / job.task_units);
}

/* Linear attention. A task processes some 16-column groups of one head over the rows of
 * one sequence. It prepares a few rows at a time (norms of q and k, decays, beta) and
 * passes them to the kernel, which keeps the columns of one or two groups in L1. Every
 * column has its own sums, so how heads are split changes no bit. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/math.h"
#include "backend/cpu/states.h"
#include "base/mem.h"

typedef struct linear_attention_job {
    const cpu_backend *b;
    const linear_attention_use *use;
    int32_t n_groups, n_cuts; /* 16-column groups of a head; tasks per head */
} linear_attention_job;

/* Prepared rows of a head. */
typedef struct head_rows {
    float *q, *k, *a, *ak; /* [STATE_ROWS, Dk]; a: [STATE_ROWS] unless the decay is per channel */
    float t[STATE_ROWS], beta[STATE_ROWS];
} head_rows;

static void prepare_decays(const linear_attention_job *job, int32_t row, int32_t n, int32_t head,
                           head_rows *to) {
    const linear_attention_use *use = job->use;
    const decay_form form = {use->decay_kind, use->rate[head], use->lower, use->t_min, use->t_max};
    const int32_t per_row = use->per_channel ? use->d_key : 1;
    if (use->decay.id == BUFFER_NONE.id) {
        float a;
        const float product = -form.rate;
        job->b->math->exp(&product, 1, &a);
        for (int32_t r = 0; r < n; r++) {
            to->t[r] = 1.0f;
        }
        for (int32_t i = 0; i < n * per_row; i++) {
            to->a[i] = a;
        }
        return;
    }
    for (int32_t r = 0; r < n; r++) {
        const float *x = cpu_act_row(job->b, use->decay, row + r) + (int64_t)head * per_row;
        for (int32_t i = 0; i < per_row; i++) {
            to->a[r * per_row + i] =
                use->decay_bias != NULL ? x[i] + use->decay_bias[(int64_t)head * per_row + i] : x[i];
        }
    }
    if (use->per_channel) { /* t is not used then: ak serves as its scratch */
        job->b->math->state_decays(&form, to->a, n * per_row, to->ak, to->a);
    } else {
        job->b->math->state_decays(&form, to->a, n, to->t, to->a);
    }
}

/* Prepares n rows from `row` on. */
static void prepare_rows(const linear_attention_job *job, int32_t row, int32_t n, int32_t head,
                         head_rows *to) {
    const cpu_backend *b = job->b;
    const linear_attention_use *use = job->use;
    const int32_t d = use->d_key,
                  key_head = use->cyclic ? head % use->n_key_heads : head / (use->n_heads / use->n_key_heads);
    prepare_decays(job, row, n, head, to);
    for (int32_t r = 0; r < n; r++) {
        const float *q = cpu_act_row(b, use->q, row + r) + (int64_t)key_head * d,
                    *k = cpu_act_row(b, use->k, row + r) + (int64_t)key_head * d;
        b->math->state_query(q, use->qk_eps, use->q_scale, d, to->q + r * d);
        b->math->state_key(k, use->qk_eps, to->a + (use->per_channel ? r * d : r), use->per_channel, d,
                           to->k + r * d, to->ak + r * d);
        if (use->beta.id != BUFFER_NONE.id) {
            to->beta[r] = cpu_act_row(b, use->beta, row + r)[head];
        }
    }
    if (use->beta.id != BUFFER_NONE.id) {
        b->math->activate(ACT_SIGMOID, to->beta, n, to->beta);
        b->math->scale_cap(use->beta_scale, 0.0f, n, to->beta);
    }
}

static void fetch_floats(const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i += MEM_ALIGN / (int32_t)sizeof *x) {
        __builtin_prefetch(x + i, 0, 2);
    }
}

/* Prefetches n rows from `row` on. A head's rows are far apart in memory, so each read
 * would stall. */
static void fetch_rows(const linear_attention_job *job, int32_t row, int32_t n, int32_t head, int32_t first,
                       int32_t n_columns) {
    const cpu_backend *b = job->b;
    const linear_attention_use *use = job->use;
    const int32_t d = use->d_key, key_head = head / (use->n_heads / use->n_key_heads);
    for (int32_t r = row; r < row + n; r++) {
        fetch_floats(cpu_act_row(b, use->q, r) + (int64_t)key_head * d, d);
        fetch_floats(cpu_act_row(b, use->k, r) + (int64_t)key_head * d, d);
        fetch_floats(cpu_act_row(b, use->v, r) + (int64_t)head * use->d_value + first, n_columns);
        if (use->per_channel && use->decay.id != BUFFER_NONE.id) {
            fetch_floats(cpu_act_row(b, use->decay, r) + (int64_t)head * d, d);
        }
    }
}

/* Processes columns first .. first + n_columns of a head over a sequence's rows. */
static void run_columns(const linear_attention_job *job, const batch_seq *s, int32_t head, int32_t first,
                        int32_t n_columns, int32_t worker) {
    const cpu_backend *b = job->b;
    const linear_attention_use *use = job->use;
    const int32_t d = use->d_key, padded = (n_columns + STATE_LANES - 1) / STATE_LANES * STATE_LANES;
    const state_part part = {use->cache, head, (int64_t)first * d, (int64_t)padded * d};
    float *state = cpu_state_begin(b, part, s, cpu_state_copies(b, worker)),
          *scratch = cpu_state_scratch(b, worker);
    head_rows rows = {.q = scratch,
                      .k = scratch + STATE_ROWS * d,
                      .a = scratch + 2 * STATE_ROWS * d,
                      .ak = scratch + 3 * STATE_ROWS * d};
    const int64_t column = (int64_t)head * use->d_value + first;
    for (int32_t row = 0, n, snapshot = 0; row < s->n_rows; row += n) {
        n = cpu_state_stretch(s, row, STATE_ROWS, &snapshot);
        const int32_t next = row + n, left = s->n_rows - next;
        fetch_rows(job, s->row0 + next, left < STATE_ROWS ? left : STATE_ROWS, head, first, n_columns);
        prepare_rows(job, s->row0 + row, n, head, &rows);
        b->math->state_rows(&(state_rows){
            .n_rows = n,
            .d_key = d,
            .stride = d,
            .n_columns = n_columns,
            .q = rows.q,
            .k = rows.k,
            .ak = rows.ak,
            .a = rows.a,
            .per_channel = use->per_channel,
            .has_skip = use->skip != NULL,
            .rounds = cpu_state_rounds(b, use->cache),
            .beta = use->beta.id != BUFFER_NONE.id ? rows.beta : NULL,
            .t = use->values_by_time ? rows.t : NULL,
            .skip = use->skip != NULL ? use->skip[head] : 0.0f,
            .v = cpu_act_row(b, use->v, s->row0 + row) + column,
            .v_stride = b->buffers[use->v.id].width,
            .out_stride = b->buffers[use->out.id].width,
            .out = cpu_act_row(b, use->out, s->row0 + row) + column,
            .state = state,
        });
        cpu_state_copy(b, part, s, snapshot, row + n - 1, state);
    }
    cpu_state_end(b, part, s, state);
}

static void linear_attention_task(void *context, int32_t task, int32_t worker) {
    const linear_attention_job *job = context;
    const linear_attention_use *use = job->use;
    const int32_t cut = task % job->n_cuts, head = task / job->n_cuts % use->n_heads,
                  seq = task / job->n_cuts / use->n_heads;
    const int32_t first = cut * job->n_groups / job->n_cuts * STATE_LANES,
                  end = (cut + 1) * job->n_groups / job->n_cuts * STATE_LANES;
    run_columns(job, &job->b->batch->seqs[seq], head, first,
                (end < use->d_value ? end : use->d_value) - first, worker);
}

/* Number of tasks per head, for a few tasks per worker. */
static int32_t cut_heads(const cpu_backend *b, const linear_attention_use *use, int32_t n_groups) {
    enum { TASKS_A_WORKER = 4 };
    const int32_t wanted = TASKS_A_WORKER * thread_pool_size(b->thread_pool),
                  n_heads = use->n_heads * b->batch->n_seqs;
    const int32_t cuts = (wanted + n_heads - 1) / n_heads;
    return cuts < n_groups ? cuts : n_groups;
}

static bool is_f32(const cpu_backend *b, buffer a, int32_t width) {
    return b->buffers[a.id].width == width && !b->buffers[a.id].is_quantised;
}

void cpu_linear_attention(backend *base, const linear_attention_use *use) {
    cpu_backend *b = (cpu_backend *)base;
    assert(use->n_heads % use->n_key_heads == 0 && use->rate != NULL);
    assert(is_f32(b, use->q, use->n_key_heads * use->d_key));
    assert(is_f32(b, use->k, use->n_key_heads * use->d_key));
    assert(is_f32(b, use->v, use->n_heads * use->d_value));
    assert(use->decay.id == BUFFER_NONE.id ||
           is_f32(b, use->decay, use->n_heads * (use->per_channel ? use->d_key : 1)));
    assert(use->beta.id == BUFFER_NONE.id || is_f32(b, use->beta, use->n_heads));
    assert(b->buffers[use->out.id].width == use->n_heads * use->d_value);
    assert(b->layout.caches[use->cache].kind == LAYER_STATE);
    assert(!(use->values_by_time && use->per_channel));
    b->buffers[use->out.id].is_quantised = false;
    linear_attention_job job = {
        .b = b, .use = use, .n_groups = (use->d_value + STATE_LANES - 1) / STATE_LANES};
    job.n_cuts = cut_heads(b, use, job.n_groups);
    cpu_state_run(b, linear_attention_task, &job, b->batch->n_seqs * use->n_heads * job.n_cuts);
}

/* The CPU backend: instruction set, op table and buffers. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/pack_weights.h"
#include "backend/cpu/placement.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/topology.h"

static void cpu_close(backend *b) {
    cpu_backend *c = (cpu_backend *)b;
    if (c == NULL) {
        return;
    }
    cpu_linear_close(c);
    cpu_own_free(c);
    thread_pool_close(c->thread_pool);
    mem_free(c->kv);
    mem_free(c);
}

static const char *cpu_describe(const backend *b) {
    return ((const cpu_backend *)b)->description;
}

static int64_t cpu_weight_bytes(const backend *b) {
    return ((const cpu_backend *)b)->weight_bytes;
}

static int64_t cpu_step_bytes(const backend *b) {
    return ((const cpu_backend *)b)->step_bytes;
}

static buffer cpu_act_reserve(backend *b, int32_t width) {
    cpu_backend *c = (cpu_backend *)b;
    if (c->n_acts == CPU_MAX_BUFFERS || width < 1) {
        return BUFFER_NONE;
    }
    c->buffers[c->n_acts].width = width;
    return (buffer){c->n_acts++};
}

/* Allocates [rows, width] floats, counted in step_bytes. */
static quire_err rows_new(cpu_backend *b, int32_t rows, int32_t width, float **out) {
    size_t n;
    if (!size_mul((size_t)rows, (size_t)width, &n)) {
        return QUIRE_TOO_LARGE;
    }
    *out = cpu_own(b, n, sizeof **out);
    TRY(mem_check(*out));
    b->step_bytes += (int64_t)(n * sizeof **out);
    return QUIRE_OK;
}

/* Allocates a scratch row per worker, each on its own cache lines. */
static quire_err cpu_scratch_open(cpu_backend *b) {
    int32_t widest = 0;
    for (int32_t i = 0; i < b->n_acts; i++) {
        widest = b->buffers[i].width > widest ? b->buffers[i].width : widest;
    }
    b->scratch_stride =
        size_align((size_t)widest * sizeof *b->scratch_rows, MEM_ALIGN) / sizeof *b->scratch_rows;
    size_t n = (size_t)thread_pool_size(b->thread_pool) * b->scratch_stride;
    b->scratch_rows = cpu_own(b, n, sizeof *b->scratch_rows);
    if (b->scratch_rows == NULL) {
        return QUIRE_NO_MEMORY;
    }
    b->step_bytes += (int64_t)(n * sizeof *b->scratch_rows);
    return QUIRE_OK;
}

/* Allocates the scratch of recurrences (states.h); none in a layout without states. */
static quire_err state_scratch_open(cpu_backend *b) {
    int64_t largest = 0;
    for (int32_t i = 0; i < b->layout.n_caches; i++) {
        const kv_planes *p = &b->layout.caches[i];
        if (p->kind == LAYER_STATE && p->state.unit_bytes / p->state.element_bytes > largest) {
            largest = p->state.unit_bytes / p->state.element_bytes;
        }
    }
    int64_t width = largest / STATE_LANES * STATE_SCRATCH;
    b->state_copies = (size_t)width;
    width += b->layout.types.state == DTYPE_BF16 ? largest : 0;
    b->state_stride = (size_t)width;
    return largest == 0 ? QUIRE_OK
                        : rows_new(b, thread_pool_size(b->thread_pool), (int32_t)width, &b->state_scratch);
}

static quire_err buffers_open(cpu_backend *b) {
    for (int32_t i = 0; i < b->n_acts; i++) {
        TRY(rows_new(b, b->limits.max_rows, b->buffers[i].width, &b->buffers[i].rows));
    }
    TRY(cpu_scratch_open(b));
    if (b->n_vocab > 0) {
        TRY(rows_new(b, b->limits.max_out, b->n_vocab, &b->logits));
    }
    TRY(cpu_linear_step_open(b));
    TRY(cpu_experts_step_open(b));
    TRY(cpu_adapter_step_open(b));
    TRY(cpu_rope_step_open(b));
    TRY(state_scratch_open(b));
    return cpu_attention_step_open(b);
}

static quire_err cpu_step_open(backend *b, const step_limits *limits, const kv_layout *layout,
                               int32_t n_vocab, quire_error *err) {
    cpu_backend *c = (cpu_backend *)b;
    assert(c->limits.max_rows == 0);
    if (limits->max_rows < 1 || limits->max_out < 0 || limits->max_partials < 0 || n_vocab < 0) {
        return err_set(err, QUIRE_INVALID, -1, "a step of %d rows, %d logits rows and %d partials",
                       limits->max_rows, limits->max_out, limits->max_partials);
    }
    c->limits = *limits;
    c->n_vocab = n_vocab;
    if (layout != NULL) {
        c->layout = *layout;
    }
    quire_err e = buffers_open(c);
    return err_set(err, e, -1, "out of memory for a step of %d rows; lower --max-num-batched-tokens",
                   limits->max_rows);
}

#ifdef QUIRE_DEBUG
/* Fills the step's rows with NaN, so that an element that an op fails to write never
 * exposes a value of an earlier step, perhaps another tenant's. */
static void poison_rows(cpu_backend *b) {
    for (int32_t i = 0; i < b->n_acts; i++) {
        memset(b->buffers[i].rows, 0xFF,
               sizeof(float) * (size_t)b->batch->n_rows * (size_t)b->buffers[i].width);
    }
    if (b->logits != NULL) {
        memset(b->logits, 0xFF, sizeof(float) * (size_t)b->batch->n_out * (size_t)b->n_vocab);
    }
}
#endif

static void cpu_step_begin(backend *b, const batch *step) {
    cpu_backend *c = (cpu_backend *)b;
    assert(step->n_rows <= c->limits.max_rows && step->n_out <= c->limits.max_out &&
           step->n_partials <= c->limits.max_partials);
    c->batch = step;
    c->step++;
    cpu_adapter_begin(c);
    cpu_attention_begin(c);
#ifdef QUIRE_DEBUG
    poison_rows(c);
#endif
}

/* Nothing to wait for: ops run when they are called. */
static void cpu_step_wait(backend *b) {
    ((cpu_backend *)b)->batch = NULL;
}

static float *cpu_logits(backend *b, int32_t i) {
    cpu_backend *c = (cpu_backend *)b;
    assert(i >= 0 && i < c->limits.max_out && c->logits != NULL);
    return c->logits + (int64_t)i * c->n_vocab;
}

static void cpu_act_read(backend *b, buffer a, int32_t row0, int32_t n, float *out) {
    const cpu_backend *c = (const cpu_backend *)b;
    memcpy(out, cpu_act_row(c, a, row0), sizeof *out * (size_t)n * (size_t)c->buffers[a.id].width);
}

static void cpu_act_write(backend *b, buffer a, int32_t row0, int32_t n, const float *in) {
    cpu_backend *c = (cpu_backend *)b;
    c->buffers[a.id].is_quantised = false;
    memcpy(cpu_act_row(c, a, row0), in, sizeof *in * (size_t)n * (size_t)c->buffers[a.id].width);
}

/* Rows processed in tasks of task_rows each. */
typedef struct shared_rows {
    thread_pool_fn fn;
    void *context;
    int32_t n_rows, task_rows;
} shared_rows;

static void run_task_rows(void *context, int32_t task, int32_t worker) {
    const shared_rows *s = context;
    const int32_t first = task * s->task_rows, left = s->n_rows - first,
                  end = first + (left < s->task_rows ? left : s->task_rows);
    for (int32_t row = first; row < end; row++) {
        s->fn(s->context, row, worker);
    }
}

void cpu_share_rows(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_rows) {
    enum { MOST_ROWS = 16, TASKS_A_WORKER = 4 };
    const int32_t share = n_rows / (TASKS_A_WORKER * thread_pool_size(b->thread_pool));
    shared_rows s = {.fn = fn,
                     .context = context,
                     .n_rows = n_rows,
                     .task_rows = share < 1           ? 1
                                  : share < MOST_ROWS ? share
                                                      : MOST_ROWS};
    thread_pool_run(b->thread_pool, run_task_rows, &s, (n_rows + s.task_rows - 1) / s.task_rows);
}

void cpu_run_rows(const cpu_backend *b, thread_pool_fn fn, void *context, int32_t n_rows) {
    if (n_rows > CPU_SERIAL_ROWS) {
        cpu_share_rows(b, fn, context, n_rows);
        return;
    }
    for (int32_t row = 0; row < n_rows; row++) {
        fn(context, row, 0);
    }
}

static void cpu_run_tasks(backend *b, thread_pool_fn fn, void *context, int32_t n_tasks) {
    thread_pool_run(((cpu_backend *)b)->thread_pool, fn, context, n_tasks);
}

static int32_t cpu_n_workers(const backend *b) {
    return thread_pool_size(((const cpu_backend *)b)->thread_pool);
}

static void cpu_share_threads(backend *b, const backend *with) {
    cpu_backend *c = (cpu_backend *)b;
    assert(c->limits.max_rows == 0);
    thread_pool *shared = thread_pool_hold(((const cpu_backend *)with)->thread_pool);
    thread_pool_close(c->thread_pool);
    c->thread_pool = shared;
}

static void cpu_enter(backend *b) {
    if (!thread_pool_enter(((cpu_backend *)b)->thread_pool)) {
        log_line(LOG_WARN,
                 "the system did not bind the first compute thread; it runs where the system puts it");
    }
}

static void cpu_leave(backend *b) {
    thread_pool_leave(((cpu_backend *)b)->thread_pool);
}

static const backend_ops CPU_OPS = {
    .name = "cpu",
    .packing = PACK_VERSION,
    .close = cpu_close,
    .describe = cpu_describe,
    .linear_load = cpu_linear_load,
    .linear_packed = cpu_linear_packed,
    .experts_load = cpu_experts_load,
    .head_linears_load = cpu_head_linears_load,
    .norm_load = cpu_norm_load,
    .embedding_load = cpu_embedding_load,
    .embedding_of = cpu_embedding_of,
    .embedding_rows = cpu_embedding_rows,
    .conv_load = cpu_conv_load,
    .rope_load = cpu_rope_load,
    .weight_bytes = cpu_weight_bytes,
    .adapter_load = cpu_adapter_load,
    .adapter_blend = cpu_adapter_blend,
    .adapter_free = cpu_adapter_free,
    .adapter_bytes = cpu_adapter_bytes,
    .linear_row = cpu_linear_row,
    .choose_reserve = cpu_choose_reserve,
    .buffer_reserve = cpu_act_reserve,
    .step_open = cpu_step_open,
    .step_bytes = cpu_step_bytes,
    .kv_open = cpu_kv_open,
    .kv_discard = cpu_kv_discard,
    .kv_copy = cpu_kv_copy,
    .kv_move = cpu_kv_move,
    .kv_gather = cpu_kv_gather,
    .kv_read_page = cpu_kv_read_page,
    .kv_write_page = cpu_kv_write_page,
    .step_begin = cpu_step_begin,
    .step_wait = cpu_step_wait,
    .embed = cpu_embed,
    .norm_linears = cpu_norm_linears,
    .kv_store = cpu_kv_store,
    .latent_store = cpu_latent_store,
    .attention = cpu_attention,
    .linear_add = cpu_linear_add,
    .feed_forward = cpu_feed_forward,
    .norm_add = cpu_norm_add,
    .norm_rows = cpu_norm_rows,
    .multiply = cpu_multiply,
    .scale_rows = cpu_scale_rows,
    .route = cpu_route,
    .experts = cpu_experts,
    .conv = cpu_conv,
    .linear_attention = cpu_linear_attention,
    .scan = cpu_scan,
    .head_products = cpu_head_products,
    .choose = cpu_choose,
    .lru = cpu_lru,
    .place = cpu_place,
    .pool = cpu_pool,
    .ngrams = cpu_ngrams,
    .hyper_weights = cpu_hyper_weights,
    .streams_read = cpu_streams_read,
    .streams_write = cpu_streams_write,
    .stream_gates = cpu_stream_gates,
    .head = cpu_head,
    .logits = cpu_logits,
    .argmax = cpu_argmax,
    .buffer_read = cpu_act_read,
    .buffer_write = cpu_act_write,
    .run_tasks = cpu_run_tasks,
    .n_workers = cpu_n_workers,
    .share_threads = cpu_share_threads,
    .enter = cpu_enter,
    .leave = cpu_leave,
    .trace = cpu_trace,
};

static bool is_several(uint64_t nodes) {
    return (nodes & (nodes - 1)) != 0;
}

/* The NUMA nodes over which memory is spread; 0: only one, or the system refuses. */
static uint64_t spread_nodes(const cpu_placement *p) {
    uint64_t there = numa_nodes(), nodes = is_several(there) ? there & p->nodes : 0;
    void *trial = nodes != 0 ? mem_new_huge(MEM_HUGE_BYTES, 1) : NULL;
    bool works = trial != NULL && numa_interleave(trial, MEM_HUGE_BYTES, nodes);
    mem_free(trial);
    /* the process may use only one node */
    if (!works && is_several(p->nodes) && (there == 0 || nodes != 0)) {
        log_line(LOG_WARN, "threads run on several memory nodes, but the system does not allow placing "
                           "memory (a container without CAP_SYS_NICE?)");
    }
    return works ? nodes : 0;
}

static void write_description(cpu_backend *b, const cpu_placement *p) {
    char bound[64] = "", spread[64] = "", list[40];
    if (p->is_bound) {
        cpu_mask cpus = {{0}};
        for (int32_t i = 0; i < p->n_threads; i++) {
            cpu_mask_add(&cpus, p->cpus[i]);
        }
        cpu_mask_print(&cpus, list, sizeof list);
        (void)snprintf(bound, sizeof bound, " bound to %s", list);
    }
    if (b->nodes != 0) {
        cpu_mask_print(&(cpu_mask){{b->nodes}}, list, sizeof list);
        (void)snprintf(spread, sizeof spread, ", memory on nodes %s", list);
    }
    (void)snprintf(b->description, sizeof b->description, "cpu, %s, %d thread%s%s%s", cpu_isa_name(b->isa),
                   p->n_threads, p->n_threads == 1 ? "" : "s", bound, spread);
}

/* Opens the thread pool and places threads and memory. */
static quire_err open_team(cpu_backend *b, const backend_options *options, quire_error *err) {
    cpu_mask allowed;
    topology all = {.n_cpus = 0};
    cpu_placement p;
    if (cpu_mask_get(pthread_self(), &allowed)) {
        topology_read("/sys", &allowed, &all);
    }
    TRY(cpu_placement_choose(options->cpu_bind, options->n_threads, thread_pool_cpus(), &all, &p, err));
    if (!p.is_bound && options->cpu_bind != NULL && strcmp(options->cpu_bind, "auto") == 0) {
        log_line(LOG_WARN,
                 "--cpu-bind auto: %d thread%s on %d core%s: none is bound; give a list of processors to "
                 "bind them",
                 p.n_threads, p.n_threads == 1 ? "" : "s", all.n_cores, all.n_cores == 1 ? "" : "s");
    }
    TRY(err_set(err, thread_pool_open(p.n_threads, &b->thread_pool), -1, "cannot start %d compute threads",
                p.n_threads));
    if (p.is_bound && !thread_pool_bind(b->thread_pool, p.cpus)) {
        return err_set(err, QUIRE_UNSUPPORTED, -1,
                       "the system did not bind compute threads to processors; leave --cpu-bind out");
    }
    b->nodes = spread_nodes(&p);
    write_description(b, &p);
    return QUIRE_OK;
}

static int64_t near_bytes(void) {
#ifdef _SC_LEVEL2_CACHE_SIZE
    long n = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return n > 0 ? n : 0;
#else
    return 0;
#endif
}

quire_err backend_cpu_open(const backend_options *options, backend **out, quire_error *err) {
    assert(options != NULL);
    cpu_isa isa = ISA_PLAIN;
    TRY(cpu_isa_choose(options->isa, &isa, err));
    cpu_backend *b = mem_new(1, sizeof *b);
    TRY(mem_check_for(b, "a backend", err));
    b->base = (backend){.ops = &CPU_OPS, .compute = options->compute};
    b->isa = isa;
    b->math = cpu_isa_math(isa);
    b->linear = cpu_isa_linear(isa);
    b->near_bytes = near_bytes();
    quire_err e = open_team(b, options, err);
    if (e != QUIRE_OK) {
        thread_pool_close(b->thread_pool);
        mem_free(b);
        return e;
    }
    *out = &b->base;
    return QUIRE_OK;
}

/* `quire bench states`: how fast recurrences are by themselves, beside what this machine
 * reads and computes at best in the same run: a token, bound by the bytes of its state,
 * and a prompt, bound by arithmetic. */

#include "backend/backend.h"
#include "base/rng.h"
#include "lab/bench/roofline.h"
#include "lab/commands/lab_commands.h"

typedef struct bench_states_options {
    cli_options cli;
    const char *isa;  /* instruction set */
    int state;        /* type of the states, a dtype */
    int32_t n_prompt; /* tokens of the prompt */
    int32_t n_threads, n_runs;
} bench_states_options;

LAB_DEFAULTS(bench_states, .isa = "auto", .n_prompt = 512, .n_runs = 20)

enum { MOST_LAYERS = 64, CACHES_BYTES = 128 << 20 /* layers take turns over at least this much */ };

/* Of linear attention the heads of values and of keys and a head's sides; of others
 * channels and taps or states. */
typedef struct states_case {
    const char *name, *shape;
    op_kind op;
    int32_t n_heads, n_key_heads, d_key, d_value;
    bool per_channel, is_delta;
} states_case;

static const states_case states_cases[] = {
    {"gated delta rule", "32 x 128 x 128", OP_LINEAR_ATTENTION, 32, 16, 128, 128, false, true},
    {"delta rule, a gate a channel", "32 x 128 x 128", OP_LINEAR_ATTENTION, 32, 32, 128, 128, true, true},
    {"Mamba-2", "128 x 128 x 64", OP_LINEAR_ATTENTION, 128, 8, 128, 64, false, false},
    {"scan", "8192 x 16", OP_SCAN, 8192, 0, 16, 0, false, false},
    {"convolution", "8192 x 4", OP_CONV, 8192, 0, 4, 0, false, false},
};
enum { N_CASES = sizeof states_cases / sizeof *states_cases };

/* A backend with a state in each of some layers. */
typedef struct states_stage {
    const states_case *c;
    backend *b;
    kv_layout layout;
    model_desc desc;
    int32_t n_layers, max_rows;
    int32_t widths[5];
    buffer in[5], out;
    float *weights; /* decay rates, or a scan's coefficients */
    conv_taps *taps;
    int32_t *pages, *positions;
} states_stage;

static void states_close(states_stage *s) {
    if (s->b != NULL) {
        s->b->ops->close(s->b);
    }
    mem_free(s->weights);
    mem_free(s->pages);
    mem_free(s->positions);
}

static void states_describe(states_stage *s) {
    const states_case *c = s->c;
    const bool attends = c->op == OP_LINEAR_ATTENTION;
    const cache_desc cache = attends            ? linear_attention_cache(c->n_heads, c->d_key, c->d_value)
                             : c->op == OP_SCAN ? scan_cache(c->n_heads, c->d_key)
                                                : conv_cache(conv_units(c->n_heads), c->d_key);
    const int64_t wanted = CACHES_BYTES / cache_state_bytes(&cache);
    s->n_layers = wanted < 1 ? 1 : wanted < MOST_LAYERS ? (int32_t)wanted : MOST_LAYERS;
    for (int32_t i = 0; i < s->n_layers; i++) {
        s->desc.caches[s->desc.n_caches++] = cache;
    }
    const int32_t keys = c->n_key_heads * c->d_key, values = c->n_heads * c->d_value,
                  others = c->op == OP_SCAN ? c->d_key : c->n_heads;
    const int32_t of_attention[5] = {keys, keys, values, c->per_channel ? c->n_heads * c->d_key : c->n_heads,
                                     c->n_heads},
                  of_others[5] = {c->n_heads, c->n_heads, others, others, 1};
    memcpy(s->widths, attends ? of_attention : of_others, sizeof s->widths);
}

static quire_err states_weights(states_stage *s, quire_error *err) {
    const states_case *c = s->c;
    const int32_t n = c->n_heads * (c->op == OP_LINEAR_ATTENTION ? 1 : c->d_key);
    s->weights = mem_new((size_t)n, sizeof *s->weights);
    TRY(mem_check_for(s->weights, "weights", err));
    for (int32_t i = 0; i < n; i++) {
        s->weights[i] = c->op == OP_SCAN ? -0.5f : 0.5f;
    }
    const tensor_view w = {.name = "taps",
                           .type = DTYPE_F32,
                           .n_dims = 2,
                           .dims = {c->n_heads, c->d_key, 1, 1},
                           .data = s->weights,
                           .n_bytes = (size_t)n * sizeof *s->weights};
    return c->op == OP_CONV ? s->b->ops->conv_load(s->b, &w, NULL, &s->taps, err) : QUIRE_OK;
}

static quire_err states_open(const states_case *c, const bench_states_options *o, states_stage *s,
                             quire_error *err) {
    *s = (states_stage){.c = c, .max_rows = o->n_prompt};
    const backend_options machine = {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads};
    states_describe(s);
    TRY(kv_layout_init(&s->desc, ((kv_types){DTYPE_F32, DTYPE_F32, (dtype)o->state}), 16, &s->layout, err));
    TRY(backend_cpu_open(&machine, &s->b, err));
    for (int32_t i = 0; i < 5; i++) {
        s->in[i] = s->b->ops->buffer_reserve(s->b, s->widths[i]);
    }
    s->out = s->b->ops->buffer_reserve(s->b, s->widths[c->op == OP_LINEAR_ATTENTION ? 2 : 0]);
    TRY(states_weights(s, err));
    const step_limits limits = {.max_rows = s->max_rows, .max_seqs = 1};
    TRY(s->b->ops->step_open(s->b, &limits, &s->layout, 0, err));
    const int32_t n_pages = s->layout.groups[0].state_pages;
    TRY(s->b->ops->kv_open(s->b, n_pages, err));
    s->pages = mem_new((size_t)n_pages, sizeof *s->pages);
    s->positions = mem_new((size_t)s->max_rows, sizeof *s->positions);
    TRY(mem_check_for(s->pages && s->positions ? s->pages : NULL, "pages", err));
    for (int32_t i = 0; i < n_pages; i++) {
        s->pages[i] = i;
    }
    return QUIRE_OK;
}

static quire_err states_fill(states_stage *s, int32_t n_rows, quire_error *err) {
    uint64_t seed = 1;
    for (int32_t i = 0; i < 5; i++) {
        const size_t n = (size_t)n_rows * (size_t)s->widths[i];
        float *x = mem_new(n, sizeof *x);
        TRY(mem_check_for(x, "rows", err));
        for (size_t k = 0; k < n; k++) {
            x[k] = rng_uniform((uint32_t)(rng_next(&seed) >> 32)) - 0.5f;
        }
        s->b->ops->buffer_write(s->b, s->in[i], 0, n_rows, x);
        mem_free(x);
    }
    return QUIRE_OK;
}

static void states_run(const states_stage *s, int32_t layer) {
    const states_case *c = s->c;
    const backend_ops *ops = s->b->ops;
    if (c->op == OP_CONV) {
        ops->conv(s->b,
                  &(conv_use){.cache = layer, .w = s->taps, .f = ACT_SILU, .x = s->in[0], .out = s->out});
    } else if (c->op == OP_SCAN) {
        ops->scan(s->b, &(scan_use){.cache = layer,
                                    .n_channels = c->n_heads,
                                    .n_states = c->d_key,
                                    .x = s->in[0],
                                    .dt = s->in[1],
                                    .b = s->in[2],
                                    .c = s->in[3],
                                    .a = s->weights,
                                    .out = s->out});
    } else {
        ops->linear_attention(s->b, &(linear_attention_use){.cache = layer,
                                                            .n_heads = c->n_heads,
                                                            .n_key_heads = c->n_key_heads,
                                                            .d_key = c->d_key,
                                                            .d_value = c->d_value,
                                                            .q = s->in[0],
                                                            .k = s->in[1],
                                                            .v = s->in[2],
                                                            .qk_eps = c->is_delta ? 1e-6f : 0.0f,
                                                            .q_scale = 0.1f,
                                                            .per_channel = c->per_channel,
                                                            .decay = s->in[3],
                                                            .rate = s->weights,
                                                            .values_by_time = !c->is_delta,
                                                            .beta = c->is_delta ? s->in[4] : BUFFER_NONE,
                                                            .beta_scale = 1.0f,
                                                            .skip = c->is_delta ? NULL : s->weights,
                                                            .out = s->out});
    }
}

/* The fastest of the runs of n_rows rows; layers take turns. The first turn of single
 * rows begins the states. */
static quire_err states_measure(states_stage *s, const bench_states_options *o, int32_t n_rows, op_time *best,
                                quire_error *err) {
    const batch_seq seq = {.n_rows = n_rows, .n_tokens = n_rows, .pages = {s->pages}};
    const batch step = {.n_rows = n_rows, .n_seqs = 1, .positions = s->positions, .n_axes = 1, .seqs = &seq};
    op_time op;
    op_trace trace = {.ops = &op, .cap = 1};
    *best = (op_time){.ns = INT64_MAX};
    const int32_t first = n_rows == 1 ? -s->n_layers : 0,
                  end = n_rows == 1 ? o->n_runs * s->n_layers : o->n_runs;
    for (int32_t run = first; run < end; run++) {
        for (int32_t i = 0; i < n_rows; i++) {
            s->positions[i] = run < 0 ? i : i + 1;
        }
        s->b->ops->step_begin(s->b, &step);
        if (run == first) {
            TRY(states_fill(s, n_rows, err));
        }
        trace.n = 0;
        s->b->ops->trace(s->b, &trace);
        const int64_t before = figures_time_us(o->n_threads);
        states_run(s, (run + s->n_layers) % s->n_layers);
        op.ns = (figures_time_us(o->n_threads) - before) * 1000;
        s->b->ops->trace(s->b, NULL);
        s->b->ops->step_wait(s->b);
        *best = run >= 0 && op.ns > 0 && op.ns < best->ns ? op : *best;
    }
    return QUIRE_OK;
}

static void states_row(const bench_table *t, const states_case *c, const roofline *r, int32_t n_rows,
                       const op_time *op) {
    const double seconds = (double)op->ns * 1e-9, read = (double)op->bytes / seconds,
                 computed = (double)op->operations / seconds;
    TABLE_ROW(t, TXT(c->name), TXT(c->shape), NUM(n_rows), NUM(seconds * 1e6), NUM(read * 1e-9),
              NUM(read / r->read.best), NUM(computed * 1e-9), NUM(computed / r->f32.best));
}

static quire_err states_report(const bench_states_options *o, const roofline *r, const bench_table *t,
                               const states_case *c, states_stage *s, quire_error *err) {
    op_time op;
    TRY(states_open(c, o, s, err));
    TRY(states_measure(s, o, 1, &op, err));
    states_row(t, c, r, 1, &op);
    TRY(states_measure(s, o, o->n_prompt, &op, err));
    states_row(t, c, r, o->n_prompt, &op);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_states_options, member)

static const flag_choice states_types[] = {{"f32", NULL, DTYPE_F32}, {"bf16", NULL, DTYPE_BF16}, {0}};

static const flag bench_states_flags[] = {
    {"--prompt", "N", "tokens of the prompt", COUNT(n_prompt, 2, 1 << 14)},
    {"--isa", NULL, "instruction set", FLAG_NAME, AT(isa), .choices = choices_isa},
    {"--state-dtype", NULL, "type of the states", FLAG_CHOICE, AT(state), .choices = states_types},
    {"--threads -t", "N", "threads; 0: one a core", COUNT(n_threads, 0, 1024)},
    {"--runs", "N", "runs per figure; the fastest counts", COUNT(n_runs, 1, 64)},
    {0},
};

static quire_err bench_states_run(const cli_options *cli, quire_error *err) {
    const bench_states_options *o = (const bench_states_options *)(const void *)cli;
    TABLE(t, "states", cli->json, WORD("op", "recurrence", -28), WORD("shape", "shape", -14),
          KEY("rows", "rows", 5, 0), FIGURE("time", "us a layer", 11, 1, "us/layer"),
          FIGURE("state_rate", "GB/s", 7, 2, "GB/s"), FIGURE("state_share", "/limit", 7, 3, "x"),
          FIGURE("compute_rate", "GOP/s", 8, 1, "GOP/s"), FIGURE("compute_share", "/limit", 7, 3, "x"));
    const roofline_effort effort = {.megabytes = 256, .milliseconds = 300};
    roofline r;
    TRY(roofline_measure(o->isa, o->n_threads, NULL, &effort, &r, err));
    table_begin(&t, NULL);
    for (int32_t i = 0; i < N_CASES; i++) {
        states_stage s;
        quire_err e = states_report(o, &r, &t, &states_cases[i], &s, err);
        states_close(&s);
        TRY(e);
    }
    table_note(&t,
               "One layer's recurrence, one sequence, least of %d runs (%s); GB/s: its state, read and "
               "written once; limits: %.1f GB/s read and %.1f GOP/s of f32, measured in this run.",
               (int)o->n_runs, figures_time_name(o->n_threads), r.read.best * 1e-9, r.f32.best * 1e-9);
    return QUIRE_OK;
}

LAB_COMMAND(bench_states, "bench states", "", ARGUMENT_NONE,
            "speed of recurrences alone, beside the limits of memory and arithmetic",
            "  quire bench states --threads 1\n", bench_states_flags, flags_json, flags_help);

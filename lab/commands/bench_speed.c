/* `quire bench speed`, which `make bench` runs: every figure with a speed goal, measured
 * in one run together with the machine's limits. Models have random weights made in
 * memory (lab/bench/model_shape.h), so only the program is needed, and temporarily a file
 * in /tmp for the packed model. */
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "lab/bench/attention_measure.h"
#include "lab/bench/bench_speed_report.h"
#include "lab/bench/client.h"
#include "lab/bench/model_shape.h"
#include "lab/bench/op_profile.h"
#include "lab/bench/temporary.h"
#include "lab/commands/measures.h"

enum { SHARED_BATCH = 32, SHARED_PREFIX = 4096, SHARED_OWN = 256 };
enum {
    OVERHEAD_BATCH = 32,
    OVERHEAD_STEPS = 16,
    START_RUNS = 9,
    PREFILL_CONTEXT = 8192,
    LONG_CONTEXT = 32768
};

/* Reports one value; further members of the speed_line follow. */
#define SPEED_LINE(o, name_, type_, value_, unit_, ...)                                                      \
    speed_report(                                                                                            \
        &(speed_line){.name = (name_), .type = (type_), .value = {value_, 0}, .unit = (unit_), __VA_ARGS__}, \
        (o)->cli.json)

LAB_DEFAULTS(bench_speed, .batches = "1,4,16,32", .isa = "auto", .n_runs = 3, .context = LONG_CONTEXT)

/* ---- a model ---- */

enum { DECODE_PROMPT = 128, DECODE_TOKENS = 32, PREFILL_PROMPT = 512, IDLE_MS = 1000 };

/* An open engine, and prompts that its prefix cache keeps, so that only a batch's first
 * decode computes them. */
typedef struct speed_model {
    const bench_speed_options *o;
    llama_shape shape;
    const speed_type *type;
    const roofline *r;
    client c;
    int32_t batches[FIGURES_MAX_POINTS], n_batches, most;
    int32_t *prompts; /* [most * DECODE_PROMPT] */
    sent *requests;   /* [most] */
    int64_t *times;   /* [most * DECODE_TOKENS] */
    int32_t *looks;   /* likewise */
    uint64_t draw;
} speed_model;

static quire_err speed_measure_prefill(speed_model *m, quire_error *err) {
    double speeds[FIGURES_MAX_RUNS];
    for (int32_t i = -1; i < m->o->n_runs; i++) { /* run -1 warms up */
        sent s = {0};
        int64_t start = clock_us();
        TRY(client_send_random(&m->c, &m->draw, PREFILL_PROMPT, 1, &s, err));
        TRY(client_await(&m->c, 1, err));
        speeds[i < 0 ? 0 : i] = PREFILL_PROMPT / ((double)(s.first_us - start) * 1e-6);
    }
    const speed_line line = {.name = "prefill",
                             .type = m->type->name,
                             .prompt = PREFILL_PROMPT,
                             .value = figure_of(speeds, m->o->n_runs),
                             .unit = "tokens/s",
                             .limit = shape_prefill_limit(&m->shape, m->type, m->r, PREFILL_PROMPT),
                             .goal = m->o->small ? NAN : speed_goal("prefill", m->type->name, 0)};
    speed_report(&line, m->o->cli.json);
    return QUIRE_OK;
}

typedef struct decoding {
    speed_model *m;
    int32_t batch;
} decoding;

static quire_err speed_decode_once(speed_model *m, int32_t n_seqs, int32_t n_tokens, quire_error *err) {
    for (int32_t i = 0; i < n_seqs; i++) {
        m->requests[i] = (sent){.times_us = m->times + (size_t)i * DECODE_TOKENS,
                                .looks = m->looks + (size_t)i * DECODE_TOKENS};
        TRY(client_send(&m->c, m->prompts + (size_t)i * DECODE_PROMPT, DECODE_PROMPT, n_tokens,
                        &m->requests[i], err));
    }
    return client_await(&m->c, n_seqs, err);
}

static quire_err speed_decode_timed(void *context, double *speed, quire_error *err) {
    const decoding *d = context;
    int64_t steps_before = client_steps(&d->m->c);
    TRY(speed_decode_once(d->m, d->batch, DECODE_TOKENS, err));
    *speed = client_decode_speed(d->m->requests, d->batch, 0, client_steps(&d->m->c) - steps_before);
    return QUIRE_OK;
}

static quire_err speed_measure_decode(speed_model *m, int32_t n_seqs, quire_error *err) {
    figure speed;
    TRY(speed_decode_once(m, n_seqs, 1, err)); /* computes the prompts */
    TRY(client_measure(speed_decode_timed, &(decoding){m, n_seqs}, m->o->n_runs, &speed, err));
    if (isnan(speed.mean)) {
        speed_report_skipped("decode", m->type->name,
                             "tokens reached their reader late, or answers not together: other programs take "
                             "this machine's time",
                             m->o->cli.json);
        return QUIRE_OK;
    }
    double context = DECODE_PROMPT + DECODE_TOKENS / 2.0;
    dtype kv = strcmp(m->c.info->kv_dtype, dtype_flag_name(DTYPE_F32)) == 0 ? DTYPE_F32 : DTYPE_BF16;
    const speed_line line = {.name = "decode",
                             .type = m->type->name,
                             .batch = n_seqs,
                             .context = DECODE_PROMPT,
                             .value = speed,
                             .unit = "tokens/s",
                             .limit = shape_decode_limit(&m->shape, m->type, m->r, n_seqs, context, kv),
                             .goal = m->o->small ? NAN : speed_goal("decode", m->type->name, n_seqs)};
    speed_report(&line, m->o->cli.json);
    return QUIRE_OK;
}

/* ---- memory of an engine besides weights and pages ---- */

/* Bytes that this process allocated, outside any file. -1: unknown. */
static int64_t speed_own_bytes(void) {
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long long kib = -1;
    while (f != NULL && kib < 0 && fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "RssAnon: %lld", &kib);
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib < 0 ? -1 : kib * 1024;
}

/* Called after the work, when every page of the pool has been used: what is neither
 * weights nor pages is the rest. */
static void speed_report_rest(const speed_model *m, int64_t before_bytes) {
    int64_t now = speed_own_bytes();
    const quire_info *info = m->c.info;
    if (before_bytes >= 0 && now >= 0) {
        double beside =
            (double)(now - before_bytes - info->weight_bytes - info->n_pages * info->page_bytes) / 1e6;
        SPEED_LINE(m->o, "memory", m->type->name, beside, "MB", .less_is_better = true, .goal = 64);
    }
    int64_t start = figures_time_us(1), start_us = clock_us();
    nanosleep(&(struct timespec){.tv_sec = IDLE_MS / 1000, .tv_nsec = IDLE_MS % 1000 * 1000000}, NULL);
    double percent = 100 * (double)(figures_time_us(1) - start) / (double)(clock_us() - start_us);
    percent = round(percent * 10) / 10;
    SPEED_LINE(m->o, "idle", m->type->name, percent, "% CPU", .less_is_better = true, .goal = 0);
}

/* ---- a run ---- */

static int32_t speed_pages_of(const speed_model *m, int32_t page_tokens) {
    int32_t decode = (DECODE_PROMPT + DECODE_TOKENS) / page_tokens + 1,
            prefill = PREFILL_PROMPT / page_tokens + 2;
    return m->most * decode + prefill;
}

static quire_err speed_open(speed_model *m, const char *path, quire_error *err) {
    quire_options e;
    quire_options_init(&e);
    e.model = path;
    e.compute = speed_type_compute(m->type);
    e.n_threads = m->o->n_threads;
    e.isa = m->o->isa;
    e.max_seqs = m->most;
    e.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN;
    e.n_pages = speed_pages_of(m, e.page_tokens);
    e.max_model_len = PREFILL_PROMPT + DECODE_TOKENS;
    m->prompts = mem_new((size_t)m->most * DECODE_PROMPT, sizeof *m->prompts);
    m->requests = mem_new((size_t)m->most, sizeof *m->requests);
    m->times = mem_new((size_t)m->most * DECODE_TOKENS, sizeof *m->times);
    m->looks = mem_new((size_t)m->most * DECODE_TOKENS, sizeof *m->looks);
    TRY(mem_check_for(m->prompts && m->requests && m->times && m->looks ? m->prompts : NULL, "the requests",
                      err));
    for (int32_t i = 0; i < m->most * DECODE_PROMPT; i++) {
        m->prompts[i] = (int32_t)(rng_next(&m->draw) % (uint64_t)m->shape.n_vocab);
    }
    return client_open(&e, (engine_ablations){0}, NULL, &m->c, err);
}

static quire_err speed_measure_model(speed_model *m, quire_error *err) {
    TRY(speed_measure_prefill(m, err));
    for (int32_t i = 0; i < m->n_batches; i++) {
        TRY(speed_measure_decode(m, m->batches[i], err));
    }
    return QUIRE_OK;
}

/* Opens a model of random weights of this shape and type, measures it, and reports a line
 * per figure; with_rest: memory and idle use too. NO_MEMORY: the machine cannot hold it;
 * nothing was reported. */
static quire_err speed_model_run(const bench_speed_options *o, const model_shape *shape,
                                 const speed_type *type, const roofline *r, bool with_rest,
                                 quire_error *err) {
    speed_model m = {.o = o, .shape = model_shape_costs(shape), .type = type, .r = r, .draw = 1};
    synthetic s;
    TRY(figures_parse_list("--batch", o->batches, m.batches, &m.n_batches, err));
    m.most = figures_largest(m.batches, m.n_batches);
    int64_t before_bytes = speed_own_bytes();
    TRY(synthetic_open(shape, type->file, &s, err));
    quire_err e = speed_open(&m, s.path, err);
    synthetic_close(&s);
    if (e == QUIRE_OK) {
        e = speed_measure_model(&m, err);
        if (e == QUIRE_OK && with_rest) {
            speed_report_rest(&m, before_bytes);
        }
        client_close(&m.c);
    }
    mem_free(m.prompts);
    mem_free(m.requests);
    mem_free(m.times);
    mem_free(m.looks);
    return e;
}

/* ---- the machine's limits, measured before every part so that one bad minute does not
 * determine them ---- */

static const char *rate_unit(int32_t i) {
    return i == 0 ? "GB/s" : "GOP/s";
}

/* Reports rates that are better than before. */
static void report_best(const bench_speed_options *o, const roofline *r, const roofline *before) {
    for (int32_t i = 0; i < ROOFLINE_RATES; i++) {
        if (r->rates[i].best > before->rates[i].best) {
            SPEED_LINE(o, "roofline", roofline_names[i], r->rates[i].best / 1e9, rate_unit(i), .goal = NAN);
        }
    }
}

/* Reports the mean of the same loops over the whole run, which is lower if other machines
 * share the processor. */
static void report_mean(const bench_speed_options *o, const roofline *r) {
    for (int32_t i = 0; i < ROOFLINE_RATES; i++) {
        SPEED_LINE(o, "roofline mean", roofline_names[i], r->rates[i].mean / 1e9, rate_unit(i),
                   .limit = {r->rates[i].best / 1e9, "best"}, .goal = NAN);
    }
}

enum { FIRST_MEASUREMENTS = 3 };

static quire_err find_limits(const bench_speed_options *o, roofline *r, quire_error *err) {
    roofline later;
    TRY(roofline_measure(o->isa, o->n_threads, NULL, &roofline_usual, r, err));
    for (int i = 1; i < FIRST_MEASUREMENTS; i++) {
        TRY(roofline_measure(o->isa, o->n_threads, NULL, &roofline_usual, &later, err));
        roofline_join(r, &later);
    }
    if (!o->cli.json) {
        printf("%s; reading by %s, bf16 by %s\n", r->machine, r->read.by, r->bf16.by);
    }
    speed_report_begin(o->cli.json);
    report_best(o, r, &(roofline){0});
    return QUIRE_OK;
}

/* Measures the limits again; what follows is compared with the best so far. */
static quire_err raise_limits(const bench_speed_options *o, roofline *r, quire_error *err) {
    roofline before = *r, later;
    TRY(roofline_measure(o->isa, o->n_threads, NULL, &roofline_usual, &later, err));
    roofline_join(r, &later);
    report_best(o, r, &before);
    return QUIRE_OK;
}

/* ---- attention alone, for one layer of the shape ---- */

typedef struct kv_type {
    const char *name;
    dtype type;
} kv_type;

/* The least time of a layer's attention in microseconds, by bytes, or by operations of
 * the unit that multiplies keys and values of this type. */
static speed_limit attention_limit(const roofline *r, dtype type, double bytes, double operations) {
    bool is_int8 = type == DTYPE_I8;
    double bytes_us = bytes / r->read.best * 1e6,
           operations_us = operations / (is_int8 ? r->int8.best : r->f32.best) * 1e6;
    return bytes_us > operations_us ? (speed_limit){bytes_us, "bytes"}
                                    : (speed_limit){operations_us, is_int8 ? "int8" : "f32"};
}

static quire_err run_kv_type(const bench_speed_options *o, const llama_shape *s, const roofline *r,
                             const kv_type *kv, quire_error *err) {
    static const int32_t contexts[] = {1024, 8192, LONG_CONTEXT};
    const attention_machine machine = {
        .compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs};
    attention_shape shape = {.n_heads = s->n_heads,
                             .n_kv_heads = s->n_kv_heads,
                             .d_head = s->d_head,
                             .type = kv->type,
                             .n_seqs = 1,
                             .n_rows = 1};
    attention_speed speed;
    speed_line line = {.name = "attention", .type = kv->name, .unit = "us/layer", .less_is_better = true};
    for (size_t i = 0; i < sizeof contexts / sizeof *contexts && contexts[i] <= o->context; i++) {
        line.context = shape.n_tokens = contexts[i];
        TRY(attention_measure(&shape, &machine, &speed, err));
        SPEED_LINE(o, "paged/contiguous", kv->name, speed.paged_us / speed.contiguous_us, "x",
                   .context = contexts[i], .less_is_better = true, .goal = 1.03);
        line.batch = 1;
        line.value = (figure){speed.paged_us, 0};
        line.limit =
            attention_limit(r, kv->type, (double)attention_bytes(&shape), attention_operations(&shape));
        line.goal = contexts[i] == LONG_CONTEXT ? 0.85 : NAN;
        speed_report(&line, o->cli.json);
    }
    line.batch = line.context = 0;
    line.prompt = shape.n_tokens = shape.n_rows = o->context < PREFILL_CONTEXT ? o->context : PREFILL_CONTEXT;
    TRY(attention_measure(&shape, &machine, &speed, err));
    line.value = (figure){speed.paged_us, 0};
    line.limit = attention_limit(r, kv->type, 0, attention_operations(&shape));
    line.goal = shape.n_tokens == PREFILL_CONTEXT ? 0.5 : NAN;
    speed_report(&line, o->cli.json);
    return QUIRE_OK;
}

static quire_err run_attention(const bench_speed_options *o, const llama_shape *s, const roofline *r,
                               quire_error *err) {
    static const kv_type types[] = {{"f16", DTYPE_F16}, {"bf16", DTYPE_BF16}, {"int8", DTYPE_I8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        TRY(run_kv_type(o, s, r, &types[i], err));
    }
    return QUIRE_OK;
}

/* ---- a long prefix shared by many ---- */

static quire_err run_shared(const bench_speed_options *o, const llama_shape *s, const roofline *r,
                            quire_error *err) {
    const attention_machine machine = {
        .compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs};
    attention_shape shape = {.n_heads = s->n_heads,
                             .n_kv_heads = s->n_kv_heads,
                             .d_head = s->d_head,
                             .type = DTYPE_BF16,
                             .n_seqs = SHARED_BATCH,
                             .n_rows = 1,
                             .n_tokens = SHARED_PREFIX + SHARED_OWN,
                             .n_shared = SHARED_PREFIX};
    cascade_speed speed;
    TRY(attention_measure_cascade(&shape, &machine, &speed, err));
    const speed_limit limit =
        attention_limit(r, shape.type, (double)speed.cascade_bytes, attention_operations(&shape));
    SPEED_LINE(o, "cascade", "bf16", speed.cascade_us, "us/layer", .batch = SHARED_BATCH,
               .context = SHARED_PREFIX, .limit = limit, .less_is_better = true, .goal = 0.8);
    shape.n_kv_heads = s->n_heads; /* so that it is memory-bound */
    shape.type = DTYPE_I8;
    TRY(attention_measure_cascade(&shape, &machine, &speed, err));
    SPEED_LINE(o, "cascade gain", "int8", speed.each_us / speed.cascade_us, "x", .batch = SHARED_BATCH,
               .context = SHARED_PREFIX, .goal = 3);
    return QUIRE_OK;
}

/* ---- from exec to the first token ---- */

static quire_err start_packed(const bench_speed_options *o, const model_shape *s, const char *path,
                              quire_error *err) {
    quire_options start;
    start_times t;
    synthetic made;
    int64_t n_bytes;
    quire_options_init(&start);
    start.compute = QUIRE_COMPUTE_INT8;
    start.n_threads = o->n_threads;
    start.isa = o->isa;
    TRY(synthetic_open(s, DTYPE_Q4_0, &made, err));
    start.model = made.path;
    quire_err e = quire_pack(&start, path, &n_bytes, err);
    synthetic_close(&made);
    TRY(e);
    start.model = path;
    TRY(start_measure(&start, START_RUNS, &t, err));
    SPEED_LINE(o, "start", "q4_0", t.first.least_ms - t.token_ms, "ms", .prompt = 1, .less_is_better = true,
               .goal = 100);
    return QUIRE_OK;
}

/* Measures starts of a packed model, whose file is removed afterwards. */
static quire_err run_start(const bench_speed_options *o, const model_shape *s, quire_error *err) {
    temporary directory;
    char path[sizeof directory.path + 8];
    if (temporary_make(&directory, err) != QUIRE_OK) {
        speed_report_skipped("start", "q4_0", "no file can be made in /tmp", o->cli.json);
        return QUIRE_OK;
    }
    (void)snprintf(path, sizeof path, "%s/packed", directory.path);
    quire_err e = start_packed(o, s, path, err);
    temporary_remove(&directory);
    if (e == QUIRE_IO || e == QUIRE_NO_MEMORY) {
        speed_report_skipped("start", "q4_0", err->message, o->cli.json);
        return QUIRE_OK;
    }
    return e;
}

/* ---- time outside products, attention and sampling ---- */

static quire_err run_overhead(const bench_speed_options *o, quire_error *err) {
    quire_options machine;
    step_costs c;
    quire_options_init(&machine);
    machine.n_threads = o->n_threads;
    machine.isa = o->isa;
    TRY(profile_decode(&machine, OVERHEAD_BATCH, OVERHEAD_STEPS, &c, err));
    SPEED_LINE(o, "overhead", "q4_0", 100 * op_profile_share(&c, STAGE_IS_OTHER), "% of step",
               .batch = c.n_rows, .less_is_better = true, .goal = 3);
    return QUIRE_OK;
}

/* ---- all ---- */

static quire_err run_limits(const bench_speed_options *o, quire_error *err) {
    roofline r;
    model_shape shape = o->small ? model_shape_small(model_shape_llama) : *model_shape_llama;
    const llama_shape costs = model_shape_costs(&shape);
    int32_t list[N_SPEED_TYPES], n, batches[FIGURES_MAX_POINTS], n_batches;
    TRY(figures_parse_list("--batch", o->batches, batches, &n_batches, err));
    TRY(FIGURES_PARSE_NAMES("--types", o->types != NULL ? o->types : "q4_0,q8_0,q4_k,int8,bf16", speed_types,
                            list, &n, err));
    TRY(find_limits(o, &r, err));
    for (int32_t i = 0; i < n; i++) {
        const speed_type *type = &speed_types[list[i]];
        if (i > 0) {
            TRY(raise_limits(o, &r, err));
        }
        quire_err e = speed_model_run(o, &shape, type, &r, i == 0, err);
        if (e == QUIRE_NO_MEMORY) {
            speed_report_skipped("model", type->name, err->message, o->cli.json);
        } else if (e != QUIRE_OK) {
            return e;
        }
    }
    TRY(raise_limits(o, &r, err));
    TRY(run_attention(o, &costs, &r, err));
    TRY(run_start(o, &shape, err));
    if (!o->small) {
        TRY(raise_limits(o, &r, err));
        TRY(run_shared(o, &costs, &r, err));
        TRY(run_overhead(o, err));
    }
    TRY(raise_limits(o, &r, err));
    report_mean(o, &r);
    return QUIRE_OK;
}

#define AT(member) .offset = offsetof(bench_speed_options, member)

static const flag bench_speed_flags[] = {
    {"--types", "LIST", "of weights, also mxfp4, f32 (q4_0,q8_0,q4_k,int8,bf16; with --shape q4_0)",
     TEXT(types)},
    {"--shape", "LIST", "all or some of the models below, beside Llama", TEXT(shapes)},
    {"--batch", "LIST", "sequences that decode together", TEXT(batches)},
    {"--context", "N", "longest of attention by itself", COUNT(context, 1, 1 << 20)},
    {"--runs", "N", "runs per figure", COUNT(n_runs, 1, 64)},
    {"--small", NULL, "models of a few hundred thousand weights: to see that all works", FLAG_SWITCH,
     AT(small)},
    {"--threads -t", "N", "compute threads; 0: one a core", COUNT(n_threads, 0, 1024)},
    {"--isa", NULL, "instruction set of the kernels", FLAG_NAME, AT(isa), .choices = choices_isa},
    {0},
};

static quire_err bench_speed_run(const cli_options *cli, quire_error *err) {
    const bench_speed_options *o = (const void *)cli;
    if (o->shapes == NULL) {
        return run_limits(o, err);
    }
    TRY(unused_flags_refuse(cli, "--context", "with --shape, whose attention is not measured by itself",
                            err));
    return bench_shapes_run(o, err);
}

LAB_COMMAND(
    bench_speed, "bench speed", "", ARGUMENT_NONE,
    "speed of a 1.1B model by type of weights, attention and memory, with limits and goals",
    "  quire bench speed\n"
    "  quire bench speed --types q4_0,int8 --batch 1,32 --json\n"
    "  quire bench speed --shape gemma-3-1b,mixtral --types q8_0\n"
    "--shape: " MODEL_SHAPES "\n"
    "\"of Llama\": a pass without attention, over what Llama takes for its products. For one of B bytes "
    "and O\n"
    "operations that is B g(O / B): g(i) is its time for a byte where i operations fall on one.\n",
    bench_speed_flags, flags_json, flags_help);

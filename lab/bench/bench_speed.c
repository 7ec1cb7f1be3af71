#include "lab/bench/bench_speed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/bench/attention_measure.h"
#include "lab/bench/bench_profile.h"
#include "lab/bench/bench_shapes.h"
#include "lab/bench/bench_speed_model.h"
#include "lab/bench/bench_speed_report.h"
#include "lab/bench/bench_start.h"
#include "lab/bench/stages.h"
#include "lab/bench/synthetic.h"
#include "lab/bench/temporary.h"

enum { SHARED_BATCH = 32, SHARED_PREFIX = 4096, SHARED_OWN = 256 };
enum { OVERHEAD_BATCH = 32, OVERHEAD_STEPS = 16, PREFILL_CONTEXT = 8192, LONG_CONTEXT = 32768 };

void bench_speed_options_init(bench_speed_options *o) {
    *o = (bench_speed_options){.batches = "1,4,16,32", .isa = "auto", .n_runs = 3, .context = LONG_CONTEXT};
}

/* ---- the machine's limits: taken before every part, since one bad minute must not set
 * them ---- */

typedef struct named_rate {
    const char *what, *unit;
    const roofline_rate *rate;
} named_rate;

enum { N_RATES = 5 };

static void name_rates(const roofline *r, named_rate out[N_RATES]) {
    const named_rate rates[N_RATES] = {{"read", "GB/s", &r->read},
                                       {"f32", "GOP/s", &r->f32},
                                       {"bf16", "GOP/s", &r->bf16},
                                       {"int8", "GOP/s", &r->int8},
                                       {"int8 by 4 bits", "GOP/s", &r->int8_small}};
    memcpy(out, rates, sizeof rates);
}

/* The best rates, where they are better than before. */
static void report_best(const bench_speed_options *o, const roofline *r, const roofline *before) {
    named_rate now[N_RATES], then[N_RATES];
    name_rates(r, now);
    name_rates(before, then);
    for (int i = 0; i < N_RATES; i++) {
        if (now[i].rate->best > then[i].rate->best) {
            speed_report(&(speed_line){.name = "roofline",
                                       .type = now[i].what,
                                       .value = {now[i].rate->best / 1e9, 0},
                                       .unit = now[i].unit,
                                       .goal = NAN},
                         o->json);
        }
    }
}

/* What the same loops came to over the whole run: less where other machines share the
 * processor. */
static void report_mean(const bench_speed_options *o, const roofline *r) {
    named_rate rates[N_RATES];
    name_rates(r, rates);
    for (int i = 0; i < N_RATES; i++) {
        const roofline_rate *rate = rates[i].rate;
        speed_report(&(speed_line){.name = "roofline mean",
                                   .type = rates[i].what,
                                   .value = {rate->mean / 1e9, 0},
                                   .unit = rates[i].unit,
                                   .limit = {rate->best / 1e9, "best"},
                                   .goal = NAN},
                     o->json);
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
    if (!o->json) {
        printf("%s; reading by %s, bf16 by %s\n", r->machine, r->read.by, r->bf16.by);
    }
    speed_report_begin(o->json);
    report_best(o, r, &(roofline){0});
    return QUIRE_OK;
}

/* What follows is held against the best so far. */
static quire_err raise_limits(const bench_speed_options *o, roofline *r, quire_error *err) {
    roofline before = *r, later;
    TRY(roofline_measure(o->isa, o->n_threads, NULL, &roofline_usual, &later, err));
    roofline_join(r, &later);
    report_best(o, r, &before);
    return QUIRE_OK;
}

/* ---- attention alone, of one layer of the shape ---- */

typedef struct kv_type {
    const char *name;
    dtype type;
} kv_type;

/* The least time of a layer's attention in microseconds: bytes, or operations of the unit
 * that multiplies keys and values of this type. */
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
        speed_report(&(speed_line){.name = "paged/contiguous",
                                   .type = kv->name,
                                   .context = contexts[i],
                                   .value = {speed.paged_us / speed.contiguous_us, 0},
                                   .unit = "x",
                                   .less_is_better = true,
                                   .goal = 1.03},
                     o->json);
        line.batch = 1;
        line.value = (figure){speed.paged_us, 0};
        line.limit =
            attention_limit(r, kv->type, (double)attention_bytes(&shape), attention_operations(&shape));
        line.goal = contexts[i] == LONG_CONTEXT ? 0.85 : NAN;
        speed_report(&line, o->json);
    }
    line.batch = line.context = 0;
    line.prompt = shape.n_tokens = shape.n_rows = o->context < PREFILL_CONTEXT ? o->context : PREFILL_CONTEXT;
    TRY(attention_measure(&shape, &machine, &speed, err));
    line.value = (figure){speed.paged_us, 0};
    line.limit = attention_limit(r, kv->type, 0, attention_operations(&shape));
    line.goal = shape.n_tokens == PREFILL_CONTEXT ? 0.5 : NAN;
    speed_report(&line, o->json);
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

/* ---- a long prefix that many share ---- */

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
    speed_report(&(speed_line){.name = "cascade",
                               .type = "bf16",
                               .batch = SHARED_BATCH,
                               .context = SHARED_PREFIX,
                               .value = {speed.cascade_us, 0},
                               .unit = "us/layer",
                               .limit = limit,
                               .less_is_better = true,
                               .goal = 0.8},
                 o->json);
    shape.n_kv_heads = s->n_heads; /* where bytes bound */
    shape.type = DTYPE_I8;
    TRY(attention_measure_cascade(&shape, &machine, &speed, err));
    speed_report(&(speed_line){.name = "cascade gain",
                               .type = "int8",
                               .batch = SHARED_BATCH,
                               .context = SHARED_PREFIX,
                               .value = {speed.each_us / speed.cascade_us, 0},
                               .unit = "x",
                               .goal = 3},
                 o->json);
    return QUIRE_OK;
}

/* ---- from exec to the first token ---- */

static quire_err start_packed(const bench_speed_options *o, const model_shape *s, const char *path,
                              quire_error *err) {
    bench_start_options start;
    start_times t;
    synthetic made;
    int64_t n_bytes;
    bench_start_options_init(&start);
    start.engine.compute = QUIRE_COMPUTE_INT8;
    start.engine.n_threads = o->n_threads;
    start.engine.isa = o->isa;
    TRY(synthetic_open(s, DTYPE_Q4_0, &made, err));
    start.engine.model = made.path;
    quire_err e = quire_pack(&start.engine, path, &n_bytes, err);
    synthetic_close(&made);
    TRY(e);
    start.engine.model = path;
    TRY(bench_start_measure(&start, &t, err));
    speed_report(&(speed_line){.name = "start",
                               .type = "q4_0",
                               .prompt = 1,
                               .value = {t.first.least_ms - t.token_ms, 0},
                               .unit = "ms",
                               .less_is_better = true,
                               .goal = 100},
                 o->json);
    return QUIRE_OK;
}

/* A packed model needs a file, which is gone afterwards. */
static quire_err run_start(const bench_speed_options *o, const model_shape *s, quire_error *err) {
    temporary directory;
    char path[sizeof directory.path + 8];
    if (temporary_make(&directory, err) != QUIRE_OK) {
        speed_report_skipped("start", "q4_0", "no file can be made in /tmp", o->json);
        return QUIRE_OK;
    }
    (void)snprintf(path, sizeof path, "%s/packed", directory.path);
    quire_err e = start_packed(o, s, path, err);
    temporary_remove(&directory);
    if (e == QUIRE_IO || e == QUIRE_NO_MEMORY) {
        speed_report_skipped("start", "q4_0", err->message, o->json);
        return QUIRE_OK;
    }
    return e;
}

/* ---- what is neither product nor attention nor sampling ---- */

static quire_err run_overhead(const bench_speed_options *o, quire_error *err) {
    bench_profile_options p;
    step_costs c;
    bench_profile_options_init(&p);
    p.engine.n_threads = o->n_threads;
    p.engine.isa = o->isa;
    p.batch = OVERHEAD_BATCH;
    p.n_steps = OVERHEAD_STEPS;
    TRY(profile_decode(&p, &c, err));
    speed_report(&(speed_line){.name = "overhead",
                               .type = p.type,
                               .batch = c.n_rows,
                               .value = {100 * stages_share(&c, STAGE_IS_OTHER), 0},
                               .unit = "% of step",
                               .less_is_better = true,
                               .goal = 3},
                 o->json);
    return QUIRE_OK;
}

/* ---- all ---- */

static const speed_type *next_type(const char **list) {
    size_t n = strcspn(*list, ",");
    const char *name = *list;
    *list += n + ((*list)[n] == ',');
    return speed_type_find(name, n);
}

static quire_err check(const bench_speed_options *o, quire_error *err) {
    int32_t batches[FIGURES_MAX_POINTS], n;
    TRY(figures_parse_list("--batch", o->batches, batches, &n, err));
    for (const char *list = o->types; *list != '\0';) {
        if (next_type(&list) == NULL) {
            return err_set(err, QUIRE_INVALID, -1, "--types %s: must be some of q4_0,q8_0,q4_k,int8,bf16,f32",
                           o->types);
        }
    }
    return QUIRE_OK;
}

static quire_err run_limits(const bench_speed_options *o, quire_error *err) {
    roofline r;
    model_shape shape = o->small ? model_shape_small(model_shape_llama) : *model_shape_llama;
    const llama_shape costs = model_shape_costs(&shape);
    TRY(find_limits(o, &r, err));
    for (const char *list = o->types; *list != '\0';) {
        bool is_first = list == o->types;
        const speed_type *type = next_type(&list);
        TRY(is_first ? QUIRE_OK : raise_limits(o, &r, err));
        quire_err e = speed_model_run(o, &shape, type, &r, is_first, err);
        if (e == QUIRE_NO_MEMORY) {
            speed_report_skipped("model", type->name, err->message, o->json);
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

static quire_err run_shapes(const bench_speed_options *o, quire_error *err) {
    const bench_shapes_options s = {.shapes = o->shapes,
                                    .types = o->types,
                                    .batches = o->batches,
                                    .isa = o->isa,
                                    .n_threads = o->n_threads,
                                    .n_runs = o->n_runs,
                                    .small = o->small,
                                    .json = o->json};
    return bench_shapes_run(&s, err);
}

quire_err bench_speed_run(const bench_speed_options *o, quire_error *err) {
    bench_speed_options own = *o;
    own.types = o->types != NULL ? o->types : o->shapes != NULL ? "q4_0" : "q4_0,q8_0,q4_k,int8,bf16";
    TRY(check(&own, err));
    return own.shapes != NULL ? run_shapes(&own, err) : run_limits(&own, err);
}

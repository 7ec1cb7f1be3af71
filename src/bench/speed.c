#include "bench/speed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/attention_measure.h"
#include "bench/profile.h"
#include "bench/speed_model.h"
#include "bench/speed_report.h"
#include "bench/stages.h"

enum { SHARED_BATCH = 32, SHARED_PREFIX = 4096, SHARED_OWN = 64, SHARED_STEPS = 8, SHARED_LAYERS = 2 };
enum { OVERHEAD_BATCH = 32, OVERHEAD_STEPS = 16, PREFILL_CONTEXT = 8192, LONG_CONTEXT = 32768 };

static const llama_shape shape_small = {.name = "small", .n_layers = 2, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .d_head = 64, .d_ff = 512, .n_vocab = 1024, .max_positions = 2048};

void bench_speed_options_init(bench_speed_options *o) {
    *o = (bench_speed_options){.types = "q4_0,q8_0,q4_k,int8,bf16", .batches = "1,4,16,32", .isa = "auto", .n_runs = 3, .context = LONG_CONTEXT};
}

static void report_roofline(const bench_speed_options *o, const roofline *r) {
    const struct {
        const char *what, *unit;
        double value;
    } rates[] = {{"read", "GB/s", r->read}, {"f32", "GOP/s", r->f32}, {"bf16", "GOP/s", r->bf16}, {"int8", "GOP/s", r->int8}, {"int8 by 4 bits", "GOP/s", r->int8_small}};
    if (!o->json) {
        printf("%s; reading by %s, bf16 by %s\n", r->machine, r->read_by, r->bf16_by);
    }
    speed_report_begin(o->json);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        speed_report(&(speed_line){.name = "roofline", .type = rates[i].what, .value = {rates[i].value / 1e9, 0}, .unit = rates[i].unit, .goal = NAN}, o->json);
    }
}

/* ---- attention alone, of one layer of the shape ---- */

static quire_err run_attention(const bench_speed_options *o, const llama_shape *s, const roofline *r, quire_error *err) {
    static const dtype kv_types[] = {DTYPE_F16, DTYPE_BF16};
    static const int32_t contexts[] = {1024, 8192, LONG_CONTEXT};
    const attention_machine machine = {.compute = COMPUTE_F32, .isa = o->isa, .n_threads = o->n_threads, .n_runs = o->n_runs};
    attention_shape shape = {.n_heads = s->n_heads, .n_kv_heads = s->n_kv_heads, .d_head = s->d_head, .n_seqs = 1};
    attention_speed speed;
    for (size_t t = 0; t < sizeof kv_types / sizeof *kv_types; t++) {
        const char *name = t == 0 ? "f16" : "bf16";
        shape.type = kv_types[t];
        shape.n_rows = 1;
        for (size_t i = 0; i < sizeof contexts / sizeof *contexts && contexts[i] <= o->context; i++) {
            shape.n_tokens = contexts[i];
            TRY(attention_measure(&shape, &machine, &speed, err));
            speed_report(&(speed_line){.name = "paged/contiguous", .type = name, .context = shape.n_tokens, .value = {speed.paged_us / speed.contiguous_us, 0}, .unit = "x", .less_is_better = true, .goal = 1.03}, o->json);
            double bytes_us = (double)attention_bytes(&shape) / r->read * 1e6, operations_us = attention_operations(&shape) / r->f32 * 1e6;
            const speed_limit limit = bytes_us > operations_us ? (speed_limit){bytes_us, "bytes"} : (speed_limit){operations_us, "f32"};
            speed_report(&(speed_line){.name = "attention", .type = name, .batch = 1, .context = shape.n_tokens, .value = {speed.paged_us, 0}, .unit = "us/layer", .limit = limit, .less_is_better = true, .goal = shape.n_tokens == LONG_CONTEXT ? 0.85 : NAN}, o->json);
        }
        shape.n_tokens = shape.n_rows = o->context < PREFILL_CONTEXT ? o->context : PREFILL_CONTEXT;
        TRY(attention_measure(&shape, &machine, &speed, err));
        const speed_limit limit = {attention_operations(&shape) / r->f32 * 1e6, "f32"};
        speed_report(&(speed_line){.name = "attention", .type = name, .prompt = shape.n_tokens, .value = {speed.paged_us, 0}, .unit = "us/layer", .limit = limit, .less_is_better = true, .goal = shape.n_tokens == PREFILL_CONTEXT ? 0.5 : NAN}, o->json);
    }
    return QUIRE_OK;
}

/* ---- a long prefix that many share ---- */

/* Attention's part of a step in which all decode behind one prefix. */
static quire_err measure_shared(const bench_speed_options *o, int32_t n_kv_heads, bool no_cascade, stage_cost *out, quire_error *err) {
    bench_profile_options p;
    step_costs c;
    bench_profile_options_init(&p);
    p.engine.n_threads = o->n_threads;
    p.engine.isa = o->isa;
    p.engine.no_cascade = no_cascade;
    p.batch = SHARED_BATCH;
    p.n_shared = SHARED_PREFIX;
    p.n_prompt = SHARED_PREFIX + SHARED_OWN;
    p.n_steps = SHARED_STEPS;
    p.n_layers = SHARED_LAYERS;
    p.n_kv_heads = n_kv_heads;
    TRY(profile_decode(&p, &c, err));
    *out = c.stages[STAGE_ATTENTION];
    return QUIRE_OK;
}

static quire_err run_shared(const bench_speed_options *o, const roofline *r, quire_error *err) {
    stage_cost shared, apart;
    TRY(measure_shared(o, shape_1b.n_kv_heads, false, &shared, err));
    double bytes_us = shared.bytes / r->read * 1e6, operations_us = shared.operations / r->f32 * 1e6;
    const speed_limit limit = bytes_us > operations_us ? (speed_limit){bytes_us / SHARED_LAYERS, "bytes"} : (speed_limit){operations_us / SHARED_LAYERS, "f32"};
    speed_report(&(speed_line){.name = "cascade", .type = "4 KV heads", .batch = SHARED_BATCH, .context = SHARED_PREFIX, .value = {shared.us / SHARED_LAYERS, 0}, .unit = "us/layer", .limit = limit, .less_is_better = true, .goal = 0.8}, o->json);
    TRY(measure_shared(o, shape_1b.n_heads, false, &shared, err));
    TRY(measure_shared(o, shape_1b.n_heads, true, &apart, err));
    speed_report(&(speed_line){.name = "cascade gain", .type = "32 KV heads", .batch = SHARED_BATCH, .context = SHARED_PREFIX, .value = {apart.us / shared.us, 0}, .unit = "x", .goal = 3}, o->json);
    return QUIRE_OK;
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
    speed_report(&(speed_line){.name = "overhead", .type = p.type, .batch = c.n_rows, .value = {100 * stages_share(&c, STAGE_IS_OTHER), 0}, .unit = "% of step", .less_is_better = true, .goal = 3}, o->json);
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
            return err_set(err, QUIRE_INVALID, -1, "--types %s: must be some of q4_0,q8_0,q4_k,int8,bf16", o->types);
        }
    }
    return QUIRE_OK;
}

quire_err bench_speed_run(const bench_speed_options *o, quire_error *err) {
    roofline r;
    const llama_shape *shape = o->small ? &shape_small : &shape_1b;
    TRY(check(o, err));
    TRY(roofline_measure_with(o->isa, o->n_threads, &roofline_usual, &r, err));
    report_roofline(o, &r);
    for (const char *list = o->types; *list != '\0';) {
        bool is_first = list == o->types;
        const speed_type *type = next_type(&list);
        quire_err e = speed_model_run(o, shape, type, &r, is_first, err);
        if (e == QUIRE_NO_MEMORY) {
            speed_report_skipped("model", type->name, err->message, o->json);
        } else if (e != QUIRE_OK) {
            return e;
        }
    }
    TRY(run_attention(o, shape, &r, err));
    if (o->small) {
        return QUIRE_OK;
    }
    TRY(run_shared(o, &r, err));
    return run_overhead(o, err);
}

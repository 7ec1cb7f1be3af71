#include "lab/bench/bench_speed_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "lab/bench/bench_speed_report.h"
#include "lab/bench/client.h"
#include "lab/bench/synthetic.h"

enum { DECODE_PROMPT = 128, DECODE_TOKENS = 32, PREFILL_PROMPT = 512, IDLE_MS = 1000 };

/* An open engine, and prompts that its prefix cache keeps: only the first decode of a
 * batch computes them. */
typedef struct run {
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
} run;

static quire_err await(run *m, int32_t n, quire_error *err) {
    while (n > 0) {
        n -= client_receive(&m->c, -1);
    }
    if (m->c.n_failed > 0) {
        *err = m->c.failure;
        return err->code != QUIRE_OK ? err->code : QUIRE_INTERNAL;
    }
    return QUIRE_OK;
}

static quire_err measure_prefill(run *m, quire_error *err) {
    double speeds[FIGURES_MAX_RUNS];
    for (int32_t i = -1; i < m->o->n_runs; i++) { /* the first warms up */
        sent s = {0};
        int64_t start = clock_us();
        TRY(client_send_random(&m->c, &m->draw, PREFILL_PROMPT, 1, &s, err));
        TRY(await(m, 1, err));
        speeds[i < 0 ? 0 : i] = PREFILL_PROMPT / ((double)(s.first_us - start) * 1e-6);
    }
    const speed_line line = {.name = "prefill",
                             .type = m->type->name,
                             .prompt = PREFILL_PROMPT,
                             .value = figure_of(speeds, m->o->n_runs),
                             .unit = "tokens/s",
                             .limit = shape_prefill_limit(&m->shape, m->type, m->r, PREFILL_PROMPT),
                             .goal = m->o->small ? NAN : speed_goal("prefill", m->type->name, 0)};
    speed_report(&line, m->o->json);
    return QUIRE_OK;
}

typedef struct decoding {
    run *m;
    int32_t batch;
} decoding;

static quire_err decode_once(run *m, int32_t batch, int32_t n_tokens, quire_error *err) {
    for (int32_t i = 0; i < batch; i++) {
        m->requests[i] = (sent){.times_us = m->times + (size_t)i * DECODE_TOKENS,
                                .looks = m->looks + (size_t)i * DECODE_TOKENS};
        TRY(client_send(&m->c, m->prompts + (size_t)i * DECODE_PROMPT, DECODE_PROMPT, n_tokens,
                        &m->requests[i], err));
    }
    return await(m, batch, err);
}

static quire_err decode_timed(void *context, double *speed, quire_error *err) {
    const decoding *d = context;
    int64_t steps_before = client_steps(&d->m->c);
    TRY(decode_once(d->m, d->batch, DECODE_TOKENS, err));
    *speed = client_decode_speed(d->m->requests, d->batch, 0, client_steps(&d->m->c) - steps_before);
    return QUIRE_OK;
}

static quire_err measure_decode(run *m, int32_t batch, quire_error *err) {
    figure speed;
    TRY(decode_once(m, batch, 1, err)); /* computes the prompts */
    TRY(client_measure(decode_timed, &(decoding){m, batch}, m->o->n_runs, &speed, err));
    if (isnan(speed.mean)) {
        speed_report_skipped("decode", m->type->name,
                             "tokens reached their reader late, or answers not together: other programs take "
                             "this machine's time",
                             m->o->json);
        return QUIRE_OK;
    }
    double context = DECODE_PROMPT + DECODE_TOKENS / 2.0;
    dtype kv = strcmp(m->c.info->kv_dtype, dtype_flag_name(DTYPE_F32)) == 0 ? DTYPE_F32 : DTYPE_BF16;
    const speed_line line = {.name = "decode",
                             .type = m->type->name,
                             .batch = batch,
                             .context = DECODE_PROMPT,
                             .value = speed,
                             .unit = "tokens/s",
                             .limit = shape_decode_limit(&m->shape, m->type, m->r, batch, context, kv),
                             .goal = m->o->small ? NAN : speed_goal("decode", m->type->name, batch)};
    speed_report(&line, m->o->json);
    return QUIRE_OK;
}

/* ---- what an engine takes beside its work ---- */

/* Bytes of this process that are no file's: what it allocated. -1: unknown. */
static int64_t own_bytes(void) {
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

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* After the work: every page of the pool was used, so all of what is not weights and
 * pages is beside them. */
static void report_rest(const run *m, int64_t before_bytes) {
    int64_t now = own_bytes();
    const quire_info *info = m->c.info;
    if (before_bytes >= 0 && now >= 0) {
        double beside =
            (double)(now - before_bytes - info->weight_bytes - info->n_pages * info->page_bytes) / 1e6;
        speed_report(&(speed_line){.name = "memory",
                                   .type = m->type->name,
                                   .value = {beside, 0},
                                   .unit = "MB",
                                   .less_is_better = true,
                                   .goal = 64},
                     m->o->json);
    }
    double start = cpu_seconds();
    int64_t start_us = clock_us();
    nanosleep(&(struct timespec){.tv_sec = IDLE_MS / 1000, .tv_nsec = IDLE_MS % 1000 * 1000000}, NULL);
    double percent = 100 * (cpu_seconds() - start) / ((double)(clock_us() - start_us) * 1e-6);
    percent = round(percent * 10) / 10;
    speed_report(&(speed_line){.name = "idle",
                               .type = m->type->name,
                               .value = {percent, 0},
                               .unit = "% CPU",
                               .less_is_better = true,
                               .goal = 0},
                 m->o->json);
}

/* ---- a run ---- */

static int32_t pages_of(const run *m, int32_t page_tokens) {
    int32_t decode = (DECODE_PROMPT + DECODE_TOKENS) / page_tokens + 1,
            prefill = PREFILL_PROMPT / page_tokens + 2;
    return m->most * decode + prefill;
}

static quire_err open_run(run *m, const char *path, quire_error *err) {
    quire_options e;
    quire_options_init(&e);
    e.model = path;
    e.compute = speed_type_compute(m->type);
    e.n_threads = m->o->n_threads;
    e.isa = m->o->isa;
    e.max_seqs = m->most;
    e.prefix_cache = QUIRE_PREFIX_CACHE_TOKEN;
    e.n_pages = pages_of(m, e.page_tokens);
    e.max_model_len = PREFILL_PROMPT + DECODE_TOKENS;
    m->prompts = mem_new((size_t)m->most * DECODE_PROMPT, sizeof *m->prompts);
    m->requests = mem_new((size_t)m->most, sizeof *m->requests);
    m->times = mem_new((size_t)m->most * DECODE_TOKENS, sizeof *m->times);
    m->looks = mem_new((size_t)m->most * DECODE_TOKENS, sizeof *m->looks);
    if (m->prompts == NULL || m->requests == NULL || m->times == NULL || m->looks == NULL) {
        return err_set(err, QUIRE_NO_MEMORY, -1, "out of memory for %d requests", (int)m->most);
    }
    for (int32_t i = 0; i < m->most * DECODE_PROMPT; i++) {
        m->prompts[i] = (int32_t)(rng_next(&m->draw) % (uint64_t)m->shape.n_vocab);
    }
    return client_open(&e, (engine_ablations){0}, &m->c, err);
}

static quire_err measure_all(run *m, quire_error *err) {
    TRY(measure_prefill(m, err));
    for (int32_t i = 0; i < m->n_batches; i++) {
        TRY(measure_decode(m, m->batches[i], err));
    }
    return QUIRE_OK;
}

quire_err speed_model_run(const bench_speed_options *o, const model_shape *shape, const speed_type *type,
                          const roofline *r, bool with_rest, quire_error *err) {
    run m = {.o = o, .shape = model_shape_costs(shape), .type = type, .r = r, .draw = 1};
    synthetic s;
    TRY(figures_parse_list("--batch", o->batches, m.batches, &m.n_batches, err));
    for (int32_t i = 0; i < m.n_batches; i++) {
        m.most = m.batches[i] > m.most ? m.batches[i] : m.most;
    }
    int64_t before_bytes = own_bytes();
    TRY(synthetic_open(shape, type->file, &s, err));
    quire_err e = open_run(&m, s.path, err);
    synthetic_close(&s);
    if (e == QUIRE_OK) {
        e = measure_all(&m, err);
        if (e == QUIRE_OK && with_rest) {
            report_rest(&m, before_bytes);
        }
        client_close(&m.c);
    }
    mem_free(m.prompts);
    mem_free(m.requests);
    mem_free(m.times);
    mem_free(m.looks);
    return e;
}

#include "lab/bench/bench_roofline.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "lab/bench/bench_line.h"
#include "lab/bench/figures.h"
#include "lab/bench/peak.h"

enum { MAX_THREADS = 1024, FIRST_ROUNDS = 1000, PART_US = 200, TURNS = 3 };

const roofline_effort roofline_usual = {.megabytes = 512, .milliseconds = 100};

/* ---- measuring ---- */

typedef struct looping {
    const peak_loop *loop;
    int32_t n_rounds;
    volatile float kept; /* what keeps the work from being left out */
} looping;

static void run_loop(void *context, int32_t task, int32_t worker) {
    (void)task;
    (void)worker;
    looping *l = context;
    float value = l->loop->run(l->n_rounds);
    if (value != value) { /* never; but nobody knows it before */
        l->kept = value;
    }
}

/* Rounds that take PART_US: long enough for the clock, short enough to fall between other
 * programs' turns. */
static int32_t rounds_of(looping *l) {
    for (l->n_rounds = FIRST_ROUNDS; l->n_rounds <= INT32_MAX / 4; l->n_rounds *= 2) {
        int64_t start = clock_us();
        run_loop(l, 0, 0);
        if (clock_us() - start >= PART_US) {
            break;
        }
    }
    return l->n_rounds;
}

/* One turn of several: the best becomes the operations a second of all threads together,
 * where that is more, the mean that of equally long turns. Nothing for a kind without
 * instructions. */
static void measure_loop(backend *b, const peak_loop *loop, int64_t run_us, roofline_rate *rate) {
    rate->by = loop->by;
    if (loop->run == NULL) {
        return;
    }
    looping l = {.loop = loop};
    int32_t n_parts = b->ops->n_workers(b), n_runs = 0;
    double ops = (double)loop->ops * rounds_of(&l) * n_parts;
    int64_t start = clock_us(), all;
    do {
        int64_t before = clock_us();
        b->ops->run_tasks(b, run_loop, &l, n_parts);
        int64_t took = clock_us() - before;
        rate->best = fmax(rate->best, ops / ((double)(took > 0 ? took : 1) * 1e-6));
        all = clock_us() - start;
        n_runs++;
    } while (all < run_us);
    /* rounding apart */
    rate->mean = fmin(rate->best, rate->mean + ops * n_runs / ((double)(all > 0 ? all : 1) * 1e-6) / TURNS);
}

static void measure_loops(backend *b, int64_t run_us, roofline *out) {
    const peak_kernels *k = peak_of(b);
    /* in turns, so that a slow spell of the machine does not hit one of them alone */
    for (int32_t turn = 0; turn < TURNS; turn++) {
        measure_loop(b, &k->f32, run_us / TURNS, &out->f32);
        measure_loop(b, &k->bf16, run_us / TURNS, &out->bf16);
        measure_loop(b, &k->int8, run_us / TURNS, &out->int8);
        measure_loop(b, &k->int8_small, run_us / TURNS, &out->int8_small);
    }
    if (k->bf16.run == NULL) {
        out->bf16 = out->f32;
        out->bf16.by = "no dot product of bf16: as f32";
    }
}

quire_err roofline_measure(const char *isa, int32_t n_threads, const char *cpu_bind,
                           const roofline_effort *effort, roofline *out, quire_error *err) {
    backend *b;
    TRY(backend_cpu_open(&(backend_options){.isa = isa, .n_threads = n_threads, .cpu_bind = cpu_bind}, &b,
                         err));
    *out = (roofline){.n_threads = b->ops->n_workers(b), .n_measurements = 1};
    snprintf(out->machine, sizeof out->machine, "%s", b->ops->describe(b));
    int64_t run_us = (int64_t)effort->milliseconds * 1000;
    b->ops->enter(b);
    measure_loops(b, run_us, out);
    quire_err e = bandwidth_by_way(b, (int64_t)effort->megabytes << 20, run_us, out->reads);
    b->ops->leave(b);
    b->ops->close(b);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d MiB to measure the memory with: %s", (int)effort->megabytes,
                       quire_err_text(e));
    }
    for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
        if (out->reads[i].best > out->read.best) {
            out->read = (roofline_rate){out->reads[i].best, out->reads[i].mean, bandwidth_names[i]};
        }
    }
    return QUIRE_OK;
}

/* share: of all measurements that the later ones are. */
static void join(roofline_rate *rate, const roofline_rate *later, double share) {
    rate->mean += (later->mean - rate->mean) * share;
    if (later->best > rate->best) {
        rate->best = later->best;
        rate->by = later->by;
    }
}

void roofline_join(roofline *r, const roofline *later) {
    r->n_measurements += later->n_measurements;
    double share = (double)later->n_measurements / r->n_measurements;
    for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
        r->reads[i].best = fmax(r->reads[i].best, later->reads[i].best);
        r->reads[i].mean += (later->reads[i].mean - r->reads[i].mean) * share;
    }
    join(&r->read, &later->read, share);
    join(&r->f32, &later->f32, share);
    join(&r->bf16, &later->bf16, share);
    join(&r->int8, &later->int8, share);
    join(&r->int8_small, &later->int8_small, share);
}

/* ---- reporting ---- */

void bench_roofline_options_init(bench_roofline_options *o) {
    *o = (bench_roofline_options){.effort = roofline_usual};
}

static void print_json(const roofline *r, const char *what, const roofline_rate *rate, const char *unit) {
    for (int i = 0; i < 2; i++) { /* the best, and the mean beside it */
        char name[32];
        json_line l;
        (void)snprintf(name, sizeof name, "%s%s", what, i == 0 ? "" : "_mean");
        json_out *params = bench_line_begin(&l, "roofline", name);
        json_cstr(json_name(params, "by"), rate->by);
        json_int(json_name(params, "threads"), r->n_threads);
        json_cstr(json_name(params, "machine"), r->machine);
        if (i == 0) {
            bench_line_end(&l, rate->best, unit);
        } else {
            bench_line_end_limited(&l, rate->mean, unit, rate->best, rate->mean / rate->best);
        }
    }
}

static void report(const roofline *r, bool json) {
    const struct {
        const char *what, *name;
        const roofline_rate *rate;
    } peaks[] = {{"f32", "f32", &r->f32},
                 {"bf16", "bf16", &r->bf16},
                 {"int8", "int8", &r->int8},
                 {"int8 by 4 bits", "int8_by_4_bits", &r->int8_small}};
    enum { N_PEAKS = (int)(sizeof peaks / sizeof *peaks) };
    if (json) {
        print_json(r, "read", &r->read, "bytes/s");
        for (int i = 0; i < N_PEAKS; i++) {
            print_json(r, peaks[i].name, peaks[i].rate, "operations/s");
        }
    } else {
        printf("%s\n%24s %8s\n", r->machine, "best", "mean");
        printf("  %-14s %7.1f %8.1f GB/s  %s\n", "reading", r->read.best / 1e9, r->read.mean / 1e9,
               r->read.by);
        for (int i = 0; i < N_PEAKS; i++) {
            printf("  %-14s %7.1f %8.1f GOP/s %s\n", peaks[i].what, peaks[i].rate->best / 1e9,
                   peaks[i].rate->mean / 1e9, peaks[i].rate->by);
        }
        printf("  ways to read, GB/s:\n");
        for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
            printf("    %-38s %6.1f %6.1f\n", bandwidth_names[i], r->reads[i].best / 1e9,
                   r->reads[i].mean / 1e9);
        }
    }
    fflush(stdout);
}

/* How many threads a backend has that is not told. */
static quire_err count_threads(const bench_roofline_options *o, int32_t *out, quire_error *err) {
    backend *b;
    TRY(backend_cpu_open(&(backend_options){.isa = o->isa, .cpu_bind = o->cpu_bind}, &b, err));
    *out = b->ops->n_workers(b);
    b->ops->close(b);
    return QUIRE_OK;
}

quire_err bench_roofline_run(const bench_roofline_options *o, quire_error *err) {
    int32_t threads[FIGURES_MAX_POINTS], n = 0, all = 0;
    if (o->threads != NULL) {
        TRY(figures_parse_list("--threads", o->threads, threads, &n, err));
    } else {
        TRY(count_threads(o, &all, err));
    }
    for (int32_t t = 1; o->threads == NULL; t = t * 2 < all ? t * 2 : all) {
        threads[n++] = t;
        if (t == all) {
            break;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        roofline r;
        if (threads[i] > MAX_THREADS) {
            return err_set(err, QUIRE_INVALID, -1, "--threads %s: at most %d", o->threads, MAX_THREADS);
        }
        TRY(roofline_measure(o->isa, threads[i], o->cpu_bind, &o->effort, &r, err));
        report(&r, o->json);
    }
    return QUIRE_OK;
}

#include "bench/roofline.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "bench/figures.h"
#include "bench/peak.h"

enum { MAX_THREADS = 1024, FIRST_ROUNDS = 1000, PART_US = 200, TURNS = 3 };

const roofline_effort roofline_usual = {.megabytes = 512, .milliseconds = 100};

/* ---- measuring ---- */

typedef struct looping {
    const peak_loop *loop;
    int32_t n_rounds;
    volatile float kept; /* what keeps the work from being left out */
} looping;

static void run_loop(void *context, int32_t part, int32_t member) {
    (void)part;
    (void)member;
    looping *l = context;
    float value = l->loop->run(l->n_rounds);
    if (value != value) { /* never; but nobody knows it before */
        l->kept = value;
    }
}

/* Rounds that take PART_US: long enough for the clock, short enough to fall between other programs' turns. */
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

/* Raises *rate to the operations a second of all threads together, where that is more. Nothing for a kind without instructions. */
static void raise_rate(backend *b, const peak_loop *loop, int64_t run_us, double *rate) {
    if (loop->run == NULL) {
        return;
    }
    looping l = {.loop = loop};
    int32_t n_parts = b->ops->n_workers(b);
    double ops = (double)loop->ops * rounds_of(&l) * n_parts;
    int64_t start = clock_us(), took;
    do {
        int64_t before = clock_us();
        b->ops->run_parts(b, run_loop, &l, n_parts);
        took = clock_us() - before;
        *rate = fmax(*rate, ops / ((double)(took > 0 ? took : 1) * 1e-6));
    } while (clock_us() - start < run_us);
}

static void measure_loops(backend *b, int64_t run_us, roofline *out) {
    const peak_kernels *k = peak_of(b);
    for (int32_t turn = 0; turn < TURNS; turn++) { /* in turns, so that a slow spell of the machine does not hit one of them alone */
        raise_rate(b, &k->f32, run_us / TURNS, &out->f32);
        raise_rate(b, &k->bf16, run_us / TURNS, &out->bf16);
        raise_rate(b, &k->int8, run_us / TURNS, &out->int8);
        raise_rate(b, &k->int8_small, run_us / TURNS, &out->int8_small);
    }
    out->f32_by = k->f32.by;
    out->bf16_by = k->bf16.by;
    out->int8_by = k->int8.by;
    out->int8_small_by = k->int8_small.by;
    if (k->bf16.run == NULL) {
        out->bf16 = out->f32;
        out->bf16_by = "no dot product of bf16: as f32";
    }
}

quire_err roofline_measure(const char *isa, int32_t n_threads, const char *cpu_bind, const roofline_effort *effort, roofline *out,
                           quire_error *err) {
    backend *b;
    TRY(backend_cpu_open(&(backend_options){.isa = isa, .n_threads = n_threads, .cpu_bind = cpu_bind}, &b, err));
    *out = (roofline){.n_threads = b->ops->n_workers(b)};
    snprintf(out->machine, sizeof out->machine, "%s", b->ops->describe(b));
    int64_t run_us = (int64_t)effort->milliseconds * 1000;
    b->ops->enter(b);
    measure_loops(b, run_us, out);
    quire_err e = bandwidth_by_way(b, (int64_t)effort->megabytes << 20, run_us, out->reads);
    b->ops->leave(b);
    b->ops->close(b);
    if (e != QUIRE_OK) {
        return err_set(err, e, -1, "%d MiB to measure the memory with: %s", (int)effort->megabytes, quire_err_text(e));
    }
    for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
        if (out->reads[i] > out->read) {
            out->read = out->reads[i];
            out->read_by = bandwidth_names[i];
        }
    }
    return QUIRE_OK;
}

static void raise_to(double *rate, const char **by, double later, const char *later_by) {
    if (later > *rate) {
        *rate = later;
        *by = later_by;
    }
}

void roofline_raise(roofline *r, const roofline *later) {
    for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
        r->reads[i] = fmax(r->reads[i], later->reads[i]);
    }
    raise_to(&r->read, &r->read_by, later->read, later->read_by);
    raise_to(&r->f32, &r->f32_by, later->f32, later->f32_by);
    raise_to(&r->bf16, &r->bf16_by, later->bf16, later->bf16_by);
    raise_to(&r->int8, &r->int8_by, later->int8, later->int8_by);
    raise_to(&r->int8_small, &r->int8_small_by, later->int8_small, later->int8_small_by);
}

/* ---- reporting ---- */

void bench_roofline_options_init(bench_roofline_options *o) {
    *o = (bench_roofline_options){.effort = roofline_usual};
}

static void print_json(const roofline *r, const char *what, const char *by, double value, const char *unit) {
    json_object *line = json_object_new_object(), *params = json_object_new_object();
    json_object_object_add(line, "name", json_object_new_string("roofline"));
    json_object_object_add(params, "what", json_object_new_string(what));
    json_object_object_add(params, "by", json_object_new_string(by));
    json_object_object_add(params, "threads", json_object_new_int(r->n_threads));
    json_object_object_add(params, "machine", json_object_new_string(r->machine));
    json_object_object_add(line, "params", params);
    json_object_object_add(line, "value", json_object_new_double(value));
    json_object_object_add(line, "unit", json_object_new_string(unit));
    printf("%s\n", json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(line);
}

static void report(const roofline *r, bool json) {
    const struct {
        const char *what, *by;
        double rate;
    } peaks[] = {{"f32", r->f32_by, r->f32},
                 {"bf16", r->bf16_by, r->bf16},
                 {"int8", r->int8_by, r->int8},
                 {"int8 by 4 bits", r->int8_small_by, r->int8_small}};
    enum { N_PEAKS = (int)(sizeof peaks / sizeof *peaks) };
    if (json) {
        print_json(r, "read", r->read_by, r->read, "bytes/s");
        for (int i = 0; i < N_PEAKS; i++) {
            print_json(r, peaks[i].what, peaks[i].by, peaks[i].rate, "operations/s");
        }
    } else {
        printf("%s\n  reading %24.1f GB/s  %s\n", r->machine, r->read / 1e9, r->read_by);
        for (int i = 0; i < N_PEAKS; i++) {
            printf("  %-14s %17.1f GOP/s %s\n", peaks[i].what, peaks[i].rate / 1e9, peaks[i].by);
        }
        printf("  ways to read, GB/s:\n");
        for (int32_t i = 0; i < BANDWIDTH_WAYS; i++) {
            printf("    %-38s %6.1f\n", bandwidth_names[i], r->reads[i] / 1e9);
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

#include "lab/bench/roofline.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "lab/bench/peak.h"

enum { STRETCH = 1 << 20, TOUCH = 4096, TURNS = 3 };

typedef struct memory_way {
    peak_way way;
    bool small_pages;
} memory_way;

static const memory_way ways[BANDWIDTH_WAYS] = {
    {{1, 0}, false},    {{2, 0}, false},   {{4, 0}, false},    {{8, 0}, false}, {{1, 512}, false},
    {{1, 2048}, false}, {{4, 512}, false}, {{4, 2048}, false}, {{1, 0}, true},  {{1, 512}, true},
};

static const char *const way_names[BANDWIDTH_WAYS] = {
    "1 stream a thread",
    "2 streams",
    "4 streams",
    "8 streams",
    "1 stream, prefetch 512 B ahead",
    "1 stream, prefetch 2 KiB",
    "4 streams, prefetch 512 B",
    "4 streams, prefetch 2 KiB",
    "1 stream, 4 KiB pages",
    "1 stream, 4 KiB pages, prefetch 512 B",
};

const char *const roofline_names[ROOFLINE_RATES] = {"read", "f32", "bf16", "int8", "int8 by 4 bits"};

typedef struct reading {
    const peak_kernels *kernels;
    const peak_way *way;
    uint8_t *bytes;
    uint64_t *sums; /* one per stretch, so that no read can be optimised away */
} reading;

static void read_stretch(void *context, int32_t task, int32_t worker) {
    (void)worker;
    const reading *r = context;
    r->sums[task] += r->kernels->read(r->bytes + (size_t)task * STRETCH, STRETCH, r->way);
}

/* Touches a stretch with the thread that reads it, so that its memory is allocated near
 * that thread. */
static void touch_stretch(void *context, int32_t task, int32_t worker) {
    (void)worker;
    const reading *r = context;
    for (size_t i = 0; i < STRETCH; i += TOUCH) {
        r->bytes[(size_t)task * STRETCH + i] = (uint8_t)i;
    }
}

/* What a turn of a measurement runs: `repeats` times n_tasks tasks, which together read or
 * compute `amount`. */
typedef struct roofline_turn {
    thread_pool_fn fn;
    void *context;
    int32_t n_tasks, repeats;
    double amount;
} roofline_turn;

/* One turn of several: updates *rate with the best so far, and the mean of equally long
 * turns. */
static void measure_turn(backend *b, const roofline_turn *t, int64_t run_us, roofline_rate *rate) {
    int64_t start = clock_us(), all;
    int32_t n = 0;
    do {
        int64_t before = clock_us();
        for (int32_t i = 0; i < t->repeats; i++) {
            b->ops->run_tasks(b, t->fn, t->context, t->n_tasks);
        }
        int64_t took = clock_us() - before;
        rate->best = fmax(rate->best, t->amount / ((double)(took > 0 ? took : 1) * 1e-6));
        all = clock_us() - start;
        n++;
    } while (all < run_us);
    /* the mean can exceed the best only by rounding */
    rate->mean = fmin(rate->best, rate->mean + t->amount * n / ((double)(all > 0 ? all : 1) * 1e-6) / TURNS);
}

static void measure_way(backend *b, reading *r, int32_t n_stretches, int64_t run_us, roofline_rate *rate) {
    /* enough passes for the clock's resolution */
    const int32_t repeats = n_stretches < 64 ? 64 / n_stretches : 1;
    const roofline_turn t = {read_stretch, r, n_stretches, repeats, (double)n_stretches * STRETCH * repeats};
    measure_turn(b, &t, run_us, rate);
}

/* Measures all ways on one buffer, in small pages or, if the system has them, huge
 * pages. */
static quire_err measure_pages(backend *b, int32_t n_stretches, bool small_pages, int64_t run_us,
                               roofline_rate *rates) {
    size_t n = (size_t)n_stretches;
    reading r = {.kernels = peak_of(b),
                 .bytes =
                     small_pages ? mem_new(n, STRETCH) : cpu_new_spread((const cpu_backend *)b, n * STRETCH),
                 .sums = mem_new(n, sizeof *r.sums)};
    if (r.bytes == NULL || r.sums == NULL) {
        mem_free(r.bytes);
        mem_free(r.sums);
        return QUIRE_NO_MEMORY;
    }
    b->ops->run_tasks(b, touch_stretch, &r, n_stretches);
    for (int32_t i = 0; i < TURNS * BANDWIDTH_WAYS;
         i++) { /* alternating, so that a slow period of the machine does not affect only one way */
        int32_t way = i % BANDWIDTH_WAYS;
        if (ways[way].small_pages == small_pages) {
            r.way = &ways[way].way;
            rates[way].by = way_names[way];
            measure_way(b, &r, n_stretches, run_us / TURNS, &rates[way]);
        }
    }
    mem_free(r.bytes);
    mem_free(r.sums);
    return QUIRE_OK;
}

quire_err bandwidth_by_way(backend *b, int64_t n_bytes, int64_t run_us, roofline_rate rates[BANDWIDTH_WAYS]) {
    int64_t n = n_bytes > 0 ? (n_bytes + STRETCH - 1) / STRETCH : 1;
    if (n > 1 << 20) {
        return QUIRE_TOO_LARGE;
    }
    memset(rates, 0, BANDWIDTH_WAYS * sizeof *rates);
    TRY(measure_pages(b, (int32_t)n, false, run_us, rates));
    return measure_pages(b, (int32_t)n, true, run_us, rates);
}

enum { FIRST_ROUNDS = 1000, PART_US = 200 };

const roofline_effort roofline_usual = {.megabytes = 512, .milliseconds = 100};

/* ---- measuring ---- */

typedef struct looping {
    const peak_loop *loop;
    int32_t n_rounds;
    volatile float kept; /* keeps the compiler from dropping the work */
} looping;

static void run_loop(void *context, int32_t task, int32_t worker) {
    (void)task;
    (void)worker;
    looping *l = context;
    float value = l->loop->run(l->n_rounds);
    if (value != value) { /* never true, which the compiler cannot know */
        l->kept = value;
    }
}

/* Number of rounds that take PART_US: long enough for the clock, short enough to fit
 * between other programs' time slices. */
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

/* Does nothing for a kind without instructions. */
static void measure_loop(backend *b, const peak_loop *loop, int64_t run_us, roofline_rate *rate) {
    rate->by = loop->by;
    if (loop->run != NULL) {
        looping l = {.loop = loop};
        int32_t n_parts = b->ops->n_workers(b);
        const roofline_turn t = {run_loop, &l, n_parts, 1, (double)loop->ops * rounds_of(&l) * n_parts};
        measure_turn(b, &t, run_us, rate);
    }
}

static void measure_loops(backend *b, int64_t run_us, roofline *out) {
    const peak_kernels *k = peak_of(b);
    /* alternating, so that a slow period of the machine does not affect only one loop */
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
        out->read = out->reads[i].best > out->read.best ? out->reads[i] : out->read;
    }
    return QUIRE_OK;
}

/* share: of the later measurements in all. */
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
        join(&r->reads[i], &later->reads[i], share);
    }
    for (int32_t i = 0; i < ROOFLINE_RATES; i++) {
        join(&r->rates[i], &later->rates[i], share);
    }
}

/* ---- the loops in plain C, and the table of each backend ---- */

#define INDEPENDENT 8 /* independent sums */

static uint64_t read_plain(const uint8_t *p, size_t n, const peak_way *way) {
    uint64_t sums[INDEPENDENT] = {0}, sum = 0;
    size_t streams = (size_t)way->n_streams, share = n / streams;
    for (size_t at = 0; at < share; at += INDEPENDENT * sizeof(uint64_t)) {
        for (size_t s = 0; s < streams; s++) {
            const uint64_t *words = (const uint64_t *)(const void *)(p + s * share + at);
            if (way->ahead_bytes > 0) {
                __builtin_prefetch((const uint8_t *)words + way->ahead_bytes);
            }
            for (size_t i = 0; i < INDEPENDENT; i++) {
                sums[i] += words[i];
            }
        }
    }
    for (size_t i = 0; i < INDEPENDENT; i++) {
        sum += sums[i];
    }
    return sum;
}

static float f32_plain(int32_t n) {
    float a[INDEPENDENT], sum = 0;
    for (int i = 0; i < INDEPENDENT; i++) {
        a[i] = (float)i;
    }
    for (int32_t r = 0; r < n; r++) {
        for (int i = 0; i < INDEPENDENT; i++) {
            a[i] = a[i] * 0.75f + 0.5f;
        }
    }
    for (int i = 0; i < INDEPENDENT; i++) {
        sum += a[i];
    }
    return sum;
}

static float int8_plain(int32_t n) {
    uint32_t a[INDEPENDENT], sum = 0;
    for (uint32_t i = 0; i < INDEPENDENT; i++) {
        a[i] = i;
    }
    for (int32_t r = 0; r < n; r++) {
        for (int i = 0; i < INDEPENDENT; i++) {
            a[i] = a[i] * 5 + 3;
        }
    }
    for (int i = 0; i < INDEPENDENT; i++) {
        sum += a[i];
    }
    return (float)sum;
}

const peak_kernels peak_plain = {
    .read = read_plain,
    .f32 = {"a multiplication and an addition", f32_plain, 2 * INDEPENDENT},
    .int8 = {"a multiplication and an addition of 32 bits", int8_plain, 2 * INDEPENDENT},
    .int8_small = {"a multiplication and an addition of 32 bits", int8_plain, 2 * INDEPENDENT},
};

const peak_kernels *peak_of(const backend *b) {
#if defined(__x86_64__)
    switch (((const cpu_backend *)b)->isa) {
    case ISA_AVX512_BF16:
        return &peak_avx512bf16;
#if defined(QUIRE_AMX)
    case ISA_AMX:
        return &peak_amx;
#endif
    case ISA_AVX512:
        return &peak_avx512;
#if defined(QUIRE_AVXVNNI)
    case ISA_AVXVNNI:
        return &peak_avxvnni;
#endif
    case ISA_AVX2:
    case ISA_AMX_MODEL:
        return &peak_avx2;
    default:
        return &peak_plain;
    }
#else
    (void)b;
    return &peak_plain;
#endif
}

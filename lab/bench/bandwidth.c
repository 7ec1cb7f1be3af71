#include "lab/bench/bandwidth.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
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

const char *const bandwidth_names[BANDWIDTH_WAYS] = {
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

typedef struct reading {
    const peak_kernels *kernels;
    const peak_way *way;
    uint8_t *bytes;
    uint64_t *sums; /* one a stretch, so that no read is for nothing */
} reading;

static void read_stretch(void *context, int32_t task, int32_t worker) {
    (void)worker;
    const reading *r = context;
    r->sums[task] += r->kernels->read(r->bytes + (size_t)task * STRETCH, STRETCH, r->way);
}

/* Every page is a page of its own, near the thread that reads it first. */
static void touch_stretch(void *context, int32_t task, int32_t worker) {
    (void)worker;
    const reading *r = context;
    for (size_t i = 0; i < STRETCH; i += TOUCH) {
        r->bytes[(size_t)task * STRETCH + i] = (uint8_t)i;
    }
}

/* One turn of several: *rate becomes the best so far, and the mean of equally long
 * turns. */
static void measure_way(backend *b, reading *r, int32_t n_stretches, int64_t run_us, bandwidth *rate) {
    int64_t best = INT64_MAX, start = clock_us(), all;
    int32_t repeats = n_stretches < 64 ? 64 / n_stretches : 1, n_passes = 0; /* long enough for the clock */
    double bytes = (double)n_stretches * STRETCH * repeats;
    do {
        int64_t before = clock_us();
        for (int32_t i = 0; i < repeats; i++) {
            b->ops->run_tasks(b, read_stretch, r, n_stretches);
        }
        int64_t took = clock_us() - before;
        best = took < best ? took : best;
        all = clock_us() - start;
        n_passes++;
    } while (all < run_us);
    rate->best = fmax(rate->best, bytes / ((double)(best > 0 ? best : 1) * 1e-6));
    /* rounding apart */
    rate->mean =
        fmin(rate->best, rate->mean + bytes * n_passes / ((double)(all > 0 ? all : 1) * 1e-6) / TURNS);
}

/* All ways over one buffer, of small pages or of huge ones where the system has them. */
static quire_err measure_pages(backend *b, int32_t n_stretches, bool small_pages, int64_t run_us,
                               bandwidth *rates) {
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
         i++) { /* in turns, so that a slow spell of the machine does not hit one of them alone */
        int32_t way = i % BANDWIDTH_WAYS;
        if (ways[way].small_pages == small_pages) {
            r.way = &ways[way].way;
            measure_way(b, &r, n_stretches, run_us / TURNS, &rates[way]);
        }
    }
    mem_free(r.bytes);
    mem_free(r.sums);
    return QUIRE_OK;
}

quire_err bandwidth_by_way(backend *b, int64_t n_bytes, int64_t run_us, bandwidth rates[BANDWIDTH_WAYS]) {
    int64_t n = n_bytes > 0 ? (n_bytes + STRETCH - 1) / STRETCH : 1;
    if (n > 1 << 20) {
        return QUIRE_TOO_LARGE;
    }
    memset(rates, 0, BANDWIDTH_WAYS * sizeof *rates);
    TRY(measure_pages(b, (int32_t)n, false, run_us, rates));
    return measure_pages(b, (int32_t)n, true, run_us, rates);
}

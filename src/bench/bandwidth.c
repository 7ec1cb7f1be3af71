#include "bench/bandwidth.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/team.h"

enum { SLICE_WORDS = 1 << 15, MIN_PASSES = 5, MIN_TIME_US = 300000 };

typedef struct reading {
    const uint64_t *words; /* n_slices x SLICE_WORDS */
    uint64_t *sums;        /* one a slice, so that no read is for nothing */
} reading;

/* Sums a slice in eight lanes, which is enough for loads to be the only limit. */
static void read_slice(void *context, int32_t part, int32_t member) {
    (void)member;
    const reading *r = context;
    const uint64_t *w = r->words + (size_t)part * SLICE_WORDS;
    uint64_t lanes[8] = {0};
    for (size_t i = 0; i < SLICE_WORDS; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            lanes[j] += w[i + j];
        }
    }
    uint64_t sum = 0;
    for (size_t j = 0; j < 8; j++) {
        sum += lanes[j];
    }
    r->sums[part] += sum;
}

quire_err bandwidth_measure(int64_t n_bytes, int32_t n_threads, double *bytes_per_s) {
    size_t slice = SLICE_WORDS * sizeof(uint64_t);
    size_t n_slices = n_bytes > 0 ? ((size_t)n_bytes + slice - 1) / slice : 1;
    team *t;
    TRY(team_open(n_threads, &t));
    reading r = {mem_new_huge(n_slices, slice), mem_new(n_slices, sizeof(uint64_t))};
    if (!r.words || !r.sums) {
        mem_free((void *)r.words);
        mem_free(r.sums);
        team_close(t);
        return QUIRE_NO_MEMORY;
    }
    uint64_t *fill = (uint64_t *)r.words;
    for (size_t i = 0; i < n_slices * SLICE_WORDS; i += 512) {
        fill[i] = i; /* every page is a page of its own, not the zero page */
    }
    int64_t best = INT64_MAX, start = clock_us();
    for (int pass = 0; pass < MIN_PASSES || clock_us() - start < MIN_TIME_US; pass++) {
        int64_t before = clock_us();
        int repeats = n_slices < 256 ? 256 / (int)n_slices : 1; /* long enough for the clock */
        for (int i = 0; i < repeats; i++) {
            team_run(t, read_slice, &r, (int32_t)n_slices);
        }
        int64_t took = (clock_us() - before) / repeats;
        best = took < best ? took : best;
    }
    *bytes_per_s = (double)(n_slices * slice) / ((double)(best > 0 ? best : 1) * 1e-6);
    team_close(t);
    mem_free(fill);
    mem_free(r.sums);
    return QUIRE_OK;
}

#include "core/histogram.h"

#define MS INT64_C(1000)
#define S  INT64_C(1000000)

/* The same bounds as vLLM's metrics, so that dashboards made for vLLM fit. */
static const int64_t first_token_bounds[] = {
    1 * MS, 5 * MS,    10 * MS, 20 * MS,   40 * MS, 60 * MS, 80 * MS, 100 * MS, 250 * MS, 500 * MS, 750 * MS,
    1 * S,  2500 * MS, 5 * S,   7500 * MS, 10 * S,  20 * S,  40 * S,  80 * S,   160 * S,  640 * S,  2560 * S};
static const int64_t token_bounds[] = {10 * MS,   25 * MS,  50 * MS,  75 * MS,  100 * MS, 150 * MS,  200 * MS,
                                       300 * MS,  400 * MS, 500 * MS, 750 * MS, 1 * S,    2500 * MS, 5 * S,
                                       7500 * MS, 10 * S,   20 * S,   40 * S,   80 * S};
static const int64_t request_bounds[] = {
    300 * MS, 500 * MS, 800 * MS, 1 * S,  1500 * MS, 2 * S,   2500 * MS, 5 * S,   10 * S,   15 * S,  20 * S,
    30 * S,   40 * S,   50 * S,   60 * S, 120 * S,   240 * S, 480 * S,   960 * S, 1920 * S, 7680 * S};
static const int64_t length_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
static const int64_t sample_bounds[] = {1, 2, 5, 10, 20};
static const int64_t preemption_bounds[] = {1, 2, 3, 4, 5, 10, 20};
static const int64_t step_bounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

#define BOUNDS(list, of_times)                                                                               \
    { list, (int32_t)(sizeof list / sizeof *list), of_times }

static const struct {
    const int64_t *bounds;
    int32_t n;
    bool is_time;
} kinds[QUIRE_N_HISTOGRAMS] = {
    [QUIRE_HISTOGRAM_FIRST_TOKEN] = BOUNDS(first_token_bounds, true),
    [QUIRE_HISTOGRAM_E2E] = BOUNDS(request_bounds, true),
    [QUIRE_HISTOGRAM_QUEUE] = BOUNDS(request_bounds, true),
    [QUIRE_HISTOGRAM_PREFILL] = BOUNDS(request_bounds, true),
    [QUIRE_HISTOGRAM_DECODE] = BOUNDS(request_bounds, true),
    [QUIRE_HISTOGRAM_INFERENCE] = BOUNDS(request_bounds, true),
    [QUIRE_HISTOGRAM_TOKEN_TIME] = BOUNDS(token_bounds, true),
    [QUIRE_HISTOGRAM_PROMPT_TOKENS] = BOUNDS(length_bounds, false),
    [QUIRE_HISTOGRAM_COMPUTED_TOKENS] = BOUNDS(length_bounds, false),
    [QUIRE_HISTOGRAM_COMPLETION_TOKENS] = BOUNDS(length_bounds, false),
    [QUIRE_HISTOGRAM_MAX_TOKENS] = BOUNDS(length_bounds, false),
    [QUIRE_HISTOGRAM_PREEMPTIONS] = BOUNDS(preemption_bounds, false),
    [QUIRE_HISTOGRAM_LONGEST] = BOUNDS(length_bounds, false),
    [QUIRE_HISTOGRAM_SAMPLES] = BOUNDS(sample_bounds, false),
    [QUIRE_HISTOGRAM_TOKEN_GAP] = BOUNDS(token_bounds, true),
    [QUIRE_HISTOGRAM_STEP_TOKENS] = BOUNDS(step_bounds, false),
};

_Static_assert(sizeof first_token_bounds / sizeof(int64_t) < QUIRE_HISTOGRAM_BUCKETS,
               "the longest list of bounds, and a bucket without");

const int64_t *quire_histogram_bounds(quire_histogram_kind kind, int32_t *n) {
    *n = kinds[kind].n;
    return kinds[kind].bounds;
}

bool quire_histogram_is_time(quire_histogram_kind kind) {
    return kinds[kind].is_time;
}

void histogram_add(quire_histogram *h, quire_histogram_kind kind, int64_t value) {
    int32_t i = 0;
    value = value > 0 ? value : 0;
    while (i < kinds[kind].n && value > kinds[kind].bounds[i]) {
        i++;
    }
    h->buckets[i]++;
    h->sum += value;
    h->count++;
}

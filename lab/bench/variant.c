#include "lab/bench/variant.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "lab/bench/resident.h"

enum { SEED = 77, LEAST_VOCAB = 256 }; /* ids that every model has */

static quire_err variant_run_once(variant *t, bool counts_vary, quire_error *err) {
    lab_result r;
    int64_t peak_bytes;
    TRY(lab_once(&t->options, t->off, t->max_len, t->requests, t->n, t->at_once, &r, &peak_bytes, err));
    const lab_result *b = &t->best;
    if (t->n_done > 0 && (r.digest != b->digest || r.n_output != b->n_output)) {
        return err_set(err, QUIRE_INTERNAL, -1, "two runs of the same requests gave other answers");
    }
    if (t->n_done > 0 && !counts_vary &&
        (r.n_prompt_computed != b->n_prompt_computed || r.n_cached != b->n_cached)) {
        return err_set(err, QUIRE_INTERNAL, -1,
                       "two runs of the same requests computed %lld and %lld prompt tokens",
                       (long long)b->n_prompt_computed, (long long)r.n_prompt_computed);
    }
    if (t->n_done < FIGURES_MAX_RUNS) {
        t->runs[t->n_done] = r;
    }
    if (t->n_done++ == 0 || r.seconds < b->seconds) {
        t->best = r;
        t->peak_bytes = peak_bytes;
        t->resident_bytes = resident_peak_bytes();
    }
    return QUIRE_OK;
}

quire_err variants_run(variant *t, int32_t n, int32_t n_runs, bool counts_vary, quire_error *err) {
    for (int32_t run = 0; run < n_runs; run++) {
        for (int32_t i = 0; i < n; i++) {
            TRY(variant_run_once(&t[i], counts_vary, err));
        }
    }
    return QUIRE_OK;
}

int32_t *variant_prompts(const int32_t *lengths, int32_t n, int32_t n_output, lab_request *requests) {
    size_t n_tokens = 0, at = 0;
    for (int32_t i = 0; i < n; i++) {
        n_tokens += (size_t)lengths[i];
    }
    int32_t *tokens = mem_new(n_tokens, sizeof *tokens);
    uint64_t seed = SEED;
    for (size_t i = 0; tokens != NULL && i < n_tokens; i++) {
        tokens[i] = 1 + (int32_t)(rng_next(&seed) % (LEAST_VOCAB - 1));
    }
    for (int32_t i = 0; tokens != NULL && i < n; i++) {
        requests[i] =
            (lab_request){.tokens = tokens + at, .n_tokens = lengths[i], .n_output = n_output, .after = -1};
        at += (size_t)lengths[i];
    }
    return tokens;
}

int64_t variant_live_tokens(const lab_request *requests, int32_t n) {
    int64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        tokens += requests[i].n_tokens + requests[i].n_output - 1;
    }
    return tokens;
}

double variant_speed(const lab_result *r) {
    return (double)r->n_output / r->seconds;
}

static int variant_compare_speeds(const void *a, const void *b) {
    double x = variant_speed(a), y = variant_speed(b);
    return (x > y) - (x < y);
}

const lab_result *variant_median(variant *t, double *spread) {
    int32_t n = t->n_done < FIGURES_MAX_RUNS ? t->n_done : FIGURES_MAX_RUNS;
    qsort(t->runs, (size_t)n, sizeof *t->runs, variant_compare_speeds);
    double median = variant_speed(&t->runs[n / 2]);
    *spread = fmax(median - variant_speed(&t->runs[0]), variant_speed(&t->runs[n - 1]) - median);
    return &t->runs[n / 2];
}

#include "lab/sim/arrivals.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "lab/sim/trace_build.h"

/* Of a logarithm that is normally distributed: e to the power mu + sigma^2 / 2 is the
 * mean. */
typedef struct lengths {
    const char *name;
    double prompt_mean, prompt_sigma, output_mean, output_sigma;
} lengths;

static const lengths known[] = {
    {"sharegpt", 161.31, 1.1, 337.99, 0.9},
    {"alpaca", 19.31, 0.6, 58.45, 0.9},
};

enum { N_KNOWN = (int)(sizeof known / sizeof *known), MAX_DRAWS = 1000 };

const char arrivals_names[] = "sharegpt, alpaca";

/* In (0, 1). */
static double uniform(uint64_t *state) {
    return ((double)(rng_next(state) >> 11) + 0.5) * 0x1p-53;
}

static double normal(uint64_t *state) {
    double radius = sqrt(-2 * log(uniform(state))), turn = 6.283185307179586 * uniform(state);
    return radius * cos(turn);
}

static int32_t draw_length(double mean, double sigma, uint64_t *state) {
    double v = exp(log(mean) - sigma * sigma / 2 + sigma * normal(state));
    return v < 1 ? 1 : v > 1e6 ? 1000000 : (int32_t)lround(v);
}

static quire_err arrivals_add_request(trace_builder *b, const lengths *l, int32_t most, double at_s,
                                      uint64_t *state) {
    int32_t n_prompt = 1, n_output = most - 1;
    for (int32_t i = 0; i < MAX_DRAWS; i++) {
        int32_t p = draw_length(l->prompt_mean, l->prompt_sigma, state),
                a = draw_length(l->output_mean, l->output_sigma, state);
        if (p + a <= most) {
            n_prompt = p;
            n_output = a;
            break;
        }
    }
    TRY(trace_build_start(b, (int64_t)(at_s * 1e6), str_of("")));
    TRY(trace_build_new(b, n_prompt));
    trace_build_answer(b);
    TRY(trace_build_new(b, n_output));
    return trace_build_end(b);
}

quire_err arrivals_make(const arrivals_options *o, trace *out, quire_error *err) {
    const lengths *l = NULL;
    for (int32_t i = 0; i < N_KNOWN; i++) {
        l = strcmp(known[i].name, o->lengths) == 0 ? &known[i] : l;
    }
    if (l == NULL) {
        return err_set(err, QUIRE_INVALID, -1, "--lengths %s: must be one of %s", o->lengths, arrivals_names);
    }
    if (!(o->rate > 0) || o->n < 1 || o->most < 2) {
        return err_set(err, QUIRE_INVALID, -1,
                       "%d requests of at most %d tokens at %g a second: all must be positive", (int)o->n,
                       (int)o->most, o->rate);
    }
    trace_builder b = {0};
    uint64_t state = o->seed;
    double at_s = 0;
    quire_err e = QUIRE_OK;
    for (int32_t i = 0; e == QUIRE_OK && i < o->n; i++) {
        e = arrivals_add_request(&b, l, o->most, at_s, &state);
        at_s += -log(uniform(&state)) / o->rate;
    }
    e = e == QUIRE_OK ? trace_build_finish(&b, out) : e;
    trace_build_deinit(&b);
    return e == QUIRE_OK ? e : err_set(err, e, -1, "%d requests: %s", (int)o->n, quire_err_text(e));
}

void arrivals_space(trace *t, double rate, uint64_t seed) {
    double at_s = 0;
    for (int32_t i = 0; i < t->n_requests; i++) {
        t->requests[i].arrival_us = (int64_t)(at_s * 1e6);
        at_s += -log(uniform(&seed)) / rate;
    }
}

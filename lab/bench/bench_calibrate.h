/* `quire bench calibrate`: measures what a step of a model costs on this machine
 * (lab/sim/cost.h), through the public API as its users see it.
 *
 * Steps of known content are run: so many sequences decoding at so long a context, and
 * prompts that are one step or several. The cost model's factors are those, none
 * negative, whose relative errors over all of them are least in squares. No trace is
 * looked at. */
#ifndef LAB_BENCH_BENCH_CALIBRATE_H
#define LAB_BENCH_BENCH_CALIBRATE_H

#include "engine/ablations.h"
#include "lab/sim/cost.h"
#include "quire.h"

typedef struct calibrate_options {
    quire_options engine;
    engine_ablations off;
    const char *out; /* the file to write; NULL: print only */
    int32_t n_runs;  /* of every measurement, in turns */
    bool json;
} calibrate_options;

void calibrate_options_init(calibrate_options *o);
/* Measures and fits, prints nothing. */
quire_err calibrate_cost(const calibrate_options *o, cost_model *out, quire_error *err);
/* Measures, prints the measurements beside what the fitted model says of them, and writes
 * the file. */
quire_err calibrate_run(const calibrate_options *o, quire_error *err);

#endif

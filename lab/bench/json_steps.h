/* What sequences under schemas add to a decode step, for `quire bench json`. */
#ifndef LAB_BENCH_JSON_STEPS_H
#define LAB_BENCH_JSON_STEPS_H

#include <stdbool.h>

#include "engine/ablations.h"
#include "quire.h"

/* For each number in `rows`: prints, by the engine's own timers, a step of so many
 * sequences that decode n_steps tokens of free text, and of as many under a schema each
 * has for itself. */
quire_err json_steps_run(const quire_options *given, engine_ablations off, const char *rows, int32_t n_steps,
                         bool json, quire_error *err);

#endif

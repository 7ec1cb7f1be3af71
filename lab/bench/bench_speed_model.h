/* One model's part of `quire bench speed`: prefill and decode through the public API, and
 * what an open engine takes while it does nothing. */
#ifndef LAB_BENCH_BENCH_SPEED_MODEL_H
#define LAB_BENCH_BENCH_SPEED_MODEL_H

#include "lab/bench/bench_speed.h"
#include "lab/bench/model_shape.h"

/* Opens a model of random weights of this shape and type, measures, and reports a line a
 * figure; with_rest: of memory and idleness too. NO_MEMORY: the machine does not hold it;
 * nothing was reported. */
quire_err speed_model_run(const bench_speed_options *o, const model_shape *shape, const speed_type *type,
                          const roofline *r, bool with_rest, quire_error *err);

#endif

/* `quire bench speed --shape`: models of published shapes beside the Llama shape of the
 * same run. A pass may take what Llama's takes for as many bytes of weights and as many
 * operations.
 *
 * A product of B bytes and O operations is given B g(O / B). g(i) is the time a byte of
 * the Llama model's layers takes in a pass in which i operations fall on a byte of
 * weights. It is measured in passes of 1 to 512 rows, and lies on a line between them: at
 * few rows it is constant (bytes bound), at many it grows with the rows (operations
 * bound). Attention is left out of both: it has rows of its own in `quire bench
 * attention`. A machine's memory and clock change within seconds where others use it, so
 * g is measured anew right before each model's pass, and the ratio of a row is the median
 * over such rounds. Bytes and operations are those that the ops themselves report, so a
 * mixture counts the experts that have rows. */
#ifndef LAB_BENCH_BENCH_SHAPES_H
#define LAB_BENCH_BENCH_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct bench_shapes_options {
    const char *shapes;  /* "qwen3-0.6b,mixtral", or "all" */
    const char *types;   /* of weights; each is one of speed_types */
    const char *batches; /* sequences that decode together: "1,4,16" */
    const char *isa;
    int32_t n_threads; /* 0: one a core */
    int32_t n_runs;    /* rounds */
    bool small;        /* shapes of a few hundred thousand weights: to see that all works */
    bool json;
} bench_shapes_options;

/* Measures and prints to stdout. INVALID names a shape that is not there. What memory
 * does not hold is left out, saying so. */
quire_err bench_shapes_run(const bench_shapes_options *o, quire_error *err);

enum { SHAPE_PACE_POINTS = 10 };

/* g: microseconds a byte at operations a byte, ascending. */
typedef struct shape_pace {
    int32_t n;
    double intensity[SHAPE_PACE_POINTS], us_per_byte[SHAPE_PACE_POINTS];
} shape_pace;

/* g(intensity): on the line between two points; below the first as there, above the last
 * as if operations alone counted. */
double shape_pace_at(const shape_pace *p, double intensity);

#endif

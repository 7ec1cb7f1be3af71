/* `quire bench json`: what answers under JSON Schemas cost: their speed beside free text,
 * with and without jump-forward, and what sequences under them add to a decode step. */
#ifndef LAB_BENCH_BENCH_JSON_H
#define LAB_BENCH_BENCH_JSON_H

#include <stdbool.h>

#include "engine/ablations.h"
#include "quire.h"

typedef struct bench_json_options {
    quire_options engine;
    engine_ablations off;
    /* of a model of random weights in place of engine.model; NULL: none. Needs
     * engine.tokenizer */
    const char *shape;
    const char *type; /* of its weights */
    const char *rows; /* how many sequences decode together, "8,256"; "": none */
    int32_t n_each;   /* answers to each schema; 0: no speeds */
    int32_t n_steps;  /* decode steps of a batch */
    bool json;
} bench_json_options;

void bench_json_options_init(bench_json_options *o);

/* Prints tokens/s by schema of compact objects, one request at a time, each answer by
 * every way in turn: free text of as many tokens, constrained without jump-forward, and
 * with. QUIRE_INTERNAL: the latter two differ. Then, by the engine's own timers, a step
 * of free sequences and one of as many sequences each under a schema of its own. */
quire_err bench_json_run(const bench_json_options *o, quire_error *err);

#endif

/* How long requests wait for their adapters where many are known and few are loaded: an
 * adapter_store over a model, drawn from by Zipf's law.
 *
 * All of it is on one thread except for the store's own. */
#ifndef LAB_BENCH_ADAPTER_LOADS_H
#define LAB_BENCH_ADAPTER_LOADS_H

#include "backend/backend.h"
#include "model/model.h"

typedef struct adapter_loads_options {
    int32_t n_known;  /* adapters, all of the same file: of random halves on all linears of the layers */
    int32_t n_in_use; /* requests that have one at any time, and adapters that are loaded at most */
    int32_t n_draws;  /* requests, each begun when an earlier one ends */
    int32_t rank;
} adapter_loads_options;

/* Longest waits, in ms, beside the reading of files that the same requests waited for. */
typedef struct adapter_loads {
    /* of a request that comes alone; of all, the one whose wait is longest to its read */
    double one_wait, one_read;
    double all_wait, all_read;             /* of the last of n_in_use that come at once, with none loaded */
    int64_t n_loads, n_evictions, n_bytes; /* bytes: of the adapters that are loaded in the end */
    int32_t most_loaded;
} adapter_loads;

/* Writes the file below /tmp, and measures. UNSUPPORTED where no adapter of the model's
 * linears can be made. */
quire_err adapter_loads_measure(model *m, backend *b, const adapter_loads_options *o, adapter_loads *out,
                                quire_error *err);

#endif

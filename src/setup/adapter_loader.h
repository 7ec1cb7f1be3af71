/* The loader from which an adapter_store gets the weights of its adapters. */
#ifndef SETUP_ADAPTER_LOADER_H
#define SETUP_ADAPTER_LOADER_H

#include "base/err.h"
#include "base/sha256.h"

struct adapter; /* of a backend */

/* What a loader read from a file. */
typedef struct loaded_adapter {
    struct adapter *weights;
    int32_t rank;
    int64_t n_bytes;
    uint8_t digest[SHA256_BYTES];
    const int32_t *invocation; /* [n_invocation]; or NULL */
    int32_t n_invocation;
    void *own; /* the loader's */
} loaded_adapter;

/* How adapters are loaded and freed. Any thread, one at a time. */
typedef struct adapter_loader {
    quire_err (*load)(void *context, const char *path, loaded_adapter *out, quire_error *err);
    quire_err (*blend)(void *context, const struct adapter *const *parts, const float *scales, int32_t n,
                       struct adapter **out, quire_error *err);
    /* Frees what load made, or a blend, of which weights alone is set. */
    void (*free)(void *context, loaded_adapter *a);
    void *context;
} adapter_loader;

typedef struct adapter_store_options {
    int32_t max_resident; /* 1 at least */
    int32_t max_rank;     /* for all parts of a blend together */
    const char *dir;      /* directory whose entries are adapters by name; copied; NULL: none */
} adapter_store_options;

#endif

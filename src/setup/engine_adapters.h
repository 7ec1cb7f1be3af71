/* An engine's adapters as its options name them: opens the store, and loads adapters for
 * the engine's model. */
#ifndef SETUP_ENGINE_ADAPTERS_H
#define SETUP_ENGINE_ADAPTERS_H

#include "backend/backend.h"
#include "model/model_adapter.h"
#include "quire.h"
#include "setup/adapter_store.h"
#include "text/tokenizer.h"

/* All zero: not open. It must not be moved once it is open. */
typedef struct engine_adapters {
    adapter_store *store; /* NULL: the engine has no adapters */
    const model *m;
    backend *b;
    const tokenizer *text; /* or NULL */
    adapter_limits limits;
} engine_adapters;

/* Opens the store of o's adapters for model m in b, whose texts t has (or NULL);
 * out->store NULL: o has none. Files are read when they are wanted first. INVALID names
 * the flag: a list that is not
 * understood, a name given twice, a file that is not there. Close *out also after a
 * failure. */
quire_err engine_adapters_open(const model *m, backend *b, const tokenizer *t, const quire_options *o,
                               engine_adapters *out, quire_error *err);
/* Frees all; the engine that used them is closed. */
void engine_adapters_close(engine_adapters *a);

#endif

/* A model's weights in a backend, with the numeric configuration that options name. Immutable once open. */
#ifndef SETUP_LOADED_MODEL_H
#define SETUP_LOADED_MODEL_H

#include "backend/backend.h"
#include "core/kv_layout.h"
#include "file/model_file.h"
#include "model/model.h"
#include "quire.h"

/* All zero: nothing is open. */
typedef struct loaded_model {
    backend *b;
    model *m;
    kv_layout layout; /* its pages have o->page_tokens tokens */
} loaded_model;

/* Opens a backend and loads f's weights into it, for sequences of at most max_len tokens. d is f's description. The backend's buffers and
 * pages are not open yet. f may be closed afterwards. Close *out also after a failure. */
quire_err loaded_model_open(const quire_options *o, model_file *f, const model_desc *d, int32_t max_len, loaded_model *out,
                            quire_error *err);
void loaded_model_close(loaded_model *l);

#endif

/* A model's weights in a backend, in the numeric configuration that the options select.
 * Immutable once open. */
#ifndef SETUP_LOADED_MODEL_H
#define SETUP_LOADED_MODEL_H

#include "backend/backend.h"
#include "core/kv_layout.h"
#include "file/model_file.h"
#include "file/packed_image.h"
#include "model/model.h"
#include "quire.h"
#include "text/tokenizer.h"

/* All zero: nothing is open. */
typedef struct loaded_model {
    backend *b;
    model *m;
    kv_layout layout; /* its pages have o->page_tokens tokens */
} loaded_model;

/* Opens a backend for a model of this description. Close *out also after a failure. */
quire_err loaded_model_begin(const quire_options *o, const model_desc *d, loaded_model *out,
                             quire_error *err);
/* Loads f's weights into the backend, for sequences of at most max_len tokens, and adds
 * them to image where that is not NULL (model.h). The backend's buffers and pages are not
 * open yet. f may be closed afterwards. */
quire_err loaded_model_load(loaded_model *l, const quire_options *o, model_file *f, packed_image *image,
                            int32_t max_len, quire_error *err);
/* Calls loaded_model_begin and loaded_model_load, without an image. d is f's
 * description. */
quire_err loaded_model_open(const quire_options *o, model_file *f, const model_desc *d, int32_t max_len,
                            loaded_model *out, quire_error *err);
void loaded_model_close(loaded_model *l);

/* Adds f's metadata to a packed image. t: f's tokenizer, whose tables replace the
 * vocabulary's lists; NULL: the lists are kept. */
quire_err image_metadata(packed_image *image, const model_file *f, const tokenizer *t, quire_error *err);

#endif

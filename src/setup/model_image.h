/* The metadata of a packed image, for `quire pack` and the pack cache. */
#ifndef SETUP_MODEL_IMAGE_H
#define SETUP_MODEL_IMAGE_H

#include "file/packed_image.h"
#include "text/tokenizer.h"

/* Adds f's metadata to an image. t: f's open tokenizer, whose tables then replace the
 * vocabulary's lists; NULL: they are kept. */
quire_err image_metadata(packed_image *image, const model_file *f, const tokenizer *t, quire_error *err);

#endif

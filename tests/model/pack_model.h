/* Writes packed models. */
#ifndef TESTS_MODEL_PACK_MODEL_H
#define TESTS_MODEL_PACK_MODEL_H

#include "make_model.h"

#include "file/packed_files.h"
#include "model/model.h"
#include "test.h"

/* Writes an open model file, which stays open, to path as a packed model. */
static inline void pack_model(model_file *f, compute_mode compute, const char *path) {
    backend *b;
    packed_writer *w;
    packed_image *image;
    model *m;
    quire_error err = {0};
    assert_int_equal(
        backend_cpu_open(&(backend_options){.compute = compute, .isa = "auto", .n_threads = 2}, &b, &err),
        QUIRE_OK);
    assert_int_equal(packed_writer_open(path, &w, &err), QUIRE_OK);
    assert_int_equal(packed_image_open(compute, &image), QUIRE_OK);
    if (model_open_image(f, b, 1, image, &m, &err) != QUIRE_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(packed_image_metadata(image, f, (str){0}, (str){0}), QUIRE_OK);
    assert_int_equal(packed_image_finish(image), QUIRE_OK);
    assert_int_equal(packed_writer_finish(w, image, &err), QUIRE_OK);
    packed_image_close(image);
    model_close(m);
    b->ops->close(b);
}

#endif

/* Describes a checkpoint with a given config.json and a single tensor. */
#ifndef TESTS_MODEL_DESCRIBE_CONFIG_H
#define TESTS_MODEL_DESCRIBE_CONFIG_H

#include "make_model.h"

#include "model/model.h"

/* Describes a checkpoint whose only tensor is `tensor`. architecture: the class in
 * config.json; numbers: the rest of it. */
static inline quire_err describe_config(const char *architecture, const char *numbers, const char *tensor,
                                        model_desc *d, quire_error *err) {
    static const char *const names[] = {"config.json", "model.safetensors", NULL};
    temp_dir dir = temp_new();
    char config[2048], header[256];
    strbuf tensors = {0};
    model_file *f;
    (void)snprintf(config, sizeof config, "{\"architectures\": [\"%s\"], %s}", architecture, numbers);
    (void)snprintf(header, sizeof header,
                   "{\"%s\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", tensor);
    write_text(&dir, names[0], config);
    make_safetensors(&tensors, header, 4);
    write_file(temp_path(&dir, names[1]), tensors.p, tensors.n);
    strbuf_deinit(&tensors);
    quire_err e = model_file_open(dir.path, &f, err);
    if (e == QUIRE_OK) {
        e = model_describe(f, d, err);
        model_file_close(f);
    }
    temp_delete(&dir, names);
    /* an error names the key in the file, not a list of alternatives */
    assert_true(e == QUIRE_OK || strchr(err->message, '|') == NULL);
    return e;
}

#endif

/* Adapters: a config up to the first NUL and then safetensors bytes, or GGUF bytes:
 * refused with a message, or every tensor's bytes lie inside, and modules have scales. */
#include <math.h>
#include <string.h>

#include "file/adapter_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, 0, size);
    const bool is_gguf = size >= 4 && memcmp(data, "GGUF", 4) == 0;
    str config = {NULL, 0}, content = {(const char *)data, size};
    if (!is_gguf) {
        config = (str){(const char *)data, end != NULL ? (size_t)(end - data) : size};
        const size_t skip = end != NULL ? config.n + 1 : size;
        content = (str){(const char *)data + skip, size - skip};
    }
    adapter_file *f = NULL;
    quire_error err = {0};
    fuzz_sum sum = 0;
    const quire_err e = adapter_file_open_memory(config, content, "fuzz", &f, &err);
    fuzz_check(e == QUIRE_OK || err.message[0] != 0);
    for (int32_t i = 0; e == QUIRE_OK && i < f->tensors.n; i++) {
        const tensor_view *t = &f->tensors.views[i];
        float scale = 0.0f;
        fuzz_read(&sum, t->data, t->n_bytes);
        if (adapter_file_scale(f, str_of(t->name), t->dims[0], &scale, &err) == QUIRE_OK) {
            fuzz_check(!isnan(scale));
        }
    }
    adapter_file_close(f);
    fuzz_keep(sum);
    return 0;
}

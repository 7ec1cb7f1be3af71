/* safetensors bytes of any kind: refused with a message, or every tensor's bytes lie
 * inside. */
#include "file/tensors.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tensor_dir dir = {0};
    quire_error err = {0};
    fuzz_sum sum = 0;
    quire_err e = safetensors_parse(data, size, "fuzz", 0, &dir, &err);
    if (e == QUIRE_OK) {
        e = tensor_dir_finish(&dir, "fuzz", &err);
    }
    fuzz_check(e == QUIRE_OK || err.message[0] != 0);
    for (int32_t i = 0; e == QUIRE_OK && i < dir.n; i++) {
        fuzz_read(&sum, dir.views[i].data, dir.views[i].n_bytes);
    }
    tensor_dir_deinit(&dir);
    fuzz_keep(sum);
    return 0;
}

/* .npz bytes of any kind: refused with a message, or all arrays can be read. */
#include "file/npz.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    npz z;
    quire_error err = {0};
    fuzz_sum sum = 0;
    quire_err e = npz_parse("fuzz", data, size, &z, &err);
    fuzz_check(e == QUIRE_OK || err.message[0] != 0);
    for (int32_t i = 0; i < z.n; i++) {
        size_t n = 4;
        for (int32_t d = 0; d < z.arrays[i].n_dims; d++) {
            n *= (size_t)z.arrays[i].dims[d];
        }
        fuzz_read(&sum, z.arrays[i].data, n);
    }
    npz_close(&z);
    fuzz_keep(sum);
    return 0;
}

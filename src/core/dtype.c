#include "core/dtype.h"

#include <string.h>

typedef struct dtype_info {
    const char *name, *flag_name;
    int32_t block_elements, block_bytes, ggml;
} dtype_info;

static const dtype_info infos[N_DTYPES] = {
#define DTYPE_INFO(name, flag, elements, bytes, ggml) {#name, #flag, elements, bytes, ggml},
    DTYPE_LIST(DTYPE_INFO)
#undef DTYPE_INFO
};

const char *dtype_name(dtype t) {
    return (unsigned)t < N_DTYPES ? infos[t].name : "unknown";
}

const char *dtype_flag_name(dtype t) {
    return (unsigned)t < N_DTYPES ? infos[t].flag_name : "unknown";
}

int32_t dtype_block_elements(dtype t) {
    return infos[t].block_elements;
}

int32_t dtype_block_bytes(dtype t) {
    return infos[t].block_bytes;
}

bool dtype_from_ggml(uint32_t ggml_type, dtype *out) {
    for (int t = 0; t < N_DTYPES; t++) {
        if (infos[t].ggml >= 0 && (uint32_t)infos[t].ggml == ggml_type) {
            *out = (dtype)t;
            return true;
        }
    }
    return false;
}

bool dtype_from_name(const char *name, size_t n, dtype *out) {
    for (int t = 0; t < N_DTYPES; t++) {
        if (!dtype_is_quantised((dtype)t) && strlen(infos[t].name) == n &&
            memcmp(infos[t].name, name, n) == 0) {
            *out = (dtype)t;
            return true;
        }
    }
    return false;
}

bool dtype_is_quantised(dtype t) {
    return infos[t].block_elements > 1;
}

const char *compute_name(compute_mode m) {
    switch (m) {
    case COMPUTE_F32:
        return "f32";
    case COMPUTE_BF16:
        return "bf16";
    case COMPUTE_INT8:
        return "int8";
    case COMPUTE_FP8:
        return "fp8";
    }
    return "unknown";
}

/* ggml block formats: dequantisation, equal to the bit to gguf-py's (separate multiply and add, in its order). */
#ifndef CORE_QUANT_H
#define CORE_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/dtype.h"

/* out[0..n) = the values of n elements of type t at blocks; n is a multiple of the type's block. Types: F32 F16 BF16 and every Q type.
 * QUIRE_UNSUPPORTED for the integer types. blocks needs no alignment. Any thread. */
quire_err quant_dequantise(dtype t, const void *blocks, size_t n, float *out);

#endif

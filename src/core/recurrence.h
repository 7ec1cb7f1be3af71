/* The sizes of recurrent states, as a model's description reserves them and a backend's
 * ops lay them out (backend/backend.h). */
#ifndef CORE_RECURRENCE_H
#define CORE_RECURRENCE_H

#include <stdint.h>

#include "core/model_desc.h"

#define CONV_UNIT     64 /* channels per unit of a convolution's state */
#define CONV_MAX_TAPS 16
#define STATE_LANES   16 /* value columns, or channels, that are stored side by side */

/* Units of a convolution's state. Any n_channels, also before desc_check(). */
static inline int32_t conv_units(int32_t n_channels) {
    return n_channels / CONV_UNIT + (n_channels % CONV_UNIT != 0);
}

/* The cache of convolutions with n_units units in total. */
static inline cache_desc conv_cache(int32_t n_units, int32_t n_taps) {
    return (cache_desc){.kind = LAYER_STATE,
                        .n_units = n_units,
                        .unit_bytes = (int64_t)CONV_UNIT * (n_taps - 1) * (int64_t)sizeof(float)};
}

/* The cache of an op that pools the keys of n adjacent tokens into one (pool_use). */
static inline cache_desc pool_cache(int32_t n_channels, int32_t n) {
    return (cache_desc){.kind = LAYER_STATE,
                        .n_units = conv_units(n_channels),
                        .stays_wide = true,
                        .unit_bytes = (int64_t)2 * CONV_UNIT * (n - 1) * (int64_t)sizeof(float)};
}

/* The cache of the last n - 1 token ids. */
static inline cache_desc ngram_cache(int32_t n) {
    return (cache_desc){.kind = LAYER_STATE,
                        .n_units = 1,
                        .unit_bytes = (n - 1) * (int64_t)sizeof(int32_t),
                        .stays_wide = true};
}

/* The cache of linear attention: a matrix [d_key, d_value] for each of n_heads heads. */
static inline cache_desc linear_attention_cache(int32_t n_heads, int32_t d_key, int32_t d_value) {
    int64_t columns = (d_value + STATE_LANES - 1) / STATE_LANES * STATE_LANES;
    return (cache_desc){
        .kind = LAYER_STATE, .n_units = n_heads, .unit_bytes = d_key * columns * (int64_t)sizeof(float)};
}

/* The cache of a selective scan. */
static inline cache_desc scan_cache(int32_t n_channels, int32_t n_states) {
    return (cache_desc){.kind = LAYER_STATE,
                        .n_units = (n_channels + STATE_LANES - 1) / STATE_LANES,
                        .unit_bytes = (int64_t)STATE_LANES * n_states * (int64_t)sizeof(float)};
}

/* Units of a gated linear recurrence. A unit never has channels of two blocks. */
static inline int32_t lru_units(int32_t n_channels, int32_t n_blocks) {
    return n_blocks * ((n_channels / n_blocks + STATE_LANES - 1) / STATE_LANES);
}

/* The cache of a gated linear recurrence. */
static inline cache_desc lru_cache(int32_t n_channels, int32_t n_blocks) {
    return (cache_desc){.kind = LAYER_STATE,
                        .n_units = lru_units(n_channels, n_blocks),
                        .unit_bytes = STATE_LANES * (int64_t)sizeof(float)};
}

#endif

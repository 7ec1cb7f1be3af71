/* A model with sliding windows: adds a window to the attention of the built-in model,
 * which has none, and lays out its pages accordingly. */
#ifndef TESTS_ENGINE_WINDOW_WORLD_H
#define TESTS_ENGINE_WINDOW_WORLD_H

#include "harness.h"
#include "test.h"

enum { WINDOW = 40 };

static const backend_ops *inner;
static layer_kind kinds[DESC_MAX_LAYERS];

static inline void windowed_attention(backend *b, int32_t layer, buffer q, const attn_spec *spec,
                                      buffer out) {
    attn_spec windowed = *spec;
    windowed.window = kinds[layer] == LAYER_WINDOW ? WINDOW : 0;
    inner->attention(b, layer, q, &windowed, out);
}

static inline const backend_ops *mask_windows(const backend_ops *ops, const model_desc *d) {
    static backend_ops windowed;
    (void)d;
    inner = ops;
    windowed = *inner;
    windowed.attention = windowed_attention;
    return &windowed;
}

/* Opens an engine whose even and odd layers have the given kinds. frees: pages outside
 * the window are freed; false: all pages are kept, for comparison. */
static inline void open_windowed(harness_options o, layer_kind even, layer_kind odd, bool frees, harness *h) {
    static layer_kind full[DESC_MAX_LAYERS];
    for (int i = 0; i < DESC_MAX_LAYERS; i++) {
        kinds[i] = i % 2 == 0 ? even : odd;
    }
    o.path = "models/builtin-small.gguf";
    o.layer_kinds = frees ? kinds : full;
    o.window = WINDOW;
    o.max_model_len = 256;
    o.wrap = mask_windows;
    *h = (harness){0};
    harness_open(&o, h);
}

#endif

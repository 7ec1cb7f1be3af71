/* What a config.json leaves out: the numbers of an architecture's published
 * configuration. GGUF files have all of theirs. */
#ifndef MODEL_PUBLISHED_H
#define MODEL_PUBLISHED_H

#include <stdint.h>

typedef struct published {
    const char *architecture;  /* as in model_desc */
    int32_t d_model, n_layers; /* only a nested configuration leaves these out */
    int32_t n_heads;
    int32_t n_kv_heads; /* 0: as many as heads */
    int32_t d_head;     /* 0: the model's width / heads */
    int32_t d_ff;       /* 0: the architecture's own rule */
    int32_t n_vocab, max_positions;
    float norm_eps, theta; /* theta 0: no rotary embedding */
    int32_t n_experts, n_used, d_expert;
} published;

/* The published numbers of an architecture; all 0 if it is not in the table. */
const published *published_of(const char *architecture);

#endif

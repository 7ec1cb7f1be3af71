/* Gemma 4: the weights that it has besides a decoder's, and its description. */
#ifndef MODEL_GEMMA4_H
#define MODEL_GEMMA4_H

#include "model/decoder.h"

/* What a layer has besides a decoder's. */
typedef struct gemma4_layer {
    float *scale; /* [1] of the residual behind the layer */
    linear *input_gate, *input_out;
    norm *input_post_norm;
    norm *mlp_post_norm, *router_norm, *experts_norm, *experts_post_norm;
    float *expert_scales; /* [n_experts] */
} gemma4_layer;

typedef struct gemma4 {
    decoder *w;
    embedding *inputs; /* [V, L P]: a row of P for each layer; NULL: layers have no input of their own */
    linear *projection;
    norm *projection_norm;
    buffer input_rows, projected_rows, gate_rows;
    int32_t n_layers;
    gemma4_layer layers[];
} gemma4;

/* ---- gemma4_describe.c ---- */
quire_err gemma4_describe(const config *c, model_desc *d);

/* ---- gemma4_load.c ---- */
quire_err gemma4_load(loader *l, const model_desc *d, const arch_names *names, void **weights);
void gemma4_close(void *weights);

#endif

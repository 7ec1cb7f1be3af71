/* The dense feed-forward part of a layer (gated: Shazeer 2020, arXiv:2002.05202), and
 * the block that reads the input which each layer of Gemma 4's small models has of its
 * own. */
#include <math.h>

#include "model/decoder.h"

static quire_err mlp_load(binding *b, int32_t f, linear **gate, linear **up, linear **down) {
    int32_t width = b->d->d_model;
    bool gated = !b->d->ungated;
    if (gated && binding_has(b, W_GATE_UP) && !binding_has(b, W_GATE)) {
        TRY(binding_pair(b, W_GATE_UP, f, width, gate, up));
    } else {
        TRY(binding_linear(b, W_UP, f, width, up));
        if (gated) {
            TRY(binding_linear(b, W_GATE, f, width, gate));
        }
    }
    return binding_linear(b, W_DOWN, width, f, down);
}

static void mlp_run(const pass *p, const decoder_op *o) {
    p->op->feed_forward(p->b, o->own);
}

quire_err mlp_bind(binding *b, const layer_step *s) {
    int32_t f = b->d->layers[b->layer].d_ff;
    feed_forward_use *m;
    linear *gate = NULL, *up, *down;
    row_value in;
    buffer h;
    TRY(mlp_load(b, f, &gate, &up, &down));
    TRY(binding_buffer(b, BUFFER_H, f, &h));
    TRY(binding_read(b, s->from, &in));
    TRY(binding_new(b, 1, sizeof *m, &m));
    *m = (feed_forward_use){
        .x = in.at, .nm = in.nm, .gate = gate, .up = up, .f = b->d->activation, .h = h, .reader = down};
    b->rows[s->to] = (row_value){.at = h, .product = down};
    return binding_emit(b, (decoder_op){.run = mlp_run, .own = m});
}

/* ---- inputs: made from the token and its embedding ---- */

/* What makes the inputs of all layers. */
typedef struct layer_inputs {
    embedding *table; /* [V, L P]: a row of P for each layer */
    linear *projection;
    norm *projection_norm;
    buffer projected;
} layer_inputs;

/* The block of one layer. */
typedef struct layer_input {
    linear *gate;
    multiply_use multiply;
} layer_input;

/* (norm(x W^T / sqrt(D)) + sqrt(P) * the token's row) / sqrt(2), each layer's part normed
 * by itself. */
static void inputs_run(const pass *p, const decoder_op *o) {
    const layer_inputs *in = o->own;
    float root = sqrtf((float)p->d->embed.d_layer_input);
    p->op->embed(p->b, &(embed_use){.tokens = in->table, .scale = root, .x = o->out});
    p->op->norm_linears(p->b, o->in, NULL, &(linear_use){in->projection, in->projected}, 1);
    p->op->scale_rows(p->b, 1.0f / sqrtf((float)p->d->d_model), in->projected);
    p->op->norm_add(p->b, in->projected, in->projection_norm, 1.0f, o->out);
    p->op->scale_rows(p->b, sqrtf(0.5f), o->out);
}

quire_err inputs_bind(binding *b) {
    int32_t p = b->d->embed.d_layer_input, width = b->d->n_layers * p;
    const tensor_view *table = NULL;
    layer_inputs *in;
    TRY(binding_new(b, 1, sizeof *in, &in));
    TRY(loader_find(b->l, binding_name(b, W_INPUT_TABLE), NO_LAYER, ".weight", &table));
    /* it may have more ids than the model */
    int64_t n_rows = table != NULL && table->dims[0] > b->d->n_vocab ? table->dims[0] : b->d->n_vocab;
    TRY(loader_embedding(b->l, binding_name(b, W_INPUT_TABLE), NULL, n_rows, width, &in->table));
    TRY(loader_kept_linear(b->l, binding_name(b, W_INPUT_PROJECTION), NO_LAYER, NULL, width, b->d->d_model,
                           &in->projection));
    const norm_spec spec = {.kind = NORM_RMS, .width = p, .eps = b->d->norm_eps};
    TRY(loader_norm(b->l, binding_name(b, W_INPUT_PROJECTION_NORM), NO_LAYER, &spec, p,
                    &in->projection_norm));
    TRY(binding_buffer(b, BUFFER_INPUTS, width, &b->w->inputs));
    TRY(binding_buffer(b, BUFFER_PROJECTED, width, &in->projected));
    return binding_emit(b, (decoder_op){.run = inputs_run, .in = b->w->x, .out = b->w->inputs, .own = in});
}

/* f(norm(in) gate^T) * input. */
static void input_run(const pass *p, const decoder_op *o) {
    const layer_input *in = o->own;
    p->op->norm_linears(p->b, o->in, o->nm, &(linear_use){in->gate, o->out}, 1);
    p->op->multiply(p->b, &in->multiply);
}

quire_err input_bind(binding *b, const layer_step *s) {
    int32_t p = b->d->embed.d_layer_input;
    layer_input *to;
    linear *down;
    row_value in;
    buffer rows;
    TRY(binding_new(b, 1, sizeof *to, &to));
    TRY(binding_linear(b, W_INPUT_GATE, p, b->d->d_model, &to->gate));
    TRY(binding_linear(b, W_INPUT_OUT, b->d->d_model, p, &down));
    TRY(binding_buffer(b, BUFFER_GATE, p, &rows));
    TRY(binding_read(b, s->from, &in));
    to->multiply = (multiply_use){b->d->activation, rows, b->w->inputs, b->layer * p, rows};
    b->rows[s->to] = (row_value){.at = rows, .product = down};
    return binding_emit(b, (decoder_op){.run = input_run, .in = in.at, .nm = in.nm, .out = rows, .own = to});
}

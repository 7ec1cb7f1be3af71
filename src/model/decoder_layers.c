/* Binds the steps of a decoder's layers to weights and ops.
 *
 * A norm is left to the reader of its row, and the product at a block's end to the step
 * after it. So a norm and the products that read it are one op, as are a product and the
 * sum to which it is added. A row gets a buffer only if it cannot be fused in this
 * way. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/decoder.h"

/* ---- memory and buffers ---- */

static quire_err binding_no_memory(const binding *b) {
    return err_set(b->l->err, QUIRE_NO_MEMORY, -1, "out of memory while loading");
}

quire_err binding_keep(binding *b, void *block) {
    assert(b != NULL);
    decoder *w = b->w;
    if (block == NULL ||
        mem_grow(&w->memory, &w->cap_memory, w->n_memory + 1, sizeof *w->memory) != QUIRE_OK) {
        mem_free(block);
        return binding_no_memory(b);
    }
    w->memory[w->n_memory++] = block;
    return QUIRE_OK;
}

quire_err binding_new(binding *b, size_t n, size_t size, void *out) {
    void *block = mem_new(n, size);
    TRY(binding_keep(b, block));
    memcpy(out, &block, sizeof block);
    return QUIRE_OK;
}

quire_err binding_buffer(binding *b, buffer_role role, int32_t width, buffer *out) {
    assert(b != NULL);
    decoder *w = b->w;
    for (int32_t i = 0; i < w->n_buffers; i++) {
        if (w->buffers[i].role == role && w->buffers[i].width == width) {
            *out = w->buffers[i].id;
            return QUIRE_OK;
        }
    }
    *out = w->n_buffers < DECODER_MAX_BUFFERS ? b->l->b->ops->buffer_reserve(b->l->b, width) : BUFFER_NONE;
    if (out->id == BUFFER_NONE.id) {
        return err_set(b->l->err, QUIRE_UNSUPPORTED, -1, "%s: the layers have too many different widths",
                       model_file_path(b->l->file));
    }
    w->buffers[w->n_buffers].role = role;
    w->buffers[w->n_buffers].width = width;
    w->buffers[w->n_buffers++].id = *out;
    return QUIRE_OK;
}

/* ---- weights ---- */

weight_name binding_name(const binding *b, weight_role role) {
    return weight_name_of(b->l->names, role);
}

bool binding_has(const binding *b, weight_role role) {
    return loader_has(b->l, binding_name(b, role), b->layer);
}

bool binding_is_gguf(const binding *b) {
    return model_file_format(b->l->file) == MODEL_GGUF;
}

quire_err binding_norm(binding *b, weight_role role, bool replaces, norm **out) {
    const norm_desc *n = &b->d->norm;
    norm_spec spec = {.kind = n->kind, .width = b->d->d_model, .eps = b->d->norm_eps, .replaces = replaces};
    if (n->bare) {
        return b->l->b->ops->norm_load(b->l->b, &spec, out, b->l->err);
    }
    /* GGUF files already include the 1 */
    spec.add_one = n->add_one && !binding_is_gguf(b) && !(n->plain_last && role == W_OUT_NORM);
    if (n->post_eps > 0.0f && (role == W_ATTN_POST_NORM || role == W_FFN_POST_NORM)) {
        spec.eps = n->post_eps;
    }
    if (n->post_weighed && role == W_ATTN_POST_NORM && !weight_role_is(b->l->names, role)) {
        return b->l->b->ops->norm_load(b->l->b, &spec, out, b->l->err);
    }
    spec.kind = n->post_weighed && role == W_FFN_POST_NORM ? NORM_RMS_WEIGHED : spec.kind;
    float scale = role == W_ATTN_NORM       ? b->d->attend.in_scale
                  : role == W_MAMBA_IN_NORM ? b->d->mamba.in_scale
                                            : 0.0f;
    if (scale != 0.0f && scale != 1.0f) {
        return loader_scaled_norm(b->l, binding_name(b, role), b->layer, &spec, scale, out);
    }
    return loader_norm(b->l, binding_name(b, role), b->layer, &spec, spec.width, out);
}

quire_err binding_linear(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out) {
    weight_part conv = {.suffix = "t", .n_rows = n_out, .block = n_out, .step = n_out, .transposed = true};
    bool transposed = b->d->conv1d && !binding_is_gguf(b);
    return loader_linear(b->l, binding_name(b, role), b->layer, transposed ? &conv : NULL, n_out, n_in, out);
}

quire_err binding_pair(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **first,
                       linear **second) {
    weight_part part = {.suffix = "gate", .n_rows = 2 * n_out, .block = n_out, .step = n_out};
    TRY(loader_linear(b->l, binding_name(b, role), b->layer, &part, n_out, n_in, first));
    part.suffix = "up";
    part.first = n_out;
    return loader_linear(b->l, binding_name(b, role), b->layer, &part, n_out, n_in, second);
}

quire_err binding_exact(binding *b, weight_role role, int64_t n_out, int64_t n_in, linear **out) {
    assert(b != NULL);
    float *rows;
    TRY(loader_matrix(b->l, binding_name(b, role), b->layer, binding_is_gguf(b) ? ".weight" : "", n_out, n_in,
                      &rows));
    const tensor_view view = {.name = "coefficients",
                              .type = DTYPE_F32,
                              .n_dims = 2,
                              .dims = {n_out, n_in, 1, 1},
                              .data = rows,
                              .n_bytes = (size_t)n_out * (size_t)n_in * sizeof *rows};
    const linear_spec spec = {.weight = &view, .exact = true};
    const quire_err e = b->l->b->ops->linear_load(b->l->b, &spec, out, b->l->err);
    mem_free(rows);
    return e;
}

quire_err binding_vector(binding *b, weight_role role, const char *suffix, const char *what, int64_t n,
                         float **out) {
    assert(b != NULL);
    TRY(loader_vector(b->l, binding_name(b, role), b->layer, binding_is_gguf(b) ? suffix : "", n, out));
    if (*out == NULL) {
        return err_set(b->l->err, QUIRE_BAD_FILE, -1, "%s: layer %d has no %s: the file is incomplete",
                       model_file_path(b->l->file), (int)b->layer, what);
    }
    return binding_keep(b, *out);
}

bool binding_shares_cache(const binding *b) {
    assert(b != NULL);
    for (int32_t i = 0; i < b->layer; i++) {
        if (b->d->layers[i].caches[CACHE_ATTENTION] == b->d->layers[b->layer].caches[CACHE_ATTENTION]) {
            return true;
        }
    }
    return false;
}

quire_err binding_need_op(const binding *b, bool has, const char *what) {
    return has ? QUIRE_OK
               : err_set(b->l->err, QUIRE_UNSUPPORTED, -1, "%s: this backend computes no %s",
                         model_file_path(b->l->file), what);
}

/* ---- ops ---- */

static void norm_rows_run(const pass *p, const decoder_op *o) {
    p->op->norm_rows(p->b, o->in, o->nm, o->out);
}

static void product_run(const pass *p, const decoder_op *o) {
    p->op->norm_linears(p->b, o->in, NULL, &(linear_use){o->w, o->out}, 1);
}

static void product_add_run(const pass *p, const decoder_op *o) {
    p->op->linear_add(p->b, o->in, &(linear_use){o->w, o->out}, o->scale, o->out);
}

static void norm_add_run(const pass *p, const decoder_op *o) {
    p->op->norm_add(p->b, o->in, o->nm, o->scale, o->out);
}

static void scale_run(const pass *p, const decoder_op *o) {
    p->op->scale_rows(p->b, o->scale, o->out);
}

quire_err binding_emit(binding *b, decoder_op op) {
    assert(b != NULL);
    decoder *w = b->w;
    if (mem_grow(&w->ops, &w->cap_ops, w->n_ops + 1, sizeof *w->ops) != QUIRE_OK) {
        return binding_no_memory(b);
    }
    w->ops[w->n_ops++] = op;
    return QUIRE_OK;
}

/* ---- rows ---- */

quire_err binding_row(binding *b, step_row row, buffer *out) {
    return binding_buffer(b, BUFFER_ROW_X + row, b->d->d_model, out);
}

/* Queues a row's pending product. */
static quire_err binding_multiply(binding *b, step_row row) {
    row_value *v = &b->rows[row];
    buffer out;
    if (v->product == NULL) {
        return QUIRE_OK;
    }
    TRY(binding_row(b, row, &out));
    TRY(binding_emit(b, (decoder_op){.run = product_run, .in = v->at, .w = v->product, .out = out}));
    if (v->scale != 0.0f && v->scale != 1.0f) {
        TRY(binding_emit(b, (decoder_op){.run = scale_run, .scale = v->scale, .out = out}));
    }
    *v = (row_value){.at = out};
    return QUIRE_OK;
}

quire_err binding_read(binding *b, step_row row, row_value *out) {
    TRY(binding_multiply(b, row));
    *out = b->rows[row];
    if (row == X) {
        b->rows[X].nm = NULL; /* a norm of the residual replaces it when it is read */
    }
    return QUIRE_OK;
}

quire_err binding_settle(binding *b, step_row row) {
    row_value *v = &b->rows[row];
    buffer out;
    assert(v->at.id != BUFFER_NONE.id && (v->nm == NULL || v->product == NULL));
    TRY(binding_multiply(b, row));
    if (v->nm == NULL) {
        return QUIRE_OK;
    }
    TRY(binding_row(b, row, &out));
    TRY(binding_emit(b, (decoder_op){.run = norm_rows_run, .in = v->at, .nm = v->nm, .out = out}));
    *v = (row_value){.at = out};
    return QUIRE_OK;
}

/* ---- steps ---- */

static quire_err norm_bind(binding *b, const layer_step *s) {
    norm *nm;
    TRY(binding_settle(b, s->from));
    TRY(binding_norm(b, s->norm, s->to == X, &nm));
    b->rows[s->to] = (row_value){.at = b->rows[s->from].at, .nm = nm};
    return step_is_kept(s) ? binding_settle(b, s->to) : QUIRE_OK;
}

/* to += scale * from. */
static quire_err step_add(binding *b, const layer_step *s, float scale) {
    const row_value *from = &b->rows[s->from], *to = &b->rows[s->to];
    assert(s->from != s->to);
    TRY(binding_settle(b, s->to));
    if (s->from == X) {
        TRY(binding_settle(b, X));
    }
    decoder_op op = {.run = norm_add_run, .in = from->at, .nm = from->nm, .out = to->at, .scale = scale};
    if (from->product != NULL) {
        op.run = product_add_run;
        op.w = from->product;
        op.scale *= from->scale != 0.0f ? from->scale : 1.0f;
    }
    return binding_emit(b, op);
}

/* x sqrt((n - 1) / n) + y sqrt(1 / n), where n counts the model's sums from 2. */
static quire_err add_by_depth(binding *b, const layer_step *s) {
    const float n = (float)(++b->n_sums + 1);
    TRY(binding_settle(b, X));
    TRY(binding_emit(b,
                     (decoder_op){.run = scale_run, .scale = sqrtf((n - 1.0f) / n), .out = b->rows[X].at}));
    return step_add(b, s, sqrtf(1.0f / n));
}

static quire_err add_bind(binding *b, const layer_step *s) {
    if (s->to == X && b->d->residual_by_depth) {
        return add_by_depth(b, s);
    }
    return step_add(b, s, s->to == X && b->d->residual_scale != 0.0f ? b->d->residual_scale : 1.0f);
}

static quire_err mix_bind(binding *b, const layer_step *s) {
    const residual_mix *mix = &b->d->layers[b->layer].mixes[b->n_mixes++];
    TRY(binding_settle(b, s->to));
    TRY(binding_emit(b, (decoder_op){.run = scale_run, .scale = mix->keep, .out = b->rows[s->to].at}));
    return step_add(b, s, mix->add);
}

static quire_err scale_bind(binding *b, const layer_step *s) {
    float *scale;
    TRY(binding_settle(b, s->to));
    TRY(binding_vector(b, W_LAYER_SCALE, "", "scale", 1, &scale));
    return binding_emit(b, (decoder_op){.run = scale_run, .scale = *scale, .out = b->rows[s->to].at});
}

/* The function that binds each kind of step. */
static quire_err (*const bind_step[N_STEP_KINDS])(binding *b,
                                                  const layer_step *s) = {[STEP_NORM] = norm_bind,
                                                                          [STEP_ATTEND] = attention_bind,
                                                                          [STEP_MLP] = mlp_bind,
                                                                          [STEP_MOE] = moe_bind,
                                                                          [STEP_INPUT] = input_bind,
                                                                          [STEP_ADD] = add_bind,
                                                                          [STEP_SCALE] = scale_bind,
                                                                          [STEP_LAUREL] = laurel_bind,
                                                                          [STEP_JOIN] = join_bind,
                                                                          [STEP_PREDICT] = predict_bind,
                                                                          [STEP_CORRECT] = correct_bind,
                                                                          [STEP_SPREAD] = spread_bind,
                                                                          [STEP_LATENT] = latent_bind,
                                                                          [STEP_MIX] = mix_bind,
                                                                          [STEP_CONV] = conv_bind,
                                                                          [STEP_DELTA] = delta_bind,
                                                                          [STEP_MAMBA] = mamba_bind,
                                                                          [STEP_SHARED] = shared_bind,
                                                                          [STEP_LRU] = lru_bind,
                                                                          [STEP_BLEND] = blend_bind,
                                                                          [STEP_GATHER] = streams_read_bind,
                                                                          [STEP_SCATTER] = streams_write_bind,
                                                                          [STEP_NGRAMS] = ngrams_bind,
                                                                          [STEP_GATE] = gate_bind};

static void keep_embeddings_run(const pass *p, const decoder_op *o) {
    p->op->place(p->b, o->in, p->d->d_model, o->out);
}

/* Keeps the embeddings' row, which shared blocks read beside their own. */
static quire_err binding_keep_embeddings(binding *b) {
    buffer wide;
    TRY(binding_need_op(b, b->l->b->ops->place != NULL, "rows side by side"));
    TRY(binding_buffer(b, BUFFER_WIDE, 2 * b->d->d_model, &wide));
    return binding_emit(b, (decoder_op){.run = keep_embeddings_run, .in = b->w->x, .out = wide});
}

/* Binds a step with the names of its weights. */
static quire_err bind_named(binding *b, const layer_step *s) {
    const arch_names *names = b->l->names;
    b->l->names = s->second ? names->second : names;
    const quire_err e = bind_step[s->kind](b, s);
    b->l->names = names;
    return e;
}

quire_err decoder_bind_layers(binding *b) {
    assert(b != NULL);
    b->rows[X] = (row_value){.at = b->w->x};
    if (b->d->embed.d_layer_input > 0) {
        TRY(inputs_bind(b));
    }
    if (b->d->shared.n_blocks > 0) {
        TRY(binding_keep_embeddings(b));
    }
    for (b->layer = 0; b->layer < b->d->n_layers; b->layer++) {
        b->rows[A] = b->rows[B] = (row_value){.at = BUFFER_NONE};
        b->n_mixes = 0;
        assert(b->d->layers[b->layer].steps != NULL);
        for (const layer_step *s = b->d->layers[b->layer].steps; s->kind != STEP_END; s++) {
            TRY(bind_named(b, s));
        }
    }
    b->layer = NO_LAYER;
    return binding_settle(b, X);
}

/* Steps after pooling a model's rows: products with few rows each, computed here in f32
 * under every compute mode. */
#include "model/pooling.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "core/math_plain.h"
#include "file/model_file.h"
#include "model/model.h"

#define BLOCK          32        /* outputs computed together */
#define LEAST_PRODUCTS (1 << 16) /* multiplications from which a step is split among the compute threads */

/* A step's weights: blocks of BLOCK outputs, each [n_in][BLOCK], so that a block reads
 * memory in order. Outputs past n_out are zeros. */
typedef struct pooled_layer {
    pooled_step step;
    float *weight, *bias; /* bias: one per element of the row, or NULL */
} pooled_layer;

struct pooled_layers {
    backend *b;
    float norm_eps;
    int32_t n;
    pooled_layer layers[DESC_MAX_POOLED];
    float *rows[2]; /* intermediate rows between steps */
};

/* ---- computing ---- */

static float function_of(row_function f, float x) {
    switch (f) {
    case ROW_TANH:
        return plain_tanh(x);
    case ROW_GELU:
        return plain_gelu(x);
    case ROW_RELU:
        return plain_relu(x);
    case ROW_SIGMOID:
        return plain_sigmoid(x);
    default:
        return x;
    }
}

typedef struct product {
    const pooled_layer *l;
    const float *x;
    float *y;
} product;

/* Computes one block of outputs: each is a sum over k in ascending order, then the
 * bias. */
static void run_block(void *context, int32_t block, int32_t worker) {
    const product *p = context;
    const pooled_step *s = &p->l->step;
    const float *w = p->l->weight + (size_t)block * (size_t)s->n_in * BLOCK;
    int32_t first = block * BLOCK, n = s->n_out - first < BLOCK ? s->n_out - first : BLOCK;
    float sums[BLOCK] = {0};
    (void)worker;
    for (int32_t k = 0; k < s->n_in; k++) {
        for (int i = 0; i < BLOCK; i++) {
            sums[i] += p->x[k] * w[(size_t)k * BLOCK + (size_t)i];
        }
    }
    for (int32_t i = 0; i < n; i++) {
        float bias = p->l->bias != NULL ? p->l->bias[first + i] : 0.0f;
        p->y[first + i] = function_of(s->f, sums[i] + bias);
    }
}

static void run_dense(backend *b, const pooled_layer *l, const float *x, float *y) {
    product p = {l, x, y};
    int32_t n = (l->step.n_out + BLOCK - 1) / BLOCK;
    if (b->ops->run_tasks != NULL && (int64_t)l->step.n_in * l->step.n_out >= LEAST_PRODUCTS) {
        b->ops->run_tasks(b, run_block, &p, n);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        run_block(&p, i, 0);
    }
}

void row_divide_by_length(float *row, int32_t n) {
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += (double)row[i] * (double)row[i];
    }
    double length = sqrt(sum);
    for (int32_t i = 0; i < n && length > 0.0; i++) {
        row[i] = (float)((double)row[i] / length);
    }
}

/* In double, so that the order of a sum matters little; it is fixed nevertheless. */
static void run_norm(const pooled_layer *l, float eps, const float *x, int32_t n, float *y) {
    double mean = 0.0, square = 0.0;
    for (int32_t i = 0; i < n; i++) {
        mean += (double)x[i] / (double)n;
    }
    for (int32_t i = 0; i < n; i++) {
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    }
    double scale = 1.0 / sqrt(square + (double)eps);
    for (int32_t i = 0; i < n; i++) {
        float unit = (float)(((double)x[i] - mean) * scale);
        y[i] = function_of(l->step.f, unit * l->weight[i] + (l->bias != NULL ? l->bias[i] : 0.0f));
    }
}

static void run_softmax(const float *x, int32_t n, float *y) {
    float top = x[0], sum = 0.0f;
    for (int32_t i = 1; i < n; i++) {
        top = plain_max(top, x[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        y[i] = plain_exp(x[i] - top);
        sum += y[i];
    }
    for (int32_t i = 0; i < n; i++) {
        y[i] /= sum;
    }
}

void pooling_apply(const pooled_layers *p, int32_t width, const float *row, float *out) {
    const float *x = row;
    for (int32_t i = 0; p != NULL && i < p->n; i++) {
        const pooled_layer *l = &p->layers[i];
        float *y = p->rows[i % 2];
        switch (l->step.kind) {
        case POOLED_DENSE:
            run_dense(p->b, l, x, y);
            width = l->step.n_out;
            break;
        case POOLED_LENGTH:
            memcpy(y, x, (size_t)width * sizeof *y);
            row_divide_by_length(y, width);
            break;
        case POOLED_NORM:
            run_norm(l, p->norm_eps, x, width, y);
            break;
        case POOLED_SOFTMAX:
            run_softmax(x, width, y);
            break;
        }
        x = y;
    }
    memcpy(out, x, (size_t)width * sizeof *out);
}

/* ---- loading ---- */

/* Packs rows [n_out, n_in] into blocks. */
static quire_err pack(loader *l, const pooled_step *s, const float *rows, float **out) {
    size_t n_blocks = ((size_t)s->n_out + BLOCK - 1) / BLOCK, n;
    float *w = size_mul(n_blocks * BLOCK, (size_t)s->n_in, &n) ? mem_new(n, sizeof *w) : NULL;
    TRY(err_set(l->err, mem_check(w), -1, "out of memory while loading"));
    for (size_t r = 0; r < (size_t)s->n_out; r++) {
        float *block = w + r / BLOCK * (size_t)s->n_in * BLOCK + r % BLOCK;
        for (size_t k = 0; k < (size_t)s->n_in; k++) {
            block[k * BLOCK] = rows[r * (size_t)s->n_in + k];
        }
    }
    *out = w;
    return QUIRE_OK;
}

/* Loads the weights and bias of a product, or of a norm over rows of `width` elements. */
static quire_err load_layer(loader *l, int32_t width, pooled_layer *layer) {
    const pooled_step *s = &layer->step;
    const weight_name name = {s->name, s->name};
    int32_t n = s->kind == POOLED_DENSE ? s->n_out : width;
    if (s->kind == POOLED_DENSE) {
        float *rows;
        TRY(loader_matrix(l, name, NO_LAYER, ".weight", s->n_out, s->n_in, &rows));
        quire_err e = pack(l, s, rows, &layer->weight);
        mem_free(rows);
        TRY(e);
    } else {
        TRY(loader_need_vector(l, name, ".weight", n, &layer->weight));
    }
    return s->has_bias        ? loader_need_vector(l, name, ".bias", n, &layer->bias)
           : s->may_have_bias ? loader_vector(l, name, NO_LAYER, ".bias", n, &layer->bias)
                              : QUIRE_OK;
}

static quire_err load_all(loader *l, const model_desc *d, pooled_layers *p) {
    int32_t width = d->d_model, widest = width;
    p->b = l->b;
    p->norm_eps = d->norm_eps;
    for (int32_t i = 0; i < d->pooling.n_steps; i++) {
        const pooled_step *s = &d->pooling.steps[i];
        p->layers[p->n++].step = *s;
        if (s->kind == POOLED_DENSE || s->kind == POOLED_NORM) {
            TRY(load_layer(l, width, &p->layers[i]));
        }
        width = s->kind == POOLED_DENSE ? s->n_out : width;
        widest = width > widest ? width : widest;
    }
    for (int i = 0; i < 2; i++) {
        p->rows[i] = mem_new((size_t)widest, sizeof(float));
        TRY(err_set(l->err, mem_check(p->rows[i]), -1, "out of memory while loading"));
    }
    return QUIRE_OK;
}

quire_err pooling_load(loader *l, const model_desc *d, pooled_layers **out) {
    assert(d != NULL);
    *out = NULL;
    if (d->pooling.n_steps == 0) {
        return QUIRE_OK;
    }
    pooled_layers *p = mem_new(1, sizeof *p);
    TRY(err_set(l->err, mem_check(p), -1, "out of memory while loading"));
    quire_err e = load_all(l, d, p);
    if (e != QUIRE_OK) {
        pooling_close(p);
        return e;
    }
    *out = p;
    return QUIRE_OK;
}

void pooling_close(pooled_layers *p) {
    for (int32_t i = 0; p != NULL && i < p->n; i++) {
        mem_free(p->layers[i].weight);
        mem_free(p->layers[i].bias);
    }
    if (p != NULL) {
        mem_free(p->rows[0]);
        mem_free(p->rows[1]);
    }
    mem_free(p);
}

/* What a model's files say about its pooled rows. */

/* ---- modules of sentence-transformers ---- */

/* Context of a module, for errors. */
typedef struct module_at {
    const config *c;
    int32_t i;
    int32_t width; /* width of its input rows */
} module_at;

static quire_err pooling_refuse(const module_at *m, quire_err code, const char *key, str value,
                                const char *what) {
    return err_set(m->c->err, code, -1, "%s/%s/config.json: %s%s%.*s %s", model_file_path(m->c->f),
                   model_module_path(m->c->f, m->i), key, value.n > 0 ? " " : "",
                   (int)(value.n < 60 ? value.n : 60), value.p != NULL ? value.p : "", what);
}

/* Reads a width, which must equal `expected` unless that is 0. *out is unchanged if it is
 * absent. */
static quire_err read_width(const module_at *m, const char *key, int32_t expected, int32_t *out) {
    meta_value v = model_module_value(m->c->f, m->i, key);
    if (v.kind == META_ABSENT) {
        return QUIRE_OK;
    }
    if (v.kind != META_INT || v.i < 1 || v.i > INT32_MAX) {
        return pooling_refuse(m, QUIRE_BAD_FILE, key, (str){0}, "must be a whole number of at least 1");
    }
    if (expected > 0 && v.i != expected) {
        char text[80];
        (void)snprintf(text, sizeof text, "is %lld, but its input rows have %d elements", (long long)v.i,
                       (int)expected);
        return pooling_refuse(m, QUIRE_BAD_FILE, key, (str){0}, text);
    }
    *out = (int32_t)v.i;
    return QUIRE_OK;
}

static quire_err set_pooling(const module_at *m, const char *key, str value, pooling_kind kind,
                             model_desc *d) {
    if (kind == POOLING_NONE) {
        return pooling_refuse(m, QUIRE_UNSUPPORTED, key, value,
                              "is not supported; it must be mean, cls or lasttoken");
    }
    if (d->pooling.kind != POOLING_NONE) {
        return pooling_refuse(m, QUIRE_UNSUPPORTED, key, value,
                              "together with another kind is not supported: rows cannot be concatenated");
    }
    d->pooling.kind = kind;
    return QUIRE_OK;
}

static pooling_kind kind_of_mode(str mode) {
    return str_is(mode, "mean")        ? POOLING_MEAN
           : str_is(mode, "cls")       ? POOLING_CLS
           : str_is(mode, "lasttoken") ? POOLING_LAST
                                       : POOLING_NONE;
}

/* Reads the kind of pooling. Files from before version 5 have a flag per kind, later ones
 * a text. */
static quire_err describe_pooling(const module_at *m, model_desc *d) {
    static const struct {
        const char *key;
        pooling_kind kind;
    } flags[] = {{"pooling_mode_cls_token", POOLING_CLS},
                 {"pooling_mode_mean_tokens", POOLING_MEAN},
                 {"pooling_mode_lasttoken", POOLING_LAST},
                 {"pooling_mode_max_tokens", POOLING_NONE},
                 {"pooling_mode_mean_sqrt_len_tokens", POOLING_NONE},
                 {"pooling_mode_weightedmean_tokens", POOLING_NONE}};
    const model_file *f = m->c->f;
    int32_t width = 0;
    if (d->pooling.kind != POOLING_NONE) {
        return pooling_refuse(m, QUIRE_UNSUPPORTED, "a second Pooling module", (str){0}, "is not supported");
    }
    TRY(read_width(m, "word_embedding_dimension", m->width, &width));
    TRY(read_width(m, "embedding_dimension", m->width, &width));
    meta_value mode = model_module_value(f, m->i, "pooling_mode");
    if (mode.kind == META_STR) {
        return set_pooling(m, "pooling_mode", mode.s, kind_of_mode(mode.s), d);
    }
    if (mode.kind != META_ABSENT) {
        return pooling_refuse(m, QUIRE_UNSUPPORTED, "pooling_mode", (str){0},
                              "is not a string: rows cannot be concatenated");
    }
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        meta_value v = model_module_value(f, m->i, flags[k].key);
        if (v.kind != META_ABSENT && v.kind != META_BOOL) {
            return pooling_refuse(m, QUIRE_BAD_FILE, flags[k].key, (str){0}, "must be true or false");
        }
        if (v.kind == META_BOOL && v.i != 0) {
            TRY(set_pooling(m, flags[k].key, (str){0}, flags[k].kind, d));
        }
    }
    return d->pooling.kind != POOLING_NONE
               ? QUIRE_OK
               : pooling_refuse(m, QUIRE_BAD_FILE, "it", (str){0}, "does not name a kind of pooling");
}

/* Appends a step. */
static quire_err pooling_add_step(const config *c, const pooled_step *step, model_desc *d) {
    pooling_desc *p = &d->pooling;
    if (p->n_steps == DESC_MAX_POOLED) {
        return config_unsupported(c, "more than 8 modules after the pooling are not supported");
    }
    p->steps[p->n_steps++] = *step;
    return QUIRE_OK;
}

static quire_err pooling_read_function(const module_at *m, row_function *out) {
    static const char *const names[N_ROW_FUNCTIONS] = {[ROW_PLAIN] = ".Identity",
                                                       [ROW_TANH] = ".Tanh",
                                                       [ROW_GELU] = ".GELU",
                                                       [ROW_RELU] = ".ReLU",
                                                       [ROW_SIGMOID] = ".Sigmoid"};
    meta_value v = model_module_value(m->c->f, m->i, "activation_function");
    *out = ROW_TANH; /* the published default */
    if (v.kind == META_ABSENT) {
        return QUIRE_OK;
    }
    for (int k = 0; k < N_ROW_FUNCTIONS; k++) {
        if (v.kind == META_STR && str_begins(v.s, "torch.nn.") && str_ends(v.s, names[k])) {
            *out = (row_function)k;
            return QUIRE_OK;
        }
    }
    return pooling_refuse(m, QUIRE_UNSUPPORTED, "activation_function", v.kind == META_STR ? v.s : (str){0},
                          "is not supported; it must be Identity, Tanh, GELU, ReLU or Sigmoid of torch.nn");
}

static quire_err pooling_describe_dense(const module_at *m, model_desc *d) {
    pooled_step step = {.kind = POOLED_DENSE, .n_in = m->width, .has_bias = true};
    meta_value bias = model_module_value(m->c->f, m->i, "bias");
    TRY(read_width(m, "in_features", m->width, &step.n_in));
    TRY(read_width(m, "out_features", 0, &step.n_out));
    if (step.n_out == 0) {
        return pooling_refuse(m, QUIRE_BAD_FILE, "out_features", (str){0}, "is missing");
    }
    if (bias.kind != META_ABSENT && bias.kind != META_BOOL) {
        return pooling_refuse(m, QUIRE_BAD_FILE, "bias", (str){0}, "must be true or false");
    }
    step.has_bias = bias.kind == META_ABSENT || bias.i != 0;
    TRY(pooling_read_function(m, &step.f));
    (void)snprintf(step.name, sizeof step.name, "%s/linear", model_module_path(m->c->f, m->i));
    return pooling_add_step(m->c, &step, d);
}

/* The class name itself: what follows the last dot. */
static str class_of(str type) {
    for (size_t i = type.n; i > 0; i--) {
        if (type.p[i - 1] == '.') {
            return (str){type.p + i, type.n - i};
        }
    }
    return type;
}

static quire_err describe_module(const config *c, int32_t i, model_desc *d) {
    const module_at m = {c, i, desc_pooled_width(d)};
    str name = class_of(model_module_type(c->f, i));
    bool is_behind = str_is(name, "Dense") || str_is(name, "Normalize");
    if (i == 0 && str_is(name, "Transformer")) {
        return QUIRE_OK;
    }
    if (is_behind && d->pooling.kind == POOLING_NONE) {
        return err_set(c->err, QUIRE_UNSUPPORTED, -1,
                       "%s/modules.json: module %d, %.*s, stands before the pooling, which is not supported",
                       model_file_path(c->f), (int)i, (int)name.n, name.p);
    }
    if (str_is(name, "Pooling")) {
        return describe_pooling(&m, d);
    }
    if (is_behind) {
        return str_is(name, "Dense") ? pooling_describe_dense(&m, d)
                                     : pooling_add_step(c, &(pooled_step){.kind = POOLED_LENGTH}, d);
    }
    return str_is(name, "Dropout") && i > 0 /* dropout is only used in training */
               ? QUIRE_OK
               : err_set(c->err, QUIRE_UNSUPPORTED, -1,
                         "%s/modules.json: module %d is a %.*s, which is not supported here; it must be "
                         "Transformer (the first), Pooling, Dense, Dropout or Normalize",
                         model_file_path(c->f), (int)i, (int)(name.n < 60 ? name.n : 60), name.p);
}

/* Reads the modules. A norm at the end becomes the model's, which a request can turn off
 * and which is applied after a cut. */
static quire_err describe_modules(const config *c, model_desc *d) {
    pooling_desc *p = &d->pooling;
    for (int32_t i = 0; i < model_file_n_modules(c->f); i++) {
        TRY(describe_module(c, i, d));
    }
    if (p->n_steps > 0 && p->steps[p->n_steps - 1].kind == POOLED_LENGTH) {
        p->normalise = true;
        p->n_steps--;
    }
    return QUIRE_OK;
}

/* ---- GGUF ---- */

/* EmbeddingGemma's dense modules, which llama.cpp names by their number in
 * modules.json. */
static quire_err describe_gguf_dense(const config *c, model_desc *d) {
    static const char *const names[] = {"dense_2", "dense_3"}, *const widths[] = {"dense_2_feat_out",
                                                                                  "dense_3_feat_out"};
    for (int i = 0; i < 2; i++) {
        char tensor[32];
        pooled_step step = {.kind = POOLED_DENSE, .n_in = desc_pooled_width(d)};
        (void)snprintf(step.name, sizeof step.name, "%s", names[i]);
        (void)snprintf(tensor, sizeof tensor, "%s.weight", names[i]);
        const tensor_view *t = model_file_find(c->f, tensor);
        if (t == NULL) {
            continue;
        }
        step.n_out = config_matrix_rows(c, t);
        (void)snprintf(tensor, sizeof tensor, "%s.bias", names[i]);
        step.has_bias = model_file_find(c->f, tensor) != NULL;
        TRY(config_i32(c, widths[i], NULL, &step.n_out));
        TRY(pooling_add_step(c, &step, d));
    }
    return QUIRE_OK;
}

/* Rows are normalised by default, as in llama.cpp. */
static quire_err pooling_describe_gguf(const config *c, const score_head *head, model_desc *d) {
    static const pooling_kind kinds[] = {POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST};
    const int32_t n_kinds = (int32_t)(sizeof kinds / sizeof *kinds);
    int32_t type = 0;
    TRY(config_i32(c, "pooling_type", NULL, &type));
    if (type == n_kinds) {
        return score_head_describe(c, head, d);
    }
    if (type > n_kinds) {
        return config_unsupported(
            c, "a pooling_type over 4 (0: none, 1: mean, 2: cls, 3: last, 4: rank) is not supported");
    }
    d->pooling.kind = kinds[type];
    d->pooling.normalise = type != 0;
    return describe_gguf_dense(c, d);
}

/* Whether config.json says that the checkpoint has a head of scores. */
static bool score_head_is(const config *c) {
    str name;
    return !c->is_gguf && model_file_str_at(c->f, "architectures", 0, &name, NULL) == QUIRE_OK &&
           str_ends(name, "ForSequenceClassification");
}

quire_err pooling_describe(const config *c, const score_head *head, model_desc *d) {
    assert(c != NULL);
    if (c->is_gguf) {
        return pooling_describe_gguf(c, head, d);
    }
    TRY(describe_modules(c, d));
    return score_head_is(c) ? score_head_describe(c, head, d) : QUIRE_OK;
}

/* Heads of scores: cross-encoders, which read a pair of texts at once and give it a
 * score, or one per label (Nogueira and Cho 2019, arXiv:1901.04085). */

/* Adds a product; a bias is optional. */
static quire_err add_dense(const config *c, const char *name, int32_t n_out, row_function f, model_desc *d) {
    pooled_step step = {
        .kind = POOLED_DENSE, .n_in = desc_pooled_width(d), .n_out = n_out, .f = f, .may_have_bias = true};
    (void)snprintf(step.name, sizeof step.name, "%s", name);
    return pooling_add_step(c, &step, d);
}

static quire_err add_norm(const config *c, const char *name, model_desc *d) {
    pooled_step step = {.kind = POOLED_NORM, .may_have_bias = true};
    (void)snprintf(step.name, sizeof step.name, "%s", name);
    return pooling_add_step(c, &step, d);
}

/* Adds the product whose number of scores is the number of its tensor's rows. */
static quire_err add_out(const config *c, const char *name, row_function f, model_desc *d) {
    char tensor[96];
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    int32_t n_scores = config_matrix_rows(c, model_file_find(c->f, tensor));
    if (n_scores == 0) {
        return err_set(c->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s, which computes the scores, is missing or not a matrix",
                       model_file_path(c->f), tensor);
    }
    d->pooling.n_scores = n_scores;
    return add_dense(c, name, d->pooling.n_scores, f, d);
}

/* Reads the function that sentence-transformers applies to the scores. Default: none. */
static quire_err score_head_read_function(const config *c, row_function *out) {
    static const char *const keys[] = {"sentence_transformers.activation_fn",
                                       "sbert_ce_default_activation_function"};
    str name = {0};
    *out = ROW_PLAIN;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && name.n == 0; i++) {
        quire_err e = model_file_str(c->f, keys[i], &name);
        if (e != QUIRE_OK && e != QUIRE_NOT_FOUND) {
            TRY(config_bad(c, keys[i], "must be a string"));
        }
    }
    if (str_begins(name, "torch.nn.") && str_ends(name, ".Sigmoid")) {
        *out = ROW_SIGMOID;
        return QUIRE_OK;
    }
    bool is_plain = name.n == 0 || (str_begins(name, "torch.nn.") && str_ends(name, ".Identity"));
    return is_plain
               ? QUIRE_OK
               : err_set(
                     c->err, QUIRE_UNSUPPORTED, -1,
                     "%s: activation_fn %.*s is not supported; it must be Sigmoid or Identity of torch.nn",
                     model_file_path(c->f), (int)(name.n < 60 ? name.n : 60), name.p);
}

/* Reads from ModernBERT's config what the head reads, and its function. */
static quire_err read_choices(const config *c, pooling_kind *kind, row_function *f) {
    str pooling = {0}, function = {0};
    TRY(config_str(c, NULL, "classifier_pooling", &pooling));
    TRY(config_str(c, NULL, "classifier_activation", &function));
    if (pooling.n > 0 && !str_is(pooling, "cls") && !str_is(pooling, "mean")) {
        return config_unsupported(c, "classifier_pooling other than \"cls\" and \"mean\" is not supported");
    }
    if (function.n > 0 && !str_is(function, "gelu")) {
        return config_unsupported(c, "classifier_activation other than \"gelu\" is not supported");
    }
    *kind = str_is(pooling, "mean") ? POOLING_MEAN : str_is(pooling, "cls") ? POOLING_CLS : *kind;
    *f = function.n > 0 ? ROW_GELU : *f;
    return QUIRE_OK;
}

static quire_err score_head_describe_gguf(const config *c, const score_head *head, model_desc *d) {
    bool has_dense = model_file_find(c->f, "cls.weight") != NULL;
    d->pooling.kind = head->gguf_kind;
    if (head->dense != NULL && !has_dense) { /* conversions of BERT leave its pooler out */
        return config_bad(c, "cls.weight",
                          "is missing: scores go through this dense layer, which the conversion left out");
    }
    if (has_dense) {
        TRY(add_dense(c, "cls", d->d_model, head->f, d));
    }
    if (model_file_find(c->f, "cls.norm.weight") != NULL) {
        TRY(add_norm(c, "cls.norm", d));
    }
    TRY(add_out(c, "cls.output", ROW_PLAIN, d));
    return head->gguf_softmax && d->pooling.n_scores > 1
               ? pooling_add_step(c, &(pooled_step){.kind = POOLED_SOFTMAX}, d)
               : QUIRE_OK;
}

quire_err score_head_describe(const config *c, const score_head *head, model_desc *d) {
    row_function f, scores;
    if (head == NULL) {
        return config_unsupported(c, "a head of scores is not supported for this architecture");
    }
    if (c->is_gguf) {
        return score_head_describe_gguf(c, head, d);
    }
    if (d->pooling.kind != POOLING_NONE) {
        return config_unsupported(
            c, "modules.json names a pooling and config.json a scoring head; having both is not supported");
    }
    d->pooling.kind = head->kind;
    d->no_head = true;
    f = head->f;
    TRY(read_choices(c, &d->pooling.kind, &f));
    TRY(score_head_read_function(c, &scores));
    if (head->dense != NULL) {
        TRY(add_dense(c, head->dense, d->d_model, f, d));
    }
    if (head->norm != NULL) {
        TRY(add_norm(c, head->norm, d));
    }
    return add_out(c, head->out, scores, d);
}

/* ---- facts of rows ---- */

quire_err row_facts_read(const model_file *f, row_facts *out, quire_error *err) {
    char prefix[64] = "";
    str arch = {0}, function = {0};
    size_t n = 0;
    if (model_file_str(f, "general.architecture", &arch) == QUIRE_OK) {
        (void)snprintf(prefix, sizeof prefix, "%.*s", (int)(arch.n < 60 ? arch.n : 60), arch.p);
    }
    const config c = config_of(f, prefix, err);
    *out = (row_facts){0};
    TRY(config_bool(&c, NULL, "is_matryoshka", &out->is_matryoshka));
    TRY(config_i32s(&c, NULL, "matryoshka_dimensions", out->widths, ROW_MAX_WIDTHS, &n));
    TRY(config_str(&c, NULL, "sentence_transformers.activation_fn|sbert_ce_default_activation_function",
                   &function));
    out->n_widths = (int32_t)n;
    out->is_matryoshka = out->is_matryoshka || n > 0;
    out->names_function = function.n > 0;
    return QUIRE_OK;
}

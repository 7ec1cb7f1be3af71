/* Heads of scores: cross-encoders, which read a pair of texts at once and give it a
 * score, or one for each label (Nogueira and Cho 2019, arXiv:1901.04085). */
#include <stdio.h>
#include <string.h>

#include "file/modules.h"
#include "model/pooling.h"

bool score_head_is(const config *c) {
    str name;
    return !c->is_gguf && model_file_str_at(c->f, "architectures", 0, &name, NULL) == QUIRE_OK &&
           str_ends(name, "ForSequenceClassification");
}

/* A product, whose bias the file may have. */
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

/* The product that gives as many scores as its tensor has rows. */
static quire_err add_out(const config *c, const char *name, row_function f, model_desc *d) {
    char tensor[96];
    (void)snprintf(tensor, sizeof tensor, "%s.weight", name);
    int32_t n_scores = config_matrix_rows(c, model_file_find(c->f, tensor));
    if (n_scores == 0) {
        return err_set(c->err, QUIRE_BAD_FILE, -1,
                       "%s: tensor %s, which gives the scores, is missing or no matrix",
                       model_file_path(c->f), tensor);
    }
    d->pooling.n_scores = n_scores;
    return add_dense(c, name, d->pooling.n_scores, f, d);
}

/* The function that sentence-transformers was told to use on the scores. Without one they
 * are as the head gives them. */
static quire_err score_head_read_function(const config *c, row_function *out) {
    static const char *const keys[] = {"sentence_transformers.activation_fn",
                                       "sbert_ce_default_activation_function"};
    str name = {0};
    *out = ROW_PLAIN;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && name.n == 0; i++) {
        quire_err e = model_file_str(c->f, keys[i], &name);
        TRY(e == QUIRE_OK || e == QUIRE_NOT_FOUND ? QUIRE_OK : config_bad(c, keys[i], "must be text"));
    }
    if (str_begins(name, "torch.nn.") && str_ends(name, ".Sigmoid")) {
        *out = ROW_SIGMOID;
        return QUIRE_OK;
    }
    bool is_plain = name.n == 0 || (str_begins(name, "torch.nn.") && str_ends(name, ".Identity"));
    return is_plain ? QUIRE_OK
                    : err_set(c->err, QUIRE_UNSUPPORTED, -1,
                              "%s: activation_fn %.*s is not supported; Sigmoid and Identity of torch.nn are",
                              model_file_path(c->f), (int)(name.n < 60 ? name.n : 60), name.p);
}

/* ModernBERT's config chooses what the head reads, and its function. */
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
        return config_bad(
            c, "cls.weight",
            "is missing: scores go through this dense layer, which the conversion has left out");
    }
    TRY(has_dense ? add_dense(c, "cls", d->d_model, head->f, d) : QUIRE_OK);
    TRY(model_file_find(c->f, "cls.norm.weight") != NULL ? add_norm(c, "cls.norm", d) : QUIRE_OK);
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
            c, "modules.json names a pooling, and config.json a head of scores: this is not supported");
    }
    d->pooling.kind = head->kind;
    d->no_head = true;
    f = head->f;
    TRY(read_choices(c, &d->pooling.kind, &f));
    TRY(score_head_read_function(c, &scores));
    TRY(head->dense != NULL ? add_dense(c, head->dense, d->d_model, f, d) : QUIRE_OK);
    TRY(head->norm != NULL ? add_norm(c, head->norm, d) : QUIRE_OK);
    return add_out(c, head->out, scores, d);
}

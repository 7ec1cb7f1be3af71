#include "engine/row_pooling.h"

#include <assert.h>
#include <float.h>

#include "base/float_bits.h"
#include "engine/state.h"

/* Limits how many cached tokens t may reuse at its next admission. */
static void limit_reuse(const row_pooling *p, sched_task *t) {
    t->limits_reuse = p->params.kind == POOLING_MEAN || (p->params.kind == POOLING_CLS && p->n_gathered == 0);
    t->reuse_limit = p->n_gathered;
}

quire_err row_pooling_open(const engine_request *r, const model *m, sequence *s) {
    assert(r != NULL);
    const pooling_params *p = &r->pooling;
    size_t n_types = r->types != NULL ? (size_t)r->n_tokens : 0;
    size_t n = (size_t)model_description(m)->d_model,
           n_head = (sizeof(row_pooling) + sizeof(double) - 1) / sizeof(double);
    double *block = mem_new(n_head + n + (n + 1) / 2, sizeof *block);
    float *result = mem_new((size_t)desc_pooled_width(model_description(m)), sizeof *result);
    int32_t *types = n_types > 0 ? mem_new(n_types, sizeof *types) : NULL;
    if (block == NULL || result == NULL || (n_types > 0 && types == NULL)) {
        mem_free(block);
        mem_free(result);
        mem_free(types);
        return QUIRE_NO_MEMORY;
    }
    mem_copy(types, r->types, n_types * sizeof *types);
    row_pooling *made = (row_pooling *)(void *)block;
    *made =
        (row_pooling){.params = *p,
                      .width = p->dimensions > 0 ? p->dimensions : desc_pooled_width(model_description(m)),
                      .result = result,
                      .types = types,
                      .sum = block + n_head,
                      .row = (float *)(void *)(block + n_head + n)};
    s->pooling = made;
    s->task.no_logits = true;
    limit_reuse(made, &s->task);
    return QUIRE_OK;
}

static void row_pooling_read_row(const engine *e, int32_t row, float *out) {
    e->b->ops->buffer_read(e->b, model_hidden(e->m), row, 1, out);
}

static void row_pooling_add_row(const engine *e, row_pooling *p, int32_t row) {
    row_pooling_read_row(e, row, p->row);
    for (int32_t i = 0; i < e->desc->d_model; i++) {
        p->sum[i] += (double)p->row[i];
    }
}

void row_pooling_gather(engine *e, sequence *s, int32_t from, int32_t n, int32_t row0) {
    row_pooling *p = s->pooling;
    /* rows that are computed again after a preemption are already in the mean */
    int32_t first = p->params.kind == POOLING_MEAN && from < p->n_gathered ? p->n_gathered : from;
    for (int32_t at = first; at < from + n; at++) {
        int32_t row = row0 + at - from;
        switch (p->params.kind) {
        case POOLING_MEAN:
            row_pooling_add_row(e, p, row);
            break;
        case POOLING_CLS:
            if (at == 0) {
                row_pooling_read_row(e, row, p->row);
            }
            break;
        case POOLING_LAST:
        case POOLING_NONE:
            if (at == s->task.n_prompt - 1) {
                row_pooling_read_row(e, row, p->row);
            }
            break;
        }
    }
    p->n_gathered = from + n > p->n_gathered ? from + n : p->n_gathered;
    limit_reuse(p, &s->task);
}

quire_err row_pooling_finish(const engine *e, sequence *s) {
    row_pooling *p = s->pooling;
    for (int32_t i = 0; p->params.kind == POOLING_MEAN && i < e->desc->d_model; i++) {
        p->row[i] = (float)(p->sum[i] / (double)s->task.n_prompt);
    }
    model_pooled(e->m, p->row, p->result);
    if (!finite_from(p->result, desc_pooled_width(e->desc), -FLT_MAX)) {
        return QUIRE_NUMERIC;
    }
    if (p->params.normalise) {
        row_divide_by_length(p->result, p->width);
    }
    return QUIRE_OK;
}
